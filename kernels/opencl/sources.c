/* The OpenCL C files of this folder, embedded in the program (TEXTS: the folder, from CMake). */
#include "kernels/opencl/opencl.h"
#include "kernels/opencl/sources.h"

/* In the order of enum opencl_source. */
#define EACH_TEXT(X)                                                                                         \
    X(formats) X(dot) X(products) X(integers) X(vectors) X(kv) X(attention) X(top) X(ceilings)

#define TAKE_IN(name)                                                                                        \
    __asm__(".pushsection .rodata\n"                                                                         \
            "opencl_" #name "_begin: .incbin \"" TEXTS #name ".cl\"\n"                                       \
            "opencl_" #name "_end:\n.byte 0\n"                                                               \
            ".popsection\n");                                                                                \
    extern const char opencl_##name##_begin[] __attribute__((visibility("hidden")));                         \
    extern const char opencl_##name##_end[] __attribute__((visibility("hidden")));
EACH_TEXT(TAKE_IN)

#define ROW(name) { #name, opencl_##name##_begin, opencl_##name##_end },
const struct opencl_text OPENCL_TEXTS[SOURCE_COUNT] = { EACH_TEXT(ROW) };
