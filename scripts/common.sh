# Sourced by the other scripts: where things are, and what they share. Not a program.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# Checkouts in other folders share the compiler cache: paths inside this one are looked up as relative ones.
export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1

# Seconds as "1 min 05 s".
duration() { if [ "$1" -lt 60 ]; then echo "$1 s"; else printf '%d min %02d s\n' $(($1 / 60)) $(($1 % 60)); fi; }

# "<passed> <failed> <skipped>" of a file that ctest --output-junit wrote; nothing where there is none.
count_results() {
  [ -s "$1" ] || return 0
  awk '
    function number(name) { return match($0, name "=\"[0-9]+\"") ? substr($0, RSTART + length(name) + 2, RLENGTH - length(name) - 3) + 0 : 0 }
    /^[ \t]*(name|tests|failures|disabled|skipped)=|<testsuite/ {
      tests += number("tests"); failed += number("failures"); skipped += number("disabled") + number("skipped")
    }
    /<testcase/ { exit }
    END { print tests - failed - skipped, failed, skipped }' "$1"
}

# configure PRESET: only where that was not done since the presets changed; ninja runs CMake again where a CMake file did.
configure() {
  if [ ! "$root/build/$1/build.ninja" -nt "$root/CMakePresets.json" ]; then (cd "$root" && cmake --preset "$1" "${@:2}"); fi
}
