/* How near the kernels come to what this machine can do: each format x instruction set x shape, decoding as
 * bytes of weights per second and prompts as operations per second, each also as a share of the ceiling
 * measured in the same run. Rounds interleave all variants, so that a neighbour on the machine disturbs them
 * alike; the table shows the median and the spread of the rounds.
 *
 *   bench_kernels [--json] [--threads N] [--rounds N] [--isa LIST] [--format NAME] [--small] [--cpu-time] */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/kernel_set.h"

enum { ROUNDS_MAX = 64, ITEMS_MAX = 512, NS_PER_RUN = 40000000 };

struct options {
    bool json, small, cpu_time; /* cpu_time: this thread's own seconds, for busy machines; needs one thread */
    int threads, rounds;
    const char *isa, *format;
};

/* One line of the table. */
struct item {
    const struct isa_level *level;
    enum precision precision;
    const struct format *f;
    int64_t rows, cols;
    int n, copies; /* weights in a ring, so that decoding never finds them in a cache */
    struct backend *b;
    struct weight *w; /* [copies] */
    int turn;
    double ceiling;
    double speed[ROUNDS_MAX];
};

struct bench {
    struct options o;
    uint32_t usable;
    double read_bytes_s;
    struct item items[ITEMS_MAX];
    int count;
    uint8_t *bytes;
    int64_t bytes_size;
    float *x, *y;
};

static int by_value(const void *a, const void *b)
{
    const double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static double median(const double *v, int n, double *spread)
{
    double s[ROUNDS_MAX];
    memcpy(s, v, (size_t)n * sizeof *s);
    qsort(s, (size_t)n, sizeof *s, by_value);
    *spread = (s[n - 1 - n / 4] - s[n / 4]) / s[n / 2];
    return s[n / 2];
}

/* The arithmetic a product of this item could reach at most: the best row its ISA and precision have. */
static double arithmetic_ceiling(const struct bench *t, const struct item *i)
{
    const struct kernel_set k = kernels_select(i->level->bits & t->usable);
    const bool tiles = i->precision == PRECISION_MEDIUM && k.gemm_bf16.multiply;
    double best = NAN;
    for (size_t c = 0; c < CEILING_COUNT; c++) {
        const bool wanted = tiles ? !strcmp(CEILINGS[c].name, "bf16_tile")
                                  : !strcmp(CEILINGS[c].name, "f32_fma");
        if (!wanted) continue;
        const double v = ceiling_ops_s(&CEILINGS[c], i->level->bits & t->usable, t->o.threads, 0.05);
        if (!(best >= v)) best = v;
    }
    return best;
}

static void run_once(const struct bench *t, struct item *i)
{
    backend_matmul(i->b,
                   &(struct matmul){ .w = &i->w[i->turn++ % i->copies],
                                     .x = t->x,
                                     .x_stride = i->cols,
                                     .n = i->n,
                                     .y = t->y,
                                     .y_stride = i->rows },
                   1);
}

static bool is_stream(const struct item *i)
{
    return i->n <= 16;
}

static int64_t now_ns(const struct bench *t)
{
    struct timespec v;
    if (!t->o.cpu_time) return clock_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &v);
    return (int64_t)v.tv_sec * 1000000000 + v.tv_nsec;
}

static double measure(const struct bench *t, struct item *i)
{
    run_once(t, i);
    int64_t start = now_ns(t), now;
    int done = 0;
    do {
        run_once(t, i);
        done++;
        now = now_ns(t);
    } while (now - start < NS_PER_RUN);
    const double seconds = (double)(now - start) * 1e-9 / done;
    if (is_stream(i)) return (double)(i->rows * format_row_bytes(i->f, i->cols)) / seconds;
    return 2.0 * (double)i->rows * (double)i->cols * i->n / seconds;
}

static void add_item(struct bench *t, const struct item *want)
{
    if (t->count == ITEMS_MAX) return;
    struct item *i = &t->items[t->count];
    struct err why;
    const int64_t bytes = want->rows * format_row_bytes(want->f, want->cols);
    *i = *want;
    i->copies = is_stream(i) ? (int)MAX((int64_t)1, MIN((int64_t)64, t->bytes_size / bytes)) : 1;
    i->w = calloc((size_t)i->copies, sizeof *i->w);
    const struct backend_options o = { .threads = t->o.threads,
                                       .isa = i->level->bits & t->usable,
                                       .precision = i->precision,
                                       .affinity = AFFINITY_COMPACT };
    if (!i->w || backend_open(&i->b, "cpu", &o, &why) || backend_reserve(i->b, i->n, i->cols, &why)) return;
    for (int c = 0; c < i->copies; c++)
        if (backend_weight_bind(i->b, &i->w[c], i->f, i->rows, i->cols, t->bytes + c * bytes, &why)) return;
    i->ceiling = is_stream(i) ? t->read_bytes_s : arithmetic_ceiling(t, i);
    t->count++;
}

static void add_items(struct bench *t)
{
    static const int NS[] = { 1, 4, 8, 16, 512 };
    for (size_t l = 0; l < ISA_LEVEL_COUNT; l++) {
        const struct isa_level *level = &ISA_LEVELS[l];
        const struct kernel_set k = kernels_select(level->bits & t->usable);
        if ((level->bits & ~t->usable) ||
            (level->bits && k.isa == kernels_select(ISA_LEVELS[l - 1].bits).isa))
            continue; /* not here, or nothing of its own */
        if (t->o.isa && strcmp(t->o.isa, level->name)) continue;
        for (int f = 0; f < FORMAT_COUNT; f++) {
            if (!FORMATS[f].decode || (t->o.format && strcmp(t->o.format, FORMATS[f].name))) continue;
            for (size_t n = 0; n < COUNT_OF(NS); n++) {
                for (int p = PRECISION_HIGHEST; p <= PRECISION_MEDIUM; p += PRECISION_MEDIUM) {
                    const bool differs = NS[n] <= 16 ? k.format[f].dot_q8 != NULL
                                                     : k.gemm_bf16.multiply != NULL;
                    if (p == PRECISION_MEDIUM && !differs) continue;
                    add_item(t, &(struct item){ .level = level,
                                                .precision = (enum precision)p,
                                                .f = &FORMATS[f],
                                                .n = NS[n],
                                                .rows = t->o.small ? 1024 : 8192,
                                                .cols = 2048 });
                    if (NS[n] == 512 && !t->o.small && p == PRECISION_MEDIUM)
                        add_item(t, &(struct item){ .level = level,
                                                    .precision = (enum precision)p,
                                                    .f = &FORMATS[f],
                                                    .n = NS[n],
                                                    .rows = 2048,
                                                    .cols = 8192 });
                }
            }
        }
    }
}

static void print_item(const struct bench *t, const struct item *i, bool last)
{
    static const char *const PRECISIONS[] = { "highest", "high", "medium" };
    double spread;
    const double speed = median(i->speed, t->o.rounds, &spread), share = speed / i->ceiling;
    const char *unit = is_stream(i) ? "GB/s" : "GFLOP/s";
    if (t->o.json)
        printf(
            "  {\"isa\": \"%s\", \"format\": \"%s\", \"precision\": \"%s\", \"rows\": %lld, \"cols\": %lld, "
            "\"n\": %d, \"unit\": \"%s\", \"speed\": %.4g, \"spread\": %.3g, \"share\": %.3g}%s\n",
            i->level->name, i->f->name, PRECISIONS[i->precision], (long long)i->rows, (long long)i->cols,
            i->n, unit, speed * 1e-9, spread, share, last ? "" : ",");
    else
        printf("| %-10s | %-5s | %-7s | %5lld x %-5lld | %4d | %8.1f %-7s | %4.0f %% | %3.0f %% |\n",
               i->level->name, i->f->name, PRECISIONS[i->precision], (long long)i->rows, (long long)i->cols,
               i->n, speed * 1e-9, unit, 100 * spread, 100 * share);
}

static bool parse(struct options *o, int argc, char **argv)
{
    *o = (struct options){ .threads = threadpool_default_threads(), .rounds = 5 };
    for (int i = 1; i < argc; i++) {
        int64_t v = 0;
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--json"))
            o->json = true;
        else if (!strcmp(argv[i], "--cpu-time"))
            o->cpu_time = true, o->threads = 1;
        else if (!strcmp(argv[i], "--small"))
            o->small = true;
        else if (!strcmp(argv[i], "--threads") && str_to_i64(next, &v) && v >= 1 && v <= 1024)
            o->threads = (int)v, i++;
        else if (!strcmp(argv[i], "--rounds") && str_to_i64(next, &v) && v >= 1 && v <= ROUNDS_MAX)
            o->rounds = (int)v, i++;
        else if (!strcmp(argv[i], "--isa"))
            o->isa = next, i++;
        else if (!strcmp(argv[i], "--format"))
            o->format = next, i++;
        else
            return false;
    }
    return true;
}

static void fill(struct bench *t)
{
    uint32_t s = 1;
    for (int64_t i = 0; i < t->bytes_size; i++) {
        s = s * 1664525 + 1013904223;
        /* Ordinary numbers in every format: NaN and subnormals would change the speed of sums. */
        t->bytes[i] = (uint8_t)(0x3c + (s >> 30));
    }
    for (int64_t i = 0; i < 512 * 8192; i++) t->x[i] = (float)(i % 17 - 8) * 0.125f;
}

int main(int argc, char **argv)
{
    static struct bench t;
    struct err why;
    if (!parse(&t.o, argc, argv)) {
        fprintf(stderr,
                "usage: bench_kernels [--json] [--threads N] [--rounds 1..64] [--isa NAME] [--format NAME] "
                "[--small] [--cpu-time]\n");
        return 4;
    }
    if (isa_usable(&t.usable, &why)) {
        fprintf(stderr, "%s\n", why.message);
        return 4;
    }
    t.bytes_size = (int64_t)(t.o.small ? 64 : 512) << 20;
    t.bytes = malloc((size_t)t.bytes_size);
    struct backend *memory; /* as the engine allocates */
    if (backend_open(&memory, "cpu", &(struct backend_options){ .threads = 1 }, &why)) return 6;
    t.x = backend_alloc(memory, 512 * 8192 * sizeof *t.x);
    t.y = backend_alloc(memory, 512 * 8192 * sizeof *t.y);
    if (!t.bytes || !t.x || !t.y) return 6;
    fill(&t);
    t.read_bytes_s = ceiling_read_bytes_s(t.o.threads, t.bytes_size, 0.5);
    add_items(&t);
    for (int r = 0; r < t.o.rounds; r++)
        for (int i = 0; i < t.count; i++) t.items[i].speed[r] = measure(&t, &t.items[i]);
    if (t.o.json)
        printf("{\"schema\": 1, \"threads\": %d, \"read_gb_s\": %.4g, \"items\": [\n", t.o.threads,
               t.read_bytes_s * 1e-9);
    else
        printf("%d threads, streaming read %.1f GB/s; n <= 16: bytes of weights read, else arithmetic\n\n"
               "| isa        | format| precision | rows x cols | n  | median | spread | of the limit |\n"
               "|---|---|---|---|---|---|---|---|\n",
               t.o.threads, t.read_bytes_s * 1e-9);
    for (int i = 0; i < t.count; i++) print_item(&t, &t.items[i], i + 1 == t.count);
    if (t.o.json) printf("]}\n");
    return 0;
}
