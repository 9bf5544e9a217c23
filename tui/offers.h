/* tui/offers.h - what forms offer that has to be looked up first: files of a folder, recipes for the model on
 * screen, what the loader says about the lines one could type. Values: jobs fill them (board_offers.c). */
#ifndef QDYNO_TUI_OFFERS_H
#define QDYNO_TUI_OFFERS_H

#include "engine/engine.h"
#include "engine/quant/quant.h"

enum {
    FOLDER_ENTRIES = 160,
    RECIPE_OFFERS = 80,
    LINES_JUDGED = 96,
};

enum file_kind {
    FILE_FOLDER,
    FILE_MODEL,       /* a GGUF file that can be run */
    FILE_CALIBRATION, /* a GGUF file of activation statistics */
    FILE_NO_MODEL,    /* GGUF by its name, and of no use here: `trouble` says why */
    FILE_OTHER
};

/* One file; of places (folder.path "") a whole path. */
struct file_entry {
    char name[256];
    enum file_kind kind;
    bool known;    /* its header was read (or there was none to read) */
    int64_t bytes; /* of all its parts; -1 unknown */
    char arch[24], format[16];
    int64_t params;
    int64_t needs_bytes; /* memory of a session at its usual context: the loader's plan; -1 unknown */
    char trouble[160];
    char note[48]; /* places: where it is from */
};

struct folder {
    char path[512]; /* ends in '/'; "": places models were found in before */
    bool read;      /* listed; headers may still follow */
    char error[200];
    int count, left_out;
    struct file_entry entry[FOLDER_ENTRIES]; /* folders first, then by name */
};

/* A recipe that a word names, on the model on screen. */
struct recipe_offer {
    char name[40];
    const char *help;   /* static */
    bool is_method;     /* else a format or a published mix */
    int64_t file_bytes; /* of the file it makes; -1 unknown */
    double bits;        /* a weight, all of them; NAN unknown */
    int fell_back;      /* tensors whose rows do not fill its blocks */
    bool identity;      /* the file is so already: nothing to make, but a line one may run */
    bool learns;        /* wants a text */
    char refusal[200];  /* why it cannot be made of this file; "" it can */
};
struct recipe_offers {
    int count;
    struct recipe_offer offer[RECIPE_OFFERS];
};
/* All there are, from the file's header. g NULL: names alone. */
void recipe_offers_make(struct recipe_offers *out, const struct gguf *g);
/* Why a new file cannot be made by this recipe; "" where it can, or where that is not known beforehand. */
const char *recipe_refusal(const struct recipe_offers *r, const char *name);

/* Baselines that are kept already. */
enum { BASELINES_KNOWN = 16 };
struct baselines {
    int count;
    struct {
        char name[64], about[160]; /* "q8_0 of stories15M, tg64" */
    } of[BASELINES_KNOWN];
};

/* What the loader says to config lines that differ in one word. */
struct judged {
    char text[512]; /* of the field, as it was asked about, and where its cursor was; "" nothing yet */
    int cursor;
    int64_t total_bytes;            /* memory of the line as it stands; -1: unknown or impossible */
    double decode_tok_s, low, high; /* predicted; NAN where limits are not known */
    char refusal[200];              /* of the line as it stands */
    int count;
    struct {
        char text[128]; /* the word */
        int64_t total_bytes;
        char refusal[200];
    } of[LINES_JUDGED];
};

#endif
