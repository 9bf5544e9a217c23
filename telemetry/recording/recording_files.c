/* telemetry/recording/recording_files.c - packs the small files of a machine into one text that people can
 * read and edit, and unpacks it. */
#include "telemetry/recording/recording_files.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/sysfs/sysfs.h"

/* ---------------------------------------------------------------- collecting */

static struct recorded_file *files_find(struct recorded_files *f, const char *path)
{
    for (size_t i = 0; i < f->count; i++)
        if (!strcmp(f->file[i].path, path)) return &f->file[i];
    return NULL;
}

static void file_set_bytes(struct recorded_files *f, struct recorded_file *file, const void *bytes,
                           size_t size)
{
    free(file->bytes);
    file->bytes = malloc(size + 1);
    file->size = file->bytes ? size : 0;
    f->failed |= !file->bytes;
    if (file->bytes && size) memcpy(file->bytes, bytes, size);
}

void recorded_files_add(struct recorded_files *f, const char *path, const void *bytes, size_t size)
{
    struct recorded_file *had = files_find(f, path);
    if (had) {
        const bool begins = !had->bytes || (size > had->size && !memcmp(had->bytes, bytes, had->size));
        if (bytes && begins) file_set_bytes(f, had, bytes, size);
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
    if (new.path && bytes) file_set_bytes(f, &new, bytes, size);
    if (new.path && (!bytes || new.bytes)) {
        f->file[f->count++] = new;
    } else {
        free(new.path);
        f->failed = true;
    }
}

void recorded_files_append(struct recorded_files *f, const char *path, const void *bytes, size_t size)
{
    struct recorded_file *had = files_find(f, path);
    if (!had || !had->bytes || !had->size) {
        recorded_files_add(f, path, bytes, size);
    } else if (!memmem(had->bytes, had->size, bytes, size)) {
        struct str all = { 0 };
        str_append_n(&all, had->bytes, had->size);
        str_append_n(&all, bytes, size);
        file_set_bytes(f, had, str_text(&all), all.len);
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

static int files_by_path(const void *a, const void *b)
{
    return strverscmp(((const struct recorded_file *)a)->path, ((const struct recorded_file *)b)->path);
}

static bool file_is_text(const struct recorded_file *f)
{
    for (size_t i = 0; i < f->size; i++) {
        const unsigned char c = (unsigned char)f->bytes[i];
        if (c < ' ' && c != '\n' && c != '\t') return false;
    }
    return true;
}

static const char CPU[] = "/sys/devices/system/cpu/cpu";

/* Splits the path of a processor's file into the processor's number and the rest. False: another path. */
static bool path_is_of_processor(const char *path, long *cpu, const char **rest)
{
    char *end;
    if (!str_starts(path, CPU) || !isdigit((unsigned char)path[sizeof CPU - 1])) return false;
    *cpu = strtol(path + sizeof CPU - 1, &end, 10);
    *rest = end;
    return true;
}

static bool file_has_same_content(const struct recorded_file *a, const struct recorded_file *b)
{
    return !a->bytes == !b->bytes && a->size == b->size &&
           (!a->bytes || !memcmp(a->bytes, b->bytes, a->size));
}

/* Builds a list such as "0-3,8" from ascending numbers. */
struct number_list {
    struct str text;
    long first, last; /* the current range; last -1: none */
};
/* n < 0 ends the last range. */
static void number_list_add(struct number_list *l, long n)
{
    if (l->last >= 0 && n == l->last + 1) {
        l->last = n;
        return;
    }
    if (l->last > l->first) str_printf(&l->text, "-%ld", l->last);
    if (n >= 0) str_printf(&l->text, "%s%ld", l->text.len ? "," : "", n);
    l->first = l->last = n;
}

/* Writes the path of file `at`. If files of the same name of other processors have the same content, one path
 * stands for all of them and they are marked done. */
static void files_write_path(const struct recorded_files *f, size_t at, bool *done, struct str *out)
{
    long cpu, other;
    const char *rest, *other_rest;
    if (!path_is_of_processor(f->file[at].path, &cpu, &rest)) {
        str_append(out, f->file[at].path);
        return;
    }
    struct number_list list = { .last = -1 };
    int n = 0;
    for (size_t i = at; i < f->count; i++) {
        if (done[i] || !path_is_of_processor(f->file[i].path, &other, &other_rest) ||
            strcmp(rest, other_rest) || !file_has_same_content(&f->file[at], &f->file[i]))
            continue;
        number_list_add(&list, other);
        done[i] = true;
        n++;
    }
    number_list_add(&list, -2);
    if (n > 1)
        str_printf(out, "%s[%s]%s", CPU, str_text(&list.text), rest);
    else
        str_append(out, f->file[at].path);
    str_free(&list.text);
}

static void file_write_content(const struct recorded_file *f, struct str *out)
{
    if (!file_is_text(f)) {
        for (size_t i = 0; i < f->size; i++)
            str_printf(out, "%s%02x", i % 48 ? "" : i ? "\n:" : ":", (unsigned char)f->bytes[i]);
        str_append(out, "\n");
        return;
    }
    size_t end = f->size; /* newlines at the end are not stored */
    while (end && f->bytes[end - 1] == '\n') end--;
    if (!end) str_append(out, " \n"); /* a path without content lines would share those of the next path */
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
    qsort(f->file, f->count, sizeof *f->file, files_by_path);
    for (size_t i = 0; i < f->count; i++) {
        const size_t n = strlen(f->file[i].path);
        const bool has_below = i + 1 < f->count && str_starts(f->file[i + 1].path, f->file[i].path) &&
                               f->file[i + 1].path[n] == '/';
        if (done[i] || (!f->file[i].bytes && has_below))
            continue; /* a folder with files in it needs no entry */
        files_write_path(f, i, done, out);
        if (f->file[i].bytes) {
            str_append(out, "\n");
            file_write_content(&f->file[i], out);
        } else {
            str_append(out, "/\n");
        }
    }
    free(done);
    f->failed |= out->failed;
}

/* ---------------------------------------------------------------- unpacking */

/* A short text can stand for very many files, so it is refused when it exceeds what any machine has. */
enum { FILES_MOST = 1 << 16, BYTES_MOST = 256 << 20 };

struct unpack {
    const char *root;
    int line;
    size_t files, bytes; /* written so far */
    char *path[64];      /* paths of the current entry; one with a list stands for many */
    int paths;
    struct str content;
    bool is_content; /* content was read, so the next path begins a new entry */
};

static enum err_code unpack_file(struct unpack *u, const char *path, struct err *why)
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
    if (!out && errno == EEXIST) return err_set(why, ERR_FORMAT, "line %d: '%s' occurs twice", u->line, path);
    if (!out) return err_set(why, err_of_errno(errno), "cannot write '%s': %s", full, strerror(errno));
    const bool ok = fwrite(str_text(&u->content), 1, u->content.len, out) == u->content.len;
    const int cause = errno;
    return fclose(out) == 0 && ok ? ERR_OK
                                  : err_set(why, err_of_errno(ok ? errno : cause), "cannot write '%s': %s",
                                            full, strerror(ok ? errno : cause));
}

/* Adds to the totals; an error when they become too large. */
static enum err_code unpack_count(struct unpack *u, size_t files, struct err *why)
{
    u->files += files;
    u->bytes += files * u->content.len;
    return u->files <= FILES_MOST && u->bytes <= BYTES_MOST
               ? ERR_OK
               : err_set(why, ERR_FORMAT, "line %d: more than %d files or %d MiB", u->line, FILES_MOST,
                         BYTES_MOST >> 20);
}

/* Writes the files of a path; one with "[list]" stands for as many files as the list has numbers. */
static enum err_code unpack_path(struct unpack *u, const char *path, struct err *why)
{
    enum { LIST_MOST = 8192 };
    const char *open = strchr(path, '['), *close = open ? strchr(open, ']') : NULL;
    char list[4096], one[PATH_MAX];
    if (!close) return unpack_count(u, 1, why) ? ERR_FORMAT : unpack_file(u, path, why);
    snprintf(list, sizeof list, "%.*s", (int)(close - open - 1), open + 1);
    int *number = malloc(LIST_MOST * sizeof *number);
    if (!number) return err_set(why, ERR_NOMEM, "out of memory unpacking");
    const int n = sys_cpulist(list, number, LIST_MOST);
    enum err_code rc = n > 0 && n <= LIST_MOST
                           ? unpack_count(u, (size_t)n, why)
                           : err_set(why, ERR_FORMAT, "line %d: '[%s]' is not a list", u->line, list);
    for (int i = 0; !rc && i < n; i++) {
        snprintf(one, sizeof one, "%.*s%d%s", (int)(open - path), path, number[i], close + 1);
        rc = unpack_file(u, one, why);
    }
    free(number);
    return rc;
}

/* Writes the files of the current entry and begins a new one. */
static enum err_code unpack_entry(struct unpack *u, struct err *why)
{
    enum err_code rc = ERR_OK;
    for (int i = 0; i < u->paths; i++) {
        if (!rc) rc = unpack_path(u, u->path[i], why);
        free(u->path[i]);
    }
    u->paths = 0;
    u->is_content = false;
    str_clear(&u->content);
    return rc;
}

static enum err_code unpack_read_path(struct unpack *u, const char *path, size_t n, struct err *why)
{
    static const char *const TOPS[] = { "/proc/", "/sys/", "/etc/", "/usr/" };
    enum err_code rc = u->is_content ? unpack_entry(u, why) : ERR_OK;
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
    if (copy[n - 1] == '/')
        u->is_content = true; /* a folder has no content: the next path begins a new entry */
    return ERR_OK;
}

static enum err_code unpack_read_hex(struct unpack *u, const char *hex, size_t n, struct err *why)
{
    for (size_t i = 0; i < n; i += 2) {
        unsigned byte;
        if (i + 1 >= n || !isxdigit((unsigned char)hex[i]) || !isxdigit((unsigned char)hex[i + 1]) ||
            sscanf(hex + i, "%2x", &byte) != 1)
            return err_set(why, ERR_FORMAT, "line %d: expected pairs of hexadecimal digits", u->line);
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
            rc = unpack_read_path(&u, p, n, why);
        } else if (*p == ' ' || *p == ':') {
            u.is_content = true;
            if (!u.paths) rc = err_set(why, ERR_FORMAT, "line %d: content without a path", u.line);
            if (!rc && *p == ':') {
                rc = unpack_read_hex(&u, p + 1, n - 1, why);
            } else if (!rc) {
                str_append_n(&u.content, p + 1, n - 1);
                str_append(&u.content, "\n");
            }
        } else if (n && *p != '#') {
            rc = err_set(
                why, ERR_FORMAT,
                "line %d: expected a path (begins with /) or content (begins with a space; hexadecimal: with a colon)",
                u.line);
        }
        p += n + (p[n] == '\n');
    }
    if (!rc && u.content.failed) rc = err_set(why, ERR_NOMEM, "out of memory unpacking");
    if (!rc) rc = unpack_entry(&u, why);
    for (int i = 0; i < u.paths; i++) free(u.path[i]);
    str_free(&u.content);
    return rc;
}
