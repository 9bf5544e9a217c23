/* advisor/run/run.c - the pipeline of a measured run: begin, cells, finish (run.h). */
#include "advisor/run/run.h"
#include "advisor/run/cell_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cut/cut.h"

/* ---------------------------------------------------------------- arms */

/* What is known of one config of the run. Texts are copies: callers may reuse theirs. */
struct run_arm {
    char *line, *model_path, *model_name;
    char sha256[HASH_HEX]; /* "" unknown */
    bool described;        /* its process has answered, and the capsule says what */
    bool resolved_known;
    struct config resolved;
    json_t *engine; /* owned; of another engine */
};

static bool text_copy(char **to, const char *from)
{
    *to = strdup(from ? from : "");
    return *to != NULL;
}

/* Takes the identity of the model and the resolved config from the answer with which a process opened. */
static void arm_read_description(struct run_arm *a, const json_t *description)
{
    const char *sha = json_get_str(description, "sha256", "");
    if (*sha) snprintf(a->sha256, sizeof a->sha256, "%s", sha);
    const json_t *keys = json_object_get(description, "config");
    if (keys) a->resolved_known = !config_from_json(&a->resolved, keys, NULL);
    const json_t *engine = json_object_get(description, "engine");
    if (json_is_object(engine)) {
        json_decref(a->engine);
        a->engine = json_deep_copy(engine);
    }
    a->described = a->described || description;
}

static enum err_code arm_init(struct run_arm *a, const struct capsule_arm *from, struct err *why)
{
    if (!text_copy(&a->line, from->line) || !text_copy(&a->model_path, from->model_path) ||
        !text_copy(&a->model_name, from->model_name))
        return err_set(why, ERR_NOMEM, "no memory for the arms of a run");
    if (from->sha256) snprintf(a->sha256, sizeof a->sha256, "%s", from->sha256);
    a->resolved_known = from->resolved != NULL;
    if (from->resolved) a->resolved = *from->resolved;
    arm_read_description(a, from->description);
    return ERR_OK;
}

static enum err_code arm_store_model(struct run *r, const struct run_arm *a, const json_t *description,
                                     struct err *why)
{
    if (!*a->sha256) return ERR_OK;
    char *text = description ? json_line(description) : strdup("{}");
    const enum err_code rc = text ? db_model_put(r->db, a->sha256, a->model_name, a->model_path, text, why)
                                  : err_set(why, ERR_NOMEM, "no memory to describe a model");
    free(text);
    return rc;
}

/* ---------------------------------------------------------------- begin */

static enum err_code machine_store(struct run *r, struct err *why)
{
    json_t *o = machine_to_json(r->machine);
    char *text = json_line(o);
    json_decref(o);
    const enum err_code rc = text ? db_machine_put(r->db, r->machine->id, text, why)
                                  : err_set(why, ERR_NOMEM, "no memory to describe the machine");
    free(text);
    return rc;
}

static enum err_code capsule_update(struct run *r, struct err *why)
{
    struct capsule_arm *arm = calloc((size_t)r->arms + 1, sizeof *arm);
    if (!arm) return err_set(why, ERR_NOMEM, "no memory for the provenance record of a run");
    for (int i = 0; i < r->arms; i++) {
        const struct run_arm *a = &r->arm[i];
        arm[i] = (struct capsule_arm){ .line = a->line,
                                       .resolved = a->resolved_known ? &a->resolved : NULL,
                                       .model_path = a->model_path,
                                       .model_name = a->model_name,
                                       .sha256 = a->sha256,
                                       .engine = a->engine };
    }
    const struct capsule_of of = { r->machine, r->root, r->program, arm, r->arms };
    const enum err_code rc = capsule_store(r->db, r->row.id, &of, why);
    free(arm);
    return rc;
}

/* The row names the first model that is known: an arm that failed to open has none. */
static enum err_code row_insert(struct run *r, const struct run_spec *s, struct db *holder, struct err *why)
{
    const struct run_arm *known = r->arm;
    for (int i = 1; i < r->arms && !*known->sha256; i++) known = &r->arm[i];
    if (!*known->sha256) known = r->arm;
    r->row = (struct run_row){ .seed = s->seed, .effect_ratio = NAN };
    snprintf(r->row.kind, sizeof r->row.kind, "%s", s->kind);
    snprintf(r->row.state, sizeof r->row.state, "running");
    snprintf(r->row.machine, sizeof r->row.machine, "%s", r->machine->id);
    snprintf(r->row.model_sha256, sizeof r->row.model_sha256, "%s", known->sha256);
    snprintf(r->row.model_name, sizeof r->row.model_name, "%s", known->model_name);
    snprintf(r->row.workload, sizeof r->row.workload, "%s", s->workload);
    text_cut(r->row.label, sizeof r->row.label, s->label);
    snprintf(r->row.metric, sizeof r->row.metric, "%s", s->metric ? s->metric : "");
    r->row.spec_json = (char *)s->spec_json; /* read by db_run_insert_locked only; never freed here */
    const enum err_code rc = db_run_insert_locked(r->db, holder, &r->row, why);
    r->row.spec_json = NULL;
    if (rc) r->row.id = 0;
    return rc;
}

static enum err_code run_alloc(struct run *r, const struct run_spec *s, struct err *why)
{
    enum err_code rc = ERR_OK;
    r->window = malloc(WINDOW_SAMPLES * sizeof *r->window);
    r->stored = malloc(WINDOW_STORED * sizeof *r->stored);
    r->arm = calloc((size_t)s->arms, sizeof *r->arm);
    if (!r->window || !r->stored || !r->arm) return err_set(why, ERR_NOMEM, "no memory for a run");
    r->arms = s->arms;
    for (int i = 0; i < s->arms && !rc; i++) rc = arm_init(&r->arm[i], &s->arm[i], why);
    return rc;
}

enum err_code run_begin(struct run *r, struct db *db, const struct run_spec *s, struct err *why)
{
    static const struct canary UNKNOWN = { .read_bytes_s = NAN, .ops_s = NAN, .seconds = NAN };
    *r = (struct run){ .db = db,
                       .machine = s->machine,
                       .ceilings = s->ceilings,
                       .sampler = s->sampler,
                       .root = s->root ? s->root : "",
                       .program = s->program,
                       .has_canary = s->has_canary,
                       .canary = { UNKNOWN, UNKNOWN } };
    enum err_code rc = run_alloc(r, s, why);
    if (!rc) rc = machine_store(r, why);
    for (int i = 0; i < r->arms && !rc; i++) rc = arm_store_model(r, &r->arm[i], s->arm[i].description, why);
    struct db *holder = s->holder ? s->holder : db;
    if (!rc) rc = s->resume_id ? db_run_lock(holder, s->resume_id, why) : row_insert(r, s, holder, why);
    if (!rc && s->resume_id) rc = db_run_reopen(db, s->resume_id, why);
    if (rc) return rc;
    if (s->resume_id) r->row.id = s->resume_id;
    if (s->labels && !s->resume_id) rc = db_labels_put(db, r->row.id, s->labels, why);
    if (!rc && !s->resume_id) rc = capsule_update(r, why); /* a resumed run keeps the one of its beginning */
    if (!rc && r->has_canary) rc = run_canary(r, CANARY_START, why);
    return rc;
}

enum err_code run_arm_opened(struct run *r, int arm, const struct span_load *load, struct err *why)
{
    enum err_code rc = ERR_OK;
    if (load->description && !r->arm[arm].described) {
        arm_read_description(&r->arm[arm], load->description);
        rc = arm_store_model(r, &r->arm[arm], load->description, why);
        if (!rc) rc = capsule_update(r, why);
    }
    return rc ? rc : spans_store_load(r->db, r->row.id, arm, load, why);
}

/* ---------------------------------------------------------------- conditions */

enum err_code run_conditions_open(struct run *r, const struct run_timing *t, struct err *why)
{
    struct prediction p;
    conditions_probe_close(&r->conditions);
    if (t->workload->train || *t->workload->eval_file || !run_predict(r, t, &p)) return ERR_OK;
    const int threads = t->workload->prompt ? p.prefill_work.threads : p.decode_threads;
    return conditions_probe_open(&r->conditions, threads, r->ceilings, why);
}

void run_conditions_sample(struct run *r, int pid)
{
    conditions_probe_run(&r->conditions, pid);
}

struct conditions run_conditions(const struct run *r)
{
    return conditions_probe_result(&r->conditions);
}

/* ---------------------------------------------------------------- cells */

static void cell_judge(const struct run *r, const struct run_cell *what, struct measured_cell *c)
{
    const struct contamination_of of = {
        .major_faults = c->field[FIELD_MAJOR_FAULTS],
        .control_frequency = what->control_frequency,
        .on_gpu = arm_on_gpu(what->arm),
    };
    contamination_reason(r->window, r->samples, &of, c->disturbed, sizeof c->disturbed);
}

static struct cell_ask ask_of(const struct run *r, const struct run_cell *what)
{
    return (struct cell_ask){ .arm = what->arm,
                              .workload = what->workload,
                              .repeats = MAX(1, what->repeats),
                              .seed = what->seed,
                              .sampler = r->sampler,
                              .event = what->event,
                              .ctx = what->ctx };
}

enum err_code run_measure_cell(struct run *r, const struct run_cell *what, struct measured_cell *c,
                               struct err *why)
{
    const struct cell_ask ask = ask_of(r, what);
    return cell_take(c, &ask, r->window, &r->samples, why);
}

/* What follows a measured cell: was the machine disturbed, how fast is it now, and its rows. */
static enum err_code cell_finish(struct run *r, const struct run_cell *what, struct measured_cell *c,
                                 struct err *why)
{
    if (!c->failure.code && what->contamination != CONTAMINATION_IGNORED) cell_judge(r, what, c);
    c->discarded = *c->disturbed && what->contamination == CONTAMINATION_DISCARDS;
    if (what->sample_conditions) run_conditions_sample(r, arm_pid(what->arm));
    c->beside = run_conditions(r);
    return run_store(r, &what->place, c, why);
}

enum err_code run_cell(struct run *r, const struct run_cell *what, struct measured_cell *c, struct err *why)
{
    enum err_code rc = run_measure_cell(r, what, c, &c->failure);
    c->failure.code = rc; /* cell_take clears c before it fails */
    if (what->sequence_rates) cell_derive_sequences(c);
    if (rc == ERR_CANCELLED) {
        *why = c->failure;
        return rc;
    }
    return cell_finish(r, what, c, why);
}

enum err_code run_cells_in_turns(struct run *r, const struct run_cell *what, int n,
                                 const struct run_turns *turns, struct measured_cell *c, struct err *why)
{
    struct cell_ask ask[CELLS_IN_TURNS];
    if (n < 1 || n > CELLS_IN_TURNS)
        return err_set(why, ERR_USAGE, "%d cells in turns: expected 1 to %d", n, CELLS_IN_TURNS);
    for (int i = 0; i < n; i++) ask[i] = ask_of(r, &what[i]);
    cells_take_in_turns(c, ask, n, turns->length, r->window, &r->samples);
    bool failed = false, cancelled = false;
    for (int i = 0; i < n; i++) {
        failed = failed || (c[i].failure.code && c[i].failure.code != ERR_CANCELLED);
        cancelled = cancelled || c[i].failure.code == ERR_CANCELLED;
    }
    if (cancelled && !failed) return err_set(why, ERR_CANCELLED, "cancelled");
    enum err_code rc = ERR_OK;
    for (int i = 0; i < n && !rc; i++)
        if (c[i].failure.code != ERR_CANCELLED) {
            if (i != turns->reference)
                c[i].turn_log_ratio = turns_log_speedup(&c[turns->reference], &c[i], turns->prefill);
            rc = cell_finish(r, &what[i], &c[i], why);
        }
    return rc;
}

void run_measure_begin(struct run *r, struct measured_cell *c, int pid)
{
    cell_init(c);
    if (r->sampler) sampler_monitor_process(r->sampler, pid);
    cell_clock_start(c);
}

void run_measure_end(struct run *r, struct measured_cell *c)
{
    cell_clock_stop(c, r->sampler, r->window, &r->samples);
}

/* What the caller wants to keep of a cell, or all that its process answered, as far as it is short; in both,
 * the figures of all ranks and where prompts come from. Owned: free; NULL: nothing. */
static char *echo_text(const json_t *echo, const json_t *answer)
{
    enum { SHORT = 4096 };
    static const char *const ALWAYS[] = { "ranks", "prompts" };
    char text[SHORT];
    json_t *kept = json_copy((json_t *)(echo ? echo : answer));
    bool more = false;
    if (!kept) return NULL;
    for (size_t i = 0; i < COUNT_OF(ALWAYS); i++) {
        more |= json_object_get(answer, ALWAYS[i]) != NULL;
        json_object_del(kept, ALWAYS[i]);
    }
    run_echo_text(text, sizeof text, kept);
    json_decref(kept);
    if (!more || json_parse(&kept, text, strlen(text), NULL)) return strdup(text);
    for (size_t i = 0; i < COUNT_OF(ALWAYS); i++) {
        json_t *value = json_object_get(answer, ALWAYS[i]);
        if (value) json_object_set(kept, ALWAYS[i], value);
    }
    char *line = json_line(kept);
    json_decref(kept);
    return line;
}

enum err_code run_store(struct run *r, const struct run_place *p, const struct measured_cell *c,
                        struct err *why)
{
    struct cell_row row = { .run_id = r->row.id, .arm = p->arm, .block = p->block, .slot = p->slot };
    snprintf(row.phase, sizeof row.phase, "%s", p->phase);
    snprintf(row.config, sizeof row.config, "%s", p->config);
    snprintf(row.error, sizeof row.error, "%s", c->failure.code ? c->failure.message : "");
    char *echo = echo_text(p->echo, c->answer);
    row.worker_json = echo;
    const int stored = cell_thin(r->window, r->samples, c->begun_ns, r->stored);
    const enum err_code rc = cell_insert(r->db, &row, c, r->stored, stored, why);
    if (!rc) run_note_prompts(r, c->answer);
    free(echo);
    return rc;
}

/* The key of the member that takes most text; NULL when `o` has no members. */
static const char *largest_member(const json_t *o)
{
    const char *key, *largest = NULL;
    json_t *value;
    size_t most = 0;
    json_object_foreach((json_t *)o, key, value)
    {
        char *text = json_line(value);
        const size_t n = text ? strlen(text) : 0;
        if (!largest || n > most) {
            largest = key;
            most = n;
        }
        free(text);
    }
    return largest;
}

/* Removes what takes most text: a member, or a member of a member that is an object with several. */
static bool drop_largest(json_t *o)
{
    const char *key = largest_member(o);
    if (!key) return false;
    json_t *inner = json_object_get(o, key);
    if (json_is_object(inner) && json_object_size(inner) > 1)
        json_object_del(inner, largest_member(inner));
    else
        json_object_del(o, key);
    return true;
}

void run_echo_text(char *buf, size_t size, const json_t *document)
{
    json_t *o = json_deep_copy(document);
    buf[0] = '\0';
    for (bool more = o != NULL; more && !*buf; more = drop_largest(o)) {
        char *line = json_line(o);
        if (line && strlen(line) < size) snprintf(buf, size, "%s", line);
        free(line);
    }
    json_decref(o);
}

/* ---------------------------------------------------------------- canary, finish */

enum err_code run_canary(struct run *r, enum canary_when when, struct err *why)
{
    struct canary *c = &r->canary[when];
    canary_measure(c);
    return canary_store(r->db, r->row.id, when, c, why);
}

enum err_code run_finish(struct run *r, const struct run_outcome *o, struct err *why)
{
    if (!r->row.id) return ERR_OK;
    char *text = o->document ? json_line(o->document) : NULL;
    const bool incomplete = o->document && !text;
    memory_short_clear(); /* the state is stored even so: a run must not stay "running" */
    enum err_code rc = r->has_canary ? run_canary(r, CANARY_END, why) : ERR_OK;
    if (!rc && incomplete) rc = err_set(why, ERR_NOMEM, "no memory for the outcome of a run");
    const enum err_code ended = db_run_finish(r->db, r->row.id, incomplete ? "failed" : o->state,
                                              o->verdict ? o->verdict : "", o->effect_ratio, text,
                                              rc ? NULL : why);
    /* A row without a document takes little room. As after a kill, an experiment can be resumed. */
    if (ended) (void)db_run_finish(r->db, r->row.id, "interrupted", "", (double)NAN, NULL, NULL);
    free(text);
    return rc ? rc : ended;
}

void run_close(struct run *r)
{
    conditions_probe_close(&r->conditions);
    for (int i = 0; i < r->arms; i++) {
        free(r->arm[i].line);
        free(r->arm[i].model_path);
        free(r->arm[i].model_name);
        json_decref(r->arm[i].engine);
    }
    free(r->arm);
    free(r->window);
    free(r->stored);
    str_free(&r->prompt_notes);
    *r = (struct run){ 0 };
}
