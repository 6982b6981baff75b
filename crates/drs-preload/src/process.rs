//! What this library is within one process: what the hooks tell it, what it knows, and whom it belongs to.
//!
//! After `fork` the child goes on with the connections that it inherited, with a watcher of its own. The child of `vfork` borrows its
//! parent's memory, and one of a bare `clone` was not announced: in both the process number is not the owner's, and nothing is touched.

use std::os::fd::{BorrowedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use drs::{Host, Mode};

use crate::account::{self, Account};
use crate::ahead;
use crate::log::Log;
use crate::settings::Settings;
use crate::table::{DESCRIPTORS, Table};
use crate::watcher::Watch;

/// This process, once the library has been set up.
static PROCESS: OnceLock<Process> = OnceLock::new();

/// Everything that is known of the process.
pub struct Process {
    /// What may be done.
    pub mode: Mode,
    /// Its connections.
    pub table: Table,
    /// The log.
    pub log: Log,
    /// What this host allows, once somebody asked.
    host: OnceLock<Host>,
    /// The watcher of this process.
    pub watch: Watch,
    /// The number of the process that all this belongs to.
    owner: AtomicI32,
    numbers: AtomicU64,
}

/// Runs `body` beside the program: without a trace in `errno`, and without letting a panic out.
pub fn aside(body: impl FnOnce(&'static Process)) {
    let Some(process) = PROCESS.get() else { return };
    // SAFETY: this thread's errno.
    let errno = unsafe { *libc::__errno_location() };
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| body(process))) {
        // Its destructor may panic once more.
        std::mem::forget(payload);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// The log's descriptor, as the hooks that close many at once count.
pub fn own_descriptor() -> Option<u32> {
    let process = PROCESS.get()?;
    u32::try_from(process.log.descriptor()).ok()
}

/// Whether a descriptor is this library's and not the program's.
pub fn is_ours(descriptor: RawFd) -> bool {
    PROCESS.get().is_some_and(|process| {
        descriptor >= 0 && process.log.descriptor() == descriptor && process.log.stands()
    })
}

/// Sets the library up, unless the environment asks for something that it does not know.
pub fn set_up() {
    // A message on the program's standard error would be a change of its behaviour. This is the library's own copy of the standard
    // library: the hook of a program in Rust is another.
    std::panic::set_hook(Box::new(|_| ()));
    let Some(settings) = Settings::from_environment() else {
        return;
    };
    let process = Process {
        mode: settings.mode,
        table: Table::new(),
        log: Log::none(),
        host: OnceLock::new(),
        watch: Watch::new(),
        owner: AtomicI32::new(own_number()),
        numbers: AtomicU64::new(1),
    };
    if let Some(path) = &settings.log {
        process.log.open(path);
    }
    if PROCESS.set(process).is_err() {
        return;
    }
    // SAFETY: the handler is a function of this library, which is never unloaded before the process ends.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    // What inetd and the like hand over.
    aside(|process| (0..=2).for_each(|descriptor| process.opened(descriptor)));
}

/// In the child of a fork.
extern "C" fn forked() {
    aside(|process| {
        process.owner.store(own_number(), Ordering::Release);
        process.table.after_fork();
        process.watch.after_fork();
        if process.table.live() > 0 {
            process.watch.wanted(process);
        }
    });
}

/// When the process ends in order.
pub fn ending() {
    aside(Process::ending);
}

fn own_number() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// A descriptor for as long as the caller looks at it.
fn borrow<'a>(descriptor: RawFd) -> Option<BorrowedFd<'a>> {
    // SAFETY: not negative. Should the program close it meanwhile, the kernel answers EBADF.
    (descriptor >= 0).then(|| unsafe { BorrowedFd::borrow_raw(descriptor) })
}

impl Process {
    /// What this host allows; read when it is first needed, since most processes open no connection.
    pub fn host(&self) -> Host {
        *self.host.get_or_init(Host::read)
    }

    /// Whether this is the process that all this belongs to.
    fn is_owner(&self) -> bool {
        self.owner.load(Ordering::Acquire) == own_number()
    }

    /// Before a connection is opened, or a socket listens.
    pub fn before_connection(&self, descriptor: RawFd) {
        if self.mode == Mode::Observe || !self.is_owner() {
            return;
        }
        if let Some(socket) = borrow(descriptor)
            && let Some(done) = ahead::free_the_window(socket, || self.host())
        {
            self.log.ahead(&done);
        }
    }

    /// After `connect`: the connection stands, is under way, or was refused.
    pub fn connecting(&'static self, descriptor: RawFd, stands: bool) {
        // SAFETY: this thread's errno, as `connect` left it.
        let errno = unsafe { *libc::__errno_location() };
        if stands || errno == libc::EINPROGRESS || errno == libc::EINTR {
            self.opened(descriptor);
        }
    }

    /// A descriptor that may be a new connection.
    pub fn opened(&'static self, descriptor: RawFd) {
        let Some(inode) = borrow(descriptor).and_then(account::tcp_inode) else {
            return;
        };
        if !self.is_owner() {
            return;
        }
        if let Some(known) = self.table.inode(descriptor) {
            if known == inode {
                return;
            }
            // Its end was not seen, and the socket is gone.
            self.table
                .close(descriptor, |_, account| self.log.end(account, None));
        }
        let account = Account {
            inode,
            number: self.numbers.fetch_add(1, Ordering::Relaxed),
            since_us: u64::try_from(account::now().as_micros()).unwrap_or(u64::MAX),
            ..Account::default()
        };
        if self.table.open(descriptor, account) {
            self.watch.wanted(self);
        }
    }

    /// A descriptor is about to be closed.
    pub fn closing(&self, descriptor: RawFd) {
        if self.table.knows(descriptor) && self.is_owner() {
            self.table
                .close(descriptor, |descriptor, account| self.end(descriptor, account));
        }
    }

    /// All descriptors from `first` to `last` are about to be closed.
    pub fn closing_range(&self, first: u32, last: u32) {
        let end = u32::try_from(DESCRIPTORS).unwrap_or(0);
        for descriptor in first..last.saturating_add(1).min(end) {
            self.closing(RawFd::try_from(descriptor).unwrap_or(-1));
        }
    }

    /// `new` is about to become a copy of `old`, and to be closed for that.
    pub fn replacing(&self, old: RawFd, new: RawFd) {
        let possible = old != new && borrow(old).is_some_and(|old| rustix::io::fcntl_getfd(old).is_ok());
        if possible && self.is_owner() {
            self.log.make_way(new);
            self.closing(new);
        }
    }

    /// `new` has become a copy of `old`.
    pub fn duplicated(&self, old: RawFd, new: RawFd) {
        if new >= 0 && new != old && self.table.knows(old) && self.is_owner() {
            self.table.alias(old, new);
        }
    }

    /// The process is about to end.
    pub fn ending(&self) {
        if !self.is_owner() {
            return;
        }
        for index in 0..self.table.used() {
            let Some(mut held) = self.table.hold(index) else {
                continue;
            };
            let descriptor = held.descriptor().unwrap_or(-1);
            self.end(descriptor, held.account());
            held.free();
        }
    }

    /// The last line of a connection.
    fn end(&self, descriptor: RawFd, account: &mut Account) {
        let socket = borrow(descriptor).filter(|socket| account::tcp_inode(*socket) == Some(account.inode));
        self.log.end(account, socket);
    }
}
