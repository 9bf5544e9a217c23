/* tui/forms/keys.c - the table of keys, made from ACTION_LIST (action_list.h). */
#include "tui/forms/forms.h"

#include "tui/widgets/widgets.h"

#define THESE(...)                                            __VA_ARGS__
#define KEY_OF(action_, keys, texts, refuse, command, effect) { DO_##action_, { THESE keys }, THESE texts },
const struct key_binding KEYS[] = { ACTION_LIST(KEY_OF, KEY_OF, KEY_OF, KEY_OF) };
#undef KEY_OF
#undef THESE
const size_t KEY_COUNT = COUNT_OF(KEYS);

const struct key_binding *key_find(int key)
{
    if (key == 0) return NULL;
    for (size_t i = 0; i < KEY_COUNT; i++)
        for (size_t j = 0; j < COUNT_OF(KEYS[i].key); j++)
            if (KEYS[i].key[j] == key) return &KEYS[i];
    return NULL;
}

const struct key_binding *key_of_action(enum action action)
{
    return action == DO_NOTHING ? NULL : &KEYS[action - 1]; /* both come from the list */
}
