/* tui/dashboard/loop.h - the loop's own state, shared by dashboard.c (frames) and actions.c (what keys do).
 */
#ifndef QDYNO_TUI_DASHBOARD_H
#define QDYNO_TUI_DASHBOARD_H

#include <limits.h>

#include "advisor/experiment/experiment.h"
#include "tui/dashboard/background.h"
#include "tui/dashboard/dashboard.h"
#include "tui/frame/frame.h"

struct dashboard {
    const struct dashboard_options *options;
    struct background *background;
    struct jobs *slow;             /* processor: machine, model, probe, advice, limits */
    struct jobs *storage;          /* database: history, load, start */
    struct jobs *network;          /* push, flush */
    struct jobs *shell;            /* the command of `!` */
    struct screen *screen;         /* NULL with --frames */
    struct experiment *experiment; /* runs, or ran last; NULL */
    struct sidebyside *write;      /* writes, or wrote last; NULL */
    struct snapshot *s;            /* of this frame */
    struct ui ui;
    struct theme theme;
    char theme_named[PATH_MAX];    /* as theme_find takes it: a name or a whole path */
    struct experiment_state *last; /* what the A/B view shows */
    bool last_known;
    struct series cpu, memory, gpu, decode, prefill;
    int64_t series_ms, flush_ms, history_ms;
    char push_url[256];
    bool folder_asked; /* folder_path is what forms offer files of */
    char folder_path[640];
    char made[512];         /* the model file that was made last, "" none */
    char judge_asked[1400]; /* the line that the loader was asked about last */
    int64_t page_seen;      /* number of the page that was opened last */
    char limits_for[64];    /* what the limits were last asked for */
    struct job pending;     /* a start that waits for the probe */
    bool was_running, leaving;
    bool paused_by_hand;
    bool suspending;                   /* the shell is wanted as soon as nothing is timed */
    int64_t cost_wall_ns, cost_cpu_ns; /* at the last reckoning */
    double cost_ratio;
};

/* Do what a key means now. */
void dashboard_key(struct dashboard *d, int key);

/* Do what a click on that place means. */
void dashboard_click(struct dashboard *d, struct hit hit);

/* Ask for an A/B (id to resume, or its texts); begins as soon as nothing else is measured. */
void dashboard_start(struct dashboard *d, const struct job *start);
/* Starts what waits, once it may. Called every frame. */
void dashboard_start_pending(struct dashboard *d);

/* Back to the shell: at once, or when the cell that is timed has ended. What is on screen says so. */
void dashboard_suspend(struct dashboard *d);
/* The same, once it may. Called every frame. */
void dashboard_suspend_pending(struct dashboard *d);

void dashboard_toast(struct dashboard *d, bool is_error, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

bool dashboard_is_running(const struct dashboard *d);
bool dashboard_is_writing(const struct dashboard *d);
/* What two arms have written so far, for the frame. */
void dashboard_collect_write(struct dashboard *d);

#endif
