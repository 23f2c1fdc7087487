#!/usr/bin/env bash
# Installs what is missing, builds tandem and tandem-probe, and compares all methods on the embedded model: first a preview
# with few short samples, which takes seconds, then the whole comparison with its report.
#
#   scripts/quickstart.sh [--quick | --full] [options of `tandem compare`]
#
#   --quick    the preview alone, in runs/quickstart
#   --full     the comparison without a preview
#
# Everything it makes is in build/release, runs/quickstart and runs/quickstart-preview. Safe to run again; earlier runs there
# are replaced.
set -euo pipefail
. "$(dirname "$0")/common.sh"

mode=both
case ${1:-} in
  --quick | --full)
    mode=${1#--}
    shift
    ;;
esac
# The preview's settings, where the options have none of their own.
preview=(--no-plot)
for setting in "--tasks niah_single_1,niah_multikey_1" "--lengths 1K" "--samples 3"; do
  case " $* " in
    *" ${setting%%s *}"*) ;;
    *) read -ra words <<<"$setting" && preview+=("${words[@]}") ;;
  esac
done

started=$SECONDS
"$root/scripts/install_packages.sh"
cd "$root"
echo "Building (build/release) ..."
configure release >/dev/null
cmake --build --preset release --target tandem tandem_probe_program
echo "Built after $(duration $((SECONDS - started)))."
echo
out=runs/quickstart
if [ "$mode" = both ]; then
  build/release/bin/tandem compare --out "$out-preview" --force "${preview[@]}" "$@"
  echo
  echo "That was a preview. The whole comparison follows; ^C stops it."
  echo
  preview=()
elif [ "$mode" = full ]; then
  preview=()
fi
build/release/bin/tandem compare --out "$out" --force "${preview[@]}" "$@"
echo
echo "Done in $(duration $((SECONDS - started))). The report is in $out; the programs are in build/release/bin."
