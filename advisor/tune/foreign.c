/* advisor/tune/foreign.c - a search over settings of other engines (tune_is_foreign).
 *
 * Nothing predicts how fast another engine is, so every config is measured: in groups of up to seven, each in
 * a race against the best config so far, with half of the budget. The other half is kept for a last A/B that
 * compares the best of all with the current config, because the measured effect of a selected maximum is
 * biased upwards. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "advisor/tune/parts.h"

enum { GROUP = EXPERIMENT_ARMS - 1 };
/* Of the budget, kept for the A/B of the best config, where there are several: engines need long to start, so
 * that a claim needs much of the time. */
static const double CONFIRM_SHARE = 0.5;

struct foreign {
    const struct tune_options *o;
    struct tune_result *out;
    struct config *config;       /* [n + 1], owned; [0] is the current one */
    struct tune_candidate *seen; /* [n + 1], owned by the result */
    int n, best;                 /* best: index of the champion so far */
    double pair_s;               /* of a block of two arms, as measured so far; NAN unknown */
    int64_t begun_ns;
    struct tune_progress now;
};

bool tune_is_foreign(const struct config *current, const char *space)
{
    struct tune_space *s = calloc(1, sizeof *s);
    bool foreign = config_is_foreign(current);
    if (s && space && !tune_space_parse(s, space, NULL))
        for (int d = 0; d < s->dims; d++)
            for (int i = 0; i < s->dim[d].n && !strcmp(s->dim[d].key, KNOBS[KNOB_ENGINE].key); i++)
                foreign |= strcmp(s->dim[d].value[i], KNOBS[KNOB_ENGINE].otherwise) != 0;
    free(s);
    return foreign;
}

/* ---------------------------------------------------------------- the configs */

static bool is_listed(const struct foreign *f, const struct config *c)
{
    for (int i = 0; i <= f->n; i++)
        if (config_same(&f->config[i], c)) return true;
    return false;
}

/* A config that contradicts itself is an error here: the user wrote each of them. */
static enum err_code configs_list(struct foreign *f, const struct tune_space *s, struct err *why)
{
    const int64_t all = tune_space_size(s);
    if (all > TUNE_FOREIGN)
        return err_set(
            why, ERR_USAGE,
            "--space: %lld configs with other engines, expected at most %d: all of them are measured",
            (long long)all, TUNE_FOREIGN);
    f->config = calloc((size_t)all + 1, sizeof *f->config);
    f->seen = calloc((size_t)all + 1, sizeof *f->seen);
    f->out->seen = f->seen;
    if (!f->config || !f->seen)
        return err_set(why, ERR_NOMEM, "out of memory for %lld configs", (long long)all);
    f->config[0] = *f->o->current;
    for (int64_t i = 0; i < all; i++) {
        struct config c;
        if (!tune_space_config(&c, s, i)) {
            const enum err_code rc = config_check(&c, why);
            return rc ? err_prefix(why, "--space") : err_set(why, ERR_USAGE, "--space: an invalid value");
        }
        const enum err_code rc = workload_check(&f->o->workload, &c, why);
        if (rc) return rc;
        if (!is_listed(f, &c)) f->config[++f->n] = c;
    }
    for (int i = 0; i <= f->n; i++) {
        f->seen[i] = tune_candidate_unknown(i);
        f->seen[i].same_answers = config_same_answers(&f->config[0], &f->config[i]);
        config_line(&f->config[i], f->seen[i].line, sizeof f->seen[i].line);
    }
    f->out->space = f->n + 1; /* with the current one */
    f->out->fitting = f->n;
    return f->n ? ERR_OK
                : err_set(why, ERR_USAGE, "--space has no config besides the current one, %s",
                          f->seen[0].line);
}

static enum err_code foreign_prepare(struct foreign *f, struct err *why)
{
    struct tune_space *s = calloc(1, sizeof *s);
    if (!s) return err_set(why, ERR_NOMEM, "out of memory for the search space");
    s->base = *f->o->current;
    enum err_code rc = f->o->space ? tune_space_parse(s, f->o->space, why)
                                   : err_set(why, ERR_USAGE,
                                             "which settings of the other engine? Add --space, e.g. --space "
                                             "'threads=1|2,args=\"-fa on|-fa off\"'");
    if (!rc && f->o->resume_id)
        rc = err_set(why, ERR_USAGE, "a search with other engines cannot be resumed; start it again");
    if (!rc && f->o->search_only)
        rc = err_set(why, ERR_USAGE, "--search-only is for qdyno's own engine: leave it out");
    if (!rc && f->o->limits.memory_bytes > 0)
        rc = err_set(why, ERR_USAGE, "--limit memory= is for qdyno's own engine, whose memory is planned");
    if (!rc && f->o->limits.accuracy > 0)
        rc = err_set(why, ERR_USAGE,
                     "--limit accuracy= is for qdyno's own engine: other engines are not asked");
    if (!rc) rc = configs_list(f, s, why);
    free(s);
    return rc;
}

/* ---------------------------------------------------------------- one experiment */

static double spent_s(const struct foreign *f)
{
    return (double)(clock_ns() - f->begun_ns) * 1e-9;
}

static enum err_code foreign_report(void *ctx, const struct experiment_state *s, bool *goes_on,
                                    struct err *why)
{
    (void)why;
    struct foreign *f = ctx;
    struct tune_progress *now = &f->now;
    const int running = s->running_arm >= 0 ? s->running_arm : 0;
    if (!f->o->progress) return ERR_OK;
    now->phase = s->phase == PHASE_CONFIRM ? TUNE_PHASE_CONFIRM : TUNE_PHASE_RACE;
    now->what = s->running_arm >= 0 ? "speed" : "";
    snprintf(now->config, sizeof now->config, "%s", s->arm[running].line);
    snprintf(now->why, sizeof now->why,
             "qdyno cannot predict the speed of another engine, so every configuration is measured");
    tune_progress_take(now, s);
    now->run_id = s->run_id;
    now->possible = f->n;
    now->share = fmin(spent_s(f) / f->o->budget_s, 1);
    now->left_s = fmax(f->o->budget_s - spent_s(f), 0);
    *goes_on = f->o->progress(f->o->ctx, now);
    return ERR_OK;
}

/* How fast arm k is relative to arm A: from blocks in which both ran, otherwise from the cells that there
 * are. NAN: unknown. */
static double ratio_of(const struct experiment_state *s, int k)
{
    const struct comparison *c = experiment_comparison(s, k);
    if (k && c->blocks && isfinite(c->effect.estimate)) return exp(c->effect.estimate);
    return s->arm[k].rate / s->arm[0].rate;
}

/* What the experiment says of its arms; index[k] is the config of arm k. The machine changes between
 * experiments, so normalized rates are relative to the current config, which the first experiment measured.
 */
static void arms_read(struct foreign *f, const struct experiment_state *s, const int index[], bool last)
{
    struct tune_candidate *a = &f->seen[index[0]];
    if (isnan(a->normalized_rate) && s->arm[0].rate > 0) a->normalized_rate = s->arm[0].rate;
    for (int k = 0; k < s->spec.arms; k++) {
        struct tune_candidate *c = &f->seen[index[k]];
        const struct experiment_arm *arm = &s->arm[k];
        c->failed = arm->failed;
        snprintf(c->error, sizeof c->error, "%.*s", (int)sizeof c->error - 1, arm->error);
        c->timings += arm->cells;
        /* a comparison with too few blocks says less than the race before it */
        if (last && experiment_comparison(s, 1)->blocks < BLOCKS_FOR_A_CLAIM && c->rate > 0) continue;
        if (arm->rate > 0) c->rate = arm->rate;
        if (k && arm->rate > 0) c->normalized_rate = ratio_of(s, k) * a->normalized_rate;
        if (arm->value[METRIC_PEAK_MEMORY] > 0) c->memory_bytes = (int64_t)arm->value[METRIC_PEAK_MEMORY];
    }
    if (s->block_s > 0) f->pair_s = s->block_s * 2 / s->spec.arms;
}

/* The config with the largest rate of the table that the result lists. 0: the current one. */
static int fastest_of(const struct foreign *f)
{
    int best = 0;
    for (int i = 1; i <= f->n; i++)
        if (!f->seen[i].failed && f->seen[i].normalized_rate > 0 &&
            !(f->seen[i].normalized_rate <= f->seen[best].normalized_rate))
            best = i;
    return best;
}

/* Of no use to a claim where it would take the time that the blocks need. */
static int control_blocks_of(const struct foreign *f, double budget_s, bool last)
{
    if (!last || (tune_fewest_blocks(2) + TUNE_CONTROL) * f->pair_s > budget_s) return -1; /* false for NAN */
    return 0; /* as many as is usual */
}

static enum err_code arms_compare(struct foreign *f, const int index[], int arms, double budget_s, bool last,
                                  struct experiment_state *s, struct err *why)
{
    struct experiment_spec *spec = calloc(1, sizeof *spec);
    if (!spec) return err_set(why, ERR_NOMEM, "out of memory for an experiment");
    *spec = (struct experiment_spec){ .arms = arms,
                                      .workload = f->o->workload,
                                      .margin = EXPERIMENT_MARGIN,
                                      .budget_s = budget_s,
                                      .control_blocks = control_blocks_of(f, budget_s, last),
                                      .race = arms > 2,
                                      .race_only = arms > 2,
                                      .seed = f->o->seed,
                                      .estimand = f->o->estimand };
    snprintf(spec->model, sizeof spec->model, "%s", f->o->model_path);
    for (int k = 0; k < arms; k++) spec->config[k] = f->config[index[k]];
    const enum err_code rc = tune_experiment(f->o, spec, s, foreign_report, f, why);
    free(spec);
    f->out->run_id = s->run_id;
    arms_read(f, s, index, last);
    return rc;
}

/* ---------------------------------------------------------------- the search */

/* All configs in groups, each against the best config so far. */
static enum err_code groups_race(struct foreign *f, struct experiment_state *s, struct err *why)
{
    const int groups = (f->n + GROUP - 1) / GROUP;
    const double budget_s = f->o->budget_s * (1 - CONFIRM_SHARE) / groups;
    enum err_code rc = ERR_OK;
    for (int from = 1; from <= f->n && !rc; from += GROUP) {
        int index[EXPERIMENT_ARMS] = { f->best }, arms = 1;
        for (int i = from; i < from + GROUP && i <= f->n; i++) index[arms++] = i;
        rc = arms_compare(f, index, arms, budget_s, false, s, why);
        if (!rc) f->best = fastest_of(f);
    }
    return rc;
}

/* Why the current config stays: the table has none that is faster, or nothing could be measured. */
static void explain_kept(const struct foreign *f)
{
    const struct tune_candidate *next = NULL, *failed = NULL, *a = &f->seen[0];
    char *because = f->out->because;
    for (int i = 1; i <= f->n; i++) {
        const struct tune_candidate *c = &f->seen[i];
        if (c->failed) failed = c;
        if (c->failed || !(c->normalized_rate > 0)) continue;
        if (!next || c->normalized_rate > next->normalized_rate) next = c;
    }
    if (a->failed)
        snprintf(because, TUNE_BECAUSE,
                 "it could not be measured, so nothing can be compared with it: %.200s", a->error);
    else if (next)
        snprintf(
            because, TUNE_BECAUSE,
            "of %d other configuration%s none is faster; the nearest, %.200s, has %.*f tokens/s against %.*f",
            f->n, str_plural(f->n), next->line, tune_decimals(next->normalized_rate), next->normalized_rate,
            tune_decimals(a->normalized_rate), a->normalized_rate);
    else
        snprintf(because, TUNE_BECAUSE, "no other configuration could be measured%s%.150s%s%.200s",
                 failed ? ": " : "", failed ? failed->line : "", failed ? " failed: " : "",
                 failed ? failed->error : "");
}

static void result_read(struct foreign *f, const struct experiment_state *s, const int index[])
{
    struct tune_result *r = f->out;
    const int k = s->headline > 0 ? s->headline : 1;
    char change[TUNE_CHANGE];
    r->current = f->seen[0];
    r->winner = f->seen[index[k]];
    r->confirm_run = s->run_id;
    tune_take_comparison(r, s, k, "comparison");
    r->gain = r->effect;
    r->wins = r->verdict == VERDICT_BETTER && r->blocks >= BLOCKS_FOR_A_CLAIM;
    if (r->wins) r->keep = f->config[index[k]];
    if (*r->because) return;
    if (isnan(r->effect.lower))
        tune_explain_undecided(
            r, 2, ceil((tune_fewest_blocks(2) + TUNE_CONTROL) / fmax(r->blocks, 1) * f->o->budget_s));
    else
        snprintf(r->because, sizeof r->because, "%s: %.200s is %s",
                 r->wins ? "measured better by a paired A/B" : "not proven better", r->winner.line,
                 tune_change(change, sizeof change, r));
}

static enum err_code foreign_search(struct foreign *f, struct experiment_state *s, struct err *why)
{
    int index[EXPERIMENT_ARMS] = { 0, 1 };
    double budget_s = f->o->budget_s;
    if (f->n > 1) {
        const enum err_code rc = groups_race(f, s, why);
        if (rc) return rc;
        if (!f->best || f->seen[0].failed) {
            explain_kept(f);
            return ERR_OK;
        }
        index[1] = f->best;
        budget_s = fmax(f->o->budget_s - spent_s(f), CONFIRM_SHARE * f->o->budget_s);
    }
    const enum err_code rc = arms_compare(f, index, 2, budget_s, true, s, why);
    if (!rc) result_read(f, s, index);
    return rc;
}

static int faster_first(const void *x, const void *y)
{
    const struct tune_candidate *a = x, *b = y;
    const double x_rate = a->normalized_rate, y_rate = b->normalized_rate;
    if (isnan(x_rate) != isnan(y_rate)) return isnan(x_rate) ? 1 : -1;
    return x_rate < y_rate ? 1 : x_rate > y_rate ? -1 : strcmp(a->line, b->line);
}

enum err_code tune_foreign(struct tune_result *out, const struct tune_options *o, struct err *why)
{
    struct foreign f = { .o = o, .out = out, .pair_s = NAN, .begun_ns = clock_ns() };
    struct experiment_state *s = calloc(1, sizeof *s);
    f.now = (struct tune_progress){ .what = "", .effect = { NAN, NAN, NAN }, .blocks_needed = -1 };
    out->metric = experiment_default_metric(&o->workload);
    out->keep = *o->current;
    enum err_code rc = s ? foreign_prepare(&f, why)
                         : err_set(why, ERR_NOMEM, "out of memory for an experiment");
    if (!rc) rc = foreign_search(&f, s, why);
    out->stopped = rc == ERR_CANCELLED;
    if (out->stopped) snprintf(out->because, sizeof out->because, "stopped; the measurements are stored");
    if (f.seen && !*out->current.line) out->current = f.seen[0];
    out->seconds = spent_s(&f);
    for (int i = 0; f.seen && i <= f.n; i++) {
        out->raced += f.seen[i].timings > 0;
        if (f.seen[i].timings || f.seen[i].failed) f.seen[out->n_seen++] = f.seen[i];
    }
    if (f.seen) qsort(f.seen, (size_t)out->n_seen, sizeof *f.seen, faster_first);
    free(f.config);
    free(s);
    return out->stopped ? ERR_OK : rc;
}
