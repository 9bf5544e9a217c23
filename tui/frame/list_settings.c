/* tui/frame/list_settings.c - the cells of the list of settings: every key of a config line. */
#include <string.h>

#include "tui/frame/list_cells.h"

int knob_count(const struct snapshot *s UNUSED)
{
    return KNOB_COUNT;
}

TEXT_OF(knob_key)
{
    return KNOBS[i].key;
}

TEXT_OF(knob_default)
{
    return *KNOBS[i].otherwise ? KNOBS[i].otherwise : "-";
}

TEXT_OF(knob_in_use)
{
    knob_applied(s, (enum knob_id)i, buf, size);
    return *buf ? buf : "-";
}

TEXT_OF(knob_arm_a)
{
    const char *v = knob_arm(s, 0, (enum knob_id)i);
    return *v ? v : "-";
}

TEXT_OF(knob_arm_b)
{
    const char *v = knob_arm(s, 1, (enum knob_id)i);
    return *v ? v : "-";
}

static bool knob_differs(const struct snapshot *s, int i)
{
    return strcmp(knob_arm(s, 0, (enum knob_id)i), knob_arm(s, 1, (enum knob_id)i)) != 0;
}

STYLE_OF(knob_arm_b_style)
{
    return knob_differs(s, i) ? ROLE_TEXT | STYLE_BOLD : (unsigned)ROLE_TEXT;
}

TEXT_OF(knob_difference)
{
    return knob_differs(s, i) ? "≠" : "";
}

STYLE_OF(knob_difference_style)
{
    return ROLE_KEY;
}

bool knob_no_arms(const struct snapshot *s)
{
    return !s->experiment_known;
}

bool knob_some_arms(const struct snapshot *s)
{
    return s->experiment_known;
}

bool knob_nothing_applied(const struct snapshot *s)
{
    return !s->applied[0];
}

TEXT_OF(knob_work)
{
    const unsigned work = KNOBS[i].matters_for;
    return work == FOR_TRAIN                            ? "training"
           : work == FOR_LOAD                           ? "serving"
           : (work & FOR_ALL) == FOR_ALL                ? "everything"
           : work & FOR_QUALITY                         ? "speed, answers"
           : !(work & FOR_DECODE) && work & FOR_PREFILL ? "prompts, memory"
           : !(work & (FOR_DECODE | FOR_PREFILL))       ? "memory"
                                                        : "speed";
}

TEXT_OF(knob_flag)
{
    return KNOBS[i].flag ? KNOBS[i].flag : "";
}

TEXT_OF(knob_range_text)
{
    return knob_range((enum knob_id)i, buf, size);
}
