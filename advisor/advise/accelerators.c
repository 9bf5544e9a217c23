/* advisor/advise/accelerators.c - the table of processors for which qdyno has no code. */
#include "advisor/advise/accelerators.h"

#include <string.h>

/* Sources: Google Cloud's TPU pages and the XLA documentation; Intel's Gaudi documentation (supported data
 * types, bucketing of shapes); OpenVINO's page on its NPU plug-in; AMD's Ryzen AI documentation. */
static const struct accelerator ACCELERATORS[] = {
    { .vendor = "google",
      .name = "a TPU",
      .formats = { "f32", "bf16", "int8" },
      .advice = "use bf16 weights, or int8 with a scale for each row; pad prompts to a few fixed lengths",
      .reason =
          "its matrix units multiply bf16 and int8, not f16 or blocks of 4 bits; programs are compiled for "
          "static shapes, and each new length costs a compilation of seconds to minutes",
      .evidence = "a TPU in the machine's description" },
    { .vendor = "habana",
      .name = "a Gaudi",
      .formats = { "f32", "bf16", "fp8_e4m3", "u4_g128" },
      .advice =
          "use bf16, or FP8 (fp8_e4m3) with measured scales; GPTQ or AWQ only to save memory; warm up the lengths "
          "and batch sizes in use",
      .reason =
          "its matrix engine multiplies bf16 and FP8; 4-bit groups are converted to bf16 first, and GGUF blocks "
          "are not read; graphs are recorded for each padded shape",
      .evidence = "a Gaudi in the machine's description" },
    { .vendor = "intel npu",
      .name = "an NPU",
      .formats = { "f16", "int8", "u4_g128" },
      .advice =
          "use the NPU for prompts and for low power, with int8 or symmetric 4-bit groups of 128 or whole rows; "
          "decode where it is fastest",
      .reason =
          "it reads the same memory as the processor, so one sequence decodes no faster; its programs need a "
          "fixed context length and batch size 1",
      .evidence = "an NPU in the machine's description; the memory is shared" },
    { .vendor = "amd npu",
      .name = "an NPU",
      .formats = { "bf16", "int8", "u4_g128" },
      .advice =
          "use the NPU for prompts and for low power, with 4-bit groups of 128 (AWQ) and bf16 activations; decode "
          "where it is fastest",
      .reason =
          "it reads the same memory as the processor, so one sequence decodes no faster; its programs run only "
          "models that were compiled for it, with a fixed context length",
      .evidence = "an NPU in the machine's description; the memory is shared" },
};

const struct accelerator *accelerator_of(const struct machine *m)
{
    for (size_t i = 0; i < COUNT_OF(ACCELERATORS); i++)
        for (int k = 0; k < m->gpus; k++)
            if (!strcmp(m->gpu[k].vendor, ACCELERATORS[i].vendor)) return &ACCELERATORS[i];
    return NULL;
}

bool accelerator_reads(const struct accelerator *x, const struct format *f)
{
    for (int i = 0; i < (int)COUNT_OF(x->formats) && x->formats[i]; i++)
        if (f == format_find(x->formats[i])) return true;
    return false;
}
