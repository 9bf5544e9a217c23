/* Invalid plug-ins: a macro selects at compile time what is wrong. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <qdyno_plugin.h>

static int encode(struct qdyno_rows *r)
{
    return r == NULL;
}

static const struct qdyno_parameter PARAMETERS[] = {
#if defined(ODD_ALIAS)
    { "group", "another method's word for group_size", QDYNO_INT, 1, 9, NULL, "1" },
#elif defined(ODD_KEY)
    { "threads", "a key of every config", QDYNO_INT, 1, 9, NULL, "1" },
#elif defined(ODD_DEFAULT)
    { "turns", "a default out of range", QDYNO_INT, 1, 9, NULL, "10" },
#elif defined(ODD_RANGE)
    { "turns", "a range without an end", QDYNO_REAL, 1, 0, NULL, "1" },
#elif defined(ODD_TWICE)
    { "turns", "once", QDYNO_INT, 1, 9, NULL, "1" },
    { "turns", "and again", QDYNO_INT, 1, 9, NULL, "1" },
#elif defined(ODD_CHOICES)
    { "turns", "words that are none", QDYNO_CHOICE, 0, 0, "left, right", "left," },
#endif
    { 0 },
};

static struct qdyno_plugin plugin = { .version = QDYNO_PLUGIN_VERSION,
                                      .name = "odd",
                                      .help = "is refused",
                                      .formats = "u4_g64",
                                      .answer = QDYNO_CODES,
                                      .parameters = PARAMETERS,
                                      .encode = encode };

#if defined(ODD_CONSTRUCTOR)
__attribute__((constructor)) static void at_once(void)
{
    raise(SIGABRT);
}
#endif

#if defined(ODD_SYMBOL)
const struct qdyno_plugin *another_name(void);
#define qdyno_plugin_get another_name
#endif

const struct qdyno_plugin *qdyno_plugin_get(void)
{
#if defined(ODD_CRASH)
    raise(SIGSEGV);
#elif defined(ODD_EXIT)
    _exit(3);
#elif defined(ODD_HANG)
    for (;;) pause();
#elif defined(ODD_NOTHING)
    return NULL;
#elif defined(ODD_VERSION)
    plugin.version = QDYNO_PLUGIN_VERSION + 1;
#elif defined(ODD_NAME)
    plugin.name = "No Good";
#elif defined(ODD_TAKEN)
    plugin.name = "rtn";
#elif defined(ODD_UNNAMED)
    plugin.name = NULL;
#elif defined(ODD_FORMATS)
    plugin.formats = "u4_g64 q4_0"; /* codes of q4_0 cannot be chosen */
#elif defined(ODD_ENCODE)
    plugin.encode = NULL;
#elif defined(ODD_ANSWER)
    plugin.answer = (enum qdyno_answer)7;
#elif defined(ODD_LONG)
    char *help = calloc(1, 3 << 20);
    for (int i = 0; help && i < (3 << 20) - 1; i++) help[i] = 'x';
    plugin.help = help;
#endif
    return &plugin;
}
