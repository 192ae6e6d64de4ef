//! cpio, tar and zip.

use super::{Node, crc32, directories, pack, pad};

/// An initial RAM file system.
pub fn cpio(root: &[(String, Node)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut inode = 0;
    let mut member = |out: &mut Vec<u8>, name: &str, mode: u32, data: &[u8]| {
        inode += 1;
        let numbers = [
            inode,
            mode,
            0,
            0,
            1,
            0,
            data.len() as u32,
            0,
            0,
            0,
            0,
            name.len() as u32 + 1,
            0,
        ];
        out.extend(b"070701");
        for number in numbers {
            out.extend(format!("{number:08X}").bytes());
        }
        out.extend(name.as_bytes());
        out.push(0);
        pad(out, 4, 0);
        out.extend(data);
        pad(out, 4, 0);
    };
    for dir in directories(root).iter().skip(1) {
        member(&mut out, dir, 0o4_0755, &[]);
    }
    for (path, node) in root {
        match node {
            Node::File(data) => member(&mut out, path, 0o10_0755, data),
            Node::Link(target) => member(&mut out, path, 0o12_0777, target.as_bytes()),
        }
    }
    member(&mut out, "TRAILER!!!", 0, &[]);
    pad(&mut out, 512, 0);
    out
}

/// Appends a member to an archive; a link has the kind `2`.
fn tar_member(out: &mut Vec<u8>, name: &str, kind: u8, link: &str, data: &[u8]) {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..108].copy_from_slice(b"0000755\0");
    header[108..124].copy_from_slice(b"0000000\x000000000\0");
    header[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
    header[136..148].copy_from_slice(b"00000000000\0");
    header[148..156].copy_from_slice(b"        ");
    header[156] = kind;
    header[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header[257..265].copy_from_slice(b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out.extend(header);
    out.extend(data);
    pad(out, 512, 0);
}

/// OpenWrt's sysupgrade archive.
pub fn sysupgrade(board: &str, kernel: &[u8], root: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    tar_member(&mut out, &format!("sysupgrade-{board}/"), b'5', "", &[]);
    tar_member(
        &mut out,
        &format!("sysupgrade-{board}/CONTROL"),
        b'0',
        "",
        format!("BOARD={board}\n").as_bytes(),
    );
    tar_member(
        &mut out,
        &format!("sysupgrade-{board}/kernel"),
        b'0',
        "",
        kernel,
    );
    tar_member(
        &mut out,
        &format!("sysupgrade-{board}/root"),
        b'0',
        "",
        root,
    );
    out.extend([0; 1024]);
    out
}

/// A root file system as an archive.
pub fn tar(root: &[(String, Node)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (path, node) in root {
        match node {
            Node::File(data) => tar_member(&mut out, &format!("./{path}"), b'0', "", data),
            Node::Link(target) => tar_member(&mut out, &format!("./{path}"), b'2', target, &[]),
        }
    }
    out.extend([0; 1024]);
    out
}

/// A vendor's archive with one image in it.
pub fn zip(name: &str, image: &[u8]) -> Vec<u8> {
    let packed = pack::deflate(image);
    let mut shared = 20u16.to_le_bytes().to_vec();
    shared.extend([0, 0, 8, 0, 0, 0, 0, 0]);
    for number in [crc32(image), packed.len() as u32, image.len() as u32] {
        shared.extend(number.to_le_bytes());
    }
    shared.extend((name.len() as u16).to_le_bytes());
    shared.extend([0, 0]);
    let mut out = b"PK\x03\x04".to_vec();
    out.extend(&shared);
    out.extend(name.bytes());
    out.extend(packed);
    let directory = out.len() as u32;
    out.extend(b"PK\x01\x02\x14\0");
    out.extend(&shared);
    out.extend([0; 14]);
    out.extend(name.bytes());
    let length = out.len() as u32 - directory;
    out.extend(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    out.extend(length.to_le_bytes());
    out.extend(directory.to_le_bytes());
    out.extend([0, 0]);
    out
}
