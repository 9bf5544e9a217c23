#!/usr/bin/env python3
"""Compares all quantization methods on small trained models: error of the weights, and loss of prediction quality.

Runs `qdyno methods` for a list of recipes and writes the page docs/methods.md. The bundled model uses its bundled texts. For other
models the beginning of a text calibrates and its second half is scored. Models that consist of matrices only (raw f32 files with a
manifest) are wrapped into a GGUF file and only their weight errors are measured; methods that run the model report an error in
their row.

Exit status: 0 the page was written, 1 a program failed, 4 bad usage, 5 bad input file.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

EXIT_FAILED, EXIT_USAGE, EXIT_INPUT, EXIT_NO_FIT = 1, 4, 5, 6

# Rows of the models in DATA have 64, 128, 172, 288, 384 and 768 weights, most of them multiples of 32 and 64.
RECIPES = """
f16
bf16
tf32
q8_0
q5_1
q5_0
q4_1
q4_0
iq4_nl
mxfp4
gguf,type=q4_0,pure=true,imatrix=true
gguf,type=iq4_nl,pure=true,imatrix=true
q6_K
q5_K
q4_K
q3_K
q2_K
gguf,type=q4_K_S,pure=true,imatrix=true
gguf,type=q3_K_S,pure=true,imatrix=true
gguf,type=q2_K,pure=true,imatrix=true
fp8_e4m3
fp8_e5m2
fp8_e4m3_b128
int8
u4_g32,tensors=token_embd:f16
u4_g64,tensors=token_embd:f16
u3_g64,tensors=token_embd:f16
u2_g64,tensors=token_embd:f16
eetq
quanto
quanto,weights=int4
quanto,weights=int4,optimizer=hqq
quanto,weights=int2
quanto,weights=float8
nf4
nf4,double_quant=true
fp4
fp4,double_quant=true
hqq,nbits=8
hqq,nbits=4
hqq,nbits=3
hqq,nbits=2
gptq,bits=8,group_size=64
gptq,bits=4,group_size=32
gptq,bits=4,group_size=64
gptq,bits=4,group_size=64,desc_act=true
gptq,bits=3,group_size=64
gptq,bits=3,group_size=64,sym=false
gptq,bits=2,group_size=64
gptq,bits=2,group_size=64,sym=false
awq,bits=4,group_size=32
awq,bits=4,group_size=64
awq,bits=3,group_size=64
awq,bits=2,group_size=64
llm_int8
int8_dynamic
int8_static
int8_static,observer=minmax
int8_static,observer=percentile
int8_static,observer=entropy
smoothquant
fp8
fp8,granularity=block
"""

BUNDLED = "share/models/bundled.gguf"  # in the program's folder
# (file in the data folder, title)
MODELS = (
    ("models/repacked/stories260K-f32.gguf", "stories260K"),
    ("models/repacked/tinystories-656k-f32.gguf", "tinystories-656k"),
)
MATRICES = ("models/stories15m-body", "stories15M, its matrices")
CALIBRATION_CHARACTERS = 30_000
CHUNKS = 200
TEXT = "text/tinystories-valid-excerpt.txt"


class Failure(Exception):
    """A command that failed, with its error message."""


def note(text):
    print(f"methods: {text}", file=sys.stderr, flush=True)


# ---------------------------------------------------------------- raw matrices as GGUF

GGUF_STRING, GGUF_U32, ALIGNMENT, TYPE_F32 = 8, 4, 32, 0
PARTS = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}


def gguf_name(name):
    """model.layers.3.mlp.up_proj.weight -> blk.3.ffn_up.weight"""
    if name == "model.norm.weight":
        return "output_norm.weight"
    parts = name.split(".")
    return f"blk.{parts[2]}.{PARTS['.'.join(parts[3:-1])]}.weight"


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def wrap_matrices(folder, path):
    """Write the files of a manifest that exist as one GGUF file of f32 tensors."""
    with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as f:
        listed = json.load(f)["tensors"]
    tensors = [t for t in listed if os.path.exists(os.path.join(folder, t["filename"]))]
    pairs = [("general.architecture", "llama"), ("general.name", os.path.basename(folder))]
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(pairs))
    for key, value in pairs:
        head += text(key) + struct.pack("<I", GGUF_STRING) + text(value)
    at = 0
    for t in tensors:
        shape = list(reversed(t["shape"]))
        head += text(gguf_name(t["name"])) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, TYPE_F32, at)
        at += -(-t["nbytes"] // ALIGNMENT) * ALIGNMENT
    with open(path, "wb") as out:
        out.write(head + bytes(-len(head) % ALIGNMENT))
        for t in tensors:
            with open(os.path.join(folder, t["filename"]), "rb") as f:
                data = f.read()
            if len(data) != t["nbytes"]:
                raise Failure(f"{t['filename']}: expected {t['nbytes']} bytes, found {len(data)}")
            out.write(data + bytes(-len(data) % ALIGNMENT))


# ---------------------------------------------------------------- measuring


def split_text(path, folder):
    """Split a text between stories: the beginning for calibration, the second half for scoring."""
    with open(path, encoding="utf-8") as f:
        whole = f.read()
    middle = whole.index("\n\n", len(whole) // 2)
    begin = whole.index("\n\n", min(CALIBRATION_CHARACTERS, middle - 2))
    names = [os.path.join(folder, name) for name in ("calibrate.txt", "score.txt")]
    for name, part in zip(names, (whole[:begin], whole[middle + 2:])):
        with open(name, "w", encoding="utf-8") as f:
            f.write(part)
    return names


def measure(qdyno, model, recipes, more):
    """Run all recipes and return one document with their rows. A recipe that this model cannot have gets a row with the error."""
    whole = {"rows": []}
    for at, recipe in enumerate(recipes):
        began = time.monotonic()
        command = [qdyno, "methods", "-m", model, "-o", "json", "--log-level", "error", "-C", recipe] + more
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        said = done.stderr.strip()
        if done.returncode == 0:
            document = json.loads(done.stdout)
            whole["rows"] += document["rows"]
            whole.setdefault("reference", document.get("reference"))
        elif done.returncode in (EXIT_USAGE, EXIT_INPUT, EXIT_NO_FIT) and said:
            whole["rows"].append({"config": recipe, "error": said.replace("qdyno methods: ", "")})
        else:
            raise Failure(f"{' '.join(command)}: status {done.returncode}: {said[-400:]}")
        note(f"  {at + 1}/{len(recipes)} {recipe}: {time.monotonic() - began:.1f} s")
    return whole


def shown(value, form):
    return "" if value is None else format(value, form)


def nmse(value):
    return "" if value is None else "0" if value == 0 else f"{value:.2e}"


def table(document, predicts):
    """The document as a Markdown table with one line for each recipe."""
    head = ["recipe", "bits", "quantized", "in another format", "NMSE", "worst tensor"]
    if predicts:
        head += ["perplexity", "ratio", "KL divergence", "p99", "same top-1"]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * 4 + "---|" + ("---:|" * 5 if predicts else "")]
    for row in document["rows"]:
        if row.get("error"):
            why = row["error"].split("; ")[0][:150].replace("|", "/")
            cells = [f"`{row['config']}`", "", "", "", "", why if predicts else f"needs a complete model: {why}"]
            cells += [""] * (len(head) - len(cells))
        else:
            worst = f"{nmse(row['nmse_worst'])} {row['worst_tensor'] or ''}".replace(".weight", "")
            cells = [f"`{row['config']}`", shown(row["bits_quantized"], ".3f"), str(row["tensors_quantized"]),
                     str(row["tensors_fell_back"] or ""), nmse(row["nmse"]), worst]
            if predicts:
                kld = f"{row['kld_mean']:.6f} ± {row['kld_se']:.6f}"
                cells += [shown(row["perplexity"], ".4f"), shown(row["ppl_ratio"], ".4f"), kld,
                          shown(row["kld_p99"], ".4f"), f"{100 * row['top1_ratio']:.2f} %"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def section(title, document):
    reference = document["reference"]
    return (f"## {title}\n\nUnquantized: perplexity {reference['perplexity']:.4f} over {reference['scored_tokens']} tokens.\n\n"
            f"{table(document, True)}\n")


INTRO = """# Methods, measured

After this page you can compare what quantization methods lose on small trained models, and measure the same on a model of yours.

## Measure a model of yours

    qdyno methods -m model.gguf --eval                  # each method at its default
    qdyno methods -m model.gguf -C q4_K -C gptq --eval   # these recipes

One command makes this page by `qdyno methods -m MODEL -C RECIPE`; nothing is edited by hand:

    {command}

## Reference: columns and conditions

| column | meaning |
|---|---|
| recipe | the part of a config line that says how weights are stored: `METHOD,PARAMETER=VALUE` or a format ([config.md](config.md)) |
| quantized | number of tensors stored in the recipe's format |
| bits | stored bits per weight in the quantized tensors |
| in another format | tensors stored as f16, because their rows are not a multiple of the format's block |
| NMSE | error of the quantized weights: sum (w - w')² / sum w². Some methods store columns of a matrix scaled, in another order or apart; this is undone before w' is compared with w |
| worst tensor | the tensor with the largest NMSE, and that NMSE |
| perplexity, ratio | of the quantized model; divided by that of the unquantized file |
| KL divergence, p99 | from the unquantized file's predictions, in nats: mean ± one standard error; 99th percentile |
| same top-1 | share of positions where both rank the same token first |

All recipes are evaluated on the same tokens: the bundled held-out text for the bundled model, the second half of `{text}` for the others.
Quantization methods that need activation statistics were calibrated on the bundled calibration text for the bundled model, and on the first
{characters:,} characters of `{text}` for the others. `precision=highest` computes
everything else in f32, so a row shows only what its method rounds: weights, and for `llm_int8`, `int8_*`, `smoothquant`, `fp8` and
`tf32` also activations.

* Methods for linear layers (such as `gptq`) leave the token embedding and the output matrix in f16. A row with only a format (such as
  `q4_0`) quantizes these two as well. To compare a format with a method, use the format's row with `tensors=token_embd:f16`: it leaves
  the token embedding in f16, too.
* `gptq` uses symmetric groups by default, plain formats asymmetric ones; `sym=false` makes `gptq` asymmetric. At 3 and 2 bits
  this choice explains much of the difference between `gptq` and the plain formats.
* A row with a message instead of numbers is a recipe that cannot be applied to this model; the message is the reason.
* These models are tiny. At 3 and 2 bits they lose far more than large models do. The ranking of methods carries over, the size of the
  losses does not.
"""


def page(data, qdyno, folder, chunks, command):
    recipes = RECIPES.split()
    calibrate, score = split_text(os.path.join(data, TEXT), folder)
    beside = os.path.join(os.path.dirname(os.path.abspath(qdyno)), BUNDLED)
    note(f"the bundled model: {len(recipes)} recipes")
    sections = [section("The bundled model", measure(qdyno, beside, recipes, ["--eval", "--precision", "highest"]))]
    for file, title in MODELS:
        note(f"{title}: {len(recipes)} recipes")
        more = ["-f", score, "-c", "256", "--calib", calibrate, "--precision", "highest"]
        document = measure(qdyno, os.path.join(data, file), recipes, more + ["--chunks", str(chunks)])
        sections.append(section(title, document))
    wrapped = os.path.join(folder, "matrices.gguf")
    wrap_matrices(os.path.join(data, MATRICES[0]), wrapped)
    note(f"{MATRICES[1]}: {len(recipes)} recipes")
    document = measure(qdyno, wrapped, recipes, [])
    sections.append(f"## {MATRICES[1]}\n\nWeights without embeddings: only their errors are measured, and methods that run the model are not applicable.\n\n"
                    f"{table(document, False)}\n")
    intro = INTRO.format(command=command, text=os.path.basename(TEXT), characters=CALIBRATION_CHARACTERS)
    return intro + "\n" + "\n".join(sections)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", metavar="DATA", help="folder with models/ and text/")
    parser.add_argument("--qdyno", required=True, help="the built program")
    parser.add_argument("--out", required=True, help="page to write")
    parser.add_argument("--chunks", type=int, default=CHUNKS, help=f"windows of 256 tokens to score (default {CHUNKS})")
    args = parser.parse_args()
    command = "./dev bench methods ../shared/data"
    if args.chunks != CHUNKS:
        command += f" --chunks {args.chunks}"
    missing = [f for f in [m[0] for m in MODELS] + [MATRICES[0], TEXT] if not os.path.exists(os.path.join(args.data, f))]
    if missing:
        note(f"{args.data} has no {missing[0]}")
        return EXIT_INPUT
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = os.path.join(folder, "cache")
        try:
            made = page(args.data, args.qdyno, folder, args.chunks, command)
        except (Failure, OSError, KeyError, ValueError) as reason:
            note(f"{reason}")
            return EXIT_FAILED
    with open(args.out, "w", encoding="utf-8") as out:
        out.write(made)
    note(f"wrote {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
