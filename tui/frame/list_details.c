/* tui/frame/list_details.c - everything known about the selected row of a list, as a page of text. */
#include "tui/frame/frame.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "advisor/stats/stats.h"
#include "base/cut/cut.h"

static void put_line(struct text_page *p, const char *name, const char *text)
{
    text_page_put(p, PAGE_PLAIN, "%-22s %s", name, text);
}

/* ---------------------------------------------------------------- tensors */

/* "blk.*.ffn_down" is the kind "ffn_down" of a sensitivity map. */
static const char *kind_of_group(const char *group)
{
    return str_starts(group, "blk.*.") ? group + strlen("blk.*.") : group;
}

/* The loss when a single tensor of this kind is stored in the format of the map. */
static void put_sensitivity(struct text_page *p, const struct sensitivity_map *m, const char *kind)
{
    int row = 0, worst = -1, known = 0;
    while (row < m->kinds && strcmp(m->kind[row], kind) != 0) row++;
    if (row == m->kinds) return;
    for (int c = 0; c < m->layers; c++) {
        if (!isfinite(m->loss[row][c])) continue;
        known++;
        if (worst < 0 || m->loss[row][c] > m->loss[row][worst]) worst = c;
    }
    if (worst < 0) return;
    char where[32] = "outside of layers", text[160];
    if (worst) snprintf(where, sizeof where, "layer %d", worst - 1);
    snprintf(text, sizeof text, "at most %.2e nats (%s); %d of them measured", (double)m->loss[row][worst],
             where, known);
    put_line(p, m->format, text);
}

static void tensor_details(struct text_page *p, const struct ui *u, const struct snapshot *s, int i)
{
    (void)u;
    const struct tensor_group *t = &s->summary.group[i];
    const struct sensitivity *all = &s->sensitivity;
    char text[160];
    snprintf(p->title, sizeof p->title, "Tensor %s", t->name);
    put_line(p, "name", t->name);
    snprintf(text, sizeof text, "%d with this name and format", t->count);
    put_line(p, "tensors", text);
    put_line(p, "format", t->format);
    put_line(p, "shape of each", t->shape);
    snprintf(text, sizeof text, "%" PRId64 " in all", t->params);
    put_line(p, "weights", text);
    snprintf(text, sizeof text, "%s (%" PRId64 "), %s of the file", figure_bytes(t->bytes).text, t->bytes,
             figure_percent((double)t->bytes / (double)MAX(s->summary.bytes, INT64_C(1))).text);
    put_line(p, "bytes", text);
    snprintf(text, sizeof text, "%.3f", t->params ? 8.0 * (double)t->bytes / (double)t->params : (double)NAN);
    put_line(p, "bits per weight", t->params ? text : "n/a");
    text_page_put(p, PAGE_PLAIN, " ");
    text_page_put(p, PAGE_HEAD, "Sensitivity: the loss when one of them alone is stored in another format");
    const int before = p->count;
    for (int m = 0; m < all->maps; m++) put_sensitivity(p, &all->map[m], kind_of_group(t->name));
    if (p->count == before)
        text_page_put(p, PAGE_DIM, "%s",
                      all->maps         ? "not measured for this tensor"
                      : all->missing[0] ? all->missing
                                        : "n/a");
}

/* ---------------------------------------------------------------- quality, requests */

static void put_interval(struct text_page *p, const char *name, const struct interval *v, double scale,
                         const char *unit)
{
    text_page_put(p, PAGE_PLAIN, "%-22s %.4g%s  (95 %%: %.4g to %.4g)", name, scale * v->estimate, unit,
                  scale * v->lower, scale * v->upper);
}

static void quality_details(struct text_page *p, const struct ui *u, const struct snapshot *s, int i)
{
    (void)u;
    const struct quality_result *q = &s->quality.line[i];
    char text[TEXT_LABEL + 64];
    text_cutf(p->title, sizeof p->title, "Quality of %s", q->config);
    put_line(p, "configuration", q->config);
    put_line(p, "compared with", q->reference);
    if (q->windows)
        snprintf(text, sizeof text, "%s, %" PRId64 " window%s of %d tokens", q->text, q->windows,
                 str_plural(q->windows), q->ctx);
    else
        snprintf(text, sizeof text, "%s; measured by a search, which keeps the loss alone", q->text);
    put_line(p, "text", text);
    put_line(p, "its SHA-256", q->text_sha256[0] ? q->text_sha256 : "n/a: an older version measured it");
    if (q->foreign)
        text_page_put(p, PAGE_DIM,
                      "This model's text is %s. The loss was measured on another text, so it is not ranked "
                      "with the others; the command of this row measures it on %s.",
                      s->quality.text, s->quality.text);
    snprintf(text, sizeof text, "run %" PRId64 ", %s", q->run_id, figure_date(q->measured_ms).text);
    put_line(p, "measured", text);
    text_page_put(p, PAGE_PLAIN, " ");
    put_interval(p, "KL divergence", &q->kld, 1, " nats per token");
    put_interval(p, "same top-1 token", &q->top1, 100, " %");
    put_interval(p, "perplexity", &q->ppl, 1, "");
    put_interval(p, "perplexity ratio", &q->ppl_ratio, 1, "");
    text_page_put(p, PAGE_PLAIN, " ");
    text_page_put(p, PAGE_DIM,
                  "KL divergence: how far the predicted probabilities are from those of the "
                  "reference; 0 means equal predictions.");
}

static void put_latency(struct text_page *p, const char *name, const struct latency_histogram *h)
{
    if (!h->n) {
        text_page_put(p, PAGE_PLAIN, "%-22s n/a: %s", name, h->missing ? h->missing : "none were measured");
        return;
    }
    text_page_put(p, PAGE_PLAIN, "%-22s p50 %s, p95 %s, p99 %s", name, figure_seconds(h->p50).text,
                  figure_seconds(h->p95).text, figure_seconds(h->p99).text);
}

static void load_details(struct text_page *p, const struct ui *u, const struct snapshot *s, int i)
{
    (void)u;
    const struct stored_load *l = &s->load.line[i];
    char text[64];
    snprintf(p->title, sizeof p->title, "Requests of %s", l->workload);
    put_line(p, "workload", l->workload);
    put_line(p, "configuration", l->config);
    snprintf(text, sizeof text, "%" PRId64 ", %d at a time", l->requests, MAX(l->sequences, 1));
    put_line(p, "requests", text);
    put_latency(p, "time to first token", &l->ttft);
    put_latency(p, "inter-token latency", &l->itl);
    snprintf(text, sizeof text, "%s tok/s", figure_number(l->prefill_tok_s).text);
    put_line(p, "prefill", text);
    snprintf(text, sizeof text, "%s tok/s%s", figure_number(l->decode_tok_s).text,
             l->is_load ? " of one request, beside the others" : "");
    put_line(p, "decode", text);
    if (l->is_load)
        text_page_put(p, PAGE_DIM,
                      "The times are of all requests of this load. Its result (qdyno show) is of the steady "
                      "state only, and its tok/s are of all requests together.");
}

/* ---------------------------------------------------------------- log */

static void log_details(struct text_page *p, const struct ui *u, const struct snapshot *s, int i)
{
    static const char *const LEVELS[] = { "detail", "message", "warning", "error", "detail" };
    static const enum page_tone TONES[] = { PAGE_PLAIN, PAGE_PLAIN, PAGE_UNSURE, PAGE_BAD, PAGE_PLAIN };
    (void)u;
    const struct log_line *l = &s->log[i];
    char when[32];
    snprintf(p->title, sizeof p->title, "Log: %s at %s", LEVELS[l->level], figure_clock(l->unix_ms).text);
    put_line(p, "time", figure_date(l->unix_ms).text);
    put_line(p, "time (UTC)", clock_iso8601(l->unix_ms, when, sizeof when));
    put_line(p, "kind", LEVELS[l->level]);
    text_page_put(p, PAGE_PLAIN, " ");
    text_page_put(p, TONES[l->level], "%s", l->text);
}

/* ---------------------------------------------------------------- queue */

static void job_details(struct text_page *p, const struct ui *u, const struct snapshot *s, int i)
{
    struct queued_job now;
    const int first = snapshot_running_job(s, &now);
    const struct queued_job *j = i < first ? &now : &s->queue[i - first];
    char text[64];
    struct str shell = { 0 };
    snprintf(text, sizeof text, i < first ? "runs now" : "%d of %d waiting", i - first + 1, s->queued);
    command_print(&shell, u, &j->command);
    snprintf(p->title, sizeof p->title, "Job: %s", words_at(&j->command, 1));
    put_line(p, "position", text);
    put_line(p, i < first ? "began" : "queued", figure_date(j->since_ms).text);
    snprintf(text, sizeof text, "%" PRId64, j->run_id);
    if (j->run_id) put_line(p, "run", text);
    text_page_put(p, PAGE_PLAIN, " ");
    text_page_put(p, PAGE_PLAIN, "$ %s", str_text(&shell));
    text_page_put(p, PAGE_PLAIN, " ");
    text_page_put(p, PAGE_DIM, i < first ? "s stops it." : "x removes it, + and - move it.");
    str_free(&shell);
}

/* ---------------------------------------------------------------- candidates of a search */

static void tune_details(struct text_page *p, const struct ui *u, const struct snapshot *s, int i)
{
    const struct tune_row *r = &s->tune.row[i];
    char text[160] = "n/a";
    snprintf(p->title, sizeof p->title, "Candidate %d of %d", i + 1, s->tune.rows);
    put_line(p, "configuration", r->config);
    if (r->timings)
        snprintf(text, sizeof text, "%s tok/s, 95 %% interval %s to %s, from %d timing%s",
                 figure_number(r->rate).text, figure_number(r->lower).text, figure_number(r->upper).text,
                 r->timings, str_plural(r->timings));
    put_line(p, "decode", text);
    put_line(p, "memory", figure_bytes(r->bytes).text);
    snprintf(text, sizeof text, "%.2g nats", r->kld);
    put_line(p, "quality loss", isnan(r->kld) ? "not measured" : text);
    if (r->excluded[0]) put_line(p, "cannot win", r->excluded);
    text_page_put(p, PAGE_PLAIN, " ");
    text_page_put(p, PAGE_DIM, "To use it although the search does not propose it:");
    struct arena arena = { 0 };
    struct words words = { .arena = &arena };
    struct str command = { 0 };
    WORDS_PUT(&words, "qdyno", "apply", "-m", s->tune.model, r->config);
    command_print(&command, u, &words);
    text_page_put(p, PAGE_PLAIN, "$ %s", str_text(&command));
    str_free(&command);
    arena_free(&arena);
}

/* ---------------------------------------------------------------- all of them */

bool list_details(struct text_page *out, const struct ui *u, const struct snapshot *s)
{
    static void (*const DETAILS[VIEW_COUNT])(struct text_page *, const struct ui *, const struct snapshot *,
                                             int) = {
        [VIEW_MODEL] = tensor_details, [VIEW_QUALITY] = quality_details, [VIEW_LOAD] = load_details,
        [VIEW_LOG] = log_details,      [VIEW_JOBS] = job_details,        [VIEW_TUNE] = tune_details
    };
    const int item = DETAILS[u->view] ? list_selected(u, s) : -1;
    memset(out, 0, sizeof *out);
    if (item < 0) return false;
    DETAILS[u->view](out, u, s, item);
    return true;
}
