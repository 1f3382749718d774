# What tests/whole-run and tests/whole-run-registry share: they set `work` and `target`, and source this.
# shellcheck shell=bash

# A block that a guide does not have ends the script, also where its commands are substituted.
shopt -s inherit_errexit
patience=600s
plane=$work/plane
# The programs that the guides call by their names.
PATH=$work/bin:$PATH
# The processes that are ended in the end, among them the host, and a folder that is removed.
started=()
host=
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

# Waits until a command succeeds; fails after `patience`.
until_is() {
  local what=$1 last=$((SECONDS + ${patience%s}))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$last" ] || fail "$what: not within $patience"
    sleep 0.2
  done
}

# Prints the block of a guide below the comment `<!-- OF: NAME -->`, with another folder in place of `target`.
block() {
  local guide=$1 of=$2 name=$3 folder=${4-$target} text
  text=$(awk -v mark="<!-- $of: $name -->" '$0 == mark {found = 1; next} found && /^```$/ {exit} found && !/^```/' "$guide")
  [ -n "$text" ] || fail "$guide has no block $of: $name"
  printf '%s\n' "${text//target\//$folder/}"
}

# Runs commands of a guide as one script. Its output goes to guide.log.
run() { timeout "$patience" bash -euo pipefail -c "$1" > "$work/guide.log"; }

# Runs the block of deploy/README.md below the comment `<!-- OF: NAME -->`.
of_deploy() {
  local commands
  commands=$(block deploy/README.md "$1" "$2")
  run "$commands" || fail "deploy/README.md, block $1: $2"
}

apply() { kubectl apply --server-side "$@" > /dev/null; }

build_programs() {
  cargo build --quiet --package mortise
  mkdir -p "$work/bin"
  ln -sf "$target/debug/mortise" "$work/bin/mortise"
  (cd tests/cluster && go build -o "$work/cluster" .)
}

start_control_plane() {
  say "starting a control plane"
  if [ -e "$plane/cluster.json" ]; then "$work/cluster" down "$plane"; fi
  rm -rf "$plane"
  "$work/cluster" up --parent $$ "$plane" > /dev/null
  export KUBECONFIG=$plane/kubeconfig
}

# Starts the host with the account of the installation, outside of a Pod: those of this control plane are simulated. More options are
# given as variables, NAME=VALUE.
start_host() {
  local command
  of_deploy tests/whole-run.sh outside
  command=$(block deploy/README.md tests/whole-run.sh run)
  env MORTISE_CACHE="$work/cache" MORTISE_LEADER_ELECT=true MORTISE_LISTEN=127.0.0.1:0 MORTISE_ADMIN=127.0.0.1:0 "$@" \
    bash -c "exec $command" 2> "$work/host.log" &
  host=$!
  started+=("$host")
}
