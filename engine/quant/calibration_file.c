/* Calibration files: GGUF with the tensors that llama.cpp reads as an importance matrix ("<matrix>.in_sum2",
 * "<matrix>.counts"), plus our statistics under other names, which llama.cpp ignores. docs/formats.md
 * describes the layout. Files are untrusted: sizes are checked here, values in calibration_finish. */
#include "engine/quant/calibration_internal.h"
#include "engine/gguf/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Layout version of our part; a file with a higher number is rejected. NAME: bytes of a tensor name.
 * PARTS_MOST: matrices of one tensor. */
enum { VERSION = 1, NAME = 128, PARTS_MOST = 1 << 16 };
static const char KEY_VERSION[] = "qdyno.calibration.version", KEY_MODEL[] = "qdyno.calibration.model",
                  KEY_MODEL_NAME[] = "qdyno.calibration.model_name",
                  KEY_BUNDLED[] = "qdyno.calibration.bundled_text", KEY_IDS[] = "qdyno.calibration.ids",
                  KEY_BOS[] = "qdyno.calibration.bos", KEY_INPUTS[] = "qdyno.calibration.inputs",
                  KEY_TEXTS[] = "imatrix.datasets", KEY_CHUNKS[] = "imatrix.chunk_count",
                  KEY_CHUNK[] = "imatrix.chunk_size";

/* Statistics of one input stored as one tensor "<first matrix><suffix>" of shape [rows][cols]. */
struct part {
    const char *suffix;
    int64_t cols, rows;
    float *row[CALIBRATION_COLUMNS]; /* [rows] pointers to arrays of cols floats */
};
enum { PARTS = 4 };

/* List the tensors of an input. The histograms must have their number of bins and memory for counts. */
static void input_parts(struct part *p, struct calibration_input *in)
{
    p[0] = (struct part){ .suffix = ".qdyno.columns", .cols = in->cols, .rows = CALIBRATION_COLUMNS };
    for (int i = 0; i < CALIBRATION_COLUMNS; i++) p[0].row[i] = *calibration_column(in, i);
    p[1] = (struct part){
        .suffix = ".qdyno.batches", .cols = in->batches, .rows = 2, .row = { in->batch_min, in->batch_max }
    };
    p[2] = (struct part){ .suffix = ".qdyno.histogram",
                          .cols = in->histogram.bins,
                          .rows = 1,
                          .row = { (float *)in->histogram.counts } };
    p[3] = (struct part){ .suffix = ".qdyno.symmetric",
                          .cols = in->symmetric.bins,
                          .rows = 1,
                          .row = { (float *)in->symmetric.counts } };
}

static const char RANGES[] = ".qdyno.ranges"; /* [4]: low and high of both histograms */
enum { RANGE_COUNT = 4 };

static const char *part_name(char buf[NAME], const char *matrix, const char *suffix)
{
    snprintf(buf, NAME, "%s%s", matrix, suffix);
    return buf;
}

/* ---------------------------------------------------------------- writing */

/* Put the metadata: keys of llama.cpp, and with CALIBRATION_ALL our own. */
static void calibration_put_metadata(struct gguf_writer *w, const struct calibration *c,
                                     enum calibration_parts parts)
{
    const struct gguf_string text = { c->text, strlen(c->text) };
    gguf_writer_put_string(w, "general.type", "imatrix");
    gguf_writer_put_strings(w, KEY_TEXTS, &text, text.len ? 1 : 0);
    gguf_writer_put_u32(w, KEY_CHUNKS, (uint32_t)MIN(c->sequences, UINT32_MAX));
    gguf_writer_put_u32(w, KEY_CHUNK, (uint32_t)MAX(c->tokens, 1));
    if (parts != CALIBRATION_ALL) return;
    gguf_writer_put_u32(w, KEY_VERSION, VERSION);
    gguf_writer_put_string(w, KEY_MODEL, c->model);
    gguf_writer_put_string(w, KEY_MODEL_NAME, c->model_name);
    gguf_writer_put_bool(w, KEY_BUNDLED, c->bundled_text);
    gguf_writer_put_array(w, KEY_IDS, GGUF_I32, c->ids, (uint64_t)(c->sequences * c->tokens));
    if (c->bos >= 0) gguf_writer_put_u32(w, KEY_BOS, (uint32_t)c->bos);
}

/* For each input, the names of its matrices separated by spaces. */
static enum err_code calibration_put_inputs(struct gguf_writer *w, const struct calibration *c,
                                            struct err *why)
{
    struct gguf_string *lists = calloc((size_t)c->input_count, sizeof *lists);
    struct str all = { 0 };
    size_t *from = calloc((size_t)c->input_count + 1, sizeof *from);
    for (int i = 0; i < c->input_count && lists && from; i++) {
        for (int t = 0; t < c->inputs[i].tensor_count; t++)
            str_printf(&all, "%s%s", t ? " " : "", c->inputs[i].tensors[t]);
        from[i + 1] = all.len;
    }
    const bool made = lists && from && !all.failed;
    for (int i = 0; i < c->input_count && made; i++)
        lists[i] = (struct gguf_string){ str_text(&all) + from[i], from[i + 1] - from[i] };
    if (made) gguf_writer_put_strings(w, KEY_INPUTS, lists, (uint64_t)c->input_count);
    str_free(&all);
    free(lists);
    free(from);
    return made ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for a calibration's file");
}

static bool name_is_written(const struct calibration_name *n, enum calibration_parts parts)
{
    return parts == CALIBRATION_ALL || imatrix_holds(n->name);
}

/* Declare the tensors of the file, in the order in which calibration_write_tensors writes them. */
static void calibration_add_tensors(struct gguf_writer *w, const struct calibration *c,
                                    enum calibration_parts parts)
{
    const struct format *f32 = &FORMATS[FORMAT_F32];
    char name[NAME];
    for (int i = 0; i < c->name_count; i++) {
        const struct calibration_name *n = &c->names[i];
        if (!name_is_written(n, parts)) continue;
        gguf_writer_add_tensor(w, part_name(name, n->name, ".in_sum2"), f32, 2,
                               (const int64_t[]){ c->inputs[n->input].cols, c->inputs[n->input].parts });
        gguf_writer_add_tensor(w, part_name(name, n->name, ".counts"), f32, 2,
                               (const int64_t[]){ 1, c->inputs[n->input].parts });
    }
    for (int i = 0; i < c->input_count && parts == CALIBRATION_ALL; i++) {
        struct part part[PARTS];
        input_parts(part, &c->inputs[i]);
        const char *first = c->inputs[i].tensors[0];
        for (int p = 0; p < PARTS; p++)
            gguf_writer_add_tensor(w, part_name(name, first, part[p].suffix), f32, 2,
                                   (const int64_t[]){ part[p].cols, part[p].rows });
        gguf_writer_add_tensor(w, part_name(name, first, RANGES), f32, 1, (const int64_t[]){ RANGE_COUNT });
    }
}

/* Write the data of the tensors that calibration_add_tensors declared. */
static void calibration_write_tensors(struct gguf_writer *w, const struct calibration *c,
                                      enum calibration_parts parts)
{
    for (int i = 0; i < c->name_count; i++) {
        const struct calibration_input *in = &c->inputs[c->names[i].input];
        if (!name_is_written(&c->names[i], parts)) continue;
        gguf_writer_write(w, in->sum_squares, in->parts * in->cols * (int64_t)sizeof(float), NULL);
        for (int p = 0; p < in->parts; p++) {
            const float count = (float)in->part_count[p];
            gguf_writer_write(w, &count, sizeof count, NULL);
        }
    }
    for (int i = 0; i < c->input_count && parts == CALIBRATION_ALL; i++) {
        struct calibration_input *in = &c->inputs[i];
        const float ranges[RANGE_COUNT] = { in->histogram.low, in->histogram.high, in->symmetric.low,
                                            in->symmetric.high };
        struct part part[PARTS];
        input_parts(part, in);
        for (int p = 0; p < PARTS; p++)
            for (int64_t r = 0; r < part[p].rows; r++)
                gguf_writer_write(w, part[p].row[r], part[p].cols * (int64_t)sizeof(float), NULL);
        gguf_writer_write(w, ranges, sizeof ranges, NULL);
    }
}

/* The writer remembers its first error, and gguf_writer_commit returns it. */
enum err_code calibration_write(const struct calibration *c, const char *path, enum calibration_parts parts,
                                struct err *why)
{
    struct gguf_writer *w;
    enum err_code rc = gguf_writer_open(&w, path, why);
    if (rc) return rc;
    calibration_put_metadata(w, c, parts);
    if (parts == CALIBRATION_ALL && (rc = calibration_put_inputs(w, c, why))) {
        gguf_writer_abort(w);
        return rc;
    }
    calibration_add_tensors(w, c, parts);
    calibration_write_tensors(w, c, parts);
    return gguf_writer_commit(w, why);
}

enum err_code calibration_save(const struct calibration *c, const char *path, struct err *why)
{
    if (c->imatrix)
        return err_set(why, ERR_USAGE,
                       "'%s': an importance matrix contains mean squares only and cannot be saved as a "
                       "calibration",
                       path);
    return calibration_write(c, path, CALIBRATION_ALL, why);
}

/* ---------------------------------------------------------------- reading */

/* The f32 tensor "<matrix><suffix>" of shape [rows][cols] (below 0: any). NULL, with a message, if there is
 * no such tensor. */
static const struct gguf_tensor *gguf_find_floats(const struct gguf *g, const char *matrix,
                                                  const char *suffix, int64_t cols, int64_t rows,
                                                  struct err *why)
{
    char name[NAME];
    const struct gguf_tensor *t = gguf_tensor_find(g, part_name(name, matrix, suffix));
    if (t && t->format == &FORMATS[FORMAT_F32] && (cols < 0 || t->shape[0] == cols) &&
        (rows < 0 || t->shape[1] == rows) && t->shape[2] == 1 && t->shape[3] == 1)
        return t;
    err_set(why, ERR_FORMAT,
            "'%s': expected %s%" PRId64 " rows of %s%" PRId64 " f32 numbers in '%s', the file has %s",
            gguf_path(g), rows < 0 ? "at least " : "", MAX(rows, 1), cols < 0 ? "at least " : "",
            MAX(cols, 1), name, t ? "another shape or type" : "no such tensor");
    return NULL;
}

/* Read the sums of squares of an input and its counts, one of each for every part. */
static enum err_code input_read_sums(struct calibration_input *in, const struct gguf *g, struct err *why)
{
    const char *name = in->tensors[0];
    const struct gguf_tensor *sums = gguf_find_floats(g, name, ".in_sum2", in->cols, in->parts, why),
                             *counts = sums ? gguf_find_floats(g, name, ".counts", 1, in->parts, why) : NULL;
    if (!counts) return ERR_FORMAT;
    for (int p = 0; p < in->parts; p++) {
        float count;
        memcpy(&count, counts->data + (size_t)p * sizeof count, sizeof count);
        if (!(count >= (in->parts > 1 ? 0 : 1)) || count > 0x1p40f)
            return err_set(why, ERR_FORMAT, "'%s': '%s' has a token count of %g", gguf_path(g), name,
                           (double)count);
        in->part_count[p] = (int64_t)roundf(count);
        in->count += in->part_count[p];
    }
    memcpy(in->sum_squares, sums->data, (size_t)in->parts * (size_t)in->cols * sizeof(float));
    return ERR_OK;
}

/* Read the number of bins of a histogram and allocate them. */
static enum err_code histogram_read_bins(struct calibration *c, struct histogram *h, const struct gguf *g,
                                         const char *matrix, const char *suffix, struct err *why)
{
    const struct gguf_tensor *t = gguf_find_floats(g, matrix, suffix, -1, 1, why);
    if (!t) return ERR_FORMAT;
    if (t->shape[0] > INT32_MAX) return err_set(why, ERR_FORMAT, "'%s': too many bins", t->name);
    h->bins = (int)t->shape[0];
    h->counts = arena_alloc(&c->memory, (size_t)h->bins * sizeof(float));
    return h->counts ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for '%s'", t->name);
}

/* Read the statistics of an input that only our files have. */
static enum err_code input_read_parts(struct calibration *c, struct calibration_input *in,
                                      const struct gguf *g, struct err *why)
{
    struct part part[PARTS];
    const char *first = in->tensors[0];
    enum err_code rc = histogram_read_bins(c, &in->histogram, g, first, ".qdyno.histogram", why);
    if (!rc) rc = histogram_read_bins(c, &in->symmetric, g, first, ".qdyno.symmetric", why);
    if (rc) return rc;
    input_parts(part, in);
    for (int p = 0; p < PARTS; p++) {
        const struct gguf_tensor *t = gguf_find_floats(g, first, part[p].suffix, part[p].cols, part[p].rows,
                                                       why);
        if (!t) return ERR_FORMAT;
        const size_t bytes = (size_t)part[p].cols * sizeof(float);
        for (int64_t r = 0; r < part[p].rows; r++) memcpy(part[p].row[r], t->data + (size_t)r * bytes, bytes);
    }
    float ranges[RANGE_COUNT];
    const struct gguf_tensor *t = gguf_find_floats(g, first, RANGES, RANGE_COUNT, 1, why);
    if (!t) return ERR_FORMAT;
    memcpy(ranges, t->data, sizeof ranges);
    in->histogram.low = ranges[0];
    in->histogram.high = ranges[1];
    in->symmetric.low = ranges[2];
    in->symmetric.high = ranges[3];
    return ERR_OK;
}

/* Read the input whose matrices are `list`, one element of KEY_INPUTS. */
static enum err_code calibration_read_input(struct calibration *c, const struct gguf *g,
                                            struct gguf_string list, struct err *why)
{
    enum { READERS_MAX = 16 };
    const char *names[READERS_MAX];
    int count = 0;
    char *text = arena_strndup(&c->memory, list.data, list.len), *rest = NULL;
    if (!text) return err_set(why, ERR_NOMEM, "out of memory for '%s'", gguf_path(g));
    for (char *n = strtok_r(text, " ", &rest); n && count < READERS_MAX; n = strtok_r(NULL, " ", &rest))
        names[count++] = n;
    if (!count)
        return err_set(why, ERR_FORMAT, "'%s': an input of the calibration names no matrix", gguf_path(g));
    enum err_code rc = calibration_list(c, names, count, why);
    if (rc) return err_prefix(why, "'%s'", gguf_path(g));
    const struct gguf_tensor *sums = gguf_find_floats(g, names[0], ".in_sum2", -1, -1, why);
    if (!sums || sums->shape[1] > PARTS_MOST)
        return sums ? err_set(why, ERR_FORMAT, "'%s': '%s' has more than %d matrices", gguf_path(g), names[0],
                              PARTS_MOST)
                    : ERR_FORMAT;
    struct calibration_input *in = calibration_add(c, names, count, sums->shape[0], (int)sums->shape[1],
                                                   c->sequences);
    if (!in) return err_set(why, ERR_NOMEM, "out of memory for '%s'", gguf_path(g));
    rc = input_read_sums(in, g, why);
    return rc ? rc : input_read_parts(c, in, g, why);
}

/* Read the token ids of the calibration text. */
static enum err_code calibration_read_ids(struct calibration *c, const struct gguf *g, struct err *why)
{
    const struct gguf_kv *ids = gguf_kv_find(g, KEY_IDS);
    const int64_t bos = gguf_get_int(g, KEY_BOS, -1);
    if (!ids || ids->type != GGUF_ARRAY || ids->element != GGUF_I32 || c->sequences < 1 || c->tokens < 1 ||
        ids->count != (uint64_t)(c->sequences * c->tokens) || bos < -1 || bos > INT32_MAX)
        return err_set(why, ERR_FORMAT,
                       "'%s': expected the token ids of %" PRId64 " sequences of %d tokens in '%s'",
                       gguf_path(g), c->sequences, c->tokens, KEY_IDS);
    c->bos = (int32_t)bos;
    c->ids = arena_alloc(&c->memory, (size_t)ids->count * sizeof *c->ids);
    if (!c->ids) return err_set(why, ERR_NOMEM, "out of memory for '%s'", gguf_path(g));
    memcpy(c->ids, ids->data, (size_t)ids->count * sizeof *c->ids);
    for (uint64_t i = 0; i < ids->count; i++)
        if (c->ids[i] < 0)
            return err_set(why, ERR_FORMAT, "'%s': token id %" PRIu64 " is %d, expected 0 or more",
                           gguf_path(g), i, c->ids[i]);
    return ERR_OK;
}

static char *calibration_read_text(struct calibration *c, const struct gguf *g, const char *key)
{
    const struct gguf_string s = gguf_get_string(g, key);
    return arena_strndup(&c->memory, s.data ? s.data : "", s.len);
}

/* The part that only our files have. */
static enum err_code calibration_read_statistics(struct calibration *c, const struct gguf *g, struct err *why)
{
    const int64_t version = gguf_get_int(g, KEY_VERSION, -1);
    const struct gguf_string model = gguf_get_string(g, KEY_MODEL);
    const struct gguf_kv *inputs = gguf_kv_find(g, KEY_INPUTS);
    if (version < 1 || version > VERSION)
        return err_set(why, ERR_FORMAT,
                       "'%s': expected calibration layout version 1 to %d, the file has %" PRId64,
                       gguf_path(g), VERSION, version);
    if (model.len != HASH_HEX - 1 || !inputs || inputs->type != GGUF_ARRAY || inputs->element != GGUF_STRING)
        return err_set(
            why, ERR_FORMAT,
            "'%s': expected the key '%s' with a text of %d characters (the model's SHA-256) and the "
            "key '%s' with a list of texts; at least one is missing or different: make the file "
            "again with qdyno calibrate",
            gguf_path(g), KEY_MODEL, HASH_HEX - 1, KEY_INPUTS);
    memcpy(c->model, model.data, model.len);
    c->model_name = calibration_read_text(c, g, KEY_MODEL_NAME);
    c->bundled_text = gguf_get_bool(g, KEY_BUNDLED, false);
    enum err_code rc = calibration_read_ids(c, g, why);
    for (uint64_t i = 0; i < inputs->count && !rc; i++)
        rc = calibration_read_input(c, g, gguf_kv_string(inputs, i), why);
    return rc;
}

/* Read an importance matrix in llama.cpp's GGUF format. */
static enum err_code calibration_read_imatrix(struct calibration *c, const struct gguf *g, struct err *why)
{
    static const char SUFFIX[] = ".in_sum2";
    enum err_code rc = ERR_OK;
    c->imatrix = true;
    for (int64_t i = 0; i < gguf_tensor_count(g) && !rc; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        const size_t n = strlen(t->name), tail = sizeof SUFFIX - 1;
        if (n <= tail || strcmp(t->name + n - tail, SUFFIX)) continue;
        if (t->shape[1] > PARTS_MOST)
            return err_set(why, ERR_FORMAT, "'%s': '%s' has more than %d matrices", gguf_path(g), t->name,
                           PARTS_MOST);
        const char *matrix = arena_strndup(&c->memory, t->name, n - tail);
        struct calibration_input *in = matrix
                                           ? calibration_add(c, &matrix, 1, t->shape[0], (int)t->shape[1], 0)
                                           : NULL;
        if (!in) return err_set(why, ERR_NOMEM, "out of memory for '%s'", gguf_path(g));
        rc = input_read_sums(in, g, why);
    }
    return rc;
}

/* Read either kind of GGUF file, and check the result. */
static enum err_code calibration_read_gguf(struct calibration *c, const struct gguf *g, struct err *why)
{
    if (!gguf_string_is(gguf_get_string(g, "general.type"), "imatrix"))
        return err_set(why, ERR_FORMAT,
                       "'%s' is not a calibration: expected general.type 'imatrix'%s; make one with qdyno "
                       "calibrate",
                       gguf_path(g),
                       gguf_get_string(g, "general.architecture").data ? ", this is a model" : "");
    const struct gguf_kv *texts = gguf_kv_find(g, KEY_TEXTS);
    const bool named = texts && texts->type == GGUF_ARRAY && texts->element == GGUF_STRING && texts->count;
    const struct gguf_string text = named ? gguf_kv_string(texts, 0) : (struct gguf_string){ "", 0 };
    const int64_t tokens = gguf_get_int(g, KEY_CHUNK, 0);
    c->text = arena_strndup(&c->memory, text.data, text.len);
    c->sequences = MIN(MAX(gguf_get_int(g, KEY_CHUNKS, 0), 0), INT32_MAX);
    c->tokens = tokens > 0 && tokens < INT32_MAX ? (int)tokens : 0;
    enum err_code rc = gguf_kv_find(g, KEY_VERSION) ? calibration_read_statistics(c, g, why)
                                                    : calibration_read_imatrix(c, g, why);
    if (!rc && (!c->text || !c->model_name))
        rc = err_set(why, ERR_NOMEM, "out of memory for '%s'", gguf_path(g));
    return rc ? rc : calibration_finish(c, why);
}

/* Parse an open file. The calibration does not point into g, which may be closed afterwards. */
static enum err_code calibration_parse_gguf(struct calibration **out, const struct gguf *g, struct err *why)
{
    struct calibration *c = calibration_new();
    *out = NULL;
    enum err_code rc = c ? calibration_read_gguf(c, g, why)
                         : err_set(why, ERR_NOMEM, "out of memory for '%s'", gguf_path(g));
    if (!rc) {
        *out = c;
        return ERR_OK;
    }
    calibration_close(c);
    return rc;
}

static bool bytes_are_gguf(const void *bytes, size_t size)
{
    return size >= 4 && !memcmp(bytes, "GGUF", 4);
}

enum err_code calibration_load_memory(struct calibration **out, const void *bytes, size_t size,
                                      struct err *why)
{
    struct gguf *g;
    *out = NULL;
    if (!bytes_are_gguf(bytes, size)) return imatrix_parse(out, bytes, size, "memory", why);
    enum err_code rc = gguf_open_memory(&g, bytes, size, why);
    if (rc) return rc;
    rc = calibration_parse_gguf(out, g, why);
    gguf_close(g);
    return rc;
}

enum err_code calibration_load(struct calibration **out, const char *path, struct err *why)
{
    struct file_map map;
    struct gguf *g;
    *out = NULL;
    enum err_code rc = file_map(&map, path, why);
    if (rc) return rc;
    const bool legacy = !bytes_are_gguf(map.data, map.size);
    if (legacy) rc = imatrix_parse(out, map.data, map.size, path, why);
    file_unmap(&map);
    if (legacy) return rc;
    if ((rc = gguf_open(&g, path, why))) return rc; /* its messages name the path and the damaged part */
    rc = calibration_parse_gguf(out, g, why);
    if (gguf_check_unchanged(g, why)) {
        calibration_close(*out);
        *out = NULL;
        rc = ERR_FORMAT;
    }
    gguf_close(g);
    return rc;
}
