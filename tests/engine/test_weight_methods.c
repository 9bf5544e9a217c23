/* Proves: every method that encodes one matrix at a time works as described. Its row of METHODS is complete,
 * and its error on normally distributed weights is the published one. The number of threads does not matter.
 * Difficult matrices stay finite. Invalid parameters are rejected with a reason. Results of calibration
 * (ranges, outlier columns) are stored in companion tensors. */
#include <stdlib.h>

#include "engine/quant/calibration.h"
#include "engine/quant/groups.h"
#include "engine/quant/methods.h"
#include "engine/quant/mixes.h"
#include "tests/kernels/numbers.h"

enum { ROWS = 128, COLS = 512, ALL = ROWS * COLS };

/* ---------------------------------------------------------------- the table */

static void each_word(const char *list, void (*see)(const char *word, const struct method *m),
                      const struct method *m)
{
    char copy[512], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", list);
    for (char *w = strtok_r(copy, " ", &rest); w; w = strtok_r(NULL, " ", &rest)) see(w, m);
}

static void format_exists(const char *word, const struct method *m)
{
    const struct format *f = format_find(word);
    if (!f || !f->encode || !f->decode || !method_makes(m, f)) fail_msg("%s: format %s", m->name, word);
}

static void is_no_name(const char *alias, const struct method *m)
{
    const char *name = param_name(alias); /* an alias must mean the same parameter in all methods */
    for (const struct param *p = m->params; p->name; p++)
        if (!strcmp(p->name, name)) return;
    fail_msg("%s: '%s' means %s", m->name, alias, name);
}

static void rows_are_complete(void **state)
{
    (void)state;
    for (size_t i = 0; i < method_count(); i++) {
        const struct method *m = method_at(i);
        CHECK(m->help);
        CHECK(m->help[0]);
        CHECK(m->good);
        CHECK(m->good[0]);
        CHECK(m->bad);
        CHECK(m->bad[0]);
        CHECK(m->rows || m->tensor || m->layer);
        CHECK_EQ(method_find(m->name), m);
        if (m->formats) each_word(m->formats, format_exists, m);
        for (const struct param *p = m->params; p && p->name; p++) {
            struct err why = { 0 };
            char value[64];
            CHECK_OK(param_check(m, p->name, p->otherwise, value, sizeof value, &why));
            if (strcmp(value, p->otherwise))
                fail_msg("%s: default %s is spelt %s", m->name, p->otherwise, value);
            CHECK(p->help);
            CHECK(p->help[0]);
            is_no_name(p->name, m);
            if (p->aliases) each_word(p->aliases, is_no_name, m);
        }
        const struct params defaults = { .method = m, .given = "" };
        struct err why = { 0 };
        CHECK_OK(params_check_all(&defaults, &why));
        if (m->format || m->default_format) CHECK(method_makes(m, format_find(method_format(&defaults))));
        CHECK(!m->format || !m->default_format); /* only one of them would be used */
    }
}

static void is_a_mix(const char *word, const struct method *m)
{
    (void)m;
    CHECK(mix_find(word));
    CHECK_STR(mix_find(word)->name, word);
}

static void gguf_types_are_the_mixes(void **state)
{
    (void)state;
    const struct param *type = method_find("gguf")->params;
    CHECK_STR(type->name, "type");
    each_word(type->choices, is_a_mix, NULL);
    for (size_t i = 0; i < MIX_COUNT; i++) CHECK(str_has_word(type->choices, MIXES[i].name));
}

/* ---------------------------------------------------------------- one matrix */

struct made {
    struct tensor_job job;
    struct config config;
    uint8_t *bytes;
    float *back; /* decoded */
};

static void free_made(struct made *m)
{
    for (int i = 0; i < m->job.companions; i++) free(m->job.companion[i].data);
    free(m->bytes);
    free(m->back);
}

/* Encode a matrix in memory as the driver does. `input` may be NULL. */
static enum err_code make(struct made *m, const char *line, float *x, int64_t rows, int64_t cols, int threads,
                          const struct calibration_input *input, struct err *why)
{
    *m = (struct made){ 0 };
    enum err_code rc = config_parse(&m->config, line, why);
    if (rc) return rc;
    const struct threadpool_options o = { .threads = threads };
    const struct format *f = format_find(config_text(&m->config, KNOB_FORMAT));
    assert_non_null(f);
    m->bytes = calloc(1, (size_t)(rows * format_row_bytes(f, cols)));
    m->back = malloc((size_t)(rows * cols) * sizeof *m->back);
    m->job = (struct tensor_job){ .name = "blk.0.ffn_up.weight",
                                  .format = f,
                                  .params = config_params(&m->config),
                                  .rows = rows,
                                  .cols = cols,
                                  .input = input,
                                  .importance = input ? input->mean_square : NULL,
                                  .x = x,
                                  .out = m->bytes };
    assert_int_equal(threadpool_open(&m->job.pool, &o, why), ERR_OK);
    const struct method *method = m->job.params.method;
    if (method->companions) m->job.companions = method->companions(&m->job, m->job.companion);
    for (int i = 0; i < m->job.companions; i++)
        m->job.companion[i].data = calloc(
            (size_t)m->job.companion[i].size + 1,
            (size_t)format_row_bytes(companion_format(m->job.companion[i].what), 1));
    if (method->tensor)
        rc = method->tensor(&m->job, why);
    else
        method->rows(&m->job, x, m->bytes, rows);
    threadpool_close(m->job.pool);
    format_decode_rows(f, m->bytes, m->back, rows, cols);
    return rc;
}

static void gauss(float *x, uint64_t seed)
{
    struct rng r = { seed };
    fill_gauss(&r, x, ALL, 1);
}

static double error_of(const char *line)
{
    static float x[ALL], copy[ALL];
    struct err why = { 0 };
    struct made one, three;
    gauss(x, 11);
    memcpy(copy, x, sizeof x);
    if (make(&one, line, x, ROWS, COLS, 1, NULL, &why)) fail_msg("%s: %s", line, why.message);
    memcpy(x, copy, sizeof x);
    CHECK_OK(make(&three, line, x, ROWS, COLS, 3, NULL, &why));
    if (memcmp(one.bytes, three.bytes, (size_t)(ROWS * format_row_bytes(one.job.format, COLS))))
        fail_msg("%s: threads change bytes", line);
    const double error = nmse(copy, one.back, ALL);
    free_made(&one);
    free_made(&three);
    return error;
}

/* Published errors on N(0,1), with the margins of the formats' own bounds; int8 rows have 512 weights here.
 */
static void errors_are_the_published(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        double most;
    } CASES[] = {
        { "hqq,bits=8", 2.8e-5 },
        { "hqq", 8e-3 },
        { "hqq,bits=4,group_size=32", 6.5e-3 },
        { "hqq,bits=3", 3.5e-2 },
        { "hqq,bits=2", 0.2 },
        { "hqq,bits=2,group_size=128", 0.26 },
        { "quanto", 6e-5 },
        { "quanto,weights=int4", 1.05e-2 },
        { "quanto,weights=int4,optimizer=hqq", 1.05e-2 },
        { "quanto,weights=int4,zeropoint=true", 1.15e-2 },
        { "quanto,weights=int2", 0.28 },
        { "quanto,weights=int2,optimizer=hqq", 0.25 },
        { "quanto,weights=float8", 7.4e-4 },
        { "quanto,weights=float8_e5m2", 3e-3 },
        { "method=nf4", 8.9e-3 },
        { "method=nf4,blocksize=128", 9.6e-3 },
        { "method=nf4,double_quant=true", 8.9e-3 },
        { "method=fp4", 1.6e-2 },
        { "method=fp4,double_quant=true", 1.6e-2 },
        { "eetq", 6.5e-5 },
        { "llm_int8", 6e-5 },
        { "int8_dynamic", 6e-5 },
        { "fp8", 7.4e-4 },
        { "fp8,fp8_format=e5m2", 3e-3 },
        { "fp8,granularity=tensor", 7.4e-4 },
        { "fp8,granularity=block", 7.4e-4 },
        { "method=mxfp4", 1.4e-2 },
        { "tf32", 4.6e-8 },
        { "gguf,type=q6_K,pure=true", 3.3e-4 },
        { "gguf", 5.4e-3 },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        const double error = error_of(CASES[i].line);
        if (!(error <= CASES[i].most && error > 0))
            fail_msg("%s: NMSE %g, want %g", CASES[i].line, error, CASES[i].most);
    }
}

static void orderings(void **state)
{
    (void)state;
    CHECK_LT(error_of("method=nf4"), 0.65 * error_of("method=fp4"));
    CHECK_LT(error_of("method=nf4,double_quant=true"),
             1.01 * error_of("method=nf4")); /* double quantization adds almost no error */
    CHECK_LT(error_of("method=nf4"), error_of("method=nf4,blocksize=128"));
    CHECK_LT(error_of("method=nf4,blocksize=128"), error_of("method=nf4,blocksize=4096"));
    CHECK_LE(error_of("method=nf4,double_quant=true,nested_blocksize=64"),
             1.001 * error_of("method=nf4,double_quant=true,nested_blocksize=4096"));
    CHECK_LT(error_of("hqq,bits=3"), 0.95 * error_of("rtn:u3_g64"));
    CHECK_LT(error_of("hqq,bits=2"), 0.95 * error_of("rtn:u2_g64"));
    CHECK_LT(error_of("quanto,weights=int2,optimizer=hqq"), error_of("quanto,weights=int2"));
    CHECK_LE(error_of("fp8"), 1.01 * error_of("fp8,granularity=tensor"));
}

static double trained_error(const float *w, const char *line)
{
    static float x[288 * 768];
    struct err why = { 0 };
    struct made m;
    memcpy(x, w, sizeof x);
    if (make(&m, line, x, 288, 768, 2, NULL, &why)) fail_msg("%s: %s", line, why.message);
    const double error = nmse(w, m.back, 288 * 768);
    free_made(&m);
    return error;
}

/* The same on trained weights, which have heavier tails than a normal distribution. */
static void orderings_of_trained_weights(void **state)
{
    (void)state;
    static const char *const LINES[] = { "method=nf4",
                                         "method=nf4,double_quant=true",
                                         "method=fp4",
                                         "hqq",
                                         "rtn:u4_g64",
                                         "hqq,bits=3",
                                         "rtn:u3_g64",
                                         "hqq,bits=2",
                                         "rtn:u2_g64",
                                         "eetq",
                                         "llm_int8",
                                         "fp8",
                                         "quanto,weights=int4",
                                         "quanto,weights=int4,optimizer=hqq" };
    enum { NF4, NF4_DQ, FP4, HQQ4, RTN4, HQQ3, RTN3, HQQ2, RTN2, EETQ, LLM, FP8, MAX4, OPT4 };
    static float w[288 * 768];
    double error[COUNT_OF(LINES)];
    char path[512];
    SHARED_OR_SKIP(path, "models/stories15m-body/model_layers_3_mlp_down_proj_weight.bin");
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fread(w, sizeof *w, COUNT_OF(w), f), COUNT_OF(w));
    fclose(f);
    for (size_t i = 0; i < COUNT_OF(LINES); i++) {
        error[i] = trained_error(w, LINES[i]);
        print_message("%-36s NMSE %.3g\n", LINES[i], error[i]);
    }
    CHECK_LT(error[NF4], 0.75 * error[FP4]);
    CHECK_LT(error[NF4_DQ], 1.01 * error[NF4]);
    CHECK_LT(error[HQQ4], error[RTN4]);
    CHECK_LT(error[HQQ3], 0.95 * error[RTN3]);
    CHECK_LT(error[HQQ2], 0.95 * error[RTN2]);
    CHECK_LT(error[OPT4], error[MAX4]);
    CHECK_LT(error[EETQ], 3e-4);
    CHECK_LT(error[LLM], 3e-4);
    CHECK_LT(error[FP8], 8e-4);
    CHECK_LT(error[LLM], error[FP8]);
}

/* Zeros, constants, one outlier, groups far from 0, values at both ends of the range of f16. */
static void hard_matrices(void **state)
{
    (void)state;
    static const char *const LINES[] = { "hqq,bits=8",
                                         "hqq",
                                         "hqq,bits=3",
                                         "hqq,bits=2",
                                         "quanto,weights=int4",
                                         "quanto,weights=int2",
                                         "quanto,weights=int4,optimizer=hqq",
                                         "quanto,weights=int4,zeropoint=true",
                                         "quanto",
                                         "method=nf4",
                                         "method=nf4,double_quant=true",
                                         "method=fp4",
                                         "eetq",
                                         "llm_int8",
                                         "int8_dynamic",
                                         "fp8",
                                         "fp8,granularity=tensor",
                                         "fp8,granularity=block",
                                         "method=mxfp4",
                                         "tf32" };
    enum { H_ROWS = 6, H_COLS = 256 };
    static float x[H_ROWS * H_COLS], copy[H_ROWS * H_COLS];
    for (int k = 0; k < H_COLS; k++) {
        x[k] = 0;
        x[H_COLS + k] = -0.75f;
        x[2 * H_COLS + k] = k == 100 ? 1e3f : 1e-9f;
        x[3 * H_COLS + k] = 7 + 1e-5f * (float)(k % 64);
        x[4 * H_COLS + k] = (k % 2 ? 1 : -1) * 6e4f;
        x[5 * H_COLS + k] = (float)(k % 7) * 1e-8f;
    }
    memcpy(copy, x, sizeof x);
    for (size_t i = 0; i < COUNT_OF(LINES); i++) {
        struct err why = { 0 };
        struct made m;
        memcpy(x, copy, sizeof x);
        if (make(&m, LINES[i], x, H_ROWS, H_COLS, 2, NULL, &why)) fail_msg("%s: %s", LINES[i], why.message);
        /* These two use one scale for rows of very different size. */
        const bool shared = strstr(LINES[i], "double_quant") || strstr(LINES[i], "tensor");
        for (int j = 0; j < H_ROWS * H_COLS; j++) {
            const float *row = copy + j / H_COLS * H_COLS;
            const double most = shared ? 6e4 : fmax(fabs(row[0]), fabs(row[100]));
            if (!(fabs(m.back[j]) <= 1.5 * most + 1e-6))
                fail_msg("%s: weight %d is %g, was %g", LINES[i], j, m.back[j], copy[j]);
            if (j < H_COLS && !strstr(LINES[i], "double_quant")) CHECK_EQ(m.back[j], 0);
        }
        free_made(&m);
    }
}

static void groups_that_f16_cannot_hold(void **state)
{
    (void)state;
    struct group_choice c = group_stored((struct group_choice){ 1e-3f, -1e6f }); /* a constant 1000 */
    CHECK(isfinite(c.zero));
    CHECK_LT(0, c.scale);
    CHECK_NEAR(-c.zero * c.scale, 1000, 0.5);
    c = group_stored((struct group_choice){ 1e-12f, 3 });
    CHECK_EQ(c.scale, 0x1p-24f);
    CHECK_EQ(c.zero, 3);
    c = group_stored((struct group_choice){ 1e9f, 0 });
    CHECK_EQ(c.scale, 65504);
    CHECK_EQ(c.zero, 0);
}

/* ---------------------------------------------------------------- refusals */

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *line, *says;
    } CASES[] = {
        { "hqq,axis=0", "no format stores groups across rows" },
        { "hqq,bits=3,group_size=32", "no format has such groups" },
        { "hqq,bits=5", "8 4 3 2" },
        { "hqq:u4_g128", "makes u4_g64" },
        { "quanto,weights=int4,optimizer=absmax", "max or hqq" },
        { "quanto,optimizer=hqq", "int4 or int2" },
        { "quanto,zeropoint=true", "int4 or int2" },
        { "quanto,weights=int4,activations=int8", "weights=int8" },
        { "quanto,activations=float8", "float8" },
        { "method=nf4,double_quant=true,blocksize=128", "blocksize=64" },
        { "method=nf4,nested_blocksize=128", "double_quant" },
        { "method=nf4,blocksize=32", "64 128" },
        { "llm_int8,has_fp16_weight=true,threshold=0", "threshold above 0" },
        { "gguf,type=q2_K_S", "imatrix=true" },
        { "gguf,type=q4_K_XXL", "q4_K_M" },
        { "fp8,activation_scheme=none,activation_scale_ub=5", "dynamic" },
        { "fp8,granularity=block,fp8_format=e5m2", "granularity=block needs fp8_format=e4m3" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        struct config c;
        assert_int_equal(config_parse(&c, CASES[i].line, &why), ERR_USAGE);
        if (!strstr(why.message, CASES[i].says)) fail_msg("%s: %s", CASES[i].line, why.message);
    }
}

/* ---------------------------------------------------------------- what is learned */

static const float *input_of(struct made *m)
{
    const struct companion_tensor *side = job_companion(&m->job, COMPANION_INPUT_SCALE);
    assert_non_null(side);
    return side->data;
}

/* Four batches that were also given to PyTorch's observers; expected values are theirs. */
static void static_inputs(void **state)
{
    (void)state;
    static float low[4] = { -65.4375f, -98.3125f, -70, -60 }, high[4] = { 119.25f, 80, 90, 100 };
    static float counts[2048], levels[2049];
    for (int i = 0; i < 2048; i++) counts[i] = 1;
    for (int i = 0; i < 2049; i++) levels[i] = 1;
    const struct calibration_input in = { .cols = COLS,
                                          .batches = 4,
                                          .batch_min = low,
                                          .batch_max = high,
                                          .histogram = { counts, 2048, -98.3125f, 119.25f },
                                          .symmetric = { levels, 2049, -119.25f, 119.25f } };
    static const struct {
        const char *line;
        float scale, tolerance;
        int zero, most;
    } CASES[] = {
        { "int8_static,observer=minmax", 0.8531862497329712f, 0, 115, 255 },
        { "int8_static,observer=minmax,reduce_range=true", 1.7130905389785767f, 0, 57, 127 },
        { "int8_static,observer=minmax,qscheme=per_tensor_symmetric", 0.9352940917015076f, 0, 128, 255 },
        { "int8_static,observer=moving_average,averaging_constant=1", 160.f / 255, 1e-6f, 96, 255 },
        { "int8_static,observer=histogram", 0.85318f, 1e-2f, 115, 255 }, /* flat: no clipping */
        { "int8_static,observer=percentile,percentile=50", 0.4266f, 2e-3f, 103, 255 },
        { "int8_static,observer=entropy", 0.9353f, 0.9f, -1, 255 },
        { "quanto,activations=int8,momentum=0", 100.f / 127, 1e-6f, 128, 255 },
        { "quanto,activations=int8,momentum=1", 119.25f / 127, 1e-6f, 128, 255 },
        { "quanto,weights=float8,activations=float8,momentum=0", 100.f / 448, 1e-6f, 0, 255 },
    };
    static float x[ALL];
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        struct made m;
        gauss(x, 3);
        if (make(&m, CASES[i].line, x, ROWS, COLS, 2, &in, &why))
            fail_msg("%s: %s", CASES[i].line, why.message);
        const float *got = input_of(&m);
        if (!(fabsf(got[0] - CASES[i].scale) <= CASES[i].tolerance) || got[2] != (float)CASES[i].most ||
            (CASES[i].zero >= 0 &&
             fabsf(got[1] - (float)CASES[i].zero) > (CASES[i].tolerance > 1e-5f ? 2 : 0)))
            fail_msg("%s: %.9g %g %g", CASES[i].line, got[0], got[1], got[2]);
        free_made(&m);
    }
    struct err why = { 0 };
    struct made m;
    assert_int_equal(make(&m, "int8_static", x, ROWS, COLS, 1, NULL, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "blk.0.ffn_up.weight");
    free_made(&m);
    const struct calibration_input imatrix = { .cols = COLS };
    assert_int_equal(make(&m, "quanto,activations=int8", x, ROWS, COLS, 1, &imatrix, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "imatrix");
    free_made(&m);
}

/* Columns whose activations exceeded the threshold in the calibration keep f16 weights. */
static void kept_columns(void **state)
{
    (void)state;
    static float x[ALL], copy[ALL], largest[COLS];
    gauss(x, 4);
    memcpy(copy, x, sizeof x);
    largest[7] = 6, largest[100] = 5.99f, largest[511] = 80;
    const struct calibration_input in = { .cols = COLS, .max_abs = largest };
    struct err why = { 0 };
    struct made m;
    CHECK_OK(make(&m, "llm_int8,has_fp16_weight=true", x, ROWS, COLS, 3, &in, &why));
    const struct companion_tensor *columns = job_companion(&m.job, COMPANION_OUTLIERS),
                                  *weights = job_companion(&m.job, COMPANION_OUTLIER_WEIGHTS);
    CHECK(columns);
    CHECK(weights);
    CHECK_EQ(columns->size, 2);
    CHECK_EQ(weights->size, 2 * ROWS);
    CHECK_EQ(((float *)columns->data)[0], 7);
    CHECK_EQ(((float *)columns->data)[1], 511);
    for (int r = 0; r < ROWS; r++) {
        CHECK_EQ(((uint16_t *)weights->data)[r], f16_from_f32(copy[r * COLS + 7]));
        CHECK_EQ(((uint16_t *)weights->data)[ROWS + r], f16_from_f32(copy[r * COLS + 511]));
    }
    free_made(&m);
    largest[7] = largest[511] = 0; /* no outliers: no companion tensors */
    CHECK_OK(make(&m, "llm_int8,has_fp16_weight=true", x, ROWS, COLS, 1, &in, &why));
    CHECK_EQ(m.job.companions, 0);
    free_made(&m);
    assert_int_equal(make(&m, "llm_int8,has_fp16_weight=true", x, ROWS, COLS, 1, NULL, &why), ERR_USAGE);
    free_made(&m);
    CHECK_OK(make(&m, "llm_int8", x, ROWS, COLS, 1, NULL,
                  &why)); /* without the parameter no calibration is needed */
    CHECK_EQ(m.job.companions, 0);
    free_made(&m);
}

/* An importance matrix reduces errors in important columns at the cost of others. */
static void importance(void **state)
{
    (void)state;
    static float x[ALL], copy[ALL], weight[COLS];
    struct err why = { 0 };
    gauss(x, 5);
    memcpy(copy, x, sizeof x);
    for (int k = 0; k < COLS; k++) weight[k] = k % 8 == 0 ? 100 : 0.1f;
    const struct calibration_input in = { .cols = COLS, .mean_square = weight };
    static const char *const TYPES[] = { "q4_0", "q4_K_M", "q3_K_M", "q2_K_S", "iq4_xs" };
    for (size_t t = 0; t < COUNT_OF(TYPES); t++) {
        double error[2] = { 0 };
        for (int weighted = 0; weighted <= 1; weighted++) {
            char line[96];
            struct made m;
            snprintf(line, sizeof line, "gguf,type=%s,imatrix=true", TYPES[t]);
            if (make(&m, line, x, ROWS, COLS, 1, weighted ? &in : NULL, &why))
                fail_msg("%s: %s", line, why.message);
            for (int i = 0; i < ALL; i++)
                error[weighted] += weight[i % COLS] * ((double)copy[i] - m.back[i]) *
                                   ((double)copy[i] - m.back[i]);
            free_made(&m);
        }
        if (!(error[1] < 0.8 * error[0]))
            fail_msg("%s: %g with importance, %g without", TYPES[t], error[1], error[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_complete),
        cmocka_unit_test(gguf_types_are_the_mixes),
        cmocka_unit_test(errors_are_the_published),
        cmocka_unit_test(orderings),
        cmocka_unit_test(orderings_of_trained_weights),
        cmocka_unit_test(hard_matrices),
        cmocka_unit_test(groups_that_f16_cannot_hold),
        cmocka_unit_test(refusals),
        cmocka_unit_test(static_inputs),
        cmocka_unit_test(kept_columns),
        cmocka_unit_test(importance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
