/* Proves: every line gives one config, and every config has one canonical line; recipes in all spellings;
 * wrong keys, values, repeated keys and combinations are refused, with the nearest valid word; long configs
 * have different keys; rows of KNOBS are complete and their defaults valid. */
#include <string.h>

#include "engine/config/config.h"
#include "engine/quant/quant.h"
#include "kernels/kernels.h"
#include "tests/check.h"

static void knob_rows(void **state)
{
    (void)state;
    for (int i = 0; i < KNOB_COUNT; i++) {
        const struct knob *k = &KNOBS[i];
        struct config c;
        struct err why = { 0 };
        if (!k->key || !k->key[0] || !k->otherwise || !k->unit || !k->help || !k->help[0] || !k->matters_for)
            fail_msg("row %d of KNOBS (%s) is incomplete", i, k->key ? k->key : "no key");
        config_default(&c);
        CHECK_OK(config_set(&c, k->key, k->otherwise, &why)); /* a default is a legal value */
        assert_string_equal(config_text(&c, (enum knob_id)i), k->otherwise);
        for (int j = 0; j < i; j++) {
            CHECK_STR_NE(KNOBS[j].key, k->key);
            CHECK(!k->flag || !KNOBS[j].flag || strcmp(k->flag, KNOBS[j].flag));
        }
        const char *names[128];
        size_t n = knob_choices((enum knob_id)i, names, COUNT_OF(names));
        CHECK_EQ(n > 0, k->kind == VALUE_CHOICE);
        CHECK_LE(n, COUNT_OF(names));
        for (size_t j = 0; j < n; j++) {
            config_default(&c);
            CHECK_OK(config_set(&c, k->key, names[j], &why));
            assert_string_equal(config_text(&c, (enum knob_id)i), names[j]);
        }
        CHECK(k->kind != VALUE_INT || k->min < k->max);
    }
}

static void check_equal(const struct config *a, const struct config *b)
{
    for (int k = 0; k < KNOB_COUNT; k++) {
        assert_string_equal(a->value[k].text, b->value[k].text);
        CHECK_EQ(a->value[k].number, b->value[k].number);
    }
}

static void lines_and_back(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out, *recipe;
    } CASES[] = {
        { "", "default", "file" },
        { "default", "default", "file" },
        { "q8_0", "q8_0", "q8_0" },
        { "Q8_0", "q8_0", "q8_0" },
        { "f32", "f32", "f32" },
        { "rtn:q4_0", "q4_0", "q4_0" },
        { "method=rtn,format=q4_0", "q4_0", "q4_0" },
        { "rtn format=q4_0", "q4_0", "q4_0" },
        { "format=bf16", "bf16", "bf16" },
        { "recipe=rtn:f16", "f16", "f16" },
        { "file", "file", "file" },
        { "none", "file", "file" },
        { "  threads=2 ,, q8_0\t", "q8_0,threads=2", "q8_0" },
        { "threads=007", "threads=7", "file" },
        { "handicap=3%", "handicap=3", "file" },
        { "handicap=3", "handicap=3", "file" },
        { "kv=q8_0", "kv=q8_0", "file" },
        { "ctk=f32,ctv=f32", "kv=f32", "file" },
        { "ctk=f32,ctv=q4_0", "ctk=f32,ctv=q4_0", "file" },
        { "ctv=BF16", "ctv=bf16", "file" },
        { "isa=ref precision=medium affinity=spread device=cpu",
          "affinity=spread,isa=ref,device=cpu,precision=medium", "file" },
        { "ctx=4096,batch=64", "ctx=4096,batch=64", "file" },
        { "q4_0,tensors=attn_v:Q8_0;ffn_down:f16", "q4_0,tensors=attn_v:q8_0;ffn_down:f16",
          "q4_0;attn_v:q8_0;ffn_down:f16" },
        { "tensors=blk.*.attn_v:q8_0;", "tensors=blk.*.attn_v:q8_0", "file;blk.*.attn_v:q8_0" },
        { "model=/a/b.gguf,q8_0", "model=/a/b.gguf,q8_0", "q8_0" },
        { "model=\"my models/a,b \\\"x\\\" \\\\.gguf\"", "model=\"my models/a,b \\\"x\\\" \\\\.gguf\"",
          "file" },
        { "model=a=b.gguf", "model=a=b.gguf", "file" },
        { "gptq", "gptq", "gptq:u4_g128" },
        { "method=gptq", "gptq", "gptq:u4_g128" },
        { "GPTQ,group=64,bits=3", "gptq,bits=3,group_size=64", "gptq:u3_g64;bits=3;group_size=64" },
        { "params=group_size=64;bits=3,gptq", "gptq,bits=3,group_size=64",
          "gptq:u3_g64;bits=3;group_size=64" },
        { "group=64 wbits=3 gptq", "gptq,bits=3,group_size=64", "gptq:u3_g64;bits=3;group_size=64" },
        { "gptq,bits=4", "gptq,bits=4", "gptq:u4_g128" }, /* the default, said */
        { "gptq,damp_percent=0.10", "gptq,damp_percent=0.10", "gptq:u4_g128;damp_percent=0.1" },
        { "gptq,sym=no", "gptq,sym=no", "gptq:u4_g128;sym=false" },
        { "awq,calib=/a/b.txt", "awq,calib=/a/b.txt", "awq:u4_g128" },
        { "hqq:u4_g64", "hqq", "hqq:u4_g64" },
        { "q4_K_M", "gguf,type=q4_K_M", "gguf:q4_K" },
        { "q5_k_s,tensors=attn_v:q8_0", "gguf,type=q5_K_S,tensors=attn_v:q8_0",
          "gguf:q5_K;type=q5_K_S;attn_v:q8_0" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct config c, again;
        struct err why = { 0 };
        char line[2048], recipe[2048];
        if (config_parse(&c, CASES[i].in, &why)) fail_msg("'%s': %s", CASES[i].in, why.message);
        assert_string_equal(config_line(&c, line, sizeof line), CASES[i].out);
        assert_string_equal(config_recipe(&c, recipe, sizeof recipe), CASES[i].recipe);
        CHECK_OK(config_parse(&again, line, &why));
        check_equal(&again, &c);
        json_t *o = config_to_json(&c);
        CHECK_OK(config_from_json(&again, o, &why));
        check_equal(&again, &c);
        json_decref(o);
    }
}

static void values(void **state)
{
    (void)state;
    struct config c;
    struct err why = { 0 };
    CHECK_OK(config_parse(&c, "q8_0,threads=3", &why));
    assert_string_equal(config_text(&c, KNOB_METHOD), "rtn"); /* implied, not given */
    CHECK(!c.given[KNOB_METHOD]);
    CHECK(c.given[KNOB_FORMAT]);
    CHECK(c.given[KNOB_THREADS]);
    CHECK(!c.given[KNOB_BATCH]);
    CHECK_EQ(config_int(&c, KNOB_THREADS), 3);
    CHECK_EQ(config_int(&c, KNOB_BATCH), 512);
    CHECK_OK(config_set(&c, "threads", "5", &why)); /* a flag after the line replaces */
    CHECK_OK(config_set(&c, "recipe", "file", &why));
    CHECK_EQ(config_int(&c, KNOB_THREADS), 5);
    assert_string_equal(config_text(&c, KNOB_METHOD), "none");
    CHECK_OK(config_set(&c, "method", "rtn", &why)); /* half a recipe: only the whole is judged */
    assert_int_equal(config_check(&c, &why), ERR_USAGE);
    CHECK_OK(config_set(&c, "format", "q4_0", &why));
    CHECK_OK(config_check(&c, &why));
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *line, *message;
    } CASES[] = {
        { "thread=2", "did you mean threads?" },
        { "threads", "threads=VALUE" },
        { "threads=", "from 0 to 1024" },
        { "threads=1025", "from 0 to 1024" },
        { "threads=-1", "from 0 to 1024" },
        { "threads=2x", "from 0 to 1024" },
        { "threads=2%", "from 0 to 1024" },
        { "handicap=%", "from 0 to 100" },
        { "handicap=101%", "from 0 to 100" },
        { "handicap=-3%", "from 0 to 100" },
        { "handicap=3%%", "from 0 to 100" },
        { "batch=0", "from 1 to" },
        { "q8_1", "did you mean q8_0?" },
        { "qq", "neither key=value nor a recipe" },
        { "format=q4_1x", "format=q4_1x" },
        { "kv=f8", "expected one of" },
        { "affinity=compct", "did you mean compact?" },
        { "isa=avx3", "isa=avx3" },
        { "precision=low", "highest high medium" },
        { "threads=2,threads=2", "given twice" },
        { "q8_0 q4_0", "given twice" },
        { "q8_0,format=q4_0", "given twice" },
        { "kv=f16,ctk=f16", "given twice" },
        { "rtn", "needs a format" },
        { "hugepages=all,prefetch=populate", "leave one of them out" },
        { "hugepages=on", "buffers off all" },
        { "rtn:file", "needs a format" },
        { "none,format=q8_0", "leaves the file as it is" },
        { "none,tensors=a:q8_0", "leaves the file as it is" },
        { "gtpq:q4_0", "method=gtpq" },
        { "default,threads=2", "must be the only item" },
        { "tensors=attn_v", "is not a rule" },
        { "tensors=:q8_0", "is not a rule" },
        { "tensors=attn_v@:q8_0", "is not a rule" },
        { "tensors=attn_v@1-:q8_0", "is not a rule" },
        { "tensors=attn_v@1+x:q8_0", "is not a rule" },
        { "tensors=attn_v@1+:q8_0", "is not a rule" },
        { "tensors=@1:q8_0", "is not a rule" },
        { "tensors=at tn:q8_0", "" },
        { "tensors=a:nope", "'nope'" },
        { "tensors=a:q8_0;a:f16", "two rules" },
        { "tensors=a:q8_0;;b:f16", "is not a rule" },
        { "model=\"a b", "quote" },
        { "=3", "unknown key" },
        { "gptq,bits=5", "bits=5: gptq expects one of" },
        { "gptq,bits=x", "gptq expects one of" },
        { "gptq,damp_percent=2", "gptq expects a number" },
        { "gptq,desc_act=perhaps", "true or false" },
        { "gptq,alpha=0.5", "method gptq has no parameter 'alpha'" },
        { "q8_0,bits=4", "method rtn has no parameter 'bits'; it has none" },
        { "bits=4", "without a method there is nothing to set" },
        { "gptq,bits=4,bits=3", "given twice" },
        { "gptq,bits=4,wbits=3", "given twice" },
        { "gptq,params=nope=3", "no method has a parameter 'nope'" },
        { "gptq,params=bits", "expected NAME=VALUE" },
        { "gptq,params=bits=", "expected NAME=VALUE" },
        { "gptq:u3_g64", "choose it by the parameters" },
        { "gptq,format=q4_K", "choose it by the parameters" },
        { "q4_K_X", "neither key=value nor a recipe" },
    };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct config c;
        struct err why = { 0 };
        enum err_code rc = config_parse(&c, CASES[i].line, &why);
        if (rc != ERR_USAGE || !strstr(why.message, CASES[i].message))
            fail_msg("'%s': want a message with '%s', got %d '%s'", CASES[i].line, CASES[i].message, rc,
                     why.message);
    }
}

/* Formats FORMATS knows but nobody can encode yet are named as such; those with an encoder are accepted. */
static void every_format(void **state)
{
    (void)state;
    for (int i = 0; i < FORMAT_COUNT; i++) {
        struct config c;
        struct err why = { 0 };
        enum err_code rc = config_parse(&c, FORMATS[i].name, &why);
        if (FORMATS[i].encode)
            CHECK_OK(rc);
        else {
            CHECK_EQ(rc, ERR_USAGE);
            CHECK_CONTAINS(why.message, "has no encoder");
        }
    }
}

static bool is_alias(const struct param *p, const char *word)
{
    return p->aliases && str_has_word(p->aliases, word);
}

/* Rows obey themselves; and a word means the same parameter in whatever method it stands. */
static void method_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < method_count(); i++) {
        const struct method *m = method_at(i);
        if (!m->name || !m->help || !m->good || !m->bad)
            fail_msg("row %zu of METHODS (%s) is incomplete", i, m->name ? m->name : "no name");
        assert_ptr_equal(method_find(m->name), m);
        CHECK(m->rows || m->tensor);
        CHECK(!param_name(m->name));
        CHECK_EQ(!format_find(m->name),
                 (strcmp(m->name, "nf4") && strcmp(m->name, "fp4") && strcmp(m->name, "mxfp4")));
        for (const struct param *p = m->params; p && p->name; p++) {
            char value[CONFIG_VALUE];
            struct err why = { 0 };
            CHECK_OK(param_check(m, p->name, p->otherwise, value, sizeof value, &why));
            assert_string_equal(value, p->otherwise);
            CHECK(p->help);
            CHECK(p->help[0]);
            CHECK(p->choices || p->kind == VALUE_BOOL || p->min < p->max);
            assert_string_equal(param_name(p->name), p->name);
            for (int k = 0; k < KNOB_COUNT; k++) {
                CHECK_STR_NE(KNOBS[k].key, p->name);
                CHECK(!is_alias(p, KNOBS[k].key));
            }
            for (size_t j = 0; j < method_count(); j++)
                for (const struct param *q = method_at(j)->params; q && q->name; q++)
                    if (is_alias(q, p->name)) fail_msg("%s: %s is an alias of %s", m->name, p->name, q->name);
        }
        struct config c;
        struct err why = { 0 };
        const enum err_code rc = config_parse(&c, m->name, &why);
        CHECK(m->format || m->default_format || m->tensor_format ? rc == ERR_OK : rc == ERR_USAGE);
    }
}

static void overlong(void **state)
{
    (void)state;
    char line[2000];
    struct config c;
    struct err why = { 0 };
    memset(line, 'x', sizeof line);
    memcpy(line, "model=", 6);
    line[sizeof line - 1] = '\0';
    assert_int_equal(config_parse(&c, line, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "longer than 511");
    line[6 + 511] = '\0';
    CHECK_OK(config_parse(&c, line, &why));
    assert_int_equal(strlen(config_text(&c, KNOB_MODEL)), 511);
}

/* Two configs that differ far behind the end of a buffer, the same lines in buffers of every size: the text
 * never ends without a mark, keys of different configs differ, and no abbreviation is taken for a config. */
static void long_lines_differ(void **state)
{
    (void)state;
    struct config c[2], again;
    struct err why = { 0 };
    for (int i = 0; i < 2; i++) {
        char text[1600], rules[512] = "";
        for (int layer = 0; layer < 28; layer++)
            snprintf(rules + strlen(rules), sizeof rules - strlen(rules), "%sattn_v@%d:q8_0",
                     layer ? ";" : "", layer);
        snprintf(text, sizeof text, "model=/%0480d.gguf,q4_0,calib=/%0480d.txt,tensors=%s,accumulate=%d", 1,
                 2, rules, 3 + i);
        CHECK_OK(config_parse(&c[i], text, &why));
    }
    CHECK(!config_same(&c[0], &c[1]));
    struct str whole = { 0 };
    config_append_line(&c[0], &whole);
    for (size_t size = 32; size <= whole.len + 1; size++) {
        char line[2][CONFIG_LINE];
        for (int i = 0; i < 2; i++) config_line(&c[i], line[i], size);
        CHECK_LT(strlen(line[0]), size);
        if (!strcmp(line[0], line[1])) fail_msg("two configs have one key of %zu bytes: %s", size, line[0]);
        const bool fits = size > whole.len;
        CHECK_EQ(!strcmp(line[0], str_text(&whole)), fits);
        CHECK_EQ(config_parse(&again, line[0], NULL) == ERR_OK, fits);
    }
    str_free(&whole);
}

/* A config is copied with every arm and every redraw: it stays a small plain value that owns nothing. */
static void copies_are_cheap(void **state)
{
    (void)state;
    struct config c, copy;
    struct err why = { 0 };
    CHECK_LE(sizeof c, 1024);
    char line[] = "model=/tmp/a.gguf,q8_0,threads=3";
    CHECK_OK(config_parse(&c, line, &why));
    memset(line, 'x', sizeof line - 1); /* nothing points into the line */
    copy = c;
    CHECK_OK(config_set(&c, "model", "/tmp/b.gguf", &why));
    assert_string_equal(config_text(&copy, KNOB_MODEL), "/tmp/a.gguf");
    CHECK(!config_same(&c, &copy));
    config_unset(&c, KNOB_MODEL);
    config_unset(&copy, KNOB_MODEL);
    CHECK(config_same(&c, &copy));
    CHECK_OK(config_resolve_int(&c, KNOB_THREADS, 8, &why));
    CHECK_EQ(config_int(&c, KNOB_THREADS), 8);
    assert_string_equal(config_text(&c, KNOB_THREADS), "8");
}

static void json_refused(void **state)
{
    (void)state;
    static const char *const CASES[] = { "[]",           "{\"threads\":1.5}", "{\"threads\":2000}",
                                         "{\"nope\":1}", "{\"format\":null}", "{\"method\":\"rtn\"}" };
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct config c;
        struct err why = { 0 };
        json_t *o;
        CHECK_OK(json_parse(&o, CASES[i], strlen(CASES[i]), &why));
        assert_int_equal(config_from_json(&c, o, &why), ERR_USAGE);
        CHECK(why.message[0]);
        json_decref(o);
    }
}

static void which_settings_change_answers(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool same;
    } CASES[] = {
        { "engine=llama-server,threads=1", "engine=llama-server,threads=2", true },
        { "engine=llama-server", "engine=llama-server,args=\"-t 4 -tb 2 --mlock\"", true },
        { "engine=llama-server,args=\"-fa on --threads=3\"", "engine=llama-server,args=\"-b 64 -fa on\"",
          true },
        { "engine=llama-server", "engine=llama-server,args=\"-fa on\"", false },
        { "engine=llama-server", "engine=llama-server,args=\"-ctk q8_0\"", false },
        { "engine=llama-server,args=\"-ctk q8_0\"", "engine=llama-server,args=\"-ctk q4_0 -t 2\"", false },
        { "engine=llama-server", "default", false },
        { "default", "threads=2,batch=64", true },
        { "default", "q8_0", false },
        { "q8_0", "q8_0,threads=1", true },
    };
    struct config a, b;
    struct err why;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        CHECK_OK(config_parse(&a, CASES[i].a, &why));
        CHECK_OK(config_parse(&b, CASES[i].b, &why));
        if (config_same_answers(&a, &b) != CASES[i].same) fail_msg("%s and %s", CASES[i].a, CASES[i].b);
    }
    CHECK_OK(config_parse(&a, "threads=2,batch=64", &why));
    CHECK(!config_changes_answers(&a));
    CHECK_OK(config_parse(&a, "threads=2,ctk=q8_0", &why));
    CHECK(config_changes_answers(&a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knob_rows),
        cmocka_unit_test(lines_and_back),
        cmocka_unit_test(values),
        cmocka_unit_test(refused),
        cmocka_unit_test(every_format),
        cmocka_unit_test(overlong),
        cmocka_unit_test(json_refused),
        cmocka_unit_test(method_rows),
        cmocka_unit_test(long_lines_differ),
        cmocka_unit_test(copies_are_cheap),
        cmocka_unit_test(which_settings_change_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
