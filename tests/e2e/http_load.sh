#!/bin/bash
# Proves: a load can be sent as HTTP requests to `qdyno serve` and to any server with OpenAI's interface. Every request is
# answered and timed, in open and closed loop, in conversations and from traces; token ids and texts; the server's own
# counts agree with the client's; both arms of `ab` get the same requests; answers of another length fail and say why.
. "$(dirname "$0")/lib.sh" "$@"
ROW='d["rows"][0]'
PORT=$(free_port)
"$QDYNO" serve --port "$PORT" -C max_sequences=4 >"$T/serve" 2>&1 </dev/null &
pids+=($!)
for _ in $(seq $((WAIT_S * 10))); do (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null && break; sleep 0.1; done
HTTP=engine=openai,url=http://127.0.0.1:$PORT

# Closed loop. The server counts the same requests and tokens as the client, and finds nothing of an earlier cell in its cache.
for _ in 1 2; do
  expect 0 bench -C "$HTTP" -w load:concurrency=4,requests=24,in=40,out=8 -r 1 --no-warmup -o json &&
    json "$ROW['failed_requests'] == 0 and $ROW['requests_s'] > 0 and $ROW['prefix_hit_ratio'] == 0" &&
    json "abs($ROW['out_tok_s'] / $ROW['requests_s'] - 8) < 1e-6 and abs($ROW['in_tok_s'] / $ROW['requests_s'] - 40) < 1e-6" &&
    json "$ROW['server_requests'] == 24 and $ROW['server_prompt_tokens'] == 24 * 40 and $ROW['server_e2e_s'] > 0" &&
    json "$ROW['kv_use_ratio'] is None and $ROW['batch_mean'] is None and $ROW['queue_s'] is None"
done
# Open loop with limits, lengths that differ, and a shared beginning, which the server's cache finds.
expect 0 bench -C "$HTTP" -w 'load:rate=100,requests=30,in=lognormal:80:0.2,out=6,prefix=0.6,slo="ttft<1h,e2e<1h"' -r 1 --no-warmup -o json &&
  json "$ROW['failed_requests'] == 0 and $ROW['goodput_ratio'] == 1 and $ROW['prefix_hit_ratio'] > 0.1" &&
  json "$ROW['coordinated_omission_s'] >= 0 and $ROW['e2e_s'] > 0"
# Conversations, and a trace.
expect 0 bench -C "$HTTP" -w load:concurrency=2,requests=12,in=40,out=8,turns=3 -r 1 --no-warmup -o json &&
  json "$ROW['failed_requests'] == 0 and $ROW['server_requests'] == 12 and $ROW['prefix_hit_ratio'] > 0"
printf 'TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,40,4\n2023-11-16 18:15:50.99,30,5\n' >"$T/azure.csv"
expect 0 bench -C "$HTTP" -w "load:trace=$T/azure.csv,speed=100,ctx=700" -r 1 --no-warmup -o json &&
  json "$ROW['failed_requests'] == 0 and $ROW['server_prompt_tokens'] == 70"
# A person reads the server's figures below the table.
expect 0 bench -C "$HTTP" -w load:concurrency=2,requests=6,in=20,out=4 -r 1 --no-warmup && cat "$T/out" "$T/err" >"$T/both" &&
  grep -q "the server's own count (its /metrics page) over all requests of .*6 requests, 120 prompt tokens" "$T/both" || fail "no figures of the server"
# Arms: the same requests for the model in a worker and for the server.
"$QDYNO" ab default "$HTTP" -w load:rate=50,requests=16,in=16,out=4 --budget 3s --control 0 -o json >"$T/out" 2>"$T/err" </dev/null
[ $? -le 3 ] || fail "ab"
json 'd["metric"] == "e2e_s" and all(a["requests"]["e2e_s"] > 0 and a["requests"]["failed_requests"] == 0 for a in d["arms"])'

# What a client cannot know is refused before anything is sent; so are engines that qdyno starts.
expect 4 bench -C "$HTTP" -w 'load:rate=4,requests=4,slo="queue<1s"' && says err "leave queue out of slo"
expect 4 bench -C engine=llama-server -w load:rate=4,requests=4 && says err "start llama-server yourself and give its address: engine=openai"
expect 4 bench -C engine=llama-bench -w load:rate=4,requests=4 && says err "with engine=openai,url="

[ -n "$PYTHON" ] || { echo "SKIPPED: no python3, which the other server of this test needs"; exit "$((failed ? 1 : 77))"; }
FAKE=$(cd "$(dirname "$0")" && pwd)/fake_engine.py
PORT=$(free_port)
"$PYTHON" "$FAKE" openai "$PORT" &
pids+=($!)
for _ in $(seq $((WAIT_S * 10))); do (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null && break; sleep 0.1; done
fake() { expect "$1" bench -C "engine=openai,url=http://127.0.0.1:$PORT,model=$2" -w load:concurrency=3,requests=9,in=40,out=8 -r 1 --no-warmup -o json; }
# Another server, which is given texts and has no /metrics page.
fake 0 plain && json "$ROW['failed_requests'] == 0 and 30 < $ROW['in_tok_s'] / $ROW['requests_s'] < 50 and $ROW.get('server_requests') is None"
fake 4 cached && says err "none of the 9 requests was answered as asked.*prompt cache"
fake 4 short && says err "none of the 9 requests was answered as asked.*tokens instead of 8"
finish
