//! Where the rows of a view lie, as arrays can say it: for each mapping a start, a stride, and an index a row.

use rudder_client::location::Location;

/// Rows that lie in one mapping.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub mapping: u16,
    /// Where its first row starts, in bytes.
    pub first: u64,
    /// Bytes from one index to the next. Rows need not stand a whole number of rows apart (slots are aligned): then it
    /// is less than a row.
    pub stride: u64,
    /// One more than the greatest index.
    pub count: u64,
    /// Of each row, in the order of the announcement.
    pub index: Vec<i64>,
    /// Which rows of the minibatch these are.
    pub position: Vec<i64>,
}

/// The rows at the locations, by mapping.
pub(crate) fn pieces(locations: &[Location], row_bytes: u64) -> Vec<Piece> {
    let mut mappings: Vec<u16> = Vec::new();
    for location in locations {
        if mappings.last() != Some(&location.mapping()) && !mappings.contains(&location.mapping()) {
            mappings.push(location.mapping());
        }
    }
    mappings.sort_unstable();
    let of_mapping = |mapping| {
        if mappings.len() == 1 {
            return piece(mapping, locations, (0..locations.len() as i64).collect(), row_bytes);
        }
        let (position, here): (Vec<i64>, Vec<Location>) =
            (0..).zip(locations).filter(|(_, location)| location.mapping() == mapping).unzip();
        piece(mapping, &here, position, row_bytes)
    };
    mappings.iter().map(|&mapping| of_mapping(mapping)).collect()
}

/// Locations of one mapping, at least one.
fn piece(mapping: u16, locations: &[Location], position: Vec<i64>, row_bytes: u64) -> Piece {
    let first = locations.iter().map(|location| location.offset()).min().unwrap_or_default();
    let distance = |location: &Location| location.offset() - first;
    // Its lowest bit is the greatest power of two that divides all distances.
    let any = locations.iter().fold(0, |any, location| any | distance(location));
    let whole = row_bytes > 0
        && if row_bytes.is_power_of_two() {
            any & (row_bytes - 1) == 0
        } else {
            locations.iter().all(|location| distance(location).is_multiple_of(row_bytes))
        };
    let stride = if whole || any == 0 { row_bytes.max(1) } else { 1 << any.trailing_zeros() };
    let index: Vec<i64> = if stride.is_power_of_two() {
        let bits = stride.trailing_zeros();
        locations.iter().map(|location| (distance(location) >> bits) as i64).collect()
    } else {
        locations.iter().map(|location| (distance(location) / stride) as i64).collect()
    };
    let count = index.iter().max().map_or(0, |&last| last as u64 + 1);
    Piece { mapping, first, stride, count, index, position }
}
