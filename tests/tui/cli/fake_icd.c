/* A driver of OpenCL that does not survive being loaded, in the way that QDYNO_FAKE_ICD says. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((constructor)) static void load(void)
{
    const char *how = getenv("QDYNO_FAKE_ICD");
    if (!how) return;
    if (!strcmp(how, "hang")) sleep(1000);
    if (!strcmp(how, "crash")) raise(SIGSEGV);
    if (!strcmp(how, "exit")) exit(0);
}
