/* advisor/run/arm_llama_tool.c - arms that are command-line tools of llama.cpp, run once for each phase of a
 * cell: llama-bench for pp and tg, llama-perplexity for eval:FILE.
 *
 * Their figures are by their own clocks, which do not include loading. llama-bench feeds random tokens and
 * samples none. */
#include "advisor/run/arm_kind.h"
#include "advisor/run/foreign.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { POLL_NS = 20000000, USAGE_NS = 100000000, TEXT_LIMIT = 1 << 30 };

struct llama_tool {
    enum engine_kind engine;
    struct foreign_model model;
    struct words command; /* program, model and settings; each run adds its own */
    struct foreign_process process;
    struct foreign_usage used; /* by the runs of a cell */
    double silence_s;
};

/* Adds up what the processes of a cell used: it is read while they run. */
static void use(struct llama_tool *t, struct foreign_usage *last)
{
    const struct foreign_usage now = foreign_usage(t->process.pid);
    if (isnan(now.cpu_s) || isnan(now.rss_bytes)) return; /* it has just ended */
    *last = now;
}

/* Runs the tool to its end. Its output is in t->process.said until the next run. */
static enum err_code tool_run(struct llama_tool *t, const char *const *more, arm_event_fn *event, void *ctx,
                              struct err *why)
{
    const char *name = ENGINE_NAMES[t->engine];
    struct words all = { 0 };
    struct foreign_usage last = { NAN, NAN, NAN, NAN, NAN };
    int64_t used_ns = 0, told_ns = clock_ns();
    foreign_end(&t->process);
    t->process = (struct foreign_process){ .watchdog = { .least_s = t->silence_s } };
    all.failed = t->command.failed;
    for (int i = 0; i < t->command.n; i++) words_add(&all, t->command.word[i]);
    for (; *more; more++) words_add(&all, *more);
    enum err_code rc = foreign_start(&t->process, &all, NULL, why);
    words_free(&all);
    watchdog_begin(&t->process.watchdog, name);
    while (!rc && foreign_lives(&t->process)) {
        const int64_t now = clock_ns();
        if (now - used_ns > USAGE_NS) {
            use(t, &last);
            used_ns = now;
        }
        rc = watchdog_check(&t->process.watchdog, t->process.pid, why);
        if (!rc && event && now - told_ns > USAGE_NS) {
            told_ns = now;
            if (!event(ctx, NULL)) rc = err_set(why, ERR_CANCELLED, "cancelled");
            watchdog_skip(&t->process.watchdog);
        }
        if (!rc) clock_sleep_ns(POLL_NS);
    }
    t->used.cpu_s = sum_known(t->used.cpu_s, last.cpu_s);
    t->used.major_faults = sum_known(t->used.major_faults, last.major_faults);
    t->used.minor_faults = sum_known(t->used.minor_faults, last.minor_faults);
    t->used.peak_bytes = fmax(t->used.peak_bytes, last.peak_bytes); /* ignores NAN */
    if (rc) return rc;
    if (!WIFEXITED(t->process.status) || WEXITSTATUS(t->process.status))
        return foreign_died(&t->process, name, why);
    return ERR_OK;
}

/* ---------------------------------------------------------------- llama-bench */

/* The result in the output: the line that is a JSON object with the key "samples_ns". ERR_USAGE: there are
 * several, because an argument has several values. New reference. */
static enum err_code bench_result(json_t **out, const struct llama_tool *t, struct err *why)
{
    const char *text = str_text(&t->process.said.text);
    int tests = 0;
    *out = NULL;
    while (*text) {
        const size_t n = strcspn(text, "\n");
        json_t *line = NULL;
        if (*text == '{' && !json_parse(&line, text, n, NULL) &&
            json_array_size(json_object_get(line, "samples_ns"))) {
            tests++;
            if (!*out) *out = json_incref(line);
        }
        json_decref(line);
        text += n + (text[n] == '\n');
    }
    if (tests == 1) return ERR_OK;
    json_decref(*out);
    *out = NULL;
    if (tests)
        return err_set(why, ERR_USAGE,
                       "llama-bench ran %d tests instead of one: give each argument one value (args=)",
                       tests);
    return err_set(why, ERR_FORMAT,
                   "llama-bench printed no result: expected a JSON line with samples_ns (-o jsonl)");
}

/* One test of llama-bench: prompt or generated tokens after `depth` tokens. */
struct bench_test {
    int prompt, gen, depth;
};
/* *seconds: of that test; *info: new reference, NULL not wanted. */
static enum err_code bench_test(struct llama_tool *t, struct bench_test what, double *seconds, json_t **info,
                                arm_event_fn *event, void *ctx, struct err *why)
{
    char p[16], n[16], d[16];
    json_t *result = NULL;
    snprintf(p, sizeof p, "%d", what.prompt);
    snprintf(n, sizeof n, "%d", what.gen);
    snprintf(d, sizeof d, "%d", what.depth);
    const char *const args[] = { "-p", p, "-n", n, "-d", d, "-r", "1", "-o", "jsonl", NULL };
    enum err_code rc = tool_run(t, args, event, ctx, why);
    if (!rc) rc = bench_result(&result, t, why);
    if (rc) return rc;
    if (json_get_int(result, "n_prompt", -1) != what.prompt ||
        json_get_int(result, "n_gen", -1) != what.gen || json_get_int(result, "n_depth", 0) != what.depth)
        rc = err_set(why, ERR_USAGE,
                     "llama-bench ran %lld prompt and %lld generated tokens at depth %lld instead of %d, %d "
                     "and %d",
                     (long long)json_get_int(result, "n_prompt", -1),
                     (long long)json_get_int(result, "n_gen", -1),
                     (long long)json_get_int(result, "n_depth", 0), what.prompt, what.gen, what.depth);
    *seconds = json_number_value(json_array_get(json_object_get(result, "samples_ns"), 0)) * 1e-9;
    if (!rc && !(*seconds > 0)) rc = err_set(why, ERR_FORMAT, "llama-bench measured no time");
    if (info && !rc) *info = json_incref(result);
    json_decref(result);
    return rc;
}

static enum err_code bench_cell(struct llama_tool *t, const struct workload *w, json_t *o,
                                arm_event_fn *event, void *ctx, struct err *why)
{
    double prefill_s = NAN, decode_s = NAN;
    enum err_code rc = ERR_OK;
    if (w->prompt)
        rc = bench_test(t, (struct bench_test){ .prompt = w->prompt, .depth = w->depth }, &prefill_s, NULL,
                        event, ctx, why);
    if (!rc && w->gen)
        rc = bench_test(t, (struct bench_test){ .gen = w->gen, .depth = w->depth + w->prompt }, &decode_s,
                        NULL, event, ctx, why);
    json_put_num(o, "prefill_s", prefill_s);
    json_put_num(o, "decode_s", decode_s);
    json_put_num(o, "server_prefill_s", prefill_s); /* its only clock is its own */
    json_put_num(o, "server_decode_s", decode_s);
    json_put_int(o, "prompt_tokens", w->prompt);
    json_put_int(o, "gen_tokens", w->gen);
    return rc;
}

static enum err_code bench_describe(struct llama_tool *t, json_t *about, arm_event_fn *event, void *ctx,
                                    struct err *why)
{
    json_t *info = NULL;
    double ignored;
    char build[96];
    const enum err_code rc = bench_test(t, (struct bench_test){ .prompt = 1 }, &ignored, &info, event, ctx,
                                        why);
    if (rc) return rc;
    snprintf(build, sizeof build, "b%lld-%s", (long long)json_get_int(info, "build_number", 0),
             json_get_str(info, "build_commit", "unknown"));
    json_put_str(json_object_get(about, "engine"), "build", build);
    if (json_get_int(info, "n_threads", 0) > 0)
        json_put_int(about, "threads", json_get_int(info, "n_threads", 0));
    foreign_note(about, "llama-bench times forward passes on random tokens by its own clock: no sampling, no "
                        "answer, no time between tokens");
    json_decref(info);
    return ERR_OK;
}

/* ---------------------------------------------------------------- llama-perplexity */

static enum err_code perplexity_cell(struct llama_tool *t, const struct workload *w, json_t *o,
                                     arm_event_fn *event, void *ctx, struct err *why)
{
    static const char KEY[] = "Final estimate: PPL = ";
    char size[16], hash[17], *text = NULL;
    size_t n;
    double ppl, se;
    snprintf(size, sizeof size, "%d", w->eval_ctx);
    const char *const args[] = { "-f", w->eval_file, "-c", size, NULL };
    enum err_code rc = file_read(&text, &n, w->eval_file, TEXT_LIMIT, why);
    if (!rc) rc = prompt_hash_eval(hash, w->eval_ctx, text, n, why);
    free(text);
    if (!rc) rc = tool_run(t, args, event, ctx, why);
    if (rc) return rc;
    const char *at = strstr(str_text(&t->process.said.text), KEY);
    if (!at || sscanf(at + sizeof KEY - 1, "%lf +/- %lf", &ppl, &se) != 2)
        return err_set(
            why, ERR_FORMAT,
            "llama-perplexity printed no \"%sX +/- Y\": the text may be too short for two windows of "
            "%d tokens",
            KEY, w->eval_ctx);
    if (!(ppl > 0) || !isfinite(ppl))
        return err_set(why, ERR_FORMAT, "llama-perplexity computed a perplexity that is no number");
    json_put_num(o, "perplexity", ppl);
    json_put_num(o, "nll", log(ppl));
    json_put_num(o, "nll_se", se / ppl);
    json_put_str(o, "work_hash", hash);
    return ERR_OK;
}

/* ---------------------------------------------------------------- the kind */

static enum err_code command_make(struct llama_tool *t, const struct config *c, const char *model,
                                  struct err *why)
{
    static const char *const OWN[] = {
        FOREIGN_MODEL_FLAGS, "-p", "--n-prompt", "-n",  "--n-gen",      "-pg", "-d",     "--n-depth", "-r",
        "--repetitions",     "-o", "--output",   "-oe", "--output-err", "-f",  "--file", NULL
    };
    char *program = NULL;
    enum err_code rc = foreign_flags_check(c, OWN, why);
    if (!rc) rc = foreign_program(&program, c, why);
    if (rc) return rc;
    words_add(&t->command, program);
    words_add(&t->command, "-m");
    words_add(&t->command, model);
    free(program);
    return foreign_flags(&t->command, c, why);
}

static enum err_code tool_open(void **state, json_t **description, const struct arm_spec *spec,
                               arm_event_fn *event, void *ctx, struct err *why)
{
    struct llama_tool *t = calloc(1, sizeof *t);
    if (!t) return err_set(why, ERR_NOMEM, "no memory for an arm");
    *state = t;
    t->engine = config_engine(spec->config);
    t->silence_s = spec->silence_s;
    const char *model = config_model_file(spec->config, spec->model);
    char hash[HASH_HEX];
    struct str line = { 0 };
    enum err_code rc = foreign_model_open(&t->model, model, why);
    if (!rc) rc = command_make(t, spec->config, model, why);
    if (!rc && t->command.failed) rc = err_set(why, ERR_NOMEM, "out of memory for a command");
    if (!rc) rc = hash_file(t->command.word[0], hash, why);
    for (int i = 0; i < t->command.n; i++) str_printf(&line, "%s%s", i ? " " : "", t->command.word[i]);
    json_t *about = rc ? NULL : foreign_describe(&t->model, spec->config, model, NULL, str_text(&line));
    if (!rc) json_put_str(json_object_get(about, "engine"), "binary_sha256", hash);
    if (!rc && t->engine == ENGINE_LLAMA_BENCH) rc = bench_describe(t, about, event, ctx, why);
    str_free(&line);
    if (rc)
        json_decref(about);
    else
        *description = about;
    return rc;
}

static enum err_code tool_request(void *state, json_t *request, json_t **answer, arm_event_fn *event,
                                  void *ctx, struct err *why)
{
    struct llama_tool *t = state;
    struct workload w;
    char line[WORKLOAD_LINE];
    enum err_code rc = foreign_workload(&w, t->engine, request, why);
    if (rc) return rc;
    t->used = (struct foreign_usage){ NAN, NAN, NAN, NAN, NAN };
    json_t *o = json_object();
    json_put_str(o, "model", t->model.name);
    json_put_str(o, "workload", workload_line(&w, line, sizeof line));
    rc = t->engine == ENGINE_LLAMA_BENCH ? bench_cell(t, &w, o, event, ctx, why)
                                         : perplexity_cell(t, &w, o, event, ctx, why);
    json_put_num(o, "cpu_s", t->used.cpu_s);
    json_put_num(o, "peak_rss_bytes", t->used.peak_bytes);
    json_put_num(o, "minor_faults", t->used.minor_faults);
    json_put_bool(o, "untimed_work", true); /* each run loads the model */
    if (rc) {
        json_decref(o);
        return rc;
    }
    *answer = o;
    return ERR_OK;
}

static int tool_pid(const void *state)
{
    return (int)((const struct llama_tool *)state)->process.pid;
}

static void tool_close(void *state)
{
    struct llama_tool *t = state;
    foreign_end(&t->process);
    foreign_model_close(&t->model);
    words_free(&t->command);
    free(t);
}

const struct arm_kind ARM_LLAMA_TOOL = {
    .name = "llama-tool",
    .open = tool_open,
    .request = tool_request,
    .pid = tool_pid,
    .close = tool_close,
};
