/* advisor/advise/limits.c - the limits of a config as a person writes them: "memory=8G,kld=0.05". */
#include <string.h>

#include "advisor/advise/advise.h"

/* "-0.5%" or "-0.005", a loss, as 0.005. */
static bool read_loss(double *out, const char *text)
{
    char number[32];
    const size_t n = strlen(text);
    const bool percent = n && text[n - 1] == '%';
    if (n >= sizeof number) return false;
    snprintf(number, sizeof number, "%.*s", (int)(n - percent), text);
    if (!str_to_double(number, out)) return false;
    *out = -*out / (percent ? 100 : 1);
    return *out > 0 && *out < 1;
}

enum err_code limits_parse(const char *text, int64_t *memory_bytes, double *kld, double *accuracy,
                           struct err *why)
{
    char copy[256], *rest = NULL;
    bool known = str_put(copy, sizeof copy, text);
    for (char *word = strtok_r(copy, ",", &rest); word && known; word = strtok_r(NULL, ",", &rest)) {
        const bool is_memory = str_starts(word, "memory=") && str_to_bytes(word + 7, memory_bytes) &&
                               *memory_bytes > 0;
        const bool is_kld = str_starts(word, "kld=") && str_to_double(word + 4, kld) && *kld > 0;
        const bool is_accuracy = accuracy && str_starts(word, "accuracy=") && read_loss(accuracy, word + 9);
        known = is_memory || is_kld || is_accuracy;
    }
    if (known) return ERR_OK;
    return err_set(why, ERR_USAGE,
                   "--limit %.300s: expected memory=BYTES or kld=NATS%s, e.g. memory=8G,kld=0.05%s", text,
                   accuracy ? " or accuracy=-SHARE" : "", accuracy ? ",accuracy=-0.5%" : "");
}
