/* advisor/recipe_search.h - a recipe of single tensors that beats every uniform one of its size, or the
 * honest answer that it does not.
 *
 * Sensitivities (advisor/sensitivity.h) say what each tensor costs alone, a Lagrangian allocation
 * (advisor/allocate.h) says who gets the bytes, and a text that took no part in the choice says whether it
 * was worth it: the mixed recipe and the uniform ones of at most its size are made and compared with the
 * model as it is, window by window. */
#ifndef QDYNO_ADVISOR_RECIPE_SEARCH_H
#define QDYNO_ADVISOR_RECIPE_SEARCH_H

#include "advisor/recipe_rules.h"
#include "advisor/sensitivity.h"
#include "advisor/stats.h"

struct recipe_search {
    const char *model_path;
    const struct config *config; /* how it runs; no recipe in it */
    const char *formats;         /* NULL: SENSITIVITY_FORMATS */
    /* one of these three */
    const char *like;                   /* as large as this uniform format makes the model: "q4_K" */
    int64_t bytes;                      /* of the file, at most; 0: not asked */
    double kld;                         /* on the search text, at most; NAN: not asked */
    const char *text_file, *check_file; /* NULL: the bundled calibration text and the bundled held-out one;
                                           with text_file alone its second half is what checks */
    int ctx;                            /* 0: 256 */
    int64_t windows, check_windows;     /* 0: 12 and 32 */
    double budget_s;                    /* of measuring sensitivities */
    struct db *db;
    const struct log *log;
    bool (*progress)(void *ctx, const char *what, int done, int of);
    void *progress_ctx;
};

struct recipe_figures {
    char line[RECIPE_LINE]; /* "" : none */
    int64_t bytes;          /* of the weights */
    int64_t file_bytes;
    double kld, kld_se, top1_ratio; /* on the text that checks; NAN unknown */
};

struct recipe_found {
    char model_sha256[HASH_HEX], basis[96];
    int tensors, measured, estimated, of;
    struct recipe_figures mixed, uniform; /* uniform: the best one of at most the size asked for */
    double predicted_kld;                 /* sum of single costs */
    double search_kld;                    /* of all together on the text that was searched on */
    /* ln of the ratio of their KL divergences, window by window; negative: the mixed one is nearer to the
     * model */
    struct interval difference;
    int64_t windows;     /* that were checked */
    bool beats;          /* the interval excludes 0 on the good side: the mixed recipe is recommended */
    bool random_weights; /* then none of this means anything for answers */
    char reason[256];    /* why not, "" otherwise */
};

/* Errors: those of sensitivities_measure and quantize; ERR_USAGE for a target that is none; ERR_FIT when no
 * mix reaches the target (says the nearest); ERR_CANCELLED. Not being better is no error: see beats. */
enum err_code recipe_search(struct recipe_found *out, const struct recipe_search *o, struct err *why);

#endif
