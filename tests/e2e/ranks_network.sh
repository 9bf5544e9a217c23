# ranks_network.sh - ranks on two hosts, network namespaces with a link that delays each packet by 2 ms: the same bits,
# measured and predicted exchanges, the energy of both, and a link that goes silent.
. "$(dirname "$0")/lib.sh" "$@"

HERE=$(cd "$(dirname "$0")" && pwd)
REAL=$QDYNO A=qdyno-a-$$ B=qdyno-b-$$
skip_all() { echo "SKIPPED: $*: ranks on two hosts are not tested"; exit 77; }
have mpirun && [ -f "$(dirname "$QDYNO")/qdyno_mpi.so" ] || skip_all "no Open MPI (openmpi-bin, libopenmpi-dev)"
[ -n "$PYTHON" ] && have ip && [ -e /dev/net/tun ] || skip_all "no python3, ip (iproute2) or /dev/net/tun"
ip netns add "$A" 2>/dev/null && ip netns add "$B" 2>/dev/null || skip_all "network namespaces are not permitted"
remove_hosts() {
  for space in "$A" "$B"; do
    ip netns pids "$space" 2>/dev/null | xargs -r kill -KILL 2>/dev/null
    ip netns del "$space" 2>/dev/null
  done
  cleanup
}
trap remove_hosts EXIT

# link: connects the hosts; $link is its process.
link() {
  python3 "$HERE/tun_delay.py" 2 "$A" 10.99.0.1 "$B" 10.99.0.2 >"$T/link" 2>&1 &
  link=$!
  pids+=($link)
  for _ in $(seq $((WAIT_S * 10))); do
    grep -qs ready "$T/link" && return
    kill -0 $link 2>/dev/null || skip_all "no link between namespaces ($(tail -1 "$T/link"))"
    sleep 0.1
  done
  fail "no link: $(cat "$T/link")"
}
link

# What mpirun calls to start processes on the other host, in place of ssh. $T/sys-HOST, where it exists, runs a command
# on that host with an energy counter (below).
cat >"$T/remote" <<SH
#!/bin/sh
shift
[ ! -e "$T/sys-second" ] || via="$T/sys-second"
exec ip netns exec $B \$via unshare -u sh -c "hostname second; \$*"
SH
cat >"$T/first" <<SH
#!/bin/sh
[ ! -e "$T/sys-first" ] || via="$T/sys-first"
exec ip netns exec $A \$via "$REAL" "\$@"
SH
chmod +x "$T/remote" "$T/first"
printf '10.99.0.1 slots=1\n10.99.0.2 slots=1\n' >"$T/hosts"
QDYNO=$T/first
export OMPI_MCA_plm_rsh_agent=$T/remote OMPI_MCA_btl=self,tcp
# Processes on a host, without that of the link.
on() { ip netns pids "$1" | grep -vx "$link"; }
remote_left() {
  for _ in $(seq $((WAIT_S * 10))); do
    [ -z "$(on "$B")" ] && return
    sleep 0.1
  done
  fail "$1: processes are left on the second host"
}

echo "exchanges take as long as the link delays them"
expect 0 detect --ranks 2 --hosts "$T/hosts" -o json &&
  json "len(d['read_bytes_s']) == 2 and min(d['read_bytes_s']) > 1e6" &&
  json "len(d['rows']) == 24 and min(r['seconds'] for r in d['rows']) >= 0.0019"
remote_left detect

echo "the same bits"
BUNDLED=$(dirname "$REAL")/share/models/bundled.gguf
IDS=$(seq -s, 1 40)
expect 0 logits -m "$BUNDLED" -C batch_invariant=on --ids "$IDS" --out "$T/one"
for mode in tp2 cp2 pp2 pp4+2; do
  expect 0 logits -m "$BUNDLED" -C "batch_invariant=on,parallel=$mode,hosts=$T/hosts" --ids "$IDS" --out "$T/several" &&
    { cmp -s "$T/one" "$T/several" || fail "parallel=$mode has other logits"; }
  remote_left "$mode"
done

echo "predicted as measured"
expect 0 advise -m "$BUNDLED" --ranks 2 --hosts "$T/hosts" --sequences 2 -o json &&
  json "d['measured'] is True and all(r['error'] is None for r in d['rows'])" &&
  json "all(r['exchange_ratio'] > 0.5 for r in d['rows'] if r['config'] in ('tp2', 'cp2'))" # a step waits for every exchange

# Where one machine reads memory much slower than the other, it gets fewer layers.
python3 - "$XDG_CACHE_HOME"/qdyno/links-*.json <<'PY' || fail "no measured rates in the cache folder"
import json, sys
d = json.load(open(sys.argv[1]))
assert len(d["links"]["read_bytes_s"]) == 2
d["links"]["read_bytes_s"] = [20e9, 10e9]
json.dump(d, open(sys.argv[1], "w"))
PY
expect 0 advise -m "$BUNDLED" --ranks 2 --hosts "$T/hosts" --sequences 2 -o json &&
  json "[r['config'] for r in d['rows']] == ['off', 'tp2', 'cp2', 'pp4+2', 'dp2'] and not any(r['error'] for r in d['rows'])"

echo "energy of both hosts"
# counter HOST WATTS: from now on, processes of HOST see a RAPL counter of that power; 0: they see none.
counter() {
  if [ "$2" != 0 ] && [ ! -e "$T/energy-$1" ]; then
    : >"$T/energy-$1"
    python3 - "$T/energy-$1" "$2" <<'PY' &
import os, sys, time
fd = os.open(sys.argv[1], os.O_WRONLY)
start = time.monotonic()
while True:  # the same number of bytes each time: a reader never sees a part
    os.pwrite(fd, b"%015d\n" % ((time.monotonic() - start) * float(sys.argv[2]) * 1e6), 0)
    time.sleep(0.005)
PY
    pids+=($!)
    for _ in $(seq $((WAIT_S * 10))); do [ -s "$T/energy-$1" ] && break; sleep 0.1; done
  fi
  cat >"$T/sys-$1" <<SH
#!/bin/sh
exec unshare -m sh -c 'mount -t tmpfs none /sys/class && if [ $2 != 0 ]; then
  mkdir -p /sys/class/powercap/intel-rapl:0 && cd /sys/class/powercap/intel-rapl:0 &&
    echo package-0 >name && echo 262143328850 >max_energy_range_uj && ln -s "$T/energy-$1" energy_uj && cd /
fi && exec "\$@"' sh "\$@"
SH
  chmod +x "$T/sys-$1"
}
# measured RUN TOKENS ENERGY: a cell of some seconds; ENERGY is true for its row.
measured() {
  expect 0 bench -m "$BUNDLED" -C "parallel=tp2,hosts=$T/hosts" -w "tg$2" -r 1 && cp "$T/out" "$T/notes" && expect 0 show "$1" -o json &&
    json "(lambda r: $3)(d['rows'][0])"
}
# told: what `bench` says about the power of the second host. On a busy machine the counters are written late.
told() { grep -Eq 'machine second, last repetition: .*processor power ([5-9][0-9])\.[0-9] W' "$T/notes"; }
counter first 30
counter second 0
measured 1 32 "r['energy_j'] is None" # the second host has no counter: the sum is unknown
told && fail "the power of a host without a counter"
counter first 0
counter second 70
measured 2 32 "r['energy_j'] is None"
told || fail "the power of the second host: $(cat "$T/notes")"
counter first 30
measured 3 128 "abs(r['energy_j'] * r['decode_tok_s'] / 128 / 100 - 1) < 0.5" # J of a cell that decodes 128 tokens at 100 W
told || fail "the power of the second host: $(cat "$T/notes")"
rm -f "$T/sys-first" "$T/sys-second"

echo "a link that goes silent"
QDYNO_RANKS_TIMEOUT=5 "$T/first" eval -m "$BUNDLED" -f "$(dirname "$REAL")/share/text/held-out.txt" \
  -C "parallel=tp2,hosts=$T/hosts" >"$T/out" 2>"$T/err" </dev/null &
leader=$!
pids+=($leader)
for _ in $(seq $((WAIT_S * 10))); do
  for pid in $(on "$B"); do grep -aq '^qdyno' "/proc/$pid/comm" 2>/dev/null && break 2; done
  sleep 0.1
done
sleep 1
kill -KILL $link
wait $link 2>/dev/null
wait $leader
status=$?
[ $status = 5 ] || fail "silent link: status $status, want 5"
says err 'rank'
[ -z "$(on "$A")" ] || fail "processes are left on the first host: $(on "$A")"

finish
