//! Clients and servers in this process, and the test's commands to them.

use lab::openvpn::{Directory, KeyKind, Management, Pki};
use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// A running client or server.
pub(super) struct Running {
    pub(super) thread: JoinHandle<String>,
    pub(super) listener: UnixListener,
    pub(super) management: Management,
}

/// Client and server share the process's log and signals, so only one pair runs at a time.
pub(super) fn exclusive() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Running {
    pub(super) fn start(directory: &Directory, name: &str, config: &str) -> Self {
        let socket = directory.join(format!("{name}.sock"));
        let listener = UnixListener::bind(&socket).unwrap();
        let config = format!(
            "{config}management {} unix\nmanagement-client\nmanagement-hold\n",
            socket.display()
        );
        let file = directory.file(&format!("{name}.conf"), config).unwrap();
        let thread = thread::spawn(move || {
            let status = service::openvpn::main(&[file.display().to_string()]);
            // If the program never connected, this connection ends the wait for it.
            drop(UnixStream::connect(socket));
            format!("{status:?}")
        });
        let management = Management::accept(&listener).unwrap();
        let mut running = Self {
            thread,
            listener,
            management,
        };
        running.begins();
        running
    }

    /// Releases the program from `management-hold`, so that the management client misses no message.
    pub(super) fn begins(&mut self) {
        self.command("state on");
        self.command("hold off");
        self.command("hold release");
    }

    /// Waits until the program reports this state.
    pub(super) fn wait_for_state(&mut self, state: &str) -> String {
        loop {
            let line = self.management.wait_for(">STATE:").unwrap();
            if line.split(',').nth(1) == Some(state) {
                return line;
            }
        }
    }

    /// Waits until the program has reloaded its configuration and connected to the management client again.
    pub(super) fn comes_back(&mut self) {
        self.management = Management::accept(&self.listener).unwrap();
        self.begins();
    }

    pub(super) fn command(&mut self, command: &str) -> Vec<String> {
        self.management.command(command).unwrap()
    }

    pub(super) fn end(mut self) {
        self.command("signal SIGTERM");
        drop(self.management);
        let status = self.thread.join().unwrap();
        assert_eq!(status, format!("{:?}", ExitCode::SUCCESS));
    }
}

pub(super) fn identity(pki: &Pki, client: bool) -> String {
    let identity = if client { pki.client() } else { pki.server() };
    format!(
        "<ca>\n{}</ca>\n<cert>\n{}</cert>\n<key>\n{}</key>\n",
        pki.ca(),
        identity.certificate,
        identity.key
    )
}

pub(super) fn free_port(proto: &str) -> u16 {
    let address = if proto.starts_with("tcp") {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr()
    } else {
        UdpSocket::bind("127.0.0.1:0").unwrap().local_addr()
    };
    address.unwrap().port()
}

pub(super) fn server(pki: &Pki, proto: &str, port: u16, directory: &Directory) -> String {
    format!(
        "dev null\nproto {proto}\nlocal 127.0.0.1\nport {port}\ndh none\ntopology subnet\nverb 4\n\
         server 10.8.0.0 255.255.255.0\nserver-ipv6 fd00:8::/64\nclient-to-client\nkeepalive 1 10\n\
         push \"route 192.168.7.0 255.255.255.0\"\npush \"dhcp-option DNS 10.8.0.1\"\n\
         status {status} 1\nwritepid {pid}\nreneg-sec 3600\n{identity}",
        status = directory.join("server.status").display(),
        pid = directory.join("server.pid").display(),
        identity = identity(pki, false),
    )
}

pub(super) fn client(pki: &Pki, proto: &str, port: u16) -> String {
    let proto = proto.replace("-server", "-client");
    format!(
        "client\ndev null\nproto {proto}\nremote 127.0.0.1 {port}\nnobind\nverb 4\n\
         remote-cert-tls server\nconnect-retry 1 1\n{}",
        identity(pki, true),
    )
}

pub(super) fn pki() -> Option<Pki> {
    lab::require(Pki::new(KeyKind::Ecdsa))
}

/// The clients that a server lists.
pub(super) fn clients(server: &mut Running) -> Vec<String> {
    let lines = server.command("status 3");
    let clients = lines.into_iter();
    clients
        .filter(|it| it.starts_with("CLIENT_LIST\t"))
        .collect()
}
