/* telemetry/sensors/disk_linux.c - bytes read and written by the disks, and how busy they are. Together with
 * the size of the page cache this shows whether a model was read from disk or from memory.
 *
 * Only whole disks with hardware (or a hypervisor) behind them count. Partitions, RAID, LVM and encryption
 * would count the same bytes twice; loop devices and zram move bytes of files or memory. */
#include "telemetry/sensors/source.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "telemetry/metrics/metrics.h"
#include "base/sysfs/sysfs.h"

enum { DISKS = 256, SECTOR_BYTES = 512 /* in /proc/diskstats, whatever the disk uses */ };

struct disk {
    char name[32];
    bool counts;
    struct rate busy_ms;
};

struct disks {
    int count;
    struct disk disk[DISKS]; /* all block devices seen so far */
    struct rate read, write;
};

/* nvme0c1n1 is one of several paths to nvme0n1, whose counters already include its bytes. */
static bool is_nvme_path(const char *name)
{
    int controller, path, space, end = 0;
    return sscanf(name, "nvme%dc%dn%d%n", &controller, &path, &space, &end) == 3 && !name[end];
}

/* Finds or adds a disk by name. /sys/block contains no partitions, and only real disks have a `device` there.
 */
static struct disk *disk_find(struct disks *d, const char *root, const char *name)
{
    for (int i = 0; i < d->count; i++)
        if (!strcmp(d->disk[i].name, name)) return &d->disk[i];
    if (d->count == DISKS || strlen(name) >= sizeof d->disk[0].name) return NULL;
    struct disk *new = &d->disk[d->count++];
    snprintf(new->name, sizeof new->name, "%s", name);
    new->counts = sys_exists(root, "/sys/block/%s/device", name) && !is_nvme_path(name);
    return new;
}

static enum err_code disk_open(void **state, const struct sensors *s, struct err *why)
{
    if (!sys_exists(s->root, "/proc/diskstats"))
        return err_set(why, ERR_ABSENT, "the kernel provides no disk statistics (%s/proc/diskstats)",
                       s->root);
    *state = calloc(1, sizeof(struct disks));
    return *state ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory opening the disk sensors");
}

static void disk_sample(void *state, struct sensors *s, double *row)
{
    /* columns as in Documentation/admin-guide/iostats.rst of the kernel */
    enum {
        MAJOR,
        MINOR,
        READS,
        READS_MERGED,
        READ_SECTORS,
        READ_MS,
        WRITES,
        WRITES_MERGED,
        WRITE_SECTORS,
        WRITE_MS,
        IN_FLIGHT,
        BUSY_MS,
        COLUMNS
    };
    struct disks *d = state;
    double read = NAN, write = NAN, busiest = NAN;
    if (!s->due[METRIC_DISK_READ] && !s->due[METRIC_DISK_WRITE] && !s->due[METRIC_DISK_BUSY]) return;
    char *text = malloc(64 << 10); /* enough for a server with hundreds of partitions */
    if (!text) return;
    sys_read(s->root, text, 64 << 10, "/proc/diskstats");
    for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        double v[COLUMNS];
        char name[64];
        if (sscanf(line, " %lf %lf %63s %lf %lf %lf %lf %lf %lf %lf %lf %lf %lf", &v[MAJOR], &v[MINOR], name,
                   &v[READS], &v[READS_MERGED], &v[READ_SECTORS], &v[READ_MS], &v[WRITES], &v[WRITES_MERGED],
                   &v[WRITE_SECTORS], &v[WRITE_MS], &v[IN_FLIGHT], &v[BUSY_MS]) != COLUMNS + 1)
            continue;
        struct disk *disk = disk_find(d, s->root, name);
        if (!disk || !disk->counts) continue;
        read = (isnan(read) ? 0 : read) + v[READ_SECTORS] * SECTOR_BYTES;
        write = (isnan(write) ? 0 : write) + v[WRITE_SECTORS] * SECTOR_BYTES;
        if (!s->due[METRIC_DISK_BUSY]) continue;
        double busy = rate_next(&disk->busy_ms, v[BUSY_MS], 0, s->now_ns) / 1e3;
        if (!isnan(busy) && !(busy <= busiest)) busiest = busy;
    }
    free(text);
    if (s->due[METRIC_DISK_READ]) row[METRIC_DISK_READ] = rate_next(&d->read, read, 0, s->now_ns);
    if (s->due[METRIC_DISK_WRITE]) row[METRIC_DISK_WRITE] = rate_next(&d->write, write, 0, s->now_ns);
    if (s->due[METRIC_DISK_BUSY] && !isnan(busiest)) row[METRIC_DISK_BUSY] = MIN(busiest, 1);
}

const struct source SOURCE_DISK_LINUX = {
    .name = "disk_linux", .open = disk_open, .sample = disk_sample, .close = free
};
