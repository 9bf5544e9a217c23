/* advisor/run/turns.c - cells of several arms at the same time, in turns (run.h).
 *
 * Other programs disturb the machine for milliseconds to minutes. What is compared with a pause in between
 * differs by all of it; what alternates within a tenth of a second differs only by disturbances shorter than
 * that. Each arm has a thread that waits for its worker. A worker asks for its next turn with the event
 * "turn", and the callback returns when it is the arm's turn. An arm keeps its turn between two repeats, so
 * that preparing a repeat disturbs nobody. */
#include "advisor/run/run.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/run/cell_parts.h"
#include "advisor/stats/stats.h"

enum { NOBODY = -1, CHECK_MS = 100 };

double others_running(void)
{
    static const char KEY[] = "procs_running ";
    char line[256];
    double n = NAN;
    FILE *f = fopen("/proc/stat", "re");
    while (f && isnan(n) && fgets(line, sizeof(line), f))
        if (!strncmp(line, KEY, sizeof(KEY) - 1)) n = fmax(0, strtod(line + sizeof(KEY) - 1, NULL) - 1);
    if (f) fclose(f);
    return n;
}

struct turns;

/* One arm. */
struct player {
    struct turns *turns;
    const struct cell_ask *ask;
    struct measured_cell *cell;
    pthread_t thread;
    bool started; /* the thread */
    bool arrived; /* its worker has asked for its first turn */
    bool done;
    double load_sum; /* other runnable tasks, over its turns */
    int turns_had;
};

struct turns {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct player player[CELLS_IN_TURNS];
    int n;
    int holder;   /* whose turn it is, or NOBODY */
    int position; /* of the next turn in the sequence */
    double load;  /* other runnable tasks when the last turn began */
    bool stop;    /* an arm failed, or the caller's callback wants to cancel */
};

/* The arm at this position of the sequence: rounds of 2n turns, forwards and backwards. Each round starts at
 * another arm, chosen by a hash of its number, so that no periodic disturbance follows the sequence. */
static int turn_of(int position, int n)
{
    const int round = position / (2 * n), in_round = position % (2 * n);
    const int place = in_round < n ? in_round : 2 * n - 1 - in_round;
    const uint32_t hash = (uint32_t)round * 2654435761u; /* Knuth's multiplicative hash */
    return (place + (int)((hash >> 16) % (uint32_t)n)) % n;
}

/* Gives the next turn to an arm that still runs. The first turn begins when all workers are ready. Called
 * with the lock held and nobody's turn. */
static void turns_advance(struct turns *t)
{
    bool any = false;
    for (int i = 0; i < t->n; i++) {
        if (!t->player[i].arrived && !t->player[i].done) return;
        any = any || !t->player[i].done;
    }
    if (!any) return;
    while (t->player[turn_of(t->position, t->n)].done) t->position++;
    t->holder = turn_of(t->position++, t->n);
    t->load = others_running();
    pthread_cond_broadcast(&t->changed);
}

/* Ends the turn of the arm if it has it. With the lock held. */
static void turn_end(struct player *p)
{
    struct turns *t = p->turns;
    if (t->holder == NOBODY || &t->player[t->holder] != p) return;
    /* Between two turns none of our processes works, so this counts other programs only. */
    p->load_sum += 0.5 * (t->load + others_running());
    p->turns_had++;
    t->holder = NOBODY;
}

/* Waits until it is this arm's turn. False: cancelled. With the lock held. */
static bool turn_wait(struct player *p)
{
    struct turns *t = p->turns;
    while (!t->stop && (t->holder == NOBODY || &t->player[t->holder] != p)) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += CHECK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        (void)pthread_cond_timedwait(&t->changed, &t->lock, &until);
    }
    return !t->stop;
}

/* The callback of an arm's requests: hands turns over, and passes everything else to the caller's callback,
 * to one thread at a time. */
static bool player_event(void *ctx, const json_t *event)
{
    struct player *p = ctx;
    struct turns *t = p->turns;
    pthread_mutex_lock(&t->lock);
    bool on = !t->stop;
    if (event && !strcmp(json_get_str(event, "event", ""), "turn")) {
        turn_end(p);
        p->arrived = true;
        if (t->holder == NOBODY) turns_advance(t);
        on = turn_wait(p);
    } else if (on && p->ask->event && !p->ask->event(p->ask->ctx, event)) {
        t->stop = true;
        on = false;
    }
    if (!on) pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return on;
}

static void *player_thread(void *arg)
{
    struct player *p = arg;
    struct turns *t = p->turns;
    struct cell_ask ask = *p->ask;
    ask.event = player_event;
    ask.ctx = p;
    struct err why = { 0 };
    const enum err_code rc = cell_run_repeats(p->cell, &ask, &why);
    pthread_mutex_lock(&t->lock);
    p->cell->failure = why;
    p->cell->failure.code = rc;
    turn_end(p);
    p->done = true;
    if (rc) t->stop = true;
    if (t->holder == NOBODY && !t->stop) turns_advance(t);
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void players_start(struct turns *t, const struct cell_ask *ask)
{
    for (int i = 0; i < t->n; i++) {
        struct player *p = &t->player[i];
        p->turns = t;
        p->ask = &ask[i];
    }
    for (int i = 0; i < t->n; i++) {
        struct player *p = &t->player[i];
        p->started = !pthread_create(&p->thread, NULL, player_thread, p);
        if (p->started) continue;
        pthread_mutex_lock(&t->lock);
        p->done = t->stop = true;
        p->cell->failure.code = err_set(&p->cell->failure, ERR_NOMEM, "cannot start a thread for an arm");
        pthread_cond_broadcast(&t->changed);
        pthread_mutex_unlock(&t->lock);
    }
}

void cells_take_in_turns(struct measured_cell *c, const struct cell_ask *ask, int n, struct turn_length turn,
                         struct sample *window, int *samples)
{
    struct turns t = { .n = MIN(n, CELLS_IN_TURNS), .holder = NOBODY };
    struct cell_ask own[CELLS_IN_TURNS];
    struct sampler_thread *sampler = ask[0].sampler;
    pthread_condattr_t attr;
    pthread_mutex_init(&t.lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&t.changed, &attr);
    pthread_condattr_destroy(&attr);
    if (sampler) sampler_monitor_process(sampler, 0); /* no single process works during this time */
    for (int i = 0; i < t.n; i++) {
        own[i] = ask[i];
        own[i].turn = turn;
        cell_init(&c[i]);
        cell_clock_start(&c[i]);
        t.player[i].cell = &c[i];
    }
    players_start(&t, own);
    for (int i = 0; i < t.n; i++)
        if (t.player[i].started) pthread_join(t.player[i].thread, NULL);
    for (int i = 0; i < t.n; i++) {
        const struct player *p = &t.player[i];
        cell_clock_stop(&c[i], sampler, window, samples);
        c[i].seconds /= t.n; /* together they took that long */
        cell_derive(&c[i]);
        c[i].others_running = p->turns_had ? p->load_sum / p->turns_had : NAN;
    }
    pthread_cond_destroy(&t.changed);
    pthread_mutex_destroy(&t.lock);
}

double turns_log_speedup(const struct measured_cell *a, const struct measured_cell *b, bool prefill)
{
    enum { FEWEST = 3 };
    const int most = MIN(a->n_turns, b->n_turns);
    double *d = malloc((size_t)MAX(most, 1) * sizeof(*d)), median = NAN;
    int n = 0;
    for (int i = 0; d && i < most; i++) {
        const struct cell_turn *x = &a->turn[i], *y = &b->turn[i];
        if (x->prefill != prefill || y->prefill != prefill || !(x->seconds > 0) || !(y->seconds > 0))
            continue;
        d[n++] = log((double)x->seconds / (double)y->seconds);
    }
    if (n >= FEWEST) {
        stats_sort(d, n);
        median = stats_quantile_sorted(d, n, 0.5);
    }
    free(d);
    return median;
}

struct turn_length turn_length_for(const struct workload *w, int batch, double prefill_s, double decode_s,
                                   double turn_s)
{
    struct turn_length t = { .steps = 1, .passes = 1 };
    if (decode_s > 0 && w->gen > 0) { /* turns of the same length: the steps divided by their number */
        const double turns = fmin(fmax(round(decode_s / turn_s), 1), w->gen);
        t.steps = (int)ceil(w->gen / turns);
    }
    const double rows = (double)w->prompt * workload_sequences(w), passes = ceil(rows / MAX(batch, 1));
    if (prefill_s > 0 && passes > 0) t.passes = (int)fmax(1, floor(turn_s * passes / prefill_s));
    return t;
}
