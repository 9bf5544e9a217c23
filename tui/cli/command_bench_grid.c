/* The workloads of `qdyno bench`: named with -w, or all combinations of -p, -n, -d and -npl, or decode steps
 * of several numbers of rows (--rows). */
#include "tui/cli/command_bench_grid.h"

static enum err_code bench_add_workload(struct bench_grid *g, const char *text, struct err *why)
{
    struct workload w;
    enum err_code rc = workload_parse_prompts(&w, text, g->prompts, why);
    if (rc) return rc;
    if (*w.eval_file)
        return err_set(
            why, ERR_USAGE,
            "-w %s scores a text: expected a timed workload such as tg64 or pp512; `qdyno eval` scores texts",
            text);
    if (w.train)
        return err_set(
            why, ERR_USAGE,
            "-w %s trains a network: expected a timed workload such as tg64 or pp512; `qdyno ab` compares "
            "settings of training",
            text);
    if (g->n == WORKLOADS_MAX)
        return err_set(why, ERR_USAGE, "the grid has more than %d workloads: give fewer values",
                       WORKLOADS_MAX);
    g->workload[g->n++] = w;
    g->ctx = MAX(g->ctx, workload_ctx(&w));
    g->side_by_side |= workload_sequences(&w) > 1;
    return ERR_OK;
}

static enum err_code bench_add_named(struct bench_grid *g, const struct cli_args *a, const char **names,
                                     int n, struct err *why)
{
    enum err_code rc = ERR_OK;
    static const char *const PARTS[] = { "-p", "-n", "-d", "-npl", "--rows" };
    for (size_t i = 0; i < COUNT_OF(PARTS); i++)
        if (args_has(a, PARTS[i]))
            return err_set(why, ERR_USAGE,
                           "-w names the whole workload: leave -p, -n, -d, -npl and --rows out");
    for (int i = 0; i < n && !rc; i++) rc = bench_add_workload(g, names[i], why);
    return rc;
}

/* Adds a workload of the grid, unless it has nothing to time. */
static enum err_code grid_add(struct bench_grid *g, const struct workload *w, struct err *why)
{
    char line[64];
    return w->prompt || w->gen ? bench_add_workload(g, workload_line(w, line, sizeof line), why) : ERR_OK;
}

static enum err_code bench_add_grid(struct bench_grid *g, const struct cli_args *a, struct err *why)
{
    int64_t p[64], n[64], d[64], l[64];
    int np = args_ints(a, "-p", "512", p, 64), nn = args_ints(a, "-n", "128", n, 64),
        nd = args_ints(a, "-d", "0", d, 64), nl = args_ints(a, "-npl", "1", l, 64);
    enum err_code rc = ERR_OK;
    for (int s = 0; s < nl * nd && !rc; s++) {
        const struct workload base = { .depth = (int)d[s % nd], .sequences = (int)l[s / nd] };
        struct workload w = base;
        for (int i = 0; i < np && !rc; i++) {
            w.prompt = (int)p[i];
            rc = grid_add(g, &w, why);
        }
        w = base;
        for (int i = 0; i < nn && !rc; i++) {
            w.gen = (int)n[i];
            rc = grid_add(g, &w, why);
        }
    }
    if (!rc && !g->n)
        rc = err_set(why, ERR_USAGE, "-p 0 and -n 0 leave nothing to time: give one of them a value above 0");
    return rc;
}

/* For each depth, decode steps of one row and of all numbers of rows asked for. */
static enum err_code bench_add_rows(struct bench_grid *g, const struct cli_args *a, struct err *why)
{
    int64_t n[64], d[64], r[64];
    const int nn = args_ints(a, "-n", "32", n, 64), nd = args_ints(a, "-d", "0", d, 64);
    const int nr = args_ints(a, "--rows", "1", r, 64);
    enum err_code rc = ERR_OK;
    if (args_has(a, "-p") || args_has(a, "-npl"))
        return err_set(why, ERR_USAGE,
                       "--rows times decode steps of so many sequences: leave -p and -npl out");
    if (nn != 1 || n[0] < 2)
        return err_set(why, ERR_USAGE, "--rows needs one number of at least 2 tokens after -n");
    for (int i = 0; i < nd && !rc; i++) {
        struct workload w = { .gen = (int)n[0], .depth = (int)d[i], .sequences = 1 };
        const int before = g->n;
        rc = grid_add(g, &w, why);
        for (int k = 0; k < nr && !rc; k++) {
            w.sequences = (int)r[k];
            if (r[k] > 1) rc = grid_add(g, &w, why);
        }
        g->group = g->n - before;
    }
    return rc;
}

enum err_code bench_grid_init(struct bench_grid *g, const struct cli_args *a, struct err *why)
{
    const char *names[ARGS_GIVEN];
    const int n = args_all(a, "-w", names, ARGS_GIVEN);
    *g = (struct bench_grid){ .group = 1, .prompts = args_text(a, "--prompts", NULL) };
    if (n) return bench_add_named(g, a, names, n, why);
    return args_has(a, "--rows") ? bench_add_rows(g, a, why) : bench_add_grid(g, a, why);
}
