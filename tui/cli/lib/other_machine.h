/* tui/cli/lib/other_machine.h - a machine that is not this one: what --machine names. */
#ifndef QDYNO_CLI_DESCRIBED_H
#define QDYNO_CLI_DESCRIBED_H

#include "tui/cli/lib/lib.h"

struct described {
    struct machine machine;
    bool ceilings_known;
    struct machine_ceilings ceilings;
    struct recording recording; /* root "" when it came from a document */
};
/* A folder of `detect --record`, the document of `detect -o json`, or the name of a machine that is shipped
 * (share/machines). recording.about says where it comes from. Errors: ERR_IO, ERR_FORMAT, both naming
 * --machine and the path. On success: described_close. */
enum err_code described_open(struct described *out, const char *path, struct err *why);
void described_close(struct described *d);

#endif
