/* telemetry/otlp/otlp_metrics.c - families as OTLP metrics, by OpenTelemetry's names where it has some. */
#include "telemetry/otlp/otlp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "telemetry/export/export.h"
#include "telemetry/gpu/gpu.h"
#include "telemetry/machine/machine.h"

/* ---------------------------------------------------------------- what OpenTelemetry asks of its names */

/* Checked against the semantic conventions of the Python package opentelemetry-semantic-conventions 0.66b2.
 * Of names that are not here, unit and instrument follow from our own row. */
static const struct {
    const char *name, *unit;
    enum otlp_metric_type type;
} INSTRUMENTS[] = {
    { "hw.gpu.memory.usage", "By", OTLP_UP_DOWN },
    { "hw.gpu.memory.limit", "By", OTLP_UP_DOWN },
    { "process.memory.usage", "By", OTLP_UP_DOWN },
    { "process.memory.virtual", "By", OTLP_UP_DOWN },
    { "process.paging.faults", "{fault}", OTLP_SUM },
    { "process.thread.count", "{thread}", OTLP_UP_DOWN },
    { "process.unix.file_descriptor.count", "{file_descriptor}", OTLP_UP_DOWN },
};

/* Attributes that its names come with. */
static const struct {
    const char *names;             /* as they begin */
    const char *label, *attribute; /* our label goes by that key; NULL: none */
    const char *key, *value;       /* and this one joins it */
} ATTRIBUTES[] = {
    { "hw.gpu.", "device", "hw.id", "hw.type", "gpu" },
    { "process.paging.faults", NULL, NULL, "system.paging.fault.type", "major" },
    { "gen_ai.", "model", "gen_ai.request.model", "gen_ai.operation.name", "text_completion" },
    { "gen_ai.", NULL, NULL, "gen_ai.provider.name", "qdyno" },
};

/* Our units in UCUM. */
static const struct {
    const char *unit, *ucum;
} UNITS[] = {
    { "seconds", "s" },          { "bytes", "By" }, { "ratio", "1" },
    { "celsius", "Cel" },        { "hertz", "Hz" }, { "watts", "W" },
    { "joules", "J" },           { "1/s", "1/s" },  { "bytes/s", "By/s" },
    { "tokens/s", "{token}/s" },
};

/* NULL: OpenTelemetry has no name for it, or one that means something else (said in brackets). */
static const char *conventional_name(enum family_id f)
{
    const char *name = FAMILIES[f].otel;
    return name && !strchr(name, '(') ? name : NULL;
}

static const char *ucum(const char *unit)
{
    for (size_t i = 0; i < COUNT_OF(UNITS); i++)
        if (!strcmp(UNITS[i].unit, unit)) return UNITS[i].ucum;
    return "";
}

/* ---------------------------------------------------------------- collecting */

static void *take(struct otlp_batch *b, size_t bytes)
{
    void *p = arena_alloc(&b->memory, bytes);
    if (!p) b->failed = true;
    return p;
}

static const char *keep(struct otlp_batch *b, const char *text)
{
    const char *copy = arena_strdup(&b->memory, text ? text : "");
    if (!copy) b->failed = true;
    return copy;
}

/* `n` things become room for twice as many; NULL when out of memory. */
static void *grow(struct otlp_batch *b, const void *old, int n, size_t size)
{
    void *p = take(b, 2 * (size_t)MAX(n, 4) * size);
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
        struct otlp_metric *more = grow(b, b->metrics, b->n, sizeof *more);
        if (!more) return NULL;
        b->metrics = more;
        b->cap = 2 * MAX(b->n, 4);
    }
    struct otlp_metric *m = &b->metrics[b->n++];
    *m = (struct otlp_metric){ .name = name,
                               .unit = ucum(family_unit(f)),
                               .description = family_help(f),
                               .type = TYPES[FAMILIES[f].type] };
    for (size_t i = 0; theirs && i < COUNT_OF(INSTRUMENTS); i++) {
        if (strcmp(INSTRUMENTS[i].name, theirs)) continue;
        m->unit = INSTRUMENTS[i].unit;
        m->type = INSTRUMENTS[i].type;
    }
    return m;
}

/* The arena cannot grow what it has given: points lie in rooms of 8, 16, 32 ... */
static struct otlp_point *point_new(struct otlp_batch *b, struct otlp_metric *m)
{
    const int n = m->n_points;
    struct otlp_point *room = (struct otlp_point *)m->points; /* ours, only its readers may not write */
    if (!n || (n >= 8 && !(n & (n - 1)))) {
        room = grow(b, m->points, n, sizeof *room);
        if (!room) return NULL;
        m->points = room;
    }
    m->n_points++;
    return &room[n];
}

static const char *key_of(const char *theirs, const char *label)
{
    for (size_t i = 0; theirs && i < COUNT_OF(ATTRIBUTES); i++)
        if (ATTRIBUTES[i].label && str_starts(theirs, ATTRIBUTES[i].names) &&
            !strcmp(ATTRIBUTES[i].label, label))
            return ATTRIBUTES[i].attribute;
    return label;
}

static void put(struct otlp_batch *b, struct otlp_point *p, struct otlp_attribute *room, const char *key,
                const char *value)
{
    room[p->n_attributes++] = (struct otlp_attribute){ .key = keep(b, key), .string = keep(b, value) };
}

/* Totals of a driver or a database began before anybody who could be asked: unknown. */
static uint64_t begun(const struct otlp_batch *b, enum family_id f)
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
    struct otlp_attribute *a = p ? take(b, ((size_t)(n + b->n_common) + COUNT_OF(ATTRIBUTES)) * sizeof *a)
                                 : NULL;
    if (!a) return NULL;
    *p = (struct otlp_point){ .attributes = a,
                              .time_ns = b->time_ns,
                              .begun_ns = m->type == OTLP_GAUGE ? 0 : begun(b, f),
                              .sum = (double)NAN };
    for (int i = 0; i < n; i++) put(b, p, a, key_of(theirs, labels[i].name), labels[i].value);
    for (int i = 0; i < b->n_common; i++) put(b, p, a, b->common[i].name, b->common[i].value);
    for (size_t i = 0; theirs && i < COUNT_OF(ATTRIBUTES); i++)
        if (str_starts(theirs, ATTRIBUTES[i].names)) put(b, p, a, ATTRIBUTES[i].key, ATTRIBUTES[i].value);
    if (!b->failed) return p;
    m->n_points--; /* half of a point is none */
    return NULL;
}

static void take_value(void *ctx, enum family_id f, const struct label *labels, int n, double value)
{
    struct otlp_point *p = point_open(ctx, f, labels, n);
    if (p) p->value = value;
}

static void take_histogram(void *ctx, enum family_id f, const struct label *labels, int n,
                           const struct histogram_counts *h)
{
    struct otlp_batch *b = ctx;
    const struct histogram_edges *edges = FAMILIES[f].edges;
    uint64_t *counts = take(b, (size_t)(edges->n + 1) * sizeof *counts);
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
    return (struct family_sink){ b, take_value, take_histogram };
}

void otlp_batch_free(struct otlp_batch *b)
{
    arena_free(&b->memory);
    b->metrics = NULL;
    b->n = b->cap = 0;
}

/* ---------------------------------------------------------------- who speaks */

enum { RESOURCE_MOST = 64 };

static void put_resource(struct otlp_identity *out, const char *key, const char *value)
{
    struct otlp_attribute *a = out->attributes;
    int at = 0;
    if (!value || !*value || out->failed) return;
    while (at < out->resource.n && strcmp(a[at].key, key)) at++;
    if (at == RESOURCE_MOST) return; /* refused by put_environment, which alone can come so far */
    a[at] = (struct otlp_attribute){ .key = arena_strdup(&out->memory, key),
                                     .string = arena_strdup(&out->memory, value) };
    out->failed = out->failed || !a[at].key || !a[at].string;
    if (at == out->resource.n && a[at].key) out->resource.n++;
}

static void put_machine(struct otlp_identity *out, const struct machine *m)
{
    const char *release = strchr(m->kernel, ' '); /* "Linux 6.1.0" */
    char instance[sizeof m->host + sizeof m->id + 1];
    /* without it, what two machines send to one collector would be one series in Prometheus */
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
            return err_set(why, ERR_USAGE, "OTEL_RESOURCE_ATTRIBUTES: '%.*s' is no name=value", (int)len,
                           list);
        put_resource(out, pair[0], pair[1]);
        free(pair[0]);
        free(pair[1]);
        if (out->resource.n == RESOURCE_MOST)
            return err_set(why, ERR_USAGE, "OTEL_RESOURCE_ATTRIBUTES: too many, at most about %d fit",
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

/* ---------------------------------------------------------------- live */

enum err_code otlp_metrics_send(const struct otlp_target *t, const struct otlp_live *live,
                                struct otlp_answer *answer, struct err *why)
{
    struct otlp_identity who = { 0 };
    struct str body = { 0 };
    struct process_reading self;
    struct otlp_batch b = { .time_ns = (uint64_t)clock_unix_ms() * 1000000 };
    const struct family_sink sink = otlp_sink(&b);
    process_read(&self, 0);
    const double begun_s = self.start_time_seconds;
    if (begun_s > 0 && begun_s * 1e9 < (double)b.time_ns) b.process_begun_ns = (uint64_t)(begun_s * 1e9);
    live->collect(live->ctx, &sink);
    enum err_code rc = otlp_identify(&who, live->machine, QDYNO_VERSION, why);
    if (!rc && !otlp_metrics_encode(&body, &who.resource, b.metrics, b.n))
        rc = err_set(why, ERR_ABSENT, "no reading is known that could be sent");
    if (!rc && (b.failed || body.failed)) rc = err_set(why, ERR_NOMEM, "out of memory");
    if (!rc) rc = otlp_send(t, &body, answer, why);
    otlp_batch_free(&b);
    otlp_identity_free(&who);
    str_free(&body);
    return rc;
}

static void tell_readings(void *ctx, const struct family_sink *to)
{
    readings_export(ctx, to);
}

enum err_code otlp_readings_send(const struct otlp_target *t, const struct readings *r,
                                 struct otlp_answer *answer, struct err *why)
{
    const struct otlp_live live = { r->machine, tell_readings, (void *)r };
    return otlp_metrics_send(t, &live, answer, why);
}
