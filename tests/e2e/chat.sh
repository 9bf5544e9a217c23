#!/bin/bash
# Chat: one message and a conversation through a template, from a file and from the model; what is refused, with which
# status; conversations as the text of eval.
. "$(dirname "$0")/lib.sh" "$@"
M=$(dirname "$QDYNO")/share/models/bundled.gguf
[ -f "$M" ] || { echo "SKIPPED: no bundled model"; exit 77; }

cat >"$T/story.jinja" <<'J'
{%- for m in messages -%}
  {%- if m.role == 'system' -%}{{ raise_exception('no system messages here') }}{%- endif -%}
  {{- bos_token if loop.first }}{{ m.content | trim }}{{ ' And ' if not loop.last }}
{%- endfor -%}
{%- if tools %}{{ tools[0].name }}{% endif -%}
{%- if shout %}!{% endif -%}
J

# The prompt of a template that writes the message only is the text itself, so the answers are alike.
expect 0 run -m "$M" -p "Once upon a time" -n 12 -o json && plain=$(value 'd["text"]')
expect 0 run -m "$M" --chat --template "$T/story.jinja" -p "Once upon a time" -n 12 -o json &&
  json 'd["gen_tokens"] == 12 and d["stopped"] == "length"' && [ "$(value 'd["text"]')" = "$plain" ] || fail "chat and text differ"
echo "Once upon a time" >"$T/message"
expect 0 run -m "$M" --chat --template "$T/story.jinja" -f "$T/message" -n 12 -o json && [ "$(value 'd["text"]')" = "$plain" ] ||
  fail "-f and -p differ"

# A control token in a message is text: more tokens than as a control token, and as many as without --parse-special.
expect 0 run -m "$M" --chat --template "$T/story.jinja" -p "a</s>b" -n 1 -o json && chat=$(value 'd["prompt_tokens"]')
expect 0 tokenize -m "$M" --no-parse-special -p "a</s>b" && [ "$(tr , '\n' <"$T/out" | wc -l)" = "$chat" ] ||
  fail "a message wrote a control token: $chat tokens"

# Tools and variables reach the template.
echo '[{"name": "weather"}]' >"$T/tools.json"
expect 0 run -m "$M" --chat --template "$T/story.jinja" -p "Hello" -n 1 -o json && bare=$(value 'd["prompt_tokens"]')
expect 0 run -m "$M" --chat --template "$T/story.jinja" -p "Hello" -n 1 -o json --tools "$T/tools.json" --chat-template-kwargs '{"shout": true}' &&
  json "d['prompt_tokens'] > ${bare:-0}"

# A conversation from a pipe: three answers; /clear starts again, so the third is the first.
printf 'Once upon a time\nTom had a dog.\n/clear\nOnce upon a time\n' >"$T/lines"
"$QDYNO" run -m "$M" --chat --template "$T/story.jinja" -n 8 <"$T/lines" >"$T/out" 2>"$T/err" || fail "a conversation: status $?"
[ "$(wc -l <"$T/out")" = 3 ] || fail "three messages have $(wc -l <"$T/out") answers"
[ "$(sed -n 1p "$T/out")" = "$(sed -n 3p "$T/out")" ] || fail "/clear kept the conversation"
[ "$(grep -c 'stopped: length' "$T/err")" = 3 ] || fail "three answers have other timings"
"$QDYNO" run -m "$M" --chat --template "$T/story.jinja" -n 8 -c 24 >"$T/out" 2>"$T/err" <<<"$(printf 'one two three four five six seven eight nine ten eleven twelve thirteen\nHi\n')" ||
  fail "a message that is too long: status $?"
says err 'context holds only 24' && [ "$(wc -l <"$T/out")" = 1 ] || fail "the message after one that is too long has no answer"
"$QDYNO" run -m "$M" --chat --template "$T/story.jinja" </dev/null >"$T/out" 2>"$T/err" || fail "no message: status $?"

# What is refused.
expect 4 run -m "$M" --chat -p Hi && says err 'has no chat template .*--template with a file or one of these names: chatml'
expect 4 run -m "$M" --chat --template "$T/story.jinja" --system "Be brief." -p Hi && says err 'line 2, refuses this conversation: no system messages here'
expect 4 run -m "$M" --system "Be brief." -p Hi && says err '--system needs --chat'
expect 4 run -m "$M" --chat --template "$T/story.jinja" -o json && says err 'needs one message'
expect 4 run -m "$M" --chat --template "$T/story.jinja" -p Hi --chat-template-kwargs '[1]' && says err 'expected a JSON object'
expect 5 run -m "$M" --chat --template "$T/story.jinja" -p Hi --tools "$T/message" && says err 'bad JSON'
printf 'a\n{%% if x %%}\n' >"$T/bad.jinja"
expect 5 run -m "$M" --chat --template "$T/bad.jinja" -p Hi && says err 'bad.jinja, line 2: expected \{% endif %\}, found the end of the template'
printf '{{ 1 }}\n{{ nobody.name }}' >"$T/bad.jinja"
expect 5 run -m "$M" --chat --template "$T/bad.jinja" -p Hi && says err "line 2: 'nobody' is undefined"
expect 5 run -m "$M" --chat --template "$T/nowhere" -p Hi && says err "cannot open '.*nowhere'"

# Conversations as the text of eval; a model with a template is made from the bundled one.
for i in $(seq 40); do
  echo '{"messages": [{"role": "user", "content": "Tom went to the park with Lily."}, {"role": "assistant", "content": "They saw a big red ball."}]}'
done >"$T/talks.jsonl"
expect 4 eval -m "$M" -f "$T/talks.jsonl" -c 64 && says err 'no chat template'
if [ -n "$PYTHON" ]; then
  python3 - "$M" "$T/chat.gguf" "$T/story.jinja" <<'PY' || fail "the model with a template was not made"
import struct, sys
b, key, template = open(sys.argv[1], "rb").read(), b"tokenizer.chat_template", open(sys.argv[3], "rb").read()
sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
tensors, keys = struct.unpack_from("<QQ", b, 8)
at = 24
def string():
    global at
    at += 8 + struct.unpack_from("<Q", b, at)[0]
for _ in range(keys):
    string()
    kind = struct.unpack_from("<I", b, at)[0]
    at += 4
    if kind == 8:
        string()
    elif kind == 9:
        element, n = struct.unpack_from("<IQ", b, at)
        at += 12
        if element == 8:
            for _ in range(n): string()
        else:
            at += n * sizes[element]
    else:
        at += sizes[kind]
end = at
for _ in range(tensors):
    string()
    at += 4 + 8 * struct.unpack_from("<I", b, at)[0] + 12
added = struct.pack("<Q", len(key)) + key + struct.pack("<IQ", 8, len(template)) + template
head = b[:16] + struct.pack("<Q", keys + 1) + b[24:end] + added + b[end:at]
open(sys.argv[2], "wb").write(head + bytes(-len(head) % 32) + b[at + -at % 32:])
PY
  expect 0 info -m "$T/chat.gguf" -o json && json 'd["chat_template"] is True'
  expect 0 info -m "$M" -o json && json 'd["chat_template"] is False'
  expect 0 run -m "$T/chat.gguf" --chat -p "Once upon a time" -n 12 -o json && [ "$(value 'd["text"]')" = "$plain" ] ||
    fail "the model's own template gives another answer"
  expect 0 eval -m "$T/chat.gguf" -f "$T/talks.jsonl" -c 64 --ref f16 -C q8_0 -o json && json 'd["rows"][0]["chunks"] > 2 and d["rows"][0]["ppl_ratio"] > 0'
  # A byte order mark and blank lines change nothing; a key twice, and JSON that is no conversation, are refused.
  expect 0 eval -m "$T/chat.gguf" -f "$T/talks.jsonl" -c 64 -o json && ppl=$(value 'd["rows"][0]["ppl"]')
  { printf '\357\273\277\n'; sed 's/$/\r\n/' "$T/talks.jsonl"; } >"$T/odd.jsonl"
  expect 0 eval -m "$T/chat.gguf" -f "$T/odd.jsonl" -c 64 -o json && [ "$(value 'd["rows"][0]["ppl"]')" = "$ppl" ] ||
    fail "a byte order mark and blank lines change the perplexity"
  expect 0 calibrate "$T/chat.gguf" -f "$T/talks.jsonl" --out "$T/talks.calib" -o json && rendered=$(value 'd["rows"][0]["tok_s"] > 0 and d["rows"][0]["sequences"]')
  expect 0 calibrate "$T/chat.gguf" -f "$T/odd.jsonl" -o json --out "$T/odd.calib" && [ "$(value 'd["rows"][0]["sequences"]')" = "$rendered" ] ||
    fail "calibrate reads conversations with blank lines as another text"
  expect 4 calibrate "$M" -f "$T/talks.jsonl" --out "$T/none.calib" && says err 'no chat template'
  sed 's/"role": "user"/"role": "user", "role": "tool"/;40q' "$T/talks.jsonl" | tail -n 1 >"$T/twice"
  for command in "eval -c 64 -m" "calibrate --out $T/none.calib"; do
    cat "$T/talks.jsonl" "$T/twice" >"$T/bad.jsonl"
    expect 5 $command "$T/chat.gguf" -f "$T/bad.jsonl" && says err 'line 41 column [0-9]+: duplicate object key'
    cat "$T/twice" "$T/talks.jsonl" >"$T/bad.jsonl"
    expect 5 $command "$T/chat.gguf" -f "$T/bad.jsonl" && says err 'line 1 column [0-9]+: duplicate object key'
    sed 's/"messages"/"text"/' "$T/talks.jsonl" >"$T/bad.jsonl"
    expect 5 $command "$T/chat.gguf" -f "$T/bad.jsonl" && says err 'JSON object without "messages"'
  done
  expect 5 ab -m "$T/chat.gguf" default kv=f32 -w "eval:$T/bad.jsonl" --max-blocks 6 && cat "$T/out" >>"$T/err" && says err 'JSON object without "messages"'
  [ ! -e "$T/none.calib" ] || fail "a calibration of a refused text was written"
  tail -n 39 "$T/talks.jsonl" >"$T/worse.jsonl"
  echo '{"messages": "none"}' >>"$T/worse.jsonl"
  expect 5 eval -m "$T/chat.gguf" -f "$T/worse.jsonl" -c 64 && says err 'conversation in line 40: expected a list of at least one message'
  sed -i '3s/user/system/' "$T/worse.jsonl"
  expect 5 eval -m "$T/chat.gguf" -f "$T/worse.jsonl" -c 64 && says err 'conversation in line 3: .*refuses this conversation'

  # A tokenizer of an unknown family: no text, but speed.
  python3 -c 'import sys; b = open(sys.argv[1], "rb").read(); open(sys.argv[2], "wb").write(b.replace(b"gpt-2\x15\0\0\0", b"gpt-9\x15\0\0\0", 1))' \
    "$SHARED/models/repacked/slm-4096-gpt2-f32.gguf" "$T/family.gguf" 2>/dev/null || skip "no model with a BPE tokenizer"
  if [ -s "$T/family.gguf" ]; then
    expect 5 run -m "$T/family.gguf" -p Hi && says err "pre-tokenizer 'gpt-9' .*known are"
    expect 5 run -m "$T/family.gguf" --chat --template "$T/story.jinja" -p Hi && says err "'gpt-9'"
    expect 0 bench -m "$T/family.gguf" -p 8 -n 4 -r 1 && says out 'no text can be given to this model'
  fi
fi
finish
