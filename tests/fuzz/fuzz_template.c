/* Chat templates come with downloaded models: whatever the text is, it is refused with a message that names a
 * line, or rendering it ends with a text, or with a message, within the limits. */
#include <stdlib.h>
#include <string.h>

#include "engine/template/template.h"
#include "tests/fuzz/cost.h"

/* A template may take twenty million steps and 256 MiB. */
static const struct cost_ceiling CEILING = { .seconds = 20, .seconds_per_mb = 20, .mb = 700 };

static json_t *conversation(void)
{
    static json_t *messages;
    if (!messages)
        messages = json_pack("[{s:s, s:s}, {s:s, s:s}, {s:s, s:[{s:s, s:s}]}]", "role", "system", "content",
                             "Be brief.", "role", "user", "content",
                             "Gr\xc3\xb6\xc3\x9f"
                             "e <b> \"q\" <|im_end|>",
                             "role", "assistant", "content", "type", "text", "text", " Hi\n");
    return messages;
}

static void use(const uint8_t *data, size_t size)
{
    struct err why = { 0 };
    struct template *t;
    struct rendered out;
    const struct template_input in = { .messages = conversation(),
                                       .tools = conversation(),
                                       .add_generation_prompt = true,
                                       .bos_token = "<s>",
                                       .now = 1 };
    enum err_code rc = template_open(&t, (const char *)data, size, "T", &why);
    if (rc && (t || !strstr(why.message, rc == ERR_FORMAT ? "T" : ""))) abort();
    if (rc) return;
    rc = template_render(t, &in, &out, &why);
    if (rc ? !why.message[0] || out.text.data != NULL : out.text.len != out.from_message.len) abort();
    rendered_free(&out);
    template_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    conversation();
    return cost_run(use, data, size, &CEILING);
}
