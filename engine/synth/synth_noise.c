/* Billions of normally distributed numbers, the same on every machine.
 *
 * A model of a billion weights should take seconds, so each number is one table look-up: 16 random bits
 * choose one of 65536 quantiles of N(0,1). The table is computed without libm, whose last digits differ
 * between systems: the same options must give the same bytes. */
#include "engine/synth/synth_internal.h"

#include <math.h>
#include <string.h>

#include "engine/synth/synth.h"

enum { HALF = 1 << 15, SERIES_TERMS = 120, NEWTON_STEPS = 2 /* each quantile starts at its neighbour */ };

/* exp(-y) for y >= 0: Taylor series of exp(-y/64), squared six times. */
static double exp_minus(double y)
{
    double t = -y / 64, term = 1, sum = 1;
    for (int k = 1; k < 20; k++) {
        term = term * t / k;
        sum += term;
    }
    for (int i = 0; i < 6; i++) sum *= sum;
    return sum;
}

static double normal_density(double x)
{
    return 0.39894228040143267794 * exp_minus(x * x / 2); /* 1/sqrt(2 pi) */
}

/* P(0 < N < x) by the all-positive series x + x^3/3 + x^5/15 + ...; exact enough up to x = 5. */
static double half_probability(double x)
{
    double term = x, sum = x;
    for (int k = 1; k < SERIES_TERMS && term > sum * 1e-18; k++) {
        term = term * (x * x) / (2 * k + 1);
        sum += term;
    }
    return sum * normal_density(x);
}

void noise_init(struct noise *n)
{
    double x = 0;
    for (int i = 0; i < HALF;
         i++) { /* the quantile in the middle of each step of 1/65536, from the centre outwards */
        double want = (i + 0.5) / (2 * HALF);
        for (int s = 0; s < NEWTON_STEPS; s++) x += (want - half_probability(x)) / normal_density(x);
        n->quantile[HALF + i] = (float)x;
        n->quantile[HALF - 1 - i] = (float)-x;
    }
}

/* Where the stream of a row begins. */
static uint64_t stream_start(struct noise_stream at)
{
    return hash_mix(hash_mix(hash_mix(at.seed + HASH_STEP) ^ at.tensor) ^ at.row);
}

void noise_fill(const struct noise *n, struct noise_stream at, float *out, int64_t count, float mean,
                float deviation)
{
    uint64_t state = stream_start(at);
    for (int64_t i = 0; i < count; i += 4) {
        uint64_t bits = hash_mix(state += HASH_STEP);
        int part = (int)MIN(count - i, 4);
        for (int j = 0; j < part; j++, bits >>= 16)
            out[i + j] = mean + deviation * n->quantile[bits & 0xffff];
    }
}

void noise_choose(struct noise_stream at, int64_t first, uint32_t *out, int64_t count, uint32_t limit)
{
    const uint64_t start = stream_start(at);
    for (int64_t i = 0; i < count; i++) {
        const uint64_t bits = hash_mix(start + (uint64_t)(first + i + 1) * HASH_STEP);
        out[i] = (uint32_t)((bits >> 32) * limit >> 32);
    }
}
