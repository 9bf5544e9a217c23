/* advisor/sidebyside/sidebyside.h - the public header of advisor/sidebyside/. */
#ifndef QDYNO_ADVISOR_SIDEBYSIDE_H
#define QDYNO_ADVISOR_SIDEBYSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "engine/config/config.h"

/* Two configurations continue the same prompt side by side, for the dashboard.
 *
 * They take turns of a tenth of a second (or one step, if that takes longer), so each has the whole machine
 * during its turn and runs at the rate it has alone. Both always take the most likely token, so differences
 * between the texts come from the configurations. This is a demonstration; `ab` measures. */

enum { SIDEBYSIDE_ARMS = 2, SIDEBYSIDE_TOKENS = 512, SIDEBYSIDE_TEXT = 16384 };

struct sidebyside_spec {
    const char *model; /* used when a config names none; "": the bundled one */
    struct config config[SIDEBYSIDE_ARMS];
    const char *prompt;  /* not empty */
    int tokens;          /* to write at most, 1 to SIDEBYSIDE_TOKENS */
    const char *program; /* worker binary, NULL: self */
    const struct log *log;
};

enum sidebyside_phase {
    SIDEBYSIDE_LOADING,
    SIDEBYSIDE_WAITING, /* loaded, and waiting for the other to load */
    SIDEBYSIDE_READING, /* processing the prompt */
    SIDEBYSIDE_WRITING,
    SIDEBYSIDE_DONE,
    SIDEBYSIDE_STOPPED, /* on request */
    SIDEBYSIDE_FAILED
};

struct sidebyside_arm {
    enum sidebyside_phase phase;
    char line[CONFIG_LINE]; /* config line as given */
    char error[512];        /* FAILED */
    const char *ended;      /* DONE: "limit" "end of text" "context" "room" (of `text`) */
    bool works;             /* it is its turn */
    int tokens;             /* written */
    double loaded_ratio;    /* while LOADING; NAN unknown */
    double load_s;          /* NAN until loaded */
    double prefill_s;       /* reading the prompt, work only; NAN until read */
    double decode_s;        /* work only */
    double tok_s;           /* of the tokens after the first, NAN before */
    int text_bytes;
    char text[SIDEBYSIDE_TEXT]; /* UTF-8, a whole number of tokens */
};

/* A value: copied under the lock. */
struct sidebyside_state {
    char model[512], prompt[512];
    int64_t started_ms;                      /* unix */
    int limit;                               /* tokens */
    bool running;                            /* an arm is not at its end */
    bool random_weights, answers_unverified; /* of any arm */
    struct sidebyside_arm arm[SIDEBYSIDE_ARMS];
    int same_tokens; /* tokens at the beginning that are equal in both texts */
    int same_bytes;  /* the same in bytes of `text` */
    bool differ;     /* the texts differ after them; false: not known yet */
};

struct sidebyside;

/* Begins in two threads of its own; *out owned. Errors: ERR_USAGE (prompt, tokens), ERR_NOMEM, ERR_INTERNAL.
 * What happens to an arm is in its state. */
enum err_code sidebyside_start(struct sidebyside **out, const struct sidebyside_spec *spec, struct err *why);
void sidebyside_state(struct sidebyside *s, struct sidebyside_state *out);
bool sidebyside_finished(struct sidebyside *s); /* no process is left */
void sidebyside_stop(struct sidebyside *s);     /* asks */
void sidebyside_close(struct sidebyside *s);    /* stop, join, free; NULL is fine */

#endif
