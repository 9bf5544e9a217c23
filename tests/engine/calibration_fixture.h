/* tests/engine/calibration_fixture.h - shared by the calibration tests: a temporary folder with small models
 * and a text, and a calibration made from them. */
#ifndef QDYNO_TESTS_ENGINE_CALIBRATION_FIXTURE_H
#define QDYNO_TESTS_ENGINE_CALIBRATION_FIXTURE_H

#include "engine/quant/calibration.h"
#include "engine/gguf/gguf.h"
#include "engine/synth/synth.h"
#include "kernels/kernels.h"
#include "tests/engine/session.h"

static char folder[] = "/tmp/qdyno-test-calibration-XXXXXX";

static inline const char *place(const char *name)
{
    static char path[4][256];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
    return path[next];
}

static inline const char *synth(const char *arch, uint64_t seed)
{
    static const struct synth_shape SMALL = {
        .name = "small", .layers = 3, .heads = 4, .kv_heads = 2, .embd = 64, .ff = 96, .vocab = 512, .ctx = 64
    };
    struct err why = { 0 };
    char name[64];
    snprintf(name, sizeof name, "%s-%d.gguf", arch, (int)seed);
    const char *path = place(name);
    const struct synth_options o = {
        .arch = arch, .shape = &SMALL, .format = &FORMATS[FORMAT_F32], .seed = seed, .threads = 1
    };
    CHECK_OK(synth_write(path, &o, &why));
    return path;
}

static inline void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline char *read_bytes(const char *path, size_t *n)
{
    struct err why = { 0 };
    char *bytes;
    CHECK_OK(file_read(&bytes, n, path, 1 << 28, &why));
    return bytes;
}

static inline bool same_bytes(const char *a, const char *b)
{
    size_t n, m;
    char *x = read_bytes(a, &n), *y = read_bytes(b, &m);
    const bool same = n == m && !memcmp(x, y, n);
    free(x);
    free(y);
    return same;
}

static inline const char *text_file(void)
{
    const char *path = place("text.txt");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 120; i++)
        fprintf(f, "Line %d says that %d times %d is %d, and the miller's cat agrees.\n", i, i, i * 7 % 13,
                i * (i * 7 % 13));
    fclose(f);
    return path;
}

static inline struct calibration *collect(const char *model, int threads, int64_t memory, int64_t tokens)
{
    struct err why = { 0 };
    struct gguf *g;
    struct calibration *c;
    CHECK_OK(gguf_open(&g, model, &why));
    const struct calibration_options o = {
        .path = text_file(), .threads = threads, .ctx = 32, .tokens = tokens, .memory = memory
    };
    CHECK_OK(calibration_obtain(&c, g, &o, &why));
    gguf_close(g);
    return c;
}

static inline uint32_t random_u32(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 32);
}

static inline int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? setenv("XDG_CACHE_HOME", folder, 1) : -1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

#endif
