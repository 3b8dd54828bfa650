//! A server of NBD that is not ours, which can be killed and started again.

use std::fs;
use std::process::{Command, Stdio};

use super::{Helper, Site, until};

/// Listens at `v.sock` of the site.
pub struct Real {
    pub helper: Option<Helper>,
    command: Vec<String>,
}

impl Real {
    /// The words of `line`, in which `DIR` is the site's folder.
    pub fn start(site: &Site, line: &str) -> Real {
        let folder = site.path("").display().to_string();
        let command = line.replace("DIR", folder.trim_end_matches('/'));
        let command = command.split_whitespace().map(str::to_owned).collect();
        let mut real = Real { helper: None, command };
        real.come_back(site);
        real
    }

    pub fn come_back(&mut self, site: &Site) {
        let _ = fs::remove_file(site.path("v.sock"));
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).current_dir(site.path(""));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        self.helper = Some(Helper::start(&mut command));
        until("the server listens", || site.path("v.sock").exists().then_some(()));
    }

    pub fn kill(&mut self) {
        if let Some(mut helper) = self.helper.take() {
            helper.kill_now();
        }
    }
}
