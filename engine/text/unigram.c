/* Unigram tokens: of all ways to write a word as pieces of the vocabulary, the one with the largest sum of
 * scores (logarithms of probabilities), found by dynamic programming from left to right (Viterbi). A
 * character that no piece covers alone costs more than the rarest piece; runs of such characters become byte
 * tokens where all their bytes have one, else one "unknown".
 *
 * Source: the model Unigram of huggingface/tokenizers, which the ids agree with. */
#include "engine/text/text_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

enum {
    PIECE_MOST = 512,   /* bytes of a piece: bounds the search at each position */
    WORD_MOST = 1 << 27 /* bytes of a word; the search takes 24 times as much memory */
};
static const double UNKNOWN_COST = 10;

struct unigram {
    const struct vocab *vocab;
    double *scores;  /* [vocab->n]; infinity: the token is no piece */
    int32_t *pieces; /* [count] ids by the bytes of their texts, equal texts by id */
    int32_t count;
    int32_t first[257]; /* pieces[first[b]..first[b + 1]) begin with byte b */
    double unknown;     /* score of a character that is no piece */
};

/* ---------------------------------------------------------------- loading */

/* Tokens that plain text can become. Byte tokens are pieces, too, as their texts. */
static bool is_piece(const struct unigram *u, int32_t id)
{
    const struct vocab *v = u->vocab;
    return isfinite(u->scores[id]) && v->texts[id].len && !vocab_is_special(v, id) &&
           v->types[id] != TOKEN_UNUSED;
}

static enum err_code load_scores(struct unigram *u, const struct gguf *g, struct err *why)
{
    const int32_t n = u->vocab->n;
    const struct gguf_kv *kv = gguf_kv_find(g, OWN_SCORES);
    if (!kv || kv->type != GGUF_ARRAY || kv->element == GGUF_STRING || kv->count != (uint64_t)n)
        return err_set(why, ERR_FORMAT, OWN_SCORES ": expected %" PRId32 " numbers, one per token", n);
    if (u->vocab->unk < 0)
        return err_set(why, ERR_FORMAT, "tokenizer.ggml.unknown_token_id: expected an id (Unigram)");
    double least = INFINITY;
    for (int32_t i = 0; i < n; i++) {
        u->scores[i] = gguf_kv_num(kv, (uint64_t)i);
        if (isnan(u->scores[i]) || u->scores[i] == -INFINITY)
            return err_set(why, ERR_FORMAT, OWN_SCORES ": token %" PRId32 " has %g, expected a number", i,
                           u->scores[i]);
        least = MIN(least, u->scores[i]);
        if (is_piece(u, i) && u->vocab->texts[i].len > PIECE_MOST)
            return err_set(why, ERR_FORMAT,
                           "tokenizer.ggml.tokens: token %" PRId32 " has %zu bytes, expected at most %d", i,
                           u->vocab->texts[i].len, PIECE_MOST);
    }
    u->unknown = (isfinite(least) ? least : 0) - UNKNOWN_COST;
    return ERR_OK;
}

static int by_bytes(const void *a, const void *b, void *texts)
{
    const int32_t i = *(const int32_t *)a, k = *(const int32_t *)b;
    const struct gguf_string x = ((const struct gguf_string *)texts)[i],
                             y = ((const struct gguf_string *)texts)[k];
    const int order = memcmp(x.data, y.data, MIN(x.len, y.len));
    if (order) return order;
    if (x.len != y.len) return x.len < y.len ? -1 : 1;
    return (i > k) - (i < k);
}

static void sort_pieces(struct unigram *u)
{
    const struct vocab *v = u->vocab;
    for (int32_t i = 0; i < v->n; i++)
        if (is_piece(u, i)) u->pieces[u->count++] = i;
    qsort_r(u->pieces, (size_t)u->count, sizeof *u->pieces, by_bytes, v->texts);
    int32_t at = 0;
    for (int b = 0; b <= 256; b++) {
        while (at < u->count && (unsigned char)v->texts[u->pieces[at]].data[0] < b) at++;
        u->first[b] = at;
    }
}

enum err_code unigram_open(struct unigram **out, const struct gguf *g, const struct vocab *v, struct err *why)
{
    struct unigram *u = *out = calloc(1, sizeof *u);
    if (!u) return err_set(why, ERR_NOMEM, "out of memory for the tokenizer");
    u->vocab = v;
    u->scores = malloc((size_t)v->n * sizeof *u->scores);
    u->pieces = malloc((size_t)v->n * sizeof *u->pieces);
    enum err_code rc = u->scores && u->pieces
                           ? load_scores(u, g, why)
                           : err_set(why, ERR_NOMEM, "out of memory for %" PRId32 " tokens", v->n);
    if (!rc)
        sort_pieces(u);
    else {
        unigram_close(u);
        *out = NULL;
    }
    return rc;
}

void unigram_close(struct unigram *u)
{
    if (!u) return;
    free(u->scores);
    free(u->pieces);
    free(u);
}

/* ---------------------------------------------------------------- encoding */

/* The best way to a position of the word. */
struct position {
    double score;
    int32_t from, id; /* the last piece and where it begins; from -1: not reached */
    int32_t next;     /* on the best way through the whole word: where the piece that begins here ends */
};

static void reach(struct position *to, double score, size_t from, int32_t id)
{
    if (to->from >= 0 && score <= to->score) return;
    *to = (struct position){ .score = score, .from = (int32_t)from, .id = id };
}

/* In pieces [low, high), which agree in their first `depth` bytes and are longer: the first one whose next
 * byte is at least `byte`. */
static int32_t lower_bound(const struct unigram *u, int32_t low, int32_t high, size_t depth, int byte)
{
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if ((unsigned char)u->vocab->texts[u->pieces[middle]].data[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Reach the ends of all pieces that begin at `at`. Returns whether one is exactly the character there, of
 * `character` bytes. */
static bool reach_pieces(const struct unigram *u, const char *text, size_t at, size_t n, size_t character,
                         struct position *all)
{
    int32_t low = u->first[(unsigned char)text[at]], high = u->first[(unsigned char)text[at] + 1];
    bool alone = false;
    for (size_t depth = 1; low < high; depth++) {
        int32_t id = -1;
        while (low < high && u->vocab->texts[u->pieces[low]].len == depth) id = u->pieces[low++];
        if (id >= 0) reach(&all[at + depth], all[at].score + u->scores[id], at, id);
        alone = alone || (id >= 0 && depth == character);
        if (at + depth == n) break;
        const int byte = (unsigned char)text[at + depth];
        high = lower_bound(u, low, high, depth, byte + 1);
        low = lower_bound(u, low, high, depth, byte);
    }
    return alone;
}

static bool has_byte_tokens(const struct vocab *v, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const int32_t id = v->byte_id[(unsigned char)text[i]];
        if (id < 0 || v->types[id] != TOKEN_BYTE) return false;
    }
    return true;
}

/* Push the pieces of the best way; a run of "unknown" ones is one. */
static enum err_code push_pieces(const struct unigram *u, const char *text, size_t n,
                                 const struct position *all, struct token_list *out, struct err *why)
{
    const struct vocab *v = u->vocab;
    enum err_code rc = ERR_OK;
    for (size_t at = 0, end; !rc && at < n; at = end) {
        end = (size_t)all[at].next;
        const int32_t id = all[end].id;
        while (id == v->unk && end < n && all[all[end].next].id == v->unk) end = (size_t)all[end].next;
        rc = id == v->unk && has_byte_tokens(v, text + at, end - at)
                 ? spm_push_bytes(v, text + at, (int32_t)(end - at), out, why)
                 : token_list_push(out, id, why);
    }
    return rc;
}

enum err_code unigram_encode(const struct unigram *u, const char *text, size_t n, struct token_list *out,
                             struct err *why)
{
    if (n > WORD_MOST)
        return err_set(why, ERR_USAGE,
                       "a text of %zu bytes that the tokenizer does not cut into words is too long: at most "
                       "128 MiB",
                       n);
    struct position *all = malloc((n + 1) * sizeof *all);
    if (!all) return err_set(why, ERR_NOMEM, "out of memory tokenizing %zu bytes", n);
    for (size_t i = 0; i <= n; i++) all[i] = (struct position){ .from = -1 };
    for (size_t at = 0, len; at < n; at += len) {
        uint32_t c;
        len = str_utf8_next(text + at, n - at, &c);
        if (!reach_pieces(u, text, at, n, len, all))
            reach(&all[at + len], all[at].score + u->unknown, at, u->vocab->unk);
    }
    for (size_t end = n; end;) {
        const size_t from = (size_t)all[end].from;
        all[from].next = (int32_t)end;
        end = from;
    }
    const enum err_code rc = push_pieces(u, text, n, all, out, why);
    free(all);
    return rc;
}
