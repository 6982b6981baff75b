//! State of this library in one process: the reports of the hooks, its own state, and its owner.
//!
//! After `fork` the child continues with the connections that it inherited, with a helper of its
//! own. The child of `vfork` borrows its parent's memory, and the child of a bare `clone` is not
//! announced. In both the process number is not the owner's, and nothing is touched.

use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use crate::context::{self, ContextGuard};
use crate::descriptor::borrow;
use crate::filter;
use crate::helper::{Helper, HelperWork};
use crate::log::Log;
use crate::real;
use crate::right_sizing::RightSizing;
use crate::routes::Routes;
use crate::settings::PreloadSettings;

/// This process, once the library has been initialized. Null before that, and if nothing is to be
/// done.
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());

/// State of the library in the process.
pub struct Process {
    /// Right-sizing of its connections; `None` if it is off.
    pub right_sizing: Option<RightSizing>,
    /// Routing of its connections; `None` if it is off.
    pub routes: Option<Routes>,
    /// The log.
    pub log: Log,
    /// The library's own thread.
    pub helper: Helper,
    /// Number of the process that owns this state.
    owner: AtomicI32,
}

/// Returns this process's state, if the library is active in it.
pub fn process() -> Option<&'static Process> {
    // SAFETY: null, or what `set_up` stored permanently.
    unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
}

/// Runs `body` unnoticed by the program, in the process that owns the state. It preserves `errno`,
/// delays cancellation, and catches panics. Returns `None` if `body` did not run to its end.
pub fn run_unnoticed<T>(body: impl FnOnce(&'static Process) -> T) -> Option<T> {
    let process = process().filter(|process| process.is_owner())?;
    if context::has_little_stack() {
        return None;
    }
    let _unseen = ContextGuard::begin();
    match catch_unwind(AssertUnwindSafe(|| body(process))) {
        Ok(result) => Some(result),
        Err(payload) => {
            // Its destructor may panic again.
            std::mem::forget(payload);
            None
        }
    }
}

/// Returns the lowest descriptor of this library from `first` to `last`, for hooks that close a
/// range.
pub fn lowest_own_descriptor(first: u32, last: u32) -> Option<u32> {
    let process = process()?;
    let log = u32::try_from(process.log.descriptor()).ok();
    let log = log.filter(|own| (first..=last).contains(own));
    let control = process
        .routes
        .as_ref()
        .and_then(|routes| routes.lowest_own_descriptor(first, last));
    log.into_iter().chain(control).min()
}

/// Returns true if a descriptor is this library's and not the program's.
pub fn is_ours(descriptor: RawFd) -> bool {
    process().is_some_and(|process| {
        let is_log =
            descriptor >= 0 && process.log.descriptor() == descriptor && process.log.is_valid();
        is_log
            || process
                .routes
                .as_ref()
                .is_some_and(|routes| routes.is_own(descriptor))
    })
}

/// Initializes the library, unless the environment has an unknown setting. To be called once, when
/// the object is loaded.
pub fn set_up() {
    // A message on the program's standard error would change its behaviour. This hook is that of
    // the library's own copy of the standard library; a Rust program has another.
    std::panic::set_hook(Box::new(|_| ()));
    real::look_all_up();
    let Some(settings) = PreloadSettings::from_environment() else {
        return;
    };
    if filter::is_stricter(settings.filters) {
        if settings.routes.is_some_and(|routes| routes.closed) {
            filter::refuse_connections();
        }
        return;
    }
    let log = Log::disabled();
    if let Some(path) = &settings.log {
        log.open(path);
    }
    let process = Box::new(Process {
        right_sizing: settings.mode.map(RightSizing::new),
        routes: settings
            .routes
            .map(|routes| Routes::new(routes, settings.ramp.as_deref())),
        log,
        helper: Helper::new(),
        owner: AtomicI32::new(own_number()),
    });
    PROCESS.store(Box::into_raw(process), Ordering::Release);
    // SAFETY: the handler is a function of this library, which is not unloaded before the process
    // ends.
    unsafe { libc::pthread_atfork(None, None, Some(after_fork_in_child)) };
    // Descriptors that inetd and similar programs pass on.
    run_unnoticed(|process| (0..=2).for_each(|descriptor| process.note_opened(descriptor)));
}

/// Proof that this library does nothing in the process for now.
pub struct InactiveLibrary(&'static Process);

/// Stops all activity in this process: no hook makes a system call for which the program did not
/// ask, and no thread of this library is left. Returns `None` if the library was not active.
pub fn deactivate() -> Option<InactiveLibrary> {
    let process = process().filter(|process| process.is_owner())?;
    let _unseen = ContextGuard::begin();
    if process.routes.as_ref().is_some_and(Routes::is_closed) {
        filter::refuse_connections();
    }
    PROCESS.store(std::ptr::null_mut(), Ordering::Release);
    process.helper.dismiss();
    Some(InactiveLibrary(process))
}

impl InactiveLibrary {
    /// Resumes as before.
    pub fn undo(self) {
        self.0.helper.allow();
        filter::accept_connections();
        PROCESS.store(std::ptr::from_ref(self.0).cast_mut(), Ordering::Release);
    }
}

/// Adapts the state in the child of a fork. Nothing is started here, because other libraries have
/// not had their turn yet.
extern "C" fn after_fork_in_child() {
    if let Some(process) = process() {
        process.owner.store(own_number(), Ordering::Release);
        process.helper.after_fork();
        process.log.after_fork();
        if let Some(right_sizing) = &process.right_sizing {
            right_sizing.after_fork();
        }
        if let Some(routes) = &process.routes {
            routes.after_fork();
        }
    }
}

/// Called when the process exits normally.
pub fn on_exit() {
    run_unnoticed(|process| {
        if let Some(right_sizing) = &process.right_sizing {
            right_sizing.ending(&process.log);
        }
        if let Some(routes) = &process.routes {
            routes.ending();
        }
    });
}

fn own_number() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

impl Process {
    /// Returns true if this is the process that owns the state.
    fn is_owner(&self) -> bool {
        self.owner.load(Ordering::Acquire) == own_number()
    }

    /// Returns true if the helper should run, but does not.
    pub fn needs_helper(&self) -> bool {
        self.has_work() && self.helper.is_missing()
    }

    /// Returns true if anything is known of a descriptor.
    pub fn knows(&self, descriptor: RawFd) -> bool {
        self.right_sizing
            .as_ref()
            .is_some_and(|right_sizing| right_sizing.table.find(descriptor).is_some())
            || self
                .routes
                .as_ref()
                .is_some_and(|routes| routes.knows(descriptor))
    }

    /// Prepares a descriptor before a connection is opened, or the socket listens.
    pub fn before_connection(&self, descriptor: RawFd) {
        if let Some(right_sizing) = &self.right_sizing {
            right_sizing.before_connection(descriptor, &self.log);
        }
    }

    /// Notes a descriptor that may be a new connection.
    pub fn note_opened(&'static self, descriptor: RawFd) {
        if let Some(right_sizing) = &self.right_sizing
            && right_sizing.opened(descriptor, &self.log)
        {
            self.helper.notify();
        }
        // Programs do not open connections within a fork.
        self.helper.fork_is_over();
        self.helper.start_if_needed(self);
    }

    /// Notes that a descriptor is about to be closed.
    pub fn note_closing(&'static self, descriptor: RawFd) {
        if let Some(right_sizing) = &self.right_sizing {
            right_sizing.closing(descriptor, &self.log);
        }
        if let Some(routes) = &self.routes {
            routes.closing(descriptor);
        }
    }

    /// Notes that all descriptors from `first` to `last` are about to be closed.
    pub fn note_closing_range(&'static self, first: u32, last: u32) {
        let end = u32::try_from(crate::table::MAX_DESCRIPTORS).unwrap_or(0);
        for descriptor in first..last.saturating_add(1).min(end) {
            self.note_closing(RawFd::try_from(descriptor).unwrap_or(-1));
        }
    }

    /// Notes that `new` is about to be closed, and to become a copy of `old`.
    pub fn note_replacing(&'static self, old: RawFd, new: RawFd) {
        let possible =
            old != new && borrow(old).is_some_and(|old| rustix::io::fcntl_getfd(old).is_ok());
        if possible {
            self.log.vacate(new);
            if let Some(routes) = &self.routes {
                routes.vacate(new);
            }
            self.note_closing(new);
        }
    }

    /// Notes that `new` has become a copy of `old`.
    pub fn note_duplicated(&'static self, old: RawFd, new: RawFd) {
        if new < 0 || new == old {
            return;
        }
        if let Some(right_sizing) = &self.right_sizing {
            right_sizing.duplicated(old, new);
        }
        if let Some(routes) = &self.routes {
            routes.duplicated(old, new);
        }
    }
}

impl HelperWork for Process {
    fn helper(&self) -> &Helper {
        &self.helper
    }

    fn has_work(&self) -> bool {
        self.right_sizing
            .as_ref()
            .is_some_and(|right_sizing| right_sizing.table.live() > 0)
    }

    fn run(&'static self) {
        if let Some(right_sizing) = &self.right_sizing {
            right_sizing.watch(&self.helper, &self.log);
        }
    }
}

/// Installs a filter of system calls by `install`, which returns -1 if it fails. The library stops
/// before the installation, and resumes if it fails.
pub fn install_filter<T: Copy + PartialEq + From<i8>>(install: impl FnOnce() -> T) -> T {
    let stepped_back = deactivate();
    let result = install();
    if let Some(stepped_back) = stepped_back.filter(|_| result == T::from(-1)) {
        stepped_back.undo();
    }
    result
}
