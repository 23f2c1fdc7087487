"""attention_cpu.cpp as an operation of torch, compiled when training on a CPU begins (half a minute, kept by torch)."""
from pathlib import Path

import torch

_built = None


def build() -> None:
    """Compiles it, where this CPU multiplies bf16. Without it torch's own attention is used, two to three times slower."""
    global _built
    try:
        flags = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        flags = ""
    if "avx512_bf16" not in flags:
        return
    from torch.utils.cpp_extension import load
    try:
        _built = load("tandem_attention", [str(Path(__file__).with_suffix(".cpp"))],
                      extra_cflags=["-O3", "-march=native", "-std=c++20"])
    except Exception as error:
        print(f"attention_cpu.cpp could not be compiled, torch's attention is used instead: {error}", flush=True)


def fits(q: torch.Tensor) -> bool:
    return _built is not None and q.device.type == "cpu" and q.dtype == torch.bfloat16 and q.shape[-1] == 64


@torch.library.custom_op("tandem::attention", mutates_args=())
def _forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(_built.forward(q.contiguous(), k.contiguous(), v.contiguous()))


@_forward.register_fake
def _(q, k, v):
    return torch.empty_like(q, memory_format=torch.contiguous_format), q.new_empty((q.shape[0], q.shape[2], q.shape[1]),
                                                                                  dtype=torch.float32)


@torch.library.custom_op("tandem::attention_backward", mutates_args=())
def _backward(d_out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor,
              lse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return tuple(_built.backward(d_out.contiguous(), q.contiguous(), k.contiguous(), v.contiguous(), o.contiguous(), lse))


@_backward.register_fake
def _(d_out, q, k, v, o, lse):
    return tuple(torch.empty_like(t, memory_format=torch.contiguous_format) for t in (q, k, v))


def _keep(ctx, inputs, output):
    ctx.save_for_backward(*inputs, *output)


def _gradients(ctx, d_out, _):
    return _backward(d_out, *ctx.saved_tensors)


_forward.register_autograd(_gradients, setup_context=_keep)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention, [B][T][heads][64] bf16, several query heads to a KV head."""
    return _forward(q, k, v)[0]
