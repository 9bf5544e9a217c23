/* Proves: a report of any run (finished, of 1 to 256 blocks, of many arms, without cells, without known
 * values, with hostile names) is well-formed, self-contained and prints no unknown value as a number; all
 * three formats state the same verdict; the Markdown report equals tests/golden/report_ab.md.
 *
 * After an intended change, QDYNO_UPDATE_GOLDEN=1 ./test_report rewrites the golden file; review its diff. */
#include "tests/check.h"
#include "advisor/experiment/experiment.h"
#include "advisor/stats/stats.h"
#include "tests/tui/report_fixture.h"
#include "tests/tui/xml.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static char *written(const struct report_source *s, enum report_format format)
{
    struct report *r;
    struct str text = { 0 };
    struct err why;
    CHECK_OK(report_build(&r, s, &why));
    report_write(&text, r, format);
    report_free(r);
    char *out = str_take(&text);
    CHECK_NE(out, NULL);
    return out;
}

/* Rows of a table have as many cells as its head, fences close, nothing outside of code is HTML. */
static void check_markdown(const char *text)
{
    bool fence = false;
    size_t ticks = 0;
    int columns = 0, titles = 0;
    for (const char *line = text, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        CHECK_NE(end, NULL);
        if (!fence && !strncmp(line, "```", 3)) {
            ticks = strspn(line, "`");
            fence = true;
            continue;
        }
        if (fence) {
            fence = !(strspn(line, "`") >= ticks && line + strspn(line, "`") == end);
            continue;
        }
        titles += !strncmp(line, "# ", 2);
        int bars = 0;
        bool code = false;
        for (const char *at = line; at < end; at++) {
            if (*at == '\\' && !code && at + 1 < end) {
                at++;
                continue;
            }
            if (*at == '`') code = !code;
            if (*at == '|' && at[-1] != '\\') bars++;
            if (*at == '<' && !code) fail_msg("a bare < in: %.80s", line);
        }
        if (code) fail_msg("code without an end: %.80s", line);
        if (*line != '|') bars = 0;
        if (bars && columns && bars != columns)
            fail_msg("%d cells, the head has %d: %.120s", bars - 1, columns - 1, line);
        columns = bars;
    }
    CHECK(!fence);
    CHECK_EQ(titles, 1);
}

/* Nothing of these may be in a file that stands alone. */
static void check_stands_alone(const char *text)
{
    static const char *const OUTSIDE[] = { "<script", " src=",   "@import",  "<link",
                                           "<img",    "<iframe", " onload=", "javascript:" };
    for (size_t i = 0; i < COUNT_OF(OUTSIDE); i++)
        if (strstr(text, OUTSIDE[i])) fail_msg("%s in: %.80s", OUTSIDE[i], strstr(text, OUTSIDE[i]));
    for (const char *at = text; (at = strstr(at, "url(")); at++) CHECK_EQ(at[4], '#');
    for (const char *at = text; (at = strstr(at, "http")); at++)
        if (strncmp(at, "http://www.w3.org/", 18)) fail_msg("%.60s", at);
}

/* No number that was not measured: neither as such nor as what printf makes of it. */
static void check_words(const char *text)
{
    static const char *const NEVER[] = { "nan", "-nan", "inf %", "(null)", " inf" };
    for (size_t i = 0; i < COUNT_OF(NEVER); i++)
        for (const char *at = text; (at = strstr(at, NEVER[i])); at++) {
            const char after = at[strlen(NEVER[i])];
            if (!(after >= 'a' && after <= 'z'))
                fail_msg("'%s' in: %.60s", NEVER[i], at > text + 30 ? at - 30 : text);
        }
}

static void check_report(const struct report_source *s)
{
    for (int f = REPORT_HTML; f <= REPORT_SVG; f++) {
        char why[200], *text = written(s, (enum report_format)f);
        if (f != REPORT_MD && !xml_is_well_formed(text, why, sizeof why)) fail_msg("form %d: %s", f, why);
        if (f == REPORT_MD)
            check_markdown(text);
        else
            check_stands_alone(text);
        check_words(text);
        free(text);
    }
}

static void usual_runs(void **state)
{
    static const int BLOCKS[] = { 0, 1, 2, 6, 12, 40, EXPERIMENT_BLOCKS };
    static const double EFFECTS[] = { 0, 0.004, -0.3, 2.5 };
    (void)state;
    for (size_t b = 0; b < COUNT_OF(BLOCKS); b++)
        for (size_t e = 0; e < COUNT_OF(EFFECTS); e++) {
            struct report_source *s = report_fixture(BLOCKS[b], EFFECTS[e], 0.006);
            check_report(s);
            report_source_free(s);
        }
}

static void says_the_verdict(void **state)
{
    static const struct {
        double effect;
        const char *want;
    } CASES[] = { { 0.46, "generates text 58.6" }, { -0.46, "slower than A" }, { 0.0003, "are equivalent" } };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(CASES); i++) {
        struct report_source *s = report_fixture(12, CASES[i].effect, 0.002);
        for (int f = REPORT_HTML; f <= REPORT_SVG; f++) {
            char *text = written(s, (enum report_format)f);
            const char *want = CASES[i].want;
            char number[64];
            snprintf(number, sizeof number, "%.4s", want); /* the picture may wrap the text anywhere */
            if (!strstr(text, f == REPORT_SVG ? number : i ? want : "faster than"))
                fail_msg("form %d does not say '%s'", f, want);
            if (!strstr(text, verdict_name(s->state.verdict))) fail_msg("form %d: no verdict", f);
            free(text);
        }
        report_source_free(s);
    }
}

static void lower_may_be_better(void **state)
{
    (void)state;
    struct report_source *s = report_fixture(12, 0.2, 0.002);
    s->state.spec.metric = &METRICS[METRIC_PEAK_MEMORY];
    char *text = written(s, REPORT_MD);
    CHECK_CONTAINS(text, "needs 18.");
    CHECK_CONTAINS(text, "% less memory than A");
    CHECK_CONTAINS(text, "(down is better)");
    free(text);
    check_report(s);
    report_source_free(s);
}

/* ---------------------------------------------------------------- missing data */

/* The Markdown report must contain the text. */
static void check_contains(const struct report_source *s, const char *want)
{
    char *text = written(s, REPORT_MD);
    if (!strstr(text, want)) fail_msg("the report does not contain '%s': %s", want, text);
    free(text);
    check_report(s);
}

static void unfinished_runs(void **state)
{
    (void)state;
    struct report_source *s = report_fixture(4, 0.1, 0.01);
    s->state.phase = PHASE_STOPPED;
    s->state.verdict = VERDICT_NONE;
    s->state.comparison[1].blocks_needed = s->state.blocks_needed = 5;
    check_contains(s, "stopped before a verdict");
    check_contains(s, "A verdict on B needs about 5 more blocks");
    s->state.phase = PHASE_BLOCKS;
    s->state.ended_ms = 0;
    check_contains(s, "not finished");
    s->state.phase = PHASE_FAILED;
    snprintf(s->state.error, sizeof s->state.error, "the disk is full");
    check_contains(s, "The run failed: the disk is full");
    s->state.arm[1].failed = true;
    snprintf(s->state.arm[1].error, sizeof s->state.arm[1].error, "does not fit");
    check_contains(s, "Arm B did not run: does not fit");
    s->state.verdict = VERDICT_INVALID;
    snprintf(s->state.reason, sizeof s->state.reason, "arm B did not run");
    check_contains(s, "No valid measurement");
    report_source_free(s);
}

static void nothing_known(void **state)
{
    (void)state;
    struct report_source *s = report_fixture(0, 0, 0.01);
    s->cells = s->events = 0;
    s->machine_known = false;
    s->state.control_blocks = 0;
    s->state.control = (struct interval){ NAN, NAN, NAN };
    s->state.noise_floor = s->state.mde = s->state.overhead_ratio = NAN;
    s->state.verdict = VERDICT_NONE;
    for (int a = 0; a < 2; a++) {
        struct experiment_arm *x = &s->state.arm[a];
        for (int m = 0; m < METRIC_COUNT; m++) x->value[m] = NAN;
        x->rate = x->joules_per_token = x->joules_per_token_half = x->co2_g_per_token = NAN;
        x->plan.total = -1;
        x->threads = -1;
        x->model_name[0] = x->sha256[0] = x->recipe[0] = '\0';
    }
    check_contains(s, "no stored cell");
    check_contains(s, "No block of the comparison was completed");
    check_contains(s, "noise floor is unknown");
    check_contains(s, "the database has no description of it");
    check_contains(s, "Not measured in this run");
    s->state.spec.control_blocks = -1;
    check_contains(s, "had no control");
    report_source_free(s);
}

static void no_samples(void **state)
{
    (void)state;
    struct report_source *s = report_fixture(8, 0.1, 0.01);
    for (int i = 0; i < s->cells; i++) {
        s->cell[i].samples = s->cell[i].itls = 0;
        if (i % 3 == 0) s->cell[i].value[METRIC_DECODE_RATE] = NAN;
    }
    check_contains(s, "no such sensor reading: CPU clock rate, temperature, power");
    report_source_free(s);
}

static void damaged_numbers(void **state)
{
    static const double BAD[] = { NAN, INFINITY, -INFINITY, 0, -1, 1e300 };
    (void)state;
    struct report_source *s = report_fixture(8, 0.1, 0.01);
    for (int i = 0; i < s->cells; i++) {
        s->cell[i].value[METRIC_DECODE_RATE] = BAD[i % (int)COUNT_OF(BAD)];
        s->cell[i].seconds = BAD[(i + 1) % (int)COUNT_OF(BAD)];
        for (int k = 0; k < s->cell[i].samples; k++) s->cell[i].sample[k].value = BAD[k % (int)COUNT_OF(BAD)];
        s->cell[i].arm = i % 5 - 1; /* arms that do not exist */
    }
    check_report(s);
    report_source_free(s);
}

/* A run that was resumed after 10 hours: the time axis leaves them out. */
static void paused_run(void **state)
{
    (void)state;
    struct report_source *s = report_fixture(8, 0.1, 0.01);
    for (int i = s->cells / 2; i < s->cells; i++) s->cell[i].start_s += 36000;
    check_report(s);
    char *text = written(s, REPORT_HTML);
    CHECK_CONTAINS(text, "paused 10.0 h");
    CHECK_LACKS(text, "5:00:00");
    free(text);
    report_source_free(s);
}

/* ---------------------------------------------------------------- names from outside */

static void hostile_names(void **state)
{
    static const char *const NAMES[] = { "<script>alert(1)</script>",
                                         "a`b``c",
                                         "x|y|z",
                                         "]]>&amp;&#x3c;",
                                         "\x01\x1b[31m\xff\xfe\xc0\x80",
                                         "日本語\n# heading\n\n<b>",
                                         "*bold* _it_ [a](http:)" };
    (void)state;
    for (size_t i = 0; i < COUNT_OF(NAMES); i++) {
        struct report_source *s = report_fixture(8, 0.1, 0.01);
        struct experiment_state *x = &s->state;
        for (int a = 0; a < 2; a++) {
            snprintf(x->arm[a].line, sizeof x->arm[a].line, "%s", NAMES[i]);
            snprintf(x->arm[a].model_name, sizeof x->arm[a].model_name, "%s", NAMES[i]);
            snprintf(x->arm[a].error, sizeof x->arm[a].error, "%s", NAMES[i]);
            snprintf(x->arm[a].recipe, sizeof x->arm[a].recipe, "%s", NAMES[i]);
            x->arm[a].failed = true;
        }
        snprintf(x->spec.model, sizeof x->spec.model, "%s", NAMES[i]);
        snprintf(x->reason, sizeof x->reason, "%s", NAMES[i]);
        snprintf(s->machine.cpu, sizeof s->machine.cpu, "%s", NAMES[i]);
        for (int k = 0; k < s->cells; k++) s->cell[k].reason = NAMES[i];
        for (int k = 0; k < s->events; k++) s->event[k].text = NAMES[i];
        char why[200], *text = written(s, REPORT_HTML);
        if (!xml_is_well_formed(text, why, sizeof why)) fail_msg("%s: %s", NAMES[i], why);
        CHECK_LACKS(text, "<script");
        CHECK_LACKS(text, "<b>");
        free(text);
        text = written(s, REPORT_SVG);
        if (!xml_is_well_formed(text, why, sizeof why)) fail_msg("%s: %s", NAMES[i], why);
        free(text);
        text = written(s, REPORT_MD);
        check_markdown(text);
        free(text);
        report_source_free(s);
    }
}

/* ---------------------------------------------------------------- many arms, golden, endings */

static void many_arms(void **state)
{
    (void)state;
    struct report_source *s = report_fixture(12, 0.1, 0.004);
    struct experiment_state *x = &s->state;
    x->spec.arms = EXPERIMENT_ARMS;
    for (int a = 2; a < EXPERIMENT_ARMS; a++) {
        x->arm[a] = x->arm[1];
        x->comparison[a] = x->comparison[1];
        for (int i = 0; i < x->comparison[a].blocks; i++) x->comparison[a].d[i] -= 0.03 * a;
    }
    x->comparison[5].dropped = true;
    x->comparison[5].dropped_at = 7;
    experiment_judge(x);
    check_contains(s, "The best of 7 configurations, B");
    check_contains(s, "dropped after 7 blocks");
    x->confirming = true;
    x->confirmation = x->comparison[1];
    check_contains(s, "confirmed by a second measurement");
    report_source_free(s);
}

static void quality_and_gate(void **state)
{
    (void)state;
    struct report_source *s = report_fixture(12, 0.3, 0.004);
    struct quality *q = &s->state.comparison[1].quality;
    q->known = true;
    snprintf(q->text, sizeof q->text, "excerpt.txt");
    q->ctx = 512;
    q->kld = (struct interval){ 0.0123, 0.011, 0.014 };
    q->top1 = (struct interval){ 0.94, 0.93, 0.95 };
    q->ppl_ratio = (struct interval){ 1.012, 1.008, 1.016 };
    q->mcnemar_p = 0.04;
    q->figures.kld_p99 = 0.4;
    check_contains(s, "0.0123 (0.011 to 0.014)");
    check_contains(s, "Speed and quality");
    snprintf(s->state.spec.gate, sizeof s->state.spec.gate, "kld_mean < 0.02 and top1 > 0.99");
    check_contains(s, "| B | `kld_mean < 0.02` | pass |");
    snprintf(s->state.spec.gate, sizeof s->state.spec.gate, "what <is this");
    check_contains(s, "This version cannot parse the condition");
    report_source_free(s);
}

/* One run of the site: `line` against the unchanged file, with its loss on a text. */
static void site_add_run(struct report_site *site, int64_t id, const char *line, double kld, const char *text)
{
    struct err why;
    struct report_source *s = report_fixture(12, 0.3, 0.004);
    struct quality *q = &s->state.comparison[1].quality;
    s->state.run_id = id;
    s->state.started_ms = id;
    snprintf(s->state.arm[0].line, sizeof s->state.arm[0].line, "default");
    snprintf(s->state.arm[1].line, sizeof s->state.arm[1].line, "%s", line);
    snprintf(s->text.name, sizeof s->text.name, "held-out.txt");
    q->known = true;
    q->kld = (struct interval){ kld, NAN, NAN };
    snprintf(q->text, sizeof q->text, "%s", text);
    CHECK_OK(report_site_add(site, s, &why));
    report_source_free(s);
}

/* The line of a table that contains `text`. The caller frees it. */
static char *line_with(const char *document, const char *text)
{
    const char *at = strstr(document, text);
    if (!at) fail_msg("no '%s' in:\n%s", text, document);
    const char *from = at;
    while (from > document && from[-1] != '\n') from--;
    return strndup(from, strcspn(from, "\n"));
}

/* The smaller loss is on another text than the model's: it is shown with its text, but not on the front. */
static void site_ranks_losses_on_one_text(void **state)
{
    (void)state;
    struct err why;
    struct report_site *site;
    struct report *r;
    struct str out = { 0 };
    CHECK_OK(report_site_open(&site, "", &why));
    site_add_run(site, 1, "q8_0", 0.0001, "mails.txt");
    site_add_run(site, 2, "q4_0", 0.01, "held-out.txt");
    CHECK_OK(report_site_pareto(&r, site, &why));
    report_write(&out, r, REPORT_MD);
    char *other = line_with(str_text(&out), "nats on mails.txt"),
         *ours = line_with(str_text(&out), "nats on held-out.txt");
    CHECK_CONTAINS(other, "q8_0");
    CHECK(!strstr(other, "★"));
    CHECK_CONTAINS(ours, "q4_0");
    CHECK_CONTAINS(ours, "★");
    CHECK_CONTAINS(str_text(&out), "Speed and loss on held-out.txt");
    free(other);
    free(ours);
    str_free(&out);
    report_free(r);
    report_site_close(site);
}

/* A newer loss on another text does not hide the one on the model's text; the rate is the newest one. */
static void site_keeps_the_loss_on_the_models_text(void **state)
{
    (void)state;
    struct err why;
    struct report_site *site;
    struct report *r;
    struct str out = { 0 };
    CHECK_OK(report_site_open(&site, "", &why));
    site_add_run(site, 1, "q8_0", 0.03, "held-out.txt");
    site_add_run(site, 2, "q8_0", 0.02, "held-out.txt");
    site_add_run(site, 3, "q8_0", 0.5, "mails.txt");
    site_add_run(site, 4, "q4_0", 0.7, "mails.txt");
    CHECK_OK(report_site_pareto(&r, site, &why));
    report_write(&out, r, REPORT_MD);
    char *ours = line_with(str_text(&out), "q8_0"), *other = line_with(str_text(&out), "q4_0");
    CHECK_CONTAINS(ours, "0.02 nats on held-out.txt, run 2");
    CHECK_CONTAINS(ours, "3, arm B");
    CHECK_CONTAINS(ours, "★");
    CHECK_CONTAINS(other, "0.7 nats on mails.txt |");
    CHECK(!strstr(other, "★"));
    free(other);
    free(ours);
    str_free(&out);
    report_free(r);
    report_site_close(site);
}

static void golden(void **state)
{
    char path[600], *want = NULL;
    struct err why;
    (void)state;
    struct report_source *s = report_fixture(12, 0.46, 0.006);
    char *got = written(s, REPORT_MD);
    snprintf(path, sizeof path, "%s/tests/golden/report_ab.md", TEST_SOURCE_DIR);
    if (getenv("QDYNO_UPDATE_GOLDEN")) {
        FILE *f = fopen(path, "w");
        CHECK(f);
        CHECK_GE(fputs(got, f), 0);
        CHECK_EQ(fclose(f), 0);
    } else {
        if (file_read(&want, NULL, path, 1 << 20, &why))
            fail_msg("%s (QDYNO_UPDATE_GOLDEN=1 writes it)", why.message);
        if (strcmp(want, got)) fail_msg("%s differs; written now:\n%s", path, got);
    }
    free(want);
    free(got);
    report_source_free(s);
}

static void endings(void **state)
{
    enum report_format f;
    struct err why;
    (void)state;
    CHECK_OK(report_format_of(&f, "a/b.html", &why));
    CHECK_EQ(f, REPORT_HTML);
    CHECK_OK(report_format_of(&f, "b.md", &why));
    CHECK_EQ(f, REPORT_MD);
    CHECK_OK(report_format_of(&f, "x.y.svg", &why));
    CHECK_EQ(f, REPORT_SVG);
    static const char *const BAD[] = { "", ".html", "a.pdf", "html", "a.html.gz", "a.HTML" };
    for (size_t i = 0; i < COUNT_OF(BAD); i++) CHECK_EQ(report_format_of(&f, BAD[i], &why), ERR_USAGE);
    CHECK_CONTAINS(why.message, ".html, .md or .svg");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(usual_runs),
        cmocka_unit_test(says_the_verdict),
        cmocka_unit_test(lower_may_be_better),
        cmocka_unit_test(unfinished_runs),
        cmocka_unit_test(nothing_known),
        cmocka_unit_test(no_samples),
        cmocka_unit_test(damaged_numbers),
        cmocka_unit_test(paused_run),
        cmocka_unit_test(hostile_names),
        cmocka_unit_test(many_arms),
        cmocka_unit_test(quality_and_gate),
        cmocka_unit_test(site_ranks_losses_on_one_text),
        cmocka_unit_test(site_keeps_the_loss_on_the_models_text),
        cmocka_unit_test(golden),
        cmocka_unit_test(endings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
