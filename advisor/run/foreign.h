/* advisor/run/foreign.h - what the arms of other engines share. Private to advisor/run/.
 *
 * Figures of another engine are easily about something else than they seem: tokens that were counted by
 * chunks, prompts that a cache had, answers that ended early, models that were still loading. Everything that
 * such a server says about a request is therefore checked against what was asked (reply_check), and a cell
 * that does not match is refused with the reason. */
#ifndef QDYNO_ADVISOR_RUN_FOREIGN_H
#define QDYNO_ADVISOR_RUN_FOREIGN_H

#include <sys/types.h>

#include "advisor/run/run.h"
#include "advisor/run/said.h"
#include "advisor/run/watchdog.h"
#include "base/guard/guard.h"
#include "engine/gguf/gguf.h"
#include "engine/text/text.h"
#include "engine/worker/worker.h"

/* ---------------------------------------------------------------- its process (foreign_process.c) */

/* Arguments of a command: words_free. */
struct words {
    char **word; /* NULL-terminated when not empty */
    int n;
    bool failed; /* out of memory */
};
void words_add(struct words *w, const char *text);
/* Splits at spaces; '...' keeps them. ERR_USAGE: a quote is not closed. */
enum err_code words_split(struct words *w, const char *text, struct err *why);
void words_free(struct words *w);
/* The path of a config's program: bin=, else the engine's usual name, searched in PATH. ERR_ABSENT. The
 * caller frees *out. */
enum err_code foreign_program(char **out, const struct config *c, struct err *why);
/* Adds the given settings that have a llama.cpp flag (threads=2 becomes -t 2), and then args=. */
enum err_code foreign_flags(struct words *w, const struct config *c, struct err *why);
/* Flags with which llama.cpp's programs choose a model. */
#define FOREIGN_MODEL_FLAGS                                                                                  \
    "-m", "--model", "-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-hft", "--hf-token", "-mu",           \
        "--model-url", "-dr", "--docker-repo"
/* ERR_USAGE when args= contains one of these flags (NULL-terminated), which qdyno sets itself. */
enum err_code foreign_flags_check(const struct config *c, const char *const *own, struct err *why);
/* This process's environment and those of `more` ("NAME=VALUE", NULL-terminated; NULL: none) whose names it
 * does not have. Check env->failed; words_free(env). */
void words_environment(struct words *env, const char *const *more);

/* A running program with all processes that it started. Its output is kept. */
struct foreign_process {
    pid_t pid;  /* also the group's; 0: none */
    int status; /* of waitpid, once pid is 0 */
    struct said said;
    struct process_guard guard;
    bool held; /* stopped by foreign_hold */
    struct watchdog watchdog;
};
/* *p zeroed before. It ends with this process, however that ends. The kernel also kills it when the calling
 * thread ends. `environment`: variables that it gets unless they are set already (words_environment). */
enum err_code foreign_start(struct foreign_process *p, const struct words *command,
                            const char *const *environment, struct err *why);
/* Reads what it printed since. False: it has ended. */
bool foreign_lives(struct foreign_process *p);
/* SIGSTOP and SIGCONT for the group: it uses no processor while other arms work. */
void foreign_hold(struct foreign_process *p);
void foreign_release(struct foreign_process *p);
/* Ends the group: asks, waits 2 s, then kills. Fine for a zeroed one. */
void foreign_end(struct foreign_process *p);
/* The error for a program that ended by itself, with its last words. */
enum err_code foreign_died(const struct foreign_process *p, const char *name, struct err *why);

/* Resources that a process and its descendants have used; NAN unknown. */
struct foreign_usage {
    double cpu_s, peak_bytes, rss_bytes, major_faults, minor_faults;
};
struct foreign_usage foreign_usage(int pid); /* pid 0: all unknown */
double sum_known(double a, double b);        /* an unknown one is left out; NAN: both are */
/* Peak memory counts from now on. */
void foreign_reset_peak(int pid);
/* Puts the use since `before` into an answer, under the names of a worker's. */
void foreign_put_usage(json_t *answer, int pid, struct foreign_usage before);
/* The process that listens on this TCP port of the loopback interface; 0: another user's, or none. */
int foreign_listener(int port);

/* ---------------------------------------------------------------- its model (foreign_model.c) */

/* The model file as qdyno reads it: identity, vocabulary and prompt ids. */
struct foreign_model {
    struct gguf *g; /* NULL: there is no file */
    struct tokenizer *tokenizer;
    struct prompt_source prompts;
    char sha256[HASH_HEX], arch[32], name[128], format[16], quantization[48];
    int64_t params;
    bool random_weights;
};
enum err_code foreign_model_open(struct foreign_model *m, const char *path, struct err *why);
void foreign_model_close(struct foreign_model *m);
/* The answer with which a worker opens, as far as it is known of another engine. `build`: version, NULL
 * unknown; `command`: how it was started, or its address. New reference. */
json_t *foreign_describe(const struct foreign_model *m, const struct config *c, const char *model,
                         const char *build, const char *command);
/* Appends to description.notes: what a reader must know of the figures. */
void foreign_note(json_t *description, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* ---------------------------------------------------------------- an answer (foreign_reply.c) */

/* What a server said about one request. NAN: it does not say. */
struct reply {
    double prompt_tokens, cached_tokens, gen_tokens;
    double server_prefill_s, server_decode_s; /* by its own clock: the prompt; first to last token */
    double load_s;                            /* of the model, if this request loaded it */
    bool truncated;
    char finish[24]; /* why it ended: "limit", "length", "stop", "eos" */
    json_t *ids;     /* generated token ids; NULL: it does not say */
    bool keep_text;  /* set after reply_begin: `text` gets what was generated */
    struct str text;

    int64_t sent_ns, first_ns, last_ns, end_ns; /* client's clock: sent, first and last token, end */
    int chunks;                                 /* parts of the answer that had tokens */
    double counted; /* tokens after the last chunk by the server's count; NAN: it does not count as it goes */
    bool each_one;  /* each chunk had exactly one token, by the server's count */
    float *gap_s;   /* [chunks - 1] owned: seconds between chunks */
    int32_t *chunk_tokens; /* [chunks] owned: tokens of each chunk by the server's count; -1 unknown */
    int gaps, room;        /* room: of gap_s, and of chunk_tokens */
    bool failed;           /* out of memory */
    double first_count;    /* tokens of the first chunk by the server's count; NAN unknown */
    bool ended;            /* the last event came: the answer is complete */
    struct str line;       /* received bytes of an incomplete line */
    struct err error;      /* an error that the server sent in its stream */
};
void reply_begin(struct reply *r); /* the clock starts */
/* Takes a part of the body: server-sent events. False: stop (r->failed or r->error). */
bool reply_take(struct reply *r, const char *data, size_t n);
void reply_done(struct reply *r);

struct reply_wanted {
    int prompt_tokens; /* 0: any */
    int cached_tokens; /* exactly so many */
    int gen_tokens;
    bool ids; /* token ids were sent, not text */
};
/* Does the answer belong to the work that was asked for? ERR_USAGE names what does not. */
enum err_code reply_check(const struct reply *r, const struct reply_wanted *w, struct err *why);
/* The answer to a cell (engine/worker/worker.h): times of the client's clock, the server's beside them. New
 * reference. */
json_t *reply_cell(const struct reply *r, const struct workload *w, const char *model, const char *work_hash);

/* ---------------------------------------------------------------- sending (foreign_request.c) */

/* Calls the arm's callback while a request runs, and kills a process of ours that hangs. */
struct foreign_wait {
    arm_event_fn *event;
    void *ctx;
    struct foreign_process *process; /* NULL: not ours */
    struct reply *reply;
    const char *phase;
    int prompt, gen;  /* tokens of the request, for progress */
    double silence_s; /* of a server that is not ours: give up after so long without a byte; 0: never */
    double silent_s;  /* so far */
    int64_t asked_ns; /* when silent_s was counted last */
    struct err error; /* of the process, or of a server that is silent */
};
/* The workload of a request to an arm. ERR_USAGE for requests and workloads that the engine does not have. */
enum err_code foreign_workload(struct workload *w, enum engine_kind engine, const json_t *request,
                               struct err *why);
/* GET or POST of a document; *answer: new reference. With w->reply the body is a stream, which goes there,
 * and *answer stays NULL. key: bearer token, NULL none. Errors: as http_send, and what the server says. */
enum err_code foreign_send(json_t **answer, const char *url, const json_t *body, const char *key,
                           struct foreign_wait *w, struct err *why);
/* GET a text of at most `most` bytes, within 10 s; str_free(out) in any case. Errors: as http_send;
 * ERR_FORMAT: it is longer. */
enum err_code foreign_get_text(struct str *out, const char *url, const char *key, size_t most,
                               struct err *why);

#endif
