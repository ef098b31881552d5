// SPDX-License-Identifier: GPL-2.0

//! Users, who share what a device has of each kind.

use kernel::task::Kuid;
use rdma_bindings as bindings;

/// Returns the user whom the calling process acts for, so that its shares are found.
///
/// That is its effective user. But a user who has subordinate users would have the shares of them all. So in a user
/// namespace that a user other than root has made, it is this user; if several are nested, the one of the outermost.
/// The users of other namespaces are those that an administrator has given.
pub fn current_user() -> Kuid {
    let root = Kuid::from_raw(bindings::kuid_t { val: 0 });
    let mut user = Kuid::current_euid();
    // SAFETY: The process has credentials, and does not change them meanwhile, as it is here. They hold their
    // namespace, and each namespace holds its parent. What is read does not change.
    unsafe {
        let mut namespace = (*bindings::current_cred()).user_ns;
        // At most 33: the kernel makes no deeper ones.
        while !(*namespace).parent.is_null() {
            let owner = Kuid::from_raw((*namespace).owner);
            if owner != root {
                user = owner;
            }
            namespace = (*namespace).parent;
        }
    }
    user
}
