/* advisor/tune/tune.c - the run of a search: prune by prediction, race by measurement, confirm by an A/B,
 * decide.
 */
#include "advisor/tune/tune.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/tune/parts.h"

enum { SEARCH_WINDOWS = 6, FINAL_WINDOWS = 24 };
static const double CONFIRM_SHARE = 1.0 / 3; /* of the budget; the rest searches */
/* Of the score: a third of a per cent of speed ends the search; a tenth, where nothing will confirm it. */
static const double LEAST_PROMISE = 0.003, LEAST_UNCONFIRMED = 0.001;
static const double NEVER = 0.02; /* chance below which a prediction rules out */

/* ---------------------------------------------------------------- before anything is measured */

static enum err_code predict_one(struct prediction *p, const struct tuning *t, const struct config *c,
                                 struct err *why)
{
    return predict(p, t->file, c, t->o->machine, t->o->ceilings, &t->what, why);
}

static bool fits(const struct tuning *t, const struct prediction *p)
{
    return p->fits && (t->o->limits.memory_bytes <= 0 || p->plan.total <= t->o->limits.memory_bytes);
}

/* All that fits, the current configuration in front. */
static enum err_code list_candidates(struct tuning *t, struct err *why)
{
    const int64_t all = tune_space_size(&t->space);
    struct prediction p;
    struct config config;
    struct err ignored;
    char line[640];
    t->out->space = all;
    t->list = calloc((size_t)all + 1, sizeof *t->list);
    if (!t->list) return err_set(why, ERR_NOMEM, "no memory for %lld configurations", (long long)all);
    t->list[t->n].index = -1;
    tune_describe(&t->list[t->n++], t, t->o->current, &t->reference);
    for (int64_t i = 0; i < all; i++) {
        if (!tune_space_config(&config, &t->space, i)) continue;
        if (workload_check(&t->o->workload, &config, &ignored)) continue;
        config_line(&config, line, sizeof line);
        if (!strcmp(line, t->list[0].line)) {
            t->list[0].index = i; /* it is a point of the space: what is learned of it is learned of others */
            continue;
        }
        if (predict_one(&p, t, &config, &ignored) || !fits(t, &p)) continue;
        struct tune_candidate *c = &t->list[t->n++];
        *c = (struct tune_candidate){ .index = i };
        tune_describe(c, t, &config, &p);
    }
    return t->n > 1 ? ERR_OK
                    : err_set(why, ERR_FIT, "no configuration of the space fits besides the current one%s",
                              t->o->limits.memory_bytes > 0 ? " within the memory limit" : "");
}

/* What cannot win even at the upper end of its interval, while another that is no likelier to miss the limits
 * does better at its lower end: dropped before anything is measured. So is what surely says something else.
 * (Only then: were all that is left behind refused for their answers, what could win would be gone.) */
static enum err_code prune(struct tuning *t, struct err *why)
{
    struct bounds {
        double low, high, guess;
    } *all = calloc((size_t)t->n, sizeof *all);
    if (!all) return err_set(why, ERR_NOMEM, "no memory for %d candidates", t->n);
    for (int i = 0; i < t->n; i++) {
        const struct tune_candidate *c = &t->list[i];
        all[i] = (struct bounds){ c->low > 0 ? tune_score(t, c, log(c->low)) : -INFINITY,
                                  c->high > 0 ? tune_score(t, c, log(c->high)) : INFINITY, c->ln_guess };
    }
    int n = 1;
    for (int i = 1; i < t->n; i++) {
        bool beaten = tune_chance(t, i) < NEVER;
        for (int k = 0; k < t->n && !beaten; k++)
            beaten = all[k].guess <= all[i].guess && all[k].low > all[i].high;
        if (!beaten) t->list[n++] = t->list[i];
    }
    free(all);
    t->n = n;
    t->out->fitting = n - 1; /* the current configuration is in front */
    struct tune_candidate *fewer = realloc(t->list, (size_t)n * sizeof *fewer); /* each is large */
    if (fewer) t->list = fewer;
    return ERR_OK;
}

static enum err_code check_options(const struct tune_options *o, struct err *why)
{
    const struct workload *w = &o->workload;
    if (*w->eval_file || w->train)
        return err_set(why, ERR_USAGE,
                       "tune races the speed of running: want a workload such as tg64 or pp512");
    if (!(o->budget_s > 0))
        return err_set(why, ERR_USAGE, "a budget of %g seconds: want more than 0", o->budget_s);
    return ERR_OK;
}

static enum err_code prepare(struct tuning *t, struct err *why)
{
    const struct tune_options *o = t->o;
    enum err_code rc = check_options(o, why);
    t->out->metric = experiment_default_metric(&o->workload);
    if (!rc) rc = gguf_open(&t->file, o->model_path, why);
    if (!rc) rc = model_shape_read(&t->shape, t->file, why);
    if (!rc) rc = db_open(&t->db, o->db_path, why);
    if (!rc) rc = correction_load(&t->correction, t->db, o->machine->id, o->ceilings, why);
    if (!rc) rc = tune_space(&t->space, t->file, o->machine, &o->workload, o->goal, o->space, why);
    if (rc) return rc;
    t->space.base = *o->current;
    t->out->random_weights = t->shape.random_weights;
    snprintf(t->out->left_out, sizeof t->out->left_out, "%s", t->space.left_out);
    snprintf(t->out->doubles, sizeof t->out->doubles, "%s", t->space.doubles);
    for (int d = 0; d < t->space.dims; d++)
        if (!strcmp(t->space.dim[d].key, "recipe")) t->recipe_dim = d;
    t->what = predict_for_workload(&o->workload);
    t->what.correction = t->correction;
    rc = predict_one(&t->reference, t, o->current, why);
    if (rc) return err_prefix(why, "the current configuration");
    rc = tune_belief_open(&t->speed, &t->space, 0.5, 0.25, 0.03, why);
    if (!rc) rc = tune_belief_open(&t->loss, &t->space, 2, 0.8, 0.4, why);
    if (!rc) rc = list_candidates(t, why);
    if (!rc) rc = prune(t, why);
    t->window = calloc(WINDOW_SAMPLES, sizeof *t->window);
    t->stored = calloc(WINDOW_STORED, sizeof *t->stored);
    if (!rc && (!t->window || !t->stored)) rc = err_set(why, ERR_NOMEM, "no memory for samples");
    return rc;
}

/* ---------------------------------------------------------------- the race */

/* Windows of text for one look at quality in the race: a twenty-fifth of the budget at the predicted rate,
 * both models read them. */
static int search_windows(const struct tuning *t)
{
    enum { LEAST = 2, TOKENS = 256 };
    const double rate = t->reference.prefill_tok_s, fit = 0.04 * t->o->budget_s * rate / (2 * TOKENS);
    if (!(rate > 0)) return SEARCH_WINDOWS;
    return fit >= SEARCH_WINDOWS ? (int)SEARCH_WINDOWS : fit > LEAST ? (int)fit : (int)LEAST;
}

/* And for the finalists: at most a quarter of what is left; 0: there is no time for more than the race had.
 */
static int final_windows(const struct tuning *t)
{
    const int had = search_windows(t);
    const double fit = 0.125 * (t->o->budget_s - tune_spent(t)) / t->judge_s * had;
    if (!(fit > had)) return 0;
    return fit >= FINAL_WINDOWS ? (int)FINAL_WINDOWS : (int)fit;
}

/* What a block of the confirmation takes: two cells an arm, and a new process where that costs no more. */
static double block_s(const struct tuning *t, int arms)
{
    const double cells_s = 2 * fmax(t->cell_s, CELL_LEAST_S);
    return arms * (cells_s + (t->start_s <= cells_s ? t->start_s : 0));
}

/* And a confirmation that may end in a verdict, the control and warming up included. */
static double verdict_s(const struct tuning *t, int arms)
{
    return (BLOCKS_FOR_A_CLAIM + 3) * block_s(t, arms) + (t->start_s > 0 ? arms * t->start_s : 0);
}

/* What the race leaves to the confirmation: nothing where a verdict would take more than half of the budget.
 */
static double confirmation_s(const struct tuning *t)
{
    const double needed = verdict_s(t, 3), whole = t->o->budget_s;
    return t->o->search_only || needed > 0.5 * whole ? 0 : fmax(needed, CONFIRM_SHARE * whole);
}

static enum err_code race(struct tuning *t, struct err *why)
{
    enum { MOST_LOOKS = 3 }; /* the confirmation tells more, where there is one */
    enum err_code rc = ERR_OK;
    if (!t->list[0].looks && !t->list[0].failed) rc = tune_look(t, 0, why);
    if (!rc && t->list[0].failed)
        rc = err_set(why, ERR_USAGE, "the current configuration cannot run: %s", t->list[0].error);
    if (!rc && isnan(t->list[0].kld)) rc = tune_judge(t, 0, search_windows(t), why);
    while (!rc) {
        const double later_s = confirmation_s(t), left_s = t->o->budget_s - later_s - tune_spent(t);
        const double least = later_s > 0 ? LEAST_PROMISE : LEAST_UNCONFIRMED;
        const int most_looks = later_s > 0 ? MOST_LOOKS : INT_MAX;
        int i;
        bool judge;
        if (left_s <= 0 || !tune_next(t, least, left_s, most_looks, &i, &judge)) break;
        rc = judge ? tune_judge(t, i, search_windows(t), why) : tune_look(t, i, why);
    }
    t->out->search_s = tune_spent(t);
    return rc;
}

/* The finalists' answers on more text than the race had time for; one that was lucky falls out. */
static enum err_code judge_finalists(struct tuning *t, int *winner, int *second, struct err *why)
{
    bool done[2] = { false, false };
    int last[2] = { -1, -1 };
    for (int round = 0; round < 6; round++) {
        *winner = tune_best(t, -1);
        *second = *winner > 0 ? tune_best(t, *winner) : -1;
        const int final[2] = { *winner, *second };
        int todo = -1;
        for (int k = 0; k < 2; k++) {
            if (final[k] != last[k]) done[k] = false;
            last[k] = final[k];
            if (final[k] > 0 && !done[k] && t->list[final[k]].kld > 0 && todo < 0) todo = k;
        }
        const int windows = todo < 0 ? 0 : final_windows(t);
        if (!windows) return ERR_OK;
        done[todo] = true;
        enum err_code rc = tune_judge(t, final[todo], windows, why);
        if (rc) return rc;
    }
    return ERR_OK;
}

/* ---------------------------------------------------------------- the confirmation */

static enum err_code spec_of(struct experiment_spec *s, const struct tuning *t, int winner, int second,
                             struct err *why)
{
    const int finalist[] = { 0, winner, second }, arms = second > 0 ? 3 : 2;
    enum err_code rc = ERR_OK;
    /* The last block begins within an experiment's budget and ends beyond it. */
    const double left_s = t->o->budget_s - tune_spent(t) - block_s(t, arms);
    *s = (struct experiment_spec){ .arms = arms,
                                   .workload = t->o->workload,
                                   .margin = 0.01,
                                   .budget_s = fmax(left_s, 0.1 * t->o->budget_s),
                                   .seed = t->o->seed,
                                   .resume_id = t->confirm_run };
    snprintf(s->model, sizeof s->model, "%s", t->o->model_path);
    for (int k = 0; k < s->arms && !rc; k++) rc = tune_config(&s->config[k], t, &t->list[finalist[k]], why);
    return rc;
}

/* An older confirmation of the same three goes on; of others it is left as it is. */
static bool is_same_confirmation(struct tuning *t, const struct experiment_spec *s)
{
    struct run_row run = { 0 };
    struct experiment_spec *old = calloc(1, sizeof *old);
    json_t *object = NULL;
    bool same = old && t->confirm_run && !db_run_get(t->db, t->confirm_run, &run, NULL) && run.spec_json &&
                !strcmp(run.state, "running") + !strcmp(run.state, "stopped") &&
                !json_parse(&object, run.spec_json, strlen(run.spec_json), NULL) &&
                !experiment_spec_from_json(old, object, NULL) && old->arms == s->arms;
    for (int k = 0; same && k < s->arms; k++) {
        char x[640], y[640];
        same = !strcmp(config_line(&old->config[k], x, sizeof x), config_line(&s->config[k], y, sizeof y));
    }
    json_decref(object);
    run_row_free(&run);
    free(old);
    return same;
}

static enum err_code note_confirmation(struct tuning *t, int64_t run_id, struct err *why)
{
    char text[24];
    if (t->confirm_run == run_id || !run_id) return ERR_OK;
    t->confirm_run = t->out->confirm_run = run_id;
    snprintf(text, sizeof text, "%lld", (long long)run_id);
    enum err_code rc = db_event_add(t->db, t->run.id, "confirm", text, why);
    return rc ? rc : db_link_put(t->db, run_id, t->run.id, "confirm", "", why);
}

static bool goes_on(const struct tuning *t, const struct experiment_state *s)
{
    char text[160];
    snprintf(text, sizeof text, "confirming %s, block %d", t->out->winner.line, s->block + 1);
    return !t->o->progress || t->o->progress(t->o->ctx, text, tune_spent(t) / t->o->budget_s);
}

static enum err_code run_confirmation(struct tuning *t, const struct experiment_spec *spec,
                                      struct experiment_state *s, struct err *why)
{
    struct experiment *x = NULL;
    const struct experiment_deps deps = { .db_path = t->o->db_path,
                                          .sampler = t->o->sampler,
                                          .machine = t->o->machine,
                                          .program = t->o->program,
                                          .log = t->o->log };
    int64_t version = 0;
    bool asked = false;
    enum err_code rc = experiment_start(&x, spec, &deps, why);
    while (!rc && !experiment_finished(x)) {
        experiment_wait(x, &version, 200);
        experiment_state(x, s);
        rc = note_confirmation(t, s->run_id, why);
        if (asked || goes_on(t, s)) continue;
        experiment_stop(x);
        asked = true;
    }
    if (x) experiment_state(x, s);
    experiment_close(x);
    if (!rc) rc = note_confirmation(t, s->run_id, why);
    if (!rc && asked) rc = err_set(why, ERR_CANCELLED, "stopped");
    if (!rc && s->phase == PHASE_FAILED)
        rc = err_set(why, s->error_code, "the confirmation failed: %s", s->error);
    return rc;
}

/* What the score gained at least, and at most: the effect's bounds and those of KL divergence. */
static struct interval gain_of(const struct tuning *t, const struct tune_candidate *c, struct interval effect)
{
    const struct tune_weights *w = &TUNE_WEIGHTS[t->o->goal];
    const struct tune_candidate *a = &t->list[0];
    const double rest = -w->memory * log((double)c->memory_bytes / (double)a->memory_bytes) -
                        w->energy * log(c->read_bytes / a->read_bytes) - w->kld * (c->kld - a->kld);
    const double doubt = 1.96 * w->kld *
                         hypot(isnan(c->kld_se) ? 0 : c->kld_se, isnan(a->kld_se) ? 0 : a->kld_se);
    return (struct interval){ w->speed * effect.estimate + rest, w->speed * effect.lower + rest - doubt,
                              w->speed * effect.upper + rest + doubt };
}

static void read_confirmation(struct tuning *t, const struct experiment_state *s, int winner, int second)
{
    struct tune_result *r = t->out;
    const int finalist[] = { 0, winner, second };
    int best = 1;
    for (int k = 1; k < s->spec.arms; k++) {
        const struct interval one = gain_of(t, &t->list[finalist[k]], s->comparison[k].effect),
                              other = gain_of(t, &t->list[finalist[best]], s->comparison[best].effect);
        if (one.lower > other.lower || (isnan(other.lower) && !isnan(one.lower))) best = k;
    }
    const bool counts = s->verdict != VERDICT_INVALID && s->comparison[best].blocks >= BLOCKS_FOR_A_CLAIM;
    for (int k = 0; k < s->spec.arms && counts; k++) /* else the race knows better */
        if (s->arm[k].rate > 0) {
            struct tune_candidate *c = &t->list[finalist[k]];
            c->rate = s->arm[k].rate;
            if (s->arm[0].rate > 0) c->usual_rate = t->list[0].usual_rate * c->rate / s->arm[0].rate;
        }
    r->current = t->list[0];
    r->winner = t->list[finalist[best]];
    if (s->spec.arms == 3) r->runner_up = t->list[finalist[3 - best]];
    r->effect = s->comparison[best].effect;
    r->gain = gain_of(t, &r->winner, r->effect);
    r->verdict = s->comparison[best].verdict;
    r->noise_floor = s->noise_floor;
    r->blocks = s->comparison[best].blocks;
    if (s->verdict == VERDICT_INVALID) {
        r->verdict = VERDICT_INVALID;
        snprintf(r->because, sizeof r->because, "the confirmation is invalid: %s", s->reason);
    }
}

static void decide(struct tune_result *r)
{
    const double percent = 100 * (exp(r->effect.estimate) - 1);
    if (*r->because) return;
    if (isnan(r->gain.lower)) {
        snprintf(r->because, sizeof r->because,
                 "%s is not proven better: %d blocks in the time there was say nothing", r->winner.line,
                 r->blocks);
        return;
    }
    r->wins = r->gain.lower > 0;
    snprintf(r->because, sizeof r->because,
             "%s: %s is %+.1f %% [%+.1f, %+.1f] in speed, %+.1f %% in memory, KL divergence %.2g nats%s",
             r->wins ? "measured better by a paired A/B" : "not proven better for this goal", r->winner.line,
             percent, 100 * (exp(r->effect.lower) - 1), 100 * (exp(r->effect.upper) - 1),
             100 * ((double)r->winner.memory_bytes / (double)r->current.memory_bytes - 1), r->winner.kld,
             r->random_weights ? "; quality means nothing on random weights" : "");
}

/* Is there time for a verdict, if need be without the runner-up? One that was begun goes on. */
static bool worth_confirming(struct tuning *t, int *second)
{
    const double left_s = t->o->budget_s - tune_spent(t);
    char *because = t->out->because;
    if (t->o->search_only) {
        snprintf(because, sizeof t->out->because, "the search's pick, not confirmed");
        return false;
    }
    if (t->confirm_run || confirmation_s(t) > 0) return true;
    if (*second > 0 && left_s < verdict_s(t, 3)) *second = -1;
    const double needed = verdict_s(t, *second > 0 ? 3 : 2);
    if (left_s >= needed) return true;
    snprintf(
        because, sizeof t->out->because,
        "%s is the search's pick, not confirmed: an A/B of it would take %.0f s, too much of a budget of "
        "%.3g s; want %.0f s",
        t->out->winner.line, needed, t->o->budget_s, ceil(2 * verdict_s(t, 3)));
    return false;
}

static enum err_code confirm(struct tuning *t, struct err *why)
{
    int winner = -1, second = -1;
    struct experiment_spec *spec = calloc(1, sizeof *spec);
    struct experiment_state *s = calloc(1, sizeof *s);
    enum err_code rc = spec && s ? judge_finalists(t, &winner, &second, why)
                                 : err_set(why, ERR_NOMEM, "no memory for an experiment");
    t->out->current = t->list[0];
    t->out->keep = *t->o->current;
    if (!rc && winner > 0) t->out->winner = t->list[winner];
    if (!rc && second > 0) t->out->runner_up = t->list[second];
    if (!rc && winner <= 0)
        snprintf(
            t->out->because, sizeof t->out->because,
            "nothing that was measured and stays within the limits scores better than the current configuration");
    const bool confirms = !rc && winner > 0 && worth_confirming(t, &second);
    tune_end(t);
    if (confirms) {
        rc = spec_of(spec, t, winner, second, why);
        if (!is_same_confirmation(t, spec)) spec->resume_id = 0;
        t->out->confirm_run = spec->resume_id;
        if (!rc) rc = run_confirmation(t, spec, s, why);
        if (!rc) {
            read_confirmation(t, s, winner, second);
            decide(t->out);
        }
        for (int k = 1; t->out->wins && k < spec->arms; k++) {
            char line[640];
            if (!strcmp(config_line(&spec->config[k], line, sizeof line), t->out->winner.line))
                t->out->keep = spec->config[k];
        }
    }
    free(spec);
    free(s);
    return rc;
}

/* ---------------------------------------------------------------- all of it */

static int by_score(const void *x, const void *y)
{
    const struct tune_candidate *a = x, *b = y;
    if (isnan(a->score) != isnan(b->score)) return isnan(a->score) ? 1 : -1;
    return a->score < b->score ? 1 : a->score > b->score ? -1 : strcmp(a->line, b->line);
}

/* Everything that was measured, scored; worth telling, and worth keeping as the run's outcome. */
static enum err_code list_seen(struct tuning *t, struct err *why)
{
    struct tune_result *r = t->out;
    r->seen = calloc((size_t)t->n + 1, sizeof *r->seen);
    if (!r->seen) return err_set(why, ERR_NOMEM, "no memory for what was measured");
    for (int i = 0; i < t->n; i++) {
        struct tune_candidate *c = &t->list[i];
        if (!c->looks && !c->failed) continue;
        const bool counts = c->looks && !isnan(c->kld) && (!i || tune_within_limits(t, c));
        c->score = counts ? tune_score(t, c, log(c->usual_rate)) : NAN;
        r->raced += c->looks > 0;
        r->seen[r->n_seen++] = *c;
    }
    r->judged = t->answers;
    qsort(r->seen, (size_t)r->n_seen, sizeof *r->seen, by_score);
    return ERR_OK;
}

static enum err_code finish(struct tuning *t, enum err_code rc, struct err *why)
{
    struct tune_result *r = t->out;
    r->seconds = tune_spent(t);
    r->stopped = rc == ERR_CANCELLED;
    if (r->stopped) {
        r->current = t->list[0];
        r->keep = *t->o->current;
        snprintf(r->because, sizeof r->because, "stopped; what was measured is kept");
    }
    if (!rc || r->stopped) rc = list_seen(t, why);
    if (!t->started) return rc;
    json_t *o = json_object();
    json_put_str(o, "winner", r->wins ? r->winner.line : r->current.line);
    json_put_str(o, "candidate", r->winner.line);
    json_put_str(o, "because", r->because);
    json_put_int(o, "confirm_run", r->confirm_run);
    char *line = json_line(o);
    json_decref(o);
    const enum err_code kept = db_run_finish(t->db, t->run.id,
                                             r->stopped ? "stopped"
                                             : rc       ? "failed"
                                                        : "done",
                                             r->wins ? verdict_name(VERDICT_BETTER) : "",
                                             exp(r->effect.estimate), line, rc ? NULL : why);
    free(line);
    return rc ? rc : kept;
}

static void done(struct tuning *t)
{
    tune_end(t);
    if (t->db && t->started) db_run_release(t->db);
    run_row_free(&t->run);
    db_close(t->db);
    gguf_close(t->file);
    correction_free(t->correction);
    tune_belief_free(t->speed);
    tune_belief_free(t->loss);
    free(t->list);
    free(t->answer);
    free(t->window);
    free(t->stored);
    free(t);
}

enum err_code tune(struct tune_result *out, const struct tune_options *o, struct err *why)
{
    struct tune_options resolved = *o;
    struct tuning *t = calloc(1, sizeof *t);
    *out = (struct tune_result){ .effect = { NAN, NAN, NAN }, .gain = { NAN, NAN, NAN }, .noise_floor = NAN };
    if (!t) return err_set(why, ERR_NOMEM, "no memory to tune");
    if (!(resolved.limits.kld > 0)) resolved.limits.kld = 0.02;
    t->o = &resolved;
    t->out = out;
    t->look_s = t->judge_s = t->make_s = t->cell_s = t->start_s = NAN;
    t->recipe_dim = -1;
    t->noise = 0.03;
    t->misfit = 1;
    t->begun_ns = clock_ns();
    enum err_code rc = prepare(t, why);
    if (!rc) {
        rc = tune_begin(t, why);
        if (!rc && o->resume_id) rc = tune_recall(t, why);
        if (!rc) rc = race(t, why);
        if (!rc) rc = confirm(t, why);
        rc = finish(t, rc, why);
    }
    done(t);
    return rc;
}

void tune_result_free(struct tune_result *r)
{
    free(r->seen);
    r->seen = NULL;
}
