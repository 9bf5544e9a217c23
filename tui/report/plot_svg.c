/* plot_svg.c - a plot as SVG without scripts and external fonts. Colours are CSS classes, so that the page
 * or picture can be light, dark or printed. Arms differ by shape and dash as well as by colour. */

#include <math.h>
#include <string.h>

#include "tui/report/plot.h"

/* The colours of Okabe and Ito, which people with any colour vision can distinguish; lighter ones on dark. */
const char PLOT_STYLE[] =
    ".q{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-size:12px}"
    ".q .paper{fill:#fff}.q text{fill:#24292f}.q .dim{fill:#59636e}.q .head{font-weight:600;font-size:13px}"
    ".q .grid{stroke:#e4e7eb}.q .axis{stroke:#8c959f}.q .halo{paint-order:stroke;stroke:#fff;stroke-width:4px;"
    "stroke-linejoin:round}"
    ".q .h0{color:#0072b2}.q .h1{color:#d55e00}.q .h2{color:#009e73}.q .h3{color:#aa3f83}.q .h4{color:#3a8fc2}"
    ".q .h5{color:#b07c00}.q .h6{color:#6b4fa0}.q .h7{color:#4d4d4d}.q .h8{color:#6e7781}.q .h9{color:#a3262a}"
    "@media(prefers-color-scheme:dark){.q .paper{fill:#15191f}.q text{fill:#e6edf3}.q .dim{fill:#9da7b1}"
    ".q .grid{stroke:#2b323b}.q .axis{stroke:#6e7781}.q .halo{stroke:#15191f}"
    ".q .h0{color:#56b4e9}.q .h1{color:#ff9e4a}.q .h2{color:#3fd0a4}.q .h3{color:#e39ac6}.q .h4{color:#9ad1f2}"
    ".q .h5{color:#f0c94d}.q .h6{color:#b9a3e3}.q .h7{color:#c9d1d9}.q .h8{color:#9da7b1}.q .h9{color:#ff8a80}}"
    "@media print{.q .paper{fill:#fff}.q text{fill:#000}.q .dim{fill:#444}.q .grid{stroke:#ddd}"
    ".q .halo{stroke:#fff}.q .h0{color:#0072b2}.q .h1{color:#d55e00}.q .h2{color:#009e73}.q .h3{color:#aa3f83}"
    ".q .h4{color:#3a8fc2}.q .h5{color:#b07c00}.q .h6{color:#6b4fa0}.q .h7{color:#4d4d4d}.q .h8{color:#6e7781}"
    ".q .h9{color:#a3262a}}";

enum { ROW = 18, PLACED = 640 };

/* The area of the data, and the boxes that are taken by marks and labels. */
struct frame {
    double x, y, w, h;
    struct plot_scale sx, sy;
    struct plot_ticks tx, ty;
    int placed;
    struct box {
        double x, y, w, h;
    } box[PLACED];
};

/* An upper estimate: the font is unknown, so this assumes the widest common one. */
static double text_width(const char *text)
{
    return 7.2 * plot_columns(text);
}

void xml_text(struct str *out, const char *text)
{
    size_t n = strlen(text), used;
    uint32_t code;
    for (; (used = str_utf8_next(text, n, &code)) > 0; text += used, n -= used) {
        char bytes[4];
        if (code == '&')
            str_append(out, "&amp;");
        else if (code == '<')
            str_append(out, "&lt;");
        else if (code == '>')
            str_append(out, "&gt;");
        else if (code == '"')
            str_append(out, "&quot;");
        else if (code == '\n' || code == '\t')
            str_append(out, code == '\n' ? "\n" : " ");
        else if (character_is_unsafe(code) || (code >= 0xd800 && code < 0xe000) || code == 0xfffe ||
                 code == 0xffff || code > 0x10ffff)
            str_append(out, "\xef\xbf\xbd"); /* characters that XML forbids, or that deceive a reader */
        else
            str_append_n(out, bytes, str_utf8_put(code, bytes));
    }
}

static void plot_svg_put_text(struct str *out, double x, double y, const char *anchor, const char *class,
                              const char *text)
{
    str_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x, y, anchor, class);
    xml_text(out, text);
    str_append(out, "</text>");
}

static void put_hint(struct str *out, const char *hint)
{
    if (!hint) return;
    str_append(out, "<title>");
    xml_text(out, hint);
    str_append(out, "</title>");
}

/* ---------------------------------------------------------------- layout */

static int legend_rows(const struct plot *p, double width)
{
    double x = 0;
    int rows = 0;
    for (int i = 0; i < p->layers; i++) {
        if (!p->layer[i].name) continue;
        const double w = 24 + text_width(p->layer[i].name) + 16;
        if (!rows || x + w > width) {
            rows++;
            x = 0;
        }
        x += w;
    }
    return rows;
}

static double head_height(const struct plot *p, double width)
{
    return (p->title ? ROW + 4 : 0) + legend_rows(p, width) * ROW + (p->y.title ? ROW : 0) + 8;
}

static double foot_height(const struct plot *p)
{
    return ROW + (p->x.title ? ROW : 0) + 6;
}

static double inner_height(const struct plot *p)
{
    return p->height > 0 ? p->height : PLOT_HEIGHT;
}

double plot_svg_height(const struct plot *p, double width)
{
    return head_height(p, width) + inner_height(p) + foot_height(p);
}

static double ticks_width(const struct plot_ticks *t)
{
    double w = 0;
    for (int i = 0; i < t->n; i++) w = fmax(w, text_width(t->text[i]));
    return w;
}

/* As many values on the x axis as fit without overlap. */
static void x_ticks(struct plot_ticks *t, const struct plot_axis *axis, const struct plot_scale *s,
                    double width)
{
    for (int most = 9; most > 0; most--) {
        plot_ticks(t, axis, s, most);
        if (t->n * (ticks_width(t) + 14) <= width) return;
    }
}

static void y_ticks(struct plot_ticks *t, const struct plot *p)
{
    const struct plot_scale s = plot_scale(p, 'y');
    plot_ticks(t, &p->y, &s, MAX(3, (int)(inner_height(p) / 36)));
}

double plot_svg_gutter(const struct plot *p)
{
    struct plot_ticks t;
    y_ticks(&t, p);
    return fmax(34, 1.12 * ticks_width(&t) + 12); /* signs and % are wider than digits */
}

static struct frame frame_layout(const struct plot *p, double x, double y, double width)
{
    struct frame f = { .sx = plot_scale(p, 'x'), .sy = plot_scale(p, 'y') };
    const double left = p->gutter > 0 ? p->gutter : plot_svg_gutter(p);
    f.h = inner_height(p);
    y_ticks(&f.ty, p);
    f.x = x + left;
    f.y = y + head_height(p, width);
    f.w = fmax(width - left - 14, 10);
    x_ticks(&f.tx, &p->x, &f.sx, f.w);
    return f;
}

static double clamp_between(double v, double low, double high)
{
    return v < low ? low : v > high ? high : v; /* NaN stays NaN */
}

/* Positions far outside are clipped anyway; clamping avoids huge numbers, which some renderers reject. */
static double at_x(const struct frame *f, double v)
{
    return f->x + f->w * clamp_between(plot_at(&f->sx, v), -4, 5);
}

static double at_y(const struct frame *f, double v)
{
    return f->y + f->h * (1 - clamp_between(plot_at(&f->sy, v), -4, 5));
}

/* ---------------------------------------------------------------- marks */

static const char *const DASHES[HUE_ARMS] = { "", "7 3", "2 3", "9 3 2 3", "12 4", "4 2", "1 2", "6 2 1 2" };

const char *plot_glyph(int hue)
{
    static const char *const GLYPHS[HUE_COUNT] = { "●", "◆", "▲", "■", "▼", "+", "×", "★", "·", "!" };
    return GLYPHS[hue >= 0 && hue < HUE_COUNT ? hue : HUE_MUTED];
}

/* The shape of a hue with radius r. Paths are for radius 1; the first shape is a circle. */
static void put_shape(struct str *out, int hue, double x, double y, double r, const char *hint)
{
    static const char *const SHAPES[HUE_ARMS] = {
        NULL,
        "M0-1.25L1.25 0 0 1.25-1.25 0Z",
        "M0-1.25L1.2.9H-1.2Z",
        "M-1-1H1V1H-1Z",
        "M0 1.25L1.2-.9H-1.2Z",
        "M-.4-1.2H.4V-.4H1.2V.4H.4V1.2H-.4V.4H-1.2V-.4H-.4Z",
        "M-1.2-.7L-.7-1.2 0-.5.7-1.2 1.2-.7.5 0 1.2.7.7 1.2 0 .5-.7 1.2-1.2.7-.5 0Z",
        "M0-1.4L.35-.45 1.33-.43.57.18.82 1.13 0 .6-.82 1.13-.57.18-1.33-.43-.35-.45Z",
    };
    if (hue >= HUE_ARMS || !SHAPES[hue])
        str_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\" fill=\"currentColor\">", x, y,
                   hue >= HUE_ARMS ? 0.75 * r : r);
    else
        str_printf(out, "<path transform=\"translate(%.1f %.1f)scale(%.2f)\" d=\"%s\" fill=\"currentColor\">",
                   x, y, r, SHAPES[hue]);
    put_hint(out, hint);
    str_append(out, hue >= HUE_ARMS || !SHAPES[hue] ? "</circle>" : "</path>");
}

static void draw_dots(struct str *out, const struct frame *f, const struct plot_layer *l)
{
    const double r = l->n > 150 ? 2.6 : l->n > 60 ? 3.2 : 4.2;
    if (l->soft) str_append(out, "<g opacity=\".55\">");
    for (int i = 0; i < l->n; i++) {
        const double x = at_x(f, l->point[i].x), y = at_y(f, l->point[i].y);
        if (isfinite(x) && isfinite(y)) put_shape(out, l->hue, x, y, r, l->point[i].hint);
    }
    if (l->soft) str_append(out, "</g>");
}

static void draw_boxes(struct str *out, const struct frame *f, const struct plot_layer *l)
{
    for (int i = 0; i < l->n; i++) {
        const struct plot_point *p = &l->point[i];
        double x0 = at_x(f, p->x_low), x1 = at_x(f, p->x_high), y0 = at_y(f, p->y_high),
               y1 = at_y(f, p->y_low);
        if (!isfinite(x0) && !isfinite(x1) && !isfinite(y0) && !isfinite(y1)) continue;
        x0 = isfinite(x0) ? clamp_between(x0, f->x, f->x + f->w) : f->x;
        x1 = isfinite(x1) ? clamp_between(x1, f->x, f->x + f->w) : f->x + f->w;
        y0 = isfinite(y0) ? clamp_between(y0, f->y, f->y + f->h) : f->y;
        y1 = isfinite(y1) ? clamp_between(y1, f->y, f->y + f->h) : f->y + f->h;
        str_printf(out,
                   "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"currentColor\" "
                   "fill-opacity=\"%s\">",
                   x0, y0, fmax(x1 - x0, 0.8), fmax(y1 - y0, 0.8), l->soft ? ".13" : ".85");
        put_hint(out, p->hint);
        str_append(out, "</rect>");
    }
}

/* One polygon for each run of drawable points. */
static void draw_band(struct str *out, const struct frame *f, const struct plot_layer *l)
{
    for (int from = 0, to; from < l->n; from = to + 1) {
        for (to = from; to < l->n && isfinite(at_y(f, l->point[to].y_low)) &&
                        isfinite(at_y(f, l->point[to].y_high)) && isfinite(at_x(f, l->point[to].x));)
            to++;
        if (to == from) continue;
        str_append(out, "<path d=\"M");
        for (int i = from; i < to; i++)
            str_printf(out, "%.1f %.1f ", at_x(f, l->point[i].x), at_y(f, l->point[i].y_high));
        for (int i = to - 1; i >= from; i--)
            str_printf(out, "%.1f %.1f ", at_x(f, l->point[i].x), at_y(f, l->point[i].y_low));
        str_printf(out,
                   "Z\" fill=\"currentColor\" fill-opacity=\"%s\" stroke=\"currentColor\" "
                   "stroke-opacity=\".5\"/>",
                   l->soft ? ".10" : ".20");
    }
}

static void draw_line(struct str *out, const struct frame *f, const struct plot_layer *l)
{
    bool open = false;
    double last = NAN;
    str_append(out, "<path d=\"");
    for (int i = 0; i < l->n; i++) {
        const double x = at_x(f, l->point[i].x), y = at_y(f, l->point[i].y);
        const bool known = isfinite(x) && isfinite(y);
        if (known && open && l->mark == MARK_STEP) str_printf(out, "L%.1f %.1f", x, last);
        if (known) str_printf(out, "%c%.1f %.1f", open ? 'L' : 'M', x, y);
        open = known;
        last = y;
    }
    str_printf(out, "\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"%s\" stroke-linejoin=\"round\"",
               l->soft ? "1.2" : "2");
    if (l->hue < HUE_ARMS && *DASHES[l->hue]) str_printf(out, " stroke-dasharray=\"%s\"", DASHES[l->hue]);
    str_append(out, "/>");
}

static void draw_rules(struct str *out, const struct frame *f, const struct plot_layer *l)
{
    for (int i = 0; i < l->n; i++) {
        const double x = at_x(f, l->point[i].x), y = at_y(f, l->point[i].y);
        if (isfinite(y))
            str_printf(out, "<path d=\"M%.1f %.1fH%.1f\"", f->x, y, f->x + f->w);
        else if (isfinite(x))
            str_printf(out, "<path d=\"M%.1f %.1fV%.1f\"", x, f->y, f->y + f->h);
        else
            continue;
        str_printf(out, " stroke=\"currentColor\" stroke-width=\"1.4\"%s/>",
                   l->soft ? " stroke-dasharray=\"4 3\"" : "");
    }
}

/* Arrow heads where an interval is cut off by the frame, whose own end marks lie outside. */
static void put_cuts(struct str *out, const struct frame *f, const struct plot_point *p, double x, double y)
{
    const double HEAD = 5;
    if (isfinite(y) && plot_at(&f->sx, p->x_low) < 0)
        str_printf(out, "M%.1f %.1fl%.1f %.1fM%.1f %.1fl%.1f %.1f", f->x, y, HEAD, -HEAD, f->x, y, HEAD,
                   HEAD);
    if (isfinite(y) && plot_at(&f->sx, p->x_high) > 1)
        str_printf(out, "M%.1f %.1fl%.1f %.1fM%.1f %.1fl%.1f %.1f", f->x + f->w, y, -HEAD, -HEAD, f->x + f->w,
                   y, -HEAD, HEAD);
    if (isfinite(x) && plot_at(&f->sy, p->y_high) > 1)
        str_printf(out, "M%.1f %.1fl%.1f %.1fM%.1f %.1fl%.1f %.1f", x, f->y, -HEAD, HEAD, x, f->y, HEAD,
                   HEAD);
    if (isfinite(x) && plot_at(&f->sy, p->y_low) < 0)
        str_printf(out, "M%.1f %.1fl%.1f %.1fM%.1f %.1fl%.1f %.1f", x, f->y + f->h, -HEAD, -HEAD, x,
                   f->y + f->h, HEAD, -HEAD);
}

static void draw_intervals(struct str *out, const struct frame *f, const struct plot_layer *l)
{
    const double CAP = 4;
    for (int i = 0; i < l->n; i++) {
        const struct plot_point *p = &l->point[i];
        const double x = at_x(f, p->x), y = at_y(f, p->y), x0 = at_x(f, p->x_low), x1 = at_x(f, p->x_high);
        const double y0 = at_y(f, p->y_low), y1 = at_y(f, p->y_high);
        str_append(out, "<path d=\"");
        if (isfinite(y) && isfinite(x0) && isfinite(x1))
            str_printf(out, "M%.1f %.1fH%.1fM%.1f %.1fv%.1fM%.1f %.1fv%.1f", x0, y, x1, x0, y - CAP, 2 * CAP,
                       x1, y - CAP, 2 * CAP);
        if (isfinite(x) && isfinite(y0) && isfinite(y1))
            str_printf(out, "M%.1f %.1fV%.1fM%.1f %.1fh%.1fM%.1f %.1fh%.1f", x, y0, y1, x - CAP, y0, 2 * CAP,
                       x - CAP, y1, 2 * CAP);
        put_cuts(out, f, p, x, y);
        str_append(out, "\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"1.6\"/>");
    }
}

static void draw_layer(struct str *out, const struct frame *f, const struct plot_layer *l)
{
    static void (*const DRAW[])(struct str *, const struct frame *, const struct plot_layer *) = {
        [MARK_BOX] = draw_boxes,          [MARK_BAND] = draw_band, [MARK_RULE] = draw_rules,
        [MARK_LINE] = draw_line,          [MARK_STEP] = draw_line, [MARK_DOT] = draw_dots,
        [MARK_INTERVAL] = draw_intervals,
    };
    str_printf(out, "<g class=\"h%d\">", l->hue);
    DRAW[l->mark](out, f, l);
    str_append(out, "</g>\n");
}

/* ---------------------------------------------------------------- axes and legend */

static void draw_grid(struct str *out, const struct frame *f, const struct plot *p)
{
    str_append(out, "<g class=\"grid\">");
    for (int i = 0; i < f->ty.n && !p->y.names; i++)
        str_printf(out, "<path d=\"M%.1f %.1fh%.1f\"/>", f->x, at_y(f, f->ty.at[i]), f->w);
    for (int i = 0; i < f->tx.n; i++)
        str_printf(out, "<path d=\"M%.1f %.1fv%.1f\"/>", at_x(f, f->tx.at[i]), f->y, f->h);
    str_append(out, "</g>\n");
}

static void draw_axes(struct str *out, const struct frame *f, const struct plot *p)
{
    const double foot = f->y + f->h;
    str_printf(out, "<path class=\"axis\" fill=\"none\" d=\"M%.1f %.1fV%.1fH%.1f\"/>\n", f->x, f->y, foot,
               f->x + f->w);
    for (int i = 0; i < f->ty.n; i++)
        plot_svg_put_text(out, f->x - 7, at_y(f, f->ty.at[i]) + 4, "end", "dim", f->ty.text[i]);
    for (int i = 0; i < f->tx.n; i++) {
        /* keep a text at the end of the axis inside the picture */
        const double half = text_width(f->tx.text[i]) / 2, end = f->x + f->w + 12;
        const double x = fmin(at_x(f, f->tx.at[i]), end - half);
        plot_svg_put_text(out, x, foot + 16, "middle", "dim", f->tx.text[i]);
    }
    if (p->x.title) plot_svg_put_text(out, f->x + f->w, foot + 16 + ROW, "end", "dim", p->x.title);
    str_append(out, "\n");
}

static void draw_swatch(struct str *out, const struct plot_layer *l, double x, double y)
{
    if (l->mark == MARK_DOT) {
        put_shape(out, l->hue, x + 8, y, 4.2, NULL);
    } else if (l->mark == MARK_BAND || l->mark == MARK_BOX) {
        str_printf(out,
                   "<rect x=\"%.1f\" y=\"%.1f\" width=\"16\" height=\"10\" fill=\"currentColor\" "
                   "fill-opacity=\"%s\" stroke=\"currentColor\" stroke-opacity=\".5\"/>",
                   x, y - 5, l->mark == MARK_BOX && !l->soft ? ".85" : ".2");
    } else {
        const char *dash = l->mark == MARK_RULE ? (l->soft ? "4 3" : "")
                           : l->hue < HUE_ARMS  ? DASHES[l->hue]
                                                : "";
        str_printf(out, "<path d=\"M%.1f %.1fh17\" stroke=\"currentColor\" stroke-width=\"2\"%s%s%s/>", x, y,
                   *dash ? " stroke-dasharray=\"" : "", dash, *dash ? "\"" : "");
    }
}

static void draw_legend(struct str *out, const struct plot *p, double x, double y, double width)
{
    double at = 0;
    for (int i = 0; i < p->layers; i++) {
        const struct plot_layer *l = &p->layer[i];
        if (!l->name) continue;
        const double w = 24 + text_width(l->name) + 16;
        if (at > 0 && at + w > width) {
            at = 0;
            y += ROW;
        }
        str_printf(out, "<g class=\"h%d\">", l->hue);
        draw_swatch(out, l, x + at, y);
        str_append(out, "</g>");
        plot_svg_put_text(out, x + at + 23, y + 4, "start", "", l->name);
        at += w;
    }
    str_append(out, "\n");
}

/* ---------------------------------------------------------------- labels */

static bool is_free(const struct frame *f, struct box b)
{
    /* written so that NaN is not free */
    if (!(b.x >= f->x + 1 && b.y >= f->y + 1 && b.x + b.w <= f->x + f->w + 12 &&
          b.y + b.h <= f->y + f->h - 1))
        return false;
    for (int i = 0; i < f->placed; i++) {
        const struct box *o = &f->box[i];
        if (b.x < o->x + o->w && o->x < b.x + b.w && b.y < o->y + o->h && o->y < b.y + b.h) return false;
    }
    return true;
}

/* Draws the label at the first free place; without one, leaves it out. */
static void put_label(struct str *out, struct frame *f, const struct box *wish, int n, int hue,
                      const char *label)
{
    for (int i = 0; i < n && f->placed < PLACED; i++) {
        if (!is_free(f, wish[i])) continue;
        f->box[f->placed++] = wish[i];
        str_printf(out, "<g class=\"h%d\">", hue);
        plot_svg_put_text(out, wish[i].x, wish[i].y + 11, "start", "halo", label);
        str_append(out, "</g>");
        return;
    }
}

/* Candidate places of a label, best first. Returns their number. */
static int label_places(const struct frame *f, const struct plot_layer *l, const struct plot_point *p,
                        struct box out[24])
{
    const double w = text_width(p->label), h = 15, right = f->x + f->w;
    double x = at_x(f, p->x), y = at_y(f, p->y);
    int n = 0;
    if (l->mark == MARK_BOX) {
        const double x0 = isfinite(p->x_low) ? at_x(f, p->x_low) : f->x;
        const double y0 = isfinite(p->y_high) ? at_y(f, p->y_high) : f->y;
        for (int i = 0; i < 6; i++) {
            out[n++] = (struct box){ x0 + 3, y0 + 2 + i * h, w, h };
            out[n++] = (struct box){ x0 - w - 3, y0 + 2 + i * h, w, h };
        }
    } else if (l->mark == MARK_RULE && isfinite(y)) {
        out[n++] = (struct box){ right - w, y - h - 2, w, h };
        out[n++] = (struct box){ right - w, y + 2, w, h };
        out[n++] = (struct box){ f->x + 6, y - h - 2, w, h };
        out[n++] = (struct box){ f->x + 6, y + 2, w, h };
    } else if (l->mark == MARK_RULE) {
        for (int i = 0; i < 8; i++) {
            out[n++] = (struct box){ x + 5, f->y + 3 + i * h, w, h };
            out[n++] = (struct box){ x - w - 5, f->y + 3 + i * h, w, h };
        }
    } else {
        for (int i = 0; i < 4; i++) {
            const double dy = i * h;
            out[n++] = (struct box){ x + 9, y - h - 2 - dy, w, h };
            out[n++] = (struct box){ x - w - 9, y - h - 2 - dy, w, h };
            out[n++] = (struct box){ x + 9, y + 4 + dy, w, h };
            out[n++] = (struct box){ x - w - 9, y + 4 + dy, w, h };
        }
    }
    return n;
}

/* Reserves the places of marks, so that labels do not cover them. */
static void marks_reserve(struct frame *f, const struct plot_layer *l)
{
    const double r = 4;
    if (l->mark != MARK_DOT && l->mark != MARK_LINE && l->mark != MARK_STEP) return;
    for (int i = 0; i < l->n && f->placed < PLACED / 2; i++) {
        const double x = at_x(f, l->point[i].x), y = at_y(f, l->point[i].y);
        if (isfinite(x) && isfinite(y)) f->box[f->placed++] = (struct box){ x - r, y - r, 2 * r, 2 * r };
    }
}

static void draw_labels(struct str *out, struct frame *f, const struct plot *p)
{
    struct box place[24];
    for (int i = 0; i < p->layers; i++) marks_reserve(f, &p->layer[i]);
    for (int i = 0; i < p->layers; i++) {
        const struct plot_layer *l = &p->layer[i];
        for (int k = 0; k < l->n; k++)
            if (l->point[k].label && *l->point[k].label)
                put_label(out, f, place, label_places(f, l, &l->point[k], place), l->hue, l->point[k].label);
    }
}

double plot_svg(struct str *out, const struct plot *p, double x, double y, double width, const char *id)
{
    struct frame f = frame_layout(p, x, y, width);
    double head = y + 14;
    str_append(out, "<g>\n");
    if (p->title) {
        plot_svg_put_text(out, x, head, "start", "head", p->title);
        head += ROW + 4;
    }
    draw_legend(out, p, x, head - 4, width);
    if (p->y.title) plot_svg_put_text(out, x, f.y - 9, "start", "dim", p->y.title);
    draw_grid(out, &f, p);
    str_printf(out,
               "<clipPath id=\"%s\"><rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/></clipPath>\n"
               "<g clip-path=\"url(#%s)\">\n",
               id, f.x, f.y - 5, f.w + 5, f.h + 10, id);
    for (int i = 0; i < p->layers; i++) draw_layer(out, &f, &p->layer[i]);
    str_append(out, "</g>\n");
    draw_axes(out, &f, p);
    draw_labels(out, &f, p);
    str_append(out, "</g>\n");
    return plot_svg_height(p, width);
}
