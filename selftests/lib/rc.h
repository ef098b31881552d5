/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Devices, and connected queue pairs between them, for tests.
 *
 * One process may hold both ends of a connection, each with its device in a
 * network namespace of its own.  What is not under test must succeed: these
 * functions fail the test otherwise.
 */
#ifndef FERROCE_RC_H
#define FERROCE_RC_H

#include <infiniband/verbs.h>

#include "require.h"

#define PORT 1

/* The wait for what must happen soon. */
#define SOON_MS (5000 * time_scale())

enum family { FAMILY_ANY, FAMILY_IPV4, FAMILY_IPV6 };

/* An open device. */
struct end {
	char ns[64];		/* the network namespace, "" for the program's own */
	char dev[64];
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	int gid_index;
	union ibv_gid gid;
};

/*
 * Parses "namespace/device" or "device".  Only the names: this neither needs a
 * device nor opens it.
 */
void end_name(struct end *end, const char *name);

/* Opens the device that end_name() named, makes a PD and finds the first GID of a family. */
void end_open(struct end *end, enum family family);
void end_close(struct end *end);
void end_use_gid(struct end *end, int index);

/* Enters the end's network namespace.  The functions here don't need it. */
void end_enter(const struct end *end);

/* The two ends of a program's command line, or of the environment: $END_A and $END_B. */
extern struct end ends[2];
void name_ends_from_environment(void);
void open_ends(void);

/* What a queue pair is made and connected with. */
struct rc_plan {
	bool unreliable;		/* UC, and not RC */
	struct ibv_qp_cap cap;
	int cqe;			/* for each of its CQs */
	struct ibv_comp_channel *channel;
	struct ibv_srq *srq;		/* NULL: none; used by the end that it belongs to */
	enum ibv_mtu mtu;		/* 0: the active MTU */
	unsigned int access;
	uint8_t timeout, retry_cnt, rnr_retry, min_rnr_timer;
	uint8_t rd_atomic;		/* for both directions */
	uint8_t hop_limit, traffic_class;
	uint32_t flow_label;
	bool sig_all;
	uint64_t send_ops;		/* IBV_QP_EX_WITH_..., of an extended queue pair */
};

/* Modest sizes, remote access allowed, infinite RNR retries. */
extern const struct rc_plan default_plan;

struct rc {
	struct end *end;
	struct ibv_cq *scq, *rcq;	/* of send and receive completions */
	struct ibv_qp *qp;
	uint32_t psn;			/* the first PSN that it sends */
};

void rc_create(struct rc *rc, struct end *end, const struct rc_plan *plan);
void rc_destroy(struct rc *rc);

/* What the other end must know of a queue pair. */
struct rc_address {
	union ibv_gid gid;
	uint32_t qpn, psn;
};
struct rc_address rc_address(const struct rc *rc);

/*
 * Fills the attributes that take a queue pair to INIT, RTR or RTS and returns
 * their mask, which holds all that is mandatory and nothing else.
 */
int rc_attr(const struct rc *rc, struct ibv_qp_attr *attr, enum ibv_qp_state to,
	    const struct rc_address *peer, const struct rc_plan *plan);

/* One step.  RESET, ERR and SQD need neither peer nor plan. */
int rc_try_modify(struct rc *rc, enum ibv_qp_state to, const struct rc_address *peer,
		  const struct rc_plan *plan);
void rc_modify(struct rc *rc, enum ibv_qp_state to, const struct rc_address *peer,
	       const struct rc_plan *plan);
/* All steps from RESET to RTS. */
void rc_connect(struct rc *rc, const struct rc_address *peer, const struct rc_plan *plan);
enum ibv_qp_state rc_state(struct rc *rc);
/* Waits until the queue pair is in this state. */
void rc_wait_state(struct rc *rc, enum ibv_qp_state state, int timeout_ms);
/* In SQD: waits until the send queue is drained. */
void rc_wait_drained(struct rc *rc, int timeout_ms);

/* Two connected queue pairs, on ends[0] and ends[1]. */
struct rc_pair {
	struct rc a, b;
};
void pair_create(struct rc_pair *pair, const struct rc_plan *plan);
void pair_connect(struct rc_pair *pair, const struct rc_plan *plan);
void pair_open(struct rc_pair *pair, const struct rc_plan *plan);	/* both of these */
void pair_destroy(struct rc_pair *pair);

/* Registered memory.  The bytes around it are inaccessible or guarded by the caller. */
struct buffer {
	uint8_t *bytes;
	size_t size;
	struct ibv_mr *mr;
};
void buffer_create(struct buffer *buffer, struct end *end, size_t size, int access);
/* The same memory every `period` bytes, to be large without taking much. */
void buffer_create_folded(struct buffer *buffer, struct end *end, size_t size, size_t period,
			  int access);
void buffer_destroy(struct buffer *buffer);

/* SGE over a part of a buffer. */
struct ibv_sge buffer_sge(const struct buffer *buffer, size_t offset, uint32_t length);

/* Posts one work request with at most one SGE; fails the test if the verb does. */
void post_recv(struct rc *rc, uint64_t wr_id, const struct ibv_sge *sge);
int try_post_send(struct rc *rc, uint64_t wr_id, enum ibv_wr_opcode opcode, unsigned int flags,
		  const struct ibv_sge *sge, uint64_t remote_addr, uint32_t rkey);
void post_send(struct rc *rc, uint64_t wr_id, enum ibv_wr_opcode opcode, unsigned int flags,
	       const struct ibv_sge *sge, uint64_t remote_addr, uint32_t rkey);

/* Takes all completions that are there; returns how many. */
unsigned int drain_cq(struct ibv_cq *cq);
/* Gets one completion; false when none came in time. */
bool poll_within(struct ibv_cq *cq, struct ibv_wc *wc, int timeout_ms);
/* The next completion must be this one.  Its opcode is valid only in success. */
struct ibv_wc expect_wc(struct ibv_cq *cq, uint64_t wr_id, enum ibv_wc_status status,
			int timeout_ms);
/* No completion is there, and none comes within the time. */
void expect_no_wc(struct ibv_cq *cq, int timeout_ms);

/*
 * Waits for an asynchronous event of this type, ignoring others of ports and
 * GIDs only, and acknowledges it.
 */
bool async_event_within(struct end *end, enum ibv_event_type type, int timeout_ms);
/* No asynchronous event but those of ports and GIDs is waiting. */
void expect_no_async_event(struct end *end);

#endif
