/* Proves: a folder is told as what its files are, with the reason for those that are of no use; offers of a
 * line are judged by the loader; a command beside the dashboard tells how far it is, what it wrote is kept,
 * its end is told as it was, and cancelling it is an interrupt that lets it keep what it has.
 *
 * Commands run this very program: with arguments it plays the command. */
#include "tests/check.h"
#include "tui/dashboard/background.h"
#include "tui/forms/forms.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char MODEL[] = TEST_SOURCE_DIR "/share/models/bundled.gguf";
static char folder[] = "/tmp/qdyno-board-XXXXXX";

static void copy_file(const char *from, const char *to, size_t most)
{
    char *bytes = NULL, path[600];
    size_t n = 0;
    struct err why;
    CHECK_OK(file_read(&bytes, &n, from, 1 << 28, &why));
    snprintf(path, sizeof path, "%s/%s", folder, to);
    FILE *f = fopen(path, "w");
    CHECK(f && fwrite(bytes, 1, MIN(n, most), f) == MIN(n, most) && !fclose(f));
    free(bytes);
}

static const struct file_entry *entry(const struct folder *f, const char *name)
{
    for (int i = 0; i < f->count; i++)
        if (!strcmp(f->entry[i].name, name)) return &f->entry[i];
    return NULL;
}

static void read_folder(struct background *b, const char *path)
{
    struct job j = { .id = background_want_folder(b) };
    snprintf(j.text[0], sizeof j.text[0], "%s", path);
    job_list_folder(b, &j);
}

static struct background *board_new(void)
{
    struct background *b;
    struct err why;
    static char db[600];
    snprintf(db, sizeof db, "%s/q.db", folder);
    CHECK_OK(background_open(&b, db, &why));
    return b;
}

static void folders(void **state)
{
    (void)state;
    char path[600];
    if (access(MODEL, R_OK)) {
        print_message("SKIPPED: no bundled model\n");
        skip();
    }
    struct background *b = board_new();
    snprintf(path, sizeof path, "%s/sub", folder);
    CHECK(mkdir(path, 0700) == 0);
    copy_file(MODEL, "model.gguf", SIZE_MAX);
    copy_file(MODEL, "cut.gguf", 5000);
    copy_file(MODEL, "big-00002-of-00003.gguf", 5000); /* a part: its first one stands for it */
    copy_file(__FILE__, "notes.txt", SIZE_MAX);
    copy_file(__FILE__, ".hidden.gguf", SIZE_MAX);
    snprintf(path, sizeof path, "%s/", folder);
    read_folder(b, path);
    const struct folder *f = &b->known.folder;
    CHECK(f->read && !f->error[0] && !strcmp(f->path, path));
    assert_string_equal(f->entry[0].name, "../");
    CHECK(entry(f, "sub/") && entry(f, "sub/")->kind == FILE_FOLDER);
    const struct file_entry *e = entry(f, "model.gguf");
    CHECK(e && e->known && e->kind == FILE_MODEL && !e->trouble[0] && e->needs_bytes > e->bytes);
    assert_string_equal(e->arch, "llama");
    e = entry(f, "cut.gguf");
    CHECK(e && e->known && e->kind == FILE_NO_MODEL && e->trouble[0] && e->needs_bytes == -1);
    CHECK(entry(f, "notes.txt") && entry(f, "notes.txt")->kind == FILE_OTHER);
    CHECK(!entry(f, ".hidden.gguf") && !entry(f, "big-00002-of-00003.gguf"));
    read_folder(b, "/nowhere/");
    CHECK(f->read && f->count == 0 && strstr(f->error, "/nowhere/"));
    /* another folder is wanted before this one is looked at: it stays what it was */
    struct job late = { .id = background_want_folder(b) };
    snprintf(late.text[0], sizeof late.text[0], "%s", path);
    background_want_folder(b);
    job_list_folder(b, &late);
    assert_string_equal(f->path, "/nowhere/");
    read_folder(b, ""); /* the places: always some */
    CHECK(f->count > 0 && entry(f, "/"));
    background_close(b);
}

static void lines_are_judged(void **state)
{
    (void)state;
    if (access(MODEL, R_OK)) skip();
    struct background *b = board_new();
    struct job model = { .run = job_read_model }, j = { .id = 4 };
    snprintf(model.text[0], sizeof model.text[0], "%s", MODEL);
    job_read_model(b, &model);
    CHECK(b->known.recipes.count > 20);
    int made = 0, same = 0;
    for (int i = 0; i < b->known.recipes.count; i++) {
        const struct recipe_row *o = &b->known.recipes.row[i];
        made += o->file_bytes > 0 && o->bits > 0;
        same += o->identity;
        CHECK(o->file_bytes > 0 || o->identity || o->refusal[0]);
    }
    CHECK(made > 10 && same == 1); /* f16, which the file is */
    snprintf(j.text[0], sizeof j.text[0], "ctk=");
    snprintf(j.text[1], sizeof j.text[1], "%s", MODEL);
    snprintf(j.text[2], sizeof j.text[2], "tg64");
    job_estimate_lines(b, &j);
    const struct line_estimates *said = &b->known.estimates;
    assert_string_equal(said->text, "ctk=");
    CHECK(said->cursor == 4 && said->count > 3 && said->total_bytes == -1);
    int64_t f32 = 0, f16 = 0;
    for (int i = 0; i < said->count; i++) {
        if (!strcmp(said->variant[i].text, "f32")) f32 = said->variant[i].total_bytes;
        if (!strcmp(said->variant[i].text, "f16")) f16 = said->variant[i].total_bytes;
        CHECK(said->variant[i].total_bytes > 0 || said->variant[i].refusal[0]);
    }
    CHECK(f32 > f16 && f16 > 0); /* wider keys take more */
    background_close(b);
}

/* ---------------------------------------------------------------- commands */

/* Plays a command: fake WHAT. */
static volatile sig_atomic_t interrupted;
static void on_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

static int play(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[2] : "";
    bool json = false, db = false;
    signal(SIGINT, on_interrupt);
    for (int i = 3; i < argc; i++) {
        json |= !strcmp(argv[i], "--progress=json");
        db |= !strcmp(argv[i], "--db");
    }
    if (!json || !db) return 4;
    fprintf(stderr,
            "{\"schema\":\"qdyno.progress/1\",\"text\":\"playing\",\"done\":0.5,\"rate\":2,\"unit\":\"x/s\","
            "\"left_s\":3}\n");
    if (!strcmp(what, "long")) {
        while (!interrupted) clock_sleep_ns(10000000);
        fprintf(stderr, "qdyno fake: half done, kept; the same command goes on from there\n");
        return 130;
    }
    printf("| a | table |\nthe last line\n");
    return !strcmp(what, "worse") ? 1 : !strcmp(what, "bad") ? 5 : 0;
}

struct waiting {
    struct background *b;
    struct job j;
};

static void *run(void *arg)
{
    struct waiting *w = arg;
    job_run_command(w->b, &w->j);
    return NULL;
}

static void command(struct background *b, const char *line, const char *makes, int64_t show)
{
    struct job j = { .id = show };
    snprintf(j.text[0], sizeof j.text[0], "%s", line);
    snprintf(j.text[2], sizeof j.text[2], "%s", makes);
    snprintf(b->known.command, sizeof b->known.command, "%s", line);
    job_run_command(b, &j);
    CHECK(!b->known.command[0] && !b->command_pid && !b->known.task_known); /* nothing of it is left */
}

static void commands(void **state)
{
    (void)state;
    struct background *b = board_new();
    char news[256];
    bool bad;
    command(b, "fake ok", "", 1);
    CHECK(b->known.page.number == 1 && b->known.page.opens && b->known.page.count == 2);
    assert_string_equal(b->known.page.line[0].text, "| a | table |"); /* progress is no output */
    CHECK(background_take_message(b, news, sizeof news, &bad) && !bad && strstr(news, "done"));
    command(b, "fake ok", "/tmp/x.html", 0);
    CHECK(b->known.page.number == 2 && !b->known.page.opens);
    CHECK(background_take_message(b, news, sizeof news, &bad) && !bad &&
          strstr(news, "/tmp/x.html is written"));
    command(b, "fake worse", "", 0); /* an answer, not a failure */
    CHECK(background_take_message(b, news, sizeof news, &bad) && !bad && strstr(news, "status 1"));
    command(b, "fake bad", "/tmp/x.html", 0);
    CHECK(background_take_message(b, news, sizeof news, &bad) && bad && !strcmp(news, "the last line"));
    command(b, "fake 'open", "", 0);
    CHECK(background_take_message(b, news, sizeof news, &bad) && bad && strstr(news, "quote"));
    background_close(b);
}

static void cancelled(void **state)
{
    (void)state;
    struct waiting w = { .b = board_new() };
    char news[256];
    bool bad, told = false;
    pthread_t thread;
    snprintf(w.j.text[0], sizeof w.j.text[0], "fake long");
    CHECK(!background_cancel_command(w.b));
    CHECK(!pthread_create(&thread, NULL, run, &w));
    for (int i = 0; i < 3000 && !told; i++) {
        pthread_mutex_lock(&w.b->lock);
        told = w.b->known.task_known && w.b->known.task.done == 0.5 && !strcmp(w.b->known.task.unit, "x/s");
        pthread_mutex_unlock(&w.b->lock);
        clock_sleep_ns(10000000);
    }
    CHECK(told && background_cancel_command(w.b));
    pthread_join(thread, NULL);
    CHECK(background_take_message(w.b, news, sizeof news, &bad) && !bad); /* asked for: no error */
    CHECK(strstr(news, "cancelled") && strstr(news, "kept"));
    background_close(w.b);
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "fake")) return play(argc, argv);
    const struct CMUnitTest tests[] = { cmocka_unit_test(folders), cmocka_unit_test(lines_are_judged),
                                        cmocka_unit_test(commands), cmocka_unit_test(cancelled) };
    char line[64];
    if (!mkdtemp(folder)) return 1;
    setenv("XDG_CONFIG_HOME", folder, 1);
    setenv("XDG_DATA_HOME", folder, 1);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(line, sizeof line, "rm -rf %s", folder);
    return system(line) ? 1 : failed;
}
