/* tui/keys.c - the table of keys. The footer shows rows with a label, in this order, as far as they fit. */
#include "tui/keys.h"

const struct key_binding KEYS[] = {
    { DO_VIEW_LIVE,
      { '1' },
      "1",
      "live",
      "machine, engine, A/B, advice and log at a glance",
      "qdyno detect" },
    { DO_VIEW_AB,
      { '2' },
      "2",
      "A/B",
      "the experiment: arms, effect block by block, verdict",
      "qdyno show ID" },
    { DO_VIEW_ADVICE,
      { '3' },
      "3",
      "advice",
      "ranked configurations for this machine",
      "qdyno advise -m MODEL" },
    { DO_VIEW_HISTORY, { '4' }, "4", "history", "what was measured before", "qdyno history" },
    { DO_VIEW_LOG, { '5' }, "5", "log", "messages and events", NULL },
    { DO_NEW_AB,
      { 'b' },
      "b",
      "new A/B",
      "start an experiment: two configurations, one workload",
      "qdyno ab -m MODEL A B -w WORKLOAD" },
    { DO_STOP, { 's' }, "s", "stop", "stop the experiment; it can be resumed", NULL },
    { DO_RESUME,
      { 'r' },
      "r",
      "resume",
      "go on with a stopped experiment (this, or the selected one)",
      "qdyno ab --resume ID" },
    { DO_ADVISE,
      { 'a' },
      "a",
      "advise",
      "measure the machine's limits once, then rank configurations",
      "qdyno detect --probe; qdyno advise -m MODEL" },
    { DO_OPEN,
      { UI_KEY_ENTER, '\r' },
      "Enter",
      NULL,
      "advice: verify by an A/B; history: open the run",
      "qdyno show ID" },
    { DO_PUSH,
      { 'p' },
      "p",
      "push",
      "send the result to a Prometheus Pushgateway",
      "qdyno push ID --url URL" },
    { DO_MODEL, { 'm' }, "m", NULL, "choose another model file", "qdyno dashboard -m FILE" },
    { DO_FILTER,
      { '/' },
      "/",
      NULL,
      "history: show only rows that contain a text",
      "qdyno history --filter TEXT" },
    { DO_UP, { 'k', UI_KEY_UP }, "k", NULL, "up", NULL },
    { DO_DOWN, { 'j', UI_KEY_DOWN }, "j", NULL, "down", NULL },
    { DO_PREVIOUS_VIEW, { 'h', UI_KEY_LEFT, UI_KEY_BACKTAB }, "h", NULL, "previous view", NULL },
    { DO_NEXT_VIEW, { 'l', UI_KEY_RIGHT, UI_KEY_TAB }, "l", NULL, "next view", NULL },
    { DO_PAGE_UP, { UI_KEY_PAGE_UP, UI_CTRL('b') }, "PgUp", NULL, "a page up", NULL },
    { DO_PAGE_DOWN, { UI_KEY_PAGE_DOWN, UI_CTRL('f') }, "PgDn", NULL, "a page down", NULL },
    { DO_FIRST, { 'g', UI_KEY_HOME }, "g", NULL, "first row", NULL },
    { DO_LAST, { 'G', UI_KEY_END }, "G", NULL, "last row", NULL },
    { DO_BACK, { UI_KEY_ESC }, "Esc", NULL, "close what is open, forget the filter", NULL },
    { DO_REDRAW, { UI_CTRL('l') }, "Ctrl-L", NULL, "draw everything again", NULL },
    { DO_SUSPEND, { UI_CTRL('z') }, "Ctrl-Z", NULL, "back to the shell for a moment (fg returns)", NULL },
    { DO_HELP, { '?', UI_KEY_F1 }, "?", "help", "this list", "qdyno help" },
    { DO_QUIT, { 'q', UI_CTRL('c') }, "q", "quit", "leave; asks while an experiment runs", NULL },
};
const size_t KEY_COUNT = COUNT_OF(KEYS);

const struct key_binding *key_find(int key)
{
    if (key == 0) return NULL;
    for (size_t i = 0; i < KEY_COUNT; i++)
        for (size_t j = 0; j < COUNT_OF(KEYS[i].key); j++)
            if (KEYS[i].key[j] == key) return &KEYS[i];
    return NULL;
}

const struct key_binding *key_of_action(enum action action)
{
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (KEYS[i].action == action) return &KEYS[i];
    return NULL;
}
