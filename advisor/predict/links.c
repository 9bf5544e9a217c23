/* Measured exchanges between ranks, kept in the cache folder for each machine, number of ranks and set of
 * hosts; and exchanges over a network that is only described. */
#include "advisor/predict/predict.h"

#include "advisor/predict/cost.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_LIMIT = 1 << 16, FILE_VERSION = 1 };

/* hosts: path of their file; "": this machine. The content counts, not the path. */
static enum err_code links_path(char **out, const char *machine_id, int ranks, const char *hosts,
                                struct err *why)
{
    char hex[HASH_HEX] = "", *folder;
    struct str path = { 0 };
    *out = NULL;
    enum err_code rc = *hosts ? hash_file(hosts, hex, why) : ERR_OK;
    if (!rc) rc = file_place(&folder, FILE_CACHE, why);
    if (rc) return rc;
    str_printf(&path, "%s/links-%.64s-%d%s%.16s.json", folder, machine_id, ranks, *hosts ? "-" : "", hex);
    free(folder);
    *out = str_take(&path);
    return *out ? ERR_OK : err_set(why, ERR_NOMEM, "out of memory");
}

json_t *numbers_to_json(const double *x, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++) json_array_append_new(list, json_num(x[i]));
    return list;
}

void numbers_from_json(double *x, int n, const json_t *list)
{
    for (int i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, (size_t)i);
        x[i] = json_is_number(v) ? json_number_value(v) : (double)NAN;
    }
}

static json_t *links_to_json(const struct rank_links *l)
{
    json_t *o = json_object();
    int known = 0;
    for (int k = 0; k < LINK_KINDS; k++)
        json_put(o, LINK_NAMES[k], numbers_to_json(l->seconds[k], LINK_SIZES));
    while (known < RANKS_MAX && !isnan(l->read_bytes_s[known])) known++;
    json_put(o, "read_bytes_s", numbers_to_json(l->read_bytes_s, known));
    return o;
}

static bool links_from_json(struct rank_links *out, const json_t *o)
{
    for (int k = 0; k < LINK_KINDS; k++) {
        const json_t *list = json_object_get(o, LINK_NAMES[k]);
        if (json_array_size(list) != LINK_SIZES) return false;
        numbers_from_json(out->seconds[k], LINK_SIZES, list);
    }
    numbers_from_json(out->read_bytes_s, RANKS_MAX,
                      json_object_get(o, "read_bytes_s")); /* not in older files */
    return true;
}

enum err_code links_save(const struct rank_links *l, const char *machine_id, int ranks, const char *hosts,
                         struct err *why)
{
    char *path;
    struct atomic_file f;
    enum err_code rc = links_path(&path, machine_id, ranks, hosts, why);
    if (rc) return rc;
    json_t *o = json_object();
    json_put_int(o, "version", FILE_VERSION);
    json_put_int(o, "ranks", ranks);
    json_put(o, "links", links_to_json(l));
    char *line = json_line(o);
    json_decref(o);
    rc = line ? atomic_file_open(&f, path, why) : err_set(why, ERR_NOMEM, "out of memory");
    if (!rc) {
        fprintf(f.stream, "%s\n", line);
        rc = atomic_file_commit(&f, why);
    }
    free(line);
    free(path);
    return rc;
}

bool links_find(struct rank_links *out, const char *machine_id, int ranks, const char *hosts)
{
    char *path, *text = NULL;
    size_t n;
    json_t *o = NULL;
    if (links_path(&path, machine_id, ranks, hosts, NULL)) return false;
    const bool found = !file_read(&text, &n, path, FILE_LIMIT, NULL) && !json_parse(&o, text, n, NULL) &&
                       json_get_int(o, "version", 0) == FILE_VERSION &&
                       links_from_json(out, json_object_get(o, "links"));
    json_decref(o);
    free(text);
    free(path);
    return found;
}

void links_of_network(struct rank_links *out, double bits_s, double latency_s, int ranks)
{
    const double n = ranks;
    for (int i = 0; i < RANKS_MAX; i++) out->read_bytes_s[i] = NAN;
    for (int s = 0; s < LINK_SIZES; s++) {
        const double wire_s = (double)LINK_BYTES[s] * 8 / bits_s;
        out->seconds[LINK_SEND][s] = latency_s + wire_s;
        out->seconds[LINK_ALL_GATHER][s] = (n - 1) * (latency_s + wire_s / n);
        out->seconds[LINK_ALL_REDUCE][s] = 2 * (n - 1) * (latency_s + wire_s / n);
    }
}
