#!/usr/bin/env bash
# Installs what is missing, builds, runs all tests. The last line is "N passed, N failed"; exit code 1 if one failed.
#
#   scripts/test.sh [--preset release|debug|asan-ubsan|tsan] [--only folder,folder] [--except pattern]
#
# --only takes names of test programs without "test_", e.g. device,trace: only these are built and run. --except leaves out
# the test cases whose names a regular expression matches.
# Results are in build/<preset>/test-results.xml.
set -euo pipefail
. "$(dirname "$0")/common.sh"

preset=release only= except=()
while [ $# -gt 0 ]; do
  case $1 in
    --preset) preset=${2:?--preset needs a name}; shift 2 ;;
    --only) only=${2:?--only needs names}; shift 2 ;;
    --except) except=(--exclude-regex "${2:?--except needs a pattern}"); shift 2 ;;
    *) echo "test.sh: unknown option '$1'; there are --preset, --only and --except." >&2; exit 2 ;;
  esac
done

"$root/scripts/install_packages.sh"
cd "$root"
results=build/$preset/test-results.xml
rm -f "$results"

# The thread sanitizer of GCC 12 stops at start-up where the kernel spreads addresses further than it expects.
fixed_addresses=()
if [ "$preset" = tsan ] && setarch -R true 2>/dev/null; then fixed_addresses=(setarch -R); fi

targets=() labels=()
if [ -n "$only" ]; then
  for name in ${only//,/ }; do targets+=("test_$name"); done
  targets=(--target "${targets[@]}")
  labels=(--label-regex "^(${only//,/|})\$")
fi

echo "Building (build/$preset) ..."
configure "$preset" >/dev/null
"${fixed_addresses[@]}" cmake --build --preset "$preset" "${targets[@]}"
status=0
# One more than CPUs: there is always one that waits for a process or a disk.
"${fixed_addresses[@]}" ctest --test-dir "build/$preset" --parallel $(($(nproc) + 1)) --output-on-failure --no-tests=error --no-label-summary \
  --output-junit "$root/$results" "${labels[@]}" "${except[@]}" </dev/null | awk '!/^ *Start +[0-9]+:/ && !/ Passed +[0-9.]+ sec$/' || status=$?
counts=$(count_results "$results")
if [ -z "$counts" ]; then
  echo "test.sh: ctest wrote no results." >&2
  exit 1
fi
read -r passed failed skipped <<<"$counts"
if [ "$skipped" -gt 0 ]; then echo "$skipped skipped (each says why with ctest -V)"; fi
echo "$passed passed, $failed failed"
[ "$status" = 0 ] && [ "$failed" = 0 ]
