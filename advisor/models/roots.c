/* roots.c - the folders in which other programs keep models, by the variables that those programs read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/models/models.h"

/* One way to a folder: a variable and what follows below it. Empty variables count as not set, as those
 * programs do. */
struct place {
    const char *variable, *below;
    bool own;           /* all places with this mark stand for one folder: the first that is set */
    const char *unless; /* no such place if this variable is set; NULL: always */
};

/* llama.cpp of 2026 keeps the hub's layout, and looks at LLAMA_CACHE first; the hub's library does not. */
static const struct place HF[] = {
    { "HF_HUB_CACHE", "", true, NULL },
    { "HUGGINGFACE_HUB_CACHE", "", true, NULL },
    { "HF_HOME", "hub", true, NULL },
    { "XDG_CACHE_HOME", "huggingface/hub", true, NULL },
    { "HOME", ".cache/huggingface/hub", true, NULL },
    { "LLAMA_CACHE", "", false, NULL },
    { NULL, NULL, false, NULL },
};
/* Before 2026: files without folders. */
static const struct place LLAMACPP[] = {
    { "LLAMA_CACHE", "", true, NULL },
    { "XDG_CACHE_HOME", "llama.cpp", true, NULL },
    { "HOME", ".cache/llama.cpp", true, NULL },
    { NULL, NULL, false, NULL },
};
static const struct place OLLAMA[] = {
    { "OLLAMA_MODELS", "", true, NULL },
    { "HOME", ".ollama/models", true, NULL },
    /* of the Linux service, which a user who sets the variable does not use */
    { NULL, "/usr/share/ollama/.ollama/models", false, "OLLAMA_MODELS" },
    /* what qdyno fetched from Ollama's registry, in the same layout */
    { "XDG_DATA_HOME", "qdyno/models/ollama", false, NULL },
    { "HOME", ".local/share/qdyno/models/ollama", false, "XDG_DATA_HOME" },
    { NULL, NULL, false, NULL },
};
static const struct place LMSTUDIO[] = {
    { "HOME", ".lmstudio/models", true, NULL },
    { "HOME", ".cache/lm-studio/models", false, NULL }, /* until 2024 */
    { NULL, NULL, false, NULL },
};
static const struct place MODELSCOPE[] = {
    { "MODELSCOPE_CACHE", "", true, NULL },
    { "HOME", ".cache/modelscope/hub", true, NULL },
    { NULL, NULL, false, NULL },
};
static const struct place *const PLACES[STORE_COUNT] = {
    [STORE_HF] = HF,
    [STORE_LLAMACPP] = LLAMACPP,
    [STORE_OLLAMA] = OLLAMA,
    [STORE_LMSTUDIO] = LMSTUDIO,
    [STORE_MODELSCOPE] = MODELSCOPE,
};

/* The folder of a place; NULL: its variable is not set. *failed: out of memory. */
static char *folder_of(const struct place *p, bool *failed)
{
    struct str path = { 0 };
    const char *value = p->variable ? getenv(p->variable) : "", *other = p->unless ? getenv(p->unless) : NULL;
    if (other && *other) return NULL;
    if (!value || (p->variable && !*value)) return NULL;
    if (!strncmp(value, "~/", 2) && getenv("HOME")) { /* the hub's library expands it, too */
        str_append(&path, getenv("HOME"));
        value++;
    }
    str_append(&path, value);
    if (*p->below)
        str_printf(&path, "%s%s", p->variable && !str_ends(str_text(&path), "/") ? "/" : "", p->below);
    while (path.len > 1 && path.data[path.len - 1] == '/') path.data[--path.len] = '\0';
    char *text = str_take(&path);
    *failed |= !text;
    return text;
}

enum err_code model_roots_of(struct model_roots *out, enum model_store s, struct err *why)
{
    bool failed = false, own = false;
    *out = (struct model_roots){ .n = 0 };
    for (const struct place *p = PLACES[s]; p && (p->variable || p->below); p++) {
        char *path = p->own && own ? NULL : folder_of(p, &failed);
        bool known = false;
        for (int i = 0; i < out->n && path; i++) known |= !strcmp(out->path[i], path);
        own |= p->own && path;
        if (path && !known && out->n < STORE_ROOTS_MOST)
            out->path[out->n++] = path;
        else
            free(path);
    }
    if (!failed) return ERR_OK;
    model_roots_done(out);
    return err_set(why, ERR_NOMEM, "out of memory");
}

void model_roots_done(struct model_roots *r)
{
    for (int i = 0; i < r->n; i++) free(r->path[i]);
    *r = (struct model_roots){ .n = 0 };
}

enum err_code model_store_root(char **path, enum model_store s, struct err *why)
{
    struct model_roots r;
    *path = NULL;
    enum err_code rc = model_roots_of(&r, s, why);
    if (rc) return rc;
    if (r.n) {
        *path = r.path[0];
        r.path[0] = NULL; /* the caller's now */
    }
    model_roots_done(&r);
    return *path ? ERR_OK
                 : err_set(why, ERR_ABSENT, "the folder of %s models is unknown: HOME is not set",
                           MODEL_STORES[s].title);
}
