/* qdyno logits: the raw logits after each given token id, bit for bit, to compare engines. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "advisor/run/run.h"
#include "engine/model/model.h"
#include "tui/cli/commands.h"

/* clang-format off */
const struct cli_flag FLAGS_LOGITS[] = {
    FLAG_MODEL_ROW,
    { .name = "--ids", .value = "1,2,3", .help = "token ids" },
    { .name = "--out", .value = "FILE", .help = "file for the logits; - is standard output" },
    FLAG_CONFIG_ROW,
    { .name = NULL },
};
/* clang-format on */

/* Writes little-endian floats; big-endian machines swap the bytes. */
static bool write_floats(FILE *out, const float *x, int64_t n)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    return fwrite(x, sizeof *x, (size_t)n, out) == (size_t)n;
#else
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits = __builtin_bswap32(bits);
        if (fwrite(&bits, sizeof bits, 1, out) != 1) return false;
    }
    return true;
#endif
}

/* Processes chunks of 64 ids, so that the memory for logits does not grow with the number of ids. */
static enum err_code write_rows(struct model *m, const struct token_list *ids, FILE *out, const char *path,
                                struct err *why)
{
    enum { CHUNK = 64 };
    struct batch_row rows[CHUNK];
    int64_t vocab = model_shape(m)->vocab;
    for (int64_t at = 0; at < ids->n; at += CHUNK) {
        int n = (int)MIN(ids->n - at, (int64_t)CHUNK);
        for (int i = 0; i < n; i++)
            rows[i] = (struct batch_row){ .token = ids->ids[at + i],
                                          .pos = (int32_t)(at + i),
                                          .logits = true };
        enum err_code rc = model_forward(m, rows, n, why);
        if (!rc) rc = gguf_check_unchanged(model_gguf(m), why);
        if (rc) return rc;
        for (int i = 0; i < n; i++)
            if (!write_floats(out, model_logits(m, i), vocab))
                return err_set(why, err_of_errno(errno), "cannot write the logits to '%s': %s", path,
                               strerror(errno));
    }
    return ERR_OK;
}

static enum err_code write_file(struct model *m, const struct token_list *ids, const char *path,
                                struct err *why)
{
    if (!strcmp(path, "-")) return write_rows(m, ids, stdout, "standard output", why);
    struct atomic_file f;
    enum err_code rc = atomic_file_open(&f, path, why);
    if (rc) return rc;
    if ((rc = write_rows(m, ids, f.stream, path, why))) {
        atomic_file_abort(&f);
        return rc;
    }
    return atomic_file_commit(&f, why);
}

int command_logits(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct token_list ids = { 0 };
    struct config c;
    struct model *m = NULL;
    char *path = NULL;
    const char *list = args_text(a, "--ids", NULL), *out = args_text(a, "--out", NULL);
    enum err_code rc = list && out ? ERR_OK : err_set(&why, ERR_USAGE, "expected --ids 1,2,3 and --out FILE");
    if (!rc) rc = ids_parse(&ids, list, &why);
    if (!rc) rc = cli_config(&c, a, args_text(a, "-C", NULL), &why);
    if (!rc) rc = cli_config_model(&path, a, &c, &why);
    const int64_t ctx = rc ? 0 : config_int(&c, KNOB_CTX);
    if (!rc && ctx && ctx < ids.n)
        rc = err_set(&why, ERR_USAGE, "%lld token ids do not fit into ctx=%lld: expected ctx=%lld or more",
                     (long long)ids.n, (long long)ctx, (long long)ids.n);
    if (!rc) {
        /* More context than ids changes the logits of models that choose their RoPE factors by it. */
        rc = cli_model_open(&m, g, path, &c, (int)(ctx ? ctx : ids.n), &why);
    }
    if (!rc) rc = write_file(m, &ids, out, &why);
    int status = rc ? cli_fail(a, &why) : EXIT_DONE;
    if (!rc)
        cli_note(g, "%lld rows of %lld logits written to %s", (long long)ids.n,
                 (long long)model_shape(m)->vocab, out);
    model_close(m);
    token_list_free(&ids);
    free(path);
    return status;
}
