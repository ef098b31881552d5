# SPDX-License-Identifier: GPL-2.0
#
# The main Makefile.  Kbuild builds the module, from the file Kbuild.
# `make help` lists the targets.

KDIR ?= /lib/modules/$(shell uname -r)/build
DRIVER ?= ferroce
export DRIVER SERIES

kbuild = $(MAKE) -C $(KDIR) M=$(CURDIR)

all: check-kdir
	+@$(kbuild) modules
	@scripts/check-panics rust/roce/roce.o rust/ferroce/ferroce.o
	@echo "ferroce.ko is built; next: sudo make install, or sudo insmod ferroce.ko"

install: check-kdir
	+@$(kbuild) modules_install
	depmod $(if $(INSTALL_MOD_PATH),-b $(INSTALL_MOD_PATH)) $$(cat $(KDIR)/include/config/kernel.release)
	@echo "installed; next: rdma link add fe0 type ferroce netdev <netdev>"

# The module by DKMS, for this kernel and later ones, where there is no package of it.
dkms: version = $(shell scripts/version)
dkms:
	scripts/dkms-source /usr/src/ferroce-$(version)
	dkms install ferroce/$(version)
	@/usr/src/ferroce-$(version)/dist/dkms-build why

check-kdir:
	@scripts/check-kdir $(KDIR)

demo: vm-module
	@qemu/boot -- env DRIVER=$(DRIVER) qemu/demo-guest

shell: vm-module
	@qemu/boot --interactive -- env DRIVER=$(DRIVER) qemu/shell-guest

# CMD, DIR, OUT, PCAP and SECONDS_MOST: see qemu/run. Make hands on what its command line sets.
run: vm-module
	@qemu/run

check:
	@scripts/check

check-all:
	@scripts/check host build vm-all flavour

check-debug:
	@scripts/check debug

check-debug-quick:
	@scripts/check debug-quick

# SOAK_SECONDS may be given.
soak:
	@scripts/check soak

# Each plan with so many seeds; PLANS and SEEDS may be given.
SEEDS ?= 10000
PLANS ?= $(wildcard rust/sim/plans/*.toml)

sim:
	@qemu/enter -- cargo run --quiet --release --locked --manifest-path rust/Cargo.toml -p sim -- \
		--seeds $(SEEDS) $(PLANS)

doc:
	@qemu/enter -- scripts/doc
	@echo "next: open $$(. qemu/lib.sh && echo "$$BUILD")/cargo/doc/roce/index.html"

tables:
	@qemu/enter -- scripts/tables
	@qemu/enter -- scripts/unsafe-ledger
	@qemu/enter -- scripts/conformance
	@qemu/enter -- scripts/performance
	@qemu/enter -- scripts/consumers
	@qemu/enter -- scripts/survival
	@qemu/enter -- scripts/memory

SECONDS ?= 60

coverage:
	@qemu/enter -- scripts/coverage

fuzz:
	@qemu/enter -- scripts/fuzz $(SECONDS)

figures:
	@qemu/enter -- cargo run --quiet --release --locked --manifest-path rust/Cargo.toml -p sim \
		--bin goodput -- Documentation

# ROUNDS, QUICK, CASES, RECORD and CHECK: see scripts/bench.
export ROUNDS QUICK CASES RECORD CHECK
# Of bench-explore.
export SEED COUNT LINE ICOUNT

bench:
	@scripts/bench time

bench-count:
	@scripts/bench count

bench-profile:
	@scripts/bench profile

# By default the simulator does not use these seeds.
bench-explore:
	@SEEDS='$(if $(filter file,$(origin SEEDS)),,$(SEEDS))' scripts/bench explore

bench-apps:
	@scripts/bench apps

# QUICK and PROGRAMS: see scripts/consume.
export PROGRAMS
consumers:
	@scripts/consume

# KERNELS: kernels with a package of their own; VERSION: the packages' version.
deb:
	@VERSION='$(VERSION)' scripts/deb $(KERNELS)

check-deb:
	@scripts/check deb

# COMMIT, VERSION: see scripts/dist.
dist:
	@VERSION='$(VERSION)' scripts/dist $(COMMIT)

# The module for the kernel of the virtual machine.  A stock driver needs none.
vm-module:
ifeq ($(DRIVER),ferroce)
	@qemu/build
endif

clean:
	@rm -rf "$$(. qemu/lib.sh && echo "$$BUILD")"
	+@if [ -e $(KDIR)/Makefile ]; then $(kbuild) clean; fi

upstream-check:
	scripts/upstream

help:
	@echo 'For this machine (KDIR=<build directory of a kernel>):'
	@echo '  all      ferroce.ko, for the running kernel unless KDIR says otherwise'
	@echo '  install  ferroce.ko to where modprobe finds it'
	@echo '  dkms     the same by DKMS, also for later kernels'
	@echo '  deb      Debian packages: the module by DKMS, and for KERNELS="7.3.4+deb13-amd64 ...", and its tools'
	@echo '  dist     the tarball of a release, with the crates of the tests (COMMIT=HEAD VERSION=1.0)'
	@echo 'In a virtual machine of its own, as any user (SERIES=7.3, FLAVOUR=rt: another kernel):'
	@echo '  demo     the stock tools of rdma-core and perftest over ferroce'
	@echo '  shell    a console there, the module loaded, a wire with both ends up'
	@echo '  run      the tests of another project there: CMD="make check" DIR=<its tree> OUT=<results> PCAP=1'
	@echo '  check    tests on the host, build checks, tests in the virtual machine'
	@echo '  check-all  the same with all variants of the tests, and a few on another flavour of the kernel'
	@echo '  check-debug  all suites on the debug kernel: hours'
	@echo '  check-debug-quick  a part of it: half an hour, and half an hour to build that kernel once'
	@echo '  check-deb  the packages: installed, upgraded and purged in a throw-away Debian'
	@echo '  soak     half an hour of disturbed traffic there (SOAK_SECONDS=1800)'
	@echo '  bench    speed beside rdma_rxe and TCP (ROUNDS=3; QUICK=1: few cases)'
	@echo '  bench-count  the same in instructions, which repeat (CHECK=1: fails if it is slower)'
	@echo '  bench-explore  random workloads beside rdma_rxe (SEEDS=1..100 SEED=7 LINE="..." ICOUNT=1 QUICK=1)'
	@echo '  bench-apps  UCX, Open MPI, libfabric, qperf, NVMe-oF, NFS beside rdma_rxe (QUICK=1 CASES="UCX*"; PROFILE=1: where the time goes)'
	@echo '  consumers  common RDMA programs, with either driver: consumers.rst (QUICK=1)'
	@echo 'Other:'
	@echo '  sim      the protocol over bad networks on virtual time, many thousand times'
	@echo '  doc      the doc comments as HTML'
	@echo '  bench-profile  where the instructions go, by function (CASES="write 64 KiB"; REAL=1: the time)'
	@echo '  tables   tables.rst, unsafe.rst, performance.rst, consumers.rst, survival.rst, memory.rst and the conformance report'
	@echo '           of Documentation'
	@echo '  figures  goodput.rst of Documentation: goodput with losses, in the simulator'
	@echo '  coverage  how much of the protocol the host tests run'
	@echo '  upstream-check  the patches of rust/upstream: a kernel with them is built and booted, half an hour'
	@echo '  fuzz     looks for inputs that break the protocol, each target for SECONDS=60'
	@echo '  clean    removes the build products of this tree'
	@echo '  help     this'
	@echo 'Downloads stay in $${XDG_CACHE_HOME:-~/.cache}/ferroce.'

.DEFAULT_GOAL := all
.PHONY: all install dkms check-kdir demo shell run check check-all check-debug check-debug-quick soak bench bench-count bench-profile bench-explore bench-apps consumers deb check-deb dist sim coverage doc \
	tables figures fuzz upstream-check vm-module clean help
