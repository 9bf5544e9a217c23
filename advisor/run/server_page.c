#include "advisor/run/server_page.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/export/export.h"

/* The figures, and the families that have them: of a server of this program, and their names elsewhere. */
static const struct {
    const char *key;
    enum family_id family;
} FIGURES[PAGE_FIGURES] = {
    { "requests", FAMILY_SERVE_REQUESTS },
    { "prompt_tokens", FAMILY_SERVE_PROMPT_TOKENS },
    { "cached_tokens", FAMILY_SERVE_CACHED_TOKENS },
    { "generated_tokens", FAMILY_SERVE_GENERATED_TOKENS },
    { "preemptions", FAMILY_SERVE_PREEMPTIONS },
    { "queue_s", FAMILY_SERVE_QUEUE_TIME },
    { "ttft_s", FAMILY_SERVE_FIRST_TOKEN },
    { "itl_s", FAMILY_SERVE_TOKEN },
    { "e2e_s", FAMILY_SERVE_DURATION },
};

static bool is_times(size_t i)
{
    return FAMILIES[FIGURES[i].family].type == FAMILY_HISTOGRAM;
}

/* Is the sample's name [n] `name` with this suffix? */
static bool name_is(const char *sample, size_t n, const char *name, const char *suffix)
{
    const size_t base = name ? strlen(name) : 0;
    return base && n == base + strlen(suffix) && !memcmp(sample, name, base) &&
           !memcmp(sample + base, suffix, n - base);
}

static bool family_is(const char *sample, size_t n, enum family_id f, const char *suffix)
{
    const struct family *row = &FAMILIES[f];
    return name_is(sample, n, row->name, suffix) || name_is(sample, n, row->vllm, suffix) ||
           name_is(sample, n, row->llama_server, suffix);
}

static void add(double *to, double value)
{
    *to = isnan(*to) ? value : *to + value; /* series of one family differ in their labels */
}

/* One line: NAME{LABELS} VALUE. */
static void sample_take(struct server_page *p, const char *line, size_t n)
{
    size_t name = 0;
    char number[64];
    while (name < n && (isalnum((unsigned char)line[name]) || line[name] == '_' || line[name] == ':')) name++;
    const char *at = line + name, *end = line + n;
    if (at < end && *at == '{') { /* a label's value may contain "}" */
        bool quoted = false;
        for (at++; at < end && (quoted || *at != '}'); at++) {
            if (quoted && *at == '\\' && at + 1 < end)
                at++;
            else if (*at == '"')
                quoted = !quoted;
        }
        if (at < end) at++;
    }
    while (at < end && isspace((unsigned char)*at)) at++;
    size_t digits = 0;
    while (at + digits < end && !isspace((unsigned char)at[digits])) digits++;
    if (!name || !digits || digits >= sizeof number) return;
    memcpy(number, at, digits);
    number[digits] = '\0';
    double value;
    if (!str_to_double(number, &value) || !isfinite(value)) return;
    for (size_t i = 0; i < PAGE_FIGURES; i++) {
        const enum family_id f = FIGURES[i].family;
        if (family_is(line, name, f, is_times(i) ? "_sum" : "")) add(&p->sum[i], value);
        if (is_times(i) && family_is(line, name, f, "_count")) add(&p->count[i], value);
    }
}

void server_page_parse(struct server_page *p, const char *text)
{
    *p = (struct server_page){ .known = true };
    for (size_t i = 0; i < PAGE_FIGURES; i++) p->sum[i] = p->count[i] = NAN;
    while (*text) {
        const size_t n = strcspn(text, "\n");
        if (*text != '#') sample_take(p, text, n);
        text += n + (text[n] == '\n');
    }
}

json_t *server_page_difference(const struct server_page *before, const struct server_page *after)
{
    if (!before->known || !after->known) return NULL;
    json_t *o = json_object();
    for (size_t i = 0; i < PAGE_FIGURES; i++) {
        /* a counter without samples has not counted anything yet */
        const double sum = after->sum[i] - (isnan(before->sum[i]) ? 0 : before->sum[i]),
                     n = after->count[i] - (isnan(before->count[i]) ? 0 : before->count[i]);
        const double value = is_times(i) ? (n > 0 ? sum / n : (double)NAN) : sum;
        json_put_num(o, FIGURES[i].key, value >= 0 ? value : (double)NAN); /* below 0: the server restarted */
    }
    return o;
}
