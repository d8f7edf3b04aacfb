# Shared by the scripts here; sourced, never run.
# A minimal image has no /usr/sbin in its PATH, and some of what we call lies there.
export PATH="$PATH:/usr/sbin:/sbin"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
begin=$SECONDS

step() { printf '[%4d s] %s\n' $((SECONDS - begin)) "$*"; }
fail() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}
