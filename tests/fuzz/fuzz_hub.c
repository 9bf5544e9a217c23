/* What a hub answers: lists of files, branches, search results, manifests, and the headers that lead to the
 * next page or say which bytes follow. Whatever they are, they are refused with a message, or every path of
 * the result stays in its folder and every hash is one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/hub/hub_internal.h"
#include "tests/fuzz/cost.h"

static const struct cost_ceiling CEILING = { .seconds = 1, .seconds_per_mb = 20, .mb = 64, .mb_per_mb = 400 };

typedef enum err_code list_fn(struct hub_repo *r, const char *text, size_t n, struct err *why);

static void list_use(list_fn *parse, const char *text, size_t n)
{
    struct hub_repo r = { .store = STORE_HF };
    struct err why = { 0 };
    const enum err_code rc = parse(&r, text, n, &why);
    if (rc && (rc != ERR_FORMAT || !why.message[0])) abort();
    for (int i = 0; i < r.n; i++) {
        const struct hub_file *f = &r.files[i];
        if (!hub_path_is_safe(f->path) || strstr(f->path, "/../") || f->size < 0) abort();
        if (*f->sha256 && !hub_is_hex(f->sha256, HASH_HEX - 1)) abort();
    }
    hub_repo_done(&r);
}

static void headers_use(const char *text)
{
    char url[512], etag[HUB_ETAG], repo[256];
    int64_t first, last, total;
    if (hub_link_next(text, url, sizeof url) && strlen(url) >= sizeof url) abort();
    if (hub_range_parse(text, &first, &last, &total) &&
        (first < 0 || last < first || (total >= 0 && last >= total)))
        abort();
    if (hub_etag_parse(text, etag) && (strchr(etag, '/') || *etag == '.')) abort();
    if (hub_repo_of_url(text, repo) && !hub_path_is_safe(repo)) abort();
    if (hub_rate_limit_s(text) < 0) abort();
}

static void use(const uint8_t *data, size_t size)
{
    struct hub_found *found = NULL;
    struct err why = { 0 };
    char commit[HUB_COMMIT], *text = malloc(size + 1);
    int n = 0;
    if (!text) abort();
    memcpy(text, data, size);
    text[size] = '\0';
    list_use(hub_tree_parse, text, size);
    list_use(hub_modelscope_parse, text, size);
    list_use(hub_manifest_parse, text, size);
    enum err_code rc = hub_search_parse(&found, &n, text, size, &why);
    if (rc && (rc != ERR_FORMAT || !why.message[0] || found || n)) abort();
    for (int i = 0; i < n; i++)
        if (!hub_path_is_safe(found[i].id)) abort();
    hub_found_free(found, n);
    rc = hub_refs_parse(commit, text, size, "main", &why);
    if (rc ? rc != ERR_FORMAT && rc != ERR_ABSENT : !hub_is_hex(commit, strlen(commit))) abort();
    headers_use(text);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return cost_run(use, data, size, &CEILING);
}
