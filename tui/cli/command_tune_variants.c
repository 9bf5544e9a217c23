/* tui/cli/command_tune_variants.c - see command_tune_variants.h. */
#include "tui/cli/command_tune_variants.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "advisor/advise/advise.h"
#include "tui/report/report.h"

/* ---------------------------------------------------------------- what is asked */

static enum err_code target_read(struct gate *out, const struct cli_args *a, const char *stored,
                                 struct err *why)
{
    const char *text = args_text(a, "--target", stored);
    *out = (struct gate){ 0 };
    if (!text) return ERR_OK;
    const enum err_code rc = gate_parse(out, text, why);
    return rc ? err_prefix(why, "--target") : ERR_OK;
}

static bool is_one_file(const char *path)
{
    struct stat st;
    return stat(path, &st) || !S_ISDIR(st.st_mode);
}

enum err_code tune_choice_read(struct tune_choice *out, const struct cli_args *a,
                               const struct tune_stored *stored, bool given, struct err *why)
{
    const char *path[TUNE_FILES + 1];
    int n = 0;
    *out = (struct tune_choice){ 0 };
    enum err_code rc = target_read(&out->target, a, stored->target, why);
    for (int i = 0; i < a->n && n < TUNE_FILES; i++) path[n++] = a->arg[i];
    for (int i = 0; !a->n && !given && i < stored->files && n < TUNE_FILES; i++) path[n++] = stored->file[i];
    if (!rc && a->n && given)
        rc = err_set(why, ERR_USAGE,
                     "files to choose from are given, and -m or model=: expected one of both");
    const char *ref = args_text(a, "--ref", !a->n && stored->files ? stored->model_path : NULL);
    if (!rc && ref && !n)
        rc = err_set(why, ERR_USAGE, "--ref is for a choice between files: name them, or a folder");
    if (rc || !n) return rc;
    if (n == 1 && !ref && is_one_file(path[0])) { /* one file, as with -m */
        if (strlen(path[0]) >= sizeof out->model)
            return err_set(why, ERR_USAGE, "%s: longer than %zu bytes", path[0], sizeof out->model - 1);
        snprintf(out->model, sizeof out->model, "%s", path[0]);
        return ERR_OK;
    }
    if (ref) path[n++] = ref;
    rc = tune_files_find(&out->files, path, n, why);
    if (rc) return rc;
    out->reference = ref ? tune_files_index(&out->files, ref) : 0;
    if (out->reference < 0) return err_set(why, ERR_USAGE, "--ref %s: expected a file", ref);
    snprintf(out->model, sizeof out->model, "%s", out->files.file[out->reference].path);
    return ERR_OK;
}

const char *tune_choice_workload(const struct tune_choice *c)
{
    for (int i = 0; i < c->target.terms; i++)
        if (c->target.term[i].metric == METRIC_PREFILL_RATE || c->target.term[i].metric == METRIC_TTFT)
            return "pp512+tg64";
    return CONFIRM_WORKLOAD;
}

/* ---------------------------------------------------------------- what was found */

void tune_put_target(json_t *row, const struct tune_result *r, const struct tune_choice *c)
{
    static const char *const REACH[] = { "reached", "not reached", "undecided" };
    if (!r->target.asked) return;
    json_put_str(row, "target", c->target.text);
    json_put_str(row, "target_outcome", REACH[r->target.reach]);
    json_put_str(row, "target_answer", r->target.text);
}

/* "12.3 [12.1, 12.5]"; "n/a". */
static const char *interval_text(char *buf, size_t size, double value, struct interval i, int digits)
{
    if (isnan(value))
        snprintf(buf, size, "n/a");
    else if (i.lower < i.upper)
        snprintf(buf, size, "%.*g [%.*g, %.*g]", digits, value, digits, i.lower, digits, i.upper);
    else
        snprintf(buf, size, "%.*g", digits, value);
    return buf;
}

void tune_note_variants(struct table *t, const struct tune_result *r, const struct tune_choice *c)
{
    enum { SHOWN = 16 };
    if (!*r->reference) return;
    table_note(t, "  %-40s %6s  %-24s %8s  %s", "candidate", "bits/w", "tokens/s [95 %]", "memory",
               "KLD, nats [95 %]");
    for (int i = 0; i < MIN(r->n_seen, SHOWN); i++) {
        const struct tune_candidate *x = &r->seen[i];
        char name[CONFIG_LINE], rate[64], kld[64], bytes[16] = "n/a", bits[16] = "";
        if (x->failed || x->quality_failed) {
            table_note(t, "  %-40s %s: %s", target_name(name, sizeof name, x->line),
                       x->failed ? "failed" : "its loss is unknown", x->error);
            if (x->failed) continue;
        }
        if (!isnan(x->bits)) snprintf(bits, sizeof bits, "%.2f", x->bits);
        if (x->memory_bytes > 0) str_from_bytes(x->memory_bytes, bytes, sizeof bytes);
        table_note(t, "  %-40s %6s  %-24s %8s  %s%s%s%s", target_name(name, sizeof name, x->line), bits,
                   isnan(x->rate) ? "not timed"
                                  : interval_text(rate, sizeof rate, x->rate, x->rate_interval, 4),
                   bytes, interval_text(kld, sizeof kld, x->kld, x->kld_interval, 3), x->front ? "  *" : "",
                   x->knee ? " knee" : "",
                   r->target.asked ? x->target == GATE_PASS   ? "  reaches it"
                                     : x->target == GATE_FAIL ? ""
                                                              : "  open"
                                   : "");
    }
    if (r->n_seen > SHOWN) table_note(t, "  and %d more (-o json has all)", r->n_seen - SHOWN);
    table_note(
        t, "*: no other candidate is better in speed, loss and memory together; knee: beyond it, speed costs "
           "more loss than before");
    struct str drawn = { 0 };
    report_tradeoff_text(&drawn, json_object_get(t->extra, "tried"), 76, 14);
    if (drawn.len) table_lines(t, table_note, str_text(&drawn));
    str_free(&drawn);
    table_note(t, "losses are against %s%s", path_file_name(r->reference),
               r->reference_quantized
                   ? c->files.n > 1
                         ? ", the most exact file here, which is itself quantized: against the original they "
                           "may be larger"
                         : ", which is itself quantized"
                   : "");
    if (*c->files.skipped) table_note(t, "left out: %s", c->files.skipped);
}

/* The commands that run this config: also as "commands" of the document. */
static void close_commands(struct table *t, const struct config *keep, const char *model)
{
    static const char *const FOR[] = { "llama-server", "ollama" };
    struct config own = *keep;
    char line[CONFIG_LINE];
    struct str text = { 0 }, notes = { 0 };
    json_t *list = json_array(), *o = json_object();
    const char *file = *config_text(keep, KNOB_MODEL) ? config_text(keep, KNOB_MODEL) : model;
    config_unset(&own, KNOB_MODEL);
    config_line(&own, line, sizeof line);
    str_append(&text, "qdyno run -m ");
    word_append(&text, file);
    if (strcmp(line, "default")) {
        str_append(&text, " -C ");
        word_append(&text, line);
    }
    str_append(&text, " -p TEXT");
    table_closing(t, "qdyno:         %s", str_text(&text));
    json_put_str(o, "program", "qdyno");
    json_put_str(o, "text", str_text(&text));
    json_array_append_new(list, o);
    for (size_t i = 0; i < COUNT_OF(FOR); i++) {
        struct err why = { 0 };
        str_clear(&text);
        str_clear(&notes);
        if (apply_for(&text, &notes, FOR[i], file, &own, &why)) {
            table_closing(t, "%s: not possible: %s", FOR[i], why.message);
            continue;
        }
        o = json_object();
        json_put_str(o, "program", FOR[i]);
        json_put_str(o, "text", str_text(&text));
        json_array_append_new(list, o);
        if (!strchr(str_text(&text), '\n')) {
            table_closing(t, "%-14s %s", i ? "ollama:" : "llama-server:", str_text(&text));
        } else {
            table_closing(t, "%s",
                          i ? "ollama, in a file Modelfile (then: ollama create NAME -f Modelfile):"
                            : "llama-server:");
            table_lines(t, table_closing, str_text(&text));
        }
    }
    json_put(t->extra, "commands", list);
    str_free(&text);
    str_free(&notes);
}

/* Of many candidates, each with its own 95 % interval, one may reach the target by luck. */
static void close_again(struct table *t, const struct tune_result *r, const struct tune_choice *c,
                        const char *model, const char *workload)
{
    int timed = 0;
    for (int i = 0; i < r->n_seen; i++) timed += r->seen[i].timings > 0;
    if (!r->target.asked || r->target.reach != TUNE_REACHED || timed < 2 ||
        !strcmp(r->winner.line, r->current.line))
        return;
    struct str again = { 0 };
    advice_ab_command(&again, model, r->current.line, r->winner.line, workload);
    str_append(&again, " --gate ");
    word_append(&again, c->target.text);
    table_closing(
        t,
        "each interval is 95 %% for its candidate alone, so one of %d may reach the target by luck; to measure "
        "it again: %s",
        timed, str_text(&again));
    str_free(&again);
}

void tune_close_variants(struct table *t, const struct tune_result *r, const struct tune_choice *c,
                         const char *model, const char *workload)
{
    const long long run = (long long)r->run_id;
    close_again(t, r, c, model, workload);
    if (r->wins) close_commands(t, &r->keep, model);
    if (r->unfinished)
        table_next(
            t, "next: qdyno tune --resume %lld --budget %.0fs   (continues the search; the budget is in all)",
            run, r->enough_s);
    else if (r->stopped)
        table_next(t, "next: qdyno tune --resume %lld   (continues the search)", run);
    else if (run)
        table_next(t, "next: qdyno show %lld   (prints this again; --cells: every measurement)", run);
}
