"""Checks that an export is the model that was trained: loaded by Hugging Face transformers and by Tandem it says the same.

  python3 studies/recipe/check_export.py --run runs/gpu --tandem build/release/bin/tandem
  python3 studies/recipe/check_export.py --model models/deep --tandem build/release/bin/tandem

1. transformers (f32, eager attention) and the recipe's own model agree on every logit of some prompts within 1e-3. Of --run
   the recipe's has the checkpoint's weights, rounded to bf16; of --model the export's own, which says nothing about how they
   came there: for averages, and where no checkpoint is left.
2. `tandem info` and `tandem generate` load the folder, and the greedy text of `generate` is transformers'.

Exit code 1 if anything differs. Needs torch and transformers; without --tandem only 1.
"""
import argparse
import random
import subprocess
import sys
from pathlib import Path

import torch
import transformers

from export import read_export
from model import Model
from ruler_tasks import make_test
from tokenizer import BOS, EOS, Encoder

TOLERANCE = 1e-3


def trained_model(run: Path, export: Path) -> Model:
    """The checkpoint, not the export: what is compared must not come from the file that is checked."""
    model = Model(read_export(export).shape)
    state = torch.load(run / "last.pt", map_location="cpu", weights_only=True)["model"]
    model.load_state_dict({name: tensor.bfloat16().float() for name, tensor in state.items()})
    return model.eval()


def prompts(encoder: Encoder, vocabulary: int) -> dict[str, list[int]]:
    r = random.Random(11)
    made = {"random tokens": [BOS] + [r.randrange(3, vocabulary) for _ in range(200)]}
    for task in ("niah_single_1", "niah_multikey_1", "qa_1"):
        test = make_test(task, 700, 0, 9, lambda s: len(encoder.encode(s)) + 1, 64)
        made[task] = [BOS] + encoder.encode(test.prompt)
    return made


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--run", type=Path, help="a training folder: last.pt and export/")
    what.add_argument("--model", type=Path, help="an exported folder whose checkpoint is not at hand")
    parser.add_argument("--tandem", help="the program, to be checked too")
    options = parser.parse_args()
    export = options.model or options.run / "export"
    ours = trained_model(options.run, export) if options.run else read_export(export)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(export, dtype=torch.float32, attn_implementation="eager")
    theirs.eval()
    encoder, failed = Encoder(export / "tokenizer.model"), False
    texts = prompts(encoder, ours.shape.vocabulary)
    for name, ids in texts.items():
        x = torch.tensor([ids])
        mine = ours.logits(ours(x, torch.arange(len(ids))[None]))
        difference = (mine - theirs(x).logits).abs().max().item()
        failed |= not difference <= TOLERANCE
        print(f"{name}: {len(ids)} tokens, largest difference of a logit {difference:.2g}")
    if options.tandem:
        info = subprocess.run([options.tandem, "info", "--model", str(export)], capture_output=True, text=True, check=False)
        print(info.stdout + info.stderr, end="")
        failed |= info.returncode != 0
        for name, ids in list(texts.items())[1:]:
            said = subprocess.run([options.tandem, "generate", "--model", str(export), "--max-new", "16", "--prompt",
                                   encoder.decode(ids)], capture_output=True, text=True, check=False)
            expected = theirs.generate(torch.tensor([ids]), max_new_tokens=16, do_sample=False, eos_token_id=EOS,
                                       pad_token_id=EOS)[0, len(ids):].tolist()
            same = said.returncode == 0 and said.stdout == encoder.decode(expected) + "\n"
            failed |= not same
            print(f"tandem generate, {name}: {'the same text' if same else 'ANOTHER TEXT'}: {said.stdout.strip()!r}"
                  + ("" if same else f" instead of {encoder.decode(expected)!r}; {said.stderr}"))
    print("FAILED" if failed else "passed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
