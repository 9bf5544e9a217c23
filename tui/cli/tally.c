/* tui/cli/tally.c - see tally.h. */
#include "tui/cli/tally.h"

#include <math.h>
#include <stdlib.h>

#include "advisor/stats/stats.h"
#include "tui/cli/record.h"

static void add(struct sums *s, const json_t *answer, double energy_j)
{
    if (s->n < TALLY_RATES) {
        s->prefill[s->n] = answer_prefill_rate(answer);
        s->decode[s->n] = answer_decode_rate(answer);
    }
    s->n++;
    s->prompt_tokens += json_get_num(answer, "prompt_tokens", 0);
    s->prefill_s += json_get_num(answer, "prefill_s", NAN);
    s->gen_tokens += json_get_num(answer, "gen_tokens", 0);
    s->decode_s += json_get_num(answer, "decode_s", NAN);
    s->ttft_s += json_get_num(answer, "ttft_s", NAN);
    s->energy_j += energy_j;
    s->peak = fmax(s->peak, json_get_num(answer, "peak_rss_bytes", NAN));
}

enum err_code tally_add(struct tally *t, const json_t *answer, double energy_j, bool disturbed,
                        struct err *why)
{
    add(&t->all, answer, energy_j);
    if (!disturbed) add(&t->quiet, answer, energy_j);
    return answer_itl(answer, &t->itl, &t->n_itl, why);
}

void tally_free(struct tally *t)
{
    free(t->itl);
    *t = (struct tally){ 0 };
}

int sums_kept(const struct sums *s)
{
    return MIN(s->n, (int)TALLY_RATES);
}

double sums_prefill_rate(const struct sums *s)
{
    return s->prompt_tokens > 0 ? s->prompt_tokens / s->prefill_s : NAN;
}

double sums_decode_rate(const struct sums *s)
{
    return s->gen_tokens > 0 ? s->gen_tokens / s->decode_s : NAN;
}

double rates_noise(const double *rates, int n)
{
    const double mean = stats_mean(rates, n), sd = stats_sd(rates, n);
    return n > 1 && mean > 0 && sd > 0 ? sd / mean / sqrt(n) : 0;
}
