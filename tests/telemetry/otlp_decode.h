/* tests/telemetry/otlp_decode.h - request bodies read by others: otlp_decode.py, with the official
 * definitions where python3 has them. */
#ifndef QDYNO_TESTS_OTLP_DECODE_H
#define QDYNO_TESTS_OTLP_DECODE_H

#include "tests/check.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"

/* otlp_decode.py WHAT on `body`, which is freed. Skips the test where python3 or the definitions are missing.
 * What it prints is appended to *out, NULL: shown. */
static inline void otlp_decode(const char *what, struct str *body, struct str *out)
{
    char path[] = "/tmp/qdyno-otlp-XXXXXX", printed[] = "/tmp/qdyno-otlp-XXXXXX";
    const char *named = getenv("QDYNO_TEST_PYTHON"), *python = named ? named : "python3";
    const int fd = mkstemp(path), out_fd = mkstemp(printed);
    CHECK_GE(fd, 0);
    CHECK_GE(out_fd, 0);
    CHECK_EQ(write(fd, body->data, body->len), (ssize_t)body->len);
    close(fd);
    str_free(body);
    const pid_t pid = fork();
    if (!pid) {
        if (out) dup2(out_fd, 1);
        execlp(python, python, TEST_SOURCE_DIR "/tests/telemetry/otlp_decode.py", what, path, (char *)NULL);
        _exit(77); /* no python3 */
    }
    int status = 0;
    CHECK_GT(pid, 0);
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status));
    unlink(path);
    unlink(printed);
    char text[4096];
    lseek(out_fd, 0, SEEK_SET);
    for (ssize_t n; out && (n = read(out_fd, text, sizeof text)) > 0;) str_append_n(out, text, (size_t)n);
    close(out_fd);
    if (WEXITSTATUS(status) == 77) {
        if (out) str_free(out);
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

#endif
