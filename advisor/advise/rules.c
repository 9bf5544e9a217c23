/* advisor/advise/rules.c - one table of rules.
 *
 * A rule looks at a case and either has nothing to say or fills its finding. Figures in the words come from
 * the case, never from a list of machines. */
#include "advisor/advise/advise.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "advisor/advise/word.h"
#include "engine/plan/plan.h"

static void say(char *to, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void say(char *to, size_t size, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(to, size, fmt, args);
    va_end(args);
}
#define SAY(field, ...) say(field, sizeof(field), __VA_ARGS__)

/* "qdyno ab -m MODEL A B -w WORK" */
static void check_ab(struct rule_finding *f, const struct rule_case *c, const char *arms, const char *work)
{
    struct str s = { 0 };
    str_append(&s, "qdyno ab -m ");
    word_append(&s, c->model);
    str_printf(&s, " %s -w %s", arms, work);
    SAY(f->check, "%s", str_text(&s));
    str_free(&s);
}

/* ---------------------------------------------------------------- what a case is */

static const struct gpu_identity *gpu_of(const struct rule_case *c, const char *vendor)
{
    for (int i = 0; i < c->machine->gpus; i++)
        if (!strcmp(c->machine->gpu[i].vendor, vendor)) return &c->machine->gpu[i];
    return NULL;
}

/* 89 of compute capability 8.9; -1: no NVIDIA GPU, or unknown. */
static int capability(const struct rule_case *c)
{
    const struct gpu_identity *u = gpu_of(c, "nvidia");
    return u && u->compute_major >= 0 ? 10 * u->compute_major + MAX(u->compute_minor, 0) : -1;
}

static bool has(const struct rule_case *c, uint32_t bits)
{
    return (c->machine->isa & bits) == bits;
}

/* Advice for the processor is beside the point where a GPU computes. */
static bool on_gpu(const struct rule_case *c)
{
    return c->ceilings->gpu.read_bytes_s > 0;
}

static int64_t memory_of(const struct rule_case *c)
{
    if (c->memory_limit > 0) return c->memory_limit;
    if (on_gpu(c) && !c->ceilings->gpu.unified && c->machine->gpus) return c->machine->gpu[0].memory_bytes;
    return c->machine->memory_available_bytes > 0 ? c->machine->memory_available_bytes
                                                  : c->machine->memory_bytes;
}

static bool is_quantized(const struct rule_case *c)
{
    const struct format *f = format_find(c->shape->dominant_format);
    return f && format_bits_per_weight(f) < 16;
}

/* ---------------------------------------------------------------- NVIDIA */

static bool rule_fp8(struct rule_finding *f, const struct rule_case *c)
{
    const int cc = capability(c);
    if (cc < 0) return false;
    SAY(f->evidence, "compute capability %d.%d; FP8 products begin at 8.9", cc / 10, cc % 10);
    if (cc >= 89) {
        SAY(f->advice, "FP8 (fp8_e4m3) is worth a trial beside q8_0 on this GPU");
        SAY(f->reason,
            "its matrix units multiply FP8 themselves: half the bytes of f16, and up to twice its rate in prefill "
            "and in large batches; one sequence gains by the bytes alone");
    } else {
        SAY(f->advice, "no FP8 on this GPU: choose q8_0 or int8 where 8 bits are wanted");
        SAY(f->reason,
            "before 8.9 there are no FP8 products: such weights are turned into f16 first, for the bytes alone");
    }
    check_ab(f, c, "q8_0 fp8_e4m3 --quality", "pp512");
    return true;
}

static bool rule_tensor_cores(struct rule_finding *f, const struct rule_case *c)
{
    const int cc = capability(c);
    if (cc < 0) return false;
    SAY(f->evidence, "compute capability %d.%d", cc / 10, cc % 10);
    if (cc >= 80) {
        SAY(f->advice, "bf16 or f16 for what is not quantized");
        SAY(f->reason, "tensor cores take both from 8.0 on; bf16 keeps the range of f32");
    } else if (cc >= 70) {
        SAY(f->advice, "f16, not bf16, for what is not quantized");
        SAY(f->reason,
            "its tensor cores take f16 only (7.x): bf16 would run without them, several times slower in prefill");
    } else {
        SAY(f->advice, "integer formats (q8_0, q4_0) rather than f16");
        SAY(f->reason, "no tensor cores before 7.0");
    }
    return true;
}

static bool rule_tf32(struct rule_finding *f, const struct rule_case *c)
{
    if (capability(c) < 80 || strcmp(c->shape->dominant_format, "f32")) return false;
    SAY(f->advice, "let f32 products use TF32 (here: precision=high stands for it)");
    SAY(f->reason,
        "the file is f32: TF32 rounds inputs to 10 bits of mantissa and multiplies on tensor cores, about %.0f "
        "times the f32 rate",
        fmax(1, c->ceilings->gpu.tf32_ops_s / c->ceilings->gpu.f32_ops_s));
    SAY(f->evidence, "TF32 exists from compute capability 8.0 on; rates of the machine's description");
    check_ab(f, c, "precision=highest precision=high --quality", "pp512");
    return true;
}

/* ---------------------------------------------------------------- other GPUs */

static bool rule_rocm(struct rule_finding *f, const struct rule_case *c)
{
    if (!gpu_of(c, "amd")) return false;
    SAY(f->advice,
        "4 bits as GPTQ, AWQ or a GGUF block format; 16 bits as f16; no FP8, no bitsandbytes kernels to count on");
    SAY(f->reason,
        "what ROCm programs have kernels for are integer groups and GGUF blocks; CDNA 2 and RDNA 3 have no FP8 products");
    SAY(f->evidence, "an AMD GPU; quality of the two on this model is what the command measures");
    check_ab(f, c, "gptq,bits=4 awq,bits=4 q4_K --quality", "tg64");
    return true;
}

static bool rule_xmx(struct rule_finding *f, const struct rule_case *c)
{
    if (!gpu_of(c, "intel") || !(c->ceilings->gpu.int8_ops_s > 0)) return false;
    SAY(f->advice, "q4_0 or q8_0, 16 bits as f16");
    SAY(f->reason,
        "XMX multiplies int8 at twice its f16 rate; SYCL and Vulkan programs have their fastest kernels for the "
        "simple block formats");
    SAY(f->evidence, "an Intel GPU with matrix engines in the machine's description");
    return true;
}

static bool rule_unified(struct rule_finding *f, const struct rule_case *c)
{
    char bytes[16];
    if (!c->ceilings->gpu.unified) return false;
    SAY(f->advice, "plan with %s: model and cache share the memory with the system",
        str_from_bytes(c->machine->memory_bytes / 4 * 3, bytes, sizeof bytes));
    SAY(f->reason,
        "unified memory needs no copies, so the GPU can take what the processor has; the system keeps about a "
        "quarter from it. f16 and int8 are its formats, decode follows the bytes");
    SAY(f->evidence, "unified memory; %s of it",
        str_from_bytes(c->machine->memory_bytes, bytes, sizeof bytes));
    return true;
}

static bool rule_several_gpus(struct rule_finding *f, const struct rule_case *c)
{
    if (c->machine->gpus < 2 || !on_gpu(c)) return false;
    SAY(f->advice,
        "%d GPUs: layers split over them hold a larger model, and do not decode one sequence faster",
        c->machine->gpus);
    SAY(f->reason, "one token passes through the GPUs in turn, each at its own bandwidth");
    SAY(f->evidence, "%d GPUs listed; rates here are those of one", c->machine->gpus);
    return true;
}

static bool rule_no_device(struct rule_finding *f, const struct rule_case *c)
{
    if (!on_gpu(c)) return false;
    SAY(f->advice, "read the GPU's figures as what programs for it reach, and measure there");
    SAY(f->reason,
        "qdyno's own engine computes on processors only: nothing of this was measured by it, so the interval is "
        "wide");
    SAY(f->evidence,
        "the maker's bandwidth and matrix rates, times a guess of what such programs reach (docs/advisor.md)");
    SAY(f->check, "llama-bench -m FILE.gguf -ngl 99 -p 512 -n 64");
    return true;
}

/* ---------------------------------------------------------------- processors */

static bool rule_amx(struct rule_finding *f, const struct rule_case *c)
{
    const bool exact = !strcmp(c->shape->dominant_format, "f32");
    if (on_gpu(c) || !has(c, ISA_AMX)) return false;
    SAY(f->advice, exact ? "precision=medium for this f32 file, or a bf16 copy of it"
                         : "leave precision=auto: prompts run on the tiles");
    SAY(f->reason,
        exact
            ? "f32 weights keep f32 products by default; the tiles take bf16, an order of magnitude faster in "
              "prefill"
            : "quantized and bf16 weights are unpacked to bf16 tiles (int8: integer tiles); f16 takes three "
              "products to stay exact, bf16 one");
    SAY(f->evidence, "AMX among the machine's instruction sets");
    check_ab(f, c, exact ? "default precision=medium --quality" : "default isa=avx512vnni", "pp512");
    return true;
}

static bool rule_vnni(struct rule_finding *f, const struct rule_case *c)
{
    if (on_gpu(c) || has(c, ISA_AMX) ||
        !(has(c, ISA_AVX512VNNI) || has(c, ISA_AVXVNNI) || has(c, ISA_DOTPROD)))
        return false;
    SAY(f->advice, "formats that are dotted as 8-bit integers: q8_0, q4_0, q4_K; act=int8 for prompts");
    SAY(f->reason,
        "%s multiplies four 8-bit pairs where f32 multiplies one: rounding activations to 8 bits costs little "
        "and prompts gain most",
        has(c, ISA_DOTPROD) ? "the dot product extension" : "VNNI");
    SAY(f->evidence, "the machine's instruction sets, no matrix tiles");
    check_ab(f, c, "default act=int8 --quality", "pp512");
    return true;
}

static bool rule_numa(struct rule_finding *f, const struct rule_case *c)
{
    if (on_gpu(c) || c->machine->numa_nodes < 2) return false;
    SAY(f->advice,
        "try affinity=spread with all cores against the cores of one node, and interleave the file's pages "
        "(numactl --interleave=all)");
    SAY(f->reason,
        "pages of the file lie on the node that read them first: threads of %d nodes then share one node's "
        "memory channels",
        c->machine->numa_nodes);
    const double node = ceilings_node_bytes_s(c->ceilings);
    if (node > 0)
        SAY(f->evidence,
            "%d NUMA nodes: all threads read %.3g GB/s of what lies on one, %.3g GB/s of what lies beside each",
            c->machine->numa_nodes, node * 1e-9, c->ceilings->read_bytes_s_all * 1e-9);
    else
        SAY(f->evidence, "%d NUMA nodes, %d cores", c->machine->numa_nodes, c->machine->cores);
    char arms[96];
    snprintf(arms, sizeof arms, "affinity=spread threads=%d,affinity=compact",
             MAX(c->machine->cores / c->machine->numa_nodes, 1));
    check_ab(f, c, arms, "tg64");
    return true;
}

static bool rule_threads(struct rule_finding *f, const struct rule_case *c)
{
    const struct machine *m = c->machine;
    char arms[64];
    if (on_gpu(c)) return false;
    if (m->cgroup_cpus >= 1 && m->cgroup_cpus < m->cores) {
        SAY(f->advice, "threads=%d: this container may use %.3g processors", (int)m->cgroup_cpus,
            m->cgroup_cpus);
        SAY(f->reason, "more threads than processors wait for each other in every product");
        SAY(f->evidence, "control group limit %.3g, %d cores", m->cgroup_cpus, m->cores);
        snprintf(arms, sizeof arms, "threads=%d threads=%d", (int)m->cgroup_cpus, m->cores);
    } else if (m->processors > m->cores && m->cores > 1) {
        SAY(f->advice, "threads=%d (one a core, the default), not %d", m->cores, m->processors);
        SAY(f->reason,
            "two threads of a core share its vector units and its way to memory: nothing is won, and waiting gets longer");
        SAY(f->evidence, "%d cores with %d hardware threads", m->cores, m->processors);
        snprintf(arms, sizeof arms, "default threads=%d", m->processors);
    } else {
        return false;
    }
    check_ab(f, c, arms, "tg64");
    return true;
}

static bool rule_narrow_memory(struct rule_finding *f, const struct rule_case *c)
{
    const double bandwidth = c->ceilings->read_bytes_s_all;
    if (on_gpu(c) || !(bandwidth > 0) || bandwidth >= 20e9) return false;
    SAY(f->advice, "4 bits, and a model of at most %.2g GB of weights for 10 tokens/s",
        0.9 * bandwidth / 10 * 1e-9);
    SAY(f->reason, "every token reads all weights once, and this machine reads %.3g GB/s", bandwidth * 1e-9);
    SAY(f->evidence, "read bandwidth, all threads");
    check_ab(f, c, "default q4_0 --quality", "tg64");
    return !is_quantized(c);
}

/* ---------------------------------------------------------------- memory and accuracy */

/* Memory that is tight or ample, by accuracy that is wanted: what to choose. */
static bool rule_memory_by_accuracy(struct rule_finding *f, const struct rule_case *c)
{
    const int64_t have = memory_of(c);
    char need[16], room[16];
    if (have <= 0 || is_quantized(c)) return false;
    const double share = (double)c->reference->plan.total / (double)have;
    const bool tight = share > 0.9, ample = share < 0.5;
    const bool exact = c->goal == GOAL_QUALITY, fast = c->goal == GOAL_SPEED || c->goal == GOAL_ENERGY;
    static const struct {
        const char *advice, *reason, *arms;
    } MATRIX[3][3] = {
        /* tight: exact, balanced, fast or small */
        { { "q6_K, or q5_K with an importance matrix", "the largest that fits loses least",
            "q6_K q5_K --quality" },
          { "q4_K with an importance matrix, or awq/gptq at 4 bits",
            "4 bits that were chosen by what the model does with them lose less than rounding does (docs/methods.md)",
            "q4_K awq,bits=4 --quality" },
          { "q4_0 or q3_K, kv=q8_0", "bytes are speed; below 4 bits look at quality first",
            "q4_0 q3_K,kv=q8_0 --quality" } },
        /* neither */
        { { "q8_0", "half the bytes of 16 bits, and a loss at the edge of what can be measured",
            "default q8_0 --quality" },
          { "q5_K or q4_K",
            "the knee of the curve: below it every bit costs more quality than the one before",
            "q5_K q4_K --quality" },
          { "q4_K or q4_0", "fewest bytes a token without leaving 4 bits", "q4_K q4_0 --quality" } },
        /* ample */
        { { "the file as it is; q8_0 if speed matters at all", "there is no need to lose anything",
            "default q8_0 --quality" },
          { "q8_0, q4_K when speed matters more", "memory is no reason to quantize here, bandwidth is",
            "q8_0 q4_K --quality" },
          { "q4_0 or q4_K", "memory is ample, bandwidth never is", "q8_0 q4_0 --quality" } },
    };
    const int row = tight ? 0 : ample ? 2 : 1, column = exact ? 0 : fast || c->goal == GOAL_MEMORY ? 2 : 1;
    SAY(f->advice, "%s", MATRIX[row][column].advice);
    SAY(f->reason, "%s", MATRIX[row][column].reason);
    SAY(f->evidence, "as it is the model takes %s of %s; goal %s",
        str_from_bytes(c->reference->plan.total, need, sizeof need), str_from_bytes(have, room, sizeof room),
        goal_name(c->goal));
    check_ab(f, c, MATRIX[row][column].arms, "tg64");
    return true;
}

static bool rule_cache_share(struct rule_finding *f, const struct rule_case *c)
{
    const struct memory_plan *p = &c->reference->plan;
    char kv[16], weights[16];
    if (p->kv * 3 < p->weights) return false;
    SAY(f->advice, "kv=q8_0 before smaller weights");
    SAY(f->reason,
        "the KV cache takes %s beside %s of weights at %d tokens: 8 bits halve it at a loss that is hardly measurable",
        str_from_bytes(p->kv, kv, sizeof kv), str_from_bytes(p->weights, weights, sizeof weights), p->ctx);
    SAY(f->evidence, "the loader's own plan");
    check_ab(f, c, "default kv=q8_0 --quality", "tg64@d512");
    return true;
}

static bool rule_quantized_already(struct rule_finding *f, const struct rule_case *c)
{
    if (!is_quantized(c)) return false;
    SAY(f->advice, "to try other formats start from the f16 or bf16 original");
    SAY(f->reason,
        "this file is %s: quantizing it again adds its loss to the new one, so only settings are varied here",
        c->shape->dominant_format);
    SAY(f->evidence, "the file's own tensors");
    return true;
}

static bool rule_steady(struct rule_finding *f, const struct rule_case *c)
{
    const struct machine *m = c->machine;
    const bool slow = *m->governor && strcmp(m->governor, "performance") && strcmp(m->governor, "schedutil");
    if (!m->on_battery && !slow) return false;
    SAY(f->advice,
        m->on_battery
            ? "plug in before you measure"
            : "set the performance governor before you measure: cpupower frequency-set -g performance");
    SAY(f->reason, "clocks that follow the load make the same work take different times");
    SAY(f->evidence, m->on_battery ? "on battery" : "governor %s", m->governor);
    return true;
}

/* ---------------------------------------------------------------- the table */

static const struct {
    const char *name, *about;
    bool (*apply)(struct rule_finding *f, const struct rule_case *c);
} RULES[] = {
    { "device", "a GPU of a described machine", rule_no_device },
    { "fp8", "NVIDIA, by compute capability", rule_fp8 },
    { "tensor-cores", "NVIDIA, by compute capability", rule_tensor_cores },
    { "tf32", "NVIDIA from 8.0 on, f32 files", rule_tf32 },
    { "rocm", "AMD GPUs", rule_rocm },
    { "xmx", "Intel GPUs with matrix engines", rule_xmx },
    { "unified-memory", "GPUs that share the machine's memory", rule_unified },
    { "several-gpus", "two GPUs and more", rule_several_gpus },
    { "amx", "processors with AMX", rule_amx },
    { "vnni", "8-bit dot products without AMX", rule_vnni },
    { "numa", "two memory nodes and more", rule_numa },
    { "threads", "containers, and cores with several threads", rule_threads },
    { "narrow-memory", "processors that read less than 20 GB/s", rule_narrow_memory },
    { "memory-accuracy", "files of 16 or 32 bits: memory by accuracy", rule_memory_by_accuracy },
    { "kv-cache", "caches of a third of the weights and more", rule_cache_share },
    { "quantized", "files that are quantized already", rule_quantized_already },
    { "steady", "battery, governors", rule_steady },
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

const char *rule_name(int i)
{
    return i >= 0 && i < (int)COUNT_OF(RULES) ? RULES[i].name : NULL;
}

const char *rule_about(int i)
{
    return i >= 0 && i < (int)COUNT_OF(RULES) ? RULES[i].about : NULL;
}
