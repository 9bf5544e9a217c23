/* What a worker reads from its parent: whatever lines arrive on the socket, each gets an answer or ends the
 * worker, and every answer is a JSON object. In the input MODEL stands for the path of a small model. */
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/worker/worker.h"
#include "tests/fuzz/cost.h"
#include "tests/fuzz/draft.h"

enum { INPUT_MOST = 1 << 16 };

/* A request may load the model or decode a whole context; the shortest ones have 20 bytes. */
static const struct cost_ceiling CEILING = {
    .seconds = 10, .seconds_per_mb = 2000, .mb = 500, .mb_per_mb = 2000
};

/* The input decides how long training takes, and devices belong to the machine. */
static const char *const LEFT_OUT[] = { "train", "opencl", "\\u" };

static char folder[] = "/dev/shm/fuzz-worker-XXXXXX", model[64];

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void folder_remove(void)
{
    nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void prepare(void)
{
    static struct draft d;
    struct script s = { (const uint8_t *)"\0\0\0\5", 4 };
    struct str file = { 0 };
    if (model[0]) return;
    if (!mkdtemp(folder) || setenv("XDG_CACHE_HOME", folder, 1)) abort();
    atexit(folder_remove);
    draft_model(&d, &s);
    draft_write(&d, &file);
    draft_free(&d);
    snprintf(model, sizeof model, "%s/model.gguf", folder);
    FILE *f = fopen(model, "wb");
    if (!f || fwrite(file.data, 1, file.len, f) != file.len || fclose(f)) abort();
    str_free(&file);
}

/* The input with the path in place of MODEL. */
static void fill_in(struct str *out, const uint8_t *data, size_t size)
{
    while (size) {
        const uint8_t *at = memmem(data, size, "MODEL", 5);
        const size_t n = at ? (size_t)(at - data) : size;
        str_append_n(out, data, n);
        if (at) str_append(out, model);
        data += n + (at ? 5 : 0);
        size -= n + (at ? 5 : 0);
    }
}

struct parent {
    int fd;
    struct str said; /* all that the worker sent */
};

static void *parent_read(void *arg)
{
    struct parent *p = arg;
    char piece[4096];
    for (ssize_t n; (n = recv(p->fd, piece, sizeof piece, 0)) > 0;) str_append_n(&p->said, piece, (size_t)n);
    return NULL;
}

static void check_answers(const struct str *said)
{
    const char *at = str_text(said), *end = at + said->len;
    for (const char *newline; at < end; at = newline + 1) {
        json_t *o;
        newline = memchr(at, '\n', (size_t)(end - at));
        if (!newline || json_parse(&o, at, (size_t)(newline - at), NULL) || !json_is_object(o)) abort();
        if (!strcmp(json_get_str(o, "code", ""), "ERR_INTERNAL")) {
            fprintf(stderr, "%s\n", json_get_str(o, "message", ""));
            abort();
        }
        json_decref(o);
    }
}

static void use(const uint8_t *data, size_t size)
{
    struct str input = { 0 };
    int pair[2];
    pthread_t reader;
    fill_in(&input, data, size);
    if (input.len > INPUT_MOST || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) {
        str_free(&input);
        return;
    }
    struct parent parent = { .fd = pair[0] };
    if (input.len && send(pair[0], input.data, input.len, 0) != (ssize_t)input.len) abort();
    shutdown(pair[0], SHUT_WR);
    if (pthread_create(&reader, NULL, parent_read, &parent)) abort();
    struct err why = { 0 };
    const enum err_code rc = worker_serve(pair[1], NULL, &why);
    close(pair[1]);
    pthread_join(reader, NULL);
    close(pair[0]);
    if (rc && !why.message[0]) abort();
    check_answers(&parent.said);
    str_free(&parent.said);
    str_free(&input);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    prepare();
    for (size_t i = 0; i < COUNT_OF(LEFT_OUT); i++)
        if (memmem(data, size, LEFT_OUT[i], strlen(LEFT_OUT[i]))) return -1;
    return cost_run(use, data, size, &CEILING);
}
