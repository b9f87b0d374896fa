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

/// What is known of a mapping before its rows are.
#[derive(Clone, Copy)]
struct Found {
    mapping: u16,
    rows: usize,
    first: u64,
    last: u64,
    /// Any of its rows, and the bits in which the others' offsets differ from that one's: where the lowest k bits do not,
    /// all rows stand multiples of 2^k apart.
    one: u64,
    differ: u64,
}

/// The rows at the locations, by mapping. Rows come from the mappings in no order, so each is looked up in a table.
pub(crate) fn pieces(locations: &[Location], row_bytes: u64) -> Vec<Piece> {
    const NONE: u32 = u32::MAX;
    let mut place = vec![NONE; 1 << 16];
    let mut found: Vec<Found> = Vec::new();
    for location in locations {
        let (mapping, offset) = (location.mapping(), location.offset());
        let at = &mut place[usize::from(mapping)];
        if *at == NONE {
            *at = found.len() as u32;
            found.push(Found { mapping, rows: 0, first: offset, last: offset, one: offset, differ: 0 });
        }
        let found = &mut found[*at as usize];
        found.rows += 1;
        found.first = found.first.min(offset);
        found.last = found.last.max(offset);
        found.differ |= offset ^ found.one;
    }
    let mut pieces: Vec<Piece> = found.iter().map(|found| piece(found, locations, row_bytes)).collect();
    for (position, location) in (0..).zip(locations) {
        let piece = &mut pieces[place[usize::from(location.mapping())] as usize];
        let distance = location.offset() - piece.first;
        let index = match piece.stride.is_power_of_two() {
            true => distance >> piece.stride.trailing_zeros(),
            false => distance / piece.stride,
        };
        piece.index.push(index as i64);
        piece.position.push(position);
    }
    pieces
}

/// A piece that has no rows yet.
fn piece(found: &Found, locations: &[Location], row_bytes: u64) -> Piece {
    let &Found { mapping, rows, first, last, differ, .. } = found;
    let whole = if row_bytes.is_power_of_two() {
        differ & (row_bytes - 1) == 0
    } else {
        let mut here = locations.iter().filter(|location| location.mapping() == mapping);
        row_bytes > 0 && here.all(|location| (location.offset() - first).is_multiple_of(row_bytes))
    };
    let stride = if whole || differ == 0 { row_bytes.max(1) } else { 1 << differ.trailing_zeros() };
    Piece {
        mapping,
        first,
        stride,
        count: (last - first) / stride + 1,
        index: Vec::with_capacity(rows),
        position: Vec::with_capacity(rows),
    }
}
