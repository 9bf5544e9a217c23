/* A plug-in whose parameter selects whether it works or how it misbehaves in encode. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <qdyno_plugin.h>

enum {
    WORK,
    CRASH,
    PAST,
    HANG,
    EXIT,
    FAIL,
    MUTE,
    NAN_SCALE,
    HUGE_SCALE,
    CODE,
    PRINT,
    LATE,
    PAINT,
    FLOOD,
    HUNGRY
};

static const struct qdyno_parameter PARAMETERS[] = {
    { .name = "mood",
      .help = "what it does",
      .kind = QDYNO_CHOICE,
      .choices = "work crash past hang exit fail mute nan huge code print late paint flood hungry",
      .otherwise = "work" },
    { .name = NULL },
};

/* Encode the sign of each weight, times 0.75. */
static void work_fp8(struct qdyno_rows *r)
{
    for (int64_t i = 0; i < r->rows * r->cols; i++) r->codes[i] = r->x[i] < 0 ? 0xb8 : 0x38;
    for (int64_t row = 0; row < r->rows; row++) r->scales[row] = 0.75f;
}

/* Symmetric range up to the largest weight. */
static void work(struct qdyno_rows *r)
{
    for (int64_t g = 0; g < r->rows * r->cols / r->group; g++) {
        const float *x = r->x + g * r->group;
        float most = 0;
        for (int64_t i = 0; i < r->group; i++) most = fmaxf(most, fabsf(x[i]));
        const int half = (1 << (r->bits - 1)) - 1;
        r->scales[g] = most > 0 ? most / (float)half : 1;
        if (r->zeros) r->zeros[g] = (float)half;
        for (int64_t i = 0; i < r->group; i++) {
            const int code = (int)lrintf(x[i] / r->scales[g]);
            r->codes[g * r->group + i] = (uint8_t)(r->zeros ? code + half : code);
        }
    }
}

static int encode(struct qdyno_rows *r)
{
    if (!strcmp(r->format, "fp8_e4m3"))
        work_fp8(r);
    else
        work(r);
    switch ((int)r->value[0]) {
    case CRASH: raise(SIGSEGV); break;
    case PAST: memset(r->codes, 1, (size_t)(r->rows * r->cols) + 1); break;
    case HANG:
        for (;;) pause();
    case EXIT: _exit(0);
    case FAIL: snprintf(r->error, r->error_size, "not in the mood for %s", r->format); return 7;
    case HUNGRY: snprintf(r->error, r->error_size, "no memory for a table"); return ENOMEM;
    case MUTE: return 1;
    case NAN_SCALE: r->scales[r->rows * r->cols / r->group - 1] = NAN; break;
    case HUGE_SCALE: r->scales[0] = 1e30f; break;
    case CODE: r->codes[0] = 255; break;
    case PRINT:
        printf("a remark of %s\n", r->tensor);
        fflush(stdout);
        break;
    case PAINT: fprintf(stderr, "\033]0;owned\a\033[31mred\xe2\x80\xae\r\nno end"); break;
    case FLOOD:
        for (int i = 0; i < 100000; i++)
            fputs("the same line again and again, longer than any screen\n", stderr);
        break;
    case LATE: usleep(50000); break;
    default: break;
    }
    return 0;
}

const struct qdyno_plugin *qdyno_plugin_get(void)
{
    static const struct qdyno_plugin PLUGIN = { .version = QDYNO_PLUGIN_VERSION,
                                                .name = "moody",
                                                .help = "works or misbehaves as its parameter says",
                                                .good = "tests",
                                                .formats = "u4_g64 int8 fp8_e4m3",
                                                .answer = QDYNO_CODES,
                                                .parameters = PARAMETERS,
                                                .encode = encode };
    return &PLUGIN;
}
