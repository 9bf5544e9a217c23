/* engine/serve/load_schedule.h - which request of a load is sent when, for whoever sends them: this engine
 * (load_run.c), or a client of a server (advisor/run). */
#ifndef QDYNO_ENGINE_LOAD_SCHEDULE_H
#define QDYNO_ENGINE_LOAD_SCHEDULE_H

#include "engine/serve/load.h"

struct load_due {
    double at_s;
    int request;
};
struct load_schedule {
    const struct load_plan *p;
    struct load_record *record; /* [n] borrowed: scheduled_s and outcome are written */
    struct load_due *due;       /* owned: [n] binary heap of requests with a known time, the next one first */
    int dues;
    int next; /* the first conversation that has no time yet: a client takes it next */
    int ended;
    double speed;         /* open loop: how many times as fast as planned requests come */
    int clients, leaving; /* closed loop: clients; of these, the ones that end with their request */
};

/* Prepares out->record and out->token_s for all requests of the plan. load_result_free also after an error.
 * ERR_NOMEM. */
enum err_code load_result_init(struct load_result *out, const struct load_plan *p, struct err *why);

/* ERR_NOMEM. load_schedule_done also after an error. */
enum err_code load_schedule_init(struct load_schedule *s, const struct load_plan *p,
                                 struct load_record *record, struct err *why);
void load_schedule_done(struct load_schedule *s);

/* Takes the next request whose time has come; -1: none. */
int load_schedule_take(struct load_schedule *s, double now_s);
/* When the next request comes; NAN: not before one that was sent has ended. */
double load_schedule_next_s(const struct load_schedule *s);
/* A request has ended at `at_s`: what follows it gets its time. True: its conversation is over. */
bool load_schedule_end(struct load_schedule *s, int i, enum load_outcome outcome, double at_s);
/* Requests come `by` times as fast from now on; in a closed loop there is one client more or less (struct
 * load_now). */
void load_schedule_change(struct load_schedule *s, double by, double now_s);

#endif
