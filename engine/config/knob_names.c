/* engine/config/knob_names.c - the names that settings have in other programs.
 *
 * People search for a setting by the name they know: -ngl, num_ctx, max_model_len. Each name leads to the key
 * that does the same here, or to the nearest one and a sentence that says what qdyno does instead. */
#include <ctype.h>
#include <string.h>

#include "engine/config/config.h"

#define LLAMA_CPP "llama.cpp"
#define OLLAMA    "Ollama"
#define VLLM      "vLLM"
#define HF        "Hugging Face"

const struct knob_name KNOB_NAMES[] = {
    { "n_threads", LLAMA_CPP, KNOB_THREADS, NULL },
    { "num_thread", OLLAMA, KNOB_THREADS, NULL },
    { "cpu_mask", LLAMA_CPP, KNOB_AFFINITY, NULL },
    { "cpu_strict", LLAMA_CPP, KNOB_AFFINITY, NULL },
    { "main_gpu", LLAMA_CPP, KNOB_DEVICE, NULL },
    { "device_map", HF, KNOB_DEVICE, NULL },
    { "ngl", LLAMA_CPP, KNOB_GPU_LAYERS, NULL },
    { "n_gpu_layers", LLAMA_CPP, KNOB_GPU_LAYERS, NULL },
    { "num_gpu", OLLAMA, KNOB_GPU_LAYERS, NULL },
    { "offload", HF, KNOB_GPU_LAYERS, NULL },
    { "n_cpu_moe", LLAMA_CPP, KNOB_EXPERT_PLACE, NULL },
    { "cpu_moe", LLAMA_CPP, KNOB_EXPERT_PLACE, NULL },
    { "override_tensor", LLAMA_CPP, KNOB_EXPERT_PLACE, NULL },
    { "dtype", VLLM, KNOB_PRECISION, NULL },
    { "torch_dtype", HF, KNOB_PRECISION, NULL },
    { "n_ctx", LLAMA_CPP, KNOB_CTX, NULL },
    { "ctx_size", LLAMA_CPP, KNOB_CTX, NULL },
    { "context_length", LLAMA_CPP, KNOB_CTX, NULL },
    { "num_ctx", OLLAMA, KNOB_CTX, NULL },
    { "max_model_len", VLLM, KNOB_CTX, NULL },
    { "n_ubatch", LLAMA_CPP, KNOB_BATCH, NULL },
    { "ubatch_size", LLAMA_CPP, KNOB_BATCH, NULL },
    { "n_batch", LLAMA_CPP, KNOB_BATCH, NULL },
    { "batch_size", LLAMA_CPP, KNOB_BATCH, NULL },
    { "num_batch", OLLAMA, KNOB_BATCH, NULL },
    { "kv_type", LLAMA_CPP, KNOB_CTK, NULL },
    { "type_k", LLAMA_CPP, KNOB_CTK, NULL },
    { "cache_type_k", LLAMA_CPP, KNOB_CTK, NULL },
    { "kv_cache_type", OLLAMA, KNOB_CTK, NULL },
    { "kv_cache_dtype", VLLM, KNOB_CTK, NULL },
    { "cache_implementation", HF, KNOB_CTK, NULL },
    { "type_v", LLAMA_CPP, KNOB_CTV, NULL },
    { "kv_type_v", LLAMA_CPP, KNOB_CTV, NULL },
    { "cache_type_v", LLAMA_CPP, KNOB_CTV, NULL },
    { "kv_unified", LLAMA_CPP, KNOB_KV_CACHE, NULL },
    { "use_cache", HF, KNOB_KV_CACHE, NULL },
    { "fa", LLAMA_CPP, KNOB_ATTENTION, NULL },
    { "flash_attn", LLAMA_CPP, KNOB_ATTENTION, NULL },
    { "flash_attention", OLLAMA, KNOB_ATTENTION, NULL },
    { "attn_implementation", HF, KNOB_ATTENTION, NULL },
    { "enforce_eager", VLLM, KNOB_COMPILE, NULL },
    { "torch_compile", HF, KNOB_COMPILE, NULL },
    { "tensor_parallel_size", VLLM, KNOB_PARALLEL, NULL },
    { "pipeline_parallel_size", VLLM, KNOB_PARALLEL, NULL },
    { "data_parallel_size", VLLM, KNOB_PARALLEL, NULL },
    { "rpc", LLAMA_CPP, KNOB_HOSTS, NULL },
    { "huge_pages", LLAMA_CPP, KNOB_HUGEPAGES, NULL },
    { "quantization", VLLM, KNOB_FORMAT, NULL },
    { "load_in_4bit", HF, KNOB_FORMAT, NULL },
    { "load_in_8bit", HF, KNOB_FORMAT, NULL },
    { "n_parallel", LLAMA_CPP, KNOB_MAX_SEQUENCES, NULL },
    { "np", LLAMA_CPP, KNOB_MAX_SEQUENCES, NULL },
    { "num_parallel", OLLAMA, KNOB_MAX_SEQUENCES, NULL },
    { "max_num_seqs", VLLM, KNOB_MAX_SEQUENCES, NULL },
    { "max_num_batched_tokens", VLLM, KNOB_STEP_TOKENS, NULL },
    { "enable_chunked_prefill", VLLM, KNOB_STEP_TOKENS, NULL },
    { "num_gpu_blocks_override", VLLM, KNOB_KV_BLOCKS, NULL },
    { "enable_prefix_caching", VLLM, KNOB_PREFIX_CACHE, NULL },
    { "cache_prompt", LLAMA_CPP, KNOB_PREFIX_CACHE, NULL },
    { "cache_reuse", LLAMA_CPP, KNOB_PREFIX_CACHE, NULL },
    { "scheduling_policy", VLLM, KNOB_SCHEDULE, NULL },

    { "mmap", LLAMA_CPP, KNOB_PREFETCH,
      "qdyno maps weights from the file, unless hugepages=all copies them. The nearest setting is prefetch" },
    { "use_mmap", OLLAMA, KNOB_PREFETCH,
      "qdyno maps weights from the file, unless hugepages=all copies them. The nearest setting is prefetch" },
    { "mlock", LLAMA_CPP, KNOB_PREFETCH,
      "qdyno does not lock memory. The nearest setting is prefetch=populate: it reads all weights while loading" },
    { "use_mlock", OLLAMA, KNOB_PREFETCH,
      "qdyno does not lock memory. The nearest setting is prefetch=populate: it reads all weights while loading" },
    { "low_vram", OLLAMA, KNOB_GPU_LAYERS,
      "qdyno has no such switch. The nearest setting is gpu_layers: fewer layers need less memory of the device" },
    { "tensor_split", LLAMA_CPP, KNOB_PARALLEL,
      "qdyno does not divide a model among GPUs. The nearest setting is parallel: it divides it among processes" },
    { "split_mode", LLAMA_CPP, KNOB_PARALLEL,
      "qdyno does not divide a model among GPUs. The nearest setting is parallel: it divides it among processes" },
    { "gpu_memory_utilization", VLLM, KNOB_KV_BLOCKS,
      "qdyno plans memory in bytes (qdyno fit). The nearest setting is kv_blocks: the size of the KV cache" },
    { "swap_space", VLLM, KNOB_PREEMPT,
      "qdyno has no such limit. The nearest setting is preempt=swap: caches of preempted requests go to memory" },
    { "cont_batching", LLAMA_CPP, KNOB_SCHEDULE,
      "qdyno always batches continuously. The nearest setting is schedule; schedule=static waits for whole batches" },
    { "defrag_thold", LLAMA_CPP, KNOB_KV_CACHE,
      "qdyno has no such setting. The nearest one is kv_cache: the layout of the KV cache" },
    { "swa_full", LLAMA_CPP, KNOB_KV_CACHE,
      "qdyno has no such setting. The nearest one is kv_cache: the layout of the KV cache" },
    { "rope_scaling", LLAMA_CPP, KNOB_CTX,
      "qdyno takes RoPE's scaling from the file. The nearest setting is ctx: the context length" },
    { "rope_freq_base", LLAMA_CPP, KNOB_CTX,
      "qdyno takes RoPE's frequencies from the file. The nearest setting is ctx: the context length" },
    { "draft_model", LLAMA_CPP, KNOB_BATCH,
      "config lines have no key for speculative decoding. The nearest setting is batch: rows per forward pass" },
    { "speculative_config", VLLM, KNOB_BATCH,
      "config lines have no key for speculative decoding. The nearest setting is batch: rows per forward pass" },
};
const size_t KNOB_NAME_COUNT = COUNT_OF(KNOB_NAMES);

/* ---------------------------------------------------------------- comparing */

static bool is_separator(char c)
{
    return c == ' ' || c == '-' || c == '_';
}

/* Lower case, one '_' for separators, none in front: "--GPU layers" as "gpu_layers". */
static void name_plain(const char *text, char *out, size_t size)
{
    size_t n = 0;
    while (is_separator(*text)) text++;
    for (; *text && n + 1 < size; text++) {
        if (is_separator(*text) && n && out[n - 1] == '_') continue;
        out[n++] = is_separator(*text) ? '_' : (char)tolower((unsigned char)*text);
    }
    while (n && out[n - 1] == '_') n--;
    out[n] = '\0';
}

const struct knob_name *knob_name_find(const char *word)
{
    char plain[64];
    name_plain(word, plain, sizeof plain);
    if (str_starts(plain, "no_")) memmove(plain, plain + 3, strlen(plain + 3) + 1); /* --no-mmap */
    for (size_t i = 0; i < KNOB_NAME_COUNT; i++)
        if (!strcmp(plain, KNOB_NAMES[i].name)) return &KNOB_NAMES[i];
    return NULL;
}

bool knob_text_contains(const char *text, const char *wanted)
{
    char a[1024], b[64];
    name_plain(text, a, sizeof a);
    name_plain(wanted, b, sizeof b);
    return strstr(a, b) != NULL;
}

const char *knob_names_text(enum knob_id id, char *buf, size_t size)
{
    struct str s = { 0 };
    for (size_t i = 0; i < KNOB_NAME_COUNT; i++)
        if (KNOB_NAMES[i].knob == id && !KNOB_NAMES[i].instead)
            str_printf(&s, "%s%s", s.len ? " " : "", KNOB_NAMES[i].name);
    snprintf(buf, size, "%s", str_text(&s));
    str_free(&s);
    return buf;
}

size_t knob_absent_count(void)
{
    size_t n = 0;
    for (size_t i = 0; i < KNOB_NAME_COUNT; i++) n += KNOB_NAMES[i].instead != NULL;
    return n;
}

const struct knob_name *knob_absent(size_t index)
{
    for (size_t i = 0; i < KNOB_NAME_COUNT; i++)
        if (KNOB_NAMES[i].instead && !index--) return &KNOB_NAMES[i];
    return NULL;
}
