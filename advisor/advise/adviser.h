/* advisor/advise/adviser.h - what the files that make one advice share (internal). */
#ifndef QDYNO_ADVISOR_ADVISE_ADVISER_H
#define QDYNO_ADVISOR_ADVISE_ADVISER_H

#include "advisor/advise/advise.h"

/* One call of advise(). Written by advise.c. */
struct adviser {
    const char *path;
    struct gguf *g;
    struct model_shape shape;
    const struct machine *machine;
    const struct machine_ceilings *ceilings;
    const struct advise_options *o;
    int ctx;
    bool on_gpu; /* whether the current candidates run on the GPU */
    bool every;  /* the current candidates are listed whether or not they are predicted to help */
    /* the unchanged file with default settings, on the device that runs it best */
    struct prediction reference,
        predicted; /* of "default": measured rates replace predicted ones; without them */
    struct advice *list;
    int n, cap;
};

/* ---------------------------------------------------------------- advise.c */

/* Predict a config at the adviser's context. Errors: as predict(). */
enum err_code adviser_predict(const struct adviser *a, struct prediction *p, const struct config *c,
                              bool on_gpu, struct err *why);
/* Predict the same config with one key changed; false: impossible. */
bool adviser_predict_with(const struct adviser *a, struct prediction *p, const struct config *c,
                          const char *key, const char *value);
/* Points to subtract from the score of a configuration with this loss; 0 within the limit. */
double adviser_kld_penalty(const struct adviser *a, double kld);

/* ---------------------------------------------------------------- reasons.c */

/* Each fills in the fields of its name. The config, the prediction and the rates must be known. */
void advice_set_loss(const struct adviser *a, struct advice *v);
void advice_set_reason(const struct adviser *a, struct advice *v);
void advice_set_caution(const struct adviser *a, struct advice *v);

/* ---------------------------------------------------------------- checks.c */

/* The command that checks an advice by measurement: v->check. path: the model's file. */
void advice_set_check(struct advice *v, const char *path);

#endif
