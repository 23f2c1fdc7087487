#!/usr/bin/env python3
"""Fits what hardware/devices says of kernels to the calibration points, and writes it there with its ranges.

    hardware/validation/fit.py            after points.json or split.json has changed
    hardware/validation/fit.py --check    only says whether the files are what it would write
    hardware/validation/fit.py --engines FOLDER/validation.json     then: what published engines add to each layer, from
                                          what `tandem validate --out FOLDER` wrote with no engine in engines.json
    hardware/validation/fit.py --leave-out    the error on each device's points, all groups, by the median of the others
    hardware/validation/fit.py --expect FOLDER/validation.json      then: the errors that the tests hold the model to

Two numbers per kind of kernel: a fixed time, and the rate that long kernels reach. They minimise the mean relative error
over the calibration groups of split.json. Kernels of a prefill have the fixed times of a decode step's. A device
without calibration points gets the median of those that have some. Attention that may have been read from the L2 cache is left out: it says nothing about memory.
Products show no such effect: their points lie on one line from 33 MB to 1 GB.
Standard library only.
"""
import json
import math
import re
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
DEVICES = HERE.parent / "devices"
LINEAR = {"qkv": (6144, 4096), "o": (4096, 4096), "gate_up": (28672, 4096), "down": (4096, 14336)}  # Llama 3 8B
LINEAR_NAMES = {"attn_pre_proj": "qkv", "attn_post_proj": "o", "mlp_up_proj": "gate_up", "mlp_down_proj": "down",
                "qkv_proj": "qkv", "o_proj": "o", "gate_up_proj": "gate_up", "down_proj": "down"}
DECODE_ROWS = 64      # products of more rows may be limited by FLOPs
PREFILL_ROWS = 512
MOST = 0.97           # of the datasheet's rate
# Fields that no point is of: low, high and why.
BOUNDS = {
    "select_efficiency": (0.4, 0.8, "this engine's kernel by instruction counts: 0.4 for mean digests, 0.6 to 0.7 for "
                                    "others; 0.8 as a tuned scan"),
    "launch_ns": (2000, 6400, "2.65 and 3 us a kernel on two machines, 6.4 us under WSL2 with synchronisation (launch in "
                              "points.json); 2 us by own judgement"),
    "segment_launch_ns": (1900, 45000, "1.9 to 5.9 us with CUDA 13; with CUDA 11.8 0.1 us more a kernel (launch in "
                                       "points.json), some 45 us for the 400 kernels of a step"),
    "op_floor_ns": (1800, 2700, "smallest kernels take 1.8 to 2.7 us (op_floor in points.json)"),
}


def nanoseconds(point):
    unit = point["unit"].split()[0]
    return point["value"] * {"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1.0}[unit]


def heads(point):
    text = point.get("model_shape", "")
    found = (re.search(r"(\d+) query heads, (\d+) KV heads?, head_dim (\d+)", text)
             or re.search(r"(\d+)/(\d+) heads, d (\d+)", text))
    return tuple(int(n) for n in found.groups()) if found else None


def matrix(point):
    found = re.search(r"N=(\d+) K=(\d+)", point.get("model_shape") or "")
    if found:
        return tuple(int(n) for n in found.groups())
    if point["kind"] != "linear_op" or not re.search(r"Llama-3(\.1)?-8B", point.get("model", "")):
        return None
    names = [name for name in LINEAR_NAMES if re.search(rf"\b{name}\b", point["metric"])]
    return LINEAR[LINEAR_NAMES[names[0]]] if names else None


def device_of(hardware, devices):
    """The device with the longest name that stands in the text, as device_in() of eval/validate/predict.cc says."""
    if re.search(r"\b(40GB|NVL|Laptop|SUPER|Max-Q|MIG)\b", hardware):  # other memory or clocks than the plain device
        return None
    found = [(len(name), key) for key, device in devices.items() for name in device["hardware"]
             if re.search(rf"\b{re.escape(name)}\b", hardware)]
    return max(found)[1] if found else None


def line_through(samples):
    """(fixed ns, GB/s) of samples (bytes, ns) with the least mean |relative error|: reweighted least squares."""
    weights = [1 / ns for _, ns in samples]
    fixed = slope = 0.0
    for _ in range(50):
        s = [0.0] * 5
        for (size, ns), w in zip(samples, weights):
            w2 = w * w
            s = [s[0] + w2, s[1] + w2 * size, s[2] + w2 * size * size, s[3] + w2 * ns, s[4] + w2 * size * ns]
        determinant = s[0] * s[2] - s[1] * s[1]
        fixed, slope = (s[3] * s[2] - s[4] * s[1]) / determinant, (s[0] * s[4] - s[1] * s[3]) / determinant
        if fixed < 0:
            fixed, slope = 0.0, s[4] / s[2]
        weights = [1 / ns / max(abs((fixed + slope * size) / ns - 1), 0.01) ** 0.5 for size, ns in samples]
    return fixed, 1 / slope


def samples_of(points, devices, groups):
    """{device: {kind: [(bytes or FLOPs, ns)]}}"""
    out = {}
    for point in points:
        if (point["hardware"], point.get("engine")) not in groups or point.get("gpus", 1) != 1:
            continue
        key = device_of(point["hardware"], devices)
        if key is None:
            continue
        own, l2 = out.setdefault(key, {}), devices[key]["l2_mb"] * 1e6
        if point["kind"] == "decode_attention_kernel" and heads(point):
            query, kv, dim = heads(point)
            kv_bytes = 4 * point["batch"] * point["context"] * kv * dim
            if kv_bytes >= l2:
                own.setdefault("attention", []).append(
                    (kv_bytes + 8 * point["batch"] * query * dim, nanoseconds(point)))
        elif point["kind"] in ("gemm_kernel", "linear_op") and matrix(point):
            n, k = matrix(point)
            rows, weights = point["batch"], 2 * n * k
            if rows >= PREFILL_ROWS:
                own.setdefault("prefill", []).append((weights * rows, nanoseconds(point)))
            elif rows <= DECODE_ROWS:
                own.setdefault("product", []).append((weights + 4 * rows * (n + k), nanoseconds(point)))
        elif point["kind"] == "prefill_attention_kernel" and heads(point):
            query, _, dim = heads(point)
            tokens, before = point["tokens"], point.get("prefix_tokens") or 0
            pairs = tokens * before + tokens * (tokens + 1) // 2
            own.setdefault("prefill attention", []).append(
                (4 * (point.get("batch") or 1) * pairs * query * dim, nanoseconds(point)))
    return out


def fitted(device, samples):
    """{field: (value, points)}"""
    hbm, out = device["device"]["hbm_gbps"], {}
    for kind, share, fixed_field, least in (("attention", "attention_efficiency", "attention_ns", 5),
                                            ("product", "weights_efficiency", "product_ns", 5)):
        own = samples.get(kind, [])
        if len(own) >= least and max(s for s, _ in own) > 1.5 * min(s for s, _ in own):
            fixed, rate = line_through(own)
            if rate > MOST * hbm:  # faster than a memory can be: the fixed time took some of it
                rate = MOST * hbm
                fixed = max(0.0, statistics.median(ns - size / rate for size, ns in own))
            out[share] = (rate / hbm, len(own))
            out[fixed_field] = (fixed, len(own))
    for kind, field in (("prefill", "gemm_tflops"), ("prefill attention", "prefill_attention_tflops")):
        own = samples.get(kind, [])
        if len(own) >= 5:
            out[field] = (line_through(own)[1] / 1e3, len(own))
    return out


def spread_of(samples, devices, fits):
    """{field: factor}: with this factor on the fixed time and on the rate, one at a time and in quadrature, 95 % of the
    calibration points of a kind lie in their prediction's range."""
    errors = {}
    for key, fit in fits.items():
        device = devices[key]["device"]
        rates = {"attention": ("attention_ns", "attention_efficiency"), "product": ("product_ns", "weights_efficiency"),
                 "prefill": ("product_ns", "gemm_tflops"), "prefill attention": ("attention_ns", "prefill_attention_tflops")}
        for kind, (fixed, field) in rates.items():
            if field in fit:
                rate = device["hbm_gbps"] * fit[field][0] if field.endswith("efficiency") else 1e3 * fit[field][0]
                start = fit[fixed][0] if fixed in fit else device[fixed]
                for size, ns in samples[key][kind]:
                    predicted = start + size / rate
                    both = math.hypot(start / predicted, size / rate / predicted)
                    errors.setdefault((fixed, field), []).append(abs(math.log(predicted / ns)) / both)
    out = {}
    for (fixed, field), own in errors.items():
        factor = math.exp(statistics.quantiles(own, n=20)[-1])
        out[field] = factor
        if field.endswith("efficiency"):
            out[fixed] = factor
    return out


def write_ranges(devices, fits, spread):
    """Of a fitted field what its points leave open; of a median what the devices with points have."""
    for key, device in devices.items():
        device["ranges"] = {}

        def put(field, low, high, why):
            value = device["device"][field]
            most = MOST if field.endswith("efficiency") else device["datasheet_tflops"] if "tflops" in field else math.inf
            device["ranges"][f"device.{field}"] = {"low": min(value, rounded(field, low)),
                                                   "high": max(value, rounded(field, min(high, most))), "why": why}

        for field, factor in spread.items():
            own = fits.get(key, {}).get(field)
            if own:
                value = device["device"][field]
                put(field, value / factor, value * factor,
                    f"{100 * (factor - 1):.0f} % on the fixed time and on the rate hold 95 % of the points of this kind; a "
                    "rate ends at 0.97 of the datasheet's"
                    if not field.endswith("_ns") else
                    f"{100 * (factor - 1):.0f} % on the fixed time and on the rate hold 95 % of the points of this kind")
            else:
                flops = device["datasheet_tflops"] if "tflops" in field else 1
                shares = [fit[field][0] / (devices[name]["datasheet_tflops"] if "tflops" in field else 1)
                          for name, fit in fits.items() if field in fit]
                put(field, min(shares) * flops, max(shares) * flops, f"the lowest and highest of {len(shares)} devices with points")
        put("stream_efficiency", *(device["ranges"]["device.attention_efficiency"][end] for end in ("low", "high")),
            "as attention_efficiency")
        for field, (low, high, why) in BOUNDS.items():
            put(field, low, high, why)


def rounded(field, value):
    return int(round(value, -2)) if field.endswith("_ns") else round(value, 3 if value < 1 else 0 if value >= 100 else 1)


def write_fields(devices, fits):
    """Median of the devices with points where a device has none; FLOP rates as shares of the datasheet's."""
    fields = ["weights_efficiency", "product_ns", "attention_efficiency", "attention_ns", "gemm_tflops",
              "prefill_attention_tflops"]
    relative = lambda key, field, value: value / devices[key]["datasheet_tflops"] if "tflops" in field else value
    for field in fields:
        shares = [relative(key, field, fit[field][0]) for key, fit in fits.items() if field in fit]
        middle = statistics.median(shares)
        for key, device in devices.items():
            if field in fits.get(key, {}):
                value, count = fits[key][field]
                source = f"calibrated: {count} points of hardware/validation (fit.py)"
            else:
                value = middle * (device["datasheet_tflops"] if "tflops" in field else 1)
                source = f"assumed: the median of {len(shares)} devices with points (hardware/validation/fit.py)"
            device["device"][field] = rounded(field, value)
            device["sources"][f"device.{field}"] = source
    for device in devices.values():
        device["device"]["stream_efficiency"] = device["device"]["attention_efficiency"]
        device["sources"]["device.stream_efficiency"] = "derived: long reads of attention_efficiency; no point of copies"


def read(path):
    return json.loads(path.read_text())


def text_of(device):
    order = ["memory_gb", "hbm_gbps", "stream_efficiency", "weights_efficiency", "product_ns", "attention_efficiency",
             "attention_ns", "select_efficiency", "gemm_tflops", "prefill_attention_tflops", "launch_ns",
             "segment_launch_ns", "op_floor_ns"]
    device["device"] = {field: device["device"][field] for field in order}
    device["sources"] = {f"device.{field}": device["sources"][f"device.{field}"] for field in order}
    ranges = {f"device.{field}": device["ranges"][f"device.{field}"] for field in order if f"device.{field}" in device["ranges"]}
    text = json.dumps(device | {"ranges": {field: field for field in ranges}}, indent=2)
    for field, ends in ranges.items():  # a range is a line
        text = text.replace(f'"{field}": "{field}"', f'"{field}": {json.dumps(ends)}')
    return text + "\n"


def step_ms(point, value):
    return 1e3 * point["batch"] / value if point["unit"].startswith("tok/s") else value


def fit_engines(validation):
    """Median over an engine's calibration points of what a step takes beside its prediction, per layer."""
    names = read(HERE / "split.json")["engines"]
    over = {name: [] for name in names}
    for point in validation["points"]:
        name = next((n for n in names if point.get("engine", "").startswith(n)), None)
        if name and point["use"] == "calibration" and point["kind"] == "decode step":
            over[name].append(1e6 * (step_ms(point, point["measured"]) - step_ms(point, point["predicted"])) / point["layers"])
    ns = lambda time: max(0, int(round(time, -2)))
    engines = []
    for name, times in over.items():
        if times:
            times.sort()
            out = len(times) // 10  # on each side
            engines.append({"engine": name, "layer_ns": ns(statistics.median(times)), "low_ns": ns(times[out]),
                            "high_ns": ns(times[-1 - out]), "median_ns": int(round(statistics.median(times), -2)),
                            "points": len(times)})
    (HERE / "engines.json").write_text(json.dumps({"engines": engines}, indent=1) + "\n")


def expect(validation):
    kinds = {}
    for point in validation["points"]:
        if point["use"] == "validation":
            kinds.setdefault(point["kind"], []).append(point["error"])
    errors = {kind: {"n": len(own), "absolute": round(statistics.fmean(map(abs, own)), 4),
                     "bias": round(statistics.fmean(own), 4)} for kind, own in kinds.items()}
    (HERE / "expected.json").write_text(json.dumps({"tolerance": 0.005, "validation": errors}, indent=1) + "\n")


def leave_out(points, devices, fits):
    """What a machine without points has to expect: its own points by the median of the other devices."""
    everything = {(p["hardware"], p.get("engine")) for p in points}
    apart = {(group["hardware"], group["engine"]) for group in read(HERE / "split.json")["apart"]}
    samples = samples_of(points, devices, everything - apart)
    for kind, share, fixed in (("attention", "attention_efficiency", "attention_ns"),
                               ("product", "weights_efficiency", "product_ns")):
        means = []
        for key, own in samples.items():
            others = [fit for name, fit in fits.items() if name != key and share in fit]
            if len(own.get(kind, [])) < 5:
                continue
            rate = devices[key]["device"]["hbm_gbps"] * statistics.median(fit[share][0] for fit in others)
            ns = statistics.median(fit[fixed][0] for fit in others)
            errors = [(ns + size / rate) / measured - 1 for size, measured in own[kind]]
            means.append(statistics.fmean(map(abs, errors)))
            print(f"{kind:10} {key:20} {len(errors):4} points, mean |error| {100 * means[-1]:5.1f} %, "
                  f"bias {100 * statistics.fmean(errors):+5.1f} %")
        print(f"{kind:10} mean of {len(means)} devices {100 * statistics.fmean(means):.1f} %")


def main():
    for option, work in (("--engines", fit_engines), ("--expect", expect)):
        if option in sys.argv[1:]:
            return work(read(Path(sys.argv[sys.argv.index(option) + 1])))
    devices = {path.stem: read(path) for path in sorted(DEVICES.glob("*.json"))}
    points = read(HERE / "points.json")["points"]
    groups = {tuple(group) for group in read(HERE / "split.json")["calibration"]}
    samples = samples_of(points, devices, groups)
    fits = {key: fitted(devices[key], own) for key, own in samples.items()}
    if "--leave-out" in sys.argv[1:]:
        return leave_out(points, devices, fits)
    write_fields(devices, fits)
    write_ranges(devices, fits, spread_of(samples, devices, fits))
    stale = [key for key, device in devices.items() if (DEVICES / f"{key}.json").read_text() != text_of(device)]
    if "--check" in sys.argv[1:]:
        if stale:
            sys.exit(f"hardware/devices: {', '.join(stale)} are not what hardware/validation/fit.py gives: run it.")
        return
    for key in stale:
        (DEVICES / f"{key}.json").write_text(text_of(devices[key]))
    print(f"{len(devices)} devices, {len(stale)} written")


if __name__ == "__main__":
    main()
