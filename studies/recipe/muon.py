"""Muon (Keller Jordan's; torch.optim.Muon with match_rms_adamw), matrices of one shape together.

A matrix's momentum is made orthogonal by five Newton-Schulz steps of bf16 products. torch's own makes them matrix by matrix:
1,674 operations a step for gpu.json's 56 matrices, which a GPU would wait for. Stacked by shape they are 207. On a Zen 4
CPU the weights are the same to the bit (studies/tests/recipe_math_test.py holds them to 1 % of a step).
"""
import math

import torch

QUINTIC = (3.4445, -4.775, 2.0315)  # of its singular values, per step: towards 1, wherever in (0, 1] they begin
STEPS = 5


def orthogonal(stack: torch.Tensor) -> torch.Tensor:
    """[n][short][long], each with its singular values near 1."""
    a, b, c = QUINTIC
    x = stack.to(torch.bfloat16)
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


class Muon(torch.optim.Optimizer):
    """For matrices. Steps are scaled to the size of AdamW's, so that one learning rate serves both."""

    def __init__(self, matrices: list[torch.nn.Parameter], lr: float, weight_decay: float, momentum: float = 0.95):
        super().__init__(matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None):
        assert closure is None
        for group in self.param_groups:
            matrices = [p for p in group["params"] if p.grad is not None]
            if not matrices:
                continue
            gradients = [p.grad for p in matrices]
            for p in matrices:
                if not self.state[p]:
                    self.state[p]["momentum_buffer"] = torch.zeros_like(p)
            momenta = [self.state[p]["momentum_buffer"] for p in matrices]
            torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
            ahead = torch._foreach_lerp(gradients, momenta, group["momentum"])  # Nesterov's
            torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
            alike: dict[tuple[int, int], list[tuple[torch.Tensor, torch.Tensor, bool]]] = {}
            for p, update in zip(matrices, ahead):
                tall = p.shape[0] > p.shape[1]
                alike.setdefault((min(p.shape), max(p.shape)), []).append((p, update.T if tall else update, tall))
            for (_, longer), members in alike.items():
                steps = orthogonal(torch.stack([update for _, update, _ in members])).float()
                torch._foreach_add_([p for p, _, _ in members], [s.T if tall else s for s, (_, _, tall) in zip(steps, members)],
                                    alpha=-0.2 * group["lr"] * math.sqrt(longer))
