/* Proves: a loaded plug-in works like a built-in method; its input is correct, and its answers become the
 * intended bytes for any number of processes. A library that is broken, or fails while it works, causes an
 * error message and leaves nothing behind: no row of METHODS, no file, no process. */
#include <dirent.h>
#include <errno.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "engine/quant/calibration.h"
#include "engine/quant/methods.h"
#include "tests/engine/session.h"
#include "engine/synth/synth.h"

#define PLUGINS TEST_BUILD_DIR "/tests/plugins/"

/* A folder for one test, with the cache in it. */
static char folder[64];

static int begin(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/qdyno-test-plugin-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    unsetenv("QDYNO_PLUGINS");
    unsetenv("QDYNO_PLUGIN_TIMEOUT");
    return setenv("XDG_CACHE_HOME", folder, 1);
}

static int end(void **state)
{
    (void)state;
    char command[128];
    plugins_unload();
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command)) return -1;
    errno = 0;
    const bool alone = waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD;
    return alone ? 0 : -1; /* -1: a child process is left */
}

static enum err_code load(const char *name, struct err *why)
{
    char path[4096];
    const char *files[] = { path };
    snprintf(path, sizeof path, "%s%s.so", PLUGINS, name);
    return plugins_load(files, 1, why);
}

static const struct method *loaded(const char *name)
{
    struct err why = { 0 };
    CHECK_OK(load(name, &why));
    const struct method *m = method_find(name);
    assert_non_null(m);
    return m;
}

static int open_files(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n;
}

/* ---------------------------------------------------------------- matrices */

/* Roughly normally distributed, and the same on every machine. */
static float noise(uint64_t *seed)
{
    float sum = 0;
    for (int i = 0; i < 12; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        sum += (float)(*seed >> 40) / (float)(1 << 24);
    }
    return sum - 6;
}

struct matrix {
    struct tensor_job job;
    struct calibration_input input;
};

static void matrix_open(struct matrix *m, const char *method, const char *given, const char *format,
                        int64_t rows, int64_t cols, int threads)
{
    struct err why = { 0 };
    const struct threadpool_options pool = { .threads = threads };
    uint64_t seed = 5;
    *m = (struct matrix){ .job = { .name = "blk.0.ffn_up.weight",
                                   .format = format_find(format),
                                   .params = { method_find(method), given },
                                   .rows = rows,
                                   .cols = cols } };
    m->job.x = malloc((size_t)(rows * cols) * sizeof(float));
    m->job.out = calloc((size_t)rows, (size_t)format_row_bytes(m->job.format, cols));
    CHECK(m->job.x);
    CHECK(m->job.out);
    CHECK(m->job.params.method);
    for (int64_t i = 0; i < rows * cols; i++) m->job.x[i] = noise(&seed);
    CHECK_OK(threadpool_open(&m->job.pool, &pool, &why));
}

static void matrix_close(struct matrix *m)
{
    threadpool_close(m->job.pool);
    free(m->job.x);
    free(m->job.out);
}

static size_t matrix_bytes(const struct matrix *m)
{
    return (size_t)(m->job.rows * format_row_bytes(m->job.format, m->job.cols));
}

static enum err_code encode(struct matrix *m, struct err *why)
{
    return m->job.params.method->tensor(&m->job, why);
}

/* Relative squared error of the encoded weights, with columns weighted by `weight`. */
static double nmse(const struct matrix *m, const float *weight)
{
    const struct tensor_job *job = &m->job;
    double lost = 0, all = 0;
    float *y = malloc((size_t)(job->rows * job->cols) * sizeof *y);
    assert_non_null(y);
    format_decode_rows(job->format, job->out, y, job->rows, job->cols);
    for (int64_t i = 0; i < job->rows * job->cols; i++) {
        const double w = weight ? (double)weight[i % job->cols] : 1, d = (double)y[i] - (double)job->x[i];
        lost += w * d * d;
        all += w * (double)job->x[i] * (double)job->x[i];
    }
    free(y);
    return lost / all;
}

/* ---------------------------------------------------------------- loading */

static void test_broken_libraries_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *says;
    } CASES[] = {
        { "odd_constructor", "SIGABRT" },
        { "odd_crash", "SIGSEGV) while describing itself" },
        { "odd_exit", "status 3" },
        { "odd_symbol", "does not export qdyno_plugin_get" },
        { "odd_nothing", "returned NULL" },
        { "odd_version", "version 2 of the plug-in interface, this program has version 1" },
        { "odd_name", "'No Good'" },
        { "odd_taken", "called rtn already exists" },
        { "odd_unnamed", "no 'name'" },
        { "odd_formats", "'q4_0' cannot be produced from codes" },
        { "odd_encode", "no function encode" },
        { "odd_answer", "answer is 7" },
        { "odd_long", "answered more than" },
        { "odd_alias", "group is called group_size in all other methods" },
        { "odd_key", "the parameter name 'threads' is reserved" },
        { "odd_default", "default of turns" },
        { "odd_range", "turns has an invalid range" },
        { "odd_twice", "parameter 2: two parameters are called turns" },
        { "odd_choices", "not a valid choice" },
    };
    const size_t methods = method_count();
    const int files = open_files();
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        assert_int_equal(load(CASES[i].name, &why), ERR_FORMAT);
        if (!strstr(why.message, CASES[i].says) || !strstr(why.message, CASES[i].name))
            fail_msg("%s: '%s' lacks '%s'", CASES[i].name, why.message, CASES[i].says);
        assert_int_equal(method_count(), methods);
        assert_null(getenv("QDYNO_PLUGINS"));
    }
    assert_int_equal(open_files(), files);
}

static void test_what_is_no_library_is_refused(void **state)
{
    (void)state;
    struct err why = { 0 };
    const char *files[] = { "/nowhere/plugin.so", TEST_SOURCE_DIR "/README.md", TEST_SOURCE_DIR };
    assert_int_equal(plugins_load(files, 1, &why), ERR_IO);
    CHECK_CONTAINS(why.message, "/nowhere/plugin.so: No such file");
    assert_int_equal(plugins_load(files + 1, 1, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "README.md: cannot be loaded");
    CHECK_NE(plugins_load(files + 2, 1, &why), ERR_OK);
    setenv("QDYNO_PLUGINS", "/nowhere/a.so:/nowhere/b.so", 1);
    assert_int_equal(plugins_load(NULL, 0, &why), ERR_IO);
    CHECK_CONTAINS(why.message, "QDYNO_PLUGINS: plug-in /nowhere/a.so");
}

static void test_one_that_hangs_is_ended(void **state)
{
    (void)state;
    struct err why = { 0 };
    setenv("QDYNO_PLUGIN_TIMEOUT", "300ms", 1);
    assert_int_equal(load("odd_hang", &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "hangs");
    CHECK_CONTAINS(why.message, "while describing itself for 0.3 s");
    setenv("QDYNO_PLUGIN_TIMEOUT", "soon", 1);
    assert_int_equal(load("odd_hang", &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "soon");
}

static void test_a_loaded_one_is_a_method(void **state)
{
    (void)state;
    struct err why = { 0 };
    const size_t built_in = method_count();
    const struct method *m = loaded("refit");
    assert_ptr_equal(method_at(built_in), m);
    assert_int_equal(method_count(), built_in + 1);
    CHECK_CONTAINS(m->help, "least squares");
    CHECK(*m->good);
    CHECK(*m->bad);
    assert_int_equal(m->calibration, CALIBRATION_OPTIONAL);
    assert_string_equal(m->params[0].name, "iters");
    assert_null(m->params[1].name);
    CHECK(method_makes(m, format_find("u3_g64")));
    CHECK(!method_makes(m, format_find("q4_0")));

    CHECK_OK(load("refit", &why)); /* loading twice adds one row */
    loaded("other");
    assert_int_equal(method_count(), built_in + 2);
    CHECK(method_makes(method_find("other"), format_find("q4_K")));

    /* the variable that workers inherit */
    char paths[8192];
    snprintf(paths, sizeof paths, "%s", getenv("QDYNO_PLUGINS"));
    CHECK_CONTAINS(paths, "refit.so:/");
    CHECK_CONTAINS(paths, "other.so");
    CHECK_EQ(paths[0], '/');
    plugins_unload();
    assert_int_equal(method_count(), built_in);
    CHECK_OK(plugins_load(NULL, 0, &why));
    assert_int_equal(method_count(), built_in + 2);
    assert_string_equal(getenv("QDYNO_PLUGINS"), paths);
}

static void test_config_lines(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct config c;
    char line[4096];
    assert_int_equal(config_parse(&c, "refit", &why), ERR_USAGE); /* not loaded yet */
    loaded("refit");
    loaded("other");
    static const struct {
        const char *line, *recipe;
    } GOOD[] = { { "refit", "refit:u4_g64" },
                 { "refit:u3_g64,iters=05", "refit:u3_g64;iters=5" },
                 { "refit,iters=20", "refit:u4_g64" },
                 { "method=other,format=f32,factor=3,negate=yes,which=EVEN",
                   "other:f32;factor=3;negate=true;which=even" } };
    for (size_t i = 0; i < COUNT_OF(GOOD); i++) {
        CHECK_OK(config_parse(&c, GOOD[i].line, &why));
        assert_string_equal(config_recipe(&c, line, sizeof line), GOOD[i].recipe);
        CHECK_OK(config_parse(&c, config_line(&c, line, sizeof line), &why));
        assert_string_equal(config_recipe(&c, line, sizeof line), GOOD[i].recipe);
    }
    static const char *const BAD[][2] = { { "refit:q4_0", "cannot make q4_0" },
                                          { "refit,iters=-1", "from 0 to 1000" },
                                          { "other:f32,which=some", "all even odd" },
                                          { "other:f32,iters=3", "no parameter 'iters'" },
                                          { "other", "needs a format" } };
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        assert_int_equal(config_parse(&c, BAD[i][0], &why), ERR_USAGE);
        if (!strstr(why.message, BAD[i][1])) fail_msg("%s: '%s'", BAD[i][0], why.message);
    }
}

/* ---------------------------------------------------------------- encoding */

static void test_it_is_told_what_is_so(void **state)
{
    (void)state;
    enum { ROWS = 700, COLS = 768 }; /* three processes with several calls each */
    struct matrix m;
    struct err why = { 0 };
    float square[COLS];
    loaded("other");
    matrix_open(&m, "other", "factor=0.5;negate=true;offset=-3;which=odd", "f32", ROWS, COLS, 3);
    for (int i = 0; i < COLS; i++) square[i] = 1 + (float)i / COLS;
    m.input.mean_square = square;
    m.job.input = &m.input;
    CHECK_OK(encode(&m, &why));
    const float *out = m.job.out;
    for (int64_t i = 0; i < (int64_t)ROWS * COLS; i++) {
        const float x = m.job.x[i];
        const float want = i / COLS % 2 == 0 ? x : (float)-(0.5 * square[i % COLS] * x - 3);
        if (!(out[i] == want)) fail_msg("weight %lld: %g, want %g", (long long)i, out[i], want);
    }
    matrix_close(&m);
}

/* QDYNO_WEIGHTS: any format, rounded to nearest. */
static void test_weights_are_rounded_to_nearest(void **state)
{
    (void)state;
    static const char *const FORMAT[] = { "q8_0", "q4_K", "int8", "u4_g64", "f16", "nf4" };
    loaded("other");
    for (size_t i = 0; i < COUNT_OF(FORMAT); i++) {
        struct matrix m;
        struct err why = { 0 };
        matrix_open(&m, "other", "factor=1", FORMAT[i], 9, 512, 2);
        unsigned char *want = malloc(matrix_bytes(&m));
        assert_non_null(want);
        format_encode_rows(m.job.format, m.job.x, want, m.job.rows, m.job.cols);
        CHECK_OK(encode(&m, &why));
        assert_memory_equal(m.job.out, want, matrix_bytes(&m));
        free(want);
        matrix_close(&m);
    }
}

static void test_codes_are_what_is_stored(void **state)
{
    (void)state;
    static const struct {
        const char *format;
        double most;
    } CASES[] = { { "u4_g64", 0.02 }, { "int8", 2e-4 } };
    loaded("moody");
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct matrix m;
        struct err why = { 0 };
        matrix_open(&m, "moody", "", CASES[i].format, 64, 256, 2);
        CHECK_OK(encode(&m, &why));
        const double lost = nmse(&m, NULL);
        if (!(lost > 1e-6 && lost < CASES[i].most)) fail_msg("%s: NMSE %g", CASES[i].format, lost);
        matrix_close(&m);
    }
    /* fp8 codes are bit patterns: 0x38 is 1, 0xb8 is -1 */
    struct matrix m;
    struct err why = { 0 };
    float y[64];
    matrix_open(&m, "moody", "", "fp8_e4m3", 1, 64, 1);
    CHECK_OK(encode(&m, &why));
    format_decode_rows(m.job.format, m.job.out, y, 1, 64);
    for (int i = 0; i < 64; i++) CHECK_EQ(y[i], m.job.x[i] < 0 ? -0.75f : 0.75f);
    matrix_close(&m);
    matrix_open(&m, "moody", "mood=code", "fp8_e4m3", 1, 64, 1); /* 0xff is NaN */
    assert_int_equal(encode(&m, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "a code that means NaN in row 0");
    matrix_close(&m);
}

static void test_bytes_do_not_depend_on_processes(void **state)
{
    (void)state;
    struct matrix one, many;
    struct err why = { 0 };
    loaded("refit");
    matrix_open(&one, "refit", "", "u4_g64", 701, 1024, 1);
    matrix_open(&many, "refit", "", "u4_g64", 701, 1024, 5);
    CHECK_OK(encode(&one, &why));
    CHECK_OK(encode(&many, &why));
    assert_memory_equal(one.job.out, many.job.out, matrix_bytes(&one));
    matrix_close(&one);
    matrix_close(&many);
}

/* The example plug-in loses less than rounding to nearest, and with a calibration loses less in the columns
 * that matter. */
static void test_the_example(void **state)
{
    (void)state;
    static const struct {
        const char *format;
        double share; /* largest allowed error relative to rounding to nearest */
    } CASES[] = { { "u4_g64", 0.95 }, { "u3_g64", 0.85 }, { "u2_g64", 0.7 }, { "u4_g32", 0.97 } };
    float square[512];
    for (int i = 0; i < 512; i++) square[i] = i % 16 ? 1 : 50;
    loaded("refit");
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct matrix m;
        struct err why = { 0 };
        matrix_open(&m, "refit", "", CASES[i].format, 32, 512, 1);
        format_encode_rows(m.job.format, m.job.x, m.job.out, m.job.rows, m.job.cols);
        const double nearest = nmse(&m, NULL);
        CHECK_OK(encode(&m, &why));
        const double plain = nmse(&m, NULL), blind = nmse(&m, square);
        m.input.mean_square = square;
        m.job.input = &m.input;
        CHECK_OK(encode(&m, &why));
        const double aware = nmse(&m, square);
        if (!(plain <= CASES[i].share * nearest && aware < 0.9 * blind))
            fail_msg("%s: to nearest %g, refit %g; weighted %g, knowing the weights %g", CASES[i].format,
                     nearest, plain, blind, aware);
        matrix_close(&m);
    }
}

static void test_edges(void **state)
{
    (void)state;
    struct matrix m;
    struct err why = { 0 };
    loaded("refit");
    matrix_open(&m, "refit", "", "u4_g64", 1, 64, 4); /* one group, fewer rows than threads */
    for (int i = 0; i < 64; i++) m.job.x[i] = 0;
    CHECK_OK(encode(&m, &why));
    float y[64];
    format_decode_rows(m.job.format, m.job.out, y, 1, 64);
    for (int i = 0; i < 64; i++) CHECK_EQ(y[i], 0);
    for (int i = 0; i < 64; i++) m.job.x[i] = i % 2 ? 1e-30f : -60000;
    CHECK_OK(encode(&m, &why));
    matrix_close(&m);
}

/* ---------------------------------------------------------------- misbehaving */

static void test_misbehaviour_is_an_error(void **state)
{
    (void)state;
    static const struct {
        const char *mood, *says;
    } CASES[] = { { "crash", "SIGSEGV) while encoding 'blk.0.ffn_up.weight'" },
                  { "past", "SIGSEGV" },
                  { "exit", "ended its process (status 0)" },
                  { "fail", "'blk.0.ffn_up.weight': not in the mood for u4_g64" },
                  { "mute", "without a reason" },
                  { "nan", "finite numbers in row" },
                  { "huge", "finite numbers in row" },
                  { "code", "too large for its format in row" } };
    loaded("moody");
    const int files = open_files();
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        for (int threads = 1; threads <= 3; threads += 2) {
            struct matrix m;
            struct err why = { 0 };
            char given[64];
            snprintf(given, sizeof given, "mood=%s", CASES[i].mood);
            matrix_open(&m, "moody", given, "u4_g64", 600, 1024, threads);
            assert_int_equal(encode(&m, &why), ERR_FORMAT);
            if (!strstr(why.message, CASES[i].says))
                fail_msg("%s: '%s' lacks '%s'", CASES[i].mood, why.message, CASES[i].says);
            matrix_close(&m);
        }
    }
    assert_int_equal(open_files(), files);
}

static void test_slow_is_not_hanging(void **state)
{
    (void)state;
    struct matrix m;
    struct err why = { 0 };
    loaded("moody");
    setenv("QDYNO_PLUGIN_TIMEOUT", "400ms", 1);
    matrix_open(&m, "moody", "mood=hang", "u4_g64", 200, 1024, 2);
    assert_int_equal(encode(&m, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "hangs");
    CHECK_CONTAINS(why.message, "while encoding 'blk.0.ffn_up.weight' for 0.4 s");
    matrix_close(&m);
    /* 80 calls of 50 ms: longer in total than the timeout, but each call makes progress */
    setenv("QDYNO_PLUGIN_TIMEOUT", "3s", 1);
    matrix_open(&m, "moody", "mood=late", "u4_g64", 80 * 64, 1024, 1);
    CHECK_OK(encode(&m, &why));
    matrix_close(&m);
}

/* ---------------------------------------------------------------- files */

static void copy_file(const char *from, const char *to, const char *more)
{
    struct err why = { 0 };
    struct file_map map;
    CHECK_OK(file_map(&map, from, &why));
    FILE *f = fopen(to, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(map.data, 1, map.size, f), map.size);
    CHECK_GE(fputs(more, f), 0);
    CHECK(!fclose(f));
    file_unmap(&map);
}

static struct gguf *small_model(void)
{
    struct err why = { 0 };
    struct gguf *g;
    char path[128];
    const struct synth_options o = { .arch = "llama",
                                     .shape = synth_shape_find("tiny"),
                                     .format = &FORMATS[FORMAT_F32],
                                     .seed = 1,
                                     .threads = 2 };
    snprintf(path, sizeof path, "%s/tiny.gguf", folder);
    CHECK_OK(synth_write(path, &o, &why));
    CHECK_OK(gguf_open(&g, path, &why));
    return g;
}

static void test_files_know_which_library_made_them(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct config c;
    char so[128], *first = NULL, *again = NULL, *second = NULL;
    const char *files[] = { so };
    snprintf(so, sizeof so, "%s/mine.so", folder);
    copy_file(PLUGINS "moody.so", so, "");
    CHECK_OK(plugins_load(files, 1, &why));
    CHECK_OK(config_parse(&c, "moody:int8", &why));
    struct gguf *g = small_model(), *made;
    const struct quantize_options o = { .config = &c, .threads = 2 };
    CHECK_OK(recipe_cached(&first, g, &o, &why));
    CHECK_OK(recipe_cached(&again, g, &o, &why));
    assert_string_equal(first, again);

    char want[HASH_HEX];
    CHECK_OK(hash_file(so, want, &why));
    CHECK_OK(gguf_open(&made, first, &why));
    CHECK(gguf_string_is(gguf_get_string(made, "qdyno.plugin"), want));
    gguf_close(made);

    /* the library changes on disk: it is rejected, and no file is written */
    struct stat st;
    char out[128];
    copy_file(PLUGINS "moody.so", so, "newer");
    snprintf(out, sizeof out, "%s/out.gguf", folder);
    assert_int_equal(quantize_file(out, g, &o, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "has changed since it was loaded");
    CHECK(stat(out, &st));
    CHECK_EQ(errno, ENOENT);

    plugins_unload();
    CHECK_OK(plugins_load(files, 1, &why));
    CHECK_OK(recipe_cached(&second, g, &o, &why));
    CHECK_STR_NE(first, second);
    gguf_close(g);
    free(first);
    free(again);
    free(second);
}

static void test_nothing_half_written(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct config c;
    struct stat st;
    char out[128];
    loaded("moody");
    struct gguf *g = small_model();
    CHECK_OK(config_parse(&c, "moody:int8,mood=crash", &why));
    const struct quantize_options o = { .config = &c, .threads = 2 };
    snprintf(out, sizeof out, "%s/out.gguf", folder);
    assert_int_equal(quantize_file(out, g, &o, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "SIGSEGV");
    CHECK(stat(out, &st));
    CHECK_EQ(errno, ENOENT);
    gguf_close(g);
}

/* Bug: a limit of open files was an internal error where it kept the process of a plug-in from starting.
 */
static void few_open_files(void **state)
{
    (void)state;
    struct rlimit files;
    bool pipes = false;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
    const int next = dup(STDIN_FILENO);
    CHECK_GE(next, 0);
    close(next);
    for (int more = 1; more <= 6; more++) { /* reading the library takes one or two, the pipes four */
        struct err why = { 0 };
        const struct rlimit few = { (rlim_t)(next + more), files.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        const enum err_code rc = load("refit", &why);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
        if (rc && rc != ERR_FIT) fail_msg("%d files: status %d: %s", more, rc, why.message);
        pipes |= rc && strstr(why.message, "pipe") != NULL;
        plugins_unload();
    }
    assert_true(pipes);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(few_open_files),
        TEST(test_broken_libraries_are_refused),
        TEST(test_what_is_no_library_is_refused),
        TEST(test_one_that_hangs_is_ended),
        TEST(test_a_loaded_one_is_a_method),
        TEST(test_config_lines),
        TEST(test_it_is_told_what_is_so),
        TEST(test_weights_are_rounded_to_nearest),
        TEST(test_codes_are_what_is_stored),
        TEST(test_bytes_do_not_depend_on_processes),
        TEST(test_the_example),
        TEST(test_edges),
        TEST(test_misbehaviour_is_an_error),
        TEST(test_slow_is_not_hanging),
        TEST(test_files_know_which_library_made_them),
        TEST(test_nothing_half_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
