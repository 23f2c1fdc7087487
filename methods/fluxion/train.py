#!/usr/bin/env python3
"""Trains Fluxion's head-property predictor from the data that `tandem fluxion collect` wrote.

    python3 methods/fluxion/train.py --data DIR --out fluxion.safetensors
    python3 methods/fluxion/train.py --data DIR --policy score --out fluxion-score.safetensors --report score.json
    python3 methods/fluxion/train.py --data DIR --tau 0.05 --out fluxion-0.05.safetensors
    python3 methods/fluxion/train.py --data TASKS OTHER-TASKS TEXT --out fluxion.safetensors     learned together
    python3 methods/fluxion/train.py --data NEW --judge fluxion.safetensors --report judged.json     trains nothing

Needs PyTorch and numpy; neither building nor running Tandem does. The network is that of the paper (section 5.2): 41
features, normalised by the training set's mean and standard deviation, a shared trunk of two ReLU layers, and three
outputs: budget and slope by regression, streaming by logistic regression. The file is what methods/fluxion/predictor.h
reads.

Of 100 heads 97 shall get what they need, and nearly none be called streaming that is not: studies/notes/fluxion-accuracy.md has
what other settings of --quantile and --miss lose, and what more epochs do. The embedded model's predictors have
--quantile 0.985 --miss 200.

--loss measured is the paper's: budget and slope are regressed on the measured budget of single tokens and the slope of
the least-squares line through all block sizes. Half of the heads then get less than they need, and where the budget
jumps between single tokens and blocks of 16 no line through the former can follow. --loss cover (the default) asks of
the line what the selector asks of it: at 16, 32, 64 and 128 tokens it shall be at the measured budget or above it,
where a budget that is short costs --quantile / (1 - --quantile) times as much as one that is too large; and to call a
head streaming that is not costs --miss times as much as the reverse.

Prompts are held out whole: rows of one prompt are nearly alike, so rows held out one by one would be known
already. Of a text, whose windows may overlap, the last part is held out; a window before it may reach into that part. With the same data, options, machine and PyTorch the result is the same.

How it is judged, on held-out prompts: accuracy and area under the ROC curve of streaming; R^2 and mean absolute error of
budget and slope over retrieval heads (the streaming ones have 0 by definition, and nobody asks for theirs) and over all;
and what the selector makes of it: the budget at each block size against the measured one, with the share of heads that
would get too little.
"""
import argparse
import json
import pathlib
import sys

import numpy as np
import torch

from collected import BLOCKS, Data, fail, held_out, read_tensors, write_tensors

CUT = 10.0
POLICIES = ("fluxion", "output", "score")  # a predictor file has the number
SUBJECT = ("layers", "q_heads", "kv_heads", "head_dim", "sinks", "window")  # of a plan, as a predictor file has them


def area_under_curve(score, truth):
    """Probability that a positive has the larger score, ties counted half; None where there is one class only."""
    positives, negatives = int(truth.sum()), int((~truth).sum())
    if positives == 0 or negatives == 0:
        return None
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return float((ranks[truth].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def regression(found, truth):
    if len(truth) == 0:
        return None
    spread = ((truth - truth.mean()) ** 2).sum()
    return {"r2": float(1 - ((found - truth) ** 2).sum() / spread) if spread > 0 else None,
            "mae": float(np.abs(found - truth).mean()), "mean": float(truth.mean())}


def judge(out, data, rows):
    budgets, bgt0, slope, streaming = data.budgets[rows], data.bgt0[rows], data.slope[rows], data.streaming[rows]
    said = out[:, 2] > 0
    retrieval = ~streaming
    report = {
        "rows": int(len(rows)), "prompts": int(len(set(data.prompt[rows]))),
        "streaming": {"share": float(streaming.mean()), "accuracy": float((said == streaming).mean()),
                      "auc": area_under_curve(out[:, 2], streaming),
                      "called_streaming_but_is_not": float((said & retrieval).mean()),
                      "called_retrieval_but_is_streaming": float((~said & streaming).mean())},
        "retrieval_heads": {"budget": regression(out[retrieval, 0], bgt0[retrieval]),
                            "slope": regression(out[retrieval, 1], slope[retrieval])},
        "all_heads": {"budget": regression(out[:, 0], bgt0), "slope": regression(out[:, 1], slope)},
        "blocks": {},
    }
    for i, block in enumerate(BLOCKS):
        found = np.clip(out[retrieval, 0] + out[retrieval, 1] * np.log2(block), 0, 1)
        exact = np.clip(bgt0[retrieval] + slope[retrieval] * np.log2(block), 0, 1)  # what Eq. 1 can say at best
        truth = budgets[retrieval, i]
        if len(truth):
            report["blocks"][str(block)] = {"predicted": regression(found, truth), "eq1_on_labels": regression(exact, truth),
                                            "too_little": float((found < truth - 1e-6).mean()),
                                            "mean_predicted": float(found.mean())}
    return report


def network(hidden):
    torch_layers, width = [], 41
    for size in hidden:
        torch_layers += [torch.nn.Linear(width, size), torch.nn.ReLU()]
        width = size
    return torch.nn.Sequential(*torch_layers, torch.nn.Linear(width, 3))


def covering_line(budgets):
    """[rows][block] -> budget, slope [rows]: the least line over 16 to 128 tokens that is nowhere below (labels.h)."""
    at, values = np.log2(BLOCKS[1:]), budgets[:, 1:].astype(np.float64)
    best = np.full(len(values), np.inf)
    line = np.stack([np.ones(len(values)), np.zeros(len(values))], 1)
    for a in range(len(at)):
        for b in range(a + 1, len(at)):
            slope = (values[:, b] - values[:, a]) / (at[b] - at[a])
            here = values[:, a:a + 1] + slope[:, None] * (at - at[a])
            better = (here >= values - 1e-7).all(1) & (here.sum(1) < best)
            best = np.where(better, here.sum(1), best)
            line[better] = np.stack([values[:, a] - slope * at[a], slope], 1)[better]
    return line[:, 0].astype(np.float32), line[:, 1].astype(np.float32)


def shortfall_loss(out, budgets, quantile):
    """Mean pinball loss of the lines [rows][budget, slope] at 16 to 128 tokens, per row. Above 1 a budget is 1."""
    off = budgets[:, 1:] - (out[:, :1] + out[:, 1:2] * torch.log2(torch.tensor(BLOCKS[1:]).float()))
    # Where everything is needed, more than everything is as good.
    off = torch.where(budgets[:, 1:] >= 1, off.clamp(min=0), off)
    return torch.maximum(quantile * off, (quantile - 1) * off).mean(1)


def train(x, y, budgets, y_mean, y_std, streaming, options):
    """y: budget and slope, standardised. Returns the network after the last epoch."""
    torch.manual_seed(options.seed)
    net = network(options.hidden)
    optimizer = torch.optim.AdamW(net.parameters(), lr=options.rate, weight_decay=options.weight_decay)
    steps = options.epochs * max(1, -(-len(x) // options.batch))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, options.rate, total_steps=steps)
    generator = torch.Generator().manual_seed(options.seed)
    weight = 1 - options.streaming_weight
    for epoch in range(options.epochs):
        order = torch.randperm(len(x), generator=generator)
        total = 0.0
        for begin in range(0, len(x), options.batch):
            rows = order[begin:begin + options.batch]
            out = net(x[rows])
            # A streaming head's budget is not asked for, but should stay small in case it is taken for a retrieval head.
            importance = torch.where(streaming[rows] > 0, 1 - weight, 1.0)
            if options.loss == "measured":
                off = torch.nn.functional.smooth_l1_loss(out[:, :2], y[rows], reduction="none").sum(1)
                told = torch.ones(len(rows))
            else:
                off = 10 * shortfall_loss(out[:, :2] * y_std + y_mean, budgets[rows], options.quantile)
                told = torch.where(streaming[rows] > 0, 1.0, options.miss)
            loss = (importance * off).mean() + torch.nn.functional.binary_cross_entropy_with_logits(out[:, 2], streaming[rows], told)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) * len(rows)
        if (epoch + 1) % 10 == 0 or epoch + 1 == options.epochs:
            print(f"epoch {epoch + 1} of {options.epochs}: training loss {total / len(x):.4f}", flush=True)
    return net


def export(net, mean, std, y_mean, y_std, plan, policy, tau):
    """The network with the labels' standardisation folded into its last layer."""
    tensors = {"feature.mean": mean, "feature.std": std}
    linears = [layer for layer in net if isinstance(layer, torch.nn.Linear)]
    for i, layer in enumerate(linears):
        weight, bias = layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy()
        name = f"trunk.{i}"
        if i + 1 == len(linears):
            name = "heads"
            weight[:2] *= y_std[:, None]
            bias[:2] = bias[:2] * y_std + y_mean
        tensors[name + ".weight"], tensors[name + ".bias"] = weight, bias
    subject = [plan[k] for k in SUBJECT]
    tensors["model"] = np.array([*subject, POLICIES.index(policy)], np.int32)
    tensors["weights"] = np.array([int(plan["weights_hash"], 16) >> 32, int(plan["weights_hash"], 16) & 0xffffffff],
                                  np.uint32).view(np.int32)
    tensors["limits"] = np.array([tau, plan["mass"]], np.float32)
    return tensors


def weights_hash(tensors):
    """Of the model that a predictor was trained for; empty where its file does not say."""
    return "".join(f"{digits:08x}" for digits in tensors["weights"].view(np.uint32)) if "weights" in tensors else ""


def forward(tensors, features):
    """What the file says of these rows: [rows][3]."""
    x = torch.from_numpy((features - tensors["feature.mean"]) / tensors["feature.std"]).clamp(-CUT, CUT)
    i = 0
    while f"trunk.{i}.weight" in tensors:
        x = torch.relu(torch.nn.functional.linear(x, torch.from_numpy(tensors[f"trunk.{i}.weight"]),
                                                  torch.from_numpy(tensors[f"trunk.{i}.bias"])))
        i += 1
    return torch.nn.functional.linear(x, torch.from_numpy(tensors["heads.weight"]),
                                      torch.from_numpy(tensors["heads.bias"])).numpy()


def set_lines(data, loss):
    """What budgets and slopes are judged by."""
    if loss == "cover":
        data.bgt0, data.slope = covering_line(data.budgets)
    else:
        data.bgt0 = data.budgets[:, 0]


def apart(data, tensors, rows, name):
    """The rows judged by their prompts' length and by where these come from: of the folders that --data names."""
    lengths = np.array([name.rsplit("-", 2)[1] for name in data.prompts])[data.prompt]
    origins = np.array([data.folders[i]["prompts"] for i in data.folder_of])[data.prompt]
    report = {}
    for by, of, order in (("length", lengths, int), ("prompts", origins, str)):
        parts = {value: rows[of[rows] == value] for value in sorted(set(of[rows].tolist()), key=order)}
        report[f"{name}_by_{by}"] = {value: judge(forward(tensors, data.features[part]), data, part) for value, part in parts.items()}
    return report


def print_judgement(h):
    shown = lambda x: "not defined" if x is None else f"{x:.3f}"  # of one class, or of what never varies
    print(f"streaming: accuracy {h['streaming']['accuracy']:.3f}, AUC {shown(h['streaming']['auc'])}")
    for name, of in h["retrieval_heads"].items():
        if of:
            print(f"{name} of retrieval heads: R2 {shown(of['r2'])}, mean absolute error {of['mae']:.4f} of mean {of['mean']:.4f}")


def judge_file(options):
    """A predictor on all rows of --data, which it should not have been trained on."""
    try:
        tensors = read_tensors(options.judge)
        model, tau = tensors["model"].tolist(), round(float(tensors["limits"][0]), 6)
        policy = POLICIES[model[6]]
    except (OSError, ValueError, KeyError, IndexError):
        fail(f"--judge: {options.judge} is no predictor that this script wrote.")
    data = Data(options.data, policy, tau)
    if model[:6] != [data.plan[k] for k in SUBJECT]:
        fail(f"--judge: {options.judge} is for another model or placement than --data ({model[:6]}: {', '.join(SUBJECT)}).")
    of = weights_hash(tensors)
    if of and of != data.plan["weights_hash"]:
        print(f"note: {options.judge} was trained for the weights {of}, --data is of {data.plan['weights_hash']}", file=sys.stderr)
    set_lines(data, options.loss)
    rows = np.arange(len(data.features))
    report = judge(forward(tensors, data.features), data, rows)
    if options.report:
        options.report.write_text(json.dumps({"schema": "tandem-fluxion-judgement-2", "policy": policy, "tau": tau,
                                              "model": data.plan["model"], "weights_hash": data.plan["weights_hash"],
                                              "folders": data.folders, "judged": report} | apart(data, tensors, rows, "judged"), indent=1) + "\n")
    print(f"{options.judge}: {report['prompts']} prompts, {report['rows']} rows")
    print_judgement(report)


def check_folders(*files):
    """Before anything is learned, rather than after."""
    for file in files:
        if file and not file.parent.is_dir():
            fail(f"there is no folder '{file.parent}' for {file.name}: make it first.")


class Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    def _get_help_string(self, action):
        return action.help if action.default is None else super()._get_help_string(action)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=Help)
    parser.add_argument("--data", type=pathlib.Path, nargs="+", required=True,
                        help="folders of `tandem fluxion collect`, of one model and placement: tasks of several seeds, texts")
    parser.add_argument("--out", type=pathlib.Path, help="the predictor, a safetensors file")
    parser.add_argument("--judge", type=pathlib.Path, help="instead of training: how good this predictor is on --data, by its own rule and tau")
    parser.add_argument("--report", type=pathlib.Path, help="JSON report (beside --out where none is named; with --judge only where one is)")
    parser.add_argument("--policy", default="fluxion", choices=POLICIES, help="whose labels")
    parser.add_argument("--tau", type=float, help="which of the collection's (0.1 or its first where none is named)")
    parser.add_argument("--loss", default="cover", choices=("cover", "measured"), help="what budgets are judged by, see above")
    parser.add_argument("--quantile", type=float, default=0.97, help="--loss cover: share of budgets that shall suffice")
    parser.add_argument("--miss", type=float, default=48.0, help="--loss cover: weight of a head that is called streaming and is not")
    parser.add_argument("--hidden", type=int, nargs="+", default=[312, 312], help="widths of the trunk (0.112 M parameters)")
    parser.add_argument("--epochs", type=int, default=24, help="through all rows")
    parser.add_argument("--batch", type=int, default=512, help="rows of a step")
    parser.add_argument("--rate", type=float, default=2e-3, help="of learning")
    parser.add_argument("--weight-decay", type=float, default=1e-2, help="of the weights")
    parser.add_argument("--streaming-weight", type=float, default=0.1, help="of a streaming head's budget in the loss")
    parser.add_argument("--held-out", type=float, default=0.2, help="share of the prompts")
    parser.add_argument("--seed", type=int, default=1, help="of first weights and the rows' order")
    parser.add_argument("--threads", type=int, default=1, help="results may depend on it")
    parser.add_argument("--vector", type=pathlib.Path, help="also write some rows and what the file says of them, as JSON")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    torch.use_deterministic_algorithms(True)

    if options.judge:
        for name in ("out", "vector", "tau", "policy"):
            if getattr(options, name) != parser.get_default(name):
                fail(f"--{name} changes nothing with --judge: the predictor has its own rule and tau, and nothing is trained.")
        check_folders(options.report)
        judge_file(options)
        return
    if not options.out:
        fail("--out is missing: name the file that the predictor goes to.")
    check_folders(options.out, options.report, options.vector)
    if not 0 < options.quantile < 1:
        fail(f"--quantile is {options.quantile}: give a share between 0 and 1.")
    data = Data(options.data, options.policy, options.tau)
    set_lines(data, options.loss)
    test_prompts = held_out(data.order, options.held_out)
    if len(test_prompts) >= len(data.prompts):
        fail(f"--data has {len(data.prompts)} prompts, too few to hold some out.")
    is_test = np.isin(data.prompt, list(test_prompts))
    rows, test = np.flatnonzero(~is_test), np.flatnonzero(is_test)

    mean = data.features[rows].mean(0, dtype=np.float64).astype(np.float32)
    std = data.features[rows].std(0, dtype=np.float64).astype(np.float32)
    std[std < 1e-6 * np.maximum(np.abs(mean), 1)] = 1  # a column that never changes
    x = torch.from_numpy((data.features[rows] - mean) / std).clamp(-CUT, CUT)
    y = np.stack([data.bgt0[rows], data.slope[rows]], 1)
    y_mean = y.mean(0, dtype=np.float64).astype(np.float32)
    y_std = np.maximum(y.std(0, dtype=np.float64), 1e-6).astype(np.float32)
    net = train(x, torch.from_numpy((y - y_mean) / y_std), torch.from_numpy(data.budgets[rows]), torch.from_numpy(y_mean),
                torch.from_numpy(y_std), torch.from_numpy(data.streaming[rows].astype(np.float32)), options)
    tensors = export(net, mean, std, y_mean, y_std, data.plan, options.policy, data.tau)
    write_tensors(options.out, tensors)

    parameters = sum(p.numel() for p in net.parameters())
    report = {"schema": "tandem-fluxion-report-3", "policy": options.policy, "parameters": parameters,
              "bytes": options.out.stat().st_size, "model": data.plan["model"], "weights_hash": data.plan["weights_hash"],
              "data": {k: data.plan[k] for k in ("sinks", "window", "mass", "isa")} | {"folders": data.folders},
              "tau": data.tau, "options": {k: v for k, v in vars(options).items() if k not in ("data", "out", "judge", "report", "vector", "policy", "tau")},
              "torch": torch.__version__,
              "training": judge(forward(tensors, data.features[rows]), data, rows),
              "held_out": judge(forward(tensors, data.features[test]), data, test)} | apart(data, tensors, test, "held_out")
    report_file = options.report or options.out.with_suffix(".json")
    report_file.write_text(json.dumps(report, indent=1) + "\n")
    if options.vector:
        chosen = test[:: max(1, len(test) // 12)][:12]
        options.vector.write_text(json.dumps({"features": data.features[chosen].astype(float).tolist(),
                                              "outputs": forward(tensors, data.features[chosen]).astype(float).tolist()}) + "\n")
    h = report["held_out"]
    print(f"{parameters} parameters, {report['bytes']} bytes; held out: {h['prompts']} prompts, {h['rows']} rows")
    print_judgement(h)


if __name__ == "__main__":
    main()
