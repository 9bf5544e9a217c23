/* write_html.c - the report as one HTML page for light, dark and print. It loads nothing and runs no
 * script. It is also well-formed XML, which a test checks. */

#include <string.h>

#include "advisor/experiment/experiment.h"
#include "tui/report/content.h"

static const char PAGE_STYLE[] =
    ":root{color-scheme:light dark;--ink:#24292f;--dim:#59636e;--line:#d8dee4;--paper:#fff;--code:#f3f5f7;"
    "--good:#0072b2;--bad:#d55e00;--even:#6e7781;--alert:#a3262a}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--dim:#9da7b1;--line:#2f3740;--paper:#15191f;"
    "--code:#1f252d;--good:#56b4e9;--bad:#ff9e4a;--even:#9da7b1;--alert:#ff8a80}}"
    "*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,"
    "-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
    "main{max-width:54rem;margin:0 auto;padding:2rem 1.25rem 4rem}"
    "header{border-left:.4rem solid var(--even);padding:.1rem 0 .1rem 1.1rem;margin-bottom:1.5rem}"
    "header.good{border-color:var(--good)}header.bad{border-color:var(--bad)}header.alert{border-color:var(--alert)}"
    "header.good .mark{color:var(--good)}header.bad .mark{color:var(--bad)}header.alert .mark{color:var(--alert)}"
    ".mark{font-weight:700;letter-spacing:.02em;margin:0;color:var(--even)}"
    "h1{font-size:1.65rem;line-height:1.25;margin:.2rem 0 .5rem;overflow-wrap:anywhere}"
    "h1 code{padding:0;background:none;font-weight:600}"
    "h2{font-size:1.2rem;margin:2.6rem 0 .7rem;padding-bottom:.3rem;border-bottom:1px solid var(--line)}"
    "h3{font-size:1rem;margin:0 0 .2rem}p{margin:.6rem 0;max-width:46rem}.sub{font-size:1.05rem;color:var(--dim);margin:0}"
    "main.wide{max-width:84rem}.wide td:first-child{white-space:nowrap}a{color:var(--good)}nav{margin-bottom:1.5rem;font-size:.95rem}"
    ".warning{border-left:.3rem solid var(--alert);padding-left:.8rem}"
    "code,pre{font-family:ui-monospace,'Cascadia Mono',Menlo,'DejaVu Sans Mono',monospace;font-size:.9em;"
    "background:var(--code);border-radius:.25rem}code{padding:.05em .3em;overflow-wrap:anywhere}"
    "pre{padding:.8rem 1rem;white-space:pre-wrap;overflow-wrap:anywhere}"
    ".scroll{overflow-x:auto;margin:1rem 0}table{border-collapse:collapse;font-size:.92rem;min-width:min(100%,24rem)}"
    "td code{white-space:nowrap}tbody th+td code{white-space:normal}"
    "caption{caption-side:top;text-align:left;color:var(--dim);padding-bottom:.4rem}"
    "th,td{text-align:left;vertical-align:top;padding:.32rem .9rem .32rem 0;border-bottom:1px solid var(--line)}"
    "th{font-weight:600}tbody th{white-space:nowrap;font-weight:400;color:var(--dim)}"
    ".r{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}"
    "figure{margin:1.6rem 0}figcaption p{color:var(--dim);font-size:.92rem;margin:.1rem 0 .6rem}"
    "svg{display:block;width:100%;height:auto}footer{margin-top:3rem;color:var(--dim);font-size:.9rem}"
    "@media print{:root{--ink:#000;--dim:#444;--line:#bbb;--paper:#fff;--code:#f3f3f3}body{font-size:10.5pt}"
    "main{max-width:none;padding:0}figure,tr,pre{break-inside:avoid}h2{break-after:avoid}.scroll{overflow:visible}}";

/* Text without markup. The space before "%" does not break. */
static void put_plain_text(struct str *out, const char *text)
{
    struct str s = { 0 };
    for (const char *at; (at = strstr(text, " %")); text = at + 1) {
        str_append_n(&s, text, (size_t)(at - text));
        str_append(&s, "\xc2\xa0");
    }
    str_append(&s, text);
    xml_text(out, str_text(&s));
    out->failed = out->failed || s.failed;
    str_free(&s);
}

/* Text with `code` in backticks. */
static void put_marked_text(struct str *out, const char *text)
{
    struct str part = { 0 };
    bool code = false;
    for (const char *end; *text; text = end) {
        const char *tick = strchr(text, '`');
        end = tick ? tick : text + strlen(text);
        str_clear(&part);
        str_append_n(&part, text, (size_t)(end - text));
        (code ? xml_text : put_plain_text)(out, str_text(&part));
        if (!tick) break;
        str_append(out, code ? "</code>" : "<code>");
        code = !code;
        end++;
    }
    if (code) str_append(out, "</code>");
    out->failed = out->failed || part.failed;
    str_free(&part);
}

static void put_element(struct str *out, const char *open, const char *text, const char *close)
{
    str_append(out, open);
    put_marked_text(out, text);
    str_append(out, close);
}

static void put_link(struct str *out, const char *open, const char *file, const char *text, const char *close)
{
    str_printf(out, "%s<a href=\"", open);
    xml_text(out, file);
    put_element(out, "\">", text, "</a>");
    str_append(out, close);
}

/* A link that saves a text as a file. The text is part of the page, so that the page stays one file. */
static void put_download(struct str *out, const char *name, const char *data)
{
    static const char SAFE[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~,:";
    str_append(out, "<p><a download=\"");
    xml_text(out, name);
    str_append(out, "\" href=\"data:text/csv;charset=utf-8,");
    for (; *data; data++) str_printf(out, strchr(SAFE, *data) ? "%c" : "%%%02X", (unsigned char)*data);
    str_append(out, "\">");
    xml_text(out, name);
    str_append(out, "</a></p>\n");
}

/* ---------------------------------------------------------------- content */

static void put_table(struct str *out, const struct content_table *t)
{
    if (!t->first) return;
    str_append(out, "<div class=\"scroll\"><table>");
    if (t->caption) put_element(out, "<caption>", t->caption, "</caption>");
    if (t->head[0]) {
        str_append(out, "<thead><tr>");
        for (int i = 0; i < t->columns; i++)
            put_element(out, t->right[i] ? "<th scope=\"col\" class=\"r\">" : "<th scope=\"col\">",
                        t->head[i] ? t->head[i] : "", "</th>");
        str_append(out, "</tr></thead>");
    } else {
        str_append(out,
                   "<thead><tr><th scope=\"col\">property</th><th scope=\"col\">value</th></tr></thead>");
    }
    str_append(out, "<tbody>\n");
    for (const struct content_row *row = t->first; row; row = row->next) {
        str_append(out, "<tr>");
        for (int i = 0; i < t->columns; i++)
            if (!i && !t->head[0])
                put_element(out, "<th scope=\"row\">", row->cell[i], "</th>");
            else if (row->link && i == row->linked)
                put_link(out, t->right[i] ? "<td class=\"r\">" : "<td>", row->link, row->cell[i], "</td>");
            else
                put_element(out, t->right[i] ? "<td class=\"r\">" : "<td>", row->cell[i], "</td>");
        str_append(out, "</tr>\n");
    }
    str_append(out, "</tbody></table></div>\n");
}

static void put_figure(struct str *out, const struct figure_plots *f, int number)
{
    double height = 0;
    for (int i = 0; i < f->plots; i++) height += plot_svg_height(f->plot[i], PLOT_WIDTH) + 8;
    str_append(out, "<figure><figcaption>");
    put_element(out, "<h3>", f->title, "</h3>");
    if (f->reading) put_element(out, "<p>", f->reading, "</p>");
    str_printf(out,
               "</figcaption>\n<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"q\" viewBox=\"0 0 %d %.0f\" "
               "role=\"img\" aria-labelledby=\"f%dt f%dd\"><title id=\"f%dt\">",
               PLOT_WIDTH, height, number, number, number);
    xml_text(out, f->title);
    str_printf(out, "</title><desc id=\"f%dd\">", number);
    xml_text(out, f->reading ? f->reading : f->title);
    str_append(out, "</desc>\n");
    double y = 0;
    for (int i = 0; i < f->plots; i++) {
        char id[32];
        snprintf(id, sizeof id, "f%dp%d", number, i);
        y += plot_svg(out, f->plot[i], 0, y, PLOT_WIDTH, id) + 8;
    }
    str_append(out, "</svg></figure>\n");
}

static void put_content(struct str *out, const struct content *c, int *figures)
{
    switch (c->kind) {
    case CONTENT_SECTION: put_element(out, "<h2>", c->text, "</h2>\n"); break;
    case CONTENT_TEXT: put_element(out, "<p>", c->text, "</p>\n"); break;
    case CONTENT_WARNING: put_element(out, "<p class=\"warning\" role=\"note\">", c->text, "</p>\n"); break;
    case CONTENT_TABLE: put_table(out, &c->table); break;
    case CONTENT_FIGURE: put_figure(out, &c->figure, ++*figures); break;
    case CONTENT_DOWNLOAD: put_download(out, c->text, c->data); break;
    case CONTENT_CODE:
        str_append(out, "<pre>");
        xml_text(out, c->text);
        str_append(out, "</pre>\n");
        break;
    }
}

static const char *header_class(enum verdict v)
{
    return v == VERDICT_BETTER    ? "good"
           : v == VERDICT_WORSE   ? "bad"
           : v == VERDICT_INVALID ? "alert"
                                  : "even";
}

/* A title without backticks, for <title>. */
static void put_title(struct str *out, const char *text)
{
    struct str plain = { 0 };
    for (; *text; text++)
        if (*text != '`') str_append_n(&plain, text, 1);
    xml_text(out, str_text(&plain));
    out->failed = out->failed || plain.failed;
    str_free(&plain);
}

void write_html(struct str *out, const struct report *r)
{
    int figures = 0;
    str_append(
        out,
        "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\"><head><meta charset=\"utf-8\"/>"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n");
    if (r->generator) str_printf(out, "<meta name=\"generator\" content=\"%s\"/>\n", r->generator);
    str_append(out, "<title>");
    put_title(out, r->title);
    str_printf(out, "</title>\n<style>%s\n%s</style></head>\n<body><main%s>\n", PAGE_STYLE, PLOT_STYLE,
               r->wide ? " class=\"wide\"" : "");
    if (r->link[0].file) str_append(out, "<nav>");
    for (size_t i = 0; i < COUNT_OF(r->link) && r->link[i].file; i++)
        put_link(out, i ? " · " : "", r->link[i].file, r->link[i].text, "");
    if (r->link[0].file) str_append(out, "</nav>\n");
    str_printf(out, "<header class=\"%s\">", header_class(r->verdict));
    if (*r->mark) put_element(out, "<p class=\"mark\">", r->mark, "</p>");
    put_element(out, "<h1>", r->title, "</h1>");
    put_element(out, "<p class=\"sub\">", r->subtitle, "</p></header>\n");
    for (const struct content *c = r->first; c; c = c->next) put_content(out, c, &figures);
    put_element(out, "<footer>", r->footer, "</footer>\n");
    str_append(out, "</main></body></html>\n");
}
