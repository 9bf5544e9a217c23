/* choose.c - what the files of a repository are, by their names, and which one a tag means. The rules are
 * those of llama.cpp, so that both programs take the same file. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "advisor/models/models.h"

const char *const MODEL_KIND_NAMES[MODEL_KIND_COUNT] = {
    [MODEL_WEIGHTS] = "weights",  [MODEL_PROJECTOR] = "projector", [MODEL_IMATRIX] = "importance matrix",
    [MODEL_DRAFT] = "draft head", [MODEL_ADAPTER] = "adapter",     [MODEL_OTHER] = "no GGUF",
};

static bool ends_without_case(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcasecmp(text + n - m, end);
}

enum model_file_kind model_file_kind(const char *file_name)
{
    static const char *const DRAFT[] = { "mtp-", "eagle3-", "dflash-", "dspark-" };
    const char *name = path_file_name(file_name);
    /* llama-imatrix writes .dat or .gguf, and people upload both */
    if (strcasestr(name, "imatrix")) return MODEL_IMATRIX;
    if (!ends_without_case(name, ".gguf")) return MODEL_OTHER;
    if (strcasestr(name, "mmproj")) return MODEL_PROJECTOR;
    for (size_t i = 0; i < COUNT_OF(DRAFT); i++)
        if (!strncasecmp(name, DRAFT[i], strlen(DRAFT[i]))) return MODEL_DRAFT;
    return MODEL_WEIGHTS;
}

/* Five digits; 0: something else. */
static int shard_number(const char *at)
{
    int v = 0;
    for (int i = 0; i < 5; i++) {
        if (!isdigit((unsigned char)at[i])) return 0;
        v = 10 * v + (at[i] - '0');
    }
    return v;
}

bool model_file_is_shard(const char *file_name, int *index, int *count, size_t *stem)
{
    enum { TAIL = sizeof "-00001-of-00001.gguf" - 1 };
    const size_t n = strlen(file_name);
    if (n <= TAIL || !ends_without_case(file_name, ".gguf")) return false;
    const char *at = file_name + n - TAIL;
    if (*at != '-' || strncmp(at + 6, "-of-", 4)) return false;
    const int i = shard_number(at + 1), of = shard_number(at + 10);
    if (i < 1 || i > of) return false;
    if (index) *index = i;
    if (count) *count = of;
    if (stem) *stem = n - TAIL;
    return true;
}

static bool can_be_chosen(const char *name)
{
    int index = 1;
    return model_file_kind(name) == MODEL_WEIGHTS &&
           (!model_file_is_shard(name, &index, NULL, NULL) || index == 1);
}

/* The tag stands somewhere in the name, and '-' or '.' follows. */
static bool has_tag(const char *name, const char *tag)
{
    const size_t n = strlen(tag);
    for (const char *p = strcasestr(name, tag); p; p = strcasestr(p + 1, tag))
        if (p[n] == '-' || p[n] == '.') return true;
    return false;
}

static int choose_tag(const char *const *name, int n, const char *tag)
{
    for (int i = 0; i < n; i++)
        if (can_be_chosen(name[i]) && (!*tag || has_tag(name[i], tag))) return i;
    return -1;
}

int model_file_choose(const char *const *name, int n, const char *tag)
{
    static const char *const USUAL[] = { "Q4_K_M", "Q8_0", "" };
    if (tag && *tag) return choose_tag(name, n, tag);
    int at = -1;
    for (size_t i = 0; i < COUNT_OF(USUAL) && at < 0; i++) at = choose_tag(name, n, USUAL[i]);
    return at;
}
