/* The rules of llama.cpp's file types as tables: tensor, condition, format. */
#include "engine/quant/mixes.h"

#include <string.h>
#include <strings.h>

/* When a rule applies to the i-th of n layers that have the tensor. */
enum when {
    ALWAYS,
    FIRST_2,
    FIRST_4,
    FIRST_16TH,
    FIRST_8TH,
    FIRST_8TH_PLAIN,    /* only without an importance matrix */
    FIRST_8TH_WEIGHTED, /* only with one */
    MORE_BITS,          /* the first and last eighth, and every third layer between (use_more_bits) */
    SHARED_BY_4,        /* each value head serves four or more query heads */
    SHARED_OR_EXPERTS,  /* the same, or four or more experts */
    PLAIN,              /* without an importance matrix */
    MIDDLE,             /* neither in the first nor in the last eighth */
};
enum whose { ANY, FALCON, OTHERS };

struct mix_rule {
    const char *tensor; /* part of the tensor's name */
    enum when when;
    enum format_id format;
    enum whose whose;
};

#define ATTN_V   "attn_v.weight"
#define ATTN_OUT "attn_output.weight"
#define ATTN_QKV "attn_qkv.weight"
#define ATTN_K   "attn_k.weight"
#define ATTN_Q   "attn_q.weight"
#define FFN_DOWN "ffn_down"
#define FFN_GATE "ffn_gate"
#define FFN_UP   "ffn_up"

static const struct mix_rule Q2_K_RULES[] = {
    { .tensor = ATTN_V, .when = SHARED_BY_4, .format = FORMAT_Q4_K },
    { .tensor = ATTN_V, .when = ALWAYS, .format = FORMAT_Q3_K },
    { .tensor = FFN_DOWN, .when = ALWAYS, .format = FORMAT_Q3_K },
    { .tensor = ATTN_OUT, .when = ALWAYS, .format = FORMAT_Q3_K, .whose = OTHERS },
    { 0 },
};
static const struct mix_rule Q2_K_S_RULES[] = {
    { .tensor = ATTN_V, .when = SHARED_BY_4, .format = FORMAT_Q4_K },
    { .tensor = FFN_DOWN, .when = FIRST_8TH, .format = FORMAT_Q4_K },
    { 0 },
};
static const struct mix_rule Q3_K_M_RULES[] = {
    { .tensor = ATTN_V, .when = FIRST_2, .format = FORMAT_Q5_K },
    { .tensor = ATTN_V, .when = ALWAYS, .format = FORMAT_Q4_K },
    { .tensor = FFN_DOWN, .when = FIRST_16TH, .format = FORMAT_Q5_K },
    { .tensor = FFN_DOWN, .when = ALWAYS, .format = FORMAT_Q4_K, .whose = OTHERS },
    { .tensor = FFN_DOWN, .when = MORE_BITS, .format = FORMAT_Q4_K },
    { .tensor = ATTN_OUT, .when = ALWAYS, .format = FORMAT_Q4_K, .whose = OTHERS },
    { .tensor = ATTN_QKV, .when = ALWAYS, .format = FORMAT_Q4_K },
    { 0 },
};
static const struct mix_rule Q3_K_L_RULES[] = {
    { .tensor = ATTN_V, .when = ALWAYS, .format = FORMAT_Q5_K },
    { .tensor = FFN_DOWN, .when = ALWAYS, .format = FORMAT_Q4_K, .whose = FALCON },
    { .tensor = FFN_DOWN, .when = ALWAYS, .format = FORMAT_Q5_K },
    { .tensor = ATTN_OUT, .when = ALWAYS, .format = FORMAT_Q4_K, .whose = FALCON },
    { .tensor = ATTN_OUT, .when = ALWAYS, .format = FORMAT_Q5_K },
    { .tensor = ATTN_QKV, .when = ALWAYS, .format = FORMAT_Q4_K },
    { 0 },
};
static const struct mix_rule Q4_K_S_RULES[] = {
    { .tensor = ATTN_V, .when = FIRST_4, .format = FORMAT_Q5_K },
    { .tensor = FFN_DOWN, .when = FIRST_8TH, .format = FORMAT_Q5_K, .whose = OTHERS },
    { 0 },
};
static const struct mix_rule Q4_K_M_RULES[] = {
    { .tensor = ATTN_V, .when = MORE_BITS, .format = FORMAT_Q6_K },
    { .tensor = FFN_DOWN, .when = FIRST_16TH, .format = FORMAT_Q6_K, .whose = FALCON },
    { .tensor = FFN_DOWN, .when = MORE_BITS, .format = FORMAT_Q5_K, .whose = FALCON },
    { .tensor = FFN_DOWN, .when = MORE_BITS, .format = FORMAT_Q6_K, .whose = OTHERS },
    { .tensor = ATTN_QKV, .when = ALWAYS, .format = FORMAT_Q5_K },
    { 0 },
};
static const struct mix_rule Q5_K_M_RULES[] = {
    { .tensor = ATTN_V, .when = MORE_BITS, .format = FORMAT_Q6_K },
    { .tensor = FFN_DOWN, .when = MORE_BITS, .format = FORMAT_Q6_K },
    { .tensor = ATTN_QKV, .when = ALWAYS, .format = FORMAT_Q6_K },
    { 0 },
};
static const struct mix_rule IQ4_RULES[] = {
    { .tensor = ATTN_V, .when = SHARED_BY_4, .format = FORMAT_Q5_K },
    { .tensor = FFN_DOWN, .when = FIRST_8TH_PLAIN, .format = FORMAT_Q5_K },
    { 0 },
};
static const struct mix_rule Q4_0_RULES[] = {
    { .tensor = FFN_DOWN, .when = FIRST_8TH_WEIGHTED, .format = FORMAT_Q4_1 }, { 0 }
};
static const struct mix_rule Q5_0_RULES[] = {
    { .tensor = FFN_DOWN, .when = FIRST_8TH_WEIGHTED, .format = FORMAT_Q5_1 }, { 0 }
};

static const struct mix_rule IQ1_RULES[] = {
    { .tensor = ATTN_V, .when = SHARED_OR_EXPERTS, .format = FORMAT_Q4_K },
    { .tensor = ATTN_V, .when = ALWAYS, .format = FORMAT_Q2_K },
    { .tensor = FFN_DOWN, .when = FIRST_8TH, .format = FORMAT_Q2_K },
    { .tensor = ATTN_OUT, .when = ALWAYS, .format = FORMAT_IQ2_XXS },
    { 0 },
};
static const struct mix_rule IQ2_XS_RULES[] = {
    { .tensor = ATTN_V, .when = SHARED_OR_EXPERTS, .format = FORMAT_Q4_K },
    { .tensor = ATTN_V, .when = ALWAYS, .format = FORMAT_Q2_K },
    { .tensor = FFN_DOWN, .when = FIRST_8TH, .format = FORMAT_Q2_K },
    { 0 },
};
static const struct mix_rule IQ2_S_RULES[] = {
    { .tensor = ATTN_V, .when = SHARED_OR_EXPERTS, .format = FORMAT_Q4_K },
    { .tensor = ATTN_V, .when = ALWAYS, .format = FORMAT_IQ3_S },
    { .tensor = FFN_DOWN, .when = FIRST_8TH, .format = FORMAT_IQ3_S },
    { .tensor = ATTN_OUT, .when = ALWAYS, .format = FORMAT_IQ3_S },
    { 0 },
};
static const struct mix_rule IQ3_XXS_RULES[] = {
    { .tensor = ATTN_V, .when = SHARED_BY_4, .format = FORMAT_Q4_K },
    { .tensor = ATTN_V, .when = PLAIN, .format = FORMAT_IQ3_S },
    { .tensor = ATTN_K, .when = ALWAYS, .format = FORMAT_IQ2_S },
    { .tensor = ATTN_Q, .when = ALWAYS, .format = FORMAT_IQ2_S },
    { .tensor = FFN_DOWN, .when = FIRST_8TH_PLAIN, .format = FORMAT_Q4_K },
    { .tensor = FFN_DOWN, .when = PLAIN, .format = FORMAT_Q3_K },
    { .tensor = ATTN_OUT, .when = ALWAYS, .format = FORMAT_IQ3_S, .whose = OTHERS },
    { 0 },
};
static const struct mix_rule IQ3_XS_RULES[] = {
    { .tensor = ATTN_V, .when = SHARED_BY_4, .format = FORMAT_Q4_K },
    { .tensor = ATTN_K, .when = ALWAYS, .format = FORMAT_IQ3_XXS },
    { .tensor = ATTN_Q, .when = ALWAYS, .format = FORMAT_IQ3_XXS },
    { .tensor = FFN_GATE, .when = MIDDLE, .format = FORMAT_IQ3_XXS },
    { .tensor = FFN_UP, .when = MIDDLE, .format = FORMAT_IQ3_XXS },
    { 0 },
};
static const struct mix_rule IQ3_S_RULES[] = {
    { .tensor = ATTN_V, .when = SHARED_BY_4, .format = FORMAT_Q4_K }, { 0 }
};
static const struct mix_rule IQ3_M_RULES[] = {
    { .tensor = ATTN_V, .when = ALWAYS, .format = FORMAT_Q4_K },
    { .tensor = ATTN_OUT, .when = ALWAYS, .format = FORMAT_Q4_K, .whose = OTHERS },
    { .tensor = ATTN_QKV, .when = ALWAYS, .format = FORMAT_Q4_K },
    { 0 },
};

#define MIX_OF_IQ(mix_name, base_format, type, mix_rules, of_embedding)                                      \
    .name = mix_name, .base = base_format, .file_type = type, .rules = mix_rules, .output = FORMAT_Q5_K,     \
    .embedding = of_embedding

const struct format_mix MIXES[] = {
    { MIX_OF_IQ("iq1_s", FORMAT_IQ1_S, 24, IQ1_RULES, FORMAT_Q2_K), .needs_importance = true },
    { MIX_OF_IQ("iq1_m", FORMAT_IQ1_M, 31, IQ1_RULES, FORMAT_Q2_K), .needs_importance = true },
    { MIX_OF_IQ("iq2_xxs", FORMAT_IQ2_XXS, 19, IQ2_XS_RULES, FORMAT_Q2_K), .needs_importance = true },
    { MIX_OF_IQ("iq2_xs", FORMAT_IQ2_XS, 20, IQ2_XS_RULES, FORMAT_Q2_K), .needs_importance = true },
    { MIX_OF_IQ("iq2_s", FORMAT_IQ2_XS, 28, IQ2_S_RULES, FORMAT_IQ3_S), .needs_importance = true },
    { MIX_OF_IQ("iq2_m", FORMAT_IQ2_S, 29, IQ2_S_RULES, FORMAT_IQ3_S) },
    { MIX_OF_IQ("iq3_xxs", FORMAT_IQ3_XXS, 23, IQ3_XXS_RULES, FORMAT_IQ3_S) },
    { .name = "iq3_xs", .base = FORMAT_IQ3_S, .file_type = 22, .rules = IQ3_XS_RULES },
    { .name = "iq3_s", .base = FORMAT_IQ3_S, .file_type = 26, .rules = IQ3_S_RULES },
    { .name = "iq3_m", .base = FORMAT_IQ3_S, .file_type = 27, .rules = IQ3_M_RULES },
    { .name = "q2_K", .base = FORMAT_Q2_K, .file_type = 10, .rules = Q2_K_RULES },
    { .name = "q2_K_S",
      .base = FORMAT_Q2_K,
      .file_type = 21,
      .rules = Q2_K_S_RULES,
      .needs_importance = true },
    { .name = "q3_K_S", .base = FORMAT_Q3_K, .file_type = 11 },
    { .name = "q3_K_M", .base = FORMAT_Q3_K, .file_type = 12, .rules = Q3_K_M_RULES },
    { .name = "q3_K_L", .base = FORMAT_Q3_K, .file_type = 13, .rules = Q3_K_L_RULES },
    { .name = "q4_K_S", .base = FORMAT_Q4_K, .file_type = 14, .rules = Q4_K_S_RULES },
    { .name = "q4_K_M", .base = FORMAT_Q4_K, .file_type = 15, .rules = Q4_K_M_RULES },
    { .name = "q5_K_S", .base = FORMAT_Q5_K, .file_type = 16 },
    { .name = "q5_K_M", .base = FORMAT_Q5_K, .file_type = 17, .rules = Q5_K_M_RULES },
    { .name = "q6_K", .base = FORMAT_Q6_K, .file_type = 18 },
    { .name = "q4_0", .base = FORMAT_Q4_0, .file_type = 2, .rules = Q4_0_RULES },
    { .name = "q4_1", .base = FORMAT_Q4_1, .file_type = 3 },
    { .name = "q5_0", .base = FORMAT_Q5_0, .file_type = 8, .rules = Q5_0_RULES },
    { .name = "q5_1", .base = FORMAT_Q5_1, .file_type = 9 },
    { .name = "q8_0", .base = FORMAT_Q8_0, .file_type = 7 },
    { .name = "iq4_nl", .base = FORMAT_IQ4_NL, .file_type = 25, .rules = IQ4_RULES },
    { .name = "iq4_xs", .base = FORMAT_IQ4_XS, .file_type = 30, .rules = IQ4_RULES },
    { .name = "tq1_0", .base = FORMAT_TQ1_0, .file_type = 36, .embedding = FORMAT_Q4_K },
    { .name = "tq2_0", .base = FORMAT_TQ2_0, .file_type = 37, .embedding = FORMAT_Q4_K },
};
const size_t MIX_COUNT = COUNT_OF(MIXES);

const struct format_mix *mix_find(const char *name)
{
    for (size_t i = 0; i < MIX_COUNT; i++)
        if (!strcasecmp(MIXES[i].name, name)) return &MIXES[i];
    return NULL;
}

/* ---------------------------------------------------------------- rules */

static bool shares_by_4(const struct mix_facts *f)
{
    return f->kv_heads > 0 && f->heads / f->kv_heads >= 4;
}

static bool rule_applies(enum when when, const struct mix_facts *f, int i, int n)
{
    switch (when) {
    case ALWAYS: return true;
    case FIRST_2: return i < 2;
    case FIRST_4: return i < 4;
    case FIRST_16TH: return i < n / 16;
    case FIRST_8TH: return i < n / 8;
    case FIRST_8TH_PLAIN: return i < n / 8 && !f->has_imatrix;
    case FIRST_8TH_WEIGHTED: return i < n / 8 && f->has_imatrix;
    case MORE_BITS: return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
    case SHARED_BY_4: return shares_by_4(f);
    case SHARED_OR_EXPERTS: return shares_by_4(f) || f->experts >= 4;
    case PLAIN: return !f->has_imatrix;
    case MIDDLE: return i >= n / 8 && i < 7 * n / 8;
    }
    return false;
}

static bool name_has(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

/* Models with eight experts: tensors that all experts share are small, so they get more bits. */
static enum format_id mix_expert_format(const struct format_mix *mix, const char *name,
                                        enum format_id otherwise)
{
    const bool lowest = mix->output != FORMAT_F32 && mix->base != FORMAT_IQ3_XXS;
    if (lowest && name_has(name, ATTN_K)) return FORMAT_Q4_K;
    if (lowest) return name_has(name, ATTN_OUT) ? FORMAT_Q5_K : otherwise;
    if (name_has(name, ATTN_V) || name_has(name, ATTN_K)) return FORMAT_Q8_0;
    if (!name_has(name, ATTN_OUT)) return otherwise;
    switch (mix->base) {
    case FORMAT_Q2_K: return mix->rules == Q2_K_S_RULES ? otherwise : FORMAT_Q5_K;
    case FORMAT_Q3_K: return mix->rules == Q3_K_L_RULES ? mix->base : FORMAT_Q5_K;
    case FORMAT_Q4_K:
    case FORMAT_IQ3_XXS:
    case FORMAT_IQ3_S:
    case FORMAT_IQ4_NL:
    case FORMAT_IQ4_XS: return FORMAT_Q5_K;
    default: return otherwise;
    }
}

/* Format of a tensor of a layer: the first matching rule, else the base format. */
static enum format_id mix_rule_format(const struct format_mix *mix, const struct mix_facts *f,
                                      const char *name, int i)
{
    const int n = name_has(name, ATTN_V) ? f->values : f->layers;
    enum format_id id = mix->base;
    for (const struct mix_rule *r = mix->rules; r && r->tensor; r++) {
        if (!name_has(name, r->tensor) || !rule_applies(r->when, f, i, n)) continue;
        if (r->whose != ANY && (r->whose == FALCON) != f->falcon) continue;
        id = r->format;
        break;
    }
    if (f->seventy_b && name_has(name, ATTN_V) && (id == FORMAT_Q3_K || id == FORMAT_Q4_K)) id = FORMAT_Q5_K;
    return f->experts == 8 && !f->falcon ? mix_expert_format(mix, name, id) : id;
}

/* Format of the output matrix, or of the token embedding that is used as one. */
static enum format_id mix_output_format(const struct format_mix *mix, const struct mix_facts *f, int64_t cols)
{
    if (f->falcon || cols % FORMATS[mix->base].block_weights || mix->base == FORMAT_Q8_0) return FORMAT_Q8_0;
    return mix->output != FORMAT_F32 ? mix->output : FORMAT_Q6_K;
}

const struct format *mix_fitting(const struct format *f, int64_t cols)
{
    static const struct {
        enum format_id wanted, instead;
    } SMALLER[] = {
        { .wanted = FORMAT_Q2_K, .instead = FORMAT_IQ4_NL },
        { .wanted = FORMAT_Q3_K, .instead = FORMAT_IQ4_NL },
        { .wanted = FORMAT_IQ1_S, .instead = FORMAT_IQ4_NL },
        { .wanted = FORMAT_IQ1_M, .instead = FORMAT_IQ4_NL },
        { .wanted = FORMAT_IQ2_XXS, .instead = FORMAT_IQ4_NL },
        { .wanted = FORMAT_IQ2_XS, .instead = FORMAT_IQ4_NL },
        { .wanted = FORMAT_IQ2_S, .instead = FORMAT_IQ4_NL },
        { .wanted = FORMAT_IQ3_XXS, .instead = FORMAT_IQ4_NL },
        { .wanted = FORMAT_IQ3_S, .instead = FORMAT_IQ4_NL },
        { .wanted = FORMAT_IQ4_XS, .instead = FORMAT_IQ4_NL },
        { .wanted = FORMAT_Q4_K, .instead = FORMAT_Q5_0 },
        { .wanted = FORMAT_Q5_K, .instead = FORMAT_Q5_1 },
        { .wanted = FORMAT_Q6_K, .instead = FORMAT_Q8_0 },
        { .wanted = FORMAT_TQ1_0, .instead = FORMAT_Q4_0 },
        { .wanted = FORMAT_TQ2_0, .instead = FORMAT_Q4_0 },
    };
    if (cols % f->block_weights == 0) return f;
    for (size_t i = 0; i < COUNT_OF(SMALLER); i++)
        if (f == &FORMATS[SMALLER[i].wanted] && cols % FORMATS[SMALLER[i].instead].block_weights == 0)
            return &FORMATS[SMALLER[i].instead];
    return &FORMATS[FORMAT_F16];
}

const struct format *mix_format(const struct format_mix *mix, const struct mix_facts *facts, const char *name,
                                int index, int64_t cols)
{
    const bool embedding = !strcmp(name, "token_embd.weight");
    enum format_id id;
    if (!strcmp(name, "output.weight") || (embedding && !facts->has_output))
        id = mix_output_format(mix, facts, cols);
    else if (embedding)
        id = mix->embedding != FORMAT_F32 ? mix->embedding : mix->base;
    else
        id = mix_rule_format(mix, facts, name, index);
    return mix_fitting(&FORMATS[id], cols);
}
