/* find.c - lists the models of all stores. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "advisor/models/scan.h"

typedef void scan_store_fn(struct scan *s, const char *root);
static scan_store_fn *const SCANS[STORE_COUNT] = {
    [STORE_HF] = scan_hub,
    [STORE_LLAMACPP] = scan_flat,
    [STORE_OLLAMA] = scan_ollama,
    [STORE_LMSTUDIO] = scan_lmstudio,
    [STORE_MODELSCOPE] = scan_modelscope,
};

static enum err_code scan_stores(struct scan *s, struct err *why)
{
    for (int store = 0; store < STORE_COUNT && !s->failed; store++) {
        struct model_roots r;
        if (!SCANS[store]) continue;
        const enum err_code rc = model_roots_of(&r, (enum model_store)store, why);
        if (rc) return rc;
        for (int i = 0; i < r.n && !s->failed; i++) SCANS[store](s, r.path[i]);
        model_roots_done(&r);
    }
    return ERR_OK;
}

static enum err_code scan_folders(struct scan *s, const struct models_options *o, struct err *why)
{
    for (int i = 0; i < o->dirs && !s->failed; i++) {
        /* only this listing reads the folder: a name works after -m if it is a path from anywhere */
        char *whole = realpath(o->dir[i], NULL);
        const bool read = whole && scan_folder(s, whole, true);
        free(whole);
        if (!read && !s->failed)
            return err_set(why, ERR_IO, "--dir %s: expected a folder that can be read", o->dir[i]);
    }
    const char *more = getenv("QDYNO_MODELS");
    for (const char *p = more ? more : ""; *p && !s->failed;) {
        const size_t n = strcspn(p, ":");
        char *folder = strndup(p, n);
        s->failed |= !folder;
        if (folder && *folder && !scan_folder(s, folder, false)) s->out->skipped[SKIPPED_UNREADABLE]++;
        free(folder);
        p += n + (p[n] == ':');
    }
    return ERR_OK;
}

static int by_store_and_name(const void *a, const void *b)
{
    const struct model_entry *x = a, *y = b;
    if (x->hidden != y->hidden) return x->hidden ? 1 : -1;
    const int rank_x = x->store == STORE_PATH ? STORE_COUNT : (int)x->store,
              rank_y = y->store == STORE_PATH ? STORE_COUNT : (int)y->store;
    if (rank_x != rank_y) return rank_x < rank_y ? -1 : 1;
    const int order = strcasecmp(x->name, y->name);
    const int by_file = order ? order : strcmp(x->file, y->file);
    return by_file ? by_file : x->number < y->number ? -1 : x->number > y->number;
}

enum err_code models_find(struct model_list *out, const struct models_options *o, struct err *why)
{
    struct scan s = { .out = out };
    *out = (struct model_list){ .n = 0 };
    enum err_code rc = scan_stores(&s, why);
    if (!rc) rc = scan_folders(&s, o, why);
    if (!rc && s.failed) rc = err_set(why, ERR_NOMEM, "out of memory while listing models");
    name_index_free(&s.rows);
    name_index_free(&s.folders);
    arena_free(&s.names);
    if (!rc && out->n) qsort(out->row, (size_t)out->n, sizeof *out->row, by_store_and_name);
    while (!rc && out->n && out->row[out->n - 1].hidden) { /* the order has put them behind the others */
        out->n--;
        out->revisions++;
    }
    if (!rc && !o->names_only) rc = headers_read(out, o, why);
    return rc;
}

bool models_skipped_text(const struct model_list *l, char *buf, size_t size)
{
    static const struct {
        const char *one, *many;
    } TEXTS[SKIPPED_COUNT] = {
        [SKIPPED_DANGLING] = { "link to a file that is missing", "links to files that are missing" },
        [SKIPPED_UNREADABLE] = { "folder or file that cannot be read",
                                 "folders or files that cannot be read" },
        [SKIPPED_MANIFEST] = { "manifest that is damaged", "manifests that are damaged" },
        [SKIPPED_DEEP] = { "folder that is too deep", "folders that are too deep" },
        [SKIPPED_MANY] = { "file beyond the limit of 200000", "files beyond the limit of 200000" },
    };
    struct str text = { 0 };
    for (int i = 0; i < SKIPPED_COUNT; i++)
        if (l->skipped[i])
            str_printf(&text, "%s%lld %s", text.len ? ", " : "skipped: ", (long long)l->skipped[i],
                       l->skipped[i] == 1 ? TEXTS[i].one : TEXTS[i].many);
    snprintf(buf, size, "%s", str_text(&text));
    str_free(&text);
    return *buf != '\0';
}
