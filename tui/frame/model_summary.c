/* tui/frame/model_summary.c - tensors of a model file grouped and summed, and the memory of
 * possible sessions by the loader's plan. */
#include "tui/frame/frame.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* "blk.17.attn_q.weight" -> "blk.*.attn_q": without the layer number, and without the suffix that nearly all
 * have. */
static void summary_group_name(char *out, size_t size, const char *name)
{
    static const char TAIL[] = ".weight";
    size_t n = strlen(name), used = 0;
    if (n > strlen(TAIL) && !strcmp(name + n - strlen(TAIL), TAIL)) n -= strlen(TAIL);
    for (size_t i = 0; i < n && used + 1 < size; i++) {
        const bool number = i > 0 && name[i - 1] == '.' && isdigit((unsigned char)name[i]);
        out[used++] = number ? '*' : name[i];
        if (number)
            while (i + 1 < n && isdigit((unsigned char)name[i + 1])) i++;
    }
    out[used] = '\0';
}

static void summary_shape_text(char *out, size_t size, const struct gguf_tensor *t)
{
    size_t used = 0;
    *out = '\0';
    for (int i = 0; i < t->dims && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%lld", i ? " x " : "", (long long)t->shape[i]);
}

/* The group of a tensor, created if it is new; NULL when there is no room for another group. */
static struct tensor_group *summary_group(struct model_summary *l, const struct gguf_tensor *t)
{
    struct tensor_group fresh = { .count = 0 };
    summary_group_name(fresh.name, sizeof fresh.name, t->name);
    snprintf(fresh.format, sizeof fresh.format, "%s", t->format->name);
    for (int i = 0; i < l->groups; i++)
        if (!strcmp(l->group[i].name, fresh.name) && !strcmp(l->group[i].format, fresh.format))
            return &l->group[i];
    if (l->groups == SUMMARY_GROUPS) return NULL;
    summary_shape_text(fresh.shape, sizeof fresh.shape, t);
    l->group[l->groups] = fresh;
    return &l->group[l->groups++];
}

static int summary_group_by_bytes(const void *a, const void *b)
{
    const struct tensor_group *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return strcmp(x->name, y->name);
}

static void summary_count_tensors(struct model_summary *l, const struct gguf *g)
{
    for (int64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        struct tensor_group *group = summary_group(l, t);
        l->bytes += t->bytes;
        if (!group) {
            l->left_out++;
            l->left_out_bytes += t->bytes;
            continue;
        }
        group->count++;
        group->params += t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
        group->bytes += t->bytes;
    }
    qsort(l->group, (size_t)l->groups, sizeof l->group[0], summary_group_by_bytes);
}

/* 512, 2048, 8192 ... and the context length the model was trained for. */
static void summary_choose_contexts(struct model_summary *l, int64_t longest)
{
    for (int64_t c = 512; c < longest && l->contexts < SUMMARY_CONTEXTS - 1; c *= 4)
        l->context[l->contexts++] = c;
    l->context[l->contexts++] = longest > 0 ? longest : 512;
}

void model_summary_make(struct model_summary *out, const struct gguf *g, const struct model_shape *s)
{
    static const char *const CACHES[SUMMARY_CACHES] = { "f32", "f16", "q8_0", "q4_0" };
    *out = (struct model_summary){ .caches = SUMMARY_CACHES };
    out->experts = s->experts;
    out->experts_used = s->experts_used;
    if (s->experts && !stored_experts_find(&out->choices, g, s->experts_used)) out->choices.text[0] = '\0';
    summary_count_tensors(out, g);
    summary_choose_contexts(out, s->ctx_train);
    for (int k = 0; k < SUMMARY_CACHES; k++) {
        struct config c;
        char line[32];
        out->cache[k] = CACHES[k];
        out->kv_bytes_per_token[k] = -1;
        snprintf(line, sizeof line, "kv=%s", CACHES[k]);
        const bool parsed = !config_parse(&c, line, NULL);
        for (int i = 0; i < out->contexts; i++) {
            struct memory_plan plan;
            const bool known = parsed && out->context[i] <= INT32_MAX &&
                               !recipe_plan_memory(&plan, g, &c, (int)out->context[i], 1, NULL);
            out->total[k][i] = known ? plan.total : -1;
            if (known) out->kv_bytes_per_token[k] = plan.kv_bytes_per_token;
        }
    }
}

int64_t model_summary_longest(const struct model_summary *l, int cache, int64_t free)
{
    enum { DIGITS = 100 }; /* a number with two digits is as exact as the plan of a session to come */
    if (free < 0 || cache >= l->caches || l->contexts < 1) return -1;
    const int last = l->contexts - 1;
    const int64_t low = l->total[cache][0], high = l->total[cache][last];
    if (low < 0 || high < 0) return -1;
    const double each = last ? (double)(high - low) / (double)(l->context[last] - l->context[0])
                             : (double)l->kv_bytes_per_token[cache];
    if (!(each > 0)) return -1;
    int64_t most = l->context[0] + (int64_t)((double)(free - low) / each), unit = 1;
    while (most / unit >= DIGITS) unit *= 10;
    return most > 0 ? most / unit * unit : 0;
}
