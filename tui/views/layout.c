/* tui/views/layout.c - boxes from sizes. The live view just fits into 80x24; more rows and columns show more,
 * fewer show one pane at a time. */
#include "tui/views/layout.h"

#include "tui/views/views.h"

/* The smallest screen with boxes side by side, and the rows from which a narrower one has a column of boxes.
 */
enum { WHOLE_W = 80, WHOLE_H = 24, COLUMN_H = 34 };

static bool is_column(struct rect body)
{
    return body.w < WHOLE_W;
}

struct layout layout_frame(int w, int h)
{
    struct layout l = { .too_small = w < VIEW_MIN_W || h < VIEW_MIN_H };
    if (l.too_small) return l;
    l.single = h < WHOLE_H || (w < WHOLE_W && h < COLUMN_H);
    l.title = (struct rect){ 0, 0, w, 1 };
    l.body = (struct rect){ 0, 1, w, h - 3 };
    l.status = (struct rect){ 0, h - 2, w, 1 };
    l.footer = (struct rect){ 0, h - 1, w, 1 };
    return l;
}

void layout_one(struct rect body, int shown, struct rect *box, int boxes)
{
    for (int i = 0; i < boxes; i++) box[i] = i == shown ? body : (struct rect){ body.x, body.y, 0, 0 };
}

/* Boxes of these heights, one below the other; a last height of 0 takes what is left. */
static void layout_stack(struct rect body, const int *rows, struct rect *box, int boxes)
{
    for (int i = 0, y = 0; i < boxes; y += box[i++].h)
        box[i] = rect_rows(body, y, i + 1 < boxes || rows[i] ? rows[i] : body.h - y);
}

static void live_column(struct rect body, struct rect box[LIVE_PANES])
{
    enum { FIGURES = 6, AB = 8 };
    const int extra = MAX(body.h - 2 * FIGURES - AB, 0), advice = (extra + 1) / 2;
    layout_stack(body, (const int[LIVE_PANES]){ FIGURES, FIGURES, AB, advice, 0 }, box, LIVE_PANES);
}

void layout_live(struct rect body, struct rect box[LIVE_PANES])
{
    if (is_column(body)) {
        live_column(body, box);
        return;
    }
    int extra = MAX(body.h - 21, 0);
    int top = 6 + MIN(extra / 3, 12); /* machine and engine: extra rows show limits, cores and charts */
    int ab = 7 + MIN((extra - (top - 6)) / 2, 16); /* extra rows of the A/B show the effect plot */
    int low = MAX(body.h - top - ab, 0);
    int left = body.w * 45 / 100, advice = body.w * 55 / 100;
    box[LIVE_MACHINE] = (struct rect){ body.x, body.y, left, top };
    box[LIVE_ENGINE] = (struct rect){ body.x + left, body.y, body.w - left, top };
    box[LIVE_AB] = (struct rect){ body.x, body.y + top, body.w, ab };
    box[LIVE_ADVICE] = (struct rect){ body.x, body.y + top + ab, advice, low };
    box[LIVE_LOG] = (struct rect){ body.x + advice, body.y + top + ab, body.w - advice, low };
}

/* The ranks share the rows of the effect: beside it, and on a narrow screen below it. */
static void ab_ranks(struct rect *effect, int ranks, struct rect *box)
{
    enum { FRAME = 3, EFFECT = 6, TABLE = 50, MOST = 80 };
    const struct rect all = *effect;
    *box = (struct rect){ all.x, all.y, 0, 0 };
    if (!ranks) return;
    if (is_column(all)) {
        const int rows = MAX(MIN(ranks + FRAME, all.h - EFFECT), 0);
        *effect = rect_rows(all, 0, all.h - rows);
        *box = rect_rows(all, all.h - rows, rows);
        return;
    }
    const int w = MIN(MAX(all.w * 48 / 100, TABLE), MOST);
    effect->w -= w;
    *box = (struct rect){ all.x + effect->w, all.y, w, all.h };
}

/* Two arms have two rows each (configuration, figures), more arms one row each. On a low screen the effect
 * keeps its rows and the list of arms scrolls. */
void layout_ab(struct rect body, int arms, int ranks, struct rect box[AB_PANES])
{
    const int verdict = body.h >= 27 ? 8 : 6, effect = 6;
    const int wanted = arms > 2 ? arms + 3 : 7;
    const int top = MAX(MIN(wanted, body.h - verdict - effect), 0);
    box[AB_ARMS] = (struct rect){ body.x, body.y, body.w, top };
    box[AB_EFFECT] = (struct rect){ body.x, body.y + top, body.w, MAX(body.h - top - verdict, 0) };
    box[AB_VERDICT] = (struct rect){ body.x, body.y + MAX(body.h - verdict, top), body.w, verdict };
    ab_ranks(&box[AB_EFFECT], ranks, &box[AB_RANKS]);
}

void layout_ab_verdict(struct rect box[AB_PANES], int rows)
{
    enum { EFFECT = 6 };
    struct rect *verdict = &box[AB_VERDICT], *effect = &box[AB_EFFECT], *ranks = &box[AB_RANKS];
    const bool beside = ranks->h && ranks->y == effect->y;
    if (ranks->h && !beside) return; /* the ranks lie between */
    const int more = MIN(rows - verdict->h, effect->h - EFFECT);
    if (more <= 0) return;
    *verdict = (struct rect){ verdict->x, verdict->y - more, verdict->w, verdict->h + more };
    effect->h -= more;
    if (beside) ranks->h -= more;
}

/* Side by side if both fit completely, else one above the other. */
void layout_model(struct rect body, struct rect box[MODEL_PANES])
{
    const int right = 66, low = body.h >= 27 ? 11 : 10;
    if (body.w >= 90 + right) {
        box[MODEL_TENSORS] = (struct rect){ body.x, body.y, body.w - right, body.h };
        box[MODEL_MEMORY] = (struct rect){ body.x + body.w - right, body.y, right, body.h };
        return;
    }
    const int top = MAX(body.h - low, 0);
    box[MODEL_TENSORS] = rect_rows(body, 0, top);
    box[MODEL_MEMORY] = rect_rows(body, top, body.h - top);
}

/* The table first, then the reason for the selected row, then the charts: below on a high screen, beside the
 * reason on a wide one. */
void layout_advice(struct rect body, int rows, struct rect box[ADVICE_PANES])
{
    const int details = 9, list = MIN(rows + 3, body.h - details), low = body.h - list;
    for (int i = 0; i < ADVICE_PANES; i++) box[i] = (struct rect){ body.x, body.y, 0, 0 };
    box[ADVICE_LIST] = rect_rows(body, 0, list);
    struct rect rest = rect_rows(body, list, low);
    if (rest.w >= 110 && rest.h < 24) { /* beside */
        const int words = rest.w * 45 / 100, two = rest.w >= 190;
        box[ADVICE_DETAILS] = (struct rect){ rest.x, rest.y, words, rest.h };
        rest = (struct rect){ rest.x + words, rest.y, rest.w - words, rest.h };
        box[ADVICE_PARETO] = (struct rect){ rest.x, rest.y, two ? rest.w / 2 : rest.w, rest.h };
        if (two)
            box[ADVICE_QUALITY] = (struct rect){ rest.x + rest.w / 2, rest.y, rest.w - rest.w / 2, rest.h };
        return;
    }
    if (rest.h < details + 9) {
        box[ADVICE_DETAILS] = rest;
        return;
    }
    box[ADVICE_DETAILS] = rect_rows(rest, 0, details);
    rest = rect_rows(rest, details, rest.h - details);
    const bool two = rest.w >= 100;
    box[ADVICE_PARETO] = (struct rect){ rest.x, rest.y, two ? rest.w / 2 : rest.w, rest.h };
    if (two) box[ADVICE_QUALITY] = (struct rect){ rest.x + rest.w / 2, rest.y, rest.w - rest.w / 2, rest.h };
}

void layout_quality(struct rect body, struct rect box[QUALITY_PANES])
{
    const int top = MIN(MAX(body.h / 2, 9), body.h);
    box[QUALITY_METHODS] = rect_rows(body, 0, top);
    box[QUALITY_LAYERS] = rect_rows(body, top, body.h - top);
}

void layout_load(struct rect body, struct rect box[LOAD_PANES])
{
    enum { WIDE = 110 }; /* below, a list of configurations needs more than half */
    const int top = body.h / 2, left = body.w < WIDE ? body.w * 52 / 100 : body.w / 2, quarter = body.h / 4;
    if (is_column(body)) {
        layout_stack(body, (const int[LOAD_PANES]){ quarter, quarter, quarter, 0 }, box, LOAD_PANES);
        return;
    }
    box[LOAD_REQUESTS] = (struct rect){ body.x, body.y, left, top };
    box[LOAD_LATENCY] = (struct rect){ body.x + left, body.y, body.w - left, top };
    box[LOAD_BLOCKS] = (struct rect){ body.x, body.y + top, left, body.h - top };
    box[LOAD_COMPUTE] = (struct rect){ body.x + left, body.y + top, body.w - left, body.h - top };
}

/* The list of candidates takes what the state and the result leave. */
void layout_tune(struct rect body, struct rect box[TUNE_PANES])
{
    const int top = MIN(6, body.h), low = MIN(body.h >= 30 ? 8 : 7, body.h - top);
    box[TUNE_STATE] = rect_rows(body, 0, top);
    box[TUNE_LIST] = rect_rows(body, top, body.h - top - low);
    box[TUNE_END] = rect_rows(body, body.h - low, low);
}

/* The two texts side by side, the comparison below. */
void layout_write(struct rect body, struct rect box[WRITE_PANES])
{
    const int low = MIN(5, body.h), left = body.w / 2, top = body.h - low;
    if (is_column(body)) {
        layout_stack(body, (const int[WRITE_PANES]){ top / 2, top - top / 2, 0 }, box, WRITE_PANES);
        return;
    }
    box[WRITE_A] = (struct rect){ body.x, body.y, left, top };
    box[WRITE_B] = (struct rect){ body.x + left, body.y, body.w - left, top };
    box[WRITE_BOTH] = rect_rows(body, top, low);
}

void layout_settings(struct rect body, struct rect box[SETTINGS_PANES])
{
    const int low = MIN(MAX(body.h / 4, 7), body.h);
    box[SETTINGS_LIST] = rect_rows(body, 0, body.h - low);
    box[SETTINGS_DETAIL] = rect_rows(body, body.h - low, low);
}

struct rect layout_drawer(struct rect body, int rows)
{
    rows = MIN(rows, body.h);
    return (struct rect){ body.x, body.y + body.h - rows, body.w, rows };
}

struct rect layout_overlay(struct rect body, int w, int h)
{
    w = MIN(w, body.w);
    h = MIN(h, body.h);
    return (struct rect){ body.x + (body.w - w) / 2, body.y + (body.h - h) / 2, w, h };
}
