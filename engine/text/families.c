/* The table of pre-tokenizers: how each model family cuts text into words before it merges them.
 *
 * A row is one value of tokenizer.ggml.pre, so a name that a file can carry is found by reading one line.
 * Families that cut alike share a macro. The expressions are those of the families' tokenizer.json files,
 * written for PCRE2: \s is a list of characters, because PCRE2 counts U+180E as a space and the families do
 * not, and characters beyond ASCII are numbers. Names of encoders (jina, roberta, modern-bert) are not here:
 * the engine runs decoders. */
#include "engine/text/text_internal.h"

#include "kernels/kernels.h"

/* clang-format off */
#define WS   "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define TAIL "[" WS "]+(?![^" WS "])|[" WS "]+"
#define NEWLINES "[" WS "]*[\\r\\n]+|"
#define ONE_MARK "[^\\r\\n\\p{L}\\p{N}]?" /* a word may begin with one character of another kind */
#define SYMBOLS " ?[^" WS "\\p{L}\\p{N}]+"
#define SHORT "(?i:'s|'t|'re|'ve|'m|'ll|'d)"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" SYMBOLS "|" TAIL
#define WORDS(digits) ONE_MARK "\\p{L}+|" digits "|" SYMBOLS "[\\r\\n]*|" NEWLINES TAIL
#define LLAMA3 SHORT "|" WORDS("\\p{N}{1,3}")
#define QWEN2 SHORT "|" WORDS("\\p{N}")
/* words of letters with their marks */
#define MARKED(letters, digits)                                                                              \
    SHORT "|" ONE_MARK "[" letters "]+|" digits "| ?[^" WS "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" NEWLINES TAIL

/* upper* lower+ or upper+ lower*: letters without case belong to both */
#define UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define CASED(upper, lower, suffix)                                                                          \
    ONE_MARK upper "*" lower "+" suffix "|" ONE_MARK upper "+" lower "*" suffix "|"
#define CASE_WORDS(suffix, digits)                                                                           \
    CASED("[" UPPER "]", "[" LOWER "]", suffix) digits "|" SYMBOLS "[\\r\\n/]*|" NEWLINES TAIL
#define GPT4O CASE_WORDS(SHORT "?", "\\p{N}{1,3}")
#define NOT_HAN(class) "(?:(?!\\p{sc:Han})[" class "])"
#define KIMI                                                                                                 \
    "\\p{sc:Han}+|" CASED(NOT_HAN(UPPER), NOT_HAN(LOWER), SHORT "?") "\\p{N}{1,3}|" SYMBOLS "[\\r\\n]*|"      \
    NEWLINES TAIL

#define HAN_KANA "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}]+"
#define DEEPSEEK_HAN "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"
#define DEEPSEEK_WORDS(symbols, newlines)                                                                    \
    "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+" symbols "|"      \
    newlines "|" TAIL
#define DEEPSEEK3 "\\p{N}{1,3}", HAN_KANA, DEEPSEEK_WORDS("[\\r\\n]*", "[" WS "]*[\\r\\n]+")
/* groups of three digits, counted from the end of the number */
#define THREES(digit) digit "{1,3}(?=(?:" digit "{3})*(?!" digit "))"
#define BLOOM                                                                                                \
    " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"
#define LINES "[^\\n]+|\\n+"
#define RUN(n) "[" WS "]{" #n "}(?![^" WS "])|"

/* the letters of alphabets with case, as one family lists them */
#define DEEPSEEK_LETTERS \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}" \
    "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}" \
    "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}" \
    "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}" \
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}" \
    "\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}" \
    "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}" \
    "\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}" \
    "\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}" \
    "\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}" \
    "\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}" \
    "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}" \
    "\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"
/* scripts that afmoe cuts apart from others */
#define ASIAN \
    "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}\\x{3040}-\\x{30ff}\\x{ff65}-\\x{ff9f}" \
    "\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{eff}\\x{1780}-\\x{17ff}\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}" \
    "\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}\\x{1100}-\\x{11ff}]+"
#define YOUTU \
    "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}" \
    "\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+|" HAN_KANA

enum { WHOLE = 1, BOS = 2, CHARS = 4 }; /* as the fields of struct pre_info */
#define ROW(text, flags, ...)                                                                                \
    { .info = { .name = text, .whole_words = ((flags) & WHOLE) != 0, .add_bos = ((flags) & BOS) != 0,        \
                .characters = ((flags) & CHARS) != 0 },                                                      \
      .patterns = { __VA_ARGS__ } }

const struct family TEXT_FAMILIES[] = {
    ROW("default", 0, "[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"),
    ROW("falcon", 0, "[\\p{P}$+<=>^~|`]+", GPT2, "[0-9]+", "[0-9][0-9][0-9]"),
    ROW("gpt-2", 0, GPT2),
    ROW("phi-2", 0, GPT2),
    ROW("mpt", 0, GPT2),
    ROW("olmo", 0, GPT2),
    ROW("jais", 0, GPT2),
    ROW("gigachat", 0, GPT2),
    ROW("a.x-4.0", 0, GPT2),
    ROW("mellum", 0, GPT2),
    ROW("exaone4", 0, GPT2),
    ROW("trillion", 0, GPT2),
    ROW("granite-docling", 0, GPT2),
    ROW("starcoder", 0, "\\p{N}", GPT2),
    ROW("refact", 0, "\\p{N}", GPT2),
    ROW("command-r", 0, "\\p{N}", GPT2),
    ROW("smollm", 0, "\\p{N}", GPT2),
    ROW("codeshell", 0, "\\p{N}", GPT2),
    ROW("exaone", 0, "\\p{N}", GPT2),
    ROW("minerva-7b", 0, "\\p{N}", GPT2),
    ROW("mellum2", 0, "\\p{N}", GPT2),
    ROW("chameleon", BOS, "<sentinel:[0-9]+>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", "\\p{N}",
        "[\\p{P}!-/:-@\\[-`{-~]", GPT2),
    ROW("llama-bpe", WHOLE | BOS, LLAMA3),
    ROW("llama-v3", WHOLE | BOS, LLAMA3),
    ROW("llama3", WHOLE | BOS, LLAMA3),
    ROW("falcon3", WHOLE | BOS, LLAMA3),
    ROW("falcon-h1", WHOLE | BOS, LLAMA3),
    ROW("pixtral", WHOLE | BOS, LLAMA3),
    ROW("midm-2.0", WHOLE | BOS, LLAMA3),
    ROW("lfm2", WHOLE | BOS, LLAMA3),
    ROW("minicpm5", WHOLE, "\\p{N}{1,3}", SHORT "|" WORDS("\\p{N}+")),
    ROW("dbrx", 0, LLAMA3),
    ROW("smaug-bpe", 0, LLAMA3),
    ROW("glm4", WHOLE, LLAMA3),
    ROW("chatglm-bpe", 0, LLAMA3),
    ROW("jais-2", 0,
        SHORT "|" ONE_MARK "\\p{L}+|\\p{N}{1,3}|" SYMBOLS "[\\r\\n]*|" NEWLINES RUN(512) RUN(256) RUN(128)
        RUN(64) RUN(32) RUN(16) RUN(8) RUN(4) "[" WS "]{1,2}(?![^" WS "])|[" WS "]"),
    ROW("qwen2", 0, QWEN2),
    ROW("deepseek-r1-qwen", 0, QWEN2),
    ROW("kormo", 0, QWEN2),
    ROW("megrez", 0, QWEN2),
    ROW("stablelm2", 0, QWEN2),
    ROW("hunyuan", 0, QWEN2),
    ROW("solar-open", 0, QWEN2),
    ROW("grok-2", 0, QWEN2),
    ROW("laguna", 0, LINES, QWEN2),
    ROW("ufakzeka", 0, WORDS("\\p{N}")),
    ROW("qwen35", 0, MARKED("\\p{L}\\p{M}", "\\p{N}")),
    ROW("k2-horizon", 0,
        SHORT "|" ONE_MARK "[\\p{L}\\p{M}\\x{200c}\\x{200d}]+|\\p{N}{1,3}|" SYMBOLS "[\\r\\n]*|" NEWLINES TAIL),
    ROW("seed-coder", 0,
        SHORT "|" ONE_MARK "\\p{L}+|\\p{N}| ?[^" WS "\\p{L}\\p{N}\\r\\n]+|" NEWLINES TAIL),
    ROW("bailingmoe", 0, SHORT "|" ONE_MARK "\\p{L}+|\\p{N}|" SYMBOLS "[\\r\\n]*|[" WS "]*[\\r\\n]|" TAIL),
    ROW("bailingmoe2", 0, SHORT "|" ONE_MARK "\\p{L}+|\\p{N}|" SYMBOLS "[\\r\\n]*|[" WS "]*[\\r\\n]|" TAIL),
    ROW("llada-moe", 0, SHORT "|" ONE_MARK "\\p{L}+|\\p{N}|" SYMBOLS "[\\r\\n]*|[" WS "]*[\\r\\n]|" TAIL),
    ROW("exaone-moe", 0,
        SHORT "|" ONE_MARK "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}|" SYMBOLS "[\\r\\n/]?|[" WS
        "]*[\\r\\n]|" TAIL),
    ROW("tekken", WHOLE | BOS, CASE_WORDS("", "\\p{N}")),
    ROW("gpt-4o", 0, GPT4O),
    ROW("llama4", 0, GPT4O),
    ROW("kanana2", 0, GPT4O),
    ROW("talkie", 0, GPT4O),
    ROW("minimax-m2", 0, GPT4O),
    ROW("tiny_aya", 0, "\\d{1,3}(?=(?:\\d{3})*\\b)", GPT4O),
    ROW("cohere2moe", 0, "\\d{1,3}(?=(?:\\d{3})*\\b)", GPT4O),
    ROW("youtu", WHOLE, YOUTU, CASE_WORDS(SHORT "?", "\\p{N}")),
    ROW("kimi-k2", 0, KIMI),
    ROW("deepseek-llm", 0, "[\\r\\n]", "[" WS "]?[" DEEPSEEK_LETTERS "]+",
        "[" WS "]?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
        "[" WS "]+$", DEEPSEEK_HAN, "\\p{N}"),
    ROW("deepseek-coder", 0, "[\\r\\n]", "[" WS "]?\\p{L}+", "[" WS "]?\\p{P}+", DEEPSEEK_HAN, "\\p{N}"),
    ROW("deepseek-v3", 0, DEEPSEEK3),
    ROW("hunyuan-dense", 0, DEEPSEEK3),
    ROW("joyai-llm", 0, DEEPSEEK3),
    ROW("hy_v4", 0, DEEPSEEK3),
    ROW("spark2_5", 0, "\\p{N}{1,3}", HAN_KANA, DEEPSEEK_WORDS("", "[\\r\\n]"), "\\p{N}"),
    ROW("afmoe", 0, THREES("\\p{N}"), ASIAN, DEEPSEEK_WORDS("[\\r\\n]*", "[" WS "]*[\\r\\n]+")),
    ROW("superbpe", 0, "\\p{N}+", THREES("\\d")),
    ROW("bloom", 0, BLOOM),
    ROW("gpt3-finnish", 0, BLOOM),
    ROW("poro-chat", 0, BLOOM),
    ROW("viking", 0, BLOOM, "\\p{N}"),
    ROW("gemma4", CHARS | BOS, LINES),
    ROW("sarvam-moe", CHARS, LINES),
};
/* clang-format on */
const size_t TEXT_FAMILY_COUNT = COUNT_OF(TEXT_FAMILIES);
