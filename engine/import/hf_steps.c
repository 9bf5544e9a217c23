#include "engine/import/hf_steps.h"

#include <inttypes.h>
#include <string.h>

/* ---------------------------------------------------------------- post_processor */

static enum err_code place(int64_t *at, int64_t id, int64_t n, struct err *why)
{
    if (*at >= 0)
        return err_set(why, ERR_FORMAT,
                       "tokenizer.json: the post-processor adds more than one token before or after a text, "
                       "which is not supported");
    if (id < 0 || id >= n)
        return err_set(why, ERR_FORMAT,
                       "tokenizer.json: the post-processor adds token %" PRId64 ": expected 0 to %" PRId64,
                       id, n - 1);
    *at = id;
    return ERR_OK;
}

/* "single" lists the text and special tokens; "special_tokens" has their ids. */
static enum err_code read_template(struct hf_frame *f, const json_t *step, int64_t n, struct err *why)
{
    const json_t *single = json_object_get(step, "single"), *names = json_object_get(step, "special_tokens");
    bool behind = false;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *special = json_object_get(json_array_get(single, i), "SpecialToken");
        const char *name = json_get_str(special, "id", "");
        const json_t *ids = json_object_get(json_object_get(names, name), "ids");
        if (special && json_array_size(ids) != 1)
            return err_set(why, ERR_FORMAT,
                           "tokenizer.json: post-processor TemplateProcessing: '%.60s' has %zu ids, expected "
                           "one",
                           name, json_array_size(ids));
        const json_t *id = json_array_get(ids, 0);
        const enum err_code rc = special ? place(behind ? &f->after : &f->before,
                                                 json_is_integer(id) ? json_integer_value(id) : -1, n, why)
                                         : ERR_OK;
        if (rc) return rc;
        behind = behind || !special;
    }
    return ERR_OK;
}

/* BertProcessing, RobertaProcessing: "cls": [text, id] before, "sep" after. */
static enum err_code read_pair(struct hf_frame *f, const json_t *step, int64_t n, struct err *why)
{
    const json_t *cls = json_array_get(json_object_get(step, "cls"), 1),
                 *sep = json_array_get(json_object_get(step, "sep"), 1);
    enum err_code rc = place(&f->before, json_is_integer(cls) ? json_integer_value(cls) : -1, n, why);
    return rc ? rc : place(&f->after, json_is_integer(sep) ? json_integer_value(sep) : -1, n, why);
}

static enum err_code read_step(struct hf_frame *f, const json_t *step, int64_t n, int depth, struct err *why)
{
    const char *type = json_get_str(step, "type", "");
    const json_t *list = json_object_get(step, "processors");
    enum err_code rc = ERR_OK;
    if (!strcmp(type, "ByteLevel")) return ERR_OK; /* positions in the text only */
    if (!strcmp(type, "TemplateProcessing")) return read_template(f, step, n, why);
    if (!strcmp(type, "BertProcessing") || !strcmp(type, "RobertaProcessing"))
        return read_pair(f, step, n, why);
    if (strcmp(type, "Sequence") || depth)
        return err_set(why, ERR_FORMAT, "tokenizer.json: post-processor '%.40s' is not supported here", type);
    for (size_t i = 0; !rc && i < json_array_size(list); i++)
        rc = read_step(f, json_array_get(list, i), n, depth + 1, why);
    return rc;
}

enum err_code hf_frame_read(struct hf_frame *out, const json_t *post_processor, int64_t n, struct err *why)
{
    *out = (struct hf_frame){ -1, -1 };
    return !post_processor || json_is_null(post_processor) ? ERR_OK
                                                           : read_step(out, post_processor, n, 0, why);
}

/* ---------------------------------------------------------------- decoder */

/* What the steps of a decoder do. */
struct decoding {
    bool bytes, spaces, fallback, strips, of_token;
};

static const char SPACE[] = "\xe2\x96\x81"; /* U+2581 */

static enum err_code not_supported(const char *what, const char *detail, struct err *why)
{
    return err_set(why, ERR_FORMAT, "tokenizer.json: decoder %s%s%.40s is not supported here", what,
                   *detail ? " with " : "", detail);
}

static enum err_code add_step(struct decoding *d, const json_t *step, int depth, struct err *why)
{
    const char *type = json_get_str(step, "type", "");
    const json_t *list = json_object_get(step, "decoders");
    enum err_code rc = ERR_OK;
    if (!strcmp(type, "Sequence") && !depth) {
        for (size_t i = 0; !rc && i < json_array_size(list); i++)
            rc = add_step(d, json_array_get(list, i), depth + 1, why);
        return rc;
    }
    if (!strcmp(type, "Fuse")) return ERR_OK; /* joins texts, as we do */
    if (!strcmp(type, "ByteLevel")) {
        d->bytes = true;
        return ERR_OK;
    }
    if (!strcmp(type, "ByteFallback")) {
        d->fallback = true;
        return ERR_OK;
    }
    if (!strcmp(type, "Replace")) {
        const char *from = json_get_str(json_object_get(step, "pattern"), "String", ""),
                   *to = json_get_str(step, "content", "");
        d->spaces = true;
        return strcmp(from, SPACE) || strcmp(to, " ")
                   ? not_supported("Replace", *from ? from : "an expression", why)
                   : ERR_OK;
    }
    if (!strcmp(type, "Strip")) {
        const bool one = !strcmp(json_get_str(step, "content", ""), " ") &&
                         json_get_int(step, "start", 0) == 1 && !json_get_int(step, "stop", 0);
        d->strips = true;
        return one ? ERR_OK : not_supported("Strip", "other than one space at the beginning", why);
    }
    if (!strcmp(type, "Metaspace")) {
        const char *scheme = json_get_str(step, "prepend_scheme",
                                          json_get_bool(step, "add_prefix_space", true) ? "always" : "never");
        d->spaces = true;
        d->strips = d->of_token = strcmp(scheme, "never") != 0;
        return strcmp(json_get_str(step, "replacement", ""), SPACE)
                   ? not_supported("Metaspace", "another character than U+2581", why)
                   : ERR_OK;
    }
    return not_supported(*type ? type : "without a type", "", why);
}

enum err_code hf_decoder_check(const json_t *decoder, struct word_cutter *w, struct err *why)
{
    struct decoding d = { 0 };
    if (!decoder || json_is_null(decoder))
        return ERR_OK; /* without one, texts come back as encoding took them */
    const enum err_code rc = add_step(&d, decoder, 0, why);
    const bool inserts = w->space_first || w->space;
    if (rc) return rc;
    if (w->bytes) {
        if (d.bytes && !d.spaces && !d.strips) return ERR_OK;
        return not_supported("of a byte-level tokenizer", "other steps than ByteLevel", why);
    }
    if (d.bytes) return not_supported("ByteLevel", "a tokenizer of characters", why);
    if (!d.spaces) return not_supported("of a tokenizer of characters", "U+2581 that stays", why);
    w->strip_space = d.of_token ? "token" : "one";
    if (d.strips != inserts)
        return not_supported(inserts ? "without Strip" : "Strip",
                             inserts ? "a space that encoding puts in front" : "no space in front", why);
    return ERR_OK;
}
