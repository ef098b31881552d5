// SPDX-License-Identifier: GPL-2.0
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rc.h"

struct end ends[2];

const struct rc_plan default_plan = {
	.cap = {
		.max_send_wr = 16, .max_recv_wr = 16,
		.max_send_sge = 4, .max_recv_sge = 4,
		.max_inline_data = 64,
	},
	.cqe = 64,
	.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
	.timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .min_rnr_timer = 12,
	.rd_atomic = 4,
	.hop_limit = 64,
};

/* ---- devices ----------------------------------------------------------- */

void end_name(struct end *end, const char *name)
{
	const char *slash = strchr(name, '/');

	memset(end, 0, sizeof(*end));
	end->gid_index = -1;
	if (slash)
		snprintf(end->ns, sizeof(end->ns), "%.*s", (int)(slash - name), name);
	snprintf(end->dev, sizeof(end->dev), "%s", slash ? slash + 1 : name);
}

void end_enter(const struct end *end)
{
	char path[128];
	int fd;

	if (!end->ns[0])
		return;
	snprintf(path, sizeof(path), "/run/netns/%s", end->ns);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	require(fd >= 0, "%s: %s", path, strerror(errno));
	require_sys(setns(fd, CLONE_NEWNET));
	close(fd);
}

void end_use_gid(struct end *end, int index)
{
	require_ok(ibv_query_gid(end->context, PORT, index, &end->gid));
	end->gid_index = index;
}

static bool is_ipv4(const union ibv_gid *gid)
{
	static const uint8_t prefix[12] = { [10] = 0xff, [11] = 0xff };

	return memcmp(gid->raw, prefix, sizeof(prefix)) == 0;
}

static bool gid_fits(const struct ibv_gid_entry *entry, enum family family)
{
	if (entry->gid_type != IBV_GID_TYPE_ROCE_V2)
		return false;
	switch (family) {
	case FAMILY_IPV4: return is_ipv4(&entry->gid);
	case FAMILY_IPV6: return !is_ipv4(&entry->gid);
	default: return true;
	}
}

static void find_gid(struct end *end, enum family family)
{
	struct ibv_gid_entry entry;
	int i;

	for (i = 0; i < end->port.gid_tbl_len; i++) {
		if (ibv_query_gid_ex(end->context, PORT, i, &entry, 0))
			continue; /* an empty slot */
		if (!gid_fits(&entry, family))
			continue;
		end->gid_index = i;
		end->gid = entry.gid;
		return;
	}
	fail("%s has no GID of the family wanted", end->dev);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;
	int i;

	require(list, "ibv_get_device_list: %s", strerror(errno));
	for (i = 0; list[i]; i++) {
		if (strcmp(ibv_get_device_name(list[i]), name))
			continue;
		context = ibv_open_device(list[i]);
		require(context, "cannot open %s: %s", name, strerror(errno));
	}
	ibv_free_device_list(list);
	require(context, "there is no RDMA device %s", name);
	return context;
}

void end_open(struct end *end, enum family family)
{
	int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);

	require(home >= 0, "own namespace: %s", strerror(errno));
	end_enter(end);
	end->context = open_device(end->dev);
	require_sys(setns(home, CLONE_NEWNET));
	close(home);

	require_sys(fcntl(end->context->async_fd, F_SETFL, O_NONBLOCK));
	require_ok(ibv_query_device(end->context, &end->attr));
	require_ok(ibv_query_port(end->context, PORT, &end->port));
	end->pd = ibv_alloc_pd(end->context);
	require(end->pd, "ibv_alloc_pd: %s", strerror(errno));
	if (end->gid_index >= 0)
		end_use_gid(end, end->gid_index);
	else
		find_gid(end, family);
}

void end_close(struct end *end)
{
	require_ok(ibv_dealloc_pd(end->pd));
	require_ok(ibv_close_device(end->context));
	end->context = NULL;
}

void name_ends_from_environment(void)
{
	const char *a = getenv("END_A"), *b = getenv("END_B");

	if (!a || !b) {
		fprintf(stderr, "set END_A and END_B to \"namespace/device\"\n");
		exit(1);
	}
	end_name(&ends[0], a);
	end_name(&ends[1], b);
}

void open_ends(void)
{
	end_open(&ends[0], FAMILY_ANY);
	end_open(&ends[1], FAMILY_ANY);
}

/* ---- queue pairs ------------------------------------------------------- */

static struct ibv_cq *create_cq(struct end *end, const struct rc_plan *plan)
{
	struct ibv_cq *cq = ibv_create_cq(end->context, plan->cqe, NULL, plan->channel, 0);

	require(cq, "ibv_create_cq(%d): %s", plan->cqe, strerror(errno));
	return cq;
}

void rc_create(struct rc *rc, struct end *end, const struct rc_plan *plan)
{
	struct ibv_qp_init_attr_ex init = {
		.cap = plan->cap,
		.qp_type = plan->unreliable ? IBV_QPT_UC : IBV_QPT_RC,
		.sq_sig_all = plan->sig_all,
		.pd = end->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.send_ops_flags = plan->send_ops,
	};

	rc->end = end;
	rc->scq = create_cq(end, plan);
	rc->rcq = create_cq(end, plan);
	init.send_cq = rc->scq;
	init.recv_cq = rc->rcq;
	if (plan->srq && plan->srq->context == end->context)
		init.srq = plan->srq;
	if (plan->send_ops)
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	rc->qp = ibv_create_qp_ex(end->context, &init);
	require(rc->qp, "ibv_create_qp: %s", strerror(errno));
	rc->psn = 0xfffff0; /* soon to wrap */
}

void rc_destroy(struct rc *rc)
{
	require_ok(ibv_destroy_qp(rc->qp));
	require_ok(ibv_destroy_cq(rc->scq));
	require_ok(ibv_destroy_cq(rc->rcq));
}

struct rc_address rc_address(const struct rc *rc)
{
	return (struct rc_address){
		.gid = rc->end->gid, .qpn = rc->qp->qp_num, .psn = rc->psn,
	};
}

static int init_attr(struct ibv_qp_attr *attr, const struct rc_plan *plan)
{
	attr->pkey_index = 0;
	attr->port_num = PORT;
	attr->qp_access_flags = plan->access;
	return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
}

static int rtr_attr(const struct rc *rc, struct ibv_qp_attr *attr,
		    const struct rc_address *peer, const struct rc_plan *plan)
{
	attr->path_mtu = plan->mtu ? plan->mtu : rc->end->port.active_mtu;
	attr->dest_qp_num = peer->qpn;
	attr->rq_psn = peer->psn;
	attr->max_dest_rd_atomic = plan->rd_atomic;
	attr->min_rnr_timer = plan->min_rnr_timer;
	attr->ah_attr = (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = PORT,
		.grh = {
			.dgid = peer->gid,
			.sgid_index = rc->end->gid_index,
			.hop_limit = plan->hop_limit,
			.traffic_class = plan->traffic_class,
			.flow_label = plan->flow_label,
		},
	};
	return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

static int rts_attr(const struct rc *rc, struct ibv_qp_attr *attr, const struct rc_plan *plan)
{
	attr->sq_psn = rc->psn;
	attr->timeout = plan->timeout;
	attr->retry_cnt = plan->retry_cnt;
	attr->rnr_retry = plan->rnr_retry;
	attr->max_rd_atomic = plan->rd_atomic;
	return IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
	       IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
}

/* What only matters to who acknowledges, or waits for that. */
#define RELIABLE_ATTR                                                                \
	(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_TIMEOUT |         \
	 IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC)

int rc_attr(const struct rc *rc, struct ibv_qp_attr *attr, enum ibv_qp_state to,
	    const struct rc_address *peer, const struct rc_plan *plan)
{
	int unused = plan && plan->unreliable ? RELIABLE_ATTR : 0;

	memset(attr, 0, sizeof(*attr));
	attr->qp_state = to;
	switch (to) {
	case IBV_QPS_INIT: return init_attr(attr, plan);
	case IBV_QPS_RTR: return rtr_attr(rc, attr, peer, plan) & ~unused;
	case IBV_QPS_RTS: return rts_attr(rc, attr, plan) & ~unused;
	default: return IBV_QP_STATE;
	}
}

int rc_try_modify(struct rc *rc, enum ibv_qp_state to, const struct rc_address *peer,
		  const struct rc_plan *plan)
{
	struct ibv_qp_attr attr;
	int mask = rc_attr(rc, &attr, to, peer, plan);

	return ibv_modify_qp(rc->qp, &attr, mask);
}

void rc_modify(struct rc *rc, enum ibv_qp_state to, const struct rc_address *peer,
	       const struct rc_plan *plan)
{
	int err = rc_try_modify(rc, to, peer, plan);

	require(!err, "modify to state %d: %s", to, strerror(err));
}

void rc_connect(struct rc *rc, const struct rc_address *peer, const struct rc_plan *plan)
{
	rc_modify(rc, IBV_QPS_INIT, peer, plan);
	rc_modify(rc, IBV_QPS_RTR, peer, plan);
	rc_modify(rc, IBV_QPS_RTS, peer, plan);
}

enum ibv_qp_state rc_state(struct rc *rc)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	require_ok(ibv_query_qp(rc->qp, &attr, IBV_QP_STATE, &init));
	return attr.qp_state;
}

void rc_wait_state(struct rc *rc, enum ibv_qp_state state, int timeout_ms)
{
	int64_t deadline = now_ns() + timeout_ms * NS_PER_MS;
	enum ibv_qp_state is;

	while ((is = rc_state(rc)) != state) {
		require(now_ns() < deadline, "state %d, not %d", is, state);
		usleep(1000);
	}
}

void rc_wait_drained(struct rc *rc, int timeout_ms)
{
	int64_t deadline = now_ns() + timeout_ms * NS_PER_MS;
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	for (;;) {
		require_ok(ibv_query_qp(rc->qp, &attr, IBV_QP_STATE, &init));
		require(attr.qp_state == IBV_QPS_SQD, "state %d, not SQD", attr.qp_state);
		if (!attr.sq_draining)
			return;
		require(now_ns() < deadline, "the send queue is still draining");
		usleep(1000);
	}
}

void pair_create(struct rc_pair *pair, const struct rc_plan *plan)
{
	rc_create(&pair->a, &ends[0], plan);
	rc_create(&pair->b, &ends[1], plan);
}

static enum ibv_mtu min_mtu(enum ibv_mtu a, enum ibv_mtu b)
{
	return a < b ? a : b;
}

void pair_connect(struct rc_pair *pair, const struct rc_plan *plan)
{
	struct rc_address a = rc_address(&pair->a), b = rc_address(&pair->b);
	struct rc_plan same = *plan;

	if (!same.mtu)
		same.mtu = min_mtu(pair->a.end->port.active_mtu, pair->b.end->port.active_mtu);
	rc_connect(&pair->a, &b, &same);
	rc_connect(&pair->b, &a, &same);
}

void pair_open(struct rc_pair *pair, const struct rc_plan *plan)
{
	pair_create(pair, plan);
	pair_connect(pair, plan);
}

void pair_destroy(struct rc_pair *pair)
{
	rc_destroy(&pair->a);
	rc_destroy(&pair->b);
}

/* ---- memory ------------------------------------------------------------ */

static void reserve(struct buffer *buffer, size_t size, int protection)
{
	buffer->size = size;
	buffer->bytes = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	require(buffer->bytes != MAP_FAILED, "mmap of %zu bytes: %s", size, strerror(errno));
}

static void reg_buffer(struct buffer *buffer, struct end *end, int access)
{
	buffer->mr = ibv_reg_mr(end->pd, buffer->bytes, buffer->size, access);
	require(buffer->mr, "ibv_reg_mr of %zu bytes: %s", buffer->size, strerror(errno));
}

void buffer_create(struct buffer *buffer, struct end *end, size_t size, int access)
{
	reserve(buffer, size, PROT_READ | PROT_WRITE);
	reg_buffer(buffer, end, access);
}

void buffer_create_folded(struct buffer *buffer, struct end *end, size_t size, size_t period,
			  int access)
{
	int fd = memfd_create("folded", MFD_CLOEXEC);
	size_t at, part;

	require_sys(fd);
	require_sys(ftruncate(fd, period));
	reserve(buffer, size, PROT_NONE);
	for (at = 0; at < size; at += part) {
		part = size - at < period ? size - at : period;
		require(mmap(buffer->bytes + at, part, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED,
			"mmap: %s", strerror(errno));
	}
	close(fd);
	reg_buffer(buffer, end, access);
}

void buffer_destroy(struct buffer *buffer)
{
	require_ok(ibv_dereg_mr(buffer->mr));
	munmap(buffer->bytes, buffer->size);
}

struct ibv_sge buffer_sge(const struct buffer *buffer, size_t offset, uint32_t length)
{
	return (struct ibv_sge){
		.addr = (uintptr_t)buffer->bytes + offset, .length = length,
		.lkey = buffer->mr->lkey,
	};
}

/* ---- work -------------------------------------------------------------- */

void post_recv(struct rc *rc, uint64_t wr_id, const struct ibv_sge *sge)
{
	struct ibv_recv_wr *bad, wr = {
		.wr_id = wr_id, .sg_list = (struct ibv_sge *)sge, .num_sge = sge ? 1 : 0,
	};

	require_ok(ibv_post_recv(rc->qp, &wr, &bad));
}

int try_post_send(struct rc *rc, uint64_t wr_id, enum ibv_wr_opcode opcode, unsigned int flags,
		  const struct ibv_sge *sge, uint64_t remote_addr, uint32_t rkey)
{
	struct ibv_send_wr *bad, wr = {
		.wr_id = wr_id, .opcode = opcode, .send_flags = flags,
		.sg_list = (struct ibv_sge *)sge, .num_sge = sge ? 1 : 0,
		.wr.rdma = { .remote_addr = remote_addr, .rkey = rkey },
	};

	return ibv_post_send(rc->qp, &wr, &bad);
}

void post_send(struct rc *rc, uint64_t wr_id, enum ibv_wr_opcode opcode, unsigned int flags,
	       const struct ibv_sge *sge, uint64_t remote_addr, uint32_t rkey)
{
	int err = try_post_send(rc, wr_id, opcode, flags, sge, remote_addr, rkey);

	require(!err, "ibv_post_send, opcode %d: %s", opcode, strerror(err));
}

unsigned int drain_cq(struct ibv_cq *cq)
{
	struct ibv_wc wc[16];
	unsigned int count = 0;
	int n;

	while ((n = ibv_poll_cq(cq, ARRAY_SIZE(wc), wc)) > 0)
		count += n;
	return count;
}

bool poll_within(struct ibv_cq *cq, struct ibv_wc *wc, int timeout_ms)
{
	int64_t begin = now_ns(), waited;
	int n;

	for (;;) {
		n = ibv_poll_cq(cq, 1, wc);
		require(n >= 0, "ibv_poll_cq: %d", n);
		if (n)
			return true;
		waited = now_ns() - begin;
		if (waited >= timeout_ms * NS_PER_MS)
			return false;
		if (waited < NS_PER_MS)
			sched_yield();
		else
			usleep(200);
	}
}

struct ibv_wc expect_wc(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status,
			int timeout_ms)
{
	struct ibv_wc wc;

	require(poll_within(cq, &wc, timeout_ms), "no completion of %llu within %d ms",
		(unsigned long long)wr_id, timeout_ms);
	require(wc.wr_id == wr_id && wc.status == status,
		"completion of %llu with \"%s\", wanted %llu with \"%s\"",
		(unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status),
		(unsigned long long)wr_id, ibv_wc_status_str(status));
	return wc;
}

void expect_no_wc(struct ibv_cq *cq, int timeout_ms)
{
	struct ibv_wc wc;

	require(!poll_within(cq, &wc, timeout_ms), "a completion too many: %llu, \"%s\"",
		(unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status));
}

/* ---- asynchronous events ----------------------------------------------- */

static bool is_about_port(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_GID_CHANGE:
		return true;
	default:
		return false;
	}
}

bool async_event_within(struct end *end, enum ibv_event_type type, int timeout_ms)
{
	int64_t deadline = now_ns() + timeout_ms * NS_PER_MS;
	struct pollfd wait = { .fd = end->context->async_fd, .events = POLLIN };
	struct ibv_async_event event;
	int64_t left;

	while ((left = deadline - now_ns()) > 0) {
		if (poll(&wait, 1, left / NS_PER_MS + 1) != 1)
			return false;
		if (ibv_get_async_event(end->context, &event))
			continue;
		ibv_ack_async_event(&event);
		if (event.event_type == type)
			return true;
		require(is_about_port(event.event_type), "asynchronous event \"%s\"",
			ibv_event_type_str(event.event_type));
	}
	return false;
}

void expect_no_async_event(struct end *end)
{
	struct ibv_async_event event;

	while (!ibv_get_async_event(end->context, &event)) {
		ibv_ack_async_event(&event);
		require(is_about_port(event.event_type), "asynchronous event \"%s\"",
			ibv_event_type_str(event.event_type));
	}
}
