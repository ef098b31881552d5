/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Queue pairs for datagrams, beside those of rc.h.
 */
#ifndef FERROCE_UD_H
#define FERROCE_UD_H

#include "rc.h"

/* A queue pair in RESET, with CQs for `cqe` completions each. */
void ud_create(struct rc *ud, struct end *end, const struct ibv_qp_cap *cap, int cqe);
/* From RESET to RTS. */
void ud_start(struct rc *ud, uint32_t qkey);

/* An address handle of an end, to another.  Takes the calling thread to the end's namespace. */
struct ibv_ah *ah_create(const struct end *from, const struct end *to);
/* Likewise, in another protection domain of the end. */
struct ibv_ah *ah_create_in(struct ibv_pd *pd, const struct end *from, const struct end *to);

/* One datagram; returns an errno. */
int ud_post(struct rc *ud, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, uint64_t wr_id,
	    unsigned int flags, struct ibv_sge *sge);

#endif
