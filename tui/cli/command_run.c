/* qdyno run: generates text, or converses (--chat). The text goes to stdout token by token; timings go to
 * stderr. */
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor/outcome/outcome.h"
#include "advisor/run/run.h"
#include "engine/chat/chat.h"
#include "engine/gguf/gguf.h"
#include "engine/import/import.h"
#include "engine/model/model.h"
#include "tui/cli/commands.h"

/* clang-format off */
const struct cli_flag FLAGS_RUN[] = {
    FLAG_MODEL_ROW,
    { .name = "-p", .alias = "--prompt", .value = "TEXT", .help = "text to continue" },
    { .name = "-f", .alias = "--file", .value = "FILE",
      .help = "read the prompt from a file; - is standard input" },
    { .name = "-n", .alias = "--n-predict", .value = "N", .kind = FLAG_INT, .max = 1 << 24,
      .help = "tokens to generate; default 128, with --chat 1024 an answer" },
    { .name = "--chat",
      .help = "the text is a message: the model's chat template turns it into a prompt; without -p and -f, read messages from standard input, one a line" },
    { .name = "--system", .needs = "--chat", .value = "TEXT", .help = "with --chat: the system message" },
    { .name = "--template", .needs = "--chat", .value = "NAME|FILE", .help = "with --chat: a chat template instead of the model's: built in (see `qdyno help template`), or a Jinja file" },
    { .name = "--tools", .needs = "--chat", .value = "FILE", .help = "with --chat: tools to offer, a JSON list as templates expect it" },
    { .name = "--chat-template-kwargs", .needs = "--chat", .value = "JSON",
      .help = "with --chat: variables for the template, e.g. '{\"enable_thinking\": false}'" },
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
    { .name = "--ignore-eos", .help = "do not stop at tokens that end a text or a turn" },
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
    struct str text;   /* everything generated */
    int64_t prefilled; /* tokens of the last prefill */
    int wanted, made;
    bool stream, ignore_eos;
    bool filter;         /* stdout is a terminal */
    struct str held;     /* with `filter`: bytes of an unfinished character */
    const char *stopped; /* "length" "eos" "context" "interrupted" */
    double load_s, prefill_s, decode_s;
    struct trace_generation trace; /* for --otlp */
    struct token_list cached;      /* what the KV cache contains */
    struct {                       /* with --chat */
        bool on, interactive;
        const char *template_file, *system;
        struct chat *chat;
        json_t *messages, *tools, *extra;
        struct str input; /* read from standard input, not yet used */
    } chat;
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

/* ---------------------------------------------------------------- the prompt */

/* The ids of the prompt: the text, or the conversation as the template writes it. */
static enum err_code generation_encode(struct generation *x, const struct gguf *file,
                                       const struct tokenizer *k, const char *text, size_t n, struct err *why)
{
    x->prompt.n = 0;
    if (!x->chat.on)
        return tokenizer_encode(k, text, n, TOKENIZE_ADD_BOS | TOKENIZE_SPECIAL, &x->prompt, why);
    const struct chat_request r = { .messages = x->chat.messages,
                                    .tools = x->chat.tools,
                                    .extra = x->chat.extra,
                                    .add_generation_prompt = true,
                                    .now = time(NULL) };
    struct chat *c = x->chat.chat;
    enum err_code rc = c ? ERR_OK : chat_open(&c, file, k, x->chat.template_file, why);
    if (!rc) rc = chat_encode(c, &r, &x->prompt, why);
    if (!x->chat.chat) chat_close(c);
    return rc;
}

static enum err_code generation_open_model(struct generation *x, const struct cli_args *a, const char *text,
                                           size_t n, struct err *why)
{
    struct config c;
    struct gguf *file = NULL;
    struct tokenizer *k = NULL;
    char *path = NULL, advice[CHAT_ADVICE];
    enum err_code rc = cli_config(&c, a, args_text(a, "-C", NULL), why);
    if (!rc) rc = cli_applied_config(&c, x->g, a, why);
    if (!rc) rc = cli_config_model(&path, a, &c, why);
    /* The length of the prompt determines the context to allocate. */
    if (!rc) rc = model_file_open(&file, path, why);
    if (!rc) rc = tokenizer_open(&k, file, why);
    if (!rc && x->chat.on && !x->chat.template_file && !chat_has_template(file))
        rc = err_set(why, ERR_USAGE,
                     "--chat: '%s' has no chat template (tokenizer.chat_template). Leave --chat out, or %s",
                     path, chat_template_advice(k, advice));
    if (!rc && !x->chat.interactive) rc = generation_encode(x, file, k, text, n, why);
    if (!rc && !x->prompt.n && !x->chat.interactive)
        rc = err_set(why, ERR_USAGE, "the prompt is empty: the model needs at least one token");
    tokenizer_close(k);
    gguf_close(file);
    if (!rc) {
        int64_t given = config_int(&c, KNOB_CTX), need = x->prompt.n + x->wanted + 1;
        x->trace.load.from_ns = clock_ns();
        rc = cli_model_open(&x->model, x->g, path, &c, given || x->chat.interactive ? 0 : (int)need, why);
        if (!rc && model_plan(x->model)->gpu_layers)
            rc = model_warm(x->model, why); /* compiles the OpenCL kernels now, not during prefill */
        x->trace.load.to_ns = clock_ns();
        x->load_s = seconds_of(x->trace.load);
        if (!rc) model_quantized(x->model, &x->trace.quantize.from_ns, &x->trace.quantize.to_ns);
    }
    if (!rc && x->prompt.n >= model_ctx(x->model))
        rc = err_set(why, ERR_USAGE, "the prompt has %lld tokens, but the context only %d: raise -c",
                     (long long)x->prompt.n, model_ctx(x->model));
    if (!rc && x->chat.on)
        rc = chat_open(&x->chat.chat, model_gguf(x->model), model_tokenizer(x->model), x->chat.template_file,
                       why);
    free(path);
    return rc;
}

static enum err_code generation_forward(struct generation *x, const struct batch_row *rows, int n,
                                        struct err *why)
{
    return model_forward_best(x->model, rows, n, x->greedy ? &x->best : NULL, why);
}

/* How many ids of the prompt the cache has already, from the beginning. The last one must run for its logits.
 */
static int64_t generation_reuse(struct generation *x)
{
    int64_t same = 0, most = MIN(x->prompt.n - 1, x->cached.n);
    while (same < most && x->prompt.ids[same] == x->cached.ids[same]) same++;
    if (same < x->cached.n && !model_truncate(x->model, 0, (int)same)) model_truncate(x->model, 0, 0);
    return x->cached.n = model_length(x->model, 0);
}

static enum err_code generation_prefill(struct generation *x, struct err *why)
{
    const int64_t from = generation_reuse(x), n = x->prompt.n - from;
    struct batch_row *rows = calloc((size_t)n, sizeof *rows);
    if (!rows)
        return err_set(why, ERR_NOMEM, "out of memory for a prompt of %lld tokens", (long long)x->prompt.n);
    enum err_code rc = ERR_OK;
    for (int64_t i = 0; i < n && !rc; i++) {
        const int32_t id = x->prompt.ids[from + i];
        rows[i] = (struct batch_row){ .token = id, .pos = (int32_t)(from + i), .logits = i + 1 == n };
        sampler_accept(x->sampler, id);
        rc = token_list_push(&x->cached, id, why);
    }
    /* In slices of a batch, so that Ctrl-C takes effect within a long prompt. */
    int64_t start = clock_ns(), slice = config_int(model_config(x->model), KNOB_BATCH);
    for (int64_t at = 0; at < n && !rc; at += slice) {
        rc = generation_forward(x, rows + at, (int)MIN(slice, n - at), why);
        if (!rc && cli_is_interrupted(x->g)) rc = err_set(why, ERR_CANCELLED, "interrupted during prefill");
    }
    x->trace.prefill = (struct trace_time){ start, clock_ns() };
    x->prefill_s = seconds_of(x->trace.prefill);
    x->prefilled = n;
    free(rows);
    return rc;
}

/* Prints n bytes of the model's text. On a terminal (x->filter) a model must not be able to move the cursor
 * or to rewrite what is on the screen, so a control character is printed as an escape such as \x1b. The bytes
 * of an incomplete UTF-8 character are held back until its last byte arrives. last: no more bytes follow, so
 * held bytes are printed, too. */
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
        if (!x->ignore_eos && tokenizer_ends(model_tokenizer(x->model), id)) {
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
        rc = token_list_push(&x->cached, id, why);
        if (!rc) rc = generation_forward(x, &row, 1, why);
    }
    x->trace.decode = (struct trace_time){ start, clock_ns() };
    x->decode_s = seconds_of(x->trace.decode);
    return rc;
}

static const struct column COLUMNS[] = {
    COL("text", "text"),
    COL("stopped", "stopped by"),
    COL("prompt_tokens", "prompt tokens", .kind = COLUMN_INT),
    COL("gen_tokens", "generated tokens", .kind = COLUMN_INT),
    { .metric = &METRICS[METRIC_LOAD_TIME], .title = "load (s)", .digits = 3 },
    COL("prefill_s", "prefill (s)", .kind = COLUMN_NUM, .digits = 3),
    { .metric = &METRICS[METRIC_PREFILL_RATE], .title = "prefill (tokens/s)", .digits = 1 },
    COL("decode_s", "decode (s)", .kind = COLUMN_NUM, .digits = 3),
    { .metric = &METRICS[METRIC_DECODE_RATE], .title = "decode (tokens/s)", .digits = 1 },
    COL("random_weights", "random weights", .kind = COLUMN_BOOL),
    KEY("answers_unverified", .kind = COLUMN_BOOL),
};

DOCUMENT(RUN, "qdyno.run/1", COLUMNS, .record = true);

/* The end of a text that was printed while it was made, and its timings. */
static void generation_finish_text(struct generation *x, double prefill_rate, double decode_rate)
{
    generation_write(x, "", 0, true);
    putchar('\n');
    fflush(stdout);
    cli_note(x->g, "load %.3f s; prefill %lld token%s %.1f tok/s; decode %d token%s %.1f tok/s; stopped: %s",
             x->load_s, (long long)x->prefilled, str_plural(x->prefilled), prefill_rate, x->made,
             str_plural(x->made), decode_rate, x->stopped);
    if (model_shape(x->model)->random_weights) cli_note(x->g, "%s", RANDOM_WEIGHTS);
    if (model_shape(x->model)->unknown > 0) cli_note(x->g, "%s", ANSWERS_UNVERIFIED);
}

static int generation_print(struct generation *x, const struct cli_args *a)
{
    double prefill_rate = x->prefill_s > 0 ? (double)x->prefilled / x->prefill_s : NAN;
    /* The prefill produces the first token, decoding the others. */
    double decode_rate = x->made > 1 && x->decode_s > 0 ? (x->made - 1) / x->decode_s : NAN;
    if (x->stream) {
        generation_finish_text(x, prefill_rate, decode_rate);
        return EXIT_DONE;
    }
    struct table t;
    json_t *row = table_record(&t, &DOCUMENT_RUN);
    json_put_str(row, "text", str_text(&x->text));
    json_put_str(row, "stopped", x->stopped);
    json_put_int(row, "prompt_tokens", x->prompt.n);
    json_put_int(row, "gen_tokens", x->made);
    row_put_metric(row, METRIC_LOAD_TIME, x->load_s);
    json_put_num(row, "prefill_s", x->prefill_s);
    row_put_metric(row, METRIC_PREFILL_RATE, prefill_rate);
    json_put_num(row, "decode_s", x->decode_s);
    row_put_metric(row, METRIC_DECODE_RATE, decode_rate);
    cli_put_cautions(row, model_shape(x->model)->random_weights, model_shape(x->model)->unknown > 0);
    return cli_finish(x->g, a, &t, EXIT_DONE);
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

/* ---------------------------------------------------------------- --chat */

static bool add_message(struct generation *x, const char *role, const char *content)
{
    json_t *m = json_object();
    json_put_str(m, "role", role);
    json_put_str(m, "content", content);
    return !json_array_append_new(x->chat.messages, m);
}

static enum err_code read_json(json_t **out, const char *flag, const char *text, size_t n, bool list,
                               struct err *why)
{
    enum err_code rc = json_parse_exact(out, text, n, 1, why);
    if (!rc && list != json_is_array(*out))
        rc = err_set(why, ERR_FORMAT, "expected %s",
                     list ? "a JSON list of tools" : "a JSON object of variables");
    if (rc) err_prefix(why, "%s", flag);
    return rc;
}

static enum err_code chat_read_tools(struct generation *x, const char *path, struct err *why)
{
    char *text;
    size_t n;
    enum err_code rc = file_read(&text, &n, path, 16 << 20, why);
    if (rc) return rc;
    rc = read_json(&x->chat.tools, path, text, n, true, why);
    free(text);
    return rc;
}

static enum err_code chat_start(struct generation *x)
{
    const char *system = x->chat.system;
    json_array_clear(x->chat.messages);
    return !system || add_message(x, "system", system) ? ERR_OK : ERR_NOMEM;
}

/* Reads the flags of --chat. text: the first message, NULL where messages come from standard input. */
static enum err_code chat_read_flags(struct generation *x, const struct cli_args *a, const char *text,
                                     size_t n, struct err *why)
{
    const char *extra = args_text(a, "--chat-template-kwargs", NULL), *tools = args_text(a, "--tools", NULL);
    if (!x->chat.on) return ERR_OK;
    if (text && strlen(text) != n)
        return err_set(why, ERR_USAGE, "the message contains a NUL byte after %zu bytes: expected text",
                       strlen(text));
    if (x->chat.interactive && (!x->stream || args_has(a, "--otlp")))
        return err_set(why, ERR_USAGE, "%s needs one message: give it with -p or -f",
                       x->stream ? "--chat with --otlp" : "--chat with -o");
    x->chat.template_file = args_text(a, "--template", NULL);
    x->chat.system = args_text(a, "--system", NULL);
    x->chat.messages = json_array();
    enum err_code rc = ERR_OK;
    if (extra && (rc = read_json(&x->chat.extra, "--chat-template-kwargs", extra, strlen(extra), false, why)))
        return rc == ERR_FORMAT ? why->code = ERR_USAGE : rc;
    if (tools && (rc = chat_read_tools(x, tools, why))) return rc;
    if (chat_start(x) || (text && !add_message(x, "user", text)))
        return err_set(why, ERR_NOMEM, "out of memory for the conversation");
    return ERR_OK;
}

/* The next line of standard input, without its end. False: there is none, or Ctrl-C. */
static bool chat_read_line(struct generation *x, struct str *line)
{
    struct str *in = &x->chat.input;
    char bytes[4096];
    ssize_t got = 1;
    for (;;) {
        const char *end = in->len ? memchr(in->data, '\n', in->len) : NULL;
        const size_t n = end ? (size_t)(end - in->data) : in->len;
        if (end || (!got && n)) {
            str_clear(line);
            str_append_n(line, in->data, n);
            in->len -= n + (end != NULL);
            if (in->len) memmove(in->data, in->data + n + 1, in->len);
            return !line->failed && !in->failed;
        }
        if (!got || cli_is_interrupted(x->g)) return false;
        struct pollfd ready = { .fd = STDIN_FILENO, .events = POLLIN };
        if (poll(&ready, 1, 200) <= 0) continue; /* wakes up to see Ctrl-C */
        got = read(STDIN_FILENO, bytes, sizeof bytes);
        if (got < 0) got = 0;
        str_append_n(in, bytes, (size_t)got);
    }
}

/* One message and its answer. A conversation that is too long loses the message and goes on. */
static enum err_code chat_turn(struct generation *x, const struct cli_args *a, const char *text,
                               struct err *why)
{
    if (!add_message(x, "user", text)) return err_set(why, ERR_NOMEM, "out of memory for the conversation");
    enum err_code rc = generation_encode(x, model_gguf(x->model), model_tokenizer(x->model), NULL, 0, why);
    if (rc) return rc;
    if (x->prompt.n >= model_ctx(x->model)) {
        json_array_remove(x->chat.messages, json_array_size(x->chat.messages) - 1);
        cli_note(
            x->g,
            "with this message the conversation has %lld tokens, but the context holds only %d; the message was not "
            "sent: raise -c, or type /clear to start again",
            (long long)x->prompt.n, model_ctx(x->model));
        return ERR_OK;
    }
    x->made = 0;
    str_clear(&x->text);
    rc = generation_prefill(x, why);
    if (!rc) rc = generation_decode(x, why);
    if (rc) return rc;
    generation_print(x, a);
    x->load_s = 0; /* of the first answer only */
    return add_message(x, "assistant", str_text(&x->text))
               ? ERR_OK
               : err_set(why, ERR_NOMEM, "out of memory for the conversation");
}

static enum err_code chat_converse(struct generation *x, const struct cli_args *a, struct err *why)
{
    const bool person = isatty(STDIN_FILENO);
    struct str line = { 0 };
    enum err_code rc = ERR_OK;
    if (person) cli_note(x->g, "type a message and press Enter; /clear starts again; Ctrl-D ends");
    while (!rc) {
        if (person) {
            fputs("> ", stderr);
            fflush(stderr);
        }
        if (!chat_read_line(x, &line)) break;
        const char *text = str_text(&line);
        if (!strcmp(text, "/clear"))
            rc = chat_start(x);
        else if (*text)
            rc = chat_turn(x, a, text, why);
        if (cli_is_interrupted(x->g)) break;
    }
    if (person) fputc('\n', stderr);
    str_free(&line);
    return rc;
}

/* ---------------------------------------------------------------- the command */

static void generation_done(struct generation *x)
{
    chat_close(x->chat.chat);
    json_decref(x->chat.messages);
    json_decref(x->chat.tools);
    json_decref(x->chat.extra);
    str_free(&x->chat.input);
    sampler_close(x->sampler);
    model_close(x->model);
    token_list_free(&x->prompt);
    token_list_free(&x->cached);
    str_free(&x->text);
    str_free(&x->held);
}

int command_run(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    const bool chat = args_has(a, "--chat");
    struct generation x = { .g = g,
                            .wanted = (int)args_int(a, "-n", chat ? 1024 : 128),
                            .stream = g->output == OUTPUT_MD,
                            .filter = isatty(STDOUT_FILENO) && !args_has(a, "--raw"),
                            .ignore_eos = args_has(a, "--ignore-eos"),
                            .chat.on = chat,
                            .chat.interactive = chat && !args_has(a, "-p") && !args_has(a, "-f") };
    char *text = NULL;
    size_t n = 0;
    int status = EXIT_DONE;
    enum err_code rc = x.chat.interactive ? ERR_OK : cli_text(&text, &n, a, &why);
    if (!rc) rc = chat_read_flags(&x, a, text, n, &why);
    if (!rc) rc = generation_open_model(&x, a, text, n, &why);
    if (!rc) rc = generation_open_sampler(&x, a, &why);
    if (!rc && x.chat.interactive)
        rc = chat_converse(&x, a, &why);
    else {
        if (!rc) rc = generation_prefill(&x, &why);
        if (!rc) rc = generation_decode(&x, &why);
        if (!rc) status = generation_print(&x, a);
    }
    if (rc) status = cli_fail(a, &why);
    if (!rc && cli_is_interrupted(g)) status = EXIT_INTERRUPTED;
    if (args_has(a, "--otlp")) status = collector_send(&x, a, &why, status);
    generation_done(&x);
    free(text);
    return status;
}
