/* advisor/tune/sentence.c - the result of a search in one sentence (tune.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "advisor/tune/parts.h"

/* As many digits as a reader needs: 19, 8.1, 0.42. */
static void put_percent(struct str *s, double value)
{
    const double size = fabs(value);
    str_printf(s, "%.*f %%", size >= 9.95 ? 0 : size >= 0.995 ? 1 : 2, size);
}

/* What the interval proves. */
static void put_speed(struct str *s, const struct tune_result *r)
{
    const double lower = stats_percent(r->effect.lower), upper = stats_percent(r->effect.upper);
    if (lower > 0 || upper < 0) {
        experiment_put_change(s, r->effect, r->noise_floor, r->alpha,
                              &(struct change_words){ "faster", "slower", "" });
        return;
    }
    str_append(s, "between ");
    put_percent(s, lower);
    str_append(s, " slower and ");
    put_percent(s, upper);
    str_printf(s, " faster (%.3g %%)", 100 * (1 - r->alpha));
}

static void put_memory(struct str *s, const struct tune_result *r)
{
    const double p = 100 * ((double)r->winner.memory_bytes / (double)r->current.memory_bytes - 1);
    if (r->winner.memory_bytes <= 0 || r->current.memory_bytes <= 0) return;
    if (fabs(p) < 0.5)
        str_append(s, ", with the same memory");
    else
        str_printf(s, ", with %.0f %% %s memory", fabs(p), p < 0 ? "less" : "more");
}

/* Settings such as the number of threads leave the answers as they are: nothing had to be measured. */
static void put_quality(struct str *s, const struct tune_result *r)
{
    char text[TEXT_LABEL];
    if (r->random_weights)
        str_append(s, "; the model has random weights, so quality means nothing");
    else if (r->winner.same_answers)
        str_append(s, "; its settings do not change answers");
    else if (isnan(r->winner.kld))
        str_append(s, "; quality not measured");
    else
        str_printf(s, "; quality loss %.2g nats (KL divergence) on %s", r->winner.kld,
                   quality_text_label(text, r->text, r->text_sha256));
    if (*r->reference && !isnan(r->winner.kld)) /* it says more than "this file", which may be another one */
        str_printf(s, " against %.100s", path_file_name(r->reference));
    else if (strstr(r->winner.line, "requantize=on") && !isnan(r->winner.kld))
        str_append(s, ", against this quantized file");
    if (r->accuracy_limit > 0 && !isnan(r->winner.accuracy_lower))
        str_printf(s, ", %+.2g %% right answers (95 %%: %+.2g to %+.2g)", 100 * r->winner.accuracy_change,
                   100 * r->winner.accuracy_lower, 100 * r->winner.accuracy_upper);
}

static void put_load(struct str *s, const struct tune_result *r)
{
    char load[RUN_LOAD_TEXT];
    if (r->load.loaded)
        str_printf(s, " It was measured on a busy machine (%s), so it may not hold on a quiet one.",
                   experiment_run_load_text(load, &r->load));
}

static void put_difference(struct str *s, const struct tune_result *r)
{
    put_speed(s, r);
    if (r->wins) str_printf(s, " than %s", r->current.line);
    put_memory(s, r);
    put_quality(s, r);
}

char *tune_change(char *buf, size_t size, const struct tune_result *r)
{
    struct str s = { 0 };
    put_difference(&s, r);
    snprintf(buf, size, "%s", str_text(&s));
    str_free(&s);
    return buf;
}

char *tune_sentence(char *buf, size_t size, const struct tune_result *r)
{
    struct str s = { 0 };
    const bool compared = *r->winner.line && isfinite(r->effect.lower) && r->verdict != VERDICT_INVALID;
    if (r->target.asked && !r->stopped) {
        str_printf(&s, "%s.", r->target.text);
    } else if (!compared) {
        str_printf(&s, "Keep %s: %s.", r->current.line, r->because);
    } else {
        if (r->wins)
            str_printf(&s, "%s is ", r->winner.line);
        else
            str_printf(&s, "Keep %s: the best candidate, %s, is not proven better. It is ", r->current.line,
                       r->winner.line);
        put_difference(&s, r);
        str_append(&s, ".");
        put_load(&s, r);
    }
    snprintf(buf, size, "%s", str_text(&s));
    str_free(&s);
    return buf;
}
