/* command_advise_ranks.c - see command_advise.h. */
#include "tui/cli/command_advise.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "engine/import/import.h"
#include "tui/cli/documents.h"

#define WAY(member) MEMBER(struct prediction, member)
static const struct column COLUMNS[] = {
    COL("config", "config"),
    { .metric = &METRICS[METRIC_PREFILL_RATE],
      .title = "prefill tok/s",
      .digits = 1,
      WAY(prefill_tok_s.estimate) },
    COL("prefill_low_tok_s", "from", .digits = 1, WAY(prefill_tok_s.lower)),
    COL("prefill_high_tok_s", "to", .digits = 1, WAY(prefill_tok_s.upper)),
    COL("prefill_exchange_ratio", "exchange %", .scale = 100, .digits = 1, WAY(prefill_exchange_ratio)),
    { .metric = &METRICS[METRIC_DECODE_RATE],
      .title = "decode tok/s",
      .digits = 1,
      WAY(decode_tok_s.estimate) },
    COL("decode_low_tok_s", "from", .digits = 1, WAY(decode_tok_s.lower)),
    COL("decode_high_tok_s", "to", .digits = 1, WAY(decode_tok_s.upper)),
    COL("exchange_ratio", "exchange %", .scale = 100, .digits = 1, WAY(exchange_ratio)),
    COL("rank_bytes", "largest process", .kind = COLUMN_BYTES),
    COL("fits", "fits", WAY(fits)),
    COL("error", "not possible"),
};

DOCUMENT(PARALLEL, "qdyno.parallel/1", COLUMNS,
         .members = "model machine ranks sequences network measured fastest_prefill fastest_decode");

enum { WAYS = 80, KINDS = 4 };

/* A way to run the model, and its prediction. */
struct way {
    struct config config;
    struct prediction p;
    struct err why; /* code ERR_OK: possible */
};
struct ways {
    struct way *way; /* [WAYS] */
    int n;
    const struct cli_args *args;
    const struct advise_ranks *x;
    const struct gguf *gguf;
};

static void ways_add(struct ways *w, struct parallel mode)
{
    char text[64];
    const char *hosts = parallel_ranks(&mode) > 1 ? args_text(w->args, "--hosts", NULL) : NULL;
    if (w->n == WAYS) return;
    struct way *way = &w->way[w->n];
    *way = (struct way){ .p = { .decode_tok_s.estimate = NAN } };
    if (cli_config(&way->config, w->args, NULL, &way->why)) return;
    enum err_code rc = config_set(&way->config, "parallel", parallel_text(&mode, text, sizeof text),
                                  &way->why);
    if (!rc && hosts) rc = config_set(&way->config, "hosts", hosts, &way->why);
    if (!rc) rc = config_check(&way->config, &way->why);
    if (!rc && w->x->what.sequences < mode.dp)
        rc = err_set(&way->why, ERR_USAGE, "needs %d or more sequences", mode.dp);
    if (!rc) predict(&way->p, w->gguf, &way->config, w->x->machine, w->x->ceilings, &w->x->what, &way->why);
    w->n++;
}

/* Machines whose measured speeds differ by more than UNEQUAL get layers in proportion to them. */
static void stages_choose(const struct ways *w, struct parallel *p)
{
    static const double UNEQUAL = 1.15;
    const char *hosts = args_text(w->args, "--hosts", "");
    const int ranks = parallel_ranks(p);
    struct rank_links links;
    struct model_shape shape;
    double speed[RANKS_MAX], least = INFINITY, most = 0;
    if (!*hosts || !links_find(&links, w->x->machine->id, ranks, hosts) ||
        model_shape_read(&shape, w->gguf, NULL))
        return;
    for (int i = 0; i < p->pp; i++) speed[i] = INFINITY;
    for (int r = 0; r < ranks; r++) {
        const int stage = part_of(p, r, shape.layers).stage;
        speed[stage] = fmin(speed[stage], links.read_bytes_s[r]); /* the slowest of a stage decides */
    }
    for (int i = 0; i < p->pp; i++) {
        least = fmin(least, speed[i]);
        most = fmax(most, speed[i]);
    }
    if (least > 0 && most < INFINITY && most > UNEQUAL * least) split_stages(p, shape.layers, speed);
}

/* The way that divides a model by kind i in a parts and by kind j in b, in the order of struct parallel. */
static void ways_add_product(struct ways *w, int i, int a, int j, int b)
{
    struct parallel p = { .tp = 1, .cp = 1, .pp = 1, .dp = 1 };
    int *const numbers[KINDS] = { &p.tp, &p.cp, &p.pp, &p.dp };
    *numbers[i] *= a;
    *numbers[j] *= b;
    if (p.pp > 1) stages_choose(w, &p);
    ways_add(w, p);
}

/* One process, each kind alone, and all products of two kinds. */
static void ways_fill(struct ways *w, int ranks)
{
    ways_add_product(w, 0, 1, 0, 1);
    for (int i = 0; i < KINDS; i++) ways_add_product(w, i, ranks, i, 1);
    for (int a = 2; a <= ranks / 2; a++)
        for (int i = 0; i < KINDS && ranks % a == 0; i++)
            for (int j = i + 1; j < KINDS; j++) ways_add_product(w, i, a, j, ranks / a);
}

static void put_way(struct table *t, const struct way *w)
{
    json_t *row = table_row(t);
    const struct prediction *p = &w->p;
    json_put_str(row, "config", config_text(&w->config, KNOB_PARALLEL));
    json_put_str(row, "error", w->why.code ? w->why.message : NULL);
    if (w->why.code) return;
    document_put(&DOCUMENT_PARALLEL, row, struct prediction, p);
    json_put_int(row, "rank_bytes", p->plan.ranks ? p->plan.rank_total : p->plan.total);
}

static double rate(const struct way *w, bool prefill)
{
    return w->why.code || !w->p.fits ? NAN
           : prefill                 ? w->p.prefill_tok_s.estimate
                                     : w->p.decode_tok_s.estimate;
}

/* Name the fastest way, and say whether its interval leaves that of one process. */
static void conclude(struct table *t, const struct ways *w, bool prefill)
{
    const struct way *best = NULL, *one = &w->way[0];
    const char *what = prefill ? "prompts" : "decoding";
    for (int i = 0; i < w->n; i++)
        if (!isnan(rate(&w->way[i], prefill)) && (!best || rate(&w->way[i], prefill) > rate(best, prefill)))
            best = &w->way[i];
    json_put_str(t->extra, prefill ? "fastest_prefill" : "fastest_decode",
                 best ? config_text(&best->config, KNOB_PARALLEL) : NULL);
    if (!best) {
        table_headline(t, "%s: no way fits, or the machine's kernels were not timed", what);
        return;
    }
    if (best == one) {
        table_headline(t, "%s: no way is predicted to be faster than one process", what);
        return;
    }
    const double low = prefill ? best->p.prefill_tok_s.lower : best->p.decode_tok_s.lower,
                 high = isnan(rate(one, prefill)) ? 0
                        : prefill                 ? one->p.prefill_tok_s.upper
                                                  : one->p.decode_tok_s.upper;
    if (!high)
        table_headline(t, "%s: parallel=%s, and one process does not fit", what,
                       config_text(&best->config, KNOB_PARALLEL));
    else
        table_headline(t, "%s: parallel=%s is predicted at %.2f times the rate of one process%s", what,
                       config_text(&best->config, KNOB_PARALLEL), rate(best, prefill) / rate(one, prefill),
                       low > high ? "" : ", but the intervals overlap: measure it");
}

/* "25g", or "25g/20us": bits a second, and seconds for a message. */
static enum err_code network_parse(double *bits_s, double *latency_s, const char *text, struct err *why)
{
    static const double LATENCY_S = 20e-6;
    char unit = 0, rest[8] = "";
    double us = LATENCY_S * 1e6;
    const int n = sscanf(text, "%lf%c/%lf%7s", bits_s, &unit, &us, rest);
    *latency_s = us * 1e-6;
    *bits_s *= unit == 'g' ? 1e9 : unit == 'm' ? 1e6 : NAN;
    if ((n == 2 || (n == 4 && !strcmp(rest, "us"))) && *bits_s > 0 && us > 0) return ERR_OK;
    return err_set(
        why, ERR_USAGE,
        "--network %s: expected bits a second such as 25g or 100m, and optionally the time of a message: "
        "25g/20us",
        text);
}

static void note_basis(struct table *t, const struct ways *w, int ranks, const char *network)
{
    const char *hosts = args_text(w->args, "--hosts", "");
    if (network) {
        table_note(t, "%d machines like this one, one process on each, %s: simulated, not measured", ranks,
                   network);
        return;
    }
    struct rank_links links;
    const bool known = links_find(&links, w->x->machine->id, ranks, hosts);
    json_put_bool(t->extra, "measured", known);
    if (!known)
        table_note(t, "exchanges between %d processes were not measured: run `qdyno detect --ranks %d%s%s`",
                   ranks, ranks, *hosts ? " --hosts " : "", hosts);
    const struct way *first = w->way + 1; /* that is possible */
    while (first < w->way + w->n && first->why.code) first++;
    if (!*hosts) table_note(t, "all processes on this machine share its cores and memory");
    if (first < w->way + w->n) {
        struct str model = { 0 };
        word_append(&model, w->x->model);
        table_note(t, "to check a prediction: qdyno ab -m %s parallel=off parallel=%s%s%s -w tg64",
                   str_text(&model), config_text(&first->config, KNOB_PARALLEL), *hosts ? ",hosts=" : "",
                   hosts);
        str_free(&model);
    }
}

int advise_ranks_show(const struct cli_global *g, const struct cli_args *a, const struct advise_ranks *given)
{
    struct err why = { 0 };
    struct advise_ranks x = *given;
    struct rank_links links;
    struct gguf *file = NULL;
    struct table t;
    const int ranks = (int)args_int(a, "--ranks", 2);
    const char *network = args_text(a, "--network", NULL);
    double bits_s, latency_s;
    x.what.sequences = (int)args_int(a, "--sequences", 1);
    enum err_code rc = network ? network_parse(&bits_s, &latency_s, network, &why) : ERR_OK;
    if (!rc && network) {
        links_of_network(&links, bits_s, latency_s, ranks);
        x.what.links = &links;
    }
    if (!rc) rc = model_file_open(&file, x.model, &why);
    struct ways w = { .way = calloc(WAYS, sizeof *w.way), .args = a, .x = &x, .gguf = file };
    if (!rc && !w.way) rc = err_set(&why, ERR_NOMEM, "out of memory");
    if (rc) {
        gguf_close(file);
        free(w.way);
        return cli_fail(a, &why);
    }
    table_init(&t, &DOCUMENT_PARALLEL);
    ways_fill(&w, ranks);
    for (int i = 0; i < w.n; i++) put_way(&t, &w.way[i]);
    json_put_str(t.extra, "model", x.model);
    json_put_str(t.extra, "machine", x.machine->id);
    json_put_int(t.extra, "ranks", ranks);
    json_put_int(t.extra, "sequences", x.what.sequences);
    json_put_str(t.extra, "network", network);
    json_put(t.extra, "measured", json_null());
    conclude(&t, &w, true);
    conclude(&t, &w, false);
    note_basis(&t, &w, ranks, network);
    const int status = cli_finish(g, a, &t, EXIT_DONE);
    gguf_close(file);
    free(w.way);
    return status;
}
