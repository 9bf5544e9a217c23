/* advisor/hub/hub_internal.h - requests and files, for the files of advisor/hub. */
#ifndef QDYNO_ADVISOR_HUB_INTERNAL_H
#define QDYNO_ADVISOR_HUB_INTERNAL_H

#include "advisor/hub/hub.h"
#include "telemetry/http/http.h"

/* ---------------------------------------------------------------- requests (ask.c) */

struct hub {
    struct hub_options o;
    char *endpoint; /* without a '/' at its end */
    char *token;    /* NULL: none */
    bool offline;
};

/* Headers of responses that somebody here reads. */
enum hub_header {
    HEADER_LOCATION,
    HEADER_LINK,
    HEADER_ETAG,
    HEADER_LINKED_ETAG,
    HEADER_LINKED_SIZE,
    HEADER_LENGTH,
    HEADER_RANGE,
    HEADER_COMMIT,
    HEADER_ERROR_CODE,
    HEADER_ERROR_MESSAGE,
    HEADER_RATE_LIMIT,
    HEADER_COUNT
};
void hub_headers_init(struct http_wanted wanted[HEADER_COUNT]);
void hub_headers_done(struct http_wanted wanted[HEADER_COUNT]);

/* One request, and its answer. */
struct hub_ask {
    const char *method, *url;
    const char *what;   /* for messages: "owner/repo" */
    const char *accept; /* NULL: any */
    char range[64];     /* "bytes=0-99"; "": all */
    size_t body_most;   /* a longer body is ERR_FORMAT; with a range it ends there instead */
    double total_s;     /* the whole answer may take so long; 0: any time, as long as bytes arrive */
    bool stop_at_redirect_to_other; /* return a redirect to another server as the answer */
    /* the answer: hub_ask_done */
    int status;
    char *final_url; /* after redirects; owned */
    struct http_wanted header[HEADER_COUNT];
    struct str body;
    bool body_full;
};
const char *hub_header(const struct hub_ask *a, enum hub_header h); /* "": none */
/* Sends it, follows redirects, and tries again where that may help. Messages say what to do. */
enum err_code hub_send(struct hub *h, struct hub_ask *a, struct err *why);
void hub_ask_done(struct hub_ask *a);

/* The token for this address: NULL for all servers but that of the endpoint. */
const char *hub_token_for(const struct hub *h, const char *url);
bool hub_switch_is_on(const char *variable); /* of the environment, as the hub's library reads it */
bool hub_goes_on(const struct hub *h);
void hub_note(const struct hub *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Sleeps; ERR_CANCELLED. */
enum err_code hub_wait(const struct hub *h, double seconds, struct err *why);
enum err_code hub_offline_check(const struct hub *h, const char *what, struct err *why);

/* Seconds after which the server wants to be asked again, after HTTP 429 or 503; NAN: it does not say. */
double hub_told_wait(const struct http_wanted *header, double retry_after_s);
enum { HUB_WAIT_MOST_S = 900 }; /* a longer wait is an error for the person to see */
/* Seconds before attempt n (from 1) after the last progress: doubles from 0.1 s to 30 s. */
double hub_backoff_s(int n);
/* The message for a refusal, by X-Error-Code, and its code. `url`: of the server that refuses. `refused` is
 * what http_send said. */
enum err_code hub_explain(const struct hub *h, const char *what, const char *url, int status,
                          const struct http_wanted *header, const struct err *refused, struct err *why);
/* The message for a wait longer than HUB_WAIT_MOST_S. */
enum err_code hub_wait_too_long(const char *what, int status, double told_s, struct err *why);

/* ---------------------------------------------------------------- what servers answer (parse.c); pure */

/* The address of the next page in a header "Link"; false: none, or it is too long. */
bool hub_link_next(const char *link, char *url, size_t size);
/* "bytes 0-99/1234": false for all else. *total -1: "*". */
bool hub_range_parse(const char *text, int64_t *first, int64_t *last, int64_t *total);
/* The length of the file in the answer to a refused range, "bytes *" and then "/1234": false for all else. */
bool hub_range_refused(const char *text, int64_t *total);
/* Seconds of the header "ratelimit", '"api";r=0;t=55'; NAN: none, or requests are left. */
double hub_rate_limit_s(const char *text);
/* An ETag without W/ and quotes that can be a file name; false: it cannot. */
bool hub_etag_parse(const char *text, char etag[HUB_ETAG]);
/* Is this a relative path without parts that are empty, "." or "..", and without control characters? */
bool hub_path_is_safe(const char *path);
enum { SHA1_HEX = 40, SHA256_HEX = 64 };
bool hub_is_hex(const char *text, size_t digits); /* exactly so many, lower case */
/* The name of the repository in an address of the hub's API or of a file; false: none. */
bool hub_repo_of_url(const char *url, char repo[256]);
/* Append the files of a page to r. ERR_FORMAT, ERR_NOMEM. */
enum err_code hub_tree_parse(struct hub_repo *r, const char *text, size_t n, struct err *why);
enum err_code hub_modelscope_parse(struct hub_repo *r, const char *text, size_t n, struct err *why);
enum err_code hub_search_parse(struct hub_found **out, int *count, const char *text, size_t n,
                               struct err *why);
/* The commit of a branch or tag in the answer to /refs. ERR_ABSENT names the branches. */
enum err_code hub_refs_parse(char commit[HUB_COMMIT], const char *text, size_t n, const char *revision,
                             struct err *why);
/* The layers of a Docker v2 manifest as files: path = media type. */
enum err_code hub_manifest_parse(struct hub_repo *r, const char *text, size_t n, struct err *why);

/* ---------------------------------------------------------------- addresses (list.c) */

/* The address of a file. */
void hub_file_url(struct str *out, const struct hub *h, const struct hub_repo *r, const char *path);

/* ---------------------------------------------------------------- transfer of one file (fetch.c) */

struct fetch_spec {
    struct hub *hub;
    const char *what, *url; /* for messages; the address that leads to the bytes, perhaps through redirects */
    const char *temp;       /* the file to write; what it has is the beginning of the bytes */
    int64_t size;
    const char *sha256, *git_sha1; /* NULL or "": unknown; both: no check but the size */
    void (*progress)(void *ctx, int64_t done, bool checking, double rate, int connections);
    void *ctx;
    /* 0: the defaults. Bytes of the first range, after which several connections may be used; the least rate
     * and the least rest at which they are. */
    int64_t first_bytes, rate_least, rest_least;
};
/* On success `temp` has the right bytes, on the disk. On errors it has a beginning of them, or is absent. */
enum err_code fetch_file(const struct fetch_spec *s, struct err *why);

/* How much of an open file was written without gaps: programs that write at several places leave holes. 0 if
 * it has more than `most` bytes. */
int64_t fetch_beginning(int fd, int64_t most);

/* Has the file at `path` the right bytes? Reports progress as checking. ERR_FORMAT: it has not. ERR_IO. */
enum err_code fetch_check(const struct fetch_spec *s, const char *path, struct err *why);

/* Hashes bytes in their order (digest.c). */
struct fetch_digest;
enum err_code fetch_digest_open(struct fetch_digest **out, const struct fetch_spec *s, struct err *why);
bool fetch_digest_is_known(const struct fetch_digest *d); /* false: nothing can be checked */
void fetch_digest_add(struct fetch_digest *d, const void *bytes, size_t n);
/* ERR_FORMAT: another hash than promised. */
enum err_code fetch_digest_check(struct fetch_digest *d, struct err *why);
void fetch_digest_close(struct fetch_digest *d); /* NULL is fine */

/* ---------------------------------------------------------------- files and locks (store.c) */

/* One file of a pull and where it goes. Owned strings. */
struct pull_item {
    char *name, *url;
    char *blob, *temp, *lock; /* paths */
    char *link, *link_to;     /* path of a link and its relative target; NULL: none */
    int64_t size;
    char sha256[HASH_HEX], git_sha1[HUB_COMMIT];
};
struct hub_pull {
    struct hub *hub;
    char name[MODEL_NAME_TEXT];
    char *folder;
    struct pull_item *items;
    int n, main;            /* main: the item that -m opens */
    char *mark, *mark_text; /* a small file that is written last; NULL: none */
    char *mark_temp;        /* where it is written first, "...XXXXXX": no program looks for marks there */
};
/* Fills the items of a store's layout; p->folder is set. */
enum err_code pull_of_hub(struct hub_pull *p, const struct hub_repo *r, const int *index, int n,
                          struct err *why);
enum err_code pull_of_modelscope(struct hub_pull *p, const struct hub_repo *r, const int *index, int n,
                                 struct err *why);
enum err_code pull_of_ollama(struct hub_pull *p, const struct model_name *name, struct err *why);

const char *pull_item_path(const struct pull_item *i); /* the link, else the blob */
bool pull_item_is_here(const struct pull_item *i);
int64_t pull_item_partial(const struct pull_item *i); /* bytes that an earlier attempt left */
/* Takes the lock, waiting while another process has it. *fd: pull_unlock. *alone: false where the file system
 * has no locks; then another process may fetch the same file. */
enum err_code pull_lock(int *fd, bool *alone, const struct hub_pull *p, const struct pull_item *i,
                        struct err *why);
void pull_unlock(int fd);
/* Makes the file that the hub's library left unfinished the one to go on with. Under the lock. */
void pull_adopt(const struct pull_item *i);
/* Creates an empty file beside i->temp that no other process has. *out: malloc. */
enum err_code pull_temp_own(char **out, const struct pull_item *i, struct err *why);
/* temp -> blob. Under the lock. */
enum err_code pull_publish(const struct pull_item *i, struct err *why);
/* Where there are no links, a fresh blob is moved to its name, and one that was here before is copied,
 * because links of other commits lead to it. */
enum err_code pull_link(const struct pull_item *i, bool fresh, struct err *why);
/* Does the blob's name say its hash? Otherwise another file of the same size may be here. */
bool pull_item_is_named_by_hash(const struct pull_item *i);
/* Writes the small file that makes the model known. */
enum err_code pull_mark_write(const struct hub_pull *p, struct err *why);
enum err_code pull_make_parent(const char *path, struct err *why);

#endif
