/* tui/headless.c - what an action is called on the command line, with this screen's values: shown below every
 * view and form, told when it is done, and there to be copied. Pure functions of the frame. */
#include "tui/ui.h"

#include <string.h>

/* 'text' for a shell: quoted only where needed. */
static void shell_word(struct str *out, const char *text)
{
    if (*text &&
        !text[strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./,=:@+")]) {
        str_append(out, text);
        return;
    }
    str_append(out, "'");
    for (; *text; text++) {
        if (*text == '\'')
            str_append(out, "'\\''");
        else
            str_append_n(out, text, 1);
    }
    str_append(out, "'");
}

static void command_ab(struct str *out, const struct ui *u, const struct snapshot *s)
{
    const struct experiment_state *x = &s->experiment;
    char workload[600] = "tg64";
    const char *a = "default", *b = "q8_0";
    if (u->form.kind == FORM_AB) {
        a = u->form.field[0].text;
        b = u->form.field[1].text;
        snprintf(workload, sizeof workload, "%s", u->form.field[2].text);
    } else if (s->experiment_known) {
        a = x->arm[0].line;
        b = x->arm[1].line;
        workload_line(&x->spec.workload, workload, sizeof workload);
    }
    const char *model = s->experiment_known && u->form.kind != FORM_AB && x->spec.model[0] ? x->spec.model
                                                                                           : s->model_path;
    str_append(out, "qdyno ab");
    if (model[0]) {
        str_append(out, " -m ");
        shell_word(out, model);
    }
    str_append(out, " ");
    shell_word(out, a);
    str_append(out, " ");
    shell_word(out, b);
    str_append(out, " -w ");
    shell_word(out, workload);
}

static void command_push(struct str *out, const struct ui *u, const struct snapshot *s)
{
    str_printf(out, "qdyno push %lld --url ", (long long)ui_run_id(u, s));
    shell_word(out, u->form.kind == FORM_PUSH ? u->form.field[0].text : s->push_url[0] ? s->push_url : "URL");
}

static void command_open(struct str *out, const struct ui *u, const struct snapshot *s)
{
    const struct advice *a = ui_advice(u, s);
    if (u->view == VIEW_HISTORY)
        str_printf(out, "qdyno show %lld", (long long)ui_run_id(u, s));
    else if (a)
        str_append(out, a->check);
}

static void model_word(struct str *out, const struct snapshot *s)
{
    shell_word(out, s->model_path[0] ? s->model_path : "MODEL");
}

/* What measures the selected row again; before there is one, what makes the first. */
static void command_quality(struct str *out, const struct ui *u, const struct snapshot *s)
{
    const int i = u->selected[VIEW_QUALITY];
    const struct quality_line *q = i >= 0 && i < s->quality.count ? &s->quality.line[i] : NULL;
    str_append(out, "qdyno eval -m ");
    model_word(out, s);
    str_append(out, " -C ");
    shell_word(out, q ? q->config : "q4_0");
    str_append(out, " --ref ");
    shell_word(out, q ? q->reference : "default");
}

static void command_load(struct str *out, const struct ui *u, const struct snapshot *s)
{
    const int i = u->selected[VIEW_LOAD];
    str_append(out, "qdyno bench -m ");
    model_word(out, s);
    str_append(out, " -w ");
    shell_word(out, i >= 0 && i < s->load.lines ? s->load.line[i].workload : "pp128+tg64@b8");
}

const char *action_command(enum action action, const struct ui *u, const struct snapshot *s, char *buf,
                           size_t size)
{
    struct str out = { 0 };
    switch (action) {
    case DO_NEW_AB: command_ab(&out, u, s); break;
    case DO_PUSH: command_push(&out, u, s); break;
    case DO_OPEN: command_open(&out, u, s); break;
    case DO_RESUME: str_printf(&out, "qdyno ab --resume %lld", (long long)ui_run_id(u, s)); break;
    case DO_VIEW_AB:
        if (ui_run_id(u, s)) str_printf(&out, "qdyno show %lld", (long long)ui_run_id(u, s));
        break;
    case DO_ADVISE:
        str_append(&out, "qdyno advise -m ");
        shell_word(&out, s->model_path[0] ? s->model_path : "MODEL");
        break;
    case DO_FILTER:
    case DO_VIEW_HISTORY:
        str_append(&out, "qdyno history");
        if (u->filter[0]) {
            str_append(&out, " --filter ");
            shell_word(&out, u->filter);
        }
        break;
    case DO_VIEW_MODEL:
        str_append(&out, "qdyno info --tensors -m ");
        shell_word(&out, s->model_path[0] ? s->model_path : "MODEL");
        break;
    case DO_VIEW_LIVE: str_append(&out, "qdyno detect"); break;
    case DO_VIEW_QUALITY: command_quality(&out, u, s); break;
    case DO_VIEW_LOAD: command_load(&out, u, s); break;
    case DO_VIEW_SETTINGS: str_append(&out, "qdyno help knobs"); break;
    default: break;
    }
    snprintf(buf, size, "%s", str_text(&out));
    str_free(&out);
    return buf;
}
