// SPDX-License-Identifier: GPL-2.0
/* Memory that work requests register. */

#include <linux/scatterlist.h>

#include "kverbs_test.h"

/*
 * Pages of the buffer from page `first` on, in reverse order, so that nothing but the
 * right page is right; the first one from byte `offset` on, and `length` bytes in all.
 */
int region_lay_out(struct region *region, u32 first, u32 offset, u32 length)
{
	struct end *end = region->end;
	u32 pages = DIV_ROUND_UP(offset + length, PAGE_SIZE), i, left = length;
	struct scatterlist list[MAX_PAGES];
	int mapped;

	expect(pages <= MAX_PAGES && (first + pages) * PAGE_SIZE <= BUFFER_BYTES);
	sg_init_table(list, pages);
	for (i = 0; i < pages; i++) {
		u32 start = i ? 0 : offset;
		u32 bytes = min_t(u32, left, PAGE_SIZE - start);

		sg_set_buf(&list[i], end->buffer + (first + pages - 1 - i) * PAGE_SIZE + start,
			   bytes);
		left -= bytes;
	}
	region->first = first;
	region->pages = pages;
	region->offset = offset;
	region->length = length;
	mapped = ib_dma_map_sg(end->dev, list, pages, DMA_BIDIRECTIONAL);
	expect_eq(mapped, pages);
	mapped = ib_map_mr_sg(region->mr, list, pages, NULL, PAGE_SIZE);
	expect_eq(mapped, pages);
	expect_eq(region->mr->length, length);
	ib_dma_unmap_sg(end->dev, list, pages, DMA_BIDIRECTIONAL);
	return 0;
}

int region_open(struct region *region, struct end *end, struct ib_pd *pd)
{
	memset(region, 0, sizeof(*region));
	region->end = end;
	region->mr = ib_alloc_mr(pd, IB_MR_TYPE_MEM_REG, MAX_PAGES);
	return IS_ERR(region->mr) ? fail("no region: %pe", region->mr) : 0;
}

void region_close(struct region *region)
{
	if (!IS_ERR_OR_NULL(region->mr))
		ib_dereg_mr(region->mr);
	region->mr = NULL;
}

/* Where byte `at` of the region is. */
u8 *region_byte(const struct region *region, u32 at)
{
	u32 position = region->offset + at, page = position / PAGE_SIZE;

	return region->end->buffer + (region->first + region->pages - 1 - page) * PAGE_SIZE +
	       position % PAGE_SIZE;
}

void region_fill(struct region *region, u32 seed)
{
	u32 i;

	for (i = 0; i < region->length; i++)
		*region_byte(region, i) = pattern(i, seed);
}

bool region_filled(const struct region *region, u32 from, u32 length, u32 seed)
{
	u32 i;

	for (i = 0; i < length; i++) {
		if (*region_byte(region, from + i) != pattern(i, seed)) {
			fail("byte %u of the region is %#x", from + i,
			     *region_byte(region, from + i));
			return false;
		}
	}
	return true;
}

/* Posts the registration, under a key that it did not have before. */
int region_post(struct region *region, struct request *request, int access)
{
	struct ib_reg_wr wr = {
		.wr = {
			.wr_cqe = &request->cqe,
			.opcode = IB_WR_REG_MR,
			.send_flags = IB_SEND_SIGNALED,
		},
		.mr = region->mr,
		.access = access,
	};

	ib_update_fast_reg_key(region->mr, ib_inc_rkey(region->mr->rkey));
	wr.key = region->mr->rkey;
	return ib_post_send(region->end->qp, &wr.wr, NULL);
}

int region_register(struct region *region, int access)
{
	struct request request;

	request_init(&request, region->end);
	expect_eq(region_post(region, &request, access), 0);
	check(request_wait_status(&request, IB_WC_SUCCESS));
	expect_eq(request.wc.opcode, IB_WC_REG_MR);
	return 0;
}

int invalidate(struct end *end, u32 rkey, enum ib_wc_status status)
{
	struct request request;
	struct ib_send_wr wr = {
		.wr_cqe = &request.cqe,
		.opcode = IB_WR_LOCAL_INV,
		.send_flags = IB_SEND_SIGNALED,
		.ex.invalidate_rkey = rkey,
	};

	request_init(&request, end);
	expect_eq(ib_post_send(end->qp, &wr, NULL), 0);
	check(request_wait_status(&request, status));
	if (status == IB_WC_SUCCESS)
		expect_eq(request.wc.opcode, IB_WC_LOCAL_INV);
	return 0;
}

int rdma_post(struct request *request, enum ib_wr_opcode opcode, u32 offset, u32 length,
	      u64 remote_addr, u32 rkey)
{
	struct ib_sge sge = sge_of(request->end, offset, length);
	struct ib_rdma_wr wr = {
		.wr = {
			.wr_cqe = &request->cqe,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = opcode,
			.send_flags = IB_SEND_SIGNALED,
			.ex.imm_data = cpu_to_be32(0x0a0b0c0d),
		},
		.remote_addr = remote_addr,
		.rkey = rkey,
	};

	return ib_post_send(request->end->qp, &wr.wr, NULL);
}

/* A READ or WRITE, and how it is to end. */
int rdma(struct end *end, enum ib_wr_opcode opcode, u32 offset, u32 length, u64 remote_addr,
	 u32 rkey, enum ib_wc_status status)
{
	struct request request;

	request_init(&request, end);
	expect_eq(rdma_post(&request, opcode, offset, length, remote_addr, rkey), 0);
	check(request_wait_status(&request, status));
	if (status == IB_WC_SUCCESS)
		expect_eq(request.wc.opcode,
			  opcode == IB_WR_RDMA_READ ? IB_WC_RDMA_READ : IB_WC_RDMA_WRITE);
	return 0;
}
