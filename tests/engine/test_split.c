/* Proves: parallel= is parsed with one spelling, and refused with what is expected; the parts of all ranks
 * together have every row of every matrix that is divided once, and heads with their keys and values stay
 * together; the plan of all ranks contains the weights once and the KV cache of one process;
 * activations come back from what travels between processes with the error of their format. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/config/config.h"
#include "engine/plan/plan.h"
#include "engine/synth/synth.h"
#include "tests/check.h"

static void modes(void **state)
{
    static const struct {
        const char *text, *canonical;
        int ranks;
    } CASES[] = {
        { "off", "off", 1 },
        { "tp2", "tp2", 2 },
        { "dp2.tp2", "tp2.dp2", 4 },
        { "pp3", "pp3", 3 },
        { "cp4.pp2", "cp4.pp2", 8 },
        { "pp20+12", "pp20+12", 2 },
        { "dp2.pp3+1+100.tp2", "tp2.pp3+1+100.dp2", 12 },
        { "tp64", "tp64", 64 },
        { "dp2.pp2.cp2.tp2", "tp2.cp2.pp2.dp2", 16 },
    };
    static const char *const WRONG[] = { "",      "tp",       "tp1",   "tp0",      "tp65",
                                         "tp2.",  "tp2.tp2",  "xp2",   "tp2,pp2",  "tp8.dp9",
                                         "on",    "tp-2",     "tp2x",  "pp3+",     "pp+3",
                                         "pp0+3", "pp1000+1", "tp2+2", "pp3+1.pp2" };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct parallel p;
        struct err why;
        char text[64];
        CHECK_OK(parallel_parse(&p, CASES[i].text, &why));
        CHECK_EQ(parallel_ranks(&p), CASES[i].ranks);
        assert_string_equal(parallel_text(&p, text, sizeof text), CASES[i].canonical);
    }
    for (size_t i = 0; i < COUNT_OF(WRONG); i++) {
        struct parallel p;
        struct err why = { 0 };
        if (parallel_parse(&p, WRONG[i], &why) != ERR_USAGE) fail_msg("'%s' is accepted", WRONG[i]);
        if (!strstr(why.message, "tpN")) fail_msg("'%s': %s", WRONG[i], why.message);
    }
}

/* The role of a rank in words is the part that it computes. */
static void check_role(const struct parallel *m, int rank, const struct part *p)
{
    const struct {
        const char *kind;
        int index, of;
    } PARTS[] = { { "tp", p->tp_rank, p->tp },
                  { "cp", p->cp_rank, p->cp },
                  { "pp", p->stage, p->pp },
                  { "dp", p->replica, p->dp } };
    char role[64], wanted[32];
    parallel_role(m, rank, role, sizeof role);
    for (size_t i = 0; i < COUNT_OF(PARTS); i++) {
        snprintf(wanted, sizeof wanted, "%s %d/%d", PARTS[i].kind, PARTS[i].index + 1, PARTS[i].of);
        CHECK_EQ(strstr(role, wanted) != NULL, PARTS[i].of > 1);
    }
}

/* Stages in proportion to speeds, each with a layer, together all of them. */
static void stages_follow_speeds(void **state)
{
    static const struct {
        int layers, stages;
        double speed[4];
        int want[4];
    } CASES[] = { { 32, 2, { 1, 1 }, { 16, 16 } },
                  { 32, 2, { 3, 1 }, { 24, 8 } },
                  { 4, 4, { 100, 1, 1, 1 }, { 1, 1, 1, 1 } },
                  { 10, 3, { 1, 1000, 1 }, { 1, 8, 1 } },
                  { 7, 2, { 0.5, 1 }, { 2, 5 } },
                  { 1, 2, { 1, 1 }, { 0, 0 } } };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct parallel p = { .tp = 1, .cp = 1, .pp = CASES[i].stages, .dp = 1 };
        split_stages(&p, CASES[i].layers, CASES[i].speed);
        for (int k = 0; k < CASES[i].stages; k++) CHECK_EQ(p.stage_layers[k], CASES[i].want[k]);
    }
}

/* A shape with `heads` and `kv` heads of size 8, of one layer. */
static struct model_shape shape_of(int heads, int kv, int ff)
{
    struct model_shape s = {
        .layers = 1, .heads = heads, .kv_heads = kv, .embd = 8 * heads, .ff = ff, .vocab = 500
    };
    s.parts[0] = (struct layer_parts){ .mixer = MIXER_ATTENTION,
                                       .feed_forward = true,
                                       .head_dim_k = 8,
                                       .head_dim_v = 8,
                                       .kv_heads = kv,
                                       .ff = ff };
    return s;
}

/* How many ranks have each row of a matrix. */
static void count_rows(int *count, const struct arch *a, const struct model_shape *s, int tp, enum slot slot,
                       int64_t rows)
{
    memset(count, 0, (size_t)rows * sizeof *count);
    for (int r = 0; r < tp; r++) {
        struct row_range range[ROW_RANGES];
        const struct part p = { .tp = tp, .tp_rank = r };
        const int n = split_rows(range, &p, a, s, slot < SLOT_GLOBAL_COUNT ? -1 : 0, slot, rows);
        for (int i = 0; i < n; i++)
            for (int64_t row = range[i].from; row < range[i].from + range[i].rows; row++) count[row]++;
    }
}

static void rows_are_divided(void **state)
{
    static const struct {
        int heads, kv, ff, tp;
    } CASES[] = { { 8, 8, 172, 2 }, { 9, 3, 1536, 2 }, { 9, 3, 1536, 3 },
                  { 8, 2, 64, 4 },  { 8, 1, 200, 8 },  { 6, 6, 10, 5 } };
    static const enum slot SLOTS[] = { SLOT_Q,
                                       SLOT_ATTN_OUT,
                                       SLOT_GATE,
                                       SLOT_UP,
                                       SLOT_DOWN,
                                       SLOT_OUTPUT,
                                       SLOT_ROUTER,
                                       SLOT_GATE_EXPERTS,
                                       SLOT_GATE_UP_EXPERTS,
                                       SLOT_DOWN_EXPERTS,
                                       SLOT_UP_SHARED,
                                       SLOT_DOWN_SHARED,
                                       SLOT_LATENT_Q,
                                       SLOT_LATENT_KV_B,
                                       SLOT_STATE_IN,
                                       SLOT_STATE_OUT,
                                       SLOT_SHORT_IN };
    (void)state;
    for (size_t c = 0; c < COUNT_OF(CASES); c++)
        for (size_t i = 0; i < COUNT_OF(SLOTS); i++) {
            const struct arch a = { .gate_in_up = SLOTS[i] == SLOT_UP, .query_gate = SLOTS[i] == SLOT_Q };
            struct model_shape s = shape_of(CASES[c].heads, CASES[c].kv, CASES[c].ff);
            s.experts = 24;
            s.expert_ff = s.shared_ff = CASES[c].ff;
            s.nope_dims = 4;
            s.rope_dims = 2;
            s.latent_v_dims = 3;
            s.state = (struct state_shape){ .taps = 4, .heads = 5, .value_dim = 6, .channels = 70 };
            const int layer = SLOTS[i] < SLOT_GLOBAL_COUNT ? -1 : 0;
            const int64_t rows = arch_layer_dim(ARCH_SLOTS[SLOTS[i]].rows, &a, &s, layer);
            int *count = calloc((size_t)rows, sizeof *count);
            assert_non_null(count);
            count_rows(count, &a, &s, CASES[c].tp, SLOTS[i], rows);
            for (int64_t r = 0; r < rows; r++)
                if (count[r] != 1)
                    fail_msg("case %zu, slot %d: %d ranks have row %lld", c, SLOTS[i], count[r],
                             (long long)r);
            free(count);
        }
}

static void heads_stay_with_their_keys(void **state)
{
    static const int CASES[][3] = { { 9, 3, 2 },  { 8, 2, 4 },  { 8, 1, 4 },
                                    { 32, 8, 8 }, { 12, 4, 3 }, { 8, 2, 2 } };
    (void)state;
    for (size_t c = 0; c < COUNT_OF(CASES); c++) {
        const int heads = CASES[c][0], kv = CASES[c][1], tp = CASES[c][2], group = heads / kv;
        int next = 0;
        for (int r = 0; r < tp; r++) {
            const struct head_part h = split_heads(tp, r, heads, kv);
            CHECK_EQ(h.head, next);
            CHECK_EQ(h.head / group, h.kv_head);
            CHECK_EQ((h.head + h.heads - 1) / group, h.kv_head + h.kv_heads - 1);
            CHECK_EQ(h.heads % h.kv_heads, 0);
            next += h.heads;
        }
        CHECK_EQ(next, heads);
    }
}

static void every_layer_has_a_rank(void **state)
{
    static const struct {
        struct parallel mode;
        int layers;
    } CASES[] = { { { 1, 1, 3, 1, { 0 } }, 7 }, { { 2, 1, 2, 2, { 0 } }, 30 },
                  { { 4, 1, 1, 1, { 0 } }, 3 }, { { 1, 1, 5, 3, { 0 } }, 5 },
                  { { 2, 3, 2, 2, { 0 } }, 8 }, { { 2, 1, 3, 1, { 5, 1, 2 } }, 8 } };
    (void)state;
    for (size_t c = 0; c < COUNT_OF(CASES); c++) {
        const struct parallel *m = &CASES[c].mode;
        for (int l = 0; l < CASES[c].layers; l++) {
            int have = 0;
            for (int r = 0; r < parallel_ranks(m); r++) {
                const struct part p = part_of(m, r, CASES[c].layers);
                check_role(m, r, &p);
                CHECK_EQ(part_rank(&p, p.replica, p.stage, p.tp_rank), r);
                have += part_has_layer(&p, l);
            }
            CHECK_EQ(have, m->tp * m->cp * m->dp);
        }
    }
}

static void plans(void **state)
{
    struct err why;
    struct config c;
    struct memory_plan one, two;
    struct gguf *g;
    char path[] = "/tmp/qdyno-split-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    const struct synth_options o = { .shape = synth_shape_find("tiny"),
                                     .format = &FORMATS[FORMAT_Q8_0],
                                     .seed = 1 };
    assert_non_null(o.shape);
    CHECK_OK(synth_write(path, &o, &why));
    (void)state;
    CHECK_OK(gguf_open(&g, path, &why));
    CHECK_OK(config_parse(&c, "batch=8", &why));
    CHECK_OK(plan_memory(&one, g, &c, NULL, 256, 1, &why));
    CHECK_OK(config_parse(&c, "batch=8,parallel=tp2", &why));
    CHECK_OK(plan_memory(&two, g, &c, NULL, 256, 1, &why));
    CHECK_EQ(one.ranks, 0);
    CHECK_EQ(two.ranks, 2);
    CHECK_EQ(one.weights, two.weights);
    CHECK_EQ(labs((long)(one.kv - two.kv)) <= 256 * 8, true); /* rounded to cache lines, in each layer */
    CHECK_EQ(two.rank_total < one.total, true);
    CHECK_EQ(two.total, two.weights + two.kv + two.compute + two.scratch);
    /* 5000 positions: rank 0 has blocks 0, 3 and 4 of 1024, the last with 904, and rank 1 blocks 1 and 2 */
    CHECK_OK(config_parse(&c, "batch=8", &why));
    CHECK_OK(plan_memory(&one, g, &c, NULL, 5000, 1, &why));
    CHECK_OK(config_parse(&c, "batch=8,parallel=cp2", &why));
    CHECK_OK(plan_memory(&two, g, &c, NULL, 5000, 1, &why));
    CHECK_EQ(labs((long)(one.kv - two.kv)) <= one.kv / 100, true);
    CHECK_EQ(two.rank_total < one.total, true);
    gguf_close(g);
    unlink(path);
}

/* Ranks have the positions between them, each in a place of its own that a cache of its size has. */
static void positions_are_divided(void **state)
{
    static const int CONTEXTS[] = { 1, 31, 1024, 1025, 2049, 5000, 9000 };
    const struct model_shape s = shape_of(4, 2, 64);
    (void)state;
    for (size_t i = 0; i < COUNT_OF(CONTEXTS); i++)
        for (int cp = 2; cp <= 4; cp++) {
            int owned = 0;
            for (int r = 0; r < cp; r++) {
                const struct model_session e = {
                    .ctx = CONTEXTS[i],
                    .sequences = 3,
                    .part = part_of(&(struct parallel){ .tp = 1, .cp = cp, .pp = 1, .dp = 1 }, r, 1),
                    .k_format = &FORMATS[FORMAT_F16],
                    .v_format = &FORMATS[FORMAT_F16]
                };
                const struct kv_layer kv = session_kv_layer(&e, &s, 0);
                const struct attention_share own = part_share(&e.part);
                const int have = share_before(&own, e.ctx), room = kv.blocks / e.sequences * kv.block_tokens;
                CHECK_EQ(have <= room && room < have + 2 * KV_BLOCK_TOKENS, true);
                CHECK_EQ(kv.blocks % e.sequences, 0);
                owned += have;
            }
            CHECK_EQ(owned, CONTEXTS[i]);
        }
}

/* Sizes by hand; a row comes back with the format's error, whatever its length; a NaN is not lost. */
static void wires(void **state)
{
    static const struct {
        enum format_id id;
        int64_t bytes33; /* of a row of 33 numbers */
        float error;     /* of numbers between -1 and 1 */
    } CASES[] = { { FORMAT_F32, 132, 0 },
                  { FORMAT_BF16, 66, 1 / 256.0f },
                  { FORMAT_Q8_0, 68, 1 / 220.0f } /* half a step of 1 / 127, and a scale in f16 */ };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        const struct format *f = &FORMATS[CASES[i].id];
        CHECK_EQ(wire_row_bytes(f, 33), CASES[i].bytes33);
        for (int n = 1; n <= 70; n++) {
            float x[70], back[71];
            char wire[512];
            for (int c = 0; c < n; c++) x[c] = sinf((float)(c * 7 + n));
            memset(wire, 0x55, sizeof wire);
            back[n] = 9;
            wire_pack(f, x, n, wire);
            CHECK_EQ(wire[wire_row_bytes(f, n)], 0x55);
            wire_unpack(f, wire, n, back);
            CHECK_NEAR((double)back[n], 9, 0);
            for (int c = 0; c < n; c++) CHECK_NEAR((double)back[c], (double)x[c], (double)CASES[i].error);
            x[n / 2] = i % 2 ? INFINITY : NAN;
            wire_pack(f, x, n, wire);
            wire_unpack(f, wire, n, back);
            CHECK(!isfinite(back[n / 2]));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modes),
        cmocka_unit_test(stages_follow_speeds),
        cmocka_unit_test(rows_are_divided),
        cmocka_unit_test(heads_stay_with_their_keys),
        cmocka_unit_test(every_layer_has_a_rank),
        cmocka_unit_test(positions_are_divided),
        cmocka_unit_test(plans),
        cmocka_unit_test(wires),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
