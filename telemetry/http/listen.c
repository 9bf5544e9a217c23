/* Opens sockets that listen, for the servers of this program (http.h). libmicrohttpd would open them, too,
 * but does not report why it cannot. */
#include "telemetry/http/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 128 };

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static bool address_parse(union address *a, socklen_t *size, const char *text, int port)
{
    memset(a, 0, sizeof *a);
    if (inet_pton(AF_INET, text, &a->v4.sin_addr) == 1) {
        a->v4.sin_family = AF_INET;
        a->v4.sin_port = htons((uint16_t)port);
        *size = sizeof a->v4;
        return true;
    }
    if (inet_pton(AF_INET6, text, &a->v6.sin6_addr) != 1) return false;
    a->v6.sin6_family = AF_INET6;
    a->v6.sin6_port = htons((uint16_t)port);
    *size = sizeof a->v6;
    return true;
}

static enum err_code listen_error(const char *address, int port, int cause, struct err *why)
{
    static const struct {
        int cause;
        enum err_code code;
        const char *advice;
    } CAUSES[] = {
        { .cause = EADDRINUSE,
          .code = ERR_ABSENT,
          .advice = "another program uses this port: choose another one, or 0 for any" },
        { .cause = EADDRNOTAVAIL, .code = ERR_USAGE, .advice = "this is not an address of this machine" },
        { .cause = EACCES,
          .code = ERR_USAGE,
          .advice = "only root may use ports below 1024: choose a higher one" },
        { .cause = EAFNOSUPPORT,
          .code = ERR_USAGE,
          .advice = "this machine does not support this kind of address" },
    };
    for (size_t i = 0; i < COUNT_OF(CAUSES); i++)
        if (CAUSES[i].cause == cause)
            return err_set(why, CAUSES[i].code, "cannot listen on %s port %d: %s", address, port,
                           CAUSES[i].advice);
    return err_set(why, err_of_errno(cause), "cannot listen on %s port %d: %s", address, port,
                   strerror(cause));
}

enum err_code http_listen(int *fd, const char *address, int port, int *chosen, struct err *why)
{
    union address a;
    socklen_t size;
    const int yes = 1;
    if (port < 0 || port > 65535) return err_set(why, ERR_USAGE, "port %d: expected 0 to 65535", port);
    if (!address_parse(&a, &size, address, port))
        return err_set(why, ERR_USAGE, "'%s' is not a numeric address such as 0.0.0.0 or ::", address);
    *fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd < 0) return listen_error(address, port, errno, why);
    /* otherwise a restart fails until the kernel has forgotten the last client's connection */
    setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(*fd, &a.any, size) || listen(*fd, BACKLOG) || getsockname(*fd, &a.any, &size)) {
        const int cause = errno;
        close(*fd);
        return listen_error(address, port, cause, why);
    }
    *chosen = ntohs(a.any.sa_family == AF_INET ? a.v4.sin_port : a.v6.sin6_port);
    return ERR_OK;
}

bool http_address_is_loopback(const char *address)
{
    union address a;
    socklen_t size;
    if (!address_parse(&a, &size, address, 0)) return false;
    if (a.any.sa_family == AF_INET) return ntohl(a.v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    return IN6_IS_ADDR_LOOPBACK(&a.v6.sin6_addr);
}
