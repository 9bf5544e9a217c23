/* tui/dashboard/preferences.h - theme and mouse, saved by key , in $XDG_CONFIG_HOME/qdyno/dashboard.conf as
 * lines "key = value". Nothing is saved automatically. Internal to the dashboard. */
#ifndef QDYNO_TUI_PREFERENCES_H
#define QDYNO_TUI_PREFERENCES_H

#include "base/base.h"

struct preferences {
    char *theme; /* name or path; owned when filled by preferences_read() */
    bool mouse;
};
/* Without a file, *out holds the defaults. Call preferences_done() in any case. Errors: ERR_IO, ERR_NOMEM;
 * ERR_FORMAT names the line and what was expected. */
enum err_code preferences_read(struct preferences *out, struct err *why);
void preferences_done(struct preferences *s);
/* Replace the whole file. *path: where it is; owned by the caller, NULL on error. Errors: ERR_IO, ERR_NOMEM.
 */
enum err_code preferences_write(char **path, const struct preferences *s, struct err *why);

#endif
