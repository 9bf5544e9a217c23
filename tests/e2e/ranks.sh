# ranks.sh - several processes: exchanges are measured, failures have a reason, and no process is left.
. "$(dirname "$0")/lib.sh" "$@"

have mpirun && [ -f "$(dirname "$QDYNO")/qdyno_mpi.so" ] || {
  echo "SKIPPED: no Open MPI (openmpi-bin, libopenmpi-dev): ranks are not tested"
  exit 77
}

# Processes of ranks that this script started.
ranks_left() { pgrep -f "$QDYNO rank --socket" | wc -l; }
# none_left WHAT: waits until no rank is left.
none_left() {
  for _ in $(seq $((WAIT_S * 10))); do [ "$(ranks_left)" = 0 ] && return 0; sleep 0.1; done
  fail "$1: $(ranks_left) ranks are left"
}

echo "exchanges"
for n in 2 4; do
  expect 0 detect --ranks $n -o json && json "d['schema'] == 'qdyno.links/1' and d['ranks'] == $n and len(d['rows']) == 24" &&
    json "all(r['seconds'] > 0 and r['bytes_s'] > 0 for r in d['rows'])" &&
    json "sorted({r['operation'] for r in d['rows']}) == ['all_gather', 'all_reduce', 'send']"
  none_left "detect --ranks $n"
done

echo "what is missing is named"
expect 4 detect --ranks 1
expect 4 detect --hosts hosts && says err '\-\-ranks'
expect 4 detect --ranks 2 --hosts "$T/none" && says err 'none'
QDYNO_MPIRUN=$T/none expect 7 detect --ranks 2 && says err 'QDYNO_MPIRUN'
QDYNO_MPI_MODULE=$T/none.so expect 7 detect --ranks 2 && says err 'QDYNO_MPI_MODULE'
PATH_BEFORE=$PATH
PATH=/nowhere expect 7 detect --ranks 2 && says err 'openmpi-bin'
PATH=$PATH_BEFORE
expect 4 rank && says err 'mpirun'

finish
