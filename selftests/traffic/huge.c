// SPDX-License-Identifier: GPL-2.0
/*
 * Messages of the largest size, 2 GiB.  The source is a small piece of memory
 * mapped over and over, so that only the target takes up that much.
 */
#include <stdio.h>
#include <stdlib.h>

#include "harness.h"
#include "rc.h"
#include "stream.h"

#define FOLD (64UL << 20)
#define KEY 0x7265706561746564
#define SECONDS 240	/* the deadline */

static struct rc_pair pair;
static struct buffer source, target;
static uint32_t length;

static void create_source(struct end *end, int access)
{
	buffer_create_folded(&source, end, length, FOLD, access);
	stream_fill(source.bytes, FOLD < length ? FOLD : length, KEY, 0);
}

static void check_target(void)
{
	size_t at, part, differs;

	for (at = 0; at < length; at += part) {
		part = length - at < FOLD ? length - at : FOLD;
		differs = stream_compare(target.bytes + at, part, KEY, 0);
		require(differs == part, "wrong data at byte %zu", at + differs);
	}
	require(!target.bytes[length], "a byte too many");
}

static void open_pair(void)
{
	const char *bytes = getenv("BYTES"); /* for a peer that cannot do as many */

	name_ends_from_environment();
	open_ends();
	pair_open(&pair, &default_plan);
	length = bytes ? strtoul(bytes, NULL, 0) : 1u << 31;
	if (ends[0].port.max_msg_sz < length)
		length = ends[0].port.max_msg_sz;
	note("%u bytes", length);
}

TEST(write_huge)
{
	struct ibv_sge sge;
	struct end *a = &ends[0], *b = &ends[1];

	open_pair();
	create_source(a, 0);
	buffer_create(&target, b, length + 1UL, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	sge = buffer_sge(&source, 0, length);
	post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
		  (uintptr_t)target.bytes, target.mr->rkey);
	expect_wc(pair.a.scq, 1, IBV_WC_SUCCESS, SECONDS * 1000);
	check_target();
}

TEST(read_huge)
{
	struct ibv_sge sge;
	struct end *a = &ends[0], *b = &ends[1];

	open_pair();
	create_source(b, IBV_ACCESS_REMOTE_READ);
	buffer_create(&target, a, length + 1UL, IBV_ACCESS_LOCAL_WRITE);
	sge = buffer_sge(&target, 0, length);
	post_send(&pair.a, 1, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge,
		  (uintptr_t)source.bytes, source.mr->rkey);
	expect_wc(pair.a.scq, 1, IBV_WC_SUCCESS, SECONDS * 1000);
	check_target();
}

TEST(send_huge)
{
	struct ibv_sge sge, into;
	struct end *a = &ends[0], *b = &ends[1];
	struct ibv_wc wc;

	open_pair();
	create_source(a, 0);
	buffer_create(&target, b, length + 1UL, IBV_ACCESS_LOCAL_WRITE);
	sge = buffer_sge(&source, 0, length);
	into = buffer_sge(&target, 0, length);
	post_recv(&pair.b, 2, &into);
	post_send(&pair.a, 1, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
	expect_wc(pair.a.scq, 1, IBV_WC_SUCCESS, SECONDS * 1000);
	wc = expect_wc(pair.b.rcq, 2, IBV_WC_SUCCESS, SOON_MS);
	require(wc.byte_len == length, "byte_len %u", wc.byte_len);
	check_target();
}

TEST_HARNESS_MAIN
