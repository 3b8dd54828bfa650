use dcd_fuzz::minimise::minimise;
use dcd_fuzz::session::*;
use std::ops::ControlFlow;
fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let a: Vec<String> = std::env::args().collect();
    let n = |i: usize| a[i].parse::<u64>().unwrap();
    match a[1].as_str() {
        "a" => {
            use dcd_engine::AckMode;
            use dcd_fuzz::{
                faults::FaultKind::*,
                options::Options,
                script::{Op::*, Script, Step},
            };
            let r = dcd_fuzz::run::replay(
                &Script {
                    options: Options { ack: AckMode::Durable, ..Options::default() },
                    steps: vec![
                        Step(Write { start: 192, blocks: 2, fua: false }, 0),
                        Step(Settle, 0),
                        Step(Fault(CacheVanishes), 2969543784),
                        Step(Write { start: 463, blocks: 3, fua: false }, 0),
                        Step(Idle, 3604037484),
                        Step(Crash { power: false }, 0),
                        Step(Idle, 0),
                        Step(Fault(CacheVanishes), 0),
                        Step(Write { start: 464, blocks: 4, fua: false }, 0),
                        Step(Fault(Hang), 3871903561),
                        Step(Idle, 0),
                        Step(Write { start: 560, blocks: 2, fua: false }, 3686120325),
                    ],
                },
                true,
            );
            println!("{:?}", r.map_err(|f| f.violation));
        }
        #[cfg(feature = "seeded-bugs")]
        "sc" => {
            let s = dcd_fuzz::seeded::script(n(2), n(3));
            println!("{:?}", s.options);
            let r = dcd_fuzz::run::replay(&s, false);
            if let Err(f) = r {
                println!("{}", f.violation);
                let m = minimise(&f);
                println!("{}\n{}", m.violation, m.script.to_test("x", ""));
                println!("{:?}", m.script.options.faults);
                dcd_fuzz::run::replay(&m.script, true).ok();
            }
        }
        #[cfg(feature = "seeded-bugs")]
        "hunt" => {
            use dcd_engine::seeded_bugs::turn_on;
            use dcd_fuzz::seeded::*;
            use dcd_fuzz::{
                options::Options,
                random::Random,
                script::{Op::*, Script, Step},
            };
            let bug = *SeededBug::ALL.iter().find(|b| b.name() == "copy-of-changed-line").unwrap();
            let mut r = Random::new(n(2));
            turn_on(Some(bug));
            for i in 0..20000 {
                let mut steps = vec![];
                if r.one_in(2) {
                    steps.push(Step(Read { start: 640, blocks: 8 }, 0));
                    steps.push(Step(Settle, 0));
                }
                if r.one_in(2) {
                    steps.push(Step(Write { start: 480, blocks: 8, fua: true }, 0));
                    steps.push(Step(Settle, 0));
                }
                steps.push(Step(Read { start: 176, blocks: 8 }, 0));
                steps.push(Step(
                    Write { start: 176, blocks: if r.one_in(2) { 8 } else { 32 }, fua: true },
                    0,
                ));
                for _ in 0..r.below(5) {
                    steps.push(Step(EndIo, r.bits() as u32));
                }
                steps.push(Step(Drain, 0));
                for _ in 0..r.below(10) {
                    steps.push(Step(EndIo, r.bits() as u32));
                }
                steps.push(Step(Settle, 0));
                steps.push(Step(Idle, 0));
                steps.push(Step(Read { start: 176, blocks: 8 }, 0));
                steps.push(Step(Settle, 0));
                let s = Script {
                    options: Options {
                        copy_pages: 1,
                        hot_blocks: true,
                        early_reads: true,
                        ..Options::default()
                    },
                    steps,
                };
                if let Err(f) = dcd_fuzz::run::replay(&s, false) {
                    println!("{i} {}", f.violation);
                    let m = minimise(&f);
                    println!("{}", m.script.to_test("x", ""));
                    turn_on(None);
                    println!(
                        "anyway {:?}",
                        dcd_fuzz::run::replay(&m.script, false).err().map(|f| f.violation)
                    );
                    return;
                }
            }
        }
        "trace" => {
            let r = dcd_fuzz::run::run_traced(n(2));
            println!("{r:?}");
        }
        "tpair" => {
            let f: Vec<_> = a[3].split(',').map(|s| s.parse().unwrap()).collect();
            let s = dcd_fuzz::script::Script::with_faults(n(2), &f);
            let r = dcd_fuzz::run::replay(&s, true);
            println!("{:?}", r.map_err(|f| f.violation));
        }
        #[cfg(feature = "seeded-bugs")]
        "bug" => {
            use dcd_fuzz::seeded::*;
            for bug in SeededBug::ALL {
                if !a[4..].iter().any(|x| bug.name().contains(x.as_str())) {
                    continue;
                }
                let t = try_bug(Some(*bug), n(2), n(3));
                println!(
                    "{} runs {} {:?}: {}",
                    bug.name(),
                    t.runs,
                    t.elapsed,
                    t.caught.as_ref().map(|c| c.to_string()).unwrap_or("NOT FOUND".into())
                );
                if let Some(c) = &t.fails_anyway {
                    println!("  FAILS ANYWAY {c}");
                }
            }
        }
        #[cfg(feature = "seeded-bugs")]
        "shrink" => {
            use dcd_engine::seeded_bugs::turn_on;
            use dcd_fuzz::seeded::*;
            let bug = *SeededBug::ALL.iter().find(|b| b.name() == a[4]).unwrap();
            for i in 0..n(3) {
                let s = dcd_fuzz::seeded::script(n(2), i);
                turn_on(Some(bug));
                let r = dcd_fuzz::run::replay(&s, false);
                if let Err(f) = r {
                    println!("run {i}: {}", f.violation);
                    let m = minimise(&f);
                    println!("{}\n{}", m.violation, m.script.to_test("x", ""));
                    turn_on(None);
                    println!(
                        "anyway: {:?}",
                        dcd_fuzz::run::replay(&m.script, false).err().map(|f| f.violation)
                    );
                    return;
                }
                turn_on(None);
            }
            println!("not found");
        }
        what => {
            let work = match what {
                "pairs" => Work::Pairs,
                "sweep" => Work::Sweep,
                "random" => Work::Random(vec![]),
                "ex" => Work::Exhaustive(n(5) as u32),
                f => Work::Random(f.split(',').map(|s| s.parse().unwrap()).collect()),
            };
            let s = Session { work, seed: n(2), limit: Limit::Runs(n(3)), jobs: n(4) as usize };
            let o = s.run(|_, _| ControlFlow::Continue(()));
            let r = &o.report;
            println!(
                "{} runs {} crash points, {:.0}/s {:?}\n{:?} times {:?}",
                r.runs,
                r.crash_points,
                o.per_second(),
                o.elapsed,
                r.copies,
                r.times
            );
            for f in &o.failures {
                println!(
                    "seed {} faults {:?} pages {} early {}: {} @{}",
                    f.seed,
                    f.script.options.faults,
                    f.script.options.copy_pages,
                    f.script.options.early_reads,
                    f.violation,
                    f.step
                );
            }
            let k = a.get(6).map_or(1, |x| x.parse().unwrap());
            for f in o.failures.iter().take(k) {
                let m = minimise(f);
                println!("{}\n{}", m.violation, m.script.to_test("x", ""));
            }
        }
    }
}
