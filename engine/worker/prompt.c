/* The prompt ids of cells (worker.h). They depend on the workload, the seed and the vocabulary only, so that
 * arms, and other engines that read the same file, get the same ids. */
#include <string.h>

#include "engine/config/config.h"
#include "engine/worker/worker_internal.h"

enum { SAMPLE_LIMIT = 64 << 20 };

static enum err_code sample_ids(struct token_list *ids, const struct tokenizer *t, struct err *why)
{
    char *path, *text = NULL;
    size_t n;
    enum err_code rc = file_share(&path, "text/sample.txt", why);
    if (rc) return rc;
    rc = file_read(&text, &n, path, SAMPLE_LIMIT, why);
    free(path);
    if (!rc) rc = tokenizer_encode(t, text, n, 0, ids, why);
    if (!rc && ids->n == 0) rc = err_set(why, ERR_FORMAT, "the bundled text gives no tokens");
    free(text);
    return rc;
}

enum err_code prompt_source_open(struct prompt_source *s, const struct tokenizer *t, int64_t vocab,
                                 struct err *why)
{
    struct tokenizer_info info;
    *s = (struct prompt_source){ .bos = -1, .vocab = vocab };
    if (!t) return ERR_OK;
    tokenizer_describe(t, &info);
    if (info.add_bos) s->bos = info.bos;
    return sample_ids(&s->text, t, why);
}

void prompt_source_close(struct prompt_source *s)
{
    token_list_free(&s->text);
}

int prompt_count(const struct workload *w)
{
    return w->depth + MAX(w->prompt, 1);
}

/* Fill one sequence's prompt ids: the bundled text from a pseudo-random place, wrapping around at its end;
 * without a tokenizer (no text), pseudo-random ids. BOS comes first if there is one. */
static enum err_code fill_one(int32_t *ids, int count, const struct prompt_source *s, uint64_t start,
                              struct err *why)
{
    int at = 0;
    if (s->bos >= 0) ids[at++] = s->bos;
    for (int64_t i = 0; at < count; i++) {
        const int32_t id = s->text.n ? s->text.ids[(start + (uint64_t)i) % (uint64_t)s->text.n]
                                     : (int32_t)(hash_next(start + (uint64_t)i) % (uint64_t)s->vocab);
        if (id >= s->vocab)
            return err_set(why, ERR_FORMAT, "the tokenizer gives id %d, the model has only %lld", id,
                           (long long)s->vocab);
        ids[at++] = id;
    }
    return ERR_OK;
}

enum err_code prompt_source_fill(int32_t *ids, const struct prompt_source *s, const struct workload *w,
                                 uint64_t seed, struct err *why)
{
    const int count = prompt_count(w);
    uint64_t start = hash_next(seed);
    enum err_code rc = ERR_OK;
    for (int i = 0; i < workload_sequences(w) && !rc; i++, start = hash_next(start))
        rc = fill_one(ids + (int64_t)i * count, count, s, start, why);
    return rc;
}

void prompt_hash_bytes(char out[17], const void *bytes, size_t n)
{
    char hex[HASH_HEX];
    hash_bytes(bytes, n, hex);
    memcpy(out, hex, 16);
    out[16] = '\0';
}

enum err_code prompt_hash(char out[17], const struct workload *w, const int32_t *ids, struct err *why)
{
    struct str s = { 0 };
    char line[WORKLOAD_LINE];
    str_printf(&s, "%s\n", workload_line(w, line, sizeof line));
    str_append_n(&s, ids, (size_t)workload_sequences(w) * (size_t)prompt_count(w) * sizeof *ids);
    const bool failed = s.failed;
    prompt_hash_bytes(out, str_text(&s), s.len);
    str_free(&s);
    return failed ? err_set(why, ERR_NOMEM, "out of memory") : ERR_OK;
}

enum err_code prompt_hash_eval(char out[17], int ctx, const char *text, size_t n, struct err *why)
{
    char hex[HASH_HEX];
    struct str s = { 0 };
    hash_bytes(text, n, hex);
    str_printf(&s, "eval %d %s", ctx, hex);
    const bool failed = s.failed;
    prompt_hash_bytes(out, str_text(&s), s.len);
    str_free(&s);
    return failed ? err_set(why, ERR_NOMEM, "out of memory") : ERR_OK;
}
