// SPDX-License-Identifier: GPL-2.0
/*
 * C shims for the inline functions and macros that Rust cannot call: one call
 * each, no logic. Rust sees ferroce_helper_foo() as rdma_bindings::foo().
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

void ferroce_helper_rdma_gid2ip(struct sockaddr *out, const union ib_gid *gid)
{
	rdma_gid2ip(out, gid);
}

bool ferroce_helper_ib_device_try_get(struct ib_device *dev)
{
	return ib_device_try_get(dev);
}

void ferroce_helper_ib_mark_name_assigned_by_user(struct ib_device *dev)
{
	ib_mark_name_assigned_by_user(dev);
}

int ferroce_helper_ib_is_udata_in_empty(struct ib_udata *udata)
{
	return ib_is_udata_in_empty(udata);
}

int ferroce_helper_ib_respond_empty_udata(struct ib_udata *udata)
{
	return ib_respond_empty_udata(udata);
}

struct ib_ucontext *ferroce_helper_ib_udata_ucontext(struct ib_udata *udata)
{
	return rdma_udata_to_uverbs_attr_bundle(udata)->context;
}

struct ib_udata *ferroce_helper_uverbs_driver_udata(struct uverbs_attr_bundle *attrs)
{
	return &attrs->driver_udata;
}

struct ib_umem *ferroce_helper_ib_umem_get_va(struct ib_device *dev, unsigned long addr,
					      size_t size, int access)
{
	return ib_umem_get_va(dev, addr, size, access);
}

size_t ferroce_helper_ib_umem_num_dma_blocks(struct ib_umem *umem, unsigned long pgsz)
{
	return ib_umem_num_dma_blocks(umem, pgsz);
}

void ferroce_helper_rdma_umem_block_iter_start(struct ib_block_iter *iter,
					       struct ib_umem *umem, unsigned long pgsz)
{
	__rdma_umem_block_iter_start(iter, umem, pgsz);
}

bool ferroce_helper_rdma_umem_block_iter_next(struct ib_block_iter *iter)
{
	return __rdma_umem_block_iter_next(iter);
}

dma_addr_t ferroce_helper_rdma_block_iter_dma_address(struct ib_block_iter *iter)
{
	return rdma_block_iter_dma_address(iter);
}

enum rdma_network_type ferroce_helper_rdma_gid_attr_network_type(const struct ib_gid_attr *attr)
{
	return rdma_gid_attr_network_type(attr);
}

u16 ferroce_helper_rdma_get_udp_sport(u32 flow_label, u32 lqpn, u32 rqpn)
{
	return rdma_get_udp_sport(flow_label, lqpn, rqpn);
}

struct net *ferroce_helper_dev_net(const struct net_device *dev)
{
	return dev_net(dev);
}

bool ferroce_helper_netdev_has_link_ksettings(const struct net_device *dev)
{
	return dev->ethtool_ops->get_link_ksettings;
}

struct nlattr *ferroce_helper_nla_nest_start_noflag(struct sk_buff *skb, int attrtype)
{
	return nla_nest_start_noflag(skb, attrtype);
}

void ferroce_helper_nla_nest_end(struct sk_buff *skb, struct nlattr *start)
{
	nla_nest_end(skb, start);
}

void ferroce_helper_nla_nest_cancel(struct sk_buff *skb, struct nlattr *start)
{
	nla_nest_cancel(skb, start);
}

void ferroce_helper_vm_flags_set(struct vm_area_struct *vma, vm_flags_t flags)
{
	vm_flags_set(vma, flags);
}

/* With the operations of the file, too. */
int ferroce_helper_vma_move_to_file(struct vm_area_struct *vma, struct file *file)
{
	vma_set_file(vma, file);
	return vfs_mmap(file, vma);
}

struct file *ferroce_helper_empty_shmem_file(const struct ib_device *dev)
{
	return shmem_kernel_file_setup(dev_name(&dev->dev), 0, EMPTY_VMA_FLAGS);
}

bool ferroce_helper_virt_addr_valid(unsigned long address)
{
	return virt_addr_valid((void *)address);
}

/* A function of its own, so that no compiler reasons about bytes that a process may change. */
void ferroce_helper_copy_shared(void *to, const void *from, size_t len)
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

/* As rust/rdma/odp.rs has them: bindgen cannot tell the value of the first. */
static_assert(HMM_PFN_VALID == 1UL << (BITS_PER_LONG - 1));
static_assert((unsigned long)HMM_PFN_REQ_FAULT == HMM_PFN_VALID);
static_assert((unsigned long)HMM_PFN_REQ_WRITE == HMM_PFN_WRITE);

bool ferroce_helper_mmu_notifier_range_blockable(const struct mmu_notifier_range *range)
{
	return mmu_notifier_range_blockable(range);
}

void ferroce_helper_mmu_interval_set_seq(struct mmu_interval_notifier *notifier, unsigned long seq)
{
	mmu_interval_set_seq(notifier, seq);
}

bool ferroce_helper_mmu_interval_read_retry(struct mmu_interval_notifier *notifier,
					    unsigned long seq)
{
	return mmu_interval_read_retry(notifier, seq);
}

bool ferroce_helper_hmm_pfn_is_p2pdma(unsigned long pfn)
{
	return is_pci_p2pdma_page(hmm_pfn_to_page(pfn));
}

unsigned long ferroce_helper_hmm_pfn_address(unsigned long pfn)
{
	return (unsigned long)page_address(hmm_pfn_to_page(pfn));
}

void ferroce_helper_mark_page_dirty(unsigned long address)
{
	folio_mark_dirty(virt_to_folio((void *)address));
}

struct mem_cgroup *ferroce_helper_mem_cgroup_of_mm(struct mm_struct *mm)
{
	return get_mem_cgroup_from_mm(mm);
}

struct mem_cgroup *ferroce_helper_set_active_memcg(struct mem_cgroup *memcg)
{
	return set_active_memcg(memcg);
}

void ferroce_helper_mem_cgroup_put(struct mem_cgroup *memcg)
{
	mem_cgroup_put(memcg);
}

bool ferroce_helper_dma_buf_moves(const struct dma_buf *buffer)
{
	return buffer->ops->pin;
}

bool ferroce_helper_dma_buf_has_vmap(const struct dma_buf *buffer)
{
	return buffer->ops->vmap;
}

void *ferroce_helper_iosys_map_memory(const struct iosys_map *map)
{
	return map->is_iomem ? NULL : map->vaddr;
}

/* Persistent memory */

#include <linux/ioport.h>
#include <linux/libnvdimm.h>

bool ferroce_helper_memory_is(unsigned long address, size_t size, unsigned long desc)
{
	return region_intersects(__pa(address), size, IORESOURCE_MEM, desc) == REGION_INTERSECTS;
}

void ferroce_helper_wb_cache_pmem(void *address, size_t size)
{
	arch_wb_cache_pmem(address, size);
}

void ferroce_helper_pmem_wmb(void)
{
	pmem_wmb();
}

void ferroce_helper_cond_resched(void)
{
	cond_resched();
}

/* Locks, tables, counters */

#include <linux/bottom_half.h>
#include <linux/cpumask.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/sched/isolation.h>
#include <linux/spinlock.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

bool ferroce_helper_hold_module(void)
{
	return try_module_get(THIS_MODULE);
}

void ferroce_helper_release_module(void)
{
	module_put(THIS_MODULE);
}

void ferroce_helper_wait_for_rcu_tasks(void)
{
	synchronize_rcu_tasks();
}

unsigned long ferroce_helper_spin_lock_irqsave(spinlock_t *lock)
{
	unsigned long flags;

	spin_lock_irqsave(lock, flags);
	return flags;
}

void ferroce_helper_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags)
{
	spin_unlock_irqrestore(lock, flags);
}

bool ferroce_helper_spin_trylock_irqsave(spinlock_t *lock, unsigned long *flags)
{
	return spin_trylock_irqsave(lock, *flags);
}

/* Whether the scheduler has somebody else for this CPU, be it in a hurry or not. */
bool ferroce_helper_is_cpu_wanted(void)
{
	return need_resched() || test_thread_flag(TIF_NEED_RESCHED_LAZY);
}

/* Does nothing in a softirq. */
void ferroce_helper_give_way(void)
{
	if (in_task() && ferroce_helper_is_cpu_wanted())
		schedule();
}

/* Never true of a thread of the kernel's. */
bool ferroce_helper_is_being_killed(void)
{
	return fatal_signal_pending(current);
}

/* Whether somebody could run here but for who runs. */
bool ferroce_helper_others_wait(void)
{
	return is_idle_task(current) ? need_resched() : !single_task_running();
}

/* Likewise nothing in a softirq. */
void ferroce_helper_let_others_go_first(void)
{
	if (in_task() && !single_task_running())
		yield();
}

bool ferroce_helper_may_disable_bh(void)
{
	return !in_hardirq() && !irqs_disabled();
}

void ferroce_helper_spin_lock_bh(spinlock_t *lock)
{
	spin_lock_bh(lock);
}

void ferroce_helper_spin_unlock_bh(spinlock_t *lock)
{
	spin_unlock_bh(lock);
}

int ferroce_helper_spin_trylock_bh(spinlock_t *lock)
{
	return spin_trylock_bh(lock);
}

void ferroce_helper_local_bh_disable(void)
{
	local_bh_disable();
}

void ferroce_helper_local_bh_enable(void)
{
	local_bh_enable();
}

void ferroce_helper_this_cpu_add_u64(u64 __percpu *cell, u64 count)
{
	this_cpu_add(*cell, count);
}

u64 ferroce_helper_per_cpu_read_u64(u64 __percpu *cell, int cpu)
{
	return READ_ONCE(*per_cpu_ptr(cell, cpu));
}

bool ferroce_helper_cpu_is_possible(u32 cpu)
{
	return cpu_possible(cpu);
}

int ferroce_helper_cpumask_next_possible(int cpu)
{
	return cpumask_next(cpu, cpu_possible_mask);
}

void ferroce_helper_init_rcu_work(struct rcu_work *work, work_func_t func)
{
	INIT_RCU_WORK(work, func);
}

void ferroce_helper_xa_lock_bh(struct xarray *xa)
{
	xa_lock_bh(xa);
}

void ferroce_helper_xa_unlock_bh(struct xarray *xa)
{
	xa_unlock_bh(xa);
}

int ferroce_helper_xa_alloc_cyclic_bh(struct xarray *xa, u32 *id, void *entry,
				      struct xa_limit limit, u32 *next, gfp_t gfp)
{
	return xa_alloc_cyclic_bh(xa, id, entry, limit, next, gfp);
}

int ferroce_helper_xa_insert_bh(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp)
{
	return xa_insert_bh(xa, index, entry, gfp);
}

void *ferroce_helper_xa_store_bh(struct xarray *xa, unsigned long index, void *entry, gfp_t gfp)
{
	return xa_store_bh(xa, index, entry, gfp);
}

bool ferroce_helper_cpu_is_online(int cpu)
{
	return cpu_online(cpu);
}

int ferroce_helper_next_online_cpu(int cpu)
{
	return cpumask_next_wrap(cpu, cpu_online_mask);
}

bool ferroce_helper_queue_work_on_online(int cpu, struct workqueue_struct *queue,
					 struct work_struct *work)
{
	bool queued;

	/* No CPU goes offline meanwhile, where its items of bottom halves would warn. */
	preempt_disable();
	queued = queue_work_on(cpu_online(cpu) ? cpu : WORK_CPU_UNBOUND, queue, work);
	preempt_enable();
	return queued;
}

bool ferroce_helper_may_disturb_cpu(int cpu)
{
	return housekeeping_test_cpu(cpu, HK_TYPE_DOMAIN);
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

void ferroce_helper_dev_hold(struct net_device *dev)
{
	dev_hold(dev);
}

void ferroce_helper_dev_put(struct net_device *dev)
{
	dev_put(dev);
}

int ferroce_helper_netdev_ifindex(const struct net_device *dev)
{
	return READ_ONCE(dev->ifindex);
}

unsigned int ferroce_helper_netdev_mtu(const struct net_device *dev)
{
	return READ_ONCE(dev->mtu);
}

unsigned short ferroce_helper_netdev_type(const struct net_device *dev)
{
	return READ_ONCE(dev->type);
}

unsigned char ferroce_helper_netdev_addr_len(const struct net_device *dev)
{
	return READ_ONCE(dev->addr_len);
}

void ferroce_helper_netdev_copy_address(const struct net_device *dev, u8 *address)
{
	memcpy(address, dev->dev_addr, ETH_ALEN);
}

void ferroce_helper_netdev_copy_name(const struct net_device *dev, u8 *name)
{
	memcpy(name, dev->name, IFNAMSIZ);
}

int ferroce_helper_addrconf_ifid_eui48(u8 *eui, struct net_device *dev)
{
	return addrconf_ifid_eui48(eui, dev);
}

unsigned int ferroce_helper_netdev_headroom(const struct net_device *dev)
{
	return LL_RESERVED_SPACE(dev);
}

bool ferroce_helper_netdev_is_registered(const struct net_device *dev)
{
	return READ_ONCE(dev->reg_state) == NETREG_REGISTERED;
}

bool ferroce_helper_netif_running(const struct net_device *dev)
{
	return netif_running(dev);
}

bool ferroce_helper_netif_carrier_ok(const struct net_device *dev)
{
	return netif_carrier_ok(dev);
}

bool ferroce_helper_netdev_is_local(const struct net_device *dev)
{
	return (dev->priv_flags & IFF_NO_QUEUE) && list_empty(&dev->adj_list.lower);
}

bool ferroce_helper_is_vlan_dev(const struct net_device *dev)
{
	return is_vlan_dev(dev);
}

u16 ferroce_helper_vlan_dev_vlan_id(const struct net_device *dev)
{
	return vlan_dev_vlan_id(dev);
}

struct net_device *ferroce_helper_vlan_dev_real_dev(const struct net_device *dev)
{
	return vlan_dev_real_dev(dev);
}

struct net_device *ferroce_helper_netdev_notifier_info_to_dev(struct netdev_notifier_info *info)
{
	return netdev_notifier_info_to_dev(info);
}

struct in_device *ferroce_helper___in_dev_get_rtnl(const struct net_device *dev)
{
	return __in_dev_get_rtnl(dev);
}

struct net *ferroce_helper_dev_net_rcu(const struct net_device *dev)
{
	return dev_net_rcu(dev);
}

struct net *ferroce_helper_get_net(struct net *net)
{
	return get_net(net);
}

struct net *ferroce_helper_maybe_get_net(struct net *net)
{
	return maybe_get_net(net);
}

void ferroce_helper_put_net(struct net *net)
{
	put_net(net);
}

#ifdef CONFIG_NETFILTER_INGRESS
int ferroce_helper_nf_register_hook(struct net *net, const struct nf_hook_ops *ops)
{
	return nf_register_net_hook(net, ops);
}

void ferroce_helper_nf_unregister_hook(struct net *net, const struct nf_hook_ops *ops)
{
	nf_unregister_net_hook(net, ops);
}
#else
int ferroce_helper_nf_register_hook(struct net *net, const struct nf_hook_ops *ops)
{
	return -EOPNOTSUPP;
}

void ferroce_helper_nf_unregister_hook(struct net *net, const struct nf_hook_ops *ops)
{
}
#endif

void *ferroce_helper_net_generic(const struct net *net, unsigned int id)
{
	return net_generic(net, id);
}

int ferroce_helper_udp_sock_create(struct net *net, struct udp_port_cfg *cfg, struct socket **sock)
{
	return udp_sock_create(net, cfg, sock);
}

/*
 * A lock class of our own: the sockets are opened and closed under locks that user
 * space's sockets must not be locked under. This makes the module hold itself until
 * the socket is freed, which it need not: it closes all before it goes.
 */
void ferroce_helper_sock_reclassify(struct sock *sk)
{
#ifdef CONFIG_DEBUG_LOCK_ALLOC
	static struct lock_class_key slock, sk_lock;

	sock_lock_init_class_and_name(sk, "slock-ROCE", &slock, "sk_lock-ROCE", &sk_lock);
	sk_owner_put(sk);
	sk_owner_clear(sk);
#endif
}

void *ferroce_helper_rcu_dereference_sk_user_data(const struct sock *sk)
{
	return rcu_dereference_sk_user_data(sk);
}

bool ferroce_helper_ipv6_mod_enabled(void)
{
	return ipv6_mod_enabled();
}

#if IS_ENABLED(CONFIG_IPV6)
int ferroce_helper_ipv6_dev_addr_genid(const struct net *net)
{
	return atomic_read(&net->ipv6.dev_addr_genid);
}
#endif

bool ferroce_helper_dst_is_valid(struct dst_entry *dst, u32 cookie)
{
	return dst_check(dst, cookie);
}

#if IS_ENABLED(CONFIG_IPV6)
u32 ferroce_helper_dst_cookie6(const struct dst_entry *dst)
{
	return rt6_get_cookie(dst_rt6_info(dst));
}
#endif

struct sk_buff *ferroce_helper_skb_next(const struct sk_buff *skb)
{
	return skb->next;
}

void ferroce_helper_skb_set_next(struct sk_buff *skb, struct sk_buff *next)
{
	skb->next = next;
}

void *ferroce_helper_skb_cb(struct sk_buff *skb)
{
	return skb->cb;
}

void ferroce_helper_skb_orphan(struct sk_buff *skb)
{
	skb_orphan(skb);
}

void ferroce_helper_skb_forget_dev(struct sk_buff *skb)
{
	skb->dev = NULL;
}

void ferroce_helper_skb_dst_drop(struct sk_buff *skb)
{
	skb_dst_drop(skb);
}

unsigned int ferroce_helper_dst_headroom(const struct dst_entry *dst)
{
	return LL_RESERVED_SPACE(dst_dev_rcu(dst));
}

struct net *ferroce_helper_dst_dev_net_rcu(const struct dst_entry *dst)
{
	return dst_dev_net_rcu(dst);
}

u32 ferroce_helper_tos_to_priority(u8 tos)
{
	return rt_tos2priority(tos);
}

struct net_device *ferroce_helper_skb_dev(const struct sk_buff *skb)
{
	return skb->dev;
}

unsigned char *ferroce_helper_skb_network_header(const struct sk_buff *skb)
{
	return skb_network_header(skb);
}

struct page_pool *ferroce_helper_page_pool_for_cpu(u32 cpu, u32 order, u32 pool_size)
{
	struct page_pool_params params = {
		.order = order,
		.pool_size = pool_size,
		.nid = cpu_to_mem(cpu),
	};

	return page_pool_create_percpu(&params, cpu);
}

void *ferroce_helper_page_pool_dev_alloc_va(struct page_pool *pool, unsigned int *size)
{
	return page_pool_dev_alloc_va(pool, size);
}

void ferroce_helper_page_pool_free_va(struct page_pool *pool, void *va, bool allow_direct)
{
	page_pool_free_va(pool, va, allow_direct);
}

void ferroce_helper_skb_mark_for_recycle(struct sk_buff *skb)
{
	skb_mark_for_recycle(skb);
}

/* Appends @len bytes at @data, in one page or a compound one, whose count the skb gets. */
void ferroce_helper_skb_attach(struct sk_buff *skb, void *data, unsigned int len)
{
	struct page *page = virt_to_head_page(data);

	skb_add_rx_frag(skb, skb_shinfo(skb)->nr_frags, page, data - page_address(page), len, len);
}

void *ferroce_helper_skb_piece(const struct sk_buff *skb, unsigned int index)
{
	return skb_frag_address(&skb_shinfo(skb)->frags[index]);
}

__be16 ferroce_helper_skb_protocol(const struct sk_buff *skb)
{
	return skb->protocol;
}

u8 ferroce_helper_skb_pkt_type(const struct sk_buff *skb)
{
	return skb->pkt_type;
}

bool ferroce_helper_skb_vlan_tag_present(const struct sk_buff *skb)
{
	return skb_vlan_tag_present(skb);
}

bool ferroce_helper_skb_is_gso(const struct sk_buff *skb)
{
	return skb_is_gso(skb);
}

unsigned char *ferroce_helper_skb_mac_header(const struct sk_buff *skb)
{
	return skb_mac_header(skb);
}

struct sk_buff *ferroce_helper_skb_share_check(struct sk_buff *skb, gfp_t gfp)
{
	return skb_share_check(skb, gfp);
}

bool ferroce_helper_pskb_may_pull(struct sk_buff *skb, unsigned int len)
{
	return pskb_may_pull(skb, len);
}

int ferroce_helper_pskb_trim_rcsum(struct sk_buff *skb, unsigned int len)
{
	return pskb_trim_rcsum(skb, len);
}

/* For an skb with a UDP header over IPv6 at its start; 0 if the checksum is right. */
__sum16 ferroce_helper_udp6_checksum_validate(struct sk_buff *skb)
{
	return skb_checksum_validate(skb, IPPROTO_UDP, ip6_compute_pseudo);
}

int ferroce_helper_dev_hard_header(struct sk_buff *skb, struct net_device *dev,
				   unsigned short type, const void *daddr, unsigned int len)
{
	return dev_hard_header(skb, dev, type, daddr, NULL, len);
}

int ferroce_helper_dev_queue_xmit(struct sk_buff *skb)
{
	return dev_queue_xmit(skb);
}

void ferroce_helper_skb_set_dev(struct sk_buff *skb, struct net_device *dev, __be16 protocol)
{
	skb->dev = dev;
	skb->protocol = protocol;
}

void ferroce_helper_skb_reserve(struct sk_buff *skb, int len)
{
	skb_reserve(skb, len);
}

void ferroce_helper_skb_reset_network_header(struct sk_buff *skb)
{
	skb_reset_network_header(skb);
}

void ferroce_helper_skb_set_transport_header(struct sk_buff *skb, int offset)
{
	skb_set_transport_header(skb, offset);
}

void ferroce_helper_skb_set_flow(struct sk_buff *skb, u32 hash, u32 priority)
{
	__skb_set_sw_hash(skb, hash, true);
	skb->priority = priority;
}

/* Appends to the list of @head, which is ours alone and ends with @last, or is empty. */
void ferroce_helper_skb_append_to_list(struct sk_buff *head, struct sk_buff *last,
				       struct sk_buff *skb)
{
	if (last)
		last->next = skb;
	else
		skb_shinfo(head)->frag_list = skb;
	head->len += skb->len;
	head->data_len += skb->len;
	head->truesize += skb->truesize;
}

/* As GRO leaves a list of UDP datagrams with @size bytes each. They have no checksum. */
void ferroce_helper_skb_couple_list(struct sk_buff *head, unsigned int size, unsigned int count)
{
	struct skb_shared_info *shared = skb_shinfo(head);

	shared->gso_type = SKB_GSO_UDP_L4 | SKB_GSO_FRAGLIST;
	shared->gso_size = size;
	shared->gso_segs = count;
	/* Every layer that looks at the checksum takes one level. */
	head->ip_summed = CHECKSUM_UNNECESSARY;
	head->csum_level = SKB_MAX_CSUM_LEVEL;
}

void ferroce_helper_skb_dst_set_noref(struct sk_buff *skb, struct dst_entry *dst)
{
	skb_dst_set_noref(skb, dst);
}

void ferroce_helper_skb_set_destructor(struct sk_buff *skb, void (*destructor)(struct sk_buff *),
				       void *arg)
{
	skb_shinfo(skb)->destructor_arg = arg;
	skb->destructor = destructor;
}

void *ferroce_helper_skb_destructor_arg(const struct sk_buff *skb)
{
	return skb_shinfo(skb)->destructor_arg;
}
