#!/usr/bin/env bash
# A fixed set of runs and the hashes of what they write: a change of structure must leave all of them as they are.
#
#   scripts/fixed_runs.sh            runs them, and says which hashes differ from results/fixed-runs.txt (a minute on 2 cores)
#   scripts/fixed_runs.sh --write    writes that file; a commit that does so says which runs changed and why
#
# All methods on the shipped models, two turns of a conversation, `simulate` at two shapes, `reproduce fluxion-table5`.
# Times are virtual and kernels those of AVX2, so that other x86-64 CPUs should make the same bytes (made on Zen 4).
set -euo pipefail
. "$(dirname "$0")/common.sh"
cd "$root"
if [ $# -gt 1 ] || { [ $# = 1 ] && [ "$1" != --write ]; }; then
  echo "fixed_runs.sh: unknown option '$1'; there is --write." >&2
  exit 2
fi
tandem=$root/build/release/bin/tandem
if [ ! -x "$tandem" ]; then
  echo "fixed_runs.sh: there is no $tandem; scripts/quickstart.sh builds it." >&2
  exit 2
fi
export TANDEM_ISA=avx2 OPENBLAS_CORETYPE=Haswell
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
hashes=$work/hashes.txt
add() { printf '%s  %s\n' "$(sha256sum | cut -c1-16)" "$1" >>"$hashes"; }

mapfile -t methods < <("$tandem" methods | sed -n 's/^  \([a-z0-9-]\+\) .*/\1/p')
for model in embedded seed tiny; do
  for method in "${methods[@]}"; do
    spec=$method
    if [ "$method" = fluxion ] && [ "$model" = embedded ]; then spec=fluxion:heads=embedded; fi
    "$tandem" compare --model "$model" --methods "$spec" --tasks niah_single_1,niah_multikey_1 --lengths 512,1K --samples 2 \
      --batch 2 --no-plot --quiet --force --out "$work/run" >/dev/null
    add "compare $model $spec: samples" <"$work/run/samples.jsonl"
    add "compare $model $spec: times" <"$work/run/timings.jsonl"
  done
done
# Long enough that budgets leave something out.
turns=$work/turns.txt
{
  for n in $(seq 1 40); do printf 'The secret number for box %d is %d. ' "$n" $((n * 7919 % 9973)); done
  printf '\nQuestion: What is the secret number for box 7? Answer:\n'
} >"$turns"
for method in "${methods[@]}"; do
  "$tandem" generate --chat --chat-format llama-2 --max-new 24 --method "$method" <"$turns" 2>&1 |
    add "two turns $method"
done
for shape in llama-3.1-8b qwen3-14b; do
  "$tandem" simulate --as "$shape" --hw h100 --context 8K --batch 8 --steps 8 --no-plot --quiet --force --out "$work/sweep" >/dev/null
  add "simulate $shape" <"$work/sweep/sweep.csv"
done
"$tandem" reproduce fluxion-table5 --quiet --force --out "$work/table5.json" >/dev/null
grep -v '"git_commit"\|"tandem_version"' "$work/table5.json" | add "reproduce fluxion-table5"

if [ "${1:-}" = --write ]; then
  cp "$hashes" results/fixed-runs.txt
  echo "results/fixed-runs.txt: $(wc -l <"$hashes") hashes."
elif diff results/fixed-runs.txt "$hashes"; then
  echo "All $(wc -l <"$hashes") hashes are as they were."
else
  echo "fixed_runs.sh: the runs above wrote other bytes than results/fixed-runs.txt says." >&2
  exit 1
fi
