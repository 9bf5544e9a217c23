#!/usr/bin/env python3
"""Compares the logits of qdyno with those of transformers on variants of every family of Hugging Face checkpoints.

Each variant is a tiny checkpoint with random weights: families.py. qdyno must compute what transformers computes from the same
folder, or refuse it. Exit status: 0 it does, 1 it computes something else somewhere, 4 bad usage.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import warnings

EXIT_FAILED, EXIT_USAGE, REFUSED = 1, 4, 5
IDS = [1, 17, 5, 60, 33, 2, 41, 41, 90, 7, 8, 77, 12, 3, 64, 50, 29, 11, 88, 4, 19, 73, 36, 95, 21, 6, 55, 70, 13, 44]
TOLERANCE = 1e-4  # of a standard deviation of the logits; rounding makes 1e-6 to 1e-5, gelu in place of its approximation 3e-4
TIMEOUT_S = 120

try:
    import numpy
    import torch
    import transformers
    from safetensors.torch import load_file, save_file
except ImportError as reason:
    sys.exit(f"variants: {reason}: expected a Python with torch, transformers, safetensors and numpy (PYTHON=... ./dev bench variants)")

from families import ABSENT, QDYNO_ONLY, ROWS


def spread(name, tensor, gemma):
    """Random numbers of a tensor, at a scale at which every part of the model changes the logits."""
    if any(part in name for part in ("norm", "ln_", "layernorm")):
        return torch.randn_like(tensor) * 0.2 + (0 if gemma or name.endswith("bias") else 1)
    if tensor.dim() == 1:
        return torch.randn_like(tensor) * 0.2
    if any(part in name for part in ("embed", "wte", "lm_head")):
        return torch.randn_like(tensor)
    return torch.randn_like(tensor) * 1.2 / max(tensor.shape[-1], 16) ** 0.5


def make(folder, kind, arguments, edits, seed):
    """Writes config.json and weights."""
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(kind, **arguments)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.save_pretrained(folder)
    path = os.path.join(folder, "model.safetensors")
    gemma = kind.startswith("gemma")
    save_file({name: spread(name, value, gemma) for name, value in load_file(path).items()}, path, {"format": "pt"})
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        saved = {**json.load(file), **edits}
    with open(path, "w", encoding="utf-8") as file:
        json.dump({key: value for key, value in saved.items() if value is not ABSENT}, file, indent=1)


def reference(folder):
    """float32 [ids][vocabulary], by transformers; its message where it refuses."""
    try:
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        with torch.no_grad():
            return model(input_ids=torch.tensor([IDS]), use_cache=False).logits[0].float().numpy(), None
    except Exception as reason:  # whatever a configuration without sense leads to
        return None, f"{type(reason).__name__}: {reason}"


def ours(program, folder):
    """The logits of qdyno, or its message."""
    out = os.path.join(folder, "logits")
    command = [program, "logits", "-m", folder, "--ids", ",".join(map(str, IDS)), "--out", out, "-C",
               "precision=highest,ctk=f32,ctv=f32"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    message = " ".join(done.stderr.split())
    if done.returncode not in (0, REFUSED):
        return None, f"STATUS {done.returncode}: {message}"
    return (None, message) if done.returncode else (numpy.fromfile(out, numpy.float32).reshape(len(IDS), -1), None)


def compare(program, row, seed):
    """(verdict, distance, remark)"""
    _, kind, arguments, edits = row
    with tempfile.TemporaryDirectory() as folder:
        try:
            make(folder, kind, arguments, edits, seed)
        except Exception as reason:
            return "not made", None, f"{type(reason).__name__}: {reason}"
        want, said = reference(folder)
        got, message = ours(program, folder)
    if got is None:
        return ("CRASHED" if message.startswith("STATUS") else "refused"), None, message
    if want is None:  # a value that its classes do not allow, and that means one thing only
        return ("qdyno only" if row[0] in QDYNO_ONLY else "WRONG"), None, f"transformers refuses it: {said}"
    if not numpy.isfinite(want).all():
        return "WRONG", None, "transformers computes values that are not finite"
    distance = float(numpy.abs(want - got).max() / want.std()) if want.std() else float(numpy.abs(want - got).max())
    return ("agrees" if distance <= TOLERANCE else "WRONG"), distance, ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--qdyno", required=True, help="the program")
    parser.add_argument("--only", help="variants whose name contains one of these, separated by commas")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    rows = [row for row in ROWS if not options.only or any(part in row[0] for part in options.only.split(","))]
    if not rows:
        sys.exit(EXIT_USAGE)
    counts = {}
    for row in rows:
        with contextlib.redirect_stderr(open(os.devnull, "w", encoding="utf-8")):
            verdict, distance, remark = compare(options.qdyno, row, options.seed)
        counts[verdict] = counts.get(verdict, 0) + 1
        remark = " ".join(remark.replace("qdyno logits: ", "").split())
        print(f"{row[0]:55} {verdict:10} {'' if distance is None else f'{distance:.1e}':8} {remark[:200]}", flush=True)
    print(f"{len(rows)} variants with transformers {transformers.__version__}: " + ", ".join(f"{n} {v}" for v, n in counts.items()))
    sys.exit(EXIT_FAILED if any(v in counts for v in ("WRONG", "CRASHED", "not made")) else 0)


if __name__ == "__main__":
    main()
