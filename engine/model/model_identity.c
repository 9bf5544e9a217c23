/* An A/B opens the same file dozens of times; hashing it takes as long as loading it. The hash is kept beside
 * the quantized copies, under a key that changes whenever the file does. */
#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A file written to this lately may change again within the resolution of its time stamp. */
enum { SETTLED_MS = 2000 };

/* Where the hash of this file, in this state, is kept. False: it should not be. */
static bool memo_path(struct str *path, const struct gguf *g)
{
    struct stat st;
    char key[HASH_HEX], *folder;
    struct str state = { 0 };
    if (gguf_shards(g) != 1 || stat(gguf_path(g), &st)) return false;
    const int64_t changed_ms = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
    if (clock_unix_ms() - changed_ms < SETTLED_MS || st.st_size != gguf_file_bytes(g)) return false;
    str_printf(&state, "%llu %llu %lld %lld.%09ld %lld.%09ld", (unsigned long long)st.st_dev,
               (unsigned long long)st.st_ino, (long long)st.st_size, (long long)st.st_mtim.tv_sec,
               st.st_mtim.tv_nsec, (long long)st.st_ctim.tv_sec, st.st_ctim.tv_nsec);
    hash_bytes(str_text(&state), state.len, key);
    const bool failed = state.failed;
    str_free(&state);
    if (failed || file_place(&folder, FILE_CACHE, NULL)) return false;
    str_printf(path, "%s/hashes", folder);
    free(folder);
    if (path->failed || file_make_dirs(str_text(path), NULL)) return false;
    str_printf(path, "/%s", key);
    return !path->failed;
}

static bool is_hash(const char *text)
{
    return strlen(text) == HASH_HEX - 1 && strspn(text, "0123456789abcdef") == HASH_HEX - 1;
}

static bool recall(const char *path, char hex[HASH_HEX])
{
    char *text;
    if (file_read(&text, NULL, path, HASH_HEX, NULL)) return false;
    const bool good = is_hash(text);
    if (good) memcpy(hex, text, HASH_HEX);
    free(text);
    return good;
}

static void remember(const char *path, const char *hex)
{
    struct atomic_file f;
    if (atomic_file_open(&f, path, NULL)) return;
    fputs(hex, f.stream);
    atomic_file_commit(&f, NULL);
}

enum err_code model_identity(const struct gguf *g, char hex[HASH_HEX], struct err *why)
{
    struct str path = { 0 };
    const bool kept = memo_path(&path, g);
    enum err_code rc = ERR_OK;
    if (!kept || !recall(str_text(&path), hex)) {
        rc = gguf_hash(g, hex, why);
        if (!rc && kept) remember(str_text(&path), hex);
    }
    str_free(&path);
    return rc;
}

enum err_code model_source_identity(const struct model *m, char hex[HASH_HEX], struct err *why)
{
    const char *path = config_text(model_config(m), KNOB_MODEL);
    if (!strcmp(path, gguf_path(model_gguf(m)))) return model_identity(model_gguf(m), hex, why);
    struct gguf *g;
    enum err_code rc = gguf_open(&g, path, why);
    if (rc) return rc;
    rc = model_identity(g, hex, why);
    gguf_close(g);
    return rc;
}
