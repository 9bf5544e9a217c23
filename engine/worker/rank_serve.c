/* A rank: executes what the process that started it asks for, together with the other ranks
 * (engine/parallel). */
#include "engine/worker/worker.h"

#include "engine/model/model.h"
#include "engine/parallel/parallel.h"
#include "engine/train/train.h"
#include "kernels/kernels.h"

static void serve_measure(struct rank *r)
{
    enum { BYTES = 256 << 20 };
    static const double SECONDS = 0.3;
    struct rank_links links;
    rank_join(r); /* all read at the same time, as they do when they run a model */
    const double rate = ceiling_read_bytes_s(&(struct ceiling_reading){ .threads = rank_threads(r) }, BYTES,
                                             SECONDS);
    rank_measure(r, rate, &links);
    rank_answer(r, NULL, &(struct rank_bytes){ &links, sizeof links }, 1);
}

enum err_code rank_serve(const char *socket, const struct machine_sensors *sensors, const struct log *log,
                         struct err *why)
{
    struct rank *r;
    struct rank_command c;
    struct model *m = NULL;
    struct train_rank *t = NULL;
    const enum err_code rc = rank_open(&r, socket, why);
    if (rc) return rc;
    if (sensors) rank_use_sensors(r, sensors);
    while (rank_next(r, &c) && c.op != RANK_OP_CLOSE) {
        if (c.op == RANK_OP_MEASURE)
            serve_measure(r);
        else if (t && c.op == RANK_OP_USAGE)
            rank_answer_usage(r, train_rank_plan_bytes(t), train_rank_weight_bytes(t));
        else if (!train_rank_execute(&t, r, &c))
            model_rank_execute(&m, r, &c, log);
    }
    train_rank_close(t);
    model_close(m);
    rank_close(r);
    return ERR_OK;
}
