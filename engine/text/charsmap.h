/* engine/text/charsmap.h - SentencePiece's table of characters to replace, such as full-width letters by
 * narrow ones. */
#ifndef QDYNO_ENGINE_TEXT_CHARSMAP_H
#define QDYNO_ENGINE_TEXT_CHARSMAP_H

#include "engine/text/pattern.h"

struct charsmap;

/* Read OWN_CHARSMAP. *out owned: charsmap_close; NULL: the file has none. ERR_FORMAT: it is no such table;
 * ERR_NOMEM. `g` must outlive it. */
enum err_code charsmap_open(struct charsmap **out, const struct gguf *g, struct err *why);
void charsmap_close(struct charsmap *c); /* NULL is fine */

/* Append `text` (valid UTF-8) with its characters replaced to *out. Returns an error of PCRE2, which finds
 * the characters; 0: done. */
int charsmap_apply(const struct charsmap *c, const struct matcher *m, const char *text, size_t n,
                   struct str *out);

#endif
