/* Files of prompts come from strangers: one is refused with a message, or read as prompts that have a text or
 * messages, classes that have names, and lengths that are not negative. */
#include <stdlib.h>
#include <string.h>

#include "engine/prompts/prompts.h"
#include "tests/fuzz/cost.h"

static const struct cost_ceiling CEILING = {
    .seconds = 0.5, .seconds_per_mb = 20, .mb = 16, .mb_per_mb = 400
};

static void check(const struct prompts *p)
{
    if (p->n < 1 || p->n > PROMPTS_MOST || p->skipped < 0 || p->classes > PROMPT_CLASSES) abort();
    for (int i = 0; i < p->n; i++) {
        const struct prompt *q = &p->prompt[i];
        struct str text = { 0 };
        if (!q->text == !json_array_size(q->messages)) abort(); /* exactly one of both */
        if (q->class >= p->classes || q->most < 0 || q->line < 1) abort();
        prompts_append_text(&text, p, i);
        if (q->text && (strlen(q->text) != q->n || !text.len)) abort();
        str_free(&text);
    }
}

static void use(const uint8_t *data, size_t size)
{
    static const char *const NAMES[] = { "a.txt", "a.jsonl" };
    char *text = malloc(size + 1);
    if (!text) abort();
    memcpy(text, data, size);
    text[size] = '\0';
    for (size_t i = 0; i < COUNT_OF(NAMES); i++) {
        struct prompts p;
        struct err why = { 0 };
        if (prompts_parse(&p, NAMES[i], text, size, &why)) {
            if (!*why.message) abort();
        } else {
            check(&p);
        }
        prompts_free(&p);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return cost_run(use, data, size, &CEILING);
}
