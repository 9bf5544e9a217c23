#!/usr/bin/env python3
"""Tests common claims about training as experiments on this machine.

Each claim is one `qdyno ab` over settings of training (-w trainN: every cell trains a new network on the same rows). From the
programs' output the script writes docs/claims.md: the claim, the command, the measurements with their intervals, and whether they
agree. On a busy machine blocks are discarded and a run can become invalid; then no page is written.

Exit status: 0 the page was written, 1 a program failed, 3 a run is invalid (try again on an idle machine), 4 bad usage.
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
LOSS_STEPS = 60  # losses are compared after this many steps, because the loss after one step says little

# title, claim, arms (the first is the baseline), workload,
# checks (text, figure, from, to): claimed relative change of the figure; None: no bound.
CLAIMS = [
    ("Mixed precision",
     "Training in bf16 or fp16 instead of f32 is faster, takes less memory, and the loss is the same.",
     ["amp=off", "amp=bf16", "amp=fp16"], "train1",
     [("faster: less time", "time", None, 0), ("less memory", "peak", None, 0), ("the same loss on held-out stories (within 1 %)", "loss", -0.01, 0.01)]),
    ("Gradient checkpoints",
     "Keeping only some activations and computing the others again takes 50 to 70 % off memory and costs 20 to 30 % of time.",
     ["train_batch=16,accumulate=1", "train_batch=16,accumulate=1,checkpoint_every=1",
      "train_batch=16,accumulate=1,checkpoint_every=2", "train_batch=16,accumulate=1,checkpoint_every=3"], "train1",
     [("activations: 50 to 70 % less", "activations", -0.70, -0.50), ("all memory: 50 to 70 % less", "peak", -0.70, -0.50),
      ("20 to 30 % more time", "time", 0.20, 0.30)]),
    ("Releasing memory",
     "Emptying caches between steps takes about 10 % off memory.",
     ["default", "trim_every=1"], "train2",
     [("peak: about 10 % less", "peak", -0.15, -0.05), ("memory between steps: about 10 % less", "after", -0.15, -0.05),
      ("at no cost of time (within 2 %)", "time", -0.02, 0.02)]),
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
    """Loss of each arm on held-out text after LOSS_STEPS, in nats a token; None if the claim is not about the loss."""
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
    """(relative change, lower, upper) of arm `index` against the first arm. Bounds are None if the figure is the same in every run,
    and infinite if too few blocks were measured for an interval."""
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
    """Whether a measured change agrees with a claimed range."""
    estimate, lower, upper = change
    lower, upper = (estimate, estimate) if lower is None else (lower, upper)
    low, high = -9 if low is None else low, 9 if high is None else high
    if low <= lower and upper <= high:
        return "**reproduced**"
    if upper < low or lower > high:
        return "**refuted**"
    return "inconclusive"


def arm_table(result):
    yield "| arm | tokens/s | change of time | peak memory | change of peak memory | memory between steps | activations | verdict on time |"
    yield "|---|---:|---:|---:|---:|---:|---:|---|"
    for i, arm in enumerate(result["arms"]):
        first = i == 0
        verdict = "" if first else result["comparisons"][i - 1]["verdict"]
        yield "| `%s` | %.0f | %s | %.0f MB | %s | %.0f MB | %.0f MB | %s |" % (
            arm["config"], arm["train_tok_s"], "" if first else interval(change_of(result, i, "time")),
            arm["peak_rss_bytes"] / 1e6, "" if first else interval(change_of(result, i, "peak")), arm["rss_after_bytes"] / 1e6,
            arm["plan"]["compute"] / 1e6, verdict)


def claim_table(result, checks):
    yield "| claimed | arm | measured | result |"
    yield "|---|---|---:|---|"
    for what, figure, low, high in checks:
        for i in range(1, len(result["arms"])):
            change = change_of(result, i, figure)
            yield "| %s | `%s` | %s | %s |" % (what, result["arms"][i]["config"], interval(change), agrees(change, low, high))


def page(claims, results, machine, seconds):
    yield """# Claims about training, measured

After this page you know how three common claims about training compare with measurements on the machine below, and how to check
them on yours. The quotations are our wording of the claims and not a citation of one source.

## Check the claims on your machine

    ./dev bench claims

This writes the page anew; nothing is edited by hand. It takes about ten minutes on an idle machine. The results below took %.0f seconds on

    %s

Each claim is an experiment as described in [ab.md](ab.md): settings of the trainer take turns on the same rows, each starting from the
same network in its own process. Intervals are 95 %%, and remain valid although the experiment may stop early. The words in the
tables are explained [below](#reference).
""" % (seconds, machine)
    for claim, (arguments, result) in zip(claims, [(c["command"], c) for c in results]):
        yield "## %s\n\n> %s\n" % (claim[0], claim[1])
        yield "    qdyno %s\n" % " ".join(arguments)
        yield from arm_table(result)
        yield "\nA/A control: two identical arms differed by up to %.2f %%; %d blocks kept, %d discarded.\n" % (
            100 * (result["noise_floor_ratio"] or 0), result["blocks"], result["discarded"])
        yield from claim_table(result, claim[4])
        yield ""
    yield """## Reference

| term | meaning |
|---|---|
| `-w trainN` | the first N steps of the bundled model's training (%s), 4096 tokens each |
| `amp`, `checkpoint_every`, `trim_every` | settings of the trainer ([config.md](config.md)); `checkpoint_every=2`: keep only the input of every second layer and compute the rest again |
| change of time | for the same work, from 1 / (tokens/s), against the first arm |
| peak memory | largest resident memory of the whole process |
| memory between steps | resident memory after the last step |
| activations | size of the memory block that activations are placed in |
| loss | on held-out stories, after `qdyno train -b 4 --steps %d` |
| reproduced | the whole interval (or the value, if it has none) lies in the claimed range |
| refuted | no part of the interval lies in the claimed range |
| inconclusive (a claim) | a part of the interval lies in the claimed range and a part does not, so more blocks would be needed |
| inconclusive (verdict on time) | the blocks prove neither a difference from the first arm nor equality within the margin ([ab.md](ab.md#verdicts)) |
| A/A control | half the width of the interval when the first arm is compared with itself: smaller differences are noise |
""" % (results[0]["arms"][0]["model"], LOSS_STEPS)
    yield """## Why the results are so

* **Mixed precision** rounds the operands of products to bf16 or f16; sums and weights stay f32. The f32 weights, gradients and optimizer
  means are the same in every arm, and the rounded copies need extra memory. So on a model this small memory hardly falls.
* **Gradient checkpoints**: `checkpoint_every=k` keeps only the input of every k-th layer. Logits, operands for weight gradients and the
  activations of one segment remain, so activations do not fall to one layer's share. Memory of the process falls less, because it also
  contains weights and optimizer state.
* **Releasing memory**: the trainer allocates one block at the start, so there is no fragmentation to remove. Releasing memory changes
  what is resident between two steps, but not the peak. The claim comes from programs whose allocators cache freed blocks.
* Arms that only keep less in memory have the same losses as the baseline to the last bit, because seed and rows are the same."""


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
