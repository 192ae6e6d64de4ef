//! Packages for OpenWrt and Debian, made without their SDKs: `make packages` and `make release` are its only users, and
//! nothing of it is in the router's program.
//!
//! A package is a [`Tree`](tree::Tree) of what is installed and a [`Package`](package::Package) that says the rest. Each
//! format has a module that writes it and reads it again:
//!
//! | module | format | for |
//! |---|---|---|
//! | [`ipk`] | tar archives in a tar archive | opkg, OpenWrt to 24.10 |
//! | [`apk`] | values of [`adb`] and blocks of content | apk 3, OpenWrt from 25.12 |
//! | [`deb`] | tar archives in an `ar` archive | dpkg |
//! | [`opkg_index`], [`apk_index`], [`debian_index`] | the packages of a directory | the same |
//!
//! Readers share nothing with writers but constants, and check sizes, checksums and what would be installed where. They
//! hold whole files in memory, and refuse what is larger than [`LARGEST`]. The same input gives the same bytes, but for
//! signatures with P-256, which have a random part.

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

/// The most that is unpacked of one package, in bytes: several times what a router has room for.
pub const LARGEST: usize = 256 << 20;
