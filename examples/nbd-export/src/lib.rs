//! The protocol half of `nbd-export`, without any IO: what bytes mean, and what is answered while a
//! client and the server agree on an export. The program and the fuzz target stand on it.
//!
//! The protocol is the public specification of NBD: fixed newstyle negotiation, simple and
//! structured replies, the metadata context `base:allocation`.

pub mod incoming;
pub mod negotiate;
pub mod proto;
