/* engine/train/corpus.h - a language whose every probability is known: short English stories from a grammar.
 *
 * A model can be no better than the language it learned, but of real text nobody knows how good that is. Of
 * these stories we do: each is told by choices of known probability, and because a text tells which choices
 * made it, its own probability follows. The mean of -log p over held-out stories is the loss no model gets
 * below. Stories are numbered: (seed, split, number) always gives the same one, on every machine. */
#ifndef QDYNO_ENGINE_TRAIN_CORPUS_H
#define QDYNO_ENGINE_TRAIN_CORPUS_H

#include "base/base.h"

enum corpus_split { CORPUS_TRAIN, CORPUS_CALIBRATION, CORPUS_HELD_OUT, CORPUS_SPLIT_COUNT };
extern const char *const CORPUS_SPLIT_NAMES[]; /* "train" "calibration" "held-out", NULL-terminated */

struct corpus;
/* *out owned: corpus_close. Immutable: threads may share it. ERR_INTERNAL: the grammar is wrong (says where);
 * ERR_NOMEM. */
enum err_code corpus_open(struct corpus **out, struct err *why);
void corpus_close(struct corpus *c); /* NULL is fine */

struct story_id {
    uint64_t seed;
    enum corpus_split split;
    uint64_t number;
};
/* Appends the story, one paragraph without a newline. Returns log p of the choices that made it, in nats. */
double corpus_story(const struct corpus *c, struct story_id id, struct str *out);

/* What this text is as a story. */
struct corpus_score {
    double log_probability; /* -INFINITY: no story of ours */
    int64_t derivations;    /* ways to tell it: 1 where corpus_story's own figure is the whole truth */
    size_t told;            /* bytes up to which it could be a story: all of them, if it is one */
};
struct corpus_score corpus_score(const struct corpus *c, const char *text, size_t n);

#endif
