#!/usr/bin/env bash
# clang-format, clang-tidy and the layers of folders (check_layers.py) over the repository's C++ and CUDA files, and the pages:
# whether they are wrapped, their links, lengths and sentences (check_pages.py). Exit code 1 where one has something to say.
#
#   scripts/lint.sh [--fix] [--each] [--jobs N]      --fix: let clang-format and wrap_pages.py rewrite the files first; --each: parse each file by
#                                             itself, too, for a missing #include and declarations that nothing uses
#
# clang-tidy works on the .cc files (headers through them) that changed since they were last found clean: what is compiled
# together with all that it includes is remembered as it looks after preprocessing, in ~/.cache/tandem/lint.
set -euo pipefail
. "$(dirname "$0")/common.sh"
cd "$root"

fix=0 each=() jobs=$(nproc)
while [ $# -gt 0 ]; do
  case $1 in
    --fix) fix=1; shift ;;
    --each) each=(--each); shift ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift 2 ;;
    *) echo "lint.sh: unknown option '$1'; there are --fix, --each and --jobs." >&2; exit 2 ;;
  esac
done
"$root/scripts/install_packages.sh" --lint

# Where git is absent or this is no checkout, what lies in the source folders.
if command -v git >/dev/null && git rev-parse --git-dir >/dev/null 2>&1; then
  mapfile -t files < <(git ls-files -co --exclude-standard -- '*.h' '*.cc' '*.cu' '*.cuh')
  mapfile -t pages < <(git ls-files -co --exclude-standard -- '*.md')
else
  mapfile -t files < <(find engine methods eval hardware cli bench tests -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh')
  mapfile -t pages < <(find README.md docs engine methods eval hardware cli bench models studies tests -name '*.md')
fi
status=0
if [ "$fix" = 1 ]; then
  clang-format -i "${files[@]}"
  python3 scripts/wrap_pages.py "${pages[@]}"
fi
if python3 scripts/wrap_pages.py --check "${pages[@]}"; then
  echo "wrap_pages.py: ${#pages[@]} pages are in order."
else
  echo "wrap_pages.py: scripts/lint.sh --fix puts them in order."
  status=1
fi
if ! python3 scripts/check_layers.py; then status=1; fi
if ! python3 scripts/check_pages.py; then status=1; fi
if clang-format --dry-run --Werror "${files[@]}"; then
  echo "clang-format: ${#files[@]} files are in order."
else
  echo "clang-format: scripts/lint.sh --fix puts the files above in order."
  status=1
fi

if ! python3 hardware/validation/fit.py --check; then status=1; fi

for preset in release ${each:+files}; do
  configure "$preset" >/dev/null
  cmake "build/$preset" >/dev/null  # the compile database of the tree as it is now
done
if ! python3 scripts/tidy.py "${each[@]}" --jobs "$jobs"; then status=1; fi
exit $status
