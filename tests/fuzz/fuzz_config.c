/* Config lines come from people, files and networks: whatever they hold, parsing ends in a config whose own
 * line parses to the same config, or in a message. */
#include <stdlib.h>
#include <string.h>

#include "engine/config/config.h"
#include "tests/fuzz/cost.h"

static const struct cost_ceiling CEILING = { .seconds = 0.1, .seconds_per_mb = 50, .mb = 4, .mb_per_mb = 50 };

static void use(const uint8_t *data, size_t size)
{
    static struct config c, again;
    struct err why = { 0 };
    char line[4096];
    char *text = malloc(size + 1);
    if (!text) return;
    memcpy(text, data, size);
    text[size] = '\0';
    if (config_parse(&c, text, &why)) {
        if (!why.message[0]) abort();
    } else if (strlen(config_line(&c, line, sizeof line)) + 1 < sizeof line) {
        if (config_parse(&again, line, &why)) abort();
        for (int i = 0; i < KNOB_COUNT; i++)
            if (strcmp(c.value[i].text, again.value[i].text)) abort();
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return cost_run(use, data, size, &CEILING);
}
