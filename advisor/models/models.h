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

#endif
