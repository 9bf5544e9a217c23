/* qdyno prune: deletes groups that qdyno pushed to a Pushgateway. A gateway keeps groups forever, so an old
 * result there looks like a new one. Groups that this database has not recorded as pushed stay. */

#include "advisor/outcome/outcome.h"
#include "telemetry/export/export.h"
#include "tui/cli/commands.h"
#include "tui/cli/lib/server_flags.h"

/* clang-format off */
const struct cli_flag FLAGS_PRUNE[] = {
    { .name = "--url", .value = "URL",
      .help = "Pushgateway, e.g. http://localhost:9091 (also: QDYNO_PUSH_URL)" },
    { .name = "--older-than", .exclusive = true, .value = "TIME", .kind = FLAG_SECONDS,
      .help = "only groups whose last push is older than this; default 30d" },
    { .name = "--all", .exclusive = true, .help = "all groups that qdyno pushed, whatever their age" },
    { .name = "--dry-run", .help = "print the groups and delete nothing" },
    TARGET_FLAGS("QDYNO_PUSH", TIMEOUT_OF_REQUEST),
    { .name = NULL },
};
/* clang-format on */

#define DEFAULT_AGE_S (30 * 86400.0)

static const struct column COLUMNS[] = {
    COL("group", "group"),
    COL("last_pushed", "last pushed"),
    COL("fate", "result"),
};

DOCUMENT(PRUNE, "qdyno.prune/1", COLUMNS);

static void prune_on_group(void *ctx, const struct group_row *group, enum prune_fate fate)
{
    static const char *const FATES[] = {
        [PRUNE_KEPT] = "kept", [PRUNE_DELETED] = "deleted", [PRUNE_WOULD] = "would be deleted"
    };
    char when[32];
    json_t *row = table_row(ctx);
    json_put_str(row, "group", group->url);
    json_put_str(row, "last_pushed", clock_iso8601(group->last_ms, when, sizeof when));
    json_put_str(row, "fate", FATES[fate]);
}

int command_prune(const struct cli_global *g, const struct cli_args *a)
{
    struct err why = { 0 };
    struct target to;
    struct table t;
    struct db *d = NULL;
    table_init(&t, &DOCUMENT_PRUNE);
    enum err_code rc = target_read(&to, a, "--url", "QDYNO_PUSH", &why);
    if (!rc && !to.url)
        rc = err_set(
            &why, ERR_USAGE,
            "expected --url URL (the Pushgateway; or QDYNO_PUSH_URL), e.g. --url http://localhost:9091");
    if (!rc) rc = db_open(&d, g->db_path, &why);
    if (!rc) {
        const struct push_target gateway = { .url = to.url, .auth = to.auth };
        const double age_s = args_num(a, "--older-than", DEFAULT_AGE_S);
        const int64_t before_ms = clock_unix_ms() - (int64_t)(age_s * 1e3);
        const struct prune_spec spec = { .before_ms = args_has(a, "--all") ? INT64_MAX : before_ms,
                                         .dry_run = args_has(a, "--dry-run"),
                                         .said = prune_on_group,
                                         .ctx = &t };
        rc = outcome_prune(d, &gateway, &spec, &why);
    }
    const bool some = json_array_size(t.rows) > 0;
    if (!rc && !some) table_note(&t, "qdyno has pushed no group to this gateway");
    /* also list what was deleted before a failure */
    int status = !rc || some ? cli_print(g, a, &t, EXIT_DONE) : EXIT_DONE;
    if (rc) status = cli_fail(a, &why);
    table_done(&t);
    db_close(d);
    target_done(&to);
    return status;
}
