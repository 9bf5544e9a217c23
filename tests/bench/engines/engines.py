#!/usr/bin/env python3
"""Other engines as arms, against the real llama.cpp: does the workbench say of it what it says of itself?

  1. The client's and the server's figures of an arm engine=llama-server agree with llama-bench's own.
  2. An A/B of qdyno against llama-server ends in a verdict.
  3. A setting of known effect (threads=1 against threads=2) is found.
  4. The audit compares perplexities at three batch sizes.

Each for the bundled model and for a synthetic one of 1.1 billion weights (made once, kept in --folder).
Exit status: 0 all held, 1 something did not, 4 bad usage.
"""

import argparse
import json
import os
import subprocess
import sys

FAILED = []


def say(text):
    print(text, flush=True)


def check(ok, text):
    say(f"  {'ok    ' if ok else 'FAILED'}  {text}")
    if not ok:
        FAILED.append(text)


def qdyno(args, statuses=(0,)):
    done = subprocess.run([OPTIONS.qdyno, *args], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode not in statuses:
        FAILED.append(" ".join(args))
        say(f"  FAILED  qdyno {' '.join(args)}: status {done.returncode}: {done.stderr.strip()[-400:]}")
        return None
    return json.loads(done.stdout)


def arm(engine, more=""):
    return f"engine={engine},bin={os.path.join(OPTIONS.llama, engine)}{more}"


def agree(model, name, judged):
    """llama-server's clocks beside llama-bench's, both run by qdyno in turns. A token of the small model takes a fraction of a
    millisecond, of which the server's sampling and HTTP are a large part that llama-bench does not have: said, not judged."""
    rows = {}
    for _ in range(OPTIONS.rounds):
        doc = qdyno(["bench", "-m", model, "-C", arm("llama-bench"), "-C", arm("llama-server"), "-w", OPTIONS.workload,
                     "-r", "3", "-o", "json"])
        for row in doc["rows"] if doc else []:
            rows.setdefault("server" if "llama-server" in row["config"] else "bench", []).append(row)
    if len(rows) < 2:
        return
    for key in ("prefill_tok_s", "decode_tok_s"):
        best = {clock: max(r[k] or 0 for r in rows[side]) for clock, side, k in
                (("bench", "bench", key), ("client", "server", key), ("server", "server", "server_" + key))}
        for clock in ("client", "server"):
            ratio = best[clock] / best["bench"]
            text = (f"{name} {key}: {clock}'s clock {best[clock]:.2f}, llama-bench {best['bench']:.2f} "
                    f"({100 * (ratio - 1):+.1f} %)")
            if judged:
                check(abs(ratio - 1) <= OPTIONS.share, text)
            else:
                say(f"          {text}")


def compare(model, name):
    doc = qdyno(["ab", "-m", model, "default", arm("llama-server"), "-w", OPTIONS.workload, "--budget", OPTIONS.budget, "-o",
                 "json"], (0, 1, 2))
    if doc:
        check(doc["verdict"] in ("better", "worse", "equivalent", "negligible", "inconclusive"),
              f"{name}: {doc['summary']['text']}")
    doc = qdyno(["ab", "-m", model, arm("llama-server", ",threads=1"), arm("llama-server", ",threads=2"), "-w", OPTIONS.workload,
                 "--metric", "prefill_tok_s", "--budget", OPTIONS.budget, "-o", "json"], (0, 1, 2))
    if doc and os.cpu_count() > 1:
        check(doc["verdict"] == "better", f"{name}: threads=2 against threads=1: {doc['summary']['text']}")


def audit(model, name):
    doc = qdyno(["audit", model, "--engine", arm("llama-perplexity"), "-o", "json"], (0, 1))
    if doc:
        say(f"  {name}: agrees with itself: {doc['agrees_with_itself']}, with qdyno: {doc['agrees_with_qdyno']}, "
            f"largest ratio {doc['largest_ratio']:.5f}")
        for row in doc["rows"]:
            say(f"    {row['engine']:18} batch {row['batch']:4}  {row['perplexity']}  {row['error'] or ''}")


def models():
    folder = OPTIONS.folder
    os.makedirs(folder, exist_ok=True)
    bundled = os.path.join(os.path.dirname(OPTIONS.qdyno), "share/models/bundled.gguf")
    made = {"bundled q8_0": os.path.join(folder, "bundled-q8_0.gguf"), "synthetic 1.1B q4_0": os.path.join(folder, "1b-q4_0.gguf")}
    if not os.path.exists(made["bundled q8_0"]):
        subprocess.run([OPTIONS.qdyno, "quantize", bundled, made["bundled q8_0"], "-R", "q8_0"], check=True)
    if not os.path.exists(made["synthetic 1.1B q4_0"]) and not OPTIONS.small:
        subprocess.run([OPTIONS.qdyno, "synth", "--arch", "llama", "--shape", "1b", "-R", "q4_0", made["synthetic 1.1B q4_0"]], check=True)
    return {k: v for k, v in made.items() if os.path.exists(v)}


def main():
    global OPTIONS
    p = argparse.ArgumentParser(prog="./dev bench engines", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--qdyno", required=True, help=argparse.SUPPRESS)
    p.add_argument("--folder", required=True, help=argparse.SUPPRESS)
    p.add_argument("--llama", required=True, metavar="BIN_DIR", help="folder with llama-server, llama-bench and llama-perplexity")
    p.add_argument("--workload", default="pp128+tg64")
    p.add_argument("--budget", default="240s")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--share", type=float, default=0.05, help="largest difference of rates; default 0.05")
    p.add_argument("--small", action="store_true", help="only the bundled model")
    OPTIONS = p.parse_args()
    for name, model in models().items():
        say(f"{name} ({OPTIONS.workload})")
        agree(model, name, "1.1B" in name)
        compare(model, name)
        audit(model, name)
    sys.exit(1 if FAILED else 0)


main()
