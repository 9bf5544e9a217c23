/* advisor/advise.h - configurations for this machine, predicted, each with reason and check. */
#ifndef QDYNO_ADVISOR_ADVISE_H
#define QDYNO_ADVISOR_ADVISE_H

#include "advisor/losses.h"
#include "advisor/predict.h"

enum goal { GOAL_BALANCED, GOAL_SPEED, GOAL_QUALITY, GOAL_MEMORY, GOAL_ENERGY };
const char *goal_name(enum goal g);
bool goal_parse(const char *name, enum goal *out);

struct advice {
    struct config config;
    char line[640];
    struct prediction prediction;
    double score;
    char reason[256];  /* "decode is bandwidth-bound here: half the bytes, near twice the speed" */
    char caution[256]; /* "changes answers: quality not measured yet"; "" when none */
    double kld;        /* nats a token lost against the file as it is: 0 without a loss, NAN: not measured */
    char check[768];   /* the command that checks it */
};
struct advise_options {
    enum goal goal;
    int64_t memory_limit;        /* 0: what the machine has */
    double kld_limit;            /* 0: none. Else what loses more is last, what was not measured before it */
    const struct losses *losses; /* of the model; NULL: nothing was measured */
    double target_tok_s;         /* of decoding; 0: none */
    int ctx;                     /* 0: 4096 or the model's own when smaller */
    const struct lessons *lessons; /* of the machine; NULL: nothing was learned */
};
/* Ranked best first; *out: free(). Of a machine whose GPU's ceilings are known (a description) there are
 * configs for the GPU, too: prediction.on_gpu. */
enum err_code advise(struct advice **out, int *n, const char *model_path, const struct machine *machine,
                     const struct machine_ceilings *ceilings, const struct advise_options *o,
                     struct err *why);

#endif
