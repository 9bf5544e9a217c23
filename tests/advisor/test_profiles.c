/* Proves: every shipped machine description is complete, names its sources, and gets the advice of its golden
 * text, which a person has reviewed. Also: faster machines are predicted faster, what does not fit says so,
 * and rules apply only where their hardware is. */
#include <dirent.h>
#include <math.h>

#include "tests/advisor/shape_file.h"
#include "advisor/advise/advise.h"
#include "advisor/predict/predict.h"

static const char *const PROFILES[] = { "a100",         "arc-a770", "epyc",    "gaudi2",   "gaudi3",
                                        "h100",         "m2-max",   "m4-max",  "mi250",    "npu-lunar-lake",
                                        "npu-ryzen-ai", "rpi5",     "rtx4090", "rx7900xt", "t4",
                                        "tpu-v5e",      "tpu-v6e",  "v100",    "xeon-amx" };

struct profile {
    json_t *doc;
    struct machine machine;
    struct machine_ceilings ceilings;
};

static void profile_open(struct profile *p, const char *name)
{
    char path[512], *text = NULL;
    size_t n;
    struct err why = { 0 };
    snprintf(path, sizeof path, "%s/share/machines/%s.json", TEST_SOURCE_DIR, name);
    CHECK_OK(file_read(&text, &n, path, 1 << 20, &why));
    CHECK_OK(json_parse(&p->doc, text, n, &why));
    free(text);
    CHECK_OK(machine_from_json(&p->machine, json_object_get(p->doc, "machine"), &why));
    CHECK_OK(ceilings_from_json(&p->ceilings, json_object_get(p->doc, "ceilings"), &why));
}

struct model_file {
    char dir[256], path[300];
};

/* 8.0 G parameters, grouped heads: 16 GB as f16. */
static int set_up(void **state)
{
    struct model_file *m = calloc(1, sizeof *m);
    if (!m) return -1;
    scratch(m->dir, sizeof m->dir);
    snprintf(m->path, sizeof m->path, "%s/8b.gguf", m->dir);
    const struct shape_file s = { .arch = "llama",
                                  .format = &FORMATS[FORMAT_F16],
                                  .layers = 32,
                                  .heads = 32,
                                  .kv_heads = 8,
                                  .embd = 4096,
                                  .ff = 14336,
                                  .vocab = 128256,
                                  .ctx = 8192 };
    shape_file_write(m->path, &s);
    *state = m;
    return 0;
}

static int tear_down(void **state)
{
    struct model_file *m = *state;
    unlink(m->path);
    rmdir(m->dir);
    free(m);
    return 0;
}

static void every_profile_says_where_it_comes_from(void **state)
{
    (void)state;
    DIR *d = opendir(TEST_SOURCE_DIR "/share/machines");
    int files = 0;
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d)) files += strstr(e->d_name, ".json") != NULL;
    closedir(d);
    assert_int_equal(files, COUNT_OF(PROFILES));
    for (size_t i = 0; i < COUNT_OF(PROFILES); i++) {
        struct profile p;
        profile_open(&p, PROFILES[i]);
        const json_t *about = json_object_get(p.doc, "recording");
        assert_string_equal(json_get_str(about, "origin", ""), "described");
        CHECK_LE(1, json_array_size(json_object_get(about, "sources")));
        CHECK_LE(1, json_array_size(json_object_get(about, "estimated")));
        CHECK_LT(0, p.machine.cores);
        CHECK_LT(0, p.machine.memory_bytes);
        CHECK(p.machine.isa);
        CHECK(*p.machine.cpu);
        CHECK_LE(p.ceilings.read_bytes_s_1, p.ceilings.read_bytes_s_all);
        CHECK_LE(2, p.ceilings.count);
        CHECK_EQ(p.machine.gpus > 0, p.ceilings.gpu.read_bytes_s > 0);
        /* it survives writing and parsing */
        struct machine_ceilings again;
        struct err why = { 0 };
        json_t *text = ceilings_to_json(&p.ceilings);
        CHECK_OK(ceilings_from_json(&again, text, &why));
        CHECK_EQ(again.gpu.unified, p.ceilings.gpu.unified);
        CHECK_EQ(again.count, p.ceilings.count);
        json_decref(text);
        json_decref(p.doc);
    }
}

/* Three digits: more would suggest a precision that is not there. */
static void put_rates(struct str *s, const char *what, double v, double low, double high)
{
    str_printf(s, "  %s %.3g [%.3g, %.3g]", what, v, low, high);
}

static void describe(struct str *s, const char *name, const char *model, enum goal goal)
{
    struct profile p;
    struct advice *list = NULL;
    struct err why = { 0 };
    int n;
    profile_open(&p, name);
    const struct advise_options o = { .goal = goal };
    CHECK_OK(advise(&list, &n, model, &p.machine, &p.ceilings, &o, &why));
    str_printf(s, "%s, %s\n", name, goal_name(goal));
    for (int i = 0; i < MIN(n, 4); i++) {
        const struct prediction *r = &list[i].prediction;
        char bytes[16];
        str_printf(s, "%d %s %s", i + 1, r->on_gpu ? "gpu" : "cpu", list[i].line);
        put_rates(s, "decode", r->decode_tok_s.estimate, r->decode_tok_s.lower, r->decode_tok_s.upper);
        put_rates(s, "prefill", r->prefill_tok_s.estimate, r->prefill_tok_s.lower, r->prefill_tok_s.upper);
        str_printf(s, "  %s%s\n", str_from_bytes(r->plan.weights + r->plan.kv, bytes, sizeof bytes),
                   r->fits ? "" : " does not fit");
    }
    free(list);
    json_decref(p.doc);
}

static void put_rules(struct str *s, const char *name, const char *model)
{
    struct profile p;
    struct rule_finding found[RULES_MAX];
    struct gguf *g = NULL;
    struct model_shape shape;
    struct config plain;
    struct prediction reference;
    struct err why = { 0 };
    profile_open(&p, name);
    config_default(&plain);
    CHECK_OK(gguf_open(&g, model, &why));
    CHECK_OK(model_shape_read(&shape, g, &why));
    const struct predict_for what = { .on_gpu = p.ceilings.gpu.read_bytes_s > 0 };
    CHECK_OK(predict(&reference, g, &plain, &p.machine, &p.ceilings, &what, &why));
    const int n = rules_apply(found, &(struct rule_case){ .model = "8b.gguf",
                                                          .shape = &shape,
                                                          .machine = &p.machine,
                                                          .ceilings = &p.ceilings,
                                                          .reference = &reference,
                                                          .goal = GOAL_BALANCED });
    for (int i = 0; i < n; i++) {
        CHECK(*found[i].advice);
        CHECK(*found[i].reason);
        CHECK(*found[i].evidence);
        str_printf(s, "* %s: %s\n    %s\n    rests on: %s\n", found[i].rule, found[i].advice, found[i].reason,
                   found[i].evidence);
        if (*found[i].check) str_printf(s, "    %s\n", found[i].check);
    }
    gguf_close(g);
    json_decref(p.doc);
}

static void check_golden(const char *name, const char *got)
{
    char path[512], *want = NULL;
    struct err why = { 0 };
    snprintf(path, sizeof path, "%s/tests/golden/advice_%s.txt", TEST_SOURCE_DIR, name);
    if (getenv("QDYNO_UPDATE_GOLDEN")) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(got, f);
        fclose(f);
        return;
    }
    CHECK_OK(file_read(&want, NULL, path, 1 << 20, &why));
    assert_string_equal(got, want);
    free(want);
}

static void advice_is_what_its_golden_text_says(void **state)
{
    const struct model_file *m = *state;
    for (size_t i = 0; i < COUNT_OF(PROFILES); i++) {
        struct str s = { 0 };
        describe(&s, PROFILES[i], m->path, GOAL_BALANCED);
        if (!strcmp(PROFILES[i], "t4") || !strcmp(PROFILES[i], "xeon-amx"))
            describe(&s, PROFILES[i], m->path, GOAL_QUALITY);
        put_rules(&s, PROFILES[i], m->path);
        check_golden(PROFILES[i], str_text(&s));
        str_free(&s);
    }
}

static struct prediction predicted(const char *profile, const char *model, const char *line)
{
    struct profile p;
    struct gguf *g = NULL;
    struct config c;
    struct prediction out;
    struct err why = { 0 };
    profile_open(&p, profile);
    CHECK_OK(gguf_open(&g, model, &why));
    CHECK_OK(config_parse(&c, line, &why));
    const struct predict_for what = { .ctx = 4096, .on_gpu = p.ceilings.gpu.read_bytes_s > 0 };
    CHECK_OK(predict(&out, g, &c, &p.machine, &p.ceilings, &what, &why));
    gguf_close(g);
    json_decref(p.doc);
    return out;
}

static void faster_machines_are_predicted_faster(void **state)
{
    const char *model = ((struct model_file *)*state)->path;
    static const char *const SLOW_TO_FAST[] = {
        "rpi5", "t4", "m2-max", "rx7900xt", "rtx4090", "a100", "h100"
    };
    for (size_t i = 0; i + 1 < COUNT_OF(SLOW_TO_FAST); i++) {
        const struct prediction a = predicted(SLOW_TO_FAST[i], model, "q4_0"),
                                b = predicted(SLOW_TO_FAST[i + 1], model, "q4_0");
        CHECK_LT(a.decode_tok_s.estimate, b.decode_tok_s.estimate);
        CHECK_LT(a.decode_tok_s.lower, a.decode_tok_s.estimate);
        CHECK_LT(a.decode_tok_s.estimate, a.decode_tok_s.upper);
        CHECK(a.fits);
        CHECK(b.fits);
        CHECK(a.assumed);
    }
    CHECK(!predicted("t4", model, "").fits);
    CHECK(!predicted("rpi5", model, "").fits);
    CHECK(predicted("rtx4090", model, "").fits);
    CHECK(predicted("h100", model, "").fits);
    const struct prediction gpu = predicted("a100", model, "q4_0"),
                            cpu = predicted("xeon-amx", model, "q4_0");
    CHECK(gpu.on_gpu);
    CHECK(!cpu.on_gpu);
    CHECK_LT(0, gpu.token_j.estimate);
    CHECK_LT(0, cpu.token_j.estimate);
    /* nothing else limits its memory rate */
    const struct prediction board = predicted("rpi5", model, "q4_0");
    CHECK_LT(board.decode_tok_s.upper / board.decode_tok_s.lower,
             gpu.decode_tok_s.upper / gpu.decode_tok_s.lower);
    CHECK_LT(board.decode_tok_s.upper / board.decode_tok_s.lower,
             cpu.decode_tok_s.upper / cpu.decode_tok_s.lower); /* two memory nodes */
}

int main(void)
{
    setenv("QDYNO_ISA", "avx2", 1); /* the memory of plans includes buffers of this processor's kernels */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_profile_says_where_it_comes_from),
        cmocka_unit_test_setup_teardown(advice_is_what_its_golden_text_says, set_up, tear_down),
        cmocka_unit_test_setup_teardown(faster_machines_are_predicted_faster, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
