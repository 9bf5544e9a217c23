/* tui/dashboard/actions.h - what the actions_*.c share: one function per action that does something, and how
 * they hand work to the background. Internal to the dashboard. */
#ifndef QDYNO_TUI_ACTIONS_H
#define QDYNO_TUI_ACTIONS_H

#include "tui/dashboard/loop.h"

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
void actions_verify_form(struct dashboard *d); /* the form of an A/B of the selected advice */
/* An A/B of what there is against the same with this setting, ready for its value. */
void actions_form_with_setting(struct dashboard *d, const struct knob *k);

/* other processes, servers (actions_work.c) */
void actions_do_push(struct dashboard *d);
void actions_push_to(struct dashboard *d, const char *url);
void actions_do_command(struct dashboard *d);
void actions_do_cancel(struct dashboard *d);
/* line: what stands behind "qdyno"; makes: the file it writes, NULL none; show: COMMAND_SHOWS or _QUIET. */
void actions_command_start(struct dashboard *d, const char *line, const char *makes, int show);
void actions_command_asked(struct dashboard *d, const char *line, int show); /* asks where it is final */

void actions_read_runs(struct dashboard *d);                                 /* the history again */
void actions_do_or_refuse(struct dashboard *d, const struct key_binding *k); /* do it, or say why not */

/* runs, advice, files made of the model (actions_task.c) */
void actions_do_mark(struct dashboard *d);
void actions_do_sort(struct dashboard *d);
void actions_do_compare(struct dashboard *d);
void actions_do_verify(struct dashboard *d);
void actions_do_apply(struct dashboard *d);
void actions_do_baseline(struct dashboard *d);
void actions_do_report(struct dashboard *d);
void actions_do_output(struct dashboard *d);
void actions_do_quantize(struct dashboard *d);
void actions_do_calibrate(struct dashboard *d);
void actions_do_tune(struct dashboard *d);
void actions_do_copy(struct dashboard *d);
void actions_answer(struct dashboard *d, bool yes); /* to the question that is asked */
bool actions_line_is_final(const char *line);       /* it ends something for good */
void actions_form_follow(struct dashboard *d);      /* fields that follow others, after each key */
bool actions_task_done(struct dashboard *d);        /* the form was one of these, and is answered */
/* What was done, as a command: in the log and below the view. */
void actions_say_command(struct dashboard *d, const char *command);

/* side by side (actions_write.c) */
void actions_do_write(struct dashboard *d);
void actions_write_start(struct dashboard *d); /* what the form says */

/* forms (actions_form.c) */
void actions_key_in_form(struct dashboard *d, int key);
void actions_form_done(struct dashboard *d);     /* every field is good: do it */
void actions_form_needs(struct dashboard *d);    /* ask for what its offers need; every frame */
void actions_choose(struct dashboard *d, int i); /* take offer i of the form, or row i of the palette */

#endif
