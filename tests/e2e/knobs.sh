#!/bin/bash
# Proves: attention=, kv_cache= and numa= run as arms of an experiment and give the answers of the defaults; `fit` counts what they take;
# what cannot work is refused with the reason; and the resolved config of a stored run names them.
. "$(dirname "$0")/lib.sh" "$@"

IDS=1,5,9,200,17,44,8,3,100,7,31,12,6,2,90,11
same() { cmp -s "$T/one" "$T/two" || fail "$1 gives other logits"; }
logits() { expect 0 logits -C "batch_invariant=on,threads=2$1" --ids "$IDS" --out "$2"; }

logits "" "$T/one"
for setting in kv_cache=contiguous kv_cache=off numa=spread; do logits ",$setting" "$T/two" && same "$setting"; done
logits ",attention=plain" "$T/two"

# an answer, generated token by token
expect 0 run -p "Once upon" -n 12 --temp 0 -C batch_invariant=on && cp "$T/out" "$T/answer"
for setting in kv_cache=contiguous kv_cache=off; do
  expect 0 run -p "Once upon" -n 12 --temp 0 -C batch_invariant=on,$setting && { cmp -s "$T/answer" "$T/out" || fail "$setting answers differently"; }
done

# memory: scores of plain attention, one layer's cache, activations of a whole context
expect 0 fit --load -c 512 -C batch=128 -C batch=128,attention=plain -C batch=128,kv_cache=contiguous -C batch=128,kv_cache=off -o json && {
  json 'all(r["error"] is None for r in d["rows"])'
  json 'd["rows"][1]["scratch_bytes"] > d["rows"][0]["scratch_bytes"]'
  json 'd["rows"][2]["kv_bytes"] == d["rows"][0]["kv_bytes"] > 2 * d["rows"][3]["kv_bytes"]'
  json 'd["rows"][3]["compute_bytes"] > d["rows"][0]["compute_bytes"]'
}

# a made-up machine with two memory nodes, on which nothing is bound
NODES="NUMANode:2 Core:2 PU:1"
for policy in spread local interleave replicate; do
  HWLOC_SYNTHETIC=$NODES logits ",numa=$policy" "$T/two" && same "numa=$policy"
done
HWLOC_SYNTHETIC=$NODES expect 0 fit -c 512 -C threads=2 -C threads=2,numa=interleave -C threads=2,numa=replicate -o json &&
  json '[1.9 < r["weights_bytes"] / d["rows"][0]["weights_bytes"] < 2 for r in d["rows"]] == [False, False, True]' # norms are not copied
HWLOC_SYNTHETIC="NUMANode:1 Core:2 PU:1" expect 7 run -p Once -n 1 -C numa=local && says err 'one memory node: expected numa=off'

for pair in "attention=flash attention=plain" "kv_cache=paged kv_cache=off" "kv_cache=paged kv_cache=contiguous" "default numa=spread"; do
  # shellcheck disable=SC2086
  "$QDYNO" ab $pair -w pp32+tg4 --budget 3s -o json >"$T/out" 2>"$T/err" </dev/null
  case $? in 0 | 1 | 2 | 3) ;; *) fail "ab $pair failed" ;; esac
  key=${pair##* } value=${pair##*=} && key=${key%%=*}
  json "d['arms'][1]['merged']['$key'] == '$value'"
done

expect 4 run -p Once -C attention=plain,device=opencl:0 && says err 'attention=plain is possible on the CPU only'
expect 4 run -p Once -C kv_cache=off,parallel=tp2 && says err 'kv_cache=off is possible in one process only'
expect 4 run -p Once -C numa=spread,affinity=compact && says err 'leave one of them out'
expect 4 run -p Once -C numa=interleave,prefetch=populate && says err 'numa=interleave copies the weights'
expect 4 serve -C kv_cache=contiguous --port 0 && says err 'share the blocks of a paged KV cache'
expect 4 bench -C kv_cache=off -w load:rate=4,requests=8,in=16,out=8 && says err 'share the blocks of a paged KV cache'
finish
