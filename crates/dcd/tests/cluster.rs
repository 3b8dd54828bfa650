//! The recipes of docs/cluster.md run as they stand: GNU parallel, and Slurm with a cluster of one node
//! that is started for the test. Those of Ray, Dask and Kubernetes are run by
//! `python/tests/test_cluster.py`. What comes out is compared with one sweep, byte for byte.

mod harness;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use harness::{Site, search_path, skipped, until};

const PAGE: &str = "docs/cluster.md";

/// Seconds that a recipe may take.
const RECIPE_SECONDS: &str = "300";

/// For the daemons of Slurm to be ready.
const START: Duration = Duration::from_secs(60);

/// The commands below a heading.
fn recipe(heading: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    let text = std::fs::read_to_string(path).unwrap();
    let part = text.split(&format!("\n## {heading}\n")).nth(1).expect("a recipe");
    let part = part.split("\n## ").next().unwrap();
    let mut blocks = part.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap());
    let commands = blocks.next().expect("commands").to_owned();
    assert_eq!(blocks.next(), None, "one block is run");
    commands
}

/// A folder as on each machine of a cluster: with the trace, and where `dcd` is found.
fn site() -> Site {
    let site = Site::empty();
    site.dcd("trace generate zipf,requests=2000,rate=200,span=1g,seed=7 load.csv.zst").ok();
    site
}

fn bash(site: &Site, commands: &str, variables: &[(&str, &Path)]) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_dcd")).parent().unwrap();
    Command::new("timeout")
        .args(["--kill-after=10", RECIPE_SECONDS, "bash", "-euc", commands])
        .current_dir(site.path(""))
        .env("PATH", format!("{}:{}", program.display(), search_path()))
        .env("DCD_STATE_DIRECTORY", site.folder.state_directory())
        .envs(variables.iter().copied())
        .output()
        .unwrap()
}

fn run(site: &Site, commands: &str, variables: &[(&str, &Path)]) -> String {
    let output = bash(site, commands, variables);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{commands}\n{}\n{said}\n{errors}", output.status);
    said
}

/// What has been merged is what one sweep writes, and nobody has simulated all of it.
fn is_one_sweep(site: &Site, commands: &str) {
    let grid = commands.lines().find(|line| line.contains("GRID=")).expect("a grid");
    run(site, &format!("{grid}\ndcd sweep $GRID --out one.csv"), &[]);
    let rows = |name: &str| std::fs::read_to_string(site.path(name)).unwrap();
    assert_eq!(rows("all.csv"), rows("one.csv"));
    assert_eq!(rows("one.csv").lines().count(), 1 + 18);
    let parts = (0..8).map(|shard| rows(&format!("part{shard}.csv")).lines().count() - 1);
    assert_eq!(parts.collect::<Vec<_>>(), [3, 3, 2, 2, 2, 2, 2, 2]);
}

#[test]
fn gnu_parallel() {
    skip_without!("docs/cluster.md, GNU parallel", "parallel", "bash");
    // moreutils has another program of that name.
    let version = Command::new("parallel").arg("--version").stdin(Stdio::null()).output();
    if !version.is_ok_and(|it| it.stdout.starts_with(b"GNU parallel")) {
        return skipped("docs/cluster.md, GNU parallel", "`parallel` is not GNU parallel");
    }
    let site = site();
    let commands = recipe("GNU parallel");
    run(&site, &commands, &[]);
    is_one_sweep(&site, &commands);
}

#[test]
fn slurm() {
    let name = "docs/cluster.md, Slurm";
    skip_without!(name, "root", "bash", "slurmctld", "slurmd", "sbatch", "munged");
    let site = site();
    let cluster = match Cluster::start(&site) {
        Ok(cluster) => cluster,
        Err(reason) => return skipped(name, &reason),
    };
    let commands = recipe("Slurm");
    cluster.run(&commands);
    is_one_sweep(&site, &commands);
    // Fewer seeds than a search has.
    let commands = recipe("The fuzzer");
    assert!(commands.contains("--runs 1000000 "), "{commands}");
    let said = cluster.run(&commands.replace("--runs 1000000 ", "--runs 16 "));
    let job = said.split_whitespace().last().expect("the number of the job");
    for task in 0..8 {
        let name = format!("slurm-{job}_{task}.out");
        let said = std::fs::read_to_string(site.path(&name)).unwrap();
        let seeds = format!("seed {}, 1 thread", 2 * task);
        let runs = said.lines().find_map(|line| line.strip_prefix("runs "));
        assert!(said.contains(&seeds) && runs.map(str::trim) == Some("2"), "{name}: {said}");
    }
}

/// Slurm on this machine alone, with everything of it in the folder of a test.
struct Cluster<'a> {
    site: &'a Site,
    daemons: Vec<Child>,
    is_up: bool,
}

impl Cluster<'_> {
    /// # Errors
    /// Why it does not come up: what a daemon of Slurm wants differs from machine to machine.
    fn start(site: &Site) -> Result<Cluster<'_>, String> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let host = host.trim().split('.').next().unwrap().to_owned();
        std::fs::write(site.path("slurm.conf"), configuration(site, &host)).unwrap();
        std::fs::create_dir(site.path("slurm")).unwrap();
        let key = site.path("munge.key");
        let commands = "umask 077; head -c 128 /dev/urandom > munge.key";
        run(site, commands, &[]);
        let mut cluster = Cluster { site, daemons: Vec::new(), is_up: false };
        let in_folder = |flag: &str, name: &str| format!("{flag}={}", site.path(name).display());
        cluster.daemon(
            Command::new("munged")
                .args(["--foreground", "--force"])
                .arg(format!("--key-file={}", key.display()))
                .arg(in_folder("--socket", "munge.sock"))
                .arg(in_folder("--pid-file", "munge.pid"))
                .arg(in_folder("--log-file", "munge.log"))
                .arg(in_folder("--seed-file", "munge.seed")),
        );
        let configuration = site.path("slurm.conf");
        cluster.daemon(Command::new("slurmctld").arg("-D").arg("-f").arg(&configuration));
        cluster.daemon(Command::new("slurmd").args(["-D", "-N", &host, "-f"]).arg(&configuration));
        let deadline = Instant::now() + START;
        while cluster.ask("sinfo --noheader --format=%T").trim() != "idle" {
            let has_ended = cluster.daemons.iter_mut().any(|it| it.try_wait().unwrap().is_some());
            if has_ended || Instant::now() > deadline {
                let log = std::fs::read_to_string(site.path("daemons.log")).unwrap_or_default();
                let last = log.lines().last().unwrap_or_default();
                return Err(format!("Slurm does not come up here: {last}"));
            }
            std::thread::sleep(Duration::from_millis(100)); // the pace of polling
        }
        cluster.is_up = true;
        Ok(cluster)
    }

    fn daemon(&mut self, command: &mut Command) {
        let log = self.site.path("daemons.log");
        let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
        let command =
            command.env("PATH", search_path()).current_dir(self.site.path("")).stdin(Stdio::null());
        let command = command.stdout(log.try_clone().unwrap()).stderr(log);
        self.daemons.push(command.spawn().unwrap());
    }

    fn ask(&self, line: &str) -> String {
        let configuration = self.site.path("slurm.conf");
        let output = bash(self.site, line, &[("SLURM_CONF", &configuration)]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Gives jobs to it, and waits until all of them are over.
    fn run(&self, commands: &str) -> String {
        let said = run(self.site, commands, &[("SLURM_CONF", &self.site.path("slurm.conf"))]);
        let jobs = "squeue --noheader --format=%i,%T || echo no answer";
        until("no job is left", || {
            std::thread::sleep(Duration::from_millis(100)); // the pace of polling
            self.ask(jobs).trim().is_empty().then_some(())
        });
        said
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        // Jobs of a test that failed go on without their daemons.
        if self.is_up {
            self.ask("scancel --user=root; sleep 1");
        }
        for daemon in self.daemons.iter_mut().rev() {
            // The number of one that is gone may be somebody else's.
            if !daemon.try_wait().is_ok_and(|it| it.is_none()) {
                continue;
            }
            let _ = Command::new("kill").arg(daemon.id().to_string()).status();
            let deadline = Instant::now() + Duration::from_secs(10);
            while daemon.try_wait().is_ok_and(|it| it.is_none()) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10)); // the pace of polling
            }
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// A cluster of one node; two tasks at a time, however many cores there are.
fn configuration(site: &Site, host: &str) -> String {
    let folder = site.path("slurm");
    let folder = folder.display();
    let socket = site.path("munge.sock");
    let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [controller, node] = ports.map(|port| port.local_addr().unwrap().port());
    format!(
        "ClusterName=dcd
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={socket}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,bf_interval=1
MpiDefault=none
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=4096 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
",
        socket = socket.display()
    )
}
