/* One parser for the values of knobs and of method parameters, and the texts that configs point to.
 *
 * Configs are copied everywhere (arms of an experiment, forms, saved plans). If each owned its texts, every
 * copy would need a destructor; if each contained them, a config would be 14 KiB. So texts are interned: the
 * process keeps one copy of each distinct text for good. There are few of them: a process sees some dozen
 * model paths and recipes; even a search over thousands of recipes leaves less than a MiB. */
#include "engine/config/config_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---------------------------------------------------------------- interned texts */

struct interned {
    struct interned *next; /* older texts of the same bucket; never changes */
    char text[];
};

enum { BUCKETS = 1024 };
/* Lists only grow at their head, by compare-and-swap: no lock, so a child process that was forked from a
 * thread can use them, too. */
static _Atomic(struct interned *) buckets[BUCKETS];
/* Texts may come from a file or another process. The key is made with the first text. */
static _Atomic(struct hash_key *) hash_secret;

/* NULL: out of memory. */
static const struct hash_key *secret_get(void)
{
    struct hash_key *known = atomic_load(&hash_secret);
    if (known) return known;
    struct hash_key *made = malloc(sizeof *made);
    if (!made) return NULL;
    hash_key_make(made);
    if (atomic_compare_exchange_strong(&hash_secret, &known, made)) return made;
    free(made); /* another thread was first */
    return known;
}

static const char *bucket_find(const struct interned *from, const struct interned *to, const char *text)
{
    for (; from != to; from = from->next)
        if (!strcmp(from->text, text)) return from->text;
    return NULL;
}

const char *text_intern(const char *text)
{
    const size_t size = strlen(text) + 1;
    const struct hash_key *key = secret_get();
    if (!key) return NULL;
    _Atomic(struct interned *) *bucket = &buckets[hash_keyed(key, text, size) % BUCKETS];
    struct interned *head = atomic_load(bucket), *seen = head;
    const char *known = bucket_find(head, NULL, text);
    if (known) return known;
    struct interned *node = malloc(sizeof *node + size);
    if (!node) {
        memory_short_set(); /* callers that merge configs have no error */
        return NULL;
    }
    memcpy(node->text, text, size);
    do {
        known = bucket_find(head, seen, text); /* what other threads added since */
        if (known) {
            free(node);
            return known;
        }
        node->next = seen = head;
    } while (!atomic_compare_exchange_weak(bucket, &head, node));
    return node->text;
}

/* ---------------------------------------------------------------- values */

/* The i-th allowed name of a rule, of n bytes; NULL at the end. */
static const char *rule_name(const struct value_rule *rule, size_t i, size_t *n)
{
    const char *word = rule->words;
    if (rule->names) {
        *n = i < rule->count ? strlen(rule->names[i]) : 0;
        return i < rule->count ? rule->names[i] : NULL;
    }
    for (; word && *word; word += *n + strspn(word + *n, " ")) {
        *n = strcspn(word, " ");
        if (!i--) return word;
    }
    return NULL;
}

/* Index of `text` among the rule's names, in its canonical spelling to out; -1: it is none of them. */
static int64_t rule_find(const struct value_rule *rule, const char *text, char *out)
{
    const size_t length = strlen(text);
    const char *name;
    size_t n;
    for (size_t i = 0; (name = rule_name(rule, i, &n)); i++) {
        if (n != length || strncasecmp(name, text, n)) continue;
        snprintf(out, CONFIG_VALUE, "%.*s", (int)n, name);
        return (int64_t)i;
    }
    return -1;
}

static bool parse_bool(const char *text, struct value *out)
{
    out->whole = str_has_word("true on yes 1", text);
    snprintf(out->text, sizeof out->text, "%s", out->whole ? "true" : "false");
    return out->whole || str_has_word("false off no 0", text);
}

bool value_parse(struct value *out, const struct value_rule *rule, const char *text)
{
    const bool listed = rule->names || rule->words;
    *out = (struct value){ .real = NAN };
    if (strlen(text) >= sizeof out->text) return false;
    switch (rule->kind) {
    case VALUE_TEXT: snprintf(out->text, sizeof out->text, "%s", text); return true;
    case VALUE_BOOL: return parse_bool(text, out);
    case VALUE_CHOICE: out->whole = rule_find(rule, text, out->text); return out->whole >= 0;
    case VALUE_INT:
        if (!str_to_i64(text, &out->whole)) return false;
        if (listed ? rule_find(rule, text, out->text) < 0
                   : (double)out->whole < rule->min || (double)out->whole > rule->max)
            return false;
        out->real = (double)out->whole;
        snprintf(out->text, sizeof out->text, "%" PRId64, out->whole);
        return true;
    case VALUE_REAL:
        if (!str_to_double(text, &out->real)) return false;
        if (!(out->real >= rule->min && out->real <= rule->max)) return false;
        str_from_double(out->real, out->text, sizeof out->text);
        return true;
    }
    return false;
}

const char *value_wanted(const struct value_rule *rule, const char *wrong, char *buf, size_t size)
{
    char list[320];
    if (rule->names)
        snprintf(buf, size, "one of %s", choices_text(wrong, rule->names, rule->count, list, sizeof list));
    else if (rule->words)
        snprintf(buf, size, "one of %s", rule->words);
    else if (rule->kind == VALUE_BOOL)
        snprintf(buf, size, "true or false");
    else if (rule->kind == VALUE_INT)
        snprintf(buf, size, "a whole number from %.0f to %.0f", rule->min, rule->max);
    else
        snprintf(buf, size, "a number from %g to %g", rule->min, rule->max);
    return buf;
}
