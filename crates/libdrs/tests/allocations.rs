//! Test that a step allocates nothing, counted by an allocator that wraps the system's.

// a test that can't go on has failed; the allocator passes everything on
#![allow(clippy::unwrap_used, unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::ptr;
use std::thread;

use libdrs::{DrsFlow, DrsReport, drs_flow_free, drs_flow_new, drs_flow_step};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

fn count() {
    // The counter of an ending thread is gone.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: all calls are passed to the system's allocator. Counting does not allocate, because the
// counter needs no initialization.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: likewise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: likewise.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn steps_allocate_nothing() {
    let before = COUNT.get();
    drop(vec![1, 2, 3]);
    assert!(COUNT.get() > before, "the counter counts");

    for mode in 0..=3 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        // Reads in a thread, because a mode may shrink the buffers below the size of one write.
        let mut reading = receiver.try_clone().unwrap();
        let reader = thread::spawn(move || io::copy(&mut reading, &mut io::sink()));
        let mut flows = [ptr::null_mut::<DrsFlow>(); 2];
        for (flow, (side, socket)) in flows.iter_mut().zip([(1, &sender), (2, &receiver)]) {
            // SAFETY: the pointer is valid.
            let code = unsafe { drs_flow_new(socket.as_raw_fd(), side, mode, &raw mut *flow) };
            assert_eq!(code, 0);
        }
        let mut report = DrsReport::empty();
        report.size = u32::try_from(size_of::<DrsReport>()).unwrap();
        let (block, mut verdicts) = ([0; 100_000], 0);
        for look in 1..=200u64 {
            sender.write_all(&block).unwrap();
            for flow in flows {
                let before = COUNT.get();
                // SAFETY: the flow is alive, and the report as large as it says.
                let code = unsafe { drs_flow_step(flow, look * 20_000_000, &raw mut report) };
                assert_eq!(
                    (code, COUNT.get() - before),
                    (0, 0),
                    "mode {mode}, look {look}"
                );
                verdicts += report.flags & 1;
            }
        }
        assert!(
            verdicts > 10,
            "intervals closed, so deciding was counted too"
        );
        for flow in flows {
            // SAFETY: alive and freed once.
            unsafe { drs_flow_free(flow) };
        }
        drop(sender);
        assert_eq!(reader.join().unwrap().unwrap(), 200 * 100_000);
    }
}
