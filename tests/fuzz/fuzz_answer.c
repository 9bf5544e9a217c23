/* What the program reads from its child processes: the lines of a worker on its socket, with everything that
 * is read from an answer, and the description of a plug-in. A child may have crashed or been taken over by
 * what it loaded. */
#include "advisor/run/arm_worker.c" /* the functions between socket and answer are private to that file */

#include "advisor/experiment/experiment.h"
#include "engine/eval/eval.h"
#include "engine/quant/plugin.h"
#include "tests/fuzz/cost.h"

enum { INPUT_MOST = 1 << 16 };

static const struct cost_ceiling CEILING = {
    .seconds = 0.2, .seconds_per_mb = 20, .mb = 16, .mb_per_mb = 1000
};

static bool on_event(void *ctx, const json_t *event)
{
    int *left = ctx;
    return !event || --*left;
}

static void read_parts(const json_t *answer)
{
    static struct request_rows rows;
    static struct quality quality;
    static struct config config;
    struct request_figures figures;
    struct memory_plan plan;
    struct divergence divergence;
    struct span_row spans[SPANS_MOST];
    struct err why = { 0 };
    request_read(&rows, &figures, answer);
    spans_read(spans, 0, COUNT_OF(spans), answer, moment_now());
    const json_t *part = json_object_get(answer, "plan");
    memory_plan_from_json(&plan, part ? part : answer);
    part = json_object_get(answer, "config");
    if (config_from_json(&config, part ? part : answer, &why) && !why.message[0]) abort();
    part = json_object_get(answer, "quality");
    divergence_from_json(&divergence, part ? part : answer);
    quality_from_json(&quality, part ? part : answer);
    json_decref(quality_to_json(&quality));
}

static void use_lines(const uint8_t *data, size_t size)
{
    int pair[2], events = 16;
    if (size > INPUT_MOST || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) return;
    if (size && send(pair[1], data, size, 0) != (ssize_t)size) abort();
    shutdown(pair[1], SHUT_WR);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    struct worker w = { .fd = pair[0], .said = { .fd = -1 } };
    json_t *request = json_object(), *answer = NULL;
    enum err_code rc = ERR_OK;
    while (!rc && w.fd >= 0) {
        struct err why = { 0 };
        w.next_id = 0; /* answers of the input are to request 1 */
        rc = worker_request(&w, request, &answer, on_event, &events, &why);
        if (rc ? !why.message[0] || answer : !answer) abort();
        if (!rc) read_parts(answer);
        json_decref(answer);
        answer = NULL;
    }
    json_decref(request);
    str_free(&w.in);
    fd_close(&w.fd);
    close(pair[1]);
}

static void use_description(const uint8_t *data, size_t size)
{
    json_t *o;
    struct plugin *p;
    struct err why = { 0 };
    if (json_parse(&o, (const char *)data, size, &why)) return;
    if (!plugin_from_json(&p, "/plugin.so", o, &why))
        plugin_free(p);
    else if (!why.message[0])
        abort();
    read_parts(o);
    json_decref(o);
}

static void use(const uint8_t *data, size_t size)
{
    use_lines(data, size);
    use_description(data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return cost_run(use, data, size, &CEILING);
}
