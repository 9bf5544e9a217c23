/* Proves: the table in docs/models.md is what engine/arch/arch_table.c and engine/import/families.c say.
 * QDYNO_UPDATE_GOLDEN=1 rewrites it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "engine/import/families.h"
#include "tests/check.h"

#define PAGE TEST_SOURCE_DIR "/docs/models.md"

static const char OPEN[] = "families.c -->\n", CLOSE[] = "<!-- end of table -->";

static const char *positions(const struct arch *a)
{
    static const char *const NAMES[] = {
        [ROPE_NONE] = "learned", [ROPE_NEIGHBOURS] = "RoPE, neighbours", [ROPE_HALVES] = "RoPE, halves"
    };
    return a->rope_period == 1 ? "none" : NAMES[a->rope];
}

static const char *states(const struct arch *a)
{
    static const char *const NAMES[] = { [MIXER_ATTENTION] = "none",
                                         [MIXER_DELTA] = "gated delta net",
                                         [MIXER_SCAN] = "Mamba-2",
                                         [MIXER_CONVOLUTION] = "short convolution" };
    return NAMES[a->state];
}

static void put_windows(struct str *out, const struct arch *a)
{
    if (a->chunk)
        str_printf(out, "chunks of %d, all but each %dth", a->chunk, a->rope_period);
    else if (a->window_period == 1)
        str_append(out, "all layers");
    else if (a->window_period == 2)
        str_append(out, "every other layer");
    else if (a->window_period)
        str_printf(out, "all but each %dth", a->window_period);
    else
        str_append(out, a->window_listed ? "those that the file lists" : "none");
}

static void put_experts(struct str *out, const struct arch *a)
{
    static const char *const SCORES[] = { [ROUTER_SOFTMAX] = "softmax",
                                          [ROUTER_SIGMOID] = "sigmoid",
                                          [ROUTER_CHOSEN] = "softmax of the chosen",
                                          [ROUTER_INPUT] = "sigmoid, multiplies the input",
                                          [ROUTER_BY_KEY] = "by metadata" };
    static const char *const SUMS[] = {
        [ROUTER_SUM_ANY] = "", [ROUTER_SUM_ONE] = ", sum 1", [ROUTER_SUM_BY_KEY] = ", sum by metadata"
    };
    if (!a->router) {
        str_append(out, "none");
        return;
    }
    str_printf(out, "%s%s", SCORES[a->router], SUMS[a->router_sum]);
    if ((a->expert_may & SLOT_BIT(SLOT_ROUTER_CHOICE)) || (a->expert_need & SLOT_BIT(SLOT_ROUTER_CHOICE)))
        str_append(out, ", bias of the choice");
    if ((a->expert_may | a->expert_need) & SLOT_BIT(SLOT_UP_SHARED)) str_append(out, ", shared expert");
}

/* The names of config.json under which checkpoints of this architecture are read. */
static void put_checkpoints(struct str *out, const struct arch *a)
{
    static const char END[] = "ForCausalLM";
    const size_t before = out->len;
    for (size_t i = 0; i < HF_FAMILY_COUNT; i++) {
        const struct family *f = &HF_FAMILIES[i];
        if (strcmp(f->arch, a->name)) continue;
        const size_t n = strlen(f->architecture) - (str_ends(f->architecture, END) ? strlen(END) : 0);
        str_printf(out, "%s%.*s", out->len > before ? ", " : "", (int)n, f->architecture);
    }
    if (out->len == before) str_append(out, "no");
}

static void put_table(struct str *out)
{
    str_append(out, "| architecture | models | positions | windows | states | experts | checkpoints |\n"
                    "|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < ARCH_COUNT; i++) {
        const struct arch *a = &ARCHS[i];
        CHECK(a->models);
        str_printf(out, "| `%s` | %s | %s | ", a->name, a->models, positions(a));
        put_windows(out, a);
        str_printf(out, " | %s | ", states(a));
        put_experts(out, a);
        str_append(out, " | ");
        put_checkpoints(out, a);
        str_append(out, " |\n");
    }
}

static void page_has_the_table(void **state)
{
    (void)state;
    struct err why;
    struct str want = { 0 };
    char *page;
    CHECK_OK(file_read(&page, NULL, PAGE, 1 << 20, &why));
    const char *open = strstr(page, OPEN), *close = strstr(page, CLOSE);
    CHECK(open);
    CHECK(close);
    str_append_n(&want, page, (size_t)(open + strlen(OPEN) - page));
    put_table(&want);
    str_append(&want, close);
    CHECK(!want.failed);
    if (getenv("QDYNO_UPDATE_GOLDEN")) {
        FILE *f = fopen(PAGE, "w");
        CHECK(f);
        CHECK_GE(fputs(str_text(&want), f), 0);
        CHECK_EQ(fclose(f), 0);
    } else if (strcmp(page, str_text(&want))) {
        fail_msg("%s is not what the table says (QDYNO_UPDATE_GOLDEN=1 writes it)", PAGE);
    }
    str_free(&want);
    free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(page_has_the_table) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
