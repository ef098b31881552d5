# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Functions that the scripts of this directory share: paths, messages, and
# acting as root over a directory tree.  Source it.
#
# All downloads and build products go to one cache directory, never to the tree.
# An entry is made under a temporary name and renamed when it is complete, so the
# remains of an interrupted run are never taken for a complete one.

TREE=$(cd "${BASH_SOURCE[0]%/*}/.." && pwd)
CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/ferroce
# Several trees may share the cache; each has its own part for its build products.
BUILD=$CACHE/build/$(sha256sum <<<"$TREE" | cut -c 1-16)
export TREE CACHE BUILD
# The directory of chroot, which ordinary users may not have in their PATH.
PATH=$PATH:/usr/sbin:/sbin

# The start of the first of the scripts that call each other.
export FERROCE_START=${FERROCE_START:-$EPOCHSECONDS}

# step TEXT: announces a step that may take long, with the time since then.
step()
{
	printf '%5ds  %s\n' $((EPOCHSECONDS - FERROCE_START)) "$*" >&2
}

die()
{
	printf '%s: %s\n' "${0##*/}" "$1" >&2
	shift
	[ $# -eq 0 ] || printf '\t%s\n' "$@" >&2
	exit 1
}

# Prints the flavour of Debian's kernel for FLAVOUR of the environment, as in release names.
kernel_flavour()
{
	local arch
	case ${ARCH-} in
	'' | amd64 | x86 | x86_64) arch=amd64 ;;
	arm64 | aarch64) arch=arm64 ;;
	*) die "ARCH=$ARCH is neither amd64 nor arm64" ;;
	esac
	case $arch:${FLAVOUR-} in
	"$arch:" | "$arch:$arch") echo "$arch" ;;
	*:cloud | *:rt) echo "$FLAVOUR-$arch" ;;
	arm64:16k) echo arm64-16k ;;
	*) die "there is no FLAVOUR=$FLAVOUR of $arch: cloud, rt, of arm64 16k" ;;
	esac
}

# arch_of RELEASE: prints Debian's name of a kernel's architecture.
arch_of()
{
	case ${1%.tmp} in
	*-arm64 | *-arm64-16k) echo arm64 ;;
	*) echo amd64 ;;
	esac
}

# Makes a directory for a run of the virtual machine.  The logs of the last 20 are kept.
new_run()
{
	local old
	mkdir -p "$CACHE/runs"
	find "$CACHE/runs" -mindepth 1 -maxdepth 1 -type d -mmin +60 | sort | head -n -20 |
		while read -r old; do rm -rf "$old"; done
	mktemp -d "$CACHE/runs/$(date +%Y%m%d-%H%M%S)-XXXX"
}

# run_logged LOG COMMAND...: writes the command's output to LOG. Prints a sign of
# life every ten seconds, and the end of the log on failure.  The command ends when
# this script is interrupted.
run_logged()
{
	local log=$1 status=0 start=$SECONDS pid
	shift
	mkdir -p "${log%/*}"
	set -m # a process group of its own, to be ended as a whole
	"$@" >"$log" 2>&1 </dev/null &
	pid=$!
	set +m
	# shellcheck disable=SC2064 # the pid of now
	trap "kill -- -$pid 2>/dev/null; wait $pid" EXIT
	trap 'exit 130' INT TERM
	while timeout --foreground 10 tail --pid="$pid" -f /dev/null; [ -d "/proc/$pid" ]; do
		step "  ... $((SECONDS - start)) s: $(tail -n 1 "$log" | cut -c 1-60)"
	done
	wait "$pid" || status=$?
	trap - EXIT INT TERM
	[ "$status" -eq 0 ] && return
	tail -n 40 "$log" >&2
	die "failed (status $status): $*" "the whole log: $log"
}

# locked NAME: locks this part of the cache until this script ends.
locked()
{
	local fd
	mkdir -p "$CACHE/locks"
	exec {fd}>"$CACHE/locks/$1"
	flock --nonblock "$fd" && return
	step "waiting for another run that works on $1"
	flock "$fd"
}

# date_of COMMIT: prints its date, in seconds.
date_of()
{
	git -C "$TREE" log -1 --format=%ct "$1"
}

# Runs apt-get in a layer of a root file system, with the downloads of the cache.
layer_apt()
{
	DEBIAN_FRONTEND=noninteractive apt-get -q -y -o Dir::State::Lists=/cache/apt/lists -o Dir::Cache=/cache/apt \
		-o APT::Sandbox::User=root -o APT::Install-Recommends=false -o Dpkg::Use-Pty=false "$@"
}

# True for the tree of a tarball that scripts/dist has made.
is_release()
{
	[ -e "$TREE/VERSION" ] && ! [ -e "$TREE/.git" ]
}

# Prints the date of this tree, in seconds. All files of a release have that of its commit.
date_of_tree()
{
	if is_release; then stat -c %Y "$TREE/VERSION"; else date_of HEAD; fi
}

# Prints the names of the files of this tree, without those that git ignores, or without the crates of a release.
files_of_tree()
{
	if is_release; then
		(cd "$TREE" && find . -path ./rust/vendor -prune -o -type f -print)
	else
		git -C "$TREE" ls-files --cached --others --exclude-standard
	fi
}

# Prints the address of those who made this tree. That of a release is in a file.
email_of_tree()
{
	if is_release; then cat "$TREE/debian/email"; else git -C "$TREE" log -1 --format=%ce; fi
}

# replace_kernel DIR RECIPE: puts the complete DIR.tmp in the place of DIR, and notes what it is made from. An
# old one loses its recipe first, so that it is not taken for complete when its removal is interrupted.
replace_kernel()
{
	"${AS_ROOT[@]}" rm -f "$1/recipe"
	"${AS_ROOT[@]}" rm -rf "$1"
	echo "$2" >"$1.tmp/recipe"
	mv "$1.tmp" "$1"
}

# The first 16 digits of a hash over the standard input.
short_hash()
{
	sha256sum | cut -c 1-16
}

# Sets AS_ROOT, the prefix of a command that acts as root over the cache:
# nothing for root, a user namespace where the machine allows it, else sudo.
# shellcheck disable=SC2034 # for those who source this
become_root()
{
	AS_ROOT=()
	[ "$(id -u)" -ne 0 ] || return 0
	if unshare --map-root-user --mount true 2>/dev/null; then
		AS_ROOT=(unshare --map-root-user)
	elif command -v sudo >/dev/null; then
		AS_ROOT=(sudo "--preserve-env=XDG_CACHE_HOME,HOME,http_proxy,https_proxy,no_proxy")
	else
		die "this machine lets no ordinary user make a namespace, and has no sudo" \
			"run it as root"
	fi
}

# Installs packages of the machine's own distribution that provide the given
# commands: need COMMAND:PACKAGE...
need()
{
	local pair missing=() sudo=()
	for pair; do
		command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	command -v apt-get >/dev/null ||
		die "missing on this machine: ${missing[*]}" "install them and try again"
	if [ "$(id -u)" -ne 0 ]; then
		command -v sudo >/dev/null ||
			die "missing on this machine: ${missing[*]}" "as root: apt-get install ${missing[*]}"
		sudo=(sudo)
	fi
	step "installing ${missing[*]}"
	mkdir -p "$CACHE"
	run_logged "$CACHE/apt-install.log" "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
		sh -c 'apt-get update && apt-get install -y --no-install-recommends "$@"' sh "${missing[@]}"
}

# modprobe_conf FILE: prints a configuration with which modprobe in the guest finds the module ferroce there. A
# depmod over the four thousand others would take longer than the build.
modprobe_conf()
{
	local module=$1
	modinfo -F alias "$module" | sed 's/.*/alias & ferroce/'
	# shellcheck disable=SC2016 # modprobe expands it
	printf 'install ferroce modprobe -a %s && insmod %s $CMDLINE_OPTS\n' \
		"$(modinfo -F depends "$module" | tr , ' ')" "$module"
}
