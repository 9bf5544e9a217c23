/* tests/tui/fixture.c - made by hand, so that a reader can check a golden screen against it. */
#include "tests/tui/fixture.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "advisor/advise/advise.h"
#include "advisor/stats/stats.h"

static const int64_t NOON = 1795262400000; /* 2026-11-21 12:00:00 UTC */

void fixture_environment(void)
{
    setlocale(LC_ALL, "C.UTF-8");
    setenv("TZ", "UTC0", 1);
    tzset();
}

static void text_put(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text);
}
#define PUT(field, text) text_put((field), sizeof(field), (text))

struct snapshot *fixture_empty(void)
{
    struct snapshot *s = calloc(1, sizeof *s);
    if (!s) abort();
    s->unix_ms = NOON;
    s->own_cost_ratio = NAN;
    s->run_count = s->spool_count = -1;
    s->quality.count = s->load.lines = -1;
    for (int i = 0; i < METRIC_SENSOR_COUNT; i++) s->sensor[i] = NAN;
    for (int i = 0; i < EXPERIMENT_ARMS; i++) s->decode_limit[i] = s->prefill_limit[i] = NAN;
    return s;
}

static void log_put(struct snapshot *s, int seconds, enum log_level level, const char *text)
{
    struct log_line *l = &s->log[s->log_count++];
    l->unix_ms = NOON - 120000 + seconds * 1000;
    l->level = level;
    PUT(l->text, text);
}

static void machine_fill(struct snapshot *s)
{
    struct machine *m = &s->machine;
    s->machine_known = true;
    PUT(m->id, "0123456789ab");
    PUT(m->cpu, "Intel(R) Xeon(R) Processor @ 2.10GHz");
    m->isa = ISA_SSE41 | ISA_AVX2 | ISA_AVX512 | ISA_AVX512VNNI | ISA_AVX512BF16 | ISA_AMX;
    m->sockets = 1;
    m->cores = m->processors = 2;
    m->numa_nodes = 1;
    m->memory_bytes = m->memory_available_bytes = 23LL << 30;
    m->cgroup_memory_bytes = -1;
    m->cgroup_cpus = NAN;
    s->ceilings_known = true;
    s->ceilings.read_bytes_s_1 = 13.2e9;
    s->ceilings.read_bytes_s_all = 24.1e9;
    s->ceilings.threads_all = 2;
    s->ceilings.count = 1;
    PUT(s->ceilings.row[0].name, "int8_tile");
    PUT(s->ceilings.row[0].isa, "amx");
    s->ceilings.row[0].ops_s_1 = 1.1e12;
    s->ceilings.row[0].ops_s_all = 2.2e12;
}

static void sensors_fill(struct snapshot *s)
{
    static const struct {
        enum metric_id id;
        double value;
    } VALUES[] = { { METRIC_CPU_BUSY, 0.93 },
                   { METRIC_CPU_STEAL, 0.004 },
                   { METRIC_CPU_FREQUENCY, 3.1e9 },
                   { METRIC_CPU_TEMPERATURE, 61 },
                   { METRIC_MEM_USED, 6.1 * (1 << 30) },
                   { METRIC_SWAP_USED, 0 },
                   { METRIC_PSI_CPU, 0.02 },
                   { METRIC_PSI_MEMORY, 0 },
                   { METRIC_OTHERS_BUSY, 0.01 } };
    for (size_t i = 0; i < COUNT_OF(VALUES); i++) s->sensor[VALUES[i].id] = VALUES[i].value;
    s->cores = 2;
    s->core_busy[0] = 0.97;
    s->core_busy[1] = 0.89;
    for (int i = 0; i < 60; i++) {
        series_push(&s->cpu, i % 17 == 0 ? NAN : 0.5 + 0.5 * sin(i * 0.2));
        series_push(&s->memory, 0.20 + 0.001 * i);
        series_push(&s->gpu, NAN);
    }
    s->own_cost_ratio = 0.006;
}

/* stories15M: 6 layers, width 288, feed-forward 768, f16; with an f16 cache a token takes 6 * 2 * 288 * 2
 * bytes. */
static void ledger_fill(struct model_summary *l)
{
    static const struct {
        const char *name, *shape, *format;
        int count;
        int64_t params;
        int bytes; /* a number */
    } GROUPS[] = {
        { "token_embd", "288 x 32000", "f16", 1, 288 * 32000, 2 },
        { "output", "288 x 32000", "f16", 1, 288 * 32000, 2 },
        { "blk.*.ffn_down", "768 x 288", "f16", 6, 6 * 768 * 288, 2 },
        { "blk.*.ffn_gate", "288 x 768", "f16", 6, 6 * 768 * 288, 2 },
        { "blk.*.ffn_up", "288 x 768", "f16", 6, 6 * 768 * 288, 2 },
        { "blk.*.attn_k", "288 x 288", "f16", 6, 6 * 288 * 288, 2 },
        { "blk.*.attn_output", "288 x 288", "f16", 6, 6 * 288 * 288, 2 },
        { "blk.*.attn_q", "288 x 288", "f16", 6, 6 * 288 * 288, 2 },
        { "blk.*.attn_v", "288 x 288", "f16", 6, 6 * 288 * 288, 2 },
        { "blk.*.attn_norm", "288", "f32", 6, 6 * 288, 4 },
        { "blk.*.ffn_norm", "288", "f32", 6, 6 * 288, 4 },
        { "output_norm", "288", "f32", 1, 288, 4 },
    };
    static const char *const CACHES[] = { "f32", "f16", "q8_0", "q4_0" };
    static const int PER_TOKEN[] = { 13824, 6912, 3672, 1944 };
    for (size_t i = 0; i < COUNT_OF(GROUPS); i++) {
        struct tensor_group *g = &l->group[l->groups++];
        PUT(g->name, GROUPS[i].name);
        PUT(g->shape, GROUPS[i].shape);
        PUT(g->format, GROUPS[i].format);
        g->count = GROUPS[i].count;
        g->params = GROUPS[i].params;
        g->bytes = g->params * GROUPS[i].bytes;
        l->bytes += g->bytes;
    }
    l->contexts = 2;
    l->context[0] = 512;
    l->context[1] = 2048;
    l->caches = COUNT_OF(CACHES);
    for (size_t k = 0; k < COUNT_OF(CACHES); k++) {
        l->cache[k] = CACHES[k];
        l->kv_bytes_per_token[k] = PER_TOKEN[k];
        for (int i = 0; i < l->contexts; i++) l->total[k][i] = l->bytes + l->context[i] * PER_TOKEN[k];
    }
    l->total[0][1] = 24LL << 30; /* more than the fixture's machine has */
}

struct snapshot *fixture_idle(void)
{
    struct snapshot *s = fixture_empty();
    machine_fill(s);
    sensors_fill(s);
    struct model_shape *m = &s->model;
    PUT(s->model_path, "/models/stories15M-f16.gguf");
    PUT(m->arch, "llama");
    PUT(m->name, "stories15M");
    PUT(m->dominant_format, "f16");
    m->layers = 6;
    m->heads = m->kv_heads = 6;
    m->embd = 288;
    m->ff = 768;
    m->vocab = 32000;
    m->ctx_train = 2048;
    m->params = 24407712;
    m->weight_bytes = 48900000;
    ledger_fill(&s->summary);
    s->proposals.count = 2;
    PUT(s->proposals.row[0].line, "q8_0");
    s->proposals.row[0].changes_answers = true;
    PUT(s->proposals.row[1].line, "threads=1");
    s->run_count = 0;
    log_put(s, 1, LOG_INFO, "limits measured: reads 24.1 GB/s with 2 threads");
    return s;
}

struct snapshot *fixture_gpu(void)
{
    struct snapshot *s = fixture_idle();
    s->machine.gpus = 1;
    PUT(s->machine.gpu[0].vendor, "nvidia");
    PUT(s->machine.gpu[0].name, "NVIDIA H200");
    s->machine.gpu[0].memory_bytes = 139LL << 30;
    s->sensor[METRIC_GPU_BUSY] = 0.42;
    s->sensor[METRIC_GPU_MEM_USED] = 12.5 * (1 << 30);
    s->sensor[METRIC_GPU_MEM_TOTAL] = 139.0 * (1 << 30);
    s->sensor[METRIC_GPU_TEMPERATURE] = 48;
    s->sensor[METRIC_GPU_POWER] = 312;
    s->sensor[METRIC_CPU_POWER] = 95.4;
    s->sensor[METRIC_PSI_IO] = 0.01;
    for (int i = 0; i < 60; i++) series_push(&s->gpu, 0.01 * (i % 50));
    return s;
}

/* ---------------------------------------------------------------- an experiment */

static void arm_fill(struct experiment_arm *a, const char *line, const char *recipe, double decode,
                     int64_t weights)
{
    PUT(a->line, line);
    PUT(a->recipe, recipe);
    a->ready = true;
    for (int m = 0; m < METRIC_COUNT; m++) a->value[m] = NAN;
    a->rate = a->value[METRIC_DECODE_RATE] = decode;
    a->value[METRIC_TTFT] = 0.31;
    a->value[METRIC_ITL_P50] = 1 / decode;
    a->value[METRIC_ITL_P99] = 1.2 / decode;
    a->value[METRIC_PEAK_MEMORY] = (double)(weights + (110LL << 20));
    a->plan.weights = weights;
    a->plan.kv = 30LL << 20;
    a->plan.compute = 36LL << 20;
    a->plan.scratch = 4LL << 20;
    a->plan.total = weights + (70LL << 20);
    a->cells = 14;
}

static void arms_fill(struct experiment_state *x)
{
    struct err why;
    x->run_id = 12;
    PUT(x->spec.model, "/models/stories15M-f16.gguf");
    if (workload_parse(&x->spec.workload, "tg128", &why)) abort();
    x->spec.metric = &METRICS[METRIC_DECODE_RATE];
    x->spec.margin = 0.01;
    x->spec.control_blocks = 3;
    x->spec.min_blocks = 6;
    x->spec.max_blocks = 32;
    arm_fill(&x->arm[0], "q8_0,threads=2", "q8_0", 24.1, 640LL << 20);
    arm_fill(&x->arm[1], "q4_0,threads=2", "q4_0", 38.2, 340LL << 20);
}

static void effect_fill(struct experiment_state *x, const double *d, int n)
{
    struct comparison *c = &x->comparison[1];
    x->spec.arms = 2;
    x->headline = 1;
    x->blocks = c->blocks = n;
    memcpy(c->d, d, sizeof *d * (size_t)n);
    for (int i = 0; i < CELL_METRICS; i++) c->by_metric[i] = (struct interval){ NAN, NAN, NAN };
    c->by_metric[METRIC_PEAK_MEMORY - METRIC_SENSOR_COUNT] = (struct interval){ 0.511, 0.509,
                                                                                0.513 }; /* 750 to 450 */
    c->effect = stats_anytime_interval(d, n, 0.95);
    c->effect90 = stats_anytime_interval(d, n, 0.90);
    c->alpha = 0.05;
    c->e = stats_coin_evalue(d, n);
    c->p = fmin(1, 1 / c->e);
    x->control_blocks = 3;
    x->control = (struct interval){ 0.001, -0.007, 0.009 };
    x->noise_floor = 0.008;
    x->mde = 0.012;
    x->planned_blocks = n + 4;
}

static void advice_put(struct snapshot *s, const char *line, double decode, int64_t bytes, const char *reason,
                       const char *caution)
{
    struct advice *a = &s->advice[s->advice_count++];
    if (config_parse(&a->config, line, NULL)) abort();
    PUT(a->line, line);
    PUT(a->reason, reason);
    PUT(a->caution, caution);
    snprintf(a->workload, sizeof a->workload, "tg128");
    snprintf(a->check, sizeof a->check, "qdyno ab -m /models/stories15M-f16.gguf default %s -w tg128", line);
    a->prediction.decode_tok_s.estimate = decode;
    a->prediction.decode_tok_s.lower = decode * 0.8;
    a->prediction.decode_tok_s.upper = decode * 1.05;
    a->prediction.decode_limit_tok_s = decode * 1.1;
    a->prediction.prefill_tok_s.estimate = 1610;
    a->prediction.prefill_tok_s.lower = 1200;
    a->prediction.prefill_tok_s.upper = 1900;
    a->prediction.prefill_limit_tok_s = 3900;
    a->prediction.plan.total = bytes;
    a->kld = strstr(line, "q4_0") ? 0.012 : strstr(line, "q8_0") ? 0.0009 : 0;
    a->prediction.fits = bytes < 23LL << 30;
}

static void runs_fill(struct snapshot *s)
{
    static const struct run_line RUNS[] = {
        { 12, 1795262280000, "ab", "running", "", "q8_0,threads=2 | q4_0,threads=2", "stories15M", "tg128",
          "", NAN },
        { 11, 1795258000000, "ab", "done", "better", "f16 | q8_0", "stories15M", "tg128", "", 1.71 },
        { 10, 1795254000000, "ab", "done", "equivalent", "threads=2 | threads=2,affinity=spread",
          "stories15M", "pp512", "", 1.001 },
        { 9, 1795250000000, "bench", "done", "", "f16", "stories15M", "pp512+tg128", "", NAN },
        { 8, 1795240000000, "ab", "stopped", "", "f16 | q4_0", "stories15M", "tg128", "", NAN },
        { 7, 1795230000000, "ab", "done", "invalid", "f16 | q4_0", "stories15M", "tg128", "", 1.9 },
        { 6, 1795220000000, "ab", "failed", "", "f16 | f32", "big-70b", "tg128", "", NAN },
    };
    s->run_count = COUNT_OF(RUNS);
    memcpy(s->run, RUNS, sizeof RUNS);
}

static void write_fill(struct sidebyside_state *w)
{
    static const char *const TEXTS[] = {
        " was a small dog who lived in a red house. It liked to run by the sea.",
        " was a small dog who lived in a big house. It liked to sleep, and in the "
        "evening it sat by the fire.\nOne day it rained."
    };
    PUT(w->model, "/models/stories15M-f16.gguf");
    PUT(w->prompt, "Once upon a time there");
    w->limit = 200;
    w->differ = true;
    w->started_ms = 1784030000000;
    w->same_tokens = 8;
    w->same_bytes = (int)strlen(" was a small dog who lived in a");
    for (int i = 0; i < SIDEBYSIDE_ARMS; i++) {
        struct sidebyside_arm *a = &w->arm[i];
        snprintf(a->line, sizeof a->line, "%s", i ? "q4_0,threads=2" : "q8_0,threads=2");
        snprintf(a->text, sizeof a->text, "%s", TEXTS[i]);
        a->phase = SIDEBYSIDE_DONE;
        a->ended = i ? "limit" : "end of text";
        a->text_bytes = (int)strlen(a->text);
        a->tokens = i ? 30 : 19;
        a->loaded_ratio = 1;
        a->load_s = 0.2 + 0.3 * i;
        a->prefill_s = 0.031;
        a->tok_s = i ? 38.2 : 24.1;
    }
}

static struct arena kept;

struct snapshot *fixture_running(void)
{
    static const double D[] = { 0.452, 0.468, 0.455, 0.463, 0.459, 0.466, 0.461 };
    struct snapshot *s = fixture_idle();
    struct experiment_state *x = &s->experiment;
    s->experiment_known = s->experiment_live = true;
    x->phase = PHASE_BLOCKS;
    arms_fill(x);
    s->command.arena = &kept;
    experiment_command(&s->command, s);
    fixture_measured(s);
    effect_fill(x, D, COUNT_OF(D));
    x->discarded = 1;
    x->verdict = VERDICT_NONE;
    x->blocks_needed = 4;
    x->running_arm = 1;
    x->block = 8;
    x->slot = 2;
    PUT(x->cell_phase, "decode");
    x->cell_done = 45;
    x->cell_of = 128;
    x->live_tok_s = 38.4;
    x->elapsed_s = 95;
    s->command_started_ms = s->unix_ms - 95000;
    x->eta_s = 41;
    s->decode_limit[0] = 26.5;
    s->decode_limit[1] = 42.0;
    for (int i = 0; i < 30; i++) series_push(&s->decode, i % 6 == 5 ? NAN : 36 + i % 4);
    advice_put(s, "q4_0,threads=2", 39, 700LL << 20,
               "decode is bandwidth-bound here: half the bytes, near twice the speed",
               "changes answers: quality not measured yet");
    advice_put(s, "q8_0,threads=2", 24, 1170LL << 20, "half the bytes of f16 at almost its quality",
               "changes answers: quality not measured yet");
    advice_put(s, "threads=2", 13, 2200LL << 20, "what the file is", "");
    runs_fill(s);
    log_put(s, 5, LOG_INFO, "run 12: q8_0,threads=2 against q4_0,threads=2 on tg128");
    log_put(s, 33, LOG_INFO, "A/A control passed: within 0.8 %");
    log_put(s, 71, LOG_WARN, "block 3 discarded: CPU steal 4 %");
    s->write_known = true;
    write_fill(&s->write);
    return s;
}

struct snapshot *fixture_done(enum verdict verdict)
{
    static const double FASTER[] = { 0.452, 0.468, 0.455, 0.463, 0.459, 0.466, 0.461, 0.457 };
    static const double SAME[] = { 0.002, -0.003, 0.001, 0.004, -0.002, 0.000, 0.001, -0.001 };
    bool same = verdict == VERDICT_EQUIVALENT || verdict == VERDICT_NEGLIGIBLE;
    double d[COUNT_OF(FASTER)];
    struct snapshot *s = fixture_running();
    s->command.n = 0;
    struct experiment_state *x = &s->experiment;
    for (size_t i = 0; i < COUNT_OF(d); i++)
        d[i] = same ? SAME[i] : verdict == VERDICT_WORSE ? -FASTER[i] : FASTER[i];
    x->phase = PHASE_DONE;
    effect_fill(x, d, COUNT_OF(d));
    x->verdict = verdict;
    x->control_failed = verdict == VERDICT_INVALID;
    x->blocks_needed = 0;
    x->running_arm = x->block = x->slot = -1;
    x->cell_phase[0] = '\0';
    x->live_tok_s = x->eta_s = NAN;
    x->elapsed_s = 133;
    return s;
}

static void quality_fill(struct quality *q, double kld, double ratio)
{
    q->known = true;
    PUT(q->text, "excerpt.txt");
    q->ctx = 512;
    q->kld = (struct interval){ kld, 0.9 * kld, 1.1 * kld };
    q->top1 = (struct interval){ 0.941, 0.932, 0.949 };
    q->ppl_ratio = (struct interval){ ratio, ratio - 0.004, ratio + 0.004 };
}

struct snapshot *fixture_arms(void)
{
    static const struct {
        const char *line;
        double decode, effect;
        enum verdict verdict;
    } ARMS[] = { { "q8_0,threads=2", 24.1, 0, VERDICT_NONE },
                 { "q4_0,threads=2", 38.2, 0.46, VERDICT_BETTER },
                 { "q8_0,threads=1", 15.2, -0.46, VERDICT_WORSE },
                 { "q8_0,threads=2,hugepages=all", 24.2, 0.004, VERDICT_EQUIVALENT },
                 { "q5_0,threads=2,affinity=spread", 27.8, 0.14, VERDICT_NONE } };
    static const double WOBBLE[] = { 0.003, -0.004, 0.001, 0.002, -0.002, 0.004, -0.003, 0.001, -0.001 };
    struct snapshot *s = fixture_done(VERDICT_BETTER);
    struct experiment_state *x = &s->experiment;
    x->phase = PHASE_DONE;
    x->spec.arms = COUNT_OF(ARMS);
    x->headline = 1;
    x->blocks = COUNT_OF(WOBBLE);
    for (int a = 0; a < x->spec.arms; a++) {
        struct comparison *c = &x->comparison[a];
        arm_fill(&x->arm[a], ARMS[a].line, "q4_0", ARMS[a].decode, (640LL - 60 * a) << 20);
        if (!a) continue;
        c->blocks = a == 4 ? 7 : (int)COUNT_OF(WOBBLE);
        for (int i = 0; i < c->blocks; i++) c->d[i] = ARMS[a].effect + WOBBLE[i];
        for (int i = 0; i < CELL_METRICS; i++) c->by_metric[i] = (struct interval){ NAN, NAN, NAN };
        c->alpha = 0.05;
        c->effect = stats_anytime_interval(c->d, c->blocks, 0.95);
        c->by_metric[METRIC_DECODE_RATE - METRIC_SENSOR_COUNT] = c->effect;
        c->e = stats_coin_evalue(c->d, c->blocks);
        c->p = fmin(1, 1 / c->e);
        c->verdict = ARMS[a].verdict;
    }
    x->comparison[4].dropped = true;
    x->comparison[4].dropped_at = 7;
    quality_fill(&x->comparison[1].quality, 0.0121, 1.012);
    quality_fill(&x->comparison[3].quality, 0, 1);
    return s;
}

struct snapshot *fixture_failed(void)
{
    struct snapshot *s = fixture_running();
    struct experiment_state *x = &s->experiment;
    x->phase = PHASE_FAILED;
    s->command.n = 0;
    x->running_arm = -1;
    x->blocks = 0;
    x->comparison[1].blocks = 0;
    x->comparison[1].effect = (struct interval){ NAN, NAN, NAN };
    x->arm[1].failed = true;
    PUT(x->arm[1].error, "does not fit: wants 140G, this machine has 21.3G");
    PUT(x->error, "arm B: does not fit: wants 140G, this machine has 21.3G");
    return s;
}

static void tune_extreme(struct snapshot *s)
{
    struct tune_watch *t = &s->tune;
    tune_watch_begin(t, 0);
    t->run_id = INT64_MAX;
    t->phase = TUNE_PHASE_CONFIRM;
    memset(t->model, 'm', sizeof t->model - 1);
    memset(t->config, 'c', sizeof t->config - 1);
    memset(t->what, 'w', sizeof t->what - 1);
    memset(t->why, 'y', sizeof t->why - 1);
    memset(t->challenger, 'h', sizeof t->challenger - 1);
    t->share = 7e9;
    t->left_s = 1e18;
    t->possible = t->timed = t->judged = t->blocks = 2000000000;
    t->effect = (struct interval){ 1e300, -1, 1e308 };
    for (t->rows = 0; t->rows < TUNE_BOARD; t->rows++) {
        struct tune_row *r = &t->row[t->rows];
        *r = (struct tune_row){ .rate = 1e300,
                                .lower = 1e-300,
                                .upper = 1e308,
                                .bytes = INT64_MAX,
                                .kld = 1e300,
                                .timings = 2000000000,
                                .is_current = t->rows == TUNE_BOARD - 1 };
        memset(r->config, 'r', sizeof r->config - 1);
        if (t->rows % 3 == 0)
            PUT(r->config, "日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語");
        if (t->rows % 4 == 0) r->lower = r->upper = r->rate = NAN;
        if (t->rows % 5 == 0) memset(r->excluded, 'x', sizeof r->excluded - 1);
    }
}

static void fixture_experts_extreme(struct model_summary *l)
{
    l->experts = l->experts_used = INT32_MAX;
    struct stored_experts *e = &l->choices;
    *e = (struct stored_experts){ .tokens = INT64_MAX,
                                  .effective_mean = 1e300,
                                  .layers = STORED_EXPERT_LAYERS };
    memset(e->text, 't', sizeof e->text - 1);
    for (int i = 0; i < e->layers; i++)
        e->layer[i] = (struct stored_expert_layer){ INT32_MAX, { .effective = 1e300, .never = INT32_MAX } };
}

struct snapshot *fixture_extreme(void)
{
    struct snapshot *s = fixture_running();
    struct experiment_state *x = &s->experiment;
    memset(s->machine.cpu, 'W', sizeof s->machine.cpu - 1);
    memset(x->arm[0].line, 'x', sizeof x->arm[0].line - 1);
    PUT(x->arm[1].line,
        "日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語日本語 e\xcc\x81 \xff\xfe\x01\x1b[31m");
    x->random_weights = s->model.random_weights = s->write.random_weights = true;
    memset(s->write.arm[0].text, 'w', SIDEBYSIDE_TEXT - 1); /* one word */
    for (int i = 0; i + 3 < SIDEBYSIDE_TEXT; i += 3) memcpy(s->write.arm[1].text + i, "日", 3);
    memset(s->write.prompt, '\n', sizeof s->write.prompt - 1);
    memset(s->write.arm[0].line, 'x', sizeof s->write.arm[0].line - 1);
    s->write.arm[0].tok_s = 1e300;
    x->arm[0].rate = 1e300;
    x->arm[1].rate = -1e-300;
    x->arm[1].value[METRIC_PEAK_MEMORY] = (double)INT64_MAX;
    x->eta_s = 1e18;
    x->blocks = x->comparison[1].blocks = EXPERIMENT_BLOCKS;
    for (int i = 0; i < EXPERIMENT_BLOCKS; i++) x->comparison[1].d[i] = (i % 7 - 3) * 1e3;
    x->comparison[1].effect = (struct interval){ 700, -1e6, 1e6 };
    x->cell_done = 2000000000;
    x->cell_of = 1;
    x->block = x->slot = 2000000000;
    s->cores = SNAPSHOT_CORES;
    for (int i = 0; i < SNAPSHOT_CORES; i++) s->core_busy[i] = i % 3 ? 7.5 : -1;
    while (s->log_count < SNAPSHOT_LOG)
        log_put(s, s->log_count, LOG_ERROR,
                "ﾊﾝｶｸ 全角 wide wide wide wide wide wide wide wide wide 全角全角全角全角全角全角全角全角");
    memset(s->model_path, '/', sizeof s->model_path - 1);
    memset(s->summary.group[0].name, 'n', sizeof s->summary.group[0].name - 1);
    s->summary.groups = SUMMARY_GROUPS;
    s->summary.contexts = SUMMARY_CONTEXTS;
    s->summary.left_out = 1 << 30;
    s->summary.left_out_bytes = s->summary.total[1][1] = INT64_MAX;
    s->summary.bytes = 0;
    fixture_experts_extreme(&s->summary);
    memset(s->run[0].label, 'L', sizeof s->run[0].label - 1);
    memset(s->advice[0].reason, 'r', sizeof s->advice[0].reason - 1);
    memset(s->advice[0].check, 'c', sizeof s->advice[0].check - 1);
    fixture_measured_extreme(s);
    fixture_ranks_extreme(s);
    tune_extreme(s);
    return s;
}

struct snapshot *fixture_home(void)
{
    struct snapshot *s = fixture_idle(), *ran = fixture_done(VERDICT_BETTER);
    static const char *const TEXTS[RECENT_RUNS] = {
        "B (q8_0) is 71 % faster at decoding (95 %: 69 to 73 %), with half the memory, with the same energy per "
        "token; quality not measured.",
        "B (threads=2,affinity=spread) and A are equally fast at reading the prompt (95 %: -0.4 to +0.6 %).",
        "bench f16 on pp512+tg128"
    };
    for (int i = 0; i < RECENT_RUNS; i++) {
        s->recent[i].line = ran->run[i + 1];
        snprintf(s->recent[i].text, sizeof s->recent[i].text, "%s", TEXTS[i]);
    }
    s->recent_count = RECENT_RUNS;
    s->stopped_ab = (struct stopped_run){
        .id = 8, .started_ms = ran->run[4].started_ms, .state = "interrupted", .model = "stories15M"
    };
    snprintf(s->applied, sizeof s->applied, "q4_K,threads=2,act=int8");
    snprintf(s->applied_when, sizeof s->applied_when, "2026-11-20T18:00:00Z");
    snprintf(s->applied_because, sizeof s->applied_because, "search 14: 33 %% faster");
    memcpy(s->run, ran->run, sizeof s->run);
    s->run_count = ran->run_count;
    free(ran);
    return s;
}

struct words fixture_words(const char *line)
{
    struct words w = { .arena = &kept };
    words_put(&w, "qdyno");
    (void)words_put_line(&w, line, NULL);
    return w;
}

const char *line_of(const struct words *w)
{
    static struct str text;
    str_clear(&text);
    words_print(&text, w, 0);
    return str_text(&text);
}

const char *command_of(enum action action, const struct ui *u, const struct snapshot *s)
{
    struct words w = { .arena = &kept };
    equivalent_command(&w, action, u, s);
    return line_of(&w);
}

const char *command_of_screen(const struct ui *u, const struct snapshot *s)
{
    struct words w = { .arena = &kept };
    static struct str text;
    screen_command(&w, u, s);
    str_clear(&text);
    command_print(&text, u, &w);
    return str_text(&text);
}

struct snapshot *fixture_stored(void)
{
    struct snapshot *s = fixture_done(VERDICT_BETTER);
    s->experiment_live = false;
    s->queued = 1;
    s->queue[0] = (struct queued_job){ .id = 1,
                                       .command = fixture_words("quantize in.gguf out.gguf -R q4_K") };
    return s;
}
