/* engine/quant/plugin.h - methods from shared libraries. Internal to engine/quant/; quant.h is the public
 * header.
 *
 * The program never runs a plug-in's code itself: it forks, and the child loads the library. What comes back
 * (a description as JSON, numbers in shared memory) is checked like an untrusted file. */
#ifndef QDYNO_ENGINE_QUANT_PLUGIN_H
#define QDYNO_ENGINE_QUANT_PLUGIN_H

#include <qdyno_plugin.h>

#include "engine/quant/quant.h"

struct plugin {
    struct method method; /* first member: a method's address is converted back to its plug-in's */
    enum qdyno_answer answer;
    char *path; /* absolute */
    char hash[HASH_HEX];
    struct arena memory; /* owns all text in method */
};

/* Methods of plug-ins, which METHODS lists after the built-in ones. */
size_t plugin_count(void);
const struct method *plugin_at(size_t i);

/* The function `tensor` of every plug-in's method. */
enum err_code plugin_encode(struct tensor_job *job, struct err *why);

/* Build a plug-in from the description that a child sent. The path is copied. *out is owned: plugin_free.
 * Errors: ERR_FORMAT (the description is invalid), ERR_NOMEM. */
enum err_code plugin_from_json(struct plugin **out, const char *path, const json_t *description,
                               struct err *why);
void plugin_free(struct plugin *p);

/* ---------------------------------------------------------------- processes */

/* A group of child processes, each of which loads the library and does its part of the work. */
struct plugin_crew {
    const char *path;
    const char *doing;   /* for messages: "encoding 'blk.0.attn_q.weight'" */
    int count;           /* number of children */
    int64_t patience_ns; /* a crew without progress for this long counts as hanging */
    /* Runs in child `member`: appends its answer to *out. Not 0: it failed, and *out is the reason. If the
     * child is then short of memory (base/memory.h), that is the result, and *out completes the message. */
    int (*work)(void *arg, int member, const struct qdyno_plugin *plugin, struct str *out);
    /* Runs in the parent right before (on = true) and right after (on = false) the fork of child `member`:
     * lets the fork inherit the memory that the child shares with the parent, so that no other child has it.
     * Returns 0 or an errno. May be NULL. */
    int (*lend)(void *arg, int member, bool on);
    int64_t (*done)(void *arg); /* a counter that grows with progress; NULL: progress is not visible */
    void *arg;
};

/* Run all children to their end. *answer (may be NULL): what child 0 answered. Errors: ERR_FORMAT (the
 * library cannot be loaded, is for another version, failed with a reason, crashed or hangs), ERR_FIT (killed,
 * probably because memory ran out), ERR_CANCELLED (Ctrl-C), ERR_NOMEM (in a child, too), ERR_INTERNAL (fork
 * failed). No child is left running. */
enum err_code plugin_crew_run(const struct plugin_crew *crew, struct str *answer, struct err *why);

/* *ns: for how long a plug-in may make no progress before it counts as hanging and is killed. From the
 * environment variable QDYNO_PLUGIN_TIMEOUT, default 60 s. ERR_USAGE: the variable is no time. */
enum err_code plugin_patience(int64_t *ns, struct err *why);

#endif
