/* advisor/advise/apply.c - reads and writes the config file of a model (advise.h). */
#include "advisor/advise/advise.h"
#include "engine/gguf/gguf.h"
#include "engine/import/import.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "engine/quant/quant.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_LIMIT = 1 << 16 };

/* ---------------------------------------------------------------- reading */

/* The last line that is neither empty nor a comment; NULL: none. Writes NUL bytes into `text`. */
static char *last_line(char *text)
{
    char *line, *last = NULL;
    for (char *rest = text; (line = strsep(&rest, "\n"));) {
        line += strspn(line, " \t\r");
        line[strcspn(line, "\r")] = '\0';
        if (*line && *line != '#') last = line;
    }
    return last;
}

enum err_code config_file_read(struct config *out, const char *path, struct err *why)
{
    char *text;
    enum err_code rc = file_read(&text, NULL, path, FILE_LIMIT, why);
    if (rc) return rc;
    const char *line = last_line(text);
    rc = line ? config_parse(out, line, why)
              : err_set(why, ERR_FORMAT,
                        "expected a config line such as q8_0,threads=2, but found only comments");
    if (rc) err_prefix(why, "'%s'", path);
    free(text);
    return rc;
}

/* The value of the comment line "# key: value"; "" when there is none. */
static void header_get(const char *text, const char *key, char *out, size_t size)
{
    char mark[32];
    *out = '\0';
    const int n = snprintf(mark, sizeof mark, "# %s: ", key);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, mark, (size_t)n)) {
            snprintf(out, size, "%.*s", (int)strcspn(line + n, "\r\n"), line + n);
            return;
        }
        if (!*line) return;
    }
}

static enum err_code config_file_parse(struct applied *out, const char *path, struct err *why)
{
    char *text, number[24];
    enum err_code rc = file_read(&text, NULL, path, FILE_LIMIT, why);
    if (rc) return rc;
    *out = (struct applied){ 0 };
    snprintf(out->path, sizeof out->path, "%s", path);
    header_get(text, "model", out->model_sha256, sizeof out->model_sha256);
    header_get(text, "machine", out->machine, sizeof out->machine);
    header_get(text, "because", out->because, sizeof out->because);
    header_get(text, "when", out->when, sizeof out->when);
    header_get(text, "load", out->load, sizeof out->load);
    header_get(text, "run", number, sizeof number);
    str_to_i64(number, &out->run_id);
    free(text);
    rc = config_file_read(&out->config, path, why);
    if (!rc) config_line(&out->config, out->line, sizeof out->line);
    return rc;
}

/* ---------------------------------------------------------------- which file */

/* A model's name: its file name without folder and extension. */
static void model_word(const char *model_path, char *out, size_t size)
{
    snprintf(out, size, "%s", path_file_name(model_path));
    if (str_ends(out, ".gguf")) out[strlen(out) - 5] = '\0';
}

/* FOLDER/MODEL.conf, or FOLDER/MODEL-1a2b3c4d.conf with the first digits of the model's hash. */
static enum err_code config_file_path(char path[4096], const char *model_path, const char *sha256,
                                      struct err *why)
{
    char word[256], *folder;
    model_word(model_path, word, sizeof word);
    enum err_code rc = file_place(&folder, FILE_CONFIG, why);
    if (rc) return rc;
    const int n = snprintf(path, 4096, "%s/%s%s%.8s.conf", folder, word, sha256 ? "-" : "",
                           sha256 ? sha256 : "");
    free(folder);
    return n < 4096 ? ERR_OK : err_set(why, ERR_USAGE, "the path of the config file is too long");
}

/* Does the file `plain` (FOLDER/MODEL.conf) belong to another model with the same name? */
static bool has_namesakes(const char *plain)
{
    const char *name = strrchr(plain, '/') + 1;
    const size_t n = strlen(name) - strlen(".conf");
    char folder[4096];
    bool found = false;
    snprintf(folder, sizeof folder, "%.*s", (int)(name - plain), plain);
    DIR *dir = opendir(folder);
    for (struct dirent *d; dir && !found && (d = readdir(dir));)
        found = !strncmp(d->d_name, name, n) && d->d_name[n] == '-' && str_ends(d->d_name, ".conf");
    if (dir) closedir(dir);
    return found;
}

/* Find the file of this model; otherwise *found is false and `path` is where to write it. A file that names
 * no model was written by hand and counts as the model's. */
enum err_code apply_read(struct applied *out, const char *model_path, bool *found, struct err *why)
{
    char plain[4096], exact[4096], sha256[HASH_HEX];
    *found = false;
    enum err_code rc = config_file_path(plain, model_path, NULL, why);
    if (rc) return rc;
    const bool none = access(plain, F_OK) && errno == ENOENT;
    snprintf(out->path, sizeof out->path, "%s", plain);
    if (none && !has_namesakes(plain)) return ERR_OK; /* in the usual case the model need not be read */
    rc = model_file_identity(sha256, model_path, why);
    if (!rc) rc = config_file_path(exact, model_path, sha256, why);
    if (rc) return rc;
    const bool own = !access(exact, F_OK);
    if (none && !own) return ERR_OK;
    rc = config_file_parse(out, own ? exact : plain, why);
    if (rc) return rc;
    *found = own || !*out->model_sha256 || !strcmp(out->model_sha256, sha256);
    if (!*found) snprintf(out->path, sizeof out->path, "%s", exact);
    return ERR_OK;
}

/* ---------------------------------------------------------------- writing */

/* Could the model be loaded with this config, as far as its header tells? */
static enum err_code config_check_model(const struct apply_request *r, struct err *why)
{
    struct gguf *g = NULL;
    struct memory_plan plan;
    if (r->config->given[KNOB_MODEL])
        return err_set(why, ERR_USAGE,
                       "a config that is applied to a model cannot name another model: remove model=...");
    enum err_code rc = model_file_open(&g, r->model_path, why);
    if (!rc) rc = recipe_plan_memory(&plan, g, r->config, 0, 1, why);
    gguf_close(g);
    return rc;
}

static void comment_append(FILE *f, const char *key, const char *text)
{
    if (!*text) return;
    fprintf(f, "# %s: ", key);
    for (; *text; text++) fputc(*text == '\n' || *text == '\r' ? ' ' : *text, f);
    fputc('\n', f);
}

static void config_file_write(FILE *f, const struct applied *a, const char *model_path)
{
    char number[24] = "";
    fputs("# written by qdyno; run, bench and the dashboard use the last line by default\n", f);
    comment_append(f, "file", model_path);
    comment_append(f, "model", a->model_sha256);
    comment_append(f, "machine", a->machine);
    comment_append(f, "when", a->when);
    if (a->run_id) snprintf(number, sizeof number, "%lld", (long long)a->run_id);
    comment_append(f, "run", number);
    comment_append(f, "because", a->because);
    comment_append(f, "load", a->load);
    fprintf(f, "%s\n", a->line);
}

static enum err_code previous_keep(const char *path, struct err *why)
{
    struct str previous = { 0 };
    str_printf(&previous, "%s.previous", path);
    enum err_code rc = previous.failed ? err_set(why, ERR_NOMEM, "out of memory for a path") : ERR_OK;
    if (!rc) unlink(str_text(&previous)); /* also without a file: then the previous state is none */
    if (!rc && !access(path, F_OK) && link(path, str_text(&previous)))
        rc = err_set(why, ERR_IO, "%s: %s", str_text(&previous), strerror(errno));
    str_free(&previous);
    return rc;
}

enum err_code apply_write(struct applied *out, const struct apply_request *r, struct err *why)
{
    struct atomic_file f;
    struct applied old, a = { .run_id = r->run_id };
    bool found;
    enum err_code rc = config_check_model(r, why);
    if (!rc) rc = model_file_identity(a.model_sha256, r->model_path, why);
    if (rc) return rc;
    struct err broken = { 0 }; /* an unreadable file is replaced, and kept as the previous one */
    rc = apply_read(&old, r->model_path, &found, &broken);
    if (rc && rc != ERR_FORMAT && rc != ERR_USAGE) {
        if (why) *why = broken;
        return rc;
    }
    snprintf(a.path, sizeof a.path, "%s", old.path);
    a.config = *r->config;
    config_line(r->config, a.line, sizeof a.line);
    if (r->machine) snprintf(a.machine, sizeof a.machine, "%s", r->machine->id);
    snprintf(a.because, sizeof a.because, "%s", r->because ? r->because : "chosen by hand");
    snprintf(a.load, sizeof a.load, "%s", r->load ? r->load : "");
    clock_iso8601(clock_unix_ms(), a.when, sizeof a.when);
    rc = previous_keep(a.path, why);
    if (!rc) rc = atomic_file_open(&f, a.path, why);
    if (rc) return rc;
    config_file_write(f.stream, &a, r->model_path);
    rc = atomic_file_commit(&f, why);
    if (!rc && out) *out = a;
    return rc;
}

enum err_code apply_remove(const char *model_path, bool *removed, struct err *why)
{
    struct applied a;
    *removed = false;
    enum err_code rc = apply_read(&a, model_path, removed, why);
    if (rc || !*removed) return rc;
    rc = previous_keep(a.path, why);
    if (!rc && unlink(a.path)) rc = err_set(why, ERR_IO, "%s: %s", a.path, strerror(errno));
    *removed = !rc;
    return rc;
}

/* Exchanges two files of one folder; either may be missing. */
static enum err_code files_exchange(const char *one, const char *other, struct err *why)
{
    struct str between = { 0 };
    str_printf(&between, "%s.undo", one);
    const char *aside = str_text(&between);
    enum err_code rc = between.failed ? err_set(why, ERR_NOMEM, "out of memory for a path") : ERR_OK;
    const bool failed = !rc &&
                        ((rename(one, aside) && errno != ENOENT) || (rename(other, one) && errno != ENOENT) ||
                         (rename(aside, other) && errno != ENOENT));
    if (failed) rc = err_set(why, ERR_IO, "%s: %s", one, strerror(errno));
    str_free(&between);
    return rc;
}

enum err_code apply_undo(struct applied *out, const char *model_path, bool *found, struct err *why)
{
    struct applied now;
    char previous[4096 + 16];
    struct err broken = { 0 }; /* an unreadable file can be undone, too */
    enum err_code rc = apply_read(&now, model_path, found, &broken);
    if (rc && rc != ERR_FORMAT && rc != ERR_USAGE) {
        if (why) *why = broken;
        return rc;
    }
    snprintf(previous, sizeof previous, "%s.previous", now.path);
    if (access(now.path, F_OK) && access(previous, F_OK))
        return err_set(why, ERR_USAGE, "nothing to undo: no config was saved for this model");
    struct config before;
    rc = access(previous, F_OK) ? ERR_OK : config_file_read(&before, previous, why);
    if (!rc) rc = files_exchange(now.path, previous, why);
    return rc ? rc : apply_read(out, model_path, found, why);
}
