//! The `.npy` format over bytes: headers read and written, data found by offset.
//!
//! Reads versions 1, 2 and 3; little-endian numbers and booleans in C order. Format:
//! <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.

use crate::dtype::Dtype;

mod literal;

/// Longest header that is read, in bytes: a plain array's header has about a hundred.
pub const HEADER_BYTES_MAX: usize = 64 << 10;

/// Most dimensions that are read.
pub const DIMENSIONS_MAX: usize = 8;

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Bytes that tell a header's length: magic, version, and a length of two or four bytes.
pub const PREAMBLE_BYTES: usize = 12;

/// An element type that Rudder reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NpyType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    F32,
    F64,
}

/// A read header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NpyHeader {
    pub element: NpyType,
    pub shape: Vec<u64>,
    /// Where the data starts in the file.
    pub data_offset: u64,
    /// Bytes of the data; checked not to overflow.
    pub data_bytes: u64,
}

/// Where the data shall start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// At a multiple of 64, as numpy does it.
    Aligned,
    /// At this byte, such as [`crate::manifest::FEATURE_DATA_OFFSET`].
    To(u64),
}

/// Why bytes are not a readable array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NpyError {
    #[error("not a .npy file: it does not start with the magic string")]
    Magic,
    #[error("the .npy file ends within its header: {needed} bytes are needed, {found} are there")]
    Truncated { needed: usize, found: usize },
    #[error("version {major}.{minor} of the .npy format is not known")]
    Version { major: u8, minor: u8 },
    #[error("a header of {0} bytes: at most {HEADER_BYTES_MAX} are read")]
    HeaderTooLong(usize),
    #[error("the header is malformed at byte {at}: expected {expected}")]
    Syntax { at: usize, expected: &'static str },
    #[error("arrays of Python objects are not read: save numbers, with allow_pickle=False")]
    Objects,
    #[error("structured arrays are not read: save one array per field")]
    Structured,
    #[error("element type `{0}` is not read: use bool, int, uint or float of 1 to 8 bytes")]
    Element(String),
    #[error(
        "big-endian element type `{0}`: save it as little-endian, array.astype(array.dtype.newbyteorder('<'))"
    )]
    BigEndian(String),
    #[error("the array is in Fortran order: save numpy.ascontiguousarray(array)")]
    FortranOrder,
    #[error("an array of {0} dimensions: at most {DIMENSIONS_MAX} are read")]
    Dimensions(usize),
    #[error("the shape {shape:?} has more bytes than 64 bits can count")]
    Overflow { shape: Vec<u64> },
    #[error("the array should hold {expected} data bytes, the file has {found}")]
    DataLength { expected: u64, found: u64 },
}

impl NpyType {
    #[must_use]
    pub const fn size(self) -> u64 {
        match self {
            NpyType::Bool | NpyType::I8 | NpyType::U8 => 1,
            NpyType::I16 | NpyType::U16 | NpyType::F16 => 2,
            NpyType::I32 | NpyType::U32 | NpyType::F32 => 4,
            NpyType::I64 | NpyType::U64 | NpyType::F64 => 8,
        }
    }

    /// numpy's name of the type, little-endian.
    #[must_use]
    pub const fn descr(self) -> &'static str {
        match self {
            NpyType::Bool => "|b1",
            NpyType::I8 => "|i1",
            NpyType::I16 => "<i2",
            NpyType::I32 => "<i4",
            NpyType::I64 => "<i8",
            NpyType::U8 => "|u1",
            NpyType::U16 => "<u2",
            NpyType::U32 => "<u4",
            NpyType::U64 => "<u8",
            NpyType::F16 => "<f2",
            NpyType::F32 => "<f4",
            NpyType::F64 => "<f8",
        }
    }

    const ALL: [NpyType; 12] = [
        NpyType::Bool,
        NpyType::I8,
        NpyType::I16,
        NpyType::I32,
        NpyType::I64,
        NpyType::U8,
        NpyType::U16,
        NpyType::U32,
        NpyType::U64,
        NpyType::F16,
        NpyType::F32,
        NpyType::F64,
    ];

    fn from_descr(descr: &str) -> Result<NpyType, NpyError> {
        let shown = || descr.chars().take(40).collect::<String>();
        let (order, name) = match descr.as_bytes() {
            [order @ (b'<' | b'>' | b'|' | b'='), ..] => (*order, &descr[1..]),
            _ => (b'=', descr),
        };
        if name.starts_with('O') {
            return Err(NpyError::Objects);
        }
        let element = NpyType::ALL.into_iter().find(|element| &element.descr()[1..] == name);
        let element = element.ok_or_else(|| NpyError::Element(shown()))?;
        if order == b'>' && element.size() > 1 {
            return Err(NpyError::BigEndian(shown()));
        }
        Ok(element)
    }

    /// The feature dtype that an array of this type has; `u2` is read as bf16, which numpy does not know.
    #[must_use]
    pub const fn feature_dtype(self) -> Option<Dtype> {
        match self {
            NpyType::I8 => Some(Dtype::I8),
            NpyType::U8 => Some(Dtype::U8),
            NpyType::I32 => Some(Dtype::I32),
            NpyType::I64 => Some(Dtype::I64),
            NpyType::U16 => Some(Dtype::Bf16),
            NpyType::F16 => Some(Dtype::F16),
            NpyType::F32 => Some(Dtype::F32),
            NpyType::F64 => Some(Dtype::F64),
            NpyType::Bool | NpyType::I16 | NpyType::U32 | NpyType::U64 => None,
        }
    }
}

impl From<Dtype> for NpyType {
    fn from(dtype: Dtype) -> NpyType {
        match dtype {
            Dtype::F32 => NpyType::F32,
            Dtype::F16 => NpyType::F16,
            Dtype::Bf16 => NpyType::U16,
            Dtype::I8 => NpyType::I8,
            Dtype::U8 => NpyType::U8,
            Dtype::I32 => NpyType::I32,
            Dtype::I64 => NpyType::I64,
            Dtype::F64 => NpyType::F64,
        }
    }
}

impl NpyHeader {
    /// Bytes from the start of the file that hold the whole header. `preamble`: the file's first
    /// [`PREAMBLE_BYTES`] bytes, or more.
    pub fn length(preamble: &[u8]) -> Result<usize, NpyError> {
        Ok(header_range(preamble)?.end)
    }

    /// Reads the header at the start of `bytes`; what follows it is not looked at.
    pub fn parse(bytes: &[u8]) -> Result<NpyHeader, NpyError> {
        let range = header_range(bytes)?;
        let data_offset = range.end as u64;
        let text =
            bytes.get(range.clone()).ok_or(NpyError::Truncated { needed: range.end, found: bytes.len() })?;
        let literal = literal::parse(text)?;
        let element = NpyType::from_descr(&literal.descr)?;
        let shape = literal.shape;
        if shape.len() > DIMENSIONS_MAX {
            return Err(NpyError::Dimensions(shape.len()));
        }
        // With at most one dimension longer than 1 both orders are the same bytes.
        if literal.fortran_order && shape.iter().filter(|&&n| n != 1).count() > 1 {
            return Err(NpyError::FortranOrder);
        }
        Ok(NpyHeader { data_offset, ..NpyHeader::bare(element, shape)? })
    }

    /// The header of an array that starts with its data, such as a tensor within another format.
    pub fn bare(element: NpyType, shape: Vec<u64>) -> Result<NpyHeader, NpyError> {
        if shape.len() > DIMENSIONS_MAX {
            return Err(NpyError::Dimensions(shape.len()));
        }
        // Zeros are left out, so that a huge shape with a zero in it does not pass for a small one.
        let mut nonzero = shape.iter().filter(|&&n| n != 0);
        let bytes = nonzero.try_fold(element.size(), |product, &n| product.checked_mul(n));
        let Some(bytes) = bytes else { return Err(NpyError::Overflow { shape }) };
        let data_bytes = if shape.contains(&0) { 0 } else { bytes };
        Ok(NpyHeader { element, shape, data_offset: 0, data_bytes })
    }

    /// Reads the header of a whole file's bytes and checks that exactly its data follows.
    pub fn parse_file(bytes: &[u8]) -> Result<(NpyHeader, &[u8]), NpyError> {
        let header = NpyHeader::parse(bytes)?;
        header.check_file_bytes(bytes.len() as u64)?;
        let data = &bytes[header.data_offset as usize..];
        Ok((header, data))
    }

    /// Checks a file's length against the header.
    pub fn check_file_bytes(&self, file_bytes: u64) -> Result<(), NpyError> {
        let found = file_bytes.saturating_sub(self.data_offset);
        if found == self.data_bytes {
            return Ok(());
        }
        Err(NpyError::DataLength { expected: self.data_bytes, found })
    }

    /// Elements of the array.
    #[must_use]
    pub fn elements(&self) -> u64 {
        self.data_bytes / self.element.size()
    }
}

/// Where the dictionary lies. Looks at the preamble only.
fn header_range(bytes: &[u8]) -> Result<std::ops::Range<usize>, NpyError> {
    let magic = &bytes[..bytes.len().min(MAGIC.len())];
    if !MAGIC.starts_with(magic) {
        return Err(NpyError::Magic);
    }
    let truncated = NpyError::Truncated { needed: PREAMBLE_BYTES, found: bytes.len() };
    let (start, length) = match *bytes.get(MAGIC.len()..).unwrap_or_default() {
        [1, 0, a, b, ..] => (10, usize::from(u16::from_le_bytes([a, b]))),
        [2 | 3, 0, a, b, c, d, ..] => (12, u32::from_le_bytes([a, b, c, d]) as usize),
        [1..=3, 0, ..] | [1..=3] | [] => return Err(truncated),
        [major, minor, ..] => return Err(NpyError::Version { major, minor }),
        [major] => return Err(NpyError::Version { major, minor: 0 }),
    };
    if length > HEADER_BYTES_MAX {
        return Err(NpyError::HeaderTooLong(length));
    }
    Ok(start..start + length)
}

/// The header of an array in C order. numpy reads it whatever its padding.
///
/// # Panics
/// If a shape of more than [`DIMENSIONS_MAX`] dimensions does not fit before the byte that `padding` names, or
/// that byte is over 64 KiB.
#[must_use]
pub fn header(element: NpyType, shape: &[u64], padding: Padding) -> Vec<u8> {
    let shape = match shape {
        [n] => format!("({n},)"),
        _ => format!("({})", shape.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    };
    let text = format!("{{'descr': '{}', 'fortran_order': False, 'shape': {shape}, }}", element.descr());
    let bare = 10 + text.len() + 1;
    let end = match padding {
        Padding::Aligned => bare.next_multiple_of(64),
        Padding::To(end) => usize::try_from(end).expect("a small offset"),
    };
    assert!(bare <= end, "a header of {bare} bytes does not fit before byte {end}");
    let mut header = Vec::with_capacity(end);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&[1, 0]);
    header.extend_from_slice(&u16::try_from(end - 10).expect("within 64 KiB").to_le_bytes());
    header.extend_from_slice(text.as_bytes());
    header.resize(end - 1, b' ');
    header.push(b'\n');
    header
}

#[cfg(test)]
mod tests;
