#!/bin/bash
# Proves: other engines are arms. A server that breaks a rule of honest figures is refused, and the message names the rule;
# one that keeps them is compared. Programs that qdyno started do not outlive it, also when it is killed.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3, which the other engines of this test need"; exit 77; }
FAKE=$(cd "$(dirname "$0")" && pwd)/fake_engine.py
ROW='d["rows"][0]'

# The programs are scripts, whose children must end, too. A python3 that is itself a script can need a second to start.
mkdir "$T/bin"
python=$("$PYTHON" -c 'import sys; print(sys.executable)')
for name in llama-server llama-bench llama-perplexity; do
  printf '#!/bin/sh\n"%s" "%s" %s "$@"\nexit $?\n' "$python" "$FAKE" "$name" >"$T/bin/$name"
  chmod +x "$T/bin/$name"
done
export PATH=$T/bin:$PATH
none_left() { ! pgrep -f "$FAKE llama-server" >/dev/null || { fail "$1: a llama-server was left behind"; return 1; }; }

# A server that qdyno starts: both clocks, one token a chunk, the identity of the program.
expect 0 bench -C engine=llama-server -w pp32+tg16 -r 2 --no-warmup -o json &&
  json "$ROW['error'] is None and 0 < $ROW['decode_tok_s'] <= 1000 and $ROW['server_decode_tok_s'] > 0" &&
  json "$ROW['server_prefill_tok_s'] >= $ROW['prefill_tok_s'] > 0 and $ROW['chunk_gap_s'] >= 0 and $ROW['peak_rss_bytes'] > 1e6"
none_left bench
# At a depth the cache must hold exactly the tokens that were put there.
expect 0 bench -C engine=llama-server -w tg8@d20 -r 1 --no-warmup -o json && json "$ROW['decode_tok_s'] > 0"

# Each trap by name.
refused() { # ARGUMENTS PATTERN
  expect "${3:-4}" bench -C "engine=llama-server,args=\"--fault $1\"" -w pp32+tg16 -r 1 --no-warmup && says err "$2"
}
refused cached "5 of the prompt's 32 tokens came from the server's prompt cache"
# llama-server's cache in memory is off, but a variable of the user is not overridden.
expect 0 bench -C 'engine=llama-server,args="--fault ram"' -w pp32 -r 1 --no-warmup
export LLAMA_ARG_CACHE_RAM=64
refused ram "came from the server's prompt cache"
unset LLAMA_ARG_CACHE_RAM
refused short 'generated 14 tokens instead of 17 \(it ended with "eos"\)'
refused bos "counted 33 prompt tokens instead of 32: it added one, probably a BOS token"
refused template "counted 39 prompt tokens instead of 32: it added some, probably by a chat template"
refused nousage "does not say how many tokens it generated"
refused truncated "cut the prompt"
refused error "ended its answer with an error: out of pages"
refused garbage "an event that is no JSON" 5
refused crash "llama-server ended with status 3" 5
refused dies "ended with status 1; it said: .*unknown argument --nonsense" 5
none_left faults
# Two tokens a chunk are no inter-token latency, and the first chunk is no first token. Chunks that wait in the socket have a gap of 0.
expect 0 bench -C 'engine=llama-server,args="--fault bundle"' -w pp32+tg15 -r 1 --no-warmup -o json &&
  json "$ROW['itl_p50_s'] is None and $ROW['chunk_gap_s'] >= 0 and $ROW['ttft_s'] is None and $ROW['decode_tok_s'] > 0"

# What cannot be asked for is refused before anything starts.
expect 4 bench -C engine=llama-server,q4_0 -w tg4 && says err "runs files as they are.*qdyno quantize IN FILE -R q4_0"
expect 4 bench -C 'engine=llama-server,args="--port 80"' -w tg4 && says err "args: --port is set by qdyno"
expect 4 bench -C engine=llama-server,precision=highest -w tg4 && says err "write the engine's own arguments"
expect 4 bench -C bin=/bin/true -w tg4 && says err "is for other engines"
expect 4 bench -C engine=openai -w tg4 && says err "add url=http://HOST:PORT"
expect 7 bench -C engine=llama-server,bin=/no/such -w tg4 && says err "there is no program '/no/such'"
expect 4 bench -C engine=llama-server -w tg4@b2 && says err "one sequence"
expect 4 ab default engine=llama-server -w tg4 --quality && says err "qdyno audit"
expect 4 run -p x -C engine=llama-server -n 1 && says err "needs qdyno's own engine"

# The other tools.
expect 0 bench -C engine=llama-bench -w pp32+tg16@d8 -r 2 -o json && json "$ROW['decode_tok_s'] > 900 and $ROW['prefill_tok_s'] > 10000"
expect 4 bench -C 'engine=llama-bench,args="--fault bos"' -w pp32 -r 1 && says err "at depth 1 instead of"
expect 4 bench -C 'engine=llama-bench,args="--fault several"' -w pp32 -r 1 && says err "ran 2 tests instead of one"
expect 4 bench -C 'engine=llama-bench,args="--n-gen 5"' -w pp32 && says err "args: --n-gen is set by qdyno"
expect 4 bench -C 'engine=llama-server,args="-hf a/b"' -w tg4 && says err "args: -hf is set by qdyno"
expect 4 bench -C engine=llama-bench,ctx=512 -w pp32 && says err "is no setting that qdyno can give to engine=llama-bench"
expect 5 bench -C 'engine=llama-bench,args="--fault nousage"' -w pp32 -r 1 && says err "printed no result"

# A running server with OpenAI's interface; the fault is the name of its model.
PORT=$(free_port)
python3 "$FAKE" openai "$PORT" &
pids+=($!)
for _ in $(seq $((WAIT_S * 10))); do (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null && break; sleep 0.1; done
openai() { echo "engine=openai,url=http://127.0.0.1:$PORT,model=$1"; }
expect 0 bench -C "$(openai plain)" -w pp40+tg8 -r 1 --no-warmup -o json && json "$ROW['model'] == 'plain' and $ROW['decode_tok_s'] > 0"
expect 0 bench -C "$(openai template)" -w pp40+tg8 -r 1 --no-warmup -o json && json "$ROW['prefill_tok_s'] > 0"
no() { expect "${3:-4}" bench -C "$(openai "$1")" -w pp40+tg8 -r 1 --no-warmup && says err "$2"; }
no cached "came from the server's prompt cache"
no short "generated 6 tokens instead of 9"
no nousage "its chunks are no count of tokens"
no load "loaded its model during this request \(0.25 s\)"
no bundle "9 tokens came in 5 chunks, and the server does not say how many the first one had"
expect 0 bench -C "$(openai bosreuse)" -w pp40+tg8 -r 1 --no-warmup
# Only the first words of a text are random, so its length is found soon.
expect 0 bench -C "$(openai subwords)" -w pp2000+tg8 -r 2 --no-warmup -o json && json "$ROW['prefill_tok_s'] > 0"
# The file gives the vocabulary only.
expect 0 bench -m "$(dirname "$QDYNO")/share/models/bundled.gguf" -C "$(openai plain)" -w pp40+tg8 -r 1 --no-warmup -o json && run=$(value 'd["run"]')
expect 0 show "$run" -o json && json "d['run']['model'] == 'bundled.gguf' and d['run']['model_sha256'] is None"
expect 4 bench -C "engine=openai,url=http://127.0.0.1:$PORT" -w tg4 && says err "has 2 models: add model=NAME"
expect 7 bench -C engine=openai,url=http://127.0.0.1:1,model=x -w tg4 && says err "cannot reach"

# qdyno's own server: its vocabulary is that of the file, so the arms get the same ids.
"$QDYNO" serve --port 0 -o json >"$T/serve.out" 2>"$T/serve.err" &
pids+=($!)
for _ in $(seq $((WAIT_S * 10))); do
  SERVE=$(sed -n 's/.*"url": *"\(http[^"]*\)\/v1".*/\1/p' "$T/serve.out")
  [ -n "$SERVE" ] && break
  kill -0 $! 2>/dev/null || break
  sleep 0.1
done
[ -n "$SERVE" ] || fail "qdyno serve has no address: $(cat "$T/serve.out" "$T/serve.err")"
"$QDYNO" ab default "engine=openai,url=$SERVE" -w pp24+tg12 --budget 4s --control 0 --processes kept -o json >"$T/out" 2>"$T/err" </dev/null
[ $? -le 3 ] || fail "ab with qdyno serve"
json "d['arms'][1]['engine']['token_ids'] and d['arms'][1]['error'] is None and d['arms'][1]['server_decode_tok_s'] > 0"
json "d['arms'][0]['engine'] is None and any('random tokens' in e['text'] for e in d['events'])"
run=$(value 'd["run"]')
expect 0 show "$run" && says out "engine=openai"

# A setting of known effect of another engine, and the server stops between its cells.
"$QDYNO" ab engine=llama-server 'engine=llama-server,args="--fault slow"' -w tg8 --budget 120s --control 0 --processes kept -o json >"$T/out" 2>"$T/err" </dev/null
[ $? = 1 ] || fail "a much slower server is worse: status $?"
json "d['verdict'] == 'worse' and d['arms'][0]['engine']['build'] == 'b1-fake' and len(d['arms'][0]['engine']['binary_sha256']) == 64"
none_left ab

# tune finds the setting of known effect among those of another engine.
"$QDYNO" tune -C 'engine=llama-server,args="--fault slow"' --space 'args="--fault slow|--fault ram"' -w tg8 --budget 240s -o json >"$T/out" 2>"$T/err" </dev/null
[ $? = 0 ] || fail "tune with another engine: status $?: $(tail -n 3 "$T/err")"
json "'--fault ram' in d['winner'] and d['effect_lower_ratio'] > 1 and d['verdict'] == 'better' and d['written'] is None" &&
  json "len(d['tried']) == 2 and all(t['predicted_tok_s'] is None for t in d['tried'])"
none_left tune
expect 4 tune -C engine=llama-server --budget 5s && says err "which settings of the other engine"
expect 4 tune -C engine=llama-server --space precision=high --budget 5s && says err "is no setting that qdyno can give"
expect 4 tune --space 'engine=llama-server,threads=0|1|2|3|4|5|6|7|8|9,batch=1|2|3|4|5|6|7' --budget 5s && says err "at most 64"

# The audit: perplexities of both programs at three batch sizes; a fake cannot agree with qdyno.
cp "$(dirname "$QDYNO")/share/models/bundled.gguf" "$T/model.gguf"
expect 1 audit "$T/model.gguf" --bytes 4k -c 64 -o json &&
  json "d['agrees_with_itself'] and d['agrees_with_qdyno'] is False and len(d['rows']) == 6" &&
  json "max(r['own_ratio'] for r in d['rows'][:3]) < 1.001"
expect 1 audit "$T/model.gguf" --bytes 4k -c 64 --engine 'engine=llama-perplexity,args="--fault slow"' && says out "DISAGREES with itself"
expect 0 audit "$T/model.gguf" --bytes 4k -c 64 --engine qdyno -o json && json "d['agrees_with_itself'] and d['agrees_with_qdyno'] is None"
expect 0 audit "$T/model.gguf" --bytes 4k -c 64 --batches 1 --engine q4_0 -o json && json "len(d['rows']) == 1 and 'q4_0' in d['rows'][0]['config']"
expect 4 audit "$T/model.gguf" --engine llama-server && says err "does not give the probabilities"

# Results of others, and settings for others.
"$T/bin/llama-bench" -m x.gguf -p 32 -n 0 2>/dev/null >"$T/results.jsonl"
sed -i 's/"avg_ns"/"avg_ts": 12.5, "cpu_info": "Some CPU", "model_filename": "x.gguf", "avg_ns"/' "$T/results.jsonl"
expect 0 history --import "$T/results.jsonl" -o json && json "d['imported'] == 1"
expect 0 history --filter foreign -o json && json "d['rows'][0]['kind'] == 'import' and d['rows'][0]['workload'] == 'pp32'" && run=$(value 'd["rows"][0]["run"]')
[ -z "$PYTHON" ] || { expect 0 show "$run" && says out "engine=llama-bench"; }
expect 5 history --import "$0" && says err "llama-bench -o json"
for target in llama-server ollama lmstudio vllm; do
  expect 0 apply --for "$target" q4_0,threads=3,ctx=1024,precision=highest && says out "1024" && says out "qdyno quantize" && says out "precision=highest"
done
expect 0 apply --for llama-server gpu_layers=0,device=cpu,max_sequences=3,compile=off && says out "-ngl 0" && says out "max_sequences=3" && says out "compile=off"
expect 0 apply --for ollama gpu_layers=0 && says out "^PARAMETER num_gpu 0"
expect 0 apply --for ollama q8_0,threads=3 && says out "^PARAMETER num_thread 3" && says out "^FROM .*q8_0.gguf"
expect 4 apply engine=llama-server && says err "needs qdyno's own engine"

# Killed: nothing stays.
"$QDYNO" bench -C engine=llama-server -w tg64 -r 10000 >/dev/null 2>&1 </dev/null &
victim=$!
for _ in $(seq $((WAIT_S * 10))); do pgrep -f "$FAKE llama-server" >/dev/null && break; sleep 0.1; done
kill -9 $victim
wait $victim 2>/dev/null
for _ in $(seq $((WAIT_S * 10))); do pgrep -f "$FAKE llama-server" >/dev/null || break; sleep 0.1; done
none_left "kill -9"
finish
