/* engine/template/template_internal.h - declarations shared by the interpreter's files.
 *
 * lex.c makes tokens, parse.c and parse_expression.c make a tree of nodes, run.c and evaluate.c walk it.
 * Values live in an arena until the rendering ends. A function that fails stores the error in the rendering
 * and returns an undefined value; a caller of several such functions checks rendering.rc once after them. */
#ifndef QDYNO_ENGINE_TEMPLATE_INTERNAL_H
#define QDYNO_ENGINE_TEMPLATE_INTERNAL_H

#include "engine/template/template.h"

/* ---------------------------------------------------------------- values (value.c) */

enum value_type {
    VALUE_UNDEFINED,
    VALUE_NONE,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_FLOAT,
    VALUE_BIG, /* an integer of more than 64 bits, s: its digits; nothing can be computed with it */
    VALUE_STRING,
    VALUE_LIST, /* also tuples */
    VALUE_DICT, /* also namespaces */
    VALUE_LOOP,
    VALUE_MACRO,
    VALUE_FUNCTION,
    VALUE_METHOD, /* of a value: text.strip */
};

struct text { /* UTF-8 where the input is */
    const char *bytes;
    const char *marks; /* [n] 1: from a message; NULL: none is */
    size_t n;
};

struct value {
    enum value_type type;
    union {
        bool b;
        int64_t i;
        double d;
        const struct text *s;
        struct list *list;
        struct dict *dict;
        struct loop *loop;
        const struct macro *macro;
        const struct function *function;
        const struct bound *bound;
        const struct text *name; /* of an undefined variable, or NULL */
    };
};

/* Lists and what Python has for them. A generator can be visited once, is true, and has no length. */
enum list_kind { LIST_PLAIN, LIST_GENERATOR, LIST_KEYS, LIST_VALUES, LIST_ITEMS, LIST_RANGE, LIST_GROUP };

struct list {
    struct value *items;
    size_t n, cap;
    size_t taken; /* of a generator */
    enum list_kind kind;
    bool tuple;
};

struct entry {
    struct value key, value;
};
struct dict {
    struct entry *entries;
    size_t n, cap;
    bool is_namespace; /* its members can be set */
};

struct scope {
    struct scope *parent;
    struct dict vars; /* keys are strings */
};

struct loop {
    const struct node *node;
    const struct list *items;
    size_t at;
    int depth;
    struct scope *scope;       /* around the loop */
    struct value last_changed; /* of loop.changed() */
    bool has_changed;
};

struct macro {
    const struct node *node;
    struct scope *scope;
};

/* ---------------------------------------------------------------- the tree */

enum node_kind {
    /* expressions */
    NODE_LITERAL,
    NODE_NAME,
    NODE_ATTRIBUTE, /* x.name */
    NODE_INDEX,     /* x[y] */
    NODE_SLICE,     /* x[items: start, stop, step; NULL where absent] */
    NODE_LIST,
    NODE_TUPLE,
    NODE_DICT,   /* items: key, value, key, value */
    NODE_UNARY,  /* op x */
    NODE_BINARY, /* x op y */
    NODE_AND,
    NODE_OR,
    NODE_COMPARE, /* x, then items: NODE_UNARY with op and operand */
    NODE_IF_ELSE, /* y if x else z */
    NODE_FILTER,  /* x|name(items) */
    NODE_TEST,    /* x is name(items); op 1: is not */
    NODE_CALL,    /* x(items) */
    NODE_KEYWORD, /* name=x, an argument */
    /* statements */
    NODE_TEXT,
    NODE_PRINT,
    NODE_IF,         /* x, items, y: the elif or else part */
    NODE_FOR,        /* x: target, y: iterable, z: condition, items, other: the else part; op 1: recursive */
    NODE_SET,        /* x: target, y: expression */
    NODE_SET_BLOCK,  /* x: target, y: filters around NODE_LITERAL or NULL, items */
    NODE_MACRO,      /* name, y: parameters, items; op: which further arguments it takes */
    NODE_CALL_BLOCK, /* x: call, y: parameters, items */
    NODE_FILTER_BLOCK, /* y: filters, items */
    NODE_WITH,         /* y: list of NODE_SET, items */
    NODE_BLOCK,        /* items: a sequence, e.g. of generation */
    NODE_BREAK,
    NODE_CONTINUE,
};

enum op {
    OP_NONE,
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOOR_DIV,
    OP_MOD,
    OP_POW,
    OP_CONCAT,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOT_IN,
    OP_NOT,
    OP_NEGATE,
    OP_PLUS
};

struct node {
    enum node_kind kind;
    int line;
    int op;
    const struct text *name;
    struct node *x, *y, *z, *other;
    struct node *items, *next; /* first of a list; the next in the list that this one is in */
    struct value value;
    const struct function *function; /* the filter or test; NULL: unknown */
};

struct template
{
    struct arena memory;
    char *name;
    struct node *root; /* first statement */
};

/* ---------------------------------------------------------------- tokens (lex.c) */

enum token_type {
    TOKEN_END_OF_FILE,
    TOKEN_TEXT,
    TOKEN_PRINT_BEGIN,
    TOKEN_PRINT_END,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_WORD,
    TOKEN_STRING,
    TOKEN_INT,
    TOKEN_FLOAT,
    TOKEN_OPERATOR,
};

struct token {
    enum token_type type;
    int line;
    struct text text; /* as written; of a string: what it means */
    int64_t i;
    double d;
};

enum { MACRO_VARARGS = 1, MACRO_KWARGS = 2 };

struct token_stream {
    struct arena *memory;
    struct token *items;
    size_t n, cap, at;
    const char *name;                 /* of the template */
    int depth, loops;                 /* of the parser */
    bool in_condition;                /* an unknown filter or test is an error only where it runs */
    const struct node *unknown;       /* the first one elsewhere */
    bool reads_varargs, reads_kwargs; /* the macro that is being parsed */
    enum err_code rc;
    struct err *why;
};

/* False: an error is in s->rc. */
bool tpl_lex(struct token_stream *s, const char *text, size_t n);

/* ---------------------------------------------------------------- the parser */

struct node *tpl_parse(struct token_stream *s);            /* parse.c; NULL: empty, or an error */
struct node *tpl_parse_expression(struct token_stream *s); /* parse_expression.c */
struct node *tpl_parse_tuple(struct token_stream *s,
                             bool condition);          /* also `a, b`; condition: may have if */
struct node *tpl_parse_target(struct token_stream *s); /* what `for` and `set` assign to */
struct node *tpl_parse_filters(struct token_stream *s, struct node *x); /* "name(args)|name" around x */
struct node *tpl_parse_parameters(struct token_stream *s);              /* "(a, b=1)" */
struct node *tpl_parse_postfix(struct token_stream *s); /* a primary expression and its calls */
struct node *tpl_node(struct token_stream *s, enum node_kind kind);
const struct token *tpl_peek(const struct token_stream *s);
const struct token *tpl_next(struct token_stream *s);
bool tpl_text_is(const struct text *t, const char *word);
bool tpl_is(const struct token_stream *s, enum token_type type, const char *text); /* NULL: any text */
bool tpl_accept(struct token_stream *s, enum token_type type, const char *text);
bool tpl_expect(struct token_stream *s, enum token_type type, const char *text, const char *expected);
/* Stores the error "NAME, line L: expected ..., found ..." unless there is one. Returns NULL. */
void *tpl_parse_error(struct token_stream *s, const char *expected);
void *tpl_parse_fail(struct token_stream *s, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool tpl_parse_deeper(struct token_stream *s); /* then s->depth-- */

/* ---------------------------------------------------------------- a rendering */

struct rendering {
    struct arena memory;
    const struct template *t;
    const struct template_input *in;
    struct str out, marks; /* what is printed; the end is also where new strings are made */
    struct scope *globals;
    int line, depth;
    bool none_printed; /* as a text of its own, not as a part of another value */
    int64_t steps;
    enum { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } flow;
    enum err_code rc;
    struct err *why;
};

/* Stores the error "NAME, line L: ..." unless there is one. Returns an undefined value. */
struct value tpl_fail(struct rendering *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool tpl_steps(struct rendering *r, size_t n);  /* count work; false: the rendering has failed */
bool tpl_deeper(struct rendering *r);           /* then r->depth--; false: it has failed */
void *tpl_alloc(struct rendering *r, size_t n); /* NULL: the rendering has failed */

/* Creating strings: remember where the output ends, emit, and take the tail back as a value. */
void tpl_emit(struct rendering *r, const char *bytes, const char *marks, size_t n);
void tpl_emit_text(struct rendering *r, const struct text *s);
void tpl_emit_c(struct rendering *r, const char *text);
struct value tpl_take(struct rendering *r, size_t from);
void tpl_emit_value(struct rendering *r, struct value v); /* as str(v) in Python */
void tpl_emit_repr(struct rendering *r, struct value v);  /* as repr(v) */

extern const struct value TPL_UNDEFINED, TPL_NONE;
struct value tpl_bool(bool b);
struct value tpl_int(int64_t i);
struct value tpl_float(double d);
struct value tpl_string(struct rendering *r, const char *bytes, const char *marks, size_t n);
struct value tpl_c_string(struct rendering *r, const char *text);
struct value tpl_part(struct rendering *r, const struct text *s, size_t from,
                      size_t to); /* shares the bytes */
struct value tpl_list(struct rendering *r, bool tuple);
struct value tpl_generator(struct rendering *r);
bool tpl_is_list(struct value v);     /* a list or a tuple */
bool tpl_is_hashable(struct value v); /* can be a key */
bool tpl_list_add(struct rendering *r, struct list *l, struct value v);
struct value tpl_dict(struct rendering *r);
struct value *tpl_dict_find(struct rendering *r, const struct dict *d, struct value key); /* NULL: none */
bool tpl_dict_put(struct rendering *r, struct dict *d, struct value key, struct value v);

bool tpl_truth(struct rendering *r, struct value v);
bool tpl_equal(struct rendering *r, struct value a, struct value b);
int tpl_order(struct rendering *r, struct value a, struct value b); /* <0, 0, >0; may fail */
bool tpl_contains(struct rendering *r, struct value in, struct value x);
bool tpl_is_number(struct value v); /* also of bool */
double tpl_number(struct value v);
bool tpl_is_string(struct value v, const char *text);
const char *tpl_type_name(struct value v);
/* The items that a loop would visit; those of a generator are gone then. NULL: not iterable, the rendering
 * has failed. */
struct list *tpl_iterate(struct rendering *r, struct value v);
bool tpl_is_iterable(struct value v);
int64_t tpl_length(struct rendering *r, struct value v); /* -1: it has failed */
struct value tpl_lookup(struct rendering *r, struct value of, struct value key,
                        bool attribute); /* lookup.c */
struct value tpl_slice(struct rendering *r, struct value of, const struct value bounds[3]);
bool tpl_is_space(uint32_t c);
size_t tpl_utf8_start(const struct text *s, int64_t index); /* byte of a character; s->n past the end */
int64_t tpl_utf8_count(const struct text *s);

struct value tpl_from_json(struct rendering *r, const json_t *j, bool mark);

struct json_style {
    int indent;                   /* -1: one line */
    const struct text *indent_by; /* in the place of `indent` spaces; NULL: spaces */
    bool ascii, sort;
    const struct text *item, *colon; /* separators; NULL: the usual ones */
};
void tpl_emit_json(struct rendering *r, struct value v, const struct json_style *style,
                   int level); /* to_json.c */

/* ---------------------------------------------------------------- functions */

struct argument {
    const struct text *name; /* NULL: by position */
    struct value value;
};
struct args {
    struct argument *items;
    size_t n, used;
};

/* x: what a filter, test or method is applied to. */
typedef struct value function_fn(struct rendering *r, struct value x, struct args *a);
struct function {
    const char *name;
    function_fn *call;
};
struct bound {
    const struct function *method;
    struct value self;
};

/* Argument number `at` or called `name`; `otherwise` where it was not given. */
struct value tpl_arg(struct rendering *r, struct args *a, size_t at, const char *name,
                     struct value otherwise);
struct value tpl_arg_required(struct rendering *r, struct args *a, size_t at, const char *name);
const struct text *tpl_arg_text(struct rendering *r, struct args *a, size_t at,
                                const char *name); /* NULL: absent */
int64_t tpl_arg_int(struct rendering *r, struct args *a, size_t at, const char *name, int64_t otherwise);

/* Find by name; NULL: unknown. */
const struct function *tpl_filter(const struct text *name);
const struct function *tpl_test(const struct text *name);
const struct function *tpl_method(struct value of, const struct text *name);
const struct function *tpl_function(const struct text *name);
const struct function *tpl_function_in(const struct function *table, const struct text *name);
/* Tables that end with a name of NULL: filters_list.c, strings.c. */
extern const struct function TPL_LIST_FILTERS[], TPL_STRING_FILTERS[], TPL_STRING_METHODS[],
    TPL_STRING_METHODS_MORE[];
const struct text *tpl_text_of(struct rendering *r,
                               struct value x);      /* str(x); NULL: the rendering has failed */
bool tpl_has_case(const struct text *s, bool upper); /* str.isupper(), str.islower() */
size_t tpl_next_char(const struct text *s, size_t at, uint32_t *c); /* bytes of the character at `at` */
size_t tpl_line_end(const struct text *s, size_t at, size_t *next);
bool tpl_is_word_char(uint32_t c); /* \w of Python */
bool tpl_is_printable(uint32_t c);
struct value tpl_dict_items(struct rendering *r, struct value x, struct args *a);

struct value tpl_evaluate(struct rendering *r, struct scope *s, const struct node *n);
struct value tpl_binary(struct rendering *r, enum op op, struct value a, struct value b); /* arithmetic.c */
struct value tpl_compare(struct rendering *r, enum op op, struct value a, struct value b);
struct value tpl_unary(struct rendering *r, enum op op, struct value a);
/* values: a tuple, or one value that is no tuple in a list. */
struct value tpl_format(struct rendering *r, const struct text *format, const struct list *values);
struct value tpl_format_method(struct rendering *r, struct value x, struct args *a);
struct value tpl_format_map_method(struct rendering *r, struct value x, struct args *a);
enum { TPL_FLOAT_ROOM = 40 };
size_t tpl_float_repr(double d, char out[TPL_FLOAT_ROOM]);
struct value tpl_call(struct rendering *r, struct value f, struct args *a);
bool tpl_args(struct rendering *r, struct scope *s, const struct node *items, struct args *out);
struct value tpl_call_macro(struct rendering *r, const struct macro *m, struct args *a,
                            const struct value *caller);
struct value tpl_call_loop(struct rendering *r, struct loop *loop, struct args *a);
struct value tpl_loop_attribute(struct rendering *r, struct loop *loop, const struct text *name);
bool tpl_assign(struct rendering *r, struct scope *s, const struct node *target, struct value v);
struct scope *tpl_scope(struct rendering *r, struct scope *parent);
bool tpl_run_items(struct rendering *r, struct scope *s, const struct node *items); /* run.c; false: failed */
struct value tpl_apply_filters(struct rendering *r, struct scope *s, const struct node *n, struct value x);

#endif
