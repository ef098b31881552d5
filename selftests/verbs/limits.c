// SPDX-License-Identifier: GPL-2.0
/*
 * Objects beyond the advertised limits, or made from senseless arguments, are
 * refused with an errno that fits, and those at the limits are not.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "harness.h"
#include "rc.h"

static struct end *end = &ends[0];

static void open_end(void)
{
	name_ends_from_environment();
	end_open(end, FAMILY_ANY);
}

/* ---- completion queues ------------------------------------------------- */

static void refused_cq(int cqe, int vector)
{
	struct ibv_cq *cq;

	errno = 0;
	cq = ibv_create_cq(end->context, cqe, NULL, NULL, vector);
	require(!cq, "a CQ of %d entries, vector %d, was made", cqe, vector);
	require(errno == EINVAL, "a CQ of %d entries, vector %d: %s", cqe, vector,
		strerror(errno));
}

TEST(cq_limits)
{
	struct ibv_cq *cq;

	open_end();
	refused_cq(0, 0);
	refused_cq(-1, 0);
	refused_cq(end->attr.max_cqe + 1, 0);
	refused_cq(INT32_MAX, 0);
	refused_cq(16, end->context->num_comp_vectors);
	refused_cq(16, -1);
	cq = ibv_create_cq(end->context, end->attr.max_cqe, NULL, NULL, 0);
	require(cq, "a CQ of max_cqe (%d) entries: %s", end->attr.max_cqe, strerror(errno));
	require(cq->cqe >= end->attr.max_cqe, "it has %d only", cq->cqe);
	require_ok(ibv_destroy_cq(cq));
}

TEST(cq_vectors)
{
	struct ibv_cq *cq;
	int vector;

	open_end();
	require(end->context->num_comp_vectors >= 1, "no completion vectors");
	for (vector = 0; vector < end->context->num_comp_vectors; vector++) {
		cq = ibv_create_cq(end->context, 16, NULL, NULL, vector);
		require(cq, "vector %d: %s", vector, strerror(errno));
		require_ok(ibv_destroy_cq(cq));
	}
}

/* ---- queue pairs ------------------------------------------------------- */

static struct ibv_qp *try_qp(struct ibv_cq *cq, enum ibv_qp_type type, struct ibv_qp_cap *cap)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .cap = *cap, .qp_type = type,
	};
	struct ibv_qp *qp;

	errno = 0;
	qp = ibv_create_qp(end->pd, &init);
	if (qp)
		*cap = init.cap;
	return qp;
}

static void refused_cap(struct ibv_cq *cq, struct ibv_qp_cap cap, const char *what)
{
	struct ibv_qp *qp = try_qp(cq, IBV_QPT_RC, &cap);

	require(!qp, "a QP with too much %s was made", what);
	require(errno == EINVAL, "too much %s: %s", what, strerror(errno));
}

/* Refuses one more than the limit, and much more. */
#define REFUSED_CAP(field, limit)					\
	do {								\
		struct ibv_qp_cap cap = default_plan.cap;		\
		cap.field = (limit) + 1;				\
		refused_cap(cq, cap, #field);				\
		cap.field = 0x80000000;					\
		refused_cap(cq, cap, #field);				\
		cap.field = UINT32_MAX;					\
		refused_cap(cq, cap, #field);				\
	} while (0)

/* There is no limit of inline data to be asked for. */
#define INLINE_LIMIT 65536

TEST(qp_limits)
{
	struct ibv_cq *cq;

	open_end();
	cq = ibv_create_cq(end->context, 16, NULL, NULL, 0);
	require(cq, "ibv_create_cq: %s", strerror(errno));
	REFUSED_CAP(max_send_wr, end->attr.max_qp_wr);
	REFUSED_CAP(max_recv_wr, end->attr.max_qp_wr);
	REFUSED_CAP(max_send_sge, end->attr.max_sge);
	REFUSED_CAP(max_recv_sge, end->attr.max_sge);
	REFUSED_CAP(max_inline_data, INLINE_LIMIT);
	require_ok(ibv_destroy_cq(cq));
}

TEST(qp_at_limits)
{
	struct ibv_qp_cap asked = {
		.max_send_wr = 4096, .max_recv_wr = 4096,
		.max_inline_data = 512,
	}, given;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	open_end();
	asked.max_send_sge = asked.max_recv_sge = end->attr.max_sge;
	given = asked;
	cq = ibv_create_cq(end->context, 16, NULL, NULL, 0);
	require(cq, "ibv_create_cq: %s", strerror(errno));
	qp = try_qp(cq, IBV_QPT_RC, &given);
	require(qp, "a QP at the limits: %s", strerror(errno));
	require(given.max_send_wr >= asked.max_send_wr && given.max_recv_wr >= asked.max_recv_wr &&
		given.max_send_sge >= asked.max_send_sge && given.max_recv_sge >= asked.max_recv_sge &&
		given.max_inline_data >= asked.max_inline_data,
		"less was given than asked for: wr %u %u, sge %u %u, inline %u",
		given.max_send_wr, given.max_recv_wr, given.max_send_sge, given.max_recv_sge,
		given.max_inline_data);
	require_ok(ibv_destroy_qp(qp));
	require_ok(ibv_destroy_cq(cq));
}

/* Types that need another kind of port or call. */
TEST(qp_types)
{
	static const enum ibv_qp_type types[] = {
		IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_QPT_RAW_PACKET, IBV_QPT_DRIVER,
		0, 1, 0x7fffffff,
	};
	struct ibv_qp_cap cap = default_plan.cap;
	struct ibv_cq *cq;
	size_t i;

	open_end();
	cq = ibv_create_cq(end->context, 16, NULL, NULL, 0);
	require(cq, "ibv_create_cq: %s", strerror(errno));
	for (i = 0; i < ARRAY_SIZE(types); i++) {
		require(!try_qp(cq, types[i], &cap), "a QP of type %d was made", types[i]);
		require(errno == EINVAL || errno == EOPNOTSUPP, "a QP of type %d: %s", types[i],
			strerror(errno));
	}
	require_ok(ibv_destroy_cq(cq));
}

/* What others stand on cannot be taken away. */
TEST(busy_objects)
{
	struct ibv_comp_channel *channel;
	struct rc_plan plan = default_plan;
	struct rc rc;
	int err;

	open_end();
	channel = ibv_create_comp_channel(end->context);
	require(channel, "ibv_create_comp_channel: %s", strerror(errno));
	plan.channel = channel;
	rc_create(&rc, end, &plan);
	err = ibv_dealloc_pd(end->pd);
	require(err == EBUSY, "dealloc of a PD with a QP: %s", strerror(err));
	err = ibv_destroy_cq(rc.scq);
	require(err == EBUSY, "destroy of a CQ with a QP: %s", strerror(err));
	err = ibv_destroy_comp_channel(channel);
	require(err == EBUSY, "destroy of a channel with CQs: %s", strerror(err));
	rc_destroy(&rc);
	require_ok(ibv_destroy_comp_channel(channel));
	end_close(end);
}

/* ---- memory regions ---------------------------------------------------- */

static void refused_mr(void *address, size_t length, int access, int expected, const char *what)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_mr(end->pd, address, length, access);
	require(!mr, "%s: a memory region was made", what);
	require(errno == expected, "%s: %s, not %s", what, strerror(errno), strerror(expected));
}

static void *map_pages(size_t size, int protection)
{
	void *pages = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	require(pages != MAP_FAILED, "mmap: %s", strerror(errno));
	return pages;
}

/* Rules: MEM-6 */
TEST(mr_arguments)
{
	const int local = IBV_ACCESS_LOCAL_WRITE;
	uint8_t *pages, *constant;

	open_end();
	pages = map_pages(2 * PAGE, PROT_READ | PROT_WRITE);
	constant = map_pages(PAGE, PROT_READ);
	require_sys(munmap(pages + PAGE, PAGE));

	refused_mr(pages, 2 * PAGE, local, EFAULT, "half of it is not mapped");
	refused_mr(NULL, PAGE, local, EFAULT, "at address 0");
	refused_mr((void *)~0xfffUL, 2 * PAGE, local, EINVAL, "beyond the end of the address space");
	refused_mr(pages, SIZE_MAX, local, EINVAL, "as long as the address space");
	refused_mr((void *)0xffff888000000000, PAGE, local, EFAULT, "kernel memory");
	refused_mr(constant, PAGE, local, EFAULT, "writing to what is read-only");
	refused_mr(pages, PAGE, IBV_ACCESS_REMOTE_WRITE, EINVAL, "remote write without local write");
	refused_mr(pages, PAGE, IBV_ACCESS_REMOTE_ATOMIC, EINVAL, "remote atomics without local write");
	refused_mr(pages, PAGE, 1 << 18, EINVAL, "unknown access");
}

/* Whether it is made or not, it gives access to nothing. */
TEST(mr_of_nothing)
{
	uint8_t *page;
	struct ibv_mr *mr;

	open_end();
	page = map_pages(PAGE, PROT_READ | PROT_WRITE);
	mr = ibv_reg_mr(end->pd, page, 0, IBV_ACCESS_LOCAL_WRITE);
	if (!mr) {
		require(errno == EINVAL, "refused with %s", strerror(errno));
		return;
	}
	require_ok(ibv_dereg_mr(mr));
}

static void make_unprivileged(size_t memlock)
{
	struct rlimit limit = { memlock, memlock };

	require_sys(setrlimit(RLIMIT_MEMLOCK, &limit));
	require_sys(setresuid(65534, 65534, 65534));
}

/* The limit on locked memory holds, and neither a failure nor a success costs of it for good. */
TEST(mr_memlock)
{
	uint8_t *pages;
	struct ibv_mr *mr;
	int i;

	open_end();
	pages = map_pages(1 << 20, PROT_READ | PROT_WRITE);
	make_unprivileged(128 << 10);
	for (i = 0; i < 50; i++) {
		refused_mr(pages, 1 << 20, IBV_ACCESS_LOCAL_WRITE, ENOMEM, "more than the limit");
		mr = ibv_reg_mr(end->pd, pages, 64 << 10, IBV_ACCESS_LOCAL_WRITE);
		require(mr, "round %d, less than the limit: %s", i, strerror(errno));
		require_ok(ibv_dereg_mr(mr));
	}
}

TEST(mr_many)
{
	static struct ibv_mr *mrs[1000];
	uint8_t *pages;
	size_t i, j;

	open_end();
	pages = map_pages(1 << 16, PROT_READ | PROT_WRITE);
	for (i = 0; i < ARRAY_SIZE(mrs); i++) {
		mrs[i] = ibv_reg_mr(end->pd, pages + i, 1 + i, IBV_ACCESS_LOCAL_WRITE);
		require(mrs[i], "number %zu: %s", i, strerror(errno));
		for (j = i & ~15UL; j < i; j++)
			require(mrs[i]->lkey != mrs[j]->lkey && mrs[i]->rkey != mrs[j]->rkey,
				"two have the same key");
	}
	for (i = 0; i < ARRAY_SIZE(mrs); i++)
		require_ok(ibv_dereg_mr(mrs[i]));
}

/* ---- queries ----------------------------------------------------------- */

TEST(queries)
{
	struct ibv_port_attr port;
	union ibv_gid gid;
	__be16 pkey;

	open_end();
	require(ibv_query_port(end->context, 0, &port), "port 0 was answered for");
	require(ibv_query_port(end->context, 2, &port), "port 2 was answered for");
	require(ibv_query_gid(end->context, PORT, end->port.gid_tbl_len, &gid),
		"a GID beyond the table was answered for");
	require(ibv_query_gid(end->context, PORT, -1, &gid), "GID -1 was answered for");
	require(ibv_query_pkey(end->context, PORT, end->port.pkey_tbl_len, &pkey),
		"a P_Key beyond the table was answered for");
	require_ok(ibv_query_pkey(end->context, PORT, 0, &pkey));
	require(pkey == 0xffff, "the P_Key is 0x%x", pkey);
}

TEST(device_attributes)
{
	const struct ibv_device_attr *attr = &end->attr;

	open_end();
	require(attr->max_qp > 0 && attr->max_cq > 0 && attr->max_mr > 0 && attr->max_pd > 0,
		"a limit of 0: qp %d, cq %d, mr %d, pd %d", attr->max_qp, attr->max_cq,
		attr->max_mr, attr->max_pd);
	require(attr->max_sge >= 32, "max_sge is %d", attr->max_sge);
	require(attr->max_qp_rd_atom >= 1, "max_qp_rd_atom is %d", attr->max_qp_rd_atom);
	require(attr->max_mr_size > 1ULL << 40, "max_mr_size is %llu",
		(unsigned long long)attr->max_mr_size);
	require(attr->phys_port_cnt == 1, "%d ports", attr->phys_port_cnt);
	require(attr->node_guid, "no node GUID");
	require(end->port.max_msg_sz >= 1u << 31, "max_msg_sz is %u", end->port.max_msg_sz);
	require(end->port.link_layer == IBV_LINK_LAYER_ETHERNET, "link layer %d",
		end->port.link_layer);
	require(end->port.state == IBV_PORT_ACTIVE, "port state %d", end->port.state);
}

/* What rdma_rxe advertises: programs that run there ask for no more. */
#define LEAST(field, value) { #field, offsetof(struct ibv_device_attr, field), value }

static const struct least {
	const char *name;
	size_t offset;
	int value;
} least[] = {
	LEAST(max_qp, 1048560), LEAST(max_qp_wr, 1 << 20), LEAST(max_sge, 32),
	LEAST(max_sge_rd, 32), LEAST(max_cq, 1 << 20), LEAST(max_cqe, 32767),
	LEAST(max_mr, 524287), LEAST(max_mw, 524287), LEAST(max_pd, 1 << 20),
	LEAST(max_qp_rd_atom, 128), LEAST(max_qp_init_rd_atom, 128),
	LEAST(max_res_rd_atom, 0x3f000), LEAST(max_ah, 32767), LEAST(max_srq, 917503),
	LEAST(max_srq_wr, 1 << 20), LEAST(max_srq_sge, 27), LEAST(max_mcast_grp, 8192),
	LEAST(max_mcast_qp_attach, 56),
};

TEST(least_limits)
{
	size_t i;
	int value;

	open_end();
	for (i = 0; i < ARRAY_SIZE(least); i++) {
		memcpy(&value, (char *)&end->attr + least[i].offset, sizeof(value));
		require(value >= least[i].value, "%s is %d, not %d", least[i].name, value,
			least[i].value);
	}
	require(end->attr.atomic_cap >= IBV_ATOMIC_HCA, "atomic_cap is %d", end->attr.atomic_cap);
	require(end->attr.max_pkeys >= 1, "max_pkeys is %d", end->attr.max_pkeys);
	require(end->port.gid_tbl_len >= 1024, "%d GIDs", end->port.gid_tbl_len);
	require(end->port.max_msg_sz >= 1u << 31, "max_msg_sz is %u", end->port.max_msg_sz);
}

TEST_HARNESS_MAIN
