# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# fio, with verification of the written data.  Source it after ktap.sh.

# fio_verifies OPTION...: writes and verifies; the options name the file or directory.
fio_verifies()
{
	# shellcheck disable=SC2154 # ktap.sh has it
	local said=$ktap_tmp/fio
	fio --name=verify --direct=1 --ioengine=libaio --verify=crc32c --verify_fatal=1 --do_verify=1 \
		--randseed=7 --minimal "$@" >"$said" || {
		cat "$said"
		return 1
	}
}

# fio_verifies_all OPTION...: small blocks, blocks of all sizes, and large ones.
fio_verifies_all()
{
	fio_verifies "$@" --rw=randwrite --bs=4k --size=8m --iodepth=16
	fio_verifies "$@" --rw=randrw --bsrange=512-256k --blockalign=512 --size=16m --iodepth=8
	fio_verifies "$@" --rw=write --bs=1m --size=32m --iodepth=4
}
