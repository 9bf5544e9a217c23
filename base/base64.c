#include "base/base64.h"

#include <limits.h>
#include <openssl/evp.h>
#include <stdlib.h>

bool base64_decode(const char *text, size_t n, struct str *out)
{
    if (n % 4 || n > INT_MAX) return false;
    if (!n) return true;
    unsigned char *bytes = malloc(n / 4 * 3);
    if (!bytes) {
        out->failed = true;
        return false;
    }
    const int used = EVP_DecodeBlock(bytes, (const unsigned char *)text,
                                     (int)n); /* counts padding as zeros */
    const int padding = (text[n - 1] == '=') + (text[n - 2] == '=');
    if (used >= padding) str_append_n(out, (const char *)bytes, (size_t)(used - padding));
    free(bytes);
    return used >= padding && !out->failed;
}
