/* help_topics.c - what `qdyno help TOPIC` explains: from the tables of the program wherever there is one. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/chat/chat.h"
#include "advisor/run/run.h"
#include "engine/quant/quant.h"
#include "kernels/kernels.h"
#include "telemetry/metrics/metrics.h"
#include "tui/cli/lib/help.h"
#include "tui/frame/frame.h"

static void write_rows(struct str *out, const struct help_row *rows)
{
    for (; rows->name; rows++) help_line(out, rows->name, rows->text);
}

/* ---------------------------------------------------------------- the topics */

static void topic_statistics(struct str *out)
{
    help_paragraph(
        out, "A comparison runs in blocks: each block runs every arm twice, in a random order and then "
             "in the reverse order (ABBA or BAAB), so that a drift of the machine favours no arm. The effect "
             "of a block is a log ratio, and the interval of the result is from all blocks that count.");
    help_paragraph(
        out, "The intervals are anytime-valid: they hold at all interim analyses together, so looking at a "
             "running comparison, stopping it and continuing it are all sound. The e-value says how much "
             "likelier the data are if the arms differ; 20 is enough.");
    help_paragraph(
        out, "First A runs against itself (the A/A control). Half the width of that interval is the noise "
             "floor. It is from few blocks, so the result can be narrower. If A differs from itself, the run "
             "is invalid.");
    str_append(out, "Verdicts (margin: --margin, default 1 %)\n");
    static const struct help_row VERDICTS[] = {
        { "better, worse", "the 95 % interval excludes 0 and the estimate is beyond the margin" },
        { "equivalent", "the 90 % interval lies within the margin" },
        { "negligible", "there is a difference, and it is below the margin" },
        { "inconclusive", "none of these; the message says how many more blocks would decide" },
        { "invalid", "the control failed, or an arm did" },
        { NULL, NULL },
    };
    write_rows(out, VERDICTS);
    str_append(out, "\ndocs/ab.md and docs/statistics.md have the whole method and its tests.\n");
}

static void topic_gates(struct str *out)
{
    help_paragraph(
        out, "A gate is a condition that decides the exit status of `ab`, `eval` and `baseline check`: 0 "
             "passed, 1 failed, 2 undecided, 3 invalid. It is judged by intervals, not by estimates.");
    str_append(out,
               "  --gate 'decode_tok_s >= 1.05*A and kld_mean < 0.02'\n  --gate 'peak_rss_bytes <= 4G'\n\n"
               "Figures of quality\n");
    for (int i = 0; i < GATE_FIGURES; i++) help_line(out, GATE_NAMES[i].name, GATE_NAMES[i].help);
    str_append(out, "\nFigures of cells\n");
    for (int m = METRIC_SENSOR_COUNT; m < METRIC_COUNT; m++) help_line(out, METRICS[m].name, METRICS[m].help);
}

static void topic_load(struct str *out)
{
    help_paragraph(
        out,
        "A load is a workload of requests that come and go: -w load:KEY=VALUE,... of `ab`, `bench`, `tune`, "
        "`baseline` and `watch`. The list of requests follows from the workload and --seed alone, so all "
        "configs get the same requests at the same times.");
    str_append(out,
               "  qdyno bench -w load:concurrency=8,requests=200,in=128,out=64\n"
               "  qdyno ab schedule=static schedule=fcfs -w load:rate=4,requests=100,in=64,out=32\n\nKeys\n");
    for (size_t i = 0; i < LOAD_KEY_COUNT; i++) {
        char name[80];
        snprintf(name, sizeof name, "%s=%s", LOAD_KEYS[i].key, LOAD_KEYS[i].value);
        help_line(out, name, LOAD_KEYS[i].help);
    }
    str_append(out, "\nFigures\n");
    for (int m = METRIC_LOAD_FIRST; m <= METRIC_LOAD_LAST; m++)
        help_line(out, METRICS[m].name, METRICS[m].help);
    str_append(out, "\ndocs/load.md says how they are counted.\n");
}

static void topic_formats(struct str *out)
{
    help_paragraph(
        out, "A format is how the weights of a tensor are stored; a method is how the stored numbers are "
             "chosen. A recipe names one or both: q8_0, gptq:u4_g128.");
    str_append(out, "Formats (bits for each weight)\n");
    for (int i = 0; i < FORMAT_COUNT; i++) {
        char bits[64];
        snprintf(bits, sizeof bits, "%.4g bits, blocks of %u%s", format_bits_per_weight(&FORMATS[i]),
                 FORMATS[i].block_weights,
                 FORMATS[i].ggml_type >= FORMAT_OWN_TYPES ? "; other programs do not know it" : "");
        help_line(out, FORMATS[i].name, bits);
    }
    str_append(out, "\nMethods (`qdyno methods` says when to use each)\n");
    for (size_t i = 0; i < method_count(); i++) help_line(out, method_at(i)->name, method_at(i)->help);
}

static void topic_exit(struct str *out)
{
    str_append(out, "Exit statuses of all commands\n");
    write_rows(out, HELP_EXITS);
    help_paragraph(out, "\nWith --gate the status is the gate's: `qdyno help gates`.");
}

static void topic_busy(struct str *out)
{
    char text[200];
    help_paragraph(
        out, "Other programs make measurements slower and noisier. A block that they disturb does not "
             "count, unless most blocks are disturbed: then all count, and the result is the speed beside "
             "that load. Nothing is ever left out because it was slow.");
    str_append(out, "A block is disturbed when\n");
    for (int m = 0; m < METRIC_SENSOR_COUNT; m++) {
        const char *why = contamination_text((enum metric_id)m);
        if (!why) continue;
        const double limit = contamination_limit((enum metric_id)m);
        if (limit > 0)
            snprintf(text, sizeof text, "%s: more than %g %%", why, 100 * limit);
        else
            snprintf(text, sizeof text, "%s", why);
        help_line(out, METRICS[m].name, text);
    }
    str_append(out, "\nWhat you can do\n");
    static const struct help_row WAYS[] = {
        { "--wait-quiet 10m",
          "start when nothing disturbs, at the latest after 10 minutes; names the programs" },
        { "--estimand loaded", "measure the speed under the present load: disturbed blocks count, too" },
        { "--estimand quiet", "count undisturbed blocks only, however long that takes" },
        { "--turns on", "let the arms take turns of 50 ms, so that both see the same load" },
        { "i, %", "the same in the dashboard: wait until quiet, measure under load" },
        { NULL, NULL },
    };
    write_rows(out, WAYS);
}

static void topic_template(struct str *out)
{
    help_paragraph(
        out,
        "--template NAME of `run --chat`, `eval --task --chat` and `serve` is the chat template of a model whose "
        "file has none: the text around messages, with one BOS token where the file's tokenizer begins texts "
        "with it. A NAME that is a file is read as a Jinja template.");
    str_append(out, "Names, and models that were trained with them\n");
    for (const struct chat_template_row *row = CHAT_TEMPLATES; row->name; row++)
        help_line(out, row->name, row->models);
}

static void topic_environment(struct str *out)
{
    str_append(out, "Environment variables\n");
    write_rows(out, HELP_ENVIRONMENT);
}

static void topic_topics(struct str *out)
{
    str_append(out, "`qdyno help TOPIC` explains\n");
    for (const struct help_topic *t = HELP_TOPICS; t->name; t++)
        if (t->write != topic_topics) help_line(out, t->name, t->help);
    str_append(out, "\n`qdyno help COMMAND` describes a command, `qdyno help` lists the commands.\n");
}

const struct help_topic HELP_TOPICS[] = {
    { .name = "statistics",
      .help = "blocks, intervals, the noise floor, verdicts",
      .write = topic_statistics },
    { .name = "gates", .help = "conditions that decide the exit status", .write = topic_gates },
    { .name = "load", .help = "workloads of requests that come and go", .write = topic_load },
    { .name = "template",
      .help = "built-in chat templates, for models without one",
      .write = topic_template },
    { .name = "formats", .help = "formats and methods of quantization", .write = topic_formats },
    { .name = "configs", .help = "the keys of a config line, with their ranges", .write = help_knobs },
    { .name = "exit", .help = "exit statuses", .write = topic_exit },
    { .name = "busy", .help = "measuring on a busy machine", .write = topic_busy },
    { .name = "environment", .help = "environment variables", .write = topic_environment },
    { .name = "topics", .help = "this list", .write = topic_topics },
    { .name = NULL },
};

const struct help_topic *help_topic_find(const char *name)
{
    if (!strcmp(name, "knobs")) name = "configs";
    for (const struct help_topic *t = HELP_TOPICS; t->name; t++)
        if (!strcmp(t->name, name)) return t;
    return NULL;
}
