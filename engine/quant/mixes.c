/* The rules of llama.cpp's file types, as a table: tensor, condition, format. */
#include "engine/quant/mixes.h"

#include <string.h>
#include <strings.h>

/* When a rule holds: of the i-th of n layers that have the tensor. */
enum when {
    ALWAYS,
    FIRST_2,
    FIRST_4,
    FIRST_16TH,
    FIRST_8TH,
    FIRST_8TH_PLAIN,   /* and there is no importance matrix */
    FIRST_8TH_WEIGHED, /* and there is one */
    MORE_BITS,         /* the first and the last eighth, and every third between */
    SHARED_BY_4,       /* each value head serves four query heads or more */
};
enum whose { ANY, FALCON, OTHERS };

struct mix_rule {
    const char *tensor; /* a part of the name */
    enum when when;
    enum format_id format;
    enum whose whose;
};

#define ATTN_V   "attn_v.weight"
#define ATTN_OUT "attn_output.weight"
#define ATTN_QKV "attn_qkv.weight"
#define FFN_DOWN "ffn_down"

static const struct mix_rule Q2_K_RULES[] = {
    { ATTN_V, SHARED_BY_4, FORMAT_Q4_K, ANY },
    { ATTN_V, ALWAYS, FORMAT_Q3_K, ANY },
    { FFN_DOWN, ALWAYS, FORMAT_Q3_K, ANY },
    { ATTN_OUT, ALWAYS, FORMAT_Q3_K, OTHERS },
    { 0 },
};
static const struct mix_rule Q2_K_S_RULES[] = {
    { ATTN_V, SHARED_BY_4, FORMAT_Q4_K, ANY },
    { FFN_DOWN, FIRST_8TH, FORMAT_Q4_K, ANY },
    { 0 },
};
static const struct mix_rule Q3_K_M_RULES[] = {
    { ATTN_V, FIRST_2, FORMAT_Q5_K, ANY },      { ATTN_V, ALWAYS, FORMAT_Q4_K, ANY },
    { FFN_DOWN, FIRST_16TH, FORMAT_Q5_K, ANY }, { FFN_DOWN, ALWAYS, FORMAT_Q4_K, OTHERS },
    { FFN_DOWN, MORE_BITS, FORMAT_Q4_K, ANY },  { ATTN_OUT, ALWAYS, FORMAT_Q4_K, OTHERS },
    { ATTN_QKV, ALWAYS, FORMAT_Q4_K, ANY },     { 0 },
};
static const struct mix_rule Q3_K_L_RULES[] = {
    { ATTN_V, ALWAYS, FORMAT_Q5_K, ANY },
    { FFN_DOWN, ALWAYS, FORMAT_Q4_K, FALCON },
    { FFN_DOWN, ALWAYS, FORMAT_Q5_K, ANY },
    { ATTN_OUT, ALWAYS, FORMAT_Q4_K, FALCON },
    { ATTN_OUT, ALWAYS, FORMAT_Q5_K, ANY },
    { ATTN_QKV, ALWAYS, FORMAT_Q4_K, ANY },
    { 0 },
};
static const struct mix_rule Q4_K_S_RULES[] = {
    { ATTN_V, FIRST_4, FORMAT_Q5_K, ANY },
    { FFN_DOWN, FIRST_8TH, FORMAT_Q5_K, OTHERS },
    { 0 },
};
static const struct mix_rule Q4_K_M_RULES[] = {
    { ATTN_V, MORE_BITS, FORMAT_Q6_K, ANY },      { FFN_DOWN, FIRST_16TH, FORMAT_Q6_K, FALCON },
    { FFN_DOWN, MORE_BITS, FORMAT_Q5_K, FALCON }, { FFN_DOWN, MORE_BITS, FORMAT_Q6_K, OTHERS },
    { ATTN_QKV, ALWAYS, FORMAT_Q5_K, ANY },       { 0 },
};
static const struct mix_rule Q5_K_M_RULES[] = {
    { ATTN_V, MORE_BITS, FORMAT_Q6_K, ANY },
    { FFN_DOWN, MORE_BITS, FORMAT_Q6_K, ANY },
    { ATTN_QKV, ALWAYS, FORMAT_Q6_K, ANY },
    { 0 },
};
static const struct mix_rule IQ4_RULES[] = {
    { ATTN_V, SHARED_BY_4, FORMAT_Q5_K, ANY },
    { FFN_DOWN, FIRST_8TH_PLAIN, FORMAT_Q5_K, ANY },
    { 0 },
};
static const struct mix_rule Q4_0_RULES[] = { { FFN_DOWN, FIRST_8TH_WEIGHED, FORMAT_Q4_1, ANY }, { 0 } };
static const struct mix_rule Q5_0_RULES[] = { { FFN_DOWN, FIRST_8TH_WEIGHED, FORMAT_Q5_1, ANY }, { 0 } };

const struct mix MIXES[] = {
    { "q2_K", FORMAT_Q2_K, 10, Q2_K_RULES },
    { "q2_K_S", FORMAT_Q2_K, 21, Q2_K_S_RULES },
    { "q3_K_S", FORMAT_Q3_K, 11, NULL },
    { "q3_K_M", FORMAT_Q3_K, 12, Q3_K_M_RULES },
    { "q3_K_L", FORMAT_Q3_K, 13, Q3_K_L_RULES },
    { "q4_K_S", FORMAT_Q4_K, 14, Q4_K_S_RULES },
    { "q4_K_M", FORMAT_Q4_K, 15, Q4_K_M_RULES },
    { "q5_K_S", FORMAT_Q5_K, 16, NULL },
    { "q5_K_M", FORMAT_Q5_K, 17, Q5_K_M_RULES },
    { "q6_K", FORMAT_Q6_K, 18, NULL },
    { "q4_0", FORMAT_Q4_0, 2, Q4_0_RULES },
    { "q4_1", FORMAT_Q4_1, 3, NULL },
    { "q5_0", FORMAT_Q5_0, 8, Q5_0_RULES },
    { "q5_1", FORMAT_Q5_1, 9, NULL },
    { "q8_0", FORMAT_Q8_0, 7, NULL },
    { "iq4_nl", FORMAT_IQ4_NL, 25, IQ4_RULES },
    { "iq4_xs", FORMAT_IQ4_XS, 30, IQ4_RULES },
    { "tq1_0", FORMAT_TQ1_0, 36, NULL },
    { "tq2_0", FORMAT_TQ2_0, 37, NULL },
};
const size_t MIX_COUNT = COUNT_OF(MIXES);

const struct mix *mix_find(const char *name)
{
    for (size_t i = 0; i < MIX_COUNT; i++)
        if (!strcasecmp(MIXES[i].name, name)) return &MIXES[i];
    return NULL;
}

/* ---------------------------------------------------------------- rules */

static bool holds(enum when when, const struct mix_facts *f, int i, int n)
{
    switch (when) {
    case ALWAYS: return true;
    case FIRST_2: return i < 2;
    case FIRST_4: return i < 4;
    case FIRST_16TH: return i < n / 16;
    case FIRST_8TH: return i < n / 8;
    case FIRST_8TH_PLAIN: return i < n / 8 && !f->has_imatrix;
    case FIRST_8TH_WEIGHED: return i < n / 8 && f->has_imatrix;
    case MORE_BITS: return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
    case SHARED_BY_4: return f->kv_heads > 0 && f->heads / f->kv_heads >= 4;
    }
    return false;
}

static bool has(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

/* Mixtures of eight experts: what all of them share is small, so it gets many bits. */
static enum format_id with_experts(const struct mix *mix, const char *name, enum format_id otherwise)
{
    if (has(name, ATTN_V) || has(name, "attn_k.weight")) return FORMAT_Q8_0;
    if (!has(name, ATTN_OUT)) return otherwise;
    switch (mix->base) {
    case FORMAT_Q2_K: return mix->rules == Q2_K_S_RULES ? otherwise : FORMAT_Q5_K;
    case FORMAT_Q3_K: return mix->rules == Q3_K_L_RULES ? mix->base : FORMAT_Q5_K;
    case FORMAT_Q4_K:
    case FORMAT_IQ4_NL:
    case FORMAT_IQ4_XS: return FORMAT_Q5_K;
    default: return otherwise;
    }
}

static enum format_id by_rules(const struct mix *mix, const struct mix_facts *f, const char *name, int i)
{
    const int n = has(name, ATTN_V) ? f->values : f->layers;
    enum format_id id = mix->base;
    for (const struct mix_rule *r = mix->rules; r && r->tensor; r++) {
        if (!has(name, r->tensor) || !holds(r->when, f, i, n)) continue;
        if (r->whose != ANY && (r->whose == FALCON) != f->falcon) continue;
        id = r->format;
        break;
    }
    if (f->seventy_b && has(name, ATTN_V) && (id == FORMAT_Q3_K || id == FORMAT_Q4_K)) id = FORMAT_Q5_K;
    return f->experts == 8 && !f->falcon ? with_experts(mix, name, id) : id;
}

/* What makes logits: the output matrix, or the token embedding that serves as one. */
static enum format_id output_format(const struct mix *mix, const struct mix_facts *f, int64_t cols)
{
    if (f->falcon || cols % FORMATS[mix->base].block_weights || mix->base == FORMAT_Q8_0) return FORMAT_Q8_0;
    return FORMAT_Q6_K;
}

const struct format *mix_fitting(const struct format *f, int64_t cols)
{
    static const struct {
        enum format_id wanted, instead;
    } SMALLER[] = {
        { FORMAT_Q2_K, FORMAT_IQ4_NL }, { FORMAT_Q3_K, FORMAT_IQ4_NL }, { FORMAT_IQ4_XS, FORMAT_IQ4_NL },
        { FORMAT_Q4_K, FORMAT_Q5_0 },   { FORMAT_Q5_K, FORMAT_Q5_1 },   { FORMAT_Q6_K, FORMAT_Q8_0 },
        { FORMAT_TQ1_0, FORMAT_Q4_0 },  { FORMAT_TQ2_0, FORMAT_Q4_0 },
    };
    if (cols % f->block_weights == 0) return f;
    for (size_t i = 0; i < COUNT_OF(SMALLER); i++)
        if (f == &FORMATS[SMALLER[i].wanted] && cols % FORMATS[SMALLER[i].instead].block_weights == 0)
            return &FORMATS[SMALLER[i].instead];
    return &FORMATS[FORMAT_F16];
}

const struct format *mix_format(const struct mix *mix, const struct mix_facts *facts, const char *name,
                                int index, int64_t cols)
{
    const bool embedding = !strcmp(name, "token_embd.weight");
    enum format_id id;
    if (!strcmp(name, "output.weight") || (embedding && !facts->has_output))
        id = output_format(mix, facts, cols);
    else if (embedding)
        id = mix->base == FORMAT_TQ1_0 || mix->base == FORMAT_TQ2_0 ? FORMAT_Q4_K : mix->base;
    else
        id = by_rules(mix, facts, name, index);
    return mix_fitting(&FORMATS[id], cols);
}
