#!/usr/bin/env bash
# Everything that a GPU is needed for, on the machine that has one: the kernels' tests on the real device, the same under
# compute-sanitizer, their results at the shapes of an 8B model, their speed, and what ncu says of the attention kernels.
#
#   kernels_on_gpu.sh [step ...]      only these: info tests bench check memcheck racecheck synccheck initcheck ncu
#
# Runs the programs beside it where it lies in a bundle (scripts/bundle.sh), else those of build/cuda. Results go to
# $OUT, by default results/gpu here: a text file per step, tests*.json, properties*.json, kernels.json, ncu's report of each
# attention kernel, gather, rms_norm and prepare_qkv (NAME.ncu-rep), and summary.json with each step's verdict (ok, failed,
# or why it did not run). PACK=1: as summary.json and kernels.tar.gz, which has all of them and is renewed after every step.
# LIMIT is the seconds that all of it may take (540): what is left then is not run. Exit code: 0 all that ran is ok, 1
# something failed, 2 bad usage or no program.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ -x "$here/bin/tandem" ]; then
  tandem=$here/bin/tandem cases=$here/bin/test_kernel_cases properties=$here/bin/test_kernels_cuda base=$here
else
  base=$(dirname "$here")
  tandem=$base/build/cuda/bin/tandem cases=$base/build/cuda/tests/eval/test_kernel_cases
  properties=$base/build/cuda/tests/engine/kernels/test_kernels_cuda
fi
for program in "$tandem" "$cases" "$properties"; do
  if [ ! -x "$program" ]; then
    echo "kernels_on_gpu.sh: there is no $program; build the cuda preset, or run the copy in a bundle." >&2
    exit 2
  fi
done
out=${OUT:-$base/results/gpu}
limit=${LIMIT:-540}
mkdir -p "$out"
results=$out
if [ "${PACK:-0}" = 1 ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi
export PATH="$PATH:/usr/local/cuda/bin"

known=(info tests bench check memcheck racecheck synccheck initcheck ncu)
steps=("$@")
if [ $# = 0 ]; then steps=("${known[@]}"); fi
for step in "${steps[@]}"; do
  if [[ ! " ${known[*]} " == *" $step "* ]]; then
    echo "kernels_on_gpu.sh: there is no step '$step'; there are ${known[*]}." >&2
    exit 2
  fi
done

step_info() {
  "$tandem" info
  if command -v nvidia-smi >/dev/null; then nvidia-smi -q; fi
}
# One test program, NAME for its results. A kernel that touches memory it should not leaves every later case of the process
# without a device: a program that fails is run again in sixteen parts, which tell the case from the others.
run_cases() {
  local name=$1 part bad=0
  shift
  if "$@" --gtest_output="json:$out/$name.json"; then return 0; fi
  for part in $(seq 0 15); do
    GTEST_TOTAL_SHARDS=16 GTEST_SHARD_INDEX=$part "$@" --gtest_brief=1 --gtest_output="json:$out/$name-$part.json" || bad=1
  done
  echo "$name: failed as a whole; in parts: $([ "$bad" = 0 ] && echo "no part did" || echo "see above")"
  return 1
}
# A run in which the device's cases were skipped has checked nothing.
step_tests() {
  local bad=0
  run_cases tests "$cases" --gtest_filter='*cuda*:KernelCases.*' || bad=1
  run_cases properties "$properties" || bad=1
  if grep -q '"result": "SKIPPED"' "$out"/tests*.json "$out"/properties*.json; then
    echo "Cases were skipped: there is no GPU, or this build has no CUDA."
    bad=1
  fi
  return "$bad"
}
sanitize() {
  local bad=0
  compute-sanitizer --tool "$1" --error-exitcode 9 "${@:2}" "$cases" --gtest_filter='*cuda*' --gtest_brief=1 || bad=1
  compute-sanitizer --tool "$1" --error-exitcode 9 "${@:2}" "$properties" --gtest_brief=1 || bad=1
  return "$bad"
}
step_memcheck() { sanitize memcheck --leak-check full; }
step_racecheck() { sanitize racecheck; }
step_synccheck() { sanitize synccheck; }
# Poison would be a write to what nobody wrote.
step_initcheck() { TANDEM_POISON=0 sanitize initcheck; }
# At the shapes that are measured: the tests' are small.
step_check() { "$tandem" bench kernels --device cuda --check --quiet --force --out "$out/checks.json"; }
step_bench() { "$tandem" bench kernels --device cuda --quiet --force --out "$out/kernels.json"; }
# The clocks stay as they are: by default ncu would lower them, and the figures would be of another machine.
step_ncu() {
  local bad=0
  for k in decode_attention prefill_attention token_scores gather rms_norm prepare_qkv; do
    ncu --clock-control none --force-overwrite --export "$out/$k" --launch-skip 2 --launch-count 3 --set full \
      --kernel-name 'regex:attention|token_scores|gather|rms_norm|prepare_qkv' \
      "$tandem" bench kernels --device cuda --kernel "$k" --quiet --rounds 1 || bad=1
  done
  return "$bad"
}
tool_of() {
  case $1 in
    memcheck | racecheck | synccheck | initcheck) echo compute-sanitizer ;;
    ncu) echo ncu ;;
    *) echo bash ;;
  esac
}
export -f step_info run_cases step_tests sanitize step_memcheck step_racecheck step_synccheck step_initcheck step_check step_bench step_ncu
export tandem cases properties out

failed=0 lines=()
write_summary() {
  {
    echo "{"
    for i in "${!lines[@]}"; do echo "${lines[$i]}$([ "$i" = $((${#lines[@]} - 1)) ] || echo ,)"; done
    echo "}"
  } >"$out/summary.json"
  if [ "$out" != "$results" ]; then
    cp "$out/summary.json" "$results/summary.json"
    tar -C "$out" -czf "$results/kernels.tar.gz.new" . && mv "$results/kernels.tar.gz.new" "$results/kernels.tar.gz"
  fi
}
for step in "${steps[@]}"; do
  start=$SECONDS left=$((limit - SECONDS))
  if ! command -v "$(tool_of "$step")" >/dev/null; then
    verdict="not run: there is no $(tool_of "$step") here"
  elif [ "$left" -lt 5 ]; then
    verdict="not run: the $limit s of all steps are over"
  elif timeout --kill-after=10 "$left" bash -euo pipefail -c "step_$step" >"$out/$step.txt" 2>&1 </dev/null; then
    verdict=ok
  else
    status=$?
    verdict="failed: exit code $status"
    if [ "$status" = 124 ] || [ "$status" = 137 ]; then verdict="failed: not done when the $limit s of all steps were over"; fi
    failed=1
  fi
  echo "$step: $verdict ($((SECONDS - start)) s)"
  lines+=("  \"$step\": {\"verdict\": \"$verdict\", \"seconds\": $((SECONDS - start))}")
  write_summary
done
exit "$failed"
