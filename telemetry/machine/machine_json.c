/* telemetry/machine/machine_json.c - a machine as JSON, in the database, reports and `--machine FILE`, and
 * its short description. */
#include "telemetry/machine/machine.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/kernels.h"
#include "telemetry/gpu/gpu.h"

enum { MACHINE_SCHEMA = 1 };

/* Tables of fields, used for both directions. */
enum field_type { FIELD_TEXT, FIELD_INT, FIELD_I64, FIELD_NUM, FIELD_BOOL };
struct field {
    const char *key;
    enum field_type type;
    size_t offset, size; /* size: of a text field */
};
#define FIELD(type, of, member)                                                                              \
    {                                                                                                        \
#member, type, offsetof(of, member), sizeof(((of *)0)->member)                                       \
    }

static const struct field MACHINE_FIELDS[] = {
    FIELD(FIELD_TEXT, struct machine, id),
    FIELD(FIELD_TEXT, struct machine, host),
    FIELD(FIELD_TEXT, struct machine, kernel),
    FIELD(FIELD_TEXT, struct machine, os),
    FIELD(FIELD_TEXT, struct machine, cpu),
    FIELD(FIELD_TEXT, struct machine, governor),
    FIELD(FIELD_TEXT, struct machine, hypervisor),
    FIELD(FIELD_INT, struct machine, sockets),
    FIELD(FIELD_INT, struct machine, cores),
    FIELD(FIELD_INT, struct machine, processors),
    FIELD(FIELD_INT, struct machine, numa_nodes),
    { .key = "l1d_bytes", .type = FIELD_I64, .offset = offsetof(struct machine, cache_bytes[0]) },
    { .key = "l2_bytes", .type = FIELD_I64, .offset = offsetof(struct machine, cache_bytes[1]) },
    { .key = "l3_bytes", .type = FIELD_I64, .offset = offsetof(struct machine, cache_bytes[2]) },
    FIELD(FIELD_I64, struct machine, memory_bytes),
    FIELD(FIELD_I64, struct machine, memory_available_bytes),
    FIELD(FIELD_I64, struct machine, cgroup_memory_bytes),
    FIELD(FIELD_NUM, struct machine, cgroup_cpus),
    FIELD(FIELD_INT, struct machine, usable_processors),
    FIELD(FIELD_INT, struct machine, usable_cores),
    FIELD(FIELD_INT, struct machine, usable_threads),
    FIELD(FIELD_BOOL, struct machine, has_battery),
    FIELD(FIELD_BOOL, struct machine, on_battery),
};
static const struct field IDENTITY_FIELDS[] = {
    FIELD(FIELD_TEXT, struct gpu_identity, vendor),
    FIELD(FIELD_TEXT, struct gpu_identity, name),
    FIELD(FIELD_TEXT, struct gpu_identity, driver),
    FIELD(FIELD_TEXT, struct gpu_identity, source),
    FIELD(FIELD_TEXT, struct gpu_identity, bus),
    FIELD(FIELD_I64, struct gpu_identity, memory_bytes),
    FIELD(FIELD_INT, struct gpu_identity, compute_major),
    FIELD(FIELD_INT, struct gpu_identity, compute_minor),
};

/* Unknown values, "" and -1, become null. */
static void fields_put(json_t *object, const void *base, const struct field *f, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const void *p = (const char *)base + f[i].offset;
        int64_t whole = f[i].type == FIELD_INT   ? *(const int *)p
                        : f[i].type == FIELD_I64 ? *(const int64_t *)p
                                                 : 0;
        switch (f[i].type) {
        case FIELD_TEXT: json_put_str(object, f[i].key, *(const char *)p ? p : NULL); break;
        case FIELD_NUM: json_put_num(object, f[i].key, *(const double *)p); break;
        case FIELD_BOOL: json_put_bool(object, f[i].key, *(const bool *)p); break;
        case FIELD_INT:
        case FIELD_I64:
            if (whole == -1)
                json_put(object, f[i].key, json_null());
            else
                json_put_int(object, f[i].key, whole);
        }
    }
}

static void fields_get(void *base, const json_t *object, const struct field *f, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        void *p = (char *)base + f[i].offset;
        int64_t whole = json_get_int(object, f[i].key, -1);
        switch (f[i].type) {
        case FIELD_TEXT: snprintf(p, f[i].size, "%s", json_get_str(object, f[i].key, "")); break;
        case FIELD_NUM: *(double *)p = json_get_num(object, f[i].key, NAN); break;
        case FIELD_BOOL: *(bool *)p = json_get_bool(object, f[i].key, false); break;
        case FIELD_INT: *(int *)p = whole < 0 || whole > INT32_MAX ? -1 : (int)whole; break;
        case FIELD_I64: *(int64_t *)p = whole < 0 ? -1 : whole; break;
        }
    }
}

json_t *machine_to_json(const struct machine *m)
{
    json_t *object = json_object(), *isa = json_array(), *gpus = json_array();
    char names[256];
    json_put_int(object, "schema", MACHINE_SCHEMA);
    fields_put(object, m, MACHINE_FIELDS, COUNT_OF(MACHINE_FIELDS));
    isa_names(m->isa, names, sizeof names);
    for (char *save, *w = strtok_r(names, " ", &save); w; w = strtok_r(NULL, " ", &save))
        json_array_append_new(isa, json_string(w));
    json_put(object, "isa", isa);
    for (int i = 0; i < m->gpus; i++) {
        json_t *gpu = json_object();
        fields_put(gpu, &m->gpu[i], IDENTITY_FIELDS, COUNT_OF(IDENTITY_FIELDS));
        json_array_append_new(gpus, gpu);
    }
    json_put(object, "gpus", gpus);
    return object;
}

enum err_code machine_from_json(struct machine *m, const json_t *object, struct err *why)
{
    *m = (struct machine){ 0 };
    if (!json_is_object(object)) return err_set(why, ERR_FORMAT, "a machine: expected a JSON object");
    int64_t schema = json_get_int(object, "schema", MACHINE_SCHEMA);
    if (schema > MACHINE_SCHEMA)
        return err_set(why, ERR_FORMAT, "a machine: schema %lld is newer than this program's (%d)",
                       (long long)schema, MACHINE_SCHEMA);
    fields_get(m, object, MACHINE_FIELDS, COUNT_OF(MACHINE_FIELDS));
    struct str list = { 0 };
    size_t i;
    json_t *item;
    json_array_foreach(json_object_get(object, "isa"), i, item)
        str_printf(&list, "%s%s", list.len ? "," : "", json_is_string(item) ? json_string_value(item) : "?");
    enum err_code rc = list.len ? isa_parse(&m->isa, str_text(&list), why) : ERR_OK;
    str_free(&list);
    if (rc) {
        err_prefix(why, "a machine's isa");
        return ERR_FORMAT;
    }
    json_array_foreach(json_object_get(object, "gpus"), i, item)
    {
        if (i >= MACHINE_GPUS) break;
        fields_get(&m->gpu[i], item, IDENTITY_FIELDS, COUNT_OF(IDENTITY_FIELDS));
        m->gpus = (int)i + 1;
    }
    return ERR_OK;
}

/* ---------------------------------------------------------------- short description */

/* Words in processor names that carry no information for the reader. */
static bool word_is_noise(const char *word)
{
    static const char *const NOISE[] = { "CPU",  "Processor", "Intel", "AMD", "Genuine", "Gen", "11th",
                                         "12th", "13th",      "14th",  "ARM", "with",    "w/" };
    for (size_t i = 0; i < COUNT_OF(NOISE); i++)
        if (!strcmp(word, NOISE[i])) return true;
    return str_ends(word, "-Core");
}

/* "Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz" -> "Xeon Gold 6148" */
static void short_cpu(const char *full, char *buf, size_t size)
{
    static const char *const MARKS[] = { "(R)", "(r)", "(TM)", "(tm)" };
    char text[96];
    struct str out = { 0 };
    snprintf(text, sizeof text, "%s", full);
    for (size_t i = 0; i < COUNT_OF(MARKS); i++)
        for (char *p; (p = strstr(text, MARKS[i]));)
            memmove(p, p + strlen(MARKS[i]), strlen(p + strlen(MARKS[i])) + 1);
    for (char *save, *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        if (*w == '@' || *w == '(' || !strcmp(w, "with") || !strcmp(w, "w/")) break; /* clock, board, iGPU */
        if (!word_is_noise(w)) str_printf(&out, "%s%s", out.len ? " " : "", w);
    }
    snprintf(buf, size, "%s", out.len ? str_text(&out) : *full ? full : "unknown CPU");
    str_free(&out);
}

/* The instruction sets that matter most for speed, best first; a bit in hidden_by makes the row redundant. */
static void short_isa(uint32_t isa, struct str *out)
{
    static const struct {
        uint32_t bit, hidden_by;
        const char *name;
    } SHORT[] = {
        { .bit = ISA_AMX, .name = "AMX" },
        { .bit = ISA_AVX512VNNI, .name = "VNNI" },
        { .bit = ISA_AVX512BF16, .name = "BF16" },
        { .bit = ISA_AVX512, .hidden_by = ISA_AMX | ISA_AVX512VNNI | ISA_AVX512BF16, .name = "AVX512" },
        { .bit = ISA_AVX2, .hidden_by = ISA_AVX512 | ISA_AMX, .name = "AVX2" },
        { .bit = ISA_SSE41, .hidden_by = ISA_AVX2 | ISA_AVX512 | ISA_AMX, .name = "SSE4.1" },
        { .bit = ISA_DOTPROD, .name = "DOTPROD" },
        { .bit = ISA_NEON, .hidden_by = ISA_DOTPROD, .name = "NEON" },
    };
    bool any = false;
    for (size_t i = 0; i < COUNT_OF(SHORT); i++) {
        if (!(isa & SHORT[i].bit) || (isa & SHORT[i].hidden_by)) continue;
        str_printf(out, "%s%s", any ? "\u00b7" : " ", SHORT[i].name);
        any = true;
    }
}

/* The product name, first of several: "Navi 31 [Radeon RX 7900 XT/7900 XTX]" becomes "Radeon RX 7900 XT". */
static void short_gpu(const char *full, char *buf, size_t size)
{
    const char *open = strchr(full, '['), *name = open ? open + 1 : full;
    snprintf(buf, size, "%.*s", (int)strcspn(name, open ? "]/" : ""), name);
}

const char *machine_short(const struct machine *m, char *buf, size_t size)
{
    struct str out = { 0 };
    char text[96];
    short_cpu(m->cpu, text, sizeof text);
    str_append(&out, text);
    if (m->cores > 0) str_printf(&out, " %dc", m->cores);
    short_isa(m->isa, &out);
    str_printf(&out, " %s", str_from_bytes(m->memory_bytes, text, sizeof text));
    if (m->gpus) short_gpu(m->gpu[0].name, text, sizeof text);
    str_printf(&out, " %s", m->gpus ? text : "no GPU");
    if (m->gpus > 1) str_printf(&out, " +%d", m->gpus - 1);
    snprintf(buf, size, "%s", str_text(&out));
    str_free(&out);
    return buf;
}
