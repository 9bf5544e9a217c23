/* Proves: what servers answer is read as the documents say, and nothing else is believed: pages, ranges, rate
 * limits, ETags, lists of files, manifests, branches; no path leaves its folder; the file that a name means
 * is the one that llama.cpp takes, with all its shards; retries wait longer each time. */
#include "tests/check.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "advisor/hub/hub_internal.h"

static void next_pages_are_found(void **state)
{
    (void)state;
    static const struct {
        const char *link, *url;
    } CASES[] = {
        { "<https://h/api?cursor=a>; rel=\"next\"", "https://h/api?cursor=a" },
        { "<https://h/1>; rel=\"first\", <https://h/2>; rel=\"next\"", "https://h/2" },
        { "</relative>; title=x; rel=next", "/relative" },
        { "<https://h/1>; rel=\"prev\"", NULL },
        { "<https://h/1", NULL },
        { "", NULL },
        { "rel=\"next\"", NULL },
        { "<a-link-that-is-longer-than-the-buffer-for-it-and-not-cut>; rel=next", NULL },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        char url[40];
        const bool found = hub_link_next(CASES[i].link, url, sizeof url);
        assert_int_equal(found, CASES[i].url != NULL);
        if (found) assert_string_equal(url, CASES[i].url);
    }
}

static void ranges_are_read(void **state)
{
    (void)state;
    int64_t a, b, all;
    assert_true(hub_range_parse("bytes 5-9/10", &a, &b, &all));
    assert_true(a == 5 && b == 9 && all == 10);
    assert_true(hub_range_parse("Bytes 0-0/*", &a, &b, &all));
    assert_true(a == 0 && b == 0 && all == -1);
    static const char *const BAD[] = { "",
                                       "bytes */10",
                                       "bytes 5-4/10",
                                       "bytes 5-10/10",
                                       "bytes 0-1/2x",
                                       "bytes -1-1/2",
                                       "items 0-1/2",
                                       "bytes 0-99999999999999999999/2" };
    for (size_t i = 0; i < COUNT_OF(BAD); i++) assert_false(hub_range_parse(BAD[i], &a, &b, &all));
    assert_true(hub_range_refused("bytes */10", &all));
    CHECK_EQ(all, 10);
    static const char *const NOT_REFUSED[] = { "", "bytes */*", "bytes 0-1/2", "bytes */-1", "bytes */1x" };
    for (size_t i = 0; i < COUNT_OF(NOT_REFUSED); i++) assert_false(hub_range_refused(NOT_REFUSED[i], &all));
}

static void limits_say_when_to_come_again(void **state)
{
    (void)state;
    CHECK_EQ(hub_rate_limit_s("\"api\";r=0;t=55"), 56);
    CHECK_EQ(hub_rate_limit_s("\"resolvers\"; r=0; t=0"), 1);
    CHECK(isnan(hub_rate_limit_s("\"api\";r=3;t=55")));
    CHECK(isnan(hub_rate_limit_s("")));
    CHECK(isnan(hub_rate_limit_s("\"api\";r=0")));
    for (int n = 1; n < 12; n++) CHECK(hub_backoff_s(n + 1) >= hub_backoff_s(n) && hub_backoff_s(n) <= 30);
    CHECK(hub_backoff_s(1) < 0.2);
}

static void etags_that_are_no_names_are_refused(void **state)
{
    (void)state;
    char etag[HUB_ETAG];
    assert_true(hub_etag_parse("\"0123456789abcdef\"", etag));
    assert_string_equal(etag, "0123456789abcdef");
    assert_true(hub_etag_parse("W/\"0123456789abcdef\"", etag));
    assert_string_equal(etag, "0123456789abcdef");
    static const char *const BAD[] = { "",   "\"\"",      "\"../../../etc\"", "\"a/b45678\"",
                                       "..", "\"short\"", "\"0123456789\n\"" };
    for (size_t i = 0; i < COUNT_OF(BAD); i++) assert_false(hub_etag_parse(BAD[i], etag));
    char large[300];
    memset(large, 'a', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    assert_false(hub_etag_parse(large, etag));
}

static void paths_stay_in_their_folder(void **state)
{
    (void)state;
    static const char *const GOOD[] = { "a", "a/b.gguf", "...", ".a/..b", "a b/\xc3\xa4" };
    static const char *const BAD[] = { "",  "/a",    "a/",   "a//b", "..",  "a/../b",
                                       ".", "a/./b", "a\nb", "a\\b", "\x7f" };
    for (size_t i = 0; i < COUNT_OF(GOOD); i++) assert_true(hub_path_is_safe(GOOD[i]));
    for (size_t i = 0; i < COUNT_OF(BAD); i++) assert_false(hub_path_is_safe(BAD[i]));
}

static void renamed_repositories_are_seen(void **state)
{
    (void)state;
    char repo[256];
    assert_true(hub_repo_of_url("https://h/api/models/o/r/refs", repo));
    assert_string_equal(repo, "o/r");
    assert_true(hub_repo_of_url("https://h/api/models/o/r", repo));
    assert_true(hub_repo_of_url("http://h:1/o/r/resolve/main/x", repo));
    assert_string_equal(repo, "o/r");
    assert_true(hub_repo_of_url("http://mirror/hf/api/models/o/r/tree/main", repo));
    assert_string_equal(repo, "o/r");
    static const char *const BAD[] = { "https://h",
                                       "https://h/",
                                       "https://h/o/r",
                                       "https://h/api/models/o",
                                       "x",
                                       "https://h/api/models/../r/refs",
                                       "https://h/api/models/o%2f/r/refs" };
    for (size_t i = 0; i < COUNT_OF(BAD); i++) assert_false(hub_repo_of_url(BAD[i], repo));
}

#define SHA  "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define SHA1 "0123456789abcdef0123456789abcdef01234567"

static enum err_code tree(struct hub_repo *r, const char *text, struct err *why)
{
    *r = (struct hub_repo){ .store = STORE_HF };
    return hub_tree_parse(r, text, strlen(text), why);
}

static void files_are_listed(void **state)
{
    (void)state;
    struct hub_repo r;
    struct err why = { 0 };
    static const char LIST[] = "[{\"type\":\"directory\",\"path\":\"d\",\"oid\":\"x\",\"size\":0},"
                               "{\"type\":\"file\",\"path\":\"d/m.gguf\",\"oid\":\"" SHA1
                               "\",\"size\":7000000000,\"lfs\":{\"oid\":\"" SHA
                               "\",\"size\":7000000000,\"pointerSize\":135}},"
                               "{\"type\":\"file\",\"path\":\"config.json\",\"oid\":\"" SHA1
                               "\",\"size\":3}]";
    CHECK_OK(tree(&r, LIST, &why));
    CHECK_EQ(r.n, 2);
    assert_string_equal(r.files[0].path, "d/m.gguf");
    CHECK_EQ(r.files[0].size, 7000000000);
    assert_string_equal(r.files[0].sha256, SHA);
    assert_string_equal(r.files[0].oid, "");
    assert_string_equal(r.files[1].sha256, "");
    assert_string_equal(r.files[1].oid, SHA1);
    hub_repo_done(&r);
    static const char *const BAD[] = { "",
                                       "{}",
                                       "[",
                                       "<html>",
                                       "[{\"type\":\"file\",\"path\":\"../x\",\"size\":1}]",
                                       "[{\"type\":\"file\",\"path\":\"x\"}]",
                                       "[{\"type\":\"file\",\"size\":1}]",
                                       "[{\"type\":\"file\",\"path\":\"x\",\"size\":-1}]",
                                       "[{\"type\":\"file\",\"path\":\"x\",\"size\":9000000000000000000}]" };
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        assert_int_equal(tree(&r, BAD[i], &why), ERR_FORMAT);
        assert_true(*why.message);
        hub_repo_done(&r);
    }
}

static void other_stores_are_read(void **state)
{
    (void)state;
    struct hub_repo r = { .n = 0 };
    struct err why = { 0 };
    static const char MS[] =
        "{\"Code\":200,\"Data\":{\"Files\":[{\"Path\":\"a/b.gguf\",\"Type\":\"blob\",\"Size\":5,"
        "\"Sha256\":\"" SHA "\"},{\"Path\":\"a\",\"Type\":\"tree\",\"Size\":0}]}}";
    CHECK_OK(hub_modelscope_parse(&r, MS, strlen(MS), &why));
    CHECK_EQ(r.n, 1);
    assert_string_equal(r.files[0].sha256, SHA);
    hub_repo_done(&r);
    static const char MANIFEST[] = "{\"config\":{\"mediaType\":\"c\",\"digest\":\"sha256:" SHA
                                   "\",\"size\":2},\"layers\":["
                                   "{\"mediaType\":\"m\",\"digest\":\"sha256:" SHA "\",\"size\":9}]}";
    CHECK_OK(hub_manifest_parse(&r, MANIFEST, strlen(MANIFEST), &why));
    CHECK_EQ(r.n, 2);
    assert_string_equal(r.files[0].path, "m"); /* the config is last */
    hub_repo_done(&r);
    static const char BAD[] =
        "{\"config\":{},\"layers\":[{\"mediaType\":\"m\",\"digest\":\"sha256:../../x\",\"size\":9}]}";
    assert_int_equal(hub_manifest_parse(&r, BAD, strlen(BAD), &why), ERR_FORMAT);
    hub_repo_done(&r);

    char commit[HUB_COMMIT];
    static const char REFS[] =
        "{\"branches\":[{\"name\":\"main\",\"ref\":\"refs/heads/main\",\"targetCommit\":\"" SHA1
        "\"}],\"tags\":[{\"name\":\"v1\",\"ref\":\"refs/tags/v1\",\"targetCommit\":\"" SHA1 "\"}]}";
    CHECK_OK(hub_refs_parse(commit, REFS, strlen(REFS), "main", &why));
    assert_string_equal(commit, SHA1);
    CHECK_OK(hub_refs_parse(commit, REFS, strlen(REFS), "v1", &why));
    assert_int_equal(hub_refs_parse(commit, REFS, strlen(REFS), "v2", &why), ERR_ABSENT);
    assert_non_null(strstr(why.message, "main, v1"));

    struct hub_found *found;
    int n;
    static const char FOUND[] =
        "[{\"id\":\"o/r\",\"downloads\":5,\"likes\":1,\"gated\":\"manual\"},{\"modelId\":\"p/q\"},"
        "{\"id\":\"../x\"}]";
    CHECK_OK(hub_search_parse(&found, &n, FOUND, strlen(FOUND), &why));
    CHECK_EQ(n, 2);
    assert_string_equal(found[0].gate, "manual");
    CHECK_EQ(found[1].downloads, -1);
    hub_found_free(found, n);
}

static void names_mean_files(void **state)
{
    (void)state;
    static struct hub_file files[] = {
        { .path = "README.md" },
        { .path = "m-IQ2_XS.gguf" },
        { .path = "m-Q4_K_M.gguf" },
        { .path = "mmproj-m-F16.gguf" },
        { .path = "x/b-Q8_0-00001-of-00002.gguf" },
        { .path = "x/b-Q8_0-00002-of-00002.gguf" },
        { .path = "x/c-F16-00001-of-00002.gguf" },
    };
    const struct hub_repo r = { .repo = "o/r", .files = files, .n = COUNT_OF(files) };
    static const struct {
        const char *tag;
        bool is_file;
        int first, n; /* n 0: none */
        const char *says;
    } CASES[] = {
        { "", false, 2, 1, NULL },
        { "iq2_xs", false, 1, 1, NULL },
        { "Q8_0", false, 4, 2, NULL },
        { "mmproj-m-F16.gguf", true, 3, 1, NULL },
        { "README.md", true, 0, 1, NULL },
        { "Q9_9", false, 0, 0, "m-Q4_K_M.gguf" },
        { "m-Q4_K_N.gguf", true, 0, 0, "did you mean m-Q4_K_M.gguf" },
        { "F16", false, 0, 0, "2 of 2" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct model_name name = { .store = STORE_HF, .repo = "o/r", .is_file = CASES[i].is_file };
        struct err why = { 0 };
        int *index, n;
        snprintf(name.tag, sizeof name.tag, "%s", CASES[i].tag);
        const enum err_code rc = hub_choose(&index, &n, &r, &name, &why);
        assert_int_equal(rc, CASES[i].n ? ERR_OK : ERR_ABSENT);
        CHECK_EQ(n, CASES[i].n);
        if (n) CHECK_EQ(index[0], CASES[i].first);
        if (CASES[i].says) assert_non_null(strstr(why.message, CASES[i].says));
        free(index);
    }
}

static void tokens_belong_to_the_endpoint(void **state)
{
    (void)state;
    struct hub *h;
    struct err why = { 0 };
    const struct hub_options o = { .offline = false };
    unsetenv("MODEL_ENDPOINT");
    setenv("HF_ENDPOINT", "https://hub.example/", 1);
    setenv("HF_TOKEN", "secret", 1);
    CHECK_OK(hub_open(&h, &o, &why));
    assert_string_equal(h->endpoint, "https://hub.example");
    assert_string_equal(hub_token_for(h, "https://hub.example/o/r/resolve/main/x"), "secret");
    assert_string_equal(hub_token_for(h, "https://HUB.example:443/x"), "secret");
    static const char *const OTHERS[] = { "http://hub.example/x",
                                          "https://hub.example:444/x",
                                          "https://cdn.hub.example/x",
                                          "https://hub.example.evil/x",
                                          "https://evil/hub.example",
                                          "nonsense",
                                          "" };
    for (size_t i = 0; i < COUNT_OF(OTHERS); i++) assert_null(hub_token_for(h, OTHERS[i]));
    hub_close(h);
    setenv("MODEL_ENDPOINT", "https://model.example", 1);
    CHECK_OK(hub_open(&h, &o, &why));
    assert_string_equal(h->endpoint, "https://model.example");
    hub_close(h);
    setenv("HF_TOKEN", "a\r\nX-Header: b", 1);
    assert_int_equal(hub_open(&h, &o, &why), ERR_USAGE);
    setenv("HF_TOKEN", "", 1);
    setenv("MODEL_ENDPOINT", "ftp://x", 1);
    assert_int_equal(hub_open(&h, &o, &why), ERR_USAGE);
    assert_null(h);
}

/* A refusal names the server that refuses, speaks of tokens only where one would be sent, and never shows
 * one.
 */
static void refusals_name_their_server(void **state)
{
    (void)state;
    static const struct {
        const char *url, *code, *said;
        int status;
        enum err_code rc;
        const char *has, *lacks;
    } CASES[] = {
        { "https://hub.example/o/r/x", "GatedRepo", "no", 401, ERR_USAGE, "https://hub.example/o/r", "\001" },
        { "https://hub.example/o/r/x", "", "", 403, ERR_USAGE, "HF_TOKEN", "\001" },
        { "https://cdn.example:8/a/b?c", "", "", 403, ERR_USAGE, "https://cdn.example:8 ", "HF_TOKEN" },
        { "https://ms.example/a/b?c", "", "", 401, ERR_ABSENT, "https://ms.example,", "HF_TOKEN" },
        { "https://ms.example?c", "", "", 404, ERR_ABSENT, "https://ms.example", "hub.example" },
        { "https://hub.example/x", "", "bad token secret!", 404, ERR_ABSENT, "hub.example", "secret" },
        { "https://hub.example/x", "", "not here", 404, ERR_ABSENT, "says: not here", "secret" },
        { "https://hub.example/x", "", "a\033[31mb", 404, ERR_ABSENT, "a [31mb", "\033" },
    };
    struct hub *h;
    struct err why = { 0 };
    setenv("HF_ENDPOINT", "https://hub.example", 1);
    setenv("MODEL_ENDPOINT", "", 1);
    setenv("HF_TOKEN", " secret\n", 1);
    CHECK_OK(hub_open(&h, &(struct hub_options){ 0 }, &why));
    assert_string_equal(h->token, "secret");
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct http_wanted header[HEADER_COUNT];
        hub_headers_init(header);
        str_append(&header[HEADER_ERROR_CODE].value, CASES[i].code);
        str_append(&header[HEADER_ERROR_MESSAGE].value, CASES[i].said);
        const struct err refused = { .code = ERR_USAGE, .message = "refused" };
        assert_int_equal(hub_explain(h, "o/r", CASES[i].url, CASES[i].status, header, &refused, &why),
                         CASES[i].rc);
        if (!strstr(why.message, CASES[i].has) || strstr(why.message, CASES[i].lacks))
            fail_msg("case %zu: %s", i, why.message);
        hub_headers_done(header);
    }
    hub_close(h);
}

/* Where the file system has no locks, each process writes a file of its own, which is nobody's beginning. */
static void unlocked_files_are_apart(void **state)
{
    (void)state;
    static char temp[] = "/tmp/test-hub-0123456789.incomplete";
    const struct pull_item i = { .temp = temp };
    struct err why = { 0 };
    char *a = NULL, *b = NULL;
    CHECK_OK(pull_temp_own(&a, &i, &why));
    CHECK_OK(pull_temp_own(&b, &i, &why));
    assert_string_not_equal(a, b);
    CHECK_EQ(strlen(a), strlen(temp) + strlen(".01234567"));
    assert_true(!strncmp(a, temp, strlen("/tmp/test-hub-0123456789.")) && strstr(a, ".incomplete"));
    CHECK_EQ(unlink(a), 0);
    CHECK_EQ(unlink(b), 0);
    free(a);
    free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(next_pages_are_found),
        cmocka_unit_test(ranges_are_read),
        cmocka_unit_test(limits_say_when_to_come_again),
        cmocka_unit_test(etags_that_are_no_names_are_refused),
        cmocka_unit_test(paths_stay_in_their_folder),
        cmocka_unit_test(renamed_repositories_are_seen),
        cmocka_unit_test(files_are_listed),
        cmocka_unit_test(other_stores_are_read),
        cmocka_unit_test(names_mean_files),
        cmocka_unit_test(tokens_belong_to_the_endpoint),
        cmocka_unit_test(unlocked_files_are_apart),
        cmocka_unit_test(refusals_name_their_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
