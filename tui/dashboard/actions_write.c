/* tui/dashboard/actions_write.c - two configurations continue a prompt: begin, watch, stop. */
#include "tui/dashboard/actions.h"

#include <string.h>

#include "advisor/experiment/experiment.h"

enum { WRITE_TOKENS = 200 };

bool dashboard_is_writing(const struct dashboard *d)
{
    return d->write && !sidebyside_finished(d->write);
}

void actions_do_write(struct dashboard *d)
{
    const struct snapshot *s = d->s;
    const struct dashboard_options *o = d->options;
    const char *first = s->write_known        ? s->write.arm[0].line
                        : s->experiment_known ? s->experiment.arm[0].line
                        : o->arms[0]          ? o->arms[0]
                                              : "default";
    const char *second = s->write_known        ? s->write.arm[1].line
                         : s->experiment_known ? s->experiment.arm[1].line
                         : o->arms[1]          ? o->arms[1]
                                               : "q4_0";
    const char *prompt = s->write_known ? s->write.prompt : "One day";
    form_show(
        &d->ui.form, FORM_WRITE,
        (const char *const[FORM_FIELDS]){ prompt, *first ? first : "default", *second ? second : "default" });
    d->ui.view = VIEW_WRITE;
}

/* The form has checked all of it. */
static enum err_code spec_of_form(struct sidebyside_spec *spec, const struct dashboard *d, struct err *why)
{
    const struct form *f = &d->ui.form;
    *spec = (struct sidebyside_spec){ .model = d->s->model_path,
                                      .prompt = f->field[0].text,
                                      .tokens = WRITE_TOKENS,
                                      .log = &d->background->log };
    enum err_code rc = ERR_OK;
    for (int i = 0; i < SIDEBYSIDE_ARMS && !rc; i++) {
        const char *line = f->field[1 + i].text;
        rc = config_parse(&spec->config[i], strcmp(line, "default") ? line : "", why);
    }
    return rc;
}

void actions_write_start(struct dashboard *d)
{
    struct err why = { 0 };
    struct sidebyside_spec spec;
    char command[1600];
    action_command(DO_WRITE, &d->ui, d->s, command, sizeof command);
    enum err_code rc = spec_of_form(&spec, d, &why);
    sidebyside_close(d->write); /* has finished: refused otherwise */
    d->write = NULL;
    if (!rc) rc = sidebyside_start(&d->write, &spec, &why);
    if (rc) {
        dashboard_toast(d, true, "%s", why.message);
        return;
    }
    background_log(d->background, LOG_INFO, "$ %s", command);
    dashboard_toast(d, false, "$ %s", command);
}

/* Every frame. */
void dashboard_collect_write(struct dashboard *d)
{
    d->s->write_known = d->write != NULL;
    if (d->write) sidebyside_state(d->write, &d->s->write);
}
