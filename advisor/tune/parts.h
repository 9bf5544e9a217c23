/* advisor/tune/parts.h - what the files of one search share. Inside advisor/ only.
 *
 *   space.c    what may be tried (pure)
 *   belief.c   what is known of what was not (pure)
 *   speed.c    one look at speed, between looks at the machine
 *   measure.c  one look at quality; all looks into the database and out of it
 *   choose.c   scores; which look promises most (pure but for predictions)
 *   tune.c          the run: prune, race, confirm, decide */
#ifndef QDYNO_ADVISOR_TUNE_PARTS_H
#define QDYNO_ADVISOR_TUNE_PARTS_H

#include "advisor/run/run.h"
#include "advisor/predict/predict.h"
#include "advisor/tune/tune.h"

struct tuning {
    const struct tune_options *o;
    struct tune_result *out;
    struct db *db;
    struct run_row run;
    bool started; /* the run has a row, and we hold it */
    struct gguf *file;
    struct model_shape shape;
    struct tune_space space;
    struct correction *correction;
    struct prediction reference; /* of the current configuration */
    struct predict_for what;
    struct tune_candidate *list; /* [n] that fit; [0] is the current configuration */
    int n;
    struct tune_belief *speed, *loss; /* ln rate / predicted; ln KL divergence / guessed */
    /* answers that were measured: the answer-changing part of a line, and what it loses */
    struct tune_answer {
        char line[640];
        double kld, kld_se, ppl_ratio;
        bool failed;
    } * answer;
    int answers, answer_room;
    struct model *as_is;            /* the reference of quality, opened when first needed */
    struct logit_cache logit_cache; /* and what it said of the text */
    char *text;
    size_t text_n;
    double look_s, judge_s; /* what one look at speed, and at quality, took on average; NAN */
    double cell_s, start_s; /* a look's cell, and starting its process, on average; NAN */
    int looks, judged, cells, starts;
    double noise, noise_sum; /* of one cell, ln: from cells that followed each other; squares so far */
    /* by how much looks at one configuration differ, of what they say: variances */
    double misfit, misfit_sum;
    int noise_n, misfit_n;
    double make_s;          /* of making a recipe's file, on average; NAN */
    int makes, recipe_dim;  /* -1: no recipes to choose from */
    bool made[TUNE_VALUES]; /* by value of that dimension */
    double spent_before;    /* by earlier resumptions */
    int64_t begun_ns;
    struct conditions_probe *watch[2]; /* for one thread, and for all; opened when first needed */
    struct sample *window;             /* [WINDOW_SAMPLES] scratch */
    struct sample_row *stored;
    int64_t confirm_run;
};

double tune_spent(const struct tuning *t);

/* ---------------------------------------------------------------- measuring */

/* What a candidate's line says. */
enum err_code tune_config(struct config *out, const struct tuning *t, const struct tune_candidate *c,
                          struct err *why);
/* Fill what can be said of a configuration before anything is measured. */
void tune_describe(struct tune_candidate *c, const struct tuning *t, const struct config *config,
                   const struct prediction *p);
struct tune_answer *tune_answer_find(const struct tuning *t, const char *line);
/* Seconds before candidate i can be looked at: its recipe is made once, and then lies in the cache. */
double tune_make_s(const struct tuning *t, int i);
/* One look at the speed of candidate i: updates it, the belief, the database. Its failure is a result
 * (ERR_OK). Errors: ERR_CANCELLED; what is wrong with the database. */
enum err_code tune_look(struct tuning *t, int i, struct err *why);
/* What its answers lose against the file as it is, over that many windows. As tune_look. */
enum err_code tune_judge(struct tuning *t, int i, int windows, struct err *why);
/* The run's row; and all that its cells say, for one that goes on. */
enum err_code tune_begin(struct tuning *t, struct err *why);
enum err_code tune_recall(struct tuning *t, struct err *why);
void tune_end(struct tuning *t); /* as_is, logit_cache, text */

/* One cell of a look at speed. */
struct tune_cell {
    double rate;     /* tokens/s */
    double ln_usual; /* of what it would have been on the usual machine */
    double doubt;    /* sd of that by what is not known of the machine */
};
/* What one look at speed found. */
struct tune_timing {
    double rate;       /* tokens/s, mean of its cells */
    double usual_rate; /* what it would have been on the usual machine: what the race goes by */
    double sd;         /* of the logarithm of that */
};
extern const char TUNE_RACE[]; /* phase of its cell */
/* How much faster the usual machine would be than one that was looked at; 1: nobody knows. */
double tune_usual_factor(const struct tuning *t, const struct config *c, const struct conditions *now);
/* Of a cell between two looks at the machine, by what they say; and of all cells of a look. */
struct tune_cell tune_cell_between(double before, double after, double rate);
struct tune_timing tune_timing_of(const struct tuning *t, const struct tune_cell *cell, int n);
/* Learn from a look; and from one that is in the database. */
void tune_learn_speed(struct tuning *t, struct tune_candidate *c, struct tune_timing now);
void tune_speed_recall(struct tuning *t, struct tune_candidate *c, int64_t cell_id);
void tune_speed_close(struct tuning *t);
double tune_predicted(const struct tuning *t, const struct prediction *p); /* of the rate that is raced */

/* For arms: false when the search shall stop. And what is being done. */
bool tune_event(void *ctx, const json_t *event);
bool tune_tell(const struct tuning *t, const char *what, const char *line);
/* Take the n-th x into the mean. */
void tune_average(double *mean, int n, double x);
/* What a look at candidate i took, into mean[n], apart from making the recipe where that was part of it. */
void tune_learn_cost(struct tuning *t, int i, double *mean, int *n, double seconds);

/* ---------------------------------------------------------------- choosing */

/* ln of the KL divergence to expect of a configuration, before anything is measured. */
double tune_guess(const struct config *c);

/* ln rate, known as well as it is: what was measured and what is believed, by their precision. */
void tune_speed_of(const struct tuning *t, int i, double *mean, double *sd);
/* Is its answer within the limits? Probability; 0 or 1 once it was measured. */
double tune_chance(const struct tuning *t, int i);
/* Score by goal for a given ln rate; KL divergence as measured, or as believed. */
double tune_score(const struct tuning *t, const struct tune_candidate *c, double ln_rate);
/* Believed KL divergence of an answer that was not measured: mean and sd of its logarithm. */
void tune_loss_of(const struct tuning *t, int i, double *mean, double *sd);
/* The best that was measured and is within the limits; -1: none. `beside`: another than this one. */
int tune_best(const struct tuning *t, int beside);
/* The candidate whose next look promises most for its time, and which look; false: none promises `least` or
 * more, or none whose looks end within left_s, once something better than the current one was found. None is
 * timed more than most_looks times. */
bool tune_next(const struct tuning *t, double least, double left_s, int most_looks, int *candidate,
               bool *judge);
bool tune_within_limits(const struct tuning *t, const struct tune_candidate *c);

#endif
