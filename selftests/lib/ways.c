// SPDX-License-Identifier: GPL-2.0
#include <stdarg.h>
#include <stdio.h>

#include "stream.h"
#include "ways.h"

/* Twice what a target has at most. */
#define PLAIN_SIZE (32 * PAGE_MOST)
#define WORD 8
#define ADDEND 0x0102030405060708UL

/* Ids of work requests. */
enum { REQUEST = 1, RECEIVE, BEFORE_FLUSH };

const char *const registrations[REGISTRATIONS] = { "pinned", "on demand", "implicit" };

#define FLUSHED (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_FLUSH_GLOBAL)

const struct way ways[WAYS] = {
	[SEND_FROM] = { "SEND from", 0, false, 0, IBV_WC_LOC_PROT_ERR },
	[RECEIVE_INTO] = { "receive into", 1, true, IBV_ACCESS_LOCAL_WRITE, IBV_WC_LOC_PROT_ERR },
	[WRITE_FROM] = { "WRITE from", 0, false, 0, IBV_WC_LOC_PROT_ERR },
	[WRITE_INTO] = { "WRITE into", 1, true,
			 IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, IBV_WC_REM_OP_ERR },
	[READ_FROM] = { "READ from", 1, false, IBV_ACCESS_REMOTE_READ, IBV_WC_REM_OP_ERR },
	[READ_INTO] = { "READ into", 0, true, IBV_ACCESS_LOCAL_WRITE, IBV_WC_LOC_PROT_ERR },
	[ATOMIC_ON] = { "atomic on", 1, true,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC, IBV_WC_REM_OP_ERR },
	[ATOMIC_INTO] = { "atomic's result into", 0, true, IBV_ACCESS_LOCAL_WRITE,
			  IBV_WC_LOC_PROT_ERR },
	[FLUSH_OF] = { "FLUSH", 1, true, FLUSHED, IBV_WC_REM_OP_ERR },
	[PERSIST_OF] = { "FLUSH to persistence", 1, true, FLUSHED | IBV_ACCESS_FLUSH_PERSISTENT,
			 IBV_WC_REM_OP_ERR },
};

static struct rc_pair pair, beside;
static struct rc_plan plan;
static struct buffer plain[2];
static uint64_t key;		/* of what is written */

/* ---- the connection ---------------------------------------------------- */

void ways_open(void)
{
	int side;

	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	plan.access |= IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_FLUSH_GLOBAL |
		       IBV_ACCESS_FLUSH_PERSISTENT;
	plan.send_ops = IBV_QP_EX_WITH_FLUSH;
	pair_open(&pair, &plan);
	pair_open(&beside, &plan);
	for (side = 0; side < 2; side++)
		buffer_create(&plain[side], &ends[side], PLAIN_SIZE, REMOTE);
}

void ways_again(void)
{
	pair_destroy(&pair);
	pair_open(&pair, &plan);
}

void ways_beside(void)
{
	const size_t at = PLAIN_SIZE - WORD;
	struct ibv_sge sge = buffer_sge(&plain[0], at, WORD);

	post_send(&beside.a, REQUEST, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
		  (uintptr_t)plain[1].bytes + at, plain[1].mr->rkey);
	expect_wc(beside.a.scq, REQUEST, IBV_WC_SUCCESS, SOON_MS);
}

struct ibv_mr *ways_register(enum registration how, int side, void *bytes, size_t size, int access)
{
	struct ibv_pd *pd = ends[side].pd;

	switch (how) {
	case REG_IMPLICIT:
		return ibv_reg_mr(pd, NULL, SIZE_MAX, access | IBV_ACCESS_ON_DEMAND);
	case REG_ON_DEMAND:
		return ibv_reg_mr(pd, bytes, size, access | IBV_ACCESS_ON_DEMAND);
	default:
		return ibv_reg_mr(pd, bytes, size, access);
	}
}

/* ---- requests ---------------------------------------------------------- */

static bool is_atomic(enum way_id way)
{
	return way == ATOMIC_ON || way == ATOMIC_INTO;
}

size_t way_at(enum way_id way, const struct target *target)
{
	return is_atomic(way) ? (target->at + WORD - 1) / WORD * WORD : target->at;
}

uint32_t way_length(enum way_id way, const struct target *target)
{
	return is_atomic(way) ? WORD : target->length;
}

static struct ibv_sge target_sge(enum way_id way, const struct target *target)
{
	return (struct ibv_sge){
		.addr = (uintptr_t)target->bytes + way_at(way, target),
		.length = way_length(way, target), .lkey = target->mr->lkey,
	};
}

static void post_rdma(enum ibv_wr_opcode opcode, uint64_t id, struct ibv_sge sge, uint64_t remote,
		      uint32_t rkey)
{
	post_send(&pair.a, id, opcode, IBV_SEND_SIGNALED, &sge, remote, rkey);
}

static void post_atomic(struct ibv_sge sge, uint64_t remote, uint32_t rkey)
{
	struct ibv_send_wr *bad, wr = {
		.wr_id = REQUEST, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
		.wr.atomic = { .remote_addr = remote, .compare_add = ADDEND, .rkey = rkey },
	};

	require_ok(ibv_post_send(pair.a.qp, &wr, &bad));
}

static void post_flush(const struct target *target, uint8_t placement)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(pair.a.qp);

	ibv_wr_start(qp);
	qp->wr_id = REQUEST;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_flush(qp, target->mr->rkey, (uintptr_t)target->bytes + target->at, target->length,
		     placement, IBV_FLUSH_RANGE);
	require_ok(ibv_wr_complete(qp));
}

void way_post(enum way_id way, const struct target *target)
{
	uint32_t length = way_length(way, target);
	struct ibv_sge mine = target_sge(way, target);
	struct ibv_sge ours = buffer_sge(&plain[0], 0, length);
	struct ibv_sge theirs = buffer_sge(&plain[1], 0, length);
	uint64_t there = (uintptr_t)plain[1].bytes;
	uint32_t rkey = plain[1].mr->rkey;
	int side;

	require(length <= PLAIN_SIZE, "%u bytes are too many", length);
	key = mix(key, 1);
	for (side = 0; side < 2; side++)
		stream_fill(plain[side].bytes, length, key, 0);
	switch (way) {
	case SEND_FROM:
		post_recv(&pair.b, RECEIVE, &theirs);
		post_rdma(IBV_WR_SEND, REQUEST, mine, 0, 0);
		break;
	case RECEIVE_INTO:
		post_recv(&pair.b, RECEIVE, &mine);
		post_rdma(IBV_WR_SEND, REQUEST, ours, 0, 0);
		break;
	case WRITE_FROM:
		post_rdma(IBV_WR_RDMA_WRITE, REQUEST, mine, there, rkey);
		break;
	case WRITE_INTO:
		post_rdma(IBV_WR_RDMA_WRITE, REQUEST, ours, mine.addr, target->mr->rkey);
		break;
	case READ_FROM:
		post_rdma(IBV_WR_RDMA_READ, REQUEST, ours, mine.addr, target->mr->rkey);
		break;
	case READ_INTO:
		post_rdma(IBV_WR_RDMA_READ, REQUEST, mine, there, rkey);
		break;
	case ATOMIC_ON:
		post_atomic(ours, mine.addr, target->mr->rkey);
		break;
	case ATOMIC_INTO:
		post_atomic(mine, there, rkey);
		break;
	case FLUSH_OF:
	case PERSIST_OF:
		post_rdma(IBV_WR_RDMA_WRITE, BEFORE_FLUSH, ours, mine.addr, target->mr->rkey);
		post_flush(target, way == FLUSH_OF ? IBV_FLUSH_GLOBAL : IBV_FLUSH_PERSISTENT);
		break;
	case WAYS:
		break;
	}
}

void way_expect_waiting(enum way_id way, int timeout_ms)
{
	expect_no_wc(pair.a.scq, timeout_ms);
	if (way == RECEIVE_INTO)
		expect_no_wc(pair.b.rcq, 0);
}

static struct ibv_wc next_wc(struct ibv_cq *cq, uint64_t id, const char *what)
{
	struct ibv_wc wc;

	require(poll_within(cq, &wc, 4 * SOON_MS), "%s has no end", what);
	require(wc.wr_id == id, "%s: the completion of request %lu", what, (long)wc.wr_id);
	return wc;
}

/* The receive has failed, and the sender is told so. */
static enum ibv_wc_status end_receive(void)
{
	struct ibv_wc send = next_wc(pair.a.scq, REQUEST, "the SEND");
	struct ibv_wc recv = next_wc(pair.b.rcq, RECEIVE, "the receive");
	enum ibv_wc_status wanted = recv.status ? IBV_WC_REM_OP_ERR : IBV_WC_SUCCESS;

	require(send.status == wanted, "the receive ended with \"%s\", and the SEND with \"%s\"",
		ibv_wc_status_str(recv.status), ibv_wc_status_str(send.status));
	return recv.status;
}

static enum ibv_wc_status end_flush(void)
{
	struct ibv_wc write = next_wc(pair.a.scq, BEFORE_FLUSH, "the WRITE");
	struct ibv_wc flush = next_wc(pair.a.scq, REQUEST, "the FLUSH");

	if (!write.status)
		return flush.status;
	require(flush.status == IBV_WC_WR_FLUSH_ERR, "the FLUSH behind it: \"%s\"",
		ibv_wc_status_str(flush.status));
	return write.status;
}

enum ibv_wc_status way_end(enum way_id way)
{
	enum ibv_wc_status status;

	switch (way) {
	case RECEIVE_INTO:
		status = end_receive();
		break;
	case FLUSH_OF:
	case PERSIST_OF:
		status = end_flush();
		break;
	default:
		status = next_wc(pair.a.scq, REQUEST, ways[way].title).status;
		break;
	}
	if (!status && way == SEND_FROM)
		require(!next_wc(pair.b.rcq, RECEIVE, "the receive").status, "the receive failed");
	return status;
}

/* ---- what comes of it -------------------------------------------------- */

void way_apply(enum way_id way, const struct target *target, uint8_t *image)
{
	uint8_t *at = image + way_at(way, target);
	uint64_t word;

	if (!ways[way].writes)
		return;
	if (way != ATOMIC_ON) {
		stream_fill(at, way_length(way, target), key, 0);
		return;
	}
	memcpy(&word, at, WORD);
	word += ADDEND;
	memcpy(at, &word, WORD);
}

const uint8_t *way_read(enum way_id way)
{
	switch (way) {
	case SEND_FROM:
	case WRITE_FROM:
		return plain[1].bytes;
	case READ_FROM:
	case ATOMIC_ON:
		return plain[0].bytes;
	default:
		return NULL;
	}
}

/* ---- the table --------------------------------------------------------- */

void cell(const char *kind, enum registration how, enum way_id way, const char *format, ...)
{
	char *outcome;
	va_list args;

	va_start(args, format);
	require(vasprintf(&outcome, format, args) >= 0, "out of memory");
	va_end(args);
	note("cell: %s | %s | %s | %s | %s", program_invocation_short_name, kind,
	     registrations[how], ways[way].title, outcome);
	free(outcome);
}

const char *errno_name(int err)
{
	return strerrorname_np(err);
}

size_t merged_pages(void)
{
	FILE *file = fopen("/proc/self/ksm_merging_pages", "re");
	size_t count = 0;

	if (!file)
		skip("no KSM: %s", strerror(errno));
	require(fscanf(file, "%zu", &count) == 1, "ksm_merging_pages");
	fclose(file);
	return count;
}

void compact_memory(void)
{
	int fd = open("/proc/sys/vm/compact_memory", O_WRONLY | O_CLOEXEC);

	require(fd >= 0, "compact_memory: %s", strerror(errno));
	require(write(fd, "1", 1) == 1, "compact_memory: %s", strerror(errno));
	close(fd);
}
