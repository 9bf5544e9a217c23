/* tests/tui/report_fixture.h - synthetic runs for tests of the report. */
#ifndef QDYNO_TESTS_TUI_REPORT_FIXTURE_H
#define QDYNO_TESTS_TUI_REPORT_FIXTURE_H

#include "tui/report/content.h"

/* Makes a finished run of `blocks` blocks with mean effect `effect` and standard deviation `sd` (log ratios),
 * from a fixed seed. Owned by the caller: report_source_free. */
struct report_source *report_fixture(int blocks, double effect, double sd);

#endif
