/* changes.c - see changes.h. */
#include "tui/cli/lib/run_changes.h"

#include <string.h>

#include "advisor/run/run.h"

enum err_code cli_run_id(int64_t *id, const char *text, struct err *why)
{
    if (str_to_i64(text, id) && *id > 0) return ERR_OK;
    return err_set(why, ERR_USAGE, "'%s' is no run: want a number from `qdyno history`", text);
}

void changes_tell(struct table *t, const json_t *before, const json_t *after)
{
    if (!before || !after) {
        table_note(t, "what changed is unknown: %s has no capsule (it is older than those)",
                   before || after ? "one of the runs" : "neither run");
        json_put(t->extra, "changes", json_null());
        return;
    }
    json_t *diff = capsule_diff(before, after, NULL), *c;
    size_t i;
    if (!json_array_size(diff)) table_note(t, "nothing that is recorded changed between the two runs");
    json_array_foreach(diff, i, c)
    {
        struct str line = { 0 };
        json_t *one = json_array();
        json_array_append(one, c);
        capsule_diff_text(&line, one, 1);
        table_note(t, "changed: %s", str_text(&line));
        json_decref(one);
        str_free(&line);
    }
    json_put(t->extra, "changes", diff);
}
