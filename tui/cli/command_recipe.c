/* qdyno recipe: finds a format for each tensor by measuring the loss of each alone, and keeps the mix only
 * if it is closer to the model than the best uniform format of that size, on a text that the search did not
 * use. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor/advise/advise.h"
#include "advisor/recipe/recipe.h"
#include "engine/gguf/gguf.h"
#include "engine/import/import.h"
#include "engine/quant/quant.h"
#include "tui/cli/commands.h"

/* clang-format off */
const struct cli_flag FLAGS_RECIPE[] = {
    FLAG_MODEL_ROW,
    { .name = "--like", .value = "FORMAT",
      .help = "a file as large as this format would make; default q4_K" },
    { .name = "--size", .value = "BYTES", .kind = FLAG_BYTES,
      .help = "a file of at most this size, e.g. 4.5G" },
    { .name = "--kld", .value = "NATS", .kind = FLAG_NUM, .min = 1e-6, .max = 100,
      .help = "the smallest file with at most this mean KL divergence, e.g. 0.01" },
    { .name = "--formats", .value = "LIST",
      .help = "formats to mix; default: q2_K q3_K q4_K q5_K q6_K q4_0 q5_0 q8_0 and floats" },
    FLAG_CONFIG_ROW,
    { .name = "-f", .alias = "--file", .value = "TEXT",
      .help = "text for the search; default: the bundled stories" },
    { .name = "--check", .value = "TEXT",
      .help = "text for the check; default: the model's text (`eval --set-text`), or the second half of the text of -f" },
    { .name = "-c", .alias = "--ctx-size", .value = "N", .kind = FLAG_INT, .min = 4, .max = 1 << 20,
      .help = "tokens per window; default 256" },
    { .name = "--windows", .value = "N", .kind = FLAG_INT, .min = 2, .max = 4096,
      .help = "windows of the search; default 12" },
    { .name = "--check-windows", .value = "N", .kind = FLAG_INT, .min = 2, .max = 4096,
      .help = "windows of the check; default 32, or as many as the budget allows, at least 8" },
    { .name = "--budget", .value = "TIME", .kind = FLAG_SECONDS,
      .help = "time for all of it; a budget that is too short is refused after two windows, with one that should be enough; default 10m" },
    { .name = "--out", .value = "FILE", .help = "write the recipe, for -R @FILE and -C @FILE" },
    { .name = "--gguf", .value = "FILE", .help = "write the quantized model" },
    { .name = "--force", .help = "replace existing files; use a model that has unknown parts" },
    { .name = NULL },
};
/* clang-format on */

#define FOUND(member) MEMBER(struct recipe_found, member)
static const struct column COLUMNS[] = {
    COL("model", "model"),
    COL("recipe", "recipe", FOUND(mixed.line)),
    COL("bytes", "weights", .kind = COLUMN_BYTES, FOUND(mixed.bytes)),
    COL("file_bytes", "file (estimate)", .kind = COLUMN_BYTES, FOUND(mixed.file_bytes)),
    COL("kld", "KL divergence", .digits = 6, FOUND(mixed.kld)),
    COL("kld_se", "  +-", .digits = 6, FOUND(mixed.kld_se)),
    COL("top1_ratio", "  same top-1 (%)", .scale = 100, .digits = 2, FOUND(mixed.top1_ratio)),
    COL("uniform", "best uniform format"),
    COL("uniform_bytes", "  weights", .kind = COLUMN_BYTES),
    COL("uniform_kld", "  KL divergence", .kind = COLUMN_NUM, .digits = 6),
    COL("uniform_kld_se", "  +-", .kind = COLUMN_NUM, .digits = 6),
    KEY("uniform_top1_ratio", .kind = COLUMN_NUM),
    COL("kld_difference", "difference", .digits = 6, FOUND(difference.estimate)),
    COL("kld_difference_lower", "  95 % from", .digits = 6, FOUND(difference.lower)),
    COL("kld_difference_upper", "  95 % to", .digits = 6, FOUND(difference.upper)),
    COL("kld_ratio", "mixed / uniform", .kind = COLUMN_NUM, .digits = 3),
    COL("beats", "proven closer to the model", FOUND(beats)),
    COL("reason", "reason", FOUND(reason)),
    COL("check_windows", "windows checked", FOUND(windows)),
    COL("predicted_kld", "losses of single tensors, sum", .digits = 6, FOUND(predicted_kld)),
    COL("search_kld", "loss of all together", .digits = 6, FOUND(search_kld)),
    COL("tensors", "tensors", FOUND(tensors)),
    COL("measured", "losses of single tensors measured", FOUND(measured)),
    COL("estimated", "  estimated", FOUND(estimated)),
    KEY("basis", MEMBER_AS(struct recipe_found, basis, STRING)),
    COL("basis_label", "losses measured on"),
    KEY("model_sha256", MEMBER_AS(struct recipe_found, model_sha256, STRING)),
    COL("written", "written to"),
    COL("gguf", "model written to"),
    KEY("random_weights", FOUND(random_weights)),
    KEY("answers_unverified", FOUND(answers_unverified)),
};

DOCUMENT(RECIPE, "qdyno.recipe/1", COLUMNS, .record = true);

struct searching {
    const struct cli_global *g;
    const struct cli_args *a;
    struct progress progress;
    char *model;
    struct config config;
    struct recipe_found found;
    const char *written, *gguf;
};

static bool recipe_on_progress(void *ctx, const char *what, int done, int of)
{
    struct searching *x = ctx;
    progress_show(&x->progress, "%s %d/%d", what, done, of);
    return !cli_is_interrupted(x->g);
}

static bool recipe_on_write(void *ctx, double done)
{
    struct searching *x = ctx;
    progress_show(&x->progress, "writing the model %.0f %%", 100 * done);
    return !cli_is_interrupted(x->g);
}

/* Checks output files before the long search, not after it. */
static enum err_code target_check(const struct searching *x, const char *flag, struct err *why)
{
    const char *path = args_text(x->a, flag, NULL);
    if (!path || access(path, F_OK) || args_has(x->a, "--force")) return ERR_OK;
    return err_set(why, ERR_USAGE, "%s %s exists: --force replaces it", flag, path);
}

/* Neither of them may be a file of the model. */
static enum err_code targets_check_source(const struct searching *x, struct err *why)
{
    static const char *const TARGETS[] = { "--out", "--gguf" };
    struct gguf *g = NULL;
    enum err_code rc = ERR_OK;
    for (size_t i = 0; i < COUNT_OF(TARGETS) && !rc; i++) {
        const char *path = args_text(x->a, TARGETS[i], NULL);
        if (path && !g) rc = model_file_open(&g, x->model, why);
        if (path && !rc) rc = cli_target_spares(g, path, why);
    }
    gguf_close(g);
    return rc;
}

static enum err_code searching_init(struct searching *x, struct err *why)
{
    enum err_code rc = target_check(x, "--out", why);
    if (!rc) rc = target_check(x, "--gguf", why);
    if (!rc) rc = cli_config(&x->config, x->a, args_text(x->a, "-C", NULL), why);
    if (!rc && args_has(x->a, "--force")) rc = config_set(&x->config, "force", "on", why);
    if (!rc) rc = cli_config_model(&x->model, x->a, &x->config, why);
    return rc ? rc : targets_check_source(x, why);
}

/* Without --like, --size and --kld the file may be as large as q4_K would make it. */
static enum err_code searching_run(struct searching *x, struct err *why)
{
    struct db *d = NULL;
    const struct cli_args *a = x->a;
    const bool any = args_has(a, "--like") || args_has(a, "--size") || args_has(a, "--kld");
    enum err_code rc = db_open(&d, x->g->db_path, why);
    const struct recipe_search o = { .model_path = x->model,
                                     .config = &x->config,
                                     .formats = args_text(a, "--formats", NULL),
                                     .like = args_text(a, "--like", any ? NULL : "q4_K"),
                                     .bytes = args_bytes(a, "--size", 0),
                                     .kld = args_num(a, "--kld", NAN),
                                     .text_file = args_text(a, "-f", NULL),
                                     .check_file = args_text(a, "--check", NULL),
                                     .ctx = (int)args_int(a, "-c", 0),
                                     .windows = args_int(a, "--windows", 0),
                                     .check_windows = args_int(a, "--check-windows", 0),
                                     .budget_s = args_num(a, "--budget", 600),
                                     .db = d,
                                     .log = &x->g->log,
                                     .progress = recipe_on_progress,
                                     .progress_ctx = x };
    if (!rc) rc = recipe_search(&x->found, &o, why);
    progress_clear(&x->progress);
    db_close(d);
    return rc;
}

/* A recipe in a file of its own, with its evidence as comments: `quantize -R @FILE` reads it. */
static enum err_code write_recipe(struct searching *x, struct err *why)
{
    const struct recipe_found *f = &x->found;
    const char *path = args_text(x->a, "--out", NULL);
    struct atomic_file file;
    char when[32];
    if (!path) return ERR_OK;
    enum err_code rc = atomic_file_open(&file, path, why);
    if (rc) return rc;
    fprintf(file.stream,
            "# recipe for %s, made %s; to use it: qdyno quantize IN OUT -R @FILE\n# model: %s\n"
            "# KL divergence %.6g on held-out text; %s: %.6g\n%s\n",
            cli_base_name(x->model), clock_iso8601(clock_unix_ms(), when, sizeof when), f->model_sha256,
            f->mixed.kld, f->uniform.line, f->uniform.kld, f->mixed.line);
    rc = atomic_file_commit(&file, why);
    if (!rc) x->written = path;
    return rc;
}

/* Applies the found recipe as `quantize` would; a partial file of an earlier try is continued. */
static enum err_code write_gguf(struct searching *x, struct err *why)
{
    const char *path = args_text(x->a, "--gguf", NULL);
    struct config c = x->found.mixed.config;
    struct gguf *g = NULL;
    if (!path) return ERR_OK;
    const struct quantize_options o = {
        .config = &c, .progress = recipe_on_write, .ctx = x, .log = &x->g->log, .resume = true
    };
    config_take(&c, &x->config, KNOB_FORCE);
    enum err_code rc = model_file_open(&g, x->model, why);
    if (!rc) rc = quantize_file(path, g, &o, why);
    gguf_close(g);
    progress_clear(&x->progress);
    if (!rc) x->gguf = path;
    return rc;
}

/* What the comparison on held-out text found. Without a uniform format of this size there is nothing to
 * compare with. */
static void put_figures(json_t *row, const struct recipe_found *f)
{
    document_put(&DOCUMENT_RECIPE, row, struct recipe_found, f);
    if (*f->uniform.line) {
        json_put_str(row, "uniform", f->uniform.line);
        json_put_int(row, "uniform_bytes", f->uniform.bytes);
        json_put_num(row, "uniform_kld", f->uniform.kld);
        json_put_num(row, "uniform_kld_se", f->uniform.kld_se);
        json_put_num(row, "uniform_top1_ratio", f->uniform.top1_ratio);
        json_put_num(row, "kld_ratio", f->mixed.kld / f->uniform.kld);
    }
}

/* Status 1 only where the mix is worse for certain: its whole interval is above 0. */
static int found_status(const struct recipe_found *f)
{
    return f->beats ? EXIT_DONE : f->difference.lower > 0 ? EXIT_WORSE : EXIT_INCONCLUSIVE;
}

/* The verdict on the recipe against the uniform format of its size. */
static void searching_summarize(struct table *t, const struct searching *x)
{
    const struct recipe_found *f = &x->found;
    const int status = found_status(f);
    struct summary summary = { .verdict = f->beats               ? verdict_name(VERDICT_BETTER)
                                          : status == EXIT_WORSE ? verdict_name(VERDICT_WORSE)
                                                                 : verdict_name(VERDICT_INCONCLUSIVE),
                               .effect = { *f->uniform.line ? f->mixed.kld / f->uniform.kld : NAN, NAN, NAN },
                               .exit_status = status };
    if (f->beats && *f->uniform.line)
        snprintf(
            summary.text, sizeof summary.text,
            "the recipe is closer to the model than %.100s, which is no smaller: KL divergence %.3g against %.3g nats",
            f->uniform.line, f->mixed.kld, f->uniform.kld);
    else
        snprintf(summary.text, sizeof summary.text, "%s", f->reason);
    table_summarize(t, &summary);
}

/* The result, what it rests on, and the command that uses it. */
static void searching_close(struct table *t, const struct searching *x)
{
    const struct recipe_found *f = &x->found;
    struct str next = { 0 };
    char basis[2 * TEXT_LABEL];
    table_result(t, "%s", json_get_str(t->summary, "text", f->mixed.line));
    if (isfinite(f->difference.lower))
        table_closing(
            t,
            "evidence: KL divergence of the mix minus that of %s: %+.2g nats per token (95 %%: %+.2g to "
            "%+.2g), paired in %lld window%s of text that the search did not see",
            f->uniform.line, f->difference.estimate, f->difference.lower, f->difference.upper,
            (long long)f->windows, str_plural(f->windows));
    else
        table_closing(
            t, "evidence: KL divergence %.3g nats in %lld window%s of text that the search did not see",
            f->mixed.kld, (long long)f->windows, str_plural(f->windows));
    table_closing(t, "conditions: losses measured for %d of %d pairs of tensor and format, on %s",
                  f->measured, f->of, quality_basis_label(basis, sizeof basis, f->basis));
    if (x->gguf) {
        str_append(&next, "next: qdyno run -m ");
        word_append(&next, x->gguf);
    } else {
        const char *line = f->beats || !*f->uniform.line ? f->mixed.line : f->uniform.line;
        str_append(&next, "next: qdyno quantize ");
        word_append(&next, x->model);
        str_append(&next, " OUT.gguf -R ");
        word_append(&next, line);
    }
    table_next(t, "%s   (%s)", str_text(&next),
               x->gguf ? "generates text with the file" : "writes a model file with it");
    str_free(&next);
}

static int searching_print(const struct searching *x)
{
    const struct recipe_found *f = &x->found;
    struct table t;
    json_t *row = table_record(&t, &DOCUMENT_RECIPE);
    t.skip_absent = true;
    json_put_str(row, "model", x->model);
    put_figures(row, f);
    char basis[2 * TEXT_LABEL];
    json_put_str(row, "basis_label", quality_basis_label(basis, sizeof basis, f->basis));
    json_put_str(row, "written", x->written);
    json_put_str(row, "gguf", x->gguf);
    if (!f->beats && (args_has(x->a, "--out") || args_has(x->a, "--gguf")))
        table_note(&t, "nothing was written, because the recipe is not better than the uniform format");
    if (f->measured + f->estimated < f->of || f->estimated)
        table_note(
            &t,
            "the losses of single tensors were measured for %d of %d pairs of tensor and format, and estimated for the "
            "others; a larger --budget measures them and keeps those already measured",
            f->measured, f->of);
    cli_note_cautions(&t, f->random_weights, f->answers_unverified);
    searching_summarize(&t, x);
    searching_close(&t, x);
    return cli_finish(x->g, x->a, &t, found_status(f));
}

int command_recipe(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct searching *x = calloc(1, sizeof *x);
    if (!x) return cli_fail_memory(a);
    x->g = g;
    x->a = a;
    progress_init(&x->progress, g);
    enum err_code rc = searching_init(x, &why);
    if (!rc) rc = searching_run(x, &why);
    if (!rc && x->found.beats) rc = write_recipe(x, &why);
    if (!rc && x->found.beats) rc = write_gguf(x, &why);
    int status = rc ? cli_fail(a, &why) : searching_print(x);
    if (rc && x->found.too_short) status = EXIT_INCONCLUSIVE; /* the command is right; nothing is decided */
    free(x->model);
    free(x);
    return status;
}
