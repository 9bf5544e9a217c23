/* advisor/run/prompt_note.c - what a reader must know of the prompts of a cell (run.h). */
#include <stdio.h>
#include <string.h>

#include "advisor/run/run.h"
#include "engine/config/config.h"

/* Of the user's own prompts. */
static void own_note(struct str *out, const json_t *p, const struct workload *w, int cut)
{
    const int64_t used = json_get_int(p, "used", 0), count = json_get_int(p, "count", 0),
                  skipped = json_get_int(p, "skipped", 0);
    const bool load = workload_is_load(w), text = !strcmp(json_get_str(p, "form", ""), "text");
    str_printf(out, "prompts from %s (%s, SHA-256 %.12s...)", json_get_str(p, "file", "?"),
               json_get_str(p, "form", "?"), json_get_str(p, "sha256", "?"));
    if (!text) str_printf(out, ": %lld of %lld are used", (long long)used, (long long)count);
    if (skipped)
        str_printf(out, "; %lld without a text %s left out", (long long)skipped, skipped == 1 ? "is" : "are");
    if (json_get_bool(p, "repeats", false))
        str_append(out,
                   text   ? "; the text is shorter than a prompt, and repeats in it"
                   : load ? "; there are more requests than prompts, so prompts are sent again, and a prefix "
                            "cache can have them"
                          : "; they have fewer tokens than the workload, and repeat in it");
    if (cut)
        str_printf(out, "; %d of %d requests were cut to the context of %d tokens (ctx= sets another)", cut,
                   w->load.requests, workload_ctx(w));
}

const char *run_prompt_note(char *buf, size_t size, const json_t *answer)
{
    const json_t *p = json_object_get(answer, "prompts");
    const char *line = json_get_str(answer, "workload", "");
    struct workload w;
    struct str s = { 0 };
    buf[0] = '\0';
    if (!json_is_object(p) || workload_parse(&w, line, NULL)) return buf;
    if (json_get_str(p, "sha256", NULL))
        own_note(&s, p, &w, (int)json_get_int(json_object_get(answer, "served"), "cut", 0));
    else if (json_get_bool(p, "repeats", false))
        str_printf(
            &s,
            "%.120s: the bundled text has %lld tokens, fewer than a prompt, so text repeats; --prompts FILE takes "
            "prompts of your own",
            line, (long long)json_get_int(p, "text_tokens", 0));
    snprintf(buf, size, "%s", str_text(&s));
    str_free(&s);
    for (char *c = buf; *c; c++)
        if (*c == '\n') *c = ' '; /* of a file's name: a note is one line */
    return buf;
}

void run_note_prompts(struct run *r, const json_t *answer)
{
    char text[RUN_PROMPT_NOTE];
    struct err ignored; /* a note that cannot be stored is no reason to lose the measurement */
    if (!*run_prompt_note(text, sizeof text - 1, answer)) return;
    strcat(text, "\n");
    if (strstr(str_text(&r->prompt_notes), text)) return;
    str_append(&r->prompt_notes, text);
    text[strlen(text) - 1] = '\0';
    (void)db_event_add(r->db, r->row.id, RUN_PROMPT_EVENT, text, &ignored);
}
