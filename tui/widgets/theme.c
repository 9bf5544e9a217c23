/* tui/widgets/theme.c - the default theme, one row per role, and theme files. */
#include "tui/widgets/widgets.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const ROLE_NAMES[ROLE_COUNT] = {
    [ROLE_TEXT] = "text",     [ROLE_DIM] = "dim",       [ROLE_TITLE] = "title", [ROLE_BORDER] = "border",
    [ROLE_KEY] = "key",       [ROLE_METER] = "meter",   [ROLE_GRAPH] = "graph", [ROLE_ARM_A] = "arm-a",
    [ROLE_ARM_B] = "arm-b",   [ROLE_BETTER] = "better", [ROLE_WORSE] = "worse", [ROLE_EQUAL] = "equal",
    [ROLE_UNSURE] = "unsure", [ROLE_WARN] = "warning",  [ROLE_ERROR] = "error",
};

const struct theme THEME_DEFAULT = {
    .name = "default",
    .row = {
        /* role              rgb      256  16  without colour */
        [ROLE_TEXT] = { 0, -1, -1, 0 },
        [ROLE_DIM] = { 0x8a8a8a, 245, 8, 0 },
        [ROLE_TITLE] = { 0x87afd7, 110, 14, STYLE_BOLD },
        [ROLE_BORDER] = { 0x6c6c6c, 242, 8, 0 },
        [ROLE_KEY] = { 0x5fafff, 75, 12, STYLE_BOLD },
        [ROLE_METER] = { 0x5f87af, 67, 6, 0 },
        [ROLE_GRAPH] = { 0x87afaf, 109, 6, 0 },
        [ROLE_ARM_A] = { 0xd7af5f, 179, 11, 0 },
        [ROLE_ARM_B] = { 0x5fd7ff, 81, 14, 0 },
        [ROLE_BETTER] = { 0x5fafff, 75, 12, STYLE_BOLD },
        [ROLE_WORSE] = { 0xff8700, 208, 3, STYLE_BOLD | STYLE_UNDERLINE },
        [ROLE_EQUAL] = { 0xbcbcbc, 250, 7, 0 },
        [ROLE_UNSURE] = { 0xd7d787, 186, 11, 0 },
        [ROLE_WARN] = { 0xffaf00, 214, 11, STYLE_BOLD },
        [ROLE_ERROR] = { 0xff5f5f, 203, 9, STYLE_BOLD | STYLE_REVERSE },
    },
};

enum color_level color_level_choose(int colors, bool direct, bool want)
{
    if (!want || colors < 8) return COLORS_MONO;
    if (direct && colors >= 1 << 24) return COLORS_DIRECT;
    if (colors >= 256) return COLORS_256;
    return colors >= 16 ? COLORS_16 : COLORS_8;
}

bool background_is_light(const char *colorfgbg)
{
    const char *last = colorfgbg ? strrchr(colorfgbg, ';') : NULL;
    return last && (!strcmp(last, ";7") || !strcmp(last, ";15"));
}

const char *terminal_direct_name(const char *term, const char *colorterm, char *buf, size_t size)
{
    static const char TAIL[] = "-256color";
    buf[0] = '\0';
    if (!term || !colorterm || (strcmp(colorterm, "truecolor") && strcmp(colorterm, "24bit"))) return buf;
    const size_t n = strlen(term), tail = strlen(TAIL),
                 base = n > tail && !strcmp(term + n - tail, TAIL) ? n - tail : n;
    snprintf(buf, size, "%.*s-direct", (int)base, term);
    return buf;
}

int32_t theme_color(const struct theme *t, enum role role, enum color_level level)
{
    const struct theme_row *r = &t->row[role];
    if (level == COLORS_MONO || r->c256 < 0) return -1;
    if (level == COLORS_DIRECT) return (int32_t)r->rgb;
    if (level == COLORS_256) return r->c256;
    if (level == COLORS_16) return r->c16;
    return r->c16 == 8 ? -1 : r->c16 & 7; /* bright black on 8 colours would be black on black */
}

unsigned theme_attributes(const struct theme *t, unsigned style, enum color_level level)
{
    const struct theme_row *r = &t->row[style & STYLE_ROLE];
    unsigned attributes = style & ~(unsigned)STYLE_ROLE;
    if (level == COLORS_MONO) attributes |= r->mono;
    if (level == COLORS_8 && r->c16 > 8) attributes |= STYLE_BOLD;
    return attributes;
}

/* ---------------------------------------------------------------- files */

static const struct {
    const char *name;
    unsigned style;
} ATTRIBUTES[] = { { "bold", STYLE_BOLD }, { "underline", STYLE_UNDERLINE }, { "reverse", STYLE_REVERSE } };

/* Parse a number below `limit`; "-" gives -1 where that is allowed. */
static bool number_read(const char *word, int base, long limit, bool may_be_none, long *out)
{
    char *end;
    if (may_be_none && !strcmp(word, "-")) {
        *out = -1;
        return true;
    }
    *out = strtol(word, &end, base);
    return end != word && !*end && *out >= 0 && *out < limit && word[0] != '-' && word[0] != '+';
}

static int role_find(const char *name)
{
    for (int i = 0; i < ROLE_COUNT; i++)
        if (!strcmp(ROLE_NAMES[i], name)) return i;
    return -1;
}

/* Apply a line "role rgb 256 16 attributes". Returns what was expected if it is wrong, else NULL. */
static const char *row_read(struct theme *t, char *line)
{
    char *save = NULL, *word[4];
    long rgb, c256, c16;
    line[strcspn(line, "#")] = '\0';
    for (int i = 0; i < 4; i++) {
        word[i] = strtok_r(i ? NULL : line, " \t\r", &save);
        if (!word[i])
            return i ? "expected: role, 24-bit colour, colour of 256, colour of 16, attributes" : NULL;
    }
    const int role = role_find(word[0]);
    if (role < 0) return "unknown role (docs/dashboard.md lists the roles)";
    if (!number_read(word[1], 16, 1 << 24, true, &rgb))
        return "expected a 24-bit colour such as 5fafff, or -";
    if (!number_read(word[2], 10, 256, true, &c256)) return "expected a colour from 0 to 255, or -";
    if (!number_read(word[3], 10, 16, true, &c16)) return "expected a colour from 0 to 15, or -";
    if ((rgb < 0) != (c256 < 0) || (rgb < 0) != (c16 < 0))
        return "- must be used for all three colours or for none";
    unsigned mono = 0;
    for (char *w; (w = strtok_r(NULL, " \t\r", &save));) {
        size_t i = 0;
        while (i < COUNT_OF(ATTRIBUTES) && strcmp(w, ATTRIBUTES[i].name)) i++;
        if (i == COUNT_OF(ATTRIBUTES)) return "expected attributes bold, underline or reverse";
        mono |= ATTRIBUTES[i].style;
    }
    t->row[role] = (struct theme_row){ rgb < 0 ? 0 : (uint32_t)rgb, (int16_t)c256, (int16_t)c16, mono };
    return NULL;
}

enum err_code theme_read(struct theme *out, const char *path, struct err *why)
{
    enum { LIMIT = 1 << 16 };
    char *text;
    struct theme t = THEME_DEFAULT;
    *out = THEME_DEFAULT;
    enum err_code rc = file_read(&text, NULL, path, LIMIT, why);
    if (rc) return rc;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    snprintf(t.name, sizeof t.name, "%.*s", (int)strcspn(name, "."), name);
    int number = 0;
    for (char *line = text, *next; !rc && line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        number++;
        const char *wrong = row_read(&t, line);
        if (wrong) rc = err_set(why, ERR_FORMAT, "theme '%s', line %d: %s", path, number, wrong);
    }
    free(text);
    if (!rc) *out = t;
    return rc;
}

/* ---------------------------------------------------------------- names */

enum { FOLDERS = 2 };

/* The folders of themes, the personal one first; NULL for one that does not exist. The caller frees each. */
static void theme_folders(char *folder[FOLDERS])
{
    struct err absent;
    char *config = NULL;
    folder[0] = folder[1] = NULL;
    if (!file_place(&config, FILE_CONFIG, &absent)) {
        struct str path = { 0 };
        str_printf(&path, "%s/themes", config);
        folder[0] = str_take(&path);
    }
    free(config);
    file_share(&folder[1], "themes", &absent);
}

static int theme_add_name(char names[][THEME_NAME], int n, int max, const char *file)
{
    char name[THEME_NAME];
    const size_t len = strlen(file), tail = strlen(".theme");
    if (len <= tail || len - tail >= sizeof name || strcmp(file + len - tail, ".theme")) return n;
    snprintf(name, sizeof name, "%.*s", (int)(len - tail), file);
    for (int i = 0; i < n; i++)
        if (!strcmp(names[i], name)) return n;
    if (n < max) memcpy(names[n++], name, sizeof name);
    return n;
}

static int theme_by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

int theme_names(char names[][THEME_NAME], int max)
{
    char *folder[FOLDERS];
    int n = 0;
    if (max > 0) snprintf(names[n++], THEME_NAME, "%s", THEME_DEFAULT.name);
    theme_folders(folder);
    for (int i = 0; i < FOLDERS; i++) {
        DIR *d = folder[i] ? opendir(folder[i]) : NULL;
        for (struct dirent *e; d && (e = readdir(d));) n = theme_add_name(names, n, max, e->d_name);
        if (d) closedir(d);
        free(folder[i]);
    }
    if (n > 1) qsort(names[1], (size_t)(n - 1), THEME_NAME, theme_by_name);
    return n;
}

static enum err_code no_theme(const char *name, struct err *why)
{
    enum { MOST = 32 };
    char names[MOST][THEME_NAME];
    struct str list = { 0 };
    const int n = theme_names(names, MOST);
    for (int i = 0; i < n; i++) str_printf(&list, "%s%s", i ? ", " : "", names[i]);
    err_set(why, ERR_USAGE, "unknown theme '%s': expected one of %s, or the path of a file, with a slash",
            name, str_text(&list));
    str_free(&list);
    return ERR_USAGE;
}

enum err_code theme_find(struct theme *out, const char *name, struct err *why)
{
    char *folder[FOLDERS];
    *out = THEME_DEFAULT;
    if (!strcmp(name, THEME_DEFAULT.name)) return ERR_OK;
    if (strchr(name, '/')) return theme_read(out, name, why);
    enum err_code rc = ERR_USAGE;
    bool found = false;
    theme_folders(folder);
    for (int i = 0; i < FOLDERS; i++) {
        struct str path = { 0 };
        str_printf(&path, "%s/%s.theme", folder[i] ? folder[i] : "", name);
        if (!found && folder[i] && !access(str_text(&path), R_OK)) {
            found = true;
            rc = theme_read(out, str_text(&path), why);
        }
        str_free(&path);
        free(folder[i]);
    }
    return found ? rc : no_theme(name, why);
}
