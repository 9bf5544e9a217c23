/* A plug-in that returns weights for any format; its output depends on its input, so tests can check both. */
#include <string.h>

#include <qdyno_plugin.h>

enum { FACTOR, OFFSET, NEGATE, ROWS };

static const struct qdyno_parameter PARAMETERS[] = {
    [FACTOR] = { "factor", "what rows are multiplied by", QDYNO_REAL, -100, 100, NULL, "2" },
    [OFFSET] = { "offset", "what is added to them", QDYNO_INT, -5, 5, NULL, "0" },
    [NEGATE] = { "negate", "whether their sign changes", QDYNO_BOOL, 0, 0, NULL, "false" },
    [ROWS] = { "which", "which rows", QDYNO_CHOICE, 0, 0, "all even odd", "all" },
    { 0 },
};

static int encode(struct qdyno_rows *r)
{
    const double sign = r->value[NEGATE] ? -1 : 1;
    for (int64_t row = 0; row < r->rows; row++) {
        const int64_t which = (r->first_row + row) % 2;
        const int chosen = r->value[ROWS] == 0 || (r->value[ROWS] == 1) == (which == 0);
        for (int64_t i = 0; i < r->cols; i++) {
            const float x = r->x[row * r->cols + i], square = r->mean_square ? r->mean_square[i] : 1;
            r->weights[row * r->cols + i] = chosen ? (float)(sign * (r->value[FACTOR] * square * x +
                                                                     r->value[OFFSET]))
                                                   : x;
        }
    }
    return r->codes || r->scales || r->zeros || r->bits; /* these must be NULL or 0 for QDYNO_WEIGHTS */
}

const struct qdyno_plugin *qdyno_plugin_get(void)
{
    static const struct qdyno_plugin PLUGIN = { .version = QDYNO_PLUGIN_VERSION,
                                                .name = "other",
                                                .help = "other weights",
                                                .answer = QDYNO_WEIGHTS,
                                                .calibration = QDYNO_CALIBRATION_OPTIONAL,
                                                .parameters = PARAMETERS,
                                                .encode = encode };
    return &PLUGIN;
}
