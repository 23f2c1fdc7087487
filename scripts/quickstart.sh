#!/usr/bin/env bash
# Installs what is missing, builds, compares all methods on the embedded model and writes the report.
#
#   scripts/quickstart.sh [options of `tandem compare`]
#
# Everything it makes is in build/release and runs/quickstart. Safe to run again; an earlier runs/quickstart is replaced.
set -euo pipefail
. "$(dirname "$0")/common.sh"

started=$SECONDS
"$root/scripts/install_packages.sh"
cd "$root"
echo "Building (build/release) ..."
configure release >/dev/null
cmake --build --preset release --target tandem
echo "Built after $(duration $((SECONDS - started)))."
echo
"$root/build/release/bin/tandem" compare --out runs/quickstart --force "$@"
echo
echo "Done in $(duration $((SECONDS - started))). The report is in runs/quickstart; the program is build/release/bin/tandem."
