/* tui/frame/knob_effect.c - what a setting does to the speed of the model on screen.
 *
 * A measured effect is that of an A/B whose arms differ in this setting only and that reached a verdict. What
 * was never measured alone is predicted by the advice, if that has a row that changes only this setting. */
#include "tui/frame/frame.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/experiment/experiment.h"
#include "db/db.h"

/* The keys of a cache type are set together (kv=): they count as one setting. */
static enum knob_id knob_group(enum knob_id id)
{
    return id == KNOB_CTV ? KNOB_CTK : id;
}

/* Whether the lines differ in this setting and in no other. */
static bool differ_only_in(const struct config *a, const struct config *b, enum knob_id id)
{
    bool found = false;
    for (int k = 0; k < KNOB_COUNT; k++) {
        if (!strcmp(config_text(a, (enum knob_id)k), config_text(b, (enum knob_id)k))) continue;
        if (knob_group((enum knob_id)k) != knob_group(id)) return false;
        found = true;
    }
    return found && strcmp(config_text(a, id), config_text(b, id)) != 0;
}

static bool is_decided(const struct run_row *r)
{
    static const enum verdict DECIDED[] = { VERDICT_BETTER, VERDICT_WORSE, VERDICT_EQUIVALENT,
                                            VERDICT_NEGLIGIBLE };
    for (size_t i = 0; i < COUNT_OF(DECIDED); i++)
        if (!strcmp(r->verdict, verdict_name(DECIDED[i]))) return true;
    return false;
}

/* The arms of an A/B as its specification has them. False: more than two, two workloads, or not readable. */
static bool arms_read(const struct run_row *r, struct experiment_spec *spec)
{
    json_t *o = NULL;
    const bool read = r->spec_json && !json_parse(&o, r->spec_json, strlen(r->spec_json), NULL) &&
                      !experiment_spec_from_json(spec, o, NULL);
    json_decref(o);
    return read && spec->arms == 2 && !spec->by_arm;
}

void setting_effects_add(struct setting_effects *e, const struct run_row *r)
{
    if (strcmp(r->kind, "ab") || strcmp(r->metric, METRICS[METRIC_DECODE_RATE].name)) return;
    if (!(r->effect_ratio > 0) || !is_decided(r)) return;
    struct experiment_spec *spec = calloc(1, sizeof *spec);
    if (spec && arms_read(r, spec))
        for (int k = 0; k < KNOB_COUNT; k++) {
            struct setting_effect *one = &e->of[k];
            if (one->run || !differ_only_in(&spec->config[0], &spec->config[1], (enum knob_id)k)) continue;
            *one = (struct setting_effect){ .run = r->id, .ratio = r->effect_ratio };
            snprintf(one->value, sizeof one->value, "%s", config_text(&spec->config[1], (enum knob_id)k));
        }
    free(spec);
}

static bool measured(const struct snapshot *s, enum knob_id id, char *buf, size_t size)
{
    const struct setting_effect *e = &s->effects.of[id];
    if (!e->run) return false;
    snprintf(buf, size, "%s: %s, run %lld", e->value, figure_change(log(e->ratio)).text, (long long)e->run);
    return true;
}

/* The largest predicted gain of a row that changes only this setting, against the unchanged file. */
static bool predicted(const struct snapshot *s, enum knob_id id, char *buf, size_t size)
{
    const struct advice *base = NULL, *best = NULL;
    struct config plain;
    config_default(&plain);
    for (int i = 0; i < s->advice_count && !base; i++)
        if (!*s->advice[i].line || !strcmp(s->advice[i].line, "default")) base = &s->advice[i];
    if (!base || !(base->prediction.decode_tok_s.estimate > 0)) return false;
    for (int i = 0; i < s->advice_count; i++) {
        const struct advice *a = &s->advice[i];
        if (!(a->prediction.decode_tok_s.estimate > 0) || !differ_only_in(&plain, &a->config, id)) continue;
        if (!best || a->prediction.decode_tok_s.estimate > best->prediction.decode_tok_s.estimate) best = a;
    }
    if (!best) return false;
    snprintf(
        buf, size, "%s: %s predicted", config_text(&best->config, id),
        figure_change(log(best->prediction.decode_tok_s.estimate / base->prediction.decode_tok_s.estimate))
            .text);
    return true;
}

const char *knob_effect(const struct snapshot *s, enum knob_id id, char *buf, size_t size)
{
    if (!measured(s, id, buf, size) && !predicted(s, id, buf, size)) snprintf(buf, size, "n/a");
    return buf;
}
