/* Runs the statements of a template; opens and renders templates. The tree from parse.c is walked directly:
 * run_statement executes one node and appends to rendering.out.
 *
 * Scopes are dicts of variables with a link to the scope around them. As in Jinja, the body of a loop, a
 * macro or a `with` has a scope of its own, so `set` in it does not change variables outside; `if` has none.
 * Every loop iteration and node counts as a step (tpl_steps), and nesting is limited (tpl_deeper), because
 * templates come from downloaded files. */
#include <stdlib.h>
#include <string.h>

#include "engine/template/template_internal.h"

/* ---------------------------------------------------------------- macros */

/* Run a body and return its output as a string instead of printing it. */
static struct value body_capture(struct rendering *r, struct scope *s, const struct node *items)
{
    const size_t from = r->out.len;
    tpl_run_items(r, s, items);
    return tpl_take(r, from);
}

/* Find an argument that was passed by name. */
static struct value args_find(struct rendering *r, const struct args *a, const struct text *name, bool *found)
{
    for (size_t i = 0; i < a->n && !r->rc; i++) {
        const struct text *have = a->items[i].name;
        if (!have || have->n != name->n || memcmp(have->bytes, name->bytes, name->n)) continue;
        *found = true;
        return a->items[i].value;
    }
    *found = false;
    return TPL_UNDEFINED;
}

/* Set `varargs` and `kwargs` of a macro that reads them: the arguments by position from number `at` on, and
 * those by name that are no parameter. Returns how many. */
static size_t bind_further(struct rendering *r, struct scope *s, const struct node *n, size_t at,
                           const struct args *a)
{
    static const struct text VARARGS = { .bytes = "varargs", .n = 7 }, KWARGS = { .bytes = "kwargs", .n = 6 };
    struct value list = tpl_list(r, true), dict = tpl_dict(r);
    size_t taken = 0;
    for (size_t i = at; i < a->n && !r->rc; i++) {
        const struct text *name = a->items[i].name;
        const struct node *p = name ? n->y : NULL;
        while (p && (p->name->n != name->n || memcmp(p->name->bytes, name->bytes, name->n))) p = p->next;
        if (p || !(n->op & (name ? MACRO_KWARGS : MACRO_VARARGS))) continue;
        if (name)
            tpl_dict_put(r, dict.dict, (struct value){ VALUE_STRING, { .s = name } }, a->items[i].value);
        else
            tpl_list_add(r, list.list, a->items[i].value);
        taken++;
    }
    if (n->op & MACRO_VARARGS && !r->rc)
        tpl_dict_put(r, &s->vars, (struct value){ VALUE_STRING, { .s = &VARARGS } }, list);
    if (n->op & MACRO_KWARGS && !r->rc)
        tpl_dict_put(r, &s->vars, (struct value){ VALUE_STRING, { .s = &KWARGS } }, dict);
    return taken;
}

/* Set the parameters of a macro in its scope: by position, by name, by the default expression, else
 * undefined. An argument that fits no parameter is an error. */
static bool bind_parameters(struct rendering *r, struct scope *s, const struct node *n, const struct args *a)
{
    size_t at = 0, taken = 0;
    for (const struct node *p = n->y; p && !r->rc; p = p->next) {
        bool found = at < a->n && !a->items[at].name;
        struct value v = found ? a->items[at++].value : args_find(r, a, p->name, &found);
        taken += found;
        if (!found)
            v = p->x ? tpl_evaluate(r, s, p->x) : (struct value){ VALUE_UNDEFINED, { .name = p->name } };
        tpl_dict_put(r, &s->vars, (struct value){ VALUE_STRING, { .s = p->name } }, v);
    }
    if (!r->rc && taken < a->n)
        taken += bind_further(r, s, n, at, a);
    else if (!r->rc && n->op)
        bind_further(r, s, n, at, a);
    if (!r->rc && taken < a->n)
        tpl_fail(r, "a macro was given %zu arguments, but takes %zu of them", a->n, taken);
    return !r->rc;
}

/* A macro runs in a scope inside the one where it was defined. `caller` is the block of a `call`
 * statement, or NULL. */
struct value tpl_call_macro(struct rendering *r, const struct macro *m, struct args *a,
                            const struct value *caller)
{
    static const struct text CALLER = { .bytes = "caller", .n = 6 };
    struct scope *s = tpl_scope(r, m->scope);
    if (!s || !tpl_deeper(r)) return TPL_UNDEFINED;
    if (caller) tpl_dict_put(r, &s->vars, (struct value){ VALUE_STRING, { .s = &CALLER } }, *caller);
    struct value v = bind_parameters(r, s, m->node, a) ? body_capture(r, s, m->node->items) : TPL_UNDEFINED;
    r->depth--;
    return v;
}

static struct value macro_new(struct rendering *r, struct scope *s, const struct node *n)
{
    struct macro *m = tpl_alloc(r, sizeof *m);
    if (!m) return TPL_UNDEFINED;
    *m = (struct macro){ n, s };
    return (struct value){ VALUE_MACRO, { .macro = m } };
}

/* "{% call m() %} body {% endcall %}": the body becomes a macro that m calls as caller(). */
static void run_call_block(struct rendering *r, struct scope *s, const struct node *n)
{
    struct args a;
    struct value caller = macro_new(r, s, n), f = tpl_evaluate(r, s, n->x->x);
    if (r->rc || !tpl_args(r, s, n->x->items, &a)) return;
    if (f.type != VALUE_MACRO) {
        tpl_fail(r, "'call' needs a macro, found a %s", tpl_type_name(f));
        return;
    }
    tpl_emit_value(r, tpl_call_macro(r, f.macro, &a, &caller));
}

/* ---------------------------------------------------------------- loops */

/* The items for which the `if` of a for statement is true. They are selected before the loop starts,
 * because loop.length and loop.last count them only. */
static struct list *loop_select(struct rendering *r, struct scope *s, const struct node *n, struct list *all)
{
    if (!n->z || r->rc) return all;
    struct value out = tpl_list(r, false);
    for (size_t i = 0; i < all->n && !r->rc; i++) {
        struct scope *inner = tpl_scope(r, s);
        if (!inner || !tpl_assign(r, inner, n->x, all->items[i])) return NULL;
        if (tpl_truth(r, tpl_evaluate(r, inner, n->z))) tpl_list_add(r, out.list, all->items[i]);
    }
    return r->rc ? NULL : out.list;
}

/* `break` and `continue` set rendering.flow, which ends tpl_run_items. The loop resets it after each
 * iteration. */
static void run_loop(struct rendering *r, struct scope *s, const struct node *n, struct value over, int depth)
{
    static const struct text LOOP = { .bytes = "loop", .n = 4 };
    struct list *items = tpl_iterate(r, over);
    if (items) items = loop_select(r, s, n, items);
    struct loop *loop = tpl_alloc(r, sizeof *loop);
    if (!items || !loop) return;
    *loop = (struct loop){ .node = n, .items = items, .depth = depth, .scope = s };
    for (; loop->at < items->n && tpl_steps(r, 0); loop->at++) {
        struct scope *inner = tpl_scope(r, s);
        if (!inner || !tpl_assign(r, inner, n->x, items->items[loop->at])) return;
        tpl_dict_put(r, &inner->vars, (struct value){ VALUE_STRING, { .s = &LOOP } },
                     (struct value){ VALUE_LOOP, { .loop = loop } });
        tpl_run_items(r, inner, n->items);
        const bool stop = r->flow == FLOW_BREAK;
        r->flow = FLOW_ON;
        if (stop) return;
    }
    if (!items->n && n->other && !r->rc) tpl_run_items(r, s, n->other->items);
}

/* loop(items) in a recursive loop: run the same body for other items, one level deeper, and return its
 * output. */
struct value tpl_call_loop(struct rendering *r, struct loop *loop, struct args *a)
{
    if (!loop->node->op) return tpl_fail(r, "loop() needs a loop that says 'recursive'");
    struct value over = tpl_arg_required(r, a, 0, "iterable");
    if (r->rc || !tpl_deeper(r)) return TPL_UNDEFINED;
    const size_t from = r->out.len;
    run_loop(r, loop->scope, loop->node, over, loop->depth + 1);
    r->depth--;
    return tpl_take(r, from);
}

static struct value loop_cycle(struct rendering *r, struct value x, struct args *a)
{
    a->used = a->n;
    if (!a->n) return tpl_fail(r, "loop.cycle() needs values");
    return a->items[x.loop->at % a->n].value;
}

/* True if the arguments differ from those of the previous call in this loop. */
static struct value loop_changed(struct rendering *r, struct value x, struct args *a)
{
    struct value now = tpl_list(r, true);
    for (size_t i = 0; i < a->n && !r->rc; i++) tpl_list_add(r, now.list, a->items[i].value);
    a->used = a->n;
    const bool changed = !x.loop->has_changed || !tpl_equal(r, now, x.loop->last_changed);
    x.loop->has_changed = true;
    x.loop->last_changed = now;
    return tpl_bool(changed);
}

struct value tpl_loop_attribute(struct rendering *r, struct loop *loop, const struct text *name)
{
    static const struct function CYCLE = { "loop.cycle", loop_cycle },
                                 CHANGED = { "loop.changed", loop_changed };
    const int64_t at = (int64_t)loop->at, n = (int64_t)loop->items->n;
    const struct {
        const char *name;
        struct value value;
    } PARTS[] = { { "index", tpl_int(at + 1) },
                  { "index0", tpl_int(at) },
                  { "revindex", tpl_int(n - at) },
                  { "revindex0", tpl_int(n - at - 1) },
                  { "first", tpl_bool(!at) },
                  { "last", tpl_bool(at + 1 == n) },
                  { "length", tpl_int(n) },
                  { "depth", tpl_int(loop->depth + 1) },
                  { "depth0", tpl_int(loop->depth) },
                  { "previtem", at ? loop->items->items[at - 1] : TPL_UNDEFINED },
                  { "nextitem", at + 1 < n ? loop->items->items[at + 1] : TPL_UNDEFINED } };
    for (size_t i = 0; i < COUNT_OF(PARTS); i++)
        if (strlen(PARTS[i].name) == name->n && !memcmp(PARTS[i].name, name->bytes, name->n))
            return PARTS[i].value;
    const bool cycle = name->n == 5 && !memcmp(name->bytes, "cycle", 5),
               changed = name->n == 7 && !memcmp(name->bytes, "changed", 7);
    struct bound *b = cycle || changed ? tpl_alloc(r, sizeof *b) : NULL;
    if (!b) return (struct value){ VALUE_UNDEFINED, { .name = name } };
    *b = (struct bound){ cycle ? &CYCLE : &CHANGED, { VALUE_LOOP, { .loop = loop } } };
    return (struct value){ VALUE_METHOD, { .bound = b } };
}

/* ---------------------------------------------------------------- statements */

static void run_if(struct rendering *r, struct scope *s, const struct node *n)
{
    for (; n && !r->rc; n = n->y) {
        if (n->kind == NODE_BLOCK || tpl_truth(r, tpl_evaluate(r, s, n->x))) {
            if (!r->rc) tpl_run_items(r, s, n->items);
            return;
        }
    }
}

static void run_with(struct rendering *r, struct scope *s, const struct node *n)
{
    struct scope *inner = tpl_scope(r, s);
    for (const struct node *set = n->y; set && !r->rc; set = set->next)
        tpl_assign(r, inner, set->x, tpl_evaluate(r, s, set->y));
    if (!r->rc) tpl_run_items(r, inner, n->items);
}

/* Set-blocks and filter-blocks: the body's output goes through the filters, then into a variable or to the
 * output. */
static void run_captured(struct rendering *r, struct scope *s, const struct node *n)
{
    struct scope *inner = tpl_scope(r, s);
    struct value v = inner ? body_capture(r, inner, n->items) : TPL_UNDEFINED;
    if (n->y && !r->rc) v = tpl_apply_filters(r, s, n->y, v);
    if (n->kind == NODE_SET_BLOCK)
        tpl_assign(r, s, n->x, v);
    else if (!r->rc)
        tpl_emit_value(r, v);
}

static void run_statement(struct rendering *r, struct scope *s, const struct node *n)
{
    r->line = n->line;
    switch (n->kind) {
    case NODE_TEXT: tpl_emit_text(r, n->name); break;
    case NODE_PRINT: {
        struct value v = tpl_evaluate(r, s, n->x);
        if (!r->rc) tpl_emit_value(r, v);
        break;
    }
    case NODE_IF: run_if(r, s, n); break;
    case NODE_FOR: run_loop(r, s, n, tpl_evaluate(r, s, n->y), 0); break;
    case NODE_SET: tpl_assign(r, s, n->x, tpl_evaluate(r, s, n->y)); break;
    case NODE_SET_BLOCK:
    case NODE_FILTER_BLOCK: run_captured(r, s, n); break;
    case NODE_MACRO:
        tpl_dict_put(r, &s->vars, (struct value){ VALUE_STRING, { .s = n->name } }, macro_new(r, s, n));
        break;
    case NODE_CALL_BLOCK: run_call_block(r, s, n); break;
    case NODE_WITH: run_with(r, s, n); break;
    case NODE_BLOCK: tpl_run_items(r, s, n->items); break;
    case NODE_BREAK: r->flow = FLOW_BREAK; break;
    case NODE_CONTINUE: r->flow = FLOW_CONTINUE; break;
    default: tpl_fail(r, "an expression where a statement was expected");
    }
}

bool tpl_run_items(struct rendering *r, struct scope *s, const struct node *items)
{
    if (!tpl_deeper(r)) return false;
    for (const struct node *n = items; n && r->flow == FLOW_ON && tpl_steps(r, 0); n = n->next)
        run_statement(r, s, n);
    r->depth--;
    return !r->rc;
}

/* ---------------------------------------------------------------- templates */

enum err_code template_open(struct template **out, const char *text, size_t n, const char *name,
                            struct err *why)
{
    *out = NULL;
    if (n > TEMPLATE_TEXT_MOST)
        return err_set(why, ERR_FORMAT, "%s has %zu bytes: expected a template of at most %d", name, n,
                       TEMPLATE_TEXT_MOST);
    struct template *t = calloc(1, sizeof *t);
    if (!t) return err_set(why, ERR_NOMEM, "out of memory for a template");
    struct token_stream s = { .memory = &t->memory, .why = why };
    t->name = arena_strdup(&t->memory, name);
    s.name = t->name ? t->name : name;
    if (!t->name)
        s.rc = err_set(why, ERR_NOMEM, "out of memory for a template");
    else if (tpl_lex(&s, text, n))
        t->root = tpl_parse(&s);
    if (s.rc) {
        template_close(t);
        return s.rc;
    }
    *out = t;
    return ERR_OK;
}

void template_close(struct template *t)
{
    if (!t) return;
    arena_free(&t->memory);
    free(t);
}

void rendered_free(struct rendered *r)
{
    str_free(&r->text);
    str_free(&r->from_message);
}

static void set_global(struct rendering *r, const char *name, struct value v)
{
    if (!r->rc) tpl_dict_put(r, &r->globals->vars, tpl_c_string(r, name), v);
}

/* Everything from the caller except the special tokens is marked: it must not form special tokens in the
 * prompt. */
static void set_globals(struct rendering *r, const struct template_input *in)
{
    const char *name;
    json_t *member;
    set_global(r, "messages", tpl_from_json(r, in->messages, true));
    if (in->tools) set_global(r, "tools", tpl_from_json(r, in->tools, true));
    set_global(r, "add_generation_prompt", tpl_bool(in->add_generation_prompt));
    const struct {
        const char *name, *text;
    } SPECIALS[] = { { "bos_token", in->bos_token },
                     { "eos_token", in->eos_token },
                     { "unk_token", in->unk_token },
                     { "pad_token", in->pad_token } };
    for (size_t i = 0; i < COUNT_OF(SPECIALS); i++)
        if (SPECIALS[i].text) set_global(r, SPECIALS[i].name, tpl_c_string(r, SPECIALS[i].text));
    json_object_foreach((json_t *)(uintptr_t)in->extra, name, member)
        set_global(r, name, tpl_from_json(r, member, true));
}

enum err_code template_render(const struct template *t, const struct template_input *in, struct rendered *out,
                              struct err *why)
{
    struct rendering r = { .t = t, .in = in, .why = why, .line = 1 };
    *out = (struct rendered){ 0 };
    r.globals = tpl_scope(&r, NULL);
    struct scope *top = r.globals ? tpl_scope(&r, r.globals) : NULL;
    if (top) set_globals(&r, in);
    if (!r.rc) tpl_run_items(&r, top, t->root);
    arena_free(&r.memory);
    if (r.rc) {
        str_free(&r.out);
        str_free(&r.marks);
        return r.rc;
    }
    *out = (struct rendered){ r.out, r.marks, r.none_printed };
    return ERR_OK;
}
