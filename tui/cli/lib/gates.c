/* gates.c - see gates.h. */
#include "tui/cli/lib/gates.h"

#include <math.h>
#include <string.h>

enum { GATES = 32 };
_Static_assert((int)GATE_PASS == EXIT_DONE && (int)GATE_FAIL == EXIT_WORSE &&
                   (int)GATE_UNDECIDED == EXIT_INCONCLUSIVE && (int)GATE_INVALID == EXIT_INVALID,
               "outcomes of a gate are exit statuses");

/* Each --gate is parsed alone first, so that an error position refers to what the user typed. */
enum err_code cli_gate(struct gate *out, const struct cli_args *a, struct err *why)
{
    const char *text[GATES];
    struct str all = { 0 };
    const int n = args_all(a, "--gate", text, GATES);
    enum err_code rc = ERR_OK;
    *out = (struct gate){ 0 };
    for (int i = 0; i < n && !rc; i++) {
        rc = gate_parse(out, text[i], why);
        str_printf(&all, n > 1 ? "%s(%s)" : "%s%s", i ? " and " : "", text[i]);
    }
    if (!rc && n > 1) rc = gate_parse(out, str_text(&all), why);
    str_free(&all);
    return rc ? err_prefix(why, "--gate") : ERR_OK;
}

void cli_note_gate(struct table *t, const char *subject, const struct gate *g, const struct gate_result *r)
{
    table_note(t, "%s gate: %s", subject, gate_outcome_name(r->outcome));
    for (int i = 0; i < r->terms; i++) {
        const struct gate_row *x = &r->row[i];
        struct str line = { 0 };
        str_printf(&line, "  %-9s  %s", gate_outcome_name(x->outcome), g->term[i].text);
        const struct gate_term *term = &g->term[i];
        const char *unit = term->metric >= 0 ? METRICS[term->metric].unit : GATE_NAMES[term->figure].unit;
        if (isfinite(x->value)) str_printf(&line, ": %.6g", x->value);
        if (isfinite(x->interval.lower) && x->interval.lower < x->interval.upper)
            str_printf(&line, " [%.6g, %.6g]", x->interval.lower, x->interval.upper);
        if (isfinite(x->value) && isfinite(x->bound)) str_printf(&line, ", bound %.6g", x->bound);
        if (isfinite(x->value) && *unit && strcmp(unit, "ratio")) str_printf(&line, " %s", unit);
        if (*x->reason) str_printf(&line, ": %s", x->reason);
        table_note(t, "%s", str_text(&line));
        str_free(&line);
    }
}
