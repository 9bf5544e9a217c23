/* advisor/tune/variants_measure.c - quality of each candidate against the reference, on the same windows of
 * the same text, and speed in experiments whose first arm is always the reference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/tune/variants.h"

enum { PILOT_WINDOWS = 4 };

/* ---------------------------------------------------------------- quality */

static bool on_quality(void *ctx, const json_t *event)
{
    struct variants *s = ctx;
    (void)event;
    return variants_report(s, TUNE_PHASE_QUALITY, "quality", s->now.config);
}

static void variants_judge_quality(struct variants *s, int i)
{
    struct variant *v = &s->v[i];
    struct tune_candidate *c = &s->seen[i];
    if (v->quality.known) {
        c->kld = v->quality.kld.estimate;
        c->kld_interval = v->quality.kld;
        c->kld_se = v->quality.figures.kld_se;
        c->ppl_ratio = v->quality.ppl_ratio.estimate;
    }
    c->quality_failed = v->asked && !v->quality.known;
    if (c->quality_failed)
        snprintf(c->error, sizeof c->error, "%.*s", (int)sizeof c->error - 1, v->quality.missing);
    c->judged = v->asked;
    if (s->has_target && !v->timed) claims_gate_quality(s->o->target, &v->quality, &v->judged);
    c->target = v->judged.outcome;
}

/* Greedy texts take longer than all windows. */
static bool asks_for_greedy(const struct variants *s)
{
    for (int i = 0; s->has_target && i < s->o->target->terms; i++) {
        const struct gate_term *t = &s->o->target->term[i];
        if (t->metric < 0 && t->figure == GATE_FIRST_DIVERGENCE) return true;
    }
    return false;
}

static enum err_code measure(struct variants *s, int i, int windows, double *seconds, struct err *why)
{
    struct variant *v = &s->v[i];
    struct measured_cell c;
    struct err failed = { 0 };
    char line[CONFIG_LINE];
    const struct arm_spec arm = {
        .model = s->o->model_path, .config = &v->config, .program = s->o->program, .log = s->o->log
    };
    struct config reference; /* the unchanged file, also where the files run with a config that loses */
    tune_config_as_is(&reference, &s->v[0].config);
    if (*config_text(&s->v[0].config, KNOB_MODEL)) config_take(&reference, &s->v[0].config, KNOB_MODEL);
    const struct quality_spec spec = { .file = s->text,
                                       .ctx = s->out->quality.ctx,
                                       .chunks = windows,
                                       .model = s->o->model_path,
                                       .reference = &reference,
                                       .without_greedy = !asks_for_greedy(s) };
    config_line(&v->config, line, sizeof line);
    if (!variants_report(s, TUNE_PHASE_QUALITY, "quality", line))
        return err_set(why, ERR_CANCELLED, "stopped");
    run_measure_begin(&s->run, &c, 0);
    enum err_code rc = quality_measure(&v->quality, &arm, &spec, on_quality, s, &failed);
    run_measure_end(&s->run, &c);
    if (rc == ERR_CANCELLED) {
        cell_done(&c);
        return err_set(why, ERR_CANCELLED, "stopped");
    }
    *seconds = c.seconds;
    v->asked = true;
    if (rc) {
        v->quality = (struct quality){ 0 };
        snprintf(v->quality.missing, sizeof v->quality.missing, "%.*s", (int)sizeof v->quality.missing - 1,
                 failed.message);
    }
    c.failure = failed; /* code 0 when there is none */
    rc = variants_store_quality(s, i, &c, why);
    cell_done(&c);
    return rc;
}

/* Windows for everyone: as many as `seconds` allow, judged by one measurement of PILOT_WINDOWS. */
static int windows_for(const struct variants *s, int candidates, double pilot_s, double seconds)
{
    const int most = quality_context_default_windows(s->out->quality.ctx);
    const double fit = seconds / candidates / fmax(pilot_s, 1e-3) * PILOT_WINDOWS;
    return fit >= most ? most : fit > PILOT_WINDOWS ? (int)fit : (int)PILOT_WINDOWS;
}

/* Every comparison measures the reference's perplexity, too. */
static void reference_perplexity(struct variants *s)
{
    for (int i = 1; i < s->n; i++) {
        const struct perplexity *p = &s->v[i].quality.figures.reference;
        if (!s->v[i].quality.known) continue;
        if (s->reference_changed) return; /* its own was measured */
        s->v[0].quality.figures.reference = s->v[0].quality.figures.candidate = *p;
        s->v[0].quality.ppl = (struct interval){ p->ppl, p->ppl - 1.96 * p->ppl_se,
                                                 p->ppl + 1.96 * p->ppl_se };
        return;
    }
}

static bool quality_is_done(const struct variants *s, int i)
{
    const struct variant *v = &s->v[i];
    return v->asked && (!v->quality.known || v->quality.figures.candidate.chunks == s->windows);
}

/* The same windows for every candidate: losses on different amounts of text do not compare. */
enum err_code variants_quality(struct variants *s, int from, double share, struct err *why)
{
    int todo = 0, first = -1;
    double pilot_s = 0, ignored;
    enum err_code rc = ERR_OK;
    for (int i = from; i < s->n; i++) {
        if (quality_is_done(s, i)) continue;
        todo++;
        if (first < 0) first = i;
    }
    snprintf(s->now.why, sizeof s->now.why, "its loss against %s decides whether it may be chosen",
             path_file_name(s->out->reference));
    if (first >= 0 && !s->windows) {
        rc = measure(s, first, PILOT_WINDOWS, &pilot_s, why);
        if (rc) return rc;
        s->windows = windows_for(s, todo, pilot_s, share * s->o->budget_s);
    }
    for (int i = from; i < s->n && !rc; i++) {
        if (!quality_is_done(s, i)) rc = measure(s, i, s->windows, &ignored, why);
        if (!rc) s->out->judged++;
    }
    reference_perplexity(s);
    for (int i = 0; i < s->n; i++) variants_judge_quality(s, i);
    return rc;
}

/* ---------------------------------------------------------------- speed */

struct comparing {
    struct variants *s;
    struct experiment_state *x; /* the state of the experiment, read again before each report */
    const char *stage;
    bool last;  /* it is the confirmation */
    int judged; /* blocks when the target was judged */
    const int *list;
    int n;
    bool enough; /* the target is answered: no more blocks are needed */
};

/* The table keeps the rates of the experiment in which all ran side by side; only their ratio to the
 * reference carries over to another one, because the machine changes between experiments. */
static void rate_read(struct variants *s, const struct experiment_state *x, int arm, int i)
{
    struct variant *v = &s->v[i];
    struct tune_candidate *c = &s->seen[i], *a = &s->seen[0];
    const double rate = x->arm[arm].rate;
    v->timed = true;
    if (!i && c->rate > 0) return; /* a further group: the reference was timed in the first */
    c->rate = rate;
    c->rate_interval = experiment_rate(x, arm);
    v->effect = arm ? experiment_comparison(x, arm)->effect : (struct interval){ 0, 0, 0 };
    if (arm && isnan(v->effect.estimate)) v->effect.estimate = log(rate / x->arm[0].rate);
    c->normalized_rate = i ? a->rate * rate / x->arm[0].rate : rate;
}

/* What the blocks so far say of candidate i, which is arm `arm`. */
static void arm_judge(struct variants *s, struct experiment_state *x, int arm, int i)
{
    struct variant *v = &s->v[i];
    x->comparison[arm].quality = v->quality;
    /* the reference is in every experiment: a further one does not take back what the first decided */
    const bool decided = v->judged.outcome == GATE_PASS || v->judged.outcome == GATE_FAIL;
    if (!i && v->run && v->run != x->run_id && decided) return;
    v->load = experiment_run_load(x, MAX(arm, 1)); /* arm A has that of its first challenger */
    v->blocks = experiment_comparison(x, MAX(arm, 1))->blocks;
    v->run = x->run_id;
    if (s->has_target) claims_gate(s->o->target, x, arm, &v->judged);
}

static void arm_read(struct variants *s, struct experiment_state *x, int arm, int i, bool confirms)
{
    struct tune_candidate *c = &s->seen[i];
    const struct experiment_arm *a = &x->arm[arm];
    c->failed = a->failed;
    if (a->failed) snprintf(c->error, sizeof c->error, "%.*s", (int)sizeof c->error - 1, a->error);
    c->timings += a->cells;
    if (a->rate > 0 && !confirms) rate_read(s, x, arm, i);
    if (a->value[METRIC_PEAK_MEMORY] > 0) c->memory_bytes = (int64_t)a->value[METRIC_PEAK_MEMORY];
    arm_judge(s, x, arm, i);
    c->target = s->v[i].judged.outcome;
}

/* No further block can change the answer: the best that may be chosen passes, or none is open. */
static bool is_answered(const struct comparing *c)
{
    const struct variants *s = c->s;
    const struct variant *first = NULL;
    for (int k = 0; k < c->n; k++) {
        const struct variant *v = &s->v[c->list[k]];
        const bool open = v->judged.outcome == GATE_UNDECIDED || v->judged.outcome == GATE_INVALID;
        if (open && s->o->goal == GOAL_SPEED) return false; /* it may be the fastest */
        if (s->o->goal != GOAL_SPEED && !first && v->judged.outcome != GATE_FAIL) first = v;
    }
    return !first || first->judged.outcome == GATE_PASS; /* lists are in the order of their loss */
}

static enum err_code on_experiment(void *ctx, const struct experiment_state *x, bool *goes_on,
                                   struct err *why)
{
    struct comparing *c = ctx;
    struct variants *s = c->s;
    const int running = x->running_arm >= 0 ? x->running_arm : 0;
    const bool last = c->last;
    enum err_code rc = variants_stage_set(s, c->stage, x->run_id, why);
    if (rc) return rc;
    if (s->has_target && x->blocks >= BLOCKS_FOR_A_CLAIM && x->blocks != c->judged) {
        c->judged = x->blocks;
        for (int k = 0; k < c->n; k++) arm_judge(s, c->x, k, c->list[k]);
        c->enough = is_answered(c);
    }
    if (last) tune_progress_take(&s->now, x);
    snprintf(s->now.why, sizeof s->now.why, "%s",
             last ? "a new A/B against the reference decides"
                  : "all candidates take turns with the reference");
    *goes_on = variants_report(s, last ? TUNE_PHASE_CONFIRM : TUNE_PHASE_RACE,
                               x->running_arm >= 0 ? "speed" : "", x->arm[running].line) &&
               !c->enough;
    return ERR_OK;
}

static void spec_make(struct experiment_spec *spec, const struct variants *s, const int *list, int n,
                      double budget_s, bool last)
{
    *spec = (struct experiment_spec){ .arms = n,
                                      .workload = s->o->workload,
                                      .margin = EXPERIMENT_MARGIN,
                                      .budget_s = budget_s,
                                      .control_blocks = last ? 0 : -1,
                                      .seed = s->o->seed,
                                      .estimand = s->o->estimand };
    snprintf(spec->model, sizeof spec->model, "%s", s->o->model_path);
    for (int k = 0; k < n; k++) spec->config[k] = s->v[list[k]].config;
    if (s->has_target) snprintf(spec->gate, sizeof spec->gate, "%s", s->o->target->text);
}

/* The experiment of an earlier session with these arms: whether it can be continued, or else is over. */
static bool stage_earlier(struct variants *s, const char *stage, const struct experiment_spec *spec,
                          bool *open, struct experiment_state *x)
{
    struct run_row row = { 0 };
    const int64_t run = variants_stage_run(s, stage);
    bool same = run && !db_run_get(s->db, run, &row, NULL) && !experiment_load(x, s->db, run, NULL) &&
                x->spec.arms == spec->arms;
    *open = same && experiment_is_open(&row) && strcmp(row.state, "failed");
    for (int k = 0; same && k < spec->arms; k++) same = config_same(&x->spec.config[k], &spec->config[k]);
    run_row_free(&row);
    return same;
}

enum err_code variants_compare(struct variants *s, const char *stage, const int *list, int n, double budget_s,
                               struct experiment_state *x, struct err *why)
{
    struct comparing c = {
        .s = s, .x = x, .stage = stage, .last = !strcmp(stage, "confirm"), .list = list, .n = n
    };
    struct experiment_spec *spec = calloc(1, sizeof *spec);
    bool open = false;
    if (!spec) return err_set(why, ERR_NOMEM, "out of memory for an experiment");
    spec_make(spec, s, list, n, budget_s, c.last);
    enum err_code rc = ERR_OK;
    const bool earlier = stage_earlier(s, stage, spec, &open, x);
    if (earlier && open) spec->resume_id = variants_stage_run(s, stage);
    if (!earlier || open) rc = tune_experiment(s->o, spec, x, on_experiment, &c, why);
    if (rc == ERR_CANCELLED && c.enough) rc = ERR_OK;
    if (!rc)
        for (int k = 0; k < n; k++) arm_read(s, x, k, list[k], c.last);
    if (!rc && x->block_s > 0) s->pair_s = x->block_s * 2 / n;
    free(spec);
    return rc;
}
