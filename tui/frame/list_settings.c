/* tui/frame/list_settings.c - the cells of the list of settings: every key of a config line, and behind them
 * the settings of other programs that qdyno lacks, so that a search for them finds an answer. */
#include <string.h>

#include "tui/frame/list_cells.h"

/* clang-format off */
/* "gpu layers" finds gpu_layers. */
bool knob_holds(const char *filter, const char *text)
{
    const bool inverse = *filter == '!';
    return knob_text_contains(text, filter + inverse) != inverse;
}

int knob_count(const struct snapshot *s UNUSED)
{
    return KNOB_COUNT + (int)knob_absent_count();
}

/* The setting of a row that qdyno lacks; NULL: the row is a key. */
const struct knob_name *knob_row_absent(int i)
{
    return i < KNOB_COUNT ? NULL : knob_absent((size_t)(i - KNOB_COUNT));
}

TEXT_CELL(knob_key, i < KNOB_COUNT ? KNOBS[i].key : knob_row_absent(i)->name)
STYLE_CELL(knob_key_style, i < KNOB_COUNT ? ROLE_TEXT | STYLE_BOLD : (unsigned)ROLE_DIM)

TEXT_OF(knob_other_names)
{
    return i < KNOB_COUNT ? knob_names_text((enum knob_id)i, buf, size) : knob_row_absent(i)->program;
}

TEXT_CELL(knob_effect_text, i < KNOB_COUNT ? knob_effect(s, (enum knob_id)i, buf, size) : "-")

TEXT_OF(knob_default)
{
    if (i >= KNOB_COUNT) return "-";
    return *KNOBS[i].otherwise ? KNOBS[i].otherwise : "-";
}

TEXT_OF(knob_in_use)
{
    if (i >= KNOB_COUNT) return "-";
    knob_applied(s, (enum knob_id)i, buf, size);
    return *buf ? buf : "-";
}

TEXT_OF(knob_arm_a)
{
    const char *v = i < KNOB_COUNT ? knob_arm(s, 0, (enum knob_id)i) : "";
    return *v ? v : "-";
}

TEXT_OF(knob_arm_b)
{
    const char *v = i < KNOB_COUNT ? knob_arm(s, 1, (enum knob_id)i) : "";
    return *v ? v : "-";
}

static bool knob_differs(const struct snapshot *s, int i)
{
    return i < KNOB_COUNT && strcmp(knob_arm(s, 0, (enum knob_id)i), knob_arm(s, 1, (enum knob_id)i)) != 0;
}

STYLE_CELL(knob_arm_b_style, knob_differs(s, i) ? ROLE_TEXT | STYLE_BOLD : (unsigned)ROLE_TEXT)
TEXT_CELL(knob_difference, knob_differs(s, i) ? "≠" : "")
STYLE_CELL(knob_difference_style, ROLE_KEY)

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
    if (i >= KNOB_COUNT) return "not in qdyno";
    const unsigned work = KNOBS[i].matters_for;
    return work == FOR_TRAIN                            ? "training"
           : work == FOR_LOAD                           ? "serving"
           : (work & FOR_ALL) == FOR_ALL                ? "everything"
           : work & FOR_QUALITY                         ? "speed, answers"
           : !(work & FOR_DECODE) && work & FOR_PREFILL ? "prompts, memory"
           : !(work & (FOR_DECODE | FOR_PREFILL))       ? "memory"
                                                        : "speed";
}

TEXT_CELL(knob_flag, i < KNOB_COUNT && KNOBS[i].flag ? KNOBS[i].flag : "")

TEXT_OF(knob_range_text)
{
    return i < KNOB_COUNT ? knob_range((enum knob_id)i, buf, size) : knob_row_absent(i)->instead;
}
/* clang-format on */
