/* Compile OpenCL C for a device. Drivers take seconds for it, so the binaries are stored in the cache folder.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/opencl/sources.h"

enum { BINARY_MAX = 64 << 20, LOG_MAX = 300 };

/* The options of every program. dot.cl needs OpenCL C 3.0, because drivers declare cl_khr_integer_dot_product
 * there only. */
static const char *common_options(const struct opencl *o, uint32_t sources, char *buf, size_t size)
{
    const struct device_info *d = &o->device;
    const bool dot = sources >> SOURCE_DOT & 1;
    snprintf(buf, size, "-cl-std=%s%s%s", dot && d->int_dot ? "CL3.0" : "CL1.2", d->fp16 ? " -DFP16" : "",
             dot && d->dp4a ? " -DDP4A" : "");
    return buf;
}

/* The identity of a binary: everything on which it depends. */
static char *identity_of(const struct opencl *o, uint32_t sources, const char *options)
{
    struct str s = { 0 };
    char common[64];
    const struct device_info *d = &o->device;
    str_printf(&s, "qdyno-opencl 1\n%s\n%s\n%s\n%s\n%s %s\n", d->platform, d->model, d->version, d->driver,
               common_options(o, sources, common, sizeof common), options);
    for (int i = 0; i < SOURCE_COUNT; i++) {
        char hex[HASH_HEX];
        const struct opencl_text *t = &OPENCL_TEXTS[i];
        if (!(sources >> i & 1)) continue;
        hash_bytes(t->begin, (size_t)(t->end - t->begin), hex);
        str_printf(&s, "%s %s\n", t->name, hex);
    }
    return str_take(&s);
}

/* The path of the binary with that identity; NULL if there is no cache folder. */
static char *path_of(const char *identity)
{
    char *folder = NULL, hex[HASH_HEX];
    struct str path = { 0 };
    if (file_place(&folder, FILE_CACHE, NULL)) return NULL;
    hash_bytes(identity, strlen(identity), hex);
    str_printf(&path, "%s/opencl", folder);
    free(folder);
    if (file_make_dirs(str_text(&path), NULL)) {
        str_free(&path);
        return NULL;
    }
    str_printf(&path, "/%s.bin", hex);
    return str_take(&path);
}

/* A cache file contains the identity, a NUL byte and the binary. A damaged file is ignored and written again.
 */
static cl_program binary_load(const struct opencl *o, const char *path, const char *identity)
{
    char *bytes = NULL;
    size_t size = 0;
    const size_t head = strlen(identity) + 1;
    cl_program p = NULL;
    if (!path || file_read(&bytes, &size, path, BINARY_MAX, NULL)) return NULL;
    if (size > head && !memcmp(bytes, identity, head)) {
        const unsigned char *binary = (unsigned char *)bytes + head;
        const size_t length = size - head;
        cl_int status = 0, code = 0;
        p = clCreateProgramWithBinary(o->context, 1, &o->id, &length, &binary, &status, &code);
        if (p && (code || status || clBuildProgram(p, 1, &o->id, NULL, NULL, NULL))) {
            clReleaseProgram(p);
            p = NULL;
        }
    }
    free(bytes);
    return p;
}

/* Store a binary. Parallel runs may store the same one, so each writes a file with a unique name and renames
 * it. Failures are ignored: they cost time only. */
static void binary_store(cl_program p, const char *path, const char *identity)
{
    size_t size = 0;
    struct atomic_file f = { 0 };
    if (!path || clGetProgramInfo(p, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL) || !size) return;
    unsigned char *binary = malloc(size);
    if (binary && !clGetProgramInfo(p, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) &&
        !atomic_file_open(&f, path, NULL)) {
        const size_t head = strlen(identity) + 1;
        if (fwrite(identity, 1, head, f.stream) == head && fwrite(binary, 1, size, f.stream) == size)
            atomic_file_commit(&f, NULL);
    }
    atomic_file_abort(&f);
    free(binary);
}

static void fail_build(struct opencl *o, cl_program p, const char *options, cl_int code)
{
    char *log = NULL;
    size_t size = 0;
    clGetProgramBuildInfo(p, o->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &size);
    log = calloc(1, size + 1);
    if (log) clGetProgramBuildInfo(p, o->id, CL_PROGRAM_BUILD_LOG, size, log, NULL);
    err_set(&o->failed, ERR_INTERNAL, "%s: the driver cannot compile our kernels (%s) [%s]: %.*s",
            o->device.name, opencl_error_name(code), options, LOG_MAX, log ? log : "");
    free(log);
}

static cl_program program_compile(struct opencl *o, uint32_t sources, const char *options)
{
    const char *text[SOURCE_COUNT];
    size_t size[SOURCE_COUNT];
    cl_uint count = 0;
    cl_int code = 0;
    char all[512], common[64];
    for (int i = 0; i < SOURCE_COUNT; i++) {
        if (!(sources >> i & 1)) continue;
        text[count] = OPENCL_TEXTS[i].begin;
        size[count++] = (size_t)(OPENCL_TEXTS[i].end - OPENCL_TEXTS[i].begin);
    }
    snprintf(all, sizeof all, "%s %s", common_options(o, sources, common, sizeof common), options);
    for (size_t n = strlen(all); all[n - 1] == ' '; n--) all[n - 1] = 0; /* PoCL refuses a space at the end */
    cl_program p = clCreateProgramWithSource(o->context, count, text, size, &code);
    if (!p) {
        opencl_fail(o, code, "creating a program");
        return NULL;
    }
    if (!(code = clBuildProgram(p, 1, &o->id, all, NULL, NULL))) return p;
    fail_build(o, p, all, code);
    clReleaseProgram(p);
    return NULL;
}

/* The program of these sources and options: already loaded, from the cache, or newly compiled. Borrowed from
 * o. */
static cl_program program_of(struct opencl *o, uint32_t sources, const char *options)
{
    for (int i = 0; i < o->program_count; i++) {
        const struct built_program *b = &o->programs[i];
        if (b->sources == sources && !strcmp(b->options, options)) return b->program;
    }
    struct built_program *more = realloc(o->programs, (size_t)(o->program_count + 1) * sizeof *more);
    char *identity = identity_of(o, sources, options), *kept = strdup(options);
    if (more) o->programs = more;
    cl_program p = NULL;
    if (!more || !identity || !kept) {
        err_set(&o->failed, ERR_NOMEM, "out of memory for a program");
    } else {
        char *path = path_of(identity);
        p = binary_load(o, path, identity);
        if (!p && (p = program_compile(o, sources, options))) binary_store(p, path, identity);
        free(path);
    }
    free(identity);
    if (p)
        o->programs[o->program_count++] = (struct built_program){ sources, kept, p };
    else
        free(kept);
    return p;
}

cl_kernel opencl_kernel(struct opencl *o, const struct opencl_kernel *k)
{
    for (int i = 0; i < o->built_count; i++) {
        const struct built_kernel *b = &o->built[i];
        if (b->sources == k->sources && !strcmp(b->name, k->name) && !strcmp(b->options, k->options))
            return b->kernel;
    }
    if (!opencl_ok(o)) return NULL;
    cl_int code = 0;
    cl_program p = program_of(o, k->sources, k->options);
    if (!p) return NULL;
    cl_kernel made = clCreateKernel(p, k->name, &code);
    struct built_kernel *more = realloc(o->built, (size_t)(o->built_count + 1) * sizeof *more);
    if (more) o->built = more;
    char *name = strdup(k->name), *options = strdup(k->options);
    if (!made || !more || !name || !options) {
        opencl_fail(o, made ? CL_OUT_OF_HOST_MEMORY : code, k->name);
        if (made) clReleaseKernel(made);
        free(name);
        free(options);
        return NULL;
    }
    o->built[o->built_count++] = (struct built_kernel){ k->sources, options, name, made };
    return made;
}

void opencl_programs_close(struct opencl *o)
{
    for (int i = 0; i < o->built_count; i++) {
        clReleaseKernel(o->built[i].kernel);
        free(o->built[i].options);
        free(o->built[i].name);
    }
    for (int i = 0; i < o->program_count; i++) {
        clReleaseProgram(o->programs[i].program);
        free(o->programs[i].options);
    }
    free(o->built);
    free(o->programs);
}
