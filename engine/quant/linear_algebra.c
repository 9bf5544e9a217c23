/* Distributes tiles of matrices over threads; each tile is one call of OpenBLAS. BLAS expects column-major
 * matrices, so it sees our row-major ones transposed: "upper" and "transposed" mean the opposite in its
 * calls.
 */
#include "engine/quant/linear_algebra.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Tile size: large enough for OpenBLAS to run at full speed, small enough to occupy 2 to 64 threads. */
enum { TILE = 256 };

typedef void gemm_s(const char *, const char *, const int *, const int *, const int *, const float *,
                    const float *, const int *, const float *, const int *, const float *, float *,
                    const int *);
typedef void gemm_d(const char *, const char *, const int *, const int *, const int *, const double *,
                    const double *, const int *, const double *, const int *, const double *, double *,
                    const int *);
typedef void trsm_d(const char *, const char *, const char *, const char *, const int *, const int *,
                    const double *, const double *, const int *, double *, const int *);
typedef void potrf_d(const char *, const int *, double *, const int *, int *);
typedef void trtri_d(const char *, const char *, const int *, double *, const int *, int *);

struct linear_algebra {
    struct threadpool *pool;
    void *library;
    void (*set_threads)(int);
    gemm_s *sgemm;
    gemm_d *dgemm;
    trsm_d *dtrsm;
    potrf_d *dpotrf;
    trtri_d *dtrtri;
};

void linear_algebra_close(struct linear_algebra *la)
{
    if (!la) return;
    /* The library stays loaded: its threads would crash if its code were unmapped. */
    free(la);
}

/* Look up the functions of the library. ERR_ABSENT: it is not OpenBLAS. */
static enum err_code linear_algebra_bind(struct linear_algebra *la, const char *path, struct err *why)
{
    const struct {
        void *slot;
        const char *symbol;
    } SYMBOLS[] = {
        { &la->set_threads, "openblas_set_num_threads" },
        { &la->sgemm, "sgemm_" },
        { &la->dgemm, "dgemm_" },
        { &la->dtrsm, "dtrsm_" },
        { &la->dpotrf, "dpotrf_" },
        { &la->dtrtri, "dtrtri_" },
    };
    for (size_t i = 0; i < COUNT_OF(SYMBOLS); i++) {
        void *address = dlsym(la->library, SYMBOLS[i].symbol);
        if (!address)
            return err_set(why, ERR_ABSENT, "'%s' has no function %s: expected OpenBLAS with LAPACK", path,
                           SYMBOLS[i].symbol);
        memcpy(SYMBOLS[i].slot, &address, sizeof address); /* POSIX: function pointers fit into void * */
    }
    return ERR_OK;
}

enum err_code linear_algebra_open(struct linear_algebra **out, struct threadpool *pool, struct err *why)
{
    *out = NULL;
    const char *given = getenv("QDYNO_OPENBLAS"), *path = given && *given ? given : "libopenblas.so.0";
    struct linear_algebra *la = calloc(1, sizeof *la);
    if (!la) return err_set(why, ERR_NOMEM, "out of memory opening the linear algebra");
    la->pool = pool;
    la->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    enum err_code rc = ERR_OK;
    if (!la->library) {
        const char *cause = dlerror();
        rc = err_set(why, ERR_ABSENT, "this method needs OpenBLAS (Debian: apt-get install libopenblas0): %s",
                     cause ? cause : path);
    } else {
        rc = linear_algebra_bind(la, path, why);
    }
    if (rc) {
        linear_algebra_close(la);
        return rc;
    }
    la->set_threads(1);
    *out = la;
    return ERR_OK;
}

struct threadpool *linear_algebra_pool(const struct linear_algebra *la)
{
    return la->pool;
}

/* ---------------------------------------------------------------- tiles */

static int64_t tiles_of(int64_t n)
{
    return (n + TILE - 1) / TILE;
}

static int tile_size(int64_t n, int64_t tile)
{
    return (int)MIN(TILE, n - tile * TILE);
}

/* The pair with number `index` in the row-by-row order of all pairs with 0 <= column <= row. */
static void lower_pair(int64_t index, int64_t *row, int64_t *column)
{
    int64_t r = (int64_t)((sqrt(8.0 * (double)index + 1) - 1) / 2);
    while (r * (r + 1) / 2 > index) r--;
    while ((r + 1) * (r + 2) / 2 <= index) r++;
    *row = r;
    *column = index - r * (r + 1) / 2;
}

/* ---------------------------------------------------------------- products in f32 */

struct multiply_job {
    const struct linear_algebra *la;
    const struct linear_product *p;
};

/* Thread function of linear_multiply_add. */
static void multiply_tiles(void *arg, int member, int size)
{
    (void)member, (void)size;
    const struct multiply_job *job = arg;
    const struct linear_product *p = job->p;
    const int64_t across = tiles_of(p->cols), count = tiles_of(p->rows) * across;
    const int inner = (int)p->inner, a_stride = (int)p->a_stride, b_stride = (int)p->b_stride,
              c_stride = (int)p->c_stride;
    const float one = 1;
    for (int64_t t; (t = threadpool_next(job->la->pool, 1)) < count;) {
        const int64_t i = t / across, j = t % across;
        const int rows = tile_size(p->rows, i), cols = tile_size(p->cols, j);
        const float *b = p->b + j * TILE * (p->b_by_rows ? p->b_stride : 1);
        job->la->sgemm(p->b_by_rows ? "T" : "N", "N", &cols, &rows, &inner, &p->alpha, b, &b_stride,
                       p->a + i * TILE * p->a_stride, &a_stride, &one,
                       p->c + i * TILE * p->c_stride + j * TILE, &c_stride);
    }
}

void linear_multiply_add(struct linear_algebra *la, const struct linear_product *p)
{
    if (!p->rows || !p->cols || !p->inner) return;
    struct multiply_job job = { la, p };
    threadpool_run(la->pool, multiply_tiles, &job);
}

struct gram_job {
    const struct linear_algebra *la;
    float *h;
    const float *x;
    int64_t n, x_stride, rows;
};

/* Thread function of linear_gram_add. */
static void gram_tiles(void *arg, int member, int size)
{
    (void)member, (void)size;
    const struct gram_job *job = arg;
    const int64_t across = tiles_of(job->n), count = across * (across + 1) / 2;
    const int rows = (int)job->rows, x_stride = (int)job->x_stride, n = (int)job->n;
    const float one = 1;
    for (int64_t t, i, j; (t = threadpool_next(job->la->pool, 1)) < count;) {
        lower_pair(t, &i, &j);
        const int high = tile_size(job->n, i), wide = tile_size(job->n, j);
        job->la->sgemm("N", "T", &wide, &high, &rows, &one, job->x + j * TILE, &x_stride, job->x + i * TILE,
                       &x_stride, &one, job->h + i * TILE * job->n + j * TILE, &n);
    }
}

void linear_gram_add(struct linear_algebra *la, float *h, int64_t n, const float *x, int64_t x_stride,
                     int64_t rows)
{
    if (!rows) return;
    struct gram_job job = { la, h, x, n, x_stride, rows };
    threadpool_run(la->pool, gram_tiles, &job);
}

/* ---------------------------------------------------------------- factorizations in f64 */

struct factor_job {
    const struct linear_algebra *la;
    double *a;
    int64_t n, tile;
    double *inverse; /* [TILE][TILE]: inverse of the current diagonal tile, zeros above the diagonal */
    double *strip;   /* [TILE][n]: the tiles left of the diagonal tile */
};

/* Tile in row i and column j. */
static double *tile_at(const struct factor_job *job, int64_t i, int64_t j)
{
    return job->a + i * TILE * job->n + j * TILE;
}

/* Thread function of linear_cholesky: tiles below diagonal tile k, A_ik = A_ik L_kk^-T. */
static void cholesky_solve_tiles(void *arg, int member, int size)
{
    (void)member, (void)size;
    const struct factor_job *job = arg;
    const int64_t k = job->tile, below = tiles_of(job->n) - k - 1;
    const int wide = tile_size(job->n, k), stride = (int)job->n;
    const double one = 1;
    for (int64_t t; (t = threadpool_next(job->la->pool, 1)) < below;) {
        const int64_t i = k + 1 + t;
        const int high = tile_size(job->n, i);
        job->la->dtrsm("L", "U", "T", "N", &wide, &high, &one, tile_at(job, k, k), &stride,
                       tile_at(job, i, k), &stride);
    }
}

/* Thread function of linear_cholesky: tiles right of column k, A_ij -= A_ik A_jk^T. */
static void cholesky_update_tiles(void *arg, int member, int size)
{
    (void)member, (void)size;
    const struct factor_job *job = arg;
    const int64_t k = job->tile, below = tiles_of(job->n) - k - 1, count = below * (below + 1) / 2;
    const int inner = tile_size(job->n, k), stride = (int)job->n;
    const double one = 1, minus = -1;
    for (int64_t t, i, j; (t = threadpool_next(job->la->pool, 1)) < count;) {
        lower_pair(t, &i, &j);
        i += k + 1, j += k + 1;
        const int high = tile_size(job->n, i), wide = tile_size(job->n, j);
        job->la->dgemm("T", "N", &wide, &high, &inner, &minus, tile_at(job, j, k), &stride,
                       tile_at(job, i, k), &stride, &one, tile_at(job, i, j), &stride);
    }
}

enum err_code linear_cholesky(struct linear_algebra *la, double *a, int64_t n, struct err *why)
{
    struct factor_job job = { .la = la, .a = a, .n = n };
    for (job.tile = 0; job.tile < tiles_of(n); job.tile++) {
        const int size = tile_size(n, job.tile), stride = (int)n;
        double *diagonal = tile_at(&job, job.tile, job.tile);
        int bad = 0;
        la->dpotrf("U", &size, diagonal, &stride, &bad);
        /* OpenBLAS does not detect NaN: its comparison with zero is false. */
        for (int i = 0; i < size && !bad; i++)
            if (!(diagonal[i * n + i] > 0 && diagonal[i * n + i] < INFINITY)) bad = i + 1;
        if (bad)
            return err_set(why, ERR_FORMAT, "the matrix is not positive definite (pivot %lld of %lld)",
                           (long long)(job.tile * TILE + bad), (long long)n);
        threadpool_run(la->pool, cholesky_solve_tiles, &job);
        threadpool_run(la->pool, cholesky_update_tiles, &job);
    }
    return ERR_OK;
}

/* Thread function of linear_lower_inverse: strip_j = -L_ii^-1 L_ij for all tiles j left of the diagonal. */
static void inverse_strip_tiles(void *arg, int member, int size)
{
    (void)member, (void)size;
    const struct factor_job *job = arg;
    const int high = tile_size(job->n, job->tile), wide = TILE, stride = (int)job->n;
    const double minus = -1, zero = 0;
    for (int64_t j; (j = threadpool_next(job->la->pool, 1)) < job->tile;)
        job->la->dgemm("N", "N", &wide, &high, &high, &minus, tile_at(job, job->tile, j), &stride,
                       job->inverse, &wide, &zero, job->strip + j * TILE, &stride);
}

/* Thread function of linear_lower_inverse: row i of the inverse, M_ij = sum over j <= m < i of strip_m M_mj,
 * where M_jj is triangular. */
static void inverse_row_tiles(void *arg, int member, int size)
{
    (void)member, (void)size;
    const struct factor_job *job = arg;
    const int64_t i = job->tile;
    const int high = tile_size(job->n, i), wide = TILE, stride = (int)job->n;
    const double one = 1, zero = 0;
    for (int64_t j; (j = threadpool_next(job->la->pool, 1)) < i;) {
        const int inner = (int)((i - j) * TILE);
        job->la->dgemm("N", "N", &wide, &high, &inner, &one, tile_at(job, j, j), &stride,
                       job->strip + j * TILE, &stride, &zero, tile_at(job, i, j), &stride);
    }
}

/* Invert the diagonal tile in place, and copy it to job->inverse with zeros above the diagonal. */
static enum err_code inverse_diagonal_tile(struct factor_job *job, struct err *why)
{
    const int size = tile_size(job->n, job->tile), stride = (int)job->n;
    double *diagonal = tile_at(job, job->tile, job->tile);
    int bad = 0;
    job->la->dtrtri("U", "N", &size, diagonal, &stride, &bad);
    if (bad)
        return err_set(why, ERR_FORMAT, "the triangular matrix has no inverse: diagonal element %lld is 0",
                       (long long)(job->tile * TILE + bad));
    for (int i = 0; i < size; i++) {
        for (int j = i + 1; j < size; j++) diagonal[i * job->n + j] = 0;
        memcpy(job->inverse + i * TILE, diagonal + i * job->n, (size_t)size * sizeof *job->inverse);
    }
    return ERR_OK;
}

enum err_code linear_lower_inverse(struct linear_algebra *la, double *a, int64_t n, struct err *why)
{
    struct factor_job job = { .la = la, .a = a, .n = n };
    job.inverse = malloc(sizeof(double) * TILE * TILE);
    job.strip = malloc(sizeof(double) * TILE * (size_t)n);
    enum err_code rc = ERR_OK;
    if (!job.inverse || !job.strip)
        rc = err_set(why, ERR_NOMEM, "out of memory inverting a matrix of %lld", (long long)n);
    for (job.tile = 0; !rc && job.tile < tiles_of(n); job.tile++) {
        rc = inverse_diagonal_tile(&job, why);
        if (rc || !job.tile) continue;
        threadpool_run(la->pool, inverse_strip_tiles, &job);
        threadpool_run(la->pool, inverse_row_tiles, &job);
    }
    free(job.inverse);
    free(job.strip);
    return rc;
}
