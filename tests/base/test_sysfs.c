/* Proves: memory of a process is read from the lines of its status file alone; what it does not say is
 * unknown (NAN), for processes that have ended, too. Bug: three copies of this parser had NAN, -1 and 0 for
 * it, and took a program's name for a figure. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sysfs/sysfs.h"
#include "tests/check.h"

static bool is_same(double a, double b)
{
    return isnan(a) ? isnan(b) : fabs(a - b) < 0.5;
}

static void memory_is_read_or_unknown(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double peak, rss;
    } CASES[] = {
        { "Name:\tqdyno\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n", 2048 * 1024, 1024 * 1024 },
        { "Name:\tqdyno\nState:\tZ (zombie)\n", NAN, NAN },
        { "VmRSS:\t8 kB\n", NAN, 8 * 1024 },
        { "VmHWM:\t0 kB\nVmRSS:\t0 kB\n", 0, 0 },
        { "VmHWM:\tmuch\nVmRSS:\t-\n", NAN, NAN },
        { "Name:\tVmRSS: 5 kB\n", NAN, NAN },
        { "", NAN, NAN },
    };
    char root[] = "/tmp/qdyno-sysfs-XXXXXX", path[128];
    CHECK(mkdtemp(root));
    snprintf(path, sizeof path, "%s/proc", root);
    CHECK_EQ(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/proc/7", root);
    CHECK_EQ(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/proc/7/status", root);
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        FILE *f = fopen(path, "we");
        CHECK(f);
        fputs(CASES[i].text, f);
        fclose(f);
        const struct process_memory m = sys_process_memory(root, 7);
        CHECK(is_same(m.peak_bytes, CASES[i].peak));
        CHECK(is_same(m.rss_bytes, CASES[i].rss));
    }
    CHECK_NAN(sys_process_memory(root, 8).rss_bytes);
    unlink(path);
    for (int depth = 0; depth < 3; depth++) {
        *strrchr(path, '/') = '\0';
        rmdir(path);
    }
}

static void processes_of_this_machine(void **state)
{
    (void)state;
    const struct process_memory own = sys_process_memory("", 0), same = sys_process_memory("", getpid());
    CHECK(own.rss_bytes > 0 && own.peak_bytes >= own.rss_bytes);
    CHECK(same.rss_bytes > 0);
    const pid_t child = fork();
    if (!child) _exit(0);
    siginfo_t ended;
    CHECK_EQ(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOWAIT), 0); /* it has ended, but is still there */
    CHECK_NAN(sys_process_memory("", child).rss_bytes);
    CHECK_NAN(sys_process_memory("", child).peak_bytes);
    waitpid(child, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_read_or_unknown),
        cmocka_unit_test(processes_of_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
