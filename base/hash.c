#include "base/hash.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <sys/mman.h>

enum { PIECE = 8 << 20 };

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

/* Hashes a private mapping and releases its pages while reading. */
static enum err_code hash_view(const unsigned char *view, size_t n, char hex[HASH_HEX], struct err *why)
{
    unsigned char digest[EVP_MAX_MD_SIZE] = { 0 };
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    bool good = c && EVP_DigestInit_ex(c, EVP_sha256(), NULL);
    for (size_t at = 0; at < n && good; at += PIECE) {
        const size_t bytes = n - at < PIECE ? n - at : PIECE;
        good = EVP_DigestUpdate(c, view + at, bytes);
        madvise((void *)(view + at), bytes,
                MADV_DONTNEED); /* failure is harmless: more memory stays in use */
    }
    good = good && EVP_DigestFinal_ex(c, digest, NULL);
    EVP_MD_CTX_free(c);
    if (!good) return err_set(why, ERR_NOMEM, "out of memory hashing %zu bytes", n);
    write_hex(digest, hex);
    return ERR_OK;
}

enum err_code hash_map(const struct file_map *map, char hex[HASH_HEX], struct err *why)
{
    /* with an old size of 0, mremap maps the same pages a second time */
    void *view = map->size ? mremap((void *)map->data, 0, map->size, MREMAP_MAYMOVE) : MAP_FAILED;
    if (view == MAP_FAILED) {
        hash_bytes(map->data, map->size, hex);
        return ERR_OK;
    }
    const enum err_code rc = hash_view(view, map->size, hex, why);
    munmap(view, map->size);
    return rc;
}

enum err_code hash_file(const char *path, char hex[HASH_HEX], struct err *why)
{
    struct file_map map;
    enum err_code rc = file_map(&map, path, why);
    if (rc) return rc;
    rc = hash_view(map.data, map.size, hex, why);
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
