/* command_compare_configs.c - see command_compare_configs.h. */
#include "tui/cli/command_compare_configs.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor/advise/advise.h"
#include "advisor/experiment/experiment.h"

/* ---------------------------------------------------------------- what was compared */

static const char *shown(const struct result *r)
{
    return *r->config ? r->config : "default";
}

static bool is_pair(const struct compared *c)
{
    return c->before && c->after;
}

static bool configs_differ(const struct compared *c)
{
    return strcmp(shown(c->before), shown(c->after)) != 0;
}

static bool same_configs(const struct compared *a, const struct compared *b)
{
    return !strcmp(shown(a->before), shown(b->before)) && !strcmp(shown(a->after), shown(b->after));
}

static int pairs_count(const struct compared *rows, int n)
{
    int pairs = 0;
    for (int i = 0; i < n; i++) pairs += is_pair(&rows[i]);
    return pairs;
}

/* Names the configs of the pair, and its rows where other rows have other configs. */
static void put_pair_configs(struct table *t, const struct results *before, const struct results *after,
                             const struct compared *rows, int n, int at)
{
    struct str numbers = { 0 };
    int alike = 0, seen = 0;
    for (int i = 0; i < n; i++) alike += is_pair(&rows[i]) && same_configs(&rows[i], &rows[at]);
    for (int i = 0; i < n; i++)
        if (is_pair(&rows[i]) && same_configs(&rows[i], &rows[at]))
            str_printf(&numbers, "%s%d", !seen++ ? "" : seen == alike ? " and " : ", ", i + 1);
    if (alike == n)
        table_headline(t, "the configs differ: %s in run %lld, %s in run %lld", shown(rows[at].before),
                       (long long)before->run.id, shown(rows[at].after), (long long)after->run.id);
    else
        table_headline(t, "row%s %s compare%s different configs: %s in run %lld, %s in run %lld",
                       str_plural(alike), str_text(&numbers), alike == 1 ? "s" : "", shown(rows[at].before),
                       (long long)before->run.id, shown(rows[at].after), (long long)after->run.id);
    str_free(&numbers);
}

static bool models_differ(const struct results *before, const struct results *after)
{
    return *before->run.model_sha256 && *after->run.model_sha256 &&
           strcmp(before->run.model_sha256, after->run.model_sha256);
}

void compare_put_configs(struct table *t, const struct results *before, const struct results *after,
                         const struct compared *rows, int n)
{
    for (int i = 0; i < n; i++) {
        bool named = !is_pair(&rows[i]) || !configs_differ(&rows[i]);
        for (int k = 0; k < i && !named; k++) named = is_pair(&rows[k]) && same_configs(&rows[k], &rows[i]);
        if (!named) put_pair_configs(t, before, after, rows, n, i);
    }
    if (!pairs_count(rows, n) && before->n && after->n) {
        const char *a = shown(&before->result[0]), *b = shown(&after->result[0]);
        if (strcmp(a, b))
            table_headline(t, "the configs differ: %s in run %lld, %s in run %lld", a,
                           (long long)before->run.id, b, (long long)after->run.id);
    }
    if (models_differ(before, after))
        table_headline(t, "the models differ: %s in run %lld, %s in run %lld", before->run.model_name,
                       (long long)before->run.id, after->run.model_name, (long long)after->run.id);
}

void compare_note_nothing(struct table *t, const struct results *before, const struct results *after,
                          const struct compared *rows, int n)
{
    if (!before->n || !after->n) {
        table_note(t, "nothing to compare: run %lld has no results",
                   (long long)(before->n ? after : before)->run.id);
    } else if (pairs_count(rows, n)) {
        table_note(t, "nothing to compare: no metric has values in both runs; choose one that both measured "
                      "with --metric");
    } else {
        const char *a = before->result[0].workload, *b = after->result[0].workload;
        table_note(t,
                   "nothing to compare: no workload of run %lld (%s) is the same work as one of run %lld "
                   "(%s)%s",
                   (long long)before->run.id, a, (long long)after->run.id, b,
                   !strcmp(a, b) && models_differ(before, after)
                       ? ": models with different vocabularies get different prompts"
                       : "");
    }
}

/* ---------------------------------------------------------------- the command that decides */

/* db_model_list callback: the path of a model, if the file is still there. */
struct model_search {
    const char *sha256;
    char path[4096];
};

static enum err_code model_take(void *ctx, const char *sha256, const char *path, struct err *why)
{
    struct model_search *s = ctx;
    (void)why;
    if (*sha256 && !strcmp(sha256, s->sha256) && !access(path, R_OK))
        snprintf(s->path, sizeof s->path, "%s", path);
    return ERR_OK;
}

/* One side of the A/B: a config line without model=, and where its model is. */
struct side {
    char line[CONFIG_LINE];
    struct config config;
    struct model_search model;
    char obstacle[192]; /* why it cannot be measured again; "": it can */
};

static void side_find(struct side *s, struct db *d, const struct results *of, const struct result *r)
{
    const json_t *models = of->capsule ? json_object_get(of->capsule, "model") : NULL,
                 *arm = r->arm >= 0 ? json_array_get(models, (size_t)r->arm) : NULL;
    const char *path = json_get_str(arm, "path", "");
    s->model.sha256 = json_get_str(arm, "sha256", of->run.model_sha256);
    s->model.path[0] = s->obstacle[0] = '\0';
    if (config_parse(&s->config, shown(r), NULL)) {
        snprintf(s->obstacle, sizeof s->obstacle, "this version cannot read the config line '%.80s'",
                 shown(r));
        return;
    }
    if (*path && !access(path, R_OK))
        snprintf(s->model.path, sizeof s->model.path, "%s", path);
    else if (*s->model.sha256 && db_model_list(d, model_take, &s->model, NULL))
        s->model.path[0] = '\0';
    if (!*s->model.path && *s->model.sha256)
        snprintf(s->obstacle, sizeof s->obstacle, "the model file %.100s is not where it was",
                 json_get_str(arm, "name", of->run.model_name));
    config_unset(&s->config, KNOB_MODEL); /* its path began in the folder of that run */
    config_line(&s->config, s->line, sizeof s->line);
}

/* The pair to measure: one that differs in its config rather than one that does not. Without a pair, the
 * first results, if the workload can be given to both. */
static struct compared pair_choose(const struct compared *rows, int n, const struct results *before,
                                   const struct results *after)
{
    const struct compared *pair = NULL;
    for (int i = n - 1; i >= 0; i--)
        if (is_pair(&rows[i]) && (!pair || configs_differ(&rows[i]) || !configs_differ(pair)))
            pair = &rows[i];
    if (pair) return *pair;
    if (!before->n || !after->n || models_differ(before, after)) return (struct compared){ .before = NULL };
    return (struct compared){ .before = &before->result[0], .after = &after->result[0] };
}

static void words_append(struct str *s, const char *flag, const char *word)
{
    str_append(s, flag);
    word_append(s, word);
}

static void put_command(struct table *t, struct side side[2], const char *workload)
{
    struct str s = { 0 };
    const struct config_on arms[2] = { { &side[0].config, side[0].model.path },
                                       { &side[1].config, side[1].model.path } };
    const bool same = !strcmp(side[0].model.path, side[1].model.path) && !strcmp(side[0].line, side[1].line);
    bool known = true;
    str_append(&s, same ? "next: qdyno bench" : "next: qdyno ab");
    if (same) {
        if (*side[0].model.path) words_append(&s, " -m ", side[0].model.path);
        words_append(&s, " -C ", side[0].line);
    } else {
        known = !*side[0].model.path == !*side[1].model.path && cli_append_pair(&s, arms);
    }
    words_append(&s, " -w ", workload);
    if (known) {
        table_note(t, "%s",
                   same ? "both runs used one config; the command below measures what it gives now"
                        : "to decide between the two, the command below measures both now, in turn");
        table_next(t, "%s", str_text(&s));
    }
    str_free(&s);
}

void compare_put_next(struct table *t, struct db *d, const struct results *before,
                      const struct results *after, const struct compared *rows, int n)
{
    struct workload w;
    const struct compared pair = pair_choose(rows, n, before, after);
    struct side *side = calloc(2, sizeof *side);
    if (side && pair.before && !workload_parse(&w, pair.before->workload, NULL)) {
        side_find(&side[0], d, before, pair.before);
        side_find(&side[1], d, after, pair.after);
        const char *obstacle = side[*side[0].obstacle ? 0 : 1].obstacle;
        if (*obstacle)
            table_note(t, "no command can measure these configs again: %s", obstacle);
        else
            put_command(t, side, pair.before->workload);
    }
    free(side);
}
