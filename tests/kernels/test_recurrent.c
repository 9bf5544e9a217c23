/* Proves: convolutions and recurrences compute what kernels/recurrent.h documents, for rows of several
 * sequences in one call or several, with and without threads. The expected results are computed here in
 * binary64. */
#include "tests/kernels/numbers.h"

enum { SEQUENCES = 2, ROWS = 45, STRIDE = 1400 };

/* Two sequences in turns of changing length; the second one starts again in the middle. */
static int32_t seq_of[ROWS], pos_of[ROWS];

static void make_rows(void)
{
    int next[SEQUENCES] = { 0, 0 };
    for (int i = 0; i < ROWS; i++) {
        const int s = i < 22 ? 0 : i % 3 == 0;
        if (i == 40) next[1] = 0;
        seq_of[i] = i == 40 ? 1 : s;
        pos_of[i] = next[seq_of[i]]++;
    }
}

static struct backend *open_here(int threads)
{
    struct err why;
    struct backend *b;
    uint32_t usable;
    CHECK_OK(isa_usable(&usable, &why));
    CHECK_OK(backend_open(&b, "cpu", &(struct backend_options){ .threads = threads, .isa = usable }, &why));
    return b;
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

/* ---------------------------------------------------------------- convolution */

enum { TAPS = 4, CHANNELS = 301 };

/* u of channel c in the row `back` rows before row i of its sequence; 0 before the sequence's start. */
static double input_at(const struct convolution *p, int i, int back, int c)
{
    if (pos_of[i] < back) return 0;
    int at = i;
    while (seq_of[at] != seq_of[i] || pos_of[at] != pos_of[i] - back) at--;
    return p->x[at * STRIDE + c] * (p->before ? (double)p->before[at * STRIDE + c] : 1);
}

static void check_convolution(struct convolution *p, int threads, int first_call)
{
    static float state[SEQUENCES][(TAPS - 1) * CHANNELS], y[ROWS * STRIDE];
    struct backend *b = open_here(threads);
    const struct convolution all = *p;
    memset(state, 1, sizeof state); /* whatever was before a position 0 */
    for (int from = 0; from < ROWS; from = from ? ROWS : first_call) {
        const int64_t at = (int64_t)from * STRIDE;
        p->rows = (struct recurrent_rows){ .n = from ? ROWS - from : first_call,
                                           .seq = seq_of + from,
                                           .pos = pos_of + from,
                                           .state = state[0],
                                           .state_stride = sizeof state[0] / sizeof(float) };
        p->x = all.x + at;
        p->before = all.before ? all.before + at : NULL;
        p->after = all.after ? all.after + at : NULL;
        p->y = y + at;
        backend_convolve(b, p);
    }
    *p = all;
    for (int i = 0; i < ROWS; i++)
        for (int c = 0; c < CHANNELS; c++) {
            double sum = p->bias ? (double)p->bias[c] : 0, size = fabs(sum);
            for (int t = 0; t < TAPS; t++) {
                const double term = (double)p->w[t * CHANNELS + c] * input_at(p, i, TAPS - 1 - t, c);
                sum += term;
                size += fabs(term);
            }
            const double after = p->after ? (double)p->after[i * STRIDE + c] : 1;
            CHECK_NEAR(y[i * STRIDE + c], (p->silu ? silu(sum) : sum) * after,
                       2e-6 * size * fabs(after) + 1e-7);
        }
    backend_close(b);
}

static void convolutions(void **unused)
{
    (void)unused;
    static float w[TAPS * CHANNELS], bias[CHANNELS], x[ROWS * STRIDE];
    struct rng r = { 5 };
    make_rows();
    fill_gauss(&r, w, TAPS * CHANNELS, 1);
    fill_gauss(&r, bias, CHANNELS, 1);
    fill_gauss(&r, x, ROWS * STRIDE, 1);
    for (int kind = 0; kind < 4; kind++)
        for (int threads = 1; threads <= 3; threads += 2) {
            struct convolution p = { .taps = TAPS, .channels = CHANNELS, .w = w, .x = x, .x_stride = STRIDE };
            p.y_stride = STRIDE;
            p.silu = kind & 1;
            p.bias = kind & 1 ? bias : NULL;
            p.before = kind & 2 ? x + CHANNELS : NULL;
            p.after = kind & 2 ? x + 2 * CHANNELS : NULL;
            check_convolution(&p, threads, ROWS - 12);
        }
}

/* ---------------------------------------------------------------- recurrence */

enum { DIM_MOST = 128, HEADS = 4, GROUPS = 2 };

static double length_of(const float *x, int n, double eps)
{
    double sum = eps;
    for (int i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* One row of one head, in binary64: m is the state, y the output. */
static void step(const struct recurrence *p, int i, int head, double *m, double *y)
{
    const int group = p->interleaved ? head % GROUPS : head / (HEADS / GROUPS), key = p->key_dim,
              value = p->value_dim;
    const float *k = p->k + i * STRIDE + group * key, *q = p->q + i * STRIDE + group * key;
    const float *v = p->v + i * STRIDE + head * value, *z = p->z + i * STRIDE + head * value;
    const bool delta = p->kind == RECURRENCE_DELTA;
    const double s = log1p(
        exp((double)p->dt.x[i * STRIDE + head / p->dt.run * p->dt.step + head % p->dt.run] +
            (double)p->dt_bias[head]));
    const double decay = exp(s * (double)p->a[head]), of_k = delta ? 1 / length_of(k, key, p->eps) : 1,
                 of_q = delta ? 1 / length_of(q, key, p->eps) / sqrt(key) : 1;
    double squares = 0;
    for (int j = 0; j < value; j++) {
        double seen = 0, add = s * (double)v[j];
        for (int d = 0; d < key; d++) seen += (m[d * value + j] *= decay) * (double)k[d] * of_k;
        if (delta) {
            const float beta = p->beta.x[i * STRIDE + head / p->beta.run * p->beta.step + head % p->beta.run];
            add = ((double)v[j] - seen) / (1 + exp(-(double)beta));
        }
        y[j] = delta ? 0 : (double)p->d[head] * (double)v[j];
        for (int d = 0; d < key; d++) {
            m[d * value + j] += (double)k[d] * of_k * add;
            y[j] += m[d * value + j] * (double)q[d] * of_q;
        }
        squares += y[j] * y[j];
    }
    for (int j = 0; j < value; j++) {
        if (delta) y[j] *= (double)p->norm[j] / sqrt(squares / value + (double)p->eps);
        y[j] *= silu((double)z[j]);
    }
}

static void check_recurrence(struct recurrence *p, int threads, int first_call)
{
    static float state[SEQUENCES][HEADS * DIM_MOST * DIM_MOST], y[ROWS * STRIDE];
    double(*m)[HEADS][DIM_MOST * DIM_MOST] = calloc(SEQUENCES, sizeof *m);
    struct backend *b = open_here(threads);
    const struct recurrence all = *p;
    memset(state, 1, sizeof state);
    for (int from = 0; from < ROWS; from = from ? ROWS : first_call) {
        const int64_t at = (int64_t)from * STRIDE;
        p->rows = (struct recurrent_rows){ .n = from ? ROWS - from : first_call,
                                           .seq = seq_of + from,
                                           .pos = pos_of + from,
                                           .state = state[0],
                                           .state_stride = sizeof state[0] / sizeof(float) };
        p->q = all.q + at, p->k = all.k + at, p->v = all.v + at, p->z = all.z + at;
        p->dt.x = all.dt.x + at;
        if (all.beta.x) p->beta.x = all.beta.x + at;
        p->y = y + at;
        backend_recur(b, p);
    }
    *p = all;
    for (int i = 0; i < ROWS; i++)
        for (int h = 0; h < HEADS; h++) {
            double want[DIM_MOST], most = 0;
            if (pos_of[i] == 0) memset(m[seq_of[i]][h], 0, sizeof m[0][0]);
            step(p, i, h, m[seq_of[i]][h], want);
            for (int j = 0; j < p->value_dim; j++) most = fmax(most, fabs(want[j]));
            for (int j = 0; j < p->value_dim; j++)
                CHECK_NEAR(y[i * STRIDE + h * p->value_dim + j], want[j], 2e-5 * most + 1e-7);
        }
    free(m);
    backend_close(b);
}

static void recurrences(void **unused)
{
    (void)unused;
    static const int DIMS[][2] = { { 16, 16 }, { 128, 128 }, { 64, 80 }, { 20, 37 } };
    static float x[ROWS * STRIDE], a[HEADS], bias[HEADS], d[HEADS], norm[DIM_MOST];
    struct rng r = { 6 };
    make_rows();
    fill_gauss(&r, x, ROWS * STRIDE, 1);
    fill_gauss(&r, bias, HEADS, 1);
    fill_gauss(&r, d, HEADS, 1);
    fill_gauss(&r, norm, DIM_MOST, 1);
    for (int h = 0; h < HEADS; h++) a[h] = -0.1f * (float)(h + 1);
    for (size_t i = 0; i < COUNT_OF(DIMS); i++)
        for (int kind = 0; kind < 4; kind++) {
            const int key = DIMS[i][0], value = DIMS[i][1];
            const bool scan = kind & 1;
            struct recurrence p = { .kind = scan ? RECURRENCE_SCAN : RECURRENCE_DELTA,
                                    .heads = HEADS,
                                    .groups = GROUPS,
                                    .key_dim = key,
                                    .value_dim = value,
                                    .interleaved = kind & 2,
                                    .q = x,
                                    .k = x + GROUPS * key,
                                    .v = x + 2 * GROUPS * key,
                                    .x_stride = STRIDE,
                                    .a = a,
                                    .dt_bias = bias,
                                    .d = scan ? d : NULL,
                                    .norm = norm,
                                    .eps = 1e-6f,
                                    .y_stride = STRIDE };
            p.z = p.v + 2 * value; /* overlaps v: any numbers do */
            p.dt = (struct head_scalars){ x + 7, kind & 2 ? HEADS : HEADS / GROUPS, HEADS };
            p.beta = (struct head_scalars){ x + 3, HEADS / GROUPS, HEADS };
            check_recurrence(&p, 1 + 2 * (kind & 1), ROWS - 20);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(convolutions), cmocka_unit_test(recurrences) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
