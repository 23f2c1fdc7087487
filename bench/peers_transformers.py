"""One measurement of Hugging Face transformers on the CPU, for peers.py: MODEL decode|prefill TOKENS STEPS THREADS.

bf16 weights and KV cache, PyTorch's own attention (sdpa). Decoding uses the static cache, the faster one: the dynamic cache
is copied in every step. The last line of stdout is a JSON object.
"""
import json
import resource
import sys
import time

import torch
import transformers
from transformers import AutoModelForCausalLM
from transformers.cache_utils import DynamicCache, StaticCache


def decode_seconds(model, ids, steps):
    """Mean of `steps` steps after one that is not counted."""
    cache = StaticCache(config=model.config, max_cache_len=ids.shape[1] + steps + 1)
    model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
    token = ids[:, -1:]
    for step in range(steps + 1):
        if step == 1:
            began = time.perf_counter()
        token = model(input_ids=token, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(dim=-1)
    return (time.perf_counter() - began) / steps


def prefill_seconds(model, ids):
    for _ in range(2):  # the first warms up
        began = time.perf_counter()
        model(input_ids=ids, past_key_values=DynamicCache(config=model.config), use_cache=True, logits_to_keep=1)
    return time.perf_counter() - began


def main():
    folder, what, tokens, steps, threads = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    began = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="sdpa").eval()
    loaded = time.perf_counter() - began
    ids = torch.randint(0, model.config.vocab_size, (1, tokens))
    with torch.inference_mode():
        model(input_ids=ids[:, :64], logits_to_keep=1)  # warm-up: kernels are chosen, weights are read
        rate = 1 / decode_seconds(model, ids, steps) if what == "decode" else tokens / prefill_seconds(model, ids)
    print(json.dumps({"tokens_per_second": rate, "load_seconds": loaded,
                      "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                      "versions": {"torch": torch.__version__, "transformers": transformers.__version__}}))


if __name__ == "__main__":
    main()
