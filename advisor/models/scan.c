/* scan.c - walks folders and collects rows.
 *
 * A store may be hostile or broken: links to nowhere, loops of links, folders without permission, millions of
 * files. All of these are counted and left out. Each folder is read once, whatever links lead to it. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "advisor/models/scan.h"

static bool state_of(const char *path, struct file_state *out, bool *folder)
{
    struct stat st;
    if (stat(path, &st)) return false;
    *folder = S_ISDIR(st.st_mode);
    *out = (struct file_state){ .device = (uint64_t)st.st_dev,
                                .inode = (uint64_t)st.st_ino,
                                .size = (int64_t)st.st_size,
                                .modified_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
                                .status_ns = (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec };
    errno = 0;
    return *folder || S_ISREG(st.st_mode);
}

bool scan_is_folder(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISDIR(st.st_mode);
}

const char *scan_path(struct scan *s, const char *folder, const char *below)
{
    const size_t n = strlen(folder), m = strlen(below);
    char *path = arena_alloc(&s->names, n + m + 2);
    s->failed |= !path;
    if (path) snprintf(path, n + m + 2, "%s%s%s", folder, m ? "/" : "", below);
    return path;
}

/* Number under which a file or folder is known; -1: it is new, and known as `number` from now on. */
static int64_t known_as(struct scan *s, struct name_index *index, const struct file_state *st, int64_t number)
{
    char text[64];
    const int n = snprintf(text, sizeof text, "%llu %llu", (unsigned long long)st->device,
                           (unsigned long long)st->inode);
    const int64_t known = name_index_find(index, text, (size_t)n);
    if (known >= 0) return known;
    const char *kept = arena_strdup(&s->names, text);
    s->failed |= !kept || name_index_add(index, kept, (size_t)n, number) == NAME_NO_MEMORY;
    return -1;
}

/* ---------------------------------------------------------------- folders */

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct found_file *)a)->path, ((const struct found_file *)b)->path);
}

void found_files_done(struct found_files *f)
{
    for (int i = 0; i < f->n; i++) free(f->row[i].path);
    free(f->row);
    *f = (struct found_files){ .n = 0 };
}

struct walk {
    struct scan *s;
    struct found_files *out;
    scan_skip_fn *skip;
    struct str path; /* of the folder that is read now */
    size_t root;     /* bytes of path that are not below the root */
};

static void add_file(struct walk *w, const struct file_state *st)
{
    struct found_files *f = w->out;
    if (++w->s->files > SCAN_FILES_MOST) {
        w->s->out->skipped[SKIPPED_MANY]++;
        return;
    }
    if (!array_room(&f->row, &f->room, (int64_t)f->n + 1, sizeof *f->row)) {
        w->s->failed = true;
        return;
    }
    char *path = strdup(str_text(&w->path) + w->root);
    w->s->failed |= !path;
    if (path) f->row[f->n++] = (struct found_file){ .path = path, .state = *st };
}

static bool walk_folder(struct walk *w, int depth);

static void walk_name(struct walk *w, const char *name, int depth)
{
    struct file_state st;
    const size_t at = w->path.len;
    bool folder = false;
    str_printf(&w->path, "/%s", name);
    w->s->failed |= w->path.failed;
    if (w->s->failed) return;
    if (!state_of(str_text(&w->path), &st, &folder)) {
        /* what is neither file nor folder, such as a socket, leaves errno at 0 */
        w->s->out->skipped[SKIPPED_DANGLING] += errno == ENOENT || errno == ELOOP;
        w->s->out->skipped[SKIPPED_UNREADABLE] += errno == EACCES;
    } else if (!folder) {
        add_file(w, &st);
    } else if (!w->skip || !w->skip(name)) {
        if (depth == SCAN_DEPTH_MOST)
            w->s->out->skipped[SKIPPED_DEEP]++;
        else if (known_as(w->s, &w->s->folders, &st, 0) < 0)
            walk_folder(w, depth + 1);
    }
    w->path.len = at;
    w->path.data[at] = '\0';
}

static bool walk_folder(struct walk *w, int depth)
{
    DIR *d = opendir(str_text(&w->path));
    if (!d) {
        w->s->out->skipped[SKIPPED_UNREADABLE] += errno != ENOENT;
        return false;
    }
    for (const struct dirent *e; (e = readdir(d)) && !w->s->failed && w->s->files <= SCAN_FILES_MOST;)
        if (e->d_name[0] != '.') walk_name(w, e->d_name, depth);
    closedir(d);
    return true;
}

bool scan_skip_all(const char *folder_name)
{
    (void)folder_name;
    return true;
}

bool scan_walk(struct scan *s, struct found_files *out, const char *root, scan_skip_fn *skip)
{
    struct walk w = { .s = s, .out = out, .skip = skip };
    struct file_state st;
    bool folder = false;
    if (!state_of(root, &st, &folder) || !folder) return false;
    if (skip != scan_skip_all && known_as(s, &s->folders, &st, 0) >= 0) return true;
    str_append(&w.path, root);
    w.root = w.path.len + 1;
    s->failed |= w.path.failed;
    const bool read = !s->failed && walk_folder(&w, 0);
    str_free(&w.path);
    if (out->n) qsort(out->row, (size_t)out->n, sizeof *out->row, by_path);
    return read;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void scan_names(struct scan *s, struct found_names *out, const char *folder)
{
    *out = (struct found_names){ .n = 0 };
    DIR *d = folder ? opendir(folder) : NULL;
    if (!d) {
        s->out->skipped[SKIPPED_UNREADABLE] += folder && errno != ENOENT && errno != ENOTDIR;
        return;
    }
    for (const struct dirent *e; (e = readdir(d)) && !s->failed;) {
        if (e->d_name[0] == '.') continue;
        if (++s->files > SCAN_FILES_MOST) {
            s->out->skipped[SKIPPED_MANY]++;
            break;
        }
        char *name = array_room(&out->name, &out->room, (int64_t)out->n + 1, sizeof *out->name)
                         ? strdup(e->d_name)
                         : NULL;
        s->failed |= !name;
        if (name) out->name[out->n++] = name;
    }
    closedir(d);
    if (out->n) qsort(out->name, (size_t)out->n, sizeof *out->name, by_text);
}

void found_names_done(struct found_names *f)
{
    for (int i = 0; i < f->n; i++) free(f->name[i]);
    free(f->name);
    *f = (struct found_names){ .n = 0 };
}

/* ---------------------------------------------------------------- rows */

static void entry_done(struct model_entry *e)
{
    free(e->name);
    free(e->also);
    free(e->path);
    free(e->file);
    free(e->repo);
    free(e->revision);
    *e = (struct model_entry){ .name = NULL };
}

void models_done(struct model_list *l)
{
    for (int i = 0; i < l->n + l->revisions; i++) entry_done(&l->row[i]);
    free(l->row);
    *l = (struct model_list){ .n = 0 };
}

static bool is_other_revision(const struct model_entry *row, const struct model_entry *e)
{
    return row->store == STORE_HF && e->store == STORE_HF && !strcmp(row->repo, e->repo) &&
           strcmp(row->revision, e->revision) != 0;
}

/* The list has this file: the row gets the other name. */
static void add_name(struct scan *s, struct model_entry *row, const struct model_entry *e)
{
    struct str names = { 0 };
    if (!strcmp(row->name, e->name) || (row->store == e->store && *row->repo && !strcmp(row->repo, e->repo) &&
                                        !strcmp(row->file, e->file) && !strcmp(row->revision, e->revision)))
        return;
    if (row->also) str_printf(&names, "%s\n", row->also);
    str_append(&names, e->name);
    char *text = str_take(&names);
    s->failed |= !text;
    if (!text) return;
    free(row->also);
    row->also = text;
}

struct model_entry *scan_add(struct scan *s, struct model_entry *e, const struct file_state *state)
{
    struct model_list *l = s->out;
    struct model_entry *row = NULL;
    if (!e->name || !e->file || !e->repo || !e->revision) s->failed = true;
    const int64_t known = state && !s->failed ? known_as(s, &s->rows, state, l->n) : -1;
    const bool revision = known >= 0 && is_other_revision(&l->row[known], e);
    if (!s->failed && known >= 0 && !revision) {
        add_name(s, &l->row[known], e);
    } else if (!s->failed && array_room(&l->row, &l->room, (int64_t)l->n + 1, sizeof *l->row)) {
        e->number = l->n;
        row = &l->row[l->n++];
        *row = *e;
        row->hidden = revision;
        for (int i = 0; i < MODEL_FIGURES; i++) row->header.figure[i] = NAN;
        return row;
    } else {
        s->failed = true;
    }
    entry_done(e);
    return NULL;
}
