"""One measurement of OpenVINO GenAI on the CPU, for peers.py: FOLDER decode|prefill TOKENS STEPS THREADS BACKEND.

BACKEND is one of the pipeline's two: PA (paged attention, its default) or SDPA.
bf16 inference and a bf16 KV cache, which is 8 bits by default. The folder is optimum-cli's export; no tokenizer is needed,
since prompts are random token ids. The times are the pipeline's own: TTFT of a prompt, and the time from token to token. The
last line of stdout is a JSON object.
"""
import json
import resource
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import openvino
import openvino_genai

PROPERTIES = {"INFERENCE_PRECISION_HINT": "bf16", "KV_CACHE_PRECISION": "bf16", "PERFORMANCE_HINT": "LATENCY"}


class Prompts:
    """Random ids, never the same twice: the pipeline may remember prefixes."""

    def __init__(self, folder):
        self.vocab = json.loads((Path(folder) / "config.json").read_text())["vocab_size"]
        self.random = np.random.default_rng(1)

    def next(self, tokens):
        ids = self.random.integers(0, self.vocab, (1, tokens), dtype=np.int64)
        return openvino_genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))


def new_tokens(pipeline, prompt, count):
    """The pipeline's own times of one prompt and `count` tokens."""
    options = openvino_genai.GenerationConfig(max_new_tokens=count, ignore_eos=True, do_sample=False)
    options.apply_chat_template = False
    options.set_eos_token_id(0)  # one that exists, for folders without a tokenizer; it ends nothing
    metrics = pipeline.generate(prompt, options).perf_metrics
    made = metrics.get_num_generated_tokens()
    if made != count:
        raise SystemExit(f"{made} tokens were generated, not {count}.")
    return metrics


def decode_seconds(pipeline, prompts, tokens, steps):
    """Mean of `steps` steps after one that is not counted; the prompt's last token makes the first one."""
    times = new_tokens(pipeline, prompts.next(tokens), steps + 2).raw_metrics.m_new_token_times  # ms
    return (times[-1] - times[1]) * 1e-3 / steps


def prefill_seconds(pipeline, prompts, tokens):
    for _ in range(2):  # the first warms up
        metrics = new_tokens(pipeline, prompts.next(tokens), 1)
    return metrics.get_ttft().mean * 1e-3


def main():
    folder, what, tokens, steps, threads = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
    properties = {**PROPERTIES, "ATTENTION_BACKEND": sys.argv[6]}
    prompts = Prompts(folder)
    began = time.perf_counter()
    pipeline = openvino_genai.LLMPipeline(folder, "CPU", INFERENCE_NUM_THREADS=threads, **properties)
    loaded = time.perf_counter() - began
    new_tokens(pipeline, prompts.next(64), 2)  # warm-up: kernels are made, weights are read
    rate = (1 / decode_seconds(pipeline, prompts, tokens, steps) if what == "decode"
            else tokens / prefill_seconds(pipeline, prompts, tokens))
    print(json.dumps({"tokens_per_second": rate, "load_seconds": loaded,
                      "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                      "versions": {name: version(name) for name in ("openvino", "openvino-genai")},
                      "properties": properties}))


if __name__ == "__main__":
    main()
