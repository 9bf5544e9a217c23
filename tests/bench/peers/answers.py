"""Are a peer's answers right? Its perplexity beside ours, on the same file and text.

A kernel that computes something else is often fast. So the speed of a peer is only compared where the llama-perplexity beside its
bench program agrees with `qdyno eval`, with many rows a pass (the kernels of prompts) and with one (those of decoding). Models with
random weights hardly tell right from wrong; for them, the model that comes with qdyno is quantized to the same format.
"""

import json
import math
import os
import re

CTX = 128
TOLERANCE = 0.01  # of the logarithm of a perplexity; activations rounded in other ways differ by less
ROWS = (CTX, 1)
STORIES = "30"
FINAL = re.compile(r"Final estimate: PPL.*= (\S+) \+/-")
TRIES = 5  # mainline of 2026 sometimes ends before its log thread has written the last line


def write_text(run, qdyno, folder):
    """Stories on which the model that comes with qdyno was not trained."""
    path = os.path.join(folder, "stories.txt")
    with open(path, "w", encoding="utf-8") as out:
        out.write(run([qdyno, "stories", "-n", STORIES]))
    return path


def our_perplexity(run, options, folder, model, text):
    out = run([options.qdyno, "--db", os.path.join(folder, "answers.db"), "-o", "json", "eval", "-f", text, "-c", str(CTX),
               "-C", f"model={model},threads={options.threads}"])
    row = json.loads(out)["rows"][0]
    return float(row["perplexity"]) if not row["error"] and row["perplexity"] is not None else math.nan


def peer_perplexity(run, options, program, model, text, rows):
    for _ in range(TRIES):
        said = run([program, "-m", model, "-f", text, "-c", str(CTX), "-b", str(CTX), "-ub", str(rows), "-t",
                    str(options.threads)], both=True)
        found = FINAL.search(said)
        if found:
            try:
                return float(found.group(1))
            except ValueError:
                return math.nan
    return math.nan


def judge(ours, theirs):
    """(answer, reason): "right", "wrong" or "unknown"."""
    if not (math.isfinite(ours) and ours > 0):
        return "unknown", "qdyno eval gave no perplexity"
    wrong = [f"perplexity {value:.4f} with {rows} rows, ours {ours:.4f}" for rows, value in theirs.items()
             if not (math.isfinite(value) and value > 0 and abs(math.log(value / ours)) <= TOLERANCE)]
    if wrong:
        return "wrong", "; ".join(wrong)
    shown = ", ".join(f"{value:.4f} with {rows}" for rows, value in theirs.items())
    return "right", f"perplexity {shown} rows, ours {ours:.4f}"


def check(run, failure, options, program, model, text, folder):
    """(answer, reason) of the llama-perplexity beside `program` on a model file."""
    perplexity = os.path.join(os.path.dirname(os.path.realpath(program)), "llama-perplexity")
    if not os.access(perplexity, os.X_OK):
        return "unknown", "no llama-perplexity beside it"
    try:
        ours = our_perplexity(run, options, folder, model, text)
        return judge(ours, {rows: peer_perplexity(run, options, perplexity, model, text, rows) for rows in ROWS})
    except failure as reason:
        return "unknown", str(reason)
