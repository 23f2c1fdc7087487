"""What `tandem fluxion collect` wrote, as train.py reads it: rows of features and labels of prompts, some of them held out
whole."""
import collections
import hashlib
import json
import re
import struct
import sys

import numpy as np

BLOCKS = (1, 16, 32, 64, 128)
ANCHOR_BUDGETS = slice(35, 39)
ANCHOR_NAMES = [f"anchor_budget_{block}" for block in BLOCKS[1:]]
SAMPLING = ("prompts", "seed", "steps", "decode_steps")  # of a plan: which rows there are, not what a row says
# RULER's tasks whose needles are hidden in prose, which --ruler-essays replaces (eval/ruler_tasks/ruler.cc).
IN_ESSAYS = ("niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multivalue", "niah_multiquery")
DTYPES = {"F32": np.float32, "I32": np.int32, "U8": np.uint8}


def fail(sentence):
    sys.exit("train.py: " + sentence)


def read_tensors(path):
    """ValueError for a file that is cut off or damaged."""
    data = path.read_bytes()
    if len(data) < 8:
        raise ValueError("no header")
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    if len(data) != 8 + length + max(entry["data_offsets"][1] for entry in header.values()):
        raise ValueError("cut off")
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[8 + length + begin:8 + length + end], DTYPES[entry["dtype"]]).reshape(entry["shape"]).copy()
    return tensors


def write_tensors(path, tensors):
    header, body = {}, b""
    for name, values in tensors.items():
        kind = {np.dtype(np.float32): "F32", np.dtype(np.int32): "I32"}[values.dtype]
        header[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [len(body), len(body) + values.nbytes]}
        body += np.ascontiguousarray(values).tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def ruler_origin(prompts, seed, task):
    """What a task's prompts follow from: the seed, and the hash of the file that its text comes from, where it has one."""
    hashes = dict(re.findall(r"; (essays|qa_1|qa_2): .*?, ([0-9a-f]{16})(?=; |$)", prompts))
    text = hashes.get("essays" if task in IN_ESSAYS else task)
    return f"{seed}-{text}" if text else f"{seed}"


class Data:
    """All rows of some collections of one model under one policy and tau."""

    def __init__(self, folders, policy, tau=None):
        columns = {name: [] for name in ("features", "budgets", "slope", "streaming", "prompt")}
        self.plan, self.tau, self.prompts, self.order, self.folders, self.folder_of = None, tau, [], [], [], []
        for folder in folders:
            manifest = self.read_manifest(folder)
            lengths = sorted({int(shard["file"].rsplit("-", 2)[1]) for shard in manifest["shards"]})
            self.folders.append({field: manifest["plan"][field] for field in SAMPLING} |
                                {"lengths": lengths, "count": len(manifest["shards"])})
            # RULER's prompts follow from the seed and their texts; the windows of a text do not.
            prompts = manifest["plan"]["prompts"]
            ruler = prompts.startswith("RULER")
            windows = collections.Counter(shard["file"].rsplit("-", 1)[0] for shard in manifest["shards"])
            p, t = self.plan["policies"].index(policy), self.plan["taus"].index(self.tau)
            for shard in manifest["shards"]:
                file = folder / shard["file"]
                if not file.is_file():
                    fail(f"{file} is missing, which {folder / 'manifest.json'} names: run the `tandem fluxion collect` that wrote it again, with --resume.")
                try:
                    tensors = read_tensors(file)
                    if any(len(values) != shard["rows"] for values in tensors.values()):
                        raise ValueError("other rows")
                except (ValueError, KeyError):
                    fail(f"{file} is damaged: run the `tandem fluxion collect` that wrote it again, with --resume.")
                features = tensors["features"]
                features[:, ANCHOR_BUDGETS] = tensors["anchor_budgets"][:, t, p]
                columns["features"].append(features)
                columns["budgets"].append(tensors["budgets"][:, t, p])
                columns["slope"].append(tensors["slopes"][:, t, p])
                columns["streaming"].append(tensors["streaming"][:, t, p].astype(bool))
                columns["prompt"].append(np.full(len(features), len(self.prompts)))
                name = shard["file"].removesuffix(".safetensors")
                kind, index = name.rsplit("-", 1)
                origin = ruler_origin(prompts, manifest["plan"]["seed"], kind.rsplit("-", 1)[0]) if ruler else prompts
                self.prompts.append(f"{origin}-{name}")
                self.folder_of.append(len(self.folders) - 1)
                self.order.append(hash_of(self.prompts[-1]) if ruler else 1 - (int(index) + 1) / windows[kind])
        if len(set(self.prompts)) < len(self.prompts):
            fail("the folders of --data have prompts in common: train on each prompt once.")
        for name, parts in columns.items():
            setattr(self, name, np.concatenate(parts))

    def read_manifest(self, folder):
        """Sets plan and tau, or makes sure that they are those of the first folder, but for SAMPLING."""
        file = folder / "manifest.json"
        if not file.is_file():
            fail(f"{file} is missing: --data names a folder that `tandem fluxion collect` wrote.")
        manifest = json.loads(file.read_text())
        if manifest.get("schema") != "tandem-fluxion-2":
            fail(f"{file}: the schema is {manifest.get('schema')!r}; this script knows 'tandem-fluxion-2'.")
        if not manifest["finished"]:
            fail(f"{folder} is not finished: run the command that began it with --resume.")
        plan = manifest["plan"]
        if tuple(plan["blocks"]) != BLOCKS or len(plan["features"]) != 41 or plan["features"][ANCHOR_BUDGETS] != ANCHOR_NAMES:
            fail(f"{file}: its columns are not those of this script.")
        if self.plan is None:
            self.plan = plan
            if self.tau is None:
                self.tau = 0.1 if 0.1 in plan["taus"] else plan["taus"][0]
            if self.tau not in plan["taus"]:
                fail(f"--tau is {self.tau}: {folder} has labels for {', '.join(map(str, plan['taus']))}.")
        for field in plan:  # config_hash is not in those of older programs
            if field not in ("files", *SAMPLING) and plan[field] != self.plan.setdefault(field, plan[field]):
                fail(f"{file}: '{field}' is not that of the other folders of --data.")
        return manifest


def hash_of(name):
    """In [0, 1), the same whatever else is in the data."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) / 2**32


def held_out(order, share):
    """The prompts of the lowest numbers: a hash of their names, or how far a window is from its text's end."""
    return set(sorted(range(len(order)), key=lambda i: order[i])[:max(1, round(share * len(order)))])
