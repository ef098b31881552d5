// SPDX-License-Identifier: GPL-2.0
/*
 * Resolves addresses again and again while rust/upstream/test removes the device.
 *
 * Loading the module takes as many milliseconds as its parameter says. The other parameters then tell
 * what has happened.
 */

#include <linux/delay.h>
#include <linux/in.h>
#include <linux/inet.h>
#include <linux/jiffies.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <net/net_namespace.h>
#include <rdma/rdma_cm.h>

static char *from = "10.9.0.1";
module_param(from, charp, 0444);
static char *to = "10.9.0.2";
module_param(to, charp, 0444);
static uint ms = 1000;
module_param(ms, uint, 0444);

static atomic_t good_count, no_device_count, raced_count;

static uint good;
module_param(good, uint, 0444);
static uint no_device;
module_param(no_device, uint, 0444);
/* The device was removed after the ID had been bound to it. */
static uint raced;
module_param(raced, uint, 0444);
static int raced_error;
module_param(raced_error, int, 0444);

static int on_event(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	return 0;
}

static int resolve_once(void)
{
	struct sockaddr_in source = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = in_aton(from),
	};
	struct sockaddr_in destination = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = in_aton(to),
		.sin_port = htons(4791),
	};
	struct rdma_cm_id *id;
	int error;

	id = rdma_create_id(&init_net, on_event, NULL, RDMA_PS_TCP, IB_QPT_RC);
	if (IS_ERR(id))
		return PTR_ERR(id);
	error = rdma_resolve_addr(id, (struct sockaddr *)&source,
				  (struct sockaddr *)&destination, 100);
	if (!error) {
		atomic_inc(&good_count);
	} else if (id->device) {
		atomic_inc(&raced_count);
		raced_error = error;
	} else {
		atomic_inc(&no_device_count);
	}
	rdma_destroy_id(id);
	return 0;
}

/* All wait for the same mutex, half of them while they are bound to the device. */
#define THREADS 16

static int resolve(void *end)
{
	int error = 0;

	while (!error && time_before(jiffies, (unsigned long)end)) {
		error = resolve_once();
		cond_resched();
	}
	while (!kthread_should_stop())
		schedule_timeout_interruptible(1);
	return error;
}

static int __init cma_race_init(void)
{
	unsigned long end = jiffies + msecs_to_jiffies(ms);
	struct task_struct *threads[THREADS];
	int i, error = 0;

	for (i = 0; i < THREADS; i++) {
		threads[i] = kthread_run(resolve, (void *)end, "cma_race/%d", i);
		if (IS_ERR(threads[i])) {
			error = PTR_ERR(threads[i]);
			break;
		}
	}
	msleep(ms);
	while (i-- > 0)
		error = kthread_stop(threads[i]) ?: error;
	good = atomic_read(&good_count);
	no_device = atomic_read(&no_device_count);
	raced = atomic_read(&raced_count);
	return error;
}
module_init(cma_race_init);

static void __exit cma_race_exit(void)
{
}
module_exit(cma_race_exit);

MODULE_DESCRIPTION("Resolves addresses while a device is removed");
MODULE_LICENSE("GPL");
