//! The envelope of everything that crosses nodes: one version byte, then bincode with a size limit.
//!
//! This is the only place that knows the encoding, so that it can be replaced.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Bytes of one encoded message at most: far below what a control session bears, far above any report.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Raised with every incompatible change of a message.
pub const ENVELOPE_VERSION: u8 = 2;

/// Why a value could not be put on the wire.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error("a message of {0} bytes is longer than {MESSAGE_BYTES_MAX}")]
    TooLong(usize),
    #[error("a message cannot be encoded: {0}")]
    Unencodable(String),
}

/// Why bytes are not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("an empty message")]
    Empty,
    #[error("a message of {0} bytes is longer than {MESSAGE_BYTES_MAX}")]
    TooLong(usize),
    #[error("envelope version {0} is not {ENVELOPE_VERSION}: use the same release on every node")]
    Version(u8),
    #[error("the message is malformed: {0}")]
    Malformed(String),
    #[error("{0} bytes too many after the message")]
    Trailing(usize),
}

fn configuration() -> impl bincode::config::Config {
    bincode::config::standard().with_limit::<MESSAGE_BYTES_MAX>()
}

/// The value in its envelope.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, EncodeError> {
    let body = bincode::serde::encode_to_vec(value, bincode::config::standard())
        .map_err(|error| EncodeError::Unencodable(error.to_string()))?;
    if body.len() + 1 > MESSAGE_BYTES_MAX {
        return Err(EncodeError::TooLong(body.len() + 1));
    }
    let mut out = Vec::with_capacity(body.len() + 1);
    out.push(ENVELOPE_VERSION);
    out.extend_from_slice(&body);
    Ok(out)
}

/// The value that the envelope holds; allocates no more than the limit, whatever the bytes claim.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(DecodeError::TooLong(bytes.len()));
    }
    let (&version, body) = bytes.split_first().ok_or(DecodeError::Empty)?;
    if version != ENVELOPE_VERSION {
        return Err(DecodeError::Version(version));
    }
    let (value, read) = bincode::serde::decode_from_slice(body, configuration())
        .map_err(|error| DecodeError::Malformed(error.to_string()))?;
    if read < body.len() {
        return Err(DecodeError::Trailing(body.len() - read));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_encoded_comes_back() {
        let value = (7_u64, "text".to_string(), vec![1_u32, 2, 3]);
        let bytes = encode(&value).unwrap();
        assert_eq!(decode::<(u64, String, Vec<u32>)>(&bytes).unwrap(), value);
    }

    #[test]
    fn every_cut_and_every_extra_byte_is_refused() {
        let bytes = encode(&(7_u64, "text".to_string())).unwrap();
        for end in 0..bytes.len() {
            assert!(decode::<(u64, String)>(&bytes[..end]).is_err(), "cut at {end}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert_eq!(decode::<(u64, String)>(&longer), Err(DecodeError::Trailing(1)));
        let mut other = bytes;
        other[0] = 9;
        assert_eq!(decode::<(u64, String)>(&other), Err(DecodeError::Version(9)));
    }

    #[test]
    fn sizes_are_bounded_in_both_directions() {
        assert!(matches!(encode(&vec![0_u8; MESSAGE_BYTES_MAX]), Err(EncodeError::TooLong(_))));
        let long = vec![ENVELOPE_VERSION; MESSAGE_BYTES_MAX + 1];
        assert_eq!(decode::<Vec<u8>>(&long), Err(DecodeError::TooLong(MESSAGE_BYTES_MAX + 1)));
        // A vector that claims 2^62 elements in a message of ten bytes.
        let mut claim = vec![ENVELOPE_VERSION, 253];
        claim.extend_from_slice(&(1_u64 << 62).to_le_bytes());
        assert!(matches!(decode::<Vec<u64>>(&claim), Err(DecodeError::Malformed(_))));
    }

    proptest! {
        #[test]
        fn random_bytes_are_a_value_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode::<Vec<(u64, String, Option<Vec<u16>>)>>(&bytes);
        }
    }
}
