"""Tests of what studies/recipe computes by itself: attention on some CPUs, Muon, guided attention, layers that are compiled,
minutes that are left.

  python3 studies/tests/recipe_math_test.py
"""
import copy
import unittest

from recipe_needs import needs_torch  # first: it says where the recipe is


@needs_torch
class MuonTest(unittest.TestCase):
    def test_its_steps_are_torchs(self):
        import torch
        from muon import Muon
        torch.manual_seed(1)
        ours = [torch.nn.Parameter(torch.randn(shape)) for shape in ((24, 40), (40, 24), (24, 40), (32, 32), (8, 24), (24, 8))]
        theirs, weights = copy.deepcopy(ours), [w.detach().clone() for w in ours]
        unused = torch.nn.Parameter(torch.randn(4, 4))
        mine = Muon([*ours, unused], lr=0.01, weight_decay=0.05)
        reference = torch.optim.Muon(theirs, lr=0.01, weight_decay=0.05, adjust_lr_fn="match_rms_adamw")

        def alike():
            """To the bit on an AMD EPYC (Zen 4, avx512_bf16); other CPUs may have other kernels for stacks of bf16 matrices."""
            for a, b, before in zip(ours, theirs, weights):
                self.assertLess((a - b).norm(), 0.01 * (b - before).norm(), a.shape)
        for _ in range(4):
            for a, b in zip(ours, theirs):
                a.grad = torch.randn_like(a)
                b.grad = a.grad.clone()
            mine.step()
            reference.step()
            alike()
        # What torch's had saved goes on with ours.
        saved = copy.deepcopy(reference.state_dict())
        saved["param_groups"][0]["params"].append(len(ours))
        mine = Muon([*ours, unused], lr=0.01, weight_decay=0.05)
        mine.load_state_dict(saved)
        weights = [b.detach().clone() for b in theirs]
        mine.step()  # with the last gradients
        reference.step()
        alike()

    def test_an_update_turns_and_stretches_nothing(self):
        import torch
        from muon import orthogonal
        torch.manual_seed(2)
        stack = torch.randn(3, 16, 64) * torch.logspace(-2, 2, 3)[:, None, None]
        values = torch.linalg.svdvals(orthogonal(stack).float())
        self.assertGreater(values.min(), 0.5)
        self.assertLess(values.max(), 1.5)


@needs_torch
class CompiledTest(unittest.TestCase):
    def test_layers_are_compiled_and_put_back(self):
        import torch
        from model import Model, Shape
        torch.manual_seed(3)
        model = Model(Shape(hidden=32, layers=3, q_heads=2, kv_heads=1, head_dim=64, intermediate=48, vocabulary=50,
                            rope_theta=1e4, max_positions=64))
        ids, at = torch.randint(50, (2, 20)), torch.arange(20).expand(2, 20)
        names, plain = list(model.state_dict()), model(ids, at)
        calls = []

        def watched(block):
            return lambda *inputs: calls.append(block) or block(*inputs)

        compile_, torch.compile = torch.compile, watched
        try:
            model.compile_layers()
            self.assertTrue(model.compiled())
            self.assertTrue(torch.equal(model(ids, at), plain))
            self.assertEqual(calls, list(model.layers))
            self.assertEqual(list(model.state_dict()), names)
        finally:
            torch.compile = compile_
        model.compile_layers(False)
        self.assertFalse(model.compiled())
        self.assertTrue(torch.equal(model(ids, at), plain))


@needs_torch
class GuideTest(unittest.TestCase):
    def test_what_is_missed_is_what_the_layer_does_not_look_at(self):
        """torch's attention shows its weights where the values are unit vectors."""
        import torch
        import torch.nn.functional as F
        from guide import missed
        from model import Model, Shape, rms_norm, rope, rotate
        torch.manual_seed(5)
        shape = Shape(hidden=32, layers=3, q_heads=6, kv_heads=2, head_dim=16, intermediate=48, vocabulary=50, rope_theta=1e4,
                      max_positions=64)
        model = Model(shape).double()
        with torch.no_grad():
            for p in model.parameters():
                p += 0.3 * torch.randn_like(p)
        T, inputs = 16, []
        ids, positions = torch.randint(50, (3, T)), torch.tensor([[0, 4, *range(5, T + 3)], [*range(T)], [*range(9, T + 9)]])
        with torch.no_grad():
            model(ids, positions, inputs=inputs)
        sources = torch.tensor([[0, 9, 3, -1], [0, 15, 15, 2], [2, 5, 0, 5], [2, 4, 4, -1], [2, 11, 7, 8]])
        weights = torch.tensor([1.0, 3.0, 0.3, 1.0, 2.0], dtype=torch.float64)
        for layer, kv_head in ((1, 0), (2, 1)):
            block, x = model.layers[layer], inputs[layer]
            y = rms_norm(x, block.input_norm, shape.rms_eps).double()
            cos, sin = rope(positions, shape.rope_theta, 16)
            q, k = (rotate(rms_norm(project(y).view(3, T, -1, 16), norm, shape.rms_eps), cos, sin).transpose(1, 2)
                    for project, norm in ((block.q_proj, block.q_norm), (block.k_proj, block.k_norm)))
            shown = F.scaled_dot_product_attention(q, k, torch.eye(T).double().expand(3, 2, T, T), is_causal=True, enable_gqa=True)
            expected = 0.0
            for (row, place, *before), weight in zip(sources.tolist(), weights.tolist()):
                seen = shown[row, 3 * kv_head:3 * kv_head + 3, place, [b for b in before if b >= 0]].sum(-1)
                expected -= weight * seen.log().mean().item()
            with torch.no_grad():
                got = missed(model, layer, kv_head, x, positions, sources, [2, 0, 3], weights)
            self.assertAlmostEqual(got.item(), expected / weights.sum().item(), places=5)
            self.assertGreater(expected, 1)


class PlanTest(unittest.TestCase):
    def test_what_is_left_fits_into_the_time_that_is(self):
        from plan import Plan
        plan = Plan({"lr": 1.0, "seed": 1, "stages": [{"minutes": 2.0}, {"minutes": 4.0}, {"minutes": 6.0}]})
        plan.fit(6 * 60)
        self.assertEqual(plan.minutes(), [1, 2, 3])
        plan.advance(60, 100)
        self.assertTrue(plan.stage_done())
        plan.next_stage()
        plan.advance(30, 100)  # of 120 seconds; then 8 minutes went by in compiling: 135 seconds are left of 270
        plan.fit(135)
        self.assertEqual([round(minutes, 6) for minutes in plan.minutes()], [1, 1.25, 1.5])
        plan.advance(45, 100)
        plan.next_stage()
        plan.advance(90, 100)
        self.assertTrue(plan.stage_done())
        self.assertAlmostEqual(plan.learning_rate(1000), 0.03)  # all of the way down
        plan.fit(-5)  # nothing is left
        self.assertTrue(plan.stage_done())

    def test_one_that_is_resumed_comes_down_as_well(self):
        from plan import Plan
        for minutes, within in ((30.0, 6), (1.0, 60)):  # scaled down, and up: the stage has run longer than its own minutes
            config = {"lr": 1.0, "seed": 1, "stages": [{"minutes": minutes} for _ in range(3)]}
            before, after = Plan(config), Plan(config)
            before.fit(60 * within)
            before.advance(10 * within, 1)  # half of the first
            after.state = dict(before.state)
            after.fit(50 * within)
            for part in (10, 20, 20):
                self.assertFalse(after.stage_done())
                after.advance(part * within + 0.01, 1)
                self.assertTrue(after.stage_done())
                after.next_stage()
            self.assertAlmostEqual(after.learning_rate(1000), 0.03, places=5)

    def test_the_rate_is_held_before_it_comes_down(self):
        from plan import Plan
        config = {"lr": 2.0, "seed": 1, "stages": [{"steps": 100}, {"steps": 100}]}
        held, at_once = Plan({**config, "hold": 0.6}), Plan(config)
        for steps, high, low in ((0, 2.0, 2.0), (120, 2.0, 2 * (0.03 + 0.97 * 0.5 * (1 - 0.30901699))), (160, 1.03, None), (200, 0.06, 0.06)):
            for plan, rate in ((held, high), (at_once, low)):
                plan.state["step"] = steps
                if rate is not None:
                    self.assertAlmostEqual(plan.learning_rate(1000), rate, places=6)

    def test_a_place_is_of_the_same_plan(self):
        """Not of one that only has rows of the same sizes: it would go on at that one's last stage."""
        from plan import Plan
        stages = [{"minutes": 2.0, "T": 128, "B": 4}, {"minutes": 4.0, "T": 256, "B": 2}]
        plan = Plan({"lr": 1.0, "seed": 3, "stages": stages})
        self.assertTrue(plan.same({"seed": 3, "stages": [stage | {"minutes": 1.0} for stage in stages]}))
        self.assertFalse(plan.same({"seed": 4, "stages": stages}))
        self.assertFalse(plan.same({"seed": 3, "stages": stages[:1]}))
        self.assertFalse(plan.same({"seed": 3, "stages": [stages[0], stages[1] | {"B": 3}]}))


@needs_torch
class AttentionTest(unittest.TestCase):
    def test_all_of_torchs_threads_share_the_heads(self):
        import torch

        import attention_cpu
        attention_cpu.build()
        if not attention_cpu.fits(torch.zeros(1, 1, 1, 64, dtype=torch.bfloat16)):
            self.skipTest("this CPU does not multiply bf16, or nothing compiles for it here")
        before = torch.get_num_threads()
        try:
            torch.set_num_threads(2)
            self.assertEqual(attention_cpu._built.threads(), 2)
        finally:
            torch.set_num_threads(before)

    def test_output_and_gradients_are_those_of_float64(self):
        import torch
        import torch.nn.functional as F

        import attention_cpu
        attention_cpu.build()
        q = torch.zeros(1, 1, 1, 64, dtype=torch.bfloat16)
        if not attention_cpu.fits(q):
            self.skipTest("this CPU does not multiply bf16, or nothing compiles for it here")
        self.assertFalse(attention_cpu.fits(q.float()))
        self.assertFalse(attention_cpu.fits(q[..., :32]))
        torch.manual_seed(1)
        for batch, tokens, q_heads, kv_heads in ((1, 1, 4, 1), (3, 63, 2, 2), (2, 64, 8, 2), (1, 65, 4, 2), (2, 300, 8, 2)):
            shapes = ((q_heads, 3.0), (kv_heads, 1.0), (kv_heads, 1.0))
            ours = [(scale * torch.randn(batch, tokens, heads, 64)).bfloat16().requires_grad_() for heads, scale in shapes]
            exact = [x.detach().double().requires_grad_() for x in ours]
            slope = torch.randn(batch, tokens, q_heads, 64).bfloat16()
            o = attention_cpu.attend(*ours)
            o.backward(slope)
            groups = [x.transpose(1, 2) for x in exact]
            groups[1:] = [x.repeat_interleave(q_heads // kv_heads, 1) for x in groups[1:]]
            reference = F.scaled_dot_product_attention(*groups, is_causal=True).transpose(1, 2)
            reference.backward(slope.double())
            for name, a, b in (("o", o, reference), *((n, x.grad, y.grad) for n, x, y in zip("qkv", ours, exact))):
                error = ((a.double() - b).norm() / b.norm().clamp(min=1e-2)).item()
                self.assertLess(error, 0.006, (name, batch, tokens))


if __name__ == "__main__":
    unittest.main()
