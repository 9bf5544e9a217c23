/* tui/forms/action_list.h - the actions of the dashboard: one row for everything that a key can do.
 *
 * To add an action, add a row, and write the functions that it names. A letter and its capital do not stand
 * for two unrelated things.
 *
 *   name     DO_NAME in enum action; of a V row also the view that it shows
 *   keys     codes of widgets.h; at most 3
 *   texts    the key as printed; its label in the footer (NULL: only in the help), and the same for a narrow
 * one (NULL: as the label); its title in the palette (NULL: not listed); its line in the help; the command
 *            line that does the same, as an example (NULL: there is none)
 *   refuse   why it is impossible now (tui/frame/refusals.c); NULL: it is always possible
 *   command  the equivalent command with the values on screen (tui/frame/equivalent_command.c); NULL: none
 *   effect   what it does (tui/dashboard/actions_*.c); of a V row the view, of an R row what it asks for
 *            (tui/dashboard/effect.h), of an M row how many rows it moves down
 *
 * The footer shows the rows with a label, in this order, as far as they fit. */
#ifndef QDYNO_TUI_ACTION_LIST_H
#define QDYNO_TUI_ACTION_LIST_H

/* clang-format off */
#define ACTION_LIST(X, V, R, M)                                                                                   \
    V(VIEW_LIVE, ('1'), ("1", "live", NULL, "show live",                                                          \
      "machine, engine, A/B, advice and log on one screen", "qdyno detect"), NULL, command_detect, VIEW_LIVE)     \
    V(VIEW_AB, ('2'), ("2", "A/B", NULL, "show A/B",                                                              \
      "the experiment: its arms, the effect of each block, the verdict",                                          \
      "qdyno show ID"), NULL, command_show, VIEW_AB)                                                              \
    V(VIEW_ADVICE, ('3'), ("3", "advice", "adv", "show advice",                                                   \
      "ranked configurations for this machine", "qdyno advise -m MODEL"), NULL, NULL, VIEW_ADVICE)                \
    V(VIEW_HISTORY, ('4'), ("4", "history", "hist", "show history",                                               \
      "all runs in the database", "qdyno history"), NULL, command_history, VIEW_HISTORY)                          \
    V(VIEW_MODEL, ('5'), ("5", "model", "mod", "show model",                                                      \
      "tensors and formats of the model, and memory by context length",                                           \
      "qdyno info -m MODEL --tensors"), NULL, command_model, VIEW_MODEL)                                          \
    V(VIEW_QUALITY, ('6'), ("6", "quality", "qual", "show quality",                                               \
      "quality of each method: KL divergence, perplexity; by layer",                                              \
      "qdyno eval -m MODEL -C CONFIG --ref CONFIG"), NULL, command_quality, VIEW_QUALITY)                         \
    V(VIEW_LOAD, ('7'), ("7", "load", NULL, "show load",                                                          \
      "request latencies, KV cache blocks, batch sizes, roofline",                                                \
      "qdyno bench -m MODEL -w WORKLOAD"), NULL, command_load, VIEW_LOAD)                                         \
    V(VIEW_SETTINGS, ('8'), ("8", "settings", "set", "show settings",                                             \
      "every key of a config line: its value and its range",                                                      \
      "qdyno help knobs"), NULL, command_knobs, VIEW_SETTINGS)                                                    \
    V(VIEW_LOG, ('9'), ("9", "log", NULL, "show log",                                                             \
      "messages and events", NULL), NULL, NULL, VIEW_LOG)                                                         \
    X(STOP, ('s'), ("s", "stop", NULL, "stop",                                                                    \
      "stop what runs: experiment, search (r resumes them), command", NULL), refuse_stop, NULL, action_stop)      \
    X(RESUME, ('r'), ("r", "resume", NULL, "resume",                                                              \
      "resume a stopped A/B or search; continue an undecided A/B",                                                \
      "qdyno ab --resume ID"), refuse_resume, command_resume, action_resume)                                      \
    X(PAUSE, ('|'), ("|", "pause", NULL, "pause or continue",                                                     \
      "pause the experiment after the running cell, or continue", NULL), refuse_pause, NULL, action_pause)        \
    X(WAIT_QUIET, ('i'), ("i", NULL, NULL, "wait until quiet",                                                    \
      "busy machine: wait until it is quiet, before the next start or in a pause",                                \
      "qdyno ab --wait-quiet 10m"), refuse_wait_quiet, NULL, action_wait_quiet)                                   \
    X(LOADED, ('%'), ("%", NULL, NULL, "measure under load",                                                      \
      "busy machine: the next A/B measures anyway; all blocks count",                                             \
      "qdyno ab --estimand loaded"), refuse_loaded, NULL, action_loaded)                                          \
    X(TUNE, ('t'), ("t", "tune", NULL, "tune",                                                                    \
      "find the best setting for this model: search, confirm, apply",                                             \
      "qdyno tune -m MODEL"), refuse_tune, command_tune, action_tune)                                             \
    V(VIEW_JOBS, ('&'), ("&", NULL, NULL, "show queue",                                                           \
      "the queue: jobs that start when nothing else runs", NULL), NULL, NULL, VIEW_JOBS)                          \
    X(EARLIER, ('+'), ("+", NULL, NULL, "move job up; more load",                                                 \
      "queue: the selected job starts earlier; load: more requests", NULL), refuse_queued, NULL, action_earlier)  \
    X(LATER, ('-'), ("-", NULL, NULL, "move job down; less load",                                                 \
      "queue: the selected job starts later; load: fewer requests", NULL), refuse_queued, NULL, action_later)     \
    X(SCHEDULE, ('.'), (".", NULL, NULL, "next schedule",                                                         \
      "load: another schedule for the running load or server", NULL), refuse_load_setting, NULL, action_schedule) \
    X(LOAD_SETTING, (';'), (";", NULL, NULL, "load setting",                                                      \
      "load: change a setting of the running load or server",                                                     \
      NULL), refuse_load_setting, NULL, action_load_setting)                                                      \
    X(NEW_AB, ('b'), ("b", "new A/B", "new", "new A/B",                                                           \
      "start an experiment: two configurations, one workload",                                                    \
      "qdyno ab -m MODEL A B -w WORKLOAD"), refuse_start, command_ab, action_new_ab)                              \
    V(VIEW_WRITE, ('0'), ("0", "write", NULL, "show side by side",                                                \
      "two configurations that continue a prompt side by side",                                                   \
      "qdyno run -m MODEL -C A -p PROMPT"), NULL, NULL, VIEW_WRITE)                                               \
    X(WRITE, ('w'), ("w", NULL, NULL, "write side by side",                                                       \
      "let two configurations continue a prompt side by side",                                                    \
      "qdyno run -m MODEL -C A -p PROMPT"), refuse_write, command_write, action_write)                            \
    X(ADVISE, ('a'), ("a", "advise", NULL, "advise",                                                              \
      "measure the machine's limits once, then rank configurations",                                              \
      "qdyno detect --probe; qdyno advise -m MODEL"), refuse_advise, command_advise, action_advise)               \
    X(OPEN, (UI_KEY_ENTER, '\r'), ("Enter", NULL, NULL, "open selected",                                          \
      "open the selected row: a run, details, a setting, an advice",                                              \
      "qdyno show ID"), refuse_open, command_open, action_open)                                                   \
    X(PUSH, ('p'), ("p", "push", NULL, "push",                                                                    \
      "send the result to a Prometheus Pushgateway",                                                              \
      "qdyno push ID --url URL"), refuse_push, command_push, action_push)                                         \
    X(MODEL, ('m'), ("m", NULL, NULL, "model",                                                                    \
      "choose a model file; shows which files fit into memory",                                                   \
      "qdyno dashboard -m FILE"), refuse_model, command_other_model, action_model)                                \
    X(FILTER, ('/'), ("/", NULL, NULL, "filter",                                                                  \
      "only rows with TEXT, or without it (!TEXT); Esc shows all",                                                \
      "qdyno history --filter TEXT"), refuse_list, command_history, action_filter)                                \
    X(MARK, (' '), ("space", NULL, NULL, "mark run",                                                              \
      "history: mark or unmark a run; c compares two marked runs",                                                \
      "qdyno compare ID ID"), refuse_mark, NULL, action_mark)                                                     \
    X(SORT, ('>'), (">", NULL, NULL, "sort",                                                                      \
      "sort the list by the next column; a click on a heading, too", NULL), refuse_list, NULL, action_sort)       \
    X(REVERSE, ('<'), ("<", NULL, NULL, "reverse the order",                                                      \
      "reverse the order of the list", NULL), refuse_list, NULL, action_reverse)                                  \
    X(DELETE, ('x', UI_KEY_DELETE), ("x", NULL, NULL, "delete",                                                   \
      "history: delete the run; queue: remove the job; u restores it",                                            \
      "qdyno history --delete RUN"), refuse_delete, NULL, action_delete)                                          \
    X(COMPARE, ('c'), ("c", NULL, NULL, "compare runs",                                                           \
      "compare two marked runs, or the marked and the selected one",                                              \
      "qdyno compare ID ID"), refuse_compare, command_compare, action_compare)                                    \
    X(VERIFY, ('v'), ("v", NULL, NULL, "verify advice",                                                           \
      "start an A/B of the selected advice against the defaults",                                                 \
      "qdyno ab -m MODEL default CONFIG"), refuse_verify, command_verify, action_verify)                          \
    X(KERNELS, ('#'), ("#", NULL, NULL, "time the kernels",                                                       \
      "time this machine's kernels once (55 s): narrower predictions",                                            \
      "qdyno detect --probe --kernels"), refuse_kernels, command_kernels, action_kernels)                         \
    X(APPLY, ('='), ("=", NULL, NULL, "apply",                                                                    \
      "apply the advice, or the winner of the run, to the model",                                                 \
      "qdyno apply -m MODEL CONFIG"), refuse_apply, command_apply, action_apply)                                  \
    X(UNDO, ('u'), ("u", NULL, NULL, "undo",                                                                      \
      "restore what was applied before; history: the deleted run",                                                \
      "qdyno apply --undo -m MODEL"), refuse_undo, command_undo, action_undo)                                     \
    X(BASELINE, ('n'), ("n", NULL, NULL, "set baseline",                                                          \
      "store the run's winner as a baseline for later comparisons",                                               \
      "qdyno baseline set NAME ID"), refuse_baseline, command_baseline, action_baseline)                          \
    X(REPORT, ('e'), ("e", NULL, NULL, "export report",                                                           \
      "write a report of the run: HTML page, Markdown or picture",                                                \
      "qdyno report ID --out FILE"), refuse_report, command_report, action_report)                                \
    X(QUANTIZE, ('f'), ("f", NULL, NULL, "quantize",                                                              \
      "write a quantized file of the model; lists recipes and sizes",                                             \
      "qdyno quantize IN OUT -R RECIPE"), refuse_start, command_quantize, action_quantize)                        \
    X(CALIBRATE, ('*'), ("*", NULL, NULL, "calibrate",                                                            \
      "collect activation statistics on a text, for some methods",                                                \
      "qdyno calibrate IN -f TEXT --out FILE"), refuse_start, command_calibrate, action_calibrate)                \
    X(MODEL_TEXT, ('"'), ("\"", NULL, NULL, "choose the text of the model",                                       \
      "choose the text that this model's quality is measured on",                                                 \
      "qdyno eval -m MODEL -f TEXT --set-text"), refuse_start, command_model_text, action_model_text)             \
    X(COPY, ('y', UI_CTRL('y')), ("y", NULL, NULL, "copy command",                                                \
      "copy the command line that equals this screen", NULL), NULL, NULL, action_copy)                            \
    X(OUTPUT, ('o'), ("o", NULL, NULL, "output of the last command",                                              \
      "show the output of the last command", NULL), refuse_output, NULL, action_output)                           \
    M(UP, ('k', UI_KEY_UP, UI_KEY_WHEEL_UP), ("k", NULL, NULL, NULL,                                              \
      "up", NULL), NULL, NULL, -1)                                                                                \
    M(DOWN, ('j', UI_KEY_DOWN, UI_KEY_WHEEL_DOWN), ("j", NULL, NULL, NULL,                                        \
      "down", NULL), NULL, NULL, 1)                                                                               \
    X(PREVIOUS_VIEW, ('h', UI_KEY_LEFT), ("h", NULL, NULL, NULL,                                                  \
      "previous view", NULL), NULL, NULL, action_previous_view)                                                   \
    X(NEXT_VIEW, ('l', UI_KEY_RIGHT), ("l", NULL, NULL, NULL,                                                     \
      "next view", NULL), NULL, NULL, action_next_view)                                                           \
    X(NEXT_PANE, (UI_KEY_TAB), ("Tab", NULL, NULL, NULL,                                                          \
      "next pane of the view", NULL), refuse_pane, NULL, action_next_pane)                                        \
    X(PREVIOUS_PANE, (UI_KEY_BACKTAB), ("Shift-Tab", NULL, NULL, NULL,                                            \
      "previous pane", NULL), refuse_pane, NULL, action_previous_pane)                                            \
    X(ZOOM, ('z'), ("z", NULL, NULL, "zoom",                                                                      \
      "fill the screen with the pane, or show all panes again", NULL), refuse_pane, NULL, action_zoom)            \
    X(DETAILS, ('d'), ("d", NULL, NULL, "details of the verdict",                                                 \
      "A/B: show the figures behind the verdict, or its words again",                                             \
      "qdyno show ID"), refuse_details, NULL, action_details)                                                     \
    M(PAGE_UP, (UI_KEY_PAGE_UP, UI_CTRL('b')), ("PgUp", NULL, NULL, NULL,                                         \
      "a page up", NULL), NULL, NULL, -PAGE_ROWS)                                                                 \
    M(PAGE_DOWN, (UI_KEY_PAGE_DOWN, UI_CTRL('f')), ("PgDn", NULL, NULL, NULL,                                     \
      "a page down", NULL), NULL, NULL, PAGE_ROWS)                                                                \
    M(FIRST, ('g', UI_KEY_HOME), ("g", NULL, NULL, NULL,                                                          \
      "first row", NULL), NULL, NULL, -ALL_ROWS)                                                                  \
    M(LAST, ('G', UI_KEY_END), ("G", NULL, NULL, NULL,                                                            \
      "last row", NULL), NULL, NULL, ALL_ROWS)                                                                    \
    X(BACK, (UI_KEY_ESC), ("Esc", NULL, NULL, NULL,                                                               \
      "one step back: what is open, the pane, the filter, the view", NULL), NULL, NULL, action_back)              \
    X(COMMAND, ('!'), ("!", NULL, NULL, "run a command",                                                          \
      "run any command: quantize, calibrate, report, compare, baseline ...",                                      \
      "qdyno help"), refuse_job, NULL, action_command)                                                            \
    X(PALETTE, (':'), (":", "palette", NULL, "palette",                                                           \
      "find any key, setting or command by a few letters of its name", "qdyno help"), NULL, NULL, action_palette) \
    X(MOUSE, ('@'), ("@", NULL, NULL, "mouse on or off",                                                          \
      "mouse on or off (off: the terminal selects text)", NULL), NULL, NULL, action_mouse)                        \
    R(THEME, ('~'), ("~", NULL, NULL, "next theme",                                                               \
      "the next theme", "qdyno dashboard --theme NAME"), NULL, NULL, REQUEST_NEXT_THEME)                          \
    R(SAVE, (','), (",", NULL, NULL, "save settings",                                                             \
      "save theme and mouse for the next start", NULL), NULL, NULL, REQUEST_SAVE_PREFERENCES)                     \
    R(REDRAW, (UI_CTRL('l')), ("Ctrl-L", NULL, NULL, "redraw",                                                    \
      "draw everything again", NULL), NULL, NULL, REQUEST_REDRAW)                                                 \
    R(SUSPEND, (UI_CTRL('z')), ("Ctrl-Z", NULL, NULL, "suspend",                                                  \
      "return to the shell (fg continues)", NULL), NULL, NULL, REQUEST_SUSPEND)                                   \
    X(HELP, ('?', UI_KEY_F1), ("?", "help", NULL, "help",                                                         \
      "this list", "qdyno help"), NULL, NULL, action_help)                                                        \
    X(QUIT, ('q', UI_CTRL('c')), ("q", "quit", NULL, "quit",                                                      \
      "quit; asks while an experiment or a command runs", NULL), NULL, NULL, action_quit)
/* clang-format on */

#endif
