/* An experiment opens the same file dozens of times, and hashing it takes as long as loading it. So the hash
 * is stored in the cache folder, under a key that changes whenever the file does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "kernels/kernels.h"

/* A file modified less than this ago could change again without a new time stamp (resolution of the file
 * system). */
enum { SETTLED_MS = 2000 };

/* Part of every key. Hashes that version 1 stored could belong to a file that was replaced while it was
 * hashed. */
#define MEMO_VERSION "2"

/* Path of the stored hash of a model in state `st`, the state of the opened descriptor: its path can name
 * another file by now. False: the hash must not be stored. */
static bool memo_path(struct str *path, const struct file_state *st)
{
    char key[HASH_HEX], *folder;
    struct str state = { 0 };
    const int64_t changed_ns = MAX(st->modified_ns, st->status_ns);
    if (clock_unix_ms() - changed_ns / 1000000 < SETTLED_MS) return false;
    str_printf(&state, MEMO_VERSION " %llu %llu %lld %lld %lld", (unsigned long long)st->device,
               (unsigned long long)st->inode, (long long)st->size, (long long)st->modified_ns,
               (long long)st->status_ns);
    hash_bytes(str_text(&state), state.len, key);
    const bool failed = state.failed;
    str_free(&state);
    if (failed || file_place(&folder, FILE_CACHE, NULL)) return false;
    str_printf(path, "%s/hashes", folder);
    free(folder);
    if (path->failed || file_make_dirs(str_text(path), NULL)) return false;
    file_make_private(str_text(path));
    str_printf(path, "/%s", key);
    return !path->failed;
}

static bool is_hash(const char *text)
{
    return strlen(text) == HASH_HEX - 1 && strspn(text, "0123456789abcdef") == HASH_HEX - 1;
}

static bool memo_read(const char *path, char hex[HASH_HEX])
{
    char *text;
    if (file_read(&text, NULL, path, HASH_HEX, NULL)) return false;
    const bool good = is_hash(text);
    if (good) memcpy(hex, text, HASH_HEX);
    free(text);
    return good;
}

static void memo_write(const char *path, const char *hex)
{
    struct atomic_file f;
    if (atomic_file_open(&f, path, NULL)) return;
    fputs(hex, f.stream);
    if (!atomic_file_commit(&f, NULL)) file_make_private(path);
}

enum err_code model_identity(const struct gguf *g, char hex[HASH_HEX], struct err *why)
{
    struct str path = { 0 };
    struct file_state before, after;
    enum err_code rc = gguf_check_unchanged(g, why);
    if (rc) return rc;
    const bool kept = gguf_state(g, &before) && memo_path(&path, &before);
    if (!kept || !memo_read(str_text(&path), hex)) {
        rc = gguf_hash(g, hex, why);
        if (!rc) rc = gguf_check_unchanged(g, why); /* did it change while it was hashed? */
        if (!rc && kept && gguf_state(g, &after) && !memcmp(&before, &after, sizeof before))
            memo_write(str_text(&path), hex);
    }
    str_free(&path);
    return rc;
}

bool model_identity_known(const struct gguf *g, char hex[HASH_HEX])
{
    struct str path = { 0 };
    struct file_state state;
    const bool known = gguf_state(g, &state) && memo_path(&path, &state) && memo_read(str_text(&path), hex);
    str_free(&path);
    return known;
}

bool model_path_identity_known(const char *path, char hex[HASH_HEX])
{
    struct str memo = { 0 };
    struct file_map map;
    if (file_map(&map, path, NULL)) return false;
    const bool known = memo_path(&memo, &map.opened) && memo_read(str_text(&memo), hex);
    file_unmap(&map);
    str_free(&memo);
    return known;
}

enum err_code model_source_identity(const struct model *m, char hex[HASH_HEX], struct err *why)
{
    const char *known = model_source_hash(m);
    if (!known[0]) return model_identity(model_gguf(m), hex, why);
    memcpy(hex, known, HASH_HEX);
    return ERR_OK;
}
