/* machine.c - this machine and its measured limits, from the cache or measured now. */

#include <math.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tui/cli/lib/lib.h"

static void probe_on_progress(void *ctx, const char *what, double done)
{
    progress_report(ctx, PROGRESS_AT(done, NAN), "measuring the machine %.0f %%: %s", done * 100, what);
}

enum err_code cli_machine(const struct cli_global *g, enum cli_probe probe, struct machine *m,
                          struct machine_ceilings *c, bool *known, struct err *why)
{
    bool measured;
    if (!known) known = &measured;
    *known = false;
    enum err_code rc = machine_detect(m, "", why);
    if (rc) return rc;
    /* A cache that cannot be read counts as missing. */
    if (probe != PROBE_FRESH && ceilings_load(c, m->id, known, NULL)) *known = false;
    if (*known || probe == PROBE_CACHED) return ERR_OK;
    uint32_t isa;
    struct progress p;
    struct machine_ceilings before;
    bool kept;
    progress_init(&p, g);
    if ((rc = isa_usable(&isa, why))) return rc;
    rc = machine_probe(c, isa, 0, probe_on_progress, &p, why);
    progress_clear(&p);
    if (rc) return rc;
    if (!ceilings_load(&before, m->id, &kept, NULL) && kept) {
        /* machine_probe does not measure these; they take as long again */
        c->kernels = before.kernels;
        c->opencl_count = before.opencl_count;
        memcpy(c->opencl, before.opencl, sizeof c->opencl);
    }
    *known = true;
    if (isa != isa_detect()) return ERR_OK; /* QDYNO_ISA hides a part of the machine */
    struct err save = { 0 };
    if (ceilings_save(c, m->id, &save))
        log_write(&g->log, LOG_WARN, "the measured limits were not saved: %s", save.message);
    return ERR_OK;
}
