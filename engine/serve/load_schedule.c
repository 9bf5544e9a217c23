/* The times of a load's requests (load_schedule.h). */
#include "engine/serve/load_schedule.h"

#include <math.h>
#include <stdlib.h>

enum err_code load_result_init(struct load_result *out, const struct load_plan *p, struct err *why)
{
    int64_t tokens = 0;
    *out = (struct load_result){ .n = p->n };
    for (int i = 0; i < p->n; i++) tokens += p->request[i].generate;
    out->record = calloc((size_t)p->n, sizeof *out->record);
    out->token_s = malloc((size_t)tokens * sizeof *out->token_s);
    if (!out->record || !out->token_s) return err_set(why, ERR_NOMEM, "out of memory for %d requests", p->n);
    tokens = 0;
    for (int i = 0; i < p->n; i++) {
        out->record[i] = (struct load_record){ NAN, NAN, NAN, NAN, NAN, .token = tokens };
        tokens += p->request[i].generate;
    }
    return ERR_OK;
}

/* ---------------------------------------------------------------- the heap */

static bool due_before(const struct load_due *a, const struct load_due *b)
{
    return a->at_s < b->at_s || (a->at_s == b->at_s && a->request < b->request);
}

static void due_push(struct load_schedule *s, int request, double at_s)
{
    int i = s->dues++;
    const struct load_due d = { at_s, request };
    for (; i > 0 && due_before(&d, &s->due[(i - 1) / 2]); i = (i - 1) / 2) s->due[i] = s->due[(i - 1) / 2];
    s->due[i] = d;
    s->record[request].scheduled_s = at_s;
}

static int due_pop(struct load_schedule *s)
{
    const int first = s->due[0].request;
    const struct load_due d = s->due[--s->dues];
    int i = 0;
    for (int child; (child = 2 * i + 1) < s->dues; i = child) {
        if (child + 1 < s->dues && due_before(&s->due[child + 1], &s->due[child])) child++;
        if (!due_before(&s->due[child], &d)) break;
        s->due[i] = s->due[child];
    }
    s->due[i] = d;
    return first;
}

/* ---------------------------------------------------------------- the schedule */

enum err_code load_schedule_init(struct load_schedule *s, const struct load_plan *p,
                                 struct load_record *record, struct err *why)
{
    *s = (struct load_schedule){ .p = p, .record = record, .speed = 1, .clients = p->clients };
    s->due = malloc((size_t)p->n * sizeof *s->due);
    if (!s->due) return err_set(why, ERR_NOMEM, "out of memory for the times of %d requests", p->n);
    for (int c = 0; c < p->conversations; c++) {
        const double at_s = p->request[c * p->turns].arrival_s;
        if (isnan(at_s)) break;
        due_push(s, c * p->turns, at_s);
        s->next = c + 1;
    }
    return ERR_OK;
}

void load_schedule_done(struct load_schedule *s)
{
    free(s->due);
    s->due = NULL;
}

int load_schedule_take(struct load_schedule *s, double now_s)
{
    return s->dues && s->due[0].at_s <= now_s ? due_pop(s) : -1;
}

double load_schedule_next_s(const struct load_schedule *s)
{
    return s->dues ? s->due[0].at_s : (double)NAN;
}

/* The client of an ended conversation begins the next one that has no time. */
static void client_goes_on(struct load_schedule *s, double at_s)
{
    if (s->next == s->p->conversations) return;
    if (s->leaving) {
        s->leaving--;
        s->clients--;
        return;
    }
    const int i = s->next++ * s->p->turns;
    due_push(s, i, at_s + s->p->request[i].think_s / s->speed);
}

bool load_schedule_end(struct load_schedule *s, int i, enum load_outcome outcome, double at_s)
{
    const struct load_request *q = &s->p->request[i];
    s->record[i].outcome = outcome;
    s->ended++;
    if (outcome == LOAD_DONE && q->turn + 1 < s->p->turns) {
        due_push(s, i + 1, at_s + s->p->request[i + 1].think_s / s->speed);
        return false;
    }
    for (int k = q->turn + 1; k < s->p->turns; k++, s->ended++)
        s->record[i + k - q->turn].outcome = LOAD_NOT_SENT;
    client_goes_on(s, at_s);
    return true;
}

void load_schedule_change(struct load_schedule *s, double by, double now_s)
{
    if (s->p->clients) {
        if (by < 1) {
            s->leaving += s->clients - s->leaving > 1;
        } else if (s->leaving) {
            s->leaving--;
        } else if (s->next < s->p->conversations) {
            client_goes_on(s, now_s);
            s->clients++;
        }
        return;
    }
    s->speed *= by;
    for (int i = 0; i < s->dues; i++) { /* the heap keeps its order */
        if (s->due[i].at_s <= now_s) continue;
        s->due[i].at_s = now_s + (s->due[i].at_s - now_s) / by;
        s->record[s->due[i].request].scheduled_s = s->due[i].at_s;
    }
}
