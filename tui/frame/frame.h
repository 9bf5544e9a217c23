/* tui/frame/frame.h - everything one frame of the dashboard is drawn from: the snapshot (facts about machine,
 * model and runs) and the ui (what the person selected and typed).
 *
 * Both are plain values. The functions here are pure: they answer questions about a frame, for example which
 * row is selected, whether an action is possible now, and which command line does the same. Views draw a
 * frame, actions change the ui, and background jobs fill the snapshot.
 *
 * Sections (results of one model: stored_results.h; summary of a model file: model_summary.h; a search:
 * tune_watch.h): text pages, the snapshot, lists, the ui, questions. */
#ifndef QDYNO_TUI_FRAME_H
#define QDYNO_TUI_FRAME_H

#include "advisor/advise/advise.h"
#include "advisor/experiment/experiment.h"
#include "advisor/predict/predict.h"
#include "advisor/sidebyside/sidebyside.h"
#include "advisor/stats/stats.h"
#include "advisor/tune/tune.h"
#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/eval/eval.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "telemetry/export/export.h"
#include "telemetry/machine/machine.h"
#include "telemetry/metrics/metrics.h"
#include "telemetry/probe/probe.h"
#include "tui/forms/forms.h"
#include "tui/frame/levels.h"
#include "tui/frame/load_watch.h"
#include "tui/frame/model_summary.h"
#include "tui/frame/stored_results.h"
#include "tui/frame/tune_watch.h"
#include "tui/widgets/widgets.h"

/* ---------------------------------------------------------------- text pages (text_page.c) */

/* Text shown over a view and scrolled by the person: the output of a command, or two runs compared. */

enum { PAGE_LINES = 240, PAGE_TEXT = 1000 };

enum page_tone { PAGE_PLAIN, PAGE_HEAD, PAGE_DIM, PAGE_GOOD, PAGE_BAD, PAGE_UNSURE };

struct text_page {
    int64_t number; /* every new page has a new number; 0: none yet */
    bool opens;     /* the dashboard opens it at once; otherwise it waits for key o */
    char title[200];
    int count, left_out; /* left_out: lines beyond PAGE_LINES */
    struct page_line {
        enum page_tone tone;
        char text[PAGE_TEXT]; /* UTF-8 */
    } line[PAGE_LINES];
};

/* Append one line. One that is longer than PAGE_TEXT ends with "…". */
void text_page_put(struct text_page *p, enum page_tone tone, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

int text_page_columns(const struct text_page *p); /* columns of the widest line */

/* The page laid out for a width (page_fit.c): tables of Markdown, as commands print them into a pipe, become
 * columns, or one line for each figure where these are too wide; other lines are wrapped. */
void text_page_fit(struct text_page *out, const struct text_page *page, int columns);

/* ---------------------------------------------------------------- the snapshot (snapshot.c) */

enum {
    SNAPSHOT_HISTORY = 256,
    SNAPSHOT_STEP_MS = 500, /* between two values of a series */
    SNAPSHOT_CORES = 256,
    SNAPSHOT_LOG = 128,
    SNAPSHOT_ADVICE = 8,
    SNAPSHOT_RUNS = 64,
};

struct series { /* newest last; NAN = no value at that time */
    int n;
    float v[SNAPSHOT_HISTORY];
};

/* What came and went in a load or server, a value each SNAPSHOT_STEP_MS. */
struct load_traffic {
    struct series arrivals, tokens; /* per second */
    struct series waiting, running; /* requests */
};

struct log_line {
    int64_t unix_ms;
    enum log_level level;
    bool disturbed; /* it says what disturbed a block */
    char text[400];
};

struct run_line { /* one row of the history */
    int64_t id, started_ms;
    char kind[16], state[16], verdict[16];
    char label[RUN_LABEL], model[128], workload[WORKLOAD_LINE];
    char metric[32];
    double effect_ratio; /* B/A, NAN unknown */
};

/* A run of the model on screen, with its result in one sentence. */
enum { RECENT_RUNS = 3 };
struct recent_run {
    struct run_line line;
    char text[480];
};

/* A job that runs, or that waits for the ones before it. */
enum { QUEUED_JOBS = 12 };
struct queued_job {
    int64_t id; /* 0: it runs now */
    struct words command;
    int64_t run_id;   /* 0: not stored yet, or none */
    int64_t since_ms; /* unix time when it was queued, or began */
};

/* Progress of a running command, from a line it wrote under --progress=json. */
struct task_progress {
    double done, rate, left_s; /* done: 0..1; NAN unknown */
    char unit[24], text[120];
};

/* The facts of one frame. The drawing thread writes the first part, and it stays from frame to frame. The two
 * parts from `command` and from `machine_known` on are what background jobs know, each copied when a job has
 * changed it: the first one, which changes often, is small. */
struct snapshot {
    int64_t unix_ms;
    double sensor[METRIC_SENSOR_COUNT];
    int cores;
    double core_busy[SNAPSHOT_CORES];
    struct series cpu, memory, gpu, decode, prefill;
    double own_cost_ratio; /* CPU time of UI and sampler as a share of one core; NAN unknown */
    bool experiment_known;
    bool experiment_live; /* a command of this dashboard measures it, or has; otherwise it is a stored one */
    struct experiment_state experiment;
    bool write_known; /* a side-by-side continuation runs or has run */
    struct sidebyside_state write;
    enum load_source load_source; /* what the load view shows instead of stored results */
    struct load_traffic traffic;  /* of load_source */
    int queued;                   /* waiting jobs, the next one first */
    struct queued_job queue[QUEUED_JOBS];
    bool queue_restorable; /* u puts the job back that was removed last */

    /* what changes while something runs */
    struct words command;       /* that runs in the background; n 0: none. Lives as long as the dashboard */
    int64_t command_started_ms; /* unix time */
    bool experiment_starting;   /* it measures an experiment, and has not reported yet */
    bool task_known;            /* it has reported progress */
    bool task_cancelled;        /* it was asked to stop */
    struct task_progress task;
    struct tune_watch tune; /* the search that runs, or the last one */
    struct server_watch server;
    int log_count;
    struct log_line log[SNAPSHOT_LOG]; /* oldest first */
    struct busy_state busy;
    int spool_count; /* pushes waiting for the network, -1 unknown */
    bool pushing;

    bool machine_known; /* false until the background has detected the machine */
    struct machine machine;
    struct machine_ceilings ceilings;
    bool ceilings_known;
    char model_path[MODEL_PATH];
    struct model_shape model; /* arch "" when there is none or it cannot be read */
    char model_error[256];
    struct model_summary summary; /* groups 0: none */
    double decode_limit[EXPERIMENT_ARMS],
        prefill_limit[EXPERIMENT_ARMS]; /* roofline limits of this machine in tokens/s, NAN unknown */
    int advice_count;
    struct advice advice[SNAPSHOT_ADVICE];
    /* Advice whose rate is hardly known: the last row stands for all of it and is the best-ranked of it. 0:
     * the last row is like the others. */
    int advice_folded;
    char advice_state[96]; /* what is computed; "" when idle */
    char advice_error[256];
    int run_count; /* -1: not read yet */
    struct run_line run[SNAPSHOT_RUNS];
    char run_filter[FILTER_TEXT]; /* the filter with which they were read */
    char run_error[256];
    struct quality_results quality;
    struct sensitivity sensitivity;
    struct load_results load;
    struct stopped_run stopped_tune, stopped_ab; /* the newest ones, if they can be continued; the A/B of this
                                                  * model and machine */
    int recent_count; /* last runs of this model on this machine, the newest first */
    struct recent_run recent[RECENT_RUNS];
    struct setting_effects effects; /* of settings on this model and machine */
    struct text_page page;          /* the newest one */
    /* the file quantized last here, its source, and its recipe as a config line of the source; "" none */
    char written[MODEL_PATH], written_from[MODEL_PATH], written_recipe[CONFIG_LINE];
    char applied[CONFIG_LINE];                   /* the config line applied to the model, "" none */
    char applied_when[32], applied_because[256]; /* "" unknown */
    char applied_load[160]; /* what other programs did to the machine when it was found, "" nothing */
    /* data for the suggestions of forms */
    struct recipe_list recipes; /* for the model */
    struct folder folder;       /* the one a form asked for last */
    struct baseline_list baselines;
    struct line_estimates estimates;
    struct form_checked checked;
    uint64_t forecast_of;                /* form_hash() of the texts of the forecast; 0: none yet */
    struct experiment_forecast forecast; /* what the budget in the form of an A/B gives */
    struct proposals proposals;          /* for the model */
};

/* Share of a limit that is used. At 1 or above the weights came from a cache and not from memory. NAN
 * unknown. */
double snapshot_limit_share(double rate, double limit);

/* What holds for all figures of the model, or of the model of the experiment: its weights are random, or
 * parts of its file are unknown. NULL: nothing. */
const char *snapshot_caution(const struct snapshot *s);
extern const char RANDOM_WEIGHTS_TEXT[];

/* The decode rate of a config line on the model, with its interval, in tokens/s; NAN unknown. Every view
 * takes it from here, so that no two screens show different figures for one configuration: the advice, where
 * it lists the line, otherwise the estimate made for the form. runs (may be NULL): of how many earlier runs
 * it was measured; 0: it is a prediction. */
struct interval snapshot_decode_rate(const struct snapshot *s, const char *line, int *runs);
/* The same of a row of the advice: one on a GPU may have the line of another row. */
struct interval advice_decode_rate(const struct advice *a, int *runs);

/* On a busy machine one block after the other is disturbed: such messages in a row become one, with their
 * number, so that they do not hide the others. */
void snapshot_fold_log(struct snapshot *s);

/* Does this row of the advice stand for all configurations that hardly anything is known about? */
bool snapshot_is_folded(const struct snapshot *s, int row);

/* A cell is being timed: drawing has to use as little CPU as possible. */
bool snapshot_is_timing(const struct snapshot *s);

/* A command of this dashboard measures an experiment: it is loading, in its A/A control or in its blocks. */
bool snapshot_is_running(const struct snapshot *s);

/* The experiment waits for a quiet machine before its first measurement. */
bool snapshot_waits_quiet(const struct snapshot *s);

/* What runs now, as a job; false: nothing does. */
bool snapshot_running_job(const struct snapshot *s, struct queued_job *out);

/* The load or server that runs now; NULL with LOAD_OF_NONE. */
const struct live *snapshot_live(const struct snapshot *s);
/* The load is one of this program, sent over HTTP to a server: only its requests are known, and the settings
 * of the server cannot be changed. */
bool snapshot_load_is_remote(const struct snapshot *s);
/* The KV cache on screen: of that load or server, otherwise of the experiment. NULL: unknown. */
const struct occupancy *snapshot_occupancy(const struct snapshot *s);

/* Append one value; the oldest is dropped when the series is full. */
void series_push(struct series *s, double v);

/* ---------------------------------------------------------------- lists (list.c, list_columns.c)
 */

/* What all lists of the dashboard have in common: a filter, a sorted column, a selected row, details of a
 * row. A list is a row of LISTS; views draw it with list_draw() (tui/views/). An *item* is an index into the
 * snapshot's array; a *row* is a position on the screen, after filtering and sorting. */

/* A state as a mark, a word and a colour role, so that colour is never the only carrier. */
struct mark {
    const char *glyph, *word;
    enum role role;
};

struct ui;
enum { LIST_COLUMNS = 12, LIST_ROWS = 192, LIST_FILTER = FILTER_TEXT, LIST_CELL = 400 };

/* What a person did to one list. */
struct list_state {
    char filter[LIST_FILTER]; /* TEXT: rows that contain it; !TEXT: rows that do not; "" all rows */
    int sort;                 /* column + 1; 0: the list's own order */
    bool reversed;
    bool moved;  /* the person selected a row; until then a list of events follows its newest one */
    int64_t key; /* the selected item, and the row it was in when that was noted */
    int key_row; /* -1 after a change of filter or order: find the item again */
    bool key_known;
};

struct list_column {
    const char *title; /* "" for a column that is not sorted by */
    int width;         /* in columns of the screen; 0: what the others leave */
    int gap;           /* blanks before it */
    int from, until;   /* shown where the list is at least, and less than, this wide; 0: always */
    int fit;           /* the column grows to its longest text, up to this width; 0: it does not */
    bool right;        /* its text ends at its right edge */
    struct {
        int from, width; /* other widths where the list is at least this wide; 0: none */
    } wide[2];
    const char *(*text)(const struct ui *u, const struct snapshot *s, int item, char *buf, size_t size);
    double (*value)(const struct snapshot *s, int item); /* sorts largest first; NULL: sorts by text */
    unsigned (*style)(const struct ui *u, const struct snapshot *s, int item); /* NULL: ROLE_TEXT */
    bool (*hidden)(const struct snapshot *s);                                  /* NULL: never */
    bool config; /* config lines: what all rows have in common gives way first */
};

struct list {
    const char *items; /* plural: "runs" */
    int (*count)(const struct snapshot *s);
    int64_t (*key)(const struct snapshot *s, int item);  /* identity of an item; NULL: its index */
    bool (*holds)(const char *filter, const char *text); /* does a row pass? NULL: list_filter_holds */
    bool newest_last;                                    /* starts at the last row and follows new ones */
    struct list_column column[LIST_COLUMNS + 1];         /* the last one has title NULL */
};
extern const struct list LISTS[]; /* by enum view; items NULL: the view has no list */

int list_columns(const struct list *l);

/* "", or rows whose text contains it, ignoring case; "!..." rows whose text does not. */
bool list_filter_holds(const char *filter, const char *text);

/* The filter in effect in the list on screen, typed or applied; "" none. */
const char *list_filter(const struct ui *u);

/* Items in the order of the rows on screen. Returns the number of rows. */
int list_order(const struct ui *u, const struct snapshot *s, int items[LIST_ROWS]);

/* The item of the selected row; -1: none. */
int list_selected(const struct ui *u, const struct snapshot *s);

/* Sort by the next column that can be sorted by, then by none again; or by a column: again reverses it.
 * Return the title of the column, "" for the list's own order. */
const char *list_sort_next(struct ui *u);
const char *list_sort_by(struct ui *u, int column);

/* The state of a run as mark, word and colour. */
struct mark run_mark(const struct run_line *r);

/* Values of a key of config lines: the one an arm resolved (before that the requested one), the one that is
 * applied to the model, otherwise the default. knob_range(): "0 to 1024 threads", or the choices. */
const char *knob_arm(const struct snapshot *s, int arm, enum knob_id id);
/* What the setting does to the decode rate of the model on screen, from its newest A/B that changed only this
 * one and reached a verdict ("threads=2: +12 %, run 7"), else as predicted by the advice, else "n/a". */
const char *knob_effect(const struct snapshot *s, enum knob_id id, char *buf, size_t size);
/* The setting of a row of the list of settings that qdyno lacks; NULL: the row is a key. */
const struct knob_name *knob_row_absent(int row);
const char *knob_applied(const struct snapshot *s, enum knob_id id, char *buf, size_t size);
const char *knob_range(enum knob_id id, char *buf, size_t size);
/* What is applied to the model, with these settings changed: "q8_0,threads=2" and "threads=4" are
 * "q8_0,threads=4". A setting at its default is left out. Errors: those of config_parse and config_check. */
enum err_code knob_changed_line(const struct snapshot *s, const char *settings, char *buf, size_t size,
                                struct err *why);

/* Everything known about the selected row, as a page. False: the view has no list, or it has no row. */
bool list_details(struct text_page *out, const struct ui *u, const struct snapshot *s);

/* What the focused field of the open form asks for, as a page (field_explained.c). False: no form is open. */
bool field_explained(struct text_page *out, const struct ui *u, const struct snapshot *s);
/* Whether "?" is a letter of such a field; in the others it explains them, as F1 does everywhere. */
bool field_takes_question_mark(enum form_ask ask);

/* ---------------------------------------------------------------- the ui (ui.c) */

enum view {
    VIEW_LIVE,
    VIEW_AB,
    VIEW_ADVICE,
    VIEW_HISTORY,
    VIEW_MODEL,
    VIEW_QUALITY,
    VIEW_LOAD,
    VIEW_SETTINGS,
    VIEW_LOG,
    VIEW_WRITE, /* key 0 */
    VIEW_TUNE,  /* key t */
    VIEW_JOBS,  /* key & */
    VIEW_COUNT
};

/* The panes of each view, in the order in which Tab visits them. */
enum live_pane { LIVE_MACHINE, LIVE_ENGINE, LIVE_AB, LIVE_ADVICE, LIVE_LOG, LIVE_PANES };
enum ab_pane { AB_ARMS, AB_EFFECT, AB_VERDICT, AB_RANKS, AB_PANES };
enum advice_pane { ADVICE_LIST, ADVICE_DETAILS, ADVICE_PARETO, ADVICE_QUALITY, ADVICE_PANES };
enum model_pane { MODEL_TENSORS, MODEL_MEMORY, MODEL_PANES };
enum quality_pane { QUALITY_METHODS, QUALITY_LAYERS, QUALITY_PANES };
enum load_pane { LOAD_REQUESTS, LOAD_LATENCY, LOAD_BLOCKS, LOAD_COMPUTE, LOAD_PANES };
enum settings_pane { SETTINGS_LIST, SETTINGS_DETAIL, SETTINGS_PANES };
enum tune_pane { TUNE_STATE, TUNE_LIST, TUNE_END, TUNE_PANES };
enum write_pane { WRITE_A, WRITE_B, WRITE_BOTH, WRITE_PANES };

/* The panes that a view has now: the last one of the A/B only exists while an arm has ranks. */
int pane_count(enum view view, const struct snapshot *s);
const char *pane_name(enum view view, int pane); /* "" when there is no such pane */

/* A command that cannot be undone and waits for a yes. */
struct question {
    char text[400]; /* "" none */
    struct words command;
};

enum { MARKED = 2, DELETED = 32, WAIT_QUIET_S = 600 };

/* What the person looks at and types. */
struct ui {
    enum view view;
    int selected[VIEW_COUNT]; /* row of the list as it is filtered and sorted */
    int pane[VIEW_COUNT];     /* the focused pane, counted from 1; 0: none */
    bool zoomed;              /* the focused pane fills the screen */
    bool details;             /* the A/B view explains the figures behind the verdict */
    bool explains; /* details of the selected row, or help for the field of a form, cover the view */
    int explains_row;
    int opened_from[VIEW_COUNT]; /* the view from which this one was opened, plus 1; Esc returns there */
    int64_t deleted[DELETED];    /* runs deleted here, the newest last: u restores them */
    int deleted_count;
    bool help;
    int help_scroll;
    bool confirm_quit;
    bool read_only;
    struct form form;
    const struct palette_command *commands; /* the command line's table, borrowed */
    int command_count;
    int palette_row; /* selected */
    bool mouse;
    char filter[FILTER_TEXT];           /* of the history, applied by the database */
    struct list_state list[VIEW_COUNT]; /* of each view's list */
    int64_t marked[MARKED];             /* run ids, the older mark first; 0: none */
    struct question question;
    bool page; /* the text page is open over the view */
    int page_row, page_column;
    char message[512]; /* in the status line; "" none */
    bool message_is_error;
    int64_t message_until_ms; /* unix time */
    enum busy_mode when_busy;
    bool until_quiet;                /* the experiment is paused until the machine is quiet */
    char push_url[FORM_TEXT];        /* address of the last push, "" none */
    const char *push_user, *push_ca; /* of the environment; NULL: not given */
    char made[FORM_TEXT];            /* the model file quantized last, "" none */
    struct arena texts; /* of the commands that were started or asked about: they share it until the end */
    const char *default_arm[2],
        *default_workload; /* of the command line, for the next A/B; NULL: not given */
    const char *db_path;   /* of the command line; NULL: a shell uses the same database without a flag */
};

/* Usage of the command typed into the form, or the names of commands that begin so. Returns buf. */
const char *ui_command_hint(const struct ui *u, char *buf, size_t size);

/* Whether the file quantized last belongs to the model on screen (as its result or its source), and view 6
 * does not show its quality yet. */
bool ui_written_unmeasured(const struct snapshot *s);

/* The question asked before quitting: it names what quitting would stop. */
const char *ui_quit_question(const struct snapshot *s);

/* Palette entries for the text typed into the palette; returns the count. */
enum { PALETTE_ROWS = 64 };
int ui_palette(const struct ui *u, struct palette_entry out[PALETTE_ROWS]);

/* Suggestions for the field that is typed into. */
void ui_suggestions(struct suggestions *out, const struct ui *u, const struct snapshot *s);
/* What suggestions for a form are made from, without commands; borrowed. */
struct suggestion_source snapshot_suggestion_source(const struct snapshot *s, const struct form *form);

/* Number of rows of the current view that can be selected, after filtering. */
int ui_rows(const struct ui *u, const struct snapshot *s);

/* Keep the selection on the item it was on, although rows came, went or moved; clamp it to the existing rows.
 */
void ui_clamp(struct ui *u, const struct snapshot *s);

/* The number of the mark on a run: 1 or 2; 0 none. */
int ui_mark(const struct ui *u, int64_t id);
/* The two runs to compare, the older first: the marked ones, or the marked and the selected one. False: there
 * are no two. */
bool ui_compared(const struct ui *u, const struct snapshot *s, int64_t id[MARKED]);

/* The selected row of the history, of the advice; NULL: none, or another view is on screen. */
const struct run_line *ui_run(const struct ui *u, const struct snapshot *s);
const struct advice *ui_advice(const struct ui *u, const struct snapshot *s);

/* The selected row of the queue; NULL: none, it runs already, or another view is on screen. */
const struct queued_job *ui_queued(const struct ui *u, const struct snapshot *s);
/* Why a new job has to wait; "" when it can start. A job that is started meanwhile is queued. */
const char *jobs_wait_for(const struct snapshot *s);

/* The run that key r continues: the selected one of the history, otherwise what was stopped on screen; 0:
 * none. *is_tune: it is a search, otherwise an experiment. */
int64_t ui_resumed_id(const struct ui *u, const struct snapshot *s, bool *is_tune);
/* Whether that run is an A/B that ended without a verdict: it continues with more time. */
bool ui_resumes_undecided(const struct ui *u, const struct snapshot *s);
/* Whether the candidate of the search on screen is the configuration that is applied to the model. */
bool tune_is_applied(const struct snapshot *s);
/* The style of a candidate: excluded, current, leading. */
unsigned tune_row_style(const struct tune_watch *t, int row);
/* Whether the person selected another candidate than the one that the search proposes: Enter shows it. */
bool tune_row_opened(const struct ui *u, const struct snapshot *s);
/* What a person can do about the search on screen, as one line. Returns buf. */
const char *tune_next_step(const struct snapshot *s, char *buf, size_t size);

/* The run that the keys p, e and B act on: the selected one of the history, the confirmation of a search,
 * otherwise the experiment on screen; 0: none. */
int64_t ui_run_id(const struct ui *u, const struct snapshot *s);

/* ---------------------------------------------------------------- state of an experiment (verdicts.c) */

struct mark verdict_mark(enum verdict v);
struct mark phase_mark(const struct snapshot *s); /* of the experiment on screen */

/* The challenger selected in the A/B view. */
int experiment_selected(const struct experiment_state *x, const struct ui *u);

/* ---------------------------------------------------------------- questions (refusals.c,
 * equivalent_command.c) */

/* Whether the command behind the open form accepts a field: what the field itself says, then the command's
 * own check. FIELD_CHECKING: not known yet. *why (may be NULL): the reason of FIELD_REFUSED, borrowed. */
enum field_state { FIELD_CHECKING, FIELD_GOOD, FIELD_REFUSED };
enum field_state form_field_state(const struct ui *u, const struct snapshot *s, int field, const char **why);

/* What the budget in the open form gives; NULL: not known yet, or the form starts no A/B. */
const struct experiment_forecast *form_forecast(const struct ui *u, const struct snapshot *s);
/* The field with the budget of the form; -1: it has none that a forecast is about. */
int form_budget_field(enum form_kind kind);

/* What FORM_AB or FORM_RESUME asks for, as far as its checks and its forecast need it: without the quality of
 * FORM_AB. Errors: those of the parsers, which the fields also show. */
enum err_code form_experiment(struct experiment_spec *out, const struct form *f, const char *model,
                              struct err *why);

/* A configuration that runs on the model and differs from `other` ("default", or a config line), for the next
 * A/B and for the commands on screen; proposed_method(): one whose answers differ. "threads=1", which runs on
 * any model, while the model is not read. Borrowed. */
const char *proposed_line(const struct snapshot *s, const char *other);
const char *proposed_method(const struct snapshot *s);

/* Why an action is impossible now, "" when it is possible. Shown when its key is pressed; the footer dims
 * impossible actions. */
const char *action_refusal(enum action action, const struct ui *u, const struct snapshot *s);

/* The view that an action shows, -1: none. */
int action_view(enum action action);

/* Whether it is impossible because the dashboard was started with --read-only: it never becomes possible. */
bool refused_by_read_only(enum action action, const struct ui *u, const struct snapshot *s);

/* The command that does the same as the action, with the values on screen; no words when there is none. The
 * others: as the experiment on screen; the memory of the contexts that view 5 shows, and the experts of a
 * text, for the model on screen; as what is on screen or typed into the form. */
void equivalent_command(struct words *out, enum action action, const struct ui *u, const struct snapshot *s);
void experiment_command(struct words *out, const struct snapshot *s);
/* The command that continues an A/B. */
void resume_command(struct words *out, const struct ui *u, int64_t id);
void memory_command(struct words *out, const struct snapshot *s);
void experts_command(struct words *out, const struct snapshot *s);
void screen_command(struct words *out, const struct ui *u, const struct snapshot *s);

/* Append a command of this dashboard as a person can run it in a shell: with the database that the dashboard
 * uses. Nothing for no words. */
void command_print(struct str *out, const struct ui *u, const struct words *command);
/* The same, and the command of the screen, for a row of the screen: cut where buf is full. Return buf. */
const char *command_shown(const struct ui *u, const struct words *command, char *buf, size_t size);
const char *screen_command_shown(const struct ui *u, const struct snapshot *s, char *buf, size_t size);

#endif
