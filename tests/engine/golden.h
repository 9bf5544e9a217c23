/* tests/engine/golden.h - models of every architecture and format with the logits of another engine, as
 * tests/data and ../shared/data have them, and the one check that tests of backends make of them. */
#ifndef QDYNO_TESTS_GOLDEN_H
#define QDYNO_TESTS_GOLDEN_H

#include "tests/engine/session.h"
#include "engine/arch/arch.h"

#define GOLDEN   "arch-golden/"
#define GOLDEN_2 "arch-golden-2/"
#define GOLDEN_3 "arch-golden-3/"

/* Fewest entries of each set, so that a test notices when one is lost. The first: 27 in F32, one of them with
 * a second context length, 3 trained models and 4 other formats. The third is complete in tests/data. */
enum { GOLDEN_LEAST = 35, GOLDEN_2_LEAST = 48, GOLDEN_3_LEAST = 8, GOLDEN_MOST = 100 };
enum { GOLDEN_IDS = 80 }; /* most ids of an entry */

/* One entry of the manifest, with everything it names read. */
struct entry {
    const char *name, *arch, *weights;
    char model[4096];
    int32_t ids[GOLDEN_IDS];
    int n, ctx;
    double tolerance, nrmse; /* nrmse NAN: none stated */
    struct file_map want;
};

static inline json_t *read_json(const char *folder, const char *name)
{
    struct err why = { 0 };
    char path[4096], *text;
    size_t n;
    json_t *value;
    data_path(path, sizeof path, "%s%s", folder, name);
    CHECK_OK(file_read(&text, &n, path, 1 << 24, &why));
    CHECK_OK(json_parse(&value, text, n, &why));
    free(text);
    return value;
}

static inline void entry_open(struct entry *e, const char *folder, const json_t *row)
{
    struct err why = { 0 };
    char path[4096];
    *e = (struct entry){ .name = json_get_str(row, "name", ""),
                         .arch = json_get_str(row, "arch", ""),
                         .weights = json_get_str(row, "weights", ""),
                         .ctx = (int)json_get_int(row, "n_ctx", 0),
                         .tolerance = json_get_num(row, "tolerance_max_abs", NAN),
                         .nrmse = json_get_num(row, "tolerance_logits_nrmse", NAN) };
    data_path(e->model, sizeof e->model, "%s%s", folder, json_get_str(row, "model", ""));
    json_t *ids = read_json(folder, json_get_str(row, "ids", ""));
    e->n = (int)json_array_size(ids);
    assert_in_range(e->n, 1, COUNT_OF(e->ids));
    for (int i = 0; i < e->n; i++) e->ids[i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
    json_decref(ids);
    const char *want = json_get_str(row, "exact", json_get_str(row, "logits", ""));
    data_path(path, sizeof path, "%s%s", folder, want);
    CHECK_OK(file_map(&e->want, path, &why));
}

static inline bool known_arch(const char *name)
{
    for (const char *const *a = model_architectures(); *a; a++)
        if (!strcmp(*a, name)) return true;
    return false;
}

/* By what the tables say, not by a list typed here. */
static inline bool claimed(const struct entry *e)
{
    static const char OF_EXPERTS[] = "experts "; /* the other tensors are F32 */
    const char *weights = e->weights;
    if (!strncmp(weights, OF_EXPERTS, strlen(OF_EXPERTS))) weights += strlen(OF_EXPERTS);
    const struct format *f = format_find(weights);
    const size_t length = strlen(weights);
    char most[32]; /* "Q4_K_M": Q4_K, and better formats of the same family for some tensors */
    if (!f && length > 2 && weights[length - 2] == '_') {
        snprintf(most, sizeof most, "%.*s", (int)length - 2, weights);
        f = format_find(most);
    }
    return known_arch(e->arch) && f && f->decode;
}

typedef void entry_fn(const struct entry *e);

/* Runs fn on every entry of a folder that is (or is not) claimed and whose model is here; returns how many
 * entries are (or are not) claimed. tests/data has most of the small models; each one that is missing is
 * printed. */
static inline int for_entries_of(const char *folder, bool is_claimed, entry_fn *fn)
{
    int count = 0;
    json_t *manifest = read_json(folder, "manifest.json");
    for (size_t i = 0; i < json_array_size(manifest); i++) {
        struct entry e;
        const json_t *row = json_array_get(manifest, i);
        char model[4096];
        data_path(model, sizeof model, "%s%s", folder, json_get_str(row, "model", ""));
        if (access(model, R_OK)) {
            e = (struct entry){ .name = json_get_str(row, "name", ""),
                                .arch = json_get_str(row, "arch", ""),
                                .weights = json_get_str(row, "weights", "") };
            print_message("SKIPPED: %s is not here\n", model);
            count += claimed(&e) == is_claimed;
            continue;
        }
        entry_open(&e, folder, row);
        if (claimed(&e) == is_claimed) {
            fn(&e);
            count++;
        }
        file_unmap(&e.want);
    }
    json_decref(manifest);
    return count;
}

static inline int for_entries(bool is_claimed, entry_fn *fn)
{
    return for_entries_of(GOLDEN, is_claimed, fn);
}

/* Feed the entry's ids, `step` at a time, and put all logits into got. */
static inline void run_ids(const struct entry *e, struct model *m, int step, float *got)
{
    struct err why = { 0 };
    struct batch_row rows[GOLDEN_IDS];
    const int64_t vocab = model_shape(m)->vocab;
    model_truncate(m, 0, 0);
    for (int at = 0; at < e->n; at += step) {
        const int n = MIN(step, e->n - at);
        rows_of(rows, e->ids + at, n, 0, at);
        if (model_forward(m, rows, n, &why)) fail_msg("%s: %s", e->name, why.message);
        memcpy(got + at * vocab, model_logits(m, 0), (size_t)(n * vocab) * sizeof(float));
    }
}

/* What model_forward_best says of all ids, `step` at a time, beside the logits that model_forward gave. */
static inline void check_best(const struct entry *e, struct model *m, int step, const float *logits)
{
    struct err why = { 0 };
    struct batch_row rows[GOLDEN_IDS];
    int32_t best[GOLDEN_IDS];
    const int64_t vocab = model_shape(m)->vocab;
    model_truncate(m, 0, 0);
    for (int at = 0; at < e->n; at += step) {
        const int n = MIN(step, e->n - at);
        rows_of(rows, e->ids + at, n, 0, at);
        if (model_forward_best(m, rows, n, best + at, &why)) fail_msg("%s: %s", e->name, why.message);
    }
    for (int i = 0; i < e->n; i++, logits += vocab) {
        int32_t most = 0;
        for (int32_t j = 1; j < vocab; j++)
            if (logits[j] > logits[most]) most = j;
        if (best[i] != most)
            fail_msg("%s, %d at a time: after token %d the largest is %d, not %d", e->name, step, i, most,
                     best[i]);
    }
}

/* All at once, `second` tokens at a time, one at a time. */
static inline void check_config(const struct entry *e, const char *config, int second)
{
    struct model *m = session_open(e->model, config, e->ctx, 1);
    const int64_t n = e->n * model_shape(m)->vocab;
    assert_int_equal(e->want.size, (size_t)n * sizeof(float));
    float *got = malloc((size_t)n * sizeof *got);
    const int STEPS[] = { GOLDEN_IDS, second, 1 }; /* more than one batch, pieces, decoding */
    for (size_t i = 0; i < COUNT_OF(STEPS); i++) {
        run_ids(e, m, STEPS[i], got);
        const double d = max_difference(got, (const float *)(const void *)e->want.data, n);
        if (!(d <= e->tolerance)) fail_msg("%s, %s, %d at a time: off by %g", e->name, config, STEPS[i], d);
        if (i == 0) check_best(e, m, STEPS[i], got);
    }
    free(got);
    model_close(m);
}

#endif
