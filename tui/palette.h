/* tui/palette.h - everything the program can do, found by typing a few letters of it.
 *
 * Three kinds of things: what keys do here, settings of a config line, and commands for a shell. Their rows
 * are the tables KEYS, KNOBS and COMMANDS; the palette only searches them. Pure functions. */
#ifndef QDYNO_TUI_PALETTE_H
#define QDYNO_TUI_PALETTE_H

#include "engine/engine.h"
#include "tui/keys.h"

/* A command of the shell, as the command line's own table has it; borrowed. */
struct palette_command {
    const char *name, *arguments, *help;
};

enum palette_kind { PALETTE_KEY, PALETTE_SETTING, PALETTE_COMMAND };
struct palette_entry {
    enum palette_kind kind;
    const char *name, *help;
    const struct key_binding *key;         /* PALETTE_KEY */
    const struct knob *knob;               /* PALETTE_SETTING */
    const struct palette_command *command; /* PALETTE_COMMAND */
    int score;
};

/* How well `text` is a shortened form of `name`: its letters in order, better at starts of words and side by
 * side; -1: they are not all there. Case does not count; "" fits everything with 0. */
int palette_score(const char *text, const char *name);

/* What fits, the best first, at most `max`; entries that fit equally stay in the order of their tables.
 * Returns the count. */
int palette_find(const char *text, const struct palette_command *commands, int command_count,
                 struct palette_entry *out, int max);

#endif
