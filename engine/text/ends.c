/* Tokens that end an answer. Files name at most three of them, and often only the one that ends a document,
 * so the texts that model families use for the end of a turn are known here. Many files type these tokens as
 * normal or user-defined by mistake; then a prompt would cut them into characters, a message could write
 * them, and an answer would go on behind them. Their type becomes control, as in llama.cpp. */
#include <string.h>

#include "engine/text/text_internal.h"
#include "kernels/kernels.h"

static const char *const TEXTS[] = {
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<end_of_utterance>",
    "<|END_OF_TURN_TOKEN|>",
    "<\xef\xbd\x9c"
    "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
    "[e~[",
    "<|flush|>",
    "<|calls|>",
};

static bool is_end_text(struct gguf_string text)
{
    for (size_t i = 0; i < COUNT_OF(TEXTS); i++)
        if (gguf_string_is(text, TEXTS[i])) return true;
    return false;
}

void vocab_type_ends(struct vocab *v)
{
    for (int32_t i = 0; i < v->n; i++) {
        const bool text = v->types[i] == TOKEN_NORMAL || v->types[i] == TOKEN_USER_DEFINED ||
                          v->types[i] == TOKEN_UNDEFINED;
        if (text && is_end_text(v->texts[i])) v->types[i] = TOKEN_CONTROL;
    }
}

bool vocab_ends(const struct vocab *v, int32_t id)
{
    for (int i = 0; i < v->end_count; i++)
        if (v->ends[i] == id) return true;
    return false;
}

static void add_end(struct vocab *v, double id)
{
    if (id >= 0 && id < v->n && !vocab_ends(v, (int32_t)id) && v->end_count < ENDS_MOST)
        v->ends[v->end_count++] = (int32_t)id;
}

void vocab_find_ends(struct vocab *v, const struct gguf *g)
{
    static const char *const KEYS[] = { "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id" };
    const struct gguf_kv *own = gguf_kv_find(g, OWN_ENDS);
    v->end_count = 0;
    add_end(v, v->eos);
    for (size_t i = 0; i < COUNT_OF(KEYS); i++) add_end(v, (double)gguf_get_int(g, KEYS[i], -1));
    for (uint64_t i = 0; own && own->type == GGUF_ARRAY && own->element != GGUF_STRING && i < own->count; i++)
        add_end(v, gguf_kv_num(own, i));
    /* where a turn has several parts, <|end|> ends a part only */
    const bool parts = (vocab_control(v, "<|return|>") >= 0 && vocab_control(v, "<|call|>") >= 0) ||
                       (vocab_control(v, "<|flush|>") >= 0 && vocab_control(v, "<|calls|>") >= 0);
    for (size_t i = 0; i < COUNT_OF(TEXTS); i++)
        if (!parts || strcmp(TEXTS[i], "<|end|>")) add_end(v, vocab_control(v, TEXTS[i]));
}
