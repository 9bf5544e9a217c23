/* Reads traces of requests (load_trace.h). */
#include "engine/serve/load_trace.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base.h"

#define TRACE_BYTES_MOST (1ull << 30)
enum { FIELD_BYTES = 128, TOKENS_MOST = 1 << 24, HASHES_MOST = TOKENS_MOST / LOAD_TRACE_BLOCK };

/* What is read of each request, and what the traces call it. */
enum column { COLUMN_TIME, COLUMN_IN, COLUMN_OUT, COLUMNS };
static const char *const NAMES[COLUMNS][4] = {
    [COLUMN_TIME] = { "timestamp" },
    [COLUMN_IN] = { "contexttokens", "request tokens", "input_length" },
    [COLUMN_OUT] = { "generatedtokens", "response tokens", "output_length" },
};

struct reader {
    struct load_trace *out;
    int room;
    int64_t hash_room;
    int column[COLUMNS]; /* of a CSV file; -1: not there */
};

static bool row_append(struct reader *r, const struct load_trace_row *row)
{
    if (!array_room(&r->out->row, &r->room, (int64_t)r->out->n + 1, sizeof *r->out->row)) return false;
    r->out->row[r->out->n++] = *row;
    return true;
}

static bool hash_append(struct reader *r, int64_t id)
{
    if (r->out->hashes == r->hash_room) {
        const int64_t room = MAX(2 * r->hash_room, (int64_t)1024);
        int64_t *more = realloc(r->out->hash, (size_t)room * sizeof *more);
        if (!more) return false;
        r->out->hash = more;
        r->hash_room = room;
    }
    r->out->hash[r->out->hashes++] = id;
    return true;
}

/* Add a request, or count it as skipped. */
static enum err_code request_add(struct reader *r, struct load_trace_row *row, double in, double out,
                                 struct err *why)
{
    if (!isfinite(row->at_s) || !(in >= 0 && in <= TOKENS_MOST) || !(out >= 0 && out <= TOKENS_MOST))
        return err_set(
            why, ERR_FORMAT,
            "time %g, %g prompt tokens, %g answer tokens: expected finite numbers, and 0 to %d tokens",
            row->at_s, in, out, TOKENS_MOST);
    row->in = (int)in;
    row->out = (int)out;
    if (!row->in || !row->out) {
        r->out->skipped++;
        return ERR_OK;
    }
    return row_append(r, row) ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for %d requests", r->out->n);
}

/* ---------------------------------------------------------------- CSV */

/* Copy field `at` of a CSV line, without spaces and quotes around it. False: the line has none, or it is too
 * long. */
static bool field_copy(const char *line, size_t n, int at, char out[FIELD_BYTES])
{
    const char *end = line + n;
    while (at-- > 0) {
        const char *comma = memchr(line, ',', (size_t)(end - line));
        if (!comma) return false;
        line = comma + 1;
    }
    const char *stop = memchr(line, ',', (size_t)(end - line));
    if (!stop) stop = end;
    while (line < stop && strchr(" \t\r\"", *line)) line++;
    while (stop > line && strchr(" \t\r\"", stop[-1])) stop--;
    const size_t length = (size_t)(stop - line);
    if (length >= FIELD_BYTES || memchr(line, '\0', length)) return false;
    memcpy(out, line, length);
    out[length] = '\0';
    return true;
}

static bool header_read(struct reader *r, const char *line, size_t n)
{
    char name[FIELD_BYTES];
    for (int c = 0; c < COLUMNS; c++) r->column[c] = -1;
    for (int at = 0; field_copy(line, n, at, name); at++)
        for (int c = 0; c < COLUMNS; c++)
            for (size_t k = 0; k < COUNT_OF(NAMES[c]) && NAMES[c][k]; k++)
                if (!strcasecmp(name, NAMES[c][k])) r->column[c] = at;
    return r->column[COLUMN_TIME] >= 0 && r->column[COLUMN_IN] >= 0 && r->column[COLUMN_OUT] >= 0;
}

/* Days since 1970-01-01 in the Gregorian calendar (H. Hinnant, "chrono-compatible low-level date
 * algorithms").
 */
static double days_of(int year, int month, int day)
{
    const int y = year - (month <= 2), era = y / 400, of_era = y - era * 400;
    const int of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return (double)era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

/* Seconds: a number, or a date as "2023-11-16 18:15:46.6805900". NAN: neither. */
static double time_read(const char *text)
{
    double seconds;
    int year, month, day, hour, minute, used = 0;
    if (str_to_double(text, &seconds)) return seconds;
    if (sscanf(text, "%4d-%2d-%2d%*1[ T]%2d:%2d:%n", &year, &month, &day, &hour, &minute, &used) != 5 ||
        !used)
        return NAN;
    if (year < 1970 || month < 1 || month > 12 || day < 1 || day > 31 || hour < 0 || hour > 23 ||
        minute < 0 || minute > 59)
        return NAN;
    char rest[FIELD_BYTES];
    const size_t n = strspn(text + used, "0123456789.");
    memcpy(rest, text + used, n);
    rest[n] = '\0';
    if (!str_to_double(rest, &seconds) || !(seconds < 61)) return NAN;
    return days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + seconds;
}

static enum err_code csv_line(struct reader *r, const char *line, size_t n, struct err *why)
{
    char text[COLUMNS][FIELD_BYTES];
    double in, out;
    for (int c = 0; c < COLUMNS; c++)
        if (!field_copy(line, n, r->column[c], text[c]))
            return err_set(why, ERR_FORMAT, "expected %d columns or more, as in the first line",
                           r->column[c] + 1);
    struct load_trace_row row = { .at_s = time_read(text[COLUMN_TIME]) };
    if (isnan(row.at_s))
        return err_set(why, ERR_FORMAT, "time '%.40s': expected seconds, or a date as 2023-11-16 18:15:46.68",
                       text[COLUMN_TIME]);
    if (!str_to_double(text[COLUMN_IN], &in) || !str_to_double(text[COLUMN_OUT], &out))
        return err_set(why, ERR_FORMAT, "tokens '%.40s' and '%.40s': expected numbers", text[COLUMN_IN],
                       text[COLUMN_OUT]);
    return request_add(r, &row, in, out, why);
}

/* ---------------------------------------------------------------- JSON lines */

static enum err_code hashes_read(struct reader *r, struct load_trace_row *row, const json_t *ids,
                                 struct err *why)
{
    row->hash = r->out->hashes;
    row->hashes = (int)MIN(json_array_size(ids), (size_t)HASHES_MOST);
    for (int i = 0; i < row->hashes; i++) {
        const json_t *id = json_array_get(ids, (size_t)i);
        if (!json_is_integer(id))
            return err_set(why, ERR_FORMAT, "\"hash_ids\": entry %d is no whole number", i + 1);
        if (!hash_append(r, json_integer_value(id))) return err_set(why, ERR_NOMEM, "out of memory");
    }
    return ERR_OK;
}

static enum err_code json_row(struct reader *r, const char *line, size_t n, struct err *why)
{
    json_t *o = NULL;
    enum err_code rc = json_parse(&o, line, n, why);
    if (rc) return rc;
    struct load_trace_row row = { .at_s = json_get_num(o, "timestamp", NAN) * 1e-3 };
    const double in = json_get_num(o, "input_length", NAN), out = json_get_num(o, "output_length", NAN);
    if (isnan(row.at_s) || isnan(in) || isnan(out))
        rc = err_set(why, ERR_FORMAT,
                     "expected an object with the numbers timestamp (milliseconds), input_length and "
                     "output_length");
    if (!rc && in >= 1 && out >= 1) rc = hashes_read(r, &row, json_object_get(o, "hash_ids"), why);
    if (!rc) rc = request_add(r, &row, in, out, why);
    json_decref(o);
    return rc;
}

/* ---------------------------------------------------------------- the file */

static int by_time(const void *a, const void *b)
{
    const struct load_trace_row *x = a, *y = b;
    return (x->at_s > y->at_s) - (x->at_s < y->at_s);
}

/* Rows in order of time, counted from the first. Traces are sorted but for a few rows, which insertion moves
 * to their place; a file in no order at all is sorted first. */
static void rows_sort(struct load_trace *t)
{
    int misplaced = 0;
    for (int i = 1; i < t->n; i++) misplaced += t->row[i].at_s < t->row[i - 1].at_s;
    if (misplaced > 1000) qsort(t->row, (size_t)t->n, sizeof *t->row, by_time);
    for (int i = 1; i < t->n; i++) {
        const struct load_trace_row row = t->row[i];
        int k = i;
        for (; k > 0 && t->row[k - 1].at_s > row.at_s; k--) t->row[k] = t->row[k - 1];
        t->row[k] = row;
    }
    for (int i = t->n - 1; i >= 0; i--) t->row[i].at_s -= t->row[0].at_s;
}

enum err_code load_trace_parse(struct load_trace *out, const char *text, size_t size, int most,
                               struct err *why)
{
    struct reader r = { .out = out };
    bool csv = false, header = false;
    int64_t number = 0;
    *out = (struct load_trace){ 0 };
    for (const char *at = text, *end = text + size; at < end && out->n < most;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const size_t n = (size_t)((stop ? stop : end) - at), blank = strspn(at, " \t\r");
        const bool json = blank < n && at[blank] == '{';
        enum err_code rc = ERR_OK;
        number++;
        if (blank >= n) {
        } else if (!header && !json) {
            csv = header_read(&r, at, n);
            if (!csv)
                rc = err_set(why, ERR_FORMAT,
                             "expected JSON lines, or a first line with the columns of the Azure or BurstGPT "
                             "traces (TIMESTAMP,ContextTokens,GeneratedTokens)");
        } else {
            rc = csv ? csv_line(&r, at, n, why) : json_row(&r, at, n, why);
        }
        header |= blank < n;
        if (rc) return err_prefix(why, "line %lld", (long long)number);
        at += n + 1;
    }
    if (!out->n) return err_set(why, ERR_FORMAT, "the file has no request with prompt and answer tokens");
    rows_sort(out);
    return ERR_OK;
}

enum err_code load_trace_read(struct load_trace *out, const char *path, int most, struct err *why)
{
    char *text = NULL;
    size_t size = 0;
    *out = (struct load_trace){ 0 };
    enum err_code rc = file_read(&text, &size, path, TRACE_BYTES_MOST, why);
    if (!rc && (rc = load_trace_parse(out, text, size, most, why))) err_prefix(why, "%s", path);
    free(text);
    return rc;
}

void load_trace_free(struct load_trace *t)
{
    free(t->row);
    free(t->hash);
    *t = (struct load_trace){ 0 };
}
