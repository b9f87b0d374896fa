//! `rudder probe`: how fast a link really is. One process receives and counts, another sends.
//!
//! ```text
//! rudder probe --listen 10.77.0.3:0     {"event":"listening","address":"10.77.0.3:41234"}
//!                                       {"event":"received","bytes":3000000,"ns":480000000}
//! rudder probe --send 10.77.0.3:41234 --ms 600
//! ```

use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// What the receiver says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ProbeEvent {
    Listening {
        address: SocketAddr,
    },
    /// After the first part of the time, in which bursts and slow start distort the rate.
    Received {
        bytes: u64,
        ns: u64,
    },
}

/// What is left out at the start.
const WARM_UP: Duration = Duration::from_millis(150);
/// A probe that hears nothing for this long gives up.
const PATIENCE: Duration = Duration::from_secs(10);

/// Accepts one connection and counts what comes.
pub fn listen(address: SocketAddr, say: &mut dyn FnMut(ProbeEvent)) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    say(ProbeEvent::Listening { address: listener.local_addr()? });
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(PATIENCE))?;
    say(count(&mut stream)?);
    Ok(())
}

fn count(stream: &mut impl Read) -> io::Result<ProbeEvent> {
    let mut buffer = vec![0; 64 << 10];
    let first = Instant::now();
    let (mut counted_from, mut bytes, mut last) = (None, 0, first);
    loop {
        match stream.read(&mut buffer)? {
            0 => break,
            read => {
                last = Instant::now();
                match counted_from {
                    Some(_) => bytes += read as u64,
                    None if last - first >= WARM_UP => counted_from = Some(last),
                    None => {}
                }
            }
        }
    }
    let ns = counted_from.map_or(0, |from| (last - from).as_nanos());
    Ok(ProbeEvent::Received { bytes, ns: u64::try_from(ns).unwrap_or(u64::MAX) })
}

/// Sends for a while.
pub fn send(address: SocketAddr, duration: Duration) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // Small writes, so that the sender stops soon after its time is over.
    let chunk = [0; 4 << 10];
    let end = Instant::now() + duration;
    while Instant::now() < end {
        stream.write_all(&chunk)?;
    }
    Ok(())
}
