/* tui/frame/list.c - what all lists have in common: filtering, sorting, and a selection that stays on its
 * item.
 */
#include "tui/frame/frame.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int list_columns(const struct list *l)
{
    int n = 0;
    while (n < LIST_COLUMNS && l->column[n].title) n++;
    return n;
}

/* ---------------------------------------------------------------- filtering */

bool list_filter_holds(const char *filter, const char *text)
{
    const bool inverse = *filter == '!';
    const char *wanted = filter + inverse;
    if (!*wanted) return true;
    return (strcasestr(text, wanted) != NULL) != inverse;
}

/* Only the database understands regular expressions: they take effect when the filter is accepted. */
static bool filter_is_regex(const char *filter)
{
    return filter[*filter == '!'] == '/';
}

const char *list_filter(const struct ui *u)
{
    const char *typed = u->list[u->view].filter;
    return u->view == VIEW_HISTORY && !*typed ? u->filter : typed;
}

/* What is typed now. An accepted filter is applied here, too, until the rows that the database finds arrive:
 * rows that it will remove must not show again in between. */
static const char *history_filter(const struct ui *u, const struct snapshot *s)
{
    const char *typed = u->list[VIEW_HISTORY].filter;
    return *typed || !strcmp(u->filter, s->run_filter) ? typed : u->filter;
}

/* The whole row is searched, also columns that a narrow screen leaves out. */
static bool item_holds(const struct list *l, const struct ui *u, const struct snapshot *s, int item,
                       const char *filter)
{
    struct str all = { 0 };
    char buf[LIST_CELL];
    for (int c = 0; c < list_columns(l); c++) {
        str_append(&all, c ? " " : "");
        if (l->column[c].text) str_append(&all, l->column[c].text(u, s, item, buf, sizeof buf));
    }
    const bool holds = (l->holds ? l->holds : list_filter_holds)(filter, str_text(&all));
    str_free(&all);
    return holds;
}

/* ---------------------------------------------------------------- sorting */

struct sorting {
    const struct ui *u;
    const struct snapshot *s;
    const struct list_column *by;
    bool reversed;
};

/* The larger value first; unknown values last, also when reversed. */
static int compare_values(double a, double b, bool reversed)
{
    if (isnan(a) || isnan(b)) return isnan(a) - isnan(b);
    const int c = (a < b) - (a > b);
    return reversed ? -c : c;
}

/* Alphabetical; empty texts last, also when reversed. */
static int compare_texts(const char *a, const char *b, bool reversed)
{
    if (!*a || !*b) return !*a - !*b;
    const int c = strcasecmp(a, b);
    return reversed ? -c : c;
}

/* Equal rows keep the list's own order. */
static int compare_items(const void *x, const void *y, void *arg)
{
    const struct sorting *o = arg;
    const int a = *(const int *)x, b = *(const int *)y;
    char first[LIST_CELL], second[LIST_CELL];
    const int c = o->by->value
                      ? compare_values(o->by->value(o->s, a), o->by->value(o->s, b), o->reversed)
                      : compare_texts(o->by->text(o->u, o->s, a, first, sizeof first),
                                      o->by->text(o->u, o->s, b, second, sizeof second), o->reversed);
    return c ? c : a - b;
}

int list_order(const struct ui *u, const struct snapshot *s, int items[LIST_ROWS])
{
    const struct list *l = &LISTS[u->view];
    const struct list_state *t = &u->list[u->view];
    if (!l->items) return 0;
    const char *filter = u->view == VIEW_HISTORY ? history_filter(u, s) : t->filter;
    if (filter_is_regex(filter)) filter = "";
    const int all = MAX(l->count(s), 0);
    int n = 0;
    for (int i = 0; i < all && n < LIST_ROWS; i++)
        if (!*filter || item_holds(l, u, s, i, filter)) items[n++] = i;
    if (n > 1 && t->sort > 0 && t->sort <= list_columns(l)) {
        struct sorting o = { u, s, &l->column[t->sort - 1], t->reversed };
        qsort_r(items, (size_t)n, sizeof *items, compare_items, &o);
    } else if (t->reversed) {
        for (int i = 0; i < n / 2; i++) {
            const int other = items[n - 1 - i];
            items[n - 1 - i] = items[i];
            items[i] = other;
        }
    }
    return n;
}

const char *list_sort_by(struct ui *u, int column)
{
    const struct list *l = &LISTS[u->view];
    struct list_state *t = &u->list[u->view];
    if (!l->items || column < 0 || column >= list_columns(l) || !l->column[column].title[0]) return "";
    t->reversed = t->sort == column + 1 && !t->reversed;
    t->sort = column + 1;
    t->key_row = -1;
    return l->column[column].title;
}

const char *list_sort_next(struct ui *u)
{
    const struct list *l = &LISTS[u->view];
    struct list_state *t = &u->list[u->view];
    const int columns = l->items ? list_columns(l) : 0;
    t->reversed = false;
    t->key_row = -1;
    while (++t->sort <= columns)
        if (l->column[t->sort - 1].title[0] && !l->column[t->sort - 1].until)
            return l->column[t->sort - 1].title;
    t->sort = 0;
    return "";
}

/* ---------------------------------------------------------------- selection */

static int64_t item_key(const struct list *l, const struct snapshot *s, int item)
{
    return l->key ? l->key(s, item) : item;
}

int list_selected(const struct ui *u, const struct snapshot *s)
{
    int items[LIST_ROWS];
    const int n = list_order(u, s, items), row = u->selected[u->view];
    return row >= 0 && row < n ? items[row] : -1;
}

/* The row that shows the item with this key; -1: none. */
static int row_of_key(const struct list *l, const struct snapshot *s, const int *items, int n, int64_t key)
{
    for (int i = 0; i < n; i++)
        if (item_key(l, s, items[i]) == key) return i;
    return -1;
}

/* Rows may come, go and move between two frames; the selection stays on its item. */
static void list_settle(struct ui *u, const struct snapshot *s)
{
    const struct list *l = &LISTS[u->view];
    struct list_state *t = &u->list[u->view];
    int items[LIST_ROWS], *row = &u->selected[u->view];
    const int n = list_order(u, s, items);
    const bool person_moved = t->key_known && t->key_row >= 0 && *row != t->key_row;
    if (!t->key_known && *row) t->moved = true;
    if (person_moved) t->moved = true;
    const bool at_end = l->newest_last && !t->sort && !t->reversed;
    if (at_end && !t->moved) {
        *row = n - 1;
    } else if (t->key_known && !person_moved) {
        const int found = row_of_key(l, s, items, n, t->key);
        if (found >= 0) *row = found;
    }
    *row = MAX(MIN(*row, n - 1), 0);
    if (at_end && *row == n - 1) t->moved = false;
    t->key_known = n > 0;
    t->key_row = *row;
    if (n > 0) t->key = item_key(l, s, items[*row]);
}

void ui_clamp(struct ui *u, const struct snapshot *s)
{
    if (LISTS[u->view].items) {
        list_settle(u, s);
        return;
    }
    int rows = ui_rows(u, s), *at = &u->selected[u->view];
    *at = MAX(MIN(*at, rows - 1), 0);
}
