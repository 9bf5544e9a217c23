/* METHODS: the table of quantization methods, and lookup in it. */
#include "engine/quant/methods.h"
#include "engine/quant/plugin.h"

#include <strings.h>

static const struct method *const METHODS[] = {
    &METHOD_RTN,  &METHOD_GGUF,     &METHOD_HQQ,          &METHOD_QUANTO,      &METHOD_NF4, &METHOD_FP4,
    &METHOD_EETQ, &METHOD_LLM_INT8, &METHOD_INT8_DYNAMIC, &METHOD_INT8_STATIC, &METHOD_FP8, &METHOD_MXFP4,
    &METHOD_TF32, &METHOD_GPTQ,     &METHOD_AWQ,          &METHOD_SMOOTHQUANT
};

size_t method_count(void)
{
    return COUNT_OF(METHODS) + plugin_count();
}

const struct method *method_at(size_t i)
{
    return i < COUNT_OF(METHODS) ? METHODS[i] : plugin_at(i - COUNT_OF(METHODS));
}

const struct method *method_find(const char *name)
{
    for (size_t i = 0; i < method_count(); i++)
        if (!strcasecmp(method_at(i)->name, name)) return method_at(i);
    return NULL;
}

const char *method_name(const struct method *m)
{
    return m->name;
}

const struct param *method_params(const struct method *m)
{
    return m->params;
}

const char *method_formats(const struct method *m)
{
    return m->formats;
}

const char *method_shorthand(const struct method *m)
{
    return m->shorthand;
}

bool method_decides_format(const struct method *m)
{
    return m->format != NULL;
}

enum err_code method_check(const struct params *p, struct err *why)
{
    return p->method && p->method->check ? p->method->check(p, why) : ERR_OK;
}

bool method_makes(const struct method *m, const struct format *f)
{
    return m->formats ? str_has_word(m->formats, f->name) : f->encode != NULL;
}

const char *method_format(const struct params *p)
{
    if (!p->method) return NULL;
    return p->method->format ? p->method->format(p) : p->method->default_format;
}

enum calibration_need method_needs(const struct params *p)
{
    if (!p->method) return CALIBRATION_NONE;
    return p->method->needs ? p->method->needs(p) : p->method->calibration;
}
