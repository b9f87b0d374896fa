//! Movers beside the tools that say what the machine can do: direct reads beside fio, mover to mover beside iperf3.
//!
//! `cargo bench -p rudder-dataplane` prints ratios; both sides run interleaved on the same file or port range, and
//! the median of three rounds counts. `RUDDER_BENCH_DIR` names a directory on a real disk (default: the target folder).
//! A tool that is not installed is said to be missing, and its part is skipped.

#![allow(unsafe_code)]

#[path = "../tests/support/data.rs"]
#[allow(dead_code)]
mod data;
#[path = "../tests/support/rig.rs"]
#[allow(dead_code)]
mod support;

use data::{Shape, TestData};
use rudder_client::handshake::Verbs;
use rudder_dataplane::{
    Backend, BackendChoice, BlockFiles, Destination, StorageMover, TransferItem, TransferRequest, probe,
};
use rudder_graph::{BlockRows, Class};
use rudder_topology::{BlockId, Bytes, ChunkId, Cores, StorageMode, TransferId};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{S0, compute, join, storage_config};

/// `cargo bench -p rudder-dataplane -- reads io_uring` runs one of them, on one backend.
const PARTS: [&str; 2] = ["reads", "network"];
const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(2);
/// 4 KiB blocks: 512 MiB.
const BLOCKS: u64 = 128 << 10;

fn main() {
    // `cargo test --benches` passes arguments of a test harness; only a real run measures.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let root = std::env::var_os("RUDDER_BENCH_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    std::fs::create_dir_all(&root).expect("a directory");
    let root = tempfile::Builder::new().prefix("rudder-bench").tempdir_in(root).expect("a directory");
    println!(
        "{} cores; io_uring: {:?}",
        std::thread::available_parallelism().map_or(0, usize::from),
        Backend::probe()
    );
    let shape = Shape { rows_of_parts: vec![BLOCKS], row_bytes: 4096, rows_per_block: 1 };
    let data = TestData::write(root.path(), "bench", &shape);
    // Written back now, not while others are timed.
    let file = data.directory.join("parts/0/feat.npy");
    std::fs::File::open(&file).and_then(|file| file.sync_all()).expect("synced");
    if wanted("reads", &PARTS) {
        reads(&data, &file);
    }
    if wanted("network", &PARTS) {
        network(&data);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn backends() -> Vec<(&'static str, BackendChoice)> {
    let mut backends = vec![("pread", BackendChoice::Pread), ("threads", BackendChoice::PreadThreads)];
    if Backend::probe().is_ok() {
        backends.insert(0, ("io_uring", BackendChoice::Uring));
    }
    let names: Vec<&str> = backends.iter().map(|&(name, _)| name).collect();
    backends.retain(|&(name, _)| wanted(name, &names));
    backends
}

/// Whether the arguments name this one, or none of its kind.
fn wanted(name: &str, kind: &[&str]) -> bool {
    std::env::args().skip(1).all(|argument| argument == name || !kind.contains(&argument.as_str()))
        || std::env::args().any(|argument| argument == name)
}

fn reads(data: &TestData, file: &Path) {
    println!("\ndirect reads, random, CRC32C of every block checked by ours");
    println!(
        "{:>10} {:>6} {:>9} {:>10} {:>10} {:>7}",
        "read", "depth", "backend", "ours MB/s", "fio MB/s", "ratio"
    );
    // The first reads after the file was written are nobody's.
    fio(file, 1 << 20, 4);
    for (read_bytes, depth) in [(4 << 10, 64), (64 << 10, 16), (256 << 10, 8), (1 << 20, 4)] {
        let mut fio_rates = Vec::new();
        let mut ours = vec![Vec::new(); backends().len()];
        for round in 0..ROUNDS {
            // Who goes first changes: rented disks often give a burst and then less.
            let arms = backends().len() + 1;
            for arm in (0..arms).map(|at| (at + round) % arms) {
                match backends().get(arm) {
                    Some(&(_, backend)) => {
                        ours[arm].push(direct(data, backend, read_bytes, depth, round as u64))
                    }
                    None => fio_rates.extend(fio(file, read_bytes, depth)),
                }
            }
        }
        for ((name, _), rates) in backends().into_iter().zip(ours) {
            let ours = median(rates.iter().map(|rate| rate.0).collect());
            let cpu = median(rates.iter().map(|rate| rate.1).collect());
            print!("{:>10} {depth:>6} {name:>9} {ours:>10.0}", Bytes(read_bytes).to_string());
            if fio_rates.is_empty() {
                println!("   fio is not installed: no ratio; CPU {cpu:.1} us/read");
            } else {
                let fio = median(fio_rates.iter().map(|rate: &(f64, f64)| rate.0).collect());
                let fio_cpu = median(fio_rates.iter().map(|rate| rate.1).collect());
                println!(" {fio:>10.0} {:>7.2} {cpu:>12.1} {fio_cpu:>12.1}", ours / fio);
            }
        }
    }
}

fn direct(data: &TestData, backend: BackendChoice, read_bytes: u64, depth: usize, seed: u64) -> (f64, f64) {
    let files = BlockFiles::open(&data.directory, StorageMode::Direct, Bytes(0)).expect("opened");
    let run = read_bytes / 4096;
    let places = BLOCKS / run;
    let requests = (0..400_000 / run)
        .map(|number| {
            // A multiplicative hash spreads the reads over the file.
            let place = (number + seed * 7919).wrapping_mul(0x9e37_79b9_7f4a_7c15) % places;
            let block = |at| BlockRows { block: BlockId((place * run + at) as u32), mask: 1 };
            (0..run).map(block).collect()
        })
        .collect();
    let cpu = cpu_seconds();
    let rate = probe::direct_reads(files, backend, &Cores::Shared, requests, depth, ROUND).expect("read");
    let cpu_us = (cpu_seconds() - cpu) * 1e6 / rate.requests as f64;
    (rate.bytes.0 as f64 / 1e6 / rate.elapsed.as_secs_f64(), cpu_us)
}

/// MB/s, and CPU microseconds of a read.
fn fio(file: &Path, read_bytes: u64, depth: usize) -> Option<(f64, f64)> {
    let engine = if Backend::probe().is_ok() { "io_uring" } else { "libaio" };
    let output = Command::new("fio")
        .args(["--name=rudder", "--rw=randread", "--direct=1", "--time_based", "--output-format=json"])
        .arg(format!("--filename={}", file.display()))
        .arg(format!("--ioengine={engine}"))
        .args([format!("--bs={read_bytes}"), format!("--iodepth={depth}")])
        .arg(format!("--runtime={}", ROUND.as_secs()))
        .args(if engine == "io_uring" { ["--fixedbufs", "--registerfiles"].as_slice() } else { &[] })
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let report: serde_json::Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let job = &report["jobs"][0];
    let percent = job["usr_cpu"].as_f64()? + job["sys_cpu"].as_f64()?;
    let cpu_us =
        percent / 100.0 * job["read"]["runtime"].as_f64()? * 1e3 / job["read"]["total_ios"].as_f64()?;
    Some((job["read"]["bw_bytes"].as_f64()? / 1e6, cpu_us))
}

fn network(data: &TestData) {
    println!("\nmover to mover over loopback, from mapped blocks to cache slots, both CRCs and tags checked");
    println!(
        "{:>10} {:>9} {:>9} {:>12} {:>11} {:>7} {:>14}",
        "transfer", "backend", "ours Gb/s", "CPU s per GB", "iperf3 Gb/s", "ratio", "iperf3 s per GB"
    );
    for transfer_bytes in [64 << 10, 256 << 10, 1 << 20] {
        let mut iperf_rates = Vec::new();
        let mut ours = vec![Vec::new(); backends().len()];
        for _ in 0..ROUNDS {
            iperf_rates.extend(iperf3());
            for (at, (_, backend)) in backends().into_iter().enumerate() {
                ours[at].push(mover_to_mover(data, backend, transfer_bytes));
            }
        }
        for ((name, _), rates) in backends().into_iter().zip(ours) {
            let rate = median(rates.iter().map(|rate| rate.0).collect());
            let cpu = median(rates.iter().map(|rate| rate.1).collect());
            print!("{:>10} {name:>9} {rate:>9.2} {cpu:>12.2}", Bytes(transfer_bytes).to_string());
            if iperf_rates.is_empty() {
                println!("   iperf3 is not installed: no ratio");
            } else {
                let iperf = median(iperf_rates.iter().map(|rate| rate.0).collect());
                let iperf_cpu = median(iperf_rates.iter().map(|rate| rate.1).collect());
                println!(" {iperf:>11.2} {:>7.2} {iperf_cpu:>14.2}", rate / iperf);
            }
        }
    }
}

/// CPU seconds of this process so far, all threads.
fn cpu_seconds() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: a valid pointer to a rusage; all-zero is a value of it.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr());
        usage.assume_init()
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Gbit/s and CPU seconds per GB of both ends together.
fn mover_to_mover(data: &TestData, backend: BackendChoice, transfer_bytes: u64) -> (f64, f64) {
    let files = BlockFiles::open(&data.directory, StorageMode::Memory, Bytes(0)).expect("opened");
    let mut config = storage_config(data.directory.parent().expect("a parent"), vec![files], backend);
    config.transfer_bytes_max = Bytes(transfer_bytes);
    let storage = StorageMover::start(config).expect("started");
    let compute = compute(&data.book, backend, support::PATIENCE, Bytes(transfer_bytes));
    compute.attach(join(&storage, "c0", &data.manifest.name, Verbs::FETCH));
    let blocks = transfer_bytes / 4096;
    // Slots for 4 MiB in flight.
    let in_flight = (4 << 20) / transfer_bytes;
    let request = |id: u64| {
        let items = (0..blocks).map(|at| {
            let block = BlockId(((id * blocks + at) * 17 % BLOCKS) as u32);
            let offset = ((id % in_flight) * blocks + at) * 4096;
            let to = Destination::Slot { chunk: ChunkId(0), offset };
            TransferItem { rows: BlockRows { block, mask: 1 }, to }
        });
        TransferRequest { id: TransferId(id), node: S0, class: Class::Prefetch, items: items.collect() }
    };
    for id in 0..in_flight {
        compute.handle.submit(request(id)).expect("running");
    }
    let (mut start, mut cpu, mut bytes, mut next) = (Instant::now(), cpu_seconds(), 0, in_flight);
    let mut warm = false;
    loop {
        let completion = compute.completion();
        completion.result.expect("arrived");
        bytes += completion.bytes;
        if !warm && bytes > 64 << 20 {
            (warm, start, cpu, bytes) = (true, Instant::now(), cpu_seconds(), 0);
        }
        if start.elapsed() > ROUND {
            break;
        }
        compute.handle.submit(request(next)).expect("running");
        next += 1;
    }
    let (elapsed, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    compute.handle.stop(support::PATIENCE).expect("stopped");
    storage.stop(support::PATIENCE).expect("stopped");
    (bytes as f64 * 8.0 / 1e9 / elapsed, cpu / (bytes as f64 / 1e9))
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It ends by itself after one client; this is for a client that failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn iperf3() -> Option<(f64, f64)> {
    let free = std::net::TcpListener::bind("127.0.0.1:0").ok()?.local_addr().ok()?.port().to_string();
    let server = Command::new("iperf3")
        .args(["-s", "-1", "-p", &free])
        .stdout(Stdio::piped())
        .spawn()
        .map(Server)
        .ok()?;
    let seconds = ROUND.as_secs().to_string();
    // Until the server listens, a client is refused at once.
    let deadline = Instant::now() + Duration::from_secs(5);
    let report = loop {
        let output = Command::new("iperf3")
            .args(["-c", "127.0.0.1", "-p", &free, "-t", &seconds, "-J"])
            .output()
            .ok()?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        if report["error"].is_null() || Instant::now() > deadline {
            break report;
        }
    };
    drop(server);
    let received = &report["end"]["sum_received"];
    let rate = received["bits_per_second"].as_f64()?;
    let bytes = received["bytes"].as_f64()?;
    let used = &report["end"]["cpu_utilization_percent"];
    let percent = used["host_total"].as_f64()? + used["remote_total"].as_f64()?;
    Some((rate / 1e9, percent / 100.0 * received["seconds"].as_f64()? / (bytes / 1e9)))
}
