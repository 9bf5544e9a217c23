/* tui/cli/lib/other_machine.c - --machine: a recorded folder or a document, both another machine's. */
#include "tui/cli/lib/other_machine.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static enum err_code take_ceilings(struct described *d, const json_t *ceilings, struct err *why)
{
    if (!json_is_object(ceilings)) return ERR_OK;
    d->ceilings_known = true;
    return ceilings_from_json(&d->ceilings, ceilings, why);
}

static enum err_code open_document(struct described *d, const char *path, struct err *why)
{
    enum { LIMIT = 1 << 20 };
    char *text = NULL;
    size_t n;
    json_t *doc = NULL;
    enum err_code rc = file_read(&text, &n, path, LIMIT, why);
    if (!rc) rc = json_parse(&doc, text, n, why);
    if (!rc && strcmp(json_get_str(doc, "schema", ""), "qdyno.detect/1"))
        rc = err_set(
            why, ERR_FORMAT,
            "want a folder of `qdyno detect --record`, or a document of `qdyno detect --probe -o json` "
            "(schema qdyno.detect/1)");
    if (!rc) rc = machine_from_json(&d->machine, json_object_get(doc, "machine"), why);
    if (!rc) rc = take_ceilings(d, json_object_get(doc, "ceilings"), why);
    if (!rc && json_is_object(json_object_get(doc, "recording")))
        d->recording.about = json_incref(json_object_get(doc, "recording"));
    json_decref(doc);
    free(text);
    return rc;
}

static enum err_code open_folder(struct described *d, const char *path, struct err *why)
{
    enum err_code rc = recording_open(&d->recording, path, why);
    if (!rc) rc = machine_detect(&d->machine, d->recording.root, why);
    if (!rc) rc = take_ceilings(d, d->recording.ceilings, why);
    return rc;
}

/* Names of the machines that are shipped, for who named another. */
static void list_shipped(struct str *out)
{
    char *folder = NULL;
    struct dirent **names = NULL;
    int n = file_share(&folder, "machines", NULL) ? 0 : scandir(folder, &names, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        const size_t length = strlen(names[i]->d_name);
        if (length > 5 && !strcmp(names[i]->d_name + length - 5, ".json"))
            str_printf(out, " %.*s", (int)(length - 5), names[i]->d_name);
        free(names[i]);
    }
    free(names);
    free(folder);
}

/* The file of a shipped machine: a word that is no path. NULL when there is none. */
static char *shipped(const char *name)
{
    char file[96], *path = NULL;
    if (strchr(name, '/') || snprintf(file, sizeof file, "machines/%s.json", name) >= (int)sizeof file)
        return NULL;
    return file_share(&path, file, NULL) ? NULL : path;
}

enum err_code described_open(struct described *out, const char *path, struct err *why)
{
    struct stat st;
    *out = (struct described){ 0 };
    const bool there = !stat(path, &st), folder = there && S_ISDIR(st.st_mode);
    char *known = there ? NULL : shipped(path);
    if (!there && !known) {
        struct str names = { 0 };
        list_shipped(&names);
        err_set(why, ERR_IO, "--machine %s: no such folder or file, and no shipped machine (known:%s)", path,
                str_text(&names));
        str_free(&names);
        return ERR_IO;
    }
    const enum err_code rc = folder ? open_folder(out, path, why)
                                    : open_document(out, known ? known : path, why);
    free(known);
    if (rc) described_close(out);
    return rc ? err_prefix(why, "--machine %s", path) : ERR_OK;
}

void described_close(struct described *d)
{
    recording_close(&d->recording);
}
