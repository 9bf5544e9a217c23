/* libFuzzer's own changes of bytes rarely leave a model file readable. Half of the changes are therefore
 * those of draft.h, on files that can be read as a draft. */
#include "tests/fuzz/draft.h"

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    enum { SCRIPT = 64 };
    static struct draft d;
    uint8_t bytes[SCRIPT];
    uint64_t state = seed;
    for (size_t i = 0; i < SCRIPT; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
        bytes[i] = (uint8_t)(state >> 56);
    }
    struct script s = { bytes, SCRIPT };
    struct str out = { 0 };
    memset(&d, 0, sizeof d);
    if (seed % 2 && draft_read(&d, data, size)) {
        for (size_t edits = 1 + script_below(&s, 3); edits; edits--) draft_edit(&d, &s);
        draft_write(&d, &out);
    }
    draft_free(&d);
    const size_t n = out.len;
    if (n && n <= most) memcpy(data, out.data, n);
    str_free(&out);
    return n && n <= most ? n : LLVMFuzzerMutate(data, size, most);
}
