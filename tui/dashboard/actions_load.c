/* tui/dashboard/actions_load.c - keys that change the load or the server on screen while it runs. */
#include "tui/dashboard/actions.h"

#include <string.h>

/* A change of settings, of the rate, or both. by: requests come more (1) or less (-1) often, 0: as now. */
static struct effect load_change(struct ui *ui, const struct snapshot *s, const char *settings, int by,
                                 const char *what)
{
    struct effect e = effect_message(
        "%s%s", what, s->load_source == LOAD_OF_EXPERIMENT ? "; this block is measured again" : "");
    if (s->load_source == LOAD_OF_SERVER) {
        e.queue = QUEUE_NETWORK;
        e.job.run = job_change_server;
    } else {
        e.requests = REQUEST_CHANGE_LOAD;
    }
    e.job.other_id = by;
    e.job.text = arena_strdup(&ui->texts, settings);
    return e;
}

/* A server computes one request more or less at a time, because its clients decide how often they come. */
static struct effect server_parallel(struct ui *ui, const struct snapshot *s, int by)
{
    struct config c;
    struct err why = { 0 };
    char line[64], text[80];
    if (config_parse(&c, s->server.live.settings, &why)) return effect_error("%s", why.message);
    const int now = (int)config_int(&c, KNOB_MAX_SEQUENCES), wanted = now + by;
    if (wanted < 1 || wanted > s->server.max_sequences)
        return effect_error("%d requests at a time: expected 1 to %d, with which the server started", wanted,
                            s->server.max_sequences);
    snprintf(line, sizeof line, "%s=%d", KNOBS[KNOB_MAX_SEQUENCES].key, wanted);
    snprintf(text, sizeof text, "at most %d request%s at a time", wanted, str_plural(wanted));
    return load_change(ui, s, line, 0, text);
}

struct effect action_load_rate(struct ui *ui, const struct snapshot *s, int by)
{
    if (s->load_source == LOAD_OF_SERVER) return server_parallel(ui, s, by);
    if (s->experiment.live.clients)
        return load_change(ui, s, "", by, by > 0 ? "one client more" : "one client less");
    return load_change(ui, s, "", by,
                       by > 0 ? "requests come a quarter more often" : "requests come a fifth less often");
}

struct effect action_schedule(struct ui *ui, const struct snapshot *s)
{
    char line[64];
    snprintf(line, sizeof line, "%s=%s", KNOBS[KNOB_SCHEDULE].key,
             schedule_after(snapshot_live(s)->settings));
    return load_change(ui, s, line, 0, line);
}

struct effect action_load_setting(struct ui *ui, const struct snapshot *s)
{
    (void)s;
    form_show(&ui->form, FORM_LOAD, (const char *const[FORM_FIELDS]){ "evict=" });
    return effect_none();
}

struct effect action_change_load(struct ui *ui, const struct snapshot *s)
{
    struct config c;
    struct err why = { 0 };
    const char *line = ui->form.field[0].text;
    enum err_code rc = config_parse(&c, line, &why);
    if (!rc) rc = serving_keys_check(&c, &why);
    if (rc) return effect_error("%s", why.message);
    form_hide(&ui->form);
    return snapshot_live(s) ? load_change(ui, s, line, 0, line) : effect_error("the load has ended");
}
