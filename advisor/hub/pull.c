/* pull.c - fetches a model: what a name means, what of it is missing, and the transfers one after the other.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "advisor/hub/hub_internal.h"

/* ---------------------------------------------------------------- open */

void hub_pull_close(struct hub_pull *p)
{
    if (!p) return;
    for (int k = 0; k < p->n; k++) {
        struct pull_item *i = &p->items[k];
        char *owned[] = { i->name, i->url, i->blob, i->temp, i->lock, i->link, i->link_to };
        for (size_t o = 0; o < COUNT_OF(owned); o++) free(owned[o]);
    }
    free(p->items);
    free(p->folder);
    free(p->mark);
    free(p->mark_text);
    free(p->mark_temp);
    free(p);
}

/* qdyno's own folder for models of Ollama's registry has the layout of Ollama's store. */
static enum err_code own_ollama_folder(char **out, struct err *why)
{
    char *data = NULL;
    struct str path = { 0 };
    enum err_code rc = file_place(&data, FILE_DATA, why);
    if (rc) return rc;
    str_printf(&path, "%s/models/ollama", data);
    free(data);
    *out = str_take(&path);
    return *out ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
}

static enum err_code pull_of_repo(struct hub_pull *p, const struct model_name *name, struct err *why)
{
    struct hub_repo r;
    int *index = NULL, n = 0;
    enum err_code rc = hub_list(&r, p->hub, name, why);
    if (!rc) rc = hub_choose(&index, &n, &r, name, why);
    if (!rc) rc = (name->store == STORE_HF ? pull_of_hub : pull_of_modelscope)(p, &r, index, n, why);
    free(index);
    hub_repo_done(&r);
    return rc;
}

enum err_code hub_pull_open(struct hub_pull **out, struct hub *h, const struct model_name *name,
                            bool into_ollama, struct err *why)
{
    *out = NULL;
    if (!MODEL_STORES[name->store].fetched)
        return err_set(why, ERR_USAGE,
                       "'%s' is no name of a model that can be fetched: expected hf:OWNER/REPO[:TAG], "
                       "ollama:NAME[:TAG] or modelscope:OWNER/REPO",
                       name->repo);
    if (into_ollama && name->store != STORE_OLLAMA)
        return err_set(why, ERR_USAGE,
                       "--into ollama: expected a name of Ollama's registry, such as ollama:llama3.2:3b "
                       "or ollama:hf.co/OWNER/REPO:TAG, got '%s'",
                       name->repo);
    struct hub_pull *p = calloc(1, sizeof *p);
    if (!p) return err_set(why, ERR_NOMEM, "out of memory");
    p->hub = h;
    model_name_text(name, p->name, sizeof p->name);
    enum err_code rc = name->store == STORE_OLLAMA && !into_ollama
                           ? own_ollama_folder(&p->folder, why)
                           : model_store_root(&p->folder, name->store, why);
    if (!rc) rc = name->store == STORE_OLLAMA ? pull_of_ollama(p, name, why) : pull_of_repo(p, name, why);
    if (!rc)
        *out = p;
    else
        hub_pull_close(p);
    return rc;
}

/* ---------------------------------------------------------------- state */

/* Free bytes of the disk of a folder that need not exist; -1: unknown. */
static int64_t free_bytes(const char *folder)
{
    char *path = strdup(folder);
    struct statvfs v;
    int64_t bytes = -1;
    for (char *end; path && *path; *end = '\0') {
        if (!statvfs(path, &v)) {
            bytes = (int64_t)v.f_bavail * (int64_t)v.f_frsize;
            break;
        }
        if (errno != ENOENT || !(end = strrchr(path, '/'))) break;
    }
    free(path);
    return bytes;
}

void hub_pull_state(struct hub_pull_state *out, const struct hub_pull *p)
{
    *out = (struct hub_pull_state){ .files = p->n,
                                    .folder = p->folder,
                                    .path = pull_item_path(&p->items[p->main]),
                                    .free_bytes = free_bytes(p->folder) };
    snprintf(out->name, sizeof out->name, "%s", p->name);
    for (int i = 0; i < p->n; i++) {
        out->bytes += p->items[i].size;
        const bool here = pull_item_is_here(&p->items[i]);
        out->missing_files += !here;
        if (!here) out->missing_bytes += p->items[i].size - pull_item_partial(&p->items[i]);
    }
}

/* ---------------------------------------------------------------- run */

struct running {
    void (*progress)(void *ctx, const struct hub_progress *at);
    void *ctx;
    struct hub_progress at;
    int64_t before; /* bytes of the files that are complete */
};

static void item_progress(void *ctx, int64_t done, bool checking, double rate, int connections)
{
    struct running *r = ctx;
    r->at.done_bytes = r->before + done;
    r->at.checking = checking;
    r->at.rate_bytes = checking ? (double)NAN : rate;
    r->at.left_s = rate > 0 && !checking ? (double)(r->at.bytes - r->at.done_bytes) / rate : (double)NAN;
    r->at.connections = connections;
    if (r->progress) r->progress(r->ctx, &r->at);
}

static struct fetch_spec spec_of(const struct hub_pull *p, const struct pull_item *i, const char *temp,
                                 struct running *r)
{
    return (struct fetch_spec){ .hub = p->hub,
                                .what = i->name,
                                .url = i->url,
                                .temp = temp,
                                .size = i->size,
                                .sha256 = i->sha256,
                                .git_sha1 = i->git_sha1,
                                .progress = item_progress,
                                .ctx = r };
}

/* Under the lock of the item; without locks, into a file of this process. */
static enum err_code item_fetch(struct hub_pull *p, const struct pull_item *i, bool alone, struct running *r,
                                struct err *why)
{
    struct pull_item mine = *i;
    char *own = NULL;
    enum err_code rc = pull_make_parent(i->temp, why);
    if (!rc && !alone) rc = pull_temp_own(&own, i, why);
    if (rc) return rc;
    if (own)
        mine.temp = own;
    else
        pull_adopt(i);
    const struct fetch_spec s = spec_of(p, i, mine.temp, r);
    rc = fetch_file(&s, why);
    if (!rc) rc = pull_publish(&mine, why);
    if (rc && own) unlink(own); /* nobody would find it */
    free(own);
    return rc;
}

/* Has a file that is here by its path and size other bytes than the server promises? */
static enum err_code item_is_other(bool *other, struct hub_pull *p, const struct pull_item *i,
                                   struct running *r, struct err *why)
{
    const struct fetch_spec s = spec_of(p, i, i->temp, r);
    *other = false;
    if (pull_item_is_named_by_hash(i)) return ERR_OK;
    *other = !*i->sha256 && !*i->git_sha1;
    if (*other) return ERR_OK;
    const enum err_code rc = fetch_check(&s, i->blob, why);
    *other = rc == ERR_FORMAT || rc == ERR_IO;
    if (*other)
        hub_note(p->hub, "%s: the file that is here has other bytes than the server's: fetching it", i->name);
    return *other ? ERR_OK : rc;
}

static enum err_code item_run(struct hub_pull *p, const struct pull_item *i, struct running *r, bool *fresh,
                              struct err *why)
{
    int lock = -1;
    bool alone, other = false;
    enum err_code rc = pull_lock(&lock, &alone, p, i, why);
    bool here = !rc && pull_item_is_here(i);
    if (here) rc = item_is_other(&other, p, i, r, why);
    here = here && !other;
    if (here && alone) (void)unlink(i->temp); /* of an attempt before another program fetched it */
    *fresh = !rc && !here;
    if (*fresh) rc = item_fetch(p, i, alone, r, why);
    pull_unlock(lock);
    return rc;
}

static enum err_code item_link(struct hub_pull *p, const struct pull_item *i, bool fresh, struct err *why)
{
    int lock = -1;
    bool alone;
    enum err_code rc = pull_lock(&lock, &alone, p, i, why);
    if (!rc && pull_item_is_here(i)) rc = pull_link(i, fresh, why);
    if (!rc && !pull_item_is_here(i))
        rc = err_set(why, ERR_IO, "%s: another program removed '%s' meanwhile: fetch it again", i->name,
                     i->blob);
    pull_unlock(lock);
    return rc;
}

/* Fetches all files, then makes them visible, the one that -m opens last. */
static enum err_code items_run(struct hub_pull *p, struct running *r, struct err *why)
{
    bool *fresh = calloc((size_t)MAX(p->n, 1), sizeof *fresh);
    enum err_code rc = fresh ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
    for (int k = 0; k < p->n && !rc; k++) {
        r->at.file = p->items[k].name;
        rc = item_run(p, &p->items[k], r, &fresh[k], why);
        r->before += p->items[k].size;
    }
    for (int k = 0; k < p->n && !rc; k++)
        if (k != p->main) rc = item_link(p, &p->items[k], fresh[k], why);
    if (!rc && p->n) rc = item_link(p, &p->items[p->main], fresh[p->main], why);
    free(fresh);
    return rc;
}

enum err_code hub_pull_run(struct hub_pull *p, void (*progress)(void *ctx, const struct hub_progress *at),
                           void *ctx, struct err *why)
{
    struct hub_pull_state s;
    struct running r = { .progress = progress, .ctx = ctx };
    char need[16], have[16];
    hub_pull_state(&s, p);
    if (s.free_bytes >= 0 && s.missing_bytes > s.free_bytes)
        return err_set(why, ERR_FIT,
                       "%s needs %s more on the disk of '%s', which has %s free: nothing was transferred",
                       p->name, str_from_bytes(s.missing_bytes, need, sizeof need), p->folder,
                       str_from_bytes(s.free_bytes, have, sizeof have));
    r.at.bytes = s.bytes;
    const enum err_code rc = items_run(p, &r, why);
    return rc ? rc : pull_mark_write(p, why);
}
