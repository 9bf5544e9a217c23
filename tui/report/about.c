/* about.c - the sections about what was compared, the machine, the method, and how to repeat the
 * experiment. */

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "advisor/experiment/experiment.h"
#include "engine/config/config.h"
#include "kernels/kernels.h"
#include "telemetry/gpu/gpu.h"
#include "telemetry/machine/machine.h"
#include "tui/report/content.h"
#include "tui/widgets/widgets.h"

/* ---------------------------------------------------------------- what was compared */

/* A setting as the worker resolved it, or as requested if the worker never answered. */
static const char *arm_setting(const struct report_source *s, int arm, enum knob_id id)
{
    const struct experiment_arm *a = &s->state.arm[arm];
    return config_text(a->merged_known ? &a->merged : &s->state.spec.config[arm], id);
}

static const char *setting_text(struct report *r, const char *value)
{
    return *value ? content_printf(r, "`%s`", content_plain(r, value)) : "not set";
}

static void settings_table(struct report *r, const struct report_source *s)
{
    struct content_table *t = NULL;
    for (int id = 0; id < KNOB_COUNT; id++) {
        bool differs = false;
        for (int a = 1; a < experiment_arms(&s->state.spec); a++)
            differs = differs ||
                      strcmp(arm_setting(s, a, (enum knob_id)id), arm_setting(s, 0, (enum knob_id)id));
        if (!differs) continue;
        if (!t) {
            t = content_table(r, "Settings that differ, as resolved by the workers",
                              1 + experiment_arms(&s->state.spec));
            t->head[0] = "setting";
            for (int a = 0; a < experiment_arms(&s->state.spec); a++) t->head[1 + a] = report_arm_name(a);
        }
        struct content_row *row = content_row(r, t);
        row->cell[0] = content_printf(r, "`%s` (%s)", KNOBS[id].key, KNOBS[id].help);
        for (int a = 0; a < experiment_arms(&s->state.spec); a++)
            row->cell[1 + a] = setting_text(r, arm_setting(s, a, (enum knob_id)id));
    }
    if (!t)
        content_add(r, CONTENT_TEXT,
                    "No setting differs: all arms ran the same configuration, so any difference is noise.");
}

static const char *arm_model(struct report *r, const struct experiment_arm *a)
{
    const char *name = content_plain(r, a->model_name);
    if (!*name) return NULL;
    return *a->arch ? content_printf(r, "%s (%s)", name, content_plain(r, a->arch)) : name;
}

static const char *arm_hash(struct report *r, const struct experiment_arm *a)
{
    return *a->sha256 ? content_printf(r, "`%s`", content_plain(r, a->sha256)) : NULL;
}

static const char *arm_recipe(struct report *r, const struct experiment_arm *a)
{
    if (!*a->recipe) return NULL;
    const char *recipe = content_plain(r, a->recipe), *most = content_plain(r, a->dominant_format);
    const char *name = content_plain(r, a->quantization);
    if (*name && strcasecmp(name, most))
        return content_printf(r, "`%s`, %s, most bytes %s", recipe, name, *most ? most : "n/a");
    return *most ? content_printf(r, "`%s`, mostly %s", recipe, most) : content_printf(r, "`%s`", recipe);
}

static const char *arm_execution(struct report *r, const struct experiment_arm *a)
{
    if (a->threads <= 0) return NULL;
    return content_printf(r, "%d thread%s, kernels for %s, device %s", a->threads, a->threads == 1 ? "" : "s",
                          content_plain(r, a->isa), content_plain(r, a->device));
}

static const char *arm_plan(struct report *r, const struct experiment_arm *a)
{
    if (a->plan.total < 0) return NULL;
    const char *state = a->plan.state > 0
                            ? content_printf(r, " + states %s", figure_bytes(a->plan.state).text)
                            : "";
    return content_printf(r, "%s = weights %s + KV cache %s%s + compute %s + scratch %s",
                          figure_bytes(a->plan.total).text, figure_bytes(a->plan.weights).text,
                          figure_bytes(a->plan.kv).text, state, figure_bytes(a->plan.compute).text,
                          figure_bytes(a->plan.scratch).text);
}

/* A fact about every arm: one row if all arms agree, else one row for each. */
static void arm_fact(struct report *r, const struct report_source *s, struct content_table *t,
                     const char *name, const char *(*of)(struct report *, const struct experiment_arm *))
{
    const char *value[EXPERIMENT_ARMS];
    bool same = true;
    for (int a = 0; a < experiment_arms(&s->state.spec); a++) {
        value[a] = of(r, &s->state.arm[a]);
        if (!value[a]) value[a] = "unknown";
        same = same && !strcmp(value[a], value[0]);
    }
    for (int a = 0; a < (same ? 1 : experiment_arms(&s->state.spec)); a++)
        content_fact(r, t, content_printf(r, "%s, %s", name, same ? "all arms" : report_arm_name(a)),
                     value[a]);
}

/* A workload such as "tg64" in words. */
static const char *workload_words(struct report *r, const struct workload *w)
{
    struct str s = { 0 };
    if (w->train > 0) str_printf(&s, "trains a new model for %d step%s", w->train, str_plural(w->train));
    if (*w->eval_file)
        str_append(&s, "measures quality: how well each config predicts every token of a text");
    if (workload_is_load(w)) str_append(&s, "serves requests that come and go, the same ones to every arm");
    if (w->prompt > 0) str_printf(&s, "reads a prompt of %d token%s", w->prompt, str_plural(w->prompt));
    if (w->gen > 0)
        str_printf(&s, "%sgenerates %d token%s", w->prompt > 0 ? ", then " : "", w->gen, str_plural(w->gen));
    if (w->depth > 0)
        str_printf(&s, ", with %d token%s already in the context", w->depth, str_plural(w->depth));
    if (w->sequences > 1) str_printf(&s, ", in %d parallel sequences", w->sequences);
    const char *text = content_printf(r, "%s", str_text(&s));
    str_free(&s);
    return text;
}

void section_compared(struct report *r, const struct report_source *s)
{
    const struct experiment_state *x = &s->state;
    content_add(r, CONTENT_SECTION, "What was compared");
    char line[600];
    const char *words = x->spec.by_arm ? "" : workload_words(r, &x->spec.workload);
    content_add(
        r, CONTENT_TEXT,
        content_printf(r, "%s: workload `%s`%s%s%s",
                       !x->spec.by_arm      ? "Every arm did the same work, token for token"
                       : x->spec.as_systems ? "The arms did different work, and were compared as systems"
                                            : "Each arm has its own workload, of which a sequence or "
                                              "request is the same work in all",
                       content_plain(r, experiment_workload_line(&x->spec, line, sizeof line)),
                       *words ? ", which " : "", words,
                       x->cell_repeats > 1 ? content_printf(r, ", %d times in each cell.", x->cell_repeats)
                                           : "."));
    settings_table(r, s);
    struct content_table *t = content_table(r, "The arms", 2);
    arm_fact(r, s, t, "model", arm_model);
    arm_fact(r, s, t, "SHA-256 of the file", arm_hash);
    arm_fact(r, s, t, "weights", arm_recipe);
    arm_fact(r, s, t, "execution", arm_execution);
    arm_fact(r, s, t, "memory plan", arm_plan);
    if (!s->labels.n) return;
    t = content_table(r, "Labels of the run", 2);
    for (int i = 0; i < s->labels.n; i++)
        content_fact(r, t, content_plain(r, s->labels.label[i].key),
                     content_plain(r, s->labels.label[i].value));
}

/* ---------------------------------------------------------------- machine */

static const char *bytes_or_null(struct report *r, int64_t n)
{
    return n >= 0 ? content_printf(r, "%s", figure_bytes(n).text) : NULL;
}

void section_machine(struct report *r, const struct report_source *s)
{
    const struct machine *m = &s->machine;
    content_add(r, CONTENT_SECTION, "Machine");
    if (!s->machine_known) {
        content_add(r, CONTENT_TEXT,
                    content_printf(r, "Unknown%s%s: the database has no description of it.",
                                   *s->state.machine_id ? ", id " : "",
                                   content_plain(r, s->state.machine_id)));
        return;
    }
    struct content_table *t = content_table(r, NULL, 2);
    char isa[256];
    content_fact(r, t, "processor", content_plain(r, m->cpu));
    content_fact(r, t, "cores",
                 content_printf(r, "%d (%d logical CPUs, %d socket%s)", m->cores, m->processors, m->sockets,
                                m->sockets == 1 ? "" : "s"));
    content_fact(r, t, "instruction sets", content_plain(r, isa_names(m->isa, isa, sizeof isa)));
    content_fact(r, t, "caches",
                 content_printf(r, "L1d %s and L2 %s per core, L3 %s", figure_bytes(m->cache_bytes[0]).text,
                                figure_bytes(m->cache_bytes[1]).text, figure_bytes(m->cache_bytes[2]).text));
    content_fact(r, t, "memory", bytes_or_null(r, m->memory_bytes));
    for (int i = 0; i < m->gpus && i < MACHINE_GPUS; i++)
        content_fact(r, t, content_printf(r, "GPU %d", i), content_plain(r, m->gpu[i].name));
    if (!m->gpus) content_fact(r, t, "GPU", "none");
    content_fact(r, t, "frequency governor", content_plain(r, m->governor));
    content_fact(r, t, "hypervisor", *m->hypervisor ? content_plain(r, m->hypervisor) : "none detected");
    content_fact(r, t, "operating system", content_plain(r, m->os));
    content_fact(r, t, "kernel", content_plain(r, m->kernel));
    content_fact(r, t, "power", m->has_battery ? m->on_battery ? "battery" : "mains" : "mains (no battery)");
    content_fact(r, t, "id", content_printf(r, "`%s`", content_plain(r, m->id)));
    if (!s->facts) return;
    t = content_table(r, "Settings at the start of the run", 2);
    for (int i = 0; i < s->facts; i++)
        content_fact(r, t, content_plain(r, s->fact[i].name), content_plain(r, s->fact[i].value));
}

/* ---------------------------------------------------------------- method */

void section_method(struct report *r, const struct report_source *s)
{
    const struct experiment_state *x = &s->state;
    static const struct {
        const char *word, *meaning;
    } WORDS[] = {
        { .word = "cell",
          .meaning = "one timed run of one arm on the workload; tokens inside it are not repetitions" },
        { .word = "block",
          .meaning =
              "every arm twice, in a random order and then in the reverse order; the unit of the statistics" },
        { .word = "effect of a block",
          .meaning =
              "the difference of the mean logarithms of two arms in the block, shown as a percentage" },
        { .word = "95 % interval",
          .meaning =
              "a range that contains the true difference after every block, in 95 of 100 experiments" },
        { .word = "e-value",
          .meaning =
              "evidence against \"no difference\"; 20 is enough, and checking it after every block is valid" },
        { .word = "p",
          .meaning =
              "one divided by the largest e-value so far: an upper bound on how often chance alone gives such evidence" },
        { .word = "margin", .meaning = "the smallest difference that matters, set before the run" },
        { .word = "equivalent",
          .meaning = "proven to differ by less than the margin, not merely without a proven difference" },
        { .word = "noise floor", .meaning = "half the width of the interval of A compared with itself" },
        { .word = "control", .meaning = "A compared with A by the same code: it must show no difference" },
    };
    content_add(r, CONTENT_SECTION, "How it was measured");
    content_add(
        r, CONTENT_TEXT,
        content_printf(
            r,
            "Each arm ran in its own process, which was loaded and warmed up before any counted cell. The arms then ran "
            "in blocks, in a random order (seed %" PRIu64
            ") that the second half of the block reversed, so that a "
            "slow drift of the machine favours no arm. Blocks that something else disturbed (stolen CPU time, "
            "swapping, lower clocks, other programs) %s. The rules for that were "
            "fixed beforehand and do not use the speed of a cell. A was first compared with itself, which shows how "
            "large a difference is noise. After every block the differences were judged with intervals that stay "
            "valid at every interim analysis, so stopping early is allowed.",
            x->spec.seed,
            x->estimand == ESTIMAND_LOADED
                ? "count as well, because they were too many to leave out; the arms then "
                  "took turns of 50 ms, so that a disturbance met all of them"
                : "were discarded as a whole and repeated"));
    struct content_table *t = content_table(r, "Terms", 2);
    for (size_t i = 0; i < COUNT_OF(WORDS); i++) content_fact(r, t, WORDS[i].word, WORDS[i].meaning);
    if (isfinite(x->overhead_ratio))
        content_add(r, CONTENT_TEXT,
                    content_printf(r, "Reading the sensors used %.2f %% of one CPU during the cells.",
                                   100 * x->overhead_ratio));
}

/* ---------------------------------------------------------------- again */

static void put_word(struct str *out, const char *word)
{
    str_append(out, " ");
    word_append(out, word);
}

/* Appends the flags of all settings that are not at their defaults. */
static void put_flags(struct str *line, const struct report_source *s)
{
    const struct experiment_spec *spec = &s->state.spec;
    str_printf(line, " --metric %s --margin %.10g%% --seed %" PRIu64, experiment_metric(&s->state.spec)->name,
               100 * experiment_margin(spec), spec->seed);
    if (spec->budget_s > 0) str_printf(line, " --budget %.10gs", spec->budget_s);
    if (spec->min_blocks > 0) str_printf(line, " --min-blocks %d", spec->min_blocks);
    if (spec->max_blocks > 0) str_printf(line, " --max-blocks %d", spec->max_blocks);
    if (spec->control_blocks) str_printf(line, " --control %d", MAX(spec->control_blocks, 0));
    if (spec->warmup_cells > 0) str_printf(line, " --warmup %d", spec->warmup_cells);
    if (spec->race) str_append(line, " --race");
    if (*spec->gate) {
        str_append(line, " --gate");
        put_word(line, spec->gate);
    }
    if (!*spec->quality_file) return;
    char file[sizeof spec->quality_file + 16];
    snprintf(file, sizeof file, "--quality=%s", spec->quality_file);
    put_word(line, file);
    if (spec->quality_ctx > 0) str_printf(line, " --quality-ctx %d", spec->quality_ctx);
    str_printf(line, " --quality-chunks %d", spec->quality_chunks);
    if (spec->kld_margin > 0) str_printf(line, " --kld-margin %.10g", spec->kld_margin);
}

void section_repeat(struct report *r, const struct report_source *s)
{
    const struct experiment_spec *spec = &s->state.spec;
    struct str line = { 0 };
    char text[640];
    content_add(r, CONTENT_SECTION, "Repeat the experiment");
    content_add(
        r, CONTENT_TEXT,
        "The first command starts a new, independent run. The second measures this run again and compares the new "
        "results with the old ones:");
    str_append(&line, "qdyno ab");
    if (*spec->model) {
        str_append(&line, " -m");
        put_word(&line, spec->model);
    }
    for (int a = 0; a < experiment_arms(&s->state.spec); a++) put_word(&line, s->state.arm[a].line);
    for (int a = 0; a < (spec->by_arm ? spec->arms : 1); a++) {
        str_append(&line, " -w");
        put_word(&line, workload_line(experiment_workload(spec, a), text, sizeof text));
    }
    if (spec->as_systems) str_append(&line, " --as-systems");
    put_flags(&line, s);
    str_printf(&line, "\nqdyno replay %lld", (long long)s->state.run_id);
    content_add(r, CONTENT_CODE, content_printf(r, "%s", str_text(&line)));
    str_free(&line);
    struct content_table *t = content_table(r, NULL, 2);
    char when[32];
    content_fact(r, t, "run", content_printf(r, "%lld", (long long)s->state.run_id));
    content_fact(r, t, "started",
                 content_printf(r, "%s", clock_iso8601(s->state.started_ms, when, sizeof when)));
    content_fact(r, t, "ended",
                 s->state.ended_ms
                     ? content_printf(r, "%s", clock_iso8601(s->state.ended_ms, when, sizeof when))
                     : "not finished");
    /* NULL becomes "unknown" */
    content_fact(r, t, "measured with",
                 *s->version ? content_printf(r, "qdyno %s", content_plain(r, s->version)) : NULL);
    content_fact(r, t, "report written with", "qdyno " QDYNO_VERSION);
}
