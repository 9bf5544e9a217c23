/* advisor/tune/parts.h - what the files of advisor/tune/ share. A search is one struct tuning of parts; each
 * part names the file that writes it, and the others read it. */
#ifndef QDYNO_ADVISOR_TUNE_PARTS_H
#define QDYNO_ADVISOR_TUNE_PARTS_H

#include "advisor/predict/predict.h"
#include "advisor/run/run.h"
#include "advisor/tune/tune.h"

/* What is searched. Written by tune.c before the race, constant afterwards. */
struct tune_task {
    const struct tune_options *o;
    const struct metric *metric; /* the rate that is raced */
    struct gguf *file;
    struct model_shape shape;
    struct tune_space space;
    int recipe_dim; /* index of the dimension "recipe"; -1: no recipes to choose from */
    struct correction *correction;
    struct predict_for what;
    struct prediction reference; /* of the current configuration */
};

/* The measured quality of all configs with the same answer line. */
struct tune_answer {
    char line[CONFIG_LINE];
    double kld, kld_se, ppl_ratio;
    bool failed;
};

/* What is known of the candidates. Speeds are written by speed.c, answers by measure.c. */
struct tune_knowledge {
    struct tune_candidate *list; /* [n], owned; [0] is the current configuration */
    int n;
    struct tune_regression *speed; /* of ln(rate / predicted), owned */
    struct tune_regression *kld;   /* of ln(KL divergence / its prior), owned */
    struct tune_answer *answer;    /* [answers], owned */
    int answers, answer_room;
};

/* Mean cost of one kind of step in seconds; NAN before the first. */
struct tune_mean {
    double seconds;
    int n;
};

/* What the steps of a search cost. Written by the file that takes the step. */
struct tune_costs {
    struct tune_mean timing, quality; /* one measurement of speed, of quality */
    struct tune_mean cell, start;     /* parts of a timing: one cell; starting the process */
    struct tune_mean recipe;          /* making a recipe's file */
    bool made[TUNE_VALUES];           /* recipes whose file exists, by value of the dimension "recipe" */
};

/* The noise of timings. Written by speed.c. */
struct tune_noise {
    double sd, sum; /* of ln(rate) of one cell; sum of squares so far */
    int n;
    double dispersion, dispersion_sum; /* factor on the variance of all timings, at least 1 */
    int dispersion_n;
};

/* The run in the database. Written by measure.c. */
struct tune_record {
    struct db *db;
    struct run run;
    bool started;        /* the run has a row, which this process holds */
    double spent_before; /* seconds, by earlier resumptions */
    int64_t begun_ns;
    int64_t confirm_run; /* 0: none */
};

/* Tokens of a window where the workload is no longer: as in earlier versions, whose searches can be resumed.
 */
enum { TUNE_QUALITY_CTX = 256 };

/* What measuring quality keeps open. Private to measure.c. */
struct tune_quality {
    struct model *original;         /* the unchanged model, opened when first needed */
    struct logit_cache logit_cache; /* its logits on the text */
    char *text;                     /* read before the run begins */
    size_t text_n;
    char path[4096], sha256[HASH_HEX]; /* of the text */
};

/* The task of limits.accuracy. Private to accuracy.c. */
struct tune_asked {
    struct task_set set;
    struct task_answers reference; /* of the unchanged file; n 0: not asked yet */
    char sha256[HASH_HEX];         /* of the file */
};

/* What timing keeps open. Private to speed.c. */
struct tune_scratch {
    struct conditions_probe *probe[2]; /* for one thread, for all; opened when first needed */
};

struct tuning {
    struct tune_progress now; /* written by progress.c and tune.c */
    struct tune_task task;
    struct tune_knowledge known;
    struct tune_costs costs;
    struct tune_noise noise;
    struct tune_record record;
    struct tune_quality quality;
    struct tune_asked asked;
    struct tune_scratch scratch;
    struct tune_result *out; /* written by tune.c */
};

/* ---------------------------------------------------------------- measure.c */

double tune_spent(const struct tuning *t); /* seconds, over all resumptions */

/* The config of a candidate. Errors: ERR_INTERNAL. */
enum err_code tune_config(struct config *out, const struct tuning *t, const struct tune_candidate *c,
                          struct err *why);
/* Open the model with this config and at most so many tokens of context, reporting that it goes on. */
enum err_code tune_open_model(struct model **out, struct tuning *t, const struct config *c, int ctx,
                              struct err *why);
/* The unchanged file: nothing of the config but its permission to run unknown parts. */
void tune_config_as_is(struct config *out, const struct config *c);
/* Number `index` of the space, or -1, with all that is measured unknown. */
struct tune_candidate tune_candidate_unknown(int64_t index);
/* Fill the fields that are known before any measurement, of one that is unknown. */
void tune_describe(struct tune_candidate *c, const struct tuning *t, const struct config *config,
                   const struct prediction *p);
/* Expected seconds to make the recipe of candidate i; 0 when it is made or none is needed. */
double tune_make_s(const struct tuning *t, int i);
/* Measure the KL divergence of candidate i over `windows` windows of text; updates the candidate, the
 * regression and the database. A candidate that fails is a result (ERR_OK). Errors: ERR_CANCELLED, ERR_NOMEM;
 * as db_*. */
enum err_code tune_measure_quality(struct tuning *t, int i, int windows, struct err *why);
/* Insert the run's row, or reopen the one to resume. Errors: ERR_USAGE, as db_*. */
enum err_code tune_run_begin(struct tuning *t, struct err *why);
/* Restore all measurements of a resumed run from its cells. */
enum err_code tune_restore(struct tuning *t, struct err *why);
/* Close the unchanged model, its logits, the text and the probes. */
void tune_release(struct tuning *t);

/* Running mean: take the n-th value x into it. */
void tune_average(double *mean, int n, double x);
/* Add what a measurement of candidate i cost. If it had to make a recipe first, the excess over the mean
 * counts as the cost of making it. */
void tune_add_cost(struct tuning *t, int i, struct tune_mean *mean, double seconds);

/* ---------------------------------------------------------------- accuracy.c */

/* Read the task of limits.accuracy; without such a limit nothing. Errors: ERR_USAGE (no file; too few items
 * for the limit); those of file_read and task_set_parse. */
enum err_code tune_task_read(struct tuning *t, struct err *why);
void tune_task_release(struct tuning *t);
/* Must candidate i be asked before it may win? */
bool tune_accuracy_missing(const struct tuning *t, int i);
/* Ask candidate i, and first the unchanged model. Results and errors as tune_measure_quality; also those of
 * asking the unchanged model. */
enum err_code tune_measure_accuracy(struct tuning *t, int i, struct err *why);

/* ---------------------------------------------------------------- confirm_time.c */

/* Expected seconds of a confirmation of so many arms that can reach a verdict: starting, warm-up, the blocks.
 * NAN: nothing was timed yet. */
double tune_confirm_s(const struct tuning *t, int arms, bool control);
/* Seconds that the race leaves to the confirmation: as much as a verdict takes, but at least a third of the
 * budget and at most 70 %. 0: the search ends without a confirmation. */
double tune_reserve_s(const struct tuning *t);
/* A whole budget with which the search ends, if the confirmation takes so many seconds more. NAN: as many as
 * a new one takes. */
double tune_enough_s(const struct tuning *t, int arms, double more_s);
/* A whole budget with which a race that the budget ended goes on: enough for a next measurement of so many
 * seconds and a confirmation, and at least twice the given one. */
double tune_enough_for_race_s(const struct tuning *t, double next_s);
/* The number of A/A blocks that a confirmation of so many arms has time for, as in struct experiment_spec. */
int tune_control_blocks(const struct tuning *t, int arms);

/* ---------------------------------------------------------------- decide.c */

/* Blocks of a confirmation that compare the current configuration with itself, before the others. */
enum { TUNE_CONTROL = 3 };
/* Decimals with which a rate is printed: three significant digits, and no exponent. */
int tune_decimals(double rate);
/* The smallest number of blocks after which so many arms can have a verdict. */
int tune_fewest_blocks(int arms);
/* Set r->because and r->enough_s of a candidate with too few blocks for a claim in a comparison of so many
 * arms. enough_s: the budget that should be enough. */
void tune_explain_undecided(struct tune_result *r, int arms, double enough_s);
/* Take over what the experiment `what` says of an arm against arm A; r->because only where it is invalid. */
void tune_take_comparison(struct tune_result *r, const struct experiment_state *s, int arm, const char *what);
/* Write what the confirmation of these candidates says into the result. Pure but for that. */
void tune_decide(struct tuning *t, const struct experiment_state *s, int winner, int second);

/* ---------------------------------------------------------------- sentence.c */

/* How the winner differs from the current configuration: "at least 3.1 % faster (95 %: ...), with the same
 * memory; its settings do not change answers". Returns buf. */
enum { TUNE_CHANGE = 400 };
char *tune_change(char *buf, size_t size, const struct tune_result *r);

/* ---------------------------------------------------------------- reason.c: pure */

/* Why nothing that was measured replaces the current configuration, as the end of a sentence: the best
 * measured one is slower, or what rules it out, or that nothing else was measured and why. */
void tune_explain_kept(char *buf, size_t size, const struct tuning *t);

/* Store the estimates that choose the finalists with all timed candidates. */
void tune_keep_expected(struct tuning *t);
/* Fill t->out->passed, after the decision. */
void tune_explain_passed(struct tuning *t);

/* ---------------------------------------------------------------- run.c */

/* The run to resume, if it is a search that is not finished. *row owned, also after an error: run_row_free.
 * Errors: ERR_USAGE; those of the database. */
enum err_code tune_resumed_run(struct run_row *row, struct db *d, int64_t id, struct err *why);
/* What the run of a search is stored with, beside the options. */
struct tune_run_about {
    const char *label;  /* the config that the others are compared with */
    const char *metric; /* its name */
    const char *spec_json;
    const char *sha256; /* of o->model_path */
    const struct model_shape *shape;
};
/* Inserts the run's row, or locks and reopens o->resume_id. Errors: those of run_begin and db_run_lock. */
enum err_code tune_run_open(struct run *run, struct db *d, const struct tune_options *o,
                            const struct tune_run_about *about, struct err *why);

/* Run an experiment to its end. `each` is called while it runs, and once after; *goes_on false stops it. *s:
 * its last state. Errors: those of experiment_start and of `each`; ERR_CANCELLED (stopped); what the
 * experiment failed with. */
typedef enum err_code tune_experiment_fn(void *ctx, const struct experiment_state *s, bool *goes_on,
                                         struct err *why);
enum err_code tune_experiment(const struct tune_options *o, const struct experiment_spec *spec,
                              struct experiment_state *s, tune_experiment_fn *each, void *ctx,
                              struct err *why);

/* ---------------------------------------------------------------- foreign.c */

/* As tune(), where tune_is_foreign. *out is initialized. */
enum err_code tune_foreign(struct tune_result *out, const struct tune_options *o, struct err *why);

/* ---------------------------------------------------------------- variants.c */

/* Does the search choose between files, or is it to reach a target? */
bool tune_is_variants(const struct tune_options *o);
/* As tune(), for those. *out is initialized. */
enum err_code tune_variants(struct tune_result *out, const struct tune_options *o, struct err *why);

/* ---------------------------------------------------------------- variants_space.c */

/* The configs of --space for one base config, without the base itself. *list: [*n] owned. Errors: ERR_USAGE
 * (a contradiction; more than TUNE_FOREIGN), ERR_NOMEM. */
enum err_code variants_space(struct config **list, int *n, const struct config *base, const char *space,
                             struct err *why);
/* Without a space: what an ordinary search of one model, of so many seconds, found promising. At most `most`.
 */
enum err_code variants_raced(struct config *list, int *n, int most, const struct tune_options *o,
                             double budget_s, struct err *why);

/* ---------------------------------------------------------------- target.c: pure */

/* How far the figures are from what the gate asks, the worst term relative to its bound: 0 when all terms
 * hold by their values; INFINITY when a figure is unknown. */
double target_distance(const struct gate *g, const struct gate_result *r);
/* The candidate that the answer is about, and the answer. judged[n] and list[n] belong together. Reached: of
 * those that pass the one with the least loss, with `fastest` the one with the largest rate. */
void target_answer(struct tune_target *out, const struct gate *g, const struct gate_result *judged,
                   const struct tune_candidate *list, int n, bool fastest);

/* ---------------------------------------------------------------- spec.c */

/* What all searches store of their options. New reference. */
json_t *tune_options_json(const struct tune_options *from, const char *text, const char *text_sha256,
                          const char *current, int quality_ctx);
/* The options of this search as JSON, for the run's row. Owned; NULL: out of memory. */
char *tune_spec_json(const struct tuning *t);
/* A stored text as JSON, owned; NULL: there is none, or it is none. */
json_t *tune_stored_json(const char *text);
/* Does the stored one name another content of the text than this SHA-256? */
bool tune_spec_text_differs(const char *then, const char *sha256);
/* Do two of them agree in everything but the budget? */
bool tune_spec_same(const char *then, const char *now);

/* ---------------------------------------------------------------- progress.c */

/* For arms and long work: tell the caller that it goes on; false when the search shall stop. ctx: struct
 * tuning. */
bool tune_event(void *ctx, const json_t *event);
/* Begin a phase, or another measurement of it: `what` and `config` as in struct tune_progress, "" none.
 * Updates the leaderboard. False: stop. */
bool tune_report(struct tuning *t, const char *what, const char *config);
/* Set the reason of the next measurement. */
void tune_explain(struct tuning *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The state of an experiment's leading challenger. */
void tune_progress_take(struct tune_progress *now, const struct experiment_state *s);
/* The state of the confirmation. False: stop. */
bool tune_report_confirmation(struct tuning *t, const struct experiment_state *s);

/* ---------------------------------------------------------------- speed.c */

/* One cell of a timing. */
struct tune_cell {
    double rate;          /* tokens/s */
    double ln_normalized; /* ln of the rate under usual machine conditions */
    double sd;            /* of ln_normalized, from what is unknown of the conditions */
};
/* The result of one timing. */
struct tune_timing {
    double rate;            /* tokens/s, mean of the cells */
    double normalized_rate; /* under usual machine conditions: what the race compares */
    double sd;              /* of ln normalized_rate */
};
extern const char TUNE_RACE[]; /* phase of the cells of timings */

/* Time candidate i: updates the candidate, the regression and the database. Results and errors as
 * tune_measure_quality. */
enum err_code tune_measure_speed(struct tuning *t, int i, struct err *why);
/* Predicted rate under usual conditions / under these; 1: unknown. */
double tune_normalization(const struct tune_task *task, const struct config *c,
                          const struct conditions *conditions);
/* Normalize a cell by the factors of the probes before and after it. */
struct tune_cell tune_cell_normalize(double before, double after, double rate);
struct tune_timing tune_timing_combine(const struct tune_noise *noise, const struct tune_cell *cell, int n);
/* Update a candidate, the regression and the dispersion with a timing. */
void tune_add_timing(struct tuning *t, struct tune_candidate *c, struct tune_timing timing);
/* The same with a timing that is stored as this cell. */
void tune_restore_timing(struct tuning *t, struct tune_candidate *c, int64_t cell_id);
void tune_probes_close(struct tune_scratch *s);
double tune_predicted(const struct tune_task *task, const struct prediction *p); /* the rate that is raced */

/* ---------------------------------------------------------------- choose.c: pure */

/* Prior mean of ln(KL divergence) of a config. */
double tune_prior_ln_kld(const struct config *c);
/* Is there nothing left to measure of its quality, because it is known or cannot differ from the current
 * configuration's? */
bool tune_quality_known(const struct tune_candidate *c);
/* Posterior mean and sd of ln(normalized rate): regression and own timings, weighted by precision. */
void tune_estimate_speed(const struct tuning *t, int i, double *mean, double *sd);
/* Posterior mean and sd of ln(KL divergence) of a candidate whose answers were not measured. */
void tune_estimate_kld(const struct tuning *t, int i, double *mean, double *sd);
/* Probability that the answers are within the limits; 0 or 1 once they were measured. */
double tune_feasibility(const struct tuning *t, int i);
/* Score by goal for this ln(rate), relative to the current configuration; KL divergence measured or
 * estimated. */
double tune_score(const struct tuning *t, const struct tune_candidate *c, double ln_rate);
/* The best timed candidate whose answers are within the limits, other than `except`; -1: none. */
int tune_best(const struct tuning *t, int except);
struct tune_choice {
    int candidate;
    bool quality;       /* measure its answers, otherwise its speed */
    bool leads;         /* it is the best so far */
    double improvement; /* expected, of the score */
    double seconds;     /* expected, of all that is to be measured of it */
};
/* What limits the choice. Seconds: of the race, and of the whole budget; until a candidate beats the current
 * configuration, a measurement may use the time that is kept for the confirmation. */
struct tune_bounds {
    double least; /* improvement that is worth a measurement */
    double left_s, all_left_s;
    int most_timings; /* of one candidate */
};
/* Choose the measurement with the largest expected improvement per second. False: none promises enough and
 * ends in time. */
bool tune_next(const struct tuning *t, const struct tune_bounds *b, struct tune_choice *out);
int64_t tune_timed(const struct tuning *t); /* number of timed candidates without the current one */
bool tune_within_limits(const struct tuning *t, const struct tune_candidate *c);

#endif
