/* Proves: the probe measures every ceiling of this machine within the given time and reports progress;
 * ceilings survive JSON and the cache file; a damaged cache file means that they are unknown, never a
 * wrong number. */
#include "tests/telemetry/roots.h"

#include <math.h>

#include "telemetry/probe/probe.h"

struct progress {
    int calls;
    double last;
    bool fell;
    char first[96];
};

static void on_progress(void *ctx, const char *what, double done)
{
    struct progress *p = ctx;
    if (!p->calls++) snprintf(p->first, sizeof p->first, "%s", what);
    p->fell |= !(done >= p->last && done <= 1);
    p->last = done;
}

static void the_probe_keeps_its_time(void **state)
{
    (void)state;
    struct machine_ceilings c;
    struct progress p = { 0 };
    struct err why;
    uint32_t isa;
    CHECK_OK(isa_usable(&isa, &why));
    int64_t start = clock_ns();
    CHECK_OK(machine_probe(&c, isa, 2, on_progress, &p, &why));
    double seconds = (double)(clock_ns() - start) / 1e9;
    print_message(
        "probe of 2 s took %.2f s (others %.0f %% busy): read %.1f GB/s with 1 thread, %.1f with %d\n",
        seconds, 100 * c.others_busy_ratio, c.read_bytes_s_1 / 1e9, c.read_bytes_s_all / 1e9, c.threads_all);
    /* Limits that a wrong unit exceeds, and a machine however busy does not. */
    CHECK_GT(c.read_bytes_s_1, 1e6);
    CHECK_LT(c.read_bytes_s_1, 1e13);
    CHECK_GT(c.read_bytes_s_all, 1e6);
    for (int i = 0; i < c.reads; i++) {
        CHECK_EQ(c.read[i].threads, 2 << i);
        CHECK_LT(c.read[i].threads, c.threads_all);
        CHECK_GT(c.read[i].bytes_s, 1e6);
    }
    CHECK_NE(c.nodes, 1);
    for (int i = 0; i < c.nodes; i++) CHECK(!(c.node[i].all_bytes_s < 1e6));
    CHECK_LE(1, c.threads_all);
    CHECK_LT(1700000000000, c.measured_unix_ms);
    CHECK_LE(0, c.others_busy_ratio);
    CHECK_LE(c.others_busy_ratio, 1);
    assert_int_equal(c.count, (int)CEILING_COUNT);
    for (int i = 0; i < c.count; i++) {
        bool usable = (CEILINGS[i].needs & isa) == CEILINGS[i].needs;
        assert_string_equal(c.row[i].name, CEILINGS[i].name);
        assert_string_equal(c.row[i].isa, CEILINGS[i].isa);
        print_message("  %-12s %-12s %8.1f %8.1f Gop/s\n", c.row[i].name, c.row[i].isa,
                      c.row[i].ops_s_1 / 1e9, c.row[i].ops_s_all / 1e9);
        if (usable) {
            CHECK_LT(1e5, c.row[i].ops_s_1);
            CHECK_LT(1e5, c.row[i].ops_s_all);
        } else {
            CHECK_NAN(c.row[i].ops_s_1);
            CHECK_NAN(c.row[i].ops_s_all);
        }
    }
    CHECK_LE(2, p.calls);
    CHECK(!p.fell);
    CHECK_EQ(p.last, 1);
    CHECK_CONTAINS(p.first, "memory read");
}

static void unusable_isa_is_not_measured(void **state)
{
    (void)state;
    struct machine_ceilings c;
    struct err why = { 0 };
    CHECK_OK(machine_probe(&c, 0, 0.1, NULL, NULL, &why));
    for (int i = 0; i < c.count; i++)
        CHECK(CEILINGS[i].needs ? isnan(c.row[i].ops_s_1) : c.row[i].ops_s_1 > 0);
    assert_int_equal(machine_probe(&c, 0, -1, NULL, NULL, &why), ERR_USAGE);
    assert_int_equal(machine_probe(&c, 0, NAN, NULL, NULL, &why), ERR_USAGE);
}

static const struct machine_ceilings SAMPLE = {
    .read_bytes_s_1 = 12345678901.5,
    .read_bytes_s_all = NAN,
    .threads_all = 8,
    .reads = 2,
    .read = { { 2, 2e10 }, { 4, NAN } },
    .nodes = 2,
    .node = { { 3e10, 2e10 }, { NAN, 1e10 } },
    .count = 2,
    .row = { { "f32_fma", "avx2", 1e11, 2e11 }, { "int8_tile", "amx", NAN, NAN } },
    .measured_unix_ms = 1763745727123,
    .others_busy_ratio = 0.25,
    .opencl_count = 1,
    .opencl = { { "opencl:0", "Imaginary 3", "1.2", { 2e12, 1.9e12, 6e13, NAN, 2e14, 2.5e10, NAN } } },
};

static void check_is_sample(const struct machine_ceilings *c)
{
    CHECK_EQ(c->read_bytes_s_1, SAMPLE.read_bytes_s_1);
    CHECK_NAN(c->read_bytes_s_all);
    CHECK_EQ(c->reads, 2);
    CHECK_EQ(c->read[0].threads, 2);
    CHECK_EQ(c->read[0].bytes_s, 2e10);
    CHECK_EQ(c->read[1].threads, 4);
    CHECK_NAN(c->read[1].bytes_s);
    CHECK_EQ(c->nodes, 2);
    CHECK_EQ(c->node[0].own_bytes_s, 3e10);
    CHECK_EQ(c->node[0].all_bytes_s, 2e10);
    CHECK_NAN(c->node[1].own_bytes_s);
    CHECK_EQ(ceilings_node_bytes_s(c), 1.5e10);
    CHECK_EQ(c->threads_all, 8);
    CHECK_EQ(c->count, 2);
    CHECK_EQ(c->measured_unix_ms, SAMPLE.measured_unix_ms);
    CHECK_EQ(c->others_busy_ratio, 0.25);
    assert_string_equal(c->row[0].name, "f32_fma");
    assert_string_equal(c->row[1].isa, "amx");
    const struct device_ceilings *d = &c->opencl[0].can;
    CHECK_EQ(c->opencl_count, 1);
    CHECK_EQ(d->read_bytes_s, 2e12);
    CHECK_EQ(d->copy_bytes_s, 1.9e12);
    CHECK_EQ(d->f32_ops_s, 6e13);
    CHECK_NAN(d->f16_ops_s);
    CHECK_EQ(d->int8_ops_s, 2e14);
    CHECK_EQ(d->to_device_bytes_s, 2.5e10);
    CHECK_NAN(d->from_device_bytes_s);
    const struct device_info same = { .name = "opencl:0", .model = "Imaginary 3", .driver = "1.2" };
    struct device_info newer = same;
    snprintf(newer.driver, sizeof newer.driver, "1.3");
    CHECK_EQ(ceilings_opencl(c, &same), &c->opencl[0]);
    CHECK(!ceilings_opencl(c, &newer));
    CHECK_EQ(c->row[0].ops_s_1, 1e11);
    CHECK_EQ(c->row[0].ops_s_all, 2e11);
    CHECK_NAN(c->row[1].ops_s_1);
}

static void json_and_cache_keep_everything(void **state)
{
    (void)state;
    struct root home = root_empty();
    struct machine_ceilings c;
    struct err why;
    bool found = true;
    json_t *object = ceilings_to_json(&SAMPLE);
    CHECK(json_is_null(json_object_get(object, "read_bytes_s_all")));
    CHECK_OK(ceilings_from_json(&c, object, &why));
    check_is_sample(&c);
    json_decref(object);

    setenv("XDG_CACHE_HOME", home.path, 1);
    CHECK_OK(ceilings_load(&c, "d38d793ac7a0", &found, &why));
    CHECK(!found);
    CHECK_NAN(c.read_bytes_s_1);
    CHECK_NAN(c.others_busy_ratio);
    CHECK_EQ(c.count, 0);
    CHECK_OK(ceilings_save(&SAMPLE, "d38d793ac7a0", &why));
    CHECK_OK(ceilings_load(&c, "d38d793ac7a0", &found, &why));
    CHECK(found);
    check_is_sample(&c);
    CHECK_OK(ceilings_load(&c, "000000000000", &found, &why)); /* another machine's are not ours */
    CHECK(!found);

    static const char *const DAMAGED[] = {
        "",
        "{",
        "[]",
        "{}",
        "{\"schema\":1}",
        "{\"schema\":2,\"threads_all\":2,\"arithmetic\":[]}",
        "{\"schema\":1,\"threads_all\":0,\"arithmetic\":[]}",
        "{\"schema\":1,\"threads_all\":2,\"arithmetic\":{}}",
        "{\"schema\":1,\"threads_all\":2,\"arithmetic\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}",
    };
    for (size_t i = 0; i < COUNT_OF(DAMAGED); i++) {
        root_write(&home, "qdyno/ceilings-d38d793ac7a0.json", DAMAGED[i]);
        CHECK_OK(ceilings_load(&c, "d38d793ac7a0", &found, &why));
        if (found) fail_msg("taken for ceilings: %s", DAMAGED[i]);
    }
    /* numbers that cannot be ceilings are unknown */
    root_write(
        &home, "qdyno/ceilings-d38d793ac7a0.json",
        "{\"schema\":1,\"threads_all\":4,\"read_bytes_s_1\":0,\"read_bytes_s_all\":-5,\"arithmetic\":[{\"name\":"
        "\"f32_fma\",\"isa\":\"avx2\",\"ops_s_1\":\"many\"},7],\"reads\":[7,{\"threads\":3,\"bytes_s\":-1},"
        "{\"threads\":2,\"bytes_s\":1e9},{\"threads\":9}],\"nodes\":[{},{\"all_bytes_s\":\"x\"}]}");
    CHECK_OK(ceilings_load(&c, "d38d793ac7a0", &found, &why));
    CHECK(found);
    CHECK_NAN(c.read_bytes_s_1);
    CHECK_NAN(c.read_bytes_s_all);
    CHECK_NAN(c.row[0].ops_s_1);
    CHECK_EQ(c.reads, 1);
    CHECK_EQ(c.read[0].threads, 3);
    CHECK_NAN(c.read[0].bytes_s);
    CHECK_EQ(c.nodes, 2);
    CHECK_NAN(ceilings_node_bytes_s(&c));
    root_remove(&home);
}

static void a_machine_id_is_no_path(void **state)
{
    (void)state;
    static const char *const BAD[] = { "", "../x", "a/b", "ABC" };
    for (size_t i = 0; i < COUNT_OF(BAD); i++) {
        struct machine_ceilings c;
        struct err why = { 0 };
        bool found;
        assert_int_equal(ceilings_load(&c, BAD[i], &found, &why), ERR_USAGE);
        assert_int_equal(ceilings_save(&SAMPLE, BAD[i], &why), ERR_USAGE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_probe_keeps_its_time),
        cmocka_unit_test(unusable_isa_is_not_measured),
        cmocka_unit_test(json_and_cache_keep_everything),
        cmocka_unit_test(a_machine_id_is_no_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
