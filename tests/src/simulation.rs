//! Elections without etcd, without sleep and without luck: everything that happens
//! follows from a seed.

pub mod store;
