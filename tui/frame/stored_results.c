/* tui/frame/stored_results.c - the largest loss in a sensitivity map. */
#include "tui/frame/frame.h"

bool sensitivity_most(const struct sensitivity_map *m, int *row, int *column)
{
    float most = -1;
    for (int k = 0; k < m->kinds; k++)
        for (int i = 0; i < m->layers; i++)
            if (m->loss[k][i] > most) {
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
