#!/bin/sh
# Installs the Debian packages of tools/setup/packages.txt that are missing. Needs root only then.
# Usage: tools/setup/install.sh
set -eu
cd "$(dirname "$0")"
missing=""
for package in $(grep -v '^#' packages.txt); do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$state" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
echo "setup: installing$missing"
if ! command -v apt-get >/dev/null 2>&1; then
  echo "setup: apt-get not found; install these yourself:$missing" >&2
  exit 1
fi
run=""
[ "$(id -u)" = 0 ] || run="sudo"
export DEBIAN_FRONTEND=noninteractive
$run apt-get update -q
$run apt-get install -q -y --no-install-recommends $missing
