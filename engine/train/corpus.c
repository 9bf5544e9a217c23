/* Generates stories, and parses a text to find its probability.
 *
 * A teller runs a form's program up to the next random choice and stops there; its driver then picks an
 * option. The generator picks one at random. The parser tries all of them, each with a copy of the teller,
 * and drops a copy as soon as its output differs from the text. */
#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "engine/train/corpus_internal.h"

const char *const CORPUS_SPLIT_NAMES[] = { "train", "calibration", "held-out", "prompts", NULL };

enum { NUMBER = -1, NOTHING = -2 }; /* values of struct value.rule that are no rules */

struct value {
    int rule; /* the rule whose form it is; NUMBER: `form` is a number; NOTHING: not set */
    int form;
};

struct teller {
    const struct corpus *c;
    int stack[GRAMMAR_DEPTH]; /* next op of each active form, innermost last */
    int depth;
    struct value vars[GRAMMAR_SLOTS];
    bool capital, stopped; /* capitalize the next letter; the last character ended a sentence */
    struct str *out;       /* output; NULL: compare with `text` instead */
    const char *text;
    size_t size, at;
    bool differs;
};

/* ---------------------------------------------------------------- output */

/* Write one character, or compare it with the text; handles capitalization. */
static void teller_write_char(struct teller *t, char c)
{
    if (t->capital && isalpha((unsigned char)c)) c = (char)toupper((unsigned char)c);
    t->capital = c == ' ' && (t->stopped || t->capital);
    t->stopped = c == '.' || c == '!' || c == '?';
    if (t->out) {
        str_append_n(t->out, &c, 1);
    } else if (t->at < t->size && t->text[t->at] == c) {
        t->at++;
    } else {
        t->differs = true;
    }
}

static void teller_write(struct teller *t, const char *text, size_t n)
{
    for (size_t i = 0; i < n && !t->differs; i++) teller_write_char(t, text[i]);
}

static void teller_write_number(struct teller *t, int n)
{
    static const char *const UNITS[] = { "zero",    "one",     "two",       "three",    "four",
                                         "five",    "six",     "seven",     "eight",    "nine",
                                         "ten",     "eleven",  "twelve",    "thirteen", "fourteen",
                                         "fifteen", "sixteen", "seventeen", "eighteen", "nineteen" };
    static const char *const TENS[] = { "twenty", "thirty",  "forty",  "fifty",
                                        "sixty",  "seventy", "eighty", "ninety" };
    char word[32];
    assert(n >= 0 && n < 100);
    if (n < 20)
        snprintf(word, sizeof word, "%s", UNITS[n]);
    else
        snprintf(word, sizeof word, "%s%s%s", TENS[n / 10 - 2], n % 10 ? "-" : "",
                 n % 10 ? UNITS[n % 10] : "");
    teller_write(t, word, strlen(word));
}

static int teller_evaluate(const struct teller *t, const struct grammar_expression *s)
{
    int total = 0;
    for (int i = 0; i < s->count; i++) {
        int v = s->term[i].slot < 0 ? s->term[i].number : t->vars[s->term[i].slot].form;
        total = s->term[i].before == '+' ? total + v : s->term[i].before == '-' ? total - v : total * v;
    }
    return total;
}

static const struct form *teller_form(const struct teller *t, struct value v)
{
    assert(v.rule >= 0); /* the grammar sets a variable before using it */
    return &t->c->forms[t->c->rules[v.rule].first_form + v.form];
}

/* Write the value of a variable: a number, a word with its article, a plural or a pronoun. */
static void teller_write_slot(struct teller *t, const struct op *op)
{
    struct value v = t->vars[op->slot];
    if (v.rule == NUMBER) {
        teller_write_number(t, v.form);
        return;
    }
    const struct form *f = teller_form(t, v);
    if (op->how == SAY_PRONOUN) {
        const struct pronoun *p = &PRONOUNS[op->field];
        const char *word = f->fields[1].text[0] == 'f' ? p->female : p->male;
        teller_write(t, word, strlen(word));
        return;
    }
    const int field = op->how == SAY_COUNT ? teller_evaluate(t, &op->a) != 1 : op->field;
    const struct corpus_field said = f->fields[field];
    assert(field < f->field_count);
    if (op->article) teller_write(t, "an ", strchr("aeiou", said.text[0]) ? 3 : 1);
    if (op->article && !strchr("aeiou", said.text[0])) teller_write(t, " ", 1);
    teller_write(t, said.text, (size_t)said.len);
}

/* ---------------------------------------------------------------- execution */

static bool teller_test(const struct teller *t, const struct op *op)
{
    int a = teller_evaluate(t, &op->a), b = teller_evaluate(t, &op->b);
    return op->compare == '<' ? a < b : op->compare == '>' ? a > b : a == b;
}

/* Run to the next choice and return it; NULL at the end of the story, or when the output differs. */
static const struct op *teller_run(struct teller *t)
{
    while (t->depth && !t->differs) {
        const struct op *op = &t->c->ops[t->stack[t->depth - 1]++];
        switch (op->kind) {
        case OP_TEXT: teller_write(t, op->text, (size_t)op->len); break;
        case OP_CALL:
        case OP_CHOOSE:
        case OP_DRAW: return op;
        case OP_SET: t->vars[op->slot] = (struct value){ NUMBER, teller_evaluate(t, &op->a) }; break;
        case OP_COPY: t->vars[op->slot] = t->vars[op->a.term[0].slot]; break;
        case OP_SAY: teller_write_slot(t, op); break;
        case OP_NUMBER: teller_write_number(t, teller_evaluate(t, &op->a)); break;
        case OP_CAPITAL: t->capital = true; break;
        case OP_UNLESS:
            if (!teller_test(t, op)) t->stack[t->depth - 1] = op->jump;
            break;
        case OP_JUMP: t->stack[t->depth - 1] = op->jump; break;
        case OP_RETURN: t->depth--; break;
        }
    }
    return NULL;
}

/* Weight of option i of a choice; 0: not available, because another variable of the story has this value. */
static int option_weight(const struct teller *t, const struct op *op, int i)
{
    if (op->kind == OP_DRAW) return 1;
    for (int s = 0; op->kind == OP_CHOOSE && s < t->c->slot_count; s++)
        if (t->vars[s].rule == op->rule && t->vars[s].form == i) return 0;
    return t->c->forms[t->c->rules[op->rule].first_form + i].weight;
}

static int option_count(const struct teller *t, const struct op *op)
{
    if (op->kind == OP_DRAW) return teller_evaluate(t, &op->b) - teller_evaluate(t, &op->a) + 1;
    return t->c->rules[op->rule].form_count;
}

/* Sum of the weights of all options of a choice. */
static int options_total(const struct teller *t, const struct op *op)
{
    int total = 0, n = option_count(t, op);
    if (op->kind == OP_DRAW) return n;
    if (op->kind == OP_CALL) return t->c->rules[op->rule].total;
    for (int i = 0; i < n; i++) total += option_weight(t, op, i);
    return total;
}

/* Choose option i of a choice. */
static void teller_take(struct teller *t, const struct op *op, int i)
{
    switch (op->kind) {
    case OP_DRAW: t->vars[op->slot] = (struct value){ NUMBER, teller_evaluate(t, &op->a) + i }; break;
    case OP_CHOOSE: t->vars[op->slot] = (struct value){ op->rule, i }; break;
    default:
        assert(t->depth < GRAMMAR_DEPTH);
        t->stack[t->depth++] = t->c->forms[t->c->rules[op->rule].first_form + i].first_op;
    }
}

/* Start a story: the first choice is a form of the rule "story". */
static const struct op *teller_begin(struct teller *t, const struct corpus *c, struct op *first)
{
    *t = (struct teller){ .c = c, .capital = true };
    for (int i = 0; i < GRAMMAR_SLOTS; i++) t->vars[i].rule = NOTHING;
    *first = (struct op){ .kind = OP_CALL, .rule = c->story };
    return first;
}

/* ---------------------------------------------------------------- generating */

double corpus_story(const struct corpus *c, struct story_id id, struct str *out)
{
    struct teller t;
    struct op first;
    uint64_t state = hash_mix(hash_mix(hash_mix(id.seed + HASH_STEP) ^ (uint64_t)id.split) ^ id.number);
    double log_p = 0;
    const struct op *op = teller_begin(&t, c, &first);
    t.out = out;
    for (; op; op = teller_run(&t)) {
        const int total = options_total(&t, op);
        int i = 0, left;
        uint64_t bits = hash_mix(state += HASH_STEP);
        left = (int)((bits >> 32) * (uint64_t)total >> 32);
        while (left >= option_weight(&t, op, i)) left -= option_weight(&t, op, i++);
        log_p += log((double)option_weight(&t, op, i) / total);
        teller_take(&t, op, i);
    }
    return log_p;
}

/* ---------------------------------------------------------------- parsing */

/* log(e^a + e^b). */
static double log_add(double a, double b)
{
    double high = fmax(a, b);
    return high == -INFINITY ? high : high + log1p(exp(-fabs(a - b)));
}

/* Try all options of choice `op`, after choices with log probability log_p. */
static void teller_explore(const struct teller *t, const struct op *op, double log_p, struct corpus_score *s)
{
    const double total = options_total(t, op);
    const int n = option_count(t, op);
    for (int i = 0; i < n; i++) {
        const int weight = option_weight(t, op, i);
        if (!weight) continue;
        struct teller next = *t;
        teller_take(&next, op, i);
        const struct op *choice = teller_run(&next);
        s->told = MAX(s->told, next.at);
        if (next.differs) continue;
        if (choice) {
            teller_explore(&next, choice, log_p + log(weight / total), s);
        } else if (next.at == next.size) {
            s->log_probability = log_add(s->log_probability, log_p + log(weight / total));
            s->derivations++;
        }
    }
}

struct corpus_score corpus_score(const struct corpus *c, const char *text, size_t n)
{
    struct corpus_score s = { .log_probability = -INFINITY };
    struct teller t;
    struct op first;
    const struct op *op = teller_begin(&t, c, &first);
    t.text = text;
    t.size = n;
    teller_explore(&t, op, 0, &s);
    return s;
}
