/* How near attention comes to what this machine can do: prompts as products per second (2 x queries x tokens
 * they see x dims, both halves), decoding as bytes of keys and values per second, each also as a share of the
 * ceiling measured in the same run. Rounds interleave the variants; the table shows medians.
 *
 *   bench_attention [--threads N] [--rounds N] [--heads N] [--kv-heads N] [--dim N] [--precision P]
 *                   [--format NAME] [--tokens N] [--only prompt|decode|batch] [--cpu-time] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/kernels.h"

enum { ROUNDS_MAX = 32, BLOCK_TOKENS = 32, NS_PER_RUN = 60000000 };

struct options {
    int threads, rounds, heads, kv_heads, dim, tokens;
    bool cpu_time;
    const char *format, *only, *precision;
};

struct shape {
    const char *name;
    int n, sequences, tokens; /* rows of each sequence, and tokens it has at the end */
};

static const struct shape SHAPES[] = {
    { "prompt", 512, 1, 512 }, { "prompt", 512, 1, 4096 }, { "verify", 8, 1, 4096 },
    { "decode", 1, 1, 4096 },  { "decode", 1, 1, 32768 },  { "batch", 1, 16, 2048 },
};
static const enum format_id FORMATS_HERE[] = { FORMAT_F32, FORMAT_F16, FORMAT_BF16, FORMAT_Q8_0,
                                               FORMAT_Q4_0 };

struct item {
    const struct shape *shape;
    const struct format *f;
    enum precision precision;
    struct backend *b;
    struct kv_layer kv;
    int32_t *pos, *seq, **tables;
    double speed[ROUNDS_MAX];
};

struct bench {
    struct options o;
    float *q, *y;
    double read_bytes_s, tile_ops_s, fma_ops_s;
};

static int64_t now_ns(const struct bench *t)
{
    struct timespec v;
    if (!t->o.cpu_time) return clock_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &v);
    return (int64_t)v.tv_sec * 1000000000 + v.tv_nsec;
}

static bool is_prompt(const struct item *i)
{
    return i->shape->n > 8;
}

static bool make(const struct bench *t, struct item *i)
{
    const struct shape *s = i->shape;
    const int blocks = (s->tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS, rows = s->n * s->sequences;
    i->kv = (struct kv_layer){ .k_format = i->f,
                               .v_format = i->f,
                               .kv_heads = t->o.kv_heads,
                               .k_dim = t->o.dim,
                               .v_dim = t->o.dim,
                               .block_tokens = BLOCK_TOKENS,
                               .blocks = blocks * s->sequences };
    const size_t half = (size_t)kv_layer_bytes(&i->kv) / 2;
    i->kv.k = backend_alloc(i->b, half);
    i->kv.v = backend_alloc(i->b, half);
    i->pos = calloc((size_t)rows, sizeof *i->pos);
    i->seq = calloc((size_t)rows, sizeof *i->seq);
    i->tables = calloc((size_t)s->sequences, sizeof *i->tables);
    if (!i->kv.k || !i->kv.v || !i->pos || !i->seq || !i->tables) return false;
    float *x = malloc((size_t)(t->o.kv_heads * t->o.dim) * sizeof *x);
    for (int j = 0; x && j < t->o.kv_heads * t->o.dim; j++) x[j] = (float)((j * 37) % 23 - 11) * 0.1f;
    for (int q = 0; x && q < s->sequences; q++) {
        i->tables[q] = malloc((size_t)blocks * sizeof **i->tables);
        if (!i->tables[q]) return false;
        for (int j = 0; j < blocks; j++) i->tables[q][j] = q * blocks + j;
        for (int j = 0; j < s->n; j++) {
            i->pos[q * s->n + j] = s->tokens - s->n + j;
            i->seq[q * s->n + j] = q;
        }
    }
    for (int32_t slot = 0; x && slot < blocks * s->sequences * BLOCK_TOKENS; slot++) {
        x[slot % (t->o.kv_heads * t->o.dim)] += 0.01f;
        const int stride = t->o.kv_heads * t->o.dim;
        backend_kv_store(i->b, &(struct kv_store){ &i->kv, x, x, stride, stride, 1, &slot });
    }
    free(x);
    return x != NULL;
}

static void run_once(const struct bench *t, const struct item *i)
{
    const int width = t->o.heads * t->o.dim;
    backend_attention(i->b, &(struct attention){ .kv = &i->kv,
                                                 .q = t->q,
                                                 .q_stride = width,
                                                 .n = i->shape->n * i->shape->sequences,
                                                 .heads = t->o.heads,
                                                 .pos = i->pos,
                                                 .seq = i->seq,
                                                 .tables = (const int32_t *const *)i->tables,
                                                 .scale = 1 / sqrtf((float)t->o.dim),
                                                 .y = t->y,
                                                 .y_stride = width });
}

/* Operations of a prompt, bytes of anything else. */
static double work(const struct bench *t, const struct item *i)
{
    const struct shape *s = i->shape;
    if (!is_prompt(i)) return (double)kv_layer_bytes(&i->kv);
    const double seen = s->n * (s->tokens - (s->n - 1) / 2.0);
    return seen * t->o.heads * t->o.dim * 2 * 2;
}

static double measure(const struct bench *t, const struct item *i)
{
    run_once(t, i);
    const int64_t start = now_ns(t);
    int64_t now;
    int done = 0;
    do {
        run_once(t, i);
        done++;
        now = now_ns(t);
    } while (now - start < NS_PER_RUN);
    return work(t, i) * done / ((double)(now - start) * 1e-9);
}

static int by_value(const void *a, const void *b)
{
    const double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static double best_ceiling(const char *name, uint32_t usable, int threads)
{
    double best = NAN;
    for (size_t c = 0; c < CEILING_COUNT; c++) {
        if (strcmp(CEILINGS[c].name, name)) continue;
        const double v = ceiling_ops_s(&CEILINGS[c], usable, threads, 0.05);
        if (!(best >= v)) best = v;
    }
    return best;
}

static bool parse(struct options *o, int argc, char **argv)
{
    *o = (struct options){
        .threads = threadpool_default_threads(), .rounds = 5, .heads = 32, .kv_heads = 8, .dim = 64
    };
    struct {
        const char *name;
        int *value;
    } numbers[] = {
        { "--threads", &o->threads },   { "--rounds", &o->rounds }, { "--heads", &o->heads },
        { "--kv-heads", &o->kv_heads }, { "--dim", &o->dim },       { "--tokens", &o->tokens },
    };
    struct {
        const char *name;
        const char **value;
    } words[] = {
        { "--format", &o->format },
        { "--only", &o->only },
        { "--precision", &o->precision },
    };
    for (int i = 1; i < argc; i++) {
        bool known = !strcmp(argv[i], "--cpu-time");
        if (known) o->cpu_time = true, o->threads = 1;
        for (size_t j = 0; j < COUNT_OF(numbers) && !known; j++) {
            int64_t v;
            if (strcmp(argv[i], numbers[j].name) || i + 1 == argc || !str_to_i64(argv[i + 1], &v) || v < 1)
                continue;
            *numbers[j].value = (int)v, i++, known = true;
        }
        for (size_t j = 0; j < COUNT_OF(words) && !known; j++) {
            if (strcmp(argv[i], words[j].name) || i + 1 == argc) continue;
            *words[j].value = argv[++i], known = true;
        }
        if (!known) return false;
    }
    return o->rounds <= ROUNDS_MAX && o->heads % o->kv_heads == 0 && o->dim % 32 == 0;
}

static bool wanted(const struct options *o, const struct item *i, const char *precision)
{
    return (!o->only || !strcmp(o->only, i->shape->name)) && (!o->format || !strcmp(o->format, i->f->name)) &&
           (!o->tokens || o->tokens == i->shape->tokens) &&
           (!o->precision || !strcmp(o->precision, precision));
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        enum precision p;
    } PRECISIONS[] = { { "highest", PRECISION_HIGHEST }, { "medium", PRECISION_MEDIUM } };
    static struct bench t;
    static struct item items[COUNT_OF(SHAPES) * COUNT_OF(FORMATS_HERE) * COUNT_OF(PRECISIONS)];
    struct err why;
    uint32_t usable;
    int count = 0;
    if (!parse(&t.o, argc, argv) || isa_usable(&usable, &why)) {
        fprintf(stderr,
                "usage: bench_attention [--threads N] [--rounds 1..32] [--heads N] [--kv-heads N] [--dim N] "
                "[--precision highest|medium] [--format NAME] [--tokens N] [--only SHAPE] [--cpu-time]\n");
        return 4;
    }
    t.q = calloc((size_t)(512 * t.o.heads * t.o.dim), sizeof *t.q);
    t.y = calloc((size_t)(512 * t.o.heads * t.o.dim), sizeof *t.y);
    if (!t.q || !t.y) return 6;
    for (int i = 0; i < 512 * t.o.heads * t.o.dim; i++) t.q[i] = (float)(i % 29 - 14) * 0.1f;
    t.read_bytes_s = ceiling_read_bytes_s(t.o.threads, (int64_t)512 << 20, 0.4);
    t.tile_ops_s = best_ceiling("bf16_tile", usable, t.o.threads);
    t.fma_ops_s = best_ceiling("f32_fma", usable, t.o.threads);
    for (size_t s = 0; s < COUNT_OF(SHAPES); s++)
        for (size_t f = 0; f < COUNT_OF(FORMATS_HERE); f++)
            for (size_t p = 0; p < COUNT_OF(PRECISIONS); p++) {
                struct item *i = &items[count];
                *i = (struct item){ .shape = &SHAPES[s],
                                    .f = &FORMATS[FORMATS_HERE[f]],
                                    .precision = PRECISIONS[p].p };
                if (!wanted(&t.o, i, PRECISIONS[p].name)) continue;
                const struct backend_options o = { .threads = t.o.threads,
                                                   .isa = usable,
                                                   .precision = i->precision,
                                                   .affinity = t.o.threads > 1 ? AFFINITY_COMPACT
                                                                               : AFFINITY_NONE };
                if (backend_open(&i->b, "cpu", &o, &why) || backend_reserve(i->b, 512, 2048, &why) ||
                    !make(&t, i))
                    return 6;
                count++;
            }
    for (int r = 0; r < t.o.rounds; r++)
        for (int i = 0; i < count; i++) items[i].speed[r] = measure(&t, &items[i]);
    printf(
        "%d threads, %d heads of %d, %d KV heads; streaming read %.1f GB/s, tiles %.0f GFLOP/s, f32 %.0f\n\n"
        "| shape  | rows | seqs | tokens | KV   | precision | median | time | of the limit |\n|---|---|---|---|---|---|---|---|---|\n",
        t.o.threads, t.o.heads, t.o.dim, t.o.kv_heads, t.read_bytes_s * 1e-9, t.tile_ops_s * 1e-9,
        t.fma_ops_s * 1e-9);
    for (int i = 0; i < count; i++) {
        struct item *it = &items[i];
        qsort(it->speed, (size_t)t.o.rounds, sizeof it->speed[0], by_value);
        const double speed = it->speed[t.o.rounds / 2];
        const bool tiles = it->precision == PRECISION_MEDIUM && t.tile_ops_s > 0;
        const double limit = is_prompt(it) ? tiles ? t.tile_ops_s : t.fma_ops_s : t.read_bytes_s;
        printf("| %-6s | %4d | %4d | %6d | %-4s | %-9s | %7.1f %-7s | %8.3f ms | %3.0f %% |\n",
               it->shape->name, it->shape->n, it->shape->sequences, it->shape->tokens, it->f->name,
               PRECISIONS[it->precision == PRECISION_MEDIUM].name, speed * 1e-9,
               is_prompt(it) ? "GFLOP/s" : "GB/s", work(&t, it) / speed * 1e3, 100 * speed / limit);
    }
    return 0;
}
