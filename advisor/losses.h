/* advisor/losses.h - what earlier runs measured of a model's answers: KL divergence against the file as it
 * is, by those settings of a configuration that decide what it says. */
#ifndef QDYNO_ADVISOR_LOSSES_H
#define QDYNO_ADVISOR_LOSSES_H

#include "db/db.h"
#include "engine/config/config.h"

/* The part of a configuration that decides what the model says, as a line; "default" when it is the file as
 * it is.
 */
void answer_line(const struct config *c, char *out, size_t size);

struct loss {
    char answer[640];
    double kld;     /* mean, nats a token, of the newest measurement */
    int64_t run_id; /* that measured it */
};
struct losses {
    struct loss *row; /* [n] */
    int n;
};

/* Of the model in that file, from evals, tunes and A/B runs whose reference was the file as it is. A model
 * the database has never seen has none, and is not hashed to find out. *out: losses_free, also after an
 * error. Errors: as gguf_open, db_*; ERR_NOMEM. */
enum err_code losses_load(struct losses *out, struct db *d, const char *model_path, struct err *why);
void losses_free(struct losses *l);

/* Of a configuration; NULL: nobody measured it. */
const struct loss *losses_find(const struct losses *l, const struct config *c);

#endif
