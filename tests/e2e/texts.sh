#!/bin/bash
# Proves: valid JSON is right or refused by its name, and calls of tools and log-probabilities keep what the model wrote: the
# inputs of ../shared/data/cases that once lost a call, a request, or a token. The requests are sent as documents and as streams.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 for clients"; exit 77; }
cases=$2/cases
[ -d "$cases/report-03-tool-call-tag-in-argument" ] || { echo "SKIPPED: no ../shared/data/cases"; exit 77; }

# serve MODEL: starts the server; $url is its address.
serve() {
  : >"$T/serve"
  "$QDYNO" serve --port 0 -o json --threads=1 -m "$1" >"$T/serve" 2>"$T/serve.err" &
  serving=$!
  pids+=("$serving")
  for _ in $(seq 600); do [ -s "$T/serve" ] && break; sleep 0.1; done
  url=$(sed -n 's/.*"url": *"\(http[^"]*\)\/v1".*/\1/p' "$T/serve")
  [ -n "$url" ] || fail "serve says nothing: $(cat "$T/serve" "$T/serve.err")"
}
stop() {
  kill "$serving"
  wait "$serving"
}
# client CODE: Python with send(path, body text or bytes) -> (status, document) and stream(path, body) -> list of events.
client() {
  cat >"$T/client.py" <<'PY'
import json, sys, urllib.error, urllib.request
url, cases = sys.argv[1:3]
def post(path, body):
    body = body if isinstance(body, bytes) else body.encode()
    return urllib.request.urlopen(urllib.request.Request(url + path, body, {"Content-Type": "application/json"}), timeout=60)
def send(path, body):
    try:
        with post(path, body) as r:
            return r.status, json.loads(r.read())
    except urllib.error.HTTPError as e:
        return e.code, json.loads(e.read())
def stream(path, body):
    o = json.loads(body)
    o["stream"] = True
    with post(path, json.dumps(o)) as r:
        lines = [l[6:] for l in r.read().decode().split("\n") if l.startswith("data: ")]
    assert lines[-1] == "[DONE]", lines[-1]
    return [json.loads(l) for l in lines[:-1]]
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
def read(name):
    return open(cases + "/" + name, encoding="utf-8").read()
PY
  printf '%s\n' "$1" >>"$T/client.py"
  python3 "$T/client.py" "$url" "$cases" "${@:2}" >"$T/out" 2>"$T/err" || fail "$(tail -4 "$T/err")"
}

# calls of tools: a closing tag in an argument, fractions, integers of 64 bits
called='
body = read("report-03-tool-call-tag-in-argument/request.json")
status, d = send(CHAT, body)
call = d["choices"][0]["message"]["tool_calls"][0]["function"]
assert status == 200 and d["choices"][0]["finish_reason"] == "tool_calls" and call["name"] == "write", d
assert sys.argv[3] in call["arguments"], call
json.loads(call["arguments"])
parts = [c["delta"].get("tool_calls", []) for e in stream(CHAT, body) for c in e["choices"]]
assert [p[0]["function"] for p in parts if p] == [call], parts
'
for pair in close:'</tool_call>' float:0.1 bigint:18446744073709551615; do
  serve "$cases/report-03-tool-call-tag-in-argument/${pair%%:*}.gguf"
  client "$called" "${pair#*:}"
  [ "${pair%%:*}" = float ] && client "$called
assert '0.1000' not in call['arguments'], call" "${pair#*:}"
  [ "${pair%%:*}" = bigint ] || { stop; continue; }
  # requests: what is JSON is not called anything else
  client '
for name in "nul-in-message.json", "u64-in-tool-schema.json":
    status, d = send(CHAT, read("report-04-json-limits/" + name))
    assert status == 200, (name, d)
def message(text, more=""):
    return "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"max_tokens\":1%s}" % (text, more)
for body in (b"\xef\xbb\xbf" + message("x").encode(), message("x", ",\"seed\":18446744073709551615"), message("x", ",\"seed\":-9223372036854775808"),
             message("x", ",\"metadata\":{\"a\":[0.1,\"\\u0000\",1e308]}"), message("\\ud83d\\ude00")):
    status, d = send(CHAT, body)
    assert status == 200, (body, d)
for body, says in ((message("x", ",\"temperature\":1e400"), "1e400 is beyond the range"), (message("\\ud83d"), "surrogate pair"),
                   (message("x", ",\"user\":1,\"user\":2"), "duplicate object key"), (message("x", ",\"seed\":18446744073709551616"), "2^64-1"),
                   (message("x", ",\"stop\":\"\\u0000\""), "stop"), (message("x", ",\"a\\u0000\":1"), "in a key"),
                   (message("x", ",\"metadata\":" + "[" * 2000), "deeper than 1000"), (message("x")[:-1], "bad JSON"),
                   (message("x", ",\"max_tokens\":99999999999999999999")[:-1].replace("\"max_tokens\":1,", "") + "}", "99999999999999999999")):
    status, d = send(CHAT, body)
    assert status == 400 and says in d["error"]["message"], (body[:200], d)
    assert "not JSON" not in d["error"]["message"], d
'
  stop
done
expect 0 eval -m "$cases/report-03-tool-call-tag-in-argument/close.gguf" -f "$cases/report-04-json-limits/nul.jsonl" -c 64

# log-probabilities: tokens that are parts of characters keep names of their own, offsets count characters
serve "$cases/report-14-logprobs-partial-characters/m.gguf"
client '
body = read("report-14-logprobs-partial-characters/request.json")
status, d = send(TEXT, body)
logprobs, text = d["choices"][0]["logprobs"], d["choices"][0]["text"]
assert all(len(t) == 5 for t in logprobs["top_logprobs"]), logprobs
for token, value, top, at in zip(*(logprobs[k] for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset"))):
    assert abs(top.get(token, value) - value) < 1e-6 and value <= max(top.values()) + 1e-6, (token, value, top)
    if not token.startswith("bytes:"):
        assert text[at:at + len(token)] == token, (text, at, token)
assert any(t.startswith("bytes:\\x") for t in logprobs["tokens"] + [k for t in logprobs["top_logprobs"] for k in t]), logprobs
assert logprobs["text_offset"] == sorted(logprobs["text_offset"])
if " end" in logprobs["tokens"]:
    assert logprobs["text_offset"][logprobs["tokens"].index(" end")] == 5, logprobs
offsets = [o for e in stream(TEXT, body) for c in e["choices"] if c["logprobs"] for o in c["logprobs"]["text_offset"]]
assert offsets == logprobs["text_offset"], (offsets, logprobs)
print(json.dumps(logprobs))
'
stop

# quantizing: what the format cannot store is an error; importances of 0 change nothing
for format in f16 q4_1 q5_1 tq1_0 tq2_0; do
  expect 5 quantize "$cases/report-16-quantize-writes-infinity/m.gguf" "$T/q.gguf" -R "$format" && says err '100000.*cannot store.*bf16' && [ ! -e "$T/q.gguf" ] ||
    fail "$format: a file with an infinity"
done
expect 0 quantize "$cases/report-16-quantize-writes-infinity/m.gguf" "$T/bf16.gguf" -R bf16 --verify
nmse() { "$QDYNO" quantize "$cases/report-17-imatrix-zero-columns/m.gguf" "$T/q.gguf" --force -R gguf,type=q6_K,imatrix=true --calib "$1" -o json >"$T/out" 2>"$T/err"; }
for zeros in zero all-zero; do
  rm -f "$T/q.gguf"
  nmse "$cases/report-17-imatrix-zero-columns/$zeros.gguf" || fail "$zeros: $(cat "$T/err")"
  says err 'importance of 0' && json 'd["nmse"] < 0.001'
done
finish
