/* advisor/tune/sentence.c - the result of a search in one sentence (tune.h). */
#include <math.h>
#include <stdio.h>

#include "advisor/tune/tune.h"

static void put_speed(struct str *s, const struct tune_result *r)
{
    experiment_put_change(s, r->effect, r->noise_floor, 0.05,
                          &(struct change_words){ "faster", "slower", "" });
}

static void put_memory(struct str *s, const struct tune_result *r)
{
    const double p = 100 * ((double)r->winner.memory_bytes / (double)r->current.memory_bytes - 1);
    if (r->winner.memory_bytes <= 0 || r->current.memory_bytes <= 0) return;
    if (fabs(p) < 0.5)
        str_append(s, ", same memory");
    else
        str_printf(s, ", %.0f %% %s memory", fabs(p), p < 0 ? "less" : "more");
}

static void put_quality(struct str *s, const struct tune_result *r)
{
    if (r->random_weights)
        str_append(s, "; the model has random weights, so quality means nothing");
    else if (isnan(r->winner.kld))
        str_append(s, "; quality not measured");
    else
        str_printf(s, ", quality loss %.2g nats on %s", r->winner.kld, r->text);
    if (r->accuracy_limit > 0 && !isnan(r->winner.accuracy_lower))
        str_printf(s, ", %+.2g %% right answers (95 %%: %+.2g to %+.2g)", 100 * r->winner.accuracy_change,
                   100 * r->winner.accuracy_lower, 100 * r->winner.accuracy_upper);
}

char *tune_sentence(char *buf, size_t size, const struct tune_result *r)
{
    struct str s = { 0 };
    if (!*r->winner.line || isnan(r->effect.lower)) {
        str_printf(&s, "Keep %s: %s.", r->current.line, r->because);
    } else {
        if (r->wins)
            str_printf(&s, "%s is ", r->winner.line);
        else
            str_printf(&s, "Keep %s. The best candidate, %s, is not proven better: ", r->current.line,
                       r->winner.line);
        put_speed(&s, r);
        put_memory(&s, r);
        put_quality(&s, r);
        if (r->wins) str_printf(&s, ", compared with %s", r->current.line);
        str_append(&s, ".");
    }
    snprintf(buf, size, "%s", str_text(&s));
    str_free(&s);
    return buf;
}
