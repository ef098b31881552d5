// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions of a dma-buf: one of udmabuf's, which is made of a file in memory.
 */
#include "../lib/harness.h"
#include "../lib/stream.h"
#include "../lib/verbs.h"

#define SIZE (64 * PAGE)
#define IOVA 0x500000000000UL

static struct rc_pair pair;
static struct buffer mine;
static struct raw_mr theirs;
static uint8_t *bytes;		/* the file */
static int buffer;		/* the dma-buf */

static void set_up(void)
{
	buffer = make_dmabuf(SIZE, &bytes);
	name_ends_from_environment();
	open_ends();
	pair_open(&pair, &default_plan);
	buffer_create(&mine, &ends[0], SIZE, IBV_ACCESS_LOCAL_WRITE);
}

static void transfer(enum ibv_wr_opcode opcode, size_t at, uint32_t length, uint64_t remote,
		     enum ibv_wc_status status)
{
	struct ibv_sge sge = buffer_sge(&mine, at, length);

	post_send(&pair.a, 1, opcode, IBV_SEND_SIGNALED, &sge, remote, theirs.rkey);
	expect_wc(pair.a.scq, 1, status, SOON_MS);
}

TEST(exchange)
{
	struct ibv_sge sge;

	set_up();
	require_ok(reg_dmabuf(ends[1].pd, buffer, 0, SIZE, IOVA, REMOTE, &theirs));
	/* It needs the buffer's descriptor no more. */
	close(buffer);
	stream_fill(mine.bytes, SIZE, 1, 0);
	transfer(IBV_WR_RDMA_WRITE, 0, SIZE, IOVA, IBV_WC_SUCCESS);
	require(stream_compare(bytes, SIZE, 1, 0) == SIZE, "WRITE");
	stream_fill(bytes + 4001, 20000, 2, 0);
	transfer(IBV_WR_RDMA_READ, 3, 20000, IOVA + 4001, IBV_WC_SUCCESS);
	require(stream_compare(mine.bytes + 3, 20000, 2, 0) == 20000, "READ");
	sge = (struct ibv_sge){ IOVA + 100, 5000, theirs.lkey };
	post_recv(&pair.b, 5, &sge);
	stream_fill(mine.bytes, 5000, 3, 0);
	transfer(IBV_WR_SEND, 0, 5000, 0, IBV_WC_SUCCESS);
	expect_wc(pair.b.rcq, 5, IBV_WC_SUCCESS, SOON_MS);
	require(stream_compare(bytes + 100, 5000, 3, 0) == 5000, "SEND");
	transfer(IBV_WR_RDMA_WRITE, 0, 2, IOVA + SIZE - 1, IBV_WC_REM_ACCESS_ERR);
	require_ok(dereg_raw(ends[1].pd, &theirs));
}

/* A part of it, that begins within a page. */
TEST(part)
{
	set_up();
	require_ok(reg_dmabuf(ends[1].pd, buffer, 5 * PAGE + 16, 2 * PAGE, IOVA + 16, REMOTE, &theirs));
	memset(bytes, 0x55, SIZE);
	stream_fill(mine.bytes, SIZE, 1, 0);
	transfer(IBV_WR_RDMA_WRITE, 0, 2 * PAGE, IOVA + 16, IBV_WC_SUCCESS);
	require(stream_compare(bytes + 5 * PAGE + 16, 2 * PAGE, 1, 0) == 2 * PAGE, "WRITE");
	require(bytes[5 * PAGE + 15] == 0x55 && bytes[7 * PAGE + 16] == 0x55, "too much");
	transfer(IBV_WR_RDMA_READ, 0, 1, IOVA + 15, IBV_WC_REM_ACCESS_ERR);
}

TEST(refused)
{
	struct raw_mr mr;
	int file;

	set_up();
	require(reg_dmabuf(ends[1].pd, buffer, 0, SIZE + PAGE, IOVA, REMOTE, &mr) == EINVAL,
		"longer than the buffer");
	require(reg_dmabuf(ends[1].pd, buffer, SIZE, PAGE, IOVA, REMOTE, &mr) == EINVAL,
		"behind its end");
	require(reg_dmabuf(ends[1].pd, buffer, -PAGE, 2 * PAGE, IOVA, REMOTE, &mr) == EINVAL,
		"around the end of all numbers");
	require(reg_dmabuf(ends[1].pd, buffer, 0, 0, IOVA, REMOTE, &mr) == EINVAL, "nothing");
	require(reg_dmabuf(ends[1].pd, buffer, 0, PAGE, IOVA + 1, REMOTE, &mr) == EINVAL,
		"another place in its page");
	require(reg_dmabuf(ends[1].pd, buffer, 0, PAGE, IOVA, IBV_ACCESS_REMOTE_WRITE, &mr) == EINVAL,
		"what a peer may, and the owner not");
	require(reg_dmabuf(ends[1].pd, 999, 0, PAGE, IOVA, REMOTE, &mr) == EBADF, "no file");
	file = memfd_create("no-dmabuf", 0);
	require(reg_dmabuf(ends[1].pd, file, 0, PAGE, IOVA, REMOTE, &mr) == EINVAL, "no dma-buf");
	/* To be read alone. */
	require_ok(reg_dmabuf(ends[1].pd, buffer, 0, SIZE, IOVA, IBV_ACCESS_REMOTE_READ, &theirs));
	transfer(IBV_WR_RDMA_READ, 0, 100, IOVA, IBV_WC_SUCCESS);
	transfer(IBV_WR_RDMA_WRITE, 0, 100, IOVA, IBV_WC_REM_ACCESS_ERR);
}

TEST_HARNESS_MAIN
