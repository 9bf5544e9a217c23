/* advisor/watch/roll.c - returns to the baseline's configuration (the champion) when that helps.
 *
 * The rollback file holds the configuration that runs now, as `qdyno tune` writes it. When it is too slow,
 * the champion is measured now, too: on a machine that became slow, every configuration is slow, and a
 * rollback would only hide the cause. The next round reports whether the rollback helped. */
#include "advisor/watch/parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 1 << 16 };

bool is_champion(const struct watch_own_item *item)
{
    struct config champion, running = item->item.config;
    if (config_parse(&champion, item->item.baseline.config, NULL)) return true; /* nothing to return to */
    config_unset(&running, KNOB_MODEL);
    config_unset(&champion, KNOB_MODEL);
    return config_same(&running, &champion);
}

static enum err_code file_copy(const char *from, const char *to, struct err *why)
{
    char *text;
    size_t n;
    struct atomic_file f;
    enum err_code rc = file_read(&text, &n, from, FILE_LIMIT, why);
    if (!rc) rc = atomic_file_open(&f, to, why);
    if (!rc) {
        fwrite(text, 1, n, f.stream);
        rc = atomic_file_commit(&f, why);
    }
    free(text);
    return rc;
}

/* Writes the champion's line to o.rollback, and its previous content to FILE.previous. Errors: ERR_NOMEM, as
 * atomic_file_*. */
static enum err_code roll_back(struct watch *w, const char *because, struct err *why)
{
    const struct baseline_row *b = &w->item[0].item.baseline;
    struct atomic_file f;
    char when[32];
    struct str previous = { 0 };
    str_printf(&previous, "%s.previous", w->setup.o.rollback);
    enum err_code rc = previous.failed ? err_set(why, ERR_NOMEM, "out of memory for a path")
                                       : file_copy(w->setup.o.rollback, str_text(&previous), why);
    if (!rc) rc = atomic_file_open(&f, w->setup.o.rollback, why);
    if (!rc) {
        fprintf(f.stream, "# %s, %s: back to the champion of baseline %s: %s\n%s\n", b->model_name,
                clock_iso8601(clock_unix_ms(), when, sizeof when), b->name, because, b->config);
        rc = atomic_file_commit(&f, why);
    }
    str_free(&previous);
    return rc ? err_prefix(why, "the rollback failed, '%s' is unchanged", w->setup.o.rollback) : ERR_OK;
}

static bool item_is_too_slow(const struct watch *w)
{
    for (int i = 0; i < w->alerts.n; i++) {
        const struct alert_instance *x = &w->alerts.instance[i];
        const struct alert *a = &w->alerts.rules.row[x->rule];
        if (x->state.phase == ALERT_FIRING && a->actions & ACTION_ROLL_BACK &&
            !strcmp(x->subject, w->item[0].subject))
            return true;
    }
    return false;
}

/* Half of the loss that fires the alert: a smaller gain would not end it. */
static double gain_min(const struct watch *w)
{
    double least = 1;
    for (int i = 0; i < ALERT_COUNT; i++)
        if (w->alerts.rules.row[i].actions & ACTION_ROLL_BACK && !w->alerts.rules.off[i])
            least = fmin(least, w->alerts.rules.row[i].threshold);
    return least / 2;
}

static void roll_consider(struct watch *w, double ln_now)
{
    struct err why = { 0 };
    struct config champion;
    struct item_measurement m;
    const struct watch_own_item *item = &w->item[0];
    char because[128];
    if (config_parse(&champion, item->item.baseline.config, &why)) {
        watch_report_trouble(w, &why);
        return;
    }
    measure_item(w, item, &champion, &m);
    if (m.how == MEASURE_STOPPED) return;
    if (m.how != MEASURED) {
        watch_report(w, WATCH_ROLLBACK, GRADE_WARNING, NULL,
                     "not rolled back: the champion %s could not be measured: %s", item->item.baseline.config,
                     m.reason);
        return;
    }
    const double gain = gain_ratio(item->metric, m.ln_value, ln_now);
    if (!(gain > gain_min(w))) {
        watch_report(
            w, WATCH_ROLLBACK, GRADE_INFO, NULL,
            "not rolled back: the champion %s, measured now, differs by only %+.1f %%: the configuration is not the cause",
            item->item.baseline.config, 100 * gain);
        return;
    }
    snprintf(because, sizeof because, "it is %.0f %% faster now", 100 * gain);
    if (roll_back(w, because, &why)) {
        watch_report_trouble(w, &why);
        return;
    }
    w->rolled_from_ln = ln_now;
    watch_value_put(w, ROLLED_BACK, "", ln_now);
    watch_report(
        w, WATCH_ROLLBACK, GRADE_WARNING, NULL,
        "rolled back to %s: %s than %s; the previous file is %s.previous; the next round reports whether it helped",
        item->item.baseline.config, because, item->subject, w->setup.o.rollback);
}

void roll_step(struct watch *w, double ln_now)
{
    const struct watch_own_item *item = &w->item[0];
    if (!w->setup.o.rollback) return;
    if (!isnan(w->rolled_from_ln) && is_champion(item)) {
        const double gain = gain_ratio(item->metric, ln_now, w->rolled_from_ln);
        watch_report(w, WATCH_ROLLBACK, gain > 0 ? GRADE_INFO : GRADE_WARNING, NULL,
                     "the rollback %s: %+.1f %%", gain > gain_min(w) ? "helped" : "did not help", 100 * gain);
        w->rolled_from_ln = NAN;
        watch_value_put(w, ROLLED_BACK, "", NAN);
    }
    if (item_is_too_slow(w) && !is_champion(item)) roll_consider(w, ln_now);
}
