/* engine/plan/split.h - which part of a model each of several processes has.
 *
 * Tensor parallelism (tp) divides matrices by their rows, the outputs: each output is computed by one
 * process, with the order of sums that a single process has. So the bits are the same, and processes exchange
 * activations, never partial sums. Queries, keys and values are divided by heads, and a process has the KV
 * cache of its heads only. Of experts every process has some rows of each, so all of them have the same work
 * whichever experts are chosen. Layers that keep a state divide their matrices; every process has the
 * state itself. Context parallelism (cp) divides the positions of the KV cache, in blocks of SHARE_TOKENS
 * (kernels.h), and with them attention; processes exchange partial sums of attention. Pipelines (pp) divide
 * the layers. */
#ifndef QDYNO_ENGINE_SPLIT_H
#define QDYNO_ENGINE_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "kernels/kernels.h"

/* The part of one process. Zeroed: the whole model. */
struct part {
    int tp, tp_rank; /* matrices are divided among tp processes; 0 and 1: not */
    int cp, cp_rank; /* positions are divided among cp; 0 and 1: not */
    int pp, stage;   /* layers are divided among pp; 0 and 1: not */
    int first, end;  /* layers [first, end); 0, 0: all */
    int dp, replica; /* sequences are divided among dp: sequence s is number s / dp of replica s % dp */
};

/* The part of rank `rank` of parallel_ranks(mode). Ranks are numbered with tp fastest, then cp, pp and dp. */
struct part part_of(const struct parallel *mode, int rank, int layers);

/* Number of the rank that has a stage of a replica, a tp_rank and this part's positions. */
static inline int part_rank(const struct part *p, int replica, int stage, int tp_rank)
{
    return ((replica * p->pp + stage) * p->cp + p->cp_rank) * p->tp + tp_rank;
}
static inline bool part_is_last(const struct part *p)
{
    return p->stage >= p->pp - 1;
}
/* Sequences of each replica, of so many of all. */
static inline int part_sequences(const struct parallel *mode, int sequences)
{
    return (sequences + mode->dp - 1) / mode->dp;
}

/* Divide the layers among stages in proportion to the speeds of their machines [pp]; each has one or more.
 * Nothing if there are too many stages for parallel=, or fewer layers than stages. */
void split_stages(struct parallel *mode, int layers, const double *speed);

/* Can this model be divided so? ERR_USAGE: the message says which part of the model cannot. */
enum err_code split_check(const struct parallel *mode, const struct arch *a, const struct model_shape *s,
                          struct err *why);

/* Does the part have this layer (-1: the tensors outside the layers)? */
static inline bool part_has_layer(const struct part *p, int layer)
{
    return layer < 0 || !p->end || (layer >= p->first && layer < p->end);
}

/* Does the part use this tensor? Vectors outside the layers are everywhere; they are small. */
bool part_has_tensor(const struct part *p, const struct model_shape *s, int layer, enum slot slot);
/* Its layers that keep a state. */
int part_states(const struct part *p, const struct model_shape *s);

/* Where part i of `parts` of n rows begins; i = parts: n. Parts can be empty. */
enum {
    SPLIT_ROWS = 16,        /* parts of plain outputs are multiples of this: the rows of a block of GEMV */
    SPLIT_ACTIVATIONS = 64, /* of feed-forwards: activation functions run on whole vectors */
};
int64_t split_cut(int64_t n, int unit, int parts, int i);

/* The attention heads of tp rank `rank`. */
struct head_part {
    int head, heads, kv_head, kv_heads; /* first, number */
};
struct head_part split_heads(int tp, int rank, int heads, int kv_heads);
/* A part's heads in the first layer with attention, and so in all of them. */
struct head_part split_first_heads(const struct part *p, const struct model_shape *s);

/* Are the rows of this matrix divided by number, in units of SPLIT_ROWS? Others by heads or activations, or
 * not at all. */
bool split_is_plain(enum slot slot);
/* The rows of a matrix [rows][...] that a part has: ranges in ascending order, more than one where the matrix
 * consists of several. Returns their number, 1 to 3; a range can be empty. */
struct row_range {
    int64_t from, rows;
};
enum { ROW_RANGES = 3 };
int split_rows(struct row_range out[ROW_RANGES], const struct part *p, const struct arch *a,
               const struct model_shape *s, int layer, enum slot slot, int64_t rows);
/* Of a tensor with several matrices, those that a part has some rows of: of heads its own, of experts all. */
struct row_range split_matrices(const struct part *p, const struct model_shape *s, int layer, enum slot slot,
                                int64_t matrices);
/* The sum of the rows of one matrix. */
int64_t split_row_count(const struct part *p, const struct arch *a, const struct model_shape *s, int layer,
                        enum slot slot, int64_t rows);

/* Where the outputs of tp rank i begin among those of all (i = tp: their number): heads of attention of a
 * layer, or a feed-forward of `width`, which may be one of every expert. */
int64_t split_attention_cut(int tp, int i, const struct model_shape *s, int layer);
int64_t split_ff_cut(int tp, int i, int64_t width);
/* The part's number of them. */
int32_t split_ff_width(const struct part *p, int64_t width);

/* Bytes of one row of `cols` numbers in format f as it travels. Its last block is filled up with zeros. */
int64_t wire_row_bytes(const struct format *f, int64_t cols);
/* Encode a row for travelling, and decode it. A block with a value that is no finite number becomes NaN, so
 * that it is found behind the exchange as well. */
void wire_pack(const struct format *f, const float *x, int64_t cols, void *out);
void wire_unpack(const struct format *f, const void *in, int64_t cols, float *x);

/* Bytes of the buffers for exchanges of a process, whose activations travel as f: with tp a piece that is
 * sent, one that is received, and the rows of a whole feed-forward; with pp rows to be sent or received. */
enum { WIRE_ROWS = 64 }; /* of a hidden state, at a time */
struct exchange_sizes {
    int64_t piece; /* each of two; 0: nothing is divided by tp */
    int64_t ff, stage;
};
struct exchange_sizes exchange_sizes(const struct part *p, const struct model_shape *s, const struct arch *a,
                                     int batch, const struct format *f);
int64_t exchange_bytes(const struct exchange_sizes *z); /* their sum, as allocated */

/* The positions of a part, by their numbers in its cache. */
static inline struct attention_share part_share(const struct part *p)
{
    return (struct attention_share){ .parts = MAX(p->cp, 1), .part = p->cp_rank };
}
/* Buffers of a process with a part of the positions, each of so many floats: results of attention to its
 * positions for some rows, the same to be sent, and those of all processes. */
struct share_sizes {
    int64_t out, send, receive; /* 0: positions are not divided */
    int64_t rows; /* queries, keys and values of all rows of a batch; 0: rows are never divided */
};
struct model_session;
struct share_sizes share_sizes(const struct model_session *e, const struct model_shape *s,
                               const struct arch *a);
int64_t share_bytes(const struct share_sizes *z); /* their sum, as allocated */

#endif
