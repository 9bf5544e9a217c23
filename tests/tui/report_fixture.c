/* tests/tui/report_fixture.c - made by a seeded generator: enough of everything that a report shows. */
#include "tests/tui/report_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "advisor/run/run.h"
#include "advisor/stats/stats.h"

static const int64_t NOON = 1795262400000; /* 2026-11-21 12:00:00 UTC */

static void text_put(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text);
}
#define PUT(field, text) text_put((field), sizeof(field), (text))

/* About normal: the sum of twelve uniforms. */
static double noise(uint64_t *seed)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += (double)(stats_random(seed) >> 11) * 0x1p-53;
    return sum;
}

static void machine_fill(struct report_source *s)
{
    struct machine *m = &s->machine;
    s->machine_known = true;
    PUT(m->id, "0123456789ab");
    PUT(m->cpu, "Intel(R) Xeon(R) Processor @ 2.10GHz");
    PUT(m->os, "Debian GNU/Linux 12 (bookworm)");
    PUT(m->kernel, "6.1.0-18-amd64");
    PUT(m->hypervisor, "kvm");
    m->isa = ISA_SSE41 | ISA_AVX2 | ISA_AVX512 | ISA_AVX512VNNI;
    m->sockets = 1;
    m->cores = m->processors = 2;
    m->cache_bytes[0] = 32 << 10;
    m->cache_bytes[1] = 2 << 20;
    m->cache_bytes[2] = 300 << 20;
    m->memory_bytes = 23LL << 30;
}

static void arm_fill(struct report_source *s, int arm, const char *line, double rate)
{
    struct experiment_arm *a = &s->state.arm[arm];
    struct err why;
    if (config_parse(&s->state.spec.config[arm], line, &why)) abort();
    PUT(a->line, line);
    PUT(a->recipe, line);
    a->ready = a->merged_known = true;
    a->merged = s->state.spec.config[arm];
    PUT(a->model_name, "stories15M");
    PUT(a->arch, "llama");
    PUT(a->sha256, "a701cb7c94593ff18f1cf3565c35e089c74ea33e5ac58510bf76ac45b5f5c099");
    PUT(a->dominant_format, arm ? "q4_0" : "q8_0");
    PUT(a->isa, "avx512vnni");
    PUT(a->device, "cpu");
    a->threads = 2;
    for (int m = 0; m < METRIC_COUNT; m++) a->value[m] = NAN;
    a->rate = a->value[METRIC_DECODE_RATE] = rate;
    a->joules_per_token = a->joules_per_token_half = a->co2_g_per_token = NAN;
    a->value[METRIC_TTFT] = 0.0031;
    a->value[METRIC_ITL_P50] = 1 / rate;
    a->value[METRIC_ITL_P95] = 1.1 / rate;
    a->value[METRIC_ITL_P99] = 1.3 / rate;
    a->value[METRIC_PEAK_MEMORY] = (double)((arm ? 22LL : 31LL) << 20);
    a->plan = (struct memory_plan){
        .weights = 15 << 20, .kv = 1 << 20, .compute = 3 << 20, .scratch = 1 << 20, .total = 20 << 20
    };
    a->cells = 2;
}

struct maker {
    struct report_source *s;
    uint64_t seed;
    double now_s;
    int room;
};

static void add_samples(struct maker *m, struct report_cell *c)
{
    enum { TICKS = 5 };
    static const int SENSORS[] = { METRIC_CPU_FREQUENCY, METRIC_CPU_BUSY, METRIC_OTHERS_BUSY,
                                   METRIC_CPU_STEAL };
    c->sample = arena_alloc(&m->s->arena, TICKS * COUNT_OF(SENSORS) * sizeof *c->sample);
    if (!c->sample) abort();
    for (int t = 0; t < TICKS; t++)
        for (size_t k = 0; k < COUNT_OF(SENSORS); k++) {
            const double mean[] = { 2.9e9, 0.93, 0.01, c->discarded ? 0.12 : 0.002 };
            const double spread[] = { 2e7, 0.02, 0.004, 0.001 };
            c->sample[c->samples++] = (struct report_sample){
                (float)(c->seconds * (t + 0.5) / TICKS), (short)SENSORS[k],
                fmax(0, mean[k] + spread[k] * noise(&m->seed))
            };
        }
}

static void add_cell(struct maker *m, int arm, int block, int slot, const char *phase, double rate)
{
    enum { TOKENS = 64 };
    struct report_source *s = m->s;
    if (s->cells == m->room) abort();
    struct report_cell *c = &s->cell[s->cells++];
    c->arm = arm;
    c->block = block;
    c->slot = slot;
    c->phase = phase;
    c->discarded = !strcmp(phase, "block") && block == 3;
    c->reason = c->discarded ? "the hypervisor took 12 % of the processors" : "";
    c->start_s = m->now_s;
    c->seconds = TOKENS / rate;
    m->now_s += c->seconds + 0.05;
    for (int i = 0; i < METRIC_COUNT; i++) c->value[i] = NAN;
    c->value[METRIC_DECODE_RATE] = rate;
    float *itl = arena_alloc(&s->arena, TOKENS * sizeof *itl);
    if (!itl) abort();
    for (int i = 0; i < TOKENS; i++)
        itl[i] = (float)(1 / rate * exp(0.03 * noise(&m->seed)) * (i % 61 == 60 ? 1.6 : 1));
    c->itl = itl;
    c->itls = TOKENS;
    add_samples(m, c);
}

static void add_event(struct report_source *s, int second, const char *text)
{
    s->event[s->events++] = (struct report_event){ NOON + 1000 * second, "note", text };
}

/* Kept blocks in order, with one discarded block 3 among them. */
static void add_blocks(struct maker *m, int blocks, double effect, double sd)
{
    struct experiment_state *x = &m->s->state;
    for (int kept = 0, number = 0; kept < blocks; number++) {
        const double d = effect + sd * noise(&m->seed), base = 240 * exp(0.01 * noise(&m->seed));
        for (int slot = 0; slot < 4; slot++) {
            const int arm = (slot == 0 || slot == 3) == (number % 2 == 0) ? 0 : 1;
            add_cell(m, arm, number, slot, "block", base * exp(arm * d));
        }
        if (number != 3) x->comparison[1].d[kept++] = d;
    }
    x->blocks = x->comparison[1].blocks = blocks;
    x->discarded = blocks > 3;
}

struct report_source *report_fixture(int blocks, double effect, double sd)
{
    struct report_source *s = calloc(1, sizeof *s);
    if (!s) abort();
    struct experiment_state *x = &s->state;
    struct maker m = { s, 7, 0, 4 * (blocks + 8) };
    struct err why;
    s->cell = arena_alloc(&s->arena, (size_t)m.room * sizeof *s->cell);
    s->event = arena_alloc(&s->arena, 8 * sizeof *s->event);
    if (!s->cell || !s->event) abort();
    s->written_ms = NOON + 3600000;
    PUT(s->version, "0.1.0");
    x->run_id = 12;
    x->phase = PHASE_DONE;
    x->started_ms = NOON;
    x->ended_ms = NOON + 133000;
    x->cell_repeats = 1;
    x->overhead_ratio = 0.004;
    PUT(x->machine_id, "0123456789ab");
    PUT(x->spec.model, "/models/stories15M-f16.gguf");
    if (workload_parse(&x->spec.workload, "tg64", &why)) abort();
    x->spec.metric = &METRICS[METRIC_DECODE_RATE];
    x->spec.margin = 0.01;
    x->spec.seed = 1;
    x->spec.arms = 2;
    x->headline = 1;
    machine_fill(s);
    arm_fill(s, 0, "q8_0,threads=2", 240);
    arm_fill(s, 1, "q4_0,threads=2", 240 * exp(effect));
    for (int a = 0; a < 2; a++) add_cell(&m, a, -1, 0, "warmup", 200);
    for (int b = 0; b < 3; b++) {
        for (int slot = 0; slot < 4; slot++) add_cell(&m, 0, b, slot, "control", 240);
        x->control_d[x->control_blocks++] = 0.002 * noise(&m.seed);
    }
    x->control = stats_t_interval(x->control_d, x->control_blocks, 0.95);
    x->noise_floor = 0.5 * (x->control.upper - x->control.lower);
    x->mde = 0.006;
    add_blocks(&m, blocks, effect, sd);
    add_event(s, 4, "A against itself over 3 blocks: +0.1 % +- 0.6 %");
    if (blocks > 3) add_event(s, 20, "block 3 discarded: the hypervisor took 12 % of the processors");
    struct comparison *c = &x->comparison[1];
    c->alpha = 0.05;
    experiment_judge(x);
    c->fixed = stats_t_interval(c->d, blocks, 0.95);
    c->hodges_lehmann = stats_hodges_lehmann(c->d, blocks, 0.95);
    c->permutation_p = stats_permutation_p(c->d, blocks, 1);
    c->lag1 = stats_lag1(c->d, blocks);
    for (int i = 0; i < CELL_METRICS; i++) {
        c->by_metric[i] = (struct interval){ NAN, NAN, NAN };
        for (int a = 0; a < EXPERIMENT_ARMS; a++) x->arm[a].mean[i] = (struct interval){ NAN, NAN, NAN };
    }
    const double memory = log(31.0 / 22);
    c->by_metric[METRIC_DECODE_RATE - METRIC_SENSOR_COUNT] = c->effect;
    c->by_metric[METRIC_PEAK_MEMORY - METRIC_SENSOR_COUNT] = (struct interval){ memory, memory - 0.001,
                                                                                memory + 0.001 };
    return s;
}
