/* tui/cli/command_tune_notes.c - see command_tune_notes.h. */
#include "tui/cli/command_tune_notes.h"

#include <math.h>

#include "tui/cli/command_show_result.h"

void tune_note_passed(struct table *t, const struct tune_result *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->n_passed; i++) {
        const struct tune_passed *p = &r->passed[i];
        json_t *o = list_row(list);
        json_put_str(o, "config", p->line);
        json_put_num(o, "tok_s", p->rate);
        json_put_str(o, "why", p->why);
        table_note(t, "not compared: %s (%.1f tok/s): %s", p->line, p->rate, p->why);
    }
    json_put(t->extra, "not_compared", list);
}

void tune_close_conditions(struct table *out, const struct tune_result *r, const char *db_path)
{
    struct str text = { 0 };
    struct db *d = NULL;
    if (r->blocks && isfinite(r->load.others_busy)) {
        table_closing(out,
                      "conditions: %d of %d block%s disturbed; other programs used %.0f %% of the CPU time",
                      r->load.blocks - r->load.undisturbed, r->load.blocks, str_plural(r->load.blocks),
                      100 * r->load.others_busy);
        return;
    }
    if (!r->run_id || db_open(&d, db_path, NULL)) return;
    show_conditions_text(&text, d, r->run_id);
    table_closing(out, "conditions: %s", str_text(&text));
    str_free(&text);
    db_close(d);
}
