/* advisor/advise/rules.c - the table of rules.
 *
 * A rule reads a case and either returns false or fills its finding. All figures in its text come from the
 * case, never from a list of machines. */
#include "advisor/advise/advise.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "advisor/advise/accelerators.h"
#include "advisor/doctor/doctor.h"
#include "base/cut/cut.h"
#include "engine/plan/plan.h"

static void text_set(char *to, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void text_set(char *to, size_t size, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    text_cutv(to, size, fmt, args);
    va_end(args);
}
#define SET(field, ...) text_set(field, sizeof(field), __VA_ARGS__)

static bool case_is_quantized(const struct rule_case *c);

/* Does an arm of "q8_0 fp8_e4m3 --quality" make a file in another format? Such arms need an unquantized file.
 */
static bool arms_quantize(const char *arms)
{
    char word[CONFIG_LINE];
    struct config config;
    for (arms += strspn(arms, " "); *arms; arms += strspn(arms, " ")) {
        const size_t n = strcspn(arms, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, arms);
        arms += n;
        if (!config_parse(&config, word, NULL) &&
            (config.given[KNOB_FORMAT] || config.given[KNOB_METHOD] || config.given[KNOB_TENSORS]))
            return true;
    }
    return false;
}

/* "qdyno ab -m MODEL A B -w WORK"; none where the command would refuse the file, because it is quantized
 * already. */
static void finding_set_ab(struct rule_finding *f, const struct rule_case *c, const char *arms,
                           const char *work)
{
    if (case_is_quantized(c) && arms_quantize(arms)) {
        const size_t n = strlen(f->reason);
        snprintf(f->reason + n, sizeof f->reason - n,
                 "%sfor a file made from the 16-bit original: this one is quantized", n ? "; " : "");
        return;
    }
    struct str s = { 0 };
    str_append(&s, "qdyno ab -m ");
    word_append(&s, c->model);
    str_printf(&s, " %s -w %s", arms, work);
    SET(f->check, "%s", str_text(&s));
    str_free(&s);
}

/* ---------------------------------------------------------------- properties of a case */

static const struct gpu_identity *case_gpu(const struct rule_case *c, const char *vendor)
{
    for (int i = 0; i < c->machine->gpus; i++)
        if (!strcmp(c->machine->gpu[i].vendor, vendor)) return &c->machine->gpu[i];
    return NULL;
}

/* Compute capability times ten (89 for 8.9); -1: no NVIDIA GPU, or unknown. */
static int case_capability(const struct rule_case *c)
{
    const struct gpu_identity *u = case_gpu(c, "nvidia");
    return u && u->compute_major >= 0 ? 10 * u->compute_major + MAX(u->compute_minor, 0) : -1;
}

static bool case_has_isa(const struct rule_case *c, uint32_t bits)
{
    return (c->machine->isa & bits) == bits;
}

/* Rules for the CPU do not apply when a GPU computes. */
static bool case_on_gpu(const struct rule_case *c)
{
    return c->ceilings->gpu.read_bytes_s > 0;
}

int64_t rule_case_memory(const struct rule_case *c)
{
    if (c->memory_limit > 0) return c->memory_limit;
    if (case_on_gpu(c) && !c->ceilings->gpu.unified && c->machine->gpus)
        return c->machine->gpu[0].memory_bytes;
    return c->machine->memory_available_bytes > 0 ? c->machine->memory_available_bytes
                                                  : c->machine->memory_bytes;
}

static bool case_is_quantized(const struct rule_case *c)
{
    const struct format *f = format_find(c->shape->dominant_format);
    return f && format_bits_per_weight(f) < 16;
}

/* Were the limits of this machine measured while other programs took part of it? A rule whose condition is
 * one of these limits says so. */
static bool case_is_loaded(const struct rule_case *c)
{
    return c->ceilings->others_busy_ratio > CEILINGS_LOADED_RATIO;
}

static void finding_add_load(struct rule_finding *f, const struct rule_case *c)
{
    const size_t n = strlen(f->evidence);
    if (case_is_loaded(c))
        snprintf(
            f->evidence + n, sizeof f->evidence - n,
            "; measured while other programs used %.0f %% of the processors (qdyno detect --probe repeats "
            "it)",
            100 * c->ceilings->others_busy_ratio);
}

/* ---------------------------------------------------------------- NVIDIA */

static bool rule_fp8(struct rule_finding *f, const struct rule_case *c)
{
    const int cc = case_capability(c);
    if (cc < 0) return false;
    SET(f->evidence, "compute capability %d.%d; FP8 products exist from 8.9 on", cc / 10, cc % 10);
    if (cc >= 89) {
        SET(f->advice, "try FP8 (fp8_e4m3) beside q8_0 on this GPU");
        SET(f->reason,
            "its matrix units multiply FP8 directly: half the bytes of f16, and up to twice its rate in prefill and large batches; a single sequence gains only from the bytes");
    } else {
        SET(f->advice, "do not use FP8 on this GPU: choose q8_0 or int8 for 8 bits");
        SET(f->reason,
            "there are no FP8 products before 8.9: such weights are converted to f16 first, so only the bytes are saved");
    }
    finding_set_ab(f, c, "q8_0 fp8_e4m3 --quality", "pp512");
    return true;
}

static bool rule_tensor_cores(struct rule_finding *f, const struct rule_case *c)
{
    const int cc = case_capability(c);
    if (cc < 0) return false;
    SET(f->evidence, "compute capability %d.%d", cc / 10, cc % 10);
    if (cc >= 80) {
        SET(f->advice, "use bf16 or f16 for tensors that are not quantized");
        SET(f->reason, "tensor cores support both from 8.0 on; bf16 has the range of f32");
    } else if (cc >= 70) {
        SET(f->advice, "use f16, not bf16, for tensors that are not quantized");
        SET(f->reason,
            "its tensor cores (7.x) support f16 only: bf16 products would run without them, several times slower in prefill");
    } else {
        SET(f->advice, "use integer formats (q8_0, q4_0) rather than f16");
        SET(f->reason, "no tensor cores before 7.0");
    }
    return true;
}

static bool rule_tf32(struct rule_finding *f, const struct rule_case *c)
{
    if (case_capability(c) < 80 || strcmp(c->shape->dominant_format, "f32")) return false;
    SET(f->advice, "let f32 products use TF32 (qdyno's equivalent is precision=high)");
    SET(f->reason,
        "the file is f32: TF32 rounds inputs to 10 bits of mantissa and multiplies on tensor cores, at about %.0f times the f32 rate",
        fmax(1, c->ceilings->gpu.tf32_ops_s / c->ceilings->gpu.f32_ops_s));
    SET(f->evidence, "TF32 exists from compute capability 8.0 on; rates from the machine's description");
    finding_set_ab(f, c, "precision=highest precision=high --quality", "pp512");
    return true;
}

/* ---------------------------------------------------------------- other GPUs */

static bool rule_rocm(struct rule_finding *f, const struct rule_case *c)
{
    if (!case_gpu(c, "amd")) return false;
    SET(f->advice,
        "for 4 bits use GPTQ, AWQ or a GGUF block format; for 16 bits f16; do not rely on FP8 or bitsandbytes kernels");
    SET(f->reason,
        "ROCm programs have kernels for integer groups and GGUF blocks; CDNA 2 and RDNA 3 have no FP8 products");
    SET(f->evidence, "an AMD GPU; the command measures the quality of the formats on this model");
    finding_set_ab(f, c, "gptq,bits=4 awq,bits=4 q4_K --quality", "tg64");
    return true;
}

static bool rule_xmx(struct rule_finding *f, const struct rule_case *c)
{
    if (!case_gpu(c, "intel") || !(c->ceilings->gpu.int8_ops_s > 0)) return false;
    SET(f->advice, "use q4_0 or q8_0; for 16 bits f16");
    SET(f->reason,
        "XMX multiplies int8 at twice its f16 rate; SYCL and Vulkan programs have their fastest kernels for the simple block formats");
    SET(f->evidence, "an Intel GPU with matrix engines in the machine's description");
    return true;
}

static bool rule_unified(struct rule_finding *f, const struct rule_case *c)
{
    char bytes[16];
    if (!c->ceilings->gpu.unified || accelerator_of(c->machine)) return false;
    SET(f->advice, "plan with %s: model and KV cache share the memory with the system",
        str_from_bytes(c->machine->memory_bytes / 4 * 3, bytes, sizeof bytes));
    SET(f->reason,
        "unified memory needs no copies, so the GPU can use most of it; the system keeps about a quarter. f16 and int8 are its formats, and the decode rate depends on the bytes per token");
    SET(f->evidence, "unified memory; %s of it",
        str_from_bytes(c->machine->memory_bytes, bytes, sizeof bytes));
    return true;
}

static bool rule_several_gpus(struct rule_finding *f, const struct rule_case *c)
{
    if (c->machine->gpus < 2 || !case_on_gpu(c)) return false;
    SET(f->advice,
        "%d GPUs: splitting layers over them fits a larger model, but does not decode one sequence faster",
        c->machine->gpus);
    SET(f->reason, "a token passes through the GPUs one after another, each at its own bandwidth");
    SET(f->evidence, "%d GPUs listed; the rates here are those of one", c->machine->gpus);
    return true;
}

static bool rule_accelerator(struct rule_finding *f, const struct rule_case *c)
{
    const struct accelerator *x = accelerator_of(c->machine);
    if (!x) return false;
    SET(f->advice, "%s", x->advice);
    SET(f->reason, "%s", x->reason);
    SET(f->evidence, "%s", x->evidence);
    return true;
}

/* What cannot run here: qdyno has no code for these processors, so it can only time another program. */
static bool rule_no_code(struct rule_finding *f, const struct rule_case *c)
{
    const struct accelerator *x = accelerator_of(c->machine);
    if (!x) return false;
    SET(f->advice, "qdyno's engine cannot run on %s: time the server of a program that can", x->name);
    SET(f->reason,
        "there is no OpenCL for it, and its programs read Hugging Face folders, not GGUF; the figures are rough guesses of what such programs may reach");
    SET(f->evidence,
        "the vendor's bandwidth and matrix rates times the assumed efficiency of GPU programs (docs/advisor.md)");
    SET(f->check, "qdyno bench -C engine=openai,url=http://HOST:8000,model=NAME -w pp512+tg64");
    return true;
}

static bool rule_no_device(struct rule_finding *f, const struct rule_case *c)
{
    if (!case_on_gpu(c) || accelerator_of(c->machine)) return false;
    SET(f->advice, "take the GPU's figures as what GPU programs may reach, and measure there");
    SET(f->reason,
        "these figures are of GPU programs: qdyno's engine runs on GPUs through OpenCL (device=opencl:0), which was not measured on this machine, so the interval is wide");
    SET(f->evidence,
        "the vendor's bandwidth and matrix rates times the assumed efficiency of GPU programs (docs/advisor.md)");
    SET(f->check, "llama-bench -m FILE.gguf -ngl 99 -p 512 -n 64");
    return true;
}

/* ---------------------------------------------------------------- CPUs */

static bool rule_amx(struct rule_finding *f, const struct rule_case *c)
{
    const bool exact = !strcmp(c->shape->dominant_format, "f32");
    if (case_on_gpu(c) || !case_has_isa(c, ISA_AMX)) return false;
    SET(f->advice, exact ? "use precision=medium for this f32 file, or convert it to bf16"
                         : "keep precision=auto: prompts already use the AMX tiles");
    SET(f->reason,
        exact
            ? "f32 weights use f32 products by default; AMX tiles multiply bf16, an order of magnitude faster in prefill"
            : "quantized and bf16 weights are unpacked to bf16 tiles (int8 to integer tiles); f16 needs three products to stay exact, bf16 one");
    SET(f->evidence, "AMX is among the machine's instruction sets");
    finding_set_ab(f, c, exact ? "default precision=medium --quality" : "default isa=avx512vnni", "pp512");
    return true;
}

static bool rule_vnni(struct rule_finding *f, const struct rule_case *c)
{
    if (case_on_gpu(c) || case_has_isa(c, ISA_AMX) ||
        !(case_has_isa(c, ISA_AVX512VNNI) || case_has_isa(c, ISA_AVXVNNI) || case_has_isa(c, ISA_DOTPROD)))
        return false;
    SET(f->advice,
        case_is_quantized(c)
            ? "try act=int8 for prompts: this file's weights allow 8-bit integer dot products"
            : "use formats with 8-bit integer dot products: q8_0, q4_0, q4_K; and act=int8 for prompts");
    SET(f->reason,
        "%s multiplies four 8-bit pairs in the time of one f32 pair: quantizing activations to 8 bits costs little quality, and prompts gain most",
        case_has_isa(c, ISA_DOTPROD) ? "the dot product extension" : "VNNI");
    SET(f->evidence, "the machine's instruction sets; it has no matrix tiles");
    finding_set_ab(f, c, "default act=int8 --quality", "pp512");
    return true;
}

static bool rule_numa(struct rule_finding *f, const struct rule_case *c)
{
    if (case_on_gpu(c) || c->machine->numa_nodes < 2) return false;
    SET(f->advice,
        "compare numa=interleave (pages of the weights on all nodes), numa=replicate (weights on each node) and numa=local (one node only)");
    SET(f->reason,
        "the pages of a file lie on the node that read them first, so threads of %d nodes share one node's memory channels",
        c->machine->numa_nodes);
    const double node = ceilings_node_bytes_s(c->ceilings);
    if (node > 0) {
        SET(f->evidence,
            "%d NUMA nodes: all threads read %.3g GB/s from the memory of one node, %.3g GB/s from their own nodes",
            c->machine->numa_nodes, node * 1e-9, c->ceilings->read_bytes_s_all * 1e-9);
        finding_add_load(f, c);
    } else {
        SET(f->evidence, "%d NUMA nodes, %d cores", c->machine->numa_nodes, c->machine->cores);
    }
    finding_set_ab(f, c, "default numa=interleave numa=replicate numa=local", "tg64");
    return true;
}

static bool rule_threads(struct rule_finding *f, const struct rule_case *c)
{
    const struct machine *m = c->machine;
    char arms[64];
    if (case_on_gpu(c)) return false;
    const int usable = machine_threads(m);
    if (usable < m->cores) {
        SET(f->advice, "use threads=%d (the default): this process may not use more", usable);
        SET(f->reason, "with more threads than CPUs, the threads wait for each other in every product");
        machine_limit_text(m, f->evidence, sizeof f->evidence);
        snprintf(arms, sizeof arms, "threads=%d threads=%d", usable, m->cores);
    } else if (m->processors > m->cores && m->cores > 1) {
        SET(f->advice, "use threads=%d (one per core, the default), not %d", m->cores, m->processors);
        SET(f->reason,
            "two threads of a core share its vector units and its memory path: nothing is gained, and threads wait longer for each other");
        SET(f->evidence, "%d cores with %d hardware threads", m->cores, m->processors);
        snprintf(arms, sizeof arms, "default threads=%d", m->processors);
    } else {
        return false;
    }
    finding_set_ab(f, c, arms, "tg64");
    return true;
}

/* What a measured A/B of one setting says. false: there is none on this machine. */
static bool finding_set_effect(struct rule_finding *f, const struct rule_case *c, enum knob_id setting)
{
    struct evidence_effect x;
    const struct knob *k = &KNOBS[setting];
    if (!evidence_setting(c->evidence, setting, &x)) return false;
    const bool faster = x.log_ratio.lower > 0;
    SET(f->advice, faster ? "use %s=%s" : "leave %s=%s", k->key, faster ? x.value : k->otherwise);
    SET(f->reason,
        faster                   ? "%s=%s was faster with this model on this machine"
        : x.log_ratio.upper <= 0 ? "%s=%s was slower with this model on this machine"
                                 : "%s=%s was not shown to be faster with this model on this machine",
        k->key, x.value);
    SET(f->evidence,
        "run %lld: %s=%s changed %s on %s by %+.1f %% [%+.1f, %+.1f] (90 %% interval, %d block%s)",
        (long long)x.run, k->key, x.value, x.metric, x.workload, stats_percent(x.log_ratio.estimate),
        stats_percent(x.log_ratio.lower), stats_percent(x.log_ratio.upper), x.blocks, str_plural(x.blocks));
    struct str arms = { 0 };
    word_append(&arms, x.without);
    str_append(&arms, " ");
    word_append(&arms, x.with);
    finding_set_ab(f, c, str_text(&arms), x.workload);
    str_free(&arms);
    return true;
}

enum err_code rule_case_find_enough(struct rule_case *c, const struct gguf *g, const struct predict_for *what,
                                    struct err *why)
{
    static const double NEARLY = 0.95;
    const struct machine_ceilings *k = c->ceilings;
    c->enough = (struct case_threads){ .all_tok_s = c->reference->decode_tok_s.estimate };
    for (int i = -1; i < k->reads; i++) { /* -1: one thread */
        const int threads = i < 0 ? 1 : k->read[i].threads;
        struct prediction p;
        struct config config;
        char value[16];
        if (threads >= k->threads_all) continue;
        config_default(&config);
        snprintf(value, sizeof value, "%d", threads);
        enum err_code rc = config_set(&config, KNOBS[KNOB_THREADS].key, value, why);
        if (!rc) rc = predict(&p, g, &config, c->machine, k, what, why);
        if (rc) return rc;
        if (!(p.decode_tok_s.estimate >= NEARLY * c->enough.all_tok_s)) continue;
        c->enough.threads = threads;
        c->enough.tok_s = p.decode_tok_s.estimate;
        return ERR_OK;
    }
    return ERR_OK;
}

/* The pool's threads: where they run, and how many are of use. */
static bool rule_pool(struct rule_finding *f, const struct rule_case *c)
{
    const int cores = machine_usable_cores(c->machine);
    const struct case_threads *x = &c->enough;
    char arms[96];
    if (!c->evidence || case_on_gpu(c) || cores < 2) return false;
    if (finding_set_effect(f, c, KNOB_AFFINITY) || finding_set_effect(f, c, KNOB_THREADS)) return true;
    /* other programs can take the cores that further threads would have used: then nothing follows */
    if (x->threads && !case_is_loaded(c)) {
        SET(f->advice, "try threads=%d for decoding: more threads wait for the memory", x->threads);
        SET(f->reason,
            "decoding reads all weights for each token: %d of %d threads are predicted to reach %.0f %% of the "
            "decode rate of all",
            x->threads, c->ceilings->threads_all, 100 * x->tok_s / x->all_tok_s);
        SET(f->evidence,
            "predicted: %d thread%s %.3g tok/s, %d %.3g tok/s; qdyno detect --probe: %d read %.3g GB/s, %d read "
            "%.3g GB/s",
            x->threads, str_plural(x->threads), x->tok_s, c->ceilings->threads_all, x->all_tok_s, x->threads,
            ceilings_read_bytes_s(c->ceilings, x->threads) * 1e-9, c->ceilings->threads_all,
            c->ceilings->read_bytes_s_all * 1e-9);
        snprintf(arms, sizeof arms, "default threads=%d", x->threads);
    } else {
        SET(f->advice, "measure whether bound threads are faster: affinity=compact or affinity=spread");
        SET(f->reason, "a bound thread keeps its caches, but cannot leave a core that another program uses");
        SET(f->evidence, "none yet: no run of this model on this machine compared affinity or threads");
        snprintf(arms, sizeof arms, "default affinity=compact affinity=spread");
    }
    finding_set_ab(f, c, arms, "tg64");
    return true;
}

/* Reading the weights ahead. */
static bool rule_prefetch(struct rule_finding *f, const struct rule_case *c)
{
    const int64_t have = rule_case_memory(c), weights = c->reference->plan.weights;
    char need[16], room[16];
    if (!c->evidence || case_on_gpu(c)) return false;
    if (finding_set_effect(f, c, KNOB_PREFETCH)) return true;
    if (have > 0 && weights > have) {
        SET(f->advice, "leave prefetch=off");
        SET(f->reason,
            "the weights exceed the memory: what is read ahead is dropped again before it is used");
        SET(f->evidence, "weights of %s, memory for %s", str_from_bytes(weights, need, sizeof need),
            str_from_bytes(have, room, sizeof room));
        finding_set_ab(f, c, "oversize=on oversize=on,prefetch=populate", "pp64");
        return true;
    }
    SET(f->advice, "measure whether prefetch=populate makes the first prompts faster");
    SET(f->reason,
        "it reads and maps all weights while loading, so that no page fault interrupts the first prompt; loading takes longer by that");
    SET(f->evidence, "none yet: no run of this model on this machine compared prefetch");
    finding_set_ab(f, c, "default prefetch=populate --processes new", "pp64");
    return true;
}

static bool rule_narrow_memory(struct rule_finding *f, const struct rule_case *c)
{
    const double bandwidth = c->ceilings->read_bytes_s_all;
    if (case_on_gpu(c) || !(bandwidth > 0) || bandwidth >= 20e9) return false;
    SET(f->advice, "use 4 bits, and a model with at most %.2g GB of weights for 10 tokens/s",
        0.9 * bandwidth / 10 * 1e-9);
    SET(f->reason, "each token reads all weights once, and this machine reads %.3g GB/s", bandwidth * 1e-9);
    SET(f->evidence, "read bandwidth of all threads");
    finding_add_load(f, c);
    finding_set_ab(f, c, "default q4_0 --quality", "tg64");
    return !case_is_quantized(c);
}

/* ---------------------------------------------------------------- memory and accuracy */

/* What to choose by available memory and goal: the cell of the matrix of strategies. */
static bool rule_memory_by_accuracy(struct rule_finding *f, const struct rule_case *c)
{
    const int64_t have = rule_case_memory(c);
    char need[16], room[16];
    if (have <= 0 || case_is_quantized(c) || accelerator_of(c->machine)) return false;
    const struct strategy
        *s = &STRATEGIES[strategy_room(c->reference->plan.total, have)][strategy_need(c->goal)];
    SET(f->advice, "%s", s->advice);
    SET(f->reason, "%s", s->reason);
    SET(f->evidence, "the unchanged model takes %s of %s; goal %s",
        str_from_bytes(c->reference->plan.total, need, sizeof need), str_from_bytes(have, room, sizeof room),
        goal_name(c->goal));
    finding_set_ab(f, c, s->arms, "tg64");
    return true;
}

static bool rule_cache_share(struct rule_finding *f, const struct rule_case *c)
{
    const struct memory_plan *p = &c->reference->plan;
    char kv[16], weights[16];
    if (p->kv * 3 < p->weights || accelerator_of(c->machine)) return false;
    SET(f->advice, "set kv=q8_0 before choosing smaller weights");
    SET(f->reason,
        "the KV cache takes %s beside %s of weights at %d tokens: 8 bits halve it with a barely measurable loss",
        str_from_bytes(p->kv, kv, sizeof kv), str_from_bytes(p->weights, weights, sizeof weights), p->ctx);
    SET(f->evidence, "the memory estimate");
    finding_set_ab(f, c, "default kv=q8_0 --quality", "tg64@d512");
    return true;
}

/* The widths of a model that are row lengths of its matrices. */
static bool rule_dimensions(struct rule_finding *f, const struct rule_case *c)
{
    const int64_t widths[] = { c->shape->embd, c->shape->ff, c->shape->expert_ff };
    char text[96] = "";
    int64_t worst = 256;
    for (size_t i = 0; i < COUNT_OF(widths); i++) {
        const int64_t power = widths[i] & -widths[i];
        if (widths[i] <= 0 || power >= 256) continue;
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%lld", used ? ", " : "", (long long)widths[i]);
        worst = MIN(worst, power);
    }
    if (worst == 256 || case_is_quantized(c)) return false;
    SET(f->advice,
        worst >= 32
            ? "prefer formats with blocks of 32 (q4_0, q8_0, iq4_nl) to K formats for this model"
            : "expect no format with blocks to make this model much smaller: int8 quantizes whole rows");
    SET(f->reason,
        worst >= 32
            ? "rows that do not fill blocks of 256 keep K formats from being used: those tensors stay at 16 bits"
            : "rows that do not fill blocks of 32 stay at 16 bits in all block formats");
    SET(f->evidence, "widths that are no multiple of 256: %s (the smallest power of two in them is %lld)",
        text, (long long)worst);
    struct str s = { 0 };
    str_append(&s, "qdyno info --dimensions -m ");
    word_append(&s, c->model);
    SET(f->check, "%s", str_text(&s));
    str_free(&s);
    return true;
}

static bool rule_quantized_already(struct rule_finding *f, const struct rule_case *c)
{
    if (!case_is_quantized(c)) return false;
    SET(f->advice, "start from the f16 or bf16 original to try other formats");
    SET(f->reason,
        "this file is %s: quantizing it again would add to its loss, so only settings are varied here",
        quantization_short(c->shape));
    SET(f->evidence, "the formats of the file's tensors");
    return true;
}

static bool rule_steady(struct rule_finding *f, const struct rule_case *c)
{
    const struct machine *m = c->machine;
    const bool slow = *m->governor && strcmp(m->governor, "performance") && strcmp(m->governor, "schedutil");
    if (!m->on_battery && !slow) return false;
    SET(f->advice,
        m->on_battery
            ? "connect the power supply before measuring"
            : "set the performance governor before measuring: cpupower frequency-set -g performance");
    SET(f->reason, "when the clock follows the load, the same work takes different times");
    SET(f->evidence, m->on_battery ? "on battery" : "governor %s", m->governor);
    return true;
}

/* ---------------------------------------------------------------- the table */

static const struct {
    const char *name; /* explained in docs/advisor.md */
    bool (*apply)(struct rule_finding *f, const struct rule_case *c);
} RULES[] = {
    { .name = "device", .apply = rule_no_device },
    { .name = "no-code", .apply = rule_no_code },
    { .name = "accelerator", .apply = rule_accelerator },
    { .name = "fp8", .apply = rule_fp8 },
    { .name = "tensor-cores", .apply = rule_tensor_cores },
    { .name = "tf32", .apply = rule_tf32 },
    { .name = "rocm", .apply = rule_rocm },
    { .name = "xmx", .apply = rule_xmx },
    { .name = "unified-memory", .apply = rule_unified },
    { .name = "several-gpus", .apply = rule_several_gpus },
    { .name = "amx", .apply = rule_amx },
    { .name = "vnni", .apply = rule_vnni },
    { .name = "numa", .apply = rule_numa },
    { .name = "threads", .apply = rule_threads },
    { .name = "pool", .apply = rule_pool },
    { .name = "prefetch", .apply = rule_prefetch },
    { .name = "narrow-memory", .apply = rule_narrow_memory },
    { .name = "memory-accuracy", .apply = rule_memory_by_accuracy },
    { .name = "kv-cache", .apply = rule_cache_share },
    { .name = "dimensions", .apply = rule_dimensions },
    { .name = "quantized", .apply = rule_quantized_already },
    { .name = "steady", .apply = rule_steady },
};
_Static_assert(COUNT_OF(RULES) <= RULES_MAX, "every rule may apply");

int rules_apply(struct rule_finding out[RULES_MAX], const struct rule_case *c)
{
    int n = 0;
    for (size_t i = 0; i < COUNT_OF(RULES); i++) {
        memset(&out[n], 0, sizeof out[n]);
        out[n].rule = RULES[i].name;
        if (RULES[i].apply(&out[n], c)) n++;
    }
    return n;
}
