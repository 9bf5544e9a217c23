/* Proves: backend_attention agrees with a naive binary64 softmax for every cache format and instruction set,
 * over head sizes that are no multiple of anything, grouped heads, several sequences in one batch, scattered
 * cache blocks, windows, soft caps, decoding and prompts; and never reads a token that is not the row's own
 * (unwritten slots hold NaN). */
#include "tests/kernels/numbers.h"

struct scene {
    enum format_id k, v;
    int heads, kv_heads, k_dim, v_dim, block_tokens;
    int past, n; /* tokens before, and rows of the batch, of each of `sequences` */
    int sequences, window;
    float softcap;
};

static const struct scene SCENES[] = {
    { FORMAT_F32, FORMAT_F32, 4, 4, 16, 16, 16, 0, 1, 1, 0, 0 },
    { FORMAT_F32, FORMAT_F32, 6, 2, 12, 12, 8, 0, 33, 1, 0, 0 },
    { FORMAT_F32, FORMAT_F16, 4, 1, 24, 20, 5, 100, 3, 2, 0, 0 },
    { FORMAT_F16, FORMAT_F16, 8, 2, 64, 64, 32, 200, 70, 1, 0, 0 },
    { FORMAT_F16, FORMAT_F16, 32, 8, 64, 64, 16, 300, 1, 5, 0, 0 },
    { FORMAT_BF16, FORMAT_BF16, 5, 5, 80, 80, 16, 10, 20, 2, 17, 0 },
    { FORMAT_Q8_0, FORMAT_Q8_0, 4, 2, 64, 32, 16, 70, 1, 2, 0, 0 },
    { FORMAT_Q8_0, FORMAT_Q4_0, 9, 3, 96, 128, 64, 7, 90, 1, 0, 0 },
    { FORMAT_Q4_0, FORMAT_Q4_0, 4, 4, 32, 32, 16, 130, 2, 3, 64, 0 },
    { FORMAT_F32, FORMAT_F32, 71, 1, 64, 64, 16, 20, 3, 1, 0, 0 },
    { FORMAT_F32, FORMAT_F32, 2, 1, 256, 256, 16, 65, 4, 1, 0, 30 },
    { FORMAT_F16, FORMAT_F16, 140, 1, 8, 8, 16, 20, 40, 1, 5, 0 },
    { FORMAT_FP8_E4M3, FORMAT_FP8_E4M3, 8, 2, 64, 64, 16, 150, 1, 2, 0, 0 },
    { FORMAT_FP8_E5M2, FORMAT_FP8_E4M3, 6, 3, 45, 90, 8, 70, 50, 1, 40, 0 },
    { FORMAT_INT8, FORMAT_FP8_E5M2, 4, 4, 32, 50, 16, 33, 3, 2, 0, 30 },
    { FORMAT_FP8_E4M3, FORMAT_FP8_E4M3, 8, 2, 64, 64, 32, 90, 40, 1, 0, 0 },
    { FORMAT_FP8_E5M2, FORMAT_F16, 4, 4, 32, 96, 16, 30, 12, 3, 0, 20 },
    { FORMAT_Q8_0, FORMAT_FP8_E4M3, 16, 1, 128, 32, 32, 200, 2, 2, 50, 0 },
    /* One sequence, few pieces: positions are split, also where windows leave stretches without a token. */
    { FORMAT_F16, FORMAT_F16, 4, 1, 64, 64, 32, 1000, 1, 1, 0, 0 },
    { FORMAT_F16, FORMAT_BF16, 8, 1, 64, 64, 32, 900, 4, 1, 0, 0 },
    { FORMAT_Q4_0, FORMAT_Q8_0, 4, 2, 64, 64, 32, 900, 8, 1, 600, 0 },
    { FORMAT_F32, FORMAT_F32, 2, 1, 40, 24, 16, 700, 2, 2, 0, 0 },
    /* More than one piece of rows, blocks that tiles straddle, a window narrower than a tile. */
    { FORMAT_BF16, FORMAT_F16, 16, 1, 128, 128, 32, 100, 90, 1, 0, 0 },
    { FORMAT_F16, FORMAT_F16, 4, 2, 64, 64, 24, 37, 120, 2, 20, 0 },
};

struct stage {
    const struct scene *s;
    struct kv_layer kv;
    int total, rows, blocks; /* tokens of a sequence, rows of the batch, blocks of a sequence */
    float *k, *v, *q, *y;    /* [sequence][total][...], what the cache should hold after rounding */
    int32_t *pos, *seq, *slots, **tables;
};

static void stage_make(struct stage *t, struct backend *b, const struct scene *s, struct rng *r)
{
    *t = (struct stage){ .s = s, .total = s->past + s->n, .rows = s->n * s->sequences };
    t->blocks = (t->total + s->block_tokens - 1) / s->block_tokens;
    const int all = t->blocks * s->sequences + 1; /* one block belongs to nobody */
    t->kv = (struct kv_layer){ &FORMATS[s->k], &FORMATS[s->v],  NULL, NULL, s->kv_heads, s->k_dim,
                               s->v_dim,       s->block_tokens, all };
    const int64_t slots = (int64_t)all * s->block_tokens * s->kv_heads;
    const size_t k_bytes = (size_t)(slots * format_row_bytes(t->kv.k_format, s->k_dim));
    const size_t v_bytes = (size_t)(slots * format_row_bytes(t->kv.v_format, s->v_dim));
    CHECK(kv_layer_bytes(&t->kv) == (int64_t)(k_bytes + v_bytes));
    t->kv.k = guarded(k_bytes, 0);
    t->kv.v = guarded(v_bytes, 0);
    memset(t->kv.k, 0xff, k_bytes); /* NaN in every float format, also as a block's scale */
    memset(t->kv.v, 0xff, v_bytes);
    const size_t tokens = (size_t)(t->total * s->sequences);
    t->k = malloc(tokens * (size_t)(s->kv_heads * s->k_dim) * sizeof(float));
    t->v = malloc(tokens * (size_t)(s->kv_heads * s->v_dim) * sizeof(float));
    t->q = malloc((size_t)(t->rows * s->heads * s->k_dim) * sizeof(float));
    t->y = malloc((size_t)(t->rows * s->heads * s->v_dim) * sizeof(float));
    t->pos = malloc((size_t)t->rows * sizeof *t->pos);
    t->seq = malloc((size_t)t->rows * sizeof *t->seq);
    t->slots = malloc(tokens * sizeof *t->slots);
    t->tables = malloc((size_t)s->sequences * sizeof *t->tables);
    fill_gauss(r, t->k, (int64_t)tokens * s->kv_heads * s->k_dim, 1);
    fill_gauss(r, t->v, (int64_t)tokens * s->kv_heads * s->v_dim, 1);
    fill_gauss(r, t->q, (int64_t)t->rows * s->heads * s->k_dim, 2);
    for (int q = 0; q < s->sequences; q++) {
        t->tables[q] = malloc((size_t)t->blocks * sizeof **t->tables);
        for (int j = 0; j < t->blocks; j++) /* backwards and interleaved; block 0 is nobody's */
            t->tables[q][j] = 1 + (t->blocks - 1 - j) * s->sequences + q;
        for (int p = 0; p < t->total; p++)
            t->slots[q * t->total + p] = t->tables[q][p / s->block_tokens] * s->block_tokens +
                                         p % s->block_tokens;
        for (int i = 0; i < s->n; i++) {
            t->pos[q * s->n + i] = s->past + i;
            t->seq[q * s->n + i] = q;
        }
    }
    backend_kv_store(b, &(struct kv_store){ .kv = &t->kv,
                                            .k = t->k,
                                            .v = t->v,
                                            .k_stride = s->kv_heads * s->k_dim,
                                            .v_stride = s->kv_heads * s->v_dim,
                                            .n = (int)tokens,
                                            .slots = t->slots });
    uint8_t bytes[4096];
    for (size_t i = 0; i < tokens * (size_t)s->kv_heads; i++) {
        t->kv.k_format->encode(t->k + i * (size_t)s->k_dim, bytes, s->k_dim);
        t->kv.k_format->decode(bytes, t->k + i * (size_t)s->k_dim, s->k_dim);
        t->kv.v_format->encode(t->v + i * (size_t)s->v_dim, bytes, s->v_dim);
        t->kv.v_format->decode(bytes, t->v + i * (size_t)s->v_dim, s->v_dim);
    }
}

static void naive(const struct stage *t, int row, int head, double scale, double *out)
{
    const struct scene *s = t->s;
    const int kv_head = head / (s->heads / s->kv_heads), last = t->pos[row];
    const int from = s->window ? MAX(0, last - s->window + 1) : 0;
    const float *q = t->q + ((int64_t)row * s->heads + head) * s->k_dim;
    double score[1024], peak = -INFINITY, sum = 0;
    for (int d = 0; d < s->v_dim; d++) out[d] = 0;
    for (int p = from; p <= last; p++) {
        const float *k = t->k + (((int64_t)t->seq[row] * t->total + p) * s->kv_heads + kv_head) * s->k_dim;
        double dot = 0;
        for (int d = 0; d < s->k_dim; d++) dot += (double)q[d] * k[d];
        score[p] = dot * scale;
        if (s->softcap > 0) score[p] = s->softcap * tanh(score[p] / s->softcap);
        peak = fmax(peak, score[p]);
    }
    for (int p = from; p <= last; p++) sum += score[p] = exp(score[p] - peak);
    for (int p = from; p <= last; p++) {
        const float *v = t->v + (((int64_t)t->seq[row] * t->total + p) * s->kv_heads + kv_head) * s->v_dim;
        for (int d = 0; d < s->v_dim; d++) out[d] += score[p] / sum * v[d];
    }
}

static void check_scene(const struct scene *s, const struct isa_level *level, enum precision precision,
                        int threads)
{
    struct err why;
    struct backend *b;
    struct rng r = { 5 };
    struct stage t;
    CHECK_OK(backend_open(
        &b, "cpu",
        &(struct backend_options){ .threads = threads, .isa = level->bits, .precision = precision }, &why));
    CHECK_OK(backend_reserve(b, 256, 1024, &why));
    stage_make(&t, b, s, &r);
    const float scale = 1 / sqrtf((float)s->k_dim);
    backend_attention(b, &(struct attention){ .kv = &t.kv,
                                              .q = t.q,
                                              .q_stride = s->heads * s->k_dim,
                                              .n = t.rows,
                                              .heads = s->heads,
                                              .pos = t.pos,
                                              .seq = t.seq,
                                              .tables = (const int32_t *const *)t.tables,
                                              .scale = scale,
                                              .softcap = s->softcap,
                                              .window = s->window,
                                              .y = t.y,
                                              .y_stride = s->heads * s->v_dim });
    const double limit = precision == PRECISION_MEDIUM ? 0.05 : 5e-6;
    double error = 0, power = 0;
    for (int row = 0; row < t.rows; row++) {
        for (int h = 0; h < s->heads; h++) {
            double want[1024];
            naive(&t, row, h, scale, want);
            for (int d = 0; d < s->v_dim; d++) {
                power += want[d] * want[d];
                error += pow(t.y[((int64_t)row * s->heads + h) * s->v_dim + d] - want[d], 2);
                const double got = t.y[((int64_t)row * s->heads + h) * s->v_dim + d];
                if (!(fabs(got - want[d]) <= limit))
                    fail_msg("scene %d %s row %d head %d dim %d: %.9g, want %.9g", (int)(s - SCENES),
                             level->name, row, h, d, got, want[d]);
            }
        }
    }
    /* Operands and weights in bf16: see "Precision" in kernels/README.md. */
    if (!(error / power <= (precision == PRECISION_MEDIUM ? 6e-5 : 1e-11)))
        fail_msg("scene %d %s precision %d: NMSE %g", (int)(s - SCENES), level->name, precision,
                 error / power);
    for (int q = 0; q < s->sequences; q++) free(t.tables[q]);
    free(t.tables), free(t.slots), free(t.seq), free(t.pos), free(t.y), free(t.q), free(t.v), free(t.k);
    backend_close(b);
}

static void scenes(void **state)
{
    (void)state;
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    for (size_t l = 0; l < count; l++)
        for (size_t i = 0; i < COUNT_OF(SCENES); i++) {
            check_scene(&SCENES[i], levels[l], PRECISION_HIGHEST, 1 + (int)(i & 1));
            check_scene(&SCENES[i], levels[l], PRECISION_MEDIUM, 2);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(scenes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
