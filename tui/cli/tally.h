/* tui/cli/tally.h - what the repetitions of one workload add up to: all of them, as they are told, and those
 * that nothing disturbed, as they teach. */
#ifndef QDYNO_TUI_CLI_TALLY_H
#define QDYNO_TUI_CLI_TALLY_H

#include <stdbool.h>

#include "base/base.h"

enum { TALLY_RATES = 64 };
struct sums {
    int n;
    double prefill[TALLY_RATES], decode[TALLY_RATES]; /* tokens/s of the first repetitions; NAN: did none */
    double prompt_tokens, prefill_s, gen_tokens, decode_s, ttft_s, energy_j;
    double peak; /* bytes; 0: nobody knows */
};
struct tally {
    struct sums all, quiet;
    float *itl; /* owned: seconds between tokens of all of them */
    int n_itl;
};
/* answer: of a cell (engine/worker/worker.h). Errors: ERR_NOMEM. */
enum err_code tally_add(struct tally *t, const json_t *answer, double energy_j, bool disturbed,
                        struct err *why);
void tally_free(struct tally *t);

int sums_kept(const struct sums *s);            /* rates in the arrays */
double sums_prefill_rate(const struct sums *s); /* NAN: did none */
double sums_decode_rate(const struct sums *s);  /* the same */
/* Standard error of the logarithm of their mean; 0: one says nothing. */
double rates_noise(const double *rates, int n);

#endif
