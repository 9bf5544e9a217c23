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

/* The effects of ACTION_LIST. */
#define DECLARE_ACTION(name, keys, texts, refuse, command, effect) action_fn effect;
#define DECLARE_NOTHING(name, keys, texts, refuse, command, view)
ACTION_LIST(DECLARE_ACTION, DECLARE_NOTHING, DECLARE_NOTHING, DECLARE_NOTHING)
#undef DECLARE_ACTION
#undef DECLARE_NOTHING

/* ---------------------------------------------------------------- keys and clicks (input.c) */

/* One key press, wherever it goes: a question, a form, an overlay or the view. */
struct effect input_key(struct ui *ui, const struct snapshot *s, int key);
struct effect input_click(struct ui *ui, const struct snapshot *s, struct hit hit);
/* Do the action of a key, or return the reason why it is impossible now as an error message. */
struct effect input_action(struct ui *ui, const struct snapshot *s, const struct key_binding *k);

/* ---------------------------------------------------------------- views and settings (actions_view.c) */

/* Show a view; views that show the database read it again. */
struct effect action_show_view(struct ui *ui, int view);
/* Show a view from which Esc leads back to the one on screen. */
void action_enter_view(struct ui *ui, enum view view);
/* Move the selection down, or up. */
struct effect action_move(struct ui *ui, const struct snapshot *s, int rows);
/* Sort the list on screen by a column; again reverses it. */
struct effect action_sort_by(struct ui *ui, const struct snapshot *s, int column);
/* The filter in the open form: after each key; when it is accepted; when it is given up. */
void action_typed_filter(struct ui *ui);
struct effect action_accept_filter(struct ui *ui);
struct effect action_clear_filter(struct ui *ui);
/* Read history, quality and load again from the database. */
struct effect action_read_history(void);

/* ---------------------------------------------------------------- experiments (actions_experiment.c) */

/* Change the load or the server on screen (actions_load.c). by: 1 more, -1 less. */
struct effect action_load_rate(struct ui *ui, const struct snapshot *s, int by);
/* Open the form that changes the selected setting. */
struct effect action_change_setting(struct ui *ui, const struct snapshot *s, const struct knob *k);
/* Open the A/B form with arm A against the same plus "KEY=", ready for the value. */
struct effect action_ab_with_setting(struct ui *ui, const struct snapshot *s, const struct knob *k);
/* Do what the accepted form says: change the load or a setting, write side by side. */
action_fn action_change_load, action_set, action_start_writing;

/* ---------------------------------------------------------------- runs and commands (actions_command.c) */

action_fn action_push_typed; /* to the address in the form */
/* Run the command that a person typed into the form; ask first if it deletes or replaces something. */
struct effect action_run_typed(struct ui *ui);
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
