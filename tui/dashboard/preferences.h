/* tui/dashboard/preferences.h - what the dashboard remembers from one time to the next: only what a person
 * asked it to keep, in $XDG_CONFIG_HOME/qdyno/dashboard.conf, as lines "key = value" that can be edited. */
#ifndef QDYNO_TUI_SETTINGS_H
#define QDYNO_TUI_SETTINGS_H

#include "base/base.h"

struct preferences {
    char *theme; /* name or path; owned by what was read */
    bool mouse;
};
/* The defaults where there is no file. Errors: ERR_IO, ERR_NOMEM; ERR_FORMAT names the line and what it
 * should be. preferences_done in any case. */
enum err_code preferences_read(struct preferences *out, struct err *why);
void preferences_done(struct preferences *s);
/* Replaces the file as a whole; *path: where it is, owned (NULL on error). */
enum err_code preferences_write(char **path, const struct preferences *s, struct err *why);

#endif
