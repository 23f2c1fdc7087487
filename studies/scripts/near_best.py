"""How many tokens come within alpha of the best score, InfiniGen's rule with true scores, and what sinks change of it.

  python3 studies/scripts/near_best.py MODEL TEXT [--alpha 4] [--windows 2] [--context 2176] [--queries 128]     (needs torch, transformers)

Of the last queries of each window, by layer, means over query heads: at how many the best token is one of the first four; tokens
within alpha of it; the same where the first four do not count; and the share of attention's mass that the former hold. Memory: 4
bytes times layers, query heads and context squared.
"""
import argparse
import math

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

SINKS = 4


def of_layer(weights, alpha):
    near = weights >= weights.max(-1, keepdim=True).values * math.exp(-alpha)
    rest = weights.clone()
    rest[..., :SINKS] = 0
    without = rest >= rest.max(-1, keepdim=True).values * math.exp(-alpha)
    best_is_sink = (weights.argmax(-1) < SINKS).float()
    return [x.float().mean().item() for x in (100 * best_is_sink, near.sum(-1), without.sum(-1), 100 * (weights * near).sum(-1))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="a Hugging Face folder")
    parser.add_argument("text", help="a UTF-8 file")
    parser.add_argument("--alpha", type=float, default=4)
    parser.add_argument("--windows", type=int, default=2)
    parser.add_argument("--context", type=int, default=2176)
    parser.add_argument("--queries", type=int, default=128)
    options = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32, attn_implementation="eager")
    with open(options.text, encoding="utf-8") as file:
        ids = tokenizer(file.read(16 * options.windows * options.context), add_special_tokens=False).input_ids
    if len(ids) < options.windows * options.context:
        raise SystemExit(f"{options.text} has {len(ids)} tokens of {options.windows * options.context}.")
    sums = None
    for i in range(options.windows):
        window = torch.tensor([ids[options.context * i:options.context * (i + 1)]])
        with torch.no_grad():
            attentions = model(window, output_attentions=True).attentions
        rows = torch.tensor([of_layer(weights[0, :, -options.queries:], options.alpha) for weights in attentions])
        sums = rows if sums is None else sums + rows
    print(f"{'layer':>5} {'best is a sink %':>17} {'tokens':>8} {'without sinks':>14} {'mass %':>7}")
    for layer, row in enumerate((sums / options.windows).tolist()):
        print(f"{layer:>5} {row[0]:>17.1f} {row[1]:>8.1f} {row[2]:>14.1f} {row[3]:>7.1f}")


if __name__ == "__main__":
    main()
