/* qdyno stories: writes stories of the grammar on which `train` trains, or tests whether texts are such
 * stories. For calibration, `eval`, and judging what a model generates. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/train/train.h"
#include "tui/cli/commands.h"

/* clang-format off */
const struct cli_flag FLAGS_STORIES[] = {
    { .name = "-n", .alias = "--count", .value = "N", .kind = FLAG_INT, .min = 1, .max = 1 << 24,
      .help = "number of stories; default 10" },
    { .name = "--split", .value = "SPLIT", .kind = FLAG_CHOICE, .choices = CORPUS_SPLIT_NAMES,
      .help = "part of the corpus; default held-out" },
    { .name = "--from", .value = "N", .kind = FLAG_INT, .max = 9e15,
      .help = "number of the first story; default 0" },
    { .name = "-f", .alias = "--file", .value = "FILE",
      .help = "test the texts in this file instead, one a line; - is standard input" },
    { .name = NULL },
};
/* clang-format on */

static const struct column COLUMNS[] = {
    COL("nats", "nats", .kind = COLUMN_NUM, .digits = 2),
    COL("chars", "characters", .kind = COLUMN_INT),
    COL("told", "valid characters", .kind = COLUMN_INT),
    COL("story", "story"),
};

DOCUMENT(STORIES, "qdyno.stories/1", COLUMNS);

static void table_add_story(struct table *t, const char *text, size_t n, double log_probability, size_t told)
{
    struct str line = { 0 };
    json_t *row = table_row(t);
    str_append_n(&line, text, n);
    json_put_num(row, "nats", -log_probability);
    json_put_int(row, "chars", (int64_t)n);
    json_put_int(row, "told", (int64_t)told);
    json_put_str(row, "story", str_text(&line));
    str_free(&line);
}

/* Writes stories: as plain text in md, else as rows with -log p. */
static enum err_code stories_write(const struct corpus *c, const struct cli_global *g,
                                   const struct cli_args *a, struct table *t)
{
    const char *split = args_text(a, "--split", CORPUS_SPLIT_NAMES[CORPUS_HELD_OUT]);
    struct story_id id = { .seed = g->seed, .number = (uint64_t)args_int(a, "--from", 0) };
    struct str s = { 0 };
    for (int i = 0; i < CORPUS_SPLIT_COUNT; i++)
        if (!strcmp(split, CORPUS_SPLIT_NAMES[i])) id.split = (enum corpus_split)i;
    for (int64_t n = args_int(a, "-n", 10); n > 0 && !s.failed && !cli_is_interrupted(g); n--, id.number++) {
        str_clear(&s);
        const double log_probability = corpus_story(c, id, &s);
        if (g->output == OUTPUT_MD)
            puts(str_text(&s));
        else
            table_add_story(t, str_text(&s), s.len, log_probability, s.len);
    }
    const bool failed = s.failed;
    str_free(&s);
    return failed ? ERR_NOMEM : ERR_OK;
}

/* Tests each line of -f: null in "nats" means that the grammar cannot produce it. */
static enum err_code stories_test(const struct corpus *c, const struct cli_args *a, struct table *t,
                                  struct err *why)
{
    char *text = NULL;
    size_t n = 0;
    int64_t ours = 0, lines = 0;
    enum err_code rc = cli_text(&text, &n, a, why);
    for (const char *at = text, *end; !rc && at < text + n; at = end + 1) {
        end = memchr(at, '\n', n - (size_t)(at - text));
        if (!end) end = text + n;
        if (end == at) continue;
        const struct corpus_score s = corpus_score(c, at, (size_t)(end - at));
        table_add_story(t, at, (size_t)(end - at), s.log_probability, s.told);
        ours += s.derivations > 0;
        lines++;
    }
    table_note(t, "%lld of %lld lines are stories of the grammar", (long long)ours, (long long)lines);
    free(text);
    return rc;
}

int command_stories(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct corpus *c = NULL;
    struct table t;
    const bool judging = args_has(a, "-f");
    int status = EXIT_DONE;
    table_init(&t, &DOCUMENT_STORIES);
    enum err_code rc = corpus_open(&c, &why);
    if (!rc) rc = judging ? stories_test(c, a, &t, &why) : stories_write(c, g, a, &t);
    if (rc == ERR_NOMEM && !judging) err_set(&why, rc, "out of memory");
    if (rc)
        status = cli_fail(a, &why);
    else if (judging || g->output != OUTPUT_MD)
        status = cli_print(g, a, &t, EXIT_DONE);
    table_done(&t);
    corpus_close(c);
    return status;
}
