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

/// Copy `from` to `to`, as it is quickest for some ten or hundred kilobytes.
///
/// # Safety
///
/// `to` is memory of at least as many bytes that nobody else uses meanwhile.
pub(super) unsafe fn small(from: &[u8], to: *mut u8) {
    // The processor's own way of copying many bytes, which the C library uses, takes ten times as long on some if `to` is
    // a little behind `from` within a page. Just that is so if `from` begins a page, and `to` was allocated.
    #[cfg(target_arch = "x86_64")]
    if (1..64).contains(&((to as usize).wrapping_sub(from.as_ptr() as usize) % 4096))
        && is_x86_feature_detected!("avx")
    {
        let lines = from.len() / 32;
        let rest = &from[lines * 32..];
        // SAFETY: the processor has it; all within what the caller gave.
        unsafe {
            plain_256(from.as_ptr(), to, lines);
            std::ptr::copy_nonoverlapping(rest.as_ptr(), to.add(lines * 32), rest.len());
        }
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn plain_256(from: *const u8, to: *mut u8, count: usize) {
    use std::arch::x86_64::{_mm256_loadu_si256, _mm256_storeu_si256};
    for line in 0..count {
        // SAFETY: within what the caller gave.
        unsafe {
            _mm256_storeu_si256(to.add(line * 32).cast(), _mm256_loadu_si256(from.add(line * 32).cast()))
        };
    }
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
            let from = &from[skip..];
            let mut to = vec![0; from.len() + 64];
            for how in [past_caches, small] {
                to.fill(0);
                // SAFETY: there is room behind the shift.
                unsafe { how(from, to.as_mut_ptr().add(shift)) };
                assert_eq!(to[shift..shift + from.len()], *from);
                assert!(to[..shift].iter().chain(&to[shift + from.len()..]).all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn a_little_behind_within_a_page() {
        let mut room = vec![0_u8; 4 * 4096 + 2 * 64];
        let begin = room.as_ptr().align_offset(4096);
        for (byte, place) in room[begin..begin + 4097].iter_mut().enumerate() {
            *place = (byte % 251) as u8;
        }
        let (from, to) = room.split_at_mut(begin + 2 * 4096);
        for behind in [0, 1, 16, 63, 64] {
            to.fill(0);
            // SAFETY: there is room.
            unsafe { small(&from[begin..begin + 4097], to.as_mut_ptr().add(behind)) };
            assert_eq!(to[behind..behind + 4097], from[begin..begin + 4097]);
            assert!(to[..behind].iter().chain(&to[behind + 4097..]).all(|byte| *byte == 0));
        }
    }
}
