#!/usr/bin/env bash
# Builds a site with search from the repository's pages: build/site/index.html. A link that leads nowhere is an error.
#
#   scripts/site.sh [--serve]      --serve: then serve it at http://localhost:8000, since search needs a server
set -euo pipefail
. "$(dirname "$0")/common.sh"
cd "$root"

case "${1:-}" in
  '' | --serve) ;;
  *) echo "site.sh: unknown option '$1'; there is --serve." >&2; exit 2 ;;
esac
scripts/install_packages.sh --site
mkdir -p build/site_source
/usr/bin/python3 scripts/site_pages.py build/site_source
(cd build/site_source && mkdocs build --quiet --strict --clean --config-file mkdocs.json)
echo "The site is in build/site."
if [ "${1:-}" = --serve ]; then exec /usr/bin/python3 -m http.server --directory build/site --bind localhost 8000; fi
