/* tui/dashboard/queue.h - the queue of jobs that wait for what runs. Internal to the dashboard. */
#ifndef QDYNO_TUI_QUEUE_H
#define QDYNO_TUI_QUEUE_H

#include "tui/dashboard/loop.h"

/* Keep an effect that starts an experiment or a command until nothing else runs. False: it can start now, it
 * starts nothing, or the queue is full. */
bool queue_takes(struct dashboard *d, const struct effect *e);
/* Move, remove and restore jobs. */
void queue_requests(struct dashboard *d, const struct effect *e);
/* Write the queue into the snapshot. */
void queue_publish(const struct dashboard *d, struct snapshot *s);

#endif
