/* write_card.c - the report as one picture for a README or an issue: the verdict, the effect and the arms.
 * Only the other two formats contain the rest. */

#include <string.h>

#include "advisor/experiment/experiment.h"
#include "tui/report/content.h"

enum { WIDTH = 840, MARGIN = 28, INNER = WIDTH - 2 * MARGIN, LINES = 5 };

/* A text without markup, wrapped into at most LINES lines; a longer one ends with "…". */
struct lines {
    int n;
    char text[LINES][400];
};

/* SVG has no line breaks: the text is wrapped here, by an estimate of its width in columns. Backquotes are
 * markup and left out. */
static void lines_wrap(struct lines *l, const char *text, int columns)
{
    int used = 0;
    l->n = 1;
    l->text[0][0] = '\0';
    while (*text) {
        char word[360] = "";
        size_t n = 0;
        while (*text == ' ') text++;
        for (; *text && *text != ' ' && n < sizeof word - 5; text++)
            if (*text != '`') word[n++] = *text;
        word[n] = '\0';
        const int wide = plot_columns(word);
        if (used && used + 1 + wide > columns) {
            if (l->n == LINES) {
                strcat(l->text[LINES - 1], "…");
                return;
            }
            l->text[l->n++][0] = '\0';
            used = 0;
        }
        char *line = l->text[l->n - 1];
        const size_t at = strlen(line);
        snprintf(line + at, sizeof l->text[0] - at - 4, "%s%s", used ? " " : "", word);
        used += wide + (used > 0);
    }
}

/* Returns where the next element may begin. */
static double lines_write(struct str *out, const struct lines *l, double y, int size, const char *class)
{
    for (int i = 0; i < l->n; i++) {
        str_printf(out, "<text x=\"%d\" y=\"%.0f\" font-size=\"%d\" class=\"%s\">", MARGIN, y + size, size,
                   class);
        xml_text(out, l->text[i]);
        str_append(out, "</text>\n");
        y += 1.35 * size;
    }
    return y;
}

/* One line per arm with the glyph and hue of its points in the plot. Long config lines end with "…": the card
 * has one line each. Returns where the next element may begin. */
static double arms_write(struct str *out, const struct content_table *t, double y)
{
    static const int AT[] = { MARGIN + 8, MARGIN + 24, WIDTH - MARGIN - 200, WIDTH - MARGIN - 105,
                              WIDTH - MARGIN };
    int arm = 0;
    for (const struct content_row *row = t ? t->first : NULL; row; row = row->next, arm++) {
        struct lines config;
        lines_wrap(&config, row->cell[1], 54);
        str_printf(
            out,
            "<g class=\"h%d\"><text x=\"%d\" y=\"%.0f\" text-anchor=\"middle\" style=\"fill:currentColor\">%s</text></g>",
            arm % HUE_ARMS, AT[0], y + 13, plot_glyph(arm % HUE_ARMS));
        str_printf(out, "<text x=\"%d\" y=\"%.0f\"><tspan font-weight=\"600\">", AT[1], y + 13);
        xml_text(out, row->cell[0]);
        str_append(out, "</tspan>  ");
        xml_text(out, config.text[0]);
        str_append(out, config.n > 1 ? "…</text>" : "</text>");
        for (int i = 2; i < 5; i++) {
            str_printf(out, "<text x=\"%d\" y=\"%.0f\" text-anchor=\"end\"%s>", AT[i], y + 13,
                       i == 4 ? " class=\"dim\"" : "");
            xml_text(out, row->cell[i]);
            str_append(out, "</text>");
        }
        str_append(out, "\n");
        y += 21;
    }
    return y;
}

static const char *verdict_class(enum verdict v)
{
    return v == VERDICT_BETTER ? "h0" : v == VERDICT_WORSE ? "h1" : v == VERDICT_INVALID ? "h9" : "h8";
}

/* The body is written first, because the height in the first element of the file follows from it. Title and
 * description make the picture readable for screen readers. */
void write_card(struct str *out, const struct report *r)
{
    struct str body = { 0 };
    struct lines title, subtitle, footer;
    lines_wrap(&title, r->title, 66);
    lines_wrap(&subtitle, r->subtitle, 104);
    lines_wrap(&footer, r->footer, 110);
    str_printf(&body,
               "<g class=\"%s\"><rect x=\"0\" y=\"0\" width=\"7\" height=\"100%%\" fill=\"currentColor\"/>"
               "<text x=\"%d\" y=\"38\" font-size=\"15\" font-weight=\"700\" style=\"fill:currentColor\">",
               verdict_class(r->verdict), MARGIN);
    xml_text(&body, r->mark);
    str_append(&body, "</text></g>\n");
    double y = lines_write(&body, &title, 50, 20, "title") + 4;
    y = lines_write(&body, &subtitle, y, 13, "dim") + 14;
    y = arms_write(&body, r->card_table, y) + 14;
    if (r->card_plot) y += plot_svg(&body, r->card_plot, MARGIN, y, INNER, "card") + 8;
    y = lines_write(&body, &footer, y, 11, "dim") + 14;

    str_printf(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"q\" width=\"%d\" height=\"%.0f\" viewBox=\"0 0 %d %.0f\" "
        "role=\"img\" aria-labelledby=\"t d\"><title id=\"t\">",
        WIDTH, y, WIDTH, y);
    for (int i = 0; i < title.n; i++) {
        xml_text(out, title.text[i]);
        str_append(out, i + 1 < title.n ? " " : "");
    }
    str_append(out, "</title><desc id=\"d\">");
    for (int i = 0; i < subtitle.n; i++) {
        xml_text(out, subtitle.text[i]);
        str_append(out, i + 1 < subtitle.n ? " " : "");
    }
    str_printf(out,
               "</desc>\n<style>%s.q .title{font-weight:650}</style>\n"
               "<rect class=\"paper\" width=\"100%%\" height=\"100%%\" rx=\"6\"/>\n",
               PLOT_STYLE);
    str_append(out, str_text(&body));
    str_append(out, "</svg>\n");
    out->failed = out->failed || body.failed;
    str_free(&body);
}
