# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Tests that are C programs, as tests of ktap.sh.  Source it after net.sh.

# The two ends of the wire, as lib/rc.c reads them: NAMESPACE/DEVICE.
export END_A=a/$DEV_A END_B=b/$DEV_B

# Runs one test of a program made with lib/harness.c.
program_test()
{
	local status=0
	# shellcheck disable=SC2154 # ktap.sh has it
	"$@" 2>&1 | tee "$ktap_tmp/said" || status=$?
	[ "$status" -ne 4 ] || ktap_skip "$(tail -n 1 "$ktap_tmp/said")"
	return "$status"
}

# program_tests SUITE/NAME [RUNNER]: adds all tests of a program made with lib/harness.c, run by
# program_test or a function that calls it.
program_tests()
{
	local name names runner=${2:-program_test}
	names=$("$KTAP_BIN/$1" -l)
	for name in $names; do
		ktap_test "${1#*/}: $name" "$runner" "$KTAP_BIN/$1" "$name"
	done
}
