"""Guided attention: a model that copies should look, while it says a token, at the place where that token stood before.

Left alone it may find another way that answers most questions, and stay with it (README.md: letters were read at the token behind
them). A plan can name KV heads ("guided") whose query heads are told where to look: how much of their attention misses these
places is part of the loss, with the weight "guide" of the stage. An exported model is one like any other.
"""
import math

import torch
import torch.nn.functional as F

from model import Model, rms_norm, rope, rotate


def missed(model: Model, layer: int, kv_head: int, x: torch.Tensor, positions: torch.Tensor, sources: torch.Tensor,
           each: list[int], weights: torch.Tensor) -> torch.Tensor:
    """Minus the logarithm of the attention weight that the KV head's query heads give to the places that are told: the mean over
    heads and, by their `weights` [n], told tokens. `x` [B][T][hidden] is the layer's input, `positions` [B][T], `sources`
    [n][2 + places] packing.Batch's of this head, of which `each` row has so many (known here, so that no device is asked).
    The layer's own attention tells no weights: q of the told tokens and k of one head are computed again."""
    s, block = model.shape, model.layers[layer]
    group, D, T = s.q_heads // s.kv_heads, s.head_dim, x.shape[1]
    y = rms_norm(x, block.input_norm, s.rms_eps)
    cos, sin = rope(positions, s.rope_theta, D)
    k = rms_norm(F.linear(y, block.k_proj.weight[kv_head * D:(kv_head + 1) * D]), block.k_norm, s.rms_eps)
    k = rotate(k[:, :, None], cos, sin)[:, :, 0]  # [B][T][D]
    rows, places, before = sources[:, 0], sources[:, 1], sources[:, 2:]
    q = F.linear(y[rows, places], block.q_proj.weight[kv_head * group * D:(kv_head + 1) * group * D])
    q = rotate(rms_norm(q.view(-1, group, D), block.q_norm, s.rms_eps), cos[rows, places], sin[rows, places])  # [n][group][D]
    lost = []
    for q_row, k_row, place, at in zip(q.split(each), k, places.split(each), before.split(each), strict=True):
        scores = (q_row.flatten(0, 1) @ k_row.T).float().view(-1, group, T) / math.sqrt(D)
        later = torch.arange(T, device=x.device) > place[:, None]
        scores = scores.masked_fill(later[:, None], -math.inf)
        at = at[:, None].expand(-1, group, -1)
        found = scores.gather(2, at.clamp(min=0)).masked_fill(at < 0, -math.inf)
        lost.append((scores.logsumexp(-1) - found.logsumexp(-1)).mean(-1))
    return (torch.cat(lost) * weights).sum() / weights.sum().clamp(min=1e-9)
