/* Turns stories into rows of tokens. */
#include "engine/train/story_rows.h"
#include "engine/text/text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { STORIES_A_ROW = 1 << 10 /* story numbers reserved for each row */, MIDDLE_EVERY = 8 };

/* The coin toss after a story: whether its document ends there. */
static bool story_ends_document(const struct story_rows *l, uint64_t story)
{
    return hash_mix(hash_mix(l->seed + HASH_STEP) ^ story) & 1;
}

/* Append one document: BOS, stories, EOS. It stops without EOS once it is long enough for the row. *story is
 * advanced. */
static enum err_code row_add_document(const struct story_rows *l, uint64_t *story, int64_t wanted,
                                      struct str *text, struct token_list *ids, struct err *why)
{
    enum { LONGEST_TOKEN = 16 };
    bool ends = false;
    str_clear(text);
    while (!ends && (int64_t)text->len < wanted * LONGEST_TOKEN) {
        if (text->len) str_append(text, "\n");
        corpus_story(l->corpus, (struct story_id){ l->seed, CORPUS_TRAIN, *story }, text);
        ends = story_ends_document(l, (*story)++);
    }
    if (text->failed) return err_set(why, ERR_NOMEM, "out of memory for stories");
    enum err_code rc = token_list_push(ids, l->bos, why);
    if (!rc) rc = tokenizer_encode(l->tokenizer, text->data, text->len, 0, ids, why);
    if (!rc && ends) rc = token_list_push(ids, l->eos, why);
    return rc;
}

/* Split ids [ctx + 1] into tokens and targets. */
static void row_split(const struct story_rows *l, const int32_t *ids, int32_t *tokens, int32_t *targets)
{
    for (int i = 0; i < l->ctx; i++) {
        tokens[i] = ids[i];
        targets[i] = ids[i + 1] == l->bos ? -1 : ids[i + 1];
    }
}

enum err_code story_rows_train(const struct story_rows *l, uint64_t row, int32_t *tokens, int32_t *targets,
                               struct err *why)
{
    struct str text = { 0 };
    struct token_list ids = { 0 };
    const int64_t skip = row % MIDDLE_EVERY == MIDDLE_EVERY - 1
                             ? 1 + (int64_t)(hash_mix(row) % (uint64_t)l->ctx)
                             : 0;
    uint64_t story = row * STORIES_A_ROW;
    enum err_code rc = ERR_OK;
    while (!rc && ids.n < skip + l->ctx + 1)
        rc = row_add_document(l, &story, skip + l->ctx + 1 - ids.n, &text, &ids, why);
    if (!rc) {
        ids.ids[skip] = l->bos;
        row_split(l, ids.ids + skip, tokens, targets);
    }
    token_list_free(&ids);
    str_free(&text);
    return rc;
}

/* Append one held-out story between BOS and EOS. *nats: its -log p, and ln 2 for the coin toss after it. */
static enum err_code row_add_story(const struct story_rows *l, uint64_t number, struct token_list *ids,
                                   double *nats, struct err *why)
{
    struct str text = { 0 };
    *nats = M_LN2 - corpus_story(l->corpus, (struct story_id){ l->seed, CORPUS_HELD_OUT, number }, &text);
    enum err_code rc = text.failed ? err_set(why, ERR_NOMEM, "out of memory for stories") : ERR_OK;
    if (!rc) rc = token_list_push(ids, l->bos, why);
    if (!rc) rc = tokenizer_encode(l->tokenizer, text.data, text.len, 0, ids, why);
    if (!rc) rc = token_list_push(ids, l->eos, why);
    str_free(&text);
    return rc;
}

enum err_code story_rows_held_out(const struct story_rows *l, struct held_out_row *e, int32_t *tokens,
                                  int32_t *targets, struct err *why)
{
    struct token_list ids = { 0 };
    enum err_code rc = ERR_OK;
    e->stories = 0;
    e->counted = 0;
    e->floor_nats = 0;
    int64_t needed = 0;
    for (int64_t whole = 0;;) {
        double nats;
        rc = row_add_story(l, e->number, &ids, &nats, why);
        if (rc || ids.n > l->ctx + 1) { /* the last token of a row is only a target */
            needed = ids.n - 1;
            ids.n = whole;
            break;
        }
        e->counted += ids.n - whole - 1;
        whole = ids.n;
        e->floor_nats += nats;
        e->stories++;
        e->number++;
    }
    if (!rc && !e->stories)
        rc = err_set(why, ERR_USAGE,
                     "a context of %d tokens is too short to measure the loss: held-out story %" PRIu64
                     " needs %" PRId64 " tokens; use a longer context",
                     l->ctx, e->number, needed);
    while (!rc && ids.n <= l->ctx) rc = token_list_push(&ids, l->bos, why);
    if (!rc) row_split(l, ids.ids, tokens, targets);
    token_list_free(&ids);
    return rc;
}
