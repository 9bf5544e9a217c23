/* tui/frame/stored_results.c - estimates in sensitivity maps, and the largest loss. */
#include "tui/frame/frame.h"

#include <math.h>
#include <string.h>

/* The documented squared error of a format; NAN unknown. */
static double map_error(const struct sensitivity_map *m)
{
    const struct format *f = format_find(m->format);
    return f && f->max_nmse > 0 ? f->max_nmse : (double)NAN;
}

static int kind_find(const struct sensitivity_map *m, const char *kind)
{
    for (int k = 0; k < m->kinds; k++)
        if (!strcmp(m->kind[k], kind)) return k;
    return -1;
}

/* A measured cell of another map on the scale of this one, from the format whose error is closest; NAN: none.
 */
static double cell_estimate(const struct sensitivity *s, const struct sensitivity_map *m, int kind, int layer)
{
    double best = NAN, least = INFINITY;
    for (int i = 0; i < s->maps; i++) {
        const struct sensitivity_map *other = &s->map[i];
        const int k = other == m ? -1 : kind_find(other, m->kind[kind]);
        if (k < 0 || layer >= other->layers || other->estimated[k][layer] || isnan(other->loss[k][layer]))
            continue;
        const double ratio = map_error(m) / map_error(other);
        if (!(fabs(log(ratio)) < least)) continue;
        least = fabs(log(ratio));
        best = (double)other->loss[k][layer] * ratio;
    }
    return best;
}

/* Add the kinds and layers of the other maps, all unknown. */
static void map_extend(struct sensitivity_map *m, const struct sensitivity_map *other)
{
    m->layers = MAX(m->layers, other->layers);
    for (int k = 0; k < other->kinds; k++) {
        if (kind_find(m, other->kind[k]) >= 0 || m->kinds == SENSITIVITY_KINDS) continue;
        for (int i = 0; i < SENSITIVITY_LAYERS; i++) m->loss[m->kinds][i] = NAN;
        memcpy(m->kind[m->kinds++], other->kind[k], sizeof other->kind[k]);
    }
}

void sensitivity_estimate(struct sensitivity *s)
{
    for (int i = 0; i < s->maps; i++)
        for (int j = 0; j < s->maps; j++) map_extend(&s->map[i], &s->map[j]);
    for (int i = 0; i < s->maps; i++) {
        struct sensitivity_map *m = &s->map[i];
        for (int k = 0; k < m->kinds; k++)
            for (int layer = 0; layer < m->layers; layer++) {
                if (!isnan(m->loss[k][layer])) continue;
                m->loss[k][layer] = (float)cell_estimate(s, m, k, layer);
                m->estimated[k][layer] = !isnan(m->loss[k][layer]);
            }
    }
}

void quality_result_explain(struct quality_result *q)
{
    struct config c;
    q->format[0] = q->reference_model[0] = '\0';
    if (!config_parse(&c, q->config, NULL))
        str_put(q->format, sizeof q->format, config_text(&c, KNOB_FORMAT));
    if (!config_parse(&c, q->reference, NULL))
        str_put(q->reference_model, sizeof q->reference_model, config_text(&c, KNOB_MODEL));
}

void stored_load_explain(struct stored_load *l)
{
    struct workload w;
    if (workload_parse(&w, l->workload, NULL)) return;
    l->is_load = workload_is_load(&w);
    if (!l->is_load && w.prompt <= 0) l->ttft.missing = "this workload has no prompt";
    if (l->is_load)
        l->itl.missing = "kept only of loads in a steady state whose tokens came one by one";
    else if (w.gen <= 1)
        l->itl.missing = "this workload generates at most one token";
}

bool sensitivity_most(const struct sensitivity_map *m, int *row, int *column)
{
    float most = -1;
    for (int k = 0; k < m->kinds; k++)
        for (int i = 0; i < m->layers; i++)
            if (!m->estimated[k][i] && m->loss[k][i] > most) {
                most = m->loss[k][i];
                *row = k;
                *column = i;
            }
    return most >= 0;
}

const char *sensitivity_name(const struct sensitivity_map *m, int row, int column, char *buf, size_t size)
{
    if (column)
        snprintf(buf, size, "%s of layer %d", m->kind[row], column - 1);
    else
        snprintf(buf, size, "%s", m->kind[row]);
    return buf;
}
