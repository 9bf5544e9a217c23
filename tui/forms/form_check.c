/* tui/forms/form_check.c - checks the text of a field with the parsers that the command line uses. Each check
 * returns ERR_OK, or an error that says what was expected. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tui/forms/forms.h"
#include "advisor/advise/advise.h"
#include "db/db.h"
#include "engine/arch/arch.h"
#include "engine/config/config.h"
#include "engine/eval/eval.h"
#include "engine/gguf/gguf.h"
#include "engine/model/model.h"
#include "engine/plan/plan.h"
#include "telemetry/http/http.h"

static enum err_code check_config(const char *text, struct err *why)
{
    struct config c;
    if (!*text)
        return err_set(why, ERR_USAGE,
                       "empty: expected a config line such as q8_0,threads=2 (\"default\" for none)");
    return config_parse(&c, text, why);
}

/* The third and later arms of an A/B are optional. */
static enum err_code check_more(const char *text, struct err *why)
{
    return *text ? check_config(text, why) : ERR_OK;
}

/* Only the keys that decide what is written: the others belong to the run, and the file would not keep them.
 */
static enum err_code check_recipe(const char *text, struct err *why)
{
    struct config c;
    enum err_code rc = *text
                           ? config_parse(&c, text, why)
                           : err_set(why, ERR_USAGE, "empty: expected a recipe such as q4_K or gptq,bits=4");
    for (int k = 0; !rc && k < KNOB_COUNT; k++)
        if (c.given[k] && k != KNOB_METHOD && k != KNOB_FORMAT && k != KNOB_PARAMS && k != KNOB_TENSORS &&
            k != KNOB_CALIB)
            rc = err_set(why, ERR_USAGE, "%s is not part of a recipe: set it when the file is run",
                         KNOBS[k].key);
    return rc;
}

static enum err_code check_workload(const char *text, struct err *why)
{
    struct workload w;
    return workload_parse(&w, text, why);
}

static enum err_code check_url(const char *text, struct err *why)
{
    return http_url_check("Pushgateway", text, HTTP_URL_BASE, why);
}

/* No shell expands a path that is typed into a form, so "~" is expanded here. */
const char *form_path(const char *text, char *buf, size_t size)
{
    const char *home = getenv("HOME");
    if (text[0] == '~' && (text[1] == '/' || !text[1]) && home)
        snprintf(buf, size, "%s%s", home, text + 1);
    else
        snprintf(buf, size, "%s", text);
    return buf;
}

static enum err_code check_readable(const char *text, struct err *why)
{
    struct stat st;
    char path[4096];
    form_path(text, path, sizeof path);
    if (stat(path, &st) || access(path, R_OK))
        return err_set(why, ERR_USAGE,
                       errno == EACCES ? "%s may not be read: permission denied" : "no readable file at %s",
                       path);
    if (S_ISDIR(st.st_mode)) return err_set(why, ERR_USAGE, "%s is a folder: expected a file", path);
    return ERR_OK;
}

static enum err_code check_model(const char *text, struct err *why)
{
    if (!*text) return err_set(why, ERR_USAGE, "empty: expected the path of a GGUF file");
    return check_readable(text, why);
}

/* Optional: an empty field keeps the default. */
static enum err_code check_file(const char *text, struct err *why)
{
    return *text ? check_readable(text, why) : ERR_OK;
}

/* A file to write with one of these endings, in an existing folder: creating folders would hide typing
 * mistakes. */
static enum err_code check_target(const char *text, const char *const *endings, struct err *why)
{
    struct stat st;
    char path[4096], folder[4096];
    struct str list = { 0 };
    bool ends = false;
    form_path(text, path, sizeof path);
    for (const char *const *e = endings; *e; e++) {
        ends |= str_ends(path, *e) && strlen(path) > strlen(*e);
        str_printf(&list, "%s%s", e == endings ? "" : " ", *e);
    }
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = '\0';
    const char *in = slash ? folder : ".";
    enum err_code rc = ERR_OK;
    if (!ends)
        rc = err_set(why, ERR_USAGE, "expected a file that ends in %s", str_text(&list));
    else if (!stat(path, &st) && !S_ISREG(st.st_mode))
        rc = err_set(why, ERR_USAGE, "%s exists and is not a regular file", path);
    else if (access(in, F_OK))
        rc = err_set(why, ERR_USAGE, "folder %s does not exist", in);
    else if (access(in, W_OK | X_OK))
        rc = err_set(why, ERR_USAGE, "folder %s is not writable", in);
    str_free(&list);
    return rc;
}

static enum err_code check_out(const char *text, struct err *why)
{
    static const char *const ENDINGS[] = { ".gguf", NULL };
    return check_target(text, ENDINGS, why);
}

static enum err_code check_report(const char *text, struct err *why)
{
    static const char *const ENDINGS[] = { ".html", ".md", ".svg", NULL };
    return check_target(text, ENDINGS, why);
}

static enum err_code check_budget(const char *text, struct err *why)
{
    double seconds;
    if (str_to_seconds(text, &seconds) && seconds > 0) return ERR_OK;
    return err_set(why, ERR_USAGE, "expected a time such as 90s, 5m or 1h");
}

/* A margin above 50 % would call almost any two configs equivalent. */
static enum err_code check_margin(const char *text, struct err *why)
{
    double v;
    if (str_to_ratio(text, &v) && v > 0 && v <= 0.5) return ERR_OK;
    return err_set(why, ERR_USAGE, "expected a percentage such as 1%% (above 0, at most 50%%)");
}

bool form_says_no(const char *text)
{
    return !*text || !strcmp(text, "no");
}

/* "no", "yes", or a file: one field decides whether quality is measured and on which text. */
static enum err_code check_quality(const char *text, struct err *why)
{
    if (form_says_no(text) || !strcmp(text, "yes")) return ERR_OK;
    enum err_code rc = check_readable(text, why);
    return rc ? err_prefix(why, "expected no, yes (measure on this model's text) or a text file") : ERR_OK;
}

static enum err_code check_goal(const char *text, struct err *why)
{
    enum goal g;
    if (goal_parse(text, &g)) return ERR_OK;
    return err_set(why, ERR_USAGE, "expected one of balanced speed quality memory energy");
}

/* Without a file of questions, which only the command line takes, there is no limit on right answers. */
static enum err_code check_limit(const char *text, struct err *why)
{
    int64_t memory_bytes;
    double kld;
    return limits_parse(text, &memory_bytes, &kld, NULL, why);
}

/* The name becomes a word of command lines that people copy, so it must not need quotes. */
static enum err_code check_name(const char *text, struct err *why)
{
    if (*text && !strpbrk(text, " \t'\"")) return ERR_OK;
    return err_set(why, ERR_USAGE, "expected a name without spaces, such as main or release-1");
}

/* Checks the quotes and that there is a word; what the command means is checked when it starts. */
static enum err_code check_command(const char *text, struct err *why)
{
    struct arena arena = { 0 };
    struct words words = { .arena = &arena };
    enum err_code rc = words_put_line(&words, text, why);
    if (!rc && !words.n)
        rc = err_set(why, ERR_USAGE, "empty: expected a command such as report ID --out run.html");
    arena_free(&arena);
    return rc;
}

static enum err_code check_prompt(const char *text, struct err *why)
{
    if (*text) return ERR_OK;
    return err_set(why, ERR_USAGE, "empty: expected a prompt for both arms to continue");
}

/* Any text. */
static enum err_code check_nothing(const char *text, struct err *why)
{
    (void)text;
    (void)why;
    return ERR_OK;
}

static enum err_code check_filter(const char *text, struct err *why)
{
    if (strlen(text) >= FILTER_TEXT)
        return err_set(why, ERR_USAGE, "a filter has at most %d bytes, and this one has %d", FILTER_TEXT - 1,
                       (int)strlen(text));
    return db_filter_check(text, why);
}

static const char COMPARE[] = "compare";

static enum err_code check_then(const char *text, struct err *why)
{
    if (!strcmp(text, "use") || !strcmp(text, COMPARE)) return ERR_OK;
    return err_set(why, ERR_USAGE, "'%.80s': expected use or compare", text);
}

bool form_compares(const struct form *f)
{
    return f->kind == FORM_SETTING && !strcmp(f->field[1].text, COMPARE);
}

static enum err_code (*const CHECKS[ASK_KINDS])(const char *text, struct err *why) = {
    [ASK_TEXT] = check_nothing,    [ASK_LIMIT] = check_limit,     [ASK_CONFIG] = check_config,
    [ASK_MORE] = check_more,       [ASK_RECIPE] = check_recipe,   [ASK_WORKLOAD] = check_workload,
    [ASK_MODEL] = check_model,     [ASK_FILE] = check_file,       [ASK_SCORED] = check_file,
    [ASK_OUT] = check_out,         [ASK_REPORT] = check_report,   [ASK_BUDGET] = check_budget,
    [ASK_MARGIN] = check_margin,   [ASK_QUALITY] = check_quality, [ASK_GOAL] = check_goal,
    [ASK_URL] = check_url,         [ASK_FILTER] = check_filter,   [ASK_NAME] = check_name,
    [ASK_COMMAND] = check_command, [ASK_PROMPT] = check_prompt,   [ASK_THEN] = check_then,
};

enum err_code form_check(enum form_ask ask, const char *text, struct err *why)
{
    return CHECKS[ask](text, why);
}
