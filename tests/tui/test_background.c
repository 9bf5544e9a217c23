/* Proves: jobs describe the files of a folder, with the reason for files that cannot be used; estimates for
 * config lines are those of the loader's plan; a command reports its progress, keeps its output and announces
 * how it ended; cancelling it sends an interrupt, so that it can keep what it has done; an A/B is drawn from
 * what its process reports, and the keys act on that process.
 *
 * Commands run this very program: with arguments it acts as the command. */
#include "tests/check.h"
#include "tests/tui/fixture.h"
#include "tui/dashboard/actions.h"
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
static char folder[] = "/tmp/qdyno-test-XXXXXX";

static void copy_file(const char *from, const char *to, size_t most)
{
    char *bytes = NULL, path[600];
    size_t n = 0;
    struct err why;
    CHECK_OK(file_read(&bytes, &n, from, 1 << 28, &why));
    snprintf(path, sizeof path, "%s/%s", folder, to);
    FILE *f = fopen(path, "w");
    CHECK(f);
    CHECK_EQ(fwrite(bytes, 1, MIN(n, most), f), MIN(n, most));
    CHECK(!fclose(f));
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
    j.text = path;
    job_list_folder(b, &j);
}

static struct background *background_new(void)
{
    struct background *b;
    struct err why;
    static char db[600];
    snprintf(db, sizeof db, "%s/q.db", folder);
    CHECK_OK(background_open(&b, db, &why));
    return b;
}

static void has_news(struct background *b, bool bad, const char *text)
{
    char news[256];
    bool is_bad;
    CHECK(background_take_message(b, news, sizeof news, &is_bad));
    CHECK_EQ(is_bad, bad);
    CHECK_CONTAINS(news, text);
}

static void folders(void **state)
{
    (void)state;
    char path[600];
    if (access(MODEL, R_OK)) {
        print_message("SKIPPED: no bundled model\n");
        skip();
    }
    struct background *b = background_new();
    snprintf(path, sizeof path, "%s/sub", folder);
    CHECK_EQ(mkdir(path, 0700), 0);
    copy_file(MODEL, "model.gguf", SIZE_MAX);
    copy_file(MODEL, "cut.gguf", 5000);
    copy_file(MODEL, "big-00002-of-00003.gguf", 5000); /* a later part of a split file is not listed */
    copy_file(MODEL, "notes.txt", 100);
    copy_file(MODEL, ".hidden.gguf", 100);
    snprintf(path, sizeof path, "%s/", folder);
    read_folder(b, path);
    const struct folder *f = &b->known.folder;
    CHECK(f->read);
    CHECK(!f->error[0]);
    CHECK_STR(f->path, path);
    assert_string_equal(f->entry[0].name, "../");
    CHECK(entry(f, "sub/"));
    CHECK_EQ(entry(f, "sub/")->kind, FILE_FOLDER);
    const struct file_entry *e = entry(f, "model.gguf");
    CHECK(e);
    CHECK(e->known);
    CHECK_EQ(e->kind, FILE_MODEL);
    CHECK(!e->trouble[0]);
    CHECK_GT(e->needs_bytes, e->bytes);
    assert_string_equal(e->arch, "llama");
    e = entry(f, "cut.gguf");
    CHECK(e);
    CHECK(e->known);
    CHECK_EQ(e->kind, FILE_NO_MODEL);
    CHECK(e->trouble[0]);
    CHECK_EQ(e->needs_bytes, -1);
    CHECK(entry(f, "notes.txt"));
    CHECK_EQ(entry(f, "notes.txt")->kind, FILE_OTHER);
    CHECK(!entry(f, ".hidden.gguf"));
    CHECK(!entry(f, "big-00002-of-00003.gguf"));
    read_folder(b, "/nowhere/");
    CHECK(f->read);
    CHECK_EQ(f->count, 0);
    CHECK_CONTAINS(f->error, "/nowhere/");
    /* a newer request cancels this one: the published folder stays the same */
    struct job late = { .id = background_want_folder(b) };
    late.text = path;
    background_want_folder(b);
    job_list_folder(b, &late);
    assert_string_equal(f->path, "/nowhere/");
    read_folder(b, ""); /* the list of places is never empty */
    CHECK_GT(f->count, 0);
    CHECK(entry(f, "/"));
    background_close(b);
}

static void lines_are_judged(void **state)
{
    (void)state;
    if (access(MODEL, R_OK)) skip();
    struct background *b = background_new();
    static struct form form;
    struct job model = { .run = job_read_model }, j = { .form = &form };
    model.text = MODEL;
    job_read_model(b, &model);
    CHECK_GT(b->known.recipes.count, 20);
    int made = 0, same = 0;
    for (int i = 0; i < b->known.recipes.count; i++) {
        const struct recipe_row *o = &b->known.recipes.row[i];
        made += o->file_bytes > 0 && o->bits > 0;
        same += o->identity;
        CHECK(o->file_bytes > 0 || o->identity || o->refusal[0]);
    }
    CHECK_GT(made, 10);
    CHECK_EQ(same, 1); /* f16, the format of the file */
    form_show(&form, FORM_AB, (const char *const[FORM_FIELDS]){ "ctk=", NULL, "tg64" });
    j.text = MODEL;
    job_estimate_lines(b, &j);
    const struct line_estimates *said = &b->known.estimates;
    assert_string_equal(said->text, "ctk=");
    CHECK_EQ(said->cursor, 4);
    CHECK_GT(said->count, 3);
    CHECK_EQ(said->total_bytes, -1);
    int64_t f32 = 0, f16 = 0;
    for (int i = 0; i < said->count; i++) {
        if (!strcmp(said->variant[i].text, "f32")) f32 = said->variant[i].total_bytes;
        if (!strcmp(said->variant[i].text, "f16")) f16 = said->variant[i].total_bytes;
        CHECK(said->variant[i].total_bytes > 0 || said->variant[i].refusal[0]);
    }
    CHECK_GT(f32, f16);
    CHECK_GT(f16, 0); /* wider KV types need more */
    background_close(b);
}

/* A bug: what the command refuses of one arm was not said while another arm had a mistake in its text. */
static void each_arm_is_checked(void **state)
{
    (void)state;
    if (access(MODEL, R_OK)) skip();
    struct background *b = background_new();
    static struct form form;
    form_show(&form, FORM_AB,
              (const char *const[FORM_FIELDS]){ "nonsense=", "model=/nowhere/b.gguf", "tg64" });
    const struct job j = { .text = MODEL, .form = &form, .id = 5 };
    background_want_check(b, 5);
    job_check_form(b, &j);
    CHECK_EQ(b->known.checked.of, 5);
    CHECK(form.field[AB_A].error[0]);
    CHECK_STR(b->known.checked.refusal[AB_A], ""); /* the field says it */
    CHECK_CONTAINS(b->known.checked.refusal[AB_B], "/nowhere/b.gguf");
    CHECK_EQ(b->known.forecast_of, 0); /* there is nothing to forecast */
    background_close(b);
}

/* A bug: results of the last model stood beside the facts of the new one. */
static void another_model_forgets_the_last(void **state)
{
    (void)state;
    struct background *b = background_new();
    struct job j = { .run = job_read_model };
    struct snapshot *s = &b->known;
    s->quality.count = s->load.lines = s->advice_count = s->recent_count = s->sensitivity.maps = 1;
    s->stopped_ab.id = 7;
    s->estimates.decode_tok_s = 57.7;
    snprintf(s->applied, sizeof s->applied, "threads=1");
    j.text = "/nowhere/other.gguf";
    job_read_model(b, &j);
    CHECK_STR(s->model_path, "/nowhere/other.gguf");
    CHECK_EQ(s->quality.count, -1);
    CHECK_EQ(s->load.lines, -1);
    CHECK_EQ(s->advice_count + s->recent_count + s->sensitivity.maps, 0);
    CHECK_EQ(s->stopped_ab.id, 0);
    CHECK(isnan(s->estimates.decode_tok_s));
    CHECK_STR(s->applied, "");
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

/* Finishes while a request to pause waits, and goes on until it is interrupted. */
static void finish_while_asked_to_pause(json_t *line, json_t *ab)
{
    sigset_t waiting, cont;
    sigemptyset(&waiting);
    sigemptyset(&cont);
    sigaddset(&cont, SIGCONT);
    for (int i = 0; i < 6000 && !sigismember(&waiting, SIGTSTP); i++) {
        clock_sleep_ns(10000000);
        sigpending(&waiting);
    }
    json_put_str(ab, "phase", "done");
    fprintf(stderr, "%s\n", json_line(line));
    printf("%s\n",
           sigtimedwait(&cont, NULL, &(struct timespec){ 60, 0 }) == SIGCONT ? "continued" : "not continued");
    for (int i = 0; i < 6000 && !interrupted; i++) clock_sleep_ns(10000000);
}

/* Plays `qdyno ab WHAT`: reports a run that is not stored yet; "pause" waits for SIGTSTP, "late" finishes
 * first, and "changes" waits for a change of its load. */
static int play_ab(const char *what)
{
    struct experiment_state *s = calloc(1, sizeof *s);
    struct experiment_spec spec = { .arms = 2 };
    struct err why;
    sigset_t stop;
    char line[256] = "";
    if (!s || workload_parse(&spec.workload, "tg8", &why) || config_parse(&spec.config[0], "default", &why) ||
        config_parse(&spec.config[1], "threads=1", &why))
        return 5;
    json_t *given = experiment_spec_to_json(&spec);
    json_t *ab = json_object();
    json_t *o = json_pack("{s:s, s:o}", "schema", "qdyno.progress/1", "ab", ab);
    json_put_str(ab, "phase", "loading");
    json_put(ab, "spec", given);
    json_put_int(ab, "arm", 1);
    json_put_str(ab, "cell", "load");
    json_put(ab, "events",
             json_pack("[{s:I, s:s, s:s}]", "unix_ms", (json_int_t)1000, "kind", "discard", "text",
                       "it was disturbed"));
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    sigaddset(&stop, SIGCONT);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    fprintf(stderr, "%s\n", json_line(o));
    if (!strcmp(what, "pause")) printf("signal %d\n", sigwaitinfo(&stop, NULL));
    if (!strcmp(what, "killed")) raise(SIGKILL);
    for (int i = 0; i < 20 && !strcmp(what, "unread"); i++) {
        json_object_del(ab, "spec");
        json_put_int(ab, "run", 77);
        json_put_int(ab, "block", i);
        fprintf(stderr, "%s\n", json_line(o));
    }
    if (!strcmp(what, "late")) finish_while_asked_to_pause(o, ab);
    if (!strcmp(what, "changes")) {
        FILE *f = fdopen(PROCESS_CHANNEL_FD, "r");
        while (f && !fgets(line, sizeof line, f) && !interrupted) clock_sleep_ns(1000000), clearerr(f);
        printf("%s", line);
    }
    printf("the last line\n");
    return 5;
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
    if (argc > 1 && !strcmp(argv[1], "ab")) return play_ab(what);
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

static void command(struct background *b, const char *line, int64_t show)
{
    const struct job j = { .id = show, .command = fixture_words(line) };
    b->known.command = j.command;
    job_run_command(b, &j);
    CHECK(!b->known.command.n);
    CHECK(!b->command_pid);
    CHECK(!b->known.task_known); /* nothing of the command is left */
}

static void commands(void **state)
{
    (void)state;
    struct background *b = background_new();
    command(b, "fake ok", 1);
    CHECK_EQ(b->known.page.number, 1);
    CHECK(b->known.page.opens);
    CHECK_EQ(b->known.page.count, 2);
    assert_string_equal(b->known.page.line[0].text, "| a | table |"); /* progress lines are not output */
    has_news(b, false, "finished");
    bool logged = false; /* the log has the sentences of a command, and not the rows of its table */
    for (int i = 0; i < b->known.log_count; i++) {
        logged |= !strcmp(b->known.log[i].text, "| the last line");
        CHECK_LACKS(b->known.log[i].text, "| table |");
    }
    CHECK(logged);
    command(b, "fake ok --out /tmp/x.html", 0);
    CHECK_EQ(b->known.page.number, 2);
    CHECK(!b->known.page.opens);
    has_news(b, false, "/tmp/x.html has been written");
    command(b, "fake worse", 0); /* status 1 is an answer, not a failure */
    has_news(b, false, "status 1");
    command(b, "fake bad --out /tmp/x.html", 0);
    has_news(b, true, "the last line");
    background_close(b);
}

static void cancelled(void **state)
{
    (void)state;
    struct waiting w = { .b = background_new() };
    bool reported = false;
    pthread_t thread;
    w.j.command = fixture_words("fake long");
    CHECK(!background_cancel_command(w.b));
    CHECK(!pthread_create(&thread, NULL, run, &w));
    for (int i = 0; i < 3000 && !reported; i++) {
        pthread_mutex_lock(&w.b->lock);
        reported = w.b->known.task_known && w.b->known.task.done == 0.5 &&
                   !strcmp(w.b->known.task.unit, "x/s");
        pthread_mutex_unlock(&w.b->lock);
        clock_sleep_ns(10000000);
    }
    CHECK(reported);
    CHECK(background_cancel_command(w.b));
    pthread_join(thread, NULL);
    has_news(w.b, false, "cancelled: qdyno fake: half done, kept");
    background_close(w.b);
}

/* ---------------------------------------------------------------- an A/B */

/* Wait until the process has reported its A/B. */
static void wait_for_ab(struct background *b, struct experiment_state *s)
{
    bool live = false, taken = false;
    for (int i = 0; i < 3000 && !taken; i++) {
        taken = background_take_loaded(b, s, &live);
        if (!taken) clock_sleep_ns(10000000);
    }
    CHECK(taken && live);
}

/* A running A/B is drawn from what its process reports; the keys act on that process; one that ends without a
 * stored run leaves its error. */
static void an_ab_is_a_process(void **state)
{
    (void)state;
    static const char *const WHAT[] = { "ab pause", "ab changes" };
    struct experiment_state *s = calloc(1, sizeof *s);
    bool live, disturbed = false;
    CHECK(s);
    for (int i = 0; i < 2; i++) {
        struct waiting w = { .b = background_new() };
        pthread_t thread;
        w.j.command = fixture_words(WHAT[i]);
        w.b->known.experiment_starting = true;
        CHECK(!background_pause_command(w.b, true));
        CHECK(!background_change_load(w.b, 1.25, ""));
        CHECK(!pthread_create(&thread, NULL, run, &w));
        wait_for_ab(w.b, s);
        CHECK_EQ(s->phase, PHASE_LOADING);
        CHECK_EQ(s->running_arm, 1);
        CHECK_STR(s->arm[1].line, "threads=1");
        CHECK_STR(s->cell_phase, "load");
        CHECK(i ? background_change_load(w.b, 1.25, "evict=lru") : background_pause_command(w.b, true));
        pthread_join(thread, NULL);
        CHECK_CONTAINS(w.b->known.page.line[0].text,
                       i ? "{\"rate_by\":1.25,\"settings\":\"evict=lru\"}" : "signal 20");
        CHECK(!w.b->known.experiment_starting);
        CHECK(background_take_loaded(w.b, s, &live));
        CHECK_EQ(s->phase, PHASE_FAILED);
        CHECK_STR(s->error, "the last line");
        has_news(w.b, true, "A/B failed: the last line");
        for (int k = 0; k < w.b->known.log_count; k++)
            disturbed |= w.b->known.log[k].disturbed && w.b->known.log[k].unix_ms == 1000 &&
                         !strcmp(w.b->known.log[k].text, "it was disturbed");
        CHECK(disturbed);
        background_close(w.b);
    }
    free(s);
}

/* Its end is said even if it wrote nothing, or if its blocks cannot be read: the log says once why. */
static void an_ab_that_left_little(void **state)
{
    (void)state;
    struct experiment_state *s = calloc(1, sizeof *s);
    struct background *b = background_new();
    bool live;
    int reasons = 0;
    CHECK(s);
    command(b, "ab killed", 0);
    has_news(b, true, "A/B failed: its process was ended by signal 9");
    command(b, "ab unread", 0);
    has_news(b, true, "run 77 has ended, and what it stored cannot be read: ");
    CHECK(background_take_loaded(b, s, &live));
    CHECK(!live);
    CHECK_EQ(s->run_id, 77);
    CHECK_STR(s->arm[1].line, "threads=1");
    for (int i = 0; i < b->known.log_count; i++)
        reasons += strstr(b->known.log[i].text, "the blocks of run 77") != NULL;
    CHECK_EQ(reasons, 1);
    free(s);
    background_close(b);
}

/* A pause of a finished A/B is taken back, then refused; quitting continues one stopped after a cancel. */
static void a_finished_ab_is_not_paused(void **state)
{
    (void)state;
    struct waiting w = { .b = background_new() };
    struct experiment_state *s = calloc(1, sizeof *s);
    bool pausable = true;
    pthread_t thread;
    CHECK(s);
    w.j.command = fixture_words("ab late");
    CHECK(!pthread_create(&thread, NULL, run, &w));
    wait_for_ab(w.b, s);
    CHECK(background_pause_command(w.b, true));
    for (int i = 0; i < 3000 && pausable; i++) {
        clock_sleep_ns(10000000);
        background_lock(w.b);
        pausable = w.b->pausable;
        background_unlock_if(w.b, false);
    }
    CHECK(!pausable);
    CHECK(!background_pause_command(w.b, true));
    background_lock(w.b);
    w.b->known.task_cancelled = true;
    CHECK(w.b->command_pid > 0);
    kill(w.b->command_pid, SIGSTOP);
    kill(w.b->command_pid, SIGINT);
    background_unlock_if(w.b, false);
    CHECK(background_end_command(w.b));
    pthread_join(thread, NULL);
    CHECK_STR(w.b->known.page.line[0].text, "continued");
    free(s);
    background_close(w.b);
}

/* ---------------------------------------------------------------- what is shown is what starts */

static const char ARGV_FILE[] = "started";

/* Plays any command: writes its words, each on a line. */
static int write_words(int argc, char **argv)
{
    FILE *f = fopen(getenv("TEST_ARGV"), "w");
    if (!f) return 9;
    for (int i = 0; i < argc; i++) fprintf(f, "%s\n", argv[i]);
    return fclose(f) ? 9 : 0;
}

/* Run the command of an effect as the dashboard does, and compare the words that the process got with the
 * line that the screen shows, as a shell would read it. */
static void check_started(const struct effect *e, const char *const longest[])
{
    struct background *b = background_new();
    const struct job j = { .command = e->command };
    struct str shown = { 0 }, started = { 0 };
    const struct ui u = { .db_path = NULL };
    struct arena arena = { 0 };
    struct words want = { .arena = &arena };
    struct err why;
    char *text = NULL;
    size_t n;
    const bool ab = words_run(&e->command, "ab");
    CHECK_EQ(e->requests, REQUEST_RUN_COMMAND);
    command_print(&shown, &u, &e->command);
    CHECK_OK(words_put_line(&want, str_text(&shown), &why));
    for (int i = 0; i < want.n; i++) str_printf(&started, "%s\n", words_at(&want, i));
    str_printf(&started, "--progress=json\n%s--db\n%s\n", ab ? "--load-changes=/dev/fd/3\n" : "", b->db_path);
    setenv("TEST_ARGV", ARGV_FILE, 1);
    job_run_command(b, &j);
    unsetenv("TEST_ARGV");
    CHECK_OK(file_read(&text, &n, ARGV_FILE, 1 << 20, &why));
    CHECK_STR(text, str_text(&started));
    for (; *longest; longest++) CHECK(words_have(&want, *longest)); /* as it was typed */
    free(text);
    str_free(&shown);
    str_free(&started);
    arena_free(&arena);
    background_close(b);
}

static const char *long_text(char *buf, int bytes, const char *begin, const char *end)
{
    memset(buf, 'x', (size_t)bytes);
    memcpy(buf, begin, strlen(begin));
    snprintf(buf + bytes - (int)strlen(end), strlen(end) + 1, "%s", end);
    return buf;
}

/* A bug: a command was cut at 639 bytes and the rest of it ran, so that hqq,bits=8 wrote 4 bits. */
static void what_is_shown_starts_whole(void **state)
{
    (void)state;
    struct snapshot *s = fixture_running(), *idle = fixture_idle();
    struct ui u = { .view = VIEW_MODEL };
    char out[FORM_TEXT], calib[FORM_TEXT], line[FORM_TEXT];
    long_text(out, 1000, "/tmp/it's a ", ".gguf");
    long_text(calib, 1000, "/tmp/", ".gguf");
    char value[480];
    long_text(value, 470, "/", "x");
    snprintf(line, sizeof line, "parallel=tp2,calib=%s,hosts=%s,model=%s,tensors=attn_v:q6_K", value, value,
             value);
    for (int i = 0; strlen(line) < 1900; i++) snprintf(line + strlen(line), 32, ";ffn_down@%d:q6_K", i);
    CHECK_GE(strlen(line), 1900); /* it was once kept in 640 bytes and parsed again */
    form_show(&u.form, FORM_QUANTIZE, (const char *const[FORM_FIELDS]){ "hqq,bits=8", calib, out });
    struct effect e = { 0 };
    CHECK(action_run_form(&u, s, &e));
    check_started(&e, (const char *const[]){ "-R", "hqq,bits=8", calib, out, NULL });

    u.view = VIEW_ADVICE;
    u.selected[VIEW_ADVICE] = 1;
    snprintf(s->advice[1].line, sizeof s->advice[1].line, "%s", line);
    snprintf(s->applied, sizeof s->applied, "%s", line);
    action_apply(&u, s);
    e = action_answer(&u, idle, true);
    check_started(&e, (const char *const[]){ "apply", line, NULL });

    form_show(&u.form, FORM_AB, (const char *const[FORM_FIELDS]){ s->applied, "default", "tg64" });
    e = effect_start(DO_NEW_AB, &u, s, REQUEST_RUN_COMMAND);
    check_started(&e, (const char *const[]){ "ab", line, NULL });
    arena_free(&u.texts);
    free(idle);
    free(s);
}

int main(int argc, char **argv)
{
    if (getenv("TEST_ARGV")) return write_words(argc, argv);
    if (argc > 1 && (!strcmp(argv[1], "fake") || !strcmp(argv[1], "ab"))) return play(argc, argv);
    const struct CMUnitTest tests[] = { cmocka_unit_test(folders),
                                        cmocka_unit_test(lines_are_judged),
                                        cmocka_unit_test(each_arm_is_checked),
                                        cmocka_unit_test(another_model_forgets_the_last),
                                        cmocka_unit_test(commands),
                                        cmocka_unit_test(cancelled),
                                        cmocka_unit_test(an_ab_is_a_process),
                                        cmocka_unit_test(a_finished_ab_is_not_paused),
                                        cmocka_unit_test(an_ab_that_left_little),
                                        cmocka_unit_test(what_is_shown_starts_whole) };
    char line[64];
    /* The list of places and commands use the working directory: it is the same wherever the test starts. */
    if (!mkdtemp(folder) || chdir(folder)) return 1;
    setenv("XDG_CONFIG_HOME", folder, 1);
    setenv("XDG_DATA_HOME", folder, 1);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(line, sizeof line, "rm -rf %s", folder);
    return system(line) ? 1 : failed;
}
