/* telemetry/machine/machine_busiest.c - which other programs use the processors (machine.h). */
#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "telemetry/machine/machine.h"
#include "telemetry/machine/machine_parts.h"
#include "base/sysfs/sysfs.h"

enum { SHOWN = 3, LEAST_PERCENT = 1 };

static int by_pid(const void *a, const void *b)
{
    const struct process_row *x = a, *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* A process that was started through /proc/self/exe, as our workers are, is called "exe": its program has the
 * name that a reader knows. */
static void name_resolve(struct process_row *r, const char *root)
{
    static const char DELETED[] = " (deleted)";
    char link[PATH_MAX], path[PATH_MAX];
    if (strcmp(r->name, "exe") != 0) return;
    if (snprintf(link, sizeof link, "%s/proc/%d/exe", root, r->pid) >= (int)sizeof link) return;
    const ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return; /* of another user */
    path[n] = '\0';
    if (str_ends(path, DELETED)) path[strlen(path) - sizeof DELETED + 1] = '\0'; /* replaced while it runs */
    snprintf(r->name, sizeof r->name, "%.*s", (int)sizeof r->name - 1, path_file_name(path));
}

/* "PID (NAME) S PPID ... utime stime": the name may contain spaces and parentheses. */
static bool row_read(struct process_row *r, const char *root, int pid)
{
    char text[1024];
    long long user, system;
    if (sys_read(root, text, sizeof text, "/proc/%d/stat", pid) <= 0) return false;
    const char *open = strchr(text, '('), *close = strrchr(text, ')');
    if (!open || !close || close < open) return false;
    *r = (struct process_row){ .pid = pid };
    if (sscanf(close + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lld %lld", &r->parent, &user,
               &system) != 3)
        return false;
    snprintf(r->name, sizeof r->name, "%.*s", (int)(close - open - 1), open + 1);
    name_resolve(r, root);
    r->ticks = user + system;
    return true;
}

bool process_list_read(struct process_list *l, const char *root)
{
    char path[PATH_MAX], text[512];
    long long user, nice, system, idle, wait, irq, soft;
    *l = (struct process_list){ 0 };
    if (sys_read(root, text, sizeof text, "/proc/stat") <= 0 ||
        sscanf(text, "cpu %lld %lld %lld %lld %lld %lld %lld", &user, &nice, &system, &idle, &wait, &irq,
               &soft) != 7)
        return false;
    l->busy = user + nice + system + irq + soft;
    l->all = l->busy + idle + wait;
    if (snprintf(path, sizeof path, "%s/proc", root) >= PATH_MAX) return false;
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (!isdigit((unsigned char)e->d_name[0])) continue;
        if (!array_room(&l->row, &l->capacity, (int64_t)l->n + 1, sizeof *l->row)) break;
        l->n += row_read(&l->row[l->n], root, atoi(e->d_name));
    }
    if (dir) closedir(dir);
    if (l->n) qsort(l->row, (size_t)l->n, sizeof *l->row, by_pid);
    return true;
}

static const struct process_row *row_find(const struct process_list *l, int pid)
{
    const struct process_row key = { .pid = pid };
    return l->n ? bsearch(&key, l->row, (size_t)l->n, sizeof *l->row, by_pid) : NULL;
}

/* Marks processes and all that descend from them. Parents may come after their children in the list. */
static void mark_own(struct process_list *l, const struct own_processes *own)
{
    bool changed = true;
    for (int i = 0; i < l->n; i++)
        for (int k = 0; k < own->n; k++) l->row[i].own |= l->row[i].pid == own->pid[k];
    while (changed) {
        changed = false;
        for (int i = 0; i < l->n; i++) {
            const struct process_row *parent = row_find(l, l->row[i].parent);
            if (l->row[i].own || !parent || !parent->own) continue;
            l->row[i].own = changed = true;
        }
    }
}

static int by_ticks(const void *a, const void *b)
{
    const struct process_row *x = a, *y = b;
    return (x->ticks < y->ticks) - (x->ticks > y->ticks);
}

/* Adds up the ticks of other programs by name in sum[], most first. Returns their number; *known: the ticks
 * of all processes that were there both times, own ones included. */
static int sum_by_name(struct process_row *sum, const struct process_list *before,
                       const struct process_list *after, long long *known)
{
    int n = 0;
    *known = 0;
    for (int i = 0; i < after->n; i++) {
        const struct process_row *now = &after->row[i], *then = row_find(before, now->pid);
        const long long used = now->ticks - (then && then->ticks <= now->ticks ? then->ticks : 0);
        int k = 0;
        *known += used;
        if (now->own || used <= 0) continue;
        while (k < n && strcmp(sum[k].name, now->name) != 0) k++;
        if (k == n) sum[n++] = *now, sum[k].ticks = 0;
        sum[k].ticks += used;
    }
    if (n) qsort(sum, (size_t)n, sizeof *sum, by_ticks);
    return n;
}

static void put_share(struct str *s, const char *before, const char *name, long long ticks, long long all)
{
    const double percent = 100 * (double)ticks / (double)all;
    if (percent >= LEAST_PERCENT) str_printf(s, "%s%s%s %.0f %%", s->len ? ", " : "", before, name, percent);
}

/* Processes with the name of our own program are another one of it, with its workers: to a reader, the bare
 * name would be this one. */
static const char *before_name(const struct process_list *l, const char *name, int own_pid)
{
    const struct process_row *own = row_find(l, own_pid);
    return own && !strcmp(own->name, name) ? "another " : "";
}

char *process_lists_compare(char *buf, size_t size, const struct process_list *before,
                            struct process_list *after, const struct own_processes *own)
{
    struct str s = { 0 };
    const long long all = after->all - before->all;
    struct process_row *sum = all > 0 ? calloc((size_t)after->n + 1, sizeof *sum) : NULL;
    if (sum) {
        long long known;
        mark_own(after, own);
        const int n = sum_by_name(sum, before, after, &known);
        for (int i = 0; i < MIN(n, SHOWN); i++)
            put_share(&s, before_name(after, sum[i].name, own->pid[0]), sum[i].name, sum[i].ticks, all);
        put_share(&s, "", "processes that ended meanwhile", after->busy - before->busy - known, all);
    }
    snprintf(buf, size, "%s", str_text(&s));
    free(sum);
    str_free(&s);
    return buf;
}

char *machine_busiest(char *buf, size_t size, const char *root, const struct own_processes *own,
                      int window_ms)
{
    struct process_list before, after = { 0 };
    buf[0] = '\0';
    if (process_list_read(&before, root)) {
        clock_sleep_ns((int64_t)window_ms * 1000000);
        if (process_list_read(&after, root)) process_lists_compare(buf, size, &before, &after, own);
    }
    free(before.row);
    free(after.row);
    return buf;
}
