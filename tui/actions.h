/* tui/actions.h - what the actions_*.c share: one function per action that does something, and how they hand
 * work to the background. Internal to the dashboard. */
#ifndef QDYNO_TUI_ACTIONS_H
#define QDYNO_TUI_ACTIONS_H

#include "tui/dashboard.h"

/* Queue it, or say that there is too much already. */
void actions_put(struct dashboard *d, struct jobs *queue, const struct job *j);
extern const char ACTIONS_BUSY[];
void job_put_text(struct job *j, int i, const char *text); /* NULL: "" */

/* experiments and advice (actions_experiment.c) */
void actions_do_new_ab(struct dashboard *d);
void actions_do_stop(struct dashboard *d);
void actions_do_pause(struct dashboard *d);
void actions_do_resume(struct dashboard *d);
void actions_do_advise(struct dashboard *d);
void actions_do_open(struct dashboard *d);
/* An A/B of what there is against the same with this setting, ready for its value. */
void actions_form_with_setting(struct dashboard *d, const struct knob *k);

/* other processes, servers (actions_work.c) */
void actions_do_push(struct dashboard *d);
void actions_push_to(struct dashboard *d, const char *url);
void actions_do_command(struct dashboard *d);
void actions_do_cancel(struct dashboard *d);
void actions_command_start(struct dashboard *d, const char *line); /* what stands behind "qdyno" */

#endif
