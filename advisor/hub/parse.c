/* parse.c - reads what servers answer. Pure: text in, values out; the text is untrusted. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "advisor/hub/hub_internal.h"

enum { FILES_MOST = 200000 };
static const long long SIZE_MOST = 1LL << 48; /* sums over all shards, 9999 at most, do not overflow */

/* ---------------------------------------------------------------- headers */

/* Does one of the parameters `; name="value"` of a link say that it is the next page? */
static bool is_next(const char *parameters, size_t n)
{
    static const char *const FORMS[] = { "rel=\"next\"", "rel=next" };
    for (size_t i = 0; i < COUNT_OF(FORMS); i++)
        if (memmem(parameters, n, FORMS[i], strlen(FORMS[i]))) return true;
    return false;
}

bool hub_link_next(const char *link, char *url, size_t size)
{
    while ((link = strchr(link, '<'))) {
        const char *from = link + 1, *to = strchr(from, '>');
        if (!to) return false;
        const size_t parameters = strcspn(to, "<");
        if (is_next(to, parameters)) {
            if ((size_t)(to - from) >= size) return false;
            snprintf(url, size, "%.*s", (int)(to - from), from);
            return true;
        }
        link = to;
    }
    return false;
}

/* A whole number at *at, which goes behind it. */
static bool take_number(const char **at, int64_t *out)
{
    char digits[20];
    const size_t n = strspn(*at, "0123456789");
    if (!n || n >= sizeof digits) return false;
    snprintf(digits, sizeof digits, "%.*s", (int)n, *at);
    *at += n;
    return str_to_i64(digits, out);
}

bool hub_range_parse(const char *text, int64_t *first, int64_t *last, int64_t *total)
{
    if (strncasecmp(text, "bytes ", 6)) return false;
    text += 6;
    if (!take_number(&text, first) || *text++ != '-' || !take_number(&text, last) || *text++ != '/')
        return false;
    *total = -1;
    if (strcmp(text, "*") && (!take_number(&text, total) || *text)) return false;
    return *first <= *last && (*total < 0 || *last < *total);
}

bool hub_range_refused(const char *text, int64_t *total)
{
    static const char HEAD[] = "bytes */";
    if (strncasecmp(text, HEAD, strlen(HEAD)) != 0) return false;
    text += strlen(HEAD);
    return take_number(&text, total) && !*text;
}

double hub_rate_limit_s(const char *text)
{
    int64_t left = -1, seconds = -1;
    for (const char *p = text; (p = strchr(p, ';')); p++) {
        const char *at = p + 1 + strspn(p + 1, " ");
        const char key = *at;
        if ((key != 'r' && key != 't') || at[1] != '=') continue;
        at += 2;
        (void)take_number(&at, key == 'r' ? &left : &seconds);
    }
    return left == 0 && seconds >= 0 ? (double)seconds + 1 : (double)NAN; /* 1 s more: they are rounded */
}

bool hub_is_hex(const char *text, size_t digits)
{
    return strlen(text) == digits && strspn(text, "0123456789abcdef") == digits;
}

bool hub_etag_parse(const char *text, char etag[HUB_ETAG])
{
    static const char NAME[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-";
    if (str_starts(text, "W/")) text += 2;
    size_t n = strlen(text);
    if (n >= 2 && text[0] == '"' && text[n - 1] == '"') {
        text++;
        n -= 2;
    }
    if (n < 8 || n >= HUB_ETAG || strspn(text, NAME) < n) return false;
    snprintf(etag, HUB_ETAG, "%.*s", (int)n, text);
    return true;
}

bool hub_path_is_safe(const char *path)
{
    enum { PATH_MOST = 1024, PART_MOST = 255 };
    if (!*path || strlen(path) > PATH_MOST) return false;
    for (const char *c = path; *c; c++)
        if (iscntrl((unsigned char)*c) || *c == '\\') return false;
    for (const char *part = path;; part++) {
        const size_t n = strcspn(part, "/");
        if (!n || n > PART_MOST || (n == 1 && *part == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
            return false;
        part += n;
        if (!*part) return true;
    }
}

bool hub_repo_of_url(const char *url, char repo[256])
{
    static const char API[] = "/api/models/";
    const char *at = strstr(url, "://");
    if (!at) return false;
    at += 3;
    at += strcspn(at, "/?#");
    const bool api = strstr(at, API);
    if (api) at = strstr(at, API) + strlen(API) - 1;
    if (*at++ != '/') return false;
    const size_t owner = strcspn(at, "/?#");
    if (!owner || at[owner] != '/') return false;
    const size_t n = owner + 1 + strcspn(at + owner + 1, "/?#");
    if (n <= owner + 1 || n >= 256 || (!api && !str_starts(at + n, "/resolve/"))) return false;
    snprintf(repo, 256, "%.*s", (int)n, at);
    return hub_path_is_safe(repo) && !strchr(repo, '%');
}

/* ---------------------------------------------------------------- lists */

/* Adds a file whose values are safe. Errors: ERR_FORMAT, ERR_NOMEM. */
static enum err_code file_add(struct hub_repo *r, const struct hub_file *f, struct err *why)
{
    if (!hub_path_is_safe(f->path))
        return err_set(why, ERR_FORMAT, "the list of files has the path '%.80s', which is none", f->path);
    if (f->size < 0) return err_set(why, ERR_FORMAT, "the list of files has no size for '%.80s'", f->path);
    if (f->size > SIZE_MOST)
        return err_set(why, ERR_FORMAT,
                       "the list of files says that '%.80s' has %lld bytes, expected at most %lld", f->path,
                       (long long)f->size, SIZE_MOST);
    if (r->n >= FILES_MOST)
        return err_set(why, ERR_FORMAT, "the repository has more than %d files", (int)FILES_MOST);
    if ((r->n & (r->n - 1)) == 0) { /* room for a power of two */
        struct hub_file *more = realloc(r->files, (size_t)MAX(1, 2 * r->n) * sizeof *more);
        if (!more) return err_set(why, ERR_NOMEM, "out of memory for a list of files");
        r->files = more;
    }
    struct hub_file *const to = &r->files[r->n];
    *to = *f;
    if (!(to->path = strdup(f->path))) return err_set(why, ERR_NOMEM, "out of memory for a list of files");
    r->n++;
    return ERR_OK;
}

/* Copies a hash in hex, in lower case; "" if it is none. */
static void hex_put(char *out, const char *text, size_t digits)
{
    char lower[HUB_COMMIT];
    *out = '\0';
    if (!text || strlen(text) != digits) return;
    for (size_t i = 0; i <= digits; i++) lower[i] = (char)tolower((unsigned char)text[i]);
    if (hub_is_hex(lower, digits)) memcpy(out, lower, digits + 1);
}

static enum err_code document_of(json_t **out, const char *text, size_t n, const char *what, struct err *why)
{
    const enum err_code rc = json_parse(out, text, n, why);
    if (rc == ERR_FORMAT) err_prefix(why, "%s is not as documented", what);
    return rc;
}

static enum err_code shape_error(const char *what, struct err *why)
{
    return err_set(why, ERR_FORMAT, "%s is not as documented: is the endpoint a hub?", what);
}

enum err_code hub_tree_parse(struct hub_repo *r, const char *text, size_t n, struct err *why)
{
    json_t *list = NULL, *entry;
    size_t i;
    enum err_code rc = document_of(&list, text, n, "the hub's list of files", why);
    if (!rc && !json_is_array(list)) rc = shape_error("the hub's list of files", why);
    json_array_foreach(list, i, entry)
    {
        const json_t *lfs = json_object_get(entry, "lfs");
        if (rc || strcmp(json_get_str(entry, "type", ""), "file") != 0) continue;
        struct hub_file f = { .path = (char *)json_get_str(entry, "path", ""),
                              .size = json_get_int(lfs, "size", json_get_int(entry, "size", -1)) };
        hex_put(f.sha256, json_get_str(lfs, "oid", NULL), SHA256_HEX);
        if (!json_is_object(lfs)) hex_put(f.oid, json_get_str(entry, "oid", NULL), SHA1_HEX);
        rc = file_add(r, &f, why);
    }
    json_decref(list);
    return rc;
}

enum err_code hub_modelscope_parse(struct hub_repo *r, const char *text, size_t n, struct err *why)
{
    json_t *root = NULL, *entry;
    size_t i;
    enum err_code rc = document_of(&root, text, n, "ModelScope's list of files", why);
    json_t *files = rc ? NULL : json_object_get(json_object_get(root, "Data"), "Files");
    if (!rc && !json_is_array(files)) rc = shape_error("ModelScope's list of files", why);
    json_array_foreach(files, i, entry)
    {
        if (rc || !strcmp(json_get_str(entry, "Type", ""), "tree")) continue;
        struct hub_file f = { .path = (char *)json_get_str(entry, "Path", ""),
                              .size = json_get_int(entry, "Size", -1) };
        hex_put(f.sha256, json_get_str(entry, "Sha256", NULL), SHA256_HEX);
        rc = file_add(r, &f, why);
    }
    json_decref(root);
    return rc;
}

enum err_code hub_manifest_parse(struct hub_repo *r, const char *text, size_t n, struct err *why)
{
    json_t *root = NULL, *entry;
    size_t i;
    enum err_code rc = document_of(&root, text, n, "the registry's manifest", why);
    json_t *layers = rc ? NULL : json_object_get(root, "layers"), *config = json_object_get(root, "config");
    if (!rc && (!json_is_array(layers) || !json_is_object(config)))
        rc = shape_error("the registry's manifest", why);
    json_t *all = rc ? NULL : json_copy(layers);
    if (all) json_array_append(all, config); /* last: small, and of no use without the others */
    json_array_foreach(all, i, entry)
    {
        const char *digest = json_get_str(entry, "digest", ""), *type = json_get_str(entry, "mediaType", "");
        struct hub_file f = { .path = (char *)type, .size = json_get_int(entry, "size", -1) };
        if (rc) continue;
        if (str_starts(digest, "sha256:")) hex_put(f.sha256, digest + strlen("sha256:"), SHA256_HEX);
        rc = *f.sha256 ? file_add(r, &f, why)
                       : err_set(why, ERR_FORMAT,
                                 "the registry's manifest has the digest '%.80s': expected sha256:", digest);
    }
    json_decref(all);
    json_decref(root);
    return rc;
}

/* ---------------------------------------------------------------- search, branches */

void hub_found_free(struct hub_found *list, int n)
{
    for (int i = 0; i < n; i++) free(list[i].id);
    free(list);
}

enum err_code hub_search_parse(struct hub_found **out, int *count, const char *text, size_t n,
                               struct err *why)
{
    json_t *list = NULL, *entry;
    size_t i;
    *out = NULL;
    *count = 0;
    enum err_code rc = document_of(&list, text, n, "the hub's answer to a search", why);
    if (!rc && !json_is_array(list)) rc = shape_error("the hub's answer to a search", why);
    if (!rc && !(*out = calloc(json_array_size(list) + 1, sizeof **out)))
        rc = err_set(why, ERR_NOMEM, "out of memory for search results");
    json_array_foreach(list, i, entry)
    {
        const char *id = json_get_str(entry, "id", json_get_str(entry, "modelId", NULL));
        if (rc || !id || !hub_path_is_safe(id)) continue;
        struct hub_found *const f = &(*out)[*count];
        *f = (struct hub_found){ .id = strdup(id),
                                 .downloads = json_get_int(entry, "downloads", -1),
                                 .likes = json_get_int(entry, "likes", -1) };
        snprintf(f->gate, sizeof f->gate, "%s", json_get_str(entry, "gated", ""));
        if (f->id)
            ++*count;
        else
            rc = err_set(why, ERR_NOMEM, "out of memory for search results");
    }
    json_decref(list);
    if (!rc) return ERR_OK;
    hub_found_free(*out, *count);
    *out = NULL;
    *count = 0;
    return rc;
}

enum err_code hub_refs_parse(char commit[HUB_COMMIT], const char *text, size_t n, const char *revision,
                             struct err *why)
{
    static const char *const LISTS[] = { "branches", "tags", "converts", "pullRequests" };
    json_t *root = NULL, *entry;
    struct str names = { 0 };
    size_t i;
    enum err_code rc = document_of(&root, text, n, "the hub's list of branches", why);
    if (!rc && !json_is_array(json_object_get(root, "branches")))
        rc = shape_error("the hub's list of branches", why);
    *commit = '\0';
    for (size_t k = 0; !rc && k < COUNT_OF(LISTS); k++)
        json_array_foreach(json_object_get(root, LISTS[k]), i, entry)
        {
            const char *name = json_get_str(entry, "name", ""), *ref = json_get_str(entry, "ref", "");
            if (names.len < 200) str_printf(&names, "%s%.60s", names.len ? ", " : "", name);
            if (*commit || (strcmp(name, revision) != 0 && strcmp(ref, revision) != 0)) continue;
            hex_put(commit, json_get_str(entry, "targetCommit", NULL), SHA1_HEX);
        }
    if (!rc && !*commit)
        rc = err_set(why, ERR_ABSENT, "there is no branch or tag '%.60s': expected %s", revision,
                     str_text(&names));
    str_free(&names);
    json_decref(root);
    return rc;
}
