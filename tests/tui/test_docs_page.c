/* Proves: the frames in docs/dashboard.md equal the golden files, so the page cannot become outdated. A block
 * that begins with "```text NAME" holds tests/golden/NAME.txt; there are at least six.
 *
 * QDYNO_UPDATE_GOLDEN=1 rewrites the page from the golden files (after the tests that write those). */
#include "base/base.h"
#include "tests/check.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(frames_are_golden) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
