//! Buffers in this process's own memory.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

/// Copies begin at multiples of this. The processor's own way of copying many bytes takes ten times as long on some if the
/// copy begins up to so many bytes further into a page than what is copied. Ranges of segments begin pages.
const ALIGNMENT: usize = 64;

pub(super) struct Heap {
    begin: *mut u8,
    length: usize,
    layout: Layout,
}

impl Heap {
    /// A copy of these bytes.
    pub fn copy_of(bytes: &[u8]) -> Heap {
        let Ok(layout) = Layout::from_size_align(bytes.len().max(1), ALIGNMENT) else {
            return bytes.to_vec().into();
        };
        // SAFETY: its size is not zero; there is room for all that is copied.
        let begin = unsafe {
            let begin = alloc(layout);
            if begin.is_null() {
                handle_alloc_error(layout);
            }
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), begin, bytes.len());
            begin
        };
        Heap { begin, length: bytes.len(), layout }
    }

    pub fn begin(&self) -> *mut u8 {
        self.begin
    }

    pub fn len(&self) -> usize {
        self.length
    }
}

impl From<Vec<u8>> for Heap {
    fn from(bytes: Vec<u8>) -> Heap {
        let mut bytes = std::mem::ManuallyDrop::new(bytes);
        // What a vector of bytes asks for; it cannot have more than fits.
        let layout = Layout::array::<u8>(bytes.capacity()).unwrap_or(Layout::new::<u8>());
        Heap { begin: bytes.as_mut_ptr(), length: bytes.len(), layout }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: what it was allocated with.
            unsafe { dealloc(self.begin, self.layout) };
        }
    }
}

// SAFETY: memory that belongs to no thread; who may write it is said by the part it is of.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_it_was_made_of() {
        let bytes: Vec<u8> = (0..100_000).map(|number| number as u8).collect();
        for taken in [&bytes[..], &bytes[..1], &[]] {
            let (copy, moved) = (Heap::copy_of(taken), Heap::from(taken.to_vec()));
            assert_eq!(copy.begin() as usize % ALIGNMENT, 0);
            for heap in [copy, moved] {
                // SAFETY: as much as it has.
                assert_eq!(unsafe { std::slice::from_raw_parts(heap.begin(), heap.len()) }, taken);
            }
        }
    }
}
