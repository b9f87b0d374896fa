//! Doubly linked lists over slots: each slot is in one list at most. 12 bytes a slot.

const NONE: u32 = u32::MAX;

/// A list's name within its [`Lists`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ListId(u32);

#[derive(Clone, Copy, Debug)]
struct Link {
    list: u32,
    previous: u32,
    next: u32,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    first: u32,
    last: u32,
    length: u32,
}

const EMPTY: Ends = Ends { first: NONE, last: NONE, length: 0 };

#[derive(Clone, Debug)]
pub(super) struct Lists {
    links: Vec<Link>,
    lists: Vec<Ends>,
    free: Vec<u32>,
}

impl Lists {
    pub fn new(slots: u32) -> Self {
        let unlinked = Link { list: NONE, previous: NONE, next: NONE };
        Lists { links: vec![unlinked; slots as usize], lists: vec![], free: vec![] }
    }

    pub fn add_list(&mut self) -> ListId {
        ListId(self.free.pop().unwrap_or_else(|| {
            self.lists.push(EMPTY);
            (self.lists.len() - 1) as u32
        }))
    }

    /// Gives an empty list's name back.
    pub fn drop_list(&mut self, list: ListId) {
        debug_assert_eq!(self.lists[list.0 as usize].length, 0);
        self.free.push(list.0);
    }

    pub fn len(&self, list: ListId) -> usize {
        self.lists[list.0 as usize].length as usize
    }

    pub fn memory_bytes(&self) -> usize {
        self.links.capacity() * size_of::<Link>()
    }

    pub fn list_of(&self, slot: u32) -> Option<ListId> {
        Some(self.links[slot as usize].list).filter(|&list| list != NONE).map(ListId)
    }

    pub fn first(&self, list: ListId) -> Option<u32> {
        Some(self.lists[list.0 as usize].first).filter(|&slot| slot != NONE)
    }

    /// The slot after this one in its list.
    pub fn next(&self, slot: u32) -> Option<u32> {
        Some(self.links[slot as usize].next).filter(|&slot| slot != NONE)
    }

    /// Puts a slot, which is in no list, at the front.
    pub fn push_front(&mut self, list: ListId, slot: u32) {
        debug_assert_eq!(self.links[slot as usize].list, NONE);
        let ends = &mut self.lists[list.0 as usize];
        let first = std::mem::replace(&mut ends.first, slot);
        ends.length += 1;
        if first == NONE {
            ends.last = slot;
        } else {
            self.links[first as usize].previous = slot;
        }
        self.links[slot as usize] = Link { list: list.0, previous: NONE, next: first };
    }

    /// Puts a slot, which is in no list, at the end.
    pub fn push_back(&mut self, list: ListId, slot: u32) {
        debug_assert_eq!(self.links[slot as usize].list, NONE);
        let ends = &mut self.lists[list.0 as usize];
        let last = std::mem::replace(&mut ends.last, slot);
        ends.length += 1;
        if last == NONE {
            ends.first = slot;
        } else {
            self.links[last as usize].next = slot;
        }
        self.links[slot as usize] = Link { list: list.0, previous: last, next: NONE };
    }

    /// Takes a slot out of its list; tells which it was.
    pub fn remove(&mut self, slot: u32) -> Option<ListId> {
        let link = self.links[slot as usize];
        if link.list == NONE {
            return None;
        }
        let ends = &mut self.lists[link.list as usize];
        ends.length -= 1;
        match link.previous {
            NONE => ends.first = link.next,
            previous => self.links[previous as usize].next = link.next,
        }
        match link.next {
            NONE => self.lists[link.list as usize].last = link.previous,
            next => self.links[next as usize].previous = link.previous,
        }
        self.links[slot as usize] = Link { list: NONE, previous: NONE, next: NONE };
        Some(ListId(link.list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn behaves_like_deques(moves in proptest::collection::vec((0_u32..8, 0_usize..7), 0..200)) {
            let mut lists = Lists::new(8);
            let ids: Vec<_> = (0..3).map(|_| lists.add_list()).collect();
            let mut twin = vec![VecDeque::new(); 3];
            for (slot, to) in moves {
                lists.remove(slot);
                for deque in &mut twin {
                    deque.retain(|&s| s != slot);
                }
                if to < 3 {
                    lists.push_back(ids[to], slot);
                    twin[to].push_back(slot);
                } else if to < 6 {
                    lists.push_front(ids[to - 3], slot);
                    twin[to - 3].push_front(slot);
                }
                for (id, deque) in ids.iter().zip(&twin) {
                    prop_assert_eq!(lists.len(*id), deque.len());
                    prop_assert_eq!(lists.first(*id), deque.front().copied());
                    let walk = std::iter::successors(lists.first(*id), |&slot| lists.next(slot));
                    prop_assert!(walk.eq(deque.iter().copied()));
                }
            }
        }
    }
}
