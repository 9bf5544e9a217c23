/* What a collector answers comes from the network: whatever it holds, reading it ends, never looks behind its
 * end, and gives a message that is text. */
#include <stdlib.h>
#include <string.h>

#include "telemetry/otlp/otlp.h"
#include "tests/fuzz/cost.h"

static const struct cost_ceiling CEILING = { .seconds = 0.02, .seconds_per_mb = 5, .mb = 1, .mb_per_mb = 20 };

static void use(const uint8_t *data, size_t size)
{
    struct otlp_answer answer;
    unsigned char *exact = malloc(size ? size : 1); /* a sanitizer sees one byte too many */
    if (!exact) return;
    memcpy(exact, data, size);
    const bool good = otlp_answer_parse(&answer, exact, size);
    const char *end = memchr(answer.message, '\0', sizeof answer.message);
    if (!end) abort();
    if (good && answer.rejected < 0) abort();
    for (const char *at = answer.message; at < end;) {
        uint32_t c;
        const size_t left = (size_t)(end - at), n = str_utf8_next(at, left, &c);
        if (c < 0x20 || (c == 0xfffd && n == 1)) abort(); /* no control characters, and valid UTF-8 */
        at += n;
    }
    free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return cost_run(use, data, size, &CEILING);
}
