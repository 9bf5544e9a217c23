#!/usr/bin/env python3
"""Compares the accuracy of `qdyno eval --task` with that of llama-perplexity --multiple-choice on the same questions.

Both programs read the same files, which `qdyno quantize` makes: a model and its block formats. llama-perplexity divides the
log-likelihood of a choice by its tokens, qdyno by nothing (accuracy) or by its bytes (by length). These are different figures unless all
choices of a question have equally many tokens. So only such questions decide (the tokens are counted by `qdyno tokenize`); the figures
of all questions stand beside them. For the default formats qdyno rounds activations as llama.cpp does (one row at a time, 8 bits in
blocks of 32, f16 cache), so only the order of additions differs; K formats have other blocks there. The programs agree on a group of ten
questions if they have equally many right. Choices that are nearly equally likely may go either way, so one group in fifty may differ.

Exit status: 0 they agree, 1 they do not, or a program failed; 4 bad usage, 5 bad input file.
"""

import argparse
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

EXIT_FAILED, EXIT_USAGE, EXIT_INPUT = 1, 4, 5
CTX, GROUP, MAY_DIFFER = 1024, 10, 50


class Failure(Exception):
    """A command that failed, with its error message."""


def run(command):
    """Standard output and standard error together."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, check=False,
                              timeout=3600)
    except (OSError, subprocess.SubprocessError) as reason:
        raise Failure(f"{command[0]}: {reason}") from reason
    if done.returncode:
        said = " / ".join(line.strip() for line in done.stderr.strip().splitlines()[-3:]) or "it said nothing"
        raise Failure(f"{' '.join(command)}: status {done.returncode}: {said}")
    return done.stdout, done.stderr


def text_of(item, choice):
    return item["question"] + " " + item["choices"][choice]


def read_items(path):
    items = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            item = json.loads(line)
            if not isinstance(item.get("answer"), int) or "choices" not in item or item["question"] != item["question"].strip():
                raise Failure(f"{path}:{number}: expected question (without space at its ends), choices and an answer by its index")
            items.append(item)
    return items


def tokens(qdyno, model, text):
    out, _ = run([qdyno, "tokenize", "-m", model, "-p", text])
    return json.loads(out)


def is_comparable(qdyno, model, item):
    """All choices have equally many tokens after those that all of them share."""
    ids = [tokens(qdyno, model, text_of(item, i)) for i in range(len(item["choices"]))]
    return len({len(x) for x in ids}) == 1


def binary(items):
    """The input of --multiple-choice: a count, the position of each task, the tasks. Each has a question and two sets of answers with
    labels; the second set, of several right answers, is not used."""
    def string(text):
        data = text.encode()
        return struct.pack("<I", len(data)) + data

    tasks = []
    for item in items:
        n = len(item["choices"])
        labels = [int(i == item["answer"]) for i in range(n)]
        tasks.append(string(item["question"]) + struct.pack("<I", n) + b"".join(map(string, item["choices"])) +
                     struct.pack(f"<{n}i", *labels) + struct.pack("<I", 0))
    at, positions = 4 + 4 * len(tasks), []
    for task in tasks:
        positions.append(at)
        at += len(task)
    return struct.pack(f"<{1 + len(tasks)}I", len(tasks), *positions) + b"".join(tasks)


def their_right(program, model, items, folder):
    """Which items llama-perplexity has right: it prints the accuracy so far after each."""
    path = os.path.join(folder, "tasks.bin")
    with open(path, "wb") as file:
        file.write(binary(items))
    most = max(len(item["choices"]) for item in items)
    said = "".join(run([program, "-m", model, "-bf", path, "--multiple-choice", "-c", str(CTX), "-b", str(CTX), "-t", "1", "-np",
                        str(2 * most)]))
    shares = [(int(n), float(share)) for n, share in re.findall(r"^\s*(\d+)\t([\d.]+)\s*$", said, re.M)]
    if [n for n, _ in shares] != list(range(1, len(items) + 1)):
        raise Failure(f"{program}: printed {len(shares)} results for {len(items)} questions")
    sums = [0] + [round(n * share / 100) for n, share in shares]
    return [b - a for a, b in zip(sums, sums[1:])]


def our_right(qdyno, model, items, folder):
    """How many items qdyno has right: plain, and divided by bytes."""
    path = os.path.join(folder, "tasks.jsonl")
    with open(path, "w", encoding="utf-8") as file:
        for item in items:
            file.write(json.dumps(item) + "\n")
    out, _ = run([qdyno, "--db", os.path.join(folder, "db"), "-o", "json", "eval", "--task", path, "-c", str(CTX), "-C",
                  f"model={model},batch=1,threads=1,kv=f16"])
    row = json.loads(out)["rows"][0]
    if row["error"]:
        raise Failure(f"{qdyno}: {row['error']}")
    return round(row["accuracy"] * len(items)), round(row["accuracy_norm"] * len(items))


def compare(a, model, name, items, comparable, folder):
    """Prints a row; False: they disagree."""
    theirs = their_right(a.perplexity, model, items, folder)
    ours, by_bytes = our_right(a.qdyno, model, items, folder)
    chosen = [i for i, fine in enumerate(comparable) if fine]
    groups = [chosen[i:i + GROUP] for i in range(0, len(chosen), GROUP)]
    pairs = [(our_right(a.qdyno, model, [items[i] for i in group], folder)[0], sum(theirs[i] for i in group)) for group in groups]
    differ = sum(x != y for x, y in pairs)
    fine = differ * MAY_DIFFER <= len(groups)
    n, m = len(items), len(chosen)
    print(f"| {name} | {m} | {100 * sum(x for x, _ in pairs) / m:.2f} | {100 * sum(y for _, y in pairs) / m:.2f} | "
          f"{differ} of {len(groups)} | {n} | {100 * ours / n:.2f} | {100 * by_bytes / n:.2f} | {100 * sum(theirs) / n:.2f} | "
          f"{'yes' if fine else 'NO'} |", flush=True)
    return fine


def main():
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("perplexity", help="path of llama-perplexity")
    parser.add_argument("--qdyno", required=True, help="path of qdyno")
    parser.add_argument("--model", help="model in 16 or 32 bits; default: the bundled one")
    parser.add_argument("--task", default=os.path.join(root, "share/examples/stories.task.jsonl"), help="questions; default: %(default)s")
    parser.add_argument("--formats", default="q8_0,q4_0", help="formats beside that of the model; default: %(default)s")
    try:
        a = parser.parse_args()
    except SystemExit as stop:
        sys.exit(EXIT_USAGE if stop.code else 0)
    a.model = a.model or os.path.join(os.path.dirname(os.path.abspath(a.qdyno)), "share/models/bundled.gguf")
    if not os.path.exists(a.model):
        a.model = os.path.join(root, "share/models/bundled.gguf")
    for path in [a.perplexity, a.qdyno, a.model, a.task]:
        if not os.access(path, os.R_OK):
            print(f"tasks: {path}: no such file", file=sys.stderr)
            sys.exit(EXIT_INPUT)
    items, bad = read_items(a.task), 0
    comparable = [is_comparable(a.qdyno, a.model, item) for item in items]
    if not any(comparable):
        raise Failure(f"{a.task}: no question has choices with equally many tokens")
    print(f"{os.path.basename(a.task)}: {len(items)} questions, {sum(comparable)} of them have choices with equally many tokens\n")
    print("| format | same tokens | qdyno % | llama-perplexity % | groups that differ | all | qdyno % | by bytes % | "
          "llama-perplexity % | agree |")
    print("| ------ | ----------: | ------: | -----------------: | -----------------: | --: | ------: | ---------: | "
          "-----------------: | ----- |")
    with tempfile.TemporaryDirectory() as folder:
        for name in ["as it is", *a.formats.split(",")]:
            made = a.model
            if name != "as it is":
                made = os.path.join(folder, name + ".gguf")
                run([a.qdyno, "quantize", a.model, made, "-R", name, "--force"])
            bad += not compare(a, made, name, items, comparable, folder)
    sys.exit(EXIT_FAILED if bad else 0)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        print(f"tasks: {failure}", file=sys.stderr)
        sys.exit(EXIT_FAILED)
