/* advisor/run/phases.c - what the cells of each phase are for (run.h). */
#include "advisor/run/run.h"

#include <string.h>

static const struct {
    const char *name; /* as in the database */
    unsigned uses;    /* of enum phase_use */
} PHASES[] = {
    { "block", PHASE_SPEED | PHASE_RESULT | PHASE_CONDITIONS | PHASE_CONFIG },
    { "confirm", PHASE_SPEED | PHASE_RESULT | PHASE_CONDITIONS | PHASE_CONFIG },
    { "bench", PHASE_SPEED | PHASE_RESULT | PHASE_CONDITIONS | PHASE_CONFIG },
    { "eval", PHASE_RESULT | PHASE_CONDITIONS | PHASE_CONFIG },
    { "quality", PHASE_CONDITIONS | PHASE_CONFIG },
    { "task", PHASE_CONDITIONS | PHASE_CONFIG },
    { "race", PHASE_CONDITIONS | PHASE_CONFIG },
    { "serve", PHASE_CONDITIONS | PHASE_CONFIG },
    { "search", PHASE_CONFIG },
    { "control", PHASE_CONFIG },
    { "warmup", 0 },
    { CANARY_PHASE, 0 },
};

bool cell_phase_is(const char *phase, enum phase_use use)
{
    for (size_t i = 0; i < COUNT_OF(PHASES); i++)
        if (!strcmp(phase, PHASES[i].name)) return PHASES[i].uses & use;
    return false;
}
