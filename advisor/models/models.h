/* advisor/models/models.h - which models are on this machine, and which file does a name mean? Public header
 * of advisor/models/.
 *
 * Other programs keep models in stores with layouts of their own. The functions here only read them; what
 * they find there is untrusted: links may dangle or form loops, manifests may be huge, names may have any
 * bytes. Nothing here asks the network. */
#ifndef QDYNO_ADVISOR_MODELS_H
#define QDYNO_ADVISOR_MODELS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct gguf; /* engine/gguf/gguf.h */

/* ---------------------------------------------------------------- stores */

enum model_store {
    STORE_PATH, /* a path, or a part of a listed name */
    STORE_HF,
    STORE_LLAMACPP,
    STORE_OLLAMA,
    STORE_LMSTUDIO,
    STORE_MODELSCOPE,
    STORE_COUNT
};
struct model_store_row {
    const char *prefix; /* of names, without the colon: "hf"; of STORE_PATH "" */
    const char *title;  /* "Hugging Face" */
    bool fetched;       /* qdyno can fetch models of this store */
};
extern const struct model_store_row MODEL_STORES[STORE_COUNT]; /* indexed by enum model_store */

/* The folders of a store that exist or not, by the environment, the one that its own program writes to first.
 */
enum { STORE_ROOTS_MOST = 4 };
struct model_roots {
    char *path[STORE_ROOTS_MOST]; /* owned: model_roots_done */
    int n;
};
/* Errors: ERR_NOMEM. Without HOME, only the folders that other variables name. STORE_PATH: none. */
enum err_code model_roots_of(struct model_roots *out, enum model_store s, struct err *why);
void model_roots_done(struct model_roots *r);
/* The folder that the store's own program writes to; it need not exist. *path owned. ERR_ABSENT: no variable
 * names one, and HOME is not set. */
enum err_code model_store_root(char **path, enum model_store s, struct err *why);

/* ---------------------------------------------------------------- names */

/* What a text after -m can mean, without looking at the machine.
 *
 *   hf:OWNER/REPO[:TAG]  hf:OWNER/REPO/FILE  OWNER/REPO:TAG      (also hf.co/..., https://huggingface.co/...)
 *   ollama:[HOST/][NAMESPACE/]NAME[:TAG]   lmstudio:..., modelscope:... as hf:   llamacpp:FILE
 *
 * Behind a name of hf: or modelscope: may stand @REVISION. All else is a path or a part of a listed name. */
struct model_name {
    enum model_store store;
    char repo[256];     /* "owner/repo"; Ollama: "registry.ollama.ai/library/llama3.2", "hf.co/owner/repo";
                           STORE_PATH: the text if it fits, else "". No part is empty, "." or "..". */
    char tag[512];      /* "Q4_K_M", "3b" (Ollama: "latest" where none is given), or a file's path below the
                           repository; "": none */
    char revision[128]; /* a branch or commit; "": the main one */
    bool is_file;       /* tag is a file's path in the repository */
    bool remote;        /* it names something that can be fetched */
};
/* ERR_USAGE: the name of a store that is none, and what was expected. A text of STORE_PATH is never refused,
 * unless it is empty or too long. */
enum err_code model_name_parse(struct model_name *out, const char *text, struct err *why);
/* The name as people write it, so that model_name_parse reads the same again: "hf:owner/repo:Q4_K_M",
 * "ollama:llama3.2:3b". Returns buf. */
enum { MODEL_NAME_TEXT = 960 };
const char *model_name_text(const struct model_name *n, char *buf, size_t size);

/* ---------------------------------------------------------------- files of a repository */

enum model_file_kind {
    MODEL_WEIGHTS,
    MODEL_PROJECTOR, /* of images or sound: mmproj */
    MODEL_IMATRIX,
    MODEL_DRAFT, /* heads that guess tokens: mtp-, eagle3-, dflash-, dspark- */
    MODEL_ADAPTER,
    MODEL_OTHER, /* no GGUF file */
    MODEL_KIND_COUNT
};
extern const char *const MODEL_KIND_NAMES[MODEL_KIND_COUNT]; /* "weights", "projector", ... */
/* By the file's name only; folders before it do not matter. */
enum model_file_kind model_file_kind(const char *file_name);

/* Is this the name of one file of a split model, "NAME-00002-of-00005.gguf"? *index from 1; *stem: bytes of
 * NAME. Any of them may be NULL. */
bool model_file_is_shard(const char *file_name, int *index, int *count, size_t *stem);

/* llama.cpp's choice among the files of a repository: without a tag (NULL or "") Q4_K_M, then Q8_0, then the
 * first GGUF file; with one, the first file whose name has the tag followed by '-' or '.', in any case. Files
 * that are no weights are never chosen, and of a split model only its first file. -1: none. */
int model_file_choose(const char *const *name, int n, const char *tag);

/* ---------------------------------------------------------------- models on this machine */

/* What a file's header says. */
enum { MODEL_FIGURES = 9 };
struct model_header {
    bool read;                               /* false: it was not asked for, or `why` says why not */
    bool runs;                               /* here: architecture, tensor types and all parts are known */
    char why[320];                           /* why it does not run, or cannot be read; "": it runs */
    char arch[32];                           /* "" unknown */
    char title[128];                         /* general.name */
    int64_t params, weight_bytes, ctx_train; /* 0: unknown */
    char quantization[48];                   /* "Q4_K_M", as quantization_name_read names it; "" unknown */
    char quantization_source[16], quantization_note[160];
    char dominant_format[16];
    bool random_weights, chat_template;
    double figure[MODEL_FIGURES]; /* of struct models_options; NAN: unknown */
};

struct model_entry {
    enum model_store store;
    enum model_file_kind kind;
    char *name; /* what -m takes: "hf:owner/repo:Q4_K_M"; of a folder's file its path below that folder */
    char *also; /* other names of the same file, one a line; NULL: none */
    char *path; /* the GGUF file, the first of several, or the folder of a checkpoint; NULL: no file that can
                   be opened */
    char *file; /* its path below the repository: "sub/m-Q4_K_M.gguf"; Ollama: the tag */
    char *repo, *revision; /* as in struct model_name; "" if none */
    char commit[41];       /* of the hub's snapshot; "" unknown */
    bool hidden;           /* another revision of a file that is listed already */
    int number;            /* order in which the stores were read: of equal names the lowest counts */
    int shards, shards_here;
    bool checkpoint;       /* a folder with config.json and safetensors files */
    int64_t bytes;         /* of all its files */
    char sha256[HASH_HEX]; /* of its only file, by the store or an earlier run; "" unknown */
    struct model_header header;
};

/* What could not be read, for a note. */
enum models_skipped {
    SKIPPED_DANGLING,   /* links to nothing, and blobs that manifests name and that are missing */
    SKIPPED_UNREADABLE, /* folders and manifests */
    SKIPPED_MANIFEST,   /* manifests that are none, or too large */
    SKIPPED_DEEP,       /* folders below too many others */
    SKIPPED_MANY,       /* files beyond the limit */
    SKIPPED_COUNT
};
struct model_list {
    struct model_entry *row; /* [n] by store, then name; behind them [revisions] of files that are listed
                                already, which only names with @REVISION mean */
    int n, revisions, room;
    int64_t skipped[SKIPPED_COUNT];
    int files_read, files_cached; /* headers */
};

/* Called with an open file whose figures are not cached: fill e->header.figure. Errors of its own are no
 * errors of the listing; the code that it returns says whether trying again can help
 * (models_error_is_lasting), and if so nothing of the file is cached. */
typedef enum err_code models_figures_fn(void *ctx, struct model_entry *e, const struct gguf *g);
/* Is this the fault of a file, and no want of memory, open files or permissions, which may end? */
bool models_error_is_lasting(enum err_code code);
struct models_options {
    const char *const
        *dir; /* [dirs] further folders; those of QDYNO_MODELS (separated by colons) come after */
    int dirs;
    bool names_only;            /* read no headers */
    models_figures_fn *figures; /* NULL: none */
    void *ctx;
    const char *basis; /* what the figures depend on beside the file: other ones are computed again */
    bool (*goes_on)(void *ctx, int done,
                    int of); /* between two headers; false: ERR_CANCELLED. NULL: always */
};
/* Every model of every store, one row for a split model and one for a file with several names. What cannot be
 * read is skipped and counted. Headers and figures are cached in the cache folder by device, inode, size and
 * time of the file. *out: models_done, also after an error. Errors: ERR_NOMEM, ERR_CANCELLED; ERR_IO: a
 * folder of o->dir cannot be read. */
enum err_code models_find(struct model_list *out, const struct models_options *o, struct err *why);
void models_done(struct model_list *l);
/* "skipped: 2 links to files that are missing, 1 folder that cannot be read". False: nothing was. */
bool models_skipped_text(const struct model_list *l, char *buf, size_t size);

/* The path that a text means here, in this order: an existing path; the name of a model (a repository without
 * a tag as model_file_choose has it); a part, in any case, of exactly one listed name. *path owned. Errors:
 * ERR_USAGE: several models match, the message lists them; it is no name (model_name_parse). ERR_FORMAT: it
 * is here, but not as a file that qdyno reads. ERR_ABSENT: none matches; the message names near ones; *name
 * (may be NULL) is what the text means, and may be fetched when it is remote. */
enum err_code model_resolve(char **path, struct model_name *name, const char *text, struct err *why);
/* The same in a list. Borrowed; NULL: as above. */
const struct model_entry *model_list_find(const struct model_list *l, struct model_name *name,
                                          const char *text, struct err *why);

#endif
