#!/bin/bash
# Proves: the files for Docker Compose name files that exist, addresses that agree with each other, and, where promtool is installed, a
# configuration that Prometheus accepts. Needs no network and no Docker.
. "$(dirname "$0")/lib.sh" "$@"
FOLDER=$(dirname "$QDYNO")/share/monitoring/compose
[ -f "$FOLDER/compose.yaml" ] || fail "no $FOLDER/compose.yaml"

# Every mounted file exists.
mounts=$(sed -n 's/^      - \(\.[^:]*\):.*:ro$/\1/p' "$FOLDER/compose.yaml")
[ "$(wc -l <<<"$mounts")" = 7 ] || fail "expected 7 mounted files: $mounts"
for m in $mounts; do [ -e "$FOLDER/$m" ] || fail "compose.yaml mounts $m, which does not exist"; done

# Nothing listens beyond this machine, and who sends to an address meets a listener there.
! grep -rnE '0\.0\.0\.0|\[::\]' "$FOLDER" || fail "an address that others can reach"
listens() { grep -rqF -e "$1" "$FOLDER/$2" || fail "nothing in $2 listens on $1"; }
listens --web.listen-address=127.0.0.1:9090 compose.yaml && grep -q 'url: http://127.0.0.1:9090$' "$FOLDER/grafana/datasources/qdyno.yaml" || fail "Grafana's Prometheus"
listens 'http_listen_port: 3200' tempo.yaml && grep -q 'url: http://127.0.0.1:3200$' "$FOLDER/grafana/datasources/qdyno.yaml" || fail "Grafana's Tempo"
listens 'endpoint: 127.0.0.1:4418' tempo.yaml && grep -q 'endpoint: http://127.0.0.1:4418$' "$FOLDER/otelcol.yaml" || fail "the collector's Tempo"
listens 'endpoint: 127.0.0.1:4318' otelcol.yaml
listens --web.enable-otlp-receiver compose.yaml && grep -q 'endpoint: http://127.0.0.1:9090/api/v1/otlp$' "$FOLDER/otelcol.yaml" || fail "the collector's Prometheus"
listens --web.listen-address=127.0.0.1:9091 compose.yaml

# The port of the scrape page is the program's own default.
expect 0 help serve-metrics && says out 9470 && grep -q "targets: \['127.0.0.1:9470'\]" "$FOLDER/prometheus.yml" || fail "the port of serve-metrics"

if [ -n "$PYTHON" ] && "$PYTHON" -c 'import yaml' 2>/dev/null; then
  for f in $(find "$FOLDER" -name '*.yaml' -o -name '*.yml'); do
    "$PYTHON" -c 'import sys, yaml; assert isinstance(yaml.safe_load(open(sys.argv[1])), dict)' "$f" || fail "$f is not YAML"
  done
else
  echo "SKIPPED in part: no PyYAML, so the YAML files were not parsed"
fi
if command -v promtool >/dev/null; then
  mkdir "$T/prometheus" && cp "$FOLDER/prometheus.yml" "$FOLDER/../qdyno.rules.yml" "$T/prometheus"
  promtool check config "$T/prometheus/prometheus.yml" >"$T/promtool" 2>&1 || fail "promtool: $(cat "$T/promtool")"
  sed -i 's/targets:/target:/' "$T/prometheus/prometheus.yml" # and it does notice things
  ! promtool check config "$T/prometheus/prometheus.yml" >/dev/null 2>&1 || fail "promtool accepts an unknown key"
else
  echo "SKIPPED in part: promtool (Debian package prometheus) is not installed"
fi
finish
