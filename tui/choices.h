/* tui/choices.h - what the word under the cursor of a form could be: every key, value, recipe, workload or
 * file there is, with what it means, what it costs, and why it cannot be here. A pure function of the frame.
 */
#ifndef QDYNO_TUI_CHOICES_H
#define QDYNO_TUI_CHOICES_H

#include "tui/ui.h"

enum { CHOICES = 160 };

struct choice {
    char text[264];                /* what it puts in the place of the word */
    char about[200];               /* one line */
    char refusal[200];             /* why it cannot be; "" it can */
    bool more;                     /* there is more to say behind it: "threads=", a folder */
    int64_t bytes;                 /* memory of the line with it, or of the file it makes; -1: not known */
    const struct file_entry *file; /* a file: borrowed from the snapshot */
};

struct choices {
    int from, to; /* bytes of the field's text that they stand for */
    bool files;   /* all of them are files */
    int n;
    struct choice list[CHOICES];
};

/* Of the field that is typed into. Nothing is offered in a form that is closed. */
void choices_make(struct choices *out, const struct ui *u, const struct snapshot *s);

/* The folder that the field speaks of, as folder.path has it; false: of none. */
bool choices_folder(const struct form *f, char *path, size_t size);

#endif
