/* qdyno advise: configs for this machine, or for one described in a file, with predicted numbers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tui/cli/described.h"
#include "tui/cli/rows.h"

const struct cli_flag FLAGS_ADVISE[] = {
    FLAG_MODEL_ROW,
    { "--goal", NULL, "GOAL", "what to rank by; default balanced", FLAG_CHOICE, 0, 0, GOAL_NAMES },
    { "--limit", NULL, "memory=BYTES", "memory a config may take, e.g. memory=8G", FLAG_TEXT },
    { "--target", NULL, "tok_s=N", "decode rate to reach, e.g. tok_s=50", FLAG_TEXT },
    { "-c", "--ctx-size", "N", "context in tokens; default the model's own, at most 4096", FLAG_INT, 1,
      1 << 24 },
    { "--top", NULL, "N", "show the N best; default 8", FLAG_INT, 1, 10000 },
    { "--machine", NULL, "DIR|FILE",
      "advise for the machine of `qdyno detect --probe --record DIR`, or of `qdyno detect --probe -o json > FILE`",
      FLAG_TEXT },
    { NULL },
};

static const struct column COLUMNS[] = {
    { "rank", "#", COLUMN_INT },
    { "config", "config", COLUMN_TEXT },
    { "decode_tok_s", "decode tok/s", COLUMN_NUM, 1, 1 },
    { "decode_low_tok_s", "from", COLUMN_NUM, 1, 1 },
    { "decode_high_tok_s", "to", COLUMN_NUM, 1, 1 },
    { "prefill_tok_s", "prefill tok/s", COLUMN_NUM, 1, 0 },
    { "prefill_low_tok_s", "from", COLUMN_NUM, 1, 0 },
    { "prefill_high_tok_s", "to", COLUMN_NUM, 1, 0 },
    { "decode_limit_tok_s", NULL, COLUMN_NUM },
    { "prefill_limit_tok_s", NULL, COLUMN_NUM },
    { "total_bytes", "memory", COLUMN_BYTES },
    { "fits", "fits", COLUMN_BOOL },
    { "score", NULL, COLUMN_NUM },
    { "reason", NULL, COLUMN_TEXT },
    { "caution", NULL, COLUMN_TEXT },
    { "check", NULL, COLUMN_TEXT },
};

/* "memory=8G" or "tok_s=50": the value behind the key, or a message that says what the key must be. */
static enum err_code key_value(const char *flag, const char *text, const char *key, const char **value,
                               struct err *why)
{
    size_t n = strlen(key);
    if (strncmp(text, key, n) || text[n] != '=')
        return err_set(why, ERR_USAGE, "%s %s: want %s=VALUE", flag, text, key);
    *value = text + n + 1;
    return ERR_OK;
}

static enum err_code read_options(struct advise_options *o, const struct cli_args *a, struct err *why)
{
    const char *limit = args_text(a, "--limit", NULL), *target = args_text(a, "--target", NULL), *value;
    enum err_code rc = ERR_OK;
    goal_parse(args_text(a, "--goal", "balanced"), &o->goal);
    o->ctx = (int)args_int(a, "-c", 0);
    if (limit && !(rc = key_value("--limit", limit, "memory", &value, why)) &&
        (!str_to_bytes(value, &o->memory_limit) || o->memory_limit <= 0))
        rc = err_set(why, ERR_USAGE, "--limit memory=%s: want bytes such as 512M or 8G", value);
    if (!rc && target && !(rc = key_value("--target", target, "tok_s", &value, why)) &&
        (!str_to_double(value, &o->target_tok_s) || !(o->target_tok_s > 0) || !isfinite(o->target_tok_s)))
        rc = err_set(why, ERR_USAGE, "--target tok_s=%s: want a number above 0", value);
    return rc;
}

/* A machine that somebody else measured. Advice needs its ceilings. */
static enum err_code another_machine(struct described *d, const char *path, struct err *why)
{
    enum err_code rc = described_open(d, path, why);
    if (rc || d->ceilings_known) return rc;
    described_close(d);
    return err_set(why, ERR_FORMAT, "--machine %s: it holds no measured ceilings: make it there with --probe",
                   path);
}

static void add(struct table *t, const struct advice *x, int rank)
{
    const struct prediction *p = &x->prediction;
    json_t *row = table_row(t);
    json_put_int(row, "rank", rank);
    json_put_str(row, "config", x->line);
    json_put_num(row, "decode_tok_s", p->decode_tok_s);
    json_put_num(row, "decode_low_tok_s", p->decode_low);
    json_put_num(row, "decode_high_tok_s", p->decode_high);
    json_put_num(row, "prefill_tok_s", p->prefill_tok_s);
    json_put_num(row, "prefill_low_tok_s", p->prefill_low);
    json_put_num(row, "prefill_high_tok_s", p->prefill_high);
    json_put_num(row, "decode_limit_tok_s", p->decode_limit_tok_s);
    json_put_num(row, "prefill_limit_tok_s", p->prefill_limit_tok_s);
    json_put_int(row, "total_bytes", p->plan.total);
    json_put_bool(row, "fits", p->fits);
    json_put_num(row, "score", x->score);
    json_put_str(row, "reason", x->reason);
    json_put_str(row, "caution", *x->caution ? x->caution : NULL);
    json_put_str(row, "check", x->check);
    table_note(t, "%d %s", rank, x->line);
    table_note(t, "    why: %s", x->reason);
    if (*x->caution) table_note(t, "    caution: %s", x->caution);
    table_note(t, "    check: %s", x->check);
}

static void describe_model(struct table *t, const char *path)
{
    struct gguf *file = NULL;
    struct model_shape shape;
    if (!gguf_open(&file, path, NULL) && !model_shape_read(&shape, file, NULL)) {
        json_put_bool(t->extra, "random_weights", shape.random_weights);
        if (shape.random_weights) table_note(t, "%s", RANDOM_WEIGHTS);
    }
    gguf_close(file);
}

int command_advise(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct advise_options o = { 0 };
    struct machine m;
    struct machine_ceilings c;
    struct advice *list = NULL;
    char *model = NULL;
    int n = 0;
    bool known = true;
    const char *named = args_text(a, "--machine", NULL);
    struct described other = { 0 };
    enum err_code rc = read_options(&o, a, &why);
    if (!rc) rc = cli_model(&model, a, &why);
    if (!rc)
        rc = named ? another_machine(&other, named, &why)
                   : cli_machine(g, PROBE_IF_MISSING, &m, &c, &known, &why);
    if (!rc && named) {
        m = other.machine;
        c = other.ceilings;
    }
    described_close(&other);
    if (!rc) rc = advise(&list, &n, model, &m, &c, &o, &why);
    if (rc) {
        free(model);
        return cli_fail(a, &why);
    }
    struct table t;
    table_init(&t, "qdyno.advise/1", COLUMNS, COUNT_OF(COLUMNS));
    json_put_str(t.extra, "model", model);
    json_put_str(t.extra, "goal", goal_name(o.goal));
    json_put_str(t.extra, "machine", m.id);
    int shown = MIN(n, (int)args_int(a, "--top", 8));
    for (int i = 0; i < shown; i++) add(&t, &list[i], i + 1);
    json_put_int(t.extra, "considered", n);
    if (shown < n) table_note(&t, "%d of %d configs considered; --top N shows more", shown, n);
    table_note(&t, "predicted for %s; nothing above was measured on it yet", named ? named : "this machine");
    describe_model(&t, model);
    int status = cli_print(g, a, &t, n ? EXIT_DONE : EXIT_NO_FIT);
    table_done(&t);
    free(list);
    free(model);
    return status;
}
