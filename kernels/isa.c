/* Names of instruction sets, and the environment variable QDYNO_ISA, which can disable some. Detection
 * depends on the architecture (isa/detect_x86.c, isa/detect_arm.c) and is called through select.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "kernels/kernels.h"

enum {
    WITH_AVX2 = ISA_SSE41 | ISA_AVX2,
    WITH_AVX512 = WITH_AVX2 | ISA_AVX512,
    WITH_VNNI = WITH_AVX512 | ISA_AVX512VNNI,
    WITH_BF16 = WITH_VNNI | ISA_AVX512BF16,
    EVERYTHING = WITH_BF16 | ISA_AVXVNNI | ISA_AMX | ISA_NEON | ISA_DOTPROD,
};

const struct isa_level ISA_LEVELS[] = {
    { .name = "ref", .bits = 0 },
    { .name = "sse41", .bits = ISA_SSE41 },
    { .name = "avx2", .bits = WITH_AVX2 },
    { .name = "avxvnni", .bits = WITH_AVX2 | ISA_AVXVNNI },
    { .name = "avx512", .bits = WITH_AVX512 },
    { .name = "avx512vnni", .bits = WITH_VNNI },
    { .name = "avx512bf16", .bits = WITH_BF16 },
    { .name = "amx", .bits = WITH_BF16 | ISA_AMX },
    { .name = "neon", .bits = ISA_NEON },
    { .name = "dotprod", .bits = ISA_NEON | ISA_DOTPROD },
    { .name = "all", .bits = EVERYTHING },
};
const size_t ISA_LEVEL_COUNT = COUNT_OF(ISA_LEVELS);

enum err_code isa_parse(uint32_t *out, const char *names, struct err *why)
{
    uint32_t bits = 0;
    for (const char *p = names;; p++) {
        const size_t n = strcspn(p, ",");
        size_t i = 0;
        while (i < ISA_LEVEL_COUNT &&
               (strlen(ISA_LEVELS[i].name) != n || strncasecmp(ISA_LEVELS[i].name, p, n)))
            i++;
        if (i == ISA_LEVEL_COUNT) {
            const char *known[COUNT_OF(ISA_LEVELS)];
            char word[64];
            for (size_t j = 0; j < ISA_LEVEL_COUNT; j++) known[j] = ISA_LEVELS[j].name;
            snprintf(word, sizeof word, "%.*s", (int)MIN(n, sizeof word - 1), p);
            const char *near = str_nearest(word, known, ISA_LEVEL_COUNT);
            return err_set(why, ERR_USAGE,
                           "no instruction set '%s'%s%s; known: ref sse41 avx2 avxvnni avx512 avx512vnni "
                           "avx512bf16 amx neon dotprod all",
                           word, near ? ", did you mean " : "", near ? near : "");
        }
        bits |= ISA_LEVELS[i].bits;
        p += n;
        if (!*p) break;
    }
    *out = bits;
    return ERR_OK;
}

enum err_code isa_usable(uint32_t *out, struct err *why)
{
    const char *allowed = getenv("QDYNO_ISA");
    uint32_t bits = EVERYTHING;
    if (allowed && *allowed && isa_parse(&bits, allowed, why)) return err_prefix(why, "QDYNO_ISA");
    *out = isa_detect() & bits;
    return ERR_OK;
}

const char *isa_names(uint32_t bits, char *buf, size_t size)
{
    static const struct isa_level BITS[] = {
        { .name = "sse41", .bits = ISA_SSE41 },
        { .name = "avx2", .bits = ISA_AVX2 },
        { .name = "avxvnni", .bits = ISA_AVXVNNI },
        { .name = "avx512", .bits = ISA_AVX512 },
        { .name = "avx512vnni", .bits = ISA_AVX512VNNI },
        { .name = "avx512bf16", .bits = ISA_AVX512BF16 },
        { .name = "amx", .bits = ISA_AMX },
        { .name = "neon", .bits = ISA_NEON },
        { .name = "dotprod", .bits = ISA_DOTPROD },
    };
    size_t used = 0;
    if (size) buf[0] = 0;
    for (size_t i = 0; i < COUNT_OF(BITS); i++) {
        if (!(bits & BITS[i].bits) || used >= size) continue;
        used += (size_t)snprintf(buf + used, size - used, "%s%s", used ? " " : "", BITS[i].name);
    }
    if (!used) snprintf(buf, size, "ref");
    return buf;
}
