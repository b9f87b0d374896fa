//! Ring all-reduce over TCP: what gradient synchronisation puts on the links that features travel on.
//!
//! Each of n trainers sends to the next and receives from the previous one: n - 1 rounds in which shares are summed
//! (reduce-scatter), n - 1 in which the sums are handed on (all-gather). A rank sends `2 (n - 1) / n` of the vector.
//! Every wait has a deadline. One thread, non-blocking sockets, `poll`.

use rudder_topology::TrainerRank;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::time::{Duration, Instant};

/// What a trainer says to the next one: protocol, then rank and number of trainers.
const HELLO: [u8; 8] = *b"RUDRING1";
const HELLO_BYTES: usize = 16;

/// Why the ring did not close or a sum did not end.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    #[error("cannot bind {address}: {source}")]
    Bind { address: SocketAddr, source: io::Error },
    #[error("rank {rank} is not one of {trainers} trainers")]
    Rank { rank: TrainerRank, trainers: usize },
    #[error("cannot reach the next trainer at {address}: {source}")]
    Next { address: SocketAddr, source: io::Error },
    #[error("the previous trainer did not connect within {waited:?}")]
    Previous { waited: Duration },
    #[error("the all-reduce did not end within {waited:?}: the {stuck} trainer is stuck")]
    Late { waited: Duration, stuck: Neighbour },
    #[error("the {neighbour} trainer left the ring: {source}")]
    Left { neighbour: Neighbour, source: io::Error },
}

/// Between attempts to reach a trainer that does not listen yet.
const RETRY: Duration = Duration::from_millis(20);

/// Who a trainer talks to in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    Next,
    Previous,
}

impl std::fmt::Display for Neighbour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Neighbour::Next => "next",
            Neighbour::Previous => "previous",
        })
    }
}

/// A bound address that is not part of a ring yet.
#[derive(Debug)]
pub struct RingListener {
    listener: TcpListener,
    address: SocketAddr,
}

impl RingListener {
    /// Binds; port 0 takes a free one.
    pub fn bind(address: SocketAddr) -> Result<Self, RingError> {
        let bind = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?, listener))
        };
        let (address, listener) = bind().map_err(|source| RingError::Bind { address, source })?;
        Ok(RingListener { listener, address })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connects to the next of `peers` (addresses in rank order, all of them bound) and accepts the previous one.
    pub fn join(
        self,
        peers: &[SocketAddr],
        rank: TrainerRank,
        time_out: Duration,
    ) -> Result<Ring, RingError> {
        let trainers = peers.len();
        if rank.index() >= trainers {
            return Err(RingError::Rank { rank, trainers });
        }
        let deadline = Instant::now() + time_out;
        let address = peers[(rank.index() + 1) % trainers];
        let next = connect(address, rank, trainers, time_out, deadline)
            .map_err(|source| RingError::Next { address, source })?;
        let expected = hello(TrainerRank(((rank.index() + trainers - 1) % trainers) as u32), trainers);
        let previous = self.accept(&expected, deadline).ok_or(RingError::Previous { waited: time_out })?;
        let prepare = |stream: &TcpStream, neighbour| {
            stream
                .set_nonblocking(true)
                .and_then(|()| stream.set_nodelay(true))
                .map_err(|source| RingError::Left { neighbour, source })
        };
        prepare(&next, Neighbour::Next)?;
        prepare(&previous, Neighbour::Previous)?;
        Ok(Ring { next, previous, rank: rank.index(), trainers, out: Vec::new(), into: Vec::new() })
    }

    /// Accepts until somebody says the right hello; strangers are dropped.
    fn accept(&self, expected: &[u8; HELLO_BYTES], deadline: Instant) -> Option<TcpStream> {
        loop {
            let left = deadline.checked_duration_since(Instant::now())?;
            let mut waited = [PollFd::new(&self.listener, PollFlags::IN)];
            let _ = poll(&mut waited, Some(&timespec(left)));
            let Ok((mut stream, _)) = self.listener.accept() else { continue };
            let mut said = [0; HELLO_BYTES];
            let read = stream
                .set_nonblocking(false)
                .and_then(|()| stream.set_read_timeout(Some(left.min(Duration::from_secs(2)).max(MINIMUM))))
                .and_then(|()| stream.read_exact(&mut said));
            if read.is_ok() && said == *expected {
                return Some(stream);
            }
        }
    }
}

const MINIMUM: Duration = Duration::from_millis(1);

fn hello(rank: TrainerRank, trainers: usize) -> [u8; HELLO_BYTES] {
    let mut hello = [0; HELLO_BYTES];
    hello[..8].copy_from_slice(&HELLO);
    hello[8..12].copy_from_slice(&rank.0.to_le_bytes());
    hello[12..].copy_from_slice(&(trainers as u32).to_le_bytes());
    hello
}

/// Trainers start in any order: one that does not listen yet is tried again.
fn connect(
    address: SocketAddr,
    rank: TrainerRank,
    trainers: usize,
    time_out: Duration,
    deadline: Instant,
) -> io::Result<TcpStream> {
    let mut stream = loop {
        match TcpStream::connect_timeout(&address, time_out.max(MINIMUM)) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && Instant::now() < deadline => {
                std::thread::park_timeout(RETRY);
            }
            connected => break connected?,
        }
    };
    stream.set_write_timeout(Some(time_out.max(MINIMUM)))?;
    stream.write_all(&hello(rank, trainers))?;
    Ok(stream)
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: duration.as_secs() as i64, tv_nsec: i64::from(duration.subsec_nanos()) }
}

/// A closed ring.
#[derive(Debug)]
pub struct Ring {
    next: TcpStream,
    previous: TcpStream,
    rank: usize,
    trainers: usize,
    out: Vec<u8>,
    into: Vec<u8>,
}

impl Ring {
    /// Replaces `values` by the sum over all trainers, who must all bring as many.
    pub fn all_reduce(&mut self, values: &mut [f32], time_out: Duration) -> Result<(), RingError> {
        let deadline = Instant::now() + time_out;
        let n = self.trainers;
        for round in 0..n.saturating_sub(1) {
            let sent = share(values.len(), n, self.rank + n - round);
            let received = share(values.len(), n, self.rank + 2 * n - round - 1);
            self.exchange(&values[sent], received.len(), deadline, time_out)?;
            for (value, bytes) in values[received].iter_mut().zip(self.into.chunks_exact(4)) {
                *value += read_f32(bytes);
            }
        }
        for round in 0..n.saturating_sub(1) {
            let sent = share(values.len(), n, self.rank + n + 1 - round);
            let received = share(values.len(), n, self.rank + 2 * n - round);
            self.exchange(&values[sent], received.len(), deadline, time_out)?;
            for (value, bytes) in values[received].iter_mut().zip(self.into.chunks_exact(4)) {
                *value = read_f32(bytes);
            }
        }
        Ok(())
    }

    /// Sends `values` to the next and receives `expected` values from the previous trainer, both at once.
    fn exchange(
        &mut self,
        values: &[f32],
        expected: usize,
        deadline: Instant,
        time_out: Duration,
    ) -> Result<(), RingError> {
        self.out.clear();
        self.out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        self.into.resize(expected * 4, 0);
        let (mut sent, mut received) = (0, 0);
        loop {
            received += read_some(&mut self.previous, &mut self.into[received..])
                .map_err(|source| RingError::Left { neighbour: Neighbour::Previous, source })?;
            sent += write_some(&mut self.next, &self.out[sent..])
                .map_err(|source| RingError::Left { neighbour: Neighbour::Next, source })?;
            let (all_sent, all_received) = (sent == self.out.len(), received == self.into.len());
            if all_sent && all_received {
                return Ok(());
            }
            let stuck = if all_received { Neighbour::Next } else { Neighbour::Previous };
            let left = deadline
                .checked_duration_since(Instant::now())
                .ok_or(RingError::Late { waited: time_out, stuck })?;
            let mut waited = Vec::with_capacity(2);
            if !all_sent {
                waited.push(PollFd::new(&self.next, PollFlags::OUT));
            }
            if !all_received {
                waited.push(PollFd::new(&self.previous, PollFlags::IN));
            }
            // An interrupted wait looks again; the deadline still holds.
            let _ = poll(&mut waited, Some(&timespec(left)));
        }
    }
}

/// The values that make up share `index` (taken modulo the number of shares).
fn share(values: usize, shares: usize, index: usize) -> Range<usize> {
    let index = index % shares;
    values * index / shares..values * (index + 1) / shares
}

fn read_f32(bytes: &[u8]) -> f32 {
    f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn read_some(stream: &mut TcpStream, into: &mut [u8]) -> io::Result<usize> {
    if into.is_empty() {
        return Ok(0);
    }
    match stream.read(into) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Err(error) if is_again(&error) => Ok(0),
        other => other,
    }
}

fn write_some(stream: &mut TcpStream, from: &[u8]) -> io::Result<usize> {
    if from.is_empty() {
        return Ok(0);
    }
    match stream.write(from) {
        Ok(0) => Err(ErrorKind::WriteZero.into()),
        Err(error) if is_again(&error) => Ok(0),
        other => other,
    }
}

fn is_again(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn loopback() -> RingListener {
        RingListener::bind("127.0.0.1:0".parse().unwrap()).unwrap()
    }

    /// Every rank brings `rank + i` as value i, twice in a row.
    fn sums(trainers: usize, values: usize) -> Vec<Vec<f32>> {
        let listeners: Vec<_> = (0..trainers).map(|_| loopback()).collect();
        let peers: Vec<_> = listeners.iter().map(RingListener::address).collect();
        let threads: Vec<_> = listeners
            .into_iter()
            .enumerate()
            .map(|(rank, listener)| {
                let peers = peers.clone();
                std::thread::spawn(move || {
                    let mut ring = listener.join(&peers, TrainerRank(rank as u32), PATIENCE).unwrap();
                    let mut mine: Vec<f32> = (0..values).map(|i| (rank + i) as f32).collect();
                    ring.all_reduce(&mut mine, PATIENCE).unwrap();
                    ring.all_reduce(&mut mine, PATIENCE).unwrap();
                    mine
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    #[test]
    fn every_rank_ends_with_the_sum() {
        for (trainers, values) in [(1, 3), (2, 0), (2, 1), (2, 7), (3, 10), (5, 3), (4, 100_000)] {
            let sum_of_ranks = trainers * (trainers - 1) / 2;
            let expected: Vec<f32> =
                (0..values).map(|i| (trainers * (sum_of_ranks + trainers * i)) as f32).collect();
            for (rank, mine) in sums(trainers, values).into_iter().enumerate() {
                assert_eq!(mine, expected, "rank {rank} of {trainers}, {values} values");
            }
        }
    }

    #[test]
    fn strangers_do_not_get_into_the_ring() {
        let (a, b) = (loopback(), loopback());
        let peers = [a.address(), b.address()];
        let mut stranger = TcpStream::connect(peers[0]).unwrap();
        stranger.write_all(&[0xff; HELLO_BYTES]).unwrap();
        let other = std::thread::spawn(move || b.join(&peers, TrainerRank(1), PATIENCE).unwrap());
        a.join(&peers, TrainerRank(0), PATIENCE).unwrap();
        other.join().unwrap();
    }

    #[test]
    fn a_silent_neighbour_is_named_and_a_gone_one_too() {
        let (a, b) = (loopback(), loopback());
        let peers = [a.address(), b.address()];
        let other = std::thread::spawn(move || b.join(&peers, TrainerRank(1), PATIENCE).unwrap());
        let mut ring = a.join(&peers, TrainerRank(0), PATIENCE).unwrap();
        let silent = other.join().unwrap();
        let late = ring.all_reduce(&mut [1.0; 8], Duration::ZERO).unwrap_err();
        assert!(matches!(late, RingError::Late { stuck: Neighbour::Previous, .. }), "{late}");
        drop(silent);
        let left = ring.all_reduce(&mut [1.0; 8], PATIENCE).unwrap_err();
        assert!(matches!(left, RingError::Left { .. }), "{left}");
    }

    #[test]
    fn a_ring_without_this_rank_is_refused_and_waiting_ends() {
        let peers = [loopback().address(); 2];
        assert!(matches!(loopback().join(&peers, TrainerRank(2), PATIENCE), Err(RingError::Rank { .. })));
        let next = loopback();
        let alone = [next.address(), next.address()];
        let error = loopback().join(&alone, TrainerRank(0), Duration::from_millis(5)).unwrap_err();
        assert!(matches!(error, RingError::Previous { .. }), "{error}");
    }
}
