/* telemetry/metrics.c - every number this program keeps, with its unit and how often it is worth reading.
 *
 * Scripts, the database, the dashboard and the exporters walk this table: names are promises. Periods follow
 * the sensor, not the wish: reading one faster than it changes repeats values and inflates sample counts. */
#include "telemetry/telemetry.h"

#include <string.h>

const struct metric METRICS[METRIC_COUNT] = {
    /* utilization and memory: what moves within a token batch */
    [METRIC_CPU_BUSY] = { "cpu_busy_ratio", "ratio", METRIC_SENSOR, 100, 0,
                          "share of all processors' time spent working" },
    [METRIC_CPU_STEAL] = { "cpu_steal_ratio", "ratio", METRIC_SENSOR, 100, -1,
                           "share of processor time the hypervisor gave to others" },
    [METRIC_CPU_FREQUENCY] = { "cpu_frequency_hertz", "hertz", METRIC_SENSOR, 1000, +1,
                               "mean clock of the processors" },
    [METRIC_CPU_TEMPERATURE] = { "cpu_temperature_celsius", "celsius", METRIC_SENSOR, 5000, -1,
                                 "hottest processor package" },
    [METRIC_CPU_THROTTLE] = { "cpu_throttle_events_s", "1/s", METRIC_SENSOR, 1000, -1,
                              "times a second a processor slowed down for heat" },
    [METRIC_CPU_POWER] = { "cpu_power_watts", "watts", METRIC_SENSOR, 1000, -1,
                           "power of all processor packages (RAPL)" },
    [METRIC_MEM_USED] = { "mem_used_bytes", "bytes", METRIC_SENSOR, 100, -1,
                          "memory not available to a new program" },
    [METRIC_MEM_AVAILABLE] = { "mem_available_bytes", "bytes", METRIC_SENSOR, 100, +1,
                               "memory a new program can have without swapping" },
    [METRIC_SWAP_USED] = { "swap_used_bytes", "bytes", METRIC_SENSOR, 1000, -1, "swap space in use" },
    [METRIC_SWAP_IN] = { "swap_in_bytes_s", "bytes/s", METRIC_SENSOR, 1000, -1,
                         "bytes read back from swap per second" },
    [METRIC_PSI_CPU] = { "psi_cpu_ratio", "ratio", METRIC_SENSOR, 500, -1,
                         "share of time some task waited for a processor" },
    [METRIC_PSI_MEMORY] = { "psi_memory_ratio", "ratio", METRIC_SENSOR, 500, -1,
                            "share of time some task waited for memory" },
    [METRIC_PSI_IO] = { "psi_io_ratio", "ratio", METRIC_SENSOR, 500, -1,
                        "share of time some task waited for input or output" },
    [METRIC_PROC_RSS] = { "proc_rss_bytes", "bytes", METRIC_SENSOR, 100, -1,
                          "resident memory of the watched process tree" },
    /* the kernel counts processor time in ticks of 10 ms: at 100 ms a tick would be 10 % */
    [METRIC_PROC_CPU] = { "proc_cpu_ratio", "ratio", METRIC_SENSOR, 500, 0,
                          "processor time of the watched process tree, 1 = one processor" },
    [METRIC_PROC_MAJOR_FAULTS] = { "proc_major_faults_s", "1/s", METRIC_SENSOR, 500, -1,
                                   "page faults of the watched process tree that read from disk" },
    [METRIC_PROC_MINOR_FAULTS] = { "proc_minor_faults_s", "1/s", METRIC_SENSOR, 500, -1,
                                   "page faults of the watched process tree without disk" },
    [METRIC_PROC_VOLUNTARY_SWITCHES] = { "proc_voluntary_switches_s", "1/s", METRIC_SENSOR, 1000, 0,
                                         "times a second a watched thread waited" },
    [METRIC_PROC_INVOLUNTARY_SWITCHES] = { "proc_involuntary_switches_s", "1/s", METRIC_SENSOR, 1000, -1,
                                           "times a second a watched thread was pushed off its processor" },
    [METRIC_OTHERS_BUSY] = { "others_busy_ratio", "ratio", METRIC_SENSOR, 500, -1,
                             "share of all processors' time used by other programs" },
    [METRIC_ON_BATTERY] = { "on_battery", "", METRIC_SENSOR, 5000, -1, "1 while running from the battery" },
    /* NVML averages utilization over 1/6 to 1 s: asking faster than 200 ms repeats values */
    [METRIC_GPU_BUSY] = { "gpu_busy_ratio", "ratio", METRIC_SENSOR, 200, 0, "busiest GPU" },
    [METRIC_GPU_MEM_USED] = { "gpu_mem_used_bytes", "bytes", METRIC_SENSOR, 200, -1,
                              "memory in use on all GPUs" },
    [METRIC_GPU_MEM_TOTAL] = { "gpu_mem_total_bytes", "bytes", METRIC_SENSOR, 5000, 0, "memory of all GPUs" },
    [METRIC_GPU_POWER] = { "gpu_power_watts", "watts", METRIC_SENSOR, 1000, -1, "power of all GPUs" },
    [METRIC_GPU_TEMPERATURE] = { "gpu_temperature_celsius", "celsius", METRIC_SENSOR, 5000, -1,
                                 "hottest GPU" },
    [METRIC_GPU_CLOCK] = { "gpu_clock_hertz", "hertz", METRIC_SENSOR, 1000, +1,
                           "highest core clock of any GPU" },
    [METRIC_GPU_THROTTLE] = { "gpu_throttle_ratio", "ratio", METRIC_SENSOR, 1000, -1,
                              "1 while any GPU holds its clocks down for heat or power" },

    [METRIC_PREFILL_RATE] = { "prefill_tok_s", "tokens/s", METRIC_CELL, 0, +1,
                              "prompt tokens processed per second" },
    [METRIC_DECODE_RATE] = { "decode_tok_s", "tokens/s", METRIC_CELL, 0, +1, "tokens generated per second" },
    [METRIC_TTFT] = { "ttft_s", "seconds", METRIC_CELL, 0, -1, "time to the first token" },
    [METRIC_ITL_P50] = { "itl_p50_s", "seconds", METRIC_CELL, 0, -1, "inter-token latency, median" },
    [METRIC_ITL_P95] = { "itl_p95_s", "seconds", METRIC_CELL, 0, -1, "inter-token latency, 95th percentile" },
    [METRIC_ITL_P99] = { "itl_p99_s", "seconds", METRIC_CELL, 0, -1, "inter-token latency, 99th percentile" },
    [METRIC_LOAD_TIME] = { "load_s", "seconds", METRIC_CELL, 0, -1, "time to load the model" },
    [METRIC_PEAK_MEMORY] = { "peak_rss_bytes", "bytes", METRIC_CELL, 0, -1,
                             "highest resident memory of the worker" },
    [METRIC_ENERGY] = { "energy_j", "joules", METRIC_CELL, 0, -1, "energy used during the cell" },
    [METRIC_PERPLEXITY] = { "perplexity", "", METRIC_CELL, 0, -1, "perplexity of the evaluation text" },
    [METRIC_KLD] = { "kld_mean", "", METRIC_CELL, 0, -1,
                     "mean KL divergence from a reference's predictions over the evaluation text, in nats" },
    [METRIC_LIMIT_SHARE_PREFILL] = { "prefill_limit_share", "ratio", METRIC_CELL, 0, +1,
                                     "prefill rate as a share of what the machine's arithmetic allows" },
    [METRIC_LIMIT_SHARE_DECODE] = { "decode_limit_share", "ratio", METRIC_CELL, 0, +1,
                                    "decode rate as a share of what the memory bandwidth allows" },
    [METRIC_CANARY_READ] = { "canary_read_bytes_s", "bytes/s", METRIC_CELL, 0, +1,
                             "memory read rate of the fixed work that is run beside every run" },
    [METRIC_CANARY_OPS] = { "canary_ops_s", "1/s", METRIC_CELL, 0, +1,
                            "multiply-adds a second, each two operations, of that fixed work" },
    [METRIC_TRAIN_RATE] = { "train_tok_s", "tokens/s", METRIC_CELL, 0, +1, "tokens trained on per second" },
    [METRIC_TRAIN_LOSS] = { "train_loss", "", METRIC_CELL, 0, -1,
                            "loss of the last step of training, nats a token" },
    [METRIC_MEMORY_AFTER] = { "rss_after_bytes", "bytes", METRIC_CELL, 0, -1,
                              "resident memory of the worker when a cell has ended: of training, between steps" },
};

const struct metric *metric_find(const char *name)
{
    for (int i = 0; i < METRIC_COUNT; i++)
        if (!strcmp(METRICS[i].name, name)) return &METRICS[i];
    return NULL;
}
