/* tui/views/machine.c - the machine: load, memory, pressure, what it lacks, cores and values over time. */
#include "tui/views/parts.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------- what this machine lacks */

static bool lacks_gpu(const struct snapshot *s)
{
    return s->machine_known && s->machine.gpus == 0 && isnan(s->sensor[METRIC_GPU_BUSY]);
}
static bool lacks_power(const struct snapshot *s)
{
    return isnan(s->sensor[METRIC_CPU_POWER]) && isnan(s->sensor[METRIC_GPU_POWER]);
}
static bool lacks_clock(const struct snapshot *s)
{
    return isnan(s->sensor[METRIC_CPU_FREQUENCY]);
}
static bool lacks_temperature(const struct snapshot *s)
{
    return isnan(s->sensor[METRIC_CPU_TEMPERATURE]);
}
static bool lacks_pressure(const struct snapshot *s)
{
    return isnan(s->sensor[METRIC_PSI_CPU]) && isnan(s->sensor[METRIC_PSI_MEMORY]) &&
           isnan(s->sensor[METRIC_PSI_IO]);
}

static const struct lack {
    bool (*lacks)(const struct snapshot *s);
    struct absent_part part;
} LACKS[] = {
    { lacks_gpu, { "GPU", "no GPU was found" } },
    { lacks_power, { "power, energy", "no power sensor can be read (usual in virtual machines)" } },
    { lacks_clock, { "clock", "the kernel shows no clock rate (usual in virtual machines)" } },
    { lacks_temperature, { "temperature", "no sensor was found (usual in virtual machines)" } },
    { lacks_pressure, { "pressure", "the kernel has no /proc/pressure" } },
};

int machine_absent(const struct snapshot *s, struct absent_part out[ABSENT_PARTS])
{
    int n = 0;
    if (isnan(s->sensor[METRIC_CPU_BUSY]) && isnan(s->sensor[METRIC_MEM_USED])) return 0; /* not read yet */
    for (size_t i = 0; i < COUNT_OF(LACKS) && n < ABSENT_PARTS; i++)
        if (LACKS[i].lacks(s)) out[n++] = LACKS[i].part;
    return n;
}

/* One row instead of a row of n/a for each: the longest form that fits. Returns the rows used. */
static int row_absent(struct grid *g, struct rect in, int row, const struct snapshot *s)
{
    static const char *const BEFORE[] = { "not available here: ", "n/a here: ", "n/a: " }, *const AFTER[] = {
        " (? says why)", " (? says why)", " (?)"
    };
    struct absent_part part[ABSENT_PARTS];
    char names[120] = "", text[200];
    const int n = machine_absent(s, part);
    for (int i = 0, at = 0; i < n && at < (int)sizeof names; i++)
        at += snprintf(names + at, sizeof names - (size_t)at, "%s%s", i ? ", " : "", part[i].name);
    for (size_t i = 0; i < COUNT_OF(BEFORE); i++) {
        snprintf(text, sizeof text, "%s%s%s", BEFORE[i], names, AFTER[i]);
        if (text_columns(text) <= in.w) break;
    }
    if (!n) return 0;
    struct pen p = pen_at(g, in, 0, row);
    pen_field(&p, in.w, ROLE_DIM, text);
    return 1;
}

/* ---------------------------------------------------------------- rows */

static struct pen graph_row(struct grid *g, struct rect in, int row, const char *label,
                            const struct graph *graph)
{
    struct pen p = pen_at(g, in, 0, row);
    pen_field(&p, 4, ROLE_DIM, label);
    pen_graph(&p, MAX(in.w - 30, 6), graph);
    pen_put(&p, ROLE_TEXT, " ");
    return p;
}

void pen_level(struct pen *p, const char *label, enum metric_id metric, double v, const char *text)
{
    const enum figure_level level = metric_level(metric, v);
    pen_put(p, ROLE_DIM, label);
    pen_put(p, level_style(level), text);
    pen_put(p, level_style(level), level_mark(level));
}

static int row_cpu(struct grid *g, struct rect in, int row, const struct snapshot *s)
{
    const double *v = s->sensor, hertz = v[METRIC_CPU_FREQUENCY], celsius = v[METRIC_CPU_TEMPERATURE];
    struct pen p = graph_row(g, in, row, "CPU", &(struct graph){ s->cpu.v, s->cpu.n, 0, 1, ROLE_GRAPH });
    pen_field_right(&p, 4, isnan(v[METRIC_CPU_BUSY]) ? ROLE_DIM : ROLE_TEXT,
                    figure_percent(v[METRIC_CPU_BUSY]).text);
    if (isfinite(hertz)) pen_printf(&p, ROLE_TEXT, "  %s", figure_hertz(hertz).text);
    if (isfinite(celsius)) pen_level(&p, "  ", METRIC_CPU_TEMPERATURE, celsius, figure_celsius(celsius).text);
    return 1;
}

static struct figure figure_bytes_of(double v)
{
    return figure_bytes(isnan(v) ? -1 : (int64_t)v);
}

static int row_memory(struct grid *g, struct rect in, int row, const struct snapshot *s)
{
    const double used = s->sensor[METRIC_MEM_USED],
                 all = s->machine_known ? (double)s->machine.memory_bytes : NAN;
    struct pen p = graph_row(g, in, row, "MEM",
                             &(struct graph){ s->memory.v, s->memory.n, 0, 1, ROLE_GRAPH });
    const unsigned style = level_style(metric_level(METRIC_MEM_USED, used / all));
    pen_field_right(&p, 4, isfinite(used / all) ? style : ROLE_DIM, figure_percent(used / all).text);
    pen_put(&p, style, level_mark(metric_level(METRIC_MEM_USED, used / all)));
    if (isfinite(used))
        pen_printf(&p, ROLE_TEXT, "  %s/%s", figure_bytes_of(used).text, figure_bytes_of(all).text);
    return 1;
}

static int row_gpu(struct grid *g, struct rect in, int row, const struct snapshot *s)
{
    const double *v = s->sensor, celsius = v[METRIC_GPU_TEMPERATURE];
    if (!s->machine_known || lacks_gpu(s)) return 0;
    struct pen p = graph_row(g, in, row, "GPU", &(struct graph){ s->gpu.v, s->gpu.n, 0, 1, ROLE_GRAPH });
    pen_field_right(&p, 4, ROLE_TEXT, figure_percent(v[METRIC_GPU_BUSY]).text);
    pen_printf(&p, ROLE_TEXT, "  %s/%s", figure_bytes_of(v[METRIC_GPU_MEM_USED]).text,
               figure_bytes_of(v[METRIC_GPU_MEM_TOTAL]).text);
    if (isfinite(celsius)) pen_level(&p, " ", METRIC_GPU_TEMPERATURE, celsius, figure_celsius(celsius).text);
    return 1;
}

static struct figure figure_watts(double w)
{
    struct figure f = figure_number(w);
    if (isfinite(w)) strncat(f.text, "W", sizeof f.text - strlen(f.text) - 1);
    return f;
}

/* Power, and the time that tasks wait for processors, memory and disks. Only what is known. */
static int row_power(struct grid *g, struct rect in, int row, const struct snapshot *s)
{
    static const struct {
        enum metric_id metric;
        const char *label;
    } PRESSURE[] = { { METRIC_PSI_CPU, "cpu " }, { METRIC_PSI_MEMORY, "mem " }, { METRIC_PSI_IO, "io " } };
    const double *v = s->sensor, gpu = v[METRIC_GPU_POWER], cpu = v[METRIC_CPU_POWER];
    struct pen p = pen_at(g, in, 0, row);
    if (!lacks_power(s))
        pen_value(&p, "PWR ", figure_watts(isnan(cpu) ? gpu : isnan(gpu) ? cpu : cpu + gpu).text);
    if (!lacks_pressure(s)) {
        pen_put(&p, ROLE_DIM, p.x ? "  PSI" : "PSI");
        for (size_t i = 0; i < COUNT_OF(PRESSURE); i++) {
            const double ratio = v[PRESSURE[i].metric];
            if (!isfinite(ratio)) continue;
            pen_put(&p, ROLE_DIM, " ");
            pen_level(&p, PRESSURE[i].label, PRESSURE[i].metric, ratio, figure_percent(ratio).text);
        }
    }
    return p.x ? 1 : 0;
}

/* What other programs and the hypervisor take, and swapped memory. */
static int row_others(struct grid *g, struct rect in, int row, const struct snapshot *s)
{
    const double *v = s->sensor, steal = v[METRIC_CPU_STEAL], others = v[METRIC_OTHERS_BUSY],
                 swap = v[METRIC_SWAP_USED];
    struct pen p = pen_at(g, in, 0, row);
    if (isfinite(others)) pen_level(&p, "others ", METRIC_OTHERS_BUSY, others, figure_percent(others).text);
    if (isfinite(steal))
        pen_level(&p, p.x ? "  steal " : "steal ", METRIC_CPU_STEAL, steal, figure_percent(steal).text);
    if (isfinite(swap)) pen_value(&p, p.x ? "  swap " : "swap ", figure_bytes_of(swap).text);
    return p.x ? 1 : 0;
}

static int row_limits(struct grid *g, struct rect in, int row, const struct snapshot *s)
{
    struct pen p = pen_at(g, in, 0, row);
    if (!s->ceilings_known) {
        pen_value(&p, "limits ", "n/a");
        pen_put(&p, ROLE_DIM, " (a measures them)");
        return 1;
    }
    pen_value(&p, "limit: reads ", figure_per_second(s->ceilings.read_bytes_s_all).text);
    double best = NAN;
    for (int i = 0; i < s->ceilings.count; i++) best = fmax(best, s->ceilings.row[i].ops_s_all);
    pen_printf(&p, ROLE_TEXT, ", %s Gop/s", figure_number(best / 1e9).text);
    return 1;
}

/* Returns the rows used. */
static int rows_cores(struct grid *g, struct rect in, const struct snapshot *s)
{
    enum { CORE = 19 };
    const int columns = MAX(in.w / CORE, 1);
    for (int i = 0; i < s->cores && i < columns * in.h; i++) {
        struct pen p = pen_at(g, in, i % columns * CORE, i / columns);
        char label[16];
        snprintf(label, sizeof label, "%d", i);
        pen_field_right(&p, 3, ROLE_DIM, label);
        pen_put(&p, ROLE_TEXT, " ");
        pen_meter(&p, 8, s->core_busy[i], ROLE_METER);
        pen_field_right(&p, 5, ROLE_TEXT, figure_percent(s->core_busy[i]).text);
    }
    return MIN((s->cores + columns - 1) / columns, in.h);
}

/* ---------------------------------------------------------------- the box */

void draw_timelines(struct grid *g, struct rect in, int row, const struct timeline *t, int n)
{
    enum { TIMELINE_ROWS = 5 };
    const int left = in.h - row, count = MIN(n, left / TIMELINE_ROWS);
    for (int i = 0; i < count; i++) {
        const int from = row + left * i / count, to = row + left * (i + 1) / count;
        chart_timeline(g, rect_rows(in, from, to - from), &t[i]);
    }
}

void box_machine(struct grid *g, struct rect area, const struct snapshot *s)
{
    static int (*const ROWS[])(struct grid *, struct rect, int, const struct snapshot *) = {
        row_cpu, row_memory, row_gpu, row_power, row_absent, row_others, row_limits,
    };
    const struct axis busy = { .lo = 0, .hi = 1, .name = "CPU", .show = figure_percent },
                      used = { .lo = 0, .hi = 1, .name = "memory", .show = figure_percent };
    const double step = SNAPSHOT_STEP_MS * 1e-3;
    struct rect in = grid_box(g, area, "Machine", NULL);
    int row = 0;
    for (size_t i = 0; i < COUNT_OF(ROWS) && row < in.h; i++) row += ROWS[i](g, in, row, s);
    if (row < in.h) row += rows_cores(g, rect_rows(in, row, in.h - row), s);
    draw_timelines(g, in, row,
                   (const struct timeline[]){ { s->cpu.v, s->cpu.n, step, busy, ROLE_GRAPH },
                                              { s->memory.v, s->memory.n, step, used, ROLE_GRAPH } },
                   2);
}
