//! Whether the fast loop notices a model that takes 30 s to answer: real processes with and without one, in turn, on
//! the same trace. Neither arm changes any parameter: one asks nobody, the other is told to do nothing, but late.
//!
//! Throughput depends on what else the machine does, so beside it stands what does not, or hardly: CPU time and context
//! switches a minibatch of the threads that move bytes and of those that plan. Ratios are of medians over slices of
//! some seconds; intervals come from drawing runs, and slices within them, again and again (bootstrap, 95 %).
//!
//! `./dev isolation`; the argument is the number of repeats.

#[path = "isolation/threads.rs"]
mod threads;

use rudder_graph::random::Key;
use rudder_tests::process::Child;
use rudder_tests::process::cluster::{Cluster, ClusterOptions, event};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use threads::{Group, Work, work};

const LATENCY: Duration = Duration::from_secs(30);
/// After a trainer's first step: by then the question has been asked (five reports, and three seconds for others to
/// join), and until the last slice ends it is not answered.
const FROM_S: f64 = 20.0;
const SLICE_S: f64 = 4.0;
const SLICES: usize = 5;
const PATIENCE: Duration = Duration::from_secs(300);

/// An OpenAI-compatible server that answers late.
struct SlowModel {
    url: String,
    asked: Arc<AtomicU64>,
}

impl SlowModel {
    fn start() -> SlowModel {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let asked = Arc::new(AtomicU64::new(0));
        let count = asked.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let count = count.clone();
                std::thread::spawn(move || answer(stream, &count));
            }
        });
        SlowModel { url, asked }
    }
}

fn answer(mut stream: TcpStream, asked: &AtomicU64) {
    if read_request(&mut stream).is_none() {
        return;
    }
    asked.fetch_add(1, Ordering::Relaxed);
    let (_never, ends) = mpsc::channel::<()>();
    let _ = ends.recv_timeout(LATENCY);
    let body =
        r#"{"choices":[{"message":{"role":"assistant","content":"{\"choose\":[],\"reason\":\"\"}"}}]}"#;
    let length = body.len();
    // A node that was killed meanwhile needs no answer.
    let _ = write!(
        stream,
        "HTTP/1.1 200 x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
}

fn read_request(stream: &mut TcpStream) -> Option<()> {
    let (mut bytes, mut piece) = (vec![], [0; 4096]);
    loop {
        let read = stream.read(&mut piece).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&piece[..read]);
        let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        if bytes.len() >= head + 4 + length.unwrap_or(0) {
            return Some(());
        }
    }
}

/// What is compared.
const MEASURES: [&str; 5] = [
    "minibatches/s",
    "mover CPU us a minibatch",
    "planner CPU us a minibatch",
    "mover switches a minibatch",
    "planner switches a minibatch",
];

/// One value of each measure.
type Slice = [f64; MEASURES.len()];

/// What is known at one moment.
#[derive(Clone, Copy)]
struct Moment {
    /// Of the trainer's clock.
    at_s: f64,
    minibatches: f64,
    movers: Work,
    planners: Work,
}

fn step(line: &str) -> Option<(f64, f64)> {
    let step = event(line, "step")?;
    Some((step["at_ns"].as_u64()? as f64 / 1e9, step["minibatch"].as_u64()? as f64))
}

/// The first step after a time of the trainer's clock, and what the nodes' threads had done when it was seen.
fn moment(trainer: &mut Child, nodes: &[i32], after_s: f64) -> Moment {
    let (at_s, minibatches) =
        trainer.await_line(|line| step(line).filter(|&(at_s, _)| at_s >= after_s), PATIENCE);
    let (movers, planners) = (work(nodes, Group::Movers), work(nodes, Group::Planners));
    Moment { at_s, minibatches, movers, planners }
}

fn slice(from: &Moment, to: &Moment) -> Slice {
    let minibatches = (to.minibatches - from.minibatches).max(1.0);
    let (movers, planners) = (to.movers - from.movers, to.planners - from.planners);
    [
        minibatches / (to.at_s - from.at_s),
        movers.cpu_us / minibatches,
        planners.cpu_us / minibatches,
        movers.switches / minibatches,
        planners.switches / minibatches,
    ]
}

/// Slices of a run while a question would be out.
fn run(advisor: &str) -> Vec<Slice> {
    // Every row is missed, which is an edge as soon as the warm-up is over.
    let (policy, advisor) = ("none".to_owned(), advisor.to_owned());
    let mut cluster = Cluster::start(&ClusterOptions { policy, advisor, ..ClusterOptions::default() });
    let names = cluster.running();
    let nodes: Vec<i32> = names.iter().map(|name| cluster.node(name).pid().as_raw_nonzero().get()).collect();
    let mut trainer = cluster.trainer("c0", &["--minibatches", "10000000"]);
    let (first_s, _) = trainer.await_line(step, PATIENCE);
    let at = |n: usize| first_s + FROM_S + n as f64 * SLICE_S;
    let moments: Vec<Moment> = (0..=SLICES).map(|n| moment(&mut trainer, &nodes, at(n))).collect();
    trainer.kill();
    moments.windows(2).map(|pair| slice(&pair[0], &pair[1])).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// Times that runs are drawn again.
const DRAWS: u64 = 2000;

/// The ratio of the medians of two arms, and its interval.
fn ratio(with: &[Vec<f64>], without: &[Vec<f64>]) -> (f64, f64, f64) {
    let of = |arm: &[Vec<f64>]| median(arm.iter().flatten().copied().collect());
    let drawn = |arm: &[Vec<f64>], key: Key| {
        let run = |n: usize| &arm[key.below(n as u64, arm.len() as u64) as usize];
        let value = |n: usize| {
            let run = run(n);
            let own = key.with(n as u64);
            (0..run.len()).map(move |at| run[own.below(at as u64, run.len() as u64) as usize])
        };
        median((0..arm.len()).flat_map(value).collect())
    };
    let mut ratios: Vec<f64> = (0..DRAWS)
        .map(|n| drawn(with, Key::new(2 * n)) / drawn(without, Key::new(2 * n + 1)).max(f64::MIN_POSITIVE))
        .collect();
    ratios.sort_by(f64::total_cmp);
    let quantile = |share: f64| ratios[((DRAWS - 1) as f64 * share) as usize];
    (of(with) / of(without).max(f64::MIN_POSITIVE), quantile(0.025), quantile(0.975))
}

fn main() {
    let number = |argument: String| argument.parse::<usize>().ok();
    let Some(repeats) = std::env::args().skip(1).find_map(number).filter(|repeats| *repeats > 0) else {
        println!("isolation: measured by `./dev isolation`, since it takes minutes");
        return;
    };
    let model = SlowModel::start();
    let slow = format!(
        "[advisor]\nbackend = \"openai\"\nurl = \"{}\"\nmodel = \"m\"\ndeadline = \"60s\"\nattempts = 1\n",
        model.url
    );
    let mut arms: [Vec<Vec<Slice>>; 2] = [vec![], vec![]];
    for repeat in 0..repeats {
        // The first of a pair is now the one, now the other.
        let order = if repeat % 2 == 0 { [0, 1] } else { [1, 0] };
        for arm in order {
            let before = model.asked.load(Ordering::Relaxed);
            let slices = run(if arm == 1 { &slow } else { "[advisor]\nbackend = \"never\"\n" });
            let asked = model.asked.load(Ordering::Relaxed) - before;
            assert_eq!(asked > 0, arm == 1, "a question is out in one arm and not in the other");
            let rates: Vec<f64> = slices.iter().map(|slice| slice[0]).collect();
            println!(
                "repeat {repeat}, {}: {rates:.1?} minibatches/s",
                ["nobody asked", "a question out"][arm]
            );
            arms[arm].push(slices);
        }
    }
    println!("\nload of the machine at the end: {}", threads::load());
    println!("{:<30} {:>9} {:>9}  ratio, 95 %", "median", "nobody", "asked");
    for (at, name) in MEASURES.iter().enumerate() {
        let of = |arm: usize| -> Vec<Vec<f64>> {
            arms[arm].iter().map(|run| run.iter().map(|slice| slice[at]).collect()).collect()
        };
        let (without, with) = (of(0), of(1));
        let (ratio, low, high) = ratio(&with, &without);
        let middle = |arm: &[Vec<f64>]| median(arm.iter().flatten().copied().collect());
        println!(
            "{name:<30} {:>9.2} {:>9.2}  {ratio:.4} [{low:.4}..{high:.4}]",
            middle(&without),
            middle(&with)
        );
        if at == 0 {
            let shown = low > 0.99;
            println!(
                "  throughput changes by less than 1 %: {}",
                if shown {
                    "shown"
                } else {
                    "not shown by these runs: repeat them on a machine that does nothing else"
                }
            );
        }
    }
}
