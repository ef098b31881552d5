// SPDX-License-Identifier: GPL-2.0

//! Proof that the layouts of [`roce::abi`], and the codes of other types of [`roce`], are those of the
//! kernel's headers.
//!
//! The protocol crate knows no C, so it has them as numbers. Here they meet those of [`rdma::abi`].
//! Nothing of this is in the module.

use kernel::prelude::*;
use rdma::abi as kernel_abi;
use roce::abi as ours;
use roce::completion::{CompletionOp, Status};
use roce::qp::Mask;

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
static_assert!(kernel_abi::qp_attr_mask::STATE == Mask::STATE.0);
static_assert!(kernel_abi::qp_attr_mask::CUR_STATE == Mask::CUR_STATE.0);
static_assert!(kernel_abi::qp_attr_mask::EN_SQD_ASYNC_NOTIFY == Mask::EN_SQD_ASYNC_NOTIFY.0);
static_assert!(kernel_abi::qp_attr_mask::ACCESS_FLAGS == Mask::ACCESS_FLAGS.0);
static_assert!(kernel_abi::qp_attr_mask::PKEY_INDEX == Mask::PKEY_INDEX.0);
static_assert!(kernel_abi::qp_attr_mask::PORT == Mask::PORT.0);
static_assert!(kernel_abi::qp_attr_mask::QKEY == Mask::QKEY.0);
static_assert!(kernel_abi::qp_attr_mask::AV == Mask::AV.0);
static_assert!(kernel_abi::qp_attr_mask::PATH_MTU == Mask::PATH_MTU.0);
static_assert!(kernel_abi::qp_attr_mask::TIMEOUT == Mask::TIMEOUT.0);
static_assert!(kernel_abi::qp_attr_mask::RETRY_CNT == Mask::RETRY_CNT.0);
static_assert!(kernel_abi::qp_attr_mask::RNR_RETRY == Mask::RNR_RETRY.0);
static_assert!(kernel_abi::qp_attr_mask::RQ_PSN == Mask::RQ_PSN.0);
static_assert!(kernel_abi::qp_attr_mask::MAX_QP_RD_ATOMIC == Mask::MAX_QP_RD_ATOMIC.0);
static_assert!(kernel_abi::qp_attr_mask::ALT_PATH == Mask::ALT_PATH.0);
static_assert!(kernel_abi::qp_attr_mask::MIN_RNR_TIMER == Mask::MIN_RNR_TIMER.0);
static_assert!(kernel_abi::qp_attr_mask::SQ_PSN == Mask::SQ_PSN.0);
static_assert!(kernel_abi::qp_attr_mask::MAX_DEST_RD_ATOMIC == Mask::MAX_DEST_RD_ATOMIC.0);
static_assert!(kernel_abi::qp_attr_mask::PATH_MIG_STATE == Mask::PATH_MIG_STATE.0);
static_assert!(kernel_abi::qp_attr_mask::DEST_QPN == Mask::DEST_QPN.0);
static_assert!(kernel_abi::wc_status::SUCCESS == Status::Success as u32);
static_assert!(kernel_abi::wc_status::LOC_LEN_ERR == Status::LocalLength as u32);
static_assert!(kernel_abi::wc_status::LOC_QP_OP_ERR == Status::LocalQpOperation as u32);
static_assert!(kernel_abi::wc_status::LOC_PROT_ERR == Status::LocalProtection as u32);
static_assert!(kernel_abi::wc_status::WR_FLUSH_ERR == Status::Flushed as u32);
static_assert!(kernel_abi::wc_status::MW_BIND_ERR == Status::MwBind as u32);
static_assert!(kernel_abi::wc_status::BAD_RESP_ERR == Status::BadResponse as u32);
static_assert!(kernel_abi::wc_status::LOC_ACCESS_ERR == Status::LocalAccess as u32);
static_assert!(kernel_abi::wc_status::REM_INV_REQ_ERR == Status::RemoteInvalidRequest as u32);
static_assert!(kernel_abi::wc_status::REM_ACCESS_ERR == Status::RemoteAccess as u32);
static_assert!(kernel_abi::wc_status::REM_OP_ERR == Status::RemoteOperation as u32);
static_assert!(kernel_abi::wc_status::RETRY_EXC_ERR == Status::TransportRetryExceeded as u32);
static_assert!(kernel_abi::wc_status::RNR_RETRY_EXC_ERR == Status::RnrRetryExceeded as u32);
static_assert!(kernel_abi::wc_status::GENERAL_ERR == Status::General as u32);
static_assert!(kernel_abi::wc_opcode::SEND == CompletionOp::Send as u32);
static_assert!(kernel_abi::wc_opcode::RDMA_WRITE == CompletionOp::Write as u32);
static_assert!(kernel_abi::wc_opcode::RDMA_READ == CompletionOp::Read as u32);
static_assert!(kernel_abi::wc_opcode::COMP_SWAP == CompletionOp::CompareSwap as u32);
static_assert!(kernel_abi::wc_opcode::FETCH_ADD == CompletionOp::FetchAdd as u32);
static_assert!(kernel_abi::wc_opcode::LOCAL_INV == CompletionOp::LocalInvalidate as u32);
static_assert!(kernel_abi::wc_opcode::FLUSH == CompletionOp::Flush as u32);
static_assert!(kernel_abi::wc_opcode::ATOMIC_WRITE == CompletionOp::AtomicWrite as u32);
static_assert!(kernel_abi::wc_opcode::REG_MR == CompletionOp::Register as u32);
static_assert!(kernel_abi::wc_opcode::RECV == CompletionOp::Recv as u32);
static_assert!(kernel_abi::wc_opcode::RECV_RDMA_WITH_IMM == CompletionOp::RecvRdmaWithImm as u32);
