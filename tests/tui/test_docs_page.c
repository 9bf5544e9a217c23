/* Proves: the frames in docs/dashboard.md equal the golden files, so the page cannot become outdated. A block
 * that begins with "```text NAME" holds tests/golden/NAME.txt; there are at least six. Its table of levels is
 * METRIC_LEVELS.
 *
 * QDYNO_UPDATE_GOLDEN=1 rewrites the page from the golden files (after the tests that write those). */
#include "base/base.h"
#include "tests/check.h"
#include "tui/frame/frame.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char PAGE[] = TEST_SOURCE_DIR "/docs/dashboard.md";
static const char OPEN[] = "```text ", CLOSE[] = "```\n";

static char *file_text(const char *path)
{
    char *text = NULL;
    struct err why;
    if (file_read(&text, NULL, path, 1 << 20, &why)) fail_msg("%s", why.message);
    return text;
}

/* The page with every frame as it is drawn now; how many there are. */
static char *page_with_frames(const char *page, int *frames)
{
    struct str out = { 0 };
    *frames = 0;
    for (const char *at = page; *at;) {
        const char *begin = strstr(at, OPEN), *name = begin ? begin + strlen(OPEN) : NULL;
        const char *body = name ? strchr(name, '\n') : NULL, *end = body ? strstr(body, CLOSE) : NULL;
        if (!end) {
            if (begin) fail_msg("%s: a frame that does not end", PAGE);
            str_append(&out, at);
            break;
        }
        char path[600];
        snprintf(path, sizeof path, "%s/tests/golden/%.*s.txt", TEST_SOURCE_DIR, (int)(body - name), name);
        char *frame = file_text(path);
        str_append_n(&out, at, (size_t)(body + 1 - at));
        str_append(&out, frame);
        str_append(&out, CLOSE);
        free(frame);
        (*frames)++;
        at = end + strlen(CLOSE);
    }
    return str_take(&out);
}

static void frames_are_golden(void **state)
{
    (void)state;
    int frames;
    char *page = file_text(PAGE), *want = page_with_frames(page, &frames);
    CHECK_GE(frames, 6);
    if (getenv("QDYNO_UPDATE_GOLDEN")) {
        FILE *f = fopen(PAGE, "w");
        CHECK(f);
        CHECK_GE(fputs(want, f), 0);
        CHECK_EQ(fclose(f), 0);
    } else if (strcmp(page, want)) {
        size_t at = 0, line = 1;
        for (; page[at] == want[at]; at++) line += page[at] == '\n';
        fail_msg("%s:%zu is not what is drawn (QDYNO_UPDATE_GOLDEN=1 test_page writes it anew)", PAGE, line);
    }
    free(page);
    free(want);
}

static void levels_are_the_table(void **state)
{
    (void)state;
    char *page = file_text(PAGE), row[300];
    for (int i = 0; i < METRIC_LEVEL_COUNT; i++) {
        const struct metric_limits *l = &METRIC_LEVELS[i];
        const double warn = metric_limits_warn(l), times = l->bad < 2 ? 100 : 1;
        CHECK_LT(warn, l->bad);
        snprintf(row, sizeof row, "| %s | %g %s | %g %s |", l->what, warn * times, times > 1 ? "%" : "°C",
                 l->bad * times, times > 1 ? "%" : "°C");
        if (!strstr(page, row)) fail_msg("%s lacks the row %s", PAGE, row);
        CHECK_EQ(metric_level(l->metric, warn), LEVEL_GOOD);
        CHECK_EQ(metric_level(l->metric, warn * 1.01), LEVEL_WARN);
        CHECK_EQ(metric_level(l->metric, l->bad * 1.01), LEVEL_BAD);
    }
    CHECK_EQ(metric_level(METRIC_OTHERS_BUSY, (double)NAN), LEVEL_GOOD);
    free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(frames_are_golden),
                                        cmocka_unit_test(levels_are_the_table) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
