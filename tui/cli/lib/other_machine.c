/* tui/cli/lib/other_machine.c - see other_machine.h. */
#include "tui/cli/lib/other_machine.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "telemetry/machine/machine.h"
#include "telemetry/probe/probe.h"
#include "telemetry/recording/recording.h"

static enum err_code ceilings_read(struct other_machine *d, const json_t *ceilings, struct err *why)
{
    if (!json_is_object(ceilings)) return ERR_OK;
    d->ceilings_known = true;
    return ceilings_from_json(&d->ceilings, ceilings, why);
}

static enum err_code document_open(struct other_machine *d, const char *path, struct err *why)
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
            "expected a folder of `qdyno detect --record` or a document of `qdyno detect --probe -o json` "
            "(schema qdyno.detect/1)");
    if (!rc) rc = machine_from_json(&d->machine, json_object_get(doc, "machine"), why);
    if (!rc) rc = ceilings_read(d, json_object_get(doc, "ceilings"), why);
    if (!rc && json_is_object(json_object_get(doc, "recording")))
        d->recording.about = json_incref(json_object_get(doc, "recording"));
    json_decref(doc);
    free(text);
    return rc;
}

static enum err_code folder_open(struct other_machine *d, const char *path, struct err *why)
{
    enum err_code rc = recording_open(&d->recording, path, why);
    if (!rc) rc = machine_detect(&d->machine, d->recording.root, why);
    if (!rc) rc = ceilings_read(d, d->recording.ceilings, why);
    return rc;
}

/* Appends the names of the machines in share/machines, for the error message. */
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

/* The file of a shipped machine, owned by the caller; NULL if `name` is a path or not shipped. */
static char *shipped_file(const char *name)
{
    char file[96], *path = NULL;
    if (strchr(name, '/') || snprintf(file, sizeof file, "machines/%s.json", name) >= (int)sizeof file)
        return NULL;
    return file_share(&path, file, NULL) ? NULL : path;
}

enum err_code other_machine_open(struct other_machine *out, const char *path, struct err *why)
{
    struct stat st;
    *out = (struct other_machine){ 0 };
    const bool there = !stat(path, &st), folder = there && S_ISDIR(st.st_mode);
    char *known = there ? NULL : shipped_file(path);
    if (!there && !known) {
        struct str names = { 0 };
        list_shipped(&names);
        err_set(why, ERR_IO,
                "--machine %s: no such file or folder, and no shipped machine of that name (known:%s)", path,
                str_text(&names));
        str_free(&names);
        return ERR_IO;
    }
    const enum err_code rc = folder ? folder_open(out, path, why)
                                    : document_open(out, known ? known : path, why);
    free(known);
    if (rc) other_machine_close(out);
    return rc ? err_prefix(why, "--machine %s", path) : ERR_OK;
}

void other_machine_close(struct other_machine *d)
{
    recording_close(&d->recording);
}
