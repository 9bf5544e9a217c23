/* Proves: a transfer with several connections at a time writes the right bytes, in order, whatever is cut,
 * refused or ignored on the way; several connections are used only where much is left; what is in the file is
 * always a beginning of the bytes, also when the transfer is cancelled. The server is tests/e2e/fake_hub.py.
 */
#include "tests/check.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "advisor/hub/hub_internal.h"

enum { SIZE = 9 * 1000 * 1000 + 17 };

static char folder[] = "/tmp/test-hub-XXXXXX";
static pid_t server;
static int port;
static unsigned char *bytes; /* [SIZE] */

static void path_of(char *out, size_t size, const char *name)
{
    snprintf(out, size, "%s/%s", folder, name);
}

static void file_put(const char *name, const void *data, size_t n)
{
    char path[200];
    path_of(path, sizeof path, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    CHECK_EQ(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void faults(const char *text)
{
    char from[200], to[200];
    file_put("hub/faults.new", text, strlen(text));
    path_of(from, sizeof from, "hub/faults.new");
    path_of(to, sizeof to, "hub/faults.json");
    assert_int_equal(rename(from, to), 0);
}

static int start(void **state)
{
    (void)state;
    char hub[200], repo[200], ports[200];
    if (!mkdtemp(folder)) return -1;
    path_of(hub, sizeof hub, "hub");
    path_of(repo, sizeof repo, "hub/o/r");
    path_of(ports, sizeof ports, "ports");
    if (file_make_dirs(repo, NULL)) return -1;
    bytes = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++) bytes[i] = (unsigned char)hash_mix(i / 3);
    file_put("hub/o/r/m.gguf", bytes, SIZE);
    const pid_t parent = getpid();
    server = fork();
    if (!server) {
        process_die_with_parent(parent);
        execlp("python3", "python3", TEST_SOURCE_DIR "/tests/e2e/fake_hub.py", hub, "--ports", ports,
               (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 1200; i++) {
        FILE *f = fopen(ports, "r");
        const bool known = f && fscanf(f, "%d", &port) == 1;
        if (f) fclose(f);
        if (known) break;
        if (waitpid(server, NULL, WNOHANG) == server) { /* no python3 */
            server = 0;
            break;
        }
        clock_sleep_ns(50000000);
    }
    return 0;
}

static int stop(void **state)
{
    (void)state;
    char command[200];
    if (server) {
        kill(server, SIGKILL);
        waitpid(server, NULL, 0);
    }
    free(bytes);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

struct seen {
    int connections; /* at most */
    int64_t least;   /* done, when bytes were transferred; 0: none were */
    int64_t stop_at; /* cancel here; 0: never */
    bool stopped;
    char notes[400];
};

static bool goes_on(void *ctx)
{
    const struct seen *s = ctx;
    return !s->stopped;
}

static void note(void *ctx, const char *text)
{
    struct seen *s = ctx;
    snprintf(s->notes, sizeof s->notes, "%s", text);
}

static void progress(void *ctx, int64_t done, bool checking, double rate, int connections)
{
    (void)rate;
    struct seen *s = ctx;
    if (!checking && done) s->least = s->least ? MIN(s->least, done) : done;
    s->connections = MAX(s->connections, connections);
    s->stopped |= s->stop_at && done >= s->stop_at;
}

/* Is the file a beginning of the bytes? Its size. */
static int64_t beginning(const char *path)
{
    char *have = NULL;
    size_t n = 0;
    if (file_read(&have, &n, path, SIZE, NULL)) return 0;
    assert_true(n <= SIZE && !memcmp(have, bytes, n));
    free(have);
    return (int64_t)n;
}

static enum err_code fetch_hashed(struct seen *seen, int64_t first_bytes, bool hashed, struct err *why)
{
    struct hub *h;
    char url[200], temp[200], sha256[HASH_HEX];
    const struct hub_options o = { .goes_on = goes_on, .note = note, .ctx = seen };
    snprintf(url, sizeof url, "http://127.0.0.1:%d", port);
    setenv("HF_ENDPOINT", url, 1);
    assert_int_equal(hub_open(&h, &o, why), ERR_OK);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/o/r/resolve/main/m.gguf", port);
    path_of(temp, sizeof temp, "temp");
    hash_bytes(bytes, SIZE, sha256);
    const struct fetch_spec s = { .hub = h,
                                  .what = "o/r",
                                  .url = url,
                                  .temp = temp,
                                  .size = SIZE,
                                  .sha256 = hashed ? sha256 : NULL,
                                  .progress = progress,
                                  .ctx = seen,
                                  .first_bytes = first_bytes,
                                  .rate_least = 1,
                                  .rest_least = 1 };
    const enum err_code rc = fetch_file(&s, why);
    hub_close(h);
    return rc;
}

static enum err_code fetch(struct seen *seen, int64_t first_bytes, struct err *why)
{
    return fetch_hashed(seen, first_bytes, true, why);
}

static void forget(void)
{
    char temp[200];
    path_of(temp, sizeof temp, "temp");
    unlink(temp);
}

static bool has_server(void)
{
    if (!server) print_message("SKIPPED: no python3 for the hub\n");
    return server > 0;
}

static void every_way_ends_with_the_right_bytes(void **state)
{
    (void)state;
    static const char *const FAULTS[] = { "{}",
                                          "{\"cut_random\": [30, 300000]}",
                                          "{\"no_ranges\": true}",
                                          "{\"no_ranges\": true, \"cut\": [2, 5000000]}",
                                          "{\"expired\": 3}",
                                          "{\"refuse_ranges\": 1}",
                                          "{\"refuse_ranges\": 2}",
                                          "{\"more\": 5000000}",
                                          "{\"more\": 5000000, \"direct\": true}",
                                          "{\"direct\": true, \"cut_random\": [5, 300000]}",
                                          "{\"broken\": 3}" };
    char temp[200];
    if (!has_server()) return;
    path_of(temp, sizeof temp, "temp");
    for (size_t i = 0; i < COUNT_OF(FAULTS); i++) {
        struct seen seen = { 0 };
        struct err why = { 0 };
        forget();
        faults(FAULTS[i]);
        CHECK_OK(fetch(&seen, 100000, &why));
        CHECK_EQ(beginning(temp), SIZE);
        if (i < 2) CHECK(seen.connections > 1);
    }
}

/* Ranges stop being served while several connections are in use: whichever of them is answered first with the
 * whole file, the transfer ends. */
static void whole_files_in_the_middle(void **state)
{
    (void)state;
    static const char *const FAULTS[] = { "no_ranges_after", "no_ranges_at" };
    enum { RANGES = 7, WAIT_S = 300 }; /* a transfer that waits for nobody is ended by SIGALRM */
    char temp[200], text[80];
    if (!has_server()) return;
    path_of(temp, sizeof temp, "temp");
    alarm(WAIT_S);
    for (int i = 0; i < RANGES * (int)COUNT_OF(FAULTS); i++) {
        struct seen seen = { 0 };
        struct err why = { 0 };
        forget();
        snprintf(text, sizeof text, "{\"%s\": %d, \"slow\": 4000000}", FAULTS[i / RANGES], i % RANGES + 1);
        faults(text);
        CHECK_OK(fetch(&seen, 100000, &why));
        CHECK_EQ(beginning(temp), SIZE);
        if (i % RANGES) CHECK(seen.connections > 1); /* the first range is asked for alone */
    }
    alarm(0);
}

/* What a connection left is used where the server sends whole files only. */
static void whole_files_after_a_cancelled_transfer(void **state)
{
    (void)state;
    char temp[200];
    if (!has_server()) return;
    path_of(temp, sizeof temp, "temp");
    for (int64_t at = 1000000; at < SIZE; at += 3000000) {
        struct seen seen = { .stop_at = at };
        struct err why = { 0 };
        forget();
        faults("{\"slow\": 1000000}");
        assert_int_equal(fetch(&seen, 100000, &why), ERR_CANCELLED);
        const int64_t had = beginning(temp);
        CHECK(had >= at && had < SIZE);
        seen = (struct seen){ 0 };
        faults("{\"no_ranges\": true}");
        CHECK_OK(fetch(&seen, 100000, &why));
        CHECK_EQ(beginning(temp), SIZE);
    }
}

/* A refused range loses nothing of what is here: a file of another size is named, and otherwise the rest of
 * the whole file is taken. */
static void refused_ranges_lose_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *faults;
        enum err_code rc;
    } CASES[] = {
        { "{\"refuse_ranges\": 1000, \"refuse_as\": 77}", ERR_FORMAT },
        { "{\"refuse_ranges\": 1000}", ERR_OK },
    };
    enum { HAVE = 4000000 };
    char temp[200];
    if (!has_server()) return;
    path_of(temp, sizeof temp, "temp");
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct seen seen = { 0 };
        struct err why = { 0 };
        file_put("temp", bytes, HAVE);
        faults(CASES[i].faults);
        assert_int_equal(fetch(&seen, 100000, &why), CASES[i].rc);
        CHECK_EQ(beginning(temp), CASES[i].rc ? HAVE : SIZE);
        if (CASES[i].rc) assert_non_null(strstr(why.message, "77 bytes"));
        CHECK(seen.least >= HAVE || !seen.least);
    }
}

/* A cancelled check of what is here loses nothing; what cannot be checked is not built upon. */
static void what_is_here_is_kept_or_checked(void **state)
{
    (void)state;
    enum { HAVE = 4000000 };
    struct seen seen = { .stopped = true };
    struct err why = { 0 };
    char temp[200];
    if (!has_server()) return;
    path_of(temp, sizeof temp, "temp");
    faults("{}");
    file_put("temp", bytes, HAVE);
    assert_int_equal(fetch(&seen, 100000, &why), ERR_CANCELLED);
    CHECK_EQ(beginning(temp), HAVE);
    bytes[0] ^= 1;
    file_put("temp", bytes, HAVE); /* damaged */
    bytes[0] ^= 1;
    seen = (struct seen){ 0 };
    CHECK_OK(fetch_hashed(&seen, 100000, false, &why));
    CHECK_EQ(beginning(temp), SIZE);
    assert_non_null(strstr(seen.notes, "no hash"));
}

static void one_connection_where_little_is_left(void **state)
{
    (void)state;
    struct seen seen = { 0 };
    struct err why = { 0 };
    if (!has_server()) return;
    forget();
    faults("{}");
    CHECK_OK(fetch(&seen, SIZE, &why));
    CHECK_EQ(seen.connections, 1);
}

static void a_wrong_hash_leaves_nothing(void **state)
{
    (void)state;
    struct seen seen = { 0 };
    struct err why = { 0 };
    char temp[200];
    if (!has_server()) return;
    forget();
    path_of(temp, sizeof temp, "temp");
    faults("{\"wrong\": true}");
    assert_int_equal(fetch(&seen, 100000, &why), ERR_FORMAT);
    assert_int_equal(access(temp, F_OK), -1);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_ends_with_the_right_bytes),
        cmocka_unit_test(whole_files_in_the_middle),
        cmocka_unit_test(whole_files_after_a_cancelled_transfer),
        cmocka_unit_test(refused_ranges_lose_nothing),
        cmocka_unit_test(what_is_here_is_kept_or_checked),
        cmocka_unit_test(one_connection_where_little_is_left),
        cmocka_unit_test(a_wrong_hash_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
