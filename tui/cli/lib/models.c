/* models.c - see models.h. Nothing is guessed: a word is a model if the file is there and says so, or if it
 * is written as a name. */
#include "tui/cli/lib/models.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "advisor/models/models.h"
#include "tui/cli/command_models_hub.h"
#include "tui/cli/lib/lib.h"

/* ---------------------------------------------------------------- which words are models */

static bool has_magic(const char *path)
{
    char magic[4];
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    const bool gguf = fread(magic, 1, sizeof magic, f) == sizeof magic &&
                      !memcmp(magic, "GGUF", sizeof magic);
    fclose(f);
    return gguf;
}

static bool is_checkpoint(const char *path)
{
    bool config = false, weights = false;
    DIR *d = opendir(path);
    for (const struct dirent *e; d && (e = readdir(d));) {
        config |= !strcmp(e->d_name, "config.json");
        weights |= str_ends(e->d_name, ".safetensors");
    }
    if (d) closedir(d);
    return config && weights;
}

static bool is_config(const char *word)
{
    struct config c;
    return !*word || *word == '@' || !strcmp(word, "applied") || !config_parse(&c, word, NULL);
}

/* "thread=2,model=x.gguf": a config line with a mistake, whose error is the better message. */
static bool looks_like_config(const char *word)
{
    return word[strcspn(word, "=/:")] == '=';
}

bool cli_word_is_model(const char *word)
{
    struct stat st;
    struct model_name n;
    if (is_config(word)) return false;
    if (!stat(word, &st)) {
        if (S_ISDIR(st.st_mode)) return is_checkpoint(word);
        return S_ISREG(st.st_mode) && (str_ends(word, ".safetensors") || has_magic(word));
    }
    if (looks_like_config(word)) return false;
    /* a name that is refused was meant as one: its error is the better message */
    return str_ends(word, ".gguf") || model_name_parse(&n, word, NULL) || n.store != STORE_PATH;
}

/* ---------------------------------------------------------------- models as arguments */

/* The flag of a command that names a model; NULL: it has none. */
static const struct cli_flag *model_flag(const struct command *c)
{
    const struct cli_flag *f = c->takes_model ? flag_find(c->flags, "-m", 2) : NULL;
    return f && f->model ? f : NULL;
}

static void remove_first(struct cli_args *a)
{
    memmove(&a->arg[0], &a->arg[1], (size_t)(a->n - 1) * sizeof a->arg[0]);
    a->n--;
}

/* Replaces an argument by a config line with this model, quoted as config lines need it. */
static enum err_code put_arm(struct cli_args *a, int i, struct config *c, const char *model, struct err *why)
{
    char *line = malloc(CONFIG_LINE);
    enum err_code rc = line ? config_set(c, KNOBS[KNOB_MODEL].key, model, why)
                            : err_set(why, ERR_NOMEM, "out of memory");
    if (rc || a->owned_count == ARGS_OWNED) {
        free(line);
        return rc ? rc : err_set(why, ERR_USAGE, "more than %d models are given", ARGS_OWNED);
    }
    a->arg[i] = config_line(c, line, CONFIG_LINE);
    a->owned[a->owned_count++] = line;
    return ERR_OK;
}

static enum err_code arm_of_model(struct cli_args *a, int i, struct err *why)
{
    struct config c;
    config_default(&c);
    return put_arm(a, i, &c, a->arg[i], why);
}

static void take_first(struct cli_args *a, const struct cli_flag *flag)
{
    a->given[a->given_count].flag = flag;
    a->given[a->given_count++].value = a->arg[0];
}

static bool names_repository(const char *word)
{
    struct model_name n;
    struct stat st;
    return stat(word, &st) && !model_name_parse(&n, word, NULL) && !*n.tag &&
           (n.store == STORE_HF || n.store == STORE_LMSTUDIO || n.store == STORE_MODELSCOPE);
}

enum err_code cli_models_take(struct cli_args *a, struct err *why)
{
    const struct cli_flag *flag = model_flag(a->command);
    int models = 0;
    const char *workload[2];
    if (!flag || args_has(a, flag->name) || a->given_count == ARGS_GIVEN) return ERR_OK;
    const bool only = !a->command->max_args && a->n == 1; /* it can be nothing else: also a part of a name */
    for (int i = 0; i < a->n; i++) models += only ? !is_config(a->arg[i]) : cli_word_is_model(a->arg[i]);
    if (models > 1 && models == a->n && a->command->compares) {
        enum err_code rc = ERR_OK;
        const bool first = a->command->first_model_opens && a->n == 2;
        if (first) {
            take_first(a, flag);
            a->arg[0] = "default";
        }
        for (int i = first; i < a->n && !rc; i++) rc = arm_of_model(a, i, why);
        return rc;
    }
    if (models != 1 || (!only && !cli_word_is_model(a->arg[0]))) return ERR_OK;
    if (a->command->model_args && a->n > 1) return ERR_OK; /* several, of which the command knows the rest */
    if (a->command->model_args > 1 && names_repository(a->arg[0]))
        return err_set(why, ERR_USAGE,
                       "'%.100s' names a repository: to choose between its files, name each of them "
                       "(`qdyno models` lists them); for the one that the name means, give -m %.100s",
                       a->arg[0], a->arg[0]);
    take_first(a, flag);
    remove_first(a);
    if (a->command->compares && a->n == 1 && args_all(a, "-w", workload, 2) < 2) {
        a->arg[1] = a->arg[0];
        a->arg[0] = "default";
        a->n = 2;
    }
    return ERR_OK;
}

/* ---------------------------------------------------------------- names of models */

/* A model that a flag or an argument names, fetched if that is allowed. *path owned. */
static enum err_code model_path(char **path, const struct cli_global *g, const struct cli_args *a,
                                const char *text, struct err *why)
{
    struct model_name n;
    const enum err_code rc = model_resolve(path, &n, text, why);
    if (rc != ERR_ABSENT) return rc;
    if (n.remote && cli_may_fetch(g)) return cli_fetch(path, g, a, &n, why);
    return why->code = ERR_IO; /* the exit status of a file that is missing */
}

/* `qdyno run "Hello"`: the text was meant as a prompt, perhaps. */
static enum err_code hint_prompt(const struct cli_args *a, enum err_code rc, struct err *why)
{
    const struct cli_flag *p = flag_find(a->command->flags, "-p", 2);
    if (rc != ERR_IO || !p || p->kind != FLAG_TEXT || args_has(a, "-p")) return rc;
    const size_t n = strlen(why->message);
    snprintf(why->message + n, sizeof why->message - n, "; a prompt is given with -p");
    return rc;
}

/* Keeps `path` in the arguments, which free it. */
static const char *keep(struct cli_args *a, char *path, const char *text)
{
    if (!strcmp(path, text) || a->owned_count == ARGS_OWNED) {
        free(path);
        return text;
    }
    return a->owned[a->owned_count++] = path;
}

/* The model of a config to compare: the same, written as a path. */
static enum err_code resolve_arm(const struct cli_global *g, struct cli_args *a, int i, struct err *why)
{
    struct config c;
    struct model_name n;
    struct stat st;
    char *path = NULL;
    if (config_parse(&c, a->arg[i], NULL)) return ERR_OK; /* the command says what is wrong with it */
    const char *own = config_model_file(&c, "");
    if (!*own || !stat(own, &st)) return ERR_OK;
    enum err_code rc = model_path(&path, g, a, own, why);
    /* a file that is missing becomes the result of its arm */
    if (rc == ERR_IO && !model_name_parse(&n, own, NULL) && n.store == STORE_PATH) return ERR_OK;
    if (!rc) cli_note(g, "%s: %s", own, path);
    if (!rc) rc = put_arm(a, i, &c, path, why);
    free(path);
    return rc;
}

enum err_code cli_models_resolve(const struct cli_global *g, struct cli_args *a, struct err *why)
{
    struct stat st;
    for (int i = 0; i < a->given_count; i++) {
        const char *text = a->given[i].value;
        struct model_name n;
        char *path = NULL;
        if (!a->given[i].flag->model || !stat(text, &st)) continue;
        enum err_code rc = model_path(&path, g, a, text, why);
        /* the command says what is wrong with a path that is missing, after it has checked its flags */
        if (rc == ERR_IO && (str_ends(text, ".gguf") || strchr(text, '/')) &&
            !model_name_parse(&n, text, NULL) && n.store == STORE_PATH)
            continue;
        if (rc) return hint_prompt(a, rc, why);
        a->given[i].value = keep(a, path, text);
        cli_note(g, "%s: %s", text, a->given[i].value);
    }
    for (int i = 0; i < a->n && i < a->command->model_args; i++) {
        struct model_name n;
        char *path = NULL;
        if (!stat(a->arg[i], &st)) continue;
        enum err_code rc = model_path(&path, g, a, a->arg[i], why);
        /* the command says what is wrong with a path that is missing, after it has checked its flags */
        if (rc == ERR_IO && !model_name_parse(&n, a->arg[i], NULL) && n.store == STORE_PATH) continue;
        if (rc) return rc;
        a->arg[i] = keep(a, path, a->arg[i]);
    }
    enum err_code rc = ERR_OK;
    for (int i = 0; i < a->n && a->command->compares && !rc; i++) rc = resolve_arm(g, a, i, why);
    return rc;
}

enum err_code cli_config_resolve(struct config *c, struct err *why)
{
    const char *own = config_model_file(c, "");
    struct model_name n;
    struct stat st;
    char *path = NULL;
    if (!*own || !stat(own, &st)) return ERR_OK;
    enum err_code rc = model_resolve(&path, &n, own, why);
    /* a file that is missing becomes the result of its arm */
    if (rc == ERR_ABSENT && n.store == STORE_PATH) return ERR_OK;
    if (rc == ERR_ABSENT) return why->code = ERR_IO; /* the exit status of a file that is missing */
    if (!rc) rc = config_set(c, KNOBS[KNOB_MODEL].key, path, why);
    free(path);
    return rc;
}

void cli_args_done(struct cli_args *a)
{
    for (int i = 0; i < a->owned_count; i++) free(a->owned[i]);
    a->owned_count = 0;
}
