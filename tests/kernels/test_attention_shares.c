/* Proves: attention to the shares of several caches, merged in the order of positions, agrees with a binary64
 * softmax over all of them, for windows, chunks, sinks, soft caps, prompts and decoding, and with AMX tiles
 * where the machine has them. With batch_invariant, it has the bits of attention with one cache. A cache
 * never gives a position that it does not have (its unwritten slots hold NaN). */
#include "tests/kernels/attention_scene.h"

static const struct scene SCENES[] = {
    { FORMAT_F16, FORMAT_F16, 8, 2, 64, 64, 32, 2100, 5, 1, 0, 0, 0, false, false },
    { FORMAT_F32, FORMAT_F32, 4, 4, 16, 16, 32, 3000, 70, 1, 0, 0, 0, true, false },
    { FORMAT_F16, FORMAT_F16, 4, 1, 64, 64, 32, 1000, 60, 2, 0, 0, 0, true, false },
    { FORMAT_Q8_0, FORMAT_Q4_0, 8, 2, 128, 64, 32, 2040, 12, 2, 1500, 30, 0, true, false },
    { FORMAT_BF16, FORMAT_F16, 16, 1, 128, 128, 32, 1500, 90, 1, 70, 0, 0, true, false },
    { FORMAT_F32, FORMAT_F32, 2, 1, 40, 24, 32, 1100, 2, 2, 0, 0, 1500, true, false },
    { FORMAT_F16, FORMAT_F16, 16, 1, 144, 128, 32, 1100, 3, 1, 0, 0, 0, false, true },
    { FORMAT_FP8_E4M3, FORMAT_FP8_E4M3, 8, 2, 64, 64, 32, 40, 30, 3, 0, 0, 0, false, false },
};

/* Positions of each cache: those of its blocks, all of the scene's sequence. */
static void store_part(struct backend *b, const struct stage *t, struct kv_layer *kv,
                       const struct attention_share *share)
{
    const struct scene *s = t->s;
    int32_t *slots = malloc((size_t)t->tokens * sizeof *slots);
    kv->blocks = s->sequences;
    kv->block_tokens = (share_before(share, t->total) + 31) / 32 * 32 + 32;
    const size_t bytes = (size_t)kv_layer_bytes(kv);
    const int64_t k_rows = (int64_t)kv->blocks * kv->block_tokens * kv->kv_heads;
    kv->k = backend_alloc(b, bytes);
    kv->v = kv->v_in_k ? kv->k : (char *)kv->k + k_rows * format_row_bytes(kv->k_format, kv->k_dim);
    memset(kv->k, 0xff, bytes);
    for (int i = 0; i < t->tokens; i++) {
        const int pos = i % t->total;
        const bool own = share_owner(share->parts, pos / SHARE_TOKENS) == share->part;
        slots[i] = own ? i / t->total * kv->block_tokens + share_before(share, pos) : -1;
    }
    backend_kv_store(b, &(struct kv_store){ .kv = kv,
                                            .k = t->k,
                                            .v = t->v,
                                            .k_stride = s->kv_heads * s->k_dim,
                                            .v_stride = s->kv_heads * s->v_dim,
                                            .n = t->tokens,
                                            .slots = slots });
    free(slots);
}

/* Rows [from, from + n) over `parts` caches -> t->y. */
static void run_shares(struct backend *b, struct stage *t, const struct kv_layer *caches, int parts, int from,
                       int n)
{
    const struct scene *s = t->s;
    const int blocks = (t->total - 1) / SHARE_TOKENS + 1, most = (blocks - 1) / parts + 1;
    const int64_t floats = attention_share_floats(s->v_dim),
                  part_floats = (int64_t)n * s->heads * most * floats;
    float *out = malloc((size_t)(parts * part_floats) * sizeof *out);
    for (int i = 0; i < parts; i++) {
        const struct attention_share share = { parts, i, 0, most, out + i * part_floats };
        struct attention p = stage_attention(t, t->q + (int64_t)from * s->heads * s->k_dim, NULL);
        p.kv = &caches[i];
        p.n = n;
        p.pos += from;
        p.seq += from;
        p.tables = NULL;
        p.sinks = s->sinks ? t->sinks : NULL;
        p.share = &share;
        backend_attention(b, &p);
    }
    for (int64_t v = 0; v < (int64_t)n * s->heads; v++) {
        struct attention_sum sum = { 0 };
        float *y = t->y + ((int64_t)from * s->heads + v) * s->v_dim;
        for (int k = 0; k < blocks; k++) {
            const float *x = out + share_owner(parts, k) * part_floats + (v * most + k / parts) * floats;
            attention_sum_add(&sum, y, (struct attention_sum){ x[0], x[1] }, x + ATTENTION_SUM_HEAD,
                              s->v_dim);
        }
        attention_sum_finish(&sum, y, s->v_dim);
    }
    free(out);
}

static struct backend *open_backend(const struct scene *s, const struct isa_level *level,
                                    enum precision precision, bool invariant)
{
    struct backend *b;
    struct err why;
    const struct backend_work work = {
        .rows = s->n * s->sequences, .cols = 1024, .heads = s->heads, .context = s->past + s->n
    };
    const struct backend_options o = {
        .threads = 2, .isa = level->bits, .precision = precision, .batch_invariant = invariant
    };
    CHECK_OK(backend_open(&b, "cpu", &o, &why));
    CHECK_OK(backend_reserve(b, &work, &why));
    return b;
}

/* The scene with one cache -> y. */
static void run_whole(struct backend *b, struct stage *t, float *y)
{
    const struct attention_share all = { .parts = 1 };
    struct kv_layer kv = t->kv;
    store_part(b, t, &kv, &all);
    struct attention p = stage_attention(t, t->q, y);
    p.kv = &kv;
    p.tables = NULL;
    p.sinks = t->s->sinks ? t->sinks : NULL;
    backend_attention(b, &p);
    backend_free(b, kv.k);
}

static void check_scene(const struct scene *s, const struct isa_level *level, enum precision precision,
                        bool invariant, int parts)
{
    struct backend *b = open_backend(s, level, precision, invariant);
    struct kv_layer caches[8];
    struct stage t;
    struct rng r = { 5 };
    char what[64];
    stage_make(&t, s, &r);
    const size_t bytes = (size_t)(t.rows * s->heads * s->v_dim) * sizeof(float);
    float *whole = malloc(bytes);
    for (int i = 0; i < parts; i++) {
        caches[i] = t.kv;
        store_part(b, &t, &caches[i], &(struct attention_share){ .parts = parts, .part = i });
    }
    if (invariant) run_whole(b, &t, whole);
    const int half = t.rows / 2; /* two calls: rows that are not the first of a call */
    if (half) run_shares(b, &t, caches, parts, 0, half);
    run_shares(b, &t, caches, parts, half, t.rows - half);
    for (int i = 0; i < parts; i++) backend_free(b, caches[i].k);
    snprintf(what, sizeof what, "scene %d %s precision %d in %d parts", (int)(s - SCENES), level->name,
             precision, parts);
    if (invariant && memcmp(whole, t.y, bytes)) fail_msg("%s: other bits than with one cache", what);
    const bool medium = precision == PRECISION_MEDIUM && !invariant;
    stage_round(&t);
    stage_check(&t, what, medium ? 0.05 : 5e-6, medium ? 6e-5 : 1e-11);
    free(whole);
    stage_free(&t);
    backend_close(b);
}

static void shares(void **state)
{
    (void)state;
    static const int PARTS[] = { 2, 3 };
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    for (size_t l = 0; l < count; l++)
        for (size_t i = 0; i < COUNT_OF(SCENES); i++)
            for (size_t p = 0; p < COUNT_OF(PARTS); p++) {
                check_scene(&SCENES[i], levels[l], p ? PRECISION_HIGHEST : PRECISION_MEDIUM, false, PARTS[p]);
                check_scene(&SCENES[i], levels[l], PRECISION_HIGHEST, true, PARTS[p]);
            }
}

static void positions(void **state)
{
    (void)state;
    for (int parts = 1; parts < 5; parts++) {
        int next[8] = { 0 };
        for (int pos = 0; pos < 9000; pos++) {
            for (int i = 0; i < parts; i++)
                CHECK_EQ(share_before(&(struct attention_share){ .parts = parts, .part = i }, pos), next[i]);
            const int group = pos / SHARE_TOKENS / parts, place = pos / SHARE_TOKENS % parts;
            next[group % 2 ? parts - 1 - place : place]++;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(positions), cmocka_unit_test(shares) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
