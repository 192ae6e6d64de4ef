//! Raw Ethernet frames by AF_PACKET.
