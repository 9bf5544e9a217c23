/* Proves: workload lines are parsed and written consistently, and others refused; a cell does exactly the
 * work that its hash identifies, the same for the same seed, in any batch size; sequences that run side by
 * side give the same output as alone; a cell can be cancelled. */
#include <unistd.h>

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/model/model.h"
#include "engine/text/text.h"
#include "engine/train/corpus.h"
#include "engine/worker/worker.h"
#include "kernels/kernels.h"
#include "tests/engine/session.h"

#define STORIES "models/repacked/stories260K-f32.gguf"

static void test_grammar(void **state)
{
    (void)state;
    static const struct {
        const char *text, *line;
        int prompt, gen, depth, sequences, ctx;
    } GOOD[] = {
        { "pp512", "pp512", 512, 0, 0, 1, 512 },
        { "tg128", "tg128", 0, 128, 0, 1, 128 },
        { "pp512+tg128@d4096", "pp512+tg128@d4096", 512, 128, 4096, 1, 4736 },
        { "tg1@d0", "tg1", 0, 1, 0, 1, 1 },
        { "pp007", "pp7", 7, 0, 0, 1, 7 },
        { "tg64@b16", "tg64@b16", 0, 64, 0, 16, 64 },
        { "pp128+tg64@b1", "pp128+tg64", 128, 64, 0, 1, 192 },
        { "pp128+tg64@d32@b4", "pp128+tg64@d32@b4", 128, 64, 32, 4, 224 },
    };
    struct err why = { 0 };
    struct workload w;
    char line[600];
    for (size_t i = 0; i < COUNT_OF(GOOD); i++) {
        CHECK_OK(workload_parse(&w, GOOD[i].text, &why));
        assert_int_equal(w.prompt, GOOD[i].prompt);
        assert_int_equal(w.gen, GOOD[i].gen);
        assert_int_equal(w.depth, GOOD[i].depth);
        assert_int_equal(workload_sequences(&w), GOOD[i].sequences);
        assert_int_equal(workload_ctx(&w), GOOD[i].ctx);
        assert_string_equal(workload_line(&w, line, sizeof line), GOOD[i].line);
    }
    static const char *const BAD[] = {
        "",       "pp",    "tg0",  "pp-1",      "pp512+",     "tg128+pp512", "pp512tg1", "pp1+tg1x",
        "pp1@4",  "pp1@d", "tg1 ", "@d5",       "pp99999999", "eval:",       "pp1.5",    "pp1+tg16777216",
        "tg1@b0", "tg1@b", "@b2",  "tg1@b2@d3", "tg1@b2@b2",  "tg2@b9999999"
    };
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        if (workload_parse(&w, BAD[i], &why) != ERR_USAGE) fail_msg("'%s' was taken", BAD[i]);
        assert_non_null(strstr(why.message, "expected ppN, tgN"));
    }
}

static void test_eval_grammar(void **state)
{
    (void)state;
    static const struct {
        const char *text, *file;
        int ctx;
    } GOOD[] = { { "eval:a/b.txt", "a/b.txt", 512 },
                 { "eval:b.txt@c128", "b.txt", 128 },
                 { "eval:me@home.txt", "me@home.txt", 512 },
                 { "eval:x@c12@c64", "x@c12", 64 },
                 { "eval:x@cat", "x@cat", 512 } };
    struct err why = { 0 };
    struct workload w;
    char line[600];
    for (size_t i = 0; i < COUNT_OF(GOOD); i++) {
        CHECK_OK(workload_parse(&w, GOOD[i].text, &why));
        assert_string_equal(w.eval_file, GOOD[i].file);
        assert_int_equal(w.eval_ctx, GOOD[i].ctx);
        assert_string_equal(workload_line(&w, line, sizeof line), GOOD[i].text);
    }
}

static void test_prompts_grammar(void **state)
{
    (void)state;
    static const struct {
        const char *text, *file;
    } GOOD[] = { { "pp512@prompts:a.jsonl", "a.jsonl" },
                 { "pp512+tg128@d4096@b16@prompts:/x y/a,b@d3.txt", "/x y/a,b@d3.txt" },
                 { "tg8@prompts:@prompts:x", "@prompts:x" } };
    struct err why = { 0 };
    struct workload w;
    char line[WORKLOAD_LINE], longest[600], text[700];
    for (size_t i = 0; i < COUNT_OF(GOOD); i++) {
        CHECK_OK(workload_parse(&w, GOOD[i].text, &why));
        CHECK_STR(workload_prompts(&w), GOOD[i].file);
        CHECK_STR(workload_line(&w, line, sizeof line), GOOD[i].text);
    }
    CHECK_EQ(workload_parse(&w, "pp5@prompts:", &why), ERR_USAGE);
    CHECK_EQ(workload_parse(&w, "pp5@prompts:x@b0x", &why), ERR_OK); /* all of it is the name */
    memset(longest, 'f', sizeof longest);
    longest[sizeof w.prompts - 1] = '\0';
    snprintf(text, sizeof text, "pp16777+tg16777@d16777@b300@prompts:%s", longest);
    CHECK_OK(workload_parse(&w, text, &why));
    CHECK_STR(workload_line(&w, line, sizeof line), text); /* the longest line fits */
    snprintf(text, sizeof text, "pp5@prompts:%sx", longest);
    CHECK_EQ(workload_parse(&w, text, &why), ERR_USAGE);

    CHECK_OK(workload_parse_prompts(&w, "pp5+tg3", "a b", &why));
    CHECK_STR(workload_line(&w, line, sizeof line), "pp5+tg3@prompts:a b");
    CHECK_OK(workload_parse_prompts(&w, "pp5+tg3", NULL, &why));
    CHECK_STR(workload_prompts(&w), "");
    CHECK_OK(workload_parse_prompts(&w, "load:rate=4,ctx=9", "a", &why)); /* longer prompts are cut to it */
    CHECK_OK(workload_parse_prompts(&w, "load:rate=4,requests=9", "a, b.txt", &why));
    CHECK_STR(workload_line(&w, line, sizeof line), "load:rate=4,requests=9,prompts=\"a, b.txt\"");
    static const struct {
        const char *text, *file, *says;
    } BAD[] = { { "eval:x", "a", "takes no prompts" },
                { "train5", "a", "takes no prompts" },
                { "pp5@prompts:b", "a", "names a file of prompts itself" },
                { "load:rate=4,prompts=b", "a", "prompts is given twice" },
                { "load:rate=4,turns=2", "a", "leave trace, prefix and turns out" },
                { "load:trace=t.csv", "a", "leave trace, prefix and turns out" },
                { "load:rate=4", "a\"b", "has a quote" },
                { "pp5", "", "expected 1 to" } };
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        CHECK_EQ(workload_parse_prompts(&w, BAD[i].text, BAD[i].file, &why), ERR_USAGE);
        CHECK_CONTAINS(why.message, BAD[i].says);
    }
    struct config c; /* llama-bench makes its own prompts */
    CHECK_OK(config_parse(&c, "engine=llama-bench", &why));
    CHECK_OK(workload_parse(&w, "pp5@prompts:a", &why));
    CHECK_EQ(workload_check(&w, &c, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "leave @prompts out");
    CHECK_OK(config_parse(&c, "engine=llama-server", &why));
    CHECK_OK(workload_check(&w, &c, &why));
}

static struct cell_result run(struct model *m, const char *text, uint64_t seed)
{
    struct err why = { 0 };
    struct workload w;
    struct cell_result r;
    CHECK_OK(workload_parse(&w, text, &why));
    CHECK_OK(cell_run(&r, m, &w, seed, NULL, &why));
    return r;
}

/* Steps of training, and which settings mean something to which workload. */
static void test_training_grammar(void **state)
{
    (void)state;
    static const struct {
        const char *workload, *config, *refused; /* NULL: fits */
    } CASES[] = {
        { "train20", "default", NULL },
        { "train20", "amp=off,checkpoint_every=2,threads=1,isa=ref", NULL },
        { "train20", "trim_every=1,train_batch=4,accumulate=4", NULL },
        { "train20", "q8_0", "format=q8_0 does not matter for train20" },
        { "train20", "ctx=64",
          "keys that do: threads isa parallel hosts grid_gco2_per_kwh amp train_optimizer checkpoint_every" },
        { "train20", "parallel=dp2", NULL },
        { "train20", "parallel=dp4", "a power of 2 that divides accumulate" },
        { "train20", "parallel=dp2,accumulate=3", "a step's 3 batches" },
        { "train20", "parallel=tp2", "expected off or dpN" },
        { "train20", "model=x.gguf", "model=x.gguf does not matter" },
        { "tg4", "q8_0,threads=1", NULL },
        { "tg4", "amp=bf16", "amp=bf16 is a setting for training, and tg4 does not train" },
        { "eval:x", "trim_every=1", "trim_every=1 is a setting for training" }
    };
    struct err why = { 0 };
    char line[64];
    struct workload w;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct config c;
        CHECK_OK(workload_parse(&w, CASES[i].workload, &why));
        assert_string_equal(workload_line(&w, line, sizeof line), CASES[i].workload);
        CHECK_OK(config_parse(&c, CASES[i].config, &why));
        const enum err_code rc = workload_check(&w, &c, &why);
        assert_int_equal(rc, CASES[i].refused ? ERR_USAGE : ERR_OK);
        if (CASES[i].refused && !strstr(why.message, CASES[i].refused))
            fail_msg("%s on %s: '%s' lacks '%s'", CASES[i].config, CASES[i].workload, why.message,
                     CASES[i].refused);
    }
    CHECK_OK(workload_parse(&w, "train020", &why));
    assert_int_equal(w.train, 20);
    assert_int_equal(workload_sequences(&w), 1);
    static const char *const WRONG[] = { "train", "train0", "train-1", "train5x", "train5@d1", "train5+tg1" };
    for (size_t i = 0; i < COUNT_OF(WRONG); i++)
        assert_int_equal(workload_parse(&w, WRONG[i], &why), ERR_USAGE);
}

static void test_cell(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, STORIES);
    struct model *m = session_open(path, EXACT, 256, 1),
                 *small = session_open(path, EXACT ",batch=7", 256, 1);
    struct cell_result a = run(m, "pp40+tg20@d30", 1), b = run(small, "pp40+tg20@d30", 1),
                       c = run(m, "pp40+tg20@d30", 2), d = run(m, "pp40+tg21@d30", 1),
                       again = run(m, "pp40+tg20@d30", 1);
    assert_int_equal(a.prompt_tokens, 40);
    assert_int_equal(a.gen_tokens, 20);
    assert_string_equal(a.work_hash, b.work_hash);
    assert_string_equal(a.output_hash, b.output_hash);
    assert_string_equal(a.work_hash, again.work_hash);
    assert_string_equal(a.output_hash, again.output_hash);
    assert_string_not_equal(a.work_hash, c.work_hash);
    assert_string_not_equal(a.work_hash, d.work_hash);
    assert_int_equal(strlen(a.work_hash), 16);
    double sum = 0;
    for (int i = 0; i < a.gen_tokens; i++) {
        CHECK_LT(0, a.itl_s[i]);
        sum += (double)a.itl_s[i];
    }
    CHECK_NEAR(sum, a.decode_s, 1e-9);
    CHECK_LT(0, a.prefill_s);
    CHECK_LE(a.prefill_s, a.ttft_s);
    CHECK_NAN(a.perplexity);
    CHECK_NAN(a.nll);
    assert_int_equal(model_length(m, 0), 0);
    struct cell_result *const ALL[] = { &a, &b, &c, &d, &again };
    for (size_t i = 0; i < COUNT_OF(ALL); i++) cell_result_free(ALL[i]);

    /* A phase that was not asked for has no time, not a time of zero. */
    struct cell_result pp = run(m, "pp16", 0), tg = run(m, "tg16", 0);
    CHECK_LT(0, pp.prefill_s);
    CHECK_NAN(pp.decode_s);
    CHECK_EQ(pp.gen_tokens, 0);
    CHECK_EQ(pp.output_hash[0], '\0');
    CHECK_NAN(tg.prefill_s);
    CHECK_NAN(tg.ttft_s);
    CHECK_LT(0, tg.decode_s);
    CHECK_EQ(tg.prompt_tokens, 0);
    CHECK_EQ(pp.n_spans, 1);
    assert_string_equal(pp.spans[0].name, "prefill");
    CHECK_EQ(tg.n_spans, 1);
    assert_string_equal(tg.spans[0].name, "decode");
    CHECK_LE(tg.decode_s, (double)(tg.spans[0].to_ns - tg.spans[0].from_ns) * 1e-9);
    cell_result_free(&pp);
    cell_result_free(&tg);
    model_close(small);
    model_close(m);
}

/* Stored results are compared by these: prompts that fit into the sample must stay what they were before
 * there was a longer text. */
static void test_known_hashes(void **state)
{
    (void)state;
    static const struct {
        const char *workload, *hash;
        int sequences;
    } KNOWN[] = { { "pp40+tg20@d30", "8b89bc8e501209b6", 1 }, { "pp40+tg12@d16@b5", "84df50e4a8e2b1eb", 5 } };
    char path[4096];
    SHARED_OR_SKIP(path, STORIES);
    struct model *m = session_open(path, EXACT, 128, 5);
    for (size_t i = 0; i < COUNT_OF(KNOWN); i++) {
        struct cell_result r = run(m, KNOWN[i].workload, 1);
        CHECK_STR(r.work_hash, KNOWN[i].hash);
        CHECK(!r.prompts.repeats);
        cell_result_free(&r);
    }
    model_close(m);
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* A prompt of 32768 tokens contains no part twice that is longer than a story; one beyond the text says so.
 */
static void test_long_prompts(void **state)
{
    (void)state;
    enum { DEPTH = 32768, WINDOW = 400 };
    char path[4096];
    struct err why = { 0 };
    struct prompt_source s;
    struct workload w;
    SHARED_OR_SKIP(path, STORIES);
    struct model *m = session_open(path, EXACT, 128, 1);
    CHECK_OK(prompt_source_open(&s, model_gguf(m), model_tokenizer(m), 512, &why));
    const int64_t sample = s.text.n;
    CHECK_EQ(s.sample, sample);
    int32_t *ids = malloc((DEPTH + 1) * sizeof *ids);
    uint64_t *hash = calloc(DEPTH, sizeof *hash);
    CHECK(ids && hash);
    CHECK_OK(workload_parse(&w, "tg1@d64", &why));
    CHECK_OK(prompt_source_fill(ids, &s, &w, 1, &why));
    CHECK_EQ(s.text.n, sample); /* the long text was not read */
    w.depth = DEPTH;
    CHECK_OK(prompt_source_fill(ids, &s, &w, 1, &why));
    CHECK(!s.facts.repeats);
    CHECK_GT(s.text.n, DEPTH + sample);
    const int n = DEPTH + 1 - WINDOW;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < WINDOW; k++) hash[i] = hash_next(hash[i] ^ (uint64_t)ids[i + k]);
    qsort(hash, (size_t)n, sizeof *hash, by_value);
    for (int i = 1; i < n; i++) CHECK_NE(hash[i - 1], hash[i]);
    w.depth = (int)s.text.n + 1;
    int32_t *more = malloc(((size_t)w.depth + 1) * sizeof *more);
    CHECK(more);
    CHECK_OK(prompt_source_fill(more, &s, &w, 1, &why));
    CHECK(s.facts.repeats);
    CHECK_EQ(more[w.depth], more[w.depth - (int)s.text.n]);
    free(more);
    free(hash);
    free(ids);
    prompt_source_close(&s);
    model_close(m);
}

/* A token of any tokenizer is at most a word, so as many words are enough. */
static void test_long_text_has_words(void **state)
{
    (void)state;
    struct err why = { 0 };
    char *path, *text, *rest = NULL;
    int words = 0;
    CHECK_OK(file_share(&path, "text/prompts.txt", &why));
    CHECK_OK(file_read(&text, NULL, path, 1 << 24, &why));
    for (char *word = strtok_r(text, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest)) words++;
    CHECK_GT(words, 2 * 32768);
    free(text);
    free(path);
}

static void prompts_write(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    CHECK(f);
    CHECK_GE(fputs(text, f), 0);
    CHECK_EQ(fclose(f), 0);
}

/* Prompts of one's own: exactly the tokens that are asked for, the same for each seed, wherever the file
 * lies. */
static void test_own_prompts(void **state)
{
    (void)state;
    char path[4096], file[2][4200], line[4300];
    struct err why = { 0 };
    SHARED_OR_SKIP(path, STORIES);
    for (int i = 0; i < 2; i++)
        snprintf(file[i], sizeof file[i], "%s/tests/own-%d-%d.jsonl", TEST_BUILD_DIR, i, (int)getpid());
    prompts_write(file[0], "{\"prompt\": \"Once upon a time there was a little girl.\"}\n"
                           "{\"prompt\": \"A dog ran to the park with a big red ball.\"}\n"
                           "{\"prompt\": \"Tim and Mom went home.\"}\n");
    prompts_write(file[1], "{\"prompt\": \"Once upon a time there was a little girl.\"}\n"
                           "{\"prompt\": \"A dog ran to the park with a big red ball.\"}\n"
                           "{\"prompt\": \"Tim and Mom went home.\"}\n");
    struct model *m = session_open(path, EXACT, 256, 2),
                 *small = session_open(path, EXACT ",batch=7", 256, 2);
    snprintf(line, sizeof line, "pp20+tg4@b2@prompts:%s", file[0]);
    struct cell_result a = run(m, line, 1), b = run(small, line, 1), c = run(m, line, 2);
    snprintf(line, sizeof line, "pp20+tg4@b2@prompts:%s", file[1]);
    struct cell_result d = run(m, line, 1);
    CHECK_EQ(a.prompt_tokens, 40);
    CHECK_STR(a.work_hash, b.work_hash);
    CHECK_STR(a.output_hash, b.output_hash);
    CHECK_STR(a.work_hash, d.work_hash);
    CHECK_STR_NE(a.work_hash, c.work_hash);
    CHECK_EQ(a.prompts.count, 3);
    CHECK_EQ(a.prompts.used, 3);
    CHECK_STR(a.prompts.file, path_file_name(file[0]));
    CHECK_STR(a.prompts.sha256, d.prompts.sha256);
    snprintf(line, sizeof line, "pp100@prompts:%s", file[0]);
    struct cell_result longer = run(m, line, 1);
    CHECK(longer.prompts.repeats);
    prompts_write(file[1], "{\"prompt\": \"changed\"}");
    snprintf(line, sizeof line, "pp20+tg4@b2@prompts:%s", file[1]);
    struct cell_result e = run(m, line, 1);
    CHECK_STR_NE(e.work_hash, a.work_hash);
    CHECK(e.prompts.repeats);
    struct cell_result *const ALL[] = { &a, &b, &c, &d, &e, &longer };
    for (size_t i = 0; i < COUNT_OF(ALL); i++) cell_result_free(ALL[i]);
    struct workload w;
    prompts_write(file[1], "{\"prompt\": \"fine\"}\n{\"prompt\": 3}");
    CHECK_OK(workload_parse(&w, line, &why));
    CHECK_EQ(cell_run(&a, m, &w, 1, NULL, &why), ERR_FORMAT);
    CHECK_CONTAINS(why.message, "line 2: prompt is no text");
    for (int i = 0; i < 2; i++) CHECK_EQ(unlink(file[i]), 0);
    model_close(small);
    model_close(m);
}

/* What greedy decoding says after `n` ids, alone in a session: next[count]. */
static void decode_alone(struct model *m, const int32_t *ids, int n, int32_t *next, int count)
{
    struct err why = { 0 };
    const int64_t vocab = model_shape(m)->vocab;
    int32_t id = 0;
    model_truncate(m, 0, 0);
    for (int i = 0; i < n + count - 1; i++) {
        const struct batch_row row = { .token = i < n ? ids[i] : id, .pos = i, .logits = true };
        CHECK_OK(model_forward(m, &row, 1, &why));
        id = 0;
        for (int32_t v = 1; v < vocab; v++)
            if (model_logits(m, 0)[v] > model_logits(m, 0)[id]) id = v;
        if (i >= n - 1) next[i - n + 1] = id;
    }
}

/* Where in the bundled text a seed leads to; the next sequence's place follows from the one before. */
static uint64_t splitmix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

/* Every sequence has a prompt and a cache of its own: together they answer what each answers alone, however
 * prompts are cut into batches. */
static void test_side_by_side(void **state)
{
    (void)state;
    enum { SEQUENCES = 5, PROMPT = 40, GEN = 12, IDS = 16 + PROMPT };
    struct err why = { 0 };
    char path[4096], hex[HASH_HEX], *sample, *text;
    size_t n;
    SHARED_OR_SKIP(path, STORIES);
    struct model *one = session_open(path, EXACT, 128, 1), *m = session_open(path, EXACT, 128, SEQUENCES + 1),
                 *small = session_open(path, EXACT ",batch=7", 128, SEQUENCES);
    struct token_list words = { 0 };
    CHECK_OK(file_share(&sample, "text/sample.txt", &why));
    CHECK_OK(file_read(&text, &n, sample, 1 << 24, &why));
    CHECK_OK(tokenizer_encode(model_tokenizer(m), text, n, 0, &words, &why));
    int32_t want[SEQUENCES][GEN], all[GEN + 1];
    uint64_t start = splitmix(5);
    for (int s = 0; s < SEQUENCES; s++, start = splitmix(start)) {
        int32_t ids[IDS] = { 1 }; /* BOS */
        for (int i = 1; i < IDS; i++) ids[i] = words.ids[(start + (uint64_t)i - 1) % (uint64_t)words.n];
        decode_alone(one, ids, IDS, all, GEN + 1);
        memcpy(want[s], all + 1, sizeof want[s]); /* the first is the prompt's own, not decoding's */
    }
    hash_bytes(want, sizeof want, hex);
    struct cell_result a = run(m, "pp40+tg12@d16@b5", 5), b = run(small, "pp40+tg12@d16@b5", 5),
                       c = run(m, "pp40+tg12@d16@b2", 5), d = run(m, "pp40+tg12@d16", 5),
                       alone = run(one, "pp40+tg12@d16", 5);
    assert_memory_equal(a.output_hash, hex, 16);
    assert_string_equal(b.output_hash, a.output_hash);
    assert_string_equal(b.work_hash, a.work_hash);
    assert_string_not_equal(c.work_hash, a.work_hash);
    assert_string_equal(d.work_hash, alone.work_hash); /* one sequence of many is the old work */
    assert_string_equal(d.output_hash, alone.output_hash);
    assert_int_equal(a.prompt_tokens, SEQUENCES * PROMPT);
    assert_int_equal(a.gen_tokens, SEQUENCES * GEN);
    assert_int_equal(a.steps, GEN);
    assert_int_equal(d.steps, GEN);
    double sum = 0;
    for (int i = 0; i < a.steps; i++) sum += (double)a.itl_s[i];
    CHECK_NEAR(sum, a.decode_s, 1e-9);
    CHECK_LT(0, a.prefill_s);
    CHECK_LE(a.prefill_s, a.ttft_s);
    for (int s = 0; s <= SEQUENCES; s++) assert_int_equal(model_length(m, s), 0);
    struct cell_result *const ALL[] = { &a, &b, &c, &d, &alone };
    for (size_t i = 0; i < COUNT_OF(ALL); i++) cell_result_free(ALL[i]);

    struct workload w;
    struct cell_result r;
    CHECK_OK(workload_parse(&w, "tg4@b7", &why));
    assert_int_equal(cell_run(&r, m, &w, 0, NULL, &why), ERR_USAGE);
    assert_non_null(strstr(why.message, "7 sequences side by side, this session has 6"));
    token_list_free(&words);
    free(sample);
    free(text);
    model_close(one);
    model_close(small);
    model_close(m);
}

/* The answer is what greedy decoding says: the same ids by hand. */
static void test_same_as_by_hand(void **state)
{
    (void)state;
    struct err why = { 0 };
    char path[4096], *text, *sample;
    size_t n;
    SHARED_OR_SKIP(path, STORIES);
    struct model *m = session_open(path, EXACT, 64, 1);
    struct cell_result r = run(m, "pp1+tg5", 9); /* one id of prompt: BOS */
    CHECK_OK(file_share(&sample, "text/sample.txt", &why));
    CHECK_OK(file_read(&text, &n, sample, 1 << 24, &why));
    CHECK_LT(0, n);
    int32_t id = 1, ids[5];
    for (int i = 0; i < 6; i++) {
        const struct batch_row row = { .token = id, .pos = i, .logits = true };
        CHECK_OK(model_forward(m, &row, 1, &why));
        id = 0;
        for (int32_t v = 1; v < 512; v++)
            if (model_logits(m, 0)[v] > model_logits(m, 0)[id]) id = v;
        if (i > 0) ids[i - 1] = id;
    }
    char hex[HASH_HEX];
    hash_bytes(ids, sizeof ids, hex);
    assert_memory_equal(r.output_hash, hex, 16);
    cell_result_free(&r);
    free(text);
    free(sample);
    model_close(m);
}

struct seen {
    int calls, last, of;
    bool prefill, stop;
};

static bool watch(void *ctx, const char *phase, int done, int of, double seconds)
{
    struct seen *s = ctx;
    s->calls++;
    s->last = done;
    s->of = of;
    s->prefill |= !strcmp(phase, "prefill");
    CHECK_LE(done, of);
    CHECK(strcmp(phase, "eval") == 0 || seconds >= 0);
    return !s->stop;
}

struct turns_seen {
    int begun, stop_at;
};

static bool take_turn(void *ctx)
{
    struct turns_seen *s = ctx;
    return ++s->begun != s->stop_at;
}

/* In turns a cell does the same work, says how long each turn took, and leaves the first step of a long turn
 * out of its figures. */
static void test_turns(void **state)
{
    (void)state;
    static const struct {
        int steps, prefill_turns, decode_turns, skipped;
    } CASES[] = { { .steps = 1, .prefill_turns = 2, .decode_turns = 10, .skipped = 0 },
                  { .steps = 3, .prefill_turns = 2, .decode_turns = 4, .skipped = 0 },
                  { .steps = 5, .prefill_turns = 2, .decode_turns = 2, .skipped = 2 } };
    struct err why = { 0 };
    char path[4096];
    SHARED_OR_SKIP(path, STORIES);
    struct model *m = session_open(path, EXACT ",batch=16", 256, 1);
    struct workload w;
    struct cell_result whole = run(m, "pp32+tg10", 3), r;
    CHECK_OK(workload_parse(&w, "pp32+tg10", &why));
    CHECK(!whole.turn_s);
    CHECK_EQ(whole.turns, 0);
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct turns_seen seen = { 0 };
        const struct cell_hooks hooks = {
            .turn = take_turn, .turn_steps = CASES[i].steps, .turn_passes = 1, .ctx = &seen
        };
        CHECK_OK(cell_run(&r, m, &w, 3, &hooks, &why));
        CHECK_EQ(r.prefill_turns, CASES[i].prefill_turns);
        CHECK_EQ(r.turns, CASES[i].prefill_turns + CASES[i].decode_turns);
        CHECK_EQ(seen.begun, r.turns);
        CHECK_EQ(r.skipped_tokens, CASES[i].skipped);
        CHECK_EQ(r.gen_tokens + r.skipped_tokens, 10);
        CHECK_EQ(r.steps, r.gen_tokens);
        assert_string_equal(r.work_hash, whole.work_hash);
        assert_string_equal(r.output_hash, whole.output_hash);
        double sum = 0;
        for (int t = 0; t < r.turns; t++) {
            CHECK(r.turn_s[t] > 0);
            sum += (double)r.turn_s[t];
        }
        CHECK_NEAR(sum, r.prefill_s + r.decode_s, 1e-5);
        cell_result_free(&r);
    }
    struct turns_seen seen = { .stop_at = 4 };
    const struct cell_hooks hooks = { .turn = take_turn, .turn_steps = 1, .turn_passes = 1, .ctx = &seen };
    assert_int_equal(cell_run(&r, m, &w, 3, &hooks, &why), ERR_CANCELLED);
    cell_result_free(&whole);
    model_close(m);
}

static void test_progress(void **state)
{
    (void)state;
    struct err why = { 0 };
    char path[4096], text[4200];
    SHARED_OR_SKIP(path, STORIES);
    struct model *m = session_open(path, EXACT, 256, 1);
    struct workload w;
    struct cell_result r;
    struct seen s = { 0 };
    CHECK_OK(workload_parse(&w, "pp32+tg8", &why));
    CHECK_OK(cell_run(&r, m, &w, 0, &(struct cell_hooks){ .progress = watch, .ctx = &s }, &why));
    CHECK(s.prefill);
    CHECK_LE(2, s.calls);
    CHECK_EQ(s.last, 8);
    CHECK_EQ(s.of, 8); /* the end of a phase is always reported */
    cell_result_free(&r);

    s = (struct seen){ .stop = true };
    assert_int_equal(cell_run(&r, m, &w, 0, &(struct cell_hooks){ .progress = watch, .ctx = &s }, &why),
                     ERR_CANCELLED);
    assert_int_equal(s.calls, 1);
    assert_null(r.itl_s);
    assert_int_equal(model_length(m, 0), 0);

    CHECK_OK(workload_parse(&w, "pp300", &why));
    assert_int_equal(cell_run(&r, m, &w, 0, NULL, &why), ERR_USAGE);
    assert_non_null(strstr(why.message, "context of 300 tokens, this session has 256"));

    /* Quality through the same door. */
    char excerpt[4096];
    SHARED_OR_SKIP(excerpt, "text/gpt2-basic-domain.txt");
    snprintf(text, sizeof text, "eval:%s@c256", excerpt);
    CHECK_OK(workload_parse(&w, text, &why));
    s = (struct seen){ 0 };
    CHECK_OK(cell_run(&r, m, &w, 0, &(struct cell_hooks){ .progress = watch, .ctx = &s }, &why));
    CHECK_LT(1, r.perplexity);
    CHECK_LT(0, r.nll);
    CHECK_LT(0, r.nll_se);
    CHECK_LT(127, r.scored_tokens);
    CHECK_LT(0, s.calls);
    CHECK_LT(0, r.prefill_s);
    CHECK_NAN(r.decode_s);
    cell_result_free(&r);
    model_close(m);
}

/* Weights that are not numbers end a run with a reason, while the prompt is read and while tokens are made.
 */
static void test_damaged(void **state)
{
    (void)state;
    char path[4096], damaged[] = "/tmp/qdyno-test-workload-XXXXXX", *bytes;
    size_t n;
    struct err why = { 0 };
    SHARED_OR_SKIP(path, STORIES);
    CHECK_OK(file_read(&bytes, &n, path, 1 << 24, &why));
    memset(bytes + n - 8192, 0xff,
           4096); /* NaN in the last matrix; a NaN in a vector would be refused when loading */
    const int fd = mkstemp(damaged);
    CHECK_GE(fd, 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
    free(bytes);
    struct model *m = session_open(damaged, EXACT, 256, 2);
    static const char *const TEXTS[] = { "pp4", "tg4", "pp4+tg4@b2" };
    for (size_t i = 0; i < COUNT_OF(TEXTS); i++) {
        struct workload w;
        struct cell_result r;
        CHECK_OK(workload_parse(&w, TEXTS[i], &why));
        assert_int_equal(cell_run(&r, m, &w, 1, NULL, &why), ERR_FORMAT);
        assert_non_null(strstr(why.message, "not numbers"));
    }
    model_close(m);
    unlink(damaged);
}

/* The bundled texts: the sample of the source tree, and the stories that the build makes
 * (share/CMakeLists.txt). */
static int share_fill(const char *share)
{
    enum { STORY_COUNT = 1000 };
    char command[4500], path[300];
    struct corpus *c;
    struct str text = { 0 };
    snprintf(command, sizeof command, "cp '%s/share/text/sample.txt' '%s/text/'", TEST_SOURCE_DIR, share);
    if (system(command) || corpus_open(&c, NULL)) return 1;
    for (uint64_t i = 0; i < STORY_COUNT; i++) {
        corpus_story(c, (struct story_id){ .seed = 1, .split = CORPUS_PROMPTS, .number = i }, &text);
        str_append(&text, "\n");
    }
    corpus_close(c);
    snprintf(path, sizeof path, "%s/text/prompts.txt", share);
    FILE *f = fopen(path, "w");
    const bool ok = f && !text.failed && fputs(str_text(&text), f) >= 0;
    str_free(&text);
    return f && !fclose(f) && ok ? 0 : 1;
}

int main(void)
{
    char share[] = "/tmp/qdyno-test-workload-XXXXXX", path[256];
    if (!mkdtemp(share)) return 1;
    snprintf(path, sizeof path, "mkdir '%s/text'", share);
    if (system(path)) return 1;
    if (share_fill(share)) return 1;
    setenv("QDYNO_SHARE", share, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grammar),
        cmocka_unit_test(test_eval_grammar),
        cmocka_unit_test(test_prompts_grammar),
        cmocka_unit_test(test_known_hashes),
        cmocka_unit_test(test_long_prompts),
        cmocka_unit_test(test_long_text_has_words),
        cmocka_unit_test(test_own_prompts),
        cmocka_unit_test(test_training_grammar),
        cmocka_unit_test(test_cell),
        cmocka_unit_test(test_same_as_by_hand),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_damaged),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(path, sizeof path, "rm -rf '%s'", share);
    return system(path) || failed;
}
