/* tui/views/ranks.c - the processes (ranks) of the arms side by side: what part of the time each of them
 * computed, waited for others and exchanged data, in the newest cell of its arm, and what the sensors of its
 * machine showed. */
#include "tui/views/parts.h"

#include <math.h>

/* Each share has a glyph of its own, so that bars can be read without colours. */
static const struct {
    const char *glyph, *head;
    unsigned style;
} SHARE[RANK_SHARES] = { [RANK_COMPUTE] = { "█", "█comp", ROLE_METER },
                         [RANK_WAIT] = { "▒", "▒wait", ROLE_DIM },
                         [RANK_EXCHANGE] = { "░", "░exch", ROLE_GRAPH } };

enum { ARM = 2, RANK = 2, SHARE_COLUMNS = 6, WEIGHTS = 8, BAR = 8, TEXT_MOST = 24, GAP = 1 };

/* The columns of this table; 0: there is no room for this one. */
struct columns {
    int role, host, sensors, bar, shares, weights;
};

/* Columns of the longest text, with a gap; 0: all are empty. */
static void widen(int *columns, const char *text)
{
    if (*text) *columns = MIN(MAX(*columns, text_columns(text) + GAP), TEXT_MOST);
}

/* Power, temperature and busy share, as far as they are known; "" for other ranks than the first of a
 * machine.
 */
static const char *sensors_text(const struct rank_usage *u, char *out, size_t cap)
{
    const struct machine_use *m = &u->machine;
    const double watts = machine_watts(m), busy = machine_busy(m);
    char power[16] = "", degrees[16] = "", share[16] = "";
    if (isfinite(watts)) snprintf(power, sizeof power, "%.0fW ", watts);
    if (isfinite(m->temperature_celsius))
        snprintf(degrees, sizeof degrees, "%s ", figure_celsius(m->temperature_celsius).text);
    if (isfinite(busy)) snprintf(share, sizeof share, "%.0f%% busy", 100 * busy);
    snprintf(out, cap, "%s%s%s", power, degrees, share);
    if (!u->first_of_machine) *out = '\0';
    return out;
}

/* The bar gets what is left. On a narrow screen sensors go first, then hosts, weights and the figures of the
 * bar. */
static struct columns columns_of(const struct experiment_state *x, int width)
{
    struct columns c = { 0 };
    char role[64], sensors[64];
    for (int arm = 0; arm < experiment_arms(&x->spec); arm++) {
        const struct parallel mode = experiment_arm_parallel(x, arm);
        for (int i = 0; i < x->arm[arm].ranks; i++) {
            widen(&c.role, parallel_role(&mode, i, role, sizeof role));
            widen(&c.host, x->arm[arm].rank[i].host);
            widen(&c.sensors, sensors_text(&x->arm[arm].rank[i], sensors, sizeof sensors));
        }
    }
    int left = width - ARM - RANK - GAP - c.role - BAR;
    c.shares = left >= RANK_SHARES * SHARE_COLUMNS ? SHARE_COLUMNS : 0;
    left -= RANK_SHARES * c.shares;
    c.weights = left >= WEIGHTS ? WEIGHTS : 0;
    left -= c.weights;
    if (left < c.host) c.host = 0;
    left -= c.host;
    if (left < c.sensors) c.sensors = 0;
    c.bar = MAX(BAR + left - c.sensors, 0);
    return c;
}

static void row_head(struct grid *g, struct rect in, const struct columns *c)
{
    struct pen p = pen_at(g, in, 0, 0);
    pen_field(&p, ARM + RANK + GAP + c->role, ROLE_DIM, "  rank");
    pen_field(&p, c->host, ROLE_DIM, "host");
    pen_field(&p, c->sensors, ROLE_DIM, "machine");
    pen_field(&p, c->bar, ROLE_DIM, c->shares ? "" : "█comp ▒wait ░exch");
    for (int i = 0; i < RANK_SHARES; i++) pen_field_right(&p, c->shares, ROLE_DIM, SHARE[i].head);
    pen_field_right(&p, c->weights, ROLE_DIM, "weights");
}

/* The shares one after the other. Ends are rounded, not lengths, so that the sum is right. */
static void draw_bar(struct pen *p, int columns, const double share[RANK_SHARES])
{
    double sum = 0;
    int at = 0;
    for (int i = 0; i < RANK_SHARES; i++) {
        sum += isnan(share[i]) ? 0 : share[i];
        for (const int end = (int)lround(fmin(sum, 1) * columns); at < end; at++)
            pen_put(p, SHARE[i].style, SHARE[i].glyph);
    }
    for (; at < columns; at++) pen_put(p, ROLE_DIM, "·");
}

static void row_rank(struct grid *g, struct rect in, int row, const struct experiment_state *x, int arm,
                     int rank, const struct columns *c)
{
    const struct experiment_arm *a = &x->arm[arm];
    const struct rank_usage *u = &a->rank[rank];
    const struct parallel mode = experiment_arm_parallel(x, arm);
    double share[RANK_SHARES];
    char text[64];
    struct pen p = pen_at(g, in, 0, row);
    rank_shares(share, a->rank, a->ranks, rank);
    pen_printf(&p, (arm ? ROLE_ARM_B : ROLE_ARM_A) | STYLE_BOLD, "%c ", 'A' + arm);
    snprintf(text, sizeof text, "%d", rank);
    pen_field_right(&p, RANK, ROLE_TEXT, text);
    pen_put(&p, ROLE_TEXT, " ");
    pen_field(&p, c->role, ROLE_TEXT, parallel_role(&mode, rank, text, sizeof text));
    pen_field(&p, c->host, ROLE_TEXT, u->host);
    pen_field(&p, c->sensors, ROLE_TEXT, sensors_text(u, text, sizeof text));
    draw_bar(&p, c->bar, share);
    for (int i = 0; i < RANK_SHARES; i++) {
        if (isnan(share[i]))
            snprintf(text, sizeof text, "n/a");
        else
            snprintf(text, sizeof text, "%.0f%%", 100 * share[i]);
        pen_field_right(&p, c->shares, isnan(share[i]) ? ROLE_DIM : ROLE_TEXT, text);
    }
    pen_field_right(&p, c->weights, ROLE_TEXT, figure_bytes(u->weight_bytes).text);
}

void box_ranks(struct grid *g, struct rect area, const struct snapshot *s)
{
    const struct experiment_state *x = &s->experiment;
    const int all = experiment_ranks(x), rows = MAX(area.h - 3, 0);
    char note[64];
    if (area.w <= 0 || area.h <= 0) return;
    snprintf(note, sizeof note, "%d more", all - rows);
    struct rect in = grid_box(g, area, "Ranks: share of the time in passes", all > rows ? note : NULL);
    if (in.h < 1) return;
    const struct columns c = columns_of(x, in.w);
    int row = 1;
    row_head(g, in, &c);
    for (int arm = 0; arm < experiment_arms(&x->spec); arm++)
        for (int i = 0; i < x->arm[arm].ranks && row < in.h; i++) row_rank(g, in, row++, x, arm, i, &c);
}
