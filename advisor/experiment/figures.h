/* advisor/experiment/figures.h - the figures of a result that are shown anywhere, each derived once: which
 * comparison and verdict count for an arm, what the change of the metric is, how fast an arm is. All pure.
 * Included by experiment.h.
 */
#ifndef QDYNO_ADVISOR_EXPERIMENT_FIGURES_H
#define QDYNO_ADVISOR_EXPERIMENT_FIGURES_H

/* Where a specification leaves them open. */
#define EXPERIMENT_MARGIN   0.01
#define EXPERIMENT_BUDGET_S 300

int experiment_arms(const struct experiment_spec *spec);                    /* at least 2 */
const struct metric *experiment_metric(const struct experiment_spec *spec); /* the compared one */
double experiment_margin(const struct experiment_spec *spec);               /* a ratio: 0.01 is 1 % */
double experiment_kld_margin(const struct experiment_spec *spec);           /* nats */

/* The comparison of a challenger (arm 1 or higher) with A. For a race's winner it is the confirmation,
 * because the other blocks chose it. */
const struct comparison *experiment_comparison(const struct experiment_state *s, int arm);
/* The comparison that the run's verdict is about. */
const struct comparison *experiment_headline(const struct experiment_state *s);
/* The verdict on a challenger; an invalid run is VERDICT_INVALID for every arm. */
enum verdict experiment_verdict(const struct experiment_state *s, int arm);

/* Effects are gains: log ratios to A, positive for better. Converts an effect and its bounds to the change of
 * the metric itself, also log ratios: where less is better, the sign turns and the bounds change places. */
struct interval experiment_change(const struct experiment_state *s, struct interval gain);
double experiment_change_of(const struct experiment_state *s, double gain); /* the same for one value */

/* What an arm reached of the compared metric, over its cells that count, with Student's t interval over
 * blocks at 95 %. NAN: not measured; bounds NAN: too few blocks. */
struct interval experiment_rate(const struct experiment_state *s, int arm);

/* The smallest effect, a log ratio, that `n` blocks whose effects vary by this standard deviation find with a
 * probability of 80 %; for normal noise. */
double experiment_detectable(double sd, int n);

#endif
