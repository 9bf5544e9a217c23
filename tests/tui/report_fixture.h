/* tests/tui/report_fixture.h - runs that never were, to be reported. */
#ifndef QDYNO_TESTS_TUI_REPORT_FIXTURE_H
#define QDYNO_TESTS_TUI_REPORT_FIXTURE_H

#include "tui/report/content.h"

/* owned: report_source_free. A finished run of `blocks` blocks whose effect is `effect` and spreads by `sd`
 * (log ratios); every number follows from a fixed seed. */
struct report_source *report_fixture(int blocks, double effect, double sd);

#endif
