/* advisor/experiment/quality_run.c - measures quality once per challenger, after the blocks, because the
 * figures are the same every time. The arms' processes end first, since their memory may be needed. The
 * result is stored as a cell outside of blocks, so a resumed run does not measure it again. */
#include "advisor/experiment/parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char PHASE[] = "quality"; /* of the cell, as in the database */

static bool quality_run_on_event(void *ctx, const json_t *event)
{
    struct experiment *x = ctx;
    if (event) {
        struct experiment_state *s = state_edit(x);
        snprintf(s->cell_phase, sizeof(s->cell_phase), "%s", json_get_str(event, "phase", PHASE));
        s->cell_done = (int)json_get_int(event, "done", 0);
        s->cell_of = (int)json_get_int(event, "of", 0);
        state_done(x);
        experiment_count_down(x);
    }
    return !atomic_load(&x->stop);
}

static enum err_code arm_measure_quality(struct experiment *x, int arm, struct quality *q, struct err *why)
{
    const struct experiment_spec *s = &x->state.spec;
    const struct arm_spec candidate = {
        .model = s->model, .config = &s->config[arm], .program = x->program, .log = &x->log
    };
    const struct quality_spec spec = { .file = s->quality_file,
                                       .ctx = s->quality_ctx,
                                       .chunks = s->quality_chunks,
                                       .model = s->model,
                                       .reference = &s->config[0] };
    return quality_measure(q, &candidate, &spec, quality_run_on_event, x, why);
}

static enum err_code quality_store(struct experiment *x, int arm, struct measured_cell *c)
{
    const struct quality *q = &x->state.comparison[arm].quality;
    json_t *o = quality_to_json(q);
    const struct run_place place = {
        .arm = arm, .block = -1, .phase = PHASE, .config = x->state.arm[arm].line, .echo = o
    };
    if (q->known) c->value[METRIC_KLD] = q->kld.estimate;
    const enum err_code rc = run_store(&x->run, &place, c, &x->why);
    json_decref(o);
    return rc;
}

/* A resumed run may find another content in its text file: losses on both would not compare. */
static enum err_code check_same_text(const struct experiment_state *s, int arm, const struct quality *q,
                                     struct err *why)
{
    for (int k = 1; k < s->spec.arms; k++) {
        const struct quality *other = &s->comparison[k].quality;
        if (k == arm || !other->known || !*other->text_sha256 || !*q->text_sha256 ||
            !strcmp(other->text_sha256, q->text_sha256))
            continue;
        return err_set(
            why, ERR_FORMAT,
            "%.60s was changed after arm %c was measured on it: restore the file, or start a new run",
            q->text, 'A' + k);
    }
    return ERR_OK;
}

/* Measures and stores the quality of one arm. When the reference does not fit or the text is too short,
 * quality stays unknown with that reason, and the run goes on. */
static enum flow one_arm(struct experiment *x, int arm)
{
    struct quality q;
    struct err why = { 0 };
    struct measured_cell c;
    struct experiment_state *s = state_edit(x);
    s->running_arm = arm;
    state_done(x);
    run_measure_begin(&x->run, &c, 0);
    enum err_code rc = arm_measure_quality(x, arm, &q, &why);
    run_measure_end(&x->run, &c);
    if (rc == ERR_CANCELLED) return FLOW_STOPPED;
    if (!rc) rc = check_same_text(&x->state, arm, &q, &why);
    if (rc) q.known = false, q.bytes.pieces = 0;
    if (rc) snprintf(q.missing, sizeof(q.missing), "%s", why.message);
    char text[TEXT_LABEL];
    c.failure = why; /* code 0 when there is none */
    s = state_edit(x);
    s->comparison[arm].quality = q;
    state_done(x);
    if (rc)
        experiment_log_event(x, PHASE, "quality of arm %c is unknown: %s", 'A' + arm, why.message);
    else if (!q.known)
        experiment_log_event(x, PHASE,
                             "quality of arm %c: %.3f bits per byte against %.3f over %lld pieces of %s",
                             'A' + arm, q.bytes.candidate, q.bytes.reference, (long long)q.bytes.pieces,
                             quality_text_label(text, q.text, q.text_sha256));
    else
        experiment_log_event(x, PHASE, "quality of arm %c: KLD %.3g nats over %lld window%s of %s", 'A' + arm,
                             q.kld.estimate, (long long)q.figures.candidate.chunks,
                             str_plural(q.figures.candidate.chunks),
                             quality_text_label(text, q.text, q.text_sha256));
    return quality_store(x, arm, &c) ? FLOW_BROKEN : FLOW_CONTINUE;
}

enum flow quality_run(struct experiment *x)
{
    if (!*x->state.spec.quality_file || x->state.arm[0].failed) return FLOW_CONTINUE;
    struct experiment_state *s = state_edit(x);
    s->phase = PHASE_QUALITY;
    s->block = s->slot = -1;
    s->live_tok_s = NAN; /* the rate of the last cell is none of what runs now */
    s->cell_done = s->cell_of = 0;
    snprintf(s->cell_phase, sizeof(s->cell_phase), "%s", PHASE);
    state_done(x);
    processes_end(x);
    x->budget.quality_begun_s = experiment_elapsed(x);
    enum flow f = FLOW_CONTINUE;
    for (int k = 1; k < s->spec.arms && f == FLOW_CONTINUE; k++) {
        const struct comparison *c = &x->state.comparison[k];
        if (experiment_wait_while_paused(x) == FLOW_STOPPED) return FLOW_STOPPED;
        if (!x->state.arm[k].failed && !c->dropped && !c->quality.known && !c->quality.bytes.pieces)
            f = one_arm(x, k);
    }
    return f;
}

bool quality_rebuild(struct experiment_state *s, const struct cell_row *c)
{
    json_t *o = NULL;
    if (strcmp(c->phase, PHASE)) return false;
    if (c->arm < 1 || c->arm >= EXPERIMENT_ARMS) return true;
    if (json_parse(&o, c->worker_json, strlen(c->worker_json), NULL)) o = NULL;
    struct quality *q = &s->comparison[c->arm].quality;
    quality_from_json(q, o);
    if (*c->error) snprintf(q->missing, sizeof(q->missing), "%s", c->error);
    json_decref(o);
    return true;
}
