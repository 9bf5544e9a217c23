/* Reads files and folders of prompts: which form a file has, its JSON values one after another, its limits
 * (prompts.h). A list is read element by element, so that the JSON of a large file is never in memory as a
 * whole. */
#include "engine/prompts/prompts_internal.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILES_MOST = 10000 };

const char *const PROMPT_FORM_NAMES[PROMPT_FORMS] = { "text", "JSON lines", "ShareGPT", "OpenAI batch",
                                                      "folder" };

/* ---------------------------------------------------------------- the list */

void prompts_free(struct prompts *p)
{
    for (int i = 0; i < p->n; i++) {
        free(p->prompt[i].text);
        free(p->prompt[i].answer);
        json_decref(p->prompt[i].messages);
    }
    free(p->prompt);
    *p = (struct prompts){ 0 };
}

enum err_code prompts_add(struct prompts *p, struct prompt *q, struct err *why)
{
    enum err_code rc = ERR_OK;
    if (p->n == PROMPTS_MOST)
        rc = err_set(why, ERR_FORMAT, "more than %d prompts: take a part of them", PROMPTS_MOST);
    else if (!array_room(&p->prompt, &p->room, p->n + 1, sizeof *p->prompt))
        rc = err_set(why, ERR_NOMEM, "out of memory for %d prompts", p->n);
    if (!rc) {
        p->prompt[p->n++] = *q;
        return ERR_OK;
    }
    free(q->text);
    free(q->answer);
    json_decref(q->messages);
    return rc;
}

enum err_code prompts_add_text(struct prompts *p, const char *text, size_t n, int64_t line, struct err *why)
{
    size_t blank = 0;
    while (blank < n && memchr(" \t\r\n", text[blank], 4)) blank++;
    if (blank == n) {
        p->skipped++;
        return ERR_OK;
    }
    struct prompt q = { .text = malloc(n + 1), .n = n, .class = -1, .line = line };
    if (!q.text) return err_set(why, ERR_NOMEM, "out of memory for a prompt of %zu bytes", n);
    memcpy(q.text, text, n);
    q.text[n] = '\0';
    return prompts_add(p, &q, why);
}

int prompts_class(struct prompts *p, const char *name)
{
    char cut[PROMPT_CLASS_NAME];
    if (!*name) return -1;
    snprintf(cut, sizeof cut, "%s", name);
    const size_t n = strlen(cut);
    cut[n - str_utf8_unfinished(cut, n)] = '\0';
    for (char *c = cut; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' '; /* a name is shown in one line */
    for (int i = 0; i < p->classes; i++)
        if (!strcmp(p->class_name[i], cut)) return i;
    if (p->classes == PROMPT_CLASSES) return PROMPT_CLASSES - 1;
    const bool last = p->classes == PROMPT_CLASSES - 1;
    memcpy(p->class_name[p->classes], last ? "other" : cut, last ? sizeof "other" : sizeof cut);
    return p->classes++;
}

void prompts_append_text(struct str *out, const struct prompts *p, int i)
{
    const struct prompt *q = &p->prompt[i];
    if (q->text) {
        str_append_n(out, q->text, q->n);
        str_append(out, "\n\n");
    }
    for (size_t m = 0; m < json_array_size(q->messages); m++)
        str_printf(out, "%s\n\n", json_get_str(json_array_get(q->messages, m), "content", ""));
    if (q->answer) str_printf(out, "%s\n\n", q->answer);
}

json_t *prompts_classes_to_json(const struct prompts *p)
{
    json_t *list = p && p->classes ? json_array() : NULL;
    for (int i = 0; list && i < p->classes; i++) json_array_append_new(list, json_string(p->class_name[i]));
    return list;
}

/* ---------------------------------------------------------------- plain text */

/* The line of the first byte that is no UTF-8 text, or a NUL; 0: there is none. */
static int64_t bad_line(const char *text, size_t n)
{
    int64_t line = 1;
    for (size_t at = 0, used; at < n; at += used) {
        uint32_t c;
        used = str_utf8_next(text + at, n - at, &c);
        if (!c || (c == 0xfffd && used == 1)) return line;
        line += c == '\n';
    }
    return 0;
}

static enum err_code text_check(const char *text, size_t n, struct err *why)
{
    const int64_t line = bad_line(text, n);
    return !line ? ERR_OK
                 : err_set(why, ERR_FORMAT,
                           "line %" PRId64 ": this is no text in UTF-8: expected text or JSON", line);
}

/* ---------------------------------------------------------------- JSON */

/* A place in a file. */
struct place {
    const char *text;
    size_t n, at;
    int64_t line;
};

static void place_skip(struct place *p, size_t bytes)
{
    for (const size_t end = p->at + bytes; p->at < end; p->at++) p->line += p->text[p->at] == '\n';
}

static void place_skip_blank(struct place *p)
{
    while (p->at < p->n && memchr(" \t\r\n", p->text[p->at], 4)) place_skip(p, 1);
}

/* Parse the value that begins here, add it, and go behind it. */
static enum err_code value_take(struct prompts *out, struct place *p, struct err *why)
{
    size_t used;
    json_t *value = NULL;
    const int64_t line = p->line;
    const enum json_end end = json_value_end(p->text + p->at, p->n - p->at, &used);
    if (end != JSON_COMPLETE) used = p->n - p->at; /* the parser says what is wrong, and where */
    enum err_code rc = json_parse_line(&value, p->text + p->at, used, line, why);
    if (rc) return rc;
    rc = prompts_add_value(out, value, line, why);
    if (rc) err_prefix(why, "line %" PRId64, line);
    json_decref(value);
    place_skip(p, used);
    return rc;
}

static enum err_code list_take(struct prompts *out, struct place *p, struct err *why)
{
    enum err_code rc = ERR_OK;
    for (bool first = true;; first = false) {
        place_skip(p, 1); /* [ or , */
        place_skip_blank(p);
        if (first && p->at < p->n && p->text[p->at] == ']') break;
        rc = value_take(out, p, why);
        if (rc) return rc;
        place_skip_blank(p);
        if (p->at < p->n && p->text[p->at] == ']') break;
        if (p->at == p->n || p->text[p->at] != ',')
            return err_set(why, ERR_FORMAT, "line %" PRId64 ": expected , or ] after an element of the list",
                           p->line);
    }
    place_skip(p, 1);
    place_skip_blank(p);
    return p->at == p->n
               ? ERR_OK
               : err_set(why, ERR_FORMAT, "line %" PRId64 ": there is something behind the list", p->line);
}

/* Does the file have JSON? Plain text may begin with a bracket, too. */
static bool is_json(const struct place *p, const char *name)
{
    size_t used;
    json_t *value;
    if (p->at == p->n || !memchr("{[", p->text[p->at], 2)) return false;
    if (str_ends(name, ".json") || str_ends(name, ".jsonl") || str_ends(name, ".ndjson")) return true;
    struct place first = *p;
    if (p->text[p->at] == '[') {
        place_skip(&first, 1);
        place_skip_blank(&first);
        if (first.at < first.n && first.text[first.at] == ']') return true;
        if (first.at == first.n || !memchr("{\"", first.text[first.at], 2)) return false;
    }
    if (json_value_end(first.text + first.at, first.n - first.at, &used) != JSON_COMPLETE) return false;
    if (json_parse(&value, first.text + first.at, used, NULL)) return false;
    json_decref(value);
    return true;
}

enum err_code prompts_parse(struct prompts *out, const char *name, const char *text, size_t n,
                            struct err *why)
{
    static const char BOM[] = "\xef\xbb\xbf";
    struct place p = { .text = text, .n = n, .line = 1 };
    enum err_code rc = ERR_OK;
    *out = (struct prompts){ .form = PROMPTS_TEXT };
    hash_bytes(text, n, out->sha256);
    if (n >= sizeof BOM - 1 && !memcmp(text, BOM, sizeof BOM - 1)) p.at = sizeof BOM - 1;
    const size_t begins = p.at;
    place_skip_blank(&p);
    if (!is_json(&p, name)) {
        rc = text_check(text, n, why);
        if (!rc) rc = prompts_add_text(out, text + begins, n - begins, 1, why);
    } else if (text[p.at] == '[') {
        rc = list_take(out, &p, why);
    } else {
        while (p.at < p.n && !rc) {
            rc = value_take(out, &p, why);
            place_skip_blank(&p);
        }
    }
    if (!rc && !out->n)
        rc = err_set(why, ERR_FORMAT, "there is no prompt in it%s",
                     out->skipped ? ": all are empty, or conversations in which no user says anything" : "");
    return rc;
}

/* ---------------------------------------------------------------- files and folders */

static enum err_code file_take(struct prompts *out, const char *path, struct err *why)
{
    char *text = NULL;
    size_t n;
    enum err_code rc = file_read(&text, &n, path, PROMPTS_BYTES_MOST, why);
    if (rc) return rc; /* the message names the file */
    rc = prompts_parse(out, path, text, n, why);
    if (rc) err_prefix(why, "prompts in '%s'", path);
    free(text);
    return rc;
}

static int not_hidden(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

static int by_name(const void *a, const void *b) /* the same order in every locale */
{
    return strcmp((*(struct dirent *const *)a)->d_name, (*(struct dirent *const *)b)->d_name);
}

/* Add the file as one prompt, and its name and hash to the text whose hash is the folder's. *left: bytes. */
static enum err_code folder_file(struct prompts *out, const char *folder, const char *name, size_t *left,
                                 struct str *hashes, struct err *why)
{
    struct str path = { 0 };
    struct stat st;
    char *text = NULL, hex[HASH_HEX];
    size_t n = 0;
    str_printf(&path, "%s/%s", folder, name);
    enum err_code rc = path.failed ? err_set(why, ERR_NOMEM, "out of memory") : ERR_OK;
    if (!rc && (stat(str_text(&path), &st) || !S_ISREG(st.st_mode))) { /* a folder, a socket */
        str_free(&path);
        return ERR_OK;
    }
    if (!rc) rc = file_read(&text, &n, str_text(&path), *left, why);
    if (!rc && (rc = text_check(text, n, why))) err_prefix(why, "'%s'", str_text(&path));
    if (!rc) rc = prompts_add_text(out, text, n, out->n + out->skipped + 1, why);
    if (!rc) {
        *left -= n;
        hash_bytes(text, n, hex);
        str_printf(hashes, "%s %s\n", hex, name);
    }
    free(text);
    str_free(&path);
    return rc;
}

static enum err_code folder_take(struct prompts *out, const char *path, struct err *why)
{
    struct dirent **entry = NULL;
    struct str hashes = { 0 };
    size_t left = PROMPTS_BYTES_MOST;
    *out = (struct prompts){ .form = PROMPTS_FOLDER };
    const int n = scandir(path, &entry, not_hidden, NULL);
    if (n < 0)
        return err_set(why, err_of_errno(errno), "cannot read the folder '%s': %s", path, strerror(errno));
    if (n) qsort(entry, (size_t)n, sizeof *entry, by_name);
    enum err_code rc = n > FILES_MOST ? err_set(why, ERR_FORMAT, "'%s' has %d files: expected at most %d",
                                                path, n, FILES_MOST)
                                      : ERR_OK;
    for (int i = 0; i < n && !rc; i++) rc = folder_file(out, path, entry[i]->d_name, &left, &hashes, why);
    if (!rc && hashes.failed) rc = err_set(why, ERR_NOMEM, "out of memory");
    if (!rc && !out->n) rc = err_set(why, ERR_FORMAT, "there is no file with text in the folder '%s'", path);
    if (!rc) hash_bytes(str_text(&hashes), hashes.len, out->sha256);
    for (int i = 0; i < n; i++) free(entry[i]);
    free(entry);
    str_free(&hashes);
    return rc;
}

enum err_code prompts_read(struct prompts *out, const char *path, struct err *why)
{
    struct stat st;
    *out = (struct prompts){ 0 };
    if (!stat(path, &st) && S_ISDIR(st.st_mode)) return folder_take(out, path, why);
    return file_take(out, path, why);
}
