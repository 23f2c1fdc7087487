#!/usr/bin/env bash
# Tests and measures what needs a GPU, on the machine that has one.
#
#   kernels_on_gpu.sh [first | second | step ...]     default: first
#
# first, at most 570 s:
#   info          GPU, memory, and the start of a process with all kernels loaded and with none
#   tests         the device's waits, and the kernels that every method needs
#   probe         the machine's rates (tandem-probe): hand-off, link, memory, launches, products
#   bench         the most important kernel cases at the shapes of an 8B model
#   ncu           ncu's report of three kernels
#   decode        a decode step of an 8B model behind 32K tokens, by method, batch 8 and batch 1
#   profile       the profile for --hw, from what probe, bench and cpu left in the same call
# second, at most 200 s:
#   connections   the device's waits where all streams share one queue of the driver
#   batched       thousands of batched copies, then the same pieces one by one
#   memcheck, synccheck   attention under compute-sanitizer
#   engine        every method on the GPU beside the simulated device
# Only by name, since each takes minutes: alltests (all kernels), check (all kernels at the shapes that bench measures,
# beside their oracles), cpu (what a profile needs of the CPU), racecheck, initcheck.
#
# The programs are those beside this script in a bundle (scripts/bundle.sh), else those of build/cuda, else those of
# build/bundle-thin. They must be built with CUDA.
#
# OUT     folder of the results (default results/gpu): STEP.txt of each step, JSON files, NAME.ncu-rep, and summary.json
#         with each step's verdict: ok, failed, or why it did not run, and whether another program used the GPU
# PACK=1  leaves only summary.json and kernels.tar.gz there, renewed after every step and every 30 s of one. ncu's reports
#         that would make the archive larger than 15 MB are left out and named in summary.json.
# LIMIT   seconds that all steps may take (570). Where they may need more, each has its share; profile is always run.
# Exit code: 0 all that ran is ok, 1 something failed, 2 bad usage or no program.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
base=$(dirname "$here")
if [ -x "$here/bin/tandem" ]; then
  base=$here bin=$here/bin
elif [ ! -x "$base/build/cuda/bin/tandem" ] && [ -x "$base/build/bundle-thin/bin/tandem" ]; then
  bin=$base/build/bundle-thin/bin
fi
built() { if [ -n "${bin:-}" ]; then echo "$bin/${1##*/}"; else echo "$base/build/cuda/$1"; fi; }
tandem=$(built bin/tandem) probe=$(built bin/tandem-probe) cases=$(built tests/test_kernel_cases)
properties=$(built tests/test_kernels_cuda) methods=$(built tests/test_methods_cuda)
device=$(built tests/test_cuda_device_gpu)
for program in "$tandem" "$cases" "$properties" "$probe" "$device" "$methods"; do
  if [ ! -x "$program" ]; then
    echo "kernels_on_gpu.sh: there is no $program; build the cuda preset, or run the copy in a bundle." >&2
    exit 2
  fi
done
if ! grep -q 'CUDA parts  *yes' < <(CUDA_MODULE_LOADING=LAZY timeout 20 "$tandem" info); then
  echo "kernels_on_gpu.sh: $tandem was built without CUDA; build the cuda preset, or its bundle." >&2
  exit 2
fi
out=${OUT:-$base/results/gpu}
limit=${LIMIT:-570}
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

first=(info tests probe bench ncu decode profile)
second=(connections batched memcheck synccheck engine)
# Seconds that a step may take at most, so that one that hangs does not take the others' time.
declare -A cap=([info]=20 [tests]=45 [probe]=130 [bench]=95 [ncu]=40 [decode]=220 [profile]=10
  [connections]=30 [batched]=40 [memcheck]=35 [synccheck]=35 [engine]=60
  [alltests]=200 [check]=200 [cpu]=180 [racecheck]=130 [initcheck]=130)
steps=("$@")
if [ "$*" = first ] || [ $# = 0 ]; then steps=("${first[@]}"); fi
if [ "$*" = second ]; then steps=("${second[@]}"); fi
for step in "${steps[@]}"; do
  if [ -z "${cap[$step]:-}" ]; then
    echo "kernels_on_gpu.sh: there is no step '$step'; there are ${first[*]} ${second[*]} alltests check cpu racecheck initcheck." >&2
    exit 2
  fi
done

set -a  # the steps run in shells of their own
# Too little memory for the decode step's KV shows here, and what it costs to load cuBLASLt's thousands of kernels.
step_info() {
  local loading
  free -g || true
  if command -v nvidia-smi >/dev/null; then within 5 nvidia-smi || true; fi
  for loading in EAGER LAZY; do
    echo "tandem info, CUDA_MODULE_LOADING=$loading"
    time CUDA_MODULE_LOADING=$loading within 8 "$tandem" info
  done
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
# A run in which the device's cases were skipped has checked nothing.
none_skipped() {
  if grep -qs '"result": "SKIPPED"' "$@"; then
    echo "Cases were skipped: there is no GPU, or this build has no CUDA."
    return 1
  fi
}
# Waits of streams and threads first: where they do not work nothing else does. Of the cases, products show whether
# cuBLASLt is found, and each instance of attention whether its registers let it be launched.
step_tests() {
  local bad=0 filter= kernel
  for kernel in linear decode_attention prefill_attention token_scores gather scatter_to_host top_k; do
    filter+=":*/cuda_${kernel}_*"
  done
  run_whole device 20 "$device" || bad=1
  run_whole tests 35 "$cases" --gtest_filter="${filter:1}" || bad=1
  none_skipped "$out/device.json" "$out/tests.json" && return "$bad"
}
step_alltests() {
  local bad=0
  run_whole alltests 110 "$cases" --gtest_filter='*cuda*:KernelCases.*' || bad=1
  run_whole properties 80 "$properties" || bad=1
  none_skipped "$out/alltests.json" "$out/properties.json" && return "$bad"
}
# Every method beside the simulated device.
step_engine() { run_whole engine 105 "$methods" && none_skipped "$out/engine.json"; }
# Waits that the driver does not know of must not depend on the number of its queues.
step_connections() {
  CUDA_DEVICE_MAX_CONNECTIONS=1 run_whole connections 40 "$device" && none_skipped "$out/connections.json"
}
# Some drivers crash or hang in batched copies. If only the first fails, set TANDEM_BATCHED_COPIES=0.
step_batched() {
  local bad=0 batched
  for batched in 1 0; do
    TANDEM_BATCHED_COPIES=$batched within 16 "$tandem" bench kernels --device cuda --rounds 80 --quiet --force \
      --case 'gather:512 pieces of 8192, DMA' --case 'scatter_to_host:512 pieces of 8192, DMA' \
      --out "$out/batched-$batched.json" || { echo "TANDEM_BATCHED_COPIES=$batched: exit code $?"; bad=1; }
  done
  return "$bad"
}
# Methods take turns behind one prefill; the file keeps every finished round. Loading shows how long it takes to pin the
# host's KV, gpu-fetch reads it at random. If none has a figure, full runs alone.
decode_batch() {
  local batch=$1 seconds=$2 device_kv=$3 host_kv=$4 file=$out/decode-batch$1.json methods bad=0
  rm -f "$file"
  for methods in full,quest:budget=4096,gpu-fetch,scoutattention:budget=4096,full-host,hgca full; do
    within "$seconds" "$tandem" bench decode --device cuda --model synthetic:llama-3.1-8b --context 32K \
      --batch "$batch" --method "$methods" --steps 8 --rounds 3 --device-kv "$device_kv" --host-kv "$host_kv" \
      --quiet --force --out "$file" && return "$bad"
    echo "batch $batch: exit code $?, with $methods"
    if [ -s "$file" ]; then break; fi
    bad=1 seconds=50 host_kv=1G  # too little memory to pin is a reason, too
  done
  return 1
}
step_decode() {
  local bad=0
  decode_batch 8 115 64G 48G || bad=1
  decode_batch 1 85 12G 8G || bad=1
  return "$bad"
}
# A process for each, so that a device that hangs in one leaves the others. A section has its share of --seconds: 20 of
# 160, 45 of 180, 46 of 125. The hand-off's spread shows threads that sleep, or that yield in a virtual machine.
step_probe() {
  local bad=0 name sections seconds most
  rm -f "$out"/probe-*.json
  while read -r name sections seconds most; do
    within $((most * step_seconds / 130)) "$probe" --sections "$sections" --seconds $((seconds * step_seconds / 130)) \
      --out "$out/probe-$name.json" </dev/null || bad=1
  done <<'PROBES'
handoff handoff 160 32
link link 180 55
rates bandwidth,launch,calls,gemm 125 60
PROBES
  return "$bad"
}
# Without products by cuBLASLt: its kernels are not ours, and would take most of the time. Loaded lazily, for the programs
# load all that they link otherwise, cuBLASLt's thousands of kernels too, which the tool would go through.
sanitize() {
  local tool=$1 seconds=$2
  shift 2
  CUDA_MODULE_LOADING=LAZY within "$seconds" compute-sanitizer --error-exitcode 9 --tool "$tool" "$@"
}
sanitize_attention() { sanitize "$1" 40 "$cases" --gtest_filter='*/cuda_decode_attention_*:*/cuda_prefill_attention_*'; }
sanitize_all() {
  local bad=0
  sanitize "$1" 60 "$properties" || bad=1
  sanitize "$1" 60 "$cases" --gtest_filter='*cuda*-*cuda_linear*' || bad=1
  return "$bad"
}
step_memcheck() { sanitize_attention memcheck; }
# Instructions that a whole warp must reach together: the emulator cannot see them.
step_synccheck() { sanitize_attention synccheck; }
step_racecheck() { sanitize_all racecheck; }
# Poison would be a write to what nobody wrote.
step_initcheck() { TANDEM_POISON=0 sanitize_all initcheck; }
# At the shapes that are measured: the tests' are small.
step_check() { "$tandem" bench kernels --device cuda --check --quiet --force --out "$out/checks.json"; }
# tests/eval/kernels/bench_test.cc compares these lists with the cases that there are.
step_bench() {
  local line named=()
  while read -r line; do named+=(--case "$line"); done <<'CASES'
decode_attention:batch 8 x 32768, 32/8 heads, D 128, bf16
decode_attention:batch 1 x 32768, 32/8 heads, D 128, bf16
linear:n 1, 4096 to 14336, bf16, result f32
linear:n 8, 4096 to 14336, bf16, result f32
linear:n 16, 4096 to 14336, bf16, result f32
prefill_attention:n 512 at 24576, 32/8 heads, D 128, bf16
prefill_attention:n 8192 at 0, 32/8 heads, D 128, bf16
gather:512 pieces of 8192, DMA
gather:512 pieces of 8192, zero copy
gather:512 pieces of 65536, DMA
gather:512 pieces of 65536, zero copy
score_blocks:batch 64 x 2048 blocks, 32/8 heads, D 128, bf16
top_k:256 rows, 64 of 2048
sample_tokens:8 rows, 131072 tokens, top-p
CASES
  rm -f "$out/kernels.json"
  "$tandem" bench kernels --device cuda --quiet --force "${named[@]}" --out "$out/kernels.json"
}
# What a profile needs of the CPU: by one thread a rate, by all a share of the memory's bandwidth.
step_cpu() {
  local bad=0 kernel threads
  rm -f "$out"/cpu-*.json "$out/probe-cpu.json"
  within 40 "$probe" --sections dram,cpu_attention --seconds 150 --out "$out/probe-cpu.json" || bad=1
  for kernel in score_blocks decode_attention contiguous_attention; do
    for threads in 1 0; do
      within 20 "$tandem" bench kernels --kernel "$kernel" --threads "$threads" --quiet --force \
        --out "$out/cpu-$kernel-$threads.json" || bad=1
    done
  done
  return "$bad"
}
# From what the steps before left. What they did not measure is that of the shipped profile of such a GPU.
step_profile() {
  local measured=() file name like=h200
  name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1 || true)
  case $name in
    *GH200*) like=gh200 ;; *H100*) like=h100 ;; *B200*) like=b200 ;; *A100*) like=fluxion-a100 ;; *A6000*) like=hgca-a6000 ;;
    *"RTX PRO 6000"*) like=rtx-pro-6000 ;; *"RTX 5090"*) like=rtx-5090 ;; *"RTX 4090"*) like=rtx-4090 ;; *L40S*) like=l40s ;;
  esac
  echo "What is not measured is $like's (GPU: ${name:-none})."
  for file in "$out"/probe-*.json; do
    if [ -s "$file" ]; then measured+=(--probe "$file"); fi
  done
  for file in "$out"/kernels.json "$out"/cpu-*.json; do
    if [ -s "$file" ]; then measured+=(--kernels "$file"); fi
  done
  "$tandem" calibrate "${measured[@]}" --base "$like" --out "$out/measured.json" --force
}
# The clocks stay as they are: by default ncu would lower them, and the figures would be of another machine. Where it may
# not read the counters, or no kernel ran, ncu can end well without a report.
step_ncu() {
  local bad=0 line k
  while read -r line; do
    k=${line%%:*}
    rm -f "$out/$k.ncu-rep"
    CUDA_MODULE_LOADING=LAZY within 12 ncu --clock-control none --force-overwrite --export "$out/$k" \
      --launch-skip 2 --launch-count 2 --set full --kernel-name 'regex:attention|score_blocks' \
      "$tandem" bench kernels --device cuda --case "$line" --quiet --rounds 1 </dev/null || bad=1
    [ -s "$out/$k.ncu-rep" ] || { echo "$k: ncu left no report."; bad=1; }
  done <<'CASES'
decode_attention:batch 1 x 32768, 32/8 heads, D 128, bf16
prefill_attention:n 512 at 24576, 32/8 heads, D 128, bf16
score_blocks:batch 64 x 2048 blocks, 32/8 heads, D 128, bf16
CASES
  return "$bad"
}
set +a
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
  start=$SECONDS left=$((limit - SECONDS)) time=${cap[$step]} beside= together=0
  for later in "${steps[@]:at}"; do together=$((together + cap[$later])); done
  if [[ " ${steps[*]:at+1} " == *" profile "* ]]; then left=$((left - cap[profile])); fi  # the last, and the shortest
  if [ -n "${LIMIT:-}" ] && [ "$left" -lt "$together" ]; then time=$((time * left / together)); fi
  if [ "$left" -lt "$time" ]; then time=$left; fi
  if [ "$time" -lt 5 ]; then time=5; fi
  if shared_gpu; then beside=", beside another program on the GPU"; fi
  case $step in ncu) tool=ncu ;; *?check) tool=compute-sanitizer ;; *) tool=bash ;; esac
  if ! command -v "$tool" >/dev/null; then
    verdict="not run: there is no $tool here"
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
