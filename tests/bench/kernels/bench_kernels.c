/* Verifies and times every kernel: format x instruction set x number of rows, attention, and the vector
 * operations. Products with few rows are reported in bytes of weights per second, with many rows in
 * operations per second, each also as a share of the ceiling measured in the same run. Every round times all
 * lines once, so that other load on the machine affects them equally; the table shows median and spread. An
 * error above its bound is marked, and the exit status is 1.
 *
 *   bench_kernels [--json] [--only LIST] [--isa LIST] [--precision LIST] [--rows LIST] [--threads N]
 *                 [--rounds N] [--small] [--verify] [--cpu-time] */
#include "tests/bench/kernels/bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { NS_SMALL = 1000000, NS_FULL = 6000000, EXIT_OVER_BOUND = 1, EXIT_USAGE = 4, EXIT_MEMORY = 6 };

const struct mode_row MODE_TABLE[MODES] = {
    [MODE_HIGHEST] = { "highest", PRECISION_HIGHEST, ACTIVATIONS_AUTO },
    [MODE_HIGH] = { "high", PRECISION_HIGH, ACTIVATIONS_AUTO },
    [MODE_MEDIUM] = { "medium", PRECISION_MEDIUM, ACTIVATIONS_AUTO },
    [MODE_INT8] = { "int8", PRECISION_MEDIUM, ACTIVATIONS_INT8 },
    [MODE_INT8_TOKEN] = { "int8_token", PRECISION_MEDIUM, ACTIVATIONS_INT8_TOKEN },
};

/* ---------------------------------------------------------------- shared by the parts */

struct line *bench_line(struct bench *t)
{
    if (t->count == t->room) {
        const int room = MAX(2 * t->room, 256);
        struct line *grown = realloc(t->line, (size_t)room * sizeof *grown);
        if (!grown) return NULL;
        t->line = grown;
        t->room = room;
    }
    struct line *l = &t->line[t->count++];
    *l = (struct line){ .format = "", .precision = "", .n = -1, .error = NAN, .bound = NAN, .limit = NAN };
    return l;
}

void line_judge(struct line *l, double error, double bound)
{
    if (isnan(error)) error = INFINITY;
    if (isnan(l->error) || error / bound > l->error / l->bound) {
        l->error = error;
        l->bound = bound;
        l->worst = l->trying;
    }
}

bool listed(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = list; p; p = strchr(p, ','), p = p ? p + 1 : NULL)
        if (strcspn(p, ",") == n && !strncmp(p, word, n)) return true;
    return !list;
}

/* Some word of the list names a format. */
static bool names_formats(const char *list)
{
    for (int f = 0; f < FORMAT_COUNT; f++)
        if (listed(list, FORMATS[f].name)) return true;
    return false;
}

static bool names_kinds(const char *list)
{
    char word[32];
    for (const char *p = list; p; p = strchr(p, ','), p = p ? p + 1 : NULL) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(p, ","), p);
        if (!format_find(word)) return true;
    }
    return false;
}

bool wanted(const struct bench *t, const char *kind, const char *format)
{
    static const char *const ATTENTION[] = { "prompt", "verify", "decode", "deep", "batch" };
    const char *list = t->o.only;
    if (!list) return true;
    bool named = listed(list, kind), attention = false;
    for (size_t i = 0; i < COUNT_OF(ATTENTION); i++) attention |= !strcmp(kind, ATTENTION[i]);
    named |= attention ? listed(list, "attention") : strcmp(kind, "product") && listed(list, "ops");
    if (names_kinds(list) && !named) return false;
    if (names_formats(list)) return *format && listed(list, format);
    return true;
}

double rig_ops_s(const struct bench *t, struct rig *r, const char *ceiling)
{
    static const char *const NAMES[] = { "f32_fma", "int8_dot", "bf16_dot", "bf16_tile", "int8_tile" };
    size_t known = 0;
    while (known < COUNT_OF(NAMES) && strcmp(NAMES[known], ceiling)) known++;
    if (known == COUNT_OF(NAMES)) return NAN;
    if (r->ops_s[known] != 0) return r->ops_s[known]; /* 0: not measured yet */
    double best = NAN;
    for (size_t c = 0; c < CEILING_COUNT; c++) {
        if (strcmp(CEILINGS[c].name, ceiling)) continue;
        const double v = ceiling_ops_s(&CEILINGS[c], r->level->bits & t->usable, t->o.threads, 0.05);
        if (!(best >= v)) best = v;
    }
    return r->ops_s[known] = best;
}

int64_t bench_now_ns(const struct bench *t)
{
    struct timespec v;
    if (!t->o.cpu_time) return clock_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &v);
    return (int64_t)v.tv_sec * 1000000000 + v.tv_nsec;
}

static size_t guarded_size(size_t bytes, size_t page)
{
    return (bytes + page - 1) / page * page + page;
}

void *guarded(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = guarded_size(bytes, page);
    uint8_t *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (mprotect(p + size - page, page, PROT_NONE)) {
        munmap(p, size);
        return NULL;
    }
    return p + size - page - bytes;
}

void guarded_free(void *p, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), size = guarded_size(bytes, page);
    if (p) munmap((uint8_t *)p + bytes + page - size, size);
}

uint32_t rng_u32(struct rng *r)
{
    r->s = r->s * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(r->s >> 32);
}

float rng_gauss(struct rng *r, double sigma)
{
    const double u1 = (rng_u32(r) + 1.0) / 4294967296.0, u2 = rng_u32(r) / 4294967296.0;
    return (float)(sigma * sqrt(-2 * log(u1)) * cos(6.283185307179586 * u2));
}

/* ---------------------------------------------------------------- set-up */

static bool parse(struct options *o, int argc, char **argv)
{
    *o = (struct options){ .threads = threadpool_default_threads(), .rounds = 3 };
    const struct {
        const char *name;
        bool *value;
    } SWITCHES[] = { { "--json", &o->json },
                     { "--small", &o->small },
                     { "--verify", &o->verify_only },
                     { "--cpu-time", &o->cpu_time } };
    const struct {
        const char *name;
        const char **value;
    } LISTS[] = { { "--isa", &o->isa },
                  { "--only", &o->only },
                  { "--format", &o->only },
                  { "--precision", &o->precision },
                  { "--rows", &o->rows } };
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        int64_t v = 0;
        bool known = false;
        for (size_t j = 0; j < COUNT_OF(SWITCHES) && !known; j++)
            if ((known = !strcmp(argv[i], SWITCHES[j].name))) *SWITCHES[j].value = true;
        for (size_t j = 0; j < COUNT_OF(LISTS) && !known && next; j++)
            if ((known = !strcmp(argv[i], LISTS[j].name))) *LISTS[j].value = argv[++i];
        if (known) continue;
        if (!next || !str_to_i64(next, &v) || v < 1) return false;
        if (!strcmp(argv[i], "--threads") && v <= 1024)
            o->threads = (int)v, i++;
        else if (!strcmp(argv[i], "--rounds") && v <= ROUNDS_MAX)
            o->rounds = (int)v, i++;
        else
            return false;
    }
    if (o->cpu_time) o->threads = 1;
    if (o->small) o->rounds = MIN(o->rounds, 1);
    return true;
}

/* A name nobody knows would quietly measure nothing. */
static const char *unknown_word(const struct options *o)
{
    static const char *const KINDS[] = { "product", "attention", "ops",      "prompt",   "verify",
                                         "decode",  "deep",      "batch",    "norm_rms", "norm_layer",
                                         "rope",    "hadamard",  "softmax",  "silu_mul", "gelu_tanh",
                                         "gather",  "store",     "quantize", "barrier",  "encode" };
    static char word[32];
    for (const char *p = o->only; p; p = strchr(p, ','), p = p ? p + 1 : NULL) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(p, ","), p);
        bool known = format_find(word) != NULL;
        for (size_t i = 0; i < COUNT_OF(KINDS); i++) known |= !strcmp(word, KINDS[i]);
        if (!known) return word;
    }
    for (const char *p = o->precision; p; p = strchr(p, ','), p = p ? p + 1 : NULL) {
        bool known = false;
        snprintf(word, sizeof word, "%.*s", (int)strcspn(p, ","), p);
        for (int i = 0; i < MODES; i++) known |= !strcmp(word, MODE_TABLE[i].name);
        if (!known) return word;
    }
    for (const char *p = o->isa; p; p = strchr(p, ','), p = p ? p + 1 : NULL) {
        bool known = false;
        snprintf(word, sizeof word, "%.*s", (int)strcspn(p, ","), p);
        for (size_t i = 0; i < ISA_LEVEL_COUNT; i++) known |= !strcmp(word, ISA_LEVELS[i].name);
        if (!known) return word;
    }
    return NULL;
}

static int open_rig(struct bench *t, struct rig *r)
{
    struct err why;
    for (int p = 0; p < MODES; p++) {
        if (!listed(t->o.precision, MODE_TABLE[p].name)) continue;
        const struct backend_options o = { .threads = t->o.threads,
                                           .isa = r->level->bits & t->usable,
                                           .precision = MODE_TABLE[p].precision,
                                           .activations = MODE_TABLE[p].activations,
                                           .affinity = t->o.threads > 1 ? AFFINITY_COMPACT : AFFINITY_NONE };
        if (backend_open(&r->backend[p], "cpu", &o, &why) ||
            backend_reserve(r->backend[p],
                            &(struct backend_work){ .rows = PRODUCT_ROWS_MAX, .cols = COLS_MAX }, &why)) {
            fprintf(stderr, "bench_kernels: %s\n", why.message);
            return 1;
        }
    }
    return 0;
}

/* One rig for each level that has something of its own here. */
static int open_rigs(struct bench *t)
{
    uint32_t before = UINT32_MAX;
    for (size_t l = 0; l < ISA_LEVEL_COUNT && t->rigs < LEVELS_MAX; l++) {
        const struct isa_level *level = &ISA_LEVELS[l];
        if (level->bits & ~t->usable) continue;
        struct rig *r = &t->rig[t->rigs];
        *r = (struct rig){ .level = level, .kernels = kernels_select(level->bits) };
        const bool same = r->kernels.isa == before;
        before = r->kernels.isa;
        if (same || !listed(t->o.isa, level->name)) continue;
        if (open_rig(t, r)) return 1;
        t->rigs++;
    }
    return 0;
}

static int take_memory(struct bench *t)
{
    struct backend *memory; /* as the engine allocates */
    struct err why;
    uint32_t s = 1;
    t->bytes_size = (int64_t)(t->o.small ? 64 : 512) << 20;
    t->bytes = malloc((size_t)t->bytes_size);
    if (!t->bytes || backend_open(&memory, "cpu", &(struct backend_options){ .threads = 1 }, &why)) return 1;
    t->x = backend_alloc(memory, sizeof(float) * PRODUCT_ROWS_MAX * COLS_MAX);
    t->y = backend_alloc(memory, sizeof(float) * PRODUCT_ROWS_MAX * COLS_MAX);
    backend_close(memory);
    if (!t->x || !t->y) return 1;
    for (int64_t i = 0; i < t->bytes_size; i++) {
        s = s * 1664525 + 1013904223;
        /* Ordinary numbers in every format: NaN and subnormals would change the speed of sums. */
        t->bytes[i] = (uint8_t)(0x3c + (s >> 30));
    }
    for (int64_t i = 0; i < PRODUCT_ROWS_MAX * COLS_MAX; i++) t->x[i] = (float)(i % 17 - 8) * 0.125f;
    return 0;
}

/* ---------------------------------------------------------------- timing */

static double measure(const struct bench *t, const struct line *l)
{
    const int64_t least = t->o.small ? NS_SMALL : NS_FULL;
    l->run(l->arg);
    const int64_t start = bench_now_ns(t);
    int64_t now;
    int done = 0;
    do {
        l->run(l->arg);
        done++;
        now = bench_now_ns(t);
    } while (now - start < least);
    return l->work * done / ((double)(now - start) * 1e-9);
}

static void time_all(struct bench *t)
{
    for (int r = 0; r < t->o.rounds; r++)
        for (int i = 0; i < t->count; i++) {
            struct line *l = &t->line[i];
            if (l->run) l->speed[r] = measure(t, l);
        }
}

static void close_all(struct bench *t)
{
    for (int i = 0; i < t->count; i++)
        if (t->line[i].finish) t->line[i].finish(t->line[i].arg);
    for (int i = 0; i < t->rigs; i++)
        for (int p = 0; p < MODES; p++) backend_close(t->rig[i].backend[p]);
    free(t->line);
    free(t->bytes);
    free(t->x);
    free(t->y);
}

int main(int argc, char **argv)
{
    static struct bench t;
    struct err why;
    if (!parse(&t.o, argc, argv)) {
        fprintf(stderr, "usage: bench_kernels [--json] [--only LIST] [--isa LIST] [--precision LIST] "
                        "[--rows LIST] [--threads N] [--rounds 1..64] [--small] [--verify] [--cpu-time]\n"
                        "LIST: words with commas; --only takes formats, product, attention, ops and single "
                        "operations: q4_0,attention\n");
        return EXIT_USAGE;
    }
    const char *word = unknown_word(&t.o);
    if (word) {
        fprintf(stderr, "bench_kernels: '%s' is no format, operation, precision or instruction set\n", word);
        return EXIT_USAGE;
    }
    if (isa_usable(&t.usable, &why)) {
        fprintf(stderr, "%s\n", why.message);
        return EXIT_USAGE;
    }
    if (take_memory(&t) || open_rigs(&t)) {
        fprintf(stderr, "bench_kernels: out of memory\n");
        return EXIT_MEMORY;
    }
    t.read_bytes_s = t.o.verify_only
                         ? NAN
                         : ceiling_read_bytes_s(&(struct ceiling_reading){ .threads = t.o.threads },
                                                t.bytes_size, 0.5);
    if (products_add(&t) || attention_add(&t) || vectors_add(&t) || encode_add(&t)) {
        fprintf(stderr, "bench_kernels: out of memory\n");
        return EXIT_MEMORY;
    }
    if (!t.o.verify_only) time_all(&t);
    const int over = report(&t);
    close_all(&t);
    return over ? EXIT_OVER_BOUND : 0;
}
