/* engine/import/word_cutter.h - how tokenizer.json cuts text into words, as patterns of our pre-tokenizer. */
#ifndef QDYNO_ENGINE_IMPORT_WORD_CUTTER_H
#define QDYNO_ENGINE_IMPORT_WORD_CUTTER_H

#include "base/base.h"

enum { CUTS_MOST = 32, REWRITES_MOST = 32 };

/* What normalizer and pre_tokenizer of tokenizer.json do. */
struct word_cutter {
    bool bytes;              /* byte level; false: characters, with U+2581 for spaces */
    bool spaces;             /* spaces become U+2581 */
    bool space_first;        /* a space is put before a text */
    const char *space;       /* OWN_SPACE: "each", "first"; NULL: by space_first */
    const char *strip_space; /* OWN_STRIP_SPACE, by the decoder; NULL: bytes */
    bool cuts_bytes;         /* a step follows byte level: it sees bytes as letters, which no pattern can */
    struct str cuts[CUTS_MOST]; /* PCRE2, applied one after the other; owned */
    int cut_count;
    struct str rewrites[2 * REWRITES_MOST]; /* OWN_REWRITES: expression, text, and so on; owned */
    int rewrite_count;                      /* of strings */
    struct str charsmap;                    /* OWN_CHARSMAP: bytes; owned */
    struct str source; /* the steps as tokenizer.json has them, one a line: recognizes known ones */
};

/* *out: word_cutter_free, also after an error. ERR_FORMAT: a step that is not supported, by name. */
enum err_code word_cutter_read(struct word_cutter *out, const json_t *tokenizer, struct err *why);
void word_cutter_free(struct word_cutter *w);

/* The value of tokenizer.ggml.pre that stands for exactly these steps; NULL: none, use the patterns. */
const char *word_cutter_known(const struct word_cutter *w, bool whole_words);

#endif
