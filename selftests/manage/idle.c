// SPDX-License-Identifier: GPL-2.0
/*
 * Queue pairs that have nothing to do cost nothing: many of them in each state, and what timers and
 * work items of the driver ran meanwhile, as the kernel's tracing tells it, and how busy the CPUs were.
 *
 *	idle COUNT MODULE
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../lib/ud.h"

#define QKEY 0x11111111

/* How long is measured. */
#define MEASURE_MS 3000
/* Whatever is done once is done by then; in ERR the library may post for a while. */
#define SETTLE_MS 500
#define SETTLE_ERR_MS 2500
/* How often it is looked at again, as others may have been busy. */
#define LOOKS 3

/* What the driver may do in a second for all of them. */
#define MOST_RUNS 4
/*
 * By how much of all CPUs' time more they may be busy, in thousandths.  One look a second at 10,000 in
 * ERR takes 8 of two emulated CPUs, and up to twice as many where others want the host's.
 */
#define MOST_BUSY 25

static unsigned int count;
static const char *module;
static bool has_failed;

/* ---- tracing ----------------------------------------------------------- */

#define TRACING "/sys/kernel/tracing/instances/idle"

/* Where the kernel calls a driver without anybody asking. */
static const char *const events[] = {
	"timer/hrtimer_expire_entry", "timer/timer_expire_entry", "workqueue/workqueue_execute_start",
	"irq/tasklet_entry",
};

static void put(const char *path, const char *text)
{
	int file = open(path, O_WRONLY | O_TRUNC);

	require(file >= 0, "%s: %s", path, strerror(errno));
	require_sys(write(file, text, strlen(text)));
	close(file);
}

static void trace(const char *what, const char *text)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", TRACING, what);
	put(path, text);
}

static void tracing_up(void)
{
	char name[128];
	size_t i;

	require(!mkdir(TRACING, 0700) || errno == EEXIST, "no tracing: %s", strerror(errno));
	trace("tracing_on", "0");
	for (i = 0; i < ARRAY_SIZE(events); i++) {
		snprintf(name, sizeof(name), "events/%s/enable", events[i]);
		trace(name, "1");
	}
}

static void tracing_down(void)
{
	require_sys(rmdir(TRACING));
}

/* How many runs of the module's functions were traced; the first few are shown. */
static unsigned int traced_runs(void)
{
	FILE *file = fopen(TRACING "/trace", "r");
	unsigned int runs = 0, shown = 0;
	char line[512], tag[64];

	require(file, "trace: %s", strerror(errno));
	snprintf(tag, sizeof(tag), "[%s]", module);
	while (fgets(line, sizeof(line), file)) {
		if (!strstr(line, tag))
			continue;
		runs++;
		if (shown++ < 3)
			printf("%s", line);
	}
	fclose(file);
	return runs;
}

/* ---- what is measured -------------------------------------------------- */

struct sample {
	double runs;		/* in a second */
	long busy;		/* thousandths of all CPUs' time */
	long softirqs;
};

struct times {
	unsigned long long busy, all, softirqs;
};

static struct times read_times(void)
{
	FILE *file = fopen("/proc/stat", "r");
	struct times times = {};
	unsigned long long value;
	char line[4096];
	int field;

	require(file && fgets(line, sizeof(line), file), "/proc/stat: %s", strerror(errno));
	/* user nice system idle iowait irq softirq steal */
	for (field = 0, strtok(line, " "); field < 8; field++) {
		value = strtoull(strtok(NULL, " "), NULL, 10);
		times.all += value;
		if (field != 3 && field != 4 && field != 7)
			times.busy += value;
	}
	while (fgets(line, sizeof(line), file))
		sscanf(line, "softirq %llu", &times.softirqs);
	fclose(file);
	return times;
}

static struct sample look(void)
{
	struct sample sample;
	struct times before, after;
	int64_t begin;

	trace("trace", "");
	trace("tracing_on", "1");
	before = read_times();
	begin = now_ns();
	usleep(MEASURE_MS * 1000);
	sample.runs = (now_ns() - begin) / 1e9;
	after = read_times();
	trace("tracing_on", "0");
	sample.busy = (after.busy - before.busy) * 1000 / (after.all - before.all);
	sample.softirqs = after.softirqs - before.softirqs;
	sample.runs = traced_runs() / sample.runs;
	return sample;
}

static struct sample alone;

static bool is_good(const struct sample *sample)
{
	return sample->runs <= MOST_RUNS && sample->busy <= alone.busy + MOST_BUSY;
}

/* Whatever goes on for ever does so in each look; of much one is enough. */
static void measure(const char *state, int settle_ms)
{
	struct sample sample;
	int looks = 0;

	usleep(settle_ms * 1000 * time_scale());
	do {
		sample = look();
		note("%s: %.1f runs a second, CPUs busy %ld.%ld%%, %ld softirqs", state, sample.runs,
		     sample.busy / 10, sample.busy % 10, sample.softirqs);
		if (is_good(&sample))
			return;
	} while (++looks < LOOKS && sample.runs < 100 * MOST_RUNS);
	note("too much: %s", state);
	has_failed = true;
}

/* ---- queue pairs ------------------------------------------------------- */

static struct rc_plan plan;
static struct rc *rcs;
static struct ibv_cq *cq;
static struct ibv_srq *srq;

static bool is_ud(unsigned int i) { return i % 3 == 2; }
static bool is_uc(unsigned int i) { return i % 3 == 1; }
static bool has_srq(unsigned int i) { return i % 6 >= 3 && !is_uc(i); }

static void set_up(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 64, .max_sge = 1 } };

	name_ends_from_environment();
	open_ends();
	plan = default_plan;
	plan.cap = (struct ibv_qp_cap){
		.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1,
	};
	cq = ibv_create_cq(ends[0].context, 32767, NULL, NULL, 0);
	require(cq, "ibv_create_cq: %s", strerror(errno));
	srq = ibv_create_srq(ends[0].pd, &init);
	require(srq, "ibv_create_srq: %s", strerror(errno));
	rcs = xcalloc(count, sizeof(*rcs));
}

static void create(unsigned int i)
{
	struct ibv_qp_init_attr init = {
		.cap = plan.cap, .send_cq = cq, .recv_cq = cq,
		.qp_type = is_ud(i) ? IBV_QPT_UD : is_uc(i) ? IBV_QPT_UC : IBV_QPT_RC,
		.srq = has_srq(i) ? srq : NULL,
	};

	rcs[i].end = &ends[0];
	rcs[i].scq = rcs[i].rcq = cq;
	rcs[i].psn = 0xfffff0;
	rcs[i].qp = ibv_create_qp(ends[0].pd, &init);
	require(rcs[i].qp, "ibv_create_qp %u: %s", i, strerror(errno));
}

/* Itself, or one of its kind. */
static struct rc_address peer_of(unsigned int i)
{
	unsigned int other = i / 6 % 2 ? i - 6 : i + 6;

	return rc_address(&rcs[i % 2 && other < count ? other : i]);
}

static void step_ud(struct rc *ud, enum ibv_qp_state to)
{
	struct ibv_qp_attr attr = {
		.qp_state = to, .port_num = PORT, .qkey = QKEY, .sq_psn = ud->psn,
	};
	int mask = IBV_QP_STATE;

	if (to == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
	if (to == IBV_QPS_RTS)
		mask |= IBV_QP_SQ_PSN;
	require_ok(ibv_modify_qp(ud->qp, &attr, mask));
}

static void step(unsigned int i, enum ibv_qp_state to)
{
	struct rc_address peer = peer_of(i);

	plan.unreliable = is_uc(i);
	if (is_ud(i))
		step_ud(&rcs[i], to);
	else
		rc_modify(&rcs[i], to, &peer, &plan);
}

static void for_each(void (*run)(unsigned int i))
{
	unsigned int i;

	for (i = 0; i < count; i++)
		run(i);
}

static void to_reset(unsigned int i) { step(i, IBV_QPS_RESET); }
static void to_init(unsigned int i) { step(i, IBV_QPS_INIT); }
static void to_rtr(unsigned int i) { step(i, IBV_QPS_RTR); }
static void to_rts(unsigned int i) { step(i, IBV_QPS_RTS); }
static void to_sqd(unsigned int i) { step(i, IBV_QPS_SQD); }
static void to_err(unsigned int i) { step(i, IBV_QPS_ERR); }

/* Back where it can fail; RC stays there. */
static void back_to_rts(unsigned int i)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTS };

	require_ok(ibv_modify_qp(rcs[i].qp, &attr, IBV_QP_STATE));
}

static void connect_again(unsigned int i)
{
	to_reset(i);
	to_init(i);
	to_rtr(i);
	to_rts(i);
}

static void poll_all(void)
{
	struct ibv_wc wc[64];

	while (ibv_poll_cq(cq, ARRAY_SIZE(wc), wc) > 0)
		;
}

/* An empty message, which is acknowledged if there is somebody to do so. */
static void used(unsigned int i)
{
	struct ibv_wc wc;

	if (is_ud(i))
		return;
	post_send(&rcs[i], 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, NULL, 0, 0);
	require(poll_within(cq, &wc, SOON_MS) && wc.status == IBV_WC_SUCCESS, "an empty WRITE: %s",
		ibv_wc_status_str(wc.status));
}

/* From memory that is nobody's: the send queue fails alone. */
static void to_sqe(unsigned int i)
{
	static char bytes[8];
	static struct ibv_ah *ah;
	struct ibv_sge sge = { .addr = (uintptr_t)bytes, .length = sizeof(bytes), .lkey = 0xabcdef };
	struct ibv_wc wc;

	if (!is_ud(i) && !is_uc(i))
		return;
	if (!ah)
		ah = ah_create(&ends[0], &ends[0]);
	if (is_ud(i))
		require_ok(ud_post(&rcs[i], ah, rcs[i].qp->qp_num, QKEY, 1, IBV_SEND_SIGNALED, &sge));
	else
		post_send(&rcs[i], 1, IBV_WR_SEND, IBV_SEND_SIGNALED, &sge, 0, 0);
	require(poll_within(cq, &wc, SOON_MS) && wc.status == IBV_WC_LOC_PROT_ERR, "no error: %s",
		ibv_wc_status_str(wc.status));
	if (i < 100)
		require(rc_state(&rcs[i]) == IBV_QPS_SQE, "not in SQE");
}

/* With something to flush. */
static void to_err_with_work(unsigned int i)
{
	connect_again(i);
	if (!has_srq(i))
		post_recv(&rcs[i], 2, NULL);
	step(i, IBV_QPS_SQD);
	if (!is_ud(i))
		post_send(&rcs[i], 3, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, NULL, 0, 0);
	to_err(i);
	poll_all();
}

/* Receives that are posted without a system call, one for each kind. */
static void flushes_within(int limit_ms)
{
	int64_t begin = now_ns();
	unsigned int kind, i;
	struct ibv_wc wc;

	poll_all();
	for (kind = 0; kind < 3; kind++) {
		for (i = count - 1 - kind; has_srq(i); i -= 3)
			;
		post_recv(&rcs[i], 7, NULL);
	}
	for (kind = 0; kind < 3; kind++) {
		wc = expect_wc(cq, 7, IBV_WC_WR_FLUSH_ERR, limit_ms * time_scale());
		note("%#x: a receive is flushed after %lld ms", wc.qp_num,
		     (long long)(now_ns() - begin) / NS_PER_MS);
	}
}

static void report(const char *what, int64_t begin)
{
	note("%s: %lld ms", what, (long long)(now_ns() - begin) / NS_PER_MS);
}

/* Takes all of them to a state, and looks. */
static void all(const char *state, void (*run)(unsigned int i))
{
	int64_t begin = now_ns();

	for_each(run);
	report(state, begin);
	measure(state, run == to_err_with_work ? SETTLE_ERR_MS : SETTLE_MS);
}

static void errors(void)
{
	int64_t begin;

	for_each(connect_again);
	for_each(to_err);
	begin = now_ns();
	usleep(100000);
	flushes_within(500);
	measure("ERR", SETTLE_ERR_MS);
	while (now_ns() < begin + 10 * NS_PER_S)
		usleep(100000);
	flushes_within(3000);
	all("ERR, flushed", to_err_with_work);
}

int main(int argc, char **argv)
{
	require(argc == 3, "usage: idle COUNT MODULE");
	count = strtoul(argv[1], NULL, 0);
	module = argv[2];
	tracing_up();
	set_up();
	usleep(SETTLE_MS * 1000);
	alone = look();
	note("none: %.1f runs a second, CPUs busy %ld.%ld%%, %ld softirqs", alone.runs,
	     alone.busy / 10, alone.busy % 10, alone.softirqs);
	all("RESET", create);
	all("INIT", to_init);
	all("RTR", to_rtr);
	all("RTS", to_rts);
	all("RTS, used", used);
	all("SQD", to_sqd);
	for_each(back_to_rts);
	all("SQE", to_sqe);
	errors();
	tracing_down();
	require(!has_failed, "idle queue pairs cost something");
	return 0;
}
