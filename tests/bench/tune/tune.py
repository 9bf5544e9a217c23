#!/usr/bin/env python3
"""Does `qdyno tune` find what measuring everything finds?

Every configuration of a space is timed, several passes over all of them so that a drift of the machine meets each
alike, and what changes answers is compared with the model as it is. Then tune gets a share of that time, a database, a
cache and a configuration folder of its own, and its pick is looked up among what was measured.

The best of many noisy figures is flattered by its noise, so figures only choose the pick's rivals: the --rivals that
scored best. How far the pick is from each of them says a paired A/B of all of them (`qdyno ab`), run afterwards,
and what is known exactly: bytes and KL divergence. The gap is that to the rival that came out best, with its interval; as
the greatest of several noisy gaps it is flattered in its turn, upwards. A pick is within when the gap is at most --within,
and has missed when a rival is better by more even at the near end of its interval. Between the two nothing is proven.

The machine's kernels are timed once before everything (`qdyno detect --probe --kernels`, about a minute), as docs/advisor.md asks of
whoever wants more than a guess; that is told apart, and part of neither time. Only tune profits. --no-kernels leaves it out.

Exit status 1 when a pick was not shown to be within, or took more than --share of the time.
"""
import argparse
import glob
import itertools
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

SPACE = "recipe=file|q8_0|q6_K|q5_K|q4_K|q4_0|iq4_nl|q3_K,kv=f16|q8_0|q4_0,threads=1|0,precision=auto|medium"
DEFAULTS = {"recipe": "file", "kv": "f16", "precision": "auto", "act": "auto", "threads": "0", "batch": "512",
            "hugepages": "buffers", "affinity": "none", "repack": "off"}
ORDER = ["recipe", "threads", "affinity", "precision", "act", "batch", "kv", "hugepages", "repack"]  # of a config line
ANSWERS = {"recipe", "kv", "precision", "act"}
# as TUNE_WEIGHTS of advisor/tune/choose.c: of ln speed, ln memory, KL divergence
WEIGHTS = {"speed": (1, 0.02, 0), "memory": (0.05, 1, 0), "balanced": (1, 0.3, 15)}


def lines(space):
    """Every combination: (config line, the answer-changing part of it)."""
    dims = [(d.split("=")[0], d.split("=")[1].split("|")) for d in space.split(",")]
    for values in itertools.product(*(v for _, v in dims)):
        given = [(k, v) for (k, _), v in zip(dims, values) if DEFAULTS.get(k) != v]
        given.sort(key=lambda item: ORDER.index(item[0]))
        word = lambda items: ",".join(v if k == "recipe" else f"{k}={v}" for k, v in items) or "default"
        yield word(given), word([(k, v) for k, v in given if k in ANSWERS])


class Program:
    def __init__(self, qdyno, model, folder, machine=None):
        """machine: another one's folder, whose ceilings hold for this one, too."""
        self.qdyno, self.model = qdyno, ["-m", model] if model else []
        self.env = dict(os.environ)
        for place in ("DATA", "CONFIG", "CACHE"):
            self.env[f"XDG_{place}_HOME"] = os.path.join(folder, place.lower())
        for known in glob.glob(os.path.join(machine, "cache", "qdyno", "ceilings*")) if machine else []:
            os.makedirs(os.path.join(folder, "cache", "qdyno"), exist_ok=True)
            shutil.copy(known, os.path.join(folder, "cache", "qdyno"))

    def __call__(self, *words):
        command = [self.qdyno, *words, *self.model, "-o", "json"]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True)
        if done.returncode not in (0, 1, 2, 3):
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        return json.loads(done.stdout)


def measure_all(run, args, configs):
    """rates[line][pass], bytes[line], kld[answers]; everything timed as a person would have to do it."""
    rates, plan, kld = {line: [] for line, _ in configs}, {}, {"default": 0.0}
    metric = "decode_tok_s" if "tg" in args.workload else "prefill_tok_s"
    for turn in range(args.passes):
        order = configs if turn % 2 == 0 else configs[::-1]
        for begin in range(0, len(order), 24):
            words = [w for line, _ in order[begin:begin + 24] for w in ("-C", line)]
            for row in run("bench", "-w", args.workload, "-r", str(args.repetitions), *words)["rows"]:
                if row.get(metric):
                    rates[row["config"]].append(row[metric])
                    plan[row["config"]] = row["plan_bytes"]
        print(f"pass {turn + 1} of {args.passes}", file=sys.stderr)
    answers = sorted({a for _, a in configs} - {"default"})
    text = ["-f", args.text] if args.text else []
    for begin in range(0, len(answers), 12):
        words = [w for a in answers[begin:begin + 12] for w in ("-C", a)]
        for row in run("eval", *text, "-c", "256", "--chunks", str(args.windows), "--ref", "default", *words)["rows"]:
            kld[row["config"]] = row["kld_mean"]
    return rates, plan, kld


def score(goal, rate, size, loss):
    speed, memory, quality = WEIGHTS[goal]
    return speed * math.log(rate) - memory * math.log(size) - quality * loss


def paired(run, args, pick, rivals):
    """{line: (ln of its rate over the pick's, its lower and upper bound)}, by one A/B of all of them; another one where a
    machine was too busy for any interval, three at most."""
    for _ in range(3):
        told = run("ab", pick, *rivals, "-w", args.workload, "--margin", "2%", "--budget", f"{args.judging:.0f}s")
        print(f"  judged in {told['blocks']} blocks: {told['verdict']} {told.get('reason') or ''}", file=sys.stderr)
        effects = {c["config"]: [c["effect"][k] for k in ("ratio", "lower", "upper")] for c in told["comparisons"]}
        ratios = {line: tuple(math.log(x) for x in e) for line, e in effects.items() if all(e)}
        if ratios:
            return ratios
    return {}


def judge(run, goal, pick, configs, measured, args):
    """A row of the result; gap: [best guess, lower, upper bound] of what the best rival scores beyond the pick."""
    rates, plan, kld = measured
    answer = dict(configs)
    known = [line for line, a in configs if rates[line] and kld.get(a, math.inf) <= args.kld and line in plan]
    value = lambda line, rate: score(goal, rate, plan[line], kld[answer[line]])
    best = sorted(known, key=lambda line: value(line, statistics.median(rates[line])), reverse=True)
    row = {"goal": goal, "pick": pick, "best": best[0], "configurations": len(configs), "allowed": len(known)}
    if pick not in known:
        return {**row, "gap": [math.inf] * 3}
    if goal == "memory":
        row["gap"] = [plan[pick] / min(plan[line] for line in known) - 1] * 3
    else:
        ratios = paired(run, args, pick, [line for line in best if line != pick][: args.rivals])
        gaps = {line: [value(line, math.exp(r)) - value(pick, 1) for r in e] for line, e in ratios.items()}
        if not gaps:
            return {**row, "gap": [math.nan] * 3} # too busy, or too few blocks
        row["best"] = max(gaps, key=gaps.get) if max(gaps.values())[0] > 0 else pick
        row.update(gap=[max(0.0, *(g[k] for g in gaps.values())) for k in range(3)], rivals=gaps)
    row.update(pick_bytes=plan[pick], pick_kld=kld[answer[pick]], pick_rate=statistics.median(rates[pick]),
               best_rate=statistics.median(rates[row["best"]]))
    return row


def word_of(gap, within):
    """"": the pick is within. Else that it missed, or that nobody knows."""
    guess, lower, _ = gap
    if math.isnan(guess):
        return " (not judged: no interval)"
    return "" if guess <= within else " MISSED" if lower > within else " (beyond, not proven)"


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--qdyno", required=True)
    p.add_argument("--model", required=True, action="append")
    p.add_argument("--space", default=SPACE)
    p.add_argument("--workload", default="tg64")
    p.add_argument("--goal", action="append", choices=list(WEIGHTS))
    p.add_argument("--kld", type=float, default=0.05, help="limit of KL divergence")
    p.add_argument("--text")
    p.add_argument("--passes", type=int, default=4)
    p.add_argument("--repetitions", type=int, default=5)
    p.add_argument("--windows", type=int, default=24)
    p.add_argument("--share", type=float, default=0.15, help="of the time that measuring everything took")
    p.add_argument("--within", type=float, default=0.03)
    p.add_argument("--rivals", type=int, default=4, help="that a pick is compared with, the best of what was measured")
    p.add_argument("--judging", type=float, default=120, help="seconds that comparison may take")
    p.add_argument("--no-kernels", action="store_true", help="predict by shares of ceilings")
    p.add_argument("--out", help="write all figures as JSON")
    args = p.parse_args()
    configs, document, failed = list(lines(args.space)), [], 0
    if len(configs) < 60:
        print(f"only {len(configs)} configurations", file=sys.stderr)
    kept = tempfile.TemporaryDirectory(prefix="qdyno-tune-machine-") # gone when we are
    machine = kept.name
    if not args.no_kernels:
        begun = time.monotonic()
        Program(args.qdyno, None, machine)("detect", "--probe", "--kernels")
        print(f"ceilings and kernels in {time.monotonic() - begun:.0f} s", file=sys.stderr)
    for model in args.model:
        folder = tempfile.mkdtemp(prefix="qdyno-tune-")
        try:
            run = Program(args.qdyno, model, os.path.join(folder, "all")) # looks at the machine would only take time
            run("eval", *(["-f", args.text] if args.text else []), "-c", "256", "--chunks", "2") # before hours of timing
            begun = time.monotonic()
            measured = measure_all(run, args, configs)
            took = time.monotonic() - begun
            print(f"\n{os.path.basename(model)}: {len(configs)} configurations in {took:.0f} s")
            print("| goal | pick | best | gap, from, to % | s | share % | raced | judged | pick tok/s | best tok/s |")
            print("|---|---|---|--:|--:|--:|--:|--:|--:|--:|")
            for goal in args.goal or list(WEIGHTS):
                own = Program(args.qdyno, model, os.path.join(folder, goal), machine)
                budget = 0.9 * args.share * took # its last block may end later
                begun = time.monotonic()
                text = ["-f", args.text] if args.text else []
                told = own("tune", "--goal", goal, "--budget", f"{budget:.3f}", "--space", args.space, "--limit",
                           f"kld={args.kld}", "--max-ppl", "1000%", "-w", args.workload, *text)
                spent = told["seconds"]
                row = judge(run, goal, told["candidate"] or told["current"], configs, measured, args)
                row.update(model=model, exhaustive_s=took, seconds=spent, wall_s=time.monotonic() - begun, told=told)
                word = word_of(row["gap"], args.within) + (" TOO LATE" if spent > args.share * took else "")
                failed += word != ""
                document.append(row)
                print(f"| {goal} | {row['pick']} | {row['best']} | {' '.join(f'{100 * g:.1f}' for g in row['gap'])}{word} "
                      f"| {spent:.0f} | {100 * spent / took:.1f} | {told['raced']} | {told['judged']} "
                      f"| {row.get('pick_rate', math.nan):.1f} | {row.get('best_rate', math.nan):.1f} |")
                pairs = [(t["predicted_tok_s"], t["tok_s"]) for t in told["tried"] if t["tok_s"]]
                near = sum(abs(a / b - 1) <= 0.1 for a, b in pairs)
                print(f"  predicted within 10 % of measured: {near} of {len(pairs)}", file=sys.stderr)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            json.dump(document, f, indent=1, default=str)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
