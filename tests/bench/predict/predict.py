#!/usr/bin/env python3
"""Predicted against measured, for configurations that were not seen before.

The machine's ceilings and kernels are measured (`qdyno detect --probe --kernels`), a few configurations of each model
are run so that the predictor learns what it gets wrong here, and then every other configuration is predicted and
run. What is learned is frozen before that: each of the others is run on a copy of the database as it was then, so none
profits from its neighbours. Peak memory is judged where a run filled its buffers (prompts of a whole batch).

A machine whose memory and cores others use, too, is another machine from one minute to the next. A run therefore looks
at their speed between its repetitions, and the prediction that is judged is the one for that speed: it knows how fast
the machine was, and nothing of the run. What had been predicted without knowing is told beside it, and so is how far
memory and cores were from usual. And all of them are run several times over (--rounds), each round in another order,
and judged by the middle one.

Wanted: decode within 10 % and prefill within 20 % and peak memory within 2 % for 90 % of the unseen configurations. A
machine that others use proves nothing: runs it disturbed do not count, and too few that count are no result.

Exit status: 0 reached, 1 missed, 3 too much was disturbed, 4 bad usage, 70 a program failed.
"""

import argparse
import itertools
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

EXIT_MISSED, EXIT_INVALID, EXIT_USAGE, EXIT_FAILED = 1, 3, 4, 70
WANTED = {"decode_tok_s": 0.10, "prefill_tok_s": 0.20, "peak_rss_bytes": 0.02}
SHARE = 0.90


class Failure(Exception):
    """What was asked, and what the program said."""


def note(text):
    print(f"predict: {text}", file=sys.stderr, flush=True)


def qdyno(options, *arguments, db=None, allowed=(0,)):
    """A command's JSON document."""
    command = [options.qdyno, *arguments, "-o", "json", "--quiet"]
    if db:
        command += ["--db", db]
    done = subprocess.run(command, capture_output=True, text=True, env=options.env, check=False,
                          stdin=subprocess.DEVNULL)
    if done.returncode not in allowed:
        raise Failure(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)


def space(options, model):
    """Every configuration of a model: recipes where the file is of 16 or 32 bits, else the file as it is."""
    info = qdyno(options, "fit", "-m", model, "-c", "512", allowed=(0, 6))
    if not info["rows"]:
        raise Failure(f"{model}: no plan")
    probe = qdyno(options, "advise", "-m", model, "--top", "10000")
    recipes = {line["config"].split(",")[0] for line in probe["rows"]}
    known = [r for r in options.recipes.split(",") if r in recipes]
    lines = []
    for recipe in ["", *known]:
        for threads in options.threads.split(","):
            for kv in options.kv.split(","):
                line = ",".join(part for part in (recipe, f"threads={threads}", f"kv={kv}") if part)
                lines.append(line)
    return lines


def bench(options, model, line, db):
    """How many of its figures were disturbed too often to count. Short decoding is repeated often: the machine is looked
    at between."""
    disturbed = 0
    for repetitions, work in ((options.repetitions, [f"pp{options.prompt}", f"tg{options.gen}@d{options.depth}"]),
                              (2 * options.repetitions, [f"tg{options.gen}"])):
        words = [w for each in work for w in ("-w", each)]
        document = qdyno(options, "bench", "-m", model, "-C", line, *words, "-r", str(repetitions), db=db)
        disturbed += sum(1 for row in document["rows"] if 2 * row.get("disturbed", 0) > row["repetitions"])
    return disturbed


def told(options, db, before):
    """What was predicted and measured since `before` rows: newest first."""
    rows = qdyno(options, "advise", "--accuracy", "--top", "10000", db=db)["rows"]
    return rows[: len(rows) - before]


def learn(options, chosen, db):
    for model, line in chosen:
        disturbed = bench(options, model, line, db)
        note(f"learned {os.path.basename(model)} {line}{' (disturbed)' if disturbed else ''}")
    return len(told(options, db, 0))


def run_frozen(options, model, line, db, seen):
    """One configuration on a copy of what was known: its fresh rows, and how many of its figures were disturbed."""
    copy = os.path.join(options.folder, "frozen.db")
    for tail in ("", "-wal", "-shm"):
        if os.path.exists(copy + tail):
            os.remove(copy + tail)
        if os.path.exists(db + tail):
            shutil.copy(db + tail, copy + tail)
    bad = bench(options, model, line, copy)
    return [row for row in told(options, copy, seen) if row["metric"] in WANTED], bad


def unseen(options, others, db, seen, dice):
    """One row a figure: the round whose quotient of measured and predicted is the middle one."""
    found, disturbed = {}, 0
    for turn in range(options.rounds):
        order = others[:]
        dice.shuffle(order)
        for i, (model, line) in enumerate(order):
            fresh, bad = run_frozen(options, model, line, db, seen)
            disturbed += bad
            for row in fresh:
                if options.rows:
                    print(json.dumps({**row, "round": turn + 1}), file=options.rows, flush=True)
                found.setdefault((model, line, row["workload"], row["metric"]), []).append(row)
            note(f"round {turn + 1}, {i + 1}/{len(order)} {os.path.basename(model)} {line}{' (disturbed)' if bad else ''}")
    rows = []
    for (model, line, workload, metric), told_rows in sorted(found.items()):
        told_rows.sort(key=lambda r: r["measured"] / r["predicted"])
        middle = (len(told_rows) - 1) // 2
        row = dict(told_rows[middle])
        each = [r["measured"] for r in told_rows]
        row["blind_ratio"] = 1 / sorted(r["measured"] / r["foretold"] for r in told_rows)[middle] - 1
        row["apart"] = max(each) / min(each) - 1
        row["pairs"] = [a / b - 1 for a, b in itertools.permutations(each, 2)]
        print(f"{os.path.basename(model)},\"{line}\",{workload},{metric},{row['predicted']:.5g},{row['low']:.5g},{row['high']:.5g},"
              f"{row['measured']:.5g},{row['error_ratio']:.4f},{row.get('memory_ratio') or math.nan:.3f},"
              f"{row.get('core_ratio') or math.nan:.3f},{row['blind_ratio']:.4f},{row['apart']:.4f}", flush=True)
        rows.append(row)
    return rows, disturbed


def verdict(rows, disturbed, large, rounds):
    missed = False
    for metric, allowed in WANTED.items():
        judged = [row for row in rows if row["metric"] == metric
                  and (metric != "peak_rss_bytes" or row["measured"] >= large)]
        errors = [abs(row["error_ratio"]) for row in judged]
        if not errors and metric == "peak_rss_bytes":
            note("memory: no model is large enough to be told from the program itself")
            continue
        if not errors:
            note(f"{metric}: nothing counts")
            return EXIT_INVALID
        share = sum(e <= allowed for e in errors) / len(errors)
        covered = sum(row["in_interval"] for row in judged) / len(errors)
        note(f"{metric}: {len(errors)} unseen, {share:.0%} within {allowed:.0%} (wanted {SHARE:.0%}), {covered:.0%} in their "
             f"interval, median error {statistics.median(errors):.1%}, worst {max(errors):.1%}; rounds of one differ by "
             f"{statistics.median(row['apart'] for row in judged):.1%}, at most {max(row['apart'] for row in judged):.1%}")
        if metric == "decode_tok_s":
            blind = [abs(row["blind_ratio"]) for row in judged]
            memory = [row["memory_ratio"] for row in judged if row.get("memory_ratio")]
            cores = [row["core_ratio"] for row in judged if row.get("core_ratio")]
            note(f"{metric}: without a look at the machine {sum(e <= allowed for e in blind) / len(blind):.0%} of the middle figures; "
                 f"memory was at {min(memory, default=1):.0%} to {max(memory, default=1):.0%}, cores at {min(cores, default=1):.0%} "
                 f"to {max(cores, default=1):.0%} of what they were when kernels were timed")
        pairs = [abs(p) for row in judged for p in row["pairs"]]
        if pairs:
            note(f"{metric}: one round lies within {allowed:.0%} of another of the same in {sum(p <= allowed for p in pairs) / len(pairs):.0%}")
        missed |= share < SHARE
    if disturbed > rounds * len(rows):
        note(f"{disturbed} figures were disturbed, {len(rows)} are left of {rounds} rounds: the machine is not quiet")
        return EXIT_INVALID
    return EXIT_MISSED if missed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("qdyno", help="the program")
    parser.add_argument("models", nargs="+", help="GGUF files; of 16 or 32 bits: recipes are made of them")
    parser.add_argument("--recipes", default="q8_0,q6_K,q5_K,q4_K,q4_0,iq4_xs")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--kv", default="f16,q8_0")
    parser.add_argument("--learn", type=float, default=0.25, help="share of the space that is learned from")
    parser.add_argument("--most", type=int, default=0, help="unseen configurations at most, chosen by seed; 0: all")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--depth", type=int, default=256)
    parser.add_argument("--gen", type=int, default=24)
    parser.add_argument("--large", type=int, default=256 << 20, help="peaks below so many bytes are not judged")
    parser.add_argument("--rows", type=argparse.FileType("w", encoding="utf-8"), help="write every figure of every round there, as JSON lines")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if not 0 < options.learn < 1:
        parser.error("--learn: want a share between 0 and 1")
    with tempfile.TemporaryDirectory(prefix="qdyno-predict-") as folder:
        options.folder = folder
        options.env = {**os.environ, **{f"XDG_{k}_HOME": os.path.join(folder, k) for k in ("DATA", "CONFIG", "CACHE")}}
        for k in ("DATA", "CONFIG", "CACHE"):
            os.mkdir(os.path.join(folder, k))
        db = os.path.join(folder, "learned.db")
        try:
            note("measuring the machine and its kernels")
            qdyno(options, "detect", "--probe", "--kernels")
            dice = random.Random(options.seed)
            chosen, others = [], []
            for model in options.models:
                lines = space(options, model)
                dice.shuffle(lines)
                cut = max(2, round(options.learn * len(lines)))
                chosen += [(model, line) for line in lines[:cut]]
                others += [(model, line) for line in lines[cut:]]
            if options.most:
                dice.shuffle(others)
                others = others[: options.most]
            seen = learn(options, chosen, db)
            print("model,config,workload,metric,predicted,low,high,measured,error_ratio,memory_ratio,core_ratio,blind_ratio,"
                  "rounds_differ", flush=True)
            rows, disturbed = unseen(options, others, db, seen, dice)
            return verdict(rows, disturbed, options.large, options.rounds)
        except Failure as failure:
            note(str(failure))
            return EXIT_FAILED


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(EXIT_FAILED)
