/* tui/frame/knob_effect.c - what a setting does to the speed of the model on screen.
 *
 * A measured effect is that of an A/B whose arms differ in this setting only and that reached a verdict. What
 * was never measured alone is predicted by the advice, if that has a row that changes only this setting. */
#include "tui/frame/frame.h"

#include <math.h>
#include <string.h>

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

static bool is_of_model(const struct snapshot *s, const struct run_line *r)
{
    const char *slash = strrchr(s->model_path, '/');
    return *r->model && (!strcmp(r->model, slash ? slash + 1 : s->model_path) ||
                         (*s->model.name && !strcmp(r->model, s->model.name)));
}

static bool is_decided(const struct run_line *r)
{
    static const enum verdict DECIDED[] = { VERDICT_BETTER, VERDICT_WORSE, VERDICT_EQUIVALENT,
                                            VERDICT_NEGLIGIBLE };
    for (size_t i = 0; i < COUNT_OF(DECIDED); i++)
        if (!strcmp(r->verdict, verdict_name(DECIDED[i]))) return true;
    return false;
}

/* The arms of a run's label, "A vs B". False: it has more arms, or a line that may have been cut. */
static bool arms_read(const struct run_line *r, struct config arm[2])
{
    enum { CUT = sizeof r->label / 2 - 5 }; /* longer lines do not fit into a label of two */
    static const char VS[] = " vs ";
    char line[2][sizeof r->label];
    const char *vs = strstr(r->label, VS);
    if (!vs || strstr(vs + 1, VS)) return false;
    snprintf(line[0], sizeof line[0], "%.*s", (int)(vs - r->label), r->label);
    snprintf(line[1], sizeof line[1], "%s", vs + strlen(VS));
    for (int i = 0; i < 2; i++)
        if (strlen(line[i]) >= CUT || config_parse(&arm[i], line[i], NULL)) return false;
    return true;
}

static bool measured(const struct snapshot *s, enum knob_id id, char *buf, size_t size)
{
    struct config arm[2];
    for (int i = 0; i < s->run_count; i++) { /* the newest first */
        const struct run_line *r = &s->run[i];
        if (strcmp(r->kind, "ab") || strcmp(r->metric, METRICS[METRIC_DECODE_RATE].name)) continue;
        if (!(r->effect_ratio > 0) || !is_of_model(s, r) || !is_decided(r)) continue;
        if (!arms_read(r, arm) || !differ_only_in(&arm[0], &arm[1], id)) continue;
        snprintf(buf, size, "%s: %s, run %lld", config_text(&arm[1], id),
                 figure_change(log(r->effect_ratio)).text, (long long)r->id);
        return true;
    }
    return false;
}

/* The largest predicted gain of a row that changes only this setting, against the unchanged file. */
static bool predicted(const struct snapshot *s, enum knob_id id, char *buf, size_t size)
{
    const struct advice *base = NULL, *best = NULL;
    struct config plain;
    config_default(&plain);
    for (int i = 0; i < s->advice_count && !base; i++)
        if (!*s->advice[i].line || !strcmp(s->advice[i].line, "default")) base = &s->advice[i];
    if (!base || !(base->prediction.decode_tok_s > 0)) return false;
    for (int i = 0; i < s->advice_count; i++) {
        const struct advice *a = &s->advice[i];
        if (!(a->prediction.decode_tok_s > 0) || !differ_only_in(&plain, &a->config, id)) continue;
        if (!best || a->prediction.decode_tok_s > best->prediction.decode_tok_s) best = a;
    }
    if (!best) return false;
    snprintf(buf, size, "%s: %s predicted", config_text(&best->config, id),
             figure_change(log(best->prediction.decode_tok_s / base->prediction.decode_tok_s)).text);
    return true;
}

const char *knob_effect(const struct snapshot *s, enum knob_id id, char *buf, size_t size)
{
    if (!measured(s, id, buf, size) && !predicted(s, id, buf, size)) snprintf(buf, size, "n/a");
    return buf;
}
