//! Steering: through which tunnel packets of the LAN leave, or that they do not leave at all.

#![forbid(unsafe_code)]

pub mod guard;
pub mod policy;

/// Whether a routing rule is the guard's or the policy's.
#[must_use]
pub fn is_ours(rule: &netio::netlink::Rule) -> bool {
    guard::rules::is_ours(rule) || policy::rules::is_ours(rule)
}
