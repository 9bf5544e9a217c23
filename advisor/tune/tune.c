/* advisor/tune/tune.c - runs a search: prune by prediction, race by measurement, confirm by an A/B, decide.
 */
#include "advisor/tune/tune.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/tune/parts.h"
#include "engine/import/import.h"

enum { SEARCH_WINDOWS = 6, FINAL_WINDOWS = 24 };
/* The race ends when no measurement promises this much score: a third of a per cent of speed; a tenth when
 * nothing will be confirmed. */
static const double IMPROVEMENT_MIN = 0.003, IMPROVEMENT_MIN_UNCONFIRMED = 0.001;
enum { TIMINGS_MAX = 3 }; /* with a confirmation, further timings of the leader are left to it */
/* a candidate with a smaller predicted chance to stay within the limits is pruned */
static const double FEASIBLE_MIN = 0.02;

/* ---------------------------------------------------------------- prune */

static enum err_code config_predict(struct prediction *p, const struct tuning *t, const struct config *c,
                                    struct err *why)
{
    struct predict_for what = t->task.what;
    what.sequences = workload_sequences_for(&t->task.o->workload, c);
    return predict(p, t->task.file, c, t->task.o->machine, t->task.o->ceilings, &what, why);
}

static bool candidate_fits(const struct tuning *t, const struct prediction *p)
{
    return p->fits &&
           (t->task.o->limits.memory_bytes <= 0 || p->plan.total <= t->task.o->limits.memory_bytes);
}

struct tune_candidate tune_candidate_unknown(int64_t index)
{
    return (struct tune_candidate){ .index = index,
                                    .predicted = NAN,
                                    .low = NAN,
                                    .high = NAN,
                                    .rate = NAN,
                                    .expected_rate = NAN,
                                    .expected_score = NAN,
                                    .normalized_rate = NAN,
                                    .normalized_sd = NAN,
                                    .kld = NAN,
                                    .kld_se = NAN,
                                    .ppl_ratio = NAN,
                                    .accuracy_change = NAN,
                                    .accuracy_lower = NAN,
                                    .accuracy_upper = NAN,
                                    .rate_interval = { NAN, NAN, NAN },
                                    .kld_interval = { NAN, NAN, NAN },
                                    .bits = NAN,
                                    .score = NAN };
}

/* Does this one run as the current configuration does, because it names the number of threads that is the
 * default here? Its timings would differ by noise alone. */
static bool runs_as_current(const struct tuning *t, const struct config *config)
{
    struct config two[] = { *t->task.o->current, *config };
    for (int i = 0; i < 2; i++) {
        struct config *c = &two[i];
        if (config_choice(c, KNOB_NUMA) != NUMA_OFF) return false; /* it has defaults of its own */
        const int64_t threads = config_int(c, KNOB_THREADS);
        if (config_resolve_int(c, KNOB_THREADS, threads > 0 ? threads : machine_threads(t->task.o->machine),
                               NULL))
            return false;
        c->given[KNOB_THREADS] = true;
    }
    return config_same(&two[0], &two[1]);
}

/* List every configuration that fits into memory; the current one is [0]. */
static enum err_code candidates_list(struct tuning *t, struct err *why)
{
    const int64_t all = tune_space_size(&t->task.space);
    struct prediction p;
    struct config config;
    struct err ignored;
    char line[CONFIG_LINE];
    t->out->space = all;
    t->known.list = calloc((size_t)all + 1, sizeof *t->known.list);
    if (!t->known.list)
        return err_set(why, ERR_NOMEM, "out of memory for %lld configurations", (long long)all);
    t->known.list[0] = tune_candidate_unknown(-1);
    tune_describe(&t->known.list[t->known.n++], t, t->task.o->current, &t->task.reference);
    for (int64_t i = 0; i < all; i++) {
        if (!tune_space_config(&config, &t->task.space, i)) continue;
        if (workload_check(&t->task.o->workload, &config, &ignored)) continue;
        config_line(&config, line, sizeof line);
        if (!strcmp(line, t->known.list[0].line)) {
            t->known.list[0].index = i; /* it is a point of the space: its measurements inform others */
            continue;
        }
        if (runs_as_current(t, &config)) {
            snprintf(t->out->alike, sizeof t->out->alike, "%s", line);
            if (t->known.list[0].index < 0) t->known.list[0].index = i;
            continue;
        }
        if (config_predict(&p, t, &config, &ignored) || !candidate_fits(t, &p)) continue;
        struct tune_candidate *c = &t->known.list[t->known.n++];
        *c = tune_candidate_unknown(i);
        tune_describe(c, t, &config, &p);
    }
    return t->known.n > 1
               ? ERR_OK
               : err_set(why, ERR_FIT, "no configuration of the space fits besides the current one%s",
                         t->task.o->limits.memory_bytes > 0 ? " within the memory limit" : "");
}

/* Prune by prediction. A candidate is dropped when another one's lower bound exceeds its upper bound,
 * provided that the other one is not expected to lose more quality (otherwise both could be lost when the
 * limits reject the other). Candidates that almost surely violate the limits are dropped, too. */
static enum err_code candidates_prune(struct tuning *t, struct err *why)
{
    struct bounds {
        double low, high, guess;
    } *all = calloc((size_t)t->known.n, sizeof *all);
    if (!all) return err_set(why, ERR_NOMEM, "out of memory for %d candidates", t->known.n);
    for (int i = 0; i < t->known.n; i++) {
        const struct tune_candidate *c = &t->known.list[i];
        all[i] = (struct bounds){ c->low > 0 ? tune_score(t, c, log(c->low)) : -INFINITY,
                                  c->high > 0 ? tune_score(t, c, log(c->high)) : INFINITY, c->ln_guess };
    }
    int n = 1;
    for (int i = 1; i < t->known.n; i++) {
        bool beaten = tune_feasibility(t, i) < FEASIBLE_MIN;
        for (int k = 0; k < t->known.n && !beaten; k++)
            beaten = all[k].guess <= all[i].guess && all[k].low > all[i].high;
        if (!beaten) t->known.list[n++] = t->known.list[i];
    }
    free(all);
    t->known.n = n;
    t->out->fitting = n - 1; /* without the current configuration */
    /* candidates are large: release the pruned ones */
    struct tune_candidate *fewer = realloc(t->known.list, (size_t)n * sizeof *fewer);
    if (fewer) t->known.list = fewer;
    return ERR_OK;
}

static enum err_code options_check(const struct tune_options *o, struct err *why)
{
    const struct workload *w = &o->workload;
    if (*w->eval_file || w->train)
        return err_set(why, ERR_USAGE,
                       "tune compares the speed of a workload: expected one such as tg64 or pp512");
    if (experiment_default_metric(w)->better < 0)
        return err_set(
            why, ERR_USAGE,
            "tune needs a figure of which more is better: expected a load with concurrency=N, or with "
            "limits (slo=\"ttft<500ms\")");
    if (w->load.auto_rate)
        return err_set(
            why, ERR_USAGE,
            "tune compares configs at the same rate of requests: expected rate=N (requests/s), not rate=auto");
    if (!(o->budget_s > 0))
        return err_set(why, ERR_USAGE, "a budget of %g seconds: expected more than 0", o->budget_s);
    return ERR_OK;
}

static enum err_code search_prepare(struct tuning *t, struct err *why)
{
    const struct tune_options *o = t->task.o;
    t->task.metric = t->out->metric = experiment_default_metric(&o->workload);
    enum err_code rc = model_file_open(&t->task.file, o->model_path, why);
    if (!rc) rc = model_shape_read(&t->task.shape, t->task.file, why);
    if (!rc) rc = db_open(&t->record.db, o->db_path, why);
    if (!rc) rc = correction_load(&t->task.correction, t->record.db, o->machine->id, o->ceilings, why);
    if (!rc) rc = tune_space(&t->task.space, t->task.file, o->machine, &o->workload, o->goal, o->space, why);
    if (rc) return rc;
    if (o->requantize) tune_space_requantize(&t->task.space, t->task.file);
    t->task.space.base = *o->current;
    t->out->random_weights = t->task.shape.random_weights;
    t->out->answers_unverified = t->task.shape.unknown > 0;
    snprintf(t->out->left_out, sizeof t->out->left_out, "%s", t->task.space.left_out);
    snprintf(t->out->doubles, sizeof t->out->doubles, "%s", t->task.space.doubles);
    for (int d = 0; d < t->task.space.dims; d++)
        if (!strcmp(t->task.space.dim[d].key, "recipe")) t->task.recipe_dim = d;
    t->task.what = predict_for_workload(&o->workload);
    t->task.what.correction = t->task.correction;
    rc = config_predict(&t->task.reference, t, o->current, why);
    if (rc) return err_prefix(why, "the current configuration");
    rc = tune_regression_open(&t->known.speed, &t->task.space, 0.5, 0.25, 0.03, why);
    if (!rc) rc = tune_regression_open(&t->known.kld, &t->task.space, 2, 0.8, 0.4, why);
    if (!rc) rc = candidates_list(t, why);
    if (!rc) rc = candidates_prune(t, why);
    return rc;
}

/* ---------------------------------------------------------------- race */

/* Windows of text for one quality measurement in the race: 1/25 of the budget at the predicted prefill rate,
 * for both models together. */
static int race_windows(const struct tuning *t)
{
    enum { LEAST = 2 };
    const int ctx = t->out->quality.ctx,
              most = quality_context_windows(ctx, SEARCH_WINDOWS, TUNE_QUALITY_CTX, LEAST);
    const struct tune_candidate *a = &t->known.list[0];
    /* a busy machine is slower than predicted: as much as the first timing was */
    const double usual = a->timings && a->predicted > 0 ? fmin(a->rate / a->predicted, 1) : 1;
    const double rate = usual * t->task.reference.prefill_tok_s.estimate,
                 fit = 0.04 * t->task.o->budget_s * rate / (2.0 * ctx);
    if (!(rate > 0)) return most;
    return fit >= most ? most : fit > LEAST ? (int)fit : (int)LEAST;
}

/* Windows for a finalist: at most a quarter of the time left for both finalists; 0: no time for more than the
 * race used. */
static int finalist_windows(const struct tuning *t)
{
    enum { FEWEST = 4 };
    const int had = race_windows(t);
    const int most = quality_context_windows(t->out->quality.ctx, FINAL_WINDOWS, TUNE_QUALITY_CTX, FEWEST);
    const double fit = 0.125 * (t->task.o->budget_s - tune_spent(t)) / t->costs.quality.seconds * had;
    if (!(fit > had)) return 0;
    if (had >= most) return 0;
    return fit >= most ? most : (int)fit;
}

static void choice_explain(struct tuning *t, const struct tune_choice *c)
{
    if (c->leads)
        tune_explain(t, "the best so far is timed again, because the fastest of many timings is partly luck");
    else if (c->quality)
        tune_explain(t, "it changes answers, so it may win only after its quality was measured");
    else
        tune_explain(
            t,
            "of all configurations it promises the most for the time that measuring it takes: it is expected "
            "to improve on the best so far by %.1f %%",
            100 * c->improvement);
}

/* Could any candidate's answers differ from those of the current configuration? */
static bool quality_matters(const struct tuning *t)
{
    for (int i = 1; i < t->known.n; i++)
        if (!t->known.list[i].same_answers) return true;
    return false;
}

static enum err_code race_run(struct tuning *t, struct err *why)
{
    enum err_code rc = ERR_OK;
    t->now.phase = TUNE_PHASE_RACE;
    tune_explain(t, "the current configuration, which a winner must beat");
    if (!t->known.list[0].timings && !t->known.list[0].failed) rc = tune_measure_speed(t, 0, why);
    if (!rc && t->known.list[0].failed)
        rc = err_set(why, ERR_USAGE, "the current configuration cannot run: %s", t->known.list[0].error);
    if (!rc && quality_matters(t) && isnan(t->known.list[0].kld))
        rc = tune_measure_quality(t, 0, race_windows(t), why);
    while (!rc && !t->record.confirm_run) { /* a confirmation that was begun is continued */
        const double later_s = tune_reserve_s(t), all_left_s = t->task.o->budget_s - tune_spent(t);
        const struct tune_bounds bounds = { .least = later_s > 0 ? IMPROVEMENT_MIN
                                                                 : IMPROVEMENT_MIN_UNCONFIRMED,
                                            .left_s = all_left_s - later_s,
                                            .all_left_s = all_left_s,
                                            .most_timings = later_s > 0 ? TIMINGS_MAX : INT_MAX };
        struct tune_choice next;
        if (bounds.all_left_s <= 0 || !tune_next(t, &bounds, &next)) break;
        choice_explain(t, &next);
        rc = next.quality ? tune_measure_quality(t, next.candidate, race_windows(t), why)
                          : tune_measure_speed(t, next.candidate, why);
    }
    t->out->search_s = tune_spent(t);
    return rc;
}

/* A finalist that was not asked the questions of a limit, or was found outside the limits, cannot win. */
static bool may_win(const struct tuning *t, int i)
{
    return i > 0 && !tune_accuracy_missing(t, i) && tune_within_limits(t, &t->known.list[i]);
}

/* Measure the finalists' quality on more text than the race used, then their right answers where that is
 * limited. A finalist that then violates the limits is replaced; at most so many measurements: */
enum { QUALITY_ROUNDS = 6, ACCURACY_ROUNDS = 6 };
static enum err_code finalists_measure(struct tuning *t, int *winner, int *second, struct err *why)
{
    bool done[2] = { false, false };
    int last[2] = { -1, -1 };
    t->now.phase = TUNE_PHASE_QUALITY;
    const int rounds = QUALITY_ROUNDS + (t->task.o->limits.accuracy > 0 ? ACCURACY_ROUNDS : 0);
    tune_explain(t, "choosing the finalists");
    if (!tune_report(t, "", "")) return err_set(why, ERR_CANCELLED, "stopped");
    for (int round = 0; round < rounds; round++) {
        *winner = tune_best(t, -1);
        *second = *winner > 0 ? tune_best(t, *winner) : -1;
        const int final[2] = { *winner, *second };
        int todo = -1;
        for (int k = 0; k < 2; k++) {
            if (final[k] != last[k]) done[k] = false;
            last[k] = final[k];
            if (final[k] > 0 && !done[k] && t->known.list[final[k]].kld > 0 &&
                !t->known.list[final[k]].same_answers && todo < 0)
                todo = k;
        }
        const int windows = todo < 0 ? 0 : finalist_windows(t);
        enum err_code rc = ERR_OK;
        if (windows) {
            done[todo] = true;
            tune_explain(t, "a finalist: its quality is measured on more text");
            rc = tune_measure_quality(t, final[todo], windows, why);
        } else {
            const int asked = *winner > 0 && tune_accuracy_missing(t, *winner)   ? *winner
                              : *second > 0 && tune_accuracy_missing(t, *second) ? *second
                                                                                 : -1;
            if (asked < 0) return ERR_OK;
            rc = tune_measure_accuracy(t, asked, why);
        }
        if (rc) return rc;
    }
    if (!may_win(t, *second)) *second = -1;
    if (!may_win(t, *winner)) *winner = *second = -1;
    return ERR_OK;
}

/* ---------------------------------------------------------------- confirm */

static enum err_code confirm_spec(struct experiment_spec *s, const struct tuning *t, int winner, int second,
                                  struct err *why)
{
    const int finalist[] = { 0, winner, second }, arms = second > 0 ? 3 : 2;
    enum err_code rc = ERR_OK;
    const double left_s = t->task.o->budget_s - tune_spent(t);
    *s = (struct experiment_spec){ .arms = arms,
                                   .workload = t->task.o->workload,
                                   .margin = EXPERIMENT_MARGIN,
                                   .budget_s = fmax(left_s, 0.1 * t->task.o->budget_s),
                                   .control_blocks = tune_control_blocks(t, arms),
                                   .seed = t->task.o->seed,
                                   .estimand = t->task.o->estimand,
                                   .resume_id = t->record.confirm_run };
    snprintf(s->model, sizeof s->model, "%s", t->task.o->model_path);
    for (int k = 0; k < s->arms && !rc; k++)
        rc = tune_config(&s->config[k], t, &t->known.list[finalist[k]], why);
    return rc;
}

/* May the earlier confirmation go on, and has it the same arms? Then it is resumed. */
static bool confirm_is_same(struct tuning *t, const struct experiment_spec *s)
{
    struct run_row run = { 0 };
    struct experiment_spec *old = calloc(1, sizeof *old);
    bool same = old && t->record.confirm_run &&
                !db_run_get(t->record.db, t->record.confirm_run, &run, NULL) && strcmp(run.state, "failed") &&
                experiment_is_open(&run);
    json_t *object = tune_stored_json(run.spec_json);
    same = same && object && !experiment_spec_from_json(old, object, NULL) && old->arms == s->arms;
    for (int k = 0; same && k < s->arms; k++) same = config_same(&old->config[k], &s->config[k]);
    json_decref(object);
    run_row_free(&run);
    free(old);
    return same;
}

static enum err_code confirm_record(struct tuning *t, int64_t run_id, struct err *why)
{
    char text[24];
    if (t->record.confirm_run == run_id || !run_id) return ERR_OK;
    t->record.confirm_run = t->out->confirm_run = run_id;
    snprintf(text, sizeof text, "%lld", (long long)run_id);
    enum err_code rc = db_event_add(t->record.db, t->record.run.row.id, "confirm", text, why);
    return rc ? rc : db_link_put(t->record.db, run_id, t->record.run.row.id, "confirm", "", why);
}

static enum err_code confirm_step(void *ctx, const struct experiment_state *s, bool *goes_on, struct err *why)
{
    struct tuning *t = ctx;
    *goes_on = tune_report_confirmation(t, s);
    return confirm_record(t, s->run_id, why);
}

static enum err_code confirm_run_experiment(struct tuning *t, const struct experiment_spec *spec,
                                            struct experiment_state *s, struct err *why)
{
    const enum err_code rc = tune_experiment(t->task.o, spec, s, confirm_step, t, why);
    return rc && s->phase == PHASE_FAILED ? err_prefix(why, "the confirmation failed") : rc;
}

/* Drops the runner-up where there is no time to compare it, too. Returns false where nothing is compared, for
 * a reason in t->out: none was asked for, or no time at all is left. Too little time for a verdict is no such
 * reason, because the blocks count when the search is resumed; a comparison that was begun is continued. */
static bool confirm_has_time(struct tuning *t, int *second)
{
    struct tune_result *r = t->out;
    const double left_s = t->task.o->budget_s - tune_spent(t);
    if (t->task.o->search_only) {
        snprintf(r->because, sizeof r->because, "the search's best candidate, not confirmed");
        return false;
    }
    if (t->record.confirm_run) return true;
    if (*second > 0 && left_s < tune_confirm_s(t, 3, true)) *second = -1;
    if (left_s > 0) return true;
    r->unfinished = true;
    r->enough_s = tune_enough_s(t, 2, NAN);
    snprintf(
        r->because, sizeof r->because,
        "%.300s is the search's best candidate, not confirmed: the budget of %.6g s was used up before the "
        "A/B of it, which takes about %.0f s on this machine now; a budget of %.0f s should be enough",
        r->winner.line, t->task.o->budget_s, tune_confirm_s(t, 2, false), r->enough_s);
    return false;
}

/* Nothing that was measured may replace the current configuration. Where only the budget ended the race, the
 * search can go on with a larger one. */
static void result_keep(struct tuning *t)
{
    const struct tune_bounds unlimited = {
        .least = IMPROVEMENT_MIN, .left_s = INFINITY, .all_left_s = INFINITY, .most_timings = TIMINGS_MAX
    };
    struct tune_result *r = t->out;
    struct tune_choice next;
    r->unfinished = !t->task.o->search_only && tune_next(t, &unlimited, &next);
    if (r->unfinished) r->enough_s = tune_enough_for_race_s(t, next.seconds);
    tune_explain_kept(r->because, sizeof r->because, t);
}

static enum err_code confirm_run_all(struct tuning *t, struct err *why)
{
    int winner = -1, second = -1;
    struct experiment_spec *spec = calloc(1, sizeof *spec);
    struct experiment_state *s = calloc(1, sizeof *s);
    enum err_code rc = spec && s ? finalists_measure(t, &winner, &second, why)
                                 : err_set(why, ERR_NOMEM, "out of memory for an experiment");
    if (!rc) tune_keep_expected(t);
    t->out->current = t->known.list[0];
    t->out->keep = *t->task.o->current;
    if (!rc && winner > 0) t->out->winner = t->known.list[winner];
    if (!rc && winner <= 0) result_keep(t);
    const bool confirms = !rc && winner > 0 && confirm_has_time(t, &second);
    if (!rc && second > 0) t->out->runner_up = t->known.list[second];
    tune_release(t);
    if (confirms) {
        t->now.phase = TUNE_PHASE_CONFIRM;
        rc = confirm_spec(spec, t, winner, second, why);
        bool same = !rc && confirm_is_same(t, spec);
        if (!rc && !same && second > 0 && t->record.confirm_run) { /* there was time for the winner alone */
            rc = confirm_spec(spec, t, winner, -1, why);
            same = !rc && confirm_is_same(t, spec);
            if (same)
                second = -1;
            else if (!rc)
                rc = confirm_spec(spec, t, winner, second, why);
        }
        if (second < 0) t->out->runner_up.line[0] = '\0';
        if (!same) spec->resume_id = 0;
        t->out->confirm_run = spec->resume_id;
        if (!rc) rc = confirm_run_experiment(t, spec, s, why);
        if (!rc) tune_decide(t, s, winner, second);
        if (t->out->wins) rc = tune_config(&t->out->keep, t, &t->out->winner, why);
    }
    free(spec);
    free(s);
    return rc;
}

/* ---------------------------------------------------------------- result */

static int candidate_compare(const void *x, const void *y)
{
    const struct tune_candidate *a = x, *b = y;
    if (isnan(a->score) != isnan(b->score)) return isnan(a->score) ? 1 : -1;
    return a->score < b->score ? 1 : a->score > b->score ? -1 : strcmp(a->line, b->line);
}

/* Collect every measured candidate with its score, best first, for the report and the run's outcome. */
static enum err_code result_list_measured(struct tuning *t, struct err *why)
{
    struct tune_result *r = t->out;
    r->seen = calloc((size_t)t->known.n + 1, sizeof *r->seen);
    if (!r->seen) return err_set(why, ERR_NOMEM, "out of memory for the list of measured candidates");
    for (int i = 0; i < t->known.n; i++) {
        struct tune_candidate *c = &t->known.list[i];
        if (!c->timings && !c->failed) continue;
        const bool counts = c->timings && tune_quality_known(c) && (!i || tune_within_limits(t, c));
        c->score = counts ? tune_score(t, c, log(c->normalized_rate)) : NAN;
        r->raced += c->timings > 0;
        r->seen[r->n_seen++] = *c;
    }
    r->judged = t->known.answers;
    tune_explain_passed(t);
    qsort(r->seen, (size_t)r->n_seen, sizeof *r->seen, candidate_compare);
    return ERR_OK;
}

/* A stopped search names its best candidate so far. */
static void result_of_stopped(struct tuning *t)
{
    struct tune_result *r = t->out;
    const int best = tune_best(t, -1);
    r->current = t->known.list[0];
    r->keep = *t->task.o->current;
    if (best > 0) r->winner = t->known.list[best];
    if (best > 0)
        snprintf(r->because, sizeof r->because,
                 "stopped; the best so far is %.300s, not confirmed; the measurements are stored",
                 r->winner.line);
    else
        snprintf(r->because, sizeof r->because, "stopped; the measurements are stored");
}

static enum err_code search_finish(struct tuning *t, enum err_code rc, struct err *why)
{
    struct tune_result *r = t->out;
    char load[RUN_LOAD_TEXT];
    r->seconds = tune_spent(t);
    r->stopped = rc == ERR_CANCELLED;
    if (r->stopped) result_of_stopped(t);
    if (!rc || r->stopped) rc = result_list_measured(t, why);
    if (!t->record.started) return rc;
    json_t *o = json_object();
    json_put_str(o, "winner", r->wins ? r->winner.line : r->current.line);
    json_put_str(o, "candidate", r->winner.line);
    json_put_str(o, "because", r->because);
    json_put_str(o, "load", r->load.loaded ? experiment_run_load_text(load, &r->load) : NULL);
    json_put_int(o, "confirm_run", r->confirm_run);
    json_put_num(o, "spent_s", r->seconds);
    if (r->unfinished) json_put_num(o, "enough_s", r->enough_s);
    if (r->stopped) json_put_num(o, "enough_s", t->task.o->budget_s); /* it may be more than at first */
    const struct run_outcome outcome = { .state = r->stopped || r->unfinished ? "stopped"
                                                  : rc                        ? "failed"
                                                                              : "done",
                                         .verdict = r->wins ? verdict_name(VERDICT_BETTER) : NULL,
                                         .effect_ratio = exp(r->effect.estimate),
                                         .document = o };
    const enum err_code kept = run_finish(&t->record.run, &outcome, rc ? NULL : why);
    json_decref(o);
    return rc ? rc : kept;
}

static void search_free(struct tuning *t)
{
    tune_release(t);
    if (t->record.db && t->record.started) db_unlock(t->record.db);
    run_close(&t->record.run);
    db_close(t->record.db);
    gguf_close(t->task.file);
    correction_free(t->task.correction);
    tune_regression_free(t->known.speed);
    tune_regression_free(t->known.kld);
    free(t->known.list);
    free(t->known.answer);
    free(t);
}

enum err_code tune(struct tune_result *out, const struct tune_options *o, struct err *why)
{
    struct tune_options resolved = *o;
    const struct interval unknown = { NAN, NAN, NAN };
    *out = (struct tune_result){ .winner = tune_candidate_unknown(-1),
                                 .runner_up = tune_candidate_unknown(-1),
                                 .effect = unknown,
                                 .gain = unknown,
                                 .alpha = 0.05,
                                 .noise_floor = NAN,
                                 .enough_s = NAN };
    enum err_code rc = options_check(o, why);
    if (rc) return rc;
    if (tune_is_variants(o)) return tune_variants(out, o, why);
    if (tune_is_foreign(o->current, o->space)) return tune_foreign(out, o, why);
    struct tuning *t = calloc(1, sizeof *t);
    if (!t) return err_set(why, ERR_NOMEM, "out of memory for a search");
    if (!(resolved.limits.kld > 0)) resolved.limits.kld = 0.02;
    t->task.o = &resolved;
    t->out = out;
    t->costs.timing.seconds = t->costs.quality.seconds = t->costs.recipe.seconds = t->costs.cell.seconds =
        t->costs.start.seconds = NAN;
    t->task.recipe_dim = -1;
    t->noise.sd = 0.03;
    t->noise.dispersion = 1;
    t->record.begun_ns = clock_ns();
    t->now = (struct tune_progress){
        .phase = TUNE_PHASE_SPACE, .what = "", .effect = { NAN, NAN, NAN }, .blocks_needed = -1
    };
    tune_explain(t, "predicting every configuration, to leave out those that cannot win");
    rc = tune_event(t, NULL) ? search_prepare(t, why) : err_set(why, ERR_CANCELLED, "stopped");
    if (!rc) {
        rc = tune_run_begin(t, why);
        if (!rc && o->resume_id) rc = tune_restore(t, why);
        if (!rc) rc = race_run(t, why);
        if (!rc) rc = confirm_run_all(t, why);
        rc = search_finish(t, rc, why);
    }
    search_free(t);
    return rc;
}

void tune_result_free(struct tune_result *r)
{
    free(r->seen);
    r->seen = NULL;
}
