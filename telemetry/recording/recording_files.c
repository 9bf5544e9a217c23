/* telemetry/recording/recording_files.c - a machine's small files as one text that a person can read and
 * correct: see recording_files.h. */
#include "telemetry/recording/recording_files.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "telemetry/sysfs/sysfs.h"

/* ---------------------------------------------------------------- collecting */

static struct recorded_file *find(struct recorded_files *f, const char *path)
{
    for (size_t i = 0; i < f->count; i++)
        if (!strcmp(f->file[i].path, path)) return &f->file[i];
    return NULL;
}

static void replace(struct recorded_files *f, struct recorded_file *file, const void *bytes, size_t size)
{
    free(file->bytes);
    file->bytes = malloc(size + 1);
    file->size = file->bytes ? size : 0;
    f->failed |= !file->bytes;
    if (file->bytes && size) memcpy(file->bytes, bytes, size);
}

void recorded_files_add(struct recorded_files *f, const char *path, const void *bytes, size_t size)
{
    struct recorded_file *had = find(f, path);
    if (had) {
        const bool begins = !had->bytes || (size > had->size && !memcmp(had->bytes, bytes, had->size));
        if (bytes && begins) replace(f, had, bytes, size);
        return;
    }
    if (f->count == f->cap) {
        const size_t cap = f->cap ? 2 * f->cap : 256;
        struct recorded_file *more = realloc(f->file, cap * sizeof *more);
        if (!more) {
            f->failed = true;
            return;
        }
        f->file = more;
        f->cap = cap;
    }
    struct recorded_file new = { .path = strdup(path) };
    if (new.path && bytes) replace(f, &new, bytes, size);
    if (new.path && (!bytes || new.bytes)) {
        f->file[f->count++] = new;
    } else {
        free(new.path);
        f->failed = true;
    }
}

void recorded_files_append(struct recorded_files *f, const char *path, const void *bytes, size_t size)
{
    struct recorded_file *had = find(f, path);
    if (!had || !had->bytes || !had->size) {
        recorded_files_add(f, path, bytes, size);
    } else if (!memmem(had->bytes, had->size, bytes, size)) {
        struct str all = { 0 };
        str_append_n(&all, had->bytes, had->size);
        str_append_n(&all, bytes, size);
        replace(f, had, str_text(&all), all.len);
        f->failed |= all.failed;
        str_free(&all);
    }
}

void recorded_files_free(struct recorded_files *f)
{
    for (size_t i = 0; i < f->count; i++) {
        free(f->file[i].path);
        free(f->file[i].bytes);
    }
    free(f->file);
    *f = (struct recorded_files){ 0 };
}

/* ---------------------------------------------------------------- writing */

static int by_path(const void *a, const void *b)
{
    return strverscmp(((const struct recorded_file *)a)->path, ((const struct recorded_file *)b)->path);
}

static bool is_text(const struct recorded_file *f)
{
    for (size_t i = 0; i < f->size; i++) {
        const unsigned char c = (unsigned char)f->bytes[i];
        if (c < ' ' && c != '\n' && c != '\t') return false;
    }
    return true;
}

static const char CPU[] = "/sys/devices/system/cpu/cpu";

/* The number behind CPU and what follows it; false for every other path. */
static bool is_of_processor(const char *path, long *cpu, const char **rest)
{
    char *end;
    if (!str_starts(path, CPU) || !isdigit((unsigned char)path[sizeof CPU - 1])) return false;
    *cpu = strtol(path + sizeof CPU - 1, &end, 10);
    *rest = end;
    return true;
}

static bool same_content(const struct recorded_file *a, const struct recorded_file *b)
{
    return !a->bytes == !b->bytes && a->size == b->size &&
           (!a->bytes || !memcmp(a->bytes, b->bytes, a->size));
}

/* "0-3,8" of ascending numbers. */
struct list {
    struct str text;
    long first, last; /* of the open range; last -1: none */
};
static void list_add(struct list *l, long n)
{
    if (l->last >= 0 && n == l->last + 1) {
        l->last = n;
        return;
    }
    if (l->last > l->first) str_printf(&l->text, "-%ld", l->last);
    if (n >= 0) str_printf(&l->text, "%s%ld", l->text.len ? "," : "", n);
    l->first = l->last = n;
}

/* The path, or one path for all processors whose file of that name holds the same; those are marked done. */
static void write_path(const struct recorded_files *f, size_t at, bool *done, struct str *out)
{
    long cpu, other;
    const char *rest, *other_rest;
    if (!is_of_processor(f->file[at].path, &cpu, &rest)) {
        str_append(out, f->file[at].path);
        return;
    }
    struct list list = { .last = -1 };
    int n = 0;
    for (size_t i = at; i < f->count; i++) {
        if (done[i] || !is_of_processor(f->file[i].path, &other, &other_rest) || strcmp(rest, other_rest) ||
            !same_content(&f->file[at], &f->file[i]))
            continue;
        list_add(&list, other);
        done[i] = true;
        n++;
    }
    list_add(&list, -2); /* closes the range */
    if (n > 1)
        str_printf(out, "%s[%s]%s", CPU, str_text(&list.text), rest);
    else
        str_append(out, f->file[at].path);
    str_free(&list.text);
}

static void write_content(const struct recorded_file *f, struct str *out)
{
    if (!is_text(f)) {
        for (size_t i = 0; i < f->size; i++)
            str_printf(out, "%s%02x", i % 48 ? "" : i ? "\n:" : ":", (unsigned char)f->bytes[i]);
        str_append(out, "\n");
        return;
    }
    size_t end = f->size; /* what ends a line is the text's, not the file's */
    while (end && f->bytes[end - 1] == '\n') end--;
    if (!end) str_append(out, " \n"); /* a path without content would share that of the next */
    for (size_t i = 0; i < end;) {
        const char *newline = memchr(f->bytes + i, '\n', end - i);
        const size_t n = newline ? (size_t)(newline - f->bytes) - i : end - i;
        str_append(out, " ");
        str_append_n(out, f->bytes + i, n);
        str_append(out, "\n");
        i += n + 1;
    }
}

void recorded_files_write(struct recorded_files *f, struct str *out)
{
    bool *done = calloc(f->count + 1, 1);
    if (!done) {
        f->failed = true;
        return;
    }
    qsort(f->file, f->count, sizeof *f->file, by_path);
    for (size_t i = 0; i < f->count; i++) {
        const size_t n = strlen(f->file[i].path);
        const bool has_below = i + 1 < f->count && str_starts(f->file[i + 1].path, f->file[i].path) &&
                               f->file[i + 1].path[n] == '/';
        if (done[i] || (!f->file[i].bytes && has_below)) continue; /* a folder that its files make */
        write_path(f, i, done, out);
        if (f->file[i].bytes) {
            str_append(out, "\n");
            write_content(&f->file[i], out);
        } else {
            str_append(out, "/\n");
        }
    }
    free(done);
    f->failed |= out->failed;
}

/* ---------------------------------------------------------------- unpacking */

/* A few bytes of text may stand for very many: more than any machine has is refused before it is written. */
enum { FILES_MOST = 1 << 16, BYTES_MOST = 256 << 20 };

struct unpack {
    const char *root;
    int line;
    size_t files, bytes; /* so far */
    char *path[64];      /* waiting for their content; one may stand for many */
    int paths;
    struct str content;
    bool is_content; /* content follows the paths: the next path begins a new entry */
};

static enum err_code write_one(struct unpack *u, const char *path, struct err *why)
{
    char full[PATH_MAX];
    if (snprintf(full, sizeof full, "%s%s", u->root, path) >= (int)sizeof full)
        return err_set(why, ERR_FORMAT, "line %d: path too long", u->line);
    char *slash = strrchr(full, '/');
    const bool folder = !slash[1];
    *slash = '\0';
    const enum err_code rc = file_make_dirs(full, why);
    if (rc || folder) return rc;
    *slash = '/';
    FILE *out = fopen(full, "wx");
    if (!out && errno == EEXIST)
        return err_set(why, ERR_FORMAT, "line %d: '%s' a second time", u->line, path);
    if (!out) return err_set(why, ERR_IO, "cannot write '%s': %s", full, strerror(errno));
    const bool ok = fwrite(str_text(&u->content), 1, u->content.len, out) == u->content.len;
    return fclose(out) == 0 && ok ? ERR_OK : err_set(why, ERR_IO, "cannot write '%s'", full);
}

static enum err_code count_in(struct unpack *u, size_t files, struct err *why)
{
    u->files += files;
    u->bytes += files * u->content.len;
    return u->files <= FILES_MOST && u->bytes <= BYTES_MOST
               ? ERR_OK
               : err_set(why, ERR_FORMAT, "line %d: more than %d files or %d MiB", u->line, FILES_MOST,
                         BYTES_MOST >> 20);
}

/* A path with "[list]" stands for as many as the list names. */
static enum err_code write_all(struct unpack *u, const char *path, struct err *why)
{
    enum { LIST_MOST = 8192 };
    const char *open = strchr(path, '['), *close = open ? strchr(open, ']') : NULL;
    char list[4096], one[PATH_MAX];
    if (!close) return count_in(u, 1, why) ? ERR_FORMAT : write_one(u, path, why);
    snprintf(list, sizeof list, "%.*s", (int)(close - open - 1), open + 1);
    int *number = malloc(LIST_MOST * sizeof *number);
    if (!number) return err_set(why, ERR_NOMEM, "out of memory unpacking");
    const int n = sys_cpulist(list, number, LIST_MOST);
    enum err_code rc = n > 0 && n <= LIST_MOST
                           ? count_in(u, (size_t)n, why)
                           : err_set(why, ERR_FORMAT, "line %d: '[%s]' is no list", u->line, list);
    for (int i = 0; !rc && i < n; i++) {
        snprintf(one, sizeof one, "%.*s%d%s", (int)(open - path), path, number[i], close + 1);
        rc = write_one(u, one, why);
    }
    free(number);
    return rc;
}

static enum err_code flush(struct unpack *u, struct err *why)
{
    enum err_code rc = ERR_OK;
    for (int i = 0; i < u->paths; i++) {
        if (!rc) rc = write_all(u, u->path[i], why);
        free(u->path[i]);
    }
    u->paths = 0;
    u->is_content = false;
    str_clear(&u->content);
    return rc;
}

static enum err_code take_path(struct unpack *u, const char *path, size_t n, struct err *why)
{
    static const char *const TOPS[] = { "/proc/", "/sys/", "/etc/", "/usr/" };
    enum err_code rc = u->is_content ? flush(u, why) : ERR_OK;
    bool inside = false;
    if (rc) return rc;
    if (u->paths == COUNT_OF(u->path)) return err_set(why, ERR_FORMAT, "line %d: too many paths", u->line);
    char *copy = strndup(path, n);
    if (!copy) return err_set(why, ERR_NOMEM, "out of memory unpacking");
    for (size_t i = 0; i < COUNT_OF(TOPS); i++) inside |= str_starts(copy, TOPS[i]);
    if (!inside || n >= PATH_MAX / 2 || strstr(copy, "/../") || str_ends(copy, "/..")) {
        rc = err_set(why, ERR_FORMAT, "line %d: '%.60s' is not below /proc, /sys, /etc or /usr", u->line,
                     copy);
        free(copy);
        return rc;
    }
    u->path[u->paths++] = copy;
    if (copy[n - 1] == '/') u->is_content = true; /* a folder has none: the next path begins anew */
    return ERR_OK;
}

static enum err_code take_bytes(struct unpack *u, const char *hex, size_t n, struct err *why)
{
    for (size_t i = 0; i < n; i += 2) {
        unsigned byte;
        if (i + 1 >= n || !isxdigit((unsigned char)hex[i]) || !isxdigit((unsigned char)hex[i + 1]) ||
            sscanf(hex + i, "%2x", &byte) != 1)
            return err_set(why, ERR_FORMAT, "line %d: want pairs of hexadecimal digits", u->line);
        const char c = (char)byte;
        str_append_n(&u->content, &c, 1);
    }
    return ERR_OK;
}

enum err_code recorded_files_unpack(const char *text, const char *root, struct err *why)
{
    struct unpack u = { .root = root };
    enum err_code rc = ERR_OK;
    for (const char *p = text; *p && !rc;) {
        const size_t n = strcspn(p, "\n");
        u.line++;
        if (*p == '/') {
            rc = take_path(&u, p, n, why);
        } else if (*p == ' ' || *p == ':') {
            u.is_content = true;
            if (!u.paths) rc = err_set(why, ERR_FORMAT, "line %d: content without a path", u.line);
            if (!rc && *p == ':') {
                rc = take_bytes(&u, p + 1, n - 1, why);
            } else if (!rc) {
                str_append_n(&u.content, p + 1, n - 1);
                str_append(&u.content, "\n");
            }
        } else if (n && *p != '#') {
            rc = err_set(why, ERR_FORMAT, "line %d: want a path, or content behind a space", u.line);
        }
        p += n + (p[n] == '\n');
    }
    if (!rc && u.content.failed) rc = err_set(why, ERR_NOMEM, "out of memory unpacking");
    if (!rc) rc = flush(&u, why);
    for (int i = 0; i < u.paths; i++) free(u.path[i]);
    str_free(&u.content);
    return rc;
}
