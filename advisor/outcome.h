/* advisor/outcome.h - a finished run, told to a Pushgateway; spooled when the network is down. */
#ifndef QDYNO_ADVISOR_OUTCOME_H
#define QDYNO_ADVISOR_OUTCOME_H

#include "db/db.h"
#include "telemetry/telemetry.h"
#include "advisor/experiment.h"

/* The exposition body of a run (names: docs/monitoring.md). free(). */
enum err_code outcome_exposition(char **out, struct db *d, int64_t run_id, const struct machine *machine,
                                 struct err *why);

/* PUT the run's outcome; grouping key job + experiment (stable name: model, arms and workload) + machine. On
 * ERR_ABSENT the body is spooled (*spooled true) and the error is still returned. target: url, auth and TLS;
 * job and grouping are filled here. */
enum err_code outcome_push(struct db *d, int64_t run_id, const struct machine *machine,
                           struct push_target *target, bool *spooled, struct err *why);

/* Try what is due in the spool; *sent counts. Back-off doubles from 30 s to 1 h. Secrets come from `auth`
 * (the spool has none). */
enum err_code outcome_flush(struct db *d, const struct push_target *auth, bool ignore_back_off, int *sent,
                            struct err *why);

#endif
