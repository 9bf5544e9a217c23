/* tui/dashboard/actions.h - what keys do. Internal to the dashboard.
 *
 * An action may read the snapshot, may change the ui (view, selection, form), and returns an effect for
 * everything else. Apart from checking whether files exist, it reads nothing but its arguments. input.c has
 * the table from enum action to these functions; whether an action is possible now is decided before it is
 * called (action_refusal). */
#ifndef QDYNO_TUI_ACTIONS_H
#define QDYNO_TUI_ACTIONS_H

#include "tui/dashboard/background.h"
#include "tui/dashboard/effect.h"
#include "tui/frame/frame.h"

typedef struct effect action_fn(struct ui *ui, const struct snapshot *s);

/* ---------------------------------------------------------------- keys and clicks (input.c) */

/* One key press, wherever it goes: a question, a form, an overlay or the view. */
struct effect input_key(struct ui *ui, const struct snapshot *s, int key);
struct effect input_click(struct ui *ui, const struct snapshot *s, struct hit hit);
/* Do the action of a key, or return the reason why it is impossible now as an error message. */
struct effect input_action(struct ui *ui, const struct snapshot *s, const struct key_binding *k);

/* ---------------------------------------------------------------- views and settings (actions_view.c) */

action_fn action_next_view, action_previous_view, action_next_pane, action_previous_pane, action_zoom,
    action_details, action_up, action_down, action_page_up, action_page_down, action_first, action_last,
    action_back, action_help, action_palette, action_mouse, action_theme, action_save, action_redraw,
    action_suspend, action_quit, action_filter, action_sort, action_reverse;
/* Show a view; views that show the database read it again. */
struct effect action_show_view(struct ui *ui, int view);
/* Show a view from which Esc leads back to the one on screen. */
void action_enter_view(struct ui *ui, enum view view);
/* Sort the list on screen by a column; again reverses it. */
struct effect action_sort_by(struct ui *ui, const struct snapshot *s, int column);
/* The filter in the open form: after each key; when it is accepted; when it is given up. */
void action_typed_filter(struct ui *ui);
struct effect action_accept_filter(struct ui *ui);
struct effect action_clear_filter(struct ui *ui);
/* Read history, quality and load again from the database. */
struct effect action_read_history(void);

/* ---------------------------------------------------------------- experiments (actions_experiment.c) */

action_fn action_new_ab, action_stop, action_pause, action_resume, action_advise, action_kernels, action_open,
    action_verify, action_write;
/* actions_load.c: change the load or the server on screen. by: 1 more, -1 less. */
action_fn action_schedule, action_load_setting;
struct effect action_load_rate(const struct snapshot *s, int by);
/* Do what the accepted form says. */
struct effect action_change_load(struct ui *ui, const struct snapshot *s);
/* busy.c */
action_fn action_wait_quiet, action_loaded;
/* Open the form that changes the selected setting; do what the accepted form says. */
struct effect action_change_setting(struct ui *ui, const struct snapshot *s, const struct knob *k);
struct effect action_set(struct ui *ui, const struct snapshot *s);
/* Open the A/B form with arm A against the same plus "KEY=", ready for the value. */
struct effect action_ab_with_setting(struct ui *ui, const struct snapshot *s, const struct knob *k);
/* Start the A/B, or the side-by-side continuation, that the accepted form describes. */
struct effect action_start_ab(struct ui *ui, const struct snapshot *s);
struct effect action_resume_with(struct ui *ui, const struct snapshot *s); /* with the time in its form */
struct effect action_start_writing(struct ui *ui, const struct snapshot *s);

/* ---------------------------------------------------------------- runs and commands (actions_command.c) */

action_fn action_mark, action_delete, action_earlier, action_later, action_compare, action_model, action_push,
    action_apply, action_undo, action_baseline, action_report, action_quantize, action_calibrate,
    action_model_text, action_tune, action_command, action_copy, action_output;
struct effect action_push_to(struct ui *ui, const struct snapshot *s, const char *url);
/* Run a command line that a person typed (without "qdyno"); ask first if it deletes or replaces something. */
struct effect action_run_typed(struct ui *ui, const char *line);
/* The person answered the question on screen. */
struct effect action_answer(struct ui *ui, const struct snapshot *s, bool yes);
/* Run the command of an accepted form. False: the form is not one of these. */
bool action_run_form(struct ui *ui, const struct snapshot *s, struct effect *out);
/* Derive the output file of the quantize form from its recipe, until the person edits the file name. */
void action_follow_fields(struct ui *ui, const struct snapshot *s);

/* ---------------------------------------------------------------- forms and the palette (actions_form.c) */

/* Give the form that continues a run the time that the run needs, until the person edits it. */
void action_follow_forecast(struct ui *ui, const struct snapshot *s);

struct effect action_form_key(struct ui *ui, const struct snapshot *s, int key);
/* Do what the open form is for; its fields are valid. Closes it, except when it is refused. */
struct effect action_form_accept(struct ui *ui, const struct snapshot *s);
/* Take suggestion i of the form, or row i of the palette. */
struct effect action_choose(struct ui *ui, const struct snapshot *s, int i);

#endif
