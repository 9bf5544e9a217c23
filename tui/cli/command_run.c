/* qdyno run: generates text. The text goes to stdout token by token; timings go to stderr. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor/outcome/outcome.h"
#include "advisor/run/run.h"
#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/text/text.h"
#include "telemetry/machine/machine.h"
#include "tui/cli/commands.h"

/* clang-format off */
const struct cli_flag FLAGS_RUN[] = {
    FLAG_MODEL_ROW,
    { .name = "-p", .alias = "--prompt", .value = "TEXT", .help = "text to continue" },
    { .name = "-f", .alias = "--file", .value = "FILE",
      .help = "read the prompt from a file; - is standard input" },
    { .name = "-n", .alias = "--n-predict", .value = "N", .kind = FLAG_INT, .max = 1 << 24,
      .help = "tokens to generate; default 128" },
    FLAG_CONFIG_ROW,
    { .name = "--temp", .value = "T", .kind = FLAG_NUM, .max = 100,
      .help = "temperature; 0 (default) always takes the most likely token" },
    { .name = "--top-k", .value = "N", .kind = FLAG_INT, .max = 1 << 24,
      .help = "sample from the N most likely tokens; 0: off" },
    { .name = "--top-p", .value = "P", .kind = FLAG_NUM, .max = 1,
      .help = "sample from the most likely tokens whose probabilities sum to P; 1: off" },
    { .name = "--min-p", .value = "P", .kind = FLAG_NUM, .max = 1,
      .help = "drop tokens less likely than P times the most likely one; 0: off" },
    { .name = "--repeat-penalty", .value = "X", .kind = FLAG_NUM, .min = 0.01, .max = 100,
      .help = "divide the scores of recent tokens by X; 1: off" },
    { .name = "--repeat-last-n", .value = "N", .kind = FLAG_INT, .max = 1 << 24,
      .help = "number of recent tokens that are penalized" },
    { .name = "--ignore-eos", .help = "do not stop at the end-of-text token" },
    { .name = "--raw", .help = "print control characters of the model's text to a terminal as they are" },
    { .name = "--otlp", .value = "URL",
      .help = "send the times of load, prefill and decode (no text) to this OpenTelemetry collector, e.g. "
              "http://localhost:4318" },
    { .name = NULL },
};
/* clang-format on */

struct generation {
    const struct cli_global *g;
    struct model *model;
    struct sampler *sampler;
    bool greedy;  /* only the most likely token is needed, not the logits */
    int32_t best; /* the most likely token of the last forward pass */
    struct token_list prompt;
    struct str text; /* everything generated */
    int wanted, made;
    bool stream, ignore_eos;
    bool filter;         /* stdout is a terminal */
    struct str held;     /* with `filter`: bytes of an unfinished character */
    const char *stopped; /* "length" "eos" "context" "interrupted" */
    double load_s, prefill_s, decode_s;
    struct trace_generation trace; /* for --otlp */
};

static double seconds_of(struct trace_time t)
{
    return (double)(t.to_ns - t.from_ns) * 1e-9;
}

static enum err_code generation_open_sampler(struct generation *x, const struct cli_args *a, struct err *why)
{
    struct sampler_options o = SAMPLER_DEFAULTS;
    o.temperature = (float)args_num(a, "--temp", o.temperature);
    o.top_k = (int)args_int(a, "--top-k", o.top_k);
    o.top_p = (float)args_num(a, "--top-p", o.top_p);
    o.min_p = (float)args_num(a, "--min-p", o.min_p);
    o.repeat_penalty = (float)args_num(a, "--repeat-penalty", o.repeat_penalty);
    o.repeat_last = (int)args_int(a, "--repeat-last-n", o.repeat_last);
    o.seed = x->g->seed;
    x->greedy = sampler_is_greedy(&o);
    return sampler_open(&x->sampler, &o, (int32_t)model_shape(x->model)->vocab, why);
}

static enum err_code generation_open_model(struct generation *x, const struct cli_args *a, const char *text,
                                           size_t n, struct err *why)
{
    struct config c;
    struct gguf *file = NULL;
    struct tokenizer *k = NULL;
    char *path = NULL;
    enum err_code rc = cli_config(&c, a, args_text(a, "-C", NULL), why);
    if (!rc) rc = cli_applied_config(&c, x->g, a, why);
    if (!rc) rc = cli_config_model(&path, a, &c, why);
    /* The length of the prompt determines the context to allocate. */
    if (!rc) rc = gguf_open(&file, path, why);
    if (!rc) rc = tokenizer_open(&k, file, why);
    if (!rc) rc = tokenizer_encode(k, text, n, TOKENIZE_ADD_BOS | TOKENIZE_SPECIAL, &x->prompt, why);
    if (!rc && !x->prompt.n)
        rc = err_set(why, ERR_USAGE, "the prompt is empty: the model needs at least one token");
    tokenizer_close(k);
    gguf_close(file);
    if (!rc) {
        int64_t given = config_int(&c, KNOB_CTX), need = x->prompt.n + x->wanted + 1;
        struct model_options o = {
            .path = path, .config = &c, .ctx = given ? 0 : (int)need, .sequences = 1, .log = &x->g->log
        };
        x->trace.load.from_ns = clock_ns();
        rc = shapes_model_open(&x->model, &o, why);
        if (!rc && model_plan(x->model)->gpu_layers)
            rc = model_warm(x->model, why); /* compiles the OpenCL kernels now, not during prefill */
        x->trace.load.to_ns = clock_ns();
        x->load_s = seconds_of(x->trace.load);
        if (!rc) model_quantized(x->model, &x->trace.quantize.from_ns, &x->trace.quantize.to_ns);
    }
    if (!rc && x->prompt.n >= model_ctx(x->model))
        rc = err_set(why, ERR_USAGE, "the prompt has %lld tokens, but the context only %d: raise -c",
                     (long long)x->prompt.n, model_ctx(x->model));
    free(path);
    return rc;
}

static enum err_code generation_forward(struct generation *x, const struct batch_row *rows, int n,
                                        struct err *why)
{
    return model_forward_best(x->model, rows, n, x->greedy ? &x->best : NULL, why);
}

static enum err_code generation_prefill(struct generation *x, struct err *why)
{
    struct batch_row *rows = calloc((size_t)x->prompt.n, sizeof *rows);
    if (!rows)
        return err_set(why, ERR_NOMEM, "out of memory for a prompt of %lld tokens", (long long)x->prompt.n);
    for (int64_t i = 0; i < x->prompt.n; i++) {
        rows[i] = (struct batch_row){ .token = x->prompt.ids[i],
                                      .pos = (int32_t)i,
                                      .logits = i + 1 == x->prompt.n };
        sampler_accept(x->sampler, x->prompt.ids[i]);
    }
    /* In slices of a batch, so that Ctrl-C takes effect within a long prompt. */
    int64_t start = clock_ns(), slice = config_int(model_config(x->model), KNOB_BATCH);
    enum err_code rc = ERR_OK;
    for (int64_t at = 0; at < x->prompt.n && !rc; at += slice) {
        rc = generation_forward(x, rows + at, (int)MIN(slice, x->prompt.n - at), why);
        if (!rc && cli_is_interrupted(x->g)) rc = err_set(why, ERR_CANCELLED, "interrupted during prefill");
    }
    x->trace.prefill = (struct trace_time){ start, clock_ns() };
    x->prefill_s = seconds_of(x->trace.prefill);
    free(rows);
    return rc;
}

/* Prints bytes of the model's text. On a terminal a model must not be able to move the cursor or to rewrite
 * what is on the screen, so control characters are shown instead; a character waits for its last byte. */
static void generation_write(struct generation *x, const char *text, size_t n, bool last)
{
    if (!x->filter) {
        fwrite(text, 1, n, stdout);
        return;
    }
    struct str safe = { 0 };
    str_append_n(&x->held, text, n);
    const size_t keep = last ? 0 : str_utf8_unfinished(str_text(&x->held), x->held.len);
    sink_append(&safe, SINK_TERMINAL, str_text(&x->held), x->held.len - keep);
    fwrite(str_text(&safe), 1, safe.len, stdout);
    if (keep) memmove(x->held.data, x->held.data + x->held.len - keep, keep);
    x->held.len = keep;
    str_free(&safe);
}

static enum err_code generation_emit(struct generation *x, int32_t id, struct err *why)
{
    size_t before = x->text.len;
    enum err_code rc = tokenizer_piece(model_tokenizer(x->model), id, false, &x->text, why);
    if (!rc) rc = gguf_check_unchanged(model_gguf(x->model), why); /* before anything is printed */
    if (!rc && x->stream) {
        generation_write(x, str_text(&x->text) + before, x->text.len - before, false);
        fflush(stdout);
    }
    return rc;
}

static enum err_code generation_decode(struct generation *x, struct err *why)
{
    struct tokenizer_info info;
    tokenizer_describe(model_tokenizer(x->model), &info);
    int64_t start = clock_ns();
    int pos = (int)x->prompt.n;
    enum err_code rc = ERR_OK;
    x->stopped = "length";
    while (!rc && x->made < x->wanted) {
        if (cli_is_interrupted(x->g) || (x->stream && ferror(stdout))) {
            x->stopped = "interrupted";
            break;
        }
        int32_t id = x->greedy ? x->best : sampler_next(x->sampler, model_logits(x->model, 0));
        if (id < 0) {
            rc = err_set(why, ERR_FORMAT, "the logits are NaN after %d tokens: the weights may be damaged",
                         x->made);
            break;
        }
        if (id == info.eos && !x->ignore_eos) {
            x->stopped = "eos";
            break;
        }
        x->made++;
        rc = generation_emit(x, id, why);
        if (x->made == 1) x->trace.first_token_ns = clock_ns();
        if (rc || x->made == x->wanted) break;
        if (pos >= model_ctx(x->model)) {
            x->stopped = "context";
            break;
        }
        struct batch_row row = { .token = id, .pos = pos++, .logits = true };
        rc = generation_forward(x, &row, 1, why);
    }
    x->trace.decode = (struct trace_time){ start, clock_ns() };
    x->decode_s = seconds_of(x->trace.decode);
    return rc;
}

static const struct column COLUMNS[] = {
    { .name = "text", .title = "text" },
    { .name = "stopped", .title = "stopped by" },
    { .name = "prompt_tokens", .title = "prompt tokens", .kind = COLUMN_INT },
    { .name = "gen_tokens", .title = "generated tokens", .kind = COLUMN_INT },
    { .name = "load_s", .title = "load (s)", .kind = COLUMN_NUM, .digits = 3 },
    { .name = "prefill_s", .title = "prefill (s)", .kind = COLUMN_NUM, .digits = 3 },
    { .name = "prefill_tok_s", .title = "prefill (tokens/s)", .kind = COLUMN_NUM, .digits = 1 },
    { .name = "decode_s", .title = "decode (s)", .kind = COLUMN_NUM, .digits = 3 },
    { .name = "decode_tok_s", .title = "decode (tokens/s)", .kind = COLUMN_NUM, .digits = 1 },
    { .name = "random_weights", .title = "random weights", .kind = COLUMN_BOOL },
    { .name = "answers_unverified", .kind = COLUMN_BOOL },
};

static int generation_print(struct generation *x, const struct cli_args *a)
{
    double prefill_rate = x->prefill_s > 0 ? (double)x->prompt.n / x->prefill_s : NAN;
    /* The prefill produces the first token, decoding the others. */
    double decode_rate = x->made > 1 && x->decode_s > 0 ? (x->made - 1) / x->decode_s : NAN;
    const bool random = model_shape(x->model)->random_weights,
               unverified = model_shape(x->model)->unknown > 0;
    if (x->stream) {
        generation_write(x, "", 0, true);
        putchar('\n');
        fflush(stdout);
        cli_note(x->g,
                 "load %.3f s; prefill %lld tokens %.1f tok/s; decode %d tokens %.1f tok/s; stopped: %s",
                 x->load_s, (long long)x->prompt.n, prefill_rate, x->made, decode_rate, x->stopped);
        if (random) cli_note(x->g, "%s", RANDOM_WEIGHTS);
        if (unverified) cli_note(x->g, "%s", ANSWERS_UNVERIFIED);
        return EXIT_DONE;
    }
    struct table t;
    table_init(&t, "qdyno.run/1", COLUMNS, COUNT_OF(COLUMNS));
    t.record = true;
    json_t *row = table_row(&t);
    json_put_str(row, "text", str_text(&x->text));
    json_put_str(row, "stopped", x->stopped);
    json_put_int(row, "prompt_tokens", x->prompt.n);
    json_put_int(row, "gen_tokens", x->made);
    json_put_num(row, "load_s", x->load_s);
    json_put_num(row, "prefill_s", x->prefill_s);
    json_put_num(row, "prefill_tok_s", prefill_rate);
    json_put_num(row, "decode_s", x->decode_s);
    json_put_num(row, "decode_tok_s", decode_rate);
    json_put_bool(row, "random_weights", random);
    json_put_bool(row, "answers_unverified", unverified);
    int status = cli_print(x->g, a, &t, EXIT_DONE);
    table_done(&t);
    return status;
}

/* Sends the timings to the collector. The text is already printed, so a failure changes only the exit status.
 * Returns that status. */
static int collector_send(struct generation *x, const struct cli_args *a, const struct err *failed,
                          int status)
{
    char line[CONFIG_LINE] = "";
    struct err why = { 0 };
    struct machine m;
    struct trace_sent sent = { 0 };
    const struct trace_target to = { .base = args_text(a, "--otlp", NULL) };
    struct trace_generation *t = &x->trace;
    t->model = x->model ? model_shape(x->model)->name : "";
    t->config = x->model ? config_line(model_config(x->model), line, sizeof line) : "";
    t->input_tokens = x->prompt.n;
    t->output_tokens = x->made;
    /* finish reasons of the OpenTelemetry conventions; an interruption has none */
    const bool ended = x->stopped && !strcmp(x->stopped, "eos"),
               interrupted = !x->stopped || !strcmp(x->stopped, "interrupted");
    t->finish = ended ? "stop" : interrupted ? "" : "length";
    t->error = failed->message;
    enum err_code rc = machine_detect(&m, "", &why);
    if (!rc) rc = trace_generation_send(t, &m, &to, &sent, &why);
    if (*sent.warning) log_write(&x->g->log, LOG_WARN, "the collector reports: %s", sent.warning);
    if (!rc) return status;
    const int unsent = cli_fail(a, &why);
    return status ? status : unsent;
}

int command_run(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct generation x = { .g = g,
                            .wanted = (int)args_int(a, "-n", 128),
                            .stream = g->output == OUTPUT_MD,
                            .filter = isatty(STDOUT_FILENO) && !args_has(a, "--raw"),
                            .ignore_eos = args_has(a, "--ignore-eos") };
    char *text = NULL;
    size_t n = 0;
    enum err_code rc = cli_text(&text, &n, a, &why);
    if (!rc) rc = generation_open_model(&x, a, text, n, &why);
    if (!rc) rc = generation_open_sampler(&x, a, &why);
    if (!rc) rc = generation_prefill(&x, &why);
    if (!rc) rc = generation_decode(&x, &why);
    int status = rc ? cli_fail(a, &why) : generation_print(&x, a);
    if (!rc && cli_is_interrupted(g)) status = EXIT_INTERRUPTED;
    if (args_has(a, "--otlp")) status = collector_send(&x, a, &why, status);
    sampler_close(x.sampler);
    model_close(x.model);
    token_list_free(&x.prompt);
    str_free(&x.text);
    str_free(&x.held);
    free(text);
    return status;
}
