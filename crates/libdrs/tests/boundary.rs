//! Tests of wrong calls by C programs, and of simultaneous calls by several threads.

// a test that can't go on has failed; the functions are C's
#![allow(clippy::unwrap_used, unsafe_code)]

use std::ffi::CStr;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;

use libdrs::{
    DrsFlow, DrsReport, drs_budget_free, drs_budget_new, drs_flow_free, drs_flow_new,
    drs_flow_new_shared, drs_flow_step, drs_mode_word, drs_strerror, drs_version,
};

const NOW: u64 = u64::MAX;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn new(fd: RawFd, side: i32, mode: i32) -> Result<*mut DrsFlow, i32> {
    let mut flow = ptr::dangling_mut();
    // SAFETY: the pointer is valid.
    match unsafe { drs_flow_new(fd, side, mode, &raw mut flow) } {
        0 => Ok(flow),
        code => {
            assert!(flow.is_null(), "an error leaves no flow");
            Err(code)
        }
    }
}

fn sized() -> DrsReport {
    let mut report = DrsReport::empty();
    report.size = u32::try_from(size_of::<DrsReport>()).unwrap();
    report
}

#[test]
fn mistakes_are_numbers() {
    let (near, _far) = pair();
    let fd = near.as_raw_fd();
    assert_eq!(new(fd, 0, 1), Err(-2));
    assert_eq!(new(fd, 1, 4), Err(-2));
    assert_eq!(new(fd, 1, -1), Err(-2));
    assert_eq!(new(-1, 1, 1), Err(-3));
    assert_eq!(new(i32::MIN, 1, 1), Err(-3));
    assert_eq!(new(1_000_000, 1, 1), Err(-3));
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    assert_eq!(new(udp.as_raw_fd(), 1, 1), Err(-4));
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert_eq!(new(one.as_raw_fd(), 1, 1), Err(-4));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    assert_eq!(new(listener.as_raw_fd(), 1, 1), Err(-4));
    let file = tempfile::tempfile().unwrap();
    assert_eq!(new(file.as_raw_fd(), 1, 1), Err(-4));
    // SAFETY: NULL is what is tested.
    unsafe {
        assert_eq!(drs_flow_new(fd, 1, 1, ptr::null_mut()), -1);
        assert_eq!(drs_flow_step(ptr::null_mut(), NOW, ptr::null_mut()), -1);
        assert_eq!(drs_budget_new(5, ptr::null_mut()), -1);
        let mut flow = ptr::dangling_mut();
        assert_eq!(
            drs_flow_new_shared(fd, 1, 1, ptr::null(), &raw mut flow),
            -1
        );
        assert!(flow.is_null());
        let mut budget = ptr::dangling_mut();
        assert_eq!(drs_budget_new(0, &raw mut budget), -2);
        assert!(budget.is_null());
        drs_flow_free(ptr::null_mut());
        drs_budget_free(ptr::null_mut());
    }
}

#[test]
fn a_report_that_is_too_small_is_refused() {
    let (near, _far) = pair();
    let flow = new(near.as_raw_fd(), 1, 0).unwrap();
    let mut report = DrsReport::empty();
    // SAFETY: the flow is alive; a whole report is there, whatever its size member says.
    unsafe {
        assert_eq!(drs_flow_step(flow, NOW, &raw mut report), -2);
        report.size = 16;
        assert_eq!(drs_flow_step(flow, NOW, &raw mut report), -2);
        assert_eq!(drs_flow_step(flow, NOW, ptr::null_mut()), 0);
        drs_flow_free(flow);
    }
}

#[test]
fn a_flow_never_owns_its_socket() {
    let (mut near, mut far) = pair();
    let flow = new(near.as_raw_fd(), 1, 1).unwrap();
    // SAFETY: alive, freed once.
    unsafe { drs_flow_free(flow) };
    near.write_all(b"x").unwrap();
    far.read_exact(&mut [0]).unwrap();

    let flow = new(near.as_raw_fd(), 1, 1).unwrap();
    let number = near.as_raw_fd();
    drop(near);
    assert_eq!(
        far.read(&mut [0]).unwrap(),
        0,
        "nothing else holds the socket open"
    );
    let mut report = sized();
    report.limit = 77;
    // Another thread's test may have got the number meanwhile, but this flow's socket is gone
    // either way. SAFETY: as above.
    let code = unsafe { drs_flow_step(flow, NOW, &raw mut report) };
    assert!([0, -3, -4].contains(&code), "{code} of {number}");
    assert_ne!(report.limit, 77);
    // SAFETY: as above.
    unsafe { drs_flow_free(flow) };
}

#[test]
fn flows_share_a_budget_that_is_freed_before_them() {
    let (near, far) = pair();
    let mut budget = ptr::null_mut();
    // SAFETY: valid pointers; everything is freed once.
    unsafe {
        assert_eq!(drs_budget_new(1 << 20, &raw mut budget), 0);
        let mut flows = [ptr::null_mut(); 2];
        for (flow, socket) in flows.iter_mut().zip([&near, &far]) {
            assert_eq!(
                drs_flow_new_shared(socket.as_raw_fd(), 2, 3, budget, &raw mut *flow),
                0
            );
        }
        drs_budget_free(budget);
        for flow in flows {
            assert_eq!(drs_flow_step(flow, NOW, ptr::null_mut()), 0);
            drs_flow_free(flow);
        }
    }
}

#[test]
fn threads_step_one_flow() {
    struct Shared(*mut DrsFlow);
    // SAFETY: the header promises that a flow may be used from any thread.
    unsafe impl Sync for Shared {}
    let (near, _far) = pair();
    let flow = Shared(new(near.as_raw_fd(), 1, 1).unwrap());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let flow = &flow;
            scope.spawn(move || {
                let mut report = sized();
                for _ in 0..200 {
                    // SAFETY: alive until the scope ends.
                    assert_eq!(unsafe { drs_flow_step(flow.0, NOW, &raw mut report) }, 0);
                }
            });
        }
    });
    // SAFETY: alive, freed once.
    unsafe { drs_flow_free(flow.0) };
}

#[test]
fn every_number_has_a_sentence() {
    let text = |pointer| {
        // SAFETY: static strings.
        unsafe { CStr::from_ptr(pointer) }
            .to_str()
            .unwrap()
            .to_owned()
    };
    let sentences: std::collections::BTreeSet<_> =
        (-7..=0).map(|code| text(drs_strerror(code))).collect();
    assert_eq!(sentences.len(), 8, "{sentences:?}");
    assert_eq!(text(drs_strerror(i32::MIN)), text(drs_strerror(1)));
    assert_eq!(text(drs_mode_word(3)), "paper+");
    assert_eq!(text(drs_mode_word(4)), "unknown");
    assert_eq!(text(drs_version()), env!("CARGO_PKG_VERSION"));
}
