"""The tokenizer of a GGUF file as files of a Hugging Face folder. Needs Python's standard library.

A byte-level vocabulary ("gpt2") becomes a tokenizer.json. How it cuts a text into words stands in a GGUF file by name alone:
WORDS has the names that are known. SentencePiece's pieces ("llama") become a tokenizer.model.
"""
import json
import struct

from gguf_file import BadFile

CONTROL, USER_DEFINED, UNUSED = 3, 4, 5  # kinds of token
LLAMA_3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN_2 = LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}")


def cut(expression):
    return [{"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]


# By tokenizer.ggml.pre: transformers' class, the pre-tokenizers, the normalizer, whether whole words skip merges, and whether a
# sequence begins with BOS where the file does not say.
WORDS = {
    "smollm": ("PreTrainedTokenizerFast", [{"type": "Digits", "individual_digits": True},
                                           {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}],
               None, False, False),
    "llama-bpe": ("PreTrainedTokenizerFast", cut(LLAMA_3), None, True, True),
    "qwen2": ("Qwen2Tokenizer", cut(QWEN_2), {"type": "NFC"}, False, False),
}


def added_token(number, text, special):
    return {"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}


def named(metadata, tokens):
    """bos_token, eos_token and the like of tokenizer_config.json."""
    out = {}
    for name in ("bos", "eos"):
        number = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if number is not None and number < len(tokens):
            out[f"{name}_token"] = tokens[number]
    return out


def byte_level(path, metadata, tokens, kinds):
    pre = metadata.get("tokenizer.ggml.pre")
    if pre not in WORDS:
        raise BadFile(f"{path}: 'tokenizer.ggml.pre' is {pre!r}; how texts are cut into words is known for {', '.join(sorted(WORDS))}. "
                      "Take the model's own folder.")
    of_class, words, normalizer, whole_words, begins = WORDS[pre]
    config = {"tokenizer_class": of_class, **named(metadata, tokens)}
    added = [added_token(i, text, kinds[i] == CONTROL) for i, text in enumerate(tokens) if kinds[i] in (CONTROL, USER_DEFINED)]
    processor = None
    if metadata.get("tokenizer.ggml.add_bos_token", begins):
        bos = config.get("bos_token")
        if bos is None:
            raise BadFile(f"{path}: texts begin with BOS, and 'tokenizer.ggml.bos_token_id' names no token.")
        text, first = {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": bos, "type_id": 0}}
        processor = {"type": "TemplateProcessing", "single": [first, text],
                     "pair": [first, text, {"Sequence": {"id": "B", "type_id": 1}}],
                     "special_tokens": {bos: {"id": bos, "ids": [tokens.index(bos)], "tokens": [bos]}}}
    merges = [merge.split(" ") for merge in metadata.get("tokenizer.ggml.merges", [])]
    if any(len(merge) != 2 for merge in merges):
        raise BadFile(f"{path}: 'tokenizer.ggml.merges' has an entry that is no two tokens with a space between.")
    vocabulary = {text: i for i, text in enumerate(tokens) if kinds[i] != UNUSED}
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": whole_words, "vocab": vocabulary, "merges": merges}
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer,
             "pre_tokenizer": {"type": "Sequence", "pretokenizers": words}, "post_processor": processor,
             "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, "model": model}
    return config, {"tokenizer.json": json.dumps(whole, ensure_ascii=False).encode()}


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def message(number, content):
    """A field of protocol buffers: a whole number, or bytes."""
    if isinstance(content, int):
        return varint(number << 3) + varint(content)
    return varint(number << 3 | 2) + varint(len(content)) + content


def sentencepiece(path, metadata, tokens, kinds):
    scores = metadata.get("tokenizer.ggml.scores", [])
    if len(scores) != len(tokens):
        raise BadFile(f"{path}: 'tokenizer.ggml.scores' has {len(scores)} entries for {len(tokens)} tokens.")
    space = metadata.get("tokenizer.ggml.add_space_prefix", True)
    unknown = metadata.get("tokenizer.ggml.unknown_token_id", 0)
    if not isinstance(unknown, int) or not 0 <= unknown < len(tokens):
        raise BadFile(f"{path}: 'tokenizer.ggml.unknown_token_id' is {unknown!r}, and there are {len(tokens)} tokens.")
    out = []
    for text, score, kind in zip(tokens, scores, kinds, strict=True):
        piece = message(1, text.encode()) + b"\x15" + struct.pack("<f", score) + message(3, kind or 1)
        out.append(message(1, piece))
    # Trainer: byte pairs, bytes for what has no piece, ids. Normalizer: none, and its three switches.
    trainer = message(3, 2) + message(4, len(tokens)) + message(35, 1) + message(40, unknown)
    for field, name in ((41, "bos"), (42, "eos")):
        number = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if number is not None and number < len(tokens):
            trainer += message(field, number)
    normalizer = message(1, b"identity") + message(3, int(space)) + message(4, 0) + message(5, 1)
    out += [message(2, trainer), message(3, normalizer)]
    config = {"tokenizer_class": "LlamaTokenizer", **named(metadata, tokens), "unk_token": tokens[unknown], "legacy": False,
              "add_bos_token": metadata.get("tokenizer.ggml.add_bos_token", True), "add_prefix_space": space}
    return config, {"tokenizer.model": b"".join(out)}


def tokenizer_files(path, metadata):
    """tokenizer_config.json and the vocabulary's file, by name; and the number of tokens."""
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not tokens:
        raise BadFile(f"{path} has no tokenizer ('tokenizer.ggml.tokens'). Take the model's own folder.")
    if len(set(tokens)) != len(tokens):
        raise BadFile(f"{path}: 'tokenizer.ggml.tokens' has a text twice.")
    kinds = metadata.get("tokenizer.ggml.token_type", [1] * len(tokens))
    if len(kinds) != len(tokens):
        raise BadFile(f"{path}: 'tokenizer.ggml.token_type' has {len(kinds)} entries for {len(tokens)} tokens.")
    made = {"gpt2": byte_level, "llama": sentencepiece}.get(metadata.get("tokenizer.ggml.model"))
    if made is None:
        raise BadFile(f"{path}: 'tokenizer.ggml.model' is {metadata.get('tokenizer.ggml.model')!r}; known are gpt2 and llama.")
    config, files = made(path, metadata, tokens, kinds)
    if "tokenizer.chat_template" in metadata:
        config["chat_template"] = metadata["tokenizer.chat_template"]
    return {"tokenizer_config.json": json.dumps(config, indent=1).encode(), **files}, len(tokens)
