/* advisor/advise/strategy.c - the matrix of quantization strategies: what to try by room in memory and by
 * what matters. */
#include "advisor/advise/advise.h"

const struct strategy STRATEGIES[STRATEGY_ROOMS][STRATEGY_NEEDS] = {
    /* ROOM_TIGHT; by need: exact, balanced, small */
    { { .advice = "q6_K, or q5_K with an importance matrix",
        .reason = "the largest format that fits loses the least quality",
        .arms = "q6_K q5_K --quality" },
      { .advice = "q4_K with an importance matrix, or awq or gptq with 4 bits",
        .reason =
            "4 bits chosen with calibration data lose less quality than plain rounding (docs/methods.md)",
        .arms = "q4_K awq,bits=4 --quality" },
      { .advice = "q4_0 or q3_K, with kv=q8_0",
        .reason = "fewer bytes are faster; below 4 bits check the quality first",
        .arms = "q4_0 q3_K,kv=q8_0 --quality" } },
    /* ROOM_ENOUGH */
    { { .advice = "q8_0",
        .reason = "half the bytes of 16 bits, with a barely measurable loss of quality",
        .arms = "default q8_0 --quality" },
      { .advice = "q5_K or q4_K",
        .reason = "the knee of the curve: each further bit removed costs more quality than the one before",
        .arms = "q5_K q4_K --quality" },
      { .advice = "q4_K or q4_0",
        .reason = "fewest bytes per token with 4 bits",
        .arms = "q4_K q4_0 --quality" } },
    /* ROOM_AMPLE */
    { { .advice = "the unchanged file; q8_0 if speed matters at all",
        .reason = "memory does not require any loss",
        .arms = "default q8_0 --quality" },
      { .advice = "q8_0; q4_K if speed matters more",
        .reason = "memory does not require quantization here, but bandwidth makes it useful",
        .arms = "q8_0 q4_K --quality" },
      { .advice = "q4_0 or q4_K",
        .reason = "memory is ample, but bandwidth still limits the speed",
        .arms = "q8_0 q4_0 --quality" } },
};
const char *const STRATEGY_ROOM_NAMES[STRATEGY_ROOMS] = { "tight", "enough", "ample" };
const char *const STRATEGY_NEED_NAMES[STRATEGY_NEEDS] = { "exact answers", "balanced", "small and fast" };

enum strategy_room strategy_room(int64_t bytes, int64_t have)
{
    const double share = (double)bytes / (double)have;
    return share > 0.9 ? ROOM_TIGHT : share < 0.5 ? ROOM_AMPLE : ROOM_ENOUGH;
}

enum strategy_need strategy_need(enum goal goal)
{
    switch (goal) {
    case GOAL_QUALITY: return NEED_EXACT;
    case GOAL_BALANCED: return NEED_BALANCED;
    case GOAL_SPEED:
    case GOAL_MEMORY:
    case GOAL_ENERGY: break;
    }
    return NEED_SMALL;
}
