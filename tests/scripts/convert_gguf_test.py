"""Tests of scripts/convert_gguf.py on a small file that the test writes. Exit code 77 where PyTorch, transformers, accelerate or gguf are missing.

  python3 tests/scripts/convert_gguf_test.py --tandem build/release/bin/tandem
"""
import contextlib
import io
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import accelerate  # noqa: F401, which transformers asks for
    import gguf
    import numpy as np
    import torch
    import transformers
    from safetensors import safe_open
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import convert_gguf
import program

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MLP = 2, 64, 4, 2, 16, 96
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_tokens():
    """GPT-2's printable characters, but for those of 0x04 and 0xff, which this vocabulary lacks."""
    prints = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    other = [b for b in range(256) if b not in prints]
    characters = {**{b: chr(b) for b in prints}, **{b: chr(256 + i) for i, b in enumerate(other)}}
    return [characters[b] for b in range(256) if b not in (0x04, 0xff)]


def pairs_from_halves(matrix, heads):
    """Rows of each head as a GGUF file of a Llama model has them: 0, D/2, 1, D/2 + 1, ..."""
    rows, columns = matrix.shape
    return matrix.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write(file, change=None, lacks=(), more=()):
    """The weights that Hugging Face's names should get, by name."""
    tokens = SPECIALS + byte_tokens() + ["Ġ1", "12"]
    metadata = {"pre": "smollm", "architecture": "llama", **(change or {})}
    writer = gguf.GGUFWriter(file, metadata["architecture"])
    writer.add_block_count(LAYERS)
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(MLP)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(metadata["pre"])
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIALS) + [1] * (len(tokens) - len(SPECIALS)))
    writer.add_token_merges(["Ġ 1", "1 2"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    if "scaling" in metadata:
        writer.add_string("llama.rope.scaling.type", metadata["scaling"])
    random = np.random.default_rng(7)
    shapes = {"token_embd": (len(tokens), HIDDEN), "output_norm": (HIDDEN,)}
    for i in range(LAYERS):
        shapes |= {f"blk.{i}.attn_norm": (HIDDEN,), f"blk.{i}.ffn_norm": (HIDDEN,), f"blk.{i}.attn_q": (HEADS * HEAD_DIM, HIDDEN),
                   f"blk.{i}.attn_k": (KV_HEADS * HEAD_DIM, HIDDEN), f"blk.{i}.attn_v": (KV_HEADS * HEAD_DIM, HIDDEN),
                   f"blk.{i}.attn_output": (HIDDEN, HEADS * HEAD_DIM), f"blk.{i}.ffn_gate": (MLP, HIDDEN), f"blk.{i}.ffn_up": (MLP, HIDDEN),
                   f"blk.{i}.ffn_down": (HIDDEN, MLP)}
    names = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
    parts = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
             "ffn_down": "mlp.down_proj"}
    wanted = {}
    for name, shape in shapes.items():
        values = random.normal(0, 0.1, shape).astype(np.float32)
        part = name.split(".")[-1]
        full = names.get(name) or f"model.layers.{name.split('.')[1]}.{parts[part]}"
        wanted[full + ".weight"] = values
        if part in ("attn_q", "attn_k"):
            values = pairs_from_halves(values, HEADS if part == "attn_q" else KV_HEADS)
        if name not in lacks:
            writer.add_tensor(name + ".weight", np.ascontiguousarray(values))
    for name in more:
        writer.add_tensor(name, np.ones(HEAD_DIM // 2, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return wanted


class ConvertTest(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.file, self.folder = Path(made.name) / "model.gguf", Path(made.name) / "model"

    def refused(self):
        with self.assertRaises(SystemExit) as said, contextlib.redirect_stderr(io.StringIO()):
            convert_gguf.convert(self.file, self.folder)
        return str(said.exception)

    def test_weights_are_in_their_places_and_tandem_reads_them(self):
        wanted = write(self.file)
        convert_gguf.convert(self.file, self.folder)
        with safe_open(self.folder / "model.safetensors", "pt") as found:
            self.assertEqual(set(found.keys()), set(wanted))
            for name, values in wanted.items():
                self.assertTrue(torch.equal(found.get_tensor(name), torch.from_numpy(values).to(torch.bfloat16)), name)
        info = subprocess.run([program.path, "info", "--model", str(self.folder)], check=True, capture_output=True, text=True).stdout
        self.assertIn("2 layers, hidden 64, MLP 96, 4 query heads over 2 KV heads of 16", info)
        self.assertIn("no token for 1 byte (0x04): texts lose it", info)

    def test_the_tokenizer_cuts_digits_one_by_one(self):
        write(self.file)
        convert_gguf.convert(self.file, self.folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(self.folder)
        self.assertEqual(tokenizer.tokenize("a 12"), ["a", "Ġ", "1", "2"])
        self.assertEqual(tokenizer.tokenize("a\x04b"), ["a", "b"])

    def test_what_would_be_lost_is_refused(self):
        for change, more, says in (({"pre": "llama-bpe"}, (), "'tokenizer.ggml.pre' is 'llama-bpe'"),
                                   ({"scaling": "yarn"}, (), "'llama.rope.scaling.type' is 'yarn'"),
                                   ({}, ("rope_freqs.weight",), "its RoPE is scaled")):
            write(self.file, change, more=more)
            self.assertIn(says, self.refused())
        write(self.file, lacks=("blk.1.attn_q",))
        self.assertIn("layers.1.self_attn.q_proj", self.refused())
        self.assertFalse(self.folder.exists())

    def test_a_folder_that_holds_something_is_refused(self):
        write(self.file)
        self.folder.mkdir()
        (self.folder / "tokenizer.model").write_text("older")
        self.assertIn("not empty", self.refused())


if __name__ == "__main__":
    program.main()
