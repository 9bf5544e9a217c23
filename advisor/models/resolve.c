/* resolve.c - the file that a name means on this machine.
 *
 * An existing path wins over all names, so that a script with a path never gets another file. A name with a
 * store must match exactly, because qdyno may fetch it: a part of it would silently give another model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "advisor/models/scan.h"

enum { SHOWN_MOST = 8 };

static bool can_be_meant(const struct model_entry *e)
{
    return e->kind == MODEL_WEIGHTS && e->path;
}

/* The name without the store's prefix. */
static const char *bare(const char *name)
{
    for (int s = STORE_PATH + 1; s < STORE_COUNT; s++) {
        const size_t n = strlen(MODEL_STORES[s].prefix);
        if (!strncmp(name, MODEL_STORES[s].prefix, n) && name[n] == ':') return name + n + 1;
    }
    return name;
}

/* Calls `match` for each name of a row. */
typedef bool match_fn(const char *name, const char *text);
static bool any_name(const struct model_entry *e, match_fn *match, const char *text)
{
    char line[MODEL_NAME_TEXT + 1];
    if (match(e->name, text)) return true;
    for (const char *p = e->also ? e->also : ""; *p;) {
        const size_t n = strcspn(p, "\n");
        snprintf(line, sizeof line, "%.*s", (int)MIN(n, sizeof line - 1), p);
        if (match(line, text)) return true;
        p += n + (p[n] == '\n');
    }
    return false;
}

static bool is_name(const char *name, const char *text)
{
    return !strcasecmp(name, text);
}

static bool is_bare_name(const char *name, const char *text)
{
    return !strcasecmp(bare(name), text);
}

/* What Ollama calls "llama3.2:latest" is listed without the tag. */
static bool is_latest(const char *name, const char *text)
{
    const size_t n = strlen(text), latest = strlen(":latest");
    const char *own = bare(name);
    return n > latest && !strcmp(text + n - latest, ":latest") && strlen(own) == n - latest &&
           !strncasecmp(own, text, n - latest);
}

static bool has_part(const char *name, const char *text)
{
    return strcasestr(name, text) != NULL;
}

/* ---------------------------------------------------------------- exact names */

static bool same_revision(const struct model_entry *e, const char *revision)
{
    if (!strcmp(revision, "main")) revision = "";
    if (!strcmp(e->revision, revision)) return true;
    /* a commit may be written with any number of its digits */
    return strlen(revision) >= 7 && *e->revision &&
           strspn(revision, "0123456789abcdef") == strlen(revision) &&
           (str_starts(revision, e->revision) || str_starts(e->revision, revision));
}

/* Files of llama.cpp's folder are called OWNER_REPO_FILE. */
static const char *flat_file(const struct model_entry *e, const struct model_name *n)
{
    char prefix[sizeof n->repo + 1];
    snprintf(prefix, sizeof prefix, "%s_", n->repo);
    for (char *p = prefix; *p; p++)
        if (*p == '/') *p = '_';
    return strncasecmp(e->file, prefix, strlen(prefix)) ? NULL : e->file + strlen(prefix);
}

/* The file of a row by its path in the repository that the name means; NULL: the row is of another one. */
static const char *file_in(const struct model_entry *e, const struct model_name *n, enum model_store store)
{
    if (!can_be_meant(e) || e->store != store) return NULL;
    if (store == STORE_LLAMACPP && n->store == STORE_HF) return flat_file(e, n);
    return !strcasecmp(e->repo, n->repo) && same_revision(e, n->revision) ? e->file : NULL;
}

/* The row of a repository's file that a tag, a file or neither of them means. -1: none. */
static int find_in_store(const struct model_list *l, const struct model_name *n, enum model_store store)
{
    const char **file = calloc((size_t)l->n + 1, sizeof *file);
    int *row = calloc((size_t)l->n + 1, sizeof *row), count = 0, found = -1;
    for (int i = 0; i < l->n && file && row; i++) {
        const struct model_entry *e = &l->row[i];
        const char *own = file_in(e, n, store);
        if (!own) continue;
        const size_t length = strlen(n->tag);
        if (n->is_file) { /* a checkpoint may be named by its folder */
            if (!strcmp(own, n->tag) ||
                (e->checkpoint && !strncmp(own, n->tag, length) && own[length] == '/'))
                found = i;
        } else if (!*n->tag && e->checkpoint && found < 0) {
            found = i; /* unless the repository has a GGUF file */
        }
        file[count] = own;
        row[count++] = i;
    }
    const int chosen = n->is_file || !file || !row ? -1 : model_file_choose(file, count, n->tag);
    if (chosen >= 0) found = row[chosen];
    free(file);
    free(row);
    return found;
}

static int find_exactly(const struct model_list *l, const struct model_name *n, const char *text)
{
    static match_fn *const MATCHES[] = { is_name, is_bare_name, is_latest };
    char own[MODEL_NAME_TEXT];
    if (n->store != STORE_PATH) text = model_name_text(n, own, sizeof own);
    for (size_t m = 0; m < COUNT_OF(MATCHES); m++) {
        int found = -1, count = 0;
        for (int i = 0; i < l->n; i++)
            if (can_be_meant(&l->row[i]) && any_name(&l->row[i], MATCHES[m], text)) {
                found = i;
                count++;
            }
        if (count == 1) return found;
    }
    int found = -1;
    if (n->store != STORE_PATH && n->store != STORE_OLLAMA) found = find_in_store(l, n, n->store);
    if (found < 0 && n->store == STORE_HF) found = find_in_store(l, n, STORE_LLAMACPP);
    return found;
}

/* ---------------------------------------------------------------- parts of names */

static bool has_store(const char *text)
{
    return bare(text) != text;
}

static enum err_code refuse_several(const struct model_list *l, const char *text, const char *part, int count,
                                    struct err *why)
{
    struct str names = { 0 };
    int shown = 0;
    for (int i = 0; i < l->n && shown < SHOWN_MOST; i++)
        if (can_be_meant(&l->row[i]) && any_name(&l->row[i], has_part, part))
            str_printf(&names, "%s%s", shown++ ? ", " : "", l->row[i].name);
    const enum err_code rc = err_set(why, ERR_USAGE, "'%.80s' matches %d models: %s%s; give more of the name",
                                     text, count, str_text(&names), count > shown ? ", ..." : "");
    str_free(&names);
    return rc;
}

/* A name that begins as the text does, up to one of the marks between the parts of names. */
static const char *same_family(const char *text, const char *const *names, size_t count)
{
    enum { LEAST = 3 };
    static const char MARKS[] = "-_.:@/";
    char part[256];
    snprintf(part, sizeof part, "%.*s", (int)sizeof part - 1, text);
    for (size_t n = strlen(part); n > LEAST;) {
        while (n && !strchr(MARKS, part[n - 1])) n--;
        if (n <= LEAST) break;
        part[--n] = '\0';
        for (size_t i = 0; i < count; i++)
            if (strcasestr(names[i], part)) return names[i];
    }
    return NULL;
}

/* What would fetch it, and names here that are near. */
static enum err_code say_absent(const struct model_list *l, const struct model_name *n, const char *text,
                                struct err *why)
{
    const char **names = calloc((size_t)l->n + 1, sizeof *names);
    size_t count = 0;
    char own[MODEL_NAME_TEXT], fetch[MODEL_NAME_TEXT + 64] = "";
    for (int i = 0; i < l->n && names; i++)
        if (can_be_meant(&l->row[i]))
            names[count++] = has_store(text) ? l->row[i].name : bare(l->row[i].name);
    const char *near = names ? str_nearest(text, names, count) : NULL;
    if (!near && names) near = same_family(path_file_name(text), names, count);
    if (n->remote)
        snprintf(fetch, sizeof fetch, "; to fetch it: qdyno models --pull %s",
                 model_name_text(n, own, sizeof own));
    const bool named = has_store(text) || n->store != STORE_PATH;
    const enum err_code rc = err_set(
        why, ERR_ABSENT, "'%.200s' is %s%s%s%s%s", text,
        named ? "not on this machine"
              : "neither a file nor in the name of a model on this machine (`qdyno models` lists them)",
        near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "", fetch);
    free(names);
    return rc;
}

const struct model_entry *model_list_find(const struct model_list *l, struct model_name *name,
                                          const char *text, struct err *why)
{
    struct model_name own = { .store = STORE_PATH }, *n = name ? name : &own;
    if (model_name_parse(n, text, why)) return NULL;
    int found = find_exactly(l, n, text), count = 0;
    if (found < 0 && !has_store(text)) {
        for (int i = 0; i < l->n; i++)
            if (can_be_meant(&l->row[i]) && any_name(&l->row[i], has_part, text)) {
                found = i;
                count++;
            }
    }
    if (count > 1) {
        refuse_several(l, text, text, count, why);
        return NULL;
    }
    if (found < 0) {
        say_absent(l, n, text, why);
        return NULL;
    }
    return &l->row[found];
}

enum err_code model_resolve(char **path, struct model_name *name, const char *text, struct err *why)
{
    struct model_list l = { .n = 0 };
    struct model_name own = { .store = STORE_PATH }, *n = name ? name : &own;
    struct err local, *say = why ? why : &local;
    struct stat st;
    *path = NULL;
    if (!stat(text, &st)) {
        *n = (struct model_name){ .store = STORE_PATH };
        *path = strdup(text);
        return *path ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
    }
    enum err_code rc = models_find(&l, &(struct models_options){ .names_only = true }, say);
    if (!rc) {
        const struct model_entry *e = model_list_find(&l, n, text, say);
        if (e) *path = strdup(e->path);
        rc = !e ? say->code : *path ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
    }
    models_done(&l);
    return rc;
}
