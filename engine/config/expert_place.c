/* Where the experts of layers on a device run: the value of expert_place=. */
#include "engine/config/config_internal.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { LAYERS_MOST = 1024 };

/* The words, and what they mean as a number of layers. */
static const struct {
    const char *word;
    int layers;
} WORDS[] = { { "device", EXPERTS_WITH_LAYER }, { "host", 0 }, { "auto", EXPERTS_THAT_FIT } };

static enum err_code expert_place_parse(int *layers, const char *text, struct err *why)
{
    int n = 0;
    for (size_t i = 0; i < COUNT_OF(WORDS); i++)
        if (!strcmp(text, WORDS[i].word)) {
            *layers = WORDS[i].layers;
            return ERR_OK;
        }
    const char *at = text;
    for (; isdigit((unsigned char)*at) && n <= LAYERS_MOST; at++) n = 10 * n + (*at - '0');
    if (at == text || *at || n > LAYERS_MOST)
        return err_set(why, ERR_USAGE,
                       "expert_place=%.40s: expected device, host, auto, or a number of layers from 0 to %d",
                       text, LAYERS_MOST);
    *layers = n;
    return ERR_OK;
}

static void expert_place_text(int layers, char *buf, size_t size)
{
    snprintf(buf, size, "%d", layers);
    for (size_t i = 0; i < COUNT_OF(WORDS); i++)
        if (layers == WORDS[i].layers) snprintf(buf, size, "%s", WORDS[i].word);
}

enum err_code expert_place_check(const char *text, char *out, struct err *why)
{
    int layers;
    const enum err_code rc = expert_place_parse(&layers, text, why);
    if (!rc) expert_place_text(layers, out, CONFIG_VALUE);
    return rc;
}

int config_expert_layers(const struct config *c)
{
    int layers = EXPERTS_WITH_LAYER;
    expert_place_parse(&layers, config_text(c, KNOB_EXPERT_PLACE), NULL); /* was checked when it was set */
    return layers;
}
