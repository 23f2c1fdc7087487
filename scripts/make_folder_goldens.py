#!/usr/bin/env python3
"""Makes model folders that state the same facts in different places, and what transformers makes of each.

  python3 scripts/make_folder_goldens.py --all FILE     (needs torch, transformers 5.24, tiktoken, sentencepiece, protobuf)

Written are, for tests/engine/runtime/folder_test.cc: the files of a few small folders, variants of them as edits of files
and tensors, and for each variant the ids, logits and stop tokens of transformers, or why it refuses the folder. Tensors
are in no file: both sides compute them (`element`). --keep FOLDER leaves the variants there.
"""
import argparse
import base64
import copy
import json
import logging
import os
import shutil
import struct
import tempfile
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
import numpy as np
import sentencepiece.sentencepiece_model_pb2 as sentencepiece_model
import torch
import transformers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROWS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER = 320, 32, 4, 2, 8, 48
TOKENS = [5, 97, 3, 250, 17, 300, 64, 64, 128, 9, 201, 77, 0, 45]
TEXTS = ["a<image>b", "<s>the thing</s>", " in the <tool> x<tool>", "the<|im_start|>the <|im_end|>\n", "<unk><pad><new> z", "  two  the",
         "na\u00efve the\u0301 <image> <|end|> 12", "<s> <|reserved_token_301|><|begin|>the", "x<wide> y <wide>z", "a b"]


# --- weights ---------------------------------------------------------------------------------------------------------

def element(name, count):
    """Numbers that bfloat16, float16 and float32 hold exactly: multiples of 1/256 up to 1/4, near 1 for norms."""
    seed = 2166136261
    for byte in name.encode():
        seed = (seed ^ byte) * 16777619 & 0xFFFFFFFF
    x = (np.arange(count, dtype=np.uint64) + np.uint64(seed)) * np.uint64(2654435761) & np.uint64(0xFFFFFFFF)
    x = (x ^ (x >> np.uint64(15))) * np.uint64(2246822519) & np.uint64(0xFFFFFFFF)
    values = ((x >> np.uint64(20)).astype(np.float64) % 128 - 64) / 256
    return (values + (1 if "norm" in name else 0)).astype(np.float32)


def tensors_of(shape):
    """Names and shapes of a base's tensors, as its `model` says."""
    h, q, kv, d = HIDDEN, HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, HEAD_DIM
    all_ = {"model.embed_tokens.weight": [ROWS, h], "model.norm.weight": [h]}
    if not shape.get("tied"):
        all_["lm_head.weight"] = [ROWS, h]
    for i in range(shape.get("layers", 1)):
        p = f"model.layers.{i}."
        all_.update({p + "input_layernorm.weight": [h], p + "self_attn.q_proj.weight": [q, h], p + "self_attn.k_proj.weight": [kv, h],
                     p + "self_attn.v_proj.weight": [kv, h], p + "self_attn.o_proj.weight": [h, q],
                     p + "post_attention_layernorm.weight": [h], p + "mlp.gate_proj.weight": [INNER, h],
                     p + "mlp.up_proj.weight": [INNER, h], p + "mlp.down_proj.weight": [h, INNER]})
        if shape["family"] == "qwen2":
            all_.update({p + "self_attn.q_proj.bias": [q], p + "self_attn.k_proj.bias": [kv], p + "self_attn.v_proj.bias": [kv]})
        if shape["family"] == "qwen3":
            all_.update({p + "self_attn.q_norm.weight": [d], p + "self_attn.k_norm.weight": [d]})
    return all_


DTYPES = {"F32": (torch.float32, 4), "F16": (torch.float16, 2), "BF16": (torch.bfloat16, 2), "F64": (torch.float64, 8)}


def write_weights(folder, shape, edits):
    tensors = {name: ["F32", dims, element(name, int(np.prod(dims))).tolist()] for name, dims in tensors_of(shape).items()}
    for edit in edits:
        name = edit["tensor"]
        for match in [n for n in tensors if n == name or name == "*"]:
            if edit.get("remove"):
                del tensors[match]
            if "dtype" in edit:
                tensors[match][0] = edit["dtype"]
            if "shape" in edit:
                tensors[match][1] = edit["shape"]
                tensors[match][2] = element(match, int(np.prod(edit["shape"]))).tolist()
            if "rename" in edit:
                tensors[edit["rename"]] = tensors.pop(match)
        if "like" in edit:
            tensors[name] = copy.deepcopy(tensors[edit["like"]])
        if "new" in edit:
            tensors[name] = ["F32", edit["new"], element(name, int(np.prod(edit["new"]))).tolist()]
    header, body = {}, b""
    for name in sorted(tensors):
        dtype, dims, values = tensors[name]
        raw = torch.tensor(values, dtype=DTYPES[dtype][0]).contiguous().view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": dtype, "shape": dims, "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + body)


# --- folders ---------------------------------------------------------------------------------------------------------

def byte_characters():
    prints = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    table, n = {}, 0
    for b in range(256):
        table[b] = chr(b) if b in prints else chr(256 + n)
        n += b not in prints
    return table


CHARACTER = byte_characters()
MERGES = [("t", "h"), ("th", "e"), ("\u0120", "the"), ("i", "n"), ("\u0120", "in"), ("\u0120", "\u0120"), ("e", "r"), ("1", "2")]


def vocabulary(extra=()):
    vocab = {CHARACTER[b]: b for b in range(256)}
    for a, b in MERGES:
        vocab[a + b] = len(vocab)
    for text in extra:
        vocab[text] = len(vocab)
    return vocab


def token(text, special=True, **flags):
    return {"content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": not special, "special": special, **flags}


def typed(text, **flags):
    return {"__type": "AddedToken", **token(text, **flags)}


def byte_level_json(specials, extra=(), words=None, bos=None):
    vocab = vocabulary(extra)
    regex = {"type": "Split", "pattern": {"Regex": words or LLAMA3}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    post = None
    if bos:
        at = len(vocab) + specials.index(bos)
        post = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {bos: {"id": bos, "ids": [at], "tokens": [bos]}}}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": len(vocab) + i, **token(s)} for i, s in enumerate(specials)],
            "normalizer": None, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [regex, level]}, "post_processor": post,
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab, "merges": [f"{a} {b}" for a, b in MERGES]}}


LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPACE = "\u2581"
PIECE_MERGES = ["th", "the", SPACE + "the", "in", SPACE + "in", "er", SPACE + SPACE]


def sentencepiece_model_bytes(kind="bpe", user_defined=(), control=(), prefix=True, removes=False, descending=True, bos=1):
    m = sentencepiece_model.ModelProto()

    def add(text, score, type_):
        piece = m.pieces.add()
        piece.piece, piece.score, piece.type = text, score, type_
    for text, type_ in (("<unk>", 2), ("<s>", 3), ("</s>", 3)):
        add(text, 0, type_)
    for b in range(256):
        add(f"<0x{b:02X}>", 0, 6)
    for text in control:
        add(text, 0, 3)
    for text in user_defined:
        add(text, 0, 4)
    score = 0
    for i, text in enumerate(PIECE_MERGES):
        add(text, -float(i if descending else len(PIECE_MERGES) - i), 1)
        score += 1
    for c in SPACE + "thenrixyzab12":
        add(c, -float(score), 1)
        score += 1
    m.trainer_spec.model_type = 2 if kind == "bpe" else 1
    m.trainer_spec.byte_fallback = True
    m.trainer_spec.vocab_size = len(m.pieces)
    m.trainer_spec.unk_id, m.trainer_spec.bos_id, m.trainer_spec.eos_id, m.trainer_spec.pad_id = 0, bos, 2, -1
    m.normalizer_spec.name = "identity"
    m.normalizer_spec.add_dummy_prefix = prefix
    m.normalizer_spec.remove_extra_whitespaces = removes
    m.normalizer_spec.escape_whitespaces = True
    return m.SerializeToString()


def pieces_json(style, normalized=False):
    """The model above as tokenizer.json, in the older style (a normalizer) or with a Metaspace."""
    model = sentencepiece_model.ModelProto()
    model.ParseFromString(sentencepiece_model_bytes())
    vocab = {piece.piece: i for i, piece in enumerate(model.pieces)}
    merges = [(text[:i], text[i:]) for text in PIECE_MERGES for i in range(1, len(text)) if text[:i] in vocab and text[i:] in vocab]
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    metaspace = {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": style, "split": False}
    post = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [{"id": i, **token(t), "normalized": normalized} for i, t in enumerate(["<unk>", "<s>", "</s>"])],
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, spaces]} if style == "old" else
                          spaces if style == "bare" else None,
            "pre_tokenizer": None if style in ("old", "bare") else metaspace, "post_processor": post,
            "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"},
                                                         {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
                      "fuse_unk": True, "byte_fallback": True, "ignore_merges": False, "vocab": vocab, "merges": [f"{a} {b}" for a, b in merges]}}


def tiktoken_text():
    tokens = [bytes([b]) for b in range(256)] + [bytes(next(k for k, v in CHARACTER.items() if v == c) for c in a + b) for a, b in MERGES]
    return "".join(f"{base64.b64encode(t).decode()} {i}\n" for i, t in enumerate(tokens))


def config(family, layers=1, **fields):
    classes = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
    c = {"architectures": [classes[family]], "model_type": family, "hidden_size": HIDDEN, "intermediate_size": INNER,
         "num_hidden_layers": layers, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM,
         "vocab_size": ROWS, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
         "tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": 2, "torch_dtype": "float32"}
    c.update(fields)
    return c


FOUR = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]


def bases():
    b64 = lambda raw: {"base64": base64.b64encode(raw).decode()}
    decoder = {str(264 + i): token(t) for i, t in enumerate(FOUR)}
    return {
        "llama": {"model": {"family": "llama"}, "files": {
            "config.json": config("llama"), "tokenizer.json": byte_level_json(FOUR, ["<image>", "<tool>"], bos="<s>"),
            "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}}},
        "tied": {"model": {"family": "llama", "tied": True}, "files": {
            "config.json": config("llama", tie_word_embeddings=True),
            "tokenizer.json": byte_level_json(FOUR), "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"}}},
        "layers": {"model": {"family": "qwen2", "layers": 2}, "files": {
            "config.json": config("qwen2", layers=2), "tokenizer.json": byte_level_json(FOUR),
            "tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer"}}},
        "qwen2": {"model": {"family": "qwen2"}, "files": {
            "config.json": config("qwen2"), "vocab.json": vocabulary(), "merges.txt": "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in MERGES),
            "tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": decoder, "eos_token": "<|im_end|>",
                                      "pad_token": "</s>", "unk_token": None, "bos_token": None}}},
        "qwen3": {"model": {"family": "qwen3", "tied": True}, "files": {
            "config.json": config("qwen3", tie_word_embeddings=True), "tokenizer.json": byte_level_json(FOUR),
            "tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "</s>", "unk_token": None}}},
        "pieces": {"model": {"family": "llama"}, "files": {
            "config.json": config("llama"), "tokenizer.model": b64(sentencepiece_model_bytes()),
            "tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "bos_token": "<s>", "eos_token": "</s>",
                                      "unk_token": "<unk>"}}},
        "both": {"model": {"family": "llama"}, "files": {
            "config.json": config("llama"), "tokenizer.json": pieces_json("old"), "tokenizer.model": b64(sentencepiece_model_bytes(prefix=False)),
            "tokenizer_config.json": {"tokenizer_class": "LlamaTokenizer", "add_bos_token": False, "bos_token": "<s>", "eos_token": "</s>",
                                      "unk_token": "<unk>"}}},
        "ranks": {"model": {"family": "llama"}, "files": {
            "config.json": config("llama"), "tokenizer.model": tiktoken_text(),
            "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "add_bos_token": True,
                                      "added_tokens_decoder": decoder}}},
    }


# What transformers reads and Tandem refuses: other families' kinds of layers, types and tokenizers, a damaged file, and a
# tiktoken file without special tokens.
UNSUPPORTED = ("longrope", "gelu", "qwen3: sliding window$", "layer types sliding", " F64", "unigram", "generation damaged",
               "pieces: class Qwen2", "pieces: class GPT2", "ranks: class Qwen2", "ranks: no tokenizer_config.json", "ranks: class GPT2")


class Variants:
    def __init__(self):
        self.all = []
        self.seen = set()
        self.shared = []  # files of several variants, in base64

    def add(self, base, name, edits=(), weights=(), unsupported=False):
        """`edits`: (file, JSON patch), (file, text) or (file, None) to remove it."""
        full = f"{base}: {name}"
        assert full not in self.seen, full
        self.seen.add(full)
        entry = {"name": full, "base": base, "edits": [], "weights": list(weights)}
        if unsupported or any(mark in full + "$" for mark in UNSUPPORTED):
            entry["unsupported"] = True
        for file, what in edits:
            if what is None:
                entry["edits"].append({"file": file, "remove": True})
            elif isinstance(what, list):
                entry["edits"].append({"file": file, "patch": what})
            elif isinstance(what, bytes):
                raw = base64.b64encode(what).decode()
                if raw not in self.shared:
                    self.shared.append(raw)
                entry["edits"].append({"file": file, "shared": self.shared.index(raw)})
            else:
                entry["edits"].append({"file": file, "text": what if isinstance(what, str) else json.dumps(what)})
        self.all.append(entry)


def put(**fields):
    return [{"op": "add", "path": "/" + k, "value": v} for k, v in fields.items()]


def drop(*fields):
    return [{"op": "remove", "path": "/" + k} for k in fields]


TC, CJ, TJ, GC = "tokenizer_config.json", "config.json", "tokenizer.json", "generation_config.json"


def special_token_variants(v):
    forms = {
        "extra list": (TC, put(extra_special_tokens=["<image>"])),
        "extra dict": (TC, put(extra_special_tokens={"image_token": "<image>"})),
        "extra typed": (TC, put(extra_special_tokens=[typed("<image>")])),
        "extra dict typed": (TC, put(extra_special_tokens={"image_token": typed("<image>")})),
        "additional list": (TC, put(additional_special_tokens=["<image>"])),
        "additional typed": (TC, put(additional_special_tokens=[typed("<image>")])),
        "named": (TC, put(image_token="<image>")),
        "named typed": (TC, put(image_token=typed("<image>"))),
        "named typed plain": (TC, put(image_token=typed("<image>", special=False))),
        "specific": (TC, put(model_specific_special_tokens={"image_token": "<image>"})),
        "pad": (TC, put(pad_token="<image>")),
        "mask typed": (TC, put(mask_token=typed("<image>", special=False))),
        "map pad": ("special_tokens_map.json", {"pad_token": "<image>"}),
        "map pad object": ("special_tokens_map.json", {"pad_token": {"content": "<image>", "lstrip": False, "rstrip": False, "normalized": False,
                                                                     "single_word": False}}),
        "map additional": ("special_tokens_map.json", {"additional_special_tokens": ["<image>"]}),
        "map extra": ("special_tokens_map.json", {"extra_special_tokens": ["<image>"]}),
        "map extra objects": ("special_tokens_map.json", {"extra_special_tokens": [token("<image>")]}),
        "map extra dict": ("special_tokens_map.json", {"extra_special_tokens": {"image_token": "<image>"}}),
        "map named": ("special_tokens_map.json", {"image_token": "<image>"}),
    }
    for base in ("llama", "qwen2", "qwen3", "pieces", "ranks"):
        for name, edit in forms.items():
            v.add(base, name, [edit])
    for base in ("llama", "pieces"):
        for flags in ({"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True}, {"single_word": True}, {"normalized": True}):
            for special in (True, False):
                t = token("<wide>", special=special, **flags)
                if "normalized" not in flags:
                    t["normalized"] = False
                v.add(base, f"decoder {'special' if special else 'plain'} {'+'.join(flags)}", [(TC, put(added_tokens_decoder={"270": t}))])
    for base in ("llama", "qwen2", "qwen3", "pieces", "ranks"):
        v.add(base, "decoder with other ids", [(TC, put(added_tokens_decoder={"5": token("<new>"), "300": token("<pad>", special=False)}))])
        v.add(base, "decoder empty", [(TC, put(added_tokens_decoder={}))])
        v.add(base, "decoder null", [(TC, put(added_tokens_decoder=None))])
        v.add(base, "decoder of texts", [(TC, put(added_tokens_decoder={"270": "<new>"}))])
        v.add(base, "added_tokens.json", [(TC, drop("added_tokens_decoder")) if base in ("qwen2", "ranks") else (TC, []),
                                          ("added_tokens.json", {"<new>": 271, "<pad>": 270, "<image>": 280}), (TC, put(pad_token="<pad>"))])
        v.add(base, "no tokenizer_config.json", [(TC, None)])
        v.add(base, "bos_token object without type", [(TC, put(bos_token=token("<s>")))])
        v.add(base, "bos_token typed", [(TC, put(bos_token=typed("<s>")))])
        v.add(base, "bos_token null", [(TC, put(bos_token=None))])
        v.add(base, "add_bos_token", [(TC, put(add_bos_token=True))])
        v.add(base, "no add_bos_token", [(TC, put(add_bos_token=False))])
        v.add(base, "extra objects without type", [(TC, put(extra_special_tokens=[token("<image>")]))])
        v.add(base, "extra is a text", [(TC, put(extra_special_tokens="<image>"))])
        v.add(base, "extra and additional", [(TC, put(extra_special_tokens=["<image>"], additional_special_tokens=["<tool>"]))])
        v.add(base, "extra empty and additional", [(TC, put(extra_special_tokens=[], additional_special_tokens=["<tool>"]))])
        v.add(base, "class LlamaTokenizerFast", [(TC, put(tokenizer_class="LlamaTokenizerFast"))])
        v.add(base, "class Qwen2TokenizerFast", [(TC, put(tokenizer_class="Qwen2TokenizerFast"))])
        v.add(base, "class GPT2Tokenizer", [(TC, put(tokenizer_class="GPT2Tokenizer"))])
        v.add(base, "class TokenizersBackend", [(TC, put(tokenizer_class="TokenizersBackend"))])
        v.add(base, "class missing", [(TC, drop("tokenizer_class"))])
        v.add(base, "class in config.json", [(TC, drop("tokenizer_class")), (CJ, put(tokenizer_class="LlamaTokenizer"))])
    v.add("llama", "tokenizer.json names another id", [(TJ, [{"op": "replace", "path": "/added_tokens/3/id", "value": 290}])])
    v.add("llama", "tokenizer.json plain token", [(TJ, [{"op": "add", "path": "/added_tokens/-", "value": {"id": 270, **token("<tool>", special=False)}}])])
    v.add("llama", "kinds differ", [(TC, put(added_tokens_decoder={"268": token("<|im_start|>", special=False, lstrip=True)}))])
    v.add("llama", "beyond the rows", [(TC, put(added_tokens_decoder={str(270 + i): token(f"<fill{i}>") for i in range(49)} | {"319": token("<new>")}))])
    v.add("pieces", "legacy", [(TC, put(legacy=True))])
    v.add("pieces", "no prefix space", [(TC, put(add_prefix_space=False))])
    v.add("pieces", "legacy without prefix space", [(TC, put(add_prefix_space=False, legacy=True))])
    v.add("pieces", "backend not legacy", [(TC, put(tokenizer_class="PreTrainedTokenizerFast", legacy=False))])
    for kind in ("LlamaTokenizer", "PreTrainedTokenizerFast"):
        own = [(TC, put(tokenizer_class=kind))]
        model = lambda **k: [("tokenizer.model", sentencepiece_model_bytes(**k))] + own
        v.add("pieces", f"user-defined pieces, {kind}", model(user_defined=["<image>", "the<"]))
        v.add("pieces", f"control pieces, {kind}", model(control=["<image>", "<tool>"]))
        v.add("pieces", f"control pieces and extra, {kind}", model(control=["<image>"]) + [(TC, put(extra_special_tokens=["<tool>"]))])
        v.add("pieces", f"user-defined pieces and extra, {kind}", model(user_defined=["<image>"]) + [(TC, put(extra_special_tokens=["<tool>"]))])
        v.add("pieces", f"model without prefix, {kind}", model(prefix=False))
        v.add("pieces", f"model removes spaces, {kind}", model(removes=True))
        v.add("pieces", f"scores out of order, {kind}", model(descending=False))
        v.add("pieces", f"unigram, {kind}", model(kind="unigram"))
        v.add("pieces", f"placeholder renamed, {kind}", model(control=["<unused0>"]) + [(TC, put(added_tokens_decoder={"259": token("<image>")}))])
        v.add("pieces", f"listed tokens, {kind}", own + [(TC, put(added_tokens_decoder={
            "0": token("<unk>"), "1": token("<s>"), "2": token("</s>"), "300": token("<tool>", special=False)}))])
    v.add("both", "no tokenizer.model", [("tokenizer.model", None)])
    for style in ("old", "bare", "always", "first", "never"):
        for kind in ("LlamaTokenizer", "PreTrainedTokenizerFast"):
            for normalized in (False, True):
                other = pieces_json(style, normalized=normalized)
                v.add("both", f"{style}, {kind}{', normalized tokens' if normalized else ''}", [
                    (TJ, put(**{field: other[field] for field in ("normalizer", "pre_tokenizer", "added_tokens")})), (TC, put(tokenizer_class=kind))])
    for name, fields in (("legacy", {"legacy": True}), ("no prefix space", {"add_prefix_space": False}), ("extra list", {"extra_special_tokens": ["<image>"]}),
                         ("decoder", {"added_tokens_decoder": {"1": token("<s>", lstrip=True), "300": token("<tool>", special=False)}}),
                         ("decoder empty", {"added_tokens_decoder": {}}), ("pad", {"pad_token": "<pad>"})):
        for kind in ("LlamaTokenizer", "PreTrainedTokenizerFast"):
            v.add("both", f"{name}, {kind}", [(TC, put(tokenizer_class=kind, **fields))])
    v.add("both", "no template", [(TJ, put(post_processor=None))])
    v.add("both", "class missing", [(TC, drop("tokenizer_class"))])
    v.add("both", "no tokenizer_config.json", [(TC, None)])
    v.add("both", "a merge missing", [(TJ, [{"op": "remove", "path": "/model/merges/2"}])], unsupported=True)


def config_variants(v):
    both = ("llama", "qwen3")
    for base in both:
        put_rope = lambda **r: put(rope_parameters=r)
        llama3 = {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
        yarn = {"factor": 4.0, "original_max_position_embeddings": 32}
        v.add(base, "theta inside", [(CJ, drop("rope_theta") + put_rope(rope_type="default", rope_theta=500.0))])
        v.add(base, "theta beside", [(CJ, put(rope_theta=500.0))])
        v.add(base, "theta in both, different", [(CJ, put(rope_theta=700.0) + put_rope(rope_type="default", rope_theta=500.0))])
        v.add(base, "no theta", [(CJ, drop("rope_theta"))])
        v.add(base, "theta null", [(CJ, put(rope_theta=None))])
        v.add(base, "scaling null", [(CJ, put(rope_scaling=None))])
        v.add(base, "scaling empty, parameters", [(CJ, put(rope_scaling={}) + put_rope(rope_type="default", rope_theta=500.0))])
        v.add(base, "old llama3", [(CJ, put(rope_scaling={"rope_type": "llama3", **llama3}))])
        v.add(base, "new llama3", [(CJ, drop("rope_theta") + put_rope(rope_type="llama3", rope_theta=500.0, **llama3))])
        v.add(base, "old and new differ", [(CJ, put(rope_scaling={"type": "yarn", **yarn}) + put_rope(rope_type="llama3", rope_theta=500.0, **llama3))])
        v.add(base, "old and new theta differ", [(CJ, put(rope_scaling={"type": "yarn", **yarn}) + put_rope(rope_type="yarn", rope_theta=500.0, **yarn))])
        v.add(base, "type and rope_type", [(CJ, put(rope_scaling={"type": "linear", "rope_type": "llama3", **llama3}))])
        v.add(base, "old yarn", [(CJ, put(rope_scaling={"type": "yarn", **yarn}))])
        v.add(base, "yarn without original", [(CJ, put(rope_scaling={"type": "yarn", "factor": 4.0}))])
        v.add(base, "yarn original beside", [(CJ, put(rope_scaling={"type": "yarn", **yarn}, original_max_position_embeddings=16))])
        v.add(base, "yarn factor null", [(CJ, put(rope_scaling={"type": "yarn", "factor": None, "original_max_position_embeddings": 32}))])
        v.add(base, "yarn without factor", [(CJ, put(rope_scaling={"type": "yarn", "original_max_position_embeddings": 32}))])
        v.add(base, "yarn options", [(CJ, put(rope_scaling={"type": "yarn", **yarn, "beta_fast": 16, "beta_slow": 2, "mscale": 0.7,
                                                            "mscale_all_dim": 0.5, "truncate": False}))])
        v.add(base, "yarn options null", [(CJ, put(rope_scaling={"type": "yarn", **yarn, "beta_fast": None, "beta_slow": 0, "mscale": None,
                                                                 "attention_factor": None}))])
        v.add(base, "yarn attention factor", [(CJ, put(rope_scaling={"type": "yarn", **yarn, "attention_factor": 0.8}))])
        v.add(base, "linear", [(CJ, put(rope_scaling={"type": "linear", "factor": 4.0}))])
        v.add(base, "linear new", [(CJ, put_rope(rope_type="linear", factor=2.0, rope_theta=500.0))])
        v.add(base, "dynamic", [(CJ, put(rope_scaling={"type": "dynamic", "factor": 4.0}))])
        v.add(base, "longrope", [(CJ, put(rope_scaling={"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "factor": 2.0,
                                                        "original_max_position_embeddings": 32}))])
        v.add(base, "unknown rope type", [(CJ, put(rope_scaling={"type": "spiral", "factor": 4.0}))])
        v.add(base, "default with a factor", [(CJ, put(rope_scaling={"type": "default", "factor": 4.0}))])
        v.add(base, "default with original", [(CJ, put_rope(rope_type="default", rope_theta=500.0, original_max_position_embeddings=32))])
        v.add(base, "llama3 lacks a field", [(CJ, put(rope_scaling={"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0}))])
        v.add(base, "llama3 without original", [(CJ, put(rope_scaling={"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}))])
        v.add(base, "factor below 1", [(CJ, put(rope_scaling={"rope_type": "linear", "factor": 0.5}))])
        v.add(base, "partial rotary 1", [(CJ, put(partial_rotary_factor=1.0))])
        v.add(base, "partial rotary default", [(CJ, put(partial_rotary_factor=0.5))])
        v.add(base, "partial rotary in linear", [(CJ, put(partial_rotary_factor=0.5, rope_scaling={"type": "linear", "factor": 2.0}))])
        v.add(base, "dtype of transformers 5", [(CJ, drop("torch_dtype") + put(dtype="bfloat16"))])
        v.add(base, "dtype and torch_dtype differ", [(CJ, put(dtype="float32", torch_dtype="float16"))])
        v.add(base, "no dtype", [(CJ, drop("torch_dtype"))])
        v.add(base, "unknown dtype", [(CJ, put(torch_dtype="float31"))])
        v.add(base, "no key-value heads", [(CJ, drop("num_key_value_heads"))])
        v.add(base, "key-value heads null", [(CJ, put(num_key_value_heads=None))])
        v.add(base, "no head_dim", [(CJ, drop("head_dim"))])
        v.add(base, "head_dim null", [(CJ, put(head_dim=None))])
        v.add(base, "head_dim differs", [(CJ, put(head_dim=16))])
        v.add(base, "heads differ", [(CJ, put(num_attention_heads=2))])
        v.add(base, "hidden differs", [(CJ, put(hidden_size=64))])
        v.add(base, "inner differs", [(CJ, put(intermediate_size=64))])
        v.add(base, "no hidden_act", [(CJ, drop("hidden_act"))])
        v.add(base, "swish", [(CJ, put(hidden_act="swish"))])
        v.add(base, "gelu", [(CJ, put(hidden_act="gelu"))])
        v.add(base, "no rms_norm_eps", [(CJ, drop("rms_norm_eps"))])
        v.add(base, "no max_position_embeddings", [(CJ, drop("max_position_embeddings"))])
        v.add(base, "no vocab_size", [(CJ, drop("vocab_size"))])
        v.add(base, "rows fewer", [(CJ, put(vocab_size=300))])
        v.add(base, "rows more", [(CJ, put(vocab_size=352))])
        v.add(base, "no architectures", [(CJ, drop("architectures"))])
        v.add(base, "architectures of another", [(CJ, put(architectures=["MistralForCausalLM"]))])
        v.add(base, "no model_type", [(CJ, drop("model_type"))])
        v.add(base, "layers as text", [(CJ, put(num_hidden_layers="1"))])
        v.add(base, "attention bias", [(CJ, put(attention_bias=True))])
        v.add(base, "sliding window unused", [(CJ, put(sliding_window=8, use_sliding_window=False))])
        v.add(base, "sliding window", [(CJ, put(sliding_window=8, use_sliding_window=True, max_window_layers=0))])
        v.add(base, "sliding window of no layer", [(CJ, put(sliding_window=8, use_sliding_window=True, max_window_layers=28))])
        v.add(base, "sliding window null", [(CJ, put(sliding_window=None, use_sliding_window=True, max_window_layers=0))])
        for name, value in (("number", 5), ("list", [5, 7]), ("null", None), ("beyond the rows", 999)):
            v.add(base, f"config eos {name}", [(CJ, put(eos_token_id=value))])
            v.add(base, f"generation eos {name}", [(GC, {"eos_token_id": value})])
        v.add(base, "eos in neither", [(CJ, drop("eos_token_id"))])
        v.add(base, "generation says nothing", [(GC, {"do_sample": True, "temperature": 0.5})])
        v.add(base, "generation damaged", [(GC, "{")])
    for base in ("layers",):
        types = ["full_attention", "full_attention"]
        v.add(base, "layer types", [(CJ, put(layer_types=types))])
        v.add(base, "layer types short", [(CJ, put(layer_types=types[:1]))])
        v.add(base, "layer types sliding", [(CJ, put(layer_types=["full_attention", "sliding_attention"], sliding_window=4, use_sliding_window=True))])
        v.add(base, "layer types sliding unused", [(CJ, put(layer_types=["full_attention", "sliding_attention"], sliding_window=4))])
        v.add(base, "layer types unknown", [(CJ, put(layer_types=["full_attention", "other"]))])
        v.add(base, "rope by layer type", [(CJ, drop("rope_theta") + put(rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 500.0}}))])
        v.add(base, "rope by layer type and layer types", [(CJ, drop("rope_theta") + put(
            layer_types=types, rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 500.0}}))])
        v.add(base, "rope by type, theta beside", [(CJ, put(rope_theta=500.0, rope_parameters={"full_attention": {"rope_type": "default"}}))])
        v.add(base, "layers fewer", [(CJ, put(num_hidden_layers=1))])
        v.add(base, "layers more", [(CJ, put(num_hidden_layers=3))])
    v.add("llama", "mlp bias", [(CJ, put(mlp_bias=True))])
    v.add("llama", "rope by layer type", [(CJ, put(rope_parameters={"full_attention": {"rope_type": "default", "rope_theta": 500.0}}))])
    v.add("llama", "quantized", [(CJ, put(quantization_config={"quant_method": "gptq", "bits": 4}))])


def weight_variants(v):
    head, embedding = "lm_head.weight", "model.embed_tokens.weight"
    v.add("llama", "as it is")
    v.add("tied", "as it is")
    v.add("layers", "as it is")
    v.add("qwen2", "as it is")
    v.add("qwen3", "as it is")
    v.add("pieces", "as it is")
    v.add("ranks", "as it is")
    v.add("tied", "flag, equal head", weights=[{"tensor": head, "like": embedding}])
    v.add("tied", "flag, another head", weights=[{"tensor": head, "new": [ROWS, HIDDEN]}])
    v.add("tied", "flag, head of other rows", weights=[{"tensor": head, "new": [ROWS + 8, HIDDEN]}])
    v.add("tied", "flag, head alone", weights=[{"tensor": embedding, "rename": head}])
    v.add("tied", "flag, neither", weights=[{"tensor": embedding, "remove": True}])
    v.add("tied", "flag, equal head of another dtype", weights=[{"tensor": head, "like": embedding}, {"tensor": head, "dtype": "BF16"}])
    v.add("tied", "no flag, no head", [(CJ, put(tie_word_embeddings=False))])
    v.add("tied", "flag missing, no head", [(CJ, drop("tie_word_embeddings"))])
    v.add("tied", "flag null, no head", [(CJ, put(tie_word_embeddings=None))])
    v.add("llama", "flag missing, head", [(CJ, drop("tie_word_embeddings"))])
    v.add("llama", "no flag, no embedding", weights=[{"tensor": embedding, "remove": True}])
    for dtype in ("F16", "BF16", "F64"):
        v.add("llama", f"tensors {dtype}", weights=[{"tensor": "*", "dtype": dtype}])
        v.add("qwen2", f"one tensor {dtype}", weights=[{"tensor": "model.layers.0.mlp.up_proj.weight", "dtype": dtype}])
        v.add("layers", f"biases {dtype}", weights=[{"tensor": f"model.layers.{i}.self_attn.{p}_proj.bias", "dtype": dtype} for i in range(2) for p in "qkv"])
    v.add("llama", "a tensor missing", weights=[{"tensor": "model.layers.0.mlp.up_proj.weight", "remove": True}])
    v.add("llama", "a bias more", weights=[{"tensor": "model.layers.0.self_attn.q_proj.bias", "new": [HEADS * HEAD_DIM]}])
    v.add("llama", "a tensor more", weights=[{"tensor": "vision.weight", "new": [4, 4]}])
    v.add("llama", "inverse frequencies", weights=[{"tensor": "model.layers.0.self_attn.rotary_emb.inv_freq", "new": [4]}])
    v.add("llama", "inverse frequencies of the model", weights=[{"tensor": "model.rotary_emb.inv_freq", "new": [4]}])
    v.add("llama", "other shape", weights=[{"tensor": "model.layers.0.self_attn.k_proj.weight", "shape": [HEADS * HEAD_DIM, HIDDEN]}])
    v.add("llama", "transposed", weights=[{"tensor": "model.layers.0.mlp.down_proj.weight", "shape": [INNER, HIDDEN]}])
    v.add("llama", "without the model. prefix", weights=[{"tensor": n, "rename": n.removeprefix("model.")} for n in tensors_of({"family": "llama"}) if n.startswith("model.")])
    v.add("qwen2", "no biases", weights=[{"tensor": f"model.layers.0.self_attn.{p}_proj.bias", "remove": True} for p in "qkv"])
    v.add("qwen3", "no norms of heads", weights=[{"tensor": f"model.layers.0.self_attn.{p}_norm.weight", "remove": True} for p in "qk"])
    v.add("llama", "norms of heads", weights=[{"tensor": f"model.layers.0.self_attn.{p}_norm.weight", "new": [HEAD_DIM]} for p in "qk"])
    v.add("tied", "head_dim missing, kv heads missing", [(CJ, drop("head_dim", "num_key_value_heads"))], weights=[
        {"tensor": f"model.layers.0.self_attn.{p}_proj.weight", "shape": [HEADS * HEAD_DIM, HIDDEN]} for p in "kv"])


# --- transformers ----------------------------------------------------------------------------------------------------

def apply_patch(document, patch):
    for op in patch:
        parts = op["path"].strip("/").split("/")
        at = document
        for part in parts[:-1]:
            at = at[int(part)] if isinstance(at, list) else at[part]
        if op["op"] == "remove":
            del at[int(parts[-1]) if isinstance(at, list) else parts[-1]]
        elif isinstance(at, list):
            if parts[-1] == "-":
                at.append(op["value"])
            else:
                at[int(parts[-1])] = op["value"]
        else:
            at[parts[-1]] = op["value"]


def write_folder(folder, base, variant, shared):
    files = {name: copy.deepcopy(content) for name, content in base["files"].items()}
    for edit in variant["edits"]:
        name = edit["file"]
        if edit.get("remove"):
            files.pop(name, None)
        elif "patch" in edit:
            apply_patch(files[name], edit["patch"])
        elif "shared" in edit:
            files[name] = {"base64": shared[edit["shared"]]}
        else:
            files[name] = edit["text"]
    os.makedirs(folder, exist_ok=True)
    for name, content in files.items():
        if isinstance(content, dict) and list(content) == ["base64"]:
            raw = base64.b64decode(content["base64"])
        else:
            raw = (content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)).encode()
        with open(os.path.join(folder, name), "wb") as f:
            f.write(raw)
    write_weights(folder, base["model"], variant["weights"])


class Warned(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def stop_tokens(model):
    eos = model.generation_config.eos_token_id
    return [] if eos is None else sorted(eos if isinstance(eos, list) else [eos])


def ask_transformers(folder):
    """What transformers makes of a folder: `refused`, or ids, logits and stop tokens; `warned` where it says something."""
    handler = Warned()
    logger = logging.getLogger("transformers")
    logger.handlers, logger.propagate = [handler], False
    transformers.utils.logging.warning_once.cache_clear()
    out = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                                           output_loading_info=True)
            if info["missing_keys"]:
                raise RuntimeError(f"missing keys {sorted(info['missing_keys'])}")
            if info["unexpected_keys"]:
                handler.lines.append(f"unexpected keys {sorted(info['unexpected_keys'])}")
            model.eval()
            with torch.no_grad():
                logits = model(torch.tensor([TOKENS])).logits[0]
            rows = logits.shape[1]
            places = [(len(TOKENS) - 1, i * rows // 12) for i in range(12)] + [(6, i * rows // 4 + 1) for i in range(4)]
            out["logits"] = [round(float(logits[a, b]), 6) for a, b in places]
            out["rows"] = rows
            out["stop"] = stop_tokens(model)
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
            out["parsed"] = [tokenizer(t, add_special_tokens=True).input_ids for t in TEXTS]
            backend = tokenizer.backend_tokenizer
            backend.encode_special_tokens = True
            out["as_text"] = [backend.encode(t, add_special_tokens=False).ids for t in TEXTS]
    except Exception as e:
        out = {"refused": f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}".replace(folder, "FOLDER")[:120]}
    lines = [l.splitlines()[0].replace(folder, "FOLDER")[:120] for l in handler.lines if "SentencePiece model from" not in l and "`tokenizer_class` is" not in l]
    if lines:
        out["warned"] = lines
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=os.path.join(ROOT, "tests/golden/folders.json"))
    parser.add_argument("--all", metavar="FILE", help="also write all variants, not one of each kind alone; read by the test as TANDEM_FOLDERS")
    parser.add_argument("--keep", help="where to leave the variants' folders")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    v = Variants()
    special_token_variants(v)
    config_variants(v)
    weight_variants(v)
    all_bases = bases()
    work = arguments.keep or tempfile.mkdtemp()
    for i, variant in enumerate(v.all):
        folder = os.path.join(work, f"{i:03}")
        shutil.rmtree(folder, ignore_errors=True)
        write_folder(folder, all_bases[variant["base"]], variant, v.shared)
        variant["transformers"] = said = ask_transformers(folder)
        print(f"{variant['name']:60} {said.get('refused', 'accepted')[:100]} {' '.join(said.get('warned', []))[:100]}")
    if not arguments.keep:
        shutil.rmtree(work)
    first = {}  # of each name
    for variant in v.all:
        first.setdefault(variant["name"].split(": ", 1)[1], variant["name"])
    small = [x for x in v.all if x["name"] in first.values() or x["name"].endswith(": as it is")]
    for file, variants in ((arguments.out, small), (arguments.all, v.all)):
        if file:
            write_goldens(file, variants, all_bases, v.shared)
    accepted = sum("refused" not in x["transformers"] for x in v.all)
    print(f"{len(v.all)} folders, {accepted} of them accepted by transformers; {len(small)} are in {arguments.out}")


def write_goldens(file, variants, all_bases, shared):
    """Equal lists of ids and logits are written once."""
    tables = {"logits": [], "ids": []}

    def share(table, value):
        if value not in tables[table]:
            tables[table].append(value)
        return tables[table].index(value)

    written = copy.deepcopy(variants)
    for variant in written:
        said = variant["transformers"]
        if "logits" in said:
            said["logits"] = share("logits", said["logits"])
            for kind in ("parsed", "as_text"):
                said[kind] = [share("ids", ids) for ids in said[kind]]
    with open(file, "w") as f:
        json.dump({"made_by": f"torch {torch.__version__}, transformers {transformers.__version__}", "tokens": TOKENS, "texts": TEXTS,
                   "bases": all_bases, "shared": shared, **tables, "variants": written}, f, ensure_ascii=True, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
