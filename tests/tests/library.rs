//! The library as a user has it, on a real etcd.
