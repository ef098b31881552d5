// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/debug/kverbs/list names the tests.  Who writes
 *
 *	TEST CONTEXT DEVICE DEVICE
 *
 * to .../run has one run: CONTEXT is direct, softirq or workqueue.  The write fails
 * when the test does, and .../log says why.
 */

#include <linux/cleanup.h>
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <rdma/ib_verbs.h>

#include "kverbs_test.h"

static struct dentry *directory;
static DEFINE_MUTEX(lock);
static char log[4096];
static size_t log_length;

int fail_at(const char *file, int line, const char *format, ...)
{
	va_list arguments;

	log_length += scnprintf(log + log_length, sizeof(log) - log_length, "%s:%d: ", file, line);
	va_start(arguments, format);
	log_length += vscnprintf(log + log_length, sizeof(log) - log_length, format, arguments);
	va_end(arguments);
	log_length += scnprintf(log + log_length, sizeof(log) - log_length, "\n");
	return -EINVAL;
}

/* The devices that there are; a test holds the lock, so none goes meanwhile. */
static struct ib_device *devices[8];

static int client_add(struct ib_device *device)
{
	int i;

	guard(mutex)(&lock);
	for (i = 0; i < ARRAY_SIZE(devices); i++) {
		if (!devices[i]) {
			devices[i] = device;
			return 0;
		}
	}
	return -ENOSPC;
}

static void client_remove(struct ib_device *device, void *data)
{
	int i;

	guard(mutex)(&lock);
	for (i = 0; i < ARRAY_SIZE(devices); i++)
		if (devices[i] == device)
			devices[i] = NULL;
}

static struct ib_device *device_named(const char *name)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(devices); i++)
		if (devices[i] && !strcmp(dev_name(&devices[i]->dev), name))
			return devices[i];
	return NULL;
}

static struct ib_client client = {
	.name = "kverbs",
	.add = client_add,
	.remove = client_remove,
};

static const struct test *const suites[] = { datagram_tests, connected_tests, gaps_tests };

static const struct test *find(const char *name)
{
	const struct test *test;
	int i;

	for (i = 0; i < ARRAY_SIZE(suites); i++)
		for (test = suites[i]; test->name; test++)
			if (!strcmp(test->name, name))
				return test;
	return NULL;
}

static int run_pair(const struct test *test, struct ib_device *left, struct ib_device *right,
		    enum ib_poll_context context)
{
	struct pair *pair = kzalloc(sizeof(*pair), GFP_KERNEL);
	int error;

	if (!pair)
		return -ENOMEM;
	error = end_open(&pair->a, left, context, &test->wish);
	if (!error)
		error = end_open(&pair->b, right, context, &test->wish);
	if (!error && !test->wish.unconnected)
		error = pair_connect(pair);
	if (!error)
		error = test->run(pair);
	end_close(&pair->b);
	end_close(&pair->a);
	kfree(pair);
	return error;
}

static int context_named(const char *name)
{
	if (!strcmp(name, "direct"))
		return IB_POLL_DIRECT;
	if (!strcmp(name, "softirq"))
		return IB_POLL_SOFTIRQ;
	if (!strcmp(name, "workqueue"))
		return IB_POLL_WORKQUEUE;
	return -EINVAL;
}

static int run(const char *name, const char *context, const char *left, const char *right)
{
	const struct test *test = find(name);
	int poll = context_named(context);
	struct ib_device *a = device_named(left), *b = device_named(right);

	if (!test || poll < 0 || !a || !b)
		return fail("no such test: %s %s %s %s", name, context, left, right);
	return run_pair(test, a, b, poll);
}

static ssize_t run_write(struct file *file, const char __user *bytes, size_t count, loff_t *at)
{
	char line[256], *word[4], *rest = line;
	int i, error;

	if (count >= sizeof(line) || copy_from_user(line, bytes, count))
		return -EINVAL;
	line[count] = '\0';
	rest = strim(line);
	for (i = 0; i < ARRAY_SIZE(word); i++) {
		word[i] = strsep(&rest, " ");
		if (!word[i])
			return -EINVAL;
	}
	mutex_lock(&lock);
	log_length = 0;
	error = run(word[0], word[1], word[2], word[3]);
	mutex_unlock(&lock);
	return error ?: count;
}

static ssize_t log_read(struct file *file, char __user *bytes, size_t count, loff_t *at)
{
	ssize_t done;

	mutex_lock(&lock);
	done = simple_read_from_buffer(bytes, count, at, log, log_length);
	mutex_unlock(&lock);
	return done;
}

static int list_show(struct seq_file *out, void *data)
{
	const struct test *test;
	int i;

	for (i = 0; i < ARRAY_SIZE(suites); i++)
		for (test = suites[i]; test->name; test++)
			seq_printf(out, "%s\n", test->name);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(list);

static const struct file_operations run_fops = {
	.owner = THIS_MODULE,
	.write = run_write,
};

static const struct file_operations log_fops = {
	.owner = THIS_MODULE,
	.read = log_read,
};

static int __init kverbs_init(void)
{
	int error = ib_register_client(&client);

	if (error)
		return error;
	directory = debugfs_create_dir("kverbs", NULL);
	debugfs_create_file("run", 0200, directory, NULL, &run_fops);
	debugfs_create_file("log", 0400, directory, NULL, &log_fops);
	debugfs_create_file("list", 0400, directory, NULL, &list_fops);
	return 0;
}
module_init(kverbs_init);

static void __exit kverbs_exit(void)
{
	debugfs_remove(directory);
	ib_unregister_client(&client);
}
module_exit(kverbs_exit);

MODULE_DESCRIPTION("Tests of kernel verbs");
MODULE_LICENSE("GPL");
