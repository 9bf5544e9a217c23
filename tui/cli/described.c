/* tui/cli/described.c - --machine: a recorded folder or a document, both another machine's. */
#include "tui/cli/described.h"

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

enum err_code described_open(struct described *out, const char *path, struct err *why)
{
    struct stat st;
    *out = (struct described){ 0 };
    const bool folder = !stat(path, &st) && S_ISDIR(st.st_mode);
    const enum err_code rc = folder ? open_folder(out, path, why) : open_document(out, path, why);
    if (rc) described_close(out);
    return rc ? err_prefix(why, "--machine %s", path) : ERR_OK;
}

void described_close(struct described *d)
{
    recording_close(&d->recording);
}
