// SPDX-License-Identifier: GPL-2.0
#include "ud.h"

static struct ibv_cq *create_cq(struct end *end, int cqe)
{
	struct ibv_cq *cq = ibv_create_cq(end->context, cqe, NULL, NULL, 0);

	require(cq, "ibv_create_cq(%d): %s", cqe, strerror(errno));
	return cq;
}

void ud_create(struct rc *ud, struct end *end, const struct ibv_qp_cap *cap, int cqe)
{
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_UD, .cap = *cap };

	ud->end = end;
	ud->scq = init.send_cq = create_cq(end, cqe);
	ud->rcq = init.recv_cq = create_cq(end, cqe);
	ud->qp = ibv_create_qp(end->pd, &init);
	require(ud->qp, "ibv_create_qp: %s", strerror(errno));
	ud->psn = 0xfffffe; /* soon to wrap */
}

static void step(struct rc *ud, enum ibv_qp_state to, uint32_t qkey, int mask)
{
	struct ibv_qp_attr attr = {
		.qp_state = to, .port_num = PORT, .qkey = qkey, .sq_psn = ud->psn,
	};

	require_ok(ibv_modify_qp(ud->qp, &attr, mask | IBV_QP_STATE));
}

void ud_start(struct rc *ud, uint32_t qkey)
{
	step(ud, IBV_QPS_INIT, qkey, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
	step(ud, IBV_QPS_RTR, qkey, 0);
	step(ud, IBV_QPS_RTS, qkey, IBV_QP_SQ_PSN);
}

struct ibv_ah *ah_create_in(struct ibv_pd *pd, const struct end *from, const struct end *to)
{
	struct ibv_ah_attr attr = {
		.is_global = 1, .port_num = PORT,
		.grh = { .dgid = to->gid, .sgid_index = from->gid_index, .hop_limit = 64 },
	};
	struct ibv_ah *ah;

	/* The library looks for the peer by itself, in its own network namespace. */
	end_enter(from);
	ah = ibv_create_ah(pd, &attr);
	require(ah, "ibv_create_ah: %s", strerror(errno));
	return ah;
}

struct ibv_ah *ah_create(const struct end *from, const struct end *to)
{
	return ah_create_in(from->pd, from, to);
}

int ud_post(struct rc *ud, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, uint64_t wr_id,
	    unsigned int flags, struct ibv_sge *sge)
{
	struct ibv_send_wr *bad, wr = {
		.wr_id = wr_id, .opcode = IBV_WR_SEND, .send_flags = flags,
		.sg_list = sge, .num_sge = 1,
		.wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = qkey },
	};

	return ibv_post_send(ud->qp, &wr, &bad);
}
