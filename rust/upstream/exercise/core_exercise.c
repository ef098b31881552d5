// SPDX-License-Identifier: GPL-2.0
/*
 * Calls what the patches of rust/upstream/core add to the kernel, for rust/upstream/test.
 *
 * The test does so by ioctl() on /dev/core_exercise. Each command has up to two arguments, and returns
 * a value.
 */

#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/highmem.h>
#include <linux/hmm.h>
#include <linux/hrtimer.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/skbuff.h>
#include <linux/uaccess.h>
#include <rdma/ib_umem_odp.h>

struct request {
	__u64 first;
	__u64 second;
	__s64 result;
};

/* The numbers begin beyond those that every file knows. */
enum {
	ODP_GET = 0x100,/* address, length */
	ODP_MAP,	/* address, length; for writing */
	ODP_READ,	/* address; the word there */
	ODP_WRITE,	/* address, word */
	ODP_PUT,
	SOFTIRQ_START,	/* expected word, 0 to take the lock or 1 not to */
	SOFTIRQ_STOP,
	SOFTIRQ_FOUND,	/* pages that were found by the softirq */
	SOFTIRQ_FOREIGN,/* of these, the ones with an unexpected word */
	FRAME_NEW,
	FRAME_COPY,
	FRAME_FREE,	/* 0 for the frame, 1 for its copy */
	FRAME_COMPLETED,/* calls of the callback */
	FRAME_USES,	/* uses of the module */
};

/* Never registered. It has no DMA device, so its DMA is virtual. */
struct exercise_device {
	struct ib_device ib;
};

static struct exercise_device *device;
static struct ib_umem_odp *odp;
static DEFINE_MUTEX(odp_mutex);

static bool invalidate(struct mmu_interval_notifier *notifier,
		       const struct mmu_notifier_range *range, unsigned long seq)
{
	struct ib_umem_odp *umem = container_of(notifier, struct ib_umem_odp, notifier);

	if (!mmu_notifier_range_blockable(range))
		return false;
	mutex_lock(&umem->umem_mutex);
	mmu_interval_set_seq(notifier, seq);
	ib_umem_odp_unmap_dma_pages(umem, range->start, range->end);
	mutex_unlock(&umem->umem_mutex);
	return true;
}

static const struct mmu_interval_notifier_ops notifier_ops = {
	.invalidate = invalidate,
};

static long odp_get(u64 address, u64 length)
{
	struct ib_umem_odp *new;

	if (odp)
		return -EBUSY;
	new = ib_umem_odp_get(&device->ib, address, length,
			      IB_ACCESS_ON_DEMAND | IB_ACCESS_LOCAL_WRITE, &notifier_ops);
	if (IS_ERR(new))
		return PTR_ERR(new);
	odp = new;
	return 0;
}

static long odp_map(u64 address, u64 length)
{
	int mapped;

	if (!odp)
		return -ENOENT;
	mapped = ib_umem_odp_map_dma_and_lock(odp, address, length, HMM_PFN_WRITE, true);
	if (mapped >= 0)
		mutex_unlock(&odp->umem_mutex);
	return mapped;
}

static u64 *word_of(struct page *page, u64 address)
{
	return page_address(page) + (address & ~PAGE_MASK & ~7UL);
}

static long odp_access(u64 address, u64 *word, bool write)
{
	struct page *page;

	if (!odp)
		return -ENOENT;
	spin_lock_bh(&odp->pfn_lock);
	page = ib_umem_odp_lookup(odp, address, write ? HMM_PFN_WRITE : 0);
	if (page && write)
		*word_of(page, address) = *word;
	else if (page)
		*word = *word_of(page, address);
	spin_unlock_bh(&odp->pfn_lock);
	return page ? 0 : -EFAULT;
}

static long odp_put(void)
{
	if (!odp)
		return -ENOENT;
	ib_umem_odp_release(odp);
	odp = NULL;
	return 0;
}

/* ---- lookups in softirq context -------------------------------------------- */

#define SOFTIRQ_NS (200 * NSEC_PER_USEC)
/* The time for which a page is in use. If it is not protected, others may get it meanwhile. */
#define SOFTIRQ_USE_US 50

static struct hrtimer timer;
static bool timer_runs;
static u64 expected;
static bool without_lock;
static u64 found, foreign, next_page;

static struct page *look_up(u64 address)
{
	unsigned long pfn;

	if (!without_lock)
		return ib_umem_odp_lookup(odp, address, 0);
	pfn = READ_ONCE(odp->map.pfn_list[(address - ib_umem_start(odp)) >> PAGE_SHIFT]);
	return pfn & HMM_PFN_VALID ? hmm_pfn_to_page(pfn) : NULL;
}

static enum hrtimer_restart on_timer(struct hrtimer *timer)
{
	u64 address = ib_umem_start(odp) + (next_page++ % ib_umem_odp_num_pages(odp)) * PAGE_SIZE;
	struct page *page;

	if (!without_lock)
		spin_lock(&odp->pfn_lock);
	page = look_up(address);
	if (page) {
		u64 word;

		udelay(SOFTIRQ_USE_US);
		word = READ_ONCE(*word_of(page, address));
		found++;
		foreign += word && word != expected;
	}
	if (!without_lock)
		spin_unlock(&odp->pfn_lock);
	hrtimer_forward_now(timer, ns_to_ktime(SOFTIRQ_NS));
	return HRTIMER_RESTART;
}

static long softirq_start(u64 word, bool no_lock)
{
	if (!odp || timer_runs)
		return -EINVAL;
	expected = word;
	without_lock = no_lock;
	found = 0;
	foreign = 0;
	timer_runs = true;
	hrtimer_start(&timer, ns_to_ktime(SOFTIRQ_NS), HRTIMER_MODE_REL_PINNED_SOFT);
	return 0;
}

static long softirq_stop(void)
{
	hrtimer_cancel(&timer);
	timer_runs = false;
	return 0;
}

/* ---- frames ---------------------------------------------------------------- */

static struct ubuf_info ubuf;
static struct sk_buff *frames[2];
static atomic_t completed;

static void on_complete(struct sk_buff *skb, struct ubuf_info *uarg, bool success)
{
	atomic_inc(&completed);
	refcount_dec(&uarg->refcnt);
}

static const struct ubuf_info_ops ubuf_ops = {
	.owner = THIS_MODULE,
	.complete = on_complete,
};

static long frame_new(void)
{
	struct sk_buff *skb;
	struct page *page;

	if (frames[0] || frames[1])
		return -EBUSY;
	skb = alloc_skb(256, GFP_KERNEL);
	page = alloc_page(GFP_KERNEL);
	if (!skb || !page || !try_module_get(THIS_MODULE)) {
		kfree_skb(skb);
		if (page)
			__free_page(page);
		return -ENOMEM;
	}
	/* Only copies with fragments share the ubuf_info. */
	skb_add_rx_frag(skb, 0, page, 0, 64, PAGE_SIZE);
	ubuf.ops = &ubuf_ops;
	ubuf.flags = SKBFL_ZEROCOPY_FRAG | SKBFL_DONT_ORPHAN;
	/* One more than there are frames, as it is not freed. */
	refcount_set(&ubuf.refcnt, 2);
	skb_zcopy_init(skb, &ubuf);
	atomic_set(&completed, 0);
	frames[0] = skb;
	return 0;
}

static long frame_copy(void)
{
	if (!frames[0] || frames[1])
		return -EINVAL;
	frames[1] = pskb_copy(frames[0], GFP_KERNEL);
	return frames[1] ? 0 : -ENOMEM;
}

static long frame_free(u64 which)
{
	if (which > 1 || !frames[which])
		return -EINVAL;
	kfree_skb(frames[which]);
	frames[which] = NULL;
	return 0;
}

/* ---- the device node ------------------------------------------------------- */

static long run(unsigned int command, struct request *request)
{
	switch (command) {
	case ODP_GET:
		return odp_get(request->first, request->second);
	case ODP_READ:
		return odp_access(request->first, &request->second, false);
	case ODP_WRITE:
		return odp_access(request->first, &request->second, true);
	case ODP_PUT:
		return odp_put();
	case SOFTIRQ_START:
		return softirq_start(request->first, request->second);
	case SOFTIRQ_STOP:
		return softirq_stop();
	case SOFTIRQ_FOUND:
		return found;
	case SOFTIRQ_FOREIGN:
		return foreign;
	case FRAME_NEW:
		return frame_new();
	case FRAME_COPY:
		return frame_copy();
	case FRAME_FREE:
		return frame_free(request->first);
	case FRAME_COMPLETED:
		return atomic_read(&completed);
	case FRAME_USES:
		return module_refcount(THIS_MODULE);
	default:
		return -ENOTTY;
	}
}

static long on_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct request __user *user = (void __user *)argument;
	struct request request;

	if (copy_from_user(&request, user, sizeof(request)))
		return -EFAULT;
	/* Invalidations run during this one, and other commands. */
	if (command == ODP_MAP) {
		request.result = odp_map(request.first, request.second);
	} else {
		mutex_lock(&odp_mutex);
		request.result = run(command, &request);
		mutex_unlock(&odp_mutex);
	}
	return copy_to_user(user, &request, sizeof(request)) ? -EFAULT : 0;
}

static const struct file_operations file_ops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = on_ioctl,
};

static struct miscdevice misc = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "core_exercise",
	.fops = &file_ops,
};

static int __init core_exercise_init(void)
{
	int error;

	hrtimer_setup(&timer, on_timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_SOFT);
	device = ib_alloc_device(exercise_device, ib);
	if (!device)
		return -ENOMEM;
	error = misc_register(&misc);
	if (error)
		ib_dealloc_device(&device->ib);
	return error;
}
module_init(core_exercise_init);

static void __exit core_exercise_exit(void)
{
	misc_deregister(&misc);
	softirq_stop();
	odp_put();
	ib_dealloc_device(&device->ib);
}
module_exit(core_exercise_exit);

MODULE_DESCRIPTION("Calls what patches add to the kernel");
MODULE_LICENSE("GPL");
