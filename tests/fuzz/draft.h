/* tests/fuzz/draft.h - a GGUF file as a list of keys and tensors that can be changed one at a time and
 * written again, so that a fuzzer reaches the code behind the reader: a file with one wrong number instead of
 * noise. */
#ifndef QDYNO_TESTS_FUZZ_DRAFT_H
#define QDYNO_TESTS_FUZZ_DRAFT_H

#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "tests/fuzz/script.h"

enum { DRAFT_KEYS = 96, DRAFT_TENSORS = 96, DRAFT_DIMS = 4, DRAFT_BYTES = 1 << 20 };

struct draft_key {
    struct str name;
    uint32_t type, element; /* as stored; element: of an array */
    uint64_t count;         /* elements of an array as the file will say; 1 otherwise */
    struct str value;       /* the bytes of the value, of an array those of its elements */
};

struct draft_tensor {
    struct str name;
    uint32_t dims, type;
    uint64_t shape[DRAFT_DIMS];
    uint64_t shift; /* added to the right offset */
    struct str data;
};

struct draft {
    struct draft_key key[DRAFT_KEYS];
    struct draft_tensor tensor[DRAFT_TENSORS];
    size_t keys, tensors;
};

/* Read a file of version 2 or 3. False: it is none, or larger than a draft; *d is then to be freed, too. */
bool draft_read(struct draft *d, const uint8_t *bytes, size_t size);
/* Append the file to *out. */
void draft_write(const struct draft *d, struct str *out);
void draft_free(struct draft *d);

/* The key of that name; NULL: there is none. */
struct draft_key *draft_find(struct draft *d, const char *name);
/* Add a key; NULL: there is no room. `value` of a scalar: n bytes. */
struct draft_key *draft_add(struct draft *d, const char *name, uint32_t type, const void *value, size_t n);
void draft_add_u32(struct draft *d, const char *name, uint32_t value);
void draft_add_f32(struct draft *d, const char *name, float value);
void draft_add_text(struct draft *d, const char *name, const char *text);
/* Append a string to the value of a key of type string or of an array of strings. */
void draft_put_text(struct draft_key *k, const char *text, size_t n);
/* Give a tensor data of the size that its shape and type say, in a pattern of finite numbers. False: the size
 * is not defined or too large. */
bool draft_fill(struct draft_tensor *t, uint64_t seed);

/* Change one thing, as the script says (draft_edit.c). */
void draft_edit(struct draft *d, struct script *s);

/* A model of the architecture that the script chooses, as small as its formats allow (draft_model.c). */
void draft_model(struct draft *d, struct script *s);

#endif
