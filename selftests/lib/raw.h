/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Below the library: the rings that it maps for its user, and commands that it would not
 * send, or not while another thread uses the object.
 */
#ifndef FERROCE_RAW_H
#define FERROCE_RAW_H

#include <infiniband/verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>

#include "rc.h"
#include "stream.h"

/* ---- rings ------------------------------------------------------------- */

/* A ring that is mapped. */
struct ring {
	struct rxe_queue_buf *buf;
	size_t size;			/* bytes that are mapped */
	uint64_t offset;		/* by which they were */
	uint32_t mask, log2;		/* as the driver set them */
};

#define MAX_RINGS 64

struct ring_list {
	struct ring rings[MAX_RINGS];
	unsigned int count;
};

/* All that are mapped of the device's file. */
void rings_list(const struct ibv_context *context, struct ring_list *list);
/* Those that were mapped since, by their offsets: must be as many. */
void rings_since(const struct ibv_context *context, const struct ring_list *before,
		 struct ring *rings, unsigned int count);
/* Those of a queue pair and its CQs. */
struct rc_rings {
	struct ring send, recv;		/* the latter as it was, if there is an SRQ */
	struct ring cqs[2];
};

/* That were made since.  The CQs must have room for more than each of the queues. */
void rc_rings_since(const struct rc *rc, const struct ring_list *before, struct rc_rings *rings);

void *ring_slot(const struct ring *ring, uint32_t index);
/* Publishes one more slot. */
void ring_push(struct ring *ring);

/* ---- commands ---------------------------------------------------------- */

/* Writes a command, whose header this fills in; returns an errno. */
int uverbs_command(int fd, uint32_t number, void *cmd, size_t size, void *response,
		   size_t response_size);

int raw_doorbell(int fd, uint32_t qp);
int raw_destroy_qp(int fd, uint32_t qp);
int raw_destroy_cq(int fd, uint32_t cq);
int raw_destroy_srq(int fd, uint32_t srq);
int raw_destroy_ah(int fd, uint32_t ah);
int raw_dereg_mr(int fd, uint32_t mr);
/* ibv_rereg_mr(), which the library lacks for this provider. */
int raw_rereg_mr(struct ibv_mr *mr, uint32_t flags, struct ibv_pd *pd, void *start,
		 uint64_t length, uint32_t access);
int raw_dealloc_mw(int fd, uint32_t mw);
int raw_dealloc_pd(int fd, uint32_t pd);
int raw_resize_cq(int fd, uint32_t cq, uint32_t cqe, struct mminfo *map);

/* ---- chance ------------------------------------------------------------ */

/* From $SEED, or another each time; says which. */
uint64_t random_seed(void);

/* A number that somebody may have forgotten about: a limit, one beside it, or any. */
uint64_t wild_number(struct rng *rng);

#endif
