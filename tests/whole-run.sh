# What tests/whole-run and tests/whole-run-registry share: they set `work` and `target`, and source this.
# shellcheck shell=bash

patience=600s
plane=$work/plane
# The processes that are ended in the end, and a folder that is removed.
started=()
temporary=

say() { printf '[%4d s] %s\n' "$SECONDS" "$*"; }

fail() {
  say "FAILED: $*" >&2
  exit 1
}

# Ends what was started; of what went wrong, the last of it is shown.
end() {
  local code=$? process
  trap - EXIT
  [ -z "$temporary" ] || rm -rf "$temporary"
  for process in "${started[@]}"; do kill -KILL "$process" 2> /dev/null || true; done
  if [ -e "$plane/cluster.json" ]; then "$work/cluster" down "$plane" || code=1; fi
  if [ "$code" != 0 ]; then
    if [ -e "$work/host.log" ]; then tail -n 20 "$work/host.log" >&2; fi
    say "FAILED with $code; logs are in $work" >&2
  fi
  exit "$code"
}

needs() {
  command -v "$1" > /dev/null || fail "$1 is not on the PATH: $2"
}

# Until a command succeeds, or patience is lost.
until_is() {
  local what=$1 last=$((SECONDS + ${patience%s}))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$last" ] || fail "$what: not within $patience"
    sleep 0.2
  done
}

# Runs a block of commands of deploy/README.md: the one below the comment `<!-- tests/whole-run: NAME -->`.
guide() {
  local block
  block=$(awk -v mark="<!-- tests/whole-run: $1 -->" '$0 == mark {found = 1; next} found && /^```$/ {exit} found && !/^```/' deploy/README.md)
  [ -n "$block" ] || fail "deploy/README.md has no block $1"
  timeout "$patience" bash -euo pipefail -c "${block//target\//$target/}" > "$work/guide.log" || fail "deploy/README.md, block $1"
}

apply() { kubectl apply --server-side "$@" > /dev/null; }

start_control_plane() {
  say "starting a control plane"
  if [ -e "$plane/cluster.json" ]; then "$work/cluster" down "$plane"; fi
  rm -rf "$plane"
  "$work/cluster" up --parent $$ "$plane" > /dev/null
  export KUBECONFIG=$plane/kubeconfig
}
