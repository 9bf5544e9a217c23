#!/bin/bash
# Proves: a killed search continues with its measurements, and only as the same search; a mixed recipe is measured,
# stored in the database, written if it is better, and then readable; the dashboard runs, stops and names a search; the governor
# switches and prints the effect.
. "$(dirname "$0")/lib.sh" "$@"
[ -n "$PYTHON" ] || { echo "SKIPPED: no python3 to read JSON with"; exit 77; }

search=(tune --space "recipe=file|q8_0|q4_K|q4_0,kv=f16|q8_0,threads=1" -w tg16 -t 1 --budget 12s --dry-run -o json)
# begun in another folder, with a relative path of the model: --resume finds it from here
mkdir "$T/elsewhere"
cp "$(dirname "$QDYNO")/share/models/bundled.gguf" "$T/elsewhere/model.gguf"
(cd "$T/elsewhere" && exec "$QDYNO" "${search[@]}" -m model.gguf) >/dev/null 2>"$T/err" &
pid=$!
pids+=($pid)
looks() { "$QDYNO" show 1 --cells -o json 2>/dev/null | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["rows"]))' 2>/dev/null; }
for _ in $(seq $((WAIT_S * 10))); do
  seen=$(looks)
  [ "${seen:-0}" -ge 3 ] && break
  kill -0 $pid 2>/dev/null || break
  sleep 0.1
done
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
before=$(looks)
# a search that was killed: what each configuration measured, not the cells
expect 0 show 1 && says out 'configurations? w(as|ere) measured, the fastest first' && says out 'qdyno show 1 --cells' &&
  says out 'tokens/s' && says out '^conditions: ' && ! grep -q '| cell ' "$T/out" || fail "show of a killed search"
[ "${before:-0}" -ge 3 ] || fail "no look was kept"
expect 4 tune --space "recipe=file|q8_0,threads=1" -w tg16 -t 1 --resume 1 && says err 'other options'
expect 4 tune --resume 99 -w tg16
"$QDYNO" "${search[@]}" --resume 1 >"$T/out" 2>"$T/err"
json 'd["summary"]["exit_status"] == '$?' == (0 if d["winner"] != d["current"] else 2)' &&
  json 'd["spent_s"] > 0 and (d["enough_s"] is None or d["enough_s"] > 0)' &&
  json 'd["run"] == 1 and d["configurations"] == 8 and d["because"] and d["written"] is None' &&
  json 'all(t["tok_s"] > 0 for t in d["tried"]) and any(t["kld"] is not None and t["kld"] > 0 for t in d["tried"])' &&
  json 'd["winner"] in (d["current"], d["candidate"])'
after=$(looks)
# its result page again, and the cells only when asked for; a finished search is not continued
expect 0 show 1 -o json && json 'd["schema"] == "qdyno.tune/1" and d["winner"] and len(d["tried"]) > 1 and d["run"]["kind"] == "tune"'
expect 0 show 1 && says out '^winner ' && says out 'KLD' && says out '^conditions: ' && ! grep -q '| cell ' "$T/out" ||
  fail "show of a search does not print its result"
expect 0 show 1 --cells && says out '\| cell '
[ "${after:-0}" -ge "$before" ] || fail "looks were lost: $before before, $after after"
run_number() { python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(d["run"], d["blocks"])' "$T/out"; }
"$QDYNO" tune --space "threads=1" -w tg8 -t 2 --budget 2s --search-only -o json >"$T/out" 2>"$T/err"
read -r done_run _ < <(run_number)
expect 4 tune --resume "$done_run" && says err 'is finished'
expect 2 tune -C handicap=100 --space "handicap=0|100,threads=1" -w tg16 -t 1 --budget 4s -o json &&
  json '"budget" in d["because"] and "should be enough" in d["because"] and d["candidate"] == "threads=1"' &&
  json 'd["blocks"] < 7 and d["winner"] == d["current"] and d["written"] is None' &&
  json 'd["spent_s"] == d["seconds"] and d["enough_s"] > 4'
# ... whose number alone is enough to continue it: the blocks that it has count
read -r short blocks < <(run_number)
expect 0 show "$short" && says out 'should be enough'
expect 0 show $((short + 1)) && says out "^quality: measured by the search .* qdyno show $short\$"
"$QDYNO" tune --resume "$short" --dry-run -o json >"$T/out" 2>"$T/err"
json 'd["run"] == '"$short"' and d["blocks"] >= '"$blocks"' and d["blocks"] > 0'
# a search that its budget ended before anything was compared is stopped, and its next command continues it
expect 2 tune --space "recipe=file|q8_0,threads=1" -w tg8 -t 1 --budget 1ms -o json &&
  json 'd["raced"] == 1 and d["enough_s"] >= 10 and "can go on" in d["because"] and d["winner"] == d["current"]'
read -r early _ < <(run_number)
expect 0 show "$early" && says out '^conditions: ' && says out "^next: qdyno tune --resume $early --budget [0-9]+s "
expect 0 history && says out "$early .*stopped"
"$QDYNO" tune --resume "$early" --dry-run -o json >"$T/out" 2>"$T/err"
json 'd["run"] == '"$early"' and d["raced"] == 2'
# the current configuration under another name is not raced against itself
threads=$("$QDYNO" detect -o json 2>/dev/null | python3 -c 'import json, sys; print(json.load(sys.stdin)["usable_threads"])')
expect 0 tune --space "handicap=0|50,threads=$threads" -w tg8 --budget 2s --search-only -o json &&
  json 'd["alike"] == "threads='"$threads"'" and d["fitting"] == 1 and all(t["config"] != d["alike"] for t in d["tried"])'
expect 4 tune --space "recipe=q9_0" && says err 'q9_0'
expect 4 tune --limit speed=3 && says err 'memory=BYTES or kld=NATS'
expect 4 tune -w eval:x && says err 'tg64 or pp512'

# right answers: too few questions for a limit are refused, and who loses more than the limit cannot win
tasks="$(dirname "$QDYNO")/share/examples/stories.task.jsonl"
expect 4 tune --limit accuracy=0.5% --task "$tasks" && says err 'accuracy=-SHARE'
expect 4 tune --limit accuracy=-1% && says err 'needs --task'
expect 4 tune --task "$tasks" && says err 'needs --limit accuracy'
expect 4 tune --limit accuracy=-0.5% --task "$tasks" && says err 'expected at least 390 items'
expect 4 advise --limit accuracy=-1% && says err 'memory=BYTES or kld=NATS'
expect 4 eval --task "$tasks" --chat && says err 'no chat template'
expect 4 eval --chat && says err 'needs --task'
expect 0 tune --space "recipe=file|q2_K,threads=1" -w tg16 -t 1 --budget 5s --goal speed --max-ppl 9% --search-only \
  --limit kld=1,accuracy=-1% --task "$tasks" -o json &&
  json 'd["asked"] == 200 and d["accuracy_limit"] == -0.01 and d["candidate"] is None' &&
  json 'all(t["accuracy_lower"] is None or t["accuracy_lower"] < -0.01 for t in d["tried"] if "q2_K" in t["config"])'

# the dashboard: t searches and ends in one sentence; s stops a search, which stays resumable by its number alone
mkfifo "$T/lines"
"$QDYNO" dashboard --linear <"$T/lines" >"$T/said" 2>"$T/err" &
pids+=($!)
exec 7>"$T/lines"
# said COUNT PATTERN: waits until as many lines match
said() {
  for _ in $(seq 1200); do
    [ "$(grep -Ec -- "$2" "$T/said")" -ge "$1" ] && return 0
    kill -0 "${pids[-1]}" 2>/dev/null || break
    sleep 0.1
  done
  fail "the dashboard did not say '$2' $1 times: $(tail -5 "$T/said")"
  return 1
}
said 1 'model: .*parameters' && printf 't\n\n2s\n\n' >&7 &&
  said 1 'search: ' && said 1 'search ended: (Keep .*|.* is .*)\.$' &&
  said 1 '^[0-9:]+ (Keep .*|.* is .*)\.$' && # the command has ended, too
  races=$(grep -c 'search: race' "$T/said") && : || races=0 # a short search on a busy machine may end before its first line
printf 't\n\n1h\n\n' >&7 && said $((races + 1)) 'search: race' && printf 's\n' >&7 &&
  said 1 'search ended: Keep .*: stopped; .*measurements are stored' && said 1 'r: resume the search'
printf 'q\n' >&7
exec 7>&-
wait "${pids[-1]}" || fail "the dashboard ended with status $?"
id=$("$QDYNO" history -o csv 2>/dev/null | awk -F, '/,tune,stopped,/ { print $1; exit }')
expect 2 tune --resume "${id:-0}" --budget 1s -o json -q &&
  json 'd["run"] == '"${id:-0}"' and d["goal"] == "balanced" and d["current"] == "default" and d["summary"]["text"]'
"$QDYNO" tune --space "recipe=file|q8_0,threads=1" -w tg8 -t 1 --budget 2s --dry-run --progress json >/dev/null 2>"$T/out"
python3 - "$T/out" >"$T/lines.txt" <<'PY' || fail "lines of progress: $(tail -3 "$T/lines.txt")"
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
tune = [l["tune"] for l in lines if "tune" in l]
order = ["machine", "space", "race", "quality", "confirm", "save"]
phases = [order.index(t["phase"]) for t in tune]
board = [t["leaderboard"] for t in tune if t["leaderboard"]]
assert phases == sorted(phases) and phases[0] == 0 and 2 in phases, phases
assert all(sum(r["current"] for r in b) == 1 for b in board) and board, board
assert all(r["lower_tok_s"] < r["tok_s"] < r["upper_tok_s"] for b in board for r in b if r["timings"])
assert all(t["why"] for t in tune) and tune[-1]["result"]["text"] and tune[0]["result"] is None
PY

# single tensors of the bundled model in two formats; the check decides the exit status
"$QDYNO" recipe --formats "q3_K q5_K" --like q4_K --windows 2 --check-windows 4 -c 64 --budget 30m \
  --out "$T/mix.conf" --gguf "$T/mix.gguf" -o json >"$T/out" 2>"$T/err"
status=$?
json 'd["measured"] == 86 and d["estimated"] == 0 and d["kld"] > 0 and d["uniform_kld"] > 0' &&
  json 'd["recipe"].startswith(("q3_K", "q5_K")) and "tensors=" in d["recipe"]' &&
  json 'd["basis_label"].startswith("the bundled calibration stories, 2 windows of 64")'
if [ $status = 0 ]; then
  json 'd["beats"] is True and d["kld"] < d["uniform_kld"] and d["kld_difference_upper"] < 0'
  expect 0 info -m "$T/mix.gguf" -o json
  expect 0 quantize "$(dirname "$QDYNO")/share/models/bundled.gguf" "$T/again.gguf" -R "@$T/mix.conf" -o json &&
    cmp -s "$T/mix.gguf" "$T/again.gguf" || fail "the recipe's file makes another model"
  expect 0 bench -n 4 -p 0 -r 1 -C "@$T/mix.conf"
else
  [ $status = 1 ] || [ $status = 2 ] || fail "recipe: status $status"
  [ ! -e "$T/mix.conf" ] && [ ! -e "$T/mix.gguf" ] || fail "a recipe that is not better was written"
fi
expect 4 recipe --kld 0.1 --size 3M && says err 'one target'
expect 4 recipe --like q4_K -C q8_0 && says err 'search looks for'
expect 6 recipe --size 100K --formats q2_K --windows 2 --check-windows 2 -c 64 --budget 10m && says err 'limit'
# a budget that cannot be kept is refused at the start, with the arithmetic: 2, because the command is right
expect 2 recipe --formats q6_K --windows 2 -c 64 --budget 1ms &&
  says err 'budget of 0.001 s is too short: .*measuring 1 of 43 losses .* use --budget [0-9]+0s,.* 0 of the losses are stored'
# ... and nothing is measured again: losses of the search above count
expect 2 recipe --formats "q3_K q5_K q6_K" --windows 2 -c 64 --budget 1ms && says err 'measuring 0 of 129 losses .*; 86 of the losses are stored'
"$QDYNO" synth --shape tiny -R q8_0 "$T/q8.gguf" >/dev/null 2>&1
expect 4 recipe -m "$T/q8.gguf" --like q4_0 && says err 'already quantized' && says err "qdyno quantize $T/q8.gguf OUT.gguf -R f16"
expect 0 quantize "$T/q8.gguf" "$T/floats.gguf" -R f16 && expect 2 recipe -m "$T/floats.gguf" --like q4_0 --budget 1ms && says err 'too short'

# an artificially slow level: the governor must leave it and print the effect
expect 0 govern handicap=100,threads=1 q4_0,threads=1 --rule decode=1000000 -n 9 -w tg8 -o json &&
  json 'len(d["switches"]) == 1 and d["switches"][0]["request"] == 4 and "in a row" in d["switches"][0]["reason"]' &&
  json 'd["switches"][0]["before"] > 0 and d["switches"][0]["after"] > 0' &&
  json '[r["requests"] for r in d["rows"]] == [3, 6] and all(r["loaded"] for r in d["rows"])'
expect 0 govern threads=1 q8_0,threads=1 --rule memory=900000G -n 5 -w tg8 -o json &&
  json '[r["loaded"] for r in d["rows"]] == [False, True]'
expect 4 govern default q8_0 --rule speed=3 && says err 'itl=TIME'
expect 4 govern default q8_0 --rule ttft=1s -w tg8 -n 1 && says err 'prompt'

# a saved config belongs to a model file, not to its name
mkdir -p "$T/one" "$T/two"
expect 0 synth --shape tiny -R f16 --seed 1 "$T/one/x.gguf" && expect 0 synth --shape tiny -R f16 --seed 2 "$T/two/x.gguf"
expect 0 apply -m "$T/one/x.gguf" q8_0,threads=1 -o json && json 'd["path"].endswith("/x.conf")'
expect 0 apply -m "$T/two/x.gguf" -o json && json 'd["config"] is None'
expect 0 bench -m "$T/two/x.gguf" -p 0 -n 4 -r 1 -o json && json 'd["rows"][0]["config"] == "default"'
expect 0 apply -m "$T/two/x.gguf" q4_0,threads=1 -o json && json 'd["path"].endswith(".conf") and not d["path"].endswith("/x.conf")'
expect 0 apply -m "$T/one/x.gguf" -o json && json 'd["config"] == "q8_0,threads=1"'
expect 0 apply -m "$T/two/x.gguf" -o json && json 'd["config"] == "q4_0,threads=1"'
expect 0 apply -m "$T/one/x.gguf" threads=1 -o json
grep -qx 'q8_0,threads=1' "$XDG_CONFIG_HOME/qdyno/x.conf.previous" || fail "the one before is not kept"
# undo exchanges the saved config with the one before, also with none
expect 0 apply -m "$T/one/x.gguf" --undo -o json && json 'd["config"] == "q8_0,threads=1"'
expect 0 apply -m "$T/one/x.gguf" --undo -o json && json 'd["config"] == "threads=1"'
expect 0 apply -m "$T/one/x.gguf" --remove && expect 0 apply -m "$T/one/x.gguf" --undo -o json && json 'd["config"] == "threads=1"'
# it says in a line what it did, also where nothing is saved afterwards
expect 0 apply -m "$T/two/x.gguf" --undo && says out '^removed the saved config of x.gguf, q4_0,threads=1: none was saved before it' && ! grep -q 'n/a' "$T/out" ||
  fail "--undo lists what is not known"
expect 0 apply -m "$T/two/x.gguf" --undo && says out '^restored q4_0,threads=1 for x.gguf .in use until now: default'
expect 0 apply -m "$T/two/x.gguf" --remove && ! grep -q 'n/a' "$T/out" || fail "--remove lists what is not known"
# a run without a winner saves nothing and names its configs; --arm saves one, and default is not compared with itself
"$QDYNO" ab -m "$T/one/x.gguf" default threads=1 -w tg4 --control 0 --budget 60s --min-blocks 6 --max-blocks 6 -o json >"$T/out" 2>"$T/err"
[ -z "$PYTHON" ] || {
  run=$(value 'd["run"]')
  case $(value 'd["verdict"]') in
  better | worse) skip "six blocks of two configs that are equally fast proved a difference" ;;
  *)
    expect 4 apply --run "$run" && says err "proved no config better .verdict: .* name it: --arm A .default., --arm B .threads=1."
    expect 0 apply -m "$T/one/x.gguf" -o json && json 'd["config"] == "threads=1" and d["because"] == "chosen by hand"'
    ;;
  esac
  expect 0 apply --run "$run" --arm A && says out '^config +default' && ! grep -q 'default default' "$T/out" || fail "default is to be compared with itself"
  expect 0 apply -m "$T/one/x.gguf" --undo
}
# a config that a search found on a busy machine is called that wherever it is used
printf '# load: other programs used 65 %% of the processors\nthreads=1\n' >"$XDG_CONFIG_HOME/qdyno/x.conf"
expect 0 apply -m "$T/one/x.gguf" -o json && json 'd["load"] == "other programs used 65 % of the processors"'
expect 0 apply -m "$T/one/x.gguf" && says out 'may not hold on a quiet one'
expect 0 bench -m "$T/one/x.gguf" -p 0 -n 4 -r 1 -o json && says err 'found on a busy machine .other programs used 65 %'
echo 'q9_0' >"$XDG_CONFIG_HOME/qdyno/x.conf"
expect 4 run -m "$T/one/x.gguf" -p a -n 1 && says err 'x.conf'
expect 0 run -m "$T/one/x.gguf" -C default -p a -n 1
expect 0 apply -m "$T/one/x.gguf" threads=2 -o json && json 'd["config"] == "threads=2"'
expect 4 apply -m "$T/one/x.gguf" --undo && says err 'q9_0' # the one before is damaged: nothing changes
expect 0 apply -m "$T/one/x.gguf" -o json && json 'd["config"] == "threads=2"'
finish
