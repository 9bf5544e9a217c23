/* Asks a model questions with choices, by log-likelihood (task.h). */
#include "engine/eval/eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/chat/chat.h"
#include "engine/eval/statistics.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/text/text.h"

/* One choice as tokens: ids [from, n) are scored. */
struct choice {
    struct token_list ids;
    int from;
};

/* EOS that the tokenizer adds at the end is no part of an answer. */
static void drop_eos(struct token_list *l, const struct tokenizer *t)
{
    struct tokenizer_info info;
    tokenizer_describe(t, &info);
    if (l->n && info.eos >= 0 && l->ids[l->n - 1] == info.eos) l->n--;
}

/* A token may span the end of the lead, so lead and ending are tokenized together; scored are the tokens
 * after those that the lead has alone. */
static enum err_code choice_open(struct choice *c, const struct tokenizer *t, const char *lead,
                                 const char *ending, struct err *why)
{
    struct token_list alone = { 0 };
    struct str all = { 0 };
    str_printf(&all, "%s%s", lead, ending);
    *c = (struct choice){ 0 };
    enum err_code rc = tokenizer_encode(t, lead, strlen(lead), TOKENIZE_ADD_BOS, &alone, why);
    if (!rc) rc = tokenizer_encode(t, str_text(&all), all.len, TOKENIZE_ADD_BOS, &c->ids, why);
    if (!rc) drop_eos(&alone, t), drop_eos(&c->ids, t);
    while (!rc && c->from < alone.n && c->from < c->ids.n - 1 && alone.ids[c->from] == c->ids.ids[c->from])
        c->from++;
    if (!rc && c->from < 1) /* nothing predicts the first token */
        rc = err_set(why, ERR_USAGE,
                     "a question without a token before its choices, and the model adds no BOS token");
    free(alone.ids);
    str_free(&all);
    return rc;
}

/* The template decides where the answer begins, so the choice is tokenized by itself. */
static enum err_code choice_open_chat(struct choice *c, const struct tokenizer *t, const struct chat *chat,
                                      const char *lead, const char *ending, struct err *why)
{
    enum { DATE = 1767268800 }; /* 2026-01-01, as for files of conversations: the same ids every day */
    const char *text = ending + strspn(ending, " ");
    json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", lead);
    *c = (struct choice){ 0 };
    const struct chat_request r = { .messages = messages, .add_generation_prompt = true, .now = DATE };
    enum err_code rc = messages ? chat_encode(chat, &r, &c->ids, why)
                                : err_set(why, ERR_FORMAT, "the question is not valid UTF-8");
    c->from = (int)c->ids.n;
    if (!rc) rc = tokenizer_encode(t, text, strlen(text), 0, &c->ids, why);
    if (!rc) drop_eos(&c->ids, t);
    json_decref(messages);
    if (!rc && c->from < 1)
        rc = err_set(why, ERR_USAGE, "the chat template writes nothing before the answer");
    if (!rc && c->ids.n <= c->from) rc = err_set(why, ERR_USAGE, "a choice without a token");
    return rc;
}

static int32_t first_of(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return (int32_t)best;
}

/* Log-likelihood of the scored tokens; *first: all of them are the model's first. `kept` tokens are in the
 * cache already. */
static enum err_code choice_score(double *out, bool *first, struct model *m, const struct choice *c, int kept,
                                  struct batch_row *rows, struct err *why)
{
    const int64_t vocab = model_shape(m)->vocab;
    int n = 0;
    *out = 0;
    *first = true;
    for (int i = kept; i + 1 < c->ids.n; i++)
        rows[n++] = (struct batch_row){ .token = c->ids.ids[i], .pos = i, .logits = i + 1 >= c->from };
    enum err_code rc = n ? model_forward(m, rows, n, why) : ERR_OK;
    for (int i = c->from; i < c->ids.n && !rc; i++) {
        const float *logits = model_logits(m, i - c->from);
        *out -= position_surprise(logits, vocab, c->ids.ids[i]);
        *first = *first && first_of(logits, vocab) == c->ids.ids[i];
    }
    return rc;
}

/* How many tokens of the cache the next choice shares; the position before its first scored token is computed
 * again. */
static int shared_prefix(const struct choice *a, const struct choice *b)
{
    int n = 0;
    while (n < a->ids.n - 1 && n < b->from - 1 && a->ids.ids[n] == b->ids.ids[n]) n++;
    return n;
}

/* What asking needs beside the item. */
struct asking {
    struct model *m;
    const struct chat *chat; /* NULL: none */
    int ctx;
    struct batch_row *rows; /* [ctx] */
};

static enum err_code item_answer(bool *right, bool *normalized, const struct asking *k,
                                 const struct task_item *t, struct err *why)
{
    struct model *m = k->m;
    struct choice c[TASK_CHOICES] = { 0 };
    double score[TASK_CHOICES], best = -INFINITY, best_normalized = -INFINITY;
    int pick = -1, pick_normalized = -1, kept = 0;
    bool first = false;
    enum err_code rc = ERR_OK;
    for (int i = 0; i < t->choices && !rc; i++)
        rc = k->chat ? choice_open_chat(&c[i], model_tokenizer(m), k->chat, t->lead[i], t->ending[i], why)
                     : choice_open(&c[i], model_tokenizer(m), t->lead[i], t->ending[i], why);
    for (int i = 0; i < t->choices && !rc; i++)
        if (c[i].ids.n > k->ctx)
            rc = err_set(why, ERR_USAGE,
                         "a choice has %d tokens with its question, the context %d: give -c %d",
                         (int)c[i].ids.n, k->ctx, (int)c[i].ids.n);
    for (int i = 0; i < t->choices && !rc; i++) {
        kept = i ? shared_prefix(&c[i - 1], &c[i]) : 0;
        if (!model_truncate(m, 0, kept)) model_truncate(m, 0, kept = 0);
        rc = choice_score(&score[i], &first, m, &c[i], kept, k->rows, why);
        const double each = rc ? 0 : score[i] / (double)strlen(t->ending[i]);
        if (!rc && score[i] > best) best = score[i], pick = i;
        if (!rc && each > best_normalized) best_normalized = each, pick_normalized = i;
    }
    *right = t->choices == 1 ? first : pick == t->answer;
    *normalized = t->choices == 1 ? first : pick_normalized == t->answer;
    for (int i = 0; i < t->choices; i++) free(c[i].ids.ids);
    return rc;
}

enum err_code task_answer(struct task_answers *out, struct model *m, const struct task_set *s,
                          const struct chat *chat, task_progress_fn *progress, void *arg, struct err *why)
{
    const int ctx = model_plan(m)->ctx;
    struct batch_row *rows = malloc((size_t)MAX(ctx, 1) * sizeof *rows);
    const struct asking k = { .m = m, .chat = chat, .ctx = ctx, .rows = rows };
    int right = 0;
    *out = (struct task_answers){ .right = calloc((size_t)MAX(s->n, 1), sizeof *out->right),
                                  .right_normalized = calloc((size_t)MAX(s->n, 1), sizeof *out->right) };
    enum err_code rc = rows && out->right && out->right_normalized
                           ? ERR_OK
                           : err_set(why, ERR_NOMEM, "out of memory for answers");
    if (!rc && !model_tokenizer(m))
        rc = err_set(why, ERR_USAGE, "this model has no usable tokenizer, so it cannot be asked");
    for (int i = 0; i < s->n && !rc; i++) {
        rc = item_answer(&out->right[i], &out->right_normalized[i], &k, &s->item[i], why);
        if (rc == ERR_USAGE) err_prefix(why, "item %d", i + 1);
        right += out->right[i];
        if (!rc && progress && !progress(arg, i + 1, s->n, right))
            rc = err_set(why, ERR_CANCELLED, "cancelled");
    }
    if (!rc) rc = gguf_check_unchanged(model_gguf(m), why);
    out->n = s->n;
    model_truncate(m, 0, 0);
    free(rows);
    return rc;
}

void task_answers_free(struct task_answers *a)
{
    free(a->right);
    free(a->right_normalized);
    *a = (struct task_answers){ 0 };
}

/* ---------------------------------------------------------------- figures */

static const double Z95 = 1.959963984540054; /* of a 95 % interval */

struct task_share task_share(const bool *right, int n)
{
    const double z = Z95;
    struct task_share s = { .n = n };
    for (int i = 0; i < n; i++) s.right += right[i];
    const double p = (double)s.right / n, d = 1 + z * z / n, middle = (p + z * z / (2.0 * n)) / d,
                 half = z * sqrt(p * (1 - p) / n + z * z / (4.0 * n * n)) / d;
    s.share = p;
    s.lower = fmax(middle - half, 0);
    s.upper = fmin(middle + half, 1);
    return s;
}

double task_chance(const struct task_set *s)
{
    double sum = 0;
    for (int i = 0; i < s->n; i++) sum += s->item[i].choices > 1 ? 1.0 / s->item[i].choices : 0;
    return s->n ? sum / s->n : NAN;
}

double task_least_half(double n)
{
    return Z95 / (n + 2);
}

int task_least_items(double half)
{
    return (int)ceil(Z95 / half - 2);
}

/* Half an item is added to each of the four counts. */
static void put_change(struct task_pair *p, int n)
{
    const double all = n + 2.0, lost = p->only_first + 0.5, won = p->only_second + 0.5,
                 change = (won - lost) / all,
                 half = Z95 * sqrt((lost + won - (won - lost) * (won - lost) / all) / (all * all));
    p->change = (double)(p->only_second - p->only_first) / n;
    p->lower = fmax(change - half, -1);
    p->upper = fmin(change + half, 1);
}

struct task_pair task_compare(const bool *first, const bool *second, int n)
{
    struct task_pair p = { .p = 1 };
    for (int i = 0; i < n; i++) {
        p.only_first += first[i] && !second[i];
        p.only_second += second[i] && !first[i];
    }
    const int all = p.only_first + p.only_second, least = MIN(p.only_first, p.only_second);
    double tail = 0;
    for (int i = 0; i <= least && all; i++)
        tail += exp(lgamma(all + 1) - lgamma(i + 1) - lgamma(all - i + 1) - all * log(2));
    if (all) p.p = fmin(1, 2 * tail);
    put_change(&p, n);
    return p;
}
