/* qdyno_plugin.h - a quantization method of your own, as a shared library that qdyno loads.
 *
 * The library exports one function, qdyno_plugin_get, which returns a description: the method's name, its
 * parameters, the formats it can make, and `encode`, which chooses numbers for rows of a matrix. How those
 * numbers are laid out in a file is qdyno's business, so this header stands alone.
 *
 *   cc -O2 -shared -fPIC -o mine.so mine.c
 *   qdyno --plugin ./mine.so ab f32 mine -w eval:text.txt -m model.gguf
 *
 * Nothing of a plug-in runs in the program itself. qdyno_plugin_get is called in a process that ends after
 * the description was read; `encode` in processes that hold nothing but one matrix and end with it, several
 * at once, each with a part of the rows. So there are no threads to think of; whatever a plug-in keeps is
 * gone with the matrix; and one that crashes, hangs or writes where it may not fails the quantization with a
 * message, and nothing else.
 *
 * docs/plugins.md goes through it step by step; examples/refit.c is a method that is worth having. */
#ifndef QDYNO_PLUGIN_H
#define QDYNO_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when anything below changes its meaning. A library that was made for another number is refused. */
#define QDYNO_PLUGIN_VERSION 1

/* ---------------------------------------------------------------- parameters */

enum qdyno_kind { QDYNO_INT, QDYNO_REAL, QDYNO_BOOL, QDYNO_CHOICE };

/* One key of a config line: mine,iterations=20. Use the field's name where there is one (bits, group_size):
 * the same word means the same for all methods. */
struct qdyno_parameter {
    const char *name; /* a-z, 0-9 and _, beginning with a letter, at most 31 of them */
    const char *help; /* one line */
    enum qdyno_kind kind;
    double min, max;       /* INT and REAL: what is allowed */
    const char *choices;   /* CHOICE: the words that are allowed, one space between them; else NULL */
    const char *otherwise; /* the default as it would be written: "20", "0.5", "true", "mse" */
};

/* ---------------------------------------------------------------- what is asked, and what is answered */

/* What `encode` chooses.
 *   WEIGHTS  other weights instead of x, which qdyno then rounds to the nearest number of any format
 *   CODES    the numbers that are stored; formats of two kinds have room for such a choice:
 *            groups  u2_g64 u2_g128 u3_g64 u3_g128 u4_g32 u4_g64 u4_g128 u8_g64 u8_g128: a weight is
 *                    scale * (code - zero), code from 0 to 2^bits - 1, scale and zero for each group of
 *                    so many columns, kept as 16-bit floats
 *            rows    int8, fp8_e4m3, fp8_e5m2: scale * code, one scale a row, kept as a 32-bit float; a code
 * is the byte that is stored: two's complement, or the bits of the small float */
enum qdyno_answer { QDYNO_WEIGHTS, QDYNO_CODES };

/* Does the method want to know what flows into a matrix? NEEDED: it cannot do without. */
enum qdyno_calibration { QDYNO_CALIBRATION_NONE, QDYNO_CALIBRATION_OPTIONAL, QDYNO_CALIBRATION_NEEDED };

/* A few rows of one matrix. Rows stand by themselves: which of them come together, and in which order, says
 * nothing and may differ from one run to the next; results may depend on a row's number and contents only. */
struct qdyno_rows {
    const char *tensor;       /* name of the matrix: "blk.0.attn_q.weight" */
    const char *format;       /* what it will be stored in: one of the description's `formats` */
    int64_t first_row, rows;  /* these are rows first_row .. first_row + rows - 1 of it */
    int64_t cols;             /* a multiple of group */
    int64_t group;            /* columns that share a scale; in formats of rows: cols; WEIGHTS: of a block */
    int bits;                 /* of a code; WEIGHTS: 0 */
    const float *x;           /* [rows][cols] the weights, all finite */
    const float *mean_square; /* [cols] of the inputs that meet each column; NULL: not known */
    const double *value;      /* of the parameters, in their order: numbers, 0 or 1, position of a choice */

    /* To be filled, all of it; zero before. The memory ends where the last row does. */
    float *weights; /* WEIGHTS: [rows][cols]; else NULL */
    uint8_t *codes; /* CODES: [rows][cols]; else NULL */
    float *scales;  /* CODES: [rows][cols / group]; else NULL */
    float *zeros;   /* CODES in formats of groups: [rows][cols / group], whole or not; else NULL */

    /* Why `encode` returned something else than 0: text, ended by a zero byte. */
    char *error;
    size_t error_size;
};

/* ---------------------------------------------------------------- the description */

struct qdyno_plugin {
    uint32_t version;    /* QDYNO_PLUGIN_VERSION */
    const char *name;    /* of the method, as in config lines; as a parameter's name */
    const char *help;    /* one line: what it does */
    const char *good;    /* one line: where it shines; may be NULL */
    const char *bad;     /* one line: and where not; may be NULL */
    const char *formats; /* what it can make, one space between names, the usual one first; NULL (WEIGHTS
                            only): all */
    enum qdyno_answer answer;
    enum qdyno_calibration calibration;
    const struct qdyno_parameter *parameters; /* ends with a row whose name is NULL; NULL: none */
    int (*encode)(struct qdyno_rows *rows);   /* 0: done */
};

/* What the library exports. The description lives as long as the library. */
#define QDYNO_PLUGIN_SYMBOL "qdyno_plugin_get"
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const struct qdyno_plugin *
qdyno_plugin_get(void);

#ifdef __cplusplus
}
#endif

#endif
