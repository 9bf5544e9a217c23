/* Tokens beside the vocabulary, from all files that name them, as transformers does: those of tokenizer.json;
 * then added_tokens_decoder of tokenizer_config.json, or, where that is missing, added_tokens.json; then the
 * special tokens of tokenizer_config.json and special_tokens_map.json that none of these has. A later place
 * changes the flags of a token; a new token gets its id in the vocabulary, or the next free one. */
#include "engine/import/hf_added.h"

#include <string.h>

#include "kernels/kernels.h"

static const char *const SPECIAL_NAMES[] = { "bos_token", "eos_token", "unk_token", "sep_token",
                                             "pad_token", "cls_token", "mask_token" };
static const char *const SPECIAL_LISTS[] = { "additional_special_tokens", "extra_special_tokens" };

struct added {
    json_t *list;        /* of objects as in tokenizer.json */
    json_t *by_content;  /* {content: the same object} */
    const json_t *vocab; /* {text: id} */
    int64_t next;        /* the id of a new token */
};

static bool put(struct added *a, json_t *token)
{
    const char *content = json_get_str(token, "content", NULL);
    /* the vocabulary's id of the same text counts, as in the tokenizers library */
    const json_t *own = content ? json_object_get(a->vocab, content) : NULL;
    if (own && json_object_set(token, "id", (json_t *)(uintptr_t)own)) return false;
    const int64_t id = json_get_int(token, "id", -1);
    if (id >= a->next) a->next = id + 1;
    return !json_array_append(a->list, token) &&
           (!content || !json_object_set(a->by_content, content, token));
}

/* A token with the flags of `from` (an object, or NULL: none). special: it is one, whatever `from` says;
 * normalized as given where it does not say. False: out of memory. */
static bool add(struct added *a, const char *content, const json_t *from, bool special, bool normalized)
{
    static const char *const FLAGS[] = { "lstrip", "rstrip", "single_word" };
    json_t *token = json_object_get(a->by_content, content);
    const bool known = token != NULL;
    if (!*content) return true;
    if (!known) {
        const json_t *id = json_object_get(a->vocab, content);
        token = json_pack("{s:s, s:I}", "content", content, "id",
                          (json_int_t)(json_is_integer(id) ? json_integer_value(id) : a->next));
    }
    bool ok = token &&
              !json_object_set_new(token, "special",
                                   json_boolean(special || json_get_bool(from, "special", false))) &&
              !json_object_set_new(token, "normalized",
                                   json_boolean(json_get_bool(from, "normalized", normalized)));
    for (size_t i = 0; i < COUNT_OF(FLAGS) && ok; i++)
        ok = !json_object_set_new(token, FLAGS[i], json_boolean(json_get_bool(from, FLAGS[i], false)));
    if (known) return ok;
    ok = ok && put(a, token);
    json_decref(token);
    return ok;
}

/* A special token as a text or an object, unless another place has it. */
static bool add_special(struct added *a, const json_t *token)
{
    const char *content = json_is_object(token) ? json_get_str(token, "content", NULL)
                                                : json_string_value(token);
    if (!content || json_object_get(a->by_content, content)) return true;
    return add(a, content, json_is_object(token) ? token : NULL, true, false);
}

static bool add_specials_of(struct added *a, const json_t *file)
{
    bool ok = true;
    const char *name;
    json_t *one;
    for (size_t i = 0; i < COUNT_OF(SPECIAL_NAMES) && ok; i++)
        ok = add_special(a, json_object_get(file, SPECIAL_NAMES[i]));
    for (size_t i = 0; i < COUNT_OF(SPECIAL_LISTS) && ok; i++) {
        const json_t *list = json_object_get(file, SPECIAL_LISTS[i]);
        for (size_t k = 0; k < json_array_size(list) && ok; k++) ok = add_special(a, json_array_get(list, k));
        json_object_foreach((json_t *)(uintptr_t)list, name, one) ok = ok && add_special(a, one);
    }
    return ok;
}

static bool is_special_name(const struct checkpoint *c, const char *content)
{
    const json_t *files[] = { c->tokenizer_config, c->special_tokens_map };
    for (size_t f = 0; f < COUNT_OF(files); f++) {
        for (size_t i = 0; i < COUNT_OF(SPECIAL_NAMES); i++) {
            const json_t *t = json_object_get(files[f], SPECIAL_NAMES[i]);
            const char *text = json_is_object(t) ? json_get_str(t, "content", "") : json_string_value(t);
            if (text && !strcmp(text, content)) return true;
        }
        for (size_t i = 0; i < COUNT_OF(SPECIAL_LISTS); i++) {
            const json_t *list = json_object_get(files[f], SPECIAL_LISTS[i]);
            for (size_t k = 0; k < json_array_size(list); k++) {
                const json_t *t = json_array_get(list, k);
                const char *text = json_is_object(t) ? json_get_str(t, "content", "") : json_string_value(t);
                if (text && !strcmp(text, content)) return true;
            }
        }
    }
    return false;
}

/* {"id": {token}} or {content: id}, by id. */
static bool add_by_id(struct added *a, const struct checkpoint *c, const json_t *file, bool decoder)
{
    const char *key;
    json_t *value;
    int64_t last = -1;
    for (size_t i = 0; i < json_object_size(file); i++) {
        int64_t best = INT64_MAX, id;
        const char *content = NULL;
        const json_t *from = NULL;
        json_object_foreach((json_t *)(uintptr_t)file, key, value)
        {
            if (decoder ? !str_to_i64(key, &id) : !json_is_integer(value)) continue;
            if (!decoder) id = json_integer_value(value);
            if (id <= last || id >= best) continue;
            best = id;
            content = decoder ? json_get_str(value, "content", NULL) : key;
            from = decoder ? value : NULL;
        }
        if (!content) break;
        last = best;
        const bool special = is_special_name(c, content);
        if (!add(a, content, from, special, !special)) return false;
    }
    return true;
}

enum err_code hf_added_read(json_t **out, const struct checkpoint *c, const json_t *vocab, struct err *why)
{
    enum { BY_ID_MOST = 20000 }; /* added_tokens_decoder is searched once for each token */
    const json_t *given = json_object_get(c->tokenizer, "added_tokens"),
                 *decoder = json_object_get(c->tokenizer_config, "added_tokens_decoder");
    struct added a = { .list = json_array(), .by_content = json_object(), .vocab = vocab };
    const char *text;
    json_t *id;
    bool ok = a.list && a.by_content;
    *out = NULL;
    json_object_foreach((json_t *)(uintptr_t)vocab, text, id) if (json_integer_value(id) >= a.next)
        a.next = json_integer_value(id) + 1;
    for (size_t i = 0; i < json_array_size(given) && ok; i++) {
        json_t *copy = json_deep_copy(json_array_get(given, i));
        ok = copy && put(&a, copy);
        json_decref(copy);
    }
    if (json_object_size(decoder) > BY_ID_MOST || json_object_size(c->added_tokens) > BY_ID_MOST) {
        json_decref(a.list);
        json_decref(a.by_content);
        return err_set(why, ERR_FORMAT, "added_tokens_decoder: expected at most %d tokens", BY_ID_MOST);
    }
    if (ok && decoder) ok = add_by_id(&a, c, decoder, true);
    if (ok && !decoder) ok = add_by_id(&a, c, c->added_tokens, false);
    if (ok) ok = add_specials_of(&a, c->tokenizer_config);
    if (ok && !decoder) ok = add_specials_of(&a, c->special_tokens_map);
    json_decref(a.by_content);
    if (ok)
        *out = a.list;
    else
        json_decref(a.list);
    return ok ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for added tokens");
}
