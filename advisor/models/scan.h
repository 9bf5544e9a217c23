/* advisor/models/scan.h - internal: how the stores are read. */
#ifndef QDYNO_ADVISOR_MODELS_SCAN_H
#define QDYNO_ADVISOR_MODELS_SCAN_H

#include "advisor/models/models.h"

enum { SCAN_DEPTH_MOST = 12, SCAN_FILES_MOST = 200000 };

/* One listing in progress. */
struct scan {
    struct model_list *out;
    struct name_index rows;    /* "device inode" of a row's first file -> number of the row */
    struct name_index folders; /* "device inode" of each folder that was read */
    struct arena names;        /* of both */
    int64_t files;             /* seen so far */
    bool failed;               /* out of memory */
};

/* Files below a folder. */
struct found_file {
    char *path; /* below the folder */
    struct file_state state;
};
struct found_files {
    struct found_file *row; /* [n] by path */
    int n, room;
};
void found_files_done(struct found_files *f);

/* Add the regular files below a folder, following links, without names that begin with a dot and without
 * folders whose names `skip` (NULL: none) tells. A folder that was read before, by any path, adds nothing: so
 * links cannot form loops. False: the folder itself cannot be read. */
typedef bool scan_skip_fn(const char *folder_name);
bool scan_skip_all(const char *folder_name); /* only the files of the folder, which counts as not read */
bool scan_walk(struct scan *s, struct found_files *out, const char *root, scan_skip_fn *skip);

/* Names of what is in a folder, sorted; none if it cannot be read, which is counted unless it does not exist.
 */
struct found_names {
    char **name; /* [n] */
    int n, room;
};
void scan_names(struct scan *s, struct found_names *out, const char *folder);
void found_names_done(struct found_names *f);

/* The path of something in a folder: in `names`, freed with the scan. NULL: out of memory. */
const char *scan_path(struct scan *s, const char *folder, const char *below);
bool scan_is_folder(const char *path);

/* Give a row to the list, which takes over its texts. state: of its first file; NULL: it has none. The row of
 * a file that the list has gets the name instead, unless it is another revision of the same repository: that
 * becomes a row of its own, which is not shown. Returns the new row; NULL: none was added. */
struct model_entry *scan_add(struct scan *s, struct model_entry *e, const struct file_state *state);

/* Files that belong together. */
struct repository {
    enum model_store store;
    const char *name;     /* "owner/repo"; "" */
    const char *revision; /* "": the main one */
    const char *commit;   /* of the hub's snapshot; NULL: none */
    const char *root;     /* folder of the files */
    bool whole_paths;     /* of STORE_PATH: the names begin with the root */
};
/* Add a row for each model, projector, importance matrix, draft head and adapter among the files. */
void scan_add_repository(struct scan *s, const struct repository *r, const struct found_files *files);

void scan_hub(struct scan *s, const char *root);
void scan_flat(struct scan *s, const char *root);
void scan_ollama(struct scan *s, const char *root);
void scan_lmstudio(struct scan *s, const char *root);
void scan_modelscope(struct scan *s, const char *root);
/* whole_paths: as in struct repository. False: the folder cannot be read. */
bool scan_folder(struct scan *s, const char *root, bool whole_paths);

/* Increase when a header is read differently. */
enum { MODELS_CACHE_VERSION = 2 };

/* Read the headers of all rows, from the cache where it has them. Errors: ERR_NOMEM, ERR_CANCELLED. */
enum err_code headers_read(struct model_list *l, const struct models_options *o, struct err *why);
/* Read one, with figures if o has them. False: another attempt may have another result. */
bool header_read(struct model_entry *e, const struct models_options *o);

#endif
