/* A safetensors file: 8 bytes with the length N of the header, N bytes of JSON, then the numbers of all
 * tensors without gaps. The file is untrusted: every length, shape and offset is checked against the bytes
 * that are there before it is used. */
#include "engine/import/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_MAX = 100 << 20 /* by the specification */, NAME_MAX_BYTES = 512 };

#define ST_ROW(name, bits) { #name, bits },
static const struct {
    const char *name;
    int bits;
} TYPES[ST_TYPE_COUNT] = { ST_TYPES(ST_ROW) };

const char *st_type_name(enum st_type type)
{
    return TYPES[type].name;
}

static enum err_code read_type(enum st_type *out, const char *name, struct err *why)
{
    for (int i = 0; i < ST_TYPE_COUNT; i++)
        if (name && !strcmp(TYPES[i].name, name)) {
            *out = (enum st_type)i;
            return ERR_OK;
        }
    return err_set(why, ERR_FORMAT, "numbers of type '%.40s': no such type is known", name ? name : "");
}

/* A whole number >= 0; -1: it is something else. */
static int64_t whole(const json_t *value)
{
    return json_is_integer(value) && json_integer_value(value) >= 0 ? json_integer_value(value) : -1;
}

static enum err_code read_shape(struct st_tensor *t, const json_t *shape, struct err *why)
{
    const size_t dims = json_array_size(shape);
    if (!json_is_array(shape) || dims > ST_DIMS_MAX)
        return err_set(why, ERR_FORMAT, "expected a shape of 0 to %d sizes", ST_DIMS_MAX);
    t->dims = (int)dims;
    t->count = 1;
    for (int i = 0; i < ST_DIMS_MAX; i++) {
        t->shape[i] = i < t->dims ? whole(json_array_get(shape, (size_t)i)) : 1;
        if (t->shape[i] < 0 || __builtin_mul_overflow(t->count, t->shape[i], &t->count))
            return err_set(why, ERR_FORMAT, "size %d of its shape is out of range", i);
    }
    int64_t bits;
    if (__builtin_mul_overflow(t->count, (int64_t)TYPES[t->type].bits, &bits) || bits % 8)
        return err_set(why, ERR_FORMAT, "%" PRId64 " numbers of %s fill no whole bytes", t->count,
                       st_type_name(t->type));
    t->bytes = bits / 8;
    return ERR_OK;
}

/* Read the entry of one tensor. `data` [room]: what lies behind the header. */
static enum err_code read_tensor(struct st_tensor *t, const json_t *entry, const unsigned char *data,
                                 size_t room, struct err *why)
{
    if (!json_is_object(entry)) return err_set(why, ERR_FORMAT, "expected an object with dtype and shape");
    enum err_code rc = read_type(&t->type, json_get_str(entry, "dtype", NULL), why);
    if (!rc) rc = read_shape(t, json_object_get(entry, "shape"), why);
    if (rc) return rc;
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const int64_t from = whole(json_array_get(offsets, 0)), to = whole(json_array_get(offsets, 1));
    if (json_array_size(offsets) != 2 || from < 0 || to < from)
        return err_set(why, ERR_FORMAT, "expected data_offsets [begin, end]");
    if ((uint64_t)to > room)
        return err_set(why, ERR_FORMAT,
                       "its bytes end at %" PRId64
                       ", the file has %zu bytes of numbers: it is cut off or damaged",
                       to, room);
    if (to - from != t->bytes)
        return err_set(why, ERR_FORMAT,
                       "%" PRId64 " numbers of %s take %" PRId64 " bytes, data_offsets give %" PRId64,
                       t->count, st_type_name(t->type), t->bytes, to - from);
    t->data = data + from;
    return ERR_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* empty ones first */
}

/* Tensors sorted by place must cover the data without gaps and overlaps. */
static enum err_code check_cover(const struct st_tensor *t, int64_t count, const unsigned char *data,
                                 size_t room, struct err *why)
{
    const unsigned char *end = data;
    for (int64_t i = 0; i < count; i++) {
        if (t[i].data < end)
            return err_set(why, ERR_FORMAT, "tensors '%.80s' and '%.80s' overlap", t[i - 1].name, t[i].name);
        if (t[i].data > end)
            return err_set(why, ERR_FORMAT, "no tensor has the %td bytes before tensor '%.80s'",
                           t[i].data - end, t[i].name);
        end = t[i].data + t[i].bytes;
    }
    if ((size_t)(end - data) != room)
        return err_set(why, ERR_FORMAT, "no tensor has the last %zu bytes of the file",
                       room - (size_t)(end - data));
    return ERR_OK;
}

static enum err_code read_tensors(struct st_tensor *out, int64_t *count, json_t *header,
                                  const unsigned char *data, size_t room, struct arena *memory,
                                  struct err *why)
{
    const char *name;
    json_t *entry;
    json_object_foreach(header, name, entry)
    {
        if (!strcmp(name, "__metadata__")) continue;
        struct st_tensor *t = &out[*count];
        if (!*name || strlen(name) > NAME_MAX_BYTES)
            return err_set(why, ERR_FORMAT, "a tensor's name is empty or longer than %d bytes",
                           NAME_MAX_BYTES);
        t->name = arena_strdup(memory, name);
        if (!t->name) return err_set(why, ERR_NOMEM, "out of memory for a tensor's name");
        const enum err_code rc = read_tensor(t, entry, data, room, why);
        if (rc) return err_prefix(why, "tensor '%.80s'", name);
        ++*count;
    }
    if (*count) qsort(out, (size_t)*count, sizeof *out, by_place);
    return check_cover(out, *count, data, room, why);
}

enum err_code safetensors_parse(struct st_tensor **out, int64_t *count, const unsigned char *data,
                                size_t size, struct arena *memory, struct err *why)
{
    uint64_t length;
    json_t *header;
    *out = NULL;
    *count = 0;
    if (size < sizeof length)
        return err_set(why, ERR_FORMAT, "not a safetensors file: it has %zu bytes, expected at least 8",
                       size);
    memcpy(&length, data, sizeof length);
    if (length > HEADER_MAX || length > size - sizeof length)
        return err_set(why, ERR_FORMAT,
                       "not a safetensors file, or cut off: its first 8 bytes give a header of %" PRIu64
                       " bytes, the file has %zu (expected at most %d)",
                       length, size, HEADER_MAX);
    if (length < 2 || data[sizeof length] != '{')
        return err_set(why, ERR_FORMAT, "not a safetensors file: its header does not begin with '{'");
    enum err_code rc = json_parse(&header, (const char *)data + sizeof length, (size_t)length, why);
    if (rc) return err_prefix(why, "header");
    if (!json_is_object(header)) rc = err_set(why, ERR_FORMAT, "header: expected an object");
    if (!rc) {
        *out = arena_alloc(memory, (json_object_size(header) + 1) * sizeof **out);
        if (!*out) rc = err_set(why, ERR_NOMEM, "out of memory for %zu tensors", json_object_size(header));
    }
    if (!rc)
        rc = read_tensors(*out, count, header, data + sizeof length + length,
                          size - sizeof length - (size_t)length, memory, why);
    json_decref(header);
    return rc;
}
