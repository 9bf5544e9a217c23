/* Proves: the plan's bytes are those computed by hand and those that the loader takes; memory limits of
 * recorded machines (with and without control groups) are read correctly; block tables neither lose a block
 * nor use one twice. */
#include <sys/stat.h>

#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "engine/model/kv.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/quant/quant.h"
#include "kernels/kernels.h"
#include "tests/engine/session.h"

static struct memory_plan plan_of(const char *path, const char *line, int ctx, int sequences)
{
    struct err why = { 0 };
    struct config c;
    struct gguf *g;
    struct memory_plan p;
    CHECK_OK(config_parse(&c, line, &why));
    CHECK_OK(gguf_open(&g, path, &why));
    CHECK_OK(recipe_plan_memory(&p, g, &c, ctx, sequences, &why));
    gguf_close(g);
    return p;
}

/* The longest context fits, and one token more does not. Less memory gives a shorter one, none gives 0. */
static void test_longest_context(void **state)
{
    (void)state;
    char path[4096];
    struct err why = { 0 };
    struct config c;
    struct gguf *g;
    struct memory_plan p;
    int64_t longest, shorter;
    SHARED_OR_SKIP(path, "models/repacked/stories260K-f32.gguf");
    CHECK_OK(config_parse(&c, "kv=f16,threads=2", &why));
    CHECK_OK(gguf_open(&g, path, &why));
    const int64_t available = INT64_C(50) << 20;
    CHECK_OK(recipe_longest_context(&longest, g, &c, available, &why));
    CHECK_GT(longest, 0);
    CHECK_LT(longest, CONTEXT_MOST);
    CHECK_OK(recipe_plan_memory(&p, g, &c, (int)longest, 1, &why));
    CHECK_OK(memory_plan_check(&p, "cpu", available, &why));
    CHECK_OK(recipe_plan_memory(&p, g, &c, (int)longest + 1, 1, &why));
    CHECK_EQ(memory_plan_check(&p, "cpu", available, &why), ERR_FIT);
    CHECK_OK(recipe_longest_context(&shorter, g, &c, available / 2, &why));
    CHECK_LT(shorter, longest);
    CHECK_OK(recipe_longest_context(&shorter, g, &c, 0, &why));
    CHECK_EQ(shorter, 0);
    gguf_close(g);
}

static void test_by_hand(void **state)
{
    (void)state;
    char path[4096], untied[4096];
    SHARED_OR_SKIP(path, "models/repacked/stories260K-f32.gguf");
    SHARED_OR_SKIP(untied, "models/stories260K/stories260K-f32.gguf");
    const int64_t embd = 512 * 64, layer = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 172, norms = 11 * 64;
    struct memory_plan p = plan_of(path, "kv=f16,batch=64", 100, 1);
    assert_int_equal(p.weights, 4 * (embd + 5 * layer + norms));
    assert_int_equal(p.kv_bytes_per_token, 5 * 4 * (8 + 8) * 2);
    /* 100 tokens are 4 blocks of 32; a cache line or two of rounding per layer. */
    CHECK_LE(128 * p.kv_bytes_per_token, p.kv);
    CHECK_LE(p.kv, 128 * p.kv_bytes_per_token + 5 * 128);
    /* Tied: the embedding is read once as the output matrix, and one row of it as the input. */
    assert_int_equal(p.decode_read_bytes, 4 * (embd + 64 + 5 * layer + norms));
    CHECK_NEAR(p.flops_per_token, 2.0 * 5 * (double)layer, 0);
    assert_int_equal(p.total, p.weights + p.kv + p.compute + p.scratch);
    assert_int_equal(p.ctx, 100);
    assert_int_equal(p.batch, 64);

    /* An output matrix of its own: the embedding counts one row only. */
    p = plan_of(untied, "kv=f16,batch=64", 100, 1);
    assert_int_equal(p.weights, 4 * (2 * embd + 5 * layer + norms));
    assert_int_equal(p.decode_read_bytes, 4 * (embd + 64 + 5 * layer + norms));

    /* A recipe: 34 bytes per 32 weights, but rows of 172 fall back to f16. */
    p = plan_of(path, "q8_0", 100, 1);
    const int64_t fit = embd + 5 * (64 * 64 * 2 + 64 * 32 * 2 + 2 * 64 * 172), fallen = 5 * 64 * 172;
    assert_int_equal(p.weights, fit * 34 / 32 + fallen * 2 + norms * 4);

    /* Copied weights begin on cache lines: 40 matrices here, all of whole lines but the ones of 172 columns.
     */
    const struct memory_plan copied = plan_of(path, "q8_0,hugepages=all", 100, 1);
    CHECK_LE(p.weights, copied.weights);
    CHECK_LT(copied.weights, p.weights + 40 * 64);

    /* Sequences multiply the cache and nothing else but their row of logits. */
    const struct memory_plan one = plan_of(path, "kv=f32", 64, 1), three = plan_of(path, "kv=f32", 64, 3);
    CHECK_LE(3 * one.kv - 5 * 3 * 128, three.kv);
    CHECK_LE(three.kv, 3 * one.kv);
    assert_int_equal(three.compute - one.compute, 2 * 512 * 4);
    assert_int_equal(three.weights, one.weights);
}

/* Whatever weights are in and however their inputs are treated: the scratch that is planned is taken. */
static void test_loader_agrees(void **state)
{
    (void)state;
    static const char *const LINES[] = { "",
                                         "f16",
                                         "q8_0",
                                         "q4_K",
                                         "q4_0",
                                         "q8_0,precision=highest",
                                         "int8",
                                         "int8,act=int8_token",
                                         "fp8",
                                         "int8_dynamic",
                                         "gptq",
                                         "q4_0,tensors=ffn_down:q8_0",
                                         "q8_0,ctk=f32",
                                         "attention=plain,batch=32",
                                         "q4_0,attention=plain,kv_cache=contiguous",
                                         "kv_cache=contiguous,kv=bf16",
                                         "kv_cache=off,batch=32" };
    char path[4096], line[128];
    SHARED_OR_SKIP(path, "models/repacked/tinystories-656k-f32.gguf");
    for (size_t i = 0; i < COUNT_OF(LINES); i++) {
        struct backend_info info;
        snprintf(line, sizeof line, "%s%sthreads=2", LINES[i], *LINES[i] ? "," : "");
        const struct memory_plan p = plan_of(path, line, 200, 2);
        struct model *m = session_open(path, line, 200, 2);
        const struct memory_plan *q = model_plan(m);
        model_backend(m, &info);
        if (info.scratch_bytes != p.scratch)
            fail_msg("%s: %lld bytes of scratch planned, %lld taken", line, (long long)p.scratch,
                     (long long)info.scratch_bytes);
        assert_int_equal(p.total, q->total);
        assert_int_equal(p.kv, q->kv);
        assert_int_equal(p.decode_read_bytes, q->decode_read_bytes);
        model_close(m);
    }
}

static void test_message(void **state)
{
    (void)state;
    struct err why = { 0 };
    const struct memory_plan p = { .total = 3LL << 30,
                                   .host = 3LL << 30,
                                   .weights = 2LL << 30,
                                   .kv = 1LL << 30,
                                   .ctx = 4096,
                                   .sequences = 1 };
    assert_int_equal(memory_plan_check(&p, "cpu", 4LL << 30, &why), ERR_OK);
    assert_int_equal(memory_plan_check(&p, "cpu", -1, &why), ERR_OK); /* unknown is no reason to refuse */
    assert_int_equal(memory_plan_check(&p, "cpu", 1LL << 30, &why), ERR_FIT);
    assert_non_null(strstr(why.message, "3.00G"));
    assert_non_null(strstr(why.message, "1.00G are available"));
    assert_non_null(strstr(why.message, "oversize=on"));
    struct memory_plan streamed = p; /* of 2 GiB of weights, 1.5 may stay on disk */
    streamed.on_disk = 3LL << 29;
    assert_int_equal(memory_plan_check(&streamed, "cpu", 3LL << 29, &why), ERR_OK);
    assert_int_equal(memory_plan_check(&streamed, "cpu", 1LL << 30, &why), ERR_FIT);
    assert_non_null(strstr(why.message, "needs 1.50G"));
    assert_null(strstr(why.message, "oversize=on")); /* it is on already */
}

/* ---------------------------------------------------------------- recorded machines */

static void put_file(const char *root, const char *name, const char *text)
{
    struct err why = { 0 };
    char path[512], *slash;
    snprintf(path, sizeof path, "%s/%s", root, name);
    slash = strrchr(path, '/');
    *slash = '\0';
    CHECK_OK(file_make_dirs(path, &why));
    *slash = '/';
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_available(void **state)
{
    (void)state;
    char root[] = "/tmp/qdyno-test-plan-XXXXXX", command[128];
    assert_non_null(mkdtemp(root));
    assert_int_equal(memory_available(root), -1);

    put_file(root, "proc/meminfo",
             "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:    8000000 kB\n");
    assert_int_equal(memory_available(root), 8000000LL * 1024);

    /* Version 2: the limit is one level up, part of what the group uses is file cache. */
    put_file(root, "proc/self/cgroup", "0::/box/app\n");
    put_file(root, "sys/fs/cgroup/box/memory.max", "1000000000\n");
    put_file(root, "sys/fs/cgroup/box/memory.current", "700000000\n");
    put_file(root, "sys/fs/cgroup/box/memory.stat",
             "anon 400000000\ninactive_file 250000000\nactive_file 50000000\n");
    put_file(root, "sys/fs/cgroup/box/app/memory.max", "max\n");
    put_file(root, "sys/fs/cgroup/box/app/memory.current", "600000000\n");
    assert_int_equal(memory_available(root), 600000000);

    /* A tighter one below wins; used beyond the limit leaves nothing. */
    put_file(root, "sys/fs/cgroup/box/app/memory.max", "650000000\n");
    assert_int_equal(memory_available(root), 50000000);
    put_file(root, "sys/fs/cgroup/box/app/memory.max", "500000000\n");
    assert_int_equal(memory_available(root), 0);

    /* Version 1, whose "no limit" is a number near 2^63. */
    put_file(root, "proc/self/cgroup", "5:cpu:/x\n3:memory:/job\n");
    put_file(root, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
    put_file(root, "sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1\n");
    assert_int_equal(memory_available(root), 8000000LL * 1024);
    put_file(root, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "3001\n");
    assert_int_equal(memory_available(root), 3000);
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    assert_int_equal(system(command), 0);
    CHECK_LT(0, memory_available("")); /* this machine */
}

/* ---------------------------------------------------------------- block tables */

static void check_owned_once(const struct kv_cache *kv)
{
    char owners[64] = { 0 };
    int held = 0;
    for (int i = 0; i < kv->free_count; i++) owners[kv->free_list[i]]++;
    for (int s = 0; s < kv->sequences; s++)
        for (int b = 0; b < kv->blocks_per_sequence; b++)
            if (kv->tables[s][b] >= 0) {
                owners[kv->tables[s][b]]++;
                held++;
            }
    for (int b = 0; b < kv->blocks; b++) assert_int_equal(owners[b], 1);
    assert_int_equal(held + kv->free_count, kv->blocks);
}

static void test_blocks(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct kv_cache kv;
    CHECK_OK(kv_cache_init(&kv, 320, 3, 12, &why)); /* 12 blocks for what could be 30 */
    uint32_t random = 1;
    for (int step = 0; step < 2000; step++) {
        random = random * 1664525u + 1013904223u;
        const int seq = (int)(random >> 20) % 3, to = (int)(random >> 8) % 321;
        const int free_before = kv.free_count, length = kv.lengths[seq];
        if (to < length) {
            kv_cache_truncate(&kv, seq, to);
        } else if (kv_cache_grow(&kv, seq, to)) {
            kv.lengths[seq] = to;
            for (int pos = 0; pos < to; pos++)
                assert_int_equal(kv_slot(&kv, seq, pos), kv.tables[seq][pos / 32] * 32 + pos % 32);
        } else {
            assert_int_equal(kv.free_count, free_before);
            CHECK_LT(free_before, kv_blocks_for(to) - kv_blocks_for(length));
        }
        check_owned_once(&kv);
        for (int s = 0; s < 3; s++) /* exactly the blocks its tokens need */
            for (int b = 0; b < kv.blocks_per_sequence; b++)
                CHECK_EQ(kv.tables[s][b] >= 0, b < kv_blocks_for(kv.lengths[s]));
    }
    /* Room taken but never used goes back. */
    for (int s = 0; s < 3; s++) kv_cache_truncate(&kv, s, 0);
    CHECK(kv_cache_grow(&kv, 1, 100));
    kv_cache_truncate(&kv, 1, 0);
    assert_int_equal(kv.free_count, 12);
    kv_cache_done(&kv);
    kv_cache_done(&kv);
}

/* Without tables, a sequence has its whole context from the start. */
static void test_whole(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct kv_cache kv;
    for (int off = 0; off < 2; off++) {
        CHECK_OK(kv_cache_init_whole(&kv, off ? CACHE_OFF : CACHE_CONTIGUOUS, 100, 3, &why));
        CHECK_EQ(kv.tables == NULL, !off);
        for (int s = 0; s < 3; s++) {
            CHECK(kv_cache_grow(&kv, s, 100));
            CHECK(!kv_cache_grow(&kv, s, 101));
            kv.lengths[s] = 100;
            for (int pos = 0; pos < 100; pos++)
                assert_int_equal(kv_slot(&kv, s, pos), (off ? 0 : s * 128) + pos); /* 100 rounded up */
            if (off) assert_int_equal(kv.tables[s][0], 0);
        }
        kv_cache_truncate(&kv, 1, 40);
        assert_int_equal(kv.lengths[1], 40);
        assert_int_equal(kv.lengths[2], 100);
        kv_cache_done(&kv);
    }
}

/* The scores of plain attention: [heads][rows][context], the last rounded up to tiles of 64, and one more. */
static void test_scores(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, "models/repacked/tinystories-656k-f32.gguf");
    struct model *m = session_open(path, "batch=128", 256, 1);
    const int heads = model_shape(m)->heads;
    model_close(m);
    const struct memory_plan small = plan_of(path, "attention=plain,batch=128", 512, 1),
                             flash = plan_of(path, "batch=128", 512, 1),
                             large = plan_of(path, "attention=plain,batch=128", 1024, 1);
    assert_int_equal(large.scratch - small.scratch, (int64_t)heads * 128 * 512 * 4);
    CHECK_LT(flash.scratch, small.scratch);
    assert_int_equal(flash.total - flash.scratch, small.total - small.scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_longest_context), cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_loader_agrees),   cmocka_unit_test(test_message),
        cmocka_unit_test(test_available),       cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_whole),           cmocka_unit_test(test_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
