/* Proves: a recipe decides as documented (kept tensors, rules, fall-back). Quantized files equal
 * llama-quantize's byte for byte, for any number of threads, can be loaded, and keep their metadata. The
 * cache makes a recipe once, removes the least recently used file, and never contains half a file. */
#include "engine/quant/quant.h"

#include <ctype.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/engine/session.h"

#define BASE    "arch-golden/llama-gqa-256.gguf"
#define STORIES "models/repacked/stories260K-f32.gguf"

static struct config config_of(const char *line)
{
    struct err why = { 0 };
    struct config c;
    CHECK_OK(config_parse(&c, line, &why));
    return c;
}

static struct gguf *open_file(const char *path)
{
    struct err why = { 0 };
    struct gguf *g;
    CHECK_OK(gguf_open(&g, path, &why));
    return g;
}

/* A folder for one test, with XDG_CACHE_HOME in it. */
static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/qdyno-test-quant-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    unsetenv("QDYNO_CACHE_LIMIT");
    return setenv("XDG_CACHE_HOME", folder, 1);
}

static int remove_folder(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static const char *recipe_name(const char *line, const char *tensor, enum format_id own, int dims,
                               int64_t cols, bool *fell_back)
{
    const struct config c = config_of(line);
    const struct gguf_tensor t = {
        .name = tensor, .format = &FORMATS[own], .dims = dims, .shape = { cols, 64, 1, 1 }
    };
    return recipe_tensor_format(&c, NULL, &t, fell_back)->name;
}

static void test_recipe(void **state)
{
    (void)state;
    static const struct {
        const char *line, *tensor;
        enum format_id own;
        int dims;
        int64_t cols;
        const char *want;
        bool fell_back;
    } CASES[] = {
        { "default", "blk.0.attn_q.weight", FORMAT_F32, 2, 64, "f32", false },
        { "q8_0", "blk.0.attn_q.weight", FORMAT_F32, 2, 64, "q8_0", false },
        { "q8_0", "token_embd.weight", FORMAT_F32, 2, 64, "q8_0", false },
        { "q8_0", "blk.0.attn_norm.weight", FORMAT_F32, 1, 64, "f32", false },
        { "q8_0", "blk.0.attn_q.bias", FORMAT_F32, 1, 64, "f32", false },
        { "q8_0", "position_embd.weight", FORMAT_F32, 2, 64, "f32", false },
        { "q8_0", "blk.0.ffn_down.weight", FORMAT_F32, 2, 172, "f16", true },
        { "q8_0", "blk.0.ffn_down.weight", FORMAT_BF16, 2, 172, "bf16", true },
        { "f16", "blk.0.ffn_down.weight", FORMAT_F32, 2, 172, "f16", false },
        { "q4_0,tensors=attn_v:q8_0;ffn_*:f16", "blk.3.attn_v.weight", FORMAT_F32, 2, 64, "q8_0", false },
        { "q4_0,tensors=attn_v:q8_0;ffn_*:f16", "blk.3.ffn_down.weight", FORMAT_F32, 2, 64, "f16", false },
        { "q4_0,tensors=attn_v:q8_0;ffn_*:f16", "blk.3.attn_k.weight", FORMAT_F32, 2, 64, "q4_0", false },
        { "tensors=attn_v:q8_0", "blk.3.attn_v.weight", FORMAT_F32, 2, 64, "q8_0", false },
        { "tensors=attn_v:q8_0", "blk.3.attn_k.weight", FORMAT_F32, 2, 64, "f32", false },
        { "q4_0,tensors=blk.1.*:q8_0", "blk.1.attn_k.weight", FORMAT_F32, 2, 64, "q8_0", false },
        { "q4_0,tensors=blk.1.*:q8_0", "blk.11.attn_k.weight", FORMAT_F32, 2, 64, "q4_0", false },
        { "q4_0,tensors=attn_v@0-3+7:q8_0", "blk.3.attn_v.weight", FORMAT_F32, 2, 64, "q8_0", false },
        { "q4_0,tensors=attn_v@0-3+7:q8_0", "blk.7.attn_v.weight", FORMAT_F32, 2, 64, "q8_0", false },
        { "q4_0,tensors=attn_v@0-3+7:q8_0", "blk.4.attn_v.weight", FORMAT_F32, 2, 64, "q4_0", false },
        { "q4_0,tensors=attn_v@0-3+7:q8_0", "blk.7.attn_k.weight", FORMAT_F32, 2, 64, "q4_0", false },
        { "q4_0,tensors=*@0:q8_0", "blk.0.attn_k.weight", FORMAT_F32, 2, 64, "q8_0", false },
        { "q4_0,tensors=*@0:q8_0", "blk.10.attn_k.weight", FORMAT_F32, 2, 64, "q4_0", false },
        { "q4_0,tensors=*@0:q8_0", "token_embd.weight", FORMAT_F32, 2, 64, "q4_0", false },
        { "q4_0,tensors=output:f16", "blk.1.attn_output.weight", FORMAT_F32, 2, 64, "q4_0", false },
        { "q4_0,tensors=output:f16", "output.weight", FORMAT_F32, 2, 64, "f16", false },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        bool fell_back;
        const char *got = recipe_name(CASES[i].line, CASES[i].tensor, CASES[i].own, CASES[i].dims,
                                      CASES[i].cols, &fell_back);
        if (strcmp(got, CASES[i].want) || fell_back != CASES[i].fell_back)
            fail_msg("%s on %s: %s, want %s", CASES[i].line, CASES[i].tensor, got, CASES[i].want);
    }
    assert_non_null(method_find("RTN"));
    assert_null(method_find("magic"));
    for (size_t i = 0; i < method_count(); i++) CHECK(method_at(i)->rows || method_at(i)->tensor);
}

static enum err_code quantize(const char *from, const char *to, const char *line, int threads,
                              struct err *why)
{
    struct gguf *g = open_file(from);
    const struct config c = config_of(line);
    const struct quantize_options o = { .config = &c, .threads = threads };
    const enum err_code rc = quantize_file(to, g, &o, why);
    gguf_close(g);
    return rc;
}

/* Every tensor of our file has the bytes that llama-quantize wrote. */
static void compare_files(const char *made, const char *golden, const char *recipe)
{
    struct gguf *got = open_file(made), *want = open_file(golden);
    assert_int_equal(gguf_tensor_count(got), gguf_tensor_count(want));
    for (int64_t t = 0; t < gguf_tensor_count(want); t++) {
        const struct gguf_tensor *w = gguf_tensor_at(want, t), *g = gguf_tensor_find(got, w->name);
        assert_non_null(g);
        if (g->format != w->format) fail_msg("%s: %s, want %s", w->name, g->format->name, w->format->name);
        assert_int_equal(g->bytes, w->bytes);
        if (memcmp(g->data, w->data, (size_t)w->bytes)) fail_msg("%s in %s: bytes differ", w->name, recipe);
    }
    if (gguf_get_int(got, "general.file_type", -1) != gguf_get_int(want, "general.file_type", -2))
        fail_msg("%s: general.file_type %d, want %d", recipe, (int)gguf_get_int(got, "general.file_type", -1),
                 (int)gguf_get_int(want, "general.file_type", -2));
    CHECK(gguf_string_is(gguf_get_string(got, "qdyno.recipe"), recipe));
    CHECK(gguf_kv_find(got, "tokenizer.ggml.tokens"));
    gguf_close(got);
    gguf_close(want);
}

/* All formats that have an encoder and golden files, with one thread and with three. */
static void test_like_the_field(void **state)
{
    (void)state;
    struct err why = { 0 };
    char source[4096], golden[4096], out[128];
    int compared = 0;
    SHARED_OR_SKIP(source, BASE);
    snprintf(out, sizeof out, "%s/out.gguf", folder);
    for (int i = 0; i < FORMAT_COUNT; i++) {
        char upper[16];
        snprintf(upper, sizeof upper, "%s", FORMATS[i].name);
        for (char *c = upper; *c; c++) *c = (char)toupper((unsigned char)*c);
        data_path(golden, sizeof golden, "arch-golden/llama-gqa-256-%s.gguf", upper);
        if (!FORMATS[i].encode || access(golden, R_OK)) continue;
        for (int threads = 1; threads <= 3; threads += 2) {
            CHECK_OK(quantize(source, out, FORMATS[i].name, threads, &why));
            compare_files(out, golden, FORMATS[i].name);
        }
        compared++;
    }
    assert_in_range(compared, 4, FORMAT_COUNT); /* at least q8_0 q4_0 f16 bf16 */
}

/* Formats that only this program has: every matrix equals the format encoder's output for any number of
 * threads, and the file lists these formats. Quantizing such a file again is rejected, copying is allowed. */
static void test_own_formats(void **state)
{
    (void)state;
    struct err why = { 0 };
    char source[4096], out[128], again[128], list[64];
    SHARED_OR_SKIP(source, BASE);
    snprintf(out, sizeof out, "%s/out.gguf", folder);
    snprintf(again, sizeof again, "%s/again.gguf", folder);
    struct gguf *from = open_file(source);
    for (int i = 0; i < FORMAT_COUNT; i++) {
        const struct format *f = &FORMATS[i];
        if (f->ggml_type < FORMAT_OWN_TYPES) continue;
        for (int threads = 1; threads <= 3; threads += 2) {
            int made = 0;
            CHECK_OK(quantize(source, out, f->name, threads, &why));
            struct gguf *to = open_file(out);
            snprintf(list, sizeof list, "%s=%u", f->name, f->ggml_type);
            CHECK(gguf_string_is(gguf_get_string(to, "qdyno.formats"), list));
            for (int64_t t = 0; t < gguf_tensor_count(from); t++) {
                const struct gguf_tensor *x = gguf_tensor_at(from, t), *q = gguf_tensor_find(to, x->name);
                if (q->format != f) continue;
                uint8_t *want = malloc((size_t)q->bytes);
                format_encode_rows(f, (const float *)(const void *)x->data, want, x->shape[1], x->shape[0]);
                CHECK_EQ(q->bytes, format_row_bytes(f, x->shape[0]) * x->shape[1]);
                if (memcmp(want, q->data, (size_t)q->bytes)) fail_msg("%s: %s", f->name, x->name);
                free(want);
                made++;
            }
            CHECK_LE(8, made);
            gguf_close(to);
        }
        assert_int_equal(quantize(out, again, "q8_0", 1, &why), ERR_USAGE);
        CHECK_CONTAINS(why.message, f->name);
        CHECK_OK(quantize(out, again, "default", 1, &why)); /* copied, with its formats listed again */
        struct gguf *copy = open_file(again);
        CHECK(gguf_string_is(gguf_get_string(copy, "qdyno.formats"), list));
        gguf_close(copy);
    }
    gguf_close(from);
}

static void test_refusals(void **state)
{
    (void)state;
    struct err why = { 0 };
    char q8[4096], f32[4096], out[128], damaged[128];
    SHARED_OR_SKIP(q8, "arch-golden/llama-gqa-256-Q8_0.gguf");
    SHARED_OR_SKIP(f32, STORIES);
    snprintf(out, sizeof out, "%s/out.gguf", folder);
    assert_int_equal(quantize(q8, out, "q4_0", 1, &why), ERR_USAGE);
    assert_non_null(strstr(why.message, "already quantized (q8_0)"));
    CHECK_OK(quantize(q8, out, "q8_0", 1, &why)); /* the same format: a copy is allowed */
    unlink(out);

    /* One NaN in the second layer. */
    struct gguf *g = open_file(f32);
    const struct gguf_tensor *t = gguf_tensor_find(g, "blk.1.ffn_up.weight");
    struct file_map all;
    CHECK_OK(file_map(&all, f32, &why));
    unsigned char *copy = malloc(all.size);
    memcpy(copy, all.data, all.size);
    const float nan = NAN;
    const unsigned char *found = memmem(all.data, all.size, t->data, 64);
    assert_non_null(found);
    memcpy(copy + (found - all.data) + 4 * 1234, &nan, sizeof nan);
    snprintf(damaged, sizeof damaged, "%s/damaged.gguf", folder);
    FILE *f = fopen(damaged, "wb");
    assert_int_equal(fwrite(copy, 1, all.size, f), all.size);
    fclose(f);
    free(copy);
    file_unmap(&all);
    gguf_close(g);
    assert_int_equal(quantize(damaged, out, "q8_0", 3, &why), ERR_FORMAT);
    assert_non_null(strstr(why.message, "'blk.1.ffn_up.weight': value 1234"));
    CHECK(access(out, F_OK)); /* no file was written */
    assert_int_equal(quantize(f32, "/does/not/exist/out.gguf", "q8_0", 1, &why), ERR_IO);
}

/* Write shard `no` of two: metadata in the first, tensors alternating between both. */
static void write_shard(const struct gguf *g, int no)
{
    struct err why = { 0 };
    struct gguf_writer *w;
    char path[128];
    snprintf(path, sizeof path, "%s/m-0000%d-of-00002.gguf", folder, no + 1);
    CHECK_OK(gguf_writer_open(&w, path, &why));
    for (int64_t i = 0; i < gguf_kv_count(g) && no == 0; i++)
        if (!gguf_string_is(gguf_kv_at(g, i)->key, "general.alignment"))
            assert_int_equal(gguf_writer_copy_kv(w, gguf_kv_at(g, i)), ERR_OK);
    assert_int_equal(gguf_writer_put_u32(w, "split.no", (uint32_t)no), ERR_OK);
    assert_int_equal(gguf_writer_put_u32(w, "split.count", 2), ERR_OK);
    assert_int_equal(gguf_writer_put_u32(w, "split.tensors.count", (uint32_t)gguf_tensor_count(g)), ERR_OK);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = no; i < gguf_tensor_count(g); i += 2) {
            const struct gguf_tensor *t = gguf_tensor_at(g, i);
            if (pass == 0)
                assert_int_equal(gguf_writer_add_tensor(w, t->name, t->format, t->dims, t->shape), ERR_OK);
            if (pass == 1) CHECK_OK(gguf_writer_write(w, t->data, t->bytes, &why));
        }
    CHECK_OK(gguf_writer_commit(w, &why));
}

/* A source in shards gives one file with the same bytes, without shard metadata. */
static void test_shards(void **state)
{
    (void)state;
    struct err why = { 0 };
    char f32[4096], shard[128], whole[128], joined[128];
    SHARED_OR_SKIP(f32, STORIES);
    struct gguf *g = open_file(f32);
    write_shard(g, 0);
    write_shard(g, 1);
    gguf_close(g);
    snprintf(shard, sizeof shard, "%s/m-00001-of-00002.gguf", folder);
    snprintf(whole, sizeof whole, "%s/whole.gguf", folder);
    snprintf(joined, sizeof joined, "%s/joined.gguf", folder);
    CHECK_OK(quantize(shard, joined, "q8_0", 1, &why));
    CHECK_OK(quantize(f32, whole, "q8_0", 1, &why));
    struct gguf *a = open_file(joined), *b = open_file(whole);
    CHECK(!gguf_kv_find(a, "split.count"));
    assert_int_equal(gguf_shards(a), 1);
    assert_int_equal(gguf_tensor_count(a), gguf_tensor_count(b));
    for (int64_t i = 0; i < gguf_tensor_count(b); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(b, i), *u = gguf_tensor_find(a, t->name);
        assert_non_null(u);
        assert_int_equal(u->bytes, t->bytes);
        assert_memory_equal(u->data, t->data, (size_t)t->bytes);
    }
    gguf_close(a);
    gguf_close(b);
    struct model *m = session_open(shard, EXACT ",q4_0", 64,
                                   1); /* shards can also be the source of a session */
    assert_string_equal(model_shape(m)->dominant_format, "q4_0");
    model_close(m);
}

static bool stop_at_once(void *ctx, double done)
{
    *(int *)ctx += 1;
    CHECK_LT(0, done);
    CHECK_LE(done, 1);
    return false;
}

static void test_cancel(void **state)
{
    (void)state;
    struct err why = { 0 };
    char f32[4096], out[128];
    int calls = 0;
    SHARED_OR_SKIP(f32, STORIES);
    snprintf(out, sizeof out, "%s/out.gguf", folder);
    struct gguf *g = open_file(f32);
    const struct config c = config_of("q8_0");
    const struct quantize_options o = { .config = &c, .threads = 1, .progress = stop_at_once, .ctx = &calls };
    assert_int_equal(quantize_file(out, g, &o, &why), ERR_CANCELLED);
    assert_int_equal(calls, 1);
    CHECK(access(out, F_OK));
    gguf_close(g);
}

static char *cached(struct gguf *g, const char *line)
{
    struct err why = { 0 };
    const struct config c = config_of(line);
    const struct quantize_options o = { .config = &c, .threads = 1 };
    char *path;
    CHECK_OK(recipe_cached(&path, g, &o, &why));
    return path;
}

/* The file of a copy's checksum; its modification time says when the copy was last used. */
static const char *sum_of(const char *copy)
{
    static char path[4200];
    const char *name = strrchr(copy, '/');
    snprintf(path, sizeof path, "%.*s/sums%s.sha256", (int)(name - copy), copy, name);
    return path;
}

static void set_age(const char *path, int seconds)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    struct timespec times[2] = { st.st_atim, st.st_mtim };
    times[0].tv_sec -= seconds;
    times[1].tv_sec -= seconds;
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static void test_cache(void **state)
{
    (void)state;
    char f32[4096], limit[32];
    struct stat first, again;
    SHARED_OR_SKIP(f32, STORIES);
    struct gguf *g = open_file(f32);
    char *q8 = cached(g, "q8_0"), *q4 = cached(g, "q4_0"), *f16 = cached(g, "f16");
    CHECK_STR_NE(q8, q4);
    CHECK_STR_NE(q4, f16);
    assert_int_equal(stat(q8, &first), 0);
    set_age(sum_of(q8), 300);
    set_age(sum_of(q4), 200);
    set_age(sum_of(f16), 100);
    char *same = cached(g, "q8_0,threads=2,kv=f32"); /* run-time settings do not belong to the recipe */
    assert_string_equal(same, q8);
    assert_int_equal(stat(q8, &again), 0);
    assert_int_equal(first.st_ino, again.st_ino);         /* the cached file */
    CHECK_EQ(first.st_ctim.tv_sec, again.st_ctim.tv_sec); /* and it does not look changed */
    CHECK_EQ(first.st_ctim.tv_nsec, again.st_ctim.tv_nsec);

    /* The limit allows three files; of q4_0, f16 and q8_0 the first is the least recently used. */
    assert_int_equal(stat(f16, &first), 0);
    snprintf(limit, sizeof limit, "%lld", (long long)(again.st_size + 2 * first.st_size + 100000));
    setenv("QDYNO_CACHE_LIMIT", limit, 1);
    char *bf16 = cached(g, "bf16");
    CHECK(!access(bf16, R_OK));
    CHECK(!access(f16, R_OK));
    CHECK(!access(q8, R_OK));
    CHECK(access(q4, F_OK));

    /* A limit smaller than one file still returns the file. */
    setenv("QDYNO_CACHE_LIMIT", "1k", 1);
    char *back = cached(g, "q4_0");
    assert_string_equal(back, q4);
    CHECK(!access(q4, R_OK));
    CHECK(access(bf16, F_OK));
    CHECK(access(f16, F_OK));
    CHECK(access(q8, F_OK));
    struct gguf *result = open_file(q4);
    const struct config c = config_of("q4_0");
    CHECK(recipe_is_identity(&c, result));
    CHECK(!recipe_is_identity(&c, g));
    gguf_close(result);
    gguf_close(g);
    char *const ALL[] = { q8, q4, f16, same, bf16, back };
    for (size_t i = 0; i < COUNT_OF(ALL); i++) free(ALL[i]);
}

static void flip(const char *path, int64_t at)
{
    unsigned char byte;
    const int fd = open(path, O_RDWR);
    CHECK_GE(fd, 0);
    CHECK_EQ(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    CHECK_EQ(pwrite(fd, &byte, 1, at), 1);
    CHECK(!close(fd));
}

/* However a copy or its checksum was damaged, the next use gets an intact one. Names the bug: a copy with a
 * flipped bit ran under the name of its recipe, and a truncated one was never made again. */
static void test_cache_damage(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct stat st;
    char f32[4096], want[HASH_HEX], got[HASH_HEX];
    SHARED_OR_SKIP(f32, STORIES);
    struct gguf *g = open_file(f32);
    char *path = cached(g, "q8_0");
    CHECK_OK(hash_file(path, want, &why));
    assert_int_equal(stat(path, &st), 0);
    const int64_t size = st.st_size, flips[] = { 0, 5, 9, 100, 3000, size / 2, size - 700, size - 1 },
                  sizes[] = { 0, 1, 23, 1000, size / 2, size - 1 };
    for (size_t i = 0; i < COUNT_OF(flips) + COUNT_OF(sizes) + 2; i++) {
        if (i < COUNT_OF(flips))
            flip(path, flips[i]);
        else if (i < COUNT_OF(flips) + COUNT_OF(sizes))
            CHECK(!truncate(path, sizes[i - COUNT_OF(flips)]));
        else if (i == COUNT_OF(flips) + COUNT_OF(sizes))
            flip(sum_of(path), 0);
        else
            CHECK(!unlink(sum_of(path)));
        char *again = cached(g, "q8_0");
        assert_string_equal(again, path);
        CHECK_OK(hash_file(path, got, &why));
        if (strcmp(got, want)) fail_msg("damage %zu: the copy is not the intact one", i);
        free(again);
    }

    /* What cannot be made again is refused. */
    const struct config c = config_of("q8_0");
    const struct quantize_options o = { .config = &c, .threads = 1 };
    char *none;
    CHECK(!unlink(path));
    CHECK(!mkdir(path, 0700));
    assert_int_equal(recipe_cached(&none, g, &o, &why), ERR_FORMAT);
    CHECK(strstr(why.message, "cannot be made again"));
    CHECK(!none);
    gguf_close(g);
    free(path);
}

/* The next writer removes files of a killed writer, but never the lock file, because a process may be waiting
 * on it. */
static void test_cache_after_a_kill(void **state)
{
    (void)state;
    char f32[4096], left[4200], lock[4200];
    SHARED_OR_SKIP(f32, STORIES);
    struct gguf *g = open_file(f32);
    char *q8 = cached(g, "q8_0");
    snprintf(left, sizeof left, "%s.tmp.a1b2c3", q8);
    snprintf(lock, sizeof lock, "%.*s/lock", (int)(strrchr(q8, '/') - q8), q8);
    FILE *f = fopen(left, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    set_age(lock, 3 * 24 * 3600);
    char *q5 = cached(g, "q5_0"); /* quantized now, in the same folder */
    CHECK(access(left, F_OK));
    CHECK(!access(lock, F_OK));
    CHECK(!access(q8, R_OK));
    CHECK(!access(q5, R_OK));
    gguf_close(g);
    free(q8);
    free(q5);
}

/* A process that makes a copy, and waits in the middle of it until `go` is closed. */
static bool wait_for_parent(void *ctx, double done)
{
    const int *pipes = ctx; /* tell, go */
    char byte = 0;
    (void)done;
    return write(pipes[0], "", 1) == 1 && read(pipes[1], &byte, 1) == 0;
}

static pid_t start_maker(struct gguf *g, const char *line, int *go)
{
    int told[2], gone[2];
    char byte;
    assert_int_equal(pipe2(told, O_CLOEXEC) | pipe2(gone, O_CLOEXEC), 0);
    const pid_t pid = fork();
    CHECK_GE(pid, 0);
    if (!pid) {
        int pipes[] = { told[1], gone[0] };
        const struct config c = config_of(line);
        const struct quantize_options o = {
            .config = &c, .threads = 1, .progress = wait_for_parent, .ctx = pipes
        };
        char *path;
        close(gone[1]);
        _exit(recipe_cached(&path, g, &o, NULL) != ERR_OK);
    }
    close(told[1]);
    close(gone[0]);
    CHECK_EQ(read(told[0], &byte, 1), 1);
    close(told[0]);
    *go = gone[1];
    return pid;
}

struct wait {
    int calls, go; /* go >= 0: let the other process go on at the third call; < 0: cancel then */
};

static bool wait_three_times(void *ctx)
{
    struct wait *w = ctx;
    if (++w->calls == 3 && w->go >= 0) close(w->go);
    return w->calls < 3 || w->go >= 0;
}

/* Names the bug: a worker waited for the lock of the whole cache in the kernel, without an event and without
 * CPU time, and was killed as hung; commands did not react to SIGTERM there. */
static void test_cache_wait(void **state)
{
    (void)state;
    struct err why = { 0 };
    char f32[4096], left[4200], *path;
    int go, status;
    SHARED_OR_SKIP(f32, STORIES);
    struct gguf *g = open_file(f32);
    char *first = cached(g, "q4_1");
    const pid_t maker = start_maker(g, "q8_0", &go);

    /* another recipe goes on, and removes the leftover of a killed writer but not the file being written */
    snprintf(left, sizeof left, "%s.tmp.a1b2c3", first);
    FILE *f = fopen(left, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    free(cached(g, "q5_0"));
    CHECK(access(left, F_OK));

    const struct config c = config_of("q8_0");
    struct wait w = { .go = -1 };
    struct quantize_options o = { .config = &c, .threads = 1, .waiting = wait_three_times, .ctx = &w };
    assert_int_equal(recipe_cached(&path, g, &o, &why), ERR_CANCELLED);
    CHECK_EQ(w.calls, 3);
    assert_null(path);
    w = (struct wait){ .go = go };
    o.progress = stop_at_once; /* cancels if this process makes the copy itself */
    CHECK_OK(recipe_cached(&path, g, &o, &why));
    CHECK_GE(w.calls, 3);
    assert_int_equal(waitpid(maker, &status, 0), maker);
    assert_int_equal(status, 0);

    /* a process that died while it made a copy keeps nobody waiting */
    const pid_t killed = start_maker(g, "q4_0", &go);
    assert_int_equal(kill(killed, SIGKILL), 0);
    assert_int_equal(waitpid(killed, &status, 0), killed);
    close(go);
    free(cached(g, "q4_0"));
    gguf_close(g);
    free(path);
    free(first);
}

/* A folder without write access gives an error message. */
static void test_cache_refused(void **state)
{
    (void)state;
    struct err why = { 0 };
    char f32[4096], *path;
    SHARED_OR_SKIP(f32, STORIES);
    setenv("XDG_CACHE_HOME", "/proc/self/nowhere", 1);
    struct gguf *g = open_file(f32);
    const struct config c = config_of("q8_0");
    const struct quantize_options o = { .config = &c, .threads = 1 };
    assert_int_equal(recipe_cached(&path, g, &o, &why), ERR_IO);
    assert_null(path);
    setenv("QDYNO_CACHE_LIMIT", "lots", 1);
    assert_int_equal(recipe_cached(&path, g, &o, &why), ERR_USAGE);
    assert_non_null(strstr(why.message, "QDYNO_CACHE_LIMIT='lots'"));
    gguf_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recipe),
        cmocka_unit_test_setup_teardown(test_like_the_field, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_own_formats, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_refusals, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_shards, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_cancel, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_cache, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_cache_damage, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_cache_after_a_kill, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_cache_wait, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_cache_refused, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
