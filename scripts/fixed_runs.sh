#!/usr/bin/env bash
# A fixed set of runs and the hashes of what they write: a change of structure must leave all of them as they are.
#
#   scripts/fixed_runs.sh            runs them, and says which hashes differ from results/fixed-runs.txt (1.5 min on 2 cores)
#   scripts/fixed_runs.sh --write    writes that file; a commit that does so says which runs changed and why
#
# All methods on the shipped models, two turns of a conversation, `simulate` at two shapes, `reproduce fluxion-table5`; a run of
# every dataset on small files, all that `compare` can add, and every format of a report, with each file that they write.
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
  "$tandem" generate --chat --chat-format llama-2 --device sim --max-new 24 --method "$method" <"$turns" 2>&1 |
    add "two turns $method"
done
for shape in llama-3.1-8b qwen3-14b; do
  "$tandem" simulate --as "$shape" --hw h100 --context 8K --batch 8 --steps 8 --no-plot --quiet --force --out "$work/sweep" >/dev/null
  add "simulate $shape" <"$work/sweep/sweep.csv"
done
"$tandem" reproduce fluxion-table5 --quiet --force --out "$work/table5.json" >/dev/null
grep -v '"git_commit"\|"tandem_version"' "$work/table5.json" | add "reproduce fluxion-table5"

# Standard input without the marks of when, where and by which commit it was made.
unmarked() {
  sed -e "s/$commit/COMMIT/g; s/20[0-9-]*T[0-9:]*Z/WHEN/g" -e '/"cpu_model"\|"cores"\|"memory_bytes"\|"threads"\|^- machine: \|<li>machine: /d'
}
# run NAME command ...: in the folder "run" of the work folder, so that its path is the same everywhere.
run() {
  local name=$1 file
  shift
  rm -rf run
  "$tandem" "$@" --quiet --no-plot --out run >printed 2>&1
  commit=$(sed -n 's/.*"git_commit": "\(.*\)".*/\1/p' run/manifest.json)
  unmarked <printed | add "$name: printed"
  for file in run/*; do unmarked <"$file" | add "$name: ${file#run/}"; done
}
cd "$work"
python3 "$root/scripts/small_datasets.py" data
few=(--model seed --methods full,streaming:sinks=16,window=64 --batch 2)
run needle eval needle "${few[@]}" --lengths 512,768 --depths 0,50 --samples 2
run "needle essays" eval needle "${few[@]}" --lengths 512 --depths 50 --samples 2 --task niah_multikey_1 --ruler-essays data/text.txt --seed 7
run perplexity eval perplexity "${few[@]}" --context 512 --new 16 --windows 3
run "perplexity text" eval perplexity "${few[@]}" --text data/text.txt --context 256 --new 8 --windows 2
run longbench eval longbench "${few[@]}" --data data/longbench --max-length 600
run "longbench chat" eval longbench "${few[@]}" --data data/longbench --tasks qasper_e,trec --samples 2 --max-length 400 --chat --chat-format llama-2
run leval eval leval "${few[@]}" --data data/leval --max-length 500
run "leval chat" eval leval "${few[@]}" --data data/leval --tasks tpo --samples 1 --max-length 200 --chat --chat-format qwen2
run longproc eval longproc "${few[@]}" --data data/longproc --samples 2 --chat --chat-format llama-2
run reasoning eval reasoning "${few[@]}" --data data/reasoning --max-new 12
run "reasoning drawn" eval reasoning "${few[@]}" --data data/reasoning/aime24.jsonl --samples 1 --max-new 8 --temperature 0.8 --top-p 0.9 \
  --repeats 2 --seed 3 --chat --chat-format smollm2
run "ruler files" compare "${few[@]}" --ruler-data data/ruler --samples 2
run "ruler essays" compare "${few[@]}" --tasks niah_single_2,qa_1 --lengths 512 --samples 2 --ruler-essays data/text.txt
few=(--model embedded --tasks niah_single_1 --lengths 512 --samples 2 --batch 2)
run "compare trace" compare "${few[@]}" --methods full,quest:budget=128 --trace
run "compare equal" compare "${few[@]}" --methods full,quest,streaming --equal touched-bytes=0.4
run "compare target" compare "${few[@]}" --methods full,quest:budget=128 --as llama-3.1-8b --context 8K
run "compare head errors" compare "${few[@]}" --methods full,fluxion:heads=embedded --head-errors
mv run first
run "compare other" compare "${few[@]}" --methods full,streaming
for format in text markdown latex csv html; do
  "$tandem" report first run --mixed --format "$format" 2>&1 | unmarked | add "report of runs: $format"
  # In one line: where lines of text break depends on how long the commit's name is.
  "$tandem" report sweep --format "$format" 2>&1 | unmarked | tr -s ' \n' '  ' | add "report of a sweep: $format"
done
cp -r first again
"$tandem" gate --baseline first --run again --as none --out verdict.json 2>&1 | unmarked | add "gate: printed"
unmarked <verdict.json | add "gate: verdict.json"
cd "$root"

if [ "${1:-}" = --write ]; then
  cp "$hashes" results/fixed-runs.txt
  echo "results/fixed-runs.txt: $(wc -l <"$hashes") hashes."
elif diff results/fixed-runs.txt "$hashes"; then
  echo "All $(wc -l <"$hashes") hashes are as they were."
else
  echo "fixed_runs.sh: the runs above wrote other bytes than results/fixed-runs.txt says." >&2
  exit 1
fi
