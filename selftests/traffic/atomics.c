// SPDX-License-Identifier: GPL-2.0
/*
 * Atomic operations: what they do, what they refuse, and that each is carried
 * out once, whoever else works on the same memory.
 *
 * What the network does to packets meanwhile is up to the caller.
 */
#include <pthread.h>
#include <stdlib.h>

#include "harness.h"
#include "rc.h"

#define WORDS 512
#define ATOMIC IBV_ACCESS_REMOTE_ATOMIC
#define RIGHTS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

static struct rc_plan plan;
static struct rc_pair pair;
static struct buffer found;	/* of end a */
static struct buffer words;	/* of end b */

static void open_devices(void)
{
	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	plan.access |= ATOMIC;
	plan.timeout = getenv("ACK_TIMEOUT") ? atoi(getenv("ACK_TIMEOUT")) : 12;	/* 17 ms */
	plan.send_ops = IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
			IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH |
			IBV_QP_EX_WITH_SEND_WITH_INV;
	buffer_create(&found, &ends[0], WORDS * 8, IBV_ACCESS_LOCAL_WRITE);
	buffer_create(&words, &ends[1], WORDS * 8, RIGHTS | ATOMIC);
}

static void set_up(void)
{
	open_devices();
	pair_open(&pair, &plan);
}

static uint64_t *word(const struct buffer *buffer, size_t index)
{
	return (uint64_t *)buffer->bytes + index;
}

/* Posts an atomic on the 8 bytes at an address. */
static void post_atomic(struct rc *rc, uint64_t wr_id, enum ibv_wr_opcode opcode,
			struct ibv_sge *sges, int num_sge, uint64_t addr, uint32_t rkey,
			uint64_t compare_add, uint64_t swap)
{
	struct ibv_send_wr *bad, wr = {
		.wr_id = wr_id, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
		.sg_list = sges, .num_sge = num_sge,
		.wr.atomic = {
			.remote_addr = addr, .compare_add = compare_add, .swap = swap,
			.rkey = rkey,
		},
	};

	require_ok(ibv_post_send(rc->qp, &wr, &bad));
}

/* One on words[index], which must find this. */
static void fetch_add(size_t index, uint64_t add, uint64_t was)
{
	struct ibv_sge sge = buffer_sge(&found, 8 * index, 8);
	struct ibv_wc wc;

	post_atomic(&pair.a, index, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 1,
		    (uintptr_t)word(&words, index), words.mr->rkey, add, 0);
	wc = expect_wc(pair.a.scq, index, IBV_WC_SUCCESS, SOON_MS);
	require(wc.opcode == IBV_WC_FETCH_ADD && wc.byte_len == 8, "opcode %d, %u bytes",
		wc.opcode, wc.byte_len);
	require(*word(&found, index) == was, "it found 0x%llx, not 0x%llx",
		(unsigned long long)*word(&found, index), (unsigned long long)was);
}

static void compare_swap(size_t index, uint64_t compare, uint64_t swap, uint64_t was)
{
	struct ibv_sge sge = buffer_sge(&found, 8 * index, 8);
	struct ibv_wc wc;

	post_atomic(&pair.a, index, IBV_WR_ATOMIC_CMP_AND_SWP, &sge, 1,
		    (uintptr_t)word(&words, index), words.mr->rkey, compare, swap);
	wc = expect_wc(pair.a.scq, index, IBV_WC_SUCCESS, SOON_MS);
	require(wc.opcode == IBV_WC_COMP_SWAP && wc.byte_len == 8, "opcode %d, %u bytes",
		wc.opcode, wc.byte_len);
	require(*word(&found, index) == was, "it found 0x%llx, not 0x%llx",
		(unsigned long long)*word(&found, index), (unsigned long long)was);
}

static void expect_word(size_t index, uint64_t value)
{
	require(*word(&words, index) == value, "word %zu is 0x%llx, not 0x%llx", index,
		(unsigned long long)*word(&words, index), (unsigned long long)value);
}

/* ---- what they do ------------------------------------------------------ */

TEST(results)
{
	size_t i;

	set_up();
	require(ends[1].attr.atomic_cap == IBV_ATOMIC_HCA, "atomic_cap is %d",
		ends[1].attr.atomic_cap);
	for (i = 0; i < WORDS; i += 7) {
		*word(&words, i) = 0x1122334455667788 + i;
		fetch_add(i, 0x0102030405060708, 0x1122334455667788 + i);
		expect_word(i, 0x122436485a6c7e90 + i);
		fetch_add(i, -(uint64_t)i, 0x122436485a6c7e90 + i);
		expect_word(i, 0x122436485a6c7e90);
		fetch_add(i, UINT64_MAX, 0x122436485a6c7e90);
		expect_word(i, 0x122436485a6c7e8f);
	}
}

TEST(compare_and_swap)
{
	set_up();
	*word(&words, 3) = 5;
	compare_swap(3, 4, 100, 5);
	expect_word(3, 5);
	compare_swap(3, 5, 0xfedcba9876543210, 5);
	expect_word(3, 0xfedcba9876543210);
	compare_swap(3, 0xfedcba9876543210, 0, 0xfedcba9876543210);
	expect_word(3, 0);
	expect_word(2, 0);
	expect_word(4, 0);
}

/* What was found goes to where the SGEs say, and nowhere else. */
TEST(scattered_result)
{
	struct ibv_sge sges[3];
	uint8_t expected[32];
	static const uint8_t bytes[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };

	set_up();
	memset(found.bytes, 0xee, 32);
	memcpy(words.bytes, bytes, 8);
	sges[0] = buffer_sge(&found, 1, 3);
	sges[1] = buffer_sge(&found, 9, 1);
	sges[2] = buffer_sge(&found, 20, 4);
	post_atomic(&pair.a, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, sges, 3, (uintptr_t)words.bytes,
		    words.mr->rkey, 0, 0);
	expect_wc(pair.a.scq, 1, IBV_WC_SUCCESS, SOON_MS);
	memset(expected, 0xee, 32);
	memcpy(expected + 1, bytes, 3);
	memcpy(expected + 9, bytes + 3, 1);
	memcpy(expected + 20, bytes + 4, 4);
	require(!memcmp(found.bytes, expected, 32), "wrong bytes");
}

/* READs and WRITEs around an atomic see what they must. */
TEST(order)
{
	struct ibv_sge sge;
	uint64_t round;

	set_up();
	for (round = 0; round < 100; round++) {
		*word(&found, 0) = 1000 * round;
		sge = buffer_sge(&found, 0, 8);
		post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
			  (uintptr_t)words.bytes, words.mr->rkey);
		sge = buffer_sge(&found, 8, 8);
		post_atomic(&pair.a, 2, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 1,
			    (uintptr_t)words.bytes, words.mr->rkey, 7, 0);
		sge = buffer_sge(&found, 16, 8);
		post_send(&pair.a, 3, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, &sge,
			  (uintptr_t)words.bytes, words.mr->rkey);
		sge = buffer_sge(&found, 24, 8);
		post_atomic(&pair.a, 4, IBV_WR_ATOMIC_CMP_AND_SWP, &sge, 1,
			    (uintptr_t)words.bytes, words.mr->rkey, 1000 * round + 7, 1);
		expect_wc(pair.a.scq, 1, IBV_WC_SUCCESS, SOON_MS);
		expect_wc(pair.a.scq, 2, IBV_WC_SUCCESS, SOON_MS);
		expect_wc(pair.a.scq, 3, IBV_WC_SUCCESS, SOON_MS);
		expect_wc(pair.a.scq, 4, IBV_WC_SUCCESS, SOON_MS);
		require(*word(&found, 1) == 1000 * round, "the atomic came before the WRITE");
		require(*word(&found, 3) == 1000 * round + 7, "the second atomic found %llu",
			(unsigned long long)*word(&found, 3));
		expect_word(0, 1);
	}
}

/* ---- atomic WRITE and FLUSH -------------------------------------------- */

/* Starts a request in the way of the extended API, which checks less. */
static struct ibv_qp_ex *begin(struct rc *rc, uint64_t wr_id)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(rc->qp);

	require(qp, "not an extended queue pair");
	ibv_wr_start(qp);
	qp->wr_id = wr_id;
	qp->wr_flags = IBV_SEND_SIGNALED;
	return qp;
}

static void post_atomic_write(uint64_t wr_id, uint64_t addr, uint32_t rkey, uint64_t value)
{
	struct ibv_qp_ex *qp = begin(&pair.a, wr_id);

	ibv_wr_atomic_write(qp, rkey, addr, &value);
	require_ok(ibv_wr_complete(qp));
}

static void post_flush(uint64_t wr_id, uint64_t addr, uint32_t rkey, size_t length,
		       uint8_t type, uint8_t level)
{
	struct ibv_qp_ex *qp = begin(&pair.a, wr_id);

	ibv_wr_flush(qp, rkey, addr, length, type, level);
	require_ok(ibv_wr_complete(qp));
}

TEST(atomic_write)
{
	struct ibv_wc wc;
	uint64_t i;

	set_up();
	for (i = 0; i < WORDS; i++) {
		post_atomic_write(i, (uintptr_t)word(&words, i), words.mr->rkey,
				  0x1020304050607080 * i);
		wc = expect_wc(pair.a.scq, i, IBV_WC_SUCCESS, SOON_MS);
		require(wc.opcode == IBV_WC_ATOMIC_WRITE && wc.byte_len == 8,
			"opcode %d, %u bytes", wc.opcode, wc.byte_len);
		expect_word(i, 0x1020304050607080 * i);
	}
	for (i = 0; i < WORDS; i++)
		expect_word(i, 0x1020304050607080 * i);
}

/* Many at once, mixed with atomics that tell their order. */
/* Rules: MPE-3 */
TEST(atomic_write_order)
{
	struct ibv_sge sge;
	uint64_t round, i;

	set_up();
	for (round = 0; round < 50; round++) {
		for (i = 0; i < 8; i += 2) {
			post_atomic_write(i, (uintptr_t)words.bytes, words.mr->rkey,
					  1000 * round + i);
			sge = buffer_sge(&found, 8 * i, 8);
			post_atomic(&pair.a, i + 1, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 1,
				    (uintptr_t)words.bytes, words.mr->rkey, 500, 0);
		}
		for (i = 0; i < 8; i++)
			expect_wc(pair.a.scq, i, IBV_WC_SUCCESS, SOON_MS);
		for (i = 0; i < 8; i += 2)
			require(*word(&found, i) == 1000 * round + i,
				"round %llu, %llu: it found %llu", (unsigned long long)round,
				(unsigned long long)i, (unsigned long long)*word(&found, i));
		expect_word(0, 1000 * round + 6 + 500);
	}
}

#define FLUSH_GLOBAL_ALSO (RIGHTS | IBV_ACCESS_FLUSH_GLOBAL)

TEST(flush)
{
	struct buffer region;
	struct ibv_sge sge;
	struct ibv_wc wc;
	uint64_t i;

	open_devices();
	plan.access |= IBV_ACCESS_FLUSH_GLOBAL;
	pair_open(&pair, &plan);
	buffer_create(&region, &ends[1], 65536, FLUSH_GLOBAL_ALSO);
	for (i = 0; i < 50; i++) {
		*word(&found, 0) = i;
		sge = buffer_sge(&found, 0, 8);
		post_send(&pair.a, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, &sge,
			  (uintptr_t)region.bytes + 8 * i, region.mr->rkey);
		post_flush(2, (uintptr_t)region.bytes + 8 * i, region.mr->rkey, 8,
			   IBV_FLUSH_GLOBAL, IBV_FLUSH_RANGE);
		post_flush(3, 0, region.mr->rkey, 0, IBV_FLUSH_GLOBAL, IBV_FLUSH_MR);
		expect_wc(pair.a.scq, 1, IBV_WC_SUCCESS, SOON_MS);
		wc = expect_wc(pair.a.scq, 2, IBV_WC_SUCCESS, SOON_MS);
		require(wc.opcode == IBV_WC_FLUSH, "opcode %d", wc.opcode);
		require(*word(&region, i) == i, "what was flushed is not there");
		expect_wc(pair.a.scq, 3, IBV_WC_SUCCESS, SOON_MS);
	}
}

static void refused_flush(const struct buffer *region, uint64_t offset, uint8_t level,
			  enum ibv_wc_status status)
{
	pair_open(&pair, &plan);
	post_flush(1, (uintptr_t)region->bytes + offset, region->mr->rkey, 16,
		   IBV_FLUSH_GLOBAL, level);
	expect_wc(pair.a.scq, 1, status, SOON_MS);
	pair_destroy(&pair);
}

TEST(flush_without_the_right)
{
	struct buffer region;

	open_devices();
	buffer_create(&region, &ends[1], 4096, FLUSH_GLOBAL_ALSO);
	refused_flush(&region, 0, IBV_FLUSH_MR, IBV_WC_REM_INV_REQ_ERR);
	plan.access |= IBV_ACCESS_FLUSH_GLOBAL;
	refused_flush(&words, 0, IBV_FLUSH_MR, IBV_WC_REM_ACCESS_ERR);
	refused_flush(&region, 4088, IBV_FLUSH_RANGE, IBV_WC_REM_ACCESS_ERR);
}

/* ---- what they refuse -------------------------------------------------- */

static void refused(uint64_t addr, uint32_t rkey, enum ibv_wc_status status)
{
	struct ibv_qp_ex *qp;

	pair_open(&pair, &plan);
	*word(&words, 0) = 42;
	*word(&found, 0) = 43;
	qp = begin(&pair.a, 1);
	ibv_wr_atomic_fetch_add(qp, rkey, addr, 1);
	ibv_wr_set_sge(qp, found.mr->lkey, (uintptr_t)found.bytes, 8);
	require_ok(ibv_wr_complete(qp));
	expect_wc(pair.a.scq, 1, status, SOON_MS);
	rc_wait_state(&pair.a, IBV_QPS_ERR, SOON_MS);
	rc_wait_state(&pair.b, IBV_QPS_ERR, SOON_MS);
	expect_word(0, 42);
	require(*word(&found, 0) == 43, "something was put into local memory");
	pair_destroy(&pair);
}

TEST(unaligned_address)
{
	unsigned int by;

	open_devices();
	for (by = 1; by < 8; by++)
		refused((uintptr_t)words.bytes + by, words.mr->rkey, IBV_WC_REM_INV_REQ_ERR);
}

TEST(outside_of_the_region)
{
	open_devices();
	refused((uintptr_t)words.bytes + WORDS * 8, words.mr->rkey, IBV_WC_REM_ACCESS_ERR);
	refused((uintptr_t)words.bytes - 8, words.mr->rkey, IBV_WC_REM_ACCESS_ERR);
	refused((uintptr_t)words.bytes, words.mr->rkey + 1, IBV_WC_REM_ACCESS_ERR);
}

/* Rules: MEM-4 */
TEST(region_without_the_right)
{
	struct buffer other;

	open_devices();
	buffer_create(&other, &ends[1], 4096, RIGHTS);
	refused((uintptr_t)other.bytes, other.mr->rkey, IBV_WC_REM_ACCESS_ERR);
}

TEST(queue_pair_without_the_right)
{
	open_devices();
	plan.access = RIGHTS;
	refused((uintptr_t)words.bytes, words.mr->rkey, IBV_WC_REM_INV_REQ_ERR);
}

/* What was there before has 8 bytes. */
TEST(local_memory_of_another_size)
{
	static const uint32_t lengths[] = { 0, 7, 9, 16 };
	struct ibv_qp_ex *qp;
	size_t i;

	open_devices();
	for (i = 0; i < ARRAY_SIZE(lengths); i++) {
		pair_open(&pair, &plan);
		qp = begin(&pair.a, 1);
		ibv_wr_atomic_fetch_add(qp, words.mr->rkey, (uintptr_t)words.bytes, 1);
		ibv_wr_set_sge(qp, found.mr->lkey, (uintptr_t)found.bytes, lengths[i]);
		require_ok(ibv_wr_complete(qp));
		expect_wc(pair.a.scq, 1, IBV_WC_LOC_LEN_ERR, SOON_MS);
		expect_word(0, 0);
		pair_destroy(&pair);
	}
}

TEST(unaligned_atomic_write)
{
	open_devices();
	pair_open(&pair, &plan);
	*word(&words, 0) = 42;
	post_atomic_write(1, (uintptr_t)words.bytes + 4, words.mr->rkey, 7);
	expect_wc(pair.a.scq, 1, IBV_WC_REM_INV_REQ_ERR, SOON_MS);
	expect_word(0, 42);
}

/* A region of a process is nobody's to invalidate but its own. */
/* Rules: INV-4 */
TEST(send_that_invalidates_a_region)
{
	struct ibv_qp_ex *qp;
	struct ibv_sge sge;

	set_up();
	sge = buffer_sge(&words, 0, 8);
	post_recv(&pair.b, 5, &sge);
	qp = begin(&pair.a, 1);
	ibv_wr_send_inv(qp, words.mr->rkey);
	ibv_wr_set_sge(qp, found.mr->lkey, (uintptr_t)found.bytes, 8);
	require_ok(ibv_wr_complete(qp));
	expect_wc(pair.a.scq, 1, IBV_WC_REM_ACCESS_ERR, SOON_MS);
	expect_wc(pair.b.rcq, 5, IBV_WC_REM_INV_REQ_ERR, SOON_MS);
	pair_destroy(&pair);
	/* It is as good as before. */
	set_up();
	*word(&words, 1) = 9;
	fetch_add(1, 1, 9);
}

/* ---- many at one counter ----------------------------------------------- */

#define PAIRS 4
#define EACH 600
#define DEPTH 8
#define CPU_ADDS 200000

/* Adders of one end to the counter at another. */
struct adder {
	struct rc *rc;
	struct buffer result;
	const struct buffer *target;
	unsigned int posted, done;
};

/* A bit for each value that an adder found. */
static uint8_t *seen;
static uint64_t seen_bits;

static void saw(uint64_t value)
{
	require(value < seen_bits, "an adder found %llu", (unsigned long long)value);
	require(!(seen[value / 8] & 1 << value % 8), "two adders found %llu",
		(unsigned long long)value);
	seen[value / 8] |= 1 << value % 8;
}

static void work(struct adder *adder)
{
	struct ibv_sge sge;
	struct ibv_wc wc;
	int n;

	while (adder->posted < EACH && adder->posted - adder->done < DEPTH) {
		sge = buffer_sge(&adder->result, 8 * (adder->posted % DEPTH), 8);
		post_atomic(adder->rc, adder->posted++, IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 1,
			    (uintptr_t)adder->target->bytes, adder->target->mr->rkey, 1, 0);
	}
	n = ibv_poll_cq(adder->rc->scq, 1, &wc);
	require(n >= 0, "ibv_poll_cq: %d", n);
	if (!n)
		return;
	require(wc.status == IBV_WC_SUCCESS && wc.wr_id == adder->done,
		"%llu, not %u, completed with \"%s\"", (unsigned long long)wc.wr_id,
		adder->done, ibv_wc_status_str(wc.status));
	saw(*word(&adder->result, adder->done++ % DEPTH));
}

static void *add_by_cpu(void *counter)
{
	unsigned int i;

	for (i = 0; i < CPU_ADDS; i++)
		__atomic_fetch_add((uint64_t *)counter, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

/* From one end, or from both, and by the process itself meanwhile. */
static void count(bool both, bool cpu)
{
	struct buffer shared[2];
	struct rc_pair pairs[PAIRS];
	struct adder adders[2 * PAIRS] = { 0 };
	size_t i, number = both ? 2 * PAIRS : PAIRS;
	uint64_t total = number * EACH + (cpu ? CPU_ADDS : 0);
	unsigned int done;
	pthread_t thread;

	open_devices();
	seen_bits = total;
	seen = xcalloc(1, total / 8 + 1);
	/* The same memory for both ends. */
	shared[1] = words;
	shared[0] = words;
	shared[0].mr = ibv_reg_mr(ends[0].pd, words.bytes, words.size, RIGHTS | ATOMIC);
	require(shared[0].mr, "ibv_reg_mr: %s", strerror(errno));
	for (i = 0; i < PAIRS; i++)
		pair_open(&pairs[i], &plan);
	for (i = 0; i < number; i++) {
		struct adder *adder = &adders[i];

		adder->rc = i < PAIRS ? &pairs[i].a : &pairs[i - PAIRS].b;
		adder->target = &shared[i < PAIRS];
		buffer_create(&adder->result, adder->rc->end, 8 * DEPTH, IBV_ACCESS_LOCAL_WRITE);
	}
	if (cpu)
		require_ok(pthread_create(&thread, NULL, add_by_cpu, words.bytes));
	do {
		done = 0;
		for (i = 0; i < number; i++) {
			work(&adders[i]);
			done += adders[i].done;
		}
	} while (done < number * EACH);
	if (cpu)
		require_ok(pthread_join(thread, NULL));
	expect_word(0, total);
}

/* Rules: RDA-16 */
TEST(one_counter)
{
	count(false, false);
}

/* Of rdma_rxe, atomics are such only among themselves, and only those of one device. */
static void need_cpu_atomics(void)
{
	const char *drivers[] = { getenv("DRIVER_A"), getenv("DRIVER_B") };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(drivers); i++)
		if (drivers[i] && !strcmp(drivers[i], "rxe"))
			skip("atomics of rdma_rxe are none to the CPU");
}

TEST(one_counter_and_the_cpu)
{
	need_cpu_atomics();
	count(false, true);
}

/* Rules: RDA-16 */
TEST(one_counter_from_both_ends)
{
	need_cpu_atomics();
	count(true, true);
}

TEST_HARNESS_MAIN
