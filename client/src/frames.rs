//! The data port's frames. Pure: bytes in, values out; no sockets, no clock.
//!
//! Every frame is a fixed header of [`HEADER_BYTES`] bytes and a payload of at most [`PAYLOAD_BYTES_MAX`].
//! Integers are little endian:
//!
//! ```text
//!  0 magic        u32  "RDF1"
//!  4 version      u8
//!  5 kind         u8
//!  6 flags        u16  Rows: bit 0 = last frame of its transfer. Fetch: the class
//!  8 transfer     u64
//! 16 first_item   u32  Rows, Failed: position in the transfer's items
//! 20 items        u32  Rows: items in this frame. Fetch: items that follow. Failed: the reason
//! 24 argument     u64  Put: file offset or size
//! 32 payload      u32  bytes that follow the header
//! 36 payload_crc  u32  CRC32C of them
//! 40 reserved     u64  zero
//! 48 tag          16 bytes of keyed BLAKE3 over the frame's number on this connection and bytes 0..48
//! ```
//!
//! The tag covers the number of the frame, so that frames can be neither forged, reordered, repeated nor dropped.
//! A reader checks the tag before it looks at anything else, and the length before it makes room for the payload.

use crate::put::{PutBegin, PutError};
use rudder_graph::{BlockRows, Class};
use rudder_topology::{BlockId, TransferId};

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 64;
/// Bytes of a frame's payload at most.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Items of one Fetch at most.
pub const FETCH_ITEMS_MAX: usize = PAYLOAD_BYTES_MAX / ITEM_BYTES;

const MAGIC: u32 = u32::from_le_bytes(*b"RDF1");
const VERSION: u8 = 1;
const TAGGED: usize = 48;
const ITEM_BYTES: usize = 12;
const FLAG_LAST: u16 = 1;

/// A key of one direction of a connection. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct FrameKey(pub(crate) [u8; 32]);

impl FrameKey {
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        FrameKey(bytes)
    }
}

impl std::fmt::Debug for FrameKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FrameKey(..)")
    }
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Fetch = 1,
    Rows = 2,
    Failed = 3,
    Cancel = 4,
    Ping = 5,
    Pong = 6,
    PutBegin = 7,
    PutChunk = 8,
    PutEnd = 9,
    PutStatus = 10,
}

/// Why a storage node did not serve an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u32)]
pub enum FailReason {
    /// No such block in the dataset, or rows that it does not have.
    #[error("no such block or row")]
    UnknownBlock = 1,
    #[error("the part is not stored there")]
    NotStored = 2,
    #[error("the stored bytes do not match their checksum")]
    Corrupt = 3,
    #[error("the storage device failed to read")]
    ReadFailed = 4,
    #[error("the session does not permit it")]
    Unauthorised = 5,
    #[error("too much is queued already")]
    Overloaded = 6,
    /// It was asked for another node's block and cannot give it now: no owner is reached, an owner does not serve it,
    /// or there is no room for a copy. Says nothing about the block.
    #[error("the owner did not serve it, or there is no room to keep it")]
    Upstream = 7,
}

/// A checked header: what it says about its payload is within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    pub flags: u16,
    pub transfer: TransferId,
    pub first_item: u32,
    pub items: u32,
    pub argument: u64,
    pub payload_bytes: u32,
    pub payload_crc: u32,
}

/// A frame without the payload of Rows and PutChunk, which are handled where they lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    Fetch {
        transfer: TransferId,
        class: Class,
        items: Vec<BlockRows>,
    },
    /// The payload is the named rows of items `first_item .. first_item + items`, packed in order.
    Rows {
        transfer: TransferId,
        first_item: u32,
        items: u32,
        last: Last,
    },
    /// Item `item` cannot be served, and with it the whole transfer ends.
    Failed {
        transfer: TransferId,
        item: u32,
        reason: FailReason,
    },
    Cancel {
        transfer: TransferId,
    },
    Ping,
    Pong,
    PutBegin(PutBegin),
    PutChunk {
        offset: u64,
    },
    PutEnd,
    /// What the receiver holds of the file, or why it refuses it.
    PutStatus(Result<u64, PutError>),
}

/// Whether a Rows frame ends its transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    Last,
    MoreFollows,
}

/// Why a frame was refused. The connection it came on is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    #[error("the frame's tag does not match")]
    Tag,
    #[error("not a frame of this protocol")]
    Magic,
    #[error("frame version {0} is not spoken here")]
    Version(u8),
    #[error("frame kind {0} is unknown")]
    Kind(u8),
    #[error("a payload of {0} bytes is over the limit")]
    TooLong(u32),
    #[error("the payload does not match its checksum")]
    PayloadChecksum,
    #[error("the {field} of a {kind:?} frame is out of range")]
    Field { kind: Kind, field: &'static str },
}

/// The sending end of a connection's tags.
#[derive(Debug)]
pub struct Sealer {
    key: FrameKey,
    number: u64,
}

/// The receiving end of a connection's tags.
#[derive(Debug)]
pub struct Opener {
    key: FrameKey,
    number: u64,
}

fn tag(key: &FrameKey, number: u64, tagged: &[u8]) -> [u8; 16] {
    let mut message = [0_u8; TAGGED + 8];
    message[..8].copy_from_slice(&number.to_le_bytes());
    message[8..].copy_from_slice(tagged);
    let hash = blake3::keyed_hash(&key.0, &message);
    let mut tag = [0_u8; 16];
    tag.copy_from_slice(&hash.as_bytes()[..16]);
    tag
}

fn tags_equal(a: &[u8; 16], b: &[u8]) -> bool {
    // Every byte is looked at, so that time says nothing about where they differ.
    b.len() == 16 && a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)) == 0
}

impl Sealer {
    #[must_use]
    pub fn new(key: FrameKey) -> Self {
        Sealer { key, number: 0 }
    }

    /// The bytes of the header of the next frame to be sent. Frames must be sent in the order in which they are sealed.
    #[must_use]
    pub fn seal(&mut self, header: &Header) -> [u8; HEADER_BYTES] {
        let mut bytes = [0_u8; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4] = VERSION;
        bytes[5] = header.kind as u8;
        bytes[6..8].copy_from_slice(&header.flags.to_le_bytes());
        bytes[8..16].copy_from_slice(&header.transfer.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&header.first_item.to_le_bytes());
        bytes[20..24].copy_from_slice(&header.items.to_le_bytes());
        bytes[24..32].copy_from_slice(&header.argument.to_le_bytes());
        bytes[32..36].copy_from_slice(&header.payload_bytes.to_le_bytes());
        bytes[36..40].copy_from_slice(&header.payload_crc.to_le_bytes());
        let tag = tag(&self.key, self.number, &bytes[..TAGGED]);
        bytes[TAGGED..].copy_from_slice(&tag);
        self.number += 1;
        bytes
    }

    /// A frame with its payload, ready to be sent.
    ///
    /// # Panics
    /// If the payload is over [`PAYLOAD_BYTES_MAX`].
    #[must_use]
    pub fn frame(&mut self, frame: &Frame, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0_u8; HEADER_BYTES];
        frame.write_own_payload(&mut bytes);
        bytes.extend_from_slice(payload);
        let crc = crc32c::crc32c(&bytes[HEADER_BYTES..]);
        self.seal_in_place(frame, &mut bytes, crc);
        bytes
    }

    /// Writes the header of `frame` into the first [`HEADER_BYTES`] bytes of `bytes`, whose rest is the payload
    /// with the CRC32C `payload_crc`.
    ///
    /// # Panics
    /// If `bytes` is shorter than a header or the payload is over [`PAYLOAD_BYTES_MAX`].
    pub fn seal_in_place(&mut self, frame: &Frame, bytes: &mut [u8], payload_crc: u32) {
        let payload_bytes = bytes.len() - HEADER_BYTES;
        assert!(payload_bytes <= PAYLOAD_BYTES_MAX, "a payload of {payload_bytes} bytes is over the limit");
        let header = Header { payload_bytes: payload_bytes as u32, payload_crc, ..frame.header() };
        bytes[..HEADER_BYTES].copy_from_slice(&self.seal(&header));
    }
}

impl Opener {
    #[must_use]
    pub fn new(key: FrameKey) -> Self {
        Opener { key, number: 0 }
    }

    /// Checks the next header: tag first, then that it is one of ours and its length within bounds.
    pub fn open(&mut self, bytes: &[u8; HEADER_BYTES]) -> Result<Header, FrameError> {
        let expected = tag(&self.key, self.number, &bytes[..TAGGED]);
        if !tags_equal(&expected, &bytes[TAGGED..]) {
            return Err(FrameError::Tag);
        }
        self.number += 1;
        Header::parse(bytes)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0_u8; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0_u8; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Kind> {
        use Kind::*;
        [Fetch, Rows, Failed, Cancel, Ping, Pong, PutBegin, PutChunk, PutEnd, PutStatus]
            .into_iter()
            .find(|&kind| kind as u8 == byte)
    }
}

impl FailReason {
    fn from_code(code: u32) -> Option<FailReason> {
        use FailReason::*;
        [UnknownBlock, NotStored, Corrupt, ReadFailed, Unauthorised, Overloaded, Upstream]
            .into_iter()
            .find(|&reason| reason as u32 == code)
    }
}

impl Header {
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Header, FrameError> {
        if u32_at(bytes, 0) != MAGIC {
            return Err(FrameError::Magic);
        }
        if bytes[4] != VERSION {
            return Err(FrameError::Version(bytes[4]));
        }
        let kind = Kind::from_byte(bytes[5]).ok_or(FrameError::Kind(bytes[5]))?;
        let payload_bytes = u32_at(bytes, 32);
        if payload_bytes as usize > PAYLOAD_BYTES_MAX {
            return Err(FrameError::TooLong(payload_bytes));
        }
        if u64_at(bytes, 40) != 0 {
            return Err(FrameError::Field { kind, field: "reserved" });
        }
        Ok(Header {
            kind,
            flags: u16::from_le_bytes([bytes[6], bytes[7]]),
            transfer: TransferId(u64_at(bytes, 8)),
            first_item: u32_at(bytes, 16),
            items: u32_at(bytes, 20),
            argument: u64_at(bytes, 24),
            payload_bytes,
            payload_crc: u32_at(bytes, 36),
        })
    }

    /// Checks the payload that came with this header.
    pub fn check_payload(&self, payload: &[u8]) -> Result<(), FrameError> {
        if payload.len() == self.payload_bytes as usize && crc32c::crc32c(payload) == self.payload_crc {
            Ok(())
        } else {
            Err(FrameError::PayloadChecksum)
        }
    }
}

impl Frame {
    fn header(&self) -> Header {
        let mut header = Header {
            kind: Kind::Ping,
            flags: 0,
            transfer: TransferId(0),
            first_item: 0,
            items: 0,
            argument: 0,
            payload_bytes: 0,
            payload_crc: 0,
        };
        match self {
            Frame::Fetch { transfer, class, items } => {
                header.kind = Kind::Fetch;
                header.transfer = *transfer;
                header.flags = class_flag(*class);
                header.items = items.len() as u32;
            }
            Frame::Rows { transfer, first_item, items, last } => {
                header.kind = Kind::Rows;
                header.transfer = *transfer;
                header.first_item = *first_item;
                header.items = *items;
                header.flags = if *last == Last::Last { FLAG_LAST } else { 0 };
            }
            Frame::Failed { transfer, item, reason } => {
                header.kind = Kind::Failed;
                header.transfer = *transfer;
                header.first_item = *item;
                header.items = *reason as u32;
            }
            Frame::Cancel { transfer } => {
                header.kind = Kind::Cancel;
                header.transfer = *transfer;
            }
            Frame::Ping => {}
            Frame::Pong => header.kind = Kind::Pong,
            Frame::PutBegin(begin) => {
                header.kind = Kind::PutBegin;
                header.argument = begin.size_bytes;
            }
            Frame::PutChunk { offset } => {
                header.kind = Kind::PutChunk;
                header.argument = *offset;
            }
            Frame::PutEnd => header.kind = Kind::PutEnd,
            Frame::PutStatus(status) => {
                header.kind = Kind::PutStatus;
                match status {
                    Ok(have_bytes) => header.argument = *have_bytes,
                    Err(reason) => header.items = reason.code(),
                }
            }
        }
        header
    }

    fn write_own_payload(&self, bytes: &mut Vec<u8>) {
        match self {
            Frame::Fetch { items, .. } => {
                for item in items {
                    bytes.extend_from_slice(&item.block.0.to_le_bytes());
                    bytes.extend_from_slice(&item.mask.to_le_bytes());
                }
            }
            Frame::PutBegin(begin) => begin.write_payload(bytes),
            _ => {}
        }
    }

    /// The frame of a header whose payload was received, checked by this function.
    pub fn parse(header: &Header, payload: &[u8]) -> Result<Frame, FrameError> {
        header.check_payload(payload)?;
        let kind = header.kind;
        let field = |field| FrameError::Field { kind, field };
        let transfer = header.transfer;
        let carries = matches!(kind, Kind::Fetch | Kind::Rows | Kind::PutBegin | Kind::PutChunk);
        if !carries && !payload.is_empty() {
            return Err(field("payload"));
        }
        Ok(match kind {
            Kind::Fetch => Frame::Fetch {
                transfer,
                class: class_of_flag(header.flags).ok_or(field("class"))?,
                items: parse_items(header, payload)?,
            },
            Kind::Rows => Frame::Rows {
                transfer,
                first_item: header.first_item,
                items: header.items,
                last: match header.flags {
                    0 => Last::MoreFollows,
                    FLAG_LAST => Last::Last,
                    _ => return Err(field("flags")),
                },
            },
            Kind::Failed => Frame::Failed {
                transfer,
                item: header.first_item,
                reason: FailReason::from_code(header.items).ok_or(field("reason"))?,
            },
            Kind::Cancel => Frame::Cancel { transfer },
            Kind::Ping => Frame::Ping,
            Kind::Pong => Frame::Pong,
            Kind::PutBegin => {
                Frame::PutBegin(PutBegin::parse(header.argument, payload).ok_or(field("description"))?)
            }
            Kind::PutChunk => Frame::PutChunk { offset: header.argument },
            Kind::PutEnd => Frame::PutEnd,
            Kind::PutStatus => Frame::PutStatus(match header.items {
                0 => Ok(header.argument),
                code => Err(PutError::from_code(code).ok_or(field("reason"))?),
            }),
        })
    }
}

fn class_flag(class: Class) -> u16 {
    match class {
        Class::Demand => 1,
        Class::Prefetch => 2,
    }
}

fn class_of_flag(flag: u16) -> Option<Class> {
    match flag {
        1 => Some(Class::Demand),
        2 => Some(Class::Prefetch),
        _ => None,
    }
}

fn parse_items(header: &Header, payload: &[u8]) -> Result<Vec<BlockRows>, FrameError> {
    let field = |field| FrameError::Field { kind: Kind::Fetch, field };
    if header.items == 0 || payload.len() != header.items as usize * ITEM_BYTES {
        return Err(field("items"));
    }
    payload
        .chunks_exact(ITEM_BYTES)
        .map(|item| {
            let mask = u64_at(item, 4);
            if mask == 0 {
                return Err(field("mask"));
            }
            Ok(BlockRows { block: BlockId(u32_at(item, 0)), mask })
        })
        .collect()
}

#[cfg(test)]
mod tests;
