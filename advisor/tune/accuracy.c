/* advisor/tune/accuracy.c - the limit on right answers: finalists are asked the questions of a task, and
 * paired by item with the unchanged model.
 *
 * A search cannot afford this for every candidate, so the KL divergence leads it, and only finalists are
 * asked. A candidate whose loss is not shown to be within the limit cannot win. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/run/run.h"
#include "advisor/tune/parts.h"
#include "engine/eval/eval.h"

static const char TASK[] = "task"; /* phase of the cells */
enum { CTX_MOST = 2048 };

/* Even a candidate that answers like the original has an interval: as long as the limit is inside it, no
 * candidate could pass. */
static enum err_code check_items(const struct tune_options *o, int n, struct err *why)
{
    const double least = task_least_half(n);
    if (least <= o->limits.accuracy) return ERR_OK;
    return err_set(why, ERR_USAGE,
                   "--limit accuracy=-%.3g%%: %d items cannot show a loss below %.2g %%, even if no answer "
                   "changes: expected at least %d items, or a larger limit",
                   100 * o->limits.accuracy, n, 100 * least, task_least_items(o->limits.accuracy));
}

enum err_code tune_task_read(struct tuning *t, struct err *why)
{
    const struct tune_options *o = t->task.o;
    enum { LIMIT = 1 << 28 };
    char *text = NULL;
    size_t n = 0;
    if (!(o->limits.accuracy > 0)) return ERR_OK;
    if (!o->task_file) return err_set(why, ERR_USAGE, "--limit accuracy= needs --task FILE");
    enum err_code rc = file_read(&text, &n, o->task_file, LIMIT, why);
    if (!rc) hash_bytes(text, n, t->asked.sha256);
    if (!rc && (rc = task_set_parse(&t->asked.set, text, n, 0, why))) err_prefix(why, "%s", o->task_file);
    free(text);
    t->out->accuracy_limit = o->limits.accuracy;
    t->out->asked = t->asked.set.n;
    return rc ? rc : check_items(o, t->asked.set.n, why);
}

void tune_task_release(struct tuning *t)
{
    task_set_free(&t->asked.set);
    task_answers_free(&t->asked.reference);
}

bool tune_accuracy_missing(const struct tuning *t, int i)
{
    const struct tune_candidate *c = &t->known.list[i];
    return t->task.o->limits.accuracy > 0 && i > 0 && !c->same_answers && isnan(c->accuracy_lower) &&
           !c->accuracy_failed;
}

static bool goes_on(void *arg, int done, int of, int right)
{
    (void)done, (void)of, (void)right;
    return tune_event(arg, NULL);
}

static enum err_code ask(struct task_answers *out, struct tuning *t, const struct config *c, struct err *why)
{
    struct model *m = NULL;
    enum err_code rc = tune_open_model(&m, t, c, CTX_MOST, why);
    if (!rc) rc = task_answer(out, m, &t->asked.set, NULL, goes_on, t, why);
    model_close(m);
    return rc;
}

/* The unchanged file, once. */
static enum err_code reference_ask(struct tuning *t, const struct config *said, struct err *why)
{
    struct config as_is;
    if (t->asked.reference.n) return ERR_OK;
    tune_config_as_is(&as_is, said);
    const enum err_code rc = ask(&t->asked.reference, t, &as_is, why);
    if (rc) t->asked.reference.n = 0;
    return rc;
}

/* All candidates with the same answers get the figure. */
static void accuracy_apply(struct tuning *t, int i, const struct task_pair *p, bool failed)
{
    const uint64_t answer = t->known.list[i].answer;
    for (int k = 0; k < t->known.n; k++) {
        struct tune_candidate *c = &t->known.list[k];
        if (c->answer != answer) continue;
        c->accuracy_change = failed ? (double)NAN : p->change;
        c->accuracy_lower = failed ? (double)NAN : p->lower;
        c->accuracy_upper = failed ? (double)NAN : p->upper;
        c->accuracy_failed = failed;
    }
}

static enum err_code accuracy_store(struct tuning *t, const char *line, const struct task_pair *p,
                                    struct measured_cell *c, struct err *why)
{
    json_t *echo = json_object();
    json_put_str(echo, "task_sha256", t->asked.sha256);
    json_put_int(echo, "items", t->asked.set.n);
    json_put_num(echo, "accuracy_change", p->change);
    json_put_num(echo, "accuracy_change_lower", p->lower);
    json_put_num(echo, "accuracy_change_upper", p->upper);
    const struct run_place place = { .block = -1, .phase = TASK, .config = line, .echo = echo };
    const enum err_code rc = run_store(&t->record.run, &place, c, why);
    json_decref(echo);
    return rc;
}

enum err_code tune_measure_accuracy(struct tuning *t, int i, struct err *why)
{
    struct task_answers x = { 0 };
    struct task_pair p = { .change = NAN, .lower = NAN, .upper = NAN };
    struct err failed = { 0 };
    struct config said;
    struct measured_cell c;
    char line[CONFIG_LINE];
    enum err_code rc = tune_config(&said, t, &t->known.list[i], why);
    if (rc) return rc;
    said = answer_config(&said);
    config_line(&said, line, sizeof line);
    tune_explain(t, "a finalist: its right answers to %d question%s, against those of the unchanged model",
                 t->asked.set.n, str_plural(t->asked.set.n));
    if (!tune_report(t, "quality", line)) return err_set(why, ERR_CANCELLED, "stopped");
    if ((rc = reference_ask(t, &said, why))) return rc;
    run_measure_begin(&t->record.run, &c, 0);
    rc = ask(&x, t, &said, &failed);
    run_measure_end(&t->record.run, &c);
    if (!rc) p = task_compare(t->asked.reference.right, x.right, x.n);
    task_answers_free(&x);
    if (rc == ERR_CANCELLED) return err_set(why, ERR_CANCELLED, "stopped");
    if (rc) snprintf(t->known.list[i].error, sizeof t->known.list[i].error, "%s", failed.message);
    accuracy_apply(t, i, &p, rc != ERR_OK);
    c.failure = failed; /* code 0 when there is none */
    return accuracy_store(t, line, &p, &c, why);
}
