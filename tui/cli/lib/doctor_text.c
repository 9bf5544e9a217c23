/* doctor_text.c - what `qdyno doctor` prints on a terminal: what is wrong and what to do first. */
#include <string.h>

#include "tui/cli/lib/help.h"
#include "tui/cli/lib/lib.h"

enum { CHECK_WIDTH = 18, INDENT = CHECK_WIDTH + 4 };

static void doctor_row(struct str *out, const json_t *row, int width)
{
    const char *found = json_get_str(row, "found", ""), *advice = json_get_str(row, "advice", "");
    str_printf(out, "  %-*s  ", CHECK_WIDTH, json_get_str(row, "check", ""));
    help_wrap_to(out, found, INDENT, INDENT, width);
    if (!*advice) return;
    str_printf(out, "%*s> ", INDENT, "");
    help_wrap_to(out, advice, INDENT + 2, INDENT + 2, width);
}

void doctor_text(struct str *out, const json_t *rows, int width)
{
    static const struct {
        const char *state, *title;
    } PARTS[] = { { "bad", "Problems: do what the lines with > say, from the top" },
                  { "note", "Worth knowing" },
                  { "ok", "Fine" } };
    for (size_t p = 0; p < COUNT_OF(PARTS); p++) {
        bool any = false;
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *row = json_array_get(rows, i);
            if (strcmp(json_get_str(row, "state", ""), PARTS[p].state)) continue;
            if (!any) str_printf(out, "%s%s\n", out->len ? "\n" : "", PARTS[p].title);
            any = true;
            doctor_row(out, row, width);
        }
    }
}
