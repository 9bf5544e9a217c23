#!/bin/bash
# Proves: a finished A/B arrives in a real Prometheus Pushgateway and stays one group; if gateway or program die on the
# way, nothing is lost or sent twice; prune deletes only our groups; a wrong password, a bad certificate, a refusal, a
# time-out and a full disk each give a clear message and the documented status.
. "$(dirname "$0")/lib.sh" "$@"
have prometheus-pushgateway || { echo "SKIPPED: no prometheus-pushgateway here"; exit 77; }
have curl || { echo "SKIPPED: no curl here"; exit 77; }

port=$(free_port)
url=http://127.0.0.1:$port

# gateway_start [OPTION...]: its data survive a restart. CURL_ARGS: credentials.
gateway_start() {
  prometheus-pushgateway --web.listen-address="127.0.0.1:$port" --persistence.file="$T/gateway.data" \
    --persistence.interval=50ms "$@" >>"$T/gateway.log" 2>&1 &
  gateway=$!
  pids+=("$gateway")
  for _ in $(seq $((WAIT_S * 10))); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && return; sleep 0.1; done
  fail "the gateway does not start: $(tail -1 "$T/gateway.log")"
}
gateway_stop() { kill "${1:--TERM}" "$gateway"; wait "$gateway" 2>/dev/null; }
metrics() { curl -fs "$url/metrics" >"$T/metrics" || fail "the gateway does not answer"; }
# Number of our groups on the gateway, and of PUTs since its start.
groups() { metrics; grep -c '^push_time_seconds{.*job="qdyno"' "$T/metrics"; }
puts() { metrics; sed -n 's/^pushgateway_http_requests_total{code="200",handler="push",method="put"} //p' "$T/metrics"; }
waiting() { "$QDYNO" doctor 2>/dev/null | sed -n 's/.* \([0-9]*\) outcomes\{0,1\} waiting.*/\1/p'; }

"$QDYNO" ab default q8_0 -w tg16 --max-blocks 6 --control 0 --budget 20s >"$T/out" 2>"$T/err"
expect 0 history -o json && json 'd["rows"][0]["state"] == "done"' || { cat "$T/out"; finish; }

# no gateway: stored; a wrong address: refused at once
expect 7 push 1 --url "$url" --timeout 3s && says err 'stored'
[ "$(waiting)" = 1 ] || fail "doctor does not say that one outcome waits"
expect 7 push 1 --url "http://localhost:$port" --timeout 3s && says err 'stored' # another gateway, as far as we know
expect 4 push 1 --url "ftp://127.0.0.1"

# what waits can be listed, with its cause, and deleted; an address that was pasted behind another one is refused
expect 0 push --list -o json && json 'len(d["rows"]) == 2 and all(r["attempts"] == 1 and "Failed to connect" in r["last_error"][:50] for r in d["rows"])'
expect 7 push --retry --timeout 3s -o json && json 'len(d["rows"]) == 2 and max(r["attempts"] for r in d["rows"]) == 2 and d["sent"] == 0'
expect 4 push --drop 99999 && says err 'no outcome with this id'
expect 0 push --drop "$("$QDYNO" push --list -o csv | sed -n 's/^\([0-9]*\),http:..127.*/\1/p')" -o json && json 'd["dropped"] == 1 and len(d["rows"]) == 1'
expect 7 push 1 --url "$url" --timeout 3s && says err 'stored'
expect 4 push 1 --url "http://$url" && says err 'twice'

# two concurrent pushes deliver their own outcome and one stored one: three PUTs, not four, none lost
gateway_start
"$QDYNO" push --url "$url" >"$T/first" 2>&1 & first=$!
"$QDYNO" push --url "$url" >"$T/second" 2>&1 & second=$!
wait "$first" || fail "the first of two pushes: $(cat "$T/first")"
wait "$second" || fail "the second of two pushes: $(cat "$T/second")"
expect 0 push --url "$url" -o json && json 'd["pushed"] is True and d["waiting"] == 0'
n=$(puts)
expect 0 push --url "$url" && says out '^pushed +yes' && ! grep -Eq 'stored|collector|spans|points|n/a' "$T/out" ||
  fail "push prints rows that do not concern it: $(cat "$T/out")"
[ "$n" -ge 3 ] && [ "$n" -le 4 ] || fail "two pushes, one that waited and one after: $n PUTs, want 3 or 4"
[ "$(groups)" = 1 ] || fail "one experiment on one machine is one group"
for name in qdyno_ab_blocks qdyno_ab_verdict qdyno_experiment_last_run_timestamp_seconds qdyno_model_info; do
  grep -q "^$name" "$T/metrics" || fail "no $name on the gateway"
done
grep '^qdyno_ab_blocks' "$T/metrics" | grep -q 'machine="' || fail "no machine label"
QDYNO_PUSH_URL=$url "$QDYNO" push 1 >"$T/out" 2>"$T/err" || fail "QDYNO_PUSH_URL is not used"
expect 4 push 1 --url "$url/nowhere" --timeout 60s && says err '404'

# a time-out, then a kill of the gateway during a push: stored, and delivered once after the restart
kill -STOP "$gateway"
expect 7 push 1 --url "$url" --timeout 1s && says err 'no response within [0-9.]+ s' && says err 'stored'
"$QDYNO" push 1 --url "$url" --timeout 60s >"$T/out" 2>"$T/err" & push=$!
sleep 0.7
gateway_stop -KILL
wait "$push"
[ $? = 7 ] && says err 'stored' || fail "the gateway was killed during a push: status, or no word that it is kept"
[ "$(waiting)" = 1 ] || fail "an outcome was lost with its gateway"
rm -f "$T/gateway.data"
gateway_start
expect 0 push 1 --url "$url" -o json && json 'd["waiting"] == 0'
[ "$(groups)" = 1 ] && [ "$(puts)" = 1 ] || fail "after the restart: $(groups) groups and $(puts) PUTs, want 1 and 1"

# stored outcomes of a gateway that does not answer: --timeout limits the whole push, which reaches its own gateway
kill -STOP "$gateway"
expect 7 push 1 --url "http://localhost:$port" --timeout 1s
other=$(free_port)
prometheus-pushgateway --web.listen-address="127.0.0.1:$other" --persistence.file= >>"$T/gateway.log" 2>&1 & quick=$!
pids+=("$quick")
for _ in $(seq $((WAIT_S * 10))); do (exec 3<>"/dev/tcp/127.0.0.1/$other") 2>/dev/null && break; sleep 0.1; done
begun=$(date +%s)
expect 0 push 1 --url "http://127.0.0.1:$other" --timeout 2s -o json && json 'd["pushed"] is True and d["waiting"] == 1'
[ $(($(date +%s) - begun)) -le 15 ] || fail "push --timeout 2s took $(($(date +%s) - begun)) s"
kill "$quick"; wait "$quick" 2>/dev/null
kill -CONT "$gateway"
expect 0 push 1 --url "$url" -o json && json 'd["waiting"] == 0'

# a kill of the program during a push
kill -STOP "$gateway"
"$QDYNO" push 1 --url "http://localhost:$port" --timeout 60s >/dev/null 2>&1 & push=$!
for _ in $(seq $((WAIT_S * 10))); do [ "$(waiting)" = 1 ] && break; sleep 0.1; done # it is stored before it is sent
kill -KILL "$push"; wait "$push" 2>/dev/null
kill -CONT "$gateway"
expect 0 push 1 --url "$url" -o json && json 'd["sent_from_spool"] == 1 and d["waiting"] == 0'

# a metric name with another type: the message of the gateway is printed, and nothing is stored
printf '# TYPE qdyno_ab_blocks counter\nqdyno_ab_blocks 1\n' | curl -fs --data-binary @- -X PUT "$url/metrics/job/somebody" &&
  fail "the gateway took an inconsistent type from somebody else"
expect 0 prune --all --url "$url" -o json && json 'len(d["rows"]) == 1 and d["rows"][0]["fate"] == "deleted"'
for _ in $(seq $((WAIT_S * 10))); do [ "$(groups)" = 0 ] && break; sleep 0.1; done
printf '# TYPE qdyno_ab_blocks counter\nqdyno_ab_blocks 1\n' | curl -fs --data-binary @- -X PUT "$url/metrics/job/somebody" ||
  fail "the gateway still holds what was pruned"
expect 4 push 1 --url "$url" && says err '400' && says err 'qdyno_ab_blocks'
[ "$(waiting)" = 0 ] || fail "what a gateway refuses for good must not wait"
curl -fs -X DELETE "$url/metrics/job/somebody"

# prune: only our groups, by default old ones; a second time is no error
echo 'x 1' | curl -fs --data-binary @- -X PUT "$url/metrics/job/somebody"
echo 'x 1' | curl -fs --data-binary @- -X PUT "$url/metrics/job/qdyno/experiment/theirs"
for _ in $(seq 50); do expect 0 push 1 --url "$url" && break; sleep 0.1; done
expect 0 prune --url "$url" && says out 'kept'
expect 0 prune --url "$url" --all --dry-run && says out 'would be deleted'
[ "$(groups)" = 2 ] || fail "a dry run deleted something"
curl -fs -X DELETE "$url$(sed -n "s|.*$url\(/metrics/[^ ]*\) .*would.*|\1|p" "$T/out")" # gone already: fine
expect 0 prune --url "$url" --all && says out 'deleted'
expect 0 prune --url "$url" --all && says out 'has pushed no group'
for _ in $(seq $((WAIT_S * 10))); do [ "$(groups)" = 1 ] && break; sleep 0.1; done
grep -q 'experiment="theirs"' "$T/metrics" && grep -q 'job="somebody"' "$T/metrics" || fail "prune took what others pushed"
expect 4 prune && says err 'QDYNO_PUSH_URL'
expect 4 prune --url "$url" --all --older-than 1d && says err 'one of them'
gateway_stop
expect 0 prune --url "$url" # nothing of ours is known there any more: nobody is asked

# a protected gateway: TLS with our own authority, a client certificate, a password
if have openssl; then
  (
    cd "$T" && exec >/dev/null 2>&1
    new_key() { openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "$@"; }
    new_key -x509 -days 2 -subj /CN=authority -keyout ca.key -out ca.pem
    for who in server client; do
      new_key -subj "/CN=$who" -keyout $who.key -out $who.csr
      openssl x509 -req -in $who.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out $who.pem \
        -extfile <(echo subjectAltName=IP:127.0.0.1)
    done
    new_key -x509 -days 2 -subj /CN=other -keyout other.key -out other.pem
  )
  cat >"$T/web.yml" <<'YML'
tls_server_config:
  cert_file: server.pem
  key_file: server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.pem
basic_auth_users:
  lab: $2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay
YML
  gateway_start --web.config.file="$T/web.yml"
  echo test >"$T/right"
  echo tset >"$T/wrong"
  locked=https://127.0.0.1:$port
  us=(--cert "$T/client.pem" --key "$T/client.key")
  lab=(--user lab --password-file "$T/right")
  expect 0 push 1 --url "$locked" --ca "$T/ca.pem" "${us[@]}" "${lab[@]}"
  expect 4 push 1 --url "$locked" --ca "$T/ca.pem" "${us[@]}" --user lab --password-file "$T/wrong" && says err 'denies access \(HTTP 401\)'
  expect 4 push 1 --url "$locked" --ca "$T/ca.pem" "${us[@]}" && says err '401'
  expect 4 push 1 --url "$locked" "${us[@]}" "${lab[@]}" && says err 'certificate'
  expect 4 push 1 --url "$locked" --ca "$T/other.pem" "${us[@]}" "${lab[@]}" && says err 'certificate'
  expect 0 push 1 --url "$locked" --insecure "${us[@]}" "${lab[@]}"
  expect 7 push 1 --url "$locked" --ca "$T/ca.pem" "${lab[@]}" && says err 'client certificate'
  expect 7 push 1 --url "$locked" --ca "$T/ca.pem" --cert "$T/other.pem" --key "$T/other.key" "${lab[@]}"
  expect 4 push 1 --url "$locked" --user lab && says err 'QDYNO_PUSH_PASSWORD'
  expect 4 push 1 --url "$locked" --key "$T/client.key" && says err 'needs --cert'
  # prune uses the same credentials
  expect 4 prune --url "$locked" --all --ca "$T/ca.pem" "${us[@]}" && says err '401'
  expect 0 prune --url "$locked" --all --ca "$T/ca.pem" "${us[@]}" "${lab[@]}" && says out 'deleted'
  grep -rq 'tset\|hNf2l' "$XDG_DATA_HOME" && fail "a password is in the database"
  gateway_stop
else
  skip "no openssl: a locked gateway is not tried"
fi

# a password goes to another host only over verified TLS (192.0.2.1 is reserved: nobody answers there)
echo test >"$T/password"
for to in "http://192.0.2.1" "https://192.0.2.1 --insecure"; do
  expect 4 push 1 --url $to --user lab --password-file "$T/password" && says err 'nothing was sent.*--insecure-credentials'
done
expect 7 push 1 --url http://192.0.2.1 --user lab --password-file "$T/password" --timeout 1s --insecure-credentials

# the node exporter's textfile
mkdir "$T/textfile"
(umask 077 && expect 0 push --textfile "$T/textfile/qdyno.prom") && says out 'qdyno.prom'
[ "$(stat -c %a "$T/textfile/qdyno.prom")" = 644 ] || fail "the collector's user cannot read the textfile"
grep -q '^qdyno_ab_verdict{experiment=".*machine="' "$T/textfile/qdyno.prom" || fail "no verdict in the textfile"
grep -Eq '^[^#].* [0-9]{13}$' "$T/textfile/qdyno.prom" && fail "a sample has a timestamp"
have promtool && { promtool check metrics <"$T/textfile/qdyno.prom" >"$T/lint" 2>&1 || fail "promtool: $(head -3 "$T/lint")"; }
expect 4 push --textfile "$T/textfile/qdyno.txt" && says err '\.prom'
expect 4 push 1 --textfile "$T/textfile/qdyno.prom"
expect 5 push --textfile "$T/nowhere/qdyno.prom"
[ "$(ls "$T/textfile")" = qdyno.prom ] || fail "a temporary file is left: $(ls "$T/textfile")"

# a full disk: for the textfile (the old file stays) and for the database (nothing is sent that could not be pruned)
mkdir "$T/small"
if mount -t tmpfs -o size=2m tmpfs "$T/small" 2>/dev/null; then
  cp "$T/textfile/qdyno.prom" "$T/small/"
  sqlite=$XDG_DATA_HOME/qdyno/qdyno.db
  "$QDYNO" history >/dev/null 2>&1
  cp "$sqlite" "$T/small/q.db" # no other process has it open: all is in the file
  head -c 4m /dev/zero >"$T/small/fill" 2>/dev/null
  expect 6 push --textfile "$T/small/qdyno.prom" && says err 'No space left'
  cmp -s "$T/small/qdyno.prom" "$T/textfile/qdyno.prom" || fail "a full disk damaged the old textfile"
  [ "$(ls "$T/small" | grep -c tmp)" = 0 ] || fail "a full disk left a temporary file"
  expect 6 --db "$T/small/q.db" push 1 --url "$url" && says err 'make room|No space'
  umount "$T/small"
else
  skip "no tmpfs may be mounted here: a full disk is not tried"
fi
finish
