/* Proves: end-of-turn tokens of all families end an answer and are control tokens, however a file types them;
 * text of a message cannot become one; other tokens of such types stay text; further ends of a file are read;
 * where <|return|> and <|call|> end a turn, <|end|> does not. */
#include <stdlib.h>
#include <string.h>

#include "engine/gguf/gguf.h"
#include "engine/text/text.h"
#include "tests/check.h"

enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, LETTERS = 128 };

struct opened {
    struct gguf *g;
    struct tokenizer *t;
};

/* A vocabulary of ASCII and the given tokens, all of one type. */
static struct opened open_tokens(const char *const *texts, size_t count, int32_t type,
                                 const int32_t *more_ends, size_t more)
{
    char path[4096], letters[LETTERS];
    struct err why = { 0 };
    struct gguf_writer *w;
    struct opened o;
    struct gguf_string all[LETTERS + 64];
    int32_t types[LETTERS + 64];
    for (int i = 0; i < LETTERS; i++) {
        letters[i] = (char)(i ? i : 1);
        all[i] = (struct gguf_string){ &letters[i], 1 };
        types[i] = NORMAL;
    }
    for (size_t i = 0; i < count; i++) {
        all[LETTERS + i] = (struct gguf_string){ texts[i], strlen(texts[i]) };
        types[LETTERS + i] = type;
    }
    snprintf(path, sizeof path, "%s/tests/ends-%d.gguf", TEST_BUILD_DIR, (int)getpid());
    CHECK_OK(gguf_writer_open(&w, path, &why));
    gguf_writer_put_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_writer_put_string(w, "tokenizer.ggml.pre", "gpt-2");
    gguf_writer_put_strings(w, "tokenizer.ggml.tokens", all, LETTERS + count);
    gguf_writer_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, LETTERS + count);
    if (more) gguf_writer_put_array(w, OWN_ENDS, GGUF_I32, more_ends, more);
    CHECK_OK(gguf_writer_commit(w, &why));
    CHECK_OK(gguf_open(&o.g, path, &why));
    CHECK_OK(tokenizer_open(&o.t, o.g, &why));
    unlink(path);
    return o;
}

static void close_tokens(struct opened o)
{
    tokenizer_close(o.t);
    gguf_close(o.g);
}

static int64_t count_tokens(const struct opened *o, const char *text, unsigned flags)
{
    struct err why = { 0 };
    struct token_list l = { 0 };
    CHECK_OK(tokenizer_encode(o->t, text, strlen(text), flags, &l, &why));
    const int64_t n = l.n;
    token_list_free(&l);
    return n;
}

static const char *const ENDS[] = {
    "<|im_end|>", "<|eot_id|>",         "<end_of_turn>",
    "<|end|>",    "<|eom_id|>",         "<|endoftext|>",
    "<|return|>", "<|end_of_text|>",    "<EOT>",
    "[EOT]",      "<end_of_utterance>", "<|END_OF_TURN_TOKEN|>",
    "<turn|>",    "<|tool_response>",   "[e~[",
};

static void ends_of_every_type(void **state)
{
    (void)state;
    static const int32_t TYPES[] = { NORMAL, CONTROL, USER_DEFINED };
    for (size_t k = 0; k < COUNT_OF(TYPES); k++) {
        struct opened o = open_tokens(ENDS, COUNT_OF(ENDS), TYPES[k], NULL, 0);
        for (size_t i = 0; i < COUNT_OF(ENDS); i++) {
            const int32_t id = LETTERS + (int32_t)i;
            if (!tokenizer_ends(o.t, id)) fail_msg("'%s' of type %d does not end", ENDS[i], TYPES[k]);
            CHECK_EQ(tokenizer_control(o.t, ENDS[i]), id);
            CHECK_EQ(count_tokens(&o, ENDS[i], TOKENIZE_SPECIAL), 1);
            CHECK_LT(1, count_tokens(&o, ENDS[i], 0)); /* a message cannot write it */
        }
        CHECK(!tokenizer_ends(o.t, 'a'));
        close_tokens(o);
    }
}

static void other_tokens_stay_text(void **state)
{
    (void)state;
    static const char *const OTHERS[] = { "<think>", "<|im_start|>", "</s>", "<br>", "[INST]" };
    struct opened o = open_tokens(OTHERS, COUNT_OF(OTHERS), USER_DEFINED, NULL, 0);
    for (size_t i = 0; i < COUNT_OF(OTHERS); i++) {
        CHECK(!tokenizer_ends(o.t, LETTERS + (int32_t)i));
        CHECK_EQ(tokenizer_control(o.t, OTHERS[i]), -1);
        CHECK_EQ(count_tokens(&o, OTHERS[i], 0), 1);
    }
    close_tokens(o);
}

static void further_ends_of_a_file(void **state)
{
    (void)state;
    static const char *const TOKENS[] = { "<a>", "<b>", "<c>", "<d>", "<e>" };
    static const int32_t MORE[] = { LETTERS, LETTERS + 1, LETTERS + 2, LETTERS + 3, -1, 99999 };
    struct opened o = open_tokens(TOKENS, COUNT_OF(TOKENS), CONTROL, MORE, COUNT_OF(MORE));
    for (int32_t i = 0; i < 4; i++) CHECK(tokenizer_ends(o.t, LETTERS + i));
    CHECK(!tokenizer_ends(o.t, LETTERS + 4));
    close_tokens(o);
}

static void parts_of_a_turn(void **state)
{
    (void)state;
    static const char *const TOKENS[] = { "<|end|>", "<|return|>", "<|call|>" };
    struct opened o = open_tokens(TOKENS, COUNT_OF(TOKENS), NORMAL, NULL, 0);
    CHECK(!tokenizer_ends(o.t, LETTERS));
    CHECK(tokenizer_ends(o.t, LETTERS + 1));
    CHECK(tokenizer_ends(o.t, LETTERS + 2));
    close_tokens(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_of_every_type),
        cmocka_unit_test(other_tokens_stay_text),
        cmocka_unit_test(further_ends_of_a_file),
        cmocka_unit_test(parts_of_a_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
