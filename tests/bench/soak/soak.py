#!/usr/bin/env python3
"""Does a server lose requests, blocks of its KV cache, or memory? Sends random requests with random disconnects to `qdyno serve`.

A tiny model with random weights is made in a temporary folder, unless --model names another. 24 clients at a time send --requests requests:
streamed or not, one or two answers, greedy or sampled, some too long; half of them leave at a random moment, some with a reset of the connection.
Settings of the server change now and then. After each tenth of the requests the server is idle and must have no block in use. At the end:

  * every request that its client waited for has its whole answer, and the server counted every request exactly once;
  * resident memory after the last tenth is at most 5 % and 2 MB above that after the second.

Exit status 1: something was lost. The random requests are those of tests/e2e/server_clients.py, whose test sends 1,000 of them.
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "e2e"))
import server_clients  # noqa: E402

server_clients.PATIENCE_S = 900  # schedules that prefer some requests let others wait for long

TENTHS = 10
SETTINGS = {"schedule": ("fcfs", "prefill_first", "priority", "shortest"), "evict": ("lru", "fifo", "lifo", "leaf_lru", "priority"),
            "preempt": ("recompute", "swap"), "prefix_cache": ("on", "off"), "max_sequences": (2, 5, 8), "itl_limit": ("5ms", "50ms", 0)}


def outcomes(m):
    return {k.split('"')[1]: int(v) for k, v in m.items() if k.startswith("qdyno_serve_requests_total")}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--qdyno", required=True)
    p.add_argument("--model", help="a GGUF file instead of a synthetic one")
    p.add_argument("--requests", type=int, default=10000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("server", nargs="*", help="further arguments of qdyno serve, after --")
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = o.model or os.path.join(folder, "tiny.gguf")
        if not o.model:
            subprocess.run([o.qdyno, "synth", "--shape", "tiny", model], check=True, stdout=subprocess.DEVNULL)
        # a small cache, so that requests are preempted and blocks are evicted; one thread, because threads wait for each other on a busy machine
        server = subprocess.Popen([o.qdyno, "serve", "-m", model, "--port", "0", "-o", "jsonl", "-c", "512", "-C", "kv_blocks=48,max_sequences=8,threads=1",
                                   *o.server], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            return soak(o, server)
        finally:
            server.terminate()
            server.wait()


def soak(o, server):
    c = server_clients.Client(json.loads(server.stdout.readline())["url"])
    rng = random.Random(o.seed)
    begun = time.time()
    resident = []
    print("| requests | completed | cancelled | refused | overloaded | failed | preemptions | blocks in use | resident MB |\n|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for tenth in range(TENTHS):
        change = {k: rng.choice(v) for k, v in SETTINGS.items() if rng.random() < 0.5}
        status, answer, _ = c.ask("/settings", change)
        assert status == 200, (change, answer)
        server_clients.random_requests(c, o.requests // TENTHS, o.seed + tenth, quiet=True)
        m = c.settle()  # fails if a request or a block remains
        n = outcomes(m)
        resident.append(m["process_resident_memory_bytes"])
        print("| %d | %d | %d | %d | %d | %d | %d | %d | %.2f |" % (
            sum(n.values()), n["completed"], n["cancelled"], n["refused"], n["overloaded"], n["failed"] + n["stopped"],
            m["qdyno_serve_preemptions_total"], m['qdyno_serve_kv_blocks{use="used"}'], resident[-1] / 1e6), flush=True)
    grown = resident[-1] - resident[1]
    print("%d requests sent in %.0f s; resident memory %+.2f MB since the second tenth" % (o.requests // TENTHS * TENTHS, time.time() - begun, grown / 1e6))
    flat = grown < 0.05 * resident[1] + 2e6
    if not flat:
        print("memory grows", file=sys.stderr)
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
