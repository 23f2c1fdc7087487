"""The trained model as a Hugging Face folder: config.json, tokenizer, bf16 weights in safetensors shards with an index.
Writing and reading need no library but torch."""
import json
import os
import shutil
from pathlib import Path

import torch

from model import Model, Shape

_BLOCK = {"self_attn.q_proj": "q_proj.weight", "self_attn.k_proj": "k_proj.weight", "self_attn.v_proj": "v_proj.weight",
          "self_attn.o_proj": "o_proj.weight", "mlp.gate_proj": "gate_proj.weight", "mlp.up_proj": "up_proj.weight",
          "mlp.down_proj": "down_proj.weight", "self_attn.q_norm": "q_norm", "self_attn.k_norm": "k_norm",
          "input_layernorm": "input_norm", "post_attention_layernorm": "post_norm"}


def tensor_names(layers: int) -> dict[str, str]:
    """Hugging Face's name -> ours."""
    names = {"model.embed_tokens.weight": "embed.weight", "model.norm.weight": "norm"}
    for i in range(layers):
        names |= {f"model.layers.{i}.{theirs}.weight": f"layers.{i}.{ours}" for theirs, ours in _BLOCK.items()}
    return names


def _config(s: Shape) -> dict:
    return {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": s.hidden,
            "intermediate_size": s.intermediate, "num_hidden_layers": s.layers, "num_attention_heads": s.q_heads,
            "num_key_value_heads": s.kv_heads, "head_dim": s.head_dim, "rms_norm_eps": s.rms_eps,
            "rope_theta": s.rope_theta, "vocab_size": s.vocabulary, "max_position_embeddings": s.max_positions,
            "tie_word_embeddings": True, "hidden_act": "silu", "attention_bias": False, "bos_token_id": 1,
            "eos_token_id": 2, "torch_dtype": "bfloat16"}


_TOKENIZER = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False, "bos_token": "<s>",
              "eos_token": "</s>", "unk_token": "<unk>", "legacy": False, "add_prefix_space": False,
              "clean_up_tokenization_spaces": False}


def write_json(file: Path, value) -> None:
    file.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def _shard(file: Path, tensors: dict[str, torch.Tensor]) -> None:
    """safetensors: length of the header (u64), the header as JSON, the tensors."""
    header: dict = {"__metadata__": {"format": "pt"}}
    body, at = [], 0
    for name, tensor in tensors.items():
        data = tensor.contiguous().view(torch.int16).numpy().tobytes()
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [at, at + len(data)]}
        body.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(body))


def write_export(model: Model, tokenizer: Path, out: Path, training: dict, shard_mb: float, most_mb: float) -> None:
    """Replaces the folder `out` as a whole: whoever reads it sees the old export or the new one."""
    state = model.state_dict()
    tensors = {theirs: state[ours].detach().to("cpu", torch.bfloat16)
               for theirs, ours in sorted(tensor_names(model.shape.layers).items())}
    total = sum(2 * t.numel() for t in tensors.values())
    if total > most_mb * 1e6:
        raise SystemExit(f"The model takes {total / 1e6:.1f} MB and the configuration allows {most_mb} MB: make it smaller.")
    shards: list[dict[str, torch.Tensor]] = [{}]
    filled = 0
    for name, tensor in tensors.items():
        if shards[-1] and filled + 2 * tensor.numel() > shard_mb * 1e6 - 65536:  # the header takes some
            shards.append({})
            filled = 0
        shards[-1][name] = tensor
        filled += 2 * tensor.numel()
    new, old = out.with_name(out.name + ".new"), out.with_name(out.name + ".old")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    index: dict = {"metadata": {"total_size": total}, "weight_map": {}}
    for i, shard in enumerate(shards, 1):
        name = f"model-{i:05}-of-{len(shards):05}.safetensors" if len(shards) > 1 else "model.safetensors"
        _shard(new / name, shard)
        if (new / name).stat().st_size > shard_mb * 1e6:
            raise SystemExit(f"{name} is larger than {shard_mb} MB, because one tensor is: raise shard_mb of the "
                             "configuration.")
        index["weight_map"] |= {tensor: name for tensor in shard}
    if len(shards) > 1:
        write_json(new / "model.safetensors.index.json", index)
    write_json(new / "config.json", _config(model.shape))
    write_json(new / "tokenizer_config.json", _TOKENIZER)
    write_json(new / "training.json", training)
    shutil.copyfile(tokenizer, new / "tokenizer.model")
    shutil.rmtree(old, ignore_errors=True)
    if out.exists():
        os.rename(out, old)
    os.rename(new, out)
    shutil.rmtree(old, ignore_errors=True)


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    tensors = {}
    for file in sorted(folder.glob("*.safetensors")):
        data = bytearray(file.read_bytes())
        length = int.from_bytes(data[:8], "little")
        for name, entry in json.loads(data[8:8 + length]).items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            if entry["dtype"] != "BF16":
                raise SystemExit(f"{file}: tensor '{name}' is {entry['dtype']}; exports of this recipe are BF16.")
            tensors[name] = torch.frombuffer(data[8 + length + begin:8 + length + end],
                                             dtype=torch.bfloat16).reshape(entry["shape"])
    return tensors


def read_export(folder: Path) -> Model:
    """An exported model, its bf16 weights as f32."""
    c = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    model = Model(Shape(c["hidden_size"], c["num_hidden_layers"], c["num_attention_heads"], c["num_key_value_heads"],
                        c["head_dim"], c["intermediate_size"], c["vocab_size"], c["rope_theta"],
                        c["max_position_embeddings"], c["rms_norm_eps"]))
    tensors = read_tensors(folder)
    model.load_state_dict({ours: tensors[theirs].float() for theirs, ours in tensor_names(model.shape.layers).items()})
    return model.eval()
