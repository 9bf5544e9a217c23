/* tui/views/blocks.c - the KV cache during a run: which block holds which sequence, and how full the last
 * batch was. */
#include "tui/views/parts.h"

#include <string.h>

#include "advisor/experiment/experiment.h"

/* The letter identifies a sequence; colours repeat. */
static unsigned block_style(char owner)
{
    static const enum role ROLES[] = { ROLE_ARM_A, ROLE_ARM_B, ROLE_GRAPH, ROLE_METER, ROLE_TITLE, ROLE_KEY };
    if (owner == '.' || owner == '-') return ROLE_DIM;
    return ROLES[(unsigned char)owner % COUNT_OF(ROLES)];
}

static int draw_map(struct grid *g, struct rect in, const struct occupancy *o)
{
    const int cells = (int)strlen(o->map), room = in.w * in.h;
    if (!cells || !room) return 0;
    const int merged = (cells + room - 1) / room; /* blocks per cell, when there are more blocks than cells */
    for (int i = 0; i * merged < cells; i++) {
        char owner = '.';
        for (int k = i * merged; k < MIN((i + 1) * merged, cells) && owner == '.'; k++) owner = o->map[k];
        grid_put(g, in, i % in.w, i / in.w, owner == '.' ? 0xb7 : (uint32_t)owner, block_style(owner));
    }
    return ((cells + merged - 1) / merged + in.w - 1) / in.w;
}

static const char *legend_of(const struct occupancy *o, char *buf, size_t size)
{
    if (o->serves) {
        snprintf(buf, size, "· free  - cached %d  # shared, spares %d  0-z a request", o->cached, o->spared);
        return buf;
    }
    return o->step > 1 ? "· free  0-9 a-z sequence; several blocks each"
                       : "· free  0-9 a-z sequence of a block";
}

void box_blocks(struct grid *g, struct rect area, const struct snapshot *s)
{
    const struct occupancy *o = snapshot_occupancy(s);
    const bool server = s->load_source == LOAD_OF_SERVER;
    char title[160] = "KV cache";
    if (o && server)
        snprintf(title, sizeof title, "KV cache: %d of %d blocks of %d tokens, %s", o->used, o->blocks,
                 o->block_tokens, figure_percent((double)o->used / o->blocks).text);
    else if (o)
        snprintf(title, sizeof title, "KV cache of %c: %d of %d blocks of %d tokens, %s", 'A' + o->arm,
                 o->used, o->blocks, o->block_tokens, figure_percent((double)o->used / o->blocks).text);
    struct rect in = grid_box(g, area, title, NULL);
    if (!o) {
        grid_wrap(
            g, in, ROLE_DIM,
            server ? "reading the server"
            : snapshot_load_is_remote(s)
                ? "n/a: this load is sent over HTTP, and its clients do not see the cache of the server. A "
                  "dashboard that is started with --server shows it."
            : s->command.n && !snapshot_is_running(s)
                ? "n/a: what runs now is another process, and it does not tell the use of its cache"
            : s->experiment_known && !s->experiment_live
                ? "n/a: cache usage is only shown while an experiment runs; it is not stored"
                : "n/a: no experiment is running. While one runs, each block of the cache is a "
                  "character: . free, otherwise the letter of its sequence, or how requests of a load use it.");
        return;
    }
    struct pen p = pen_at(g, in, 0, 0);
    char text[96], requests[48] = "";
    if (o->serves) snprintf(requests, sizeof requests, ", %d running, %d waiting", o->running, o->waiting);
    snprintf(text, sizeof text, " %d of %d rows%s", o->rows, o->batch, requests);
    pen_put(&p, ROLE_DIM, o->serves ? "last step " : "last batch ");
    pen_meter(&p, MAX(MIN(in.w - p.x - text_columns(text), 24), 0),
              o->batch > 0 ? (double)o->rows / o->batch : 0, ROLE_METER);
    pen_put(&p, ROLE_TEXT, text);
    const int rows = draw_map(g, rect_rows(in, 1, in.h - 2), o);
    p = pen_at(g, in, 0, MIN(rows + 1, in.h - 1));
    pen_field(&p, in.w, ROLE_DIM, legend_of(o, text, sizeof text));
}
