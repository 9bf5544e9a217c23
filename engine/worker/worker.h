/* engine/worker/worker.h - measured work: timed cells, and the child process that owns one loaded model.
 *
 * Every arm of an experiment runs in a process of its own, a worker. Requests and answers are JSON objects,
 * one per line, over a socket.
 *
 * Every request has "id", an integer that its answers repeat:
 *
 *   {"id":1,"op":"open","model":PATH,"config":LINE,"ctx":N,"sequences":1,"shapes":TEXT}
 *         Load a model. shapes: optional, measured kernels (struct backend_options).
 *   {"id":1,"op":"open","train":true,"config":LINE}
 *         No model: each cell trains one from scratch.
 *   {"id":2,"op":"cell","workload":"tg64","seed":7,"turn_steps":8,"turn_passes":1,"profile":true}
 *         One timed run. profile: optional; the result has "profile", too. turn_*: optional; before each turn
 * of so many decode steps, or forward passes of the prompt, the worker waits for "go".
 *   {"id":3,"op":"generate","prompt":TEXT,"n":64,"temp":0,"turn_s":0.1}
 *         turn_s: optional; after so many seconds of work (whole steps) the worker waits for "go".
 *         So two workers can use the whole machine alternately.
 *   {"id":4,"op":"quality","file":PATH,"ctx":512,"chunks":0,"greedy":true,"reference":{"model":PATH,"config":LINE,"shapes":TEXT}}
 *         file "": the bundled text; chunks 0: all. The reference is a second model that is open
 *         during this request; ctx is at most the open model's.
 *   {"id":0,"op":"cancel"}
 *         Stop the running request. No answer of its own.
 *   {"id":0,"op":"go"}
 *         Continue after the event "turn". No answer of its own.
 *   {"id":0,"op":"change","rate_by":1.25,"settings":"schedule=static"}
 *         Of a cell with a load, while it runs: requests come so many times as fast, or one client more
 *         or less (struct load_now); settings of serving_change. Both are optional. No answer of its
 *         own; a wrong setting is an event.
 *   {"id":9,"op":"close"}
 *         End the worker.
 *
 * Answers are any number of events, then one result or error:
 *
 *   {"id":2,"event":"progress","phase":P,"done":n,"of":m,"seconds":s}
 *         P: prefill, decode, load, quantize, autotune, eval, greedy, train or requests. In cells also
 *         "occupancy":{"blocks","used","block_tokens","rows","batch","step","map"} (model_occupancy_to_json).
 *         Of a load also "load" (live_to_json), at most every 200 ms.
 *   {"id":2,"event":"refused","message":TEXT}
 *         Why a "change" was not made.
 *   {"id":3,"event":"token","text":PIECE,"token":ID,"seconds":s}
 *         s: seconds of work since prefill.
 *   {"id":3,"event":"turn"}
 *         The worker waits for "go"; also before the first step. Of generate and cell.
 *   {"id":2,"ok":true,...}
 *   {"id":2,"ok":false,"code":"ERR_FIT","message":TEXT}
 *
 * Fields of results; an unknown value is null:
 *
 * - open: what really runs: config (all keys), recipe, arch, name, params, sha256, isa, inputs, device, gpu,
 *   threads, pinned, ctx, random_weights, answers_unverified (force=on ran a file with unknown parts),
 *   reads_text (false: no tokenizer that is supported),
 *   dominant_format, load_s
 *
 * - open and quality (about the reference), with compile=autotune: autotune_s (seconds of load_s that
 * measuring kernels took; 0: `shapes` had them all) and, if some were measured, autotune {measured, seconds,
 * choices: a line that the parent stores and sends as a part of `shapes` from then on}
 *
 * - plan, in open: {weights, kv, compute, scratch, total, device, gpu_layers, kv_bytes_per_token,
 *   decode_read_bytes, expert_read_bytes, flops_per_token}
 *
 * - memory, in open: {huge_wanted_bytes, huge_bytes, copied_bytes, repacked_bytes, prefetched_bytes,
 *   prefetch_s}
 *
 * - cell: model, workload, sequences, prefill_s, decode_s, ttft_s, fill_s and filled_tokens (filling the
 * cache up to the depth; 0: an earlier cell of this worker did; null: no depth), prompt_tokens, gen_tokens,
 * itl_s [one per decode step], perplexity, nll, nll_se, scored_tokens, work_hash, output_hash, and resource
 * use
 *
 * - resource use: cpu_s, peak_rss_bytes, rss_bytes, major_faults, minor_faults, voluntary_switches,
 *   involuntary_switches
 *
 * - cell of a model with parallel=, also: ranks [one object for each: the members of struct rank_usage since
 *   the cell began; none if they could not be asked]; cpu_s and memory of the cell are sums over the ranks
 *   and the worker. Progress events of such a cell have the list so far, at most once a second
 *
 * - cell whose prompts are the user's own, or longer than the bundled text, also: prompts {repeats,
 * text_tokens or file, sha256, form, count, skipped, used: struct prompt_facts}
 *
 * - cell in turns, also: turn_s [one per turn], prefill_turns, skipped_s, skipped_tokens (struct cell_result)
 *
 * - cell with a profile, also: profile {layers, prefill, decode: each {passes, seconds, operators: [one
 * object for each operator of each layer that ran: layer (-1: outside the layers), operator, calls, seconds,
 * bytes, ops, format and rows of the largest product (struct profile_cell)]}}
 *
 * - cell that trains: workload, train_s, steps, skipped_steps, train_tokens, first_loss, train_loss,
 *   parameter_bytes, activation_bytes, optimizer_bytes, work_hash, output_hash, and resource use (the peak
 *   memory is that of this cell alone)
 *
 * - cell of a load: model, workload, sequences, load_s, prompt_tokens, gen_tokens, work_hash, output_hash,
 *   resource use, requests {one array for each figure of struct load_record, and token_s: when each token of
 *   each request was there}, served {seconds, steps, step_requests, step_s, model_s, kv_use, running_most,
 *   waiting_most, cut, skipped: struct load_result and struct load_plan}; with prompts that have classes also
 *   "class" in requests (an index or null) and "classes" (their names)
 *
 * - quality: quality {file, ctx, figures of engine/eval/eval.h}, random_weights, answers_unverified,
 *   seconds
 *
 * Results of open and cell can have "spans":[{"name":"quantize","from_ns":,"to_ns":}, ...]: when their phases
 * ran (quantize, fill, prefill, decode, eval, train), by the monotonic clock that all processes share.
 *
 * A worker ends with its parent (PR_SET_PDEATHSIG, and end of file on the socket). */
#ifndef QDYNO_ENGINE_WORKER_H
#define QDYNO_ENGINE_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "engine/text/text.h"

struct gguf;
struct load_text; /* engine/serve/load.h */
struct model;
struct prompt_own;
struct prompts;         /* engine/prompts/prompts.h */
struct kept_fill;       /* engine/worker/kept_fill.h */
struct machine_sensors; /* engine/parallel/parallel.h */
struct pass_profile;    /* engine/model/model.h */
struct workload;        /* engine/config/config.h */

/* Serve requests on fd until "close" or end of file. Errors: only of the socket itself (ERR_IO, ERR_FORMAT,
 * ERR_NOMEM). */
enum err_code worker_serve(int fd, const struct log *log, struct err *why);

/* Be one of the ranks of a model (engine/parallel): join the others, and execute commands until the leader
 * ends. socket: path of the leader's socket. sensors: of this machine (rank_use_sensors); NULL: none. Errors:
 * those of rank_open. */
enum err_code rank_serve(const char *socket, const struct machine_sensors *sensors, const struct log *log,
                         struct err *why);

/* ---------------------------------------------------------------- prompts */

/* What prompts were taken, for the record of a run. */
struct prompt_facts {
    bool repeats;        /* the text is shorter than a prompt, or there are fewer prompts than were needed */
    int64_t text_tokens; /* of the bundled text */
    char file[128], sha256[HASH_HEX]; /* of the user's own prompts; "": the bundled text */
    int form;                         /* enum prompt_form */
    int count, skipped, used;         /* prompts: usable, without a text, in this cell */
};

/* Where the prompt ids of cells come from. Any engine that gets the same ids does the same work. */
struct prompt_source {
    /* The bundled text, without BOS; none for a model without a tokenizer. The first `sample` ids are those
     * of the short sample, from which prompts come that fit into it; the longer text is behind them once it
     * was needed. */
    struct token_list text;
    int64_t sample;
    int32_t bos; /* the token that begins a text; -1: none */
    int64_t vocab;
    const struct gguf *file; /* borrowed, as the tokenizer; for its chat template */
    const struct tokenizer *tokenizer;
    struct prompt_own *own;    /* the file of prompts that was read last; NULL: none */
    struct prompt_facts facts; /* of the last prompts that were made */
};
/* t NULL: no tokenizer. g and t must outlive *s. *s needs prompt_source_close also after an error.
 * ERR_ABSENT: the bundled text is missing; ERR_FORMAT: it gives no tokens; ERR_NOMEM. */
enum err_code prompt_source_open(struct prompt_source *s, const struct gguf *g, const struct tokenizer *t,
                                 int64_t vocab, struct err *why);
void prompt_source_close(struct prompt_source *s);
/* Ids of one sequence's prompt: the depth, and the timed prompt, or one token where decode alone is timed. */
int prompt_count(const struct workload *w);
/* ids: [sequences][prompt_count]. ERR_ABSENT: the long text is needed, and missing; ERR_FORMAT: the tokenizer
 * gives an id that the model does not have; of the user's own prompts: the errors of prompts_read and
 * prompt_encode. */
enum err_code prompt_source_fill(int32_t *ids, struct prompt_source *s, const struct workload *w,
                                 uint64_t seed, struct err *why);
/* Where the prompts of a load come from. *out borrows from *s until the next call. Errors: as
 * prompt_source_fill. */
enum err_code prompt_source_load(struct load_text *out, struct prompt_source *s, const struct workload *w,
                                 uint64_t seed, struct err *why);
/* The same for a server that gets the user's own prompts as texts: lengths are estimates. ERR_USAGE: prompts
 * would have to be cut. */
enum err_code prompt_source_load_texts(struct load_text *out, struct prompt_source *s,
                                       const struct workload *w, uint64_t seed, struct err *why);
/* The user's own prompts that were used last (engine/prompts); NULL: none. */
const struct prompts *prompt_source_prompts(const struct prompt_source *s);
/* Add "prompts" to an answer where there is something to say: the prompts are the user's own, or text
 * repeats. */
void prompt_facts_put(json_t *answer, const struct prompt_facts *f);
/* The hash of a workload with its prompt ids: equal hashes mean the same work. ERR_NOMEM. */
enum err_code prompt_hash(char out[17], const struct workload *w, const int32_t *ids, struct err *why);
/* The same for eval: windows of `ctx` tokens of a text. ERR_NOMEM. */
enum err_code prompt_hash_eval(char out[17], int ctx, const char *text, size_t n, struct err *why);
void prompt_hash_bytes(char out[17], const void *bytes, size_t n);

/* ---------------------------------------------------------------- cells */

/* One timed run. Workload and seed determine the work: prompt ids come from the bundled text through the
 * model's tokenizer (pseudo-random ids without one), a different part for each sequence; decoding is greedy
 * and ignores end-of-text. Sequences share the batches of prefill and decode in lockstep: one row of each
 * sequence per batch. */
enum { TURN_STEPS_TO_SKIP = 4 };
struct cell_span {
    const char *name;       /* "fill" (KV cache up to the depth, not timed) "prefill" "decode" "eval" */
    int64_t from_ns, to_ns; /* clock_ns */
};
struct cell_result {
    double prefill_s, decode_s; /* NAN: the workload has no such phase */
    double ttft_s;              /* time until every sequence has its first token; NAN without prefill */
    double load_s;
    double
        fill_s; /* of the forward passes that filled the cache up to the depth, which no other figure has */
    int filled_tokens; /* 0: the workload has no depth, or the cache was kept (struct kept_fill) */
    int prompt_tokens, gen_tokens; /* sums over all sequences */
    int steps;                     /* decode steps: each produced one token per sequence */
    float *itl_s;                  /* [steps] inter-token latencies; owned: cell_result_free */
    /* The first decode step of a turn finds its weights displaced from the caches by the other worker. With
     * at least TURN_STEPS_TO_SKIP steps in a turn it is left out of decode_s, gen_tokens, steps and itl_s. */
    double skipped_s;
    int skipped_tokens;
    /* Mean number of distinct experts of a layer that the routers chose for a decode step; NAN: no decode, or
     * no experts. */
    double decode_experts;
    double perplexity, nll, nll_se; /* eval only, else NAN */
    int64_t scored_tokens;
    struct cell_span spans[3]; /* when its phases ran, including time in the progress callback */
    int n_spans;
    /* Owned: [turns] seconds of work in each turn, without what was skipped. Turn i of two workers is the
     * same part of the workload. NULL: the cell ran without interruption. */
    float *turn_s;
    int turns, prefill_turns; /* the first prefill_turns are of the prompt, the others of decode */
    struct prompt_facts prompts;
    char work_hash[17];   /* of prompt ids, depth and lengths: equal hashes mean the same work */
    char output_hash[17]; /* of generated ids: equal hashes mean the same output */
};
void cell_result_free(struct cell_result *r);

/* What a cell calls while it runs. Time in these functions is not part of the cell's figures. */
struct cell_hooks {
    /* At most every 100 ms, with the tokens done in this phase; returning false cancels (ERR_CANCELLED).
     * NULL: not called. */
    bool (*progress)(void *ctx, const char *phase, int done, int of, double seconds);
    /* Turns, for workers that use the machine alternately: called before each turn, and returns when the turn
     * begins; false cancels. NULL: the cell runs without interruption. A turn lasts turn_steps decode steps
     * or turn_passes forward passes of the prompt, so the same workload has the same turns in every worker.
     */
    bool (*turn)(void *ctx);
    int turn_steps, turn_passes;
    void *ctx;
    /* NULL, or [2]: takes the passes of the prompt, and the decode steps. Filling the cache is in neither. */
    struct pass_profile *profile;
    /* The cache that an earlier cell of this model filled, and that this one leaves. NULL: it is filled in
     * each cell, and empty afterwards. */
    struct kept_fill *kept;
};
/* hooks NULL: none. */
enum err_code cell_run(struct cell_result *out, struct model *m, const struct workload *w, uint64_t seed,
                       const struct cell_hooks *hooks, struct err *why);

#endif
