/* main.c - the way in and out: standard streams that cannot surprise, signals, and one exit status. The only
 * mutable global is the flag that Ctrl-C sets. */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tui/cli/cli.h"

enum { MANY_FILES = 1 << 14 };

static volatile sig_atomic_t interrupted;

/* The first asks to stop; a second one means it. */
static void on_interrupt(int signal_number)
{
    if (interrupted) {
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
    interrupted = 1;
}

static void take_signals(void)
{
    struct sigaction act = { .sa_handler = on_interrupt };
    sigemptyset(&act.sa_mask);
    act.sa_flags = SA_RESTART;
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    signal(SIGPIPE, SIG_IGN); /* a reader that left is a failed write, reported once, below */
}

/* A closed standard stream would be the number of the next file opened: results would land in the database.
 */
static void hold_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
        /* the wrong direction on purpose: writing to what was closed must fail, not vanish */
        int got = open("/dev/null", fd ? O_RDONLY : O_WRONLY);
        if (got >= 0 && got != fd) close(got);
    }
}

/* One counter per processor or thread and event is a file each, and a large machine needs more than the usual
 * 1024. That soft limit is for programs that use select(); none of ours does. */
static void allow_many_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur >= MANY_FILES) return;
    files.rlim_cur = MIN(files.rlim_max, MANY_FILES);
    setrlimit(RLIMIT_NOFILE, &files);
}

/* What could not be written changes the status, except that nobody listening any more is no error. */
static int close_stdout(int status)
{
    bool failed = fflush(stdout) != 0;
    int why = errno;
    if (!failed && !ferror(stdout)) return status;
    if (failed && why == EPIPE) return status;
    if (!failed) return status; /* an earlier write was refused by a reader that left */
    fprintf(stderr, "qdyno: could not write the results: %s\n", strerror(why));
    return why == ENOSPC || why == EDQUOT || why == EFBIG ? EXIT_NO_FIT : status ? status : EXIT_INTERNAL;
}

static int run(int argc, char **argv)
{
    const char *no_color = getenv("NO_COLOR");
    struct cli_global g = { .output = OUTPUT_MD,
                            .no_color = no_color && *no_color,
                            .seed = 1,
                            .log = log_to_stream(stderr, LOG_WARN),
                            .interrupted = &interrupted };
    struct cli_args a;
    struct err why = { 0 };
    if (cli_parse(&g, &a, argc, argv, &why)) {
        fprintf(stderr, "qdyno: %s\n", why.message);
        return exit_status_of(why.code);
    }
    if (g.version) {
        printf("qdyno %s\n", QDYNO_VERSION);
        return EXIT_DONE;
    }
    if (g.help) {
        struct str text = { 0 };
        help_text(&text, a.named ? a.command : NULL);
        fputs(str_text(&text), stdout);
        str_free(&text);
        return EXIT_DONE;
    }
    return a.command->run(&g, &a);
}

int main(int argc, char **argv)
{
    hold_standard_streams();
    setlocale(LC_CTYPE, ""); /* numbers stay in the C locale */
    take_signals();
    allow_many_files();
    return close_stdout(run(argc, argv));
}
