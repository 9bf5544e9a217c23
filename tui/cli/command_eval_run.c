/* command_eval_run.c - see command_eval_run.h. */
#include "tui/cli/command_eval_run.h"

#include "engine/arch/arch.h"

enum err_code eval_model_opened(struct measured *k, char sha256[HASH_HEX], const char *kind, const char *file,
                                const struct model *m, struct moment begun, struct err *why)
{
    char workload[600];
    enum err_code rc = model_source_identity(m, sha256, why);
    if (rc) return rc;
    json_t *about = json_object();
    json_put_str(about, "sha256", sha256);
    json_put_str(about, "name", model_shape(m)->name);
    json_put_str(about, "arch", model_shape(m)->arch);
    snprintf(workload, sizeof workload, "%s:%s", kind, file);
    /* no canary: answers do not depend on speed */
    const struct run_spec what = { .kind = kind, .workload = workload, .label = k->line };
    rc = measured_opened(k, &what, begun, about, why);
    json_decref(about);
    return rc;
}
