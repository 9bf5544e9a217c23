/* tui/keys.h - KEYS: what every key does, in one table. Footer, help overlay and dispatch are loops over it.
 *
 * Keys are code points, or KEY_* below for those that have none (screen.c translates from the terminal). */
#ifndef QDYNO_TUI_KEYS_H
#define QDYNO_TUI_KEYS_H

#include "base/base.h"

enum ui_key {
    UI_KEY_NONE = 0,
    UI_KEY_TAB = 0x09,
    UI_KEY_ENTER = 0x0a,
    UI_KEY_ESC = 0x1b,
    UI_KEY_UP = 0x110000, /* beyond the last code point */
    UI_KEY_DOWN,
    UI_KEY_LEFT,
    UI_KEY_RIGHT,
    UI_KEY_HOME,
    UI_KEY_END,
    UI_KEY_PAGE_UP,
    UI_KEY_PAGE_DOWN,
    UI_KEY_BACKSPACE,
    UI_KEY_DELETE,
    UI_KEY_BACKTAB,
    UI_KEY_F1,
    UI_KEY_CLICK, /* where: screen_pointer */
    UI_KEY_WHEEL_UP,
    UI_KEY_WHEEL_DOWN,
};
#define UI_CTRL(letter) ((letter)&0x1f)

enum action {
    DO_NOTHING,
    DO_VIEW_LIVE, /* the views in the order of enum view */
    DO_VIEW_AB,
    DO_VIEW_ADVICE,
    DO_VIEW_HISTORY,
    DO_VIEW_MODEL,
    DO_VIEW_QUALITY,
    DO_VIEW_LOAD,
    DO_VIEW_SETTINGS,
    DO_VIEW_LOG,
    DO_VIEW_WRITE,
    DO_NEXT_VIEW,
    DO_PREVIOUS_VIEW,
    DO_NEXT_PANE,
    DO_PREVIOUS_PANE,
    DO_ZOOM,
    DO_WRITE,
    DO_NEW_AB,
    DO_STOP,
    DO_RESUME,
    DO_PAUSE,
    DO_ADVISE,
    DO_OPEN,
    DO_PUSH,
    DO_MODEL,
    DO_FILTER,
    DO_MARK,
    DO_SORT,
    DO_COMPARE,
    DO_VERIFY,
    DO_APPLY,
    DO_BASELINE,
    DO_REPORT,
    DO_QUANTIZE,
    DO_CALIBRATE,
    DO_TUNE,
    DO_COPY,
    DO_OUTPUT,
    DO_UP,
    DO_DOWN,
    DO_PAGE_UP,
    DO_PAGE_DOWN,
    DO_FIRST,
    DO_LAST,
    DO_BACK,
    DO_COMMAND,
    DO_CANCEL,
    DO_PALETTE,
    DO_MOUSE,
    DO_THEME,
    DO_SAVE,
    DO_REDRAW,
    DO_SUSPEND,
    DO_HELP,
    DO_QUIT,
    ACTION_COUNT
};

struct key_binding {
    enum action action;
    int key[3];        /* 0: unused */
    const char *name;  /* as printed: "b" */
    const char *label; /* in the footer; NULL: only in the help */
    const char *help;
    const char *command; /* what it equals without the dashboard; NULL: nothing */
    const char *title;   /* in the palette; NULL: not there (moving about) */
    const char *brief;   /* the label where the footer is narrow; NULL: the same */
};
extern const struct key_binding KEYS[];
extern const size_t KEY_COUNT;

const struct key_binding *key_find(int key);                 /* NULL: nothing is bound */
const struct key_binding *key_of_action(enum action action); /* never NULL for a real action */

#endif
