/* Accepts connections for one of several processes (accept.h).
 *
 * The kernel gives a connection to whichever process asks first. A process whose sequences are all in use
 * therefore lets the others ask first: it accepts only what is still there after LEAVE_NS. */
#include "advisor/serve/accept.h"

#include <errno.h>
#include <sys/socket.h>

#include "advisor/serve/access.h"
#include "advisor/serve/parts.h"
#include "engine/model/model.h"

enum { LEAVE_NS = 20 * 1000 * 1000, MS_NS = 1000 * 1000 };

void acceptor_init(struct acceptor *a, const struct server *s)
{
    *a = (struct acceptor){ .fd = s->o.share ? s->o.listener : -1,
                            .share = s->o.share,
                            .slot = s->o.slot,
                            .sequences = (int)config_int(model_config(s->o.model), KNOB_MAX_SEQUENCES) };
}

bool acceptor_moves_client(const struct acceptor *a, struct server *s)
{
    if (a->retiring || !a->share) return a->retiring;
    pthread_mutex_lock(&s->lock);
    const int open = s->open, waiting = s->waiting;
    pthread_mutex_unlock(&s->lock);
    return waiting && share_other_has_room(a->share, a->slot, open);
}

int acceptor_descriptor(const struct acceptor *a, int *wait_ms)
{
    if (a->fd < 0 || a->retiring) return -1;
    const int64_t left_ns = a->leave_ns - clock_ns();
    if (left_ns <= 0) return a->fd;
    *wait_ms = MIN(*wait_ms, (int)(left_ns / MS_NS) + 1);
    return -1;
}

static void acceptor_leave(struct acceptor *a)
{
    a->leave_ns = clock_ns() + LEAVE_NS;
}

void acceptor_run(struct acceptor *a, struct MHD_Daemon *daemon, int64_t open)
{
    while (!a->retiring && a->leave_ns <= clock_ns()) {
        struct sockaddr_storage from;
        socklen_t size = sizeof from;
        if (!a->left && open >= a->sequences && share_other_has_room(a->share, a->slot, open)) {
            a->left = true;
            acceptor_leave(a);
            return;
        }
        const int fd = accept4(a->fd, (struct sockaddr *)&from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        a->left = false;
        if (fd >= 0) {
            open++;
            MHD_add_connection(daemon, fd, (struct sockaddr *)&from, size); /* closes it if it cannot */
        } else if (errno == EAGAIN) {                                       /* another process was faster */
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) { /* no descriptor or memory: try again later */
            acceptor_leave(a);
        }
    }
}
