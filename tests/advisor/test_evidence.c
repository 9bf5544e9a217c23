/* Proves: measured rates of the same file, machine and kernels replace predictions and name their runs; runs
 * of another machine, file or build of the kernels, invalid, failed and running runs, discarded, disturbed
 * and failed cells, single values, race timings and slowed configs do not count; two runs give an interval
 * that contains both; measured configs that are no candidates are listed; the result of a search ranks first
 * for its goal only; vague advice is moved behind the rest. */
#include "advisor/advise/advise.h"
#include "advisor/run/run.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/synth/synth.h"
#include "tests/advisor/fake.h"

#include <math.h>

struct bench {
    char dir[256], model[300], file[300], sha256[HASH_HEX];
    struct machine machine;
    struct machine_ceilings ceilings;
    struct db *db;
};

static int set_up(void **state)
{
    struct bench *b = calloc(1, sizeof *b);
    struct err why = { 0 };
    struct gguf *g = NULL;
    if (!b) return -1;
    scratch(b->dir, sizeof b->dir);
    snprintf(b->model, sizeof b->model, "%s/m.gguf", b->dir);
    snprintf(b->file, sizeof b->file, "%s/q.db", b->dir);
    const struct synth_options o = { .arch = "llama",
                                     .shape = synth_shape_find("tiny"),
                                     .format = format_find("f32"),
                                     .seed = 3,
                                     .threads = 1 };
    b->machine = (struct machine){ .id = "here",
                                   .isa = ISA_SSE41 | ISA_AVX2,
                                   .cores = 4,
                                   .processors = 4,
                                   .memory_bytes = 1 << 30,
                                   .memory_available_bytes = 1 << 30,
                                   .cgroup_memory_bytes = -1,
                                   .cgroup_cpus = NAN,
                                   .cache_bytes = { 32768, 65536, 262144 } };
    b->ceilings = (struct machine_ceilings){ .read_bytes_s_1 = 6e9,
                                             .read_bytes_s_all = 10e9,
                                             .threads_all = 4,
                                             .count = 1,
                                             .row = { { "f32_fma", "avx2", 1e11, 4e11 } } };
    CHECK_OK(synth_write(b->model, &o, &why));
    CHECK_OK(gguf_open(&g, b->model, &why));
    CHECK_OK(model_identity(g, b->sha256, &why));
    gguf_close(g);
    CHECK_OK(db_open(&b->db, b->file, &why));
    CHECK_OK(db_machine_put(b->db, "here", "{}", &why));
    CHECK_OK(db_machine_put(b->db, "there", "{}", &why));
    CHECK_OK(db_model_put(b->db, b->sha256, "m", b->model, "{}", &why));
    CHECK_OK(db_model_put(b->db, "feed", "m", b->model, "{}", &why));
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    struct bench *b = *state;
    char command[320];
    db_close(b->db);
    snprintf(command, sizeof command, "rm -rf '%s'", b->dir);
    free(b);
    return system(command);
}

/* What one stored run differs in from one that counts. */
struct stored {
    const char *kind, *state, *machine, *sha256, *verdict, *kernels, *isa, *phase, *config, *workload, *error;
    const char *spec, *outcome;
    bool discarded, disturbed;
    int disturbed_from; /* cells from here on are; 0: as `disturbed` */
    double rate[4];     /* decode, one cell each; 0: no further one */
    const char *other;  /* a second config in each block; NULL: none */
    double other_rate[4];
};

static int64_t store(const struct bench *b, struct stored s)
{
    struct err why = { 0 };
    char capsule[400];
    struct run_row r = { .effect_ratio = NAN, .seed = 1 };
#define OR(text, otherwise) ((text) ? (text) : (otherwise))
    snprintf(r.kind, sizeof r.kind, "%s", OR(s.kind, "bench"));
    snprintf(r.state, sizeof r.state, "%s", "running");
    snprintf(r.machine, sizeof r.machine, "%s", OR(s.machine, "here"));
    snprintf(r.model_sha256, sizeof r.model_sha256, "%s", OR(s.sha256, b->sha256));
    snprintf(r.workload, sizeof r.workload, "%s", OR(s.workload, "tg64@d64"));
    r.spec_json = s.spec ? strdup(s.spec) : NULL;
    CHECK_OK(db_run_insert(b->db, &r, &why));
    snprintf(capsule, sizeof capsule,
             "{\"program\":{\"kernels\":\"%s\"},\"environment\":{\"QDYNO_ISA\":\"%s\"}}",
             OR(s.kernels, KERNELS_BUILD), OR(s.isa, getenv("QDYNO_ISA") ? getenv("QDYNO_ISA") : ""));
    CHECK_OK(db_capsule_put(b->db, r.id, capsule, &why));
    for (int k = 0; k < 8; k++) {
        const int i = k / 2, other = k % 2;
        const double rate = other ? s.other_rate[i] : s.rate[i];
        if (!(rate > 0)) continue;
        struct cell_row c = { .run_id = r.id, .block = s.other ? i : -1, .discarded = s.discarded };
        const bool disturbed = s.disturbed || (s.disturbed_from && i >= s.disturbed_from);
        snprintf(c.phase, sizeof c.phase, "%s", OR(s.phase, "bench"));
        snprintf(c.config, sizeof c.config, "%s", other ? s.other : OR(s.config, "q8_0"));
        snprintf(c.error, sizeof c.error, "%s", OR(s.error, ""));
        const struct measurement m[] = { { "decode_tok_s", "tokens/s", rate }, { CELL_DISTURBED, "", 1 } };
        CHECK_OK(db_cell_insert(b->db, &c, m, disturbed ? 2 : 1, NULL, 0, NULL, 0, &why));
    }
    if (strcmp(OR(s.state, "done"), "running"))
        CHECK_OK(db_run_finish(b->db, r.id, OR(s.state, "done"), s.verdict, NAN, s.outcome, &why));
    const int64_t id = r.id;
    run_row_free(&r);
    return id;
}

static struct evidence loaded(const struct bench *b)
{
    struct evidence e;
    struct err why = { 0 };
    CHECK_OK(evidence_load(&e, b->db, b->model, "here", &why));
    return e;
}

static void only_comparable_measurements_count(void **state)
{
    const struct bench *b = *state;
    const struct stored no[] = {
        { .machine = "there" },          { .sha256 = "feed" },
        { .kernels = "0123" },           { .isa = "ref2" },
        { .state = "failed" },           { .state = "running" },
        { .verdict = "invalid" },        { .phase = "race" },
        { .phase = "warmup" },           { .error = "out of memory" },
        { .discarded = true },           { .disturbed = true },
        { .workload = "tg64@b4" },       { .workload = "tg4@d64" },
        { .workload = "tg64@d32" },      { .config = "q4_0" },
        { .config = "q8_0,handicap=5" }, { .config = "q8_0,model=/x.gguf" },
    };
    for (size_t i = 0; i < COUNT_OF(no); i++) {
        struct stored s = no[i];
        s.rate[0] = 900;
        s.rate[1] = 910;
        store(b, s);
        struct evidence e = loaded(b);
        const struct evidence_rate r = evidence_decode(&e, "q8_0", 64);
        if (r.runs) fail_msg("case %zu counts", i);
        CHECK_NAN(r.rate.estimate);
        evidence_free(&e);
    }
    store(b, (struct stored){ .rate = { 900 } }); /* one value has no interval */
    struct evidence e = loaded(b);
    CHECK_EQ(evidence_decode(&e, "q8_0", 64).runs, 0);
    char text[800];
    CHECK_CONTAINS(evidence_elsewhere(&e, "q8_0", 64, text, sizeof text), "tok/s on tg64@d32");
    evidence_free(&e);

    /* a run whose measurements were partly disturbed: the figure that the run itself reports comes first */
    store(b, (struct stored){
                 .workload = "tg64@d16", .config = "q4_K", .rate = { 400, 400 }, .disturbed = true });
    e = loaded(b);
    CHECK_CONTAINS(evidence_elsewhere(&e, "q4_K", 64, text, sizeof text), "400.00 tok/s on tg64@d16 (run ");
    CHECK_CONTAINS(text, "; 2 of its 2 measurements were disturbed)");
    evidence_free(&e);
    store(b, (struct stored){ .workload = "tg64@d16",
                              .config = "q5_K",
                              .rate = { 400, 400, 100, 100 },
                              .disturbed_from = 2 });
    e = loaded(b);
    CHECK_CONTAINS(evidence_elsewhere(&e, "q5_K", 64, text, sizeof text), "200.00 tok/s on tg64@d16 (run ");
    CHECK_CONTAINS(text, "; 400 without its 2 of 4 disturbed measurements)");
    const struct evidence_rate some = evidence_decode(&e, "q5_K", 16);
    CHECK_NEAR(some.rate.estimate, 400, 1e-9);
    CHECK_NEAR(some.with_disturbed, 200, 1e-9);
    CHECK_EQ(some.cells, 4);
    CHECK_EQ(some.disturbed, 2);
    evidence_free(&e);

    const int64_t one = store(b, (struct stored){ .rate = { 1000, 1010 } });
    e = loaded(b);
    struct evidence_rate r = evidence_decode(&e, "q8_0", 64);
    CHECK_EQ(r.runs, 1);
    CHECK_EQ(r.run[0], one);
    CHECK_NEAR(r.rate.estimate / sqrt(1000.0 * 1010), 1, 1e-9);
    /* t(0.95, 1) = 6.3138, standard error = |ln a - ln b| / 2 */
    CHECK_NEAR(log(r.rate.upper / r.rate.estimate), 6.3138 * log(1.01) / 2, 1e-5);
    evidence_free(&e);
    const int64_t two = store(b, (struct stored){ .rate = { 1200, 1200, 1200 } });
    e = loaded(b);
    r = evidence_decode(&e, "q8_0", 64);
    CHECK_EQ(r.runs, 2);
    CHECK_EQ(r.run[0], two);
    CHECK_NEAR(r.rate.upper, 1200, 1e-6);
    CHECK_LT(r.rate.lower, 1000);
    CHECK_NEAR(r.rate.estimate, sqrt(1200 * sqrt(1000.0 * 1010)), 1e-6);
    evidence_free(&e);
    struct err why;
    CHECK_OK(db_run_delete(b->db, two, &why)); /* a deleted run no longer counts */
    e = loaded(b);
    CHECK_EQ(evidence_decode(&e, "q8_0", 64).runs, 1);
    evidence_free(&e);
}

static const struct advice *row_of(const struct advice *list, int n, const char *line)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].line, line)) return &list[i];
    return NULL;
}

static struct advice *advised(const struct bench *b, enum goal goal, int *n)
{
    struct advice *list = NULL;
    struct err why = { 0 };
    struct evidence e = loaded(b);
    CHECK_OK(advise(&list, n, b->model, &b->machine, &b->ceilings,
                    &(struct advise_options){ .goal = goal, .ctx = 512, .evidence = &e }, &why));
    evidence_free(&e);
    return list;
}

static void measured_rates_replace_predictions(void **state)
{
    const struct bench *b = *state;
    int n;
    struct advice *list = advised(b, GOAL_SPEED, &n);
    CHECK_EQ(row_of(list, n, "q8_0")->decode.runs, 0);
    CHECK(!row_of(list, n, "gptq"));
    free(list);
    const int64_t id = store(b,
                             (struct stored){ .rate = { 3, 3.1, 3.2 } }); /* slower than anything predicted */
    store(b, (struct stored){ .config = "gptq", .rate = { 5, 5.1 } });
    list = advised(b, GOAL_SPEED, &n);
    const struct advice *v = row_of(list, n, "q8_0");
    CHECK_EQ(v->decode.runs, 1);
    CHECK_EQ(v->decode.run[0], id);
    CHECK_NEAR(v->prediction.decode_tok_s.estimate, cbrt(3 * 3.1 * 3.2), 1e-9);
    CHECK_LT(v->prediction.decode_tok_s.upper, 4);
    CHECK(!v->vague);
    char text[64];
    snprintf(text, sizeof text, "the newest is run %lld", (long long)id);
    CHECK_CONTAINS(v->reason, text);
    CHECK_LT(n / 2, v - list); /* a slow measurement costs the rank */
    CHECK(row_of(list, n, "gptq"));
    CHECK(!row_of(list, n, "gptq")->prediction.on_gpu);
    free(list);
}

static void the_result_of_a_search_ranks_first(void **state)
{
    const struct bench *b = *state;
    int n;
    store(b, (struct stored){ .kind = "tune",
                              .spec = "{\"goal\":\"speed\"}",
                              .verdict = "better",
                              .outcome = "{\"winner\":\"q6_K,threads=2\",\"confirm_run\":7}" });
    struct advice *list = advised(b, GOAL_SPEED, &n);
    CHECK_STR(list[0].line, "q6_K,threads=2");
    CHECK(list[0].found);
    CHECK_CONTAINS(list[0].reason, "found and confirmed by the newest search");
    free(list);
    list = advised(b, GOAL_QUALITY, &n);
    CHECK(!list[0].found);
    CHECK_STR_NE(list[0].line, "q6_K,threads=2");
    free(list);
    /* a search that ran out of time: both of its timings are said, not only that it kept the winner */
    store(b, (struct stored){
                 .kind = "tune",
                 .verdict = "inconclusive",
                 .spec = "{\"goal\":\"speed\"}",
                 .outcome = "{\"winner\":\"default\",\"candidate\":\"threads=1\",\"rows\":[{\"metric\":"
                            "\"decode_tok_s\",\"current_rate\":41.8,\"candidate_rate\":72.7}]}" });
    list = advised(b, GOAL_SPEED, &n);
    CHECK(list[0].found);
    CHECK_CONTAINS(list[0].reason, "which timed 41.8 tok/s of it and 72.7 of threads=1, but did not prove");
    free(list);
    store(b, (struct stored){ .kind = "tune", /* with other kernels */
                              .kernels = "0123",
                              .spec = "{\"goal\":\"speed\"}",
                              .outcome = "{\"winner\":\"default\"}" });
    list = advised(b, GOAL_SPEED, &n);
    CHECK(!list[0].found);
    free(list);
}

static void vague_advice_is_moved_last(void **state)
{
    struct bench *b = *state;
    int n;
    struct advice *list = advised(b, GOAL_SPEED, &n);
    for (int i = 0; i < n; i++)
        CHECK_EQ(list[i].vague,
                 list[i].prediction.decode_tok_s.upper > 4 * list[i].prediction.decode_tok_s.lower);
    for (int i = 0; i < n; i++) list[i].vague = i % 3 == 0;
    CHECK_STR_NE(list[0].line, list[1].line);
    char first[CONFIG_LINE], second[CONFIG_LINE];
    snprintf(first, sizeof first, "%s", list[0].line);
    snprintf(second, sizeof second, "%s", list[1].line);
    const int known = advice_put_vague_last(list, n);
    CHECK_EQ(known, n - (n + 2) / 3);
    for (int i = 0; i < n; i++) CHECK_EQ(list[i].vague, i >= known);
    CHECK_STR(list[0].line, second);
    CHECK_STR(list[known].line, first);
    free(list);
    b->machine.cache_bytes[2] = 1 << 30; /* now all weights are in a cache, and no kernel was timed */
    list = advised(b, GOAL_SPEED, &n);
    CHECK_LT(advice_put_vague_last(list, n), n);
    free(list);
}

/* ---------------------------------------------------------------- rules that rest on an A/B */

/* `enough`: the fewest threads that are predicted to be fast enough; NULL: all are needed. */
static struct rule_finding rule_found_of(const struct bench *b, const char *name,
                                         const struct machine_ceilings *c, const struct evidence *e,
                                         const struct case_threads *enough)
{
    static struct rule_finding found[RULES_MAX];
    struct machine machine = { .cores = 4, .processors = 4, .memory_bytes = (int64_t)8 << 30 };
    struct prediction reference = { .plan = { .weights = 1 << 20, .total = 1 << 21 } };
    const struct case_threads all = { 0 };
    struct model_shape shape = { .dominant_format = "f16" }; /* a file that recipes can be applied to */
    const int n = rules_apply(found, &(struct rule_case){ .model = b->model,
                                                          .shape = &shape,
                                                          .machine = &machine,
                                                          .ceilings = c,
                                                          .reference = &reference,
                                                          .evidence = e,
                                                          .enough = enough ? *enough : all });
    for (int i = 0; i < n; i++)
        if (!strcmp(found[i].rule, name)) return found[i];
    return (struct rule_finding){ .rule = NULL };
}

static struct rule_finding rule_found(const struct bench *b, const char *name,
                                      const struct machine_ceilings *c, const struct evidence *e)
{
    return rule_found_of(b, name, c, e, NULL);
}

/* The rule about threads follows the predictions that the list is ranked by, not the bandwidth alone. */
static void enough_threads_are_predicted(void **state)
{
    const struct bench *b = *state;
    struct err why = { 0 };
    struct gguf *g = NULL;
    struct config plain, two;
    struct prediction all, fewer;
    const struct predict_for what = { .ctx = 256 };
    struct machine_ceilings k = b->ceilings;
    struct rule_case c = { .machine = &b->machine, .ceilings = &k, .reference = &all };
    config_default(&plain);
    CHECK_OK(config_parse(&two, "threads=2", &why));
    CHECK_OK(gguf_open(&g, b->model, &why));
    k.reads = 1;
    for (int slow = 0; slow < 2; slow++) { /* slow: arithmetic is the limit, though 2 threads read as fast */
        k.read_bytes_s_1 = 4e9;
        k.read[0] = (struct ceiling_read){ 2, 9.9e9 };
        k.row[0].ops_s_1 = slow ? 1e9 : 1e13;
        k.row[0].ops_s_all = 4 * k.row[0].ops_s_1;
        CHECK_OK(predict(&all, g, &plain, &b->machine, &k, &what, &why));
        CHECK_OK(predict(&fewer, g, &two, &b->machine, &k, &what, &why));
        CHECK_OK(rule_case_find_enough(&c, g, &what, &why));
        CHECK_EQ(fewer.decode_tok_s.estimate >= 0.95 * all.decode_tok_s.estimate, !slow);
        CHECK_EQ(c.enough.threads, slow ? 0 : 2);
        CHECK_NEAR(c.enough.all_tok_s, all.decode_tok_s.estimate, 1e-9);
        if (!slow) CHECK_NEAR(c.enough.tok_s, fewer.decode_tok_s.estimate, 1e-9);
    }
    gguf_close(g);
}

static void settings_are_advised_by_their_runs(void **state)
{
    const struct bench *b = *state;
    const struct machine_ceilings unknown = { .read_bytes_s_1 = NAN, .read_bytes_s_all = NAN };
    const struct machine_ceilings narrow = { .read_bytes_s_1 = 10e9,
                                             .read_bytes_s_all = 20e9,
                                             .threads_all = 4,
                                             .reads = 1,
                                             .read = { { 2, 19.5e9 } } };
    assert_null(rule_found(b, "pool", &unknown, NULL).rule); /* a described machine */
    struct evidence e = loaded(b);
    struct rule_finding f = rule_found(b, "prefetch", &unknown, &e);
    CHECK_CONTAINS(f.evidence, "none yet");
    CHECK_CONTAINS(f.check, "default prefetch=populate --processes new");
    f = rule_found(b, "pool", &unknown, &e);
    CHECK_CONTAINS(f.check, "affinity=compact affinity=spread");
    const struct case_threads two = { 2, 97, 100 };
    f = rule_found_of(b, "pool", &narrow, &e, &two);
    CHECK_CONTAINS(f.advice, "threads=2");
    CHECK_CONTAINS(f.reason, "2 of 4 threads are predicted to reach 97 % of the decode rate of all");
    CHECK_CONTAINS(f.evidence, "2 read 19.5 GB/s, 4 read 20 GB/s");
    /* two threads read as fast, but are predicted to compute slower than four */
    f = rule_found(b, "pool", &narrow, &e);
    CHECK_CONTAINS(f.check, "affinity=compact affinity=spread");
    /* beside other programs fewer threads are as fast because the others use the cores */
    struct machine_ceilings busy = narrow;
    busy.read_bytes_s_all = 19.6e9;
    busy.others_busy_ratio = 0.8;
    f = rule_found_of(b, "pool", &busy, &e, &two);
    CHECK_CONTAINS(f.check, "affinity=compact affinity=spread");
    f = rule_found(b, "narrow-memory", &busy, &e);
    CHECK_CONTAINS(f.evidence, "measured while other programs used 80 % of the processors");
    evidence_free(&e);

    /* slower, by one run; a config that differs in more settings is no evidence */
    store(b, (struct stored){ .rate = { 1000, 1010, 990 },
                              .other = "q8_0,prefetch=populate,threads=2",
                              .other_rate = { 2000, 2010, 1990 } });
    const int64_t slow = store(b, (struct stored){ .rate = { 1000, 1010, 990 },
                                                   .other = "q8_0,prefetch=populate",
                                                   .other_rate = { 950, 960, 940 } });
    e = loaded(b);
    char text[64];
    snprintf(text, sizeof text, "run %lld:", (long long)slow);
    f = rule_found(b, "prefetch", &unknown, &e);
    CHECK_CONTAINS(f.advice, "leave prefetch=off");
    CHECK_CONTAINS(f.reason, "was slower");
    CHECK_CONTAINS(f.evidence, text);
    CHECK_CONTAINS(f.evidence, "-5.0 %");
    evidence_free(&e);

    /* the newest run counts: faster, though the rates of both configs overlap from block to block */
    store(b, (struct stored){ .rate = { 1000, 1100, 900, 1050 },
                              .other = "q8_0,prefetch=populate",
                              .other_rate = { 1020, 1120, 920, 1070 } });
    e = loaded(b);
    f = rule_found(b, "prefetch", &unknown, &e);
    CHECK_CONTAINS(f.advice, "use prefetch=populate");
    CHECK_CONTAINS(f.evidence, "4 blocks");
    CHECK_CONTAINS(f.check, "q8_0 q8_0,prefetch=populate -w tg64@d64");
    evidence_free(&e);

    /* not shown */
    store(b, (struct stored){
                 .rate = { 1000, 1100 }, .other = "q8_0,affinity=compact", .other_rate = { 1100, 1000 } });
    e = loaded(b);
    f = rule_found(b, "pool", &narrow, &e);
    CHECK_CONTAINS(f.advice, "leave affinity=none");
    CHECK_CONTAINS(f.reason, "was not shown to be faster");
    evidence_free(&e);
}

int main(void)
{
#define EVIDENCE_TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        EVIDENCE_TEST(only_comparable_measurements_count), EVIDENCE_TEST(measured_rates_replace_predictions),
        EVIDENCE_TEST(the_result_of_a_search_ranks_first), EVIDENCE_TEST(vague_advice_is_moved_last),
        EVIDENCE_TEST(settings_are_advised_by_their_runs), EVIDENCE_TEST(enough_threads_are_predicted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
