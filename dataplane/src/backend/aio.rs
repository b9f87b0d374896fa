//! Direct reads by `io_submit`, Linux's older asynchronous interface: many reads in flight without a thread for each.
//! Asynchronous for `O_DIRECT` files only, which is all this backend reads.

use super::AlignedBuffer;
use super::threads::Ask;
use rustix::event::{EventfdFlags, eventfd};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Reads that are submitted at once.
const BATCH: usize = 8;
/// Completions that are taken at once.
const EVENTS: usize = 64;

pub(super) struct Aio {
    context: Context,
    events: OwnedFd,
    /// Reads that the kernel has or that wait for room, with their buffers. Dropped after the context.
    in_flight: RefCell<Vec<Option<Ask>>>,
    free: RefCell<Vec<usize>>,
    /// Asked for and not yet submitted.
    waiting: RefCell<VecDeque<usize>>,
    flush: Cell<Flush>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Flush {
    Idle,
    Scheduled,
}

/// The kernel's context. Destroying it waits for the reads that are in flight: their buffers are ours until then.
struct Context(libc::c_ulong);

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by io_setup, destroyed once; waits until the kernel has let go of every buffer.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// What the kernel writes for each read that ended; its layout is the kernel's ABI.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    iocb: u64,
    result: i64,
    result2: i64,
}

/// What io_submit takes; its layout is the kernel's ABI (little endian and 64 bits, as this crate's frames).
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct ControlBlock {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

const _: () = assert!(size_of::<ControlBlock>() == 64 && size_of::<Event>() == 32);

const OPCODE_PREAD: u16 = 0;
const FLAG_EVENTFD: u32 = 1;

impl Aio {
    /// Starts the interface and the task that takes completions. Fails where the kernel refuses it.
    pub(super) fn start(depth: usize) -> io::Result<Rc<Aio>> {
        if cfg!(not(all(target_endian = "little", target_pointer_width = "64"))) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut context: libc::c_ulong = 0;
        // SAFETY: a valid pointer to a context that is zero, as io_setup wants it.
        let result = unsafe { libc::syscall(libc::SYS_io_setup, depth as libc::c_uint, &raw mut context) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let context = Context(context);
        let events = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let descriptor = events.try_clone()?;
        // SAFETY: an owned descriptor, which stays open and the same until it is dropped.
        let readable = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?;
        let aio = Rc::new(Aio {
            context,
            events,
            in_flight: RefCell::default(),
            free: RefCell::default(),
            waiting: RefCell::default(),
            flush: Cell::new(Flush::Idle),
        });
        // Weak: the task must not keep the interface alive.
        let weak = Rc::downgrade(&aio);
        tokio::task::spawn_local(async move {
            while let Ok(mut guard) = readable.readable().await {
                guard.clear_ready();
                let Some(aio) = weak.upgrade() else { return };
                aio.complete();
            }
        });
        Ok(aio)
    }

    /// Takes a read on. It is submitted with others that are asked for in this turn of the runtime.
    pub(super) fn ask(self: &Rc<Self>, ask: Ask) {
        let slot = match self.free.borrow_mut().pop() {
            Some(slot) => slot,
            None => {
                let mut in_flight = self.in_flight.borrow_mut();
                in_flight.push(None);
                in_flight.len() - 1
            }
        };
        self.in_flight.borrow_mut()[slot] = Some(ask);
        self.waiting.borrow_mut().push_back(slot);
        if self.waiting.borrow().len() >= BATCH {
            // The device works while the mover still takes completions.
            return self.submit();
        }
        if self.flush.replace(Flush::Scheduled) == Flush::Idle {
            let aio = self.clone();
            tokio::task::spawn_local(async move {
                aio.flush.set(Flush::Idle);
                aio.submit();
            });
        }
    }

    fn submit(&self) {
        let mut waiting = self.waiting.borrow_mut();
        let mut in_flight = self.in_flight.borrow_mut();
        while !waiting.is_empty() {
            let blocks: Vec<ControlBlock> = waiting
                .iter()
                .filter_map(|&slot| {
                    let Ask { file, memory, range, offset, .. } = in_flight[slot].as_mut()?;
                    Some(ControlBlock {
                        data: slot as u64,
                        opcode: OPCODE_PREAD,
                        descriptor: file.as_raw_fd() as u32,
                        buffer: memory.as_mut_slice()[range.clone()].as_mut_ptr() as u64,
                        bytes: range.len() as u64,
                        offset: (*offset + range.start as u64) as i64,
                        flags: FLAG_EVENTFD,
                        eventfd: self.events.as_raw_fd() as u32,
                        ..ControlBlock::default()
                    })
                })
                .collect();
            let pointers: Vec<*const ControlBlock> = blocks.iter().map(std::ptr::from_ref).collect();
            // SAFETY: the blocks live through the call, which copies them; the buffers they name belong to
            // `in_flight` until their completion is taken or the context is destroyed, and do not move.
            let result = unsafe {
                libc::syscall(libc::SYS_io_submit, self.context.0, pointers.len(), pointers.as_ptr())
            };
            match usize::try_from(result) {
                Ok(0) => return,
                Ok(submitted) => drop(waiting.drain(..submitted)),
                Err(_) => match io::Error::last_os_error() {
                    // No room: the next completion tries again.
                    error if error.kind() == io::ErrorKind::WouldBlock && blocks.len() < in_flight.len() => {
                        return;
                    }
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => {
                        // The first one is at fault; the others get their own answer.
                        let Some(slot) = waiting.pop_front() else { return };
                        self.free.borrow_mut().push(slot);
                        if let Some(Ask { answer, memory, .. }) = in_flight[slot].take() {
                            let _ = answer.send((Err(error), memory));
                        }
                    }
                },
            }
        }
    }

    /// Takes all completions there are.
    fn complete(&self) {
        let mut counter = [0; 8];
        // Only resets the counter; what has ended is asked for below in any case.
        let _ = rustix::io::read(&self.events, &mut counter);
        loop {
            let mut events = [Event::default(); EVENTS];
            let mut no_wait = libc::timespec { tv_sec: 0, tv_nsec: 0 };
            // SAFETY: room for `EVENTS` events, and a valid time-out of zero.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.context.0,
                    0 as libc::c_long,
                    EVENTS as libc::c_long,
                    events.as_mut_ptr(),
                    &raw mut no_wait,
                )
            };
            let ended = usize::try_from(result).unwrap_or(0);
            for event in &events[..ended] {
                self.answer(event);
            }
            if ended < EVENTS {
                break;
            }
        }
        if !self.waiting.borrow().is_empty() {
            self.submit();
        }
    }

    fn answer(&self, event: &Event) {
        let slot = event.data as usize;
        let Some(ask) = self.in_flight.borrow_mut().get_mut(slot).and_then(Option::take) else { return };
        self.free.borrow_mut().push(slot);
        let result = match usize::try_from(event.result) {
            Ok(bytes) => Ok(bytes),
            Err(_) => Err(io::Error::from_raw_os_error(-event.result as i32)),
        };
        let memory: AlignedBuffer = ask.memory;
        // A mover that does not wait any more has no use for the buffer either.
        let _ = ask.answer.send((result, memory));
    }
}
