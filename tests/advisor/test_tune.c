/* Proves: the search space holds every valid combination once, and one recipe of those that make the same
 * file; a given space is parsed (also one with other engines), and errors are refused; the regression learns
 * knob values from combinations, and its standard deviation shrinks for what it saw; expected improvement
 * follows the formula; a search over an additive space with noise finds the best with a quarter of the
 * measurements; a disturbance of the machine is normalized away. */
#include <math.h>
#include <string.h>
#include <stdlib.h>

#include "advisor/tune/parts.h"
#include "advisor/advise/advise.h"
#include "advisor/predict/predict.h"
#include "advisor/tune/tune.h"
#include "tests/advisor/shape_file.h"

static void space_as_asked(void **state)
{
    (void)state;
    static const char *const BAD[] = { "recipe=q9_0", "threads", "threads=", "speed=1|2", "threads=1|x" };
    struct tune_space s;
    struct workload w;
    struct machine m = { .cores = 4 };
    struct err why;
    char line[CONFIG_LINE];
    CHECK_OK(workload_parse(&w, "tg64", &why));
    CHECK_OK(tune_space(&s, NULL, &m, &w, GOAL_SPEED, "recipe=file|q8_0|q4_K,threads=1|2,kv=f16|q8_0", &why));
    assert_int_equal(tune_space_size(&s), 12);
    int seen = 0, defaults = 0;
    for (int i = 0; i < 12; i++) {
        struct config c;
        int at[TUNE_DIMS];
        CHECK(tune_space_config(&c, &s, i));
        tune_space_at(at, &s, i);
        config_line(&c, line, sizeof line);
        seen += strstr(line, "q4_K") != NULL;
        defaults += !strcmp(line, "threads=1");
        CHECK_LACKS(line, "kv=f16"); /* a knob at its default is not in the line */
        CHECK_EQ(at[1] == 1, strstr(line, "threads=2") != NULL);
    }
    assert_int_equal(seen, 4);
    assert_int_equal(defaults, 1);
    struct config c;
    CHECK_OK(tune_space(&s, NULL, &m, &w, GOAL_SPEED, "recipe=file|q8_0,kv=f16|q4_0", &why));
    CHECK_OK(config_parse(&s.base, "gptq,bits=3,threads=3,kv=q8_0,ctx=64",
                          &why)); /* other settings of the base config remain */
    CHECK(tune_space_config(&c, &s, 0));
    assert_string_equal(config_line(&c, line, sizeof line), "threads=3,ctx=64");
    CHECK(tune_space_config(&c, &s, 3));
    assert_string_equal(config_line(&c, line, sizeof line), "q8_0,threads=3,ctx=64,kv=q4_0");
    for (size_t i = 0; i < COUNT_OF(BAD); i++)
        if (tune_space(&s, NULL, &m, &w, GOAL_SPEED, BAD[i], &why) != ERR_USAGE)
            fail_msg("%s was accepted", BAD[i]);
}

/* Quotes hold a value with spaces and commas together. A space with another engine is told from one without.
 */
static void space_of_another_engine(void **state)
{
    (void)state;
    struct tune_space *s = calloc(1, sizeof *s);
    struct config own, other;
    struct err why;
    config_default(&own);
    CHECK_OK(config_parse(&other, "engine=llama-server", &why));
    CHECK_OK(tune_space_parse(s, "threads=1|2, args=\"-fa on, -x|-fa off\",batch=64", &why));
    assert_int_equal(s->dims, 3);
    assert_int_equal(tune_space_size(s), 4);
    assert_string_equal(s->dim[1].key, "args");
    assert_string_equal(s->dim[1].value[0], "-fa on, -x");
    assert_string_equal(s->dim[1].value[1], "-fa off");
    CHECK(!tune_is_foreign(&own, "threads=1|2"));
    CHECK(!tune_is_foreign(&own, NULL));
    CHECK(!tune_is_foreign(&own, "engine=qdyno"));
    CHECK(tune_is_foreign(&own, "engine=qdyno|llama-server,threads=1|2"));
    CHECK(tune_is_foreign(&other, "threads=1|2"));
    free(s);
}

/* Rows of 64 weights do not fit blocks of 256: q4_K and q5_K fall back to what f16 makes. */
static void recipes_that_make_the_same_file(void **state)
{
    (void)state;
    static const struct shape_file SMALL = { .arch = "llama",
                                             .format = &FORMATS[FORMAT_F32],
                                             .layers = 2,
                                             .heads = 4,
                                             .kv_heads = 4,
                                             .embd = 64,
                                             .ff = 128,
                                             .vocab = 100,
                                             .ctx = 64 };
    struct tune_space s;
    struct workload w;
    struct machine m = { .cores = 1 };
    struct gguf *g = NULL;
    struct err why;
    char folder[128], path[160];
    snprintf(path, sizeof path, "%s/small.gguf", scratch(folder, sizeof folder));
    shape_file_write(path, &SMALL);
    CHECK_OK(gguf_open(&g, path, &why));
    CHECK_OK(workload_parse(&w, "tg64", &why));
    CHECK_OK(tune_space(&s, g, &m, &w, GOAL_SPEED, "recipe=file|f16|q4_K|q8_0|q5_K|f32,kv=f16|q8_0", &why));
    assert_string_equal(s.doubles, "q4_K as f16, q5_K as f16, f32 as file");
    assert_int_equal(s.dim[0].n, 3);
    assert_string_equal(s.dim[0].value[2], "q8_0");
    assert_int_equal(tune_space_size(&s), 6);
    CHECK_OK(tune_space(&s, g, &m, &w, GOAL_SPEED, "recipe=q4_K|gptq,threads=1",
                        &why)); /* gptq chooses other numbers in the same format */
    assert_string_equal(s.doubles, "");
    gguf_close(g);
    unlink(path);
    rmdir(folder);
}

/* What runs on a file that is quantized already, and may help: nothing is quantized again, and values for
 * comparison or that mean the same as another one are left out. */
static void space_of_a_quantized_file(void **state)
{
    (void)state;
    static const struct shape_file SMALL = { .arch = "llama",
                                             .format = &FORMATS[FORMAT_Q8_0],
                                             .layers = 2,
                                             .heads = 4,
                                             .kv_heads = 4,
                                             .embd = 128,
                                             .ff = 256,
                                             .vocab = 128,
                                             .ctx = 64 };
    struct tune_space s;
    struct workload w;
    struct machine m = { .cores = 4 };
    struct gguf *g = NULL;
    struct err why;
    char folder[128], path[160], line[CONFIG_LINE];
    snprintf(path, sizeof path, "%s/small.gguf", scratch(folder, sizeof folder));
    shape_file_write(path, &SMALL);
    CHECK_OK(gguf_open(&g, path, &why));
    CHECK_OK(workload_parse(&w, "tg64", &why));
    CHECK_OK(tune_space(&s, g, &m, &w, GOAL_BALANCED, NULL, &why));
    CHECK_GT(tune_space_size(&s), 10);
    for (int64_t i = 0; i < tune_space_size(&s); i++) {
        struct config c;
        if (!tune_space_config(&c, &s, i)) continue;
        config_line(&c, line, sizeof line);
        CHECK(!c.given[KNOB_FORMAT] && !c.given[KNOB_METHOD] && !c.given[KNOB_PRECISION]);
        CHECK_LACKS(line, "batch_invariant");
        CHECK_LACKS(line, "compile=off");
        CHECK_LACKS(line, "bf16");
    }
    gguf_close(g);
    unlink(path);
    rmdir(folder);
}

static void regression_learns_values(void **state)
{
    (void)state;
    struct tune_space s = { .dims = 2, .dim = { { .n = 3 }, { .n = 2 } } };
    struct tune_regression *b;
    struct err why;
    double mean, sd, before, sd_before;
    CHECK_OK(tune_regression_open(&b, &s, 0.5, 0.3, 0.01, &why));
    tune_regression_estimate(b, (int[TUNE_DIMS]){ 2, 1 }, &before, &sd_before);
    CHECK_NEAR(before, 0, 0);
    CHECK_LT(fabs(sd_before - sqrt(0.25 + 2 * 0.09 + 1e-4)), 1e-12);
    for (int round = 0; round < 3;
         round++) { /* y = 0.1 + first {0, 0.2, -0.3} + second {0, 0.5}, never (2, 1) */
        tune_regression_add(b, (int[TUNE_DIMS]){ 0, 0 }, 0.1, 0.01);
        tune_regression_add(b, (int[TUNE_DIMS]){ 1, 0 }, 0.3, 0.01);
        tune_regression_add(b, (int[TUNE_DIMS]){ 2, 0 }, -0.2, 0.01);
        tune_regression_add(b, (int[TUNE_DIMS]){ 0, 1 }, 0.6, 0.01);
    }
    tune_regression_estimate(b, (int[TUNE_DIMS]){ 2, 1 }, &mean, &sd);
    CHECK_LT(fabs(mean - 0.3), 0.02);
    CHECK_LT(sd, 0.05);
    CHECK_LT(sd, sd_before / 5);
    tune_regression_free(b);
}

static void expected_improvement_by_formula(void **state)
{
    (void)state;
    CHECK_LT(fabs(expected_improvement(1, 1, 1) - 0.3989422804), 1e-9); /* sd times the density at 0 */
    CHECK_LT(fabs(expected_improvement(0, 1, 1) - 0.0833154706),
             1e-9); /* by hand: -1 * 0.1586552539 + 0.2419707245 */
    CHECK_NEAR(expected_improvement(2, 0, 1.5), 0.5, 0);
    CHECK_NEAR(expected_improvement(1, 0, 1.5), 0, 0);
    CHECK_LE(0, expected_improvement(0, 0.1, 10));
    CHECK_LT(expected_improvement(0, 0.1, 10), 1e-12);
}

static double draw(uint64_t *seed)
{
    double sum = 0;
    for (int i = 0; i < 12; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(*seed >> 11) / 9007199254740992.0;
    }
    return sum - 6;
}

/* 96 configurations whose ln(rate) is a sum of knob values, with a deviation of 2 % each and 2 % measurement
 * noise. */
static void search_finds_the_best(void **state)
{
    (void)state;
    enum { N = 8 * 4 * 3, MEASUREMENTS = 24, ROUNDS = 40 };
    struct tune_space s = { .dims = 3, .dim = { { .n = 8 }, { .n = 4 }, { .n = 3 } } };
    uint64_t seed = 11;
    int good = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double value[3][8], truth[N], top = -INFINITY, best = -INFINITY;
        int pick = -1;
        struct tune_regression *b;
        struct err why;
        for (int d = 0; d < 3; d++)
            for (int v = 0; v < 8; v++) value[d][v] = 0.25 * draw(&seed);
        for (int i = 0; i < N; i++) {
            int at[TUNE_DIMS];
            tune_space_at(at, &s, i);
            truth[i] = value[0][at[0]] + value[1][at[1]] + value[2][at[2]] + 0.02 * draw(&seed);
            top = fmax(top, truth[i]);
        }
        CHECK_OK(tune_regression_open(&b, &s, 0.5, 0.25, 0.03, &why));
        for (int k = 0; k < MEASUREMENTS; k++) {
            int at[TUNE_DIMS], next = 0;
            double most = -1, mean, sd;
            for (int i = 0; i < N; i++) {
                tune_space_at(at, &s, i);
                tune_regression_estimate(b, at, &mean, &sd);
                const double improvement = expected_improvement(mean, sd, isinf(best) ? 0 : best);
                if (improvement <= most) continue;
                most = improvement;
                next = i;
            }
            const double seen = truth[next] + 0.02 * draw(&seed);
            tune_space_at(at, &s, next);
            tune_regression_add(b, at, seen, 0.02);
            if (seen > best) {
                best = seen;
                pick = next;
            }
        }
        good += truth[pick] > top - 0.05;
        tune_regression_free(b);
    }
    CHECK_LE(ROUNDS * 9 / 10, good); /* at random 24 of 96 would be within 5 % half of the time */
}

/* Four candidates: the current configuration; a faster one, measured completely; one that is faster still but
 * whose quality was not measured; and one that was not measured but is predicted four times as fast. */
static void measurements_that_take_too_long_are_skipped(void **state)
{
    (void)state;
    struct tune_options o = { .goal = GOAL_SPEED, .limits = { .kld = 0.05 } };
    struct tune_candidate list[4] = {
        { .rate = 10,
          .normalized_rate = 10,
          .normalized_sd = 0.0115,
          .timings = 3,
          .kld = 0,
          .ppl_ratio = 1 },
        { .rate = 12,
          .normalized_rate = 12,
          .normalized_sd = 0.0115,
          .timings = 3,
          .kld = 0.001,
          .ppl_ratio = 1 },
        { .rate = 15,
          .normalized_rate = 15,
          .normalized_sd = 0.02,
          .timings = 1,
          .kld = NAN,
          .ppl_ratio = NAN },
        { .rate = NAN, .normalized_rate = NAN, .timings = 0, .kld = NAN, .ppl_ratio = NAN },
    };
    for (int i = 0; i < 4; i++) {
        list[i].index = -1;
        list[i].memory_bytes = 1000;
        list[i].read_bytes = 1000;
        list[i].ln_guess = log(1e-4);
        list[i].predicted = i == 3 ? 40 : 10;
    }
    struct tuning t = { .task = { .o = &o, .recipe_dim = -1 },
                        .known = { .list = list, .n = 4 },
                        .costs = { .timing = { 5, 1 }, .quality = { 20, 1 }, .recipe = { NAN, 0 } } };
    struct tune_choice next;
    struct tune_bounds b = { .least = 0.003, .left_s = 100, .all_left_s = 200, .most_timings = 3 };
    CHECK(tune_next(&t, &b, &next));
    assert_int_equal(next.candidate, 3); /* the largest improvement per second, with both measurements */
    b.left_s = 22;
    CHECK(tune_next(&t, &b, &next));
    assert_int_equal(next.candidate, 2); /* only its quality measurement fits into the time left */
    CHECK(next.quality);
    CHECK_GT(next.improvement, 0.003);
    b.left_s = 10;
    CHECK(!tune_next(&t, &b, &next)); /* no measurement fits */
    list[1].failed = list[2].failed = true;
    CHECK(tune_next(&t, &b,
                    &next)); /* nothing better was found yet: the time of the confirmation may be used */
    assert_int_equal(next.candidate, 3);
    CHECK_EQ(next.seconds, 25);
    list[1].failed = false; /* and where others were timed, but none is better */
    list[1].rate = list[1].normalized_rate = 8;
    b.left_s = -50;
    CHECK(tune_next(&t, &b, &next));
    assert_int_equal(next.candidate, 3);
    b.all_left_s = 10;
    list[0].timings = list[1].timings = 3;
    CHECK(!tune_next(&t, &b, &next)); /* but never more than the budget */
    list[0].timings = 1;
    list[0].normalized_sd = 0.1;
    CHECK(tune_next(&t, &b, &next)); /* another timing of the best takes time, too */
    CHECK_EQ(next.seconds, 5);
    b.all_left_s = 4;
    CHECK(!tune_next(&t, &b, &next));
}

/* The faster candidate wins until its loss of right answers is known and not shown to be within the limit. */
static void a_loss_of_right_answers_excludes(void **state)
{
    (void)state;
    struct tune_options o = { .goal = GOAL_SPEED, .limits = { .kld = 0.05, .accuracy = 0.01 } };
    struct tune_candidate list[2] = {
        { .rate = 10, .normalized_rate = 10, .kld = 0, .ppl_ratio = 1 },
        { .rate = 12, .normalized_rate = 12, .kld = 0.001, .ppl_ratio = 1 },
    };
    for (int i = 0; i < 2; i++) {
        list[i].index = -1;
        list[i].timings = 3;
        list[i].normalized_sd = 0.01;
        list[i].predicted = 10;
        list[i].memory_bytes = 1000;
        list[i].read_bytes = 1000;
    }
    struct tuning t = { .task = { .o = &o, .recipe_dim = -1 }, .known = { .list = list, .n = 2 } };
    list[1].accuracy_change = list[1].accuracy_lower = list[1].accuracy_upper = NAN;
    CHECK_EQ(tune_best(&t, -1), 1);
    CHECK(tune_accuracy_missing(&t, 1)); /* so it is asked before it may win */
    CHECK(!tune_accuracy_missing(&t, 0));
    list[1].accuracy_change = -0.005;
    list[1].accuracy_lower = -0.012;
    CHECK_EQ(tune_best(&t, -1), 0);
    list[1].accuracy_lower = -0.009;
    CHECK_EQ(tune_best(&t, -1), 1);
    CHECK(!tune_accuracy_missing(&t, 1));
    list[1].accuracy_failed = true;
    CHECK_EQ(tune_best(&t, -1), 0);
    o.limits.accuracy = 0; /* no limit */
    CHECK_EQ(tune_best(&t, -1), 1);
    CHECK(!tune_accuracy_missing(&t, 1));
}

/* Weights take three times as long from memory as from a cache. Cores and memory run at half speed:
 * normalization about doubles the rate. */
static void disturbances_are_normalized(void **state)
{
    (void)state;
    static const struct shape_file SMALL = { .arch = "llama",
                                             .format = &FORMATS[FORMAT_F32],
                                             .layers = 4,
                                             .heads = 8,
                                             .kv_heads = 8,
                                             .embd = 512,
                                             .ff = 2048,
                                             .vocab = 1000,
                                             .ctx = 64 };
    static struct machine_ceilings ceilings = { .threads_all = 1,
                                                .read_bytes_s_1 = 1e12,
                                                .read_bytes_s_all = 1e12,
                                                .count = 1,
                                                .row = { { "f32_fma", "avx2", 1e12, 1e12 } } };
    struct kernel_times *k = &ceilings.kernels;
    struct machine m = { .isa = ISA_SSE41 | ISA_AVX2,
                         .cores = 1,
                         .memory_bytes = 1 << 30,
                         .cgroup_memory_bytes = -1,
                         .cgroup_cpus = NAN };
    struct tune_options o = { .machine = &m, .ceilings = &ceilings };
    struct tune_task task = { .o = &o, .metric = &METRICS[METRIC_DECODE_RATE], .what = { .ctx = 64 } };
    struct config c;
    struct err why;
    char folder[128], path[160];
    for (int f = 0; f < FORMAT_COUNT; f++) {
        for (int r = 0; r < KERNEL_ROWS; r++)
            k->product[f][KERNEL_VARIANT_AUTO][r][1] = 1e-10f * (float)KERNEL_ROWS_AT[r];
        k->stream[f][1] = 3e-10f;
        k->attend_one[f][1] = k->attend_many[f][KERNEL_VARIANT_AUTO][1] = 1e-10f;
    }
    for (int i = 0; i < KERNEL_READS; i++) k->read[i][1] = 4e9f;
    k->measured = true;
    k->stream_bytes = KERNEL_READ_AT[4];
    k->memory_speed[1] = 1 / 3e-10f;
    k->compute_speed[1] = 1 / 1e-10f;
    snprintf(path, sizeof path, "%s/small.gguf", scratch(folder, sizeof folder));
    shape_file_write(path, &SMALL);
    CHECK_OK(gguf_open(&task.file, path, &why));
    config_default(&c);
    const struct conditions unseen = { 0 }, usual = { 1, 1 }, half = { 0.5, 0.5 }, odd = { NAN, NAN };
    CHECK_NEAR(tune_normalization(&task, &c, &unseen), 1, 0);
    CHECK_NEAR(tune_normalization(&task, &c, &odd), 1, 0);
    CHECK_NEAR(tune_normalization(&task, &c, &usual), 1, 1e-10);
    const double factor = tune_normalization(&task, &c, &half), rate = 10 * factor;
    CHECK_NEAR(rate, 19.25, 1.25);
    const struct tune_cell sure = tune_cell_normalize(factor, factor, 10),
                           doubtful = tune_cell_normalize(factor, 1, 10);
    CHECK_NEAR(sure.ln_normalized, log(rate), 1e-9);
    CHECK_NEAR(sure.sd, 0, 0);
    CHECK_NEAR(sure.rate, 10, 0);
    CHECK_NEAR(doubtful.ln_normalized, 0.5 * log(rate * 10), 1e-9); /* halfway */
    CHECK_NEAR(doubtful.sd, log(rate / 10) / sqrt(12), 1e-9);
    gguf_close(task.file);
    unlink(path);
    rmdir(folder);
}

/* Four cells that agree, but for one during which the machine changed; the same when the probes missed the
 * change; and timings of one candidate that differ by a tenth although their standard errors are a fiftieth.
 */
static void uncertain_cells_have_less_weight(void **state)
{
    (void)state;
    struct tuning t = { .noise = { .sd = 0.02, .dispersion = 1 } };
    struct tune_cell cell[] = { { 100, 3, 0 }, { 100, 3, 0 }, { 60, 2.7, 0.2 }, { 100, 3, 0 } };
    const struct tune_timing seen = tune_timing_combine(&t.noise, cell, 4);
    CHECK_NEAR(seen.rate, 90, 1e-9);
    CHECK_LT(fabs(log(seen.normalized_rate) - 3), 0.002);
    CHECK_LT(0.02, seen.sd);
    CHECK_LT(seen.sd, 0.03);
    cell[2].sd = 0;
    const struct tune_timing blind = tune_timing_combine(&t.noise, cell, 4);
    CHECK_NEAR(log(blind.normalized_rate), 2.925, 1e-9);
    CHECK_NEAR(blind.sd, hypot(0.15 / 2, 0.02),
               1e-9); /* standard error of the four cells, and of processes */
    CHECK_NEAR(tune_timing_combine(&t.noise, cell, 1).sd, hypot(0.02, 0.02), 1e-9);

    struct tune_candidate c = { .index = -1 };
    for (int i = 0; i < 8; i++) {
        const double sd = c.normalized_sd;
        tune_add_timing(&t, &c, (struct tune_timing){ 20, i % 2 ? 22 : 20, 0.02 });
        assert_int_equal(c.timings, i + 1);
        CHECK(!i || c.normalized_sd < sd);
    }
    CHECK_LT(2, t.noise.dispersion);
    CHECK_LT(20.4, c.normalized_rate);
    CHECK_LT(c.normalized_rate, 21.4);
    CHECK_NEAR(c.rate, 20, 0);
    CHECK_LT(0.02 / sqrt(8) * 1.2, c.normalized_sd);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(disturbances_are_normalized),
                                        cmocka_unit_test(uncertain_cells_have_less_weight),
                                        cmocka_unit_test(measurements_that_take_too_long_are_skipped),
                                        cmocka_unit_test(a_loss_of_right_answers_excludes),
                                        cmocka_unit_test(space_as_asked),
                                        cmocka_unit_test(space_of_another_engine),
                                        cmocka_unit_test(recipes_that_make_the_same_file),
                                        cmocka_unit_test(space_of_a_quantized_file),
                                        cmocka_unit_test(regression_learns_values),
                                        cmocka_unit_test(expected_improvement_by_formula),
                                        cmocka_unit_test(search_finds_the_best) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
