/* command_models_measured.c - see command_models_measured.h. */
#include "tui/cli/command_models_measured.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cut/cut.h"
#include "engine/model/model.h"
#include "telemetry/metrics/metrics.h"

enum { CELLS_MOST = 500 };

static enum err_code sha256_add(void *ctx, const char *sha256, const char *path, struct err *why)
{
    struct measured_models *m = ctx;
    (void)path;
    if (!array_room(&m->sha256, &m->room, (int64_t)m->n + 1, sizeof *m->sha256))
        return err_set(why, ERR_NOMEM, "out of memory for the list of measured models");
    str_put(m->sha256[m->n++], HASH_HEX, sha256);
    return ERR_OK;
}

enum err_code measured_models_load(struct measured_models *m, struct db *d, struct err *why)
{
    *m = (struct measured_models){ .n = 0 };
    return db_model_list(d, sha256_add, m, why);
}

void measured_models_free(struct measured_models *m)
{
    free(m->sha256);
    *m = (struct measured_models){ .n = 0 };
}

/* ---------------------------------------------------------------- speed */

/* Sum of logarithms of one rate over the cells of one workload. */
struct rate_sum {
    char workload[WORKLOAD_LINE];
    double sum;
    int n;
};
/* Of one config in one run, which may time prompts and decoding in workloads of their own. */
struct speed_sums {
    int64_t run;
    char config[CONFIG_LINE];
    struct rate_sum decode, prefill;
};
struct speeds {
    struct speed_sums any, plain; /* plain: of the config "default" */
};

static void rate_add(struct rate_sum *r, const char *workload, double rate)
{
    if (!(rate > 0)) return;
    if (!r->n) text_cut(r->workload, sizeof r->workload, workload);
    if (strcmp(r->workload, workload)) return;
    r->sum += log(rate);
    r->n++;
}

static double rate_mean(const struct rate_sum *r)
{
    return r->n ? exp(r->sum / r->n) : NAN;
}

static void sums_take(struct speed_sums *s, const struct speed_cell *c)
{
    if (!s->run) {
        s->run = c->run_id;
        text_cut(s->config, sizeof s->config, c->config);
    }
    if (s->run != c->run_id || strcmp(s->config, c->config)) return;
    rate_add(&s->decode, c->workload, c->decode_tok_s);
    rate_add(&s->prefill, c->workload, c->prefill_tok_s);
}

static enum err_code speed_add(void *ctx, const struct speed_cell *c, struct err *why)
{
    struct speeds *s = ctx;
    struct config config;
    (void)why;
    if (!strcmp(c->phase, "race") || config_parse(&config, c->config, NULL) || config.given[KNOB_MODEL] ||
        config_is_foreign(&config))
        return ERR_OK; /* the fastest of many is biased; another file; another engine */
    if (!strcmp(c->config, "default")) sums_take(&s->plain, c);
    sums_take(&s->any, c);
    return ERR_OK;
}

static void put_speed(struct measured_model *out, const struct speeds *s)
{
    const struct speed_sums *x = s->plain.run ? &s->plain : &s->any;
    out->run = x->run;
    str_put(out->config, sizeof out->config, x->config);
    str_put(out->decode_workload, sizeof out->decode_workload, x->decode.workload);
    str_put(out->prefill_workload, sizeof out->prefill_workload, x->prefill.workload);
    out->decode_tok_s = rate_mean(&x->decode);
    out->prefill_tok_s = rate_mean(&x->prefill);
}

/* ---------------------------------------------------------------- loss */

static int64_t size_of(const char *path)
{
    struct stat st;
    return *path && !stat(path, &st) && S_ISREG(st.st_mode) ? (int64_t)st.st_size : 0;
}

/* Cells come newest first. Of the unchanged file against others the newest against the largest counts: losses
 * against a coarse quantization say little. */
static enum err_code loss_add(void *ctx, const struct model_cell *c, struct err *why)
{
    struct measured_model *out = ctx;
    struct config own, reference;
    json_t *worker = NULL;
    (void)why;
    if (strcmp(c->config, "default") || config_parse(&own, c->config, NULL)) return ERR_OK;
    if (json_parse(&worker, c->worker_json, strlen(c->worker_json), NULL)) worker = NULL;
    const char *line = json_get_str(worker, "reference", c->first_config);
    const bool good = !config_parse(&reference, line, NULL) && reference.given[KNOB_MODEL];
    const int64_t bytes = good ? size_of(config_model_file(&reference, "")) : 0;
    if (good && (!out->kld_run || bytes > out->kld_reference_bytes)) {
        out->kld_reference_bytes = bytes;
        out->kld = c->value;
        out->kld_run = c->run_id;
        text_cut(out->kld_reference, sizeof out->kld_reference, line);
    }
    json_decref(worker);
    return ERR_OK;
}

bool measured_model_find(struct measured_model *out, const struct measured_models *m, struct db *d,
                         const struct model_entry *e, const char *machine_id)
{
    char sha256[HASH_HEX];
    bool known = false;
    struct speeds speeds = { .any = { .run = 0 } };
    struct err ignored;
    *out = (struct measured_model){ .decode_tok_s = NAN, .prefill_tok_s = NAN, .kld = NAN };
    if (!m->n) return false; /* nothing was measured: no file need be identified */
    if (!str_put(sha256, sizeof sha256, e->sha256)) return false;
    if (!*sha256 &&
        (!e->path || e->checkpoint || e->shards != 1 || !model_path_identity_known(e->path, sha256)))
        return false;
    for (int i = 0; i < m->n && !known; i++) known = !strcmp(m->sha256[i], sha256);
    if (!known) return false;
    const struct speed_query q = { .sha256 = sha256,
                                   .machine = machine_id,
                                   .decode = METRICS[METRIC_DECODE_RATE].name,
                                   .prefill = METRICS[METRIC_PREFILL_RATE].name,
                                   .disturbed = "",
                                   .limit = CELLS_MOST };
    const struct model_query loss = { .sha256 = sha256,
                                      .metric = METRICS[METRIC_KLD].name,
                                      .limit = CELLS_MOST };
    if (!db_model_speeds(d, &q, speed_add, &speeds, &ignored)) put_speed(out, &speeds);
    return !db_model_cells(d, &loss, loss_add, out, &ignored);
}
