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

static bool is_whole(const struct model_entry *e)
{
    return e->kind == MODEL_WEIGHTS && e->path && e->shards_here >= e->shards;
}

/* A split model of which files are missing. */
static bool is_partly_here(const struct model_entry *e)
{
    return e->kind == MODEL_WEIGHTS && e->path && e->shards_here < e->shards;
}

/* A model that its store does not keep as a file of its own; header.why says how. */
static bool is_no_file(const struct model_entry *e)
{
    return (e->kind == MODEL_WEIGHTS || e->kind == MODEL_OTHER) && !e->path;
}

typedef bool wanted_fn(const struct model_entry *e);

/* The name without the store's prefix. */
static const char *bare(const char *name)
{
    for (int s = STORE_PATH + 1; s < STORE_COUNT; s++) {
        const size_t n = strlen(MODEL_STORES[s].prefix);
        if (!strncasecmp(name, MODEL_STORES[s].prefix, n) && name[n] == ':') return name + n + 1;
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

static bool is_same_text(const char *name, const char *text)
{
    return !strcmp(name, text);
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
    /* a commit may be written with any number of its digits, from the seven that git shows */
    return strlen(revision) >= 7 && str_starts(e->commit, revision);
}

/* Files of llama.cpp's folder are called OWNER_REPO_FILE. */
static const char *flat_file(const struct model_entry *e, const struct model_name *n)
{
    char prefix[sizeof n->repo + 1];
    if (*n->revision) return NULL; /* the folder keeps no revisions */
    snprintf(prefix, sizeof prefix, "%s_", n->repo);
    for (char *p = prefix; *p; p++)
        if (*p == '/') *p = '_';
    return strncasecmp(e->file, prefix, strlen(prefix)) ? NULL : e->file + strlen(prefix);
}

/* The file of a row by its path in the repository that the name means; NULL: the row is of another one. */
static const char *file_in(const struct model_entry *e, const struct model_name *n, enum model_store store)
{
    if (e->store != store) return NULL;
    if (store == STORE_LLAMACPP && n->store == STORE_HF) return flat_file(e, n);
    return !strcasecmp(e->repo, n->repo) && same_revision(e, n->revision) ? e->file : NULL;
}

struct candidate {
    const char *file; /* below the repository */
    int row, number;
};

/* By path, as the hub lists files, so that the same file is chosen here and there. */
static int by_file(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    const int order = strcmp(x->file, y->file);
    return order ? order : x->number < y->number ? -1 : x->number > y->number;
}

/* Named by its path; a checkpoint may be named by its folder. */
static bool is_named_file(const struct model_entry *e, const char *own, const char *file)
{
    const size_t length = strlen(file);
    return !strcmp(own, file) || (e->checkpoint && !strncmp(own, file, length) && own[length] == '/');
}

/* The row that a tag, a file or neither of them means, without a GGUF file that of a checkpoint. -1: none. */
static int choose(const struct model_list *l, const struct candidate *c, const char **file, int n,
                  const struct model_name *name)
{
    if (!name->is_file) {
        for (int i = 0; i < n; i++) file[i] = c[i].file;
        const int at = model_file_choose(file, n, name->tag);
        if (at >= 0) return c[at].row;
    }
    for (int i = 0; i < n; i++) {
        const struct model_entry *e = &l->row[c[i].row];
        if (name->is_file ? is_named_file(e, c[i].file, name->tag) : !*name->tag && e->checkpoint)
            return c[i].row;
    }
    return -1;
}

/* The row of a repository's file in a store. -1: none. */
static int find_in_store(const struct model_list *l, const struct model_name *n, enum model_store store,
                         wanted_fn *wanted)
{
    const int all = l->n + l->revisions;
    struct candidate *c = calloc((size_t)all + 1, sizeof *c);
    const char **file = calloc((size_t)all + 1, sizeof *file);
    int count = 0, found = -1;
    for (int i = 0; i < all && c; i++) {
        const char *own = wanted(&l->row[i]) ? file_in(&l->row[i], n, store) : NULL;
        if (own) c[count++] = (struct candidate){ .file = own, .row = i, .number = l->row[i].number };
    }
    if (count) qsort(c, (size_t)count, sizeof *c, by_file);
    if (file) found = choose(l, c, file, count, n);
    free(file);
    free(c);
    return found;
}

/* Rows that a text means. */
struct matches {
    int first, n; /* first: of the folder that is read first; -1 */
    bool several; /* not only the same name in several folders of one store */
};

static struct matches match_all(const struct model_list *l, int rows, wanted_fn *wanted, match_fn *match,
                                const char *text)
{
    struct matches m = { .first = -1 };
    for (int i = 0; i < rows; i++) {
        const struct model_entry *e = &l->row[i];
        if (!wanted(e) || !any_name(e, match, text)) continue;
        if (m.n++) {
            /* in a store the name says which model it is; in folders of the user it does not */
            const struct model_entry *other = &l->row[m.first];
            m.several |= e->store == STORE_PATH || e->store != other->store;
            if (e->number > other->number) continue;
        }
        m.first = i;
    }
    return m;
}

static match_fn *const EXACT[] = { is_same_text, is_name, is_bare_name, is_latest };

/* The only row with exactly this name. -1: none, or several. */
static int find_name(const struct model_list *l, const char *text, wanted_fn *wanted)
{
    for (size_t k = 0; k < COUNT_OF(EXACT); k++) {
        const struct matches m = match_all(l, l->n + l->revisions, wanted, EXACT[k], text);
        if (m.n) return m.several ? -1 : m.first;
    }
    return -1;
}

static int find_exactly(const struct model_list *l, const struct model_name *n, const char *text,
                        wanted_fn *wanted)
{
    char own[MODEL_NAME_TEXT];
    int found = find_name(l, n->store == STORE_PATH ? text : model_name_text(n, own, sizeof own), wanted);
    if (n->store == STORE_PATH) return found;
    if (found < 0 && n->store != STORE_OLLAMA) found = find_in_store(l, n, n->store, wanted);
    if (found < 0 && n->store == STORE_HF) found = find_in_store(l, n, STORE_LLAMACPP, wanted);
    /* OWNER/REPO:TAG without a prefix may be the name of another store's model, too */
    return found < 0 ? find_name(l, text, wanted) : found;
}

/* ---------------------------------------------------------------- parts of names */

static bool has_store(const char *text)
{
    return bare(text) != text;
}

/* Several rows match: their names, and their paths where the names are the same. */
static enum err_code refuse_several(const struct model_list *l, const char *text, match_fn *match, int count,
                                    struct err *why)
{
    struct str names = { 0 };
    int shown = 0;
    bool path = false;
    for (int i = 0; i < l->n && shown < SHOWN_MOST; i++) {
        const struct model_entry *e = &l->row[i];
        bool same = false;
        if (!is_whole(e) || !any_name(e, match, text)) continue;
        for (int k = 0; k < l->n && !same; k++) same = k != i && !strcmp(e->name, l->row[k].name);
        str_printf(&names, "%s%s", shown++ ? ", " : "", same ? e->path : e->name);
        path |= same;
    }
    const enum err_code rc = err_set(why, ERR_USAGE, "'%.80s' matches %d models: %s%s; give %s", text, count,
                                     str_text(&names), count > shown ? ", ..." : "",
                                     path ? "the path of one" : "more of the name");
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
        if (is_whole(&l->row[i])) names[count++] = has_store(text) ? l->row[i].name : bare(l->row[i].name);
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

/* Is it here in a form that cannot be run? True: *why says so. */
static bool say_unusable(const struct model_list *l, const struct model_name *n, const char *text,
                         struct err *why)
{
    char own[MODEL_NAME_TEXT], fetch[MODEL_NAME_TEXT + 64] = "";
    int at = find_exactly(l, n, text, is_no_file);
    if (at >= 0) {
        err_set(why, ERR_FORMAT, "'%.200s' cannot be run: %s", text, l->row[at].header.why);
        return true;
    }
    at = find_exactly(l, n, text, is_partly_here);
    if (at < 0 && n->store == STORE_PATH) at = match_all(l, l->n, is_partly_here, has_part, text).first;
    if (at < 0) return false;
    if (n->remote)
        snprintf(fetch, sizeof fetch, "; to fetch the others: qdyno models --pull %s",
                 model_name_text(n, own, sizeof own));
    err_set(why, ERR_ABSENT, "'%.200s': %d of %d files of the split model are here%s", text,
            l->row[at].shards_here, l->row[at].shards, fetch);
    return true;
}

/* The row that a text means, parsed as n. -1: *why says why there is none. */
static int find_row(const struct model_list *l, const struct model_name *n, const char *text, struct err *why)
{
    const int found = find_exactly(l, n, text, is_whole);
    if (found >= 0) return found;
    for (size_t k = 0; k < COUNT_OF(EXACT); k++) {
        const struct matches m = match_all(l, l->n, is_whole, EXACT[k], text);
        if (m.several) return refuse_several(l, text, EXACT[k], m.n, why), -1;
    }
    struct matches m = { .first = -1 };
    if (n->store == STORE_PATH && !has_store(text)) m = match_all(l, l->n, is_whole, has_part, text);
    if (m.n == 1) return m.first;
    if (m.n > 1)
        refuse_several(l, text, has_part, m.n, why);
    else if (!say_unusable(l, n, text, why))
        say_absent(l, n, text, why);
    return -1;
}

const struct model_entry *model_list_find(const struct model_list *l, struct model_name *name,
                                          const char *text, struct err *why)
{
    struct model_name own = { .store = STORE_PATH }, *n = name ? name : &own;
    int found;
    if (model_name_parse(n, text, why)) {
        /* folders of LM Studio may have names that no address has: what is listed works */
        found = find_name(l, text, is_whole);
    } else {
        found = find_row(l, n, text, why);
    }
    return found < 0 ? NULL : &l->row[found];
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
