// SPDX-License-Identifier: GPL-2.0
/*
 * C helpers for the inline functions and macros that Rust cannot call.
 * rust_helper_foo() is one call of foo(), which Rust sees as rdma_bindings::foo().
 *
 * There are two exceptions, each with its reason: accessors of fields that bindgen
 * cannot show to Rust, and groups of calls on the data path, where one call of a
 * helper replaces several.
 */

/* RDMA core */

#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/shmem_fs.h>
#include <linux/string.h>
#include <net/net_namespace.h>
#include <net/netlink.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_verbs.h>
#include <rdma/iter.h>
#include <rdma/uverbs_ioctl.h>

void rust_helper_rdma_gid2ip(struct sockaddr *out, const union ib_gid *gid)
{
	rdma_gid2ip(out, gid);
}

bool rust_helper_ib_device_try_get(struct ib_device *dev)
{
	return ib_device_try_get(dev);
}

struct ib_device *rust_helper_rdma_device_to_ibdev(struct device *device)
{
	return rdma_device_to_ibdev(device);
}

void rust_helper_ib_mark_name_assigned_by_user(struct ib_device *dev)
{
	ib_mark_name_assigned_by_user(dev);
}

int rust_helper_ib_is_udata_in_empty(struct ib_udata *udata)
{
	return ib_is_udata_in_empty(udata);
}

int rust_helper_ib_respond_empty_udata(struct ib_udata *udata)
{
	return ib_respond_empty_udata(udata);
}

struct uverbs_attr_bundle *
rust_helper_rdma_udata_to_uverbs_attr_bundle(struct ib_udata *udata)
{
	return rdma_udata_to_uverbs_attr_bundle(udata);
}

struct ib_umem *rust_helper_ib_umem_get_va(struct ib_device *dev, unsigned long addr,
					      size_t size, int access)
{
	return ib_umem_get_va(dev, addr, size, access);
}

size_t rust_helper_ib_umem_num_dma_blocks(struct ib_umem *umem, unsigned long pgsz)
{
	return ib_umem_num_dma_blocks(umem, pgsz);
}

void rust_helper___rdma_umem_block_iter_start(struct ib_block_iter *iter,
					       struct ib_umem *umem, unsigned long pgsz)
{
	__rdma_umem_block_iter_start(iter, umem, pgsz);
}

bool rust_helper___rdma_umem_block_iter_next(struct ib_block_iter *iter)
{
	return __rdma_umem_block_iter_next(iter);
}

dma_addr_t rust_helper_rdma_block_iter_dma_address(struct ib_block_iter *iter)
{
	return rdma_block_iter_dma_address(iter);
}

enum rdma_network_type rust_helper_rdma_gid_attr_network_type(const struct ib_gid_attr *attr)
{
	return rdma_gid_attr_network_type(attr);
}

u16 rust_helper_rdma_get_udp_sport(u32 flow_label, u32 lqpn, u32 rqpn)
{
	return rdma_get_udp_sport(flow_label, lqpn, rqpn);
}

struct net *rust_helper_dev_net(const struct net_device *dev)
{
	return dev_net(dev);
}

struct nlattr *rust_helper_nla_nest_start_noflag(struct sk_buff *skb, int attrtype)
{
	return nla_nest_start_noflag(skb, attrtype);
}

void rust_helper_nla_nest_end(struct sk_buff *skb, struct nlattr *start)
{
	nla_nest_end(skb, start);
}

void rust_helper_nla_nest_cancel(struct sk_buff *skb, struct nlattr *start)
{
	nla_nest_cancel(skb, start);
}

void rust_helper_vm_flags_set(struct vm_area_struct *vma, vm_flags_t flags)
{
	vm_flags_set(vma, flags);
}

int rust_helper_vfs_mmap(struct file *file, struct vm_area_struct *vma)
{
	return vfs_mmap(file, vma);
}

/* Without flags: EMPTY_VMA_FLAGS is a literal of C. */
struct file *rust_helper_shmem_kernel_file_setup(const char *name, loff_t size)
{
	return shmem_kernel_file_setup(name, size, EMPTY_VMA_FLAGS);
}

bool rust_helper_virt_addr_valid(unsigned long address)
{
	return virt_addr_valid((void *)address);
}

/* Not memcpy() itself, as no compiler may reason about bytes that a process may change. */
void rust_helper_memcpy(void *to, const void *from, size_t len)
{
	memcpy(to, from, len);
}

/* On-demand paging, dma-buf */

#include <linux/dma-buf.h>
#include <linux/hmm.h>
#include <linux/iosys-map.h>
#include <linux/memcontrol.h>
#include <linux/mmu_notifier.h>
#include <linux/sched/mm.h>

/* The values of rust/rdma/odp.rs. bindgen cannot compute the first one. */
static_assert(HMM_PFN_VALID == 1UL << (BITS_PER_LONG - 1));
static_assert((unsigned long)HMM_PFN_REQ_FAULT == HMM_PFN_VALID);
static_assert((unsigned long)HMM_PFN_REQ_WRITE == HMM_PFN_WRITE);

bool rust_helper_mmu_notifier_range_blockable(const struct mmu_notifier_range *range)
{
	return mmu_notifier_range_blockable(range);
}

void rust_helper_mmu_interval_set_seq(struct mmu_interval_notifier *notifier, unsigned long seq)
{
	mmu_interval_set_seq(notifier, seq);
}

bool rust_helper_mmu_interval_read_retry(struct mmu_interval_notifier *notifier,
					    unsigned long seq)
{
	return mmu_interval_read_retry(notifier, seq);
}

struct page *rust_helper_hmm_pfn_to_page(unsigned long pfn)
{
	return hmm_pfn_to_page(pfn);
}

bool rust_helper_is_pci_p2pdma_page(const struct page *page)
{
	return is_pci_p2pdma_page(page);
}

void *rust_helper_page_address(const struct page *page)
{
	return page_address(page);
}

struct folio *rust_helper_virt_to_folio(const void *address)
{
	return virt_to_folio(address);
}

struct mem_cgroup *rust_helper_get_mem_cgroup_from_mm(struct mm_struct *mm)
{
	return get_mem_cgroup_from_mm(mm);
}

struct mem_cgroup *rust_helper_set_active_memcg(struct mem_cgroup *memcg)
{
	return set_active_memcg(memcg);
}

void rust_helper_mem_cgroup_put(struct mem_cgroup *memcg)
{
	mem_cgroup_put(memcg);
}

const struct cred *rust_helper_current_cred(void)
{
	return current_cred();
}

const struct cred *rust_helper_override_creds(const struct cred *cred)
{
	return override_creds(cred);
}

const struct cred *rust_helper_revert_creds(const struct cred *cred)
{
	return revert_creds(cred);
}

/* Persistent memory */

#include <linux/ioport.h>
#include <linux/libnvdimm.h>

phys_addr_t rust_helper_virt_to_phys(const void *address)
{
	return virt_to_phys((void *)address);
}

void rust_helper_arch_wb_cache_pmem(void *address, size_t size)
{
	arch_wb_cache_pmem(address, size);
}

void rust_helper_pmem_wmb(void)
{
	pmem_wmb();
}

void rust_helper_cond_resched(void)
{
	cond_resched();
}

/* Locks, tables, counters */

#include <linux/bottom_half.h>
#include <linux/cpuhplock.h>
#include <linux/cpumask.h>
#include <linux/module.h>
#include <linux/notifier.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/sched/isolation.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

int rust_helper_notifier_from_errno(int err)
{
	return notifier_from_errno(err);
}

void rust_helper_synchronize_rcu_tasks(void)
{
	synchronize_rcu_tasks();
}

/* A function of the kernel, except in its configuration for one CPU. */
void rust_helper_synchronize_rcu_expedited(void)
{
	synchronize_rcu_expedited();
}

unsigned long rust_helper_spin_lock_irqsave(spinlock_t *lock)
{
	unsigned long flags;

	spin_lock_irqsave(lock, flags);
	return flags;
}

void rust_helper_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags)
{
	spin_unlock_irqrestore(lock, flags);
}

bool rust_helper_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags)
{
	return spin_trylock_irqsave(lock, *flags);
}

/* Reads both flags in one call, as each sent packet needs them. */
bool rust_helper_is_cpu_wanted(void)
{
	return need_resched() || test_thread_flag(TIF_NEED_RESCHED_LAZY);
}

bool rust_helper_in_task(void)
{
	return in_task();
}

int rust_helper_fatal_signal_pending(struct task_struct *task)
{
	return fatal_signal_pending(task);
}

/* Makes all checks in one call, as each sent packet needs them. */
bool rust_helper_others_wait(void)
{
	return is_idle_task(current) ? need_resched() : !single_task_running();
}

/* Makes both checks in one call, as each post of a user in the kernel needs them. */
bool rust_helper_may_disable_bh(void)
{
	return !in_hardirq() && !irqs_disabled();
}

void rust_helper_spin_lock_bh(spinlock_t *lock)
{
	spin_lock_bh(lock);
}

void rust_helper_spin_unlock_bh(spinlock_t *lock)
{
	spin_unlock_bh(lock);
}

int rust_helper_spin_trylock_bh(spinlock_t *lock)
{
	return spin_trylock_bh(lock);
}

void rust_helper_local_bh_disable(void)
{
	local_bh_disable();
}

void rust_helper_local_bh_enable(void)
{
	local_bh_enable();
}

/* For cells of 64 bits. */
void rust_helper_this_cpu_add(u64 __percpu *cell, u64 count)
{
	this_cpu_add(*cell, count);
}

void *rust_helper_per_cpu_ptr(void __percpu *ptr, int cpu)
{
	return per_cpu_ptr(ptr, cpu);
}

bool rust_helper_cpu_possible(u32 cpu)
{
	return cpu_possible(cpu);
}

unsigned int rust_helper_cpumask_next(int cpu, const struct cpumask *mask)
{
	return cpumask_next(cpu, mask);
}

void rust_helper_INIT_RCU_WORK(struct rcu_work *work, work_func_t func)
{
	INIT_RCU_WORK(work, func);
}

void rust_helper_xa_lock_bh(struct xarray *xa)
{
	xa_lock_bh(xa);
}

void rust_helper_xa_unlock_bh(struct xarray *xa)
{
	xa_unlock_bh(xa);
}

int rust_helper_xa_alloc_cyclic_bh(struct xarray *xa, u32 *id, void *entry,
				      struct xa_limit limit, u32 *next, gfp_t gfp)
{
	return xa_alloc_cyclic_bh(xa, id, entry, limit, next, gfp);
}

int rust_helper_xa_insert_bh(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp)
{
	return xa_insert_bh(xa, index, entry, gfp);
}

void *rust_helper_xa_store_bh(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp)
{
	return xa_store_bh(xa, index, entry, gfp);
}

/* The next two are functions of the kernel with CONFIG_HOTPLUG_CPU only. */

int rust_helper_cpus_read_trylock(void)
{
	return cpus_read_trylock();
}

void rust_helper_cpus_read_unlock(void)
{
	cpus_read_unlock();
}

bool rust_helper_cpu_online(int cpu)
{
	return cpu_online(cpu);
}

unsigned int rust_helper_cpumask_next_wrap(int cpu, const struct cpumask *mask)
{
	return cpumask_next_wrap(cpu, mask);
}

/* One call, as packets and doorbells queue work. */
bool rust_helper_queue_work_on_online(int cpu, struct workqueue_struct *queue,
					 struct work_struct *work)
{
	bool queued;

	/* Keeps the CPU online, as queueing bottom halves on an offline CPU would warn. */
	preempt_disable();
	queued = queue_work_on(cpu_online(cpu) ? cpu : WORK_CPU_UNBOUND, queue, work);
	preempt_enable();
	return queued;
}

bool rust_helper_housekeeping_test_cpu(int cpu, enum hk_type type)
{
	return housekeeping_test_cpu(cpu, type);
}

/* Network */

#include <linux/etherdevice.h>
#include <linux/if_vlan.h>
#include <linux/inetdevice.h>
#include <linux/ipv6.h>
#include <linux/netdevice.h>
#include <linux/netfilter_netdev.h>
#include <linux/skbuff.h>
#include <net/addrconf.h>
#include <net/dst.h>
#include <net/ip6_checksum.h>
#include <net/ip6_fib.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>
#include <net/page_pool/helpers.h>
#include <net/route.h>
#include <net/sock.h>
#include <net/udp_tunnel.h>

void rust_helper_dev_hold(struct net_device *dev)
{
	dev_hold(dev);
}

void rust_helper_dev_put(struct net_device *dev)
{
	dev_put(dev);
}

/* Fields of struct net_device, which bindgen makes opaque. */

int rust_helper_netdev_ifindex(const struct net_device *dev)
{
	return READ_ONCE(dev->ifindex);
}

unsigned int rust_helper_netdev_mtu(const struct net_device *dev)
{
	return READ_ONCE(dev->mtu);
}

unsigned short rust_helper_netdev_type(const struct net_device *dev)
{
	return READ_ONCE(dev->type);
}

unsigned char rust_helper_netdev_addr_len(const struct net_device *dev)
{
	return READ_ONCE(dev->addr_len);
}

void rust_helper_netdev_copy_address(const struct net_device *dev, u8 *address)
{
	memcpy(address, dev->dev_addr, ETH_ALEN);
}

void rust_helper_netdev_copy_name(const struct net_device *dev, u8 *name)
{
	memcpy(name, dev->name, IFNAMSIZ);
}

int rust_helper_addrconf_ifid_eui48(u8 *eui, struct net_device *dev)
{
	return addrconf_ifid_eui48(eui, dev);
}

unsigned int rust_helper_LL_RESERVED_SPACE(const struct net_device *dev)
{
	return LL_RESERVED_SPACE(dev);
}

bool rust_helper_netdev_is_registered(const struct net_device *dev)
{
	return READ_ONCE(dev->reg_state) == NETREG_REGISTERED;
}

bool rust_helper_netdev_is_moving(const struct net_device *dev)
{
	return READ_ONCE(dev->moving_ns);
}

bool rust_helper_netif_running(const struct net_device *dev)
{
	return netif_running(dev);
}

bool rust_helper_netif_carrier_ok(const struct net_device *dev)
{
	return netif_carrier_ok(dev);
}

bool rust_helper_netdev_is_local(const struct net_device *dev)
{
	return (dev->priv_flags & IFF_NO_QUEUE) && list_empty(&dev->adj_list.lower);
}

bool rust_helper_is_vlan_dev(const struct net_device *dev)
{
	return is_vlan_dev(dev);
}

u16 rust_helper_vlan_dev_vlan_id(const struct net_device *dev)
{
	return vlan_dev_vlan_id(dev);
}

struct net_device *rust_helper_vlan_dev_real_dev(const struct net_device *dev)
{
	return vlan_dev_real_dev(dev);
}

struct net_device *rust_helper_netdev_notifier_info_to_dev(struct netdev_notifier_info *info)
{
	return netdev_notifier_info_to_dev(info);
}

struct in_device *rust_helper___in_dev_get_rtnl(const struct net_device *dev)
{
	return __in_dev_get_rtnl(dev);
}

struct net *rust_helper_dev_net_rcu(const struct net_device *dev)
{
	return dev_net_rcu(dev);
}

struct net *rust_helper_get_net(struct net *net)
{
	return get_net(net);
}

struct net *rust_helper_maybe_get_net(struct net *net)
{
	return maybe_get_net(net);
}

void rust_helper_put_net(struct net *net)
{
	put_net(net);
}

void *rust_helper_net_generic(const struct net *net, unsigned int id)
{
	return net_generic(net, id);
}

int rust_helper_udp_sock_create(struct net *net, struct udp_port_cfg *cfg, struct socket **sock)
{
	return udp_sock_create(net, cfg, sock);
}

/*
 * Gives the socket of a tunnel lock classes of its own. The module opens and closes tunnels while
 * it holds locks under which user space's sockets must not be locked. The macro makes the module
 * hold itself until the socket is freed. That is not needed, because the module closes all
 * sockets before its removal, and so the hold is given back.
 */
void rust_helper_sock_reclassify(struct sock *sk)
{
#ifdef CONFIG_DEBUG_LOCK_ALLOC
	static struct lock_class_key slock, sk_lock;

	sock_lock_init_class_and_name(sk, "slock-ROCE", &slock, "sk_lock-ROCE", &sk_lock);
	sk_owner_put(sk);
	sk_owner_clear(sk);
#endif
}

void *rust_helper_rcu_dereference_sk_user_data(const struct sock *sk)
{
	return rcu_dereference_sk_user_data(sk);
}

bool rust_helper_ipv6_mod_enabled(void)
{
	return ipv6_mod_enabled();
}

#if IS_ENABLED(CONFIG_IPV6)
/* A field of struct net that bindgen shows to no crate but the kernel's own. */
int rust_helper_ipv6_dev_addr_genid(const struct net *net)
{
	return atomic_read(&net->ipv6.dev_addr_genid);
}
#endif

struct dst_entry *rust_helper_dst_check(struct dst_entry *dst, u32 cookie)
{
	return dst_check(dst, cookie);
}

#if IS_ENABLED(CONFIG_IPV6)
const struct rt6_info *rust_helper_dst_rt6_info(const struct dst_entry *dst)
{
	return dst_rt6_info(dst);
}

u32 rust_helper_rt6_get_cookie(const struct rt6_info *route)
{
	return rt6_get_cookie(route);
}

#endif

#ifndef CONFIG_TRACEPOINTS
/* Otherwise a function of the kernel, which the data path calls without a helper. */
void rust_helper_consume_skb(struct sk_buff *skb)
{
	consume_skb(skb);
}
#endif

void rust_helper_skb_orphan(struct sk_buff *skb)
{
	skb_orphan(skb);
}

u32 rust_helper_dst_mtu(const struct dst_entry *dst)
{
	return dst_mtu(dst);
}

void rust_helper_nf_reset_ct(struct sk_buff *skb)
{
	nf_reset_ct(skb);
}

void rust_helper_skb_ext_reset(struct sk_buff *skb)
{
	skb_ext_reset(skb);
}

void rust_helper_skb_set_dst_pending_confirm(struct sk_buff *skb, const u32 val)
{
	skb_set_dst_pending_confirm(skb, val);
}

void rust_helper_skb_dst_drop(struct sk_buff *skb)
{
	skb_dst_drop(skb);
}

struct net_device *rust_helper_dst_dev_rcu(const struct dst_entry *dst)
{
	return dst_dev_rcu(dst);
}

struct net *rust_helper_dst_dev_net_rcu(const struct dst_entry *dst)
{
	return dst_dev_net_rcu(dst);
}

u32 rust_helper_rt_tos2priority(u8 tos)
{
	return rt_tos2priority(tos);
}

/*
 * Fills the parameters in, because bindgen names the fields of a group differently for each
 * kernel.
 */
struct page_pool *rust_helper_page_pool_for_cpu(u32 cpu, u32 order, u32 pool_size)
{
	struct page_pool_params params = {
		.order = order,
		.pool_size = pool_size,
		.nid = cpu_to_mem(cpu),
	};

	return page_pool_create_percpu(&params, cpu);
}

void *rust_helper_page_pool_dev_alloc_va(struct page_pool *pool, unsigned int *size)
{
	return page_pool_dev_alloc_va(pool, size);
}

void rust_helper_page_pool_free_va(struct page_pool *pool, void *va, bool allow_direct)
{
	page_pool_free_va(pool, va, allow_direct);
}

void rust_helper_skb_mark_for_recycle(struct sk_buff *skb)
{
	skb_mark_for_recycle(skb);
}

/*
 * Appends @len bytes at @data, in one page or a compound page, and gives the skb the reference to
 * that page. One call, as each piece of a frame is appended, and all of these are inline functions.
 */
void rust_helper_skb_attach(struct sk_buff *skb, void *data, unsigned int len)
{
	struct page *page = virt_to_head_page(data);

	skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, page, data - page_address(page), len, len);
}

/* One call, as each piece of a frame is looked up, and both are inline functions. */
void *rust_helper_skb_piece(const struct sk_buff *skb, unsigned int index)
{
	return skb_frag_address(&skb_shinfo(skb)->frags[index]);
}

/* The list is that of the RTNL. Its head alone is read here. */
bool rust_helper_netdev_has_lower(const struct net_device *dev)
{
	return !list_empty(&dev->adj_list.lower);
}

bool rust_helper_skb_vlan_tag_present(const struct sk_buff *skb)
{
	return skb_vlan_tag_present(skb);
}

bool rust_helper_skb_is_gso(const struct sk_buff *skb)
{
	return skb_is_gso(skb);
}

unsigned char *rust_helper_skb_mac_header(const struct sk_buff *skb)
{
	return skb_mac_header(skb);
}

struct sk_buff *rust_helper_skb_share_check(struct sk_buff *skb, gfp_t gfp)
{
	return skb_share_check(skb, gfp);
}

bool rust_helper_pskb_may_pull(struct sk_buff *skb, unsigned int len)
{
	return pskb_may_pull(skb, len);
}

int rust_helper_pskb_trim_rcsum(struct sk_buff *skb, unsigned int len)
{
	return pskb_trim_rcsum(skb, len);
}

/*
 * Returns 0 if the checksum is correct, for an skb with a UDP header over IPv6 at its start. The
 * last argument is the name of a function that the macro calls.
 */
__sum16 rust_helper_skb_checksum_validate(struct sk_buff *skb)
{
	return skb_checksum_validate(skb, IPPROTO_UDP, ip6_compute_pseudo);
}

int rust_helper_dev_hard_header(struct sk_buff *skb, struct net_device *dev,
				   unsigned short type, const void *daddr, unsigned int len)
{
	return dev_hard_header(skb, dev, type, daddr, NULL, len);
}

int rust_helper_dev_queue_xmit(struct sk_buff *skb)
{
	return dev_queue_xmit(skb);
}

void rust_helper_skb_reserve(struct sk_buff *skb, int len)
{
	skb_reserve(skb, len);
}

void rust_helper_skb_reset_network_header(struct sk_buff *skb)
{
	skb_reset_network_header(skb);
}

void rust_helper_skb_set_transport_header(struct sk_buff *skb, int offset)
{
	skb_set_transport_header(skb, offset);
}

void rust_helper___skb_set_sw_hash(struct sk_buff *skb, u32 hash, bool is_l4)
{
	__skb_set_sw_hash(skb, hash, is_l4);
}

void rust_helper_skb_dst_set_noref(struct sk_buff *skb, struct dst_entry *dst)
{
	skb_dst_set_noref(skb, dst);
}
