/* Perplexity, defined as in llama.cpp, so that results agree to the last digit. */
#include <stdlib.h>

#include "engine/eval/statistics.h"
#include "engine/eval/windows.h"
#include "engine/config/config.h"
#include "engine/model/model.h"
#include "engine/arch/arch.h"

const char EVAL_TEXT[] = "text/held-out.txt";

/* Run one window through the model and score its second half. */
static enum err_code nll_score_window(struct nll_sums *s, struct model *m, const int32_t *ids, int ctx,
                                      struct batch_row *rows, struct err *why)
{
    const int64_t vocab = model_shape(m)->vocab;
    const int batch = (int)config_int(model_config(m), KNOB_BATCH), most = windows_most_scored(m, 1);
    int n, scored;
    model_truncate(m, 0, 0);
    for (int at = 0; (n = windows_piece(rows, ids, ctx, at, batch, most, &scored)) > 0; at += n) {
        enum err_code rc = model_forward(m, rows, n, why);
        if (rc) return rc;
        for (int i = 0, row = 0; i < n; i++)
            if (rows[i].logits) nll_add(s, position_surprise(model_logits(m, row++), vocab, ids[at + i + 1]));
    }
    nll_close_window(s, windows_scored(ctx));
    return ERR_OK;
}

enum err_code eval_perplexity(struct perplexity *out, struct model *m, const char *text, size_t n, int ctx,
                              int64_t max_chunks, eval_progress_fn *progress, void *arg, struct err *why)
{
    const struct eval_request r = { .text = text, .n = n, .ctx = ctx, .max_chunks = max_chunks };
    struct nll_sums s = { 0 };
    struct windows w;
    struct batch_row *rows = NULL;
    enum err_code rc = windows_cut(&w, m, &r, why);
    if (!rc && !(rows = malloc((size_t)ctx * sizeof *rows))) rc = err_set(why, ERR_NOMEM, "out of memory");
    for (int64_t c = 0; c < w.count && !rc; c++) {
        rc = nll_score_window(&s, m, windows_get(&w, c), ctx, rows, why);
        if (!rc && progress && !progress(arg, c + 1, w.count, s.nll.mean))
            rc = err_set(why, ERR_CANCELLED, "cancelled");
    }
    if (!rc) rc = gguf_check_unchanged(model_gguf(m), why);
    if (!rc) nll_finish(out, &s, windows_scored(ctx));
    model_truncate(m, 0, 0);
    windows_done(&w);
    free(rows);
    return rc;
}
