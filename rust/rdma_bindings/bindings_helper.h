/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The headers from which bindgen makes the `rdma_bindings` crate: all of RDMA, and the parts of the
 * network and memory layers that the kernel's own `bindings` crate lacks.
 * bindgen_parameters lists the items that are used.
 */

#include <linux/crc32.h>
#include <linux/delay.h>
#include <linux/device.h>
#include <linux/dma-buf.h>
#include <linux/dma-mapping.h>
#include <linux/ethtool.h>
#include <linux/hmm.h>
#include <linux/if_arp.h>
#include <linux/if_vlan.h>
#include <linux/igmp.h>
#include <linux/inetdevice.h>
#include <linux/ioport.h>
#include <linux/iosys-map.h>
#include <linux/memcontrol.h>
#include <linux/mm.h>
#include <linux/mmu_notifier.h>
#include <linux/netdevice.h>
#include <linux/netfilter_netdev.h>
#include <linux/notifier.h>
#include <linux/percpu.h>
#include <linux/rcupdate.h>
#include <linux/rtnetlink.h>
#include <linux/sched/isolation.h>
#include <linux/sched/stat.h>
#include <linux/skbuff.h>
#include <linux/udp.h>
#include <linux/vmalloc.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>

#include <net/addrconf.h>
#include <net/dst_cache.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/ip6_tunnel.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>
#include <net/page_pool/helpers.h>
#include <net/route.h>
#include <net/udp.h>
#include <net/udp_tunnel.h>

#include <rdma/ib_addr.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_mad.h>
#include <rdma/ib_pma.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_umem_odp.h>
#include <rdma/ib_verbs.h>
#include <rdma/iter.h>
#include <rdma/rdma_counter.h>
#include <rdma/rdma_netlink.h>
#include <rdma/restrack.h>
#include <rdma/uverbs_ioctl.h>

#include <uapi/rdma/ib_user_verbs.h>
#include <uapi/rdma/rdma_user_rxe.h>
/* Values of macros and enums, as numbers. The build removes the prefix from bindgen's names. */
const int RUST_CONST_HELPER_FERROCE_HRTIMER_NORESTART = HRTIMER_NORESTART;
const unsigned int RUST_CONST_HELPER_SMP_CACHE_BYTES = SMP_CACHE_BYTES;
const unsigned int RUST_CONST_HELPER_SKB_OVERHEAD = SKB_DATA_ALIGN(sizeof(struct skb_shared_info));
const u8 RUST_CONST_HELPER_FERROCE_NFPROTO_NETDEV = NFPROTO_NETDEV;
const unsigned int RUST_CONST_HELPER_FERROCE_NF_NETDEV_INGRESS = NF_NETDEV_INGRESS;
const gfp_t RUST_CONST_HELPER_FERROCE_XA_FLAGS_ACCOUNT = XA_FLAGS_ACCOUNT;
const xa_mark_t RUST_CONST_HELPER_FERROCE_XA_MARK_1 = XA_MARK_1;
const gfp_t RUST_CONST_HELPER_FERROCE_GFP_RETRY_MAYFAIL = __GFP_RETRY_MAYFAIL;
const u64 RUST_CONST_HELPER_FERROCE_NETIF_F_SG = NETIF_F_SG;
const size_t RUST_CONST_HELPER_FERROCE_HMM_PFN_WRITE = HMM_PFN_WRITE;
const size_t RUST_CONST_HELPER_FERROCE_HMM_PFN_ERROR = HMM_PFN_ERROR;
const unsigned int RUST_CONST_HELPER_FERROCE_FAULT_FLAG_WRITE = FAULT_FLAG_WRITE;
/* The fault may release the lock of the memory map, once. */
const unsigned int RUST_CONST_HELPER_FERROCE_FAULT_FLAGS =
	FAULT_FLAG_REMOTE | FAULT_FLAG_ALLOW_RETRY | FAULT_FLAG_KILLABLE;
const unsigned int RUST_CONST_HELPER_FERROCE_FAULT_FLAG_TRIED = FAULT_FLAG_TRIED;
const unsigned int RUST_CONST_HELPER_FERROCE_FAULT_FLAG_RETRY_NOWAIT = FAULT_FLAG_RETRY_NOWAIT;
const unsigned int RUST_CONST_HELPER_FERROCE_VM_FAULT_UNLOCKED = VM_FAULT_RETRY | VM_FAULT_COMPLETED;
const unsigned int RUST_CONST_HELPER_FERROCE_VM_FAULT_OOM = VM_FAULT_OOM;
const unsigned int RUST_CONST_HELPER_FERROCE_VM_FAULT_ERROR = VM_FAULT_ERROR;
const vm_flags_t RUST_CONST_HELPER_FERROCE_VM_SHADOW_STACK = VM_SHADOW_STACK;
const unsigned long RUST_CONST_HELPER_FERROCE_PERSISTENT_MEMORY = IORES_DESC_PERSISTENT_MEMORY;
const unsigned long RUST_CONST_HELPER_FERROCE_PERSISTENT_MEMORY_LEGACY =
	IORES_DESC_PERSISTENT_MEMORY_LEGACY;
