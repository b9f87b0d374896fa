//! Memory that crosses the border: Python's buffers read and written here, and memory of ours lent to Python.

use crate::error::raise;
use crate::ready::Pin;
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_int};
use std::sync::Arc;

/// A contiguous buffer of Python's, kept alive and readable as a slice without the interpreter's lock.
///
/// Nobody writes to it meanwhile: what Python passes here are arrays of ids or the arrays of a mapped graph. The
/// package says so where it takes them.
pub(crate) struct Input<T: Element> {
    buffer: PyBuffer<T>,
    start: *const T,
    length: usize,
}

// SAFETY: the buffer is exported, so its memory neither moves nor goes away until this is dropped, and it is only read.
unsafe impl<T: Element> Send for Input<T> {}
// SAFETY: as above.
unsafe impl<T: Element> Sync for Input<T> {}

impl<T: Element> Input<T> {
    pub(crate) fn new(object: &Bound<'_, PyAny>, what: &str) -> PyResult<Self> {
        let wrong = |reason: String| {
            let wanted = std::any::type_name::<T>();
            let message = format!("{what}: {reason}; give a contiguous one-dimensional array of {wanted}");
            raise(object.py(), "ArgumentError", &message)
        };
        let buffer = PyBuffer::<T>::get(object).map_err(|error| wrong(error.to_string()))?;
        if !buffer.is_c_contiguous() {
            return Err(wrong("the array is not contiguous".to_owned()));
        }
        let (start, length) = (buffer.buf_ptr().cast::<T>().cast_const(), buffer.item_count());
        Ok(Input { buffer, start, length })
    }

    pub(crate) fn slice(&self) -> &[T] {
        if self.length == 0 {
            return &[];
        }
        // SAFETY: `new` has checked that the buffer holds so many contiguous elements, and it is still exported.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }

    pub(crate) fn address(&self) -> usize {
        self.buffer.buf_ptr() as usize
    }
}

/// A contiguous, writable buffer of Python's.
pub(crate) struct Output {
    _buffer: PyBuffer<u8>,
    start: *mut u8,
    length: usize,
}

// SAFETY: the buffer is exported, so its memory stays; the caller of `slice` has it for itself.
unsafe impl Send for Output {}

impl Output {
    pub(crate) fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let wrong = |reason: &str| {
            let message = format!("the destination: {reason}; give a contiguous, writable array's bytes");
            raise(object.py(), "ArgumentError", &message)
        };
        let buffer = PyBuffer::<u8>::get(object).map_err(|error| wrong(&error.to_string()))?;
        if buffer.readonly() || !buffer.is_c_contiguous() {
            return Err(wrong("it is read-only or not contiguous"));
        }
        let (start, length) = (buffer.buf_ptr().cast::<u8>(), buffer.len_bytes());
        Ok(Output { _buffer: buffer, start, length })
    }

    pub(crate) fn slice(&mut self) -> &mut [u8] {
        if self.length == 0 {
            return &mut [];
        }
        // SAFETY: the buffer is writable, contiguous, of this length and still exported; the package hands a
        // destination to one call at a time.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

/// Whole numbers made here, lent to numpy: `numpy.asarray(...)` reads and writes them in place.
#[pyclass(frozen, module = "rudder._native")]
pub(crate) struct Int64s {
    values: Box<[i64]>,
    shape: isize,
    stride: isize,
}

impl Int64s {
    pub(crate) fn new(values: Vec<i64>) -> Self {
        Int64s { shape: values.len() as isize, stride: 8, values: values.into() }
    }
}

#[pymethods]
impl Int64s {
    #[allow(unsafe_code)]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        let lent = Lent {
            start: this.values.as_ptr().cast::<u8>(),
            bytes: this.shape * 8,
            item_bytes: 8,
            format: c"q",
            shape: &raw const this.shape,
            stride: &raw const this.stride,
            // Nothing here looks at the values again.
            read_only: false,
        };
        // SAFETY: the values lie in a box that lives as long as this object, which the view keeps alive.
        unsafe { lend(slf.into_any(), view, flags, &lent) }
    }
}

/// Bytes of a mapping, read-only; the minibatch stays pinned as long as any array over them lives.
#[pyclass(frozen, weakref, module = "rudder._native")]
pub(crate) struct PinnedBytes {
    pin: Arc<Pin>,
    mapping: u16,
    shape: isize,
    stride: isize,
}

impl PinnedBytes {
    pub(crate) fn new(pin: Arc<Pin>, mapping: u16) -> Self {
        let shape = pin.ready().mapping(mapping).len() as isize;
        PinnedBytes { pin, mapping, shape, stride: 1 }
    }
}

#[pymethods]
impl PinnedBytes {
    #[allow(unsafe_code)]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        let lent = Lent {
            start: this.pin.ready().mapping(this.mapping).as_ptr(),
            bytes: this.shape,
            item_bytes: 1,
            format: c"B",
            shape: &raw const this.shape,
            stride: &raw const this.stride,
            read_only: true,
        };
        // SAFETY: the pin keeps the mapping, this object keeps the pin, and the view keeps this object.
        unsafe { lend(slf.into_any(), view, flags, &lent) }
    }
}

/// One-dimensional memory of an object.
struct Lent {
    start: *const u8,
    bytes: isize,
    item_bytes: isize,
    format: &'static CStr,
    shape: *const isize,
    stride: *const isize,
    read_only: bool,
}

/// Fills a view of an object's memory.
///
/// # Safety
/// `view` is the pointer that Python passed; the memory, shape and stride live as long as `owner`.
#[allow(unsafe_code)]
unsafe fn lend(
    owner: Bound<'_, PyAny>,
    view: *mut ffi::Py_buffer,
    flags: c_int,
    lent: &Lent,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("no view to fill"));
    }
    if lent.read_only && flags & ffi::PyBUF_WRITABLE == ffi::PyBUF_WRITABLE {
        return Err(PyBufferError::new_err("rows of the shared cache are read-only"));
    }
    let wanted = |flag: c_int| flags & flag == flag;
    // SAFETY: the caller's promise; every field of the view is set, and the format and arrays outlive it.
    unsafe {
        (*view).obj = owner.into_ptr();
        (*view).buf = lent.start.cast_mut().cast();
        (*view).len = lent.bytes;
        (*view).readonly = c_int::from(lent.read_only);
        (*view).itemsize = lent.item_bytes;
        (*view).format =
            if wanted(ffi::PyBUF_FORMAT) { lent.format.as_ptr().cast_mut() } else { std::ptr::null_mut() };
        (*view).ndim = 1;
        (*view).shape = if wanted(ffi::PyBUF_ND) { lent.shape.cast_mut() } else { std::ptr::null_mut() };
        (*view).strides =
            if wanted(ffi::PyBUF_STRIDES) { lent.stride.cast_mut() } else { std::ptr::null_mut() };
        (*view).suboffsets = std::ptr::null_mut();
        (*view).internal = std::ptr::null_mut();
    }
    Ok(())
}
