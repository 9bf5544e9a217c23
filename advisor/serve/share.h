/* advisor/serve/share.h - internal: the figures of a server that consists of several processes.
 *
 * Every process writes its figures to a slot of shared memory and reads those of all others, so any of them
 * can answer for the whole server. A slot outlives its process: the counters of the next process in a slot
 * begin where those of the last one ended, so no counter of the server ever decreases. */
#ifndef QDYNO_ADVISOR_SERVE_SHARE_H
#define QDYNO_ADVISOR_SERVE_SHARE_H

#include "advisor/serve/serve.h"
#include "engine/serve/serve.h"

/* Figures of one process, or sums over several. Every member consists of words of 8 bytes: see FIGURES in
 * share.c. */
struct serve_figures {
    int64_t outcome[SERVE_OUTCOMES], accepted;
    int64_t met, missed; /* requests within the limits of goodput, and not */
    int64_t prompt_tokens, cached_tokens, generated_tokens, steps, rows, preemptions, stalls;
    double busy_s; /* in steps */
    struct histogram_counts queue, first_token, token, duration;
    struct live_times first, gap;
    /* gauges: of the process that runs now */
    int64_t waiting, running, blocks, blocks_used, blocks_cached, blocks_free;
};

/* Adds *more to *sum. */
void figures_add(struct serve_figures *sum, const struct serve_figures *more);
/* Sets all gauges to 0. */
void figures_clear_gauges(struct serve_figures *f);

/* Publishes the figures of a slot. One caller at a time. A reader gets the figures of one call, never a
 * mixture of two; if the process is killed meanwhile, those of the call before. */
void share_publish(struct share *sh, int slot, const struct serve_figures *f);
/* The figures that were last published for a slot. */
void share_slot_read(struct share *sh, int slot, struct serve_figures *out);
/* Sums over all slots. */
void share_sum(struct share *sh, struct serve_figures *out);

/* The process of a slot answers requests from now on. sequences: requests that it computes at a time; bytes:
 * memory that its plan needs. */
void share_ready(struct share *sh, int slot, int sequences, int64_t bytes);
/* Is there another process that answers requests, and has fewer of them open than `open` and than it computes
 * at a time? */
bool share_other_has_room(struct share *sh, int slot, int64_t open);
int share_processes(struct share *sh); /* that answer requests */
int64_t share_change_count(struct share *sh, enum scale_change change);

#endif
