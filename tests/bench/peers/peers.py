#!/usr/bin/env python3
"""Ours and other engines' bench programs in turns on the same files: medians, spread and ratios.

A figure of one engine means nothing on a machine that others use, and little on one they do not: only a ratio of runs
side by side does. Each round runs every program once on a file, every other round in reverse order; the ratio is the
median of the rounds' own ratios. A peer is a llama-bench of llama.cpp or ik_llama.cpp (anything that answers -o json
with n_prompt, n_gen and avg_ts); --batched adds programs like llama-batched-bench. A ratio is only given where the peer's perplexity is right,
or could not be checked, which the table then says (answers.py).

Exit status: 0 all was measured, 1 some program failed on some file, 4 bad usage, 5 bad input file.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import answers

FORMATS = "q4_0,q8_0,q4_K,bf16"
EXIT_FAILED, EXIT_USAGE, EXIT_INPUT = 1, 4, 5
OURS = "qdyno"


class Failure(Exception):
    """What a program was asked, and what it said."""


def note(text):
    print(f"peers: {text}", file=sys.stderr, flush=True)


def run(command, env=None, both=False, limit_s=3600):
    """Standard output (both: with standard error behind it); Failure with the last lines of standard error."""
    try:
        done = subprocess.run(command, env=env, timeout=limit_s, capture_output=True, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired) as reason:
        raise Failure(f"{command[0]}: {reason}") from reason
    if done.returncode:
        said = " / ".join(line.strip() for line in done.stderr.strip().splitlines()[-3:]) or "it said nothing"
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        raise Failure(f"{command[0]}: {how}: {said}")
    return done.stdout + done.stderr if both else done.stdout


def json_in(text):
    """The first JSON array of objects in a text: some builds print lines of their own before it."""
    at = text.find("[")
    while at >= 0:
        try:
            value, _ = json.JSONDecoder().raw_decode(text[at:])
            if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
                return value
        except ValueError:
            pass
        at = text.find("[", at + 1)
    raise ValueError("no JSON array of results")


# ---------------------------------------------------------------- programs


class Ours:
    """qdyno bench: one worker, an untimed run before the timed one, as llama-bench does."""

    def __init__(self, options):
        self.options = options
        self.name = OURS
        self.version = run([options.qdyno, "--version"]).strip()
        self.env = dict(os.environ)
        if options.isa:
            self.version += f", QDYNO_ISA={options.isa}"
            self.env["QDYNO_ISA"] = options.isa

    def bench(self, model, arguments):
        with tempfile.TemporaryDirectory() as home:
            text = run([self.options.qdyno, "--db", os.path.join(home, "bench.db"), "bench", "-m", model, "-t",
                        str(self.options.threads), "-r", "1", "--quiet", "-o", "json", *arguments], self.env)
        rows = json.loads(text)["rows"]
        for row in rows:
            if row.get("error"):
                raise Failure(f"{OURS}: {row['error']}")
        return rows

    def speeds(self, model):
        o = self.options
        rows = self.bench(model, ["-p", str(o.prompt), "-n", str(o.gen)])
        return {row["workload"]: row["prefill_tok_s"] or row["decode_tok_s"] for row in rows}

    def batched(self, model):
        o = self.options
        found = {}
        for count in o.npl:
            row = self.bench(model, ["-w", f"pp{o.npp}+tg{o.ntg}@b{count}"])[0]
            found[f"pp{o.npp}@b{count}"] = row["prefill_tok_s"]
            found[f"tg{o.ntg}@b{count}"] = row["decode_tok_s"]
        return found


class Peer:
    """A llama-bench."""

    def __init__(self, options, path, name):
        self.options = options
        self.path = path
        self.name = name
        self.version = "version unknown"

    def speeds(self, model):
        o = self.options
        text = run([self.path, "-m", model, "-p", str(o.prompt), "-n", str(o.gen), "-t", str(o.threads), "-r", "1",
                    "-o", "json"])
        try:
            rows = json_in(text)
            found = {f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}": float(row["avg_ts"])
                     for row in rows if not (row["n_prompt"] and row["n_gen"])}
        except (ValueError, KeyError, TypeError) as reason:
            raise Failure(f"{self.path}: its answer to -o json is not understood: {reason}") from reason
        if "build_commit" in rows[0]:
            self.version = f"build {rows[0].get('build_number', '?')} ({rows[0]['build_commit']})"
        return found


class BatchedPeer:
    """A llama-batched-bench: its table has one row for each number of sequences."""

    def __init__(self, options, path, name):
        self.options = options
        self.path = path
        self.name = name
        self.version = "version unknown"

    def batched(self, model):
        o = self.options
        most = max(o.npl) * (o.npp + o.ntg)
        text = run([self.path, "-m", model, "-c", str(most), "-t", str(o.threads), "-npp", str(o.npp), "-ntg",
                    str(o.ntg), "-npl", ",".join(map(str, o.npl))], both=True)  # ik_llama.cpp logs its table
        head, found = None, {}
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if "S_TG t/s" in cells:
                head = cells
            elif head and len(cells) == len(head) and cells[0].isdigit():
                row = dict(zip(head, cells))
                found[f"pp{row['PP']}@b{row['B']}"] = float(row["S_PP t/s"])
                found[f"tg{row['TG']}@b{row['B']}"] = float(row["S_TG t/s"])
        if not found:
            raise Failure(f"{self.path}: no table of results in its answer")
        return found


def names_of(paths):
    """Short names that differ: from the folder that names the project on, else as much of the path as it takes."""
    parts = [os.path.dirname(os.path.realpath(path)).split(os.sep) for path in paths]
    skip = {"bin", "build", ""}
    for p in parts:
        projects = [i for i, x in enumerate(p) if "llama" in x.lower()]
        if projects:
            del p[:projects[-1]]
    names = ["/".join(x for x in p if x not in skip) or p[-1] for p in parts]
    if all("llama" in name for name in names) and len(set(names)) == len(names):
        return names
    for depth in range(1, max(len(p) for p in parts) + 1):
        names = ["/".join([x for x in p if x not in skip][-depth:]) or p[-1] for p in parts]
        if len(set(names)) == len(names):
            return names
    return [os.path.realpath(path) for path in paths]


# ---------------------------------------------------------------- measuring


def measure(programs, method, model, rounds, results):
    """results[program.name][workload] = a list, one value a round. Returns what failed."""
    failed = {}
    for turn in range(rounds):
        for program in programs if turn % 2 == 0 else list(reversed(programs)):
            if program.name in failed:
                continue
            note(f"{os.path.basename(model)} round {turn + 1}/{rounds}: {program.name}")
            try:
                for workload, speed in getattr(program, method)(model).items():
                    results.setdefault(program.name, {}).setdefault(workload, []).append(speed)
            except Failure as reason:
                note(str(reason))
                failed[program.name] = str(reason)
    return failed


def summary(model, results, failed, checked):
    """One row for each program and workload. checked[program.name]: (answer, reason). No ratio to a wrong answer."""
    rows = []
    ours = results.get(OURS, {})
    for name, workloads in results.items():
        answer, reason = checked.get(name, (None, None))
        for workload, speeds in workloads.items():
            mid = statistics.median(speeds)
            row = {"model": os.path.basename(model), "workload": workload, "program": name, "tok_s": mid,
                   "spread": (max(speeds) - min(speeds)) / mid if mid else None, "rounds": len(speeds), "ratio": None,
                   "ratio_low": None, "ratio_high": None, "error": None, "answers": answer, "answers_reason": reason}
            pairs = [a / b for a, b in zip(ours.get(workload, []), speeds) if b > 0]
            if name != OURS and pairs and answer != "wrong":
                row.update(ratio=statistics.median(pairs), ratio_low=min(pairs), ratio_high=max(pairs))
            rows.append(row)
    rows.sort(key=lambda row: row["workload"])
    for name, reason in failed.items():
        rows.append({"model": os.path.basename(model), "workload": None, "program": name, "tok_s": None,
                     "spread": None, "rounds": 0, "ratio": None, "ratio_low": None, "ratio_high": None,
                     "error": reason, "answers": None, "answers_reason": None})
    return rows


def print_table(programs, rows, options):
    for program in programs:
        print(f"{program.name}: {program.version}")
    print(f"\n{options.threads} threads, {options.rounds} rounds in turns; ours / theirs is the median of the rounds' "
          "ratios, with their range\n")
    print("| model | workload | program | tok/s | spread | ours / theirs | answers |\n|---|---|---|---:|---:|---:|---|")
    for row in rows:
        if row["error"]:
            print(f"| {row['model']} | | {row['program']} | failed | | {row['error'].replace('|', '/')} | |")
            continue
        ratio = ""
        if row["ratio"] is not None:
            ratio = f"{row['ratio']:.2f} ({row['ratio_low']:.2f} to {row['ratio_high']:.2f})"
        print(f"| {row['model']} | {row['workload']} | {row['program']} | {row['tok_s']:.2f} | "
              f"{100 * row['spread']:.0f} % | {ratio} | {row['answers'] or ''} |")
    reasons = {(row["model"], row["program"]): f"{row['answers']}: {row['answers_reason']}" for row in rows if row["answers"]}
    for (model, program), reason in reasons.items():
        print(f"\n{model}, {program}: {reason}")


# ---------------------------------------------------------------- what is asked


def whole(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("want 1 or more")
    return value


def counts(text):
    return [whole(part) for part in text.split(",")]


def parse(argv):
    p = argparse.ArgumentParser(prog="./dev bench peers", allow_abbrev=False, description=__doc__.splitlines()[0])
    p.add_argument("bench", nargs="*", metavar="LLAMA_BENCH", help="path of a llama-bench")
    p.add_argument("-m", "--model", action="append", help="a GGUF file; default: synthesized ones")
    p.add_argument("--formats", default=FORMATS, help=f"of synthesized models; default {FORMATS}")
    p.add_argument("--shape", default="1b", help="of synthesized models; default 1b")
    p.add_argument("-p", "--prompt", type=whole, default=512)
    p.add_argument("-n", "--gen", type=whole, default=64)
    p.add_argument("-t", "--threads", type=whole, default=len(os.sched_getaffinity(0)))
    p.add_argument("-r", "--rounds", type=whole, default=5)
    p.add_argument("--isa", help="limits ours: a QDYNO_ISA level such as avx2")
    p.add_argument("--batched", action="append", default=[], metavar="LLAMA_BATCHED_BENCH",
                   help="path of a llama-batched-bench: sequences that decode together")
    p.add_argument("--npp", type=whole, default=128)
    p.add_argument("--ntg", type=whole, default=64)
    p.add_argument("--npl", type=counts, default=[1, 4, 16])
    p.add_argument("--json", action="store_true")
    p.add_argument("--no-check", action="store_true", help="do not compare perplexities first")
    p.add_argument("--check-model", metavar="FILE", help=argparse.SUPPRESS)
    p.add_argument("--qdyno", required=True, help=argparse.SUPPRESS)
    p.add_argument("--models", required=True, help=argparse.SUPPRESS)
    o = p.parse_args(argv)
    if not o.bench and not o.batched:
        p.error("name at least one llama-bench, or --batched a llama-batched-bench")
    for path in o.bench + o.batched:
        if not os.path.isfile(path):
            p.error(f"{path}: no such file")
        if not os.access(path, os.X_OK):
            p.error(f"{path}: cannot be executed")
    return o


def models_of(options):
    """Files to run on; synthesized ones are made once and kept."""
    if options.model:
        for path in options.model:
            if not os.path.isfile(path):
                note(f"{path}: no such file")
                sys.exit(EXIT_INPUT)
        return options.model
    os.makedirs(options.models, exist_ok=True)
    paths = []
    for name in options.formats.split(","):
        path = os.path.join(options.models, f"synth-{options.shape}-{name}.gguf")
        if not os.path.exists(path):
            note(f"making {path}")
            run([options.qdyno, "synth", "--shape", options.shape, "-R", name, path + ".part"])
            os.rename(path + ".part", path)
        paths.append(path)
    return paths


def check_answers(options, programs, model, folder, text):
    """{program name: (answer, reason)} for a file, or for a synthesized one a trained model in the same format."""
    path = model
    if not options.model and options.check_model:
        name = os.path.basename(model)[len(f"synth-{options.shape}-"):-len(".gguf")]
        path = os.path.join(folder, f"check-{name}.gguf")
        try:
            run([options.qdyno, "quantize", options.check_model, path, "-R", name, "--force"])
        except Failure as reason:
            return {program.name: ("unknown", str(reason)) for program in programs}
    checked = {}
    for program in programs:
        note(f"{os.path.basename(path)}: checking the answers of {program.name}")
        checked[program.name] = answers.check(run, Failure, options, program.path, path, text, folder)
    return checked


def main(argv):
    try:
        options = parse(argv)
    except SystemExit as reason:
        return EXIT_USAGE if reason.code else 0
    try:
        ours = Ours(options)
        models = models_of(options)
    except Failure as reason:
        note(str(reason))
        return EXIT_INPUT
    peers = [Peer(options, *x) for x in zip(options.bench, names_of(options.bench))] if options.bench else []
    batched = [BatchedPeer(options, *x)
               for x in zip(options.batched, names_of(options.batched))] if options.batched else []
    rows, any_failed = [], False
    folder = tempfile.TemporaryDirectory()
    text = None if options.no_check else answers.write_text(run, options.qdyno, folder.name)
    for model in models:
        theirs = {p.name: p for p in [*peers, *batched]}
        checked = check_answers(options, theirs.values(), model, folder.name, text) if text else {}
        for programs, method in ((peers, "speeds"), (batched, "batched")):
            if not programs:
                continue
            results = {}
            failed = measure([ours, *programs], method, model, options.rounds, results)
            any_failed |= bool(failed)
            rows += summary(model, results, failed, checked)
    known = {p.name: p.version for p in peers}
    for program in batched: # its own answer names no version; one beside a llama-bench is of the same build
        program.version = known.get(program.name, program.version)
    programs = list({p.name: p for p in [ours, *peers, *batched]}.values())
    if options.json:
        print(json.dumps({"schema": "qdyno.bench.peers/1", "threads": options.threads, "rounds": options.rounds,
                          "programs": [{"name": p.name, "version": p.version} for p in programs], "rows": rows},
                         indent=2))
    else:
        print_table(programs, rows, options)
    return EXIT_FAILED if any_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
