/* Proves: the divergence of two rows of logits, its quantiles and clustered standard errors equal values
 * computed by hand from their definitions. Two models compared together have the perplexities that each has
 * alone. Models that tokenize a text differently are rejected with the difference. Golden figures:
 * test_kld.c. */
#include "engine/eval/statistics.h"
#include "engine/eval/windows.h"
#include "tests/engine/session.h"
#include "engine/arch/arch.h"

#define STORIES "models/repacked/stories260K-f32.gguf"
#define TINY    "models/repacked/tinystories-656k-f32.gguf"
#define EXCERPT "text/tinystories-valid-excerpt.txt"

static void test_position(void **state)
{
    (void)state;
    const double half = log(0.5), quarter = log(0.25);
    const float a[] = { (float)half, (float)quarter, (float)quarter };
    const float b[] = { (float)quarter, (float)half, (float)quarter };
    const float shifted[] = { (float)quarter + 64, (float)half + 64, (float)quarter + 64 };
    /* 1/2 ln(1/2 : 1/4) + 1/4 ln(1/4 : 1/2) + 1/4 ln 1 = ln(2) / 4 */
    struct position p = position_compare(a, b, 3, 0);
    CHECK_NEAR(p.kld, 0.25 * log(2), 1e-7);
    CHECK_NEAR(p.nll_reference, log(2), 1e-7);
    CHECK_NEAR(p.nll_candidate, log(4), 1e-7);
    assert_false(p.same_top);
    CHECK_NEAR(position_compare(a, shifted, 3, 1).kld, 0.25 * log(2), 1e-5);
    CHECK_NEAR(position_surprise(b, 3, 2), log(4), 1e-7);
    CHECK_NEAR(position_surprise(shifted, 3, 1), log(2), 1e-5);
    /* not symmetric: 0.9 ln(0.9 : 0.5) + 0.1 ln(0.1 : 0.5) */
    const float c[] = { (float)log(0.9), (float)log(0.1) }, even[] = { 0, 0 };
    CHECK_NEAR(position_compare(c, even, 2, 0).kld, 0.9 * log(1.8) + 0.1 * log(0.2), 1e-7);
    CHECK_NEAR(position_compare(even, c, 2, 0).kld, 0.5 * log(0.5 / 0.9) + 0.5 * log(5), 1e-7);
    /* ties: the lowest id */
    assert_true(position_compare(even, c, 2, 0).same_top);
}

static void test_position_extremes(void **state)
{
    (void)state;
    float row[2048];
    uint32_t seed = 7;
    for (size_t i = 0; i < COUNT_OF(row); i++) {
        seed = seed * 1664525u + 1013904223u;
        row[i] = (float)(seed >> 8) * 0x1p-20f - 8;
    }
    struct position p = position_compare(row, row, COUNT_OF(row), 5);
    CHECK_EQ(p.kld, 0);
    CHECK_EQ(p.nll_reference, p.nll_candidate);
    CHECK(p.same_top);
    CHECK_NEAR(p.nll_reference, position_surprise(row, COUNT_OF(row), 5), 1e-12);
    const float far[] = { 30000, -30000 }, back[] = { -30000, 30000 }, cut[] = { 0, -INFINITY },
                even[] = { 0, 0 }, broken[] = { 0, NAN };
    CHECK_NEAR(position_compare(far, back, 2, 0).kld, 60000, 1e-9);
    CHECK_NEAR(position_compare(cut, even, 2, 0).kld, log(2), 1e-12); /* 0 ln 0 is 0 */
    assert_true(isinf(position_compare(even, cut, 2, 0).kld));
    p = position_compare(even, broken, 2, 0);
    CHECK_NAN(p.kld);
    CHECK(isfinite(p.nll_reference));
    CHECK_NAN(p.nll_candidate);
    p = position_compare(broken, even, 2, 0);
    CHECK_NAN(p.kld);
    CHECK_NAN(p.nll_reference);
    CHECK(isfinite(p.nll_candidate));
}

/* Windows with the same number of positions, each with divergence, agreement and likelihoods. */
static struct divergence finish(const struct position *p, int windows, int scored)
{
    struct err why = { 0 };
    struct divergence d;
    struct divergence_sums m;
    CHECK_OK(divergence_sums_init(&m, windows, scored, &why));
    for (int w = 0; w < windows; w++) {
        for (int i = 0; i < scored; i++) divergence_add(&m, &p[w * scored + i]);
        divergence_close_window(&m);
    }
    divergence_finish(&d, &m, scored + 1);
    divergence_sums_done(&m);
    return d;
}

static void test_clustered(void **state)
{
    (void)state;
    /* kld 1 3 | 2 2 | 5 5: window sums differ from their mean of 6 by -2 -2 +4, SE^2 = 3/2 * (4 + 4 + 16) /
     * 6^2 = 1 */
    const struct position p[] = { { 1, 1, 1.5, true, true, true }, { 3, 2, 2.5, true, false, false },
                                  { 2, 1, 2, true, true, true },   { 2, 3, 3, false, true, false },
                                  { 5, 2, 4, true, false, false }, { 5, 3, 3, true, true, true } };
    const struct divergence d = finish(p, 3, 2);
    CHECK_NEAR(d.kld_mean, 3, 1e-12);
    CHECK_NEAR(d.kld_se, 1, 1e-12);
    CHECK_NEAR(d.kld_max, 5, 0);
    CHECK_NAN(d.kld_p50); /* NAN: six values are too few */
    /* differences 0.5 0.5 | 1 0 | 2 0: window means 1/2 1/2 1 */
    CHECK_NEAR(d.log_ratio, 2.0 / 3, 1e-12);
    CHECK_NEAR(d.log_ratio_se, 1.0 / 6, 1e-12);
    CHECK_NEAR(d.reference.nll, 2, 1e-12);
    CHECK_NEAR(d.candidate.ppl, exp(2 + 2.0 / 3), 1e-9);
    CHECK_NEAR(d.candidate.ppl / d.reference.ppl, exp(d.log_ratio), 1e-12);
    /* 5 of 6 agree; window means 1 1/2 1: SE 1/6, which corresponds to (5/36) / (1/36) = 5 independent
     * positions */
    CHECK_NEAR(d.top1_ratio, 5.0 / 6, 1e-12);
    CHECK_NEAR(d.top1_se, 1.0 / 6, 1e-12);
    CHECK_NEAR(d.top1_lower, 0.40334, 1e-5);
    CHECK_NEAR(d.top1_upper, 0.97367, 1e-5);
    assert_int_equal(d.candidate.scored, 6);
    assert_int_equal(d.reference.chunks, 3);
    /* right: 4 and 3 of 6, one discordant pair; window means of the change 0 -1/2 0 */
    assert_int_equal(d.only_reference_right, 1);
    assert_int_equal(d.only_candidate_right, 0);
    CHECK_NEAR(d.accuracy_reference, 4.0 / 6, 1e-12);
    CHECK_NEAR(d.accuracy_candidate, 3.0 / 6, 1e-12);
    CHECK_NEAR(d.accuracy_change, -1.0 / 6, 1e-12);
    CHECK_NEAR(d.accuracy_change_se, 1.0 / 6, 1e-12);
}

static void test_agreement(void **state)
{
    (void)state;
    struct position p[10];
    /* 4 of 5 in both windows: no clustering, so this is the textbook Wilson interval for 8 of 10 */
    for (int i = 0; i < 10; i++) p[i] = (struct position){ .kld = 1, .same_top = i % 5 > 0 };
    struct divergence d = finish(p, 2, 5);
    CHECK_NEAR(d.top1_lower, 0.490, 5e-4);
    CHECK_NEAR(d.top1_upper, 0.943, 5e-4);
    /* all positions agree: the number of windows counts, 2 / (2 + z^2) */
    for (int i = 0; i < 10; i++) p[i].same_top = true;
    d = finish(p, 2, 5);
    CHECK_NEAR(d.top1_se, 0, 0);
    CHECK_NEAR(d.top1_lower, 2 / (2 + 3.841459), 1e-5);
    CHECK_NEAR(d.top1_upper, 1, 1e-12);
    /* one window: no standard error */
    d = finish(p, 1, 10);
    CHECK_NAN(d.kld_se);
    CHECK_NAN(d.top1_se);
    CHECK_NAN(d.top1_lower);
    CHECK_NAN(d.top1_upper);
    CHECK_NAN(d.log_ratio_se);
    CHECK_NAN(d.candidate.nll_se);
    CHECK_NEAR(d.kld_mean, 1, 1e-12);
}

static void test_quantiles(void **state)
{
    (void)state;
    static struct position p[500];
    static const struct {
        int n;
        double p50, p90, p99;
    } CASES[] = {
        { 6, NAN, NAN, NAN },          { 7, 3, NAN, NAN },         { 43, 21, NAN, NAN },
        { 101, 50, 90, NAN },          { 458, 228.5, 411.3, NAN }, { 459, 229, 412.2, 453.42 },
        { 500, 249.5, 449.1, 494.01 },
    };
    for (size_t c = 0; c < COUNT_OF(CASES); c++) {
        const int n = CASES[c].n;
        for (int i = 0; i < n; i++) p[i] = (struct position){ .kld = (i * 7919) % n }; /* 0 .. n-1, mixed */
        const struct divergence d = finish(p, 1, n);
        const double got[] = { d.kld_p50, d.kld_p90, d.kld_p99 },
                     want[] = { CASES[c].p50, CASES[c].p90, CASES[c].p99 };
        for (int i = 0; i < 3; i++) {
            if (isnan(want[i]))
                CHECK_NAN(got[i]);
            else
                CHECK_NEAR(got[i], want[i], 1e-9);
        }
        CHECK_NEAR(d.kld_max, n - 1, 0);
    }
}

/* Nine positions in a window give depth pieces of 2 2 2 3. The divergence of a position is its index, so the
 * mean of a piece is its middle. */
static void test_depth(void **state)
{
    (void)state;
    static const double MEANS[DEPTHS] = { 0.5, 2.5, 4.5, 7 };
    static const int BEGINS[DEPTHS + 1] = { 0, 2, 4, 6, 9 };
    struct position p[18];
    for (int i = 0; i < 18; i++) p[i] = (struct position){ .kld = i % 9 + (i < 9 ? -0.25 : 0.25) };
    const struct divergence d = finish(p, 2, 9);
    for (int i = 0; i < DEPTHS; i++) {
        assert_int_equal(d.depth[i].from, 10 + BEGINS[i]);
        assert_int_equal(d.depth[i].to, 10 + BEGINS[i + 1]);
        CHECK_NEAR(d.depth[i].mean, MEANS[i], 1e-12);
        CHECK_NEAR(d.depth[i].se, 0.25, 1e-12); /* window means differ by 0.5 */
    }
    /* fewer positions than pieces: empty pieces have no mean */
    const struct divergence few = finish(p, 2, 1);
    for (int i = 0; i < DEPTHS; i++) {
        assert_int_equal(few.depth[i].to - few.depth[i].from, i == DEPTHS - 1);
        assert_int_equal(isnan(few.depth[i].mean), i < DEPTHS - 1);
    }
}

static void test_greedy_median(void **state)
{
    (void)state;
    static const struct {
        int same[5], prompts, diverged;
        double median;
    } CASES[] = {
        { { 3 }, 1, 1, 3 },
        { { 9, 3, 5 }, 3, 3, 5 },
        { { 9, 3, 5, 6 }, 4, 4, 5.5 },
        { { -1 }, 1, 0, NAN },
        { { -1, 3, 5 }, 3, 2, 5 },
        { { -1, -1, 5 }, 3, 1, NAN },
        { { 0, -1, -1, 8, 2 }, 5, 3, 8 },
        { { 4, -1, 2, -1 }, 4, 2, NAN },
        { { 0 }, 0, 0, NAN },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct greedy_divergence g;
        int same[5];
        memcpy(same, CASES[i].same, sizeof same);
        greedy_divergence_finish(&g, same, CASES[i].prompts, 32);
        assert_int_equal(g.prompts, CASES[i].prompts);
        assert_int_equal(g.diverged, CASES[i].diverged);
        assert_int_equal(g.limit, 32);
        if (isnan(CASES[i].median))
            CHECK_NAN(g.median);
        else
            CHECK_NEAR(g.median, CASES[i].median, 1e-12);
    }
}

static void test_json(void **state)
{
    (void)state;
    struct position p[40];
    for (int i = 0; i < 40; i++)
        p[i] = (struct position){ 0.01 * i, 1 + 0.1 * i, 1.3 + 0.07 * i, i % 3 > 0, i % 2 > 0, i % 5 > 0 };
    struct divergence d = finish(p, 4, 10), back;
    d.greedy = (struct greedy_divergence){ .prompts = 7, .diverged = 5, .limit = 64, .median = 11.5 };
    json_t *o = divergence_to_json(&d);
    divergence_from_json(&back, o);
    json_t *again = divergence_to_json(&back);
    assert_true(json_equal(o, again));
    CHECK_NEAR(back.kld_mean, d.kld_mean, 0);
    CHECK_NEAR(back.reference.nll, d.reference.nll, 0);
    CHECK_NEAR(back.candidate.ppl_se, d.candidate.ppl_se, 0);
    CHECK_NEAR(back.depth[3].mean, d.depth[3].mean, 0);
    assert_int_equal(back.only_candidate_right, d.only_candidate_right);
    assert_int_equal(back.candidate.chunks, 4);
    assert_int_equal(back.greedy.limit, 64);
    CHECK_NAN(back.kld_p99); /* null in JSON: 40 values are too few */
    json_decref(o);
    json_decref(again);
    o = json_object(); /* an empty object: all values unknown */
    divergence_from_json(&back, o);
    CHECK_NAN(back.kld_mean);
    CHECK_NAN(back.depth[0].mean);
    CHECK_EQ(back.candidate.chunks, -1);
    json_decref(o);
}

/* ---------------------------------------------------------------- models */

static char *read_shared(const char *name, size_t *n)
{
    struct err why = { 0 };
    char path[4096], *text;
    data_path(path, sizeof path, "%s", name);
    CHECK_OK(file_read(&text, n, path, 1 << 24, &why));
    return text;
}

static void test_side_by_side(void **state)
{
    (void)state;
    struct err why = { 0 };
    char path[4096];
    SHARED_OR_SKIP(path, EXCERPT);
    SHARED_OR_SKIP(path, STORIES);
    size_t n;
    char *text = read_shared(EXCERPT, &n);
    struct eval_request r = { .text = text, .n = 6000, .ctx = 64, .max_chunks = 20 };
    struct model *a = session_open(path, EXACT, 64, 1),
                 *b = session_open(path, "precision=highest,threads=1,batch=5,kv=bf16", 64, 1);
    struct perplexity alone_a, alone_b;
    struct divergence d;
    CHECK_OK(eval_perplexity(&alone_a, a, text, r.n, r.ctx, r.max_chunks, NULL, NULL, &why));
    CHECK_OK(eval_perplexity(&alone_b, b, text, r.n, r.ctx, r.max_chunks, NULL, NULL, &why));
    CHECK_OK(eval_divergence(&d, a, b, &r, &why));
    const struct perplexity *const pairs[][2] = { { &alone_a, &d.reference }, { &alone_b, &d.candidate } };
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        const struct perplexity *alone = pairs[i][0], *beside = pairs[i][1];
        assert_int_equal(beside->chunks, 20);
        assert_int_equal(beside->scored, 20 * 31);
        CHECK_NEAR(beside->nll, alone->nll, 1e-7);
        CHECK_NEAR(beside->nll_se, alone->nll_se, 1e-7);
        CHECK_NEAR(beside->ppl_se_token, alone->ppl_se_token, 1e-6);
    }
    CHECK_LT(0, d.kld_mean);
    CHECK_LE(d.kld_p50, d.kld_p90);
    CHECK_LE(d.kld_p90, d.kld_p99);
    CHECK_LE(d.kld_p99, d.kld_max);
    CHECK_LT(d.log_ratio_se, d.reference.nll_se); /* pairing reduces the error */
    CHECK_NEAR(d.log_ratio, alone_b.nll - alone_a.nll, 1e-7);
    assert_int_equal(d.greedy.prompts, 0); /* not requested */
    model_close(b);
    b = session_open(path, EXACT, 64, 1);
    r.greedy_prompts = 30; /* more than there are windows */
    r.greedy_tokens = 40;  /* more than half a window */
    CHECK_OK(eval_divergence(&d, a, b, &r, &why));
    assert_int_equal(d.greedy.prompts, 20);
    assert_int_equal(d.greedy.limit, 32);
    assert_int_equal(d.greedy.diverged, 0);
    CHECK_EQ(d.kld_max, 0);
    CHECK_EQ(d.kld_mean, 0);
    CHECK_EQ(d.top1_ratio, 1);
    CHECK_EQ(d.log_ratio, 0);
    CHECK_EQ(d.log_ratio_se, 0);
    model_close(a);
    model_close(b);
    free(text);
}

/* Generate with two models separately: the common beginnings of their greedy texts have the lengths that the
 * comparison in step reports. */
static void test_greedy_texts(void **state)
{
    (void)state;
    enum { PROMPTS = 6, CTX = 64, LIMIT = 24 };
    struct err why = { 0 };
    char path[4096];
    SHARED_OR_SKIP(path, EXCERPT);
    SHARED_OR_SKIP(path, STORIES);
    size_t n;
    char *text = read_shared(EXCERPT, &n);
    struct model *m[2] = { session_open(path, EXACT, CTX, 1),
                           session_open(path, "q4_0,kv=f32,threads=1,precision=highest", CTX, 1) };
    const struct eval_request r = { .text = text,
                                    .n = 6000,
                                    .ctx = CTX,
                                    .max_chunks = PROMPTS,
                                    .greedy_prompts = PROMPTS,
                                    .greedy_tokens = LIMIT };
    struct divergence d;
    struct windows w;
    int same[PROMPTS];
    CHECK_OK(eval_divergence(&d, m[0], m[1], &r, &why));
    CHECK_OK(windows_cut(&w, m[0], &r, &why));
    for (int i = 0; i < PROMPTS; i++) {
        int32_t said[2][LIMIT];
        for (int k = 0; k < 2; k++) {
            struct batch_row rows[CTX / 2];
            rows_of(rows, windows_get(&w, i), CTX / 2, 0, 0);
            model_truncate(m[k], 0, 0);
            CHECK_OK(model_forward(m[k], rows, CTX / 2, &why));
            const float *logits = model_logits(m[k], CTX / 2 - 1);
            for (int t = 0; t < LIMIT; t++) {
                said[k][t] = 0;
                for (int id = 1; id < model_shape(m[k])->vocab; id++)
                    if (logits[id] > logits[said[k][t]]) said[k][t] = id;
                rows[0] = (struct batch_row){ .token = said[k][t], .pos = CTX / 2 + t, .logits = true };
                CHECK_OK(model_forward(m[k], rows, 1, &why));
                logits = model_logits(m[k], 0);
            }
        }
        same[i] = 0;
        while (same[i] < LIMIT && said[0][same[i]] == said[1][same[i]]) same[i]++;
        if (same[i] == LIMIT) same[i] = -1;
    }
    struct greedy_divergence alone;
    greedy_divergence_finish(&alone, same, PROMPTS, LIMIT);
    print_message("%d of %d greedy texts differ, median %.1f\n", alone.diverged, PROMPTS, alone.median);
    assert_int_equal(d.greedy.diverged, alone.diverged);
    CHECK_LT(PROMPTS / 2, alone.diverged);
    CHECK_NEAR(d.greedy.median, alone.median, 0);
    windows_done(&w);
    model_close(m[0]);
    model_close(m[1]);
    free(text);
}

static bool count_until(void *arg, int64_t chunk, int64_t of, double nll)
{
    int *calls = arg;
    CHECK_LE(chunk, of);
    CHECK(isfinite(nll));
    return ++*calls < 2;
}

/* A copy of STORIES with some bytes changed, opened. */
static struct model *open_changed(void (*change)(char *bytes, size_t n))
{
    char path[] = "/tmp/qdyno-test-divergence-XXXXXX";
    size_t n;
    char *bytes = read_shared(STORIES, &n);
    const int fd = mkstemp(path);
    CHECK_GE(fd, 0);
    change(bytes, n);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
    free(bytes);
    struct model *m = session_open(path, EXACT, 64, 1);
    unlink(path); /* the open file stays readable */
    return m;
}

static char *find(char *bytes, size_t n, const char *what)
{
    char *at = memmem(bytes, n, what, strlen(what));
    assert_non_null(at);
    return at;
}

static void change_piece(char *bytes, size_t n)
{
    memcpy(find(bytes, n, "\342\226\201with"), "\342\226\201wiTh", 7);
}

static void change_key(char *bytes, size_t n)
{
    memcpy(find(bytes, n, "tokenizer.ggml.model"), "tokenizer.ggml.mocel", 20);
}

/* Change the scores, so that merges prefer other pieces. */
static void change_scores(char *bytes, size_t n)
{
    static const char KEY[] = "tokenizer.ggml.scores";
    char *scores = find(bytes, n, KEY) + strlen(KEY) + 4 + 4 + 8; /* type, type of elements, their number */
    for (int i = 259; i < 512; i++) {
        const float score = (float)(i - 1000);
        memcpy(scores + (size_t)i * sizeof score, &score, sizeof score);
    }
}

static void change_weights(char *bytes, size_t n)
{
    /* NaN in the last matrix. A NaN in a norm or bias would be rejected when loading. */
    memset(bytes + n - 8192, 0xff, 4096);
}

static void test_refusals(void **state)
{
    (void)state;
    char path[4096], tiny[4096];
    SHARED_OR_SKIP(path, EXCERPT);
    SHARED_OR_SKIP(tiny, TINY);
    SHARED_OR_SKIP(path, STORIES);
    size_t n;
    int calls = 0;
    char *text = read_shared(EXCERPT, &n);
    struct model *m = session_open(path, EXACT, 64, 1), *twin = session_open(path, EXACT, 64, 1);
    struct model *others[] = { session_open(tiny, EXACT, 64, 1),
                               open_changed(change_key),
                               open_changed(change_piece),
                               open_changed(change_scores),
                               open_changed(change_weights),
                               twin,
                               twin,
                               twin };
    const struct {
        struct eval_request r;
        enum err_code rc;
        const char *says;
    } CASES[] = {
        { { .text = text, .n = 4000, .ctx = 64 },
          ERR_USAGE,
          "vocabulary of 512 tokens, the candidate of 2048" },
        { { .text = text, .n = 4000, .ctx = 64 }, ERR_USAGE, "the candidate has no usable tokenizer" },
        { { .text = text, .n = 4000, .ctx = 64 }, ERR_USAGE, "' wiTh' in the candidate" },
        { { .text = text, .n = 4000, .ctx = 64 }, ERR_USAGE, "of the text is id" },
        { { .text = text, .n = 4000, .ctx = 64 }, ERR_FORMAT, "candidate: position" },
        { { .text = "Too short.", .n = 10, .ctx = 64 }, ERR_USAGE, "need 128" },
        { { .text = text, .n = 4000, .ctx = 65 }, ERR_USAGE, "expected 4 to 64" },
        { { .text = text, .n = 4000, .ctx = 16, .progress = count_until, .arg = &calls },
          ERR_CANCELLED,
          "cancelled" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct err why = { 0 };
        struct divergence d;
        const enum err_code rc = eval_divergence(&d, m, others[i], &CASES[i].r, &why);
        print_message("%s\n", why.message);
        assert_int_equal(rc, CASES[i].rc);
        assert_non_null(strstr(why.message, CASES[i].says));
        if (others[i] != twin) model_close(others[i]);
    }
    assert_int_equal(calls, 2);
    model_close(m);
    model_close(twin);
    free(text);
}

/* Cached windows are not computed again (this reference could not compute them any more), and all figures are
 * the same as without the cache: also for more windows than before, and after another text. */
static void test_recall(void **state)
{
    (void)state;
    struct err why = { 0 };
    char path[4096];
    SHARED_OR_SKIP(path, EXCERPT);
    SHARED_OR_SKIP(path, STORIES);
    size_t n;
    char *text = read_shared(EXCERPT, &n);
    struct logit_cache logit_cache = { 0 };
    struct model *a = session_open(path, EXACT, 64, 1), *mute = open_changed(change_weights),
                 *b = session_open(path, "q4_0,threads=1,precision=highest", 64, 1);
    struct eval_request r = { .text = text, .n = 4000, .ctx = 64, .max_chunks = 4 };
    struct divergence fresh, kept;
    CHECK_OK(eval_divergence(&fresh, a, b, &r, &why));
    r.logit_cache = &logit_cache;
    CHECK_OK(eval_divergence(&kept, a, b, &r, &why));
    assert_int_equal(logit_cache.windows, 4);
    for (int round = 0; round < 2; round++) {
        json_t *x = divergence_to_json(&fresh), *y = divergence_to_json(&kept);
        assert_true(json_equal(x, y));
        json_decref(x);
        json_decref(y);
        if (!round) CHECK_OK(eval_divergence(&kept, mute, b, &r, &why));
    }
    r.max_chunks = 6;
    CHECK_EQ(eval_divergence(&kept, mute, b, &r, &why), ERR_FORMAT); /* the fifth window is not cached */
    CHECK_OK(eval_divergence(&kept, a, b, &r, &why));
    assert_int_equal(logit_cache.windows, 6);
    r.logit_cache = NULL;
    CHECK_OK(eval_divergence(&fresh, a, b, &r, &why));
    CHECK_NEAR(kept.kld_mean, fresh.kld_mean, 0);
    r.logit_cache = &logit_cache;
    r.ctx = 32; /* another window size clears the cache */
    CHECK_EQ(eval_divergence(&kept, mute, b, &r, &why), ERR_FORMAT);
    assert_int_equal(logit_cache.windows, 0);
    logit_cache_done(&logit_cache);
    model_close(a);
    model_close(b);
    model_close(mute);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_position),      cmocka_unit_test(test_position_extremes),
        cmocka_unit_test(test_clustered),     cmocka_unit_test(test_agreement),
        cmocka_unit_test(test_quantiles),     cmocka_unit_test(test_depth),
        cmocka_unit_test(test_greedy_median), cmocka_unit_test(test_json),
        cmocka_unit_test(test_side_by_side),  cmocka_unit_test(test_greedy_texts),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_recall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
