/* engine/quant/plugin.h - methods from shared libraries. Internal to engine/quant/; the door is quant.h.
 *
 * The program itself never runs a plug-in's code: it forks, and the child loads the library. What comes back
 * (a description as JSON, numbers in shared memory) is checked like a file of unknown origin. */
#ifndef QDYNO_ENGINE_QUANT_PLUGIN_H
#define QDYNO_ENGINE_QUANT_PLUGIN_H

#include <qdyno_plugin.h>

#include "engine/quant/quant.h"

struct plugin {
    struct method method; /* first: a method of ours is found again by its address */
    enum qdyno_answer answer;
    char *path; /* absolute */
    char hash[HASH_HEX];
    struct arena memory; /* of all text in method */
};

/* The rows behind the built-in ones of METHODS. */
size_t plugin_count(void);
const struct method *plugin_at(size_t i);

/* Method `tensor` of every plug-in. */
enum err_code plugin_encode(struct tensor_job *job, struct err *why);

/* From the description of a child. The path is copied. ERR_FORMAT: it is not one that can be used, ERR_NOMEM.
 * *out owned: plugin_free. */
enum err_code plugin_from_json(struct plugin **out, const char *path, const json_t *description,
                               struct err *why);
void plugin_free(struct plugin *p);

/* ---------------------------------------------------------------- processes */

/* A few children, each of which loads the library and works on its part. */
struct plugin_crew {
    const char *path;
    const char *doing; /* "encoding 'blk.0.attn_q.weight'", for messages */
    int count;
    int64_t patience_ns; /* without any progress, after which it counts as hanging */
    /* In child `member`: what it has to say is appended to *out; not 0: that is a reason, and it failed. */
    int (*work)(void *arg, int member, const struct qdyno_plugin *plugin, struct str *out);
    /* In the parent, right before (on) and after child `member` is forked: what no other may see. NULL: none.
     */
    void (*lend)(void *arg, int member, bool on);
    int64_t (*done)(void *arg); /* grows while there is progress; NULL: there is none to be seen */
    void *arg;
};

/* Run all of them to their end. *answer: what child 0 said. Errors: ERR_FORMAT (it cannot be loaded, is made
 * for another version, failed with a reason, died, hangs), ERR_FIT (killed, which is what happens when memory
 * runs out), ERR_CANCELLED (Ctrl-C), ERR_NOMEM, ERR_INTERNAL (no process). Nothing is left running. */
enum err_code plugin_crew_run(const struct plugin_crew *crew, struct str *answer, struct err *why);

/* How long a plug-in may work without progress: QDYNO_PLUGIN_TIMEOUT, else 60 s. ERR_USAGE. */
enum err_code plugin_patience(int64_t *ns, struct err *why);

#endif
