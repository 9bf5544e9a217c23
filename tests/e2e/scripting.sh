#!/bin/bash
# Proves: what scripts rely on: the summary is the first member of a document and agrees with the exit status, -q prints the
# result alone, labels are stored, shown, searched and exported, the commit of a checkout is a label, and `claims quant`
# judges every claim.
. "$(dirname "$0")/lib.sh" "$@"
cd "$T" || exit 1
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 to read JSON with"; exit 77; }

# ---- summary and -q
summary() { # summary ARGUMENTS...: status, summary and an empty stderr agree
  "$QDYNO" "$@" -q -o json >"$T/out" 2>"$T/err" </dev/null
  local status=$?
  json 'list(d)[0] == "summary" and list(d["summary"])[:7] == ["verdict", "gate", "effect", "lower", "upper", "exit_status", "run"]' &&
    json 'd["summary"]["exit_status"] == '"$status"' and isinstance(d["summary"]["run"], int)'
  [ ! -s "$T/err" ] || fail "$*: -q wrote to stderr"
}
AB=(default q8_0 -w tg4 --control 0 --warmup 1 --min-blocks 6 --max-blocks 6 --budget 15s)
summary bench -p 0 -n 4 -r 1 && json 'd["summary"]["verdict"] is None and d["summary"]["effect"] is None'
summary eval -c 32 --chunks 4 --ref default -C q8_0 && json 'd["summary"]["effect"] == d["rows"][0]["ppl_ratio"]'
summary ab "${AB[@]}" && json 'd["summary"]["estimand"] == d["estimand"] and d["summary"]["verdict"] == d["verdict"] and d["summary"]["run"] == d["run"]' && ab=$(value 'd["run"]')
"$QDYNO" replay "$ab" --budget 1s >"$T/out" 2>"$T/err" </dev/null
if ! grep -q 'no valid block' "$T/err"; then
  summary replay "$ab" && json 'd["summary"]["verdict"] == d["verdict"]'
else
  skip "the machine is too busy for a valid block, so nothing is replayed"
fi
summary tune --space "recipe=file|q8_0,threads=1" -w tg4 --budget 4s --dry-run && json 'd["summary"]["applied"] is None'
summary govern default q8_0 --rule itl=1s -n 3 && json '"switches" in d["summary"]["text"]'
expect 0 baseline set best default -w tg4
summary baseline check best q4_0 --budget 1s && json 'd["summary"]["verdict"] == d["verdict"]'

"$QDYNO" history --detect -q -o json >"$T/out" 2>"$T/err" && json 'list(d)[0] == "summary" and d["summary"]["exit_status"] == 0 and "series examined" in d["summary"]["text"]'

# ---- what a run found is in the list
expect 0 bench -p 0 -n 4 -r 1 -C default && expect 0 history --limit 1 && says out '\| result' && says out 'decoding [0-9.]+ ' &&
  expect 0 history --limit 1 -o json && json '"decoding" in d["rows"][0]["result"]'
# ---- labels
expect 0 bench -p 0 -n 4 -r 1 --label branch=main --label "note=a b=\"c\"" -o json &&
  json 'd["labels"] == {"branch": "main", "note": "a b=\"c\""}' && run=$(value 'd["run"]')
expect 0 show "$run" && says out 'labels: branch=main note=a b="c"'
expect 0 show "$run" -o json && json 'd["run"]["labels"]["branch"] == "main"'
expect 0 history --label branch=main -o json && json '[r["run"] for r in d["rows"]] == ['"$run"']'
expect 0 history --label branch=main --label note=x && says out 'no runs match'
expect 0 history --detect --label branch=main && says out 'not enough history yet'
expect 0 eval -c 32 --chunks 2 --label branch=side -o json && json 'd["labels"] == {"branch": "side"}'
"$QDYNO" ab "${AB[@]}" --label 'branch=a<b' -o json >"$T/out" 2>"$T/err"
json 'd["labels"] == {"branch": "a<b"}' && run=$(value 'd["run"]')
expect 0 show "$run" -o json && json 'd["labels"] == {"branch": "a<b"}'
expect 0 push --textfile "$T/q.prom" && { grep -q '^qdyno_run_label_info{.*key="branch",value="a<b"} 1$' "$T/q.prom" || fail "the label is not exported"; }
expect 0 report "$run" --out "$T/r.html" && { grep -q 'a&lt;b' "$T/r.html" || fail "the report lacks the label"; }
expect 0 report "$run" --out "$T/r.md" && { grep -q 'Labels of the run' "$T/r.md" || fail "the report lacks labels"; }
expect 0 govern default q8_0 --rule 'ttft=10s' -w pp4+tg4 -n 2 --label branch=g -o json && json 'd["labels"] == {"branch": "g"}'
expect 4 bench --label 1=x && says err 'expected KEY=VALUE'
expect 4 bench --label a=$'x\ny' && says err 'control characters'
expect 4 bench --label a=1 --label a=2 && says err 'given twice'
expect 4 ab --resume "$run" --label a=1 && says err 'leave --label out'
expect 4 baseline list --label a=1 && says err 'no flag of'

if have git; then
  mkdir -p "$T/checkout/below" && cd "$T/checkout" || exit 1
  git init -q . && echo x >f && git add f && git -c user.name=a -c user.email=a@b commit -qm first
  want=$(git describe --always --dirty)
  cd below && expect 0 bench -p 0 -n 4 -r 1 -o json && json 'd["labels"] == {"commit": "'"$want"'"}'
  echo y >../f && expect 0 bench -p 0 -n 4 -r 1 -o json && json 'd["labels"] == {"commit": "'"$want"'-dirty"}'
  expect 0 bench -p 0 -n 4 -r 1 --label commit=mine -o json && json 'd["labels"] == {"commit": "mine"}'
  # a git that hangs costs two seconds and the label, not the run
  mkdir "$T/slow" && printf '#!/bin/sh\nexec sleep 60\n' >"$T/slow/git" && chmod +x "$T/slow/git"
  begun=$SECONDS
  PATH="$T/slow:$PATH" expect 0 bench -p 0 -n 4 -r 1 -o json && json 'd["labels"] == {}'
  [ $((SECONDS - begun)) -lt 20 ] || fail "a git that hangs was waited for"
  cd "$T" || exit 1
else
  skip "no git: the commit of a checkout is not tested"
fi

# ---- claims
"$QDYNO" claims quant -w tg16 --budget 8s -o json >"$T/out" 2>"$T/err"
status=$?
json 'd["schema"] == "qdyno.claims/1" and len(d["rows"]) == 5 and d["summary"]["exit_status"] == '"$status" &&
  json 'all(r["verdict"] in ("confirmed", "refuted", "not decided") for r in d["rows"])' &&
  json 'all(0.2 < r["measured"] < 0.6 and r["verdict"] != "not decided" for r in d["rows"] if r["figure"] == "weights_bytes")' &&
  json 'all((r["reason"] is not None) == (r["verdict"] == "not decided") for r in d["rows"])'
# the table of methods: arms have speeds, what no run measured is unknown, and a bench fills it in
json 'len(d["methods"]) == 15 and all(0.1 < m["memory_ratio"] < 0.7 for m in d["methods"])' &&
  json '{m["config"]: m for m in d["methods"]}["nf4"]["speed_ratio"] is None' &&
  json '{m["config"]: m for m in d["methods"]}["nf4"]["kld_mean"] is None' &&
  json '{m["config"]: m for m in d["methods"]}["q8_0"]["claimed_speed_to"] == 3'
expect 0 eval -C nf4 --ref default --chunks 1 -o json
"$QDYNO" claims quant -w tg16 --budget 1s -o json >"$T/out" 2>"$T/err"
json '{m["config"]: m for m in d["methods"]}["nf4"]["kld_mean"] > 0'
expect 4 claims training && says err 'expected quant'
expect 4 claims && expect 4 claims quant -w pp16 && says err 'a workload that decodes'
expect 5 claims quant -m "$T/none.gguf"
finish
