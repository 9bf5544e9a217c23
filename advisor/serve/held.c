/* Holds back generated text that may not be shown yet (parts.h): the beginning of a stop string, because the
 * next bytes decide whether it is one, and the first bytes of a character. */
#include <string.h>

#include "advisor/serve/parts.h"

/* Where the stop string begins that is complete first, of several the longest; n: there is none. That one
 * ends the text, even if another has begun before: so the result does not depend on the pieces that the text
 * came in. */
static size_t stop_find(const struct held *h, const char *text, size_t n)
{
    size_t first = n, end = n + 1;
    for (int i = 0; i < h->stops; i++) {
        const size_t length = strlen(h->stop[i]);
        const char *at = memmem(text, n, h->stop[i], length);
        const size_t begin = at ? (size_t)(at - text) : n;
        if (!at || begin + length > end || (begin + length == end && begin > first)) continue;
        first = begin, end = begin + length;
    }
    return first;
}

/* Length of the longest end of text[0..n) that a stop string begins with. */
static size_t stop_begun(const struct held *h, const char *text, size_t n)
{
    size_t longest = 0;
    for (int i = 0; i < h->stops; i++) {
        size_t k = MIN(strlen(h->stop[i]) - 1, n);
        while (k > longest && memcmp(text + n - k, h->stop[i], k)) k--;
        longest = MAX(longest, k);
    }
    return longest;
}

static void held_release(struct held *h, size_t n, struct str *out)
{
    str_append_n(out, str_text(&h->kept), n);
    h->length += n;
    h->kept.len -= n;
    if (h->kept.len) memmove(h->kept.data, h->kept.data + n, h->kept.len);
}

void held_push(struct held *h, const char *bytes, size_t n, struct str *out)
{
    if (h->stopped) return;
    str_append_n(&h->kept, bytes, n);
    const char *text = str_text(&h->kept);
    const size_t found = stop_find(h, text, h->kept.len);
    if (found < h->kept.len) {
        held_release(h, found, out);
        h->stopped = true;
        h->kept.len = 0;
        return;
    }
    const size_t keep = MAX(stop_begun(h, text, h->kept.len), str_utf8_unfinished(text, h->kept.len));
    held_release(h, h->kept.len - keep, out);
}

void held_finish(struct held *h, struct str *out)
{
    held_release(h, h->kept.len, out);
}

void held_free(struct held *h)
{
    str_free(&h->kept);
}
