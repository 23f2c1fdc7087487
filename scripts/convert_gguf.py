#!/usr/bin/python3
"""Converts a GGUF file of a Llama, Qwen2 or Qwen3 model, quantised or not, to a Hugging Face folder of bf16 weights.

  scripts/convert_gguf.py SmolLM2-135M-Instruct.Q4_1.gguf folder     (needs Debian's python3-numpy)

The weights are those of the file: what its quantisation lost stays lost, and rounding to bf16 loses a little more. Files that say
less than a folder does are refused, with the field: YaRN, for one, and unknown ways to cut texts into words.
"""
import argparse
import json
import pathlib
import re
import struct
import sys

import numpy as np
from gguf_file import BadFile, GgufFile
from gguf_tokenizer import tokenizer_files

CLASSES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
OUTSIDE = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight", "output.weight": "lm_head.weight"}
INSIDE = {"attn_norm.weight": "input_layernorm", "attn_q.weight": "self_attn.q_proj", "attn_k.weight": "self_attn.k_proj",
          "attn_v.weight": "self_attn.v_proj", "attn_output.weight": "self_attn.o_proj", "ffn_norm.weight": "post_attention_layernorm",
          "ffn_gate.weight": "mlp.gate_proj", "ffn_up.weight": "mlp.up_proj", "ffn_down.weight": "mlp.down_proj"}
ALSO = {"llama": {}, "qwen2": {f"attn_{c}.bias": f"self_attn.{c}_proj" for c in "qkv"},
        "qwen3": {f"attn_{c}_norm.weight": f"self_attn.{c}_norm" for c in "qk"}}


def config_of(path, metadata, tokens, tied):
    family = metadata.get("general.architecture")
    if family not in CLASSES:
        raise BadFile(f"{path}: 'general.architecture' is {family!r}; known are {', '.join(CLASSES)}.")

    def field(name, otherwise=None):
        value = metadata.get(f"{family}.{name}", otherwise)
        if value is None:
            raise BadFile(f"{path}: '{family}.{name}' is missing.")
        return value

    for name, allowed in (("rope.scaling.type", ("none",)), ("expert_count", (0,)), ("attention.sliding_window", (0,))):
        if field(name, allowed[0]) not in allowed:
            raise BadFile(f"{path}: '{family}.{name}' is {field(name)!r}, which cannot be converted. Take the model's own folder.")
    if metadata.get("split.count", 0) not in (0, 1):
        raise BadFile(f"{path} is one of {metadata['split.count']!r} parts: join them first.")
    heads, hidden = field("attention.head_count"), field("embedding_length")
    head_dim = field("attention.key_length", hidden // heads)
    for name in ("attention.value_length", "rope.dimension_count"):
        if field(name, head_dim) != head_dim:
            raise BadFile(f"{path}: '{family}.{name}' is {field(name)}, and heads have {head_dim} numbers.")
    stops = [metadata[key] for key in ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id") if metadata.get(key, tokens) < tokens]
    return {"architectures": [CLASSES[family]], "model_type": family, "hidden_size": hidden, "intermediate_size": field("feed_forward_length"),
            "num_hidden_layers": field("block_count"), "num_attention_heads": heads,
            "num_key_value_heads": field("attention.head_count_kv", heads), "head_dim": head_dim,
            "max_position_embeddings": field("context_length"), "rope_theta": field("rope.freq_base", 10000.0),
            "rms_norm_eps": float(str(np.float32(field("attention.layer_norm_rms_epsilon")))),  # 1e-05, not 9.99999974e-06
            "vocab_size": tokens, "hidden_act": "silu", "tie_word_embeddings": tied, "dtype": "bfloat16",
            "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"), "eos_token_id": sorted(set(stops)) or None}


def llama_3_scaling(path, tensor, base):
    """Llama 3.1's RoPE of the file's factors, one per pair of dimensions; the largest is the one that the folder names."""
    factors = np.concatenate(list(tensor.pieces())).astype(np.float64)
    factor, low, high, trained = float(factors.max()), 1.0, 4.0, 8192
    turns = trained / (2 * np.pi * base ** (np.arange(len(factors)) / len(factors)))  # of a pair within the trained context
    share = np.clip((turns - low) / (high - low), 0, 1)
    if not np.allclose(factors, 1 / ((1 - share) / factor + share), rtol=1e-3):
        raise BadFile(f"{path}: its RoPE is scaled (tensor rope_freqs), and not as Llama 3.1's. Take the model's own folder.")
    return {"rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
            "original_max_position_embeddings": trained}


def names_in_folder(path, family, layers, tensors):
    """Hugging Face's name by the file's."""
    names = {name: OUTSIDE[name] for name in OUTSIDE if name != "output.weight" or name in tensors}
    for layer in range(layers):
        for part, place in {**INSIDE, **ALSO[family]}.items():
            names[f"blk.{layer}.{part}"] = f"model.layers.{layer}.{place}.{part.split('.')[1]}"
    missing, unknown = sorted(set(names) - set(tensors)), sorted(set(tensors) - set(names))
    if missing:
        raise BadFile(f"{path}: there is no tensor {missing[0]} (nor {len(missing) - 1} others). Is the file whole?")
    if unknown:
        raise BadFile(f"{path}: tensor {unknown[0]} has no place in a {family} model.")
    return names


def to_bf16(values):
    """Rounded to nearest, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")


def rows_of_halves(matrix, heads):
    """A Llama's rows as Hugging Face has them, where dimension i turns with i + D/2; in the file neighbours do."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_tensor(out, tensor, heads):
    """`heads`: whose rows are put in order; 0: none are."""
    parts = []
    for piece in tensor.pieces():
        if not np.isfinite(piece).all():
            raise BadFile(f"Tensor {tensor.name} has a weight that is no number: the file is damaged.")
        parts.append(to_bf16(piece))
        if not heads:
            out.write(parts.pop().tobytes())
    if heads:
        out.write(rows_of_halves(np.concatenate(parts).reshape(tensor.shape), heads).tobytes())


def write_weights(path, tensors, names, heads_of):
    """By name, as transformers writes them, so that the file's hash is the same."""
    names = dict(sorted(names.items(), key=lambda both: both[1]))
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, place in names.items():
        size = 2 * tensors[name].size
        header[place] = {"dtype": "BF16", "shape": list(tensors[name].shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            write_tensor(out, tensors[name], heads_of(name))


def convert(file, folder):
    """BadFile where the file cannot be converted; then there is no folder, but where weights are damaged."""
    gguf = GgufFile(file)
    files, tokens = tokenizer_files(file, gguf.metadata)
    embedding = gguf.tensors.get("token_embd.weight")
    rows = embedding.shape[0] if embedding else tokens
    if rows < tokens:
        raise BadFile(f"{file}: {tokens} tokens beside {rows} rows of the embedding.")
    config = config_of(file, gguf.metadata, rows, "output.weight" not in gguf.tensors)
    family = config["model_type"]
    factors = gguf.tensors.pop("rope_freqs.weight", None)
    if factors is not None:
        config["rope_scaling"] = llama_3_scaling(file, factors, config["rope_theta"])
    names = names_in_folder(file, family, config["num_hidden_layers"], gguf.tensors)
    heads = {"attn_q.weight": config["num_attention_heads"], "attn_k.weight": config["num_key_value_heads"]} if family == "llama" else {}
    if folder.exists() and any(folder.iterdir()):
        raise BadFile(f"{folder} is not empty: what lies there could be read in place of what is written. Name another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(folder / "model.safetensors", gguf.tensors, names, lambda name: heads.get(re.sub(r"^blk\.\d+\.", "", name), 0))
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path, help="the .gguf file")
    parser.add_argument("folder", type=pathlib.Path, help="where the Hugging Face folder goes")
    arguments = parser.parse_args()
    try:
        convert(arguments.file, arguments.folder)
    except (BadFile, OSError) as error:
        sys.exit(f"convert_gguf.py: {error}")


if __name__ == "__main__":
    main()
