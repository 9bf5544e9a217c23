/* Files of conversations come from strangers (texts to evaluate): whatever they hold, they become ids or are
 * refused with a message that names the line, in time proportional to their length; and however a message, a
 * tool or a variable looks, it gives no control token: as many begin and end a turn as there are messages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/chat/chat.h"
#include "tests/fuzz/cost.h"
#include "tests/fuzz/draft.h"

static const struct cost_ceiling CEILING = {
    .seconds = 1, .seconds_per_mb = 30, .mb = 64, .mb_per_mb = 1500
};

static const char TEMPLATE[] =
    "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}{{ note }}{% if tools %}{{ tools | tojson }}{% endif %}";

static const char *const CONTROL[] = { "<|im_start|>", "<|im_end|>" };

static struct {
    struct str file;
    struct gguf *g;
    struct tokenizer *t;
    struct chat *chat;
    int32_t control[COUNT_OF(CONTROL)], bos;
    int64_t n_vocab;
} model;

static void add_control(struct draft *d)
{
    enum { CONTROL_TYPE = 3 };
    const float score = -1e3f;
    struct draft_key *texts = draft_find(d, "tokenizer.ggml.tokens"),
                     *types = draft_find(d, "tokenizer.ggml.token_type"),
                     *scores = draft_find(d, "tokenizer.ggml.scores");
    if (!texts || !types || !scores) abort();
    for (size_t i = 0; i < COUNT_OF(CONTROL); i++) {
        draft_put_text(texts, CONTROL[i], strlen(CONTROL[i]));
        str_append_n(&types->value, &(int32_t){ CONTROL_TYPE }, sizeof(int32_t));
        str_append_n(&scores->value, &score, sizeof score);
        texts->count++;
    }
    types->count = scores->count = texts->count;
}

static void prepare(void)
{
    static struct draft d;
    struct script s = { (const uint8_t *)"\0\0\0\5", 4 }; /* a sentencepiece vocabulary */
    struct tokenizer_info info;
    struct err why = { 0 };
    if (model.chat) return;
    draft_model(&d, &s);
    add_control(&d);
    draft_add_text(&d, "tokenizer.chat_template", TEMPLATE);
    draft_write(&d, &model.file);
    draft_free(&d);
    if (gguf_open_memory(&model.g, model.file.data, model.file.len, &why) ||
        tokenizer_open(&model.t, model.g, &why) || chat_open(&model.chat, model.g, model.t, NULL, &why)) {
        fprintf(stderr, "%s\n", why.message);
        abort();
    }
    tokenizer_describe(model.t, &info);
    model.n_vocab = info.n_vocab;
    model.bos = info.bos;
    for (size_t i = 0; i < COUNT_OF(CONTROL); i++) model.control[i] = tokenizer_control(model.t, CONTROL[i]);
    if (model.control[0] < 0 || model.control[1] < 0) abort();
}

/* Messages in all lines, and lines with some. */
static void count_messages(const char *text, size_t n, int64_t *messages, int64_t *lines)
{
    static const char BOM[] = "\xef\xbb\xbf";
    size_t at = n >= 3 && !memcmp(text, BOM, 3) ? 3 : 0, line;
    *messages = *lines = 0;
    for (; at < n; at += line + 1) {
        const char *end = memchr(text + at, '\n', n - at);
        json_t *j;
        line = end ? (size_t)(end - text) - at : n - at;
        if (json_parse(&j, text + at, line, NULL)) continue;
        const int64_t size = (int64_t)json_array_size(json_object_get(j, "messages"));
        *messages += size;
        *lines += size > 0;
        json_decref(j);
    }
}

static void check_ids(const struct token_list *ids, const char *text, size_t n)
{
    int64_t messages, lines, control[COUNT_OF(CONTROL)] = { 0 }, bos = 0;
    for (int64_t i = 0; i < ids->n; i++) {
        if (ids->ids[i] < 0 || ids->ids[i] >= model.n_vocab) abort();
        bos += ids->ids[i] == model.bos;
        for (size_t k = 0; k < COUNT_OF(CONTROL); k++) control[k] += ids->ids[i] == model.control[k];
    }
    count_messages(text, n, &messages, &lines);
    if (control[0] == messages && control[1] == messages && bos <= lines) return;
    fprintf(stderr, "%lld messages in %lld lines became %lld %s, %lld %s and %lld BOS\n", (long long)messages,
            (long long)lines, (long long)control[0], CONTROL[0], (long long)control[1], CONTROL[1],
            (long long)bos);
    abort();
}

static void use(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    enum text_kind kind;
    struct token_list whole = { 0 }, ids = { 0 };
    struct err why = { 0 };
    if (text_kind_find(&kind, text, size, &why)) abort();
    enum err_code rc = text_encode(model.g, model.t, text, size, &whole, &why);
    if (rc && (rc != ERR_FORMAT || !why.message[0])) abort();
    if (kind == TEXT_OTHER_JSON && !rc) abort();
    const bool conversations = kind == TEXT_CONVERSATIONS;
    if (conversations && rc && !strstr(why.message, "line ")) abort();
    /* a text of another kind is tried as well: it was only its first line that said so */
    const enum err_code again = conversations_encode(model.chat, text, size, &ids, &why);
    if (again && again != ERR_FORMAT) abort();
    if (conversations && (again != rc || ids.n != whole.n)) abort();
    if (!again) check_ids(&ids, text, size);
    token_list_free(&whole);
    token_list_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    prepare();
    return cost_run(use, data, size, &CEILING);
}
