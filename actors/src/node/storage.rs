//! The storage side of a node: block files, the mover's thread, the data port.

use super::Base;
use super::config::NodeError;
use super::faults::Faults;
use super::ready::Parts;
use crate::acceptor::{self, Acceptor, DataPort};
use crate::mailbox::Mailbox;
use crate::supervisor::{ChildSpec, SupervisorSpec};
use crate::{owners, worker};
use rudder_dataplane::storage::OnPushed;
use rudder_dataplane::{
    BlockFiles, OnOwner, OpenError, StagingConfig, StorageConfig, StorageHandle, StorageMover,
};
use rudder_messages::{AcceptorMessage, ActorKind};
use rudder_policy::restart::{RestartIntensity, Strategy};
use rudder_topology::{Bytes, Dataset, PartId, Storage};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Payload bytes that one connection may have queued: far above any permit of an honest peer.
const QUEUE_BYTES_MAX: Bytes = Bytes(256 << 20);
/// Connections of all compute nodes and datasets, and the operator's.
const CONNECTIONS_MAX: usize = 1024;

pub(super) struct StorageSide {
    pub(super) handle: StorageHandle,
    pub(super) address: SocketAddr,
    pub(super) parts: Parts,
}

impl StorageSide {
    pub(super) fn start(
        base: &Base,
        spec: &Storage,
        children: &mut Vec<ChildSpec>,
        tasks: &mut Vec<JoinHandle<()>>,
        faults: &mut Faults,
    ) -> Result<StorageSide, NodeError> {
        let listener = bind(base)?;
        let address = listener.local_addr().map_err(NodeError::Serve)?;
        std::fs::create_dir_all(&spec.directory)
            .map_err(|source| NodeError::StorageDirectory { path: spec.directory.clone(), source })?;
        let mut parts = Parts::default();
        let datasets = open_datasets(base, spec, &mut parts);
        let mailbox: Mailbox<AcceptorMessage> = Mailbox::default();
        let pushed = mailbox.clone();
        let (wanted, owners_wanted) = mpsc::unbounded_channel();
        let handle = StorageMover::start(StorageConfig {
            node: base.node.name.clone(),
            generation: base.generation,
            directory: spec.directory.clone(),
            datasets,
            backend: base.config.backend,
            cores: base.node.cores.clone(),
            link_rate_max: base.cluster.limits.link_rate_max,
            transfer_bytes_max: base.cluster.limits.transfer_bytes_max,
            queue_bytes_max: QUEUE_BYTES_MAX,
            idle_timeout: idle_timeout(base),
            connections_max: CONNECTIONS_MAX,
            on_pushed: Some(OnPushed(Arc::new(move |dataset| pushed.send(AcceptorMessage::Pushed(dataset))))),
            // Nobody listens on a node that stops.
            staging: staging(base, spec, OnOwner(Arc::new(move |event| drop(wanted.send(event))))),
        })?;
        let (dialer, mover) = (base.dialer(), handle.clone());
        tasks.push(tokio::spawn(owners::keep(owners_wanted, dialer, mover, base.clock)));
        let port = DataPort::new(handle.clone(), base.security.clone(), base.cluster.clone(), spec.clone());
        let port = Arc::new(port);
        let name = base.name(ActorKind::Acceptor);
        let acceptor = worker::child(name, mailbox.clone(), move || Acceptor::new(port.clone()));
        children.push(ChildSpec::supervisor(SupervisorSpec {
            name: base.name(ActorKind::Storage),
            strategy: Strategy::OneForOne,
            intensity: RestartIntensity::default(),
            children: vec![acceptor],
            clock: base.clock,
            on_escalation: None,
        }));
        faults.acceptor(mailbox.clone());
        tasks.push(tokio::spawn(accept(listener, mailbox)));
        Ok(StorageSide { handle, address, parts })
    }

    pub(super) fn stop(&self, within: Duration) {
        if let Err(error) = self.handle.stop(within) {
            tracing::warn!(%error, "the storage mover");
        }
    }
}

/// How blocks of other nodes are served; `None` where the topology says that they are not.
fn staging(base: &Base, spec: &Storage, on_owner: OnOwner) -> Option<StagingConfig> {
    let cluster = &base.cluster;
    let bytes_max = Bytes(spec.staging_bytes.0 / (cluster.datasets.len() as u64).max(1));
    let owners = |dataset: &Dataset, part: usize| {
        if dataset.replicas[part].contains(&base.node.id) {
            return Vec::new();
        }
        let owners = cluster.replicas_by_cost(dataset, PartId(part as u16), base.node.id);
        owners.into_iter().map(|(node, _)| node).collect()
    };
    let of_dataset = |dataset: &Dataset| {
        let parts = (0..dataset.replicas.len()).map(|part| owners(dataset, part)).collect();
        (dataset.name.clone(), parts)
    };
    (bytes_max > Bytes(0)).then(|| StagingConfig {
        bytes_max,
        owners: cluster.datasets.iter().map(of_dataset).collect(),
        request_timeout: Duration::from_nanos(cluster.limits.transfer_timeout.0),
        peer_timeout: Duration::from_nanos(cluster.limits.heartbeat_timeout.0),
        on_owner,
    })
}

/// Movers ping three times per heartbeat time-out; operators are given as long.
fn idle_timeout(base: &Base) -> Duration {
    Duration::from_nanos(base.cluster.limits.heartbeat_timeout.0).max(Duration::from_secs(1)) * 2
}

fn bind(base: &Base) -> Result<TcpListener, NodeError> {
    let address = base.node.data_address.ok_or_else(|| NodeError::NoDataAddress(base.node.name.clone()))?;
    if base.cluster.keys.is_none() && !address.ip().is_loopback() {
        return Err(NodeError::OpenWithoutKeys(address));
    }
    let bound = std::net::TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    });
    bound.map_err(|source| NodeError::DataPort { address, hint: hint(&source), source })
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another process has this port: stop it, or choose another `data` address"
        }
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
        io::ErrorKind::PermissionDenied => "; ports below 1024 are for root",
        _ => "",
    }
}

/// Opens what is there. What is missing or damaged is waited for: a push brings it.
fn open_datasets(base: &Base, spec: &Storage, parts: &mut Parts) -> Vec<BlockFiles> {
    let mut opened = Vec::new();
    for dataset in &base.cluster.datasets {
        let mine = (0..dataset.replicas.len()).filter(|&part| dataset.replicas[part].contains(&base.node.id));
        let mine: Vec<PartId> = mine.map(|part| PartId(part as u16)).collect();
        if mine.is_empty() {
            continue;
        }
        let directory = spec.directory.join(dataset.name.as_str());
        let files = match acceptor::open(&directory, spec) {
            Ok(files) => Some(files),
            Err(OpenError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::error!(dataset = %dataset.name, %error, "the dataset is not served until it is pushed again");
                None
            }
        };
        let stored = files.as_ref().map_or(&[][..], BlockFiles::parts);
        for part in mine {
            if stored.contains(&part) {
                parts.present += 1;
            } else {
                parts.missing.push(format!("{}/{part}", dataset.name));
            }
        }
        opened.extend(files);
    }
    opened
}

/// Takes connections in until the task is aborted.
async fn accept(listener: TcpListener, acceptor: Mailbox<AcceptorMessage>) {
    loop {
        match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => acceptor.send(AcceptorMessage::Accepted(stream)),
            Err(error) => {
                // Out of descriptors, most likely: a pause, so that those who leave can give theirs back.
                tracing::warn!(%error, "a connection to the data port could not be accepted");
                let pause = tokio::time::Instant::now() + Duration::from_millis(100);
                tokio::time::sleep_until(pause).await;
            }
        }
    }
}
