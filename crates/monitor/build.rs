//! Compresses the page, and writes the policy that lets a browser run its own script and style and nothing else.

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::{env, fs};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

const PAGE: &str = "page/page.html";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={PAGE}");
    let page = fs::read_to_string(PAGE)?;
    let out = env::var_os("OUT_DIR").ok_or("no OUT_DIR")?;
    let out = Path::new(&out);
    let mut gz = GzEncoder::new(Vec::new(), Compression::best());
    gz.write_all(page.as_bytes())?;
    fs::write(out.join("page.html.gz"), gz.finish()?)?;
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        hash(&page, "script")?,
        hash(&page, "style")?
    );
    fs::write(out.join("policy.txt"), policy)?;
    Ok(())
}

/// How a policy names what is in an element of the page (Content Security Policy 3, section 2.3.1).
fn hash(page: &str, element: &str) -> Result<String, Box<dyn Error>> {
    let [begin, end] = [format!("<{element}>"), format!("</{element}>")];
    let (_, rest) = page.split_once(&begin).ok_or("no such element")?;
    let (text, _) = rest.split_once(&end).ok_or("no end of it")?;
    Ok(format!("sha256-{}", STANDARD.encode(Sha256::digest(text))))
}
