/* How often each method of `history --detect` reports something where nothing happened, and how often it
 * finds a step: counted on simulated histories.
 *
 *   bench_detect [--series N] [--method NAME]
 *
 * The tables are in docs/history.md. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/advisor/series.h"

enum { EXIT_USAGE = 4, EXIT_MEMORY = 6 };
static const double NOISE_SD = 0.02; /* the methods are asked for changes of any size: it cancels out */

/* A history: no step, or one of `step` standard deviations for the last `after` runs. */
static const struct setup {
    const char *title;
    int runs, after;
    double step;
} SETUPS[] = {
    { "False alarms: nothing happened, 20 runs", 20, 0, 0 },
    { "False alarms: nothing happened, 60 runs", 60, 0, 0 },
    { "Found: the last 5 of 60 runs are slower by 4 standard deviations", 60, 5, 4 },
    { "Found: the last of 60 runs is slower by 8 standard deviations", 60, 1, 8 },
};

/* Series in which the method reports something; with a step: something in the runs behind it. -1: no memory.
 */
static int64_t count_reports(const struct setup *u, enum history_method_id method, const struct noise *noise,
                             int64_t series)
{
    struct simulated_series *s = malloc(sizeof *s);
    int64_t reports = 0;
    if (!s) return -1;
    for (int64_t i = 0; i < series && reports >= 0; i++) {
        struct method_findings f;
        const int at = u->runs - u->after;
        series_simulate(s, noise, (uint64_t)i, u->runs, NOISE_SD, at, u->step);
        if (history_method_find(&f, method, &s->series, 0, NULL)) {
            reports = -1;
            break;
        }
        bool any = false;
        for (int k = 0; k < f.n; k++) any |= !u->after || f.finding[k].at >= at;
        reports += any;
        method_findings_free(&f);
    }
    free(s);
    return reports;
}

static int setup_run(const struct setup *u, const char *only, int64_t series)
{
    printf("\n### %s\n\n| method |", u->title);
    for (int k = 0; k < SERIES_NOISE_COUNT; k++) printf(" %s %% |", SERIES_NOISES[k].name);
    printf("\n|---|");
    for (int k = 0; k < SERIES_NOISE_COUNT; k++) printf("--:|");
    printf("\n");
    for (int m = 0; m < HISTORY_METHOD_COUNT; m++) {
        if (only && strcmp(only, HISTORY_METHOD_NAMES[m])) continue;
        printf("| %s |", HISTORY_METHOD_NAMES[m]);
        for (int k = 0; k < SERIES_NOISE_COUNT; k++) {
            const int64_t n = count_reports(u, (enum history_method_id)m, &SERIES_NOISES[k], series);
            if (n < 0) return EXIT_MEMORY;
            const struct interval share = wilson_interval(n, series, 0.95);
            printf(" %.1f (%.1f to %.1f) |", 100 * share.estimate, 100 * share.lower, 100 * share.upper);
            fflush(stdout);
        }
        printf("\n");
    }
    return 0;
}

static int usage(const char *what)
{
    fprintf(stderr,
            "bench_detect: %s\nusage: bench_detect [--series N] [--method NAME]\n"
            "N series for each method and kind of noise (default 1000); --method: only this one\n",
            what);
    return EXIT_USAGE;
}

static bool is_method(const char *name)
{
    for (int m = 0; m < HISTORY_METHOD_COUNT; m++)
        if (!strcmp(HISTORY_METHOD_NAMES[m], name)) return true;
    return false;
}

int main(int argc, char **argv)
{
    uint64_t series = 1000;
    const char *only = NULL;
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--series")) {
            if (!str_to_u64(value, &series) || series < 1 || series > 1000000)
                return usage("--series: expected 1 to 1000000");
        } else if (!strcmp(argv[i], "--method") && is_method(value)) {
            only = value;
        } else {
            return usage("unknown argument, or unknown method");
        }
    }
    printf("%llu series for each figure; per cent of series with a report (95 %% interval)\n",
           (unsigned long long)series);
    int status = 0;
    for (size_t u = 0; u < COUNT_OF(SETUPS) && !status; u++)
        status = setup_run(&SETUPS[u], only, (int64_t)series);
    return status;
}
