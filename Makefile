# SPDX-License-Identifier: GPL-2.0
#
# The front door.  The module itself is built by Kbuild, from the file of that
# name.  `make help` lists what there is.

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

check-kdir:
	@scripts/check-kdir $(KDIR)

demo: vm-module
	@qemu/boot -- env DRIVER=$(DRIVER) qemu/demo-guest

shell: vm-module
	@qemu/boot --interactive -- env DRIVER=$(DRIVER) qemu/shell-guest

check:
	@scripts/check

check-all:
	@scripts/check host build vm-all debug-quick

check-debug:
	@scripts/check debug

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

# Seeds of the simulator, unless they are said, are not these.
bench-explore:
	@SEEDS='$(if $(filter file,$(origin SEEDS)),,$(SEEDS))' scripts/bench explore

bench-apps:
	@scripts/bench apps

# QUICK and PROGRAMS: see scripts/consume.
export PROGRAMS
consumers:
	@scripts/consume

# The module for the kernel of the virtual machine.  A stock driver needs none.
vm-module:
ifeq ($(DRIVER),ferroce)
	@qemu/build
endif

clean:
	@rm -rf "$$(. qemu/lib.sh && echo "$$BUILD")"
	+@if [ -e $(KDIR)/Makefile ]; then $(kbuild) clean; fi

help:
	@echo 'For this machine (KDIR=<build directory of a kernel>):'
	@echo '  all      ferroce.ko, for the running kernel unless KDIR says otherwise'
	@echo '  install  ferroce.ko to where modprobe finds it'
	@echo 'In a virtual machine of its own, as any user (SERIES=7.3: another kernel):'
	@echo '  demo     the stock tools of rdma-core and perftest over ferroce'
	@echo '  shell    a console there, the module loaded, a wire with both ends up'
	@echo '  check    tests on the host, of the build, in the virtual machine'
	@echo '  check-all  the same with all variants of the tests, and some on the kernel of check-debug'
	@echo '  check-debug  all suites on a kernel that looks for mistakes: hours'
	@echo '  soak     half an hour of disturbed traffic there (SOAK_SECONDS=1800)'
	@echo '  bench    speed beside rdma_rxe and TCP (ROUNDS=3; QUICK=1: few cases)'
	@echo '  bench-count  the same in instructions, which repeat (CHECK=1: fails if it fell)'
	@echo '  bench-explore  random workloads beside rdma_rxe (SEEDS=1..100 SEED=7 LINE="..." ICOUNT=1 QUICK=1)'
	@echo '  bench-apps  UCX, Open MPI, libfabric, qperf, NVMe-oF, NFS beside rdma_rxe (QUICK=1 CASES="UCX*")'
	@echo '  consumers  programs that people run over RDMA, with either driver: consumers.rst (QUICK=1)'
	@echo 'Other:'
	@echo '  sim      the protocol over bad networks on virtual time, many thousand times'
	@echo '  doc      what the code says of itself, as HTML'
	@echo '  bench-profile  where the instructions go, by function (CASES="write 64 KiB"; REAL=1: the time)'
	@echo '  tables   tables.rst, unsafe.rst, performance.rst, consumers.rst, survival.rst, memory.rst and the conformance report'
	@echo '           of Documentation'
	@echo '  figures  goodput.rst of Documentation, what losses cost in the simulator'
	@echo '  coverage  how much of the protocol the host tests run'
	@echo '  fuzz     looks for inputs that break the protocol, each target for SECONDS=60'
	@echo '  clean    removes what was built from this tree'
	@echo '  help     this'
	@echo 'What is downloaded stays in $${XDG_CACHE_HOME:-~/.cache}/ferroce.'

.DEFAULT_GOAL := all
.PHONY: all install check-kdir demo shell check check-all check-debug soak bench bench-count bench-profile bench-explore bench-apps consumers sim coverage doc \
	tables figures fuzz vm-module clean help
