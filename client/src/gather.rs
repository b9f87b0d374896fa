//! Rows from many places into one contiguous tensor.

use crate::location::Location;

/// A location whose row does not lie inside its mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "row {position} of the gather lies outside its mapping: {row_bytes} bytes at {offset} of mapping {mapping}"
)]
pub struct OutsideMapping {
    pub position: usize,
    pub mapping: u16,
    pub offset: u64,
    pub row_bytes: usize,
}

/// Why nothing, or only a part, was gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatherError {
    #[error(transparent)]
    Outside(#[from] OutsideMapping),
    #[error("{rows} rows of {row_bytes} bytes do not fill a destination of {destination} bytes")]
    Destination { rows: usize, row_bytes: usize, destination: usize },
}

/// Bytes whose rows are asked for ahead of their copies: as much as memory answers at once. Measured at 128, 512 and
/// 4096 bytes a row; with fewer, latency shows.
const AHEAD_BYTES: usize = 8 << 10;

/// Most rows ahead, a power of two.
const AHEAD_ROWS_MAX: usize = 64;

/// Fewest rows ahead, for long rows.
const AHEAD_ROWS_MIN: usize = 4;

/// Bytes of a row that are asked for ahead; the hardware's own prefetcher follows from there.
const HINT_BYTES: usize = 512;

/// Copies the row at each location to `to`, in order. `bytes_of` gives a mapping's bytes, empty for an unknown
/// one; it is asked for every row. After an error `to` holds some rows.
pub fn gather_into<'m>(
    bytes_of: impl Fn(u16) -> &'m [u8],
    locations: &[Location],
    row_bytes: usize,
    to: &mut [u8],
) -> Result<(), GatherError> {
    let rows = locations.len();
    if rows.checked_mul(row_bytes) != Some(to.len()) {
        return Err(GatherError::Destination { rows, row_bytes, destination: to.len() });
    }
    if row_bytes == 0 {
        return Ok(());
    }
    // Asked anew each time: rows come from several mappings in no order, and a branch on the last one would be guessed
    // wrong as often as not.
    let source = |position: usize| {
        let location = locations[position];
        let row = row_at(bytes_of(location.mapping()), location, row_bytes);
        row.inspect(|row| hint(row)).ok_or(OutsideMapping {
            position,
            mapping: location.mapping(),
            offset: location.offset(),
            row_bytes,
        })
    };
    let ahead = (AHEAD_BYTES / row_bytes).clamp(AHEAD_ROWS_MIN, AHEAD_ROWS_MAX);
    let mut found: [&[u8]; AHEAD_ROWS_MAX] = [&[]; AHEAD_ROWS_MAX];
    for (position, found) in found.iter_mut().enumerate().take(ahead.min(rows)) {
        *found = source(position)?;
    }
    for (position, row) in to.chunks_exact_mut(row_bytes).enumerate() {
        let current = found[position % AHEAD_ROWS_MAX];
        if position + ahead < rows {
            found[(position + ahead) % AHEAD_ROWS_MAX] = source(position + ahead)?;
        }
        row.copy_from_slice(current);
    }
    Ok(())
}

fn row_at(bytes: &[u8], location: Location, row_bytes: usize) -> Option<&[u8]> {
    let start = usize::try_from(location.offset()).ok()?;
    bytes.get(start..start.checked_add(row_bytes)?)
}

/// Asks for the start of a row ahead of its copy.
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
fn hint(row: &[u8]) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    for line in (0..row.len().min(HINT_BYTES)).step_by(64) {
        // SAFETY: a prefetch reads nothing the program can see and faults on no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(row.as_ptr().wrapping_add(line).cast()) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn hint(_row: &[u8]) {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAPPINGS: [&[u8]; 2] = [&[0, 1, 2, 3, 4, 5, 6, 7], &[10, 11, 12, 13]];

    fn bytes_of(mapping: u16) -> &'static [u8] {
        MAPPINGS.get(usize::from(mapping)).copied().unwrap_or_default()
    }

    fn gather(places: &[(u16, u64)], row_bytes: usize, to: &mut [u8]) -> Result<(), GatherError> {
        let locations: Vec<_> =
            places.iter().map(|&(mapping, offset)| Location::new(mapping, offset)).collect();
        gather_into(bytes_of, &locations, row_bytes, to)
    }

    #[test]
    fn rows_come_in_order() {
        let mut to = [0; 8];
        gather(&[(0, 6), (1, 2), (0, 0), (1, 0)], 2, &mut to).unwrap();
        assert_eq!(to, [6, 7, 12, 13, 0, 1, 10, 11]);
        gather(&[], 2, &mut []).unwrap();
        gather(&[(9, 9)], 0, &mut []).unwrap();
    }

    #[test]
    fn rows_outside_are_named() {
        for (mapping, offset) in [(0, 7), (0, 1 << 47), (1, 3), (2, 0), (u16::MAX, 0)] {
            let error = gather(&[(0, 0), (mapping, offset)], 2, &mut [0; 4]).unwrap_err();
            let outside = OutsideMapping { position: 1, mapping, offset, row_bytes: 2 };
            assert_eq!(error, GatherError::Outside(outside));
        }
    }

    #[test]
    fn destinations_fit_exactly() {
        for bytes in [0, 3, 5] {
            let error = gather(&[(0, 0), (0, 1)], 2, &mut vec![0; bytes]).unwrap_err();
            assert_eq!(error, GatherError::Destination { rows: 2, row_bytes: 2, destination: bytes });
        }
        assert!(gather(&[(0, 0), (0, 0)], usize::MAX, &mut []).is_err());
    }

    proptest! {
        #[test]
        fn gathering_is_copying_row_by_row(
            picks in prop::collection::vec((0_u16..3, 0_u64..600), 0..100),
            row_bytes in 1_usize..300,
        ) {
            let mappings: Vec<Vec<u8>> =
                (0..3_u8).map(|m| (0..900_usize).map(|i| (i * 7) as u8 ^ m).collect()).collect();
            let locations: Vec<_> = picks.iter().map(|&(m, offset)| Location::new(m, offset)).collect();
            let mut to = vec![0; picks.len() * row_bytes];
            gather_into(|m| &mappings[usize::from(m)], &locations, row_bytes, &mut to).unwrap();
            for (&(mapping, offset), row) in picks.iter().zip(to.chunks(row_bytes)) {
                let offset = offset as usize;
                prop_assert_eq!(row, &mappings[usize::from(mapping)][offset..offset + row_bytes]);
            }
        }
    }
}
