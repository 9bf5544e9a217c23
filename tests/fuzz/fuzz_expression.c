/* Conditions and filters that people write, also in config files and scripts: whatever the text is, it is
 * refused with a message or means something, and a filter ends. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "db/db.h"
#include "tests/fuzz/cost.h"

/* A filter may take the million steps of backtracking that it is allowed, in each of five fields. */
static const struct cost_ceiling CEILING = { .seconds = 2, .seconds_per_mb = 200, .mb = 128 };

static void look_up(void *ctx, const struct gate_term *t, struct gate_value *out)
{
    static const double VALUES[] = { 0, 1, 100, -1, 1e300 };
    int *i = ctx;
    out->value = VALUES[++*i % (int)COUNT_OF(VALUES)];
    out->a = t->scale > 0 ? 2 : (double)NAN;
    out->n = 8;
    out->of = "blocks";
    out->exact = *i % 2;
    out->absolute = out->ratio = (struct interval){ out->value, out->value - 1, out->value + 1 };
}

static void use_gate(const char *text)
{
    static struct gate g;
    static struct gate_result r;
    struct err why = { 0 };
    int i = 0;
    if (gate_parse(&g, text, &why)) {
        if (why.code != ERR_USAGE || !why.message[0]) abort();
        return;
    }
    gate_needs_quality(&g);
    gate_timed_figure(&g);
    gate_compared_figure(&g);
    gate_judge(&g, look_up, &i, &r);
    if (r.terms != g.terms || r.terms < 1) abort();
    json_t *o = gate_result_to_json(&g, &r);
    if (!o) abort();
    json_decref(o);
}

static struct db *one_run(void)
{
    static struct db *d;
    struct run_row r = { .kind = "ab",
                         .state = "done",
                         .model_name = "a model of (a+)+b and \xc3\xa4\xc3\xb6",
                         .workload = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac",
                         .label = "f32 against q8_0",
                         .verdict = "better",
                         .spec_json = "{}" };
    if (!d && (db_open(&d, ":memory:", NULL) || db_run_insert(d, &r, NULL))) abort();
    return d;
}

static void use_filter(const char *text)
{
    struct run_row *rows;
    struct run_labels labels = { 0 };
    struct err why = { 0 };
    int n;
    const enum err_code checked = db_filter_check(text, &why),
                        rc = db_run_find(one_run(), text, 10, &rows, &n, &why);
    if (rc ? !why.message[0] : checked != ERR_OK) abort();
    for (int i = 0; i < n; i++) run_row_free(&rows[i]);
    free(rows);
    if (run_labels_add(&labels, text, &why) && !why.message[0]) abort();
}

static void use(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text) return;
    memcpy(text, data, size);
    text[size] = '\0';
    use_gate(text);
    use_filter(text);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    one_run();
    return cost_run(use, data, size, &CEILING);
}
