/* command_models_hub.c - see command_models_hub.h. */
#include "tui/cli/command_models_hub.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor/hub/hub.h"
#include "advisor/predict/predict.h"
#include "engine/arch/arch.h"
#include "engine/gguf/gguf.h"
#include "tui/cli/documents.h"
#include "tui/cli/lib/lib.h"

/* ---------------------------------------------------------------- connection */

struct asking {
    const struct cli_global *g;
    struct progress progress;
    struct hub *hub;
};

static bool asking_goes_on(void *ctx)
{
    const struct asking *s = ctx;
    return !cli_is_interrupted(s->g);
}

static void asking_note(void *ctx, const char *text)
{
    struct asking *s = ctx;
    progress_clear(&s->progress);
    cli_note(s->g, "%s", text);
}

static enum err_code asking_open(struct asking *s, const struct cli_global *g, struct err *why)
{
    *s = (struct asking){ .g = g };
    progress_init(&s->progress, g);
    const struct hub_options o = {
        .offline = g->offline, .goes_on = asking_goes_on, .note = asking_note, .ctx = s
    };
    return hub_open(&s->hub, &o, why);
}

static void asking_close(struct asking *s)
{
    progress_clear(&s->progress);
    hub_close(s->hub);
}

/* ---------------------------------------------------------------- --search */

static const struct column SEARCH_COLUMNS[] = {
    COL("name", "name"),
    COL("downloads", "downloads", .kind = COLUMN_INT),
    COL("likes", "likes", .kind = COLUMN_INT),
    COL("gate", "licence gate"),
};
DOCUMENT(MODELS_SEARCH, "qdyno.models_search/1", SEARCH_COLUMNS);

int models_search(const struct cli_global *g, const struct cli_args *a, const char *text)
{
    struct asking s;
    struct err why = { 0 };
    struct table t;
    struct hub_found *found = NULL;
    int n = 0;
    enum err_code rc = asking_open(&s, g, &why);
    if (!rc) rc = hub_search(&found, &n, s.hub, text, (int)args_int(a, "--limit", 20), &why);
    asking_close(&s);
    if (rc) return cli_fail(a, &why);
    table_init(&t, &DOCUMENT_MODELS_SEARCH);
    for (int i = 0; i < n; i++) {
        struct str name = { 0 };
        json_t *row = table_row(&t);
        str_printf(&name, "hf:%s", found[i].id);
        json_put_str(row, "name", str_text(&name));
        if (found[i].downloads >= 0) json_put_int(row, "downloads", found[i].downloads);
        if (found[i].likes >= 0) json_put_int(row, "likes", found[i].likes);
        json_put_str(row, "gate", *found[i].gate ? found[i].gate : NULL);
        str_free(&name);
    }
    if (n)
        table_note(&t, "the files of a repository, and how they would run here: qdyno models --remote NAME");
    else
        table_note(&t, "no repository with GGUF files has '%s' in its name", text);
    hub_found_free(found, n);
    return cli_finish(g, a, &t, EXIT_DONE);
}

/* ---------------------------------------------------------------- --remote */

static const struct column REMOTE_COLUMNS[] = {
    COL("file", "file"),
    COL("kind", "kind"),
    KEY("name"),
    COL("arch", "architecture"),
    COL("params", "M parameters", .kind = COLUMN_NUM, .scale = 1e-6),
    COL("quantization", "quantization"),
    COL("bytes", "size", .kind = COLUMN_BYTES),
    KEY("shards", .kind = COLUMN_INT),
    COL("total_bytes", "memory", .kind = COLUMN_BYTES),
    COL("fits", "fits", .kind = COLUMN_BOOL),
    COL("decode_tok_s", "decode tok/s", .kind = COLUMN_NUM, .digits = 1),
    COL("decode_low_tok_s", "from", .kind = COLUMN_NUM, .digits = 1),
    COL("decode_high_tok_s", "to", .kind = COLUMN_NUM, .digits = 1),
    COL("prefill_tok_s", "prompt tok/s", .kind = COLUMN_NUM, .digits = 0),
    KEY("prefill_low_tok_s", .kind = COLUMN_NUM),
    KEY("prefill_high_tok_s", .kind = COLUMN_NUM),
    KEY("header_bytes", .kind = COLUMN_BYTES),
    COL("error", "why not"),
};
DOCUMENT(MODELS_REMOTE, "qdyno.models_remote/1", REMOTE_COLUMNS, .members = "repo revision commit");

/* This machine, for predictions. */
struct predicting {
    struct machine machine;
    struct machine_ceilings ceilings;
    struct correction *correction; /* NULL: none */
};

static enum err_code predicting_init(struct predicting *p, const struct cli_global *g, struct err *why)
{
    struct db *d = NULL;
    enum err_code rc = cli_machine(g, PROBE_IF_MISSING, &p->machine, &p->ceilings, NULL, why);
    if (!rc) rc = db_open(&d, g->db_path, why);
    if (!rc) rc = correction_load(&p->correction, d, p->machine.id, &p->ceilings, why);
    db_close(d);
    return rc;
}

/* What the header says of the model, and how it would run here. */
static void put_header(json_t *row, const struct gguf *file, const struct predicting *p)
{
    struct model_shape shape;
    struct prediction x;
    struct config plain;
    struct err why = { 0 };
    struct predict_for what = { .on_gpu = p->ceilings.gpu.read_bytes_s > 0, .correction = p->correction };
    config_default(&plain);
    enum err_code rc = model_shape_read(&shape, file, &why);
    if (!rc) {
        json_put_str(row, "arch", shape.arch);
        json_put_int(row, "params", shape.params);
        json_put_str(row, "quantization", quantization_short(&shape));
        rc = gguf_check_types(file, &why);
    }
    const bool known = !rc;
    if (known) rc = predict(&x, file, &plain, &p->machine, &p->ceilings, &what, &why);
    if (known && what.on_gpu && (rc || !x.fits)) { /* as `qdyno models` and `qdyno advise` do */
        what.on_gpu = false;
        rc = predict(&x, file, &plain, &p->machine, &p->ceilings, &what, &why);
    }
    if (rc) {
        json_put_str(row, "error", why.message);
        return;
    }
    json_put_int(row, "total_bytes", x.plan.total);
    json_put_bool(row, "fits", x.fits);
    const struct {
        const char *key;
        double value;
    } FIGURES[] = {
        { "decode_tok_s", x.decode_tok_s.estimate },    { "decode_low_tok_s", x.decode_tok_s.lower },
        { "decode_high_tok_s", x.decode_tok_s.upper },  { "prefill_tok_s", x.prefill_tok_s.estimate },
        { "prefill_low_tok_s", x.prefill_tok_s.lower }, { "prefill_high_tok_s", x.prefill_tok_s.upper },
    };
    for (size_t i = 0; i < COUNT_OF(FIGURES); i++) json_put_num(row, FIGURES[i].key, FIGURES[i].value);
}

/* The row of a file, or of a split model. Errors of the file itself are a column. */
static enum err_code put_file(struct table *t, struct asking *s, const struct hub_repo *r, int file,
                              const struct predicting *p, struct err *why)
{
    const struct hub_file *f = &r->files[file];
    const enum model_file_kind kind = model_file_kind(path_file_name(f->path));
    struct model_name name = { .store = r->store, .is_file = true, .remote = true };
    struct hub_head *head = NULL;
    struct err failed = { 0 };
    char text[MODEL_NAME_TEXT];
    int *index = NULL, n = 0;
    int64_t bytes = 0;
    json_t *row = table_row(t);
    snprintf(name.repo, sizeof name.repo, "%s", r->asked);
    json_put_str(row, "file", f->path);
    json_put_str(row, "kind", MODEL_KIND_NAMES[kind]);
    const bool fits = str_put(name.tag, sizeof name.tag, f->path);
    json_put_str(row, "name", fits ? model_name_text(&name, text, sizeof text) : NULL);
    enum err_code rc = fits ? hub_choose(&index, &n, r, &name, &failed)
                            : err_set(&failed, ERR_USAGE, "its path has %zu bytes, expected fewer than %zu",
                                      strlen(f->path), sizeof name.tag);
    for (int i = 0; i < n; i++) bytes += r->files[index[i]].size;
    json_put_int(row, "bytes", rc ? f->size : bytes);
    json_put_int(row, "shards", MAX(n, 1));
    bool ends = false; /* the other files would fail in the same way */
    if (!rc && kind == MODEL_WEIGHTS) {
        progress_show(&s->progress, "reading the header of %s", f->path);
        rc = hub_head_open(&head, s->hub, r, index, n, &failed);
        if (!rc) put_header(row, hub_head_gguf(head), p);
        if (!rc) json_put_int(row, "header_bytes", hub_head_read_bytes(head));
        ends = rc == ERR_ABSENT || rc == ERR_CANCELLED || rc == ERR_NOMEM;
    }
    hub_head_close(head);
    free(index);
    if (!rc) return ERR_OK;
    json_put_str(row, "error", failed.message);
    if (!ends) return ERR_OK;
    *why = failed;
    return rc;
}

static enum err_code put_files(struct table *t, struct asking *s, const struct hub_repo *r, struct err *why)
{
    struct predicting p = { .correction = NULL };
    enum err_code rc = predicting_init(&p, s->g, why);
    for (int i = 0; i < r->n && !rc; i++) {
        int number = 1;
        const char *file = path_file_name(r->files[i].path);
        if (model_file_kind(file) == MODEL_OTHER) continue;
        if (model_file_is_shard(file, &number, NULL, NULL) && number != 1) continue;
        rc = put_file(t, s, r, i, &p, why);
    }
    correction_free(p.correction);
    return rc;
}

/* "OWNER/REPO" alone is a path for -m, and here the name of a repository. */
static enum err_code repo_parse(struct model_name *out, const char *text, struct err *why)
{
    enum err_code rc = model_name_parse(out, text, why);
    if (rc || out->store != STORE_PATH) return rc;
    struct str name = { 0 };
    str_printf(&name, "hf:%s", text);
    rc = model_name_parse(out, str_text(&name), why);
    str_free(&name);
    return rc;
}

int models_remote(const struct cli_global *g, const struct cli_args *a, const char *text)
{
    struct asking s = { 0 };
    struct err why = { 0 };
    struct model_name name;
    struct hub_repo r = { .n = 0 };
    struct table t;
    table_init(&t, &DOCUMENT_MODELS_REMOTE);
    enum err_code rc = repo_parse(&name, text, &why);
    if (!rc) rc = asking_open(&s, g, &why);
    if (!rc) rc = hub_list(&r, s.hub, &name, &why);
    if (!rc) rc = put_files(&t, &s, &r, &why);
    if (s.hub) asking_close(&s);
    if (!rc) {
        json_put_str(t.extra, "repo", r.repo);
        json_put_str(t.extra, "revision", r.revision);
        json_put_str(t.extra, "commit", *r.commit ? r.commit : NULL);
        if (!json_array_size(t.rows)) table_note(&t, "%s has no GGUF file (%d files)", r.repo, r.n);
        table_note(
            &t,
            "memory and speed are predicted from the files' headers for this machine and the default config; nothing "
            "was measured; qdyno models --pull NAME:FILE fetches one");
    }
    hub_repo_done(&r);
    if (!rc) return cli_finish(g, a, &t, EXIT_DONE);
    table_done(&t);
    return cli_fail(a, &why);
}

/* ---------------------------------------------------------------- --pull, -m */

static void pull_progress(void *ctx, const struct hub_progress *at)
{
    struct asking *s = ctx;
    char done[16], bytes[16], rate[16], left[32] = "";
    const struct progress_figures figures = { .done = at->bytes ? (double)at->done_bytes / (double)at->bytes
                                                                : 1,
                                              .rate = at->rate_bytes,
                                              .unit = "B/s",
                                              .left_s = at->left_s };
    if (isfinite(at->left_s)) {
        const int64_t seconds = (int64_t)ceil(at->left_s);
        if (seconds >= 3600)
            snprintf(left, sizeof left, ", %lld h %02lld min left", (long long)seconds / 3600,
                     (long long)seconds / 60 % 60);
        else
            snprintf(left, sizeof left, ", %lld:%02lld left", (long long)seconds / 60,
                     (long long)seconds % 60);
    }
    str_from_bytes(at->done_bytes, done, sizeof done);
    str_from_bytes(at->bytes, bytes, sizeof bytes);
    if (at->checking)
        progress_report(&s->progress, &figures, "%.40s: checking what is here: %s", at->file, done);
    else if (isfinite(at->rate_bytes))
        progress_report(&s->progress, &figures, "%.40s: %s of %s, %s/s%s", at->file, done, bytes,
                        str_from_bytes((int64_t)at->rate_bytes, rate, sizeof rate), left);
    else
        progress_report(&s->progress, &figures, "%.40s: %s of %s", at->file, done, bytes);
}

/* Only a person who sees the question and can answer it is asked. */
static bool can_ask(const struct cli_global *g)
{
    return !g->quiet && g->progress == PROGRESS_AUTO && isatty(STDIN_FILENO) && isatty(STDERR_FILENO);
}

/* Reads a line of the terminal. False: none, or the person pressed Ctrl-C, which ends a wait but not a read.
 */
static bool answer_read(const struct cli_global *g, char *answer, int size)
{
    enum { LOOK_MS = 100 };
    struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };
    for (;;) {
        const int n = poll(&in, 1, LOOK_MS);
        if (cli_is_interrupted(g)) return false;
        if (n > 0 || (n < 0 && errno != EINTR)) return fgets(answer, size, stdin);
    }
}

/* Asks whether so much may be fetched. */
static enum err_code permission(const struct cli_global *g, const struct hub_pull_state *s, struct err *why)
{
    char bytes[16], room[16], answer[16] = "";
    if (g->yes || !s->missing_files) return ERR_OK;
    str_from_bytes(s->missing_bytes, bytes, sizeof bytes);
    str_from_bytes(s->free_bytes, room, sizeof room);
    if (!can_ask(g)) {
        struct str name = { 0 };
        word_append(&name, s->name);
        const enum err_code rc = err_set(
            why, ERR_USAGE, "%s is not on this machine (%s): fetch it with `qdyno models --pull %s`", s->name,
            bytes, str_text(&name));
        str_free(&name);
        return rc;
    }
    fprintf(stderr, "%s is not on this machine. Fetch %s (%d file%s) into %s, which has %s free? [y/N] ",
            s->name, bytes, s->files, str_plural(s->files), s->folder, room);
    fflush(stderr);
    if (!answer_read(g, answer, sizeof answer)) fputc('\n', stderr);
    if (answer[0] == 'y' || answer[0] == 'Y') return ERR_OK;
    return err_set(why, ERR_CANCELLED, "nothing was fetched");
}

/* Fetches. *state and *path: of the model afterwards; the strings of *state are not valid. */
static enum err_code fetch(struct hub_pull_state *state, char **path, const struct cli_global *g,
                           const struct cli_args *a, const struct model_name *name, bool asked,
                           struct err *why)
{
    struct asking s;
    struct hub_pull *p = NULL;
    *path = NULL;
    enum err_code rc = asking_open(&s, g, why);
    if (!rc) rc = hub_pull_open(&p, s.hub, name, args_has(a, "--into"), why);
    if (!rc) hub_pull_state(state, p);
    if (!rc && !asked) rc = permission(g, state, why);
    if (!rc) rc = hub_pull_run(p, pull_progress, &s, why);
    if (!rc && !(*path = strdup(state->path))) rc = err_set(why, ERR_NOMEM, "out of memory");
    asking_close(&s);
    hub_pull_close(p);
    return rc;
}

bool cli_may_fetch(const struct cli_global *g)
{
    return !g->offline && (g->yes || can_ask(g));
}

enum err_code cli_fetch(char **path, const struct cli_global *g, const struct cli_args *a,
                        const struct model_name *name, struct err *why)
{
    struct hub_pull_state state;
    return fetch(&state, path, g, a, name, false, why);
}

static const struct column PULL_COLUMNS[] = {
    COL("name", "name"),
    COL("path", "path"),
    COL("files", "files", .kind = COLUMN_INT),
    COL("bytes", "size", .kind = COLUMN_BYTES),
    COL("fetched_bytes", "fetched", .kind = COLUMN_BYTES),
};
DOCUMENT(MODELS_PULL, "qdyno.models_pull/1", PULL_COLUMNS, .record = true);

int models_pull(const struct cli_global *g, const struct cli_args *a, const char *text)
{
    struct err why = { 0 };
    struct model_name name;
    struct hub_pull_state s;
    struct table t;
    char *path = NULL;
    enum err_code rc = repo_parse(&name, text, &why);
    if (!rc) rc = fetch(&s, &path, g, a, &name, true, &why); /* --pull is the request itself */
    if (rc) return cli_fail(a, &why);
    json_t *row = table_record(&t, &DOCUMENT_MODELS_PULL);
    json_put_str(row, "name", s.name);
    json_put_str(row, "path", path);
    json_put_int(row, "files", s.files);
    json_put_int(row, "bytes", s.bytes);
    json_put_int(row, "fetched_bytes", s.missing_bytes);
    free(path);
    return cli_finish(g, a, &t, EXIT_DONE);
}
