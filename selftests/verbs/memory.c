// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions: very large ones, and the end of one while it is in use.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness.h"
#include "raw.h"
#include "rc.h"
#include "stream.h"

static struct rc_pair pair;

static void set_up(void)
{
	name_ends_from_environment();
	open_ends();
	pair_open(&pair, &default_plan);
}

/* ---- large ------------------------------------------------------------- */

/*
 * The period does not divide 4 GiB: an address that lost its upper bits would
 * hit other bytes.
 */
#define PERIOD (48UL << 20)
#define PIECE 100000

/* WRITEs a piece of a large region, and READs it back from the other end of it. */
static void touch(const struct buffer *large, size_t offset)
{
	struct buffer piece;
	struct ibv_sge sge;

	note("offset %zu", offset);
	buffer_create(&piece, &ends[0], PIECE, IBV_ACCESS_LOCAL_WRITE);
	stream_fill(piece.bytes, PIECE, offset, 0);
	sge = buffer_sge(&piece, 0, PIECE);
	post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
		  (uintptr_t)large->bytes + offset, large->mr->rkey);
	expect_wc(pair.a.scq, 1, IBV_WC_SUCCESS, SOON_MS);
	require(stream_compare(large->bytes + offset, PIECE, offset, 0) == PIECE,
		"WRITE went elsewhere");
	memset(piece.bytes, 0, PIECE);
	post_send(&pair.a, 2, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge,
		  (uintptr_t)large->bytes + offset, large->mr->rkey);
	expect_wc(pair.a.scq, 2, IBV_WC_SUCCESS, SOON_MS);
	require(stream_compare(piece.bytes, PIECE, offset, 0) == PIECE,
		"READ came from elsewhere");
	buffer_destroy(&piece);
}

static void large_region(size_t size)
{
	struct buffer large;
	int64_t begin = now_ns();

	set_up();
	buffer_create_folded(&large, &ends[1], size, PERIOD,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	note("registered in %lld ms", (long long)((now_ns() - begin) / NS_PER_MS));
	touch(&large, 1);
	touch(&large, size / 2 + 12345);
	touch(&large, size - PIECE);
	begin = now_ns();
	buffer_destroy(&large);
	note("gone in %lld ms", (long long)((now_ns() - begin) / NS_PER_MS));
}

TEST(region_of_1_gib)
{
	large_region((1UL << 30) - 4096);
}

TEST(region_of_1500_mib)
{
	large_region(1500UL << 20);
}

TEST(region_of_5_gib)
{
	large_region(5UL << 30);
}

/* ---- the end of a region in use ---------------------------------------- */

#define ROUNDS 25
#define LENGTH 65536
#define WORK 12

/* Some succeed, then one fails with one of the statuses, then all are flushed. */
static void expect_cut_off(enum ibv_wc_status before, enum ibv_wc_status within)
{
	struct ibv_wc wc;
	bool failed = false;
	unsigned int i;

	for (i = 0; i < WORK; i++) {
		require(poll_within(pair.a.scq, &wc, SOON_MS), "%u did not complete", i);
		require(wc.wr_id == i, "completion of %llu, not %u", (unsigned long long)wc.wr_id, i);
		if (failed) {
			require(wc.status == IBV_WC_WR_FLUSH_ERR, "%u completed with \"%s\"", i,
				ibv_wc_status_str(wc.status));
			continue;
		}
		failed = wc.status != IBV_WC_SUCCESS;
		require(!failed || wc.status == before || wc.status == within, "%u completed with \"%s\"", i,
			ibv_wc_status_str(wc.status));
	}
}

/* Deregisters memory under the peer's hands, which reaches it no more from then on. */
static void remote_access_ends(enum ibv_wr_opcode opcode)
{
	struct buffer mine, theirs;
	struct ibv_sge sge;
	unsigned int round, i;
	int64_t begin;

	name_ends_from_environment();
	open_ends();
	for (round = 0; round < ROUNDS; round++) {
		pair_open(&pair, &default_plan);
		buffer_create(&mine, &ends[0], LENGTH, IBV_ACCESS_LOCAL_WRITE);
		buffer_create(&theirs, &ends[1], LENGTH,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
		memset(mine.bytes, 0x11, LENGTH);
		memset(theirs.bytes, 0x11, LENGTH);
		sge = buffer_sge(&mine, 0, LENGTH);
		for (i = 0; i < WORK; i++)
			post_send(&pair.a, i, opcode, IBV_SEND_SIGNALED, &sge,
				  (uintptr_t)theirs.bytes, theirs.mr->rkey);
		usleep(round * 100);
		begin = now_ns();
		require_ok(ibv_dereg_mr(theirs.mr));
		require(now_ns() - begin < 2 * NS_PER_S, "it took %lld ms",
			(long long)((now_ns() - begin) / NS_PER_MS));
		memset(theirs.bytes, 0x22, LENGTH);
		/* It has no right before it begins, and fails over there once it has begun. */
		expect_cut_off(IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR);
		for (i = 0; i < LENGTH; i++)
			require(theirs.bytes[i] == 0x22 && mine.bytes[i] == 0x11,
				"round %u: byte %u was moved after the end of the region", round, i);
		munmap(theirs.bytes, theirs.size);
		buffer_destroy(&mine);
		pair_destroy(&pair);
	}
}

/* Rules: MEM-9 */
TEST(dereg_under_writes)
{
	remote_access_ends(IBV_WR_RDMA_WRITE);
}

/* Rules: MEM-9 */
TEST(dereg_under_reads)
{
	remote_access_ends(IBV_WR_RDMA_READ);
}

/* The same on the requester's side: the memory it sends from. */
TEST(dereg_of_source)
{
	struct buffer mine, theirs;
	struct ibv_sge sge;
	unsigned int round, i;
	uint8_t value;

	name_ends_from_environment();
	open_ends();
	for (round = 0; round < ROUNDS; round++) {
		pair_open(&pair, &default_plan);
		buffer_create(&mine, &ends[0], LENGTH, 0);
		buffer_create(&theirs, &ends[1], LENGTH,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		memset(mine.bytes, 0x11, LENGTH);
		sge = buffer_sge(&mine, 0, LENGTH);
		for (i = 0; i < WORK; i++)
			post_send(&pair.a, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
				  (uintptr_t)theirs.bytes, theirs.mr->rkey);
		usleep(round * 100);
		require_ok(ibv_dereg_mr(mine.mr));
		memset(mine.bytes, 0x22, LENGTH);
		expect_cut_off(IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_PROT_ERR);
		for (i = 0; i < LENGTH; i++) {
			value = theirs.bytes[i];
			require(value == 0 || value == 0x11,
				"round %u: byte %u was sent after the end of the region: 0x%02x",
				round, i, value);
		}
		munmap(mine.bytes, mine.size);
		buffer_destroy(&theirs);
		pair_destroy(&pair);
	}
}

/* The memory goes, the region stays: its pages are pinned. */
TEST(munmap_under_region)
{
	struct buffer mine, theirs;
	struct ibv_sge sge;
	size_t i;

	set_up();
	buffer_create(&mine, &ends[0], LENGTH, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&theirs, &ends[1], LENGTH, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	memset(theirs.bytes, 0x33, LENGTH);
	require_sys(munmap(theirs.bytes, LENGTH));
	sge = buffer_sge(&mine, 0, LENGTH);
	post_send(&pair.a, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge, (uintptr_t)theirs.bytes,
		  theirs.mr->rkey);
	expect_wc(pair.a.scq, 1, IBV_WC_SUCCESS, SOON_MS);
	for (i = 0; i < LENGTH; i++)
		require(mine.bytes[i] == 0x33, "byte %zu is 0x%02x", i, mine.bytes[i]);
	require_ok(ibv_dereg_mr(theirs.mr));
}

/* A key that was given out again gives no access with its old value. */
/* Rules: MEM-10 */
TEST(stale_rkey)
{
	struct buffer mine, theirs;
	struct ibv_sge sge;
	struct ibv_mr *again;
	uint32_t rkey;

	set_up();
	buffer_create(&mine, &ends[0], 4096, 0);
	buffer_create(&theirs, &ends[1], 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	rkey = theirs.mr->rkey;
	require_ok(ibv_dereg_mr(theirs.mr));
	again = ibv_reg_mr(ends[1].pd, theirs.bytes, 4096,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	require(again, "ibv_reg_mr: %s", strerror(errno));
	require(again->rkey != rkey, "the next region has the same R_Key");
	memset(mine.bytes, 0x44, 4096);
	sge = buffer_sge(&mine, 0, 4096);
	post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, (uintptr_t)theirs.bytes,
		  rkey);
	expect_wc(pair.a.scq, 1, IBV_WC_REM_ACCESS_ERR, SOON_MS);
	require(!theirs.bytes[0], "it was written through the old key");
}

/* ---- registered anew --------------------------------------------------- */

static int rereg(struct buffer *buffer, uint32_t flags, struct ibv_pd *pd, void *start,
		 uint64_t length, uint32_t access)
{
	return raw_rereg_mr(buffer->mr, flags, pd, start, length, access);
}

/* A WRITE of one byte over a fresh connection. */
static void write_byte(const struct buffer *from, uint8_t *to, uint32_t rkey,
		       enum ibv_wc_status status)
{
	struct ibv_sge sge = buffer_sge(from, 0, 1);
	uint8_t before = *to;

	pair_open(&pair, &default_plan);
	from->bytes[0] = before + 1;
	post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge, (uintptr_t)to, rkey);
	expect_wc(pair.a.scq, 1, status, SOON_MS);
	require(*to == before + (status == IBV_WC_SUCCESS), "the byte is 0x%02x", *to);
	pair_destroy(&pair);
}

#define REMOTE_WRITE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

TEST(rereg_access)
{
	struct buffer mine, theirs;
	uint32_t old;

	set_up();
	buffer_create(&mine, &ends[0], 4096, 0);
	buffer_create(&theirs, &ends[1], 8192, IBV_ACCESS_REMOTE_READ);
	write_byte(&mine, theirs.bytes, theirs.mr->rkey, IBV_WC_REM_ACCESS_ERR);
	old = theirs.mr->rkey;
	require_ok(rereg(&theirs, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, REMOTE_WRITE));
	write_byte(&mine, theirs.bytes + 8191, theirs.mr->rkey, IBV_WC_SUCCESS);
	require(old != theirs.mr->rkey, "it has the same key");
	write_byte(&mine, theirs.bytes, old, IBV_WC_REM_ACCESS_ERR);
	require_ok(rereg(&theirs, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_READ));
	write_byte(&mine, theirs.bytes, theirs.mr->rkey, IBV_WC_REM_ACCESS_ERR);
	buffer_destroy(&theirs);
}

TEST(rereg_memory)
{
	struct buffer mine, theirs, other;

	set_up();
	buffer_create(&mine, &ends[0], 4096, 0);
	buffer_create(&theirs, &ends[1], 8192, REMOTE_WRITE);
	buffer_create(&other, &ends[1], 65536, 0);
	require_ok(rereg(&theirs, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other.bytes + 5, 60000, 0));
	write_byte(&mine, other.bytes + 5, theirs.mr->rkey, IBV_WC_SUCCESS);
	write_byte(&mine, other.bytes + 60004, theirs.mr->rkey, IBV_WC_SUCCESS);
	write_byte(&mine, other.bytes + 60005, theirs.mr->rkey, IBV_WC_REM_ACCESS_ERR);
	write_byte(&mine, theirs.bytes, theirs.mr->rkey, IBV_WC_REM_ACCESS_ERR);
	/* Nothing of this kind changes anything. */
	require(rereg(&theirs, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 4096, 0) == EFAULT,
		"memory that is not there");
	require(rereg(&theirs, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, other.bytes, 0, 0) == EINVAL,
		"no memory");
	require(rereg(&theirs, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_REMOTE_WRITE) ==
		EINVAL, "remote access without local access");
	require(rereg(&theirs, 0, NULL, NULL, 0, 0) == EINVAL, "nothing to change");
	write_byte(&mine, other.bytes + 5, theirs.mr->rkey, IBV_WC_SUCCESS);
	buffer_destroy(&theirs);
	buffer_destroy(&other);
}

TEST(rereg_pd)
{
	struct buffer mine, theirs;
	struct ibv_pd *pd;

	set_up();
	buffer_create(&mine, &ends[0], 4096, 0);
	buffer_create(&theirs, &ends[1], 4096, REMOTE_WRITE);
	pd = ibv_alloc_pd(ends[1].context);
	require(pd, "ibv_alloc_pd: %s", strerror(errno));
	require_ok(rereg(&theirs, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0));
	write_byte(&mine, theirs.bytes, theirs.mr->rkey, IBV_WC_REM_ACCESS_ERR);
	require(ibv_dealloc_pd(pd) == EBUSY, "the domain can go before the region");
	require_ok(rereg(&theirs, IBV_REREG_MR_CHANGE_PD, ends[1].pd, NULL, 0, 0));
	write_byte(&mine, theirs.bytes, theirs.mr->rkey, IBV_WC_SUCCESS);
	require_ok(ibv_dealloc_pd(pd));
	buffer_destroy(&theirs);
}

TEST_HARNESS_MAIN
