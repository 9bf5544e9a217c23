/* documents.c - see documents.h. */
#include "tui/cli/documents.h"

#define DOCUMENT_ROW(name) &DOCUMENT_##name,
const struct document *const DOCUMENTS[] = { DOCUMENT_LIST(DOCUMENT_ROW) };
#undef DOCUMENT_ROW
const size_t DOCUMENT_COUNT = COUNT_OF(DOCUMENTS);
