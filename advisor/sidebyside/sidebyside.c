/* advisor/sidebyside/sidebyside.c - two workers that take turns, and a thread for each that waits for its
 * answers. */
#include "advisor/sidebyside/sidebyside.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/run/run.h"

static const double TURN_S = 0.1;
static const char END_OF_TEXT[] = "end of text";

struct writer {
    struct sidebyside *both;
    int arm;
    pthread_t thread;
    bool joinable;
};

struct sidebyside {
    pthread_mutex_t lock; /* guards all members below */
    pthread_cond_t changed;
    struct sidebyside_state state;
    int begin[SIDEBYSIDE_ARMS][SIDEBYSIDE_TOKENS]; /* byte of the text at which each token begins */
    int holder;                                    /* arm that has the machine, -1 */
    int last;                                      /* arm that had it last */
    bool wants[SIDEBYSIDE_ARMS];
    int loaded;   /* arms that have loaded, or failed to */
    int finished; /* arms whose process has ended */

    atomic_bool stop;
    struct writer writer[SIDEBYSIDE_ARMS];
    struct config config[SIDEBYSIDE_ARMS];
    char *program;
    struct log log;
};

/* ---------------------------------------------------------------- pure */

/* Tokens of an arm that end at or before `bytes`. */
static int tokens_within(const struct sidebyside_arm *a, const int *begin, int bytes)
{
    int n = 0;
    while (n < a->tokens && (n + 1 < a->tokens ? begin[n + 1] : a->text_bytes) <= bytes) n++;
    return n;
}

/* If one text has ended and the other goes on, they differ at the end of the shorter one. */
static bool goes_beyond(const struct sidebyside_arm *ended, const struct sidebyside_arm *other)
{
    return ended->ended && !strcmp(ended->ended, END_OF_TEXT) && other->text_bytes > ended->text_bytes;
}

/* Fills same_tokens, same_bytes and differ. begin[k][i]: byte at which token i of arm k begins. */
static void sidebyside_compare(struct sidebyside_state *s, int begin[SIDEBYSIDE_ARMS][SIDEBYSIDE_TOKENS])
{
    const struct sidebyside_arm *a = &s->arm[0], *b = &s->arm[1];
    const int most = MIN(a->text_bytes, b->text_bytes);
    int same = 0;
    while (same < most && a->text[same] == b->text[same]) same++;
    s->differ = same < most || goes_beyond(a, b) || goes_beyond(b, a);
    s->same_tokens = tokens_within(a, begin[0], same);
    /* the difference is reported at the start of the token that differs */
    const int at = s->same_tokens < a->tokens ? begin[0][s->same_tokens] : a->text_bytes;
    s->same_bytes = MIN(at, same);
}

/* ---------------------------------------------------------------- turns */

/* Under the lock: waits until it is this arm's turn. False: stop. */
static bool machine_take(struct sidebyside *s, int arm)
{
    const int other = 1 - arm;
    s->wants[arm] = true;
    while (!atomic_load(&s->stop) && !(s->holder < 0 && (!s->wants[other] || s->last == other)))
        pthread_cond_wait(&s->changed, &s->lock);
    s->wants[arm] = false;
    if (atomic_load(&s->stop)) return false;
    s->holder = s->last = arm;
    s->state.arm[arm].works = true;
    return true;
}

static void machine_give(struct sidebyside *s, int arm)
{
    if (s->holder == arm) s->holder = -1;
    s->wants[arm] = s->state.arm[arm].works = false;
    pthread_cond_broadcast(&s->changed);
}

/* ---------------------------------------------------------------- events of the workers */

/* False when the text has no room for it. */
static bool take_token(struct sidebyside *s, int arm, const json_t *event)
{
    struct sidebyside_arm *a = &s->state.arm[arm];
    const char *text = json_get_str(event, "text", "");
    const int bytes = (int)strlen(text);
    const bool counts = !json_is_null(
        json_object_get(event, "token")); /* otherwise these are the last bytes of a character */
    if (a->text_bytes + bytes >= SIDEBYSIDE_TEXT || (counts && a->tokens == SIDEBYSIDE_TOKENS)) {
        a->ended = "room";
        return false;
    }
    if (counts) s->begin[arm][a->tokens++] = a->text_bytes;
    memcpy(a->text + a->text_bytes, text, (size_t)bytes + 1);
    a->text_bytes += bytes;
    a->phase = SIDEBYSIDE_WRITING;
    a->decode_s = json_get_num(event, "seconds", NAN);
    a->tok_s = a->tokens > 1 && a->decode_s > 0 ? (a->tokens - 1) / a->decode_s : NAN;
    sidebyside_compare(&s->state, s->begin);
    return true;
}

static bool sidebyside_on_event(void *ctx, const json_t *event)
{
    const struct writer *w = ctx;
    struct sidebyside *s = w->both;
    bool on = true;
    if (!event) return !atomic_load(&s->stop);
    const char *name = json_get_str(event, "event", "");
    pthread_mutex_lock(&s->lock);
    struct sidebyside_arm *a = &s->state.arm[w->arm];
    if (!strcmp(name, "turn")) {
        machine_give(s, w->arm);
        on = machine_take(s, w->arm);
    } else if (!strcmp(name, "token")) {
        on = take_token(s, w->arm, event);
    } else if (!strcmp(json_get_str(event, "phase", ""), "prefill")) {
        a->phase = SIDEBYSIDE_READING;
        a->prefill_s = json_get_num(event, "seconds", NAN);
    } else if (a->phase == SIDEBYSIDE_LOADING && json_get_num(event, "of", 0) > 0) {
        a->loaded_ratio = json_get_num(event, "done", NAN) / json_get_num(event, "of", NAN);
    }
    pthread_mutex_unlock(&s->lock);
    return on && !atomic_load(&s->stop);
}

/* ---------------------------------------------------------------- one arm */

static void arm_ends(struct sidebyside *s, int arm, enum err_code rc, const struct err *why)
{
    struct sidebyside_arm *a = &s->state.arm[arm];
    const bool stopped = rc == ERR_CANCELLED && !a->ended;
    a->phase = !rc || a->ended ? SIDEBYSIDE_DONE : stopped ? SIDEBYSIDE_STOPPED : SIDEBYSIDE_FAILED;
    if (a->phase == SIDEBYSIDE_FAILED) snprintf(a->error, sizeof a->error, "%s", why->message);
    sidebyside_compare(&s->state, s->begin);
}

static enum err_code arm_loads(struct writer *w, struct arm **out, struct err *why)
{
    struct sidebyside *s = w->both;
    const struct config *config = &s->config[w->arm];
    const struct arm_spec spec = {
        .model = s->state.model,
        .config = config,
        /* a token has at least one byte; 0: the config line sets the context */
        .ctx = config_int(config, KNOB_CTX) ? 0 : (int)strlen(s->state.prompt) + s->state.limit + 8,
        .sequences = 1,
        .program = s->program,
        .log = &s->log,
    };
    pthread_mutex_lock(&s->lock); /* one loads after the other: loading uses the whole machine */
    const bool on = machine_take(s, w->arm);
    pthread_mutex_unlock(&s->lock);
    const int64_t begun = clock_ns();
    enum err_code rc = on ? arm_open(out, &spec, sidebyside_on_event, w, why)
                          : err_set(why, ERR_CANCELLED, "cancelled");
    pthread_mutex_lock(&s->lock);
    struct sidebyside_arm *a = &s->state.arm[w->arm];
    if (!rc) {
        a->load_s = (double)(clock_ns() - begun) * 1e-9;
        a->phase = SIDEBYSIDE_WAITING;
        s->state.random_weights = s->state.random_weights ||
                                  json_get_bool(arm_description(*out), "random_weights", false);
        s->state.answers_unverified = s->state.answers_unverified ||
                                      json_get_bool(arm_description(*out), "answers_unverified", false);
    }
    s->loaded++;
    machine_give(s, w->arm);
    /* A begins, whichever thread is ready first */
    for (int i = 0; s->loaded == SIDEBYSIDE_ARMS && i < SIDEBYSIDE_ARMS; i++)
        s->wants[i] = s->state.arm[i].phase == SIDEBYSIDE_WAITING;
    while (s->loaded < SIDEBYSIDE_ARMS && !atomic_load(&s->stop)) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static void *writer_thread(void *arg)
{
    pthread_setname_np(pthread_self(), "side by side");
    struct writer *w = arg;
    struct sidebyside *s = w->both;
    struct arm *arm = NULL;
    struct err why = { 0 };
    json_t *answer = NULL;
    enum err_code rc = arm_loads(w, &arm, &why);
    const struct generate_spec spec = { .prompt = s->state.prompt, .n = s->state.limit, .turn_s = TURN_S };
    if (!rc) rc = arm_generate(arm, &spec, &answer, sidebyside_on_event, w, &why);
    pthread_mutex_lock(&s->lock);
    struct sidebyside_arm *a = &s->state.arm[w->arm];
    if (!rc) {
        const char *stop = json_get_str(answer, "stop", "");
        a->ended = !strcmp(stop, "eos") ? END_OF_TEXT : !strcmp(stop, "context") ? "context" : "limit";
    }
    arm_ends(s, w->arm, rc, &why);
    machine_give(s, w->arm); /* before the process ends, so that the other arm need not wait for it */
    pthread_mutex_unlock(&s->lock);
    json_decref(answer);
    arm_close(arm);
    pthread_mutex_lock(&s->lock);
    s->finished++;
    s->state.running = s->finished < SIDEBYSIDE_ARMS;
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---------------------------------------------------------------- public functions */

static enum err_code check_spec(const struct sidebyside_spec *spec, struct err *why)
{
    struct sidebyside_state *s = NULL;
    if (!*spec->prompt) return err_set(why, ERR_USAGE, "the prompt is empty: expected something to continue");
    if (strlen(spec->prompt) >= sizeof s->prompt)
        return err_set(why, ERR_USAGE, "the prompt has %zu bytes: expected at most %zu", strlen(spec->prompt),
                       sizeof s->prompt - 1);
    if (spec->tokens < 1 || spec->tokens > SIDEBYSIDE_TOKENS)
        return err_set(why, ERR_USAGE, "%d tokens: expected 1 to %d", spec->tokens, SIDEBYSIDE_TOKENS);
    return ERR_OK;
}

static void state_describe(struct sidebyside *s, const struct sidebyside_spec *spec)
{
    struct sidebyside_state *state = &s->state;
    snprintf(state->model, sizeof state->model, "%s", spec->model ? spec->model : "");
    snprintf(state->prompt, sizeof state->prompt, "%s", spec->prompt);
    state->limit = spec->tokens;
    state->started_ms = clock_unix_ms();
    state->running = true;
    s->holder = -1;
    s->last = SIDEBYSIDE_ARMS - 1; /* A begins */
    for (int i = 0; i < SIDEBYSIDE_ARMS; i++) {
        struct sidebyside_arm *a = &state->arm[i];
        s->config[i] = spec->config[i];
        s->writer[i] = (struct writer){ .both = s, .arm = i };
        config_line(&s->config[i], a->line, sizeof a->line);
        a->loaded_ratio = a->load_s = a->prefill_s = a->tok_s = NAN;
    }
    s->wants[0] = true; /* it loads first, whichever thread runs first */
}

enum err_code sidebyside_start(struct sidebyside **out, const struct sidebyside_spec *spec, struct err *why)
{
    *out = NULL;
    enum err_code rc = check_spec(spec, why);
    if (rc) return rc;
    struct sidebyside *s = calloc(1, sizeof *s);
    if (!s) return err_set(why, ERR_NOMEM, "no memory for two arms");
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    atomic_init(&s->stop, false);
    s->log = spec->log ? *spec->log : (struct log){ .level = LOG_QUIET };
    state_describe(s, spec);
    if (spec->program && !(s->program = strdup(spec->program)))
        rc = err_set(why, ERR_NOMEM, "no memory for two arms");
    for (int i = 0; i < SIDEBYSIDE_ARMS && !rc; i++) {
        struct writer *w = &s->writer[i];
        errno = pthread_create(&w->thread, NULL, writer_thread, w);
        w->joinable = !errno;
        if (errno)
            rc = err_set(why, err_of_errno(errno), "cannot start an arm's thread: %s", strerror(errno));
    }
    if (rc)
        sidebyside_close(s);
    else
        *out = s;
    return rc;
}

void sidebyside_state(struct sidebyside *s, struct sidebyside_state *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->state;
    pthread_mutex_unlock(&s->lock);
}

bool sidebyside_finished(struct sidebyside *s)
{
    pthread_mutex_lock(&s->lock);
    const bool finished = !s->state.running;
    pthread_mutex_unlock(&s->lock);
    return finished;
}

void sidebyside_stop(struct sidebyside *s)
{
    pthread_mutex_lock(&s->lock);
    atomic_store(&s->stop, true);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void sidebyside_close(struct sidebyside *s)
{
    if (!s) return;
    sidebyside_stop(s);
    for (int i = 0; i < SIDEBYSIDE_ARMS; i++)
        if (s->writer[i].joinable) pthread_join(s->writer[i].thread, NULL);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s->program);
    free(s);
}
