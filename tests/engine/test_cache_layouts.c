/* Proves, for every golden model and batch_invariant=on: with kv_cache=contiguous and kv_cache=off the logits
 * of two sequences have the same bits as with kv_cache=paged, in whatever batches they are computed, and
 * after a sequence was cut; without batch_invariant they agree with another engine. Layouts are refused where
 * they cannot work. */
#include "tests/engine/golden.h"
#include "tests/kernels/numbers.h"

enum { SEQUENCES = 2 };

/* Feed the ids to both sequences in batches of random sizes, the second one in reverse; then cut both in half
 * and feed the second half once more. got: [SEQUENCES][e->n][vocab]. */
static void run_two(const struct entry *e, struct model *m, float *got)
{
    struct err why = { 0 };
    struct rng r = { 23 };
    const int64_t vocab = model_shape(m)->vocab;
    for (int pass = 0; pass < 2; pass++) {
        int done[SEQUENCES] = { pass * (e->n / 2), pass * (e->n / 2) };
        for (int s = 0; s < SEQUENCES; s++) CHECK(model_truncate(m, s, done[s]));
        while (done[0] < e->n || done[1] < e->n) {
            struct batch_row rows[GOLDEN_IDS];
            const int n = 1 + rng_below(&r, 20);
            int count = 0;
            while (count < n && (done[0] < e->n || done[1] < e->n)) {
                int seq = rng_below(&r, SEQUENCES);
                if (done[seq] == e->n) seq = !seq;
                const int at = done[seq]++;
                rows[count++] = (struct batch_row){
                    .token = e->ids[seq ? e->n - 1 - at : at], .pos = at, .seq = seq, .logits = at % 3 != 1
                };
            }
            if (model_forward(m, rows, count, &why)) fail_msg("%s: %s", e->name, why.message);
            for (int i = 0, row = 0; i < count; i++)
                if (rows[i].logits)
                    memcpy(got + (rows[i].seq * e->n + rows[i].pos) * vocab, model_logits(m, row++),
                           (size_t)vocab * sizeof(float));
        }
        for (int s = 0; s < SEQUENCES; s++) assert_int_equal(model_length(m, s), e->n);
    }
}

static int with_state; /* models that keep a state */

static void check_same_bits(const struct entry *e)
{
    static const char *const LAYOUTS[] = { "paged", "contiguous", "off" };
    float *got[COUNT_OF(LAYOUTS)] = { NULL };
    size_t bytes = 0;
    for (size_t i = 0; i < COUNT_OF(LAYOUTS); i++) {
        struct err why = { 0 };
        struct model *m;
        char line[96];
        snprintf(line, sizeof line, "batch_invariant=on,threads=2,batch=16,kv_cache=%s", LAYOUTS[i]);
        const enum err_code rc = session_try(&m, e->model, line, e->ctx, SEQUENCES, &why);
        if (rc == ERR_USAGE && !strcmp(LAYOUTS[i], "off")) {
            CHECK_CONTAINS(why.message, "keep a state");
            with_state++;
            continue;
        }
        if (rc) fail_msg("%s, %s: %s", e->name, line, why.message);
        if (model_state_bytes(m)) { /* it cannot be cut in the middle */
            model_close(m);
            continue;
        }
        bytes = (size_t)(SEQUENCES * e->n * model_shape(m)->vocab) * sizeof(float);
        got[i] = calloc(1, bytes);
        run_two(e, m, got[i]);
        model_close(m);
        if (memcmp(got[0], got[i], bytes)) fail_msg("%s, %s: other bits than kv_cache=paged", e->name, line);
    }
    for (size_t i = 0; i < COUNT_OF(LAYOUTS); i++) free(got[i]);
}

static void test_same_bits(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN "manifest.json");
    assert_in_range(for_entries(true, check_same_bits), GOLDEN_LEAST, GOLDEN_MOST);
    assert_in_range(for_entries_of(GOLDEN_2, true, check_same_bits), GOLDEN_2_LEAST, GOLDEN_MOST);
    assert_int_equal(for_entries_of(GOLDEN_3, true, check_same_bits), GOLDEN_3_LEAST);
    CHECK_LT(0, with_state);
}

static void check_exact(const struct entry *e)
{
    struct err why = { 0 };
    struct model *m;
    check_config(e, EXACT ",batch=16,kv_cache=contiguous", 7);
    if (session_try(&m, e->model, "kv_cache=off", e->ctx, 1, &why)) return; /* it keeps a state */
    model_close(m);
    check_config(e, EXACT ",batch=16,kv_cache=off", 7);
}

static void test_golden(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, GOLDEN "manifest.json");
    for_entries(true, check_exact);
    for_entries_of(GOLDEN_2, true, check_exact);
    for_entries_of(GOLDEN_3, true, check_exact);
}

/* Without a cache, one layer's keys and values have room, and activations for a whole context. */
static void test_plan(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, "models/repacked/tinystories-656k-f32.gguf");
    struct model *paged = session_open(path, "batch=64", 512, 2),
                 *whole = session_open(path, "batch=64,kv_cache=contiguous", 512, 2),
                 *off = session_open(path, "batch=64,kv_cache=off", 512, 2);
    const int layers = model_shape(paged)->layers;
    assert_int_equal(model_plan(paged)->kv, model_plan(whole)->kv);
    assert_int_equal(model_plan(paged)->total, model_plan(whole)->total);
    CHECK_LE(model_plan(off)->kv, model_plan(paged)->kv / layers / 2 + 128);
    assert_int_equal(model_plan(off)->batch, 512);
    CHECK_LT(model_plan(paged)->compute, model_plan(off)->compute);
    model_close(paged);
    model_close(whole);
    model_close(off);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *line, *says;
    } CASES[] = {
        { "kv_cache=off,device=opencl:0", "kv_cache=off is possible on the CPU only" },
        { "kv_cache=contiguous,device=opencl:0", "on the CPU only" },
        { "kv_cache=off,parallel=tp2", "in one process only" },
        { "kv_cache=contiguous,kv_blocks=64", "kv_cache=contiguous has none" },
        { "kv_cache=of", "contiguous" },
    };
    struct err why = { 0 };
    struct config c;
    struct workload w;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        assert_int_equal(config_parse(&c, CASES[i].line, &why), ERR_USAGE);
        CHECK_CONTAINS(why.message, CASES[i].says);
    }
    CHECK_OK(workload_parse(&w, "load:rate=4,requests=8,in=16,out=8", &why));
    CHECK_OK(config_parse(&c, "kv_cache=contiguous", &why));
    assert_int_equal(workload_check(&w, &c, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "share the blocks of a paged KV cache");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_same_bits), cmocka_unit_test(test_golden),
                                        cmocka_unit_test(test_plan), cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
