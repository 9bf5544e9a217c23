/* qdyno train: a model made from nothing on this machine, with what it cost and how good it is. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/train/train.h"
#include "tui/cli/commands.h"
#include "tui/widgets/widgets.h"

const struct cli_flag FLAGS_TRAIN[] = {
    { "--steps", NULL, "N", "steps; default 8000", FLAG_INT, 1, 1 << 24 },
    { "-b", "--batch", "N", "rows worked on at once; default 8", FLAG_INT, 1, 4096 },
    { "--accumulate", NULL, "N", "batches whose gradients make one step; default 2", FLAG_INT, 1, 4096 },
    { "-c", "--ctx", "N", "tokens of a row; default 256", FLAG_INT, 2, 1 << 14 },
    { "--amp", NULL, "HOW", "mixed precision of products; default bf16", FLAG_CHOICE, 0, 0, AMP_NAMES },
    { "--checkpoint-every", NULL, "K",
      "keep what enters every K-th layer and compute the rest again; 0 (default): keep all", FLAG_INT, 0,
      256 },
    { "--trim-every", NULL, "N", "give memory back every N steps; 0 (default): never", FLAG_INT, 0, 1 << 24 },
    { "--save-every", NULL, "N", "steps between saves of OUT.train; default 200", FLAG_INT, 1, 1 << 24 },
    { "--layers", NULL, "N", "layers; default 6", FLAG_INT, 1, 256 },
    { "--width", NULL, "N", "width; default 256", FLAG_INT, 2, 1 << 14 },
    { "--heads", NULL, "N", "heads; default 4", FLAG_INT, 1, 256 },
    { "--kv-heads", NULL, "N", "heads of keys and values; default 2", FLAG_INT, 1, 256 },
    { "--ff", NULL, "N", "width of the feed-forward part; default 768", FLAG_INT, 2, 1 << 16 },
    { "--vocab", NULL, "N", "tokens of the vocabulary; default 1536", FLAG_INT, 1, 1 << 18 },
    { "--untied", NULL, NULL, "an output matrix of its own", FLAG_SWITCH },
    { "--optimizer", NULL, "NAME",
      "adamw (default), or muon: orthogonal steps for the matrices of the layers, adamw for the rest",
      FLAG_CHOICE, 0, 0, OPTIMIZER_NAMES },
    { "--rate", NULL, "X", "peak learning rate; default 0.003", FLAG_NUM, 1e-9, 1 },
    { "--warmup", NULL, "N", "steps until the peak; default 200", FLAG_INT, 0, 1 << 24 },
    { "--decay", NULL, "X", "weight decay; default 0.1", FLAG_NUM, 0, 10 },
    { "--clip", NULL, "X", "longest gradient; 0 off; default 1", FLAG_NUM, 0, 1e9 },
    { "--exam", NULL, "N", "held-out stories of the examination; default 1000", FLAG_INT, 1, 1 << 24 },
    { "-R", "--recipe", "FORMAT", "format of the matrices: f16 (default) or f32", FLAG_TEXT },
    { "-t", "--threads", "N", "threads; default all cores", FLAG_INT, 1, 1024 },
    { NULL },
};

static const struct column COLUMNS[] = {
    { "path", "file", COLUMN_TEXT },
    { "params", "parameters", COLUMN_INT },
    { "steps", "steps", COLUMN_INT },
    { "skipped", "steps skipped (overflow)", COLUMN_INT },
    { "tokens", "tokens read", COLUMN_INT },
    { "loss", "loss, nats a token", COLUMN_NUM, 1, 4 },
    { "held_out_nats", "held-out loss, nats a token", COLUMN_NUM, 1, 4 },
    { "floor_nats", "the language's own, nats a token", COLUMN_NUM, 1, 4 },
    { "held_out_ppl", "held-out perplexity", COLUMN_NUM, 1, 4 },
    { "floor_ppl", "at best", COLUMN_NUM, 1, 4 },
    { "chars_per_token", "characters a token", COLUMN_NUM, 1, 2 },
    { "seconds", "seconds", COLUMN_NUM, 1, 1 },
    { "train_tok_s", "tokens/s", COLUMN_NUM, 1, 0 },
    { "peak_bytes", "peak memory", COLUMN_BYTES },
    { "parameter_bytes", "parameters and gradients", COLUMN_BYTES },
    { "activation_bytes", "activations", COLUMN_BYTES },
    { "resumed", "went on from OUT.train", COLUMN_BOOL },
};

/* ---------------------------------------------------------------- options */

static enum err_code read_options(struct train_options *o, const struct cli_global *g,
                                  const struct cli_args *a, struct err *why)
{
    struct network_shape *s = &o->shape;
    const char *amp = args_text(a, "--amp", AMP_NAMES[o->amp]), *format = args_text(a, "-R", o->format->name);
    for (int i = 0; i < AMP_COUNT; i++)
        if (!strcmp(amp, AMP_NAMES[i])) o->amp = (enum amp)i;
    o->format = format_find(format);
    if (!o->format) return err_set(why, ERR_USAGE, "-R %s: want f16 or f32", format);
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
    o->threads = (int)args_int(a, "-t", threadpool_default_threads());
    return isa_usable(&o->isa, why);
}

/* ---------------------------------------------------------------- while it runs */

struct watcher {
    struct progress progress;
    const struct cli_global *g;
};

static bool on_progress(void *ctx, const struct train_progress *p)
{
    struct watcher *w = ctx;
    progress_tell(&w->progress,
                  &(struct progress_figures){ .done = (double)p->step / (double)MAX(p->steps, 1),
                                              .rate = p->tokens_s,
                                              .unit = "tokens/s",
                                              .left_s = p->left_s },
                  "step %lld/%lld  loss %.4f  gradient %.2f  %s tok/s  peak %s  left %s", (long long)p->step,
                  (long long)p->steps, p->loss, p->length, figure_number(p->tokens_s).text,
                  figure_bytes(p->peak_bytes).text, figure_duration(p->left_s).text);
    return !cli_is_interrupted(w->g);
}

/* ---------------------------------------------------------------- the loss curve */

enum { PLOT_WIDTH = 72, PLOT_HEIGHT = 12 };

/* Mean of the steps that fall into a column; NAN: none did, or all were skipped. */
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

/* Loss over steps on a logarithmic axis, in ASCII: it is read in logs, too. */
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
    table_note(t, "loss, nats a token, over %lld steps (-: the language's own entropy)", (long long)r->steps);
    for (int i = 0; i < PLOT_HEIGHT; i++) {
        for (int c = PLOT_WIDTH; c > 0 && grid[i][c - 1] == ' '; c--) grid[i][c - 1] = '\0';
        table_note(t, "%7.3f |%s", exp(top - (top - bottom) * i / (PLOT_HEIGHT - 1)), grid[i]);
    }
}

/* ---------------------------------------------------------------- what came out */

static json_t *losses_json(const struct train_report *r)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < r->steps; i++) json_array_append_new(list, json_num((double)r->losses[i]));
    return list;
}

static int print_report(const struct cli_global *g, const struct cli_args *a, const struct train_report *r)
{
    struct table t;
    table_init(&t, "qdyno.train/1", COLUMNS, COUNT_OF(COLUMNS));
    t.record = true;
    json_t *row = table_row(&t);
    json_put_str(row, "path", a->arg[0]);
    json_put_int(row, "params", r->params);
    json_put_int(row, "steps", r->steps);
    json_put_int(row, "skipped", r->skipped);
    json_put_int(row, "tokens", r->tokens);
    json_put_num(row, "loss", r->loss);
    json_put_num(row, "held_out_nats", r->held_out);
    json_put_num(row, "floor_nats", r->floor);
    json_put_num(row, "held_out_ppl", exp(r->held_out));
    json_put_num(row, "floor_ppl", exp(r->floor));
    json_put_num(row, "chars_per_token", r->characters);
    json_put_num(row, "seconds", r->seconds);
    json_put_num(row, "train_tok_s", r->tokens_s);
    json_put_int(row, "peak_bytes", r->peak_bytes);
    json_put_int(row, "parameter_bytes", r->memory.parameters);
    json_put_int(row, "activation_bytes", r->memory.activations);
    json_put_bool(row, "resumed", r->resumed);
    json_put(t.extra, "losses", losses_json(r));
    plot_losses(&t, r);
    int status = cli_print(g, a, &t, EXIT_DONE);
    table_done(&t);
    return status;
}

int command_train(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct watcher w = { .g = g };
    struct train_report r = { 0 };
    struct train_options o = train_defaults();
    enum err_code rc = read_options(&o, g, a, &why);
    o.progress = on_progress;
    o.ctx = &w;
    if (!rc && !a->n) rc = err_set(&why, ERR_USAGE, "want OUT, the file to write: qdyno train model.gguf");
    progress_init(&w.progress, g);
    if (!rc) rc = train_run(a->arg[0], &o, &r, &why);
    progress_clear(&w.progress);
    int status = rc ? cli_fail(a, &why) : print_report(g, a, &r);
    if (rc == ERR_CANCELLED) status = EXIT_INTERRUPTED;
    train_report_done(&r);
    return status;
}
