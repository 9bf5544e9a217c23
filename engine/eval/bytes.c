/* Compares two models with different tokenizers: their tokens differ, and with them every figure per token,
 * but the bytes of the text are the same. A model gives a probability to each token, so the bits that all
 * tokens of some bytes take, divided by the number of these bytes, can be compared.
 *
 * A token may span the border between what is read and what is scored. A border is used only where both
 * tokenizers cut there, so that both models are scored on exactly the same bytes. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/eval/statistics.h"
#include "engine/eval/windows.h"
#include "engine/model/model.h"
#include "engine/text/text.h"

enum { PIECE_LEAST = 16, BORDERS_TRIED = 8, BYTES_PER_TOKEN = 4 };

/* One model's reading of a piece: ids [from, n) are scored. */
struct reading {
    struct token_list ids;
    int64_t from;
};

/* Sums over pieces: their bits by model, and the bytes. */
struct byte_sums {
    double bits[2], d, b, dd, db, bb;
    int64_t tokens[2], pieces, bytes;
};

struct byte_pair {
    struct model *model[2]; /* reference, candidate */
    const struct eval_request *r;
    struct reading reading[2];
    struct batch_row *rows; /* [ctx] */
};

static enum err_code encode(struct token_list *out, const struct model *m, const char *text, size_t n,
                            struct err *why)
{
    struct tokenizer_info info;
    const struct tokenizer *t = model_tokenizer(m);
    token_list_free(out);
    const enum err_code rc = tokenizer_encode(t, text, n, TOKENIZE_ADD_BOS, out, why);
    tokenizer_describe(t, &info);
    if (!rc && out->n && info.eos >= 0 && out->ids[out->n - 1] == info.eos)
        out->n--; /* no part of the text */
    return rc;
}

/* What a model can do with a piece. */
enum fit { FITS, CUTS_ELSEWHERE, TOO_LONG };

static enum err_code reading_open(struct reading *x, enum fit *fit, const struct model *m, const char *text,
                                  size_t lead, size_t n, int ctx, struct err *why)
{
    struct token_list alone = { 0 };
    enum err_code rc = encode(&alone, m, text, lead, why);
    if (!rc) rc = encode(&x->ids, m, text, n, why);
    x->from = 0;
    while (!rc && x->from < alone.n && x->from < x->ids.n && alone.ids[x->from] == x->ids.ids[x->from])
        x->from++;
    *fit = x->ids.n > ctx                                            ? TOO_LONG
           : x->from == alone.n && x->from > 0 && x->from < x->ids.n ? FITS
                                                                     : CUTS_ELSEWHERE;
    token_list_free(&alone);
    return rc;
}

/* The next place before a space, from `at` on: between two words. `n`: none. */
static size_t word_end(const char *text, size_t n, size_t at)
{
    while (at < n && !(isspace((unsigned char)text[at]) && at && !isspace((unsigned char)text[at - 1]))) at++;
    return at;
}

/* Reads a piece of `size` bytes or a few more at text. *end: its length; *border: where scoring begins, if
 * *fit is FITS. */
static enum err_code piece_read(struct byte_pair *p, const char *text, size_t left, size_t size,
                                size_t *border, size_t *end, enum fit *fit, struct err *why)
{
    size_t at = word_end(text, left, size / 2);
    *fit = CUTS_ELSEWHERE;
    *end = word_end(text, left, size);
    for (int tried = 0; tried < BORDERS_TRIED && at < *end; tried++, at = word_end(text, left, at + 1)) {
        *border = at;
        *fit = FITS;
        for (int k = 0; k < 2; k++) { /* of both, so that their order plays no part */
            enum fit one;
            const enum err_code rc = reading_open(&p->reading[k], &one, p->model[k], text, at, *end,
                                                  p->r->ctx, why);
            if (rc) return rc;
            *fit = MAX(*fit, one);
        }
        if (*fit != CUTS_ELSEWHERE) return ERR_OK;
    }
    return ERR_OK;
}

/* Bits that the scored tokens of a reading take. */
static enum err_code reading_score(double *bits, struct model *m, const struct reading *x,
                                   struct batch_row *rows, struct err *why)
{
    const int64_t vocab = model_shape(m)->vocab;
    const int batch = (int)config_int(model_config(m), KNOB_BATCH), most = windows_most_scored(m, 1);
    double nats = 0;
    model_truncate(m, 0, 0);
    for (int64_t at = 0; at + 1 < x->ids.n;) {
        int n = 0, scored = 0;
        for (; at + n + 1 < x->ids.n && n < batch && scored < most; n++) {
            const bool is_scored = at + n + 1 >= x->from;
            rows[n] = (struct batch_row){ .token = x->ids.ids[at + n],
                                          .pos = (int)(at + n),
                                          .logits = is_scored };
            scored += is_scored;
        }
        const enum err_code rc = model_forward(m, rows, n, why);
        if (rc) return rc;
        for (int i = 0, row = 0; i < n; i++)
            if (rows[i].logits)
                nats += position_surprise(model_logits(m, row++), vocab, x->ids.ids[at + i + 1]);
        at += n;
    }
    *bits = nats / M_LN2;
    return isfinite(*bits) ? ERR_OK : err_set(why, ERR_FORMAT, "the logits are not finite numbers");
}

static enum err_code piece_score(struct byte_pair *p, struct byte_sums *s, int64_t bytes, struct err *why)
{
    double bits[2];
    for (int k = 0; k < 2; k++) {
        const enum err_code rc = reading_score(&bits[k], p->model[k], &p->reading[k], p->rows, why);
        if (rc) return err_prefix(why, k ? "candidate" : "reference");
        s->bits[k] += bits[k];
        s->tokens[k] += p->reading[k].ids.n - p->reading[k].from;
    }
    const double d = bits[1] - bits[0], b = (double)bytes;
    s->d += d;
    s->b += b;
    s->dd += d * d;
    s->db += d * b;
    s->bb += b * b;
    s->pieces++;
    s->bytes += bytes;
    return ERR_OK;
}

/* A ratio of sums over pieces: its residuals are d - change * b. */
static struct byte_comparison sums_finish(const struct byte_sums *s)
{
    const double n = (double)s->pieces, change = s->d / s->b;
    const double squares = s->dd - 2 * change * s->db + change * change * s->bb;
    return (struct byte_comparison){ .pieces = s->pieces,
                                     .bytes = s->bytes,
                                     .reference_tokens = s->tokens[0],
                                     .candidate_tokens = s->tokens[1],
                                     .reference = s->bits[0] / s->b,
                                     .candidate = s->bits[1] / s->b,
                                     .change = change,
                                     .change_se = n > 1 ? sqrt(fmax(squares, 0) * n / (n - 1)) / s->b
                                                        : (double)NAN };
}

static enum err_code check_models(const struct byte_pair *p, struct err *why)
{
    for (int k = 0; k < 2; k++) {
        if (!model_tokenizer(p->model[k]))
            return err_set(why, ERR_USAGE, "the %s has no usable tokenizer, so it cannot score text",
                           k ? "candidate" : "reference");
        if (p->r->ctx < 4 || p->r->ctx > model_ctx(p->model[k]))
            return err_set(why, ERR_USAGE, "pieces of %d tokens: expected 4 to %d, the session's context",
                           p->r->ctx, model_ctx(p->model[k]));
    }
    return ERR_OK;
}

enum err_code eval_bytes(struct byte_comparison *out, struct model *reference, struct model *candidate,
                         const struct eval_request *r, struct err *why)
{
    struct byte_pair p = { .model = { reference, candidate }, .r = r };
    struct byte_sums s = { 0 };
    size_t size = (size_t)r->ctx * BYTES_PER_TOKEN, at = 0;
    *out = (struct byte_comparison){ 0 };
    enum err_code rc = check_models(&p, why);
    if (!rc && !(p.rows = malloc((size_t)r->ctx * sizeof *p.rows)))
        rc = err_set(why, ERR_NOMEM, "out of memory");
    while (!rc && at + size < r->n && (r->max_chunks <= 0 || s.pieces < r->max_chunks)) {
        size_t border = 0, end = 0;
        enum fit fit;
        rc = piece_read(&p, r->text + at, r->n - at, size, &border, &end, &fit, why);
        if (rc) break;
        if (fit == TOO_LONG && size > PIECE_LEAST) { /* smaller pieces from here on */
            size = size * 3 / 4;
            continue;
        }
        if (fit == FITS) rc = piece_score(&p, &s, (int64_t)(end - border), why);
        at += end;
        if (!rc && r->progress && !r->progress(r->arg, s.pieces, MAX(r->max_chunks, s.pieces), NAN))
            rc = err_set(why, ERR_CANCELLED, "cancelled");
    }
    if (!rc && s.pieces < 2)
        rc = err_set(why, ERR_USAGE,
                     "the text has %zu bytes: too short for two pieces of up to %d tokens each: use a longer "
                     "text or a smaller -c",
                     r->n, r->ctx);
    if (!rc) *out = sums_finish(&s);
    model_truncate(reference, 0, 0);
    model_truncate(candidate, 0, 0);
    for (int k = 0; k < 2; k++) token_list_free(&p.reading[k].ids);
    free(p.rows);
    return rc;
}
