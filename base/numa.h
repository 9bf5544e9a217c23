/* base/numa.h - memory nodes: where pages lie, and on which of their processors threads run. */
#ifndef QDYNO_BASE_NUMA_H
#define QDYNO_BASE_NUMA_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct numa; /* the nodes that this process may use; where nobody knows of any: one, the machine */

/* *out owned: numa_close. Errors: ERR_NOMEM; ERR_IO when the topology cannot be read. */
enum err_code numa_open(struct numa **out, struct err *why);
void numa_close(struct numa *n); /* NULL is fine; whoever entered a node leaves it */

int numa_count(const struct numa *n);           /* at least 1 */
int numa_cores(const struct numa *n, int node); /* physical cores beside that memory; 0: memory alone */

/* Pages of p, none of which was touched yet, will lie on that node; those it has no room for lie elsewhere
 * (insisting would let the kernel kill for memory). false: the system refuses. */
bool numa_place(const struct numa *n, int node, void *p, size_t bytes);

/* The calling thread, and those it starts from now on, stay on that node's processors, until it leaves: then
 * it is back where it was. One node at a time. false: the system refuses, and nothing changed. */
bool numa_enter(struct numa *n, int node);
void numa_leave(struct numa *n);

#endif
