/* tui/dashboard/effect.h - what an action asks the dashboard to do. Internal to the dashboard.
 *
 * An action (actions.h) reads the snapshot, changes the ui, and returns an effect for everything else: a
 * message, a background job, a command, or a request such as "pause the experiment". effect_apply() in
 * apply.c is the only place that carries effects out, so actions can be tested without threads, a terminal or
 * a database. */
#ifndef QDYNO_TUI_EFFECT_H
#define QDYNO_TUI_EFFECT_H

#include "tui/dashboard/jobs.h"
#include "tui/frame/frame.h"

enum effect_request {
    REQUEST_QUIT = 1 << 0,
    REQUEST_REDRAW = 1 << 1,    /* send the whole screen again */
    REQUEST_SUSPEND = 1 << 2,   /* back to the shell as soon as no cell is being timed */
    REQUEST_SET_MOUSE = 1 << 3, /* make the terminal follow ui.mouse */
    REQUEST_NEXT_THEME = 1 << 4,
    REQUEST_SAVE_PREFERENCES = 1 << 5,
    REQUEST_PAUSE_EXPERIMENT = 1 << 6,
    REQUEST_CONTINUE_EXPERIMENT = 1 << 7,
    REQUEST_START_WRITING = 1 << 8, /* side by side: `writing` */
    REQUEST_STOP_WRITING = 1 << 9,
    REQUEST_CANCEL_COMMAND = 1 << 10,
    REQUEST_MOVE_QUEUED = 1 << 11,    /* job.id: which; job.other_id: rows down */
    REQUEST_REMOVE_QUEUED = 1 << 12,  /* job.id */
    REQUEST_RESTORE_QUEUED = 1 << 13, /* the one that was removed last */
    REQUEST_CHANGE_LOAD = 1 << 14,    /* job.other_id: 1 more requests, -1 fewer, 0: job.text has settings */
    /* these act on `command` */
    REQUEST_RUN_COMMAND = 1 << 15,  /* in the background; also shows and logs it */
    REQUEST_SHOW_COMMAND = 1 << 16, /* in the status line and the log */
    REQUEST_COPY_COMMAND = 1 << 17, /* to the terminal's clipboard and the log */
};

/* Every part is optional; {0} asks for nothing. */
struct effect {
    unsigned requests; /* REQUEST_*, or-ed */
    enum job_queue queue;
    struct job job; /* run NULL: none */
    bool is_error;
    char message[512];                     /* for the status line */
    struct words command;                  /* what runs, or what does the same: it is shown and logged */
    const struct sidebyside_spec *writing; /* in ui.texts */
    bool opens_output;                     /* REQUEST_RUN_COMMAND: open its output when it has ended */
};

struct effect effect_none(void);
struct effect effect_message(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
struct effect effect_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
struct effect effect_request(unsigned requests);
/* The door of every long job: the command of the action with the values on screen, and what is done with it.
 * An error when there is none. */
struct effect effect_start(enum action action, struct ui *ui, const struct snapshot *s, unsigned requests);
/* Run a command in another process. An error when memory ran out while it was built. */
struct effect effect_run(const struct words *command);
/* A background job; what else it needs is set by the caller. text NULL: "". */
struct effect effect_job(enum job_queue queue, void (*run)(struct background *b, const struct job *j),
                         const char *text);

#endif
