/* tui/layout.h - where things stand, as a pure function of the screen's size. Tested over all sizes. */
#ifndef QDYNO_TUI_LAYOUT_H
#define QDYNO_TUI_LAYOUT_H

#include "tui/grid.h"

enum { LAYOUT_MIN_W = 80, LAYOUT_MIN_H = 24 };

/* The frame around every view. */
struct layout {
    bool too_small;
    struct rect title, body, status, footer;
};
struct layout layout_frame(int w, int h);

/* The boxes of a view, in a table so that tests can walk them. */
enum live_box { LIVE_MACHINE, LIVE_ENGINE, LIVE_AB, LIVE_ADVICE, LIVE_LOG, LIVE_BOXES };
enum ab_box { AB_ARMS, AB_EFFECT, AB_VERDICT, AB_BOXES };

enum advice_box { ADVICE_LIST, ADVICE_DETAILS, ADVICE_PARETO, ADVICE_QUALITY, ADVICE_BOXES };
enum quality_box { QUALITY_METHODS, QUALITY_LAYERS, QUALITY_BOXES };
enum load_box { LOAD_REQUESTS, LOAD_LATENCY, LOAD_BLOCKS, LOAD_ROOFLINE, LOAD_BOXES };
enum settings_box { SETTINGS_LIST, SETTINGS_DETAIL, SETTINGS_BOXES };
enum write_box { WRITE_A, WRITE_B, WRITE_BOTH, WRITE_BOXES };
enum model_box { MODEL_TENSORS, MODEL_MEMORY, MODEL_BOXES };

void layout_live(struct rect body, struct rect box[LIVE_BOXES]);
void layout_ab(struct rect body, int arms, struct rect box[AB_BOXES]);

/* rows: of the table. Boxes without room are empty. */
void layout_advice(struct rect body, int rows, struct rect box[ADVICE_BOXES]);
void layout_model(struct rect body, struct rect box[MODEL_BOXES]);
void layout_quality(struct rect body, struct rect box[QUALITY_BOXES]);
void layout_load(struct rect body, struct rect box[LOAD_BOXES]);
void layout_write(struct rect body, struct rect box[WRITE_BOXES]);
void layout_settings(struct rect body, struct rect box[SETTINGS_BOXES]);

/* The lowest `rows` of the body: forms and questions lie over the view there. */
struct rect layout_drawer(struct rect body, int rows);
/* The middle of the body, at most w x h. */
struct rect layout_overlay(struct rect body, int w, int h);

#endif
