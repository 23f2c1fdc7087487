#!/usr/bin/env bash
# Registers, shared memory and spills of every CUDA kernel, as ptxas says: results/ptxas-sm_80.txt and ptxas-sm_90.txt. Exit
# code 1 where a kernel of a decode step spills: what memory bounds then waits for its own registers.
#
#   scripts/ptxas_report.sh [--jobs N] [FOLDER]      FOLDER: instead of results
#
# Needs nvcc 13; no GPU.
set -euo pipefail
. "$(dirname "$0")/common.sh"
cd "$root"

jobs=$(nproc) folder=results
while [ $# -gt 0 ]; do
  case $1 in
    --jobs) jobs=${2:?--jobs needs a number}; shift 2 ;;
    -*) echo "ptxas_report.sh: unknown option '$1'; there is --jobs." >&2; exit 2 ;;
    *) folder=$1; shift ;;
  esac
done
nvcc=$(command -v nvcc || { [ -x /usr/local/cuda/bin/nvcc ] && echo /usr/local/cuda/bin/nvcc; } || true)
if [ -z "$nvcc" ]; then
  echo "ptxas_report.sh: there is no nvcc here; install the CUDA 13 toolkit or put its nvcc on the PATH." >&2
  exit 2
fi
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One line per kernel: name, registers, static shared bytes, stack bytes, spilled bytes stored, loaded.
report() {
  "$nvcc" -std=c++20 -DNDEBUG -DFMT_USE_CONSTEXPR=1 -I. -arch="$1" -cubin -Xptxas -v -o "$3.cubin" "$2" 2>"$3.log" ||
    { cat "$3.log" >&2; return 1; }
  awk '
    /Compiling entry function/ { split($0, part, "\x27"); name = part[2] }
    /bytes stack frame/ { stack = $1; stored = $5; loaded = $9 }
    /Used [0-9]+ registers/ {
      match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5)
      shared = match($0, /[0-9]+ bytes smem/) ? substr($0, RSTART, RLENGTH - 11) : 0
      print name, registers, shared, stack, stored, loaded
    }' "$3.log" >"$3.lines"
}
export -f report
export nvcc

status=0
for arch in sm_80 sm_90; do
  for source in engine/kernels/*_cuda.cu engine/mechanisms/*/kernels/*_cuda.cu hardware/probe/*.cu; do
    printf '%s\0%s\0%s\0' "$arch" "$source" "$work/$arch-$(basename "$source" .cu)"
  done
done | xargs -0 -n 3 -P "$jobs" bash -euo pipefail -c 'report "$@"' report

for arch in sm_80 sm_90; do
  out=$folder/ptxas-$arch.txt
  {
    echo "# $("$nvcc" --version | sed -n 's/.*release \([^,]*\), V\(.*\)/nvcc \2/p'), $arch, by scripts/ptxas_report.sh"
    printf '%9s %7s %6s %7s %7s  %s\n' registers shared stack stored loaded kernel
    cat "$work/$arch"-*.lines | sort | while read -r name registers shared stack stored loaded; do
      printf '%9s %7s %6s %7s %7s  %s\n' "$registers" "$shared" "$stack" "$stored" "$loaded" \
        "$(c++filt "$name" | sed -E 's/tandem::(gpu|probe):://g; s/\(anonymous namespace\):://g; s/\(.*//; s/^void //; s/\((unsigned int|bool)\)//g')"
    done | sort -k6
  } >"$out"
  spilling=$(awk 'NR > 2 && $6 !~ /prefill/ && $4 + $5 > 0 { print $6 }' "$out")
  if [ -n "$spilling" ]; then
    echo "$arch: these decode kernels spill registers:" $spilling >&2
    status=1
  fi
  awk -v file="$out" 'NR > 2 { kernels++; if ($4 + $5 > 0) spill++ } END { printf "%s: %d kernels, %d with spills\n", file, kernels, spill }' "$out"
done
exit $status
