/* advisor/tune/variants.c - which file of a model, and which config reaches a target?
 *
 * The reference is the most exact file (or the one that was named). Every other file's loss against it is
 * measured first, on the same windows of the same text, because a file that loses too much need not be timed.
 * The others are timed in experiments whose first arm is the reference. With a target, all candidates are
 * judged by their own intervals; without one, the best by the goal is compared with the reference once more,
 * on new blocks, because the measured rate of a selected maximum is biased upwards. */
#include "advisor/tune/variants.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Shares of the budget: quality; timing all files; timing configs of --space; the rest confirms. */
static const double QUALITY_SHARE = 0.3, FILES_SHARE = 0.4, SPACE_SHARE = 0.2, RACE_SHARE = 0.35;
enum { SPACE_FILES = 2 }; /* files that --space is tried on */

bool tune_is_variants(const struct tune_options *o)
{
    return (o->files && o->files->n > 1) || (o->target && o->target->terms);
}

double variants_spent(const struct variants *s)
{
    return s->spent_before + (double)(clock_ns() - s->begun_ns) * 1e-9;
}

bool variants_report(struct variants *s, enum tune_phase phase, const char *what, const char *config)
{
    struct tune_progress *now = &s->now;
    const struct tune_options *o = s->o;
    now->phase = phase;
    now->what = what;
    if (config != now->config) snprintf(now->config, sizeof now->config, "%s", config);
    now->run_id = s->out->run_id;
    now->possible = s->n - 1;
    now->timed = now->judged = 0;
    for (int i = 1; i < s->n; i++) {
        now->timed += s->v[i].timed;
        now->judged += s->v[i].asked;
    }
    now->share = fmin(variants_spent(s) / o->budget_s, 1);
    now->left_s = fmax(o->budget_s - variants_spent(s), 0);
    return !o->progress || o->progress(o->ctx, now);
}

/* The one place where a candidate becomes a file on this machine. */
static enum err_code candidate_localize(const struct variants *s, struct config *c, struct err *why)
{
    char path[CONFIG_VALUE];
    if (!s->o->local || !*config_text(c, KNOB_MODEL)) return ERR_OK;
    const enum err_code rc = s->o->local(s->o->local_ctx, path, sizeof path, config_text(c, KNOB_MODEL), why);
    return rc ? rc : config_set(c, KNOBS[KNOB_MODEL].key, path, why);
}

enum err_code variants_add(struct variants *s, const struct config *c, double bits, struct err *why)
{
    struct config own = *c;
    enum err_code rc = candidate_localize(s, &own, why);
    for (int i = 0; i < s->n && !rc; i++)
        if (config_same(&s->v[i].config, &own)) return ERR_OK;
    if (!rc && s->n == VARIANTS)
        rc = err_set(why, ERR_USAGE, "more than %d candidates: name fewer files, or a smaller --space",
                     VARIANTS);
    if (!rc) rc = workload_check(&s->o->workload, &own, why);
    if (rc) return rc;
    struct tune_candidate *x = &s->seen[s->n];
    s->v[s->n] = (struct variant){ .config = own, .effect = { NAN, NAN, NAN } };
    *x = tune_candidate_unknown(s->n);
    x->bits = bits;
    config_line(&own, x->line, sizeof x->line);
    s->n++;
    return ERR_OK;
}

/* The reference loses nothing against itself. */
static void reference_exact(struct variants *s)
{
    const struct divergence none = {
        .candidate = { .chunks = 1 }, .top1_ratio = 1, .top1_lower = 1, .top1_upper = 1
    };
    struct quality *q = &s->v[0].quality;
    quality_of(q, &none, s->text, s->out->quality.ctx);
    q->kld = (struct interval){ 0, 0, 0 };
    q->ppl_ratio = (struct interval){ 1, 1, 1 };
    q->top1 = (struct interval){ 1, 1, 1 };
    q->ppl = (struct interval){ NAN, NAN, NAN };
    s->v[0].asked = s->seen[0].same_answers = true;
}

static enum err_code options_check(const struct variants *s, struct err *why)
{
    const struct tune_options *o = s->o;
    if (o->search_only)
        return err_set(why, ERR_USAGE, "--search-only is for a search of one file without --target");
    if (o->goal == GOAL_ENERGY)
        return err_set(why, ERR_USAGE,
                       "--goal energy is for a search of one file without --target: expected a target for "
                       "energy here, such as --target 'energy_j_token <= 2'");
    if (o->limits.accuracy > 0)
        return err_set(why, ERR_USAGE, "--limit accuracy= is for a search of one file without --target");
    if (config_is_foreign(o->current) || (o->space && tune_is_foreign(o->current, o->space)))
        return err_set(why, ERR_USAGE,
                       "files and targets are measured with qdyno's own engine: leave engine= out");
    return ERR_OK;
}

static enum err_code text_choose(struct variants *s, struct err *why)
{
    const struct tune_options *o = s->o;
    char *text = NULL;
    size_t n = 0;
    enum err_code rc = ERR_OK;
    if (o->text_file)
        snprintf(s->text, sizeof s->text, "%s", o->text_file);
    else
        rc = quality_text_path(s->text, sizeof s->text, s->db, o->model_path, why);
    if (!rc) rc = file_read(&text, &n, s->text, TEXT_FILE_LIMIT, why);
    if (rc) return rc;
    hash_bytes(text, n, s->sha256);
    free(text);
    snprintf(s->out->text, sizeof s->out->text, "%.127s", path_file_name(s->text));
    snprintf(s->out->text_sha256, sizeof s->out->text_sha256, "%s", s->sha256);
    quality_context_choose(&s->out->quality, &o->workload, o->model_path, s->text, QUALITY_CTX);
    if (o->quality_ctx)
        s->out->quality = (struct quality_context){ s->out->quality.wanted, o->quality_ctx, 0, 0 };
    return ERR_OK;
}

static enum err_code candidates_list(struct variants *s, struct err *why)
{
    const struct tune_options *o = s->o;
    struct config c = *o->current;
    enum err_code rc = ERR_OK;
    if (!s->files) { /* arm A is the unchanged file, the current config a candidate */
        struct config as_is;
        tune_config_as_is(&as_is, o->current);
        rc = variants_add(s, &as_is, NAN, why);
        return rc ? rc : variants_add(s, o->current, NAN, why);
    }
    for (int k = 0; k < o->files->n && !rc; k++) { /* the reference first, then the most exact */
        const int i = !k ? o->reference : k <= o->reference ? k - 1 : k;
        rc = config_set(&c, KNOBS[KNOB_MODEL].key, o->files->file[i].path, why);
        if (!rc) rc = variants_add(s, &c, o->files->file[i].bits, why);
    }
    return rc;
}

/* ---------------------------------------------------------------- which ones are timed */

/* Its loss alone excludes it. */
static bool loses_too_much(const struct variants *s, int i)
{
    const struct variant *v = &s->v[i];
    if (s->seen[i].failed) return true;
    if (s->has_target) return v->judged.outcome == GATE_FAIL;
    return !v->quality.known || v->quality.kld.lower > s->o->limits.kld;
}

/* Is it proven to lose no more than the limit? */
static bool within_limits(const struct variants *s, int i)
{
    const struct variant *v = &s->v[i];
    const struct tune_limits *l = &s->o->limits;
    if (!v->quality.known || s->seen[i].failed) return false;
    if (l->memory_bytes > 0 && s->seen[i].memory_bytes > l->memory_bytes) return false;
    if (!i && !s->reference_changed) return true;
    /* an unknown bound proves nothing */
    return v->quality.kld.upper <= l->kld &&
           (!(l->ppl_ratio > 0) || v->quality.ppl_ratio.upper - 1 <= l->ppl_ratio);
}

/* Candidates from `from` on that may be chosen, those with the least loss first. */
static int list_timed(const struct variants *s, int from, int list[VARIANTS])
{
    int n = 0;
    for (int i = MAX(from, 1); i < s->n; i++) {
        if (s->v[i].timed || loses_too_much(s, i)) continue;
        int at = n++;
        for (; at > 0 && s->seen[list[at - 1]].kld > s->seen[i].kld; at--) list[at] = list[at - 1];
        list[at] = i;
    }
    return n;
}

/* Does the answer need speed, memory or energy? */
static bool needs_timing(const struct variants *s)
{
    return !s->has_target || gate_timed_figure(s->o->target);
}

static bool is_reached(const struct variants *s)
{
    for (int i = 0; i < s->n; i++)
        if ((s->v[i].timed || !needs_timing(s)) && s->v[i].judged.outcome == GATE_PASS) return true;
    return false;
}

/* In groups, each with the reference as arm A. A target that is reached with the least loss ends it. */
static enum err_code groups_time(struct variants *s, const char *stage, int from, double budget_s,
                                 struct experiment_state *x, struct err *why)
{
    int list[VARIANTS];
    if (!needs_timing(s)) return ERR_OK;
    int n = list_timed(s, from, list);
    const int groups = MAX((n + VARIANT_ARMS - 2) / (VARIANT_ARMS - 1), 1);
    enum err_code rc = ERR_OK;
    if (!n && s->v[0].timed) return ERR_OK;
    if (!n) { /* an experiment needs two arms */
        for (int i = 1; i < s->n && !n; i++)
            if (!s->seen[i].failed) list[n++] = i;
        if (!n) return err_set(why, ERR_USAGE, "there is nothing to compare with %s", s->out->reference);
    }
    for (int g = 0; g < groups && !rc; g++) {
        char name[24];
        int arm[VARIANT_ARMS] = { 0 }, arms = 1;
        for (int k = g * (VARIANT_ARMS - 1); k < MIN((g + 1) * (VARIANT_ARMS - 1), n); k++)
            arm[arms++] = list[k];
        snprintf(name, sizeof name, "%s %d", stage, g);
        rc = variants_compare(s, name, arm, arms, budget_s / groups, x, why);
        if (s->has_target && s->o->goal != GOAL_SPEED && is_reached(s)) break;
    }
    return rc;
}

/* ---------------------------------------------------------------- the best without a target */

/* The score of candidate i for this ln ratio of speeds. */
static double score_of(const struct variants *s, int i, double ln_ratio, double kld)
{
    const struct tune_weights *w = &TUNE_WEIGHTS[s->o->goal];
    const double a = (double)s->seen[0].memory_bytes, b = (double)s->seen[i].memory_bytes;
    return w->speed * ln_ratio - (a > 0 && b > 0 ? w->memory * log(b / a) : 0) - w->kld * kld;
}

static int best_of(const struct variants *s)
{
    int best = 0;
    double most = 0;
    for (int i = 1; i < s->n; i++) {
        if (!s->v[i].timed || !within_limits(s, i)) continue;
        s->seen[i].score = score_of(s, i, s->v[i].effect.estimate, s->seen[i].kld);
        if (!(s->seen[i].score > most)) continue;
        most = s->seen[i].score;
        best = i;
    }
    return best;
}

static void explain_kept(struct variants *s)
{
    int n = 0;
    for (int i = 1; i < s->n; i++) n += !within_limits(s, i);
    snprintf(
        s->out->because, TUNE_BECAUSE,
        "none of %d other candidate%s is better for this goal; %d %s not proven to be within the limit of "
        "%.3g nats (--limit kld=)",
        s->n - 1, str_plural(s->n - 1), n, n == 1 ? "is" : "are", s->o->limits.kld);
}

static void result_confirmed(struct variants *s, const struct experiment_state *x, int best)
{
    struct tune_result *r = s->out;
    char change[TUNE_CHANGE];
    const struct quality *q = &s->v[best].quality;
    r->current = s->seen[0];
    r->winner = s->seen[best];
    r->current.rate = x->arm[0].rate; /* those of the comparison that decides */
    r->winner.rate = x->arm[1].rate;
    tune_take_comparison(r, x, 1, "confirmation");
    r->gain = (struct interval){ score_of(s, best, r->effect.estimate, q->kld.estimate),
                                 score_of(s, best, r->effect.lower, q->kld.upper),
                                 score_of(s, best, r->effect.upper, q->kld.lower) };
    if (*r->because) return; /* it is invalid */
    if (isnan(r->effect.lower)) {
        const double more = fmax(tune_fewest_blocks(2) + TUNE_CONTROL - r->blocks, 1) * s->pair_s;
        r->unfinished = true;
        tune_explain_undecided(r, 2, ceil(variants_spent(s) + 1.3 * fmax(more, 1)));
        return;
    }
    r->wins = r->gain.lower > 0 && r->blocks >= BLOCKS_FOR_A_CLAIM;
    if (r->wins) r->keep = s->v[best].config;
    snprintf(r->because, sizeof r->because, "%s: %.200s is %s",
             r->wins ? "measured better by a paired A/B" : "not proven better for this goal", r->winner.line,
             tune_change(change, sizeof change, r));
}

static enum err_code confirm(struct variants *s, struct experiment_state *x, struct err *why)
{
    const int best = best_of(s), arm[] = { 0, best };
    s->out->current = s->seen[0];
    if (!best) {
        explain_kept(s);
        return ERR_OK;
    }
    s->out->winner = s->seen[best];
    const double left_s = fmax(s->o->budget_s - variants_spent(s), 0.1 * s->o->budget_s);
    const enum err_code rc = variants_compare(s, "confirm", arm, 2, left_s, x, why);
    s->out->confirm_run = variants_stage_run(s, "confirm");
    if (!rc) result_confirmed(s, x, best);
    return rc;
}

/* ---------------------------------------------------------------- the search */

/* The files that --space is tried on: those with the least distance to the target, or the best scores. */
static int space_bases(struct variants *s, int base[SPACE_FILES])
{
    int n = 0;
    bool taken[VARIANTS] = { false };
    best_of(s); /* scores */
    for (; n < SPACE_FILES; n++) {
        int at = -1;
        double least = INFINITY;
        for (int i = 0; i < s->n; i++) {
            if (taken[i] || s->seen[i].failed || (i && loses_too_much(s, i) && !s->v[i].timed)) continue;
            const double d = s->has_target ? target_distance(s->o->target, &s->v[i].judged)
                                           : -(i ? s->seen[i].score : 0);
            if (isnan(d) || (at >= 0 && d >= least)) continue;
            least = d;
            at = i;
        }
        if (at < 0) break;
        taken[at] = true;
        base[n] = at;
    }
    return n;
}

static enum err_code space_add(struct variants *s, struct err *why)
{
    int base[SPACE_FILES];
    const int bases = s->files ? space_bases(s, base) : 1;
    enum err_code rc = ERR_OK;
    if (!s->files) base[0] = 0;
    for (int b = 0; b < bases && !rc; b++) {
        struct config *list = NULL;
        int n = 0;
        const struct config *from = s->files ? &s->v[base[b]].config : s->o->current;
        rc = variants_space(&list, &n, from, s->o->space, why);
        for (int i = 0; i < n && !rc; i++) rc = variants_add(s, &list[i], s->seen[base[b]].bits, why);
        free(list);
    }
    return rc;
}

/* One model, no space: an ordinary search finds what is worth measuring. What it found is stored, so that a
 * resumed search has the same candidates. */
static enum err_code raced_add(struct variants *s, struct err *why)
{
    struct config list[VARIANT_ARMS];
    int n = 0;
    if (s->stored_n) return ERR_OK;
    enum err_code rc = variants_raced(list, &n, VARIANT_ARMS - 1, s->o, RACE_SHARE * s->o->budget_s, why);
    for (int i = 0; i < n && !rc; i++) {
        char line[CONFIG_LINE];
        rc = db_event_add(s->db, s->run.row.id, "found", config_line(&list[i], line, sizeof line), why);
        if (!rc) rc = variants_add(s, &list[i], NAN, why);
    }
    return rc;
}

static enum err_code search(struct variants *s, struct experiment_state *x, struct err *why)
{
    const double whole = s->o->budget_s;
    enum err_code rc = ERR_OK;
    if (!s->files) rc = s->o->space ? space_add(s, why) : raced_add(s, why);
    if (!rc) rc = variants_quality(s, s->reference_changed ? 0 : 1, QUALITY_SHARE, why);
    const bool spaced = s->files && s->o->space;
    const double files_s = s->has_target ? fmax(whole - variants_spent(s), 0.3 * whole) : FILES_SHARE * whole;
    if (!rc) rc = groups_time(s, "files", 1, spaced ? files_s * (1 - SPACE_SHARE) : files_s, x, why);
    if (!rc && spaced && !(s->has_target && is_reached(s))) {
        const int from = s->n;
        rc = space_add(s, why);
        if (!rc) rc = variants_quality(s, from, QUALITY_SHARE / 2, why);
        if (!rc && s->n > from) rc = groups_time(s, "space", from, SPACE_SHARE * whole, x, why);
    }
    if (!rc && !s->has_target) rc = confirm(s, x, why);
    return rc;
}

/* Before seen[] is sorted. */
static void answer(struct variants *s)
{
    struct tune_result *r = s->out;
    struct gate_result *judged = calloc((size_t)s->n, sizeof *judged);
    r->current = s->seen[0];
    if (!judged) return;
    for (int i = 0; i < s->n; i++) judged[i] = s->v[i].judged;
    target_answer(&r->target, s->o->target, judged, s->seen, s->n, s->o->goal == GOAL_SPEED);
    free(judged);
    snprintf(r->because, sizeof r->because, "%.*s", TUNE_BECAUSE - 1, r->target.text);
    if (r->target.candidate < 0) return;
    const struct variant *v = &s->v[r->target.candidate];
    r->winner = s->seen[r->target.candidate];
    r->effect = v->effect;
    r->load = v->load;
    r->blocks = v->blocks;
    r->confirm_run = v->run;
    if (r->target.reach == TUNE_REACHED) {
        r->wins = true;
        r->keep = v->config;
    }
    r->unfinished = r->target.reach == TUNE_UNDECIDED;
    if (r->unfinished) r->enough_s = ceil(2 * variants_spent(s));
}

static int faster_first(const void *x, const void *y)
{
    const struct tune_candidate *a = x, *b = y;
    if (isnan(a->rate) != isnan(b->rate)) return isnan(a->rate) ? 1 : -1;
    return a->rate < b->rate ? 1 : a->rate > b->rate ? -1 : strcmp(a->line, b->line);
}

static void list_finish(struct variants *s)
{
    struct tune_result *r = s->out;
    tune_front(s->seen, s->n);
    r->space = s->n;
    r->fitting = s->n - 1;
    for (int i = 0; i < s->n; i++) r->raced += s->seen[i].timings > 0;
    r->n_seen = s->n;
    qsort(s->seen, (size_t)s->n, sizeof *s->seen, faster_first);
    for (int i = 0; i < s->n && r->target.candidate >= 0; i++)
        if (!strcmp(s->seen[i].line, r->winner.line)) r->target.candidate = i;
}

static enum err_code variants_prepare(struct variants *s, struct err *why)
{
    const struct tune_options *o = s->o;
    s->has_target = o->target && o->target->terms;
    s->files = o->files && o->files->n > 1;
    s->seen = s->out->seen = calloc(VARIANTS, sizeof *s->seen);
    if (!s->seen) return err_set(why, ERR_NOMEM, "out of memory for the candidates of a search");
    s->metric = s->out->metric = experiment_default_metric(&o->workload);
    snprintf(s->out->reference, sizeof s->out->reference, "%s", o->model_path);
    enum err_code rc = options_check(s, why);
    if (!rc) rc = db_open(&s->db, o->db_path, why);
    if (!rc) rc = text_choose(s, why);
    if (!rc) rc = candidates_list(s, why);
    s->reference_changed = s->files && config_changes_answers(o->current);
    if (!rc && !s->reference_changed) reference_exact(s);
    return rc;
}

enum err_code tune_variants(struct tune_result *out, const struct tune_options *o, struct err *why)
{
    struct variants *s = calloc(1, sizeof *s);
    struct experiment_state *x = calloc(1, sizeof *x);
    struct tune_options resolved = *o;
    enum err_code rc = s && x ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for a search");
    if (!(resolved.limits.kld > 0)) resolved.limits.kld = KLD_MARGIN;
    out->keep = *o->current;
    out->target.candidate = -1;
    if (!rc) {
        s->o = &resolved;
        s->out = out;
        s->pair_s = NAN;
        s->begun_ns = clock_ns();
        s->now = (struct tune_progress){ .what = "", .effect = { NAN, NAN, NAN }, .blocks_needed = -1 };
        rc = variants_prepare(s, why);
        if (!rc) rc = variants_begin(s, why);
        if (!rc) rc = search(s, x, why);
        if (rc == ERR_CANCELLED)
            snprintf(out->because, sizeof out->because, "stopped; the measurements are stored");
        if (rc && !*out->current.line && s->n) out->current = s->seen[0];
        if (!rc && s->has_target) answer(s);
        if (!rc || rc == ERR_CANCELLED) list_finish(s);
        rc = variants_finish(s, rc, why);
        if (s->db && s->started) db_unlock(s->db);
        run_close(&s->run);
        db_close(s->db);
        free(s->stored);
    }
    free(s);
    free(x);
    return rc;
}
