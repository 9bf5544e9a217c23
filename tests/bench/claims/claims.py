#!/usr/bin/env python3
"""What documents about training claim, as experiments on this machine.

Each claim is one `qdyno ab` over settings of training (-w trainN: a fresh network every cell, same rows). The page
docs/claims.md is written from the programs' output: what was claimed, the command, the figures with their intervals,
and whether they agree. On a busy machine blocks are discarded and a run may end invalid: then no page is written.

Exit status: 0 the page was written, 1 a program failed, 3 a run is invalid (a busy machine: try again), 4 bad usage.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time

EXIT_FAILED, EXIT_INVALID = 1, 3
LOSS_STEPS = 60  # of training, after which losses are compared; one step says nothing about what is learned

# title, what is claimed, arms (the first is what others are compared with), workload,
# (what, by which figure, from, to): share of change that is claimed; None: no bound.
CLAIMS = [
    ("Mixed precision",
     "Training in bf16 or fp16 instead of f32 is faster, takes less memory, and the loss is the same.",
     ["amp=off", "amp=bf16", "amp=fp16"], "train1",
     [("faster: less time", "time", None, 0), ("less memory", "peak", None, 0), ("the same loss on held-out stories (1 %)", "loss", -0.01, 0.01)]),
    ("Gradient checkpoints",
     "Keeping only some activations and computing the others again takes 50 to 70 % off memory and costs 20 to 30 % of time.",
     ["train_batch=16,accumulate=1", "train_batch=16,accumulate=1,checkpoint_every=1",
      "train_batch=16,accumulate=1,checkpoint_every=2", "train_batch=16,accumulate=1,checkpoint_every=3"], "train1",
     [("activations: 50 to 70 % less", "activations", -0.70, -0.50), ("all memory: 50 to 70 % less", "peak", -0.70, -0.50),
      ("20 to 30 % more time", "time", 0.20, 0.30)]),
    ("Giving memory back",
     "Emptying caches between steps takes about 10 % off memory.",
     ["default", "trim_every=1"], "train2",
     [("peak: about 10 % less", "peak", -0.15, -0.05), ("between steps: about 10 % less", "after", -0.15, -0.05),
      ("at no cost of time (2 %)", "time", -0.02, 0.02)]),
]


def command(claim, budget, seed):
    _, _, arms, workload, _ = claim
    return ["ab", *arms, "-w", workload, "--margin", "2%", "--min-blocks", "8", "--max-blocks", "24", "--budget", "%ds" % budget,
            "--seed", str(seed)]


def run(qdyno, arguments, folder):
    env = dict(os.environ, XDG_DATA_HOME=folder)
    done = subprocess.run([qdyno, *arguments, "-o", "json", "--quiet"], env=env, capture_output=True, text=True)
    if not done.stdout.strip():
        print("claims: qdyno %s: status %d: %s" % (" ".join(arguments), done.returncode, done.stderr.strip()), file=sys.stderr)
        sys.exit(EXIT_FAILED)
    return json.loads(done.stdout)


def held_out_losses(qdyno, claim, seed, folder):
    """Nats a held-out token of each arm after LOSS_STEPS; nothing where no loss is claimed."""
    _, _, arms, _, checks = claim
    if not any(figure == "loss" for _, figure, _, _ in checks):
        return None
    losses = []
    for i, arm in enumerate(arms):
        words = [word for pair in arm.split(",") for word in ("--" + pair.split("=")[0], pair.split("=")[1])]
        command = ["train", os.path.join(folder, "arm%d.gguf" % i), "-b", "4", "--steps", str(LOSS_STEPS), "--seed", str(seed)]
        losses.append(run(qdyno, command + words, folder)["held_out_nats"])
    return losses


def change_of(result, index, figure):
    """(share of change against A, lower, upper) of arm `index`; no bounds: None where the figure is no measurement (it is the
    same at every run), infinite where too few blocks give one."""
    a, b = result["arms"][0], result["arms"][index]
    if figure == "activations":
        return b["plan"]["compute"] / a["plan"]["compute"] - 1, None, None
    if figure == "loss":
        return result["losses"][index] / result["losses"][0] - 1, None, None
    metric = {"time": "train_tok_s", "peak": "peak_rss_bytes", "after": "rss_after_bytes"}[figure]
    e = result["comparisons"][index - 1]["by_metric"][metric]
    lower, upper = (0, math.inf) if e["lower"] is None else (e["lower"], e["upper"])
    if figure == "time":  # of the same work
        return 1 / e["ratio"] - 1, 1 / upper - 1, 1 / lower - 1 if lower else math.inf
    return e["ratio"] - 1, lower - 1, upper - 1


def percent(x):
    return "%+.1f %%" % (100 * x)


def interval(change):
    estimate, lower, upper = change
    if lower is None:
        return percent(estimate)
    return "%s [%s]" % (percent(estimate), "unknown" if upper == math.inf else "%s, %s" % (percent(lower), percent(upper)))


def agrees(change, low, high):
    """What the figure says about a claimed range."""
    estimate, lower, upper = change
    lower, upper = (estimate, estimate) if lower is None else (lower, upper)
    low, high = -9 if low is None else low, 9 if high is None else high
    if low <= lower and upper <= high:
        return "**reproduced**"
    if upper < low or lower > high:
        return "**refuted**"
    return "not decided"


def arm_table(result):
    yield "| arm | tokens/s | time | peak memory | | between steps | activations | verdict on time |"
    yield "|---|---:|---:|---:|---:|---:|---:|---|"
    for i, arm in enumerate(result["arms"]):
        first = i == 0
        verdict = "" if first else result["comparisons"][i - 1]["verdict"]
        yield "| `%s` | %.0f | %s | %.0f MB | %s | %.0f MB | %.0f MB | %s |" % (
            arm["config"], arm["train_tok_s"], "" if first else interval(change_of(result, i, "time")),
            arm["peak_rss_bytes"] / 1e6, "" if first else interval(change_of(result, i, "peak")), arm["rss_after_bytes"] / 1e6,
            arm["plan"]["compute"] / 1e6, verdict)


def claim_table(result, checks):
    yield "| claimed | arm | measured | |"
    yield "|---|---|---:|---|"
    for what, figure, low, high in checks:
        for i in range(1, len(result["arms"])):
            change = change_of(result, i, figure)
            yield "| %s | `%s` | %s | %s |" % (what, result["arms"][i]["config"], interval(change), agrees(change, low, high))


def page(claims, results, machine, seconds):
    yield """# Claims about training, measured

Made by one command; the numbers are its output and nothing was edited:

    ./dev bench claims

What documents say about training is here an experiment like any other (docs/ab.md): two or more settings of the trainer take turns
on the same rows, from the same start, in a process each; intervals are 95 %% and hold at every look. `-w trainN` is N steps of
the bundled model's training (%s), of 4096 tokens each. *Peak* is the resident memory of the
whole process in the cell, *between steps* what is left when the last step is over, *activations* the block of memory they are
carved from; time is that of the same work, 1 / (tokens/s). Losses are those of held-out stories after `qdyno train -b 4 --steps %d`. A claim is reproduced when the whole interval lies in the claimed
range, refuted when none of it does. It took %.0f seconds on

    %s
""" % (results[0]["arms"][0]["model"], LOSS_STEPS, seconds, machine)
    for claim, (arguments, result) in zip(claims, [(c["command"], c) for c in results]):
        yield "## %s\n\n> %s\n" % (claim[0], claim[1])
        yield "    qdyno %s\n" % " ".join(arguments)
        yield from arm_table(result)
        yield "\nA/A control: ±%.2f %%; %d blocks kept, %d discarded.\n" % (
            100 * (result["noise_floor_ratio"] or 0), result["blocks"], result["discarded"])
        yield from claim_table(result, claim[4])
        yield ""
    yield """## What stands behind the figures

* Products are rounded to bf16 or f16, sums and weights stay f32 (mixed precision): the f32 copies, gradients and the optimizer's
  means are the same in every arm, so memory hardly falls on a model this small, and the copies for the products come on top of it.
* With `checkpoint_every=k` only what enters every k-th layer is kept. Logits, the copies that gradients are computed from and one segment's
  activations remain: that is why the activations do not fall to one layer's share, and the process, with weights and optimizer, less.
* Steps compute in one block of memory that is there from the beginning, so there is no fragmentation for trimming to cure: giving it
  back changes what is resident between two steps and nothing about the peak. Allocators that cache freed blocks (where the claim comes
  from) have something to empty; this trainer does not, which is the reason to measure before believing.
* Same seed, same rows: equal losses of arms that only keep less are equal to the last bit."""


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--qdyno", required=True)
    p.add_argument("--out", required=True, help="the page to write")
    p.add_argument("--budget", type=int, default=150, help="seconds that the blocks of a claim may take")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", help="claims whose title contains this; prints instead of writing")
    a = p.parse_args()
    claims = [c for c in CLAIMS if not a.only or a.only.lower() in c[0].lower()]
    if not claims:
        p.error("no claim of that name")
    begun, results = time.time(), []
    with tempfile.TemporaryDirectory() as folder:
        detect = run(a.qdyno, ["detect"], folder)
        row = detect["rows"][0] if "rows" in detect else detect
        machine = "%s, %s cores" % (row.get("cpu") or row.get("processor") or "unknown processor", row.get("cores", "?"))
        for c in claims:
            print("claims: %s" % c[0], file=sys.stderr)
            arguments = command(c, a.budget, a.seed)
            result = run(a.qdyno, arguments, folder)
            if result["verdict"] == "invalid" or not result["blocks"]:
                print("claims: %s: %s: %s" % (c[0], result["verdict"], result["reason"]), file=sys.stderr)
                return EXIT_INVALID
            result["command"] = arguments
            result["losses"] = held_out_losses(a.qdyno, c, a.seed, folder)
            results.append(result)
    text = "\n".join(page(claims, results, machine, time.time() - begun)) + "\n"
    if a.only:
        print(text)
        return 0
    with open(a.out + ".new", "w", encoding="utf-8") as f:
        f.write(text)
    os.replace(a.out + ".new", a.out)
    print("claims: wrote %s" % a.out, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
