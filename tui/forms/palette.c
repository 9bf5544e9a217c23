/* tui/forms/palette.c - fuzzy search over keys, settings and commands. */
#include "tui/forms/forms.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum {
    LETTER = 1,
    WORD_START = 6, /* so that "ab" finds "new A/B" before "tab" */
    NEIGHBOUR = 4,
    WHOLE = 12,   /* the text is the whole name */
    HELP_ONLY = 8 /* a word of the help text: beats single letters scattered over a name */
};

static bool starts_word(const char *name, size_t i)
{
    return i == 0 || !isalnum((unsigned char)name[i - 1]);
}

/* The best score for matching the letters of `text`, in order, in name[from..]; -1 when they do not all
 * occur. Tries every position: names are short. neighbour: the letter before matched at from - 1. */
static int best_from(const char *text, const char *name, size_t from, bool neighbour)
{
    if (!*text) return 0;
    int best = -1;
    for (size_t i = from; name[i]; i++) {
        if (tolower((unsigned char)name[i]) != tolower((unsigned char)*text)) continue;
        const int rest = best_from(text + 1, name, i + 1, true);
        if (rest < 0) break; /* the rest of `name` lacks a letter, and a later start has even less of it */
        const int score = rest + LETTER + (starts_word(name, i) ? WORD_START : 0) +
                          (neighbour && i == from ? NEIGHBOUR : 0);
        best = MAX(best, score);
    }
    return best;
}

/* The words of `text` are matched one by one, in any order. */
int palette_score(const char *text, const char *name)
{
    char word[64];
    int sum = 0;
    for (const char *p = text; *p;) {
        const size_t n = strcspn(p, " ");
        snprintf(word, sizeof word, "%.*s", (int)MIN(n, sizeof word - 1), p);
        const int score = best_from(word, name, 0, false);
        if (score < 0) return -1;
        sum += score;
        p += n;
        p += strspn(p, " ");
    }
    return sum + (*text && !strcasecmp(text, name) ? WHOLE : 0);
}

/* Whether every word of `text` occurs in the help sentence at the start of a word. Scattered letters do not
 * count: any sentence has them. */
static bool help_contains(const char *text, const char *help)
{
    char word[64];
    for (const char *p = text; *p;) {
        const size_t n = strcspn(p, " ");
        snprintf(word, sizeof word, "%.*s", (int)MIN(n, sizeof word - 1), p);
        const char *at = n < 2 ? NULL : strcasestr(help, word);
        while (at && !starts_word(help, (size_t)(at - help))) at = strcasestr(at + 1, word);
        if (!at) return false;
        p += n;
        p += strspn(p, " ");
    }
    return true;
}

struct palette_search {
    struct palette_entry *out;
    int n, max;
};

/* What a setting is called elsewhere counts like its name: "ngl", "flash attention". */
static int score_of_other_names(const char *text, const struct knob *k)
{
    char all[512], names[512];
    int best = -1;
    snprintf(all, sizeof all, "%s", knob_names_text((enum knob_id)(k - KNOBS), names, sizeof names));
    char *save = NULL;
    for (char *name = strtok_r(all, " ", &save); name; name = strtok_r(NULL, " ", &save))
        if (knob_text_contains(name, text)) {
            const bool whole = strlen(name) == strlen(text);
            best = MAX(best, LETTER * (int)strlen(text) + WORD_START + NEIGHBOUR + (whole ? WHOLE : 0));
        }
    return best;
}

/* Insert an entry that matches, sorted by score, after entries with the same score. */
static void palette_insert(struct palette_search *f, struct palette_entry e, const char *text)
{
    e.score = palette_score(text, e.name);
    if (*text && help_contains(text, e.help)) e.score = MAX(e.score, (int)HELP_ONLY);
    if (*text && e.knob) e.score = MAX(e.score, score_of_other_names(text, e.knob));
    if (e.score < 0) return;
    int at = MIN(f->n, f->max);
    while (at > 0 && f->out[at - 1].score < e.score) at--;
    if (at >= f->max) return;
    const int last = MIN(f->n, f->max - 1);
    memmove(f->out + at + 1, f->out + at, (size_t)(last - at) * sizeof *f->out);
    f->out[at] = e;
    f->n = last + 1;
}

int palette_find(const char *text, const struct palette_command *commands, int command_count,
                 struct palette_entry *out, int max)
{
    struct palette_search f = { out, 0, max };
    for (size_t i = 0; i < KEY_COUNT; i++)
        if (KEYS[i].title)
            palette_insert(
                &f,
                (struct palette_entry){
                    .kind = PALETTE_KEY, .name = KEYS[i].title, .help = KEYS[i].help, .key = &KEYS[i] },
                text);
    for (int i = 0; i < KNOB_COUNT; i++)
        palette_insert(
            &f,
            (struct palette_entry){
                .kind = PALETTE_SETTING, .name = KNOBS[i].key, .help = KNOBS[i].help, .knob = &KNOBS[i] },
            text);
    for (size_t i = 0; *text && i < knob_absent_count();
         i++) { /* settings that qdyno lacks lead to the nearest */
        const struct knob_name *n = knob_absent(i);
        if (knob_text_contains(n->name, text))
            palette_insert(
                &f,
                (struct palette_entry){
                    .kind = PALETTE_SETTING, .name = n->name, .help = n->instead, .knob = &KNOBS[n->knob] },
                text);
    }
    for (int i = 0; i < command_count; i++)
        palette_insert(&f,
                       (struct palette_entry){ .kind = PALETTE_COMMAND,
                                               .name = commands[i].name,
                                               .help = commands[i].help,
                                               .command = &commands[i] },
                       text);
    return f.n;
}
