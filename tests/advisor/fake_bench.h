/* tests/advisor/fake_bench.h - an experiment of fake workers on a database of its own. */
#ifndef QDYNO_TESTS_FAKE_BENCH_H
#define QDYNO_TESTS_FAKE_BENCH_H

#include "advisor/experiment/experiment.h"
#include "tests/advisor/fake.h"

struct bench {
    char dir[256], db[300];
    struct machine machine;
    struct experiment_state s; /* of the last run */
};

static inline int bench_set_up(void **state)
{
    struct bench *b = calloc(1, sizeof(*b));
    if (!b) return -1;
    scratch(b->dir, sizeof(b->dir));
    snprintf(b->db, sizeof(b->db), "%s/q.db", b->dir);
    snprintf(b->machine.id, sizeof(b->machine.id), "fakemachine0");
    snprintf(b->machine.cpu, sizeof(b->machine.cpu), "Fake CPU");
    b->machine.memory_bytes = b->machine.memory_available_bytes = 1 << 30;
    b->machine.cgroup_memory_bytes = -1;
    *state = b;
    return 0;
}

static inline int bench_tear_down(void **state)
{
    char command[320];
    struct bench *b = *state;
    snprintf(command, sizeof(command), "rm -rf '%s'", b->dir);
    free(b);
    return system(command);
}

/* Two arms of these options, in processes that live for the whole run. */
static inline struct experiment_spec bench_spec(const char *a, const char *b)
{
    struct experiment_spec s = {
        .budget_s = 600, .seed = 11, .warmup_cells = 1, .processes = PROCESSES_KEPT
    };
    struct err why = { 0 };
    s.config[0] = fake_config(a);
    s.config[1] = fake_config(b);
    CHECK_OK(workload_parse(&s.workload, "tg64", &why));
    return s;
}

static inline enum err_code bench_start(struct experiment **x, struct bench *b,
                                        const struct experiment_spec *s, struct err *why)
{
    const struct experiment_deps deps = { .db_path = b->db, .machine = &b->machine, .program = FAKE_PROGRAM };
    return experiment_start(x, s, &deps, why);
}

/* Start, wait for the end (reading the state meanwhile, as a screen does), close; the last state is b->s. */
static inline void bench_run(struct bench *b, const struct experiment_spec *spec)
{
    struct experiment *x = NULL;
    struct err why = { 0 };
    int64_t version = 0;
    CHECK_OK(bench_start(&x, b, spec, &why));
    while (!experiment_finished(x)) {
        experiment_wait(x, &version, 1000);
        experiment_state(x, &b->s);
        CHECK(b->s.verdict == VERDICT_NONE || b->s.phase >= PHASE_DONE);
    }
    experiment_state(x, &b->s);
    experiment_close(x);
}

static inline struct db *bench_db(const struct bench *b)
{
    struct db *d = NULL;
    struct err why = { 0 };
    CHECK_OK(db_open(&d, b->db, &why));
    return d;
}

static inline bool bench_told(const struct bench *b, const char *text)
{
    for (int i = 0; i < b->s.events; i++)
        if (strstr(b->s.event[i].text, text)) return true;
    return false;
}

#endif
