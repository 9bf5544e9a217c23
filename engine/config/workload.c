/* Parses and writes workload lines, such as "pp512+tg128@d4096". */
#include <stdio.h>
#include <string.h>

#include "engine/config/config_internal.h"

enum { EVAL_CTX_DEFAULT = 512, TOKENS_MAX = 1 << 24 };

static const char GRAMMAR[] =
    "expected ppN, tgN or ppN+tgN, followed by @dN for tokens already in the cache and @bN for sequences that run "
    "side by side and @prompts:FILE for prompts of your own; or eval:FILE[@cN]; or trainN: N steps of training from "
    "scratch";

static const char PROMPTS[] = "@prompts:";

/* Read a number from `least` to TOKENS_MAX at *at and advance *at. */
static bool workload_read_count(const char **at, int least, int *out)
{
    char digits[16];
    const size_t n = strspn(*at, "0123456789");
    int64_t v;
    if (n == 0 || n >= sizeof digits) return false;
    memcpy(digits, *at, n);
    digits[n] = '\0';
    if (!str_to_i64(digits, &v) || v < least || v > TOKENS_MAX) return false;
    *out = (int)v;
    *at += n;
    return true;
}

static bool workload_read_tokens(struct workload *w, const char *text)
{
    bool gen = str_starts(text, "tg");
    if (str_starts(text, "pp")) {
        text += 2;
        if (!workload_read_count(&text, 1, &w->prompt)) return false;
        gen = *text == '+';
        if (gen && !str_starts(++text, "tg")) return false;
    } else if (!gen) {
        return false;
    }
    if (gen) {
        text += 2;
        if (!workload_read_count(&text, 1, &w->gen)) return false;
    }
    if (str_starts(text, "@d")) {
        text += 2;
        if (!workload_read_count(&text, 0, &w->depth)) return false;
    }
    if (str_starts(text, "@b")) {
        text += 2;
        if (!workload_read_count(&text, 1, &w->sequences)) return false;
    }
    if (str_starts(text, PROMPTS)) { /* the rest of the line, as a file name can have any characters */
        text += strlen(PROMPTS);
        if (!*text || !str_put(w->prompts, sizeof w->prompts, text)) return false;
        text = "";
    }
    return *text == '\0' && ((int64_t)w->prompt + w->gen + w->depth) * workload_sequences(w) <= TOKENS_MAX;
}

static enum err_code workload_read_eval(struct workload *w, const char *file, struct err *why)
{
    size_t n = strlen(file);
    const char *at = strrchr(file, '@');
    if (at && at[1] == 'c') { /* file names can contain an @: only @cN at the end is the window */
        const char *digits = at + 2;
        int ctx;
        if (workload_read_count(&digits, 4, &ctx) && !*digits) {
            w->eval_ctx = ctx;
            n = (size_t)(at - file);
        }
    }
    if (n == 0) return err_set(why, ERR_USAGE, "workload 'eval:' names no file: %s", GRAMMAR);
    if (n >= sizeof w->eval_file)
        return err_set(why, ERR_USAGE, "file name of an eval workload longer than %zu bytes",
                       sizeof w->eval_file - 1);
    memcpy(w->eval_file, file, n);
    w->eval_file[n] = '\0';
    return ERR_OK;
}

static bool workload_read_steps(struct workload *w, const char *text)
{
    return workload_read_count(&text, 1, &w->train) && !*text;
}

enum err_code workload_parse(struct workload *w, const char *text, struct err *why)
{
    *w = (struct workload){ .eval_ctx = EVAL_CTX_DEFAULT };
    if (str_starts(text, "eval:")) return workload_read_eval(w, text + 5, why);
    if (str_starts(text, "load:")) return workload_load_parse(&w->load, text + 5, why);
    if (str_starts(text, "train") && workload_read_steps(w, text + 5)) return ERR_OK;
    if (workload_read_tokens(w, text)) return ERR_OK;
    *w = (struct workload){ .eval_ctx = EVAL_CTX_DEFAULT };
    return err_set(why, ERR_USAGE, "workload '%.60s': %s", text, GRAMMAR);
}

/* The line with a file of prompts. It is parsed as a whole, because some keys mean something else with
 * prompts. */
static enum err_code load_parse_prompts(struct workload *w, const char *text, const char *file,
                                        struct err *why)
{
    struct str line = { 0 };
    if (strchr(file, '"'))
        return err_set(why, ERR_USAGE,
                       "'%.200s': a file of prompts whose name has a quote cannot be in a load", file);
    str_printf(&line, "%s,%s=\"%s\"", text, WORKLOAD_LOAD_PROMPTS, file);
    const enum err_code rc = line.failed ? err_set(why, ERR_NOMEM, "out of memory")
                                         : workload_parse(w, str_text(&line), why);
    str_free(&line);
    return rc;
}

enum err_code workload_parse_prompts(struct workload *w, const char *text, const char *file, struct err *why)
{
    const bool load = str_starts(text, "load:");
    const size_t room = load ? sizeof w->load.prompts : sizeof w->prompts;
    if (file && (!*file || strlen(file) >= room))
        return err_set(why, ERR_USAGE, "the name of the file of prompts has %zu bytes: expected 1 to %zu",
                       strlen(file), room - 1);
    if (file && load) return load_parse_prompts(w, text, file, why);
    const enum err_code rc = workload_parse(w, text, why);
    if (rc || !file) return rc;
    if (w->train || *w->eval_file)
        return err_set(why, ERR_USAGE,
                       "%.200s takes no prompts: expected a workload such as pp512+tg128 or load:rate=4",
                       text);
    if (*w->prompts)
        return err_set(why, ERR_USAGE, "%.200s names a file of prompts itself: leave '%.200s' out", text,
                       file);
    str_put(w->prompts, sizeof w->prompts, file); /* it fits */
    return ERR_OK;
}

const char *workload_line(const struct workload *w, char *buf, size_t size)
{
    struct str s = { 0 };
    if (w->eval_file[0]) {
        str_printf(&s, "eval:%s", w->eval_file);
        if (w->eval_ctx != EVAL_CTX_DEFAULT) str_printf(&s, "@c%d", w->eval_ctx);
    } else if (w->train) {
        str_printf(&s, "train%d", w->train);
    } else if (workload_is_load(w)) {
        str_append(&s, "load:");
        workload_load_append(&w->load, &s);
    } else {
        if (w->prompt) str_printf(&s, "pp%d", w->prompt);
        if (w->prompt && w->gen) str_append(&s, "+");
        if (w->gen) str_printf(&s, "tg%d", w->gen);
        if (w->depth) str_printf(&s, "@d%d", w->depth);
        if (workload_sequences(w) > 1) str_printf(&s, "@b%d", w->sequences);
        if (*w->prompts) str_printf(&s, "%s%s", PROMPTS, w->prompts);
    }
    snprintf(buf, size, "%s", str_text(&s));
    str_free(&s);
    return buf;
}

const char *workload_prompts(const struct workload *w)
{
    return workload_is_load(w) ? w->load.prompts : w->prompts;
}

bool workload_is_load(const struct workload *w)
{
    return w->load.arrivals != LOAD_NONE;
}

unsigned workload_work(const struct workload *w)
{
    return w->train ? FOR_TRAIN : workload_is_load(w) ? FOR_ALL | FOR_LOAD : FOR_ALL;
}

enum err_code workload_check(const struct workload *w, const struct config *c, struct err *why)
{
    const struct knob *stray = config_stray(c, workload_work(w));
    char line[WORKLOAD_LINE];
    const struct parallel mode = config_parallel(c);
    if (!stray && workload_is_load(w) && config_choice(c, KNOB_KV_CACHE) != CACHE_PAGED)
        return err_set(
            why, ERR_USAGE,
            "kv_cache=%s: requests that come and go share the blocks of a paged KV cache; expected "
            "kv_cache=paged, or a workload such as pp512+tg128",
            config_text(c, KNOB_KV_CACHE));
    if (!stray && workload_is_load(w) && mode.cp > 1)
        return err_set(
            why, ERR_USAGE,
            "parallel=%s divides the positions of each sequence among processes, and requests that come "
            "and go share blocks of one KV cache: expected tpN or ppN, or a workload such as pp512+tg128",
            config_text(c, KNOB_PARALLEL));
    const enum err_code rc = stray || !w->train
                                 ? ERR_OK
                                 : parallel_check_training(&mode, config_int(c, KNOB_ACCUMULATE), why);
    if (rc) return rc;
    if (!stray) return engine_check_workload(c, w, why);
    workload_line(w, line, sizeof line);
    const char *value = config_text(c, (enum knob_id)(stray - KNOBS));
    if (stray->matters_for == FOR_LOAD && !w->train)
        return err_set(why, ERR_USAGE,
                       "%s=%s is a setting for serving, and %s has no requests that come and go: expected a "
                       "workload such as load:rate=4",
                       stray->key, value, line);
    if (!w->train)
        return err_set(
            why, ERR_USAGE,
            "%s=%s is a setting for training, and %s does not train: expected a workload such as train20",
            stray->key, value, line);
    struct str keys = { 0 };
    for (int i = 0; i < KNOB_COUNT; i++)
        if (KNOBS[i].matters_for & FOR_TRAIN) str_printf(&keys, " %s", KNOBS[i].key);
    err_set(why, ERR_USAGE,
            "%s=%s does not matter for %s, which trains a model from scratch; keys that do:%s", stray->key,
            value, line, str_text(&keys));
    str_free(&keys);
    return ERR_USAGE;
}

int workload_ctx(const struct workload *w)
{
    if (workload_is_load(w)) return workload_load_ctx(&w->load);
    return w->eval_file[0] ? w->eval_ctx : w->depth + w->prompt + w->gen;
}

int workload_sequences(const struct workload *w)
{
    return MAX(w->sequences, 1);
}

int workload_sequences_for(const struct workload *w, const struct config *c)
{
    return workload_is_load(w) ? (int)config_int(c, KNOB_MAX_SEQUENCES) : workload_sequences(w);
}

void workload_shorten_load(struct workload *w)
{
    struct workload_load *l = &w->load;
    if (!workload_is_load(w)) return;
    l->requests = l->turns;
    l->think_s = 0;
    if (l->arrivals == LOAD_TRACE) return;
    l->arrivals = LOAD_CLOSED;
    l->concurrency = 1;
    l->auto_rate = false;
    l->burstiness = 1;
    l->meet = LOAD_MEET;
}
