/* advisor/run/foreign_reply.c - what another engine's server answers, and whether it can be believed
 * (foreign.h).
 *
 * Two dialects of server-sent events are read: that of llama.cpp's /completion, and OpenAI's, also with the
 * "timings" that llama.cpp and qdyno add. */
#include "advisor/run/foreign.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/stats/stats.h"

enum { LINE_MOST = 64 << 20 };

void reply_begin(struct reply *r)
{
    *r = (struct reply){ .prompt_tokens = NAN,
                         .cached_tokens = NAN,
                         .gen_tokens = NAN,
                         .server_prefill_s = NAN,
                         .server_decode_s = NAN,
                         .load_s = NAN,
                         .counted = NAN,
                         .first_count = NAN,
                         .each_one = true,
                         .sent_ns = clock_ns() };
}

void reply_done(struct reply *r)
{
    free(r->gap_s);
    free(r->chunk_tokens);
    json_decref(r->ids);
    str_free(&r->line);
    str_free(&r->text);
    r->gap_s = NULL;
    r->chunk_tokens = NULL;
    r->ids = NULL;
}

/* ---------------------------------------------------------------- one event */

static void take_if_number(double *to, const json_t *object, const char *key, double factor)
{
    const json_t *v = json_object_get(object, key);
    if (json_is_number(v)) *to = factor * json_number_value(v);
}

/* Text of an event: of llama.cpp's dialect, or of OpenAI's: a completion, or a chat, where a part may be
 * called reasoning. "": it has none. */
static const char *event_text(const json_t *o)
{
    static const char *const KEYS[] = { "content", "reasoning_content", "reasoning" };
    const json_t *choice = json_array_get(json_object_get(o, "choices"), 0);
    const json_t *delta = json_object_get(choice, "delta");
    const char *text = json_get_str(o, "content", "");
    if (!*text) text = json_get_str(choice, "text", "");
    for (size_t i = 0; !*text && i < COUNT_OF(KEYS); i++) text = json_get_str(delta, KEYS[i], "");
    return text;
}

static void take_finish(struct reply *r, const json_t *o)
{
    const json_t *choice = json_array_get(json_object_get(o, "choices"), 0);
    const char *why = json_get_str(choice, "finish_reason", json_get_str(o, "stop_type", NULL));
    if (why && *why && strcmp(why, "none")) snprintf(r->finish, sizeof r->finish, "%s", why);
    if (json_get_bool(o, "truncated", false)) r->truncated = true;
}

/* Counts and times, wherever this server puts them. */
static void take_figures(struct reply *r, const json_t *o)
{
    const json_t *usage = json_object_get(o, "usage"), *timings = json_object_get(o, "timings");
    take_if_number(&r->prompt_tokens, o, "tokens_evaluated", 1); /* llama.cpp: with those in its cache */
    take_if_number(&r->gen_tokens, o, "tokens_predicted", 1);
    take_if_number(&r->prompt_tokens, usage, "prompt_tokens", 1);
    take_if_number(&r->gen_tokens, usage, "completion_tokens", 1);
    take_if_number(&r->cached_tokens, json_object_get(usage, "prompt_tokens_details"), "cached_tokens", 1);
    take_if_number(&r->cached_tokens, timings, "cache_n", 1);
    take_if_number(&r->server_prefill_s, timings, "prompt_ms", 1e-3);
    take_if_number(&r->server_decode_s, timings, "predicted_ms", 1e-3);
    take_if_number(&r->load_s, o, "load_duration", 1e-9);
    take_if_number(&r->load_s, json_object_get(o, "stats"), "model_load_time_seconds", 1);
}

static void take_ids(struct reply *r, const json_t *o)
{
    const json_t *ids = json_object_get(o, "tokens");
    if (!json_array_size(ids)) return;
    if (!r->ids) r->ids = json_array();
    json_array_extend(r->ids, (json_t *)ids);
}

/* Room for more chunks, and as many gaps. */
static bool chunks_grow(struct reply *r)
{
    int gap_room = r->room;
    return array_room(&r->gap_s, &gap_room, r->chunks + 1, sizeof *r->gap_s) &&
           array_room(&r->chunk_tokens, &r->room, r->chunks + 1, sizeof *r->chunk_tokens);
}

/* An event with tokens arrived at `now`. `count`: all tokens so far by the server's count; NAN unknown. */
static void take_chunk(struct reply *r, int64_t now, double count)
{
    const double before = r->chunks ? r->counted : 0;
    if (isnan(count) || count - before != 1) r->each_one = false;
    if (!chunks_grow(r)) {
        r->failed = true;
        return;
    }
    if (!r->chunks) {
        r->first_ns = now;
        r->first_count = count;
    } else {
        r->gap_s[r->gaps++] = (float)((double)(now - r->last_ns) * 1e-9);
    }
    r->chunk_tokens[r->chunks] = count >= before && count - before < INT32_MAX ? (int32_t)(count - before)
                                                                               : -1;
    r->last_ns = now;
    r->counted = count;
    r->chunks++;
}

static void take_event(struct reply *r, const char *text, size_t n, int64_t now)
{
    json_t *o = NULL;
    struct err bad;
    if (n == 6 && !memcmp(text, "[DONE]", 6)) {
        r->ended = true;
        return;
    }
    if (json_parse(&o, text, n, &bad)) {
        err_set(&r->error, ERR_FORMAT, "the server sends an event that is no JSON: %.80s", bad.message);
        return;
    }
    const json_t *error = json_object_get(o, "error");
    if (error && !json_is_null(error)) {
        err_set(&r->error, ERR_USAGE, "the server ended its answer with an error: %.200s",
                json_get_str(error, "message", json_is_string(error) ? json_string_value(error) : "no text"));
    } else {
        double count = NAN;
        take_if_number(&count, o, "tokens_predicted", 1);
        take_if_number(&count, json_object_get(o, "usage"), "completion_tokens", 1);
        const char *said = event_text(o);
        const bool text_came = *said || json_array_size(json_object_get(o, "tokens"));
        if (r->keep_text) str_append(&r->text, said);
        /* a token without text of its own is a chunk, too: the server's count says so */
        const bool counted_up = count > (r->chunks ? r->counted : 0); /* false where one is unknown */
        if (text_came || counted_up) take_chunk(r, now, count);
        take_ids(r, o);
        take_figures(r, o);
        take_finish(r, o);
        if (json_get_bool(o, "stop", false)) r->ended = true;
    }
    json_decref(o);
}

bool reply_take(struct reply *r, const char *data, size_t n)
{
    const int64_t now = clock_ns();
    str_append_n(&r->line, data, n);
    size_t start = 0;
    for (const char *end; start < r->line.len && !r->failed && !r->error.code &&
                          (end = memchr(r->line.data + start, '\n', r->line.len - start));) {
        const char *line = r->line.data + start;
        size_t length = (size_t)(end - line);
        start += length + 1;
        if (length && line[length - 1] == '\r') length--;
        if (length > 5 && !memcmp(line, "data:", 5)) {
            const size_t skip = line[5] == ' ' ? 6 : 5;
            take_event(r, line + skip, length - skip, now);
        }
        /* else: an empty line, a comment (": ping"), or a field without meaning here */
    }
    if (start) {
        memmove(r->line.data, r->line.data + start, r->line.len - start);
        r->line.len -= start;
    }
    r->failed = r->failed || r->line.failed || r->text.failed || r->line.len > LINE_MOST;
    return !r->failed && !r->error.code;
}

/* ---------------------------------------------------------------- can it be believed? */

static enum err_code check_generated(const struct reply *r, const struct reply_wanted *w, struct err *why)
{
    if (isnan(r->gen_tokens))
        return err_set(
            why, ERR_USAGE,
            "the server does not say how many tokens it generated (no usage in its stream), and its "
            "%d chunks are no count of tokens",
            r->chunks);
    if ((int)r->gen_tokens == w->gen_tokens) return ERR_OK;
    return err_set(
        why, ERR_USAGE,
        "the server generated %.0f tokens instead of %d%s%s%s: arms with answers of different length "
        "cannot be compared%s",
        r->gen_tokens, w->gen_tokens, *r->finish ? " (it ended with \"" : "", r->finish,
        *r->finish ? "\")" : "",
        r->gen_tokens < w->gen_tokens ? "; it does not obey ignore_eos, or its limit is lower" : "");
}

static enum err_code check_prompt(const struct reply *r, const struct reply_wanted *w, struct err *why)
{
    if (!w->prompt_tokens) return ERR_OK;
    if (isnan(r->prompt_tokens))
        return err_set(why, ERR_USAGE,
                       "the server does not say how many tokens the prompt had (no usage in its stream)");
    const double more = r->prompt_tokens - w->prompt_tokens;
    if (more == 0) return ERR_OK;
    return err_set(why, ERR_USAGE, "the server counted %.0f prompt tokens instead of %d: %s",
                   r->prompt_tokens, w->prompt_tokens,
                   more == 1  ? "it added one, probably a BOS token of its own"
                   : more > 1 ? "it added some, probably by a chat template"
                   : w->ids   ? "it left some out"
                              : "its tokenizer reads the text differently");
}

static enum err_code check_cache(const struct reply *r, const struct reply_wanted *w, struct err *why)
{
    if (isnan(r->cached_tokens) && !w->cached_tokens) return ERR_OK; /* named in the arm's notes */
    if (r->cached_tokens == w->cached_tokens) return ERR_OK;
    if (!w->cached_tokens)
        return err_set(
            why, ERR_USAGE,
            "%.0f of the prompt's %.0f tokens came from the server's prompt cache: their time is not "
            "that of computing them. Switch its prompt cache off",
            r->cached_tokens, r->prompt_tokens);
    return err_set(why, ERR_USAGE,
                   "%.0f tokens were in the server's cache instead of the %d that the workload puts there "
                   "before timing starts",
                   isnan(r->cached_tokens) ? 0 : r->cached_tokens, w->cached_tokens);
}

/* Without running counts the tokens of the first chunk are unknown, and so are those after it, whose time is
 * measured. A few chunks less are characters that had to wait for their next token. */
static enum err_code check_chunks(const struct reply *r, const struct reply_wanted *w, struct err *why)
{
    static const double FEW = 0.01;
    if (w->gen_tokens <= 1 || r->each_one || !isnan(r->first_count) ||
        r->gen_tokens - r->chunks <= FEW * w->gen_tokens)
        return ERR_OK;
    return err_set(
        why, ERR_USAGE,
        "%.0f tokens came in %d chunk%s, and the server does not say how many the first one had: the "
        "times of the first token and between tokens are unknown",
        r->gen_tokens, r->chunks, str_plural(r->chunks));
}

enum err_code reply_check(const struct reply *r, const struct reply_wanted *w, struct err *why)
{
    if (r->error.code) {
        if (why) *why = r->error;
        return r->error.code;
    }
    if (r->failed) return err_set(why, ERR_NOMEM, "out of memory for a server's answer");
    if (!r->ended)
        return err_set(why, ERR_FORMAT, "the server's answer broke off after %d chunk%s", r->chunks,
                       str_plural(r->chunks));
    if (!r->chunks)
        return err_set(why, ERR_FORMAT,
                       "the server's answer had no tokens: expected server-sent events with text");
    enum err_code rc = check_generated(r, w, why);
    if (!rc) rc = check_prompt(r, w, why);
    if (!rc) rc = check_cache(r, w, why);
    if (!rc) rc = check_chunks(r, w, why);
    if (!rc && r->truncated)
        rc = err_set(why, ERR_USAGE, "the server cut the prompt: its context is too small for this workload");
    if (!rc && r->load_s > 0)
        rc = err_set(
            why, ERR_USAGE,
            "the server loaded its model during this request (%.2f s), and its time would be counted: "
            "keep the model loaded (keep-alive)",
            r->load_s);
    return rc;
}

/* ---------------------------------------------------------------- the cell */

static double quantile(const float *v, int n, double q)
{
    float *copy = n ? malloc((size_t)n * sizeof *copy) : NULL;
    double at = NAN;
    if (copy) {
        memcpy(copy, v, (size_t)n * sizeof *copy);
        at = stats_latency_quantile(copy, n, q);
    }
    free(copy);
    return at;
}

static void put_output_hash(json_t *o, const struct reply *r, const struct workload *w)
{
    const size_t n = json_array_size(r->ids);
    char hash[17];
    struct str ids = { 0 };
    if (!w->gen || n != (size_t)w->gen + 1) return;
    for (size_t i = 1; i < n; i++) { /* a worker's hash is without the token that the prompt gives */
        const int32_t id = (int32_t)json_integer_value(json_array_get(r->ids, i));
        str_append_n(&ids, &id, sizeof id);
    }
    if (!ids.failed) prompt_hash_bytes(hash, str_text(&ids), ids.len);
    if (!ids.failed) json_put_str(o, "output_hash", hash);
    str_free(&ids);
}

json_t *reply_cell(const struct reply *r, const struct workload *w, const char *model, const char *work_hash)
{
    char line[WORKLOAD_LINE];
    json_t *o = json_object(), *itl = json_array();
    /* as many chunks as tokens: each had one */
    const bool proven = r->each_one || r->chunks == (int)r->gen_tokens;
    const bool bundled = !proven && r->first_count > 1; /* the first chunk came after the first token */
    const double ttft_s = w->prompt && !bundled ? (double)(r->first_ns - r->sent_ns) * 1e-9 : NAN,
                 decode_s = (double)(r->last_ns - r->first_ns) * 1e-9;
    json_put_str(o, "model", model);
    json_put_str(o, "workload", workload_line(w, line, sizeof line));
    json_put_int(o, "sequences", 1);
    json_put_num(o, "prefill_s", ttft_s);
    json_put_num(o, "ttft_s", ttft_s);
    json_put_num(o, "decode_s", w->gen && r->chunks > 1 ? decode_s : NAN);
    json_put_int(o, "prompt_tokens", w->prompt);
    json_put_num(o, "gen_tokens", bundled ? r->gen_tokens - r->first_count : w->gen);
    json_put_num(o, "server_prefill_s", w->prompt ? r->server_prefill_s : NAN);
    /* without the first chunk's tokens this clock and the count would not belong together */
    json_put_num(o, "server_decode_s", w->gen && !bundled ? r->server_decode_s : NAN);
    for (int i = 0; proven && w->gen && i < r->gaps; i++)
        json_array_append_new(itl, json_num((double)r->gap_s[i]));
    json_put(o, "itl_s", itl);
    json_put_int(o, "chunks", r->chunks);
    json_put_bool(o, "chunk_is_token", proven);
    json_put_num(o, "chunk_gap_s", w->gen ? quantile(r->gap_s, r->gaps, 0.5) : NAN);
    json_put_num(o, "cached_tokens", r->cached_tokens);
    if (work_hash && *work_hash) json_put_str(o, "work_hash", work_hash);
    put_output_hash(o, r, w);
    return o;
}
