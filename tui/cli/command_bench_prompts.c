/* What `qdyno bench` says of prompts: where the user's own come from, and figures of the requests of each
 * class. */
#include <math.h>

#include "tui/cli/command_bench_grid.h"

/* The list of this name among the members of the document, which is made if it is missing. Borrowed. */
static json_t *list_of(struct table *t, const char *name)
{
    json_t *list = json_object_get(t->extra, name);
    if (list) return list;
    json_put(t->extra, name, json_array());
    return json_object_get(t->extra, name);
}

static void label(json_t *o, const char *config, const char *workload)
{
    json_put_str(o, "config", config);
    json_put_str(o, "workload", workload);
}

static void note_class(struct table *t, const json_t *o)
{
    const double ttft = json_get_num(o, "ttft_s", NAN), tpot = json_get_num(o, "tpot_s", NAN);
    char tail[96] = "", good[48] = "";
    if (isfinite(tpot)) snprintf(tail, sizeof tail, ", TPOT %.2f ms", 1e3 * tpot);
    if (isfinite(json_get_num(o, "goodput_ratio", NAN)))
        snprintf(good, sizeof good, ", %.1f %% within the limits", 100 * json_get_num(o, "goodput_ratio", 0));
    table_note(
        t,
        "  class %s: %lld requests, %lld failed; means: prompt %.1f tokens, answer %.1f, TTFT %.2f ms%s, "
        "e2e %.1f ms%s",
        json_get_str(o, "class", "?"), (long long)json_get_int(o, "requests", 0),
        (long long)json_get_int(o, "failed_requests", 0), json_get_num(o, "prompt_tokens", NAN),
        json_get_num(o, "gen_tokens", NAN), 1e3 * ttft, tail, 1e3 * json_get_num(o, "e2e_s", NAN), good);
}

enum err_code bench_put_prompts(struct table *t, const char *config, const struct workload *w,
                                const json_t *answer, struct err *why)
{
    char line[WORKLOAD_LINE];
    json_t *prompts = json_copy(json_object_get(answer, "prompts")), *classes = NULL;
    workload_line(w, line, sizeof line);
    if (prompts) {
        label(prompts, config, line);
        json_array_append_new(list_of(t, "prompts"), prompts);
    }
    const enum err_code rc = workload_is_load(w) ? load_class_figures(&classes, answer, &w->load, why)
                                                 : ERR_OK;
    if (json_array_size(classes))
        table_note(t, "%s on %s, by class of prompts (all requests of the last repetition):", config, line);
    for (size_t i = 0; i < json_array_size(classes); i++) {
        json_t *o = json_array_get(classes, i);
        note_class(t, o);
        label(o, config, line);
        json_array_append(list_of(t, "classes"), o);
    }
    json_decref(classes);
    return rc;
}
