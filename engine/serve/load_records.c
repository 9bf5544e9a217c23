/* The requests of a load as JSON, and as counts for screens (load.h). */
#include <math.h>
#include <stddef.h>

#include "engine/serve/load_schedule.h"

enum record_kind { RECORD_SECONDS, RECORD_COUNT, RECORD_OUTCOME };
static const struct {
    const char *key;
    enum record_kind kind;
    size_t offset;
} RECORD[] = {
    { "scheduled_s", RECORD_SECONDS, offsetof(struct load_record, scheduled_s) },
    { "sent_s", RECORD_SECONDS, offsetof(struct load_record, sent_s) },
    { "admitted_s", RECORD_SECONDS, offsetof(struct load_record, admitted_s) },
    { "first_s", RECORD_SECONDS, offsetof(struct load_record, first_s) },
    { "end_s", RECORD_SECONDS, offsetof(struct load_record, end_s) },
    { "prompt", RECORD_COUNT, offsetof(struct load_record, prompt) },
    { "cached", RECORD_COUNT, offsetof(struct load_record, cached) },
    { "tokens", RECORD_COUNT, offsetof(struct load_record, tokens) },
    { "preemptions", RECORD_COUNT, offsetof(struct load_record, preemptions) },
    { "outcome", RECORD_OUTCOME, 0 },
};

static json_t *record_value(const struct load_record *r, enum record_kind kind, size_t offset)
{
    const char *at = (const char *)r + offset;
    if (kind == RECORD_SECONDS) return json_num(*(const double *)(const void *)at);
    if (kind == RECORD_COUNT) {
        const int count = *(const int *)(const void *)at;
        return count < 0 ? json_null() : json_integer(count);
    }
    return json_string(LOAD_OUTCOME_NAMES[r->outcome]);
}

json_t *load_records_to_json(const struct load_result *r, const struct load_plan *p)
{
    bool classes = false;
    json_t *o = json_object();
    for (size_t k = 0; k < COUNT_OF(RECORD); k++) {
        json_t *list = json_array();
        for (int i = 0; i < r->n; i++)
            json_array_append_new(list, record_value(&r->record[i], RECORD[k].kind, RECORD[k].offset));
        json_put(o, RECORD[k].key, list);
    }
    for (int i = 0; i < p->n; i++) classes |= p->request[i].class >= 0;
    if (classes) {
        json_t *list = json_array();
        for (int i = 0; i < p->n; i++)
            json_array_append_new(list,
                                  p->request[i].class < 0 ? json_null() : json_integer(p->request[i].class));
        json_put(o, "class", list);
    }
    json_t *times = json_array();
    for (int i = 0; i < r->n; i++)
        for (int t = 0; t < r->record[i].tokens; t++)
            json_array_append_new(times, json_num(r->token_s[r->record[i].token + t]));
    json_put(o, "token_s", times);
    return o;
}

void live_end_add(struct live *l, const struct load_record *record, const double *token_s,
                  enum load_outcome outcome, double *scratch)
{
    struct request_times t = { .arrived_s = record->scheduled_s,
                               .admitted_s = record->admitted_s,
                               .first_s = record->first_s,
                               .last_s = record->end_s,
                               .tokens = record->tokens,
                               .gap_s = scratch,
                               .gaps = MAX(record->tokens - 1, 0) };
    const double *at = token_s + record->token;
    for (int k = 0; k < t.gaps; k++) scratch[k] = at[k + 1] - at[k];
    l->done += outcome == LOAD_DONE;
    l->not_done += outcome != LOAD_DONE;
    if (!l->limits) return;
    if (outcome == LOAD_DONE && !limits_are_known(l->limit, l->limits, &t))
        return; /* neither met nor missed */
    if (outcome == LOAD_DONE && limits_are_met(l->limit, l->limits, &t))
        l->met++;
    else
        l->missed++;
}
