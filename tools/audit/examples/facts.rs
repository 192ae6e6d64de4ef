//! Prints what is read off ELF files: `cargo run --release -p millrace-audit --example facts -- FILE...`

fn main() -> std::io::Result<()> {
    for path in std::env::args().skip(1) {
        let bytes = std::fs::read(&path)?;
        let begun = std::time::Instant::now();
        let facts = audit::elf::read(&bytes);
        let took = begun.elapsed();
        println!("{path}: {took:.2?}");
        match facts {
            Ok(facts) => {
                let (imports, functions) = (facts.imports.len(), facts.functions.len());
                let rest = audit::facts::Facts {
                    imports: [].into(),
                    functions: [].into(),
                    ..facts
                };
                println!("{imports} imports, {functions} functions\n{rest:#?}");
            }
            Err(error) => println!("{error}"),
        }
    }
    Ok(())
}
