/* tui/frame/knob_values.c - the value of a key of config lines: in an arm, in what is applied to the model,
 * and what it may be. */
#include "tui/frame/frame.h"

#include <inttypes.h>
#include <string.h>

#include "advisor/experiment/experiment.h"

const char *knob_applied(const struct snapshot *s, enum knob_id id, char *buf, size_t size)
{
    struct config c;
    const bool known = s->applied[0] && !config_parse(&c, s->applied, NULL);
    const char *v = known ? config_text(&c, id) : NULL;
    snprintf(buf, size, "%s", v && *v ? v : KNOBS[id].otherwise);
    return buf;
}

const char *knob_arm(const struct snapshot *s, int arm, enum knob_id id)
{
    const struct experiment_state *x = &s->experiment;
    if (!s->experiment_known || arm >= experiment_arms(&x->spec)) return KNOBS[id].otherwise;
    const struct config *c = x->arm[arm].merged_known ? &x->arm[arm].merged : &x->spec.config[arm];
    const char *v = config_text(c, id);
    return v && *v ? v : KNOBS[id].otherwise;
}

const char *knob_range(enum knob_id id, char *buf, size_t size)
{
    enum { CHOICES_SHOWN = 128 };
    const struct knob *k = &KNOBS[id];
    const char *names[CHOICES_SHOWN];
    const size_t n = MIN(knob_choices(id, names, CHOICES_SHOWN), (size_t)CHOICES_SHOWN);
    struct str text = { 0 };
    if (k->kind == VALUE_INT) str_printf(&text, "%" PRId64 " to %" PRId64 " %s", k->min, k->max, k->unit);
    for (size_t i = 0; i < n; i++) str_printf(&text, "%s%s", i ? " " : "", names[i]);
    if (k->kind == VALUE_TEXT) str_append(&text, "text");
    snprintf(buf, size, "%s", str_text(&text));
    str_free(&text);
    return buf;
}

enum err_code knob_changed_line(const struct snapshot *s, const char *settings, char *buf, size_t size,
                                struct err *why)
{
    struct config all, changed;
    buf[0] = '\0';
    enum err_code rc = config_parse(&all, s->applied, why);
    if (!rc) rc = config_parse(&changed, settings, why);
    for (int k = 0; k < KNOB_COUNT && !rc; k++) {
        if (!changed.given[k]) continue;
        const char *v = config_text(&changed, (enum knob_id)k);
        config_unset(&all, (enum knob_id)k);
        if (strcmp(v, KNOBS[k].otherwise) != 0) rc = config_set(&all, KNOBS[k].key, v, why);
    }
    if (!rc) rc = config_check(&all, why);
    if (!rc) config_line(&all, buf, size);
    return rc;
}
