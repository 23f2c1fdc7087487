#!/usr/bin/env bash
# Runs tandem-probe on this machine's GPU; builds it first with nvcc and g++ alone (no CMake, no libraries).
#
#   scripts/probe_on_gpu.sh [options of tandem-probe]
#
# The JSON goes to $OUT/probe.json (--force replaces one that is there); OUT defaults to results/ in the repository. PROBE
# (one that is built already, such as a bundle's bin/tandem-probe), NVCC, CXX and BUILD (a folder for object files) can be
# set too. Building takes cuBLAS's header, of CUDA or of PyTorch's wheels. The exit code is tandem-probe's: 0 done, 2 bad
# usage, 3 a section failed.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
out=${OUT:-$root/results}
if [ -e "$out/probe.json" ] && [[ " $* " != *" --force "* ]]; then
  echo "probe_on_gpu.sh: '$out/probe.json' is there already; --force replaces it." >&2
  exit 2
fi
# cuBLAS is loaded by name. Where the system has none, PyTorch's wheels may have brought it, and its header.
wheels=$(python3 -c 'import nvidia.cu13 as m; print(list(m.__path__)[0])' 2>/dev/null || true)
if [[ $(PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null) != *libcublas.so.13* ]] &&
  [ ! -e /usr/local/cuda/lib64/libcublas.so.13 ] && [ -n "$wheels" ]; then
  export LD_LIBRARY_PATH="$wheels/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi
if [ -n "${PROBE:-}" ]; then
  mkdir -p "$out"
  exec "$PROBE" --out "$out/probe.json" "$@"
fi
if [ -n "${BUILD:-}" ]; then
  build=$BUILD
else
  build=$(mktemp -d)
  trap 'rm -rf "$build"' EXIT
fi
cxx=${CXX:-g++}
nvcc=${NVCC:-$(command -v nvcc || true)}
if [ -z "$nvcc" ] && [ -x /usr/local/cuda/bin/nvcc ]; then nvcc=/usr/local/cuda/bin/nvcc; fi
if ! command -v "${nvcc:-nvcc}" >/dev/null; then
  echo "probe_on_gpu.sh: no nvcc at '${nvcc:-PATH or /usr/local/cuda/bin}'; set NVCC to where it is." >&2
  exit 2
fi
mkdir -p "$out" "$build"
# Only the header of cuBLAS: the wheels' others may be of another version than nvcc.
includes=(-I"$root")
if ! "$nvcc" -ccbin "$cxx" -x cu -E - <<<'#include <cublas_v2.h>' >/dev/null 2>&1 && [ -e "$wheels/include/cublas_v2.h" ]; then
  mkdir -p "$build/cublas"
  ln -sf "$wheels"/include/cublas*.h "$build/cublas/"
  includes+=(-I"$build/cublas")
fi

architectures=(-gencode arch=compute_80,code=sm_80 -gencode 'arch=compute_90,code=[sm_90,compute_90]')
jobs=()
for source in "$root"/hardware/probe/*.cc "$root"/engine/common/cgroup.cc "$root"/engine/common/cpus.cc; do
  name=$(basename "$source" .cc)
  [ "$name" = no_cuda ] && continue
  "$cxx" -std=c++20 -O3 -Wall -Wextra -I"$root" -c "$source" -o "$build/$name.o" &
  jobs+=($!)
done
for source in "$root"/hardware/probe/*.cu; do
  name=$(basename "$source" .cu)
  "$nvcc" -std=c++20 -O3 -ccbin "$cxx" "${architectures[@]}" "${includes[@]}" -c "$source" -o "$build/$name.cu.o" &
  jobs+=($!)
done
for job in "${jobs[@]}"; do wait "$job"; done
"$nvcc" -ccbin "$cxx" -o "$build/tandem-probe" "$build"/*.o -ldl -lpthread

"$build/tandem-probe" --out "$out/probe.json" "$@"
