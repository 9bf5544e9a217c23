/* qdyno tokenize: converts text to token ids and back; ids are one JSON array. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/gguf/gguf.h"
#include "engine/import/import.h"
#include "tui/cli/commands.h"

/* clang-format off */
const struct cli_flag FLAGS_TOKENIZE[] = {
    FLAG_MODEL_ROW,
    { .name = "-p", .alias = "--prompt", .value = "TEXT",
      .help = "the text; with --detokenize: ids such as 1,2,3 or a JSON array" },
    { .name = "-f", .alias = "--file", .value = "FILE",
      .help = "read the text from a file; - is standard input" },
    { .name = "--detokenize", .help = "convert ids to text" },
    { .name = "--no-bos", .help = "do not add the BOS token, even if the model asks for it" },
    { .name = "--no-parse-special", .help = "treat control tokens in the text as plain text" },
    { .name = NULL },
};
/* clang-format on */

/* Ids may be separated by blanks, commas and brackets. */
enum err_code ids_parse(struct token_list *ids, const char *text, struct err *why)
{
    for (const char *p = text; *p;) {
        size_t n = strspn(p, "-+0123456789");
        if (!n) {
            if (!strchr(" ,[]\t\r\n", *p))
                return err_set(why, ERR_USAGE, "'%.20s' is not a list of token ids: expected e.g. 1,2,3", p);
            p++;
            continue;
        }
        char word[32];
        int64_t id;
        snprintf(word, sizeof word, "%.*s", (int)MIN(n, sizeof word - 1), p);
        if (!str_to_i64(word, &id) || id < 0 || id > INT32_MAX)
            return err_set(why, ERR_USAGE, "token id '%s': expected a whole number from 0", word);
        enum err_code rc = token_list_push(ids, (int32_t)id, why);
        if (rc) return rc;
        p += n;
    }
    return ids->n ? ERR_OK : err_set(why, ERR_USAGE, "no token id in '%.20s': expected e.g. 1,2,3", text);
}

static enum err_code print_ids(const struct cli_args *a, const struct tokenizer *k, const char *text,
                               size_t n, struct err *why)
{
    struct token_list ids = { 0 };
    unsigned flags = (args_has(a, "--no-bos") ? 0 : TOKENIZE_ADD_BOS) |
                     (args_has(a, "--no-parse-special") ? 0 : TOKENIZE_SPECIAL);
    enum err_code rc = tokenizer_encode(k, text, n, flags, &ids, why);
    if (!rc) {
        putchar('[');
        for (int64_t i = 0; i < ids.n; i++) printf("%s%d", i ? "," : "", ids.ids[i]);
        printf("]\n");
    }
    token_list_free(&ids);
    return rc;
}

static enum err_code print_text(const struct tokenizer *k, const char *text, struct err *why)
{
    struct token_list ids = { 0 };
    struct str out = { 0 };
    enum err_code rc = ids_parse(&ids, text, why);
    if (!rc) rc = tokenizer_decode(k, ids.ids, ids.n, true, &out, why);
    if (!rc) {
        struct str safe = { 0 };
        if (isatty(STDOUT_FILENO)) sink_append(&safe, SINK_TERMINAL, str_text(&out), out.len);
        const struct str *shown = isatty(STDOUT_FILENO) ? &safe : &out;
        fwrite(str_text(shown), 1, shown->len, stdout);
        putchar('\n');
        str_free(&safe);
    }
    token_list_free(&ids);
    str_free(&out);
    return rc;
}

int command_tokenize(const struct cli_global *g, const struct cli_args *a)
{
    (void)g;
    struct err why = { 0 };
    struct gguf *file = NULL;
    struct tokenizer *k = NULL;
    char *path = NULL, *text = NULL;
    size_t n = 0;
    enum err_code rc = cli_text(&text, &n, a, &why);
    if (!rc) rc = cli_model(&path, a, &why);
    if (!rc) rc = model_file_open(&file, path, &why);
    if (!rc) rc = tokenizer_open(&k, file, &why);
    if (!rc) rc = gguf_check_unchanged(file, &why);
    if (!rc) rc = args_has(a, "--detokenize") ? print_text(k, text, &why) : print_ids(a, k, text, n, &why);
    int status = rc ? cli_fail(a, &why) : EXIT_DONE;
    tokenizer_close(k);
    gguf_close(file);
    free(path);
    free(text);
    return status;
}
