"""Make golden.json: a small Unigram vocabulary, and the ids that the package `tokenizers` (0.23.3) gives a
few texts with nine combinations of normalizer, pre-tokenizer and byte_fallback.

usage: python make.py > golden.json
(in a virtual environment with tokenizers, sentencepiece and protobuf; text: the README)"""
import io
import json
import os
import random
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, models
from tokenizers import normalizers as N
from tokenizers import pre_tokenizers as P
from tokenizers import trainers

here = os.path.dirname(os.path.abspath(__file__))
lines = open(os.path.join(here, "../../../README.md")).read().split("\n")[:60]
lines += ["Größe café 日本語のテキスト", "Привет мир 1234 567"] * 3


def charsmap(rules):
    """SentencePiece's table of these replacements."""
    model, proto = io.BytesIO(), sentencepiece_model_pb2.ModelProto()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as f:
        f.writelines(" ".join("%X" % ord(c) for c in a) + "\t" + " ".join("%X" % ord(c) for c in b) + "\n" for a, b in rules)
        f.flush()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=model, vocab_size=120, hard_vocab_limit=False,
            normalization_rule_tsv=f.name, minloglevel=2,
        )
    proto.ParseFromString(model.getvalue())
    return proto.normalizer_spec.precompiled_charsmap


RULES = [("Ａ", "a"), ("\ufb01", "fi"), ("\t", " "), ("e\u0301", "é"), ("\u0301", ""), ("\r", " "), ("☃", "snow"), ("ﾞ", "\u3099")]
CONFIGS = {
    "charsmap": (
        N.Sequence([N.Precompiled(charsmap(RULES)), N.Strip(left=False, right=True), N.Replace(Regex(" {2,}"), "▁")]),
        P.Metaspace(prepend_scheme="always", split=True),
        False,
    ),
    "split": (None, P.Metaspace(prepend_scheme="always", split=True), False),
    "first": (None, P.Metaspace(prepend_scheme="first", split=True), True),
    "whole": (None, P.Metaspace(prepend_scheme="always", split=False), True),
    "never": (N.Replace(" ", "▁"), P.Metaspace(prepend_scheme="never", split=True), True),
    "prepend": (N.Sequence([N.Prepend("▁"), N.Replace(" ", "▁")]), None, False),
    "strip": (
        N.Sequence([N.Strip(left=False, right=True), N.Replace(Regex(" {2,}"), "▁")]),
        P.Metaspace(prepend_scheme="always", split=True),
        False,
    ),
    "spaces": (
        N.Sequence([N.Replace(Regex(r"\A +| +\z"), ""), N.Replace(Regex(" {2,}"), " "), N.Replace(" ", "▁")]),
        P.Metaspace(prepend_scheme="always", split=False),
        True,
    ),
    "digits": (
        N.Strip(),
        P.Sequence([P.Metaspace(prepend_scheme="always", split=True), P.Digits(individual_digits=True)]),
        True,
    ),
}
TEXTS = ["model format", "", " ", "  two  spaces   ", "\n\n line\n", "1234 567", "テキスト日", "no ☃☃ there ☃", "☃", "é🙂"]
TEXTS += ["<0x0A> text", "a<s>b </s> c", "▁one ▁two", " ▁x", "\u00a0a\u3000b ", "<unk>", "<x> the <x>end", "  <x>  "]
TEXTS += ["\ufb01le Ａ\tb e\u0301 \u0301", "a\r\nb", "e\u0301\u0301\u0301\u0301 x\uff9e\u0308", "é\u0301 \U0001f1e9\U0001f1ea e\u0301"]
random.seed(5)
TEXTS += ["".join(random.choice("abcde  \n1▁é日☃🙂<>sx0A") for _ in range(random.randint(1, 24))) for _ in range(8)]

trained = Tokenizer(models.Unigram())
trained.pre_tokenizer = P.Metaspace()
trained.train_from_iterator(
    lines,
    trainers.UnigramTrainer(
        vocab_size=180, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False, max_piece_length=8
    ),
)
vocab = [[p, round(s, 5)] for p, s in json.loads(trained.to_str())["model"]["vocab"]]
out = {"vocab": vocab, "texts": TEXTS, "configs": []}
for name, (normalizer, pre_tokenizer, fallback) in CONFIGS.items():
    pieces = vocab + [["<0x%02X>" % i, -20.0] for i in range(256)] * fallback
    t = Tokenizer(models.Unigram([(p, s) for p, s in pieces], unk_id=0, byte_fallback=fallback))
    if normalizer:
        t.normalizer = normalizer
    if pre_tokenizer:
        t.pre_tokenizer = pre_tokenizer
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in ("<unk>", "<s>", "</s>")])
    t.add_tokens([AddedToken("<x>", normalized=False)])
    saved = json.loads(t.to_str())
    out["configs"].append(
        {
            "name": name,
            "normalizer": saved["normalizer"],
            "pre_tokenizer": saved["pre_tokenizer"],
            "byte_fallback": fallback,
            "added_tokens": saved["added_tokens"],
            "ids": [t.encode(text, add_special_tokens=False).ids for text in TEXTS],
        }
    )
print(json.dumps(out, ensure_ascii=False, separators=(",", ":")))
