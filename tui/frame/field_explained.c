/* tui/frame/field_explained.c - what a field of a form asks for, as a page of text: F1 in a form. */
#include "tui/frame/frame.h"

#include <string.h>

#include "advisor/advise/advise.h"

/* Lines of a field: what it means, then examples and what happens; NULL ends them. */
static const char *const MEANINGS[ASK_KINDS][6] = {
    [ASK_CONFIG] = { "One configuration: how the model is stored in memory, and how it is run.",
                     "A recipe (q8_0, q4_K, gptq:u4_g128) and settings (threads=2, kv=q8_0), separated by commas.",
                     "default: the file as it is, without settings." },
    [ASK_MORE] = { "A third configuration, also compared with A.", "Empty: the A/B has two arms." },
    [ASK_RECIPE] = { "The recipe of the file to write: a method or a format, with parameters.",
                     "The size next to each suggestion is that of the file it makes.",
                     "Methods that use activation statistics need a calibration text or file in the next field." },
    [ASK_WORKLOAD] = { "What each configuration has to do.", "pp512: read a prompt of 512 tokens (prefill).",
                       "tg128: write 128 tokens (decode).",
                       "pp512+tg128@d4096: both, after 4096 tokens of context. tg64@b16: 16 sequences at once.",
                       "eval:FILE: the perplexity of a text." },
    [ASK_MODEL] = { "The path of a GGUF file.",
                    "Type letters to search; Enter or → opens a folder, ← leaves it.",
                    "Each file shows its format and whether a session fits into the memory that is free now." },
    [ASK_FILE] = { "The path of a text similar to what the model will read.",
                   "Empty: the bundled text, if the method needs one." },
    [ASK_SCORED] = { "The path of the text that all commands measure this model's quality on, unless told otherwise.",
                     "Empty: the bundled text.",
                     "Losses on different texts do not compare: those on other texts are kept, but not ranked.",
                     "Enter measures the selected configuration on it." },
    [ASK_OUT] = { "The file to write. An existing file is replaced only after a question.",
                  "Its folder has to exist." },
    [ASK_REPORT] = { "The file of the report; its ending decides the format.",
                     "FILE.html: a page with figures.", "FILE.md: text, with plots in characters.",
                     "FILE.svg: one picture." },
    [ASK_BUDGET] = { "How long this may take: 30s, 5m, 1h.",
                     "No new measurement starts after this time; what is finished is kept." },
    [ASK_MARGIN] = { "The smallest difference that matters to you, such as 1%.",
                     "Configurations that differ by less count as equivalent.",
                     "A smaller margin needs more blocks, and therefore more time." },
    [ASK_QUALITY] = { "Whether to measure what the configurations do to the answers, after their speed.",
                      "no: only speed and memory.",
                      "yes: KL divergence from A on this model's text (6 names it).",
                      "A path: on that text." },
    [ASK_GOAL] = { "What to optimize.", "balanced: speed and memory, within the quality limit.",
                   "speed, quality, memory, energy: that one first." },
    [ASK_LIMIT] = { "Limits that the winner has to keep, separated by commas.",
                    "memory=8G: at most this much memory.",
                    "kld=0.05: at most this mean KL divergence, in nats.",
                    "Empty: it has to fit into the memory that is free, and its mean KL divergence may be at most 0.02 "
                    "nats." },
    [ASK_URL] = { "The address of a Prometheus Pushgateway, such as http://127.0.0.1:9091.",
                  "QDYNO_PUSH_USER, _PASSWORD, _BEARER and _CA hold the credentials." },
    [ASK_NAME] = { "The name under which the winner is stored, such as main.",
                   "qdyno baseline check NAME measures it again, together with a challenger." },
    [ASK_COMMAND] = { "Any command of qdyno, without the word qdyno.", "help lists all commands." },
    [ASK_THEN] = { "What to do with the changed setting.",
                   "use: it is added to the configuration that is applied to this model; run, bench and the dashboard "
                   "use it from now on, and u restores the one before.",
                   "compare: opens the form of an A/B: what is in use now against the same with this setting." },
    [ASK_PROMPT] = { "The text that both configurations continue." },
};

/* Every key of config lines, the one at the cursor first. */
static void put_keys(struct text_page *p, const struct ui *u, const struct snapshot *s)
{
    char text[700];
    form_hint(&u->form, text, sizeof text);
    text_page_put(p, PAGE_PLAIN, " ");
    text_page_put(p, PAGE_HEAD, "At the cursor");
    text_page_put(p, PAGE_PLAIN, "%s", text);
    text_page_put(p, PAGE_PLAIN, " ");
    text_page_put(p, PAGE_HEAD, "All settings");
    for (int k = 0; k < KNOB_COUNT; k++)
        text_page_put(p, PAGE_PLAIN, "%-18s %s (now %s)", KNOBS[k].key, KNOBS[k].help,
                      *knob_applied(s, (enum knob_id)k, text, sizeof text) ? text : "not set");
}

bool field_explained(struct text_page *out, const struct ui *u, const struct snapshot *s)
{
    const struct form *f = &u->form;
    memset(out, 0, sizeof *out);
    if (f->kind == FORM_CLOSED || f->kind == FORM_PALETTE || f->kind == FORM_FILTER) return false;
    const enum form_ask ask = form_asks(f);
    const struct form_field *field = &f->field[f->focus];
    snprintf(out->title, sizeof out->title, "%s: %s", FORMS[f->kind].title,
             FORMS[f->kind].field[f->focus].label);
    for (size_t i = 0; i < COUNT_OF(MEANINGS[ask]) && MEANINGS[ask][i]; i++)
        text_page_put(out, i ? PAGE_PLAIN : PAGE_HEAD, "%s", MEANINGS[ask][i]);
    if (field->error[0] && field->text[0]) {
        text_page_put(out, PAGE_PLAIN, " ");
        text_page_put(out, PAGE_BAD, "%s", field->error);
    }
    if (ask == ASK_CONFIG || ask == ASK_MORE) put_keys(out, u, s);
    return true;
}

/* Fields in which a question mark can be part of the text. */
bool field_takes_question_mark(enum form_ask ask)
{
    return ask == ASK_PROMPT || ask == ASK_COMMAND || ask == ASK_URL || ask == ASK_FILE ||
           ask == ASK_SCORED || ask == ASK_OUT || ask == ASK_REPORT || ask == ASK_MODEL ||
           ask == ASK_QUALITY || ask == ASK_FILTER;
}
