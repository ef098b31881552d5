// SPDX-License-Identifier: GPL-2.0

//! Layouts of the structures that a provider of rdma-core shares with a driver, as the kernel's headers
//! have them.
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
