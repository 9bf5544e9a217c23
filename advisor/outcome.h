/* advisor/outcome.h - a finished run as monitoring systems see it, told to a Pushgateway (spooled when the
 * network is down) or to whoever asks. */
#ifndef QDYNO_ADVISOR_OUTCOME_H
#define QDYNO_ADVISOR_OUTCOME_H

#include "db/db.h"
#include "telemetry/telemetry.h"
#include "advisor/experiment.h"

/* What a run concluded, in the units of FAMILIES_OUTCOME. NAN unknown. */
enum { OUTCOME_NAME = 1024, OUTCOMES_MAX = 16 };
struct outcome {
    int64_t run_id;
    /* Stable over runs: the same question (model, arms, metric, workload) on the same machine is the same
     * experiment. Files by their names, never their paths. */
    char experiment[OUTCOME_NAME], machine[16];
    char metric[48], workload[576];
    double effect, lower, upper; /* ratios B / A; NAN undecided yet */
    double confidence, blocks, discarded, noise_floor;
    double kld_mean, kld_p99;
    enum verdict verdict;
    double last_run, last_success, duration; /* Unix seconds, Unix seconds, seconds */
    int arms;
    struct {
        double joules_per_token, prefill_tok_s, decode_tok_s, ttft_s, peak_bytes;
        char model[128], arch[32], quant[16], recipe[160], sha256_8[9];
    } arm[EXPERIMENT_ARMS];
};
enum err_code outcome_load(struct outcome *out, struct db *d, int64_t run_id, struct err *why);

/* The newest finished run of every experiment, newest first, at most OUTCOMES_MAX; *n of them. What
 * out[0..*n) holds from the call before is taken over where it still stands: loading a run costs
 * milliseconds. */
enum err_code outcomes_latest(struct outcome out[OUTCOMES_MAX], int *n, struct db *d, struct err *why);

/* Hand them over, family by family. grouped: the experiment and the machine are labels of the group that is
 * pushed; else they are labels of every sample. */
enum outcome_labels { OUTCOME_IN_GROUP, OUTCOME_ALONE };
void outcomes_tell(const struct outcome *o, int n, enum outcome_labels labels, const struct family_sink *to);

/* The exposition body of a run (names: docs/monitoring.md). free(). */
enum err_code outcome_exposition(char **out, struct db *d, int64_t run_id, const struct machine *machine,
                                 struct err *why);

/* ---------------------------------------------------------------- pushing (outcome_push.c) */

/* PUT the run's outcome; grouping key job + experiment + machine. The body waits in the spool first, so
 * whatever happens on the way loses nothing: on ERR_ABSENT it stays there (*spooled true) and the error is
 * still returned; what is refused for good is taken out. One process sends at a time. target: url and auth;
 * job and grouping are filled here. Errors: those of http_send; ERR_FIT, ERR_IO when it cannot be spooled
 * (then nothing was sent: a group that we cannot note could never be pruned). */
enum err_code outcome_push(struct db *d, int64_t run_id, const struct machine *machine,
                           struct push_target *target, bool *spooled, struct err *why);

/* Try what is due in the spool; *sent counts. Back-off doubles from 30 s to 1 h. Secrets come from `auth`
 * (the spool has none). Another process at it: nothing is left to do here, and that is no error. */
enum err_code outcome_flush(struct db *d, const struct push_target *auth, bool ignore_back_off, int *sent,
                            struct err *why);

/* Groups that we pushed to the gateway of `target` and last pushed before `before_ms`: DELETE each, and
 * forget it. A group that is gone already is fine; what others pushed is never touched. dry_run: only say
 * which. `said` (may be NULL) is called for each of our groups there. Ends at the first error. */
enum prune_fate { PRUNE_KEPT, PRUNE_DELETED, PRUNE_WOULD };
typedef void prune_fn(void *ctx, const struct group_row *group, enum prune_fate fate);
struct prune_spec {
    int64_t before_ms;
    bool dry_run;
    prune_fn *said;
    void *ctx;
};
enum err_code outcome_prune(struct db *d, const struct push_target *target, const struct prune_spec *spec,
                            struct err *why);

#endif
