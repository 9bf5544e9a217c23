/* runs.c - see runs.h. */
#include "tui/cli/lib/runs.h"

#include <math.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
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

void cli_run_changes(struct table *t, const json_t *before, const json_t *after)
{
    if (!before || !after) {
        table_note(t, "changes unknown: %s no capsule (runs of early versions have none)",
                   before || after ? "one of the runs has" : "both runs have");
        json_put(t->extra, "changes", json_null());
        return;
    }
    json_t *diff = capsule_diff(before, after, NULL), *change;
    size_t i;
    if (!json_array_size(diff)) table_note(t, "the capsules of the two runs are equal: no recorded change");
    json_array_foreach(diff, i, change)
    {
        struct str line = { 0 };
        json_t *single = json_array();
        json_array_append(single, change);
        capsule_diff_text(&line, single, 1);
        table_note(t, "changed: %s", str_text(&line));
        json_decref(single);
        str_free(&line);
    }
    json_put(t->extra, "changes", diff);
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
