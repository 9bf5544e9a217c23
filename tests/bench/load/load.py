#!/usr/bin/env python3
"""A busy machine on purpose, and what `qdyno ab` says on it.

Two processes alternate between working and sleeping for random times of 50 ms to 2 s (log-uniform), one of
them computing, the other streaming memory. Beside them the real program compares real configs:

  aa        A against A: how often is there a difference? (at most 5 %)
  slow10    A against A with handicap=10 (10 % slower): how often is it found within 60 s? (at least 80 %)
  slow5     handicap=5, within 240 s
  quiet     the same as slow10 without the load: seconds to the verdict

  load.py --program build/qdyno --model MODEL [--runs N] [--only aa,slow10] [--base OTHER_PROGRAM]
  load.py --generate SECONDS        only the load
"""
import argparse
import ctypes
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

PR_SET_PDEATHSIG = 1


def spin(until):
    x = 1
    while time.monotonic() < until:
        for _ in range(2000):
            x = (x * 1103515245 + 12345) & 0x7FFFFFFF


def stream(buffers, until):
    a, b = buffers
    while time.monotonic() < until:
        a[:] = b[:]


def neighbour(streams_memory, seed):
    """Works and sleeps by turns until it is killed."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    draw = random.Random(seed)
    size = 64 << 20
    buffers = (bytearray(size), bytearray(size)) if streams_memory else None
    while True:
        for works in (True, False):
            seconds = 0.05 * (2 / 0.05) ** draw.random()
            until = time.monotonic() + seconds
            if not works:
                time.sleep(seconds)
            elif streams_memory:
                stream(buffers, until)
            else:
                spin(until)


def start_load(seed):
    pids = []
    for k in range(2):
        pid = os.fork()
        if pid == 0:
            try:
                neighbour(k == 1, seed * 2 + k)
            finally:
                os._exit(0)
        pids.append(pid)
    return pids


def stop_load(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def ab(program, model, workload, handicap, budget, seed, folder):
    """One run: (verdict, estimand, effect ratio, lower, upper, seconds, blocks)."""
    b = "handicap=%d" % handicap if handicap else "handicap=0"
    args = [program, "ab", "handicap=0", b, "-m", model, "-w", workload, "--budget", "%ds" % budget,
            "--seed", str(seed), "--db", os.path.join(folder, "load.db"), "-o", "json"]
    begun = time.monotonic()
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    seconds = time.monotonic() - begun
    try:
        d = json.loads(done.stdout)
    except ValueError:
        sys.exit("load: %s: %s" % (" ".join(args), done.stderr.decode()))
    e = d["effect"]
    return {"verdict": d["verdict"], "estimand": d.get("estimand"), "ratio": e["ratio"],
            "lower": e["lower"], "upper": e["upper"], "seconds": seconds, "blocks": d["blocks"],
            "reason": d.get("reason"), "e": d.get("e_value")}


KINDS = {  # handicap in percent, budget in seconds, with load, verdict that is right
    "aa": (0, 30, True, None),
    "slow10": (10, 60, True, "worse"),
    "slow5": (5, 240, True, "worse"),
    "quiet": (10, 60, False, "worse"),
    "quiet_aa": (0, 30, False, None),
}


def interval(k, n):
    """Wilson interval of a proportion, 95 %."""
    if not n:
        return 0, 1
    z, p = 1.96, k / n
    middle, half = p + z * z / 2 / n, z * ((p * (1 - p) + z * z / 4 / n) / n) ** 0.5
    return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def summary(kind, runs):
    right = KINDS[kind][3]
    differs = sum(r["verdict"] in ("better", "worse") for r in runs)
    hits = sum(r["verdict"] == right for r in runs)
    n = len(runs)
    words = sorted({r["verdict"] for r in runs})
    k = hits if right else differs
    low, high = interval(k, n)
    took = sorted(r["seconds"] for r in runs)
    print("%-9s %3d runs  %s %d (%.0f %%, 95 %% interval %.0f to %.0f %%)   median %.1f s   %s" % (
        kind, n, "found" if right else "a difference", k, 100 * k / n, 100 * low, 100 * high,
        took[n // 2], "  ".join("%s %d" % (w, sum(r["verdict"] == w for r in runs)) for w in words)),
        flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--program")
    p.add_argument("--base", help="an older program, run alternately with the first")
    p.add_argument("--model")
    p.add_argument("--workload", default="tg32")
    p.add_argument("--runs", type=int, default=20)
    p.add_argument("--only", default="aa,slow10,slow5,quiet")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--budget", type=int, help="seconds, instead of each kind's own")
    p.add_argument("--generate", type=float, metavar="SECONDS")
    p.add_argument("-v", action="store_true", help="print each run")
    a = p.parse_args()
    if a.generate:
        pids = start_load(a.seed)
        time.sleep(a.generate)
        stop_load(pids)
        return
    if not a.program or not a.model:
        p.error("expected --program and --model")
    programs = [x for x in (a.program, a.base) if x]
    with tempfile.TemporaryDirectory() as folder:
        for kind in a.only.split(","):
            handicap, budget, load, _ = KINDS[kind]
            runs = {x: [] for x in programs}
            for i in range(a.runs):
                for program in programs:
                    pids = start_load(a.seed + i) if load else []
                    try:
                        r = ab(program, a.model, a.workload, handicap, a.budget or budget, a.seed + i, folder)
                    finally:
                        stop_load(pids)
                    runs[program].append(r)
                    if a.v:
                        print(kind, json.dumps(r), flush=True)
            for program in programs:
                if len(programs) > 1:
                    print(program, end="  ")
                summary(kind, runs[program])


if __name__ == "__main__":
    main()
