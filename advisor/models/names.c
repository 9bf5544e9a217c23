/* names.c - reads the names of models that people write behind -m, without looking at the machine.
 *
 * A name must never reach beyond its store: parts that are empty, "." or "..", control characters and
 * backslashes are refused, because the parts become folders and parts of addresses. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "advisor/models/models.h"

const struct model_store_row MODEL_STORES[STORE_COUNT] = {
    [STORE_PATH] = { "", "folder", false },
    [STORE_HF] = { "hf", "Hugging Face", true },
    [STORE_LLAMACPP] = { "llamacpp", "llama.cpp", false },
    [STORE_OLLAMA] = { "ollama", "Ollama", true },
    [STORE_LMSTUDIO] = { "lmstudio", "LM Studio", false },
    [STORE_MODELSCOPE] = { "modelscope", "ModelScope", true },
};

/* What a name of each store looks like, for messages. */
static const char *const EXPECTED[STORE_COUNT] = {
    [STORE_PATH] = "a file, a folder or a name that `qdyno models` lists",
    [STORE_HF] = "hf:OWNER/REPO, hf:OWNER/REPO:TAG or hf:OWNER/REPO/FILE",
    [STORE_LLAMACPP] = "llamacpp:FILE",
    [STORE_OLLAMA] = "ollama:NAME, ollama:NAME:TAG or ollama:HOST/NAMESPACE/NAME:TAG",
    [STORE_LMSTUDIO] = "lmstudio:PUBLISHER/MODEL or lmstudio:PUBLISHER/MODEL/FILE",
    [STORE_MODELSCOPE] = "modelscope:OWNER/NAME, modelscope:OWNER/NAME:TAG or modelscope:OWNER/NAME/FILE",
};

static const char OLLAMA_HOST_NAME[] = "registry.ollama.ai", OLLAMA_LIBRARY[] = "library";

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Words between slashes in text[0..n), each of letters, digits and `also`; none empty, "." or "..". Returns
 * their number; -1: something else is there. */
static int count_parts(const char *text, size_t n, const char *also)
{
    int parts = 0;
    for (size_t at = 0; at <= n;) {
        size_t len = 0;
        while (at + len < n && text[at + len] != '/') {
            const char c = text[at + len++];
            if (!is_letter(c) && !strchr(also, c)) return -1;
        }
        if (!len || (len <= 2 && !strncmp(text + at, "..", len))) return -1;
        parts++;
        at += len + 1;
    }
    return parts;
}

/* A file's path below a repository: any characters that file names have, but nothing that leaves it. */
static bool is_file_path(const char *text)
{
    for (const char *p = text; *p;) {
        const size_t n = strcspn(p, "/");
        if (!n || (n <= 2 && !strncmp(p, "..", n))) return false;
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)p[i] < ' ' || p[i] == '\\' || p[i] == 127) return false;
        p += n;
        if (*p && !*++p) return false; /* ends in a slash */
    }
    return *text != '\0';
}

static enum err_code refuse(enum model_store s, const char *text, struct err *why)
{
    return err_set(why, ERR_USAGE, "'%s' is no model's name: expected %s", text, EXPECTED[s]);
}

static bool put(char *out, size_t size, const char *text, size_t n)
{
    if (n >= size) return false;
    memcpy(out, text, n);
    out[n] = '\0';
    return true;
}

/* OWNER/REPO[:TAG | /FILE][@REVISION], or REPO[:TAG] as the hub has for its oldest models. */
static bool parse_repository(struct model_name *out, const char *text)
{
    size_t length = strlen(text);
    const char *at = strrchr(text, '@');
    if (at) { /* a branch may contain slashes: the last '@' begins it */
        const size_t n = length - (size_t)(at - text) - 1;
        if (count_parts(at + 1, n, "._-") < 1 || !put(out->revision, sizeof out->revision, at + 1, n))
            return false;
        length = (size_t)(at - text);
    }
    char whole[1024];
    if (!put(whole, sizeof whole, text, length)) return false;
    const char *first = strchr(whole, '/'), *second = first ? strchr(first + 1, '/') : NULL;
    const char *colon = strchr(whole, ':');
    if (second && colon && colon < second) second = NULL; /* a tag with a slash is refused below */
    const size_t repo = second ? (size_t)(second - whole) : colon ? (size_t)(colon - whole) : length;
    const int parts = count_parts(whole, repo, "._-");
    if (parts < 1 || parts > 2 || !put(out->repo, sizeof out->repo, whole, repo)) return false;
    if (second) {
        out->is_file = true;
        return is_file_path(second + 1) && put(out->tag, sizeof out->tag, second + 1, strlen(second + 1));
    }
    if (!colon) return true;
    return count_parts(colon + 1, strlen(colon + 1), "._-+") == 1 &&
           put(out->tag, sizeof out->tag, colon + 1, strlen(colon + 1));
}

/* [HOST/][NAMESPACE/]NAME[:TAG]; the host may have a port. */
static bool parse_ollama(struct model_name *out, const char *text)
{
    const char *slash = strrchr(text, '/'), *colon = strchr(slash ? slash : text, ':');
    const size_t n = colon ? (size_t)(colon - text) : strlen(text);
    const char *host_end = strchr(text, '/');
    const size_t host = host_end ? (size_t)(host_end - text) : 0;
    const int parts = count_parts(text, n, "._-:");
    if (parts < 1 || parts > 3) return false;
    if (parts < 3 && memchr(text, ':', n)) return false; /* only a host has a port */
    if (parts == 3 && count_parts(text + host + 1, n - host - 1, "._-") != 2) return false;
    const int length = snprintf(out->repo, sizeof out->repo, "%s%s%s%s%.*s",
                                parts < 3 ? OLLAMA_HOST_NAME : "", parts < 3 ? "/" : "",
                                parts < 2 ? OLLAMA_LIBRARY : "", parts < 2 ? "/" : "", (int)n, text);
    if (length < 0 || (size_t)length >= sizeof out->repo) return false;
    const char *tag = colon ? colon + 1 : "latest";
    return count_parts(tag, strlen(tag), "._-") == 1 && put(out->tag, sizeof out->tag, tag, strlen(tag));
}

/* FILE of llama.cpp's folder: the owner, repository and file are joined there and cannot be told apart. */
static bool parse_flat(struct model_name *out, const char *text)
{
    const size_t n = strlen(text), gguf = strlen(".gguf"); /* listed without it */
    const bool has_end = n > gguf && !strcasecmp(text + n - gguf, ".gguf");
    return is_file_path(text) && !strchr(text, '/') &&
           put(out->repo, sizeof out->repo, text, n - (has_end ? gguf : 0));
}

/* The path behind the host of an address at the hub; NULL: the text is no such address. */
static const char *path_at_hub(const char *text)
{
    static const char *const HUB[] = { "https://huggingface.co/", "https://hf.co/", "huggingface.co/",
                                       "hf.co/" };
    for (size_t i = 0; i < COUNT_OF(HUB); i++)
        if (!strncasecmp(text, HUB[i], strlen(HUB[i]))) return text + strlen(HUB[i]);
    return NULL;
}

/* An address as browsers show it: OWNER/REPO/blob/REVISION/FILE?download=true. */
static bool parse_address(struct model_name *out, const char *text)
{
    static const char *const VIEWS[] = { "blob/", "resolve/" };
    char path[1024];
    if (!put(path, sizeof path, text, strcspn(text, "?#")) || !parse_repository(out, path)) return false;
    for (size_t i = 0; i < COUNT_OF(VIEWS) && out->is_file; i++) {
        const size_t n = strlen(VIEWS[i]);
        const char *revision = out->tag + n, *file = strchr(revision, '/');
        if (strncmp(out->tag, VIEWS[i], n)) continue;
        if (!file || !put(out->revision, sizeof out->revision, revision, (size_t)(file - revision)))
            return false;
        if (!strcmp(out->revision, "main")) out->revision[0] = '\0';
        memmove(out->tag, file + 1, strlen(file + 1) + 1);
        return *out->tag != '\0';
    }
    return true;
}

/* The store that a prefix names, and the text behind it. STORE_COUNT: no store has this prefix. */
static enum model_store store_of(const char **text)
{
    for (int s = STORE_PATH + 1; s < STORE_COUNT; s++) {
        const size_t n = strlen(MODEL_STORES[s].prefix);
        if (strncasecmp(*text, MODEL_STORES[s].prefix, n) || (*text)[n] != ':') continue;
        *text += n + 1;
        return (enum model_store)s;
    }
    return STORE_COUNT;
}

/* OWNER/REPO:TAG without a prefix: exactly one slash, then exactly one colon. */
static bool is_short_name(const char *text)
{
    const char *colon = strchr(text, ':'), *slash = strchr(text, '/');
    return colon && slash && slash < colon && *text != '~' &&
           count_parts(text, (size_t)(colon - text), "._-") == 2 &&
           count_parts(colon + 1, strcspn(colon + 1, "@"), "._-+") == 1;
}

enum err_code model_name_parse(struct model_name *out, const char *text, struct err *why)
{
    if (!text) text = "";
    const char *rest = text, *address = path_at_hub(text);
    enum model_store s = address ? STORE_HF : store_of(&rest);
    *out = (struct model_name){ .store = STORE_PATH };
    if (s == STORE_COUNT) s = is_short_name(text) ? STORE_HF : STORE_PATH;
    if (s == STORE_PATH) {
        if (!*text) return refuse(s, text, why);
        if (strlen(text) >= sizeof out->repo) return ERR_OK; /* a long path: no name */
        return put(out->repo, sizeof out->repo, text, strlen(text)) ? ERR_OK : refuse(s, text, why);
    }
    const bool good = address               ? parse_address(out, address)
                      : s == STORE_OLLAMA   ? parse_ollama(out, rest)
                      : s == STORE_LLAMACPP ? parse_flat(out, rest)
                                            : parse_repository(out, rest);
    if (!good) {
        *out = (struct model_name){ .store = STORE_PATH };
        return refuse(s, text, why);
    }
    out->store = s;
    out->remote = MODEL_STORES[s].fetched;
    return ERR_OK;
}

const char *model_name_text(const struct model_name *n, char *buf, size_t size)
{
    const char *repo = n->repo;
    if (n->store == STORE_OLLAMA) { /* without the parts that Ollama's names leave out */
        const size_t host = strlen(OLLAMA_HOST_NAME), library = strlen(OLLAMA_LIBRARY);
        if (!strncmp(repo, OLLAMA_HOST_NAME, host) && repo[host] == '/') {
            repo += host + 1;
            if (!strncmp(repo, OLLAMA_LIBRARY, library) && repo[library] == '/') repo += library + 1;
        }
    }
    const bool latest = n->store == STORE_OLLAMA && !strcmp(n->tag, "latest");
    const bool tagged = *n->tag && !latest;
    snprintf(buf, size, "%s%s%s%s%s%s%s", MODEL_STORES[n->store].prefix, n->store == STORE_PATH ? "" : ":",
             repo, tagged ? n->is_file ? "/" : ":" : "", tagged ? n->tag : "", *n->revision ? "@" : "",
             n->revision);
    return buf;
}
