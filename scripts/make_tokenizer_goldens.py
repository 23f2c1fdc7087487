"""Makes tests/golden/tokenizers: varied texts, and the ids that reference implementations give them.

  python3 scripts/make_tokenizer_goldens.py --data FOLDER     (needs tokenizers, transformers, tiktoken, sentencepiece)

FOLDER/tokenizers holds llama-2, llama-3 and qwen2 as published; they are not part of the project. Written are
  texts.json          the texts; {"hex": ...} where the bytes are no UTF-8 (references get them with U+FFFD for each bad part)
  <family>.json       per text FNV-1a (64 bits, hexadecimal) of the ids as little-endian int32, with special tokens as text
                      and parsed where that differs; all ids of every 40th text
  small_<kind>/       byte-level tokenizers of our own, trained on the texts: tokenizer.json, the same as vocab.json +
                      merges.txt + tokenizer_config.json (qwen2), and as a tiktoken file (llama3)
"""
import argparse
import base64
import json
import os
import random
import struct

import sentencepiece
import tiktoken
import tiktoken.load
import tokenizers
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

SPECIALS = ["<|begin_of_text|>", "<|end_of_text|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<s>", "</s>", "<unk>",
            "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "[INST]", "<|im_start", "|im_end|>", "<tool_call>"]
ALPHABETS = {
    "latin": "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "accents": "éèêëàâäùûüçñöøåæœßÿĳŁžșțďğıİſK",
    "marks": "e\u0301a\u0308o\u0302n\u0303\u1100\u1161\u11a8\u0915\u094d\u0937s\u0323\u0307",
    "greek": "αβγδεζηθικλμνξοπρστυφχψωΑΒΓΔ",
    "cyrillic": "абвгдежзийклмнопрстуфхцчшщъыьэюя",
    "chinese": "你好世界我们今天天气很好这是一个测试中文分词模型语言深度学习",
    "japanese": "ひらがなカタカナ漢字とんでもない東京タワー",
    "korean": "안녕하세요세계한국어테스트",
    "arabic": "مرحبا بالعالم هذا اختبار للغة العربية١٢٣",
    "hebrew": "שלום עולם",
    "hindi": "नमस्ते दुनिया यह एक परीक्षण है १२३",
    "thai": "สวัสดีชาวโลก",
    "emoji": ["😀", "👨‍👩‍👧", "🏳️‍🌈", "👍🏽", "❤️", "🇩🇪", "1️⃣", "\u200d", "\ufe0f", "🫠"],
    "digits": "0123456789",
    "numbers": "½²³①Ⅷ٣४〇",
    "spaces": [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", "\u00a0", "\u2003", "\u3000", "\u0085", "\u2028", "\u200b", "\ufeff",
               "\u180e", "\v", "\f"],
    "punctuation": list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["…", "—", "«", "»", "、", "。", "“", "”", "'s", "'LL", "'Re", "''", "’s"],
    "controls": ["\0", "\x01", "\x7f", "\x1b[0m"],
}
CODE = ["for (int i = 0; i < n; ++i) { a[i] += b[i] * 2.5f; }", "def f(x):\n    return {k: v for k, v in x.items() if v}\n",
        "#include <vector>\n\ttemplate <class T>\r\n", "SELECT * FROM t WHERE x >= 10 AND name LIKE '%a_b%';", "x=x+1;//nospace",
        "<div class=\"a b\">&nbsp;</div>", "{\"key\": [1, 2.0, -3e10, null, true]}", "https://example.org/a/b?c=d&e=%20f#g",
        "\\begin{align} x^2 + \\frac{1}{2} \\end{align}", "git commit -am 'fix' && make -j8 2>&1 | tee log.txt",
        "0xDEADBEEF 1_000_000 3.14159 1e-9 192.168.0.1 2024-01-31T12:00:00Z", "camelCase snake_case SCREAMING_CASE kebab-case",
        "I'm you're he's we'll they've I'd DON'T it'S", "a" * 300, "ab" * 500, " " * 200, "\n" * 90, "=" * 120, "好" * 200, "1" * 150,
        "The quick brown fox jumps over the lazy dog. " * 8]


def make_texts():
    r = random.Random(11)
    words = json.load(open(os.path.join(ROOT, "eval/ruler_tasks/words.json")))
    english = words["noun"] + words["adj"] + words["verb"] + ["the", "of", "and", "a", "to", "in", "is", "that", "it", "was"]
    texts = ["", " ", "\n", "a", " a", "a ", "  a  b  "] + CODE + SPECIALS
    for name, letters in ALPHABETS.items():
        texts += ["".join(r.choice(letters) for _ in range(n)) for n in (1, 2, 3, 5, 8, 13, 30)]
    for _ in range(500):  # English as it is written
        parts = []
        for _ in range(r.randrange(1, 30)):
            w = r.choice(english)
            parts.append(r.choice([w, w, w, w.capitalize(), w.upper(), w + ",", w + ".", w + "'s", str(r.randrange(10 ** r.randrange(1, 9)))]))
        texts.append(r.choice(["", " ", "\n"]) + " ".join(parts) + r.choice(["", ".", "!\n", " "]))
    names = list(ALPHABETS)
    for _ in range(1300):  # everything beside everything
        parts = []
        for _ in range(r.randrange(1, 12)):
            kind = r.choice(names)
            parts.append("".join(r.choice(ALPHABETS[kind]) for _ in range(r.randrange(1, 7))))
            if r.random() < .3:
                parts.append(" ")
            if r.random() < .06:
                parts.append(r.choice(SPECIALS))
            if r.random() < .06:
                parts.append(r.choice(CODE)[:60])
        texts.append("".join(parts))
    for _ in range(100):  # any assigned character
        texts.append("".join(chr(r.choice([r.randrange(0x20, 0x250), r.randrange(0x370, 0x2000), r.randrange(0x4e00, 0x9fff),
                                           r.randrange(0x1f300, 0x1f6d0), r.randrange(0xac00, 0xd7a3)])) for _ in range(r.randrange(1, 25))))
    raw = []
    for _ in range(200):  # bytes that are no UTF-8
        t = bytearray(r.choice(texts[40:]).encode()[:60] or b"x")
        for _ in range(r.randrange(1, 4)):
            at = r.randrange(len(t))
            t[at:at + r.randrange(2)] = bytes(r.randrange(128, 256) for _ in range(r.randrange(1, 3)))
        raw.append(bytes(t))
    return [t.encode() for t in texts] + raw


def stored(text):
    try:
        return text.decode()
    except UnicodeDecodeError:
        return {"hex": text.hex()}


def digest(ids):
    h = 0xCBF29CE484222325  # FNV-1a, 64 bits
    for byte in struct.pack(f"<{len(ids)}i", *ids):
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def write(out, name, texts, made_by, as_text, parsed):
    rows, full = [], {}
    for i, text in enumerate(texts):
        sound = text.decode(errors="replace")
        a, b = as_text(sound), parsed(sound) if parsed else None
        rows.append(digest(a) if b is None or a == b else [digest(a), digest(b)])
        if i % 40 == 0:
            full[str(i)] = a
    with open(os.path.join(out, name + ".json"), "w") as f:
        json.dump({"made_by": made_by, "digests": rows, "ids": full}, f, indent=0)


def hugging_face(tokenizer):
    def encode(text, specials_as_text):
        tokenizer.encode_special_tokens = specials_as_text
        return tokenizer.encode(text, add_special_tokens=False).ids
    return (lambda t: encode(t, True)), (lambda t: encode(t, False))


def small(out, name, pattern, specials, compose, texts):
    """A byte-level tokenizer of 700 tokens with the family's expression and special tokens."""
    t = Tokenizer(models.BPE(ignore_merges=name == "small_llama3"))
    if compose:
        t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    t.train_from_iterator([x.decode(errors="replace") for x in texts], trainer)
    for s in specials:
        if s == "<tool_call>":
            t.add_tokens([tokenizers.AddedToken(s, normalized=False)])
        else:
            t.add_special_tokens([s])
    if name == "small_llama3":
        t.post_processor = processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[
            ("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])
    folder = os.path.join(out, name)
    os.makedirs(folder, exist_ok=True)
    t.save(os.path.join(folder, "tokenizer.json"), pretty=False)
    return t


LACKING = "\x01\x1b\u05d0"  # what the one below was not trained on: it has no token for bytes 0x01, 0x1b and 0xd7


def small_smollm2(out, texts):
    """Digits one by one, then GPT-2's words, and a vocabulary without some bytes, as SmolLM2's."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    t.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=700, show_progress=False, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    lacking = {c.encode()[:1] for c in LACKING}
    known = [x for x in texts if not any(bytes([b]) in lacking for b in x)]
    t.train_from_iterator([x.decode(errors="replace") for x in known], trainer)
    folder = os.path.join(out, "small_smollm2")
    os.makedirs(folder, exist_ok=True)
    t.save(os.path.join(folder, "tokenizer.json"), pretty=False)
    return t


def printable_to_bytes():
    prints = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    table, n = {chr(b): b for b in prints}, 0
    for b in range(256):
        if b not in prints:
            table[chr(256 + n)] = b
            n += 1
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder with tokenizers/llama-2, llama-3 and qwen2")
    parser.add_argument("--out", default=os.path.join(ROOT, "tests/golden/tokenizers"))
    arguments = parser.parse_args()
    out, data = arguments.out, os.path.join(arguments.data, "tokenizers")
    os.makedirs(out, exist_ok=True)
    texts = make_texts()
    with open(os.path.join(out, "texts.json"), "w", encoding="utf-8") as f:
        json.dump([stored(t) for t in texts], f, ensure_ascii=True, indent=0)

    sp = sentencepiece.SentencePieceProcessor(model_file=os.path.join(data, "llama-2/tokenizer.model"))
    write(out, "llama-2", texts, "sentencepiece " + sentencepiece.__version__, lambda t: sp.encode(t), None)

    ranks = tiktoken.load.load_tiktoken_bpe(os.path.join(data, "llama-3/tokenizer.model"))
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
             "<|finetune_right_pad_id|>", "<|reserved_special_token_2|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
             "<|eot_id|>", "<|python_tag|>"]
    names += [f"<|reserved_special_token_{3 + i}|>" for i in range(256 - len(names))]
    enc = tiktoken.Encoding("llama3", pat_str=LLAMA3, mergeable_ranks=ranks,
                            special_tokens={n: len(ranks) + i for i, n in enumerate(names)})
    write(out, "llama-3", texts, "tiktoken " + tiktoken.__version__, enc.encode_ordinary,
          lambda t: enc.encode(t, allowed_special="all", disallowed_special=()))

    qwen = transformers.AutoTokenizer.from_pretrained(os.path.join(data, "qwen2"), use_fast=True)
    write(out, "qwen2", texts, f"transformers {transformers.__version__}, tokenizers {tokenizers.__version__}",
          *hugging_face(qwen.backend_tokenizer))

    made_by = "tokenizers " + tokenizers.__version__
    llama = small(out, "small_llama3", LLAMA3, ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
                                                 "<|eot_id|>"], False, texts)
    write(out, "small_llama3", texts, made_by, *hugging_face(llama))
    qwen = small(out, "small_qwen2", QWEN2, ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>"], True, texts)
    write(out, "small_qwen2", texts, made_by, *hugging_face(qwen))

    write(out, "small_smollm2", texts, made_by, *hugging_face(small_smollm2(out, texts)))

    # The same Qwen-like tokenizer in its older form.
    model = json.loads(qwen.to_str())
    folder = os.path.join(out, "small_qwen2_files")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "vocab.json"), "w") as f:
        json.dump(model["model"]["vocab"], f, ensure_ascii=False)
    with open(os.path.join(folder, "merges.txt"), "w") as f:
        f.write("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in model["model"]["merges"]))
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as f:
        json.dump({"tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "eos_token": "<|im_end|>", "added_tokens_decoder": {
            str(t["id"]): {k: t[k] for k in ("content", "lstrip", "normalized", "rstrip", "single_word", "special")}
            for t in model["added_tokens"]}}, f, indent=1)

    # A tiktoken file: ranks are the order of the merges, so it is a tokenizer of its own with a reference of its own.
    table = printable_to_bytes()
    model = json.loads(llama.to_str())["model"]
    special = {t["id"] for t in json.loads(llama.to_str())["added_tokens"]}
    ordered = [t for t, i in sorted(model["vocab"].items(), key=lambda x: x[1]) if i not in special]
    ranks = {bytes(table[c] for c in t): i for i, t in enumerate(ordered)}
    folder = os.path.join(out, "small_tiktoken")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "tokenizer.model"), "wb") as f:
        for token, rank in ranks.items():
            f.write(base64.b64encode(token) + f" {rank}\n".encode())
    enc = tiktoken.Encoding("small", pat_str=LLAMA3, mergeable_ranks=ranks,
                            special_tokens={n: len(ranks) + i for i, n in enumerate(names)})
    write(out, "small_tiktoken", texts, "tiktoken " + tiktoken.__version__, enc.encode_ordinary,
          lambda t: enc.encode(t, allowed_special="all", disallowed_special=()))


if __name__ == "__main__":
    main()
