"""Makes tests/golden/chat.json: conversations as the official chat templates write them.

  python3 scripts/make_chat_goldens.py --templates FOLDER      (needs jinja2)

FOLDER holds llama-2, llama-3, llama-3.1, llama-3.2, qwen2, qwen2.5, qwen3 and smollm2 .jinja: the chat_template of the
published instruct models' tokenizer_config.json. Formats whose file is not there keep the cases that they have. Templates are rendered
as transformers does (trim_blocks, lstrip_blocks, no tools).
"""
import argparse
import json
import os

from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def user(text): return {"role": "user", "content": text}
def assistant(text): return {"role": "assistant", "content": text}
def system(text): return {"role": "system", "content": text}


CONVERSATIONS = [
    [user("Hello")],
    [system("Be brief."), user("Hello")],
    [system(""), user("Hello")],
    [system("  spaces \n"), user(" \n around \t")],
    [user("")],
    [user("One"), assistant("Two"), user("Three")],
    [system("S"), user("1"), assistant(" 2 \n"), user("3"), assistant("4"), user("5")],
    [user("a <|im_end|> b <|eot_id|> [/INST] </s>"), assistant("x"), user("y")],
    [user("多字节 ünïcode 👨‍👩‍👧\nlines\n\nand more"), assistant("ответ"), user("¿?")],
    [user("Think"), assistant("<think>\nLet me see.\n</think>\n\nDone."), user("Again")],
    [user("Think"), assistant("<think>\nOnly thoughts\n</think>\n\n"), user("And?"), assistant("no tags </think> \n tail"), user("!")],
]
FINISHED = [  # the last message is the assistant's: no generation prompt
    [user("Hello"), assistant("Hi there")],
    [system("S"), user("1"), assistant("2"), user("3"), assistant("<think>\nwhy\n</think>\n\n4")],
]
SPECIALS = {"llama-2": ("<s>", "</s>"), "llama-3": ("<|begin_of_text|>", "<|eot_id|>"), "llama-3.1": ("<|begin_of_text|>", "<|eot_id|>"),
            "llama-3.2": ("<|begin_of_text|>", "<|eot_id|>"), "qwen2": (None, "<|im_end|>"), "qwen2.5": (None, "<|im_end|>"),
            "qwen3": (None, "<|im_end|>"), "smollm2": ("<|im_start|>", "<|im_end|>")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--templates", required=True)
    folder = parser.parse_args().templates
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    path = os.path.join(ROOT, "tests/golden/chat.json")
    before = json.load(open(path)) if os.path.exists(path) else []
    cases = []
    for name, (bos, eos) in SPECIALS.items():
        if not os.path.exists(os.path.join(folder, name + ".jinja")):
            cases += [c for c in before if c["format"] == name]
            continue
        template = environment.from_string(open(os.path.join(folder, name + ".jinja"), encoding="utf-8").read())

        def add(messages, generate, **more):
            text = template.render(messages=messages, add_generation_prompt=generate, bos_token=bos, eos_token=eos, tools=None,
                                   date_string="26 Jul 2024", **more)
            cases.append({"format": name, "messages": messages, "generate": generate, "text": text, **more})

        for messages in CONVERSATIONS:
            add(messages, True)
            if name == "qwen3":
                add(messages, True, enable_thinking=False)
        for messages in FINISHED:
            add(messages, False)
    with open(path, "w") as f:
        json.dump(cases, f, indent=0)


if __name__ == "__main__":
    main()
