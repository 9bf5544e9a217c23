/* KNOBS: the table of all keys of a config line, and the check of one value against its row. */
#include "engine/config/config_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "engine/config/config.h"
#include "kernels/kernels.h"

static const char *const AFFINITIES[] = {
    [AFFINITY_NONE] = "none", [AFFINITY_COMPACT] = "compact", [AFFINITY_SPREAD] = "spread", NULL
};
static const char *const DEVICES[] = { "cpu",      "opencl:0", "opencl:1", "opencl:2", "opencl:3",
                                       "opencl:4", "opencl:5", "opencl:6", "opencl:7", NULL };
static const char *const ACTIVATIONS[] = {
    [ACTIVATIONS_AUTO] = "auto", [ACTIVATIONS_INT8] = "int8", [ACTIVATIONS_INT8_TOKEN] = "int8_token", NULL
};
static const char *const HUGE_PAGES[] = {
    [HUGE_PAGES_BUFFERS] = "buffers", [HUGE_PAGES_OFF] = "off", [HUGE_PAGES_ALL] = "all", NULL
};
static const char *const KV_ROTATES[] = {
    [KV_ROTATE_AUTO] = "auto", [KV_ROTATE_ON] = "on", [KV_ROTATE_OFF] = "off", NULL
};
static const char *const OFF_ON[] = { "off", "on", NULL };
static const char *const COMPILES[] = {
    [COMPILE_FUSED] = "fused", [COMPILE_OFF] = "off", [COMPILE_AUTOTUNE] = "autotune", NULL
};
static const char *const PREFETCHES[] = {
    [PREFETCH_OFF] = "off", [PREFETCH_WILLNEED] = "willneed", [PREFETCH_POPULATE] = "populate", NULL
};
static const char *const ON_OFF[] = { "on", "off", NULL };
const char *const SCHEDULE_NAMES[] = {
    [SCHEDULE_FCFS] = "fcfs",         [SCHEDULE_PREFILL_FIRST] = "prefill_first",
    [SCHEDULE_PRIORITY] = "priority", [SCHEDULE_SHORTEST] = "shortest",
    [SCHEDULE_STATIC] = "static",     [SCHEDULE_DYNAMIC] = "dynamic",
    [SCHEDULE_COUNT] = NULL,
};
const char *const PREEMPT_NAMES[] = {
    [PREEMPT_RECOMPUTE] = "recompute", [PREEMPT_SWAP] = "swap", [PREEMPT_COUNT] = NULL
};
const char *const EVICT_NAMES[] = {
    [EVICT_LRU] = "lru",           [EVICT_FIFO] = "fifo",         [EVICT_LIFO] = "lifo",
    [EVICT_LEAF_LRU] = "leaf_lru", [EVICT_PRIORITY] = "priority", [EVICT_FARTHEST] = NULL
};
const char *const AMP_NAMES[] = { [AMP_OFF] = "off", [AMP_BF16] = "bf16", [AMP_FP16] = "fp16", NULL };
const char *const OPTIMIZER_NAMES[] = { [OPTIMIZER_ADAMW] = "adamw", [OPTIMIZER_MUON] = "muon", NULL };
static const char *const KV_TYPES[] = { "f32", "f16", "bf16", "q8_0", "q4_0", "fp8_e4m3", "fp8_e5m2", NULL };

/* isa, threads and affinity can change the order of float sums only, so they do not count as changing
 * answers; precision changes the summands. */
const struct knob KNOBS[KNOB_COUNT] = {
    [KNOB_MODEL] = { .key = "model",
                     .kind = VALUE_TEXT,
                     .otherwise = "",
                     .changes_answers = true,
                     .matters_for = FOR_ALL,
                     .flag = "-m",
                     .unit = "",
                     .help =
                         "GGUF file of this arm, or with engine=openai the server's name of its model; without it the command's own -m" },
    [KNOB_METHOD] = { .key = "method",
                      .kind = VALUE_CHOICE,
                      .otherwise = "none",
                      .changes_answers = true,
                      .matters_for = FOR_ALL,
                      .unit = "",
                      .help = "quantization method: how the values of the format are chosen" },
    [KNOB_FORMAT] = { .key = "format",
                      .kind = VALUE_CHOICE,
                      .otherwise = "file",
                      .changes_answers = true,
                      .matters_for = FOR_ALL,
                      .unit = "",
                      .help = "format of the weights; file = as in the file" },
    [KNOB_PARAMS] = { .key = "params",
                      .kind = VALUE_TEXT,
                      .otherwise = "",
                      .changes_answers = true,
                      .matters_for = FOR_ALL,
                      .unit = "",
                      .help =
                          "parameters of the method, name=value;name=value; each can also be an item of the line: bits=4" },
    [KNOB_CALIB] = { .key = "calib",
                     .kind = VALUE_TEXT,
                     .otherwise = "",
                     .changes_answers = true,
                     .matters_for = FOR_ALL,
                     .unit = "",
                     .help =
                         "calibration for methods that use activations: a file of `qdyno calibrate`, an importance matrix, or a text; default: the bundled text" },
    [KNOB_TENSORS] = { .key = "tensors",
                       .kind = VALUE_TEXT,
                       .otherwise = "",
                       .changes_answers = true,
                       .matters_for = FOR_ALL,
                       .unit = "",
                       .help = "formats of single tensors: attn_v:q8_0;ffn_down@0-3+7:f16" },
    [KNOB_THREADS] = { .key = "threads",
                       .kind = VALUE_INT,
                       .min = 0,
                       .max = 1024,
                       .otherwise = "0",
                       .matters_for = FOR_PREFILL | FOR_DECODE | FOR_TRAIN,
                       .flag = "-t",
                       .unit = "threads",
                       .help = "threads that compute; 0 = all physical cores" },
    [KNOB_AFFINITY] = { .key = "affinity",
                        .kind = VALUE_CHOICE,
                        .choices = AFFINITIES,
                        .otherwise = "none",
                        .matters_for = FOR_PREFILL | FOR_DECODE,
                        .unit = "",
                        .help =
                            "cores that threads are bound to: none = any, compact = neighbouring cores, spread = across caches and sockets" },
    [KNOB_ISA] = { .key = "isa",
                   .kind = VALUE_CHOICE,
                   .otherwise = "auto",
                   .matters_for = FOR_PREFILL | FOR_DECODE | FOR_TRAIN,
                   .unit = "",
                   .help = "instruction sets to use; auto = all of this machine" },
    [KNOB_DEVICE] = { .key = "device",
                      .kind = VALUE_CHOICE,
                      .choices = DEVICES,
                      .otherwise = "cpu",
                      .matters_for = FOR_ALL,
                      .unit = "",
                      .help = "device that runs the model; `qdyno detect` lists OpenCL devices" },
    [KNOB_GPU_LAYERS] = { .key = "gpu_layers",
                          .kind = VALUE_INT,
                          .min = -1,
                          .max = 1024,
                          .otherwise = "-1",
                          .matters_for = FOR_ALL,
                          .flag = "-ngl",
                          .unit = "layers",
                          .help =
                              "number of layers on the device, from the first; -1 (auto) = as many as fit in its memory" },
    [KNOB_EXPERT_PLACE] = { .key = "expert_place",
                            .kind = VALUE_TEXT,
                            .otherwise = "device",
                            .matters_for = FOR_ALL,
                            .unit = "",
                            .help =
                                "where experts of layers on a device run: device = there, host = on the CPU, from host memory; N = there for the first N layers, auto = there for as many as fit" },
    [KNOB_PRECISION] = { .key = "precision",
                         .kind = VALUE_CHOICE,
                         .choices = PRECISION_NAMES,
                         .otherwise = "auto",
                         .changes_answers = true,
                         .matters_for = FOR_PREFILL | FOR_DECODE | FOR_QUALITY,
                         .unit = "",
                         .help =
                             "precision of matrix products: highest = f32, medium = bf16 or 8-bit activations, auto = highest for f32 and f16 weights, else medium" },
    [KNOB_ACT] = { .key = "act",
                   .kind = VALUE_CHOICE,
                   .choices = ACTIVATIONS,
                   .otherwise = "auto",
                   .changes_answers = true,
                   .matters_for = FOR_PREFILL | FOR_DECODE | FOR_QUALITY,
                   .unit = "",
                   .help =
                       "activations in products with quantized weights at precision medium: int8 = 8 bits in blocks of 32, in prefill, too; int8_token = one scale per token for int8 weights (W8A8); auto = the fastest" },
    [KNOB_CTX] = { .key = "ctx",
                   .kind = VALUE_INT,
                   .min = 0,
                   .max = 1 << 24,
                   .otherwise = "0",
                   .matters_for = FOR_MEMORY,
                   .flag = "-c",
                   .unit = "tokens",
                   .help = "context per sequence; 0 = as the workload needs" },
    [KNOB_BATCH] = { .key = "batch",
                     .kind = VALUE_INT,
                     .min = 1,
                     .max = 65536,
                     .otherwise = "512",
                     .matters_for = FOR_PREFILL | FOR_MEMORY,
                     .flag = "-b",
                     .unit = "tokens",
                     .help = "largest number of rows per forward pass" },
    [KNOB_CTK] = { .key = "ctk",
                   .kind = VALUE_CHOICE,
                   .choices = KV_TYPES,
                   .otherwise = "f16",
                   .changes_answers = true,
                   .matters_for = FOR_DECODE | FOR_QUALITY | FOR_MEMORY,
                   .flag = "-ctk",
                   .unit = "",
                   .help = "format of the keys in the KV cache" },
    [KNOB_CTV] = { .key = "ctv",
                   .kind = VALUE_CHOICE,
                   .choices = KV_TYPES,
                   .otherwise = "f16",
                   .changes_answers = true,
                   .matters_for = FOR_DECODE | FOR_QUALITY | FOR_MEMORY,
                   .flag = "-ctv",
                   .unit = "",
                   .help = "format of the values in the KV cache" },
    [KNOB_KV_ROTATE] = { .key = "kv_rotate",
                         .kind = VALUE_CHOICE,
                         .choices = KV_ROTATES,
                         .otherwise = "auto",
                         .changes_answers = true,
                         .matters_for = FOR_DECODE | FOR_QUALITY,
                         .unit = "",
                         .help =
                             "rotate what quantized KV caches store, so that outliers spread over a head: auto = 4-bit caches, on = all quantized ones" },
    [KNOB_HUGEPAGES] = { .key = "hugepages",
                         .kind = VALUE_CHOICE,
                         .choices = HUGE_PAGES,
                         .otherwise = "buffers",
                         .matters_for = FOR_PREFILL | FOR_DECODE | FOR_MEMORY,
                         .unit = "",
                         .help =
                             "memory requested as 2 MiB pages: buffers = KV cache, activations and scratch; all = also weights, copied from the file" },
    [KNOB_REPACK] = { .key = "repack",
                      .kind = VALUE_CHOICE,
                      .choices = OFF_ON,
                      .otherwise = "off",
                      .matters_for = FOR_PREFILL | FOR_DECODE | FOR_MEMORY,
                      .unit = "",
                      .help =
                          "on = store weights in a faster format that has the same values (tq1_0 as tq2_0); off = use them as in the file" },
    [KNOB_BATCH_INVARIANT] = { .key = "batch_invariant",
                               .kind = VALUE_CHOICE,
                               .choices = OFF_ON,
                               .otherwise = "off",
                               .changes_answers = true,
                               .matters_for = FOR_PREFILL | FOR_DECODE | FOR_QUALITY,
                               .unit = "",
                               .help =
                                   "on = an answer has the same bits whatever else is in the batch, however a prompt is divided and at any number of threads (CPU only)" },
    [KNOB_COMPILE] = { .key = "compile",
                       .kind = VALUE_CHOICE,
                       .choices = COMPILES,
                       .otherwise = "fused",
                       .changes_answers = true,
                       .matters_for = FOR_PREFILL | FOR_DECODE,
                       .unit = "",
                       .help =
                           "operators: fused = joined where possible; off = one at a time, for comparison; autotune = fused, with the kernels that were measured as the fastest here for 2 to 64 rows" },
    [KNOB_PARALLEL] = { .key = "parallel",
                        .kind = VALUE_TEXT,
                        .otherwise = "off",
                        .matters_for = FOR_ALL,
                        .unit = "",
                        .help =
                            "run the model with several processes: tpN = each has a part of all matrices, ppN = a part of the layers, dpN = a part of the sequences; products such as tp2.pp2" },
    [KNOB_HOSTS] = { .key = "hosts",
                     .kind = VALUE_TEXT,
                     .otherwise = "",
                     .matters_for = FOR_ALL,
                     .unit = "",
                     .help =
                         "file of the machines on which parallel= runs, one a line, this one first; default: this machine" },
    [KNOB_PREFETCH] = { .key = "prefetch",
                        .kind = VALUE_CHOICE,
                        .choices = PREFETCHES,
                        .otherwise = "off",
                        .matters_for = FOR_MEMORY,
                        .unit = "",
                        .help =
                            "read weights ahead: willneed = ask the kernel to, populate = read and map them while loading" },
    [KNOB_OVERSIZE] = { .key = "oversize",
                        .kind = VALUE_CHOICE,
                        .choices = OFF_ON,
                        .otherwise = "off",
                        .matters_for = FOR_MEMORY,
                        .unit = "",
                        .help =
                            "on = run a model whose weights exceed the free memory: they are read from disk again and again" },
    [KNOB_FORCE] = { .key = "force",
                     .kind = VALUE_CHOICE,
                     .choices = OFF_ON,
                     .otherwise = "off",
                     .matters_for = FOR_ALL,
                     .bare = "on",
                     .unit = "",
                     .help =
                         "on = run a model file although it has metadata or tensors that qdyno does not know; its answers are then marked as unverified" },
    [KNOB_HANDICAP] = { .key = "handicap",
                        .kind = VALUE_INT,
                        .min = 0,
                        .max = 100,
                        .otherwise = "0",
                        .matters_for = FOR_PREFILL | FOR_DECODE,
                        .unit = "%",
                        .help =
                            "artificial slowdown of known size, to test the workbench: every step waits this percentage of its own time" },
    [KNOB_ENGINE] = { .key = "engine",
                      .kind = VALUE_CHOICE,
                      .choices = ENGINE_NAMES,
                      .otherwise = "qdyno",
                      .changes_answers = true,
                      .matters_for = FOR_ALL,
                      .unit = "",
                      .help =
                          "program that runs the model: qdyno, another engine that qdyno starts and stops, or (openai) a running server" },
    [KNOB_BIN] = { .key = "bin",
                   .kind = VALUE_TEXT,
                   .otherwise = "",
                   .changes_answers = true,
                   .matters_for = FOR_ALL,
                   .unit = "",
                   .help = "other engines: path of the program; default: its usual name, searched in PATH" },
    [KNOB_ARGS] = { .key = "args",
                    .kind = VALUE_TEXT,
                    .otherwise = "",
                    .changes_answers = true,
                    .matters_for = FOR_ALL,
                    .unit = "",
                    .help =
                        "other engines: further arguments, separated by spaces ('...' keeps spaces): args=\"-fa on\"" },
    [KNOB_URL] = { .key = "url",
                   .kind = VALUE_TEXT,
                   .otherwise = "",
                   .changes_answers = true,
                   .matters_for = FOR_ALL,
                   .unit = "",
                   .help =
                       "engine=openai: address of the server, such as http://127.0.0.1:8000; model= is then the name that it has for its model" },
    [KNOB_KEY_ENV] = { .key = "key_env",
                       .kind = VALUE_TEXT,
                       .otherwise = "",
                       .matters_for = FOR_ALL,
                       .unit = "",
                       .help =
                           "engine=openai: environment variable that holds the server's key; the key is not stored" },
    [KNOB_MAX_SEQUENCES] = { .key = "max_sequences",
                             .kind = VALUE_INT,
                             .min = 1,
                             .max = 1024,
                             .otherwise = "8",
                             .matters_for = FOR_LOAD,
                             .unit = "requests",
                             .help = "serving: most requests in the KV cache at a time; others wait" },
    [KNOB_STEP_TOKENS] = { .key = "step_tokens",
                           .kind = VALUE_INT,
                           .min = 0,
                           .max = 1 << 20,
                           .otherwise = "0",
                           .matters_for = FOR_LOAD,
                           .unit = "tokens",
                           .help =
                               "serving: most tokens that one step computes, generated ones and prompts together; 0 = batch" },
    [KNOB_KV_BLOCKS] = { .key = "kv_blocks",
                         .kind = VALUE_INT,
                         .min = 0,
                         .max = 1 << 24,
                         .otherwise = "0",
                         .matters_for = FOR_LOAD,
                         .unit = "blocks",
                         .help =
                             "serving: size of the KV cache in blocks of 32 tokens; 0 = full contexts for all max_sequences" },
    [KNOB_PREFIX_CACHE] = { .key = "prefix_cache",
                            .kind = VALUE_CHOICE,
                            .choices = ON_OFF,
                            .otherwise = "on",
                            .matters_for = FOR_LOAD,
                            .unit = "",
                            .help =
                                "serving: on = a prompt uses keys and values that earlier requests with the same beginning left in the cache" },
    [KNOB_EVICT] = { .key = "evict",
                     .kind = VALUE_CHOICE,
                     .choices = EVICT_NAMES,
                     .otherwise = "lru",
                     .matters_for = FOR_LOAD,
                     .unit = "",
                     .help =
                         "serving: which cached block gives its space away: lru = used longest ago, fifo = computed first, lifo = used last, leaf_lru = as lru but ends of texts first, priority = of the least important request" },
    [KNOB_PREEMPT] = { .key = "preempt",
                       .kind = VALUE_CHOICE,
                       .choices = PREEMPT_NAMES,
                       .otherwise = "recompute",
                       .matters_for = FOR_LOAD,
                       .unit = "",
                       .help =
                           "serving: when the cache is full, the youngest request waits: recompute = and is computed again later, swap = and its part of the cache is copied to other memory" },
    [KNOB_SCHEDULE] = { .key = "schedule",
                        .kind = VALUE_CHOICE,
                        .choices = SCHEDULE_NAMES,
                        .otherwise = "fcfs",
                        .matters_for = FOR_LOAD,
                        .unit = "",
                        .help =
                            "serving: fcfs = generating requests first, then prompts by arrival; prefill_first = prompts first; priority; shortest = least work left first; static, dynamic = one batch after the other, for comparison" },
    [KNOB_ITL_LIMIT] = { .key = "itl_limit",
                         .kind = VALUE_INT,
                         .min = 0,
                         .max = 3600000,
                         .otherwise = "100",
                         .matters_for = FOR_LOAD,
                         .unit = "ms",
                         .help =
                             "serving: prompts are computed in pieces so small that generating requests wait at most this long for their next token; 0 = no limit" },
    [KNOB_AMP] = { .key = "amp",
                   .kind = VALUE_CHOICE,
                   .choices = AMP_NAMES,
                   .otherwise = "bf16",
                   .changes_answers = true,
                   .matters_for = FOR_TRAIN,
                   .unit = "",
                   .help = "training: mixed precision of matrix products; off = f32" },
    [KNOB_OPTIMIZER] = { .key = "train_optimizer",
                         .kind = VALUE_CHOICE,
                         .choices = OPTIMIZER_NAMES,
                         .otherwise = "adamw",
                         .changes_answers = true,
                         .matters_for = FOR_TRAIN,
                         .unit = "",
                         .help =
                             "training: adamw, or muon (orthogonal steps) for the matrices of the layers" },
    [KNOB_CHECKPOINT_EVERY] = { .key = "checkpoint_every",
                                .kind = VALUE_INT,
                                .min = 0,
                                .max = 256,
                                .otherwise = "0",
                                .matters_for = FOR_TRAIN,
                                .unit = "layers",
                                .help =
                                    "training: store the input of every K-th layer only and recompute the rest; 0 = store all activations" },
    [KNOB_TRIM_EVERY] = { .key = "trim_every",
                          .kind = VALUE_INT,
                          .min = 0,
                          .max = 1 << 24,
                          .otherwise = "0",
                          .matters_for = FOR_TRAIN,
                          .unit = "steps",
                          .help = "training: return free memory to the system every N steps; 0 = never" },
    [KNOB_TRAIN_BATCH] = { .key = "train_batch",
                           .kind = VALUE_INT,
                           .min = 1,
                           .max = 4096,
                           .otherwise = "8",
                           .changes_answers = true,
                           .matters_for = FOR_TRAIN,
                           .unit = "rows",
                           .help = "training: rows per batch" },
    [KNOB_ACCUMULATE] = { .key = "accumulate",
                          .kind = VALUE_INT,
                          .min = 1,
                          .max = 4096,
                          .otherwise = "2",
                          .changes_answers = true,
                          .matters_for = FOR_TRAIN,
                          .unit = "batches",
                          .help = "training: batches per optimizer step (gradient accumulation)" },
};

/* ---------------------------------------------------------------- choices */

struct list {
    const char **names;
    size_t count, cap;
};

static void list_add(struct list *l, const char *name)
{
    if (l->count < l->cap) l->names[l->count] = name;
    l->count++;
}

static void list_add_formats(struct list *l)
{
    for (int i = 0; i < FORMAT_COUNT; i++)
        if (FORMATS[i].encode) list_add(l, FORMATS[i].name);
}

size_t knob_choices(enum knob_id id, const char **names, size_t cap)
{
    struct list l = { names, 0, cap };
    const struct knob *k = &KNOBS[id];
    if (k->kind != VALUE_CHOICE) return 0;
    if (k->choices) {
        for (const char *const *c = k->choices; *c; c++) list_add(&l, *c);
        return l.count;
    }
    list_add(&l, k->otherwise);
    if (id == KNOB_FORMAT) list_add_formats(&l);
    if (id == KNOB_METHOD)
        for (size_t i = 0; i < method_count(); i++) list_add(&l, method_name(method_at(i)));
    if (id == KNOB_ISA)
        for (size_t i = 0; i < ISA_LEVEL_COUNT; i++) list_add(&l, ISA_LEVELS[i].name);
    return l.count;
}

const char *choices_text(const char *word, const char *const *names, size_t count, char *buf, size_t size)
{
    struct str s = { 0 };
    const char *near = str_nearest(word, names, count); /* first, because a long message is cut at its end */
    if (near) str_printf(&s, "(did you mean %s?) ", near);
    for (size_t i = 0; i < count; i++) str_printf(&s, "%s%s", i ? " " : "", names[i]);
    snprintf(buf, size, "%s", str_text(&s));
    str_free(&s);
    return buf;
}

/* ---------------------------------------------------------------- one value */

enum err_code recipe_format_check(const char *name, const struct format **out, struct err *why)
{
    const char *names[CHOICES_MAX];
    char text[320];
    struct list l = { names, 0, CHOICES_MAX };
    list_add_formats(&l);
    const struct format *f = format_find(name);
    if (f && f->encode) {
        *out = f;
        return ERR_OK;
    }
    return err_set(why, ERR_USAGE, "format '%.40s' %s: %s", name,
                   f ? "is known but has no encoder; formats with one are"
                     : "does not exist; expected one of",
                   choices_text(f ? "" : name, names, MIN(l.count, CHOICES_MAX), text, sizeof text));
}

/* The rule of a knob's row; names of its choices in names[CHOICES_MAX]. */
static struct value_rule knob_rule(enum knob_id id, const char **names)
{
    const struct knob *k = &KNOBS[id];
    struct value_rule rule = { .kind = k->kind, .min = (double)k->min, .max = (double)k->max };
    if (k->kind == VALUE_CHOICE) {
        rule.names = names;
        rule.count = MIN(knob_choices(id, names, CHOICES_MAX), CHOICES_MAX);
    }
    return rule;
}

/* "3%" -> "3" for knobs in percent, "50ms" -> "50" for those in milliseconds, and the word for -1 that
 * gpu_layers has. */
static const char *knob_number_text(enum knob_id id, const char *value, char *buf, size_t size)
{
    const size_t n = strlen(value), unit = strlen(KNOBS[id].unit);
    const bool may_follow = !strcmp(KNOBS[id].unit, "%") || !strcmp(KNOBS[id].unit, "ms");
    if (id == KNOB_GPU_LAYERS && !strcasecmp(value, "auto")) return "-1";
    if (!may_follow || n <= unit || strcmp(value + n - unit, KNOBS[id].unit) || n > size) return value;
    snprintf(buf, size, "%.*s", (int)(n - unit), value);
    return buf;
}

static enum err_code knob_check_text(const struct knob *k, const char *value, struct err *why)
{
    if (strlen(value) >= CONFIG_VALUE)
        return err_set(why, ERR_USAGE, "%s: longer than %d bytes", k->key, CONFIG_VALUE - 1);
    for (const char *p = value; *p; p++)
        if ((unsigned char)*p < 32)
            return err_set(why, ERR_USAGE, "%s: contains a control character", k->key);
    return ERR_OK;
}

enum err_code knob_parse(enum knob_id id, const char *value, struct value *out, struct err *why)
{
    const struct knob *k = &KNOBS[id];
    const char *names[CHOICES_MAX];
    const struct format *f;
    char number[32], wanted[400];
    if (id == KNOB_TENSORS) return tensor_rules_parse(value, out->text, why);
    if (id == KNOB_PARAMS) return params_parse(value, out->text, why);
    if (id == KNOB_PARALLEL) {
        struct parallel p;
        const enum err_code rc = parallel_parse(&p, value, why);
        if (!rc) parallel_text(&p, out->text, sizeof out->text);
        return rc;
    }
    if (id == KNOB_EXPERT_PLACE) {
        int layers;
        const enum err_code rc = expert_place_parse(&layers, value, why);
        if (!rc) expert_place_text(layers, out->text, sizeof out->text);
        return rc;
    }
    const struct value_rule rule = knob_rule(id, names);
    if (k->kind == VALUE_TEXT) {
        const enum err_code rc = knob_check_text(k, value, why);
        if (rc) return rc;
    }
    const char *text = k->kind == VALUE_INT ? knob_number_text(id, value, number, sizeof number) : value;
    if (value_parse(out, &rule, text)) return ERR_OK;
    if (id == KNOB_FORMAT && format_find(value)) return recipe_format_check(value, &f, why);
    return err_set(why, ERR_USAGE, "%s=%.40s: expected %s", k->key, value,
                   value_wanted(&rule, value, wanted, sizeof wanted));
}
