/* Translates the steps of normalizer and pre_tokenizer. Source: huggingface/tokenizers, tokenizers/src.
 *
 * Its expressions are written for Oniguruma. PCRE2 reads them alike but for \s and \S: PCRE2 counts U+180E as
 * a space, so they become lists of characters. */
#include "engine/import/word_cutter.h"

#include <stdio.h>
#include <string.h>

#define WS "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

/* GPT-2's expression, which the step ByteLevel applies. */
static const char GPT2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
static const char SPACE[] = "\xe2\x96\x81"; /* U+2581 */

/* Steps that a family of our own table does exactly. */
#define SHORT "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL  "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define WORDS(letters, others, digits, more)                                                                 \
    "[^\\r\\n\\p{L}\\p{N}]?" letters "|" digits "| ?[^\\s" others "\\p{N}]+[\\r\\n" more "]*" TAIL
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASES(suffix, digits)                                                                                \
    WORDS(UPPER "*" LOWER "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" suffix, "\\p{L}", digits, \
          "/")
static const struct {
    const char *source;
    bool whole_words;
    const char *pre;
} KNOWN[] = {
    { "gpt2\n", false, "gpt-2" },
    { "digit\ngpt2\n", false, "smollm" },
    { "marks\ngpt2\ndigits\nsplit [0-9][0-9][0-9]\n", false, "falcon" },
    { "split " SHORT "|" WORDS("\\p{L}+", "\\p{L}", "\\p{N}{1,3}", "") "\n", true, "llama-bpe" },
    { "split " SHORT "|" WORDS("\\p{L}+", "\\p{L}", "\\p{N}{1,3}", "") "\n", false, "chatglm-bpe" },
    { "split " SHORT "|" WORDS("\\p{L}+", "\\p{L}", "\\p{N}", "") "\n", false, "qwen2" },
    { "split " SHORT "|" WORDS("[\\p{L}\\p{M}]+", "\\p{L}\\p{M}", "\\p{N}", "") "\n", false, "qwen35" },
    { "split " CASES(SHORT "?", "\\p{N}{1,3}") "\n", false, "gpt-4o" },
    { "split " CASES("", "\\p{N}") "\n", true, "tekken" },
};

const char *word_cutter_known(const struct word_cutter *w, bool whole_words)
{
    for (size_t i = 0; i < COUNT_OF(KNOWN); i++)
        if (w->bytes && KNOWN[i].whole_words == whole_words && !strcmp(KNOWN[i].source, str_text(&w->source)))
            return KNOWN[i].pre;
    return NULL;
}

void word_cutter_free(struct word_cutter *w)
{
    for (int i = 0; i < w->cut_count; i++) str_free(&w->cuts[i]);
    for (int i = 0; i < w->rewrite_count; i++) str_free(&w->rewrites[i]);
    str_free(&w->charsmap);
    str_free(&w->source);
}

/* ---------------------------------------------------------------- patterns */

/* Append an expression with \s and \S as lists. ERR_FORMAT: between brackets, \S, which no list expresses,
 * and what PCRE2 reads otherwise: brackets in brackets, &&. */
static enum err_code translate(struct str *out, const char *regex, struct err *why)
{
    bool in_class = false;
    for (const char *p = regex; *p; p++) {
        if (*p == '\\' && p[1]) {
            p++;
            if (*p == 'S' && in_class)
                return err_set(why, ERR_FORMAT, "tokenizer.json: \\S between brackets is not supported");
            if (*p == 's')
                str_append(out, in_class ? WS : "[" WS "]");
            else if (*p == 'S')
                str_append(out, "[^" WS "]");
            else
                str_printf(out, "\\%c", *p);
            continue;
        }
        if (in_class && (*p == '[' || !strncmp(p, "&&", 2)))
            return err_set(why, ERR_FORMAT, "tokenizer.json: %s between brackets is not supported",
                           *p == '[' ? "another bracket" : "&&");
        const bool opens = *p == '[';
        if (opens) in_class = true;
        if (*p == ']') in_class = false;
        str_append_n(out, p, 1);
        if (opens && p[1] == '^') str_append_n(out, ++p, 1);
        if (opens && p[1] == ']') str_append_n(out, ++p, 1); /* the first one does not end the class */
    }
    return ERR_OK;
}

static enum err_code add_cut(struct word_cutter *w, const char *regex, const char *source, struct err *why)
{
    if (w->cut_count == CUTS_MOST)
        return err_set(why, ERR_FORMAT, "tokenizer.json: more than %d steps of cutting", CUTS_MOST);
    w->cuts_bytes = w->cuts_bytes || w->bytes;
    str_printf(&w->source, "%s\n", source);
    return translate(&w->cuts[w->cut_count++], regex, why);
}

/* A text as an expression that matches it. */
static void quote(struct str *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("\\^$.[]|()?*+{}-/", *text)) str_append(out, "\\");
        str_append_n(out, text, 1);
    }
}

/* ---------------------------------------------------------------- steps of pre_tokenizer */

typedef enum err_code step_fn(struct word_cutter *w, const json_t *step, struct err *why);

static enum err_code step_split(struct word_cutter *w, const json_t *step, struct err *why)
{
    const json_t *pattern = json_object_get(step, "pattern");
    const char *regex = json_get_str(pattern, "Regex", NULL), *text = json_get_str(pattern, "String", NULL),
               *behavior = json_get_str(step, "behavior", "");
    struct str source = { 0 }, quoted = { 0 };
    if (json_get_bool(step, "invert", false) || (!regex && !text))
        return err_set(why, ERR_FORMAT, "tokenizer.json: step Split with invert or without a pattern");
    if (text && !strcmp(text, " ") && w->spaces) return ERR_OK; /* no space is left: nothing is cut */
    if (strcmp(behavior, "Isolated"))
        return err_set(why, ERR_FORMAT, "tokenizer.json: step Split with behavior '%.40s': expected Isolated",
                       behavior);
    if (text) quote(&quoted, text);
    if (text && !*text) return err_set(why, ERR_FORMAT, "tokenizer.json: step Split with an empty text");
    str_printf(&source, "split %s", regex ? regex : str_text(&quoted));
    const enum err_code rc = add_cut(w, regex ? regex : str_text(&quoted), str_text(&source), why);
    str_free(&source);
    str_free(&quoted);
    return rc;
}

static enum err_code step_bytes(struct word_cutter *w, const json_t *step, struct err *why)
{
    if (json_get_bool(step, "add_prefix_space", true))
        return err_set(why, ERR_FORMAT,
                       "tokenizer.json: step ByteLevel with add_prefix_space is not supported");
    const enum err_code rc = json_get_bool(step, "use_regex", true) ? add_cut(w, GPT2, "gpt2", why) : ERR_OK;
    w->bytes = true;
    return rc;
}

static enum err_code step_digits(struct word_cutter *w, const json_t *step, struct err *why)
{
    const bool single = json_get_bool(step, "individual_digits", false);
    return add_cut(w, single ? "\\p{N}" : "\\p{N}+", single ? "digit" : "digits", why);
}

static enum err_code step_punctuation(struct word_cutter *w, const json_t *step, struct err *why)
{
    const char *behavior = json_get_str(step, "behavior", "Isolated");
    const bool run = !strcmp(behavior, "Contiguous");
    if (!run && strcmp(behavior, "Isolated"))
        return err_set(why, ERR_FORMAT, "tokenizer.json: step Punctuation with behavior '%.40s'", behavior);
    return add_cut(w, run ? "[\\p{P}$+<=>^`|~]+" : "[\\p{P}$+<=>^`|~]", run ? "marks" : "mark", why);
}

static enum err_code step_metaspace(struct word_cutter *w, const json_t *step, struct err *why)
{
    const char *scheme = json_get_str(step, "prepend_scheme",
                                      json_get_bool(step, "add_prefix_space", true) ? "always" : "never");
    if (strcmp(json_get_str(step, "replacement", ""), SPACE))
        return err_set(why, ERR_FORMAT, "tokenizer.json: step Metaspace with another character than U+2581");
    const bool always = !strcmp(scheme, "always"), first = !strcmp(scheme, "first");
    w->space = always ? "each" : first ? "first" : NULL;
    if (!always && !first && strcmp(scheme, "never"))
        return err_set(why, ERR_FORMAT,
                       "tokenizer.json: step Metaspace with prepend_scheme '%.40s' is not supported", scheme);
    w->spaces = true;
    return json_get_bool(step, "split", true) ? add_cut(w, "\\x{2581}[^\\x{2581}]*", "words", why) : ERR_OK;
}

static const struct step {
    const char *type, *list; /* list: the key of its steps */
    step_fn *fn;
} PRE_TOKENIZERS[] = {
    { .type = "Sequence", .list = "pretokenizers" },   { .type = "Split", .fn = step_split },
    { .type = "ByteLevel", .fn = step_bytes },         { .type = "Digits", .fn = step_digits },
    { .type = "Punctuation", .fn = step_punctuation }, { .type = "Metaspace", .fn = step_metaspace },
};

/* ---------------------------------------------------------------- steps of normalizer */

static enum err_code step_prepend(struct word_cutter *w, const json_t *step, struct err *why)
{
    if (strcmp(json_get_str(step, "prepend", ""), SPACE))
        return err_set(why, ERR_FORMAT, "tokenizer.json: normalizer Prepend with another text than U+2581");
    w->space_first = true;
    return ERR_OK;
}

/* The replacement of what an expression matches, before spaces become U+2581. */
static enum err_code add_rewrite(struct word_cutter *w, const char *regex, const char *by, struct err *why)
{
    if (w->spaces || w->space_first)
        return err_set(why, ERR_FORMAT,
                       "tokenizer.json: a normalizer behind the one that writes U+2581 for "
                       "spaces is not supported");
    static const char ZERO[] = "\xef\xbf\xbe"; /* hf_tokenizer_parse puts it in the place of U+0000 */
    if (strstr(regex, ZERO) || strstr(by, ZERO))
        return err_set(why, ERR_FORMAT, "tokenizer.json: normalizer Replace with U+0000 is not supported");
    if (w->rewrite_count == 2 * REWRITES_MOST)
        return err_set(why, ERR_FORMAT, "tokenizer.json: more than %d normalizers", REWRITES_MOST);
    struct str *at = &w->rewrites[w->rewrite_count];
    w->rewrite_count += 2;
    str_append(&at[1], by);
    return translate(at, regex, why);
}

static enum err_code step_replace(struct word_cutter *w, const json_t *step, struct err *why)
{
    const json_t *pattern = json_object_get(step, "pattern");
    const char *regex = json_get_str(pattern, "Regex", NULL), *text = json_get_str(pattern, "String", NULL),
               *by = json_get_str(step, "content", NULL);
    struct str quoted = { 0 };
    if (!by || (!regex && (!text || !*text)))
        return err_set(why, ERR_FORMAT, "tokenizer.json: normalizer Replace without a pattern or content");
    if (text && !strcmp(text, " ") && !strcmp(by, SPACE)) {
        w->spaces = true;
        return ERR_OK;
    }
    if (text) quote(&quoted, text);
    const enum err_code rc = add_rewrite(w, regex ? regex : str_text(&quoted), by, why);
    str_free(&quoted);
    return rc;
}

static enum err_code step_strip(struct word_cutter *w, const json_t *step, struct err *why)
{
    enum err_code rc = ERR_OK;
    if (json_get_bool(step, "strip_left", true)) rc = add_rewrite(w, "\\A\\s+", "", why);
    if (!rc && json_get_bool(step, "strip_right", true)) rc = add_rewrite(w, "\\s+\\z", "", why);
    return rc;
}

static enum err_code step_precompiled(struct word_cutter *w, const json_t *step, struct err *why)
{
    const char *text = json_get_str(step, "precompiled_charsmap", "");
    if (w->rewrite_count || w->spaces || w->space_first || w->charsmap.len)
        return err_set(why, ERR_FORMAT,
                       "tokenizer.json: normalizer Precompiled behind another one is not supported");
    if (base64_decode(text, strlen(text), &w->charsmap) && w->charsmap.len) return ERR_OK;
    return w->charsmap.failed ? err_set(why, ERR_NOMEM, "out of memory for the tokenizer")
                              : err_set(why, ERR_FORMAT,
                                        "tokenizer.json: normalizer Precompiled: "
                                        "precompiled_charsmap is not base64");
}

/* A normal form of Unicode. */
static enum err_code step_form(struct word_cutter *w, const json_t *step, struct err *why)
{
    char form[16];
    snprintf(form, sizeof form, "(*%s)", json_get_str(step, "type", ""));
    return add_rewrite(w, form, "", why);
}

static const struct step NORMALIZERS[] = {
    { .type = "Sequence", .list = "normalizers" },
    { .type = "Prepend", .fn = step_prepend },
    { .type = "Replace", .fn = step_replace },
    { .type = "Strip", .fn = step_strip },
    { .type = "Precompiled", .fn = step_precompiled },
    { .type = "NFC", .fn = step_form },
    { .type = "NFD", .fn = step_form },
    { .type = "NFKC", .fn = step_form },
    { .type = "NFKD", .fn = step_form },
};

/* Run a step, or the steps of a sequence. */
static enum err_code run(struct word_cutter *w, const struct step *table, size_t count, const char *what,
                         const json_t *step, int depth, struct err *why)
{
    const char *type = json_get_str(step, "type", "");
    if (!step || json_is_null(step)) return ERR_OK;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(table[i].type, type)) continue;
        if (table[i].fn) return table[i].fn(w, step, why);
        const json_t *list = json_object_get(step, table[i].list);
        enum err_code rc = depth ? err_set(why, ERR_FORMAT,
                                           "tokenizer.json: a %s in a Sequence in a Sequence", what)
                                 : ERR_OK;
        for (size_t k = 0; !rc && k < json_array_size(list); k++)
            rc = run(w, table, count, what, json_array_get(list, k), depth + 1, why);
        return rc;
    }
    return err_set(why, ERR_FORMAT, "tokenizer.json: %s '%.40s' is not supported", what, type);
}

enum err_code word_cutter_read(struct word_cutter *out, const json_t *tokenizer, struct err *why)
{
    *out = (struct word_cutter){ 0 };
    enum err_code rc = run(out, NORMALIZERS, COUNT_OF(NORMALIZERS), "normalizer",
                           json_object_get(tokenizer, "normalizer"), 0, why);
    if (!rc)
        rc = run(out, PRE_TOKENIZERS, COUNT_OF(PRE_TOKENIZERS), "pre-tokenizer",
                 json_object_get(tokenizer, "pre_tokenizer"), 0, why);
    if (!rc && out->space && out->space_first)
        rc = err_set(why, ERR_FORMAT, "tokenizer.json: both Prepend and Metaspace put a space in front");
    if (!rc && out->bytes && (out->spaces || out->space_first))
        rc = err_set(why, ERR_FORMAT, "tokenizer.json: byte level with U+2581 for spaces is not supported");
    if (!rc && !out->bytes && !out->spaces)
        rc = err_set(why, ERR_FORMAT, "tokenizer.json: expected byte level, or U+2581 for spaces");
    if (!rc && out->bytes && out->charsmap.len)
        rc = err_set(why, ERR_FORMAT,
                     "tokenizer.json: normalizer Precompiled with byte level is not supported");
    for (int i = 0; i < out->rewrite_count; i++)
        if (out->rewrites[i].failed) rc = err_set(why, ERR_NOMEM, "out of memory for the tokenizer");
    for (int i = 0; i < out->cut_count; i++)
        if (out->cuts[i].failed) rc = err_set(why, ERR_NOMEM, "out of memory for the tokenizer");
    return rc;
}
