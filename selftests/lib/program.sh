# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Tests that are C programs, as tests of ktap.sh.  Source it after net.sh.

# The two ends of the wire, as lib/rc.c reads them: NAMESPACE/DEVICE.
export END_A=a/$DEV_A END_B=b/$DEV_B

# program_test PROGRAM NAME: runs one test of a program made with lib/harness.h, or its test for one variant.
program_test()
{
	# shellcheck disable=SC2154 # ktap.sh has it
	local said=$ktap_tmp/said status=0
	"$1" -t "$2" -v "$2" 2>&1 | tee "$said" || status=$?
	! grep -q '^ok 1 .* # SKIP' "$said" || ktap_skip "$(sed -n 's/^# *SKIP *//p' "$said" | tail -n 1)"
	# Without such a test it passes.
	[ "$status" -ne 0 ] || grep -q '^ok 1 ' "$said" || ktap_fail "no test $2"
	return "$status"
}

# program_names SUITE/NAME: prints the names of its tests, or of the variants of its only one.
program_names()
{
	# The list is for people, with the variants and the tests in columns.
	{ "$KTAP_BIN/$1" -l 2>&1 || [ $? -eq "$KSFT_SKIP" ]; } | sed -nE '/^[#-]/d; s/^.{21} *([^ ]+).*/\1/p'
}

# program_tests SUITE/NAME [RUNNER]: adds all tests of a program made with lib/harness.h, run by
# program_test or a function that calls it.
program_tests()
{
	local name names runner=${2:-program_test}
	names=$(program_names "$1")
	for name in $names; do
		ktap_test "${1#*/}: $name" "$runner" "$KTAP_BIN/$1" "$name"
	done
}
