/* tui/frame/list_candidates.c - the cells of the list of candidates of a search. */
#include <math.h>
#include <string.h>

#include "tui/frame/list_cells.h"

/* clang-format off */
COUNT_CELL(candidate_count, s->tune.rows)

/* What is measured now, and the best candidate so far. */
TEXT_OF(candidate_mark)
{
    const struct tune_watch *t = &s->tune;
    const bool now = t->running && *t->what && !strcmp(t->config, t->row[i].config);
    return put_text(buf, size, now ? "●" : &t->row[i] == tune_watch_leader(t) ? "▸" : "");
}

PRINT_CELL(candidate_config, "%s%s", s->tune.row[i].config, s->tune.row[i].is_current ? " (current)" : "")

TEXT_OF(candidate_rate_text)
{
    const struct tune_row *r = &s->tune.row[i];
    return put_text(buf, size, r->timings ? figure_number(r->rate).text : "n/a");
}

/* With too few timings there are no bars: their column would be blank beside configurations that are cut. */
bool candidate_no_interval(const struct snapshot *s)
{
    for (int i = 0; i < s->tune.rows; i++)
        if (isfinite(s->tune.row[i].lower) && isfinite(s->tune.row[i].upper)) return false;
    return true;
}

VALUE_CELL(candidate_rate, s->tune.row[i].timings ? s->tune.row[i].rate : (double)NAN)
COPY_CELL(candidate_memory, figure_bytes(s->tune.row[i].bytes).text)
VALUE_CELL(candidate_bytes, s->tune.row[i].bytes >= 0 ? (double)s->tune.row[i].bytes : (double)NAN)

/* A cross where the loss or something else rules the candidate out. */
TEXT_OF(candidate_loss_text)
{
    const struct tune_row *r = &s->tune.row[i];
    if (isnan(r->kld)) return put_text(buf, size, r->excluded[0] ? "✕" : "n/a");
    snprintf(buf, size, "%s%.2g", r->excluded[0] ? "✕ " : "", r->kld);
    return buf;
}

VALUE_CELL(candidate_loss, s->tune.row[i].kld)
STYLE_CELL(candidate_style, tune_row_style(&s->tune, i))

STYLE_OF(candidate_loss_style)
{
    return s->tune.row[i].excluded[0] ? (unsigned)ROLE_WORSE : candidate_style(u, s, i);
}
/* clang-format on */
