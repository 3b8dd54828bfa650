//! Where wrong calls are made: a folder with a data-disk, its cache, and other files, and all that
//! is told apart before and after.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::harness::random::sum_of_file;
use crate::harness::{Daemon, Site, assert_no_panic};

/// A wrong call. In `line`, and in what it says, `{NAME}` is what [`World::name`] was given.
pub struct Call {
    /// What is wrong, in words.
    pub name: String,
    /// What the machine is brought to before.
    pub given: Box<dyn Fn(&World)>,
    /// The call.
    pub line: String,
    pub code: i32,
    /// In the line that says what is wrong.
    pub error: String,
    /// In the line that says what to do.
    pub hint: String,
    /// What works afterwards, once [`World::undo`] has undone what was given; empty: nothing is
    /// tried.
    pub then: String,
}

/// A call that ends with 1.
pub fn call(
    name: &str,
    given: impl Fn(&World) + 'static,
    line: &str,
    (error, hint): (&str, &str),
    then: &str,
) -> Call {
    Call {
        name: name.into(),
        given: Box::new(given),
        line: line.into(),
        code: 1,
        error: error.into(),
        hint: hint.into(),
        then: then.into(),
    }
}

/// Serving, as it is called here.
pub fn serve(cache: &str, data: &str) -> String {
    format!(
        "serve --cache-disk {cache} --data-disk {data} --nbd unix:sock --memory-directory . --quiet"
    )
}

/// Detaching what [`serve`] would serve.
pub fn detach(cache: &str, data: &str) -> String {
    format!("detach --cache-disk {cache} --data-disk {data} --memory-directory .")
}

/// A folder with `d`, a data-disk of 8 MiB, and `c`, its cache, and whatever a call needs besides.
pub struct World {
    pub site: Site,
    names: RefCell<BTreeMap<String, String>>,
    undo: RefCell<Vec<String>>,
    daemons: RefCell<Vec<Daemon>>,
}

/// What a file is: size, room that it takes, what is in it.
type FileState = (u64, u64, u64);

impl World {
    pub fn new() -> World {
        let site = Site::empty();
        // With a record of pairs of its own.
        fs::create_dir(site.path("state")).unwrap();
        site.folder.disk("d", 8 << 20);
        site.dcd("create --cache-disk c --cache-size 3M --data-disk d --segment-size 64k").ok();
        World {
            site,
            names: RefCell::default(),
            undo: RefCell::default(),
            daemons: RefCell::default(),
        }
    }

    /// Makes the call, and judges all that it did.
    pub fn refuses(&self, call: &Call) {
        (call.given)(self);
        let before = self.files();
        let outcome = self.site.dcd(&self.filled(&call.line));
        assert_no_panic(&outcome.stderr);
        eprintln!("{}: {}", call.name, outcome.stderr.trim_end());
        outcome.fails(call.code, &self.filled(&call.error), &self.filled(&call.hint));
        let after = self.files();
        for (path, state) in &after {
            assert_eq!(
                before.get(path),
                Some(state),
                "{}: {} has changed",
                call.name,
                path.display()
            );
        }
        assert_eq!(before.len(), after.len(), "{}: a file is gone", call.name);
        self.undo();
        if !call.then.is_empty() {
            self.site.dcd(&self.filled(&call.then)).ok();
        }
    }

    /// Gives a name to something.
    pub fn name(&self, name: &str, value: &str) {
        self.names.borrow_mut().insert(name.to_owned(), value.to_owned());
    }

    /// What has this name.
    pub fn named(&self, name: &str) -> String {
        self.names.borrow()[name].clone()
    }

    /// Runs a tool; `back` undoes it.
    pub fn tool(&self, line: &str, back: &str) -> String {
        let said = self.site.run(&self.filled(line));
        if !back.is_empty() {
            self.undo.borrow_mut().push(self.filled(back));
        }
        said.trim().to_owned()
    }

    /// A right call.
    pub fn dcd(&self, line: &str) {
        self.site.dcd(&self.filled(line)).ok();
    }

    /// A loop device, under this name.
    pub fn loop_device(&self, name: &str, flags_and_file: &str) {
        let device = self.tool(&format!("losetup --find --show {flags_and_file}"), "");
        self.undo.borrow_mut().push(format!("losetup -d {device}"));
        self.name(name, &device);
    }

    /// A daemon, which is stopped at the end.
    pub fn daemon(&self, line: &str) {
        self.daemons.borrow_mut().push(self.site.start_line(&self.filled(line)).ready());
    }

    /// Ends the daemons in order.
    pub fn stop(&self) {
        self.daemons.borrow_mut().drain(..).for_each(Daemon::stop);
    }

    /// kill -9.
    pub fn kill(&self) {
        self.daemons.borrow_mut().drain(..).for_each(Daemon::kill);
    }

    /// Undoes what was done, the last first.
    pub fn undo(&self) {
        self.stop();
        let undo: Vec<String> = self.undo.borrow_mut().drain(..).rev().collect();
        for line in undo {
            self.site.run(&line);
        }
    }

    /// Writes bytes into a file, which is made if it is missing.
    pub fn write(&self, file: &str, offset: u64, bytes: &[u8]) {
        let file = fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.site.path(file))
            .unwrap();
        file.write_all_at(bytes, offset).unwrap();
    }

    fn filled(&self, text: &str) -> String {
        let names = self.names.borrow();
        let fill = |text: String, (name, value): (&String, &String)| {
            text.replace(&format!("{{{name}}}"), value)
        };
        names.iter().fold(text.to_owned(), fill)
    }

    /// Everything in the folder. What a daemon writes to meanwhile is not looked at.
    fn files(&self) -> BTreeMap<PathBuf, FileState> {
        let mut found = BTreeMap::new();
        let is_served = !self.daemons.borrow().is_empty();
        collect(&self.site.path(""), is_served, &mut found);
        found
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Also of a call that failed the test.
        self.daemons.borrow_mut().clear();
        let undo: Vec<String> = self.undo.borrow_mut().drain(..).rev().collect();
        for line in undo {
            let words: Vec<&str> = line.split_whitespace().collect();
            let _ = self.site.try_tool(words[0], &words[1..]);
        }
    }
}

fn collect(directory: &Path, is_served: bool, found: &mut BTreeMap<PathBuf, FileState>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        let name = entry.file_name().to_string_lossy().into_owned();
        if kind.is_dir() {
            collect(&path, is_served, found);
        } else if kind.is_file() && !(name.ends_with(".log") || is_served && name == "c") {
            let metadata = fs::metadata(&path).unwrap();
            found.insert(path.clone(), (metadata.len(), metadata.blocks(), sum_of_file(&path)));
        }
    }
}
