# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# How to write a test
# ===================
#
# A test program is an executable selftests/SUITE/NAME.test, in any language,
# that prints KTAP and ends with status 0 only if nothing failed.  selftests/run
# runs it as root in the virtual machine, on its own, with its output going
# to the parent's KTAP.  Its head may have
#
#	# timeout: 120		a time limit in seconds (600)
#	# boot: WORDS		its suite only runs it if the kernel was booted with these words;
#				scripts/check boots such a kernel
#	# thorough		QUICK=1 leaves it out
#
# It may use /tmp, loads its modules and leaves nothing behind.
#
# The lines of KTAP are those of the kernel's own tests: ktap_helpers.sh here, ksft.py in lib/ktap.py,
# kselftest_harness.h in lib/harness.h. qemu/boot takes them from the kernel's source.
#
# One in shell sources this file:
#
#	#!/bin/bash
#	# SPDX-License-Identifier: GPL-2.0
#	# timeout: 120
#	. "${BASH_SOURCE[0]%/*}/../ktap.sh"
#	. "${BASH_SOURCE[0]%/*}/../net.sh"
#
#	setup()   { net_up; }        # optional, once, before the first test
#	cleanup() { net_down; }      # optional, once, at the end, in any case
#
#	sends() { pair ib_send_bw -d fe1 -- ib_send_bw -d fe0 "$ADDR4_B"; }
#	mtu() { [ "$1" -ge 256 ] || ktap_skip "no such MTU"; ...; }
#
#	ktap_require ib_send_bw      # commands without which all is skipped
#	ktap_test "SEND goes through" sends
#	for mtu in 256 512; do ktap_test "MTU $mtu" mtu "$mtu"; done
#	ktap_main
#
# A test is a function.  It runs in a subshell of its own under "set -euo
# pipefail": the first command that fails fails the test ("not COMMAND" for one
# that must fail).  Its output is shown if it fails (always, with KTAP_VERBOSE=1).
# Its remaining processes are killed at its end.  It has KTAP_TIMEOUT seconds (120).  It
# fails, too, if the kernel complained meanwhile: a warning, an oops, a lock, reference or
# memory report, a hung task.  KTAP_EXPECTED is a regular expression of lines
# of the kernel's log that a test provokes on purpose; "# expected: Call Trace" in the
# program's head sets it for all of them.
#
# In the environment:
#
#	TESTS="send*"	only tests with such names
#	TESTS_FROM=7	the tests from the seventh on
#	QUICK=1		no variants (ktap_more)
#	LONG=1		also tests that take minutes
#	KTAP_MOST=300	an upper bound of all time limits
#
# C programs: selftests/SUITE/NAME.c becomes $KTAP_BIN/SUITE/NAME (selftests/Makefile).
# Tests call them; lib/program.sh makes a test of each TEST() of a program.
#
# The environment gives DRIVER, the link type under test (ferroce, or rxe, its peer).

set -euo pipefail

export DRIVER=${DRIVER:-ferroce}
export KTAP_BIN=${KTAP_BIN:-/build/selftests}
KTAP_TIMEOUT=${KTAP_TIMEOUT:-120}
# The result of a test shows its duration from so many seconds on.
KTAP_LONG=10
# The factor for all time limits, for the debug kernel.
export TIME_SCALE=${TIME_SCALE:-1}
# The addition to a queue pair's timeout on a slow machine. Each step doubles the timeout.
# shellcheck disable=SC2034 # tests do
SLOWER=$((TIME_SCALE > 1 ? 3 : 0))
KTAP_EXPECTED=${KTAP_EXPECTED:-}

# shellcheck source=/dev/null
. "${KSELFTEST:-/run/kselftest}/ktap_helpers.sh"

ktap_tests=()
ktap_offered=0
ktap_result=0
ktap_running='' ktap_watchdog=''
ktap_tmp=$(mktemp -d /tmp/ktap.XXXXXX)
exec {ktap_stdout}>&1

# Messages that a healthy kernel never prints.
ktap_complaint='WARNING:|(^|[^E])BUG[: ]|Oops|KASAN|KCSAN|UBSAN|KFENCE|general protection fault'
ktap_complaint+='|Unable to handle|cut here|Call Trace|possible (circular|recursive|irq lock)'
ktap_complaint+='|INFO: (task|rcu|trying|possible|inconsistent)|suspicious RCU|refcount_t:|lockup'
ktap_complaint+='|rust_kernel: panicked|list_(add|del) corruption|unregister_netdevice: waiting'
ktap_complaint+='|kmemleak|ODEBUG|unreferenced object|leaked|Slab corruption|Bad page'

# as_is FUNCTION ARGUMENT...: calls a function of ktap_helpers.sh. These do not quote their arguments, and
# set variables of common names.
as_is()
{
	# shellcheck disable=SC2034 # they do
	local - IFS='' result description directive
	set -f
	"$@"
}

# ktap_test NAME FUNCTION [ARGUMENT...]: adds a test.
ktap_test()
{
	# shellcheck disable=SC2053 # a pattern
	[[ $1 == ${TESTS:-*} ]] || return 0
	((++ktap_offered >= ${TESTS_FROM:-1})) || return 0
	ktap_tests+=("$(printf '%q ' "$@")")
}

# ktap_more NAME FUNCTION [ARGUMENT...]: adds a test that QUICK=1 in the environment leaves out,
# as others stand for it: the same for another transport, address or size.
ktap_more()
{
	[ -n "${QUICK-}" ] || ktap_test "$@"
}

# Ends the current test (in setup: all of them) as skipped.
ktap_skip()
{
	echo "$*" >"$ktap_tmp/skip"
	exit "$KSFT_SKIP"
}

# Ends the current test as failed.
ktap_fail()
{
	echo "failed: $*"
	exit "$KSFT_FAIL"
}

# ktap_require COMMAND...: skips the whole program when one is not there.
ktap_require()
{
	local command
	for command; do
		command -v "$command" >/dev/null || [ -x "$KTAP_BIN/$command" ] ||
			ktap_skip_program "$command is not there"
	done
}

ktap_skip_program()
{
	ktap_print_header
	as_is ktap_skip_all "$*"
	rm -rf "$ktap_tmp"
	exit "$KSFT_SKIP"
}

# wait_for SECONDS COMMAND...: until the command succeeds; fails at the deadline.
wait_for()
{
	local deadline=$((SECONDS + $1 * TIME_SCALE))
	shift
	until "$@"; do
		[ $SECONDS -lt $deadline ] || { echo "not in time: $*"; return 1; }
		sleep 0.1
	done
}

# huge_pages COUNT: reserves as many, of the default size.
huge_pages()
{
	wait_for 30 ktap_reserve_huge_pages "$1" >/dev/null ||
		{ echo "no $1 huge pages: $(grep HugePages_ /proc/meminfo)"; return 1; }
}

# The kernel reserves fewer when a signal reaches the shell meanwhile, as at the end of a child, and
# when memory is in pieces.
ktap_reserve_huge_pages()
{
	local file=/proc/sys/vm/nr_hugepages
	echo "$1" >"$file"
	[ "$(<"$file")" -eq "$1" ] || { echo 1 >/proc/sys/vm/compact_memory; return 1; }
}

# not COMMAND...: succeeds when the command fails.  (A failing "! command" would
# not end a test: the shell takes it as a question.)
not()
{
	if "$@"; then
		echo "should not be so: $*"
		return 1
	fi
}

# refused PATTERN COMMAND...: the command fails and says something that matches.
refused()
{
	local pattern=$1 said
	shift
	if said=$("$@" 2>&1); then
		echo "was not refused: $*"
		return 1
	fi
	echo "$said"
	[[ $said =~ $pattern ]] || { echo "does not say $pattern: $*"; return 1; }
}

# Notes where the kernel's log stands.
ktap_mark()
{
	ktap_marker="ktap $$.$RANDOM.$SECONDS"
	echo "$ktap_marker" >/dev/kmsg
}

# Prints the kernel's complaints since the last mark; true if there are any.
ktap_complained()
{
	local new
	if new=$(dmesg | awk -v mark="$ktap_marker" '
			seen
			index($0, mark) { seen = 1 }
			END { exit !seen }'); then
		new=$(grep -Ev "${KTAP_EXPECTED:-^\$}" <<<"$new" || true)
		ktap_mark
		grep -qE "$ktap_complaint" <<<"$new" || return 1
		printf 'the kernel complains:\n%s\n' "$new"
	else
		ktap_mark
		echo "the kernel's log has lost its beginning"
	fi
}

# A killed process may have left half a line, which must not swallow the result behind it.
ktap_diagnostics()
{
	local line
	tail -n 400 "$1" | while read -r line || [ -n "$line" ]; do
		ktap_print_msg "$line"
	done
}

# Ends the processes of ktap_limited.
ktap_stop()
{
	[ -n "$ktap_running" ] || return 0
	{
		kill -KILL -- "-$ktap_watchdog" "-$ktap_running"
		wait "$ktap_running" "$ktap_watchdog"
	} 2>/dev/null
	ktap_running=
}

# Runs a command with a limit on its time, in a process group that does not
# outlive it, with its output in a file.  Leaves in ktap_result its exit status;
# 124: out of time.  Do not call it in a condition: the called functions need
# errexit.
ktap_limited()
{
	local limit=$1 first=''
	shift
	set -m
	(
		set +m
		exec {ktap_stdout}>&-
		set -e
		"$@"
	) >"$ktap_tmp/output" 2>&1 </dev/null &
	ktap_running=$!
	sleep "$limit" >/dev/null 2>&1 &
	ktap_watchdog=$!
	set +me
	wait -n -p first "$ktap_running" "$ktap_watchdog" 2>>"$ktap_tmp/output"
	ktap_result=$?
	if [ "$first" != "$ktap_running" ]; then
		ktap_result=124
		echo "not over after $limit s" >>"$ktap_tmp/output"
	fi
	ktap_stop
	set -e
}

# ktap_point NAME COMMAND...: one test, one line.
ktap_point()
{
	local name=$1
	shift
	rm -f "$ktap_tmp/skip"
	local begun=$SECONDS
	local limit=$((KTAP_TIMEOUT * TIME_SCALE))
	local most=${KTAP_MOST:-$limit}
	ktap_limited $((most < limit ? most : limit)) "$@"
	if ktap_complained >>"$ktap_tmp/output"; then
		ktap_result=1
	fi
	if [ "$ktap_result" -eq "$KSFT_SKIP" ] && [ -e "$ktap_tmp/skip" ]; then
		as_is ktap_print_msg "skipped: $(<"$ktap_tmp/skip")"
		as_is ktap_test_skip "$name"
		return
	fi
	if [ "$ktap_result" -ne 0 ]; then
		as_is ktap_diagnostics "$ktap_tmp/output"
		as_is ktap_test_fail "$name"
		return
	fi
	[ -z "${KTAP_VERBOSE-}" ] || as_is ktap_diagnostics "$ktap_tmp/output"
	as_is ktap_test_pass "$name"
	[ $((SECONDS - begun)) -lt $KTAP_LONG ] || ktap_print_msg "it took $((SECONDS - begun)) s"
}

# Runs once, as the last test: the cleanup can provoke kernel messages, which no
# other test would show.
ktap_clean_up()
{
	touch "$ktap_tmp/clean"
	if declare -F cleanup >/dev/null; then
		cleanup
	fi
}

ktap_end()
{
	local status=$?
	trap - EXIT INT TERM
	set +e
	# The set-up may have ended in the middle, with its output redirected.
	exec >&"$ktap_stdout" 2>&1
	ktap_stop
	if [ ! -e "$ktap_tmp/ready" ]; then
		if [ -e "$ktap_tmp/skip" ]; then
			as_is ktap_skip_all "$(<"$ktap_tmp/skip")"
		else
			as_is ktap_diagnostics "$ktap_tmp/output"
			(ktap_exit_fail_msg "the set-up failed")
			status=$KSFT_FAIL
		fi
	fi
	if [ ! -e "$ktap_tmp/clean" ]; then
		(ktap_clean_up) >"$ktap_tmp/output" 2>&1 || as_is ktap_diagnostics "$ktap_tmp/output"
	fi
	rm -rf "$ktap_tmp"
	exit "$status"
}

# Runs all tests that were added, and ends the program.
ktap_main()
{
	local arguments
	[ ${#ktap_tests[@]} -gt 0 ] || ktap_skip_program "no test with such a name: ${TESTS-}"
	trap ktap_end EXIT
	trap 'exit 1' INT TERM
	ktap_print_header
	ktap_mark
	if declare -F setup >/dev/null; then
		setup >"$ktap_tmp/output" 2>&1 </dev/null
	fi
	rm -f "$ktap_tmp/skip"
	touch "$ktap_tmp/ready"
	ktap_set_plan $((${#ktap_tests[@]} + 1))
	for arguments in "${ktap_tests[@]}"; do
		eval "ktap_point $arguments"
	done
	ktap_point "all is taken down, and the kernel has no complaint" ktap_clean_up
	ktap_finished
}
