//! The runtime that the component brings along: memory, a way to stop, and the two
//! functions that wasi-libc would otherwise provide, `cabi_realloc` and `memcmp`.

#![allow(unsafe_code, reason = "raw memory, as the canonical ABI hands it over")]

use alloc::alloc::{Layout, alloc, realloc};
use core::panic::PanicInfo;
use core::ptr;

#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

/// Traps. The host could not use a message.
#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}

/// Gives the host memory for its arguments.
///
/// # Safety
///
/// As the canonical ABI promises: `old` is null, or `old_size` bytes aligned to
/// `align` that came from here.
#[unsafe(no_mangle)]
unsafe extern "C" fn cabi_realloc(
    old: *mut u8,
    old_size: usize,
    align: usize,
    new_size: usize,
) -> *mut u8 {
    if new_size == 0 {
        return ptr::without_provenance_mut(align);
    }
    // SAFETY: the sizes are not zero, `align` is a power of two by the canonical
    // ABI, and `old` is of this allocator.
    let new = unsafe {
        if old_size == 0 {
            alloc(Layout::from_size_align_unchecked(new_size, align))
        } else {
            realloc(old, Layout::from_size_align_unchecked(old_size, align), new_size)
        }
    };
    if new.is_null() {
        core::arch::wasm32::unreachable()
    }
    new
}

/// Comparisons of byte strings compile to this function. (For copying and filling,
/// wasm has instructions.)
///
/// # Safety
///
/// As in C: both point to `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, length: usize) -> i32 {
    for offset in 0..length {
        // SAFETY: `offset` is below `length`.
        let (left, right) = unsafe { (*left.add(offset), *right.add(offset)) };
        if left != right {
            return i32::from(left) - i32::from(right);
        }
    }
    0
}
