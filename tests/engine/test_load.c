/* Proves: load lines are parsed and written in one spelling, and others refused; arrivals have the mean and
 * the burstiness that was asked for; the list of requests depends on workload and seed only; prompts share
 * what they should and nothing else; traces of three kinds are read; a served load ends with every token of
 * every request. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/config/config.h"
#include "engine/model/model.h"
#include "engine/serve/load.h"
#include "engine/serve/load_trace.h"
#include "tests/engine/session.h"

#define STORIES "models/repacked/stories260K-f32.gguf"

/* ---------------------------------------------------------------- lines */

static void test_lines(void **state)
{
    (void)state;
    static const struct {
        const char *text, *line;
        int ctx;
    } GOOD[] = {
        { "load:rate=4", "load:rate=4,requests=100,in=256,out=64", 320 },
        { "load:rate=4,requests=200,in=512,out=128", "load:rate=4,requests=200,in=512,out=128", 640 },
        { "load:out=8,in=16,rate=0.50", "load:rate=0.5,requests=100,in=16,out=8", 24 },
        { "load:rate=2,burstiness=0.25",
          "load:rate=2,arrivals=gamma,burstiness=0.25,requests=100,in=256,out=64", 320 },
        { "load:rate=2,arrivals=ramp,ctx=512", "load:rate=2,arrivals=ramp,requests=100,in=256,out=64,ctx=512",
          512 },
        { "load:concurrency=8,think=1500ms", "load:concurrency=8,think=1.5,requests=100,in=256,out=64", 320 },
        { "load:concurrency=2,requests=9,turns=3,in=10,out=5,prefix=0.4",
          "load:concurrency=2,requests=9,in=10,out=5,prefix=0.4,turns=3", 45 },
        { "load:rate=1,in=lognormal:100:1", "load:rate=1,requests=100,in=lognormal:100:1,out=64", 2262 },
        { "load:trace=a/b.csv,speed=2", "load:trace=a/b.csv,speed=2", LOAD_TRACE_CTX },
        { "load:trace=\"a, b.csv\",requests=5", "load:trace=\"a, b.csv\",requests=5", LOAD_TRACE_CTX },
        { "load:rate=4,slo=ttft<500ms", "load:rate=4,requests=100,in=256,out=64,slo=ttft<500ms", 320 },
        { "load:rate=4,slo=\"ttft<0.5,itl_p99<60ms\",in=8",
          "load:rate=4,requests=100,in=8,out=64,slo=\"ttft<500ms,itl_p99<60ms\"", 72 },
        { "load:rate=4,slo=ttft<500ms,itl_p99<60ms,in=8",
          "load:rate=4,requests=100,in=8,out=64,slo=\"ttft<500ms,itl_p99<60ms\"", 72 },
        { "load:rate=auto,slo=e2e<2,meet=0.9",
          "load:rate=auto,requests=100,in=256,out=64,slo=e2e<2s,meet=0.9", 320 },
        { "load:rate=4,prompts=a.jsonl", "load:rate=4,requests=100,prompts=a.jsonl", LOAD_TRACE_CTX },
        { "load:rate=4,prompts=\"a, b\",in=9", "load:rate=4,requests=100,in=9,prompts=\"a, b\"",
          LOAD_TRACE_CTX },
        { "load:rate=4,out=7,prompts=a,in=9", "load:rate=4,requests=100,in=9,out=7,prompts=a", 16 },
    };
    struct err why = { 0 };
    struct workload w, again;
    char line[WORKLOAD_LINE];
    for (size_t i = 0; i < COUNT_OF(GOOD); i++) {
        CHECK_OK(workload_parse(&w, GOOD[i].text, &why));
        CHECK_STR(workload_line(&w, line, sizeof line), GOOD[i].line);
        CHECK_EQ(workload_ctx(&w), GOOD[i].ctx);
        CHECK(workload_is_load(&w));
        CHECK_OK(workload_parse(&again, line, &why));
        CHECK_STR(workload_line(&again, line, sizeof line), GOOD[i].line);
    }
}

static void test_refused_lines(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } BAD[] = {
        { "load:", "expected one of rate=N" },
        { "load:rate=4,concurrency=2", "expected one of rate=N" },
        { "load:rate=0", "rate=0: expected N | auto" },
        { "load:rate=4,rate=5", "given twice" },
        { "load:rate=4,request=5", "did you mean 'requests'" },
        { "load:rate", "expected KEY=VALUE" },
        { "load:rate=4,in=0", "in=0: expected" },
        { "load:rate=4,in=lognormal:5", "expected N | lognormal:MEDIAN:SIGMA" },
        { "load:rate=4,prefix=1.5", "prefix=1.5: expected 0 to 1" },
        { "load:concurrency=4,arrivals=ramp", "arrivals needs rate" },
        { "load:rate=4,arrivals=ramp,burstiness=2", "burstiness needs" },
        { "load:rate=4,think=1", "think needs" },
        { "load:rate=4,speed=2", "speed needs trace" },
        { "load:trace=x,in=5", "leave in, out, prefix and turns out" },
        { "load:rate=auto", "rate=auto needs slo" },
        { "load:rate=auto,slo=ttft<1s,requests=20", "needs 40 requests" },
        { "load:rate=4,slo=ttft>1", "slo=ttft>1: expected" },
        { "load:rate=4,slo=speed<1", "figures" },
        { "load:rate=4,requests=10,turns=3", "multiple of turns" },
        { "load:concurrency=8,requests=4", "as many requests as clients" },
        { "load:rate=4,ctx=100", "ctx is shorter" },
        { "load:rate=4,slo=\"ttft<1", "quote" },
        { "load:rate=4,meet=0.5", "meet needs rate=auto" },
        { "load:rate=4,prompts=a,prefix=0.5", "leave trace, prefix and turns out" },
        { "load:trace=t,prompts=a", "leave trace, prefix and turns out" },
    };
    struct workload w;
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        struct err why = { 0 };
        CHECK_EQ(workload_parse(&w, BAD[i].text, &why), ERR_USAGE);
        if (!strstr(BAD[i].says, "figures")) CHECK_CONTAINS(why.message, BAD[i].says);
        CHECK(!workload_is_load(&w));
    }
}

/* Keys for serving mean something to loads only. */
static void test_keys_of_configs(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct workload w;
    struct config c;
    CHECK_OK(config_parse(&c, "max_sequences=3,evict=lifo", &why));
    CHECK_OK(workload_parse(&w, "load:rate=4", &why));
    CHECK_OK(workload_check(&w, &c, &why));
    CHECK_EQ(workload_sequences_for(&w, &c), 3);
    CHECK_OK(workload_parse(&w, "tg8@b5", &why));
    CHECK_EQ(workload_sequences_for(&w, &c), 5);
    CHECK_EQ(workload_check(&w, &c, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "max_sequences=3 is a setting for serving");
    CHECK_OK(config_parse(&c, "amp=bf16", &why));
    CHECK_OK(workload_parse(&w, "load:rate=4", &why));
    CHECK_EQ(workload_check(&w, &c, &why), ERR_USAGE);
}

/* ---------------------------------------------------------------- the list of requests */

static int32_t TEXT[4000];

static struct load_plan *plan_of(const char *line, uint64_t seed)
{
    struct err why = { 0 };
    struct workload w;
    struct load_plan *p;
    for (size_t i = 0; i < COUNT_OF(TEXT); i++) TEXT[i] = (int32_t)(i * i % 997);
    const struct load_text text = { .ids = TEXT, .n = COUNT_OF(TEXT), .vocab = 1000, .bos = 1 };
    CHECK_OK(workload_parse(&w, line, &why));
    CHECK_OK(load_plan_make(&p, &w.load, seed, &text, &why));
    return p;
}

/* Mean and coefficient of variation of the gaps between arrivals. */
static void gaps_of(const struct load_plan *p, double *mean, double *cv)
{
    double sum = 0, squares = 0, before = 0;
    for (int i = 0; i < p->n; i++) {
        const double gap = p->request[i].arrival_s - before;
        CHECK_GE(gap, 0.0);
        before = p->request[i].arrival_s;
        sum += gap;
        squares += gap * gap;
    }
    *mean = sum / p->n;
    *cv = sqrt(squares / p->n - *mean * *mean) / *mean;
}

static void test_arrivals(void **state)
{
    (void)state;
    /* The standard error of the mean of n gaps is cv / sqrt(n) of it: tolerances are five of them. */
    static const struct {
        const char *line;
        double cv, tolerance;
    } CASES[] = { { "load:rate=4,requests=20000,in=4,out=1", 1, 0.05 },
                  { "load:rate=4,burstiness=0.25,requests=20000,in=4,out=1", 2, 0.15 },
                  { "load:rate=4,burstiness=4,requests=20000,in=4,out=1", 0.5, 0.02 },
                  { "load:rate=4,arrivals=constant,requests=20000,in=4,out=1", 0, 0.01 } };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct load_plan *p = plan_of(CASES[i].line, 5);
        double mean, cv;
        gaps_of(p, &mean, &cv);
        CHECK_NEAR(mean, 0.25, 0.25 * 5 * fmax(CASES[i].cv, 0.01) / sqrt(20000));
        CHECK_NEAR(cv, CASES[i].cv, CASES[i].tolerance);
        load_plan_free(p);
    }
    /* A ramp from 0 to 4 a second over 4000 requests lasts 2000 s; a quarter of them come in its first half.
     */
    struct load_plan *p = plan_of("load:rate=4,arrivals=ramp,requests=4000,in=4,out=1", 5);
    int first = 0;
    for (int i = 0; i < p->n; i++) first += p->request[i].arrival_s < 1000;
    CHECK_NEAR(p->request[p->n - 1].arrival_s, 2000, 60);
    CHECK_NEAR(first, 1000, 5 * sqrt(1000));
    load_plan_free(p);
}

static void test_lengths(void **state)
{
    (void)state;
    struct load_plan *p = plan_of("load:rate=4,requests=4000,in=lognormal:100:0.5,out=lognormal:20:1", 9);
    int below = 0;
    double squares = 0;
    for (int i = 0; i < p->n; i++) {
        const double ln = log(p->request[i].n / 100.0);
        below += p->request[i].n < 100;
        squares += ln * ln;
        CHECK_GE(p->request[i].n, 1);
        CHECK_LE(p->request[i].n + p->request[i].generate, p->tokens_most);
    }
    CHECK_NEAR(below, 2000, 5 * sqrt(1000));
    CHECK_NEAR(sqrt(squares / p->n), 0.5, 0.03);
    load_plan_free(p);
    p = plan_of("load:rate=4,requests=300,in=lognormal:100:1,out=20,ctx=128", 9);
    CHECK_GT(p->cut, 10); /* longer than 108 tokens */
    for (int i = 0; i < p->n; i++) CHECK_LE(p->request[i].n + p->request[i].generate, 128);
    load_plan_free(p);
}

static void test_common_random_numbers(void **state)
{
    (void)state;
    struct load_plan *a = plan_of("load:rate=4,requests=50", 7), *b = plan_of("load:rate=4,requests=50", 7),
                     *c = plan_of("load:rate=4,requests=50", 8),
                     *d = plan_of("load:rate=4,requests=50,in=9", 7);
    CHECK_STR(a->hash, b->hash);
    CHECK_STR_NE(a->hash, c->hash);
    CHECK_STR_NE(a->hash, d->hash);
    for (int i = 0; i < a->n; i++) /* other lengths leave the arrivals as they are */
        CHECK_NEAR(a->request[i].arrival_s, d->request[i].arrival_s, 0);
    load_plan_free(a);
    load_plan_free(b);
    load_plan_free(c);
    load_plan_free(d);
}

/* Tokens that two prompts have in common at their start. */
static int common(const struct load_request *a, const struct load_request *b)
{
    int n = 0;
    while (n < a->n && n < b->n && a->prompt[n] == b->prompt[n]) n++;
    return n;
}

static void test_prompts(void **state)
{
    (void)state;
    struct load_plan *p = plan_of("load:rate=4,requests=400,in=100,out=10,prefix=0.4", 3);
    for (int i = 1; i < p->n; i++) {
        CHECK_EQ(p->request[i].prompt[0], 1); /* the token that begins texts */
        CHECK_GE(common(&p->request[0], &p->request[i]), 40);
        CHECK_LE(common(&p->request[0], &p->request[i]), 44); /* a drawn token may be equal by chance */
    }
    load_plan_free(p);
    p = plan_of("load:concurrency=2,requests=12,in=30,out=10,turns=3,think=2", 3);
    CHECK_EQ(p->conversations, 4);
    for (int i = 0; i < p->n; i++) {
        const struct load_request *r = &p->request[i];
        CHECK_EQ(r->turn, i % 3);
        CHECK_EQ(r->conversation, i / 3);
        CHECK_EQ(isnan(r->arrival_s), i != 0 && i != 3); /* two clients begin at once */
        CHECK_GT(r->think_s, 0.0);
        CHECK_EQ(r->prompt[0] == 1, r->turn == 0);
    }
    load_plan_free(p);
}

/* ---------------------------------------------------------------- traces */

static const char AZURE[] = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
                            "2023-11-16 18:15:46.6805900,374,44\r\n"
                            "2023-11-16 18:15:50.9951690,396,109\r\n"
                            "2023-11-16 18:16:01.5000000,10,0\r\n";
static const char BURST[] =
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,1,2.5,ChatGPT,472,18,490,Conversation log\n"
    "45,2,9,ChatGPT,1087,230,1317,Conversation log\n"
    "18,,3,GPT-4,417,276,693,API log\n";
static const char MOONCAKE[] =
    "{\"timestamp\": 1000, \"input_length\": 1030, \"output_length\": 50, \"hash_ids\": [7, 8, 9]}\n"
    "\n{\"timestamp\": 4000, \"input_length\": 1500, \"output_length\": 5, \"hash_ids\": [7, 8, 10]}\n";

static void test_traces(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct load_trace t;
    CHECK_OK(load_trace_parse(&t, AZURE, strlen(AZURE), 100, &why));
    CHECK_EQ(t.n, 2);
    CHECK_EQ(t.skipped, 1);
    CHECK_NEAR(t.row[0].at_s, 0, 0);
    CHECK_NEAR(t.row[1].at_s, 4.314579, 1e-6);
    CHECK_EQ(t.row[1].in, 396);
    CHECK_EQ(t.row[1].out, 109);
    load_trace_free(&t);
    CHECK_OK(load_trace_parse(&t, BURST, strlen(BURST), 100, &why));
    CHECK_EQ(t.n, 3);
    CHECK_NEAR(t.row[1].at_s, 13, 0); /* in order of time */
    CHECK_EQ(t.row[1].in, 417);
    CHECK_EQ(t.row[2].out, 230);
    load_trace_free(&t);
    CHECK_OK(load_trace_parse(&t, MOONCAKE, strlen(MOONCAKE), 100, &why));
    CHECK_EQ(t.n, 2);
    CHECK_NEAR(t.row[1].at_s, 3, 1e-12);
    CHECK_EQ(t.row[1].hashes, 3);
    CHECK_EQ(t.hash[t.row[1].hash + 2], 10);
    load_trace_free(&t);
    CHECK_OK(load_trace_parse(&t, MOONCAKE, strlen(MOONCAKE), 1, &why));
    CHECK_EQ(t.n, 1);
    load_trace_free(&t);
}

static void test_damaged_traces(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } BAD[] = {
        { "", "no request" },
        { "a,b,c\n1,2,3\n", "line 1: expected JSON lines" },
        { "TIMESTAMP,ContextTokens,GeneratedTokens\n1,2\n", "line 2: expected 3 columns" },
        { "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,2,3\n", "line 2: time 'yesterday'" },
        { "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-13-16 18:15:46,2,3\n", "line 2: time" },
        { "TIMESTAMP,ContextTokens,GeneratedTokens\n1,many,3\n", "line 2: tokens 'many'" },
        { "TIMESTAMP,ContextTokens,GeneratedTokens\n1,-2,3\n", "line 2:" },
        { "TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,0\n", "no request" },
        { "{\"timestamp\": 1}\n", "line 1: expected an object with" },
        { "{\"timestamp\": 1, \"input_length\": 3, \"output_length\": 4, \"hash_ids\": [1.5]}\n", "entry 1" },
        { "{\"timestamp\": 1", "line 1" },
    };
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        struct err why = { 0 };
        struct load_trace t;
        CHECK_EQ(load_trace_parse(&t, BAD[i].text, strlen(BAD[i].text), 100, &why), ERR_FORMAT);
        CHECK_CONTAINS(why.message, BAD[i].says);
        load_trace_free(&t);
    }
}

/* Equal block names are equal text, up to the block's end. */
static void test_trace_prompts(void **state)
{
    (void)state;
    char path[] = "/tmp/qdyno-trace-XXXXXX", line[WORKLOAD_LINE];
    const int fd = mkstemp(path);
    CHECK_GE(fd, 0);
    CHECK_EQ(write(fd, MOONCAKE, strlen(MOONCAKE)), (ssize_t)strlen(MOONCAKE));
    close(fd);
    snprintf(line, sizeof line, "load:trace=%s,speed=2", path);
    struct load_plan *p = plan_of(line, 3);
    CHECK_EQ(p->n, 2);
    CHECK_NEAR(p->request[1].arrival_s, 1.5, 1e-12);
    CHECK_EQ(p->request[1].n, 1500);
    CHECK_EQ(p->request[1].generate, 5);
    CHECK_GE(common(&p->request[0], &p->request[1]), 2 * LOAD_TRACE_BLOCK);
    CHECK_LE(common(&p->request[0], &p->request[1]), 2 * LOAD_TRACE_BLOCK + 4);
    load_plan_free(p);
    unlink(path);
}

/* ---------------------------------------------------------------- serving */

static int cancel_after;
static double rate_by = 1; /* once */
static struct live last;   /* what the last report said */
static bool cancels(void *ctx, struct load_now *now)
{
    (void)ctx;
    last = *now->live;
    now->rate_by = rate_by;
    rate_by = 1;
    return now->done < cancel_after;
}

static const struct load_limit *limit;
static int limits;
static int steps_seen;
static void count_step(void *ctx, int64_t started_ns)
{
    (void)ctx;
    CHECK_LE(started_ns, clock_ns());
    steps_seen++;
}

static struct load_result serve(struct model *m, const struct load_plan *p, int until, enum err_code want)
{
    struct err why = { 0 };
    struct serving *s;
    struct load_result r;
    const struct load_hooks hooks = {
        .progress = cancels, .after_step = count_step, .limit = limit, .limits = limits
    };
    steps_seen = 0;
    cancel_after = until;
    CHECK_OK(serving_open(&s, &(struct serving_options){ .model = m }, &why));
    CHECK_EQ(load_run(&r, s, p, &hooks, &why), want);
    if (!want) CHECK_EQ(serving_count(s).waiting + serving_count(s).running, 0);
    serving_close(s);
    return r;
}

/* Times of a request are in their order, and each of its tokens has one. */
static void record_check(const struct load_result *r, const struct load_plan *p, int i)
{
    const struct load_record *q = &r->record[i];
    CHECK_EQ(q->outcome, LOAD_DONE);
    CHECK_EQ(q->tokens, p->request[i].generate);
    CHECK_LE(q->scheduled_s, q->sent_s);
    CHECK_LE(q->sent_s, q->admitted_s);
    CHECK_LT(q->admitted_s, q->first_s);
    CHECK_NEAR(r->token_s[q->token], q->first_s, 0);
    for (int t = 1; t < q->tokens; t++) CHECK_LE(r->token_s[q->token + t - 1], r->token_s[q->token + t]);
    CHECK_NEAR(r->token_s[q->token + q->tokens - 1], q->end_s, 0);
}

static void test_served(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, STORIES);
    struct model *m = session_open(path, EXACT ",max_sequences=3,batch_invariant=on", 128, 3);
    static const char *const LINES[] = { "load:rate=500,requests=30,in=20,out=5",
                                         "load:concurrency=2,requests=12,in=10,out=4,turns=3",
                                         "load:rate=500,requests=6,in=10,out=4,turns=2,think=1ms" };
    for (size_t k = 0; k < COUNT_OF(LINES); k++) {
        struct err why = { 0 };
        struct workload w;
        struct load_plan *p;
        CHECK_OK(workload_parse(&w, LINES[k], &why));
        CHECK_OK(load_plan_make(&p, &w.load, 1, &(struct load_text){ .vocab = 256, .bos = 1 }, &why));
        struct load_result r = serve(m, p, 1000, ERR_OK), again = serve(m, p, 1000, ERR_OK);
        int prompt = 0;
        for (int i = 0; i < p->n; i++) {
            record_check(&r, p, i);
            prompt = p->request[i].turn ? prompt + r.record[i - 1].tokens : 0;
            prompt += p->request[i].n;
            CHECK_EQ(r.record[i].prompt, prompt); /* the conversation so far, answers included */
            if (p->request[i].turn) CHECK_GE(r.record[i].scheduled_s, r.record[i - 1].end_s);
        }
        CHECK_STR(r.output_hash, again.output_hash);
        CHECK_EQ(again.steps, steps_seen); /* each step can be slowed down */
        CHECK_LE(r.running_most, 3);
        CHECK(r.model_s > 0 && r.step_s >= r.model_s && r.seconds >= r.step_s);
        CHECK(r.kv_use > 0 && r.kv_use <= 1);
        load_result_free(&r);
        load_result_free(&again);
        load_plan_free(p);
    }
    model_close(m);
}

/* What is shown while it runs agrees with the records, and is the same after a way through JSON. */
static void live_check(const struct load_result *r, const struct load_plan *p, bool met)
{
    struct live copy = { .seconds = -1 };
    json_t *o = live_to_json(&last);
    CHECK(live_read(&copy, o));
    json_decref(o);
    CHECK(!live_read(&copy, json_null()));
    CHECK_EQ(copy.arrived, p->n);
    CHECK_EQ(copy.done, p->n);
    CHECK_EQ(copy.met, met ? p->n : 0);
    CHECK_EQ(copy.missed, met ? 0 : p->n);
    CHECK_EQ(copy.steps, r->steps);
    CHECK_EQ(copy.waiting + copy.running, 0);
    CHECK_EQ(copy.first.n, p->n);
    double ttft = 0;
    int64_t tokens = 0, bins = 0;
    for (int i = 0; i < p->n; i++) {
        ttft += r->record[i].first_s - r->record[i].scheduled_s;
        tokens += r->record[i].tokens;
    }
    CHECK_NEAR(copy.first.sum_s, ttft, 1e-9);
    CHECK_EQ(copy.tokens, tokens);
    CHECK_EQ(copy.gap.n, tokens - p->n);
    for (int i = 0; i < LIVE_BINS; i++) bins += copy.gap.bin[i];
    CHECK_EQ(bins, copy.gap.n);
    for (int64_t n = MAX(copy.steps - LIVE_STEPS, 0); n < copy.steps; n++) {
        CHECK_EQ(copy.step[n % LIVE_STEPS].rows, last.step[n % LIVE_STEPS].rows);
        CHECK_GT(copy.step[n % LIVE_STEPS].rows, 0);
        CHECK_NEAR(copy.step[n % LIVE_STEPS].seconds, last.step[n % LIVE_STEPS].seconds, 1e-6);
    }
    CHECK_STR(copy.settings, last.settings);
    CHECK(strstr(copy.settings, "schedule=fcfs"));
}

static void live_run(struct model *m, const char *line, double by, bool met)
{
    struct err why = { 0 };
    struct workload w;
    struct load_plan *p;
    CHECK_OK(workload_parse(&w, line, &why));
    CHECK_OK(load_plan_make(&p, &w.load, 1, &(struct load_text){ .vocab = 256, .bos = 1 }, &why));
    rate_by = by;
    limit = w.load.limit;
    limits = w.load.limits;
    struct load_result r = serve(m, p, 1000, ERR_OK);
    live_check(&r, p, met);
    load_result_free(&r);
    load_plan_free(p);
    limits = 0;
}

static void test_live(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, STORIES);
    struct model *m = session_open(path, EXACT ",max_sequences=3", 128, 3);
    live_run(m, "load:rate=500,requests=30,in=20,out=5,slo=\"ttft<1000s,itl_max<1000s\"", 1, true);
    CHECK_EQ(last.stalls, 0);
    CHECK_NEAR(last.stall_s, 1000, 0); /* the limit of gaps */
    live_run(m, "load:rate=500,requests=30,in=20,out=5,slo=\"itl_max<0.001ms\"", 1, false);
    CHECK_EQ(last.stalls, last.gap.n);
    /* ten requests that are minutes apart come in time to be seen when they come a million times as fast */
    live_run(m, "load:rate=0.01,requests=10,in=20,out=5,slo=\"ttft<1000s\"", 1e6, true);
    CHECK_NEAR(last.speed, 1e6, 0);
    live_run(m, "load:concurrency=1,requests=40,in=40,out=40,slo=\"ttft<1000s\"", 2, true);
    CHECK(last.clients == 1 || last.clients == 2); /* it may be over before the first report */
    model_close(m);
}

/* Quantiles are at most a bin away, and the edges of bins do not overlap. */
static void test_live_times(void **state)
{
    (void)state;
    struct live_times t = { 0 };
    CHECK(isnan(live_quantile(&t, 0.5)));
    for (int i = 1; i <= 1000; i++) live_times_add(&t, i * 1e-3);
    live_times_add(&t, NAN);
    CHECK_EQ(t.n, 1000);
    CHECK_NEAR(live_quantile(&t, 0.50), 0.5, 0.5 * 0.04);
    CHECK_NEAR(live_quantile(&t, 0.99), 0.99, 0.99 * 0.04);
    CHECK_LE(live_quantile(&t, 1), 1);
    live_times_add(&t, 1e-9);
    live_times_add(&t, 1e9);
    CHECK_EQ(t.bin[0], 1);
    CHECK_EQ(t.bin[LIVE_BINS - 1], 1);
    CHECK_NEAR(live_edge(0), 1e-4, 0);
    CHECK_NEAR(live_edge(LIVE_BINS), 1e3, 1e-6);
}

static void test_ends_badly(void **state)
{
    (void)state;
    char path[4096];
    SHARED_OR_SKIP(path, STORIES);
    /* three blocks of 32 tokens, one of them for copies: 80 tokens can never fit, and later turns are not
     * sent */
    struct model *m = session_open(path, EXACT ",max_sequences=2,kv_blocks=3", 128, 2);
    struct err why = { 0 };
    struct workload w;
    struct load_plan *p;
    CHECK_OK(workload_parse(&w, "load:concurrency=1,requests=4,in=30,out=10,turns=2", &why));
    CHECK_OK(load_plan_make(&p, &w.load, 1, &(struct load_text){ .vocab = 256, .bos = -1 }, &why));
    struct load_result r = serve(m, p, 1000, ERR_OK);
    for (int i = 0; i < p->n; i++) CHECK_EQ(r.record[i].outcome, i % 2 ? LOAD_REFUSED : LOAD_DONE);
    load_result_free(&r);
    load_plan_free(p);
    CHECK_OK(workload_parse(&w, "load:concurrency=1,requests=4,in=60,out=20,turns=2", &why));
    CHECK_OK(load_plan_make(&p, &w.load, 1, &(struct load_text){ .vocab = 256, .bos = -1 }, &why));
    r = serve(m, p, 1000, ERR_OK);
    for (int i = 0; i < p->n; i++) CHECK_EQ(r.record[i].outcome, i % 2 ? LOAD_NOT_SENT : LOAD_REFUSED);
    load_result_free(&r);
    load_plan_free(p);
    CHECK_OK(workload_parse(&w, "load:rate=0.001,requests=4,in=6,out=2", &why)); /* minutes apart */
    CHECK_OK(load_plan_make(&p, &w.load, 1, &(struct load_text){ .vocab = 256, .bos = -1 }, &why));
    r = serve(m, p, 0, ERR_CANCELLED);
    load_result_free(&r);
    load_plan_free(p);
    model_close(m);
}

/* A salt changes the first tokens of every text, and neither the work nor its hash. */
static void test_salt(void **state)
{
    (void)state;
    struct err why;
    struct workload w;
    struct load_plan *p[3];
    static const uint64_t SALTS[] = { 0, 7, 8 };
    CHECK_OK(workload_parse(&w, "load:rate=4,requests=6,in=400,out=2", &why));
    for (int i = 0; i < 3; i++) {
        const struct load_text text = { .vocab = 100000, .bos = 1, .salt = SALTS[i] };
        CHECK_OK(load_plan_make(&p[i], &w.load, 1, &text, &why));
        CHECK_STR(p[i]->hash, p[0]->hash);
        CHECK_EQ(p[i]->n, p[0]->n);
    }
    for (int r = 0; r < p[0]->n; r++)
        for (int a = 0; a < 2; a++) {
            const struct load_request *x = &p[a]->request[r], *y = &p[a + 1]->request[r];
            CHECK_EQ(x->n, y->n);
            CHECK(x->arrival_s == y->arrival_s);
            CHECK(memcmp(x->prompt, y->prompt, 8 * sizeof *x->prompt) != 0);
            CHECK_EQ(x->prompt[x->n - 1], y->prompt[y->n - 1]);
        }
    for (int i = 0; i < 3; i++) load_plan_free(p[i]);
}

/* Prompts of the user's own: as long as they are, or cut by `in` and the context; answers as the file has
 * them, or as `out` says; a salt changes what they begin with, in all of them alike, and not the hash. */
static void test_own_prompts(void **state)
{
    (void)state;
    enum { REQUESTS = 4, LONG = 90 };
    int32_t ids[2][LONG];
    for (int i = 0; i < LONG; i++) {
        ids[0][i] = i ? 100 + i : 1; /* 1: BOS */
        ids[1][i] = i < 20 ? ids[0][i] : 500 + i;
    }
    const struct load_prompt own[] = { { .ids = ids[0], .n = 50, .generate = 7, .item = 3, .class = 1 },
                                       { .ids = ids[1], .n = LONG, .generate = 0, .item = 0, .class = -1 } };
    const int order[REQUESTS] = { 1, 0, 0, 1 };
    for (size_t i = 0; i < COUNT_OF(TEXT); i++) TEXT[i] = (int32_t)(i * i % 997);
    static const struct {
        const char *line;
        int n[2], generate[2], cut; /* of own[0] and own[1] */
    } CASES[] = {
        { "load:concurrency=1,requests=4,prompts=x", { 50, LONG }, { 7, 64 }, 0 },
        { "load:concurrency=1,requests=4,prompts=x,in=60", { 50, 60 }, { 7, 64 }, 0 },
        { "load:concurrency=1,requests=4,prompts=x,in=20,out=9", { 20, 20 }, { 9, 9 }, 0 },
        { "load:concurrency=1,requests=4,prompts=x,ctx=80,out=10", { 50, 70 }, { 10, 10 }, 2 },
    };
    for (size_t k = 0; k < COUNT_OF(CASES); k++) {
        struct err why = { 0 };
        struct workload w;
        struct load_plan *p, *salted;
        struct load_text text = {
            .ids = TEXT, .n = COUNT_OF(TEXT), .vocab = 1000, .bos = 1, .own = own, .order = order
        };
        CHECK_OK(workload_parse(&w, CASES[k].line, &why));
        CHECK_OK(load_plan_make(&p, &w.load, 1, &text, &why));
        text.salt = 77;
        CHECK_OK(load_plan_make(&salted, &w.load, 1, &text, &why));
        CHECK_STR(p->hash, salted->hash);
        CHECK_EQ(p->cut, CASES[k].cut);
        for (int i = 0; i < REQUESTS; i++) {
            const struct load_request *r = &p->request[i], *s = &salted->request[i];
            CHECK_EQ(r->n, CASES[k].n[order[i]]);
            CHECK_EQ(r->generate, CASES[k].generate[order[i]]);
            CHECK_EQ(r->item, own[order[i]].item);
            CHECK_EQ(r->class, own[order[i]].class);
            assert_memory_equal(r->prompt, own[order[i]].ids, (size_t)r->n * sizeof *r->prompt);
            CHECK_EQ(s->prompt[0], 1);
            CHECK_NE(memcmp(s->prompt + 1, r->prompt + 1, 8 * sizeof *r->prompt), 0);
            assert_memory_equal(s->prompt, salted->request[0].prompt, 20 * sizeof *s->prompt);
            assert_memory_equal(s->prompt + 9, r->prompt + 9, (size_t)(r->n - 9) * sizeof *r->prompt);
        }
        load_plan_free(p);
        load_plan_free(salted);
    }
}

/* Bug: a short prompt and a long one began with different texts, so nothing of prefix= was shared. */
static void test_prefix_of_mixed_lengths(void **state)
{
    (void)state;
    enum { SHARED = 20 }; /* tokens */
    struct err why = { 0 };
    struct workload w;
    struct load_plan *p;
    int shorter = 0, longer = 0;
    for (size_t i = 0; i < COUNT_OF(TEXT); i++) TEXT[i] = (int32_t)(i % 1000);
    const struct load_text text = { .ids = TEXT, .n = 200, .all = COUNT_OF(TEXT), .vocab = 1000, .bos = -1 };
    CHECK_OK(workload_parse(&w, "load:rate=4,requests=40,in=lognormal:400:1,out=1,prefix=0.9", &why));
    CHECK_OK(load_plan_make(&p, &w.load, 1, &text, &why));
    for (int i = 0; i < p->n; i++) {
        const struct load_request *r = &p->request[i];
        if (r->n < 2 * SHARED) continue;
        shorter += 0.9 * r->n < 200;
        longer += 0.9 * r->n > 200;
        assert_memory_equal(r->prompt, p->request[0].prompt, SHARED * sizeof *r->prompt);
    }
    CHECK_GT(shorter, 0);
    CHECK_GT(longer, 0);
    load_plan_free(p);
}

/* Prompts that fit into the first n ids are cut from them; where one is longer, all are cut from all. */
static void test_longer_text(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct workload w;
    struct load_plan *before, *after;
    for (size_t i = 0; i < COUNT_OF(TEXT); i++) TEXT[i] = (int32_t)(i % 1000);
    struct load_text text = { .ids = TEXT, .n = 500, .vocab = 1000, .bos = -1 };
    CHECK_OK(workload_parse(&w, "load:rate=4,requests=20,in=500,out=1", &why));
    CHECK_OK(load_plan_make(&before, &w.load, 1, &text, &why));
    text.all = COUNT_OF(TEXT);
    CHECK_OK(load_plan_make(&after, &w.load, 1, &text, &why));
    CHECK_STR(before->hash, after->hash);
    CHECK(!after->repeats);
    load_plan_free(before);
    load_plan_free(after);
    CHECK_OK(workload_parse(&w, "load:rate=4,requests=3,in=501,out=1", &why));
    CHECK_OK(load_plan_make(&after, &w.load, 1, &text, &why));
    CHECK(!after->repeats);
    for (int i = 0; i < 3;
         i++) { /* a pseudo-random part of 4000 ids has some of those behind the first 500 */
        int behind = 0;
        for (int k = 8; k < 501; k++) behind += after->request[i].prompt[k] >= 500;
        CHECK_GT(behind, 0);
    }
    load_plan_free(after);
    CHECK_OK(workload_parse(&w, "load:rate=4,requests=3,in=4001,out=1", &why));
    CHECK_OK(load_plan_make(&after, &w.load, 1, &text, &why));
    CHECK(after->repeats);
    load_plan_free(after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_salt),
        cmocka_unit_test(test_own_prompts),
        cmocka_unit_test(test_longer_text),
        cmocka_unit_test(test_prefix_of_mixed_lengths),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_refused_lines),
        cmocka_unit_test(test_keys_of_configs),
        cmocka_unit_test(test_arrivals),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_common_random_numbers),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_traces),
        cmocka_unit_test(test_damaged_traces),
        cmocka_unit_test(test_trace_prompts),
        cmocka_unit_test(test_served),
        cmocka_unit_test(test_ends_badly),
        cmocka_unit_test(test_live),
        cmocka_unit_test(test_live_times),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
