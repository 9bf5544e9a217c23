/* digest.c - hashes a file while its bytes arrive: SHA-256, or git's SHA-1 of small files. */
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "advisor/hub/hub_internal.h"

struct fetch_digest {
    const struct fetch_spec *s;
    EVP_MD_CTX *context; /* NULL: no hash is known */
    const char *want;
};

enum err_code fetch_digest_open(struct fetch_digest **out, const struct fetch_spec *s, struct err *why)
{
    struct fetch_digest *d = *out = calloc(1, sizeof *d);
    if (!d) return err_set(why, ERR_NOMEM, "out of memory");
    const bool git = !(s->sha256 && *s->sha256) && s->git_sha1 && *s->git_sha1;
    *d = (struct fetch_digest){ .s = s, .want = git ? s->git_sha1 : s->sha256 };
    if (!d->want || !*d->want) return ERR_OK;
    d->context = EVP_MD_CTX_new();
    if (!d->context || EVP_DigestInit_ex(d->context, git ? EVP_sha1() : EVP_sha256(), NULL) != 1) {
        fetch_digest_close(d);
        *out = NULL;
        return err_set(why, ERR_NOMEM, "out of memory for hashing");
    }
    char head[40];
    if (git) fetch_digest_add(d, head, (size_t)snprintf(head, sizeof head, "blob %" PRId64, s->size) + 1);
    return ERR_OK;
}

bool fetch_digest_is_known(const struct fetch_digest *d)
{
    return d->context;
}

void fetch_digest_add(struct fetch_digest *d, const void *bytes, size_t n)
{
    if (d->context) EVP_DigestUpdate(d->context, bytes, n);
}

enum err_code fetch_digest_check(struct fetch_digest *d, struct err *why)
{
    unsigned char raw[EVP_MAX_MD_SIZE];
    char hex[2 * EVP_MAX_MD_SIZE + 1] = "";
    unsigned n = 0;
    if (!d->context) return ERR_OK;
    EVP_DigestFinal_ex(d->context, raw, &n);
    for (unsigned i = 0; i < n; i++) snprintf(hex + 2 * i, 3, "%02x", raw[i]);
    if (!strcasecmp(hex, d->want)) return ERR_OK;
    return err_set(why, ERR_FORMAT, "%s: the bytes that arrived have the hash %.12s..., expected %.12s...",
                   d->s->what, hex, d->want);
}

void fetch_digest_close(struct fetch_digest *d)
{
    if (!d) return;
    EVP_MD_CTX_free(d->context);
    free(d);
}
