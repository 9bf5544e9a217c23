/* Tokens beside the vocabulary, from all files that name them, as transformers does: those of tokenizer.json;
 * then added_tokens_decoder of tokenizer_config.json, or, where that is missing, added_tokens.json; then the
 * special tokens of tokenizer_config.json and special_tokens_map.json that none of these has. A later place
 * changes the flags of a token; a new token gets its id in the vocabulary, or the next free one. */
#include "engine/import/hf_added.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

static const char *const SPECIAL_NAMES[] = { "bos_token", "eos_token", "unk_token", "sep_token",
                                             "pad_token", "cls_token", "mask_token" };
static const char *const SPECIAL_LISTS[] = { "additional_special_tokens", "extra_special_tokens" };

struct added {
    json_t *list;        /* of objects as in tokenizer.json */
    json_t *by_content;  /* {content: the same object} */
    json_t *special;     /* {content: true} of all that a file names as special */
    const json_t *vocab; /* {text: id} */
    int64_t next;        /* the id of a new token */
};

/* An id beyond the range of ids is refused when the tokens are stored. */
static void take_id(struct added *a, int64_t id)
{
    if (id >= a->next && id < INT32_MAX) a->next = id + 1;
}

static bool put(struct added *a, json_t *token)
{
    const char *content = json_get_str(token, "content", NULL);
    /* the vocabulary's id of the same text counts, as in the tokenizers library */
    const json_t *own = content ? json_object_get(a->vocab, content) : NULL;
    if (own && json_object_set(token, "id", (json_t *)(uintptr_t)own)) return false;
    const int64_t id = json_get_int(token, "id", -1);
    take_id(a, id);
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

/* Calls each(a, token) for the special tokens that a file names, texts or objects. False: a call returned
 * false. */
static bool specials_each(struct added *a, const json_t *file,
                          bool (*each)(struct added *a, const json_t *token))
{
    bool ok = true;
    const char *name;
    json_t *one;
    for (size_t i = 0; i < COUNT_OF(SPECIAL_NAMES) && ok; i++)
        ok = each(a, json_object_get(file, SPECIAL_NAMES[i]));
    for (size_t i = 0; i < COUNT_OF(SPECIAL_LISTS) && ok; i++) {
        const json_t *list = json_object_get(file, SPECIAL_LISTS[i]);
        for (size_t k = 0; k < json_array_size(list) && ok; k++) ok = each(a, json_array_get(list, k));
        json_object_foreach((json_t *)(uintptr_t)list, name, one) ok = ok && each(a, one);
    }
    return ok;
}

static const char *content_of(const json_t *token)
{
    return json_is_object(token) ? json_get_str(token, "content", NULL) : json_string_value(token);
}

static bool name_special(struct added *a, const json_t *token)
{
    const char *content = content_of(token);
    return !content || !json_object_set_new(a->special, content, json_true());
}

/* Unless another place has it. */
static bool add_special(struct added *a, const json_t *token)
{
    const char *content = content_of(token);
    if (!content || json_object_get(a->by_content, content)) return true;
    return add(a, content, json_is_object(token) ? token : NULL, true, false);
}

struct by_id {
    int64_t id;
    const char *content;
    const json_t *from; /* the object with its flags; NULL: none */
};

static int compare_ids(const void *a, const void *b)
{
    const int64_t x = ((const struct by_id *)a)->id, y = ((const struct by_id *)b)->id;
    return (x > y) - (x < y);
}

/* {"id": {token}} or {content: id}, by id; of equal ids one. */
static bool add_by_id(struct added *a, const json_t *file, bool decoder)
{
    struct by_id *list = calloc(json_object_size(file) + 1, sizeof *list);
    size_t n = 0;
    const char *key;
    json_t *value;
    bool ok = list != NULL;
    json_object_foreach((json_t *)(uintptr_t)file, key, value)
    {
        struct by_id one = { .content = decoder ? json_get_str(value, "content", NULL) : key,
                             .from = decoder ? value : NULL };
        if (!list || !one.content || (decoder ? !str_to_i64(key, &one.id) : !json_is_integer(value)))
            continue;
        if (!decoder) one.id = json_integer_value(value);
        if (one.id >= 0) list[n++] = one;
    }
    if (list) qsort(list, n, sizeof *list, compare_ids);
    for (size_t i = 0; i < n && ok; i++) {
        if (i && list[i].id == list[i - 1].id) continue;
        const bool special = json_object_get(a->special, list[i].content) != NULL;
        ok = add(a, list[i].content, list[i].from, special, !special);
    }
    free(list);
    return ok;
}

enum err_code hf_added_read(json_t **out, const struct checkpoint *c, const json_t *vocab, struct err *why)
{
    const json_t *given = json_object_get(c->tokenizer, "added_tokens"),
                 *decoder = json_object_get(c->tokenizer_config, "added_tokens_decoder");
    struct added a = {
        .list = json_array(), .by_content = json_object(), .special = json_object(), .vocab = vocab
    };
    const char *text;
    json_t *id;
    bool ok = a.list && a.by_content && a.special;
    *out = NULL;
    json_object_foreach((json_t *)(uintptr_t)vocab, text, id) take_id(&a, json_integer_value(id));
    ok = ok && specials_each(&a, c->tokenizer_config, name_special) &&
         specials_each(&a, c->special_tokens_map, name_special);
    for (size_t i = 0; i < json_array_size(given) && ok; i++) {
        json_t *copy = json_deep_copy(json_array_get(given, i));
        ok = copy && put(&a, copy);
        json_decref(copy);
    }
    if (ok && decoder) ok = add_by_id(&a, decoder, true);
    if (ok && !decoder) ok = add_by_id(&a, c->added_tokens, false);
    if (ok) ok = specials_each(&a, c->tokenizer_config, add_special);
    if (ok && !decoder) ok = specials_each(&a, c->special_tokens_map, add_special);
    json_decref(a.by_content);
    json_decref(a.special);
    if (ok)
        *out = a.list;
    else
        json_decref(a.list);
    return ok ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory for added tokens");
}
