//! Device features (offloads) by ioctl.
