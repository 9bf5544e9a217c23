/* engine/import/checkpoint.h - the files of a checkpoint: mapped, parsed, tensors found by name; shared by
 * the files of engine/import. */
#ifndef QDYNO_ENGINE_IMPORT_CHECKPOINT_H
#define QDYNO_ENGINE_IMPORT_CHECKPOINT_H

#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "engine/import/safetensors.h"

struct family;

/* Sizes that the order of rows depends on, from config.json. */
struct hf_sizes {
    int64_t layers, heads, kv_heads, head_dim, rope_dims, experts;
};

/* Which tensor of the checkpoint one of ours is made from, for the way back (export.h). */
struct origin {
    const char *theirs, *ours; /* names, in the arena */
    const int64_t *rows;       /* row i of ours is row rows[i] of theirs; NULL: in order */
    bool transposed, plus_one; /* theirs is [in, out]; theirs is a norm minus one */
    bool alone;                /* ours holds all rows of theirs */
};

struct checkpoint {
    const char *path;          /* as the user gave it */
    char *folder;              /* with a slash at the end */
    struct gguf_parts parts;   /* mapped files; memory of everything that the model keeps */
    struct st_tensor *tensors; /* [tensor_count] of all weight files */
    int64_t tensor_count, tensor_room;
    struct name_index names;
    struct origin *origins; /* [origin_count] in the arena: of every tensor of ours that has one */
    int64_t origin_count, origin_room;
    json_t *config;                                    /* config.json */
    json_t *quantize_config;                           /* NULL: no such file; so also the next ones */
    json_t *tokenizer, *tokenizer_config, *generation; /* tokenizer.json, tokenizer_config.json,
                                                          generation_config.json */
    json_t *added_tokens, *special_tokens_map;         /* added_tokens.json, special_tokens_map.json */
    struct gguf_string template;                       /* chat_template.jinja */
    struct gguf_writer *metadata;
    const struct family *family;
    const struct arch *arch;
    struct hf_sizes sizes;
};

/* Map and parse all files of the checkpoint at `path`, a folder or a safetensors file. On an error, too,
 * checkpoint_close. ERR_IO, ERR_FORMAT, ERR_NOMEM. */
enum err_code checkpoint_read(struct checkpoint *c, const char *path, struct err *why);
void checkpoint_close(struct checkpoint *c);

/* NULL: there is none. */
struct st_tensor *checkpoint_find(const struct checkpoint *c, const char *name);

/* A value of config.json, also of its "text_config"; NULL: absent or null. `names`: separated by spaces, the
 * first that is there counts. */
const json_t *hf_find(const struct checkpoint *c, const char *names);
/* The same as a number; `otherwise` when it is absent or no number. */
double hf_num(const struct checkpoint *c, const char *names, double otherwise);
int64_t hf_int(const struct checkpoint *c, const char *names, int64_t otherwise);
bool hf_bool(const struct checkpoint *c, const char *names, bool otherwise);

#endif
