/* Proves: numbers are parsed strictly and in the C locale; sizes are formatted for people; only near words
 * are suggested; invalid UTF-8 is handled; JSON keeps unknown values as null, also through tables of fields;
 * an aborted file leaves nothing and a committed one is complete; seeded numbers never change. */
#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "base/cut/cut.h"
#include "base/fields/fields.h"
#include "tests/check.h"

static void numbers(void **state)
{
    (void)state;
    int64_t i = 7;
    uint64_t u = 7;
    double d = 7;
    CHECK(str_to_i64("-12", &i));
    CHECK_EQ(i, -12);
    CHECK(!str_to_i64("12x", &i));
    CHECK(!str_to_i64("", &i));
    CHECK(!str_to_i64(" 1", &i));
    CHECK(!str_to_i64("9223372036854775808", &i));
    CHECK_EQ(i, -12);
    CHECK(str_to_u64("18446744073709551615", &u));
    CHECK_EQ(u, UINT64_MAX);
    CHECK(!str_to_u64("-1", &u));
    setlocale(LC_ALL, "de_DE.UTF-8"); /* may be missing: then this proves less, not something wrong */
    CHECK(str_to_double("0.5", &d));
    CHECK_EQ(d, 0.5);
    CHECK(!str_to_double("0,5", &d));
    char buf[32];
    assert_string_equal(str_from_double(0.1, buf, sizeof buf), "0.1");
    assert_string_equal(str_from_double(NAN, buf, sizeof buf), "null");
    double third = 1.0 / 3, back;
    CHECK(str_to_double(str_from_double(third, buf, sizeof buf), &back));
    CHECK_EQ(back, third);
    setlocale(LC_ALL, "C");
    double share = -1;
    CHECK(str_to_ratio("5%", &share) && share == 0.05);
    CHECK(str_to_ratio("0.25", &share) && share == 0.25);
    CHECK(!str_to_ratio("-1%", &share) && !str_to_ratio("inf", &share) && !str_to_ratio("%", &share));
    CHECK(!str_to_ratio("", &share) && !str_to_ratio("1%%", &share) && share == 0.25);
    CHECK(str_to_bytes("1.5GiB", &i));
    CHECK_EQ(i, 1610612736);
    CHECK(str_to_bytes("64k", &i));
    CHECK_EQ(i, 65536);
    CHECK(!str_to_bytes("64q", &i));
    CHECK(!str_to_bytes("-1k", &i));
    CHECK(str_to_seconds("250ms", &d));
    CHECK_EQ(d, 0.25);
    CHECK(str_to_seconds("5m", &d));
    CHECK_EQ(d, 300);
    CHECK(str_to_seconds("30d", &d));
    CHECK_EQ(d, 30 * 86400.0);
}

static void bytes_print(void **state)
{
    (void)state;
    static const struct {
        int64_t n;
        const char *text;
    } CASES[] = { { 0, "0B" },
                  { 999, "999B" },
                  { 1000, "0.98K" },
                  { 1 << 20, "1.00M" },
                  { 1256277934, "1.17G" },
                  { 24696061952, "23.0G" },
                  { 160LL << 30, "160G" },
                  { -1, "n/a" } };
    char buf[32];
    for (size_t i = 0; i < COUNT_OF(CASES); i++)
        assert_string_equal(str_from_bytes(CASES[i].n, buf, sizeof buf), CASES[i].text);
}

static void spelling(void **state)
{
    (void)state;
    static const char *const NAMES[] = { "threads", "format", "precision" };
    assert_string_equal(str_nearest("thraeds", NAMES, 3), "threads");
    assert_string_equal(str_nearest("FORMAT", NAMES, 3), "format");
    CHECK(!str_nearest("zebra", NAMES, 3));
    CHECK_EQ(str_distance("ab", "ba"), 1);
    CHECK_EQ(str_distance("", "abc"), 3);
    CHECK_EQ(str_distance("same", "same"), 0);
}

static void utf8(void **state)
{
    (void)state;
    uint32_t c;
    char out[4];
    CHECK_EQ(str_utf8_next("\xE2\x96\x81", 3, &c), 3);
    CHECK_EQ(c, 0x2581);
    CHECK_EQ(str_utf8_next("\xE2\x96", 2, &c), 1);
    CHECK_EQ(c, 0xFFFD); /* cut */
    CHECK_EQ(str_utf8_next("\xC0\x80", 2, &c), 1);
    CHECK_EQ(c, 0xFFFD); /* overlong */
    CHECK_EQ(str_utf8_next("\xED\xA0\x80", 3, &c), 1);
    CHECK_EQ(c, 0xFFFD); /* surrogate */
    CHECK_EQ(str_utf8_put(0x1F600, out), 4);
    CHECK(!memcmp(out, "\xF0\x9F\x98\x80", 4));
}

static void json_rules(void **state)
{
    (void)state;
    struct err why;
    json_t *o = json_object();
    json_put_num(o, "rate", NAN);
    json_put_str(o, "bad", "a\xFFz");
    json_put_int(o, "n", 3);
    char *line = json_line(o);
    assert_string_equal(line, "{\"rate\":null,\"bad\":\"a\xEF\xBF\xBDz\",\"n\":3}");
    free(line);
    CHECK_NAN(json_get_num(o, "rate", NAN));
    CHECK_EQ(json_get_int(o, "n", 0), 3);
    CHECK_EQ(json_get_int(o, "absent", 9), 9);
    json_decref(o);
    CHECK_EQ(json_parse(&o, "{\"a\":1} x", 9, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "line 1");
}

static void errors(void **state)
{
    (void)state;
    struct err why;
    CHECK_EQ(err_set(&why, ERR_FORMAT, "want %d", 3), ERR_FORMAT);
    CHECK_EQ(err_prefix(&why, "file '%s'", "x"), ERR_FORMAT);
    assert_string_equal(why.message, "file 'x': want 3");
    CHECK_EQ(err_set(NULL, ERR_IO, "nobody listens"), ERR_IO);
}

static void atomic_files(void **state)
{
    (void)state;
    struct err why;
    char dir[] = "/tmp/qdyno-test-XXXXXX", path[64], sub[80];
    CHECK_NE(mkdtemp(dir), NULL);
    snprintf(path, sizeof path, "%s/out", dir);
    struct atomic_file f;
    CHECK_OK(atomic_file_open(&f, path, &why));
    fputs("half", f.stream);
    atomic_file_abort(&f);
    CHECK_NE(access(path, F_OK), 0);
    CHECK_OK(atomic_file_open(&f, path, &why));
    fputs("whole", f.stream);
    CHECK_OK(atomic_file_commit(&f, &why));
    char *text;
    size_t n;
    CHECK_OK(file_read(&text, &n, path, 100, &why));
    CHECK_EQ(n, 5);
    CHECK_STR(text, "whole");
    free(text);
    CHECK_EQ(file_read(&text, &n, path, 4, &why), ERR_FORMAT);
    char hex[HASH_HEX];
    CHECK_OK(hash_file(path, hex, &why)); /* printf whole | sha256sum */
    assert_string_equal(hex, "5d5766cf2d78701614200418ee1450690d9af12c84d52545e4802f001ad53099");
    struct file_map map;
    CHECK_EQ(file_map(&map, dir, &why), ERR_FORMAT);
    unlink(path);
    snprintf(sub, sizeof sub, "%s/a/b", dir);
    CHECK_OK(file_make_dirs(sub, &why));
    CHECK_OK(file_make_dirs(sub, &why));
    CHECK_EQ(atomic_file_open(&f, "/proc/none/x", &why), ERR_IO);
}

static ino_t inode_of(const char *path)
{
    struct stat st;
    CHECK_EQ(lstat(path, &st), 0);
    return st.st_ino;
}

static void write_word(const char *path, const char *word)
{
    struct atomic_file f;
    struct err why;
    CHECK_OK(atomic_file_open(&f, path, &why));
    fputs(word, f.stream);
    CHECK_OK(atomic_file_commit(&f, &why));
}

static void on_alarm(int signal_number)
{
    (void)signal_number;
}

/* Calls on_alarm every 20 ms; false: no more. As in main.c, interrupted system calls continue. */
static void set_alarm(bool on)
{
    const struct sigaction act = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };
    const struct timeval pause = { .tv_usec = on ? 20000 : 0 };
    CHECK_EQ(sigaction(SIGALRM, &act, NULL), 0);
    CHECK_EQ(setitimer(ITIMER_REAL, &(struct itimerval){ pause, pause }, NULL), 0);
}

/* Bug: a program that waited for the writer or reader of a FIFO ignored SIGTERM and Ctrl-C. */
static void fifos_that_nobody_uses(void **state)
{
    (void)state;
    char dir[] = "/tmp/qdyno-test-XXXXXX", fifo[64], pipe_path[64], *text;
    struct err why = { 0 };
    struct atomic_file f;
    size_t n;
    int ends[2];
    CHECK(mkdtemp(dir) != NULL);
    snprintf(fifo, sizeof fifo, "%s/fifo", dir);
    CHECK_EQ(mkfifo(fifo, 0600), 0);
    set_alarm(true);
    CHECK_EQ(file_read(&text, &n, fifo, 100, &why), ERR_CANCELLED);
    CHECK(!text && strstr(why.message, fifo));
    const int writer = open(fifo, O_RDWR); /* a writer that writes nothing */
    CHECK_EQ(file_read(&text, &n, fifo, 100, &why), ERR_CANCELLED);
    close(writer);
    CHECK_EQ(atomic_file_open(&f, fifo, &why), ERR_CANCELLED);
    CHECK(strstr(why.message, fifo));
    set_alarm(false);

    /* a writer that comes later, and ends */
    const pid_t pid = fork();
    if (!pid) {
        usleep(50000);
        const int fd = open(fifo, O_WRONLY);
        usleep(50000);
        _exit(write(fd, "four", 4) != 4);
    }
    CHECK_OK(file_read(&text, &n, fifo, 100, &why));
    CHECK_EQ(n, 4);
    CHECK(!strcmp(text, "four"));
    free(text);
    CHECK_EQ(waitpid(pid, NULL, 0), pid);

    /* a pipe whose writer is gone already */
    CHECK_EQ(pipe(ends), 0);
    CHECK_EQ(write(ends[1], "five", 4), 4);
    close(ends[1]);
    snprintf(pipe_path, sizeof pipe_path, "/dev/fd/%d", ends[0]);
    CHECK_OK(file_read(&text, &n, pipe_path, 100, &why));
    CHECK_EQ(n, 4);
    free(text);
    close(ends[0]);
    unlink(fifo);
    rmdir(dir);
}

/* Bug: writing to /dev/null, a FIFO or a symbolic link replaced it by a regular file. */
static void files_that_are_not_replaced(void **state)
{
    (void)state;
    char dir[] = "/tmp/qdyno-test-XXXXXX", file[64], link[64], chain[64], fifo[64], dangling[64],
         text[8] = "";
    struct stat st;
    CHECK_NE(mkdtemp(dir), NULL);
    snprintf(file, sizeof file, "%s/file", dir);
    snprintf(link, sizeof link, "%s/link", dir);
    snprintf(chain, sizeof chain, "%s/chain", dir);
    snprintf(fifo, sizeof fifo, "%s/fifo", dir);
    snprintf(dangling, sizeof dangling, "%s/dangling", dir);
    write_word(file, "one");
    CHECK_EQ(chmod(file, 0640), 0);
    CHECK_EQ(symlink("file", link), 0);
    CHECK_EQ(symlink(link, chain), 0);
    const ino_t before = inode_of(file), of_link = inode_of(link), of_chain = inode_of(chain);
    write_word(chain, "two");
    CHECK_EQ(inode_of(link), of_link);
    CHECK_EQ(inode_of(chain), of_chain);
    CHECK_NE(inode_of(file), before); /* replaced at once, not rewritten */
    CHECK_EQ(stat(file, &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0640);
    CHECK_EQ(st.st_size, 3);
    CHECK_EQ(symlink("new", dangling), 0);
    write_word(dangling, "three");
    CHECK_EQ(lstat(dangling, &st), 0);
    CHECK(S_ISLNK(st.st_mode));
    CHECK_EQ(stat(dangling, &st), 0);
    CHECK_EQ(st.st_size, 5);
    CHECK_EQ(mkfifo(fifo, 0600), 0);
    const int reader = open(fifo, O_RDONLY | O_NONBLOCK);
    write_word(fifo, "four");
    CHECK_EQ(read(reader, text, sizeof text), 4);
    CHECK_STR(text, "four");
    close(reader);
    CHECK_EQ(lstat(fifo, &st), 0);
    CHECK(S_ISFIFO(st.st_mode));
    struct atomic_file f;
    struct err why;
    CHECK_EQ(atomic_file_open(&f, dir, &why), ERR_IO); /* a folder */
}

/* Bug: a link planted at OUT.partial was followed, and its target overwritten. */
static void partial_files_of_others(void **state)
{
    (void)state;
    char dir[] = "/tmp/qdyno-test-XXXXXX", out[64], partial[64], victim[64];
    struct atomic_file f, second;
    struct err why;
    CHECK_NE(mkdtemp(dir), NULL);
    snprintf(out, sizeof out, "%s/out", dir);
    snprintf(partial, sizeof partial, "%s/out.partial", dir);
    snprintf(victim, sizeof victim, "%s/victim", dir);
    write_word(victim, "mine");
    CHECK_EQ(symlink(victim, partial), 0);
    CHECK_EQ(atomic_file_resume(&f, out, &why), ERR_IO);
    CHECK_CONTAINS(why.message, "is a symbolic link, expected a regular file");
    CHECK_EQ(unlink(partial), 0);
    CHECK_EQ(link(victim, partial), 0); /* a second name of the same file */
    CHECK_EQ(atomic_file_resume(&f, out, &why), ERR_IO);
    CHECK_CONTAINS(why.message, "is not a regular file of this user");
    CHECK_EQ(unlink(partial), 0);
    CHECK_EQ(mkfifo(partial, 0600), 0);
    CHECK_EQ(atomic_file_resume(&f, out, &why), ERR_IO);
    CHECK_EQ(unlink(partial), 0);
    CHECK_OK(atomic_file_resume(&f, out, &why));
    CHECK_EQ(atomic_file_resume(&second, out, &why), ERR_IO);
    CHECK_CONTAINS(why.message, "is being written by another process");
    fputs("whole", f.stream);
    CHECK_OK(atomic_file_commit(&f, &why));
    char *text;
    CHECK_OK(file_read(&text, NULL, out, 100, &why));
    CHECK_STR(text, "whole");
    free(text);
}

/* Pages of files that this process holds. */
static long held_pages(void)
{
    long all, resident, shared = -1;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f);
    CHECK_EQ(fscanf(f, "%ld %ld %ld", &all, &resident, &shared), 3);
    fclose(f);
    return shared;
}

static void hashes(void **state)
{
    (void)state;
    enum { BYTES = (20 << 20) + 4321 }; /* three pieces */
    struct err why;
    char path[] = "/tmp/qdyno-test-XXXXXX", whole[HASH_HEX], mapped[HASH_HEX], read[HASH_HEX];
    unsigned char *bytes = malloc(BYTES);
    const int fd = mkstemp(path);
    CHECK(bytes);
    CHECK_LE(0, fd);
    for (int i = 0; i < BYTES; i++) bytes[i] = (unsigned char)(i * 2654435761u >> 24);
    CHECK_EQ(write(fd, bytes, BYTES), BYTES);
    CHECK(!close(fd));
    hash_bytes(bytes, BYTES, whole);
    struct file_map map;
    CHECK_OK(file_map(&map, path, &why));
    const long before = held_pages();
    CHECK_OK(hash_map(&map, mapped, &why));
    CHECK_LT(held_pages() - before,
             (4 << 20) / sysconf(_SC_PAGESIZE)); /* libcrypto's own may be among them */
    CHECK_OK(hash_file(path, read, &why));
    assert_string_equal(mapped, whole);
    assert_string_equal(read, whole);
    CHECK(!memcmp(map.data, bytes, BYTES)); /* the map is as good as before */
    file_unmap(&map);
    CHECK_OK(hash_map(&map, mapped, &why)); /* nothing: printf '' | sha256sum */
    assert_string_equal(mapped, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    unlink(path);
    free(bytes);
}

static void arenas(void **state)
{
    (void)state;
    struct arena a = { 0 };
    for (int i = 0; i < 1000; i++) {
        unsigned char *p = arena_alloc(&a, (size_t)i * 7);
        CHECK(p);
        CHECK_EQ((uintptr_t)p % 64, 0);
        CHECK((i == 0 || p[i * 7 - 1] == 0));
        memset(p, 0xAA, (size_t)i * 7);
    }
    CHECK_EQ(arena_alloc(&a, SIZE_MAX), NULL);
    assert_string_equal(arena_strdup(&a, "copy"), "copy");
    arena_free(&a);
}

/* The numbers of SplitMix64 with seed 1234567 are those of its reference implementation. */
static void mixed_numbers(void **state)
{
    (void)state;
    static const uint64_t EXPECTED[] = { 6457827717110365317u, 3203168211198807973u, 9817491932198370423u };
    uint64_t counter = 1234567;
    CHECK_EQ(hash_next(counter), EXPECTED[0]);
    for (size_t i = 0; i < COUNT_OF(EXPECTED); i++) CHECK_EQ(hash_mix(counter += HASH_STEP), EXPECTED[i]);
}

static void file_names(void **state)
{
    (void)state;
    assert_string_equal(path_file_name("/models/tiny.gguf"), "tiny.gguf");
    assert_string_equal(path_file_name("tiny.gguf"), "tiny.gguf");
    assert_string_equal(path_file_name("models/"), "");
}

struct sample {
    double num;
    int whole, known;
    int64_t count;
    bool flag;
    char text[4];
};
static const struct json_field SAMPLE[] = {
    JSON_FIELD(struct sample, num, "num", NUM),
    JSON_FIELD(struct sample, whole, "whole", INT),
    JSON_FIELD(struct sample, known, "known", INT_OR_NULL),
    JSON_FIELD(struct sample, count, "count", COUNT),
    JSON_FIELD(struct sample, flag, "flag", BOOL),
    JSON_FIELD(struct sample, text, "text", TEXT),
};

/* Unknown members are null, and reading an empty object leaves what json_clear_fields set. */
static void field_tables(void **state)
{
    (void)state;
    struct sample s = { .num = 1.5, .whole = 2, .known = 0, .count = 3, .flag = true, .text = "abc" };
    json_t *full = json_object(), *unknown = json_object(), *empty = json_object();
    json_put_fields(full, SAMPLE, COUNT_OF(SAMPLE), &s);
    json_clear_fields(SAMPLE, COUNT_OF(SAMPLE), &s);
    json_get_fields(empty, SAMPLE, COUNT_OF(SAMPLE), &s);
    CHECK(isnan(s.num));
    CHECK_EQ(s.whole, -1);
    CHECK_EQ(s.known, -1);
    CHECK_EQ(s.count, -1);
    CHECK(!s.flag);
    assert_string_equal(s.text, "");
    json_put_fields(unknown, SAMPLE, COUNT_OF(SAMPLE), &s);
    CHECK(json_is_null(json_object_get(unknown, "num")));
    CHECK_EQ(json_get_int(unknown, "whole", 0), -1);
    CHECK(json_is_null(json_object_get(unknown, "known")));
    CHECK(json_is_null(json_object_get(unknown, "count")));
    CHECK(json_is_null(json_object_get(unknown, "text")));
    json_get_fields(full, SAMPLE, COUNT_OF(SAMPLE), &s);
    CHECK_EQ(s.num, 1.5);
    CHECK_EQ(s.whole, 2);
    CHECK_EQ(s.known, 0);
    CHECK_EQ(s.count, 3);
    CHECK(s.flag);
    assert_string_equal(s.text, "abc");
    json_decref(full);
    json_decref(unknown);
    json_decref(empty);
}

/* A text that does not fit says so, and no character is left incomplete. */
static void cut_texts(void **state)
{
    (void)state;
    char out[8];
    CHECK(text_cut(out, sizeof out, "1234567"));
    assert_string_equal(out, "1234567");
    CHECK(!text_cut(out, sizeof out, "12345678"));
    assert_string_equal(out, "1234…");
    CHECK(!text_cut(out, sizeof out, "123ä5678")); /* ä: two bytes, and only one is left */
    assert_string_equal(out, "123…");
    CHECK(!text_cut(out, 4, "12345"));
    assert_string_equal(out, "…");
    CHECK(text_cut(out, sizeof out, NULL));
    assert_string_equal(out, "");
    CHECK(text_cutf(out, sizeof out, "%d of %d", 1, 2));
    assert_string_equal(out, "1 of 2");
    CHECK(!text_cutf(out, sizeof out, "%d of %d", 10, 2000));
    assert_string_equal(out, "10 o…");
}

static void arrays_grow(void **state)
{
    (void)state;
    int *x = NULL, room = 0;
    for (int i = 0; i < 1000; i++) {
        CHECK(array_room(&x, &room, i + 1, sizeof *x));
        x[i] = i;
    }
    CHECK(room >= 1000);
    for (int i = 0; i < 1000; i++) CHECK_EQ(x[i], i);
    const int before = room;
    CHECK(!array_room(&x, &room, (int64_t)INT32_MAX + 1, sizeof *x)); /* the array stays */
    CHECK_EQ(room, before);
    CHECK_EQ(x[999], 999);
    free(x);
}

int main(void)
{
    const struct CMUnitTest TESTS[] = {
        cmocka_unit_test(cut_texts),
        cmocka_unit_test(numbers),
        cmocka_unit_test(bytes_print),
        cmocka_unit_test(spelling),
        cmocka_unit_test(utf8),
        cmocka_unit_test(json_rules),
        cmocka_unit_test(errors),
        cmocka_unit_test(atomic_files),
        cmocka_unit_test(files_that_are_not_replaced),
        cmocka_unit_test(fifos_that_nobody_uses),
        cmocka_unit_test(partial_files_of_others),
        cmocka_unit_test(hashes),
        cmocka_unit_test(arenas),
        cmocka_unit_test(mixed_numbers),
        cmocka_unit_test(file_names),
        cmocka_unit_test(field_tables),
        cmocka_unit_test(arrays_grow),
    };
    return cmocka_run_group_tests(TESTS, NULL, NULL);
}
