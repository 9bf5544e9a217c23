/* advisor/experiment/gate_parse.c - parses a gate: recursive descent, with one function for each line of the
 * grammar in experiment.h. Nothing is guessed: an error names its position, what was expected there, and the
 * nearest valid name. */
#include "advisor/experiment/experiment.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/metrics/metrics.h"

const struct gate_name GATE_NAMES[GATE_FIGURES] = {
    [GATE_KLD_MEAN] = { .name = "kld_mean",
                        .unit = "",
                        .help = "mean KL divergence from A's predictions, nats",
                        .quality = true },
    [GATE_KLD_P50] = { .name = "kld_p50", .unit = "", .help = "median KL divergence, nats", .quality = true },
    [GATE_KLD_P90] = { .name = "kld_p90",
                       .unit = "",
                       .help = "90th percentile of KL divergence, nats",
                       .quality = true },
    [GATE_KLD_P99] = { .name = "kld_p99",
                       .unit = "",
                       .help = "99th percentile of KL divergence, nats",
                       .quality = true },
    [GATE_KLD_MAX] = { .name = "kld_max",
                       .unit = "",
                       .help = "largest KL divergence, nats",
                       .quality = true },
    [GATE_TOP1] = { .name = "top1",
                    .unit = "ratio",
                    .help = "share of positions with the same most likely token as A",
                    .quality = true },
    [GATE_PPL] = { .name = "ppl", .unit = "", .help = "perplexity of the text", .quality = true },
    [GATE_PPL_RATIO] = { .name = "ppl_ratio",
                         .unit = "ratio",
                         .help = "perplexity over A's, paired by token",
                         .quality = true },
    [GATE_MCNEMAR_P] = { .name = "mcnemar_p",
                         .unit = "ratio",
                         .help = "is one right more often? exact p",
                         .quality = true },
    [GATE_FIRST_DIVERGENCE] = { .name = "first_divergence",
                                .unit = "",
                                .help = "tokens of greedy text before it differs, median",
                                .quality = true },
    [GATE_ENERGY_TOKEN] = { .name = "energy_j_token", .unit = "joules", .help = "energy of a token" },
    [GATE_NOISE_FLOOR] = { .name = "noise_floor", .unit = "ratio", .help = "half width of the A/A control" },
};

enum { DEPTH_LIMIT = 64 };

struct parser {
    struct gate *g;
    const char *at;
    int depth;
    struct err *why;
};

static int parser_position(const struct parser *p)
{
    return (int)(p->at - p->g->text) + 1;
}

static void skip_spaces(struct parser *p)
{
    while (isspace((unsigned char)*p->at)) p->at++;
}

static size_t word_length(const char *s)
{
    size_t n = 0;
    if (!isalpha((unsigned char)*s)) return 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_') n++;
    return n;
}

static bool is_word(const struct parser *p, const char *word)
{
    const size_t n = word_length(p->at);
    return n == strlen(word) && !memcmp(p->at, word, n);
}

static bool take_word(struct parser *p, const char *word)
{
    skip_spaces(p);
    if (!is_word(p, word)) return false;
    p->at += strlen(word);
    return true;
}

static bool parser_take(struct parser *p, char c)
{
    skip_spaces(p);
    if (*p->at != c) return false;
    p->at++;
    return true;
}

static enum err_code parser_expected(struct parser *p, const char *what)
{
    skip_spaces(p);
    if (!*p->at) return err_set(p->why, ERR_USAGE, "gate '%s', at its end: expected %s", p->g->text, what);
    return err_set(p->why, ERR_USAGE, "gate '%s', position %d ('%.12s'): expected %s", p->g->text,
                   parser_position(p), p->at, what);
}

/* ---------------------------------------------------------------- names and numbers */

static const char *unit_of(const struct gate_term *t)
{
    return t->metric >= 0 ? METRICS[t->metric].unit : GATE_NAMES[t->figure].unit;
}

static const char *name_of(const struct gate_term *t)
{
    return t->metric >= 0 ? METRICS[t->metric].name : GATE_NAMES[t->figure].name;
}

/* names of quality come first: kld_mean is a metric of cells as well */
static bool find_name(struct gate_term *t, const char *name)
{
    t->metric = -1;
    for (int i = 0; i < GATE_FIGURES; i++)
        if (!strcmp(GATE_NAMES[i].name, name)) {
            t->figure = (enum gate_figure)i;
            return true;
        }
    const struct metric *m = metric_find(name);
    if (!m || m->kind != METRIC_CELL) return false;
    t->metric = (int)(m - METRICS);
    return true;
}

static enum err_code parse_name(struct parser *p, struct gate_term *t)
{
    const char *names[GATE_FIGURES + METRIC_COUNT];
    char word[64];
    size_t n = 0, length;
    skip_spaces(p);
    length = word_length(p->at);
    if (!length) return parser_expected(p, "the name of a figure, 'not' or '('");
    snprintf(word, sizeof(word), "%.*s", (int)MIN(length, sizeof(word) - 1), p->at);
    if (find_name(t, word)) {
        p->at += length;
        return ERR_OK;
    }
    for (int i = 0; i < GATE_FIGURES; i++) names[n++] = GATE_NAMES[i].name;
    for (int i = 0; i < METRIC_COUNT; i++)
        if (METRICS[i].kind == METRIC_CELL) names[n++] = METRICS[i].name;
    const char *near = str_nearest(word, names, n);
    return err_set(p->why, ERR_USAGE, "gate '%s', position %d: no figure is called '%s'%s%s%s", p->g->text,
                   parser_position(p), word,
                   near ? "; did you mean '" : ": e.g. decode_tok_s, peak_rss_bytes, kld_mean",
                   near ? near : "", near ? "'?" : "");
}

static enum err_code parse_op(struct parser *p, struct gate_term *t)
{
    skip_spaces(p);
    if (*p->at != '<' && *p->at != '>') return parser_expected(p, "<, <=, > or >=");
    const bool less = *p->at++ == '<', equal = *p->at == '=';
    p->at += equal;
    t->op = less ? equal ? GATE_AT_MOST : GATE_LESS : equal ? GATE_AT_LEAST : GATE_MORE;
    return ERR_OK;
}

static const struct {
    const char *name;
    double factor;       /* value in the figure's base unit */
    double factor_bytes; /* the same for figures in bytes */
    bool time;
} UNITS[] = {
    { .name = "k", .factor = 1e3, .factor_bytes = 1024.0 },
    { .name = "K", .factor = 1e3, .factor_bytes = 1024.0 },
    { .name = "M", .factor = 1e6, .factor_bytes = 1048576.0 },
    { .name = "G", .factor = 1e9, .factor_bytes = 1073741824.0 },
    { .name = "us", .factor = 1e-6, .time = true },
    { .name = "ms", .factor = 1e-3, .time = true },
    { .name = "s", .factor = 1, .time = true },
};

/* Parses a unit directly after a number and applies it. */
static enum err_code parse_unit(struct parser *p, const struct gate_term *t, double *factor, bool *percent)
{
    const char *unit = unit_of(t);
    const size_t n = word_length(p->at);
    *factor = 1;
    *percent = *p->at == '%';
    if (*percent) {
        p->at++;
        *factor = 0.01;
        return ERR_OK;
    }
    if (!n) return ERR_OK;
    for (size_t i = 0; i < COUNT_OF(UNITS); i++) {
        if (strlen(UNITS[i].name) != n || memcmp(UNITS[i].name, p->at, n)) continue;
        if (UNITS[i].time != !strcmp(unit, "seconds"))
            return err_set(p->why, ERR_USAGE,
                           "gate '%s', position %d: '%s' does not go with %s, which is %s%s", p->g->text,
                           parser_position(p), UNITS[i].name, name_of(t), *unit ? "in " : "a plain number",
                           unit);
        *factor = strcmp(unit, "bytes") ? UNITS[i].factor : UNITS[i].factor_bytes;
        p->at += n;
        return ERR_OK;
    }
    return parser_expected(p, strcmp(unit, "seconds") ? "%, k, M or G behind a number, or nothing"
                                                      : "us, ms, s or % behind a number, or nothing");
}

/* Length of a number: [sign] digits [. digits] [e [sign] digits]; 0: none. Hexadecimal and "inf" are none. */
static size_t number_length(const char *s)
{
    size_t n = *s == '-' || *s == '+', digits = 0;
    for (; isdigit((unsigned char)s[n]) || s[n] == '.'; n++) digits += s[n] != '.';
    if (!digits) return 0;
    if (s[n] == 'e' || s[n] == 'E') {
        size_t e = n + 1 + (s[n + 1] == '-' || s[n + 1] == '+');
        if (!isdigit((unsigned char)s[e])) return n;
        while (isdigit((unsigned char)s[e])) e++;
        n = e;
    }
    return n;
}

static enum err_code parse_number(struct parser *p, const struct gate_term *t, double *value, bool *percent)
{
    char text[64];
    double factor;
    skip_spaces(p);
    const size_t n = number_length(p->at);
    if (!n || n >= sizeof(text)) return parser_expected(p, "a number or A");
    snprintf(text, sizeof(text), "%.*s", (int)n, p->at);
    if (!str_to_double(*text == '+' ? text + 1 : text, value) || !isfinite(*value))
        return parser_expected(p, "a number");
    p->at += n;
    enum err_code rc = parse_unit(p, t, &factor, percent);
    *value *= factor;
    return rc;
}

/* Whether a comparison with A makes sense for this figure: in quality figures A is the reference itself. */
static enum err_code check_a(struct parser *p, const struct gate_term *t)
{
    if (t->metric >= 0 || t->figure == GATE_PPL || t->figure == GATE_ENERGY_TOKEN) return ERR_OK;
    return err_set(p->why, ERR_USAGE, "gate '%s', position %d: %s already compares with A: expected a number",
                   p->g->text, parser_position(p), name_of(t));
}

static enum err_code parse_bound(struct parser *p, struct gate_term *t)
{
    double v = 1;
    bool percent;
    enum err_code rc;
    if (take_word(p, "A")) {
        t->scale = 1;
        if (parser_take(p, '*')) return parse_number(p, t, &t->scale, &percent);
        const double sign = parser_take(p, '+') ? 1 : parser_take(p, '-') ? -1 : 0;
        if (sign == 0) return ERR_OK;
        if ((rc = parse_number(p, t, &v, &percent))) return rc;
        *(percent ? &t->scale : &t->offset) += sign * v;
        return ERR_OK;
    }
    if ((rc = parse_number(p, t, &v, &percent))) return rc;
    if (!parser_take(p, '*')) {
        t->offset = v;
        return ERR_OK;
    }
    t->scale = v;
    return take_word(p, "A") ? ERR_OK : parser_expected(p, "A");
}

/* Copies a term as written, with each run of spaces as one space. */
static void term_copy_tidied(char *to, size_t size, const char *from, const char *end)
{
    size_t n = 0;
    for (; from < end && n + 1 < size; from++) {
        const bool space = isspace((unsigned char)*from);
        if (space && (!n || to[n - 1] == ' ')) continue;
        to[n++] = space ? ' ' : *from;
    }
    while (n && to[n - 1] == ' ') n--;
    to[n] = 0;
}

/* ---------------------------------------------------------------- the tree */

static enum err_code new_node(struct parser *p, int *out, enum gate_kind kind, int left, int right)
{
    struct gate *g = p->g;
    if (g->nodes == GATE_NODES)
        return err_set(p->why, ERR_USAGE, "gate: more than %d conditions and words between them", GATE_NODES);
    g->node[g->nodes].kind = kind;
    g->node[g->nodes].left = left;
    g->node[g->nodes].right = right;
    *out = g->nodes++;
    return ERR_OK;
}

static enum err_code parse_term(struct parser *p, int *out)
{
    struct gate *g = p->g;
    if (g->terms == GATE_TERMS)
        return err_set(p->why, ERR_USAGE, "gate: more than %d conditions", GATE_TERMS);
    struct gate_term *t = &g->term[g->terms];
    skip_spaces(p);
    const char *start = p->at;
    enum err_code rc = parse_name(p, t);
    if (!rc) rc = parse_op(p, t);
    if (!rc) rc = parse_bound(p, t);
    if (!rc && t->scale != 0) rc = check_a(p, t);
    if (rc) return rc;
    term_copy_tidied(t->text, sizeof(t->text), start, p->at);
    return new_node(p, out, GATE_TERM, g->terms++, -1);
}

static enum err_code parse_or(struct parser *p, int *out);

static enum err_code parse_not(struct parser *p, int *out)
{
    enum err_code rc;
    if (++p->depth > DEPTH_LIMIT)
        return err_set(p->why, ERR_USAGE, "gate: more than %d parentheses and nots inside each other",
                       DEPTH_LIMIT);
    if (take_word(p, "not")) {
        rc = parse_not(p, out);
        if (!rc) rc = new_node(p, out, GATE_NOT, *out, -1);
    } else if (parser_take(p, '(')) {
        rc = parse_or(p, out);
        if (!rc && !parser_take(p, ')')) rc = parser_expected(p, "'and', 'or' or ')'");
    } else {
        rc = parse_term(p, out);
    }
    p->depth--;
    return rc;
}

static enum err_code parse_and(struct parser *p, int *out)
{
    int right;
    enum err_code rc = parse_not(p, out);
    while (!rc && take_word(p, "and"))
        if (!(rc = parse_not(p, &right))) rc = new_node(p, out, GATE_AND, *out, right);
    return rc;
}

static enum err_code parse_or(struct parser *p, int *out)
{
    int right;
    enum err_code rc = parse_and(p, out);
    while (!rc && take_word(p, "or"))
        if (!(rc = parse_and(p, &right))) rc = new_node(p, out, GATE_OR, *out, right);
    return rc;
}

enum err_code gate_parse(struct gate *g, const char *text, struct err *why)
{
    struct parser p = { .g = g, .why = why };
    *g = (struct gate){ 0 };
    if (strlen(text) >= sizeof(g->text))
        return err_set(why, ERR_USAGE, "a gate has %zu characters at most", sizeof(g->text) - 1);
    snprintf(g->text, sizeof(g->text), "%s", text);
    p.at = g->text;
    enum err_code rc = parse_or(&p, &g->root);
    skip_spaces(&p);
    return !rc && *p.at ? parser_expected(&p, "'and', 'or' or the end") : rc;
}

static bool is_evaluated(const struct gate_term *t)
{
    return t->metric < 0 ? GATE_NAMES[t->figure].quality : t->metric == METRIC_PERPLEXITY;
}

const char *gate_timed_figure(const struct gate *g)
{
    for (int i = 0; i < g->terms; i++)
        if (!is_evaluated(&g->term[i])) return name_of(&g->term[i]);
    return NULL;
}

const char *gate_compared_figure(const struct gate *g)
{
    for (int i = 0; i < g->terms; i++) {
        const struct gate_term *t = &g->term[i];
        const bool absolute = t->metric >= 0 || t->figure == GATE_PPL || t->figure == GATE_NOISE_FLOOR ||
                              t->figure == GATE_ENERGY_TOKEN;
        if (!absolute || t->scale != 0) return name_of(t);
    }
    return NULL;
}

bool gate_needs_quality(const struct gate *g)
{
    for (int i = 0; i < g->terms; i++)
        if (g->term[i].metric < 0 && GATE_NAMES[g->term[i].figure].quality) return true;
    return false;
}
