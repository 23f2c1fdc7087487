"""Converts a GGUF file of a Llama or Qwen model, quantised or not, to a Hugging Face folder of bf16 weights.

  python3 scripts/convert_gguf.py SmolLM2-135M-Instruct.Q4_1.gguf folder     (needs transformers, gguf and torch)

The weights are those of the file: what its quantisation lost stays lost, and rounding to bf16 loses a little more. transformers
reads them and most of the tokenizer; how a tokenizer cuts texts into words, which a GGUF file has by name alone, is put right
here for the names that are known.
"""
import argparse
import json
import pathlib

import gguf
import torch
from tokenizers import Regex, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")


def by_expression(expression):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(expression), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


WORDS = {  # tokenizer.ggml.pre: how the published tokenizer.json of such models cuts
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                       pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]),
    "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
    "llama-bpe": by_expression(LLAMA3),
    "qwen2": by_expression(LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")),
}


def field(reader, name):
    found = reader.get_field(name)
    return None if found is None else found.contents()


def convert(file, folder):
    reader = gguf.GGUFReader(file)
    if field(reader, "tokenizer.ggml.model") != "gpt2":
        raise SystemExit(f"{file}: its tokenizer is '{field(reader, 'tokenizer.ggml.model')}', but only byte-level BPE ('gpt2') is "
                         "converted. Take tokenizer.model from the model's own folder.")
    cut = field(reader, "tokenizer.ggml.pre")
    if cut not in WORDS:
        raise SystemExit(f"{file}: tokenizer.ggml.pre is '{cut}', but there are {', '.join(WORDS)}. Take tokenizer.json from the "
                         "model's own folder.")
    where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    read = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = AutoConfig.from_pretrained(**where)
    if hasattr(config, "quantization_config"):  # of the file: what is written is not quantised
        del config.quantization_config
    config.dtype = torch.bfloat16
    model = AutoModelForCausalLM.from_config(config)
    model.load_state_dict(read.state_dict())
    model.to(torch.bfloat16).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(**where)
    tokenizer.backend_tokenizer.pre_tokenizer = WORDS[cut]
    tokenizer.save_pretrained(folder)
    made = folder / "tokenizer_config.json"
    said = json.loads(made.read_text())
    said["add_bos_token"] = bool(field(reader, "tokenizer.ggml.add_bos_token"))
    made.write_text(json.dumps(said, indent=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path, help="the .gguf file")
    parser.add_argument("folder", type=pathlib.Path, help="where the Hugging Face folder goes")
    arguments = parser.parse_args()
    if not arguments.file.is_file():
        raise SystemExit(f"{arguments.file} is not there.")
    convert(arguments.file.resolve(), arguments.folder)


if __name__ == "__main__":
    main()
