/* command_eval_task.c - see command_eval_task.h. */
#include "tui/cli/command_eval_task.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "advisor/run/run.h"
#include "engine/arch/arch.h"
#include "engine/chat/chat.h"
#include "engine/eval/eval.h"
#include "engine/import/import.h"
#include "engine/model/model.h"
#include "telemetry/machine/machine.h"
#include "tui/cli/command_eval_run.h"
#include "tui/cli/documents.h"
#include "tui/cli/lib/measured.h"
#include "tui/cli/lib/runs.h"
#include "tui/cli/lib/sampling.h"

static const struct column COLUMNS[] = {
    COL("model", "model"),
    COL("config", "config"),
    COL("items", "items", .kind = COLUMN_INT),
    COL("accuracy", "right %", .kind = COLUMN_NUM, .scale = 100, .digits = 2),
    COL("accuracy_lower", "from", .kind = COLUMN_NUM, .scale = 100, .digits = 2),
    COL("accuracy_upper", "to", .kind = COLUMN_NUM, .scale = 100, .digits = 2),
    COL("accuracy_norm", "by length %", .kind = COLUMN_NUM, .scale = 100, .digits = 2),
    KEY("accuracy_norm_lower", .kind = COLUMN_NUM),
    KEY("accuracy_norm_upper", .kind = COLUMN_NUM),
    COL("accuracy_change", "change", .kind = COLUMN_NUM, .scale = 100, .digits = 2),
    COL("accuracy_change_lower", "from", .kind = COLUMN_NUM, .scale = 100, .digits = 2),
    COL("accuracy_change_upper", "to", .kind = COLUMN_NUM, .scale = 100, .digits = 2),
    COL("only_reference_right", "lost", .kind = COLUMN_INT),
    COL("only_candidate_right", "won", .kind = COLUMN_INT),
    COL("mcnemar_p", "McNemar p", .kind = COLUMN_NUM, .digits = 4),
    KEY("flips"),
    COL("seconds", "seconds", .kind = COLUMN_NUM, .digits = 1),
    KEY("random_weights", .kind = COLUMN_BOOL),
    COL("error", "error"),
};

DOCUMENT(EVAL_TASK, "qdyno.eval_task/1", COLUMNS,
         .members = "task task_sha256 items shots chat template chance run machine labels.* reference.*");

struct asking {
    struct measured m;
    const char *file;
    char sha256[HASH_HEX];
    int ctx, shots;
    bool chat;
    const char *template_file; /* of --chat; NULL: the model's */
    struct task_set set;
    struct task_answers reference;
    bool random;
};

static bool on_item(void *arg, int done, int of, int right)
{
    struct asking *k = arg;
    progress_show(&k->m.progress, "%s  item %d/%d  %d right", k->m.line, done, of, right);
    return !cli_is_interrupted(k->m.g);
}

/* Opens the model of a config. *path is owned by the caller. */
static enum err_code model_opened(struct model **m, char **path, struct asking *k, const struct config *c,
                                  struct err *why)
{
    config_line(c, k->m.line, sizeof k->m.line);
    enum err_code rc = cli_config_model(path, k->m.a, c, why);
    progress_show(&k->m.progress, "%s  loading", k->m.line);
    return rc ? rc : cli_model_open(m, k->m.g, *path, c, k->ctx, why);
}

/* Asks all questions, through the chat template if that was asked for. */
static enum err_code questions_ask(struct task_answers *out, struct asking *k, struct model *m,
                                   struct err *why)
{
    struct chat *chat = NULL;
    enum err_code rc = ERR_OK;
    if (k->chat && model_tokenizer(m))
        rc = chat_open(&chat, model_gguf(m), model_tokenizer(m), k->template_file, why);
    if (!rc) rc = task_answer(out, m, &k->set, chat, on_item, k, why);
    chat_close(chat);
    return rc;
}

/* Before any model is loaded: a file without a template is a wrong command, not a bad result. */
static enum err_code check_template(const struct asking *k, const struct config *c, struct err *why)
{
    struct gguf *file = NULL;
    struct tokenizer *t = NULL;
    char *path = NULL, advice[CHAT_ADVICE];
    if (!k->chat || k->template_file) return ERR_OK;
    enum err_code rc = cli_config_model(&path, k->m.a, c, why);
    if (!rc) rc = model_file_open(&file, path, why);
    if (!rc && !chat_has_template(file)) {
        if (tokenizer_open(&t, file, NULL)) t = NULL;
        rc = err_set(why, ERR_USAGE,
                     "--chat: '%s' has no chat template (tokenizer.chat_template). Leave --chat out, or %s",
                     path, chat_template_advice(t, advice));
        tokenizer_close(t);
    }
    gguf_close(file);
    free(path);
    return rc;
}

/* ---------------------------------------------------------------- figures */

static void put_share(json_t *to, const char *name, const bool *right, int n)
{
    char key[64];
    const struct task_share s = task_share(right, n);
    json_put_num(to, name, s.share);
    snprintf(key, sizeof key, "%s_lower", name);
    json_put_num(to, key, s.lower);
    snprintf(key, sizeof key, "%s_upper", name);
    json_put_num(to, key, s.upper);
}

static void put_answers(json_t *to, const struct task_answers *x)
{
    json_put_int(to, "items", x->n);
    put_share(to, "accuracy", x->right, x->n);
    put_share(to, "accuracy_norm", x->right_normalized, x->n);
}

/* Items that only one of them has right, by their number in the file. */
static void put_pair(struct asking *k, json_t *to, const struct task_answers *x)
{
    if (!k->reference.n) return;
    const struct task_pair p = task_compare(k->reference.right, x->right, x->n);
    json_t *flips = json_array();
    for (int i = 0; i < x->n; i++)
        if (x->right[i] != k->reference.right[i])
            json_array_append_new(flips,
                                  json_pack("{s:i,s:b}", "item", k->shots + i + 1, "right", x->right[i]));
    json_put_num(to, "accuracy_change", p.change);
    json_put_num(to, "accuracy_change_lower", p.lower);
    json_put_num(to, "accuracy_change_upper", p.upper);
    json_put_int(to, "only_reference_right", p.only_first);
    json_put_int(to, "only_candidate_right", p.only_second);
    json_put_num(to, "mcnemar_p", p.p);
    json_put(to, "flips", flips);
}

static json_t *row_new(struct asking *k, const char *path)
{
    json_t *row = table_row(&k->m.table);
    json_put_str(row, "model", cli_base_name(path));
    json_put_str(row, "config", k->m.line);
    return row;
}

/* ---------------------------------------------------------------- the run */

/* Asks one config and stores what it answered. */
static enum err_code config_ask(struct asking *k, struct model *m, const char *path, int64_t begun_ns,
                                struct err *why)
{
    struct measured_cell c;
    struct task_answers x = { 0 };
    json_t *echo = json_object();
    run_measure_begin(&k->m.run, &c, getpid());
    const enum err_code rc = questions_ask(&x, k, m, &c.failure);
    c.failure.code = rc;
    run_measure_end(&k->m.run, &c);
    if (rc == ERR_CANCELLED) {
        *why = c.failure;
    } else {
        json_t *row = row_new(k, path);
        if (rc) json_put_str(row, "error", c.failure.message);
        if (!rc) put_answers(row, &x), put_pair(k, row, &x), put_answers(echo, &x);
        json_put_num(row, "seconds", (double)(clock_ns() - begun_ns) * 1e-9);
        json_put_bool(row, "random_weights", model_shape(m)->random_weights);
        k->random |= model_shape(m)->random_weights;
        k->m.ok += !rc;
        if (rc && !k->m.first.code) k->m.first = c.failure;
    }
    snprintf(c.work_hash, sizeof c.work_hash, "%.16s", k->sha256);
    const struct run_place place = {
        .arm = k->m.at, .block = -1, .phase = "eval", .config = k->m.line, .echo = echo
    };
    const enum err_code kept = rc == ERR_CANCELLED ? rc : run_store(&k->m.run, &place, &c, why);
    json_decref(echo);
    task_answers_free(&x);
    return kept;
}

static enum err_code config_run(struct asking *k, struct err *why)
{
    struct model *m = NULL;
    struct err opening = { 0 };
    char *path = NULL;
    const struct moment begun = moment_now();
    enum err_code rc = model_opened(&m, &path, k, &k->m.configs[k->m.at], &opening);
    if (!rc) {
        char sha256[HASH_HEX];
        rc = eval_model_opened(&k->m, sha256, "task", k->file, m, begun, why);
        if (!rc) rc = config_ask(k, m, path, begun.clock_ns, why);
    } else if (rc == ERR_CANCELLED || !path) {
        *why = opening;
    } else { /* a config that cannot run becomes a row */
        json_put_str(row_new(k, path), "error", opening.message);
        if (!k->m.first.code) k->m.first = opening;
        rc = ERR_OK;
    }
    model_close(m);
    free(path);
    return rc;
}

static enum err_code reference_ask(struct asking *k, const struct config *ref, struct err *why)
{
    struct model *m = NULL;
    char *path = NULL;
    if (!ref) return ERR_OK;
    enum err_code rc = model_opened(&m, &path, k, ref, why);
    if (!rc) rc = questions_ask(&k->reference, k, m, why);
    if (!rc) {
        json_t *about = json_object();
        json_put_str(about, "model", cli_base_name(path));
        json_put_str(about, "config", k->m.line);
        put_answers(about, &k->reference);
        json_put(k->m.table.extra, "reference", about);
        const struct task_share s = task_share(k->reference.right, k->reference.n);
        table_note(&k->m.table, "reference %s: %.2f %% right (%.2f to %.2f)", k->m.line, 100 * s.share,
                   100 * s.lower, 100 * s.upper);
        k->random |= model_shape(m)->random_weights;
    } else if (rc != ERR_CANCELLED) {
        err_prefix(why, "reference %s", k->m.line);
    }
    model_close(m);
    free(path);
    return rc;
}

static enum err_code asking_init(struct asking *k, struct err *why)
{
    enum { LIMIT = 1 << 28 };
    char *text = NULL;
    size_t n = 0;
    enum err_code rc = file_read(&text, &n, k->file, LIMIT, why);
    if (!rc) hash_bytes(text, n, k->sha256);
    if (!rc && (rc = task_set_parse(&k->set, text, n, k->shots, why))) err_prefix(why, "%s", k->file);
    free(text);
    return rc ? rc : measured_open(&k->m, NULL, why);
}

static void put_extra(struct asking *k)
{
    json_t *to = k->m.table.extra;
    const double chance = task_chance(&k->set);
    json_put_str(to, "task", k->file);
    json_put_str(to, "task_sha256", k->sha256);
    json_put_int(to, "items", k->set.n);
    json_put_int(to, "shots", k->shots);
    json_put_bool(to, "chat", k->chat);
    json_put_str(to, "template", k->template_file);
    json_put_num(to, "chance", chance);
    json_put_str(to, "machine", k->m.machine.id);
    json_put(to, "labels", cli_labels_json(&k->m.labels));
    if (k->m.run.row.id) json_put_int(to, "run", k->m.run.row.id);
    table_note(&k->m.table,
               "%s: %d item%s%s; guessing would have %.1f %% right; from, to: 95 %% Wilson interval",
               cli_base_name(k->file), k->set.n, str_plural(k->set.n),
               k->shots ? ", after those that are shown first" : "", 100 * chance);
    if (k->reference.n)
        table_note(
            &k->m.table,
            "lost, won: items that only the reference, or only this config, has right; -o json lists them");
    cli_note_cautions(&k->m.table, k->random, false);
}

static int asking_finish(struct asking *k, enum err_code rc, struct err *why)
{
    progress_clear(&k->m.progress);
    put_extra(k);
    rc = cli_run_finish(&k->m.run, &k->m.table, "done", rc, why);
    return measured_print(&k->m, rc, why);
}

int eval_task(const struct cli_global *g, const struct cli_args *a, const struct config *configs, int n,
              const struct config *ref)
{
    struct err why = { 0 };
    struct asking *k = calloc(1, sizeof *k);
    if (!k) return cli_fail_memory(a);
    *k = (struct asking){ .file = args_text(a, "--task", ""),
                          .ctx = (int)args_int(a, "-c", 512),
                          .shots = (int)args_int(a, "--shots", 0),
                          .chat = args_has(a, "--chat"),
                          .template_file = args_text(a, "--template", NULL),
                          .m = { .configs = configs, .n = n } };
    measured_init(&k->m, g, a, &DOCUMENT_EVAL_TASK);
    enum err_code rc = ref ? check_template(k, ref, &why) : ERR_OK;
    for (int i = 0; i < n && !rc; i++) rc = check_template(k, &configs[i], &why);
    if (rc) {
        measured_close(&k->m);
        free(k);
        return cli_fail(a, &why);
    }
    rc = asking_init(k, &why);
    if (!rc) rc = reference_ask(k, ref, &why);
    for (k->m.at = 0; k->m.at < n && !rc; k->m.at++) rc = config_run(k, &why);
    const int status = asking_finish(k, rc, &why);
    measured_close(&k->m);
    task_set_free(&k->set);
    task_answers_free(&k->reference);
    free(k);
    return status;
}

enum err_code eval_task_check(const struct cli_args *a, struct err *why)
{
    static const char *const WITHOUT[] = { "-f", "--prompts", "--set-text", "--chunks", "--gate" };
    const bool task = args_has(a, "--task");
    for (size_t i = 0; task && i < COUNT_OF(WITHOUT); i++)
        if (args_has(a, WITHOUT[i]))
            return err_set(why, ERR_USAGE, "--task and %s exclude each other: leave one out", WITHOUT[i]);
    return ERR_OK;
}
