/* Proves: files of one model are listed by their bits per weight, and files of two models are refused with
 * what differs; a target is reached only by an interval whose bad end reaches it, by the candidate that loses
 * least or by the fastest one; it is not reached when every interval violates it, and the nearest is named;
 * anything else is undecided. The front and its knee are those of a case worked by hand. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "advisor/tune/parts.h"
#include "tests/advisor/shape_file.h"

/* ---------------------------------------------------------------- files */

static const struct shape_file PLAIN = {
    .arch = "llama", .layers = 2, .heads = 4, .kv_heads = 4, .embd = 256, .ff = 512, .vocab = 320, .ctx = 512
};

static void write_model(const char *folder, const char *name, const char *format, int64_t ff)
{
    char path[512];
    struct shape_file s = PLAIN;
    s.format = format_find(format);
    s.ff = ff;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    shape_file_write(path, &s);
}

static void files_of_one_model(void **state)
{
    (void)state;
    struct err why = { 0 };
    char folder[] = "/tmp/qdyno-variants-XXXXXX", path[600];
    struct tune_files *l = calloc(1, sizeof *l);
    assert_non_null(mkdtemp(folder));
    write_model(folder, "a-q4_0.gguf", "q4_0", 512);
    write_model(folder, "b-f16.gguf", "f16", 512);
    write_model(folder, "c-q8_0.gguf", "q8_0", 512);
    snprintf(path, sizeof path, "%s/mmproj.gguf", folder);
    FILE *f = fopen(path, "wb");
    fputs("no model", f);
    fclose(f);
    snprintf(path, sizeof path, "%s/readme.txt", folder);
    f = fopen(path, "wb");
    fclose(f);
    const char *given[] = { folder, NULL };
    CHECK_OK(tune_files_find(l, given, 1, &why));
    assert_int_equal(l->n, 3);
    assert_string_equal(path_file_name(l->file[0].path), "b-f16.gguf");
    assert_string_equal(path_file_name(l->file[1].path), "c-q8_0.gguf");
    assert_string_equal(path_file_name(l->file[2].path), "a-q4_0.gguf");
    CHECK_GT(l->file[1].bits, l->file[2].bits);
    CHECK_CONTAINS(l->skipped, "mmproj.gguf");
    snprintf(path, sizeof path, "%s/a-q4_0.gguf", folder);
    given[1] = path; /* the same file twice is one */
    CHECK_OK(tune_files_find(l, given, 2, &why));
    assert_int_equal(l->n, 3);
    write_model(folder, "d-q4_0.gguf", "q4_0", 768);
    assert_int_equal(tune_files_find(l, given, 1, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "not files of one model");
    CHECK_CONTAINS(why.message, "d-q4_0.gguf");
    CHECK_CONTAINS(why.message, "feed_forward_length");
    given[0] = "/tmp/qdyno-no-such-file.gguf";
    CHECK(tune_files_find(l, given, 1, &why) != ERR_OK);
    static const char *const NAMES[] = { "a-q4_0.gguf", "b-f16.gguf",  "c-q8_0.gguf",
                                         "d-q4_0.gguf", "mmproj.gguf", "readme.txt" };
    for (size_t i = 0; i < COUNT_OF(NAMES); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, NAMES[i]);
        unlink(path);
    }
    given[0] = folder;
    assert_int_equal(tune_files_find(l, given, 1, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "no *.gguf file");
    rmdir(folder);
    free(l);
}

/* ---------------------------------------------------------------- targets */

enum { CANDIDATES = 3 };
struct measured_arm {
    double rate, rate_half, kld, kld_half;
};

/* Judges arms as an experiment would: rate +- rate_half, loss +- kld_half. */
static void ask(struct tune_target *out, const char *target, const struct measured_arm *m, bool fastest)
{
    static const char *const LINES[] = { "model=/m/a-q8_0.gguf", "model=/m/b-q4_K.gguf,threads=2",
                                         "model=/m/c-q2_K.gguf" };
    struct experiment_state *s = calloc(1, sizeof *s);
    struct gate_result *judged = calloc(CANDIDATES, sizeof *judged);
    struct tune_candidate list[CANDIDATES];
    struct gate g;
    struct err why = { 0 };
    CHECK_OK(gate_parse(&g, target, &why));
    s->spec.arms = CANDIDATES;
    s->noise_floor = NAN;
    for (int k = 0; k < CANDIDATES; k++) {
        struct quality *q = &s->comparison[k].quality;
        list[k] = tune_candidate_unknown(k);
        snprintf(list[k].line, sizeof list[k].line, "%s", LINES[k]);
        list[k].rate = 1000 - m[k].rate; /* of different experiments: they do not compare */
        list[k].normalized_rate = m[k].rate;
        list[k].kld = m[k].kld;
        for (int i = 0; i < CELL_METRICS; i++) s->arm[k].mean[i] = (struct interval){ NAN, NAN, NAN };
        for (int i = 0; i < METRIC_COUNT; i++) s->arm[k].value[i] = NAN;
        s->arm[k].mean[METRIC_DECODE_RATE - METRIC_SENSOR_COUNT] = (struct interval){
            m[k].rate, m[k].rate - m[k].rate_half, m[k].rate + m[k].rate_half
        };
        q->known = true;
        q->figures.candidate.chunks = 10;
        q->kld = (struct interval){ m[k].kld, m[k].kld - m[k].kld_half, m[k].kld + m[k].kld_half };
        s->comparison[k].blocks = 10;
        claims_gate(&g, s, k, &judged[k]);
    }
    target_answer(out, &g, judged, list, CANDIDATES, fastest);
    free(judged);
    free(s);
}

static void a_target_is_reached(void **state)
{
    (void)state;
    static const struct measured_arm M[] = { { 10, 1, 0.001, 0.0005 },
                                             { 25, 1, 0.02, 0.005 },
                                             { 40, 1, 0.03, 0.005 } };
    struct tune_target t;
    ask(&t, "decode_tok_s >= 20 and kld_mean <= 0.05", M, false);
    assert_int_equal(t.reach, TUNE_REACHED);
    assert_int_equal(t.candidate, 1); /* it loses less */
    CHECK_CONTAINS(
        t.text, "reached by b-q4_K.gguf, threads=2: decode_tok_s 25 [24, 26], kld_mean 0.02 [0.015, 0.025]");
    ask(&t, "decode_tok_s >= 20 and kld_mean <= 0.05", M, true);
    assert_int_equal(t.candidate, 2); /* the fastest */
    ask(&t, "decode_tok_s >= 9", M, false);
    assert_int_equal(t.candidate, 0);
}

/* The bad end of the interval has to reach it: 20.5 +- 1 does not reach 20. */
static void a_target_is_undecided(void **state)
{
    (void)state;
    static const struct measured_arm M[] = { { 10, 1, 0.001, 0.0005 },
                                             { 20.5, 1, 0.02, 0.005 },
                                             { 40, 1, 0.3, 0.005 } };
    struct tune_target t;
    ask(&t, "decode_tok_s >= 20 and kld_mean <= 0.05", M, false);
    assert_int_equal(t.reach, TUNE_UNDECIDED);
    assert_int_equal(t.candidate, 1);
    CHECK_CONTAINS(t.text, "undecided: b-q4_K.gguf, threads=2 may reach it");
    CHECK_CONTAINS(t.text, "decode_tok_s >= 20 (the bound lies within the interval");
    CHECK_LACKS(t.text, "kld_mean <= 0.05 (");
    ask(&t, "decode_tok_s >= 19 and kld_mean <= 0.05", M, false);
    assert_int_equal(t.reach, TUNE_REACHED);
}

static void a_target_is_not_reached(void **state)
{
    (void)state;
    static const struct measured_arm M[] = { { 10, 1, 0.001, 0.0005 },
                                             { 17, 1, 0.02, 0.005 },
                                             { 40, 1, 0.3, 0.005 } };
    struct tune_target t;
    ask(&t, "decode_tok_s >= 20 and kld_mean <= 0.05", M, false);
    assert_int_equal(t.reach, TUNE_NOT_REACHED);
    assert_int_equal(t.candidate, 1); /* 15 % short; the others 50 % and a factor of 6 */
    CHECK_CONTAINS(t.text,
                   "not reached: the nearest is b-q4_K.gguf, threads=2, which misses decode_tok_s >= 20");
    ask(&t, "ttft_s < 1", M, false); /* what was not measured cannot be called missed */
    assert_int_equal(t.reach, TUNE_UNDECIDED);
    CHECK_CONTAINS(t.text, "not measured");
}

/* ---------------------------------------------------------------- the trade-off */

static void the_front_and_its_knee(void **state)
{
    (void)state;
    /* rate, loss, memory: the third is dominated by the second, the last could not be measured */
    static const double POINT[][3] = {
        { 10, 0, 100 }, { 30, 0.01, 60 }, { 25, 0.02, 70 }, { 33, 0.5, 50 }, { NAN, 0.1, 10 }
    };
    struct tune_candidate list[COUNT_OF(POINT)];
    for (size_t i = 0; i < COUNT_OF(POINT); i++) {
        list[i] = tune_candidate_unknown((int64_t)i);
        list[i].normalized_rate = POINT[i][0];
        list[i].kld = POINT[i][1];
        list[i].memory_bytes = (int64_t)POINT[i][2];
    }
    tune_front(list, COUNT_OF(POINT));
    static const bool FRONT[] = { true, true, false, true, false };
    for (size_t i = 0; i < COUNT_OF(POINT); i++) {
        assert_int_equal(list[i].front, FRONT[i]);
        assert_int_equal(list[i].knee, i == 1);
    }
    tune_front(list, 2); /* two points have no bend */
    assert_false(list[0].knee || list[1].knee);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_one_model),     cmocka_unit_test(a_target_is_reached),
        cmocka_unit_test(a_target_is_undecided),  cmocka_unit_test(a_target_is_not_reached),
        cmocka_unit_test(the_front_and_its_knee),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
