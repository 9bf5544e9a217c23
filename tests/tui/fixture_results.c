/* tests/tui/fixture_results.c - stored results of the fixture's model: quality, latencies, sensitivity, the
 * KV cache. The values come from simple formulas, so that a reader can check a golden screen. */
#include "tests/tui/fixture.h"

#include <math.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "advisor/stats/stats.h"

#define PUT(field, text) snprintf((field), sizeof(field), "%s", (text))

static void quality(struct quality_results *q)
{
    static const struct {
        const char *config;
        double kld, top1, ppl;
    } LINES[] = {
        { "q8_0", 0.000031, 0.998, 6.42 }, { "q6_K", 0.00037, 0.991, 6.43 },
        { "q5_K", 0.0011, 0.984, 6.44 },   { "gptq:u4_g128,calib=/texts/stories.txt", 0.0049, 0.966, 6.49 },
        { "q4_K", 0.0058, 0.962, 6.50 },   { "q4_0", 0.0121, 0.941, 6.61 },
        { "q3_K", 0.0404, 0.893, 6.93 },   { "q2_K", 0.21, 0.774, 8.4 }
    };
    q->count = COUNT_OF(LINES);
    PUT(q->text, "held-out.txt");
    for (int i = 0; i < q->count; i++) {
        struct quality_result *l = &q->line[i];
        const double k = LINES[i].kld, t = LINES[i].top1, p = LINES[i].ppl;
        PUT(l->config, LINES[i].config);
        PUT(l->reference, "default");
        quality_result_explain(l);
        PUT(l->text, "held-out.txt");
        l->run_id = 5;
        l->ctx = 512;
        l->windows = 40;
        l->kld = (struct interval){ k, k * 0.8, k * 1.2 };
        l->top1 = (struct interval){ t, t - 0.004, t + 0.002 };
        l->ppl = (struct interval){ p, p - 0.11, p + 0.11 };
        l->ppl_ratio = (struct interval){ p / 6.41, p / 6.41 - 0.001, p / 6.41 + 0.001 };
    }
    struct quality_result *last = &q->line[q->count - 1];
    PUT(last->text, "mails.txt");
    last->foreign = true;
}

static void sensitivity(struct sensitivity *s)
{
    static const char *const KINDS[] = { "token_embd", "attn_q", "attn_k",   "attn_v", "attn_output",
                                         "ffn_gate",   "ffn_up", "ffn_down", "output" };
    static const float WEIGHT[] = { 8e-4F, 2e-5F, 5e-5F, 4e-4F, 1e-4F, 6e-5F, 5e-5F, 9e-4F, 2e-3F };
    struct sensitivity_map *m = &s->map[0];
    s->maps = 1;
    PUT(s->basis, "held-out.txt, 8 windows of 512");
    PUT(m->format, "q4_0");
    m->kinds = COUNT_OF(KINDS);
    m->layers = 7; /* the model itself and its six layers */
    m->estimated[6][3] = m->estimated[6][4] = true;
    for (int k = 0; k < m->kinds; k++) {
        const bool whole = k == 0 || k == m->kinds - 1;
        PUT(m->kind[k], KINDS[k]);
        for (int i = 0; i < SENSITIVITY_LAYERS; i++) m->loss[k][i] = NAN;
        if (whole) m->loss[k][0] = WEIGHT[k];
        for (int i = 1; i < m->layers && !whole; i++) /* the first and the last layers matter most */
            m->loss[k][i] = WEIGHT[k] * (1 + (float)((i - 3.5) * (i - 3.5)));
    }
}

/* n values: most near `middle`, a tail to three times that. */
static void latencies(struct latency_histogram *l, int n, float middle)
{
    float v[1000];
    for (int i = 0; i < n; i++) {
        const float part = (float)i / (float)n;
        v[i] = middle * (0.9F + 0.2F * part + (part > 0.97F ? 60 * (part - 0.97F) : 0));
    }
    latency_histogram_make(l, v, n);
}

static void load(struct load_results *l)
{
    static const struct {
        const char *workload, *config;
        int sequences, requests;
        float ttft, itl;
    } LINES[] = { { "pp128+tg64@b8", "q4_0,threads=2", 8, 480, 0.31F, 0.061F },
                  { "tg128", "q4_0,threads=2", 1, 44, NAN, 0.0262F },
                  { "pp512", "q8_0,threads=2", 1, 6, 0.42F, NAN } };
    l->lines = COUNT_OF(LINES);
    for (int i = 0; i < l->lines; i++) {
        struct stored_load *line = &l->line[i];
        PUT(line->workload, LINES[i].workload);
        PUT(line->config, LINES[i].config);
        line->sequences = LINES[i].sequences;
        line->requests = LINES[i].requests;
        latencies(&line->ttft, isnan(LINES[i].ttft) ? 0 : LINES[i].requests, LINES[i].ttft);
        latencies(&line->itl, isnan(LINES[i].itl) ? 0 : 1000, LINES[i].itl);
        stored_load_explain(line);
        line->prefill_tok_s = isnan(LINES[i].ttft) ? NAN : 128 * LINES[i].sequences / (double)LINES[i].ttft;
        line->decode_tok_s = LINES[i].sequences / (double)LINES[i].itl;
    }
}

static void occupancy(struct occupancy *o)
{
    *o = (struct occupancy){ .arm = 1, .blocks = 64, .block_tokens = 32, .rows = 8, .batch = 512, .step = 1 };
    for (int i = 0; i < o->blocks; i++) o->map[i] = i < 40 ? (char)('0' + i % 8) : '.';
    o->used = 40;
}

void fixture_measured(struct snapshot *s)
{
    quality(&s->quality);
    sensitivity(&s->sensitivity);
    load(&s->load);
    occupancy(&s->experiment.occupancy);
    for (int arm = 0; arm < 2; arm++) {
        struct memory_plan *p = &s->experiment.arm[arm].plan;
        p->flops_per_token = 30e6;
        p->decode_read_bytes = arm ? 9000000 : 16000000;
        p->kv_bytes_per_token = 6912;
        p->batch = 512;
    }
    s->experiment.arm[0].value[METRIC_PREFILL_RATE] = 9100;
}

/* As many rows as there can be, values without bounds, names without end. */
/* A load after 250 of 400 requests. */
static void live(struct live *l)
{
    *l = (struct live){ .seconds = 61,
                        .arrived = 261,
                        .done = 250,
                        .not_done = 2,
                        .met = 231,
                        .missed = 21,
                        .prompt_tokens = 64000,
                        .cached_tokens = 21120,
                        .tokens = 15800,
                        .preemptions = 3,
                        .stall_s = 0.06,
                        .waiting = 3,
                        .running = 8,
                        .speed = 1,
                        .limits = 2,
                        .limit = { { LOAD_TTFT, 0.5 }, { LOAD_ITL_P99, 0.06 } } };
    PUT(l->settings,
        "max_sequences=8,prefix_cache=on,evict=lru,preempt=recompute,schedule=fcfs,itl_limit=100");
    for (int i = 0; i < 258; i++) live_times_add(&l->first, 0.08 * (1 + (i % 40) / 8.0));
    for (int i = 0; i < 15000; i++) live_gap_add(l, i % 500 ? 0.02 * (1 + (i % 20) / 60.0) : 0.09);
    for (int i = 0; i < 700; i++) {
        const int prompt = i % 9 == 0 ? 64 : 0;
        l->step[l->steps++ % LIVE_STEPS] = (struct live_step){ 8 + prompt, prompt, 8, 0.02 + prompt * 5e-4 };
    }
}

static void served_blocks(struct occupancy *o)
{
    *o = (struct occupancy){ .arm = 1,
                             .blocks = 96,
                             .used = 60,
                             .block_tokens = 32,
                             .rows = 72,
                             .batch = 512,
                             .step = 1,
                             .serves = true,
                             .cached = 20,
                             .spared = 14,
                             .running = 8,
                             .waiting = 3 };
    for (int i = 0; i < o->blocks; i++)
        o->map[i] = i < 4 ? '#' : i < 60 ? (char)('0' + i % 8) : i < 80 ? '-' : '.';
}

static void traffic(struct load_traffic *t)
{
    for (int i = 0; i < 90; i++) {
        series_push(&t->arrivals, 4 + i % 5);
        series_push(&t->tokens, 260 + i % 30);
        series_push(&t->waiting, i % 11 < 4 ? i % 4 : 0);
        series_push(&t->running, MIN(i / 4, 8));
    }
}

struct snapshot *fixture_load(void)
{
    struct snapshot *s = fixture_running();
    s->load_source = LOAD_OF_EXPERIMENT;
    s->experiment.live_known = true;
    live(&s->experiment.live);
    s->experiment.live.speed = 1.25;
    served_blocks(&s->experiment.occupancy);
    traffic(&s->traffic);
    return s;
}

struct snapshot *fixture_server(void)
{
    struct snapshot *s = fixture_idle();
    struct server_watch *w = &s->server;
    s->load_source = LOAD_OF_SERVER;
    PUT(w->url, "http://127.0.0.1:8080");
    PUT(w->status, "ok");
    PUT(w->model, "stories15M");
    w->known = true;
    w->max_sequences = 16;
    w->overloaded = 2;
    live(&w->live);
    served_blocks(&w->occupancy);
    traffic(&s->traffic);
    return s;
}

struct snapshot *fixture_server_gone(void)
{
    struct snapshot *s = fixture_server();
    PUT(s->server.error, "cannot reach http://127.0.0.1:8080/load: connection refused");
    return s;
}

void fixture_measured_extreme(struct snapshot *s)
{
    s->quality.count = QUALITY_RESULTS;
    for (int i = 0; i < QUALITY_RESULTS; i++) {
        struct quality_result *l = &s->quality.line[i];
        memset(l->config, 'c', sizeof l->config - 1);
        memset(l->reference, 'r', sizeof l->reference - 1);
        l->kld = (struct interval){ i % 3 ? 1e9 : 0, i % 2 ? NAN : -1, i % 5 ? 1e300 : NAN };
        l->ppl = l->top1 = l->ppl_ratio = (struct interval){ i % 3 ? 1e300 : NAN, NAN, INFINITY };
        l->windows = INT64_MAX;
    }
    s->sensitivity.maps = 1;
    struct sensitivity_map *m = &s->sensitivity.map[0];
    m->kinds = SENSITIVITY_KINDS;
    m->layers = SENSITIVITY_LAYERS;
    for (int k = 0; k < m->kinds; k++) {
        memset(m->kind[k], 'k', sizeof m->kind[k] - 1);
        for (int i = 0; i < m->layers; i++) m->loss[k][i] = i % 7 ? (float)(i * k) * 1e30F : NAN;
    }
    s->load.lines = LOAD_RESULTS;
    for (int i = 0; i < LOAD_RESULTS; i++) {
        struct stored_load *l = &s->load.line[i];
        memset(l->workload, 'w', sizeof l->workload - 1);
        memset(l->config, 'c', sizeof l->config - 1);
        l->requests = INT64_MAX;
        l->ttft = (struct latency_histogram){
            .n = INT32_MAX, .lo = 1e-30, .hi = 1e30, .p50 = 1e9, .p95 = NAN, .p99 = 0
        };
        l->ttft.bin[0] = l->ttft.bin[LATENCY_BINS - 1] = INT32_MAX;
        l->prefill_tok_s = l->decode_tok_s = 1e300;
    }
    struct server_watch *server = &s->server;
    s->load_source = LOAD_OF_SERVER;
    live(&server->live);
    server->known = true;
    memset(server->url, 'u', sizeof server->url - 1);
    memset(server->model, 'm', sizeof server->model - 1);
    memset(server->status, 's', sizeof server->status - 1);
    memset(server->live.settings, 'c', sizeof server->live.settings - 1);
    server->live.arrived = server->live.done = server->live.not_done = server->live.steps = INT64_MAX / 2;
    server->live.met = server->live.missed = server->live.stalls = INT64_MAX / 2;
    server->live.first.n = server->live.gap.n = INT64_MAX;
    server->live.first.bin[0] = server->live.gap.bin[LIVE_BINS - 1] = INT64_MAX;
    server->live.waiting = server->live.running = INT32_MAX;
    server->live.limits = LOAD_LIMITS;
    server->overloaded = INT64_MAX;
    memset(server->occupancy.map, '#', OCCUPANCY_CELLS);
    server->occupancy.blocks = server->occupancy.used = server->occupancy.rows = 1 << 30;
    traffic(&s->traffic);
    struct occupancy *o = &s->experiment.occupancy;
    *o = (struct occupancy){
        .arm = 1, .blocks = 1 << 30, .used = 1 << 30, .rows = 1 << 30, .batch = 0, .step = 1 << 20
    };
    memset(o->map, '+', OCCUPANCY_CELLS);
    s->ceilings_known = true;
    s->experiment.arm[0].plan.flops_per_token = 1e300;
    s->experiment.arm[0].plan.decode_read_bytes = 1;
    s->experiment.arm[0].plan.total = 1;
}
