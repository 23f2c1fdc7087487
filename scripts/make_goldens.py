"""Makes the golden files of tests/golden: logits and greedy continuations by Hugging Face transformers in f32.

  python3 scripts/make_goldens.py --out tests/golden        (needs torch, transformers, safetensors, sentencepiece)

Per golden: <name>.json (library versions, model folder, tokens, positions, greedy continuation) and <name>.f32 (logits of
the positions, [positions][vocab], little-endian float32). Tiny models are written beside them with their weights.
"""
import argparse
import json
import os
import random

import numpy as np
import sentencepiece
import torch
import transformers
from safetensors.torch import save_file

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def golden(out, name, folder, shown, tokens, positions, steps):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    model.eval()
    with torch.no_grad():
        logits = model(torch.tensor([tokens])).logits[0].float()
        greedy, ids = [], list(tokens)
        for _ in range(steps):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
            greedy.append(ids[-1])
    rotary = model.model.rotary_emb
    logits[positions].numpy().astype("<f4").tofile(os.path.join(out, name + ".f32"))
    with open(os.path.join(out, name + ".json"), "w") as f:
        json.dump({"torch": torch.__version__, "transformers": transformers.__version__, "model": shown,
                   "vocab": logits.shape[1], "tokens": list(tokens), "positions": positions, "greedy": greedy,
                   "inverse_frequency": rotary.inv_freq.tolist(), "rotation_scale": rotary.attention_scaling}, f)


def tiny(out, name, config_class, dtype=torch.float32, shards=1, kv_heads=3, **extra):
    """A random model: its folder in the Hugging Face layout. `shards` > 1 spreads the tensors over files with an index."""
    torch.manual_seed(7)
    extra.setdefault("rope_parameters", {"rope_type": "default", "rope_theta": 10000.0})
    config = config_class(vocab_size=128, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=6,
                          num_key_value_heads=kv_heads, head_dim=16, max_position_embeddings=2048,
                          bos_token_id=1, eos_token_id=2, **extra)
    model = transformers.AutoModelForCausalLM.from_config(config)
    for p in model.parameters():
        torch.nn.init.normal_(p, mean=1.0 if p.dim() == 1 else 0.0, std=0.15)
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    state = {k: v.to(dtype).contiguous() for k, v in model.state_dict().items()
             if not (config.tie_word_embeddings and k == "lm_head.weight")}
    if shards == 1:
        save_file(state, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    else:
        files = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
        where = {tensor: files[i % shards] for i, tensor in enumerate(sorted(state))}
        for file in files:
            save_file({k: v for k, v in state.items() if where[k] == file}, os.path.join(folder, file), metadata={"format": "pt"})
        with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
            json.dump({"metadata": {"total_size": sum(v.numel() * v.element_size() for v in state.values())},
                       "weight_map": where}, f, indent=1)
    config.save_pretrained(folder)
    return folder


# Every family, every kind of RoPE (with an original context that the tokens go beyond), every stored type, tied and untied,
# one file and several.
TINY = {
    "tiny_llama": (transformers.LlamaConfig, {"tie_word_embeddings": False}),
    "tiny_qwen3": (transformers.Qwen3Config, {"tie_word_embeddings": True}),
    "tiny_llama2": (transformers.LlamaConfig, {"tie_word_embeddings": False, "kv_heads": 6, "dtype": torch.float16}),
    "tiny_llama31": (transformers.LlamaConfig, {
        "tie_word_embeddings": True, "dtype": torch.float16, "shards": 3,
        "rope_parameters": {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
                            "high_freq_factor": 4.0, "original_max_position_embeddings": 48}}),
    "tiny_qwen2": (transformers.Qwen2Config, {"tie_word_embeddings": False, "dtype": torch.bfloat16}),
    "tiny_qwen25": (transformers.Qwen2Config, {
        "tie_word_embeddings": True, "dtype": torch.bfloat16,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0,
                            "original_max_position_embeddings": 48}}),
}


def needle_prompt():
    """About 600 tokens in the embedded tasks' wording."""
    r = random.Random(3)
    wording = json.load(open(os.path.join(ROOT, "eval/ruler_tasks/wording.json")))
    words = json.load(open(os.path.join(ROOT, "eval/ruler_tasks/words.json")))
    lines = [wording["noise"][i % len(wording["noise"])] for i in range(90)]
    for i in range(4):
        key = f"{r.choice(words['adj'])}-{r.choice(words['noun'])}"
        lines.insert(r.randrange(len(lines)), wording["niah"]["needle"].format(type="number", key=key, value=r.randrange(10**6, 10**7)))
    return wording["niah"]["intro"].format(type="number") + "\n" + " ".join(lines) + "\n" + \
        wording["niah"]["question_one"].format(type="number", key=key)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=os.path.join(ROOT, "tests/golden"))
    out = parser.parse_args().out
    os.makedirs(out, exist_ok=True)
    torch.set_num_threads(1)
    embedded = os.path.join(ROOT, "models/deep")  # kEmbeddedModel of engine/model/model.h
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=os.path.join(embedded, "tokenizer.model"))
    tokens = [1] + tokenizer.encode(needle_prompt())
    positions = [0, 1, 15, 16, 17, 63, 64, 100, 255, 256, 300, 400, 500, len(tokens) - 2, len(tokens) - 1]
    golden(out, "embedded", embedded, "embedded", tokens, positions, 20)
    r = random.Random(5)
    short = [r.randrange(128) for _ in range(90)]
    longer = random.Random(6)
    stretched = [longer.randrange(128) for _ in range(260)]
    for name, (config_class, extra) in TINY.items():
        tokens = stretched if extra.get("rope_parameters") else short
        positions = sorted({*range(0, min(len(tokens), 160), 3), len(tokens) // 2, len(tokens) - 2, len(tokens) - 1})
        golden(out, name, tiny(out, name, config_class, **extra), f"tests/golden/{name}", tokens, positions, 12)
    texts = ["", " ", "  two  spaces ", "\n", "a\nb", "The secret number for grand-tiger is 1234567.", "3.14159 + 2,71828",
             "f1f0e8a4-3b1c-4d8f-9a52-0123456789ab", "tab\there", "\u00e9t\u00e9 na\u00efve", "\u4f60\u597d\uff0c\u4e16\u754c",
             "\u0645\u0631\u062d\u0628\u0627", "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467", "<s> </s> <unk>", "for (int i = 0; i < n; ++i) {}"]
    alphabet = "abcdefgh ABC 0123456789 .,;:!?-_/\\()[]{}<>@#$%^&*\n\u00e9\u4f60\U0001f600"
    texts += ["".join(r.choice(alphabet) for _ in range(r.randrange(1, 80))) for _ in range(300)]
    with open(os.path.join(out, "tokens.json"), "w") as f:
        json.dump({"sentencepiece": sentencepiece.__version__, "cases": [[t, tokenizer.encode(t)] for t in texts]}, f)


if __name__ == "__main__":
    main()
