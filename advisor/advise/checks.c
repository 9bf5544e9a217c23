/* advisor/advise/checks.c - the command that checks an advice by measurement. */
#include "advisor/advise/adviser.h"

#include <stdio.h>
#include <string.h>

/* The candidate's figures are of GPU programs, so such a program has to check it, with a file that qdyno
 * makes. */
static void advice_set_gpu_check(struct advice *v, const char *path)
{
    struct str s = { 0 };
    const char *format = config_text(&v->config, KNOB_FORMAT);
    const struct format *f = format_find(format);
    const bool as_it_is = !strcmp(format, "file");
    if (f && f->ggml_type >= FORMAT_OWN_TYPES) {
        str_printf(&s, "vllm bench latency --model MODEL --quantization fp8 (from the original weights)");
    } else {
        if (!as_it_is) {
            str_append(&s, "qdyno quantize ");
            word_append(&s, path);
            str_printf(&s, " %s.gguf -R %s && ", format, format);
        }
        str_append(&s, "llama-bench -ngl 99 -m ");
        if (as_it_is)
            word_append(&s, path);
        else
            str_printf(&s, "%s.gguf", format);
        if (v->config.given[KNOB_CTK])
            str_printf(&s, " -fa 1 -ctk %s -ctv %s", config_text(&v->config, KNOB_CTK),
                       config_text(&v->config, KNOB_CTV));
        str_printf(&s, " -p 512 -n 64 -d %d", v->prediction.depth);
    }
    snprintf(v->check, sizeof v->check, "%s", str_text(&s));
    str_free(&s);
}

void advice_ab_command(struct str *out, const char *model_path, const char *a, const char *b,
                       const char *workload)
{
    const char *const word[] = { model_path, a, b, workload };
    const char *const before[] = { "qdyno ab -m ", " ", " ", " -w " };
    for (size_t i = 0; i < COUNT_OF(word); i++) {
        str_append(out, before[i]);
        word_append(out, word[i]);
    }
}

void advice_confirm_command(struct str *out, const char *model_path, const char *current, const char *line,
                            const char *workload)
{
    advice_ab_command(out, model_path, current, line, workload);
    str_append(out, " --estimand quiet --wait-quiet 1h");
}

void advice_set_check(struct advice *v, const char *path)
{
    struct str s = { 0 };
    const bool is_reference = !strcmp(v->line, "default");
    if (v->prediction.on_gpu) {
        advice_set_gpu_check(v, path);
        return;
    }
    str_append(&s, is_reference ? "qdyno bench -m " : "qdyno ab -m ");
    word_append(&s, path);
    if (is_reference) {
        str_printf(&s, " -n 64 -d %d", v->prediction.depth);
    } else {
        const int depth = v->prediction.depth;
        snprintf(v->workload, sizeof v->workload, depth ? CONFIRM_WORKLOAD "@d%d" : CONFIRM_WORKLOAD, depth);
        str_append(&s, " default ");
        word_append(&s, v->line);
        str_printf(&s, " -w %s", v->workload);
    }
    snprintf(v->check, sizeof(v->check), "%s", str_text(&s));
    str_free(&s);
}
