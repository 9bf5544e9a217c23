#!/usr/bin/env python3
"""Compares KL divergence and top-1 agreement with those of llama-perplexity, for the same files and text.

The reference is a model's f16 copy, the candidates are its block formats. `qdyno quantize` makes all files, and both programs
read them. llama-perplexity first writes the reference's logits to a temporary file of tens of megabytes; qdyno needs none. qdyno
rounds activations as llama.cpp does (one row at a time, 8 bits, f16 cache), so only the order of additions differs. Two figures
agree if they differ by at most twice the larger of the two standard errors.

On processors with AMX some builds of llama.cpp (February 2025) compute block formats wrongly: their KL divergence is then larger
than 1, or NaN. For such a build use --without-amx, which denies it access to the AMX tiles.

Exit status: 0 all agree, 1 some do not, or a program failed; 4 bad usage, 5 bad input file.
"""

import argparse
import ctypes
import json
import math
import os
import re
import subprocess
import sys
import tempfile

EXIT_FAILED, EXIT_USAGE, EXIT_INPUT = 1, 4, 5
CTX = 128
PEER_FIGURES = {
    "kld": r"Mean\s+KLD:\s+(\S+)\s*±\s*(\S+)",
    "top1": r"Same top p:\s+(\S+)\s*±\s*(\S+)",
    "ratio": r"Mean PPL\(Q\)/PPL\(base\)\s*:\s+(\S+)\s*±\s*(\S+)",
}


class Failure(Exception):
    """A command that failed, with its error message."""


def refuse_amx():
    """In the child: a seccomp filter that fails arch_prctl(ARCH_REQ_XCOMP_PERM), by which a program asks for tiles."""
    arch_prctl, request = 158, 0x1023
    instructions = [  # struct sock_filter: code, jump if true, jump if false, k
        (0x20, 0, 0, 0),  # load the number of the call
        (0x15, 0, 3, arch_prctl),
        (0x20, 0, 0, 16),  # load the low half of the first argument
        (0x15, 0, 1, request),
        (0x06, 0, 0, 0x00050001),  # EPERM
        (0x06, 0, 0, 0x7FFF0000),  # allow
    ]

    class Filter(ctypes.Structure):
        _fields_ = [("code", ctypes.c_ushort), ("jt", ctypes.c_ubyte), ("jf", ctypes.c_ubyte), ("k", ctypes.c_uint)]

    class Program(ctypes.Structure):
        _fields_ = [("n", ctypes.c_ushort), ("filter", ctypes.POINTER(Filter))]

    table = (Filter * len(instructions))(*instructions)
    program = Program(len(instructions), table)
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, seccomp, mode_filter = 38, 22, 2
    if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.prctl(seccomp, mode_filter, ctypes.byref(program), 0, 0):
        raise OSError(ctypes.get_errno(), "no filter of system calls here")


def run(command, before=None):
    """Standard output and standard error."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
                              preexec_fn=before, check=False, timeout=3600)
    except (OSError, subprocess.SubprocessError) as reason:
        raise Failure(f"{command[0]}: {reason}") from reason
    if done.returncode:
        said = " / ".join(line.strip() for line in done.stderr.strip().splitlines()[-3:]) or "it said nothing"
        raise Failure(f"{' '.join(command)}: status {done.returncode}: {said}")
    return done.stdout, done.stderr


def peer_figures(perplexity, reference, candidate, text, logits, before):
    common = ["-f", text, "-c", str(CTX), "-b", str(CTX), "-t", "1", "--kl-divergence-base", logits]
    if not os.path.exists(logits):
        run([perplexity, "-m", reference, *common], before)
    said = "".join(run([perplexity, "-m", candidate, *common, "--kl-divergence"], before))
    figures = {}
    for name, pattern in PEER_FIGURES.items():
        match = re.search(pattern, said)
        if not match:
            raise Failure(f"{perplexity}: printed no '{name}'")
        scale = 0.01 if name == "top1" else 1
        figures[name] = tuple(scale * float(value.rstrip("%")) for value in match.groups())
    return figures


def our_figures(qdyno, reference, candidate, text, database):
    line = "batch=1,threads=1,kv=f16"
    out, _ = run([qdyno, "--db", database, "-o", "json", "eval", "-f", text, "-c", str(CTX), "--ref",
                  f"model={reference},{line}", "-C", f"model={candidate},{line}"])
    row = json.loads(out)["rows"][0]
    if row["error"]:
        raise Failure(f"{qdyno}: {row['error']}")
    # one standard error of the ratio, from its 95 % interval
    spread = (row["ppl_ratio_upper"] - row["ppl_ratio_lower"]) / 2 / 1.98
    return {"kld": (row["kld_mean"], row["kld_se"]), "top1": (row["top1_ratio"], row["top1_se"]),
            "ratio": (row["ppl_ratio"], spread)}


def agree(ours, theirs):
    distance, error = abs(ours[0] - theirs[0]), max(ours[1], theirs[1])
    return math.isfinite(distance) and distance <= 2 * error


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("perplexity", metavar="LLAMA_PERPLEXITY", help="the peer's program")
    parser.add_argument("-m", dest="models", action="append", required=True, metavar="MODEL",
                        help="GGUF file of floats; may be given again")
    parser.add_argument("-f", dest="text", required=True, metavar="TEXT")
    parser.add_argument("--bytes", type=int, default=60000, help="of the text; default 60000")
    parser.add_argument("--formats", default="q8_0,q4_0")
    parser.add_argument("--qdyno", required=True, metavar="PROGRAM")
    parser.add_argument("--without-amx", action="store_true", help="keep the peer from using tiles")
    try:
        a = parser.parse_args()
    except SystemExit as stop:
        sys.exit(EXIT_USAGE if stop.code else 0)
    for path in [a.perplexity, a.qdyno, a.text, *a.models]:
        if not os.access(path, os.R_OK):
            print(f"quality: {path}: no such file", file=sys.stderr)
            sys.exit(EXIT_INPUT)
    before = refuse_amx if a.without_amx else None
    bad, largest = 0, 0
    print("| model | format | figure | qdyno | +- | llama-perplexity | +- | agree |")
    print("| ----- | ------ | ------ | ----: | -: | ---------------: | -: | ----- |")
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "text")
        with open(a.text, "rb") as source, open(text, "wb") as part:
            part.write(source.read(a.bytes))
        for model in a.models:
            made = {}
            for name in ["f16", *a.formats.split(",")]:
                made[name] = os.path.join(folder, name + ".gguf")
                run([a.qdyno, "quantize", model, made[name], "-R", name, "--force"])
                largest = max(largest, os.path.getsize(made[name]))
            logits = os.path.join(folder, "logits")
            for name in a.formats.split(","):
                ours = our_figures(a.qdyno, made["f16"], made[name], text, os.path.join(folder, "db"))
                theirs = peer_figures(a.perplexity, made["f16"], made[name], text, logits, before)
                for figure in PEER_FIGURES:
                    fine = agree(ours[figure], theirs[figure])
                    bad += not fine
                    print(f"| {os.path.basename(model)} | {name} | {figure} | {ours[figure][0]:.6f} | "
                          f"{ours[figure][1]:.6f} | {theirs[figure][0]:.6f} | {theirs[figure][1]:.6f} | "
                          f"{'yes' if fine else 'NO'} |", flush=True)
            os.remove(logits)
    print(f"\nlargest model file: {largest} bytes; windows of {CTX} tokens; logits written by qdyno: none")
    sys.exit(EXIT_FAILED if bad else 0)


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        print(f"quality: {failure}", file=sys.stderr)
        sys.exit(EXIT_FAILED)
