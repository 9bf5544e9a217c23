/* Proves, for every golden model (attention, sliding windows, latent attention, layers with a state), for
 * every type of KV cache and for every layout: after a cache was filled up to a depth, used and cut back, the
 * logits that follow have the same bits as after filling it in a new session. Cells that share a kept cache
 * do the same work as cells that do not, fill it once, and fill it again when the prompt differs or another
 * request used the cache. The memory plan has the copy of the states. */
#include "engine/arch/arch.h"
#include "engine/plan/plan.h"
#include "engine/worker/kept_fill.h"
#include "engine/worker/worker.h"
#include "kernels/kernels.h"
#include "tests/engine/golden.h"

enum { SEQUENCES = 2 };

static int32_t id_of(const struct entry *e, int seq, int pos)
{
    return e->ids[seq ? e->n - 1 - pos : pos];
}

/* Feed positions from..to-1 of both sequences. out: logits of the last one of each [SEQUENCES][vocab]. */
static void feed(const struct entry *e, struct model *m, int from, int to, float *out)
{
    struct err why = { 0 };
    const int64_t vocab = model_shape(m)->vocab;
    for (int s = 0; s < SEQUENCES; s++) {
        struct batch_row rows[GOLDEN_IDS];
        for (int i = from; i < to; i++)
            rows[i - from] = (struct batch_row){
                .token = id_of(e, s, i), .pos = i, .seq = s, .logits = i == to - 1
            };
        if (model_forward(m, rows, to - from, &why)) fail_msg("%s: %s", e->name, why.message);
        memcpy(out + s * vocab, model_logits(m, 0), (size_t)vocab * sizeof *out);
    }
}

static int with_states, with_windows;

static void check_bits(const struct entry *e, const char *line)
{
    struct err why = { 0 };
    struct model *m, *fresh;
    struct kept_fill kept = { 0 };
    const int depth = e->n / 2, middle = depth + (e->n - depth) / 2;
    if (e->n < 4) return;
    if (session_try(&m, e->model, line, e->ctx, SEQUENCES, &why)) return; /* this model lacks the setting */
    fresh = session_open(e->model, line, e->ctx, SEQUENCES);
    const size_t bytes = (size_t)(SEQUENCES * model_shape(m)->vocab) * sizeof(float);
    float *unused = malloc(bytes), *want = malloc(bytes), *got = malloc(bytes);
    feed(e, fresh, 0, depth, unused);
    feed(e, fresh, depth, e->n, want);

    feed(e, m, 0, depth, unused);
    int32_t ids[SEQUENCES][GOLDEN_IDS], others[SEQUENCES][GOLDEN_IDS] = { { -1 } };
    for (int i = 0; i < SEQUENCES * depth; i++) ids[i / depth][i % depth] = id_of(e, i / depth, i % depth);
    const struct fill_ids fill = { ids[0], GOLDEN_IDS, depth, SEQUENCES },
                          first = { ids[0], GOLDEN_IDS, depth, 1 },
                          other = { others[0], GOLDEN_IDS, depth, SEQUENCES };
    CHECK_OK(kept_fill_save(&kept, m, &fill, &why));
    assert_true(kept_fill_matches(&kept, m, &fill));
    assert_true(kept_fill_matches(&kept, m, &first));
    assert_false(kept_fill_matches(&kept, m, &other));
    feed(e, m, depth, middle, unused);
    assert_false(kept_fill_matches(&kept, m, &fill));
    for (int again = 0; again < 2; again++) {
        assert_true(kept_fill_go_back(&kept, m));
        assert_true(kept_fill_matches(&kept, m, &fill));
        feed(e, m, depth, e->n, got);
        if (memcmp(want, got, bytes)) fail_msg("%s, %s: other bits than in a new session", e->name, line);
    }
    with_states += model_state_bytes(m) > 0;
    with_windows += model_shape(m)->window > 0;
    kept_fill_drop(&kept, m);
    assert_int_equal(model_length(m, 0), 0);
    assert_false(kept_fill_go_back(&kept, m));
    free(unused);
    free(want);
    free(got);
    model_close(m);
    model_close(fresh);
}

static void check_default(const struct entry *e)
{
    check_bits(e, "threads=2,batch=16");
}

static void test_models(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN "manifest.json");
    with_states = with_windows = 0;
    for_entries(true, check_default);
    for_entries_of(GOLDEN_2, true, check_default);
    for_entries_of(GOLDEN_3, true, check_default);
    CHECK_LT(2, with_states);
    CHECK_LT(2, with_windows);
}

/* Every format that can be a KV type, on the bundled model. */
static void test_kv_types(void **state)
{
    (void)state;
    static const char *const LAYOUTS[] = { "paged", "contiguous", "off" };
    struct err why = { 0 };
    char *path;
    int types = 0;
    CHECK_OK(file_share(&path, "models/bundled.gguf", &why));
    struct entry e = { .name = "bundled", .n = GOLDEN_IDS, .ctx = 128 };
    snprintf(e.model, sizeof e.model, "%s", path);
    for (int i = 0; i < e.n; i++) e.ids[i] = 5 + (i * 37 + i * i) % 200;
    for (size_t l = 0; l < COUNT_OF(LAYOUTS); l++)
        for (int f = 0; f < FORMAT_COUNT; f++) {
            char line[160];
            struct model *m;
            snprintf(line, sizeof line, "threads=2,batch=16,kv_cache=%s,ctk=%s,ctv=%s", LAYOUTS[l],
                     FORMATS[f].name, FORMATS[f].name);
            if (session_try(&m, e.model, line, e.ctx, SEQUENCES, &why)) continue; /* no KV type */
            model_close(m);
            types++;
            check_bits(&e, line);
        }
    CHECK_LE(15, types);
    free(path);
}

/* ---------------------------------------------------------------- cells */

static void run(struct cell_result *r, struct model *m, const char *line, uint64_t seed,
                struct kept_fill *kept)
{
    struct err why = { 0 };
    struct workload w;
    CHECK_OK(workload_parse(&w, line, &why));
    CHECK_OK(cell_run(r, m, &w, seed, &(struct cell_hooks){ .kept = kept }, &why));
}

static void check_cells(struct model *m)
{
    struct kept_fill kept = { 0 };
    struct cell_result fresh, r;
    run(&fresh, m, "pp3+tg5@d40@b2", 7, NULL);
    assert_int_equal(fresh.filled_tokens, 80);
    CHECK_LT(0, fresh.fill_s);
    for (int i = 0; i < 3; i++) {
        run(&r, m, "pp3+tg5@d40@b2", 7, &kept);
        assert_string_equal(r.work_hash, fresh.work_hash);
        assert_string_equal(r.output_hash, fresh.output_hash);
        assert_int_equal(r.filled_tokens, i ? 0 : 80);
        assert_int_equal(r.n_spans, i ? 2 : 3);
        assert_int_equal(r.gen_tokens, 10);
        assert_int_equal(model_length(m, 1), 40);
        cell_result_free(&r);
    }
    /* other lengths after the depth and fewer sequences start from the same cache; other prompts do not */
    static const struct {
        const char *workload;
        uint64_t seed;
        int filled;
    } NEXT[] = { { "tg4@d40@b2", 7, 0 }, { "pp8@d40", 7, 0 },    { "pp8@d40@b2", 8, 80 },
                 { "pp8@d40", 8, 0 },    { "pp8@d40@b2", 8, 0 }, { "pp8@d39", 8, 39 },
                 { "pp8", 8, 0 },        { "pp8@d39", 8, 39 },   { "pp8@d39", 8, 0 } };
    for (size_t i = 0; i < COUNT_OF(NEXT); i++) {
        run(&r, m, NEXT[i].workload, NEXT[i].seed, &kept);
        assert_int_equal(r.filled_tokens, NEXT[i].filled);
        cell_result_free(&r);
    }
    /* another user of the cache emptied it */
    assert_true(model_truncate(m, 0, 0));
    run(&r, m, "pp8@d39", 8, &kept);
    assert_int_equal(r.filled_tokens, 39);
    cell_result_free(&r);
    kept_fill_drop(&kept, m);
    cell_result_free(&fresh);
}

static void test_cells(void **state)
{
    (void)state;
    struct err why = { 0 };
    char *path, shared[4096];
    CHECK_OK(file_share(&path, "models/bundled.gguf", &why));
    struct model *m = session_open(path, "threads=2", 64, 2);
    check_cells(m);
    model_close(m);
    free(path);
    SHARED_OR_SKIP(shared, GOLDEN_2 "qwen35moe.gguf");
    m = session_open(shared, "threads=2", 64, 2);
    check_cells(m);
    model_close(m);
}

/* Turns in which the cache is filled are not those of the measured work. */
static bool count_turn(void *ctx)
{
    ++*(int *)ctx;
    return true;
}

static void test_turns(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct kept_fill kept = { 0 };
    char *path;
    CHECK_OK(file_share(&path, "models/bundled.gguf", &why));
    struct model *m = session_open(path, "threads=2,batch=16", 64, 1);
    for (int i = 0; i < 2; i++) {
        int turns = 0;
        struct workload w;
        struct cell_result r;
        const struct cell_hooks hooks = {
            .turn = count_turn, .turn_steps = 2, .turn_passes = 1, .ctx = &turns, .kept = &kept
        };
        CHECK_OK(workload_parse(&w, "pp4+tg6@d32", &why));
        CHECK_OK(cell_run(&r, m, &w, 3, &hooks, &why));
        assert_int_equal(r.prefill_turns, 1);
        assert_int_equal(r.turns, 1 + 3);
        assert_int_equal(turns, r.turns + (i ? 0 : 2));
        cell_result_free(&r);
    }
    kept_fill_drop(&kept, m);
    model_close(m);
    free(path);
}

/* One copy of the states of all sequences is in the plan. */
static void test_plan(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN_2 "qwen35moe.gguf");
    struct model *one = session_open(path, EXACT ",batch=8", 64, 1),
                 *three = session_open(path, EXACT ",batch=8", 64, 3);
    CHECK_LE(2 * model_state_bytes(one), model_plan(three)->compute - model_plan(one)->compute);
    model_close(one);
    model_close(three);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_models), cmocka_unit_test(test_kv_types),
                                        cmocka_unit_test(test_cells), cmocka_unit_test(test_turns),
                                        cmocka_unit_test(test_plan) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
