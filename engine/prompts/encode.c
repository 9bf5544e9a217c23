/* Prompts as token ids (prompts.h). */
#include "engine/prompts/prompts_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine/chat/chat.h"
#include "engine/gguf/gguf.h"

enum { DATE_OF_TEMPLATES = 1767268800 /* as for files of conversations: the same ids every day */ };

struct prompt_reader {
    const struct tokenizer *tokenizer;
    struct chat *chat; /* NULL: the model has no chat template */
    int32_t bos;       /* that begins a text; -1: none */
};

enum err_code prompt_reader_open(struct prompt_reader **out, const struct gguf *g, const struct tokenizer *t,
                                 struct err *why)
{
    struct tokenizer_info info;
    struct prompt_reader *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r) return err_set(why, ERR_NOMEM, "out of memory");
    r->tokenizer = t;
    tokenizer_describe(t, &info);
    r->bos = info.add_bos ? info.bos : -1;
    const enum err_code rc = chat_has_template(g) ? chat_open(&r->chat, g, t, NULL, why) : ERR_OK;
    if (rc)
        prompt_reader_close(r);
    else
        *out = r;
    return rc;
}

void prompt_reader_close(struct prompt_reader *r)
{
    if (!r) return;
    chat_close(r->chat);
    free(r);
}

static enum err_code text_append(struct token_list *out, const struct prompt_reader *r, const char *text,
                                 size_t n, struct err *why)
{
    const enum err_code rc = r->bos >= 0 ? token_list_push(out, r->bos, why) : ERR_OK;
    return rc ? rc : tokenizer_encode(r->tokenizer, text, n, 0, out, why);
}

/* A conversation of which a model without a chat template gets the last message. */
static enum err_code plain_append(struct token_list *out, const struct prompt_reader *r,
                                  const struct prompt *q, struct err *why)
{
    const json_t *last = json_array_get(q->messages, json_array_size(q->messages) - 1),
                 *text = json_object_get(last, "content");
    return text_append(out, r, json_string_value(text), json_string_length(text), why);
}

static enum err_code conversation_append(struct token_list *out, const struct prompt_reader *r,
                                         const struct prompt *q, struct err *why)
{
    const struct chat_request request = { .messages = q->messages,
                                          .add_generation_prompt = true,
                                          .now = DATE_OF_TEMPLATES };
    if (!r->chat && q->plain) return plain_append(out, r, q, why);
    if (!r->chat)
        return err_set(
            why, ERR_USAGE,
            "it has messages, but the model has no chat template (tokenizer.chat_template): expected "
            "prompts as texts, or a model with a template");
    return chat_encode(r->chat, &request, out, why);
}

enum err_code prompt_encode(struct token_list *out, struct prompt_reader *r, const struct prompts *p, int i,
                            struct err *why)
{
    const struct prompt *q = &p->prompt[i];
    const int64_t before = out->n;
    enum err_code rc = q->text ? text_append(out, r, q->text, q->n, why)
                               : conversation_append(out, r, q, why);
    if (!rc && out->n == before) rc = err_set(why, ERR_FORMAT, "it gives no tokens");
    if (rc) err_prefix(why, "prompt in %s %" PRId64, p->form == PROMPTS_FOLDER ? "file" : "line", q->line);
    return rc;
}

enum err_code prompt_answer(int *out, const struct prompt_reader *r, const struct prompt *p, struct err *why)
{
    struct token_list ids = { 0 };
    enum err_code rc = ERR_OK;
    *out = p->most;
    if (p->most || !p->answer) return ERR_OK;
    rc = tokenizer_encode(r->tokenizer, p->answer, strlen(p->answer), 0, &ids, why);
    *out = (int)MIN(ids.n, (int64_t)1 << 24);
    token_list_free(&ids);
    return rc;
}

/* ---------------------------------------------------------------- a plain text */

/* The end of a piece of at most `want` bytes from `at` on: behind white space if it has any, so that no word
 * is cut, else behind a character. */
static size_t piece_end(const struct prompt *p, size_t at, size_t want)
{
    size_t end = p->n - at > want ? at + want : p->n;
    if (end == p->n) return end;
    for (size_t back = end; back > at; back--)
        if (memchr(" \n\t", p->text[back - 1], 3)) return back - 1 > at ? back - 1 : back;
    while (end > at + 1 && ((unsigned char)p->text[end] & 0xc0) == 0x80) end--;
    return end;
}

/* Where a text may begin: behind the next white space. */
static size_t piece_begin(const struct prompt *p, uint64_t key)
{
    size_t at = (size_t)(hash_next(key) % p->n);
    while (at && at < p->n && !memchr(" \n\t", p->text[at - 1], 3)) at++;
    return at == p->n ? 0 : at;
}

enum err_code prompt_text_cut(struct token_list *out, const struct prompt_reader *r, const struct prompt *p,
                              uint64_t key, int64_t count, bool *repeats, struct err *why)
{
    enum { BYTES_LEAST = 256, BYTES_PER_TOKEN = 8 };
    const int64_t before = out->n, wanted = before + count;
    size_t at = piece_begin(p, key), used = 0;
    enum err_code rc = r->bos >= 0 && count > 0 ? token_list_push(out, r->bos, why) : ERR_OK;
    const int64_t begun = out->n;
    while (!rc && out->n < wanted) {
        const size_t want = BYTES_LEAST + BYTES_PER_TOKEN * (size_t)(wanted - out->n), left = p->n - used,
                     end = piece_end(p, at, MIN(want, left));
        rc = tokenizer_encode(r->tokenizer, p->text + at, end - at, 0, out, why);
        used += end - at;
        at = end == p->n ? 0 : end;
        if (rc || used < p->n) continue;
        used = 0; /* all of the text is in it */
        if (out->n == begun) rc = err_set(why, ERR_FORMAT, "the text of the prompts gives no tokens");
        if (out->n < wanted) *repeats = true;
    }
    out->n = MIN(out->n, wanted);
    return rc;
}
