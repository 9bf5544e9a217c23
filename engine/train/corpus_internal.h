/* engine/train/corpus_internal.h - the compiled grammar: each form is a short program. Internal. */
#ifndef QDYNO_ENGINE_TRAIN_CORPUS_INTERNAL_H
#define QDYNO_ENGINE_TRAIN_CORPUS_INTERNAL_H

#include "engine/train/corpus.h"

enum {
    GRAMMAR_SLOTS = 64, /* variables in a story */
    GRAMMAR_DEPTH = 16, /* nesting of rules */
    GRAMMAR_TERMS = 3,  /* terms in an expression */
    GRAMMAR_FIELDS = 4, /* fields of a word */
};

/* An expression such as n+2*m. Terms are applied strictly from left to right: this is (n+2)*m. The first term
 * has the operator +. */
struct grammar_expression {
    int count;
    struct {
        char before; /* the operator before the term: + - * */
        int slot;    /* index of a variable; -1: the constant `number` */
        int number;
    } term[GRAMMAR_TERMS];
};

enum op_kind {
    OP_TEXT,    /* write text[len] */
    OP_CALL,    /* choose a form of `rule` and run it */
    OP_CHOOSE,  /* choose a form of `rule` as the value of `slot` */
    OP_DRAW,    /* choose a number from a to b as the value of `slot` */
    OP_SET,     /* slot = expression a */
    OP_COPY,    /* slot = the slot of a's first term */
    OP_SAY,     /* write the value of `slot`, as `how` says */
    OP_NUMBER,  /* write the value of expression a in words */
    OP_CAPITAL, /* capitalize the next letter */
    OP_UNLESS,  /* jump unless a `compare` b */
    OP_JUMP,
    OP_RETURN,
};

enum say_how {
    SAY_FIELD,   /* write the field `field` of the word */
    SAY_PRONOUN, /* write PRONOUNS[field] for this person */
    SAY_COUNT,   /* write field 0 (singular) if expression a is 1, else field 1 (plural) */
};

struct op {
    enum op_kind kind;
    const char *text;
    int len, slot, rule, jump;
    enum say_how how;
    int field;
    bool article;
    char compare;
    struct grammar_expression a, b;
};

struct corpus_field {
    const char *text;
    int len;
};

struct form {
    int weight, first_op;
    int field_count;
    struct corpus_field fields[GRAMMAR_FIELDS]; /* of a word: the parts of the form between '|' */
};

struct rule {
    const char *name;
    int first_form, form_count;
    int total;  /* sum of the forms' weights */
    bool words; /* forms are words with fields, not programs */
};

struct pronoun {
    const char *name, *female, *male;
};
extern const struct pronoun PRONOUNS[];
extern const int PRONOUN_COUNT;

struct corpus {
    struct rule *rules;
    struct form *forms;
    struct op *ops;
    int rule_count, form_count, op_count, op_cap;
    int story; /* index of the start rule */
    char *slots[GRAMMAR_SLOTS];
    int slot_count;
};

#endif
