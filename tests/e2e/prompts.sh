#!/bin/bash
# Proves: --prompts and the lines of workloads take prompts from each form of file; both arms of an A/B, and a server, get
# the same ones; their hash and form are stored with the run and printed; classes have figures; text that repeats is
# noted; hostile files are refused with the line; workloads without prompts of one's own have the hashes that they had
# before there was a longer text.
. "$(dirname "$0")/lib.sh" "$@"
ROW='d["rows"][0]'
P=$T/"my prompts, all"
mkdir -p "$P/folder"

printf 'The quick brown fox. A text of my own has words.\nSecond paragraph: 42 apples.\n' >"$P/plain.txt"
printf '%s\n' '{"prompt": "Tell me a story about a fox.", "class": "story", "max_tokens": 5}' '' \
  '{"prompt": "What is two and two?", "class": "math", "max_tokens": 3}' '{"prompt": " "}' >"$P/lines.jsonl"
cat >"$P/sharegpt.json" <<'JSON'
[{"conversations": [{"from": "human", "value": "Who are you?"}, {"from": "gpt", "value": "I am a model."}]},
 {"conversations": [{"from": "gpt", "value": "I start."}, {"from": "human", "value": "Why do you?"}]}, {"conversations": []}]
JSON
printf '%s\n' '{"custom_id": "1", "body": {"prompt": "Once upon a time", "max_tokens": 7}}' >"$P/batch.jsonl"
printf '%s\n' '{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]}' >"$P/messages.jsonl"
echo "one text" >"$P/folder/a.txt"
echo "another text" >"$P/folder/b.md"

# Each form, in timed workloads and loads; the record has hash, form and counts.
while read -r name form count skipped; do
  expect 0 bench -p 24 -n 2 --prompts "$P/$name" -r 1 --no-warmup -o json &&
    json "[p['form'] for p in d['prompts']] == ['$form'.replace('_', ' ')] * 2 and d['rows'][0]['workload'] == 'pp24@prompts:$P/$name'" &&
    json "all(p['count'] == $count and p['skipped'] == $skipped and len(p['sha256']) == 64 for p in d['prompts'])"
  expect 0 bench -w "load:concurrency=2,requests=4,out=2,prompts=\"$P/$name\"" -r 1 --no-warmup -o json &&
    json "$ROW['failed_requests'] == 0 and d['prompts'][0]['form'] == '$form'.replace('_', ' ')"
done <<'FORMS'
plain.txt text 1 0
lines.jsonl JSON_lines 2 1
sharegpt.json ShareGPT 2 1
batch.jsonl OpenAI_batch 1 0
folder folder 2 0
FORMS

# A person reads where prompts come from, and that they repeat; show prints it again, and stored cells have it.
expect 0 bench -w pp64 --prompts "$P/lines.jsonl" -r 1 --no-warmup &&
  says out "prompts from lines.jsonl \(JSON lines, SHA-256 [0-9a-f]{12}\.\.\.\): 2 of 2 are used; 1 without a text is left out; they have fewer tokens than the workload, and repeat in it"
sum=$(sha256sum "$P/lines.jsonl" | cut -c1-64)

# Lengths of a load are those of the file; a class of prompts has its figures.
expect 0 bench -w load:concurrency=2,requests=20 --prompts "$P/lines.jsonl" -r 1 --no-warmup -o json &&
  json "{c['class']: (c['requests'], c['failed_requests'], c['gen_tokens']) for c in d['classes']} == {'story': (10, 0, 5), 'math': (10, 0, 3)}" &&
  json "all(c['ttft_s'] > 0 and c['tpot_s'] > 0 and c['e2e_s'] > c['ttft_s'] and c['goodput_ratio'] is None for c in d['classes'])" &&
  json "d['prompts'][0]['repeats'] and d['prompts'][0]['sha256'] == '$sum'"
expect 0 bench -w 'load:concurrency=2,requests=20,slo="e2e<1h"' --prompts "$P/lines.jsonl" -r 1 --no-warmup &&
  says out "class math: 10 requests, 0 failed; means: prompt [0-9.]+ tokens, answer 3.0, TTFT .* 100.0 % within the limits"
# ... and `in` and the context cut them, which is said for the context.
expect 0 bench -w load:concurrency=1,requests=2,in=5 --prompts "$P/lines.jsonl" -r 1 --no-warmup -o json && json "d['classes'][0]['prompt_tokens'] == 5"
expect 0 bench -w load:concurrency=1,requests=2,out=4,ctx=9 --prompts "$P/plain.txt" -r 1 --no-warmup &&
  says out "2 of 2 requests were cut to the context of 9 tokens"

# Both arms of an A/B do the same work, and the run's events have the file.
"$QDYNO" ab default threads=1 -w pp16+tg2 --prompts "$P/lines.jsonl" --budget 4s --control 0 -o json >"$T/out" 2>"$T/err" </dev/null
[ $? -le 3 ] || fail "ab"
run=$(value 'd["run"]')
json 'len({a["workload"] for a in d["arms"]}) == 1 and "@prompts:" in d["arms"][0]["workload"]'
if [ -n "$PYTHON" ]; then
  python3 - "$XDG_DATA_HOME" "$run" "$sum" <<'PY' || fail "cells of the A/B"
import glob, json, sqlite3, sys
file = [f for f in glob.glob(sys.argv[1] + "/qdyno/*.db")][0]
d = sqlite3.connect(file)
cells = d.execute("select arm, work_hash, worker_json from cell where run_id = ? and work_hash <> ''", (sys.argv[2],)).fetchall()
assert {c[0] for c in cells} == {0, 1} and len({c[1] for c in cells}) == 1, cells
assert {json.loads(c[2])["prompts"]["sha256"] for c in cells} == {sys.argv[3]}
assert len(d.execute("select * from event where run_id = ? and kind = 'prompts'", (sys.argv[2],)).fetchall()) == 1
PY
  expect 0 show "$run" && says out "prompts from lines.jsonl"
fi
"$QDYNO" tune -w tg4 --prompts "$P/plain.txt" --budget 4s --search-only --space threads=1 >"$T/out" 2>"$T/err" </dev/null
says out "prompts from plain.txt \(text," || fail "tune does not say where its prompts come from"

# A depth beyond all bundled text says so once, for all repetitions; without the long text it is an error.
mkdir -p "$T/share/text"
echo "Once upon a time there was a dog." >"$T/share/text/sample.txt"
(
  export QDYNO_SHARE=$T/share
  "$QDYNO" synth --arch llama --shape tiny -R f16 --seed 1 "$T/tiny.gguf" --quiet >/dev/null 2>&1
  expect 7 bench -m "$T/tiny.gguf" -w pp8@d200 -r 2 --no-warmup && says err "text/prompts.txt"
  echo "It ran and ran, and then it slept." >"$T/share/text/prompts.txt"
  expect 0 bench -m "$T/tiny.gguf" -w pp8@d200 -w pp8 -r 2 --no-warmup &&
    [ "$(grep -c 'the bundled text has [0-9]* tokens, fewer than a prompt, so text repeats' "$T/out")" = 1 ] || fail "no note that text repeats"
  [ "$fails" = 0 ]
) || fail "depths beyond the bundled text"

# The loss on prompts and answers.
expect 0 eval --prompts "$P/sharegpt.json" -c 8 -o json && json "$ROW['perplexity'] > 0"
expect 4 eval --prompts "$P/plain.txt" -f "$P/plain.txt" && says err "leave -f out"

# A server gets the same ids where its vocabulary is that of the file, and else the texts.
PORT=$(free_port)
"$QDYNO" serve --port "$PORT" -C max_sequences=4 >"$T/serve" 2>&1 </dev/null &
pids+=($!)
for _ in $(seq $((WAIT_S * 10))); do (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null && break; sleep 0.1; done
HTTP=engine=openai,url=http://127.0.0.1:$PORT
for _ in 1 2; do
  expect 0 bench -C "$HTTP" -w load:concurrency=2,requests=4 --prompts "$P/lines.jsonl" -r 1 --no-warmup -o json &&
    json "$ROW['failed_requests'] == 0 and d['prompts'][0]['used'] == 2 and len(d['classes']) == 2"
done

if [ -n "$PYTHON" ]; then
  PORT=$(free_port)
  "$PYTHON" "$(cd "$(dirname "$0")" && pwd)/fake_engine.py" openai "$PORT" &
  pids+=($!)
  for _ in $(seq $((WAIT_S * 10))); do (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null && break; sleep 0.1; done
  TEXTS=engine=openai,url=http://127.0.0.1:$PORT,model=plain
  expect 0 bench -C "$TEXTS" -w load:concurrency=3,requests=6 --prompts "$P/lines.jsonl" -r 1 --no-warmup -o json &&
    json "$ROW['failed_requests'] == 0 and {c['class']: c['gen_tokens'] for c in d['classes']} == {'story': 5, 'math': 3}"
  expect 0 bench -C "$TEXTS" -w load:concurrency=1,requests=2,out=4 --prompts "$P/messages.jsonl" -r 1 --no-warmup -o json &&
    json "$ROW['failed_requests'] == 0"
  expect 4 bench -C "$TEXTS" -w load:concurrency=1,requests=2,in=4 --prompts "$P/lines.jsonl" -r 1 --no-warmup && says err "expected no in="
  expect 4 bench -C "$TEXTS" -w pp8 --prompts "$P/lines.jsonl" -r 1 --no-warmup && says err "give its file with -m"
fi

# Refused: with the line, before or while the first cell runs.
refused() { # STATUS CONTENT PATTERN
  printf "$2" >"$T/bad.jsonl"
  expect "$1" bench -w pp8 --prompts "$T/bad.jsonl" -r 1 --no-warmup && says err "$3"
}
refused 5 '{"prompt": "a"}\n{"prompt": 7}\n' "line 2: prompt is no text"
refused 5 '{"prompt": "a"}\n{"prompt": "b\n' "line 2"
refused 5 '{"question": "a"}\n' "expected an object with prompt, messages, conversations or body; this one has: question"
refused 5 '{"prompt": "\\u0000"}\n' "u0000"
refused 5 '[{"prompt": "a"}' "expected , or ]"
refused 5 '\xff\xfe\x00' "no text in UTF-8"
refused 5 '' "there is no prompt in it"
expect 4 bench -w pp8 --prompts "$P/messages.jsonl" -r 1 && says err "the model has no chat template"
expect 4 bench -w pp8@prompts:x --prompts y && says err "names a file of prompts itself"
expect 4 bench -w load:rate=4,turns=2 --prompts x && says err "leave trace, prefix and turns out"
expect 4 bench -w pp8 -C engine=llama-bench --prompts x && says err "leave @prompts out"
"$QDYNO" bench -w pp8 --prompts "$T/absent" >"$T/out" 2>"$T/err" </dev/null && fail "a file that is not there was taken"
says err "absent"
truncate -s 300M "$T/large.txt"
expect 5 bench -w pp8 --prompts "$T/large.txt" -r 1 && says err "large.txt"
rm -f "$T/large.txt"

# What stored results are compared by is as before: prompts within the sample.
if [ -n "$PYTHON" ] && [ -r "$(dirname "$QDYNO")/share/models/bundled.gguf" ]; then
  expect 0 bench -w pp64+tg8@d128 -w tg16 -w pp32@b3 -w load:concurrency=2,requests=6,in=20,out=4 -r 1 --no-warmup --db "$T/hash.db" -o json
  python3 - "$T/hash.db" <<'PY' || fail "work hashes have changed"
import sqlite3, sys
got = [r[0] for r in sqlite3.connect(sys.argv[1]).execute("select work_hash from cell where phase = 'bench' order by id")]
assert got == ["407390111500e724", "6ebbb316c084da29", "418620622884d702", "c88cc6f7e5e05e53"], got
PY
fi
finish
