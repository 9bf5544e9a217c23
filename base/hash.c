#include "base/hash.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"

enum { PIECE = 1 << 20 };

void hash_outlive_exit(void)
{
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
}

static void write_hex(const unsigned char digest[32], char hex[HASH_HEX])
{
    for (int i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

void hash_bytes(const void *data, size_t n, char hex[HASH_HEX])
{
    unsigned char digest[EVP_MAX_MD_SIZE] = { 0 };
    unsigned len = 0;
    EVP_Digest(data, n, digest, &len, EVP_sha256(), NULL);
    write_hex(digest, hex);
}

/* Hashes `n` bytes of the file. It is read instead of mapped, so that pages do not stay in memory, and a file
 * that becomes shorter or fails is an error here. */
static enum err_code hash_descriptor(const struct file_map *map, unsigned char *piece, EVP_MD_CTX *c,
                                     struct err *why)
{
    for (size_t at = 0; at < map->size;) {
        const ssize_t n = pread(map->fd, piece, MIN(PIECE, map->size - at), (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return err_set(why, ERR_IO, "cannot read '%s': %s", map_guard_path(map->guard), strerror(errno));
        if (n == 0) {
            const enum err_code rc = file_map_check(map, why);
            return rc ? rc : err_set(why, ERR_FORMAT, "'%s' ends early", map_guard_path(map->guard));
        }
        if (!EVP_DigestUpdate(c, piece, (size_t)n)) return err_set(why, ERR_NOMEM, "out of memory hashing");
        at += (size_t)n;
    }
    return ERR_OK;
}

enum err_code hash_map(const struct file_map *map, char hex[HASH_HEX], struct err *why)
{
    unsigned char digest[EVP_MAX_MD_SIZE] = { 0 }, *piece = malloc(PIECE);
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    enum err_code rc = piece && c && EVP_DigestInit_ex(c, EVP_sha256(), NULL)
                           ? hash_descriptor(map, piece, c, why)
                           : err_set(why, ERR_NOMEM, "out of memory hashing %zu bytes", map->size);
    if (!rc && !EVP_DigestFinal_ex(c, digest, NULL)) rc = err_set(why, ERR_NOMEM, "out of memory hashing");
    if (!rc) write_hex(digest, hex);
    EVP_MD_CTX_free(c);
    free(piece);
    return rc;
}

enum err_code hash_file(const char *path, char hex[HASH_HEX], struct err *why)
{
    struct file_map map;
    enum err_code rc = file_map(&map, path, why);
    if (rc) return rc;
    rc = hash_map(&map, hex, why);
    file_unmap(&map);
    return rc;
}

uint64_t hash_number(const void *data, size_t n)
{
    const unsigned char *at = data;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < n; i++) h = (h ^ at[i]) * 1099511628211u;
    return h;
}
