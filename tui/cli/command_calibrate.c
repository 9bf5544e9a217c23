/* qdyno calibrate: records statistics of the inputs of a model's matrices while it reads a text, for
 * quantization methods that use them; and prints such files, including importance matrices of other
 * programs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "engine/import/import.h"
#include "kernels/kernels.h"
#include "engine/quant/quant.h"
#include "tui/cli/commands.h"

/* The exact values of enum precision, in its order. With less precision the statistics would reflect
 * rounding. */
static const char *const PRECISIONS[] = {
    [PRECISION_HIGHEST] = PRECISION_NAME_HIGHEST, [PRECISION_HIGH] = PRECISION_NAME_HIGH, NULL
};

/* clang-format off */
const struct cli_flag FLAGS_CALIBRATE[] = {
    { .name = "-f", .alias = "--file", .value = "TEXT",
      .help = "text to read; default: the bundled one, as the result then states" },
    { .name = "--out", .value = "FILE",
      .help = "write the calibration, a GGUF file that other programs read as an importance matrix" },
    { .name = "--imatrix", .value = "FILE",
      .help = "write the importance matrix alone, for other programs: the legacy format if FILE ends in "
              ".dat, else GGUF" },
    { .name = "--show", .value = "FILE",
      .help = "print what an existing calibration or importance matrix contains" },
    { .name = "-c", .alias = "--ctx-size", .value = "N", .kind = FLAG_INT, .min = 8, .max = 1 << 24,
      .help = "tokens per sequence, at most; default 512" },
    { .name = "--tokens", .value = "N", .kind = FLAG_INT, .max = 1 << 24,
      .help = "tokens of the text to read, in whole sequences; default 65536; 0: all" },
    { .name = "-t", .alias = "--threads", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1024,
      .help = "threads; default: all cores" },
    { .name = "--precision", .value = "P", .kind = FLAG_CHOICE, .choices = PRECISIONS,
      .help = "precision of the matrix products: highest (f32, default) or high (errors of a few 1e-5; "
              "faster on CPUs with matrix tiles)" },
    { .name = "--memory", .value = "BYTES", .kind = FLAG_BYTES,
      .help = "memory for activations; default: a quarter of the free memory" },
    { .name = "--force", .help = "run a model file with metadata or tensors that qdyno does not know" },
    { .name = NULL },
};
/* clang-format on */

static const struct column COLUMNS[] = {
    COL("path", "file"),
    COL("file_bytes", "bytes", .kind = COLUMN_BYTES),
    COL("imatrix", "importance matrix"),
    COL("model", "model"),
    COL("model_sha256", "SHA-256 of the model"),
    COL("text", "text"),
    COL("bundled_text", "bundled text", .kind = COLUMN_BOOL),
    COL("ctx", "tokens of a sequence", .kind = COLUMN_INT),
    COL("sequences", "sequences", .kind = COLUMN_INT),
    COL("matrices", "matrices", .kind = COLUMN_INT),
    COL("inputs", "distinct inputs", .kind = COLUMN_INT),
    COL("seconds", "seconds", .kind = COLUMN_NUM, .digits = 1),
    COL("tok_s", "tokens/s", .kind = COLUMN_NUM, .digits = 1),
    CAUTION_KEYS,
};

DOCUMENT(CALIBRATE, "qdyno.calibrate/1", COLUMNS, .record = true);

static const struct column SHOW_COLUMNS[] = {
    COL("input", "input of"),
    COL("matrices", "matrices", .kind = COLUMN_INT),
    COL("cols", "columns", .kind = COLUMN_INT),
    COL("count", "tokens", .kind = COLUMN_INT),
    COL("rms", "RMS", .kind = COLUMN_NUM, .digits = 4),
    COL("rms_ratio_max", "largest column, x RMS", .kind = COLUMN_NUM, .digits = 1),
    COL("mean_abs", "mean magnitude", .kind = COLUMN_NUM, .digits = 4),
    COL("min", "min", .kind = COLUMN_NUM, .digits = 3),
    COL("max", "max", .kind = COLUMN_NUM, .digits = 3),
};

DOCUMENT(CALIBRATION, "qdyno.calibration/1", SHOW_COLUMNS,
         .members = "model model_sha256 text bundled_text ctx sequences matrices inputs path imatrix");

static void put_about(json_t *to, const struct calibration *c)
{
    struct calibration_summary about;
    calibration_describe(c, &about);
    json_put_str(to, "model", about.model_name[0] ? about.model_name : NULL);
    json_put_str(to, "model_sha256", about.model[0] ? about.model : NULL);
    json_put_str(to, "text", about.text[0] ? about.text : NULL);
    json_put_bool(to, "bundled_text", about.bundled_text);
    json_put_int(to, "ctx", about.tokens);
    json_put_int(to, "sequences", about.sequences);
    json_put_int(to, "matrices", about.matrices);
    json_put_int(to, "inputs", about.inputs);
}

/* ---------------------------------------------------------------- --show */

static void put_input(json_t *row, const struct calibration_input *in)
{
    double squares = 0, magnitude = in->mean_abs ? 0 : NAN, low = NAN, high = NAN, most = 0;
    for (int64_t i = 0; i < in->parts * in->cols; i++) {
        squares += (double)in->mean_square[i] / (double)(in->parts * in->cols);
        most = fmax(most, in->mean_square[i]);
    }
    for (int64_t i = 0; i < in->cols; i++) {
        if (in->mean_abs) magnitude += (double)in->mean_abs[i] / (double)in->cols;
        if (in->min) low = fmin(low, in->min[i]); /* fmin and fmax ignore NaN */
        if (in->max) high = fmax(high, in->max[i]);
    }
    json_put_str(row, "input", in->tensors[0]);
    json_put_int(row, "matrices", in->tensor_count);
    json_put_int(row, "cols", in->cols);
    json_put_int(row, "count", in->count);
    json_put_num(row, "rms", sqrt(squares));
    json_put_num(row, "rms_ratio_max", squares > 0 ? sqrt(most / squares) : NAN);
    json_put_num(row, "mean_abs", magnitude);
    json_put_num(row, "min", low);
    json_put_num(row, "max", high);
}

static enum err_code calibration_show(const struct cli_global *g, const struct cli_args *a, const char *path,
                                      int *status, struct err *why)
{
    struct calibration *c;
    struct calibration_summary about;
    struct table t;
    const char *imatrix = args_text(a, "--imatrix", NULL);
    enum err_code rc = calibration_load(&c, path, why);
    if (rc) return rc;
    if (imatrix && (rc = imatrix_save(c, imatrix, why))) {
        calibration_close(c);
        return rc;
    }
    calibration_describe(c, &about);
    table_init(&t, &DOCUMENT_CALIBRATION);
    for (int i = 0; i < about.inputs; i++) put_input(table_row(&t), calibration_at(c, i));
    put_about(t.extra, c);
    json_put_str(t.extra, "path", path);
    json_put_str(t.extra, "imatrix", imatrix);
    table_note(&t, "%s%s%s", calibration_name(c), about.model_name[0] ? ", by " : "", about.model_name);
    if (about.imatrix)
        table_note(&t, "an importance matrix of another program: it contains only mean squares");
    *status = cli_finish(g, a, &t, EXIT_DONE);
    calibration_close(c);
    return ERR_OK;
}

/* ---------------------------------------------------------------- a new calibration */

struct calibrating {
    const struct cli_global *g;
    struct progress progress;
    int64_t start;
};

static bool calibrate_on_progress(void *ctx, double done)
{
    struct calibrating *w = ctx;
    const double seconds = (double)(clock_ns() - w->start) * 1e-9;
    progress_report(&w->progress, PROGRESS_AT(done, done > 0 ? seconds * (1 - done) / done : NAN),
                    "calibrating %.0f %%  %.0f s left", done * 100, seconds * (1 - done) / done);
    return !cli_is_interrupted(w->g);
}

static int calibration_report(const struct cli_global *g, const struct cli_args *a,
                              const struct calibration *c, double seconds, const struct model_shape *shape)
{
    const char *out = args_text(a, "--out", NULL);
    struct calibration_summary about;
    struct table t;
    struct stat st;
    calibration_describe(c, &about);
    json_t *row = table_record(&t, &DOCUMENT_CALIBRATE);
    json_put_str(row, "path", out);
    if (out && !stat(out, &st)) json_put_int(row, "file_bytes", st.st_size);
    json_put_str(row, "imatrix", args_text(a, "--imatrix", NULL));
    put_about(row, c);
    json_put_num(row, "seconds", seconds);
    json_put_num(row, "tok_s", (double)(about.sequences * about.tokens) / seconds);
    cli_put_cautions(row, shape->random_weights, shape->unknown > 0);
    if (about.bundled_text)
        table_note(
            &t,
            "no -f given: calibrated on the bundled text, which may differ from what this model will read");
    if (about.tokens < args_int(a, "-c", about.tokens))
        table_note(
            &t,
            "sequences have only %d tokens: the text is too short, or the model was trained on no longer ones",
            about.tokens);
    cli_note_cautions(&t, shape->random_weights, shape->unknown > 0);
    return cli_finish(g, a, &t, EXIT_DONE);
}

static enum err_code calibration_make(const struct cli_global *g, const struct cli_args *a, int *status,
                                      struct err *why)
{
    const char *out = args_text(a, "--out", NULL), *imatrix = args_text(a, "--imatrix", NULL);
    struct calibrating w = { .g = g, .start = clock_ns() };
    struct model_shape shape;
    struct gguf *model;
    struct calibration *c = NULL;
    if (!a->n)
        return err_set(why, ERR_USAGE, "expected IN, the model: qdyno calibrate IN -f TEXT --out FILE");
    if (!out && !imatrix)
        return err_set(why, ERR_USAGE, "expected --out FILE, the calibration to write, or --imatrix FILE");
    const int64_t tokens = args_int(a, "--tokens", CALIBRATION_TOKENS);
    const struct calibration_options o = {
        .path = args_text(a, "-f", ""),
        .text_only = true,
        .threads = (int)args_int(a, "-t", 0),
        .ctx = (int)args_int(a, "-c", 0),
        .tokens = tokens ? tokens : -1,
        .precision = strcmp(args_text(a, "--precision", PRECISION_NAME_HIGHEST), PRECISION_NAME_HIGH)
                         ? PRECISION_HIGHEST
                         : PRECISION_HIGH,
        .memory = args_bytes(a, "--memory", 0),
        .force = args_has(a, "--force"),
        .progress = calibrate_on_progress,
        .progress_ctx = &w,
        .log = &g->log
    };
    enum err_code rc = model_file_open(&model, a->arg[0], why);
    if (rc) return rc;
    progress_init(&w.progress, g);
    rc = model_shape_read(&shape, model, why);
    if (!rc) rc = calibration_obtain(&c, model, &o, why);
    const double seconds = (double)(clock_ns() - w.start) * 1e-9;
    progress_clear(&w.progress);
    if (!rc && out) rc = calibration_save(c, out, why);
    if (!rc && imatrix) rc = imatrix_save(c, imatrix, why);
    if (!rc) *status = calibration_report(g, a, c, seconds, &shape);
    calibration_close(c);
    gguf_close(model);
    return rc;
}

int command_calibrate(const struct cli_global *g, const struct cli_args *a)
{
    static const char *const MAKING[] = { "-f", "--out", "-c", "--tokens", "-t", "--precision", "--memory" };
    struct err why = { 0 };
    const char *path = args_text(a, "--show", NULL);
    int status = EXIT_INTERNAL;
    enum err_code rc = ERR_OK;
    for (size_t i = 0; i < COUNT_OF(MAKING) && path && !rc; i++)
        if (a->n || args_has(a, MAKING[i]))
            rc = err_set(&why, ERR_USAGE, "--show prints an existing file: leave %s out",
                         a->n ? a->arg[0] : MAKING[i]);
    if (!rc) rc = path ? calibration_show(g, a, path, &status, &why) : calibration_make(g, a, &status, &why);
    return rc ? cli_fail(a, &why) : status;
}
