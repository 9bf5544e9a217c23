/* Encodes a matrix with a plug-in. Child processes get parts of the rows and write their choices to memory
 * shared with the parent. Each child sees only its own part, between pages that may not be accessed. The
 * parent checks every value before it becomes bytes of a file. */
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "engine/quant/calibration.h"
#include "engine/quant/methods.h"
#include "engine/quant/plugin.h"

enum {
    PROCESS_WEIGHTS = 1 << 17, /* at least this many weights for each child */
    CALL_WEIGHTS = 1 << 16,    /* in one call of the plug-in; progress is counted between calls */
    PART_DONE = 0,             /* parts of the shared memory: a counter of finished rows */
    PART_WEIGHTS,
    PART_CODES,
    PART_SCALES,
    PART_ZEROS,
    PART_COUNT
};

/* Shared memory that ends at a page without access rights. */
struct guarded {
    void *map; /* NULL: not allocated */
    size_t map_bytes;
    void *at;
};

/* The rows of one child, and its shared memory. */
struct plugin_share {
    int64_t first, rows;
    struct guarded part[PART_COUNT];
};

struct encoding {
    const struct plugin *plugin;
    struct tensor_job *job;
    int64_t group, groups; /* columns in a group, groups in a row */
    int bits;
    double *value; /* [parameters]: their values */
    struct plugin_share *shares;
    int count;
};

/* ---------------------------------------------------------------- memory */

/* Allocate shared memory of `bytes` bytes between two protected pages. */
static enum err_code guarded_alloc(struct guarded *g, size_t bytes, struct err *why)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (bytes + page - 1) / page * page;
    if (!bytes) return ERR_OK;
    unsigned char *map = mmap(NULL, body + 2 * page, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (map != MAP_FAILED && mprotect(map + page, body, PROT_READ | PROT_WRITE)) {
        munmap(map, body + 2 * page);
        map = MAP_FAILED;
    }
    if (map == MAP_FAILED) return err_set(why, ERR_NOMEM, "out of memory for what a plug-in answers");
    *g = (struct guarded){ map, body + 2 * page, map + page + body - bytes };
    return ERR_OK;
}

/* Allocate the shared memory of one child for its rows. */
static enum err_code plugin_share_alloc(const struct encoding *e, struct plugin_share *s, struct err *why)
{
    const bool codes = e->plugin->answer == QDYNO_CODES, zeros = codes && format_group_bits(e->job->format);
    const size_t weights = (size_t)(s->rows * e->job->cols), groups = (size_t)(s->rows * e->groups);
    const size_t bytes[PART_COUNT] = { [PART_DONE] = sizeof(int64_t),
                                       [PART_WEIGHTS] = codes ? 0 : weights * sizeof(float),
                                       [PART_CODES] = codes ? weights : 0,
                                       [PART_SCALES] = codes ? groups * sizeof(float) : 0,
                                       [PART_ZEROS] = zeros ? groups * sizeof(float) : 0 };
    enum err_code rc = ERR_OK;
    for (int i = 0; i < PART_COUNT && !rc; i++) rc = guarded_alloc(&s->part[i], bytes[i], why);
    return rc;
}

/* For plugin_crew.lend: with `on`, the next fork inherits the shared memory of child `member`; without, no
 * fork does. So each child sees its own memory only. Returns 0 or an errno. */
static int encoding_lend(void *arg, int member, bool on)
{
    const struct encoding *e = arg;
    int cause = 0;
    for (int i = 0; i < PART_COUNT; i++) {
        const struct guarded *g = &e->shares[member].part[i];
        if (g->map && madvise(g->map, g->map_bytes, on ? MADV_DOFORK : MADV_DONTFORK)) cause = errno;
    }
    return cause;
}

static void encoding_close(struct encoding *e)
{
    for (int s = 0; e->shares && s < e->count; s++)
        for (int i = 0; i < PART_COUNT; i++)
            if (e->shares[s].part[i].map) munmap(e->shares[s].part[i].map, e->shares[s].part[i].map_bytes);
    free(e->shares);
    free(e->value);
}

/* ---------------------------------------------------------------- in the child */

/* Row `row` in one part of the shared memory, with `width` bytes a row; NULL: the part is not used. */
static void *part_row(const struct plugin_share *s, int part, int64_t row, int64_t width)
{
    return s->part[part].at ? (unsigned char *)s->part[part].at + row * width : NULL;
}

/* Work of a child: call the plug-in's encode for its rows, some at a time. */
static int encoding_run_share(void *arg, int member, const struct qdyno_plugin *plugin, struct str *out)
{
    const struct encoding *e = arg;
    const struct tensor_job *job = e->job;
    const struct plugin_share *s = &e->shares[member];
    const int64_t step = MAX(CALL_WEIGHTS / job->cols, 1), width = job->cols * (int64_t)sizeof(float),
                  group_width = e->groups * (int64_t)sizeof(float);
    for (int64_t row = 0; row < s->rows; row += step) {
        char error[256] = "";
        struct qdyno_rows r = { .tensor = job->name,
                                .format = job->format->name,
                                .first_row = s->first + row,
                                .rows = MIN(step, s->rows - row),
                                .cols = job->cols,
                                .group = e->group,
                                .bits = e->bits,
                                .x = job->x + (s->first + row) * job->cols,
                                .mean_square = job->input ? job->input->mean_square : NULL,
                                .value = e->value,
                                .weights = part_row(s, PART_WEIGHTS, row, width),
                                .codes = part_row(s, PART_CODES, row, job->cols),
                                .scales = part_row(s, PART_SCALES, row, group_width),
                                .zeros = part_row(s, PART_ZEROS, row, group_width),
                                .error = error,
                                .error_size = sizeof error };
        const int failed = plugin->encode(&r);
        if (failed) {
            error[sizeof error - 1] = '\0';
            if (failed == ENOMEM) memory_short_set();
            str_printf(out, "'%s': %s", job->name, error[0] ? error : "encode failed without a reason");
            return 1;
        }
        atomic_store((_Atomic int64_t *)s->part[PART_DONE].at, row + MIN(step, s->rows - row));
    }
    return 0;
}

/* Progress counter: rows finished by all children. */
static int64_t encoding_rows_done(void *arg)
{
    const struct encoding *e = arg;
    int64_t sum = 0;
    for (int i = 0; i < e->count; i++) sum += atomic_load((_Atomic int64_t *)e->shares[i].part[PART_DONE].at);
    return sum;
}

/* ---------------------------------------------------------------- checking the answers */

static bool floats_are_finite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

/* Pack one row of group codes. */
static void share_pack_groups(const struct encoding *e, const struct plugin_share *s, int64_t row,
                              unsigned char *out)
{
    const struct format *f = e->job->format;
    const uint8_t *codes = part_row(s, PART_CODES, row, e->job->cols);
    const float *scales = part_row(s, PART_SCALES, row, e->groups * (int64_t)sizeof(float)),
                *zeros = part_row(s, PART_ZEROS, row, e->groups * (int64_t)sizeof(float));
    for (int64_t i = 0; i < e->groups; i++) {
        struct group_codes g = { .scale = scales[i], .zero = zeros[i] };
        memcpy(g.code, codes + i * e->group, (size_t)e->group);
        format_group_pack(f, &g, out + i * f->block_bytes);
    }
}

/* Check one row and encode it into job->out. NULL, or what is wrong with it. decoded [cols]: scratch. */
static const char *share_accept_row(const struct encoding *e, const struct plugin_share *s, int64_t row,
                                    float *decoded)
{
    const struct tensor_job *job = e->job;
    const struct format *f = job->format;
    unsigned char *out = (unsigned char *)job->out + (s->first + row) * format_row_bytes(f, job->cols);
    if (e->plugin->answer == QDYNO_WEIGHTS) {
        const float *w = part_row(s, PART_WEIGHTS, row, job->cols * (int64_t)sizeof(float));
        if (!floats_are_finite(w, job->cols)) return "a weight that is not a finite number";
        format_encode_rows(f, w, out, 1, job->cols);
        return NULL;
    }
    const uint8_t *codes = part_row(s, PART_CODES, row, job->cols);
    if (format_group_bits(f)) {
        const int most = (1 << e->bits) - 1;
        for (int64_t i = 0; i < job->cols; i++)
            if (codes[i] > most) return "a code that is too large for its format";
        share_pack_groups(e, s, row, out);
    } else {
        for (int64_t i = 0; f == &FORMATS[FORMAT_FP8_E4M3] && i < job->cols; i++)
            if ((codes[i] & 0x7f) == 0x7f) return "a code that means NaN"; /* our kernels decode it as 480 */
        format_row_pack(f, codes, *(float *)part_row(s, PART_SCALES, row, sizeof(float)), out, job->cols);
    }
    /* Decode as stored: a scale may exceed f16, an fp8 code may mean NaN. */
    format_decode_rows(f, out, decoded, 1, job->cols);
    return floats_are_finite(decoded, job->cols)
               ? NULL
               : "codes, a scale or a zero point that are not finite numbers";
}

struct acceptance {
    const struct encoding *e;
    const struct plugin_share *plugin_share;
    float *decoded;      /* [members][cols] scratch */
    _Atomic int64_t bad; /* first invalid row of the share; `rows`: none */
};

/* Thread function: check and encode some rows of a share; records the first invalid one. */
static void acceptance_rows(void *arg, int member, int size)
{
    struct acceptance *t = arg;
    const int64_t rows = t->plugin_share->rows, to = rows * (member + 1) / size;
    float *decoded = t->decoded + member * t->e->job->cols;
    for (int64_t row = rows * member / size; row < to; row++) {
        if (!share_accept_row(t->e, t->plugin_share, row, decoded)) continue;
        int64_t seen = atomic_load(&t->bad);
        while (row < seen && !atomic_compare_exchange_weak(&t->bad, &seen, row)) continue;
        return;
    }
}

/* Check and encode the rows of all children. ERR_FORMAT names the first invalid row. */
static enum err_code encoding_accept(const struct encoding *e, struct err *why)
{
    struct tensor_job *job = e->job;
    const size_t members = (size_t)threadpool_size(job->pool);
    float *decoded = malloc(members * (size_t)job->cols * sizeof *decoded);
    if (!decoded) return err_set(why, ERR_NOMEM, "out of memory while quantizing '%s'", job->name);
    enum err_code rc = ERR_OK;
    for (int i = 0; i < e->count && !rc; i++) {
        const struct plugin_share *s = &e->shares[i];
        struct acceptance t = { .e = e, .plugin_share = s, .decoded = decoded };
        atomic_init(&t.bad, s->rows);
        threadpool_run(job->pool, acceptance_rows, &t);
        const int64_t bad = atomic_load(&t.bad);
        if (bad < s->rows)
            rc = err_set(why, ERR_FORMAT, "plug-in %s gave %s in row %lld of '%s'", e->plugin->method.name,
                         share_accept_row(e, s, bad, decoded), (long long)(s->first + bad), job->name);
    }
    free(decoded);
    return rc;
}

/* ---------------------------------------------------------------- one matrix */

/* Values of the parameters in the order of the description: numbers, 0 or 1, or the index of a choice. */
static double *params_values(const struct params *p)
{
    size_t n = 0;
    while (p->method->params[n].name) n++;
    double *value = calloc(n + 1, sizeof *value);
    for (size_t i = 0; value && i < n; i++) {
        const struct param *q = &p->method->params[i];
        if (q->kind == VALUE_BOOL) {
            value[i] = params_bool(p, q->name);
        } else if (q->kind == VALUE_CHOICE) {
            char word[64];
            for (const char *at = q->choices; *at; at += strcspn(at, " "), at += *at == ' ') {
                snprintf(word, sizeof word, "%.*s", (int)strcspn(at, " "), at);
                if (params_is(p, q->name, word)) break;
                value[i]++;
            }
        } else {
            value[i] = params_real(p, q->name);
        }
    }
    return value;
}

/* ERR_USAGE when the library file changed since it was loaded: one file must not mix two versions. */
static enum err_code plugin_check_unchanged(const struct plugin *p, struct err *why)
{
    char hash[HASH_HEX];
    enum err_code rc = hash_file(p->path, hash, why);
    if (rc) return err_prefix(why, "plug-in %s", p->method.name);
    if (!strcmp(hash, p->hash)) return ERR_OK;
    return err_set(why, ERR_USAGE, "plug-in %s has changed since it was loaded: restart qdyno", p->path);
}

/* Divide the rows among children and allocate their shared memory. */
static enum err_code encoding_open(struct encoding *e, struct err *why)
{
    const struct tensor_job *job = e->job;
    const struct format *f = job->format;
    const bool groups = format_group_bits(f) != 0, codes = e->plugin->answer == QDYNO_CODES;
    e->bits = !codes ? 0 : groups ? format_group_bits(f) : 8;
    e->group = codes && !groups ? job->cols : f->block_weights;
    e->groups = job->cols / e->group;
    e->count = (int)MIN(threadpool_size(job->pool), MAX(job->rows * job->cols / PROCESS_WEIGHTS, 1));
    e->count = (int)MIN(e->count, job->rows);
    e->value = params_values(&job->params);
    e->shares = calloc((size_t)e->count, sizeof *e->shares);
    if (!e->value || !e->shares) return err_set(why, ERR_NOMEM, "out of memory for a plug-in");
    enum err_code rc = ERR_OK;
    for (int i = 0; i < e->count && !rc; i++) {
        e->shares[i].first = job->rows * i / e->count;
        e->shares[i].rows = job->rows * (i + 1) / e->count - e->shares[i].first;
        rc = plugin_share_alloc(e, &e->shares[i], why);
        const int cause = rc ? 0 : encoding_lend(e, i, false);
        if (cause)
            rc = err_set(why, err_of_errno(cause), "cannot set up memory for a plug-in: %s", strerror(cause));
    }
    return rc;
}

enum err_code plugin_encode(struct tensor_job *job, struct err *why)
{
    struct encoding e = { .plugin = (const struct plugin *)job->params.method, .job = job };
    char doing[192];
    snprintf(doing, sizeof doing, "encoding '%s'", job->name);
    struct plugin_crew crew = { .path = e.plugin->path,
                                .doing = doing,
                                .work = encoding_run_share,
                                .lend = encoding_lend,
                                .done = encoding_rows_done,
                                .arg = &e };
    enum err_code rc = plugin_patience(&crew.patience_ns, why);
    if (!rc) rc = plugin_check_unchanged(e.plugin, why);
    if (!rc) rc = encoding_open(&e, why);
    crew.count = e.count;
    if (!rc) rc = plugin_crew_run(&crew, NULL, why);
    if (!rc) rc = encoding_accept(&e, why);
    encoding_close(&e);
    return rc;
}
