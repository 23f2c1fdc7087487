#!/usr/bin/env python3
"""Makes the goldens of chat formats and chat templates, and compares published templates with transformers.

  python3 scripts/make_chat_goldens.py --formats FOLDER      tests/golden/chat.json (needs jinja2)
  python3 scripts/make_chat_goldens.py --templates           tests/golden/chat_templates.json (needs transformers)
  python3 scripts/make_chat_goldens.py --compare FOLDER      a table for studies/notes/chat-templates.md (needs transformers)

--formats: what the official templates write, for the formats written by hand. FOLDER holds llama-2, llama-3, llama-3.1,
llama-3.2, qwen2, qwen2.5, qwen3 and smollm2 .jinja: the chat_template of the published instruct models'
tokenizer_config.json. Formats whose file is not there keep the cases that they have. Templates are rendered as transformers
does (trim_blocks, lstrip_blocks, no tools).

--templates: what transformers' apply_chat_template() writes with the templates of tests/golden/chat_templates, the special
tokens that it passes to them for several kinds of folders, and its ids.

--compare: whether each .jinja file of FOLDER is rendered as transformers does by engine/model/folder_template.py, which
runs with /usr/bin/python3.
"""
import argparse
import datetime
import hashlib
import json
import os
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def user(text): return {"role": "user", "content": text}
def assistant(text): return {"role": "assistant", "content": text}
def system(text): return {"role": "system", "content": text}
def tool(text): return {"role": "tool", "content": text}


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


# Of --templates and --compare, after those above.
MORE = [
    [system("Rules."), user("Q"), assistant("A")],
    [user("Use it"), assistant("I call it."), tool("42"), assistant("It is 42."), user("Thanks")],
    [user("Use it"), assistant("I call it."), tool('{"a": [1, "é"]}'), tool("second"), user("And?")],
    [user("<tool_response>\nnone asked\n</tool_response>")],
    [user("A"), assistant("<think>\nfirst\n</think>\n\nB"), user("<tool_response>x</tool_response>"), assistant("<think>\nsecond\n</think>C")],
    [user("one"), user("two")],
    [assistant("I begin"), user("Then I")],
    [user("x"), system("late rules"), user("y")],
    [system("only rules")],
    [user("{{ messages }} {% raw %} {# no comment #}"), assistant("{%- endraw -%}"), user("%s %d {0}")],
    [user("<b>&amp; \"quoted\" 'single' \\ back\\slash</b>")],
    [user("\r\nwindows\r\nlines\r\n"), assistant("\ttabs\t"), user("\u00a0no-break\u2003wide\u3000")],
    [{"role": "critic", "content": "a role of its own"}, user("x")],
    [system("Long. " * 40), user("word " * 60), assistant("</think></think>"), user("\x00\x1f\u2028")],
    [user("1"), assistant("2"), user("3"), assistant("4"), user("5"), assistant("6"), user("7"), assistant("8")],
]
NO_THINKING = [CONVERSATIONS[1], CONVERSATIONS[6], FINISHED[1]]

LLAMA = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "pad_token": "<|pad|>"}
SENTENCEPIECE = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
CHATML = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
DEEPSEEK = {"bos_token": "<\uff5cbegin\u2581of\u2581sentence\uff5c>", "eos_token": "<\uff5cend\u2581of\u2581sentence\uff5c>"}
VARIABLES = {"llama2": SENTENCEPIECE, "llama3": LLAMA, "llama31": LLAMA, "llama33": LLAMA, "functionary": LLAMA,
             "mistral": SENTENCEPIECE, "deepseek_r1": DEEPSEEK}

# The tokenizer that a template's text is encoded with.
TOKENIZERS = {"qwen3": "tests/golden/tokenizers/small_qwen2", "smollm2": "tests/golden/tokenizers/small_smollm2",
              "llama31": "tests/golden/tokenizers/small_llama3", "deepseek_r1": "models/seed"}

# Folders whose files name special tokens in one way each: tokenizer_config.json, special_tokens_map.json.
OBJECT = {"__type": "AddedToken", "content": "<a>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
PLAIN = {name: OBJECT[name] for name in ("content", "lstrip", "normalized", "rstrip", "single_word")}
FOLDERS = [
    [{"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<a>", "eos_token": "<b>"}, None],
    [{"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": OBJECT, "eos_token": None, "mask_token": "<c>"}, None],
    [{"tokenizer_class": "PreTrainedTokenizerFast", "image_token": "<a>", "boi_token": "<b>", "add_bos_token": False}, None],
    [{"tokenizer_class": "PreTrainedTokenizerFast", "extra_special_tokens": {"image_token": "<a>", "begin": "<b>"}}, None],
    [{"tokenizer_class": "PreTrainedTokenizerFast", "extra_special_tokens": ["<a>", "<b>"], "eos_token": "<c>"}, None],
    [{"tokenizer_class": "PreTrainedTokenizerFast", "additional_special_tokens": ["<a>"], "eos_token": "<c>"}, None],
    [{"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<a>"}, {"bos_token": "<b>", "eos_token": PLAIN}],
    [{"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<a>", "added_tokens_decoder": {}}, {"bos_token": "<b>"}],
    [{"tokenizer_class": "PreTrainedTokenizerFast"}, {"pad_token": "<a>", "image_token": "<b>", "additional_special_tokens": ["<c>"]}],
    [{"tokenizer_class": "LlamaTokenizerFast"}, None],
    [{"tokenizer_class": "LlamaTokenizer", "bos_token": "<a>", "eos_token": None}, None],
    [{"tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "eos_token": "<b>"}, None],
    [{"tokenizer_class": "GPT2TokenizerFast"}, None],
    [{}, None],
]


def cases_of(conversations):
    """(messages, whether the assistant is to answer, variables of the caller) of each."""
    cases = [(messages, messages[-1]["role"] != "assistant", {}) for messages in conversations]
    return cases + [(messages, messages[-1]["role"] != "assistant", {"enable_thinking": False}) for messages in NO_THINKING]


CASES = cases_of(CONVERSATIONS + FINISHED + MORE)


def official(name, folder, bos, eos):
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(open(os.path.join(folder, name + ".jinja"), encoding="utf-8").read())
    cases = []

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
    return cases


def make_formats(folder):
    path = os.path.join(ROOT, "tests/golden/chat.json")
    before = json.load(open(path)) if os.path.exists(path) else []
    cases = []
    for name, (bos, eos) in SPECIALS.items():
        there = os.path.exists(os.path.join(folder, name + ".jinja"))
        cases += official(name, folder, bos, eos) if there else [c for c in before if c["format"] == name]
    with open(path, "w") as f:
        json.dump(cases, f, indent=0)


class FixedDay(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26)


def tokenizer_with(specials):
    import transformers
    import transformers.utils.chat_template_utils as utils
    from tokenizers import Tokenizer, models
    utils.datetime = FixedDay
    return transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"<unk>": 0}, "<unk>")), **specials)


def apply(tokenizer, template, case):
    """What it writes, or the reason that the template itself gives for refusing, or that it cannot be run."""
    import jinja2
    messages, generate, more = case
    try:
        return tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, add_generation_prompt=generate, **more)
    except jinja2.TemplateError as error:
        return {"refused": str(error)} if type(error) is jinja2.TemplateError else {"fails": str(error)}
    except Exception as error:
        return {"fails": str(error)}


def variables_of(config, tokens_map):
    """The special tokens that transformers passes to the template of a folder with these files."""
    import transformers
    from tokenizers import Tokenizer, models
    words = ["<unk>", "<a>", "<b>", "<c>", "<s>", "</s>", "<|endoftext|>"]
    with tempfile.TemporaryDirectory() as folder:
        Tokenizer(models.BPE({w: i for i, w in enumerate(words)}, [], unk_token="<unk>")).save(os.path.join(folder, "tokenizer.json"))
        for name, content in (("tokenizer_config.json", config), ("special_tokens_map.json", tokens_map)):
            if content is not None:
                json.dump(content, open(os.path.join(folder, name), "w"))
        json.dump({"model_type": "llama"}, open(os.path.join(folder, "config.json"), "w"))
        return transformers.AutoTokenizer.from_pretrained(folder).special_tokens_map


def ids_of(folder, template, specials):
    """The ids of every third case, by apply_chat_template(tokenize=True)."""
    import transformers
    folder = os.path.join(ROOT, folder)
    if os.path.exists(os.path.join(folder, "tokenizer.json")):
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json"))
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = []
    for i, (messages, generate, more) in enumerate(CASES):
        if i % 3 == 0:
            ids.append([i, tokenizer.apply_chat_template(messages, chat_template=template, add_generation_prompt=generate,
                                                         return_dict=False, **specials | more)])
    return ids


def make_templates():
    import transformers
    folder = os.path.join(ROOT, "tests/golden/chat_templates")
    made = {"transformers": transformers.__version__, "cases": CASES, "templates": {}, "folders": [], "ids": {}}
    for name in sorted(os.listdir(folder)):
        name = name.removesuffix(".jinja")
        template = open(os.path.join(folder, name + ".jinja"), encoding="utf-8").read()
        specials = VARIABLES.get(name, CHATML)
        tokenizer = tokenizer_with(specials)
        made["templates"][name] = {"variables": specials, "texts": [apply(tokenizer, template, case) for case in CASES]}
    for config, tokens_map in FOLDERS:
        made["folders"].append({"config": config, "map": tokens_map, "variables": variables_of(config, tokens_map)})
    for name, tokenizer in TOKENIZERS.items():
        template = open(os.path.join(folder, name + ".jinja"), encoding="utf-8").read()
        specials = SENTENCEPIECE if tokenizer == "models/seed" else VARIABLES.get(name, CHATML)
        made["ids"][name] = {"tokenizer": tokenizer, "variables": specials, "ids": ids_of(tokenizer, template, specials)}
    with open(os.path.join(ROOT, "tests/golden/chat_templates.json"), "w") as f:
        json.dump(made, f, separators=(",", ":"))
        f.write("\n")


class OwnProcess:
    """engine/model/folder_template.py, asked as FolderTemplate asks it."""

    def __init__(self, template, variables):
        self.process = subprocess.Popen(["/usr/bin/python3", os.path.join(ROOT, "engine/model/folder_template.py")],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.error = self.ask({"template": template, "variables": variables, "date": [2024, 7, 26]})

    def ask(self, request):
        text = json.dumps(request).encode()
        self.process.stdin.write(b"%d\n" % len(text) + text)
        self.process.stdin.flush()
        return self.process.stdout.read(int(self.process.stdout.readline())).decode()

    def apply(self, case):
        messages, generate, more = case
        answer = self.error if self.error != "=" else self.ask(
            {"messages": messages, "variables": {"add_generation_prompt": generate, **more}})
        return answer[1:] if answer[0] == "=" else {"refused" if answer[0] == "!" else "fails": answer[1:]}


def same(theirs, mine):
    """Of reasons only the kind: sentences of Jinja2's differ from one version to the next."""
    return theirs == mine if isinstance(theirs, str) or isinstance(mine, str) else theirs.keys() == mine.keys()


def compare(folder):
    print("| template | SHA-256, first 16 digits | conversations | refused by it | as transformers |")
    print("|---|---|---:|---:|---:|")
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".jinja"):
            continue
        content = open(os.path.join(folder, name), "rb").read()
        tokenizer, mine = tokenizer_with(DEEPSEEK), OwnProcess(content.decode(), DEEPSEEK)
        theirs = [apply(tokenizer, content.decode(), case) for case in CASES]
        ours = [mine.apply(case) for case in CASES]
        equal = sum(same(a, b) for a, b in zip(theirs, ours))
        refused = sum(not isinstance(text, str) for text in theirs)
        digest = hashlib.sha256(content).hexdigest()[:16]
        print(f"| {name.removesuffix('.jinja')} | {digest} | {len(CASES)} | {refused} | {equal} |", flush=True)
        mine.process.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--formats", metavar="FOLDER")
    what.add_argument("--templates", action="store_true")
    what.add_argument("--compare", metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.formats:
        make_formats(arguments.formats)
    elif arguments.templates:
        make_templates()
    else:
        compare(arguments.compare)


if __name__ == "__main__":
    main()
