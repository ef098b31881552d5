# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Reads the configuration of a kernel.  Source it.

# kconfig KDIR OPTION: prints its value, without quotes; nothing if it is not set.
kconfig()
{
	sed -n "s/^$2=\"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" "$1/include/config/auto.conf"
}
