/* tui/figures.h - numbers as people read them. Unknown (NAN, -1) is "n/a", never 0.
 *
 * Returned by value: figure_rate(v).text lives until the end of the expression it stands in. */
#ifndef QDYNO_TUI_FIGURES_H
#define QDYNO_TUI_FIGURES_H

#include "base/base.h"

struct figure {
    char text[32];
};

struct figure figure_number(double v);         /* "38.2" "1610" "0.31": three digits, all before the point */
struct figure figure_percent(double ratio);    /* 0.931 -> "93%" */
struct figure figure_change(double log_ratio); /* ln(B/A) -> "+58.4%" */
struct figure figure_bytes(int64_t bytes);     /* "1.17G" */
struct figure figure_seconds(double s);        /* "0.31s" "26.1ms" "310us" */
struct figure figure_duration(double s);       /* "0:41" "1:02:03" */
struct figure figure_hertz(double hz);         /* "3.1GHz" */
struct figure figure_celsius(double c);        /* "61°C" */
struct figure figure_per_second(double bytes_s); /* "24.1GB/s" (powers of 1000, as bandwidth is sold) */
struct figure figure_clock(int64_t unix_ms);     /* "18:02:07", local time */
struct figure figure_date(int64_t unix_ms);      /* "11-21 18:02", local time */

#endif
