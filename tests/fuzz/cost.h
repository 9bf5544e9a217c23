/* tests/fuzz/cost.h - a ceiling on what one input may cost, so that fuzzing also finds inputs that make a
 * parser slow or large: names with equal hashes, scans within scans, counts that are believed.
 *
 * Time is the processor time of the calling thread, so other work on the machine does not count. Memory is
 * the peak of what malloc and its relatives gave out meanwhile. Both ceilings are a constant plus a rate, and
 * about thirty times what ordinary inputs of the target take; an input that costs more is run twice again,
 * and only the cheapest of the three runs counts. Sanitizers multiply the time (COST_SANITIZED). */
#ifndef QDYNO_TESTS_FUZZ_COST_H
#define QDYNO_TESTS_FUZZ_COST_H

#include <stddef.h>
#include <stdint.h>

struct cost_ceiling {
    double seconds, seconds_per_mb; /* of processor time; per MB (10^6 bytes) of input */
    double mb, mb_per_mb;           /* of memory, peak */
};

/* Run use(data, size), and abort with a message when it cost more than the ceiling allows. Always 0, as
 * libFuzzer wants it. `use` must give the same result when it is called again. */
int cost_run(void (*use)(const uint8_t *data, size_t size), const uint8_t *data, size_t size,
             const struct cost_ceiling *ceiling);

#endif
