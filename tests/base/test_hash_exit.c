/* Proves: a thread that hashes while its process ends does not crash it. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "tests/check.h"

static void *hash_forever(void *arg)
{
    char hex[HASH_HEX];
    for (;;) hash_bytes("abc", 3, hex);
    return arg;
}

static void threads_may_hash_at_the_end(void **state)
{
    enum { PROCESSES = 100, THREADS = 4 };
    (void)state;
    for (int i = 0; i < PROCESSES; i++) {
        const pid_t pid = fork();
        assert_true(pid >= 0);
        if (!pid) {
            pthread_t t;
            hash_outlive_exit();
            for (int k = 0; k < THREADS; k++) pthread_create(&t, NULL, hash_forever, NULL);
            usleep(1000);
            exit(0);
        }
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        CHECK_EQ(status, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(threads_may_hash_at_the_end) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
