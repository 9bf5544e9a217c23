/* qdyno train: trains a small model from nothing on this machine, and prints its cost and quality. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/train/train.h"
#include "kernels/kernels.h"
#include "tui/cli/commands.h"
#include "tui/widgets/widgets.h"

/* clang-format off */
const struct cli_flag FLAGS_TRAIN[] = {
    { .name = "--steps", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1 << 24,
      .help = "training steps; default 8000" },
    { .name = "-b", .alias = "--batch", .value = "N", .kind = FLAG_INT, .min = 1, .max = 4096,
      .help = "sequences per batch; default 8" },
    { .name = "--accumulate", .value = "N", .kind = FLAG_INT, .min = 1, .max = 4096,
      .help = "batches whose gradients are summed for one step; default 2" },
    { .name = "-c", .alias = "--ctx", .value = "N", .kind = FLAG_INT, .min = 2, .max = 1 << 14,
      .help = "tokens per sequence; default 256" },
    { .name = "--amp", .value = "HOW", .kind = FLAG_CHOICE, .choices = AMP_NAMES,
      .help = "mixed precision of matrix products; default bf16" },
    { .name = "--checkpoint-every", .value = "K", .kind = FLAG_INT, .max = 256,
      .help = "keep the input of every K-th layer and recompute the rest (gradient checkpointing); 0 "
              "(default): keep all" },
    { .name = "--trim-every", .value = "N", .kind = FLAG_INT, .max = 1 << 24,
      .help = "return free memory to the system every N steps; 0 (default): never" },
    { .name = "--save-every", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1 << 24,
      .help = "steps between two saves of OUT.train; default 200" },
    { .name = "--layers", .value = "N", .kind = FLAG_INT, .min = 1, .max = 256, .help = "layers; default 6" },
    { .name = "--width", .value = "N", .kind = FLAG_INT, .min = 2, .max = 1 << 14,
      .help = "width; default 256" },
    { .name = "--heads", .value = "N", .kind = FLAG_INT, .min = 1, .max = 256,
      .help = "attention heads; default 4" },
    { .name = "--kv-heads", .value = "N", .kind = FLAG_INT, .min = 1, .max = 256,
      .help = "key and value heads; default 2" },
    { .name = "--ff", .value = "N", .kind = FLAG_INT, .min = 2, .max = 1 << 16,
      .help = "width of the feed-forward part; default 768" },
    { .name = "--vocab", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1 << 18,
      .help = "size of the vocabulary; default 1536" },
    { .name = "--untied", .help = "separate output matrix, not tied to the embedding" },
    { .name = "--optimizer", .value = "NAME", .kind = FLAG_CHOICE, .choices = OPTIMIZER_NAMES,
      .help = "adamw (default), or muon: orthogonalized steps for the matrices of the layers, adamw for "
              "the rest" },
    { .name = "--rate", .value = "X", .kind = FLAG_NUM, .min = 1e-9, .max = 1,
      .help = "peak learning rate; default 0.003" },
    { .name = "--warmup", .value = "N", .kind = FLAG_INT, .max = 1 << 24,
      .help = "steps until the peak; default 200" },
    { .name = "--decay", .value = "X", .kind = FLAG_NUM, .max = 10, .help = "weight decay; default 0.1" },
    { .name = "--clip", .value = "X", .kind = FLAG_NUM, .max = 1e9,
      .help = "largest norm of the gradient; 0: no clipping; default 1" },
    { .name = "--exam", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1 << 24,
      .help = "held-out stories for the final test; default 1000" },
    { .name = "-R", .alias = "--recipe", .value = "FORMAT",
      .help = "format of the matrices: f16 (default) or f32" },
    { .name = "-t", .alias = "--threads", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1024,
      .help = "threads; default: all cores, divided among the processes of --parallel" },
    { .name = "--parallel", .value = "dpN",
      .help = "train with N processes, each with a part of the batches (--accumulate) of a step; the model "
              "has the same bits as with one" },
    { .name = "--hosts", .value = "FILE",
      .help = "machines for --parallel, one a line, this one first; default: this machine" },
    { .name = NULL },
};
/* clang-format on */

#define REPORT(member) MEMBER(struct train_report, member)
static const struct column COLUMNS[] = {
    COL("path", "file"),
    COL("params", "parameters", REPORT(params)),
    COL("steps", "steps", REPORT(steps)),
    COL("skipped", "steps skipped (overflow)", REPORT(skipped)),
    COL("tokens", "tokens trained on", REPORT(tokens)),
    COL("loss", "loss, nats per token", .digits = 4, REPORT(loss)),
    COL("held_out_nats", "held-out loss, nats per token", .digits = 4, REPORT(held_out)),
    COL("floor_nats", "entropy of the language, nats per token", .digits = 4, REPORT(floor)),
    COL("held_out_ppl", "held-out perplexity", .digits = 4,
        MEMBER_AS(struct train_report, held_out, LOG_RATIO)),
    COL("floor_ppl", "best possible perplexity", .digits = 4,
        MEMBER_AS(struct train_report, floor, LOG_RATIO)),
    COL("chars_per_token", "characters per token", .digits = 2, REPORT(characters)),
    COL("seconds", "seconds", .digits = 1, REPORT(seconds)),
    COL("train_tok_s", "tokens/s", REPORT(tokens_s)),
    COL("peak_bytes", "peak memory", .kind = COLUMN_BYTES, REPORT(peak_bytes)),
    COL("parameter_bytes", "parameters and gradients", .kind = COLUMN_BYTES, REPORT(memory.parameters)),
    COL("activation_bytes", "activations", .kind = COLUMN_BYTES, REPORT(memory.activations)),
    COL("resumed", "continued from OUT.train", REPORT(resumed)),
};

DOCUMENT(TRAIN, "qdyno.train/1", COLUMNS, .record = true, .members = "losses[]");

/* ---------------------------------------------------------------- options */

/* What is not given keeps the default of train_defaults. A warm-up never takes more than a tenth of the
 * steps, so that a short trial reaches its full learning rate. */
static enum err_code options_read(struct train_options *o, const struct cli_global *g,
                                  const struct cli_args *a, struct err *why)
{
    struct network_shape *s = &o->shape;
    const char *amp = args_text(a, "--amp", AMP_NAMES[o->amp]), *format = args_text(a, "-R", o->format->name);
    for (int i = 0; i < AMP_COUNT; i++)
        if (!strcmp(amp, AMP_NAMES[i])) o->amp = (enum amp)i;
    o->format = format_find(format);
    if (!o->format) return err_set(why, ERR_USAGE, "-R %s: expected f16 or f32", format);
    const char *optimizer = args_text(a, "--optimizer", OPTIMIZER_NAMES[o->optimizer]);
    for (int i = 0; i < OPTIMIZER_COUNT; i++)
        if (!strcmp(optimizer, OPTIMIZER_NAMES[i])) o->optimizer = (enum optimizer)i;
    o->steps = args_int(a, "--steps", o->steps);
    o->batch = (int)args_int(a, "-b", o->batch);
    o->accumulate = (int)args_int(a, "--accumulate", o->accumulate);
    o->checkpoint_every = (int)args_int(a, "--checkpoint-every", o->checkpoint_every);
    o->trim_every = (int)args_int(a, "--trim-every", o->trim_every);
    o->save_every = (int)args_int(a, "--save-every", o->save_every);
    o->warmup = args_int(a, "--warmup", MIN(o->warmup, o->steps / 10));
    o->adam.rate = args_num(a, "--rate", o->adam.rate);
    o->adam.weight_decay = args_num(a, "--decay", o->adam.weight_decay);
    o->adam.clip = args_num(a, "--clip", o->adam.clip);
    o->exam_stories = args_int(a, "--exam", o->exam_stories);
    s->ctx = (int)args_int(a, "-c", s->ctx);
    s->layers = (int)args_int(a, "--layers", s->layers);
    s->embd = args_int(a, "--width", s->embd);
    s->heads = (int)args_int(a, "--heads", s->heads);
    s->kv_heads = (int)args_int(a, "--kv-heads", s->kv_heads);
    s->ff = args_int(a, "--ff", s->ff);
    s->vocab = args_int(a, "--vocab", s->vocab);
    s->tied = !args_has(a, "--untied");
    o->seed = g->seed;
    struct parallel mode;
    enum err_code rc = parallel_parse(&mode, args_text(a, "--parallel", "off"), why);
    if (!rc) rc = parallel_check_training(&mode, o->accumulate, why);
    if (rc) return rc;
    o->ranks = mode.dp;
    o->hosts = args_text(a, "--hosts", NULL);
    o->log = &g->log;
    if (o->hosts && o->ranks == 1)
        return err_set(why, ERR_USAGE, "--hosts names the machines for --parallel: add --parallel dp2");
    o->threads = (int)args_int(a, "-t", o->ranks > 1 ? 0 : threadpool_default_threads());
    return isa_usable(&o->isa, why);
}

/* ---------------------------------------------------------------- progress */

struct train_monitor {
    struct progress progress;
    const struct cli_global *g;
};

static bool train_on_progress(void *ctx, const struct train_progress *p)
{
    struct train_monitor *w = ctx;
    progress_report(&w->progress,
                    &(struct progress_figures){ .done = (double)p->step / (double)MAX(p->steps, 1),
                                                .rate = p->tokens_s,
                                                .unit = "tokens/s",
                                                .left_s = p->left_s },
                    "step %lld/%lld  loss %.4f  gradient %.2f  %s tok/s  peak %s  left %s",
                    (long long)p->step, (long long)p->steps, p->loss, p->length,
                    figure_number(p->tokens_s).text, figure_bytes(p->peak_bytes).text,
                    figure_duration(p->left_s).text);
    return !cli_is_interrupted(w->g);
}

/* ---------------------------------------------------------------- the loss curve */

enum { PLOT_WIDTH = 72, PLOT_HEIGHT = 12 };

/* Mean loss of the steps in a column of the plot; NAN: no step, or all were skipped. */
static double column_mean(const float *losses, int64_t steps, int column)
{
    const int64_t from = steps * column / PLOT_WIDTH, to = MAX(from + 1, steps * (column + 1) / PLOT_WIDTH);
    double sum = 0;
    int64_t n = 0;
    for (int64_t i = from; i < to; i++)
        if (isfinite(losses[i])) sum += (double)losses[i], n++;
    return n ? sum / (double)n : NAN;
}

static int plot_row(double v, double top, double bottom)
{
    return (int)lround((top - v) / (top - bottom) * (PLOT_HEIGHT - 1));
}

/* Plots the loss over the steps on a logarithmic axis, in ASCII, because it also goes into log files. */
static void plot_losses(struct table *t, const struct train_report *r)
{
    double mean[PLOT_WIDTH], top = -INFINITY, bottom = log(r->floor);
    char grid[PLOT_HEIGHT][PLOT_WIDTH + 1];
    for (int c = 0; c < PLOT_WIDTH; c++) {
        mean[c] = log(column_mean(r->losses, r->steps, c));
        if (isfinite(mean[c])) top = fmax(top, mean[c]), bottom = fmin(bottom, mean[c]);
    }
    if (!(top > bottom)) return;
    for (int i = 0; i < PLOT_HEIGHT; i++) memset(grid[i], ' ', PLOT_WIDTH), grid[i][PLOT_WIDTH] = '\0';
    memset(grid[plot_row(log(r->floor), top, bottom)], '-', PLOT_WIDTH);
    for (int c = 0; c < PLOT_WIDTH; c++)
        if (isfinite(mean[c])) grid[plot_row(mean[c], top, bottom)][c] = '*';
    table_note(t,
               "loss in nats per token over %lld steps (-: entropy of the language, the best possible loss)",
               (long long)r->steps);
    for (int i = 0; i < PLOT_HEIGHT; i++) {
        for (int c = PLOT_WIDTH; c > 0 && grid[i][c - 1] == ' '; c--) grid[i][c - 1] = '\0';
        table_note(t, "%7.3f |%s", exp(top - (top - bottom) * i / (PLOT_HEIGHT - 1)), grid[i]);
    }
}

/* ---------------------------------------------------------------- output */

/* A skipped step is null: it has no loss. */
static json_t *losses_json(const struct train_report *r)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < r->steps; i++) json_array_append_new(list, json_num((double)r->losses[i]));
    return list;
}

static int report_print(const struct cli_global *g, const struct cli_args *a, const struct train_report *r)
{
    struct table t;
    json_t *row = table_record(&t, &DOCUMENT_TRAIN);
    json_put_str(row, "path", a->arg[0]);
    document_put(&DOCUMENT_TRAIN, row, struct train_report, r);
    json_put(t.extra, "losses", losses_json(r));
    plot_losses(&t, r);
    return cli_finish(g, a, &t, EXIT_DONE);
}

int command_train(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct train_monitor w = { .g = g };
    struct train_report r = { 0 };
    struct train_options o = train_defaults();
    enum err_code rc = options_read(&o, g, a, &why);
    o.progress = train_on_progress;
    o.ctx = &w;
    if (!rc && !a->n)
        rc = err_set(&why, ERR_USAGE, "expected OUT, the file to write: qdyno train model.gguf");
    progress_init(&w.progress, g);
    if (!rc) rc = train_run(a->arg[0], &o, &r, &why);
    progress_clear(&w.progress);
    int status = rc ? cli_fail(a, &why) : report_print(g, a, &r);
    if (rc == ERR_CANCELLED) status = EXIT_INTERRUPTED;
    train_report_done(&r);
    return status;
}
