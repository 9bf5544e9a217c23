/* base/sink.c - one table row for each kind of place where text leaves the program (sink.h). */
#include "base/sink.h"

#include <stdlib.h>
#include <string.h>

/* What becomes of an unsafe character. */
enum unsafe {
    UNSAFE_SHOWN, /* \x1b or \u202e: people see what was there */
    UNSAFE_SPACE, /* a space for a C0 control character, otherwise as UNSAFE_SHOWN */
    UNSAFE_JSON,  /* \u001b */
};

static const struct {
    const char *keeps;   /* unsafe characters that are part of the format */
    const char *special; /* characters that `as` replaces */
    const char *const *as;
    enum unsafe unsafe;
} SINKS[SINK_COUNT] = {
    [SINK_TERMINAL] = { .keeps = "\n\t" },
    [SINK_LINE] = { .keeps = "" },
    [SINK_CSV] = { .keeps = "\r\n\t", .special = "\"", .as = (const char *const[]){ "\"\"" } },
    [SINK_SQL] = { .keeps = "\n\t", .special = "'", .as = (const char *const[]){ "''" } },
    [SINK_MARKDOWN] = { .keeps = "",
                        .special = "|",
                        .as = (const char *const[]){ "\\|" },
                        .unsafe = UNSAFE_SPACE },
    [SINK_JSON] = { .keeps = "\n\t", .unsafe = UNSAFE_JSON },
};

bool character_is_unsafe(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

static void unsafe_append(struct str *out, enum unsafe how, uint32_t c)
{
    if (how == UNSAFE_SPACE && (c < 0x20 || c == 0x7f))
        str_append(out, " ");
    else if (how != UNSAFE_JSON && c < 0x100)
        str_printf(out, "\\x%02x", (unsigned)c);
    else
        str_printf(out, "\\u%04x", (unsigned)c);
}

static void text_append(struct str *out, enum text_sink sink, const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t c;
        const size_t used = str_utf8_next(text + i, n - i, &c);
        const char *special = c && c < 0x80 && SINKS[sink].special ? strchr(SINKS[sink].special, (int)c)
                                                                   : NULL;
        const bool kept = c && c < 0x80 && strchr(SINKS[sink].keeps, (int)c);
        if (special)
            str_append(out, SINKS[sink].as[special - SINKS[sink].special]);
        else if (character_is_unsafe(c) && !kept)
            unsafe_append(out, SINKS[sink].unsafe, c);
        else if (c == 0xfffd)
            str_append(out, "\xef\xbf\xbd");
        else
            str_append_n(out, text + i, used);
        i += used;
    }
}

/* A spreadsheet executes a cell that begins with one of these, unless an apostrophe comes first. */
static bool is_formula(const char *text, size_t n)
{
    return n && memchr("=+-@\t\r", text[0], 6);
}

static void csv_append(struct str *out, const char *text, size_t n)
{
    bool quotes = false;
    for (size_t i = 0; i < n && !quotes; i++) quotes = memchr(",\"\r\n", text[i], 4) != NULL;
    if (quotes) str_append(out, "\"");
    if (is_formula(text, n)) str_append(out, "'");
    text_append(out, SINK_CSV, text, n);
    if (quotes) str_append(out, "\"");
}

/* Whether the text contains what must not be in a literal: unsafe characters, or bytes that are not UTF-8. */
static bool needs_hex(const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t c;
        const size_t used = str_utf8_next(text + i, n - i, &c);
        if ((character_is_unsafe(c) && c != '\n' && c != '\t') || (c == 0xfffd && used == 1)) return true;
        i += used;
    }
    return false;
}

static void sql_append(struct str *out, const char *text, size_t n)
{
    if (needs_hex(text, n)) {
        str_append(out, "CAST(X'");
        for (size_t i = 0; i < n; i++) str_printf(out, "%02x", (unsigned char)text[i]);
        str_append(out, "' AS TEXT)");
        return;
    }
    str_append(out, "'");
    text_append(out, SINK_SQL, text, n);
    str_append(out, "'");
}

void sink_append(struct str *out, enum text_sink sink, const char *text, size_t n)
{
    switch (sink) {
    case SINK_CSV: csv_append(out, text, n); break;
    case SINK_SQL: sql_append(out, text, n); break;
    default: text_append(out, sink, text, n);
    }
}

char *sink_text(enum text_sink sink, const char *text)
{
    struct str s = { 0 };
    str_append(&s, "");
    sink_append(&s, sink, text, strlen(text));
    return str_take(&s);
}
