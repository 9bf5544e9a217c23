/* advisor/advise/proposals.c - configurations that run on the model file: what arm B begins with and
 * which command the screens show. On a file that is quantized already, a recipe does not run: there it is
 * another file of the same model, the type of the KV cache, activations, threads. Only headers are read. */
#include "advisor/advise/proposals.h"

#include <dirent.h>
#include <limits.h>
#include <string.h>

#include "advisor/run/run.h"
#include "engine/import/import.h"
#include "engine/quant/quant.h"

/* Whether two files hold the same model in other formats. Without names, equal shapes have to do. */
static bool same_model(const struct gguf *a, const struct model_shape *x, const struct gguf *b,
                       const struct model_shape *y)
{
    const struct gguf_string p = gguf_get_string(a, "general.name"), q = gguf_get_string(b, "general.name");
    const bool named = p.len == q.len && (!p.len || !memcmp(p.data, q.data, p.len));
    return named && !strcmp(x->arch, y->arch) && x->layers == y->layers && x->embd == y->embd &&
           x->vocab == y->vocab && x->params == y->params;
}

static void propose(struct proposals *out, const struct gguf *g, const char *path, const char *settings,
                    const char *about)
{
    struct config c;
    if (out->count == PROPOSALS || config_parse(&c, settings, NULL)) return;
    const bool recipe = c.given[KNOB_FORMAT] || c.given[KNOB_METHOD];
    if (recipe && recipe_is_identity(&c, g)) return; /* the file as it is */
    if (arm_check(&c, path, 0, 1, NULL)) return;
    struct proposal *p = &out->row[out->count++];
    config_line(&c, p->line, sizeof p->line);
    p->changes_answers = config_changes_answers(&c);
    snprintf(p->about, sizeof p->about, "%s", about);
}

/* The size of the file if it holds the same model as g; -1: it does not, or it is no model. */
static int64_t bytes_if_same(const struct gguf *g, const struct model_shape *shape, const char *path)
{
    struct gguf *other = NULL;
    struct model_shape s;
    const bool same = !model_file_open(&other, path, NULL) && !model_shape_read(&s, other, NULL) &&
                      same_model(g, shape, other, &s);
    const int64_t bytes = same ? gguf_file_bytes(other) : -1;
    gguf_close(other);
    return bytes;
}

char *proposals_sibling(char *buf, size_t size, const struct gguf *g, const struct model_shape *shape,
                        const char *path)
{
    enum { MOST = 64 }; /* files: a folder may hold many, and each header takes milliseconds */
    const int in_folder = (int)(path_file_name(path) - path);
    char folder[PATH_MAX], other[PATH_MAX];
    int64_t best_bytes = -1;
    const int64_t own = gguf_file_bytes(g);
    *buf = '\0';
    snprintf(folder, sizeof folder, "%.*s", in_folder ? in_folder : 2, in_folder ? path : "./");
    DIR *dir = opendir(folder);
    int read = 0;
    for (struct dirent *d; dir && read < MOST && (d = readdir(dir));) {
        if (!str_ends(d->d_name, ".gguf") || !strcmp(d->d_name, path_file_name(path))) continue;
        if (snprintf(other, sizeof other, "%s%s", folder, d->d_name) >= (int)sizeof other) continue;
        read++;
        const int64_t bytes = bytes_if_same(g, shape, other);
        if (bytes < 0 || bytes == own) continue;
        const bool beyond = best_bytes > own, larger = bytes > own;
        const bool nearer = larger ? !beyond || bytes < best_bytes : !beyond && bytes > best_bytes;
        if (nearer) {
            best_bytes = bytes;
            str_put(buf, size, other);
        }
    }
    if (dir) closedir(dir);
    return buf;
}

static void propose_sibling(struct proposals *out, const struct gguf *g, const struct model_shape *shape,
                            const char *path)
{
    char best[PATH_MAX], line[CONFIG_LINE];
    struct config c;
    config_default(&c);
    proposals_sibling(best, sizeof best, g, shape, path);
    if (!best[0] || config_set(&c, "model", best, NULL)) return;
    propose(out, g, path, config_line(&c, line, sizeof line),
            "another file of this model, in the same folder");
}

void proposals_make(struct proposals *out, const struct gguf *g, const struct model_shape *shape,
                    const char *path)
{
    struct config c;
    *out = (struct proposals){ .count = 0 };
    const bool can = !config_parse(&c, "q8_0", NULL) && !recipe_is_identity(&c, g) &&
                     !arm_check(&c, path, 0, 1, NULL);
    out->quantized = !can;
    propose(out, g, path, "q8_0", "8 bits per weight");
    propose(out, g, path, "q4_0", "4 bits per weight");
    if (!can) propose_sibling(out, g, shape, path);
    propose(out, g, path, "kv=q8_0", "a KV cache of 8 bits");
    propose(out, g, path, "act=int8", "activations in 8 bits");
    propose(out, g, path, "threads=1", "one thread");
}
