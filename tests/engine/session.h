/* tests/engine/session.h - opening models in tests: one line per session, failures say why. */
#ifndef QDYNO_TESTS_SESSION_H
#define QDYNO_TESTS_SESSION_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config/config.h"
#include "engine/model/model.h"
#include "engine/text/text.h"
#include "tests/check.h"
#include "engine/quant/quant.h"

#define EXACT "precision=highest,ctk=f32,ctv=f32,threads=1"

static inline enum err_code session_try(struct model **out, const char *path, const char *line, int ctx,
                                        int sequences, struct err *why)
{
    struct config config;
    *out = NULL;
    enum err_code rc = config_parse(&config, line, why);
    if (rc) return rc;
    const struct model_options o = { .path = path, .config = &config, .ctx = ctx, .sequences = sequences };
    return recipe_model_open(out, &o, why);
}

static inline struct model *session_open(const char *path, const char *line, int ctx, int sequences)
{
    struct err why = { 0 };
    struct model *m;
    if (session_try(&m, path, line, ctx, sequences, &why))
        fail_msg("%s with '%s': %s", path, line, why.message);
    return m;
}

/* Rows of sequence `seq` from position `from` on; every row wants logits. */
static inline void rows_of(struct batch_row *rows, const int32_t *ids, int n, int seq, int from)
{
    for (int i = 0; i < n; i++)
        rows[i] = (struct batch_row){ .token = ids[i], .pos = from + i, .seq = seq, .logits = true };
}

static inline double max_difference(const float *a, const float *b, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= most)) most = d; /* NaN wins */
    }
    return most;
}

/* Ids of a text as the model's own tokenizer sees it, BOS included where the model asks for it. */
static inline struct token_list ids_of(const struct model *m, const char *text, size_t n)
{
    struct err why = { 0 };
    struct token_list ids = { 0 };
    CHECK_OK(tokenizer_encode(model_tokenizer(m), text, n, TOKENIZE_ADD_BOS, &ids, &why));
    return ids;
}

#endif
