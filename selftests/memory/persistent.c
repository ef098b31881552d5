// SPDX-License-Identifier: GPL-2.0
/*
 * FLUSH to persistence: of memory that is a device's and pinned ($PERSISTENT_DEVICE, a device
 * of the dax bus) or a file's and paged in on demand (in $PERSISTENT_DIR, a file system
 * mounted with -o dax).  That caches are written back no program can see; what the kernel is
 * asked for is counted by a probe of its own function (arch_wb_cache_pmem).
 */
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>

#include "../lib/harness.h"
#include "../lib/stream.h"
#include "../lib/verbs.h"

#define MAPPED (4UL << 20)
#define DEVICE_ALIGN (2UL << 20)	/* what a device of the dax bus is mapped in */
#define PERSISTENT (REMOTE | IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT)
#define DEVICE_CAP_FLUSH_PERSISTENT (1ULL << 39)

static struct rc_pair pair;
static struct rc_plan plan;
static struct buffer mine;	/* of end a, who asks */
static struct buffer theirs;	/* of end b */

static void open_pair(void)
{
	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	plan.access |= IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT |
		       IBV_ACCESS_REMOTE_ATOMIC;
	plan.send_ops = IBV_QP_EX_WITH_FLUSH;
	pair_open(&pair, &plan);
	buffer_create(&mine, &ends[0], MAPPED, IBV_ACCESS_LOCAL_WRITE);
}

/* A new connection; the old one has failed. */
static void again(void)
{
	pair_destroy(&pair);
	pair_open(&pair, &plan);
}

/* ---- persistent memory ------------------------------------------------- */

static uint8_t *map_file(int fd, size_t size)
{
	uint8_t *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	require(bytes != MAP_FAILED, "mmap: %s", strerror(errno));
	close(fd);
	return bytes;
}

static uint8_t *map_device(void)
{
	int fd = open(getenv("PERSISTENT_DEVICE"), O_RDWR | O_CLOEXEC);

	require_sys(fd);
	return map_file(fd, MAPPED);
}

/* A fresh file, of which no block is there. */
static uint8_t *map_hole(void)
{
	int fd = open(getenv("PERSISTENT_DIR"), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	require_sys(fd);
	require_sys(ftruncate(fd, MAPPED));
	return map_file(fd, MAPPED);
}

static void pin_device(void)
{
	register_at(&theirs, &ends[1], map_device(), MAPPED, PERSISTENT);
	memset(theirs.bytes, 0, MAPPED);
}

static void demand_file(void)
{
	register_at(&theirs, &ends[1], map_hole(), MAPPED, PERSISTENT | IBV_ACCESS_ON_DEMAND);
}

/* ---- what the kernel writes back --------------------------------------- */

#define TRACING "/sys/kernel/tracing/"

static void forget_written_back(void)
{
	int fd = open(TRACING "trace", O_WRONLY | O_TRUNC | O_CLOEXEC);

	require_sys(fd);
	close(fd);
}

/* So many bytes since. */
static uint64_t written_back(void)
{
	FILE *trace = fopen(TRACING "trace", "re");
	uint64_t total = 0, size;
	char line[512], *at;

	require(trace, TRACING "trace: %s", strerror(errno));
	while (fgets(line, sizeof(line), trace)) {
		at = strstr(line, " size=");
		if (line[0] != '#' && at && sscanf(at, " size=%lu", &size) == 1)
			total += size;
	}
	fclose(trace);
	return total;
}

/* ---- requests ---------------------------------------------------------- */

static void post_flush(uint64_t id, size_t at, size_t length, uint8_t placement, uint8_t level)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(pair.a.qp);

	ibv_wr_start(qp);
	qp->wr_id = id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_flush(qp, theirs.mr->rkey, (uintptr_t)theirs.bytes + at, length, placement, level);
	require_ok(ibv_wr_complete(qp));
}

static void post_write(uint64_t id, size_t from, uint32_t length, size_t at)
{
	struct ibv_sge sge = buffer_sge(&mine, from, length);

	post_send(&pair.a, id, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
		  (uintptr_t)theirs.bytes + at, theirs.mr->rkey);
}

static void done(uint64_t id, enum ibv_wc_status status)
{
	expect_wc(pair.a.scq, id, status, 2 * SOON_MS);
}

static void flush(size_t at, size_t length, uint8_t level, enum ibv_wc_status status)
{
	post_flush(7, at, length, IBV_FLUSH_PERSISTENT, level);
	done(7, status);
}

/* Writes there and has it flushed, while other things are under way. */
static void write_and_flush(size_t at, uint32_t length, uint64_t key)
{
	stream_fill(mine.bytes, length, key, 0);
	post_write(1, 0, length, at);
	post_flush(2, at, length, IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE);
	post_flush(3, at, 1, IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE);
	done(1, IBV_WC_SUCCESS);
	require(expect_wc(pair.a.scq, 2, IBV_WC_SUCCESS, 2 * SOON_MS).opcode == IBV_WC_FLUSH,
		"another opcode");
	require(stream_compare(theirs.bytes + at, length, key, 0) == length,
		"%u bytes at %zu are not there", length, at);
	done(3, IBV_WC_SUCCESS);
}

static const struct {
	size_t at;
	uint32_t length;
} ranges[] = {
	{ 0, 1 }, { 4095, 2 }, { 0, 4096 }, { 100, 65536 }, { 77, 65537 }, { 4000, 1000000 },
	{ 0, MAPPED },
};

static size_t pages_of(size_t at, size_t length)
{
	return (at + length + PAGE - 1) / PAGE - at / PAGE;
}

/* ---- tests ------------------------------------------------------------- */

TEST(capability)
{
	struct ibv_device_attr_ex attr;

	name_ends_from_environment();
	open_ends();
	require_ok(ibv_query_device_ex(ends[0].context, NULL, &attr));
	require(attr.device_cap_flags_ex & DEVICE_CAP_FLUSH_PERSISTENT, "capabilities %#lx",
		(long)attr.device_cap_flags_ex);
}

/* Exactly what was asked for is written back, before the FLUSH completes. */
/* Rules: MPE-15 */
TEST(pinned)
{
	unsigned int i;
	uint64_t total;

	open_pair();
	pin_device();
	for (i = 0; i < ARRAY_SIZE(ranges); i++) {
		note("%u bytes at %zu", ranges[i].length, ranges[i].at);
		forget_written_back();
		write_and_flush(ranges[i].at, ranges[i].length, i);
		total = written_back();
		require(total == ranges[i].length + 1, "%lu bytes were written back", total);
	}
	forget_written_back();
	flush(0, 0, IBV_FLUSH_MR, IBV_WC_SUCCESS);
	require(written_back() == MAPPED, "the whole region: %lu bytes", written_back());
	forget_written_back();
	flush(5, 0, IBV_FLUSH_RANGE, IBV_WC_SUCCESS);
	require(!written_back(), "nothing: %lu bytes", written_back());
}

/* Not on a bad wire: who has refused for good answers nobody who has not heard it. */
TEST(beyond)
{
	open_pair();
	pin_device();
	forget_written_back();
	flush(MAPPED - 8, 9, IBV_FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR);
	require(!written_back(), "%lu bytes were written back", written_back());
}

TEST(global_only)
{
	open_pair();
	pin_device();
	forget_written_back();
	post_write(1, 0, 100, 0);
	post_flush(2, 0, 100, IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
	done(1, IBV_WC_SUCCESS);
	done(2, IBV_WC_SUCCESS);
	require(!written_back(), "%lu bytes were written back", written_back());
}

/* Pages that are there are written back, be it only that the process has them. */
TEST(on_demand)
{
	unsigned int i;
	uint64_t total;

	open_pair();
	for (i = 0; i < ARRAY_SIZE(ranges); i++) {
		demand_file();
		note("%u bytes at %zu", ranges[i].length, ranges[i].at);
		forget_written_back();
		write_and_flush(ranges[i].at, ranges[i].length, i);
		total = written_back();
		require(total >= ranges[i].length + 1 &&
			total <= (pages_of(ranges[i].at, ranges[i].length) + 1) * PAGE,
			"%lu bytes were written back", total);
		require_ok(ibv_dereg_mr(theirs.mr));
		munmap(theirs.bytes, MAPPED);
	}
	demand_file();
	memset(theirs.bytes, 1, 3 * PAGE);
	forget_written_back();
	flush(0, MAPPED, IBV_FLUSH_RANGE, IBV_WC_SUCCESS);
	require(written_back() >= 3 * PAGE, "the process's: %lu bytes", written_back());
	flush(0, 0, IBV_FLUSH_MR, IBV_WC_SUCCESS);
}

/* What was written to is written back before it is taken away. */
TEST(taken_away)
{
	int64_t deadline = now_ns() + 20 * NS_PER_S;

	open_pair();
	demand_file();
	post_write(1, 0, 2 * PAGE, PAGE);
	done(1, IBV_WC_SUCCESS);
	forget_written_back();
	drop_pages(theirs.bytes, MAPPED);
	require(written_back() == 2 * PAGE, "%lu bytes were written back", written_back());
	forget_written_back();
	flush(0, 0, IBV_FLUSH_MR, IBV_WC_SUCCESS);
	write_and_flush(3 * PAGE, PAGE, 5);
	forget_written_back();
	require_ok(ibv_dereg_mr(theirs.mr));
	/* A little later. */
	while (!written_back() && now_ns() < deadline)
		usleep(10000);
	require(written_back() >= PAGE, "deregistered: %lu bytes", written_back());
}

/* A hole of the file reads as zeroes, of which nothing is there to be written back. */
TEST(hole)
{
	struct ibv_sge sge;

	open_pair();
	demand_file();
	memset(mine.bytes, 1, PAGE);
	sge = buffer_sge(&mine, 0, PAGE);
	post_send(&pair.a, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge, (uintptr_t)theirs.bytes,
		  theirs.mr->rkey);
	done(1, IBV_WC_SUCCESS);
	require(!mine.bytes[0] && !memcmp(mine.bytes, mine.bytes + 1, PAGE - 1), "no zeroes");
	flush(0, PAGE, IBV_FLUSH_RANGE, IBV_WC_SUCCESS);
	write_and_flush(0, 2 * PAGE, 1);
}

static void reg_fails(uint8_t *bytes, size_t size, int access, int error, const char *what)
{
	struct ibv_mr *mr = ibv_reg_mr(ends[1].pd, bytes, size, access);

	require(!mr, "%s was registered", what);
	require(errno == error, "%s: %s", what, strerror(errno));
}

/* Rules: MPE-16 */
TEST(ordinary_memory)
{
	struct ibv_mr *mr;
	uint8_t *bytes;
	int fd;

	open_pair();
	reg_fails(map_pages(MAPPED), MAPPED, PERSISTENT, EINVAL, "ordinary memory");
	fd = memfd_create("file", MFD_CLOEXEC);
	require_sys(ftruncate(fd, MAPPED));
	reg_fails(map_file(fd, MAPPED), MAPPED, PERSISTENT, EINVAL, "a file in memory");
	/* A page of it behind persistent memory. */
	bytes = map_pages(2 * MAPPED);
	bytes += -(uintptr_t)bytes % DEVICE_ALIGN;
	fd = open(getenv("PERSISTENT_DEVICE"), O_RDWR | O_CLOEXEC);
	require_sys(fd);
	require(mmap(bytes, MAPPED, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == bytes,
		"mmap: %s", strerror(errno));
	reg_fails(bytes, MAPPED + PAGE, PERSISTENT, EINVAL, "some that is not persistent");
	mr = ibv_reg_mr(ends[1].pd, bytes, MAPPED + PAGE, REMOTE | IBV_ACCESS_FLUSH_GLOBAL);
	require(mr, "without the right: %s", strerror(errno));
	require_ok(ibv_dereg_mr(mr));
	mr = ibv_reg_mr(ends[1].pd, bytes + 100, MAPPED - 200, PERSISTENT);
	require(mr, "a part of it: %s", strerror(errno));
	require_ok(ibv_dereg_mr(mr));
}

/* On demand it is found out when it is to be written to. */
TEST(ordinary_on_demand)
{
	struct ibv_sge sge;

	open_pair();
	register_at(&theirs, &ends[1], map_pages(MAPPED), MAPPED,
		    PERSISTENT | IBV_ACCESS_ON_DEMAND);
	theirs.bytes[0] = 42;
	sge = buffer_sge(&mine, 0, 1);
	post_send(&pair.a, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge, (uintptr_t)theirs.bytes,
		  theirs.mr->rkey);
	done(1, IBV_WC_SUCCESS);
	require(mine.bytes[0] == 42, "READ");
	post_write(2, PAGE, 10, 0);
	done(2, IBV_WC_REM_OP_ERR);
	require(theirs.bytes[0] == 42, "it was written to");
}

/* Nothing else breaks. */
TEST(without_the_right)
{
	struct buffer with, without;
	struct rc_pair other;

	open_pair();
	pair_open(&other, &plan);
	pin_device();
	with = theirs;
	without = theirs;
	without.mr = ibv_reg_mr(ends[1].pd, with.bytes, MAPPED, REMOTE | IBV_ACCESS_FLUSH_GLOBAL);
	require(without.mr, "ibv_reg_mr: %s", strerror(errno));
	forget_written_back();
	theirs = without;
	flush(0, 100, IBV_FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR);
	again();
	flush(0, 0, IBV_FLUSH_MR, IBV_WC_REM_ACCESS_ERR);
	again();
	post_flush(1, 0, 100, IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE);
	done(1, IBV_WC_REM_ACCESS_ERR);
	again();
	theirs = with;
	plan.access &= ~IBV_ACCESS_FLUSH_PERSISTENT;
	again();
	flush(0, 100, IBV_FLUSH_RANGE, IBV_WC_REM_INV_REQ_ERR);
	require(!written_back(), "%lu bytes were written back", written_back());
	pair = other;
	write_and_flush(10, 20000, 9);
}

TEST(windows)
{
	struct ibv_mw_bind bind = {
		.wr_id = 1, .send_flags = IBV_SEND_SIGNALED,
		.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_FLUSH_GLOBAL |
					     IBV_ACCESS_FLUSH_PERSISTENT,
		.bind_info.length = MAPPED / 2,
	};
	struct ibv_mw *window;
	struct ibv_mr *mr;

	open_pair();
	pin_device();
	ibv_dereg_mr(theirs.mr);
	bind.bind_info.addr = (uintptr_t)theirs.bytes + PAGE;
	mr = ibv_reg_mr(ends[1].pd, theirs.bytes, MAPPED, PERSISTENT | IBV_ACCESS_MW_BIND);
	require(mr, "ibv_reg_mr: %s", strerror(errno));
	window = ibv_alloc_mw(ends[1].pd, IBV_MW_TYPE_1);
	require(window, "ibv_alloc_mw: %s", strerror(errno));
	bind.bind_info.mr = mr;
	require_ok(ibv_bind_mw(pair.b.qp, window, &bind));
	expect_wc(pair.b.scq, 1, IBV_WC_SUCCESS, SOON_MS);
	mr->rkey = window->rkey;
	theirs.mr = mr;
	forget_written_back();
	write_and_flush(PAGE, 1000, 3);
	require(written_back() == 1001, "%lu bytes were written back", written_back());
	forget_written_back();
	flush(0, 0, IBV_FLUSH_MR, IBV_WC_SUCCESS);
	require(written_back() == MAPPED / 2, "all: %lu bytes", written_back());
	/* No window has a right that the region does not have. */
	mr = ibv_reg_mr(ends[1].pd, theirs.bytes, MAPPED, REMOTE | IBV_ACCESS_MW_BIND);
	require(mr, "ibv_reg_mr: %s", strerror(errno));
	bind.bind_info.mr = mr;
	require_ok(ibv_bind_mw(pair.b.qp, window, &bind));
	expect_wc(pair.b.scq, 1, IBV_WC_MW_BIND_ERR, SOON_MS);
}

/* Long ones, while WRITEs come behind them: what is behind waits, and nothing is lost. */
TEST(many)
{
	const uint32_t length = 256 << 10;
	uint64_t round, i;

	open_pair();
	pin_device();
	for (round = 0; round < 10; round++) {
		stream_fill(mine.bytes, MAPPED, round, 0);
		forget_written_back();
		for (i = 0; i < 8; i++) {
			post_write(2 * i, length * i, length, length * i);
			post_flush(2 * i + 1, length * i, length, IBV_FLUSH_PERSISTENT,
				   IBV_FLUSH_RANGE);
		}
		for (i = 0; i < 16; i++)
			done(i, IBV_WC_SUCCESS);
		require(stream_compare(theirs.bytes, 8 * length, round, 0) == 8 * length,
			"round %lu: wrong data", round);
		require(written_back() == 8 * length, "%lu bytes were written back",
			written_back());
	}
}

/* Whatever goes away while caches are written back, nothing waits for that or comes of it. */
TEST(taken_apart)
{
	unsigned int round, i;
	struct ibv_wc wc;

	open_pair();
	for (round = 0; round < 30; round++) {
		pin_device();
		post_write(1, 0, 65536, 0);
		for (i = 2; i < 10; i++)
			post_flush(i, 0, MAPPED, IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE);
		require(poll_within(pair.a.scq, &wc, SOON_MS) && wc.status == IBV_WC_SUCCESS,
			"nothing was written");
		usleep(1000 * (round / 3));
		switch (round % 3) {
		case 0:
			require_ok(ibv_dereg_mr(theirs.mr));
			for (i = 2; i < 10; i++)
				require(poll_within(pair.a.scq, &wc, 2 * SOON_MS),
					"%u of the requests have no end", 10 - i);
			break;
		case 1:
			rc_modify(&pair.b, IBV_QPS_ERR, NULL, NULL);
			break;
		default:
			break;
		}
		again();
		if (round % 3)
			require_ok(ibv_dereg_mr(theirs.mr));
		munmap(theirs.bytes, MAPPED);
	}
	pin_device();
	write_and_flush(0, 100000, round);
}

TEST_HARNESS_MAIN
