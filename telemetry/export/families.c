/* telemetry/export/families.c - the table of exported metric families, and the sink that writes them as text.
 *
 * A test checks that every row passes the rules of `promtool check metrics`: base units, _total for counters
 * and nothing else, no colons, no abbreviated units. Families have few labels with few values each. */
#include "telemetry/export/export.h"

#include <math.h>
#include <string.h>

#include "telemetry/metrics/metrics.h"

const char *const FAMILY_SECTION_TITLES[FAMILY_SECTIONS] = {
    [FAMILIES_ABOUT] = "The program, the machine and the models",
    [FAMILIES_MACHINE] = "The machine at present",
    [FAMILIES_GPU] = "Each GPU at present",
    [FAMILIES_PROCESS] = "The exporting process",
    [FAMILIES_REQUESTS] = "Everything measured so far",
    [FAMILIES_OUTCOME] = "The outcome of an experiment",
    [FAMILIES_WATCH] = "The state of an unattended watch",
    [FAMILIES_SERVE] = "The requests of a server (`qdyno serve`)",
};

const char *const FAMILY_TYPE_NAMES[] = {
    [FAMILY_GAUGE] = "gauge", [FAMILY_COUNTER] = "counter", [FAMILY_HISTOGRAM] = "histogram"
};

/* ---------------------------------------------------------------- bucket edges, in seconds */

#define EDGES(...)                                                                                           \
    {                                                                                                        \
        sizeof((double[]){ __VA_ARGS__ }) / sizeof(double),                                                  \
        {                                                                                                    \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }
/* the bounds of OpenTelemetry and vLLM, 0.001 to 2560, with additional ones below 10 ms */
const struct histogram_edges EDGES_FIRST_TOKEN = EDGES(0.0005, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006,
                                                       0.008, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                                                       0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560);
/* vLLM's bounds for inter-token latency, which include OpenTelemetry's for time per output token */
const struct histogram_edges EDGES_TOKEN = EDGES(0.0005, 0.001, 0.002, 0.003, 0.004, 0.006, 0.008, 0.01,
                                                 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1,
                                                 2.5, 5, 7.5, 10, 20, 40, 80);
/* OpenTelemetry's bounds for request duration (up to 81.92), continued by doubling for slow CPU inference */
const struct histogram_edges EDGES_REQUEST = EDGES(
    0.0005, 0.001, 0.002, 0.003, 0.004, 0.006, 0.008, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56,
    5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68, 655.36, 1310.72, 2621.44);

/* ---------------------------------------------------------------- the table */

#define SENSOR(METRIC, NAME)                                                                                 \
    [FAMILY_SENSOR_FIRST + METRIC_##                                                                         \
        METRIC] = { .name = NAME, .section = FAMILIES_MACHINE, .type = FAMILY_GAUGE, .labels = "" }
#define REQUEST_LABELS "model workload"
#define AB_LABELS      "metric workload"

/* clang-format off */
const struct family FAMILIES[FAMILY_COUNT] = {
    [FAMILY_BUILD_INFO] = { .name = "qdyno_build_info", .section = FAMILIES_ABOUT, .type = FAMILY_GAUGE,
        .labels = "version commit compiler simd", .unit = "", .help = "1; the labels describe the program" },
    [FAMILY_HOST_INFO] = { .name = "qdyno_host_info", .section = FAMILIES_ABOUT, .type = FAMILY_GAUGE,
        .labels = "host cpu gpu driver kernel governor", .unit = "",
        .help = "1; the labels describe the machine" },
    [FAMILY_GPU_INFO] = { .name = "qdyno_gpu_info", .section = FAMILIES_ABOUT, .type = FAMILY_GAUGE,
        .labels = "device vendor name uuid bus", .unit = "", .help = "1; the labels describe each GPU",
        .dcgm = "DCGM_FI_DEV_NAME, DCGM_FI_DEV_UUID" },
    [FAMILY_MODEL_INFO] = { .name = "qdyno_model_info", .section = FAMILIES_ABOUT, .type = FAMILY_GAUGE,
        .labels = "arm model arch quant quantization recipe sha256_8", .unit = "",
        .help = "1; the labels describe the model of each arm", .vllm = "vllm:cache_config_info" },

    SENSOR(CPU_BUSY, "qdyno_cpu_busy_ratio"),
    SENSOR(CPU_STEAL, "qdyno_cpu_steal_ratio"),
    SENSOR(CPU_FREQUENCY, "qdyno_cpu_frequency_hertz"),
    SENSOR(CPU_TEMPERATURE, "qdyno_cpu_temperature_celsius"),
    SENSOR(CPU_THROTTLE, "qdyno_cpu_throttle_events_per_second"),
    SENSOR(CPU_CSTATE, "qdyno_cpu_cstate_ratio"),
    SENSOR(CPU_DEEPEST_CSTATE, "qdyno_cpu_deepest_cstate_ratio"),
    SENSOR(CPU_CYCLES, "qdyno_cpu_cycles_per_second"),
    SENSOR(CPU_INSTRUCTIONS, "qdyno_cpu_instructions_per_second"),
    SENSOR(CPU_LLC_MISSES, "qdyno_cpu_llc_misses_per_second"),
    SENSOR(CPU_POWER, "qdyno_cpu_power_watts"),
    SENSOR(CORES_POWER, "qdyno_cpu_cores_power_watts"),
    SENSOR(UNCORE_POWER, "qdyno_cpu_uncore_power_watts"),
    SENSOR(DRAM_POWER, "qdyno_dram_power_watts"),
    SENSOR(SYSTEM_POWER, "qdyno_system_power_watts"),
    SENSOR(MEM_TOTAL, "qdyno_mem_total_bytes"),
    SENSOR(MEM_USED, "qdyno_mem_used_bytes"),
    SENSOR(MEM_AVAILABLE, "qdyno_mem_available_bytes"),
    SENSOR(MEM_PAGE_CACHE, "qdyno_mem_page_cache_bytes"),
    SENSOR(MEM_DIRTY, "qdyno_mem_dirty_bytes"),
    SENSOR(MEM_THP, "qdyno_mem_thp_bytes"),
    SENSOR(HUGEPAGES_TOTAL, "qdyno_hugepages_total_bytes"),
    SENSOR(HUGEPAGES_FREE, "qdyno_hugepages_free_bytes"),
    SENSOR(MEM_READ, "qdyno_mem_read_bytes_per_second"),
    SENSOR(MEM_WRITE, "qdyno_mem_write_bytes_per_second"),
    SENSOR(MEM_MAJOR_FAULTS, "qdyno_mem_major_faults_per_second"),
    SENSOR(MEM_MINOR_FAULTS, "qdyno_mem_minor_faults_per_second"),
    SENSOR(NUMA_HIT, "qdyno_numa_hit_ratio"),
    SENSOR(NUMA_MISSES, "qdyno_numa_misses_per_second"),
    SENSOR(SWAP_TOTAL, "qdyno_swap_total_bytes"),
    SENSOR(SWAP_USED, "qdyno_swap_used_bytes"),
    SENSOR(SWAP_IN, "qdyno_swap_in_bytes_per_second"),
    SENSOR(SWAP_OUT, "qdyno_swap_out_bytes_per_second"),
    SENSOR(DISK_READ, "qdyno_disk_read_bytes_per_second"),
    SENSOR(DISK_WRITE, "qdyno_disk_write_bytes_per_second"),
    SENSOR(DISK_BUSY, "qdyno_disk_busy_ratio"),
    SENSOR(PSI_CPU, "qdyno_psi_cpu_ratio"),
    SENSOR(PSI_MEMORY, "qdyno_psi_memory_ratio"),
    SENSOR(PSI_IO, "qdyno_psi_io_ratio"),
    SENSOR(CGROUP_MEM_USED, "qdyno_cgroup_mem_used_bytes"),
    SENSOR(CGROUP_MEM_LIMIT, "qdyno_cgroup_mem_limit_bytes"),
    SENSOR(CGROUP_CPU, "qdyno_cgroup_cpu_ratio"),
    SENSOR(CGROUP_CPU_LIMIT, "qdyno_cgroup_cpu_limit_ratio"),
    SENSOR(CGROUP_THROTTLED, "qdyno_cgroup_throttled_ratio"),
    SENSOR(CGROUP_THROTTLED_TIME, "qdyno_cgroup_throttled_time_ratio"),
    SENSOR(CGROUP_OTHERS, "qdyno_cgroup_others_ratio"),
    SENSOR(PROC_RSS, "qdyno_proc_rss_bytes"),
    SENSOR(PROC_CPU, "qdyno_proc_cpu_ratio"),
    SENSOR(PROC_MAJOR_FAULTS, "qdyno_proc_major_faults_per_second"),
    SENSOR(PROC_MINOR_FAULTS, "qdyno_proc_minor_faults_per_second"),
    SENSOR(PROC_VOLUNTARY_SWITCHES, "qdyno_proc_voluntary_switches_per_second"),
    SENSOR(PROC_INVOLUNTARY_SWITCHES, "qdyno_proc_involuntary_switches_per_second"),
    SENSOR(PROC_READ, "qdyno_proc_read_bytes_per_second"),
    SENSOR(PROC_WRITE, "qdyno_proc_write_bytes_per_second"),
    SENSOR(PROC_CYCLES, "qdyno_proc_cycles_per_second"),
    SENSOR(PROC_INSTRUCTIONS, "qdyno_proc_instructions_per_second"),
    SENSOR(PROC_LLC_MISSES, "qdyno_proc_llc_misses_per_second"),
    SENSOR(OTHERS_BUSY, "qdyno_others_busy_ratio"),
    SENSOR(ON_BATTERY, "qdyno_on_battery"),
    [FAMILY_CPU_ENERGY] = { .name = "qdyno_cpu_energy_joules_total", .section = FAMILIES_MACHINE,
        .type = FAMILY_COUNTER, .labels = "domain", .unit = "joules",
        .help = "energy used by each RAPL domain; rate() of it is power" },
    [FAMILY_SAMPLER_COST] = { .name = "qdyno_sampler_cpu_ratio", .section = FAMILIES_MACHINE,
        .type = FAMILY_GAUGE, .labels = "", .unit = "ratio",
        .help = "what reading the sensors costs, 1 = one processor" },
    [FAMILY_SAMPLER_MISSED] = { .name = "qdyno_sampler_missed_ticks_total", .section = FAMILIES_MACHINE,
        .type = FAMILY_COUNTER, .labels = "", .unit = "",
        .help = "readings of the sensors that were left out because the machine was too busy" },

    [FAMILY_GPU_UTILIZATION] = { .name = "qdyno_gpu_utilization_ratio", .section = FAMILIES_GPU,
        .type = FAMILY_GAUGE, .labels = "device", .unit = "ratio",
        .help = "share of time in which a kernel ran", .otel = "hw.gpu.utilization",
        .dcgm = "DCGM_FI_DEV_GPU_UTIL (%)" },
    [FAMILY_GPU_MEMORY_BUSY] = { .name = "qdyno_gpu_memory_busy_ratio", .section = FAMILIES_GPU,
        .type = FAMILY_GAUGE, .labels = "device", .unit = "ratio",
        .help = "share of time in which its memory was read or written",
        .dcgm = "DCGM_FI_DEV_MEM_COPY_UTIL (%)" },
    [FAMILY_GPU_MEMORY_USED] = { .name = "qdyno_gpu_memory_used_bytes", .section = FAMILIES_GPU,
        .type = FAMILY_GAUGE, .labels = "device", .unit = "bytes", .help = "memory in use on the GPU",
        .otel = "hw.gpu.memory.usage", .dcgm = "DCGM_FI_DEV_FB_USED (MiB)" },
    [FAMILY_GPU_MEMORY_TOTAL] = { .name = "qdyno_gpu_memory_total_bytes", .section = FAMILIES_GPU,
        .type = FAMILY_GAUGE, .labels = "device", .unit = "bytes", .help = "memory of the GPU",
        .otel = "hw.gpu.memory.limit", .dcgm = "DCGM_FI_DEV_FB_TOTAL (MiB)" },
    [FAMILY_GPU_ENERGY] = { .name = "qdyno_gpu_energy_joules_total", .section = FAMILIES_GPU,
        .type = FAMILY_COUNTER, .labels = "device", .unit = "joules",
        .help = "energy used by the GPU; rate() of it is power",
        .dcgm = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION (mJ)" },
    [FAMILY_GPU_POWER] = { .name = "qdyno_gpu_power_watts", .section = FAMILIES_GPU, .type = FAMILY_GAUGE,
        .labels = "device", .unit = "watts", .help = "power of the GPU, as its vendor's tool shows it",
        .dcgm = "DCGM_FI_DEV_POWER_USAGE (W)" },
    [FAMILY_GPU_POWER_LIMIT] = { .name = "qdyno_gpu_power_limit_watts", .section = FAMILIES_GPU,
        .type = FAMILY_GAUGE, .labels = "device", .unit = "watts", .help = "power the GPU may use",
        .dcgm = "DCGM_FI_DEV_POWER_MGMT_LIMIT (W)" },
    [FAMILY_GPU_TEMPERATURE] = { .name = "qdyno_gpu_temperature_celsius", .section = FAMILIES_GPU,
        .type = FAMILY_GAUGE, .labels = "device sensor", .unit = "celsius",
        .help = "temperature: gpu, hotspot or memory",
        .dcgm = "DCGM_FI_DEV_GPU_TEMP, DCGM_FI_DEV_MEMORY_TEMP" },
    [FAMILY_GPU_CLOCK] = { .name = "qdyno_gpu_clock_hertz", .section = FAMILIES_GPU, .type = FAMILY_GAUGE,
        .labels = "device domain", .unit = "hertz", .help = "current clock: core or memory",
        .dcgm = "DCGM_FI_DEV_SM_CLOCK, DCGM_FI_DEV_MEM_CLOCK (MHz)" },
    [FAMILY_GPU_FAN] = { .name = "qdyno_gpu_fan_ratio", .section = FAMILIES_GPU, .type = FAMILY_GAUGE,
        .labels = "device", .unit = "ratio", .help = "fan speed, 1 = full speed",
        .dcgm = "DCGM_FI_DEV_FAN_SPEED (%)" },
    [FAMILY_GPU_THROTTLE] = { .name = "qdyno_gpu_throttle_seconds_total", .section = FAMILIES_GPU,
        .type = FAMILY_COUNTER, .labels = "device reason", .unit = "seconds",
        .help = "time with lowered clocks, by reason",
        .dcgm = "DCGM_FI_DEV_POWER_VIOLATION, DCGM_FI_DEV_THERMAL_VIOLATION (ns)" },
    [FAMILY_GPU_ECC_ERRORS] = { .name = "qdyno_gpu_ecc_errors_total", .section = FAMILIES_GPU,
        .type = FAMILY_COUNTER, .labels = "device kind", .unit = "",
        .help = "memory errors: corrected or uncorrected",
        .dcgm = "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL, DCGM_FI_DEV_ECC_DBE_VOL_TOTAL" },
    [FAMILY_GPU_PCIE] = { .name = "qdyno_gpu_pcie_bytes_per_second", .section = FAMILIES_GPU,
        .type = FAMILY_GAUGE, .labels = "device direction", .unit = "bytes/s",
        .help = "traffic on its bus: rx received by the GPU, tx sent by it",
        .dcgm = "DCGM_FI_PROF_PCIE_RX_BYTES, DCGM_FI_PROF_PCIE_TX_BYTES" },
    [FAMILY_GPU_PROCESSES] = { .name = "qdyno_gpu_processes", .section = FAMILIES_GPU, .type = FAMILY_GAUGE,
        .labels = "device", .unit = "", .help = "processes that use the GPU" },
    [FAMILY_GPU_LOST] = { .name = "qdyno_gpu_lost", .section = FAMILIES_GPU, .type = FAMILY_GAUGE,
        .labels = "device", .unit = "", .help = "1 when the GPU no longer answers on the bus" },

    [FAMILY_PROCESS_CPU] = { .name = "process_cpu_seconds_total", .section = FAMILIES_PROCESS,
        .type = FAMILY_COUNTER, .labels = "", .unit = "seconds", .help = "processor time used",
        .otel = "process.cpu.time" },
    [FAMILY_PROCESS_START] = { .name = "process_start_time_seconds", .section = FAMILIES_PROCESS,
        .type = FAMILY_GAUGE, .labels = "", .unit = "seconds", .help = "when it started, Unix time" },
    [FAMILY_PROCESS_RESIDENT] = { .name = "process_resident_memory_bytes", .section = FAMILIES_PROCESS,
        .type = FAMILY_GAUGE, .labels = "", .unit = "bytes", .help = "resident memory",
        .otel = "process.memory.usage" },
    [FAMILY_PROCESS_VIRTUAL] = { .name = "process_virtual_memory_bytes", .section = FAMILIES_PROCESS,
        .type = FAMILY_GAUGE, .labels = "", .unit = "bytes", .help = "virtual memory",
        .otel = "process.memory.virtual" },
    [FAMILY_PROCESS_MAJOR_FAULTS] = { .name = "process_major_page_faults_total", .section = FAMILIES_PROCESS,
        .type = FAMILY_COUNTER, .labels = "", .unit = "", .help = "page faults that read from disk",
        .otel = "process.paging.faults" },
    [FAMILY_PROCESS_THREADS] = { .name = "process_threads", .section = FAMILIES_PROCESS, .type = FAMILY_GAUGE,
        .labels = "", .unit = "", .help = "threads", .otel = "process.thread.count" },
    [FAMILY_PROCESS_OPEN_FDS] = { .name = "process_open_fds", .section = FAMILIES_PROCESS,
        .type = FAMILY_GAUGE, .labels = "", .unit = "", .help = "open file descriptors",
        .otel = "process.unix.file_descriptor.count" },
    [FAMILY_PROCESS_MAX_FDS] = { .name = "process_max_fds", .section = FAMILIES_PROCESS, .type = FAMILY_GAUGE,
        .labels = "", .unit = "", .help = "file descriptors it may have open" },

    [FAMILY_DATABASE_UP] = { .name = "qdyno_database_up", .section = FAMILIES_REQUESTS, .type = FAMILY_GAUGE,
        .labels = "", .unit = "",
        .help = "1 when the database answered this scrape; 0 when the values of an earlier scrape are repeated" },
    [FAMILY_RUNS] = { .name = "qdyno_database_runs", .section = FAMILIES_REQUESTS, .type = FAMILY_GAUGE,
        .labels = "kind state", .unit = "",
        .help = "runs in the database: ab, bench ...; done, failed, stopped, interrupted or running" },
    [FAMILY_CELLS] = { .name = "qdyno_database_cells", .section = FAMILIES_REQUESTS, .type = FAMILY_GAUGE,
        .labels = "result", .unit = "",
        .help = "timed cells: kept, discarded (the machine was disturbed) or failed" },
    [FAMILY_PROMPT_TOKENS] = { .name = "qdyno_prompt_tokens_total", .section = FAMILIES_REQUESTS,
        .type = FAMILY_COUNTER, .labels = REQUEST_LABELS, .unit = "", .help = "prompt tokens processed",
        .otel = "gen_ai.client.token.usage (input)", .vllm = "vllm:prompt_tokens_total",
        .llama_server = "llamacpp:prompt_tokens_total" },
    [FAMILY_PROMPT_SECONDS] = { .name = "qdyno_prompt_seconds_total", .section = FAMILIES_REQUESTS,
        .type = FAMILY_COUNTER, .labels = REQUEST_LABELS, .unit = "seconds",
        .help = "time spent processing prompt tokens", .llama_server = "llamacpp:prompt_seconds_total" },
    [FAMILY_GENERATED_TOKENS] = { .name = "qdyno_generated_tokens_total", .section = FAMILIES_REQUESTS,
        .type = FAMILY_COUNTER, .labels = REQUEST_LABELS, .unit = "", .help = "tokens generated",
        .otel = "gen_ai.client.token.usage (output)", .vllm = "vllm:generation_tokens_total",
        .llama_server = "llamacpp:tokens_predicted_total" },
    [FAMILY_GENERATE_SECONDS] = { .name = "qdyno_generate_seconds_total", .section = FAMILIES_REQUESTS,
        .type = FAMILY_COUNTER, .labels = REQUEST_LABELS, .unit = "seconds",
        .help = "time spent generating tokens", .llama_server = "llamacpp:tokens_predicted_seconds_total" },
    [FAMILY_TIME_TO_FIRST_TOKEN] = { .name = "qdyno_time_to_first_token_seconds",
        .section = FAMILIES_REQUESTS, .type = FAMILY_HISTOGRAM, .labels = REQUEST_LABELS, .unit = "seconds",
        .help = "from the request to its first token", .otel = "gen_ai.server.time_to_first_token",
        .vllm = "vllm:time_to_first_token_seconds", .edges = &EDGES_FIRST_TOKEN },
    [FAMILY_INTER_TOKEN_LATENCY] = { .name = "qdyno_inter_token_latency_seconds",
        .section = FAMILIES_REQUESTS, .type = FAMILY_HISTOGRAM, .labels = REQUEST_LABELS, .unit = "seconds",
        .help = "from one token of a request to the next", .otel = "gen_ai.server.inter_token_latency",
        .vllm = "vllm:inter_token_latency_seconds", .edges = &EDGES_TOKEN },
    [FAMILY_TIME_PER_OUTPUT_TOKEN] = { .name = "qdyno_request_time_per_output_token_seconds",
        .section = FAMILIES_REQUESTS, .type = FAMILY_HISTOGRAM, .labels = REQUEST_LABELS, .unit = "seconds",
        .help = "mean time between the tokens of one request", .otel = "gen_ai.server.time_per_output_token",
        .vllm = "vllm:request_time_per_output_token_seconds", .edges = &EDGES_TOKEN },
    [FAMILY_REQUEST_DURATION] = { .name = "qdyno_request_duration_seconds", .section = FAMILIES_REQUESTS,
        .type = FAMILY_HISTOGRAM, .labels = REQUEST_LABELS, .unit = "seconds",
        .help = "from the request to its last token", .otel = "gen_ai.server.request.duration",
        .vllm = "vllm:e2e_request_latency_seconds", .edges = &EDGES_REQUEST },
    [FAMILY_PREFILL_SECONDS] = { .name = "qdyno_prefill_seconds", .section = FAMILIES_REQUESTS,
        .type = FAMILY_HISTOGRAM, .labels = REQUEST_LABELS, .unit = "seconds",
        .help = "time a request spent in prefill", .vllm = "vllm:request_prefill_time_seconds",
        .edges = &EDGES_REQUEST },
    [FAMILY_DECODE_SECONDS] = { .name = "qdyno_decode_seconds", .section = FAMILIES_REQUESTS,
        .type = FAMILY_HISTOGRAM, .labels = REQUEST_LABELS, .unit = "seconds",
        .help = "time a request spent decoding", .vllm = "vllm:request_decode_time_seconds",
        .edges = &EDGES_REQUEST },
    [FAMILY_CANARY_READ] = { .name = "qdyno_canary_read_bytes_per_second", .section = FAMILIES_REQUESTS,
        .type = FAMILY_GAUGE, .labels = "", .unit = "bytes/s",
        .help = "memory read rate of the latest canary (fixed reference workload)" },
    [FAMILY_CANARY_OPS] = { .name = "qdyno_canary_operations_per_second", .section = FAMILIES_REQUESTS,
        .type = FAMILY_GAUGE, .labels = "", .unit = "1/s",
        .help = "arithmetic rate of the latest canary (fixed reference workload)" },
    [FAMILY_CANARY_TIME] = { .name = "qdyno_canary_timestamp_seconds", .section = FAMILIES_REQUESTS,
        .type = FAMILY_GAUGE, .labels = "", .unit = "seconds",
        .help = "when the latest canary ran, Unix time" },
    [FAMILY_DAY_ERRORS] = { .name = "qdyno_day_errors_ratio", .section = FAMILIES_REQUESTS,
        .type = FAMILY_GAUGE, .labels = "of", .unit = "ratio",
        .help = "share of the runs and cells of the last 24 hours that failed" },
    [FAMILY_DAY_LATENCY] = { .name = "qdyno_day_latency_seconds", .section = FAMILIES_REQUESTS,
        .type = FAMILY_GAUGE, .labels = "latency stat", .unit = "seconds",
        .help = "p50, p95, p99 and max of the latencies of the last 24 hours, from every stored value" },
    [FAMILY_DAY_MOST_AT_ONCE] = { .name = "qdyno_day_most_at_once", .section = FAMILIES_REQUESTS,
        .type = FAMILY_GAUGE, .labels = "of", .unit = "",
        .help = "most runs, cells and requests at once in the last 24 hours" },
    [FAMILY_DAY_BUSIEST_HOUR] = { .name = "qdyno_day_busiest_hour_timestamp_seconds",
        .section = FAMILIES_REQUESTS, .type = FAMILY_GAUGE, .labels = "", .unit = "seconds",
        .help = "start of the hour of the last 24 in which cells ran longest, Unix time" },

    [FAMILY_AB_EFFECT] = { .name = "qdyno_ab_effect_ratio", .section = FAMILIES_OUTCOME, .type = FAMILY_GAUGE,
        .labels = AB_LABELS, .unit = "ratio",
        .help = "B divided by A (of several arms: the best one); for times, less than 1 is faster" },
    [FAMILY_AB_EFFECT_LOWER] = { .name = "qdyno_ab_effect_lower_ratio", .section = FAMILIES_OUTCOME,
        .type = FAMILY_GAUGE, .labels = AB_LABELS, .unit = "ratio",
        .help = "lower bound of the effect's confidence interval" },
    [FAMILY_AB_EFFECT_UPPER] = { .name = "qdyno_ab_effect_upper_ratio", .section = FAMILIES_OUTCOME,
        .type = FAMILY_GAUGE, .labels = AB_LABELS, .unit = "ratio",
        .help = "upper bound of the effect's confidence interval" },
    [FAMILY_AB_CONFIDENCE] = { .name = "qdyno_ab_confidence_ratio", .section = FAMILIES_OUTCOME,
        .type = FAMILY_GAUGE, .labels = AB_LABELS, .unit = "ratio",
        .help = "confidence of the effect's interval: 0.95" },
    [FAMILY_AB_BLOCKS] = { .name = "qdyno_ab_blocks", .section = FAMILIES_OUTCOME, .type = FAMILY_GAUGE,
        .labels = AB_LABELS, .unit = "", .help = "blocks of four cells that count" },
    [FAMILY_AB_DISCARDED] = { .name = "qdyno_ab_discarded_blocks", .section = FAMILIES_OUTCOME,
        .type = FAMILY_GAUGE, .labels = AB_LABELS, .unit = "",
        .help = "blocks discarded because the machine was disturbed" },
    [FAMILY_AB_NOISE_FLOOR] = { .name = "qdyno_ab_noise_floor_ratio", .section = FAMILIES_OUTCOME,
        .type = FAMILY_GAUGE, .labels = AB_LABELS, .unit = "ratio",
        .help = "half width of the confidence interval of A compared with itself" },
    [FAMILY_AB_VERDICT] = { .name = "qdyno_ab_verdict", .section = FAMILIES_OUTCOME, .type = FAMILY_GAUGE,
        .labels = AB_LABELS " verdict", .unit = "",
        .help = "1 for the verdict on B seen from A, 0 for the others: better, worse, equivalent, negligible, "
        "inconclusive, invalid" },
    [FAMILY_AB_KL_DIVERGENCE] = { .name = "qdyno_ab_kl_divergence_nats", .section = FAMILIES_OUTCOME,
        .type = FAMILY_GAUGE, .labels = AB_LABELS " stat", .unit = "",
        .help = "KL divergence of B's predictions from A's, if measured: mean, p99" },
    [FAMILY_AB_JOULES_PER_TOKEN] = { .name = "qdyno_ab_joules_per_token", .section = FAMILIES_OUTCOME,
        .type = FAMILY_GAUGE, .labels = AB_LABELS " arm", .unit = "joules",
        .help = "energy of the processors per token, idle included" },
    [FAMILY_AB_JOULES_HALF] = { .name = "qdyno_ab_energy_half_width_joules_per_token",
        .section = FAMILIES_OUTCOME, .type = FAMILY_GAUGE, .labels = AB_LABELS " arm", .unit = "joules",
        .help = "half width of the 95 % interval of that energy" },
    [FAMILY_AB_CO2] = { .name = "qdyno_ab_co2_grams_per_token", .section = FAMILIES_OUTCOME,
        .type = FAMILY_GAUGE, .labels = AB_LABELS " arm", .unit = "grams",
        .help = "CO2 of that energy, where grid_gco2_per_kwh is set" },
    [FAMILY_AB_PREFILL_RATE] = { .name = "qdyno_ab_prefill_tokens_per_second", .section = FAMILIES_OUTCOME,
        .type = FAMILY_GAUGE, .labels = AB_LABELS " arm", .unit = "tokens/s",
        .help = "prompt tokens processed a second" },
    [FAMILY_AB_DECODE_RATE] = { .name = "qdyno_ab_decode_tokens_per_second", .section = FAMILIES_OUTCOME,
        .type = FAMILY_GAUGE, .labels = AB_LABELS " arm", .unit = "tokens/s",
        .help = "tokens generated a second" },
    [FAMILY_AB_TIME_TO_FIRST_TOKEN] = { .name = "qdyno_ab_time_to_first_token_seconds",
        .section = FAMILIES_OUTCOME, .type = FAMILY_GAUGE, .labels = AB_LABELS " arm", .unit = "seconds",
        .help = "time to the first token" },
    [FAMILY_AB_PEAK_MEMORY] = { .name = "qdyno_ab_peak_memory_bytes", .section = FAMILIES_OUTCOME,
        .type = FAMILY_GAUGE, .labels = AB_LABELS " arm", .unit = "bytes",
        .help = "highest resident memory of the arm" },
    [FAMILY_EXPERIMENT_LAST_RUN] = { .name = "qdyno_experiment_last_run_timestamp_seconds",
        .section = FAMILIES_OUTCOME, .type = FAMILY_GAUGE, .labels = "", .unit = "seconds",
        .help = "when the experiment last ended, Unix time" },
    [FAMILY_EXPERIMENT_LAST_SUCCESS] = { .name = "qdyno_experiment_last_success_timestamp_seconds",
        .section = FAMILIES_OUTCOME, .type = FAMILY_GAUGE, .labels = "", .unit = "seconds",
        .help = "when the experiment last ended with a verdict other than invalid, Unix time" },
    [FAMILY_EXPERIMENT_DURATION] = { .name = "qdyno_experiment_duration_seconds", .section = FAMILIES_OUTCOME,
        .type = FAMILY_GAUGE, .labels = "", .unit = "seconds", .help = "duration of the experiment" },
    [FAMILY_EXPERIMENT_INFO] = { .name = "qdyno_experiment_info", .section = FAMILIES_OUTCOME,
        .type = FAMILY_GAUGE, .labels = "run", .unit = "",
        .help = "1; the label is the run's number in qdyno history" },
    [FAMILY_RUN_LABEL_INFO] = { .name = "qdyno_run_label_info", .section = FAMILIES_OUTCOME,
        .type = FAMILY_GAUGE, .labels = "key value", .unit = "",
        .help = "1; one sample for each label of the run (--label)" },

    [FAMILY_WATCH_PERFORMANCE] = { .name = "qdyno_watch_performance_ratio", .section = FAMILIES_WATCH,
        .type = FAMILY_GAUGE, .labels = "subject", .unit = "ratio",
        .help = "last round of a watched workload divided by its baseline; less than 1 is worse" },
    [FAMILY_WATCH_CANARY] = { .name = "qdyno_watch_canary_ratio", .section = FAMILIES_WATCH,
        .type = FAMILY_GAUGE, .labels = "", .unit = "ratio",
        .help = "last speed of the canary divided by its usual speed here; less than 1 is slower" },
    [FAMILY_WATCH_ERRORS] = { .name = "qdyno_watch_errors_ratio", .section = FAMILIES_WATCH,
        .type = FAMILY_GAUGE, .labels = "", .unit = "ratio",
        .help = "share of the last 20 measurements that failed" },
    [FAMILY_WATCH_KL_DIVERGENCE] = { .name = "qdyno_watch_kl_divergence_nats", .section = FAMILIES_WATCH,
        .type = FAMILY_GAUGE, .labels = "subject", .unit = "",
        .help = "mean KL divergence of a watched config's predictions from its reference's, last round" },
    [FAMILY_WATCH_LAST_ROUND] = { .name = "qdyno_watch_last_round_timestamp_seconds",
        .section = FAMILIES_WATCH, .type = FAMILY_GAUGE, .labels = "", .unit = "seconds",
        .help = "when the last round ended, Unix time" },
    [FAMILY_WATCH_LAST_SUCCESS] = { .name = "qdyno_watch_last_success_timestamp_seconds",
        .section = FAMILIES_WATCH, .type = FAMILY_GAUGE, .labels = "", .unit = "seconds",
        .help = "when a measurement last succeeded, or the watch began, Unix time" },
    [FAMILY_WATCH_DISK_AVAILABLE] = { .name = "qdyno_watch_disk_available_bytes", .section = FAMILIES_WATCH,
        .type = FAMILY_GAUGE, .labels = "", .unit = "bytes",
        .help = "free disk space where the database is stored" },
    [FAMILY_WATCH_ALERT] = { .name = "qdyno_watch_alert_firing", .section = FAMILIES_WATCH,
        .type = FAMILY_GAUGE, .labels = "alert severity subject", .unit = "",
        .help = "1 for each firing alert" },
    [FAMILY_WATCH_NOTICES] = { .name = "qdyno_watch_notices_waiting", .section = FAMILIES_WATCH,
        .type = FAMILY_GAUGE, .labels = "", .unit = "",
        .help = "alert notices that have not been delivered yet" },

    [FAMILY_SERVE_REQUESTS] = { .name = "qdyno_serve_requests_total", .section = FAMILIES_SERVE, .type = FAMILY_COUNTER,
        .labels = "outcome", .unit = "",
        .help = "requests that ended: completed, cancelled (the client went away), refused (4xx), overloaded "
        "(429), stopped (503) or failed (500)",
        .vllm = "vllm:request_success_total" },
    [FAMILY_SERVE_GOODPUT] = { .name = "qdyno_serve_goodput_requests_total", .section = FAMILIES_SERVE,
        .type = FAMILY_COUNTER, .labels = "met", .unit = "",
        .help = "with --slo: completed and failed requests, by whether all limits were met (yes) or not (no)" },
    [FAMILY_SERVE_WAITING] = { .name = "qdyno_serve_requests_waiting", .section = FAMILIES_SERVE, .type = FAMILY_GAUGE,
        .labels = "", .unit = "",
        .help = "requests that wait for their first step",
        .vllm = "vllm:num_requests_waiting", .llama_server = "llamacpp:requests_deferred" },
    [FAMILY_SERVE_RUNNING] = { .name = "qdyno_serve_requests_running", .section = FAMILIES_SERVE, .type = FAMILY_GAUGE,
        .labels = "", .unit = "",
        .help = "requests that are being computed",
        .vllm = "vllm:num_requests_running", .llama_server = "llamacpp:requests_processing" },
    [FAMILY_SERVE_KV_BLOCKS] = { .name = "qdyno_serve_kv_blocks", .section = FAMILIES_SERVE, .type = FAMILY_GAUGE,
        .labels = "use", .unit = "",
        .help = "blocks of the KV cache: used by requests, cached (without a request, can be found by their "
        "content) or free",
        .vllm = "vllm:kv_cache_usage_perc (ratio)" },
    [FAMILY_SERVE_PROCESSES] = { .name = "qdyno_serve_processes", .section = FAMILIES_SERVE, .type = FAMILY_GAUGE,
        .labels = "", .unit = "",
        .help = "processes that answer requests" },
    [FAMILY_SERVE_PROCESS_CHANGES] = { .name = "qdyno_serve_process_changes_total", .section = FAMILIES_SERVE,
        .type = FAMILY_COUNTER, .labels = "direction", .unit = "",
        .help = "changes of the number of processes: one more (up), one less (down), or another one in place of one "
        "that ended unexpectedly (restart)" },
    [FAMILY_SERVE_PROMPT_TOKENS] = { .name = "qdyno_serve_prompt_tokens_total", .section = FAMILIES_SERVE, .type = FAMILY_COUNTER,
        .labels = "", .unit = "",
        .help = "prompt tokens of requests that have their first token, cached ones included",
        .vllm = "vllm:prompt_tokens_total", .llama_server = "llamacpp:prompt_tokens_total" },
    [FAMILY_SERVE_CACHED_TOKENS] = { .name = "qdyno_serve_cached_tokens_total", .section = FAMILIES_SERVE, .type = FAMILY_COUNTER,
        .labels = "", .unit = "",
        .help = "of these, tokens that the prefix cache had", .vllm = "vllm:prefix_cache_hits_total" },
    [FAMILY_SERVE_GENERATED_TOKENS] = { .name = "qdyno_serve_generated_tokens_total", .section = FAMILIES_SERVE, .type = FAMILY_COUNTER,
        .labels = "", .unit = "",
        .help = "tokens generated",
        .vllm = "vllm:generation_tokens_total", .llama_server = "llamacpp:tokens_predicted_total" },
    [FAMILY_SERVE_PREEMPTIONS] = { .name = "qdyno_serve_preemptions_total", .section = FAMILIES_SERVE, .type = FAMILY_COUNTER,
        .labels = "", .unit = "",
        .help = "times that a request lost its place in the KV cache to another one",
        .vllm = "vllm:num_preemptions_total" },
    [FAMILY_SERVE_STEPS] = { .name = "qdyno_serve_steps_total", .section = FAMILIES_SERVE, .type = FAMILY_COUNTER,
        .labels = "", .unit = "",
        .help = "steps of the scheduler that computed something", .llama_server = "llamacpp:n_decode_total" },
    [FAMILY_SERVE_ROWS] = { .name = "qdyno_serve_step_rows_total", .section = FAMILIES_SERVE, .type = FAMILY_COUNTER,
        .labels = "", .unit = "",
        .help = "rows (tokens) that these steps computed; divided by the steps: the mean batch" },
    [FAMILY_SERVE_BUSY] = { .name = "qdyno_serve_step_seconds_total", .section = FAMILIES_SERVE, .type = FAMILY_COUNTER,
        .labels = "", .unit = "seconds",
        .help = "time spent in these steps" },
    [FAMILY_SERVE_QUEUE_TIME] = { .name = "qdyno_serve_queue_seconds", .section = FAMILIES_SERVE, .type = FAMILY_HISTOGRAM,
        .labels = "", .unit = "seconds",
        .help = "from the arrival of a request to its first step",
        .vllm = "vllm:request_queue_time_seconds", .edges = &EDGES_REQUEST },
    [FAMILY_SERVE_FIRST_TOKEN] = { .name = "qdyno_serve_time_to_first_token_seconds", .section = FAMILIES_SERVE, .type = FAMILY_HISTOGRAM,
        .labels = "", .unit = "seconds",
        .help = "from the arrival of a request to its first token",
        .otel = "gen_ai.server.time_to_first_token (of a server)", .vllm = "vllm:time_to_first_token_seconds",
        .edges = &EDGES_FIRST_TOKEN },
    [FAMILY_SERVE_TOKEN] = { .name = "qdyno_serve_inter_token_latency_seconds", .section = FAMILIES_SERVE, .type = FAMILY_HISTOGRAM,
        .labels = "", .unit = "seconds",
        .help = "from one token of a request to the next",
        .otel = "gen_ai.server.inter_token_latency (of a server)", .vllm = "vllm:inter_token_latency_seconds",
        .edges = &EDGES_TOKEN },
    [FAMILY_SERVE_DURATION] = { .name = "qdyno_serve_request_duration_seconds", .section = FAMILIES_SERVE, .type = FAMILY_HISTOGRAM,
        .labels = "", .unit = "seconds",
        .help = "from the arrival of a completed request to its last token",
        .otel = "gen_ai.server.request.duration (of a server)", .vllm = "vllm:e2e_request_latency_seconds",
        .edges = &EDGES_REQUEST },
};
/* clang-format on */

enum family_id family_of_sensor(enum metric_id sensor)
{
    return (enum family_id)(FAMILY_SENSOR_FIRST + (int)sensor);
}

static const struct metric *sensor_of(enum family_id f)
{
    const int i = (int)f - (int)FAMILY_SENSOR_FIRST;
    return i >= 0 && i < METRIC_SENSOR_COUNT ? &METRICS[i] : NULL;
}

const char *family_unit(enum family_id f)
{
    const struct metric *m = sensor_of(f);
    return m ? m->unit : FAMILIES[f].unit;
}

const char *family_help(enum family_id f)
{
    const struct metric *m = sensor_of(f);
    return m ? m->help : FAMILIES[f].help;
}

void family_value(const struct family_sink *to, enum family_id f, const struct label *labels, int n,
                  double value)
{
    if (!isnan(value)) to->value(to->ctx, f, labels, n, value);
}

/* ---------------------------------------------------------------- sink for text */

static void exposition_open(struct exposition *e, enum family_id f)
{
    if (!strcmp(e->family, FAMILIES[f].name)) return;
    exposition_family(e, FAMILIES[f].name, FAMILIES[f].type, family_help(f));
}

static void exposition_value(void *ctx, enum family_id f, const struct label *labels, int n, double value)
{
    exposition_open(ctx, f);
    exposition_sample(ctx, labels, n, value);
}

static void exposition_counts(void *ctx, enum family_id f, const struct label *labels, int n,
                              const struct histogram_counts *h)
{
    exposition_open(ctx, f);
    exposition_histogram(ctx, labels, n, FAMILIES[f].edges, h);
}

struct family_sink exposition_sink(struct exposition *e)
{
    return (struct family_sink){ .ctx = e, .value = exposition_value, .histogram = exposition_counts };
}
