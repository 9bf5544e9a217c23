/* tui/frame/list_cells.h - how the functions of list columns are written, and those that are defined outside
 * of list_columns.c. Internal to tui/frame. */
#ifndef QDYNO_TUI_FRAME_LIST_CELLS_H
#define QDYNO_TUI_FRAME_LIST_CELLS_H

#include "tui/frame/frame.h"

/* clang-format off */
/* Every function of a column takes the same arguments, and most need only some of them. */
#define UNUSED __attribute__((unused))
#define TEXT_OF(name)                                                                                        \
    const char *name(const struct ui *u UNUSED, const struct snapshot *s UNUSED, int i UNUSED,               \
                     char *buf UNUSED, size_t size UNUSED)
#define STYLE_OF(name) unsigned name(const struct ui *u UNUSED, const struct snapshot *s UNUSED, int i UNUSED)
#define VALUE_OF(name) double name(const struct snapshot *s UNUSED, int i)

/* Most of them are one expression: a text of the snapshot; one that is formatted, or copied because it is not
 * kept; a value; a style; the number of items. */
#define TEXT_CELL(name, text)   TEXT_OF(name) { return (text); }
#define PRINT_CELL(name, ...)   TEXT_OF(name) { snprintf(buf, size, __VA_ARGS__); return buf; }
#define COPY_CELL(name, text)   TEXT_OF(name) { return put_text(buf, size, text); }
#define VALUE_CELL(name, value) VALUE_OF(name) { return (value); }
#define STYLE_CELL(name, style) STYLE_OF(name) { return (style); }
#define COUNT_CELL(name, count) int name(const struct snapshot *s UNUSED) { return (count); }
/* clang-format on */

static inline const char *put_text(char *buf, size_t size, const char *text)
{
    snprintf(buf, size, "%s", text);
    return buf;
}

/* ---------------------------------------------------------------- list_candidates.c */

int candidate_count(const struct snapshot *s);
TEXT_OF(candidate_mark);
TEXT_OF(candidate_config);
TEXT_OF(candidate_rate_text);
VALUE_OF(candidate_rate);
TEXT_OF(candidate_memory);
VALUE_OF(candidate_bytes);
TEXT_OF(candidate_loss_text);
VALUE_OF(candidate_loss);
STYLE_OF(candidate_style);
STYLE_OF(candidate_loss_style);
bool candidate_no_interval(const struct snapshot *s);

/* ---------------------------------------------------------------- list_settings.c */

int knob_count(const struct snapshot *s);
bool knob_holds(const char *filter, const char *text);
TEXT_OF(knob_key);
STYLE_OF(knob_key_style);
TEXT_OF(knob_other_names);
TEXT_OF(knob_effect_text);
TEXT_OF(knob_default);
TEXT_OF(knob_in_use);
TEXT_OF(knob_arm_a);
TEXT_OF(knob_arm_b);
TEXT_OF(knob_difference);
TEXT_OF(knob_work);
TEXT_OF(knob_flag);
TEXT_OF(knob_range_text);
STYLE_OF(knob_arm_b_style);
STYLE_OF(knob_difference_style);

/* Columns that are left out: of the arms without or with an experiment, and of what is applied. */
bool knob_no_arms(const struct snapshot *s);
bool knob_some_arms(const struct snapshot *s);
bool knob_nothing_applied(const struct snapshot *s);

#endif
