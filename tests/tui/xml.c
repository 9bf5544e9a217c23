/* tests/tui/xml.c - see xml.h. */
#include "tests/tui/xml.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

enum { DEPTH = 64, NAME = 32, IDS = 512 };

struct checker {
    const char *at;
    char open[DEPTH][NAME];
    int depth;
    char id[IDS][NAME], wanted[IDS][NAME];
    int ids, wants;
    char *why;
    size_t size;
};

static bool bad(struct checker *c, const char *what)
{
    snprintf(c->why, c->size, "%s at: %.60s", what, c->at);
    return false;
}

static bool name_read(struct checker *c, char name[NAME])
{
    size_t n = 0;
    while (isalnum((unsigned char)*c->at) || strchr("-_:", *c->at)) {
        if (!*c->at || n + 1 >= NAME) break;
        name[n++] = *c->at++;
    }
    name[n] = '\0';
    return n > 0;
}

static bool entity_check(struct checker *c)
{
    static const char *const ENTITIES[] = { "&amp;", "&lt;", "&gt;", "&quot;" };
    for (size_t i = 0; i < COUNT_OF(ENTITIES); i++)
        if (str_starts(c->at, ENTITIES[i])) {
            c->at += strlen(ENTITIES[i]);
            return true;
        }
    return bad(c, "a bare &");
}

/* One character of text or of a value. */
static bool character_check(struct checker *c)
{
    uint32_t code;
    if (*c->at == '&') return entity_check(c);
    const size_t used = str_utf8_next(c->at, strlen(c->at), &code);
    if (code == 0xfffd && memcmp(c->at, "\xef\xbf\xbd", 3)) return bad(c, "malformed UTF-8");
    if (code < 0x20 && code != '\n' && code != '\t') return bad(c, "a control character");
    c->at += used;
    return true;
}

static bool reference_add(struct checker *c, const char *from, size_t n)
{
    if (c->wants == IDS || n >= NAME) return bad(c, "too many references");
    snprintf(c->wanted[c->wants++], NAME, "%.*s", (int)n, from);
    return true;
}

static bool attribute_note(struct checker *c, const char *name, const char *value, size_t n)
{
    if (!strcmp(name, "id")) {
        if (c->ids == IDS || n >= NAME) return bad(c, "too many ids");
        snprintf(c->id[c->ids], NAME, "%.*s", (int)n, value);
        for (int i = 0; i < c->ids; i++)
            if (!strcmp(c->id[i], c->id[c->ids])) return bad(c, "an id twice");
        c->ids++;
    }
    if (n > 6 && !strncmp(value, "url(#", 5)) return reference_add(c, value + 5, n - 6);
    if (strcmp(name, "aria-labelledby")) return true;
    for (size_t from = 0, to; from < n; from = to + 1) {
        for (to = from; to < n && value[to] != ' ';) to++;
        if (!reference_add(c, value + from, to - from)) return false;
    }
    return true;
}

static bool attribute_check(struct checker *c)
{
    char name[NAME];
    if (!name_read(c, name)) return bad(c, "no name of an attribute");
    if (c->at[0] != '=' || c->at[1] != '"') return bad(c, "an attribute without a quoted value");
    c->at += 2;
    const char *value = c->at;
    while (*c->at && *c->at != '"')
        if (*c->at == '<' || !character_check(c)) return *c->at == '<' ? bad(c, "< in a value") : false;
    if (!*c->at) return bad(c, "a value without an end");
    c->at++;
    return attribute_note(c, name, value, (size_t)(c->at - 1 - value));
}

static bool tag_check(struct checker *c)
{
    char name[NAME];
    const bool closing = c->at[1] == '/';
    c->at += closing ? 2 : 1;
    if (!name_read(c, name)) return bad(c, "a bare <");
    if (closing) {
        if (*c->at++ != '>') return bad(c, "an end tag with more in it");
        if (!c->depth || strcmp(c->open[--c->depth], name)) return bad(c, "an end tag for nothing");
        return true;
    }
    while (isspace((unsigned char)*c->at)) {
        while (isspace((unsigned char)*c->at)) c->at++;
        if (*c->at != '/' && *c->at != '>' && !attribute_check(c)) return false;
    }
    const bool empty = *c->at == '/';
    if (empty) c->at++;
    if (*c->at++ != '>') return bad(c, "a tag without an end");
    if (empty) return true;
    if (c->depth == DEPTH) return bad(c, "too deep");
    snprintf(c->open[c->depth++], NAME, "%s", name);
    return true;
}

bool xml_is_well_formed(const char *text, char *why, size_t size)
{
    static const char DOCTYPE[] = "<!DOCTYPE html>\n";
    struct checker c = { .at = text, .why = why, .size = size };
    int roots = 0;
    if (str_starts(text, DOCTYPE)) c.at += strlen(DOCTYPE);
    while (*c.at) {
        if (*c.at == '<') {
            roots += c.depth == 0;
            if (!tag_check(&c)) return false;
        } else {
            if (!c.depth && !isspace((unsigned char)*c.at)) return bad(&c, "text outside");
            if (!character_check(&c)) return false;
        }
    }
    if (c.depth || roots != 1) return bad(&c, "not one element");
    for (int i = 0; i < c.wants; i++) {
        bool found = false;
        for (int k = 0; k < c.ids; k++) found = found || !strcmp(c.wanted[i], c.id[k]);
        if (found) continue;
        snprintf(why, size, "no element has the id '%s'", c.wanted[i]);
        return false;
    }
    return true;
}
