#!/usr/bin/env bash
# Makes a folder that runs on a machine with a GPU and nothing but its driver, CUDA 13's libraries and glibc 2.36 or
# later: the program, the probe, the kernels' tests, their data, the few libraries they need, and kernels_on_gpu.sh,
# which runs them all.
#
#   scripts/bundle.sh thin [FOLDER]     cuBLAS and cuBLASLt are the target machine's, and models are left out, which
#                                       kernels_on_gpu.sh does not need; under 80 MB, of which OpenBLAS is 37; beside it
#                                       FOLDER.tar.gz, under 24 MiB, for where little can be carried
#   scripts/bundle.sh full [FOLDER]     brings both along, so that the driver is enough; some 650 MB
#
# FOLDER (default build/bundle-thin or build/bundle-full) is replaced where an earlier bundle lies. JOBS limits the build.
set -euo pipefail
. "$(dirname "$0")/common.sh"
target=${2:+$(realpath -m -- "$2")}  # the caller's folder may be relative to where the caller is
cd "$root"

kind=${1:-}
if [ "$kind" != thin ] && [ "$kind" != full ] || [ $# -gt 2 ]; then
  echo "bundle.sh: say 'thin' or 'full', and perhaps a folder." >&2
  exit 2
fi
preset=cuda
target=${target:-$root/build/bundle-$kind}
marker=.tandem-bundle
if [ -e "$target" ] && [ ! -e "$target/$marker" ] && [ -n "$(ls -A "$target")" ]; then
  echo "bundle.sh: $target is no bundle and not empty; name another folder." >&2
  exit 2
fi

tests=(test_kernel_cases test_kernels_cuda test_cuda_device_gpu test_methods_cuda)
configure "$preset" >/dev/null
cmake --build --preset "$preset" ${JOBS:+-j "$JOBS"} --target tandem tandem_probe_program "${tests[@]}"

rm -rf "$target"
mkdir -p "$target/bin" "$target/lib"
touch "$target/$marker"
cmake --install "build/$preset" --prefix "$target" >/dev/null
if [ "$kind" = thin ]; then rm -r "$target/share/tandem/models"; fi
for name in "${tests[@]}"; do cp "$(find "build/$preset/tests" -name "$name" -type f -perm -u+x)" "$target/bin/"; done
cp scripts/kernels_on_gpu.sh "$target/"
strip "$target"/bin/*

# OpenBLAS is loaded at run time, so that ldd does not name it.
openblas=/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0
if [ ! -e "$openblas" ]; then
  echo "bundle.sh: $openblas is not there; scripts/install_packages.sh installs it." >&2
  exit 3
fi
cp -L "$openblas" "$target/lib/"

# What the loader would take from this system, but for glibc, which belongs to the machine.
glibc='^(linux-vdso|ld-linux|libc\.so|libm\.so|libdl\.so|libpthread\.so|librt\.so|libresolv\.so)'
for program in "$target"/bin/* "$target/lib/libopenblas.so.0"; do
  ldd "$program" | awk '$2 == "=>" { print $1, $3 }' | while read -r name path; do
    if [[ ! $name =~ $glibc ]] && [ ! -e "$target/lib/$name" ]; then cp -L "$path" "$target/lib/$name"; fi
  done
done
if [ "$kind" = full ]; then
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  for library in libcublas.so.13 libcublasLt.so.13; do  # the probe takes cuBLAS
    library=$(dirname "$(dirname "$nvcc")")/lib64/$library
    if [ ! -e "$library" ]; then
      echo "bundle.sh: $library is not there; 'full' needs CUDA 13's cuBLAS and cuBLASLt." >&2
      exit 3
    fi
    cp -L "$library" "$target/lib/"
  done
fi

# Every library comes from the bundle or is glibc's, and the program starts without anything of this environment.
for program in "$target"/bin/*; do
  missing=$(env -i PATH=/usr/bin:/bin ldd "$program" |
    awk -v lib="$target/" '$2 == "=>" && index($3, lib) != 1 { print $1 }' | grep -Ev "$glibc" || true)
  if [ -n "$missing" ]; then
    echo "bundle.sh: $(basename "$program") takes" $missing "from this system." >&2
    exit 3
  fi
done
(cd / && env -i PATH=/usr/bin:/bin "$target/bin/tandem" info >/dev/null)

bytes=$(du -sb "$target" | cut -f1)
largest=$(find "$target" -type f -printf '%s %P\n' | sort -n | tail -1)
echo "$target: $((bytes / 1000000)) MB; the largest file is ${largest#* } with $((${largest%% *} / 1000000)) MB."
if [ "$kind" = thin ] && [ "$bytes" -ge 80000000 ]; then
  echo "bundle.sh: that is more than a thin bundle may have (80 MB)." >&2
  exit 3
fi
if [ "$kind" = thin ]; then
  tar -C "$(dirname "$target")" -c "$(basename "$target")" | gzip -9 >"$target.tar.gz"
  packed=$(stat -c %s "$target.tar.gz")
  echo "$target.tar.gz: $((packed / 1000000)) MB."
  if [ "$packed" -gt 25165824 ]; then
    echo "bundle.sh: that is more than a thin bundle may have packed (24 MiB)." >&2
    exit 3
  fi
fi
