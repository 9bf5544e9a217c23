/* The body of a request to the server, for the endpoint that the first byte chooses: refused with a message,
 * or a request within the limits. Its stop strings then cut the body itself, in pieces that the input
 * chooses. */
#include <stdlib.h>
#include <string.h>

#include "advisor/serve/parts.h"

static void check_refusal(const struct refusal *no)
{
    if (no->status < 400 || no->status > 599 || !no->code || !no->message[0]) abort();
    json_t *o = refusal_json(no);
    char *line = json_line(o);
    if (!line) abort(); /* also messages that quote the client are valid text */
    free(line);
    json_decref(o);
}

static void check_ask(const struct ask *a)
{
    const bool generates = a->endpoint == ENDPOINT_COMPLETIONS || a->endpoint == ENDPOINT_CHAT;
    if (a->stops < 0 || a->stops > STOPS_MOST || a->choices < 1 || a->choices > CHOICES_MOST) abort();
    if (!(a->temperature >= 0 && a->temperature <= 100) || !(a->top_p >= 0 && a->top_p <= 1)) abort();
    if (a->top < -1 || a->top > SERVING_TOP_MOST || a->most == 0 || a->least < 0) abort();
    if (generates && !a->prompt == !a->messages) abort();
    for (int i = 0; i < a->stops; i++)
        if (!a->stop[i][0]) abort();
}

/* Whatever the pieces are, the text before a stop string leaves, and nothing of it or behind it. */
static void use_stops(const struct ask *a, const char *text, size_t n)
{
    struct held whole = { .stop = a->stop, .stops = (int)a->stops }, cut = whole;
    struct str one = { 0 }, pieces = { 0 };
    held_push(&whole, text, n, &one);
    held_finish(&whole, &one);
    for (size_t at = 0, take; at < n; at += take) {
        take = MIN(n - at, 1 + (size_t)((unsigned char)text[at] % 5));
        held_push(&cut, text + at, take, &pieces);
    }
    held_finish(&cut, &pieces);
    if (whole.stopped != cut.stopped || one.len != pieces.len ||
        memcmp(str_text(&one), str_text(&pieces), one.len))
        abort();
    held_free(&whole);
    held_free(&cut);
    str_free(&one);
    str_free(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ask a;
    struct refusal no = { 0 };
    if (!size) return 0;
    const char *body = (const char *)data + 1;
    if (!ask_parse(&a, (enum endpoint)(data[0] % 4), body, size - 1, &no)) {
        check_refusal(&no);
    } else {
        check_ask(&a);
        use_stops(&a, body, size - 1);
    }
    ask_free(&a);
    return 0;
}
