/* tui/dashboard/loop.h - the state of a running dashboard, shared by the files that run it: dashboard.c
 * (open, close), loop.c (frames), collect.c (the snapshot), apply.c (effects). Internal to the dashboard. */
#ifndef QDYNO_TUI_LOOP_H
#define QDYNO_TUI_LOOP_H

#include <limits.h>

#include "advisor/experiment/experiment.h"
#include "advisor/sidebyside/sidebyside.h"
#include "tui/dashboard/background.h"
#include "tui/dashboard/dashboard.h"
#include "tui/dashboard/effect.h"

/* What forms have asked the background for, so that nothing is requested twice. */
struct form_lookups {
    bool folder_known;             /* `folder` was requested for the form that is open */
    char folder[FORM_TEXT];        /* path, in the form of struct folder */
    char estimated[2 * FORM_TEXT]; /* model, config line and cursor that estimates were requested for */
    uint64_t checked;              /* form_hash() of the texts that a check was requested for */
};

/* CPU time of the drawing thread, measured every two seconds. */
struct own_cost {
    int64_t wall_ns, cpu_ns; /* clocks at the last measurement; 0: none yet */
    double ratio;            /* share of one core, NAN unknown */
};

struct dashboard {
    const struct dashboard_options *options;
    struct background *background;
    struct jobs *queue[QUEUES];
    struct screen *screen; /* NULL without a terminal: --frames, --linear */
    struct snapshot *s;    /* of this frame */
    struct ui ui;
    struct theme theme;
    char theme_name[PATH_MAX];   /* name or absolute path */
    int64_t running_id;          /* what ran when the history was read last; 0: nothing */
    int64_t runs_ns;             /* when to read the history again, on clock_ns */
    bool paused_by_hand;         /* not by Ctrl-Z */
    struct sidebyside *write;    /* running, or the last one; NULL */
    enum load_source traffic_of; /* the source of the last values, */
    double traffic_s;            /* and when they were counted: seconds after its start */
    int64_t traffic_arrived, traffic_tokens;
    int64_t server_ns;           /* when to read the server again, on clock_ns */
    int64_t series_ns;           /* when the series grow again, on clock_ns */
    int64_t flush_ns;            /* when to flush the spool again, on clock_ns */
    struct known_versions known; /* of what jobs know, as the snapshot has it; -1: copy it again */
    int page_width;              /* columns that the page of the snapshot is laid out for; 0: it is not */
    struct busy_state busy;
    int64_t busy_ns, scan_ns; /* when to look at load and at programs again, on clock_ns */
    int quiet_steps;          /* in a row */
    struct own_cost cost;
    struct form_lookups lookups;
    int64_t page_seen;            /* number of the text page that was opened last */
    char limits_for[64];          /* run and machine limits that were requested last */
    char model_shown[MODEL_PATH]; /* of the last frame */
    bool leaving, suspending;
    bool suspend_sent; /* suspending: the A/B was asked to pause */
    struct waiting {   /* jobs that start one after the other, the next one first */
        int64_t id, since_ms;
        struct effect effect;
    } waiting[QUEUED_JOBS], removed; /* removed: the last one taken out by hand, id 0: none */
    int waiting_count, removed_at;
    bool from_queue; /* what runs came from the queue */
    bool measures;   /* what runs is an A/B */
    int64_t waiting_id;
};

/* Build the snapshot of this frame and start what was waiting for its time. */
void dashboard_collect(struct dashboard *d);

/* Notice a busy machine, and continue what waits for a quiet one (busy.c). */
void dashboard_watch_busy(struct dashboard *d);

/* Carry out an effect. */
void effect_apply(struct dashboard *d, const struct effect *e);
/* Start the next job of the queue, if nothing runs. Called every frame. */
void dashboard_start_queued(struct dashboard *d);
/* Suspend, once that is possible. Called every frame. */
void dashboard_suspend_pending(struct dashboard *d);
void dashboard_message(struct dashboard *d, bool is_error, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The frame loops: on a terminal, as lines (--linear), and a fixed number of frames as text (--frames). */
enum err_code loop_terminal(struct dashboard *d, struct err *why);
enum err_code loop_linear(struct dashboard *d, struct err *why);
enum err_code loop_frames(struct dashboard *d, struct err *why);

#endif
