//! A load of SQLite transactions, and what the database must hold after a crash.
//!
//! Each transaction inserts the next row, rewrites an older one, and keeps the books in a second
//! table: so a lost, a torn and an invented transaction all show in a sum.
//!
//! `synchronous=FULL` promises that a committed transaction survives a power cut in WAL mode and
//! with `journal_mode=TRUNCATE`. With DELETE it does not (SQLite's manual, `synchronous=EXTRA`):
//! the directory is not fsynced after the journal was removed, and a journal that comes back rolls
//! the transaction back, on any disk. So TRUNCATE is the rollback journal here.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::harness::random::Random;
use crate::harness::{Site, search_path};

/// Path of the database from the folder of the test.
const DATABASE: &str = "mnt/files/data.db";

/// A database in one of the journal modes.
#[derive(Clone)]
pub struct Sqlite {
    pub journal_mode: &'static str,
    /// Number of the last transaction that was committed: acknowledged, or seen after a crash.
    committed: Arc<AtomicU64>,
}

impl Sqlite {
    pub fn new(journal_mode: &'static str) -> Sqlite {
        Sqlite { journal_mode, committed: Arc::default() }
    }

    pub fn committed(&self) -> u64 {
        self.committed.load(Ordering::SeqCst)
    }

    fn start(&self, site: &Site) -> Child {
        Command::new("sqlite3")
            .args(["-batch", "-bail", "-list", DATABASE])
            .current_dir(site.path(""))
            .env("PATH", search_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Transactions, one after the other, on a thread of their own until the disk goes away.
    pub fn write(&self, site: &Site, random: Random) -> std::thread::JoinHandle<String> {
        let mut child = self.start(site);
        let sqlite = self.clone();
        std::thread::spawn(move || {
            let mut answers = BufReader::new(child.stdout.take().unwrap());
            let reason = match sqlite.commit_all(&mut child, &mut answers, random) {
                Ok(()) => "sqlite3 has ended".to_owned(),
                Err(error) => error.to_string(),
            };
            drop(child.stdin.take());
            let _ = child.wait();
            reason
        })
    }

    fn commit_all(
        &self,
        child: &mut Child,
        answers: &mut BufReader<ChildStdout>,
        mut random: Random,
    ) -> std::io::Result<()> {
        let statements = child.stdin.as_mut().unwrap();
        let mode = self.journal_mode;
        writeln!(
            statements,
            "PRAGMA journal_mode={mode}; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=50;
             CREATE TABLE IF NOT EXISTS rows(n INTEGER PRIMARY KEY, version INT, body BLOB);
             CREATE TABLE IF NOT EXISTS books(n INT, versions INT);
             INSERT INTO books SELECT 0, 0 WHERE NOT EXISTS (SELECT * FROM books);"
        )?;
        loop {
            let number = self.committed() + 1;
            let older = 1 + random.below(number);
            let (new, again) = (random.below(9000), random.below(3000));
            writeln!(
                statements,
                "BEGIN; INSERT INTO rows VALUES({number}, 1, randomblob({new}));
                 UPDATE rows SET version = version + 1, body = randomblob({again}) WHERE n = {older};
                 UPDATE books SET n = {number}, versions = versions + 2;
                 COMMIT; SELECT 'committed {number}';"
            )?;
            let expected = format!("committed {number}");
            let mut line = String::new();
            while line.trim() != expected {
                line.clear();
                if answers.read_line(&mut line)? == 0 {
                    return Ok(());
                }
            }
            self.committed.store(number, Ordering::SeqCst);
        }
    }

    /// The database is whole, and every committed transaction is there; of the one under way at the
    /// crash all or nothing. Returns how many are there.
    pub fn verify(&self, site: &Site, what: &str) -> u64 {
        if !site.path(DATABASE).exists() {
            assert_eq!(self.committed(), 0, "{what}: the database is gone");
            return 0;
        }
        // One that has no tables yet is one of a crash before the first transaction.
        if self.committed() == 0 && self.ask(site, "SELECT count(*) FROM books;").is_none() {
            return 0;
        }
        let found = self.ask(
            site,
            "PRAGMA integrity_check; SELECT count(*), coalesce(max(n), 0), \
             coalesce(sum(version), 0) FROM rows; SELECT coalesce(sum(n), 0), \
             coalesce(sum(versions), 0) FROM books;",
        );
        let found = found.unwrap_or_else(|| panic!("{what}: the database cannot be read"));
        let lines: Vec<&str> = found.lines().collect();
        assert_eq!(lines.first(), Some(&"ok"), "{what}: integrity_check: {found}");
        let committed = self.committed();
        let as_rows =
            |n: u64| vec!["ok".into(), format!("{n}|{n}|{}", 2 * n), format!("{n}|{}", 2 * n)];
        let now = [committed, committed + 1].into_iter().find(|n| lines == as_rows(*n));
        let now =
            now.unwrap_or_else(|| panic!("{what}: {committed} were committed, found {found}"));
        self.committed.store(now, Ordering::SeqCst);
        now
    }

    fn ask(&self, site: &Site, statements: &str) -> Option<String> {
        let output = site.try_tool("sqlite3", &["-batch", "-bail", "-list", DATABASE, statements]);
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
