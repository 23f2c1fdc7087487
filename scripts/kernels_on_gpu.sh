#!/usr/bin/env bash
# Everything that a GPU is needed for, on the machine that has one: the kernels' tests on the real device, those of the
# engine and its methods on it, the time of a decode step with each method, the machine's rates (tandem-probe), the
# kernels' speed, those of the CPU's that a profile needs, the machine's hardware profile made from them (tandem
# calibrate), the kernels' results at the shapes of an 8B model, what ncu says of them, and the tests under
# compute-sanitizer.
#
#   kernels_on_gpu.sh [step ...]      only these, in the order given; all of them, in the order they have here:
#                                     info tests engine decode probe bench cpu profile check ncu memcheck synccheck
#                                     initcheck racecheck
#
# All of them take longer than ten minutes and leave many files. Where a command may run no longer, four calls with
# PACK=1, whose steps are over in time whatever they take (each replaces the packed results of the one before in $OUT):
#   kernels_on_gpu.sh info tests engine decode
#   kernels_on_gpu.sh probe bench cpu profile     # in one call: profile reads what the others left
#   kernels_on_gpu.sh check ncu
#   kernels_on_gpu.sh memcheck synccheck initcheck racecheck
# What matters least comes last: with every cap reached they are 9, 9, 5 1/3 and 9 minutes, more than half an hour with
# the starts. Where a GPU is there for a quarter of an hour: `LIMIT=400 ... info tests engine decode`, then
# `LIMIT=330 ... probe bench profile`, and the rest another time. Where LIMIT is given and less than the steps may take
# together, each has its share of what is left. Where another program computes on the GPU meanwhile (scripts/train_on_gpu.sh), times are of a
# part of it: run info, engine and tests beside it (engine first, while torch is still loaded: some of its tests are of time)
# and the others behind it; a verdict says of a step that it was not alone. `tandem calibrate` makes the profile anywhere.
#
# Runs the programs beside it where it lies in a bundle (scripts/bundle.sh), else those of build/cuda, else those of a bundle in
# build/bundle-thin. They must be built with CUDA. Results go to
# $OUT, by default results/gpu here: a text file per step, tests*.json, properties*.json, engine*.json, decode-*.json,
# probe.json, kernels.json and
# checks.json (both with what was finished, where the step was not), cpu-*.json, measured.json (the profile, for --hw),
# ncu's report of each attention kernel, gather, rms_norm and prepare_qkv (NAME.ncu-rep), and summary.json with each
# step's verdict (ok, failed, or why it did not run).
# PACK=1: as summary.json and kernels.tar.gz, which is renewed after every step and every 30 s of one and has all of
# them; where that would be 15 MB or more, all but the largest NAME.ncu-rep, which summary.json names as left_out. A step has a time of its own
# (cap_of below), and LIMIT is the seconds that all of it may take (540): what is left then is not run. Exit code: 0 all
# that ran is ok, 1 something failed, 2 bad usage or no program.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
base=$(dirname "$here")
if [ -x "$here/bin/tandem" ]; then
  base=$here bin=$here/bin
elif [ ! -x "$base/build/cuda/bin/tandem" ] && [ -x "$base/build/bundle-thin/bin/tandem" ]; then
  bin=$base/build/bundle-thin/bin
fi
if [ -n "${bin:-}" ]; then
  tandem=$bin/tandem cases=$bin/test_kernel_cases properties=$bin/test_kernels_cuda
  probe=$bin/tandem-probe methods=$bin/test_methods_cuda device=$bin/test_cuda_device_gpu
else
  tandem=$base/build/cuda/bin/tandem cases=$base/build/cuda/tests/eval/test_kernel_cases
  properties=$base/build/cuda/tests/engine/kernels/test_kernels_cuda probe=$base/build/cuda/bin/tandem-probe
  methods=$base/build/cuda/tests/methods/test_methods_cuda device=$base/build/cuda/tests/engine/device/test_cuda_device_gpu
fi
for program in "$tandem" "$cases" "$properties" "$probe" "$device" "$methods"; do
  if [ ! -x "$program" ]; then
    echo "kernels_on_gpu.sh: there is no $program; build the cuda preset, or run the copy in a bundle." >&2
    exit 2
  fi
done
if ! "$tandem" info | grep -q 'CUDA parts  *yes'; then
  echo "kernels_on_gpu.sh: $tandem was built without CUDA; build the cuda preset, or its bundle." >&2
  exit 2
fi
out=${OUT:-$base/results/gpu}
limit=${LIMIT:-540}
mkdir -p "$out"
results=$out
if [ "${PACK:-0}" = 1 ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi
export PATH="$PATH:/usr/local/cuda/bin"
# cuBLAS (the probe's) and cuBLASLt, which it needs, are loaded by name. Where the system has none, PyTorch's wheels may
# have brought them.
if [[ $(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null) != *libcublas.so.13* ]] &&
  [ ! -e /usr/local/cuda/lib64/libcublas.so.13 ] && [ ! -e "$(dirname "$(dirname "$tandem")")/lib/libcublas.so.13" ]; then
  if d=$(python3 -c 'import nvidia.cu13 as m; print(list(m.__path__)[0] + "/lib")' 2>/dev/null); then
    export LD_LIBRARY_PATH="$d${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  fi
fi

known=(info tests engine decode probe bench cpu profile check ncu memcheck synccheck initcheck racecheck)
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
# A program for so many SECONDS, or what is left of its step. `timeout` gives it a process group of its own, which it
# ends as a whole, a tool's program with the tool; what ends the step would not reach it, so it is over before that.
within() {
  local most=$1 left=$((step_seconds - SECONDS - 7)) status=0
  shift
  if [ "$left" -lt "$most" ]; then most=$left; fi
  if [ "$most" -lt 3 ]; then
    echo "Not run, the step's $step_seconds s are over: $*"
    return 124
  fi
  timeout --kill-after=5 "$most" "$@" || status=$?
  if [ "$status" = 124 ] || [ "$status" = 137 ]; then echo "Not done after $most s: $*"; fi
  return "$status"
}
# One test program, NAME for its results. It names each test as it begins: where one hangs, it is in the last line.
run_whole() {
  local name=$1 seconds=$2
  shift 2
  within "$seconds" "$@" --gtest_output="json:$out/$name.json"
}
# A kernel that touches memory it should not leaves every later case of the process without a device: a program that
# fails is run again in sixteen parts, which tell the case from the others.
run_parts() {
  local name=$1 part bad=0
  shift
  for part in $(seq 0 15); do
    GTEST_TOTAL_SHARDS=16 GTEST_SHARD_INDEX=$part within 30 "$@" --gtest_output="json:$out/$name-$part.json" || bad=1
  done
  echo "$name: failed as a whole; in parts: $([ "$bad" = 0 ] && echo "no part did" || echo "see above")"
}
# A run in which the device's cases were skipped has checked nothing.
none_skipped() {
  if grep -qs '"result": "SKIPPED"' "$@"; then
    echo "Cases were skipped: there is no GPU, or this build has no CUDA."
    return 1
  fi
}
# Parts come when every program has had its turn.
step_tests() {
  local wrong=() filter='--gtest_filter=*cuda*:KernelCases.*'
  run_whole tests 80 "$cases" "$filter" || wrong+=(tests)
  run_whole properties 50 "$properties" || wrong+=(properties)
  if [[ " ${wrong[*]} " == *" tests "* ]]; then run_parts tests "$cases" "$filter"; fi
  if [[ " ${wrong[*]} " == *" properties "* ]]; then run_parts properties "$properties"; fi
  none_skipped "$out"/tests*.json "$out"/properties*.json || wrong+=(skipped)
  [ ${#wrong[@]} = 0 ]
}
# Who waits for whom, streams and threads of the host, then every method beside the simulated device.
step_engine() {
  local wrong=()
  run_whole engine-device 60 "$device" || wrong+=(device)
  run_whole engine 105 "$methods" || wrong+=(engine)
  if [[ " ${wrong[*]} " == *" engine "* ]]; then run_parts engine "$methods"; fi
  none_skipped "$out"/engine*.json || wrong+=(skipped)
  [ ${#wrong[@]} = 0 ]
}
# Times of a decode step at the shape of a published model with random weights, with each method: first
# figures, whose parts by operation say where to look. Those that choose by queries choose among random ones. Each for no
# longer than its own time; those that wait for the host come last.
step_decode() {
  local bad=0 method began
  rm -f "$out"/decode-*.json
  for method in full streaming quest:budget=4096 tova:budget=4096 h2o asyncspade:budget=4096 full-offload gpu-fetch infinigen \
    hgca scoutattention:budget=4096 fluxion:bgt=0.1 hybrid-fixed full-host; do
    began=$SECONDS
    within 45 "$tandem" bench decode --device cuda --model synthetic:llama-3.2-1b \
      --context 32K --method "$method" --steps 16 --rounds 3 --device-kv 4G --host-kv 4G --quiet --force \
      --out "$out/decode-${method%%:*}.json" || { echo "$method: exit code $?"; bad=1; }
    echo "$method: $((SECONDS - began)) s"
  done
  return "$bad"
}
# Writes its file after every section; what does not fit is named in it.
step_probe() {
  local seconds=$((step_seconds > 230 ? 200 : step_seconds > 50 ? step_seconds - 30 : 20))
  rm -f "$out/probe.json"
  "$probe" --seconds "$seconds" --out "$out/probe.json"
}
# Without products by cuBLASLt: its kernels are not ours, and would take most of the time. Loaded lazily, for the programs
# load all that they link otherwise, cuBLASLt's thousands of kernels too, which the tool would go through.
sanitize_one() {
  local seconds=$1
  shift
  CUDA_MODULE_LOADING=LAZY within "$seconds" compute-sanitizer --error-exitcode 9 "$@"
}
sanitize() {
  local seconds=$1 tool=$2 bad=0
  shift 2
  sanitize_one "$seconds" --tool "$tool" "$@" "$properties" --gtest_color=no || bad=1
  sanitize_one "$seconds" --tool "$tool" "$@" "$cases" --gtest_filter='*cuda*-*cuda_linear*' || bad=1
  return "$bad"
}
# The engine's launches too: what they name lies where only they put it. Its products are cuBLASLt's, which asks the
# driver for what an older one does not have: such errors are its own.
step_memcheck() {
  local bad=0
  sanitize 60 memcheck --leak-check full || bad=1
  sanitize_one 90 --tool memcheck --report-api-errors no "$methods" --gtest_filter='*OnGpu*' || bad=1
  return "$bad"
}
step_racecheck() { sanitize 60 racecheck; }
step_synccheck() { sanitize 50 synccheck; }
# Poison would be a write to what nobody wrote.
step_initcheck() { TANDEM_POISON=0 sanitize 50 initcheck; }
# At the shapes that are measured: the tests' are small.
step_check() { "$tandem" bench kernels --device cuda --check --quiet --force --out "$out/checks.json"; }
step_bench() {
  rm -f "$out/kernels.json"
  "$tandem" bench kernels --device cuda --quiet --force --out "$out/kernels.json"
}
# Of the CPU's kernels what the profile needs: by one thread a rate, by all a share of the memory's bandwidth.
step_cpu() {
  local bad=0 kernel threads
  rm -f "$out"/cpu-*.json
  for kernel in score_blocks decode_attention contiguous_attention; do
    for threads in 1 0; do
      "$tandem" bench kernels --kernel "$kernel" --threads "$threads" --quiet --force --out "$out/cpu-$kernel-$threads.json" || bad=1
    done
  done
  return "$bad"
}
# From what the steps before left. What they did not measure is that of the shipped profile of such a GPU.
step_profile() {
  local kernels=() file name like=h200
  name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1 || true)
  case $name in
    *H100*) like=h100 ;;
    *GH200*) like=gh200 ;;
    *B200*) like=b200 ;;
    *L40S*) like=l40s ;;
    *"RTX PRO 6000"*) like=rtx-pro-6000 ;;
    *"RTX 5090"*) like=rtx-5090 ;;
    *"RTX 4090"*) like=rtx-4090 ;;
    *A100*) like=fluxion-a100 ;;
    *A6000*) like=hgca-a6000 ;;
  esac
  echo "What is not measured is $like's (GPU: ${name:-none})."
  if [ ! -s "$out/probe.json" ]; then
    echo "There is no probe.json: run the step probe, too."
    return 1
  fi
  for file in "$out"/kernels.json "$out"/cpu-*.json; do
    if [ -s "$file" ]; then kernels+=(--kernels "$file"); fi
  done
  "$tandem" calibrate --probe "$out/probe.json" ${kernels[@]+"${kernels[@]}"} --base "$like" --out "$out/measured.json" --force
}
# The clocks stay as they are: by default ncu would lower them, and the figures would be of another machine. Where it may
# not read the counters, or no kernel ran, ncu can end well without a report. Each kernel at one large shape: small ones
# show what a launch costs. A copy by DMA is no kernel.
step_ncu() {
  local bad=0 k shape
  while IFS=: read -r k shape; do
    rm -f "$out/$k.ncu-rep"
    CUDA_MODULE_LOADING=LAZY within 45 ncu --clock-control none --force-overwrite --export "$out/$k" \
      --launch-skip 2 --launch-count 3 --set full --kernel-name 'regex:attention|token_scores|gather|rms_norm|prepare_qkv' \
      "$tandem" bench kernels --device cuda --kernel "$k" --shape "$shape" --quiet --rounds 1 </dev/null || bad=1
    if [ ! -s "$out/$k.ncu-rep" ]; then
      echo "$k: ncu left no report."
      bad=1
    fi
  done <<'END'
decode_attention:batch 8 x 32768, 32/8 heads, D 128, bf16
prefill_attention:n 8192 at 0, 32/8 heads, D 128, bf16
token_scores:batch 8 x 32768, 32/8 heads, D 128, bf16
gather:512 pieces of 8192, zero copy
rms_norm:n 4096, d 4096, weight bf16, out bf16
prepare_qkv:n 4096, heads 32/8 of 128, KV bf16, in pages
END
  return "$bad"
}
# Seconds that a step may take at most, so that one that hangs does not take the others' time.
cap_of() {
  case $1 in
    info) echo 30 ;;
    tests) echo 200 ;;
    engine) echo 180 ;;
    decode) echo 300 ;;
    probe) echo 250 ;;
    check) echo 200 ;;
    bench) echo 200 ;;
    cpu) echo 80 ;;
    profile) echo 10 ;;
    memcheck) echo 215 ;;
    synccheck | initcheck) echo 105 ;;
    racecheck) echo 125 ;;
    *) echo 120 ;;
  esac
}
tool_of() {
  case $1 in
    memcheck | racecheck | synccheck | initcheck) echo compute-sanitizer ;;
    ncu) echo ncu ;;
    *) echo bash ;;
  esac
}
export -f step_info within run_whole run_parts none_skipped step_tests step_engine step_decode step_probe sanitize_one sanitize step_memcheck step_racecheck step_synccheck step_initcheck step_check step_bench step_cpu step_profile step_ncu
export tandem cases properties device methods probe out
export step_seconds=$limit

# Whether another program computes on the GPU.
shared_gpu() {
  command -v nvidia-smi >/dev/null && [ -n "$(nvidia-smi --query-compute-apps=pid --format=csv,noheader 2>/dev/null)" ]
}
failed=0 lines=() left_out=()
write_summary() {
  local all=("${lines[@]}") names
  if [ ${#left_out[@]} -gt 0 ]; then
    names=$(printf ', "%s"' "${left_out[@]}")
    all+=("  \"left_out\": [${names:2}]")
  fi
  {
    echo "{"
    for i in "${!all[@]}"; do echo "${all[$i]}$([ "$i" = $((${#all[@]} - 1)) ] || echo ,)"; done
    echo "}"
  } >"$out/summary.json"
}
# What is copied off such a machine may have a largest size. All but the reports is small text.
pack() {
  local new=$results/kernels.tar.gz.new largest
  while true; do
    write_summary
    tar -C "$out" --warning=no-file-changed -czf "$new" "${left_out[@]/#/--exclude=./}" . || [ $? = 1 ]  # 1: a file grew meanwhile
    largest=$(cd "$out" && find . -maxdepth 1 -name '*.ncu-rep' -printf '%s %f\n' | sort -rn | cut -d' ' -f2 |
      grep -vxF -f <(printf '%s\n' "${left_out[@]}" none) | head -1 || true)
    if [ "$(stat -c %s "$new")" -lt 15000000 ] || [ -z "$largest" ]; then break; fi
    left_out+=("$largest")
  done
  cp "$out/summary.json" "$results/summary.json"
  mv "$new" "$results/kernels.tar.gz"
}
run_step() { timeout --kill-after=10 "$step_seconds" bash -euo pipefail -c "step_$1" >"$out/$1.txt" 2>&1 </dev/null; }
# What there is of a step is packed while it runs: this script may be ended from outside.
run_packing() {
  local began=$SECONDS child
  run_step "$1" &
  child=$!
  while kill -0 "$child" 2>/dev/null; do
    sleep 1
    if [ $((SECONDS - began)) -ge 30 ]; then
      began=$SECONDS
      pack
    fi
  done
  wait "$child"
}
run=run_packing
if [ "$out" = "$results" ]; then run=run_step; fi
for ((at = 0; at < ${#steps[@]}; ++at)); do
  step=${steps[$at]}
  start=$SECONDS left=$((limit - SECONDS)) time=$(cap_of "$step") beside= together=0
  for later in "${steps[@]:at}"; do together=$((together + $(cap_of "$later"))); done
  if [[ " ${steps[*]:at+1} " == *" profile "* ]]; then left=$((left - $(cap_of profile))); fi  # the last, and the shortest
  if [ -n "${LIMIT:-}" ] && [ "$left" -lt "$together" ]; then time=$((time * left / together)); fi
  if [ "$left" -lt "$time" ]; then time=$left; fi
  if [ "$time" -lt 5 ]; then time=5; fi
  if shared_gpu; then beside=", beside another program on the GPU"; fi
  if ! command -v "$(tool_of "$step")" >/dev/null; then
    verdict="not run: there is no $(tool_of "$step") here"
  elif [ "$left" -lt 5 ]; then
    verdict="not run: the $limit s of all steps are over"
  elif step_seconds=$time && "$run" "$step"; then
    verdict=ok
  else
    status=$?
    verdict="failed: exit code $status"
    if [ "$status" = 124 ] || [ "$status" = 137 ]; then verdict="failed: not done after $time s"; fi
    failed=1
  fi
  if shared_gpu; then beside=", beside another program on the GPU"; fi
  verdict+=$beside
  echo "$step: $verdict ($((SECONDS - start)) s)"
  # Where nothing else comes back from such a machine, this does.
  if [[ $verdict == failed* ]]; then
    { grep -E 'Not done|FAILED|ERROR SUMMARY|exit code' "$out/$step.txt" || cat "$out/$step.txt"; } |
      tail -n 12 | cut -c1-160 | sed 's/^/    /'
  fi
  lines+=("  \"$step\": {\"verdict\": \"$verdict\", \"seconds\": $((SECONDS - start))}")
  if [ "$out" = "$results" ]; then write_summary; else pack; fi
done
exit "$failed"
