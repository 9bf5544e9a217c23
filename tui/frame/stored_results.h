/* tui/frame/stored_results.h - what the database holds about the model on screen, over all runs: shown by the
 * quality, load and settings views. Part of frame.h.
 *
 * Unknown values are NAN; an empty list comes with the reason as text. */
#ifndef QDYNO_TUI_FRAME_STORED_RESULTS_H
#define QDYNO_TUI_FRAME_STORED_RESULTS_H

#include "advisor/stats/stats.h"
#include "engine/config/config.h"
#include "tui/widgets/widgets.h"

enum {
    QUALITY_RESULTS = 40,
    SENSITIVITY_MAPS = 6,
    SENSITIVITY_KINDS = 20,
    SENSITIVITY_LAYERS = 160,
    LOAD_RESULTS = 24,
};

/* One config whose predictions were compared with those of a reference config. */
struct quality_result {
    int64_t run_id, measured_ms; /* unix time */
    char config[CONFIG_LINE], reference[CONFIG_LINE];
    char format[24];                           /* of the config; "": this version does not know it */
    char reference_model[512];                 /* path of the file that it names; "": none */
    char text[TEXT_LABEL];                     /* base name of the file */
    int ctx;                                   /* tokens per window */
    int64_t windows;                           /* 0: not kept, with all figures but kld (a search) */
    struct interval kld, top1, ppl, ppl_ratio; /* 95 % intervals; NAN unknown */
    char text_sha256[65];                      /* "": measured by an older version */
    bool foreign;                              /* measured on another text than the model's: not ranked */
};

/* Sets format and reference_model. Parses the config lines, so a job does it, not a frame. */
void quality_result_explain(struct quality_result *q);

struct quality_results {
    int count;                                   /* -1: not read yet */
    struct quality_result line[QUALITY_RESULTS]; /* the smallest loss first; foreign ones at the end */
    char text[TEXT_LABEL];                       /* name of the model's text; "": unknown */
    bool bundled;                                /* it is the bundled one, the stories */
    char trouble[512];                           /* why nothing can be measured on it; "": it can */
    char error[200];
};

/* The loss when a single tensor is stored in `format`, by kind of tensor and layer. */
struct sensitivity_map {
    char format[24];
    int kinds, layers; /* column 0: tensors outside of layers; column i + 1: layer i */
    char kind[SENSITIVITY_KINDS][32];
    float loss[SENSITIVITY_KINDS][SENSITIVITY_LAYERS];     /* KL divergence in nats; NAN unknown */
    bool estimated[SENSITIVITY_KINDS][SENSITIVITY_LAYERS]; /* from another format of the tensor */
};
struct sensitivity {
    int maps; /* 0: not measured */
    struct sensitivity_map map[SENSITIVITY_MAPS];
    char basis[96];    /* the text and the windows it was measured on */
    char missing[240]; /* why there is none, and the command that measures it */
};

/* Requests of one workload under one config. */
struct stored_load {
    char workload[WORKLOAD_LINE], config[CONFIG_LINE];
    int sequences;
    int64_t requests;
    struct latency_histogram ttft, itl; /* time to first token, inter-token latency */
    double prefill_tok_s, decode_tok_s; /* over all requests; of a load: of one request beside the others */
    bool is_load;                       /* requests that arrive at times of their own ("load:...") */
};
/* Sets is_load, and why a histogram without values has none. Parses the workload, so a job does it. */
void stored_load_explain(struct stored_load *l);

struct load_results {
    int lines;                             /* -1: not read yet */
    struct stored_load line[LOAD_RESULTS]; /* the newest first */
    char error[200];
};

/* Estimate the cells that were not measured from another format of the same tensor, in proportion to the
 * formats' documented errors, as the search for a recipe does (advisor/recipe/), and mark them. */
void sensitivity_estimate(struct sensitivity *s);
/* The cell of the map with the largest measured loss; false: the map is empty. */
bool sensitivity_most(const struct sensitivity_map *m, int *row, int *column);
/* "ffn_down of layer 3". Returns buf. */
const char *sensitivity_name(const struct sensitivity_map *m, int row, int column, char *buf, size_t size);

/* What each setting did to the decode rate of the model on screen, in its newest A/B that changed only this
 * one and reached a verdict. */
struct setting_effect {
    int64_t run; /* 0: none */
    double ratio;
    char value[64]; /* of the setting in arm B */
};
struct setting_effects {
    struct setting_effect of[KNOB_COUNT];
};
/* Takes what a stored run of the model says about the settings that no newer one did: add the newest first.
 * Parses the run's specification, so a job does it, not a frame. */
struct run_row;
void setting_effects_add(struct setting_effects *e, const struct run_row *r);

#endif
