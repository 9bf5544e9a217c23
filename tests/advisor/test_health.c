/* Proves: what the checks of `qdyno doctor` say about a machine follows from its facts; an unknown machine is
 * never called well, and a lost OpenCL driver is an error with its message. */
#include "advisor/advise/advise.h"
#include "advisor/doctor/doctor.h"

#include <string.h>

#include "telemetry/machine/machine.h"
#include "tests/check.h"

struct findings {
    int n;
    struct health_finding last;
    char advice[256];
};

static void findings_add(void *ctx, const struct health_finding *f)
{
    struct findings *all = ctx;
    all->n++;
    all->last = *f;
    snprintf(all->advice, sizeof all->advice, "%s", f->advice);
}

/* Runs the check of that name alone; fails when there is none. */
static struct findings findings_of(const char *check, const struct health_case *facts)
{
    struct findings all = { 0 };
    struct health_case c = *facts;
    c.report = findings_add;
    c.ctx = &all;
    for (size_t i = 0; i < HEALTH_CHECK_COUNT; i++)
        if (!strcmp(HEALTH_CHECKS[i].name, check)) {
            HEALTH_CHECKS[i].run(&c);
            return all;
        }
    fail_msg("there is no check '%s'", check);
    return all;
}

static void an_unknown_machine_is_not_called_well(void **state)
{
    (void)state;
    const struct health_case unknown = { .no_machine = "no /proc", .no_devices = "" };
    struct findings f = findings_of("machine", &unknown);
    CHECK_EQ(f.last.state, HEALTH_BAD);
    CHECK_STR(f.last.found, "no /proc");
    /* Once an unknown machine was reported as "mains". */
    f = findings_of("power source", &unknown);
    CHECK_EQ(f.last.state, HEALTH_NOTE);
    CHECK_STR(f.last.found, "not known");
    f = findings_of("frequency", &unknown);
    CHECK_EQ(f.last.state, HEALTH_NOTE);
    f = findings_of("ceilings", &unknown);
    CHECK_EQ(f.last.state, HEALTH_NOTE);
    CHECK_EQ(findings_of("memory", &unknown).n, 0);
    CHECK_EQ(findings_of("troubles", &unknown).n, 0);
}

static void findings_follow_from_the_machine(void **state)
{
    (void)state;
    struct machine m = { .memory_bytes = INT64_C(16) << 30,
                         .memory_available_bytes = INT64_C(12) << 30,
                         .cgroup_memory_bytes = -1,
                         .governor = "performance" };
    const struct health_case c = { .machine = &m };
    CHECK_EQ(findings_of("memory", &c).last.state, HEALTH_OK);
    CHECK_EQ(findings_of("frequency", &c).last.state, HEALTH_OK);
    CHECK_STR(findings_of("power source", &c).last.found, "mains");
    m.memory_available_bytes = INT64_C(100) << 20;
    m.cgroup_memory_bytes = INT64_C(1) << 30;
    m.on_battery = true;
    snprintf(m.governor, sizeof m.governor, "powersave");
    struct findings f = findings_of("memory", &c);
    CHECK_EQ(f.last.state, HEALTH_NOTE);
    CHECK_CONTAINS(f.last.found, "cgroup limit");
    CHECK_CONTAINS(f.advice, "close other programs");
    f = findings_of("frequency", &c);
    CHECK_EQ(f.last.state, HEALTH_NOTE);
    CHECK_CONTAINS(f.advice, "cpupower");
    CHECK_EQ(findings_of("power source", &c).last.state, HEALTH_NOTE);
}

static void devices_are_listed_or_their_error_is(void **state)
{
    (void)state;
    const struct device_info d = { .name = "opencl:0", .model = "Board", .memory_bytes = -1 };
    const struct health_case failed = { .no_devices = "the driver crashed" },
                             none = { .devices_known = true },
                             one = { .devices_known = true, .device = &d, .n_devices = 1 };
    CHECK_EQ(findings_of("OpenCL", &failed).last.state, HEALTH_BAD);
    CHECK_STR(findings_of("OpenCL", &failed).last.found, "the driver crashed");
    CHECK_EQ(findings_of("OpenCL", &none).last.state, HEALTH_NOTE);
    CHECK_EQ(findings_of("OpenCL", &one).last.state, HEALTH_OK);
    CHECK_CONTAINS(findings_of("OpenCL", &one).last.found, "opencl:0: Board");
}

static void each_check_has_a_name_of_its_own(void **state)
{
    (void)state;
    for (size_t i = 0; i < HEALTH_CHECK_COUNT; i++)
        for (size_t k = 0; k < i; k++) CHECK_STR_NE(HEALTH_CHECKS[i].name, HEALTH_CHECKS[k].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_machine_is_not_called_well),
        cmocka_unit_test(findings_follow_from_the_machine),
        cmocka_unit_test(devices_are_listed_or_their_error_is),
        cmocka_unit_test(each_check_has_a_name_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
