/* How a model is divided among processes: the value of parallel=. */
#include "engine/config/config_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"

enum { NUMBER_MOST = 64 };

/* The kinds in the order of the canonical spelling. */
static const char *const KINDS[] = { "tp", "cp", "pp", "dp" };

static int *kind_of(struct parallel *p, size_t i)
{
    int *const NUMBERS[] = { &p->tp, &p->cp, &p->pp, &p->dp };
    return NUMBERS[i];
}

/* A number at *at, which is moved behind it. 0: there is none, or it is too large for `most`. */
static int number_read(const char **at, int most)
{
    int n = 0;
    for (; isdigit((unsigned char)**at) && n <= most; ++*at) n = 10 * n + (**at - '0');
    return n <= most ? n : 0;
}

/* What follows "pp": layers of each stage, at least two of them. */
static bool stages_read(struct parallel *p, const char **at)
{
    enum { LAYERS_MOST = 999 };
    for (p->pp = 0;; ++*at) {
        if (p->pp == STAGES_MOST || !(p->stage_layers[p->pp] = number_read(at, LAYERS_MOST))) return false;
        p->pp++;
        if (**at != '+') return p->pp > 1;
    }
}

static enum err_code wrong(const char *text, struct err *why)
{
    return err_set(
        why, ERR_USAGE,
        "parallel=%.60s: expected off, or tpN, cpN, ppN or dpN with N from 2 to %d, or several of them, "
        "such as tp2.pp2 (at most %d processes together); pp20+12 gives stages these numbers of layers",
        text, NUMBER_MOST, NUMBER_MOST);
}

enum err_code parallel_parse(struct parallel *out, const char *text, struct err *why)
{
    *out = (struct parallel){ .tp = 1, .cp = 1, .pp = 1, .dp = 1 };
    if (!strcmp(text, "off")) return ERR_OK;
    for (const char *at = text;; at++) {
        size_t i = 0;
        while (i < COUNT_OF(KINDS) && strncmp(at, KINDS[i], 2)) i++;
        if (i == COUNT_OF(KINDS) || *kind_of(out, i) > 1) return wrong(text, why);
        at += 2;
        if (kind_of(out, i) == &out->pp && at[strspn(at, "0123456789")] == '+') {
            if (!stages_read(out, &at)) return wrong(text, why);
        } else {
            const int n = number_read(&at, NUMBER_MOST);
            if (n < 2) return wrong(text, why);
            *kind_of(out, i) = n;
        }
        if (parallel_ranks(out) > NUMBER_MOST) return wrong(text, why);
        if (!*at) return ERR_OK;
        if (*at != '.') return wrong(text, why);
    }
}

int parallel_ranks(const struct parallel *p)
{
    return p->tp * p->cp * p->pp * p->dp;
}

const char *parallel_text(const struct parallel *p, char *buf, size_t size)
{
    struct parallel copy = *p;
    int n = snprintf(buf, size, "%s", parallel_ranks(p) > 1 ? "" : "off");
    for (size_t i = 0; i < COUNT_OF(KINDS); i++) {
        const int number = *kind_of(&copy, i);
        const bool stages = kind_of(&copy, i) == &copy.pp && p->stage_layers[0];
        if (number > 1 && n < (int)size)
            n += snprintf(buf + n, size - (size_t)n, "%s%s%d", n ? "." : "", KINDS[i],
                          stages ? p->stage_layers[0] : number);
        for (int s = 1; s < number && stages && n < (int)size; s++)
            n += snprintf(buf + n, size - (size_t)n, "+%d", p->stage_layers[s]);
    }
    return buf;
}

/* Ranks are numbered with the first kind fastest (engine/plan/split.h). */
const char *parallel_role(const struct parallel *p, int rank, char *buf, size_t size)
{
    struct parallel copy = *p;
    int n = snprintf(buf, size, "%s", "");
    for (size_t i = 0; i < COUNT_OF(KINDS); i++) {
        const int parts = *kind_of(&copy, i);
        if (parts > 1 && n < (int)size)
            n += snprintf(buf + n, size - (size_t)n, "%s%s %d/%d", n ? " " : "", KINDS[i], rank % parts + 1,
                          parts);
        rank /= parts;
    }
    return buf;
}

struct parallel config_parallel(const struct config *c)
{
    struct parallel p;
    parallel_parse(&p, config_text(c, KNOB_PARALLEL), NULL); /* was checked when it was set */
    return p;
}

const struct format *config_exchange(const struct config *c)
{
    return format_find(config_text(c, KNOB_EXCHANGE));
}

enum err_code parallel_check_training(const struct parallel *p, int64_t accumulate, struct err *why)
{
    char text[64];
    if (p->tp * p->cp * p->pp > 1)
        return err_set(why, ERR_USAGE,
                       "parallel=%s: training divides the batches of a step among processes, each with the "
                       "whole model: expected off or dpN",
                       parallel_text(p, text, sizeof text));
    if ((p->dp & (p->dp - 1)) || accumulate % p->dp)
        return err_set(why, ERR_USAGE,
                       "parallel=dp%d: each process needs the same number of a step's %" PRId64
                       " batches (accumulate), and their gradients are summed in pairs: expected dpN with N "
                       "a power of 2 that divides accumulate",
                       p->dp, accumulate);
    return ERR_OK;
}

enum err_code parallel_check(const struct config *c, struct err *why)
{
    const struct parallel p = config_parallel(c);
    const bool hosts = *config_text(c, KNOB_HOSTS);
    if (p.tp * p.pp == 1 && config_choice(c, KNOB_EXCHANGE))
        return err_set(why, ERR_USAGE,
                       "exchange=%s is the format of activations that processes of tpN and ppN exchange, and "
                       "parallel=%s has none of these: expected tpN or ppN, or exchange=f32",
                       config_text(c, KNOB_EXCHANGE), config_text(c, KNOB_PARALLEL));
    if (parallel_ranks(&p) == 1)
        return hosts ? err_set(why, ERR_USAGE,
                               "hosts= names the machines for parallel=: add parallel=tp2, or leave it out")
                     : ERR_OK;
    if (strcmp(config_text(c, KNOB_DEVICE), "cpu"))
        return err_set(why, ERR_USAGE,
                       "parallel=%s runs on the CPU only: leave out device=%s, or write parallel=off",
                       config_text(c, KNOB_PARALLEL), config_text(c, KNOB_DEVICE));
    if (!strcmp(config_text(c, KNOB_COMPILE), "autotune"))
        return err_set(
            why, ERR_USAGE,
            "parallel=%s divides matrices among processes, and compile=autotune measures whole ones: leave "
            "one of them out",
            config_text(c, KNOB_PARALLEL));
    if (p.cp > 1 && config_choice(c, KNOB_ATTENTION) == ATTENTION_PLAIN)
        return err_set(
            why, ERR_USAGE,
            "parallel=%s divides the positions that attention reads, and attention=plain needs all of "
            "them in one process: leave one of them out",
            config_text(c, KNOB_PARALLEL));
    if (strcmp(config_text(c, KNOB_AFFINITY), "none"))
        return err_set(why, ERR_USAGE,
                       "parallel=%s binds each process to its part of the cores: leave out affinity=%s",
                       config_text(c, KNOB_PARALLEL), config_text(c, KNOB_AFFINITY));
    return ERR_OK;
}
