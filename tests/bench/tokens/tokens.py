#!/usr/bin/env python3
"""Compare ids and texts of tokenizer.json files with those of the library `tokenizers`, or of transformers.

Families: those of tokenizer-golden (--families FOLDER). Variants: made of three of them by changing one part
of tokenizer.json or of the files beside it. Each gets 400 texts, in both directions, with special tokens; a
variant that qdyno refuses must name the part. Needs the packages tokenizers and transformers:

    VENV/bin/python tests/bench/tokens/tokens.py --replay build-bench/bench/tokens/tokens_replay \\
        --families ../shared/data/tokenizer-golden
"""
import argparse
import copy
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

from transformers import PreTrainedTokenizerFast

PIECES = ["aq~zz", "q~", "Hello", "world", " the", " a", "it's", "DON'T", "you'LL", "12", "3456", "1234567", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", " \n ",
          "é", "e\u0301", "ñ", "n\u0303", "Å", "A\u030a", "ﬁ", "ſ", "K", "①", "½", "ＡＢ", "가", "\u1100\u1161", "日本語", "中文字符", "ひらがな", "한국어", "עברית",
          "العربية", "हिन्दी", "ไทย", "😀", "👨\u200d👩\u200d👧", "🇩🇪", "❤\ufe0f", "\u200b", "\u00a0", "\u2028", "\u3000", "\u0007", "\x7f", "\u0301", ">\u0338",
          "foo", "bar", "_x_", "a_b", "http://x.y/z?q=1", "def f(x):\n    return x", "!!!", "...", "—", "“q”", "$5.00", "100%", "#tag", "@me", "\\n", "▁", "▁▁x", "Ġ", "ﬀ", "ǆ", "İ", "ß"]


def texts(tokens, count, seed):
    r = random.Random(seed)
    fixed = ["", " ", "a", " a", "  a", "\n", "Hello world", "Hello <foo> bar", "<foo>", "x<foo>y", " <foo> ", "  <foo>  <foo>"] + tokens + ["a %s b" % t for t in tokens]
    out = fixed[:count]
    while len(out) < count:
        parts = [r.choice(PIECES if r.random() < 0.8 or not tokens else tokens) + (" " if r.random() < 0.4 else "") for _ in range(r.randint(1, 9))]
        text = "".join(parts)
        form = r.choice([None, None, "NFC", "NFD", "NFKC", "NFKD"])
        out.append(unicodedata.normalize(form, text) if form else text)
    return out


def write_model(folder, tokenizer, extra, vocab):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
              "num_attention_heads": 1, "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "vocab_size": vocab, "max_position_embeddings": 64,
              "hidden_act": "silu", "rope_theta": 10000.0, "tie_word_embeddings": True, "torch_dtype": "float32"}
    files = {"config.json": config, "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"}}
    files.update(extra)
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    shapes = {"model.embed_tokens.weight": [vocab, 32], "model.norm.weight": [32]}
    for n, s in {"self_attn.q_proj": [32, 32], "self_attn.k_proj": [32, 32], "self_attn.v_proj": [32, 32], "self_attn.o_proj": [32, 32], "mlp.gate_proj": [32, 32],
                 "mlp.up_proj": [32, 32], "mlp.down_proj": [32, 32], "input_layernorm": [32], "post_attention_layernorm": [32]}.items():
        shapes["model.layers.0.%s.weight" % n] = s
    header, at = {}, 0
    for n, s in shapes.items():
        size = 4 * s[0] * (s[1] if len(s) > 1 else 1)
        header[n] = {"dtype": "F32", "shape": s, "data_offsets": [at, at + size]}
        at += size
    h = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(h)) + h + bytes(at))


def token(i, content, **flags):
    t = {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    t.update(flags)
    return t


def variants(byte, spm, gemma):
    """Yields (name, tokenizer, files beside it)."""
    def change(base, **parts):
        t = copy.deepcopy(base)
        t.update(parts)
        return t

    def added(base, *flags):
        t = copy.deepcopy(base)
        n = max([v for v in t["model"]["vocab"].values()] + [a["id"] for a in t["added_tokens"]]) + 1
        for i, (content, f) in enumerate(flags):
            t["added_tokens"].append(token(n + i, content, **f))
        return t

    def config(**parts):
        return {"tokenizer_config.json": dict({"tokenizer_class": "PreTrainedTokenizerFast"}, **parts)}

    decoder = lambda base, content, **f: config(added_tokens_decoder={str(max([v for v in base["model"]["vocab"].values()] + [a["id"] for a in base["added_tokens"]]) + 1): {k: v for k, v in token(0, content, **f).items() if k != "id"}})
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        yield "normalizer " + form, change(byte, normalizer={"type": form}), {}
    yield "normalizer null", change(byte, normalizer=None), {}
    yield "normalizer Sequence NFKC Replace", change(byte, normalizer={"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Replace", "pattern": {"String": "foo"}, "content": "bar"}]}), {}
    yield "normalizer Replace Regex", change(byte, normalizer={"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": " "}), {}
    yield "normalizer Strip", change(byte, normalizer={"type": "Strip", "strip_left": True, "strip_right": True}), {}
    yield "normalizer Lowercase", change(byte, normalizer={"type": "Lowercase"}), {}
    yield "normalizer StripAccents", change(byte, normalizer={"type": "StripAccents"}), {}
    for name, base in (("bytes", byte), ("prepend", spm), ("replace", gemma)):
        yield name + ": token normalized", added(base, ("<foo>", {"normalized": True})), {}
        yield name + ": token special normalized", added(base, ("<foo>", {"normalized": True, "special": True})), {}
        yield name + ": token lstrip", added(base, ("<foo>", {"lstrip": True})), {}
        yield name + ": token rstrip normalized", added(base, ("<foo>", {"rstrip": True, "normalized": True})), {}
        yield name + ": token single_word", added(base, ("foo", {"single_word": True})), {}
        yield name + ": tokens overlap", added(base, ("aq~", {}), ("q~zz", {}), ("q~", {})), {}
        yield name + ": added_tokens_decoder", base, decoder(base, "<foo>", special=True)
        yield name + ": added_tokens_decoder lstrip", base, decoder(base, "<foo>", lstrip=True)
        yield name + ": added_tokens.json", base, {"added_tokens.json": {"<foo>": 4000}}
    first = byte["added_tokens"][0]["content"]
    yield "flags changed by added_tokens_decoder", byte, config(added_tokens_decoder={str(byte["added_tokens"][0]["id"]): {k: v for k, v in token(0, first, lstrip=True, special=True).items() if k != "id"}})
    yield "additional_special_tokens", byte, config(additional_special_tokens=["<foo>", "<bar>"])
    yield "special_tokens_map.json", byte, {"special_tokens_map.json": {"additional_special_tokens": ["<foo>"], "pad_token": "<pad>"}}
    yield "pad_token", byte, config(pad_token="<foo>")
    yield "pad_token object", byte, config(pad_token=dict(token(0, "<foo>", lstrip=True), __type="AddedToken"))
    yield "post-processor null", change(byte, post_processor=None), {}
    ids = {a["content"]: a["id"] for a in spm["added_tokens"]}
    yield "post-processor other ids", change(spm, post_processor={"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "X", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"X": {"id": "X", "ids": [2], "tokens": ["</s>"]}}}), {}
    yield "post-processor two ids", change(spm, post_processor={"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "X", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"X": {"id": "X", "ids": [2, 1], "tokens": ["</s>", "<s>"]}}}), {}
    yield "post-processor Roberta", change(byte, post_processor={"type": "RobertaProcessing", "sep": ["z", 1201], "cls": ["y", 1200], "trim_offsets": True, "add_prefix_space": False}), {}
    yield "post-processor Bert", change(byte, post_processor={"type": "BertProcessing", "sep": ["z", 1201], "cls": ["y", 1200]}), {}
    yield "post-processor Sequence", change(byte, post_processor={"type": "Sequence", "processors": [{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}, {"type": "BertProcessing", "sep": ["z", 1201], "cls": ["y", 1200]}]}), {}
    yield "decoder Fuse", change(spm, decoder={"type": "Fuse"}), {}
    yield "decoder without Strip", change(spm, decoder={"type": "Sequence", "decoders": spm["decoder"]["decoders"][:3]}), {}
    yield "decoder Strip 2", change(spm, decoder={"type": "Sequence", "decoders": spm["decoder"]["decoders"][:3] + [{"type": "Strip", "content": " ", "start": 2, "stop": 0}]}), {}
    yield "decoder Metaspace", change(spm, decoder={"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}]}), {}
    for scheme in ("always", "first", "never"):
        yield "Metaspace " + scheme, change(spm, normalizer=None, pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False},
                                            decoder={"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": False}]}), {}
    yield "Metaspace first, token normalized", added(change(spm, normalizer=None, pre_tokenizer={"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}), ("<foo>", {"normalized": True})), {}
    yield "Split MergedWithNext", change(byte, pre_tokenizer={"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "MergedWithNext", "invert": False}, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]}), {}
    yield "byte level with prefix space", change(byte, pre_tokenizer={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}), {}


class Replay:
    def __init__(self, path):
        self.p = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, q):
        self.p.stdin.write(json.dumps(q) + "\n")
        self.p.stdin.flush()
        line = self.p.stdout.readline()
        if not line:
            raise SystemExit("tokens_replay ended at %r" % (q,))
        return json.loads(line)


def compare(replay, name, folder, count, show):
    """Returns (differences, refusal)."""
    answer = replay.ask({"model": str(folder)})
    if "error" in answer:
        return 0, answer["error"]
    ref = PreTrainedTokenizerFast.from_pretrained(str(folder))
    backend = ref.backend_tokenizer
    tokens = [t.content for t in ref.added_tokens_decoder.values()]
    bad = 0
    for text in texts(sorted(set(tokens))[:40], count, name):
        for special in (False, True):
            want = backend.encode(text, add_special_tokens=special).ids
            got = replay.ask({"encode": text, "special": True, "frame": special}).get("ids")
            if got != want:
                bad += 1
                if bad <= show:
                    print("%s: encode %r\n  want %s\n  got  %s" % (name, text, [(i, backend.id_to_token(i)) for i in want], got and [(i, backend.id_to_token(i)) for i in got]))
        # The library prints special tokens that replacements change even where they are to be skipped; we skip them.
        for skip in (False, True)[:1 if "special normalized" in name else 2]:
            back = backend.decode(want, skip_special_tokens=skip)
            got = bytes.fromhex(replay.ask({"decode": want, "special": not skip}).get("hex", "")).decode("utf-8", "replace")
            if got != back:
                bad += 1
                if bad <= show:
                    print("%s: decode %s (skip special: %s)\n  want %r\n  got  %r" % (name, [backend.id_to_token(i) for i in want], skip, back, got))
    return bad, None


def golden(folder):
    """Variants as changes of a base, with ids and texts."""
    out = []
    bases = {n: json.loads((folder / (n + ".json")).read_text()) for n in ("bytes", "prepend")}
    gemma = dict(bases["prepend"], normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
                 decoder=dict(bases["prepend"]["decoder"], decoders=bases["prepend"]["decoder"]["decoders"][:3]))
    with tempfile.TemporaryDirectory() as work:
        for i, (name, tokenizer, extra) in enumerate(variants(bases["bytes"], bases["prepend"], gemma)):
            base = next(n for n in bases if bases[n]["model"] == tokenizer["model"])
            parts = {k: v for k, v in tokenizer.items() if v != bases[base].get(k)}
            model = pathlib.Path(work) / str(i)
            write_model(model, tokenizer, extra, 1470)
            ref = PreTrainedTokenizerFast.from_pretrained(str(model))
            cases = []
            for text in texts(sorted(t.content for t in ref.added_tokens_decoder.values())[:4], 36, name):
                ids = ref.backend_tokenizer.encode(text).ids
                cases.append([text, ids, ref.backend_tokenizer.decode(ids, skip_special_tokens=False)])
            out.append({"name": name, "base": base, "parts": parts, "files": extra, "cases": cases})
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replay", required=True)
    parser.add_argument("--families", required=True)
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--show", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--golden", help="write variants of the tokenizers in its folder to this file (a test reads it)")
    a = parser.parse_args()
    if a.golden:
        path = pathlib.Path(a.golden)
        path.write_text("[\n" + ",\n".join(json.dumps(v, ensure_ascii=False) for v in golden(path.parent)) + "\n]\n")
        return 0
    replay, total = Replay(a.replay), {"same": 0, "refused": 0, "different": 0}
    load = lambda n: json.loads((pathlib.Path(a.families) / n / "tokenizer.json").read_text())
    names = sorted(p.parent.name for p in pathlib.Path(a.families).glob("*/tokenizer.json"))
    cases = [("family " + n, load(n), {}) for n in names]
    cases += list(variants(load("qwen2"), load("llama2-spm"), load("gemma4")))
    with tempfile.TemporaryDirectory() as work:
        for i, (name, tokenizer, extra) in enumerate(cases):
            if a.only not in name:
                continue
            folder = pathlib.Path(work) / str(i)
            write_model(folder, tokenizer, extra, 1470)
            bad, refusal = compare(replay, name, folder, a.texts, a.show)
            kind = "refused" if refusal else "different" if bad else "same"
            total[kind] += 1
            print("%-50s %s" % (name, "refused: " + refusal.replace(str(folder), "") if refusal else "%d differences" % bad), flush=True)
    print(", ".join("%s: %d" % i for i in total.items()))
    return 1 if total["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
