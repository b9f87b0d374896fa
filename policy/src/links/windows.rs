//! How much may be in flight on each link.
//!
//! In flight towards a compute node is what its fastest link carries in a few milliseconds: more would only queue
//! before the link, and hold up demand and gradients behind prefetched rows. Each storage node has the share of it
//! that its own link carries, so that none idles while another's link is full. The topology's limits are upper bounds.

use rudder_topology::{Bytes, Limits, LinkCost, Nanos};

/// What is in flight is what a link carries in this time and a round trip.
const IN_FLIGHT: Nanos = Nanos::from_millis(6);
/// But at least this much: a slow link delivers whole transfers one after the other, at both of its ends.
const IN_FLIGHT_LEAST: u64 = 64 << 10;
/// Transfers of a full share; fewer would leave gaps between them.
const TRANSFERS_OF_SHARE: u64 = 4;
const TRANSFER_LEAST: u64 = 8 << 10;
/// A share divided by many storage nodes is not cut into smaller transfers than this where the node's window is large:
/// each costs time at both ends.
const TRANSFER_OF_MANY: u64 = 32 << 10;

/// Bounds of one link, in payload bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkWindow {
    pub in_flight_max: u64,
    pub transfer_max: u64,
}

fn carried(cost: LinkCost) -> u64 {
    let seconds = IN_FLIGHT.as_secs_f64() + 2.0 * cost.latency.as_secs_f64();
    ((cost.bandwidth.0 as f64 * seconds) as u64).max(IN_FLIGHT_LEAST)
}

/// The bound of the node, and those of its links. A transfer holds at least the largest block.
pub(super) fn windows(costs: &[LinkCost], block_max: Bytes, limits: &Limits) -> (u64, Vec<LinkWindow>) {
    let window = costs.iter().map(|&cost| carried(cost)).max().unwrap_or(IN_FLIGHT_LEAST);
    let all: u128 = costs.iter().map(|&cost| u128::from(carried(cost))).sum();
    let share = |&cost: &LinkCost| {
        let share = (u128::from(window) * u128::from(carried(cost)) / all.max(1)) as u64;
        let many = (window / (2 * TRANSFERS_OF_SHARE)).min(TRANSFER_OF_MANY);
        let transfer = (share / TRANSFERS_OF_SHARE).max(many).max(TRANSFER_LEAST).max(block_max.0);
        let transfer_max = transfer.min(limits.transfer_bytes_max.0);
        let in_flight_max = share.max(2 * transfer_max).min(limits.link_in_flight_bytes.0);
        LinkWindow { in_flight_max, transfer_max }
    };
    let links: Vec<LinkWindow> = costs.iter().map(share).collect();
    let least = links.iter().map(|link| link.in_flight_max).max().unwrap_or(0);
    (window.max(least).min(limits.node_in_flight_bytes.0), links)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rudder_topology::BytesPerSecond;

    fn cost(mbit: u64) -> LinkCost {
        LinkCost { bandwidth: BytesPerSecond::from_mbit(mbit), latency: Nanos(0) }
    }

    fn wide() -> Limits {
        Limits {
            link_in_flight_bytes: Bytes::GIB,
            node_in_flight_bytes: Bytes::GIB,
            transfer_bytes_max: Bytes(256 << 10),
            ..Limits::default()
        }
    }

    #[test]
    fn a_link_holds_what_it_carries_in_a_few_milliseconds() {
        let (node, links) = windows(&[cost(100), cost(100)], Bytes(512), &wide());
        assert_eq!(node, 75_000);
        assert_eq!(links[0], LinkWindow { in_flight_max: 37_500, transfer_max: 9_375 });
        assert_eq!(links[0], links[1]);
        // Slow links still hold whole transfers.
        let (node, links) = windows(&[cost(1)], Bytes(512), &wide());
        assert_eq!((node, links[0].in_flight_max, links[0].transfer_max), (65_536, 65_536, 16_384));
        // With a round trip of 20 ms more is under way.
        let far = LinkCost { latency: Nanos::from_millis(10), ..cost(100) };
        assert_eq!(windows(&[far], Bytes(512), &wide()).0, 325_000);
    }

    #[test]
    fn a_faster_link_has_the_larger_share() {
        let (node, links) = windows(&[cost(900), cost(100)], Bytes(512), &wide());
        assert_eq!(node, 675_000);
        assert_eq!(links[0].in_flight_max, 607_500);
        assert_eq!(links[1].in_flight_max, 67_500);
    }

    #[test]
    fn many_storage_nodes_do_not_make_small_transfers() {
        let (node, links) = windows(&vec![cost(10_000); 256], Bytes(512), &wide());
        assert_eq!(node, 7_500_000);
        assert_eq!(links[0], LinkWindow { in_flight_max: 64 << 10, transfer_max: 32 << 10 });
    }

    #[test]
    fn limits_are_upper_bounds_and_a_block_always_fits_a_transfer() {
        let limits = Limits {
            link_in_flight_bytes: Bytes(256),
            node_in_flight_bytes: Bytes(1024),
            transfer_bytes_max: Bytes(64),
            ..Limits::default()
        };
        let (node, links) = windows(&[cost(100), cost(1)], Bytes(8), &limits);
        assert_eq!((node, links[0].in_flight_max, links[0].transfer_max), (1024, 256, 64));
        assert_eq!(links[1].in_flight_max, 256);
        let (_, links) = windows(&[cost(1)], Bytes(100_000), &wide());
        assert_eq!(links[0], LinkWindow { in_flight_max: 200_000, transfer_max: 100_000 });
        assert_eq!(windows(&[], Bytes(1), &wide()).1, []);
    }
}
