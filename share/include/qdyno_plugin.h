/* qdyno_plugin.h - a quantization method in a shared library that qdyno loads.
 *
 * The library exports one function, qdyno_plugin_get, which returns a description: the name of the method,
 * its parameters, the formats it can make, and `encode`, which chooses the numbers for rows of a matrix.
 * qdyno lays these numbers out in a file, so this header needs no other one.
 *
 *   cc -O2 -shared -fPIC -o mine.so mine.c
 *   qdyno --plugin ./mine.so ab f32 mine -w eval:text.txt -m model.gguf
 *
 * A plug-in never runs inside the program. qdyno calls qdyno_plugin_get in a process that ends after it has
 * read the description, and `encode` in several processes at once, each with a part of the rows of one
 * matrix. A plug-in therefore needs no locks and keeps no state from one matrix to the next. If it crashes,
 * hangs or writes to wrong memory, only the quantization fails, with a message.
 *
 * docs/plugins.md explains every step; examples/refit.c is a complete method. */
#ifndef QDYNO_PLUGIN_H
#define QDYNO_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Increases when the meaning of anything below changes. qdyno refuses libraries for another version. */
#define QDYNO_PLUGIN_VERSION 1

/* ---------------------------------------------------------------- parameters */

enum qdyno_kind { QDYNO_INT, QDYNO_REAL, QDYNO_BOOL, QDYNO_CHOICE };

/* One key of a config line, as in mine,iterations=20. Use the common name if there is one (bits, group_size),
 * so that a name has the same meaning for all methods. */
struct qdyno_parameter {
    const char *name; /* at most 31 of a-z, 0-9 and _; starts with a letter */
    const char *help; /* one line */
    enum qdyno_kind kind;
    double min, max;       /* INT and REAL: the allowed range */
    const char *choices;   /* CHOICE: the allowed words, separated by one space; else NULL */
    const char *otherwise; /* the default as text: "20", "0.5", "true", "mse" */
};

/* ---------------------------------------------------------------- encoding */

/* What `encode` returns.
 *   WEIGHTS  modified weights, which qdyno then rounds to the nearest values of any format
 *   CODES    the stored numbers, for two kinds of formats:
 *            groups  u2_g64 u2_g128 u3_g64 u3_g128 u4_g32 u4_g64 u4_g128 u8_g64 u8_g128:
 *                    weight = scale * (code - zero), code from 0 to 2^bits - 1; each group of 32, 64 or 128
 *                    columns has a scale and a zero, stored as 16-bit floats
 *            rows    int8 fp8_e4m3 fp8_e5m2: weight = scale * code; each row has a scale, stored as a 32-bit
 *                    float; a code is the stored byte: two's complement, or the bits of the fp8 number */
enum qdyno_answer { QDYNO_WEIGHTS, QDYNO_CODES };

/* Does the method use statistics of the inputs of a matrix? NEEDED: it cannot work without them. */
enum qdyno_calibration { QDYNO_CALIBRATION_NONE, QDYNO_CALIBRATION_OPTIONAL, QDYNO_CALIBRATION_NEEDED };

/* Some rows of one matrix. Which rows come together, and in which order, may differ between runs. Results may
 * depend only on the number and the contents of a row. */
struct qdyno_rows {
    const char *tensor;       /* name of the matrix: "blk.0.attn_q.weight" */
    const char *format;       /* the format to store: one of `formats` of the description */
    int64_t first_row, rows;  /* rows first_row .. first_row + rows - 1 of the matrix */
    int64_t cols;             /* a multiple of group */
    int64_t group;            /* columns that share a scale; row formats: cols; WEIGHTS: columns of a block */
    int bits;                 /* of a code; WEIGHTS: 0 */
    const float *x;           /* [rows][cols] the weights, all finite */
    const float *mean_square; /* [cols] mean square of the inputs of each column; NULL: unknown */
    const double *value;      /* of the parameters in order: a number, 0 or 1, or the position of a choice */

    /* Output, zero at first; fill all of it. The memory ends with the last row. */
    float *weights; /* WEIGHTS: [rows][cols]; else NULL */
    uint8_t *codes; /* CODES: [rows][cols]; else NULL */
    float *scales;  /* CODES: [rows][cols / group]; else NULL */
    float *zeros;   /* CODES, group formats: [rows][cols / group], need not be whole; else NULL */

    /* Error message if `encode` returns anything but 0; zero-terminated. */
    char *error;
    size_t error_size;
};

/* ---------------------------------------------------------------- the description */

struct qdyno_plugin {
    uint32_t version;    /* QDYNO_PLUGIN_VERSION */
    const char *name;    /* of the method in config lines; same rules as for parameter names */
    const char *help;    /* one line: what it does */
    const char *good;    /* one line: strengths; may be NULL */
    const char *bad;     /* one line: weaknesses; may be NULL */
    const char *formats; /* formats it can make, separated by one space, the default first; NULL (WEIGHTS
                            only): all */
    enum qdyno_answer answer;
    enum qdyno_calibration calibration;
    const struct qdyno_parameter *parameters; /* ends with a row whose name is NULL; NULL: none */
    int (*encode)(struct qdyno_rows *rows);   /* returns 0 for success, ENOMEM (errno.h) when memory ran out,
                                                 another number for any other error */
};

/* The exported function. The description must stay valid as long as the library is loaded. */
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
