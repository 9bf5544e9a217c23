/* The programs that can run an arm, and which keys and workloads each one has.
 *
 * A key that an engine would ignore, or a workload that it cannot run, is refused when the config is parsed:
 * otherwise a comparison would be about something else than its lines say. */
#include "engine/config/config_internal.h"

#include <string.h>

const char *const ENGINE_NAMES[] = {
    [ENGINE_QDYNO] = "qdyno",
    [ENGINE_LLAMA_SERVER] = "llama-server",
    [ENGINE_LLAMA_BENCH] = "llama-bench",
    [ENGINE_LLAMA_PERPLEXITY] = "llama-perplexity",
    [ENGINE_OPENAI] = "openai",
    [ENGINE_COUNT] = NULL,
};

const struct engine_row ENGINES[ENGINE_COUNT] = {
    [ENGINE_QDYNO] = { .reads_file = true,
                       .serves_loads = true,
                       .times_tokens = true,
                       .fills_depth = true,
                       .keeps_depth = true,
                       .takes_prompts = true,
                       .evaluates = true },
    [ENGINE_LLAMA_SERVER] = { .program = "llama-server",
                              .reads_file = true,
                              .takes_flags = true,
                              .times_tokens = true,
                              .fills_depth = true,
                              .keeps_depth = true,
                              .takes_prompts = true },
    [ENGINE_LLAMA_BENCH] = { .program = "llama-bench",
                             .reads_file = true,
                             .takes_flags = true,
                             .times_tokens = true,
                             .fills_depth = true },
    [ENGINE_LLAMA_PERPLEXITY] = { .program = "llama-perplexity",
                                  .reads_file = true,
                                  .takes_flags = true,
                                  .evaluates = true },
    [ENGINE_OPENAI] = { .times_tokens = true, .serves_loads = true, .takes_prompts = true },
};

enum engine_kind config_engine(const struct config *c)
{
    return (enum engine_kind)config_choice(c, KNOB_ENGINE);
}

bool config_is_foreign(const struct config *c)
{
    return config_engine(c) != ENGINE_QDYNO;
}

const char *config_model_file(const struct config *c, const char *otherwise)
{
    const char *own = config_text(c, KNOB_MODEL);
    if (!ENGINES[config_engine(c)].reads_file) return "";
    return *own || !otherwise ? own : otherwise;
}

enum err_code config_check_own(const struct config *c, struct err *why)
{
    if (!config_is_foreign(c)) return ERR_OK;
    return err_set(
        why, ERR_USAGE,
        "engine=%s: this needs qdyno's own engine; other engines are arms of `qdyno ab` and configs "
        "of `qdyno bench`",
        config_text(c, KNOB_ENGINE));
}

/* Does the engine use this key? */
static bool engine_has(enum engine_kind e, enum knob_id id)
{
    const struct engine_row *row = &ENGINES[e];
    switch (id) {
    case KNOB_ENGINE:
    case KNOB_MODEL: return true;
    case KNOB_BIN:
    case KNOB_ARGS: return row->program != NULL;
    case KNOB_URL:
    case KNOB_KEY_ENV: return e == ENGINE_OPENAI;
    case KNOB_CTX: return e == ENGINE_QDYNO || e == ENGINE_LLAMA_SERVER; /* the tools know what a run needs */
    default: return e == ENGINE_QDYNO || (row->takes_flags && KNOBS[id].flag);
    }
}

static enum err_code engine_key_error(enum engine_kind e, const struct config *c, enum knob_id id,
                                      struct err *why)
{
    const char *key = KNOBS[id].key, *value = config_text(c, id), *name = ENGINE_NAMES[e];
    if (e == ENGINE_QDYNO)
        return err_set(why, ERR_USAGE, "%s=%s is for other engines: add engine=llama-server or another one",
                       key, value);
    if (id == KNOB_FORMAT || id == KNOB_METHOD)
        return err_set(why, ERR_USAGE,
                       "engine=%s runs files as they are, and cannot quantize to %s: write model=FILE; "
                       "`qdyno quantize IN FILE -R %s` makes the file",
                       name, config_text(c, KNOB_FORMAT), config_text(c, KNOB_FORMAT));
    return err_set(why, ERR_USAGE, "%s=%s is no setting that qdyno can give to engine=%s%s", key, value, name,
                   ENGINES[e].program ? ": write the engine's own arguments, args=\"...\""
                                      : ": a running server has its own settings");
}

enum err_code engine_check(const struct config *c, struct err *why)
{
    const enum engine_kind e = config_engine(c);
    for (int i = 0; i < KNOB_COUNT; i++)
        if (c->given[i] && !engine_has(e, (enum knob_id)i))
            return engine_key_error(e, c, (enum knob_id)i, why);
    if (e == ENGINE_OPENAI && !*config_text(c, KNOB_URL))
        return err_set(why, ERR_USAGE,
                       "engine=openai needs the address of a running server: add url=http://HOST:PORT");
    return ERR_OK;
}

static bool load_has_limit(const struct workload_load *l, enum load_figure f)
{
    for (int i = 0; i < l->limits; i++)
        if (l->limit[i].figure == f) return true;
    return false;
}

enum err_code engine_check_workload(const struct config *c, const struct workload *w, struct err *why)
{
    const enum engine_kind e = config_engine(c);
    const struct engine_row *row = &ENGINES[e];
    const char *lacks = NULL;
    char line[WORKLOAD_LINE];
    if (e == ENGINE_QDYNO) return ERR_OK;
    if (w->train)
        lacks = "does not train";
    else if (workload_is_load(w) && !row->serves_loads)
        lacks =
            e == ENGINE_LLAMA_SERVER
                ? "is started by qdyno for one request at a time; to measure it with many requests at a time, "
                  "start llama-server yourself and give its address: engine=openai,url=http://HOST:PORT"
                : "answers one request at a time; a load (load:...) runs with engine=qdyno, or over HTTP "
                  "with engine=openai,url=http://HOST:PORT";
    else if (workload_is_load(w) && load_has_limit(&w->load, LOAD_QUEUE))
        lacks = "does not tell a client when it begins with a request; leave queue out of slo, or use ttft";
    else if (workload_is_load(w))
        return ERR_OK;
    else if (*w->eval_file && !row->evaluates)
        lacks = "measures no perplexity here; engine=llama-perplexity does, and `qdyno audit` compares both";
    else if (!*w->eval_file && !row->times_tokens)
        lacks = "times no tokens; expected eval:FILE";
    else if (*w->prompts && !row->takes_prompts)
        lacks = "makes its own prompts of random tokens; leave @prompts out";
    else if (w->depth && !row->fills_depth)
        lacks = "cannot fill its cache before timing starts; leave @d out";
    else if (workload_sequences(w) > 1)
        lacks = "is measured with one sequence; leave @b out";
    if (!lacks) return ERR_OK;
    return err_set(why, ERR_USAGE, "%s: engine=%s %s", workload_line(w, line, sizeof line), ENGINE_NAMES[e],
                   lacks);
}
