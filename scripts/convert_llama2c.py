"""Converts a llama2.c model (version 0 of its .bin format, float32) to a Hugging Face folder. Needs Python's standard library.

  python3 scripts/convert_llama2c.py stories260K.bin tok512.model folder

The .bin holds seven int32 (dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, negative where the classifier is
not the embedding, seq_len) and then the float32 weights, layer after layer of one kind. Its RoPE turns neighbouring
dimensions, Hugging Face's turns dimension i with i + D/2: the rows of wq and wk are reordered to match.
"""
import argparse
import array
import json
import pathlib
import shutil
import struct


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def floats(self, count):
        end = self.at + 4 * count
        if end > len(self.data):
            raise SystemExit(f"The file ends at byte {len(self.data)}, but the weights go on to byte {end}: it is cut off.")
        values = array.array("f", self.data[self.at:end])
        self.at = end
        return values


def halves_from_pairs(matrix, heads, columns):
    """Rows of each head in the order 0, 2, 4, ..., 1, 3, 5, ..."""
    head_dim = len(matrix) // columns // heads
    out = array.array("f")
    for head in range(heads):
        for first in (0, 1):
            for row in range(first, head_dim, 2):
                begin = (head * head_dim + row) * columns
                out.extend(matrix[begin:begin + columns])
    return out


def read_tensors(reader, dim, hidden, layers, heads, kv_heads, vocab, positions, shared):
    kv = dim // heads * kv_heads
    tensors = {"model.embed_tokens.weight": ([vocab, dim], reader.floats(vocab * dim))}

    def per_layer(name, rows, columns, turn=0):
        for layer in range(layers):
            values = reader.floats(rows * columns)
            if turn:
                values = halves_from_pairs(values, turn, columns)
            shape = [columns] if rows == 1 else [rows, columns]
            tensors[f"model.layers.{layer}.{name}.weight"] = (shape, values)

    per_layer("input_layernorm", 1, dim)
    per_layer("self_attn.q_proj", dim, dim, turn=heads)
    per_layer("self_attn.k_proj", kv, dim, turn=kv_heads)
    per_layer("self_attn.v_proj", kv, dim)
    per_layer("self_attn.o_proj", dim, dim)
    per_layer("post_attention_layernorm", 1, dim)
    per_layer("mlp.gate_proj", hidden, dim)
    per_layer("mlp.down_proj", dim, hidden)
    per_layer("mlp.up_proj", hidden, dim)
    tensors["model.norm.weight"] = ([dim], reader.floats(dim))
    reader.floats(positions * (dim // heads))  # tables of cosines and sines
    if not shared:
        tensors["lm_head.weight"] = ([vocab, dim], reader.floats(vocab * dim))
    return tensors


def write_safetensors(file, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (shape, values) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * len(values)]}
        at += 4 * len(values)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(file, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            out.write(values.tobytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, help="the .bin file")
    parser.add_argument("tokenizer", type=pathlib.Path, help="the SentencePiece model that it was trained with")
    parser.add_argument("folder", type=pathlib.Path, help="where the Hugging Face folder goes")
    arguments = parser.parse_args()
    data = arguments.model.read_bytes()
    if len(data) < 28:
        raise SystemExit(f"{arguments.model} has {len(data)} bytes: no llama2.c model is that short.")
    dim, hidden, layers, heads, kv_heads, vocab, positions = struct.unpack("<7i", data[:28])
    if min(dim, hidden, layers, heads, kv_heads, abs(vocab), positions) < 1 or dim % heads or heads % kv_heads:
        raise SystemExit(f"{arguments.model} is no llama2.c model of version 0: its header is {struct.unpack('<7i', data[:28])}.")
    shared, vocab = vocab > 0, abs(vocab)
    reader = Reader(data)
    reader.at = 28
    tensors = read_tensors(reader, dim, hidden, layers, heads, kv_heads, vocab, positions, shared)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(arguments.folder / "model.safetensors", tensors)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": dim, "intermediate_size": hidden,
              "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocab,
              "max_position_embeddings": positions, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
              "tie_word_embeddings": shared, "bos_token_id": 1, "eos_token_id": 2}
    (arguments.folder / "config.json").write_text(json.dumps(config, indent=1))
    (arguments.folder / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": True, "add_eos_token": False}))
    shutil.copyfile(arguments.tokenizer, arguments.folder / "tokenizer.model")


if __name__ == "__main__":
    main()
