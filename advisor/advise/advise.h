/* advisor/advise/advise.h - recommended configurations for a machine, rules of thumb with evidence, and the
 * config file that keeps a choice. Public header of advisor/advise/. */
#ifndef QDYNO_ADVISOR_ADVISE_H
#define QDYNO_ADVISOR_ADVISE_H

#include "advisor/advise/proposals.h"
#include "advisor/predict/predict.h"
#include "advisor/quality/quality.h"
#include "advisor/stats/stats.h"
#include "base/base.h"
#include "db/db.h"
#include "engine/config/config.h"
#include "kernels/kernels.h"
#include "telemetry/machine/machine.h"
#include "telemetry/probe/probe.h"

/* Whether this is the name of a format with floats of 16 bits or more, from which a file can be quantized
 * without adding to the loss of an earlier quantization: "f32", "f16", "bf16". */
bool format_is_full_precision(const char *format);

/* ---------------------------------------------------------------- config file of a model */

/* The config file of a model: the configuration that `run`, `bench` and the dashboard use by default. `tune`
 * writes it, or a person.
 *
 * There is one file per model, $XDG_CONFIG_HOME/qdyno/MODEL.conf (MODEL-1a2b3c4d.conf if another model with
 * that name has the first). Lines that begin with # are comments; those of the form "# key: value" are read
 * back. The last other line is the config line. A file written by hand may consist of that line alone. */

struct applied {
    struct config config;
    char line[2048];                          /* the same as a config line */
    char path[4096];                          /* path of the file */
    char model_sha256[HASH_HEX], machine[16]; /* machine it was made for; "" when the file does not say */
    char because[512], when[32];              /* "" when the file does not say */
    int64_t run_id;                           /* run that proved it; 0: none given */
    /* what other programs did to the machine when it was found (experiment_run_load_text); "": nothing is
     * recorded */
    char load[160];
};

/* Read the config kept for this model. *found false (ERR_OK): there is none. Creates nothing. Errors: ERR_IO
 * (the file exists but cannot be read); ERR_FORMAT, ERR_USAGE (no config line, or an invalid one; names the
 * file); those of gguf_open when the model must be read to identify it. */
enum err_code apply_read(struct applied *out, const char *model_path, bool *found, struct err *why);

/* Keep a config for this model, atomically; the previous file becomes MODEL.conf.previous. The config must be
 * valid for the model (its memory estimate is computed) and must not name a model itself. machine may be
 * NULL. Fills *out (may be NULL). */
struct apply_request {
    const char *model_path;
    const struct config *config;
    const struct machine *machine;
    const char *because; /* one line; NULL: "chosen by hand" */
    int64_t run_id;
    const char *load; /* as in struct applied; NULL: nothing is recorded */
};
enum err_code apply_write(struct applied *out, const struct apply_request *r, struct err *why);

/* Remove the config kept for this model; it becomes the previous one. *removed false: there was none. */
enum err_code apply_remove(const char *model_path, bool *removed, struct err *why);

/* Exchange the config kept for this model with the previous one, which may be none: a second call takes the
 * first one back. Fills *out when *found. Errors: ERR_USAGE when nothing was ever kept; ERR_IO; as
 * apply_read, also when the previous file is no config: then nothing changes. */
enum err_code apply_undo(struct applied *out, const char *model_path, bool *found, struct err *why);

/* Find the config line in a file: the last line that is neither empty nor a comment. Errors: ERR_FORMAT when
 * there is none; as file_read, config_parse. */
enum err_code config_file_read(struct config *out, const char *path, struct err *why);

/* Append the command that compares two configs of a model: "qdyno ab -m MODEL A B -w tg64". */
void advice_ab_command(struct str *out, const char *model_path, const char *a, const char *b,
                       const char *workload);

/* The workload of `tune` and of checks, where none is given or recorded. */
#define CONFIRM_WORKLOAD "tg64"
/* Append the command that compares a config with the current one once the machine is quiet: "qdyno ab -m
 * MODEL default threads=1 -w tg64 --estimand quiet --wait-quiet 1h". */
void advice_confirm_command(struct str *out, const char *model_path, const char *current, const char *line,
                            const char *workload);

/* The llama.cpp command lines closest to a config: one that runs a server, preceded by a `qdyno quantize` if
 * the recipe makes a new file. notes: settings without an equivalent there, and their effect; "" when there
 * are none. Errors: ERR_ABSENT when llama.cpp has no such recipe or KV type (names it); those of gguf_open
 * and of the recipe. */
enum err_code apply_llama_cpp(struct str *out, struct str *notes, const char *model_path,
                              const struct config *c, struct err *why);

/* Programs that a config can be translated for: names of their tables, NULL-terminated. */
extern const char *const APPLY_TARGETS[];
/* The flags, Modelfile or settings of such a program that are closest to a config, as text of one or more
 * lines, preceded by the command that makes the model file if the recipe needs one. notes: what does not
 * carry over, one line each; "" when all does. Errors: as apply_llama_cpp; ERR_USAGE: no such program. */
enum err_code apply_for(struct str *out, struct str *notes, const char *target, const char *model_path,
                        const struct config *c, struct err *why);

/* ---------------------------------------------------------------- goals */

enum goal { GOAL_BALANCED, GOAL_SPEED, GOAL_QUALITY, GOAL_MEMORY, GOAL_ENERGY };
const char *goal_name(enum goal g);
bool goal_parse(const char *name, enum goal *out);
/* Parses "memory=8G,kld=0.05,accuracy=-0.5%" ("" is none). A limit that is not given leaves its variable
 * unchanged. accuracy: the largest loss of right answers, 0.005 for "-0.5%"; NULL: there is no such limit.
 * ERR_USAGE. */
enum err_code limits_parse(const char *text, int64_t *memory_bytes, double *kld, double *accuracy,
                           struct err *why);

/* ---------------------------------------------------------------- evidence */

/* What earlier runs measured of one model file on one machine, read from the database.
 *
 * A measurement counts when its run did not fail and is not invalid, its cell was neither discarded nor
 * disturbed, and its run used the same file (SHA-256), machine, build of the kernels and QDYNO_ISA as now.
 * Timings of a search's race do not count: the fastest of many is biased upwards; the A/B that confirms a
 * search counts. */

enum { EVIDENCE_RUNS = 8 };
/* A measured rate: tokens/s, with a 90 % interval. Of one run it is Student's t interval over the logarithms
 * of its blocks or repetitions (at least two); of several runs the smallest interval that contains theirs. */
struct evidence_rate {
    struct interval rate;       /* NAN: not measured */
    int64_t run[EVIDENCE_RUNS]; /* the newest first */
    int runs;                   /* all of them; the array holds at most EVIDENCE_RUNS */
    /* Decode rate of the newest run: its measurements that count there, those of them that were disturbed and
     * are left out here, and the rate that the run reports with them. cells 0: none was disturbed. */
    int cells, disturbed;
    double with_disturbed;
};

struct evidence_series; /* one config and workload in one run; evidence.c */
struct evidence {
    struct evidence_series *series; /* [n], owned; the newest run first */
    int n, cap;
    char sha256[HASH_HEX]; /* of the model's file; "": no run used it */
    /* the newest finished search; run 0: none */
    struct {
        int64_t run, confirm_run;
        struct config config;
        char line[CONFIG_LINE], because[512];
        char candidate[CONFIG_LINE]; /* the best one that it compared, better or not; "" none */
        char load[160]; /* what other programs did to the machine then (experiment_run_load_text); "" nothing
                         */
        /* the search's own timings of the two, tokens/s; NAN: unknown, or no rate of decoding */
        double current_rate, candidate_rate;
        bool better; /* than the configuration that was in use; false: that one was kept */
        enum goal goal;
    } found;
};
/* Load what counts. A model that the database does not know has no evidence, and its file is not hashed.
 * *out: evidence_free, also after an error. Errors: as gguf_open, db_*; ERR_NOMEM. */
enum err_code evidence_load(struct evidence *out, struct db *d, const char *model_path,
                            const char *machine_id, struct err *why);
void evidence_free(struct evidence *e);

/* The rate of decoding from `depth` cached tokens on, in workloads of one sequence and 16 to 256 tokens. */
struct evidence_rate evidence_decode(const struct evidence *e, const char *line, int depth);
/* The rate of a prompt of `prompt` tokens with an empty cache, one sequence. */
struct evidence_rate evidence_prefill(const struct evidence *e, const char *line, int prompt);
/* What a value of one setting is worth: of the newest run that timed two configs which differ in it alone, on
 * the same workload and with as many blocks. Of several values it is the fastest one, and the level of the
 * interval is divided by their number. */
struct evidence_effect {
    int64_t run;
    const char *value; /* of the setting; borrowed */
    char with[CONFIG_LINE], without[CONFIG_LINE], workload[640];
    const char *metric; /* "decode_tok_s" or "prefill_tok_s" */
    int blocks;
    struct interval log_ratio; /* with / without, 90 % */
};
/* false: no such run. e NULL is fine. */
bool evidence_setting(const struct evidence *e, enum knob_id setting, struct evidence_effect *out);
/* Config number i that was timed, borrowed; NULL past the last. */
const struct config *evidence_config(const struct evidence *e, int i);
/* The newest decode rate of a config that evidence_decode does not count: measured on another workload than
 * `depth`, or disturbed: "640.00 tok/s on tg64 (run 3)", with the rate that the run itself reports; "" none.
 */
const char *evidence_elsewhere(const struct evidence *e, const char *line, int depth, char *buf, size_t size);

/* ---------------------------------------------------------------- ranked configurations */

/* Ranked configurations for a machine, with predictions, reasons and checks. */

struct advice {
    struct config config;
    char line[CONFIG_LINE];
    struct prediction prediction;
    double score;
    char reason[3 * CONFIG_LINE /
                2];            /* "decode is limited by memory: half the bytes, about twice the speed" */
    char caution[CONFIG_LINE]; /* "changes answers: quality not measured"; "" when there is nothing to note */
    /* KL divergence against the unchanged file on the model's text, nats per token: 0 when answers are the
     * same, NAN: not measured */
    double kld;
    char text[TEXT_LABEL]; /* name of the text that its loss was measured on; "": it was not, or answers are
                            * the same
                            */
    /* It was measured on another text than the model's only: `text` names that, foreign_kld is the loss, and
     * kld is NAN. */
    bool foreign;
    double foreign_kld; /* NAN unless foreign */
    char check[768];    /* the command that checks it by measurement */
    char workload[32];  /* of that A/B against the default; "": the check is none */
    /* What was measured of this config and workload; it replaces the prediction's rates. runs 0: nothing. */
    struct evidence_rate decode, prefill;
    bool found; /* the result of the newest search for the same goal: it ranks first */
    /* The interval of the decode rate spans more than a factor of ADVICE_VAGUE, and it was not measured. */
    bool vague;
};
#define ADVICE_VAGUE 4.0
/* Move vague advice behind the rest without changing the order otherwise. Returns how many are not vague. */
int advice_put_vague_last(struct advice *list, int n);
struct advise_options {
    enum goal goal;
    int64_t memory_limit; /* 0: the machine's memory */
    /* 0: none. Otherwise candidates above it rank last, and unmeasured ones before them */
    double kld_limit;
    const struct answer_klds *answer_klds; /* of the model; NULL: nothing was measured */
    double target_tok_s;                   /* decode rate to reach; 0: none */
    int ctx;                               /* 0: 4096, or the model's own if smaller */
    const struct correction *correction;   /* of the machine; NULL: no earlier runs */
    const struct evidence *evidence;       /* of the model on the machine; NULL: nothing was measured */
    /* Only these config lines, in their order; one that the model cannot have is left out. NULL: all that may
     * help, the best first */
    const char *const *line;
    int lines;
};
/* Predict, explain and rank configurations. *out: free(). If GPU ceilings are known (a machine description),
 * there are candidates for the GPU, too: prediction.on_gpu. Errors: as gguf_open; ERR_NOMEM. */
enum err_code advise(struct advice **out, int *n, const char *model_path, const struct machine *machine,
                     const struct machine_ceilings *ceilings, const struct advise_options *o,
                     struct err *why);

/* ---------------------------------------------------------------- strategies */

/* How much room the unchanged model leaves: it takes more than 90 %, between, or less than half of the
 * memory. */
enum strategy_room { ROOM_TIGHT, ROOM_ENOUGH, ROOM_AMPLE, STRATEGY_ROOMS };
enum strategy_need { NEED_EXACT, NEED_BALANCED, NEED_SMALL, STRATEGY_NEEDS };
/* One cell of the matrix. `arms`: config lines to compare, then flags of `qdyno ab`. */
struct strategy {
    const char *advice, *reason, *arms;
};
extern const struct strategy STRATEGIES[STRATEGY_ROOMS][STRATEGY_NEEDS];
extern const char *const STRATEGY_ROOM_NAMES[STRATEGY_ROOMS];
extern const char *const STRATEGY_NEED_NAMES[STRATEGY_NEEDS];
enum strategy_room strategy_room(int64_t bytes, int64_t have);
enum strategy_need strategy_need(enum goal goal);

/* ---------------------------------------------------------------- rules */

/* Rules: advice that follows from the hardware, the model and the goal alone, without a prediction. Each
 * finding has its reason, its evidence, and the command that checks it. */

struct rule_case {
    const char *model; /* path, for the command */
    const struct model_shape *shape;
    const struct machine *machine;
    const struct machine_ceilings *ceilings;
    const struct prediction *reference; /* of the unchanged file */
    enum goal goal;
    int64_t memory_limit; /* 0: the machine's memory */
    /* of the model on this machine; NULL: a described machine, on which nothing can be measured */
    const struct evidence *evidence;
    /* The fewest threads that are predicted to decode nearly as fast as all, and both rates. threads 0: all
     * are needed, or it is unknown. */
    struct case_threads {
        int threads;
        double tok_s, all_tok_s;
    } enough;
};
/* Predicts `enough` by the predictions that configs are ranked by, so that a rule agrees with the list. The
 * fields `machine`, `ceilings` and `reference` must be set; `what` is what the reference was predicted for.
 * Errors: as predict. */
enum err_code rule_case_find_enough(struct rule_case *c, const struct gguf *g, const struct predict_for *what,
                                    struct err *why);
/* Memory that the case has for a model: the limit, or that of the GPU or the machine. <= 0: unknown. */
int64_t rule_case_memory(const struct rule_case *c);
/* The result of one rule for one case. */
struct rule_finding {
    const char *rule; /* its name in RULES */
    char advice[256], reason[320], evidence[WORKLOAD_LINE + 256];
    char check[768]; /* "" when it can only be checked on the machine itself */
};
enum { RULES_MAX = 32 };
/* Evaluate all rules in the order of the table. Returns the number of findings written to out. */
int rules_apply(struct rule_finding out[RULES_MAX], const struct rule_case *c);

#endif
