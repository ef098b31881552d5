// SPDX-License-Identifier: GPL-2.0
/*
 * A process that makes objects of one kind until it gets no more.
 *
 *	hoard KIND MOST
 *
 * Status 0: it was refused for want of memory; 2: it got as many as it was to.
 * What it has the kernel takes back when it ends.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rc.h"
#include "verbs.h"

#define BIG_CQE 32767

static struct end *end = &ends[0];
static struct ibv_cq *cq;
static void *page;

static void *big_cq(void)
{
	return ibv_create_cq(end->context, BIG_CQE, NULL, NULL, 0);
}

static void *largest_cq(void)
{
	return ibv_create_cq(end->context, end->attr.max_cqe, NULL, NULL, 0);
}

static void *small_cq(void)
{
	return ibv_create_cq(end->context, 1, NULL, NULL, 0);
}

/* The same one, again and again: neither ring must be left behind. */
static void *resized_cq(void)
{
	static struct ibv_cq *grown;
	static int count;

	if (!grown)
		return grown = small_cq();
	errno = ibv_resize_cq(grown, ++count % 2 ? BIG_CQE : 1);
	return errno ? NULL : grown;
}

static void *qp_with(uint32_t wr)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = {
			.max_send_wr = wr, .max_recv_wr = wr,
			.max_send_sge = 4, .max_recv_sge = 4,
		},
	};

	return ibv_create_qp(end->pd, &init);
}

static void *big_qp(void)
{
	return qp_with(16384);
}

static void *small_qp(void)
{
	return qp_with(1);
}

static void *srq(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 16384, .max_sge = 4 } };

	return ibv_create_srq(end->pd, &init);
}

static void *mr(void)
{
	return ibv_reg_mr(end->pd, page, 4096, IBV_ACCESS_LOCAL_WRITE);
}

/*
 * One that takes a table: no two of its pages are next to each other, nor are there
 * more than a few, as the kernel does not let one page be pinned a million times.
 */
static void *scattered_mr(void)
{
	const size_t length = 16 << 20, few = 64 * PAGE;
	static char *pages;
	size_t at;
	int fd;

	if (!pages) {
		pages = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		require(pages != MAP_FAILED, "mmap: %s", strerror(errno));
		fd = memfd_create("few", 0);
		require_sys(fd);
		require_sys(ftruncate(fd, few));
		for (at = 0; at < length; at += PAGE)
			require(mmap(pages + at, PAGE, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_FIXED, fd, at * 37 % few) != MAP_FAILED,
				"mmap: %s", strerror(errno));
	}
	return ibv_reg_mr(end->pd, pages, length, IBV_ACCESS_LOCAL_WRITE);
}

static void *mw(void)
{
	return ibv_alloc_mw(end->pd, IBV_MW_TYPE_1);
}

static void *ah(void)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = PORT,
		.grh = { .dgid = end->gid, .sgid_index = end->gid_index, .hop_limit = 1 },
	};

	return ibv_create_ah(end->pd, &attr);
}

static void *pd(void)
{
	return ibv_alloc_pd(end->context);
}

/*
 * Page tables of on-demand memory: the page of zeros is mapped at one address of each. A worker of the kernel makes
 * them. They stay when the region goes, and with it what is charged for the region itself.
 */
static void *page_table(void)
{
	const size_t length = 1ul << 36, span = 2 << 20, of_a_region = 256;
	static struct ibv_sge sge;
	static struct ibv_mr *mr;
	static size_t count;
	static char *zeros;

	if (!zeros) {
		zeros = mmap(NULL, length, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		require(zeros != MAP_FAILED, "mmap: %s", strerror(errno));
		/* Or one huge page of zeros is mapped. */
		require_sys(madvise(zeros, length, MADV_NOHUGEPAGE));
	}
	if (count % of_a_region == 0) {
		if (mr)
			require_ok(ibv_dereg_mr(mr));
		mr = ibv_reg_mr(end->pd, zeros, length, IBV_ACCESS_ON_DEMAND);
		if (!mr)
			return NULL;
	}
	sge = (struct ibv_sge){ (uintptr_t)zeros + count++ * span, 1, mr->lkey };
	errno = advise(end->pd, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH, IB_UVERBS_ADVISE_MR_FLAG_FLUSH, &sge, 1);
	return errno ? NULL : zeros;
}

static const struct kind {
	const char *name;
	void *(*create)(void);
} kinds[] = {
	{ "big_cq", big_cq }, { "largest_cq", largest_cq }, { "small_cq", small_cq },
	{ "resized_cq", resized_cq },
	{ "big_qp", big_qp }, { "small_qp", small_qp }, { "srq", srq }, { "mr", mr },
	{ "scattered_mr", scattered_mr }, { "mw", mw }, { "ah", ah },
	{ "pd", pd }, { "page_table", page_table },
};

int main(int argc, char **argv)
{
	void *(*create)(void) = NULL;
	unsigned long most, count;
	size_t i;

	require(argc == 3, "usage: hoard KIND MOST");
	for (i = 0; i < ARRAY_SIZE(kinds); i++)
		if (!strcmp(argv[1], kinds[i].name))
			create = kinds[i].create;
	require(create, "no such kind: %s", argv[1]);
	most = strtoul(argv[2], NULL, 0);

	name_ends_from_environment();
	end_open(end, FAMILY_IPV4);
	cq = small_cq();
	require(cq, "ibv_create_cq: %s", strerror(errno));
	page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	require(page != MAP_FAILED, "mmap: %s", strerror(errno));

	errno = 0;
	for (count = 0; count < most; count++)
		if (!create())
			break;
	printf("%lu of %s: %s\n", count, argv[1], strerror(errno));
	fflush(stdout);
	if (count == most)
		return 2;
	return errno == ENOMEM ? 0 : 1;
}
