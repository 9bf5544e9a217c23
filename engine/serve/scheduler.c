/* Chooses the rows of each step (scheduler.h). Requests are kept in the order of their arrival. */
#include "engine/serve/scheduler_parts.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    FIRST_CHUNK = 32, /* rows of prompts beside requests that generate, before the cost of a step is known */
};

/* ---------------------------------------------------------------- open and close */

enum err_code scheduler_open(struct scheduler **out, const struct scheduler_options *o, struct err *why)
{
    *out = NULL;
    if (o->blocks < 2 || o->block_tokens < 1 || o->ctx < 2 || o->max_sequences < 1 ||
        o->step_tokens < o->max_sequences)
        return err_set(
            why, ERR_USAGE,
            "expected at least 2 blocks, a context of 2 tokens, 1 sequence and a row of each step for "
            "every sequence; found %d, %d, %d and %d rows",
            o->blocks, o->ctx, o->max_sequences, o->step_tokens);
    struct scheduler *s = calloc(1, sizeof *s);
    if (!s) return err_set(why, ERR_NOMEM, "out of memory for a scheduler");
    const size_t sequences = (size_t)o->max_sequences;
    s->o = *o;
    s->sequences_most = o->max_sequences;
    s->next_id = 1;
    hash_key_make(&s->key);
    step_cost_init(&s->cost);
    s->sequence_used = calloc(sequences, sizeof *s->sequence_used);
    s->contents = calloc((size_t)o->blocks * (size_t)o->block_tokens, sizeof *s->contents);
    s->slices = calloc(sequences, sizeof *s->slices);
    /* In one step each block leaves the cache at most once, enters it at most once, and each sequence copies
     * one. */
    s->moves_room = 2 * o->blocks + o->max_sequences;
    s->moves = calloc((size_t)s->moves_room, sizeof *s->moves);
    const enum err_code rc = pool_open(&s->pool, o->blocks, o->evict, why);
    if (!rc && s->sequence_used && s->contents && s->slices && s->moves) {
        *out = s;
        return ERR_OK;
    }
    scheduler_close(s);
    return rc ? rc : err_set(why, ERR_NOMEM, "out of memory for a scheduler of %d blocks", o->blocks);
}

static void entry_free(struct entry *e)
{
    free(e->r.tokens);
    free(e->r.blocks);
    free(e->names);
    free(e);
}

void scheduler_close(struct scheduler *s)
{
    if (!s) return;
    for (int i = 0; i < s->count; i++) entry_free(s->entries[i]);
    pool_close(s->pool);
    free(s->entries);
    free(s->order);
    free(s->sequence_used);
    free(s->contents);
    free(s->slices);
    free(s->moves);
    free(s);
}

/* ---------------------------------------------------------------- requests */

static int blocks_for(const struct scheduler *s, int tokens)
{
    return (tokens + s->o.block_tokens - 1) / s->o.block_tokens;
}

static enum err_code entry_make(struct entry **out, const struct scheduler *s, const int32_t *prompt, int n,
                                int most, struct err *why)
{
    struct entry *e = *out = calloc(1, sizeof *e);
    const size_t blocks = (size_t)blocks_for(s, most);
    if (!e) return err_set(why, ERR_NOMEM, "out of memory for a request");
    e->r = (struct request){ .known = n, .prompt = n, .most = most, .sequence = NONE };
    e->r.tokens = malloc((size_t)most * sizeof *e->r.tokens);
    e->r.blocks = malloc(blocks * sizeof *e->r.blocks);
    e->names = malloc(blocks * sizeof *e->names);
    if (!e->r.tokens || !e->r.blocks || !e->names) {
        entry_free(e);
        return err_set(why, ERR_NOMEM, "out of memory for a request of %d tokens", most);
    }
    memcpy(e->r.tokens, prompt, (size_t)n * sizeof *prompt);
    return ERR_OK;
}

static bool make_room(struct scheduler *s)
{
    if (s->count < s->room) return true;
    const int room = MAX(2 * s->room, 16);
    struct entry **entries = realloc(s->entries, (size_t)room * sizeof *entries);
    if (entries) s->entries = entries;
    struct entry **order = realloc(s->order, (size_t)room * sizeof *order);
    if (order) s->order = order;
    if (entries && order) s->room = room;
    return entries && order;
}

enum err_code scheduler_submit(struct scheduler *s, const int32_t *prompt, int n, int generate, int priority,
                               int64_t *id, struct err *why)
{
    struct entry *e;
    if (n < 1 || generate < 1)
        return err_set(why, ERR_USAGE, "a request needs at least one token of prompt and one to generate");
    /* The last token is never computed. One block more may be needed to copy a shared one. */
    const int64_t tokens = (int64_t)n + generate, stored = tokens - 1;
    const int64_t most = MIN((int64_t)s->o.ctx + 1, (int64_t)(s->o.blocks - 1) * s->o.block_tokens + 1);
    if (tokens > most)
        return err_set(
            why, ERR_FIT,
            "the prompt has %d tokens and %d may be generated: %lld must be stored, but the context or "
            "the cache has room for %lld",
            n, generate, (long long)stored, (long long)most - 1);
    if (!make_room(s)) return err_set(why, ERR_NOMEM, "out of memory for %d requests", s->count + 1);
    const enum err_code rc = entry_make(&e, s, prompt, n, (int)tokens, why);
    if (rc) return rc;
    e->r.id = *id = s->next_id++;
    e->r.priority = priority;
    s->entries[s->count++] = e;
    return ERR_OK;
}

static struct entry *entry_find(const struct scheduler *s, int64_t id)
{
    int from = 0, to = s->count; /* ids ascend in order of arrival */
    while (from < to) {
        const int middle = (from + to) / 2;
        if (s->entries[middle]->r.id < id)
            from = middle + 1;
        else
            to = middle;
    }
    return from < s->count && s->entries[from]->r.id == id ? s->entries[from] : NULL;
}

const struct request *scheduler_find(const struct scheduler *s, int64_t id)
{
    const struct entry *e = entry_find(s, id);
    return e && !e->ended ? &e->r : NULL;
}

void scheduler_set_owner(struct scheduler *s, int64_t id, void *owner)
{
    struct entry *e = entry_find(s, id);
    if (e) e->r.owner = owner;
}

/* ---------------------------------------------------------------- places in the cache */

/* Give up all blocks, so that the end of the text is evicted before its start. */
static void entry_leave(struct scheduler *s, struct entry *e)
{
    const bool start_first = EVICT_POLICIES[s->o.evict].start_first;
    for (int k = 0; k < e->r.block_count; k++) {
        const int i = start_first ? k : e->r.block_count - 1 - k;
        pool_release(s->pool, e->r.blocks[i], e->r.priority, INT64_MAX);
    }
    if (e->r.sequence != NONE) s->sequence_used[e->r.sequence] = false;
    e->r.sequence = NONE;
    e->r.block_count = e->r.computed = 0;
    e->r.state = REQUEST_WAITING;
}

static void step_add_move(struct scheduler *s, struct block_move move)
{
    assert(s->step.moves < s->moves_room);
    s->moves[s->step.moves++] = move;
}

/* Copy the blocks with computed tokens out of the cache, if there is room for them outside. */
static void entry_swap_out(struct scheduler *s, struct entry *e)
{
    const int n = blocks_for(s, e->r.computed);
    if (s->swapped + n > s->o.blocks || s->step.moves + n > s->moves_room) return;
    for (int i = 0; i < n; i++)
        step_add_move(s, (struct block_move){ MOVE_OUT, e->r.blocks[i], NONE, e->r.id, i, e->r.sequence });
    e->swapped_tokens = e->r.computed;
    e->r.swapped = n;
    s->swapped += n;
}

static void entry_preempt(struct scheduler *s, struct entry *e)
{
    if (s->o.preempt == PREEMPT_SWAP) entry_swap_out(s, e);
    entry_leave(s, e);
    e->r.preemptions++;
    s->preemptions++;
    s->preempted = true;
}

static bool is_more_important(const struct scheduler *s, const struct entry *a, const struct entry *b)
{
    if (s->o.schedule == SCHEDULE_PRIORITY && a->r.priority != b->r.priority)
        return a->r.priority > b->r.priority;
    return a->r.id < b->r.id;
}

/* The least important running request that has no rows in this step yet and is less important than e. */
static struct entry *victim_for(const struct scheduler *s, const struct entry *e)
{
    struct entry *victim = NULL;
    for (int i = 0; i < s->count; i++) {
        struct entry *v = s->entries[i];
        if (v->r.state != REQUEST_RUNNING || v->in_step || !is_more_important(s, e, v)) continue;
        if (!victim || is_more_important(s, victim, v)) victim = v;
    }
    return victim;
}

/* Get blocks for so many tokens. False: there are none now; those that it has got stay. */
static bool entry_grow(struct scheduler *s, struct entry *e, int tokens, bool may_preempt)
{
    while (e->r.block_count < blocks_for(s, tokens)) {
        const int32_t block = pool_take(s->pool);
        struct entry *victim = block == NONE && may_preempt ? victim_for(s, e) : NULL;
        if (victim) entry_preempt(s, victim);
        if (block == NONE && !victim) return false;
        if (block != NONE) e->r.blocks[e->r.block_count++] = block;
    }
    return true;
}

/* The names of the first n blocks, which are full. */
static const struct block_name *entry_name(struct scheduler *s, struct entry *e, int n)
{
    const int size = s->o.block_tokens;
    for (; e->named < n; e->named++)
        e->names[e->named] = pool_name_of(&s->key, e->named ? &e->names[e->named - 1] : NULL,
                                          e->r.tokens + e->named * size, size);
    return e->names;
}

/* Use the cached blocks that the request's text begins with. At least its last token remains to be computed.
 */
static void entry_find_prefix(struct scheduler *s, struct entry *e)
{
    const int size = s->o.block_tokens, full = e->r.known / size;
    for (int i = 0; s->o.prefix_cache && i < full; i++) {
        const int32_t block = pool_find(s->pool, &entry_name(s, e, i + 1)[i]);
        if (block == NONE) break;
        if (memcmp(s->contents + (int64_t)block * size, e->r.tokens + i * size,
                   (size_t)size * sizeof(int32_t))) {
            pool_release(s->pool, block, e->r.priority, INT64_MAX); /* another text with the same name */
            break;
        }
        e->r.blocks[e->r.block_count++] = block;
    }
    e->r.computed = MIN(e->r.block_count * size, e->r.known - 1);
    e->r.found = e->r.computed;
}

/* Replace the last block by a copy of it, which may be written. The original may be evicted at once: copies
 * run before the rows of a step, in the order in which they were chosen. */
static bool entry_copy_last(struct scheduler *s, struct entry *e)
{
    const int32_t copy = pool_take(s->pool);
    int32_t *last = &e->r.blocks[e->r.block_count - 1];
    if (copy == NONE) return false;
    step_add_move(s, (struct block_move){ MOVE_COPY, *last, copy, e->r.id, e->r.block_count - 1, NONE });
    pool_release(s->pool, *last, e->r.priority, INT64_MAX);
    *last = copy;
    return true;
}

static void step_drop_move(struct scheduler *s, int at)
{
    memmove(s->moves + at, s->moves + at + 1, (size_t)(--s->step.moves - at) * sizeof *s->moves);
}

static void entry_forget_swapped(struct scheduler *s, struct entry *e)
{
    s->swapped -= e->r.swapped;
    e->r.swapped = e->swapped_tokens = 0;
}

/* Its blocks have their earlier contents again when the step runs. */
static void entry_swap_in(struct scheduler *s, struct entry *e)
{
    for (int i = 0; i < e->r.swapped; i++)
        step_add_move(s, (struct block_move){ MOVE_IN, NONE, e->r.blocks[i], e->r.id, i, e->r.sequence });
    e->r.computed = e->swapped_tokens;
    entry_forget_swapped(s, e);
}

/* A sequence that no request has. NONE: so many requests run as may. After max_sequences was lowered, those
 * that run may have any of the sequences that there were. */
static int sequence_free(const struct scheduler *s)
{
    int running = 0, sequence = NONE;
    for (int i = s->sequences_most - 1; i >= 0; i--) {
        running += s->sequence_used[i];
        if (!s->sequence_used[i]) sequence = i;
    }
    return running < s->o.max_sequences ? sequence : NONE;
}

/* Let a waiting request into the cache. False, and it has nothing: there is no room for all its known tokens.
 */
static bool entry_admit(struct scheduler *s, struct entry *e)
{
    const int sequence = sequence_free(s);
    if (sequence == NONE || s->step.moves + e->r.swapped >= s->moves_room) return false;
    const bool may_preempt = s->o.schedule == SCHEDULE_PRIORITY;
    const int moves = s->step.moves;
    if (!e->r.swapped) entry_find_prefix(s, e);
    const bool shared = e->r.computed < e->r.block_count * s->o.block_tokens;
    if ((shared && !entry_copy_last(s, e)) || !entry_grow(s, e, e->r.known, may_preempt)) {
        /* its copy, if any, is not needed; what preempting others moved out is */
        for (int i = moves; i < s->step.moves; i++)
            if (s->moves[i].kind == MOVE_COPY) step_drop_move(s, i--);
        entry_leave(s, e);
        return false;
    }
    e->r.sequence = sequence;
    if (e->r.swapped)
        entry_swap_in(s, e);
    else
        s->found_tokens += e->r.found;
    e->r.state = REQUEST_RUNNING;
    s->sequence_used[sequence] = true;
    return true;
}

/* ---------------------------------------------------------------- a step */

static int tokens_left(const struct entry *e)
{
    return e->r.known - e->r.computed;
}

/* Its next row is a generated token, or the last one of the prompt. */
static bool generates(const struct entry *e)
{
    return tokens_left(e) == 1;
}

/* Cached tokens that rows from..from + n of a text look at. */
static double attended_by(int from, int n)
{
    return n * (from + (n + 1) / 2.0);
}

/* The time that a step may take while requests generate. */
static double step_limit(const struct scheduler *s)
{
    static const double SHARE_OF_PROMPTS = 0.25; /* of the time that generating takes alone */
    return fmax(s->o.itl_limit_s, (1 + SHARE_OF_PROMPTS) * step_cost_expect(&s->cost, &s->decode_work));
}

/* Most rows of a prompt from `from` on that keep the step within the limit. */
static int rows_within_limit(const struct scheduler *s, int from, int most)
{
    bool waits = false;
    for (int i = 0; i < s->step.slices; i++) waits |= s->slices[i].n == 1;
    if (!waits || s->o.itl_limit_s <= 0) return most;
    int least = 1; /* a prompt goes on in every step */
    /* At most twice the rows of any step so far, so that a wrong expectation costs little. */
    most = MIN(most, MAX((int)FIRST_CHUNK, 2 * (int)s->cost.rows_most));
    if (isnan(step_cost_expect(&s->cost, &s->work))) return MIN(most, (int)FIRST_CHUNK);
    const double limit_s = step_limit(s);
    while (least < most) { /* the cost grows with the rows */
        const int rows = least + (most - least + 1) / 2;
        const struct step_work w = { s->work.rows + rows, s->work.attended + attended_by(from, rows) };
        if (step_cost_expect(&s->cost, &w) <= limit_s)
            least = rows;
        else
            most = rows - 1;
    }
    return least;
}

/* Give a running request its rows of this step, if there are any left. */
static void step_give(struct scheduler *s, struct entry *e)
{
    int n = MIN(tokens_left(e), s->o.step_tokens - s->step.rows);
    if (n > 1) n = rows_within_limit(s, e->r.computed, n);
    if (n < 1 || !entry_grow(s, e, e->r.computed + n, true)) return;
    s->slices[s->step.slices++] = (struct slice){
        .request = &e->r, .from = e->r.computed, .n = n, .logits = e->r.computed + n == e->r.known
    };
    s->step.rows += n;
    s->work.rows += n;
    s->work.attended += attended_by(e->r.computed, n);
    if (n == 1) {
        s->decode_work.rows += 1;
        s->decode_work.attended += attended_by(e->r.computed, 1);
    }
    e->in_step = true;
}

static int64_t rank_of(const struct scheduler *s, const struct entry *e)
{
    if (s->o.schedule == SCHEDULE_PRIORITY) return -(int64_t)e->r.priority;
    return s->o.schedule == SCHEDULE_SHORTEST ? tokens_left(e) : 0;
}

static int by_rank(const void *a, const void *b)
{
    const struct entry *x = *(struct entry *const *)a, *y = *(struct entry *const *)b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return (x->r.id > y->r.id) - (x->r.id < y->r.id);
}

/* Collect the requests of a state into s->order, the next one first. Returns their number. */
static int order_requests(struct scheduler *s, enum request_state state)
{
    int n = 0;
    for (int i = 0; i < s->count; i++) {
        struct entry *e = s->entries[i];
        if (e->r.state != state || e->ended) continue;
        e->rank = rank_of(s, e);
        s->order[n++] = e;
    }
    const bool by_arrival = s->o.schedule != SCHEDULE_PRIORITY && s->o.schedule != SCHEDULE_SHORTEST;
    if (n && !by_arrival)
        qsort(s->order, (size_t)n, sizeof *s->order, by_rank); /* arrival is their order now */
    return n;
}

static void step_give_running(struct scheduler *s)
{
    const int n = order_requests(s, REQUEST_RUNNING);
    const bool prompts_first = s->o.schedule == SCHEDULE_PREFILL_FIRST;
    for (int phase = 0; phase < 2; phase++)
        for (int i = 0; i < n; i++) {
            struct entry *e = s->order[i];
            const bool first = generates(e) != prompts_first;
            if (first == !phase && e->r.state == REQUEST_RUNNING && !e->in_step) step_give(s, e);
        }
}

static bool in_batches(const struct scheduler *s)
{
    return s->o.schedule == SCHEDULE_STATIC || s->o.schedule == SCHEDULE_DYNAMIC;
}

/* With static and dynamic batches: begin the next one when the last has ended. waiting: requests in s->order.
 */
static void batch_begin(struct scheduler *s, int waiting, bool flush)
{
    for (int i = 0; i < s->count; i++)
        if (s->entries[i]->in_batch) return;
    if (s->o.schedule == SCHEDULE_STATIC && waiting < s->o.max_sequences && !flush) return;
    for (int i = 0; i < MIN(waiting, s->o.max_sequences); i++) s->order[i]->in_batch = true;
}

static void step_admit(struct scheduler *s, bool flush)
{
    const int n = order_requests(s, REQUEST_WAITING);
    if (in_batches(s)) batch_begin(s, n, flush);
    for (int i = 0; i < n && s->step.rows < s->o.step_tokens && !s->preempted; i++) {
        struct entry *e = s->order[i];
        if (in_batches(s) && !e->in_batch) continue;
        if (!entry_admit(s, e)) return; /* the next one must not overtake it */
        step_give(s, e);
    }
}

void scheduler_step(struct scheduler *s, bool flush, struct step *out)
{
    s->step = (struct step){ .slice = s->slices, .move = s->moves };
    s->work = s->decode_work = (struct step_work){ 0 };
    s->preempted = false;
    if (s->o.schedule == SCHEDULE_PREFILL_FIRST) step_admit(s, flush);
    step_give_running(s);
    if (s->o.schedule != SCHEDULE_PREFILL_FIRST) step_admit(s, flush);
    *out = s->step;
}

/* Name the blocks that became full, so that other requests find them. */
static void entry_name_full(struct scheduler *s, struct entry *e, int before)
{
    const int size = s->o.block_tokens, full = e->r.computed / size;
    for (int i = before / size; s->o.prefix_cache && i < full; i++) {
        const int32_t block = e->r.blocks[i], parent = i ? e->r.blocks[i - 1] : NONE;
        if (!pool_name(s->pool, block, &entry_name(s, e, full)[i], parent)) continue;
        memcpy(s->contents + (int64_t)block * size, e->r.tokens + i * size, (size_t)size * sizeof(int32_t));
    }
}

static void entry_remove(struct scheduler *s, struct entry *e)
{
    int at = 0;
    while (s->entries[at] != e) at++;
    if (e->r.state == REQUEST_RUNNING) entry_leave(s, e);
    entry_forget_swapped(s, e);
    memmove(s->entries + at, s->entries + at + 1, (size_t)(--s->count - at) * sizeof(struct entry *));
    entry_free(e);
}

void scheduler_computed(struct scheduler *s, double seconds)
{
    if (s->step.rows && seconds > 0) step_cost_learn(&s->cost, &s->work, seconds);
    for (int i = 0; i < s->step.slices; i++) {
        struct entry *e = entry_find(s, s->slices[i].request->id);
        const int before = e->r.computed;
        e->r.computed += s->slices[i].n;
        e->in_step = false;
        entry_name_full(s, e, before);
        if (e->ended) entry_remove(s, e);
    }
    s->step.slices = s->step.rows = s->step.moves = 0;
}

void scheduler_append(struct scheduler *s, int64_t id, int32_t token)
{
    struct entry *e = entry_find(s, id);
    if (e && !e->ended && e->r.known < e->r.most) e->r.tokens[e->r.known++] = token;
}

void scheduler_end(struct scheduler *s, int64_t id)
{
    struct entry *e = entry_find(s, id);
    if (!e) return;
    if (e->in_step)
        e->ended = true; /* the step still writes its blocks */
    else
        entry_remove(s, e);
}
