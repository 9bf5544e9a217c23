/* telemetry/sensors/process_tree.c - finds the descendants and threads of a process. */
#include "telemetry/sensors/process_tree.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/sysfs/sysfs.h"

static const int64_t WALK_NS = 450 * INT64_C(1000000); /* slightly less than the period of METRIC_PROC_CPU */

static void tree_add(struct tree *t, int pid)
{
    for (int i = 0; i < t->count; i++)
        if (t->pid[i] == pid) return;
    if (t->count < TREE_MAX) t->pid[t->count++] = pid;
}

int tree_threads(const char *root, int pid, int *tid, int max)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/proc/%d/task", root, pid) >= PATH_MAX) return -1;
    DIR *dir = opendir(path);
    if (!dir) return -1;
    int n = 0;
    for (struct dirent *e; n < max && (e = readdir(dir));)
        if (isdigit((unsigned char)e->d_name[0])) tid[n++] = atoi(e->d_name);
    closedir(dir);
    return n;
}

static void tree_add_children(struct tree *t, const char *root, int pid)
{
    int tid[512];
    char list[4096];
    int n = tree_threads(root, pid, tid, (int)COUNT_OF(tid));
    for (int i = 0; i < n; i++) {
        if (sys_read(root, list, sizeof list, "/proc/%d/task/%d/children", pid, tid[i]) <= 0) continue;
        for (char *save, *w = strtok_r(list, " ", &save); w; w = strtok_r(NULL, " ", &save))
            if (atoi(w) > 0) tree_add(t, atoi(w));
    }
}

void tree_walk(struct tree *t, const char *root, int root_pid, int64_t now_ns)
{
    bool fresh = t->root_pid == root_pid && t->walked_ns && now_ns - t->walked_ns < WALK_NS;
    if (fresh) return;
    *t = (struct tree){ .root_pid = root_pid, .walked_ns = now_ns };
    if (root_pid <= 0) return;
    tree_add(t, root_pid);
    for (int i = 0; i < t->count; i++) tree_add_children(t, root, t->pid[i]);
}
