/* measured.c - see measured.h. */
#include "tui/cli/lib/measured.h"

#include <stdlib.h>
#include <string.h>

#include "tui/cli/lib/sampling.h"

void measured_init(struct measured *m, const struct cli_global *g, const struct cli_args *a,
                   const struct document *document)
{
    m->g = g;
    m->a = a;
    table_init(&m->table, document);
    progress_init(&m->progress, g);
}

enum err_code measured_open(struct measured *m, const struct cli_args *periods, struct err *why)
{
    enum err_code rc = db_open(&m->db, m->g->db_path, why);
    if (!rc) rc = cli_machine(m->g, PROBE_CACHED, &m->machine, &m->ceilings, &m->ceilings_known, why);
    if (!rc) rc = cli_sampler(&m->sampler, periods, why);
    return rc ? rc : cli_labels(&m->labels, m->a, why);
}

void measured_close(struct measured *m)
{
    run_close(&m->run);
    sampler_stop(m->sampler);
    db_close(m->db);
    table_done(&m->table);
}

enum err_code measured_model(char **path, const struct measured *m, const struct config *c, struct err *why)
{
    if (!m->model || *config_text(c, KNOB_MODEL)) return cli_config_model(path, m->a, c, why);
    *path = strdup(m->model);
    return *path ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
}

static enum err_code begin(struct measured *m, const struct run_spec *what, const json_t *about,
                           struct err *why)
{
    struct named {
        char line[CONFIG_LINE], *path;
    } *named = calloc((size_t)m->n, sizeof *named);
    struct capsule_arm *arm = calloc((size_t)m->n, sizeof *arm);
    enum err_code rc = named && arm ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
    for (int i = 0; i < m->n && !rc; i++) {
        config_line(&m->configs[i], named[i].line, sizeof named[i].line);
        rc = measured_model(&named[i].path, m, &m->configs[i], why);
        arm[i] = (struct capsule_arm){ .line = named[i].line,
                                       .model_path = named[i].path,
                                       .model_name = named[i].path ? cli_base_name(named[i].path) : "",
                                       .description = i == m->at ? about : NULL };
    }
    struct run_spec spec = *what;
    spec.seed = m->g->seed;
    spec.machine = &m->machine;
    spec.ceilings = what->has_canary && m->ceilings_known ? &m->ceilings : NULL;
    spec.sampler = m->sampler;
    spec.labels = &m->labels;
    spec.arm = arm;
    spec.arms = m->n;
    if (!rc) rc = run_begin(&m->run, m->db, &spec, why);
    for (int i = 0; named && i < m->n; i++) free(named[i].path);
    free(named);
    free(arm);
    return rc;
}

enum err_code measured_opened(struct measured *m, const struct run_spec *what, struct moment begun,
                              const json_t *about, struct err *why)
{
    const double seconds = (double)(clock_ns() - begun.clock_ns) * 1e-9;
    const struct span_load load = { begun, seconds, about, "" };
    const enum err_code rc = m->run.row.id ? ERR_OK : begin(m, what, about, why);
    return rc ? rc : run_arm_opened(&m->run, m->at, &load, why);
}

int measured_print(const struct measured *m, enum err_code rc, const struct err *why)
{
    const int printed = m->ok ? cli_print(m->g, m->a, &m->table, EXIT_DONE) : EXIT_DONE;
    if (rc) return cli_fail(m->a, why);
    if (printed) return printed;
    return m->ok ? EXIT_DONE : cli_fail(m->a, &m->first);
}
