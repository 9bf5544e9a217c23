/* advisor/sensitivity.h - what each tensor of a model costs in each format, measured: KL divergence of the
 * model's predictions on real text when that tensor alone is stored so.
 *
 * Every figure is in the database as soon as it is measured, so a killed search goes on where it was and the
 * dashboard can show it. Tensors and formats that the time did not suffice for are estimated from what was
 * measured of the same tensor, in proportion to the squared rounding error the formats are documented with,
 * and say so. */
#ifndef QDYNO_ADVISOR_SENSITIVITY_H
#define QDYNO_ADVISOR_SENSITIVITY_H

#include "advisor/allocate.h"
#include "db/db.h"
#include "engine/config/config.h"
#include "engine/gguf/gguf.h"
#include "kernels/kernels.h"

/* The formats a recipe is mixed of where nobody says: as others read them. */
extern const char SENSITIVITY_FORMATS[]; /* space-separated */

struct text_part {
    const char *text; /* borrowed */
    size_t n;
    char name[16]; /* of its bytes: the beginning of their hash */
};

struct sensitive_tensor {
    const struct gguf_tensor *source; /* borrowed from `source` below */
    int64_t bytes[ALLOCATE_CHOICES];  /* in each format; -1: its rows do not fill the blocks */
    double kld[ALLOCATE_CHOICES], kld_se[ALLOCATE_CHOICES], nmse[ALLOCATE_CHOICES]; /* NAN unknown */
    bool measured[ALLOCATE_CHOICES];
    bool swappable; /* a matrix that can be exchanged by itself; experts in one tensor cannot */
};

struct sensitivities {
    struct gguf *source;
    char model_sha256[HASH_HEX], basis[96];
    const struct format *format[ALLOCATE_CHOICES]; /* the last is "in floats": NULL, sensitive_float */
    int formats;
    struct sensitive_tensor *tensor;
    int n;
    int measured, estimated, of; /* pairs of tensor and format */
};

struct sensitivity_options {
    const char *model_path;
    const struct config *config; /* how it runs (threads, precision); its recipe part must be empty */
    const char *formats;         /* space-separated; NULL: SENSITIVITY_FORMATS */
    struct text_part text;
    int ctx; /* of a window */
    int64_t windows;
    double budget_s; /* no new measurement begins beyond it */
    struct db *db;   /* borrowed; NULL: nothing is kept */
    const struct log *log;
    /* what is being measured, done of all; false cancels. May be NULL. */
    bool (*progress)(void *ctx, const char *what, int done, int of);
    void *progress_ctx;
};
/* The tensors and what is known of them: from the database, then measured. sensitivities_free in any case.
 * Errors: those of model_open and eval_substitution; ERR_USAGE when the file is quantized already (a second
 * rounding would hide in the first) or no tensor takes any of the formats; ERR_CANCELLED. */
enum err_code sensitivities_measure(struct sensitivities *out, const struct sensitivity_options *o,
                                    struct err *why);
void sensitivities_free(struct sensitivities *s);

/* What a tensor is stored in when it is left in floats: as the file has it, f16 instead of f32. */
const struct format *sensitive_float(const struct gguf_tensor *t);

/* As items to allocate: choice k is format[k], of cost kld. *items: free(). */
enum err_code sensitivities_items(struct item **items, const struct sensitivities *s, struct err *why);

#endif
