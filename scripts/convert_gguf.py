"""Converts a GGUF file of a SmolLM model, quantised or not, to a Hugging Face folder of bf16 weights.

  python3 scripts/convert_gguf.py SmolLM2-135M-Instruct.Q4_1.gguf folder     (needs transformers, gguf, accelerate and torch)

The weights are those of the file: what its quantisation lost stays lost, and rounding to bf16 loses a little more. transformers
reads them. How a tokenizer cuts text into words stands in a GGUF file by name alone: one name is known here. Files of other models
are refused, since more than that is lost in them: Llama 3's scaled RoPE and whole words, Qwen's normal form, YaRN.
"""
import argparse
import pathlib

import gguf
import torch
from tokenizers import pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer


def field(reader, name):
    found = reader.get_field(name)
    return None if found is None else found.contents()


def check(file, reader):
    wanted = {"general.architecture": ("llama",), "tokenizer.ggml.model": ("gpt2",), "tokenizer.ggml.pre": ("smollm",),
              "llama.rope.scaling.type": (None, "none"), "split.count": (None, 0, 1), "tokenizer.ggml.add_bos_token": (None, False)}
    for name, values in wanted.items():
        if field(reader, name) not in values:
            raise SystemExit(f"{file}: '{name}' is {field(reader, name)!r}, where only {values[-1]!r} can be converted. Take the model's own "
                             "folder.")
    if any(tensor.name.startswith("rope_freqs") for tensor in reader.tensors):
        raise SystemExit(f"{file}: its RoPE is scaled (tensor rope_freqs), which would be lost. Take the model's own folder.")


def convert(file, folder):
    check(file, gguf.GGUFReader(file))
    if folder.exists() and any(folder.iterdir()):
        raise SystemExit(f"{folder} is not empty: what lies there could be read in place of what is written. Name another folder.")
    where = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    read, said = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32, output_loading_info=True)
    for what in ("missing_keys", "mismatched_keys"):
        if said.get(what):
            raise SystemExit(f"{file}: {what.replace('_', ' ')}: {', '.join(map(str, sorted(said[what])[:3]))}. Is the file whole?")
    config = AutoConfig.from_pretrained(**where)
    if hasattr(config, "quantization_config"):  # of the file: what is written is not quantised
        del config.quantization_config
    config.dtype = torch.bfloat16
    model = AutoModelForCausalLM.from_config(config)
    model.load_state_dict(read.state_dict())
    tokenizer = AutoTokenizer.from_pretrained(**where)
    if len(tokenizer) != config.vocab_size:
        raise SystemExit(f"{file}: {len(tokenizer)} tokens beside {config.vocab_size} rows of the embedding.")
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.save_pretrained(folder)
    model.to(torch.bfloat16).save_pretrained(folder)


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
