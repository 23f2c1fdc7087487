#!/usr/bin/env bash
# Runs quickstart.sh and test.sh in a new Debian root that holds nothing but the base system and this checkout's committed
# files, and says how long each took. Needs root and debootstrap; the mirror is the one this machine's apt uses.
#
#   scripts/check_fresh_install.sh [--keep] [--with-git] [FOLDER]
#
# FOLDER (default: a new one under ${TMPDIR:-/tmp}) becomes the root; one that holds a bare base system from an earlier
# --keep run is used again as it is. --with-git copies .git too, without which the build has no commit id.
set -euo pipefail
. "$(dirname "$0")/common.sh"

keep=0 with_git=0 target=
while [ $# -gt 0 ]; do
  case $1 in
    --keep) keep=1; shift ;;
    --with-git) with_git=1; shift ;;
    -*) echo "check_fresh_install.sh: unknown option '$1'; there are --keep and --with-git." >&2; exit 2 ;;
    *) target=$1; shift ;;
  esac
done
if [ "$(id -u)" != 0 ]; then echo "check_fresh_install.sh: chroot needs root." >&2; exit 2; fi
if ! command -v debootstrap >/dev/null; then echo "check_fresh_install.sh: debootstrap is not installed." >&2; exit 2; fi
release=bookworm

# "deb URI suite component" lines as apt itself reads them; the first that serves the release's own suite.
mirror=$(apt-get indextargets --format '$(SITE) $(RELEASE) $(CREATED_BY)' 2>/dev/null |
  awk -v release="$release" '$2 == release && $3 == "Packages" { print $1; exit }')
if [ -z "$mirror" ]; then
  echo "check_fresh_install.sh: apt's sources on this machine name no mirror that serves $release." >&2
  exit 2
fi

if [ -z "$target" ]; then target=$(mktemp -d "${TMPDIR:-/tmp}/tandem-fresh.XXXXXX"); fi
mounted=()
cleanup() {
  for folder in "${mounted[@]}"; do umount "$folder" || true; done
  # Never across a mount that could not be undone.
  if [ "$keep" = 0 ]; then rm -rf --one-file-system "$target"; fi
}
trap cleanup EXIT

start=$SECONDS
if [ ! -x "$target/usr/bin/apt-get" ]; then
  echo "Base system: $release into $target"
  if ! debootstrap --variant=minbase "$release" "$target" "$mirror" >"$target.log" 2>&1; then
    tail -5 "$target.log" >&2
    exit 3
  fi
  rm -f "$target.log"
fi
echo "Base system after $(duration $((SECONDS - start)))."
# What every running system has.
mount -t proc proc "$target/proc"
mounted+=("$target/proc")
mount -t sysfs -o ro sysfs "$target/sys"
mounted+=("$target/sys")
mkdir -p "$target/dev/pts" "$target/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$target/dev/pts"
mounted+=("$target/dev/pts")
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$target/dev/shm"
mounted+=("$target/dev/shm")
ln -sf pts/ptmx "$target/dev/ptmx"  # this instance's terminals, not the machine's

rm -rf "$target/root/tandem"
mkdir -p "$target/root/tandem"
git -C "$root" archive HEAD | tar -x -C "$target/root/tandem"
if [ "$with_git" = 1 ]; then cp -r "$(git -C "$root" rev-parse --absolute-git-dir)" "$target/root/tandem/.git"; fi

status=0
for command in ./scripts/quickstart.sh ./scripts/test.sh; do
  echo "--- $command"
  start=$SECONDS
  # An empty environment, no terminal, no input: what a fresh machine or a container has.
  if env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    chroot "$target" /bin/sh -c "cd /root/tandem && exec $command" </dev/null; then
    echo "--- $command: done in $(duration $((SECONDS - start)))"
  else
    echo "--- $command: FAILED after $(duration $((SECONDS - start)))"
    status=1
  fi
done
exit $status
