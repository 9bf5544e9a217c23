/* command_claims_methods.c - see command_claims_methods.h. Memory is planned, not measured, and exact; it is
 * known without a run. Speed and loss are known only where a run measured them. */
#include "tui/cli/command_claims_methods.h"

#include <math.h>
#include <string.h>

#include "advisor/advise/advise.h"
#include "advisor/predict/predict.h"
#include "advisor/quality/quality.h"
#include "engine/import/import.h"
#include "engine/quant/quant.h"
#include "telemetry/machine/machine.h"

struct lookup {
    const struct experiment_state *s;
    struct gguf *file;
    struct evidence evidence;
    struct answer_klds klds;
    double bytes, depth;       /* of the weights with 16 bits; tokens before the first that is decoded */
    struct evidence_rate rate; /* of 16 bits */
};

struct found {
    double memory, kld;
    struct interval speed;
};

static double weights_of(const struct lookup *x, const struct config *c)
{
    struct memory_plan plan;
    return recipe_plan_memory(&plan, x->file, c, 512, 1, NULL) ? (double)NAN : (double)plan.weights;
}

static struct interval speed_of(const struct lookup *x, const char *line)
{
    for (int i = 1; i < x->s->spec.arms; i++)
        if (!strcmp(x->s->arm[i].line, line)) {
            const struct interval e = x->s->comparison[i].by_metric[METRIC_DECODE_RATE - METRIC_SENSOR_COUNT];
            return (struct interval){ exp(e.estimate), exp(e.lower), exp(e.upper) };
        }
    const struct evidence_rate r = evidence_decode(&x->evidence, line, (int)x->depth);
    return (struct interval){ r.rate.estimate / x->rate.rate.estimate, r.rate.lower / x->rate.rate.upper,
                              r.rate.upper / x->rate.rate.lower };
}

static struct found method_measured(const struct lookup *x, const char *config)
{
    struct config c;
    char line[CONFIG_LINE];
    struct found f = { NAN, NAN, { NAN, NAN, NAN } };
    if (config_parse(&c, config, NULL)) return f;
    const struct answer_kld *kld = answer_klds_find(&x->klds, &c);
    f.memory = weights_of(x, &c) / x->bytes;
    f.speed = speed_of(x, config_line(&c, line, sizeof line));
    f.kld = kld ? kld->kld : NAN;
    return f;
}

/* ---------------------------------------------------------------- output */

static const char *said(char buf[32], double from, double to)
{
    if (!(from > 0))
        snprintf(buf, 32, "unknown");
    else if (from < to)
        snprintf(buf, 32, "%g to %g", from, to);
    else
        snprintf(buf, 32, "%g", from);
    return buf;
}

static const char *number(char buf[32], int digits, double v)
{
    if (isfinite(v))
        snprintf(buf, 32, "%.*f", digits, v);
    else
        snprintf(buf, 32, "unknown");
    return buf;
}

static void put_method(struct table *t, json_t *list, const struct quant_method *m, const struct found *f)
{
    char a[32], b[32], c[32], d[32], e[32];
    json_t *o = json_object();
    json_put_str(o, "config", m->config);
    json_put_num(o, "claimed_memory_from", m->memory_from > 0 ? m->memory_from : (double)NAN);
    json_put_num(o, "claimed_memory_to", m->memory_to > 0 ? m->memory_to : (double)NAN);
    json_put_num(o, "memory_ratio", f->memory);
    json_put_num(o, "claimed_speed_from", m->speed_from > 0 ? m->speed_from : (double)NAN);
    json_put_num(o, "claimed_speed_to", m->speed_to > 0 ? m->speed_to : (double)NAN);
    json_put_num(o, "speed_ratio", f->speed.estimate);
    json_put_num(o, "speed_lower_ratio", f->speed.lower);
    json_put_num(o, "speed_upper_ratio", f->speed.upper);
    json_put_str(o, "claimed_accuracy", m->accuracy);
    json_put_num(o, "kld_mean", f->kld);
    json_array_append_new(list, o);
    table_note(t, "| %-19s | %-11s | %-7s | %-8s | %-7s | %-9s | %s |", m->config,
               said(a, m->memory_from, m->memory_to), number(b, 3, f->memory),
               said(c, m->speed_from, m->speed_to), number(d, 2, f->speed.estimate), number(e, 5, f->kld),
               m->accuracy ? m->accuracy : "unknown");
}

static enum err_code lookup_open(struct lookup *x, const struct cli_global *g, struct err *why)
{
    struct db *d = NULL;
    struct machine *m = calloc(1, sizeof *m);
    struct config half;
    enum err_code rc = m ? machine_detect(m, "", why) : err_set(why, ERR_NOMEM, "out of memory");
    if (!rc) rc = config_parse(&half, x->s->arm[0].line, why);
    if (!rc) rc = model_file_open(&x->file, x->s->spec.model, why);
    if (!rc) rc = db_open(&d, g->db_path, why);
    if (!rc) rc = answer_klds_load(&x->klds, d, x->s->spec.model, why);
    if (!rc) rc = evidence_load(&x->evidence, d, x->s->spec.model, m->id, why);
    if (!rc) {
        x->bytes = weights_of(x, &half);
        x->depth = x->s->spec.workload.depth + x->s->spec.workload.prompt;
        x->rate = evidence_decode(&x->evidence, x->s->arm[0].line, (int)x->depth);
    }
    db_close(d);
    free(m);
    return rc;
}

void claims_put_methods(struct table *t, const struct cli_global *g, const struct experiment_state *s)
{
    struct lookup x = { .s = s };
    struct err why = { 0 };
    json_t *list = json_array();
    if (lookup_open(&x, g, &why)) {
        table_note(t, "the table of methods is missing: %s", why.message);
    } else {
        table_note(
            t,
            "methods, relative to %s; said: usual tables, or the project that is named; here: this model and machine",
            s->arm[0].line);
        table_note(
            t,
            "| config              | memory said | here    | speed    | here    | KLD here  | accuracy said |");
        table_note(
            t,
            "| ------------------- | ----------- | ------- | -------- | ------- | --------- | ------------- |");
        for (int i = 0; i < QUANT_METHOD_COUNT; i++) {
            const struct found f = method_measured(&x, QUANT_METHODS[i].config);
            put_method(t, list, &QUANT_METHODS[i], &f);
        }
        table_note(
            t, "to measure more of them: qdyno bench -C f16 -C nf4 ..., qdyno eval --ref default -C nf4 ...");
    }
    json_put(t->extra, "methods", list);
    evidence_free(&x.evidence);
    answer_klds_free(&x.klds);
    gguf_close(x.file);
}
