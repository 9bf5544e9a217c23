/* advisor/scrape.h - the live page: this machine now, everything measured so far, the latest outcomes. */
#ifndef QDYNO_ADVISOR_SCRAPE_H
#define QDYNO_ADVISOR_SCRAPE_H

#include "db/db.h"
#include "telemetry/telemetry.h"

struct scrape;
/* sampler and machine are borrowed. What the database holds already is counted now, however long that takes:
 * later looks have a second. It may be missing, or older or newer than we read: qdyno_database_up is 0 then.
 * Errors: ERR_NOMEM. */
enum err_code scrape_open(struct scrape **out, const char *db_path, struct sampler_thread *sampler,
                          const struct machine *machine, struct err *why);
void scrape_close(struct scrape *s); /* NULL is fine */
/* Everything to the sink. Not thread-safe. What the database cannot say now is what it said last. */
void scrape_tell(struct scrape *s, const struct family_sink *to);
/* Why the database did not answer last time; "" when it did. Borrowed. */
const char *scrape_absence(const struct scrape *s);
/* A page_fn; ctx is a struct scrape. */
page_fn scrape_page;

#endif
