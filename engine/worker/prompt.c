/* The prompt ids of cells (worker.h). They depend on the workload, the seed and the vocabulary only, so that
 * arms, and other engines that read the same file, get the same ids. */
#include <string.h>

#include "engine/config/config.h"
#include "engine/prompts/prompts.h"
#include "engine/serve/serve.h"
#include "engine/worker/prompt_own.h"
#include "engine/worker/worker_internal.h"

enum { SAMPLE_LIMIT = 64 << 20 };
static const char SAMPLE_TEXT[] = "text/sample.txt", LONG_TEXT[] = "text/prompts.txt";

/* Append the ids of a bundled text. */
static enum err_code bundled_append(struct token_list *ids, const struct tokenizer *t, const char *name,
                                    struct err *why)
{
    char *path, *text = NULL;
    size_t n;
    const int64_t before = ids->n;
    enum err_code rc = file_share(&path, name, why);
    if (rc) return rc;
    rc = file_read(&text, &n, path, SAMPLE_LIMIT, why);
    free(path);
    if (!rc) rc = tokenizer_encode(t, text, n, 0, ids, why);
    if (!rc && ids->n == before) rc = err_set(why, ERR_FORMAT, "the bundled text gives no tokens");
    free(text);
    return rc;
}

enum err_code prompt_source_open(struct prompt_source *s, const struct gguf *g, const struct tokenizer *t,
                                 int64_t vocab, struct err *why)
{
    struct tokenizer_info info;
    *s = (struct prompt_source){ .bos = -1, .vocab = vocab, .file = g, .tokenizer = t };
    if (!t) return ERR_OK;
    tokenizer_describe(t, &info);
    if (info.add_bos) s->bos = info.bos;
    const enum err_code rc = bundled_append(&s->text, t, SAMPLE_TEXT, why);
    s->sample = s->text.n;
    return rc;
}

void prompt_source_close(struct prompt_source *s)
{
    token_list_free(&s->text);
    prompt_own_close(s->own);
    s->own = NULL;
}

int prompt_count(const struct workload *w)
{
    return w->depth + MAX(w->prompt, 1);
}

/* Prompts that fit into the sample come from it alone, as they always did, so that results with them stay
 * comparable. Only longer ones need the long text. */
static enum err_code text_extend(struct prompt_source *s, int64_t tokens, struct err *why)
{
    if (!s->tokenizer || tokens <= s->sample || s->text.n > s->sample) return ERR_OK;
    return bundled_append(&s->text, s->tokenizer, LONG_TEXT, why);
}

/* Fill one sequence's prompt ids: the bundled text from a pseudo-random place, wrapping around at its end;
 * without a tokenizer (no text), pseudo-random ids. BOS comes first if there is one. */
static enum err_code fill_one(int32_t *ids, int count, const struct prompt_source *s, uint64_t start,
                              struct err *why)
{
    const uint64_t size = (uint64_t)(count <= s->sample ? s->sample : s->text.n);
    int at = 0;
    if (s->bos >= 0) ids[at++] = s->bos;
    for (int64_t i = 0; at < count; i++) {
        const int32_t id = size ? s->text.ids[(start + (uint64_t)i) % size]
                                : (int32_t)(hash_next(start + (uint64_t)i) % (uint64_t)s->vocab);
        if (id >= s->vocab)
            return err_set(why, ERR_FORMAT, "the tokenizer gives id %d, the model has only %lld", id,
                           (long long)s->vocab);
        ids[at++] = id;
    }
    return ERR_OK;
}

enum err_code prompt_source_fill(int32_t *ids, struct prompt_source *s, const struct workload *w,
                                 uint64_t seed, struct err *why)
{
    const int count = prompt_count(w);
    uint64_t start = hash_next(seed);
    s->facts = (struct prompt_facts){ .used = 0 };
    if (*workload_prompts(w)) return prompt_own_fill(ids, s, w, seed, why);
    enum err_code rc = text_extend(s, count, why);
    for (int i = 0; i < workload_sequences(w) && !rc; i++, start = hash_next(start))
        rc = fill_one(ids + (int64_t)i * count, count, s, start, why);
    s->facts.text_tokens = s->text.n;
    s->facts.repeats = s->text.n > 0 && count > s->text.n + (s->bos >= 0);
    return rc;
}

enum err_code prompt_source_load(struct load_text *out, struct prompt_source *s, const struct workload *w,
                                 uint64_t seed, struct err *why)
{
    s->facts = (struct prompt_facts){ .used = 0 };
    const bool own = *workload_prompts(w);
    enum err_code rc = own ? ERR_OK : text_extend(s, workload_ctx(w), why);
    *out = (struct load_text){ .ids = s->text.n ? s->text.ids : NULL,
                               .n = s->sample,
                               .all = s->text.n,
                               .bos = s->bos,
                               .vocab = s->vocab };
    if (!rc && own) rc = prompt_own_load(out, s, w, seed, why);
    s->facts.text_tokens = own ? 0 : s->text.n;
    return rc;
}

void prompt_facts_put(json_t *answer, const struct prompt_facts *f)
{
    if (!*f->sha256 && !f->repeats) return;
    json_t *o = json_object();
    json_put_bool(o, "repeats", f->repeats);
    if (*f->sha256) {
        json_put_str(o, "file", f->file);
        json_put_str(o, "sha256", f->sha256);
        json_put_str(o, "form", PROMPT_FORM_NAMES[f->form]);
        json_put_int(o, "count", f->count);
        json_put_int(o, "skipped", f->skipped);
        json_put_int(o, "used", f->used);
    } else {
        json_put_int(o, "text_tokens", f->text_tokens);
    }
    json_put(answer, "prompts", o);
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
    struct workload work = *w;
    char line[WORKLOAD_LINE];
    work.prompts[0] = '\0'; /* the ids say what was asked, wherever they come from */
    str_printf(&s, "%s\n", workload_line(&work, line, sizeof line));
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
