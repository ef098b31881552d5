// SPDX-License-Identifier: GPL-2.0

//! Numbers of the core, and layouts of the structures that a provider of rdma-core shares with a driver,
//! as the kernel's headers have them.
//!
//! A driver that has these numbers of its own compares them. Nothing of this is in the module.

use core::mem::{
    offset_of,
    size_of, //
};
use rdma_bindings as bindings;

/// Offsets in `struct rxe_send_wqe` and the `struct rxe_send_wr` at its start.
pub mod send_wqe {
    use super::*;

    /// The start of the bytes behind the structure.
    pub const DATA: usize = size_of::<bindings::rxe_send_wqe>();
    /// `wr`.
    pub const WR: usize = offset_of!(bindings::rxe_send_wqe, wr);
    /// `dma`.
    pub const DMA: usize = offset_of!(bindings::rxe_send_wqe, dma);
    /// `wr_id`.
    pub const WR_ID: usize = offset_of!(bindings::rxe_send_wr, wr_id);
    /// `opcode`.
    pub const OPCODE: usize = offset_of!(bindings::rxe_send_wr, opcode);
    /// `send_flags`.
    pub const SEND_FLAGS: usize = offset_of!(bindings::rxe_send_wr, send_flags);
    /// `ex`.
    pub const EX: usize = offset_of!(bindings::rxe_send_wr, ex);
    /// `wr.rdma.remote_addr`.
    pub const RDMA_REMOTE_ADDR: usize = offset_of!(bindings::rxe_send_wr, wr)
        + offset_of!(
            bindings::rxe_send_wr__bindgen_ty_2__bindgen_ty_2,
            remote_addr
        );
    /// `wr.rdma.rkey`.
    pub const RDMA_RKEY: usize = offset_of!(bindings::rxe_send_wr, wr)
        + offset_of!(bindings::rxe_send_wr__bindgen_ty_2__bindgen_ty_2, rkey);
    /// `wr.ud.remote_qpn`.
    pub const UD_REMOTE_QPN: usize = offset_of!(bindings::rxe_send_wr, wr)
        + offset_of!(
            bindings::rxe_send_wr__bindgen_ty_2__bindgen_ty_4,
            remote_qpn
        );
    /// `wr.ud.remote_qkey`.
    pub const UD_REMOTE_QKEY: usize = offset_of!(bindings::rxe_send_wr, wr)
        + offset_of!(
            bindings::rxe_send_wr__bindgen_ty_2__bindgen_ty_4,
            remote_qkey
        );
    /// `wr.ud.ah_num`.
    pub const UD_AH_NUM: usize = offset_of!(bindings::rxe_send_wr, wr)
        + offset_of!(bindings::rxe_send_wr__bindgen_ty_2__bindgen_ty_4, ah_num);
    /// `wr.ud.av`.
    pub const UD_AV: usize = offset_of!(bindings::rxe_send_wr, wr)
        + offset_of!(bindings::rxe_send_wr__bindgen_ty_2__bindgen_ty_4, av);

    /// Offsets in `struct rxe_av`.
    pub mod av {
        use super::*;

        /// `port_num`.
        pub const PORT_NUM: usize = offset_of!(bindings::rxe_av, port_num);
        /// `dgid`.
        pub const DGID: usize =
            offset_of!(bindings::rxe_av, grh) + offset_of!(bindings::rxe_global_route, dgid);
        /// `flow_label`.
        pub const FLOW_LABEL: usize =
            offset_of!(bindings::rxe_av, grh) + offset_of!(bindings::rxe_global_route, flow_label);
        /// `sgid_index`.
        pub const SGID_INDEX: usize =
            offset_of!(bindings::rxe_av, grh) + offset_of!(bindings::rxe_global_route, sgid_index);
        /// `hop_limit`.
        pub const HOP_LIMIT: usize =
            offset_of!(bindings::rxe_av, grh) + offset_of!(bindings::rxe_global_route, hop_limit);
        /// `traffic_class`.
        pub const TRAFFIC_CLASS: usize = offset_of!(bindings::rxe_av, grh)
            + offset_of!(bindings::rxe_global_route, traffic_class);
    }
}

/// Offsets in `struct rxe_recv_wqe`.
pub mod recv_wqe {
    use super::*;

    /// The start of the bytes behind the structure.
    pub const DATA: usize = size_of::<bindings::rxe_recv_wqe>();
    /// `wr_id`.
    pub const WR_ID: usize = offset_of!(bindings::rxe_recv_wqe, wr_id);
    /// `dma`.
    pub const DMA: usize = offset_of!(bindings::rxe_recv_wqe, dma);
}

/// Local memory of work requests.
pub mod sge {
    use super::*;

    /// Bytes of a `struct rxe_sge`.
    pub const SGE_BYTES: usize = size_of::<bindings::rxe_sge>();

    /// Offsets in `struct rxe_dma_info`.
    pub mod dma {
        use super::*;

        /// `length`.
        pub const LENGTH: usize = offset_of!(bindings::rxe_dma_info, length);
        /// `num_sge`.
        pub const NUM_SGE: usize = offset_of!(bindings::rxe_dma_info, num_sge);
        /// The start of the bytes behind the structure.
        pub const DATA: usize = size_of::<bindings::rxe_dma_info>();
    }
}

/// Offsets in `struct ib_uverbs_wc`.
pub mod cqe {
    use super::*;

    /// Bytes of the structure.
    pub const CQE_BYTES: usize = size_of::<bindings::ib_uverbs_wc>();
    /// `wr_id`.
    pub const WR_ID: usize = offset_of!(bindings::ib_uverbs_wc, wr_id);
    /// `status`.
    pub const STATUS: usize = offset_of!(bindings::ib_uverbs_wc, status);
    /// `opcode`.
    pub const OPCODE: usize = offset_of!(bindings::ib_uverbs_wc, opcode);
    /// `vendor_err`.
    pub const VENDOR_ERR: usize = offset_of!(bindings::ib_uverbs_wc, vendor_err);
    /// `byte_len`.
    pub const BYTE_LEN: usize = offset_of!(bindings::ib_uverbs_wc, byte_len);
    /// `ex`.
    pub const EX: usize = offset_of!(bindings::ib_uverbs_wc, ex);
    /// `qp_num`.
    pub const QP_NUM: usize = offset_of!(bindings::ib_uverbs_wc, qp_num);
    /// `src_qp`.
    pub const SRC_QP: usize = offset_of!(bindings::ib_uverbs_wc, src_qp);
    /// `wc_flags`.
    pub const WC_FLAGS: usize = offset_of!(bindings::ib_uverbs_wc, wc_flags);
    /// `port_num`.
    pub const PORT_NUM: usize = offset_of!(bindings::ib_uverbs_wc, port_num);
}

/// Bits of `enum ib_qp_attr_mask`.
pub mod qp_attr_mask {
    use super::*;

    /// `IB_QP_STATE`.
    pub const STATE: u32 = bindings::ib_qp_attr_mask_IB_QP_STATE;
    /// `IB_QP_CUR_STATE`.
    pub const CUR_STATE: u32 = bindings::ib_qp_attr_mask_IB_QP_CUR_STATE;
    /// `IB_QP_EN_SQD_ASYNC_NOTIFY`.
    pub const EN_SQD_ASYNC_NOTIFY: u32 = bindings::ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY;
    /// `IB_QP_ACCESS_FLAGS`.
    pub const ACCESS_FLAGS: u32 = bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS;
    /// `IB_QP_PKEY_INDEX`.
    pub const PKEY_INDEX: u32 = bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX;
    /// `IB_QP_PORT`.
    pub const PORT: u32 = bindings::ib_qp_attr_mask_IB_QP_PORT;
    /// `IB_QP_QKEY`.
    pub const QKEY: u32 = bindings::ib_qp_attr_mask_IB_QP_QKEY;
    /// `IB_QP_AV`.
    pub const AV: u32 = bindings::ib_qp_attr_mask_IB_QP_AV;
    /// `IB_QP_PATH_MTU`.
    pub const PATH_MTU: u32 = bindings::ib_qp_attr_mask_IB_QP_PATH_MTU;
    /// `IB_QP_TIMEOUT`.
    pub const TIMEOUT: u32 = bindings::ib_qp_attr_mask_IB_QP_TIMEOUT;
    /// `IB_QP_RETRY_CNT`.
    pub const RETRY_CNT: u32 = bindings::ib_qp_attr_mask_IB_QP_RETRY_CNT;
    /// `IB_QP_RNR_RETRY`.
    pub const RNR_RETRY: u32 = bindings::ib_qp_attr_mask_IB_QP_RNR_RETRY;
    /// `IB_QP_RQ_PSN`.
    pub const RQ_PSN: u32 = bindings::ib_qp_attr_mask_IB_QP_RQ_PSN;
    /// `IB_QP_MAX_QP_RD_ATOMIC`.
    pub const MAX_QP_RD_ATOMIC: u32 = bindings::ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC;
    /// `IB_QP_ALT_PATH`.
    pub const ALT_PATH: u32 = bindings::ib_qp_attr_mask_IB_QP_ALT_PATH;
    /// `IB_QP_MIN_RNR_TIMER`.
    pub const MIN_RNR_TIMER: u32 = bindings::ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER;
    /// `IB_QP_SQ_PSN`.
    pub const SQ_PSN: u32 = bindings::ib_qp_attr_mask_IB_QP_SQ_PSN;
    /// `IB_QP_MAX_DEST_RD_ATOMIC`.
    pub const MAX_DEST_RD_ATOMIC: u32 = bindings::ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC;
    /// `IB_QP_PATH_MIG_STATE`.
    pub const PATH_MIG_STATE: u32 = bindings::ib_qp_attr_mask_IB_QP_PATH_MIG_STATE;
    /// `IB_QP_DEST_QPN`.
    pub const DEST_QPN: u32 = bindings::ib_qp_attr_mask_IB_QP_DEST_QPN;
}

/// Values of `enum ib_wc_status`.
pub mod wc_status {
    use super::*;

    /// `IB_WC_SUCCESS`.
    pub const SUCCESS: u32 = bindings::ib_wc_status_IB_WC_SUCCESS;
    /// `IB_WC_LOC_LEN_ERR`.
    pub const LOC_LEN_ERR: u32 = bindings::ib_wc_status_IB_WC_LOC_LEN_ERR;
    /// `IB_WC_LOC_QP_OP_ERR`.
    pub const LOC_QP_OP_ERR: u32 = bindings::ib_wc_status_IB_WC_LOC_QP_OP_ERR;
    /// `IB_WC_LOC_PROT_ERR`.
    pub const LOC_PROT_ERR: u32 = bindings::ib_wc_status_IB_WC_LOC_PROT_ERR;
    /// `IB_WC_WR_FLUSH_ERR`.
    pub const WR_FLUSH_ERR: u32 = bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR;
    /// `IB_WC_MW_BIND_ERR`.
    pub const MW_BIND_ERR: u32 = bindings::ib_wc_status_IB_WC_MW_BIND_ERR;
    /// `IB_WC_BAD_RESP_ERR`.
    pub const BAD_RESP_ERR: u32 = bindings::ib_wc_status_IB_WC_BAD_RESP_ERR;
    /// `IB_WC_LOC_ACCESS_ERR`.
    pub const LOC_ACCESS_ERR: u32 = bindings::ib_wc_status_IB_WC_LOC_ACCESS_ERR;
    /// `IB_WC_REM_INV_REQ_ERR`.
    pub const REM_INV_REQ_ERR: u32 = bindings::ib_wc_status_IB_WC_REM_INV_REQ_ERR;
    /// `IB_WC_REM_ACCESS_ERR`.
    pub const REM_ACCESS_ERR: u32 = bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR;
    /// `IB_WC_REM_OP_ERR`.
    pub const REM_OP_ERR: u32 = bindings::ib_wc_status_IB_WC_REM_OP_ERR;
    /// `IB_WC_RETRY_EXC_ERR`.
    pub const RETRY_EXC_ERR: u32 = bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR;
    /// `IB_WC_RNR_RETRY_EXC_ERR`.
    pub const RNR_RETRY_EXC_ERR: u32 = bindings::ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR;
    /// `IB_WC_GENERAL_ERR`.
    pub const GENERAL_ERR: u32 = bindings::ib_wc_status_IB_WC_GENERAL_ERR;
}

/// Values of `enum ib_wc_opcode`.
pub mod wc_opcode {
    use super::*;

    /// `IB_WC_SEND`.
    pub const SEND: u32 = bindings::ib_wc_opcode_IB_WC_SEND;
    /// `IB_WC_RDMA_WRITE`.
    pub const RDMA_WRITE: u32 = bindings::ib_wc_opcode_IB_WC_RDMA_WRITE;
    /// `IB_WC_RDMA_READ`.
    pub const RDMA_READ: u32 = bindings::ib_wc_opcode_IB_WC_RDMA_READ;
    /// `IB_WC_COMP_SWAP`.
    pub const COMP_SWAP: u32 = bindings::ib_wc_opcode_IB_WC_COMP_SWAP;
    /// `IB_WC_FETCH_ADD`.
    pub const FETCH_ADD: u32 = bindings::ib_wc_opcode_IB_WC_FETCH_ADD;
    /// `IB_WC_LOCAL_INV`.
    pub const LOCAL_INV: u32 = bindings::ib_wc_opcode_IB_WC_LOCAL_INV;
    /// `IB_WC_FLUSH`.
    pub const FLUSH: u32 = bindings::ib_wc_opcode_IB_WC_FLUSH;
    /// `IB_WC_ATOMIC_WRITE`.
    pub const ATOMIC_WRITE: u32 = bindings::ib_wc_opcode_IB_WC_ATOMIC_WRITE;
    /// `IB_WC_REG_MR`.
    pub const REG_MR: u32 = bindings::ib_wc_opcode_IB_WC_REG_MR;
    /// `IB_WC_RECV`.
    pub const RECV: u32 = bindings::ib_wc_opcode_IB_WC_RECV;
    /// `IB_WC_RECV_RDMA_WITH_IMM`.
    pub const RECV_RDMA_WITH_IMM: u32 = bindings::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM;
}
