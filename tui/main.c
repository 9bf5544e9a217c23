/* main.c - entry point: makes the standard streams safe, handles signals, and returns one exit status. The
 * only mutable global is the flag that Ctrl-C sets. */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tui/cli/cli.h"
#include "tui/cli/lib/lib.h"
#include "tui/cli/lib/models.h"

enum { MANY_FILES = 1 << 14 };

static volatile sig_atomic_t interrupted;

/* The first signal requests a stop; the second one ends the process. SIGHUP only requests: a terminal that is
 * closed sends several, and a run is to be stored as stopped. */
static void main_on_interrupt(int signal_number)
{
    if (interrupted && signal_number != SIGHUP) {
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
    interrupted = 1;
}

static void signals_install(void)
{
    struct sigaction act = { .sa_handler = main_on_interrupt };
    sigemptyset(&act.sa_mask);
    act.sa_flags = SA_RESTART;
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
    struct sigaction hangup;
    if (!sigaction(SIGHUP, NULL, &hangup) &&
        hangup.sa_handler != SIG_IGN) /* nohup: go on without the terminal */
        sigaction(SIGHUP, &act, NULL);
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is then a failed write, which stdout_close handles */
}

/* Opens closed standard streams. Otherwise the next opened file would get number 0 to 2, and output would be
 * written into it, for example into the database. */
static void standard_streams_open(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
        /* opened in the wrong direction, so that writing to a closed stream still fails */
        int got = open("/dev/null", fd ? O_RDONLY : O_WRONLY);
        if (got >= 0 && got != fd) close(got);
    }
}

/* Raises the soft limit of open files. Each hardware counter of each CPU and thread is a file, so large
 * machines need more than the usual 1024. The limit protects programs that use select(), which this one does
 * not. */
static void allow_many_files(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) || files.rlim_cur >= MANY_FILES) return;
    files.rlim_cur = MIN(files.rlim_max, MANY_FILES);
    setrlimit(RLIMIT_NOFILE, &files);
}

/* A pipe whose reader is gone, for what was written to it before. */
static bool stdout_reader_left(void)
{
    struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };
    return poll(&out, 1, 0) > 0 && (out.revents & (POLLERR | POLLHUP));
}

/* A failed write changes the exit status. A reader that closed the pipe is no error. */
static int stdout_close(int status)
{
    const bool failed = fflush(stdout) != 0;
    const int why = failed ? errno : 0; /* of an earlier write that failed the cause is unknown */
    if (memory_short_times() && status <= EXIT_INVALID) { /* else an error has been printed */
        fprintf(stderr, "qdyno: out of memory: the results may be incomplete\n");
        status = EXIT_NO_FIT;
    }
    if (!failed && !ferror(stdout)) return status;
    if (why == EPIPE || stdout_reader_left()) return status;
    fprintf(stderr, "qdyno: cannot write the results: %s\n", failed ? strerror(why) : "a part is lost");
    if (!why || err_of_errno(why) == ERR_FIT) return EXIT_NO_FIT;
    return status ? status : EXIT_BAD_INPUT;
}

static int main_run(int argc, char **argv)
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
        cli_args_done(&a);
        return cli_fail(NULL, &why);
    }
    if (g.version) {
        printf("qdyno %s\n", QDYNO_VERSION);
        return EXIT_DONE;
    }
    if (g.help) {
        struct str text = { 0 };
        help_short(&text, a.named ? a.command : NULL);
        fputs(str_text(&text), stdout);
        str_free(&text);
        return EXIT_DONE;
    }
    const int status = cli_models_resolve(&g, &a, &why) ? cli_fail(&a, &why) : a.command->run(&g, &a);
    cli_args_done(&a);
    return status;
}

/* The last check that no result was computed from a file that became shorter meanwhile. */
static int main_check_files(int status)
{
    struct err why;
    return map_guard_confess(&why) ? cli_fail(NULL, &why) : status;
}

int main(int argc, char **argv)
{
    standard_streams_open();
    setlocale(LC_CTYPE, ""); /* numbers stay in the C locale */
    signals_install();
    allow_many_files();
    json_init();
    map_guard_install();
    hash_outlive_exit(); /* a job that the dashboard does not wait for */
    return stdout_close(main_check_files(main_run(argc, argv)));
}
