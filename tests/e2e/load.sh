#!/bin/bash
# Proves: loads run as workloads of `bench` and `ab` with the bundled model; every request is answered, in open and
# closed loop, in conversations and from traces; prefix hits come from the prefix cache; both arms get the same
# requests; lines and keys without a meaning are refused; stored runs can be shown and reported.
. "$(dirname "$0")/lib.sh" "$@"
ROW='d["rows"][0]'

expect 0 bench -w load:concurrency=4,requests=60,in=24,out=8 -r 1 -o json &&
  json "$ROW['failed_requests'] == 0 and $ROW['requests_s'] > 0 and $ROW['sequences'] == 8" &&
  json "abs($ROW['out_tok_s'] / $ROW['requests_s'] - 8) < 1e-6 and abs($ROW['in_tok_s'] / $ROW['requests_s'] - 24) < 1e-6" &&
  json "1 <= $ROW['batch_mean'] <= 4 and 0 < $ROW['kv_use_ratio'] < 1 and 0 < $ROW['scheduler_ratio'] < 1" &&
  json "$ROW['goodput_ratio'] is None and $ROW['prefix_hit_ratio'] == 0 and $ROW['decode_tok_s'] is None" &&
  json "($ROW['ttft_s'] is None) == ($ROW['steady'] == 0) == ($ROW['unsteady'] is not None)"

# Open loop, lengths that differ, a shared beginning, limits; latency from the schedule is at least that from sending.
W='load:rate=200,burstiness=0.5,requests=60,in=lognormal:60:0.3,out=6,prefix=0.6,slo="ttft<1h,itl_max<1h"'
expect 0 bench -w "$W" -C prefix_cache=on -C prefix_cache=off -r 1 -o json &&
  json "$ROW['prefix_hit_ratio'] > 0.1 and d['rows'][1]['prefix_hit_ratio'] == 0" &&
  json "all(r['goodput_ratio'] == 1 and r['coordinated_omission_s'] >= 0 and r['e2e_s'] > 0 for r in d['rows'])"

# Conversations: later turns find the earlier ones in the cache. A full cache preempts, and nothing is lost.
expect 0 bench -w load:concurrency=3,requests=30,in=40,out=8,turns=3 -C kv_blocks=10,max_sequences=3 -r 1 -o json &&
  json "$ROW['failed_requests'] == 0 and $ROW['prefix_hit_ratio'] > 0"

# Traces of three kinds.
printf 'TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,40,4\n2023-11-16 18:15:50.99,30,5\n' >"$T/azure.csv"
printf 'Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,47,8,55,x\n45,ChatGPT,10,3,13,x\n' >"$T/burst.csv"
printf '{"timestamp":%d,"input_length":600,"output_length":3,"hash_ids":[1,%d]}\n' 0 2 3000 3 >"$T/mooncake.jsonl"
for trace in azure.csv burst.csv mooncake.jsonl; do
  expect 0 bench -w "load:trace=$T/$trace,speed=100,ctx=700" -r 1 -o json && json "$ROW['failed_requests'] == 0 and $ROW['requests_s'] > 0"
done
json "0.3 < $ROW['prefix_hit_ratio'] < 0.5" # the second prompt found the first block of 512 tokens

# The same requests for both arms, with verdicts that the machine decides.
for arms in "schedule=static schedule=fcfs" "prefix_cache=off prefix_cache=on" "evict=lru,kv_blocks=24 evict=lifo,kv_blocks=24" \
  "itl_limit=0 itl_limit=50ms"; do
  "$QDYNO" ab $arms -w load:rate=100,requests=16,in=16,out=4 --budget 3s --control 0 -o json >"$T/out" 2>"$T/err" </dev/null
  [ $? -le 3 ] || fail "ab $arms"
  json 'd["metric"] == "e2e_s" and all(a["requests"]["e2e_s"] > 0 and a["requests"]["failed_requests"] == 0 for a in d["arms"])'
done
run=$(value 'd["run"]')
if [ -n "$PYTHON" ]; then
  expect 0 show "$run" && says out "itl_limit=50"
  expect 0 report "$run" --out "$T/report.html"
fi
expect 0 history && says out "load:rate=100"
"$QDYNO" ab default handicap=100% -w load:concurrency=4,requests=16,in=16,out=8 --budget 3s --control 0 -o json >"$T/out" 2>"$T/err" </dev/null
json 'd["metric"] == "out_tok_s" and all(a["requests"]["out_tok_s"] > 0 for a in d["arms"])'

# The highest rate. Whether there is a steady state depends on the machine.
"$QDYNO" bench -w 'load:rate=auto,requests=40,in=8,out=2,slo="e2e<1h"' -r 1 -o json >"$T/out" 2>"$T/err" </dev/null
case $? in
0) json "$ROW['workload'].startswith('load:rate=') and 'auto' not in $ROW['workload'] and $ROW['goodput_ratio'] == 1" ;;
*) says err "no rate from .* had a steady state" ;;
esac

# Refused before anything runs.
expect 4 bench -w load:rate=4,tokens=3 && says err "no key 'tokens'"
expect 4 bench -w tg4 -C evict=lifo && says err "setting for serving"
expect 4 ab default q8_0 -w 'load:rate=auto,slo="ttft<1s"' && says err "rate=auto is found for each config"
expect 4 ab default q8_0 -w load:rate=4 --metric decode_tok_s && says err "needs a workload with generated tokens"
expect 4 ab default q8_0 -w load:rate=4 --metric goodput_ratio && says err "limits"
expect 4 tune -w load:rate=4 --budget 5s && says err "more is better"
expect 5 bench -w "load:trace=$T/err" -r 1
expect 0 help load && says out "burstiness"
finish
