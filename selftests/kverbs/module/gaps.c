// SPDX-License-Identifier: GPL-2.0
/*
 * Lists of memory that work requests register: with gaps, which are elements of any place and
 * length, and of pages.
 */

#include <linux/scatterlist.h>

#include "kverbs_test.h"

#define MAX_ELEMENTS 8
/* The value of bytes between the elements. */
#define BETWEEN 0xee

/* A part of the buffer of an end. */
struct element {
	u32 offset, length;
};

/*
 * No element but the first starts where a page does, none ends where one ends, and one is
 * longer than several packets. The third and the fourth are contiguous, and the sixth is empty.
 */
static const struct element elements[] = {
	{ 0x10000, 1 },	   { 0x20003, 4095 }, { 0x12345, 3 },	 { 0x12348, 5000 },
	{ 0x30001, 0x8765 }, { 0x14001, 0 },    { 0x0fff1, 13 },
};

static void set_list(struct end *end, struct scatterlist *list, const struct element *from,
		     u32 count)
{
	u32 i;

	sg_init_table(list, count);
	for (i = 0; i < count; i++)
		sg_set_buf(&list[i], end->buffer + from[i].offset, from[i].length);
}

/* Lays out `count` elements, from byte *offset of the first one on. Returns what the region took of them. */
static int lay_out(struct end *end, struct ib_mr *mr, const struct element *from, u32 count,
		   unsigned int *offset)
{
	struct scatterlist list[MAX_ELEMENTS + 1];
	int mapped;

	set_list(end, list, from, count);
	if (ib_dma_map_sg(end->dev, list, count, DMA_BIDIRECTIONAL) != count)
		return fail("the list is not mapped");
	mapped = ib_map_mr_sg(mr, list, count, offset, PAGE_SIZE);
	ib_dma_unmap_sg(end->dev, list, count, DMA_BIDIRECTIONAL);
	return mapped;
}

/* Byte `at` of the memory, or NULL after its last one. */
static u8 *byte_of(struct end *end, u32 at)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(elements); i++) {
		if (at < elements[i].length)
			return end->buffer + elements[i].offset + at;
		at -= elements[i].length;
	}
	return NULL;
}

static u32 total(void)
{
	u32 i, sum = 0;

	for (i = 0; i < ARRAY_SIZE(elements); i++)
		sum += elements[i].length;
	return sum;
}

static void set_all(struct end *end, u32 seed)
{
	u32 i;

	memset(end->buffer, BETWEEN, BUFFER_BYTES);
	for (i = 0; i < total(); i++)
		*byte_of(end, i) = pattern(i, seed);
}

/* Checks all bytes of the buffer: `length` from `from` on have changed, and no other. */
static int only_changed(struct end *end, u32 seed, u32 from, u32 length, u32 new_seed)
{
	u8 *should = kvmalloc(BUFFER_BYTES, GFP_KERNEL);
	u32 i;
	int error = 0;

	if (!should)
		return -ENOMEM;
	memset(should, BETWEEN, BUFFER_BYTES);
	for (i = 0; i < total(); i++) {
		bool changed = i >= from && i - from < length;

		should[byte_of(end, i) - end->buffer] =
			changed ? pattern(i - from, new_seed) : pattern(i, seed);
	}
	for (i = 0; i < BUFFER_BYTES && !error; i++)
		if (end->buffer[i] != should[i])
			error = fail("byte %#x is %#x, not %#x", i, end->buffer[i], should[i]);
	kvfree(should);
	return error;
}

static int register_at(struct end *end, struct ib_mr *mr, u64 iova)
{
	struct region region = { .end = end, .mr = mr };

	mr->iova = iova;
	return region_register(&region, ALL_ACCESS);
}

/* Reads `length` bytes from byte `at` of the region, which are the pattern from `first` on. */
static int read_as(struct pair *pair, struct ib_mr *mr, u32 at, u32 length, u32 first, u32 seed)
{
	u32 i;

	memset(pair->a.buffer, 0, length);
	check(rdma(&pair->a, IB_WR_RDMA_READ, 0, length, mr->iova + at, mr->rkey, IB_WC_SUCCESS));
	for (i = 0; i < length; i++)
		expect_eq(pair->a.buffer[i], pattern(first + i, seed));
	return 0;
}

/* Reads and writes parts that start and end within elements, and across several. */
static int parts(struct pair *pair, struct ib_mr *mr)
{
	const struct element tried[] = {
		{ 0, total() }, { 0, 1 }, { 1, 4095 }, { 4094, 4 }, { 4096, 5003 },
		{ 100, 9000 }, { total() - 14, 14 }, { total() - 13, 13 }, { total() - 1, 1 },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(tried); i++) {
		u32 at = tried[i].offset, length = tried[i].length;

		set_all(&pair->b, i);
		check(read_as(pair, mr, at, length, at, i));
		fill(pair->a.buffer, length, 50 + i);
		check(rdma(&pair->a, IB_WR_RDMA_WRITE, 0, length, mr->iova + at, mr->rkey,
			   IB_WC_SUCCESS));
		check(only_changed(&pair->b, i, at, length, 50 + i));
	}
	return 0;
}

/* The address is the owner's choice, at any byte. */
static int gaps_accessed(struct pair *pair, struct ib_mr *mr)
{
	static const u64 addresses[] = { 0, 0x1000, 0x123456789abcd };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(addresses); i++) {
		int mapped = lay_out(&pair->b, mr, elements, ARRAY_SIZE(elements), NULL);

		expect_eq(mapped, ARRAY_SIZE(elements));
		expect_eq(mr->length, total());
		expect_eq(mr->iova, (uintptr_t)pair->b.buffer + elements[0].offset);
		check(register_at(&pair->b, mr, addresses[i]));
		check(parts(pair, mr));
		check(invalidate(&pair->b, mr->rkey, IB_WC_SUCCESS));
	}
	return 0;
}

static int gaps_ends(struct pair *pair, struct ib_mr *mr)
{
	expect_eq(lay_out(&pair->b, mr, elements, ARRAY_SIZE(elements), NULL),
		  ARRAY_SIZE(elements));
	check(register_at(&pair->b, mr, 0x10000));
	check(rdma(&pair->a, IB_WR_RDMA_WRITE, 0, 2, mr->iova + total() - 1, mr->rkey,
		   IB_WC_REM_ACCESS_ERR));
	return 0;
}

/* The first element from a byte of it on, and no more elements than there is room for. */
static int gaps_limits(struct pair *pair, struct ib_mr *mr)
{
	struct element many[MAX_ELEMENTS + 1];
	unsigned int offset = 5;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(many); i++)
		many[i] = (struct element){ 0x10000 + i * 0x1000, 10 };
	expect_eq(lay_out(&pair->b, mr, many, ARRAY_SIZE(many), &offset), MAX_ELEMENTS);
	expect_eq(offset, 0);
	expect_eq(mr->length, MAX_ELEMENTS * 10 - 5);
	expect_eq(mr->iova, (uintptr_t)pair->b.buffer + 0x10005);
	/* An offset beyond the first element, and a list without a byte. */
	offset = 11;
	expect_eq(lay_out(&pair->b, mr, many, 1, &offset), -EINVAL);
	expect_eq(offset, 11);
	many[0].length = 0;
	expect_eq(lay_out(&pair->b, mr, many, 1, NULL), -EINVAL);
	return 0;
}

/* An atomic needs eight bytes of one element, at a multiple of eight. */
static int gaps_atomic(struct pair *pair, struct ib_mr *mr)
{
	static const struct element words[] = { { 0x10000, 4 }, { 0x11004, 4 }, { 0x12000, 8 } };
	u64 *word = (u64 *)(pair->b.buffer + 0x12000);
	struct request request;
	struct ib_sge sge = sge_of(&pair->a, 0, 8);
	struct ib_atomic_wr wr = {
		.wr = {
			.wr_cqe = &request.cqe,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IB_WR_ATOMIC_FETCH_AND_ADD,
			.send_flags = IB_SEND_SIGNALED,
		},
		.compare_add = 2,
	};

	expect_eq(lay_out(&pair->b, mr, words, ARRAY_SIZE(words), NULL), ARRAY_SIZE(words));
	check(register_at(&pair->b, mr, 0x10000));
	*word = 40;
	wr.rkey = mr->rkey;
	wr.remote_addr = mr->iova + 8;
	request_init(&request, &pair->a);
	expect_eq(ib_post_send(pair->a.qp, &wr.wr, NULL), 0);
	check(request_wait_status(&request, IB_WC_SUCCESS));
	expect_eq(*word, 42);
	wr.remote_addr = mr->iova;
	memset(pair->b.buffer + 0x10000, BETWEEN, 0x2000);
	request_init(&request, &pair->a);
	expect_eq(ib_post_send(pair->a.qp, &wr.wr, NULL), 0);
	check(request_wait(&request));
	expect(request.wc.status != IB_WC_SUCCESS);
	expect(!memchr_inv(pair->b.buffer + 0x10000, BETWEEN, 0x2000));
	return 0;
}

static void set_many(struct end *end, struct element *many, u32 count, u32 seed)
{
	u32 i, at;

	memset(end->buffer, BETWEEN, BUFFER_BYTES);
	for (i = 0; i < count; i++) {
		many[i] = (struct element){ 0x10000 + i * 0x1001, 10 };
		for (at = 0; at < 10; at++)
			end->buffer[many[i].offset + at] = pattern(i * 10 + at, seed);
	}
}

/*
 * A list from a byte on, and then a shorter one: it has no effect until it is registered, and
 * nothing of the longer one is left then.
 */
static int gaps_renewed(struct pair *pair, struct ib_mr *mr)
{
	struct element many[MAX_ELEMENTS];
	unsigned int offset = 5;
	u64 iova = 0x10001;

	set_many(&pair->b, many, ARRAY_SIZE(many), 1);
	expect_eq(lay_out(&pair->b, mr, many, ARRAY_SIZE(many), &offset), ARRAY_SIZE(many));
	check(register_at(&pair->b, mr, iova));
	check(read_as(pair, mr, 0, ARRAY_SIZE(many) * 10 - 5, 5, 1));

	expect_eq(lay_out(&pair->b, mr, many + 2, 2, NULL), 2);
	mr->iova = iova;
	check(read_as(pair, mr, 0, ARRAY_SIZE(many) * 10 - 5, 5, 1));

	check(invalidate(&pair->b, mr->rkey, IB_WC_SUCCESS));
	check(register_at(&pair->b, mr, iova));
	check(read_as(pair, mr, 0, 20, 20, 1));
	fill(pair->a.buffer, 21, 9);
	check(rdma(&pair->a, IB_WR_RDMA_WRITE, 0, 21, mr->iova, mr->rkey, IB_WC_REM_ACCESS_ERR));
	expect_eq(pair->b.buffer[many[4].offset], pattern(40, 1));
	return 0;
}

/* A list of pages in their order, so that most are contiguous, and an empty element. */
static int pages(struct pair *pair, struct ib_mr *mr)
{
	struct element list[] = { { 16 * PAGE_SIZE + 0x4d, PAGE_SIZE - 0x4d },
				  { 17 * PAGE_SIZE, PAGE_SIZE },
				  { 18 * PAGE_SIZE, PAGE_SIZE },
				  { 32 * PAGE_SIZE, PAGE_SIZE },
				  { 33 * PAGE_SIZE, 99 } };
	unsigned int offset = list[0].length;
	u32 length = 0, i, at;

	memset(pair->b.buffer, BETWEEN, BUFFER_BYTES);
	for (i = 0; i < ARRAY_SIZE(list); i++)
		for (at = 0; at < list[i].length; at++)
			pair->b.buffer[list[i].offset + at] = pattern(length++, 3);
	expect_eq(lay_out(&pair->b, mr, list, ARRAY_SIZE(list), NULL), ARRAY_SIZE(list));
	expect_eq(mr->length, length);
	check(register_at(&pair->b, mr, 0x7000000000000000 | 0x4d));
	check(read_as(pair, mr, 0, length, 0, 3));
	fill(pair->a.buffer, length, 4);
	check(rdma(&pair->a, IB_WR_RDMA_WRITE, 0, length, mr->iova, mr->rkey, IB_WC_SUCCESS));
	check(read_as(pair, mr, 0, length, 0, 4));
	expect_eq(pair->b.buffer[16 * PAGE_SIZE + 0x4c], BETWEEN);
	expect_eq(pair->b.buffer[19 * PAGE_SIZE], BETWEEN);
	expect_eq(pair->b.buffer[33 * PAGE_SIZE + 99], BETWEEN);

	/* The region would have the page behind an element without bytes. */
	expect_eq(lay_out(&pair->b, mr, list, ARRAY_SIZE(list), &offset), -EINVAL);
	list[2] = (struct element){ 20 * PAGE_SIZE, 0 };
	expect_eq(lay_out(&pair->b, mr, list, ARRAY_SIZE(list), NULL), -EINVAL);
	return 0;
}

static int with_region(struct pair *pair, enum ib_mr_type type,
		       int (*run)(struct pair *pair, struct ib_mr *mr))
{
	struct ib_mr *mr = ib_alloc_mr(pair->b.pd, type, MAX_ELEMENTS);
	int error;

	if (IS_ERR(mr))
		return fail("no region: %pe", mr);
	error = run(pair, mr);
	ib_dereg_mr(mr);
	return error;
}

static int with_gaps(struct pair *pair, int (*run)(struct pair *pair, struct ib_mr *mr))
{
	expect(pair->b.dev->attrs.kernel_cap_flags & IBK_SG_GAPS_REG);
	return with_region(pair, IB_MR_TYPE_SG_GAPS, run);
}

static int in_order(struct pair *pair)
{
	return with_region(pair, IB_MR_TYPE_MEM_REG, pages);
}

static int accessed(struct pair *pair)
{
	return with_gaps(pair, gaps_accessed);
}

static int ends(struct pair *pair)
{
	return with_gaps(pair, gaps_ends);
}

static int limits(struct pair *pair)
{
	return with_gaps(pair, gaps_limits);
}

static int words(struct pair *pair)
{
	return with_gaps(pair, gaps_atomic);
}

static int renewed(struct pair *pair)
{
	return with_gaps(pair, gaps_renewed);
}

#define RC { .type = IB_QPT_RC }

const struct test gaps_tests[] = {
	{ "gaps_accessed", accessed, RC },
	{ "gaps_ends", ends, RC },
	{ "gaps_limits", limits, RC },
	{ "gaps_atomic", words, RC },
	{ "gaps_renewed", renewed, RC },
	{ "pages_in_order", in_order, RC },
	{},
};
