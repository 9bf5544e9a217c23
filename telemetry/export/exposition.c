/* telemetry/export/exposition.c - writes Prometheus' text exposition format 0.0.4, with all names and
 * values checked.
 *
 * After the first misuse, which is stored in `bad`, nothing is written, because a reader would accept a
 * partly wrong document. The rules are stricter than the format's: no colons in names (Prometheus uses them
 * for recording rules), and no label names that Prometheus reserves. */
#include "telemetry/export/export.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool name_is_valid(const char *name)
{
    if (!isalpha((unsigned char)*name) && *name != '_') return false;
    for (const char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_') return false;
    return true;
}

/* Prometheus reserves names that begin with two underscores, and "le" for histogram buckets. */
static bool label_is_valid(const char *name)
{
    return name_is_valid(name) && !str_starts(name, "__") && strcmp(name, "le") != 0;
}

/* Escapes backslash and newline, and the quote in label values. Replaces invalid UTF-8, because a gateway
 * refuses a whole body with one invalid byte. */
static void append_escaped(struct str *out, const char *text, bool in_quotes)
{
    size_t left = strlen(text);
    while (left) {
        uint32_t c;
        char utf8[4];
        size_t n = str_utf8_next(text, left, &c);
        if (c == '\\')
            str_append(out, "\\\\");
        else if (c == '\n')
            str_append(out, "\\n");
        else if (c == '"' && in_quotes)
            str_append(out, "\\\"");
        else
            str_append_n(out, utf8, str_utf8_put(c, utf8));
        text += n;
        left -= n;
    }
}

static const char *const SERIES_OF_HISTOGRAM[] = { "_bucket", "_sum", "_count" };

/* True when a family, or a series of a histogram, already has this name. */
static bool name_is_taken(const struct exposition *e, const char *name)
{
    struct str line = { 0 };
    str_printf(&line, "\n%s\n", name);
    const bool taken = e->names.len && strstr(e->names.data, str_text(&line));
    str_free(&line);
    return taken;
}

void exposition_family(struct exposition *e, const char *name, enum family_type type, const char *help)
{
    if (e->bad.code) return;
    const bool histogram = type == FAMILY_HISTOGRAM;
    if (!name_is_valid(name) || strlen(name) + sizeof "_bucket" > sizeof e->family) {
        err_set(&e->bad, ERR_INTERNAL, "'%s' is not a valid metric name", name);
        return;
    }
    struct str names = { 0 };
    str_printf(&names, "%s", name);
    bool taken = name_is_taken(e, name);
    for (size_t i = 0; histogram && i < COUNT_OF(SERIES_OF_HISTOGRAM); i++) {
        struct str series = { 0 };
        str_printf(&series, "%s%s", name, SERIES_OF_HISTOGRAM[i]);
        taken |= name_is_taken(e, str_text(&series));
        str_printf(&names, "\n%s", str_text(&series));
        str_free(&series);
    }
    if (taken)
        err_set(&e->bad, ERR_INTERNAL, "metric '%s' is opened twice: its samples must be contiguous", name);
    if (!taken) {
        str_printf(&e->names, "%s%s\n", e->names.len ? "" : "\n", str_text(&names));
        snprintf(e->family, sizeof e->family, "%s", name);
        e->is_histogram = histogram;
        str_printf(&e->text, "# HELP %s ", name);
        append_escaped(&e->text, help, false);
        str_printf(&e->text, "\n# TYPE %s %s\n", name, FAMILY_TYPE_NAMES[type]);
        e->opened = e->text.len ? e->text.len - 1 : 0; /* including the newline before its first sample */
    }
    str_free(&names);
}

static void append_value(struct str *out, double value)
{
    char number[32];
    if (isinf(value))
        str_append(out, value > 0 ? "+Inf" : "-Inf");
    else
        str_append(out, str_from_double(value, number, sizeof number));
}

/* Writes "{a="b",c="d"" without the closing brace, so that the caller can add another label. */
static void append_labels(struct exposition *e, struct str *line, const struct label *labels, int n)
{
    for (int i = 0; i < n; i++) {
        bool twice = false;
        for (int k = 0; k < i; k++) twice |= !strcmp(labels[k].name, labels[i].name);
        if (!label_is_valid(labels[i].name) || twice)
            err_set(&e->bad, ERR_INTERNAL, "metric '%s': label '%s' is %s", e->family, labels[i].name,
                    twice ? "given twice" : "not a valid label name");
        str_printf(line, "%s%s=\"", i ? "," : "{", labels[i].name);
        append_escaped(line, labels[i].value ? labels[i].value : "", true);
        str_append(line, "\"");
    }
}

/* Searches only the current family, because samples of others have other names. */
static void check_unique(struct exposition *e, const char *line)
{
    if (e->text.len && strstr(e->text.data + e->opened, line))
        err_set(&e->bad, ERR_INTERNAL, "metric '%s': two samples with the same labels", e->family);
}

static void check_open(struct exposition *e, bool histogram)
{
    if (!*e->family)
        err_set(&e->bad, ERR_INTERNAL, "a sample before any metric was opened");
    else if (e->is_histogram != histogram)
        err_set(&e->bad, ERR_INTERNAL, "metric '%s' is %s histogram", e->family, histogram ? "not a" : "a");
}

void exposition_sample(struct exposition *e, const struct label *labels, int n, double value)
{
    if (e->bad.code || isnan(value)) return;
    check_open(e, false);
    if (e->bad.code) return;
    struct str line = { 0 };
    str_printf(&line, "\n%s", e->family);
    append_labels(e, &line, labels, n);
    str_append(&line, n > 0 ? "} " : " ");
    check_unique(e, str_text(&line));
    if (!e->bad.code) {
        str_append(&e->text,
                   str_text(&line) + 1); /* without the newline, which already ends the text before */
        append_value(&e->text, value);
        str_append(&e->text, "\n");
    }
    if (line.failed || e->text.failed) err_set(&e->bad, ERR_NOMEM, "out of memory writing metrics");
    str_free(&line);
}

/* ---------------------------------------------------------------- histograms */

void histogram_add(struct histogram_counts *h, const struct histogram_edges *edges, double value,
                   uint64_t times)
{
    if (!isfinite(value) || !times) return;
    int i = 0;
    while (i < edges->n && value > edges->edge[i]) i++;
    h->bucket[i] += times;
    h->count += times;
    h->sum += value * (double)times;
}

static void check_histogram(struct exposition *e, const struct histogram_edges *edges,
                            const struct histogram_counts *h)
{
    uint64_t all = 0;
    bool ok = edges->n >= 1 && edges->n <= HISTOGRAM_EDGES && isfinite(h->sum);
    for (int i = 0; ok && i < edges->n; i++)
        ok = isfinite(edges->edge[i]) && (!i || edges->edge[i] > edges->edge[i - 1]);
    for (int i = 0; ok && i <= edges->n; i++) all += h->bucket[i];
    if (!ok || all != h->count)
        err_set(&e->bad, ERR_INTERNAL, "metric '%s': %s", e->family,
                ok ? "the buckets do not add up to the count"
                   : "bucket bounds must be ascending and the sum finite");
}

void exposition_histogram(struct exposition *e, const struct label *labels, int n,
                          const struct histogram_edges *edges, const struct histogram_counts *h)
{
    if (e->bad.code) return;
    check_open(e, true);
    if (!e->bad.code) check_histogram(e, edges, h);
    if (e->bad.code) return;
    struct str inside = { 0 }, line = { 0 }, text = { 0 };
    append_labels(e, &inside, labels, n);
    str_printf(&line, "\n%s_count%s%s ", e->family, str_text(&inside), n > 0 ? "}" : "");
    check_unique(e, str_text(&line));
    uint64_t cumulative = 0;
    for (int i = 0; i <= edges->n; i++) {
        cumulative += h->bucket[i];
        str_printf(&text, "%s_bucket%s%sle=\"", e->family, str_text(&inside), n > 0 ? "," : "{");
        append_value(&text, i < edges->n ? edges->edge[i] : (double)INFINITY);
        str_printf(&text, "\"} %" PRIu64 "\n", cumulative);
    }
    str_printf(&text, "%s_sum%s%s ", e->family, str_text(&inside), n > 0 ? "}" : "");
    append_value(&text, h->sum);
    str_printf(&text, "%s%" PRIu64 "\n", str_text(&line), h->count);
    if (!e->bad.code) str_append(&e->text, str_text(&text));
    if (inside.failed || line.failed || text.failed || e->text.failed)
        err_set(&e->bad, ERR_NOMEM, "out of memory writing metrics");
    str_free(&inside);
    str_free(&line);
    str_free(&text);
}

void exposition_free(struct exposition *e)
{
    str_free(&e->text);
    str_free(&e->names);
    *e = (struct exposition){ 0 };
}
