"""Shows where a model looks while it says an answer that stands in its prompt word for word, token by token.

  python3 studies/recipe/copy_attention.py --model models/deep --task niah_multikey_3 --length 1K --samples 24

A model that copies looks, while it says a token, at the place where that token stands ("0"), which it finds by the tokens
before. One that looks at the next place ("+1") reads there what stood before it, and has nothing to read where the next
token is of no kind that it looks at. For each kind of token (mistakes.py has them) and place around the source: the largest
attention weight of any head, the mean over tokens, of those that the model says right and of those that it says wrong.
"""
import collections
import math

import torch

from evaluate import lengths_of, sample
from export import read_export
from mistakes import KINDS, kind_of, options_of
from model import Model, rms_norm, rope, rotate
from tokenizer import Encoder

PLACES = range(-2, 5)  # around the source
FIRST = 3              # tokens of an answer that say which one it is, not what comes next


@torch.no_grad()
def attention(model: Model, ids: list[int], queries: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each query the largest weight of any head and layer at each place [queries][ids], and the token that comes next
    [queries]."""
    s, x = model.shape, model.embed(torch.tensor([ids]))
    at = torch.arange(len(ids))
    cos, sin = rope(at[None], s.rope_theta, s.head_dim)
    hidden = at[None] > torch.tensor(queries)[:, None]
    largest = torch.zeros(len(queries), len(ids))
    for block in model.layers:
        y = rms_norm(x, block.input_norm, s.rms_eps)
        q = rotate(rms_norm(block.q_proj(y).view(1, len(ids), s.q_heads, s.head_dim), block.q_norm, s.rms_eps), cos, sin)
        k = rotate(rms_norm(block.k_proj(y).view(1, len(ids), s.kv_heads, s.head_dim), block.k_norm, s.rms_eps), cos, sin)
        each = k[0].repeat_interleave(s.q_heads // s.kv_heads, 1)
        scores = torch.einsum("qhd,khd->hqk", q[0, queries], each) / math.sqrt(s.head_dim)
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
        largest = torch.maximum(largest, weights.amax(0))
        x = block(x, cos, sin)
    return largest, model.logits(rms_norm(x, model.norm, s.rms_eps))[0, queries].argmax(-1)


def last_place(prompt: list[int], words: list[int]) -> int | None:
    return next((i for i in range(len(prompt) - len(words), -1, -1) if prompt[i:i + len(words)] == words), None)


def main() -> None:
    options = options_of(__doc__, 24).parse_args()
    (length,) = lengths_of(options.length)
    encoder, model = Encoder(options.model / "tokenizer.model"), read_export(options.model)
    seen: dict[tuple[str, bool], list[torch.Tensor]] = collections.defaultdict(list)
    found = 0
    for index in range(options.samples):
        _, prompt, (*answer, _) = sample(encoder, options.task, length, index, options.seed)
        source = last_place(prompt, answer)
        if source is None:  # an answer of several values, or of what is only counted
            continue
        found += 1
        queries = [len(prompt) - 1 + i for i in range(FIRST, len(answer))]
        weights, said = attention(model, prompt + answer[:-1], queries)
        for i, row, token in zip(range(FIRST, len(answer)), weights, said.tolist()):
            around = torch.tensor([float(row[source + i + place]) for place in PLACES])
            seen[kind_of(encoder.processor.id_to_piece(answer[i]), answer[i]), token == answer[i]].append(around)
    if found == 0:
        raise SystemExit(f"copy_attention.py: no answer of {options.task} stands in its prompt word for word: take one that asks for one value.")
    print(f"{options.task} at {length} tokens, {found} answers: largest weight of a head by place, from the source on")
    print(f"{'kind':8} {'said':6} {'tokens':>6}" + "".join(f"{place:+6d}" if place else f"{0:6d}" for place in PLACES))
    for kind in (kind for kind in KINDS if kind != "end"):
        for right in (True, False):
            if rows := seen[kind, right]:
                print(f"{kind:8} {'right' if right else 'wrong':6} {len(rows):6}" + "".join(f"{x:6.2f}" for x in torch.stack(rows).mean(0)))


if __name__ == "__main__":
    main()
