/* Chat templates that are built in, for models whose file has none. Each is written from the public
 * description of its format.
 *
 * Every template begins with bos_token, which chat_open sets only where the file's tokenizer begins texts
 * with it, so that there is exactly one BOS where the model was trained with one. A turn of the model ends
 * with the token that the format has for it; where it has none, with eos_token. */
#include <stdio.h>
#include <string.h>

#include "engine/chat/chat.h"

#define GENERATION(text) "{% if add_generation_prompt %}" text "{% endif %}"
/* `system` gets the text of a first message of the system, `rest` the messages after it. */
#define SPLIT_SYSTEM                                                                                                 \
    "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set rest = messages[1:] %}" \
    "{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}"

const struct chat_template_row CHAT_TEMPLATES[] = {
    { "chatml", "Qwen, SmolLM, Yi, Hermes and most fine-tuned models", "<|im_start|>",
      "{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
      "{% endfor %}" GENERATION("{{ '<|im_start|>assistant\n' }}") },
    { "llama3", "Llama 3, 3.1, 3.2, 3.3", "<|start_header_id|>",
      "{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>\n\n' + "
      "m['content'] | trim + '<|eot_id|>' }}{% endfor %}" GENERATION(
          "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}") },
    { "gemma", "Gemma 1, 2, 3", "<start_of_turn>",
      "{{ bos_token }}" SPLIT_SYSTEM "{% for m in rest %}"
      "{{ '<start_of_turn>' + ('model' if m['role'] == 'assistant' else m['role']) + '\n' }}"
      "{% if loop.first and system %}{{ system + '\n\n' }}{% endif %}"
      "{{ m['content'] | trim + '<end_of_turn>\n' }}{% endfor %}" GENERATION(
          "{{ '<start_of_turn>model\n' }}") },
    { "phi3", "Phi 3 and 3.5", "<|assistant|>",
      "{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + '<|end|>\n' }}"
      "{% endfor %}" GENERATION("{{ '<|assistant|>\n' }}") },
    { "deepseek", "DeepSeek V2, V2.5, V3 and R1", "<\xef\xbd\x9cUser\xef\xbd\x9c>",
      "{{ bos_token }}" SPLIT_SYSTEM "{{ system }}{% for m in rest %}{% if m['role'] == 'user' %}"
      "{{ '<\xef\xbd\x9cUser\xef\xbd\x9c>' + m['content'] }}{% else %}"
      "{{ '<\xef\xbd\x9c"
      "Assistant\xef\xbd\x9c>' + m['content'] + eos_token }}{% endif %}{% endfor %}" GENERATION(
          "{{ '<\xef\xbd\x9c"
          "Assistant\xef\xbd\x9c>' }}") },
    { "mistral", "Mistral 7B v0.2 and later, Mixtral, Nemo", "[INST]",
      "{{ bos_token }}" SPLIT_SYSTEM "{% for m in rest %}{% if m['role'] == 'user' %}{{ '[INST] ' }}"
      "{% if loop.first and system %}{{ system + '\n\n' }}{% endif %}{{ m['content'] + '[/INST]' }}"
      "{% else %}{{ ' ' + m['content'] | trim + eos_token }}{% endif %}{% endfor %}" },
    { "llama2", "Llama 2 chat, Mistral 7B v0.1", NULL,
      SPLIT_SYSTEM
      "{% for m in rest %}{% if m['role'] == 'user' %}{{ bos_token }}{{ '[INST] ' }}"
      "{% if loop.first and system %}{{ '<<SYS>>\n' + system + '\n<</SYS>>\n\n' }}{% endif %}"
      "{{ m['content'] | trim + ' [/INST]' }}{% else %}{{ ' ' + m['content'] | trim + ' ' + eos_token }}{% endif %}"
      "{% endfor %}" },
    { "zephyr", "Zephyr, TinyLlama chat, StableLM Zephyr", NULL,
      "{{ bos_token }}{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + eos_token + '\n' }}"
      "{% endfor %}" GENERATION("{{ '<|assistant|>\n' }}") },
    { "vicuna", "Vicuna 1.1 and later", NULL,
      "{{ bos_token }}" SPLIT_SYSTEM "{% if system %}{{ system + ' ' }}{% endif %}{% for m in rest %}"
      "{% if m['role'] == 'user' %}{{ 'USER: ' + m['content'] + ' ' }}{% else %}"
      "{{ 'ASSISTANT: ' + m['content'] + eos_token }}{% endif %}{% endfor %}" GENERATION(
          "{{ 'ASSISTANT:' }}") },
    { "alpaca", "Alpaca and base models without tokens for turns", NULL,
      "{{ bos_token }}" SPLIT_SYSTEM
      "{{ system if system else 'Below is an instruction that describes a task. "
      "Write a response that appropriately completes the request.' }}{{ '\n\n' }}{% for m in rest %}"
      "{% if m['role'] == 'user' %}{{ '### Instruction:\n' + m['content'] + '\n\n' }}{% else %}"
      "{{ '### Response:\n' + m['content'] + eos_token + '\n\n' }}{% endif %}{% endfor %}" GENERATION(
          "{{ '### Response:\n' }}") },
    { NULL, NULL, NULL, NULL },
};

const struct chat_template_row *chat_template_find(const char *name)
{
    for (const struct chat_template_row *row = CHAT_TEMPLATES; row->name; row++)
        if (!strcmp(row->name, name)) return row;
    return NULL;
}

const struct chat_template_row *chat_template_guess(const struct tokenizer *t)
{
    for (const struct chat_template_row *row = CHAT_TEMPLATES; row->name; row++)
        if (row->sign && tokenizer_control(t, row->sign) >= 0) return row;
    return NULL;
}

const char *chat_template_names(char *buf, size_t size)
{
    size_t n = 0;
    *buf = '\0';
    for (const struct chat_template_row *row = CHAT_TEMPLATES; row->name && n < size; row++)
        n += (size_t)snprintf(buf + n, size - n, "%s%s", n ? ", " : "", row->name);
    return buf;
}

const char *chat_template_advice(const struct tokenizer *t, char buf[CHAT_ADVICE])
{
    char names[160];
    const struct chat_template_row *guess = t ? chat_template_guess(t) : NULL;
    chat_template_names(names, sizeof names);
    if (guess)
        snprintf(
            buf, CHAT_ADVICE,
            "add --template with a file or one of these names: %s. Most likely is --template %s, because the tokenizer has "
            "its control token %s",
            names, guess->name, guess->sign);
    else
        snprintf(
            buf, CHAT_ADVICE,
            "add --template with a file or one of these names: %s. The tokenizer has no control token of these formats, so try "
            "alpaca, which needs none",
            names);
    return buf;
}
