/* tui/dashboard/jobs_home.c - what the first screen remembers of the model on this machine: its last runs,
 * each in one sentence, and an A/B that can be resumed. */
#include "tui/dashboard/background.h"

#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "base/cut/cut.h"

/* What the first screen shows, before it is published. */
struct home {
    struct recent_run run[RECENT_RUNS];
    int runs;
    struct stopped_run stopped_ab;
    struct setting_effects effects;
};

/* The result of a finished A/B in its own words. */
static void ab_sentence(char *out, size_t size, struct db *d, int64_t id)
{
    struct err why;
    char text[EXPERIMENT_SENTENCE];
    struct experiment_state *x = calloc(1, sizeof *x);
    if (x && !experiment_load(x, d, id, &why))
        snprintf(out, size, "%.*s", (int)size - 1,
                 experiment_sentence(text, sizeof text, x, MAX(x->headline, 1)));
    free(x);
}

/* Loading an A/B takes milliseconds, so a sentence that is known is kept. */
static void recent_add(struct home *h, const struct snapshot *before, struct db *d, const struct run_row *r)
{
    struct recent_run *out = &h->run[h->runs++];
    *out = (struct recent_run){ .line = run_line_of(r) };
    for (int i = 0; i < before->recent_count; i++)
        if (before->recent[i].line.id == r->id && !strcmp(before->recent[i].line.state, r->state))
            snprintf(out->text, sizeof out->text, "%s", before->recent[i].text);
    if (!out->text[0] && !strcmp(r->kind, "ab") && !strcmp(r->state, "done"))
        ab_sentence(out->text, sizeof out->text, d, r->id);
    if (!out->text[0]) {
        const bool file = str_starts(r->workload, "eval:"); /* its folder would hide its name */
        text_cutf(out->text, sizeof out->text, "%s %s%s%s", r->kind, r->label, *r->workload ? " on " : "",
                  file ? path_file_name(r->workload) : r->workload);
    }
}

static bool run_is_of(const struct run_row *r, const char (*sha)[HASH_HEX], int models, const char *machine)
{
    bool same = false;
    for (int i = 0; i < models && !same; i++) same = !strcmp(sha[i], r->model_sha256);
    return same && (!*machine || !strcmp(machine, r->machine));
}

void background_read_home(struct background *b, struct db *d, const char (*sha)[HASH_HEX], int models)
{
    struct err why;
    struct home h = { .runs = 0 };
    struct run_row *rows = NULL;
    int n = 0;
    bool newest_ab = true;
    char machine[sizeof rows->machine] = "";
    struct snapshot *before = malloc(sizeof *before);
    if (!before) return;
    background_copy(b, before);
    if (before->machine_known) snprintf(machine, sizeof machine, "%s", before->machine.id);
    if (db_run_find(d, NULL, SNAPSHOT_RUNS, &rows, &n, &why)) background_log(b, LOG_WARN, "%s", why.message);
    for (int i = 0; i < n; i++) {
        const struct run_row *r = &rows[i];
        if (!run_is_of(r, sha, models, machine) || !strcmp(r->state, "running")) continue;
        if (h.runs < RECENT_RUNS) recent_add(&h, before, d, r);
        setting_effects_add(&h.effects, r);
        if (strcmp(r->kind, "ab")) continue;
        const bool undecided = !strcmp(r->state, "done") && verdict_parse(r->verdict) == VERDICT_INCONCLUSIVE;
        if (newest_ab && (undecided || !strcmp(r->state, "stopped") || !strcmp(r->state, "interrupted")))
            h.stopped_ab = stopped_run_of(r);
        if (newest_ab) h.stopped_ab.undecided = undecided;
        newest_ab = false;
    }
    for (int i = 0; i < n; i++) run_row_free(&rows[i]);
    free(rows);
    free(before);
    background_lock(b);
    memcpy(b->known.recent, h.run, sizeof h.run);
    b->known.recent_count = h.runs;
    b->known.stopped_ab = h.stopped_ab;
    b->known.effects = h.effects;
    background_unlock(b);
}
