/* advisor/run/said.c - see said.h. */
#include "advisor/run/said.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum err_code said_open(struct said *s, size_t most, int *child_fd, struct err *why)
{
    int pair[2];
    *s = (struct said){ .fd = -1, .most = most };
    if (pipe2(pair, O_CLOEXEC))
        return err_set(why, err_of_errno(errno), "cannot make a pipe: %s", strerror(errno));
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    s->fd = pair[0];
    *child_fd = pair[1];
    return ERR_OK;
}

bool said_take(struct said *s)
{
    char buf[4096];
    ssize_t n;
    bool some = false;
    while (s->fd >= 0 && (n = read(s->fd, buf, sizeof buf)) != 0) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return some;
        if (n < 0) break;
        if (s->text.len + (size_t)n > s->most && s->text.len > s->most / 2) {
            memmove(s->text.data, s->text.data + s->text.len - s->most / 2, s->most / 2);
            s->text.len = s->most / 2;
        }
        str_append_n(&s->text, buf, (size_t)n);
        some = true;
    }
    if (s->fd >= 0) close(s->fd);
    s->fd = -1;
    return some;
}

const char *said_last(const struct said *s, char buf[SAID_LAST])
{
    static const char BEFORE[] = "; it said: ";
    const size_t most = SAID_LAST - sizeof BEFORE;
    size_t end = s->text.len, n = 0;
    while (end && isspace((unsigned char)s->text.data[end - 1])) end--;
    if (end) n = (size_t)snprintf(buf, SAID_LAST, "%s", BEFORE);
    for (size_t i = end > most ? end - most : 0; i < end; i++) {
        const unsigned char c = (unsigned char)s->text.data[i];
        buf[n++] = c == '\n' ? '|' : c < 32 || c == 127 ? ' ' : (char)c;
    }
    buf[n] = '\0';
    return buf;
}

void said_close(struct said *s)
{
    if (s->fd > 0) close(s->fd);
    s->fd = -1;
    str_free(&s->text);
}
