/* advisor/quality/quality.h - the text that a model's quality is measured on, and what earlier runs measured
 * on it. Public header of advisor/quality/. */
#ifndef QDYNO_ADVISOR_QUALITY_H
#define QDYNO_ADVISOR_QUALITY_H

#include "db/db.h"
#include "engine/config/config.h"

/* ---------------------------------------------------------------- texts */

/* The text that the quality of a model is measured on when a command names no other: the bundled held-out
 * stories, until quality_text_choose. Losses on other texts are not ranked with those on it. */
struct quality_text {
    char path[4096], name[128]; /* name: without folders */
    char sha256[HASH_HEX];      /* of the content when it was chosen; "": the bundled text is not installed */
    bool chosen;                /* by the user */
    struct err trouble;         /* code 0: the file can be read and has this content; otherwise what to do */
};
/* The text of the model file at model_path. The model is hashed only if any model has a chosen text. A text
 * that is missing or has changed is no error (ERR_OK, out->trouble). Errors: db_*; as gguf_open. */
enum err_code quality_text_of(struct quality_text *out, struct db *d, const char *model_path,
                              struct err *why);
/* The same of a model with a known SHA-256; its file, which messages name, may be gone. Hashes no model. */
enum err_code quality_text_of_hash(struct quality_text *out, struct db *d, const char *model_sha256,
                                   const char *model_path, struct err *why);
/* The path of that text, to measure on it. Errors: also ERR_IO and ERR_FORMAT of its trouble; ERR_USAGE: the
 * path is too long. */
enum err_code quality_text_path(char *out, size_t size, struct db *d, const char *model_path,
                                struct err *why);
/* Make this file, whose content has this SHA-256, the text of a stored model. The content of the bundled text
 * makes it the model's text again. Errors: db_*; ERR_IO (no such file); ERR_USAGE. */
enum err_code quality_text_choose(struct db *d, const char *model_sha256, const char *path,
                                  const char *sha256, struct err *why);
/* Is a loss that was measured on this text comparable with those on t? sha256 "": an older version measured
 * it and stored only the name. */
bool quality_text_is(const struct quality_text *t, const char *name, const char *sha256);

/* How a text is called wherever a loss on it is shown: "the bundled stories" for the one that comes with
 * qdyno (by its content), otherwise its file name, and of a text known by a part of its SHA-256 only "the
 * text with SHA-256 ...". Returns buf. */
enum { TEXT_LABEL = 160 };
const char *quality_text_label(char buf[TEXT_LABEL], const char *name, const char *sha256);
bool quality_text_is_bundled(const char *sha256); /* simple stories, unlike what most models are used for */
/* A basis of the table `sensitivity`, "text c8961c2eb61c, 8 windows of 256, ...", with the text's label. */
const char *quality_basis_label(char *buf, size_t size, const char *basis);
/* Whether this is the file of the model that comes with qdyno, which was trained on stories like those. */
bool model_is_bundled(const char *path);

/* The text that a stored cell's loss was measured on; `worker` is its worker_json, parsed (may be NULL). */
struct measured_text {
    char name[128], sha256[HASH_HEX]; /* "": unknown */
};
bool measured_text_same(const struct measured_text *a, const struct measured_text *b);
void measured_text_of(struct measured_text *out, const struct model_cell *c, const json_t *worker);

/* ---------------------------------------------------------------- measured KL divergences */

/* KL divergences that earlier runs measured of one model, relative to the unchanged model file, by the config
 * settings that change answers. Only those on the model's text compare with each other. */

/* The part of a config that changes answers, and the same as a config line: "default" when no such setting
 * differs. */
struct config answer_config(const struct config *c);
void answer_line(const struct config *c, char *out, size_t size);

struct answer_kld {
    char answer[CONFIG_LINE];
    double kld;     /* mean of the newest measurement, nats per token */
    int64_t run_id; /* that measured it */
    struct measured_text text;
    bool foreign; /* measured on another text than the model's, and never on that */
};
struct answer_klds {
    struct answer_kld *row; /* [n], owned; room: how many fit */
    int n, room;
    struct quality_text text; /* of the model */
};

/* The SHA-256 of a model file (model_identity). Errors: as gguf_open, model_identity. */
enum err_code model_file_identity(char sha256[HASH_HEX], const char *model_path, struct err *why);
/* The SHA-256 of a model file that earlier runs may have measured. "" (ERR_OK): no run used a file of this
 * name, so it is not hashed. Errors: as gguf_open, db_*. */
enum err_code measured_model_identity(char sha256[HASH_HEX], struct db *d, const char *model_path,
                                      struct err *why);

/* Load the divergences of the model file at model_path, from evals, tuning runs and A/B runs whose reference
 * was the unchanged file. A model that the database does not know has none, and its file is not hashed. *out:
 * answer_klds_free, also after an error. Errors: as gguf_open, db_*; ERR_NOMEM. */
enum err_code answer_klds_load(struct answer_klds *out, struct db *d, const char *model_path,
                               struct err *why);
void answer_klds_free(struct answer_klds *l);

/* Borrowed; NULL: not measured. */
const struct answer_kld *answer_klds_find(const struct answer_klds *l, const struct config *c);

#endif
