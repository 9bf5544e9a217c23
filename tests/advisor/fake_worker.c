/* tests/advisor/fake_worker.c - a worker that speaks the protocol and does what its config's model name says,
 * so that the experiment can be tested against known speeds and every way of failing.
 *
 *   model=fake:KEY=VALUE+KEY=VALUE...
 *   rate prefill   tokens/s it claims                     noise   sd of ln(rate) per request
 *   starts         FILE that counts workers: with it the noise of each is its own
 *   place          sd of ln(rate) between workers, for as long as each lives
 *   open_ms        time that opening takes                  open_at  number of the worker that does `open`
 *   drift t0       ln(rate) lost per second since t0       seed    of the noise
 *   sleep_ms       time a cell really takes                hash    its work hash
 *   faults_from faults_to   major faults in requests of that range (1 = the first cell)
 *   at do          request number at which to do: crash kill garbage error hang spin exit bus
 *   open           same words, while opening, and: fit
 *   alone          FILE: does not fit while another worker holds it
 *   plan           bytes of its memory plan                 say     text on stderr
 *   kld kld_se     of its answer to "quality", which counts as a cell for at, do and sleep_ms
 *   text           SHA-256 of the text that it says it measured quality on
 *   quality        what to do instead, in the same words
 *   write          words it generates, divided by ".": the last is followed by the end of the text
 *   log            FILE that gets a letter (`name`) for every word and every turn of a cell
 *   turn_ms        time that a turn of a cell really takes
 *   ranks          processes of its cells: rank i has weights of i + 1 bytes */
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/base.h"

struct fake {
    int fd, cells;
    double place;
    bool cancelled;
    char options[512];
    uint64_t random;
    struct str in;
};

static const char *option(const struct fake *f, const char *key, char *buf, size_t size)
{
    const size_t n = strlen(key);
    buf[0] = 0;
    for (const char *at = f->options; *at;) {
        const size_t len = strcspn(at, "+");
        if (len > n && at[n] == '=' && !strncmp(at, key, n))
            snprintf(buf, size, "%.*s", (int)(len - n - 1), at + n + 1);
        at += len + (at[len] == '+');
    }
    return buf;
}

static double number(const struct fake *f, const char *key, double otherwise)
{
    char text[64];
    double v;
    return str_to_double(option(f, key, text, sizeof(text)), &v) ? v : otherwise;
}

static double uniform(struct fake *f) /* splitmix64: neighbouring seeds have nothing in common */
{
    uint64_t x = f->random += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return ((double)(x >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(struct fake *f)
{
    return sqrt(-2 * log(uniform(f))) * cos(2 * M_PI * uniform(f));
}

static void put_line(const struct fake *f, json_t *o)
{
    char *line = json_line(o);
    struct str s = { 0 };
    str_append(&s, line);
    str_append(&s, "\n");
    for (size_t at = 0; at < s.len;) {
        const ssize_t n = send(f->fd, s.data + at, s.len - at, MSG_NOSIGNAL);
        if (n <= 0) exit(0); /* the parent is gone */
        at += (size_t)n;
    }
    str_free(&s);
    free(line);
    json_decref(o);
}

static void misbehave(const struct fake *f, int64_t id, const char *how)
{
    char said[128];
    fprintf(stderr, "%s", option(f, "say", said, sizeof(said)));
    fflush(stderr);
    if (!strcmp(how, "crash")) abort();
    if (!strcmp(how, "bus")) raise(SIGBUS);
    if (!strcmp(how, "kill")) raise(SIGKILL);
    if (!strcmp(how, "exit")) exit(9);
    if (!strcmp(how, "hang"))
        for (;;) pause();
    for (volatile int busy = !strcmp(how, "spin"); busy;) continue;
    if (!strcmp(how, "garbage")) send(f->fd, "Segmentation fault (not JSON)\n", 30, MSG_NOSIGNAL);
    if (!strcmp(how, "error") || !strcmp(how, "fit")) {
        json_t *o = json_object();
        json_put_int(o, "id", id);
        json_put_bool(o, "ok", false);
        json_put_str(o, "code", *how == 'f' ? "ERR_FIT" : "ERR_FORMAT");
        json_put_str(o, "message", *how == 'f' ? "needs 9G, 1G is available" : "tensor 'x' is damaged");
        put_line(f, o);
    }
}

static json_t *answer(int64_t id)
{
    json_t *o = json_object();
    json_put_int(o, "id", id);
    json_put_bool(o, "ok", true);
    return o;
}

/* Number of this worker in the file, 1 for the first; 0 without a file. */
static int count_start(const struct fake *f)
{
    char path[300];
    int n = 0;
    if (!*option(f, "starts", path, sizeof(path))) return 0;
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX) || pread(fd, &n, sizeof(n), 0) < 0) exit(65);
    n++;
    if (pwrite(fd, &n, sizeof(n), 0) != sizeof(n)) exit(65);
    close(fd);
    return n;
}

/* True when opening has failed, as the options ask, and the answer is given. */
static bool open_fails(struct fake *f, int64_t id, int start)
{
    char how[16], path[300];
    if (*option(f, "open", how, sizeof(how)) && (int)number(f, "open_at", start) == start) {
        misbehave(f, id, how);
        return true;
    }
    if (!*option(f, "alone", path, sizeof(path))) return false;
    const int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600); /* held until we end */
    if (lock >= 0 && !flock(lock, LOCK_EX | LOCK_NB)) return false;
    misbehave(f, id, "fit");
    return true;
}

static void do_open(struct fake *f, int64_t id, const char *config)
{
    const char *at = strstr(config, "fake:");
    const size_t n = at ? strcspn(at, ", \"'") : 0;
    if (at) snprintf(f->options, sizeof(f->options), "%.*s", (int)n - 5, at + 5);
    const int start = count_start(f);
    f->random = ((uint64_t)number(f, "seed", 1) << 32) + ((uint64_t)start << 16);
    if (start) f->place = number(f, "place", 0) * normal(f); /* without a file the noise stays what it was */
    clock_sleep_ns((int64_t)(number(f, "open_ms", 0) * 1e6));
    if (open_fails(f, id, start)) return;
    json_t *o = answer(id), *plan = json_object();
    json_put_str(o, "name", "Fake 1");
    json_put_str(o, "arch", "llama");
    const char *sha = getenv("FAKE_SHA256"); /* not in the config: the same line, another file */
    json_put_str(o, "sha256", sha ? sha : "00fa");
    json_put_str(o, "isa", "ref");
    json_put_str(o, "device", "cpu");
    json_put_str(o, "dominant_format", "f32");
    json_put_int(o, "threads", 2);
    json_put_num(o, "load_s", 0.25);
    json_put_bool(o, "random_weights", true);
    json_put_int(plan, "total", (int64_t)number(f, "plan", 1000));
    json_put(o, "plan", plan);
    put_line(f, o);
}

/* True when a "cancel" came meanwhile. */
static bool nap(struct fake *f, double ms)
{
    const int64_t until = clock_ns() + (int64_t)(ms * 1e6);
    for (;;) {
        const int64_t left = (until - clock_ns()) / 1000000;
        struct pollfd p = { .fd = f->fd, .events = POLLIN };
        if (poll(&p, 1, (int)MAX(left, 0)) > 0) {
            char buf[4096];
            const ssize_t n = recv(f->fd, buf, sizeof(buf), MSG_PEEK);
            if (n <= 0) exit(0);
            if (memmem(buf, (size_t)n, "cancel", 6)) return true;
        }
        if (left <= 0) return false;
    }
}

static void cancelled(const struct fake *f, int64_t id)
{
    json_t *o = answer(id);
    json_put_bool(o, "ok", false);
    json_put_str(o, "code", "ERR_CANCELLED");
    json_put_str(o, "message", "cancelled");
    put_line(f, o);
}

static void progress(struct fake *f, int64_t id, int done, int of)
{
    json_t *o = json_object();
    json_put_int(o, "id", id);
    json_put_str(o, "event", "progress");
    json_put_str(o, "phase", "decode");
    json_put_int(o, "done", done);
    json_put_int(o, "of", of);
    json_put_num(o, "seconds", 0.01 * done);
    put_line(f, o);
}

/* The next word of the parent: true for "go", false for "cancel". */
static bool wait_word(const struct fake *f)
{
    char buf[4096];
    const ssize_t n = recv(f->fd, buf, sizeof(buf), 0);
    if (n <= 0) exit(0);
    return memmem(buf, (size_t)n, "\"go\"", 4) != NULL;
}

static void note_word(const struct fake *f)
{
    char path[300], name[8];
    const int fd = open(option(f, "log", path, sizeof(path)), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC,
                        0600);
    if (fd < 0) return;
    if (write(fd, option(f, "name", name, sizeof(name)), 1) != 1) exit(65);
    close(fd);
}

/* Sends "turn", and waits. False: cancelled, and answered. */
static bool take_turn(struct fake *f, int64_t id)
{
    json_t *turn = answer(id);
    json_put_str(turn, "event", "turn");
    json_object_del(turn, "ok");
    put_line(f, turn);
    if (wait_word(f)) return true;
    cancelled(f, id);
    return false;
}

/* The turns of a cell: each takes as long as its steps, a letter in the log says when. */
static bool cell_turns(struct fake *f, int64_t id, json_t *o, int gen, int steps, double step_s)
{
    json_t *seconds = json_array();
    json_put(o, "turn_s", seconds);
    json_put_int(o, "prefill_turns", 0);
    for (int done = 0; done < gen; done += steps) {
        if (!take_turn(f, id)) return false;
        nap(f, number(f, "turn_ms", 0));
        note_word(f);
        json_array_append_new(seconds, json_real(step_s * MIN(steps, gen - done)));
    }
    return true;
}

static void put_ranks(const struct fake *f, json_t *o)
{
    const int ranks = (int)number(f, "ranks", 0);
    if (!ranks) return;
    json_t *list = json_array();
    for (int i = 0; i < ranks; i++) {
        json_t *one = json_object();
        json_put_num(one, "work_s", f->cells);
        json_put_int(one, "weight_bytes", i + 1);
        json_put_str(one, "host", "a machine with a name of a usual length");
        json_put_bool(one, "first_of_machine", true); /* each on a machine of its own, which uses 30 W */
        json_put_num(one, "machine_s", 2);
        json_put_num(one, "machine_energy_j", 60);
        json_array_append_new(list, one);
    }
    json_put(o, "ranks", list);
}

static void do_cell(struct fake *f, int64_t id, const json_t *request)
{
    const char *workload = json_get_str(request, "workload", "");
    const int steps = (int)json_get_int(request, "turn_steps", 0);
    char how[16], hash[32];
    f->cells++;
    if (f->cells == (int)number(f, "at", 0)) {
        misbehave(f, id, option(f, "do", how, sizeof(how)));
        return;
    }
    const char *tg = strstr(workload, "tg"), *pp = strstr(workload, "pp");
    const int gen = tg ? atoi(tg + 2) : 0, prompt = pp ? atoi(pp + 2) : 0;
    const double factor = exp(f->place + number(f, "noise", 0) * normal(f) -
                              number(f, "drift", 0) * ((double)clock_ns() * 1e-9 - number(f, "t0", 0)));
    progress(f, id, gen / 2, gen);
    if (nap(f, number(f, "sleep_ms", 0))) {
        cancelled(f, id);
        return;
    }
    json_t *o = answer(id), *itl = json_array();
    const double prefill_s = prompt / (number(f, "prefill", 5000) * factor);
    const double decode_s = gen / (number(f, "rate", 1000) * factor);
    for (int i = 0; i < gen; i++) json_array_append_new(itl, json_real(decode_s / gen));
    if (steps && !cell_turns(f, id, o, gen, steps, decode_s / gen)) {
        json_decref(o);
        json_decref(itl);
        return;
    }
    json_put_num(o, "prefill_s", prompt ? prefill_s : (double)NAN);
    json_put_num(o, "decode_s", gen ? decode_s : (double)NAN);
    json_put_num(o, "ttft_s", prefill_s + decode_s / MAX(gen, 1));
    json_put_int(o, "prompt_tokens", prompt);
    json_put_int(o, "gen_tokens", gen);
    json_put(o, "itl_s", itl);
    json_put_str(o, "work_hash", *option(f, "hash", hash, sizeof(hash)) ? hash : "5eed");
    json_put_str(o, "output_hash", "0123456789abcdef");
    json_put_num(o, "peak_rss_bytes", 123456789);
    const bool faulty = f->cells >= number(f, "faults_from", INFINITY) &&
                        f->cells <= number(f, "faults_to", INFINITY);
    json_put_int(o, "major_faults", faulty ? 3 : 0);
    put_ranks(f, o);
    put_line(f, o);
}

static void do_quality(struct fake *f, int64_t id, const json_t *request)
{
    char how[16];
    f->cells++;
    if (f->cells == (int)number(f, "at", 0)) {
        misbehave(f, id, option(f, "do", how, sizeof(how)));
        return;
    }
    if (*option(f, "quality", how, sizeof(how))) {
        misbehave(f, id, how);
        return;
    }
    progress(f, id, 1, 9);
    if (nap(f, number(f, "sleep_ms", 0))) {
        cancelled(f, id);
        return;
    }
    json_t *o = answer(id), *q = json_object();
    json_put_str(q, "file", json_get_str(request, "file", ""));
    json_put_int(q, "ctx", json_get_int(request, "ctx", 0));
    json_put_int(q, "chunks", json_get_int(request, "chunks", 0));
    json_put_num(q, "kld_mean", number(f, "kld", 0));
    json_put_num(q, "kld_se", number(f, "kld_se", 0));
    if (*option(f, "text", how, sizeof(how))) json_put_str(q, "text_sha256", how);
    json_put(o, "quality", q);
    put_line(f, o);
}

static void do_generate(struct fake *f, int64_t id, const json_t *request)
{
    char words[300], how[16];
    option(f, "write", words, sizeof(words));
    const bool turns = json_get_num(request, "turn_s", 0) > 0;
    int n = 0;
    const int limit = (int)json_get_int(request, "n", 0);
    const char *at = words;
    for (; *at && n < limit; n++) {
        if (n + 1 == (int)number(f, "at", 0)) {
            misbehave(f, id, option(f, "do", how, sizeof(how)));
            return;
        }
        if (turns && !take_turn(f, id)) return;
        nap(f, number(f, "sleep_ms", 0));
        note_word(f);
        const size_t len = strcspn(at, ".");
        json_t *o = json_object();
        json_put_int(o, "id", id);
        json_put_str(o, "event", "token");
        json_put(o, "text", json_pack("s+%", " ", at, len));
        json_put_int(o, "token", n);
        json_put_num(o, "seconds", 0.01 * (n + 1));
        put_line(f, o);
        at += len + (at[len] == '.');
    }
    json_t *o = answer(id);
    json_put_int(o, "gen_tokens", n);
    json_put_str(o, "stop", *at ? "limit" : "eos");
    put_line(f, o);
}

static void serve(struct fake *f, const char *line, size_t n)
{
    json_t *o = NULL;
    if (json_parse(&o, line, n, NULL)) exit(64);
    const char *op = json_get_str(o, "op", "");
    const int64_t id = json_get_int(o, "id", -1);
    if (!strcmp(op, "open")) do_open(f, id, json_get_str(o, "config", ""));
    if (!strcmp(op, "cell")) do_cell(f, id, o);
    if (!strcmp(op, "quality")) do_quality(f, id, o);
    if (!strcmp(op, "generate")) do_generate(f, id, o);
    if (!strcmp(op, "close")) exit(0);
    json_decref(o);
}

int main(int argc, char **argv)
{
    if (argc != 4 || strcmp(argv[1], "worker") || strcmp(argv[2], "--fd")) return 64;
    struct fake f = { .fd = atoi(argv[3]) };
    char buf[65536];
    ssize_t n;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while ((n = recv(f.fd, buf, sizeof(buf), 0)) > 0) {
        str_append_n(&f.in, buf, (size_t)n);
        char *end;
        while (f.in.len && (end = memchr(f.in.data, '\n', f.in.len))) {
            const size_t len = (size_t)(end - f.in.data);
            if (len) serve(&f, f.in.data, len);
            memmove(f.in.data, end + 1, f.in.len - len - 1);
            f.in.len -= len + 1;
        }
    }
    str_free(&f.in);
    return 0;
}
