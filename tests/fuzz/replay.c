/* Stands in for libFuzzer: every file of a folder goes through LLVMFuzzerTestOneInput as it is, then with
 * seeded damage (bytes changed, cut off, doubled). Finds what crashes at once; the long search is ./dev fuzz.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_LIMIT = 1 << 20 };

static uint64_t next_word(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
    return *state >> 33;
}

/* Exactly sized on the heap, so that a sanitizer sees a read one byte beyond. */
static void feed(const char *bytes, size_t n)
{
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy) abort();
    memcpy(copy, bytes, n);
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
}

static void feed_damaged(const char *bytes, size_t n, uint64_t *state)
{
    char *copy = malloc(2 * n + 1);
    if (!copy) abort();
    memcpy(copy, bytes, n);
    size_t size = n;
    for (uint64_t hits = 1 + next_word(state) % 4; hits && size; hits--) {
        size_t at = next_word(state) % size;
        switch (next_word(state) % 4) {
        case 0: copy[at] = (char)next_word(state); break;
        case 1: copy[at] ^= (char)(1 << next_word(state) % 8); break;
        case 2: size = at; break;
        default: memset(copy + at, next_word(state) % 2 ? 0xFF : 0, size - at < 8 ? size - at : 8);
        }
    }
    if (size == n && next_word(state) % 8 == 0) {
        memcpy(copy + n, bytes, n);
        size = 2 * n;
    }
    feed(copy, size);
    free(copy);
}

int main(int argc, char **argv)
{
    int64_t copies = 0;
    DIR *folder = argc == 3 && str_to_i64(argv[2], &copies) && copies >= 0 ? opendir(argv[1]) : NULL;
    if (!folder) {
        fprintf(stderr, "usage: %s FOLDER COPIES (a readable folder; damaged copies of each file)\n",
                argv[0]);
        return 1;
    }
    int files = 0;
    for (struct dirent *e; (e = readdir(folder));) {
        if (e->d_name[0] == '.') continue;
        struct str path = { 0 };
        struct err why;
        char *bytes;
        size_t n;
        str_printf(&path, "%s/%s", argv[1], e->d_name);
        if (file_read(&bytes, &n, str_text(&path), INPUT_LIMIT, &why)) {
            fprintf(stderr, "%s\n", why.message);
            return 1;
        }
        uint64_t state = 1 + (uint64_t)n;
        feed(bytes, n);
        for (int64_t i = 0; i < copies; i++) feed_damaged(bytes, n, &state);
        free(bytes);
        str_free(&path);
        files++;
    }
    closedir(folder);
    printf("%d inputs, each with %lld damaged copies\n", files, (long long)copies);
    return files ? 0 : 1;
}
