//! The thread of a compute mover: commands in, completions out.

use super::connection::{self, Outgoing};
use super::table::{ConnectionId, Table, Via, refused};
use super::{Attachment, Command, ComputeConfig, Counters, OnCompletion, OnPeerLost};
use crate::backend::{Io, ThreadMain, Wire};
use crate::transfer::{Completion, LossReason, PeerLost, TransferError, TransferRequest};
use rudder_client::frames::Frame;
use rudder_topology::{NodeId, TransferId};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::mpsc;

pub(super) struct Main {
    pub(super) config: ComputeConfig,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    pub(super) counters: Arc<Counters>,
    pub(super) on_completion: OnCompletion,
    pub(super) on_peer_lost: OnPeerLost,
}

/// What all tasks of the thread share.
pub(crate) struct Mover {
    pub(super) table: RefCell<Table>,
    peers: RefCell<HashMap<NodeId, PeerEntry>>,
    pub(super) counters: Arc<Counters>,
    pub(super) peer_timeout: Duration,
    on_completion: OnCompletion,
    on_peer_lost: OnPeerLost,
    next_connection: Cell<u64>,
}

struct PeerEntry {
    via: Via,
    outgoing: mpsc::UnboundedSender<Outgoing>,
    close: Box<dyn Fn()>,
}

impl ThreadMain for Main {
    async fn run<I: Io>(self, io: I) {
        let Main { config, mut commands, counters, on_completion, on_peer_lost } = self;
        let table = Table::new(config.cache, config.book, config.transfer_bytes_max, counters);
        let mover = Mover::new(table, config.peer_timeout, on_completion, on_peer_lost);
        let mut tasks = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    None | Some(Command::Stop) => break,
                    Some(command) => mover.command(command, &io, &mut tasks),
                },
                Some(ended) = tasks.join_next() => drop(ended),
            }
        }
        mover.stop(&mut commands);
        // Reads that wait in the kernel end because their sockets were shut down.
        while tasks.join_next().await.is_some() {}
    }
}

impl Mover {
    pub(crate) fn new(
        table: Table,
        peer_timeout: Duration,
        on_completion: OnCompletion,
        on_peer_lost: OnPeerLost,
    ) -> Rc<Self> {
        Rc::new(Mover {
            counters: table.counters().clone(),
            table: RefCell::new(table),
            peers: RefCell::default(),
            peer_timeout,
            on_completion,
            on_peer_lost,
            next_connection: Cell::new(0),
        })
    }

    fn command<I: Io>(self: &Rc<Self>, command: Command, io: &I, tasks: &mut tokio::task::JoinSet<()>) {
        match command {
            Command::Attach(attachment) => self.attach(*attachment, io, tasks),
            Command::Detach(node) => self.detach(node),
            Command::Submit(request) => self.submit(request),
            Command::Cancel(transfer) => self.cancel(transfer),
            Command::Stop => {}
        }
    }

    pub(crate) fn attach<I: Io>(
        self: &Rc<Self>,
        new: Attachment,
        io: &I,
        tasks: &mut tokio::task::JoinSet<()>,
    ) {
        self.detach(new.node);
        let number = self.next_connection.get();
        self.next_connection.set(number + 1);
        let via = Via { connection: ConnectionId(number), node: new.node, generation: new.generation };
        let wire = match io.wire(new.stream) {
            Ok(wire) => wire,
            Err(error) => {
                let reason = LossReason::Socket(error.kind());
                return (self.on_peer_lost)(PeerLost { node: via.node, generation: via.generation, reason });
            }
        };
        let (outgoing, to_send) = mpsc::unbounded_channel();
        let closer = wire.clone();
        let close = Box::new(move || closer.shutdown());
        self.peers.borrow_mut().insert(via.node, PeerEntry { via, outgoing: outgoing.clone(), close });
        self.counters.peers.store(self.peers.borrow().len() as u64, Relaxed);
        let mover = self.clone();
        tasks.spawn_local(connection::run(mover, via, wire, new.session, outgoing, to_send));
    }

    fn detach(&self, node: NodeId) {
        let via = self.peers.borrow().get(&node).map(|peer| peer.via);
        if let Some(via) = via {
            self.lose(via, LossReason::Detached);
        }
    }

    pub(crate) fn submit(&self, request: TransferRequest) {
        let peers = self.peers.borrow();
        let Some(peer) = peers.get(&request.node) else {
            drop(peers);
            return self.complete(refused(&request, None, TransferError::NotAttached));
        };
        let (transfer, class) = (request.id, request.class);
        let items = request.items.iter().map(|item| item.rows).collect();
        match self.table.borrow_mut().admit(request, peer.via) {
            Ok(()) => {
                // If the writer is gone, so is the connection, and its end completes the transfer.
                let _ = peer.outgoing.send(Outgoing(Frame::Fetch { transfer, class, items }));
            }
            Err(completion) => (self.on_completion)(completion),
        }
    }

    pub(crate) fn cancel(&self, transfer: TransferId) {
        let via = self.table.borrow().via(transfer);
        let ended = self.table.borrow_mut().end(transfer, Err(TransferError::Cancelled));
        if let (Some(via), Some(completion)) = (via, ended) {
            self.send(via, Frame::Cancel { transfer });
            self.complete(completion);
        }
    }

    fn send(&self, via: Via, frame: Frame) {
        if let Some(peer) = self.peers.borrow().get(&via.node).filter(|peer| peer.via == via) {
            let _ = peer.outgoing.send(Outgoing(frame));
        }
    }

    pub(super) fn complete(&self, completion: Completion) {
        (self.on_completion)(completion);
    }

    /// Ends a connection, once: its transfers fail, its socket closes, the owner is told.
    pub(super) fn lose(&self, via: Via, reason: LossReason) {
        let lost = {
            let mut peers = self.peers.borrow_mut();
            match peers.get(&via.node) {
                Some(peer) if peer.via == via => peers.remove(&via.node),
                _ => None,
            }
        };
        let Some(peer) = lost else { return };
        self.counters.peers.store(self.peers.borrow().len() as u64, Relaxed);
        (peer.close)();
        let error = match &reason {
            LossReason::Protocol(error) => TransferError::Protocol(*error),
            _ => TransferError::PeerLost,
        };
        let ended = self.table.borrow_mut().end_all(via.connection, &error);
        for completion in ended {
            self.complete(completion);
        }
        (self.on_peer_lost)(PeerLost { node: via.node, generation: via.generation, reason });
    }

    pub(crate) fn detach_all(&self) {
        let nodes: Vec<NodeId> = self.peers.borrow().keys().copied().collect();
        for node in nodes {
            self.detach(node);
        }
    }

    fn stop(&self, commands: &mut mpsc::UnboundedReceiver<Command>) {
        commands.close();
        self.detach_all();
        while let Ok(command) = commands.try_recv() {
            if let Command::Submit(request) = command {
                self.complete(refused(&request, None, TransferError::NotAttached));
            }
        }
    }
}
