/* scenarios.c - see scenarios.h. */
#include "tui/cli/lib/scenarios.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/config/config.h"

/* ---------------------------------------------------------------- one file */

static enum err_code set_config(struct scenario *s, const char *value, struct err *why)
{
    struct config c;
    if (s->config) return err_set(why, ERR_FORMAT, "expected one config, found a second one: '%s'", value);
    s->config = value;
    return config_parse(&c, value, why);
}

static enum err_code add_workload(struct scenario *s, const char *value, struct err *why)
{
    struct workload w;
    if (s->workloads == SCENARIO_WORKLOADS)
        return err_set(why, ERR_FORMAT, "expected at most %d workloads", SCENARIO_WORKLOADS);
    s->workload[s->workloads++] = value;
    return workload_parse(&w, value, why);
}

static enum err_code set_repetitions(struct scenario *s, const char *value, struct err *why)
{
    int64_t n;
    if (s->repetitions || !str_to_i64(value, &n) || n < 1 || n > SCENARIO_REPETITIONS)
        return err_set(why, ERR_FORMAT, "expected one number of repetitions from 1 to %d, found '%s'",
                       SCENARIO_REPETITIONS, value);
    s->repetitions = (int)n;
    return ERR_OK;
}

/* A line without spaces at its ends; not empty and not a comment. */
static enum err_code read_line(struct scenario *s, char *line, struct err *why)
{
    static const struct {
        const char *key;
        enum err_code (*set)(struct scenario *s, const char *value, struct err *why);
    } KEYS[] = { { "config", set_config }, { "workload", add_workload }, { "repetitions", set_repetitions } };
    const size_t n = strcspn(line, " \t");
    char *value = line + n + strspn(line + n, " \t");
    for (size_t i = 0; i < COUNT_OF(KEYS) && *value; i++)
        if (n == strlen(KEYS[i].key) && !strncmp(line, KEYS[i].key, n)) return KEYS[i].set(s, value, why);
    return err_set(why, ERR_FORMAT,
                   "expected 'config LINE', 'workload WORKLOAD' or 'repetitions N', found '%.80s'", line);
}

static char *trim(char *line)
{
    line += strspn(line, " \t");
    size_t n = strlen(line);
    while (n && strchr(" \t\r", line[n - 1])) n--;
    line[n] = '\0';
    return line;
}

enum err_code scenario_parse(struct scenario *out, char *text, const char *file, struct err *why)
{
    enum err_code rc = ERR_OK;
    char *rest = text;
    int number = 0;
    out->text = text;
    while (rest && !rc) {
        char *line = trim(strsep(&rest, "\n"));
        number++;
        if (!*line || *line == '#') continue;
        rc = read_line(out, line, why);
        if (rc) {
            rc = why->code = ERR_FORMAT;
            err_prefix(why, "%s:%d", file, number);
        }
    }
    if (!rc && !out->workloads)
        rc = err_set(why, ERR_FORMAT, "%s: expected a line 'workload WORKLOAD', found none", file);
    if (!out->config) out->config = "default";
    return rc;
}

/* ---------------------------------------------------------------- folders */

static const char SUFFIX[] = ".conf", SHIPPED[] = "scenarios";

static int is_scenario(const struct dirent *e)
{
    const size_t n = strlen(e->d_name), end = sizeof SUFFIX - 1;
    return n > end && e->d_name[0] != '.' && !strcmp(e->d_name + n - end, SUFFIX);
}

static int is_visible(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

static enum err_code read_scenario(struct scenarios *s, const char *folder, const char *preset,
                                   const char *name, struct err *why)
{
    enum { LIMIT = 1 << 16 };
    struct scenario *more = realloc(s->one, ((size_t)s->n + 1) * sizeof *more);
    if (!more) return err_set(why, ERR_NOMEM, "out of memory for scenarios");
    s->one = more;
    struct scenario *one = &more[s->n++];
    *one = (struct scenario){ .preset = strdup(preset),
                              .name = strndup(name, strlen(name) - (sizeof SUFFIX - 1)) };
    char *path = NULL, *text = NULL;
    size_t n = 0;
    if (!one->preset || !one->name || asprintf(&path, "%s/%s", folder, name) < 0)
        return err_set(why, ERR_NOMEM, "out of memory for scenarios");
    enum err_code rc = file_read(&text, &n, path, LIMIT, why);
    if (!rc && strlen(text) != n) {
        free(text);
        rc = err_set(why, ERR_FORMAT, "%s: expected text, found a byte 0", path);
    } else if (!rc) {
        rc = scenario_parse(one, text, path, why);
    }
    free(path);
    return rc;
}

static void free_names(struct dirent **names, int n)
{
    for (int i = 0; i < n; i++) free(names[i]);
    free(names);
}

static enum err_code read_folder(struct scenarios *s, const char *folder, const char *preset, struct err *why)
{
    struct dirent **names = NULL;
    const int n = scandir(folder, &names, is_scenario, alphasort);
    enum err_code rc = n < 0    ? err_set(why, ERR_IO, "cannot read folder '%s': %m", folder)
                       : n == 0 ? err_set(why, ERR_USAGE, "'%s' has no scenarios: expected files NAME%s",
                                          folder, SUFFIX)
                                : ERR_OK;
    for (int i = 0; i < n && !rc; i++) rc = read_scenario(s, folder, preset, names[i]->d_name, why);
    free_names(names, n);
    return rc;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* The shipped presets: reads all into *s, or appends their names to `list`; the other one is NULL. */
static enum err_code each_shipped(struct scenarios *s, struct str *list, struct err *why)
{
    char *folder = NULL;
    struct dirent **names = NULL;
    enum err_code rc = file_share(&folder, SHIPPED, why);
    const int n = rc ? 0 : scandir(folder, &names, is_visible, alphasort);
    for (int i = 0; i < n && !rc; i++) {
        char *path = NULL;
        if (asprintf(&path, "%s/%s", folder, names[i]->d_name) < 0)
            rc = err_set(why, ERR_NOMEM, "out of memory for scenarios");
        else if (list && is_folder(path))
            str_printf(list, " %s", names[i]->d_name);
        else if (s && is_folder(path))
            rc = read_folder(s, path, names[i]->d_name, why);
        free(path);
    }
    free_names(names, n);
    free(folder);
    return rc;
}

enum err_code scenarios_read(struct scenarios *out, const char *preset, struct err *why)
{
    *out = (struct scenarios){ 0 };
    char *shipped = NULL, *known = NULL;
    if (!strcmp(preset, "all")) return each_shipped(out, NULL, why);
    if (!strchr(preset, '/') && asprintf(&known, "%s/%s", SHIPPED, preset) < 0)
        return err_set(why, ERR_NOMEM, "out of memory for scenarios");
    enum err_code rc = ERR_OK;
    if (known && *preset && *preset != '.' && !file_share(&shipped, known, NULL)) {
        rc = read_folder(out, shipped, preset, why);
    } else if (is_folder(preset)) {
        char *whole = realpath(preset, NULL);
        rc = whole ? read_folder(out, preset, path_file_name(whole), why)
                   : err_set(why, ERR_IO, "cannot read folder '%s': %m", preset);
        free(whole);
    } else {
        struct str list = { 0 };
        each_shipped(NULL, &list, NULL);
        rc = err_set(why, ERR_USAGE,
                     "--preset %s: no such preset or folder; expected a folder, or one of:%s all", preset,
                     str_text(&list));
        str_free(&list);
    }
    free(shipped);
    free(known);
    return rc;
}

void scenarios_free(struct scenarios *s)
{
    for (int i = 0; i < s->n; i++) {
        free(s->one[i].preset);
        free(s->one[i].name);
        free(s->one[i].text);
    }
    free(s->one);
    *s = (struct scenarios){ 0 };
}
