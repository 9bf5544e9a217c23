/* command_advise_matrix.c - see command_advise.h. */
#include "tui/cli/command_advise.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"
#include "tui/cli/documents.h"

static const struct column COLUMNS[] = {
    COL("here", "here", .kind = COLUMN_BOOL),
    COL("memory", "memory"),
    COL("need", "need"),
    COL("config", "config"),
    COL("total_bytes", "memory it takes", .kind = COLUMN_BYTES),
    COL("fits", "fits", .kind = COLUMN_BOOL),
    COL("evidence", "evidence"),
    { .metric = &METRICS[METRIC_DECODE_RATE], .title = "decode tok/s", .digits = 1 },
    COL("decode_low_tok_s", "from", .kind = COLUMN_NUM, .digits = 1),
    COL("decode_high_tok_s", "to", .kind = COLUMN_NUM, .digits = 1),
    { .metric = &METRICS[METRIC_KLD], .title = "KLD, nats", .digits = 4 },
    COL("advice", "strategy"),
    KEY("reason"),
};

DOCUMENT(STRATEGIES, "qdyno.strategies/1", COLUMNS,
         .members = "model machine memory_bytes unchanged_bytes memory need");

enum { LINES = 32 };
struct lines {
    char text[LINES][CONFIG_LINE];
    const char *line[LINES];
    int n;
};

/* The config lines of a cell: its arms up to the first flag. Returns how many. */
static int strategy_lines(char out[][CONFIG_LINE], int most, const struct strategy *s)
{
    char arms[256], *rest = NULL;
    int n = 0;
    snprintf(arms, sizeof arms, "%s", s->arms);
    for (char *word = strtok_r(arms, " ", &rest); word && *word != '-' && n < most;
         word = strtok_r(NULL, " ", &rest))
        snprintf(out[n++], CONFIG_LINE, "%s", word);
    return n;
}

/* Every config line of the matrix once. */
static void lines_collect(struct lines *all)
{
    char some[4][CONFIG_LINE];
    for (int k = 0; k < STRATEGY_ROOMS * STRATEGY_NEEDS; k++) {
        const int n = strategy_lines(some, COUNT_OF(some),
                                     &STRATEGIES[k / STRATEGY_NEEDS][k % STRATEGY_NEEDS]);
        for (int i = 0; i < n; i++) {
            bool there = all->n == LINES;
            for (int j = 0; j < all->n; j++) there |= !strcmp(all->text[j], some[i]);
            if (!there) snprintf(all->text[all->n++], CONFIG_LINE, "%s", some[i]);
        }
    }
    for (int i = 0; i < all->n; i++) all->line[i] = all->text[i];
}

static const struct advice *advice_find(const struct advice *list, int n, const char *line)
{
    struct config c;
    char canonical[CONFIG_LINE];
    if (config_parse(&c, line, NULL)) return NULL;
    config_line(&c, canonical, sizeof canonical);
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].line, canonical)) return &list[i];
    return NULL;
}

static void row_put_advice(json_t *row, const struct advice *x)
{
    const struct prediction *p = x ? &x->prediction : NULL;
    json_put_str(row, "evidence", !x ? NULL : x->decode.runs ? "measured" : "predicted");
    if (p) json_put_int(row, "total_bytes", p->plan.total);
    if (p) json_put_bool(row, "fits", p->fits);
    row_put_metric(row, METRIC_DECODE_RATE, p ? p->decode_tok_s.estimate : NAN);
    json_put_num(row, "decode_low_tok_s", p ? p->decode_tok_s.lower : NAN);
    json_put_num(row, "decode_high_tok_s", p ? p->decode_tok_s.upper : NAN);
    row_put_metric(row, METRIC_KLD, x ? x->kld : NAN);
}

static void table_add_cell(struct table *t, int room, int need, bool here, const struct advice *list, int n)
{
    const struct strategy *s = &STRATEGIES[room][need];
    char some[4][CONFIG_LINE];
    const int lines = strategy_lines(some, COUNT_OF(some), s);
    for (int i = 0; i < lines; i++) {
        json_t *row = table_row(t);
        json_put_bool(row, "here", here);
        json_put_str(row, "memory", STRATEGY_ROOM_NAMES[room]);
        json_put_str(row, "need", STRATEGY_NEED_NAMES[need]);
        json_put_str(row, "config", some[i]);
        json_put_str(row, "advice", s->advice);
        json_put_str(row, "reason", s->reason);
        row_put_advice(row, advice_find(list, n, some[i]));
    }
}

static void note_matrix(struct table *t, const struct rule_case *c, int64_t have, int room, int need)
{
    char bytes[16], all[16];
    const struct strategy *s = &STRATEGIES[room][need];
    table_note(
        t,
        "memory: the unchanged model takes more than 90 %% of it (tight), less than half (ample), or between");
    if (have <= 0) {
        table_note(t,
                   "the memory of this machine is unknown, so no row is marked; give --limit memory=BYTES");
        return;
    }
    table_note(t, "here: the unchanged model takes %s of %s, goal %s",
               str_from_bytes(c->reference->plan.total, bytes, sizeof bytes),
               str_from_bytes(have, all, sizeof all), goal_name(c->goal));
    table_note(t, "    strategy: %s", s->advice);
    table_note(t, "    reason: %s", s->reason);
    struct str model = { 0 };
    word_append(&model, c->model);
    table_note(t, "    to verify: qdyno ab -m %s %s -w tg64", str_text(&model), s->arms);
    str_free(&model);
    table_note(
        t,
        "KLD: divergence from the reference, as earlier runs of this model measured it on the text that is set for it; "
        "--goal and --limit recommend another row");
}

int matrix_show(const struct cli_global *g, const struct cli_args *a, const struct rule_case *c,
                const struct advise_options *o)
{
    struct err why = { 0 };
    struct lines *all = calloc(1, sizeof *all);
    struct advice *list = NULL;
    struct table t;
    int n = 0;
    const struct format *f = format_find(c->shape->dominant_format);
    if (!all) return cli_fail_memory(a);
    lines_collect(all);
    struct advise_options lines = *o;
    lines.line = all->line;
    lines.lines = all->n;
    enum err_code rc = f && !format_is_full_precision(f->name)
                           ? err_set(
                                 &why, ERR_USAGE,
                                 "--matrix needs a model of 16 or 32 bits: this one is %s, and quantizing it "
                                 "again would add to its loss",
                                 quantization_short(c->shape))
                           : advise(&list, &n, c->model, c->machine, c->ceilings, &lines, &why);
    free(all);
    if (rc) return cli_fail(a, &why);
    const int64_t have = rule_case_memory(c);
    const int need = (int)strategy_need(c->goal),
              room = have > 0 ? (int)strategy_room(c->reference->plan.total, have) : -1;
    table_init(&t, &DOCUMENT_STRATEGIES);
    json_put_str(t.extra, "model", c->model);
    json_put_str(t.extra, "machine", c->machine->id);
    if (have > 0)
        json_put_int(t.extra, "memory_bytes", have);
    else
        json_put(t.extra, "memory_bytes", json_null());
    json_put_int(t.extra, "unchanged_bytes", c->reference->plan.total);
    json_put_str(t.extra, "memory", room >= 0 ? STRATEGY_ROOM_NAMES[room] : NULL);
    json_put_str(t.extra, "need", STRATEGY_NEED_NAMES[need]);
    for (int k = 0; k < STRATEGY_ROOMS * STRATEGY_NEEDS; k++)
        table_add_cell(&t, k / STRATEGY_NEEDS, k % STRATEGY_NEEDS, k == room * STRATEGY_NEEDS + need, list,
                       n);
    note_matrix(&t, c, have, MAX(room, 0), need);
    const int status = cli_finish(g, a, &t, EXIT_DONE);
    free(list);
    return status;
}
