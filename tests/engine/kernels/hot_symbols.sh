#!/bin/sh
# hot_symbols.sh NM OBJECT...: fails where an object of the hot kernels defines a function that the linker may share between
# builds. Such a function could be linked from the AVX-512 build and run on any CPU.
nm=$1
shift
[ $# -gt 0 ] || { echo "no objects"; exit 1; }
symbols=$("$nm" -C "$@") || exit 1
if echo "$symbols" | grep ' W ' | grep -v tandem::isa_; then
  echo "the symbols above are not inside the namespace of their instruction set"
  exit 1
fi
