/* advisor/watch/tell.c - what the watch of this machine said last, for scrape pages, files and pushes:
 * whoever tells it needs the database only, not the watch. */
#include "advisor/watch/watch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How the stored value of a signal is told. */
static const struct {
    const char *stored;
    enum family_id family;
    bool of_subject, loss; /* a loss is told as what is left */
} TOLD[] = {
    { "performance", FAMILY_WATCH_PERFORMANCE, true, true },
    { "canary", FAMILY_WATCH_CANARY, false, true },
    { "errors", FAMILY_WATCH_ERRORS, false, false },
    { "quality", FAMILY_WATCH_KL_DIVERGENCE, true, false },
    { "round", FAMILY_WATCH_LAST_ROUND, false, false },
    { "success", FAMILY_WATCH_LAST_SUCCESS, false, false },
    { "disk", FAMILY_WATCH_DISK_AVAILABLE, false, false },
};

static void tell_values(const struct watch_value *v, int n, const struct family_sink *to)
{
    for (size_t k = 0; k < COUNT_OF(TOLD); k++)
        for (int i = 0; i < n; i++) {
            if (strcmp(v[i].signal, TOLD[k].stored)) continue;
            const struct label subject = { "subject", v[i].subject };
            family_value(to, TOLD[k].family, &subject, TOLD[k].of_subject,
                         TOLD[k].loss ? 1 - v[i].value : v[i].value);
        }
}

static void tell_alerts(const struct alert_row *rows, int n, const struct family_sink *to)
{
    for (int i = 0; i < n; i++) {
        const struct label labels[] = { { "alert", rows[i].name },
                                        { "severity", rows[i].grade },
                                        { "subject", rows[i].subject } };
        family_value(to, FAMILY_WATCH_ALERT, labels, COUNT_OF(labels), 1);
    }
}

enum err_code watch_told_read(struct watch_told *t, struct db *d, const char *machine, struct err *why)
{
    struct watch_told new = { 0 };
    enum err_code rc = db_watch_value_list(d, machine, &new.value, &new.values, why);
    if (!rc) rc = db_alert_list(d, machine, true, ALERT_INSTANCES, &new.alert, &new.alerts, why);
    if (rc) {
        watch_told_free(&new);
        return rc;
    }
    new.waiting = db_notice_count(d, NULL);
    watch_told_free(t);
    *t = new;
    return ERR_OK;
}

void watch_told_tell(const struct watch_told *t, const struct family_sink *to)
{
    if (!t->values) return; /* no watch here */
    tell_values(t->value, t->values, to);
    tell_alerts(t->alert, t->alerts, to);
    family_value(to, FAMILY_WATCH_NOTICES, NULL, 0, t->waiting < 0 ? NAN : t->waiting);
}

void watch_told_free(struct watch_told *t)
{
    free(t->value);
    free(t->alert);
    *t = (struct watch_told){ 0 };
}
