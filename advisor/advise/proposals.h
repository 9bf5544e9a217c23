/* advisor/advise/proposals.h - configurations that run on a model file, to compare it with. */
#ifndef QDYNO_ADVISOR_PROPOSALS_H
#define QDYNO_ADVISOR_PROPOSALS_H

#include "engine/config/config.h"

struct gguf;
struct model_shape;

/* Configurations that run on the model, the most useful first. */
enum { PROPOSALS = 6 };
struct proposals {
    int count;
    bool quantized; /* the file is quantized already: no recipe runs on it */
    struct proposal {
        char line[CONFIG_LINE], about[64];
        bool changes_answers;
    } row[PROPOSALS];
};
/* Those of the model in g, at `path`. Reads the headers of other files in its folder. */
void proposals_make(struct proposals *out, const struct gguf *g, const struct model_shape *shape,
                    const char *path);

/* The file of the same model with the next larger size in the same folder, else with the next smaller one.
 * Returns buf: its path; "": there is none. */
char *proposals_sibling(char *buf, size_t size, const struct gguf *g, const struct model_shape *shape,
                        const char *path);

#endif
