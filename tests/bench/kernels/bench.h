/* tests/bench/kernels/bench.h - shared by the parts of bench_kernels: a line of its table, its error and its
 * speed.
 *
 * A line is one kernel of one instruction set on one shape. Its error is the worst of several inputs,
 * compared with binary64; guard pages follow all memory that is read and written. Its speed is measured on a
 * realistic shape. Only report.c prints. */
#ifndef QDYNO_BENCH_KERNELS_H
#define QDYNO_BENCH_KERNELS_H

#include "kernels/kernel_set.h"

enum { ROUNDS_MAX = 64, LEVELS_MAX = 24, PRODUCT_ROWS_MAX = 512, COLS_MAX = 8192 };

struct options {
    bool json, small, cpu_time; /* cpu_time: this thread's own seconds, for busy machines; needs one thread */
    bool verify_only;
    int threads, rounds;
    const char *isa, *only, *precision, *rows; /* lists; NULL: all */
};

enum unit { UNIT_BYTES, UNIT_OPS, UNIT_CALLS, UNIT_WEIGHTS };

struct line {
    const char *kind;              /* "product" "prompt" "decode" "norm_rms" ... */
    const struct isa_level *level; /* NULL: none of its own */
    const char *format;            /* "" where there is none */
    const char *precision;         /* "" where there is none */
    char shape[40];
    int n;               /* rows of activations, -1: does not apply */
    double error, bound; /* the worst, as a share of its bound, of all that were tried; NAN: not verified */
    const char *trying;  /* what the next errors come from, set before line_judge; NULL: nothing special */
    const char *worst;   /* what the worst came from */
    enum unit unit;
    double work;               /* of one run: bytes, operations, 1, or weights */
    double limit;              /* work a second at most; NAN: none is known */
    void (*run)(void *arg);    /* NULL: only verified */
    void (*finish)(void *arg); /* gives it back; may be NULL */
    void *arg;
    double speed[ROUNDS_MAX];
};

/* The ways of computing a product: a precision, or 8-bit activations at any number of rows. */
enum mode { MODE_HIGHEST, MODE_HIGH, MODE_MEDIUM, MODE_INT8, MODE_INT8_TOKEN, MODES };
struct mode_row {
    const char *name;
    enum precision precision;
    enum activations activations;
};
extern const struct mode_row MODE_TABLE[MODES];

/* One backend for each level and mode, and the limits of this machine at the level. */
struct rig {
    const struct isa_level *level;
    struct kernel_set kernels;
    struct backend *backend[MODES]; /* NULL: not wanted */
    double ops_s[8];                /* by row of CEILING_NAMES, NAN: none */
};

struct bench {
    struct options o;
    uint32_t usable;
    double read_bytes_s;
    struct rig rig[LEVELS_MAX];
    int rigs;
    struct line *line;
    int count, room;
    uint8_t *bytes; /* what weights are read from while timing: ordinary numbers in every format */
    int64_t bytes_size;
    float *x, *y; /* [PRODUCT_ROWS_MAX][COLS_MAX] */
};

/* A zeroed line that stays where it is until the next one; NULL without memory. */
struct line *bench_line(struct bench *t);
/* Keep the worst share of the bound. NaN counts as infinite. */
void line_judge(struct line *l, double error, double bound);

/* Is `word` in a comma-separated list? A list that is NULL holds everything. */
bool listed(const char *list, const char *word);
/* --only holds kinds and formats: a line is wanted when each sort of word that is given names it. */
bool wanted(const struct bench *t, const char *kind, const char *format);

/* The ceiling of that name at the rig's instruction set; measured once. NAN: none. */
double rig_ops_s(const struct bench *t, struct rig *r, const char *ceiling);

int64_t bench_now_ns(const struct bench *t);

/* `bytes` that end where an unreadable page begins; NULL without memory. Freed with the same size. */
void *guarded(size_t bytes);
void guarded_free(void *p, size_t bytes);

struct rng {
    uint64_t s;
};
uint32_t rng_u32(struct rng *r);
float rng_gauss(struct rng *r, double sigma);

/* What the parts add. 0, or 1 when memory is short. */
int products_add(struct bench *t);
int attention_add(struct bench *t);
int vectors_add(struct bench *t);
int encode_add(struct bench *t);

/* The table or JSON document. Returns how many lines are over their bound. */
int report(struct bench *t);

#endif
