/* common.c - see common.h. */
#include "tui/cli/common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const GOAL_NAMES[] = { "balanced", "speed", "quality", "memory", "energy", NULL };
const char RANDOM_WEIGHTS[] = "random weights: quality figures mean nothing";

int exit_status_of(enum err_code code)
{
    static const unsigned char STATUS[] = {
        [ERR_OK] = EXIT_DONE,          [ERR_NOMEM] = EXIT_NO_FIT,          [ERR_IO] = EXIT_BAD_INPUT,
        [ERR_USAGE] = EXIT_USAGE,      [ERR_FORMAT] = EXIT_BAD_INPUT,      [ERR_FIT] = EXIT_NO_FIT,
        [ERR_ABSENT] = EXIT_NO_DEVICE, [ERR_CANCELLED] = EXIT_INTERRUPTED, [ERR_INTERNAL] = EXIT_INTERNAL,
    };
    return (size_t)code < COUNT_OF(STATUS) ? STATUS[code] : EXIT_INTERNAL;
}

int exit_status_of_verdict(enum verdict v)
{
    switch (v) {
    case VERDICT_BETTER:
    case VERDICT_EQUIVALENT:
    case VERDICT_NEGLIGIBLE: return EXIT_DONE;
    case VERDICT_WORSE: return EXIT_WORSE;
    case VERDICT_INVALID: return EXIT_INVALID;
    case VERDICT_NONE:
    case VERDICT_INCONCLUSIVE: break;
    }
    return EXIT_INCONCLUSIVE;
}

int cli_fail(const struct cli_args *a, const struct err *why)
{
    fflush(stdout);
    fprintf(stderr, "qdyno%s%s: %s\n", a && a->command ? " " : "", a && a->command ? a->command->name : "",
            why->message);
    return exit_status_of(why->code);
}

int cli_print(const struct cli_global *g, const struct cli_args *a, const struct table *t, int status)
{
    struct err why = { 0 };
    if (table_write(t, g->output, stdout, &why)) return cli_fail(a, &why);
    return status;
}

bool cli_is_interrupted(const struct cli_global *g)
{
    return g->interrupted && *g->interrupted;
}

enum err_code cli_model(char **path, const struct cli_args *a, struct err *why)
{
    const char *given = args_text(a, "-m", NULL);
    *path = NULL;
    if (given) {
        *path = strdup(given);
        return *path ? ERR_OK : err_set(why, ERR_NOMEM, "no memory for a path");
    }
    enum err_code rc = file_share(path, "models/bundled.gguf", why);
    return rc ? err_prefix(why, "no -m given, and the bundled model") : ERR_OK;
}

enum err_code cli_config_model(char **path, const struct cli_args *a, const struct config *c, struct err *why)
{
    const char *own = config_text(c, KNOB_MODEL);
    if (!*own) return cli_model(path, a, why);
    *path = strdup(own);
    return *path ? ERR_OK : err_set(why, ERR_NOMEM, "no memory for a path");
}

/* Knob flags never override what the line itself says. */
static enum err_code set_default(struct config *c, const struct config *line, enum knob_id id,
                                 const char *value, struct err *why)
{
    return line->given[id] ? ERR_OK : config_set(c, KNOBS[id].key, value, why);
}

static enum err_code read_applied(struct config *out, const struct cli_args *a, struct err *why)
{
    struct applied kept;
    char *path = NULL;
    bool found = false;
    enum err_code rc = cli_model(&path, a, why);
    if (!rc) rc = apply_read(&kept, path, &found, why);
    if (!rc && !found)
        rc = err_set(why, ERR_USAGE,
                     "no config is applied to %s: `qdyno tune` or `qdyno apply CONFIG` keeps one",
                     cli_base_name(path));
    if (!rc) *out = kept.config;
    free(path);
    return rc;
}

/* A line, or the two words that stand for one. */
static enum err_code read_config(struct config *out, const struct cli_args *a, const char *line,
                                 struct err *why)
{
    if (line && !strcmp(line, "applied")) return read_applied(out, a, why);
    if (line && *line == '@') return config_file_read(out, line + 1, why);
    return config_parse(out, line ? line : "", why);
}

enum err_code cli_usual_config(struct config *c, const struct cli_global *g, const struct cli_args *a,
                               struct err *why)
{
    struct applied kept;
    struct machine m;
    char *path = NULL;
    bool found = false;
    if (args_has(a, "-C") || a->knob_count) return ERR_OK;
    enum err_code rc = cli_model(&path, a, why);
    if (!rc) rc = apply_read(&kept, path, &found, why);
    free(path);
    if (rc || !found) return rc;
    *c = kept.config;
    const bool elsewhere = *kept.machine && !machine_detect(&m, "", NULL) && strcmp(m.id, kept.machine);
    cli_note(g, "config %s, as applied in %s%s; -C default leaves it out", kept.line, kept.path,
             elsewhere ? " on another machine" : "");
    return ERR_OK;
}

enum err_code cli_config(struct config *out, const struct cli_args *a, const char *line, struct err *why)
{
    enum err_code rc = read_config(out, a, line, why);
    struct config own = *out;
    for (int i = 0; i < a->knob_count && !rc; i++)
        rc = set_default(out, &own, a->knob[i].id, a->knob[i].value, why);
    return rc;
}

/* Value `index` of a comma-separated list; false past its end. */
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

/* Combination number `which` of the grid, applied to one parsed line. */
static enum err_code grid_point(struct config *c, const struct cli_args *a, int which, struct err *why)
{
    struct config own = *c;
    for (int i = 0; i < a->knob_count; i++) {
        char value[CONFIG_VALUE];
        int n = list_length(a->knob[i].value);
        list_item(a->knob[i].value, which % n, value, sizeof value);
        which /= n;
        enum err_code rc = set_default(c, &own, a->knob[i].id, value, why);
        if (rc) return rc;
    }
    return ERR_OK;
}

enum err_code cli_configs(struct config **out, int *n, const struct cli_args *a, struct err *why)
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
    if (points * count > MOST) return err_set(why, ERR_USAGE, "more than %d configs in the grid", MOST);
    *out = calloc((size_t)(points * count), sizeof **out);
    if (!*out) return err_set(why, ERR_NOMEM, "no memory for %lld configs", (long long)points * count);
    for (int l = 0; l < count; l++) {
        for (int p = 0; p < points; p++) {
            struct config *c = &(*out)[*n];
            enum err_code rc = read_config(c, a, lines[l], why);
            if (!rc) rc = grid_point(c, a, p, why);
            if (rc) {
                free(*out);
                *out = NULL;
                return rc;
            }
            /* a line's own value makes several points of the grid the same config: run it once */
            bool twin = false;
            for (int i = 0; i < *n && !twin; i++) {
                char x[2048], y[2048];
                twin = !strcmp(config_line(&(*out)[i], x, sizeof x), config_line(c, y, sizeof y));
            }
            *n += !twin;
        }
    }
    return ERR_OK;
}

enum err_code cli_limits(int64_t *memory_bytes, double *kld, const struct cli_args *a, struct err *why)
{
    char copy[128], *rest = NULL;
    const char *given = args_text(a, "--limit", "");
    snprintf(copy, sizeof copy, "%s", given);
    for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
        const bool is_memory = str_starts(word, "memory=") && str_to_bytes(word + 7, memory_bytes) &&
                               *memory_bytes > 0;
        const bool is_kld = str_starts(word, "kld=") && str_to_double(word + 4, kld) && *kld > 0;
        if (!is_memory && !is_kld)
            return err_set(why, ERR_USAGE,
                           "--limit %s: want memory=BYTES and kld=NATS, e.g. memory=8G,kld=0.05", given);
    }
    return ERR_OK;
}

enum err_code cli_metric(const struct metric **out, const struct cli_args *a, struct err *why)
{
    const char *names[METRIC_COUNT], *name = args_text(a, "--metric", NULL);
    size_t n = 0;
    *out = name ? metric_find(name) : NULL;
    if (!name || (*out && (*out)->kind == METRIC_CELL)) return ERR_OK;
    for (int i = METRIC_SENSOR_COUNT; i < METRIC_COUNT; i++) names[n++] = METRICS[i].name;
    const char *near = str_nearest(name, names, n);
    return err_set(why, ERR_USAGE, "--metric %s: not a metric of a cell; %s%s%s", name,
                   near ? "did you mean '" : "e.g. decode_tok_s, prefill_tok_s, ttft_s, peak_rss_bytes",
                   near ? near : "", near ? "'?" : "");
}

void cli_note(const struct cli_global *g, const char *fmt, ...)
{
    if (g->quiet) return;
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fprintf(stderr, "%s\n", text);
}

static void probe_progress(void *ctx, const char *what, double done)
{
    progress_tell(ctx, &(struct progress_figures){ .done = done, .rate = NAN, .left_s = NAN },
                  "probing the machine %.0f %%: %s", done * 100, what);
}

enum err_code cli_machine(const struct cli_global *g, enum cli_probe probe, struct machine *m,
                          struct machine_ceilings *c, bool *known, struct err *why)
{
    *known = false;
    enum err_code rc = machine_detect(m, "", why);
    if (rc) return rc;
    /* a cache that cannot be read is measured again, not an obstacle */
    if (probe != PROBE_FRESH && ceilings_load(c, m->id, known, NULL)) *known = false;
    if (*known || probe == PROBE_CACHED) return ERR_OK;
    uint32_t isa;
    struct progress p;
    struct machine_ceilings before;
    bool kept;
    progress_init(&p, g);
    if ((rc = isa_usable(&isa, why))) return rc;
    rc = machine_probe(c, isa, 0, probe_progress, &p, why);
    progress_clear(&p);
    if (rc) return rc;
    if (!ceilings_load(&before, m->id, &kept, NULL) && kept) {
        c->kernels = before.kernels; /* as long to make */
        c->opencl_count = before.opencl_count;
        memcpy(c->opencl, before.opencl, sizeof c->opencl);
    }
    *known = true;
    if (isa != isa_detect()) return ERR_OK; /* QDYNO_ISA hid a part of the machine: nothing to remember */
    struct err save = { 0 };
    if (ceilings_save(c, m->id, &save))
        log_write(&g->log, LOG_WARN, "the probe could not be kept: %s", save.message);
    return ERR_OK;
}

enum err_code cli_text(char **text, size_t *n, const struct cli_args *a, struct err *why)
{
    enum { LIMIT = 1 << 30 };
    const char *given = args_text(a, "-p", NULL), *file = args_text(a, "-f", NULL);
    *text = NULL;
    if (!given == !file)
        return err_set(why, ERR_USAGE, "%s",
                       given ? "-p and -f exclude each other" : "want -p TEXT or -f FILE");
    if (file) return file_read(text, n, !strcmp(file, "-") ? "/dev/stdin" : file, LIMIT, why);
    *text = strdup(given);
    *n = strlen(given);
    return *text ? ERR_OK : err_set(why, ERR_NOMEM, "no memory for the text");
}

const char *cli_gpu_name(const struct gpu_identity *u, char *buf, size_t size)
{
    const bool named = !strncasecmp(u->name, u->vendor, strlen(u->vendor));
    snprintf(buf, size, "%s%s%s", named ? "" : u->vendor, named ? "" : " ", u->name);
    return buf;
}

const char *cli_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}
