/* tui/frame/snapshot.c - questions that several views ask of a snapshot. */
#include "tui/frame/frame.h"

#include <math.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "base/cut/cut.h"

const char RANDOM_WEIGHTS_TEXT[] = "random weights: quality figures mean nothing";

double snapshot_limit_share(double rate, double limit)
{
    return limit > 0 ? rate / limit : NAN;
}

struct interval advice_decode_rate(const struct advice *a, int *runs)
{
    if (runs) *runs = a->decode.runs;
    return a->prediction.decode_tok_s;
}

struct interval snapshot_decode_rate(const struct snapshot *s, const char *line, int *runs)
{
    char canonical[CONFIG_LINE], estimated[CONFIG_LINE];
    struct config c;
    if (runs) *runs = 0;
    if (!config_parse(&c, line, NULL)) line = config_line(&c, canonical, sizeof canonical);
    for (int i = 0; i < s->advice_count; i++) {
        const struct advice *a = &s->advice[i];
        if (a->prediction.on_gpu || strcmp(a->line, line) != 0) continue;
        return advice_decode_rate(a, runs);
    }
    const struct line_estimates *j = &s->estimates;
    if (config_parse(&c, j->text, NULL) || strcmp(config_line(&c, estimated, sizeof estimated), line) != 0)
        return (struct interval){ NAN, NAN, NAN };
    return (struct interval){ j->decode_tok_s, j->low, j->high };
}

const char *snapshot_caution(const struct snapshot *s)
{
    if (s->model.unknown || (s->experiment_known && s->experiment.answers_unverified))
        return ANSWERS_UNVERIFIED;
    return s->model.random_weights || (s->experiment_known && s->experiment.random_weights)
               ? RANDOM_WEIGHTS_TEXT
               : NULL;
}

bool snapshot_is_running(const struct snapshot *s)
{
    return s->experiment_known && s->experiment_live && s->experiment.phase < PHASE_DONE;
}

bool snapshot_is_timing(const struct snapshot *s)
{
    if (!snapshot_is_running(s) || s->experiment.running_arm < 0) return false;
    const char *phase = s->experiment.cell_phase;
    return !strcmp(phase, "prefill") || !strcmp(phase, "decode") || !strcmp(phase, "eval");
}

bool snapshot_waits_quiet(const struct snapshot *s)
{
    return snapshot_is_running(s) && !strcmp(s->experiment.cell_phase, EXPERIMENT_WAITS);
}

bool snapshot_running_job(const struct snapshot *s, struct queued_job *out)
{
    *out = (struct queued_job){ .since_ms = s->command_started_ms, .command = s->command };
    if (snapshot_is_running(s)) out->run_id = s->experiment.run_id;
    return s->command.n > 0;
}

const struct live *snapshot_live(const struct snapshot *s)
{
    return s->load_source == LOAD_OF_SERVER       ? &s->server.live
           : s->load_source == LOAD_OF_EXPERIMENT ? &s->experiment.live
                                                  : NULL;
}

bool snapshot_load_is_remote(const struct snapshot *s)
{
    return s->load_source == LOAD_OF_EXPERIMENT && !s->experiment.live.settings[0];
}

const struct occupancy *snapshot_occupancy(const struct snapshot *s)
{
    const struct occupancy *o = s->load_source == LOAD_OF_SERVER ? &s->server.occupancy
                                                                 : &s->experiment.occupancy;
    const bool known = s->load_source == LOAD_OF_SERVER ? s->server.known
                                                        : s->experiment_known && o->arm >= 0;
    return known && o->blocks > 0 ? o : NULL;
}

void series_push(struct series *s, double v)
{
    if (s->n == SNAPSHOT_HISTORY) memmove(s->v, s->v + 1, sizeof s->v[0] * (SNAPSHOT_HISTORY - 1));
    s->n = MIN(s->n + 1, (int)SNAPSHOT_HISTORY);
    s->v[s->n - 1] = (float)v;
}

void snapshot_fold_log(struct snapshot *s)
{
    int kept = 0, before = 0;
    for (int i = 0; i < s->log_count; i++) {
        const struct log_line l = s->log[i];
        before = l.disturbed ? before + 1 : 0;
        if (before > 1) kept--; /* it takes the place of the one before */
        struct log_line *to = &s->log[kept++];
        *to = l;
        if (before > 1)
            text_cutf(to->text, sizeof to->text, "%s (as %s %d before it)", l.text,
                      before > 2 ? "were" : "was", before - 1);
    }
    s->log_count = kept;
}

bool snapshot_is_folded(const struct snapshot *s, int row)
{
    return s->advice_folded > 0 && row == s->advice_count - 1;
}
