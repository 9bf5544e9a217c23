/* tui/dashboard/linear.c - reports changes as lines of text, and turns typed lines into keys. Pure functions
 * of the frame. */
#include "tui/dashboard/linear.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/predict/predict.h"

/* Append one line with the time of day. */
static void print_line(struct str *out, int64_t unix_ms, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    const int n = vasprintf(&text, fmt, args);
    va_end(args);
    if (n >= 0) str_printf(out, "%s %s\n", figure_clock(unix_ms).text, text);
    if (n >= 0) free(text);
}

/* ---------------------------------------------------------------- machine, model, advice */

static void report_machine(struct linear_reported *t, const struct snapshot *s, struct str *out)
{
    char line[160];
    if (!s->machine_known || t->machine) return;
    t->machine = true;
    print_line(out, s->unix_ms, "machine: %s", machine_short(&s->machine, line, sizeof line));
}

static void report_model(struct linear_reported *t, const struct snapshot *s, struct str *out)
{
    const struct model_shape *m = &s->model;
    const bool read = m->arch[0] || s->model_error[0];
    char quantization[96];
    if (strcmp(t->model, s->model_path) != 0) t->model_read = false;
    if (t->model_read || !read || !s->model_path[0]) return;
    t->model_read = true;
    memcpy(t->model, s->model_path, sizeof t->model);
    if (s->model_error[0])
        print_line(out, s->unix_ms, "model: %s", s->model_error);
    else
        print_line(out, s->unix_ms, "model: %s: %s, %sM parameters, %s in %s", s->model_path, m->arch,
                   figure_number((double)m->params / 1e6).text, figure_bytes(m->weight_bytes).text,
                   quantization_text(m, quantization, sizeof quantization));
    if (snapshot_caution(s)) print_line(out, s->unix_ms, "%s", snapshot_caution(s));
}

static void print_advice(const struct snapshot *s, struct str *out)
{
    for (int i = 0; i < s->advice_count; i++) {
        const struct advice *a = &s->advice[i];
        const struct prediction *p = &a->prediction;
        if (snapshot_is_folded(s, i)) {
            print_line(
                out, s->unix_ms,
                "advice: %d more configuration%s predictions too uncertain to rank; to measure the best of them: %s",
                s->advice_folded, s->advice_folded == 1 ? " has" : "s have", a->check);
            continue;
        }
        print_line(out, s->unix_ms, "advice %d: %s: decode %s tok/s (%s to %s, %s), %s; %s", i + 1, a->line,
                   figure_number(p->decode_tok_s.estimate).text, figure_number(p->decode_tok_s.lower).text,
                   figure_number(p->decode_tok_s.upper).text, a->decode.runs ? "measured" : "predicted",
                   figure_bytes(p->plan.total).text, a->reason);
    }
}

/* Reports a new state of the advice once; the percentage in it is cut off, because it changes all the time.
 */
static void report_advice(struct linear_reported *t, const struct snapshot *s, struct str *out)
{
    char state[sizeof t->advice_state];
    snprintf(state, sizeof state, "%.*s", (int)strcspn(s->advice_state, ",:"), s->advice_state);
    if (strcmp(state, t->advice_state) != 0) {
        if (state[0]) print_line(out, s->unix_ms, "advice: %s", state);
        memcpy(t->advice_state, state, sizeof state);
    }
    if (s->advice_count != t->advice_count) print_advice(s, out);
    t->advice_count = s->advice_count;
}

/* ---------------------------------------------------------------- experiment */

static void append_effect(const struct experiment_state *x, int arm, struct str *text)
{
    const struct mark m = verdict_mark(experiment_verdict(x, arm));
    const struct interval change = experiment_change(x, experiment_comparison(x, arm)->effect);
    str_printf(text, "%c %s", 'A' + arm, m.word);
    if (isfinite(change.estimate))
        str_printf(text, ", %s, from %s to %s", figure_change(change.estimate).text,
                   figure_change(change.lower).text, figure_change(change.upper).text);
}

static void print_end(const struct snapshot *s, struct str *out)
{
    const struct experiment_state *x = &s->experiment;
    struct str text = { 0 };
    if (x->phase == PHASE_FAILED) {
        print_line(out, s->unix_ms, "run %lld failed: %s", (long long)x->run_id, x->error);
        return;
    }
    for (int k = 1; k < experiment_arms(&x->spec) && x->phase == PHASE_DONE; k++) {
        str_append(&text, k > 1 ? "; " : "");
        append_effect(x, k, &text);
    }
    if (x->reason[0]) str_printf(&text, "%s%s", text.len ? "; " : "", x->reason);
    print_line(out, s->unix_ms, "run %lld %s: %s; %d block%s, %d discarded, A against A %s",
               (long long)x->run_id, phase_mark(s).word, text.len ? str_text(&text) : "no verdict", x->blocks,
               str_plural(x->blocks), x->discarded,
               isfinite(x->noise_floor) ? figure_percent(x->noise_floor).text : "unknown");
    str_free(&text);
}

static void print_begin(const struct snapshot *s, struct str *out)
{
    const struct experiment_state *x = &s->experiment;
    char workload[WORKLOAD_LINE];
    struct str arms = { 0 };
    for (int k = 0; k < experiment_arms(&x->spec); k++)
        str_printf(&arms, "%s%c %s", k ? ", " : "", 'A' + k, x->arm[k].line);
    print_line(out, s->unix_ms, "run %lld: %s, on %s", (long long)x->run_id, str_text(&arms),
               workload_line(&x->spec.workload, workload, sizeof workload));
    str_free(&arms);
}

static void report_experiment(struct linear_reported *t, const struct snapshot *s, struct str *out)
{
    const struct experiment_state *x = &s->experiment;
    if (s->experiment_starting && !t->starting)
        print_line(out, s->unix_ms, "an experiment is about to start");
    t->starting = s->experiment_starting;
    if (!s->experiment_known) return;
    const bool fresh = !t->experiment || t->run_id != x->run_id;
    if (fresh && x->run_id) print_begin(s, out);
    if (fresh || t->phase != x->phase) {
        if (x->phase >= PHASE_DONE)
            print_end(s, out);
        else
            print_line(out, s->unix_ms, "%s", phase_mark(s).word);
    } else if (t->verdict != x->verdict && x->phase < PHASE_DONE) {
        print_line(out, s->unix_ms, "so far: %s", verdict_mark(x->verdict).word);
    }
    t->experiment = x->run_id != 0;
    t->run_id = x->run_id;
    t->phase = x->phase;
    t->verdict = x->verdict;
}

/* ---------------------------------------------------------------- search */

static void print_leader(const struct tune_row *r, int64_t unix_ms, struct str *out)
{
    char loss[48] = "quality not measured";
    if (!isnan(r->kld)) snprintf(loss, sizeof loss, "KL divergence %.2g nats", r->kld);
    print_line(out, unix_ms, "search: best so far %s%s: %s tok/s, from %s to %s; %s; %s", r->config,
               r->is_current ? " (current)" : "", figure_number(r->rate).text, figure_number(r->lower).text,
               figure_number(r->upper).text, figure_bytes(r->bytes).text, loss);
}

static void print_tune_end(const struct snapshot *s, struct str *out)
{
    const struct tune_watch *w = &s->tune;
    char next[600];
    print_line(out, s->unix_ms, "search ended: %s", w->ended ? w->text : w->error);
    print_line(out, s->unix_ms, "search: %s", tune_next_step(s, next, sizeof next));
}

static void report_tune(struct linear_reported *t, const struct snapshot *s, struct str *out)
{
    const struct tune_watch *w = &s->tune;
    const struct stopped_run *old = &s->stopped_tune;
    const struct tune_row *best = tune_watch_leader(w);
    if (old->id != t->tune_stopped && old->id && old->id != w->run_id)
        print_line(out, s->unix_ms, "the search of %s (run %lld) was %s: r resumes it", old->model,
                   (long long)old->id, old->state);
    t->tune_stopped = old->id;
    if (!w->known) return;
    if (w->begun_ms != t->tune_begun_ms) {
        t->tune_reported = t->tune_ended = false;
        t->tune_leader[0] = '\0';
    }
    t->tune_begun_ms = w->begun_ms;
    if (w->running && (!t->tune_reported || w->phase != t->tune_phase))
        print_line(out, s->unix_ms, "search: %s%s%s", TUNE_PHASE_NAMES[w->phase], w->why[0] ? ": " : "",
                   w->why);
    t->tune_phase = w->phase;
    t->tune_reported = true;
    if (best && strcmp(best->config, t->tune_leader) != 0) {
        print_leader(best, s->unix_ms, out);
        memcpy(t->tune_leader, best->config, sizeof t->tune_leader);
    }
    if (w->running || t->tune_ended) return;
    t->tune_ended = true;
    print_tune_end(s, out);
}

/* ---------------------------------------------------------------- log, lists, questions */

static bool log_line_equal(const struct log_line *a, const struct log_line *b)
{
    return a->unix_ms == b->unix_ms && !strcmp(a->text, b->text);
}

static void report_log(struct linear_reported *t, const struct snapshot *s, struct str *out)
{
    int from = s->log_count;
    while (from > 0 && !log_line_equal(&s->log[from - 1], &t->last)) from--;
    for (int i = from; i < s->log_count; i++) print_line(out, s->log[i].unix_ms, "%s", s->log[i].text);
    if (s->log_count) t->last = s->log[s->log_count - 1];
}

/* The rows of the list on screen, with the columns that a wide one shows: "run 12; kind ab; ...". */
static void print_list(const struct snapshot *s, const struct ui *u, struct str *out)
{
    enum { COLUMNS = 200 };
    const struct list *l = &LISTS[u->view];
    int items[LIST_ROWS];
    const int n = l->items ? list_order(u, s, items) : 0;
    for (int row = 0; row < n; row++) {
        struct str line = { 0 };
        for (const struct list_column *c = l->column; c->title; c++) {
            char buf[LIST_CELL];
            const bool shown = *c->title && c->from <= COLUMNS && (!c->until || c->until > COLUMNS) &&
                               !(c->hidden && c->hidden(s));
            const char *text = shown ? c->text(u, s, items[row], buf, sizeof buf) : "";
            if (*text) str_printf(&line, "%s%s %s", line.len ? "; " : "", c->title, text);
        }
        print_line(out, s->unix_ms, "%s", str_text(&line));
        str_free(&line);
    }
    if (l->items && !n) print_line(out, s->unix_ms, "no %s", l->items);
}

static void print_quality(const struct snapshot *s, struct str *out)
{
    for (int i = 0; i < s->quality.count; i++) {
        const struct quality_result *q = &s->quality.line[i];
        char more[80] = "";
        if (q->windows)
            snprintf(more, sizeof more, "; same top-1 %.1f%%; perplexity %.4g", 100 * q->top1.estimate,
                     q->ppl.estimate);
        print_line(out, s->unix_ms, "%s against %s: KL divergence %.3g nats on %s, from %.3g to %.3g%s%s%s",
                   q->config, q->reference, q->kld.estimate, q->text, q->kld.lower, q->kld.upper, more,
                   q->foreign ? "; not ranked, because this model's text is " : "",
                   q->foreign ? s->quality.text : "");
    }
    if (s->quality.count <= 0) print_line(out, s->unix_ms, "the quality of this model was not measured");
    for (int k = 0; k < s->sensitivity.maps; k++) {
        const struct sensitivity_map *m = &s->sensitivity.map[k];
        char name[64];
        int row, column;
        if (sensitivity_most(m, &row, &column))
            print_line(out, s->unix_ms, "most sensitive tensor in %s: %s, %.2e nats", m->format,
                       sensitivity_name(m, row, column, name, sizeof name), (double)m->loss[row][column]);
    }
}

static void print_live(const struct snapshot *s, const struct live *l, struct str *out)
{
    const int64_t ended = l->met + l->missed;
    if (s->load_source == LOAD_OF_SERVER && s->server.error[0]) {
        print_line(out, s->unix_ms, "server %s: %s", s->server.url, s->server.error);
        return;
    }
    print_line(
        out, s->unix_ms,
        "%lld request%s arrived, %lld done, %lld not; %d wait, %d run; TTFT p50 %s; ITL p50 %s; %lld stall%s "
        "above %s; goodput %s; %s",
        (long long)l->arrived, str_plural(l->arrived), (long long)l->done, (long long)l->not_done, l->waiting,
        l->running, figure_seconds(live_quantile(&l->first, 0.5)).text,
        figure_seconds(live_quantile(&l->gap, 0.5)).text, (long long)l->stalls,
        figure_seconds(l->stall_s).text, figure_percent(ended ? (double)l->met / (double)ended : NAN).text,
        l->settings);
}

static void report_view(struct linear_reported *t, const struct snapshot *s, const struct ui *u,
                        struct str *out)
{
    const bool came = u->view != t->view;
    if (came && u->view == VIEW_ADVICE)
        print_advice(s, out);
    else if (came && u->view == VIEW_QUALITY)
        print_quality(s, out);
    else if (came && u->view == VIEW_LOAD && snapshot_live(s))
        print_live(s, snapshot_live(s), out);
    else if ((came && u->view != VIEW_LOG) || (u->view == VIEW_HISTORY && s->run_count != t->runs))
        print_list(s, u, out); /* the log is printed as it comes */
    t->view = u->view;
    t->runs = s->run_count;
}

/* The output of a command, if it was started to show it. */
static void report_page(struct linear_reported *t, const struct snapshot *s, struct str *out)
{
    if (t->page == s->page.number) return;
    t->page = s->page.number;
    for (int i = 0; s->page.opens && i < s->page.count; i++)
        print_line(out, s->unix_ms, "%s", s->page.line[i].text);
}

static void print_question(struct str *out, int64_t unix_ms, const struct ui *u)
{
    struct str command = { 0 };
    command_print(&command, u, &u->question.command);
    print_line(out, unix_ms, "%s y or n: %s", u->question.text, str_text(&command));
    str_free(&command);
}

static void report_questions(struct linear_reported *t, const struct snapshot *s, const struct ui *u,
                             struct str *out)
{
    const struct form *f = &u->form;
    const struct form_field *field = &f->field[f->focus];
    const bool open = f->kind != FORM_CLOSED && f->kind != FORM_PALETTE;
    if (u->confirm_quit && !t->confirm_quit) print_line(out, s->unix_ms, "%s y or n", ui_quit_question(s));
    t->confirm_quit = u->confirm_quit;
    if (u->question.text[0] && !t->question) print_question(out, s->unix_ms, u);
    t->question = u->question.text[0] != '\0';
    if (open && (f->kind != t->form || f->focus != t->focus || strcmp(field->error, t->form_error) != 0)) {
        if (field->error[0] && field->text[0]) print_line(out, s->unix_ms, "%s", field->error);
        print_line(out, s->unix_ms, "%s: %s? (empty line: %s; \".\" closes the form)", FORMS[f->kind].title,
                   FORMS[f->kind].field[f->focus].label, field->text[0] ? field->text : "nothing");
    }
    t->form = f->kind;
    t->focus = f->focus;
    memcpy(t->form_error, field->error, sizeof t->form_error);
}

/* Reports the texts when both are complete: a screen reader cannot follow single words. */
static void report_write(struct linear_reported *t, const struct snapshot *s, struct str *out)
{
    const struct sidebyside_state *w = &s->write;
    if (!s->write_known) return;
    if (t->write_begun_ms != w->started_ms)
        print_line(out, s->unix_ms, "A %s and B %s are writing", w->arm[0].line, w->arm[1].line);
    t->write_begun_ms = w->started_ms;
    if (w->running || t->write_reported_ms == w->started_ms) return;
    t->write_reported_ms = w->started_ms;
    for (int i = 0; i < SIDEBYSIDE_ARMS; i++) {
        const struct sidebyside_arm *a = &w->arm[i];
        char text[1500]; /* one line: control characters become blanks */
        snprintf(text, sizeof text, "%s%s", a->phase == SIDEBYSIDE_FAILED ? a->error : w->prompt,
                 a->phase == SIDEBYSIDE_FAILED ? "" : a->text);
        for (char *p = text; *p; p++) *p = (unsigned char)*p < 0x20 || *p == 0x7f ? ' ' : *p;
        print_line(out, s->unix_ms, "%c, %d tokens, %s tokens/s: %s", 'A' + i, a->tokens,
                   figure_number(a->tok_s).text, text);
    }
    print_line(out, s->unix_ms,
               w->differ ? "the texts are the same for %d tokens, then differ"
                         : "the texts are the same: %d tokens",
               w->same_tokens);
}

void linear_report(struct linear_reported *t, const struct snapshot *s, const struct ui *u, struct str *out)
{
    report_machine(t, s, out);
    report_model(t, s, out);
    report_log(t, s, out);
    report_advice(t, s, out);
    report_experiment(t, s, out);
    report_tune(t, s, out);
    report_write(t, s, out);
    report_view(t, s, u, out);
    report_page(t, s, out);
    if (u->message[0] && strcmp(u->message, t->message) != 0 && strcmp(u->message, t->last.text) != 0)
        print_line(out, s->unix_ms, "%s", u->message);
    memcpy(t->message, u->message, sizeof t->message);
    report_questions(t, s, u, out);
}

void linear_status(const struct snapshot *s, struct str *out)
{
    const struct experiment_state *x = &s->experiment;
    struct str text = { 0 };
    if (s->experiment_known && x->phase < PHASE_DONE) {
        str_printf(&text, "%s, block %d, %d kept", phase_mark(s).word, MAX(x->block, 0) + 1, x->blocks);
        if (x->blocks > 1) {
            str_append(&text, "; so far ");
            append_effect(x, MAX(x->headline, 1), &text);
        }
        if (isfinite(x->eta_s)) str_printf(&text, "; %s left", figure_duration(x->eta_s).text);
    } else if (s->tune.running) {
        str_printf(&text, "search: %s, %s of the budget, %s left; %d timed", TUNE_PHASE_NAMES[s->tune.phase],
                   figure_percent(s->tune.share).text, figure_duration(s->tune.left_s).text, s->tune.timed);
    } else {
        str_append(&text, phase_mark(s).word);
    }
    print_line(out, s->unix_ms, "%s; CPU %s busy, %s of memory used", str_text(&text),
               figure_percent(s->sensor[METRIC_CPU_BUSY]).text,
               isnan(s->sensor[METRIC_MEM_USED]) ? "an unknown part"
                                                 : figure_bytes((int64_t)s->sensor[METRIC_MEM_USED]).text);
    str_free(&text);
}

/* ---------------------------------------------------------------- lines in */

struct key_buffer {
    int *keys;
    int n, max;
};

static void key_buffer_add(struct key_buffer *t, int key)
{
    if (t->n < t->max) t->keys[t->n++] = key;
}

static void key_buffer_add_text(struct key_buffer *t, const char *text)
{
    size_t left = strlen(text), used;
    uint32_t code;
    for (; (used = str_utf8_next(text, left, &code)) > 0; text += used, left -= used)
        if (code >= 0x20) key_buffer_add(t, (int)code);
}

/* The answer for the focused field, then the key for the next field or for accepting the form. */
static void key_buffer_add_answer(struct key_buffer *t, const char *line, const struct form *f)
{
    if (!strcmp(line, ".")) {
        key_buffer_add(t, UI_KEY_ESC);
        return;
    }
    if (*line) {
        key_buffer_add(
            t, UI_CTRL('e')); /* delete the old text: go to the end, delete to the start and to the end */
        key_buffer_add(t, UI_CTRL('u'));
        key_buffer_add(t, UI_CTRL('k'));
        key_buffer_add_text(t, line);
    }
    key_buffer_add(t, f->focus + 1 < FORMS[f->kind].fields ? UI_KEY_TAB : UI_KEY_ENTER);
}

/* Whether `text` begins the name or one of its words. */
static bool name_contains_start(const char *name, const char *text)
{
    for (const char *at = name; (at = strcasestr(at, text)); at++)
        if (at == name || !isalnum((unsigned char)at[-1])) return true;
    return false;
}

static bool is_key_name(const char *line)
{
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (!strcmp(KEYS[i].name, line)) return true;
    return false;
}

/* The palette lists whatever resembles the text, because a person looks before pressing Enter. Nobody looks
 * here, so the text must begin a word of the name. */
static bool is_palette_name(const char *line, const struct ui *u)
{
    struct palette_entry best;
    return palette_find(line, u->commands, u->command_count, &best, 1) > 0 &&
           name_contains_start(best.name, line);
}

static void print_help(const struct snapshot *s, const struct ui *u, struct str *out)
{
    print_line(out, s->unix_ms,
               "help: this list; quit: end the dashboard; an empty line: the status; \".\": close a form");
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (KEYS[i].title)
            print_line(out, s->unix_ms, "%s or %s: %s", KEYS[i].name, KEYS[i].title, KEYS[i].help);
    for (int i = 0; i < u->command_count; i++)
        print_line(out, s->unix_ms, "%s %s: %s", u->commands[i].name, u->commands[i].arguments,
                   u->commands[i].help);
    for (int i = 0; i < KNOB_COUNT; i++)
        print_line(out, s->unix_ms, "%s: start an A/B of this setting: %s", KNOBS[i].key, KNOBS[i].help);
}

bool linear_answer(const char *line, const struct snapshot *s, const struct ui *u, struct str *out)
{
    if (u->confirm_quit || u->question.text[0] || u->form.kind != FORM_CLOSED) return false;
    if (!*line)
        linear_status(s, out);
    else if (!strcmp(line, "help") || !strcmp(line, key_of_action(DO_HELP)->name))
        print_help(s, u, out);
    else if (is_key_name(line) || is_palette_name(line, u))
        return false;
    else
        print_line(out, s->unix_ms, "'%s' is not a command; nothing was done: help lists the commands", line);
    return true;
}

int linear_keys(const char *line, const struct ui *u, int *keys, int max)
{
    struct key_buffer t = { keys, 0, max };
    if (u->confirm_quit || u->question.text[0]) {
        key_buffer_add(&t, *line == 'y' ? 'y' : 'n');
        return t.n;
    }
    if (u->form.kind != FORM_CLOSED) {
        key_buffer_add_answer(&t, line, &u->form);
        return t.n;
    }
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (!strcmp(KEYS[i].name, line)) {
            key_buffer_add(&t, KEYS[i].key[0]);
            return t.n;
        }
    key_buffer_add(&t, key_of_action(DO_PALETTE)->key[0]);
    key_buffer_add_text(&t, line);
    key_buffer_add(&t, UI_KEY_ENTER);
    return t.n;
}
