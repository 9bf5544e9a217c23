/* Proves: energy is the time integral of power, in cases worked by hand; the half width grows with time that
 * no sample describes; intervals of simulated machines contain the true energy as often as promised; counters
 * that wrap give the right energy through the real sensors of a recorded machine. */
#include "tests/telemetry/spans.h"

#include <math.h>
#include <stdlib.h>

#include "telemetry/metrics/metrics.h"
#include "telemetry/sensors/sensors.h"

static const int64_t SECOND = 1000000000;

static struct sample power_at(double t, enum metric_id metric, double watts)
{
    struct sample s = { .t_ns = (int64_t)(t * 1e9) };
    for (int m = 0; m < METRIC_SENSOR_COUNT; m++) s.value[m] = NAN;
    s.value[metric] = watts;
    return s;
}

static void no_samples_no_energy(void **state)
{
    (void)state;
    struct sample s = power_at(1, METRIC_CPU_POWER, NAN);
    CHECK_NAN(energy_integral(&s, 1, METRIC_CPU_POWER, 0, SECOND).joules);
    CHECK_NAN(energy_integral(NULL, 0, METRIC_CPU_POWER, 0, SECOND).half_joules);
}

/* Samples at 1, 2 and 3 s cover the window exactly: only the age of two readings is uncertain. */
static void covered_window(void **state)
{
    (void)state;
    const struct sample s[] = { power_at(1, METRIC_CPU_POWER, 10), power_at(2, METRIC_CPU_POWER, 30),
                                power_at(3, METRIC_CPU_POWER, 20) };
    const struct energy e = energy_integral(s, 3, METRIC_CPU_POWER, 0, 3 * SECOND);
    CHECK_NEAR(e.joules, 60, 1e-9);
    CHECK_NEAR(e.half_joules, 2 * 20 * 0.020 / sqrt(6), 1e-9);
}

/* The first sample reaches back by 0.5 s, and 0.5 s at the end have none: 40 W * 3 s. */
static void edges(void **state)
{
    (void)state;
    const struct sample s[] = { power_at(0.5, METRIC_CPU_POWER, 40), power_at(1.5, METRIC_CPU_POWER, 40),
                                power_at(2.5, METRIC_CPU_POWER, 40) };
    const struct energy e = energy_integral(s, 3, METRIC_CPU_POWER, 0, 3 * SECOND);
    CHECK_NEAR(e.joules, 120, 1e-9);
    CHECK_NEAR(e.half_joules, 2 * sqrt(20 * 20 / 3.0 + 0.8 * 0.8 / 6), 1e-9);
}

/* Between 2 and 5 s two samples are lost: they get the mean, and H = 50 - 40. One gap makes two
 * stretches. */
static void gap(void **state)
{
    (void)state;
    const struct sample s[] = { power_at(1, METRIC_CPU_POWER, 40), power_at(2, METRIC_CPU_POWER, 30),
                                power_at(5, METRIC_CPU_POWER, 50), power_at(6, METRIC_CPU_POWER, 40) };
    const struct energy e = energy_integral(s, 4, METRIC_CPU_POWER, 0, 6 * SECOND);
    CHECK_NEAR(e.joules, 240, 1e-9);
    CHECK_NEAR(e.half_joules, 2 * sqrt(20 * 20 / 3.0 + 2 * 0.8 * 0.8 / 6), 1e-9);
}

/* A card's power is sampled, not counted, so the spread of the samples counts. */
static void samples_of_a_card(void **state)
{
    (void)state;
    const struct sample s[] = { power_at(1, METRIC_GPU_POWER, 100), power_at(2, METRIC_GPU_POWER, 300) };
    const struct energy e = energy_integral(s, 2, METRIC_GPU_POWER, 0, 2 * SECOND);
    CHECK_NEAR(e.joules, 400, 1e-9);
    CHECK_NEAR(e.half_joules, 2 * sqrt(20 * 20 / 6.0 + 200 * 200), 1e-9);
}

/* A machine that idles at 20 W, works at a level that changes every 50 to 450 ms during the cell, and is read
 * once a second from a random moment on. */
static double step_power(double t, double begin, double end, const double *level, double width)
{
    return t < begin || t >= end ? 20 : level[(int)((t - begin) / width)];
}

static double uniform(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 11) / 9007199254740992.0;
}

static void intervals_contain_the_truth(void **state)
{
    (void)state;
    enum { RUNS = 400, STEP_HZ = 1000, LEVELS = 400 };
    uint64_t seed = 1;
    int inside = 0;
    for (int run = 0; run < RUNS; run++) {
        const double begin = 2 + uniform(&seed), end = begin + 1.2 + 14 * uniform(&seed);
        const double width = 0.05 + 0.4 * uniform(&seed), spread = 40 * uniform(&seed);
        double level[LEVELS], truth = 0, counter = 0, read = 0;
        struct sample s[32];
        int n = 0, first = (int)(STEP_HZ * uniform(&seed));
        for (int i = 0; i < LEVELS; i++) level[i] = 60 + spread * (uniform(&seed) - 0.5);
        for (int i = 0; i < (int)(end * STEP_HZ); i++) {
            const double t = (double)i / STEP_HZ, p = step_power(t, begin, end, level, width) / STEP_HZ;
            counter += p;
            if (t >= begin && t < end) truth += p;
            if (i % STEP_HZ != first) continue;
            if (t >= begin) s[n++] = power_at(t, METRIC_CPU_POWER, counter - read);
            read = counter;
        }
        if (!n) continue;
        const struct energy e = energy_integral(s, n, METRIC_CPU_POWER, (int64_t)(begin * 1e9),
                                                (int64_t)(end * 1e9));
        inside += fabs(e.joules - truth) <= e.half_joules;
    }
    CHECK_LE(0.93 * RUNS, inside);
}

static void five_joules_over_the_wrap(const struct root *r)
{
    root_write(r, "sys/class/powercap/intel-rapl:0/energy_uj", "4000000\n");
}

/* The counter of a recorded machine rises by 1 J, wraps, and rises by 4 J. */
static void a_counter_that_wraps(void **state)
{
    (void)state;
    struct root r = root_copy("avx2-laptop");
    struct sample s;
    root_write(&r, "sys/class/powercap/intel-rapl:0/max_energy_range_uj", "262143328850\n");
    root_write(&r, "sys/class/powercap/intel-rapl:0/energy_uj", "262142328850\n");
    struct telemetry *t = open_at(&r);
    const int64_t from = clock_ns();
    sample_after(t, s.value, &r, five_joules_over_the_wrap);
    s.t_ns = clock_ns();
    CHECK(isfinite(s.value[METRIC_CPU_POWER]));
    const struct energy e = energy_integral(&s, 1, METRIC_CPU_POWER, from, s.t_ns);
    CHECK_LE(fabs(e.joules - 5), e.half_joules);
    telemetry_close(t);
    root_remove(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_samples_no_energy),
        cmocka_unit_test(covered_window),
        cmocka_unit_test(edges),
        cmocka_unit_test(gap),
        cmocka_unit_test(samples_of_a_card),
        cmocka_unit_test(intervals_contain_the_truth),
        cmocka_unit_test(a_counter_that_wraps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
