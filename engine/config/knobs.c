/* KNOBS: the table of all keys of a config line. */
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
static const char *const NUMA_POLICIES[] = { [NUMA_OFF] = "off",
                                             [NUMA_SPREAD] = "spread",
                                             [NUMA_LOCAL] = "local",
                                             [NUMA_INTERLEAVE] = "interleave",
                                             [NUMA_REPLICATE] = "replicate",
                                             NULL };
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
static const char *const CACHE_LAYOUTS[] = {
    [CACHE_PAGED] = "paged", [CACHE_CONTIGUOUS] = "contiguous", [CACHE_OFF] = "off", NULL
};
static const char *const ATTENTIONS[] = { [ATTENTION_FLASH] = "flash", [ATTENTION_PLAIN] = "plain", NULL };
static const char *const OFF_ON[] = { "off", "on", NULL };
static const char *const COMPILES[] = {
    [COMPILE_FUSED] = "fused", [COMPILE_OFF] = "off", [COMPILE_AUTOTUNE] = "autotune", NULL
};
static const char *const EXCHANGES[] = { "f32", "bf16", "q8_0", NULL }; /* names of formats */
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

/* clang-format off */
/* Rows: id, key, range or choices, default, what it matters for, unit, help, and the members that are not zero. */
#define KNOB_ROW(ID, KEY, KIND, OTHERWISE, FOR, UNIT, ...) \
    [KNOB_##ID] = { .key = KEY, .kind = KIND, .otherwise = OTHERWISE, .matters_for = FOR, .unit = UNIT, .help = __VA_ARGS__ }
#define INT(ID, KEY, MIN, MAX, OTHERWISE, FOR, UNIT, ...) \
    KNOB_ROW(ID, KEY, VALUE_INT, OTHERWISE, FOR, UNIT, __VA_ARGS__, .min = MIN, .max = MAX)
#define CHOICE(ID, KEY, CHOICES, OTHERWISE, FOR, ...) KNOB_ROW(ID, KEY, VALUE_CHOICE, OTHERWISE, FOR, "", __VA_ARGS__, .choices = CHOICES)
#define TEXT(ID, KEY, OTHERWISE, FOR, ...)            KNOB_ROW(ID, KEY, VALUE_TEXT, OTHERWISE, FOR, "", __VA_ARGS__)

/* isa, threads and affinity can change the order of float sums only, so they do not count as changing
 * answers; precision changes the summands. */
const struct knob KNOBS[KNOB_COUNT] = {
    TEXT(MODEL, "model", "", FOR_ALL,
         "GGUF file of this arm, or with engine=openai the server's name of its model; without it the command's own -m", .changes_answers = true, .flag = "-m"),
    CHOICE(METHOD, "method", NULL, "none", FOR_ALL, "quantization method: how the values of the format are chosen", .changes_answers = true),
    CHOICE(FORMAT, "format", NULL, "file", FOR_ALL, "format of the weights; file = as in the file", .changes_answers = true),
    TEXT(PARAMS, "params", "", FOR_ALL,
         "parameters of the method, name=value;name=value; each can also be an item of the line: bits=4", .changes_answers = true),
    TEXT(CALIB, "calib", "", FOR_ALL,
         "calibration for methods that use activations: a file of `qdyno calibrate`, an importance matrix, or a text; default: the bundled text",
         .changes_answers = true),
    TEXT(TENSORS, "tensors", "", FOR_ALL, "formats of single tensors: attn_v:q8_0;ffn_down@0-3+7:f16", .changes_answers = true),
    INT(THREADS, "threads", 0, 1024, "0", FOR_PREFILL | FOR_DECODE | FOR_TRAIN, "threads", "threads that compute; 0 = all physical cores", .flag = "-t"),
    CHOICE(AFFINITY, "affinity", AFFINITIES, "none", FOR_PREFILL | FOR_DECODE,
           "cores that threads are bound to: none = any, compact = neighbouring cores, spread = across caches and sockets"),
    CHOICE(NUMA, "numa", NUMA_POLICIES, "off", FOR_PREFILL | FOR_DECODE | FOR_MEMORY,
           "memory nodes: off = as the system decides; spread = threads on all nodes; local = threads and memory on one node; interleave = spread, pages of "
           "weights and buffers on all nodes in turn; replicate = spread, weights once on each node"),
    CHOICE(ISA, "isa", NULL, "auto", FOR_PREFILL | FOR_DECODE | FOR_TRAIN, "instruction sets to use; auto = all of this machine"),
    CHOICE(DEVICE, "device", DEVICES, "cpu", FOR_ALL, "device that runs the model; `qdyno detect` lists OpenCL devices"),
    INT(GPU_LAYERS, "gpu_layers", -1, 1024, "-1", FOR_ALL, "layers",
        "number of layers on the device, from the first; -1 (auto) = as many as fit in its memory", .flag = "-ngl"),
    TEXT(EXPERT_PLACE, "expert_place", "device", FOR_ALL,
         "where experts of layers on a device run: device = there, host = on the CPU, from host memory; N = there for the first N layers, auto = there for as "
         "many as fit"),
    CHOICE(PRECISION, "precision", PRECISION_NAMES, "auto", FOR_PREFILL | FOR_DECODE | FOR_QUALITY,
           "precision of matrix products: highest = f32, medium = bf16 or 8-bit activations, auto = highest for f32 and f16 weights, else medium",
           .changes_answers = true),
    CHOICE(ACT, "act", ACTIVATIONS, "auto", FOR_PREFILL | FOR_DECODE | FOR_QUALITY,
           "activations in products with quantized weights at precision medium: int8 = 8 bits in blocks of 32, in prefill, too; int8_token = one scale per "
           "token for int8 weights (W8A8); auto = the fastest", .changes_answers = true),
    INT(CTX, "ctx", 0, 1 << 24, "0", FOR_MEMORY, "tokens", "context per sequence; 0 = as the workload needs", .flag = "-c"),
    INT(BATCH, "batch", 1, 65536, "512", FOR_PREFILL | FOR_MEMORY, "tokens", "largest number of rows per forward pass", .flag = "-b"),
    CHOICE(CTK, "ctk", KV_TYPES, "f16", FOR_DECODE | FOR_QUALITY | FOR_MEMORY, "format of the keys in the KV cache", .changes_answers = true, .flag = "-ctk"),
    CHOICE(CTV, "ctv", KV_TYPES, "f16", FOR_DECODE | FOR_QUALITY | FOR_MEMORY, "format of the values in the KV cache", .changes_answers = true, .flag = "-ctv"),
    CHOICE(KV_ROTATE, "kv_rotate", KV_ROTATES, "auto", FOR_DECODE | FOR_QUALITY,
           "rotate what quantized KV caches store, so that outliers spread over a head: auto = 4-bit caches, on = all quantized ones", .changes_answers = true),
    CHOICE(KV_CACHE, "kv_cache", CACHE_LAYOUTS, "paged", FOR_PREFILL | FOR_DECODE | FOR_MEMORY,
           "layout of the KV cache: paged = blocks that any sequence can use; contiguous = one piece for each sequence; off = none, every token computes all "
           "earlier ones again", .changes_answers = true),
    CHOICE(HUGEPAGES, "hugepages", HUGE_PAGES, "buffers", FOR_PREFILL | FOR_DECODE | FOR_MEMORY,
           "memory requested as 2 MiB pages: buffers = KV cache, activations and scratch; all = also weights, copied from the file"),
    CHOICE(REPACK, "repack", OFF_ON, "off", FOR_PREFILL | FOR_DECODE | FOR_MEMORY,
           "on = store weights in a faster format that has the same values (tq1_0 as tq2_0); off = use them as in the file"),
    CHOICE(BATCH_INVARIANT, "batch_invariant", OFF_ON, "off", FOR_PREFILL | FOR_DECODE | FOR_QUALITY,
           "on = an answer has the same bits whatever else is in the batch, however a prompt is divided and at any number of threads (CPU only)",
           .changes_answers = true),
    CHOICE(COMPILE, "compile", COMPILES, "fused", FOR_PREFILL | FOR_DECODE,
           "operators: fused = joined where possible; off = one at a time, for comparison; autotune = fused, with the kernels that were measured as the "
           "fastest here for 2 to 64 rows", .changes_answers = true),
    CHOICE(ATTENTION, "attention", ATTENTIONS, "flash", FOR_PREFILL | FOR_DECODE | FOR_MEMORY,
           "flash = a tile of scores at a time, with a running softmax; plain = all scores of a batch in memory, then their softmax, then the sum of the "
           "values, for comparison (CPU only)", .changes_answers = true),
    TEXT(PARALLEL, "parallel", "off", FOR_ALL | FOR_TRAIN,
         "run the model with several processes: tpN = each has a part of all matrices, cpN of the positions, ppN of the layers (pp20+12), dpN of the "
         "sequences; or tp2.pp2; training: dpN only"),
    TEXT(HOSTS, "hosts", "", FOR_ALL | FOR_TRAIN, "file of the machines on which parallel= runs, one a line, this one first; default: this machine"),
    CHOICE(EXCHANGE, "exchange", EXCHANGES, "f32", FOR_ALL,
           "format in which processes exchange activations (parallel= with tp or pp): bf16 halves the bytes, q8_0 quarters them", .changes_answers = true),
    CHOICE(PREFETCH, "prefetch", PREFETCHES, "off", FOR_MEMORY, "read weights ahead: willneed = ask the kernel to, populate = read and map them while loading"),
    CHOICE(OVERSIZE, "oversize", OFF_ON, "off", FOR_MEMORY, "on = run a model whose weights exceed the free memory: they are read from disk again and again"),
    CHOICE(FORCE, "force", OFF_ON, "off", FOR_ALL,
           "on = run a model file although it has metadata or tensors that qdyno does not know; its answers are then marked as unverified", .bare = "on"),
    CHOICE(REQUANTIZE, "requantize", OFF_ON, "off", FOR_ALL,
           "on = a recipe may quantize a file again that is quantized already; its loss is then against that file, and not against the original",
           .bare = "on", .changes_answers = true),
    INT(HANDICAP, "handicap", 0, 100, "0", FOR_PREFILL | FOR_DECODE, "%",
        "artificial slowdown of known size, to test the workbench: every step waits this percentage of its own time"),
    INT(GRID, "grid_gco2_per_kwh", -1, 5000, "-1", FOR_ALL | FOR_TRAIN | FOR_LOAD, "",
        "grams of CO2 for each kWh of electricity at this place, which makes co2_g of the measured energy; -1 = unknown"),
    CHOICE(ENGINE, "engine", ENGINE_NAMES, "qdyno", FOR_ALL,
           "program that runs the model: qdyno, another engine that qdyno starts and stops, or (openai) a running server", .changes_answers = true),
    TEXT(BIN, "bin", "", FOR_ALL, "other engines: path of the program; default: its usual name, searched in PATH", .changes_answers = true),
    TEXT(ARGS, "args", "", FOR_ALL, "other engines: further arguments, separated by spaces ('...' keeps spaces): args=\"-fa on\"", .changes_answers = true),
    TEXT(URL, "url", "", FOR_ALL,
         "engine=openai: address of the server, such as http://127.0.0.1:8000; model= is then the name that it has for its model", .changes_answers = true),
    TEXT(KEY_ENV, "key_env", "", FOR_ALL, "engine=openai: environment variable that holds the server's key; the key is not stored"),
    INT(MAX_SEQUENCES, "max_sequences", 1, 1024, "8", FOR_LOAD, "requests", "serving: most requests in the KV cache at a time; others wait"),
    INT(STEP_TOKENS, "step_tokens", 0, 1 << 20, "0", FOR_LOAD, "tokens",
        "serving: most tokens that one step computes, generated ones and prompts together; 0 = batch"),
    INT(KV_BLOCKS, "kv_blocks", 0, 1 << 24, "0", FOR_LOAD, "blocks",
        "serving: size of the KV cache in blocks of 32 tokens; 0 = full contexts for all max_sequences"),
    CHOICE(PREFIX_CACHE, "prefix_cache", ON_OFF, "on", FOR_LOAD,
           "serving: on = a prompt uses keys and values that earlier requests with the same beginning left in the cache"),
    CHOICE(EVICT, "evict", EVICT_NAMES, "lru", FOR_LOAD,
           "serving: which cached block gives its space away: lru = used longest ago, fifo = computed first, lifo = used last, leaf_lru = as lru but ends of "
           "texts first, priority = of the least important request"),
    CHOICE(PREEMPT, "preempt", PREEMPT_NAMES, "recompute", FOR_LOAD,
           "serving: when the cache is full, the youngest request waits: recompute = and is computed again later, swap = and its part of the cache is copied "
           "to other memory"),
    CHOICE(SCHEDULE, "schedule", SCHEDULE_NAMES, "fcfs", FOR_LOAD,
           "serving: fcfs = generating requests first, then prompts by arrival; prefill_first = prompts first; priority; shortest = least work left first; "
           "static, dynamic = one batch after the other, for comparison"),
    INT(ITL_LIMIT, "itl_limit", 0, 3600000, "100", FOR_LOAD, "ms",
        "serving: prompts are computed in pieces so small that generating requests wait at most this long for their next token; 0 = no limit"),
    CHOICE(AMP, "amp", AMP_NAMES, "bf16", FOR_TRAIN, "training: mixed precision of matrix products; off = f32", .changes_answers = true),
    CHOICE(OPTIMIZER, "train_optimizer", OPTIMIZER_NAMES, "adamw", FOR_TRAIN,
           "training: adamw, or muon (orthogonal steps) for the matrices of the layers", .changes_answers = true),
    INT(CHECKPOINT_EVERY, "checkpoint_every", 0, 256, "0", FOR_TRAIN, "layers",
        "training: store the input of every K-th layer only and recompute the rest; 0 = store all activations"),
    INT(TRIM_EVERY, "trim_every", 0, 1 << 24, "0", FOR_TRAIN, "steps", "training: return free memory to the system every N steps; 0 = never"),
    INT(TRAIN_BATCH, "train_batch", 1, 4096, "8", FOR_TRAIN, "rows", "training: rows per batch", .changes_answers = true),
    INT(ACCUMULATE, "accumulate", 1, 4096, "2", FOR_TRAIN, "batches", "training: batches per optimizer step (gradient accumulation)", .changes_answers = true),
};
/* clang-format on */
