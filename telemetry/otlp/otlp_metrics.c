/* telemetry/otlp/otlp_metrics.c - the sink that turns families into OTLP metrics, with the names of
 * OpenTelemetry's semantic conventions where they exist, and the attributes of the resource. */
#include "telemetry/otlp/otlp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "telemetry/export/export.h"
#include "telemetry/gpu/gpu.h"
#include "telemetry/machine/machine.h"

/* ---------------------------------------------------------------- semantic conventions */

/* Units and types that the conventions require for a name. For other names they follow from FAMILIES.
 * Compared with the Python package opentelemetry-semantic-conventions 0.66b2. */
static const struct {
    const char *name, *unit;
    enum otlp_metric_type type;
} INSTRUMENTS[] = {
    { .name = "hw.gpu.memory.usage", .unit = "By", .type = OTLP_UP_DOWN },
    { .name = "hw.gpu.memory.limit", .unit = "By", .type = OTLP_UP_DOWN },
    { .name = "process.memory.usage", .unit = "By", .type = OTLP_UP_DOWN },
    { .name = "process.memory.virtual", .unit = "By", .type = OTLP_UP_DOWN },
    { .name = "process.paging.faults", .unit = "{fault}", .type = OTLP_SUM },
    { .name = "process.thread.count", .unit = "{thread}", .type = OTLP_UP_DOWN },
    { .name = "process.unix.file_descriptor.count", .unit = "{file_descriptor}", .type = OTLP_UP_DOWN },
};

/* Attributes that the conventions require for names. */
static const struct {
    const char *names;             /* prefix of the names */
    const char *label, *attribute; /* our label is renamed to this attribute; NULL: none */
    const char *key, *value;       /* this attribute is added */
} ATTRIBUTES[] = {
    { .names = "hw.gpu.", .label = "device", .attribute = "hw.id", .key = "hw.type", .value = "gpu" },
    { .names = "process.paging.faults", .key = "system.paging.fault.type", .value = "major" },
    { .names = "gen_ai.",
      .label = "model",
      .attribute = "gen_ai.request.model",
      .key = "gen_ai.operation.name",
      .value = "text_completion" },
    { .names = "gen_ai.", .key = "gen_ai.provider.name", .value = "qdyno" },
};

/* Our units as UCUM codes. */
static const struct {
    const char *unit, *ucum;
} UNITS[] = {
    { .unit = "seconds", .ucum = "s" },
    { .unit = "bytes", .ucum = "By" },
    { .unit = "ratio", .ucum = "1" },
    { .unit = "celsius", .ucum = "Cel" },
    { .unit = "hertz", .ucum = "Hz" },
    { .unit = "watts", .ucum = "W" },
    { .unit = "joules", .ucum = "J" },
    { .unit = "1/s", .ucum = "1/s" },
    { .unit = "grams", .ucum = "g" },
    { .unit = "bytes/s", .ucum = "By/s" },
    { .unit = "tokens/s", .ucum = "{token}/s" },
};

/* OpenTelemetry's name for a family. NULL: there is none, or its meaning differs (noted in brackets in
 * FAMILIES). */
static const char *conventional_name(enum family_id f)
{
    const char *name = FAMILIES[f].otel;
    return name && !strchr(name, '(') ? name : NULL;
}

static const char *unit_to_ucum(const char *unit)
{
    for (size_t i = 0; i < COUNT_OF(UNITS); i++)
        if (!strcmp(UNITS[i].unit, unit)) return UNITS[i].ucum;
    return "";
}

/* ---------------------------------------------------------------- collecting */

static void *batch_alloc(struct otlp_batch *b, size_t bytes)
{
    void *p = arena_alloc(&b->memory, bytes);
    if (!p) b->failed = true;
    return p;
}

static const char *batch_strdup(struct otlp_batch *b, const char *text)
{
    const char *copy = arena_strdup(&b->memory, text ? text : "");
    if (!copy) b->failed = true;
    return copy;
}

/* Copies an array of n elements to one with twice the capacity. NULL: out of memory. */
static void *batch_grow(struct otlp_batch *b, const void *old, int n, size_t size)
{
    void *p = batch_alloc(b, 2 * (size_t)MAX(n, 4) * size);
    if (p && n) memcpy(p, old, (size_t)n * size);
    return p;
}

static struct otlp_metric *metric_open(struct otlp_batch *b, enum family_id f)
{
    static const enum otlp_metric_type TYPES[] = {
        [FAMILY_GAUGE] = OTLP_GAUGE, [FAMILY_COUNTER] = OTLP_SUM, [FAMILY_HISTOGRAM] = OTLP_HISTOGRAM
    };
    const char *theirs = conventional_name(f), *name = theirs ? theirs : FAMILIES[f].name;
    for (int i = b->n - 1; i >= 0; i--)
        if (!strcmp(b->metrics[i].name, name)) return &b->metrics[i];
    if (b->n == b->cap) {
        struct otlp_metric *more = batch_grow(b, b->metrics, b->n, sizeof *more);
        if (!more) return NULL;
        b->metrics = more;
        b->cap = 2 * MAX(b->n, 4);
    }
    struct otlp_metric *m = &b->metrics[b->n++];
    *m = (struct otlp_metric){ .name = name,
                               .unit = unit_to_ucum(family_unit(f)),
                               .description = family_help(f),
                               .type = TYPES[FAMILIES[f].type] };
    for (size_t i = 0; theirs && i < COUNT_OF(INSTRUMENTS); i++) {
        if (strcmp(INSTRUMENTS[i].name, theirs)) continue;
        m->unit = INSTRUMENTS[i].unit;
        m->type = INSTRUMENTS[i].type;
    }
    return m;
}

/* Adds a point. An arena cannot resize allocations, so the array is copied at 8, 16, 32 ... points. */
static struct otlp_point *point_new(struct otlp_batch *b, struct otlp_metric *m)
{
    const int n = m->n_points;
    struct otlp_point *points = (struct otlp_point *)m->points; /* const only for readers of the metric */
    if (!n || (n >= 8 && !(n & (n - 1)))) {
        points = batch_grow(b, m->points, n, sizeof *points);
        if (!points) return NULL;
        m->points = points;
    }
    m->n_points++;
    return &points[n];
}

/* The attribute's key for one of our labels. */
static const char *attribute_key(const char *theirs, const char *label)
{
    for (size_t i = 0; theirs && i < COUNT_OF(ATTRIBUTES); i++)
        if (ATTRIBUTES[i].label && str_starts(theirs, ATTRIBUTES[i].names) &&
            !strcmp(ATTRIBUTES[i].label, label))
            return ATTRIBUTES[i].attribute;
    return label;
}

static void point_add_attribute(struct otlp_batch *b, struct otlp_point *p, struct otlp_attribute *to,
                                const char *key, const char *value)
{
    to[p->n_attributes++] = (struct otlp_attribute){ .key = batch_strdup(b, key),
                                                     .string = batch_strdup(b, value) };
}

/* When a family's counter started. 0: unknown, as for counters of drivers. */
static uint64_t counter_begun_ns(const struct otlp_batch *b, enum family_id f)
{
    switch (FAMILIES[f].section) {
    case FAMILIES_PROCESS:
    case FAMILIES_MACHINE: return b->process_begun_ns;
    case FAMILIES_REQUESTS: return b->requests_begun_ns;
    default: return 0;
    }
}

static struct otlp_point *point_open(struct otlp_batch *b, enum family_id f, const struct label *labels,
                                     int n)
{
    const char *theirs = conventional_name(f);
    struct otlp_metric *m = b->failed ? NULL : metric_open(b, f);
    struct otlp_point *p = m ? point_new(b, m) : NULL;
    struct otlp_attribute *a = p ? batch_alloc(b,
                                               ((size_t)(n + b->n_common) + COUNT_OF(ATTRIBUTES)) * sizeof *a)
                                 : NULL;
    if (!a) return NULL;
    *p = (struct otlp_point){ .attributes = a,
                              .time_ns = b->time_ns,
                              .begun_ns = m->type == OTLP_GAUGE ? 0 : counter_begun_ns(b, f),
                              .sum = (double)NAN };
    for (int i = 0; i < n; i++)
        point_add_attribute(b, p, a, attribute_key(theirs, labels[i].name), labels[i].value);
    for (int i = 0; i < b->n_common; i++) point_add_attribute(b, p, a, b->common[i].name, b->common[i].value);
    for (size_t i = 0; theirs && i < COUNT_OF(ATTRIBUTES); i++)
        if (str_starts(theirs, ATTRIBUTES[i].names))
            point_add_attribute(b, p, a, ATTRIBUTES[i].key, ATTRIBUTES[i].value);
    if (!b->failed) return p;
    m->n_points--; /* an incomplete point is removed */
    return NULL;
}

static void batch_add_value(void *ctx, enum family_id f, const struct label *labels, int n, double value)
{
    struct otlp_point *p = point_open(ctx, f, labels, n);
    if (p) p->value = value;
}

static void batch_add_histogram(void *ctx, enum family_id f, const struct label *labels, int n,
                                const struct histogram_counts *h)
{
    struct otlp_batch *b = ctx;
    const struct histogram_edges *edges = FAMILIES[f].edges;
    uint64_t *counts = batch_alloc(b, (size_t)(edges->n + 1) * sizeof *counts);
    struct otlp_point *p = counts ? point_open(b, f, labels, n) : NULL;
    if (!p) return;
    memcpy(counts, h->bucket, (size_t)(edges->n + 1) * sizeof *counts);
    p->counts = counts;
    p->bounds = edges->edge;
    p->n_bounds = edges->n;
    p->sum = h->sum;
}

struct family_sink otlp_sink(struct otlp_batch *b)
{
    return (struct family_sink){ .ctx = b, .value = batch_add_value, .histogram = batch_add_histogram };
}

void otlp_batch_free(struct otlp_batch *b)
{
    arena_free(&b->memory);
    b->metrics = NULL;
    b->n = b->cap = 0;
}

/* ---------------------------------------------------------------- resource */

enum { RESOURCE_MOST = 64 };

static void put_resource(struct otlp_identity *out, const char *key, const char *value)
{
    struct otlp_attribute *a = out->attributes;
    int at = 0;
    if (!value || !*value || out->failed) return;
    while (at < out->resource.n && strcmp(a[at].key, key)) at++;
    if (at == RESOURCE_MOST) return; /* cannot happen: put_environment refuses so many */
    a[at] = (struct otlp_attribute){ .key = arena_strdup(&out->memory, key),
                                     .string = arena_strdup(&out->memory, value) };
    out->failed = out->failed || !a[at].key || !a[at].string;
    if (at == out->resource.n && a[at].key) out->resource.n++;
}

static void put_machine(struct otlp_identity *out, const struct machine *m)
{
    const char *release = strchr(m->kernel, ' '); /* "Linux 6.1.0" */
    char instance[sizeof m->host + sizeof m->id + 1];
    /* distinguishes the series of several machines that send to one collector */
    snprintf(instance, sizeof instance, "%s:%s", m->host, m->id);
    put_resource(out, "service.instance.id", instance);
    put_resource(out, "host.id", m->id);
    put_resource(out, "host.name", m->host);
    if (m->isa) put_resource(out, "host.arch", m->isa & ISA_NEON ? "arm64" : "amd64");
    put_resource(out, "host.cpu.model.name", m->cpu);
    put_resource(out, "os.type", "linux");
    put_resource(out, "os.description", m->os);
    put_resource(out, "os.version", release ? release + 1 : NULL);
    const char **names = arena_alloc(&out->memory, MACHINE_GPUS * sizeof *names);
    out->failed = out->failed || !names;
    for (int i = 0; names && i < m->gpus; i++) {
        names[i] = arena_strdup(&out->memory, m->gpu[i].name);
        out->failed = out->failed || !names[i];
    }
    if (!out->failed && m->gpus > 0)
        out->attributes[out->resource.n++] = (struct otlp_attribute){
            .key = "qdyno.gpu.names", .type = OTLP_STRINGS, .strings = names, .n = m->gpus
        };
}

static enum err_code put_environment(struct otlp_identity *out, struct err *why)
{
    const char *list = getenv("OTEL_RESOURCE_ATTRIBUTES");
    for (size_t len; list && *list; list += len + (list[len] == ',')) {
        char *pair[2];
        len = strcspn(list, ",");
        if (strspn(list, " \t,") >= len) continue;
        if (!otlp_pair_read(pair, list, len))
            return err_set(why, ERR_USAGE, "OTEL_RESOURCE_ATTRIBUTES: '%.*s' is not name=value", (int)len,
                           list);
        put_resource(out, pair[0], pair[1]);
        free(pair[0]);
        free(pair[1]);
        if (out->resource.n == RESOURCE_MOST)
            return err_set(
                why, ERR_USAGE,
                "OTEL_RESOURCE_ATTRIBUTES has too many name=value pairs: expected at most about %d; "
                "nothing is sent until some are removed",
                RESOURCE_MOST - 16);
    }
    put_resource(out, "service.name", getenv("OTEL_SERVICE_NAME"));
    return ERR_OK;
}

enum err_code otlp_identify(struct otlp_identity *out, const struct machine *machine, const char *version,
                            struct err *why)
{
    *out = (struct otlp_identity){ 0 };
    out->attributes = arena_alloc(&out->memory, RESOURCE_MOST * sizeof *out->attributes);
    if (!out->attributes) return err_set(why, ERR_NOMEM, "out of memory");
    out->resource.attributes = out->attributes;
    put_resource(out, "service.name", "qdyno");
    put_resource(out, "service.version", version);
    if (machine) put_machine(out, machine);
    enum err_code rc = put_environment(out, why);
    if (!rc && out->failed) rc = err_set(why, ERR_NOMEM, "out of memory");
    if (rc) otlp_identity_free(out);
    return rc;
}

void otlp_identity_free(struct otlp_identity *i)
{
    arena_free(&i->memory);
    *i = (struct otlp_identity){ 0 };
}

/* ---------------------------------------------------------------- sending */

enum err_code otlp_metrics_send(const struct otlp_target *t, const struct otlp_live *live,
                                struct otlp_answer *answer, struct err *why)
{
    struct otlp_identity identity = { 0 };
    struct str body = { 0 };
    struct process_reading self;
    struct otlp_batch b = { .time_ns = (uint64_t)clock_unix_ms() * 1000000 };
    const struct family_sink sink = otlp_sink(&b);
    process_read(&self, 0);
    const double begun_s = self.start_time_seconds;
    if (begun_s > 0 && begun_s * 1e9 < (double)b.time_ns) b.process_begun_ns = (uint64_t)(begun_s * 1e9);
    live->collect(live->ctx, &sink);
    enum err_code rc = otlp_identify(&identity, live->machine, QDYNO_VERSION, why);
    if (!rc && !otlp_metrics_encode(&body, &identity.resource, b.metrics, b.n))
        rc = err_set(why, ERR_ABSENT, "there is no reading to send");
    if (!rc && (b.failed || body.failed)) rc = err_set(why, ERR_NOMEM, "out of memory");
    if (!rc) rc = otlp_send(t, &body, answer, why);
    otlp_batch_free(&b);
    otlp_identity_free(&identity);
    str_free(&body);
    return rc;
}
