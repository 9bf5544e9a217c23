/* Proves: tensors can be written in any order; a resuming writer finds the tensors that an aborted or killed
 * one finished, but only with an identical header; the resulting file is the same byte for byte; two writers
 * cannot write one file at the same time; the time for a file grows with its number of names, not with the
 * square. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"
#include "tests/check.h"

enum { TENSORS = 5, COLS = 96 };

static char folder[64], path[128], partial[160];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/qdyno-test-resume-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/out.gguf", folder);
    snprintf(partial, sizeof partial, "%s.partial", path);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    unlink(partial);
    return rmdir(folder);
}

static const char *tensor_name(int i)
{
    static const char *const NAMES[TENSORS] = { "a", "b", "c", "d", "e" };
    return NAMES[i];
}

/* Sizes that need padding, and one tensor larger than a stream's buffer. */
static int64_t tensor_rows(int i)
{
    return i == 2 ? 4099 : 3 + i;
}

static unsigned char *tensor_bytes(int i, int64_t *n)
{
    *n = tensor_rows(i) * format_row_bytes(&FORMATS[FORMAT_Q8_0], COLS);
    unsigned char *bytes = malloc((size_t)*n);
    for (int64_t k = 0; k < *n; k++) bytes[k] = (unsigned char)(k * 31 + i * 7);
    return bytes;
}

typedef enum err_code open_fn(struct gguf_writer **out, const char *to, struct err *why);

static struct gguf_writer *declare(open_fn *open_writer, const char *recipe)
{
    struct err why = { 0 };
    struct gguf_writer *w;
    CHECK_OK(open_writer(&w, path, &why));
    gguf_writer_put_string(w, "qdyno.recipe", recipe);
    for (int i = 0; i < TENSORS; i++) {
        const int64_t shape[] = { COLS, tensor_rows(i) };
        gguf_writer_add_tensor(w, tensor_name(i), &FORMATS[FORMAT_Q8_0], 2, shape);
    }
    return w;
}

/* A tensor in two pieces, or only the first of them. */
static void write_tensor(struct gguf_writer *w, int i, bool whole)
{
    struct err why = { 0 };
    int64_t n;
    unsigned char *bytes = tensor_bytes(i, &n);
    CHECK_OK(gguf_writer_select(w, tensor_name(i), &why));
    CHECK_OK(gguf_writer_write(w, bytes, n / 3, &why));
    if (whole) CHECK_OK(gguf_writer_write(w, bytes + n / 3, n - n / 3, &why));
    free(bytes);
}

static void hash_of(char hex[HASH_HEX])
{
    struct err why = { 0 };
    struct file_map map;
    CHECK_OK(file_map(&map, path, &why));
    hash_bytes(map.data, map.size, hex);
    file_unmap(&map);
}

/* The file written in its declared order. */
static void plain_hash(char hex[HASH_HEX])
{
    struct err why = { 0 };
    struct gguf_writer *w = declare(gguf_writer_open, "q8_0");
    for (int i = 0; i < TENSORS; i++) {
        int64_t n;
        unsigned char *bytes = tensor_bytes(i, &n);
        CHECK_OK(gguf_writer_write(w, bytes, n, &why));
        free(bytes);
    }
    CHECK_OK(gguf_writer_commit(w, &why));
    hash_of(hex);
    unlink(path);
}

static void test_any_order(void **state)
{
    (void)state;
    static const int ORDER[TENSORS] = { 3, 0, 4, 2, 1 };
    char want[HASH_HEX], got[HASH_HEX];
    struct err why = { 0 };
    plain_hash(want);
    open_fn *const OPENERS[] = { gguf_writer_open, gguf_writer_resume };
    for (size_t o = 0; o < COUNT_OF(OPENERS); o++) {
        struct gguf_writer *w = declare(OPENERS[o], "q8_0");
        for (int i = 0; i < TENSORS; i++) write_tensor(w, ORDER[i], true);
        CHECK_OK(gguf_writer_commit(w, &why));
        hash_of(got);
        assert_string_equal(got, want);
        assert_int_not_equal(access(partial, F_OK), 0);
        unlink(path);
    }
    struct gguf_writer *w = declare(gguf_writer_open, "q8_0");
    write_tensor(w, 1, true);
    assert_int_equal(gguf_writer_commit(w, &why), ERR_USAGE); /* the others are missing */
    CHECK_CONTAINS(why.message, "missing");
    w = declare(gguf_writer_open, "q8_0");
    assert_int_equal(gguf_writer_select(w, "z", &why), ERR_USAGE);
    gguf_writer_abort(w);
}

/* `how`: a writer that got to tensor 2 ends by abort, or its process dies. */
static void interrupted(bool killed)
{
    const pid_t child = killed ? fork() : 0;
    if (child == 0) {
        struct gguf_writer *w = declare(gguf_writer_resume, "q8_0");
        write_tensor(w, 4, true);
        write_tensor(w, 1, true);
        write_tensor(w, 2, false);
        if (killed) kill(getpid(), SIGKILL);
        gguf_writer_abort(w);
        return;
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status));
}

static void test_goes_on(void **state)
{
    (void)state;
    char want[HASH_HEX], got[HASH_HEX];
    struct err why = { 0 };
    plain_hash(want);
    for (int killed = 0; killed < 2; killed++) {
        interrupted(killed);
        assert_int_equal(access(partial, F_OK), 0);
        assert_int_not_equal(access(path, F_OK), 0);
        struct gguf_writer *w = declare(gguf_writer_resume, "q8_0");
        static const bool THERE[TENSORS] = { false, true, false, false, true };
        for (int i = 0; i < TENSORS; i++) {
            CHECK_EQ(gguf_writer_finished(w, tensor_name(i)), THERE[i]);
            if (!THERE[i]) write_tensor(w, i, true);
        }
        CHECK_OK(gguf_writer_commit(w, &why));
        hash_of(got);
        assert_string_equal(got, want);
        unlink(path);
    }
}

static void test_other_header(void **state)
{
    (void)state;
    interrupted(false);
    struct gguf_writer *w = declare(gguf_writer_resume, "q8_1"); /* as long as before, but another recipe */
    for (int i = 0; i < TENSORS; i++) CHECK(!gguf_writer_finished(w, tensor_name(i)));
    gguf_writer_abort(w);
    w = declare(gguf_writer_resume, "q8_0"); /* and that one began anew */
    CHECK(!gguf_writer_finished(w, "e"));
    gguf_writer_abort(w);
}

static void test_two_writers(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct gguf_writer *w = declare(gguf_writer_resume, "q8_0"), *second;
    assert_int_equal(gguf_writer_resume(&second, path, &why), ERR_IO);
    CHECK_CONTAINS(why.message, "another process");
    gguf_writer_abort(w);
}

/* CPU time of this process in seconds: it does not depend on other programs. */
static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Writing and reading must not compare each name with all others: that took more than a minute here. */
static void test_many_names(void **state)
{
    (void)state;
    enum { NAMES = 200000, MOST_S = 20 };
    struct err why = { 0 };
    struct gguf_writer *w;
    struct gguf *g;
    char name[32];
    const int64_t one[] = { 1 };
    const float value = 1;
    const double began = cpu_s();
    CHECK_OK(gguf_writer_open(&w, path, &why));
    gguf_writer_put_string(w, "general.architecture", "llama");
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "key.with.a.long.name.%d", i);
        gguf_writer_put_u32(w, name, (uint32_t)i);
        assert_int_equal(gguf_writer_add_tensor(w, name, &FORMATS[FORMAT_F32], 1, one), ERR_OK);
    }
    for (int i = NAMES - 1; i >= 0; i--) {
        snprintf(name, sizeof name, "key.with.a.long.name.%d", i);
        CHECK_OK(gguf_writer_select(w, name, &why));
        CHECK_OK(gguf_writer_write(w, &value, sizeof value, &why));
    }
    CHECK_OK(gguf_writer_commit(w, &why));
    CHECK_OK(gguf_open(&g, path, &why));
    CHECK_EQ(gguf_tensor_count(g), NAMES);
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "key.with.a.long.name.%d", i);
        CHECK_EQ(gguf_get_int(g, name, -1), i);
        CHECK_EQ(gguf_tensor_find(g, name), gguf_tensor_at(g, i));
    }
    gguf_close(g);
    CHECK_LE(cpu_s() - began, MOST_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_any_order, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_goes_on, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_other_header, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_two_writers, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_many_names, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
