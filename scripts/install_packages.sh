#!/usr/bin/env bash
# Installs what Tandem needs from scripts/packages.txt. Needs no network and changes nothing when all of it is there.
#
#   scripts/install_packages.sh [--lint | --mpi | --chinese | --site]      --lint: also what scripts/lint.sh needs; --mpi: Open MPI, for
#                                       mpirun -n 2; --chinese: jieba, for the scores of LongBench's Chinese data sets; --site: MkDocs,
#                                       for scripts/site.sh
#
# TANDEM_NO_INSTALL=1 turns a missing package from something to install into an error.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

lint=0
mpi=0
chinese=0
site=0
case "${1:-}" in
  '') ;;
  --lint) lint=1 ;;
  --mpi) mpi=1 ;;
  --chinese) chinese=1 ;;
  --site) site=1 ;;
  *) echo "install_packages.sh: unknown option '$1'; there are --lint, --mpi, --chinese and --site." >&2; exit 2 ;;
esac

wanted=()
while read -r line; do
  case $line in
    '' | '#'*) ;;
    lint:*) if [ "$lint" = 1 ]; then wanted+=("${line#lint:}"); fi ;;
    chinese:*) if [ "$chinese" = 1 ]; then wanted+=("${line#chinese:}"); fi ;;
    site:*) if [ "$site" = 1 ]; then wanted+=("${line#site:}"); fi ;;
    mpi:*) if [ "$mpi" = 1 ]; then wanted+=("${line#mpi:}"); fi ;;
    *) wanted+=("$line") ;;
  esac
done <"$here/packages.txt"

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install_packages.sh: this system has no apt-get, so nothing was checked or installed." >&2
  echo "The build needs what these Debian packages hold: ${wanted[*]}" >&2
  exit 0
fi

missing=()
for package in "${wanted[@]}"; do
  state=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  if [ "$state" != installed ]; then missing+=("$package"); fi
done
if [ ${#missing[@]} = 0 ]; then
  echo "Packages: all ${#wanted[@]} are installed."
  exit 0
fi
if [ "${TANDEM_NO_INSTALL:-0}" = 1 ]; then
  echo "install_packages.sh: missing (and TANDEM_NO_INSTALL=1 is set): ${missing[*]}" >&2
  exit 3
fi

as_root=()
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "install_packages.sh: run this as root once, there is no sudo here: apt-get install ${missing[*]}" >&2
    exit 3
  fi
  as_root=(sudo)
fi
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
echo "Packages: installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A package list that is days old names files that are gone: refresh it first. Where only some source is out of reach the
# old list may still do.
"${apt[@]}" update </dev/null >"$log" 2>&1 || { echo "Packages: apt-get update failed, trying with the old lists:"; tail -3 "$log"; }
if ! "${apt[@]}" install -y --no-install-recommends "${missing[@]}" </dev/null >"$log" 2>&1; then
  tail -30 "$log" >&2
  echo "install_packages.sh: apt-get install failed (above); install these yourself: ${missing[*]}" >&2
  exit 3
fi
echo "Packages: done."
