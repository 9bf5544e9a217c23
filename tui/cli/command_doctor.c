/* qdyno doctor: prints what HEALTH_CHECKS (advisor/advise) find, and checks the terminal. */
#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "advisor/advise/advise.h"
#include "advisor/doctor/doctor.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/devices.h"

static const struct column COLUMNS[] = {
    COL("check", "check"),
    COL("state", "state"),
    COL("found", "found"),
    COL("advice", "what to do"),
};

DOCUMENT(DOCTOR, "qdyno.doctor/1", COLUMNS, .members = "bad");

struct doctor {
    struct table table;
    int bad;
    const char *check; /* the one that is running */
};

static void doctor_add(void *ctx, const struct health_finding *f)
{
    struct doctor *d = ctx;
    json_t *row = table_row(&d->table);
    json_put_str(row, "check", d->check);
    json_put_str(row, "state", HEALTH_STATES[f->state]);
    json_put_str(row, "found", f->found);
    json_put_str(row, "advice", *f->advice ? f->advice : NULL);
    d->bad += f->state == HEALTH_BAD;
}

static void check_terminal(struct doctor *d)
{
    const char *term = getenv("TERM");
    const bool utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
    struct health_finding f = { .state = HEALTH_NOTE, .advice = "" };
    d->check = "terminal";
    if (!isatty(STDOUT_FILENO)) {
        f.advice = "only the dashboard needs a terminal";
        snprintf(f.found, sizeof f.found, "standard output is not a terminal");
    } else if (!term || !*term || !strcmp(term, "dumb")) {
        f.advice = "set TERM, e.g. xterm-256color";
        snprintf(f.found, sizeof f.found, "TERM is %s", term && *term ? term : "not set");
    } else {
        f.state = utf8 ? HEALTH_OK : HEALTH_NOTE;
        f.advice = utf8 ? "" : "use a UTF-8 locale for finer graphs (LANG=C.UTF-8)";
        snprintf(f.found, sizeof f.found, "%s, %s", term, nl_langinfo(CODESET));
    }
    doctor_add(d, &f);
}

/* On a terminal: problems first. */
static int print_for_people(const struct cli_args *a, const struct doctor *d, int status)
{
    enum { WIDTH = 100, LEAST = 60 };
    struct winsize size = { 0 };
    struct str text = { 0 };
    const bool known = !ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col > 0;
    doctor_text(&text, d->table.rows, known ? MAX(MIN((int)size.ws_col, (int)WIDTH), (int)LEAST) : WIDTH);
    str_printf(&text, "\n%s", str_text(&d->table.notes));
    char *safe = text.failed ? NULL : sink_text(SINK_TERMINAL, str_text(&text));
    str_free(&text);
    if (!safe) return cli_fail_memory(a);
    fputs(safe, stdout);
    free(safe);
    return status;
}

int command_doctor(const struct cli_global *g, const struct cli_args *a)
{
    struct doctor d = { 0 };
    struct machine machine;
    struct devices devices = { 0 };
    struct err no_machine = { 0 }, no_devices = { 0 };
    const bool machine_known = !machine_detect(&machine, "", &no_machine);
    const bool devices_known = !devices_list(&devices, DEVICES_SECONDS, &no_devices);
    const struct health_case now = { .machine = machine_known ? &machine : NULL,
                                     .no_machine = no_machine.message,
                                     .devices_known = devices_known,
                                     .no_devices = no_devices.message,
                                     .device = devices.device,
                                     .n_devices = devices_known ? devices.count : 0,
                                     .db_path = g->db_path,
                                     .log = &g->log,
                                     .report = doctor_add,
                                     .ctx = &d };
    table_init(&d.table, &DOCUMENT_DOCTOR);
    for (size_t i = 0; i < HEALTH_CHECK_COUNT; i++) {
        d.check = HEALTH_CHECKS[i].name;
        HEALTH_CHECKS[i].run(&now);
    }
    check_terminal(&d);
    json_put_int(d.table.extra, "bad", d.bad);
    table_note(&d.table, d.bad ? "%d checks failed" : "everything that qdyno needs is present", d.bad);
    const int end = d.bad ? EXIT_WORSE : EXIT_DONE;
    const bool people = g->output == OUTPUT_MD && !g->output_given && isatty(STDOUT_FILENO);
    const int status = people ? print_for_people(a, &d, end) : cli_print(g, a, &d.table, end);
    table_done(&d.table);
    return status;
}
