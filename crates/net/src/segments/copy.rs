//! Copying into memory that somebody else will read: past the caches, where the processor can.

/// From here on what is copied has no room in the caches of one CPU, and whoever reads it next gets it from memory sooner
/// than from there. What is smaller another CPU gets from them in half the time.
const LARGE: usize = 768 << 10;

/// Copy `from` to `to`.
///
/// # Safety
///
/// `to` is memory of at least as many bytes that nobody else uses meanwhile.
pub(super) unsafe fn past_caches(from: &[u8], to: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    if from.len() >= LARGE {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has it; the rest is the caller's promise.
            return unsafe { stream::<64>(from, to, lines_512) };
        }
        if is_x86_feature_detected!("avx") {
            // SAFETY: as above.
            return unsafe { stream::<32>(from, to, lines_256) };
        }
    }
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
}

/// Copy whole lines of `N` bytes with `lines`, and what is left at the ends as usual.
#[cfg(target_arch = "x86_64")]
unsafe fn stream<const N: usize>(from: &[u8], to: *mut u8, lines: unsafe fn(*const u8, *mut u8, usize)) {
    let before = to.align_offset(N).min(from.len());
    let count = (from.len() - before) / N;
    let after = before + count * N;
    // SAFETY: all three pieces are within both, and the middle one begins at a multiple of `N` in `to`.
    unsafe {
        std::ptr::copy_nonoverlapping(from.as_ptr(), to, before);
        lines(from.as_ptr().add(before), to.add(before), count);
        std::ptr::copy_nonoverlapping(from.as_ptr().add(after), to.add(after), from.len() - after);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn lines_512(from: *const u8, to: *mut u8, count: usize) {
    use std::arch::x86_64::{_mm_sfence, _mm512_loadu_si512, _mm512_stream_si512};
    for line in 0..count {
        // SAFETY: within what the caller gave; `to` is aligned.
        unsafe {
            _mm512_stream_si512(to.add(line * 64).cast(), _mm512_loadu_si512(from.add(line * 64).cast()))
        };
    }
    // Whoever hears of it afterwards must find it there.
    _mm_sfence();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn lines_256(from: *const u8, to: *mut u8, count: usize) {
    use std::arch::x86_64::{_mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
    for line in 0..count {
        // SAFETY: within what the caller gave; `to` is aligned.
        unsafe {
            _mm256_stream_si256(to.add(line * 32).cast(), _mm256_loadu_si256(from.add(line * 32).cast()))
        };
    }
    _mm_sfence();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives() {
        let from: Vec<u8> = (0..LARGE + 1000).map(|byte| (byte * 7 % 251) as u8).collect();
        for (skip, shift) in [(0, 0), (1, 0), (0, 3), (5, 33), (LARGE, 1)] {
            let mut to = vec![0; from.len() + 64];
            // SAFETY: there is room behind the shift.
            unsafe { past_caches(&from[skip..], to.as_mut_ptr().add(shift)) };
            assert_eq!(to[shift..shift + from.len() - skip], from[skip..]);
            assert!(to[..shift].iter().chain(&to[shift + from.len() - skip..]).all(|byte| *byte == 0));
        }
    }
}
