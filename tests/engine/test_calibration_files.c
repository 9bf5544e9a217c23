/* Proves: calibration files preserve every bit; importance matrices are read and written as llama.cpp does;
 * files that are damaged, of a newer layout, or of another model are rejected. */
#include "engine/quant/calibration_internal.h"

#include "tests/engine/calibration_fixture.h"

static void check_same_input(const struct calibration_input *a, const struct calibration_input *b)
{
    const size_t bytes = (size_t)a->cols * sizeof(float);
    assert_int_equal(a->cols, b->cols);
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->batches, b->batches);
    assert_int_equal(a->tensor_count, b->tensor_count);
    for (int i = 0; i < a->tensor_count; i++) assert_string_equal(a->tensors[i], b->tensors[i]);
    assert_memory_equal(a->sum_squares, b->sum_squares, bytes);
    assert_memory_equal(a->mean_square, b->mean_square, bytes);
    assert_memory_equal(a->mean_abs, b->mean_abs, bytes);
    assert_memory_equal(a->max_abs, b->max_abs, bytes);
    assert_memory_equal(a->min, b->min, bytes);
    assert_memory_equal(a->max, b->max, bytes);
    assert_memory_equal(a->batch_min, b->batch_min, (size_t)a->batches * sizeof(float));
    assert_memory_equal(a->batch_max, b->batch_max, (size_t)a->batches * sizeof(float));
    const struct histogram *h[2][2] = { { &a->histogram, &b->histogram }, { &a->symmetric, &b->symmetric } };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(h[i][0]->bins, h[i][1]->bins);
        CHECK_EQ(h[i][0]->low, h[i][1]->low);
        CHECK_EQ(h[i][0]->high, h[i][1]->high);
        assert_memory_equal(h[i][0]->counts, h[i][1]->counts, (size_t)h[i][0]->bins * sizeof(float));
    }
}

static void test_round_trip(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct calibration *c = collect(synth("qwen2", 3), 1, 0, 0), *d;
    struct calibration_summary a, b;
    CHECK_OK(calibration_save(c, place("c.gguf"), &why));
    CHECK_OK(calibration_load(&d, place("c.gguf"), &why));
    calibration_describe(c, &a);
    calibration_describe(d, &b);
    assert_string_equal(a.text, b.text);
    assert_string_equal(a.model, b.model);
    assert_string_equal(a.model_name, b.model_name);
    assert_string_equal(calibration_name(c), calibration_name(d));
    assert_int_equal(a.tokens, b.tokens);
    assert_int_equal(a.sequences, b.sequences);
    assert_int_equal(a.inputs, b.inputs);
    assert_int_equal(a.matrices, b.matrices);
    for (int i = 0; i < a.inputs; i++) check_same_input(calibration_at(c, i), calibration_at(d, i));
    int32_t ids[2][60];
    assert_int_equal(calibration_samples(c, 20, ids[0], 3), 3);
    assert_int_equal(calibration_samples(d, 20, ids[1], 3), 3);
    assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
    CHECK_OK(calibration_save(d, place("d.gguf"), &why));
    CHECK(same_bytes(place("c.gguf"), place("d.gguf")));
    calibration_close(c);
    calibration_close(d);
}

/* Both imatrix formats: mean squares survive, our calibration loads as an imatrix, and an imatrix that was
 * loaded is written back unchanged. */
static void test_imatrix(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct gguf *g;
    static const char *const NAMES[] = { "m.dat", "m.gguf", "c.gguf" };
    char model[256];
    snprintf(model, sizeof model, "%s", synth("llama", 3));
    CHECK_OK(gguf_open(&g, model, &why));
    struct calibration *c = collect(model, 1, 0, 0), *d;
    struct calibration_summary a, b;
    calibration_describe(c, &a);
    CHECK_OK(calibration_save(c, place("c.gguf"), &why));
    for (size_t f = 0; f < 2; f++) {
        CHECK_OK(imatrix_save(c, place(NAMES[f]), &why));
        CHECK_OK(calibration_load(&d, place(NAMES[f]), &why));
        CHECK_OK(calibration_check(d, g, &why));
        calibration_describe(d, &b);
        assert_true(b.imatrix);
        assert_string_equal(b.text, a.text);
        assert_int_equal(b.sequences, a.sequences);
        assert_int_equal(b.matrices, a.matrices - 1); /* all but the output matrix */
        assert_null(calibration_find(d, "output.weight"));
        assert_int_equal(calibration_samples(d, 8, NULL, 0), 0);
        for (int i = 0; i < b.inputs; i++) {
            const struct calibration_input *in = calibration_at(d, i);
            const struct calibration_input *own = calibration_find(c, in->tensors[0]);
            assert_null(in->mean_abs);
            assert_int_equal(in->batches, 0);
            for (int64_t k = 0; k < in->cols; k++)
                CHECK_NEAR(in->mean_square[k], own->mean_square[k], 2e-7 * (double)own->mean_square[k]);
        }
        assert_int_equal(calibration_save(d, place("no.gguf"), &why), ERR_USAGE);
        CHECK_OK(imatrix_save(d, place(f ? "again.gguf" : "again.dat"), &why));
        CHECK(same_bytes(place(NAMES[f]), place(f ? "again.gguf" : "again.dat")));
        calibration_close(d);
    }
    calibration_close(c);
    gguf_close(g);
}

static void test_wrong_model(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct gguf *g;
    struct calibration *c = collect(synth("llama", 3), 1, 0, 64), *d;
    CHECK_OK(calibration_save(c, place("c.gguf"), &why));
    CHECK_OK(imatrix_save(c, place("m.dat"), &why));
    calibration_close(c);
    CHECK_OK(gguf_open(&g, synth("llama", 4), &why)); /* same shape, other weights */
    struct calibration_options o = { .path = place("c.gguf"), .threads = 1 };
    assert_int_equal(calibration_obtain(&d, g, &o, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "another model");
    assert_null(d);
    o.path = place("m.dat"); /* an imatrix does not record its model, and its shapes fit */
    CHECK_OK(calibration_obtain(&d, g, &o, &why));
    calibration_close(d);
    gguf_close(g);
    CHECK_OK(gguf_open(&g, synth("gpt2", 4), &why));
    assert_int_equal(calibration_obtain(&d, g, &o, &why),
                     ERR_OK); /* some matrices have the same names and sizes */
    calibration_close(d);
    gguf_close(g);

    struct calibration *e = calibration_new();
    const char *name = "blk.0.attn_q.weight";
    struct calibration_input *in = calibration_add(e, &name, 1, 32, 1, 0);
    in->count = 1;
    CHECK_OK(calibration_finish(e, &why));
    CHECK_OK(gguf_open(&g, synth("llama", 4), &why));
    assert_int_equal(calibration_check(e, g, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "64 columns in this model and 32 in the calibration");
    calibration_close(e);
    e = calibration_new();
    name = "layers.0.attention";
    calibration_add(e, &name, 1, 32, 1, 0)->count = 1;
    CHECK_OK(calibration_finish(e, &why));
    assert_int_equal(calibration_check(e, g, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "none of its matrices");
    calibration_close(e);
    gguf_close(g);
}

/* Truncated or corrupted files give an error or a usable calibration, never a crash. */
static void test_damaged(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct calibration *c = collect(synth("llama", 3), 1, 0, 64), *d;
    static const char *const NAMES[] = { "c.gguf", "m.dat", "m.gguf" };
    CHECK_OK(calibration_save(c, place("c.gguf"), &why));
    CHECK_OK(imatrix_save(c, place("m.dat"), &why));
    CHECK_OK(imatrix_save(c, place("m.gguf"), &why));
    calibration_close(c);
    uint64_t seed = 1;
    for (size_t f = 0; f < COUNT_OF(NAMES); f++) {
        size_t n;
        char *bytes = read_bytes(place(NAMES[f]), &n);
        int refused = 0;
        for (int i = 0; i < 150; i++) {
            const size_t cut = i < 60 ? (size_t)i * 7 : random_u32(&seed) % n;
            write_bytes(place("cut"), bytes, cut);
            const enum err_code rc = calibration_load(&d, place("cut"), &why);
            /* The optional end of the legacy format may be missing completely, so one such cut may load. */
            if (rc) assert_int_equal(rc, ERR_FORMAT);
            refused += rc == ERR_FORMAT;
            if (!rc) calibration_close(d);
        }
        assert_in_range(refused, 149, 150);
        for (int i = 0; i < 300; i++) {
            const size_t at = i < 200 ? random_u32(&seed) % MIN(n, 6000) : random_u32(&seed) % n;
            const char old = bytes[at];
            bytes[at] = (char)(old ^ (1 << random_u32(&seed) % 8));
            write_bytes(place("flip"), bytes, n);
            bytes[at] = old;
            if (calibration_load(&d, place("flip"), &why)) continue;
            struct calibration_summary about;
            calibration_describe(d, &about);
            assert_in_range(about.inputs, 1, 100);
            CHECK_EQ(calibration_find(d, calibration_at(d, 0)->tensors[0]), calibration_at(d, 0));
            calibration_samples(d, 7, NULL, 0);
            calibration_close(d);
        }
        free(bytes);
    }
}

/* A file that contains NaN, and a file with a newer layout version. */
static void test_bad_numbers(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct calibration *c = collect(synth("llama", 3), 1, 0, 64), *d;
    const float bad = NAN;
    float *const PLACES[] = { c->inputs[1].sum_squares,
                              c->inputs[1].mean_abs,
                              c->inputs[1].max_abs,
                              c->inputs[1].min,
                              c->inputs[1].max,
                              c->inputs[1].batch_min,
                              c->inputs[1].batch_max,
                              &c->inputs[1].histogram.low,
                              (float *)c->inputs[1].histogram.counts,
                              (float *)c->inputs[1].symmetric.counts };
    for (size_t i = 0; i < COUNT_OF(PLACES); i++) {
        const float was = *PLACES[i];
        *PLACES[i] = bad;
        CHECK_OK(calibration_save(c, place("bad.gguf"), &why));
        *PLACES[i] = was;
        assert_int_equal(calibration_load(&d, place("bad.gguf"), &why), ERR_FORMAT);
        CHECK_CONTAINS(why.message, c->inputs[1].tensors[0]);
        assert_null(d);
    }
    const float good = c->inputs[0].mean_square[0];
    c->inputs[0].mean_square[0] = -1;
    CHECK_OK(imatrix_save(c, place("bad.dat"), &why));
    assert_int_equal(calibration_load(&d, place("bad.dat"), &why), ERR_FORMAT);
    c->inputs[0].mean_square[0] = good;
    CHECK_OK(calibration_save(c, place("new.gguf"), &why));
    size_t n;
    char *bytes = read_bytes(place("new.gguf"), &n);
    char *key = memmem(bytes, n, "qdyno.calibration.version", 25);
    assert_non_null(key);
    key[25 + 4] = 99;
    write_bytes(place("new.gguf"), bytes, n);
    free(bytes);
    assert_int_equal(calibration_load(&d, place("new.gguf"), &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "version");
    calibration_close(c);
}

/* A list that repeats a name is refused before statistics are read for it. */
static void test_repeated_names(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct calibration *c = collect(synth("llama", 3), 1, 0, 64), *d;
    const char *first = c->inputs[0].tensors[0];
    CHECK_OK(calibration_save(c, place("twice.gguf"), &why));
    size_t n;
    char *bytes = read_bytes(place("twice.gguf"), &n),
         *list = memmem(bytes, n, "qdyno.calibration.inputs", 24);
    assert_non_null(list);
    /* the list of the second input begins like that of the first: blk.0.attn_q -> blk.0.attn_q of blk.1 */
    char *second = memmem(list, n - (size_t)(list - bytes), "blk.1.", 6);
    assert_non_null(second);
    second[4] = '0';
    write_bytes(place("twice.gguf"), bytes, n);
    free(bytes);
    assert_int_equal(calibration_load(&d, place("twice.gguf"), &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "' twice");
    CHECK_CONTAINS(why.message, first);
    struct calibration *seen = calibration_new();
    CHECK_OK(calibration_list(seen, &first, 1, &why));
    CHECK_EQ(calibration_list(seen, &first, 1, &why), ERR_FORMAT);
    CHECK(!seen->input_count);
    calibration_close(seen);
    calibration_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_imatrix),
        cmocka_unit_test(test_wrong_model), cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_bad_numbers), cmocka_unit_test(test_repeated_names),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
