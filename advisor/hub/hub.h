/* advisor/hub/hub.h - asks the Hugging Face hub, Ollama's registry and ModelScope for models, and fetches
 * them into the stores in which other programs look for them. Public header of advisor/hub/.
 *
 * Only the functions here use the network, and only for names that the caller gives. A token is sent to the
 * server of the endpoint and to no other, whatever the server redirects to. What servers answer is untrusted:
 * paths that leave their folder are refused, sizes and hashes are checked, and a file appears under its name
 * only when its hash is right. Every function may take long; it calls `goes_on` at least every 100 ms. One
 * thread at a time. */
#ifndef QDYNO_ADVISOR_HUB_H
#define QDYNO_ADVISOR_HUB_H

#include "advisor/models/models.h"

struct gguf; /* engine/gguf/gguf.h */

/* ---------------------------------------------------------------- connection */

struct hub;
struct hub_options {
    bool offline;               /* no request; HF_HUB_OFFLINE=1 says the same */
    bool (*goes_on)(void *ctx); /* NULL: always. False: end with ERR_CANCELLED */
    void (*note)(void *ctx,
                 const char *text); /* NULL: none. One line for people, such as "waiting 30 s ..." */
    void *ctx;
};
/* Reads the environment: the endpoint of MODEL_ENDPOINT, else HF_ENDPOINT, else https://huggingface.co; the
 * token of HF_TOKEN, else of the file HF_TOKEN_PATH, else of HF_HOME/token (~/.cache/huggingface/token).
 * HF_HUB_DISABLE_IMPLICIT_TOKEN=1: none. *out: hub_close. ERR_USAGE: no valid endpoint; ERR_NOMEM. */
enum err_code hub_open(struct hub **out, const struct hub_options *o, struct err *why);
void hub_close(struct hub *h); /* NULL is fine */

/* Errors of all functions that ask a server:
 *   ERR_ABSENT  offline; the server cannot be reached or is overloaded, after several attempts; the
 * repository, revision or file does not exist ERR_USAGE   the server refuses: a licence must be accepted, or
 * a token is missing ERR_FORMAT  it does not answer as the documents say ERR_CANCELLED, ERR_NOMEM */

/* ---------------------------------------------------------------- search, list */

struct hub_found {
    char *id;                 /* "owner/repo" */
    int64_t downloads, likes; /* -1: unknown */
    char gate[16];            /* "auto", "manual": a licence must be accepted; "": none or unknown */
};
/* Repositories with GGUF files whose names contain the text, the most downloaded first. *out [*n]:
 * hub_found_free. */
enum err_code hub_search(struct hub_found **out, int *n, struct hub *h, const char *text, int limit,
                         struct err *why);
void hub_found_free(struct hub_found *list, int n);

enum { HUB_COMMIT = 65, HUB_ETAG = 129 };
struct hub_file {
    char *path; /* below the repository; no part is empty, "." or ".." */
    int64_t size;
    char sha256[HASH_HEX]; /* "": it is small and git's hash is all that is known */
    char oid[HUB_COMMIT];  /* git's SHA-1 of a small file; "": unknown */
};
struct hub_repo {
    enum model_store store;
    char asked[256];         /* its name as it was asked for, by which the cache has it */
    char repo[256];          /* its name now: another one if the repository was renamed */
    char revision[128];      /* branch or tag; "main" */
    char commit[HUB_COMMIT]; /* "": the store has none (Ollama, ModelScope) */
    struct hub_file *files;  /* [n], in the order of their paths */
    int n;
};
/* The files of a repository of the hub or of ModelScope. *out: hub_repo_done, also after an error. */
enum err_code hub_list(struct hub_repo *out, struct hub *h, const struct model_name *name, struct err *why);
void hub_repo_done(struct hub_repo *r);

/* Which files does the name mean, the first one first: one file, or all shards of a split model. index [*n]:
 * malloc. ERR_ABSENT: none; the message lists the nearest ones. */
enum err_code hub_choose(int **index, int *n, const struct hub_repo *r, const struct model_name *name,
                         struct err *why);

/* ---------------------------------------------------------------- headers */

/* Opens the header of a GGUF file of a repository, read by range requests; of a split model those of all
 * shards. Everything that does not read weights works as with a local file; weights read as zeros. *out:
 * hub_head_close. Further errors: as gguf_open_any_type. */
struct hub_head;
enum err_code hub_head_open(struct hub_head **out, struct hub *h, const struct hub_repo *r, const int *index,
                            int n, struct err *why);
const struct gguf *hub_head_gguf(const struct hub_head *x);
int64_t hub_head_read_bytes(const struct hub_head *x); /* transferred for it */
void hub_head_close(struct hub_head *x);               /* NULL is fine */

/* ---------------------------------------------------------------- fetching */

/* What a name means at its source, and what of it is missing here. */
struct hub_pull;
struct hub_pull_state {
    char name[MODEL_NAME_TEXT]; /* of the model, as people write it */
    int files;                  /* 1, or the shards of a split model; with Ollama all layers */
    int64_t bytes;              /* of all files */
    int missing_files;          /* that are not here, or not complete */
    int64_t missing_bytes;      /* to be transferred, without what an earlier attempt left */
    int64_t free_bytes;         /* on that disk; -1: unknown */
    const char *folder;         /* where they go; borrowed */
    const char *path;           /* the model's first file there; borrowed */
};
/* into_ollama: a model of Ollama's registry goes into Ollama's own store, not into qdyno's. Asks the server
 * about every file, so a licence gate ends here. *out: hub_pull_close. ERR_USAGE: the name's store has no
 * server. */
enum err_code hub_pull_open(struct hub_pull **out, struct hub *h, const struct model_name *name,
                            bool into_ollama, struct err *why);
void hub_pull_state(struct hub_pull_state *out, const struct hub_pull *p);
void hub_pull_close(struct hub_pull *p); /* NULL is fine */

struct hub_progress {
    const char *file;          /* its name */
    bool checking;             /* hashes what an earlier attempt left; otherwise transfers */
    int64_t done_bytes, bytes; /* of all files */
    double rate_bytes, left_s; /* bytes per second; NAN: unknown */
    int connections;
};
/* Fetches what is missing. What was transferred stays after every error and signal and is used by the next
 * call; the model appears only when it is complete. Further errors: ERR_FIT: the disk is full; ERR_FORMAT: a
 * file does not have the hash that the server promised; ERR_IO. */
enum err_code hub_pull_run(struct hub_pull *p, void (*progress)(void *ctx, const struct hub_progress *at),
                           void *ctx, struct err *why);

#endif
