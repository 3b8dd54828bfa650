//! Work on the corpus by hand.
//!
//! ```text
//! dcd-byte-fuzz seeds              write the seeds into the corpus of the repository
//! dcd-byte-fuzz run TARGET FILE    run one input; a panic says what is wrong
//! dcd-byte-fuzz targets            the names of all targets
//! ```

use std::path::Path;
use std::process::ExitCode;

use dcd_byte_fuzz::seeds::seeds;
use dcd_byte_fuzz::{TARGETS, target};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["seeds"] => write_seeds(),
        ["run", name, file] => std::fs::read(file).map(|bytes| (target(name).run)(&bytes)),
        ["targets"] => {
            TARGETS.iter().for_each(|target| println!("{}", target.name));
            Ok(())
        }
        _ => {
            eprintln!("expected: seeds | run TARGET FILE | targets");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn write_seeds() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in TARGETS {
        let folder = corpus.join(target.name);
        std::fs::create_dir_all(&folder)?;
        for (name, bytes) in seeds(target.name) {
            std::fs::write(folder.join(name), bytes)?;
        }
    }
    Ok(())
}
