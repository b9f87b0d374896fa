//! Permits are never exceeded, and all return.
//!
//! Bytes under way towards the node, and on each link, stay within the limits; a transfer that is larger than its
//! limit goes alone.

use crate::fuzz::invariant::{Invariant, Note};
use crate::fuzz::world::World;
use rudder_policy::links::LinkId;
use rudder_policy::step::Transfer;
use rudder_topology::TransferId;
use std::collections::BTreeMap;

/// See the module.
#[derive(Default)]
pub struct Permits {
    open: BTreeMap<TransferId, (LinkId, u64)>,
}

fn payload(world: &World, transfer: &Transfer) -> u64 {
    let item_bytes = |item: &rudder_policy::step::Item| {
        let place = world.dataset.book.block(item.rows.block).expect("known");
        u64::from(item.rows.rows()) * u64::from(place.row_bytes)
    };
    transfer.items.iter().map(item_bytes).sum()
}

fn within(open: &[u64], limit: u64) -> bool {
    open.iter().sum::<u64>() <= limit || open.len() == 1
}

impl Permits {
    fn start(&mut self, world: &World, transfer: &Transfer) -> Result<(), String> {
        let (bytes, max) = (payload(world, transfer), world.options.limits.transfer_bytes_max.0);
        if bytes != transfer.bytes {
            return Err(format!(
                "{} has permits for {} bytes and brings {bytes}",
                transfer.id, transfer.bytes
            ));
        }
        if bytes > max && transfer.items.len() > 1 {
            return Err(format!(
                "{} brings {bytes} bytes in {} items, over {max}",
                transfer.id,
                transfer.items.len()
            ));
        }
        self.open.insert(transfer.id, (transfer.link(), bytes));
        let limits = world.options.limits;
        let on_link: Vec<u64> =
            self.open.values().filter(|(id, _)| *id == transfer.link()).map(|&(_, bytes)| bytes).collect();
        let all: Vec<u64> = self.open.values().map(|&(_, bytes)| bytes).collect();
        if !within(&on_link, limits.link_in_flight_bytes.0) {
            return Err(format!(
                "{on_link:?} bytes on {} at once, over {}",
                transfer.link(),
                limits.link_in_flight_bytes
            ));
        }
        if !within(&all, limits.node_in_flight_bytes.0) {
            return Err(format!("{all:?} bytes under way at once, over {}", limits.node_in_flight_bytes));
        }
        Ok(())
    }
}

impl Invariant for Permits {
    fn after(&mut self, world: &World, notes: &[Note]) -> Result<(), String> {
        for note in notes {
            match note {
                Note::Started(transfer) => self.start(world, transfer)?,
                Note::Cancelled(id) => drop(self.open.remove(id)),
                Note::Ended { transfer, .. } => drop(self.open.remove(&transfer.id)),
                _ => {}
            }
        }
        let links = world.engine.view().links;
        for (id, link) in links.links() {
            let open: u64 = self.open.values().filter(|(to, _)| *to == id).map(|(_, bytes)| bytes).sum();
            if open != link.in_flight_bytes {
                return Err(format!(
                    "{open} bytes are under way from {id}, permits say {}",
                    link.in_flight_bytes
                ));
            }
        }
        let open: u64 = self.open.values().map(|(_, bytes)| bytes).sum();
        if open != links.in_flight_bytes() {
            return Err(format!("{open} bytes are under way, permits say {}", links.in_flight_bytes()));
        }
        Ok(())
    }

    fn at_end(&mut self, world: &World) -> Result<(), String> {
        let out = world.engine.view().links.in_flight_bytes();
        if out == 0 { Ok(()) } else { Err(format!("permits for {out} bytes never returned")) }
    }
}
