#!/usr/bin/env python3
"""Compares qdyno with transformers and llama.cpp on files that llama.cpp's converter made from random checkpoints.

README.md says what is needed and what the columns mean.
Exit status: 0 qdyno agrees everywhere or a row names why not, 1 it does not, 4 bad usage, 5 bad input.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile

import numpy

import checkpoint
from families import FAMILIES, VOCABULARY

EXIT_FAILED, EXIT_USAGE, EXIT_INPUT = 1, 4, 5
LENGTH = 40  # tokens of the prompt: several windows
FORK = multiprocessing.get_context("fork")  # children share the imported libraries
CHILD_LIMIT_S = 600


class Failure(Exception):
    """What a program was asked, and what it said."""


def in_child(work, log, *arguments):
    """The result of work(*arguments) in a process of its own, whose output goes to the file `log`."""

    def run(pipe):
        with open(log, "a", encoding="utf-8") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            try:
                pipe.send((work(*arguments), None))
            except BaseException as reason:  # SystemExit, too: the converter's way to refuse a model
                import traceback

                traceback.print_exc()
                pipe.send((None, f"{type(reason).__name__}: {reason}"))

    ours, theirs = FORK.Pipe(duplex=False)
    process = FORK.Process(target=run, args=(theirs,))
    process.start()
    theirs.close()
    try:
        if not ours.poll(CHILD_LIMIT_S):
            process.kill()
            raise Failure(f"no result after {CHILD_LIMIT_S} s")
        result, reason = ours.recv()
    except EOFError:
        process.join()
        raise Failure(f"ended with status {process.exitcode}; see {log}") from None
    process.join()
    if reason:
        raise Failure(reason)
    return result


# ---------------------------------------------------------------- the three implementations


def by_transformers(family, folder, text, ids, seed):
    return checkpoint.logits(checkpoint.make(family, folder, text, seed), ids)


def convert(source, folder, out):
    """Runs the converter as it is, except that the hash of our tokenizer, which it cannot know, means GPT-2's rules."""
    sys.path.insert(0, source)
    import conversion.base

    conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
    sys.argv = ["convert_hf_to_gguf.py", folder, "--outfile", out, "--outtype", "f32"]
    runpy.run_path(os.path.join(source, "convert_hf_to_gguf.py"), run_name="__main__")


def by_qdyno(program, path, ids, log):
    out = path + ".logits"
    command = [
        program,
        "logits",
        "-m",
        path,
        "--ids",
        ",".join(map(str, ids)),
        "--out",
        out,
        "--ctk",
        "f32",
        "--ctv",
        "f32",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=CHILD_LIMIT_S)
    with open(log, "a", encoding="utf-8") as file:
        file.write(done.stderr)
    if done.returncode:
        raise Failure(f"status {done.returncode}: {' '.join(done.stderr.split())}")
    return numpy.fromfile(out, numpy.float32).reshape(len(ids), -1)


def by_mainline(bindings, path, ids):
    """Through the Python bindings: their library, f32 cache, the plain attention."""
    sys.path.insert(0, bindings)
    import llama_cpp as api

    api.llama_backend_init()
    model = api.llama_model_load_from_file(path.encode(), api.llama_model_default_params())
    if not model:
        raise Failure("the file was refused")
    params = api.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = 512, 512, 512
    params.type_k = params.type_v = api.GGML_TYPE_F32
    params.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = api.llama_init_from_model(model, params)
    if not context:
        raise Failure("no context was made")
    batch = api.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for at, token in enumerate(ids):
        batch.token[at], batch.pos[at], batch.logits[at] = token, at, 1
        batch.n_seq_id[at], batch.seq_id[at][0] = 1, 0
    status = api.llama_decode(context, batch)
    if status:
        raise Failure(f"llama_decode: {status}")
    rows = [numpy.ctypeslib.as_array(api.llama_get_logits_ith(context, at), (VOCABULARY,)) for at in range(len(ids))]
    return numpy.array(rows, numpy.float32)


# ---------------------------------------------------------------- comparison


def distance(a, b, unit):
    """The largest difference of two logits, in standard deviations of the reference; None where one is missing."""
    if a is None or b is None:
        return None
    columns = min(a.shape[1], b.shape[1])  # some converters pad the vocabulary
    worst = numpy.abs(a[:, :columns] - b[:, :columns]).max() / unit
    return float(worst) if numpy.isfinite(worst) else float("inf")


def divergence(reference, other):
    """Mean KL divergence of the predictions over the positions, in nats."""

    def log_softmax(rows):
        rows = rows.astype(numpy.float64) - rows.max(axis=1, keepdims=True)
        return rows - numpy.log(numpy.exp(rows).sum(axis=1, keepdims=True))

    if reference is None or other is None:
        return None
    columns = min(reference.shape[1], other.shape[1])
    p, q = log_softmax(reference[:, :columns]), log_softmax(other[:, :columns])
    return float((numpy.exp(p) * (p - q)).sum(axis=1).mean())


def verdict(row, tolerance):
    """Who disagrees, from the three distances."""
    near = {pair: row[pair] is not None and row[pair] <= tolerance for pair in ("qdyno", "mainline", "both")}
    if row["qdyno"] is None:
        return "qdyno does not run it"
    if row["mainline"] is None:
        return "agree, two" if near["qdyno"] else "qdyno or transformers"
    if near["qdyno"]:
        return "agree" if near["mainline"] else "mainline"
    if near["mainline"]:
        return "qdyno"
    return "transformers" if near["both"] else "all differ"


def compare(family, options, text, ids, folder):
    """One row of the table."""
    log = os.path.join(folder, "log.txt")
    path = os.path.join(folder, "model.gguf")
    hf = os.path.join(folder, "hf")
    os.makedirs(hf, exist_ok=True)
    row = {"family": family.name, "known": family.known, "qdyno": None, "mainline": None, "both": None, "kld": None}
    row["errors"] = errors = {}

    def attempt(who, work, *arguments, child=True):
        try:
            return in_child(work, log, *arguments) if child else work(*arguments)
        except (Failure, OSError, ValueError, subprocess.TimeoutExpired) as reason:
            errors[who] = str(reason)
            return None

    reference = attempt("transformers", by_transformers, family, hf, text, ids, options.seed)
    if reference is None:
        return row
    attempt("converter", convert, os.path.join(options.peer, "vendor", "llama.cpp"), hf, path)
    if "converter" in errors:
        return row
    ours = attempt("qdyno", by_qdyno, options.qdyno, path, ids, log, child=False)
    mainline = attempt("mainline", by_mainline, options.peer, path, ids) if options.library else None
    unit = float(reference.std())
    row["qdyno"] = distance(ours, reference, unit)
    row["mainline"] = distance(mainline, reference, unit)
    row["both"] = distance(ours, mainline, unit)
    row["kld"] = divergence(reference, ours)
    return row


def figure(value):
    return "n/a" if value is None else f"{value:.1e}"


def line(row, tolerance):
    failed = next((who for who in ("transformers", "converter") if who in row["errors"]), None)
    said = f"no file: {failed}" if failed else verdict(row, tolerance)
    notes = "; ".join(
        [*([row["known"]] if row["known"] else []), *(f"{who}: {text[:160]}" for who, text in row["errors"].items())]
    )
    return [
        row["family"],
        *(figure(row[key]) for key in ("qdyno", "mainline", "both", "kld")),
        said,
        notes.replace("|", "/"),
    ]


HEADER = ["family", "qdyno", "mainline", "qdyno to mainline", "KL divergence", "who disagrees", "notes"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--qdyno", required=True, help="the program")
    parser.add_argument("--peer", required=True, help="unpacked source package of llama-cpp-python")
    parser.add_argument("--library", help="folder with a libllama.so built from it; without: no column of llama.cpp")
    parser.add_argument("--only", help="families whose name contains one of these, separated by commas")
    parser.add_argument("--keep", help="folder for files and logs; default: a temporary one")
    parser.add_argument("--text", help="text for the tokenizers; default: this project's documentation")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-3,
        help="largest difference that agrees, in standard deviations of the logits",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="file for the rows as JSON")
    return parser.parse_args()


def training_text(path):
    """A text with enough different words for 512 tokens."""
    docs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "docs")
    paths = [path] if path else [os.path.join(docs, name) for name in sorted(os.listdir(docs)) if name.endswith(".md")]
    texts = []
    for name in paths:
        with open(name, encoding="utf-8") as file:
            texts.append(file.read().encode("ascii", "ignore").decode())
    return "\n".join(texts)[:200000]


def main():
    options = arguments()
    try:
        text = training_text(options.text)
    except OSError as reason:
        print(f"convert: {reason}", file=sys.stderr)
        return EXIT_INPUT
    names = options.only.split(",") if options.only else [""]
    chosen = [family for family in FAMILIES if any(name in family.name for name in names)]
    if not chosen:
        print(
            f"convert: no family's name contains {options.only}; expected one of: "
            f"{', '.join(family.name for family in FAMILIES)}",
            file=sys.stderr,
        )
        return EXIT_USAGE
    if options.library:
        os.environ["LLAMA_CPP_LIB_PATH"] = os.path.abspath(options.library)
    ids = numpy.random.default_rng(options.seed).integers(16, VOCABULARY, LENGTH).tolist()
    rows, bad = [], 0
    print("| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER))
    with contextlib.ExitStack() as stack:
        base = options.keep or stack.enter_context(tempfile.TemporaryDirectory())
        for family in chosen:
            folder = os.path.join(base, family.name.replace(" ", "_").replace(",", ""))
            os.makedirs(folder, exist_ok=True)
            row = compare(family, options, text, ids, folder)
            rows.append(row)
            cells = line(row, options.tolerance)
            bad += not (family.known or cells[5].startswith(("agree", "mainline")))
            print("| " + " | ".join(cells) + " |", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return EXIT_FAILED if bad else 0


if __name__ == "__main__":
    sys.exit(main())
