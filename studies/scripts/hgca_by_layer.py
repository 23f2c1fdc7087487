#!/usr/bin/env python3
"""Where HGCA loses perplexity, by layer, head and kind of token: the second half of studies/notes/hgca.md.

An implementation of models/seed and of HGCA's rules in NumPy, apart from the engine's: it gives the perplexities that
`tandem eval perplexity --model seed --precision f32` prints, and lets single layers, heads and tokens be exchanged. Needs NumPy
and sentencepiece. Takes some 6 minutes of one core for 30 windows and all tables.

  studies/scripts/hgca_by_layer.py licences.txt
  studies/scripts/hgca_by_layer.py licences.txt --windows 4 --only layers
"""

import argparse
import json
import pathlib
import struct

import numpy as np
import sentencepiece

CONTEXT, NEW = 1024, 256  # tokens before the scored ones, and scored
PROMPT, TOKENS = CONTEXT - 1, CONTEXT + NEW - 1
DEVICE_KV, BLOCK, ALPHA, OBSERVED = 0.25, 32, 0.1, 64
MODEL = pathlib.Path(__file__).resolve().parents[2] / "models" / "seed"


def load_bf16(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    weights = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            bits = np.frombuffer(data[begin:end], dtype=np.uint16).astype(np.uint32) << 16
            weights[name] = bits.view(np.float32).reshape(entry["shape"])
    return weights


CONFIG = json.loads((MODEL / "config.json").read_text())
WEIGHTS = load_bf16(MODEL / "model.safetensors")
LAYERS, Q_HEADS = CONFIG["num_hidden_layers"], CONFIG["num_attention_heads"]
KV_HEADS, DIM = CONFIG["num_key_value_heads"], CONFIG["head_dim"]

# ---- the model -------------------------------------------------------------------------------------------------------


def norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + CONFIG["rms_norm_eps"]) * weight


def rope(x, positions):
    angle = positions[:, None] * CONFIG["rope_theta"] ** (-np.arange(0, DIM, 2) / DIM)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    a, b = x[..., : DIM // 2], x[..., DIM // 2 :]
    return np.concatenate((a * cos - b * sin, b * cos + a * sin), -1)


def heads(layer, x, name, count):
    return (x @ WEIGHTS[f"model.layers.{layer}.self_attn.{name}_proj.weight"].T).reshape(len(x), count, DIM)


def qkv(layer, x, positions):
    """Each [head][token][DIM]."""
    own = f"model.layers.{layer}."
    y = norm(x, WEIGHTS[own + "input_layernorm.weight"])
    q = norm(heads(layer, y, "q", Q_HEADS), WEIGHTS[own + "self_attn.q_norm.weight"]).transpose(1, 0, 2)
    k = norm(heads(layer, y, "k", KV_HEADS), WEIGHTS[own + "self_attn.k_norm.weight"]).transpose(1, 0, 2)
    return rope(q, positions), rope(k, positions), heads(layer, y, "v", KV_HEADS).transpose(1, 0, 2)


def finish_layer(layer, x, attended):
    own = f"model.layers.{layer}."
    x = x + attended.transpose(1, 0, 2).reshape(len(x), -1) @ WEIGHTS[own + "self_attn.o_proj.weight"].T
    y = norm(x, WEIGHTS[own + "post_attention_layernorm.weight"])
    gate = y @ WEIGHTS[own + "mlp.gate_proj.weight"].T
    up = y @ WEIGHTS[own + "mlp.up_proj.weight"].T
    return x + (gate / (1 + np.exp(-gate)) * up) @ WEIGHTS[own + "mlp.down_proj.weight"].T


def softmax(scores):
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def scores_of(q, k):
    grouped = q.reshape(KV_HEADS, -1, DIM)
    return np.einsum("gtd,gsd->gts", grouped, k, optimize=True).reshape(Q_HEADS, -1, k.shape[1]) / np.sqrt(DIM)


def weighted(weights, v):
    return (weights.reshape(KV_HEADS, -1, weights.shape[-1]) @ v).reshape(Q_HEADS, -1, DIM)


class Window:
    """One window of the text, its first PROMPT tokens prefilled exactly."""

    def __init__(self, ids):
        self.ids, self.k, self.v, self.observed = ids, [], [], []
        x = WEIGHTS["model.embed_tokens.weight"][ids[:PROMPT]]
        causal = np.tril(np.ones((PROMPT, PROMPT), bool))
        for layer in range(LAYERS):
            q, k, v = qkv(layer, x, np.arange(PROMPT))
            scores = np.where(causal, scores_of(q, k), -np.inf)
            self.k.append(k)
            self.v.append(v)
            self.observed.append(scores[:, -OBSERVED:].copy())
            x = finish_layer(layer, x, weighted(softmax(scores), v))


def losses(window, attend):
    """Of the NEW scored tokens. attend(window, layer, scores [head][step][token], v) -> [head][step][DIM]."""
    positions = np.arange(PROMPT, TOKENS)
    x = WEIGHTS["model.embed_tokens.weight"][window.ids[PROMPT:TOKENS]]
    for layer in range(LAYERS):
        q, k, v = qkv(layer, x, positions)
        k, v = np.concatenate((window.k[layer], k), 1), np.concatenate((window.v[layer], v), 1)
        scores = np.where(np.arange(TOKENS)[None] <= positions[:, None], scores_of(q, k), -np.inf)
        x = finish_layer(layer, x, attend(window, layer, scores, v))
    logits = norm(x, WEIGHTS["model.norm.weight"]) @ WEIGHTS["model.embed_tokens.weight"].T
    logits = logits - logits.max(-1, keepdims=True)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -log_p[np.arange(NEW), window.ids[PROMPT + 1 :]]


# ---- HGCA's rules ----------------------------------------------------------------------------------------------------


def leaving(tokens, capacity):
    return 0 if tokens < capacity else (tokens - capacity + BLOCK) // BLOCK * BLOCK


def window_begins():
    """The first token in the window at each step, and after the step; what leaves after the prefill."""
    capacity = max(-(-int(round(DEVICE_KV * (TOKENS + 1))) // BLOCK), 2) * BLOCK
    first = begin = leaving(PROMPT, capacity)
    begins, after = [], []
    for token in range(PROMPT, TOKENS):
        begins.append(begin)
        begin += leaving(token + 1 - begin, capacity)
        after.append(begin)
    return np.array(begins), np.array(after), first


BEGIN, AFTER, FIRST = window_begins()
FAR = np.arange(TOKENS)[None] < BEGIN[:, None]  # [step][token]


def salient(window, layer, scores, beta, prompt_beta=None, later_beta=None, per_layer=False):
    """Far tokens that are kept: [head][step][token]. per_layer: one choice for all heads, by their mean weight."""
    at_prefill = beta if prompt_beta is None else prompt_beta
    later = beta if later_beta is None else later_beta
    mean = (lambda x: x.mean(0, keepdims=True)) if per_layer else (lambda x: x)
    observed = window.observed[layer]
    in_all = softmax(observed).mean(1)
    in_window = softmax(np.where(np.arange(PROMPT) < FIRST, -np.inf, observed)).mean(1)
    before = mean(np.where(np.arange(PROMPT) < FIRST, in_all, in_window))
    average = np.zeros((len(before), TOKENS), np.float32)
    average[:, :PROMPT] = before
    kept = np.zeros(average.shape, bool)
    kept[:, :FIRST] = average[:, :FIRST] > (at_prefill / PROMPT if at_prefill > 0 else -1)
    weights = mean(softmax(np.where(FAR, -np.inf, scores)))
    keep = np.zeros((len(before), NEW, TOKENS), bool)
    for step in range(NEW):
        keep[:, step] = kept
        begin, end = BEGIN[step], PROMPT + step + 1
        average[:, begin:end] = (1 - ALPHA) * average[:, begin:end] + ALPHA * weights[:, step, begin:end]
        left = AFTER[step]
        kept[:, begin:left] = average[:, begin:left] > (later / (end - begin) if later > 0 else -1)
    return keep


# ---- what far tokens a head attends ----------------------------------------------------------------------------------


def nothing(window, layer, scores):
    return np.zeros_like(FAR)[None]


def by_salience(beta, **options):
    return lambda window, layer, scores: salient(window, layer, scores, beta, **options)


def first_tokens(count):
    return lambda window, layer, scores: (np.arange(TOKENS) < count)[None, None] & FAR


def but_the_first(choice, count):
    return lambda window, layer, scores: choice(window, layer, scores) & (np.arange(TOKENS) >= count)


def but_the_token(choice, token, layers):
    def choose(window, layer, scores):
        chosen = choice(window, layer, scores)
        return chosen & (window.ids[:TOKENS] != token) if layer in layers else chosen

    return choose


def at_random(choice, random):
    """As many tokens per head and evicted block as the choice has."""

    def choose(window, layer, scores):
        chosen = choice(window, layer, scores)
        out = np.zeros_like(chosen)
        for begin, end in [(0, FIRST)] + sorted({(int(a), int(b)) for a, b in zip(BEGIN, AFTER) if b > a}):
            live = BEGIN >= end
            if live.any():
                rows = chosen[:, int(np.argmax(live)), begin:end]
                out[:, live, begin:end] = np.array([random.permutation(row) for row in rows])[:, None]
        return out

    return choose


def by_query(choice):
    """As many tokens per head and step as the choice has: those with the largest scores of the step itself."""

    def choose(window, layer, scores):
        count = choice(window, layer, scores).sum(-1)
        order = np.argsort(-np.where(FAR, scores, -np.inf), axis=-1, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.broadcast_to(np.arange(TOKENS), order.shape), -1)
        return (rank < count[..., None]) & FAR

    return choose


def attention(choice, where=lambda layer, head: True, elsewhere=None):
    """The window and `choice` where(layer, head) holds; there else `elsewhere`, or everything."""

    def attend(window, layer, scores, v):
        chosen = np.array([where(layer, head) for head in range(Q_HEADS)])[:, None, None]
        visible = ~FAR | (choice(window, layer, scores) if chosen.any() else False)
        other = True if elsewhere is None else ~FAR | elsewhere(window, layer, scores)
        return weighted(softmax(np.where(np.where(chosen, visible, other), scores, -np.inf)), v)

    return attend


def averaging(layer, head):
    return layer == 0 and head in (1, 2)


def experiments(line_break):
    random = np.random.default_rng(7)
    one, all_layers = by_salience(1), range(LAYERS)
    layers = {}
    for name, where in [("everywhere", lambda layer, head: True)] + [
        (f"layer {n} only", lambda layer, head, n=n: layer == n) for n in all_layers
    ] + [("heads 1 and 2 of layer 0 only", averaging)]:
        for label, choice in (("window", nothing), ("beta 1", one), ("beta 2", by_salience(2))):
            layers[f"{name}: {label}"] = attention(choice, where)
    layers["beta 1, but those two heads window only"] = attention(nothing, averaging, elsewhere=one)
    tokens = {}
    for name, where in (("those two heads", averaging), ("everywhere", lambda layer, head: True)):
        for label, choice in (
            ("the first four", first_tokens(4)),
            ("salient, but not the first four", but_the_first(one, 4)),
            ("the largest weights under the step's query", by_query(one)),
            ("as many at random", at_random(one, random)),
        ):
            tokens[f"{name}: {label}"] = attention(choice, where)
    for label, which in (("", all_layers), (" in layer 0", [0]), (" in layers 1 to 3", [1, 2, 3])):
        tokens["salient, but no line breaks" + label] = attention(but_the_token(one, line_break, which))
    readings = {
        "prompt weights against beta / device tokens": attention(by_salience(1, prompt_beta=PROMPT / (PROMPT + 1 - FIRST))),
        "one choice per layer, beta 1": attention(by_salience(1, per_layer=True)),
        "one choice per layer, beta 2": attention(by_salience(2, per_layer=True)),
        "all that leaves after the prefill": attention(by_salience(1, prompt_beta=0)),
        "all that leaves later": attention(by_salience(1, later_beta=0)),
    }
    return {"layers": layers, "tokens": tokens, "readings": readings}


def line_break_shares(windows, line_break):
    """Share of the attention weight that line breaks have, by head of layer 0, and how many of them are salient."""
    random, one = np.random.default_rng(7), by_salience(1)
    choices = {"full": None, "window": nothing, "beta 1": one, "beta 2": by_salience(2), "random": at_random(one, random)}
    shares, kept = {name: [] for name in choices}, []

    def look(window, layer, scores, v):
        if layer == 0:
            breaks = window.ids[:TOKENS] == line_break
            for name, choice in choices.items():
                visible = True if choice is None else ~FAR | choice(window, layer, scores)
                weights = softmax(np.where(visible, scores, -np.inf))
                shares[name].append((weights * breaks).sum(-1).mean(1))
            kept.append(one(window, layer, scores)[:, 0, :FIRST][:, breaks[:FIRST]].mean(1))
        return weighted(softmax(scores), v)

    for window in windows:
        losses(window, look)
    print("\nLine breaks in layer 0, by head:")
    for name, values in shares.items():
        print(f"  share of the weight, {name:8s}", " ".join(f"{100 * x:6.1f}" for x in np.mean(values, 0)), "%")
    print(f"  {'salient after the prefill':29s}", " ".join(f"{100 * x:6.1f}" for x in np.mean(kept, 0)), "%")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=pathlib.Path, help="the text that `eval perplexity --text` is given")
    parser.add_argument("--windows", type=int, default=30)
    parser.add_argument("--only", choices=["layers", "tokens", "readings", "breaks"], help="one of the tables")
    arguments = parser.parse_args()
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(MODEL / "tokenizer.model"))
    ids = tokenizer.encode(arguments.text.read_text())
    if len(ids) < TOKENS * arguments.windows:
        parser.error(f"{arguments.text} has {len(ids)} tokens; {arguments.windows} windows need {TOKENS * arguments.windows}.")
    windows = [Window(np.array([1] + ids[n * TOKENS : (n + 1) * TOKENS])) for n in range(arguments.windows)]
    line_break = tokenizer.piece_to_id("\n")
    exact = np.array([losses(window, lambda w, layer, scores, v: weighted(softmax(scores), v)) for window in windows])
    print(f"full attention: perplexity {np.exp(exact.mean()):.2f}", flush=True)
    for name, table in experiments(line_break).items():
        if arguments.only not in (None, name):
            continue
        print(f"\n{'':52s} perplexity  nats more than full", flush=True)
        for label, attend in table.items():
            got = np.array([losses(window, attend) for window in windows])
            print(f"{label:52s} {np.exp(got.mean()):10.2f}  {got.mean() - exact.mean():+.3f}", flush=True)
    if arguments.only in (None, "breaks"):
        line_break_shares(windows, line_break)


if __name__ == "__main__":
    main()
