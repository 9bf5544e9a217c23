/* tests/tui/fixture.h - snapshots that never change: what golden screens and size tests are drawn from. */
#ifndef QDYNO_TESTS_TUI_FIXTURE_H
#define QDYNO_TESTS_TUI_FIXTURE_H

#include "advisor/experiment/experiment.h"
#include "tui/frame/frame.h"

/* Locale and time zone of golden files. */
void fixture_environment(void);

/* "qdyno " and this line as words; they live until the test ends. */
struct words fixture_words(const char *line);
/* Words as a line; the equivalent command of an action, of the screen. Valid until the next call. */
const char *line_of(const struct words *w);
const char *command_of(enum action action, const struct ui *u, const struct snapshot *s);
const char *command_of_screen(const struct ui *u, const struct snapshot *s);

/* owned: free(). */
struct snapshot *fixture_empty(void);   /* the first frame: nothing known yet */
struct snapshot *fixture_idle(void);    /* machine, model and sensors, nothing ever run */
struct snapshot *fixture_gpu(void);     /* the same with a device, power and temperatures */
struct snapshot *fixture_running(void); /* an A/B in its 8th block, advice, history, log */
struct snapshot *fixture_done(enum verdict verdict);
struct snapshot *fixture_arms(void); /* five of them: one leads, one was left out, quality is known of two */
struct snapshot *fixture_failed(void); /* arm B did not fit */
struct snapshot *fixture_ranks(void);  /* A has two processes, B four on two machines */

struct snapshot *fixture_home(void);   /* nothing ran since the start: what the database remembers */
struct snapshot *fixture_stored(void); /* a run of another day was opened */

struct snapshot *fixture_tune(void);         /* a search in its race */
struct snapshot *fixture_tune_confirm(void); /* the same in its confirmation */
struct snapshot *fixture_tune_won(void);     /* its winner is applied */
struct snapshot *fixture_tune_stopped(void); /* stopped by the person; can be resumed */
struct snapshot *fixture_tune_killed(void);  /* an earlier one was interrupted; nothing runs */

struct snapshot *fixture_load(void);   /* an A/B whose arm B serves a load: some wait, some stalled */
struct snapshot *fixture_server(void); /* a server is watched */
struct snapshot *fixture_server_gone(void);

/* What was measured of the model over time: quality, sensitivity, requests; and how full the cache is. */
void fixture_measured(struct snapshot *s);
void fixture_measured_extreme(struct snapshot *s);
void fixture_ranks_extreme(struct snapshot *s);

/* Long words, many cores, huge numbers, wide and broken characters: what must not leave its box. */
struct snapshot *fixture_extreme(void);

#endif
