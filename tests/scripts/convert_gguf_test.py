"""Tests of scripts/convert_gguf.py on small files that the test writes. Exit code 77 where numpy is missing.

  python3 tests/scripts/convert_gguf_test.py --tandem build/release/bin/tandem
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import numpy as np
except ImportError as missing:
    if sys.executable != "/usr/bin/python3" and Path("/usr/bin/python3").exists():  # Debian's has it
        os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])
    print(f"skipped: {missing}")
    sys.exit(77)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import convert_gguf
import gguf_file
import program

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MLP = 2, 64, 4, 2, 16, 96
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_tokens():
    """GPT-2's printable characters, but for those of 0x04 and 0xff, which this vocabulary lacks."""
    prints = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    other = [b for b in range(256) if b not in prints]
    characters = {**{b: chr(b) for b in prints}, **{b: chr(256 + i) for i, b in enumerate(other)}}
    return [characters[b] for b in range(256) if b not in (0x04, 0xff)]


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value(given):
    """A value with its kind in front: bool, whole number, other number, text, or a list of one of these."""
    if isinstance(given, list):
        return struct.pack("<I", 9) + value(given[0])[:4] + struct.pack("<Q", len(given)) + b"".join(value(one)[4:] for one in given)
    kind, content = {bool: (7, "?"), int: (5, "i"), float: (6, "f"), str: (8, "")}[type(given)]
    return struct.pack("<I", kind) + (text(given) if kind == 8 else struct.pack("<" + content, given))


def write_gguf(path, metadata, tensors):
    """`tensors`: name -> (shape, GGUF's type, bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(text(key) + value(one) for key, one in metadata.items())
    data = b""
    for name, (shape, kind, content) in tensors.items():
        head += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, len(data))
        data += content + b"\0" * (-len(content) % 32)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)


def weight(kind, b, i):
    """Weight `i` of a block, bit by bit."""
    def half(at):
        return struct.unpack_from("<e", b, at)[0]

    small = b[-16 + i % 16] >> 4 * (i // 16) & 15 if kind <= 7 else 0  # of blocks of 32
    if kind == 2:
        return half(0) * (small - 8)
    if kind == 3:
        return half(0) * small + half(2)
    if kind in (6, 7):
        at = 2 if kind == 6 else 4
        small |= (struct.unpack_from("<I", b, at)[0] >> i & 1) << 4
        return half(0) * (small - 16) if kind == 6 else half(0) * small + half(2)
    if kind == 8:
        return half(0) * struct.unpack_from("b", b, 2 + i)[0]
    two = 32 * (i // 128) + i % 32  # byte with 2 bits of the weight, which are the (i % 128 // 32)th
    shift = 2 * (i % 128 // 32)
    if kind == 10:
        return half(80) * (b[i // 16] & 15) * (b[16 + two] >> shift & 3) - half(82) * (b[i // 16] >> 4)
    if kind == 11:
        k = i // 16
        scale = (b[96 + k % 8] >> 4 * (k // 8) & 15) + 16 * (b[104 + k % 4] >> 2 * (k // 4) & 3)
        return half(108) * (scale - 32) * ((b[32 + two] >> shift & 3) - (0 if b[i % 32] >> i // 32 & 1 else 4))
    if kind in (12, 13):
        k = i // 32
        scale = b[4 + k] & 63 if k < 4 else b[8 + k] % 16 + 16 * (b[k] >> 6)
        least = b[8 + k] & 63 if k < 4 else (b[8 + k] >> 4) + 16 * (b[4 + k] >> 6)
        quant = b[(16 if kind == 12 else 48) + 32 * (i // 64) + i % 32] >> 4 * (k % 2) & 15
        return half(0) * scale * (quant + (16 * (b[16 + i % 32] >> k & 1) if kind == 13 else 0)) - half(2) * least
    quant = (b[64 * (i // 128) + i % 64] >> 4 * (i % 128 // 64) & 15) + 16 * (b[128 + two] >> shift & 3)
    return half(208) * struct.unpack_from("b", b, 192 + i // 16)[0] * (quant - 32)


SCALES_AT = {2: [0], 3: [0, 2], 6: [0], 7: [0, 2], 8: [0], 10: [80, 82], 11: [108], 12: [0, 2], 13: [0, 2], 14: [208]}


def random_blocks(random, kind, count):
    """Any bits, with scales that are numbers."""
    blocks = random.integers(0, 256, (count, gguf_file.TYPES[kind][2]), dtype=np.uint8)
    for at in SCALES_AT[kind]:
        blocks[:, at:at + 2] = random.normal(0, 0.01, (count, 1)).astype("<f2").view(np.uint8)
    return blocks.tobytes()


class BlockTest(unittest.TestCase):
    def test_each_type_is_unpacked_as_its_bits_say(self):
        random = np.random.default_rng(3)
        for kind in SCALES_AT:
            _, weights, size, _ = gguf_file.TYPES[kind]
            data = random_blocks(random, kind, 3)
            wanted = [weight(kind, data[size * j:size * j + size], i) for j in range(3) for i in range(weights)]
            np.testing.assert_allclose(gguf_file.unpack(kind, data), wanted, rtol=1e-5, atol=1e-6, err_msg=str(kind))

    def test_plain_types(self):
        values = np.array([1, -2.5, 0, 1e-3], np.float32)
        self.assertTrue((gguf_file.unpack(0, values.tobytes()) == values).all())
        self.assertTrue((gguf_file.unpack(1, values.astype("<f2").tobytes()) == values.astype("<f2")).all())
        self.assertTrue((gguf_file.unpack(30, convert_gguf.to_bf16(values).tobytes())[:3] == values[:3]).all())


def metadata_of(family, change):
    tokens = SPECIALS + byte_tokens() + ["Ġ1", "12"]
    shape = {"block_count": LAYERS, "context_length": 256, "embedding_length": HIDDEN, "feed_forward_length": MLP,
             "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS, "rope.freq_base": 10000.0,
             "attention.key_length": HEAD_DIM, "attention.layer_norm_rms_epsilon": 1e-5}
    made = {"general.architecture": family, **{f"{family}.{key}": one for key, one in shape.items()},
            "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm" if family == "llama" else "qwen2",
            "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [3] * len(SPECIALS) + [1] * (len(tokens) - len(SPECIALS)),
            "tokenizer.ggml.merges": ["Ġ 1", "1 2"], "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.chat_template": "{{ messages[0].content }}"}
    return {**made, **(change or {})}


def weights_of(family, tokens):
    """float32 by Hugging Face's names, and tensors of the file: F32, but the embedding Q8_0 and layers' ffn_up Q4_K."""
    random = np.random.default_rng(7)
    rows = {"attn_q": HEADS * HEAD_DIM, "attn_k": KV_HEADS * HEAD_DIM, "attn_v": KV_HEADS * HEAD_DIM, "ffn_gate": MLP, "ffn_up": MLP}
    wanted, tensors = {}, {}

    def add(name, place, shape, kind=0, heads=0):
        if kind:
            data = random_blocks(random, kind, int(np.prod(shape)) // gguf_file.TYPES[kind][1])
            values = gguf_file.unpack(kind, data).reshape(shape)
        else:
            values = random.normal(0, 0.1, shape).astype(np.float32)
            data = values.tobytes()
        if heads:  # a head's rows in the file: 0, D/2, 1, D/2 + 1, ...
            data = values.reshape(heads, 2, HEAD_DIM // 2, -1).swapaxes(1, 2).tobytes()
        wanted[place] = values
        tensors[name] = (shape, kind, data)

    add("token_embd.weight", "model.embed_tokens.weight", (tokens, HIDDEN), 8)
    add("output_norm.weight", "model.norm.weight", (HIDDEN,))
    for i in range(LAYERS):
        for part, place in {**convert_gguf.INSIDE, **convert_gguf.ALSO[family]}.items():
            name, end = part.split(".")
            inside = (HIDDEN,) if name in ("attn_norm", "ffn_norm") else (HEAD_DIM,) if name.endswith("_norm") else None
            shape = inside or ((rows[name],) if end == "bias" else (rows.get(name, HIDDEN), MLP if name == "ffn_down" else HIDDEN))
            heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(name, 0) if family == "llama" else 0
            add(f"blk.{i}.{part}", f"model.layers.{i}.{place}.{end}", shape, 2 if name == "ffn_up" else 0, heads)
    return wanted, tensors


class ConvertTest(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.file, self.folder = Path(made.name) / "model.gguf", Path(made.name) / "model"

    def write(self, family="llama", change=None, lacks=(), more=None):
        metadata = metadata_of(family, change)
        wanted, tensors = weights_of(family, len(metadata["tokenizer.ggml.tokens"]))
        write_gguf(self.file, metadata, {**{name: one for name, one in tensors.items() if name not in lacks}, **(more or {})})
        return wanted

    def refused(self):
        with self.assertRaises(gguf_file.BadFile) as said:
            convert_gguf.convert(self.file, self.folder)
        return str(said.exception)

    def converted(self, name):
        return json.loads((self.folder / name).read_text())

    def told(self):
        done = subprocess.run([program.path, "info", "--model", str(self.folder)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_weights_are_in_their_places_and_tandem_reads_them(self):
        for family in ("llama", "qwen2", "qwen3"):
            self.folder = self.file.parent / family
            wanted = self.write(family)
            convert_gguf.convert(self.file, self.folder)
            data = (self.folder / "model.safetensors").read_bytes()
            size = struct.unpack("<Q", data[:8])[0]
            header = json.loads(data[8:8 + size])
            self.assertEqual(set(header) - {"__metadata__"}, set(wanted))
            for name, values in wanted.items():
                begin, end = (8 + size + at for at in header[name]["data_offsets"])
                found = gguf_file.unpack(30, data[begin:end]).reshape(header[name]["shape"])
                np.testing.assert_allclose(found, values, rtol=2 ** -8, err_msg=name)
            told = self.told()
            self.assertIn("2 layers, hidden 64, MLP 96, 4 query heads over 2 KV heads of 16", told)
            self.assertIn("no token for 1 byte (0x04): texts lose it", told)
            self.assertEqual(self.converted("config.json")["rms_norm_eps"], 1e-5)
            self.assertEqual(self.converted("tokenizer_config.json")["chat_template"], "{{ messages[0].content }}")

    def test_words_are_cut_as_the_name_says(self):
        self.write()
        convert_gguf.convert(self.file, self.folder)
        self.assertEqual(self.converted("tokenizer.json")["pre_tokenizer"]["pretokenizers"][0], {"type": "Digits", "individual_digits": True})
        self.folder = self.file.parent / "llama-3"
        self.write(change={"tokenizer.ggml.pre": "llama-bpe"})
        convert_gguf.convert(self.file, self.folder)
        made = self.converted("tokenizer.json")
        self.assertTrue(made["model"]["ignore_merges"])
        self.assertEqual(made["post_processor"]["special_tokens"]["<|im_start|>"]["ids"], [1])
        self.told()

    def test_pieces_become_a_sentencepiece_model(self):
        tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + ["▁", "a", "b", "ab", "▁ab"]
        self.write(change={"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens,
                           "tokenizer.ggml.scores": [0.0] * 259 + [-float(i) for i in range(5)],
                           "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * 5})
        convert_gguf.convert(self.file, self.folder)
        self.assertTrue(self.converted("tokenizer_config.json")["add_bos_token"])
        self.assertNotIn("no token for", self.told())

    def test_scaled_rope_is_llama_3_s_or_refused(self):
        half = HEAD_DIM // 2
        lengths = [2 * np.pi * 10000.0 ** (i / half) for i in range(half)]  # tokens in which a pair turns once
        factors = [1 if t < 2048 else 32 if t > 8192 else 1 / ((1 - (8192 / t - 1) / 3) / 32 + (8192 / t - 1) / 3) for t in lengths]
        self.assertGreater(len(set(factors)), 2)
        self.write(more={"rope_freqs.weight": ((half,), 0, np.array(factors, np.float32).tobytes())})
        convert_gguf.convert(self.file, self.folder)
        self.assertEqual(self.converted("config.json")["rope_scaling"]["factor"], 32)
        self.told()
        self.write(more={"rope_freqs.weight": ((half,), 0, np.arange(1, half + 1, dtype=np.float32).tobytes())})
        self.assertIn("not as Llama 3.1's", self.refused())

    def test_what_would_be_lost_is_refused(self):
        for change, says in (({"tokenizer.ggml.pre": "tekken"}, "'tokenizer.ggml.pre' is 'tekken'"),
                             ({"llama.rope.scaling.type": "yarn"}, "'llama.rope.scaling.type' is 'yarn'"),
                             ({"llama.rope.dimension_count": 8}, "'llama.rope.dimension_count' is 8"),
                             ({"general.architecture": "gemma"}, "'general.architecture' is 'gemma'"),
                             ({"split.count": 2}, "is one of 2 parts")):
            self.write(change=change)
            self.assertIn(says, self.refused())
        self.write(lacks=("blk.1.attn_q.weight",))
        self.assertIn("no tensor blk.1.attn_q.weight", self.refused())
        self.write(more={"blk.0.attn_q.bias": ((HIDDEN,), 0, bytes(4 * HIDDEN))})
        self.assertIn("blk.0.attn_q.bias has no place", self.refused())
        self.write(more={"strange": ((32,), 23, bytes(32))})
        self.assertIn("is of GGUF's type 23", self.refused())
        self.assertFalse(self.folder.exists())

    def test_a_file_that_is_cut_off_is_refused(self):
        self.write()
        whole = self.file.read_bytes()
        for size in (0, 3, 30, 1000, len(whole) // 2, len(whole) - 64):
            self.file.write_bytes(whole[:size])
            self.assertIn(str(self.file), self.refused())

    def test_a_folder_that_holds_something_is_refused(self):
        self.write()
        self.folder.mkdir()
        (self.folder / "tokenizer.model").write_text("older")
        self.assertIn("not empty", self.refused())


if __name__ == "__main__":
    program.main()
