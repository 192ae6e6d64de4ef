//! Packages for OpenWrt and Debian, made without their SDKs. Only `make packages` and `make release` use this crate;
//! the router's program contains none of it.
//!
//! A package consists of a [`Tree`](tree::Tree) of files to install and a [`Package`](package::Package) with the
//! metadata. Each format has a module that writes it and reads it back:
//!
//! | module | format | for |
//! |---|---|---|
//! | [`ipk`] | tar archives in a tar archive | opkg, OpenWrt to 24.10 |
//! | [`apk`] | values of [`adb`] and blocks of content | apk 3, OpenWrt from 25.12 |
//! | [`deb`] | tar archives in an `ar` archive | dpkg |
//! | [`opkg_index`], [`apk_index`], [`debian_index`] | the packages of a directory | the same |
//!
//! Readers share only constants with writers. They check sizes, checksums and installed paths, hold whole files in
//! memory, and refuse files larger than [`LARGEST`]. The same input gives the same bytes, except for P-256
//! signatures, which are partly random.

#![forbid(unsafe_code)]

pub mod adb;
pub mod apk;
pub mod apk_index;
pub mod assemble;
pub mod compress;
pub mod deb;
pub mod debian;
pub mod debian_index;
pub mod hash;
pub mod ipk;
pub mod key;
pub mod manifest;
pub mod openwrt;
pub mod opkg_index;
pub mod package;
pub mod sbom;
pub mod stanza;
pub mod tar;
pub mod tree;

/// The most bytes to unpack from one package: several times a router's storage.
pub const LARGEST: usize = 256 << 20;
