#!/usr/bin/env bash
# Fluxion by tau on a small model: collects labels at every tau in one go, trains a predictor for each, compares
# them and draws accuracy against bytes of host memory. What is there already is not made again: the same command goes
# on after it was ended.
#
#   scripts/fluxion_tau.sh OUT [TAU...]        default: 0.02 0.05 0.10 0.15 0.20
#
# PYTHON: one with PyTorch and numpy (default: python3). TANDEM: the program (default: build/release/bin/tandem).
# MODEL: as `tandem compare --model` (default: embedded).
# DATA: folders of `tandem fluxion collect` with labels at these taus, instead of collecting into OUT/data.
# TRAIN: options of train.py. COMPARE: options of `tandem compare` (default: its tasks and lengths, 20 samples).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
[ $# -ge 1 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2; }
out=$1
shift
taus=("$@")
[ $# -gt 0 ] || taus=(0.02 0.05 0.1 0.15 0.2)
python=${PYTHON:-python3}
tandem=${TANDEM:-$root/build/release/bin/tandem}
model=${MODEL:-embedded}
mkdir -p "$out"

if [ -n "${DATA:-}" ]; then
  read -ra data <<<"$DATA"
else
  data=("$out/data")
  again=()
  [ ! -e "$out/data/manifest.json" ] || again=(--resume)
  "$tandem" fluxion collect --model "$model" --out "$out/data" --lengths 640,1K,2K,4K,8000 --samples 4 \
    --tau "$(IFS=,; echo "${taus[*]}")" "${again[@]}"
fi

methods=full
for tau in "${taus[@]}"; do
  file="$out/tau-$tau.safetensors"
  if [ ! -e "$file" ]; then
    # shellcheck disable=SC2086 # options
    "$python" "$root/methods/fluxion/train.py" --data "${data[@]}" --tau "$tau" --out "$out/part.safetensors" \
      --report "$out/tau-$tau.json" ${TRAIN:-}
    mv "$out/part.safetensors" "$file"
  fi
  methods+=",fluxion:heads=$file,tau=$tau"
done
again=()
[ ! -e "$out/compare/manifest.json" ] || again=(--resume)
# shellcheck disable=SC2086
"$tandem" compare --model "$model" --methods "$methods" --head-errors --no-plot --out "$out/compare" "${again[@]}" ${COMPARE:-}
# The system's Python, where there is one: Debian's matplotlib belongs to it.
plotting=$(command -v /usr/bin/python3 || echo "$python")
"$plotting" "$root/studies/scripts/plot_tradeoff.py" "$out/compare" "$out/tau.svg" --lines tau --json "$out/tau.json"
