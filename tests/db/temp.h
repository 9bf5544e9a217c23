/* tests/db/temp.h - a folder that lives as long as one test: setup and teardown for cmocka. */
#ifndef QDYNO_TESTS_DB_TEMP_H
#define QDYNO_TESTS_DB_TEMP_H

#include <ftw.h>
#include <stdlib.h>
#include <string.h>

#include "db/db.h"
#include "tests/check.h"

struct temp {
    char folder[64];
    char file[96]; /* <folder>/t.db */
};

static inline int temp_setup(void **state)
{
    struct temp *t = calloc(1, sizeof *t);
    if (!t) return -1;
    strcpy(t->folder, "/tmp/qdyno-db-XXXXXX");
    if (!mkdtemp(t->folder)) return -1;
    snprintf(t->file, sizeof t->file, "%s/t.db", t->folder);
    *state = t;
    return 0;
}

static inline int temp_remove(const char *path, const struct stat *st, int flag, struct FTW *walk)
{
    (void)st, (void)flag, (void)walk;
    return remove(path);
}

static inline int temp_teardown(void **state)
{
    struct temp *t = *state;
    nftw(t->folder, temp_remove, 8, FTW_DEPTH | FTW_PHYS);
    free(t);
    return 0;
}

/* A run with the machine and model it refers to. */
static inline int64_t temp_run(struct db *d)
{
    struct err why;
    struct run_row r = { .kind = "ab",
                         .state = "running",
                         .machine = "m1",
                         .model_sha256 = "feed",
                         .model_name = "toy",
                         .workload = "tg64",
                         .label = "f32 vs q8_0",
                         .metric = "decode_tok_s",
                         .seed = UINT64_MAX,
                         .effect_ratio = (double)__builtin_nanf("") };
    r.spec_json = strdup("{\"a\":1}");
    CHECK_OK(db_machine_put(d, "m1", "{}", &why));
    CHECK_OK(db_model_put(d, "feed", "toy", "/models/toy.gguf", "{}", &why));
    CHECK_OK(db_run_insert(d, &r, &why));
    run_row_free(&r);
    return r.id;
}

#endif
