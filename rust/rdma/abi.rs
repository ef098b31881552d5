// SPDX-License-Identifier: GPL-2.0

//! Proof that the layouts of [`roce::abi`] are those of the kernel's headers.
//!
//! The protocol crate knows no C, so it has the offsets as numbers; here they meet the structures
//! that bindgen makes. Nothing of this is in the module.

use core::mem::{offset_of, size_of};

use kernel::prelude::*;

use rdma_bindings as bindings;
use roce::abi::{cqe, recv_wqe, ring, send_wqe, sge};

// Rings.
static_assert!(offset_of!(bindings::rxe_queue_buf, log2_elem_size) == ring::LOG2_ELEM_SIZE);
static_assert!(offset_of!(bindings::rxe_queue_buf, index_mask) == ring::INDEX_MASK);
static_assert!(offset_of!(bindings::rxe_queue_buf, producer_index) == ring::PRODUCER_INDEX);
static_assert!(offset_of!(bindings::rxe_queue_buf, consumer_index) == ring::CONSUMER_INDEX);
static_assert!(offset_of!(bindings::rxe_queue_buf, data) == ring::DATA);

// Send work requests.
static_assert!(size_of::<bindings::rxe_send_wqe>() == send_wqe::DATA);
static_assert!(offset_of!(bindings::rxe_send_wqe, wr) == 0);
static_assert!(offset_of!(bindings::rxe_send_wqe, dma) == send_wqe::DMA);
static_assert!(offset_of!(bindings::rxe_send_wr, wr_id) == send_wqe::WR_ID);
static_assert!(offset_of!(bindings::rxe_send_wr, opcode) == send_wqe::OPCODE);
static_assert!(offset_of!(bindings::rxe_send_wr, send_flags) == send_wqe::SEND_FLAGS);
static_assert!(offset_of!(bindings::rxe_send_wr, ex) == send_wqe::EX);
static_assert!(
    offset_of!(bindings::rxe_send_wr, wr)
        + offset_of!(
            bindings::rxe_send_wr__bindgen_ty_2__bindgen_ty_2,
            remote_addr
        )
        == send_wqe::RDMA_REMOTE_ADDR
);
static_assert!(
    offset_of!(bindings::rxe_send_wr, wr)
        + offset_of!(bindings::rxe_send_wr__bindgen_ty_2__bindgen_ty_2, rkey)
        == send_wqe::RDMA_RKEY
);

static_assert!(
    offset_of!(bindings::rxe_send_wr, wr)
        + offset_of!(
            bindings::rxe_send_wr__bindgen_ty_2__bindgen_ty_4,
            remote_qpn
        )
        == send_wqe::UD_REMOTE_QPN
);
static_assert!(
    offset_of!(bindings::rxe_send_wr, wr)
        + offset_of!(
            bindings::rxe_send_wr__bindgen_ty_2__bindgen_ty_4,
            remote_qkey
        )
        == send_wqe::UD_REMOTE_QKEY
);
static_assert!(
    offset_of!(bindings::rxe_send_wr, wr)
        + offset_of!(bindings::rxe_send_wr__bindgen_ty_2__bindgen_ty_4, ah_num)
        == send_wqe::UD_AH_NUM
);
static_assert!(
    offset_of!(bindings::rxe_send_wr, wr)
        + offset_of!(bindings::rxe_send_wr__bindgen_ty_2__bindgen_ty_4, av)
        == send_wqe::UD_AV
);

// Address vectors in them.
static_assert!(offset_of!(bindings::rxe_av, port_num) == send_wqe::av::PORT_NUM);
static_assert!(
    offset_of!(bindings::rxe_av, grh) + offset_of!(bindings::rxe_global_route, dgid)
        == send_wqe::av::DGID
);
static_assert!(
    offset_of!(bindings::rxe_av, grh) + offset_of!(bindings::rxe_global_route, flow_label)
        == send_wqe::av::FLOW_LABEL
);
static_assert!(
    offset_of!(bindings::rxe_av, grh) + offset_of!(bindings::rxe_global_route, sgid_index)
        == send_wqe::av::SGID_INDEX
);
static_assert!(
    offset_of!(bindings::rxe_av, grh) + offset_of!(bindings::rxe_global_route, hop_limit)
        == send_wqe::av::HOP_LIMIT
);
static_assert!(
    offset_of!(bindings::rxe_av, grh) + offset_of!(bindings::rxe_global_route, traffic_class)
        == send_wqe::av::TRAFFIC_CLASS
);

// Receive work requests.
static_assert!(size_of::<bindings::rxe_recv_wqe>() == recv_wqe::DATA);
static_assert!(offset_of!(bindings::rxe_recv_wqe, wr_id) == recv_wqe::WR_ID);
static_assert!(offset_of!(bindings::rxe_recv_wqe, dma) == recv_wqe::DMA);

// Local memory of both.
static_assert!(offset_of!(bindings::rxe_dma_info, length) == sge::dma::LENGTH);
static_assert!(offset_of!(bindings::rxe_dma_info, num_sge) == sge::dma::NUM_SGE);
static_assert!(size_of::<bindings::rxe_dma_info>() == sge::dma::DATA);
static_assert!(size_of::<bindings::rxe_sge>() == sge::SGE_BYTES);

// Completions.
static_assert!(size_of::<bindings::ib_uverbs_wc>() == cqe::CQE_BYTES);
static_assert!(offset_of!(bindings::ib_uverbs_wc, wr_id) == cqe::WR_ID);
static_assert!(offset_of!(bindings::ib_uverbs_wc, status) == cqe::STATUS);
static_assert!(offset_of!(bindings::ib_uverbs_wc, opcode) == cqe::OPCODE);
static_assert!(offset_of!(bindings::ib_uverbs_wc, vendor_err) == cqe::VENDOR_ERR);
static_assert!(offset_of!(bindings::ib_uverbs_wc, byte_len) == cqe::BYTE_LEN);
static_assert!(offset_of!(bindings::ib_uverbs_wc, ex) == cqe::EX);
static_assert!(offset_of!(bindings::ib_uverbs_wc, qp_num) == cqe::QP_NUM);
static_assert!(offset_of!(bindings::ib_uverbs_wc, src_qp) == cqe::SRC_QP);
static_assert!(offset_of!(bindings::ib_uverbs_wc, wc_flags) == cqe::WC_FLAGS);
static_assert!(offset_of!(bindings::ib_uverbs_wc, port_num) == cqe::PORT_NUM);
