// SPDX-License-Identifier: GPL-2.0
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "raw.h"

/* ---- rings ------------------------------------------------------------- */

static void add_ring(struct ring_list *list, void *start, size_t size, uint64_t offset)
{
	struct ring *ring = &list->rings[list->count++];

	require(list->count <= MAX_RINGS, "too many rings");
	*ring = (struct ring){ .buf = start, .size = size, .offset = offset };
	ring->mask = ring->buf->index_mask;
	ring->log2 = ring->buf->log2_elem_size;
}

/* Mapped rings are of the context's file, or of one of the device's name that is nowhere. */
static bool is_ring(const struct ibv_context *context, const char *line)
{
	char name[IBV_SYSFS_NAME_MAX + 16];

	snprintf(name, sizeof(name), "/%s (deleted)", context->device->name);
	return strstr(line, context->device->dev_name) || strstr(line, name);
}

void rings_list(const struct ibv_context *context, struct ring_list *list)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long start, end, offset;
	char line[512];

	require(maps, "/proc/self/maps: %s", strerror(errno));
	list->count = 0;
	while (fgets(line, sizeof(line), maps)) {
		if (!is_ring(context, line) ||
		    sscanf(line, "%lx-%lx %*s %lx", &start, &end, &offset) != 3)
			continue;
		add_ring(list, (void *)start, end - start, offset);
	}
	fclose(maps);
}

static bool has_ring(const struct ring_list *list, const struct ring *ring)
{
	unsigned int i;

	for (i = 0; i < list->count; i++)
		if (list->rings[i].buf == ring->buf && list->rings[i].offset == ring->offset)
			return true;
	return false;
}

void rings_since(const struct ibv_context *context, const struct ring_list *before,
		 struct ring *rings, unsigned int count)
{
	struct ring_list now;
	unsigned int i, found = 0;

	rings_list(context, &now);
	for (i = 0; i < now.count; i++) {
		if (has_ring(before, &now.rings[i]))
			continue;
		require(found < count, "more than %u rings were mapped", count);
		rings[found++] = now.rings[i];
	}
	require(found == count, "%u rings were mapped, and not %u", found, count);
}

/* The least slot of a send queue, and more than one of receives with few SGEs. */
#define SEND_LOG2 8

void rc_rings_since(const struct rc *rc, const struct ring_list *before, struct rc_rings *rings)
{
	unsigned int count = rc->qp->srq ? 3 : 4, cqs = 0, i;
	struct ring new[4];

	rings_since(rc->qp->context, before, new, count);
	for (i = 0; i < count; i++) {
		if (new[i].mask == (uint32_t)rc->scq->cqe)
			rings->cqs[cqs++ % 2] = new[i];
		else if (new[i].log2 >= SEND_LOG2)
			rings->send = new[i];
		else
			rings->recv = new[i];
	}
	require(cqs == 2 && rings->send.buf, "the rings look otherwise");
}

void *ring_slot(const struct ring *ring, uint32_t index)
{
	return ring->buf->data + ((size_t)(index & ring->mask) << ring->log2);
}

void ring_push(struct ring *ring)
{
	uint32_t next = (ring->buf->producer_index + 1) & ring->mask;

	atomic_store_explicit((_Atomic uint32_t *)&ring->buf->producer_index, next,
			      memory_order_release);
}

/* ---- commands ---------------------------------------------------------- */

int uverbs_command(int fd, uint32_t number, void *cmd, size_t size, void *response,
		   size_t response_size)
{
	struct ib_uverbs_cmd_hdr *header = cmd;

	*header = (struct ib_uverbs_cmd_hdr){
		.command = number, .in_words = size / 4, .out_words = response_size / 4,
	};
	if (response)
		memcpy(header + 1, &response, sizeof(response));
	return write(fd, cmd, size) == (ssize_t)size ? 0 : errno;
}

int raw_doorbell(int fd, uint32_t qp)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_post_send body;
	} cmd = { .body = { .qp_handle = qp, .wqe_size = sizeof(struct ib_uverbs_send_wr) } };
	struct ib_uverbs_post_send_resp response;

	return uverbs_command(fd, IB_USER_VERBS_CMD_POST_SEND, &cmd, sizeof(cmd), &response,
			      sizeof(response));
}

/* The commands that destroy what has events: response, handle, padding. */
static int destroy(int fd, uint32_t number, uint32_t handle)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_destroy_qp body;
	} cmd = { .body = { .qp_handle = handle } };
	uint32_t events[2];
	/* Those of a CQ are of two kinds. */
	size_t size = number == IB_USER_VERBS_CMD_DESTROY_CQ ? 8 : 4;

	return uverbs_command(fd, number, &cmd, sizeof(cmd), events, size);
}

int raw_destroy_qp(int fd, uint32_t qp)
{
	return destroy(fd, IB_USER_VERBS_CMD_DESTROY_QP, qp);
}

int raw_destroy_cq(int fd, uint32_t cq)
{
	return destroy(fd, IB_USER_VERBS_CMD_DESTROY_CQ, cq);
}

int raw_destroy_srq(int fd, uint32_t srq)
{
	return destroy(fd, IB_USER_VERBS_CMD_DESTROY_SRQ, srq);
}

/* The others: no more than a handle. */
static int release(int fd, uint32_t number, uint32_t handle)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		uint32_t handle;
	} cmd = { .handle = handle };

	return uverbs_command(fd, number, &cmd, sizeof(cmd), NULL, 0);
}

int raw_destroy_ah(int fd, uint32_t ah)
{
	return release(fd, IB_USER_VERBS_CMD_DESTROY_AH, ah);
}

int raw_dereg_mr(int fd, uint32_t mr)
{
	return release(fd, IB_USER_VERBS_CMD_DEREG_MR, mr);
}

int raw_rereg_mr(struct ibv_mr *mr, uint32_t flags, struct ibv_pd *pd, void *start,
		 uint64_t length, uint32_t access)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_rereg_mr body;
	} cmd = {
		.body = {
			.mr_handle = mr->handle, .flags = flags, .start = (uintptr_t)start,
			.length = length, .hca_va = (uintptr_t)start,
			.pd_handle = pd ? pd->handle : 0, .access_flags = access,
		},
	};
	struct ib_uverbs_rereg_mr_resp answer = {};
	int err = uverbs_command(mr->context->cmd_fd, IB_USER_VERBS_CMD_REREG_MR, &cmd,
				 sizeof(cmd), &answer, sizeof(answer));

	if (err)
		return err;
	mr->lkey = answer.lkey;
	mr->rkey = answer.rkey;
	return 0;
}

int raw_dealloc_mw(int fd, uint32_t mw)
{
	return release(fd, IB_USER_VERBS_CMD_DEALLOC_MW, mw);
}

int raw_dealloc_pd(int fd, uint32_t pd)
{
	return release(fd, IB_USER_VERBS_CMD_DEALLOC_PD, pd);
}

int raw_resize_cq(int fd, uint32_t cq, uint32_t cqe, struct mminfo *map)
{
	struct {
		struct ib_uverbs_cmd_hdr header;
		struct ib_uverbs_resize_cq body;
	} cmd = { .body = { .cq_handle = cq, .cqe = cqe } };
	struct {
		struct ib_uverbs_resize_cq_resp core;
		struct mminfo map;
	} response;
	int err;

	err = uverbs_command(fd, IB_USER_VERBS_CMD_RESIZE_CQ, &cmd, sizeof(cmd), &response,
			     sizeof(response));
	*map = response.map;
	return err;
}

/* ---- chance ------------------------------------------------------------ */

uint64_t random_seed(void)
{
	const char *given = getenv("SEED");
	uint64_t seed = 0;

	if (given)
		seed = strtoull(given, NULL, 0);
	else
		require(getrandom(&seed, 4, 0) == 4, "getrandom: %s", strerror(errno));
	note("SEED=%llu", (unsigned long long)seed);
	return seed;
}

uint64_t wild_number(struct rng *rng)
{
	static const uint64_t limits[] = {
		0, 1, 2, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256, 0xffff, 0x10000, 0xffffff,
		0x1000000, 0x7fffffff, 0x80000000, 0xffffffff, 0x7fffffffffffffff,
		0x8000000000000000, UINT64_MAX,
	};

	switch (rng_below(rng, 4)) {
	case 0: return rng_next(rng) >> rng_below(rng, 64);
	case 1: return limits[rng_below(rng, ARRAY_SIZE(limits))] + rng_below(rng, 3) - 1;
	default: return limits[rng_below(rng, ARRAY_SIZE(limits))];
	}
}
