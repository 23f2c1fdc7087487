"""attention_cpu.cpp as an operation of torch, compiled when training on a CPU begins (half a minute, kept by torch)."""
import zlib
from pathlib import Path

import torch
from torch import library

ROOT = Path(__file__).resolve().parents[2]
_built = None


def build() -> None:
    """Compiles it, where this CPU multiplies bf16. Without it torch's own attention is used, which takes 2 to 7 times as
    long."""
    global _built
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    flags = next((line for line in lines if line.startswith("flags")), "")
    if "avx512_bf16" not in flags:
        return
    try:
        from torch.utils.cpp_extension import load
        # Torch keeps what it compiled by name: for another CPU it is another one.
        built = load(f"tandem_attention_{zlib.crc32(flags.encode()):08x}", [str(Path(__file__).with_suffix(".cpp"))],
                     extra_cflags=["-O3", "-march=native", "-std=c++20", "-fopenmp"], extra_include_paths=[str(ROOT)])
        one = torch.zeros(1, 1, 1, 64, dtype=torch.bfloat16)
        built.forward(one, one, one)  # fails where the kernel refuses AMX
        _built = built
    except Exception as error:
        print(f"attention_cpu.cpp cannot be used, torch's attention is used instead: {error}", flush=True)


def fits(q: torch.Tensor) -> bool:
    return _built is not None and q.device.type == "cpu" and q.dtype == torch.bfloat16 and q.shape[-1] == 64


@library.custom_op("tandem::attention", mutates_args=())
def _forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(_built.forward(q.contiguous(), k.contiguous(), v.contiguous()))


@_forward.register_fake
def _(q, k, v):
    return torch.empty_like(q, memory_format=torch.contiguous_format), q.new_empty((q.shape[0], q.shape[2], q.shape[1]),
                                                                                  dtype=torch.float32)


@library.custom_op("tandem::attention_backward", mutates_args=())
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
