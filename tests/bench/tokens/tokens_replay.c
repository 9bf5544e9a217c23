/* Renders templates and tokenizes texts for tokens.py and templates.py, which compare the results with other
 * programs. Reads one JSON object a line and answers each with one line:
 *
 *   {"template": TEXT, "messages": LIST, "extra": OBJECT}     {"text": TEXT} or {"error": TEXT}
 *   {"model": PATH}                                           {} or {"error": TEXT}; for what follows
 *   {"encode": TEXT, "special": BOOL, "frame": BOOL}          {"ids": LIST} or {"error": TEXT}
 *   {"decode": LIST, "special": BOOL}                         {"hex": BYTES} or {"error": TEXT} */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "engine/import/import.h"
#include "engine/template/template.h"
#include "engine/text/text.h"

struct opened {
    struct gguf *file;
    struct tokenizer *tokenizer;
};

static json_t *answer_template(const json_t *q, struct err *why)
{
    const json_t *text = json_object_get(q, "template");
    const struct template_input in = { .messages = json_object_get(q, "messages"),
                                       .extra = json_object_get(q, "extra"),
                                       .add_generation_prompt = json_get_bool(q, "prompt", false),
                                       .bos_token = "<s>",
                                       .eos_token = "</s>",
                                       .now = 1764000000 };
    struct template *t;
    struct rendered out;
    if (template_open(&t, json_string_value(text), json_string_length(text), "T", why)) return NULL;
    const enum err_code rc = template_render(t, &in, &out, why);
    template_close(t);
    if (rc) return NULL;
    json_t *answer = json_pack("{s:s%}", "text", str_text(&out.text), out.text.len);
    rendered_free(&out);
    if (!answer) err_set(why, ERR_FORMAT, "the text is not UTF-8");
    return answer;
}

static json_t *answer_model(const json_t *q, struct opened *o, struct err *why)
{
    tokenizer_close(o->tokenizer);
    gguf_close(o->file);
    *o = (struct opened){ 0 };
    if (model_file_open(&o->file, json_get_str(q, "model", ""), why)) return NULL;
    return tokenizer_open(&o->tokenizer, o->file, why) ? NULL : json_object();
}

static json_t *answer_encode(const json_t *q, const struct opened *o, struct err *why)
{
    const json_t *text = json_object_get(q, "encode");
    const unsigned flags = (json_get_bool(q, "special", true) ? TOKENIZE_SPECIAL : 0) |
                           (json_get_bool(q, "frame", false) ? TOKENIZE_ADD_BOS : 0);
    struct token_list l = { 0 };
    if (tokenizer_encode(o->tokenizer, json_string_value(text), json_string_length(text), flags, &l, why))
        return NULL;
    json_t *ids = json_array();
    for (int64_t i = 0; i < l.n; i++) json_array_append_new(ids, json_integer(l.ids[i]));
    token_list_free(&l);
    return json_pack("{s:o}", "ids", ids);
}

static json_t *answer_decode(const json_t *q, const struct opened *o, struct err *why)
{
    const json_t *ids = json_object_get(q, "decode");
    struct token_list l = { 0 };
    struct str text = { 0 }, hex = { 0 };
    json_t *answer = NULL;
    for (size_t i = 0; i < json_array_size(ids); i++)
        if (token_list_push(&l, (int32_t)json_integer_value(json_array_get(ids, i)), why)) return NULL;
    if (!tokenizer_decode(o->tokenizer, l.ids, l.n, json_get_bool(q, "special", true), &text, why)) {
        for (size_t i = 0; i < text.len; i++) str_printf(&hex, "%02x", (unsigned char)text.data[i]);
        answer = json_pack("{s:s}", "hex", str_text(&hex));
    }
    token_list_free(&l);
    str_free(&text);
    str_free(&hex);
    return answer;
}

static json_t *answer(const json_t *q, struct opened *o, struct err *why)
{
    if (json_object_get(q, "template")) return answer_template(q, why);
    if (json_object_get(q, "model")) return answer_model(q, o, why);
    if (!o->tokenizer) {
        err_set(why, ERR_USAGE, "expected {\"model\": PATH} first");
        return NULL;
    }
    if (json_object_get(q, "encode")) return answer_encode(q, o, why);
    if (json_object_get(q, "decode")) return answer_decode(q, o, why);
    err_set(why, ERR_USAGE, "expected template, model, encode or decode");
    return NULL;
}

int main(int argc, char **argv)
{
    struct opened o = { 0 };
    char *line = NULL;
    size_t room = 0;
    (void)argv;
    if (argc > 1) {
        fprintf(stderr, "usage: tokens_replay < LINES (tests/bench/tokens)\n");
        return 2;
    }
    for (ssize_t n; (n = getline(&line, &room, stdin)) > 0;) {
        struct err why = { 0 };
        json_t *q = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL), *a = answer(q, &o, &why);
        if (!a) a = json_pack("{s:s}", "error", why.message);
        json_dumpf(a, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(a);
        json_decref(q);
    }
    free(line);
    tokenizer_close(o.tokenizer);
    gguf_close(o.file);
    return 0;
}
