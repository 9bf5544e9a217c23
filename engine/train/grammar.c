/* Compiles the grammar's text to programs once, so that generating a story is fast and cannot fail. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "engine/train/corpus_internal.h"
#include "engine/train/grammar.h"

const struct pronoun PRONOUNS[] = {
    { .name = "he", .female = "she", .male = "he" },   { .name = "him", .female = "her", .male = "him" },
    { .name = "his", .female = "her", .male = "his" }, { .name = "He", .female = "She", .male = "He" },
    { .name = "His", .female = "Her", .male = "His" }, { .name = "girl", .female = "girl", .male = "boy" },
};
const int PRONOUN_COUNT = COUNT_OF(PRONOUNS);

/* The state of parsing one form. */
struct reader {
    struct corpus *c;
    const char *rule, *form, *at;
    struct err *why;
};

static enum err_code reader_error(const struct reader *r, const char *what)
{
    return err_set(r->why, ERR_INTERNAL, "grammar: rule '%s': %s at '%.40s' of '%.120s'", r->rule, what,
                   r->at, r->form);
}

static int rule_find(const struct corpus *c, const char *name, size_t n)
{
    for (int i = 0; i < c->rule_count; i++)
        if (strlen(c->rules[i].name) == n && !memcmp(c->rules[i].name, name, n)) return i;
    return -1;
}

/* Slot of a variable, created at its first use; -1: no slot left. */
static int corpus_slot(struct corpus *c, const char *name, size_t n)
{
    for (int i = 0; i < c->slot_count; i++)
        if (strlen(c->slots[i]) == n && !memcmp(c->slots[i], name, n)) return i;
    if (c->slot_count == GRAMMAR_SLOTS || !(c->slots[c->slot_count] = strndup(name, n))) return -1;
    return c->slot_count++;
}

/* Append an op. NULL: out of memory. */
static struct op *op_new(struct corpus *c, enum op_kind kind)
{
    if (!array_room(&c->ops, &c->op_cap, (int64_t)c->op_count + 1, sizeof *c->ops)) return NULL;
    struct op *op = &c->ops[c->op_count++];
    *op = (struct op){ .kind = kind, .slot = -1, .rule = -1 };
    return op;
}

static enum err_code reader_no_memory(const struct reader *r)
{
    return err_set(r->why, ERR_NOMEM, "out of memory for the grammar");
}

/* ---------------------------------------------------------------- names, expressions */

static size_t name_length(const char *s)
{
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_') n++;
    return n;
}

static enum err_code reader_slot(struct reader *r, int *slot)
{
    size_t n = name_length(r->at);
    if (!n) return reader_error(r, "expected a name");
    *slot = corpus_slot(r->c, r->at, n);
    if (*slot < 0) return reader_error(r, "too many variables");
    r->at += n;
    return ERR_OK;
}

/* Parse an expression of numbers and variables with + - *, such as n+2*m (grammar.h describes the notation).
 */
static enum err_code reader_expression(struct reader *r, struct grammar_expression *expression)
{
    *expression = (struct grammar_expression){ 0 };
    for (char before = '+';; before = *r->at++) {
        if (expression->count == GRAMMAR_TERMS) return reader_error(r, "too many terms");
        int slot = -1, number = 0;
        if (isdigit((unsigned char)*r->at)) {
            number = (int)strtol(r->at, (char **)&r->at, 10);
        } else {
            enum err_code rc = reader_slot(r, &slot);
            if (rc) return rc;
        }
        expression->term[expression->count].before = before;
        expression->term[expression->count].slot = slot;
        expression->term[expression->count++].number = number;
        if (!*r->at || !strchr("+-*", *r->at)) return ERR_OK;
    }
}

/* ---------------------------------------------------------------- parts in braces */

/* Parse what follows a variable: .1, .he or #n. */
static enum err_code reader_how(struct reader *r, struct op *op)
{
    enum err_code rc = ERR_OK;
    if (*r->at == '#') {
        r->at++;
        op->how = SAY_COUNT;
        rc = reader_expression(r, &op->a);
    } else if (*r->at == '.') {
        const char *name = ++r->at;
        size_t n = name_length(name);
        r->at += n;
        op->field = -1;
        if (n == 1 && isdigit((unsigned char)*name)) {
            op->field = *name - '0';
            return op->field < GRAMMAR_FIELDS ? ERR_OK : reader_error(r, "too large a field");
        }
        op->how = SAY_PRONOUN;
        for (int i = 0; i < PRONOUN_COUNT; i++)
            if (strlen(PRONOUNS[i].name) == n && !memcmp(PRONOUNS[i].name, name, n)) op->field = i;
        if (op->field < 0) rc = reader_error(r, "unknown field");
    }
    return rc;
}

/* Parse what follows "x=": a rule or a range of numbers. */
static enum err_code reader_choice(struct reader *r, int slot)
{
    const char *range = strstr(r->at, ".."), *end = strchr(r->at, '}');
    struct op *op = op_new(r->c, range && range < end ? OP_DRAW : OP_CHOOSE);
    if (!op) return reader_no_memory(r);
    op->slot = slot;
    if (op->kind == OP_DRAW) {
        enum err_code rc = reader_expression(r, &op->a);
        if (rc) return rc;
        if (strncmp(r->at, "..", 2)) return reader_error(r, "expected '..'");
        r->at += 2;
        return reader_expression(r, &op->b);
    }
    size_t n = name_length(r->at);
    op->rule = rule_find(r->c, r->at, n);
    if (op->rule < 0 || !r->c->rules[op->rule].words) return reader_error(r, "expected a rule of words");
    r->at += n;
    return ERR_OK;
}

/* Parse {!x=...}. */
static enum err_code reader_assignment(struct reader *r)
{
    int slot;
    enum err_code rc = reader_slot(r, &slot);
    if (rc) return rc;
    if (*r->at++ != '=') return reader_error(r, "expected '='");
    const char *range = strstr(r->at, "..");
    if (range && range < strchr(r->at, '}')) return reader_choice(r, slot);
    struct grammar_expression expression;
    rc = reader_expression(r, &expression);
    if (rc) return rc;
    struct op *op = op_new(r->c, expression.count == 1 && expression.term[0].slot >= 0 ? OP_COPY : OP_SET);
    if (!op) return reader_no_memory(r);
    op->slot = slot;
    op->a = expression;
    return ERR_OK;
}

/* Parse a variable that is written, with an optional article. */
static enum err_code reader_output(struct reader *r)
{
    bool article = !strncmp(r->at, "a ", 2);
    int slot;
    if (article) r->at += 2;
    enum err_code rc = reader_slot(r, &slot);
    if (!rc && *r->at == '=') {
        r->at++;
        rc = reader_choice(r, slot);
    }
    if (rc) return rc;
    struct op *op = op_new(r->c, OP_SAY);
    if (!op) return reader_no_memory(r);
    op->slot = slot;
    op->article = article;
    return reader_how(r, op);
}

/* Parse any part in braces. */
static enum err_code reader_braces(struct reader *r)
{
    enum err_code rc;
    if (!strchr(r->at, '}')) return reader_error(r, "no '}'");
    if (*r->at == '^') {
        r->at++;
        if (!op_new(r->c, OP_CAPITAL)) return reader_no_memory(r);
    }
    if (*r->at == '=') {
        struct op *op = op_new(r->c, OP_NUMBER);
        if (!op) return reader_no_memory(r);
        r->at++;
        rc = reader_expression(r, &op->a);
    } else if (*r->at == '!') {
        r->at++;
        rc = reader_assignment(r);
    } else {
        rc = reader_output(r);
    }
    if (!rc && *r->at++ != '}') rc = reader_error(r, "expected '}'");
    return rc;
}

/* ---------------------------------------------------------------- text, rules, conditions */

/* Parse [rule]. */
static enum err_code reader_rule(struct reader *r)
{
    size_t n = name_length(r->at);
    int rule = rule_find(r->c, r->at, n);
    if (rule < 0 || r->at[n] != ']') return reader_error(r, "unknown rule");
    struct op *op = op_new(r->c, OP_CALL);
    if (!op) return reader_no_memory(r);
    op->rule = rule;
    r->at += n + 1;
    return ERR_OK;
}

/* Parse plain text up to the next special character. */
static enum err_code reader_text(struct reader *r, const char *stops)
{
    size_t n = strcspn(r->at, stops);
    struct op *op = op_new(r->c, OP_TEXT);
    if (!op) return reader_no_memory(r);
    op->text = r->at;
    op->len = (int)n;
    r->at += n;
    return ERR_OK;
}

static enum err_code reader_condition(struct reader *r);

/* Parse a form up to one of the characters in `stops`, or its end. */
static enum err_code reader_form(struct reader *r, const char *stops)
{
    enum err_code rc = ERR_OK;
    char special[16];
    snprintf(special, sizeof special, "{[(%s", stops);
    while (!rc && *r->at && !strchr(stops, *r->at)) {
        switch (*r->at) {
        case '{': r->at++, rc = reader_braces(r); break;
        case '[': r->at++, rc = reader_rule(r); break;
        case '(': r->at++, rc = reader_condition(r); break;
        default: rc = reader_text(r, special);
        }
    }
    return rc;
}

/* Parse (a<b?A|B) after its opening parenthesis. Ops are referred to by index, because the array may move. */
static enum err_code reader_condition(struct reader *r)
{
    struct grammar_expression a, b;
    enum err_code rc = reader_expression(r, &a);
    if (rc) return rc;
    char compare = *r->at;
    if (!compare || !strchr("<>=", compare)) return reader_error(r, "expected <, > or =");
    r->at++;
    rc = reader_expression(r, &b);
    if (rc) return rc;
    if (*r->at++ != '?') return reader_error(r, "expected '?'");
    int unless = r->c->op_count, jump = -1;
    struct op *op = op_new(r->c, OP_UNLESS);
    if (!op) return reader_no_memory(r);
    op->a = a;
    op->b = b;
    op->compare = compare;
    rc = reader_form(r, "|)");
    if (rc) return rc;
    if (*r->at == '|') {
        r->at++;
        jump = r->c->op_count;
        if (!op_new(r->c, OP_JUMP)) return reader_no_memory(r);
    }
    r->c->ops[unless].jump = r->c->op_count;
    if (jump >= 0) {
        rc = reader_form(r, ")");
        if (rc) return rc;
        r->c->ops[jump].jump = r->c->op_count;
    }
    return *r->at++ == ')' ? ERR_OK : reader_error(r, "expected ')'");
}

/* Split a word into its fields. */
static void form_split_fields(struct form *f, const char *text)
{
    while (f->field_count < GRAMMAR_FIELDS) {
        const char *end = strchrnul(text, '|');
        f->fields[f->field_count++] = (struct corpus_field){ text, (int)(end - text) };
        if (!*end) break;
        text = end + 1;
    }
}

/* Compile all forms of a rule. */
static enum err_code rule_compile(struct corpus *c, struct rule *rule, const char *const *forms,
                                  struct err *why)
{
    enum err_code rc = ERR_OK;
    for (int i = 0; !rc && forms[i]; i++) {
        struct form *f = &c->forms[rule->first_form + i];
        struct reader r = { .c = c, .rule = rule->name, .form = forms[i], .at = forms[i], .why = why };
        f->weight = 1;
        if (*r.at == '%') f->weight = (int)strtol(r.at + 1, (char **)&r.at, 10), r.at++;
        rule->total += f->weight;
        f->first_op = c->op_count;
        if (rule->words)
            form_split_fields(f, r.at);
        else
            rc = reader_form(&r, "");
        if (!rc && !op_new(c, OP_RETURN)) rc = reader_no_memory(&r);
    }
    return rc;
}

/* ---------------------------------------------------------------- the whole */

static void grammar_count(const struct grammar_rule *g, int *rules, int *forms)
{
    for (; g->name; g++, ++*rules)
        for (const char *const *f = g->forms; *f; f++) ++*forms;
}

static void grammar_name_rules(struct corpus *c, const struct grammar_rule *g, bool words)
{
    for (; g->name; g++) {
        struct rule *rule = &c->rules[c->rule_count++];
        rule->name = g->name;
        rule->words = words;
        rule->first_form = c->form_count;
        while (g->forms[rule->form_count]) rule->form_count++;
        c->form_count += rule->form_count;
    }
}

/* Compile all rules, words first, because stories refer to them. */
static enum err_code corpus_compile(struct corpus *c, struct err *why)
{
    int rules = 0, forms = 0, at = 0;
    grammar_count(GRAMMAR_WORDS, &rules, &forms);
    grammar_count(GRAMMAR_STORIES, &rules, &forms);
    c->rules = calloc((size_t)rules, sizeof *c->rules);
    c->forms = calloc((size_t)forms, sizeof *c->forms);
    if (!c->rules || !c->forms) return err_set(why, ERR_NOMEM, "out of memory for the grammar");
    grammar_name_rules(c, GRAMMAR_WORDS, true);
    grammar_name_rules(c, GRAMMAR_STORIES, false);
    enum err_code rc = ERR_OK;
    for (const struct grammar_rule *g = GRAMMAR_WORDS; !rc && g->name; g++)
        rc = rule_compile(c, &c->rules[at++], g->forms, why);
    for (const struct grammar_rule *g = GRAMMAR_STORIES; !rc && g->name; g++)
        rc = rule_compile(c, &c->rules[at++], g->forms, why);
    c->story = rule_find(c, "story", 5);
    return rc;
}

enum err_code corpus_open(struct corpus **out, struct err *why)
{
    *out = NULL;
    struct corpus *c = calloc(1, sizeof *c);
    if (!c) return err_set(why, ERR_NOMEM, "out of memory for the grammar");
    enum err_code rc = corpus_compile(c, why);
    if (rc) {
        corpus_close(c);
        return rc;
    }
    *out = c;
    return ERR_OK;
}

void corpus_close(struct corpus *c)
{
    if (!c) return;
    for (int i = 0; i < c->slot_count; i++) free(c->slots[i]);
    free(c->rules);
    free(c->forms);
    free(c->ops);
    free(c);
}
