//! Tests with servers and proxies on the loopback interface.

use std::net::TcpListener;
use std::thread;

use config::openvpn::{HttpAuth, Local, Protocol, Transport};
use netio::poll::Waker;

use super::*;
use crate::connect::http::HttpError;
use crate::connect::socks::SocksError;

fn connection(transport: Transport, proxy: Option<Proxy>) -> Connection {
    Connection {
        remote: Some(Remote {
            host: "vpn.example".to_owned(),
            port: 1194,
        }),
        protocol: Protocol {
            transport,
            family: Family::Any,
        },
        local: Local::default(),
        float: false,
        retry: 1,
        retry_max: 300,
        connect_timeout: 60,
        proxy,
        mtu: Default::default(),
        exit_notify: 0,
        wrap: Default::default(),
    }
}

fn target(proxy: Option<Proxy>, remote: SocketAddr) -> Target {
    let connection = connection(Transport::TcpClient, proxy);
    Target::new(connection, Sockets::default(), remote)
}

fn http(auth: HttpAuth) -> Option<Proxy> {
    Some(Proxy::Http(HttpProxy {
        host: String::new(),
        port: 0,
        auth,
        credentials: None,
        version: "1.0".to_owned(),
        user_agent: None,
        headers: Vec::new(),
    }))
}

fn socks() -> Option<Proxy> {
    Some(Proxy::Socks {
        host: String::new(),
        port: 1080,
        credentials: None,
    })
}

fn login() -> ProxyLogin {
    ProxyLogin {
        name: "me".to_owned(),
        password: Zeroizing::new("pw".to_owned()),
    }
}

/// A proxy that, for each connection in turn, reads one request and sends one answer.
fn proxy(answers: Vec<(&'static [u8], Vec<u8>)>) -> (SocketAddr, thread::JoinHandle<Vec<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = move || {
        let talk = |(end, answer): (&[u8], Vec<u8>)| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(end) && stream.read(&mut byte).unwrap() == 1 {
                request.push(byte[0]);
            }
            stream.write_all(&answer).unwrap();
            // Reads until the other end closes.
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest);
            request.extend(rest);
            request
        };
        answers.into_iter().map(talk).collect()
    };
    (address, thread::spawn(serve))
}

fn open(target: &Target, login: Option<&ProxyLogin>) -> Result<Option<Socket>, DialError> {
    let never = Waker::new().unwrap();
    target.open(login, &Stop::new(&never))
}

fn stream(opened: Result<Option<Socket>, DialError>) -> TcpStream {
    match opened.unwrap().unwrap() {
        Socket::Tcp(stream) => stream,
        Socket::Udp(_) => panic!("not TCP"),
    }
}

const HEADER_END: &[u8] = b"\r\n\r\n";

#[test]
fn datagrams_need_no_connection() {
    let remote = "192.0.2.1:1194".parse().unwrap();
    let udp = |proxy| {
        Target::new(
            connection(Transport::Udp, proxy),
            Sockets::default(),
            remote,
        )
    };
    let opened = open(&udp(None), None).unwrap();
    assert!(matches!(opened, Some(Socket::Udp(to)) if to == remote));
    assert!(matches!(
        open(&udp(socks()), None),
        Err(DialError::SocksUdp)
    ));
    let http = udp(http(HttpAuth::None));
    assert!(matches!(open(&http, None), Err(DialError::HttpUdp)));
}

#[test]
fn a_server_is_reached_from_the_address_of_the_configuration() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut target = target(None, listener.local_addr().unwrap());
    target.connection.local.host = Some("127.0.0.2".to_owned());
    let client = stream(open(&target, None));
    let (_, from) = listener.accept().unwrap();
    assert_eq!(from.ip().to_string(), "127.0.0.2");
    assert_eq!(client.local_addr().unwrap(), from);
    target.connection.local.host = Some("::1".to_owned());
    let error = open(&target, None).unwrap_err();
    assert!(matches!(error, DialError::LocalFamily { .. }), "{error}");
}

#[test]
fn a_closed_port_is_told() {
    // Uses an address that no other test uses, so that no other test can bind the port.
    let listener = TcpListener::bind("127.0.0.77:0").unwrap();
    let target = target(None, listener.local_addr().unwrap());
    drop(listener);
    let error = open(&target, None).unwrap_err();
    assert!(matches!(error, DialError::Refused { .. }), "{error}");
}

#[test]
fn an_http_proxy_is_shown_what_it_asks_for() {
    let asks = b"HTTP/1.1 407 x\r\nProxy-Authenticate: Basic realm=\"x\"\r\n\r\n<html>".to_vec();
    let opens = b"HTTP/1.1 200 OK\r\n\r\nfirst".to_vec();
    let (address, served) = proxy(vec![(HEADER_END, asks), (HEADER_END, opens)]);
    let mut client = stream(open(&target(http(HttpAuth::Auto), address), Some(&login())));
    client.set_nonblocking(false).unwrap();
    let mut first = [0; 5];
    client.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"first");
    drop(client);
    let requests = served.join().unwrap();
    let text = |index: usize| String::from_utf8_lossy(&requests[index]).into_owned();
    assert!(text(0).starts_with("CONNECT vpn.example:1194 HTTP/1.0\r\n"));
    assert!(!text(0).contains("Authorization"));
    assert!(text(1).contains("\r\nProxy-Authorization: Basic bWU6cHc=\r\n"));
}

#[test]
fn an_http_proxy_that_refuses_is_quoted() {
    let refuses = b"HTTP/1.1 403 Forbidden\r\n\r\n".to_vec();
    let (address, served) = proxy(vec![(HEADER_END, refuses)]);
    let error = open(&target(http(HttpAuth::None), address), None).unwrap_err();
    let DialError::Http { error, .. } = error else {
        panic!("{error}");
    };
    assert!(matches!(error, HttpError::Status { status: 403, .. }));
    served.join().unwrap();
}

#[test]
fn a_socks_proxy_is_spoken_to_the_end_and_not_further() {
    // Sends both SOCKS answers at once, up to the request for name and port.
    let mut answers = vec![5, 0];
    answers.extend_from_slice(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 80]);
    answers.extend_from_slice(b"first");
    let (address, served) = proxy(vec![(&[5, 1, 0], answers)]);
    let mut client = stream(open(&target(socks(), address), None));
    client.set_nonblocking(false).unwrap();
    let mut first = [0; 5];
    client.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"first");
    drop(client);
    let request = &served.join().unwrap()[0];
    assert!(request.ends_with(b"\x05\x01\x00\x03\x0bvpn.example\x04\xaa"));
}

#[test]
fn a_socks_proxy_that_refuses_or_leaves_is_told() {
    let (address, served) = proxy(vec![(&[5, 1, 0], vec![5, 0xff])]);
    let error = open(&target(socks(), address), None).unwrap_err();
    let refused = matches!(
        error,
        DialError::Socks {
            error: SocksError::NoLogin,
            ..
        }
    );
    assert!(refused, "{error}");
    served.join().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let leaves = thread::spawn(move || drop(listener.accept().unwrap()));
    let error = open(&target(socks(), address), None).unwrap_err();
    assert!(matches!(error, DialError::Proxy { .. }), "{error}");
    leaves.join().unwrap();
}

#[test]
fn a_stop_ends_the_wait_for_a_proxy_that_says_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = target(http(HttpAuth::None), listener.local_addr().unwrap());
    let stop = Waker::new().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let held = listener.accept().unwrap();
            stop.wake();
            // Keeps the connection until the other end closes it.
            let _ = (&held.0).read_to_end(&mut Vec::new());
        });
        let opened = target.open(None, &Stop::new(&stop)).unwrap();
        assert!(opened.is_none());
    });
}

#[test]
fn an_uplinks_address_and_device_are_those_of_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let line = Line {
        source: Some("127.0.0.3".parse().unwrap()),
        ..Line::default()
    };
    let target = target(None, listener.local_addr().unwrap());
    let by_line = target.clone().by_line(&line);
    assert_eq!(by_line.device(), None);
    let client = stream(open(&by_line, None));
    assert_eq!(client.local_addr().unwrap().ip().to_string(), "127.0.0.3");
    let missing = Line {
        interface: Some("no-such-device".to_owned()),
        ..line
    };
    let by_line = target.by_line(&missing);
    assert_eq!(by_line.device(), Some("no-such-device"));
    assert!(open(&by_line, None).is_err());
}

/// The running connection holds the local port of the configuration.
#[test]
fn an_uplink_is_tried_without_the_local_port() {
    let listener = TcpListener::bind("127.0.0.79:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut target = target(None, address);
    target.connection.local = Local {
        host: Some("127.0.0.79".to_owned()),
        port: address.port(),
        bind: true,
        ..Local::default()
    };
    assert!(open(&target, None).is_err());
    let never = Waker::new().unwrap();
    let touched = target.clone().touch(&Stop::new(&never)).unwrap();
    assert_eq!(touched, Some(()));
    drop(listener);
    let error = target.touch(&Stop::new(&never)).unwrap_err();
    assert!(matches!(error, DialError::Refused { .. }), "{error}");
}

#[test]
fn an_http_proxy_that_asks_again_and_again_is_left() {
    let asks = || {
        let answer = "HTTP/1.1 407 x\r\nProxy-Authenticate: Digest realm=\"x\", nonce=\"n\", stale=true\r\n\r\n";
        (HEADER_END, answer.as_bytes().to_vec())
    };
    let (address, served) = proxy(vec![asks(), asks(), asks()]);
    let error = open(&target(http(HttpAuth::Auto), address), Some(&login())).unwrap_err();
    let bad = DialError::Http {
        remote: address,
        error: HttpError::BadLogin,
    };
    assert_eq!(error.to_string(), bad.to_string());
    assert_eq!(served.join().unwrap().len(), REQUESTS_MAX);
}

#[test]
fn an_http_proxy_that_leaves_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let leaves = listener.local_addr().unwrap();
    let left = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 512]);
    });
    let error = open(&target(http(HttpAuth::None), leaves), None).unwrap_err();
    assert!(matches!(error, DialError::Proxy { .. }), "{error}");
    left.join().unwrap();
}

#[test]
fn credentials_are_read_for_the_proxy_that_may_ask() {
    let address = "192.0.2.1:1194".parse().unwrap();
    let asks = |proxy| target(proxy, address).proxy_credentials().cloned();
    let with = Some(Prompted::Ask);
    let mut proxy = http(HttpAuth::Basic);
    if let Some(Proxy::Http(proxy)) = &mut proxy {
        proxy.credentials.clone_from(&with);
    }
    assert_eq!(asks(proxy), with);
    assert_eq!(asks(socks()), None);
    assert_eq!(asks(None), None);
}

#[test]
fn a_proxys_password_is_not_shown() {
    let shown = format!("{:?}", login());
    assert!(shown.contains("me") && !shown.contains("pw"), "{shown}");
}
