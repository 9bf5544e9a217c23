/* tests/advisor/fake.h - configs and specs that the fake worker understands, and scratch folders. */
#ifndef QDYNO_TESTS_FAKE_H
#define QDYNO_TESTS_FAKE_H

#include "db/db.h"
#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/eval/eval.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#define FAKE_PROGRAM TEST_BUILD_DIR "/tests/fake_worker"

/* A config whose model is "fake:OPTIONS". */
static inline struct config fake_config(const char *options)
{
    struct config c;
    struct err why = { 0 };
    char model[CONFIG_VALUE];
    config_default(&c);
    snprintf(model, sizeof(model), "fake:%s", options);
    CHECK_OK(config_set(&c, "model", model, &why));
    return c;
}

/* A fresh folder; *path is valid until the next call. */
static inline const char *scratch(char *buf, size_t size)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(buf, size, "%s/qdyno-advisor-XXXXXX", tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(buf));
    return buf;
}

#endif
