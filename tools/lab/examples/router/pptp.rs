//! PPTP: three clients, and Millrace as the server for all of them, as this machine's kernel may lack PPP.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use lab::{Host, LabError, Process};

use crate::machine::{DEVICE, FAR, File, MTU, failed};

/// How long the server gets to open its interface.
const OPENED: Duration = Duration::from_secs(30);

/// The program that carries PPTP in the router.
#[derive(Clone, Copy)]
pub(crate) enum Client {
    /// Millrace.
    Millrace,
    /// The kernel's own, set up by pppd and `tools/lab/tools/kernel-pptp.c`.
    Kernel,
    /// pptp-linux and pppd: each packet goes through two processes.
    UserSpace,
}

impl Client {
    /// The files of the router. The address that the server assigns belongs to the device, so the router does not keep
    /// it: PPTP knows no networks behind a client.
    pub(crate) fn files(self) -> Vec<File> {
        let (start, interface) = match self {
            Self::Millrace => ("millrace up /pptp.toml >/tmp/vpn.log 2>&1 &", "tun0"),
            Self::Kernel => (
                "pppd plugin /kernel-pptp.so pptp-server 10.92.0.2 file /pptp.ppp >/tmp/vpn.log 2>&1 &",
                "ppp0",
            ),
            Self::UserSpace => (
                "pppd pty 'pptp 10.92.0.2 --nolaunchpppd' file /pptp.ppp >/tmp/vpn.log 2>&1 &",
                "ppp0",
            ),
        };
        // The kernel's modules, if loaded, would process every packet.
        let unload = match self {
            Self::Kernel => "",
            Self::Millrace | Self::UserSpace => "rmmod pptp; rmmod gre",
        };
        let script = format!(
            "mkdir -p /etc/ppp /dev/pts /var/run /var/log /run/lock /var/lock\n\
             mount -t devpts devpts /dev/pts\n\
             [ -e /dev/ppp ] || mknod /dev/ppp c 108 0\n\
             printf 'root:x:0:0:root:/:/bin/sh\\n' >/etc/passwd\n\
             printf 'root:x:0:\\n' >/etc/group\n\
             : >/etc/ppp/options\n\
             chmod 600 /pptp.toml\n\
             {unload}\n\
             {start}\n\
             until ip addr show dev {interface} 2>/dev/null | grep -q {DEVICE}; do\n\
                 sleep 0.1; tail -n 5 /tmp/vpn.log\n\
             done\n\
             ip addr flush dev {interface}\n\
             ip link set {interface} up\n\
             ip route add 10.93.0.1/32 dev {interface}\n"
        );
        let toml = format!(
            "protocol = \"pptp\"\nallow-insecure = \"pptp\"\nserver = \"{FAR}\"\nusername = \"alice\"\n\
             password = \"open sesame\"\ninterface = \"tun0\"\nmtu = {MTU}\n"
        );
        let ppp = format!(
            "nodetach\nname alice\nremotename pptp\npassword \"open sesame\"\nnoauth\nnobsdcomp\nnodeflate\nnovj\n\
             novjccomp\nrefuse-pap\nrefuse-chap\nrefuse-mschap\nrefuse-eap\nrequire-mppe-128\nnomppe-stateful\n\
             nodefaultroute\nmtu {MTU}\nmru {MTU}\n"
        );
        [("vpn", script), ("pptp.toml", toml), ("pptp.ppp", ppp)]
            .map(|(path, content)| File {
                path: path.to_owned(),
                content: content.into_bytes(),
            })
            .into()
    }
}

/// Starts the server, and leads packets for the device to its client.
pub(crate) fn serve(far: &Host, directory: &Path) -> Result<Process, LabError> {
    let path = directory.join("pptp-server.toml");
    // One network with both ends in it.
    let text = format!(
        "protocol = \"pptp\"\nallow-insecure = \"pptp\"\nlisten = \"{FAR}\"\naddress = \"10.93.0.1/13\"\n\
         pool = \"{DEVICE}-{DEVICE}\"\ninterface = \"tun0\"\nmtu = {MTU}\n[users]\nalice = \"open sesame\"\n"
    );
    fs::write(&path, text)
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)))
        .map_err(failed("write the server's file"))?;
    let mut process = far
        .command(directory.join("millrace-here"))
        .arg("up")
        .arg(&path)
        .spawn()?;
    process.wait_for_line("the server is up", OPENED, |line| line.contains("is up"))?;
    Ok(process)
}
