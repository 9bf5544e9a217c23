/* telemetry/metrics/metrics.c - the table of all metrics, with unit and sampling period.
 *
 * Scripts, the database, the dashboard and the exporters use these names, so they never change. A period is
 * at least as long as the sensor needs for a new value: reading faster would repeat values and count each
 * repeat as a sample. */
#include "telemetry/metrics/metrics.h"

#include <math.h>
#include <string.h>

/* clang-format off */
/* Sensors: id, name, unit, better, period and shortest period in ms, source, what is read, help. Cells: id, name, unit,
 * better, help, and the members that are not zero. */
#define SENSOR(ID, NAME, UNIT, BETTER, PERIOD, LEAST, SOURCE, READS, HELP)                                   \
    [METRIC_##ID] = { .name = NAME, .unit = UNIT, .kind = METRIC_SENSOR, .period_ms = PERIOD, .better = BETTER, .help = HELP, \
                      .least_ms = LEAST, .source = SOURCE, .reads = READS }
#define CELL(ID, NAME, UNIT, BETTER, ...)                                                                    \
    [METRIC_##ID] = { .name = NAME, .unit = UNIT, .kind = METRIC_CELL, .better = BETTER, .help = __VA_ARGS__ }

const struct metric METRICS[METRIC_COUNT] = {
    /* utilization and memory: they change within the time of a token batch, so they are read often */
    SENSOR(CPU_BUSY, "cpu_busy_ratio", "ratio", 0, 100, 10, "cpu_linux", "/proc/stat", "share of all processors' time spent working"),
    SENSOR(CPU_STEAL, "cpu_steal_ratio", "ratio", -1, 100, 10, "cpu_linux", "/proc/stat", "share of processor time the hypervisor gave to others"),
    /* the kernel reads its counters (APERF, MPERF) at clock ticks */
    SENSOR(CPU_FREQUENCY, "cpu_frequency_hertz", "hertz", +1, 1000, 20, "cpu_linux", "cpufreq, or cpuinfo where the processor measures it",
           "mean clock of the processors"),
    /* the coretemp driver reads the sensor at most once a second */
    SENSOR(CPU_TEMPERATURE, "cpu_temperature_celsius", "celsius", -1, 5000, 1000, "cpu_linux", "hwmon, or thermal zones", "hottest processor package"),
    SENSOR(CPU_THROTTLE, "cpu_throttle_events_s", "1/s", -1, 1000, 100, "cpu_linux", "thermal_throttle (Intel)",
           "times a second a processor slowed down for heat"),
    /* the kernel adds the time of a sleep when it ends */
    SENSOR(CPU_CSTATE, "cpu_cstate_ratio", "ratio", 0, 1000, 100, "cstate_linux", "cpuidle", "share of processor time asleep in a C-state"),
    SENSOR(CPU_DEEPEST_CSTATE, "cpu_deepest_cstate_ratio", "ratio", 0, 1000, 100, "cstate_linux", "cpuidle", "share of processor time in the deepest C-state"),
    SENSOR(CPU_CYCLES, "cpu_cycles_s", "1/s", 0, 1000, 10, "perf_linux", "perf_event_open, all processors", "clock cycles of all processors a second"),
    SENSOR(CPU_INSTRUCTIONS, "cpu_instructions_s", "1/s", 0, 1000, 10, "perf_linux", "perf_event_open, all processors",
           "instructions of all processors a second"),
    SENSOR(CPU_LLC_MISSES, "cpu_llc_misses_s", "1/s", -1, 1000, 10, "perf_linux", "perf_event_open, all processors",
           "accesses a second that missed the last-level cache"),
    /* RAPL updates its counter about every millisecond, so power over 20 ms is known to 5 % */
    SENSOR(CPU_POWER, "cpu_power_watts", "watts", -1, 1000, 20, "rapl_linux", "RAPL package", "power of all processor packages (RAPL)"),
    SENSOR(CORES_POWER, "cpu_cores_power_watts", "watts", -1, 1000, 20, "rapl_linux", "RAPL core", "power of the cores, part of the packages'"),
    SENSOR(UNCORE_POWER, "cpu_uncore_power_watts", "watts", -1, 1000, 20, "rapl_linux", "RAPL uncore", "power of the built-in graphics, part of the packages'"),
    SENSOR(DRAM_POWER, "dram_power_watts", "watts", -1, 1000, 20, "rapl_linux", "RAPL dram", "power of the memory, beside the packages'"),
    SENSOR(SYSTEM_POWER, "system_power_watts", "watts", -1, 1000, 20, "rapl_linux", "RAPL psys", "power of the whole platform"),
    SENSOR(MEM_TOTAL, "mem_total_bytes", "bytes", 0, 5000, 10, "memory_linux", "/proc/meminfo", "memory of the machine"),
    SENSOR(MEM_USED, "mem_used_bytes", "bytes", -1, 100, 10, "memory_linux", "/proc/meminfo", "memory not available to a new program"),
    SENSOR(MEM_AVAILABLE, "mem_available_bytes", "bytes", +1, 100, 10, "memory_linux", "/proc/meminfo", "memory a new program can have without swapping"),
    SENSOR(MEM_PAGE_CACHE, "mem_page_cache_bytes", "bytes", 0, 100, 10, "memory_linux", "/proc/meminfo", "file contents kept in memory"),
    SENSOR(MEM_DIRTY, "mem_dirty_bytes", "bytes", -1, 500, 10, "memory_linux", "/proc/meminfo", "file contents not yet written to disk"),
    SENSOR(MEM_THP, "mem_thp_bytes", "bytes", 0, 500, 10, "memory_linux", "/proc/meminfo", "memory of programs in transparent huge pages"),
    SENSOR(HUGEPAGES_TOTAL, "hugepages_total_bytes", "bytes", 0, 5000, 10, "memory_linux", "/proc/meminfo", "memory set aside as huge pages"),
    SENSOR(HUGEPAGES_FREE, "hugepages_free_bytes", "bytes", 0, 1000, 10, "memory_linux", "/proc/meminfo", "of the huge pages, those nobody uses"),
    SENSOR(MEM_READ, "mem_read_bytes_s", "bytes/s", 0, 1000, 10, "perf_linux", "uncore_imc or amd_umc counters", "bytes a second read over the memory bus"),
    SENSOR(MEM_WRITE, "mem_write_bytes_s", "bytes/s", 0, 1000, 10, "perf_linux", "uncore_imc or amd_umc counters",
           "bytes a second written over the memory bus"),
    SENSOR(MEM_MAJOR_FAULTS, "mem_major_faults_s", "1/s", -1, 1000, 10, "memory_linux", "/proc/vmstat", "page faults of all programs that read from disk"),
    SENSOR(MEM_MINOR_FAULTS, "mem_minor_faults_s", "1/s", -1, 1000, 10, "memory_linux", "/proc/vmstat", "page faults of all programs without disk"),
    SENSOR(NUMA_HIT, "numa_hit_ratio", "ratio", +1, 1000, 100, "memory_linux", "numastat of the nodes",
           "share of pages that came from the NUMA node they were wanted from"),
    SENSOR(NUMA_MISSES, "numa_misses_s", "1/s", -1, 1000, 100, "memory_linux", "numastat of the nodes",
           "pages a second that came from another NUMA node than wanted"),
    SENSOR(SWAP_TOTAL, "swap_total_bytes", "bytes", 0, 5000, 10, "memory_linux", "/proc/meminfo", "swap space"),
    SENSOR(SWAP_USED, "swap_used_bytes", "bytes", -1, 1000, 10, "memory_linux", "/proc/meminfo", "swap space in use"),
    SENSOR(SWAP_IN, "swap_in_bytes_s", "bytes/s", -1, 1000, 10, "memory_linux", "/proc/vmstat", "bytes read back from swap per second"),
    SENSOR(SWAP_OUT, "swap_out_bytes_s", "bytes/s", -1, 1000, 10, "memory_linux", "/proc/vmstat", "bytes written to swap per second"),
    SENSOR(DISK_READ, "disk_read_bytes_s", "bytes/s", 0, 500, 10, "disk_linux", "/proc/diskstats, whole disks", "bytes read from all disks per second"),
    SENSOR(DISK_WRITE, "disk_write_bytes_s", "bytes/s", 0, 500, 10, "disk_linux", "/proc/diskstats, whole disks", "bytes written to all disks per second"),
    SENSOR(DISK_BUSY, "disk_busy_ratio", "ratio", 0, 500, 50, "disk_linux", "/proc/diskstats, whole disks",
           "share of time the busiest disk had something to do"),
    SENSOR(PSI_CPU, "psi_cpu_ratio", "ratio", -1, 500, 10, "psi_linux", "/proc/pressure", "share of time some task waited for a processor"),
    SENSOR(PSI_MEMORY, "psi_memory_ratio", "ratio", -1, 500, 10, "psi_linux", "/proc/pressure", "share of time some task waited for memory"),
    SENSOR(PSI_IO, "psi_io_ratio", "ratio", -1, 500, 10, "psi_linux", "/proc/pressure", "share of time some task waited for input or output"),
    SENSOR(CGROUP_MEM_USED, "cgroup_mem_used_bytes", "bytes", -1, 500, 10, "cgroup_linux", "memory controller",
           "memory charged to the control group with the least room left"),
    SENSOR(CGROUP_MEM_LIMIT, "cgroup_mem_limit_bytes", "bytes", 0, 5000, 10, "cgroup_linux", "memory controller", "limit of that group"),
    SENSOR(CGROUP_CPU, "cgroup_cpu_ratio", "ratio", 0, 500, 50, "cgroup_linux", "cpu controller",
           "processor time of the control group with the smallest quota, or without any quota of this process's own group; 1 = one processor"),
    SENSOR(CGROUP_CPU_LIMIT, "cgroup_cpu_limit_ratio", "ratio", 0, 5000, 10, "cgroup_linux", "cpu controller", "quota of that group, 1 = one processor"),
    /* the kernel updates these counters once per quota period, 100 ms by default */
    SENSOR(CGROUP_THROTTLED, "cgroup_throttled_ratio", "ratio", -1, 1000, 100, "cgroup_linux", "cpu controller",
           "share of that group's quota periods in which it was stopped for the rest of the period"),
    SENSOR(CGROUP_THROTTLED_TIME, "cgroup_throttled_time_ratio", "ratio", -1, 1000, 100, "cgroup_linux", "cpu controller",
           "time that group's quota kept it from processors it wanted, 1 = one processor"),
    SENSOR(CGROUP_OTHERS, "cgroup_others_ratio", "ratio", -1, 500, 50, "cgroup_linux", "cpu controller less our own processes",
           "share of that group's quota used by other programs in it"),
    SENSOR(PROC_RSS, "proc_rss_bytes", "bytes", -1, 100, 10, "process_linux", "/proc/PID/stat", "resident memory of the watched process tree"),
    /* the kernel counts processor time in ticks of 10 ms; over 100 ms one tick would be 10 % */
    SENSOR(PROC_CPU, "proc_cpu_ratio", "ratio", 0, 500, 50, "process_linux", "/proc/PID/stat", "processor time of the watched process tree, 1 = one processor"),
    SENSOR(PROC_MAJOR_FAULTS, "proc_major_faults_s", "1/s", -1, 500, 10, "process_linux", "/proc/PID/stat",
           "page faults of the watched process tree that read from disk"),
    SENSOR(PROC_MINOR_FAULTS, "proc_minor_faults_s", "1/s", -1, 500, 10, "process_linux", "/proc/PID/stat",
           "page faults of the watched process tree without disk"),
    SENSOR(PROC_VOLUNTARY_SWITCHES, "proc_voluntary_switches_s", "1/s", 0, 1000, 50, "process_linux", "/proc/PID/task/TID/status",
           "times a second a watched thread waited"),
    SENSOR(PROC_INVOLUNTARY_SWITCHES, "proc_involuntary_switches_s", "1/s", -1, 1000, 50, "process_linux", "/proc/PID/task/TID/status",
           "times a second a watched thread was pushed off its processor"),
    SENSOR(PROC_READ, "proc_read_bytes_s", "bytes/s", 0, 500, 10, "process_linux", "/proc/PID/io",
           "bytes a second the watched process tree had fetched from storage"),
    SENSOR(PROC_WRITE, "proc_write_bytes_s", "bytes/s", 0, 500, 10, "process_linux", "/proc/PID/io", "bytes a second the watched process tree sent to storage"),
    SENSOR(PROC_CYCLES, "proc_cycles_s", "1/s", 0, 1000, 10, "perf_linux", "perf_event_open, user mode", "clock cycles of the watched process tree a second"),
    SENSOR(PROC_INSTRUCTIONS, "proc_instructions_s", "1/s", 0, 1000, 10, "perf_linux", "perf_event_open, user mode",
           "instructions of the watched process tree a second"),
    SENSOR(PROC_LLC_MISSES, "proc_llc_misses_s", "1/s", -1, 1000, 10, "perf_linux", "perf_event_open, user mode",
           "accesses a second of the watched process tree that missed the last-level cache"),
    SENSOR(OTHERS_BUSY, "others_busy_ratio", "ratio", -1, 500, 50, "process_linux", "/proc/stat less our own processes",
           "share of all processors' time used by other programs"),
    SENSOR(ON_BATTERY, "on_battery", "", -1, 5000, 1000, "battery_linux", "power_supply", "1 while running from the battery"),
    /* NVML averages utilization over 1/6 to 1 s; reading more often than every 200 ms repeats values */
    SENSOR(GPU_BUSY, "gpu_busy_ratio", "ratio", 0, 200, 170, "gpu", "NVML; amdgpu; i915, xe: time awake", "busiest GPU"),
    SENSOR(GPU_MEM_USED, "gpu_mem_used_bytes", "bytes", -1, 200, 50, "gpu", "NVML; amdgpu", "memory in use on all GPUs"),
    SENSOR(GPU_MEM_TOTAL, "gpu_mem_total_bytes", "bytes", 0, 5000, 50, "gpu", "NVML; amdgpu", "memory of all GPUs"),
    SENSOR(GPU_POWER, "gpu_power_watts", "watts", -1, 1000, 100, "gpu", "NVML; hwmon", "power of all GPUs"),
    SENSOR(GPU_TEMPERATURE, "gpu_temperature_celsius", "celsius", -1, 5000, 1000, "gpu", "NVML; hwmon", "hottest GPU"),
    SENSOR(GPU_CLOCK, "gpu_clock_hertz", "hertz", +1, 1000, 50, "gpu", "NVML; hwmon; i915, xe", "highest core clock of any GPU"),
    SENSOR(GPU_THROTTLE, "gpu_throttle_ratio", "ratio", -1, 1000, 50, "gpu", "NVML; amdgpu; i915, xe",
           "1 while any GPU holds its clocks down for heat or power"),
    /* Figures of cells. Columns print times in milliseconds. */
    CELL(PREFILL_RATE, "prefill_tok_s", "tokens/s", +1, "prompt tokens processed per second",
         .column = { .title = "prefill tok/s", .digits = 2 }, .traced = true),
    CELL(DECODE_RATE, "decode_tok_s", "tokens/s", +1, "tokens generated per second", .column = { .title = "decode tok/s", .digits = 2 }, .traced = true),
    CELL(TTFT, "ttft_s", "seconds", -1, "time to the first token", .column = { .title = "TTFT ms", .scale = 1e3, .digits = 2 }),
    CELL(ITL_P50, "itl_p50_s", "seconds", -1, "inter-token latency, median",
         .combine = COMBINE_POOLED_QUANTILE, .quantile = 0.50, .column = { .title = "ITL p50 ms", .scale = 1e3, .digits = 2 }, .traced = true),
    CELL(ITL_P95, "itl_p95_s", "seconds", -1, "inter-token latency, 95th percentile",
         .combine = COMBINE_POOLED_QUANTILE, .quantile = 0.95, .column = { .title = "p95 ms", .scale = 1e3, .digits = 2 }, .traced = true),
    CELL(ITL_P99, "itl_p99_s", "seconds", -1, "inter-token latency, 99th percentile",
         .combine = COMBINE_POOLED_QUANTILE, .quantile = 0.99, .column = { .title = "p99 ms", .scale = 1e3, .digits = 2 }, .traced = true),
    CELL(LOAD_TIME, "load_s", "seconds", -1, "time to load the model", .combine = COMBINE_LOADING),
    CELL(PEAK_MEMORY, "peak_rss_bytes", "bytes", -1, "highest resident memory of the worker",
         .combine = COMBINE_LARGEST, .column = { .title = "peak memory" }, .traced = true),
    CELL(ENERGY, "energy_j", "joules", -1, "energy used during the cell", .column = { .title = "energy J", .digits = 2 }, .traced = true),
    CELL(ENERGY_HALF, "energy_half_j", "joules", -1, "half width of the 95 % interval of energy_j",
         .combine = COMBINE_MEAN, .column = { .title = "+-", .digits = 2 }, .traced = true),
    CELL(CO2, "co2_g", "grams", -1, "CO2 of that energy by the setting grid_gco2_per_kwh; its relative uncertainty is that of the energy",
         .column = { .title = "CO2 mg", .scale = 1e3, .digits = 3 }, .traced = true),
    CELL(PERPLEXITY, "perplexity", "", -1, "perplexity of the evaluation text", .column = { .title = "perplexity", .digits = 4 }, .traced = true),
    CELL(KLD, "kld_mean", "", -1, "mean KL divergence from a reference's predictions over the evaluation text, in nats",
         .column = { .title = "KLD, nats", .digits = 6 }, .traced = true),
    CELL(LIMIT_SHARE_PREFILL, "prefill_limit_share", "ratio", +1, "prefill rate as a share of what the machine's arithmetic allows",
         .column = { .title = "prefill % of limit", .scale = 100 }),
    CELL(LIMIT_SHARE_DECODE, "decode_limit_share", "ratio", +1, "decode rate as a share of what the memory bandwidth allows",
         .column = { .title = "decode % of limit", .scale = 100 }),
    CELL(CANARY_READ, "canary_read_bytes_s", "bytes/s", +1, "memory read rate of the canary, the fixed workload measured at the start and end of every run",
         .traced = true),
    CELL(CANARY_OPS, "canary_ops_s", "1/s", +1, "arithmetic operations per second of the canary; a multiply-add counts as two", .traced = true),
    CELL(TRAIN_RATE, "train_tok_s", "tokens/s", +1, "tokens trained on per second", .column = { .title = "training tok/s", .digits = 1 }, .traced = true),
    CELL(TRAIN_LOSS, "train_loss", "", -1, "loss of the last training step, in nats per token", .column = { .title = "loss", .digits = 4 }, .traced = true),
    CELL(MEMORY_AFTER, "rss_after_bytes", "bytes", -1, "resident memory of the worker at the end of a cell; in training, between two steps"),
    CELL(SERVER_PREFILL_RATE, "server_prefill_tok_s", "tokens/s", +1, "another engine: prompt tokens processed per second by its own clock",
         .column = { .title = "server's prefill tok/s", .digits = 2 }),
    CELL(SERVER_DECODE_RATE, "server_decode_tok_s", "tokens/s", +1, "another engine: tokens generated per second by its own clock",
         .column = { .title = "server's decode tok/s", .digits = 2 }),
    CELL(CHUNK_GAP, "chunk_gap_s", "seconds", -1, "another engine: median time between two chunks of its stream, which need not be one token each",
         .column = { .title = "chunk gap ms", .scale = 1e3, .digits = 2 }),
    CELL(TOTAL_RATE, "total_tok_s", "tokens/s", +1, "prompt and generated tokens of all sequences together per second",
         .column = { .title = "all sequences tok/s", .digits = 2 }),
    CELL(SEQUENCE_RATE, "sequence_tok_s", "tokens/s", +1, "prompt and generated tokens of one sequence per second",
         .column = { .title = "per sequence tok/s", .digits = 2 }),
    CELL(TTFT_P50, "ttft_p50_s", "seconds", -1, "load: time to the first token, median of the requests in steady state"),
    CELL(TTFT_P95, "ttft_p95_s", "seconds", -1, "load: time to the first token, 95th percentile"),
    CELL(TTFT_P99, "ttft_p99_s", "seconds", -1, "load: time to the first token, 99th percentile",
         .column = { .title = "TTFT p99 ms", .scale = 1e3, .digits = 1 }),
    CELL(TTFT_SENT, "ttft_sent_s", "seconds", -1, "load: mean time to the first token counted from sending, not from the scheduled arrival"),
    CELL(TPOT, "tpot_s", "seconds", -1, "load: mean time per token of a request after its first", .column = { .title = "TPOT ms", .scale = 1e3, .digits = 2 }),
    CELL(TPOT_P50, "tpot_p50_s", "seconds", -1, "load: time per token of a request, median"),
    CELL(TPOT_P95, "tpot_p95_s", "seconds", -1, "load: time per token of a request, 95th percentile"),
    CELL(TPOT_P99, "tpot_p99_s", "seconds", -1, "load: time per token of a request, 99th percentile"),
    CELL(ITL_MAX, "itl_max_s", "seconds", -1, "load: longest gap between two tokens of any request",
         .combine = COMBINE_MEAN, .column = { .title = "longest gap ms", .scale = 1e3, .digits = 1 }),
    CELL(E2E, "e2e_s", "seconds", -1, "load: mean time from the scheduled arrival to the last token, of all requests of the run",
         .column = { .title = "e2e ms", .scale = 1e3, .digits = 1 }),
    CELL(E2E_P50, "e2e_p50_s", "seconds", -1, "load: time from the scheduled arrival to the last token, median"),
    CELL(E2E_P95, "e2e_p95_s", "seconds", -1, "load: time from the scheduled arrival to the last token, 95th percentile"),
    CELL(E2E_P99, "e2e_p99_s", "seconds", -1, "load: time from the scheduled arrival to the last token, 99th percentile",
         .column = { .title = "e2e p99 ms", .scale = 1e3, .digits = 1 }),
    CELL(QUEUE, "queue_s", "seconds", -1, "load: mean time from the scheduled arrival to the first step that computes some of the prompt",
         .combine = COMBINE_MEAN, .column = { .title = "queue ms", .scale = 1e3, .digits = 1 }),
    CELL(QUEUE_P50, "queue_p50_s", "seconds", -1, "load: time in the queue, median", .combine = COMBINE_MEAN),
    CELL(QUEUE_P95, "queue_p95_s", "seconds", -1, "load: time in the queue, 95th percentile", .combine = COMBINE_MEAN),
    CELL(QUEUE_P99, "queue_p99_s", "seconds", -1, "load: time in the queue, 99th percentile", .combine = COMBINE_MEAN),
    CELL(REQUEST_RATE, "requests_s", "1/s", +1, "load: requests completed per second, over the whole run", .column = { .title = "requests/s", .digits = 3 }),
    CELL(IN_RATE, "in_tok_s", "tokens/s", +1, "load: prompt tokens of completed requests per second, over the whole run",
         .column = { .title = "tok/s in", .digits = 1 }),
    CELL(OUT_RATE, "out_tok_s", "tokens/s", +1, "load: tokens generated per second, over the whole run", .column = { .title = "tok/s out", .digits = 1 }),
    CELL(BATCH, "batch_mean", "", +1, "load: requests in a step, mean over steps", .column = { .title = "batch", .digits = 2 }),
    CELL(KV_USE, "kv_use_ratio", "ratio", -1, "load: share of the KV cache that requests used, mean over the run",
         .combine = COMBINE_MEAN, .column = { .title = "KV %", .scale = 100, .digits = 1 }),
    CELL(PREFIX_HIT, "prefix_hit_ratio", "ratio", +1, "load: share of prompt tokens that the prefix cache had",
         .combine = COMBINE_MEAN, .column = { .title = "hits %", .scale = 100, .digits = 1 }),
    CELL(PREEMPTIONS, "preemptions", "", -1, "load: how often requests lost their place in the KV cache",
         .combine = COMBINE_MEAN, .column = { .title = "preempted", .digits = 1 }),
    CELL(GOODPUT, "goodput_ratio", "ratio", +1, "load: share of all requests that met every limit of slo; none at all counts as half a request",
         .column = { .title = "goodput %", .scale = 100, .digits = 1 }),
    CELL(LATE, "coordinated_omission_s", "seconds", -1,
         "load: mean time from the scheduled arrival to sending, which a client that counts from sending leaves out", .combine = COMBINE_MEAN,
         .column = { .title = "late ms", .scale = 1e3, .digits = 2 }),
    CELL(SCHEDULER, "scheduler_ratio", "ratio", -1, "load: share of the time of steps outside the model",
         .combine = COMBINE_MEAN, .column = { .title = "scheduler %", .scale = 100, .digits = 2 }),
    CELL(FAILED, "failed_requests", "", -1, "load: requests without a complete answer", .combine = COMBINE_MEAN),
};
/* clang-format on */

int metric_sign(const struct metric *m)
{
    return m->better < 0 ? -1 : 1;
}

const struct metric *metric_find(const char *name)
{
    for (int i = 0; i < METRIC_COUNT; i++)
        if (!strcmp(METRICS[i].name, name)) return &METRICS[i];
    return NULL;
}

int64_t metric_bytes(double value)
{
    const double end = 9223372036854775808.0; /* 2^63: the first double that no int64_t holds */
    if (isnan(value) || value < 0) return -1;
    return value < end ? (int64_t)value : INT64_MAX;
}
