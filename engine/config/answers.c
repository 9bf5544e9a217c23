/* engine/config/answers.c - can two configs answer differently? Settings that only divide the work, such as
 * the number of threads, change no more than the order of float sums. */
#include <string.h>

#include "engine/config/config.h"

/* Arguments of llama.cpp's programs (its option names) that change no answers, as the settings of KNOBS for
 * the same things do not. */
static const struct neutral {
    const char *name;
    bool has_value;
} NEUTRAL[] = {
    { "-t", true },           { "--threads", true },      { "-tb", true },      { "--threads-batch", true },
    { "-b", true },           { "--batch-size", true },   { "-ub", true },      { "--ubatch-size", true },
    { "-C", true },           { "--cpu-mask", true },     { "-Cr", true },      { "--cpu-range", true },
    { "--cpu-strict", true }, { "--prio", true },         { "--poll", true },   { "--numa", true },
    { "-ngl", true },         { "--gpu-layers", true },   { "--mlock", false }, { "--mmap", false },
    { "--no-mmap", false },   { "--n-gpu-layers", true },
};

static const struct neutral *neutral_find(const char *word, size_t n)
{
    for (size_t i = 0; i < COUNT_OF(NEUTRAL); i++)
        if (strlen(NEUTRAL[i].name) == n && !memcmp(NEUTRAL[i].name, word, n)) return &NEUTRAL[i];
    return NULL;
}

/* Write the arguments that may change answers to buf, separated by spaces. Words are compared as written: two
 * spellings of one value count as a difference, which only asks for a measurement more. */
static void args_that_matter(char *buf, size_t size, const char *args)
{
    size_t n = 0;
    bool skips_value = false;
    buf[0] = '\0';
    while (*(args += strspn(args, " "))) {
        const size_t word = strcspn(args, " "), name = MIN(strcspn(args, "="), word);
        const struct neutral *row = skips_value ? NULL : neutral_find(args, name);
        if (!skips_value && !row && n + word + 2 < size) {
            memcpy(buf + n, args, word);
            buf[n + word] = ' ';
            buf[n += word + 1] = '\0';
        }
        skips_value = row && row->has_value && name == word;
        args += word;
    }
}

bool config_changes_answers(const struct config *c)
{
    for (int k = 0; k < KNOB_COUNT; k++)
        if (c->given[k] && KNOBS[k].changes_answers) return true;
    return false;
}

bool config_same_answers(const struct config *a, const struct config *b)
{
    char mine[CONFIG_VALUE + 2], other[CONFIG_VALUE + 2];
    for (int k = 0; k < KNOB_COUNT; k++) {
        const char *x = config_text(a, (enum knob_id)k), *y = config_text(b, (enum knob_id)k);
        if (!KNOBS[k].changes_answers || !strcmp(x, y)) continue;
        if (k != KNOB_ARGS) return false;
        args_that_matter(mine, sizeof mine, x);
        args_that_matter(other, sizeof other, y);
        if (strcmp(mine, other) != 0) return false;
    }
    return true;
}
