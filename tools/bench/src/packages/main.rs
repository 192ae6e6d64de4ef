//! `millrace-packages`: the program behind `scripts/packages`, `scripts/release` and `make feed`.

#![forbid(unsafe_code)]

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::collections::BTreeSet;
use std::error::Error;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tools::packages::assemble::{self, Release};
use tools::packages::key::{self, Keys};
use tools::packages::manifest::Manifest;
use tools::packages::tree::{Kind, Tree};
use tools::packages::{apk, compress, deb, feed, hash, ipk, sbom};

fn cli() -> Command {
    let path = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("PATH")
            .value_parser(value_parser!(PathBuf))
            .help(help)
    };
    let key = path(
        "key",
        "Signing key: a secret key of usign, or P-256 in PEM; both may be given",
    )
    .action(ArgAction::Append);
    Command::new("millrace-packages")
        .about("Makes and reads packages for OpenWrt and Debian")
        .subcommand_required(true)
        .subcommand(
            Command::new("build")
                .about("Make all packages and their indexes")
                .arg(path("packaging", "The directory of packages.toml").required(true))
                .arg(
                    path(
                        "programs",
                        "The directory with the programs, millrace-CHIP-KIND",
                    )
                    .required(true),
                )
                .arg(path(
                    "share",
                    "Directory of further files for Debian's package, such as manual pages",
                ))
                .arg(path("out", "Output directory for packages").required(true))
                .arg(
                    Arg::new("program-version")
                        .long("program-version")
                        .required(true)
                        .help("Version, such as 1.2.3"),
                )
                .arg(
                    Arg::new("date")
                        .long("date")
                        .required(true)
                        .value_parser(value_parser!(u64))
                        .help("Timestamp of all files, in seconds since 1970"),
                )
                .arg(key.clone()),
        )
        .subcommand(
            Command::new("programs")
                .about("Print the programs that packages need: CHIP KIND")
                .arg(path("packaging", "The directory of packages.toml").required(true)),
        )
        .subcommand(
            Command::new("list")
                .about("Check a package, and print the files that it installs")
                .arg(
                    Arg::new("FILE")
                        .required(true)
                        .value_parser(value_parser!(PathBuf))
                        .help("An .ipk, .apk or .deb"),
                ),
        )
        .subcommand(
            Command::new("keys")
                .about("Make new secret keys: usign.sec for opkg, p256.pem for apk")
                .arg(path("out", "Output directory; it must not contain keys yet").required(true)),
        )
        .subcommand(
            Command::new("sums")
                .about("Write SHA256SUMS of a directory, and its signatures")
                .arg(path("out", "The directory").required(true))
                .arg(key),
        )
        .subcommand(
            Command::new("xz")
                .about("Compress standard input, to the same bytes on every machine")
                .arg(path("out", "The file to write").required(true)),
        )
        .subcommand(
            Command::new("feed")
                .about("Write the packages as they lie in OpenWrt's feeds")
                .arg(path("root", "This repository").required(true))
                .arg(path(
                    "archive",
                    "The source of the release; by default the one in target/dist",
                ))
                .arg(
                    path("out", "Directory for packages/net/… and luci/protocols/…").required(true),
                )
                .arg(
                    Arg::new("draft")
                        .long("draft")
                        .action(ArgAction::SetTrue)
                        .help("Accept the placeholders of packages.toml"),
                ),
        )
        .subcommand(
            Command::new("sbom")
                .about("Print a bill of materials")
                .arg(
                    path("metadata", "Output of `cargo metadata --format-version 1`")
                        .required(true),
                )
                .arg(path("lock", "Cargo.lock").required(true))
                .arg(
                    Arg::new("program")
                        .long("program")
                        .required(true)
                        .help("The program's crate"),
                ),
        )
}

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> ExitCode {
    let matches = cli().get_matches();
    let outcome = match matches.subcommand() {
        Some(("build", matches)) => build(matches),
        Some(("programs", matches)) => programs(matches),
        Some(("list", matches)) => list(matches),
        Some(("keys", matches)) => new_keys(matches),
        Some(("sums", matches)) => sums(matches),
        Some(("xz", matches)) => compressed(matches),
        Some(("feed", matches)) => feeds(matches),
        Some(("sbom", matches)) => bill(matches),
        _ => Err("unknown command".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            host::terminal::note(format_args!("millrace-packages: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn path<'a>(matches: &'a ArgMatches, name: &str) -> Result<&'a Path, String> {
    let path = matches.get_one::<PathBuf>(name).map(PathBuf::as_path);
    path.ok_or_else(|| format!("--{name} is missing"))
}

fn keys(matches: &ArgMatches) -> Result<Keys, Box<dyn Error>> {
    let mut keys = Keys::default();
    for path in matches.get_many::<PathBuf>("key").into_iter().flatten() {
        keys.read(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(keys)
}

fn build(matches: &ArgMatches) -> Outcome {
    let keys = keys(matches)?;
    let release = Release {
        packaging: path(matches, "packaging")?,
        programs: path(matches, "programs")?,
        share: matches.get_one::<PathBuf>("share").map(PathBuf::as_path),
        out: path(matches, "out")?,
        version: matches
            .get_one::<String>("program-version")
            .ok_or("no version")?,
        date: *matches.get_one::<u64>("date").ok_or("no date")?,
        keys: &keys,
    };
    for words in release.make()? {
        host::terminal::note(format_args!("skipped: {words}"));
    }
    for (key, index) in [
        (
            keys.usign.is_some(),
            "opkg's index is not signed: no usign key was given",
        ),
        (
            keys.p256.is_some(),
            "apk's index is not signed: no P-256 key was given",
        ),
    ] {
        if !key {
            host::terminal::note(index);
        }
    }
    Ok(())
}

fn programs(matches: &ArgMatches) -> Outcome {
    let manifest = Manifest::read(path(matches, "packaging")?)?;
    let lines: BTreeSet<String> = [manifest.openwrt, manifest.debian]
        .iter()
        .flat_map(|it| {
            it.architectures
                .values()
                .map(|chip| format!("{chip} {}", it.kind))
        })
        .collect();
    for line in lines {
        host::terminal::line(line);
    }
    Ok(())
}

fn list(matches: &ArgMatches) -> Outcome {
    let path = path(matches, "FILE")?;
    let bytes = fs::read(path)?;
    let tree: Tree = if bytes.starts_with(b"!<arch>") {
        deb::read(&bytes)?.data
    } else if bytes.starts_with(b"ADB") {
        apk::read(&bytes)?.tree
    } else {
        ipk::read(&bytes)?.data
    };
    for (path, entry) in tree.iter() {
        let words = match &entry.kind {
            Kind::Directory => "/".to_owned(),
            Kind::File(content) => format!(" {}", content.len()),
            Kind::Link(target) => format!(" -> {target}"),
        };
        host::terminal::line(format_args!("{:04o} /{path}{words}", entry.mode));
    }
    Ok(())
}

fn new_keys(matches: &ArgMatches) -> Outcome {
    let out = path(matches, "out")?;
    fs::create_dir_all(out)?;
    for (name, text) in [
        ("usign.sec", key::new_usign()?),
        ("p256.pem", key::new_p256()?),
    ] {
        let mut options = fs::OpenOptions::new();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(out.join(name));
        file.map_err(|error| format!("{name}: {error}"))?
            .write_all(text.as_bytes())?;
    }
    Ok(())
}

fn sums(matches: &ArgMatches) -> Outcome {
    let keys = keys(matches)?;
    let out = path(matches, "out")?;
    let text = assemble::sums(out)?;
    fs::write(out.join("SHA256SUMS"), &text)?;
    if let Some(key) = &keys.usign {
        fs::write(out.join("SHA256SUMS.sig"), key.sign(text.as_bytes()))?;
    }
    if let Some(key) = &keys.p256 {
        fs::write(out.join("SHA256SUMS.p256"), key.sign(text.as_bytes())?)?;
    }
    Ok(())
}

fn compressed(matches: &ArgMatches) -> Outcome {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    let out = path(matches, "out")?;
    fs::write(out, compress::xz(&bytes)?).map_err(|error| format!("{}: {error}", out.display()))?;
    Ok(())
}

fn feeds(matches: &ArgMatches) -> Outcome {
    let root = path(matches, "root")?;
    let name = concat!("millrace-", env!("CARGO_PKG_VERSION"));
    let archive = match matches.get_one::<PathBuf>("archive") {
        Some(archive) => archive.clone(),
        None => root.join(format!("target/dist/{name}/{name}.tar.xz")),
    };
    let bytes = fs::read(&archive).map_err(|error| {
        format!(
            "{}: {error}; `make release` writes this archive, and PKG_HASH is its SHA-256",
            archive.display()
        )
    })?;
    let manifest = Manifest::read(&root.join("packaging"))?;
    if !matches.get_flag("draft") {
        feed::check_contact(&manifest)?;
    }
    let hash = hash::hex(&hash::sha256(&bytes));
    feed::write(root, &manifest, &hash, path(matches, "out")?)?;
    Ok(())
}

fn bill(matches: &ArgMatches) -> Outcome {
    let metadata = fs::read_to_string(path(matches, "metadata")?)?;
    let lock = fs::read_to_string(path(matches, "lock")?)?;
    let program = matches.get_one::<String>("program").ok_or("no program")?;
    host::terminal::text(sbom::write(program, &metadata, &lock)?);
    Ok(())
}
