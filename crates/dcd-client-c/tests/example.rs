//! The example in C, compiled and run against a device in memory behind sockets.

#[path = "../../dcd-client/tests/server/mod.rs"]
mod server;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use server::Server;

/// The static library that cargo has built for this test, beside it.
fn library() -> PathBuf {
    let beside = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let files = std::fs::read_dir(beside).unwrap().map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("libdcd_client_c") && name.ends_with(".a")
    };
    let newest =
        files.filter(is_it).max_by_key(|path| path.metadata().unwrap().modified().unwrap());
    newest.expect("a static library")
}

#[test]
fn the_example_in_c_works() {
    if Command::new("cc").arg("--version").output().is_err() {
        let line = "skipped: the_example_in_c_works: cc is not installed\n";
        let _ = std::io::stderr().write_all(line.as_bytes());
        return;
    }
    let server = Server::start("c", 600);
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = server.folder.join("allocate");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-D_DEFAULT_SOURCE", "-I"]);
    compiler.arg(package.join("include")).arg(package.join("examples/allocate.c"));
    compiler.arg(library()).args(["-lpthread", "-ldl", "-lm", "-o"]).arg(&program);
    let compiled = compiler.output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));

    let run = Command::new(&program).args([server.control(), server.nbd()]).output().unwrap();
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{errors}");
    let expected = "600 blocks of 4096 bytes\nread what was written\nattributes 0x9\nfreed 1\n\
                    the same pointer again: -17, block 0 points to block 8 already\n";
    assert_eq!(String::from_utf8_lossy(&run.stdout), expected);

    let refused = Command::new(&program).args(["/nowhere", "/nowhere"]).output().unwrap();
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(
        errors.contains("no daemon answers at /nowhere") && errors.contains("hint:"),
        "{errors}"
    );
}
