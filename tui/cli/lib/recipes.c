/* recipes.c - see recipes.h. */
#include "tui/cli/lib/recipes.h"

#include <math.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "engine/quant/quant.h"
#include "kernels/kernels.h"
#include "tui/cli/documents.h"

#define TENSOR(member) MEMBER(struct tensor_plan, member)
const struct column RECIPE_TENSOR_COLUMNS[] = {
    COL("config", "config"),
    COL("name", "tensor"),
    COL("rows", "rows", .kind = COLUMN_INT),
    COL("cols", "inputs", .kind = COLUMN_INT),
    COL("format_before", "format before"),
    COL("format", "format"),
    COL("bytes", "bytes", .kind = COLUMN_BYTES, TENSOR(bytes)),
    COL("nmse", "NMSE", .digits = 8, TENSOR(nmse)),
    KEY("nmse_rescaled", TENSOR(nmse_rescaled)),
    COL("values_rounded", "values rounded", .kind = COLUMN_INT),
    COL("largest_difference", "largest difference", .digits = 9, TENSOR(largest)),
    COL("reason", "reason"),
};

void recipe_put_tensor(json_t *row, const struct tensor_plan *t)
{
    const struct gguf_tensor *s = t->source;
    json_put_str(row, "name", s->name);
    json_put_int(row, "rows", s->shape[1] * s->shape[2] * s->shape[3]);
    json_put_int(row, "cols", s->shape[0]);
    json_put_str(row, "format_before", s->format->name);
    json_put_str(row, "format", t->format->name);
    document_put(&DOCUMENT_METHOD_TENSORS, row, struct tensor_plan, t);
    if (t->rounded >= 0) json_put_int(row, "values_rounded", t->rounded);
    json_put_str(row, "reason", TENSOR_FATES[t->fate]);
}

/* ---------------------------------------------------------------- sums */

void recipe_formats(const struct quantize_plan *p, struct str *out)
{
    int64_t bytes[FORMAT_COUNT] = { 0 }, count[FORMAT_COUNT] = { 0 };
    for (int64_t i = 0; i < p->count; i++) {
        const int f = (int)(p->tensors[i].format - FORMATS);
        bytes[f] += p->tensors[i].bytes;
        count[f]++;
    }
    for (bool first = true;; first = false) {
        int most = 0;
        for (int f = 1; f < FORMAT_COUNT; f++)
            if (bytes[f] > bytes[most]) most = f;
        if (!bytes[most]) return;
        str_printf(out, "%s%s x %lld", first ? "" : ", ", FORMATS[most].name, (long long)count[most]);
        bytes[most] = 0;
    }
}

static int64_t plan_count_fate(const struct quantize_plan *p, enum tensor_fate fate)
{
    int64_t n = 0;
    for (int64_t i = 0; i < p->count; i++) n += p->tensors[i].fate == fate;
    return n;
}

/* Bits per weight of the quantized tensors alone. */
static double plan_bits_quantized(const struct quantize_plan *p)
{
    double bytes = 0, weights = 0;
    for (int64_t i = 0; i < p->count; i++) {
        const struct tensor_plan *t = &p->tensors[i];
        const int64_t *n = t->source->shape;
        if (!t->quantized) continue;
        bytes += (double)t->bytes;
        weights += (double)n[0] * (double)n[1] * (double)n[2] * (double)n[3];
    }
    return weights > 0 ? 8 * bytes / weights : NAN;
}

void recipe_put_plan(json_t *row, const struct quantize_plan *p)
{
    struct str formats = { 0 };
    int64_t quantized = 0;
    for (int64_t i = 0; i < p->count; i++) quantized += p->tensors[i].quantized;
    recipe_formats(p, &formats);
    json_put_int(row, "weights", p->weights);
    json_put_int(row, "weight_bytes_before", p->bytes_before);
    json_put_int(row, "weight_bytes", p->bytes);
    json_put_num(row, "bits_per_weight", p->weights ? 8.0 * (double)p->bytes / (double)p->weights : NAN);
    json_put_num(row, "bits_quantized", plan_bits_quantized(p));
    json_put_str(row, "formats", str_text(&formats));
    json_put_int(row, "tensors", p->count);
    json_put_int(row, "tensors_quantized", quantized);
    json_put_int(row, "tensors_fell_back", plan_count_fate(p, FATE_FELL_BACK));
    json_put_num(row, "nmse", p->nmse);
    if (p->worst >= 0) {
        json_put_num(row, "nmse_worst", p->tensors[p->worst].nmse);
        json_put_str(row, "worst_tensor", p->tensors[p->worst].source->name);
    }
    str_free(&formats);
}

/* Appends "blk.0.ffn_down.weight (172 inputs, f16), ..." for at most six tensors with that fate, and the
 * number of the others. */
static void plan_list_names(struct str *line, const struct quantize_plan *p, enum tensor_fate fate)
{
    enum { SHOWN = 6 };
    int64_t n = 0;
    for (int64_t i = 0; i < p->count; i++) {
        const struct tensor_plan *t = &p->tensors[i];
        if (t->fate != fate || n++ >= SHOWN) continue;
        str_printf(line, "%s%s (%lld inputs, %s)", n > 1 ? ", " : "", t->source->name,
                   (long long)t->source->shape[0], t->format->name);
    }
    if (n > SHOWN) str_printf(line, " and %lld more (--tensors lists all)", (long long)(n - SHOWN));
}

void recipe_note_left_out(struct table *t, const struct quantize_plan *p)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < p->count; i++) {
        const struct tensor_plan *x = &p->tensors[i];
        if (x->quantized) continue;
        json_t *one = list_row(list);
        json_put_str(one, "name", x->source->name);
        json_put_str(one, "format", x->format->name);
        json_put_str(one, "reason", TENSOR_FATES[x->fate]);
    }
    json_put(t->extra, "left_out", list);
    for (int f = 0; f < FATE_COUNT; f++) {
        const enum tensor_fate fate = (enum tensor_fate)f;
        const int64_t n = plan_count_fate(p, fate);
        struct str line = { 0 };
        if (!n || fate == FATE_METHOD || fate == FATE_RULE) continue;
        str_printf(&line, "%lld %s %s", (long long)n, n == 1 ? "tensor" : "tensors", TENSOR_FATES[fate]);
        if (fate != FATE_KEPT) str_append(&line, ": ");
        if (fate != FATE_KEPT) plan_list_names(&line, p, fate);
        table_note(t, "%s", str_text(&line));
        str_free(&line);
    }
}

void recipe_note_rescaled(struct table *t)
{
    table_note(t,
               "The method moved scales between matrices. Where no norm stores them, NMSE is computed after "
               "the best rescaling of each row or column.");
}

/* ---------------------------------------------------------------- progress */

static void time_text(char *buf, size_t size, double seconds)
{
    const long s = lround(seconds);
    if (s >= 3600)
        snprintf(buf, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buf, size, "%ld:%02ld", s / 60, s % 60);
}

/* Updates the exponential mean of the rate. Tensors differ in cost, so the last seconds predict the rest
 * better than the overall mean. */
static void recipe_progress_update(struct recipe_progress *p, double done)
{
    enum { EVERY_NS = 250000000 };
    const double keep = 0.8;
    const int64_t now = clock_ns();
    if (!p->last_ns || p->last_done <= 0) {
        p->last_ns = now;
        p->last_done = done;
        return;
    }
    if (now - p->last_ns < EVERY_NS || done <= p->last_done) return;
    const double rate = (done - p->last_done) / ((double)(now - p->last_ns) * 1e-9);
    p->rate = p->rate > 0 ? keep * p->rate + (1 - keep) * rate : rate;
    p->last_ns = now;
    p->last_done = done;
}

bool recipe_progress_wait(void *arg)
{
    const struct recipe_progress *p = arg;
    progress_show(p->progress, "%.40s  waiting for another process that makes it", p->what);
    return !cli_is_interrupted(p->global);
}

bool recipe_progress_show(void *arg, double done)
{
    struct recipe_progress *p = arg;
    char left[32];
    p->done = done;
    recipe_progress_update(p, done);
    if (done <= 0 && p->at_first)
        progress_show(p->progress, "%.40s  %s", p->what, p->at_first);
    else if (p->rate > 0) {
        time_text(left, sizeof left, (1 - done) / p->rate);
        progress_report(p->progress,
                        &(struct progress_figures){ .done = done,
                                                    .rate = p->rate * (double)p->weights,
                                                    .unit = "weights/s",
                                                    .left_s = (1 - done) / p->rate },
                        "%.40s  %.0f %%  %.1fM weights/s  ETA %s", p->what, done * 100,
                        p->rate * (double)p->weights * 1e-6, left);
    } else {
        progress_report(p->progress, PROGRESS_AT(done, NAN), "%.40s  %.0f %%", p->what, done * 100);
    }
    return !cli_is_interrupted(p->global);
}
