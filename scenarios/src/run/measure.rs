//! What the links reached, measured before anything else runs over them.

use crate::run::Binaries;
use crate::run::files::{Places, Role};
use crate::run::links::{LinkError, Links, Routes};
use crate::run::probe::ProbeEvent;
use crate::run::process::Group;
use crate::stop::Stop;
use rudder_topology::BytesPerSecond;
use std::time::Duration;

const SEND_MS: u64 = 700;
const PATIENCE: Duration = Duration::from_secs(15);

/// From the first storage node to each compute node, one after the other: payload of one TCP connection.
pub(super) fn reached(
    links: &Links,
    places: &Places,
    binaries: &Binaries,
    stop: &Stop,
) -> Result<Vec<BytesPerSecond>, LinkError> {
    let computes = (0..places.nodes.len()).filter(|&node| places.nodes[node].role == Role::Compute);
    computes.map(|node| one(links, places, binaries, node, stop)).collect()
}

fn one(
    links: &Links,
    places: &Places,
    binaries: &Binaries,
    to: usize,
    stop: &Stop,
) -> Result<BytesPerSecond, LinkError> {
    let mut group = Group::new(&binaries.rudder);
    let log = places.folder.join("probe.log");
    let mut routes = Routes::new(links, &mut group, &binaries.rudder, &log)?;
    let rudder = binaries.rudder.to_string_lossy().into_owned();
    let listen = format!("{}:0", links.address(to));
    let words = [rudder.clone(), "probe".to_owned(), "--listen".to_owned(), listen];
    let receiver = group.start("probe receiver", links.namespace(to).as_deref(), &words, &log)?;
    let line = group.line_of(receiver, "listen", PATIENCE, stop)?;
    let Ok(ProbeEvent::Listening { address }) = serde_json::from_str(&line) else {
        return Err(LinkError::Answer { line });
    };
    let ends = (&places.nodes[0].name, &places.nodes[to].name);
    let address = routes.dial(&mut group, ends, address, stop)?;
    let words = [
        rudder,
        "probe".to_owned(),
        "--send".to_owned(),
        address.to_string(),
        "--ms".to_owned(),
        SEND_MS.to_string(),
    ];
    group.start("probe sender", links.namespace(0).as_deref(), &words, &log)?;
    let deadline = std::time::Instant::now() + PATIENCE;
    // The sender ends before the receiver has seen all it sent, so its end is no failure here.
    while let Some((index, output)) = group.next(deadline, stop)? {
        if index != receiver {
            continue;
        }
        let crate::run::process::Output::Line(line) = output else {
            return Err(group.ended(receiver).into());
        };
        return match serde_json::from_str(&line) {
            Ok(ProbeEvent::Received { bytes, ns }) => {
                Ok(BytesPerSecond((bytes as f64 * 1e9 / ns.max(1) as f64) as u64))
            }
            _ => Err(LinkError::Answer { line }),
        };
    }
    Err(group.late(receiver, "measure the link", PATIENCE).into())
}
