/* advisor/experiment/store.c - the state of a run, and rebuilding it from its rows in the database, to resume
 * it or to show it. */
#include "advisor/experiment/parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char BLOCK_INTERRUPTED[] = "interrupted", BLOCK_PAUSED[] = "paused",
           BLOCK_CHANGED[] = "changed by hand";
const char *const BLOCKS_INCOMPLETE[] = { BLOCK_INTERRUPTED, BLOCK_PAUSED, BLOCK_CHANGED };

/* ---------------------------------------------------------------- state */

static void comparison_init(struct comparison *c)
{
    const struct interval unknown = { NAN, NAN, NAN };
    c->effect = c->effect90 = c->fixed = c->hodges_lehmann = unknown;
    for (int m = 0; m < CELL_METRICS; m++) c->by_metric[m] = unknown;
    for (int e = 0; e < ESTIMANDS_COUNT; e++)
        c->by_estimand[e] = (struct estimand_result){ 0, unknown, 1, 1 };
    c->e = c->e_sign = c->p = 1;
    c->permutation_p = c->lag1 = NAN;
    c->alpha = 0.05;
    c->blocks_needed = -1;
}

void state_init(struct experiment_state *s, const struct experiment_spec *spec)
{
    memset(s, 0, sizeof(*s));
    s->spec = *spec;
    if (!s->spec.arms) s->spec.arms = 2;
    s->headline = 1;
    comparison_init(&s->confirmation);
    s->running_arm = s->block = s->slot = -1;
    s->occupancy.arm = -1;
    s->live_tok_s = s->eta_s = s->noise_floor = s->mde = s->control_frequency = s->overhead_ratio = NAN;
    s->block_s = s->switch_cost = s->load_reacts = s->load_reacts_p = NAN;
    s->estimand = spec->estimand == ESTIMAND_LOADED ? ESTIMAND_LOADED : ESTIMAND_QUIET;
    for (int e = 0; e < ESTIMANDS_COUNT; e++) s->load[e] = (struct machine_load){ NAN, NAN, NAN };
    s->control = (struct interval){ NAN, NAN, NAN };
    s->blocks_needed = -1;
    s->cell_repeats = 1;
    for (int i = 0; i < EXPERIMENT_ARMS; i++) {
        struct experiment_arm *a = &s->arm[i];
        comparison_init(&s->comparison[i]);
        for (int m = 0; m < CELL_METRICS; m++) a->mean[m] = (struct interval){ NAN, NAN, NAN };
        config_line(&spec->config[i], a->line, sizeof(a->line));
        config_recipe(&spec->config[i], a->recipe, sizeof(a->recipe));
        for (int m = 0; m < METRIC_COUNT; m++) a->value[m] = NAN;
        a->rate = a->joules_per_token = a->joules_per_token_half = a->co2_g_per_token = NAN;
        a->threads = -1;
        a->plan.total = -1;
    }
}

void state_event(struct experiment_state *s, int64_t unix_ms, const char *kind, const char *text)
{
    if (s->events == EXPERIMENT_EVENTS) {
        memmove(&s->event[0], &s->event[1], sizeof(s->event) - sizeof(s->event[0]));
        s->events--;
    }
    s->event[s->events].unix_ms = unix_ms;
    snprintf(s->event[s->events].kind, sizeof(s->event[0].kind), "%s", kind);
    snprintf(s->event[s->events].text, sizeof(s->event[0].text), "%s", text);
    s->events++;
}

void arm_describe(struct experiment_arm *a, const json_t *d)
{
    snprintf(a->model_name, sizeof(a->model_name), "%s", json_get_str(d, "name", ""));
    snprintf(a->arch, sizeof(a->arch), "%s", json_get_str(d, "arch", ""));
    snprintf(a->sha256, sizeof(a->sha256), "%s", json_get_str(d, "sha256", ""));
    snprintf(a->dominant_format, sizeof(a->dominant_format), "%s", json_get_str(d, "dominant_format", ""));
    snprintf(a->quantization, sizeof(a->quantization), "%s", json_get_str(d, "quantization", ""));
    snprintf(a->isa, sizeof(a->isa), "%s", json_get_str(d, "isa", ""));
    snprintf(a->device, sizeof(a->device), "%s", json_get_str(d, "device", ""));
    const char *recipe = json_get_str(d, "recipe", "");
    if (*recipe) snprintf(a->recipe, sizeof(a->recipe), "%s", recipe);
    const json_t *engine = json_object_get(d, "engine");
    if (json_is_object(engine)) run_echo_text(a->engine, sizeof(a->engine), engine);
    a->threads = (int)json_get_int(d, "threads", -1);
    a->value[METRIC_LOAD_TIME] = json_get_num(d, METRICS[METRIC_LOAD_TIME].name, NAN);
    struct err ignored;
    a->merged_known = json_object_get(d, "config") &&
                      !config_from_json(&a->merged, json_object_get(d, "config"), &ignored);
    (void)memory_plan_from_json(&a->plan, json_object_get(d, "plan"));
}

/* ---------------------------------------------------------------- storing */

json_t *cell_echo(const struct experiment_state *s, int turns_repeats, const json_t *description)
{
    json_t *o = json_object();
    json_put_int(o, "repeats", turns_repeats ? turns_repeats : s->cell_repeats);
    if (turns_repeats) { /* a cell in turns may repeat the workload more often than one alone */
        json_put_bool(o, "turns", true);
        json_put_int(o, "repeats_alone", s->cell_repeats);
    }
    if (description) json_put(o, "open", json_deep_copy(description));
    return o;
}

void experiment_spans(struct experiment *x, int arm, struct span_row *rows, int n)
{
    struct err ignored;
    for (int i = 0; i < n; i++) {
        rows[i].run_id = x->state.run_id;
        rows[i].arm = arm;
        rows[i].block = x->spans.at.block;
        snprintf(rows[i].phase, sizeof(rows[i].phase), "%s",
                 x->spans.at.block < 0 ? "" : CELL_PHASES[x->spans.at.phase]);
    }
    if (x->state.run_id) {
        (void)db_span_insert(x->db, rows, n, &ignored);
        return;
    }
    struct span_row *more = realloc(x->spans.early, (size_t)(x->spans.n_early + n) * sizeof(*more));
    if (!more) return;
    x->spans.early = more;
    memcpy(x->spans.early + x->spans.n_early, rows, (size_t)n * sizeof(*rows));
    x->spans.n_early += n;
}

void experiment_spans_early(struct experiment *x)
{
    struct err ignored;
    for (int i = 0; i < x->spans.n_early; i++) x->spans.early[i].run_id = x->state.run_id;
    (void)db_span_insert(x->db, x->spans.early, x->spans.n_early, &ignored);
    x->spans.n_early = 0;
}

/* ---------------------------------------------------------------- rebuilding */

struct block_rows {
    int n; /* consecutive cells of one block */
    bool discarded, disturbed, interrupted;
};

/* The block that begins at cell i: an experiment writes the cells of a block one after the other. */
static struct block_rows block_at(const struct cell_row *cells, int i, int n)
{
    struct block_rows b = { 0 };
    for (int k = i; k < n && cells[k].block == cells[i].block && !strcmp(cells[k].phase, cells[i].phase);
         k++) {
        b.n++;
        b.discarded = b.discarded || cells[k].discarded || *cells[k].error;
        b.disturbed = b.disturbed || cells[k].discarded || *cells[k].discard_reason;
        b.interrupted = b.interrupted || *cells[k].error;
        for (int reason = 0; reason < INCOMPLETE_REASONS; reason++)
            b.interrupted = b.interrupted || !strcmp(cells[k].discard_reason, BLOCKS_INCOMPLETE[reason]);
    }
    return b;
}

/* The measurements of a stored cell. */
struct reading {
    double value[METRIC_COUNT], others, turn_ratio; /* as in struct block_values */
    double fill_s;                                  /* 0: the cache was not filled */
    float *itl;                                     /* owned: reading_done */
    int n_itl;
};

static void read_measurement(void *ctx, const char *metric, const char *unit, double value)
{
    (void)unit;
    struct reading *r = ctx;
    const struct metric *m = metric_find(metric);
    if (!strcmp(metric, CELL_OTHERS)) r->others = value;
    if (!strcmp(metric, CELL_TURN_RATIO)) r->turn_ratio = value;
    if (!strcmp(metric, CELL_FILL)) r->fill_s = value;
    if (m) r->value[m - METRICS] = value;
}

static enum err_code read_cell(struct db *d, int64_t id, struct reading *r, struct err *why)
{
    r->others = r->turn_ratio = NAN;
    r->fill_s = 0;
    for (int i = 0; i < METRIC_COUNT; i++) r->value[i] = NAN;
    enum err_code rc = db_itl_get(d, id, &r->itl, &r->n_itl, why);
    return rc ? rc : db_measurement_list(d, id, read_measurement, r, why);
}

static void reading_done(struct reading *r, int n)
{
    for (int i = 0; i < n; i++) free(r[i].itl);
}

/* Finds which arms a stored block ran, ascending, and the place of every cell. In a control both arms are A,
 * so the places come from the seeded order. Blocks have two cells of each arm, or one in turns. False when
 * the block is incomplete. */
static bool block_arms(struct block_values *b, const struct experiment_state *s, const struct cell_row *c,
                       int n, bool in_turns)
{
    int count[EXPERIMENT_ARMS] = { 0 };
    if (b->phase == CELL_CONTROL) {
        b->arms = 2;
        b->arm[0] = b->arm[1] = 0;
        block_order(s->spec.seed, b->phase, c[0].block, 2, b->place);
        b->cells = n;
        return n == 4 || (n == 2 && in_turns);
    }
    const int each = in_turns ? 1 : 2;
    for (int i = 0; i < n && i < BLOCK_CELLS; i++)
        if (c[i].arm >= 0 && c[i].arm < s->spec.arms) count[c[i].arm]++;
    b->arms = 0;
    for (int k = 0; k < s->spec.arms; k++) {
        if (count[k] != 0 && count[k] != each) return false;
        if (count[k]) b->arm[b->arms++] = k;
    }
    for (int i = 0; i < n && i < BLOCK_CELLS; i++)
        for (int k = 0; k < b->arms; k++)
            if (b->arm[k] == c[i].arm) b->place[i] = k;
    b->cells = n;
    return n == each * b->arms && b->arms >= 2 && b->arm[0] == 0;
}

/* Adds a complete block of kept cells to comparisons and totals. */
static enum err_code rebuild_block(struct experiment_state *s, struct run_totals *l, struct db *d,
                                   const struct cell_row *c, struct block_values *b, struct err *why)
{
    struct reading r[BLOCK_CELLS] = { 0 };
    enum err_code rc = ERR_OK;
    for (int i = 0; i < b->cells && !rc; i++) {
        rc = read_cell(d, c[i].id, &r[i], why);
        b->others[i] = r[i].others;
        b->turn_ratio[i] = r[i].turn_ratio;
        b->value[i] = r[i].value;
        b->itl[i] = r[i].itl;
        b->n_itl[i] = r[i].n_itl;
    }
    if (!rc) {
        /* Repeats the decisions of a race: which arms left it, and which arm was confirmed. */
        if (b->phase == CELL_CONFIRM) s->headline = b->arm[1];
        (void)totals_add_block(l, s, b);
        if (b->phase == CELL_BLOCK && s->spec.race) {
            judge_numbers(s);
            (void)judge_race(s);
        }
    }
    reading_done(r, BLOCK_CELLS);
    return rc;
}

static enum err_code rebuild_warmup(struct experiment_state *s, struct run_totals *l, struct db *d,
                                    const struct cell_row *c, struct err *why)
{
    if (c->arm < 0 || c->arm >= EXPERIMENT_ARMS) return ERR_OK;
    json_t *echo = NULL;
    if (!json_parse(&echo, c->worker_json, strlen(c->worker_json), NULL)) {
        const json_t *open = json_object_get(echo, "open");
        if (open) arm_describe(&s->arm[c->arm], open);
        s->random_weights = s->random_weights || json_get_bool(open, "random_weights", false);
        s->answers_unverified = s->answers_unverified || json_get_bool(open, "answers_unverified", false);
        json_decref(echo);
    }
    if (*c->error) {
        s->arm[c->arm].failed = true;
        snprintf(s->arm[c->arm].error, sizeof(s->arm[c->arm].error), "%s", c->error);
        return ERR_OK;
    }
    struct reading r = { 0 };
    enum err_code rc = read_cell(d, c->id, &r, why);
    if (!rc) totals_add_cell(l, c->arm, CELL_WARMUP, r.value, r.itl, r.n_itl);
    if (r.fill_s > 0) s->arm[c->arm].fill_s = r.fill_s; /* later warm-up cells found the cache filled */
    s->arm[c->arm].cell_s = fmax(c->seconds - fmax(r.fill_s, 0), 0);
    reading_done(&r, 1);
    return rc;
}

/* Unknown phases, of a later version, are treated as CELL_WARMUP: they are not compared. */
static enum cell_phase phase_named(const char *name)
{
    for (int p = CELL_CONTROL; p < CELL_PHASES_COUNT; p++)
        if (!strcmp(name, CELL_PHASES[p])) return (enum cell_phase)p;
    return CELL_WARMUP;
}

/* A disturbed block of a version that ended such blocks early. */
static void rebuild_incomplete(struct experiment_state *s, enum cell_phase phase)
{
    if (phase == CELL_CONTROL) {
        s->control_all.incomplete++;
    } else {
        s->complete++;
        s->disturbed++;
    }
    estimand_use(s, s->estimand);
}

/* A complete block takes until its last cell ends. It began when the one before it ended: processes that
 * start between two blocks belong to it, and may take longer than its cells. A gap of minutes is a pause, or
 * the time until the run was resumed. */
static void rebuild_block_time(struct run_totals *l, const struct cell_row *cells, int n, double *ended_s)
{
    static const double LONGEST_START_S = 60;
    double begun = INFINITY, ended = 0;
    for (int i = 0; i < n; i++) {
        const double at = (double)cells[i].started_ms * 1e-3;
        begun = fmin(begun, at);
        ended = fmax(ended, at + fmax(cells[i].seconds, 0));
    }
    const double gap = begun - *ended_s, inside = ended - begun;
    if (!(inside > 0)) return;
    l->blocks_s += inside + (gap > 0 && gap < fmax(inside, LONGEST_START_S) ? gap : 0);
    l->timed_blocks++;
    *ended_s = ended;
}

static enum err_code rebuild_cells(struct experiment_state *s, struct run_totals *l, struct db *d,
                                   const struct cell_row *cells, int n, bool discard_open, struct err *why)
{
    enum err_code rc = ERR_OK;
    double ended_s = -INFINITY; /* of the block before */
    for (int i = 0; i < n && !rc;) {
        const struct cell_row *c = &cells[i];
        char *hash = c->arm >= 0 && c->arm < s->spec.arms ? l->work_hash[work_of_arm(&s->spec, c->arm)]
                                                          : NULL;
        if (hash && !*hash) snprintf(hash, sizeof(l->work_hash[0]), "%s", c->work_hash);
        if (c->block < 0) { /* outside of blocks: warm-up, canary, quality */
            if (!quality_rebuild(s, c) && !strcmp(c->phase, CELL_PHASES[CELL_WARMUP]))
                rc = rebuild_warmup(s, l, d, c, why);
            l->cell_seconds += c->seconds;
            l->cells++;
            i++;
            continue;
        }
        const enum cell_phase phase = phase_named(c->phase);
        const struct block_rows b = block_at(cells, i, n);
        struct block_values values = { .phase = phase };
        if (phase == CELL_WARMUP) { /* an unknown phase */
            i += b.n;
            continue;
        }
        l->next_block[phase] = MAX(l->next_block[phase], c->block + 1);
        for (int k = 0; k < b.n; k++) l->cell_seconds += cells[i + k].seconds;
        l->cells += b.n;
        json_t *echo = NULL;
        bool in_turns = false;
        if (!json_parse(&echo, c->worker_json, strlen(c->worker_json), NULL)) {
            const int64_t repeats = json_get_int(echo, "repeats", s->cell_repeats);
            s->cell_repeats = (int)json_get_int(echo, "repeats_alone", repeats);
            in_turns = json_get_bool(echo, "turns", false);
        }
        json_decref(echo);
        values.disturbed = b.disturbed;
        if (!b.interrupted) rebuild_block_time(l, c, b.n, &ended_s);
        if (!b.interrupted && block_arms(&values, s, c, b.n, in_turns))
            rc = rebuild_block(s, l, d, c, &values, why);
        else if (b.discarded && !b.interrupted)
            rebuild_incomplete(s, phase);
        else if (!b.discarded && discard_open)
            rc = db_block_discard(d, s->run_id, c->block, c->phase, BLOCK_INTERRUPTED, why);
        i += b.n;
    }
    return rc;
}

static void rebuild_event(void *ctx, int64_t unix_ms, const char *kind, const char *text)
{
    struct experiment_state *s = ctx;
    state_event(s, unix_ms, kind, text);
    if (!strcmp(kind, "pause")) {
        s->pauses++;
        s->paused_since_ms = unix_ms;
    } else if (!strcmp(kind, "continue") && s->paused_since_ms) {
        s->paused_s += (double)(unix_ms - s->paused_since_ms) * 1e-3;
        s->paused_since_ms = 0;
    }
}

static void rows_judge(struct experiment_state *s, const struct run_totals *l)
{
    totals_summarize(l, s);
    judge_control(s);
    judge_numbers(s);
    judge_companions(s);
}

/* A run without an outcome has not stored which estimand it uses: repeats its choice, and the plan from which
 * that follows. */
static void estimand_rebuild(struct experiment_state *s, const struct run_totals *l, int64_t until_ms)
{
    if (s->control_blocks >= 2)
        s->planned_blocks = plan_blocks(&s->spec, stats_sd(s->control_d, s->control_blocks));
    int64_t begun_ms = s->started_ms; /* of the session that measured last: the budget is of a session */
    for (int i = 0; i < s->events; i++)
        if (!strcmp(s->event[i].kind, "resume")) begun_ms = s->event[i].unix_ms;
    s->elapsed_s = fmax((double)(until_ms - begun_ms) * 1e-3 - s->paused_s, 0);
    estimand_use(s, estimand_choose(s));
    rows_judge(s, l);
}

enum err_code state_rebuild(struct experiment_state *s, struct run_totals *l, struct db *d, int64_t run_id,
                            bool discard_open, struct err *why)
{
    struct cell_row *cells = NULL;
    int n = 0;
    s->run_id = run_id;
    enum err_code rc = db_cell_list(d, run_id, &cells, &n, why);
    if (!rc) rc = rebuild_cells(s, l, d, cells, n, discard_open, why);
    if (!rc) ranks_rebuild(s, cells, n);
    free(cells);
    if (!rc) rc = db_event_list(d, run_id, rebuild_event, s, why);
    if (rc) return rc;
    rows_judge(s, l);
    return ERR_OK;
}

/* What only the stored outcome knows; everything else comes from the rows. Failures are read before judging,
 * because verdicts depend on them, and texts afterwards, as they were printed. */
static void read_failures(struct experiment_state *s, const json_t *outcome)
{
    for (int i = 0; i < s->spec.arms; i++) {
        const json_t *a = json_array_get(json_object_get(outcome, "arms"), (size_t)i);
        struct experiment_arm *to = &s->arm[i];
        const char *error = json_get_str(a, "error", NULL);
        if (error) {
            to->failed = true;
            snprintf(to->error, sizeof(to->error), "%s", error);
        }
    }
}

static void read_words(struct experiment_state *s, const json_t *outcome)
{
    s->planned_blocks = (int)json_get_int(outcome, "blocks_planned", 0);
    s->overhead_ratio = json_get_num(outcome, "overhead_ratio", NAN);
    s->elapsed_s = json_get_num(outcome, "elapsed_s", 0);
    s->pauses = (int)json_get_int(outcome, "pauses", s->pauses);
    s->paused_s = json_get_num(outcome, "paused_s", s->paused_s);
    s->blocks_needed = (int)json_get_int(outcome, "blocks_needed", -1);
    snprintf(s->reason, sizeof(s->reason), "%s", json_get_str(outcome, "reason", ""));
    snprintf(s->error, sizeof(s->error), "%s", json_get_str(outcome, "error", ""));
}

static enum experiment_phase phase_of(const struct run_row *row, const struct experiment_state *s)
{
    if (!strcmp(row->state, "done")) return PHASE_DONE;
    if (!strcmp(row->state, "failed")) return PHASE_FAILED;
    if (!strcmp(row->state, "stopped")) return PHASE_STOPPED;
    return s->blocks || !s->control_blocks ? PHASE_BLOCKS : PHASE_CONTROL;
}

static enum err_code load_row(struct experiment_state *out, struct db *d, const struct run_row *row,
                              struct err *why)
{
    if (strcmp(row->kind, "ab"))
        return err_set(why, ERR_USAGE, "run %lld is a %s, not an experiment", (long long)row->id, row->kind);
    json_t *o = NULL;
    const char *text = row->spec_json ? row->spec_json : "";
    enum err_code rc = json_parse(&o, text, strlen(text), why);
    struct experiment_spec spec;
    if (!rc) rc = experiment_spec_from_json(&spec, o, why);
    json_decref(o);
    if (rc) return err_prefix(why, "run %lld in the database", (long long)row->id);
    state_init(out, &spec);
    json_t *outcome = NULL;
    if (row->outcome_json && json_parse(&outcome, row->outcome_json, strlen(row->outcome_json), NULL))
        outcome = NULL;
    const enum estimand used = estimand_parse(json_get_str(outcome, "estimand", ""));
    if (used) out->estimand = used;
    struct run_totals *totals = calloc(1, sizeof(*totals));
    if (!totals) rc = err_set(why, ERR_NOMEM, "no memory to read a run");
    if (!rc) rc = state_rebuild(out, totals, d, row->id, false, why);
    out->started_ms = row->started_ms;
    out->ended_ms = row->ended_ms;
    out->phase = phase_of(row, out);
    out->running = !strcmp(row->state, "running");
    if (!rc && !used)
        estimand_rebuild(out, totals, out->running || !row->ended_ms ? clock_unix_ms() : row->ended_ms);
    if (totals) totals_free(totals);
    free(totals);
    if (rc) {
        json_decref(outcome);
        return rc;
    }
    snprintf(out->machine_id, sizeof(out->machine_id), "%s", row->machine);
    if (out->phase >= PHASE_DONE) out->paused_since_ms = 0; /* it was stopped during a pause */
    if (outcome) {
        read_failures(out, outcome);
        if (out->phase == PHASE_DONE) experiment_judge(out);
        read_words(out, outcome);
        json_decref(outcome);
    }
    out->verdict = verdict_parse(row->verdict);
    return ERR_OK;
}

enum err_code experiment_load(struct experiment_state *out, struct db *d, int64_t run_id, struct err *why)
{
    struct run_row row = { 0 };
    enum err_code rc = db_run_get(d, run_id, &row, why);
    if (rc) return rc;
    rc = load_row(out, d, &row, why);
    run_row_free(&row);
    return rc;
}
