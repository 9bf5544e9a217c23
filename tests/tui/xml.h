/* tests/tui/xml.h - is this text well-formed XML, and does it stand alone? A small checker of our own, so
 * that the test needs no library; xmllint, where it is installed, agrees in the e2e test. */
#ifndef QDYNO_TESTS_TUI_XML_H
#define QDYNO_TESTS_TUI_XML_H

#include <stdbool.h>
#include <stddef.h>

/* Writes what is wrong with `text` into why[size]; true when nothing is: elements nest, attributes are
 * quoted, no stray < or &, only characters that XML can hold, every id once, every #reference to one that is
 * there. */
bool xml_is_well_formed(const char *text, char *why, size_t size);

#endif
