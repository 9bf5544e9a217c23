/* advisor/experiment/quant_claims.c - what is usually promised about quantization, judged by what an
 * experiment measured (experiment.h). Bytes of weights are exact; speed has the paired interval. */
#include "advisor/experiment/experiment.h"

#include <math.h>
#include <stdio.h>

const char *const QUANT_CLAIM_ARMS[QUANT_ARMS] = {
    [QUANT_16BIT] = "f16", [QUANT_8BIT] = "q8_0", [QUANT_4BIT] = "q4_0"
};

/* "a half" and "a quarter" allow a tenth in both directions: scales take some bits of each block. */
const struct quant_claim QUANT_CLAIMS[] = {
    { .text = "8-bit weights take half the memory of 16-bit weights",
      .arm = QUANT_8BIT,
      .figure = QUANT_WEIGHT_BYTES,
      .from = 0.45,
      .to = 0.55 },
    { .text = "4-bit weights take a quarter of the memory of 16-bit weights",
      .arm = QUANT_4BIT,
      .figure = QUANT_WEIGHT_BYTES,
      .from = 0.225,
      .to = 0.275 },
    { .text = "4-bit weights take 25 to 30 % of the memory of 16-bit weights",
      .arm = QUANT_4BIT,
      .figure = QUANT_WEIGHT_BYTES,
      .from = 0.25,
      .to = 0.30 },
    { .text = "8-bit weights decode 1.5 to 3 times as fast",
      .arm = QUANT_8BIT,
      .figure = QUANT_DECODE_RATE,
      .from = QUANT_FASTER_FROM,
      .to = QUANT_FASTER_TO },
    { .text = "4-bit weights decode 1.5 to 3 times as fast",
      .arm = QUANT_4BIT,
      .figure = QUANT_DECODE_RATE,
      .from = QUANT_FASTER_FROM,
      .to = QUANT_FASTER_TO },
};
const int QUANT_CLAIM_COUNT = COUNT_OF(QUANT_CLAIMS);

/* Memory and speed: the usual tables of these libraries. Accuracy: perplexity divided by that of 16 bits on
 * WikiText-2, or KL divergence from 16 bits in nats, from the projects' own pages. */
const struct quant_method QUANT_METHODS[] = {
    { "llm_int8", 0.5, 0.5, 1.5, 2, NULL },
    { "nf4", 0.25, 0.25, 2, 3, NULL },
    { "fp4", 0.25, 0.25, 2, 3, NULL },
    { "int8_dynamic", 0.25, 0.30, 0, 0, NULL },
    { "int8_static", 0, 0, 0, 0, NULL },
    { "gptq,bits=4", 0, 0, 0, 0, "perplexity x 1.072 (GPTQ repository, LLaMA-1 7B)" },
    { "awq,bits=4", 0, 0, 0, 0, "perplexity x 1.024 (llm-awq, Llama-2 7B)" },
    { "hqq,bits=4", 0, 0, 0, 0, NULL },
    { "quanto,weights=int4", 0, 0, 0, 0, NULL },
    { "eetq", 0, 0, 0, 0, NULL },
    { "smoothquant", 0, 0, 0, 0, "perplexity x 1.007 (SmoothQuant README, Llama-2 7B)" },
    { "fp8", 0, 0, 0, 0, "perplexity x 1.012 (torchao documentation, Llama-3.1 8B)" },
    { "q8_0", 0.5, 0.5, 1.5, 3, "KLD 0.0014 (llama.cpp README, Llama-3 8B)" },
    { "q4_K_M", 0.25, 0.30, 1.5, 3, "KLD 0.0313 (llama.cpp README, Llama-3 8B)" },
    { "q4_0", 0.25, 0.30, 1.5, 3, "KLD 0.0719 (llama.cpp README, Llama-3 8B)" },
};
const int QUANT_METHOD_COUNT = COUNT_OF(QUANT_METHODS);

const char *quant_outcome_name(enum quant_outcome o)
{
    static const char *const NAMES[] = {
        [QUANT_CONFIRMED] = "confirmed", [QUANT_REFUTED] = "refuted", [QUANT_NOT_DECIDED] = "not decided"
    };
    return NAMES[o];
}

void quant_claims_spec(struct experiment_spec *s)
{
    s->arms = QUANT_ARMS;
    s->metric = &METRICS[METRIC_DECODE_RATE];
    /* blocks continue until the intervals of the rates are on one side of both bounds */
    snprintf(s->gate, sizeof s->gate, "decode_tok_s >= %g*A and decode_tok_s <= %g*A", QUANT_FASTER_FROM,
             QUANT_FASTER_TO);
}

/* Why the claim cannot be judged; "" when it can. */
static const char *claim_obstacle(const struct quant_claim *c, const struct experiment_state *s)
{
    for (int i = 0; i < 2; i++)
        if (s->arm[i ? c->arm : 0].failed) return s->arm[i ? c->arm : 0].error;
    if (c->figure == QUANT_DECODE_RATE && s->verdict == VERDICT_INVALID)
        return *s->reason ? s->reason : "the measurement is invalid";
    return "";
}

static struct interval claim_measured(const struct quant_claim *c, const struct experiment_state *s)
{
    if (c->figure == QUANT_DECODE_RATE) {
        const struct interval gain = s->comparison[c->arm]
                                         .by_metric[METRIC_DECODE_RATE - METRIC_SENSOR_COUNT];
        return (struct interval){ exp(gain.estimate), exp(gain.lower), exp(gain.upper) };
    }
    const double a = (double)s->arm[0].plan.weights, b = (double)s->arm[c->arm].plan.weights;
    const double ratio = a > 0 && b > 0 ? b / a : (double)NAN;
    return (struct interval){ ratio, ratio, ratio };
}

void quant_claim_judge(const struct quant_claim *c, const struct experiment_state *s,
                       struct quant_judgement *out)
{
    const char *why = claim_obstacle(c, s);
    out->ratio = claim_measured(c, s);
    out->outcome = QUANT_NOT_DECIDED;
    snprintf(out->reason, sizeof out->reason, "%s", why);
    if (*why) return;
    if (isnan(out->ratio.lower) || isnan(out->ratio.upper))
        snprintf(out->reason, sizeof out->reason, "too little was measured for an interval");
    else if (out->ratio.lower >= c->from && out->ratio.upper <= c->to)
        out->outcome = QUANT_CONFIRMED;
    else if (out->ratio.upper < c->from || out->ratio.lower > c->to)
        out->outcome = QUANT_REFUTED;
    else
        snprintf(out->reason, sizeof out->reason,
                 "a part of the interval lies in the promised range; more time (--budget) may decide");
}
