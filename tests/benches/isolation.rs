//! Whether the fast loop notices a model that takes 30 s to answer: real processes with and without one, in turn, on
//! the same trace. Neither arm changes any parameter: one asks nobody, the other is told to do nothing, but late.
//!
//! `./dev isolation`; the argument is the number of repeats.

use rudder_tests::process::cluster::{Cluster, ClusterOptions, event};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

const LATENCY: Duration = Duration::from_secs(30);
/// After a trainer's first step: by then the question has been asked (five reports, and three seconds for others to
/// join), and from then on steps count until it is about to be answered.
const FROM_S: f64 = 20.0;
const TO_S: f64 = 42.0;
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

/// Minibatches a second while a question would be out.
fn run(advisor: &str) -> f64 {
    // Every row is missed, which is an edge as soon as the warm-up is over.
    let (policy, advisor) = ("none".to_owned(), advisor.to_owned());
    let cluster = Cluster::start(&ClusterOptions { policy, advisor, ..ClusterOptions::default() });
    let mut trainer = cluster.trainer("c0", &["--minibatches", "10000000"]);
    let at_s = |step: &Value| step["at_ns"].as_u64().map(|at| at as f64 / 1e9);
    let first = trainer.await_line(|line| event(line, "step").as_ref().and_then(at_s), PATIENCE);
    let over = |line: &str| event(line, "step").as_ref().and_then(at_s).filter(|at| at - first > TO_S);
    trainer.await_line(over, PATIENCE);
    let said = trainer.kill().stdout;
    let counted = |line: &String| {
        let at = event(line, "step").as_ref().and_then(at_s)?;
        (FROM_S..TO_S).contains(&(at - first)).then_some(())
    };
    said.iter().filter_map(counted).count() as f64 / (TO_S - FROM_S)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

fn show(arm: &str, values: &[f64]) {
    let (least, most) = values.iter().fold((f64::MAX, 0.0_f64), |(a, b), &v| (a.min(v), b.max(v)));
    println!("{arm:<28} {:>8.2} [{least:.2}..{most:.2}] minibatches/s", median(values));
}

fn main() {
    let number = |argument: String| argument.parse::<usize>().ok();
    let Some(repeats) = std::env::args().skip(1).find_map(number) else {
        println!("isolation: measured by `./dev isolation`, since it takes minutes");
        return;
    };
    let model = SlowModel::start();
    let slow = format!(
        "[advisor]\nbackend = \"openai\"\nurl = \"{}\"\nmodel = \"m\"\ndeadline = \"60s\"\nattempts = 1\n",
        model.url
    );
    let (mut without, mut with) = (vec![], vec![]);
    for repeat in 0..repeats {
        // The first of a pair is now the one, now the other.
        let arms = if repeat % 2 == 0 { [false, true] } else { [true, false] };
        for asks in arms {
            let before = model.asked.load(Ordering::Relaxed);
            let rate = run(if asks { &slow } else { "[advisor]\nbackend = \"never\"\n" });
            let asked = model.asked.load(Ordering::Relaxed) - before;
            assert_eq!(asked > 0, asks, "a question is out in one arm and not in the other");
            println!("repeat {repeat}: {} {rate:.2}", if asks { "with" } else { "without" });
            if asks { with.push(rate) } else { without.push(rate) }
        }
    }
    show("nobody asked", &without);
    show("a model that takes 30 s", &with);
    let pairs: Vec<_> =
        without.iter().zip(&with).map(|(without, with)| (with / without - 1.0) * 100.0).collect();
    println!("change, median of pairs: {:+.2} % (each: {pairs:+.2?})", median(&pairs));
}
