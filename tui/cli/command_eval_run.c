/* command_eval_run.c - see command_eval_run.h. */
#include "tui/cli/command_eval_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/arch/arch.h"

enum err_code eval_model_path(char **path, const struct eval_arms *e, const struct config *c, struct err *why)
{
    if (!e->model || *config_text(c, KNOB_MODEL)) return cli_config_model(path, e->a, c, why);
    *path = strdup(e->model);
    return *path ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
}

/* Starts the run, with all configs as its arms. opened: description of the first loaded model. */
static enum err_code begin(struct run *run, const struct eval_arms *e, const json_t *opened, struct err *why)
{
    struct named {
        char line[2048], *path;
    } *named = calloc((size_t)e->n, sizeof *named);
    struct capsule_arm *arm = calloc((size_t)e->n, sizeof *arm);
    char workload[600];
    enum err_code rc = named && arm ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
    snprintf(workload, sizeof workload, "%s:%s", e->kind, e->file);
    for (int i = 0; i < e->n && !rc; i++) {
        config_line(&e->configs[i], named[i].line, sizeof named[i].line);
        rc = eval_model_path(&named[i].path, e, &e->configs[i], why);
        arm[i] = (struct capsule_arm){ .line = named[i].line,
                                       .model_path = named[i].path,
                                       .model_name = named[i].path ? cli_base_name(named[i].path) : "",
                                       .description = i == e->at ? opened : NULL };
    }
    const struct run_spec spec = { .kind = e->kind, /* no canary: answers do not depend on speed */
                                   .workload = workload,
                                   .label = e->line,
                                   .seed = e->g->seed,
                                   .machine = e->machine,
                                   .sampler = e->sampler,
                                   .labels = e->labels,
                                   .arm = arm,
                                   .arms = e->n };
    if (!rc) rc = run_begin(run, e->db, &spec, why);
    for (int i = 0; named && i < e->n; i++) free(named[i].path);
    free(named);
    free(arm);
    return rc;
}

enum err_code eval_model_opened(struct run *run, char sha256[HASH_HEX], const struct eval_arms *e,
                                const struct model *m, struct moment begun, struct err *why)
{
    enum err_code rc = model_source_identity(m, sha256, why);
    if (rc) return rc;
    const double seconds = (double)(clock_ns() - begun.clock_ns) * 1e-9;
    json_t *about = json_object();
    json_put_str(about, "sha256", sha256);
    json_put_str(about, "name", model_shape(m)->name);
    json_put_str(about, "arch", model_shape(m)->arch);
    const struct span_load load = { begun, seconds, about, "" };
    if (!run->row.id) rc = begin(run, e, about, why);
    if (!rc) rc = run_arm_opened(run, e->at, &load, why);
    json_decref(about);
    return rc;
}
