#!/usr/bin/env python3
"""Do other programs read what `quantize --to` writes? Run by a Python that has torch, transformers and tokenizers, and, for the
forms to be checked, compressed-tensors and gptqmodel (which transformers uses for GPTQ and AWQ).

  1. makes a random Llama and a tokenizer with transformers;
  2. exports it with qdyno in every form, 4 and 8 bits, symmetric or not, with and without act-order;
  3. loads each folder with transformers on the CPU, and compares its logits with those of `qdyno logits` for the same ids.
     gptqmodel multiplies in 16 bits, so its logits may differ by more. compressed-tensors 0.20 cannot load asymmetric checkpoints
     through transformers 5.24, not even its own: there its own class unpacks the matrices, and a plain model computes with them;
  4. the same logits after one matrix was damaged on purpose must differ, so that the comparison means something.

Exit status: 0 all agree, 1 something does not, 4 bad usage. A package that is missing is named and its forms are not counted."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

FAILED = []
MOST = {"compressed-tensors": 1e-4, "gptq": 2e-2, "awq": 2e-2}  # difference of a logit, in their standard deviations
IDS = [(37 * i + 11) % 500 for i in range(40)]
CASES = [
    ("compressed-tensors", "gptq,bits=4,group_size=128,sym=true"),
    ("compressed-tensors", "awq,bits=4,group_size=128"),
    ("compressed-tensors", "gptq,bits=8,group_size=128,sym=true"),
    ("gptq", "gptq,bits=4,group_size=128,sym=true"),
    ("gptq", "gptq,bits=4,group_size=128,sym=true,desc_act=true"),
    ("gptq", "gptq,bits=4,group_size=64,sym=false"),
    ("gptq", "gptq,bits=8,group_size=128,sym=true"),
    ("awq", "awq,bits=4,group_size=128"),
]


def make_checkpoint(folder, qdyno):
    """A random Llama with a byte-level tokenizer trained on stories."""
    text = subprocess.run([qdyno, "stories", "-n", "200"], capture_output=True, text=True, check=True).stdout
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=512, special_tokens=["<s>", "</s>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(text.splitlines(), trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    config = transformers.LlamaConfig(vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=3,
                                      num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512,
                                      tie_word_embeddings=False, initializer_range=0.1)
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    with open(os.path.join(folder, "calib.txt"), "w", encoding="utf-8") as file:
        file.write(text[:20000])


def by_qdyno(qdyno, folder):
    out = os.path.join(folder, "..", "logits.bin")
    subprocess.run([qdyno, "logits", "-m", folder, "-C", "precision=highest,ctk=f32,ctv=f32", "--ids",
                    ",".join(map(str, IDS)), "--out", out, "-q"], check=True, capture_output=True)
    return numpy.fromfile(out, dtype=numpy.float32).reshape(len(IDS), -1)


def by_transformers(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, device_map="cpu")
    model.eval()
    with torch.no_grad():
        logits = model(torch.tensor([IDS])).logits[0]
    return logits.float().numpy(), model


def by_package_unpacking(folder):
    """Matrices unpacked by compressed-tensors' own class, multiplied by a plain model."""
    from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
    from compressed_tensors.quantization import QuantizationScheme
    from safetensors.torch import load_file
    config = transformers.AutoConfig.from_pretrained(folder)
    group = config.quantization_config["config_groups"]["group_0"]
    scheme = QuantizationScheme(targets=["Linear"], weights=group["weights"])
    del config.quantization_config
    tensors = load_file(os.path.join(folder, "model.safetensors"))
    plain = {k: v.float() for k, v in tensors.items() if ".weight_" not in k}
    for name in [k for k in tensors if k.endswith(".weight_packed")]:
        stem = name[:-len("weight_packed")]
        state = {k[len(stem):]: v for k, v in tensors.items() if k.startswith(stem)}
        state["weight_scale"] = state["weight_scale"].float()  # or the weights would be rounded to binary16
        plain[stem + "weight"] = PackedQuantizationCompressor.decompress(state, scheme)["weight"].float()
    model = transformers.LlamaForCausalLM(config).float().eval()
    model.load_state_dict(plain)
    with torch.no_grad():
        return model(torch.tensor([IDS])).logits[0].numpy(), model


def damage(folder):
    """Flips bits in the codes of the first quantized matrix."""
    from safetensors.torch import load_file, save_file
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    name = next(n for n in tensors if n.endswith(("qweight", "weight_packed")))
    tensors[name] = tensors[name] ^ 0x11111111
    save_file(tensors, path, metadata={"format": "pt"})


def check(qdyno, base, form, recipe):
    source, folder = os.path.join(base, "source"), os.path.join(base, "out")
    shutil.rmtree(folder, ignore_errors=True)
    done = subprocess.run([qdyno, "quantize", source, folder, "-R", recipe, "--calib", os.path.join(source, "calib.txt"),
                           "--to", form, "-o", "json"], capture_output=True, text=True, check=False)
    if done.returncode:
        FAILED.append(recipe)
        print(f"FAILED  {form:18} {recipe}: {done.stderr.strip()[-300:]}", flush=True)
        return
    ours = by_qdyno(qdyno, folder)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        options = json.load(file)["quantization_config"]
    symmetric = options.get("config_groups", {}).get("group_0", {}).get("weights", {}).get("symmetric", True)
    compute, allowed = (by_transformers if symmetric else by_package_unpacking), MOST[form]
    try:
        theirs, _ = compute(folder)
        damage(folder)
        broken, _ = compute(folder)
    except Exception as reason:  # whatever a package raises, it names what is missing
        FAILED.append(recipe)
        print(f"FAILED  {form:18} {recipe}: {type(reason).__name__}: {str(reason)[:300]}", flush=True)
        return
    scale = float(ours.std())
    most, other = float(abs(ours - theirs).max()) / scale, float(abs(ours - broken).max()) / scale
    good = most <= allowed and other > 10 * allowed
    if not good:
        FAILED.append(recipe)
    print(f"{'ok    ' if good else 'FAILED'}  {form:18} {recipe:52} largest difference {most:.2e} of the logits' standard deviation; "
          f"damaged {other:.2f}", flush=True)


def main():
    global OPTIONS
    p = argparse.ArgumentParser(prog="./dev bench export", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--qdyno", required=True, help=argparse.SUPPRESS)
    p.add_argument("--only", default="", help="forms whose name contains this")
    OPTIONS = p.parse_args()
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    for name in ("compressed_tensors", "gptqmodel"):
        try:
            versions[name] = getattr(__import__(name), "__version__", "?")
        except Exception as reason:
            versions[name] = f"missing ({type(reason).__name__}: {str(reason)[:80]})"
    print(json.dumps(versions), flush=True)
    with tempfile.TemporaryDirectory() as base:
        make_checkpoint(os.path.join(base, "source"), OPTIONS.qdyno)
        for form, recipe in CASES:
            if OPTIONS.only in form:
                check(OPTIONS.qdyno, base, form, recipe)
    sys.exit(1 if FAILED else 0)


main()
