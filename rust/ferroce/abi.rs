// SPDX-License-Identifier: GPL-2.0

//! Proof that the layouts of [`roce::abi`] are those of the kernel's headers.
//!
//! The protocol crate knows no C, so it has the offsets as numbers. Here they meet those of [`rdma::abi`].
//! Nothing of this is in the module.

use kernel::prelude::*;
use rdma::abi as kernel_abi;
use roce::abi as ours;

static_assert!(kernel_abi::send_wqe::DATA == ours::send_wqe::DATA);
static_assert!(kernel_abi::send_wqe::WR == 0);
static_assert!(kernel_abi::send_wqe::DMA == ours::send_wqe::DMA);
static_assert!(kernel_abi::send_wqe::WR_ID == ours::send_wqe::WR_ID);
static_assert!(kernel_abi::send_wqe::OPCODE == ours::send_wqe::OPCODE);
static_assert!(kernel_abi::send_wqe::SEND_FLAGS == ours::send_wqe::SEND_FLAGS);
static_assert!(kernel_abi::send_wqe::EX == ours::send_wqe::EX);
static_assert!(kernel_abi::send_wqe::RDMA_REMOTE_ADDR == ours::send_wqe::RDMA_REMOTE_ADDR);
static_assert!(kernel_abi::send_wqe::RDMA_RKEY == ours::send_wqe::RDMA_RKEY);
static_assert!(kernel_abi::send_wqe::UD_REMOTE_QPN == ours::send_wqe::UD_REMOTE_QPN);
static_assert!(kernel_abi::send_wqe::UD_REMOTE_QKEY == ours::send_wqe::UD_REMOTE_QKEY);
static_assert!(kernel_abi::send_wqe::UD_AH_NUM == ours::send_wqe::UD_AH_NUM);
static_assert!(kernel_abi::send_wqe::UD_AV == ours::send_wqe::UD_AV);
static_assert!(kernel_abi::send_wqe::av::PORT_NUM == ours::send_wqe::av::PORT_NUM);
static_assert!(kernel_abi::send_wqe::av::DGID == ours::send_wqe::av::DGID);
static_assert!(kernel_abi::send_wqe::av::FLOW_LABEL == ours::send_wqe::av::FLOW_LABEL);
static_assert!(kernel_abi::send_wqe::av::SGID_INDEX == ours::send_wqe::av::SGID_INDEX);
static_assert!(kernel_abi::send_wqe::av::HOP_LIMIT == ours::send_wqe::av::HOP_LIMIT);
static_assert!(kernel_abi::send_wqe::av::TRAFFIC_CLASS == ours::send_wqe::av::TRAFFIC_CLASS);
static_assert!(kernel_abi::recv_wqe::DATA == ours::recv_wqe::DATA);
static_assert!(kernel_abi::recv_wqe::WR_ID == ours::recv_wqe::WR_ID);
static_assert!(kernel_abi::recv_wqe::DMA == ours::recv_wqe::DMA);
static_assert!(kernel_abi::sge::dma::LENGTH == ours::sge::dma::LENGTH);
static_assert!(kernel_abi::sge::dma::NUM_SGE == ours::sge::dma::NUM_SGE);
static_assert!(kernel_abi::sge::dma::DATA == ours::sge::dma::DATA);
static_assert!(kernel_abi::sge::SGE_BYTES == ours::sge::SGE_BYTES);
static_assert!(kernel_abi::cqe::CQE_BYTES == ours::cqe::CQE_BYTES);
static_assert!(kernel_abi::cqe::WR_ID == ours::cqe::WR_ID);
static_assert!(kernel_abi::cqe::STATUS == ours::cqe::STATUS);
static_assert!(kernel_abi::cqe::OPCODE == ours::cqe::OPCODE);
static_assert!(kernel_abi::cqe::VENDOR_ERR == ours::cqe::VENDOR_ERR);
static_assert!(kernel_abi::cqe::BYTE_LEN == ours::cqe::BYTE_LEN);
static_assert!(kernel_abi::cqe::EX == ours::cqe::EX);
static_assert!(kernel_abi::cqe::QP_NUM == ours::cqe::QP_NUM);
static_assert!(kernel_abi::cqe::SRC_QP == ours::cqe::SRC_QP);
static_assert!(kernel_abi::cqe::WC_FLAGS == ours::cqe::WC_FLAGS);
static_assert!(kernel_abi::cqe::PORT_NUM == ours::cqe::PORT_NUM);
