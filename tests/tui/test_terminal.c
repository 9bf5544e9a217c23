/* Proves, in a pseudo-terminal: the first frame comes at once; keys are answered; the size is followed down
 * to 1x1 and back; colours follow TERM and NO_COLOR; a locale without UTF-8 gets ASCII; random keys and
 * resizes do no harm; the terminal is restored on q and on SIGTERM. */
#include "tests/check.h"
#include "telemetry/export/export.h"
#include "tui/dashboard/dashboard.h"

#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

struct session {
    pid_t pid;
    int fd;
    char folder[64];
    struct str seen; /* everything the program wrote, NULs dropped */
};

static void child_main(const struct session *s, const char *term, const char *locale, bool color)
{
    char db[128];
    struct err why = { 0 };
    setenv("TERM", term, 1);
    setenv("LC_ALL", locale, 1);
    unsetenv("NO_COLOR");
    unsetenv("QDYNO_GLYPHS");
    setenv("XDG_CACHE_HOME", s->folder, 1);
    setenv("XDG_CONFIG_HOME", s->folder, 1);
    setenv("QDYNO_SHARE", TEST_SOURCE_DIR "/share", 1);
    snprintf(db, sizeof db, "%s/q.db", s->folder);
    struct dashboard_options o = {
        .db_path = db, .color = color, .model = "/nonexistent/m.gguf", .push_url = NULL
    };
    enum err_code rc = dashboard_run(&o, &why);
    if (rc) fprintf(stderr, "error: %s\n", why.message);
    exit((int)rc);
}

static void session_open(struct session *s, const char *term, const char *locale, bool color)
{
    struct winsize size = { .ws_row = 24, .ws_col = 80 };
    *s = (struct session){ .folder = "/tmp/qdyno-pty-XXXXXX" };
    assert_non_null(mkdtemp(s->folder));
    fflush(NULL);
    s->pid = forkpty(&s->fd, NULL, NULL, &size);
    CHECK_GE(s->pid, 0);
    if (s->pid == 0) child_main(s, term, locale, color);
}

/* Read for at most `ms`, or until `want` was written since the last call of session_send. */
static bool session_read(struct session *s, const char *want, int ms)
{
    int64_t until = clock_ns() + ms * 1000000LL;
    char buf[4096];
    for (;;) {
        if (want && strstr(str_text(&s->seen), want)) return true;
        int left = (int)((until - clock_ns()) / 1000000);
        struct pollfd p = { .fd = s->fd, .events = POLLIN };
        if (left <= 0 || poll(&p, 1, left) <= 0) return false;
        ssize_t n = read(s->fd, buf, sizeof buf);
        if (n <= 0) return want && strstr(str_text(&s->seen), want);
        for (ssize_t i = 0; i < n; i++)
            if (buf[i]) str_append_n(&s->seen, &buf[i], 1);
    }
}

static void session_send(struct session *s, const char *keys)
{
    str_clear(&s->seen);
    CHECK_EQ(write(s->fd, keys, strlen(keys)), (ssize_t)strlen(keys));
}

static void session_size(struct session *s, int w, int h)
{
    struct winsize size = { .ws_row = (unsigned short)h, .ws_col = (unsigned short)w };
    str_clear(&s->seen);
    CHECK_EQ(ioctl(s->fd, TIOCSWINSZ, &size), 0);
}

/* The exit status once the program has ended, -1 when it does not within 60 s. */
static int session_end(struct session *s)
{
    int status = 0;
    for (int i = 0; i < 4000; i++) {
        session_read(s, NULL, 10);
        clock_sleep_ns(5000000); /* after the terminal has closed, read() returns at once */
        if (waitpid(s->pid, &status, WNOHANG) == s->pid) {
            session_read(s, NULL, 50);
            return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
        }
    }
    kill(s->pid, SIGKILL);
    waitpid(s->pid, &status, 0);
    return -1;
}

static void check_end(struct session *s, int want)
{
    int status = session_end(s);
    if (status != want) fail_msg("ended with %d, want %d, after: %s", status, want, str_text(&s->seen));
}

static void session_close(struct session *s)
{
    char command[128];
    close(s->fd);
    str_free(&s->seen);
    snprintf(command, sizeof command, "rm -rf %s", s->folder);
    CHECK_EQ(system(command), 0);
}

static void keys_and_answers(void **state)
{
    (void)state;
    struct session s;
    int64_t begun = clock_ns();
    session_open(&s, "xterm-256color", "C.UTF-8", true);
    CHECK(session_read(&s, "hist", 60000));
    print_message("first frame after %.0f ms\n", (double)(clock_ns() - begun) / 1e6);
    CHECK(session_read(&s, "\x1b[38;5;", 60000)); /* 256 colours are used */
    session_send(&s, "?");
    CHECK(session_read(&s, "Keys", 60000));
    session_send(&s, "\x1b");
    CHECK(session_read(&s, "Machine", 60000));
    session_send(&s, "$"); /* a key without an action gets an answer */
    CHECK(session_read(&s, "action", 60000));
    session_send(&s, "b"); /* refused with the reason: the model cannot be read */
    bool answered = false;
    for (int i = 0; i < 60 && !answered; i++)
        answered = session_read(&s, "cannot", 500) || session_read(&s, "chooses", 500);
    CHECK(answered);
    session_send(&s, "m\x15/tmp/nowhere.gguf\r");
    CHECK(session_read(&s, "readable", 60000));
    session_send(&s, "\x1b");
    session_read(&s, NULL, 200);
    session_send(&s, "9");
    CHECK(session_read(&s, "Log", 60000));
    session_send(&s, "\x1b[<0;26;24M\x1b[<0;26;24m"); /* a click on "4 history" */
    CHECK(session_read(&s, "History", 60000));
    session_send(&s, "@"); /* mouse reports off */
    CHECK(session_read(&s, "selects text", 60000));
    CHECK_CONTAINS(str_text(&s.seen), "1000l");
    session_send(&s, ":next th\r");
    CHECK(session_read(&s, "theme", 60000));
    session_send(&s, "q");
    check_end(&s, 0);
    CHECK_CONTAINS(str_text(&s.seen), "\x1b[?1049l"); /* back to the shell's screen */
    session_close(&s);
}

static void sizes_and_sigterm(void **state)
{
    (void)state;
    struct session s;
    session_open(&s, "xterm-256color", "C.UTF-8", true);
    CHECK(session_read(&s, "hist", 60000));
    session_size(&s, 50, 10);
    CHECK(session_read(&s, "60x16", 60000));
    session_size(&s, 1, 1);
    session_read(&s, NULL, 300);
    session_size(&s, 200, 60);
    CHECK(session_read(&s, "Machine", 60000));
    kill(s.pid, SIGTERM);
    check_end(&s, 0);
    CHECK_CONTAINS(str_text(&s.seen), "\x1b[?1049l");
    session_close(&s);
}

static void hangup(void **state)
{
    (void)state;
    struct session s;
    session_open(&s, "xterm-256color", "C.UTF-8", true);
    CHECK(session_read(&s, "hist", 60000));
    kill(s.pid, SIGHUP);
    check_end(&s, 0);
    session_close(&s);
}

static void without_colour(void **state)
{
    (void)state;
    struct session s;
    session_open(&s, "xterm-256color", "C.UTF-8", false);
    CHECK(session_read(&s, "hist", 60000));
    session_read(&s, NULL, 300);
    CHECK_LACKS(str_text(&s.seen), "\x1b[38;5;");
    CHECK_LACKS(str_text(&s.seen), "\x1b[3"
                                   "4m");
    session_send(&s, "q");
    check_end(&s, 0);
    session_close(&s);
}

static void plain_locale(void **state)
{
    (void)state;
    struct session s;
    session_open(&s, "xterm", "C", true);
    CHECK(session_read(&s, "hist", 60000));
    session_read(&s, NULL, 300);
    for (const char *p = str_text(&s.seen); *p; p++) CHECK_LT((unsigned char)*p, 0x80);
    CHECK_LACKS(str_text(&s.seen), "\x1b[38;5;"); /* 8 colours */
    session_send(&s, "q");
    check_end(&s, 0);
    session_close(&s);
}

static void bad_terminals(void **state)
{
    (void)state;
    static const char *const TERMS[] = { "no-such-terminal", "dumb", "" };
    for (size_t i = 0; i < COUNT_OF(TERMS); i++) {
        struct session s;
        session_open(&s, TERMS[i], "C.UTF-8", true);
        check_end(&s, ERR_ABSENT);
        CHECK_CONTAINS(str_text(&s.seen), "TERM=xterm-256color"); /* what to do */
        session_close(&s);
    }
}

/* The same storm every time: keys of every kind, resizes, continue signals. */
static void storm(void **state)
{
    (void)state;
    static const char *const KEYS_SENT[] = { "1",
                                             "2",
                                             "3",
                                             "4",
                                             "5",
                                             "6",
                                             "7",
                                             "8",
                                             "9",
                                             "0",
                                             "w",
                                             "z",
                                             "P",
                                             "c",
                                             " ",
                                             "b",
                                             "s",
                                             "r",
                                             "p",
                                             "m",
                                             "/",
                                             "k",
                                             "j",
                                             "h",
                                             "l",
                                             "g",
                                             "G",
                                             "?",
                                             "\r",
                                             "\x1b",
                                             "\t",
                                             "\f",
                                             "é",
                                             "日",
                                             "=",
                                             ";",
                                             "x",
                                             "\x7f",
                                             "\x15",
                                             "~",
                                             "@",
                                             ":",
                                             "\x1b[<0;40;12M",
                                             "\x1b[<64;9;9M",
                                             "\x1b[A",
                                             "\x1b[B",
                                             "\x1b[5~",
                                             "\x1b[6~",
                                             "\x1a" };
    struct session s;
    uint32_t random = 12345;
    session_open(&s, "xterm-256color", "C.UTF-8", true);
    CHECK(session_read(&s, "hist", 60000));
    for (int i = 0; i < 600; i++) {
        random = random * 1664525u + 1013904223u;
        uint32_t pick = random >> 8;
        if (pick % 29 == 0)
            session_size(&s, 1 + (int)(pick / 29 % 250), 1 + (int)(pick / 7919 % 80));
        else if (pick % 31 == 0)
            kill(s.pid, SIGCONT);
        else
            session_send(&s, KEYS_SENT[pick % COUNT_OF(KEYS_SENT)]);
        if (i % 3 == 0) session_read(&s, NULL, 3);
    }
    session_size(&s, 80, 24);
    session_read(&s, NULL, 300);
    CHECK_EQ(waitpid(s.pid, NULL, WNOHANG), 0); /* still there */
    kill(s.pid, SIGTERM);
    check_end(&s, 0);
    session_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_and_answers),
        cmocka_unit_test(sizes_and_sigterm),
        cmocka_unit_test(hangup),
        cmocka_unit_test(without_colour),
        cmocka_unit_test(plain_locale),
        cmocka_unit_test(bad_terminals),
        cmocka_unit_test(storm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
