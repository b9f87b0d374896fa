//! `rudder relay`: links of a stated speed and delay between processes of one machine, where namespaces are refused.
//!
//! The relay reads its links from standard input, one JSON object a line, and answers each with one line:
//!
//! ```text
//! in:  {"from":"c0","to":"s0","target":"127.0.0.1:7001"}
//! out: {"event":"route","listen":"127.0.0.1:41234"}
//! ```
//!
//! Connections to `listen` reach `target`. Bytes from `from` to `to` pass the way out of `from` and the way into
//! `to`; bytes back pass the other two. All connections of a node share its two ways. It ends with its input.

mod pipe;
pub mod shaper;

use pipe::{Pipe, Ways};
use rudder_topology::{Bytes, BytesPerSecond, Nanos, NodeName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};

/// A line longer than this ends the relay.
pub const LINE_BYTES_MAX: usize = 4096;
/// Most routes of one relay.
const ROUTES_MAX: usize = 10_000;

/// What every link of the relay is like.
#[derive(Clone, Copy, Debug)]
pub struct LinkShape {
    pub rate: BytesPerSecond,
    pub burst: Bytes,
    /// Added in each direction.
    pub latency: Nanos,
}

/// A wanted route.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    pub from: NodeName,
    pub to: NodeName,
    pub target: SocketAddr,
}

/// The relay's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Answer {
    Route { listen: SocketAddr },
    Refused { reason: String },
}

/// Why the relay stopped.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    #[error("cannot talk to the process that started the relay: {0}")]
    Stdio(#[source] io::Error),
    #[error("a line of more than {LINE_BYTES_MAX} bytes is no route")]
    TooLong,
    #[error("cannot start the relay's runtime: {0}")]
    Runtime(#[source] io::Error),
}

/// Serves routes until the input ends.
pub fn run(shape: LinkShape) -> Result<(), RelayError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(RelayError::Runtime)?;
    let outcome = serve(shape, &runtime, &mut io::stdin().lock(), &mut io::stdout().lock());
    runtime.shutdown_background();
    outcome
}

fn serve(
    shape: LinkShape,
    runtime: &tokio::runtime::Runtime,
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> Result<(), RelayError> {
    let start = runtime.block_on(async { tokio::time::Instant::now() });
    let mut relay = Relay { shape, ways: BTreeMap::new(), routes: 0, start };
    while let Some(line) = next_line(input)? {
        let answer = match serde_json::from_str(&line) {
            Ok(route) => runtime.block_on(relay.add(route)),
            Err(error) => Answer::Refused { reason: error.to_string() },
        };
        let mut line = serde_json::to_string(&answer).expect("an answer has string keys");
        line.push('\n');
        output.write_all(line.as_bytes()).and_then(|()| output.flush()).map_err(RelayError::Stdio)?;
    }
    Ok(())
}

/// The next line, `None` at the end of input.
fn next_line(input: &mut impl BufRead) -> Result<Option<String>, RelayError> {
    let mut line = Vec::new();
    let mut limited = input.take(LINE_BYTES_MAX as u64);
    let read = limited.read_until(b'\n', &mut line).map_err(RelayError::Stdio)?;
    if read == LINE_BYTES_MAX && line.last() != Some(&b'\n') {
        return Err(RelayError::TooLong);
    }
    Ok((read > 0).then(|| String::from_utf8_lossy(&line).into_owned()))
}

struct Relay {
    shape: LinkShape,
    ways: BTreeMap<NodeName, Arc<Ways>>,
    routes: usize,
    start: tokio::time::Instant,
}

impl Relay {
    async fn add(&mut self, route: Route) -> Answer {
        if self.routes == ROUTES_MAX {
            return Answer::Refused { reason: format!("a relay has at most {ROUTES_MAX} routes") };
        }
        let bound = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        match bound.and_then(|listener| Ok((listener.local_addr()?, listener))) {
            Ok((listen, listener)) => {
                self.routes += 1;
                let (from, to) = (self.ways_of(&route.from), self.ways_of(&route.to));
                let (there, back) = (self.pipe(&from, &to), self.pipe(&to, &from));
                tokio::spawn(accept(listener, route.target, there, back));
                Answer::Route { listen }
            }
            Err(error) => Answer::Refused { reason: error.to_string() },
        }
    }

    fn ways_of(&mut self, node: &NodeName) -> Arc<Ways> {
        let shape = self.shape;
        Arc::clone(
            self.ways.entry(node.clone()).or_insert_with(|| Arc::new(Ways::new(shape.rate, shape.burst))),
        )
    }

    fn pipe(&self, from: &Arc<Ways>, to: &Arc<Ways>) -> Pipe {
        // A quarter of the burst: connections that share a way take turns often.
        let chunk = (self.shape.burst.0 / 4).clamp(1500, 16 << 10) as usize;
        Pipe {
            from: Arc::clone(from),
            to: Arc::clone(to),
            latency: self.shape.latency,
            chunk_bytes: chunk,
            start: self.start,
        }
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, there: Pipe, back: Pipe) {
    while let Ok((near, _)) = listener.accept().await {
        let (there, back) = (there.clone(), back.clone());
        tokio::spawn(async move {
            // A target that refuses closes the near side, which is what the dialler would have seen.
            let Ok(far) = TcpStream::connect(target).await else { return };
            let _ = near.set_nodelay(true);
            let _ = far.set_nodelay(true);
            let (near_read, near_write) = near.into_split();
            let (far_read, far_write) = far.into_split();
            tokio::join!(there.carry(near_read, far_write), back.carry(far_read, near_write));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_lines_are_no_routes() {
        for line in [
            "",
            "{}",
            r#"{"from":"a","to":"b"}"#,
            r#"{"from":"","to":"b","target":"127.0.0.1:1"}"#,
            r#"{"from":"a","to":"b","target":"here"}"#,
            r#"{"from":"a","to":"b","target":"127.0.0.1:1","x":1}"#,
        ] {
            assert!(serde_json::from_str::<Route>(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_memory() {
        let long = vec![b'x'; 10 * LINE_BYTES_MAX];
        assert!(matches!(next_line(&mut long.as_slice()), Err(RelayError::TooLong)));
        let mut input = &b"one\ntwo"[..];
        let mut next = || next_line(&mut input).unwrap();
        assert_eq!([next(), next(), next()], [Some("one\n".into()), Some("two".into()), None]);
    }
}
