/* advisor/watch/export.c - exports the latest state of this machine's watch to metric families, for scrape
 * pages, files and pushes. It reads the database only, so the watch need not run in this process. */
#include "advisor/watch/watch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The family of each stored value. */
static const struct {
    const char *stored;
    enum family_id family;
    bool of_subject, loss; /* `loss`: exported as the share that remains */
} EXPORTED[] = {
    { .stored = "performance", .family = FAMILY_WATCH_PERFORMANCE, .of_subject = true, .loss = true },
    { .stored = "canary", .family = FAMILY_WATCH_CANARY, .of_subject = false, .loss = true },
    { .stored = "errors", .family = FAMILY_WATCH_ERRORS, .of_subject = false, .loss = false },
    { .stored = "quality", .family = FAMILY_WATCH_KL_DIVERGENCE, .of_subject = true, .loss = false },
    { .stored = "round", .family = FAMILY_WATCH_LAST_ROUND, .of_subject = false, .loss = false },
    { .stored = "success", .family = FAMILY_WATCH_LAST_SUCCESS, .of_subject = false, .loss = false },
    { .stored = "disk", .family = FAMILY_WATCH_DISK_AVAILABLE, .of_subject = false, .loss = false },
};

static void values_export(const struct watch_value *v, int n, const struct family_sink *to)
{
    for (size_t k = 0; k < COUNT_OF(EXPORTED); k++)
        for (int i = 0; i < n; i++) {
            if (strcmp(v[i].signal, EXPORTED[k].stored)) continue;
            const struct label subject = { "subject", v[i].subject };
            family_value(to, EXPORTED[k].family, &subject, EXPORTED[k].of_subject,
                         EXPORTED[k].loss ? 1 - v[i].value : v[i].value);
        }
}

static void alerts_export(const struct alert_row *rows, int n, const struct family_sink *to)
{
    for (int i = 0; i < n; i++) {
        const struct label labels[] = { { "alert", rows[i].name },
                                        { "severity", rows[i].grade },
                                        { "subject", rows[i].subject } };
        family_value(to, FAMILY_WATCH_ALERT, labels, COUNT_OF(labels), 1);
    }
}

enum err_code watch_export_read(struct watch_export *t, struct db *d, const char *machine, struct err *why)
{
    struct watch_export new = { 0 };
    enum err_code rc = db_watch_value_list(d, machine, &new.value, &new.values, why);
    if (!rc) rc = db_alert_list(d, machine, true, ALERT_INSTANCES, &new.alert, &new.alerts, why);
    if (rc) {
        watch_export_free(&new);
        return rc;
    }
    new.waiting = db_notice_count(d, NULL);
    watch_export_free(t);
    *t = new;
    return ERR_OK;
}

void watch_export_write(const struct watch_export *t, const struct family_sink *to)
{
    if (!t->values) return; /* no watch on this machine */
    values_export(t->value, t->values, to);
    alerts_export(t->alert, t->alerts, to);
    family_value(to, FAMILY_WATCH_NOTICES, NULL, 0, t->waiting < 0 ? NAN : t->waiting);
}

void watch_export_free(struct watch_export *t)
{
    free(t->value);
    free(t->alert);
    *t = (struct watch_export){ 0 };
}
