/* runs.c - see runs.h. */
#include "tui/cli/lib/runs.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/run/run.h"
#include "db/db.h"
#include "tui/cli/lib/lib.h"

enum err_code cli_run_id(int64_t *id, const char *text, struct err *why)
{
    if (str_to_i64(text, id) && *id > 0) return ERR_OK;
    char shown[HTTP_SHOWN_MAX];
    return err_set(why, ERR_USAGE, "'%s' is not a run number: expected a number that `qdyno history` lists",
                   cli_word_shown(text, shown));
}

enum err_code cli_arm(int *arm, const struct cli_args *a, struct err *why)
{
    const char *given = args_text(a, "--arm", NULL);
    *arm = -1;
    if (!given) return ERR_OK;
    const char letter = (char)(given[0] & ~0x20); /* ASCII upper case */
    *arm = letter - 'A';
    if (given[0] && !given[1] && *arm >= 0 && *arm < EXPERIMENT_ARMS) return ERR_OK;
    return err_set(why, ERR_USAGE, "--arm %s: expected one letter from A to %c", given,
                   'A' + EXPERIMENT_ARMS - 1);
}

double cli_run_margin(const struct run_row *run)
{
    json_t *spec = NULL;
    if (!run->spec_json || json_parse(&spec, run->spec_json, strlen(run->spec_json), NULL)) return NAN;
    const double margin = json_get_num(spec, "margin", NAN);
    json_decref(spec);
    return margin > 0 ? margin : NAN;
}

/* "load": in words, what other work took in either run; null: too little to matter, or unknown. */
static void put_load(struct table *t, const struct run_recorded *before, const struct run_recorded *after)
{
    char text[192];
    const bool loaded = conditions_load(text, sizeof text, before->conditions, after->conditions);
    json_put_str(t->extra, "load", loaded ? text : NULL);
}

void cli_run_changes(struct table *t, const struct results *before, const struct results *after)
{
    enum { ABOVE = 12 }; /* more changes are listed below the table */
    const struct run_recorded a = results_recorded(before), b = results_recorded(after);
    json_t *diff = run_changes(&a, &b, NULL), *change;
    struct str lead = { 0 };
    size_t i;
    run_changes_lead(&lead, &a, &b, diff);
    table_lines(t, table_headline, str_text(&lead));
    str_free(&lead);
    json_array_foreach(diff, i, change)
    {
        struct str line = { 0 };
        run_change_text(&line, change);
        if (i < ABOVE)
            table_headline(t, "  %s", str_text(&line));
        else
            table_note(t, "differs, too: %s", str_text(&line));
        str_free(&line);
    }
    if (json_array_size(diff) > ABOVE)
        table_headline(t, "  and %d more, below the table", (int)json_array_size(diff) - ABOVE);
    const bool known = (before->capsule && after->capsule) || json_array_size(diff);
    json_put(t->extra, "changes", known ? diff : json_null());
    if (!known) json_decref(diff);
    put_load(t, &a, &b);
}

void cli_put_run(json_t *to, int64_t id)
{
    json_put(to, "run", id ? json_integer(id) : json_null());
}

void cli_note_run(struct table *t, int64_t id)
{
    if (id)
        table_note(t, "run %" PRId64 "; to print it again: qdyno show %" PRId64, id, id);
    else
        table_note(
            t, "this run has no number, because it could not be stored: `qdyno show` cannot print it again. "
               "Remove the cause, or store it in another file (--db FILE), and repeat the command");
}

static enum err_code outcome_add_table(struct db *d, const struct run_row *run, const struct table *t,
                                       struct err *why)
{
    json_t *all = NULL, *table = table_document(t);
    if (run->outcome_json) (void)json_parse(&all, run->outcome_json, strlen(run->outcome_json), NULL);
    if (!json_is_object(all)) {
        json_decref(all);
        all = json_object();
    }
    json_object_update(all, table);
    char *text = json_line(all);
    json_decref(all);
    json_decref(table);
    enum err_code rc = text
                           ? db_run_finish(d, run->id, run->state, run->verdict, run->effect_ratio, text, why)
                           : err_set(why, ERR_NOMEM, "no memory for the result of run %" PRId64, run->id);
    free(text);
    return rc;
}

enum err_code cli_run_store_table(const struct cli_global *g, int64_t run_id, const char *kind,
                                  const struct table *t, struct err *why)
{
    struct db *d = NULL;
    struct run_row run = { 0 };
    if (!run_id) return ERR_OK;
    enum err_code rc = db_open(&d, g->db_path, why);
    if (!rc) rc = db_run_get(d, run_id, &run, why);
    if (!rc && !strcmp(run.kind, kind)) rc = outcome_add_table(d, &run, t, why);
    run_row_free(&run);
    db_close(d);
    return rc;
}

enum err_code cli_run_finish(struct run *r, const struct table *t, const char *state, enum err_code rc,
                             struct err *why)
{
    struct err stored = { 0 };
    json_t *document = t ? table_document(t) : NULL;
    const struct run_outcome outcome = { .state = rc ? "stopped" : state,
                                         .effect_ratio = NAN,
                                         .document = document };
    run_finish(r, &outcome, &stored);
    json_decref(document);
    if (rc || !stored.code) return rc;
    *why = stored;
    return stored.code;
}
