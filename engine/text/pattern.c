#include "engine/text/pattern.h"

/* What matching one piece of text may cost: backtracking steps, and memory of the interpreter in KiB. */
enum { STEPS_MOST = 10000000, HEAP_KIB_MOST = 256 << 10 };

enum err_code pattern_compile(pcre2_code **out, struct gguf_string pattern, const char *who,
                              enum err_code wrong, struct err *why)
{
    int code;
    PCRE2_SIZE at;
    *out = pcre2_compile((PCRE2_SPTR)pattern.data, pattern.len,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
    if (!*out) {
        PCRE2_UCHAR text[128];
        pcre2_get_error_message(code, text, sizeof text);
        return err_set(why, wrong, "%s: %s at %zu", who, (char *)text, at);
    }
    pcre2_jit_compile(*out,
                      PCRE2_JIT_COMPLETE); /* without JIT the same code is interpreted: slower, same result */
    return ERR_OK;
}

bool matcher_open(struct matcher *m)
{
    m->data = pcre2_match_data_create(1, NULL);
    m->limits = pcre2_match_context_create(NULL);
    if (!m->data || !m->limits) return false;
    pcre2_set_match_limit(m->limits, STEPS_MOST);
    pcre2_set_depth_limit(m->limits, STEPS_MOST);
    pcre2_set_heap_limit(m->limits, HEAP_KIB_MOST);
    return true;
}

void matcher_close(struct matcher *m)
{
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->limits);
}

bool pattern_is_limit(int error)
{
    return error == PCRE2_ERROR_MATCHLIMIT || error == PCRE2_ERROR_DEPTHLIMIT ||
           error == PCRE2_ERROR_HEAPLIMIT || error == PCRE2_ERROR_JIT_STACKLIMIT;
}
