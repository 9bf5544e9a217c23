/* Messages over the socket between the leader and rank 0. */
#include "engine/parallel/parallel_internal.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

bool frame_write(int fd, const void *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        const ssize_t sent = send(fd, (const char *)bytes + at, n - at, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        at += (size_t)sent;
    }
    return true;
}

bool frame_read(int fd, void *bytes, size_t n)
{
    for (size_t at = 0; at < n;) {
        const ssize_t got = recv(fd, (char *)bytes + at, n - at, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        at += (size_t)got;
    }
    return true;
}
