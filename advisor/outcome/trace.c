/* advisor/outcome/trace.c - builds the tree of spans of a run from its database rows (outcome.h). */
#include "advisor/outcome/outcome.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/run/run.h"

/* ---------------------------------------------------------------- a tree under construction */

enum { BAG_SIZE = 48 };
/* Collects the attributes of one span; span_set_attributes copies them to the span. */
struct attribute_bag {
    struct otlp_attribute at[BAG_SIZE];
    int n;
};

struct builder {
    struct trace *trace;
    const struct run_row *run;
    int *parent; /* [most] index of each span's parent, -1: a root */
    int most;
    char identity[256];            /* the text that all ids are derived from */
    const struct outcome *outcome; /* NULL: not an experiment, or its results could not be loaded */
    const struct cell_row *cell;
    int *node; /* [cells] index of the span of each cell; -1: the cell has no times and no span */
    int cells;
    bool failed; /* out of memory */
};

static const char *builder_strdup(struct builder *b, const char *text)
{
    const char *copy = arena_strdup(&b->trace->memory, text);
    b->failed = b->failed || !copy;
    return copy;
}

static struct otlp_attribute *bag_add(struct attribute_bag *bag, const char *key, enum otlp_type type)
{
    struct otlp_attribute *a = &bag->at[MIN(bag->n, BAG_SIZE - 1)];
    bag->n = MIN(bag->n + 1, BAG_SIZE);
    *a = (struct otlp_attribute){ .key = key, .type = type };
    return a;
}

static void bag_put_text(struct builder *b, struct attribute_bag *bag, const char *key, const char *text)
{
    if (*text) bag_add(bag, key, OTLP_STRING)->string = builder_strdup(b, text);
}

static void bag_put_int(struct attribute_bag *bag, const char *key, int64_t value)
{
    bag_add(bag, key, OTLP_INT)->integer = value;
}

static void bag_put_num(struct attribute_bag *bag, const char *key, double value)
{
    if (!isnan(value)) bag_add(bag, key, OTLP_DOUBLE)->number = value;
}

static void id_derive(const struct builder *b, const char *path, uint8_t *id, size_t size)
{
    char text[512], hex[HASH_HEX];
    snprintf(text, sizeof(text), "%s %s", b->identity, path);
    hash_bytes(text, strlen(text), hex);
    for (size_t i = 0; i < size; i++) {
        const char byte[3] = { hex[2 * i], hex[2 * i + 1], 0 };
        id[i] = (uint8_t)strtol(byte, NULL, 16);
    }
}

/* Adds a span with the given parent (-1: none) and returns its index. path: unique within the run; the span
 * id is derived from it, so that it is the same whenever the trace is built. */
static int span_new(struct builder *b, int parent, const char *name, const char *path)
{
    struct trace *t = b->trace;
    const int i = t->n++;
    struct otlp_span *s = &t->spans[i];
    *s = (struct otlp_span){ .name = builder_strdup(b, name),
                             .kind = OTLP_KIND_INTERNAL,
                             .begun_ns = UINT64_MAX };
    id_derive(b, "trace", s->trace_id, sizeof(s->trace_id));
    id_derive(b, path, s->span_id, sizeof(s->span_id));
    if (parent >= 0) memcpy(s->parent_id, t->spans[parent].span_id, sizeof(s->parent_id));
    b->parent[i] = parent;
    return i;
}

/* Extends the span so that it contains this time. */
static void span_extend(struct otlp_span *s, int64_t begun_ns, int64_t ended_ns)
{
    s->begun_ns = MIN(s->begun_ns, (uint64_t)begun_ns);
    s->ended_ns = MAX(s->ended_ns, (uint64_t)ended_ns);
}

static void span_set_attributes(struct builder *b, int i, const struct attribute_bag *bag)
{
    struct otlp_attribute *a = arena_alloc(&b->trace->memory, (size_t)MAX(bag->n, 1) * sizeof(*a));
    b->failed = b->failed || !a;
    if (!a) return;
    memcpy(a, bag->at, (size_t)bag->n * sizeof(*a));
    b->trace->spans[i].attributes = a;
    b->trace->spans[i].n_attributes = bag->n;
}

static void span_fail(struct builder *b, int i, const char *message)
{
    b->trace->spans[i].status = OTLP_STATUS_ERROR;
    b->trace->spans[i].message = builder_strdup(b, message);
}

/* ---------------------------------------------------------------- attributes */

/* Attributes of the semantic conventions for generative AI, and the measurement that each one comes from. The
 * names are those of the Python package opentelemetry-semantic-conventions 0.66b2, which has them as
 * "Development": they may still change. For a cell that repeats its workload, token counts are sums over the
 * repeats, and the time to the first token is their mean. */
static const char GEN_AI_OPERATION[] = "text_completion", GEN_AI_PROVIDER[] = "qdyno";
static const struct {
    const char *key, *metric;
    bool is_count;
} GEN_AI[] = {
    { .key = "gen_ai.usage.input_tokens", .metric = "prompt_tokens", .is_count = true },
    { .key = "gen_ai.usage.output_tokens", .metric = "generated_tokens", .is_count = true },
    { .key = "gen_ai.response.time_to_first_chunk", .metric = "ttft_s" },
};

struct figures {
    double gen_ai[COUNT_OF(GEN_AI)], own[METRIC_COUNT];
    bool is_eval, is_training;
};

static void figures_add(void *ctx, const char *metric, const char *unit, double value)
{
    struct figures *f = ctx;
    (void)unit;
    for (size_t i = 0; i < COUNT_OF(GEN_AI); i++)
        if (!strcmp(GEN_AI[i].metric, metric)) f->gen_ai[i] = value;
    const struct metric *m = metric_find(metric);
    if (m) f->own[m - METRICS] = value;
    f->is_eval = f->is_eval || !strcmp(metric, "scored_tokens");
    f->is_training = f->is_training || !strcmp(metric, "train_tokens");
}

static const char *arm_model(const struct builder *b, int arm)
{
    const struct outcome *o = b->outcome;
    return o && arm >= 0 && arm < o->arms && *o->arm[arm].model ? o->arm[arm].model : b->run->model_name;
}

/* "A" to "H"; "" if the cell belongs to no arm. */
static const char *arm_name(int arm)
{
    static const char NAMES[EXPERIMENT_ARMS][2] = { "A", "B", "C", "D", "E", "F", "G", "H" };
    return arm >= 0 && arm < EXPERIMENT_ARMS ? NAMES[arm] : "";
}

static void bag_put_arm(struct builder *b, struct attribute_bag *bag, int arm, const char *config)
{
    bag_put_text(b, bag, "qdyno.arm", arm_name(arm));
    bag_put_text(b, bag, "qdyno.config", config);
}

/* ---------------------------------------------------------------- events */

static void span_add_event(struct builder *b, int span, struct otlp_event *room, const char *name,
                           int64_t time_ns, const char *text)
{
    struct otlp_span *s = &b->trace->spans[span];
    struct otlp_attribute *a = arena_alloc(&b->trace->memory, sizeof(*a));
    b->failed = b->failed || !a;
    if (!a) return;
    *a = (struct otlp_attribute){ .key = "qdyno.text", .string = builder_strdup(b, text) };
    room[s->n_events++] = (struct otlp_event){ builder_strdup(b, name), (uint64_t)time_ns, a, 1 };
    s->events = room;
}

/* Marks a block or cell that was discarded: error status, and an event at its end. */
static void span_discard(struct builder *b, int span, const char *reason)
{
    struct otlp_event *room = arena_alloc(&b->trace->memory, sizeof(*room));
    b->failed = b->failed || !room;
    span_fail(b, span, reason);
    if (room) span_add_event(b, span, room, "discarded", (int64_t)b->trace->spans[span].ended_ns, reason);
}

struct event_list {
    struct builder *b;
    struct otlp_event *room; /* NULL: only counting */
    int n, most;
};

static void event_list_add(void *ctx, int64_t unix_ms, const char *kind, const char *text)
{
    struct event_list *l = ctx;
    if (l->n == l->most) return; /* a running experiment may have added events since they were counted */
    if (l->room) span_add_event(l->b, 0, l->room, kind, unix_ms * 1000000, text);
    l->n++;
}

static enum err_code builder_add_events(struct builder *b, struct db *d, struct err *why)
{
    struct event_list l = { .b = b, .most = INT_MAX };
    enum err_code rc = db_event_list(d, b->run->id, event_list_add, &l, why);
    if (rc || !l.n) return rc;
    l.room = arena_alloc(&b->trace->memory, (size_t)l.n * sizeof(*l.room));
    if (!l.room) return err_set(why, ERR_NOMEM, "no memory for the events of a run");
    l.most = l.n;
    l.n = 0;
    return db_event_list(d, b->run->id, event_list_add, &l, why);
}

/* ---------------------------------------------------------------- run and blocks */

static void bag_put_arms(struct builder *b, struct attribute_bag *bag)
{
    const char **lines = arena_alloc(&b->trace->memory, EXPERIMENT_ARMS * sizeof(*lines));
    int n = 0;
    b->failed = b->failed || !lines;
    for (int arm = 0; arm < EXPERIMENT_ARMS && lines; arm++) {
        int i = 0;
        while (i < b->cells && b->cell[i].arm != arm) i++;
        if (i < b->cells) lines[n++] = builder_strdup(b, b->cell[i].config);
    }
    struct otlp_attribute *a = bag_add(bag, "qdyno.arms", OTLP_STRINGS);
    a->strings = lines;
    a->n = n;
}

static void bag_put_outcome(struct builder *b, struct attribute_bag *bag)
{
    const struct outcome *o = b->outcome;
    if (!o) return;
    const struct {
        const char *key;
        double value;
    } FIGURES[] = {
        { "qdyno.effect.ratio", o->effect },           { "qdyno.effect.lower_ratio", o->lower },
        { "qdyno.effect.upper_ratio", o->upper },      { "qdyno.effect.confidence_ratio", o->confidence },
        { "qdyno.noise_floor_ratio", o->noise_floor }, { "qdyno.kld_mean_nats", o->kld_mean },
    };
    bag_put_text(b, bag, "qdyno.experiment", o->experiment);
    for (size_t i = 0; i < COUNT_OF(FIGURES); i++) bag_put_num(bag, FIGURES[i].key, FIGURES[i].value);
    bag_put_int(bag, "qdyno.blocks.kept", (int64_t)o->blocks);
    bag_put_int(bag, "qdyno.blocks.discarded", (int64_t)o->discarded);
}

static enum err_code builder_add_run(struct builder *b, struct db *d, struct err *why)
{
    const struct run_row *r = b->run;
    struct attribute_bag bag = { .n = 0 };
    const int root = span_new(b, -1, strcmp(r->kind, "ab") ? r->kind : "experiment", "run");
    if (r->started_ms) span_extend(&b->trace->spans[root], r->started_ms * 1000000, r->started_ms * 1000000);
    if (r->ended_ms) span_extend(&b->trace->spans[root], r->ended_ms * 1000000, r->ended_ms * 1000000);
    bag_put_int(&bag, "qdyno.run.id", r->id);
    bag_put_text(b, &bag, "qdyno.run.kind", r->kind);
    bag_put_text(b, &bag, "qdyno.run.state", r->state);
    bag_put_text(b, &bag, "qdyno.machine.id", r->machine);
    bag_put_text(b, &bag, "qdyno.workload", r->workload);
    bag_put_text(b, &bag, "qdyno.metric", r->metric);
    bag_put_int(&bag, "qdyno.seed", (int64_t)r->seed);
    bag_put_text(b, &bag, "qdyno.verdict", r->verdict);
    bag_put_text(b, &bag, "gen_ai.request.model", r->model_name);
    bag_put_text(b, &bag, "qdyno.model.sha256", r->model_sha256);
    bag_put_arms(b, &bag);
    bag_put_outcome(b, &bag);
    span_set_attributes(b, root, &bag);
    if (!strcmp(r->state, "failed")) span_fail(b, root, "the run failed");
    return builder_add_events(b, d, why);
}

/* Index of the span of this phase and block; adds the span if it does not exist. */
static int block_span(struct builder *b, const char *phase, int block)
{
    char path[64];
    uint8_t id[OTLP_SPAN_ID];
    const struct cell_row *first = NULL;
    struct attribute_bag bag = { .n = 0 };
    const char *reason = NULL;
    snprintf(path, sizeof(path), "block/%s/%d", phase, block);
    id_derive(b, path, id, sizeof(id));
    for (int i = b->trace->n - 1; i > 0; i--)
        if (!memcmp(b->trace->spans[i].span_id, id, sizeof(id))) return i;
    const int span = span_new(b, 0, "block", path);
    for (int i = 0; i < b->cells; i++) {
        const struct cell_row *c = &b->cell[i];
        if (c->block != block || strcmp(c->phase, phase)) continue;
        if (!first) first = c;
        if (c->discarded && !reason) reason = c->discard_reason;
        if (*c->error) reason = c->error;
    }
    bag_put_text(b, &bag, "qdyno.block.phase", phase);
    bag_put_int(&bag, "qdyno.block.number", block + 1); /* counted from 1, as in events */
    bag_add(&bag, "qdyno.block.kept", OTLP_BOOL)->truth = first && !reason;
    if (reason) bag_put_text(b, &bag, "qdyno.block.discard_reason", reason);
    span_set_attributes(b, span, &bag);
    if (reason) span_fail(b, span, *reason ? reason : "discarded");
    return span;
}

/* ---------------------------------------------------------------- cells */

static bool figures_are_generation(const struct figures *f)
{
    return !f->is_eval && !f->is_training && (f->gen_ai[0] > 0 || f->gen_ai[1] > 0);
}

static void bag_put_figures(struct builder *b, struct attribute_bag *bag, const struct cell_row *c,
                            const struct figures *f)
{
    if (figures_are_generation(f)) {
        bag_put_text(b, bag, "gen_ai.operation.name", GEN_AI_OPERATION);
        bag_put_text(b, bag, "gen_ai.provider.name", GEN_AI_PROVIDER);
        bag_put_text(b, bag, "gen_ai.request.model", arm_model(b, c->arm));
        for (size_t i = 0; i < COUNT_OF(GEN_AI); i++)
            if (GEN_AI[i].is_count && !isnan(f->gen_ai[i]))
                bag_put_int(bag, GEN_AI[i].key, (int64_t)f->gen_ai[i]);
            else
                bag_put_num(bag, GEN_AI[i].key, f->gen_ai[i]);
    }
    char key[64];
    for (int i = 0; i < METRIC_COUNT; i++)
        if (METRICS[i].traced && !isnan(f->own[i])) {
            snprintf(key, sizeof(key), "qdyno.%s", METRICS[i].name);
            bag_put_num(bag, builder_strdup(b, key), f->own[i]);
        }
}

/* How often the workload ran in the cell; 0: unknown. */
static int64_t cell_row_repeats(const struct cell_row *c)
{
    json_t *o = NULL;
    if (json_parse(&o, c->worker_json, strlen(c->worker_json), NULL)) return 0;
    const int64_t n = json_get_int(o, "repeats", 0);
    json_decref(o);
    return n;
}

/* exact: the row with the cell's times. NULL for runs of older versions, which recorded none: the times are
 * then those of the cell row, in milliseconds. */
static enum err_code builder_add_cell(struct builder *b, struct db *d, int index,
                                      const struct span_row *exact, struct err *why)
{
    const struct cell_row *c = &b->cell[index];
    struct figures f = { .is_eval = false };
    struct attribute_bag bag = { .n = 0 };
    char name[160], path[64];
    if (!exact && (!c->started_ms || isnan(c->seconds))) return ERR_OK;
    for (size_t i = 0; i < COUNT_OF(GEN_AI); i++) f.gen_ai[i] = (double)NAN;
    for (int i = 0; i < METRIC_COUNT; i++) f.own[i] = (double)NAN;
    enum err_code rc = db_measurement_list(d, c->id, figures_add, &f, why);
    if (rc) return rc;
    snprintf(path, sizeof(path), "cell/%lld", (long long)c->id);
    if (figures_are_generation(&f))
        snprintf(name, sizeof(name), "%s %s", GEN_AI_OPERATION, arm_model(b, c->arm));
    else
        snprintf(name, sizeof(name), "%s",
                 f.is_training  ? "train"
                 : f.is_eval    ? "eval"
                 : c->block < 0 ? c->phase
                                : "cell");
    const int parent = c->block < 0 ? 0 : block_span(b, c->phase, c->block),
              span = span_new(b, parent, name, path);
    struct otlp_span *s = &b->trace->spans[span];
    const int64_t from = exact ? exact->begun_ns : c->started_ms * 1000000;
    span_extend(s, from, exact ? exact->ended_ns : from + (int64_t)(c->seconds * 1e9));
    if (figures_are_generation(&f)) s->kind = OTLP_KIND_CLIENT; /* the model runs in another process */
    bag_put_arm(b, &bag, c->arm, c->config);
    bag_put_text(b, &bag, "qdyno.cell.phase", c->phase);
    bag_put_int(&bag, "qdyno.cell.slot", c->slot);
    const int64_t repeats = cell_row_repeats(c);
    if (repeats > 0) bag_put_int(&bag, "qdyno.cell.repeats", repeats);
    bag_put_text(b, &bag, "qdyno.output_hash", c->output_hash);
    bag_put_figures(b, &bag, c, &f);
    if (*c->error) bag_put_text(b, &bag, "error.type", "arm_failed");
    span_set_attributes(b, span, &bag);
    if (c->discarded) span_discard(b, span, *c->discard_reason ? c->discard_reason : "discarded");
    if (*c->error) span_fail(b, span, c->error);
    b->node[index] = span;
    return ERR_OK;
}

/* ---------------------------------------------------------------- recorded spans */

/* Index of the cell with this id, by bisection, because cells are sorted by id. -1: there is none. */
static int cell_index(const struct builder *b, int64_t id)
{
    int from = 0, to = b->cells;
    while (from < to) {
        const int mid = (from + to) / 2;
        if (b->cell[mid].id < id)
            from = mid + 1;
        else
            to = mid;
    }
    return from < b->cells && b->cell[from].id == id ? from : -1;
}

/* Adds a push as a trace of its own that is linked to the run, because a push may happen days after it. */
static void builder_add_push(struct builder *b, const struct span_row *row, const char *path)
{
    struct attribute_bag bag = { .n = 0 };
    const int span = span_new(b, -1, row->name, path);
    struct otlp_span *s = &b->trace->spans[span];
    s->linked = true;
    memcpy(s->link_trace_id, s->trace_id, sizeof(s->link_trace_id));
    memcpy(s->link_span_id, b->trace->spans[0].span_id, sizeof(s->link_span_id));
    id_derive(b, path, s->trace_id, sizeof(s->trace_id));
    s->kind = OTLP_KIND_CLIENT;
    span_extend(s, row->begun_ns, row->ended_ns);
    bag_put_int(&bag, "qdyno.run.id", b->run->id);
    span_set_attributes(b, span, &bag);
    if (*row->error) span_fail(b, span, row->error);
}

static bool is_quantize(const struct span_row *row)
{
    return !strcmp(row->name, "quantize");
}

/* Index of the load span that contains this quantization; -1: none. */
static int load_around(const struct builder *b, const struct span_row *row)
{
    for (int i = b->trace->n - 1; i > 0; i--) {
        const struct otlp_span *s = &b->trace->spans[i];
        if (!strcmp(s->name, "load") && s->begun_ns <= (uint64_t)row->begun_ns &&
            s->ended_ns >= (uint64_t)row->ended_ns)
            return i;
    }
    return -1;
}

static void builder_add_row(struct builder *b, const struct span_row *row)
{
    char path[64];
    struct attribute_bag bag = { .n = 0 };
    const int cell = row->cell_id ? cell_index(b, row->cell_id) : -1;
    snprintf(path, sizeof(path), "span/%lld", (long long)row->id);
    if (!strcmp(row->name, "cell") || row->begun_ns > row->ended_ns) return;
    if (!strcmp(row->name, "push")) {
        builder_add_push(b, row, path);
        return;
    }
    if (row->cell_id && (cell < 0 || b->node[cell] < 0)) return;
    int parent = row->cell_id ? b->node[cell] : is_quantize(row) ? load_around(b, row) : -1;
    if (parent < 0) parent = row->block < 0 ? 0 : block_span(b, row->phase, row->block);
    const int span = span_new(b, parent, row->name, path);
    span_extend(&b->trace->spans[span], row->begun_ns, row->ended_ns);
    if (row->arm >= 0) bag_put_arm(b, &bag, row->arm, "");
    if (!row->cell_id) bag_put_text(b, &bag, "gen_ai.request.model", arm_model(b, row->arm));
    if (*row->error) bag_put_text(b, &bag, "error.type", "arm_failed");
    span_set_attributes(b, span, &bag);
    if (*row->error) span_fail(b, span, row->error);
}

/* Extends every parent to contain its children. Children come after their parents in the array, so one pass
 * from the last span to the first suffices. Removes the span of a run for which no time was recorded. */
static void parents_extend(struct builder *b)
{
    struct otlp_span *s = b->trace->spans;
    for (int i = b->trace->n - 1; i > 0; i--) {
        if (b->parent[i] < 0 || s[i].begun_ns > s[i].ended_ns) continue;
        span_extend(&s[b->parent[i]], (int64_t)s[i].begun_ns, (int64_t)s[i].ended_ns);
    }
    if (b->trace->n == 1 && s[0].begun_ns > s[0].ended_ns) b->trace->n = 0;
}

/* ---------------------------------------------------------------- the whole trace */

static enum err_code builder_add_all(struct builder *b, struct db *d, const struct span_row *rows, int n,
                                     struct err *why)
{
    enum err_code rc = builder_add_run(b, d, why);
    for (int i = 0; i < b->cells; i++) b->node[i] = -1;
    const struct span_row **exact = calloc((size_t)MAX(b->cells, 1), sizeof(*exact));
    if (!exact) return err_set(why, ERR_NOMEM, "no memory for a trace");
    for (int i = 0; i < n; i++) {
        const int cell = strcmp(rows[i].name, "cell") ? -1 : cell_index(b, rows[i].cell_id);
        if (cell >= 0) exact[cell] = &rows[i];
    }
    for (int i = 0; i < b->cells && !rc; i++) rc = builder_add_cell(b, d, i, exact[i], why);
    for (int inner = 0; inner < 2; inner++) /* quantizations last, because their parents are the load spans */
        for (int i = 0; i < n && !rc; i++)
            if (is_quantize(&rows[i]) == inner) builder_add_row(b, &rows[i]);
    free(exact);
    parents_extend(b);
    return rc;
}

/* Ids are derived from machine, start time, run id, seed and model. The run id alone is not unique, because
 * every database counts from 1. */
static void builder_identify(struct builder *b)
{
    snprintf(b->identity, sizeof(b->identity), "qdyno/1 %s %lld %lld %llu %s", b->run->machine,
             (long long)b->run->started_ms, (long long)b->run->id, (unsigned long long)b->run->seed,
             b->run->model_sha256);
}

/* Finds the resource of the trace: the machine and the program version that measured the run. */
static enum err_code resource_find(struct trace *t, struct db *d, const struct run_row *run, struct err *why)
{
    char *text = NULL;
    json_t *machine = NULL, *capsule = NULL;
    struct machine m;
    bool known = false;
    enum err_code rc = *run->machine ? db_machine_get(d, run->machine, &text, why) : ERR_OK;
    if (!rc && text && !json_parse(&machine, text, strlen(text), NULL))
        known = !machine_from_json(&m, machine, NULL);
    if (!rc) rc = capsule_find(&capsule, d, run->id, why);
    const char *version = json_get_str(json_object_get(capsule, "program"), "version", NULL);
    if (!rc) rc = otlp_identify(&t->who, known ? &m : NULL, version, why);
    json_decref(capsule);
    json_decref(machine);
    free(text);
    return rc;
}

static enum err_code builder_run(struct builder *b, struct db *d, struct err *why)
{
    struct span_row *rows = NULL;
    struct cell_row *cells = NULL;
    int n = 0;
    enum err_code rc = db_cell_list(d, b->run->id, &cells, &b->cells, why);
    if (!rc) rc = db_span_list(d, b->run->id, &rows, &n, why);
    b->cell = cells;
    b->most = 1 + 2 * (b->cells + n); /* each may add the span of its block */
    b->trace->spans = arena_alloc(&b->trace->memory, (size_t)b->most * sizeof(*b->trace->spans));
    b->parent = arena_alloc(&b->trace->memory, (size_t)b->most * sizeof(*b->parent));
    b->node = arena_alloc(&b->trace->memory, (size_t)MAX(b->cells, 1) * sizeof(*b->node));
    if (!rc && (!b->trace->spans || !b->parent || !b->node))
        rc = err_set(why, ERR_NOMEM, "no memory for a trace of %d spans", b->most);
    builder_identify(b);
    if (!rc) rc = builder_add_all(b, d, rows, n, why);
    if (!rc && b->failed) rc = err_set(why, ERR_NOMEM, "no memory for a trace of %d spans", b->most);
    free(rows);
    free(cells);
    return rc;
}

enum err_code trace_build(struct trace *out, struct db *d, int64_t run_id, struct err *why)
{
    struct run_row run = { 0 };
    struct err ignored;
    *out = (struct trace){ 0 };
    enum err_code rc = db_run_get(d, run_id, &run, why);
    if (rc) return rc;
    struct outcome *outcome = malloc(sizeof(*outcome));
    struct builder b = { .trace = out, .run = &run };
    if (!outcome) rc = err_set(why, ERR_NOMEM, "no memory for a run");
    /* a run without an outcome, such as a bench or an experiment that was killed early, also has a trace */
    if (!rc && !strcmp(run.kind, "ab") && !outcome_load(outcome, d, run_id, &ignored)) b.outcome = outcome;
    if (!rc) rc = resource_find(out, d, &run, why);
    if (!rc) rc = builder_run(&b, d, why);
    free(outcome);
    run_row_free(&run);
    if (rc) trace_free(out);
    return rc;
}

void trace_free(struct trace *t)
{
    otlp_identity_free(&t->who);
    arena_free(&t->memory);
    *t = (struct trace){ 0 };
}
