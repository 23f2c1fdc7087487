"""The model: Qwen3 as Hugging Face transformers defines it (RMSNorm, QK-norm, grouped queries, SwiGLU, tied embeddings)."""
import math
from dataclasses import asdict, dataclass

import attention_cpu

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Shape:
    hidden: int
    layers: int
    q_heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int
    rope_theta: float
    max_positions: int
    rms_eps: float = 1e-6

    def to_dict(self) -> dict:
        return asdict(self)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """[B][T][heads][D]; our own kernel where it fits (training on some CPUs), else torch chooses: flash attention for bf16 on
    a GPU."""
    if causal and attention_cpu.fits(q):
        return attention_cpu.attend(q, k, v)
    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True).transpose(1, 2)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight.to(x.dtype)


@torch.compiler.disable  # fused into every layer, angles and powers took 7 % of a step on a CPU
def rope(positions: torch.Tensor, theta: float, dimensions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines [B][T][1][dimensions / 2]."""
    inverse = theta ** (-torch.arange(0, dimensions, 2, device=positions.device).float() / dimensions)
    angle = positions.float()[:, :, None, None] * inverse
    return angle.cos(), angle.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.shape = s

        def linear(inputs: int, outputs: int) -> nn.Linear:
            return nn.Linear(inputs, outputs, bias=False)

        self.q_proj, self.o_proj = linear(s.hidden, s.q_heads * s.head_dim), linear(s.q_heads * s.head_dim, s.hidden)
        self.k_proj, self.v_proj = linear(s.hidden, s.kv_heads * s.head_dim), linear(s.hidden, s.kv_heads * s.head_dim)
        self.gate_proj, self.up_proj = linear(s.hidden, s.intermediate), linear(s.hidden, s.intermediate)
        self.down_proj = linear(s.intermediate, s.hidden)
        self.input_norm, self.post_norm = nn.Parameter(torch.ones(s.hidden)), nn.Parameter(torch.ones(s.hidden))
        self.q_norm, self.k_norm = nn.Parameter(torch.ones(s.head_dim)), nn.Parameter(torch.ones(s.head_dim))

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, past: list | None = None) -> torch.Tensor:
        s, (B, T, _) = self.shape, x.shape
        y = rms_norm(x, self.input_norm, s.rms_eps)
        q = rms_norm(self.q_proj(y).view(B, T, s.q_heads, s.head_dim), self.q_norm, s.rms_eps)
        k = rms_norm(self.k_proj(y).view(B, T, s.kv_heads, s.head_dim), self.k_norm, s.rms_eps)
        v = self.v_proj(y).view(B, T, s.kv_heads, s.head_dim)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        causal = not past  # not T > 1, which torch.compile cannot know: every forward would fall back to eager
        if past is not None:  # evaluation: a whole prompt first, then one token at a time
            if past:
                assert T == 1
                k, v = torch.cat((past[0], k), 1), torch.cat((past[1], v), 1)
            past[:] = [k, v]
        o = attend(q, k, v, causal)
        x = x + self.o_proj(o.reshape(B, T, s.q_heads * s.head_dim))
        y = rms_norm(x, self.post_norm, s.rms_eps)
        return x + self.down_proj(F.silu(self.gate_proj(y)) * self.up_proj(y))


class Model(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.shape = s
        self.embed = nn.Embedding(s.vocabulary, s.hidden)
        self.layers = nn.ModuleList(Block(s) for _ in range(s.layers))
        self.run = list(self.layers)  # or what torch.compile made of them
        self.norm = nn.Parameter(torch.ones(s.hidden))
        for name, p in self.named_parameters():
            if p.dim() == 2:  # what is added to the residual stream starts smaller
                added = "o_proj" in name or "down_proj" in name
                nn.init.normal_(p, std=0.02 / (math.sqrt(2 * s.layers) if added else 1))

    def compile_layers(self, wanted: bool = True) -> None:
        """One layer is compiled and serves them all; the whole model takes four times as long (gpu.json's, traced: 13 s for 3)
        and again for every other shape of rows."""
        self.run = [torch.compile(block) for block in self.layers] if wanted else list(self.layers)

    def compiled(self) -> bool:
        return self.run[0] is not self.layers[0]

    def grow_from(self, smaller: "Model", layers: list[int]) -> None:
        """Takes the weights of a model with fewer layers. `layers`: for each of ours its number there, or -1: a copy of the
        layer before that adds nothing yet."""
        ours, theirs = asdict(self.shape), asdict(smaller.shape)
        different = [k for k in ours if ours[k] != theirs[k] and k not in ("layers", "max_positions")]
        if different or len(layers) != self.shape.layers:
            raise SystemExit(f"model.py: the model cannot grow from this one: {', '.join(different) or 'grow and layers'} differ.")
        if [i for i in layers if i >= 0] != list(range(smaller.shape.layers)):
            raise SystemExit(f"model.py: grow is {layers}, but the model to grow from has {smaller.shape.layers} layers: give each "
                             "of them once, in order.")
        with torch.no_grad():
            self.embed.load_state_dict(smaller.embed.state_dict())
            self.norm.copy_(smaller.norm)
            source = 0
            for block, layer in zip(self.layers, layers):
                source = layer if layer >= 0 else source
                block.load_state_dict(smaller.layers[source].state_dict())
                if layer < 0:
                    block.o_proj.weight.zero_()
                    block.down_proj.weight.zero_()

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, past: list[list] | None = None,
                inputs: list[torch.Tensor] | None = None) -> torch.Tensor:
        """Final hidden states [B][T][hidden]. `past`: one list per layer, filled with keys and values. `inputs`: filled with
        each layer's input."""
        s = self.shape
        cos, sin = rope(positions, s.rope_theta, s.head_dim)
        x = self.embed(ids)
        for i, block in enumerate(self.run):
            if inputs is not None:
                inputs.append(x)
            x = block(x, cos, sin, None if past is None else past[i])
        return rms_norm(x, self.norm, s.rms_eps)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.linear(hidden, self.embed.weight.to(hidden.dtype))
