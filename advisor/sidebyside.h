/* advisor/sidebyside.h - two configurations continue the same prompt, watched while they write.
 *
 * They work by turns of a tenth of a second (of one step, where that takes longer), so each has the whole
 * machine while it works: its rate is what it would be alone, and the faster one gets ahead. Both take the
 * likeliest token, so that where they differ it is the configurations' doing. This shows; `ab` measures. */
#ifndef QDYNO_ADVISOR_SIDEBYSIDE_H
#define QDYNO_ADVISOR_SIDEBYSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/config/config.h"
#include "kernels/kernels.h"

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
    SIDEBYSIDE_WAITING, /* loaded; the other is not yet */
    SIDEBYSIDE_READING, /* the prompt */
    SIDEBYSIDE_WRITING,
    SIDEBYSIDE_DONE,
    SIDEBYSIDE_STOPPED, /* somebody asked */
    SIDEBYSIDE_FAILED
};

struct sidebyside_arm {
    enum sidebyside_phase phase;
    char line[640];      /* config line as given */
    char error[512];     /* FAILED */
    const char *ended;   /* DONE: "limit" "end of text" "context" "room" (of `text`) */
    bool works;          /* has the machine now */
    int tokens;          /* written */
    double loaded_ratio; /* while LOADING; NAN unknown */
    double load_s;       /* NAN until loaded */
    double prefill_s;    /* reading the prompt, work only; NAN until read */
    double decode_s;     /* work only */
    double tok_s;        /* of the tokens after the first, NAN before */
    int text_bytes;
    char text[SIDEBYSIDE_TEXT]; /* UTF-8, a whole number of tokens */
};

/* A value: copied under the lock. */
struct sidebyside_state {
    char model[512], prompt[512];
    int64_t started_ms; /* unix */
    int limit;          /* tokens */
    bool running;       /* an arm is not at its end */
    bool random_weights;
    struct sidebyside_arm arm[SIDEBYSIDE_ARMS];
    int same_tokens; /* at the beginning, alike in both so far */
    int same_bytes;  /* of `text`: to there */
    bool differ;     /* what follows there is not the same; else it is not known yet */
};

struct sidebyside;

/* Begins in two threads of its own; *out owned. Errors: ERR_USAGE (prompt, tokens), ERR_NOMEM, ERR_INTERNAL.
 * What happens to an arm is in its state. */
enum err_code sidebyside_start(struct sidebyside **out, const struct sidebyside_spec *spec, struct err *why);
void sidebyside_state(struct sidebyside *s, struct sidebyside_state *out);
bool sidebyside_finished(struct sidebyside *s); /* no process is left */
void sidebyside_stop(struct sidebyside *s);     /* asks */
void sidebyside_close(struct sidebyside *s);    /* stop, join, free; NULL is fine */

/* Where two texts part: fills same_tokens, same_bytes and differ from the arms' texts. begin[k][i]: byte at
 * which token i of arm k begins. Pure. */
void sidebyside_compare(struct sidebyside_state *s, int begin[SIDEBYSIDE_ARMS][SIDEBYSIDE_TOKENS]);

#endif
