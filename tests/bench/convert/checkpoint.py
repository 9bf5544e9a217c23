"""Makes a random checkpoint of a family with its tokenizer, and computes its logits with transformers."""

import json
import os

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from families import VOCABULARY

# Tokens that some converters look up by name.
SPECIAL = "<s> </s> <pad> <unk> <|endoftext|> <|startoftext|> [gMASK] <|user|> <|observation|>".split()


def save_fast(folder, tokenizer):
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)


def write_bpe(folder, text):
    """tokenizer.json: byte-level BPE trained on a text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(text.splitlines(), trainer)
    save_fast(folder, tokenizer)


def write_spm(folder, text):
    """tokenizer.model: SentencePiece BPE with bytes for unknown characters, trained on a text."""
    import sentencepiece

    with open(os.path.join(folder, "tokenizer.model"), "wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(text.splitlines()),
            model_writer=file,
            vocab_size=VOCABULARY,
            model_type="bpe",
            byte_fallback=True,
            minloglevel=2,
        )
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump(
            {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}, file
        )


def write_bpe_with_bytes(folder, text):
    """tokenizer.json: BPE of characters, a lower line for a space and bytes for unknown characters, as Gemma 4 has."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence(steps)
    octets = [f"<0x{octet:02X}>" for octet in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL + octets, show_progress=False)
    tokenizer.train_from_iterator(text.splitlines(), trainer)
    saved = json.loads(tokenizer.to_str())
    saved["added_tokens"] = [token for token in saved["added_tokens"] if token["content"] in SPECIAL]
    save_fast(folder, Tokenizer.from_str(json.dumps(saved)))


TOKENIZERS = {"bpe": write_bpe, "spm": write_spm, "bpe with bytes": write_bpe_with_bytes}


def randomize(model, seed):
    """Draws matrices at a scale that keeps the size of rows, and moves every other value from where the class puts it.

    The classes' own initialization would leave biases at 0, norms at 1 and router scores nearly equal, so that a
    forgotten bias or norm went unnoticed.
    """
    torch.manual_seed(seed)
    seen = set()  # tied tensors are drawn once
    for value in model.state_dict().values():
        if not value.is_floating_point() or value.data_ptr() in seen:
            continue
        seen.add(value.data_ptr())
        if value.dim() < 2:
            value.add_(torch.randn_like(value) * 0.1)
        else:
            value.copy_(torch.randn_like(value) / value.shape[-1] ** 0.5)


def add_predictor(folder, layer):
    """Adds a multi-token predictor, which transformers leaves out, to the weights: a copy of `layer` and what joins it.

    The converters write it as a further layer, which must not change the answers.
    """
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    prefix = f"model.layers.{layer}."
    copies = {
        "mtp.layers.0." + name[len(prefix) :]: value.clone()
        for name, value in tensors.items()
        if name.startswith(prefix)
    }
    width = tensors["model.norm.weight"].shape[0]
    norms = {
        f"mtp.{name}.weight": torch.zeros(width) for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")
    }
    save_file({**tensors, **copies, **norms, "mtp.fc.weight": torch.randn(width, 2 * width)}, path, {"format": "pt"})


def make(family, folder, text, seed):
    """Writes config.json, weights and tokenizer into `folder`; returns the model in float32."""
    config = transformers.AutoConfig.for_model(family.model_type, **family.config)
    model = transformers.AutoModelForCausalLM.from_config(
        config, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    randomize(model, seed)
    model.save_pretrained(folder)
    if family.predictor >= 0:
        add_predictor(folder, family.predictor)
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        saved = {**json.load(file), **family.published}
    removed = {key for key, value in family.published.items() if value is None}
    with open(path, "w", encoding="utf-8") as file:
        json.dump({key: value for key, value in saved.items() if key not in removed}, file, indent=1)
    TOKENIZERS[family.tokenizer](folder, text)
    return model


def logits(model, ids):
    """float32 [ids][vocabulary]: row i holds the logits after ids 0..i."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids]), use_cache=False).logits[0].float().numpy().astype(numpy.float32)
