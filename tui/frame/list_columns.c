/* tui/frame/list_columns.c - the columns of every list of the dashboard: LISTS, one row per view. */
#include "tui/frame/frame.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/experiment/experiment.h"
#include "tui/frame/list_cells.h"

/* clang-format off */
static STYLE_CELL(dim, ROLE_DIM)
static STYLE_CELL(bold, ROLE_TEXT | STYLE_BOLD)

/* ---------------------------------------------------------------- history */

struct mark run_mark(const struct run_line *r)
{
    if (!strcmp(r->kind, "ab") && r->verdict[0]) return verdict_mark(verdict_parse(r->verdict));
    if (!strcmp(r->state, "done")) return (struct mark){ "✓", "done", ROLE_TEXT };
    if (!strcmp(r->state, "failed")) return (struct mark){ "✕", "failed", ROLE_ERROR };
    if (!strcmp(r->state, "stopped")) return (struct mark){ "○", "stopped", ROLE_WARN };
    if (!strcmp(r->state, "interrupted")) return (struct mark){ "○", "interrupted", ROLE_WARN };
    return (struct mark){ "●", r->state, ROLE_TITLE };
}

static COUNT_CELL(run_count, s->run_count)

static int64_t run_key(const struct snapshot *s, int i)
{
    return s->run[i].id;
}

static COPY_CELL(run_marked, ui_mark(u, s->run[i].id) ? "◆" : "")
static STYLE_CELL(run_marked_style, ui_mark(u, s->run[i].id) ? ROLE_KEY | STYLE_BOLD : (unsigned)ROLE_DIM)
static PRINT_CELL(run_number, "%" PRId64, s->run[i].id)
static VALUE_CELL(run_id, (double)s->run[i].id)
static COPY_CELL(run_started, figure_date(s->run[i].started_ms).text)

/* Narrow screens show no time. */
static PRINT_CELL(run_day, "%.5s", figure_date(s->run[i].started_ms).text)
static VALUE_CELL(run_time, (double)s->run[i].started_ms)
static TEXT_CELL(run_kind, s->run[i].kind)
static TEXT_CELL(run_arms, s->run[i].label[0] ? s->run[i].label : s->run[i].model)
static TEXT_CELL(run_model, s->run[i].model)
static TEXT_CELL(run_workload, s->run[i].workload)
static VALUE_CELL(run_effect, s->run[i].effect_ratio > 0 ? s->run[i].effect_ratio : (double)NAN)

static TEXT_OF(run_effect_text)
{
    const double ratio = s->run[i].effect_ratio;
    return put_text(buf, size, ratio > 0 ? figure_change(log(ratio)).text : "");
}

static TEXT_OF(run_verdict)
{
    const struct mark m = run_mark(&s->run[i]);
    snprintf(buf, size, "%s %s", m.glyph, m.word);
    return buf;
}

static STYLE_CELL(run_verdict_style, run_mark(&s->run[i]).role)

/* ---------------------------------------------------------------- advice */

static COUNT_CELL(advice_count, s->advice_count)
static PRINT_CELL(advice_number, "%d", i + 1)
static TEXT_CELL(advice_line, s->advice[i].line)

static TEXT_OF(advice_decode)
{
    const struct interval rate = advice_decode_rate(&s->advice[i], NULL);
    if (!isfinite(rate.estimate)) return "n/a";
    snprintf(buf, size, "%s (%s-%s)", figure_number(rate.estimate).text, figure_number(rate.lower).text,
             figure_number(rate.upper).text);
    return buf;
}

static TEXT_CELL(advice_evidence, s->advice[i].decode.runs ? "measured" : "predicted")
static STYLE_CELL(advice_evidence_style, s->advice[i].decode.runs ? ROLE_BETTER : ROLE_TEXT)
static VALUE_CELL(advice_rate, advice_decode_rate(&s->advice[i], NULL).estimate)
static COPY_CELL(advice_prefill, figure_number(s->advice[i].prediction.prefill_tok_s.estimate).text)
static VALUE_CELL(advice_prefill_rate, s->advice[i].prediction.prefill_tok_s.estimate)
static COPY_CELL(advice_memory, figure_bytes(s->advice[i].prediction.plan.total).text)
static VALUE_CELL(advice_bytes, (double)s->advice[i].prediction.plan.total)
static TEXT_CELL(advice_fits, s->advice[i].prediction.fits ? "yes" : "✕ no")
static STYLE_CELL(advice_fits_style, s->advice[i].prediction.fits ? ROLE_TEXT : ROLE_WORSE)

/* ---------------------------------------------------------------- tensors */

static COUNT_CELL(group_count, s->summary.groups)
static TEXT_CELL(group_name, s->summary.group[i].name)
static PRINT_CELL(group_times, "x%d", s->summary.group[i].count)
static VALUE_CELL(group_number, s->summary.group[i].count)
static TEXT_CELL(group_format, s->summary.group[i].format)
static TEXT_CELL(group_shape, s->summary.group[i].shape)
static COPY_CELL(group_size, figure_bytes(s->summary.group[i].bytes).text)
static VALUE_CELL(group_bytes, (double)s->summary.group[i].bytes)

static TEXT_OF(group_share)
{
    const double all = (double)s->summary.bytes;
    return put_text(buf, size, figure_percent(all > 0 ? group_bytes(s, i) / all : (double)NAN).text);
}

/* ---------------------------------------------------------------- quality of methods */

static COUNT_CELL(quality_count, s->quality.count)
static TEXT_CELL(quality_config, s->quality.line[i].config)
static TEXT_CELL(quality_reference, s->quality.line[i].reference)
static PRINT_CELL(quality_kld, "%.3g", s->quality.line[i].kld.estimate)

/* Losses on another text have no place in the order. */
static VALUE_CELL(quality_loss, s->quality.line[i].foreign ? (double)NAN : s->quality.line[i].kld.estimate)
static STYLE_CELL(quality_style, s->quality.line[i].foreign ? ROLE_DIM : ROLE_TEXT)

static TEXT_OF(quality_bounds)
{
    const struct interval *k = &s->quality.line[i].kld;
    if (!isfinite(k->upper)) return "n/a";
    snprintf(buf, size, "[%.3g, %.3g]", k->lower, k->upper);
    return buf;
}

static TEXT_OF(quality_top1)
{
    if (!isfinite(s->quality.line[i].top1.estimate)) return "n/a";
    snprintf(buf, size, "%.1f%%", 100 * s->quality.line[i].top1.estimate);
    return buf;
}

static VALUE_CELL(quality_same, s->quality.line[i].top1.estimate)

static TEXT_OF(quality_ppl)
{
    if (!isfinite(s->quality.line[i].ppl.estimate)) return "n/a";
    snprintf(buf, size, "%#.4g", s->quality.line[i].ppl.estimate);
    return buf;
}

static VALUE_CELL(quality_perplexity, s->quality.line[i].ppl.estimate)
static COPY_CELL(quality_change, figure_change(log(s->quality.line[i].ppl_ratio.estimate)).text)
static VALUE_CELL(quality_ratio, s->quality.line[i].ppl_ratio.estimate)

/* ---------------------------------------------------------------- requests */

static int load_count(const struct snapshot *s)
{
    return snapshot_live(s) ? 0 : s->load.lines; /* what runs is shown in its place */
}

static TEXT_CELL(load_workload, s->load.line[i].workload)
static TEXT_CELL(load_config, s->load.line[i].config)
static PRINT_CELL(load_number, "%" PRId64, s->load.line[i].requests)
static VALUE_CELL(load_requests, (double)s->load.line[i].requests)
static COPY_CELL(load_ttft_text, figure_seconds(s->load.line[i].ttft.p50).text)
static VALUE_CELL(load_ttft, s->load.line[i].ttft.p50)
static COPY_CELL(load_itl_text, figure_seconds(s->load.line[i].itl.p50).text)
static VALUE_CELL(load_itl, s->load.line[i].itl.p50)
static COPY_CELL(load_prefill_text, figure_number(s->load.line[i].prefill_tok_s).text)
static VALUE_CELL(load_prefill, s->load.line[i].prefill_tok_s)
static COPY_CELL(load_decode_text, figure_number(s->load.line[i].decode_tok_s).text)
static VALUE_CELL(load_decode, s->load.line[i].decode_tok_s)

/* ---------------------------------------------------------------- log */

static COUNT_CELL(log_count, s->log_count)

/* Lines have no number of their own; two within a millisecond are told apart by their text. */
static int64_t log_key(const struct snapshot *s, int i)
{
    uint32_t hash = 2166136261u;
    for (const char *p = s->log[i].text; *p; p++) hash = (hash ^ (unsigned char)*p) * 16777619u;
    return s->log[i].unix_ms * 4096 + hash % 4096;
}

static COPY_CELL(log_time, figure_clock(s->log[i].unix_ms).text)
static VALUE_CELL(log_ms, (double)s->log[i].unix_ms)

static TEXT_OF(log_mark)
{
    static const char *const MARKS[] = { "", "", "!", "✕", "" };
    return MARKS[s->log[i].level];
}

static TEXT_CELL(log_text, s->log[i].text)

static STYLE_OF(log_style)
{
    static const enum role ROLES[] = { ROLE_DIM, ROLE_TEXT, ROLE_WARN, ROLE_ERROR, ROLE_DIM };
    return ROLES[s->log[i].level];
}

/* ---------------------------------------------------------------- queue */

/* Item 0 is the running job, if one runs. */
static struct queued_job job_at(const struct snapshot *s, int i)
{
    struct queued_job now;
    const int first = snapshot_running_job(s, &now);
    return i < first ? now : s->queue[i - first];
}

static int job_count(const struct snapshot *s)
{
    struct queued_job now;
    return s->queued + snapshot_running_job(s, &now);
}

static int64_t job_key(const struct snapshot *s, int i)
{
    return job_at(s, i).id;
}

static TEXT_OF(job_position)
{
    struct queued_job now;
    const int first = snapshot_running_job(s, &now);
    if (i < first) return "runs";
    snprintf(buf, size, "%d", i - first + 1);
    return buf;
}

static VALUE_CELL(job_order, -i)

static TEXT_OF(job_kind)
{
    const struct queued_job j = job_at(s, i);
    return put_text(buf, size, words_at(&j.command, 1));
}

static TEXT_OF(job_line)
{
    const struct queued_job j = job_at(s, i);
    words_shown(&j.command, 1, buf, size);
    return buf;
}

static COPY_CELL(job_since, figure_clock(job_at(s, i).since_ms).text)
static VALUE_CELL(job_since_ms, (double)job_at(s, i).since_ms)

/* ---------------------------------------------------------------- all lists */

enum { VALUES = 13 };

const struct list LISTS[VIEW_COUNT] = {
    [VIEW_HISTORY] = { .items = "runs", .count = run_count, .key = run_key, .column = {
        { .title = "", .width = 1, .text = run_marked, .style = run_marked_style },
        { .title = "run", .width = 5, .right = true, .text = run_number, .value = run_id, .style = dim },
        { .title = "day", .width = 5, .gap = 2, .until = 70, .text = run_day, .value = run_time },
        { .title = "started", .width = 11, .gap = 2, .from = 70, .text = run_started, .value = run_time },
        { .title = "kind", .width = 5, .gap = 2, .text = run_kind },
        { .title = "arms", .gap = 1, .text = run_arms, .config = true },
        { .title = "model", .width = 13, .gap = 1, .from = 96, .wide = { { 110, 21 }, { 150, 40 } }, .text = run_model, .style = dim },
        { .title = "workload", .width = 10, .gap = 1, .from = 70, .text = run_workload, .style = dim },
        { .title = "effect", .width = 8, .right = true, .text = run_effect_text, .value = run_effect },
        { .title = "verdict", .width = 14, .gap = 1, .text = run_verdict, .style = run_verdict_style } } },
    [VIEW_ADVICE] = { .items = "configurations", .count = advice_count, .column = {
        { .title = "", .width = 3, .right = true, .text = advice_number },
        { .title = "configuration", .gap = 1, .text = advice_line, .config = true },
        { .title = "evidence", .width = 10, .from = 64, .right = true, .text = advice_evidence, .style = advice_evidence_style },
        { .title = "decode/s (low-high)", .width = 22, .right = true, .text = advice_decode, .value = advice_rate },
        { .title = "prefill/s", .width = 11, .from = 76, .right = true, .text = advice_prefill, .value = advice_prefill_rate },
        { .title = "memory", .width = 8, .right = true, .text = advice_memory, .value = advice_bytes },
        { .title = "fits", .width = 6, .right = true, .text = advice_fits, .style = advice_fits_style } } },
    [VIEW_MODEL] = { .items = "tensors", .count = group_count, .column = {
        { .title = "tensor", .text = group_name },
        { .title = "count", .width = 6, .right = true, .text = group_times, .value = group_number, .style = dim },
        { .title = "format", .width = 9, .gap = 1, .text = group_format, .style = bold },
        { .title = "shape", .width = 16, .from = 66, .text = group_shape, .style = dim },
        { .title = "bytes", .width = 8, .right = true, .text = group_size, .value = group_bytes },
        { .title = "share", .width = 6, .right = true, .text = group_share, .value = group_bytes },
        { .title = "", .width = 11, .gap = 1, .from = 84 } } }, /* a bar */
    [VIEW_QUALITY] = { .items = "methods", .count = quality_count, .column = {
        { .title = "method", .text = quality_config, .config = true },
        { .title = "against", .width = 14, .gap = 1, .from = 100, .text = quality_reference },
        { .title = "KLD, nats", .width = 10, .gap = 1, .right = true, .text = quality_kld, .value = quality_loss,
          .style = quality_style },
        { .title = "95 %", .width = 22, .from = 112, .right = true, .text = quality_bounds, .value = quality_loss,
          .style = quality_style },
        { .title = "", .width = 18, .wide = { { 112, 26 }, { 150, 44 } } }, /* the interval as a bar */
        { .title = "top-1", .width = 8, .right = true, .text = quality_top1, .value = quality_same },
        { .title = "PPL", .width = 9, .from = 70, .right = true, .text = quality_ppl, .value = quality_perplexity },
        { .title = "change", .width = 8, .from = 70, .right = true, .text = quality_change, .value = quality_ratio } } },
    [VIEW_LOAD] = { .items = "workloads", .count = load_count, .column = {
        { .title = "workload", .width = 9, .wide = { { 55, 14 } }, .text = load_workload, .config = true },
        { .title = "config", .gap = 1, .text = load_config, .config = true },
        { .title = "n", .width = 6, .from = 47, .right = true, .text = load_number, .value = load_requests },
        { .title = "TTFT", .width = 7, .from = 55, .right = true, .text = load_ttft_text, .value = load_ttft },
        { .title = "ITL", .width = 7, .right = true, .text = load_itl_text, .value = load_itl },
        { .title = "prefill/s", .width = 10, .from = 70, .right = true, .text = load_prefill_text,
          .value = load_prefill },
        { .title = "tok/s", .width = 7, .right = true, .text = load_decode_text, .value = load_decode } } },
    [VIEW_SETTINGS] = { .items = "settings", .count = knob_count, .holds = knob_holds, .column = {
        { .title = "key", .width = 17, .text = knob_key, .style = knob_key_style },
        { .title = "default", .width = VALUES, .gap = 1, .text = knob_default, .hidden = knob_some_arms },
        { .title = "in use", .width = VALUES, .gap = 1, .text = knob_in_use, .hidden = knob_nothing_applied,
          .style = bold },
        { .title = "A", .width = VALUES, .gap = 1, .text = knob_arm_a, .hidden = knob_no_arms },
        { .title = "B", .width = VALUES, .gap = 1, .text = knob_arm_b, .hidden = knob_no_arms, .style = knob_arm_b_style },
        { .title = "", .width = 2, .gap = 1, .text = knob_difference, .hidden = knob_no_arms,
          .style = knob_difference_style },
        { .title = "affects", .width = 15, .gap = 1, .from = 110, .text = knob_work },
        { .title = "flag", .width = 5, .gap = 1, .from = 110, .text = knob_flag },
        { .title = "effect on this model", .width = 22, .gap = 1, .from = 110, .text = knob_effect_text },
        /* on no screen: for the search only, because the details of the selected row show it */
        { .title = "called elsewhere", .width = 1, .from = 10000, .text = knob_other_names },
        { .title = "range", .gap = 1, .text = knob_range_text } } },
    [VIEW_LOG] = { .items = "messages", .count = log_count, .key = log_key, .newest_last = true, .column = {
        { .title = "time", .width = 8, .text = log_time, .value = log_ms, .style = dim },
        { .title = "", .width = 1, .gap = 1, .text = log_mark, .style = log_style },
        { .title = "message", .gap = 1, .text = log_text, .style = log_style } } },
    [VIEW_JOBS] = { .items = "jobs", .count = job_count, .key = job_key, .column = {
        { .title = "position", .width = 8, .text = job_position, .value = job_order, .style = bold },
        { .title = "since", .width = 8, .gap = 1, .text = job_since, .value = job_since_ms, .style = dim },
        { .title = "kind", .width = 10, .gap = 1, .text = job_kind },
        { .title = "command", .gap = 1, .text = job_line } } },
    [VIEW_TUNE] = { .items = "candidates", .count = candidate_count, .column = {
        { .title = "", .width = 1, .text = candidate_mark, .style = candidate_style },
        { .title = "configuration", .gap = 1, .text = candidate_config, .style = candidate_style, .config = true },
        { .title = "tok/s", .width = 8, .right = true, .text = candidate_rate_text, .value = candidate_rate, .style = candidate_style },
        { .title = "", .width = 9, .gap = 1, .wide = { { 70, 23 }, { 150, 46 } }, .hidden = candidate_no_interval }, /* it as a bar */
        { .title = "memory", .width = 8, .right = true, .text = candidate_memory, .value = candidate_bytes, .style = candidate_style },
        { .title = "KLD, nats", .width = 11, .right = true, .text = candidate_loss_text, .value = candidate_loss,
          .style = candidate_loss_style } } },
};
/* clang-format on */
