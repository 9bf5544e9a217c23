/* engine/parallel/parallel.h - several processes that run one model together.
 *
 * The process that wants the work, the leader, starts N others, the ranks, through mpirun (`qdyno rank`). The
 * leader is no rank: it gives commands to rank 0 over a socket, rank 0 hands them on, and all ranks execute
 * each command together. So no failure of a rank or of MPI can take the leader along: it sees the end of the
 * socket, or its deadline passes, and both are an error with a reason. Ranks end with mpirun, and mpirun ends
 * with the leader.
 *
 * Only ranks use MPI, through a module that is loaded at run time (module.h). */
#ifndef QDYNO_ENGINE_PARALLEL_H
#define QDYNO_ENGINE_PARALLEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "engine/parallel/module.h"

enum { RANKS_MAX = 64, RANK_HOST = 64 };

/* What ranks can be asked to do. engine/worker/rank_serve.c executes it. */
enum rank_op {
    RANK_OP_CLOSE,    /* end; no answer */
    RANK_OP_MEASURE,  /* measure the links; answer: struct rank_link [n] */
    RANK_OP_OPEN,     /* open a model: a JSON object; answer: a JSON object */
    RANK_OP_FORWARD,  /* run a batch: struct rank_batch, then rows; answer: struct rank_batch, ids, logits */
    RANK_OP_WARM,     /* read all weights once */
    RANK_OP_TRUNCATE, /* int32_t sequence, length; no answer */
    RANK_OP_ASSIGN,   /* int32_t sequence, length, count, then blocks; no answer */
    RANK_OP_COPY,     /* int32_t from, to: blocks of the KV cache; answer: nothing */
    RANK_OP_USAGE,    /* answer: struct rank_usage [ranks] */
    /* Training (engine/train/train_ranks.h): */
    RANK_OP_TRAIN_OPEN,  /* struct train_order; answer: struct train_ranks_info */
    RANK_OP_TRAIN_LOAD,  /* struct train_piece, then numbers of weights or running means; no answer */
    RANK_OP_TRAIN_STEP,  /* struct learner_step, then tokens and targets; answer: struct learner_result */
    RANK_OP_TRAIN_SAVE,  /* answer: weights, then both running means */
    RANK_OP_TRAIN_CLOSE, /* answer: nothing */
};

/* Of RANK_OP_FORWARD. */
struct rank_batch {
    int32_t n, wanted;            /* rows, and how many of them want logits */
    int32_t best;                 /* only the id of the largest logit is wanted */
    int32_t not_finite, seq, pos; /* answer: the first row with values that are no numbers */
};

/* What the sensors of a machine show. NAN and -1: unknown. */
struct machine_use {
    double clock_s;          /* when they were read, by a clock of that machine */
    double energy_j, busy_s; /* of its processors since the first reading; busy_s: mean of all */
    double temperature_celsius, frequency_hertz;
    int64_t mem_used_bytes;
};
/* Of what was used since a moment (rank_usage_since): mean power of the processors in watts, and their busy
 * share. NAN: unknown. */
double machine_watts(const struct machine_use *m);
double machine_busy(const struct machine_use *m);
/* Reads them; this module has no sensors of its own. */
struct machine_sensors {
    void (*read)(void *ctx, struct machine_use *out);
    void *ctx;
};

/* What a rank used since it started. */
struct rank_usage {
    double cpu_s;
    double work_s;           /* inside passes and training steps, exchanges included */
    double exchange_s;       /* in exchanges with others, waiting for them included */
    double wait_s;           /* the part of exchange_s that waits for others (rank_waited) */
    int64_t exchanged_bytes; /* received from others */
    int64_t peak_rss_bytes, rss_bytes, plan_bytes;
    int64_t start_rss_bytes; /* when it had joined the others, without a model */
    int64_t weight_bytes;    /* planned for its part of the weights; -1: unknown */
    char host[RANK_HOST];    /* name of its machine; "": unknown */
    bool first_of_machine;   /* true: `machine` is filled in; false: another rank has it */
    struct machine_use machine;
};
/* As a JSON object, with a key for each member. New reference. */
json_t *rank_usage_to_json(const struct rank_usage *u);
/* A member whose key is absent becomes unknown (NAN, -1, ""). False: it is no object, *out is unchanged. */
bool rank_usage_from_json(struct rank_usage *out, const json_t *object);
/* What was used since `before`: times, bytes of exchanges and energy are differences (machine.clock_s: the
 * time between both readings), memory, host, temperature and frequency are those of now. */
struct rank_usage rank_usage_since(const struct rank_usage *now, const struct rank_usage *before);
/* The objects of a list, without those that are none, and RANKS_MAX at most. Returns their number. */
int rank_usage_list(struct rank_usage out[RANKS_MAX], const json_t *list);

/* Power of the processors of all machines but the leader's, which is rank 0's, in watts. ranks: from
 * rank_usage_since. *seconds: the mean time between readings. Both 0: there is no other machine; NAN: unknown
 * for one of them. */
double ranks_other_watts(const struct rank_usage *ranks, int n, double *seconds);

/* What a rank did with its time in passes. */
enum rank_share { RANK_COMPUTE, RANK_WAIT, RANK_EXCHANGE, RANK_SHARES };
/* The shares of rank `i` of n, of the longest time that one of them spent in passes; NAN: unknown. What is
 * missing to 1 is time in which this rank was in no pass. */
void rank_shares(double share[RANK_SHARES], const struct rank_usage *ranks, int n, int i);

/* ---------------------------------------------------------------- the leader */

struct ranks;
struct ranks_options {
    int count;             /* 1 to RANKS_MAX */
    const char *hosts;     /* file of host names for mpirun, the first one this machine; NULL: this machine */
    const struct log *log; /* may be NULL */
};

/* Start the ranks and wait until all are there. *out owned: ranks_stop. The calling thread must outlive them
 * (process_spawn). Errors: ERR_ABSENT (no mpirun, or no module for MPI: the message says what to install),
 * ERR_IO (mpirun or a rank ended; the message has its reason), ERR_USAGE (hosts), ERR_NOMEM. */
enum err_code ranks_start(struct ranks **out, const struct ranks_options *o, struct err *why);
/* End them: asks first, then kills. No rank is left when it returns. NULL is fine. */
void ranks_stop(struct ranks *r);

/* Several stretches of memory, one after the other. */
struct rank_bytes {
    void *data;
    size_t n;
};
/* Send a command that has no answer. Errors: as ranks_receive. */
enum err_code ranks_send(struct ranks *r, enum rank_op op, const struct rank_bytes *payload, int count,
                         struct err *why);
/* Wait for the answer to the command that was sent last, and append it to *answer. Errors: the ranks' own, of
 * the lowest rank that has one; ERR_IO: a rank ended or did not answer in time (all ranks are ended then, and
 * every later call fails with the same reason); ERR_NOMEM. */
enum err_code ranks_receive(struct ranks *r, struct str *answer, struct err *why);
/* The same for an answer of known size. ERR_INTERNAL: it has another size. */
enum err_code ranks_receive_into(struct ranks *r, const struct rank_bytes *answer, int count,
                                 struct err *why);
int ranks_count(const struct ranks *r);
/* What each of them used so far: out[ranks_count]. Errors as ranks_receive. */
enum err_code ranks_usage(struct ranks *r, struct rank_usage *out, struct err *why);

/* Can ranks be started here? ERR_ABSENT, with what is missing. */
enum err_code ranks_possible(struct err *why);

/* ---------------------------------------------------------------- a rank */

struct rank;

/* Join the others: loads the module, takes this rank's part of the processors, and connects rank 0 with the
 * leader. *out owned: rank_close. Errors: ERR_ABSENT, ERR_IO, ERR_NOMEM. */
enum err_code rank_open(struct rank **out, const char *socket, struct err *why);
void rank_close(struct rank *r); /* all ranks must call it; NULL is fine */
const struct rank_place *rank_place(const struct rank *r);
const struct rank_module *rank_module(const struct rank *r);
int64_t rank_start_bytes(const struct rank *r); /* resident memory when it had joined; -1: unknown */
int rank_threads(const struct rank *r); /* that it should compute with: its part of the cores, at least 1 */

/* The first rank of each machine reports what these sensors show: it reads them now, so that energy and busy
 * time are counted from here, and for each RANK_OP_USAGE. *s is borrowed until rank_close. */
void rank_use_sensors(struct rank *r, const struct machine_sensors *s);

/* The next command, the same on all ranks. The payload is valid until the next call. False: the leader is
 * gone. */
struct rank_command {
    enum rank_op op;
    const char *payload;
    size_t bytes;
};
bool rank_next(struct rank *r, struct rank_command *out);

/* Answer a command; all ranks call it. failed NULL: it worked here; the leader gets the error of the lowest
 * rank that has one, else rank 0's payload. */
void rank_answer(struct rank *r, const struct err *failed, const struct rank_bytes *payload, int count);

/* Answer RANK_OP_USAGE with what each rank used; all ranks call it. plan_bytes: planned memory of this one,
 * and weight_bytes of its weights. */
void rank_answer_usage(struct rank *r, int64_t plan_bytes, int64_t weight_bytes);

/* The parts of the ranks of a group, one after the other: all = parts[bytes[i]] at at[i]. Counts the time. */
void rank_all_gather(struct rank *r, int group, const void *mine, int n, void *all, const int *bytes,
                     const int *at);
/* The same on the group's rank `root` only; on others all, bytes and at are not used. */
void rank_gather(struct rank *r, int group, int root, const void *mine, int n, void *all, const int *bytes,
                 const int *at, bool is_root);
/* To and from another rank. While rank 0 waits, signs of life of the others reach the leader. */
void rank_send(struct rank *r, int to, const void *x, size_t n);
void rank_receive(struct rank *r, int from, void *x, size_t n);
/* Wait until all ranks have called it; signs of life as above. */
void rank_join(struct rank *r);
/* Time in the exchanges above so far, and bytes received there. */
void rank_exchanged(const struct rank *r, double *seconds, int64_t *bytes);
/* Time inside passes and training steps so far, exchanges included. */
double rank_worked(const struct rank *r);
/* Time in exchanges so far that waited for other ranks. Receiving waits until the message arrives. Sending
 * and gathers do not say when the other ranks joined: the fastest one of its size so far counts as the
 * exchange, and what others take longer as waiting. */
double rank_waited(const struct rank *r);

/* Tell the leader that work goes on, at most once a second: rank 0 itself, others through it. Cheap. */
void rank_alive(struct rank *r);

/* ---------------------------------------------------------------- links */

/* Mean time of one operation between all ranks, by size. */
enum link_kind {
    LINK_ALL_REDUCE, /* sum of vectors of that size */
    LINK_ALL_GATHER, /* size: of the whole result */
    LINK_SEND,       /* one way, between rank 0 and the rank for which it is slowest */
    LINK_KINDS
};
extern const char *const LINK_NAMES[LINK_KINDS]; /* "all_reduce" "all_gather" "send" */
enum { LINK_SIZES = 8 };
extern const int64_t LINK_BYTES[LINK_SIZES]; /* ascending */
struct rank_links {
    double seconds[LINK_KINDS][LINK_SIZES]; /* median of repetitions; NAN: not measured */
    double read_bytes_s[RANKS_MAX]; /* of each rank from memory, all at the same time; NAN: not measured */
};
/* Collective; takes about a second. read_bytes_s: of this rank; on rank 0 *out has that of all. */
void rank_measure(struct rank *r, double read_bytes_s, struct rank_links *out);
/* The time for `bytes`, between the measured sizes in proportion, beyond the last one by its rate. */
double link_seconds(const struct rank_links *l, enum link_kind kind, double bytes);

#endif
