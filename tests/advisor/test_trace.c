/* Proves: a run's rows become one tree of spans that nests in time, with the same ids every time; blocks and
 * cells that do not count, arms that failed and runs that were killed are marked as such; what was not
 * recorded has no span; a run that cannot be sent waits and is sent with the next. */
#include "tests/advisor/fake.h"
#include "advisor/experiment/experiment.h"
#include "advisor/outcome/outcome.h"
#include "tests/telemetry/collector.h"
#include "tests/telemetry/otlp_decode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SECOND = 1000000000 };
static const int64_t T0 = 1700000000 * (int64_t)SECOND;

/* ---------------------------------------------------------------- a run */

static int64_t put_run(struct db *d, const char *kind, const char *state)
{
    struct err why = { 0 };
    struct run_row row = { .effect_ratio = NAN, .seed = 7 };
    CHECK_OK(db_machine_put(d, "0123456789ab",
                            "{\"id\":\"0123456789ab\",\"host\":\"here\",\"cpu\":\"A CPU\"}", &why));
    snprintf(row.kind, sizeof(row.kind), "%s", kind);
    snprintf(row.state, sizeof(row.state), "%s", state);
    snprintf(row.machine, sizeof(row.machine), "0123456789ab");
    snprintf(row.model_name, sizeof(row.model_name), "toy.gguf");
    snprintf(row.workload, sizeof(row.workload), "pp8+tg64");
    snprintf(row.metric, sizeof(row.metric), "decode_tok_s");
    CHECK_OK(db_run_insert(d, &row, &why));
    return row.id;
}

static struct cell_row cell_at(int64_t run, const char *phase, int block, int slot, int arm)
{
    struct cell_row c = { .run_id = run, .block = block, .slot = slot, .arm = arm, .seconds = 0.5 };
    /* the run begins when its row is made: now */
    c.started_ms = clock_unix_ms() + 1000 * (4 * block + slot);
    snprintf(c.phase, sizeof(c.phase), "%s", phase);
    snprintf(c.config, sizeof(c.config), "%s", arm ? "q8_0" : "f32");
    c.worker_json = "{\"repeats\":3}";
    return c;
}

static void put_cell(struct db *d, struct cell_row *c)
{
    struct err why = { 0 };
    const struct measurement m[] = { { "prompt_tokens", "tokens", 24 },
                                     { "generated_tokens", "tokens", 192 },
                                     { "ttft_s", "seconds", 0.25 },
                                     { "decode_tok_s", "tokens/s", 800 } };
    CHECK_OK(db_cell_insert(d, c, m, COUNT_OF(m), NULL, 0, NULL, 0, &why));
}

static void put_span(struct db *d, const struct cell_row *c, const char *name, int64_t from_ms, int64_t to_ms,
                     const char *error)
{
    struct err why = { 0 };
    struct span_row row = { .run_id = c->run_id,
                            .cell_id = c->id,
                            .arm = c->arm,
                            .block = c->block,
                            .begun_ns = (c->started_ms + from_ms) * 1000000,
                            .ended_ns = (c->started_ms + to_ms) * 1000000 };
    snprintf(row.phase, sizeof(row.phase), "%s", c->phase);
    snprintf(row.name, sizeof(row.name), "%s", name);
    snprintf(row.error, sizeof(row.error), "%s", error);
    CHECK_OK(db_span_insert(d, &row, 1, &why));
}

/* A warm-up cell of an older kind (no spans), a kept block and a discarded one, with loads before each. */
static int64_t put_whole_run(struct db *d)
{
    struct err why = { 0 };
    const int64_t run = put_run(d, "bench", "done");
    struct cell_row warm = cell_at(run, "warmup", -1, 0, 0);
    put_cell(d, &warm);
    for (int block = 0; block < 2; block++)
        for (int slot = 0; slot < 4; slot++) {
            struct cell_row c = cell_at(run, "block", block, slot, slot == 1 || slot == 2), no_cell = c;
            put_span(d, &no_cell, "quantize", -300, -150, "");
            put_span(d, &no_cell, "load", -400, -100, "");
            put_cell(d, &c);
            put_span(d, &c, "cell", 0, 500, "");
            put_span(d, &c, "prefill", 10, 40, "");
            put_span(d, &c, "decode", 50, 450, "");
        }
    CHECK_OK(db_block_discard(d, run, 1, "block", "swap in use", &why));
    CHECK_OK(db_event_add(d, run, "control", "A against itself", &why));
    CHECK_OK(db_run_finish(d, run, "done", "", NAN, NULL, &why));
    return run;
}

/* ---------------------------------------------------------------- looking at a trace */

static const struct otlp_span *parent_of(const struct trace *t, int i)
{
    static const uint8_t NONE[OTLP_SPAN_ID];
    if (!memcmp(t->spans[i].parent_id, NONE, sizeof(NONE))) return NULL;
    for (int k = 0; k < i; k++)
        if (!memcmp(t->spans[k].span_id, t->spans[i].parent_id, OTLP_SPAN_ID) &&
            !memcmp(t->spans[k].trace_id, t->spans[i].trace_id, OTLP_TRACE_ID))
            return &t->spans[k];
    fail_msg("the parent of %s is not before it", t->spans[i].name);
    return NULL;
}

/* One root a trace, children within their parents, ids unique. Returns the number of roots. */
static int check_nesting(const struct trace *t)
{
    int roots = 0;
    for (int i = 0; i < t->n; i++) {
        const struct otlp_span *s = &t->spans[i], *parent = parent_of(t, i);
        CHECK(s->begun_ns);
        CHECK_LE(s->begun_ns, s->ended_ns);
        CHECK(*s->name);
        roots += !parent;
        if (parent && (parent->begun_ns > s->begun_ns || parent->ended_ns < s->ended_ns))
            fail_msg("%s is not within %s", s->name, parent->name);
        for (int k = 0; k < i; k++) CHECK(memcmp(t->spans[k].span_id, s->span_id, OTLP_SPAN_ID));
    }
    return roots;
}

static int count(const struct trace *t, const char *name)
{
    int n = 0;
    for (int i = 0; i < t->n; i++) n += !strcmp(t->spans[i].name, name);
    return n;
}

static const struct otlp_span *nth(const struct trace *t, const char *name, int n)
{
    for (int i = 0; i < t->n; i++)
        if (!strcmp(t->spans[i].name, name) && !n--) return &t->spans[i];
    fail_msg("no span %s", name);
    return NULL;
}

static const struct otlp_attribute *attribute(const struct otlp_span *s, const char *key)
{
    for (int i = 0; i < s->n_attributes; i++)
        if (!strcmp(s->attributes[i].key, key)) return &s->attributes[i];
    return NULL;
}

static void check_text(const struct otlp_span *s, const char *key, const char *want)
{
    const struct otlp_attribute *a = attribute(s, key);
    CHECK(a);
    CHECK_EQ(a->type, OTLP_STRING);
    assert_string_equal(a->string, want);
}

static struct db *fresh(void)
{
    struct err why = { 0 };
    struct db *d;
    CHECK_OK(db_open(&d, ":memory:", &why));
    return d;
}

/* ---------------------------------------------------------------- tests */

static void a_run_becomes_a_tree(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct trace t;
    struct db *d = fresh();
    const int64_t run = put_whole_run(d);
    CHECK_OK(trace_build(&t, d, run, &why));
    assert_int_equal(check_nesting(&t), 1);
    static const char CELL[] = "text_completion toy.gguf";
    assert_int_equal(count(&t, "bench"), 1);
    assert_int_equal(count(&t, "block"), 2);
    assert_int_equal(count(&t, CELL), 9);
    assert_int_equal(count(&t, "prefill"), 8);
    assert_int_equal(count(&t, "decode"), 8);
    assert_int_equal(count(&t, "load"), 8);
    assert_int_equal(count(&t, "quantize"), 8);
    assert_int_equal(t.n, 1 + 2 + 9 + 4 * 8);
    for (int i = 0; i < t.n; i++) {
        const struct otlp_span *s = &t.spans[i], *parent = parent_of(&t, i);
        if (!strcmp(s->name, "prefill") || !strcmp(s->name, "decode"))
            assert_string_equal(parent->name, CELL);
        if (!strcmp(s->name, "quantize")) assert_string_equal(parent->name, "load");
        if (!strcmp(s->name, "load")) assert_string_equal(parent->name, "block");
        if (!strcmp(s->name, "block")) assert_string_equal(parent->name, "bench");
    }
    /* the block begins with its first load and ends with its last cell */
    const struct otlp_span *block = nth(&t, "block", 0), *load = nth(&t, "load", 0), *last = nth(&t, CELL, 4);
    CHECK_EQ(block->begun_ns, load->begun_ns);
    CHECK_EQ(block->ended_ns, last->ended_ns);
    CHECK_EQ(t.spans[0].n_events, 1);
    CHECK_STR(t.spans[0].events[0].name, "control");
    trace_free(&t);
    db_close(d);
}

static void attributes_say_what_ran(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct trace t;
    struct db *d = fresh();
    const int64_t run = put_whole_run(d);
    CHECK_OK(trace_build(&t, d, run, &why));
    const struct otlp_span *root = &t.spans[0], *cell = nth(&t, "text_completion toy.gguf", 2);
    check_text(root, "qdyno.machine.id", "0123456789ab");
    check_text(root, "qdyno.workload", "pp8+tg64");
    CHECK_EQ(attribute(root, "qdyno.run.id")->type, OTLP_INT);
    CHECK_EQ(attribute(root, "qdyno.run.id")->integer, run);
    const struct otlp_attribute *arms = attribute(root, "qdyno.arms");
    CHECK(arms);
    CHECK_EQ(arms->type, OTLP_STRINGS);
    CHECK_EQ(arms->n, 2);
    CHECK_STR(arms->strings[1], "q8_0");
    CHECK_EQ(cell->kind, OTLP_KIND_CLIENT);
    CHECK_EQ(root->kind, OTLP_KIND_INTERNAL);
    check_text(cell, "gen_ai.operation.name", "text_completion");
    check_text(cell, "gen_ai.provider.name", "qdyno");
    check_text(cell, "gen_ai.request.model", "toy.gguf");
    check_text(cell, "qdyno.arm", "B");
    check_text(cell, "qdyno.config", "q8_0");
    CHECK_EQ(attribute(cell, "gen_ai.usage.input_tokens")->type, OTLP_INT);
    CHECK_EQ(attribute(cell, "gen_ai.usage.input_tokens")->integer, 24);
    CHECK_EQ(attribute(cell, "gen_ai.usage.output_tokens")->integer, 192);
    CHECK_EQ(attribute(cell, "gen_ai.response.time_to_first_chunk")->type, OTLP_DOUBLE);
    CHECK_EQ(attribute(cell, "gen_ai.response.time_to_first_chunk")->number, 0.25);
    CHECK_EQ(attribute(cell, "qdyno.cell.repeats")->integer, 3);
    CHECK_EQ(attribute(cell, "qdyno.decode_tok_s")->number, 800);
    CHECK(!attribute(cell, "qdyno.energy_j")); /* not known */
    /* who measured: the machine of the run */
    bool host = false;
    for (int i = 0; i < t.who.resource.n; i++)
        host = host || (!strcmp(t.who.resource.attributes[i].key, "host.name") &&
                        !strcmp(t.who.resource.attributes[i].string, "here"));
    CHECK(host);
    trace_free(&t);
    db_close(d);
}

static void the_same_run_is_the_same_trace(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct trace a, b, other;
    struct db *d = fresh();
    const int64_t run = put_whole_run(d);
    CHECK_OK(trace_build(&a, d, run, &why));
    CHECK_OK(trace_build(&b, d, run, &why));
    struct str first = { 0 }, second = { 0 };
    otlp_traces_encode(&first, &a.who.resource, a.spans, a.n);
    otlp_traces_encode(&second, &b.who.resource, b.spans, b.n);
    CHECK_EQ(first.len, second.len);
    CHECK(!memcmp(first.data, second.data, first.len));
    CHECK_OK(trace_build(&other, d, put_whole_run(d), &why));
    CHECK(memcmp(a.spans[0].trace_id, other.spans[0].trace_id, OTLP_TRACE_ID));
    CHECK(memcmp(a.spans[1].span_id, other.spans[1].span_id, OTLP_SPAN_ID));
    str_free(&first);
    str_free(&second);
    trace_free(&a);
    trace_free(&b);
    trace_free(&other);
    db_close(d);
}

static void what_does_not_count_is_told(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct trace t;
    struct db *d = fresh();
    const int64_t run = put_whole_run(d);
    struct cell_row failed = cell_at(run, "warmup", -1, 0, 1);
    snprintf(failed.error, sizeof(failed.error), "killed by signal 9");
    put_cell(d, &failed);
    put_span(d, &(struct cell_row){ .run_id = run, .arm = 1, .block = -1, .started_ms = failed.started_ms },
             "load", 600, 700, "does not fit");
    CHECK_OK(trace_build(&t, d, run, &why));
    CHECK_EQ(check_nesting(&t), 1);
    const struct otlp_span *kept = nth(&t, "block", 0), *gone = nth(&t, "block", 1);
    CHECK_EQ(kept->status, OTLP_STATUS_UNSET);
    CHECK(attribute(kept, "qdyno.block.kept")->truth);
    CHECK_EQ(gone->status, OTLP_STATUS_ERROR);
    CHECK(!attribute(gone, "qdyno.block.kept")->truth);
    assert_string_equal(gone->message, "swap in use");
    check_text(gone, "qdyno.block.discard_reason", "swap in use");
    int discarded = 0, errors = 0;
    for (int i = 0; i < t.n; i++) {
        const struct otlp_span *s = &t.spans[i];
        discarded += s->n_events == 1 && !strcmp(s->events[0].name, "discarded") &&
                     s->status == OTLP_STATUS_ERROR;
        errors += attribute(s, "error.type") != NULL;
    }
    assert_int_equal(discarded, 4); /* its cells */
    assert_int_equal(errors, 2);
    const struct otlp_span *load = nth(&t, "load", 8);
    CHECK_EQ(load->status, OTLP_STATUS_ERROR);
    CHECK_EQ(parent_of(&t, (int)(load - t.spans)), &t.spans[0]);
    assert_string_equal(load->message, "does not fit");
    trace_free(&t);
    db_close(d);
}

static void what_was_not_recorded_has_no_span(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct trace t;
    struct db *d = fresh();
    /* killed: no end, a cell without a start, one without a length, spans of a cell that is gone */
    const int64_t run = put_run(d, "ab", "running");
    struct cell_row c = cell_at(run, "block", 0, 0, 0), unknown = c;
    unknown.started_ms = 0;
    put_cell(d, &unknown);
    unknown = c;
    unknown.seconds = NAN;
    put_cell(d, &unknown);
    unknown.id = 99;
    put_span(d, &unknown, "prefill", 0, 1, "");
    put_span(d, &c, "load", 10, 5, ""); /* ends before it begins */
    CHECK_OK(trace_build(&t, d, run, &why));
    CHECK_GE(t.n, 1);
    CHECK_EQ(count(&t, "experiment"), 1);
    CHECK(!count(&t, "prefill"));
    CHECK(!count(&t, "load"));
    CHECK_EQ(check_nesting(&t), 1);
    check_text(&t.spans[0], "qdyno.run.state", "running");
    trace_free(&t);
    assert_int_equal(trace_build(&t, d, run + 1, &why), ERR_USAGE);
    db_close(d);
}

static void a_push_is_a_trace_of_its_own(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct trace t;
    struct db *d = fresh();
    const int64_t run = put_whole_run(d);
    struct span_row push = { .run_id = run, .arm = -1, .block = -1, .name = "push", .error = "no route" };
    push.begun_ns = T0 + 86400 * (int64_t)SECOND;
    push.ended_ns = push.begun_ns + SECOND;
    CHECK_OK(db_span_insert(d, &push, 1, &why));
    CHECK_OK(trace_build(&t, d, run, &why));
    CHECK_EQ(check_nesting(&t), 2);
    const struct otlp_span *s = nth(&t, "push", 0);
    CHECK(s->linked);
    CHECK(!memcmp(s->link_trace_id, t.spans[0].trace_id, OTLP_TRACE_ID));
    CHECK(!memcmp(s->link_span_id, t.spans[0].span_id, OTLP_SPAN_ID));
    CHECK(memcmp(s->trace_id, t.spans[0].trace_id, OTLP_TRACE_ID));
    CHECK_EQ(s->status, OTLP_STATUS_ERROR);
    CHECK_EQ(s->kind, OTLP_KIND_CLIENT);
    CHECK(t.spans[0].ended_ns < s->begun_ns ||
          t.spans[0].begun_ns > s->ended_ns); /* and the run is no longer for it */
    trace_free(&t);
    db_close(d);
}

static void others_read_it(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct trace t;
    struct db *d = fresh();
    struct str body = { 0 }, printed = { 0 };
    CHECK_OK(trace_build(&t, d, put_whole_run(d), &why));
    otlp_traces_encode(&body, &t.who.resource, t.spans, t.n);
    trace_free(&t);
    db_close(d);
    otlp_decode("traces", &body, &printed);
    CHECK_CONTAINS(str_text(&printed), "text_completion toy.gguf");
    str_free(&printed);
}

/* An experiment of six blocks; the requests of B are twice as fast. The last block does not count. */
static int64_t put_experiment(struct db *d)
{
    struct err why = { 0 };
    struct experiment_spec spec = { .margin = 0.01,
                                    .control_blocks = -1,
                                    .metric = &METRICS[METRIC_DECODE_RATE] };
    CHECK_OK(workload_parse(&spec.workload, "pp8+tg64", &why));
    CHECK_OK(config_parse(&spec.config[0], "f32", &why));
    CHECK_OK(config_parse(&spec.config[1], "q8_0", &why));
    json_t *o = experiment_spec_to_json(&spec);
    struct run_row row = { .effect_ratio = 2, .spec_json = json_line(o) };
    json_decref(o);
    snprintf(row.kind, sizeof(row.kind), "ab");
    snprintf(row.state, sizeof(row.state), "running");
    snprintf(row.machine, sizeof(row.machine), "0123456789ab");
    snprintf(row.model_name, sizeof(row.model_name), "toy.gguf");
    snprintf(row.workload, sizeof(row.workload), "pp8+tg64");
    CHECK_OK(db_machine_put(d, row.machine, "{}", &why));
    CHECK_OK(db_run_insert(d, &row, &why));
    free(row.spec_json);
    for (int i = 0; i < 24; i++) {
        struct cell_row c = cell_at(row.id, "block", i / 4, i % 4, i % 4 == 1 || i % 4 == 2);
        const struct request_figures f = { .prompt_tokens = 8,
                                           .gen_tokens = 64,
                                           .prefill_s = 0.01f,
                                           .decode_s = 0.1f,
                                           .ttft_s = c.arm ? 0.0015f : 0.0035f };
        const struct request_rows requests = { .model = "toy",
                                               .workload = "pp8+tg64",
                                               .sequences = 1,
                                               .n = 1,
                                               .figures = (struct request_figures *)&f };
        c.requests = &requests;
        put_cell(d, &c);
    }
    CHECK_OK(db_block_discard(d, row.id, 5, "block", "swap in use", &why));
    CHECK_OK(db_run_finish(d, row.id, "done", "better", 2, NULL, &why));
    return row.id;
}

static bool has(const char *line, size_t n, const char *text)
{
    return memmem(line, n, text, strlen(text)) != NULL;
}

static void an_experiment_has_metrics(void **state)
{
    (void)state;
    static struct collector c;
    struct err why = { 0 };
    struct trace_sent sent;
    struct db *d = fresh();
    struct str body = { 0 }, printed = { 0 };
    char base[64];
    const int64_t run = put_experiment(d);
    (void)put_experiment(d); /* whose requests are not these */
    c = (struct collector){ 0 };
    collector_start(&c, (const char *const[]){ COLLECTOR_OK, COLLECTOR_OK, NULL });
    snprintf(base, sizeof(base), "http://127.0.0.1:%d", c.port);
    CHECK_OK(trace_push(d, run, &(struct trace_target){ .base = base }, &sent, &why));
    collector_stop(&c);
    CHECK_EQ(c.requests, 2);
    CHECK_EQ(sent.spans, 1 + 6 + 24);
    CHECK_GT(sent.points, 10);
    CHECK(!sent.kept);
    CHECK(str_starts(c.request[0], "POST /v1/traces "));
    CHECK(str_starts(c.request[1], "POST /v1/metrics "));
    const char *at = memmem(c.request[1], c.n_request[1], "\r\n\r\n", 4);
    str_append_n(&body, at + 4, c.n_request[1] - (size_t)(at + 4 - c.request[1]));
    db_close(d);
    otlp_decode("metrics", &body, &printed);
    int arms = 0;
    for (const char *line = str_text(&printed);
         (line = strstr(line, "\"gen_ai.server.time_to_first_token\"")); line++) {
        const size_t n = strcspn(line, "\n");
        CHECK(has(line, n, "\"value\": 10,")); /* two in each of five blocks */
        CHECK(has(line, n, "\"gen_ai.request.model\": \"toy\""));
        arms += has(line, n, "\"arm\": \"a\"") ? 1 : has(line, n, "\"arm\": \"b\"") ? 10 : 100;
    }
    assert_int_equal(arms, 11);
    CHECK(strstr(str_text(&printed), "\"qdyno_ab_effect_ratio\"") ||
          strstr(str_text(&printed), "\"qdyno_ab_verdict\""));
    str_free(&printed);
}

static void who_is_not_there_is_told_later(void **state)
{
    (void)state;
    struct err why = { 0 };
    struct trace_sent sent;
    struct db *d = fresh();
    int64_t *runs;
    int n;
    const int64_t run = put_whole_run(d);
    unsetenv("OTEL_EXPORTER_OTLP_ENDPOINT");
    assert_int_equal(trace_push(d, run, &(struct trace_target){ 0 }, &sent, &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, "--otlp URL");
    CHECK(!sent.kept);
    const struct trace_target nobody = { .base = "http://127.0.0.1:1" };
    assert_int_equal(trace_push(d, run, &nobody, &sent, &why), ERR_ABSENT);
    CHECK(sent.kept);
    CHECK(!sent.spans);
    CHECK_EQ(db_trace_due_count(d), 1);
    CHECK_OK(db_trace_due_list(d, nobody.base, &runs, &n, &why));
    CHECK_EQ(n, 1);
    CHECK_EQ(runs[0], run);
    free(runs);
    assert_int_equal(trace_flush(d, &nobody, &n, &why), ERR_ABSENT);
    CHECK_EQ(n, 0);
    CHECK_EQ(db_trace_due_count(d), 1);
    CHECK_OK(trace_flush(d, &(struct trace_target){ .base = "http://127.0.0.1:2" }, &n,
                         &why)); /* nothing for it */
    CHECK_EQ(n, 0);
    db_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_becomes_a_tree),
        cmocka_unit_test(attributes_say_what_ran),
        cmocka_unit_test(the_same_run_is_the_same_trace),
        cmocka_unit_test(what_does_not_count_is_told),
        cmocka_unit_test(what_was_not_recorded_has_no_span),
        cmocka_unit_test(a_push_is_a_trace_of_its_own),
        cmocka_unit_test(others_read_it),
        cmocka_unit_test(an_experiment_has_metrics),
        cmocka_unit_test(who_is_not_there_is_told_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
