/* tui/cli/lib/other_machine.h - the machine that --machine names, instead of this one. */
#ifndef QDYNO_CLI_OTHER_MACHINE_H
#define QDYNO_CLI_OTHER_MACHINE_H

#include "telemetry/machine/machine.h"
#include "telemetry/probe/probe.h"
#include "telemetry/recording/recording.h"
#include "tui/cli/lib/lib.h"

struct other_machine {
    struct machine machine;
    bool ceilings_known;
    struct machine_ceilings ceilings;
    struct recording recording; /* root is "" if the machine came from a document */
};

/* path: a folder of `detect --record`, a document of `detect -o json`, or the name of a machine in
 * share/machines. recording.about says where the description comes from. Errors: ERR_IO, ERR_FORMAT, both
 * with
 * --machine and the path in the message. After success: other_machine_close. */
enum err_code other_machine_open(struct other_machine *out, const char *path, struct err *why);
void other_machine_close(struct other_machine *d);

#endif
