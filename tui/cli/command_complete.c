/* qdyno complete LINE: what may follow on a command line, for the completion of bash, zsh and fish. The
 * scripts of `qdyno help --bash` and its likes only print what this command says, so that formats, config
 * keys and runs are never typed into a second list. */
#include <stdlib.h>
#include <string.h>

#include "advisor/models/models.h"
#include "engine/chat/chat.h"
#include "tui/cli/commands.h"
#include "tui/forms/forms.h"

/* The line that asks the shell to complete names of files, too. */
#define FILES_MARK ":files"

enum { RUNS_SHOWN = 30, WORDS_MAX = 256 };

struct completion {
    const struct cli_global *g;
    const struct command *command; /* NULL: none is named yet */
    const char *word;              /* the word to complete; "" */
    const char *prev;              /* the word before it; "" */
    struct str *out;
};

/* A candidate that begins with the word, with an explanation on the same line. */
static void offer(const struct completion *c, const char *head, const char *text, const char *about)
{
    struct str whole = { 0 };
    str_printf(&whole, "%s%s", head, text);
    if (str_starts(str_text(&whole), c->word)) str_printf(c->out, "%s\t%s\n", str_text(&whole), about);
    str_free(&whole);
}

static void offer_files(const struct completion *c)
{
    str_append(c->out, FILES_MARK "\n");
}

static void offer_commands(const struct completion *c)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (!COMMANDS[i].hidden) offer(c, "", COMMANDS[i].name, COMMANDS[i].help);
}

static void offer_flags(const struct completion *c, const struct cli_flag *flags)
{
    for (; flags && flags->name; flags++) {
        offer(c, "", flags->name, flags->help);
        if (flags->alias) offer(c, "", flags->alias, flags->help);
    }
}

static void offer_knob_flags(const struct completion *c)
{
    char buf[KNOB_SPELLING];
    for (int k = 0; k < KNOB_COUNT; k++)
        for (int s = 0; s < KNOB_SPELLINGS; s++) {
            const char *word = knob_spelling(c->command, (enum knob_id)k, s, buf);
            if (word) offer(c, "", word, KNOBS[k].help);
        }
}

static void offer_recipes(const struct completion *c, const char *head)
{
    struct recipe_list *r = calloc(1, sizeof *r);
    if (!r) return;
    recipe_list_make(r, NULL);
    for (int i = 0; i < r->count; i++) offer(c, head, r->row[i].name, r->row[i].help ? r->row[i].help : "");
    free(r);
}

/* head: the part of the word before the value. */
static void offer_knob_values(const struct completion *c, const char *head, int knob)
{
    enum { NAMES = 128 };
    const char *names[NAMES];
    const size_t n = MIN(knob_choices((enum knob_id)knob, names, NAMES), (size_t)NAMES);
    for (size_t i = 0; i < n; i++) offer(c, head, names[i], KNOBS[knob].help);
}

/* A config line: recipes, keys, and the values of a key, after the last comma. */
static void offer_config(const struct completion *c)
{
    char head[512] = "";
    const char *comma = strrchr(c->word, ','), *last = comma ? comma + 1 : c->word;
    const char *equals = strchr(last, '=');
    snprintf(head, sizeof head, "%.*s", (int)((equals ? equals + 1 : last) - c->word), c->word);
    if (equals) {
        for (int k = 0; k < KNOB_COUNT; k++)
            if (strlen(KNOBS[k].key) == (size_t)(equals - last) && str_starts(last, KNOBS[k].key))
                offer_knob_values(c, head, k);
        return;
    }
    if (!comma) offer(c, head, "default", "the file as it is, without settings");
    offer_recipes(c, head);
    for (int k = 0; k < KNOB_COUNT; k++) {
        char key[48];
        snprintf(key, sizeof key, "%s=", KNOBS[k].key);
        offer(c, head, key, KNOBS[k].help);
    }
}

static void offer_workloads(const struct completion *c)
{
    for (const struct word_row *w = WORKLOADS; w->text; w++) offer(c, "", w->text, w->about);
}

static void offer_templates(const struct completion *c)
{
    for (const struct chat_template_row *row = CHAT_TEMPLATES; row->name; row++)
        offer(c, "", row->name, row->models);
    offer_files(c);
}

static void offer_metrics(const struct completion *c)
{
    for (int m = METRIC_SENSOR_COUNT; m < METRIC_COUNT; m++) offer(c, "", METRICS[m].name, METRICS[m].help);
}

/* The newest runs. Without a database there are none; nothing is created. */
static void offer_runs(const struct completion *c)
{
    struct db *d = NULL;
    struct run_row *rows = NULL;
    int n = 0;
    struct err why;
    if (!db_open_reader(&d, c->g->db_path, 100, &why)) db_run_list(d, NULL, RUNS_SHOWN, &rows, &n, &why);
    for (int i = 0; i < n; i++) {
        char id[24], about[400];
        snprintf(id, sizeof id, "%lld", (long long)rows[i].id);
        snprintf(about, sizeof about, "%s %.100s %.60s %s", rows[i].kind, rows[i].label, rows[i].workload,
                 *rows[i].verdict ? rows[i].verdict : rows[i].state);
        offer(c, "", id, about);
        run_row_free(&rows[i]);
    }
    free(rows);
    db_close(d);
}

/* Names of the models on this machine, as they are listed, and files. */
static void offer_models(const struct completion *c)
{
    struct model_list l;
    struct err ignored;
    if (!models_find(&l, &(struct models_options){ .names_only = true }, &ignored))
        for (int i = 0; i < l.n; i++)
            if (l.row[i].kind == MODEL_WEIGHTS && l.row[i].path)
                offer(c, "", l.row[i].name, MODEL_STORES[l.row[i].store].title);
    models_done(&l);
    offer_files(c);
}

/* What the placeholder of a flag or of an argument stands for. */
static const struct {
    const char *placeholder;
    void (*offer)(const struct completion *c);
} KINDS[] = {
    { "CONFIG", offer_config },       { "WORKLOAD", offer_workloads }, { "ID", offer_runs },
    { "METRIC", offer_metrics },      { "COMMAND", offer_commands },   { "MODEL", offer_models },
    { "FILE", offer_files },          { "DIR", offer_files },          { "IN", offer_files },
    { "OUT", offer_files },           { "TEXT", offer_files },         { "A", offer_config },
    { "NAME|FILE", offer_templates },
};

static bool offer_kind(const struct completion *c, const char *placeholder)
{
    for (size_t i = 0; i < COUNT_OF(KINDS); i++)
        if (!strcmp(KINDS[i].placeholder, placeholder)) {
            KINDS[i].offer(c);
            return true;
        }
    return false;
}

/* The value of the flag before the word. False: it is no flag with a separate value. */
static bool offer_value(const struct completion *c)
{
    const size_t n = strlen(c->prev);
    const struct cli_flag *f = c->command ? flag_find(c->command->flags, c->prev, n) : NULL;
    const int knob = c->command && !f ? knob_of_flag(c->command, c->prev, n) : -1;
    if (knob >= 0) {
        offer_knob_values(c, "", knob);
        return true;
    }
    if (!f) f = flag_find(GLOBAL_FLAGS, c->prev, n);
    if (!f || !f->value || f->optional) return false;
    if (f->kind == FLAG_CHOICE)
        for (size_t i = 0; f->choices[i]; i++) offer(c, "", f->choices[i], f->help);
    else if (!strcmp(f->value, "RECIPE") || !strcmp(f->value, "FORMAT"))
        offer_recipes(c, "");
    else
        offer_kind(c, f->value);
    return true;
}

/* The kinds that the usage of the command names outside of its flags. */
static void offer_arguments(const struct completion *c)
{
    char usage[512];
    bool flag_value = false, any = false;
    snprintf(usage, sizeof usage, "%s", c->command->arguments);
    for (char *rest = usage, *word; (word = strsep(&rest, " []|()"));) {
        if (!*word) continue;
        if (!flag_value && *word != '-' && offer_kind(c, word)) any = true;
        flag_value = *word == '-';
        if (any) return;
    }
    offer_files(c);
}

static void complete(const struct completion *c)
{
    if (offer_value(c)) return;
    if (*c->word == '-') {
        if (c->command) offer_flags(c, c->command->flags);
        if (c->command) offer_knob_flags(c);
        offer_flags(c, GLOBAL_FLAGS);
    } else if (!c->command) {
        offer_commands(c);
    } else {
        offer_arguments(c);
    }
}

/* The command of the line: the first word that is one, as the parser finds it. */
static const struct command *command_of(char **word, int n)
{
    for (int i = 1; i < n; i++) {
        const struct command *c = command_find(word[i]);
        if (c && !c->hidden) return c;
    }
    return NULL;
}

int command_complete(const struct cli_global *g, const struct cli_args *a)
{
    char *line = strdup(a->arg[0]), *word[WORDS_MAX];
    int n = 0;
    struct err why;
    struct str out = { 0 };
    if (!line) return cli_fail_memory(a);
    const size_t length = strlen(line);
    const bool open = length && line[length - 1] != ' '; /* the last word is not complete */
    if (!shell_words_split(line, word, WORDS_MAX, &n, &why) && n > 0) {
        const int before = n - (open ? 1 : 0);
        const struct completion c = { .g = g,
                                      .command = command_of(word, before),
                                      .word = open && n > 1 ? word[n - 1] : "",
                                      .prev = before > 0 ? word[before - 1] : "",
                                      .out = &out };
        complete(&c);
    }
    fputs(str_text(&out), stdout);
    str_free(&out);
    free(line);
    return EXIT_DONE;
}
