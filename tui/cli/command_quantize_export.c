/* command_quantize_export.c - see command_quantize_export.h. */
#include "tui/cli/command_quantize_export.h"

#include <string.h>
#include <sys/stat.h>

#include "tui/widgets/widgets.h"

static enum export_kind kind_given(const struct cli_args *a)
{
    const char *name = args_text(a, "--to", EXPORT_NAMES[0]);
    int kind = 0;
    while (kind + 1 < EXPORT_KIND_COUNT && strcmp(EXPORT_NAMES[kind], name)) kind++;
    return (enum export_kind)kind;
}

enum err_code export_target_check(const struct cli_args *a, const char *folder, struct err *why)
{
    struct stat st;
    if (!lstat(folder, &st))
        return err_set(why, ERR_USAGE,
                       "'%s' exists: with --to, OUT is a new folder; name another one or remove it first",
                       folder);
    if (args_has(a, "--shard-size") && !args_bytes(a, "--shard-size", 0))
        return err_set(why, ERR_USAGE, "--shard-size: expected at least 1 byte");
    if (!import_is_checkpoint(a->arg[0]))
        return err_set(
            why, ERR_USAGE,
            "--to needs an unquantized Hugging Face folder as IN, because names, tokenizer and unquantized "
            "tensors come from it; '%s' is none",
            a->arg[0]);
    return ERR_OK;
}

struct exporting {
    const struct cli_global *g;
    struct progress progress;
};

static enum err_code on_step(void *ctx, int64_t done, int64_t count, struct err *why)
{
    struct exporting *x = ctx;
    progress_show(&x->progress, "exporting: tensor %lld/%lld", (long long)done, (long long)count);
    return cli_is_interrupted(x->g) ? err_set(why, ERR_CANCELLED, "interrupted") : ERR_OK;
}

enum err_code export_run(struct export_report *out, const struct cli_global *g, const struct cli_args *a,
                         const char *in, const struct gguf *made, const char *folder, struct err *why)
{
    struct exporting x = { .g = g };
    progress_init(&x.progress, g);
    const struct export_options options = { .kind = kind_given(a),
                                            .shard_bytes = args_bytes(a, "--shard-size", 0) };
    const enum err_code rc = export_write(out, in, made, folder, &options, on_step, &x, why);
    progress_clear(&x.progress);
    return rc;
}

void export_put(const struct export_report *r, const struct cli_args *a, json_t *row)
{
    json_put_str(row, "exported_as", EXPORT_NAMES[kind_given(a)]);
    json_put_int(row, "exported_matrices", r->verified);
    json_put_int(row, "exported_copied", r->copied);
    json_put_int(row, "exported_bytes", r->bytes);
    json_put_int(row, "exported_files", r->files);
}
