use super::*;
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

#[test]
fn each_reader_gets_the_whole_document_of_the_moment() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tun0.sock");
    let events = Poller::new().unwrap();
    let listener = Listener::open(&path).unwrap();
    let mut socket = StatusSocket::over(listener, "tun0", "openvpn", (&events, 7)).unwrap();
    let waits = || events.wait(Some(Duration::ZERO)).unwrap().iter().count();
    assert_eq!(waits(), 0);
    let mut readers: Vec<UnixStream> = (0..3)
        .map(|_| UnixStream::connect(&path).unwrap())
        .collect();
    assert_eq!(waits(), 1);
    socket.serve(&events, || Status {
        role: Some("server".to_owned()),
        interface: "another".to_owned(),
        mtu: 1400,
        ..Status::default()
    });
    assert_eq!((waits(), socket.next_deadline()), (0, None));
    for reader in &mut readers {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let status: Status = serde_json::from_str(&text).unwrap();
        // The socket itself knows whose it is.
        assert_eq!((&*status.interface, &*status.protocol), ("tun0", "openvpn"));
        assert_eq!((status.role.as_deref(), status.mtu), (Some("server"), 1400));
    }
    assert_eq!(socket.ifname(), "tun0");
    drop(socket);
    assert!(!path.exists());
}
