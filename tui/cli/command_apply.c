/* qdyno apply: saves a config for a model, prints the saved one, and prints the nearest llama.cpp command
 * line. */
#include <stdlib.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/history/history.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/runs.h"

/* clang-format off */
const struct cli_flag FLAGS_APPLY[] = {
    FLAG_MODEL_ROW,
    { .name = "--run", .value = "ID", .kind = FLAG_INT, .min = 1, .max = 9e15,
      .help = "save the config that won this run, for the model it was measured on" },
    { .name = "--arm", .needs = "--run", .value = "LETTER", .help = "with --run: save the config of this arm instead" },
    { .name = "--remove", .help = "delete the saved config of this model" },
    { .name = "--undo", .help = "restore what was saved before; once more: take that back" },
    { .name = "--for", .value = "PROGRAM", .kind = FLAG_CHOICE, .choices = APPLY_TARGETS,
      .help = "print the config (CONFIG, that of --run, or the saved one) as settings of llama-server, ollama, "
              "lmstudio or vllm, and what does not carry over; writes nothing" },
    { .name = "--dry-run", .help = "print what would be saved and write nothing" },
    { .name = NULL },
};
/* clang-format on */

#define APPLIED(member) MEMBER(struct applied, member)
static const struct column COLUMNS[] = {
    COL("model", "model"),
    COL("config", "config"),
    COL("because", "reason", APPLIED(because)),
    COL("when", "saved at", APPLIED(when)),
    COL("run", "run", MEMBER_AS(struct applied, run_id, ID)),
    KEY("machine", APPLIED(machine)),
    KEY("model_sha256", APPLIED(model_sha256)),
    COL("path", "file", APPLIED(path)),
    COL("llama_cpp", "llama.cpp"),
    COL("llama_cpp_note", "not translated"),
    COL("for_program", "for"),
    COL("for_settings", "settings"),
    COL("for_notes", "notes"),
    COL("load", "found beside", APPLIED(load)),
};

DOCUMENT(APPLY, "qdyno.apply/1", COLUMNS, .record = true);

struct applying {
    char *model;
    struct config config;
    char because[512], load[RUN_LOAD_TEXT];
    int64_t run_id;
};

/* What other programs did to the machine while a comparison measured this arm (-1: the one that won). */
static enum err_code load_of_run(char buf[RUN_LOAD_TEXT], struct db *d, int64_t run_id, int arm,
                                 struct err *why)
{
    struct experiment_state *s = calloc(1, sizeof *s);
    enum err_code rc = s ? experiment_load(s, d, run_id, why)
                         : err_set(why, ERR_NOMEM, "out of memory for an experiment");
    if (!rc) {
        const struct run_load load = experiment_run_load(s, arm > 0 ? arm : MAX(s->headline, 1));
        experiment_run_load_text(buf, &load);
    }
    free(s);
    return rc;
}

/* A search has no arms of its own: its candidate met the config in use in another run. */
static enum err_code refuse_search(const struct run_row *r, struct err *why)
{
    json_t *outcome = NULL;
    if (r->outcome_json) (void)json_parse(&outcome, r->outcome_json, strlen(r->outcome_json), NULL);
    const long long id = (long long)r->id, confirm = (long long)json_get_int(outcome, "confirm_run", 0);
    json_decref(outcome);
    if (confirm > 0)
        return err_set(why, ERR_USAGE,
                       "run %lld is a search; run %lld compared its candidate with the config in use: qdyno "
                       "apply --run %lld",
                       id, confirm, confirm);
    return err_set(
        why, ERR_USAGE,
        "run %lld is a search that compared no candidate with the config in use, so it has no winner "
        "to save and the config in use stays; `qdyno apply CONFIG` saves one of your choice",
        id);
}

/* Without --arm the winner is saved. A run without one keeps what is in use: saving arm A, the config that
 * others were compared with, would look like a result. */
static enum err_code check_winner(const struct results *r, int arm, struct err *why)
{
    const enum verdict v = verdict_parse(r->run.verdict);
    const long long id = (long long)r->run.id;
    struct str arms = { 0 };
    if (!strcmp(r->run.kind, "tune")) return refuse_search(&r->run, why);
    const bool compared = !strcmp(r->run.kind, "ab"); /* other kinds have no verdict */
    if (arm >= 0 || (v == VERDICT_NONE && !compared) || v == VERDICT_BETTER || v == VERDICT_WORSE)
        return ERR_OK;
    for (int k = 0; k < EXPERIMENT_ARMS; k++) {
        int i = 0; /* an arm has a result for each of its workloads */
        while (i < r->n && r->result[i].arm != k) i++;
        if (i < r->n)
            str_printf(&arms, "%s --arm %c (%.60s)", arms.len ? "," : "", 'A' + k, r->result[i].config);
    }
    err_set(why, ERR_USAGE,
            "run %lld proved no config better (verdict: %s), so nothing is saved and the config in use "
            "stays%s%s",
            id, *r->run.verdict ? r->run.verdict : "none",
            arms.len ? ". To save one of its configs all the same, name it:" : "", str_text(&arms));
    str_free(&arms);
    return ERR_USAGE;
}

/* Takes model and config from run --run. The model file must still have the hash it had then. */
static enum err_code applying_from_run(struct applying *x, const struct cli_global *g,
                                       const struct cli_args *a, struct err *why)
{
    struct db *d = NULL;
    struct results r = { 0 };
    struct baseline_row b = { 0 };
    int arm;
    x->run_id = args_int(a, "--run", 0);
    if (args_has(a, "-m"))
        return err_set(why, ERR_USAGE, "run %lld already names the model: leave -m out",
                       (long long)x->run_id);
    enum err_code rc = cli_arm(&arm, a, why);
    if (!rc) rc = db_open(&d, g->db_path, why);
    if (!rc) rc = results_read(&r, d, x->run_id, why);
    if (!rc) rc = check_winner(&r, arm, why);
    if (!rc) rc = baseline_of_run(&b, &r, arm, NULL, why);
    if (!rc) rc = model_check(b.model_path, b.model_sha256, why);
    if (!rc) rc = config_parse(&x->config, b.config, why);
    if (!rc && !(x->model = strdup(b.model_path))) rc = err_set(why, ERR_NOMEM, "out of memory");
    if (!rc) {
        const bool won = arm < 0 && !strcmp(r.run.verdict, verdict_name(VERDICT_BETTER));
        snprintf(x->because, sizeof x->because, "%s run %lld: %s %.6g", won ? "won" : "measured in",
                 (long long)x->run_id, b.metric, b.value);
        config_unset(&x->config, KNOB_MODEL);
        if (!strcmp(r.run.kind, "ab")) rc = load_of_run(x->load, d, x->run_id, arm, why);
    }
    results_free(&r);
    db_close(d);
    return rc;
}

/* A config given by hand that the newest search of the model compared is kept with what that search recorded.
 * The config itself is complete, so that results which cannot be read only leave the reason out. */
static void applying_from_search(struct applying *x, const struct cli_global *g)
{
    struct db *d = NULL;
    struct machine m;
    struct evidence e = { 0 };
    struct err why;
    char line[CONFIG_LINE];
    enum err_code rc = machine_detect(&m, "", &why);
    if (!rc) rc = db_open(&d, g->db_path, &why);
    if (!rc) rc = evidence_load(&e, d, x->model, m.id, &why);
    if (rc)
        cli_note(g, "whether a search found this config is unknown, because its results cannot be read: %s",
                 why.message);
    config_line(&x->config, line, sizeof line);
    const bool won = !rc && e.found.better && !strcmp(e.found.line, line);
    if (won || (!rc && !strcmp(e.found.candidate, line))) {
        snprintf(x->because, sizeof x->because, "%.*s", (int)sizeof x->because - 1, e.found.because);
        snprintf(x->load, sizeof x->load, "%.*s", (int)sizeof x->load - 1, e.found.load);
        x->run_id = e.found.confirm_run;
    }
    evidence_free(&e);
    db_close(d);
}

/* What --undo did, in a line. was: what was in use before; NULL: no saved config. */
static void headline_undo(struct table *t, const char *model, const struct applied *was,
                          const struct applied *now)
{
    const char *name = cli_base_name(model);
    if (now)
        table_headline(t, "restored %s for %s (in use until now: %s)", now->line, name,
                       was ? was->line : "default, because none was saved");
    else
        table_headline(t, "removed the saved config of %s%s%s: none was saved before it, so default is used",
                       name, was ? ", " : "", was ? was->line : "");
}

/* Where it was written, and how to take that back. */
static void note_change(struct table *t, const struct cli_args *a, const char *model, const struct applied *k)
{
    const bool removed = args_has(a, "--remove"), undone = args_has(a, "--undo");
    if (args_has(a, "--dry-run") || !(a->n || args_has(a, "--run") || removed || undone)) return;
    if (k)
        table_note(t, "%s %s: `qdyno run`, `bench` and the dashboard use this config for the model",
                   undone ? "restored" : "saved in", k->path);
    struct str word = { 0 };
    word_append(&word, model);
    table_note(t, "to %s: qdyno apply --undo -m %s", undone ? "take that back" : "undo", str_text(&word));
    str_free(&word);
}

/* --for: for people and scripts the text as it is, so that it can be written to a file. */
static int print_for(const struct cli_global *g, const struct cli_args *a, const char *model,
                     const struct applied *k)
{
    struct err why = { 0 };
    struct str text = { 0 }, notes = { 0 };
    const char *target = args_text(a, "--for", "");
    int status = EXIT_DONE;
    enum err_code rc =
        k ? apply_for(&text, &notes, target, model, &k->config, &why)
          : err_set(&why, ERR_USAGE,
                    "no config is saved for this model: give one, as in `qdyno apply --for %s CONFIG`",
                    target);
    if (rc) {
        status = cli_fail(a, &why);
    } else if (g->output == OUTPUT_MD) {
        printf("%s\n", str_text(&text));
        for (char *line = notes.data, *end; line && *line; line = end + 1) {
            end = strchr(line, '\n');
            if (!end) break;
            printf("# %.*s\n", (int)(end - line), line);
        }
    } else {
        struct table t;
        json_t *row = table_record(&t, &DOCUMENT_APPLY);
        json_put_str(row, "model", model);
        json_put_str(row, "config", k->line);
        json_put_str(row, "for_program", target);
        json_put_str(row, "for_settings", str_text(&text));
        json_put_str(row, "for_notes", notes.len ? str_text(&notes) : NULL);
        status = cli_finish(g, a, &t, EXIT_DONE);
    }
    str_free(&text);
    str_free(&notes);
    return status;
}

/* was: what was in use before --undo; NULL: no saved config. */
static int applied_print(const struct cli_global *g, const struct cli_args *a, const char *model,
                         const struct applied *k, const struct applied *was)
{
    struct table t;
    struct str line = { 0 }, note = { 0 };
    struct err why = { 0 };
    json_t *row = table_record(&t, &DOCUMENT_APPLY);
    t.skip_absent = true;
    json_put_str(row, "model", model);
    json_put_str(row, "config", k ? k->line : NULL);
    if (k) {
        document_put(&DOCUMENT_APPLY, row, struct applied, k);
        if (*k->load && strcmp(k->line, "default")) { /* default cannot be compared with itself */
            struct str check = { 0 };
            advice_confirm_command(&check, model, "default", k->line, CONFIRM_WORKLOAD);
            table_note(
                &t,
                "it was found on a busy machine (%s), so it may not hold on a quiet one. To check that: %s",
                k->load, str_text(&check));
            str_free(&check);
        }
        const bool known = !apply_llama_cpp(&line, &note, model, &k->config, &why);
        json_put_str(row, "llama_cpp", known ? str_text(&line) : NULL);
        json_put_str(row, "llama_cpp_note", known ? (note.len ? str_text(&note) : NULL) : why.message);
    } else if (!args_has(a, "--undo")) {
        table_note(
            &t,
            "no config is saved for this model: `qdyno apply CONFIG`, `qdyno apply --run ID` or `qdyno tune` saves one");
    }
    note_change(&t, a, model, k);
    if (args_has(a, "--undo")) headline_undo(&t, model, was, k);
    if (!k && g->output == OUTPUT_MD) json_array_clear(t.rows); /* a list of n/a tells a reader nothing */
    const int status = cli_finish(g, a, &t, EXIT_DONE);
    str_free(&line);
    str_free(&note);
    return status;
}

/* Saves the config, or with --dry-run only fills *out with what would be saved. */
static enum err_code applying_save(struct applied *out, const struct cli_args *a, const struct applying *x,
                                   struct err *why)
{
    struct machine m;
    const struct apply_request r = { .model_path = x->model,
                                     .config = &x->config,
                                     .machine = &m,
                                     .because = *x->because ? x->because : NULL,
                                     .run_id = x->run_id,
                                     .load = x->load };
    enum err_code rc = machine_detect(&m, "", why);
    if (rc) return rc;
    if ((rc = config_check_own(&x->config, why))) return rc;
    if (!args_has(a, "--dry-run") && !args_has(a, "--for")) return apply_write(out, &r, why);
    *out = (struct applied){ .config = x->config, .run_id = x->run_id };
    config_line(&x->config, out->line, sizeof out->line);
    snprintf(out->because, sizeof out->because, "%s", x->because);
    snprintf(out->load, sizeof out->load, "%s", x->load);
    return ERR_OK;
}

static enum err_code args_check(const struct cli_args *a, struct err *why)
{
    const int ways = (a->n > 0) + args_has(a, "--run") + args_has(a, "--remove") + args_has(a, "--undo");
    if (ways > 1)
        return err_set(why, ERR_USAGE,
                       "CONFIG, --run, --remove and --undo exclude each other: give one of them");
    if (args_has(a, "--for") && (args_has(a, "--remove") || args_has(a, "--undo")))
        return err_set(why, ERR_USAGE, "--for writes nothing: leave --remove and --undo out");
    return ERR_OK;
}

int command_apply(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct applying x = { 0 };
    struct applied *k = calloc(1, sizeof *k), *was = calloc(1, sizeof *was);
    bool found = true, had = false;
    enum err_code rc = k && was ? args_check(a, &why) : err_set(&why, ERR_NOMEM, "out of memory");
    if (!rc && args_has(a, "--run"))
        rc = applying_from_run(&x, g, a, &why);
    else if (!rc)
        rc = cli_model(&x.model, a, &why);
    if (!rc && a->n) rc = cli_config(&x.config, a, a->arg[0], &why);
    if (!rc && a->n) applying_from_search(&x, g);
    if (!rc) {
        if (args_has(a, "--remove")) {
            rc = apply_remove(x.model, &found, &why);
            found = false;
        } else if (args_has(a, "--undo")) {
            if (apply_read(was, x.model, &had, NULL)) had = false; /* an unreadable file can be undone, too */
            rc = apply_undo(k, x.model, &found, &why);
        } else if (a->n || args_has(a, "--run")) {
            rc = applying_save(k, a, &x, &why);
        } else {
            rc = apply_read(k, x.model, &found, &why);
        }
    }
    const int status = rc ? cli_fail(a, &why)
                       : args_has(a, "--for")
                           ? print_for(g, a, x.model, found ? k : NULL)
                           : applied_print(g, a, x.model, found ? k : NULL, had ? was : NULL);
    free(x.model);
    free(k);
    free(was);
    return status;
}
