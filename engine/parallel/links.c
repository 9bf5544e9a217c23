/* Measures how long exchanges between the ranks take, by size. */
#include "engine/parallel/parallel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const LINK_NAMES[LINK_KINDS] = {
    [LINK_ALL_REDUCE] = "all_reduce", [LINK_ALL_GATHER] = "all_gather", [LINK_SEND] = "send"
};
const int64_t LINK_BYTES[LINK_SIZES] = { 64, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304 };

enum { TAG_LINK = 2, REPEATS_MOST = 101, REPEATS_LEAST = 5 };
static const double SIZE_SECONDS = 0.03; /* for all repetitions of one size */

struct measuring {
    struct rank *rank;
    const struct rank_module *m;
    const struct rank_place *place;
    char *mine, *all; /* each as large as the largest size */
    int bytes[RANKS_MAX], at[RANKS_MAX];
};

static void exchange(struct measuring *w, enum link_kind kind, int bytes, int other)
{
    const int me = w->place->rank;
    switch (kind) {
    case LINK_ALL_REDUCE: w->m->all_reduce(0, (float *)(void *)w->mine, bytes / (int)sizeof(float)); break;
    case LINK_ALL_GATHER: w->m->all_gather(0, w->mine, w->bytes[me], w->all, w->bytes, w->at); break;
    case LINK_SEND:
        if (me == 0) {
            w->m->send(other, TAG_LINK, w->mine, bytes);
            w->m->receive(other, TAG_LINK, w->all, bytes);
        } else if (me == other) {
            w->m->receive(0, TAG_LINK, w->all, bytes);
            w->m->send(0, TAG_LINK, w->mine, bytes);
        }
        break;
    case LINK_KINDS: break;
    }
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Ranks leave a barrier one after the other, so that the last one finds the messages of the others there: a
 * single exchange would seem to take no time. Several in turn take as long as their messages do. */
enum { TURNS = 4 };

/* Median time on rank 0; all ranks run the same number of repetitions, which rank 0 decides. */
static double time_size(struct measuring *w, enum link_kind kind, int bytes, int other)
{
    double took[REPEATS_MOST];
    int repeats = REPEATS_LEAST;
    memset(w->mine, 0, (size_t)bytes);
    exchange(w, kind, bytes, other); /* the first one makes connections */
    for (int i = 0; i < repeats; i++) {
        w->m->barrier(0);
        const int64_t start = clock_ns();
        for (int k = 0; k < TURNS; k++) exchange(w, kind, bytes, other);
        took[i] = (double)(clock_ns() - start) * 1e-9 / TURNS;
        if (i != REPEATS_LEAST - 1) continue;
        qsort(took, REPEATS_LEAST, sizeof *took, ascending);
        repeats = (int)fmin(REPEATS_MOST,
                            fmax(REPEATS_LEAST, SIZE_SECONDS / TURNS / took[REPEATS_LEAST / 2]));
        w->m->broadcast(0, 0, &repeats, (int)sizeof repeats);
    }
    qsort(took, (size_t)repeats, sizeof *took, ascending);
    const double median = took[repeats / 2];
    return kind == LINK_SEND ? median / 2 : median; /* there and back */
}

void rank_measure(struct rank *r, double read_bytes_s, struct rank_links *out)
{
    const size_t most = (size_t)LINK_BYTES[LINK_SIZES - 1];
    struct measuring w = { .rank = r, .m = rank_module(r), .place = rank_place(r) };
    const int ranks = w.place->size;
    w.mine = calloc(1, most);
    w.all = calloc(1, most);
    if (!w.mine || !w.all) w.m->stop(1);
    for (int s = 0; s < LINK_SIZES; s++) {
        const int bytes = (int)LINK_BYTES[s];
        for (int i = 0; i < ranks; i++) {
            w.at[i] = (int)((int64_t)bytes * i / ranks);
            w.bytes[i] = (int)((int64_t)bytes * (i + 1) / ranks) - w.at[i];
        }
        for (int k = 0; k < LINK_SEND; k++) out->seconds[k][s] = time_size(&w, (enum link_kind)k, bytes, 0);
        out->seconds[LINK_SEND][s] = NAN;
        for (int other = 1; other < ranks; other++)
            out->seconds[LINK_SEND][s] = fmax(out->seconds[LINK_SEND][s],
                                              time_size(&w, LINK_SEND, bytes, other));
        rank_alive(r);
    }
    for (int i = 0; i < RANKS_MAX; i++) {
        out->read_bytes_s[i] = NAN;
        w.at[i] = i * (int)sizeof read_bytes_s;
        w.bytes[i] = (int)sizeof read_bytes_s;
    }
    w.m->gather(0, 0, &read_bytes_s, (int)sizeof read_bytes_s, out->read_bytes_s, w.bytes, w.at);
    free(w.mine);
    free(w.all);
}

double link_seconds(const struct rank_links *l, enum link_kind kind, double bytes)
{
    const double *s = l->seconds[kind];
    const int last = LINK_SIZES - 1;
    if (bytes <= (double)LINK_BYTES[0]) return s[0];
    if (bytes >= (double)LINK_BYTES[last]) return s[last] * bytes / (double)LINK_BYTES[last];
    int i = 0;
    while (bytes > (double)LINK_BYTES[i + 1]) i++;
    const double part = (bytes - (double)LINK_BYTES[i]) / (double)(LINK_BYTES[i + 1] - LINK_BYTES[i]);
    return s[i] + part * (s[i + 1] - s[i]);
}
