/* qdyno synth: writes a model of any shape with random weights, to measure speed and memory without a
 * download. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/arch/arch.h"
#include "engine/synth/synth.h"
#include "kernels/kernels.h"
#include "tui/cli/commands.h"

/* clang-format off */
const struct cli_flag FLAGS_SYNTH[] = {
    { .name = "--shape", .value = "SHAPE",
      .help = "size of the model, or a published model whose layers it has; default tiny; `--shape list` prints all" },
    { .name = "--arch", .value = "ARCH",
      .help = "any architecture of docs/models.md; default: that of the shape, else llama" },
    { .name = "--layers", .value = "N", .kind = FLAG_INT, .min = 1, .max = LAYERS_MAX,
      .help = "so many layers; default: those of the shape" },
    { .name = "-R", .alias = "--recipe", .value = "FORMAT", .help = "format of the matrices; default q8_0" },
    { .name = "--expert-format", .value = "FORMAT",
      .help = "format of the experts' matrices; default: as in the published model, else as -R" },
    { .name = "-t", .alias = "--threads", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1024,
      .help = "threads; default: all cores" },
    { .name = NULL },
};
/* clang-format on */

static const struct column COLUMNS[] = {
    COL("path", "file"),
    COL("arch", "architecture"),
    COL("shape", "shape"),
    COL("layers", "layers", .kind = COLUMN_INT),
    COL("format", "format"),
    COL("file_bytes", "bytes", .kind = COLUMN_BYTES),
    COL("seconds", "seconds", .kind = COLUMN_NUM, .digits = 1),
};

DOCUMENT(SYNTH, "qdyno.synth/1", COLUMNS, .record = true);

#define SHAPE(member) MEMBER(struct synth_shape, member)
static const struct column SHAPE_COLUMNS[] = {
    COL("shape", "shape", SHAPE(name)),
    COL("layers", "layers", SHAPE(layers)),
    COL("embd", "width", SHAPE(embd)),
    COL("ff", "feed-forward", SHAPE(ff)),
    COL("heads", "heads", SHAPE(heads)),
    COL("kv_heads", "KV heads", SHAPE(kv_heads)),
    COL("vocab", "vocabulary", SHAPE(vocab)),
    COL("ctx", "context", SHAPE(ctx)),
    COL("experts", "experts", SHAPE(experts)),
    COL("experts_used", "used", SHAPE(experts_used)),
    COL("arch", "architecture"),
    COL("help", "purpose", SHAPE(help)),
};

DOCUMENT(SHAPES, "qdyno.shapes/1", SHAPE_COLUMNS);

static void list_shape(struct table *t, const struct synth_shape *s)
{
    json_t *row = table_row(t);
    document_put(&DOCUMENT_SHAPES, row, struct synth_shape, s);
    json_put_str(row, "arch", s->arch ? s->arch : "any");
}

static int list_shapes(const struct cli_global *g, const struct cli_args *a)
{
    struct table t;
    table_init(&t, &DOCUMENT_SHAPES);
    for (size_t i = 0; i < SYNTH_SHAPE_COUNT; i++) list_shape(&t, &SYNTH_SHAPES[i]);
    for (size_t i = 0; i < SYNTH_PRESET_COUNT; i++) list_shape(&t, &SYNTH_PRESETS[i]);
    return cli_finish(g, a, &t, EXIT_DONE);
}

static enum err_code find_shape(const struct synth_shape **out, const char *name, struct err *why)
{
    const char *names[64];
    size_t n = 0;
    struct str list = { 0 };
    *out = synth_shape_find(name);
    if (*out) return ERR_OK;
    for (; n < SYNTH_SHAPE_COUNT + SYNTH_PRESET_COUNT && n < COUNT_OF(names); n++) {
        names[n] = n < SYNTH_SHAPE_COUNT ? SYNTH_SHAPES[n].name : SYNTH_PRESETS[n - SYNTH_SHAPE_COUNT].name;
        str_printf(&list, "%s%s", n ? ", " : "", names[n]);
    }
    const char *near = str_nearest(name, names, n);
    enum err_code rc = err_set(why, ERR_USAGE, "--shape %s: expected one of %s%s%s%s", name, str_text(&list),
                               near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
    str_free(&list);
    return rc;
}

static enum err_code find_format(const struct format **out, const char *flag, const char *name,
                                 struct err *why)
{
    const char *names[FORMAT_COUNT];
    size_t n = 0;
    *out = format_find(name);
    if (*out && (*out)->encode) return ERR_OK;
    struct str list = { 0 };
    for (int i = 0; i < FORMAT_COUNT; i++) {
        if (!FORMATS[i].encode) continue;
        names[n++] = FORMATS[i].name;
        str_printf(&list, "%s%s", n > 1 ? ", " : "", FORMATS[i].name);
    }
    const char *near = *out ? NULL : str_nearest(name, names, n);
    enum err_code rc = err_set(why, ERR_USAGE, "%s %s: %s one of %s%s%s%s", flag, name,
                               *out ? "this format cannot be encoded; expected" : "expected", str_text(&list),
                               near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
    str_free(&list);
    return rc;
}

/* The layers of a published model belong to its architecture. */
static enum err_code check_arch(const struct synth_options *o, struct err *why)
{
    if (!o->arch || !o->shape->arch || !strcmp(o->arch, o->shape->arch)) return ERR_OK;
    return err_set(why, ERR_USAGE, "--shape %s: expected --arch %s or none, found --arch %s", o->shape->name,
                   o->shape->arch, o->arch);
}

static void synth_on_progress(void *ctx, double done)
{
    progress_report(ctx, PROGRESS_AT(done, NAN), "writing %.0f %%", done * 100);
}

int command_synth(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct progress p;
    const char *shape = args_text(a, "--shape", "tiny");
    if (!strcmp(shape, "list")) return list_shapes(g, a);
    const char *experts = args_text(a, "--expert-format", NULL);
    struct synth_options o = { .arch = args_text(a, "--arch", NULL),
                               .layers = (int)args_int(a, "--layers", 0),
                               .seed = g->seed,
                               .threads = (int)args_int(a, "-t", threadpool_default_threads()),
                               .progress = synth_on_progress,
                               .ctx = &p };
    progress_init(&p, g);
    enum err_code rc = find_shape(&o.shape, shape, &why);
    if (!rc) rc = find_format(&o.format, "-R", args_text(a, "-R", "q8_0"), &why);
    if (!rc && experts) rc = find_format(&o.expert_format, "--expert-format", experts, &why);
    if (!rc) rc = check_arch(&o, &why);
    int64_t start = clock_ns();
    if (!rc && !a->n)
        rc = err_set(&why, ERR_USAGE, "expected OUT, the file to write: qdyno synth --shape tiny OUT");
    if (!rc) rc = synth_write(a->arg[0], &o, &why);
    progress_clear(&p);
    if (rc) return cli_fail(a, &why);
    struct table t;
    struct stat st;
    json_t *row = table_record(&t, &DOCUMENT_SYNTH);
    json_put_str(row, "path", a->arg[0]);
    json_put_str(row, "arch", synth_arch_name(&o));
    json_put_str(row, "shape", o.shape->name);
    json_put_int(row, "layers", o.layers ? o.layers : o.shape->layers);
    json_put_str(row, "format", o.format->name);
    if (!stat(a->arg[0], &st)) json_put_int(row, "file_bytes", st.st_size);
    json_put_num(row, "seconds", (double)(clock_ns() - start) * 1e-9);
    if (synth_expert_format(&o) != o.format)
        table_note(&t, "The experts' matrices are in %s.", synth_expert_format(&o)->name);
    table_note(&t, "%s", RANDOM_WEIGHTS);
    return cli_finish(g, a, &t, EXIT_DONE);
}
