/* stores.c - the layouts of the hub's cache, llama.cpp's folder, LM Studio, ModelScope and plain folders.
 * Sources: huggingface_hub (file_download.py, constants.py), llama.cpp (common/download.cpp), modelscope
 * (hub/utils/utils.py), LM Studio's documentation. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/models/scan.h"

/* ---------------------------------------------------------------- the hub's cache */

enum { COMMIT_HEX = 40, COMMIT_SHOWN = 12 };

/* A commit and a branch that names it; a commit with several branches has a row for each. */
struct revision {
    const char *commit;
    char branch[128]; /* "": no branch names it; "main" */
};
struct revisions {
    struct revision *row;
    int n, room;
};

static struct revision *revision_add(struct scan *s, struct revisions *r, const char *commit)
{
    if (!array_room(&r->row, &r->room, (int64_t)r->n + 1, sizeof *r->row)) {
        s->failed = true;
        return NULL;
    }
    r->row[r->n] = (struct revision){ .commit = commit };
    return &r->row[r->n++];
}

static void branch_add(struct scan *s, struct revisions *r, const char *commit, const char *branch)
{
    for (int i = 0; i < r->n; i++) {
        struct revision *row = &r->row[i];
        if (strcmp(row->commit, commit)) continue;
        if (*row->branch) row = revision_add(s, r, row->commit);
        if (row && !str_put(row->branch, sizeof row->branch, branch)) row->branch[0] = '\0';
        return;
    }
}

/* refs/BRANCH has the commit; a branch with slashes is in folders. */
static void read_refs(struct scan *s, struct revisions *r, const char *repository)
{
    struct found_files refs = { .n = 0 };
    const char *folder = scan_path(s, repository, "refs");
    if (folder) scan_walk(s, &refs, folder, NULL);
    for (int i = 0; i < refs.n && !s->failed; i++) {
        char *text = NULL;
        const char *path = scan_path(s, folder, refs.row[i].path);
        if (!path || file_read(&text, NULL, path, 256, NULL)) continue;
        text[strspn(text, "0123456789abcdef")] = '\0';
        branch_add(s, r, text, refs.row[i].path);
        free(text);
    }
    found_files_done(&refs);
}

/* Is this the revision that a name without one means? The main branch; where it is not here, the only one. */
static bool is_main(const struct revisions *r, const struct revision *row)
{
    bool any = false, same = true;
    for (int i = 0; i < r->n; i++) {
        any |= !strcmp(r->row[i].branch, "main");
        same &= !strcmp(r->row[i].commit, r->row[0].commit);
    }
    return any ? !strcmp(row->branch, "main") : same && row == r->row;
}

/* A snapshot under each name of its commit: main, the other branches, or the commit. */
static void add_snapshot(struct scan *s, const char *name, const char *snapshots, const struct revisions *r,
                         const char *commit)
{
    struct found_files files = { .n = 0 };
    char shown[COMMIT_SHOWN + 1];
    const char *root = scan_path(s, snapshots, commit);
    snprintf(shown, sizeof shown, "%.*s", COMMIT_SHOWN, commit);
    if (root) scan_walk(s, &files, root, NULL);
    for (int main_first = 1; main_first >= 0; main_first--) /* its names come first */
        for (int i = 0; i < r->n && !s->failed; i++) {
            const struct revision *row = &r->row[i];
            if (strcmp(row->commit, commit) || is_main(r, row) != main_first) continue;
            struct repository repository = {
                .store = STORE_HF, .name = name, .revision = "", .commit = commit, .root = root
            };
            if (main_first) scan_add_repository(s, &repository, &files);
            if (main_first && (!*row->branch || !strcmp(row->branch, "main"))) continue;
            repository.revision = *row->branch ? row->branch : shown;
            scan_add_repository(s, &repository, &files);
        }
    found_files_done(&files);
}

static bool commit_is_main(const struct revisions *r, const char *commit)
{
    for (int i = 0; i < r->n; i++)
        if (!strcmp(r->row[i].commit, commit) && is_main(r, &r->row[i])) return true;
    return false;
}

/* "models--OWNER--NAME" to "OWNER/NAME"; a name may itself contain "--". */
static bool repository_name(char *out, size_t size, const char *folder)
{
    if (!str_starts(folder, "models--")) return false;
    folder += strlen("models--");
    const char *middle = strstr(folder, "--");
    const int n = middle ? snprintf(out, size, "%.*s/%s", (int)(middle - folder), folder, middle + 2)
                         : snprintf(out, size, "%s", folder);
    return *folder && n > 0 && (size_t)n < size;
}

static void add_hub_repository(struct scan *s, const char *name, const char *folder)
{
    struct found_names commits;
    const char *snapshots = scan_path(s, folder, "snapshots");
    scan_names(s, &commits, snapshots);
    struct revisions r = { .n = 0 };
    for (int i = 0; i < commits.n && !s->failed; i++)
        if (strlen(commits.name[i]) == COMMIT_HEX) revision_add(s, &r, commits.name[i]);
    const int snapshots_here = r.n;
    read_refs(s, &r, folder);
    for (int main_first = 1; main_first >= 0; main_first--)
        for (int i = 0; i < snapshots_here && !s->failed; i++)
            if (commit_is_main(&r, r.row[i].commit) == main_first)
                add_snapshot(s, name, snapshots, &r, r.row[i].commit);
    free(r.row);
    found_names_done(&commits);
}

void scan_hub(struct scan *s, const char *root)
{
    struct found_names names;
    char name[256];
    scan_names(s, &names, root);
    for (int i = 0; i < names.n && !s->failed; i++) {
        const char *folder = repository_name(name, sizeof name, names.name[i])
                                 ? scan_path(s, root, names.name[i])
                                 : NULL;
        if (folder) add_hub_repository(s, name, folder);
    }
    found_names_done(&names);
}

/* ---------------------------------------------------------------- the others */

void scan_flat(struct scan *s, const char *root)
{
    struct found_files files = { .n = 0 };
    scan_walk(s, &files, root, scan_skip_all);
    scan_add_repository(
        s, &(struct repository){ .store = STORE_LLAMACPP, .name = "", .revision = "", .root = root }, &files);
    found_files_done(&files);
}

/* OWNER/NAME/... below root, each a repository. plain: what a folder's name means; NULL: itself. */
static void scan_owners(struct scan *s, enum model_store store, const char *root, void (*plain)(char *name))
{
    struct found_names owners, models;
    scan_names(s, &owners, root);
    for (int i = 0; i < owners.n && !s->failed; i++) {
        const char *owner = scan_path(s, root, owners.name[i]);
        scan_names(s, &models, owner);
        for (int k = 0; k < models.n && !s->failed; k++) {
            struct found_files files = { .n = 0 };
            char name[256];
            const char *folder = scan_path(s, owner, models.name[k]);
            if (!folder || !scan_is_folder(folder)) continue;
            snprintf(name, sizeof name, "%s/%s", owners.name[i], models.name[k]);
            if (plain) plain(name);
            scan_walk(s, &files, folder, NULL);
            scan_add_repository(
                s, &(struct repository){ .store = store, .name = name, .revision = "", .root = folder },
                &files);
            found_files_done(&files);
        }
        found_names_done(&models);
    }
    found_names_done(&owners);
}

void scan_lmstudio(struct scan *s, const char *root)
{
    scan_owners(s, STORE_LMSTUDIO, root, NULL);
}

/* ModelScope writes "___" for a dot, because Python could not import from such a folder. */
static void put_dots(char *name)
{
    char *to = name;
    for (const char *p = name; *p;) {
        if (str_starts(p, "___")) {
            *to++ = '.';
            p += 3;
        } else {
            *to++ = *p++;
        }
    }
    *to = '\0';
}

void scan_modelscope(struct scan *s, const char *root)
{
    static const char *const BELOW[] = { "models", "hub/models", "hub", "" };
    /* the newer layout first: the older one would take "models" for an owner, but its folders are read then
     */
    for (size_t i = 0; i < COUNT_OF(BELOW) && !s->failed; i++) {
        const char *folder = scan_path(s, root, BELOW[i]);
        if (folder) scan_owners(s, STORE_MODELSCOPE, folder, put_dots);
    }
}

/* A folder of the user may contain the stores of other programs. */
static bool skip_stores(const char *folder_name)
{
    return str_starts(folder_name, "models--") || !strcmp(folder_name, "blobs") ||
           !strcmp(folder_name, "manifests");
}

bool scan_folder(struct scan *s, const char *root, bool whole_paths)
{
    struct found_files files = { .n = 0 };
    scan_hub(s, root);
    scan_ollama(s, root);
    const bool read = scan_walk(s, &files, root, skip_stores);
    scan_add_repository(
        s,
        &(struct repository){
            .store = STORE_PATH, .name = "", .revision = "", .root = root, .whole_paths = whole_paths },
        &files);
    found_files_done(&files);
    return read;
}
