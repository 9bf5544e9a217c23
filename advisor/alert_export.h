/* advisor/alert_export.h - the same alerts for those who have Prometheus and Grafana: a rule file and a
 * board, made from ALERTS and the exported families. What ships in share/monitoring/ is what these write. */
#ifndef QDYNO_ADVISOR_ALERT_EXPORT_H
#define QDYNO_ADVISOR_ALERT_EXPORT_H

#include "advisor/alert.h"
#include "base/base.h"

/* "QdynoMemoryCritical": what the alert is called in Prometheus and Alertmanager. Returns buf. */
const char *alert_prometheus_name(const struct alert *a, char *buf, size_t size);

/* The signal in PromQL, from exported families; NULL: Prometheus knows it in its own way. */
const char *signal_promql(enum signal_id s);

/* A rule file: recording rules, then an alerting rule for each row that is not off. */
void alert_rules_write(struct str *out, const struct alert_rules *r);

/* A board's JSON model: panels in rows, a variable for the data source and one for the instance. */
enum err_code board_write(struct str *out, struct err *why);
/* Every expression of the board, as it stands there; NULL past the last. */
const char *board_expression(int index);
/* The rules' own names that the board may use: "instance:qdyno_memory_used:ratio"; NULL past the last. */
const char *recorded_name(int index);

#endif
