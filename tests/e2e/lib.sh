# lib.sh - functions of all e2e scripts. Usage in each: . "$(dirname "$0")/lib.sh" "$@"
set -u

QDYNO=${1:?the built program}
SHARED=${2:-}
T=$(mktemp -d)
export HOME=$T/home XDG_DATA_HOME=$T/data XDG_CACHE_HOME=$T/cache XDG_CONFIG_HOME=$T/config LC_ALL=C.UTF-8
for name in $(env | sed -n 's/^\(OTEL_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done
unset QDYNO_PERIODS QDYNO_PUSH_URL QDYNO_PUSH_PASSWORD QDYNO_PUSH_BEARER NO_COLOR QDYNO_SHARE QDYNO_PLUGINS QDYNO_PLUGIN_TIMEOUT
mkdir -p "$HOME"
MODEL=$SHARED/models/repacked/stories260K-f32.gguf
WAIT_S=120 # at most, for anything that must happen: waits end as soon as it has, and this machine may be busy
fails=0
skips=0
pids=()

cleanup() {
  for pid in ${pids[@]+"${pids[@]}"}; do kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null; done
  rm -rf "$T"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

fail() {
  echo "FAIL: $*"
  [ -s "$T/err" ] && sed 's/^/  stderr: /' "$T/err" | head -5
  fails=$((fails + 1))
}
skip() { echo "SKIPPED: $*"; skips=$((skips + 1)); }
have() { command -v "$1" >/dev/null 2>&1; }

# expect STATUS ARGUMENTS...: run the program; its output is in $T/out and $T/err.
expect() {
  local want=$1 got
  shift
  "$QDYNO" "$@" >"$T/out" 2>"$T/err" </dev/null
  got=$?
  [ "$got" = "$want" ] || { fail "qdyno $*: status $got, want $want"; return 1; }
}
# says FILE PATTERN: an extended regular expression in $T/out or $T/err.
says() { grep -Eq -- "$2" "$T/$1" || { fail "std$1 does not contain '$2': $(head -c 300 "$T/$1")"; return 1; }; }

# json EXPRESSION: must be true for the document `d` in $T/out. Without python3 it is not checked (reported once, below).
PYTHON=$(command -v python3)
[ -n "$PYTHON" ] || skip "no python3: JSON, CSV and SQL are written but not read back"
json() {
  [ -n "$PYTHON" ] || return 0
  python3 - "$T/out" "$1" <<'PY' || { fail "JSON: not true: $1: $(head -c 300 "$T/out")"; return 1; }
import json, math, sys
d = json.load(open(sys.argv[1], encoding="utf-8"))
sys.exit(0 if eval(sys.argv[2]) else 1)
PY
}
# value EXPRESSION: prints its value for the document `d`; prints nothing without python3: check [ -n "$PYTHON" ] first.
value() {
  python3 -c 'import json,sys; d=json.load(open(sys.argv[1])); print(eval(sys.argv[2]))' "$T/out" "$1" 2>/dev/null
}

# A port that nothing listens on, below those that the kernel gives to outgoing connections.
free_port() {
  local port
  for port in $(shuf -i 20000-32000 -n 50); do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return 0; }
  done
  return 1
}

finish() {
  [ "$fails" = 0 ] || { echo "$fails failed"; exit 1; }
  echo "passed, $skips skipped"
  exit 0
}
