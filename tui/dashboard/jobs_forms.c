/* tui/dashboard/jobs_forms.c - data for the suggestions of forms: the files of a folder and what each one is,
 * stored baselines, and memory and speed estimates for config lines. Only headers of model files are read. */
#include "tui/dashboard/background.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "advisor/predict/predict.h"
#include "base/cut/cut.h"
#include "engine/import/import.h"
#include "tui/forms/forms.h"

/* ---------------------------------------------------------------- one file */

/* Find out whether a GGUF file is a model that runs here, calibration statistics, or neither, and why. */
static void file_describe_gguf(struct file_entry *e, const char *path)
{
    struct err why = { 0 };
    struct gguf *g = NULL;
    struct model_shape shape;
    struct memory_plan plan;
    struct config c;
    if (model_file_open(&g, path, &why)) {
        e->kind = FILE_NO_MODEL;
        snprintf(e->trouble, sizeof e->trouble, "%.*s", (int)sizeof e->trouble - 1, why.message);
        return;
    }
    e->bytes = gguf_file_bytes(g);
    const struct gguf_string type = gguf_get_string(g, "general.type");
    if (gguf_string_is(type, "imatrix")) {
        e->kind = FILE_CALIBRATION;
        snprintf(e->trouble, sizeof e->trouble, "activation statistics (qdyno calibrate), not a model");
    } else if (model_shape_read(&shape, g, &why)) {
        e->kind = FILE_NO_MODEL;
        snprintf(e->trouble, sizeof e->trouble, "%.*s", (int)sizeof e->trouble - 1, why.message);
    } else {
        snprintf(e->arch, sizeof e->arch, "%.*s", (int)sizeof e->arch - 1, shape.arch);
        snprintf(e->format, sizeof e->format, "%.*s", (int)sizeof e->format - 1, quantization_short(&shape));
        e->params = shape.params;
        config_default(&c);
        if (recipe_plan_memory(&plan, g, &c, 0, 1, &why))
            snprintf(e->trouble, sizeof e->trouble, "%.*s", (int)sizeof e->trouble - 1, why.message);
        else
            e->needs_bytes = plan.total;
    }
    gguf_close(g);
}

/* ---------------------------------------------------------------- a folder */

/* A split model is listed once, by its first part: "model-00002-of-00003.gguf" is skipped. */
static bool file_is_later_part(const char *name)
{
    const size_t tail = strlen("-00001-of-00001.gguf"), n = strlen(name);
    int part, of;
    return n > tail && sscanf(name + n - tail, "-%5d-of-%5d.gguf", &part, &of) == 2 && part > 1;
}

static int file_rank(const struct file_entry *e)
{
    return !strcmp(e->name, "../") ? 0 : e->kind == FILE_FOLDER ? 1 : e->kind == FILE_MODEL ? 2 : 3;
}

static int file_by_name(const void *a, const void *b)
{
    const struct file_entry *x = a, *y = b;
    return file_rank(x) != file_rank(y) ? file_rank(x) - file_rank(y) : strcasecmp(x->name, y->name);
}

static bool file_entry_read(struct file_entry *e, int dir, const char *name)
{
    struct stat st;
    if (strlen(name) >= sizeof e->name - 1 || fstatat(dir, name, &st, 0)) return false;
    *e = (struct file_entry){ .kind = S_ISDIR(st.st_mode)       ? FILE_FOLDER
                                      : str_ends(name, ".gguf") ? FILE_MODEL
                                                                : FILE_OTHER,
                              .bytes = S_ISREG(st.st_mode) ? st.st_size : -1,
                              .needs_bytes = -1 };
    snprintf(e->name, sizeof e->name, "%s%s", name, e->kind == FILE_FOLDER ? "/" : "");
    e->known = e->kind != FILE_MODEL;
    return S_ISDIR(st.st_mode) || S_ISREG(st.st_mode);
}

/* All entries of a folder, sorted. The caller frees *out and drops what it has no room for. */
static enum err_code folder_list(struct file_entry **out, int *n, const char *path, struct err *why)
{
    int cap = 0;
    DIR *dir = opendir(path);
    *out = NULL;
    *n = 0;
    if (!dir) return err_set(why, err_of_errno(errno), "%s: %s", path, strerror(errno));
    for (struct dirent *d; (d = readdir(dir));) {
        if (d->d_name[0] == '.' && strcmp(d->d_name, "..") != 0) continue;
        if (file_is_later_part(d->d_name)) continue;
        if (*n == cap) {
            cap = MAX(64, 2 * cap);
            struct file_entry *more = reallocarray(*out, (size_t)cap, sizeof *more);
            if (!more) break;
            *out = more;
        }
        if (file_entry_read(&(*out)[*n], dirfd(dir), d->d_name)) (*n)++;
    }
    closedir(dir);
    if (*n) qsort(*out, (size_t)*n, sizeof **out, file_by_name);
    return ERR_OK;
}

/* Publish the folder unless another one was requested meanwhile (false). */
static bool folder_publish(struct background *b, const struct folder *f, int64_t number)
{
    background_lock(b);
    const bool wanted = b->folder_wanted == number;
    if (wanted) b->known.folder = *f;
    background_unlock_if(b, wanted);
    return wanted;
}

static void place_add(struct folder *f, const char *as_known, const char *note)
{
    struct stat st;
    char path[PATH_MAX];
    if (f->count == FOLDER_ENTRIES || !realpath(as_known, path) || stat(path, &st)) return;
    struct file_entry *e = &f->entry[f->count];
    if (strlen(path) >= sizeof e->name - 1) return;
    *e = (struct file_entry){ .kind = S_ISDIR(st.st_mode) ? FILE_FOLDER : FILE_MODEL,
                              .bytes = S_ISREG(st.st_mode) ? st.st_size : -1,
                              .needs_bytes = -1,
                              .known = S_ISDIR(st.st_mode) };
    snprintf(e->name, sizeof e->name, "%s%s", path, S_ISDIR(st.st_mode) && !str_ends(path, "/") ? "/" : "");
    snprintf(e->note, sizeof e->note, "%s", note);
    for (int i = 0; i < f->count; i++)
        if (!strcmp(f->entry[i].name, e->name)) return;
    f->count++;
}

/* Add the model file that a stored run used. */
static void place_add_run(struct folder *f, const struct run_row *r)
{
    json_t *spec = NULL;
    if (!r->spec_json || json_parse(&spec, r->spec_json, strlen(r->spec_json), NULL)) return;
    const char *path = json_get_str(spec, "model", "");
    if (*path) place_add(f, path, "measured before");
    json_decref(spec);
}

static void folder_list_places(struct background *b, struct folder *f)
{
    enum { RUNS = 200 };
    char *path = NULL, here[512];
    struct db *d = NULL;
    struct run_row *rows = NULL;
    int n = 0;
    if (!file_share(&path, "models/bundled.gguf", NULL)) place_add(f, path, "bundled with qdyno");
    free(path);
    if (!db_open(&d, b->db_path, NULL) && db_run_find(d, NULL, RUNS, &rows, &n, NULL)) n = 0;
    for (int i = 0; i < n; i++) {
        place_add_run(f, &rows[i]);
        run_row_free(&rows[i]);
    }
    free(rows);
    db_close(d);
    if (getcwd(here, sizeof here)) place_add(f, here, "this folder");
    if (getenv("HOME")) place_add(f, getenv("HOME"), "home");
    place_add(f, "/", "root folder");
}

static void folder_read(struct folder *f, const char *path)
{
    struct err why = { 0 };
    struct file_entry *all = NULL;
    int n = 0;
    if (folder_list(&all, &n, path, &why))
        snprintf(f->error, sizeof f->error, "%.*s", (int)sizeof f->error - 1, why.message);
    f->count = MIN(n, (int)FOLDER_ENTRIES);
    f->left_out = n - f->count;
    if (f->count) memcpy(f->entry, all, sizeof *all * (size_t)f->count);
    free(all);
}

void job_list_folder(struct background *b, const struct job *j)
{
    struct folder *f = calloc(1, sizeof *f);
    if (!f) {
        background_announce(b, true, "not enough memory for a folder");
        return;
    }
    snprintf(f->path, sizeof f->path, "%.*s", (int)sizeof f->path - 1, j->text);
    if (f->path[0])
        folder_read(f, f->path);
    else
        folder_list_places(b, f);
    f->read = true;
    bool wanted = folder_publish(b, f, j->id);
    /* The names are published first, then each file as its header is read. */
    for (int i = 0; i < f->count && wanted; i++) {
        struct file_entry *e = &f->entry[i];
        char path[PATH_MAX];
        if (e->known) continue;
        snprintf(path, sizeof path, "%s%s", f->path, e->name);
        file_describe_gguf(e, path);
        e->known = true;
        wanted = folder_publish(b, f, j->id);
    }
    free(f);
}

/* ---------------------------------------------------------------- baselines */

void background_read_baselines(struct background *b, struct db *d)
{
    struct err why;
    struct baseline_row *rows = NULL;
    struct baseline_list found = { .count = 0 };
    int n = 0;
    /* After an error forms suggest none; the command itself reports it. */
    if (db_baseline_list(d, &rows, &n, &why)) return;
    for (int i = 0; i < n && found.count < BASELINES_KNOWN; i++, found.count++) {
        snprintf(found.row[i].name, sizeof found.row[i].name, "%s", rows[i].name);
        text_cutf(found.row[i].about, sizeof found.row[i].about, "%s of %s, %s", rows[i].config,
                  rows[i].model_name, rows[i].workload);
    }
    free(rows);
    background_lock(b);
    b->known.baselines = found;
    background_unlock(b);
}

/* ---------------------------------------------------------------- estimates for config lines */

struct estimate_for {
    const struct gguf *g;
    int ctx, sequences;
};

static void estimate_memory(const struct estimate_for *x, const char *line, int64_t *bytes, char *refusal,
                            size_t size)
{
    struct config c;
    struct memory_plan plan;
    struct err why = { 0 };
    *bytes = -1;
    enum err_code rc = config_parse(&c, line, &why);
    if (rc || *config_text(&c, KNOB_MODEL) || config_is_foreign(&c))
        return; /* the form shows parse errors; a line with model= is about another file */
    rc = recipe_plan_memory(&plan, x->g, &c, x->ctx, x->sequences, &why);
    if (rc)
        snprintf(refusal, size, "%s", why.message);
    else
        *bytes = plan.total;
}

/* The speed is predicted as for the advice, with what earlier runs on this machine taught the model of costs.
 */
static void estimate_line(struct line_estimates *out, const struct estimate_for *x, const struct snapshot *s,
                          const char *db_path)
{
    struct err why;
    struct db *d = NULL;
    struct correction *correction = NULL;
    struct advice *list = NULL;
    int n = 0;
    const char *const lines[] = { out->text };
    estimate_memory(x, out->text, &out->total_bytes, out->refusal, sizeof out->refusal);
    out->decode_tok_s = out->low = out->high = NAN;
    if (out->total_bytes < 0 || !s->machine_known || !s->ceilings_known) return;
    if (!db_open(&d, db_path, &why) && correction_load(&correction, d, s->machine.id, &s->ceilings, &why))
        correction = NULL; /* the log of the advice says why */
    db_close(d);
    const struct advise_options options = {
        .goal = GOAL_BALANCED, .correction = correction, .line = lines, .lines = 1
    };
    if (!advise(&list, &n, s->model_path, &s->machine, &s->ceilings, &options, &why) && n) {
        out->decode_tok_s = list[0].prediction.decode_tok_s.estimate;
        out->low = list[0].prediction.decode_tok_s.lower;
        out->high = list[0].prediction.decode_tok_s.upper;
    }
    free(list);
    correction_free(correction);
}

static void estimate_variants(struct line_estimates *out, const struct estimate_for *x,
                              const struct suggestions *c)
{
    char line[2 * FORM_TEXT];
    for (int i = 0; i < c->n && out->count < LINES_ESTIMATED; i++) {
        const struct suggestion *one = &c->list[i];
        if (one->more || one->refusal[0] || strlen(one->text) >= sizeof out->variant[0].text) continue;
        snprintf(line, sizeof line, "%.*s%s%s", c->from, out->text, one->text, out->text + c->to);
        memset(&out->variant[out->count], 0, sizeof out->variant[0]);
        snprintf(out->variant[out->count].text, sizeof out->variant[0].text, "%s", one->text);
        estimate_memory(x, line, &out->variant[out->count].total_bytes, out->variant[out->count].refusal,
                        sizeof out->variant[0].refusal);
        out->count++;
    }
}

void job_estimate_lines(struct background *b, const struct job *j)
{
    struct snapshot *s = malloc(sizeof *s);
    struct suggestions *c = malloc(sizeof *c);
    struct line_estimates *out = calloc(1, sizeof *out);
    const struct form_field *field = &j->form->field[j->form->focus];
    struct gguf *g = NULL;
    struct workload w = { 0 };
    struct err why;
    if (s && c && out && !model_file_open(&g, j->text, &why)) {
        const bool known = !workload_parse(&w, j->form->field[AB_WORKLOAD].text, &why) && !w.train;
        struct config usual;
        config_default(&usual);
        const struct estimate_for x = { g, known ? workload_ctx(&w) : 0,
                                        known ? workload_sequences_for(&w, &usual) : 1 };
        background_copy(b, s);
        str_put(out->text, sizeof out->text, field->text);
        out->cursor = field->cursor;
        const struct suggestion_source from = snapshot_suggestion_source(s, j->form);
        suggestions_make(c, &from);
        estimate_line(out, &x, s, b->db_path);
        estimate_variants(out, &x, c);
        background_lock(b);
        b->known.estimates = *out;
        background_unlock(b);
    }
    gguf_close(g);
    free(out);
    free(c);
    free(s);
}
