/* configs.c - the model, the configs and the texts that a command line names. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/run/run.h"
#include "engine/model/model.h"
#include "tui/cli/lib/lib.h"
#include "tui/cli/lib/models.h"

const char *const GOAL_NAMES[] = { "balanced", "speed", "quality", "memory", "energy", NULL };

enum err_code cli_model(char **path, const struct cli_args *a, struct err *why)
{
    const char *given = args_text(a, "-m", NULL);
    *path = NULL;
    if (given) {
        *path = strdup(given);
        return *path ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
    }
    enum err_code rc = file_share(path, "models/bundled.gguf", why);
    return rc ? err_prefix(why, "no -m is given, and the bundled model is missing") : ERR_OK;
}

enum err_code cli_config_model(char **path, const struct cli_args *a, const struct config *c, struct err *why)
{
    const char *own = config_model_file(c, ""); /* a server's name of its model is no file */
    if (!*own) return cli_model(path, a, why);
    *path = strdup(own);
    return *path ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
}

/* Appends the config line of a side in a command whose -m is `model`. */
static bool append_side(struct str *out, const struct config_on *side, const char *file, const char *model)
{
    struct config c = *side->config;
    if (*file) config_unset(&c, KNOB_MODEL); /* else the name that a server gives its model */
    if (*file && strcmp(file, model) && config_set(&c, KNOBS[KNOB_MODEL].key, file, NULL)) return false;
    config_append_line(&c, out);
    return !out->failed;
}

bool cli_append_pair(struct str *out, const struct config_on side[2])
{
    struct str line[2] = { 0 };
    const char *file[2];
    bool ok = true;
    for (int i = 0; i < 2; i++) file[i] = config_model_file(side[i].config, side[i].model);
    const char *model = file[*file[0] ? 0 : 1];
    for (int i = 0; i < 2; i++) ok &= append_side(&line[i], &side[i], file[i], model);
    ok &= strcmp(str_text(&line[0]), str_text(&line[1])) != 0;
    if (ok && *model) {
        str_append(out, " -m ");
        word_append(out, model);
    }
    for (int i = 0; i < 2; i++) {
        if (ok) {
            str_append(out, " ");
            word_append(out, str_text(&line[i]));
        }
        str_free(&line[i]);
    }
    return ok && !out->failed;
}

enum err_code cli_model_open(struct model **out, const struct cli_global *g, const char *path,
                             const struct config *c, int ctx, struct err *why)
{
    const struct model_options o = { .path = path,
                                     .config = c,
                                     .ctx = ctx,
                                     .sequences = 1,
                                     .log = &g->log,
                                     .progress = cli_open_goes_on,
                                     .progress_arg = (void *)g };
    return shapes_model_open(out, &o, why);
}

/* Sets a knob from its flag, unless the config line itself sets it. */
static enum err_code config_set_default(struct config *c, const struct config *line, enum knob_id id,
                                        const char *value, struct err *why)
{
    return line->given[id] ? ERR_OK : config_set(c, KNOBS[id].key, value, why);
}

/* The config that is saved for the model. */
static enum err_code config_read_applied(struct config *out, const struct cli_args *a, struct err *why)
{
    struct applied kept;
    char *path = NULL;
    bool found = false;
    enum err_code rc = cli_model(&path, a, why);
    if (!rc) rc = apply_read(&kept, path, &found, why);
    if (!rc && !found)
        rc = err_set(why, ERR_USAGE,
                     "no config is applied to %s: `qdyno tune` or `qdyno apply CONFIG` saves one",
                     cli_base_name(path));
    if (!rc) *out = kept.config;
    free(path);
    return rc;
}

/* A config line, "applied" or "@FILE". */
static enum err_code config_read(struct config *out, const struct cli_args *a, const char *line,
                                 struct err *why)
{
    if (line && !strcmp(line, "applied")) return config_read_applied(out, a, why);
    enum err_code rc = line && *line == '@' ? config_file_read(out, line + 1, why)
                                            : config_parse(out, line ? line : "", why);
    return rc ? rc : cli_config_resolve(out, why);
}

enum err_code cli_applied_config(struct config *c, const struct cli_global *g, const struct cli_args *a,
                                 struct err *why)
{
    char *path = NULL;
    if (args_has(a, "-C") || a->knob_count) return ERR_OK;
    enum err_code rc = cli_model(&path, a, why);
    if (!rc) rc = cli_applied_config_of(c, g, a, path, why);
    free(path);
    return rc;
}

enum err_code cli_applied_config_of(struct config *c, const struct cli_global *g, const struct cli_args *a,
                                    const char *path, struct err *why)
{
    struct applied kept;
    struct machine m;
    bool found = false;
    if (args_has(a, "-C") || a->knob_count) return ERR_OK;
    const enum err_code rc = apply_read(&kept, path, &found, why);
    if (rc || !found) return rc;
    *c = kept.config;
    const bool elsewhere = *kept.machine && !machine_detect(&m, "", NULL) && strcmp(m.id, kept.machine);
    cli_note(g, "using config %s, as applied in %s%s; -C default ignores it", kept.line, kept.path,
             elsewhere ? " (on another machine)" : "");
    if (*kept.load && strcmp(kept.line, "default")) { /* default cannot be compared with itself */
        struct str command = { 0 };
        advice_confirm_command(&command, path, "default", kept.line, CONFIRM_WORKLOAD);
        cli_note(g, "%s was found on a busy machine (%s). To check it on a quiet one: %s", kept.line,
                 kept.load, str_text(&command));
        str_free(&command);
    }
    return ERR_OK;
}

enum err_code cli_config(struct config *out, const struct cli_args *a, const char *line, struct err *why)
{
    enum err_code rc = config_read(out, a, line, why);
    struct config own = *out;
    for (int i = 0; i < a->knob_count && !rc; i++)
        rc = config_set_default(out, &own, a->knob[i].id, a->knob[i].value, why);
    return rc || !a->knob_count ? rc : config_check(out, why);
}

/* Copies value number `index` of a comma-separated list into buf. Returns false past the end of the list. */
static bool list_item(const char *list, int index, char *buf, size_t size)
{
    for (; index > 0; index--) {
        list = strchr(list, ',');
        if (!list) return false;
        list++;
    }
    snprintf(buf, size, "%.*s", (int)strcspn(list, ","), list);
    return true;
}

static int list_length(const char *list)
{
    int n = 1;
    for (; *list; list++) n += *list == ',';
    return n;
}

/* Applies combination number `which` of the knob flags to a parsed config line. `which` is a number in a
 * mixed base: its digit i selects the value of knob flag i. */
static enum err_code grid_apply(struct config *c, const struct cli_args *a, int which, struct err *why)
{
    struct config own = *c;
    for (int i = 0; i < a->knob_count; i++) {
        char value[CONFIG_VALUE];
        int n = list_length(a->knob[i].value);
        list_item(a->knob[i].value, which % n, value, sizeof value);
        which /= n;
        enum err_code rc = config_set_default(c, &own, a->knob[i].id, value, why);
        if (rc) return rc;
    }
    return a->knob_count ? config_check(c, why) : ERR_OK;
}

enum err_code cli_config_grid(struct config **out, int *n, const struct cli_args *a, struct err *why)
{
    enum { MOST = 4096 };
    const char *lines[ARGS_GIVEN] = { "" };
    int count = args_all(a, "-C", lines, ARGS_GIVEN);
    int64_t points = 1;
    if (!count) count = 1;
    for (int i = 0; i < a->knob_count; i++)
        points = MIN(points * list_length(a->knob[i].value), (int64_t)MOST + 1);
    *out = NULL;
    *n = 0;
    if (points * count > MOST)
        return err_set(why, ERR_USAGE, "the grid has more than %d configs: give fewer values", MOST);
    *out = calloc((size_t)(points * count), sizeof **out);
    if (!*out) return err_set(why, ERR_NOMEM, "out of memory for %lld configs", (long long)points * count);
    for (int l = 0; l < count; l++) {
        for (int p = 0; p < points; p++) {
            struct config *c = &(*out)[*n];
            enum err_code rc = config_read(c, a, lines[l], why);
            if (!rc) rc = grid_apply(c, a, p, why);
            if (rc) {
                free(*out);
                *out = NULL;
                return rc;
            }
            /* A value set in the line itself makes several grid points equal: run such a config once. */
            bool twin = false;
            for (int i = 0; i < *n && !twin; i++) twin = config_same(&(*out)[i], c);
            *n += !twin;
        }
    }
    return ERR_OK;
}

void cli_note_text(struct table *t, const char *model, const char *text_sha256)
{
    if (!quality_text_is_bundled(text_sha256) || model_is_bundled(model)) return;
    struct str word = { 0 };
    word_append(&word, model);
    table_note(
        t,
        "quality: measured on the bundled stories, which are simple English for children; to measure this "
        "model on a text of yours: qdyno eval -m %s -f TEXT --set-text",
        str_text(&word));
    str_free(&word);
}

enum err_code cli_quality_text(char **path, const struct cli_global *g, const char *model, struct err *why)
{
    struct db *d = NULL;
    char text[4096];
    *path = NULL;
    enum err_code rc = db_open(&d, g->db_path, why);
    if (!rc) rc = quality_text_path(text, sizeof text, d, model, why);
    db_close(d);
    if (!rc && !(*path = strdup(text))) rc = err_set(why, ERR_NOMEM, "out of memory");
    return rc;
}

enum err_code cli_limits(int64_t *memory_bytes, double *kld, double *accuracy, const struct cli_args *a,
                         struct err *why)
{
    return limits_parse(args_text(a, "--limit", ""), memory_bytes, kld, accuracy, why);
}

enum err_code cli_metric(const struct metric **out, const struct cli_args *a, struct err *why)
{
    const char *names[METRIC_COUNT], *name = args_text(a, "--metric", NULL);
    size_t n = 0;
    *out = name ? metric_find(name) : NULL;
    if (!name || (*out && (*out)->kind == METRIC_CELL)) return ERR_OK;
    for (int i = METRIC_SENSOR_COUNT; i < METRIC_COUNT; i++) names[n++] = METRICS[i].name;
    const char *near = str_nearest(name, names, n);
    return err_set(why, ERR_USAGE, "--metric %s: not a metric of a run; %s%s%s", name,
                   near ? "did you mean '"
                        : "expected e.g. decode_tok_s, prefill_tok_s, ttft_s, peak_rss_bytes",
                   near ? near : "", near ? "'?" : "");
}

enum err_code cli_text(char **text, size_t *n, const struct cli_args *a, struct err *why)
{
    enum { LIMIT = 1 << 30 };
    const char *given = args_text(a, "-p", NULL), *file = args_text(a, "-f", NULL);
    *text = NULL;
    if (!given == !file)
        return err_set(why, ERR_USAGE, "%s",
                       given ? "-p and -f exclude each other: give one of them"
                             : "expected -p TEXT or -f FILE");
    if (file) return file_read(text, n, !strcmp(file, "-") ? "/dev/stdin" : file, LIMIT, why);
    *text = strdup(given);
    *n = strlen(given);
    return *text ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
}

const char *cli_base_name(const char *path)
{
    return path_file_name(path);
}

enum err_code cli_requantize(struct config *c, const struct cli_args *a, struct err *why)
{
    bool recipe = false;
    for (int k = KNOB_METHOD; k <= KNOB_TENSORS; k++) recipe |= c->given[k];
    if (!recipe || !args_has(a, "--requantize")) return ERR_OK;
    return config_set(c, KNOBS[KNOB_REQUANTIZE].key, "on", why);
}
