/* tui/dashboard/preferences.c - reads and writes the file of preferences. */
#include "tui/dashboard/preferences.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *preferences_path(struct err *why)
{
    char *folder;
    struct str path = { 0 };
    if (file_place(&folder, FILE_CONFIG, why)) return NULL;
    str_printf(&path, "%s/dashboard.conf", folder);
    free(folder);
    return str_take(&path);
}

static char *preferences_trim(char *text)
{
    text += strspn(text, " \t");
    size_t n = strlen(text);
    while (n && strchr(" \t\r", text[n - 1])) n--;
    text[n] = '\0';
    return text;
}

/* Apply one line to *s. Returns what was expected if the line is wrong, else NULL. */
static const char *preferences_read_line(struct preferences *s, char *line)
{
    line[strcspn(line, "#")] = '\0';
    char *key = preferences_trim(line), *equals = strchr(key, '=');
    if (!*key) return NULL;
    if (!equals) return "expected key = value";
    *equals = '\0';
    const char *value = preferences_trim(equals + 1);
    key = preferences_trim(key);
    if (!strcmp(key, "mouse")) {
        if (strcmp(value, "on") && strcmp(value, "off")) return "expected mouse = on or off";
        s->mouse = !strcmp(value, "on");
        return NULL;
    }
    if (strcmp(key, "theme")) return "expected theme or mouse";
    if (!*value) return "expected the name of a theme, or a path";
    free(s->theme);
    s->theme = strdup(value);
    return NULL;
}

enum err_code preferences_read(struct preferences *out, struct err *why)
{
    enum { LIMIT = 1 << 16 };
    struct err ignored; /* without a home folder there is no file */
    *out = (struct preferences){ .theme = strdup("default"), .mouse = true };
    char *path = preferences_path(&ignored), *text = NULL;
    enum err_code rc = out->theme ? ERR_OK : err_set(why, ERR_NOMEM, "not enough memory for the preferences");
    if (!rc && path && !access(path, F_OK)) rc = file_read(&text, NULL, path, LIMIT, why);
    int number = 0;
    for (char *line = text, *next; !rc && line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        number++;
        const char *wrong = preferences_read_line(out, line);
        if (wrong) rc = err_set(why, ERR_FORMAT, "'%s', line %d: %s", path, number, wrong);
    }
    if (!rc && !out->theme) rc = err_set(why, ERR_NOMEM, "not enough memory for the preferences");
    free(text);
    free(path);
    return rc;
}

void preferences_done(struct preferences *s)
{
    free(s->theme);
    s->theme = NULL;
}

enum err_code preferences_write(char **path, const struct preferences *s, struct err *why)
{
    struct atomic_file f = { 0 };
    *path = preferences_path(why);
    if (!*path) return why ? why->code : ERR_IO;
    enum err_code rc = atomic_file_open(&f, *path, why);
    if (!rc) {
        fprintf(f.stream, "# written by the dashboard's key ,\ntheme = %s\nmouse = %s\n", s->theme,
                s->mouse ? "on" : "off");
        rc = atomic_file_commit(&f, why);
    }
    if (rc) {
        free(*path);
        *path = NULL;
    }
    return rc;
}
