#include "base/hash.h"

#include <openssl/evp.h>
#include <stdio.h>

#include "base/file.h"

void hash_bytes(const void *data, size_t n, char hex[HASH_HEX])
{
    unsigned char digest[EVP_MAX_MD_SIZE] = { 0 };
    unsigned len = 0;
    EVP_Digest(data, n, digest, &len, EVP_sha256(), NULL);
    for (int i = 0; i < 32; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
}

enum err_code hash_file(const char *path, char hex[HASH_HEX], struct err *why)
{
    struct file_map map;
    enum err_code rc = file_map(&map, path, why);
    if (rc) return rc;
    hash_bytes(map.data, map.size, hex);
    file_unmap(&map);
    return ERR_OK;
}

uint64_t hash_number(const void *data, size_t n)
{
    const unsigned char *at = data;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < n; i++) h = (h ^ at[i]) * 1099511628211u;
    return h;
}
