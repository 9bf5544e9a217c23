/* qdyno quantize: writes a model file by a recipe. Everything that can be refused is refused before
 * anything is written; an interrupted command continues from OUT.partial; the result contains the error of
 * every tensor. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "advisor/advise/advise.h"
#include "advisor/recipe/recipe.h"
#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "engine/import/import.h"
#include "engine/quant/quant.h"
#include "kernels/kernels.h"
#include "tui/cli/command_quantize_export.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/recipes.h"
#include "tui/widgets/widgets.h"

/* clang-format off */
const struct cli_flag FLAGS_QUANTIZE[] = {
    { .name = "-R", .alias = "--recipe", .value = "RECIPE",
      .help = "the recipe part of a config line, e.g. q4_K or gptq,bits=3,group_size=64; @FILE reads it "
              "from a file" },
    { .name = "--calib", .value = "FILE",
      .help = "activations for methods that need them: a text, a file of `qdyno calibrate` or an imatrix; "
              "default: the bundled text" },
    { .name = "--recover", .exclusive = true, .value = "HOW",
      .help = "then train the quantized weights to predict what IN predicts: "
              "steps=N[,rate=X][,batch=N][,ctx=N][,only=norms][,amp=off]; on the text of --calib or on "
              "stories" },
    { .name = "--to", .exclusive = true, .value = "FORM", .kind = FLAG_CHOICE, .choices = EXPORT_NAMES,
      .help = "write OUT as a Hugging Face folder that other programs load; IN must be an unquantized one" },
    { .name = "--shard-size", .needs = "--to", .value = "BYTES", .kind = FLAG_BYTES,
      .help = "with --to: largest weight file; default 4G" },
    { .name = "-t", .alias = "--threads", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1024,
      .help = "threads; default: all cores" },
    { .name = "--force", .help = "replace OUT if it exists; quantize IN although it has unknown parts" },
    { .name = "--dry-run", .help = "print the format of each tensor and write nothing" },
    { .name = "--verify", .exclusive = true, .help = "with -R f32, f16 or bf16: prove that each value of OUT is the one that IN "
                                  "means, or the closest that the format holds; else exit status 5" },
    { .name = "--tensors", .help = "print one row for each tensor: format, bytes, error" },
    { .name = NULL },
};
/* clang-format on */

#define RECOVERY(member) MEMBER(struct recovery, member)
static const struct column COLUMNS[] = {
    COL("path", "file"),
    COL("source", "source"),
    COL("recipe", "recipe"),
    COL("formats", "formats"),
    COL("weights", "weights", .kind = COLUMN_INT),
    COL("file_bytes_before", "bytes before", .kind = COLUMN_BYTES),
    COL("file_bytes", "bytes", .kind = COLUMN_BYTES),
    COL("bits_per_weight", "bits per weight", .kind = COLUMN_NUM, .digits = 3),
    COL("bits_quantized", "of quantized tensors", .kind = COLUMN_NUM, .digits = 3),
    KEY("weight_bytes_before", .kind = COLUMN_BYTES),
    KEY("weight_bytes", .kind = COLUMN_BYTES),
    COL("tensors", "tensors", .kind = COLUMN_INT),
    COL("tensors_quantized", "tensors quantized", .kind = COLUMN_INT),
    COL("tensors_fell_back", "in another format", .kind = COLUMN_INT),
    COL("fits_instead", "format that fits"),
    COL("fits_bits_per_weight", "its bits per weight", .kind = COLUMN_NUM, .digits = 3),
    COL("calibration", "calibrated with"),
    KEY("bundled_text", .kind = COLUMN_BOOL),
    COL("nmse", "NMSE, mean", .kind = COLUMN_NUM, .digits = 8),
    COL("nmse_worst", "NMSE, worst tensor", .kind = COLUMN_NUM, .digits = 8),
    COL("worst_tensor", "worst tensor"),
    COL("verified_tensors", "tensors verified", .kind = COLUMN_INT),
    COL("values_rounded", "values rounded", .kind = COLUMN_INT),
    COL("largest_difference", "largest difference", .kind = COLUMN_NUM, .digits = 9),
    COL("recover_steps", "recovery steps", RECOVERY(o.steps)),
    COL("recover_rate", "learning rate", .digits = 6, RECOVERY(o.rate)),
    COL("recover_tokens", "tokens trained on", RECOVERY(report.tokens)),
    COL("recover_seconds", "seconds of recovery", .digits = 1, RECOVERY(report.seconds)),
    COL("recover_bytes", "memory of recovery", .kind = COLUMN_BYTES),
    COL("kld_before", "KLD before, nats", .digits = 6, RECOVERY(before.kld_mean)),
    COL("kld_before_se", "+-", .digits = 6, RECOVERY(before.kld_se)),
    COL("kld_after", "KLD after, nats", .digits = 6, RECOVERY(after.kld_mean)),
    COL("kld_after_se", "+-", .digits = 6, RECOVERY(after.kld_se)),
    COL("top1_before", "same top-1 before %", .scale = 100, .digits = 2, RECOVERY(before.top1_ratio)),
    COL("top1_after", "same top-1 after %", .scale = 100, .digits = 2, RECOVERY(after.top1_ratio)),
    COL("ppl_ratio_before", "perplexity ratio before", .digits = 5,
        MEMBER_AS(struct recovery, before.log_ratio, LOG_RATIO)),
    COL("ppl_ratio_after", "perplexity ratio after", .digits = 5,
        MEMBER_AS(struct recovery, after.log_ratio, LOG_RATIO)),
    COL("held_out_tokens", "positions measured", RECOVERY(held_out_tokens)),
    COL("exported_as", "exported as"),
    COL("exported_matrices", "matrices read back equal", .kind = COLUMN_INT),
    COL("exported_copied", "tensors copied unchanged", .kind = COLUMN_INT),
    COL("exported_bytes", "bytes of its weights", .kind = COLUMN_BYTES),
    COL("exported_files", "weight files", .kind = COLUMN_INT),
    COL("threads", "threads", .kind = COLUMN_INT),
    COL("seconds", "seconds", .kind = COLUMN_NUM, .digits = 2),
    COL("weights_s", "M weights/s", .kind = COLUMN_NUM, .scale = 1e-6, .digits = 1),
    CAUTION_KEYS,
};

DOCUMENT(QUANTIZE, "qdyno.quantize/1", COLUMNS, .record = true,
         .members = "dry_run left_out[].name left_out[].format left_out[].reason");
const struct document DOCUMENT_QUANTIZED_TENSORS = {
    .schema = "qdyno.quantized_tensors/1",
    .columns = RECIPE_TENSOR_COLUMNS,
    .n_columns = RECIPE_TENSOR_COLUMN_COUNT,
    .members = "dry_run file.* left_out[].name left_out[].format left_out[].reason",
};

struct quantizing {
    const struct cli_global *g;
    const struct cli_args *a;
    const char *in, *out;
    bool recovers; /* --recover: a short training by distillation follows (engine/train/recover.h) */
    struct recovery recovery;
    bool exports; /* --to: OUT is a folder */
    struct export_report exported;
    char made[4096]; /* output of the quantizer: OUT, or a file to recover or to export from */
    char partial[4096];
    char linked[PATH_MAX]; /* OUT if it was given as a symbolic link */
    bool resumes;          /* OUT.partial exists */
    struct config config;
    char recipe[3 * CONFIG_VALUE];
    struct gguf *source;
    struct quantize_plan plan;
    struct recipe_misfit misfit; /* tensors 0: every row fills its blocks */
    int threads;
    double seconds;
};

/* ---------------------------------------------------------------- checks */

/* Parses -R and --calib. Only the part of a config line that chooses numbers is allowed. */
static enum err_code recipe_read(struct quantizing *z, struct err *why)
{
    static const enum knob_id RECIPE[] = { KNOB_METHOD, KNOB_FORMAT,  KNOB_PARAMS,
                                           KNOB_CALIB,  KNOB_TENSORS, KNOB_REQUANTIZE };
    const char *line = args_text(z->a, "-R", NULL), *calib = args_text(z->a, "--calib", NULL);
    if (!line)
        return err_set(why, ERR_USAGE,
                       "expected -R RECIPE, e.g. -R q4_K or -R gptq,bits=3 (see `qdyno methods`)");
    enum err_code rc = *line == '@' ? config_file_read(&z->config, line + 1, why)
                                    : config_parse(&z->config, line, why);
    if (!rc && calib && z->config.given[KNOB_CALIB])
        rc = err_set(why, ERR_USAGE, "calib is given in -R and in --calib: give it once");
    const struct params p = config_params(&z->config);
    const bool for_method = method_needs(&p) != CALIBRATION_NONE ||
                            !z->recovers; /* otherwise --calib is only for the recovery */
    if (!rc && calib && for_method) rc = config_set(&z->config, "calib", calib, why);
    if (!rc) rc = config_check(&z->config, why);
    for (int k = 0; k < KNOB_COUNT && !rc; k++) {
        bool allowed = !z->config.given[k];
        for (size_t i = 0; i < COUNT_OF(RECIPE); i++) allowed |= RECIPE[i] == (enum knob_id)k;
        if (!allowed)
            rc = err_set(why, ERR_USAGE, "-R %.200s: %s is not part of a recipe: leave it out%s", line,
                         KNOBS[k].key, k == KNOB_THREADS ? " (use -t)" : "");
    }
    config_recipe(&z->config, z->recipe, sizeof z->recipe);
    return rc;
}

static enum err_code space_check(const struct quantizing *z, const char *folder, struct err *why)
{
    struct statvfs fs;
    struct stat begun;
    char need[32], free_[32];
    if (statvfs(folder, &fs))
        return err_set(why, err_of_errno(errno), "%s: cannot read the free space of this folder: %s", folder,
                       strerror(errno));
    int64_t bytes = z->plan.file_bytes * (z->recovers || z->exports ? 2 : 1);
    if (!stat(z->partial, &begun)) bytes -= MIN((int64_t)begun.st_blocks * 512, bytes);
    const int64_t there = (int64_t)((double)fs.f_bavail * (double)fs.f_frsize);
    if (bytes <= there) return ERR_OK;
    return err_set(why, ERR_FIT, "%s needs about %s, but %s has only %s free", z->out,
                   str_from_bytes(bytes, need, sizeof need), folder,
                   str_from_bytes(there, free_, sizeof free_));
}

/* OUT may be a symbolic link: the file it leads to is replaced, and partial files are placed next to that. */
static enum err_code target_follow(struct quantizing *z, struct err *why)
{
    struct stat st;
    if (lstat(z->out, &st) || !S_ISLNK(st.st_mode)) return ERR_OK;
    if (!realpath(z->out, z->linked))
        return err_set(why, err_of_errno(errno),
                       "%s is a symbolic link that leads nowhere (%s): expected a file as OUT", z->out,
                       strerror(errno));
    z->out = z->linked;
    return ERR_OK;
}

/* Does another process hold the lock of the partial file (atomic_file_resume)? */
static bool target_is_locked(const struct quantizing *z)
{
    const int fd = open(z->partial, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool locked = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
    if (fd >= 0) close(fd);
    return locked;
}

static enum err_code target_check(struct quantizing *z, struct err *why)
{
    struct stat st;
    char folder[4096];
    enum err_code rc = z->exports ? ERR_OK : target_follow(z, why);
    if (rc) return rc;
    if (strlen(z->out) + sizeof ".unrecovered.partial" > sizeof z->partial)
        return err_set(why, ERR_USAGE, "OUT is too long for a path");
    snprintf(z->made, sizeof z->made, "%s%s", z->out,
             z->recovers  ? ".unrecovered"
             : z->exports ? ".quantized"
                          : "");
    snprintf(z->partial, sizeof z->partial, "%.4080s.partial", z->made);
    z->resumes = !lstat(z->partial, &st) && S_ISREG(st.st_mode);
    if (target_is_locked(z))
        return err_set(why, ERR_IO,
                       "%s is being written by another process: wait for its end, or write to another file",
                       z->out);
    /* what is written before OUT must not be a file of IN either */
    if ((rc = cli_target_spares(z->source, z->partial, why))) return rc;
    if ((rc = cli_target_spares(z->source, z->made, why))) return rc;
    if ((rc = cli_target_check(z->source, z->out, args_has(z->a, "--force"), why))) return rc;
    snprintf(folder, sizeof folder, "%s", z->out);
    const char *parent = dirname(folder);
    if (access(parent, W_OK | X_OK))
        return err_set(why, err_of_errno(errno), "%s: cannot write to this folder: %s", parent,
                       strerror(errno));
    return space_check(z, parent, why);
}

static enum err_code recovery_check(const struct quantizing *z, struct err *why)
{
    const struct params p = config_params(&z->config);
    if (p.method && p.method->act && p.method->act(&p).kind != INPUT_FREE)
        return err_set(
            why, ERR_USAGE,
            "--recover: %s also quantizes activations, which the trainer cannot do: expected a method that "
            "quantizes weights only",
            p.method->name);
    return recover_check(z->source, z->source, why);
}

/* Refuse a model with unknown or missing parts: its quantized file would be refused as well. Architectures
 * that only the quantizer knows are not checked. */
static enum err_code source_check(struct quantizing *z, struct err *why)
{
    struct model_shape shape;
    if (args_has(z->a, "--force")) return config_set(&z->config, "force", "on", why);
    if (model_shape_read(&shape, z->source, NULL)) return ERR_OK;
    const struct arch *a = arch_find(gguf_get_string(z->source, "general.architecture"));
    const enum err_code rc = arch_check_known(&shape, z->source, why);
    return rc ? rc : arch_walk(a, &shape, z->source, NULL, NULL, why);
}

/* --verify: only tensors in floats can have the values of IN. */
static enum err_code verify_check(const struct quantizing *z, struct err *why)
{
    if (!args_has(z->a, "--verify")) return ERR_OK;
    for (int64_t i = 0; i < z->plan.count; i++)
        if (z->plan.tensors[i].quantized && format_bits_per_weight(z->plan.tensors[i].format) < 16)
            return err_set(
                why, ERR_USAGE,
                "--verify: expected -R f32, f16 or bf16, found a recipe that rounds tensor '%s' to %s; "
                "the column NMSE has the error of such tensors",
                z->plan.tensors[i].source->name, z->plan.tensors[i].format->name);
    return ERR_OK;
}

/* Says before anything is written that the file becomes larger than the recipe promises. */
static void note_misfit(struct quantizing *z)
{
    char text[600];
    if (!recipe_misfit(&z->misfit, &z->plan, z->source, &z->config) || args_has(z->a, "--dry-run")) return;
    log_write(&z->g->log, LOG_WARN, "%s", recipe_misfit_text(&z->misfit, text, sizeof text));
}

static enum err_code quantizing_init(struct quantizing *z, struct err *why)
{
    z->recovers = args_has(z->a, "--recover");
    z->exports = args_has(z->a, "--to");
    enum err_code rc = z->exports ? export_target_check(z->a, z->out, why) : ERR_OK;
    if (!rc) rc = recipe_read(z, why);
    if (!rc && z->recovers) rc = recovery_parse(&z->recovery, args_text(z->a, "--recover", ""), why);
    if (!rc) rc = model_file_open(&z->source, z->in, why);
    if (!rc) rc = source_check(z, why);
    if (!rc && z->recovers) rc = recovery_check(z, why);
    if (!rc && recipe_is_identity(&z->config, z->source))
        rc = err_set(why, ERR_USAGE, "-R %s changes no tensor of %s: expected another recipe",
                     args_text(z->a, "-R", ""), z->in);
    if (!rc) rc = quantize_plan_init(&z->plan, z->source, &z->config, why);
    if (!rc) rc = verify_check(z, why);
    if (!rc) rc = target_check(z, why);
    if (!rc) note_misfit(z);
    return rc;
}

/* ---------------------------------------------------------------- work */

/* Deletes OUT.partial unless a later run can continue from it. */
static void partial_drop(const struct quantizing *z, enum err_code code, double done)
{
    const bool again = code == ERR_CANCELLED || code == ERR_FIT || code == ERR_IO || code == ERR_NOMEM;
    if (!again && (!z->resumes || done > 0)) unlink(z->partial);
}

static enum err_code quantizing_write(struct quantizing *z, struct err *why)
{
    struct progress progress;
    const struct params p = config_params(&z->config);
    struct recipe_progress pace = { .progress = &progress,
                                    .global = z->g,
                                    .what = z->recipe,
                                    .at_first = method_needs(&p) == CALIBRATION_NONE ? NULL : "calibrating",
                                    .weights = z->plan.weights };
    const struct quantize_options o = { .config = &z->config,
                                        .threads = z->threads,
                                        .resume = true,
                                        .progress = recipe_progress_show,
                                        .ctx = &pace,
                                        .log = &z->g->log };
    struct stat st;
    progress_init(&progress, z->g);
    if (z->resumes)
        cli_note(z->g, "resuming from %s: tensors already written with this recipe are kept", z->partial);
    const int64_t start = clock_ns();
    enum err_code rc = quantize_file(z->made, z->source, &o, why);
    z->seconds = (double)(clock_ns() - start) * 1e-9;
    progress_clear(&progress);
    if (!rc) return ERR_OK;
    partial_drop(z, rc, pace.done);
    if (pace.done > 0 && !stat(z->partial, &st) && rc != ERR_USAGE && rc != ERR_FORMAT)
        err_prefix(why, "%.0f %% done, kept in %s; give the same command again to continue", pace.done * 100,
                   z->partial);
    return rc;
}

struct recovery_monitor {
    const struct cli_global *g;
    struct progress progress;
};

static bool quantizing_on_recovery(void *ctx, const struct recovery_progress *p)
{
    struct recovery_monitor *m = ctx;
    if (p->phase == RECOVERY_TRAINING)
        progress_report(&m->progress, PROGRESS_AT((double)p->done / (double)MAX(p->of, 1), p->left_s),
                        "recovering: step %lld/%lld  KL %.5f nats  left %s", (long long)p->done,
                        (long long)p->of, p->loss, figure_duration(p->left_s).text);
    else
        progress_show(&m->progress, "KL divergence %s recovery: window %lld/%lld",
                      p->phase == RECOVERY_BEFORE ? "before" : "after", (long long)p->done, (long long)p->of);
    return !cli_is_interrupted(m->g);
}

/* --recover: trains the quantized file to predict what the original predicts. Only a better result becomes
 * OUT; the quantized file is deleted in any case. */
static enum err_code quantizing_recover(struct quantizing *z, struct err *why)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.recovered", z->out);
    struct recovery_monitor m = { .g = z->g };
    const struct recovery_job job = { .original = z->source,
                                      .quantized = z->made,
                                      .path = path,
                                      .calib = args_text(z->a, "--calib",
                                                         config_text(&z->config, KNOB_CALIB)),
                                      .threads = z->threads,
                                      .force = config_choice(&z->config, KNOB_FORCE),
                                      .seed = z->g->seed,
                                      .log = &z->g->log,
                                      .progress = quantizing_on_recovery,
                                      .ctx = &m };
    progress_init(&m.progress, z->g);
    enum err_code rc = recovery_run(&z->recovery, &job, why);
    progress_clear(&m.progress);
    unlink(z->made);
    if (!rc && rename(path, z->out)) {
        rc = err_set(why, err_of_errno(errno), "cannot rename %s to %s: %s", path, z->out, strerror(errno));
        unlink(path);
    }
    return rc;
}

/* Measures the errors of all tensors of OUT. */
static enum err_code quantizing_measure(struct quantizing *z, struct gguf **made, struct err *why)
{
    struct progress progress;
    progress_init(&progress, z->g);
    enum err_code rc = gguf_open(made, z->exports ? z->made : z->out, why);
    progress_show(&progress, "comparing with %s", cli_base_name(z->in));
    if (!rc) rc = quantize_plan_measure(&z->plan, z->source, *made, z->threads, why);
    if (!rc && z->exports) rc = export_run(&z->exported, z->g, z->a, z->in, *made, z->out, why);
    if (!rc && args_has(z->a, "--verify"))
        rc = quantize_plan_verify(&z->plan, z->source, *made, z->threads, why);
    progress_clear(&progress);
    if (z->exports) unlink(z->made); /* it stays mapped */
    return rc;
}

/* ---------------------------------------------------------------- output */

static void put_recovery(const struct recovery *r, json_t *row)
{
    document_put(&DOCUMENT_QUANTIZE, row, struct recovery, r);
    json_put_int(row, "recover_bytes", r->report.memory.parameters + r->report.memory.activations);
}

/* Sums over the tensors that were verified. */
static void put_verification(const struct quantize_plan *p, json_t *row)
{
    int64_t tensors = 0, rounded = 0;
    double largest = 0;
    for (int64_t i = 0; i < p->count; i++) {
        const struct tensor_plan *t = &p->tensors[i];
        if (t->rounded < 0) continue;
        tensors++;
        rounded += t->rounded;
        largest = fmax(largest, t->largest);
    }
    json_put_int(row, "verified_tensors", tensors);
    json_put_int(row, "values_rounded", rounded);
    json_put_num(row, "largest_difference", largest);
}

/* made: OUT; NULL: a dry run. */
static void put_result(const struct quantizing *z, json_t *row, const struct gguf *made)
{
    const struct params p = config_params(&z->config);
    struct model_shape shape;
    json_put_str(row, "path", z->out);
    json_put_str(row, "source", z->in);
    json_put_str(row, "recipe", z->recipe);
    json_put_int(row, "file_bytes_before", gguf_file_bytes(z->source));
    json_put_int(row, "file_bytes",
                 !made        ? z->plan.file_bytes
                 : z->exports ? z->exported.bytes
                              : gguf_file_bytes(made));
    recipe_put_plan(row, &z->plan);
    if (z->misfit.fits) {
        json_put_str(row, "fits_instead", z->misfit.fits->name);
        json_put_num(row, "fits_bits_per_weight", z->misfit.fits_bits);
    }
    json_put_int(row, "threads", z->threads);
    const bool known = !model_shape_read(&shape, z->source, NULL);
    cli_put_cautions(row, known && shape.random_weights, known && shape.unknown);
    json_put_bool(row, "bundled_text",
                  method_needs(&p) == CALIBRATION_NEEDED && !*config_text(&z->config, KNOB_CALIB));
    if (!made) return;
    const struct gguf_string with = gguf_get_string(made, "qdyno.calibration");
    if (with.data) json_put(row, "calibration", json_stringn(with.data, with.len));
    if (z->recovers) put_recovery(&z->recovery, row);
    if (z->exports) export_put(&z->exported, z->a, row);
    if (args_has(z->a, "--verify")) put_verification(&z->plan, row);
    json_put_num(row, "seconds", z->seconds);
    if (!z->resumes) json_put_num(row, "weights_s", (double)z->plan.weights / z->seconds);
}

static void note_rescaled(struct table *t, const struct quantize_plan *p)
{
    bool any = false;
    for (int64_t i = 0; i < p->count; i++) any |= p->tensors[i].nmse_rescaled;
    if (any) recipe_note_rescaled(t);
}

static int quantizing_print(const struct quantizing *z, const struct gguf *made)
{
    const bool tensors = args_has(z->a, "--tensors");
    struct table t;
    json_t *sums;
    if (tensors) {
        table_init(&t, &DOCUMENT_QUANTIZED_TENSORS);
        for (int64_t i = 0; i < z->plan.count; i++) {
            json_t *row = table_row(&t);
            json_put_str(row, "config", z->recipe);
            recipe_put_tensor(row, &z->plan.tensors[i]);
        }
        sums = json_object();
    } else {
        sums = table_record(&t, &DOCUMENT_QUANTIZE);
        t.skip_absent = true;
    }
    put_result(z, sums, made);
    if (tensors && made)
        table_note(&t, "NMSE: mean %.3g over the quantized weights, worst %.3g in %s",
                   json_get_num(sums, "nmse", NAN), json_get_num(sums, "nmse_worst", NAN),
                   json_get_str(sums, "worst_tensor", "none"));
    char misfit[600];
    if (z->misfit.tensors) table_note(&t, "%s", recipe_misfit_text(&z->misfit, misfit, sizeof misfit));
    recipe_note_left_out(&t, &z->plan);
    note_rescaled(&t, &z->plan);
    if (z->recovers && made)
        table_note(&t, "recovered on %s; NMSE includes the changes by recovery",
                   z->recovery.stories ? "stories of the calibration split, measured on the held-out split"
                                       : "four fifths of the text, measured on the rest");
    if (json_get_bool(sums, "bundled_text", false))
        table_note(&t, "no --calib given: calibrated on the bundled text");
    cli_note_cautions(&t, json_get_bool(sums, "random_weights", false),
                      json_get_bool(sums, "answers_unverified", false));
    if (args_has(z->a, "--verify") && made)
        table_note(
            &t,
            "verified: each value of a tensor in f32, f16 or bf16 is the one that %s means, or the closest "
            "that its format holds",
            z->in);
    if (!made)
        table_note(&t, "dry run: nothing was written; bytes are upper limits");
    else
        table_note(&t, "how much quality it lost: qdyno eval -m %s -C model=%s --ref default", z->in, z->out);
    if (z->exports && made)
        table_note(&t, "exported: every matrix was read back with the same codes, scales and zero points");
    json_put_bool(t.extra, "dry_run", !made);
    if (tensors) json_put(t.extra, "file", sums);
    return cli_finish(z->g, z->a, &t, EXIT_DONE);
}

int command_quantize(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct gguf *made = NULL;
    struct quantizing *z = calloc(1, sizeof *z);
    if (!z) return cli_fail_memory(a);
    *z = (struct quantizing){ .g = g,
                              .a = a,
                              .in = a->arg[0],
                              .out = a->arg[1],
                              .threads = (int)args_int(a, "-t", threadpool_default_threads()) };
    const bool dry = args_has(a, "--dry-run");
    enum err_code rc = quantizing_init(z, &why);
    if (!rc && !dry) rc = quantizing_write(z, &why);
    if (!rc && !dry && z->recovers) rc = quantizing_recover(z, &why);
    if (!rc && !dry) rc = quantizing_measure(z, &made, &why);
    const int status = rc ? cli_fail(a, &why) : quantizing_print(z, made);
    quantize_plan_done(&z->plan);
    gguf_close(made);
    gguf_close(z->source);
    free(z);
    return status;
}
