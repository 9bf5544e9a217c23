/* list.c - what a repository has: search, branches, files, and which of the files a name means. */
#include <stdlib.h>
#include <string.h>

#include "advisor/hub/hub_internal.h"

enum { LIST_MOST = 4 << 20, LISTS_MOST = 64 << 20, PAGES_MOST = 2000, LIST_S = 600 };

/* ---------------------------------------------------------------- addresses */

/* ModelScope's address: MODELSCOPE_DOMAIN may name another server; http only on this machine. */
static void modelscope_url(struct str *out)
{
    const char *domain = getenv("MODELSCOPE_DOMAIN");
    if (!domain || !*domain) domain = "www.modelscope.cn";
    struct str plain = { 0 };
    if (strstr(domain, "://")) {
        str_append(out, domain);
        return;
    }
    str_printf(&plain, "http://%s", domain);
    str_printf(out, "%s%s", http_url_is_loopback(str_text(&plain)) ? "http://" : "https://", domain);
    str_free(&plain);
}

void hub_file_url(struct str *out, const struct hub *h, const struct hub_repo *r, const char *path)
{
    if (r->store == STORE_MODELSCOPE) {
        modelscope_url(out);
        str_printf(out, "/api/v1/models/%s/repo?Revision=", r->repo);
        http_url_escape(out, r->revision, HTTP_ESCAPE_ALL);
        str_append(out, "&FilePath=");
        http_url_escape(out, path, HTTP_ESCAPE_ALL);
        return;
    }
    str_printf(out, "%s/%s/resolve/", h->endpoint, r->repo);
    http_url_escape(out, *r->commit ? r->commit : r->revision, HTTP_ESCAPE_ALL);
    str_append(out, "/");
    http_url_escape(out, path, HTTP_ESCAPE_PATH);
}

/* ---------------------------------------------------------------- search */

enum err_code hub_search(struct hub_found **out, int *n, struct hub *h, const char *text, int limit,
                         struct err *why)
{
    struct str url = { 0 };
    *out = NULL;
    *n = 0;
    str_printf(&url, "%s/api/models?search=", h->endpoint);
    http_url_escape(&url, text, HTTP_ESCAPE_ALL);
    str_printf(&url, "&filter=gguf&sort=downloads&limit=%d", limit);
    struct hub_ask a = {
        .method = "GET", .url = str_text(&url), .what = "search", .total_s = LIST_S, .body_most = LIST_MOST
    };
    enum err_code rc = hub_send(h, &a, why);
    if (!rc) rc = hub_search_parse(out, n, str_text(&a.body), a.body.len, why);
    hub_ask_done(&a);
    str_free(&url);
    return rc;
}

/* ---------------------------------------------------------------- files */

void hub_repo_done(struct hub_repo *r)
{
    for (int i = 0; i < r->n; i++) free(r->files[i].path);
    free(r->files);
    *r = (struct hub_repo){ .n = 0 };
}

static int file_order(const void *a, const void *b)
{
    const struct hub_file *x = a, *y = b;
    return strcmp(x->path, y->path);
}

/* A redirect led to another repository: it was renamed. */
static void follow_name(struct hub_repo *r, const struct hub *h, const char *final_url)
{
    char now[256];
    if (!hub_repo_of_url(final_url, now) || !strcmp(now, r->repo)) return;
    hub_note(h, "%s is called %s now", r->repo, now);
    memcpy(r->repo, now, sizeof now);
}

/* Asks for the commit of the revision. */
static enum err_code commit_find(struct hub_repo *r, struct hub *h, struct err *why)
{
    struct str url = { 0 };
    str_printf(&url, "%s/api/models/%s/refs", h->endpoint, r->repo);
    struct hub_ask a = {
        .method = "GET", .url = str_text(&url), .what = r->repo, .total_s = LIST_S, .body_most = LIST_MOST
    };
    enum err_code rc = hub_send(h, &a, why);
    if (!rc && hub_is_hex(r->revision, SHA1_HEX))
        memcpy(r->commit, r->revision, SHA1_HEX + 1);
    else if (!rc && (rc = hub_refs_parse(r->commit, str_text(&a.body), a.body.len, r->revision, why)))
        err_prefix(why, "%s", r->repo);
    if (!rc) follow_name(r, h, a.final_url);
    hub_ask_done(&a);
    str_free(&url);
    return rc;
}

/* One page. *next: the address of the following one; "": none. */
static enum err_code page_read(struct hub_repo *r, struct hub *h, const char *url, char *next, size_t size,
                               size_t *room, struct err *why)
{
    struct hub_ask a = { .method = "GET",
                         .url = url,
                         .what = r->repo,
                         .total_s = LIST_S,
                         .body_most = MIN(*room, (size_t)LIST_MOST) };
    enum err_code rc = hub_send(h, &a, why);
    if (!rc)
        rc = (r->store == STORE_HF ? hub_tree_parse : hub_modelscope_parse)(r, str_text(&a.body), a.body.len,
                                                                            why);
    *room -= MIN(*room, a.body.len);
    *next = '\0';
    char link[4096];
    if (!rc && hub_link_next(hub_header(&a, HEADER_LINK), link, sizeof link)) {
        char *whole = NULL;
        rc = http_url_follow(&whole, a.final_url, link, why);
        if (!rc && !str_put(next, size, whole))
            rc = err_set(why, ERR_FORMAT, "%s: a link is too long", r->repo);
        free(whole);
    }
    hub_ask_done(&a);
    return rc;
}

enum err_code hub_list(struct hub_repo *out, struct hub *h, const struct model_name *name, struct err *why)
{
    char at[4096], next[4096];
    struct str url = { 0 };
    const bool hub = name->store == STORE_HF;
    *out = (struct hub_repo){ .store = name->store };
    if (!hub && name->store != STORE_MODELSCOPE)
        return err_set(why, ERR_USAGE,
                       "only repositories of Hugging Face and ModelScope have a list of files");
    if (!strchr(name->repo, '/') || !hub_path_is_safe(name->repo))
        return err_set(why, ERR_USAGE, "'%s': expected OWNER/REPOSITORY", name->repo);
    snprintf(out->repo, sizeof out->repo, "%s", name->repo);
    snprintf(out->asked, sizeof out->asked, "%s", name->repo);
    snprintf(out->revision, sizeof out->revision, "%s",
             *name->revision ? name->revision
             : hub           ? "main"
                             : "master");
    enum err_code rc = hub ? commit_find(out, h, why) : ERR_OK;
    if (hub) {
        str_printf(&url, "%s/api/models/%s/tree/%s?recursive=true", h->endpoint, out->repo, out->commit);
    } else {
        modelscope_url(&url);
        rc = http_url_check("MODELSCOPE_DOMAIN", str_text(&url), HTTP_URL_BASE, why);
        str_printf(&url, "/api/v1/models/%s/repo/files?Recursive=true&Revision=", out->repo);
        http_url_escape(&url, out->revision, HTTP_ESCAPE_ALL);
    }
    if (!rc && !str_put(at, sizeof at, str_text(&url))) rc = err_set(why, ERR_USAGE, "the name is too long");
    str_free(&url);
    size_t room = LISTS_MOST;
    for (int page = 0; !rc; page++) {
        if (page == PAGES_MOST || !room)
            return err_set(why, ERR_FORMAT, "%s: the list of files does not end", out->repo);
        rc = page_read(out, h, at, next, sizeof next, &room, why);
        if (rc || !*next) break;
        memcpy(at, next, sizeof at);
    }
    if (!rc) qsort(out->files, (size_t)out->n, sizeof *out->files, file_order);
    return rc;
}

/* ---------------------------------------------------------------- choice */

/* The message for a name that no file has: the nearest ones, or the first ones. */
static enum err_code no_such_file(const struct hub_repo *r, const char **names, int n, const char *tag,
                                  struct err *why)
{
    enum { SHOWN = 8 };
    struct str list = { 0 };
    int shown = 0;
    const char *near = *tag ? str_nearest(tag, names, (size_t)n) : NULL;
    for (int i = 0; i < n && shown < SHOWN; i++) {
        if (model_file_kind(names[i]) != MODEL_WEIGHTS) continue;
        str_printf(&list, "%s%.80s", shown++ ? ", " : "", names[i]);
    }
    enum err_code rc;
    if (!shown)
        rc = err_set(why, ERR_ABSENT, "%s has no GGUF file with weights (%d files)", r->repo, n);
    else
        rc = err_set(why, ERR_ABSENT, "%s has no file for '%s'%s%s%s; it has %s%s", r->repo, tag,
                     near ? ": did you mean " : "", near ? near : "", near ? "?" : "", str_text(&list),
                     shown == SHOWN ? ", ..." : "");
    str_free(&list);
    return rc;
}

static int file_find(const struct hub_repo *r, const char *path)
{
    for (int i = 0; i < r->n; i++)
        if (!strcmp(r->files[i].path, path)) return i;
    return -1;
}

/* The other shards of a split model whose first one is index[0]. */
static enum err_code shards_add(int **index, int *n, const struct hub_repo *r, struct err *why)
{
    enum { SHARDS_MOST = 9999 };
    int number, count;
    size_t stem;
    const char *first = r->files[**index].path, *name = path_file_name(first);
    if (!model_file_is_shard(name, &number, &count, &stem) || count == 1) return ERR_OK;
    if (count > SHARDS_MOST || count < 1) return err_set(why, ERR_FORMAT, "'%s': too many files", first);
    int *more = realloc(*index, (size_t)count * sizeof *more);
    if (!more) return err_set(why, ERR_NOMEM, "out of memory");
    *index = more;
    *n = 0;
    for (int i = 1; i <= count; i++) {
        struct str path = { 0 };
        str_printf(&path, "%.*s-%05d-of-%05d.gguf", (int)((size_t)(name - first) + stem), first, i, count);
        const int at = file_find(r, str_text(&path));
        if (at < 0)
            err_set(why, ERR_ABSENT, "%s has no file '%s', %d of %d", r->repo, str_text(&path), i, count);
        str_free(&path);
        if (at < 0) return ERR_ABSENT;
        more[(*n)++] = at;
    }
    return ERR_OK;
}

enum err_code hub_choose(int **index, int *n, const struct hub_repo *r, const struct model_name *name,
                         struct err *why)
{
    const char **names = calloc((size_t)r->n + 1, sizeof *names);
    *n = 1;
    *index = malloc(sizeof **index);
    enum err_code rc = !names || !*index ? err_set(why, ERR_NOMEM, "out of memory") : ERR_OK;
    for (int i = 0; i < r->n && !rc; i++) names[i] = r->files[i].path;
    if (!rc) **index = name->is_file ? file_find(r, name->tag) : model_file_choose(names, r->n, name->tag);
    if (!rc && **index < 0) rc = no_such_file(r, names, r->n, name->tag, why);
    if (!rc) rc = shards_add(index, n, r, why);
    free(names);
    if (!rc) return ERR_OK;
    free(*index);
    *index = NULL;
    *n = 0;
    return rc;
}
