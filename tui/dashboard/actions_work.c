/* tui/dashboard/actions_work.c - work that another process of the program does: its line is shown, run and
 * cancelled; and what is sent to a server. */
#include "tui/dashboard/actions.h"

#include <string.h>

void actions_push_to(struct dashboard *d, const char *url)
{
    char command[800];
    struct job j = { .run = job_push, .id = ui_run_id(&d->ui, d->s) };
    job_put_text(&j, 0, url);
    snprintf(d->push_url, sizeof d->push_url, "%.255s", url);
    actions_put(d, d->network, &j);
    action_command(DO_PUSH, &d->ui, d->s, command, sizeof command);
    dashboard_toast(d, false, "$ %s", command);
}

void actions_do_push(struct dashboard *d)
{
    if (d->push_url[0])
        actions_push_to(d, d->push_url);
    else
        form_show(&d->ui.form, FORM_PUSH, (const char *const[FORM_FIELDS]){ "http://", NULL, NULL });
}

void actions_do_command(struct dashboard *d)
{
    form_show(&d->ui.form, FORM_COMMAND, NULL);
}

void actions_do_cancel(struct dashboard *d)
{
    const bool asked = background_cancel_command(d->background);
    dashboard_toast(d, !asked,
                    asked ? "cancelling: what it has made so far is kept"
                          : "the command has not begun yet: once more");
}

void actions_command_start(struct dashboard *d, const char *line, const char *makes, int show)
{
    struct job j = { .run = job_run_command, .id = show };
    job_put_text(&j, 0, line);
    job_put_text(&j, 1, d->ui.filter);
    job_put_text(&j, 2, makes);
    pthread_mutex_lock(&d->background->lock); /* at once, so that nothing is measured beside it */
    const bool queued = jobs_put(d->shell, &j);
    if (queued) {
        snprintf(d->background->known.command, sizeof d->background->known.command, "%.159s", line);
        d->background->known.command_started_ms = clock_unix_ms();
    }
    pthread_mutex_unlock(&d->background->lock);
    if (!queued) {
        dashboard_toast(d, true, "%s", ACTIONS_BUSY);
        return;
    }
    char command[sizeof j.text[0] + 16];
    snprintf(command, sizeof command, "qdyno %s", line);
    actions_say_command(d, command);
}
