//! engine
#![forbid(unsafe_code)]
mod checksum;
mod gro;
mod gso;
mod ip;
mod routes;
