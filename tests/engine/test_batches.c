/* Proves, for batch_invariant=on: the logits of every golden model have the same bits when two sequences run
 * one after the other, a token at a time, and when their tokens are mixed in random batches, at any number of
 * threads and on every instruction set; and the setting is refused where it cannot hold. */
#include "tests/engine/golden.h"
#include "tests/kernels/numbers.h"

enum { SEQUENCES = 2, TRIES = 3 };

/* Feed the entry's ids to both sequences in batches of at most `most` rows whose sizes and sequences are
 * random, or one row at a time when r is NULL. got: [SEQUENCES][e->n][vocab]. */
static void run_random(const struct entry *e, struct model *m, struct rng *r, int most, float *got)
{
    struct err why = { 0 };
    const int64_t vocab = model_shape(m)->vocab;
    int done[SEQUENCES] = { 0 };
    while (done[0] < e->n || done[1] < e->n) {
        struct batch_row rows[GOLDEN_IDS];
        const int n = r ? 1 + rng_below(r, most) : 1;
        int count = 0;
        while (count < n && (done[0] < e->n || done[1] < e->n)) {
            int seq = r ? rng_below(r, SEQUENCES) : 0;
            if (done[seq] == e->n) seq = !seq;
            /* The second sequence has the ids in another order, so that an exchange would be seen. */
            const int at = done[seq]++;
            rows[count++] = (struct batch_row){
                .token = e->ids[seq ? e->n - 1 - at : at], .pos = at, .seq = seq, .logits = true
            };
        }
        if (model_forward(m, rows, count, &why)) fail_msg("%s: %s", e->name, why.message);
        for (int i = 0; i < count; i++)
            memcpy(got + (rows[i].seq * e->n + rows[i].pos) * vocab, model_logits(m, i),
                   (size_t)vocab * sizeof(float));
    }
}

static const char *level_name;

static void check_entry(const struct entry *e)
{
    char line[160];
    struct rng r = { 17 };
    float *want = NULL;
    for (int try = 0; try <= TRIES; try++) {
        snprintf(line, sizeof line, "batch_invariant=on,isa=%s,threads=%d,batch=%d", level_name, 1 + try % 3,
                 try == 2 ? 5 : 64);
        struct model *m = session_open(e->model, line, e->ctx, SEQUENCES);
        const size_t bytes = (size_t)(SEQUENCES * e->n * model_shape(m)->vocab) * sizeof(float);
        float *got = calloc(1, bytes);
        run_random(e, m, try ? &r : NULL, try == 1 ? 40 : 12, got);
        model_close(m);
        if (try && memcmp(want, got, bytes))
            fail_msg("%s, %s: batches change the bits of logits", e->name, line);
        if (try)
            free(got);
        else
            want = got;
    }
    free(want);
}

static void test_golden(void **state)
{
    (void)state;
    const struct isa_level *levels[16];
    const size_t count = levels_here(levels);
    for (size_t l = 0; l < count; l++) {
        level_name = levels[l]->name;
        char path[4096];
        SHARED_OR_SKIP(path, GOLDEN_2 "manifest.json");
        assert_in_range(for_entries_of(GOLDEN_2, true, check_entry), 48, 100);
        assert_in_range(for_entries(true, check_entry), 35, 100);
    }
}

static void test_refused(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct config c;
    assert_int_equal(config_parse(&c, "batch_invariant=on,device=opencl:0", &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "on the CPU only");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_golden), cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
